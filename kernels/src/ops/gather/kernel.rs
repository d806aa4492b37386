//! One plane per gathered row.

use cubecl::prelude::*;

use crate::runtime::args::{Extent, Matrix, launch_args};

launch_args! {
    /// A matrix and rows of it.
    Listed, ListedArgs<F: Float, P: Int, N: Size> {
        x: Matrix<F, N>,
        index: Array<P>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gather_kernel<F: Float, P: Int, N: Size>(
    listed: &Listed<F, P, N>,
    out: &mut Array<Vector<F, N>>,
    extent: &Extent,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < extent.rows {
        let from = usize::cast_from(listed.index[row]) * listed.x.stride;
        let mut c = UNIT_POS_X as usize;
        while c < extent.vectors {
            out[row * extent.vectors + c] = listed.x.values[from + c];
            c += CUBE_DIM_X as usize;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
