//! Rows that are made of nodes from what is around them, such as embeddings, and stay until that changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes of an entry beside its row.
const ENTRY: u64 = 96;

/// The row of one node, which whoever needs it first makes. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MadeRow(Arc<OnceLock<Box<[f32]>>>);

impl MadeRow {
    /// The row, if it was made.
    pub fn get(&self) -> Option<&[f32]> {
        self.0.get().map(|row| &**row)
    }

    /// Keeps the row. Another one that was made meanwhile is the same.
    pub fn put(&self, row: impl Iterator<Item = f32>) {
        self.0.get_or_init(|| row.collect());
    }
}

/// Rows by time, node type and number. What a node hears of happened before it, so that a change counts for later ones
/// alone. A row that is made while its node is taken out here is of no use to anybody else.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<BTreeMap<(i64, usize, u32), MadeRow>>);

impl Made {
    pub fn of(&self, time: i64, node_type: usize, local: u32) -> MadeRow {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.entry((time, node_type, local)).or_default().clone()
    }

    /// Leaves out what is later than `time`, everything for [`i64::MIN`].
    pub fn keep_until(&mut self, time: i64) {
        let rows = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if time == i64::MIN {
            return rows.clear();
        }
        while let Some(last) = rows.last_entry().filter(|last| last.key().0 > time) {
            last.remove();
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let width = rows.values().find_map(|row| row.get().map(<[f32]>::len)).unwrap_or(0);
        rows.len() as u64 * (4 * width as u64 + ENTRY)
    }
}
