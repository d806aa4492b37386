//! Draws of one row: which of its entries are taken.

use graphsieve_kernels::hash;

use super::config::Fanout;

/// How many entries a row gives that has `available` ones to choose from.
#[inline]
pub(super) fn count(fanout: Fanout, available: usize, replace: bool) -> usize {
    match fanout {
        Fanout::All => available,
        Fanout::Most(most) if replace => most as usize * usize::from(available > 0),
        Fanout::Most(most) => available.min(most as usize),
    }
}

/// `-ln u` of a number `u` in (0, 1) that `bits` name, to 2^-50 of its value: by additions, multiplications and
/// divisions alone, which devices repeat to the bit.
pub(super) fn exponential(bits: u64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    // 2 atanh s = 2 (s + s^3 / 3 + ...); the next term is below 2^-57 of the first.
    const TERMS: usize = 11;
    // Exact, and below 2^52.
    let x = (bits >> 12) as f64 + 0.5;
    let mut exponent = (x.to_bits() >> 52) as i64 - 1023;
    let mut m = f64::from_bits(x.to_bits() & ((1 << 52) - 1) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let sum = (0..TERMS).rev().fold(0.0, |sum, k| sum * square + 1.0 / (2 * k + 1) as f64);
    (52 - exponent) as f64 * LN_2 - 2.0 * s * sum
}

/// So many draws of places in proportion to `weights`, in ascending order; a weight is positive.
pub(super) fn repeated_by_weight(taken: &mut [u32], weights: &[f32], key: u64, sums: &mut Vec<f64>) {
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

/// The places with the smallest `keys` (of equal ones the first places) in ascending order; there are at least as many.
pub(super) fn smallest(taken: &mut [u32], keys: impl Iterator<Item = (u64, u32)>, keyed: &mut Vec<(u64, u32)>) {
    let count = taken.len();
    keyed.clear();
    keyed.extend(keys);
    if count > 0 && count < keyed.len() {
        keyed.select_nth_unstable(count - 1);
    }
    taken.iter_mut().zip(keyed.iter()).for_each(|(place, &(_, at))| *place = at);
    taken.sort_unstable();
}

/// A key that orders entries of positive weight as draws one after the other do: an exponential variate over the
/// weight.
///
/// # Source
/// Efraimidis and Spirakis, Weighted random sampling with a reservoir (Information Processing Letters, 2006).
#[inline]
pub(super) fn weighted_key(bits: u64, weight: f32) -> u64 {
    // Positive doubles order as their bits do.
    (exponential(bits) / f64::from(weight)).to_bits()
}
