//! Detection of anomalous nodes on the ten splits of GADBench, node by node those that its authors drew.
//!
//! The graph is taken as homogeneous: all relations as one, every node its own in-neighbour exactly once, features as
//! they are. A model is a learner on some blocks of [`features`](crate::features). The learners `gadbench-...` have the
//! settings of the benchmark; `-raw` and `-means` are what it calls RF, XGBoost, RFGraph and XGBGraph. The others have
//! a small grid of ours ([`candidates`]): in every split each candidate is fitted to the training nodes, and the one
//! with the highest average precision on the validation nodes is what the test nodes see, once. Bounds of bins come
//! from training nodes too; nothing but the features of the graph is known of the others.
//!
//! # Source
//! Tang et al., GADBench: Revisiting and benchmarking supervised graph anomaly detection (NeurIPS 2023).

mod candidates;
mod export;
mod model;
mod numpy_random;
mod protocol;
mod report;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Instant;

use graphsieve_kernels::GraphBackend;

use self::model::Fitting;
use super::{Note, usage};
use crate::error::{Error, Result};
use crate::features::{Execution, FeatureTable, Neighbourhood, NeighbourhoodConfig};
use crate::graph::Dataset;
use crate::run::progress::{Mode, Progress, Unit};

pub use candidates::{Candidate, Settings, candidates};
pub use model::{Inputs, Learner, Model};
pub use protocol::Protocol;
use protocol::Splits;
pub use report::{Figures, FiguresSpread, GadReport, ModelReport, SplitReport};

/// What to measure.
#[derive(Clone, Debug)]
pub struct GadOptions {
    /// Data directory or `.npz` file with labels 0 and 1.
    pub data: PathBuf,
    /// How many nodes are labelled.
    pub protocol: Protocol,
    /// Models, in the order of the report.
    pub models: Vec<Model>,
    /// Number of splits, from 1 to 10; the protocol has ten.
    pub splits: usize,
    /// Shares of the labels for training and validation in [`Protocol::Full`]; most data sets of the benchmark have 0.4
    /// and 0.2.
    pub shares: [f64; 2],
    /// New directory for columns, splits and settings, for other libraries.
    pub export: Option<PathBuf>,
    /// Name and model of the device that computes the features, for the report.
    pub description: String,
}

/// Runs the protocol.
///
/// # Errors
/// [`Error::Usage`] for no split or no model, or one model twice; data that cannot be read or lack features, labels or
/// enough nodes of each class; a device that fails.
pub fn run<B: GraphBackend>(options: &GadOptions, device: &B::Device, mode: Mode, note: Note) -> Result<GadReport> {
    graphsieve_kernels::device::watch();
    check(options)?;
    let started = Instant::now();
    note(&format!("reading {}", options.data.display()));
    let dataset = Dataset::open(&options.data)?;
    dataset.notes.iter().for_each(|text| note(text));
    let labels = dataset.binary_labels(&options.data)?;
    let division = Splits::new(&dataset, &labels.entries, options.protocol, options.shares)?;
    let splits: Vec<_> = (0..options.splits).map(|at| division.split(at)).collect::<Result<_>>()?;
    note(&format!("splits: {}", division.source()));
    let table = features::<B>(&dataset, options, device)?;
    note(&format!("{} features of {} nodes", table.columns().len(), table.num_rows()));
    if let Some(dir) = &options.export {
        export::write(dir, &table, &splits, options)?;
        note(&format!("columns, splits and settings: {}", dir.display()));
    }
    let inputs: Vec<(Inputs, FeatureTable)> = Inputs::ALL
        .into_iter()
        .filter(|inputs| options.models.iter().any(|model| model.inputs() == *inputs))
        .map(|inputs| (inputs, table.select(|column| inputs.has(&column.block))))
        .collect();
    drop(table);

    let steps = options.splits * options.models.len();
    let progress = Progress::with_mode("models", steps as u64, Unit::Items, mode);
    let mut models: Vec<(usize, Vec<SplitReport>)> = vec![(0, Vec::new()); options.models.len()];
    for (at, split) in splits.iter().enumerate() {
        for (inputs, table) in &inputs {
            let mut fitting = Fitting::new(table, split, protocol::seed(at))?;
            for (index, model) in options.models.iter().enumerate().filter(|(_, model)| model.inputs() == *inputs) {
                let report = fitting.model(model.learner())?;
                models[index].0 = table.columns().len();
                models[index].1.push(report);
                let done: usize = models.iter().map(|(_, splits)| splits.len()).sum();
                progress.update(done as u64, &format!("split {}, {}", at + 1, model.name()));
            }
        }
    }
    progress.finish("");
    let reports = options.models.iter().zip(models);
    Ok(GadReport {
        data: options.data.clone(),
        protocol: options.protocol,
        splits: division.source(),
        nodes: dataset.graph.num_nodes(),
        edges: dataset.graph.num_edges(),
        labelled: labels.entries.len(),
        anomalous: labels.entries.iter().filter(|entry| entry.1 == 1).count(),
        device: options.description.clone(),
        models: reports.map(|(model, (columns, splits))| ModelReport::new(*model, columns, splits)).collect(),
        total_seconds: started.elapsed().as_secs_f64(),
    })
}

fn check(options: &GadOptions) -> Result<()> {
    if !(1..=protocol::SPLITS).contains(&options.splits) {
        let found = options.splits.to_string();
        return Err(usage("--splits", "1 to 10", &found, "the protocol has 10"));
    }
    if options.models.is_empty() {
        return Err(usage("--models", "at least one model", "none", "leave it out for all of them"));
    }
    let twice = (1..options.models.len()).find(|&at| options.models[..at].contains(&options.models[at]));
    match twice {
        Some(at) => Err(usage("--models", "every model once", options.models[at].name(), "name it once")),
        None => Ok(()),
    }
}

/// Every block that a model wants, of the homogeneous graph.
fn features<B: GraphBackend>(dataset: &Dataset, options: &GadOptions, device: &B::Device) -> Result<FeatureTable> {
    let features = dataset.features.as_ref().ok_or_else(|| Error::Data {
        what: options.data.display().to_string(),
        expected: "features of the nodes".into(),
        found: "none".into(),
        help: "add X_combined.memmap, or give an .npz file with node_features".into(),
    })?;
    let farthest = options.models.iter().map(|model| model.inputs()).max().unwrap_or(Inputs::Raw);
    let config = NeighbourhoodConfig { self_loops: true, ..farthest.blocks() };
    Neighbourhood::new(&dataset.graph, features, &config)?.table::<B>(device, Execution::default())
}
