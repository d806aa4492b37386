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

/// Terms of the logarithm: the next one is below 2^-57 of the first.
pub(crate) const TERMS: usize = 11;

/// `1 / (2 k + 1)`
pub(crate) fn term(k: usize) -> f64 {
    1.0 / (2 * k + 1) as f64
}

/// `-ln u` of a number `u` in (0, 1) that `bits` name, to 2^-50 of its value: by additions, multiplications and
/// divisions alone, which devices repeat to the bit.
fn exponential(bits: u64) -> f64 {
    // Exact, and below 2^52.
    let x = (bits >> 12) as f64 + 0.5;
    let mut exponent = (x.to_bits() >> 52) as i64 - 1023;
    let mut m = f64::from_bits(x.to_bits() & ((1 << 52) - 1) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    // 2 atanh s = 2 (s + s^3 / 3 + ...)
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let sum = (0..TERMS).rev().fold(0.0, |sum, k| sum * square + term(k));
    (52 - exponent) as f64 * std::f64::consts::LN_2 - 2.0 * s * sum
}

/// A key that orders entries of positive weight as draws one after the other do: an exponential variate, which `bits`
/// name, over the weight.
///
/// # Source
/// Efraimidis and Spirakis, Weighted random sampling with a reservoir (Information Processing Letters, 2006).
///
/// # Example
/// ```
/// use graphsieve_kernels::{hash, smallest, weighted_key};
/// let weights = [1.0, 0.0, 8.0, 1.0];
/// let positive = (0u32..).zip(weights).filter(|(_, weight)| *weight > 0.0);
/// let keys = positive.map(|(at, weight)| (weighted_key(hash(3, at.into()), weight), at));
/// let mut taken = [0; 3];
/// smallest(&mut taken, keys, &mut Vec::new());
/// assert_eq!(taken, [0, 2, 3]);
/// ```
#[inline]
pub fn weighted_key(bits: u64, weight: f32) -> u64 {
    // Positive doubles order as their bits do.
    (exponential(bits) / f64::from(weight)).to_bits()
}

/// The places with the smallest `keys` (of equal ones the first places) in ascending order; there are at least as many.
/// `keyed` is memory for them.
pub fn smallest(taken: &mut [u32], keys: impl Iterator<Item = (u64, u32)>, keyed: &mut Vec<(u64, u32)>) {
    let count = taken.len();
    keyed.clear();
    keyed.extend(keys);
    if count > 0 && count < keyed.len() {
        keyed.select_nth_unstable(count - 1);
    }
    taken.iter_mut().zip(keyed.iter()).for_each(|(place, &(_, at))| *place = at);
    taken.sort_unstable();
}

/// So many draws of places in proportion to `weights`, in ascending order; a weight is positive. `sums` is memory for
/// their sums.
pub fn repeated_by_weight(taken: &mut [u32], weights: &[f32], key: u64, sums: &mut Vec<f64>) {
    sums.clear();
    let mut sum = 0.0;
    sums.extend(weights.iter().map(|&weight| {
        sum += f64::from(weight);
        sum
    }));
    // Where rounding reaches the end, the last place of positive weight.
    let last = weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0);
    for (at, place) in taken.iter_mut().enumerate() {
        let drawn = (hash(key, at as u64) >> 11) as f64 / (1u64 << 53) as f64 * sum;
        *place = sums.partition_point(|&sum| sum <= drawn).min(last) as u32;
    }
    taken.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_logarithms() {
        for k in 0..100_000u64 {
            let bits = hash(3, k) >> (k % 60);
            let u = ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
            let (got, want) = (exponential(bits), -u.ln());
            // Close to 1 the logarithm of a rounded number says little.
            assert!((got - want).abs() <= 1e-15 * want.max(1.0), "{u}: {got} instead of {want}");
        }
        assert!(exponential(0) > 36.0 && exponential(u64::MAX) > 0.0);
    }
}
