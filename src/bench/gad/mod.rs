//! Detection of anomalous nodes on the ten splits of GADBench, node by node those that its authors drew.
//!
//! A model is a candidate of tournaments ([`Candidate`]), trees or a network: it learns from the training nodes, may
//! stop by the validation nodes, and the test nodes see it once. `forest` and `booster` are those of several candidates
//! that the validation nodes rank highest, `ensemble` is the mean of the ranks of both. The models `gadbench-...` have
//! the settings of the benchmark; `-raw` and `-means` are what it calls RF, XGBoost, RFGraph and XGBGraph: for them the
//! graph is taken as homogeneous, all relations as one, every node its own in-neighbour exactly once. Nothing but the
//! features and edges is known of nodes beside those of training and validation.
//!
//! # Source
//! Tang et al., GADBench: Revisiting and benchmarking supervised graph anomaly detection (NeurIPS 2023).

mod export;
mod model;
mod numpy_random;
mod protocol;
mod reference;
mod report;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Instant;

use graphsieve_kernels::{GraphBackend, TreeBackend};

use self::model::{Common, Fitting};
use super::{Note, usage};
use crate::config::AutoConfig;
use crate::error::{Error, Result};
use crate::features::FeatureTable;
use crate::graph::Dataset;
use crate::infer::tree_table::{Tables, neighbourhood_table};
use crate::run::progress::{Mode, Progress, Unit};
use crate::train::RunOptions;
use crate::train::auto::kind_of;

pub use model::{Inputs, Model};
pub use protocol::Protocol;
use protocol::Splits;
pub use reference::Learner;
pub use report::{Figures, FiguresSpread, GadReport, ModelReport, SplitReport};

/// What to measure.
#[derive(Clone, Debug)]
pub struct GadOptions {
    /// Data directory or `.npz` file with labels 0 and 1.
    pub data: PathBuf,
    /// How many nodes are labelled.
    pub protocol: Protocol,
    /// Models, in the order of the report; none stands for all that suit the data.
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
/// [`Error::Usage`] for no split, one model twice, or one that does not suit the data; data that cannot be
/// read or lack features, labels or enough nodes of each class; what a training runs into; a device that fails.
pub fn run<B: GraphBackend + TreeBackend>(
    options: &GadOptions,
    device: &B::Device,
    mode: Mode,
    note: Note,
) -> Result<GadReport> {
    graphsieve_kernels::device::watch();
    check(options)?;
    let started = Instant::now();
    note(&format!("reading {}", options.data.display()));
    let dataset = read(options)?;
    dataset.notes.iter().for_each(|text| note(text));
    let labels = dataset.binary_labels(&options.data)?;
    let data = kind_of(&dataset, true);
    let of_all = Model::all().iter().copied().filter(|model| model.suits(data) && model.takes(data));
    let models = if options.models.is_empty() { of_all.collect() } else { options.models.clone() };
    let options = &GadOptions { models, ..options.clone() };
    if let Some(model) = options.models.iter().find(|model| !model.suits(data)) {
        let help = "leave it out; without --models those that suit the data are measured";
        return Err(usage("--models", "a model that suits these data", model.name(), help));
    }
    let division = Splits::new(&dataset, &labels.entries, options.protocol, options.shares)?;
    let splits: Vec<_> = (0..options.splits).map(|at| division.split(at)).collect::<Result<_>>()?;
    note(&format!("splits: {}", division.source()));
    let of_benchmark = options.export.is_some() || options.models.iter().any(|m| matches!(m, Model::Gadbench(..)));
    let features = of_benchmark.then(|| features::<B>(&dataset, options, device)).transpose()?;
    if let (Some(dir), Some(table)) = (&options.export, &features) {
        export::write(dir, table, &splits, options)?;
        note(&format!("columns, splits and settings: {}", dir.display()));
    }
    let mut columns = Vec::with_capacity(options.models.len());
    for model in &options.models {
        columns.push(match (model, model.candidates().first(), &features) {
            (Model::Gadbench(_, inputs), _, Some(table)) => {
                table.columns().iter().filter(|column| inputs.has(&column.block)).count()
            }
            (_, Some(candidate), _) => model::columns_of(candidate, &dataset)?,
            _ => 0,
        });
    }

    // Trainings keep what they learn in runs that nobody needs.
    let runs = tempfile::tempdir().map_err(|source| Error::io(std::env::temp_dir(), "write", source))?;
    let mut config = AutoConfig::new(&options.data);
    (config.output.dir, config.output.plots) = (runs.path().to_path_buf(), false);
    let common = Common::<B> {
        config,
        options: RunOptions::quiet(&options.description),
        device,
        tables: Tables::default(),
        features,
    };
    let steps = options.splits * options.models.len();
    let progress = Progress::with_mode("models", steps as u64, Unit::Items, mode);
    let mut models: Vec<Vec<SplitReport>> = vec![Vec::new(); options.models.len()];
    for (at, split) in splits.iter().enumerate() {
        let mut fitting = Fitting::new(&common, read(options)?, split, protocol::seed(at))?;
        for (index, model) in options.models.iter().enumerate() {
            models[index].push(fitting.model(*model)?);
            let done = at * options.models.len() + index + 1;
            progress.update(done as u64, &format!("split {}, {}", at + 1, model.name()));
        }
    }
    progress.finish("");
    let reports = options.models.iter().zip(columns).zip(models);
    Ok(GadReport {
        data: options.data.clone(),
        protocol: options.protocol,
        splits: division.source(),
        nodes: dataset.graph.num_nodes(),
        edges: dataset.graph.num_edges(),
        labelled: labels.entries.len(),
        anomalous: labels.entries.iter().filter(|entry| entry.1 == 1).count(),
        device: options.description.clone(),
        models: reports.map(|((model, columns), splits)| ModelReport::new(model.name(), columns, splits)).collect(),
        total_seconds: started.elapsed().as_secs_f64(),
    })
}

fn check(options: &GadOptions) -> Result<()> {
    if !(1..=protocol::SPLITS).contains(&options.splits) {
        let found = options.splits.to_string();
        return Err(usage("--splits", "1 to 10", &found, "the protocol has 10"));
    }
    let twice = (1..options.models.len()).find(|&at| options.models[..at].contains(&options.models[at]));
    match twice {
        Some(at) => Err(usage("--models", "every model once", options.models[at].name(), "name it once")),
        None => Ok(()),
    }
}

/// The data; whatever division they came with is not that of the protocol.
fn read(options: &GadOptions) -> Result<Dataset> {
    let dataset = Dataset::open(&options.data)?;
    if dataset.features.is_none() {
        return Err(Error::Data {
            what: options.data.display().to_string(),
            expected: "features of the nodes".into(),
            found: "none".into(),
            help: "add X_combined.memmap, or give an .npz file with node_features".into(),
        });
    }
    Ok(Dataset { split: None, ..dataset })
}

/// Every block that models of the benchmark and other libraries see, of the homogeneous graph.
fn features<B: GraphBackend>(dataset: &Dataset, options: &GadOptions, device: &B::Device) -> Result<FeatureTable> {
    let of = |model: &Model| match model {
        Model::Gadbench(_, inputs) => *inputs,
        _ => Inputs::All,
    };
    let farthest = options.models.iter().map(of).max().unwrap_or(Inputs::Raw);
    neighbourhood_table::<B>(dataset, &options.data, &farthest.blocks(), device)
}
