//! Laws of the window on random traces of batches.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const NODES: u32 = 60;

/// A buffer whose rows are the numbers of the nodes that they belong to.
#[derive(Default)]
struct Buffer(Vec<Option<u32>>);

impl Buffer {
    fn apply(&mut self, update: &Update, hot: &[u32]) {
        // Rows that a shrinking buffer gives up are read before.
        self.0.resize(self.0.len().max(update.capacity), None);
        let read: Vec<_> = update.moves.iter().map(|&(from, to)| (self.0[from as usize], to)).collect();
        let copied = update.copies.iter().map(|&(row, to)| (Some(hot[row as usize]), to));
        let fetched = update.fetches.iter().map(|&(node, to)| (Some(node), to));
        let mut written = BTreeSet::new();
        for (row, to) in read.into_iter().chain(copied).chain(fetched) {
            assert!(written.insert(to), "slot {to} is written twice");
            self.0[to as usize] = row;
        }
        self.0.truncate(update.capacity);
    }
}

/// Batches of every kind: small, large, empty, the one before again, and none of its nodes.
fn trace() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let any = prop::collection::btree_set(0..NODES, 0..40).prop_map(|set| set.into_iter().collect::<Vec<_>>());
    let kind = (0u8..6, any.prop_shuffle());
    prop::collection::vec(kind, 1..25).prop_map(|kinds| {
        let mut batches: Vec<Vec<u32>> = Vec::new();
        for (kind, nodes) in kinds {
            let before = batches.last().cloned().unwrap_or_default();
            batches.push(match kind {
                0 => before,
                1 => Vec::new(),
                2 => nodes.into_iter().filter(|node| !before.contains(node)).collect(),
                3 => before.into_iter().rev().step_by(2).collect(),
                _ => nodes,
            });
        }
        batches
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_slot_holds_its_node_after_every_batch(
        batches in trace(), hot in prop::collection::btree_set(0..NODES, 0..15),
    ) {
        let hot: Vec<u32> = hot.into_iter().rev().collect();
        let mut window = Window::new(NODES as usize).with_hot(&hot).unwrap();
        let mut buffer = Buffer::default();
        let mut before = BTreeSet::new();
        for nodes in &batches {
            let now: BTreeSet<u32> = nodes.iter().copied().collect();
            let update = window.advance(nodes).unwrap();
            let shared = now.intersection(&before).count();
            let of_hot = now.difference(&before).filter(|node| hot.contains(node)).count();
            prop_assert_eq!((update.shared, update.copies.len()), (shared, of_hot));
            prop_assert_eq!(update.fetches.len(), nodes.len() - shared - of_hot, "each other row once");
            for &(from, to) in &update.moves {
                prop_assert!((to as usize) < nodes.len() && from as usize >= nodes.len(), "{} to {}", from, to);
            }
            buffer.apply(&update, &hot);
            prop_assert!(update.capacity >= nodes.len());
            prop_assert_eq!(window.slot_to_node().iter().copied().collect::<BTreeSet<_>>(), now.clone());
            prop_assert_eq!(window.slot_to_node().len(), nodes.len());
            for (slot, &node) in window.slot_to_node().iter().enumerate() {
                prop_assert_eq!(buffer.0[slot], Some(node), "slot {}", slot);
                prop_assert_eq!(window.slot_of(node), Some(slot as u32));
            }
            let of_nodes: Vec<u32> = nodes.iter().map(|&node| window.slot_of(node).unwrap()).collect();
            prop_assert_eq!(window.slots(), of_nodes);
            for node in (0..NODES).filter(|node| !now.contains(node)) {
                prop_assert_eq!(window.slot_of(node), None);
            }
            before = now;
        }
    }
}

#[test]
fn a_shared_row_behind_the_end_of_a_shorter_batch_is_moved() {
    let mut window = Window::new(3);
    let first = window.advance(&[0, 1, 2]).unwrap();
    assert_eq!((first.shared, first.fetches), (0, vec![(0, 0), (1, 1), (2, 2)]));
    let second = window.advance(&[2]).unwrap();
    assert_eq!((second.moves, second.fetches, second.shared), (vec![(2, 0)], vec![], 1));
    assert_eq!(window.slot_to_node(), [2]);
}

#[test]
fn a_batch_that_is_refused_changes_nothing() {
    let mut window = Window::new(6).with_hot(&[4]).unwrap();
    window.advance(&[1, 2, 3]).unwrap();
    for (bad, part) in [(&[0, 3, 5, 3][..], "3 twice"), (&[2, 6], "nodes below 6")] {
        let error = window.advance(bad).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(window.slot_to_node(), [1, 2, 3]);
        assert_eq!([0, 1, 2, 3, 5].map(|node| window.slot_of(node)), [None, Some(0), Some(1), Some(2), None]);
    }
    let update = window.advance(&[3, 4, 2, 1]).unwrap();
    assert_eq!((update.shared, update.copies, update.fetches), (3, vec![(0, 3)], vec![]));
    assert!(Window::new(6).with_hot(&[6]).is_err() && Window::new(6).with_hot(&[1, 1]).is_err());
}

#[test]
fn the_buffer_grows_at_once_and_shrinks_after_a_while() {
    let mut window = Window::new(1000);
    let mut capacity = |nodes: u32| window.advance(&(0..nodes).collect::<Vec<_>>()).unwrap().capacity;
    assert_eq!([400, 401, 500, 200].map(&mut capacity), [400, 800, 800, 800]);
    // Fifteen batches of less than a quarter, then one that is not: the count starts again.
    (0..15).for_each(|_| assert_eq!(capacity(100), 800));
    assert_eq!(capacity(300), 800);
    (0..15).for_each(|k| assert_eq!(capacity(100 + k), 800));
    assert_eq!(capacity(3), 114);
}

#[test]
fn what_is_forgotten_is_fetched_again() {
    let mut window = Window::new(4);
    window.advance(&[0, 1]).unwrap();
    window.forget();
    assert_eq!((window.slot_of(0), window.slot_to_node().len()), (None, 0));
    let update = window.advance(&[1, 0]).unwrap();
    assert_eq!((update.shared, update.fetches), (0, vec![(1, 0), (0, 1)]));
}
