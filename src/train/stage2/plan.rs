//! What a training of the whole graph at once takes on a device.

use std::collections::HashSet;
use std::sync::Arc;

use graphsieve_kernels::GraphBackend;

use crate::config::{Rows, Stage2Config};
use crate::graph::HeteroGraph;
use crate::loader::Footprint;
use crate::train::loading::Plan;

/// Whether a graph with features of `width` columns is trained at once.
pub fn plan<B: GraphBackend>(config: &Stage2Config, graph: &HeteroGraph, width: usize, device: &B::Device) -> Plan {
    Plan::new::<B>(&config.loader, || footprint(config, graph, width), device)
}

/// What a training takes that computes the whole graph at once.
fn footprint(config: &Stage2Config, graph: &HeteroGraph, width: usize) -> Footprint {
    let element = crate::train::optimiser::dtype(config.train.precision).size() as u64;
    // Adjacencies that relations share are there once.
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for adjacency in graph.relations().iter().flat_map(|r| [&r.forward, &r.reverse]) {
        if seen.insert(Arc::as_ptr(adjacency)) {
            bytes += 4 * (adjacency.num_edges() + adjacency.num_rows() + 1) as u64;
        }
    }
    let nodes = graph.num_nodes() as u64;
    // Inference holds a layer's input, what each relation makes of it and the result; training of all rows holds the same of
    // both layers and gradients of it.
    let channels = (width + 2 * config.model.hidden + 2 * config.model.out) as u64;
    let passes = match config.train.rows {
        Rows::Reachable => 1,
        Rows::All => 2,
    };
    Footprint {
        graph: bytes,
        features: nodes * width as u64 * element,
        activations: passes * nodes * channels * element,
    }
}
