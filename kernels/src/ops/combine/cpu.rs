//! The end of a layer on the CPU.

use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{Activation, CombineBackend};
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, axpy, with_storage};
use crate::runtime::rows::zeroed;

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
    let mut out = zeroed::<E>(rows * d);
    flex::tasks(&mut out, d, parts.len() * d).for_each(|(task, block)| {
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
                    for y in &mut sum {
                        *y *= scale;
                        if *y <= 0.0 {
                            *y = y.exp_m1();
                        }
                    }
                }
            }
            E::narrow(&sum, row);
        }
    });
    flex::tensor(out, [rows, d])
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
    let mut dx = zeroed::<E>(rows * d);
    let blocks = dx.par_chunks_mut((ROWS_PER_SUM * d).max(1)).enumerate();
    let partial: Vec<Vec<f32>> = blocks
        .map(|(task, block)| {
            let (mut dy, mut y) = (vec![0f32; d], vec![0f32; d]);
            let mut sum = vec![0f32; if bias { d } else { 0 }];
            for (r, row) in block.chunks_mut(d.max(1)).enumerate() {
                let at = (task * ROWS_PER_SUM + r) * d;
                E::widen(&gs[at..at + d], &mut dy);
                E::widen(&ys[at..at + d], &mut y);
                for (dy, &y) in dy.iter_mut().zip(&y) {
                    *dy *= scale
                        * match activation {
                            Activation::Identity => 1.0,
                            Activation::Relu => f32::from(u8::from(y > 0.0)),
                            Activation::Elu => y.min(0.0) + 1.0,
                        };
                }
                if bias {
                    axpy(&mut sum, 1.0, &dy);
                }
                E::narrow(&dy, row);
            }
            sum
        })
        .collect();
    let sum = bias.then(|| {
        let mut total = vec![0f32; d];
        partial.iter().for_each(|sum| axpy(&mut total, 1.0, sum));
        flex::tensor(total, [1, d])
    });
    (flex::tensor(dx, [rows, d]), sum)
}
