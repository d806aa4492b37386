//! One plane per row; a lane holds some vectors of it.

use cubecl::prelude::*;

use crate::graph::row_schedule::sums::lane_sum;
use crate::runtime::args::{Extent, Matrix, launch_args};

launch_args! {
    /// Rows of length one, and the factors that made them so.
    Normalised, NormalisedArgs<N: Size> {
        z: Array<Vector<f32, N>>,
        inverse: Array<f32>,
    }
}

launch_args! {
    /// The gradient of the result, the result, and its factors.
    BackwardInputs, BackwardInputsArgs<N: Size> {
        g: Matrix<f32, N>,
        z: Matrix<f32, N>,
        inverse: Array<f32>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn normalise_kernel<F: Float, N: Size>(
    x: &Matrix<F, N>,
    out: &mut Normalised<N>,
    extent: &Extent,
    epsilon: f32,
    #[comptime] slots: usize,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < extent.rows {
        let mut own = Array::<Vector<f32, N>>::new(slots);
        let mut squares = 0.0f32;
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            own[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            if c < extent.vectors {
                own[slot] = Vector::<f32, N>::cast_from(x.values[row * x.stride + c]);
                squares += lane_sum(own[slot] * own[slot]);
            }
        }
        let factor = 1.0f32 / (plane_sum(squares) + epsilon).sqrt();
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            if c < extent.vectors {
                out.z[row * extent.vectors + c] = own[slot] * Vector::<f32, N>::empty().fill(factor);
            }
        }
        if lane == 0 {
            out.inverse[row] = factor;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn normalise_backward_kernel<F: Float, N: Size>(
    inputs: &BackwardInputs<N>,
    dx: &mut Array<Vector<F, N>>,
    extent: &Extent,
    #[comptime] slots: usize,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < extent.rows {
        let mut gradient = Array::<Vector<f32, N>>::new(slots);
        let mut unit = Array::<Vector<f32, N>>::new(slots);
        let mut product = 0.0f32;
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            gradient[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            unit[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            if c < extent.vectors {
                gradient[slot] = inputs.g.values[row * inputs.g.stride + c];
                unit[slot] = inputs.z.values[row * inputs.z.stride + c];
                product += lane_sum(gradient[slot] * unit[slot]);
            }
        }
        let along = Vector::<f32, N>::empty().fill(plane_sum(product));
        let factor = Vector::<f32, N>::empty().fill(inputs.inverse[row]);
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            if c < extent.vectors {
                dx[row * extent.vectors + c] =
                    Vector::<F, N>::cast_from((gradient[slot] - unit[slot] * along) * factor);
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
