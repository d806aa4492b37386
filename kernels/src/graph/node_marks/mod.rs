//! The sets of nodes that a computation can reach, found on the device.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use crate::DropEdge;
use crate::graph::csr::{Csr, View};
use crate::graph::node_set::{NodeSet, NodeSetParts};
use crate::graph::upload::RowIds;
use crate::runtime::host::index_tensor;

impl<B: NodeSetBackend> NodeSet<B> {
    /// Uploads a set.
    ///
    /// # Panics
    /// Unless `nodes` are ascending, distinct and below `num_nodes`, which is below 2^31.
    pub fn new(nodes: &[u32], num_nodes: usize, device: &B::Device) -> Self {
        assert!(num_nodes <= i32::MAX as usize, "NodeSet: expected fewer than 2^31 nodes, got {num_nodes}");
        if let Some(w) = nodes.windows(2).find(|w| w[0] >= w[1]) {
            panic!("NodeSet: expected ascending distinct nodes, got {} before {}", w[0], w[1]);
        }
        if let Some(last) = nodes.last() {
            assert!((*last as usize) < num_nodes, "NodeSet: expected nodes below {num_nodes}, got {last}");
        }
        let rows = index_tensor::<B>(nodes.iter().map(|&n| n as i32).collect(), device);
        let position = B::node_positions(&rows, nodes.len(), num_nodes);
        Self { parts: Arc::new(NodeSetParts { rows, position, len: nodes.len(), num_nodes }) }
    }

    /// The nodes at some places of this set.
    ///
    /// # Panics
    /// If there are none of these places.
    pub(crate) fn slice(&self, places: Range<usize>) -> Self {
        let (len, num_nodes) = (places.len(), self.num_nodes());
        assert!(places.end <= self.len(), "NodeSet: expected places below {}, got {places:?}", self.len());
        let rows = Tensor::<B, 1, Int>::from_primitive(self.parts.rows.clone());
        let rows = rows.slice([places]).into_primitive();
        let position = B::node_positions(&rows, len, num_nodes);
        Self { parts: Arc::new(NodeSetParts { rows, position, len, num_nodes }) }
    }

    /// A set of uploaded numbers. That they ascend and are distinct is the caller's promise.
    ///
    /// # Panics
    /// Unless they are below `num_nodes`.
    pub fn of_ids(ids: RowIds<B>, num_nodes: usize) -> Self {
        ids.check("NodeSet", "ids", num_nodes);
        let len = ids.len();
        let position = B::node_positions(&ids.ids, len, num_nodes);
        Self { parts: Arc::new(NodeSetParts { rows: ids.ids, position, len, num_nodes }) }
    }
}

/// Collects the nodes of one type that a computation needs.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, NodeMarks, NodeSet};
/// let device = Default::default();
/// // 0 <- {1}, 1 <- {1}, 2 <- {1, 3}
/// let csr = Csr::<Flex>::from_host(&[0, 1, 2, 4], &[1, 1, 1, 3], 4, &device).unwrap();
/// let wanted = NodeSet::new(&[0, 2], 3, &device);
/// let mut marks = NodeMarks::new(4, &device);
/// marks.add_sources(&csr.restrict(Some(&wanted), None), None);
/// assert_eq!(NodeMarks::into_sets(vec![marks])[0].to_host(), [1, 3]);
/// ```
pub struct NodeMarks<B: Backend> {
    marks: IntTensor<B>,
    num_nodes: usize,
}

impl<B: NodeSetBackend> NodeMarks<B> {
    /// No node of `num_nodes`.
    pub fn new(num_nodes: usize, device: &B::Device) -> Self {
        let zeros = Tensor::<B, 1, Int>::zeros([num_nodes.max(1)], (device, DType::I32));
        Self { marks: zeros.into_primitive(), num_nodes }
    }

    /// Adds a set of the same type.
    ///
    /// # Panics
    /// If the set is of another number of nodes.
    pub fn add(&mut self, set: &NodeSet<B>) {
        assert!(
            set.num_nodes() == self.num_nodes,
            "NodeMarks: expected a set of {} nodes, got {set:?}",
            self.num_nodes
        );
        if !set.is_empty() {
            self.marks = B::mark_nodes(self.marks.clone(), &set.parts.rows, set.len());
        }
    }

    /// Adds the sources of every kept entry of the rows of `csr`, the selected ones of a restricted adjacency.
    ///
    /// # Panics
    /// If the sources are of another number of nodes.
    pub fn add_sources(&mut self, csr: &Csr<B>, drop_edge: Option<DropEdge>) {
        let view = csr.view();
        assert!(
            view.topology.num_cols == self.num_nodes,
            "NodeMarks: expected sources of {} nodes, got {csr:?}",
            self.num_nodes
        );
        if view.num_rows() > 0 && view.topology.num_edges > 0 {
            self.marks = B::mark_sources(self.marks.clone(), &view, drop_edge);
        }
    }

    /// The sets of all marked nodes. Reads their sizes back once, which waits for everything queued before.
    pub fn into_sets(all: Vec<Self>) -> Vec<NodeSet<B>> {
        Self::begin_sets(all).end()
    }

    /// The same without waiting: what is queued between this and [`PendingSets::end`] is not waited for.
    pub fn begin_sets(all: Vec<Self>) -> PendingSets<B> {
        let (mut sets, mut counts) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
        for Self { marks, num_nodes } in all {
            let (rows, position, count) = B::compact_marks(marks, num_nodes);
            sets.push(NodeSetParts { rows, position, len: 0, num_nodes });
            counts.push(count);
        }
        PendingSets { sets, lens: B::begin_counts(counts) }
    }
}

/// Sets of nodes whose sizes are on their way from the device.
pub struct PendingSets<B: Backend> {
    /// Without their sizes.
    sets: Vec<NodeSetParts<IntTensor<B>>>,
    lens: PendingCounts,
}

impl<B: Backend> PendingSets<B> {
    /// The sets; waits until their sizes are there.
    pub fn end(self) -> Vec<NodeSet<B>> {
        let sets = self.sets.into_iter().zip((self.lens)());
        sets.map(|(parts, len)| NodeSet { parts: Arc::new(NodeSetParts { len: len as usize, ..parts }) }).collect()
    }
}

/// Numbers on their way from a device; waits for them.
#[doc(hidden)]
pub type PendingCounts = Box<dyn FnOnce() -> Vec<i32>>;

/// Backends with node sets.
pub trait NodeSetBackend: Backend {
    /// `[num_nodes]`: the place of each node among the first `len` of `rows`, -1 elsewhere.
    #[doc(hidden)]
    fn node_positions(rows: &IntTensor<Self>, len: usize, num_nodes: usize) -> IntTensor<Self>;

    /// Sets the marks of the first `len` of `rows` to one.
    #[doc(hidden)]
    fn mark_nodes(marks: IntTensor<Self>, rows: &IntTensor<Self>, len: usize) -> IntTensor<Self>;

    /// Sets the marks of the sources of every kept entry to one.
    #[doc(hidden)]
    fn mark_sources(
        marks: IntTensor<Self>,
        view: &View<IntTensor<Self>>,
        drop_edge: Option<DropEdge>,
    ) -> IntTensor<Self>;

    /// Marked nodes in ascending order, their positions, and their number `[1]`.
    #[doc(hidden)]
    fn compact_marks(marks: IntTensor<Self>, num_nodes: usize) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>);

    /// Begins to read numbers of 32 bits, `[1]` each.
    #[doc(hidden)]
    fn begin_counts(counts: Vec<IntTensor<Self>>) -> PendingCounts;
}

impl<B: NodeSetBackend, C: CheckpointStrategy> NodeSetBackend for Autodiff<B, C> {
    fn node_positions(rows: &IntTensor<Self>, len: usize, num_nodes: usize) -> IntTensor<Self> {
        B::node_positions(rows, len, num_nodes)
    }

    fn mark_nodes(marks: IntTensor<Self>, rows: &IntTensor<Self>, len: usize) -> IntTensor<Self> {
        B::mark_nodes(marks, rows, len)
    }

    fn mark_sources(
        marks: IntTensor<Self>,
        view: &View<IntTensor<Self>>,
        drop_edge: Option<DropEdge>,
    ) -> IntTensor<Self> {
        B::mark_sources(marks, view, drop_edge)
    }

    fn compact_marks(marks: IntTensor<Self>, num_nodes: usize) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>) {
        B::compact_marks(marks, num_nodes)
    }

    fn begin_counts(counts: Vec<IntTensor<Self>>) -> PendingCounts {
        B::begin_counts(counts)
    }
}
