//! The entries of rows on the CPU.

use burn_flex::FlexTensor;

use crate::graph::csr::View;
use crate::graph::drop_edge::DropEdge;
use crate::runtime::flex::{Offsets, ids};
use crate::runtime::rows::{KeepKey, keep_into};

/// The kept entries of the rows of a view.
pub(crate) struct RowEntries<'a> {
    row_ptr: Offsets<'a>,
    /// How far behind the start of a row its end stands.
    ends: usize,
    col_idx: &'a [i32],
    rows: Option<&'a [i32]>,
    position: Option<&'a [i32]>,
    drop: Option<DropEdge>,
}

impl<'a> RowEntries<'a> {
    pub(crate) fn new(view: &'a View<FlexTensor>, drop: Option<DropEdge>) -> Self {
        Self {
            row_ptr: Offsets::of(&view.topology.row_ptr),
            ends: view.topology.ends(),
            col_idx: ids(&view.topology.col_idx),
            rows: view.rows.as_ref().map(|set| ids(&set.rows)),
            position: view.cols.as_ref().map(|set| ids(&set.position)),
            drop,
        }
    }

    /// The node that result row `r` belongs to.
    pub(crate) fn node(&self, r: usize) -> usize {
        self.rows.map_or(r, |rows| rows[r] as usize)
    }

    /// The entries of `node` in storage order, whether kept or not.
    pub(crate) fn entries(&self, node: usize) -> (std::ops::Range<usize>, &'a [i32]) {
        let range = self.row_ptr.get(node)..self.row_ptr.get(node + self.ends);
        (range.clone(), &self.col_idx[range])
    }

    /// The kept sources of `node` as nodes, in storage order.
    pub(crate) fn sources(&self, node: usize, sources: &mut Vec<u32>) {
        sources.clear();
        let (_, cols) = self.entries(node);
        match self.drop {
            Some(drop) => keep_into(sources, node as u32, cols, KeepKey::from(drop)),
            None => sources.extend(cols.iter().map(|&c| c as u32)),
        }
        if let Some(position) = self.position {
            sources.retain(|&j| position[j as usize] >= 0);
        }
    }

    /// The same with the place of each among the entries of all rows.
    pub(crate) fn sources_and_entries(&self, node: usize, sources: &mut Vec<u32>, entries: &mut Vec<usize>) {
        sources.clear();
        entries.clear();
        let (range, cols) = self.entries(node);
        for (entry, &col) in range.zip(cols) {
            let selected = self.position.is_none_or(|position| position[col as usize] >= 0);
            if selected && self.keeps(node, col as u32) {
                sources.push(col as u32);
                entries.push(entry);
            }
        }
    }

    /// Nodes to rows of the matrix at hand, in place: each is selected.
    pub(crate) fn locate(&self, sources: &mut [u32]) {
        if let Some(position) = self.position {
            sources.iter_mut().for_each(|j| *j = position[*j as usize] as u32);
        }
    }

    /// Whether every entry counts and its source is its row of the matrix at hand.
    pub(crate) fn plain(&self) -> bool {
        self.drop.is_none() && self.position.is_none()
    }

    /// The entries of `node` and what is stored behind them; how many are its own.
    pub(crate) fn entries_ahead(&self, node: usize) -> (&'a [u32], usize) {
        let (range, _) = self.entries(node);
        (bytemuck::cast_slice(&self.col_idx[range.start..]), range.len())
    }

    pub(crate) fn keeps(&self, row: usize, col: u32) -> bool {
        self.drop.is_none_or(|drop| drop.keeps(row as u32, col))
    }
}
