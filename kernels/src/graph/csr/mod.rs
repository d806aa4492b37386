//! Sparse adjacency on the device: rows are destinations, entries are sources, with the reverse beside it.

mod arrays;
mod edges;
mod entries;
mod error;
mod parts;
pub(crate) mod self_loops;
mod spans;
mod topology;

use std::fmt;
use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{Int, Tensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use rayon::prelude::*;

use crate::graph::node_set::NodeSet;
use crate::runtime::upload::int_tensor;

pub use arrays::CsrArrays;
use arrays::{CsrShape, check, group_by, upload};
pub use error::CsrError;
use parts::CsrParts;
use topology::is_wide;
pub use topology::{EdgeIds, LONG_ROW, Topology, View};

/// A sparse adjacency on a device, checked once at construction.
///
/// `row_ptr[i]..row_ptr[i + 1]` are the positions of row `i` (the destination) in `col_idx` (the sources), or a start
/// and an end per row are ([`Csr::from_spans`]). The reverse direction, which backward passes walk, is built on the
/// host or given, or built when it is first needed. Clones, [`Csr::reverse`] and [`Csr::restrict`] share the arrays.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::Csr;
/// let csr = Csr::<Flex>::from_host(&[0, 2, 2], &[0, 2], 3, &Default::default()).unwrap();
/// assert_eq!((csr.num_rows(), csr.num_cols(), csr.num_edges()), (2, 3, 2));
/// assert_eq!(csr.reverse().num_rows(), 3);
/// ```
pub struct Csr<B: Backend> {
    parts: Arc<CsrParts<IntTensor<B>>>,
    reversed: bool,
    rows: Option<NodeSet<B>>,
    cols: Option<NodeSet<B>>,
}

impl<B: Backend> Clone for Csr<B> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), reversed: self.reversed, rows: self.rows.clone(), cols: self.cols.clone() }
    }
}

impl<B: Backend> fmt::Debug for Csr<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Csr({} x {}, {} edges", self.num_rows(), self.num_cols(), self.num_edges())?;
        match self.topology().spans {
            true => write!(f, " in spans of {} entries)", self.num_entries()),
            false => write!(f, ")"),
        }
    }
}

impl<B: Backend> Csr<B> {
    /// Uploads a CSR and its reverse, which is built here (parallel counting sort; entries keep their row order).
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn from_host(row_ptr: &[u64], col_idx: &[u32], num_cols: usize, device: &B::Device) -> Result<Self, CsrError> {
        Ok(CsrArrays::new(row_ptr, col_idx, num_cols)?.upload(device))
    }

    /// Uploads an adjacency whose rows are spans of one list of entries: row `i` is
    /// `col_idx[row_start[i]..row_end[i]]`. Spans may overlap, so that rows share what they have in common. Every row
    /// that names an entry has an edge of its own by it: [`Csr::num_edges`] is the sum of the lengths of the spans.
    /// What edges carry, products and messages ([`spmm`](crate::spmm), [`gspmm`](crate::gspmm)) read by entry
    /// ([`Csr::num_entries`]): rows that share an entry share that, too. Other operators that take or give something
    /// per edge refuse such an adjacency.
    ///
    /// Rows that are events see what came before them: the entries are those of one entity after another, each list in
    /// the order of time, and the span of an event ends where its own time begins. What a row comes to depends on
    /// nothing but its own span: not on other rows, nor on what its list goes on with.
    ///
    /// The reverse is spans, too, of the rows sorted by their ends, if every source stands at most once among the
    /// entries, and starts ascend where ends do (all that came before, the latest few, windows of time). Else it has
    /// an entry per edge, and is made when it is first needed.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{Csr, SpmmConfig, spmm};
    /// let device = Default::default();
    /// // Payments 0, 1 and 2 of one card: each sees those before it.
    /// let csr = Csr::<Flex>::from_spans(&[0, 0, 0], &[0, 1, 2], &[0, 1, 2], 3, &device).unwrap();
    /// assert_eq!((csr.num_rows(), csr.num_edges()), (3, 3));
    /// let amounts = Tensor::<Flex, 2>::from_data([[1.0], [10.0], [100.0]], &device);
    /// let earlier = spmm(&csr, amounts, None, SpmmConfig::default());
    /// assert_eq!(earlier.into_data().to_vec::<f32>().unwrap(), [0.0, 1.0, 11.0]);
    /// ```
    pub fn from_spans(
        row_start: &[u64],
        row_end: &[u64],
        col_idx: &[u32],
        num_cols: usize,
        device: &B::Device,
    ) -> Result<Self, CsrError> {
        Ok(CsrArrays::spans(row_start, row_end, col_idx, num_cols)?.upload(device))
    }

    /// Uploads a CSR and the reverse that the caller has already; rows of the reverse list destinations in ascending
    /// order. That one is the reverse of the other is the caller's promise: only the sizes are compared.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn from_host_with_reverse(
        (row_ptr, col_idx): (&[u64], &[u32]),
        (reverse_ptr, reverse_idx): (&[u64], &[u32]),
        device: &B::Device,
    ) -> Result<Self, CsrError> {
        check(row_ptr, col_idx, reverse_ptr.len().saturating_sub(1))?;
        check(reverse_ptr, reverse_idx, row_ptr.len() - 1)?;
        if col_idx.len() != reverse_idx.len() {
            return Err(CsrError::ReverseMismatch {
                what: "entries",
                forward: col_idx.len(),
                reverse: reverse_idx.len(),
            });
        }
        let forward = upload::<B>(row_ptr, col_idx, reverse_ptr.len() - 1, device);
        let reverse = upload::<B>(reverse_ptr, reverse_idx, row_ptr.len() - 1, device);
        Ok(Self::from_parts(forward, reverse))
    }

    /// Uploads a CSR that is its own reverse (an undirected relation): the arrays are stored once, if the entries of
    /// every row ascend. The symmetry is the caller's promise: only the sizes are compared.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn from_host_symmetric(row_ptr: &[u64], col_idx: &[u32], device: &B::Device) -> Result<Self, CsrError> {
        check(row_ptr, col_idx, row_ptr.len().saturating_sub(1))?;
        let ascends = |w: &[u64]| col_idx[w[0] as usize..w[1] as usize].is_sorted();
        if !row_ptr.par_windows(2).all(ascends) {
            // Entries of a reverse ascend; where an edge stands in it is found by that.
            return Self::from_host(row_ptr, col_idx, row_ptr.len() - 1, device);
        }
        let forward = upload::<B>(row_ptr, col_idx, row_ptr.len() - 1, device);
        Ok(Self::from_parts(forward.clone(), forward))
    }

    /// Uploads a list of edges `destinations[k] <- sources[k]` as an adjacency of `num_rows` destinations and
    /// `num_cols` sources. Matrices with a row per edge keep the order of the list, also for [`Csr::reverse`]:
    /// operators find the edge of an entry in a map, and nothing is sorted but ids.
    ///
    /// # Errors
    /// [`CsrError`] names the first edge that is wrong.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{Csr, Message, Reduce, Strategy, gspmm};
    /// let device = Default::default();
    /// // 1 <- 0, 0 <- 1, 1 <- 2
    /// let csr = Csr::<Flex>::from_edges(&[1, 0, 1], &[0, 1, 2], [2, 3], &device).unwrap();
    /// let e = Tensor::<Flex, 2>::from_data([[1.0], [10.0], [100.0]], &device);
    /// let y = gspmm(&csr, Message::CopyE(e), Reduce::Sum, Strategy::Auto);
    /// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [10.0, 101.0]);
    /// ```
    pub fn from_edges(
        destinations: &[u32],
        sources: &[u32],
        [num_rows, num_cols]: [usize; 2],
        device: &B::Device,
    ) -> Result<Self, CsrError> {
        if num_rows.max(num_cols) > i32::MAX as usize {
            return Err(CsrError::TooManyNodes { found: num_rows.max(num_cols) });
        }
        if destinations.len() != sources.len() {
            return Err(CsrError::EdgeEnds { destinations: destinations.len(), sources: sources.len() });
        }
        if let Some(edge) = destinations.par_iter().position_first(|&row| row as usize >= num_rows) {
            return Err(CsrError::RowOutOfRange { edge, found: destinations[edge], num_rows });
        }
        if let Some(edge) = sources.par_iter().position_first(|&col| col as usize >= num_cols) {
            return Err(CsrError::SourceOutOfRange { edge, found: sources[edge], num_cols });
        }
        let (row_ptr, edges) = group_by(destinations, num_rows);
        let col_idx: Vec<u32> = edges.par_iter().map(|&edge| sources[edge as usize]).collect();
        let csr = Self::from_host(&row_ptr, &col_idx, num_cols, device)?;
        let edges: Vec<i64> = edges.into_iter().map(|edge| edge as i64).collect();
        let edge_ids = Some(int_tensor::<B>(&edges, is_wide(col_idx.len()), device));
        let CsrParts { forward, reverse, .. } = Arc::into_inner(csr.parts).expect("nobody else holds a new adjacency");
        Ok(Self::with_ids(forward, reverse.into_inner(), edge_ids))
    }

    /// Contiguous segments `row_ptr[i]..row_ptr[i + 1]` of a list: row `i` has those entries, and each is its own
    /// column. There is no reverse; nothing may ask for it.
    pub(crate) fn of_segments(row_ptr: &[u64], device: &B::Device) -> Result<Self, CsrError> {
        let len = row_ptr.last().map_or(0, |&last| last as usize);
        if len > i32::MAX as usize {
            return Err(CsrError::TooManyNodes { found: len });
        }
        let col_idx: Vec<u32> = (0..len as u32).collect();
        check(row_ptr, &col_idx, len)?;
        let forward = upload::<B>(row_ptr, &col_idx, len, device);
        Ok(Self::from_parts(forward.clone(), forward))
    }

    fn from_parts(forward: Topology<IntTensor<B>>, reverse: Topology<IntTensor<B>>) -> Self {
        Self::with_ids(forward, Some(reverse), None)
    }

    /// Of arrays that are known to fit each other.
    pub(crate) fn of_topologies(forward: Topology<IntTensor<B>>, reverse: Option<Topology<IntTensor<B>>>) -> Self {
        Self::with_ids(forward, reverse, None)
    }

    fn with_ids(
        forward: Topology<IntTensor<B>>,
        reverse: Option<Topology<IntTensor<B>>>,
        edge_ids: Option<IntTensor<B>>,
    ) -> Self {
        let reverse = reverse.map_or_else(OnceLock::new, OnceLock::from);
        let (reverse_edge, forward_edge, loops) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let entries = Default::default();
        let parts = CsrParts { forward, reverse, reverse_edge, forward_edge, edge_ids, loops, entries };
        Self { parts: Arc::new(parts), reversed: false, rows: None, cols: None }
    }

    /// The same adjacency with rows and columns exchanged: rows are sources, entries are destinations. No copy.
    pub fn reverse(&self) -> Self {
        Self { parts: self.parts.clone(), reversed: !self.reversed, rows: self.cols.clone(), cols: self.rows.clone() }
    }

    /// The part of the adjacency between some destinations and some sources; `None` takes all of a side. Matrices of a
    /// selected side have one row per selected node. An entry whose source is not selected is passed over, so a result
    /// is that of the whole graph only if every source that counts is selected ([`NodeMarks::add_sources`]). No copy.
    ///
    /// # Panics
    /// If a set is of another number of nodes than its side.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{Csr, NodeSet, SpmmConfig, spmm};
    /// let device = Default::default();
    /// let csr = Csr::<Flex>::from_host(&[0, 1, 2, 4], &[0, 1, 1, 2], 3, &device).unwrap();
    /// let last = NodeSet::new(&[2], 3, &device);
    /// let x = Tensor::<Flex, 2>::from_data([[1.0], [10.0], [100.0]], &device);
    /// let y = spmm(&csr.restrict(Some(&last), None), x, None, SpmmConfig::default());
    /// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [110.0]);
    /// ```
    pub fn restrict(&self, rows: Option<&NodeSet<B>>, cols: Option<&NodeSet<B>>) -> Self {
        let side = |name: &str, set: Option<&NodeSet<B>>, nodes: usize| {
            if let Some(set) = set {
                assert!(set.num_nodes() == nodes, "Csr: {name}: expected a set of {nodes} nodes, got {set:?}");
            }
            set.cloned()
        };
        let topology = self.topology();
        Self {
            parts: self.parts.clone(),
            reversed: self.reversed,
            rows: side("rows", rows, topology.num_rows),
            cols: side("cols", cols, topology.num_cols),
        }
    }

    /// Destinations, the selected ones of a restricted adjacency.
    pub fn num_rows(&self) -> usize {
        self.rows.as_ref().map_or(self.topology().num_rows, NodeSet::len)
    }

    /// Sources, the selected ones of a restricted adjacency.
    pub fn num_cols(&self) -> usize {
        self.cols.as_ref().map_or(self.topology().num_cols, NodeSet::len)
    }

    /// Entries of all rows together, whether selected or not.
    pub fn num_edges(&self) -> usize {
        self.topology().num_edges
    }

    /// Entries that are stored: not those of [`Csr::num_edges`] where rows are spans.
    pub fn num_entries(&self) -> usize {
        self.topology().num_entries
    }

    /// Whether rows are spans that may share entries, in this direction or in the other.
    pub(crate) fn has_spans(&self) -> bool {
        self.parts.forward.spans
    }

    /// Fails for rows that share their entries: `argument` is of edges, one by one.
    #[track_caller]
    pub(crate) fn check_lists(&self, op: &str, argument: &str) {
        assert!(!self.has_spans(), "{op}: {argument}: takes an adjacency with a list per row, got {self:?}");
    }

    /// Fails for the reverse of spans where that has an entry per edge: seen from the spans, several are one.
    #[track_caller]
    pub(crate) fn check_entries(&self, op: &str, argument: &str) {
        let one_way = self.has_spans() && !self.topology().spans;
        assert!(!one_way, "{op}: {argument}: takes a reverse that is spans, too, got {self:?}");
    }

    /// Entries of every row of the whole graph, f32.
    pub fn degrees(&self) -> Tensor<B, 1> {
        let topology = self.topology();
        let rows = topology.num_rows;
        let row_ptr = Tensor::<B, 1, Int>::from_primitive(topology.row_ptr.clone());
        if rows == 0 {
            // Some devices do not take a launch over nothing.
            return Tensor::empty([0], &row_ptr.device());
        }
        (row_ptr.clone().narrow(0, topology.ends(), rows) - row_ptr.narrow(0, 0, rows)).float()
    }

    /// Whether this is `whole` in the same direction, or a part of it.
    pub(crate) fn is_of(&self, whole: &Self) -> bool {
        Arc::ptr_eq(&self.parts, &whole.parts) && self.reversed == whole.reversed
    }

    /// Whether some nodes are left out.
    pub fn is_restricted(&self) -> bool {
        self.rows.is_some() || self.cols.is_some()
    }

    pub(crate) fn view(&self) -> View<IntTensor<B>> {
        let set = |s: &Option<NodeSet<B>>| s.as_ref().map(|s| s.parts.clone());
        View { topology: self.topology().clone(), rows: set(&self.rows), cols: set(&self.cols) }
    }

    /// The view with other rows: those of `nodes`.
    pub(crate) fn view_of(&self, nodes: &NodeSet<B>) -> View<IntTensor<B>> {
        View { rows: Some(nodes.parts.clone()), ..self.view() }
    }

    /// The selected destinations and sources.
    pub(crate) fn sides(&self) -> [Option<&NodeSet<B>>; 2] {
        [self.rows.as_ref(), self.cols.as_ref()]
    }

    pub(crate) fn reverse_view(&self) -> View<IntTensor<B>> {
        self.reverse().view()
    }

    pub(crate) fn topology(&self) -> &Topology<IntTensor<B>> {
        if self.reversed { self.parts.reversed::<B>() } else { &self.parts.forward }
    }
}

impl<B: Backend, C: CheckpointStrategy> Csr<Autodiff<B, C>> {
    /// The same arrays for the inner backend: integer tensors are not differentiated, so nothing is copied.
    pub fn inner(self) -> Csr<B> {
        Csr {
            parts: self.parts,
            reversed: self.reversed,
            rows: self.rows.map(NodeSet::inner),
            cols: self.cols.map(NodeSet::inner),
        }
    }
}

impl CsrArrays {
    /// The adjacency on a device.
    pub fn upload<B: Backend>(self, device: &B::Device) -> Csr<B> {
        Csr::of_topologies(self.forward.upload::<B>(device), self.reverse.map(|reverse| reverse.upload::<B>(device)))
    }
}

impl<B: Backend> Csr<B> {
    /// The adjacency of lists that [`CsrArrays::take_lists`] gave.
    pub(crate) fn of_lists(
        shape: CsrShape,
        lists: &mut impl Iterator<Item = IntTensor<B>>,
        device: &B::Device,
    ) -> Self {
        let forward = shape.forward.topology::<B>(lists, device);
        Csr::of_topologies(forward, shape.reverse.map(|reverse| reverse.topology::<B>(lists, device)))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;
    use burn_flex::Flex;

    use super::*;
    use crate::runtime::host::to_host;
    use crate::runtime::switches::with_wide_positions;

    #[test]
    fn spans_that_are_none_are_refused_by_row() {
        let refused = |row_start: &[u64], row_end: &[u64], col_idx: &[u32]| {
            Csr::<Flex>::from_spans(row_start, row_end, col_idx, 3, &Default::default()).unwrap_err().to_string()
        };
        assert_eq!(refused(&[0, 1], &[1], &[0, 1]), "row_end: expected as many elements as row_start has, 2, found 1");
        assert_eq!(refused(&[0, 2], &[1, 1], &[0, 1]), "row_end[1]: expected at least row_start[1], 2, found 1");
        assert_eq!(
            refused(&[0, 1], &[1, 3], &[0, 1]),
            "row_end[1]: expected at most the number of entries, 2, found 3"
        );
        assert_eq!(refused(&[0], &[1], &[0, 3]), "col_idx[1]: expected an id below 3, found 3");
    }

    #[test]
    fn there_may_be_no_rows_and_no_entries() {
        let csr = Csr::<Flex>::from_spans(&[], &[], &[], 2, &Default::default()).unwrap();
        assert_eq!((csr.num_rows(), csr.num_cols(), csr.num_edges()), (0, 2, 0));
        assert_eq!(csr.reverse().num_rows(), 2);
    }

    /// Rows in the order of time, given with a reverse that is sorted, as import makes them; two edges join 1 and 0.
    #[test]
    fn entries_of_both_directions_are_the_same_edges_whatever_order_rows_have() {
        let forward: (&[u64], &[u32]) = (&[0, 4, 7], &[2, 1, 0, 1, 2, 0, 1]);
        let reverse: (&[u64], &[u32]) = (&[0, 2, 5, 7], &[0, 1, 0, 0, 1, 0, 1]);
        let edges = |csr: &Csr<Flex>| to_host::<Flex>(&csr.reverse_edge(), csr.num_edges());
        let of_given = Csr::<Flex>::from_host_with_reverse(forward, reverse, &Default::default()).unwrap();
        assert_eq!(edges(&of_given), [2, 5, 1, 3, 6, 0, 4]);
        // By entry of `forward` its place among those of `reverse`: the other way round.
        assert_eq!(edges(&of_given.reverse()), [5, 2, 0, 3, 6, 1, 4]);
        let of_made = Csr::<Flex>::from_host(forward.0, forward.1, 3, &Default::default()).unwrap();
        assert_eq!(edges(&of_made), edges(&of_given));
        assert_eq!(edges(&of_made.reverse()), edges(&of_given.reverse()));
        // Given the other way round the unsorted rows are those of the reverse.
        let turned = Csr::<Flex>::from_host_with_reverse(reverse, forward, &Default::default()).unwrap();
        assert_eq!(edges(&turned), edges(&of_given.reverse()));
        assert_eq!(edges(&turned.reverse()), edges(&of_given));
    }

    #[test]
    fn all_positions_are_wide_where_that_is_asked_for() {
        let device = Default::default();
        let types = || {
            let csr = Csr::<Flex>::from_edges(&[1, 0, 1], &[0, 1, 2], [2, 3], &device).unwrap();
            [
                csr.topology().row_ptr.dtype(),
                csr.reverse().topology().row_ptr.dtype(),
                csr.edge_ids().unwrap().dtype(),
                csr.reverse_edge().dtype(),
                csr.topology().col_idx.dtype(),
            ]
        };
        assert_eq!(with_wide_positions(types), [DType::I64, DType::I64, DType::I64, DType::I64, DType::I32]);
        let failed = std::panic::catch_unwind(|| with_wide_positions(|| panic!("a failed test")));
        assert!(failed.is_err());
        assert_eq!(types(), [DType::I32; 5], "the switch is back");
    }
}
