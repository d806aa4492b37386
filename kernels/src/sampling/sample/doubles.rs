//! Doubles that kernels compute with, as pairs of words.

use super::rule::{TERMS, term};

/// Which of them stands where. The first is a zero, of which compilers do not know that it is one.
pub(crate) const ZERO: usize = 0;
pub(crate) const LN_2: usize = 1;
pub(crate) const SQRT_2: usize = 2;
/// What the last bit of a draw from [0, 1) is worth, and that of the smallest numbers in single precision.
pub(crate) const DRAWN_BIT: usize = 3;
pub(crate) const SMALL_BIT: usize = 4;
/// Of the logarithm.
pub(crate) const FIRST_TERM: usize = 5;

/// The upper and the lower word of a double.
pub(crate) fn halves(x: f64) -> [u32; 2] {
    [(x.to_bits() >> 32) as u32, x.to_bits() as u32]
}

/// The words of all of them.
pub(crate) fn words() -> impl Iterator<Item = u32> {
    use std::f64::consts;
    let bit = |exponent: i32| 2f64.powi(exponent);
    let first = [0.0, consts::LN_2, consts::SQRT_2, bit(-53), bit(-149)];
    first.into_iter().chain((0..TERMS).map(term)).flat_map(halves)
}
