//! Rows that networks make of nodes from what is around them, such as embeddings, and stay until that changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::graph::Events;

/// Bytes of an entry beside its rows, and of a row beside its values.
const ENTRY: u64 = 112;
const ROW: u64 = 40;
/// Bytes beyond which the rows of the earliest events leave.
const MOST: u64 = 256 << 20;

/// Which row of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The embedding of Stage 1.
    Embedding,
    /// Behind the first layer of Stage 1.
    Encoder,
    /// Behind the first layer of a network of Stage 2, by its number.
    Network(usize),
}

/// The rows of one node, each of which whoever needs it first makes. Clones share them.
#[derive(Clone, Debug)]
pub struct MadeRows(Arc<Rows>);

#[derive(Debug)]
struct Rows {
    by_layer: Box<[OnceLock<Box<[f32]>>]>,
    /// Of all nodes.
    bytes: Arc<AtomicU64>,
}

impl Layer {
    fn place(self) -> usize {
        match self {
            Self::Embedding => 0,
            Self::Encoder => 1,
            Self::Network(number) => 2 + number,
        }
    }
}

impl MadeRows {
    /// None yet, with places for so many networks of Stage 2.
    pub fn new(networks: usize) -> Self {
        Self::counted(networks, Arc::default())
    }

    fn counted(networks: usize, bytes: Arc<AtomicU64>) -> Self {
        let by_layer: Box<[OnceLock<Box<[f32]>>]> =
            (0..Layer::Network(networks).place()).map(|_| OnceLock::new()).collect();
        bytes.fetch_add(ENTRY + ROW * by_layer.len() as u64, Ordering::Relaxed);
        Self(Arc::new(Rows { by_layer, bytes }))
    }

    /// A row, if it was made.
    pub fn get(&self, layer: Layer) -> Option<&[f32]> {
        self.0.by_layer.get(layer.place())?.get().map(|row| &**row)
    }

    /// Keeps a row. Another one that was made meanwhile is the same.
    pub fn put(&self, layer: Layer, row: &[f32]) {
        let Some(place) = self.0.by_layer.get(layer.place()) else { return };
        place.get_or_init(|| {
            self.0.bytes.fetch_add(size_of_val(row) as u64, Ordering::Relaxed);
            row.into()
        });
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        let values: usize = self.by_layer.iter().filter_map(OnceLock::get).map(|row| size_of_val(&**row)).sum();
        self.bytes.fetch_sub(ENTRY + ROW * self.by_layer.len() as u64 + values as u64, Ordering::Relaxed);
    }
}

/// Rows by time, node type and number. What a node hears of happened before it, so that a change counts for later ones
/// alone. A row that is made while its node is taken out here is of no use to anybody else.
#[derive(Debug, Default)]
pub(super) struct Made {
    rows: Mutex<BTreeMap<(i64, usize, u32), MadeRows>>,
    bytes: Arc<AtomicU64>,
}

impl Made {
    pub fn of(&self, time: i64, node_type: usize, local: u32, networks: usize) -> MadeRows {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = rows.get(&(time, node_type, local)) {
            return known.clone();
        }
        // Two for one: what somebody holds counts until it is let go.
        let leave = if self.bytes() > MOST { 2 } else { 0 };
        for _ in 0..leave {
            let earliest = rows.range((Events::NO_TIME + 1, 0, 0)..).next().or_else(|| rows.first_key_value());
            if let Some(key) = earliest.map(|(key, _)| *key) {
                rows.remove(&key);
            }
        }
        let made = MadeRows::counted(networks, self.bytes.clone());
        rows.insert((time, node_type, local), made.clone());
        made
    }

    /// Leaves out what is later than `time`, everything for [`i64::MIN`].
    pub fn keep_until(&mut self, time: i64) {
        let rows = self.rows.get_mut().unwrap_or_else(PoisonError::into_inner);
        if time == i64::MIN {
            return rows.clear();
        }
        while let Some(last) = rows.last_entry().filter(|last| last.key().0 > time) {
            last.remove();
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_earliest_events_leave_when_there_are_too_many() {
        let made = Made::default();
        let wide = vec![1.0; 1 << 20];
        made.of(Events::NO_TIME, 0, 0, 1).put(Layer::Encoder, &wide);
        for time in 0..200 {
            made.of(time, 1, time as u32, 1).put(Layer::Network(0), &wide);
        }
        assert!(made.bytes() < MOST + 8 * (1 << 20), "{}", made.bytes());
        let has = |time, node_type, local, layer| made.of(time, node_type, local, 1).get(layer).is_some();
        assert!(has(Events::NO_TIME, 0, 0, Layer::Encoder) && has(199, 1, 199, Layer::Network(0)));
        assert!(!has(0, 1, 0, Layer::Network(0)));
    }

    #[test]
    fn bytes_are_those_of_the_rows_that_are_there() {
        let mut made = Made::default();
        let held = made.of(5, 0, 1, 2);
        held.put(Layer::Network(1), &[1.0; 100]);
        held.put(Layer::Network(1), &[2.0; 100]);
        assert_eq!((held.get(Layer::Network(1)), held.get(Layer::Encoder)), (Some(&[1.0; 100][..]), None));
        assert_eq!(made.bytes(), ENTRY + 4 * ROW + 400);
        made.keep_until(5);
        assert!(made.of(5, 0, 1, 2).get(Layer::Network(1)).is_some());
        made.keep_until(4);
        assert_eq!(made.bytes(), ENTRY + 4 * ROW + 400, "somebody holds it");
        drop(held);
        assert_eq!(made.bytes(), 0);
    }
}
