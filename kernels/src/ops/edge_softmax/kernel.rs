//! One plane per row, lanes over its entries.

use cubecl::prelude::*;

/// Where entry `e` of a row stands among the values.
#[cube]
fn place_of<P: Int>(edge_map: &Array<P>, e: usize, #[comptime] mapped: bool) -> usize {
    if mapped { usize::cast_from(edge_map[e]) } else { e }
}

/// Entries of a plane's row: `[start, end)` and the rows that follow in the grid.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn softmax_kernel<F: Float, P: Int>(
    row_ptr: &Array<P>,
    edge_map: &Array<P>,
    logits: &Array<F>,
    out: &mut Array<F>,
    stride: usize,
    heads: usize,
    num_rows: usize,
    #[comptime] mapped: bool,
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
                let at = place_of(edge_map, e, mapped);
                max = max.max(f32::cast_from(logits[at * stride + head]));
                e += plane;
            }
            let max = plane_max(max);
            let mut sum = 0.0f32;
            let mut e = start + lane;
            while e < end {
                let at = place_of(edge_map, e, mapped);
                sum += (f32::cast_from(logits[at * stride + head]) - max).exp();
                e += plane;
            }
            let sum = plane_sum(sum);
            let mut e = start + lane;
            while e < end {
                let at = place_of(edge_map, e, mapped);
                out[at * heads + head] = F::cast_from((f32::cast_from(logits[at * stride + head]) - max).exp() / sum);
                e += plane;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn softmax_backward_kernel<F: Float, P: Int>(
    row_ptr: &Array<P>,
    edge_map: &Array<P>,
    softmax: &Array<F>,
    g: &Array<F>,
    out: &mut Array<F>,
    softmax_stride: usize,
    g_stride: usize,
    heads: usize,
    num_rows: usize,
    #[comptime] mapped: bool,
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
                let at = place_of(edge_map, e, mapped);
                dot += f32::cast_from(softmax[at * softmax_stride + head]) * f32::cast_from(g[at * g_stride + head]);
                e += plane;
            }
            let dot = plane_sum(dot);
            let mut e = start + lane;
            while e < end {
                let at = place_of(edge_map, e, mapped);
                let a = f32::cast_from(softmax[at * softmax_stride + head]);
                out[at * heads + head] = F::cast_from(a * (f32::cast_from(g[at * g_stride + head]) - dot));
                e += plane;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
