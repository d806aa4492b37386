//! The rows that a result depends on: what a layer computes and what it may leave out.

use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, DropEdge, NodeMarks, NodeSet, NodeSetBackend};

use super::device_graph::{DeviceGraph, DeviceRelation};

/// Share of a type from which a set is not worth its lookups: all nodes are computed instead.
const DENSE: f64 = 0.7;

/// The nodes of every type that are at hand before or after a layer; `None` stands for all of a type.
pub type Nodes<B> = Vec<Option<NodeSet<B>>>;

/// The nodes at every level of a model of two layers: its input, its hidden layer, its result.
#[derive(Clone, Debug)]
pub struct Reach<B: Backend> {
    pub levels: [Nodes<B>; 3],
}

impl<B: Backend> Reach<B> {
    /// Every node at every level.
    pub fn all(graph: &DeviceGraph<B>) -> Self {
        let all = || graph.node_types.iter().map(|_| None).collect::<Nodes<B>>();
        Self { levels: [all(), all(), all()] }
    }

    /// Rows of node type `t` at `level`.
    pub fn rows(&self, graph: &DeviceGraph<B>, level: usize, t: usize) -> usize {
        self.levels[level][t].as_ref().map_or(graph.node_types[t].count, NodeSet::len)
    }

    /// What layer `layer` (counted from 0) walks of a relation: the results that are wanted and the sources at hand.
    pub fn csr(&self, layer: usize, relation: &DeviceRelation<B>) -> Csr<B> {
        let (rows, cols) = (&self.levels[layer + 1][relation.dst], &self.levels[layer][relation.src]);
        relation.csr.restrict(rows.as_ref(), cols.as_ref())
    }
}

impl<B: NodeSetBackend> Reach<B> {
    /// What the nodes `wanted` of a result depend on, when the second layer drops edges by `drop_edge` of a relation:
    /// themselves and the sources of their kept edges. All inputs count as at hand. Exact: nothing that is left out has
    /// any influence on the wanted rows or on a gradient. Waits for the device once.
    pub fn of(
        graph: &DeviceGraph<B>,
        wanted: Vec<NodeSet<B>>,
        drop_edge: impl Fn(&DeviceRelation<B>) -> Option<DropEdge>,
        device: &B::Device,
    ) -> Self {
        let mut marks: Vec<NodeMarks<B>> = graph.node_types.iter().map(|t| NodeMarks::new(t.count, device)).collect();
        for (marks, set) in marks.iter_mut().zip(&wanted) {
            marks.add(set);
        }
        for relation in &graph.relations {
            let csr = relation.csr.restrict(Some(&wanted[relation.dst]), None);
            marks[relation.src].add_sources(&csr, drop_edge(relation));
        }
        let dense = |set: &NodeSet<B>| set.len() as f64 > DENSE * set.num_nodes() as f64;
        let hidden = NodeMarks::into_sets(marks).into_iter().map(|set| (!dense(&set)).then_some(set)).collect();
        let inputs = graph.node_types.iter().map(|_| None).collect();
        Self { levels: [inputs, hidden, wanted.into_iter().map(Some).collect()] }
    }
}
