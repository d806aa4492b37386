//! Where the edges of entries stand, in both directions.

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;

use super::Csr;
use super::arrays::group_by;
use super::parts::Host;
use super::topology::{EdgeIds, is_wide};
use crate::runtime::host::{to_host, words_to_host};
use crate::runtime::upload::int_tensor;

impl<B: Backend> Csr<B> {
    /// For every entry of this direction its edge; `None` where edges have the order of the entries.
    pub(crate) fn edge_ids(&self) -> Option<IntTensor<B>> {
        let ids = self.parts.edge_ids.as_ref()?;
        Some(if self.reversed { self.reverse().reverse_edge() } else { ids.clone() })
    }

    /// For every entry of the reverse its edge: its position in this direction where edges have no order of their own.
    /// Of several between the same nodes the first here is the first there. The first call reads the structure back and
    /// sorts on the host; only what edges carry needs it.
    pub(crate) fn reverse_edge(&self) -> IntTensor<B> {
        match (&self.parts.edge_ids, self.reversed) {
            (Some(ids), true) => ids.clone(),
            (None, true) => self.parts.forward_edge.get_or_init(|| self.made_reverse_edge()).clone(),
            (_, false) => self.parts.reverse_edge.get_or_init(|| self.made_reverse_edge()).clone(),
        }
    }

    /// The same, found again unless it is known already, and not held: for what is read in its order once.
    pub(crate) fn made_reverse_edge(&self) -> IntTensor<B> {
        let (forward, reverse) = (&self.parts.forward, self.parts.reversed::<B>());
        let (known, from, to) = match (&self.parts.edge_ids, self.reversed) {
            (Some(ids), true) => (Some(ids), reverse, forward),
            (None, true) => (self.parts.forward_edge.get(), reverse, forward),
            (_, false) => (self.parts.reverse_edge.get(), forward, reverse),
        };
        if let Some(known) = known {
            return known.clone();
        }
        let cols = words_to_host::<B>(&from.col_idx, 0..from.num_entries);
        let (_, mut entries) = group_by(&cols, from.num_cols);
        put_in_order(&mut entries, &Host::of::<B>(to));
        let ids = self.parts.edge_ids.as_ref().map(|ids| to_host::<B>(ids, from.num_entries));
        let edge = |entry: u64| ids.as_ref().map_or(entry as i64, |ids| ids[entry as usize]);
        let edges: Vec<i64> = entries.into_iter().map(edge).collect();
        int_tensor::<B>(&edges, is_wide(from.num_entries), &B::int_device(&from.col_idx))
    }

    /// How the reverse finds the entries of this direction, which tell of several in a row which one it was.
    ///
    /// # Panics
    /// Where this direction has an entry per edge and the reverse shares its own.
    pub(crate) fn reverse_ids(&self) -> EdgeIds<IntTensor<B>> {
        if !self.has_spans() {
            return EdgeIds::OfEntries(self.reverse_edge());
        }
        let reverse = self.reverse();
        let (of, reverse) = (self.topology(), reverse.topology());
        assert!(of.spans, "reverse_ids: expected entries that rows share, got {self:?}");
        let slot = if self.reversed { &self.parts.forward_edge } else { &self.parts.reverse_edge };
        let ids = slot.get_or_init(|| {
            let host = Host::of::<B>(of);
            let ids = if reverse.spans {
                // A source stands nowhere else.
                let mut entries = vec![0; reverse.num_rows];
                (host.col_idx.iter().enumerate()).for_each(|(entry, &col)| entries[col as usize] = entry as i64);
                entries
            } else {
                let entries: Vec<usize> = host.bounds().rows().flat_map(|(_, entries)| entries).collect();
                let cols: Vec<u32> = entries.iter().map(|&entry| host.col_idx[entry]).collect();
                group_by(&cols, of.num_cols).1.into_iter().map(|at| entries[at as usize] as i64).collect()
            };
            int_tensor::<B>(&ids, is_wide(reverse.num_entries), &B::int_device(&of.col_idx))
        });
        if reverse.spans { EdgeIds::OfRows(ids.clone()) } else { EdgeIds::OfEntries(ids.clone()) }
    }
}

/// Puts what stands for the entries of each row of `of`, given in the order of their columns, in the order of the row:
/// rows that somebody gave need not be sorted, such as those in the order of time.
fn put_in_order(entries: &mut [u64], of: &Host) {
    let mut places = Vec::new();
    for (_, row) in of.bounds().rows() {
        let cols = &of.col_idx[row.clone()];
        if cols.is_sorted() {
            continue;
        }
        places.clear();
        places.extend(0..cols.len());
        places.sort_by_key(|&at| cols[at]);
        let sorted = entries[row.clone()].to_vec();
        for (&place, entry) in places.iter().zip(sorted) {
            entries[row.start + place] = entry;
        }
    }
}
