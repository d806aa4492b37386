//! Stage 2, taken apart: which neighbours, which paths of two edges and which columns made the logit of one node.
//!
//! The logit is `b + <w, h2>`, and both layers have the form `h = elu(z)`, `z_i = 1/S sum_j a_ij W h_j`. With the
//! attention `a` and the slopes `elu(z)/z` held at the values that they have, the logit is linear in the features two
//! edges away, so that
//!
//! ```text
//! logit - b = sum over entries (r, j) of the node
//!           = sum over paths k -> j -> i
//!           = sum over columns of the features of all k
//! ```
//!
//! holds exactly. What it does not tell is what would happen without a neighbour: the softmax divides anew then. That
//! is computed, too ([`Entry::removal`]), and does not add up.
//!
//! # Cost
//! For a node with `d` in-neighbours that have `e` in-edges together, `O(e heads input + d streams input hidden)` time
//! and `d hidden` numbers; each neighbour that is removed costs `O(d heads (input + hidden))` more. Rows are worked on
//! in parallel and added up in a fixed order.
//!
//! # Source
//! Coefficients as constants: Ali et al., XAI for transformers: better explanations through conservative propagation
//! (ICML 2022). Slopes: the rescale rule of Shrikumar et al., Learning important features through propagating
//! activation differences (ICML 2017).

mod ego;

use rayon::prelude::*;

use self::ego::Ego;
use super::by_magnitude;
use super::network::{Network, axpy};
use crate::graph::{Features, HeteroGraph};

/// Rows whose sums are added up one after the other: the result does not depend on the number of threads.
const CHUNK: usize = 64;

/// How much is told of how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Neighbours with paths and with a removal.
    pub neighbours: usize,
    /// Paths of an entry.
    pub paths: usize,
}

/// What a logit is made of.
#[derive(Clone, Debug)]
pub(crate) struct Attributed {
    pub logit: f64,
    pub bias: f64,
    /// One per relation into the node and in-neighbour, the largest by magnitude first. The node itself is among them
    /// where a relation holds its self-loop.
    pub entries: Vec<Entry>,
    /// One per column of the input.
    pub columns: Vec<f64>,
    /// Over the features of the nodes of each type, without the node itself.
    pub by_type: Vec<f64>,
    /// Over the features of the node itself, which come back to it over its neighbours.
    pub own_features: f64,
}

/// An in-neighbour over one relation.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub relation: usize,
    /// Global id.
    pub source: u32,
    /// Mean over heads.
    pub attention: f64,
    pub contribution: f64,
    /// Logit less that without any edge between the two nodes, of the first entries.
    pub removal: Option<f64>,
    /// The strongest, of the first entries.
    pub paths: Vec<Path>,
    /// Paths that are left out.
    pub more_paths: usize,
}

/// A path of two edges: what an in-neighbour of the neighbour adds.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub relation: usize,
    /// Global id.
    pub source: u32,
    /// Of the neighbour to it; mean over heads.
    pub attention: f64,
    pub contribution: f64,
}

/// A network and the graph that it looks at.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    network: &'a Network,
    graph: &'a HeteroGraph,
    features: &'a Features,
    into: &'a [Vec<Into>],
}

/// A relation into a node type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Into {
    relation: usize,
    stream: usize,
    /// Global id of the first source.
    first: u32,
    src: usize,
}

/// `[type]`: the relations that lead there, by their number.
pub(crate) fn relations_into(graph: &HeteroGraph) -> Vec<Vec<Into>> {
    let types = graph.node_types();
    let streams = graph.streams();
    let mut into = vec![Vec::new(); types.len()];
    for (at, relation) in graph.relations().iter().enumerate() {
        let stream = streams.iter().position(|stream| *stream == relation.stream).unwrap_or_default();
        let first = types[relation.src].offset as u32;
        into[relation.dst].push(Into { relation: at, stream, first, src: relation.src });
    }
    into
}

/// The in-neighbours of a row over one relation.
struct Row<'a> {
    into: Into,
    /// Local ids.
    sources: &'a [u32],
}

impl Row<'_> {
    fn source(&self, entry: usize) -> u32 {
        self.into.first + self.sources[entry]
    }
}

/// Sums of attended inputs of a row over one relation, and the attention itself.
struct Attended {
    /// `[heads, input]`
    inputs: Vec<f64>,
    /// `[entries, heads]`
    weights: Vec<f64>,
}

impl<'a> Attention<'a> {
    /// `into` is [`relations_into`] of the graph; streams of the network are in the order of the graph's.
    pub fn new(network: &'a Network, graph: &'a HeteroGraph, features: &'a Features, into: &'a [Vec<Into>]) -> Self {
        Self { network, graph, features, into }
    }

    /// The logit of a node and all that it is made of.
    pub fn explain(&self, node: u32, limits: Limits) -> Attributed {
        let ego = Ego::around(*self, node);
        let second = ego.second_layer(None);
        let relevance = ego.relevance(&second);
        let mut entries: Vec<Entry> = relevance.iter().flat_map(|(row, of_row)| ego.entries(row, of_row)).collect();
        entries.sort_by(|a, b| {
            let by_size = by_magnitude(a.contribution, b.contribution);
            by_size.then(a.source.cmp(&b.source)).then(a.relation.cmp(&b.relation))
        });
        let sums = ego.sums(&relevance);
        // Edges of the node to itself come on top: there are few of them.
        let mut others = 0;
        let mut listed: Vec<&mut Entry> = entries.iter_mut().collect();
        listed.retain(|entry| {
            others += usize::from(entry.source != node);
            entry.source == node || others <= limits.neighbours
        });
        listed.into_par_iter().for_each(|entry| {
            let removed = (entry.source != node).then(|| ego.second_layer(Some(entry.source)).logit);
            entry.removal = removed.map(|without| second.logit - without);
            ego.paths(entry, &relevance, limits.paths);
        });
        Attributed {
            logit: second.logit,
            bias: self.network.head_bias,
            entries,
            columns: sums.columns,
            by_type: sums.by_type,
            own_features: sums.own,
        }
    }

    fn rows(&self, node: u32) -> (f64, Vec<Row<'a>>) {
        let t = self.graph.type_of(node as usize);
        let local = node as usize - self.graph.node_types()[t].offset;
        let into = &self.into[t];
        let mut streams: Vec<usize> = into.iter().map(|into| into.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        let relations = self.graph.relations();
        let row = |&into: &Into| Row { into, sources: relations[into.relation].forward.row(local) };
        (1.0 / streams.len().max(1) as f64, into.iter().map(row).collect())
    }

    fn features_of(&self, node: u32, to: &mut Vec<f64>) {
        to.clear();
        to.extend(self.features.row(node as usize).map(f64::from));
    }

    /// The first layer's attention of `node` over one relation, without the sources `without`.
    fn attended(&self, node: u32, row: &Row, without: Option<u32>) -> Attended {
        let stream = &self.network.layers[0].streams[row.into.stream];
        let (heads, input) = (self.network.heads, self.features.dim());
        let mut x = Vec::with_capacity(input);
        self.features_of(node, &mut x);
        let of_destination = stream.destination_scores(&x);
        let mut of_sources = vec![0.0; row.sources.len() * heads];
        for (entry, scores) in of_sources.chunks_exact_mut(heads).enumerate() {
            self.features_of(row.source(entry), &mut x);
            stream.source_scores(&x, scores);
        }
        let keep = |entry: usize| Some(row.source(entry)) != without;
        let weights = self.network.attention(&of_destination, &of_sources, keep);
        let mut inputs = vec![0.0; heads * input];
        for (entry, weights) in weights.chunks_exact(heads).enumerate().filter(|(entry, _)| keep(*entry)) {
            self.features_of(row.source(entry), &mut x);
            inputs.chunks_exact_mut(input).zip(weights).for_each(|(to, &weight)| axpy(weight, &x, to));
        }
        Attended { inputs, weights }
    }

    /// The first layer before its activation.
    fn first_layer(&self, node: u32, without: Option<u32>) -> Vec<f64> {
        let layer = &self.network.layers[0];
        let (share, rows) = self.rows(node);
        let mut z = vec![0.0; layer.output];
        for row in rows.iter().filter(|row| !row.sources.is_empty()) {
            let attended = self.attended(node, row, without);
            let heads =
                attended.inputs.chunks_exact(layer.input).zip(z.chunks_exact_mut(layer.output / self.network.heads));
            for (head, (inputs, z)) in heads.enumerate() {
                layer.streams[row.into.stream].project(inputs, head, share, z);
            }
        }
        z
    }
}

#[cfg(test)]
mod tests;
