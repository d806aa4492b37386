//! Training epochs of both stages, and full-graph inference.

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::Tensor;
use graphsieve_kernels::{GraphBackend, MemoryBackend};

use super::bytes::{self, Shape};
use super::clock::time;
use super::inputs::uniform;
use super::memory::{WATCHED_RUNS, peak};
use super::report::{GraphFacts, Row};
use super::{BenchOptions, Note, WARM_UP, Work, no_edges};
use crate::config::{OwnTransform, Rows, Stage1Config, Stage2Config, TrainConfig};
use crate::error::Result;
use crate::graph::{Dataset, HeteroGraph};
use crate::infer::attention::{attention_scores, edge_inputs, own_types};
use crate::loader::BatchStats;
use crate::models::attention::{AttentionSpec, TripleStreamGat};
use crate::models::device_graph::{DeviceGraph, check_device, upload_by_type, upload_features};
use crate::models::parameters::Parameters;
use crate::models::precision::dtype;
use crate::run::splits::split_of;
use crate::splitmix::mix;
use crate::train::optimiser::{Optimiser, learning_rate};
use crate::train::ranks::{Rank, shard_of};
use crate::train::runner::Runner;
use crate::train::task::Task;
use crate::train::tasks::attention::Attention;
use crate::train::tasks::auto_encoder::AutoEncoder;

/// Width of the measured attention network after either layer, as in the shipped configuration.
const HIDDEN: usize = 128;

/// A training that can be advanced epoch by epoch.
pub trait Epochs {
    /// Trains one epoch; epochs count from 1. What is left in the device's queue is waited for by the caller.
    ///
    /// # Errors
    /// What the training reports.
    fn step(&mut self, epoch: usize) -> Result<()>;

    /// Edges that one epoch visits: those of all relations, once per layer.
    fn edges(&self) -> usize;
}

/// A task with the model that it trains, without a run.
pub(super) struct Training<'r, B: GraphBackend, T: Task<B>> {
    /// This rank, of several that train the model.
    rank: Option<&'r Rank<B>>,
    model: Option<T::Model>,
    optimiser: Optimiser<B, T::Model>,
    runner: Runner<B, T>,
    task: T,
}

impl<'r, B: GraphBackend, T: Task<B>> Training<'r, B, T> {
    /// From `seed`, as one of several ranks where there are any.
    ///
    /// # Errors
    /// Settings that the task refuses.
    pub fn of(task: T, seed: u64, rank: Option<&'r Rank<B>>, device: &B::Device) -> Result<Self> {
        let model = Some(task.model(&mut Parameters::from_seed(seed, device))?);
        let runner = task.runner_of(shard_of::<B>(rank), seed, 1)?;
        Ok(Self { rank, model, optimiser: task.optimiser(), runner, task })
    }

    /// What mini-batches were made of so far, where there are any.
    pub fn loaded(&self) -> Option<BatchStats> {
        self.runner.stats()
    }
}

impl<B: GraphBackend> Training<'_, B, Attention<B>> {
    /// Scores all nodes with the model as it is, together with the other ranks where these have parts of the graph.
    ///
    /// # Errors
    /// A device that failed; a rank that fails.
    pub fn score(&self) -> Result<()> {
        let Some(model) = &self.model else { return Ok(()) };
        self.task.scored(&model.valid(), Some(&[]), self.rank).map(drop)
    }
}

impl<B: GraphBackend, T: Task<B>> Epochs for Training<'_, B, T> {
    fn step(&mut self, epoch: usize) -> Result<()> {
        if let Some(model) = self.model.take() {
            let rate = learning_rate(self.task.train(), epoch);
            self.model = Some(self.runner.epoch(&self.task, model, &mut self.optimiser, rate, self.rank)?.model);
        }
        check_device()
    }

    fn edges(&self) -> usize {
        self.task.edges_per_epoch()
    }
}

/// The published settings, for as many epochs as are measured.
fn settings(published: TrainConfig, options: &BenchOptions, rows: Rows) -> TrainConfig {
    TrainConfig { epochs: WARM_UP + options.runs + WATCHED_RUNS, precision: options.precision, rows, ..published }
}

/// The features of a data directory, or random ones where it has none, one matrix per node type.
fn features<B: GraphBackend>(
    dataset: &Dataset,
    options: &BenchOptions,
    device: &B::Device,
) -> Result<(Vec<Tensor<B, 2>>, usize)> {
    let (node_types, storage) = (dataset.graph.node_types(), dtype(options.precision));
    match &dataset.features {
        Some(features) => Ok((upload_features(node_types, features, storage, device)?, features.dim())),
        None => {
            let value = |k: usize| uniform(mix(options.seed), k as u64);
            Ok((upload_by_type(node_types, HIDDEN, storage, device, &value), HIDDEN))
        }
    }
}

/// The training of Stage 1 on a data directory, with the published settings.
fn stage1_epochs<B: GraphBackend>(
    dataset: &Dataset,
    options: &BenchOptions,
    rows: Rows,
    device: &B::Device,
) -> Result<Box<dyn Epochs>> {
    let host = &dataset.graph;
    let published = Stage1Config::new(&options.data);
    let config = settings(published.train.clone(), options, rows);
    let (x, _) = features::<Autodiff<B>>(dataset, options, device)?;
    let graph = DeviceGraph::<Autodiff<B>>::upload(host, device)?;
    let stage = Stage1Config { train: config, seed: options.seed, ..published };
    let task = AutoEncoder::<B>::new(&stage, host, graph, x, device);
    Ok(Box::new(Training::of(task, options.seed, None, device)?))
}

/// The training of Stage 2 on the features and labels of a data directory, with the published settings.
fn stage2_epochs<B: GraphBackend>(
    dataset: &Dataset,
    options: &BenchOptions,
    rows: Rows,
    device: &B::Device,
) -> Result<Box<dyn Epochs>> {
    let host = &dataset.graph;
    let labels = dataset.binary_labels(&options.data)?;
    let published = Stage2Config::new(&options.data);
    let config = settings(published.train.clone(), options, rows);
    let split = split_of(dataset, &labels.entries, &published.split, published.seed)?;
    let (x, _) = features::<Autodiff<B>>(dataset, options, device)?;
    let graph = DeviceGraph::<Autodiff<B>>::upload(host, device)?;
    let stage = Stage2Config { train: config, seed: options.seed, ..published };
    let task = Attention::<B>::on_device(&stage, host, graph, x, &split.train, device);
    Ok(Box::new(Training::of(task, options.seed, None, device)?))
}

fn attention_spec(host: &HeteroGraph, input: usize) -> AttentionSpec {
    AttentionSpec {
        own: own_types(OwnTransform::Auto, host),
        edges: edge_inputs(host, None),
        ..AttentionSpec::new(host.streams(), input, [HIDDEN, HIDDEN], 1)
    }
}

/// Measures the epochs of a stage.
pub fn training<B: GraphBackend + MemoryBackend>(
    work: Work,
    dataset: &Dataset,
    options: &BenchOptions,
    device: &B::Device,
    note: Note,
) -> Result<(GraphFacts, Vec<Row>)> {
    let facts = whole_graph(&dataset.graph, options, None)?;
    let mut measured = Vec::new();
    for (rows, which) in [(Rows::Reachable, "reachable rows"), (Rows::All, "all rows")] {
        let name = format!("{} epoch, {which}", work.name());
        note(&format!("preparing {name}"));
        let mut epochs = match work {
            Work::Stage1 => stage1_epochs::<B>(dataset, options, rows, device)?,
            _ => stage2_epochs::<B>(dataset, options, rows, device)?,
        };
        note(&format!("measuring {name}"));
        measured.push(measure::<B>(&name, epochs.as_mut(), options.runs, device)?);
    }
    Ok((facts, measured))
}

/// Times one epoch after the other; the one whose memory is watched is not among them.
fn measure<B: GraphBackend + MemoryBackend>(
    name: &str,
    epochs: &mut dyn Epochs,
    runs: usize,
    device: &B::Device,
) -> Result<Row> {
    let mut epoch = 0;
    let mut next = || {
        epoch += 1;
        epochs.step(epoch)
    };
    let times = time::<B>(device, runs, &mut next)?;
    let peak = peak::<B, _>(device, next)?;
    Ok(Row::new(name, times).with_edges(epochs.edges()).with_peak(peak))
}

/// Measures the scores of all nodes: the attention network of the shipped configuration with weights from the seed.
pub fn inference<B: GraphBackend + MemoryBackend>(
    dataset: &Dataset,
    options: &BenchOptions,
    bandwidth: f64,
    device: &B::Device,
    note: Note,
) -> Result<(GraphFacts, Vec<Row>)> {
    let host = &dataset.graph;
    let facts = whole_graph(host, options, Some(HIDDEN))?;
    note("uploading the graph");
    let storage = dtype(options.precision);
    let (x, input) = features::<B>(dataset, options, device)?;
    let spec = attention_spec(host, input);
    let model = TripleStreamGat::<B>::new(&spec, &mut Parameters::from_seed(options.seed, device))?;
    let graph = DeviceGraph::<B>::upload(host, device)?;
    note("measuring inference");
    let run = || {
        let scored = attention_scores(&model, &graph, &x, None);
        Ok(scored)
    };
    let times = time::<B>(device, options.runs, || run().map(drop))?;
    let element = storage.size() as u64;
    let bytes = inference_bytes(host, [input, HIDDEN, HIDDEN].map(|width| width as u64), element);
    let row = Row::new("inference", times)
        .with_bytes(bytes, bandwidth)
        .with_edges(2 * host.num_edges())
        .with_peak(peak::<B, _>(device, run)?);
    Ok((facts, vec![row]))
}

/// Bytes of both layers of the attention network and of its head, each matrix read or written once: features in, one
/// projection per stream and node type out, attention of every relation, and the activated sum out.
fn inference_bytes(graph: &HeteroGraph, widths: [u64; 3], element: u64) -> u64 {
    let count = |node_type: usize| graph.node_types()[node_type].count as u64;
    let (relations, nodes) = (graph.relations(), graph.num_nodes() as u64);
    let projected: u64 = graph
        .streams()
        .iter()
        .flat_map(|stream| (0..graph.node_types().len()).map(move |t| (stream, t)))
        .filter(|(stream, t)| relations.iter().any(|r| r.stream == **stream && (r.src == *t || r.dst == *t)))
        .map(|(_, t)| count(t))
        .sum();
    let layer = |input: u64, output: u64| -> u64 {
        let attention = relations.iter().map(|relation| {
            let edges = relation.forward.num_edges() as u64;
            let (rows, cols) = (count(relation.dst), count(relation.src));
            let bounds = if relation.forward.is_spans() { 2 } else { 1 };
            bytes::gat_forward(Shape { rows, cols, bounds, edges, kept: edges, channels: output, heads: 1, element })
        });
        (nodes * input + projected * output + nodes * output) * element + attention.sum::<u64>()
    };
    let head = nodes * (widths[2] * element + 4);
    layer(widths[0], widths[1]) + layer(widths[1], widths[2]) + head
}

fn whole_graph(graph: &HeteroGraph, options: &BenchOptions, channels: Option<usize>) -> Result<GraphFacts> {
    if graph.num_edges() == 0 {
        return Err(no_edges(&options.data));
    }
    let longest = |adjacency: &crate::graph::Adjacency| {
        (0..adjacency.num_rows()).map(|row| adjacency.degree(row)).max().unwrap_or_default()
    };
    Ok(GraphFacts {
        data: options.data.clone(),
        relation: None,
        rows: graph.num_nodes(),
        cols: graph.num_nodes(),
        edges: graph.num_edges(),
        longest_row: graph.relations().iter().map(|relation| longest(&relation.forward)).max().unwrap_or_default(),
        channels,
    })
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::bench::WARM_UP;
    use crate::graph::{Adjacency, RelationSpec};

    /// Remembers which epochs it was asked for.
    struct Counting(Vec<usize>);

    impl Epochs for Counting {
        fn step(&mut self, epoch: usize) -> Result<()> {
            self.0.push(epoch);
            Ok(())
        }

        fn edges(&self) -> usize {
            1_000
        }
    }

    #[test]
    fn epochs_are_measured_in_order_and_each_once() {
        let mut epochs = Counting(Vec::new());
        let row = measure::<Flex>("epoch", &mut epochs, 4, &FlexDevice).unwrap();
        assert_eq!(epochs.0, (1..=WARM_UP + 4 + 1).collect::<Vec<_>>());
        assert!(row.edges_per_s.is_some_and(|rate| rate > 0.0) && row.bytes.is_none());
    }

    #[test]
    fn bytes_of_inference_are_those_counted_by_hand() {
        // Two destinations with three edges from two sources; one stream.
        let adjacency = Adjacency::from_edges(2, 2, &[(0, 0), (0, 1), (1, 1)]);
        let spec = RelationSpec::new("r", 1, 0, adjacency);
        let graph = HeteroGraph::new(vec![("d".into(), 2), ("s".into(), 2)], vec![spec]).unwrap();
        // A layer of width 3: ids 4 * (3 + 2), gathers 3 * 12, results 2 * 12, scalars 4 * (2 + 4).
        let attention = 20 + 36 + 24 + 24;
        // 4 nodes of width 5, then of width 3; each node is projected once and its result written.
        let first = (4 * 5 + 4 * 3 + 4 * 3) * 4 + attention;
        let second = (4 * 3 + 4 * 3 + 4 * 3) * 4 + attention;
        assert_eq!(inference_bytes(&graph, [5, 3, 3], 4), first + second + 4 * (3 * 4 + 4));
    }
}
