//! A column of cubes per tensor.

use cubecl::prelude::*;

use crate::runtime::args::launch_args;

launch_args! {
    /// A matrix of any strides and its segment.
    Part, PartArgs {
        values: Array<f32>,
        width: usize,
        row_stride: usize,
        column_stride: usize,
        /// Elements; zero for a tensor that is missing.
        len: usize,
        start: usize,
        end: usize,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn join_kernel(parts: &Sequence<Part>, out: &mut Array<f32>) {
    #[unroll]
    for p in 0..parts.len() {
        if CUBE_POS_Y == p as u32 {
            let part = parts.index(p);
            let mut k = CUBE_POS_X as usize * CUBE_DIM as usize + UNIT_POS as usize;
            while part.start + k < part.end {
                let mut value = 0.0f32;
                if k < part.len {
                    value = part.values[(k / part.width) * part.row_stride + (k % part.width) * part.column_stride];
                }
                out[part.start + k] = value;
                k += CUBE_COUNT_X as usize * CUBE_DIM as usize;
            }
        }
    }
}
