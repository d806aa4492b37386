//! What a classification of the whole graph at once takes on a device.

use graphsieve_kernels::GraphBackend;

use super::super::loading::Plan;
use crate::config::ClassifyConfig;
use crate::graph::{Features, HeteroGraph};
use crate::loader::Footprint;
use crate::models::node_classifier::ClassifierSpec;
use crate::models::node_input::device_bytes;

/// Whether a graph is trained at once.
pub fn plan<B: GraphBackend>(
    config: &ClassifyConfig,
    spec: &ClassifierSpec,
    graph: &HeteroGraph,
    features: &Features,
    device: &B::Device,
) -> Plan {
    Plan::new::<B>(&config.loader, || footprint(spec, config.model.dropout > 0.0, graph, features), device)
}

/// What a training takes that computes the whole graph at once.
fn footprint(spec: &ClassifierSpec, drops: bool, graph: &HeteroGraph, features: &Features) -> Footprint {
    let nodes = graph.num_nodes() as u64;
    let ints = |edges: usize| 4 * (edges as u64 + nodes + 1);
    let of_relation = |relation: &crate::graph::Relation| {
        let edges = relation.forward.num_edges();
        let once = if relation.is_symmetric() { ints(edges) } else { 2 * ints(edges) };
        // Attention walks a copy that has every node among its own neighbours.
        once + if spec.attention.is_some() { 2 * ints(edges + nodes as usize) } else { 0 }
    };
    let [features, dropped] = device_bytes(features);
    // The backward pass of a layer has its projection, its result and gradients of both, that of attention also the part of
    // the result with positive scores; all but the first layer keep their input with what was dropped.
    let kept = if spec.attention.is_some() { 5 } else { 4 };
    let heads = spec.attention.map_or(1, |shape| shape.out_heads);
    let inner = (spec.layers - 1) * spec.hidden;
    let channels = kept * (inner + heads * spec.classes) + if drops { inner } else { 0 };
    Footprint {
        graph: graph.relations().iter().map(of_relation).sum(),
        features,
        activations: 4 * nodes * channels as u64 + if drops { dropped } else { 0 },
    }
}
