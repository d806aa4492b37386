//! A thread per element of the result.

use cubecl::prelude::*;

use crate::runtime::args::{Table, launch_args};

launch_args! {
    /// The shape of the result.
    PieceSizes, PieceSizesArgs {
        rows: usize,
        /// Columns of `x`.
        width: usize,
        /// Columns that have pieces.
        columns: usize,
        /// Pieces of each.
        pieces: usize,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn pieces_kernel<F: Float>(
    x: &Table<F>,
    bounds: &Array<f32>,
    out: &mut Array<F>,
    sizes: &PieceSizes,
    #[define(F)] _type: StorageType,
) {
    let wide = sizes.width + sizes.columns * sizes.pieces;
    let mut k = ABSOLUTE_POS;
    while k < sizes.rows * wide {
        let row = k / wide;
        let at = k % wide;
        if at < sizes.width {
            out[k] = x.values[row * x.stride + at];
        } else {
            let column = (at - sizes.width) / sizes.pieces;
            // The bounds of a column are one more than its pieces.
            let begin = bounds[at - sizes.width + column];
            let length = bounds[at - sizes.width + column + 1] - begin;
            let value = f32::cast_from(x.values[row * x.stride + column]);
            let mut share = 0.0f32;
            if length > 0.0f32 {
                share = ((value - begin) / length).clamp(0.0f32, 1.0f32);
            }
            out[k] = F::cast_from(share);
        }
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
