//! The receptive field of a result: the rows that it depends on, and the blocks between them.

use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, DropEdge, GraphBackend, NodeMarks, NodeSet, NodeSetBackend};

use super::device_graph::{DeviceGraph, DeviceRelation};
use super::graph_part::Division;
use crate::graph::{HeteroGraph, NodeType};
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
        (0..self.levels.len() - 1).map(|layer| self.block(layer, graph, &drop_edge)).collect()
    }

    fn block(
        &self,
        layer: usize,
        graph: &DeviceGraph<B>,
        drop_edge: impl Fn(usize, &DeviceRelation<B>) -> Option<DropEdge>,
    ) -> Block<B> {
        let rows = |level: usize, t: usize| self.rows(graph, level, t);
        let live = graph.relations.iter().filter(|r| rows(layer, r.src) > 0 && rows(layer + 1, r.dst) > 0);
        let edges = live.map(|relation| relation.edges(self.csr(layer, relation), drop_edge(layer, relation)));
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
        let Some(nodes) = nodes else { return Self::all(graph) };
        let sets = nodes.iter().zip(&graph.node_types).map(|(nodes, t)| NodeSet::new(nodes, t.count, device)).collect();
        Self::of(graph, sets, drop_edge, device)
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

    /// The two layers of one of several ranks, each of which computes some of the hidden rows, one rank behind the
    /// other, and of the result the rows `own`; and by type how many hidden rows each rank computes.
    pub fn shared(
        self,
        own: Vec<Vec<u32>>,
        shares: &Shares<B>,
        drop_edge: impl Fn(usize, &DeviceRelation<B>) -> Option<DropEdge>,
        (graph, device): (&DeviceGraph<B>, &B::Device),
    ) -> (Vec<Block<B>>, Vec<Vec<usize>>)
    where
        B: GraphBackend,
    {
        let [inputs, hidden, _] = self.levels;
        let nodes = |t: usize, nodes: &[u32]| Some(NodeSet::new(nodes, graph.node_types[t].count, device));
        let (mut parts, mut counts) = (Nodes::new(), Vec::new());
        for (t, set) in hidden.iter().enumerate() {
            let Some(set) = set else {
                parts.push(Some(shares.nodes[t].clone()));
                counts.push(shares.division.counts(t));
                continue;
            };
            let ranks = shares.division.ranks();
            let place = |rank: usize| rank * set.len() / ranks;
            let places = place(shares.rank)..place(shares.rank + 1);
            parts.push(if places.is_empty() { nodes(t, &[]) } else { Some(set.slice(places)) });
            counts.push((0..ranks).map(|rank| place(rank + 1) - place(rank)).collect());
        }
        let own: Nodes<B> = own.iter().enumerate().map(|(t, own)| nodes(t, own)).collect();
        let first = Self { levels: [inputs.clone(), parts, own.clone()] };
        let second = Self { levels: [inputs, hidden, own] };
        let layer = |at: usize, field: &Self| field.block(at, graph, &drop_edge);
        (vec![layer(0, &first), layer(1, &second)], counts)
    }
}

/// How several ranks share hidden rows: of a type whose nodes are all at hand a rank has those of its division, of a
/// set of them equal parts.
#[derive(Clone, Debug)]
pub struct Shares<B: Backend> {
    rank: usize,
    division: Division,
    /// By type, those of `rank`.
    nodes: Vec<NodeSet<B>>,
}

impl<B: NodeSetBackend> Shares<B> {
    /// Those of `rank`.
    pub fn new(graph: &DeviceGraph<B>, division: Division, rank: usize, device: &B::Device) -> Self {
        let of_type = |(t, of): (usize, &NodeType)| {
            let nodes: Vec<u32> = division.nodes(t, rank).map(|node| node as u32).collect();
            NodeSet::new(&nodes, of.count, device)
        };
        let nodes = graph.node_types.iter().enumerate().map(of_type).collect();
        Self { rank, division, nodes }
    }
}

/// How many hidden rows the rows `nodes` of a result depend on, by type, where no edge is dropped.
pub fn hidden_rows(graph: &HeteroGraph, nodes: &[Vec<u32>]) -> usize {
    let mut marks: Vec<Vec<bool>> = graph.node_types().iter().map(|t| vec![false; t.count]).collect();
    for (marks, nodes) in marks.iter_mut().zip(nodes) {
        nodes.iter().for_each(|&node| marks[node as usize] = true);
    }
    for relation in graph.relations() {
        let sources = nodes[relation.dst].iter().flat_map(|&node| relation.forward.row(node as usize));
        sources.for_each(|&node| marks[relation.src][node as usize] = true);
    }
    marks.iter().flatten().filter(|mark| **mark).count()
}
