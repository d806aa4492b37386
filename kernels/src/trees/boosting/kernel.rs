//! A thread per row. The arithmetic is that of [`boost_derivatives`](super::boost_derivatives), product for product.

use cubecl::prelude::*;

use super::TAYLOR;
use crate::runtime::args::launch_args;
use crate::runtime::prims::Reduction;
use crate::runtime::prims::kernel::{THREADS, cube_reduce};
use crate::trees::split::kernel::{double, kept, rounded};

/// Words of the constants: a zero that [`kept`] needs, all bits of a double but its sign, the weights of both classes,
/// those of the decay and its terms.
pub(crate) const ZERO: usize = 0;
const MAGNITUDE: usize = 1;
const CLASSES: usize = 2;
const PER_LN_2: usize = 4;
const LN_2_HIGH: usize = 5;
const LN_2_LOW: usize = 6;
const LAST_EXPONENT: usize = 7;
const FIRST_TERM: usize = 8;
pub(crate) const CONSTANTS: usize = FIRST_TERM + TAYLOR.len();

#[cube]
fn decay(words: &Array<i64>, x: f64) -> f64 {
    let scaled = kept(x * double(words, PER_LN_2.runtime()), words[ZERO]) + 0.5f64;
    let exponent = scaled.floor();
    // The first product is exact.
    let left = x - exponent * double(words, LN_2_HIGH.runtime());
    let rest = kept(exponent * double(words, LN_2_LOW.runtime()), words[ZERO]) - left;
    let mut sum = f64::new(0.0f32);
    for term in 0..comptime!(TAYLOR.len()) {
        let next = double(words, comptime!(FIRST_TERM + TAYLOR.len() - 1) - term);
        sum = kept(sum * rest, words[ZERO]) + next;
    }
    let bits = (i64::cast_from(1023i32) - i64::cast_from(exponent)) << i64::cast_from(52i32);
    let value = sum * f64::reinterpret(bits);
    select(x > double(words, LAST_EXPONENT.runtime()), f64::new(0.0f32), value)
}

launch_args! {
    /// Margins, labels and weights of rows, and the constants.
    LossInputs, LossInputsArgs {
        margins: Array<f64>,
        labels: Array<f32>,
        weights: Array<f32>,
        words: Array<i64>,
    }
}

launch_args! {
    /// Gradient and hessian of every row, and the largest of every cube as bits.
    Derivatives, DerivativesArgs {
        pairs: Array<f64>,
        largest: Array<i64>,
    }
}

launch_args! {
    /// Derivatives, and the factors of gradients and of hessians.
    Scaled, ScaledArgs {
        derivatives: Array<f64>,
        factors: Array<f64>,
    }
}

launch_args! {
    /// The list of rows, where the leaves begin in it, and the value of each.
    Leaves, LeavesArgs {
        rows: Array<i32>,
        starts: Array<i32>,
        values: Array<f64>,
        num_rows: usize,
        count: usize,
    }
}

/// Gradient and hessian of every row, and for every cube the largest magnitudes as bits.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn derivatives_kernel(
    inputs: &LossInputs,
    out: &mut Derivatives,
    num_rows: usize,
    #[comptime] logistic: bool,
    #[comptime] weighted: bool,
) {
    let mut shared = SharedMemory::<i64>::new(THREADS);
    let magnitude = inputs.words[MAGNITUDE];
    let mut max_grad = inputs.words[ZERO];
    let mut max_hess = inputs.words[ZERO];
    let mut row = ABSOLUTE_POS;
    while row < num_rows {
        let margin = inputs.margins[row];
        let label = f64::cast_from(inputs.labels[row]);
        let mut grad = margin - label;
        let mut hess = f64::new(1.0f32);
        if comptime!(logistic) {
            let e = decay(&inputs.words, select(margin < 0.0f64, -margin, margin));
            let near = 1.0f64 / (1.0f64 + e);
            let far = e / (1.0f64 + e);
            grad = select(margin < 0.0f64, far, near) - label;
            hess = near * far;
        }
        let mut weight =
            select(label > 0.5f64, double(&inputs.words, CLASSES + 1), double(&inputs.words, CLASSES.runtime()));
        if comptime!(weighted) {
            weight *= f64::cast_from(inputs.weights[row]);
        }
        grad *= weight;
        hess *= weight;
        out.pairs[2 * row] = grad;
        out.pairs[2 * row + 1] = hess;
        let grad_bits = i64::reinterpret(grad) & magnitude;
        let hess_bits = i64::reinterpret(hess) & magnitude;
        max_grad = select(grad_bits > max_grad, grad_bits, max_grad);
        max_hess = select(hess_bits > max_hess, hess_bits, max_hess);
        row += CUBE_COUNT * THREADS;
    }
    let grads = cube_reduce::<i64>(max_grad, &mut shared, Reduction::Max);
    let hessians = cube_reduce::<i64>(max_hess, &mut shared, Reduction::Max);
    if UNIT_POS == 0 {
        out.largest[2 * CUBE_POS] = grads;
        out.largest[2 * CUBE_POS + 1] = hessians;
    }
}

/// Derivatives times powers of two, to the nearest whole number.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn fixed_kernel(inputs: &Scaled, pairs: &mut Array<i32>, len: usize) {
    let mut k = ABSOLUTE_POS;
    while k < len {
        pairs[k] = i32::cast_from(rounded(inputs.derivatives[k] * inputs.factors[k % 2]));
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// The leaf of a place in the list is found by halving.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn add_kernel(margins: &mut Array<f64>, leaves: &Leaves) {
    let mut k = ABSOLUTE_POS;
    while k < leaves.num_rows {
        let mut leaf = 0usize;
        let mut end = leaves.count;
        while leaf + 1 < end {
            let middle = (leaf + end) / 2;
            if usize::cast_from(leaves.starts[middle]) <= k {
                leaf = middle;
            } else {
                end = middle;
            }
        }
        let row = usize::cast_from(leaves.rows[k]);
        margins[row] += leaves.values[leaf];
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn ascending_kernel(rows: &mut Array<i32>, num_rows: usize) {
    let mut k = ABSOLUTE_POS;
    while k < num_rows {
        rows[k] = i32::cast_from(k);
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
