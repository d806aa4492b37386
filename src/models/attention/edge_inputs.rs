//! What attention reads of the edges of a graph.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ages::TimeInput;
use crate::config::{EdgeReads, TimeEncodingKind};
use crate::error::{Error, Result};
use crate::graph::{Dataset, HeteroGraph, Relation};

/// A relation whose edges have values or ages that the model reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeInput {
    /// Name of the relation.
    pub relation: String,
    /// Number of values.
    pub width: usize,
    /// How the ages are read, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeInput>,
}

impl EdgeInput {
    /// Columns that an edge has: its values, then those of its age.
    pub fn columns(&self) -> usize {
        self.width + self.time.as_ref().map_or(0, TimeInput::columns)
    }
}

/// What a model reads of the edges of a graph, by relation: all values that the graph was given, and all ages, where it
/// reads them, as `time` says. Nothing where no relation has any.
pub fn edge_inputs(graph: &HeteroGraph, time: Option<&TimeInput>) -> Vec<Option<EdgeInput>> {
    let reads_ages = time.is_some() && graph.has_ages();
    if !reads_ages && !graph.has_edge_values() {
        return Vec::new();
    }
    let of = |relation: &Relation| {
        let width = relation.values.as_ref().map_or(0, |values| values.width());
        let time = time.filter(|_| relation.ages.is_some()).cloned();
        (width > 0 || time.is_some()).then(|| EdgeInput { relation: relation.name.clone(), width, time })
    };
    graph.relations().iter().map(of).collect()
}

/// How a new model reads the ages of the edges of a graph, if it does.
pub fn time_input(reads: EdgeReads, graph: &HeteroGraph) -> Option<TimeInput> {
    let learned = reads.time == TimeEncodingKind::Learned;
    let input = || TimeInput { frequencies: reads.frequencies, learned, periods: graph.age_periods() };
    (reads.time != TimeEncodingKind::None).then(input)
}

/// Gives the graph of some data what a new model reads of its edges.
///
/// # Errors
/// Values or times that cannot be read; ages that are asked for of edges without times.
pub fn read_edges(reads: EdgeReads, dataset: &mut Dataset) -> Result<()> {
    if reads.values {
        dataset.load_edge_values()?;
    } else if dataset.has_edge_values() {
        dataset.notes.push("edges have values, which the model reads with model.edge_values = true alone".into());
    }
    match reads.time {
        TimeEncodingKind::None => Ok(()),
        TimeEncodingKind::Fixed | TimeEncodingKind::Learned => dataset.load_ages("model.time_encoding"),
    }
}

/// The graph of some data with the values and ages of its edges that a model of these `inputs` takes.
///
/// # Errors
/// Values or times that cannot be read.
pub fn graph_with_edges(inputs: &[Option<EdgeInput>], dataset: &Dataset) -> Result<HeteroGraph> {
    let edges = || inputs.iter().flatten();
    let graph = match edges().any(|input| input.width > 0) {
        true => dataset.graph_with_edge_values()?,
        false => dataset.graph.clone(),
    };
    if reads_ages(inputs) { dataset.with_ages(graph) } else { Ok(graph) }
}

/// Whether a model of these `inputs` reads ages of edges.
pub fn reads_ages(inputs: &[Option<EdgeInput>]) -> bool {
    inputs.iter().flatten().any(|input| input.time.is_some())
}

/// The `inputs` of a model in the order of the relations of a graph; `file` is the checkpoint, for errors.
///
/// # Errors
/// [`Error::Format`] for a graph whose edges have other values or ages.
pub fn inputs_for(inputs: &[Option<EdgeInput>], graph: &HeteroGraph, file: &Path) -> Result<Vec<Option<EdgeInput>>> {
    let found = edge_inputs(graph, inputs.iter().flatten().find_map(|input| input.time.as_ref()));
    let words = |inputs: &[Option<EdgeInput>]| {
        let mut inputs: Vec<&EdgeInput> = inputs.iter().flatten().collect();
        inputs.sort_unstable_by_key(|input| &input.relation);
        let words = inputs.iter().map(|EdgeInput { relation, width, time }| match (width, time) {
            (width, None) => format!("`{relation}` {width}"),
            (0, Some(_)) => format!("`{relation}` ages"),
            (width, Some(_)) => format!("`{relation}` {width} and ages"),
        });
        let words: Vec<String> = words.collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    };
    let (known, now) = (words(inputs), words(&found));
    if known != now {
        let help = "score a graph whose edges have the values and times that the model was trained on";
        return Err(Error::format(file, "values of edges by relation", now, known, help));
    }
    Ok(found)
}
