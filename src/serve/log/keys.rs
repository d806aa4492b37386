//! Keys of batches, by which a repeat is answered as the first time.

use std::collections::{HashMap, VecDeque};

use super::segment::{Key, Position};

/// Seconds for which a key is kept.
pub(super) const KEPT: i64 = 24 * 3600;
/// Keys that are kept at most; the oldest leave first.
const MOST: usize = 1 << 18;

/// What became of the batches of the last hours that had a key.
#[derive(Default)]
pub(super) struct Keys {
    known: HashMap<String, ([u8; 16], Position)>,
    /// By time of receipt.
    order: VecDeque<(i64, String)>,
}

impl Keys {
    /// Digest of the content and position of the batch with this key.
    pub fn get(&self, key: &str) -> Option<([u8; 16], Position)> {
        self.known.get(key).copied()
    }

    pub fn add(&mut self, key: Key, received: i64, position: Position) {
        if self.known.insert(key.text.clone(), (key.digest, position)).is_none() {
            self.order.push_back((received, key.text));
        }
        self.forget(received);
    }

    /// Drops what is too old or too much at the time `now`.
    pub fn forget(&mut self, now: i64) {
        while let Some((received, _)) = self.order.front() {
            if self.order.len() <= MOST && is_kept(*received, now) {
                break;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.known.remove(&key);
            }
        }
    }
}

pub(super) fn is_kept(received: i64, now: i64) -> bool {
    received > now.saturating_sub(KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_leave_after_their_time_and_the_oldest_where_they_are_too_many() {
        let mut keys = Keys::default();
        let key = |text: String| Key { text, digest: [7; 16] };
        keys.add(key("a".into()), 0, Position(1));
        keys.add(key("b".into()), 10, Position(2));
        keys.forget(KEPT - 1);
        assert_eq!(keys.get("a"), Some(([7; 16], Position(1))));
        keys.forget(KEPT);
        assert_eq!((keys.get("a"), keys.get("b").is_some()), (None, true));
        (0..=MOST as u64).for_each(|at| keys.add(key(at.to_string()), 11, Position(at)));
        let left = ["b", "0", "1", "2"].map(|key| keys.get(key).is_some());
        assert_eq!((left, keys.known.len(), keys.order.len()), ([false, false, true, true], MOST, MOST));
    }
}
