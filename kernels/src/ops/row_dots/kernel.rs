//! One plane per row or per stretch of rows; a lane holds some vectors of a row.

use cubecl::prelude::*;

use crate::graph::row_schedule::sums::{lane_sum, sum_across};
use crate::runtime::args::{Extent, Matrix, launch_args};

/// Rows that are on their way to a plane at a time.
const IN_FLIGHT: usize = 8;

launch_args! {
    /// Rows, and the few vectors of as many elements; or (of the gradient of these) one weight per row and vector.
    DotInputs, DotInputsArgs<F: Float, N: Size> {
        x: Matrix<F, N>,
        vectors: Array<f32>,
    }
}

launch_args! {
    /// The gradient of the products, and the vectors.
    GradientInputs, GradientInputsArgs {
        g: Array<f32>,
        vectors: Array<f32>,
    }
}

launch_args! {
    /// How many vectors there are, and the first of those of a launch.
    Columns, ColumnsArgs {
        count: usize,
        first: usize,
    }
}

launch_args! {
    /// How many partial sums there are, and how many rows each takes.
    Partials, PartialsArgs {
        count: usize,
        rows: usize,
    }
}

/// The products with `block` of the `count` vectors `[count, width]` from `first` on: these stay in registers while a
/// plane walks its rows.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn row_dots_kernel<F: Float, N: Size>(
    inputs: &DotInputs<F, N>,
    out: &mut Array<f32>,
    extent: &Extent,
    columns: &Columns,
    #[comptime] block: usize,
    #[comptime] slots: usize,
    #[comptime] plane: usize,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let padded = comptime!(block.next_power_of_two());
    let mut own = Array::<Vector<f32, N>>::new(comptime!(block * slots));
    #[unroll]
    for k in 0..block {
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            let mut vector = Vector::<f32, N>::empty().fill(0.0f32);
            if c < extent.vectors {
                #[unroll]
                for n in 0..vector.size() {
                    vector[n] = inputs.vectors[((columns.first + k) * extent.vectors + c) * N::value() + n];
                }
            }
            own[k * slots + slot] = vector;
        }
    }
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < extent.rows {
        let mut products = Array::<f32>::new(padded);
        #[unroll]
        for k in 0..padded {
            products[k] = 0.0f32;
        }
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            if c < extent.vectors {
                let value = Vector::<f32, N>::cast_from(inputs.x.values[row * inputs.x.stride + c]);
                #[unroll]
                for k in 0..block {
                    products[k] += lane_sum(value * own[k * slots + slot]);
                }
            }
        }
        let dot = sum_across(&mut products, padded, plane);
        let k = lane / comptime!(plane / padded);
        if lane == k * comptime!(plane / padded) && k < block {
            out[row * columns.count + columns.first + k] = dot;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// `out_i = sum_k g_ik vector_k`, added to what is there with `accumulate_into`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gradient_kernel<F: Float, N: Size>(
    inputs: &GradientInputs,
    out: &mut Matrix<F, N>,
    extent: &Extent,
    count: usize,
    #[comptime] accumulate_into: bool,
    #[define(F)] _type: StorageType,
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < extent.rows {
        let mut c = UNIT_POS_X as usize;
        while c < extent.vectors {
            let at = row * out.stride + c;
            let mut sum = Vector::<f32, N>::empty().fill(0.0f32);
            if accumulate_into {
                sum = Vector::<f32, N>::cast_from(out.values[at]);
            }
            for k in 0..count {
                let weight = inputs.g[row * count + k];
                #[unroll]
                for n in 0..sum.size() {
                    sum[n] += weight * inputs.vectors[(k * extent.vectors + c) * N::value() + n];
                }
            }
            out.values[at] = Vector::<F, N>::cast_from(sum);
            c += CUBE_DIM_X as usize;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// Sums `g_ik x_i` over a stretch of rows per plane, for `block` of the `count` weights from `first` on.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_sums_kernel<F: Float, N: Size>(
    inputs: &DotInputs<F, N>,
    partial: &mut Array<f32>,
    extent: &Extent,
    columns: &Columns,
    partials: &Partials,
    #[comptime] block: usize,
    #[comptime] slots: usize,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let unroll = comptime!(if slots >= IN_FLIGHT { 1usize } else { IN_FLIGHT / slots });
    let mut stretch = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while stretch < partials.count {
        let start = stretch * partials.rows;
        let end = select(start + partials.rows < extent.rows, start + partials.rows, extent.rows);
        let mut sums = Array::<Vector<f32, N>>::new(comptime!(block * slots));
        #[unroll]
        for s in 0..block * slots {
            sums[s] = Vector::<f32, N>::empty().fill(0.0f32);
        }
        let mut row = start;
        while row < end {
            let mut values = Array::<Vector<F, N>>::new(comptime!(unroll * slots));
            let mut weights = Array::<f32>::new(comptime!(unroll * block));
            #[unroll]
            for u in 0..unroll {
                // Behind the last row the first of these is repeated, which is in cache, with weight zero.
                let present = row + u < end;
                let at = select(present, row + u, row);
                #[unroll]
                for k in 0..block {
                    let weight = inputs.vectors[at * columns.count + columns.first + k];
                    weights[u * block + k] = select(present, weight, 0.0f32);
                }
                #[unroll]
                for slot in 0..slots {
                    let c = slot * plane + lane;
                    let c = select(c < extent.vectors, c, 0usize.runtime());
                    values[u * slots + slot] = inputs.x.values[at * inputs.x.stride + c];
                }
            }
            #[unroll]
            for u in 0..unroll {
                #[unroll]
                for slot in 0..slots {
                    let value = Vector::<f32, N>::cast_from(values[u * slots + slot]);
                    #[unroll]
                    for k in 0..block {
                        sums[k * slots + slot] += value * Vector::<f32, N>::empty().fill(weights[u * block + k]);
                    }
                }
            }
            row += unroll;
        }
        #[unroll]
        for k in 0..block {
            #[unroll]
            for slot in 0..slots {
                let c = slot * plane + lane;
                if c < extent.vectors {
                    let sum = sums[k * slots + slot];
                    #[unroll]
                    for n in 0..sum.size() {
                        partial
                            [((stretch * columns.count + columns.first + k) * extent.vectors + c) * N::value() + n] =
                            sum[n];
                    }
                }
            }
        }
        stretch += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
