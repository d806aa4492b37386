//! Measurements on this machine: operators, epochs and inference beside the memory traffic that they cannot avoid.
//!
//! Every figure comes with what it takes to doubt it: quartiles, the bytes that the operator has to move, the copy
//! bandwidth of the very device, and the error against f64.

pub mod accuracy;
pub mod auto;
pub(crate) mod bytes;
mod clock;
mod copy;
pub mod endurance;
pub mod epochs;
mod exact;
pub mod gad;
mod gatv2;
pub mod import;
mod inputs;
pub mod loader;
mod memory;
mod messages;
mod operators;
mod parallel_gat;
mod report;
pub mod scale;
pub mod trees;
pub mod windows;

use std::path::{Path, PathBuf};

use graphsieve_kernels::{GraphBackend, MemoryBackend};
use serde::Serialize;

use crate::config::Precision;
use crate::error::{Error, Result};
use crate::graph::Dataset;

pub use clock::{Times, WARM_UP};
pub use memory::Peak;
pub use report::{GraphFacts, Report, Row};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// The sparse and dense operators of the detector, one by one, on one relation
    Kernels,
    /// General message passing on one relation: reductions, values of edges, softmax
    Messages,
    /// A graph attention layer with its projection: 2,048 wide on dense graphs of 2,048 nodes, and with four heads on
    /// --data
    #[serde(rename = "parallel-gat")]
    ParallelGat,
    /// A training epoch of the auto-encoder, on reachable rows and on all
    Stage1,
    /// A training epoch of the attention network, on reachable rows and on all
    Stage2,
    /// Scores of all nodes with the attention network
    Inference,
}

impl Work {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Work::Kernels => "kernels",
            Work::Messages => "messages",
            Work::ParallelGat => "parallel-gat",
            Work::Stage1 => "stage1",
            Work::Stage2 => "stage2",
            Work::Inference => "inference",
        }
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The data directory; empty where the work makes its own.
    pub data: PathBuf,
    /// Relation of the operators; the one with most edges without it.
    pub relation: Option<String>,
    /// Storage of features and activations.
    pub precision: Precision,
    /// Width of the features of the operators, all heads together; a multiple of 4.
    pub channels: usize,
    /// Timed runs.
    pub runs: usize,
    /// Seed of features, weights and DropEdge.
    pub seed: u64,
    /// Name of the device, `cpu`, `cuda:0` or `vulkan`.
    pub device: String,
    /// Name and model of the device, for the report.
    pub description: String,
}

/// Told what is being measured.
pub type Note<'a> = &'a dyn Fn(&str);

/// Measures `work` on backend `B`.
///
/// # Errors
/// Data that cannot be read or does not have what is measured, settings that do not fit, or a device that fails. A
/// wrong result is no error here: [`Report::verdict`] tells.
pub fn run<B: GraphBackend + MemoryBackend>(
    work: Work,
    options: &BenchOptions,
    device: &B::Device,
    note: Note,
) -> Result<Report> {
    graphsieve_kernels::device::watch();
    if options.runs == 0 {
        return Err(usage("--runs", "at least 1", "0", "10 is the default"));
    }
    if matches!(work, Work::Kernels | Work::Messages)
        && (options.channels == 0 || !options.channels.is_multiple_of(operators::MOST_HEADS))
    {
        let help = "operators are measured with one head and with four";
        return Err(usage("--channels", "a multiple of 4, above 0", &options.channels.to_string(), help));
    }
    // What does not fit is refused before anything is measured.
    let dataset = match work {
        Work::ParallelGat => None,
        _ => {
            note(&format!("reading {}", options.data.display()));
            Some(Dataset::open(&options.data)?)
        }
    };
    if let (Some(dataset), Work::Kernels | Work::Messages) = (&dataset, work) {
        inputs::choose(&dataset.graph, options)?;
    }
    note("measuring the copy bandwidth");
    let bandwidth = copy::bandwidth::<B>(&options.device, options.runs, device)?;
    let (graph, rows) = match &dataset {
        Some(dataset) => on_data::<B>(work, dataset, options, bandwidth, device, note)?,
        None => parallel_gat::measure::<B>(options, device, note)?,
    };
    Ok(Report {
        work,
        device: options.description.clone(),
        dtype: options.precision,
        runs: options.runs,
        warm_up: WARM_UP,
        copy_gb_per_s: bandwidth / 1e9,
        graph,
        rows,
    })
}

/// Work on a data directory.
fn on_data<B: GraphBackend + MemoryBackend>(
    work: Work,
    dataset: &Dataset,
    options: &BenchOptions,
    bandwidth: f64,
    device: &B::Device,
    note: Note,
) -> Result<(GraphFacts, Vec<Row>)> {
    match work {
        Work::Kernels => operators::measure::<B>(dataset, options, bandwidth, device, note),
        Work::Messages => messages::measure::<B>(dataset, options, bandwidth, device, note),
        Work::Inference => epochs::inference::<B>(dataset, options, bandwidth, device, note),
        Work::Stage1 | Work::Stage2 => epochs::training::<B>(work, dataset, options, device, note),
        Work::ParallelGat => parallel_gat::measure::<B>(options, device, note),
    }
}

/// `1 head`, `4 heads`
fn counted_heads(heads: usize) -> String {
    if heads == 1 { "1 head".into() } else { format!("{heads} heads") }
}

fn usage(argument: &str, expected: &str, found: &str, help: &str) -> Error {
    let [argument, expected, found, help] = [argument, expected, found, help].map(String::from);
    Error::Usage { argument, expected, found, help }
}

fn no_edges(data: &Path) -> Error {
    Error::Data {
        what: data.display().to_string(),
        expected: "a relation with edges".into(),
        found: "none".into(),
        help: "look at the graph with `graphsieve info --data DIR`".into(),
    }
}
