//! One direction of an adjacency as device arrays.

use std::sync::Arc;

use crate::graph::node_set::NodeSetParts;

/// One direction of an adjacency as device arrays. `I` is the backend's integer primitive.
#[derive(Clone, Debug)]
pub struct Topology<I> {
    /// `[num_rows + 1]`, i32 or (from 2^31 entries on) i64.
    pub row_ptr: I,
    /// `[num_edges]`, i32.
    pub col_idx: I,
    pub num_rows: usize,
    pub num_cols: usize,
    pub num_edges: usize,
    /// Rows of more than [`LONG_ROW`] entries, ascending: several planes share each of them.
    pub long_rows: I,
    pub num_long: usize,
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
