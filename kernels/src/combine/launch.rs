//! The end of a layer on CubeCL devices.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::element::BoolElement;
use burn_cubecl::{CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::kernel::{CombineShape, combine_backward_kernel, combine_kernel};
use super::{Activation, CombineBackend};
use crate::launch::{Rows, address, empty, f32_vector, flat, vector_width};

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> CombineBackend for CubeBackend<R, F, I, BT> {
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
        let len = first.num_rows * (first.width / v);
        let (count, dim) = flat(len);
        let strides = (part(0).stride / v, part(1).stride / v, part(2).stride / v, part(3).stride / v);
        // SAFETY: the loop ends at the length of the result, which every part has.
        unsafe {
            combine_kernel::launch_unchecked::<R>(
                &out.client,
                count,
                dim,
                address(&[&part(0).tensor, &part(1).tensor, &part(2).tensor, &part(3).tensor, &out]),
                v,
                part(0).arg(),
                part(1).arg(),
                part(2).arg(),
                part(3).arg(),
                bias.into_array_arg(),
                out.clone().into_array_arg(),
                strides.0,
                strides.1,
                strides.2,
                strides.3,
                scale,
                first.width / v,
                len,
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
    ) -> FloatTensor<Self> {
        let dx = empty(&out, out.shape(), out.dtype);
        if dx.shape().num_elements() == 0 {
            return dx;
        }
        let (g, y) = (Rows::of(g), Rows::of(out));
        let v = vector_width(y.width, &[&g, &y]);
        let len = y.num_rows * (y.width / v);
        let (count, dim) = flat(len);
        // SAFETY: the loop ends at the length of the result.
        unsafe {
            combine_backward_kernel::launch_unchecked::<R>(
                &dx.client,
                count,
                dim,
                address(&[&g.tensor, &y.tensor, &dx]),
                v,
                g.arg(),
                y.arg(),
                dx.clone().into_array_arg(),
                g.stride / v,
                y.stride / v,
                scale,
                y.width / v,
                len,
                activation,
                dx.dtype.into(),
            );
        }
        dx
    }
}
