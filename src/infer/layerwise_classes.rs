//! Logits of a node classifier layer by layer, for graphs that do not fit the device: as in
//! [`layerwise`](super::layerwise), every layer of all nodes, a few at a time, between matrices in host memory. Exact:
//! every node sees all of its neighbours.

use burn::tensor::Tensor;
use graphsieve_kernels::GraphBackend;

use super::layerwise::{Computed, Span, steps};
use super::sampled_input::SampledInput;
use crate::error::Result;
use crate::graph::Features;
use crate::loader::{Batch, FeatureStore, Loader, LoaderOptions};
use crate::models::device_graph::check_device;
use crate::models::node_classifier::{ClassifierSpec, NodeClassifier};
use crate::models::parameters::to_host;

/// Values of features that are on the device at a time, a whole row at least.
const PROJECTED: usize = 1 << 24;

/// Logits of every node, row by row.
///
/// Rows are projected before they are gathered: once per node rather than once per neighbour, and rows of hidden
/// channels move rather than rows of features.
///
/// # Errors
/// A device that failed, or what a thread of the loader ran into.
pub fn class_logits<B: GraphBackend>(
    model: &NodeClassifier<B>,
    spec: &ClassifierSpec,
    input: &SampledInput,
    device: &B::Device,
) -> Result<Vec<f32>> {
    let (graph, nodes) = (input.graph(), input.graph().num_nodes());
    let mut projected = first_projection(model, input, device)?;
    for at in 0..spec.layers {
        let last = at + 1 == spec.layers;
        let width = if last { spec.classes } else { model.projected_width(at + 1) };
        let mut values = vec![0f32; nodes * width];
        let vectors = Features::from_f32(projected, nodes, model.projected_width(at));
        let of_layer = input.with_vectors(&vectors);
        let store = FeatureStore::new(of_layer.features().clone(), graph, device)?;
        let sampler = of_layer.sampler(&[0], 0, 0)?;
        // The results of a step are read while the device computes the next one.
        let mut before: Option<Computed<B>> = None;
        for batch in Loader::new(
            steps(graph),
            sampler,
            store,
            LoaderOptions { first_reverse: false, ..LoaderOptions::default() },
        )? {
            let Batch { mut x, blocks, mut seed_rows, payload: Span { first, .. }, .. } = batch?;
            let h = model.propagate(at, &blocks[0], of_layer.read(x.swap_remove(0)), None).x;
            let h = if last { h } else { model.project(at + 1, h, None) };
            let computed = Computed { h, logits: None, rows: seed_rows.swap_remove(0), first };
            if let Some(before) = before.replace(computed) {
                before.read(&mut values, &mut [], width);
                check_device()?;
            }
        }
        if let Some(before) = before {
            before.read(&mut values, &mut [], width);
            check_device()?;
        }
        B::memory_cleanup(device);
        projected = values;
    }
    Ok(projected)
}

/// Features times the weight of the first layer.
fn first_projection<B: GraphBackend>(
    model: &NodeClassifier<B>,
    input: &SampledInput,
    device: &B::Device,
) -> Result<Vec<f32>> {
    let store = FeatureStore::<B>::new(input.features().clone(), input.graph(), device)?;
    let nodes = input.graph().num_nodes();
    let rows = (PROJECTED / store.width().max(1)).max(1);
    let mut values = Vec::with_capacity(nodes * model.projected_width(0));
    let mut before: Option<Tensor<B, 2>> = None;
    for first in (0..nodes).step_by(rows) {
        let ids: Vec<u32> = (first as u32..(first + rows).min(nodes) as u32).collect();
        let h = model.project(0, input.read(&store & &ids).x, None);
        values.extend(before.replace(h).map(to_host).unwrap_or_default());
        check_device()?;
    }
    values.extend(before.map(to_host).unwrap_or_default());
    check_device()?;
    Ok(values)
}
