//! The end of a layer on the CPU.

use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};

use super::{Activation, CombineBackend};
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, axpy, with_storage};
use crate::runtime::rows::{elu_all, in_blocks};

/// Rows of one partial column sum: fixed, so that the order of the sum does not depend on the number of threads.
const ROWS_PER_SUM: usize = 256;

impl CombineBackend for Flex {
    fn combine_forward(
        parts: Vec<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let parts: Vec<_> = parts.into_iter().map(|p| p.to_contiguous()).collect();
        let bias = bias.map(|b| b.to_contiguous());
        with_storage!(parts[0].dtype(), E => forward::<E>(&parts, bias.as_ref(), scale, activation))
    }

    fn combine_backward(
        g: FloatTensor<Self>,
        out: FloatTensor<Self>,
        scale: f32,
        activation: Activation,
        bias: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (g, out) = (g.to_contiguous(), out.to_contiguous());
        with_storage!(out.dtype(), E => backward::<E>(&g, &out, scale, activation, bias))
    }
}

fn forward<E: Storage>(
    parts: &[FlexTensor],
    bias: Option<&FlexTensor>,
    scale: f32,
    activation: Activation,
) -> FlexTensor {
    let (rows, d) = (parts[0].shape()[0], parts[0].shape()[1]);
    let parts: Vec<&[E]> = parts.iter().map(flex::slice::<E>).collect();
    let bias = bias.map(flex::slice::<f32>);
    flex::by_task::<E>(None, [rows, d], parts.len() * d, &|task, block| {
        let (mut sum, mut scratch) = (vec![0f32; d], vec![0f32; d]);
        for (r, row) in block.chunks_mut(d.max(1)).enumerate() {
            let at = (task * ROWS_PER_TASK + r) * d;
            match bias {
                Some(bias) => sum.copy_from_slice(bias),
                None => sum.fill(0.0),
            }
            for part in &parts {
                axpy(&mut sum, 1.0, E::row(&part[at..at + d], &mut scratch));
            }
            match activation {
                Activation::Identity => sum.iter_mut().for_each(|y| *y *= scale),
                Activation::Relu => sum.iter_mut().for_each(|y| *y = (*y * scale).max(0.0)),
                Activation::Elu => {
                    sum.iter_mut().for_each(|y| *y *= scale);
                    elu_all(&mut sum);
                }
            }
            E::narrow(&sum, row);
        }
    })
}

fn backward<E: Storage>(
    g: &FlexTensor,
    out: &FlexTensor,
    scale: f32,
    activation: Activation,
    bias: bool,
) -> (FlexTensor, Option<FlexTensor>) {
    let (rows, d) = (out.shape()[0], out.shape()[1]);
    let (gs, ys) = (flex::slice::<E>(g), flex::slice::<E>(out));
    let (dx, partial) = in_blocks::<E, _>(rows * d, ROWS_PER_SUM * d, 1, &|task, block| {
        let (mut dy, mut scratch) = (vec![0f32; d], vec![0f32; d]);
        let mut sum = vec![0f32; if bias { d } else { 0 }];
        for (r, row) in block.chunks_mut(d.max(1)).enumerate() {
            let at = (task * ROWS_PER_SUM + r) * d;
            E::widen(&gs[at..at + d], &mut dy);
            let slopes = dy.iter_mut().zip(E::row(&ys[at..at + d], &mut scratch));
            match activation {
                Activation::Identity => slopes.for_each(|(dy, _)| *dy *= scale),
                Activation::Relu => slopes.for_each(|(dy, &y)| *dy *= if y > 0.0 { scale } else { 0.0 }),
                Activation::Elu => slopes.for_each(|(dy, &y)| *dy *= scale * (y.min(0.0) + 1.0)),
            }
            if bias {
                axpy(&mut sum, 1.0, &dy);
            }
            E::narrow(&dy, row);
        }
        sum
    });
    let sum = bias.then(|| {
        let mut total = vec![0f32; d];
        partial.iter().for_each(|sum| axpy(&mut total, 1.0, sum));
        flex::tensor(total, [1, d])
    });
    (flex::tensor(dx, [rows, d]), sum)
}
