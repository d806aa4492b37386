//! Values of f32 as sums of two halves for tensor cores, which multiply halves twice as fast as tf32.
//!
//! A half has eleven bits: a value is its leading eleven, and what they leave, rounded to eleven. Three products out of
//! four give the product of two f32 but for a part in 2^21 (infinities give NaN).
//!
//! The exponent of a half has five bits. So each row of a left operand and each column of a right one is multiplied by
//! a power of two that makes the largest value 2^10 to 2^12, and sums are divided by both in the end. A value keeps all
//! its bits down to a 2^14th of the largest; the error of a smaller one is 2^-35 of the largest at most. Where larger
//! values come later, the power becomes smaller and the sums so far with it.
//!
//! Source: the splitting is that of Markidis et al., NVIDIA tensor core programmability, performance and precision
//! (2018); powers of two for halves are those of Ootomo and Yokota, Recovering single precision accuracy from tensor
//! cores while surpassing the FP32 theoretical peak performance (2022).

use cubecl::cmma::MmaDefinition;
use cubecl::prelude::*;

/// 2^100: the power before there are values.
pub(super) const START: f32 = 1.267_650_6e30;
/// Values are smaller, once they are multiplied.
const LIMIT: f32 = 32_768.0;

/// An even power of two that makes `most` 2^10 to 2^12; 2^100 for what is too small for that.
#[cube]
pub(super) fn power_for(most: f32) -> f32 {
    let exponent = u32::reinterpret(most) >> 23 & 0xFFu32;
    let exponent = select(exponent < 37u32, 37u32.runtime(), exponent);
    f32::reinterpret(((264u32 - exponent) | 1u32) << 23)
}

/// `1 / sqrt(power)`.
#[cube]
pub(super) fn root_of(power: f32) -> f32 {
    let exponent = u32::reinterpret(power) >> 23;
    f32::reinterpret((190u32 - exponent / 2u32) << 23)
}

/// The power that [`root_of`] was taken of.
#[cube]
pub(super) fn power_of(root: f32) -> f32 {
    f32::reinterpret(0xBE80_0000u32 - 2u32 * u32::reinterpret(root))
}

/// Whether `most`, multiplied by `power`, is too large for a half.
#[cube]
pub(super) fn exceeds(most: f32, power: f32) -> bool {
    most * power >= LIMIT
}

/// Lowers power `at` as far as `most` needs it, and returns what that multiplies it by.
#[cube]
pub(super) fn lower(powers: &mut Array<f32>, most: f32, #[comptime] at: usize) -> f32 {
    let before = powers[at];
    let fitting = select(exceeds(most, before), power_for(most), before);
    powers[at] = fitting;
    fitting * f32::reinterpret(0x7F00_0000u32 - u32::reinterpret(before))
}

/// The largest of four neighbouring lanes.
#[cube]
pub(super) fn most_of_four_lanes(own: f32) -> f32 {
    let most = max(own, plane_shuffle_xor(own, 1u32));
    max(most, plane_shuffle_xor(most, 2u32))
}

/// The column of the right operand that place `g` of fragment `n` stands for: two fragments share sixteen, so that a
/// lane has four results beside each other.
#[cube]
pub(super) fn column_of_place(g: usize, #[comptime] n: usize) -> usize {
    comptime!(n / 2 * 16 + n % 2 * 2) + g / 2 * 4 + g % 2
}

/// Puts the leading bits of two values, which fit the exponent of a half, at place `at`, and what they leave.
#[cube]
pub(super) fn take_apart<H: Float, P: Size>(
    first: f32,
    second: f32,
    lead: &mut Array<Vector<H, P>>,
    rest: &mut Array<Vector<H, P>>,
    #[comptime] at: usize,
) {
    let mut values = Vector::<f32, P>::empty();
    values[0] = first;
    values[1] = second;
    let mut bits = Vector::<f32, P>::empty();
    #[unroll]
    for k in 0..2usize {
        bits[k] = f32::reinterpret(u32::reinterpret(values[k]) & 0xFFFF_E000u32);
    }
    lead[at] = Vector::<H, P>::cast_from(bits);
    rest[at] = Vector::<H, P>::cast_from(values - bits);
}

/// Vectors of two in registers, so many for each fragment.
pub(super) type Fragments<E, P> = Sequence<Array<Vector<E, P>>>;

#[cube]
pub(super) fn fragments<E: Numeric, P: Size>(#[comptime] count: usize, #[comptime] len: usize) -> Fragments<E, P> {
    let mut all = Sequence::<Array<Vector<E, P>>>::new();
    #[unroll]
    for _ in 0..count {
        all.push(Array::<Vector<E, P>>::new(len));
    }
    all
}

/// Fragments `at` of the right operand: of the first two of four words, and of the other two.
#[cube]
pub(super) fn take_words<H: Float, N: Size, P: Size>(
    words: Vector<u32, N>,
    first: &mut Fragments<H, P>,
    other: &mut Fragments<H, P>,
    #[comptime] at: usize,
) {
    let first = first.index_mut(at);
    let other = other.index_mut(at);
    #[unroll]
    for k in 0..2usize {
        first[k] = Vector::<H, P>::reinterpret(words[k]);
        other[k] = Vector::<H, P>::reinterpret(words[2 + k]);
    }
}

/// Adds the product of fragment `l` of the left operand and fragment `r` of the right one to a fragment of the sums.
#[cube]
pub(super) fn multiply<H: Float, P: Size>(
    left: &Fragments<H, P>,
    right: &Fragments<H, P>,
    sums: &mut Fragments<f32, P>,
    #[comptime] l: usize,
    #[comptime] r: usize,
    #[comptime] fragment: usize,
) {
    let product = MmaDefinition::<H, H, f32>::new(16usize, 8usize, 16usize);
    product.execute_inplace(left.index(l), right.index(r), sums.index_mut(fragment));
}

#[cube]
pub(super) fn clear<P: Size>(sums: &mut Fragments<f32, P>, #[comptime] count: usize) {
    #[unroll]
    for fragment in 0..count {
        let own = sums.index_mut(fragment);
        #[unroll]
        for half in 0..2usize {
            own[half] = Vector::<f32, P>::empty().fill(0.0f32);
        }
    }
}
