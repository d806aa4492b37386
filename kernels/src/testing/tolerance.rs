//! How close is close enough: one error bound for every operator test, and the comparisons that use it.

/// A floating-point type an operator stores its inputs and outputs in. Sums run in f32 whatever the storage type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 24 significant bits.
    F32,
    /// 11 significant bits, largest finite value 65,504.
    F16,
    /// 8 significant bits, the range of f32.
    Bf16,
}

impl Dtype {
    /// Significant bits and least exponent of a normal number.
    fn format(self) -> (i32, i32) {
        match self {
            Dtype::F32 => (24, -126),
            Dtype::F16 => (11, -14),
            Dtype::Bf16 => (8, -126),
        }
    }

    /// Largest relative error of rounding to nearest: 2^-24, 2^-11 or 2^-8.
    pub fn unit_roundoff(self) -> f64 {
        (-self.format().0 as f64).exp2()
    }

    /// `x` rounded to the nearest value of the type, ties to even; subnormals and overflow to infinity included.
    pub fn round(self, x: f64) -> f64 {
        let (bits, min_exponent) = self.format();
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let exponent = ((x.to_bits() >> 52) & 0x7FF) as i32 - 1023;
        let quantum = power_of_two(exponent.max(min_exponent) - bits + 1);
        // Sums beyond 2^52 have no fraction: adding rounds, ties to even.
        const WHOLE: f64 = 1.5 * (1_u64 << 52) as f64;
        let rounded = (((x / quantum + WHOLE) - WHOLE) * quantum).abs();
        let overflow = power_of_two(2 - min_exponent);
        if rounded >= overflow { f64::INFINITY } else { rounded }.copysign(x)
    }
}

/// `2^exponent` of a normal number.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Bound on the relative error in norm of a result stored as `dtype` whose elements are sums of up to `reduction_len`
/// terms: `4 u + 8 v sqrt(reduction_len)`, with `u` the unit roundoff of `dtype` and `v` = 2^-24 that of f32.
///
/// - `4 u`: inputs are exact, so storage rounds the output and at most a few saved intermediates, each by `u`.
/// - `8 v sqrt(n)`: an f32 sum of n terms adds n roundings of its partial sums. Their worst case grows as n, but they
///   have random signs, so the expected error grows as sqrt(n) (Higham & Mary 2019, "A new approach to probabilistic
///   rounding error analysis"). 8 covers the few extra roundings per term and several standard deviations.
///
/// The bound is tight on purpose: sums of half-precision terms accumulated in half precision break it.
///
/// `reduction_len` counts the longest chain behind one element: the largest degree for SpMM, the channels for a dot
/// product, the sum of both for attention. A softmax multiplies the error of its logits by their size, so keep logits
/// within a few units when testing accuracy (attention vectors divided by the square root of the channels).
pub fn tolerance(dtype: Dtype, reduction_len: usize) -> f64 {
    4.0 * dtype.unit_roundoff() + 8.0 * Dtype::F32.unit_roundoff() * (reduction_len.max(1) as f64).sqrt()
}

/// `||got - want|| / ||want||` in the 2-norm; 0 where both are zero or empty, infinite where anything is NaN.
/// Equal infinities agree and are left out of both norms. Panics if the lengths differ.
pub fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    scaled_error(got, want, want)
}

/// `||got - want|| / max(||want||, ||magnitude||)`: the error against the size of the terms that were summed, for
/// results in which they cancel. Otherwise as [`relative_error`].
pub fn scaled_error(got: &[f32], want: &[f64], magnitude: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len(), "got and want differ in length");
    assert_eq!(magnitude.len(), want.len(), "magnitude and want differ in length");
    let difference = norm((0..got.len()).map(|k| distance(got[k], want[k])));
    let finite_norm = |x: &[f64]| norm(x.iter().copied().filter(|x| !x.is_infinite()));
    if difference == 0.0 {
        return 0.0;
    }
    let error = difference / finite_norm(want).max(finite_norm(magnitude)).max(f64::MIN_POSITIVE);
    if error.is_nan() { f64::INFINITY } else { error }
}

/// `|got - want|`, 0 for equal infinities, infinite if either is NaN.
fn distance(got: f32, want: f64) -> f64 {
    match got as f64 - want {
        _ if got as f64 == want => 0.0,
        difference if difference.is_nan() => f64::INFINITY,
        difference => difference.abs(),
    }
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum::<f64>().sqrt()
}

/// Panics unless `got` is within [`tolerance`] of `want` by [`relative_error`]; the message names the worst element.
#[track_caller]
pub fn assert_close(name: &str, got: &[f32], want: &[f64], dtype: Dtype, reduction_len: usize) {
    assert_close_at_scale(name, got, want, want, dtype, reduction_len);
}

/// [`assert_close`] by [`scaled_error`]. Needed where the exact result is a difference of equal terms: the gradient of
/// a softmax over a single neighbour is 0, and no rounded computation reaches that to any relative accuracy. The
/// `*_grad_magnitude` functions of [`gradient`](super::gradient) give `magnitude`.
#[track_caller]
pub fn assert_close_at_scale(
    name: &str,
    got: &[f32],
    want: &[f64],
    magnitude: &[f64],
    dtype: Dtype,
    reduction_len: usize,
) {
    assert_eq!(got.len(), want.len(), "{name}: got {} elements, want {}", got.len(), want.len());
    let (error, bound) = (scaled_error(got, want, magnitude), tolerance(dtype, reduction_len));
    if error > bound {
        let by_distance = |&a: &usize, &b: &usize| distance(got[a], want[a]).total_cmp(&distance(got[b], want[b]));
        let k = (0..got.len()).max_by(by_distance).unwrap_or(0);
        panic!(
            "{name}: relative error {error:.3e} > {bound:.3e} ({dtype:?}, reduction over {reduction_len}); \
             worst at index {k} of {}: got {:?}, want {:?}",
            got.len(),
            got[k],
            want[k]
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixtures::{Rng, fixtures, values_in};
    use crate::testing::oracle::{SpmmWeights, keep_all, spmm};

    #[test]
    fn rounding_agrees_with_the_hardware_for_f32() {
        let mut x: Vec<f64> = Rng::new(1).normal(10_000);
        x.extend([0.0, -0.0, 1e-40, -3e-45, 1e-46, 3.4028235677973366e38, f64::MAX, f64::INFINITY, f64::MIN_POSITIVE]);
        for x in x {
            assert_eq!(Dtype::F32.round(x), x as f32 as f64, "{x:e}");
        }
        assert!(Dtype::F32.round(f64::NAN).is_nan());
    }

    #[test]
    fn rounding_to_half_types_gives_the_values_of_the_standards() {
        let f16 = |x| Dtype::F16.round(x);
        assert_eq!([f16(1.0 / 3.0), f16(65_519.0), f16(65_520.0)], [0.333251953125, 65_504.0, f64::INFINITY]);
        assert_eq!([f16(2049.0), f16(2051.0)], [2048.0, 2052.0], "ties go to even");
        assert_eq!([f16(6e-8), f16(2e-8)], [(-24f64).exp2(), 0.0], "subnormals");
        let bf16 = |x| Dtype::Bf16.round(x);
        assert_eq!([bf16(1.0 / 3.0), bf16(257.0), bf16(-3.4e38)], [0.333984375, 256.0, f64::NEG_INFINITY]);
    }

    #[test]
    fn relative_error_is_the_quotient_of_norms() {
        assert_eq!(relative_error(&[3.0, 4.5], &[3.0, 4.0]), 0.1);
        assert_eq!(relative_error(&[], &[]), 0.0);
        assert_eq!(relative_error(&[0.0], &[0.0]), 0.0);
        assert_eq!(scaled_error(&[0.5], &[0.0], &[2.0]), 0.25);
        assert!(relative_error(&[1e-30], &[0.0]) > 1e100);
    }

    #[test]
    fn nan_and_unequal_infinities_never_pass() {
        let inf = f64::INFINITY;
        for (got, want) in [(f32::NAN, 1.0), (1.0, f64::NAN), (f32::NAN, f64::NAN), (f32::NAN, inf), (1.0, inf)] {
            assert_eq!(relative_error(&[1.0, got], &[1.0, want]), inf, "{got} {want}");
        }
        for (got, want) in [(f32::INFINITY, 1.0), (f32::INFINITY, -inf)] {
            assert_eq!(relative_error(&[1.0, got], &[1.0, want]), inf, "{got} {want}");
        }
        assert_eq!(relative_error(&[f32::INFINITY, 3.0], &[inf, 3.0]), 0.0);
    }

    #[test]
    #[should_panic(expected = "spmm: relative error 1.000e-1 > ")]
    fn a_failure_names_the_operator_and_its_error() {
        assert_close("spmm", &[3.0, 4.5], &[3.0, 4.0], Dtype::F32, 2);
    }

    #[test]
    #[should_panic(expected = "worst at index 1 of 3: got NaN, want 4.0")]
    fn a_failure_names_the_worst_element_and_nan_is_the_worst() {
        assert_close("spmm", &[3.0, f32::NAN, 9e9], &[3.0, 4.0, 5.0], Dtype::F32, 2);
    }

    #[test]
    #[should_panic(expected = "spmm: got 2 elements, want 3")]
    fn a_length_mismatch_panics() {
        assert_close("spmm", &[0.0, 0.0], &[0.0, 0.0, 0.0], Dtype::F32, 2);
    }

    /// Row sums of `terms` by a naive loop that rounds every partial sum to `accumulate`, stored as `store`.
    fn naive_sums(terms: &[Vec<f64>], accumulate: Dtype, store: Dtype) -> Vec<f32> {
        let sum = |row: &Vec<f64>| row.iter().fold(0.0, |sum, x| accumulate.round(sum + x));
        terms.iter().map(|row| store.round(sum(row)) as f32).collect()
    }

    #[test]
    fn f32_accumulation_passes_with_room_and_half_accumulation_fails() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for len in [1, 32, 1500, 20_000] {
                let terms: Vec<Vec<f64>> = (0..64).map(|row| values_in(dtype, row, len)).collect();
                let want: Vec<f64> = terms.iter().map(|row| row.iter().sum()).collect();
                let bound = tolerance(dtype, len);
                let error = relative_error(&naive_sums(&terms, Dtype::F32, dtype), &want);
                assert!(error < bound / 3.0, "{dtype:?} {len}: {error:e} of {bound:e}");
                if dtype != Dtype::F32 && len >= 1500 {
                    let error = relative_error(&naive_sums(&terms, dtype, dtype), &want);
                    assert!(error > bound * 1.5, "{dtype:?} {len}: {error:e} of {bound:e}");
                }
            }
        }
    }

    #[test]
    fn a_naive_f32_spmm_passes_on_every_fixture() {
        for f in fixtures() {
            let (width, kept) = (5, keep_all(&f));
            let x = values_in(Dtype::F32, 1, f.num_cols * width);
            let (u, v) = (values_in(Dtype::F32, 2, f.num_rows), values_in(Dtype::F32, 3, f.num_cols));
            let mut got = vec![0f32; f.num_rows * width];
            for (_, i, j) in f.edges() {
                for c in 0..width {
                    got[i * width + c] += u[i] as f32 * v[j] as f32 * x[j * width + c] as f32;
                }
            }
            let weights = SpmmWeights { dst_scale: Some(&u), src_scale: Some(&v), edge_weight: None };
            let want = spmm(&f, &x, width, &weights, &kept);
            assert_close(&f.name, &got, &want, Dtype::F32, f.max_degree());
        }
    }
}
