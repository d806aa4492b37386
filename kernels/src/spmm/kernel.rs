//! One plane per row; lanes hold the channels, f32 sums stay in registers.

use cubecl::prelude::*;

use crate::drop_edge::{DropEdgeKey, DropMode, keeps};

/// What a launch reads besides the matrix; each combination is a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpmmShape {
    pub dst_scale: bool,
    pub src_scale: bool,
    pub weight: bool,
    /// Weights are read through an edge map.
    pub edge_map: bool,
    /// Output rows come from a list.
    pub row_list: bool,
    pub drop: DropMode,
    /// Vectors of a row held by one lane.
    pub slots: usize,
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn spmm_kernel<F: Float, P: Int, N: Size>(
    row_ptr: &Array<P>,
    col_idx: &Array<i32>,
    x: &Array<Vector<F, N>>,
    out: &mut Array<Vector<F, N>>,
    dst_scale: &Array<f32>,
    src_scale: &Array<f32>,
    weight: &Array<f32>,
    edge_map: &Array<P>,
    row_list: &Array<i32>,
    drop: &DropEdgeKey,
    x_stride: usize,
    vectors: usize,
    row_start: usize,
    row_end: usize,
    #[comptime] shape: SpmmShape,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = row_start + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < row_end {
        let start = usize::cast_from(row_ptr[row]);
        let end = usize::cast_from(row_ptr[row + 1]);
        let mut sums = Array::<Vector<f32, N>>::new(shape.slots);
        #[unroll]
        for slot in 0..shape.slots {
            sums[slot] = Vector::<f32, N>::empty().fill(0.0f32);
        }
        for e in start..end {
            let col = col_idx[e];
            if keeps(drop, row as u32, u32::cast_from(col), shape.drop) {
                let j = usize::cast_from(col);
                let mut w = 1.0f32;
                if shape.src_scale {
                    w *= src_scale[j];
                }
                if shape.weight {
                    if shape.edge_map {
                        w *= weight[usize::cast_from(edge_map[e])];
                    } else {
                        w *= weight[e];
                    }
                }
                #[unroll]
                for slot in 0..shape.slots {
                    let c = slot * plane + lane;
                    if c < vectors {
                        let value = Vector::<f32, N>::cast_from(x[j * x_stride + c]);
                        sums[slot] += value * Vector::<f32, N>::empty().fill(w);
                    }
                }
            }
        }
        let mut scale = 1.0f32;
        if shape.dst_scale {
            scale = dst_scale[row];
        }
        let mut out_row = row;
        if shape.row_list {
            out_row = usize::cast_from(row_list[row]);
        }
        #[unroll]
        for slot in 0..shape.slots {
            let c = slot * plane + lane;
            if c < vectors {
                let scaled = sums[slot] * Vector::<f32, N>::empty().fill(scale);
                out[out_row * vectors + c] = Vector::<F, N>::cast_from(scaled);
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// `out_e = u_i v_j <g_i, x_j>`, one plane per row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn weight_gradient_kernel<F: Float, P: Int, N: Size>(
    row_ptr: &Array<P>,
    col_idx: &Array<i32>,
    g: &Array<Vector<F, N>>,
    x: &Array<Vector<F, N>>,
    out: &mut Array<f32>,
    dst_scale: &Array<f32>,
    src_scale: &Array<f32>,
    drop: &DropEdgeKey,
    g_stride: usize,
    x_stride: usize,
    vectors: usize,
    num_rows: usize,
    #[comptime] shape: SpmmShape,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let start = usize::cast_from(row_ptr[row]);
        let end = usize::cast_from(row_ptr[row + 1]);
        let mut own = Array::<Vector<f32, N>>::new(shape.slots);
        #[unroll]
        for slot in 0..shape.slots {
            own[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            let c = slot * plane + lane;
            if c < vectors {
                own[slot] = Vector::<f32, N>::cast_from(g[row * g_stride + c]);
            }
        }
        for e in start..end {
            let col = col_idx[e];
            let j = usize::cast_from(col);
            let mut product = Vector::<f32, N>::empty().fill(0.0f32);
            #[unroll]
            for slot in 0..shape.slots {
                let c = slot * plane + lane;
                if c < vectors {
                    product += own[slot] * Vector::<f32, N>::cast_from(x[j * x_stride + c]);
                }
            }
            let mut dot = plane_sum(lane_sum(product));
            if shape.dst_scale {
                dot *= dst_scale[row];
            }
            if shape.src_scale {
                dot *= src_scale[j];
            }
            if !keeps(drop, row as u32, u32::cast_from(col), shape.drop) {
                dot = 0.0f32;
            }
            if lane == 0 {
                out[e] = dot;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// The sum of the elements of a vector.
#[cube]
pub(crate) fn lane_sum<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut sum = vector[0];
    #[unroll]
    for k in 1..vector.size() {
        sum += vector[k];
    }
    sum
}
