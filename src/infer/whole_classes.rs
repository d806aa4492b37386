//! Logits of a node classifier that computes the whole graph at once.

use graphsieve_kernels::GraphBackend;

use super::label_input::{by_passes, partition};
use crate::error::Result;
use crate::models::device_graph::{DeviceGraph, check_device};
use crate::models::node_classifier::NodeClassifier;
use crate::models::node_input::NodeInput;
use crate::models::parameters::to_host;
use crate::run::known_labels::KnownLabels;

/// Logits of every node, row by row. A model that reads labels has those that are `known`, and no node reads its own;
/// with `wanted` at least these nodes have theirs.
///
/// # Errors
/// A device that failed.
pub fn whole_logits<B: GraphBackend>(
    model: &NodeClassifier<B>,
    graph: &DeviceGraph<B>,
    x: &[NodeInput<B>],
    known: Option<&KnownLabels>,
    wanted: Option<&[u32]>,
    device: &B::Device,
) -> Result<Vec<f32>> {
    let Some(known) = known else {
        let logits = to_host(model.forward(graph, x, None));
        check_device()?;
        return Ok(logits);
    };
    let types = &graph.node_types;
    let nodes: usize = types.iter().map(|of| of.count).sum();
    let pass = |seen: &_| {
        let labels = partition(known, seen, types, x[0].dtype(), device);
        let logits = to_host(model.forward_with(graph, x, &labels, None));
        check_device()?;
        Ok(logits)
    };
    let all = by_passes(known, nodes, wanted, pass, |all, said, node| {
        let width = said.len() / nodes;
        let row = node * width..(node + 1) * width;
        all[row.clone()].copy_from_slice(&said[row]);
    })?;
    Ok(all.unwrap_or_default())
}
