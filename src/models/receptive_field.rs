//! The receptive field of a result: the rows that it depends on, and the blocks between them.

use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, DropEdge, GraphBackend, NodeMarks, NodeSet, NodeSetBackend, PendingSets};

use super::device_graph::{DeviceGraph, DeviceRelation};
use crate::nn::{Block, KeptRows};

/// Share of a type from which a set is not worth its lookups: all nodes are computed instead.
const DENSE: f64 = 0.7;

/// The nodes of every type that are at hand before or after a layer; `None` stands for all of a type.
pub type Nodes<B> = Vec<Option<NodeSet<B>>>;

/// The nodes at every level of a model of two layers: its input, its hidden layer, its result.
#[derive(Clone, Debug)]
pub struct ReceptiveField<B: Backend> {
    pub levels: [Nodes<B>; 3],
}

impl<B: Backend> ReceptiveField<B> {
    /// Every node at every level.
    pub fn all(graph: &DeviceGraph<B>) -> Self {
        let all = || graph.node_types.iter().map(|_| None).collect::<Nodes<B>>();
        Self { levels: [all(), all(), all()] }
    }

    /// Rows of node type `t` at `level`.
    pub fn rows(&self, graph: &DeviceGraph<B>, level: usize, t: usize) -> usize {
        self.levels[level][t].as_ref().map_or(graph.node_types[t].count, NodeSet::len)
    }

    /// The edges of a relation that layer `layer` (counted from 0) visits: to the results that are wanted, from the
    /// sources at hand.
    pub fn csr(&self, layer: usize, relation: &DeviceRelation<B>) -> Csr<B> {
        let (rows, cols) = (&self.levels[layer + 1][relation.dst], &self.levels[layer][relation.src]);
        relation.csr.restrict(rows.as_ref(), cols.as_ref())
    }
}

impl<B: GraphBackend> ReceptiveField<B> {
    /// The layers of a pass; `drop_edge` says what a layer leaves out of a relation.
    pub fn blocks(
        &self,
        graph: &DeviceGraph<B>,
        drop_edge: impl Fn(usize, &DeviceRelation<B>) -> Option<DropEdge>,
    ) -> Vec<Block<B>> {
        let block = |layer: usize| self.block(graph, layer, |relation| drop_edge(layer, relation));
        (0..self.levels.len() - 1).map(block).collect()
    }

    /// One of them, counted from 0.
    pub fn block(
        &self,
        graph: &DeviceGraph<B>,
        layer: usize,
        drop_edge: impl Fn(&DeviceRelation<B>) -> Option<DropEdge>,
    ) -> Block<B> {
        let rows = |level: usize, t: usize| self.rows(graph, level, t);
        let live = graph.relations.iter().filter(|r| rows(layer, r.src) > 0 && rows(layer + 1, r.dst) > 0);
        let edges = live.map(|relation| relation.edges(self.csr(layer, relation), drop_edge(relation)));
        let (before, after) = (&self.levels[layer], &self.levels[layer + 1]);
        let kept = graph.node_types.iter().zip(before.iter().zip(after));
        Block {
            edges: edges.collect(),
            kept: kept
                .map(|(t, (before, after))| KeptRows::Selected {
                    before: before.clone(),
                    after: after.clone(),
                    of: t.count,
                })
                .collect(),
            streams_into: graph.streams_into.clone(),
            reads_data: layer == 0 && before.iter().all(Option::is_none),
        }
    }
}

impl<B: NodeSetBackend> ReceptiveField<B> {
    /// What the rows `nodes` of a result depend on, by type; everything when there is no list.
    pub fn of_rows(
        graph: &DeviceGraph<B>,
        nodes: Option<Vec<Vec<u32>>>,
        drop_edge: impl Fn(&DeviceRelation<B>) -> Option<DropEdge>,
        device: &B::Device,
    ) -> Self {
        Self::begin_rows(graph, nodes, drop_edge, device).end()
    }

    /// The same without waiting for the device, see [`PendingField::end`].
    pub fn begin_rows(
        graph: &DeviceGraph<B>,
        nodes: Option<Vec<Vec<u32>>>,
        drop_edge: impl Fn(&DeviceRelation<B>) -> Option<DropEdge>,
        device: &B::Device,
    ) -> PendingField<B> {
        let Some(nodes) = nodes else { return PendingField::Known(Self::all(graph)) };
        let sets = nodes.iter().zip(&graph.node_types).map(|(nodes, t)| NodeSet::new(nodes, t.count, device)).collect();
        Self::begin(graph, sets, drop_edge, device)
    }

    /// What the nodes `wanted` of a result depend on, when the second layer drops edges by `drop_edge` of a relation:
    /// themselves and the sources of their kept edges. All inputs count as at hand. Exact: nothing that is left out has
    /// any influence on the wanted rows or on a gradient. Waits for the device once.
    pub fn of(
        graph: &DeviceGraph<B>,
        wanted: Vec<NodeSet<B>>,
        drop_edge: impl Fn(&DeviceRelation<B>) -> Option<DropEdge>,
        device: &B::Device,
    ) -> Self {
        Self::begin(graph, wanted, drop_edge, device).end()
    }

    fn begin(
        graph: &DeviceGraph<B>,
        wanted: Vec<NodeSet<B>>,
        drop_edge: impl Fn(&DeviceRelation<B>) -> Option<DropEdge>,
        device: &B::Device,
    ) -> PendingField<B> {
        let mut marks: Vec<NodeMarks<B>> = graph.node_types.iter().map(|t| NodeMarks::new(t.count, device)).collect();
        for (marks, set) in marks.iter_mut().zip(&wanted) {
            marks.add(set);
        }
        for relation in &graph.relations {
            let csr = relation.csr.restrict(Some(&wanted[relation.dst]), None);
            marks[relation.src].add_sources(&csr, drop_edge(relation));
        }
        PendingField::Marked { wanted, hidden: NodeMarks::begin_sets(marks) }
    }
}

/// A receptive field that the device looks for.
pub enum PendingField<B: Backend> {
    /// Every node.
    Known(ReceptiveField<B>),
    /// The nodes of a result, and what they depend on in the hidden layer.
    Marked { wanted: Vec<NodeSet<B>>, hidden: PendingSets<B> },
}

impl<B: Backend> PendingField<B> {
    /// The field; waits until the device has marked its rows, and for nothing that was queued behind them.
    pub fn end(self) -> ReceptiveField<B> {
        let (wanted, hidden) = match self {
            PendingField::Known(field) => return field,
            PendingField::Marked { wanted, hidden } => (wanted, hidden.end()),
        };
        let dense = |set: &NodeSet<B>| set.len() as f64 > DENSE * set.num_nodes() as f64;
        let hidden = hidden.into_iter().map(|set| (!dense(&set)).then_some(set)).collect();
        let inputs = wanted.iter().map(|_| None).collect();
        ReceptiveField { levels: [inputs, hidden, wanted.into_iter().map(Some).collect()] }
    }
}
