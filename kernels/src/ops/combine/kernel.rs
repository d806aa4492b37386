//! A thread per vector of the result, or per vector of columns where these are added up.

use cubecl::prelude::*;

use super::Activation;
use crate::ops::head::put_partial_sum;

/// Which parts there are, and what happens to their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CombineShape {
    pub parts: usize,
    pub bias: bool,
    pub activation: Activation,
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn combine_kernel<F: Float, N: Size>(
    a: &Array<Vector<F, N>>,
    b: &Array<Vector<F, N>>,
    c: &Array<Vector<F, N>>,
    d: &Array<Vector<F, N>>,
    bias: &Array<f32>,
    out: &mut Array<Vector<F, N>>,
    a_stride: usize,
    b_stride: usize,
    c_stride: usize,
    d_stride: usize,
    scale: f32,
    vectors: usize,
    len: usize,
    #[comptime] shape: CombineShape,
    #[define(F)] _type: StorageType,
) {
    let mut k = ABSOLUTE_POS;
    while k < len {
        let row = k / vectors;
        let column = k % vectors;
        let mut sum = Vector::<f32, N>::cast_from(a[row * a_stride + column]);
        if shape.parts > 1 {
            sum += Vector::<f32, N>::cast_from(b[row * b_stride + column]);
        }
        if shape.parts > 2 {
            sum += Vector::<f32, N>::cast_from(c[row * c_stride + column]);
        }
        if shape.parts > 3 {
            sum += Vector::<f32, N>::cast_from(d[row * d_stride + column]);
        }
        if shape.bias {
            #[unroll]
            for n in 0..sum.size() {
                sum[n] += bias[column * N::value() + n];
            }
        }
        #[unroll]
        for n in 0..sum.size() {
            let y = sum[n] * scale;
            sum[n] = match comptime!(shape.activation) {
                Activation::Identity => y,
                Activation::Relu => y.max(0.0f32),
                Activation::Elu => select(y > 0.0f32, y, y.min(0.0f32).exp() - 1.0f32),
            };
        }
        out[k] = Vector::<F, N>::cast_from(sum);
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// A thread keeps to a vector of columns and strides over rows; with `bias` it leaves their sum, before rounding, to its
/// cube's row of `partial`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn combine_backward_kernel<F: Float, N: Size>(
    g: &Array<Vector<F, N>>,
    y: &Array<Vector<F, N>>,
    dx: &mut Array<Vector<F, N>>,
    partial: &mut Array<Vector<f32, N>>,
    g_stride: usize,
    y_stride: usize,
    scale: f32,
    vectors: usize,
    num_rows: usize,
    half: usize,
    #[comptime] activation: Activation,
    #[comptime] bias: bool,
    #[define(F)] _type: StorageType,
) {
    let column = CUBE_POS_Y as usize * CUBE_DIM_X as usize + UNIT_POS_X as usize;
    let mut sum = Vector::<f32, N>::empty().fill(0.0f32);
    if column < vectors {
        let mut row = CUBE_POS_X as usize * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
        while row < num_rows {
            let mut gradient = Vector::<f32, N>::cast_from(g[row * g_stride + column]);
            let result = Vector::<f32, N>::cast_from(y[row * y_stride + column]);
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
            dx[row * vectors + column] = Vector::<F, N>::cast_from(gradient);
            row += CUBE_COUNT_X as usize * CUBE_DIM_Y as usize;
        }
    }
    if bias {
        put_partial_sum::<N>(sum, partial, column, vectors, half);
    }
}
