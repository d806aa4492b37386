//! The edges of a graph as the layers of a network see them.

use rayon::prelude::*;

use super::parameters::{Coefficients, Network};
use crate::graph::{HeteroGraph, Relation};

/// In-edges of every node: those of the graph, and what a network adds.
pub(crate) struct Edges<'a> {
    graph: &'a HeteroGraph,
    loops: bool,
    weighted: bool,
    /// `[type]`: whether a node has a transform of its own.
    own: Vec<bool>,
    /// `[relation]`: whether the network reads values and ages of its edges.
    read: Vec<[bool; 2]>,
    /// `[type]`: the relations that lead there.
    into: Vec<Vec<usize>>,
    /// `[relation][node]`: sums of weights of in-edges, 1 without any, where coefficients are made of them.
    degrees: Vec<Vec<f64>>,
}

/// The sources of a node over one relation, by global id; without a relation the node itself, which its own transform
/// reads.
pub(super) struct Row {
    pub relation: Option<usize>,
    pub sources: Vec<u32>,
    /// `[sources, values]`: those of the edges, and behind them what a layer makes of their ages; empty where the
    /// network reads none.
    pub values: Vec<f64>,
    /// `[sources]`: ages of the edges; empty where the network reads none.
    pub ages: Vec<f64>,
    /// `[sources]`: weights of the edges; empty where the network reads none.
    pub weights: Vec<f64>,
}

impl Row {
    /// Of a node that its own transform, or the head, reads.
    pub fn of_itself(node: u32) -> Self {
        Self { relation: None, sources: vec![node], values: Vec::new(), ages: Vec::new(), weights: Vec::new() }
    }

    /// The weight of an edge.
    pub fn weight(&self, entry: usize) -> f64 {
        self.weights.get(entry).copied().unwrap_or(1.0)
    }

    /// The weights of all edges, added up.
    pub fn weight_sum(&self) -> f64 {
        (0..self.sources.len()).map(|entry| self.weight(entry)).sum()
    }

    /// The values of an edge.
    pub fn values_of(&self, entry: usize) -> &[f64] {
        let width = self.values.len() / self.sources.len();
        &self.values[entry * width..(entry + 1) * width]
    }
}

/// Two nodes without any edge between them.
pub(super) struct Cut {
    ends: [u32; 2],
    /// `[relation]`: sums of weights of the in-edges that they have left, where coefficients are made of them.
    degrees: Vec<[f64; 2]>,
}

impl Cut {
    fn place(&self, node: u32) -> Option<usize> {
        self.ends.iter().position(|&end| end == node)
    }
}

impl<'a> Edges<'a> {
    /// Those that `network` sees of `graph`. Symmetric normalisation is over nodes of one type.
    pub fn new(graph: &'a HeteroGraph, network: &Network) -> Self {
        let mut into = vec![Vec::new(); graph.node_types().len()];
        graph.relations().iter().enumerate().for_each(|(at, relation)| into[relation.dst].push(at));
        let has = |t: usize| network.layers.iter().any(|layer| matches!(layer.own.get(t), Some(Some(_))));
        let own = (0..into.len()).map(has).collect();
        let reads = |at: usize| {
            let of = network.layers.iter().find_map(|layer| layer.edges.get(at)?.as_ref());
            of.map_or([false; 2], |of| [of.values() > 0, of.time.is_some()])
        };
        let read = (0..graph.relations().len()).map(reads).collect();
        let (loops, weighted) = (network.loops, network.weighted);
        let mut edges = Self { graph, loops, weighted, own, read, into, degrees: Vec::new() };
        if network.coefficients == Coefficients::Symmetric {
            let nodes = (0..graph.num_nodes() as u32).into_par_iter();
            let of = |relation| nodes.clone().map(|node| edges.weight_sum(relation, node, None)).collect();
            edges.degrees = (0..graph.relations().len()).map(of).collect();
        }
        edges
    }

    pub fn graph(&self) -> &'a HeteroGraph {
        self.graph
    }

    /// What arrives at a node; no row is empty.
    pub(super) fn rows(&self, node: u32, cut: Option<&Cut>) -> Vec<Row> {
        let of_type = &self.into[self.graph.type_of(node as usize)];
        let mut rows: Vec<Row> = of_type.iter().map(|&at| self.row(at, node, cut)).collect();
        rows.retain(|row| !row.sources.is_empty());
        rows.extend(self.own_row(node));
        rows
    }

    /// What a transform of the node itself reads, where there is one.
    pub(super) fn own_row(&self, node: u32) -> Option<Row> {
        self.own[self.graph.type_of(node as usize)].then(|| Row::of_itself(node))
    }

    /// What arrives at a node over a relation into its type.
    fn row(&self, at: usize, node: u32, cut: Option<&Cut>) -> Row {
        let without = cut.and_then(|cut| cut.place(node).map(|at| cut.ends[1 - at]));
        let (types, relation) = (self.graph.node_types(), &self.graph.relations()[at]);
        let looped = self.loops && relation.src == relation.dst;
        let first = types[relation.src].offset as u32;
        let row = node as usize - types[relation.dst].offset;
        let (entries, sources) = (relation.forward.entries(row), relation.forward.row(row).iter());
        let kept = entries.zip(sources.map(|&source| first + source));
        let kept = || kept.clone().filter(|&(_, source)| Some(source) != without && !(looped && source == node));
        let [reads_values, reads_ages] = self.read[at];
        let of_edges = relation.values.as_ref().filter(|_| reads_values);
        let values = of_edges.iter().flat_map(|values| kept().flat_map(|(entry, _)| values.row(entry)));
        let age = |(entry, source): (usize, u32)| self.graph.age(relation, entry, row, source - first);
        let of_weights = relation.values.as_ref().filter(|_| self.weighted);
        let weights = of_weights.map(|weights| kept().map(move |(entry, _)| f64::from(weights.row(entry)[0])));
        Row {
            weights: weights.map_or_else(Vec::new, |weights| weights.chain(looped.then_some(1.0)).collect()),
            relation: Some(at),
            values: values.map(|&value| f64::from(value)).collect(),
            ages: if reads_ages { kept().filter_map(age).collect() } else { Vec::new() },
            sources: kept().map(|(_, source)| source).chain(looped.then_some(node)).collect(),
        }
    }

    /// The sources of all rows.
    pub(super) fn sources(&self, node: u32, cut: Option<&Cut>) -> Vec<u32> {
        self.rows(node, cut).into_iter().flat_map(|row| row.sources).collect()
    }

    /// The weights of all in-edges of a node over a relation, added up; 1 without any.
    fn weight_sum(&self, relation: usize, node: u32, cut: Option<&Cut>) -> f64 {
        let sum = self.row(relation, node, cut).weight_sum();
        if sum > 0.0 { sum } else { 1.0 }
    }

    /// The nodes that have `node` as a source.
    pub(super) fn destinations(&self, node: u32) -> Vec<u32> {
        let types = self.graph.node_types();
        let t = self.graph.type_of(node as usize);
        let leaving = self.graph.relations().iter().filter(|relation| relation.src == t);
        let of_relation = |relation: &'a Relation| {
            let first = types[relation.dst].offset as u32;
            relation.reverse.row(node as usize - types[t].offset).iter().map(move |&row| first + row)
        };
        leaving.flat_map(of_relation).collect()
    }

    /// In-edges of a node over a relation, its added loop included, by their weights.
    pub(super) fn degree(&self, relation: usize, node: u32, cut: Option<&Cut>) -> f64 {
        let left = cut.and_then(|cut| cut.place(node).map(|at| cut.degrees[relation][at]));
        left.unwrap_or(self.degrees[relation][node as usize])
    }

    /// The graph without the edges between two nodes.
    pub(super) fn without(&self, ends: [u32; 2]) -> Cut {
        let cut = Cut { ends, degrees: Vec::new() };
        let left = |relation| ends.map(|end| self.weight_sum(relation, end, Some(&cut)));
        Cut { degrees: (0..self.degrees.len()).map(left).collect(), ends }
    }

    /// The nodes whose sources or coefficients are others after a cut, ascending.
    pub(super) fn changed_by(&self, cut: &Cut) -> Vec<u32> {
        let mut changed = cut.ends.to_vec();
        if !self.degrees.is_empty() {
            changed.extend(cut.ends.iter().flat_map(|&end| self.destinations(end)));
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}
