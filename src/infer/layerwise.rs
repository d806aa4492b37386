//! Inference layer by layer, for graphs that do not fit the device: every layer of all nodes, a few at a time, between
//! matrices in host memory, or in files where they need more of it than they may take ([`Spill`]). Exact: every node
//! sees all of its neighbours.

use std::sync::{Arc, mpsc};

use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{Communicator, GraphBackend};
use rayon::prelude::*;

pub use super::label_input::HostScored;
use super::label_input::by_passes;
use crate::error::Result;
use crate::graph::{Features, HeteroGraph, MatrixWriter, Spill};
use crate::loader::{Batch, FeatureStore, Job, Loader, LoaderOptions};
use crate::metrics::scores_of;
use crate::models::attention::{Pass, TripleStreamGat};
use crate::models::device_graph::{check_device, check_range};
use crate::models::graph_part::failed;
use crate::models::parameters::to_host;
use crate::models::precision::as_dtype;
use crate::nn::Block;
use crate::run::known_labels::KnownLabels;
use crate::sampler::{Fanout, NeighbourSampler, SamplerConfig};

/// Edges of one step, which bound the rows that it reads; a node with more has a step of its own.
const STEP_EDGES: usize = 1 << 18;

/// Rows of one step.
const STEP_ROWS: usize = 1 << 16;

/// Numbers that ranks tell each other at a time.
const EXCHANGED: usize = 1 << 24;

/// A model with the device that it is on.
pub type Replica<M, D> = (M, D);

/// [`scores`] of a model that reads labels, if it does: those that it `knows`, and `features` are its input without
/// them. At least the nodes in `wanted` have theirs.
///
/// # Errors
/// As for [`scores`].
pub fn scores_with_labels<B: GraphBackend>(
    replicas: &[Replica<TripleStreamGat<B>, B::Device>],
    graph: &Arc<HeteroGraph>,
    features: &Features,
    known: Option<&KnownLabels>,
    wanted: Option<&[u32]>,
    dtype: DType,
    (rank, spill): (Option<&Communicator<B::Plain>>, &Spill),
) -> Result<HostScored> {
    let Some(known) = known else { return scores(replicas, graph, features, dtype, rank, spill) };
    by_passes(known, graph.num_nodes(), wanted, spill, |seen, spill| {
        scores(replicas, graph, &known.beside(features, seen), dtype, rank, spill)
    })
}

/// Scores of every node with a Stage-2 model, of which every device has a replica; layers compute in `dtype`. Several
/// ranks share the work, and have all scores each.
///
/// # Errors
/// Features that `dtype` does not hold; a device that failed, or what a thread of the loader ran into; a rank that
/// fails; a file of `spill`.
///
/// # Panics
/// Without a replica.
pub fn scores<B: GraphBackend>(
    replicas: &[Replica<TripleStreamGat<B>, B::Device>],
    graph: &Arc<HeteroGraph>,
    features: &Features,
    dtype: DType,
    rank: Option<&Communicator<B::Plain>>,
    spill: &Spill,
) -> Result<HostScored> {
    check_range(features, dtype)?;
    let nodes = graph.num_nodes();
    let mut input = features.clone();
    let mut logits = vec![0f32; nodes];
    for layer in 0.. {
        let width = replicas[0].0.width_after(layer);
        let last = layer + 1 == TripleStreamGat::<B>::LAYERS;
        let sampler = || {
            let config = SamplerConfig::new(&[Fanout::All], graph.relations().len());
            NeighbourSampler::new(graph.clone(), config)
        };
        let passes = replicas.iter().map(|(model, device)| {
            let (store, model) = (FeatureStore::new(input.clone(), graph, device)?, model.clone());
            let compute = move |batch: Batch<B, Span>| {
                let x: Vec<Tensor<B, 2>> = batch.x.into_iter().map(|x| as_dtype(x, dtype)).collect();
                let block = Block { reads_data: layer == 0, ..batch.blocks[0].clone() };
                let h = model.embed_layer(layer, &block, &x, Pass::default()).swap_remove(batch.payload.node_type);
                let of_rows = last.then(|| model.logits([h.clone()]));
                (h, of_rows)
            };
            Ok((store, compute))
        });
        let passes = passes.collect::<Result<Vec<_>>>()?;
        let rows = spill.beside(input.bytes_in_memory()).zeros(nodes, width)?;
        let embeddings = over_all_nodes(graph, sampler, passes, rows, &mut logits, rank)?;
        if last {
            return Ok(HostScored { scores: scores_of(logits), embeddings });
        }
        input = embeddings;
    }
    unreachable!("the last layer returns")
}

/// One layer of all nodes, a few at a time: what computes the rows of a step, which go to `rows`, and their logits
/// where the layer has them, for every device. Each has a thread and every so manyth step, whose results it reads while
/// the device computes the next one. Those of several ranks are devices, too, and every rank has the rows of all.
///
/// # Errors
/// A device that failed, or what a thread of the loader ran into; a rank that fails; a file that cannot be written.
pub(super) fn over_all_nodes<B: GraphBackend>(
    graph: &HeteroGraph,
    sampler: impl Fn() -> Result<NeighbourSampler>,
    passes: Vec<(FeatureStore<B>, impl FnMut(Batch<B, Span>) -> (Tensor<B, 2>, Option<Tensor<B, 2>>) + Send)>,
    mut rows: MatrixWriter,
    logits: &mut [f32],
    rank: Option<&Communicator<B::Plain>>,
) -> Result<Features> {
    let (steps, devices) = (steps(graph), passes.len());
    let (first, ranks) = rank.map_or((0, 1), |rank| (rank.rank() * devices, rank.ranks()));
    let device = passes.first().map(|(store, _)| store.device().clone());
    // Results that wait for the thread that puts them together.
    let (give, take) = mpsc::sync_channel(2 * devices);
    std::thread::scope(|scope| {
        let start = |(at, (store, compute)): (usize, (FeatureStore<B>, _))| {
            let own = steps.iter().skip(first + at).step_by(devices * ranks).cloned().collect();
            let give = give.clone();
            let sampler = sampler()?;
            Ok(scope.spawn(move || on_device(own, sampler, store, compute, &give)))
        };
        let threads = passes.into_iter().enumerate().map(start).collect::<Result<Vec<_>>>();
        drop(give);
        // Ends with the last thread; where one fails, the others go through their steps all the same.
        let put = take.into_iter().map(|done| done.put(&mut rows, logits)).fold(Ok(()), Result::and);
        let end = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads?.into_iter().try_for_each(end).and(put)
    })?;
    if let (Some(rank), Some(device)) = (rank.filter(|_| ranks > 1), &device) {
        let (nodes, step) = (rows.num_rows(), (EXCHANGED / rows.dim().max(1)).max(1));
        for first in (0..nodes).step_by(step) {
            rows.change(first..nodes.min(first + step), |part| of_all_ranks::<B>(part, rank, device))?;
        }
        of_all_ranks::<B>(logits, rank, device)?;
    }
    rows.finish()
}

/// Puts together numbers each of which one rank has, and the others have as 0.
fn of_all_ranks<B: GraphBackend>(numbers: &mut [f32], rank: &Communicator<B::Plain>, device: &B::Device) -> Result<()> {
    for part in numbers.chunks_mut(EXCHANGED) {
        let own = TensorData::new(part.to_vec(), [part.len()]);
        let all = rank.all_reduce(Tensor::<B, 1>::from_data(own, (device, DType::F32))).map_err(failed)?;
        part.copy_from_slice(&to_host(all));
    }
    Ok(())
}

/// The steps of one device.
fn on_device<B: GraphBackend>(
    steps: Vec<Job<Span>>,
    sampler: NeighbourSampler,
    store: FeatureStore<B>,
    mut compute: impl FnMut(Batch<B, Span>) -> (Tensor<B, 2>, Option<Tensor<B, 2>>),
    give: &mpsc::SyncSender<Done>,
) -> Result<()> {
    let device = store.device().clone();
    let options = LoaderOptions { first_reverse: false, ..LoaderOptions::default() };
    let read = |computed: Computed<B>| {
        // Refused only where the thread that takes it panicked.
        let _ = give.send(computed.read());
        check_device()
    };
    let mut before: Option<Computed<B>> = None;
    for batch in Loader::new(steps, sampler, store, options)? {
        let mut batch = batch?;
        let Span { node_type, first } = batch.payload;
        let rows = batch.seed_rows.swap_remove(node_type);
        let (h, of_rows) = compute(batch);
        before.replace(Computed { h, logits: of_rows, rows, first }).map_or(Ok(()), read)?;
    }
    before.map_or(Ok(()), read)?;
    B::memory_cleanup(&device);
    Ok(())
}

/// Nodes of one step: neighbours in number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub node_type: usize,
    /// Global id of the first.
    pub first: usize,
}

/// What the device makes of a step.
struct Computed<B: GraphBackend> {
    h: Tensor<B, 2>,
    logits: Option<Tensor<B, 2>>,
    /// The row of each node.
    rows: Vec<u32>,
    first: usize,
}

impl<B: GraphBackend> Computed<B> {
    fn read(self) -> Done {
        Done { h: to_host(self.h), logits: self.logits.map(to_host), rows: self.rows, first: self.first }
    }
}

/// The same on the host.
struct Done {
    h: Vec<f32>,
    logits: Option<Vec<f32>>,
    rows: Vec<u32>,
    first: usize,
}

impl Done {
    /// Copies the rows to where their nodes have theirs.
    fn put(self, to: &mut MatrixWriter, logits: &mut [f32]) -> Result<()> {
        let Self { h, logits: of_rows, rows, first } = self;
        let width = to.dim();
        to.fill(first..first + rows.len(), |out| {
            out.par_chunks_mut(width).zip(&rows).with_min_len(256).for_each(|(to, &row)| {
                to.copy_from_slice(&h[row as usize * width..(row as usize + 1) * width]);
            });
        })?;
        if let Some(of_rows) = of_rows {
            let out = &mut logits[first..first + rows.len()];
            out.iter_mut().zip(&rows).for_each(|(to, &row)| *to = of_rows[row as usize]);
        }
        Ok(())
    }
}

/// All nodes of a graph, so many at a time that they have a bounded number of neighbours.
fn steps(graph: &HeteroGraph) -> Vec<Job<Span>> {
    let types = graph.node_types();
    let mut jobs: Vec<Job<Span>> = Vec::new();
    for (node_type, of_type) in types.iter().enumerate() {
        let into: Vec<_> = graph.relations().iter().filter(|r| r.dst == node_type).collect();
        let degree = |node: usize| into.iter().map(|relation| relation.forward.degree(node)).sum::<usize>();
        let mut first = 0;
        while first < of_type.count {
            let (mut end, mut edges) = (first, 0);
            while end < of_type.count && end - first < STEP_ROWS {
                edges += degree(end);
                if edges > STEP_EDGES && end > first {
                    break;
                }
                end += 1;
            }
            let mut seeds = vec![Vec::new(); types.len()];
            seeds[node_type] = (first as u32..end as u32).collect();
            let payload = Span { node_type, first: of_type.offset + first };
            jobs.push(Job { number: jobs.len() as u64, seeds, payload });
            first = end;
        }
    }
    jobs
}
