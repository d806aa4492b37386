//! One plane per row, lanes over its entries.

use cubecl::prelude::*;

use crate::runtime::args::{Table, launch_args};

launch_args! {
    /// Where the entries of `count` rows are, and the edges of these.
    RowEdges, RowEdgesArgs<P: Int> {
        row_ptr: Array<P>,
        edge_map: Array<P>,
        count: usize,
    }
}

launch_args! {
    /// The result, and its gradient.
    BackwardInputs, BackwardInputsArgs<F: Float> {
        softmax: Table<F>,
        g: Table<F>,
    }
}

/// Where entry `e` of a row stands among the values.
#[cube]
fn place_of<P: Int>(rows: &RowEdges<P>, e: usize, #[comptime] mapped: bool) -> usize {
    if mapped { usize::cast_from(rows.edge_map[e]) } else { e }
}

/// Entries of a plane's row: `[start, end)` and the rows that follow in the grid.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn softmax_kernel<F: Float, P: Int>(
    rows: &RowEdges<P>,
    logits: &Table<F>,
    out: &mut Array<F>,
    heads: usize,
    #[comptime] mapped: bool,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < rows.count {
        let start = usize::cast_from(rows.row_ptr[row]);
        let end = usize::cast_from(rows.row_ptr[row + 1]);
        for head in 0..heads {
            let mut max = f32::min_value();
            let mut e = start + lane;
            while e < end {
                let at = place_of(rows, e, mapped);
                max = max.max(f32::cast_from(logits.values[at * logits.stride + head]));
                e += plane;
            }
            let max = plane_max(max);
            let mut sum = 0.0f32;
            let mut e = start + lane;
            while e < end {
                let at = place_of(rows, e, mapped);
                sum += (f32::cast_from(logits.values[at * logits.stride + head]) - max).exp();
                e += plane;
            }
            let sum = plane_sum(sum);
            let mut e = start + lane;
            while e < end {
                let at = place_of(rows, e, mapped);
                out[at * heads + head] =
                    F::cast_from((f32::cast_from(logits.values[at * logits.stride + head]) - max).exp() / sum);
                e += plane;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn softmax_backward_kernel<F: Float, P: Int>(
    rows: &RowEdges<P>,
    inputs: &BackwardInputs<F>,
    out: &mut Array<F>,
    heads: usize,
    #[comptime] mapped: bool,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < rows.count {
        let start = usize::cast_from(rows.row_ptr[row]);
        let end = usize::cast_from(rows.row_ptr[row + 1]);
        for head in 0..heads {
            let mut dot = 0.0f32;
            let mut e = start + lane;
            while e < end {
                let at = place_of(rows, e, mapped);
                dot += f32::cast_from(inputs.softmax.values[at * inputs.softmax.stride + head])
                    * f32::cast_from(inputs.g.values[at * inputs.g.stride + head]);
                e += plane;
            }
            let dot = plane_sum(dot);
            let mut e = start + lane;
            while e < end {
                let at = place_of(rows, e, mapped);
                let a = f32::cast_from(inputs.softmax.values[at * inputs.softmax.stride + head]);
                out[at * heads + head] =
                    F::cast_from(a * (f32::cast_from(inputs.g.values[at * inputs.g.stride + head]) - dot));
                e += plane;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
