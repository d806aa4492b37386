//! What an adjacency holds of both directions and of its self-loops.

use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;

use super::arrays::{Direction, reverse_host, upload};
use super::spans::RowBounds;
use super::topology::Topology;
use crate::graph::row_index::RowIndexParts;
use crate::runtime::host::{to_host, words_to_host};

/// Both directions of an adjacency, shared by clones and by the autodiff wrapper of a backend.
#[derive(Debug)]
pub struct CsrParts<I> {
    pub forward: Topology<I>,
    /// Given, or made when first needed.
    pub reverse: OnceLock<Topology<I>>,
    /// For every entry of `reverse` its position in `forward`, and the other way round; made when first needed.
    pub reverse_edge: OnceLock<I>,
    pub forward_edge: OnceLock<I>,
    /// For every entry of `forward` its edge, where edges have an order of their own; `reverse_edge` leads there, too.
    pub edge_ids: Option<I>,
    /// What `Csr::with_self_loops` and `Csr::self_loops` made.
    pub loops: OnceLock<Arc<LoopParts<I>>>,
    /// Of spans, by direction: what leads through the entries; made when first needed.
    pub entries: [OnceLock<EntryParts<I>>; 2],
}

impl<I> CsrParts<I> {
    /// The reverse; where there is none yet, the structure is read back and turned round on the host.
    pub fn reversed<B: Backend<IntTensorPrimitive = I>>(&self) -> &Topology<I> {
        self.reverse.get_or_init(|| {
            let from = &self.forward;
            let (host, device) = (Host::of::<B>(from), B::int_device(&from.col_idx));
            let rows = host.bounds();
            let reverse_of_spans = || Direction::reverse_of_spans(rows, &host.col_idx, from.num_cols);
            if let Some(reverse) = rows.spans.then(reverse_of_spans).flatten() {
                return reverse.upload::<B>(&device);
            }
            let (row_ptr, col_idx) = reverse_host(rows, &host.col_idx, from.num_cols);
            upload::<B>(&row_ptr, &col_idx, from.num_rows, &device)
        })
    }
}

/// What is known of the self-loops of an adjacency, and the adjacency with one per node; each made when first needed.
#[derive(Debug)]
pub struct LoopParts<I> {
    /// `[num_rows]`, i32: entries of a node for itself.
    pub counts: I,
    pub looped: OnceLock<Arc<CsrParts<I>>>,
    /// By direction, then by `LoopValue`.
    pub edge_maps: [[OnceLock<Arc<EdgeMap<I>>>; 2]; 2],
}

/// What leads through entries that rows share, each with its reverse.
#[derive(Debug)]
pub struct EntryParts<I> {
    /// The same rows; every entry is a column of its own.
    pub columns: Arc<CsrParts<I>>,
    /// Every entry is a row of one column, its source.
    pub sources: Arc<CsrParts<I>>,
}

/// Where the entries of the adjacency with loops have their values from.
#[derive(Debug)]
pub struct EdgeMap<I> {
    /// Rows of the values with one row per node behind them.
    pub index: Arc<RowIndexParts<I>>,
    /// Rows are nodes, columns entries of the adjacency that there was: what a mean is taken over. `None` for nothing.
    pub averaged: Option<Arc<CsrParts<I>>>,
}

/// One direction on the host.
pub(crate) struct Host {
    row_ptr: Vec<u64>,
    num_rows: usize,
    ends: usize,
    spans: bool,
    pub col_idx: Vec<u32>,
}

impl Host {
    /// Reads a direction back.
    pub fn of<B: Backend>(topology: &Topology<IntTensor<B>>) -> Self {
        let (num_rows, ends) = (topology.num_rows, topology.ends());
        let row_ptr = to_host::<B>(&topology.row_ptr, ends + num_rows).into_iter().map(|p| p as u64).collect();
        let col_idx = words_to_host::<B>(&topology.col_idx, 0..topology.num_entries);
        Self { row_ptr, num_rows, ends, spans: topology.spans, col_idx }
    }

    pub fn bounds(&self) -> RowBounds<'_> {
        let Self { row_ptr, num_rows, ends, spans, .. } = self;
        RowBounds { start: &row_ptr[..*num_rows], end: &row_ptr[*ends..ends + num_rows], spans: *spans }
    }
}
