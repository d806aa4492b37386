//! Counter-based random numbers: a draw is a pure function of the seed and of what is drawn for.
//!
//! No generator state is carried, so draws do not depend on the order or the thread in which they are made, and a
//! kernel on a device makes the same ones.

use crate::splitmix::mix;

/// One 64-bit draw for the counter words `words` under `seed` (SplitMix64 finaliser, chained).
#[inline]
pub fn bits(seed: u64, words: &[u64]) -> u64 {
    words.iter().fold(mix(seed), |state, &word| mix(state ^ mix(word)))
}

/// A draw in [0, 1) with 53 bits.
#[inline]
pub fn uniform(seed: u64, words: &[u64]) -> f64 {
    (bits(seed, words) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A draw in `0..bound`; the bias is below `bound` / 2^64.
///
/// # Panics
/// When `bound` is 0.
#[inline]
pub fn below(seed: u64, words: &[u64], bound: u64) -> u64 {
    assert!(bound > 0, "counter::below: expected a bound of at least 1, found 0");
    ((bits(seed, words) as u128 * bound as u128) >> 64) as u64
}

/// `items` in a random order: sorted by one draw per item, ties by the item itself.
pub fn shuffled(seed: u64, words: &[u64], items: &[u32]) -> Vec<u32> {
    let base = bits(seed, words);
    let mut keyed: Vec<(u64, u32)> = items.iter().map(|&item| (bits(base, &[item as u64]), item)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, item)| item).collect()
}
