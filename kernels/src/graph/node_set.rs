//! Sets of nodes on the device.

use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use crate::runtime::host::words_to_host;

/// A set in both directions; `I` is the backend's integer primitive.
#[derive(Clone, Debug)]
pub struct NodeSetParts<I> {
    /// The nodes, ascending; what lies behind the first `len` is unused.
    pub rows: I,
    /// `[num_nodes]`: where a node stands in `rows`, -1 when it is not in the set.
    pub position: I,
    pub len: usize,
    pub num_nodes: usize,
}

/// Some nodes of one type, in ascending order. Clones share the arrays.
///
/// [`Csr::restrict`](crate::Csr::restrict) walks an adjacency between such sets, [`select_rows`](crate::select_rows)
/// moves matrices from one to another, and [`NodeMarks`](crate::NodeMarks) finds the set that a computation can reach.
pub struct NodeSet<B: Backend> {
    pub(crate) parts: Arc<NodeSetParts<IntTensor<B>>>,
}

impl<B: Backend> Clone for NodeSet<B> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

impl<B: Backend> fmt::Debug for NodeSet<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeSet({} of {} nodes)", self.parts.len, self.parts.num_nodes)
    }
}

impl<B: Backend> NodeSet<B> {
    /// Number of nodes in the set.
    pub fn len(&self) -> usize {
        self.parts.len
    }

    /// Whether no node is in the set.
    pub fn is_empty(&self) -> bool {
        self.parts.len == 0
    }

    /// Number of nodes of the type.
    pub fn num_nodes(&self) -> usize {
        self.parts.num_nodes
    }

    /// The nodes, read back.
    pub fn to_host(&self) -> Vec<u32> {
        words_to_host::<B>(&self.parts.rows, 0..self.parts.len)
    }
}

impl<B: Backend, C: CheckpointStrategy> NodeSet<Autodiff<B, C>> {
    /// The same arrays for the inner backend.
    pub fn inner(self) -> NodeSet<B> {
        NodeSet { parts: self.parts }
    }
}
