//! Logits of a node classifier layer by layer, for graphs that do not fit the device: as in
//! [`layerwise`](super::layerwise), every layer of all nodes, a few at a time, between matrices in host memory or in
//! files. Exact: every node sees all of its neighbours.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{Communicator, GraphBackend, upload_data};

use super::layerwise::{Replica, Span, over_all_nodes};
use super::sampled_input::SampledInput;
use crate::config::Draw;
use crate::error::Result;
use crate::graph::{Features, Spill};
use crate::loader::{Batch, FeatureStore};
use crate::models::device_graph::check_device;
use crate::models::node_classifier::{ClassifierSpec, NodeClassifier};
use crate::models::node_input::BatchRows;
use crate::models::parameters::to_host;

/// Values of features that are on the device at a time, a whole row at least.
const PREPARED: usize = 1 << 24;

/// Logits of every node, row by row.
///
/// Graph convolution and attention on one node type with one relation: rows are projected before they are gathered:
/// once per node rather than once per neighbour, and rows of hidden channels move rather than rows of features.
///
/// Every device has a replica of the model; what is done once per node is done on the first. Several ranks share the
/// rest, and have all logits each.
///
/// # Errors
/// A device that failed, or what a thread of the loader ran into; a rank that fails; a file of `spill`.
///
/// # Panics
/// Without a replica.
pub fn class_logits<B: GraphBackend>(
    replicas: &[Replica<NodeClassifier<B>, B::Device>],
    spec: &ClassifierSpec,
    input: &SampledInput,
    rank: Option<&Communicator<B::Plain>>,
    spill: &Spill,
) -> Result<Vec<f32>> {
    let (model, device) = &replicas[0];
    let (graph, nodes) = (input.graph(), input.graph().num_nodes());
    let mut of_layer = match spec.has_own() {
        true => input.clone(),
        false => {
            let held = spill.beside(input.features().bytes_in_memory());
            let vectors = first_projection(model, input, model.prepared_width(0, spec.input), &held, device)?;
            input.with_vectors(&vectors, spill)?
        }
    };
    let mut all: Vec<Features> = Vec::new();
    for at in 0..spec.layers {
        let last = at + 1 == spec.layers;
        let output = spec.widths(at)[1];
        let width = if last { output } else { model.prepared_width(at + 1, output) };
        let sampler = || of_layer.sampler(&[0], (Draw::Uniform, 0), 0);
        let passes = replicas.iter().map(|(model, device)| {
            let (store, model) = (FeatureStore::new(of_layer.features().clone(), graph, device)?, model.clone());
            let of_layer = &of_layer;
            let compute = move |Batch { x, blocks, payload, .. }: Batch<B, Span>| {
                let BatchRows { mut x, .. } = model.propagate(at, &blocks[0], of_layer.read(x), None);
                let h = x.swap_remove(payload.node_type);
                let h = if last { h } else { model.prepare(at + 1, payload.node_type, h, None) };
                (h, None)
            };
            Ok((store, compute))
        });
        // Logits of classes are a result, which is held.
        let is_result = last && !spec.has_head();
        let of_all: u64 = all.iter().map(Features::bytes_in_memory).sum();
        let beside = if is_result { Spill::default() } else { spill.beside(of_all) };
        let rows = beside.beside(of_layer.features().bytes_in_memory()).zeros(nodes, width)?;
        let passes = passes.collect::<Result<Vec<_>>>()?;
        let vectors = over_all_nodes(graph, sampler, passes, rows, &mut [], rank)?;
        if is_result {
            return Ok(vectors.into_f32());
        }
        if !last {
            of_layer = input.with_vectors(&vectors, &beside)?;
        }
        all.extend(spec.has_head().then_some(vectors));
        if last {
            return read_out(model, input, &all, device);
        }
    }
    unreachable!("a classifier has at least one layer")
}

/// Logits of the head, which reads the results of all layers side by side.
fn read_out<B: GraphBackend>(
    model: &NodeClassifier<B>,
    input: &SampledInput,
    layers: &[Features],
    device: &B::Device,
) -> Result<Vec<f32>> {
    let (nodes, width) = (input.graph().num_nodes(), layers.iter().map(Features::dim).sum::<usize>());
    let mut values = Vec::new();
    let step = (PREPARED / width).max(1);
    for first in (0..nodes).step_by(step) {
        let rows = first..(first + step).min(nodes);
        let shape = [rows.len(), width];
        let of_rows: Vec<f32> = rows.flat_map(|node| layers.iter().flat_map(move |of| of.row(node))).collect();
        let h = input.read_rows_of(upload_data(TensorData::new(of_rows, shape), device));
        values.extend(to_host(model.read_out(h, None)));
        check_device()?;
    }
    Ok(values)
}

/// Features of the only node type times the weight of the first layer.
fn first_projection<B: GraphBackend>(
    model: &NodeClassifier<B>,
    input: &SampledInput,
    width: usize,
    spill: &Spill,
    device: &B::Device,
) -> Result<Features> {
    let store = FeatureStore::<B>::new(input.features().clone(), input.graph(), device)?;
    let nodes = input.graph().num_nodes();
    let rows = (PREPARED / store.width().max(1)).max(1);
    let mut vectors = spill.zeros(nodes, width)?;
    let mut read = |of: Range<usize>, h: Tensor<B, 2>| {
        let h = to_host(h);
        check_device()?;
        vectors.fill(of, |to| to.copy_from_slice(&h))
    };
    let mut before: Option<(Range<usize>, Tensor<B, 2>)> = None;
    for first in (0..nodes).step_by(rows) {
        let of = first..(first + rows).min(nodes);
        let ids: Vec<u32> = (of.start as u32..of.end as u32).collect();
        let h = model.prepare(0, 0, input.read_rows(&store & &ids), None);
        before.replace((of, h)).map_or(Ok(()), |(of, h)| read(of, h))?;
    }
    before.map_or(Ok(()), |(of, h)| read(of, h))?;
    vectors.finish()
}
