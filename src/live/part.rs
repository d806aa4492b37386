//! The neighbourhood of some nodes as data of their own.

use crate::graph::Dataset;

/// What a model reads to score some nodes: they, what they are joined to, and what that is joined to, as far as the
/// model looks.
///
/// Rows of its graph are those of the whole graph, or what was drawn of them, in the same order; nodes are numbered in
/// the order in which they were found, type by type. So the same neighbourhood is the same part, bit for bit.
#[derive(Clone, Debug)]
pub struct Part {
    /// Types, relations, features, ids, events and names of columns as the whole has them, of these nodes.
    pub dataset: Dataset,
    /// What is scored, by global id in the part.
    pub targets: Vec<u32>,
    /// By global id in the part: the node in the data that were refreshed last, by global id there, if it was in them.
    /// What was computed then, such as embeddings, has a row for it.
    pub refreshed: Vec<Option<u32>>,
}
