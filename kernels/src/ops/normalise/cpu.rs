//! Rows of length one on the CPU.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{EPSILON, NormaliseBackend};
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, dot, with_storage};
use crate::runtime::rows::zeroed;

impl NormaliseBackend for Flex {
    fn normalise_forward(x: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let x = x.to_contiguous();
        with_storage!(x.dtype(), E => forward::<E>(&x))
    }

    fn normalise_backward(
        g: FloatTensor<Self>,
        z: FloatTensor<Self>,
        inverse: FloatTensor<Self>,
        dtype: DType,
    ) -> FloatTensor<Self> {
        let (g, z) = (g.to_contiguous(), z.to_contiguous());
        with_storage!(dtype, E => backward::<E>(&g, &z, &inverse))
    }
}

fn forward<E: Storage>(x: &FlexTensor) -> (FlexTensor, FlexTensor) {
    let (rows, d) = (x.shape()[0], x.shape()[1]);
    let xs = flex::slice::<E>(x);
    let (mut z, mut inverse) = (zeroed::<f32>(rows * d), zeroed::<f32>(rows));
    z.par_chunks_mut(d.max(1)).with_min_len(flex::at_least(d)).zip(&mut inverse).enumerate().for_each(
        |(i, (row, inverse))| {
            E::widen(&xs[i * d..(i + 1) * d], row);
            *inverse = 1.0 / (dot(row, row) + EPSILON).sqrt();
            row.iter_mut().for_each(|v| *v *= *inverse);
        },
    );
    (flex::tensor(z, [rows, d]), flex::tensor(inverse, [rows]))
}

fn backward<E: Storage>(g: &FlexTensor, z: &FlexTensor, inverse: &FlexTensor) -> FlexTensor {
    let (rows, d) = (z.shape()[0], z.shape()[1]);
    let (gs, zs, inverse) = (flex::slice::<f32>(g), flex::slice::<f32>(z), flex::slice::<f32>(inverse));
    flex::by_task::<E>(None, [rows, d], 2 * d, &|task, block| {
        let mut gradient = vec![0f32; d];
        for (r, row) in block.chunks_mut(d.max(1)).enumerate() {
            let i = task * ROWS_PER_TASK + r;
            let (g, z) = (&gs[i * d..(i + 1) * d], &zs[i * d..(i + 1) * d]);
            let along = dot(g, z);
            for ((out, &g), &z) in gradient.iter_mut().zip(g).zip(z) {
                *out = (g - z * along) * inverse[i];
            }
            E::narrow(&gradient, row);
        }
    })
}
