//! Dot products with every row on the CPU.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::RowDotsBackend;
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, axpy, with_storage};
use crate::runtime::rows::consecutive;

/// The rows of a task.
const IN_ORDER: [u32; ROWS_PER_TASK] = consecutive();

/// Rows of one partial column sum: fixed, so that the order of the sum does not depend on the number of threads.
const ROWS_PER_PARTIAL: usize = 1024;

impl RowDotsBackend for Flex {
    fn row_dots_forward(x: FloatTensor<Self>, vectors: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, vectors) = (x.to_contiguous(), vectors.to_contiguous());
        with_storage!(x.dtype(), E => forward::<E>(&x, &vectors))
    }

    fn row_dots_gradient(
        g: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (g, vectors) = (g.to_contiguous(), vectors.to_contiguous());
        with_storage!(dtype, E => gradient::<E>(&g, &vectors, accumulate_into))
    }

    fn weighted_column_sums(x: FloatTensor<Self>, g: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, g) = (x.to_contiguous(), g.to_contiguous());
        with_storage!(x.dtype(), E => column_sums::<E>(&x, &g))
    }
}

fn forward<E: Storage>(x: &FlexTensor, vectors: &FlexTensor) -> FlexTensor {
    let (rows, d, count) = (x.shape()[0], x.shape()[1], vectors.shape()[0]);
    let (xs, vs) = (flex::slice::<E>(x), flex::slice::<f32>(vectors));
    flex::by_task::<f32>(None, [rows, count], count * d, &|task, block| {
        let some = block.len() / count;
        let (xs, ids) = (&xs[task * ROWS_PER_TASK * d..][..some * d], &IN_ORDER[..some]);
        let mut dots = [0f32; ROWS_PER_TASK];
        for k in 0..count {
            E::dot_rows(&mut dots[..some], &vs[k * d..(k + 1) * d], xs, d, 0, ids);
            block.iter_mut().skip(k).step_by(count).zip(dots).for_each(|(out, dot)| *out = dot);
        }
    })
}

fn gradient<E: Storage>(g: &FlexTensor, vectors: &FlexTensor, accumulate_into: Option<FlexTensor>) -> FlexTensor {
    let (rows, count, d) = (g.shape()[0], g.shape()[1], vectors.shape()[1]);
    let (gs, vs) = (flex::slice::<f32>(g), flex::slice::<f32>(vectors));
    flex::by_task::<E>(accumulate_into, [rows, d], count * d, &|task, block| {
        let mut sum = vec![0f32; d];
        for (r, row) in block.chunks_mut(d.max(1)).enumerate() {
            let i = task * ROWS_PER_TASK + r;
            E::widen(row, &mut sum);
            for k in 0..count {
                axpy(&mut sum, gs[i * count + k], &vs[k * d..(k + 1) * d]);
            }
            E::narrow(&sum, row);
        }
    })
}

fn column_sums<E: Storage>(x: &FlexTensor, g: &FlexTensor) -> FlexTensor {
    let (rows, d, count) = (x.shape()[0], x.shape()[1], g.shape()[1]);
    let (xs, gs) = (flex::slice::<E>(x), flex::slice::<f32>(g));
    let partial: Vec<Vec<f32>> = (0..rows.div_ceil(ROWS_PER_PARTIAL))
        .into_par_iter()
        .map(|chunk| {
            let (mut sum, mut scratch) = (vec![0f32; count * d], vec![0f32; d]);
            for i in chunk * ROWS_PER_PARTIAL..((chunk + 1) * ROWS_PER_PARTIAL).min(rows) {
                let weights = &gs[i * count..(i + 1) * count];
                if weights.iter().all(|&w| w == 0.0) {
                    continue;
                }
                let row = E::row(&xs[i * d..(i + 1) * d], &mut scratch);
                for (k, &w) in weights.iter().enumerate() {
                    axpy(&mut sum[k * d..(k + 1) * d], w, row);
                }
            }
            sum
        })
        .collect();
    let mut total = vec![0f32; count * d];
    partial.iter().for_each(|p| axpy(&mut total, 1.0, p));
    flex::tensor(total, [count, d])
}
