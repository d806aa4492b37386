//! Exponentials of scores.

use super::element::{load_first, store_first};
use super::isa::{Kernel, dispatch};
use super::vector::{MAX_LANES, Vector};

/// Turns the scores of a softmax row into unnormalised weights, `v = exp(v - max)`; returns `(max, sum)`, which is
/// `(f32::MIN, 0)` when there are none.
pub(crate) fn exp_weights(values: &mut [f32]) -> (f32, f32) {
    dispatch(ExpWeights { values })
}

/// `v = exp(v)`: relative error below 2e-7 from -87.3 to 88.3, 0 below and infinity above; NaN of NaN only.
pub(crate) fn exp_all(values: &mut [f32]) {
    dispatch(OnEach::<false> { values });
}

/// `v = v` above 0, `exp(v) - 1` elsewhere: relative error below 2e-7, NaN of NaN only. A value has the same result
/// wherever it stands.
pub(crate) fn elu_all(values: &mut [f32]) {
    dispatch(OnEach::<true> { values });
}

/// `2^n` and `exp(r) - 1` of `x = n ln 2 + r` with `|r| <= ln 2 / 2`, for `n` from -127 to 128.
///
/// The polynomial is that of Cephes. `ln 2` comes in two parts; the product of the first with `n` is exact.
///
/// # Safety
/// That of [`Vector`].
#[inline(always)]
unsafe fn exp_parts<V: Vector>(x: V) -> (V, V) {
    // Adding 1.5 * 2^23 rounds to an integer.
    const ROUND: f32 = 12_582_912.0;
    // SAFETY: by the contract.
    unsafe {
        let shifted = x.mul_add(V::splat(std::f32::consts::LOG2_E), V::splat(ROUND));
        let n = shifted.mul_add(V::splat(1.0), V::splat(-ROUND));
        let r = n.mul_add(V::splat(-0.693_359_4), x);
        let r = n.mul_add(V::splat(2.121_944_4e-4), r);
        let mut p = V::splat(1.987_569_2e-4);
        for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = p.mul_add(r, V::splat(coefficient));
        }
        (shifted.power_of_two(), p.mul_add(r.mul_add(r, V::splat(0.0)), r))
    }
}

/// `exp(x)`
///
/// # Safety
/// That of [`Vector`].
#[inline(always)]
pub(super) unsafe fn exp<V: Vector>(x: V) -> V {
    // SAFETY: by the contract.
    unsafe {
        // At the ends the power of two is 0 and infinity.
        let (scale, p) = exp_parts(x.at_least(V::splat(-88.0)).at_most(V::splat(88.7)));
        p.mul_add(V::splat(1.0), V::splat(1.0)).mul_add(scale, V::splat(0.0))
    }
}

/// `x` above 0, `exp(x) - 1` elsewhere, which is `2^n (exp(r) - 1) + (2^n - 1)`.
///
/// # Safety
/// That of [`Vector`].
#[inline(always)]
unsafe fn elu<V: Vector>(x: V) -> V {
    // SAFETY: by the contract.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        // Far below 0 the result is -1. Above it the exponential is 1 to the bit.
        let (scale, p) = exp_parts(x.at_most(zero).at_least(V::splat(-80.0)));
        let below = scale.mul_add(p, scale.mul_add(one, V::splat(-1.0)));
        x.at_least(zero).mul_add(one, below)
    }
}

/// Numbers of a register, and room for those of the longest.
pub(super) type Lanes = [f32; MAX_LANES];

/// The greatest lane.
///
/// # Safety
/// That of [`Vector`].
#[inline(always)]
pub(super) unsafe fn greatest<V: Vector>(of: V) -> f32 {
    let mut lanes: Lanes = [f32::MIN; MAX_LANES];
    // SAFETY: by the contract.
    unsafe { of.store(lanes.as_mut_ptr()) };
    let mut half = MAX_LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = if lanes[l + half] > lanes[l] { lanes[l + half] } else { lanes[l] };
        }
        half /= 2;
    }
    lanes[0]
}

/// [`exp_all`], or [`elu_all`].
struct OnEach<'a, const ELU: bool> {
    values: &'a mut [f32],
}

impl<const ELU: bool> Kernel for OnEach<'_, ELU> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for block in self.values.chunks_mut(V::LANES) {
            let (values, count) = (block.as_mut_ptr(), block.len());
            // SAFETY: by the contract; there are `count` values, `LANES` at most.
            unsafe {
                let x = load_first::<V, f32>(values, count);
                store_first(if ELU { elu(x) } else { exp(x) }, values, count);
            }
        }
    }
}

/// [`exp_weights`].
struct ExpWeights<'a> {
    values: &'a mut [f32],
}

impl Kernel for ExpWeights<'_> {
    type Output = (f32, f32);
    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> (f32, f32) {
        let (blocks, tail) = self.values.split_at_mut(self.values.len() / V::LANES * V::LANES);
        // The last values, followed by what counts for nothing.
        let mut last: Lanes = [f32::NEG_INFINITY; MAX_LANES];
        last[..tail.len()].copy_from_slice(tail);
        // SAFETY: by the contract; blocks have `LANES` values.
        unsafe {
            let mut max = V::splat(f32::MIN).at_least(V::load(last.as_ptr()));
            for block in blocks.chunks_exact(V::LANES) {
                max = max.at_least(V::load(block.as_ptr()));
            }
            let max = greatest(max);
            let (one, mut sum) = (V::splat(1.0), V::splat(0.0));
            for block in blocks.chunks_exact_mut(V::LANES).chain([&mut last[..V::LANES]]) {
                let v = exp(V::load(block.as_ptr()).mul_add(one, V::splat(-max)));
                v.store(block.as_mut_ptr());
                sum = v.mul_add(one, sum);
            }
            tail.copy_from_slice(&last[..tail.len()]);
            (max, V::sums([sum; 4])[0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::isa::{Isa, run_on};
    use super::*;

    #[test]
    fn exponentials_are_those_of_f64() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let inputs: Vec<f32> = (0..2_000_000).map(|i| -87.3 + i as f32 * (175.6 / 2_000_000.0)).collect();
            let mut values = inputs.clone();
            // SAFETY: the instruction set is available.
            unsafe { run_on(isa, OnEach::<false> { values: &mut values }) };
            for (&x, &y) in inputs.iter().zip(&values) {
                let error = f64::from(y) / f64::from(x).exp() - 1.0;
                assert!(error.abs() < 2e-7, "{isa:?}: exp({x}) is {y}, off by {error:e}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_are_exact() {
        let inputs = [0.0, -0.0, -88.0, -1e4, f32::MIN, f32::NEG_INFINITY, 89.0, f32::MAX, f32::INFINITY];
        let expected = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, f32::INFINITY, f32::INFINITY, f32::INFINITY];
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            // Both in a whole block and in the rest.
            for repeats in [1, 2, 5] {
                let mut values = inputs.repeat(repeats);
                // SAFETY: the instruction set is available.
                unsafe { run_on(isa, OnEach::<false> { values: &mut values }) };
                assert_eq!(values, expected.repeat(repeats));
                let mut values = vec![f32::NAN; 3 * repeats];
                // SAFETY: as above.
                unsafe { run_on(isa, OnEach::<false> { values: &mut values }) };
                assert!(values.iter().all(|v| v.is_nan()));
            }
        }
        let mut empty = [0f32; 0];
        exp_all(&mut empty);
    }

    #[test]
    fn exponential_units_are_those_of_f64_wherever_they_stand() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let small = (0..400_000).map(|i| -(i as f32 * -1e-4).exp2());
            let inputs: Vec<f32> = small.chain((0..1_000_003).map(|i| i as f32 * -1e-4 + 5.0)).collect();
            let mut values = inputs.clone();
            // SAFETY: the instruction set is available.
            unsafe { run_on(isa, OnEach::<true> { values: &mut values }) };
            for (at, (&x, &y)) in inputs.iter().zip(&values).enumerate() {
                let want = if x > 0.0 { f64::from(x) } else { f64::from(x).exp_m1() };
                let error = (f64::from(y) - want).abs();
                assert!(error <= 2e-7 * want.abs(), "{isa:?}: elu({x}) is {y}, off by {error:e}");
                if at % 1009 == 0 {
                    let mut alone = [x];
                    // SAFETY: as above.
                    unsafe { run_on(isa, OnEach::<true> { values: &mut alone }) };
                    assert_eq!(alone[0].to_bits(), y.to_bits(), "{isa:?}: elu({x}) alone");
                }
            }
            let mut ends = [0.0, -0.0, f32::MIN, f32::NEG_INFINITY, f32::MAX, f32::INFINITY, f32::NAN];
            // SAFETY: as above.
            unsafe { run_on(isa, OnEach::<true> { values: &mut ends }) };
            assert_eq!(ends[..6], [0.0, 0.0, -1.0, -1.0, f32::MAX, f32::INFINITY]);
            assert!(ends[6].is_nan());
        }
    }

    #[test]
    fn weights_are_those_of_f64() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            for len in [0, 1, 3, 7, 8, 15, 16, 17, 31, 32, 33, 62, 64, 100, 1000] {
                let scores: Vec<f32> = (0..len).map(|i| ((i * 37 + 11) % 101) as f32 * 0.5 - 40.0).collect();
                let mut values = scores.clone();
                // SAFETY: the instruction set is available.
                let (max, sum) = unsafe { run_on(isa, ExpWeights { values: &mut values }) };
                assert_eq!(max, scores.iter().fold(f32::MIN, |a, &b| a.max(b)));
                let expected: Vec<f64> = scores.iter().map(|&v| f64::from(v - max).exp()).collect();
                assert!((f64::from(sum) - expected.iter().sum::<f64>()).abs() <= 1e-6 * f64::from(sum));
                for (v, e) in values.into_iter().zip(expected) {
                    assert!((f64::from(v) - e).abs() <= 2e-7 * e);
                }
            }
        }
        assert_eq!(exp_weights(&mut []), (f32::MIN, 0.0));
        assert_eq!(exp_weights(&mut [f32::MIN; 3]), (f32::MIN, 3.0));
        assert_eq!(exp_weights(&mut [f32::NEG_INFINITY; 3]), (f32::MIN, 0.0));
        assert!(exp_weights(&mut [1.0, f32::NAN]).1.is_nan());
    }
}
