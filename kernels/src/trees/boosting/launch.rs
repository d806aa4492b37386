//! Gradients and margins on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::IntTensor;
use cubecl::prelude::*;

use super::kernel::{
    CONSTANTS, DerivativesArgs, LeavesArgs, LossInputsArgs, ScaledArgs, add_kernel, ascending_kernel,
    derivatives_kernel, fixed_kernel,
};
use super::{BoostBackend, BoostLoss, BoostParts, LAST_EXPONENT, LN_2_HIGH, LN_2_LOW, PER_LN_2, TAYLOR};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{address, empty, flat};
use crate::runtime::prims::kernel::THREADS;
use crate::trees::histogram::{i64_tensor, i64_to_host};
use crate::trees::split::GradientScale;

/// Most cubes of a launch that ends in one number per cube.
const CUBES: usize = 2048;

/// In the order of the kernel.
fn constants(class_weights: (f64, f64)) -> Vec<i64> {
    let mut words = Vec::with_capacity(CONSTANTS);
    words.extend([0, i64::MAX]);
    let doubles = [class_weights.0, class_weights.1, PER_LN_2, LN_2_HIGH, LN_2_LOW, LAST_EXPONENT];
    words.extend(doubles.iter().chain(&TAYLOR).map(|x| x.to_bits().cast_signed()));
    words
}

impl_for_devices! { BoostBackend =>
    // The smallest size that was measured: an H100 took a third of the time of 16 cores.
    const MIN_ROWS_FOR_DEVICE: Option<usize> = Some(100_000);

    fn boost_derivatives(parts: &BoostParts<IntTensor<Self>>) -> (IntTensor<Self>, [f64; 2]) {
        let margins = &parts.margins;
        let words = i64_tensor::<Self>(constants(parts.class_weights), &margins.device);
        let derivatives = empty(margins, [2 * parts.num_rows], DType::I64);
        let cubes = parts.num_rows.div_ceil(THREADS).min(CUBES);
        let largest = empty(margins, [2 * cubes], DType::I64);
        // SAFETY: there is a margin, label and, where it is read, weight for every row.
        unsafe {
            derivatives_kernel::launch_unchecked::<R>(
                &margins.client,
                CubeCount::Static(cubes as u32, 1, 1),
                CubeDim::new_1d(THREADS as u32),
                address(&[&derivatives]),
                LossInputsArgs {
                    margins: array(margins),
                    labels: array(&parts.labels),
                    weights: array(&parts.weights),
                    words: array(&words),
                }
                .launch(),
                DerivativesArgs { pairs: array(&derivatives), largest: array(&largest) }.launch(),
                parts.num_rows,
                parts.loss == BoostLoss::Logistic,
                parts.is_weighted,
            );
        }
        let of_cubes = i64_to_host::<Self>(largest);
        let (of_cubes, _) = of_cubes.as_chunks::<2>();
        let largest = of_cubes.iter().fold([0; 2], |a: [i64; 2], b| [a[0].max(b[0]), a[1].max(b[1])]);
        (derivatives, largest.map(|bits| f64::from_bits(bits.cast_unsigned())))
    }

    fn fixed_derivatives(derivatives: IntTensor<Self>, num_rows: usize, scale: &GradientScale) -> IntTensor<Self> {
        let factors = [1.0 / scale.grad_unit, 1.0 / scale.hess_unit].map(|x: f64| x.to_bits().cast_signed());
        let factors = i64_tensor::<Self>(factors.to_vec(), &derivatives.device);
        let pairs = empty(&derivatives, [2 * num_rows], DType::I32);
        let (count, dim) = flat(2 * num_rows);
        // SAFETY: two derivatives and two numbers per row.
        unsafe {
            fixed_kernel::launch_unchecked::<R>(
                &pairs.client,
                count,
                dim,
                address(&[&derivatives]),
                ScaledArgs { derivatives: array(&derivatives), factors: array(&factors) }.launch(),
                array(&pairs),
                2 * num_rows,
            );
        }
        pairs
    }

    fn add_leaves(
        margins: &mut IntTensor<Self>,
        rows: &IntTensor<Self>,
        num_rows: usize,
        starts: &IntTensor<Self>,
        values: &IntTensor<Self>,
        num_leaves: usize,
    ) {
        let (count, dim) = flat(num_rows);
        // SAFETY: the list is a permutation of all rows, so no two threads add to one margin.
        unsafe {
            add_kernel::launch_unchecked::<R>(
                &margins.client,
                count,
                dim,
                address(&[margins]),
                array(margins),
                LeavesArgs {
                    rows: array(rows),
                    starts: array(starts),
                    values: array(values),
                    num_rows,
                    count: num_leaves,
                }
                .launch(),
            );
        }
    }

    fn ascending_rows(like: &IntTensor<Self>, num_rows: usize) -> IntTensor<Self> {
        let rows = empty(like, [num_rows], DType::I32);
        let (count, dim) = flat(num_rows);
        // SAFETY: the loop ends at the length.
        unsafe {
            ascending_kernel::launch_unchecked::<R>(
                &rows.client,
                count,
                dim,
                address(&[&rows]),
                array(&rows),
                num_rows,
            );
        }
        rows
    }
}
