//! Gradients and margins on the CPU.

use burn::tensor::ops::IntTensor;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{BoostBackend, BoostParts, boost_derivatives, nearest};
use crate::runtime::flex::{ids, int_tensor};
use crate::trees::histogram::{i64_vector, i64s};
use crate::trees::split::GradientScale;

/// Rows of one task.
const TASK_ROWS: usize = 1 << 12;

fn float(bits: i32) -> f64 {
    f32::from_ne_bytes(bits.to_ne_bytes()).into()
}

fn double(bits: i64) -> f64 {
    f64::from_bits(bits.cast_unsigned())
}

impl BoostBackend for Flex {
    const MIN_ROWS_FOR_DEVICE: Option<usize> = None;

    fn boost_derivatives(parts: &BoostParts<IntTensor<Self>>) -> (IntTensor<Self>, [f64; 2]) {
        let (margins, labels, weights) = (i64s(&parts.margins), ids(&parts.labels), ids(&parts.weights));
        let of_row = |row: usize| {
            let label = float(labels[row]);
            let (grad, hess) = boost_derivatives(parts.loss, double(margins[row]), label);
            let of_class = if label > 0.5 { parts.class_weights.1 } else { parts.class_weights.0 };
            let weight = if parts.is_weighted { float(weights[row]) * of_class } else { of_class };
            [grad * weight, hess * weight].map(|x| x.to_bits().cast_signed())
        };
        let bits: Vec<[i64; 2]> = (0..parts.num_rows).into_par_iter().with_min_len(TASK_ROWS).map(of_row).collect();
        // Without its sign a double orders as its bits do, and infinity and NaN come last.
        let larger = |a: [i64; 2], b: [i64; 2]| [a[0].max(b[0]), a[1].max(b[1])];
        let magnitudes = |pair: &[i64; 2]| pair.map(|bits| bits & i64::MAX);
        let largest = bits.par_iter().with_min_len(TASK_ROWS).map(magnitudes).reduce(|| [0; 2], larger);
        (i64_vector(bits.into_flattened()), largest.map(double))
    }

    fn fixed_derivatives(derivatives: IntTensor<Self>, num_rows: usize, scale: &GradientScale) -> IntTensor<Self> {
        let by = [1.0 / scale.grad_unit, 1.0 / scale.hess_unit];
        let (pairs, _) = i64s(&derivatives)[..2 * num_rows].as_chunks::<2>();
        let fixed = |&[grad, hess]: &[i64; 2]| [nearest(double(grad) * by[0]), nearest(double(hess) * by[1])];
        let fixed: Vec<[i32; 2]> = pairs.par_iter().with_min_len(TASK_ROWS).map(fixed).collect();
        int_tensor(fixed.into_flattened(), [2 * num_rows])
    }

    fn add_leaves(
        margins: &mut IntTensor<Self>,
        rows: &IntTensor<Self>,
        num_rows: usize,
        starts: &IntTensor<Self>,
        values: &IntTensor<Self>,
        num_leaves: usize,
    ) {
        let (rows, starts, values) = (&ids(rows)[..num_rows], ids(starts), i64s(values));
        let margins: &mut [i64] = FlexTensor::storage_mut(margins);
        for leaf in 0..num_leaves {
            let value = double(values[leaf]);
            for &row in &rows[starts[leaf] as usize..starts[leaf + 1] as usize] {
                let margin = &mut margins[row as usize];
                *margin = (double(*margin) + value).to_bits().cast_signed();
            }
        }
    }

    fn ascending_rows(_: &IntTensor<Self>, num_rows: usize) -> IntTensor<Self> {
        int_tensor((0..num_rows as i32).collect(), [num_rows])
    }
}
