//! Logits of a node classifier layer by layer, for graphs that do not fit the device: as in
//! [`layerwise`](super::layerwise), every layer of all nodes, a few at a time, between matrices in host memory. Exact:
//! every node sees all of its neighbours.

use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{Communicator, GraphBackend};

use super::layerwise::{Replica, Span, over_all_nodes};
use super::sampled_input::SampledInput;
use crate::config::Draw;
use crate::error::Result;
use crate::graph::Features;
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
/// A device that failed, or what a thread of the loader ran into; a rank that fails.
///
/// # Panics
/// Without a replica.
pub fn class_logits<B: GraphBackend>(
    replicas: &[Replica<NodeClassifier<B>, B::Device>],
    spec: &ClassifierSpec,
    input: &SampledInput,
    rank: Option<&Communicator<B::Plain>>,
) -> Result<Vec<f32>> {
    let (model, device) = &replicas[0];
    let (graph, nodes) = (input.graph(), input.graph().num_nodes());
    let mut of_layer = match spec.has_own() {
        true => input.clone(),
        false => {
            let width = model.prepared_width(0, spec.input);
            input.with_vectors(&Features::from_f32(first_projection(model, input, device)?, nodes, width))
        }
    };
    let mut all = Vec::new();
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
        let values = over_all_nodes(graph, sampler, passes.collect::<Result<Vec<_>>>()?, width, &mut [], rank)?;
        if last && !spec.has_head() {
            return Ok(values);
        }
        let vectors = Features::from_f32(values, nodes, width);
        of_layer = input.with_vectors(&vectors);
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
        let h = input.read_rows_of(Tensor::from_data(TensorData::new(of_rows, shape), device));
        values.extend(to_host(model.read_out(h, None)));
        check_device()?;
    }
    Ok(values)
}

/// Features of the only node type times the weight of the first layer.
fn first_projection<B: GraphBackend>(
    model: &NodeClassifier<B>,
    input: &SampledInput,
    device: &B::Device,
) -> Result<Vec<f32>> {
    let store = FeatureStore::<B>::new(input.features().clone(), input.graph(), device)?;
    let nodes = input.graph().num_nodes();
    let rows = (PREPARED / store.width().max(1)).max(1);
    let mut values = Vec::new();
    let mut before: Option<Tensor<B, 2>> = None;
    for first in (0..nodes).step_by(rows) {
        let ids: Vec<u32> = (first as u32..(first + rows).min(nodes) as u32).collect();
        let h = model.prepare(0, 0, input.read_rows(&store & &ids), None);
        values.extend(before.replace(h).map(to_host).unwrap_or_default());
        check_device()?;
    }
    values.extend(before.map(to_host).unwrap_or_default());
    check_device()?;
    Ok(values)
}
