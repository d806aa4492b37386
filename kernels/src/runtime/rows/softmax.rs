//! Exponentials of scores.

use super::vector::{Kernel, MAX_LANES, Vector, dispatch};

/// Turns the scores of a softmax row into unnormalised weights, `v = exp(v - max)`; returns `(max, sum)`, which is
/// `(f32::MIN, 0)` when there are none.
pub(crate) fn exp_weights(values: &mut [f32]) -> (f32, f32) {
    dispatch(ExpWeights { values })
}

/// `v = exp(v)`: relative error below 2e-7 from -87.3 to 88.3, 0 below and infinity above; NaN of NaN only.
pub(crate) fn exp_all(values: &mut [f32]) {
    dispatch(ExpAll { values });
}

/// `v = v` above 0, `exp(v) - 1` elsewhere: relative error below 2e-7, NaN of NaN only. A value has the same result
/// wherever it stands.
pub(crate) fn elu_all(values: &mut [f32]) {
    dispatch(EluAll { values });
}

/// `2^n` and `exp(r) - 1` of `x = n ln 2 + r` with `|r| <= ln 2 / 2`, without a branch, so that loops over it become
/// vector code.
///
/// The polynomial is that of Cephes, the factor `2^n` is put together from bits. `ln 2` comes in two parts; the product
/// of the first with `n` is exact.
#[inline(always)]
fn exp_parts<V: Vector>(x: f32) -> (f32, f32) {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = V::scalar_mul_add(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = V::scalar_mul_add(n, -0.693_359_4, x);
    let r = V::scalar_mul_add(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_2e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = V::scalar_mul_add(p, r, coefficient);
    }
    (f32::from_bits(shifted.to_bits().wrapping_add(127) << 23), V::scalar_mul_add(p, r * r, r))
}

/// `exp(x)`
#[inline(always)]
pub(super) fn exp<V: Vector>(x: f32) -> f32 {
    let (scale, p) = exp_parts::<V>(x);
    // Outside of the range of n the scale is nonsense. Comparisons with NaN are false and let it through.
    let y = if x < -87.336_54 { 0.0 } else { (p + 1.0) * scale };
    if x > 88.376_26 { f32::INFINITY } else { y }
}

/// `x` above 0, `exp(x) - 1` elsewhere, which is `2^n (exp(r) - 1) + (2^n - 1)`.
#[inline(always)]
fn elu<V: Vector>(x: f32) -> f32 {
    // Far below 0 the result is -1, and n must not leave its range.
    let (scale, p) = exp_parts::<V>(if x < -80.0 { -80.0 } else { x });
    let below = V::scalar_mul_add(scale, p, scale - 1.0);
    if x > 0.0 { x } else { below }
}

/// Lanes of the loops left to the compiler to vectorise. It may not change the order of f32 sums: each lane has its
/// own.
pub(super) type Lanes = [f32; MAX_LANES];

/// The last values, followed by what counts for nothing in a softmax.
#[inline(always)]
fn padded(tail: &[f32]) -> Lanes {
    let mut lanes = [f32::NEG_INFINITY; MAX_LANES];
    lanes[..tail.len()].copy_from_slice(tail);
    lanes
}

/// `v = exp(v - shift)`.
#[inline(always)]
fn exp_lanes<V: Vector>(lanes: &mut Lanes, shift: f32) {
    for v in lanes {
        *v = exp::<V>(*v - shift);
    }
}

/// One number of all lanes, by halves.
#[inline(always)]
pub(super) fn reduce(mut lanes: Lanes, of: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = MAX_LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = of(lanes[l], lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The greater; unlike `f32::max` one instruction.
#[inline(always)]
pub(super) fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// [`exp_all`].
struct ExpAll<'a> {
    values: &'a mut [f32],
}

impl Kernel for ExpAll<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (blocks, tail) = self.values.as_chunks_mut::<MAX_LANES>();
        for block in blocks {
            exp_lanes::<V>(block, 0.0);
        }
        let mut last = padded(tail);
        exp_lanes::<V>(&mut last, 0.0);
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

/// [`elu_all`].
struct EluAll<'a> {
    values: &'a mut [f32],
}

impl Kernel for EluAll<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (blocks, tail) = self.values.as_chunks_mut::<MAX_LANES>();
        let mut last = padded(tail);
        for block in blocks.iter_mut().chain([&mut last]) {
            for v in block {
                *v = elu::<V>(*v);
            }
        }
        tail.copy_from_slice(&last[..tail.len()]);
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
        let (blocks, tail) = self.values.as_chunks_mut::<MAX_LANES>();
        let mut last = padded(tail);
        let mut max = [f32::MIN; MAX_LANES];
        for block in blocks.iter().chain([&last]) {
            for l in 0..MAX_LANES {
                max[l] = greater(block[l], max[l]);
            }
        }
        let max = reduce(max, greater);
        let mut sums = [0f32; MAX_LANES];
        for block in blocks.iter_mut().chain([&mut last]) {
            exp_lanes::<V>(block, max);
            for l in 0..MAX_LANES {
                sums[l] += block[l];
            }
        }
        tail.copy_from_slice(&last[..tail.len()]);
        (max, reduce(sums, |a, b| a + b))
    }
}

#[cfg(test)]
mod tests {
    use super::super::vector::{Isa, run_on};
    use super::*;

    #[test]
    fn exponentials_are_those_of_f64() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let inputs: Vec<f32> = (0..2_000_000).map(|i| -87.3 + i as f32 * (175.6 / 2_000_000.0)).collect();
            let mut values = inputs.clone();
            // SAFETY: the instruction set is available.
            unsafe { run_on(isa, ExpAll { values: &mut values }) };
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
                unsafe { run_on(isa, ExpAll { values: &mut values }) };
                assert_eq!(values, expected.repeat(repeats));
                let mut values = vec![f32::NAN; 3 * repeats];
                // SAFETY: as above.
                unsafe { run_on(isa, ExpAll { values: &mut values }) };
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
            unsafe { run_on(isa, EluAll { values: &mut values }) };
            for (at, (&x, &y)) in inputs.iter().zip(&values).enumerate() {
                let want = if x > 0.0 { f64::from(x) } else { f64::from(x).exp_m1() };
                let error = (f64::from(y) - want).abs();
                assert!(error <= 2e-7 * want.abs(), "{isa:?}: elu({x}) is {y}, off by {error:e}");
                if at % 1009 == 0 {
                    let mut alone = [x];
                    // SAFETY: as above.
                    unsafe { run_on(isa, EluAll { values: &mut alone }) };
                    assert_eq!(alone[0].to_bits(), y.to_bits(), "{isa:?}: elu({x}) alone");
                }
            }
            let mut ends = [0.0, -0.0, f32::MIN, f32::NEG_INFINITY, f32::MAX, f32::INFINITY, f32::NAN];
            // SAFETY: as above.
            unsafe { run_on(isa, EluAll { values: &mut ends }) };
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
