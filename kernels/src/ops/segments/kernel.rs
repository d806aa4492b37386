//! A column of cubes per tensor.

use cubecl::prelude::*;

/// A matrix of any strides and its segment.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Part {
    pub values: Array<f32>,
    pub width: usize,
    pub row_stride: usize,
    pub column_stride: usize,
    /// Elements; zero for a tensor that is missing.
    pub len: usize,
    pub start: usize,
    pub end: usize,
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
