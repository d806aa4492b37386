//! Matrix products on the CPU: rayon over rows, `gemm` for those of a task.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexTensor};
use gemm::{Parallelism, gemm};
use rayon::prelude::*;

use super::LinearBackend;
use crate::runtime::flex::{self, Storage, axpy, dot, with_storage};
use crate::runtime::rows::in_blocks;

/// Rows of one task of a product: they and their results stay in the cache beside the weight.
const ROWS_PER_PRODUCT: usize = 128;
/// Multiplications that a thread takes at least: 10 us.
const WORK_PER_THREAD: usize = 1 << 20;
/// Rows of one partial weight gradient at least, the most partial ones, and the most elements of all of them together,
/// 64 MiB, where there are several: all fixed, so that the order of the sum does not depend on the number of threads.
const ROWS_PER_PARTIAL: usize = 256;
const MOST_PARTIALS: usize = 64;
const MOST_ELEMENTS: usize = 1 << 24;
/// Elements of a weight gradient that one task adds up.
const ELEMENTS_PER_TASK: usize = 4096;

/// How many rows a product `[rows, k] [k, width]` has to have at least so that each of them comes out the same to the
/// bit whatever others stand beside it.
///
/// `gemm` sums a row up in the order of `k` in all of its blocked products, but goes other ways where there are few
/// rows: one row is multiplied by columns, and with at most 64 rows and columns sums of more than 512 terms are parted
/// elsewhere. It also has ways of its own for one column, which is left to [`dot`].
fn least_rows(k: usize, width: usize) -> usize {
    if k > 512 && width <= 64 { 65 } else { 2 }
}

impl LinearBackend for Flex {
    fn product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        let w = by_rows(as_dtype(w, x.dtype()));
        let x = by_rows(x);
        with_storage!(x.dtype(), E => product::<E>(&x, &w))
    }

    fn weight_gradient(x: FloatTensor<Self>, g: FloatTensor<Self>, dtype: DType) -> FloatTensor<Self> {
        let (x, g) = (by_rows(x), by_rows(g));
        as_dtype(with_storage!(x.dtype(), E => weight_gradient::<E>(&x, &g)), dtype)
    }
}

fn product<E: Storage>(x: &FlexTensor, w: &FlexTensor) -> FlexTensor {
    let ([rows, k], width) = ([x.shape()[0], x.shape()[1]], w.shape()[1]);
    let (xs, mut wide_w) = (flex::slice::<E>(x), Vec::new());
    let ws = in_f32(flex::slice::<E>(w), &mut wide_w);
    let least = least_rows(k, width);
    let fewest = (WORK_PER_THREAD / (ROWS_PER_PRODUCT * k * width).max(1)).max(1);
    let (out, _) = in_blocks::<E, _>(rows * width, ROWS_PER_PRODUCT * width, fewest, &|task, block| {
        let some = block.len() / width;
        let xs = &xs[task * ROWS_PER_PRODUCT * k..][..some * k];
        if width == 1 {
            let (mut wide, mut sums) = (vec![0f32; k], vec![0f32; some]);
            sums.iter_mut().enumerate().for_each(|(r, sum)| *sum = dot(E::row(&xs[r * k..][..k], &mut wide), ws));
            return E::narrow(&sums, block);
        }
        if E::dtype() == DType::F32 && some >= least {
            let (block, xs) = (bytemuck::cast_slice_mut(block), bytemuck::cast_slice(xs));
            return multiply(block, (xs, [k, 1]), ws, [some, k, width]);
        }
        let all = some.max(least);
        let (mut wide, mut sums) = (vec![0f32; all * k], vec![0f32; all * width]);
        E::widen(xs, &mut wide[..some * k]);
        multiply(&mut sums, (&wide, [k, 1]), ws, [all, k, width]);
        E::narrow(&sums[..some * width], block);
    });
    flex::tensor(out, [rows, width])
}

/// `x^T g` in f32.
fn weight_gradient<E: Storage>(x: &FlexTensor, g: &FlexTensor) -> FlexTensor {
    let ([n, k], m) = ([x.shape()[0], x.shape()[1]], g.shape()[1]);
    let (xs, gs) = (flex::slice::<E>(x), flex::slice::<E>(g));
    let most = (MOST_ELEMENTS / (k * m).max(1)).clamp(1, MOST_PARTIALS);
    let rows = n.div_ceil(most).max(ROWS_PER_PARTIAL);
    let partial = |part: usize| {
        let (first, end) = (part * rows, n.min((part + 1) * rows));
        let (mut wide_x, mut wide_g) = (Vec::new(), Vec::new());
        let x = in_f32(&xs[first * k..end * k], &mut wide_x);
        let g = in_f32(&gs[first * m..end * m], &mut wide_g);
        let mut sums = vec![0f32; k * m];
        multiply(&mut sums, (x, [1, k]), g, [k, end - first, m]);
        sums
    };
    let fewest = (WORK_PER_THREAD / (rows * k * m).max(1)).max(1);
    let partials: Vec<Vec<f32>> = (0..n.div_ceil(rows)).into_par_iter().with_min_len(fewest).map(partial).collect();
    let (sum, _) = in_blocks::<f32, _>(k * m, ELEMENTS_PER_TASK, flex::at_least(ELEMENTS_PER_TASK), &|task, block| {
        for partial in &partials {
            axpy(block, 1.0, &partial[task * ELEMENTS_PER_TASK..][..block.len()]);
        }
    });
    flex::tensor(sum, Shape::new([k, m]))
}

/// The values as f32: themselves, or widened into `scratch`.
fn in_f32<'a, E: Storage>(values: &'a [E], scratch: &'a mut Vec<f32>) -> &'a [f32] {
    if E::dtype() != DType::F32 {
        scratch.resize(values.len(), 0.0);
    }
    E::row(values, scratch)
}

/// `out = a b` of an `a` of `rows x terms` elements at these strides and of a `b` of `terms x width`, row by row.
fn multiply(out: &mut [f32], (a, [row, column]): (&[f32], [usize; 2]), b: &[f32], [rows, terms, width]: [usize; 3]) {
    assert!(out.len() == rows * width && a.len() == rows * terms && b.len() == terms * width);
    let [row, column, width_of_b] = [row, column, width].map(|stride| stride as isize);
    let (out, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    // SAFETY: the lengths were just checked; the strides of `a` are those of its rows or of its columns.
    unsafe {
        gemm(
            rows,
            width,
            terms,
            out,
            1,
            width_of_b,
            false,
            a,
            column,
            row,
            b,
            1,
            width_of_b,
            0.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// The matrix itself, or a copy where its rows do not lie one behind the other.
fn by_rows(matrix: FlexTensor) -> FlexTensor {
    if matrix.layout().is_contiguous() { matrix } else { matrix.to_contiguous() }
}

fn as_dtype(tensor: FloatTensor<Flex>, dtype: DType) -> FloatTensor<Flex> {
    if tensor.dtype() == dtype { tensor } else { Flex::float_cast(tensor, dtype.into()) }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tensor};

    use super::*;
    use crate::linear;

    #[test]
    fn a_row_of_a_product_is_the_same_whatever_rows_stand_beside_it() {
        let device = Default::default();
        for (k, width) in [(1, 7), (2, 16), (3, 1), (29, 128), (64, 64), (130, 33), (513, 64), (600, 8), (1100, 96)] {
            let x = Tensor::<Flex, 2>::random([1100, k], Distribution::Normal(0.0, 1.0), &device);
            let w = Tensor::<Flex, 2>::random([k, width], Distribution::Normal(0.0, 1.0), &device);
            let turned = Tensor::<Flex, 2>::random([width, k], Distribution::Normal(0.0, 1.0), &device).transpose();
            for w in [w, turned] {
                let bits = |rows: Tensor<Flex, 2>| -> Vec<u32> {
                    let values = linear(rows, w.clone(), None).into_data().to_vec::<f32>().unwrap();
                    values.into_iter().map(f32::to_bits).collect()
                };
                let all = bits(x.clone());
                for rows in [1, 2, 3, 5, 8, 16, 31, 64, 65, 211, 256, 257, 600] {
                    for first in [0, 1100 - rows, (1100 - rows) / 3] {
                        let found = bits(x.clone().narrow(0, first, rows));
                        assert!(found == all[first * width..][..rows * width], "{rows} rows of {k} x {width}");
                    }
                }
            }
        }
    }
}
