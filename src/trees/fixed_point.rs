//! Gradients in fixed point.
//!
//! A gradient g becomes the whole number round(g · 2^e), at most 2^30 in magnitude, with one e for all rows of a tree,
//! and likewise for hessians. Sums are i64: up to 2^32 rows of 2^30 stay below 2^62, so nothing overflows, additions
//! commute exactly, and the sums are the same for any thread count, row order or device. The rounding error of one row
//! is at most 2^-31 of the largest gradient, below that of an f32. Counts are exact.

use graphsieve_kernels::{GradientScale, GradientSum};
use rayon::prelude::*;

use crate::error::{Error, Result};

/// e with max · 2^e in [2^(bits − 1), 2^bits); kept within what an f64 power of two can hold.
fn exponent(max: f64, bits: i32) -> i32 {
    if max == 0.0 {
        return 0;
    }
    let floor_log2 = (((max.to_bits() >> 52) & 0x7ff) as i32) - 1023;
    (bits - 1 - floor_log2).clamp(-1000, 1000)
}

fn power(exp: i32) -> f64 {
    f64::from_bits(((1023 + exp) as u64) << 52)
}

/// The nearest whole number, ties to even, for magnitudes up to 2^31: the sum has no digits behind the point.
#[inline]
fn nearest(x: f64) -> i32 {
    const SHIFT: f64 = 1.5 * (1u64 << 52) as f64;
    ((x + SHIFT) - SHIFT) as i32
}

/// The gradients and hessians of one tree in fixed point, by row.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// (gradient, hessian) per row.
    pub pairs: Vec<[i32; 2]>,
    /// What one unit is worth.
    pub scale: GradientScale,
}

impl Gradients {
    /// Rounds (gradient, hessian) pairs to fixed point.
    ///
    /// # Errors
    /// [`Error::NonFinite`] when a value is NaN or infinite.
    pub fn new(pairs: &[(f64, f64)], round: usize) -> Result<Self> {
        let mut gradients = Gradients { pairs: Vec::new(), scale: GradientScale::finest(0.0, 0.0) };
        gradients.refill(pairs, round)?;
        Ok(gradients)
    }

    /// As [`Gradients::new`], in the memory of those before.
    pub(super) fn refill(&mut self, pairs: &[(f64, f64)], round: usize) -> Result<()> {
        // Without its sign a float orders as its bits do, and infinity and NaN come last.
        let magnitude = |x: f64| x.to_bits() & (u64::MAX >> 1);
        let (grad, hess) = pairs
            .par_chunks(1 << 14)
            .map(|part| part.iter().fold((0, 0), |(g, h), p| (magnitude(p.0).max(g), magnitude(p.1).max(h))))
            .reduce(|| (0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        let (max_grad, max_hess) = (f64::from_bits(grad), f64::from_bits(hess));
        if !(max_grad.is_finite() && max_hess.is_finite()) {
            return Err(non_finite(pairs, round));
        }
        let scale = GradientScale::finest(max_grad, max_hess);
        let (by_grad, by_hess) = (1.0 / scale.grad_unit, 1.0 / scale.hess_unit);
        let fixed = |p: &(f64, f64)| [nearest(p.0 * by_grad), nearest(p.1 * by_hess)];
        pairs.par_iter().with_min_len(1 << 14).map(fixed).collect_into_vec(&mut self.pairs);
        self.scale = scale;
        Ok(())
    }

    /// The sum over `rows`.
    pub fn total(&self, rows: &[u32]) -> GradientSum {
        rows.par_chunks(1 << 14)
            .map(|part| {
                part.iter()
                    .map(|&row| {
                        let [grad, hess] = self.pairs[row as usize];
                        GradientSum { grad: grad as i64, hess: hess as i64, count: 1 }
                    })
                    .sum::<GradientSum>()
            })
            .sum()
    }
}

/// Σ values, the same for any order of them; every value is off by at most 2^-60 of the largest. What is below 2^-1000,
/// far under any f32, counts as 0.
pub(super) fn order_free_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let exp = exponent(values.clone().fold(0.0, |max, value| value.abs().max(max)), 60);
    let unit = power(exp);
    let sum: i128 = values.map(|value| (value * unit).round_ties_even() as i128).sum();
    sum as f64 * power(-exp)
}

pub(super) fn non_finite(pairs: &[(f64, f64)], round: usize) -> Error {
    let (row, pair) = pairs
        .iter()
        .enumerate()
        .find(|(_, p)| !p.0.is_finite() || !p.1.is_finite())
        .expect("called only when a value is not finite");
    let (term, value) = if pair.0.is_finite() { ("hessian", pair.1) } else { ("gradient", pair.0) };
    let help = "check the size of labels and weights, and lower the learning rate".into();
    Error::NonFinite { term: format!("{term} of row {row}"), value, epoch: round, help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_whole_number_is_that_of_the_standard_library() {
        for x in [0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.49999999999999994, 1e9 + 0.5, -((1u64 << 30) as f64), 1e-300] {
            assert_eq!(nearest(x), x.round_ties_even() as i32, "{x}");
        }
    }

    #[test]
    fn a_sum_does_not_depend_on_the_order() {
        let values: Vec<f64> = (0..1000).map(|i| ((i * 7919) % 1000) as f64 / 3.0 + 1e-7).collect();
        let backwards = order_free_sum(values.iter().rev().copied());
        assert_eq!(order_free_sum(values.iter().copied()), backwards);
        assert!((backwards / values.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(order_free_sum(std::iter::empty()), 0.0);
        let smallest = f32::from_bits(1) as f64;
        assert_eq!(order_free_sum([smallest, 0.0].into_iter()), smallest);
    }
}
