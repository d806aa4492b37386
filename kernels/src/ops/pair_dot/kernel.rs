//! One plane per pair.

use cubecl::prelude::*;

use crate::graph::row_schedule::sums::lane_sum;

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn pair_dot_kernel<F: Float, N: Size>(
    left: &Array<Vector<F, N>>,
    right: &Array<Vector<F, N>>,
    left_index: &Array<i32>,
    right_index: &Array<i32>,
    out: &mut Array<f32>,
    left_stride: usize,
    right_stride: usize,
    vectors: usize,
    len: usize,
    #[define(F)] _type: StorageType,
) {
    let mut pair = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while pair < len {
        let a = usize::cast_from(left_index[pair]) * left_stride;
        let b = usize::cast_from(right_index[pair]) * right_stride;
        let mut product = Vector::<f32, N>::empty().fill(0.0f32);
        let mut c = UNIT_POS_X as usize;
        while c < vectors {
            product += Vector::<f32, N>::cast_from(left[a + c]) * Vector::<f32, N>::cast_from(right[b + c]);
            c += CUBE_DIM_X as usize;
        }
        let dot = plane_sum(lane_sum(product));
        if UNIT_POS_X == 0 {
            out[pair] = dot;
        }
        pair += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
