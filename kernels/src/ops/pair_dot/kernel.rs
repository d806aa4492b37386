//! One plane per pair.

use cubecl::prelude::*;

use crate::graph::row_schedule::sums::lane_sum;
use crate::runtime::args::{Extent, Matrix, launch_args};

launch_args! {
    /// A matrix, and its row in each pair.
    Side, SideArgs<F: Float, N: Size> {
        rows: Matrix<F, N>,
        index: Array<i32>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn pair_dot_kernel<F: Float, N: Size>(
    left: &Side<F, N>,
    right: &Side<F, N>,
    out: &mut Array<f32>,
    extent: &Extent,
    #[define(F)] _type: StorageType,
) {
    let mut pair = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while pair < extent.rows {
        let a = usize::cast_from(left.index[pair]) * left.rows.stride;
        let b = usize::cast_from(right.index[pair]) * right.rows.stride;
        let mut product = Vector::<f32, N>::empty().fill(0.0f32);
        let mut c = UNIT_POS_X as usize;
        while c < extent.vectors {
            product += Vector::<f32, N>::cast_from(left.rows.values[a + c])
                * Vector::<f32, N>::cast_from(right.rows.values[b + c]);
            c += CUBE_DIM_X as usize;
        }
        let dot = plane_sum(lane_sum(product));
        if UNIT_POS_X == 0 {
            out[pair] = dot;
        }
        pair += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
