//! A thread per vector of the result, or per vector of columns where these are added up.

use cubecl::prelude::*;

use super::Activation;
use crate::ops::head::put_partial_sum;
use crate::runtime::args::{Extent, Matrix, launch_args};

/// Which parts there are, and what happens to their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CombineShape {
    pub parts: usize,
    pub bias: bool,
    pub activation: Activation,
}

launch_args! {
    /// The matrices that are added up; those that there are not are not read.
    Parts, PartsArgs<F: Float, N: Size> {
        a: Matrix<F, N>,
        b: Matrix<F, N>,
        c: Matrix<F, N>,
        d: Matrix<F, N>,
        bias: Array<f32>,
    }
}

/// `activation(scale sum)`
#[cube]
pub(crate) fn activated<N: Size>(
    sum: Vector<f32, N>,
    scale: f32,
    #[comptime] activation: Activation,
) -> Vector<f32, N> {
    let mut sum = sum;
    #[unroll]
    for n in 0..sum.size() {
        let y = sum[n] * scale;
        sum[n] = match comptime!(activation) {
            Activation::Identity => y,
            Activation::Relu => y.max(0.0f32),
            Activation::Elu => select(y > 0.0f32, y, y.min(0.0f32).exp() - 1.0f32),
        };
    }
    sum
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn combine_kernel<F: Float, N: Size>(
    inputs: &Parts<F, N>,
    out: &mut Array<Vector<F, N>>,
    scale: f32,
    extent: &Extent,
    #[comptime] shape: CombineShape,
    #[define(F)] _type: StorageType,
) {
    let mut k = ABSOLUTE_POS;
    while k < extent.rows * extent.vectors {
        let row = k / extent.vectors;
        let column = k % extent.vectors;
        let mut sum = Vector::<f32, N>::cast_from(inputs.a.values[row * inputs.a.stride + column]);
        if shape.parts > 1 {
            sum += Vector::<f32, N>::cast_from(inputs.b.values[row * inputs.b.stride + column]);
        }
        if shape.parts > 2 {
            sum += Vector::<f32, N>::cast_from(inputs.c.values[row * inputs.c.stride + column]);
        }
        if shape.parts > 3 {
            sum += Vector::<f32, N>::cast_from(inputs.d.values[row * inputs.d.stride + column]);
        }
        if shape.bias {
            #[unroll]
            for n in 0..sum.size() {
                sum[n] += inputs.bias[column * N::value() + n];
            }
        }
        out[k] = Vector::<F, N>::cast_from(activated::<N>(sum, scale, shape.activation));
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

launch_args! {
    /// The gradient of the result, and the result.
    BackwardInputs, BackwardInputsArgs<F: Float, N: Size> {
        g: Matrix<F, N>,
        y: Matrix<F, N>,
    }
}

launch_args! {
    /// The gradient of every matrix, and partial sums of its columns.
    BackwardOutputs, BackwardOutputsArgs<F: Float, N: Size> {
        dx: Array<Vector<F, N>>,
        partial: Array<Vector<f32, N>>,
    }
}

/// A thread keeps to a vector of columns and strides over rows; with `bias` it leaves their sum, before rounding, to
/// its cube's row of `partial`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn combine_backward_kernel<F: Float, N: Size>(
    inputs: &BackwardInputs<F, N>,
    outputs: &mut BackwardOutputs<F, N>,
    scale: f32,
    extent: &Extent,
    half: usize,
    #[comptime] activation: Activation,
    #[comptime] bias: bool,
    #[define(F)] _type: StorageType,
) {
    let column = CUBE_POS_Y as usize * CUBE_DIM_X as usize + UNIT_POS_X as usize;
    let mut sum = Vector::<f32, N>::empty().fill(0.0f32);
    if column < extent.vectors {
        let mut row = CUBE_POS_X as usize * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
        while row < extent.rows {
            let mut gradient = Vector::<f32, N>::cast_from(inputs.g.values[row * inputs.g.stride + column]);
            let result = Vector::<f32, N>::cast_from(inputs.y.values[row * inputs.y.stride + column]);
            #[unroll]
            for n in 0..gradient.size() {
                let slope = match comptime!(activation) {
                    Activation::Identity => 1.0f32.runtime(),
                    Activation::Relu => select(result[n] > 0.0f32, 1.0f32, 0.0f32),
                    Activation::Elu => result[n].min(0.0f32) + 1.0f32,
                };
                gradient[n] = gradient[n] * scale * slope;
            }
            if bias {
                sum += gradient;
            }
            outputs.dx[row * extent.vectors + column] = Vector::<F, N>::cast_from(gradient);
            row += CUBE_COUNT_X as usize * CUBE_DIM_Y as usize;
        }
    }
    if bias {
        put_partial_sum::<N>(sum, &mut outputs.partial, column, extent.vectors, half);
    }
}
