//! Whether data are still what a model was trained on.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::graph::digest::Digest;
use crate::graph::{Dataset, EdgeValues, FeatureValues, Features, Relation, Rows};

/// SHA-256 of the parts of some data, with large arrays [in pieces](Digest::large). Ids and names of columns are not in
/// it: no model reads them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataDigest {
    /// Node types and relations with all edges, what they carry, and times of events.
    pub graph: String,
    /// All values.
    pub features: Option<String>,
    /// Labels, or classes with their masks; their split, and when they became known.
    pub labels: Option<String>,
}

impl DataDigest {
    /// Of some data.
    ///
    /// # Errors
    /// Weights, times or values of edges that cannot be read.
    pub fn of(dataset: &Dataset) -> Result<Self> {
        let features = dataset.features.as_ref().map(digest_of);
        Ok(Self { graph: graph_of(dataset)?, features, labels: labels_of(dataset) })
    }
}

fn relation_of(dataset: &Dataset, relation: &Relation) -> Result<String> {
    let mut digest = Digest::default();
    digest.text(&relation.name).number(relation.src as u64).number(relation.dst as u64).text(&relation.stream);
    let forward = &relation.forward;
    match forward.rows() {
        Rows::Lists { row_ptr } => digest.large(bytemuck::cast_slice(row_ptr)),
        Rows::Spans { start, end } => {
            digest.text("spans").large(bytemuck::cast_slice(start)).large(bytemuck::cast_slice(&end))
        }
    };
    digest.large(bytemuck::cast_slice(forward.col_idx()));
    let own = dataset.edge_values.iter().filter(|values| values.relation == relation.name);
    for EdgeValues { weight, time, columns, .. } in own {
        if let Some(weight) = weight {
            digest.text("weight").large(bytemuck::cast_slice(&weight.read(forward.num_edges())?));
        }
        if let Some(time) = time {
            digest.text("time").large(bytemuck::cast_slice(&time.read(forward.num_edges())?));
        }
        if let Some(columns) = columns {
            let values = columns.read(&relation.name, forward.num_edges())?;
            let bytes = bytemuck::cast_slice(values.values());
            digest.text("values").number(values.width() as u64).large(bytes);
        }
    }
    Ok(digest.finish())
}

fn graph_of(dataset: &Dataset) -> Result<String> {
    let mut digest = Digest::default();
    for node_type in dataset.graph.node_types() {
        digest.text(&node_type.name).number(node_type.count as u64);
    }
    for relation in dataset.graph.relations() {
        digest.text(&relation_of(dataset, relation)?);
    }
    if let Some(events) = &dataset.events {
        digest.text("events").bytes(bytemuck::cast_slice(&events.time));
    }
    Ok(digest.finish())
}

/// SHA-256 of features.
pub fn digest_of(features: &Features) -> String {
    let mut digest = Digest::default();
    digest.number(features.dim() as u64);
    match features.values() {
        FeatureValues::Half(values) => digest.large(bytemuck::cast_slice(values)),
        FeatureValues::Single(values) => digest.large(bytemuck::cast_slice(values)),
    };
    digest.finish()
}

fn labels_of(dataset: &Dataset) -> Option<String> {
    let mut digest = Digest::default();
    if let Some(labels) = &dataset.labels {
        let mut entries = labels.entries.clone();
        entries.sort_unstable();
        digest.text("labels").number(entries.len() as u64);
        for (node, label) in entries {
            digest.number(u64::from(node) << 8 | u64::from(label));
        }
    }
    if let Some(classes) = &dataset.classes {
        digest.text("classes").number(classes.of_node().len() as u64);
        for class in classes.of_node() {
            digest.number(class.map_or(u64::MAX, u64::from));
        }
        for masks in classes.masks() {
            for part in [&masks.train, &masks.validation, &masks.test] {
                digest.number(part.len() as u64).bytes(bytemuck::cast_slice(part));
            }
        }
    }
    if let Some(events) = &dataset.events {
        digest.text("known").bytes(bytemuck::cast_slice(&events.known));
    }
    if let Some(split) = &dataset.split {
        for parts in &split.windows {
            digest.text("parts").bytes(parts);
        }
    }
    (dataset.labels.is_some() || dataset.classes.is_some()).then(|| digest.finish())
}
