//! One direction of an adjacency as device arrays.

use std::sync::Arc;

use crate::graph::node_set::NodeSetParts;

/// One direction of an adjacency as device arrays. `I` is the backend's integer primitive.
#[derive(Clone, Debug)]
pub struct Topology<I> {
    /// Where rows start and end among the entries, i32 or (from 2^31 entries on) i64. `[num_rows + 1]`: a row ends
    /// where the next one starts; of spans `[2 num_rows]`: the starts of all rows, then their ends.
    pub row_ptr: I,
    /// `[num_entries]`, i32.
    pub col_idx: I,
    /// Whether rows are spans of the entries, which may overlap.
    pub spans: bool,
    pub num_rows: usize,
    pub num_cols: usize,
    /// Entries of all rows together, one for each row that shares it.
    pub num_edges: usize,
    pub num_entries: usize,
    /// Rows of more than [`LONG_ROW`] entries, ascending: several planes share each of them.
    pub long_rows: I,
    pub num_long: usize,
}

impl<I> Topology<I> {
    /// How far behind the start of a row its end stands in `row_ptr`.
    pub(crate) fn ends(&self) -> usize {
        if self.spans { self.num_rows } else { 1 }
    }
}

/// How a direction finds the edges of its entries, where these do not have the order of the edges. An edge is an entry
/// of the other direction or, in a list of edges, its place there.
#[derive(Clone, Debug)]
pub enum EdgeIds<I> {
    /// The edge of every entry.
    OfEntries(I),
    /// The edge of every row: between spans, an entry is what all rows of the other direction that see it share.
    OfRows(I),
}

impl<I> EdgeIds<I> {
    /// The edges, and whether they are those of rows.
    pub(crate) fn split(self) -> (I, bool) {
        match self {
            EdgeIds::OfEntries(ids) => (ids, false),
            EdgeIds::OfRows(ids) => (ids, true),
        }
    }
}

/// Entries of a row beyond which one plane would keep a GPU waiting.
pub const LONG_ROW: usize = 512;

/// Whether positions of so many entries take 64 bits.
pub(super) fn is_wide(entries: usize) -> bool {
    #[cfg(feature = "testing")]
    if crate::runtime::switches::wants_wide_positions() {
        return true;
    }
    entries > i32::MAX as usize
}

/// One direction of an adjacency as an operator walks it: whole, or between selected rows and columns. Matrices of a
/// selected side hold the selected nodes alone, in the order of the selection.
#[derive(Clone, Debug)]
pub struct View<I> {
    pub topology: Topology<I>,
    pub rows: Option<Arc<NodeSetParts<I>>>,
    pub cols: Option<Arc<NodeSetParts<I>>>,
}

impl<I> View<I> {
    /// Rows that are walked.
    pub fn num_rows(&self) -> usize {
        self.rows.as_ref().map_or(self.topology.num_rows, |set| set.len)
    }

    /// Columns that are read.
    pub fn num_cols(&self) -> usize {
        self.cols.as_ref().map_or(self.topology.num_cols, |set| set.len)
    }
}
