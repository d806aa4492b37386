//! One plane per gathered row.

use cubecl::prelude::*;

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gather_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    index: &Array<i32>,
    out: &mut Array<Vector<F, N>>,
    x_stride: usize,
    vectors: usize,
    len: usize,
    #[define(F)] _type: StorageType,
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < len {
        let from = usize::cast_from(index[row]) * x_stride;
        let mut c = UNIT_POS_X as usize;
        while c < vectors {
            out[row * vectors + c] = x[from + c];
            c += CUBE_DIM_X as usize;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
