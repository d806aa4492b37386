//! Margins of a boosted sum of trees, and their gradients, which need not leave the device between trees.
//!
//! Gradients decide on splits, so they have to be the same to the last bit wherever they are computed. The logistic
//! function here is therefore made of additions, multiplications and divisions alone, which IEEE 754 fixes.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::ops::IntTensor;

use crate::trees::partition::PartitionBackend;
use crate::trees::split::GradientScale;

/// Losses whose gradients devices compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoostLoss {
    /// `ln(1 + e^m) - y m` of a margin `m` and a label `y` of 0 or 1.
    Logistic,
    /// `(m - y)^2 / 2`
    Squared,
}

/// What is boosted towards.
#[derive(Clone, Copy, Debug)]
pub struct BoostTargets<'a> {
    /// What is minimised.
    pub loss: BoostLoss,
    /// One per row.
    pub labels: &'a [f32],
    /// One per row; nothing given is 1.
    pub weights: Option<&'a [f32]>,
    /// Factors on the weights of rows with labels of at most 0.5, and of the others.
    pub class_weights: (f64, f64),
    /// Margin of every row before the first tree.
    pub start: f64,
}

/// Labels, weights and margins on a device; doubles are held as their bits.
#[derive(Debug)]
pub struct BoostParts<I> {
    /// `[rows]` f64
    pub margins: I,
    /// `[rows]` f32
    pub labels: I,
    /// `[rows]` f32, or one that is not read
    pub weights: I,
    pub is_weighted: bool,
    pub loss: BoostLoss,
    pub class_weights: (f64, f64),
    pub num_rows: usize,
}

/// Backends with a [`BoostEngine`](crate::BoostEngine).
pub trait BoostBackend: PartitionBackend {
    /// From how many rows on trees of tens of features grow faster here than on the CPU; `None` on the CPU itself.
    const MIN_ROWS_FOR_DEVICE: Option<usize>;

    /// `[2 rows]` f64: gradient and hessian of each row; and the largest magnitudes of both, where infinity and NaN
    /// come last.
    #[doc(hidden)]
    fn boost_derivatives(parts: &BoostParts<IntTensor<Self>>) -> (IntTensor<Self>, [f64; 2]);

    /// `[2 rows]` i32: derivatives in fixed point.
    #[doc(hidden)]
    fn fixed_derivatives(derivatives: IntTensor<Self>, num_rows: usize, scale: &GradientScale) -> IntTensor<Self>;

    /// Adds `values[l]` to the margins of `rows[starts[l]..starts[l + 1]]`.
    #[doc(hidden)]
    fn add_leaves(
        margins: &mut IntTensor<Self>,
        rows: &IntTensor<Self>,
        num_rows: usize,
        starts: &IntTensor<Self>,
        values: &IntTensor<Self>,
        num_leaves: usize,
    );

    /// `[num_rows]` i32: 0, 1, 2, ...
    #[doc(hidden)]
    fn ascending_rows(like: &IntTensor<Self>, num_rows: usize) -> IntTensor<Self>;
}

/// `1 / ln 2`
const PER_LN_2: f64 = std::f64::consts::LOG2_E;
/// The upper bits of ln 2, so few that their product with an exponent is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
/// The others.
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
/// From here on `e^-x` counts as 0.
const LAST_EXPONENT: f64 = 708.0;
/// `1 / k!`; the next term is below 2^-57 for arguments of up to `ln 2 / 2`.
const TAYLOR: [f64; 14] = {
    let mut terms = [1.0; 14];
    let mut factorial = 1.0;
    let mut k = 1;
    while k < 14 {
        factorial *= k as f64;
        terms[k] = 1.0 / factorial;
        k += 1;
    }
    terms
};

/// `e^-x` for `x >= 0`, to 2^-51 of its value; 0 from 708 on.
fn decay(x: f64) -> f64 {
    if x > LAST_EXPONENT {
        return 0.0;
    }
    let exponent = (x * PER_LN_2 + 0.5).floor();
    let rest = exponent * LN_2_LOW - (x - exponent * LN_2_HIGH);
    let sum = TAYLOR.iter().rev().fold(0.0, |sum, term| sum * rest + term);
    sum * f64::from_bits(((1023 - exponent as i64) as u64) << 52)
}

/// Gradient and hessian of a row by its margin, not weighted: `(p - y, p (1 - p))` with `p = 1 / (1 + e^-m)`, or
/// `(m - y, 1)`. Devices give the same bits.
///
/// # Example
/// ```
/// use graphsieve_kernels::{BoostLoss, boost_derivatives};
/// let (gradient, hessian) = boost_derivatives(BoostLoss::Logistic, 3f64.ln(), 0.0);
/// assert!((gradient - 0.75).abs() < 1e-15 && (hessian - 0.1875).abs() < 1e-15);
/// ```
#[inline]
pub fn boost_derivatives(loss: BoostLoss, margin: f64, label: f64) -> (f64, f64) {
    match loss {
        BoostLoss::Squared => (margin - label, 1.0),
        BoostLoss::Logistic => {
            let e = decay(margin.abs());
            let (near, far) = (1.0 / (1.0 + e), e / (1.0 + e));
            let p = if margin < 0.0 { far } else { near };
            (p - label, near * far)
        }
    }
}

/// The nearest whole number, ties to even, for magnitudes up to 2^31.
#[inline]
fn nearest(x: f64) -> i32 {
    x.round_ties_even() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decay_is_that_of_the_standard_library() {
        let mut worst = 0f64;
        for k in 0..200_000 {
            let x = k as f64 * 0.003_537;
            let want = (-x).exp();
            worst = worst.max((decay(x) / want - 1.0).abs());
        }
        assert!(worst < 2f64.powi(-51), "off by {worst:e}");
        assert_eq!((decay(0.0), decay(708.5), decay(f64::INFINITY)), (1.0, 0.0, 0.0));
        assert!(decay(f64::NAN).is_nan());
    }

    #[test]
    fn logistic_derivatives_keep_their_digits_on_both_sides() {
        for m in [-700.0, -40.0, -3.0, -1e-9, 0.0, 1e-9, 0.7, 40.0, 700.0] {
            let (g, h) = boost_derivatives(BoostLoss::Logistic, m, 0.0);
            let e = (-f64::abs(m)).exp();
            let want = (if m < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }, e / (1.0 + e) / (1.0 + e));
            assert!((g / want.0 - 1.0).abs() < 1e-14 && (h / want.1 - 1.0).abs() < 1e-14, "{m}: {g} {h}");
        }
        assert_eq!(boost_derivatives(BoostLoss::Squared, 1.5, 0.25), (1.25, 1.0));
    }
}
