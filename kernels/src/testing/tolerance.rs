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
mod tests;
