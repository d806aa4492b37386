//! Per-head reductions on the CPU.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::HeadBackend;
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, axpy, dot, with_storage};

/// Rows of one partial column sum: fixed, so that the order of the sum does not depend on the number of threads.
const ROWS_PER_PARTIAL: usize = 1024;

impl HeadBackend for Flex {
    fn head_dot(x: FloatTensor<Self>, y: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        let (x, y) = (x.to_contiguous(), y.to_contiguous());
        with_storage!(x.dtype(), E => with_storage!(y.dtype(), G => head_dot::<E, G>(&x, &y, heads)))
    }

    fn head_outer(
        w: FloatTensor<Self>,
        a: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (w, a) = (w.to_contiguous(), a.to_contiguous());
        with_storage!(dtype, E => head_outer::<E>(&w, &a, accumulate_into))
    }

    fn head_column_sum(x: FloatTensor<Self>, w: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        let (x, w) = (x.to_contiguous(), w.map(|w| w.to_contiguous()));
        with_storage!(x.dtype(), E => head_column_sum::<E>(&x, w.as_ref()))
    }
}

fn head_dot<E: Storage, G: Storage>(x: &FlexTensor, y: &FlexTensor, heads: usize) -> FlexTensor {
    let (rows, width) = (x.shape()[0], x.shape()[1]);
    let channels = width / heads;
    let (xs, ys) = (flex::slice::<E>(x), flex::slice::<G>(y));
    let shared = y.shape()[0] == 1;
    flex::by_task::<f32>(None, [rows, heads], 2 * width, &|task, block| {
        let (mut a, mut b) = (vec![0f32; width], vec![0f32; width]);
        for (r, values) in block.chunks_mut(heads).enumerate() {
            let i = task * ROWS_PER_TASK + r;
            let x_row = E::row(&xs[i * width..(i + 1) * width], &mut a);
            let y_at = if shared { 0 } else { i * width };
            let y_row = G::row(&ys[y_at..y_at + width], &mut b);
            for (h, value) in values.iter_mut().enumerate() {
                let head = h * channels..(h + 1) * channels;
                *value = dot(&x_row[head.clone()], &y_row[head]);
            }
        }
    })
}

fn head_outer<E: Storage>(w: &FlexTensor, a: &FlexTensor, accumulate_into: Option<FlexTensor>) -> FlexTensor {
    let (rows, heads, width) = (w.shape()[0], w.shape()[1], a.shape()[1]);
    let (ws, a) = (flex::slice::<f32>(w), flex::slice::<f32>(a));
    let channels = width / heads;
    flex::by_task::<E>(accumulate_into, [rows, width], width, &|task, block| {
        let mut sum = vec![0f32; width];
        for (r, row) in block.chunks_mut(width).enumerate() {
            let i = task * ROWS_PER_TASK + r;
            E::widen(row, &mut sum);
            for h in 0..heads {
                let head = h * channels..(h + 1) * channels;
                axpy(&mut sum[head.clone()], ws[i * heads + h], &a[head]);
            }
            E::narrow(&sum, row);
        }
    })
}

fn head_column_sum<E: Storage>(x: &FlexTensor, w: Option<&FlexTensor>) -> FlexTensor {
    let (rows, width, heads) = (x.shape()[0], x.shape()[1], w.map_or(1, |w| w.shape()[1]));
    let channels = width / heads;
    let (xs, ws) = (flex::slice::<E>(x), w.map(flex::slice::<f32>));
    let partial: Vec<Vec<f32>> = (0..rows.div_ceil(ROWS_PER_PARTIAL))
        .into_par_iter()
        .map(|chunk| {
            let (mut sum, mut scratch) = (vec![0f32; width], vec![0f32; width]);
            for i in chunk * ROWS_PER_PARTIAL..((chunk + 1) * ROWS_PER_PARTIAL).min(rows) {
                let row = E::row(&xs[i * width..(i + 1) * width], &mut scratch);
                for h in 0..heads {
                    let head = h * channels..(h + 1) * channels;
                    axpy(&mut sum[head.clone()], ws.map_or(1.0, |ws| ws[i * heads + h]), &row[head]);
                }
            }
            sum
        })
        .collect();
    let mut total = vec![0f32; width];
    partial.iter().for_each(|p| axpy(&mut total, 1.0, p));
    flex::tensor(total, [1, width])
}
