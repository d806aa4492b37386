//! One plane per row; a lane holds some vectors of it.

use cubecl::prelude::*;

use crate::graph::row_schedule::sums::lane_sum;

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn normalise_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    z: &mut Array<Vector<f32, N>>,
    inverse: &mut Array<f32>,
    x_stride: usize,
    vectors: usize,
    num_rows: usize,
    epsilon: f32,
    #[comptime] slots: usize,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let mut own = Array::<Vector<f32, N>>::new(slots);
        let mut squares = 0.0f32;
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            own[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            if c < vectors {
                own[slot] = Vector::<f32, N>::cast_from(x[row * x_stride + c]);
                squares += lane_sum(own[slot] * own[slot]);
            }
        }
        let factor = 1.0f32 / (plane_sum(squares) + epsilon).sqrt();
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            if c < vectors {
                z[row * vectors + c] = own[slot] * Vector::<f32, N>::empty().fill(factor);
            }
        }
        if lane == 0 {
            inverse[row] = factor;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn normalise_backward_kernel<F: Float, N: Size>(
    g: &Array<Vector<f32, N>>,
    z: &Array<Vector<f32, N>>,
    inverse: &Array<f32>,
    dx: &mut Array<Vector<F, N>>,
    g_stride: usize,
    z_stride: usize,
    vectors: usize,
    num_rows: usize,
    #[comptime] slots: usize,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let mut gradient = Array::<Vector<f32, N>>::new(slots);
        let mut unit = Array::<Vector<f32, N>>::new(slots);
        let mut product = 0.0f32;
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            gradient[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            unit[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            if c < vectors {
                gradient[slot] = g[row * g_stride + c];
                unit[slot] = z[row * z_stride + c];
                product += lane_sum(gradient[slot] * unit[slot]);
            }
        }
        let along = Vector::<f32, N>::empty().fill(plane_sum(product));
        let factor = Vector::<f32, N>::empty().fill(inverse[row]);
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            if c < vectors {
                dx[row * vectors + c] = Vector::<F, N>::cast_from((gradient[slot] - unit[slot] * along) * factor);
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
