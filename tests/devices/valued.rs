//! A marketplace whose edges have values.

use std::sync::Arc;

use graphsieve::graph::{EdgeMatrix, HeteroGraph};

/// The same graph with values of the edges between users and products, in both directions, and between users.
pub fn with_values(mut graph: HeteroGraph) -> HeteroGraph {
    for (name, width) in [("epu", 3), ("euu", 1)] {
        let edges = graph.relations().iter().find(|of| of.name == name).unwrap().forward.num_edges();
        let values = (0..edges * width).map(|k| (k * 7919 % 101) as f32 / 50.0 - 1.0).collect();
        graph.set_edge_values(name, Arc::new(EdgeMatrix::new(values, width)));
    }
    graph.mirror_edge_values();
    graph
}
