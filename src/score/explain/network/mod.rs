//! A network of graph layers, taken apart: which neighbours, which paths of two edges and which columns made the logit
//! of one node.
//!
//! The logit is `b + <w, h>` of the last layer, and every layer has the form `h = act(z)`, `z_i = sum_j c_ij W h_j` and
//! perhaps a node's own transform and a bias ([`Network`]). With the coefficients `c` and the slopes `act(z)/z` held at
//! the values that they have, and gates and deviations of normalised rows where there are any, the logit is linear in
//! the features and the biases, so that
//!
//! ```text
//! logit - base = sum over the entries (r, j) of the node
//!              = sum over columns of the features + sum over values of edges + biases of the hidden layers
//! entry (r, j) = sum over paths k -> j -> i + bias of j + values of the edge j -> i
//! ```
//!
//! holds exactly. Beta wavelets are such layers, too, one for each edge that they look far, between layers of nodes
//! alone. The base has the bias of the last layer. What the sums do not tell is what would happen without a
//! neighbour: the softmax, or the degree, divides anew then. That is computed, too ([`Entry::removal`]), and does not
//! add up.
//!
//! # Cost
//! With `L` layers, for a node with `n` nodes within `L - 1` edges that have `e` in-edges together,
//! `O(e heads input + n relations input hidden)` time, and `n hidden` numbers for each layer; attention and means take
//! `O(d heads (input + hidden))` more for each neighbour that is removed where `L = 2` and the node has `d`
//! in-neighbours. A removal computes what it changes; with symmetric normalisation and with more layers, that is most
//! of the rows near the two nodes. Rows are worked on in parallel and added up in a fixed order.
//!
//! # Source
//! Coefficients as constants: Ali et al., XAI for transformers: better explanations through conservative propagation
//! (ICML 2022). Slopes: the rescale rule of Shrikumar et al., Learning important features through propagating
//! activation differences (ICML 2017).

mod edges;
mod ego;
mod parameters;
mod relevance;
mod removal;

use rayon::prelude::*;

pub(crate) use self::edges::Edges;
use self::ego::Ego;
pub(crate) use self::ego::View;
pub(crate) use self::parameters::{
    Activation, Coefficients, EdgeTransform, Gate, Head, Joined, Layer, Matrix, Network, Normalised, Pieces, ReadOut,
    TimeTransform, Transform,
};
pub(crate) use self::relevance::{Entry, Path};
use super::by_magnitude;

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
    /// The bias of the head and of the last layer.
    pub base: f64,
    /// One per relation into the node and in-neighbour, the largest by magnitude first. The node itself is among them
    /// where a relation or the network holds its self-loop, and where it has a transform of its own.
    pub entries: Vec<Entry>,
    /// One per column of the input.
    pub columns: Vec<f64>,
    /// Over the features of the nodes of each type, without the node itself.
    pub by_type: Vec<f64>,
    /// Over the features of the node itself, also where they come back to it over its neighbours.
    pub own_features: f64,
    /// Over the biases of all layers but the last.
    pub biases: f64,
    /// `[relation]`: one per value of its edges, those of ages last, in all layers; empty where no relation has any.
    pub edges: Vec<Vec<f64>>,
}

impl View<'_> {
    /// The logit of a node and all that it is made of.
    pub fn explain(&self, node: u32, head: &Head, limits: Limits) -> Attributed {
        let ego = Ego::around(*self, node);
        let logit = ego.logit(head);
        let last = ego.last_parts(head);
        let mut entries: Vec<Entry> = last.iter().flat_map(|part| ego.entries(part)).collect();
        entries.sort_by(|a, b| {
            let by_size = by_magnitude(a.contribution, b.contribution);
            by_size.then(a.source.cmp(&b.source)).then(a.relation.cmp(&b.relation))
        });
        // Edges of the node to itself come on top: there are few of them.
        let mut others = 0;
        let mut listed: Vec<&mut Entry> = entries.iter_mut().collect();
        listed.retain(|entry| {
            others += usize::from(entry.source != node);
            entry.source == node || others <= limits.neighbours
        });
        listed.into_par_iter().for_each(|entry| {
            entry.removal = (entry.source != node).then(|| logit - ego.logit_without(entry.source, head));
            ego.paths(entry, &last, limits.paths);
        });
        let sums = ego.sums(head);
        Attributed {
            logit,
            base: ego.base(head),
            entries,
            columns: sums.columns,
            by_type: sums.by_type,
            own_features: sums.own,
            biases: sums.biases,
            edges: sums.edges,
        }
    }
}

#[cfg(test)]
mod tests;
