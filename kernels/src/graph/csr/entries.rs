//! Rows that share their entries as two adjacencies: from rows to entries, and from entries to sources.

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;

use super::parts::EntryParts;
use super::topology::Topology;
use super::{Csr, arrays::upload};
use crate::runtime::host::{index_tensor, words_to_host};

impl<B: Backend> Csr<B> {
    /// The same rows, selected or not, where every entry is a column of its own. Its reverse says by which rows an
    /// entry is shared.
    ///
    /// # Panics
    /// Unless rows are spans, of fewer than 2^31 entries.
    pub(crate) fn columns_of_entries(&self) -> Csr<B> {
        let parts = self.entry_parts().columns.clone();
        Csr { parts, reversed: false, rows: self.rows.clone(), cols: None }
    }

    /// The source of every entry: rows are entries, all of them.
    ///
    /// # Panics
    /// As [`Csr::columns_of_entries`].
    pub(crate) fn sources_of_entries(&self) -> Csr<B> {
        Csr { parts: self.entry_parts().sources.clone(), reversed: false, rows: None, cols: None }
    }

    fn entry_parts(&self) -> &EntryParts<IntTensor<B>> {
        let topology = self.topology();
        let entries = topology.num_entries;
        let fits = topology.spans && entries <= i32::MAX as usize;
        assert!(fits, "entries: expected spans of fewer than 2^31 entries, got {self:?}");
        self.parts.entries[usize::from(self.reversed)].get_or_init(|| {
            let device = B::int_device(&topology.col_idx);
            let col_idx = index_tensor::<B>((0..entries as i32).collect(), &device);
            let columns = Topology { col_idx, num_cols: entries, ..topology.clone() };
            let row_ptr: Vec<u64> = (0..=entries as u64).collect();
            let col_idx = words_to_host::<B>(&topology.col_idx, 0..entries);
            let sources = upload::<B>(&row_ptr, &col_idx, topology.num_cols, &device);
            let parts = |forward| Csr::<B>::of_topologies(forward, None).parts;
            EntryParts { columns: parts(columns), sources: parts(sources) }
        })
    }
}
