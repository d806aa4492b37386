//! A marketplace whose edges have values, or ages too.

use std::sync::Arc;

use graphsieve::graph::{Ages, EdgeMatrix, HeteroGraph};
use graphsieve::models::TimeInput;

/// What the edges have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carried {
    Nothing,
    Values,
    /// Ages by times of nodes, of one relation.
    Times,
    /// Values and ages of all kinds.
    ValuesAndAges,
}

impl Carried {
    pub const ALL: [Carried; 4] = [Carried::Nothing, Carried::Values, Carried::Times, Carried::ValuesAndAges];

    pub fn on(self, graph: &HeteroGraph) -> HeteroGraph {
        match self {
            Carried::Nothing => graph.clone(),
            Carried::Values => with_values(graph.clone()),
            Carried::Times => with_times(graph.clone()),
            Carried::ValuesAndAges => with_ages(with_times(with_values(graph.clone()))),
        }
    }

    /// How a model reads ages, where there are any.
    pub fn time(self) -> Option<TimeInput> {
        let input = TimeInput { frequencies: 3, learned: true, periods: [90.0, 7.0] };
        matches!(self, Carried::Times | Carried::ValuesAndAges).then_some(input)
    }
}

/// The same graph with ages of the edges between users, by times of users.
fn with_times(mut graph: HeteroGraph) -> HeteroGraph {
    graph.set_times((0..graph.num_nodes() as i32).map(|node| node * 7919 % 97).collect());
    graph.set_ages("euu", Ages::Nodes);
    graph
}

/// The same graph with ages of the edges between products and sellers, in both directions.
fn with_ages(mut graph: HeteroGraph) -> HeteroGraph {
    let edges = graph.relations().iter().find(|of| of.name == "eps").unwrap().forward.num_edges();
    let ages = (0..edges).map(|k| (k * 7919 % 101) as f32 / 4.0).collect();
    graph.set_ages("eps", Ages::Edges(Arc::new(EdgeMatrix::new(ages, 1))));
    graph.mirror_ages();
    graph
}

/// The same graph with values of the edges between users and products, in both directions, and between users.
fn with_values(mut graph: HeteroGraph) -> HeteroGraph {
    for (name, width) in [("epu", 3), ("euu", 1)] {
        let edges = graph.relations().iter().find(|of| of.name == name).unwrap().forward.num_edges();
        let values = (0..edges * width).map(|k| (k * 7919 % 101) as f32 / 50.0 - 1.0).collect();
        graph.set_edge_values(name, Arc::new(EdgeMatrix::new(values, width)));
    }
    graph.mirror_edge_values();
    graph
}
