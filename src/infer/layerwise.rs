//! Inference layer by layer, for graphs that do not fit the device: every layer of all nodes, a few at a time, between
//! matrices in host memory. Exact: every node sees all of its neighbours.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;
use ndarray::Array2;
use rayon::prelude::*;

use super::label_input::by_passes;
use crate::error::Result;
use crate::graph::{Features, HeteroGraph};
use crate::loader::{Batch, FeatureStore, Job, Loader, LoaderOptions};
use crate::metrics::sigmoid;
use crate::models::attention::{Pass, TripleStreamGat};
use crate::models::device_graph::check_device;
use crate::models::parameters::to_host;
use crate::models::precision::as_dtype;
use crate::nn::Block;
use crate::run::known_labels::KnownLabels;
use crate::sampler::{Fanout, NeighbourSampler, SamplerConfig};

/// Edges of one step, which bound the rows that it reads; a node with more has a step of its own.
const STEP_EDGES: usize = 1 << 18;

/// Rows of one step.
const STEP_ROWS: usize = 1 << 16;

/// Scores of every node, by global id, and the refined embeddings, in host memory.
pub struct HostScored {
    /// In [0, 1]; higher is more anomalous.
    pub scores: Vec<f32>,
    /// `[nodes, width]`; without columns where they were not asked for.
    pub embeddings: Array2<f32>,
}

/// [`scores`] of a model that reads labels, if it does: those that it `knows`, and `features` are its input without
/// them. At least the nodes in `wanted` have theirs.
///
/// # Errors
/// As for [`scores`].
pub fn scores_with_labels<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    graph: &Arc<HeteroGraph>,
    features: &Features,
    known: Option<&KnownLabels>,
    wanted: Option<&[u32]>,
    dtype: DType,
    device: &B::Device,
) -> Result<HostScored> {
    let Some(known) = known else { return scores(model, graph, features, dtype, device) };
    by_passes(known, graph.num_nodes(), wanted, |seen| {
        scores(model, graph, &known.beside(features, seen), dtype, device)
    })
}

/// Scores of every node with a Stage-2 model; layers compute in `dtype`.
///
/// # Errors
/// A device that failed, or what a thread of the loader ran into.
pub fn scores<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    graph: &Arc<HeteroGraph>,
    features: &Features,
    dtype: DType,
    device: &B::Device,
) -> Result<HostScored> {
    let nodes = graph.num_nodes();
    let mut input = features.clone();
    let mut logits = vec![0f32; nodes];
    for layer in 0.. {
        let width = model.width_after(layer);
        let last = layer + 1 == TripleStreamGat::<B>::LAYERS;
        let store = FeatureStore::new(input, graph, device)?;
        let config = SamplerConfig::new(&[Fanout::All], graph.relations().len());
        let sampler = NeighbourSampler::new(graph.clone(), config)?;
        let values = over_all_nodes(graph, sampler, store, width, &mut logits, |batch| {
            let x: Vec<Tensor<B, 2>> = batch.x.into_iter().map(|x| as_dtype(x, dtype)).collect();
            let block = Block { reads_data: layer == 0, ..batch.blocks[0].clone() };
            let h = model.embed_layer(layer, &block, &x, Pass::default()).swap_remove(batch.payload.node_type);
            let of_rows = last.then(|| model.logits([h.clone()]));
            (h, of_rows)
        })?;
        if last {
            let embeddings = Array2::from_shape_vec((nodes, width), values)
                .unwrap_or_else(|e| unreachable!("one row per node: {e}"));
            return Ok(HostScored { scores: logits.into_par_iter().map(sigmoid).collect(), embeddings });
        }
        input = Features::from_f32(values, nodes, width);
    }
    unreachable!("the last layer returns")
}

/// One layer of all nodes, a few at a time: `compute` makes the rows of a step, `width` columns wide, and their logits
/// where the layer has them. The results of a step are read while the device computes the next one.
///
/// # Errors
/// A device that failed, or what a thread of the loader ran into.
pub(super) fn over_all_nodes<B: GraphBackend>(
    graph: &HeteroGraph,
    sampler: NeighbourSampler,
    store: FeatureStore<B>,
    width: usize,
    logits: &mut [f32],
    mut compute: impl FnMut(Batch<B, Span>) -> (Tensor<B, 2>, Option<Tensor<B, 2>>),
) -> Result<Vec<f32>> {
    let device = store.device().clone();
    let mut values = vec![0f32; graph.num_nodes() * width];
    let options = LoaderOptions { first_reverse: false, ..LoaderOptions::default() };
    let mut read = |computed: Computed<B>| {
        computed.read(&mut values, logits, width);
        check_device()
    };
    let mut before: Option<Computed<B>> = None;
    for batch in Loader::new(steps(graph), sampler, store, options)? {
        let mut batch = batch?;
        let Span { node_type, first } = batch.payload;
        let rows = batch.seed_rows.swap_remove(node_type);
        let (h, of_rows) = compute(batch);
        before.replace(Computed { h, logits: of_rows, rows, first }).map_or(Ok(()), &mut read)?;
    }
    before.map_or(Ok(()), read)?;
    B::memory_cleanup(&device);
    Ok(values)
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
    /// Copies the rows to where their nodes have theirs.
    fn read(self, values: &mut [f32], logits: &mut [f32], width: usize) {
        let h = to_host(self.h);
        let out = &mut values[self.first * width..(self.first + self.rows.len()) * width];
        out.par_chunks_mut(width).zip(&self.rows).with_min_len(256).for_each(|(to, &row)| {
            to.copy_from_slice(&h[row as usize * width..(row as usize + 1) * width]);
        });
        if let Some(of_rows) = self.logits.map(to_host) {
            let out = &mut logits[self.first..self.first + self.rows.len()];
            out.iter_mut().zip(&self.rows).for_each(|(to, &row)| *to = of_rows[row as usize]);
        }
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
