//! A mini-batch.

use std::ops::Range;

/// The sampled edges of one relation in one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// `[rows + 1]`: where the entries of each row begin. Rows are the first nodes of the relation's destination type.
    pub row_ptr: Vec<u32>,
    /// The source of each entry, as its place among the batch's nodes of the relation's source type.
    pub cols: Vec<u32>,
    /// The place of each entry among those of the relation: what values of edges are looked up by.
    pub edges: Vec<u64>,
}

impl Block {
    /// The entries of a row.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> Range<usize> {
        self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize
    }
}

/// Nodes whose embeddings are wanted, what is sampled around them, and the edges in between.
///
/// Every layer has the nodes of the one before it as its rows, and these first among its columns: the nodes of a batch
/// are listed once, and a layer is told by how many of them it reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MiniBatch {
    /// Number of the batch.
    pub number: u64,
    /// `[type]`: distinct nodes, numbered within their type; the seeds first, then those of each layer.
    pub nodes: Vec<Vec<u32>>,
    /// `[layer + 1][type]`: how many of `nodes` are there before the layer and, last, after all of them.
    pub counts: Vec<Vec<usize>>,
    /// `[layer][relation]`, the layer next to the seeds first: a model goes through them from the last to the first.
    pub blocks: Vec<Vec<Block>>,
}

impl MiniBatch {
    /// Number of sampled edges of all layers.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().flatten().map(|block| block.cols.len()).sum()
    }

    /// Number of distinct nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }
}
