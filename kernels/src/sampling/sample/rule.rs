//! What is drawn: on the host, and what the kernels repeat.

use crate::runtime::hash::{SPLITMIX_STEP, splitmix64};

/// Longest list that is searched rather than bisected while it is drawn.
const SHORT: usize = 64;

/// A hash of `word` under `key`: the finaliser of SplitMix64, of which every bit depends on every bit.
#[inline]
pub fn hash(key: u64, word: u64) -> u64 {
    splitmix64(key.wrapping_add(word.wrapping_mul(SPLITMIX_STEP)))
}

/// `bits` mapped to `0..bound`; the bias is below `bound` / 2^64.
#[inline]
pub fn below(bits: u64, bound: usize) -> usize {
    ((u128::from(bits) * bound as u128) >> 64) as usize
}

/// `taken.len()` of the places `0..degree`, every set of them alike, in ascending order.
///
/// # Source
/// Floyd, in Bentley, Programming pearls (CACM 1987): a draw per place that is taken, however many there are.
pub fn distinct(taken: &mut [u32], degree: usize, key: u64) {
    let count = taken.len();
    if count == degree {
        return taken.iter_mut().enumerate().for_each(|(at, place)| *place = at as u32);
    }
    for at in 0..count {
        let last = degree - count + at;
        let drawn = below(hash(key, at as u64), last + 1) as u32;
        // The places so far are in ascending order, all below `last`.
        let (before, _) = taken.split_at(at);
        let known = if at <= SHORT { before.contains(&drawn) } else { before.binary_search(&drawn).is_ok() };
        if known {
            taken[at] = last as u32;
        } else {
            let to = before.partition_point(|&place| place < drawn);
            taken.copy_within(to..at, to + 1);
            taken[to] = drawn;
        }
    }
}

/// So many of the places `0..degree`, each drawn on its own, in ascending order.
pub fn repeated(taken: &mut [u32], degree: usize, key: u64) {
    for (at, place) in taken.iter_mut().enumerate() {
        *place = below(hash(key, at as u64), degree) as u32;
    }
    taken.sort_unstable();
}
