//! The end of a layer on CubeCL devices.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::kernel::{
    BackwardInputsArgs, BackwardOutputsArgs, CombineShape, PartsArgs, combine_backward_kernel, combine_kernel,
};
use super::{Activation, CombineBackend};
use crate::ops::head::{MAX_PARTIALS, column_sums};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{Columns, Rows, address, empty, f32_vector, flat, vector_width, zeros};

/// Cubes of a launch that leaves no sums.
const MAX_CUBES: usize = 1 << 15;

impl_for_devices! { CombineBackend =>
    fn combine_forward(
        parts: Vec<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let shape = CombineShape { parts: parts.len(), bias: bias.is_some(), activation };
        let parts: Vec<Rows<R>> = parts.into_iter().map(Rows::of).collect();
        let first = &parts[0];
        let out = empty(&first.tensor, [first.num_rows, first.width], first.tensor.dtype);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let v = vector_width(first.width, &parts.iter().collect::<Vec<_>>());
        // A part that is not there still needs a buffer.
        let part = |k: usize| parts.get(k).unwrap_or(first);
        let bias = bias.map_or_else(|| out.clone(), f32_vector);
        let (count, dim) = flat(first.num_rows * (first.width / v));
        // SAFETY: the loop ends at the length of the result, which every part has.
        unsafe {
            combine_kernel::launch_unchecked::<R>(
                &out.client,
                count,
                dim,
                address(&[&part(0).tensor, &part(1).tensor, &part(2).tensor, &part(3).tensor, &out]),
                v,
                PartsArgs {
                    a: part(0).matrix(v),
                    b: part(1).matrix(v),
                    c: part(2).matrix(v),
                    d: part(3).matrix(v),
                    bias: array(&bias),
                }
                .launch(),
                array(&out),
                scale,
                first.extent(v),
                shape,
                out.dtype.into(),
            );
        }
        out
    }

    fn combine_backward(
        g: FloatTensor<Self>,
        out: FloatTensor<Self>,
        scale: f32,
        activation: Activation,
        bias: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let dx = empty(&out, out.shape(), out.dtype);
        let (g, y) = (Rows::of(g), Rows::of(out));
        if dx.shape().num_elements() == 0 {
            let sum = bias.then(|| zeros(&dx, [1, y.width], DType::F32));
            return (dx, sum);
        }
        let v = vector_width(y.width, &[&g, &y]);
        let geometry = Columns::of(y.num_rows, y.width / v, if bias { MAX_PARTIALS } else { MAX_CUBES });
        let partial = bias.then(|| empty(&dx, [geometry.partials, y.width], DType::F32));
        // Sums that nobody asks for still need a buffer.
        let written = partial.clone().unwrap_or_else(|| dx.clone());
        // SAFETY: the loop ends at the sizes of the result.
        unsafe {
            combine_backward_kernel::launch_unchecked::<R>(
                &dx.client,
                geometry.count,
                geometry.dim,
                address(&[&g.tensor, &y.tensor, &dx]),
                v,
                BackwardInputsArgs { g: g.matrix(v), y: y.matrix(v) }.launch(),
                BackwardOutputsArgs { dx: array(&dx), partial: array(&written) }.launch(),
                scale,
                y.extent(v),
                geometry.half,
                activation,
                bias,
                dx.dtype.into(),
            );
        }
        (dx, partial.map(column_sums))
    }
}
