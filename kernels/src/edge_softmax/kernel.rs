//! One plane per row, lanes over its entries.

use cubecl::prelude::*;

/// Entries of a plane's row: `[start, end)` and the rows that follow in the grid.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn softmax_kernel<F: Float, P: Int>(
    row_ptr: &Array<P>,
    logits: &Array<F>,
    out: &mut Array<F>,
    stride: usize,
    heads: usize,
    num_rows: usize,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let start = usize::cast_from(row_ptr[row]);
        let end = usize::cast_from(row_ptr[row + 1]);
        for head in 0..heads {
            let mut max = f32::min_value();
            let mut e = start + lane;
            while e < end {
                max = max.max(f32::cast_from(logits[e * stride + head]));
                e += plane;
            }
            let max = plane_max(max);
            let mut sum = 0.0f32;
            let mut e = start + lane;
            while e < end {
                sum += (f32::cast_from(logits[e * stride + head]) - max).exp();
                e += plane;
            }
            let sum = plane_sum(sum);
            let mut e = start + lane;
            while e < end {
                out[e * heads + head] = F::cast_from((f32::cast_from(logits[e * stride + head]) - max).exp() / sum);
                e += plane;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn softmax_backward_kernel<F: Float, P: Int>(
    row_ptr: &Array<P>,
    softmax: &Array<F>,
    g: &Array<F>,
    out: &mut Array<F>,
    softmax_stride: usize,
    g_stride: usize,
    heads: usize,
    num_rows: usize,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let start = usize::cast_from(row_ptr[row]);
        let end = usize::cast_from(row_ptr[row + 1]);
        for head in 0..heads {
            let mut dot = 0.0f32;
            let mut e = start + lane;
            while e < end {
                dot += f32::cast_from(softmax[e * softmax_stride + head]) * f32::cast_from(g[e * g_stride + head]);
                e += plane;
            }
            let dot = plane_sum(dot);
            let mut e = start + lane;
            while e < end {
                let a = f32::cast_from(softmax[e * softmax_stride + head]);
                out[e * heads + head] = F::cast_from(a * (f32::cast_from(g[e * g_stride + head]) - dot));
                e += plane;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
