//! One plane per row or per stretch of rows; a lane holds some vectors of a row.

use cubecl::prelude::*;

use crate::graph::row_schedule::sums::lane_sum;

/// Sums of `len` values over the lanes of a plane: lane `k plane / len` has that of value `k`. Lanes halve what they carry
/// with every exchange, so four sums cost six exchanges instead of twenty. `len` is a power of two, at most `plane`.
#[cube]
fn sum_across(values: &mut Array<f32>, #[comptime] len: usize, #[comptime] plane: usize) -> f32 {
    let lane = UNIT_POS_X;
    #[unroll]
    for level in 0..comptime!(len.ilog2()) {
        let distance = comptime!((plane >> (level + 1)) as u32);
        let half = comptime!(len >> (level + 1));
        let upper = (lane & distance) != 0u32;
        #[unroll]
        for k in 0..half {
            let kept = select(upper, values[k + half], values[k]);
            let given = select(upper, values[k], values[k + half]);
            values[k] = kept + plane_shuffle_xor(given, distance);
        }
    }
    let mut sum = values[0];
    #[unroll]
    for level in 0..comptime!((plane / len).ilog2()) {
        sum += plane_shuffle_xor(sum, comptime!(((plane / len) >> (level + 1)) as u32));
    }
    sum
}

/// The products with `block` of the `count` vectors `[count, width]` from `first` on: these stay in registers while a plane
/// walks its rows.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn row_dots_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    vectors: &Array<f32>,
    out: &mut Array<f32>,
    x_stride: usize,
    row_vectors: usize,
    count: usize,
    first: usize,
    num_rows: usize,
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
            if c < row_vectors {
                #[unroll]
                for n in 0..vector.size() {
                    vector[n] = vectors[((first + k) * row_vectors + c) * N::value() + n];
                }
            }
            own[k * slots + slot] = vector;
        }
    }
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let mut products = Array::<f32>::new(padded);
        #[unroll]
        for k in 0..padded {
            products[k] = 0.0f32;
        }
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            if c < row_vectors {
                let value = Vector::<f32, N>::cast_from(x[row * x_stride + c]);
                #[unroll]
                for k in 0..block {
                    products[k] += lane_sum(value * own[k * slots + slot]);
                }
            }
        }
        let dot = sum_across(&mut products, padded, plane);
        let k = lane / comptime!(plane / padded);
        if lane == k * comptime!(plane / padded) && k < block {
            out[row * count + first + k] = dot;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// `out_i = sum_k g_ik vector_k`, added to what is there with `onto`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gradient_kernel<F: Float, N: Size>(
    g: &Array<f32>,
    vectors: &Array<f32>,
    out: &mut Array<Vector<F, N>>,
    out_stride: usize,
    row_vectors: usize,
    count: usize,
    num_rows: usize,
    #[comptime] onto: bool,
    #[define(F)] _type: StorageType,
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let mut c = UNIT_POS_X as usize;
        while c < row_vectors {
            let at = row * out_stride + c;
            let mut sum = Vector::<f32, N>::empty().fill(0.0f32);
            if onto {
                sum = Vector::<f32, N>::cast_from(out[at]);
            }
            for k in 0..count {
                let weight = g[row * count + k];
                #[unroll]
                for n in 0..sum.size() {
                    sum[n] += weight * vectors[(k * row_vectors + c) * N::value() + n];
                }
            }
            out[at] = Vector::<F, N>::cast_from(sum);
            c += CUBE_DIM_X as usize;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// Sums `g_ik x_i` over a stretch of rows per plane, for `block` of the `count` weights from `first` on.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_sums_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    g: &Array<f32>,
    partial: &mut Array<f32>,
    x_stride: usize,
    row_vectors: usize,
    count: usize,
    first: usize,
    num_rows: usize,
    rows_per_partial: usize,
    num_partials: usize,
    #[comptime] block: usize,
    #[comptime] slots: usize,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut stretch = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while stretch < num_partials {
        let start = stretch * rows_per_partial;
        let end = select(start + rows_per_partial < num_rows, start + rows_per_partial, num_rows);
        let mut sums = Array::<Vector<f32, N>>::new(comptime!(block * slots));
        #[unroll]
        for s in 0..block * slots {
            sums[s] = Vector::<f32, N>::empty().fill(0.0f32);
        }
        for row in start..end {
            #[unroll]
            for slot in 0..slots {
                let c = slot * plane + lane;
                if c < row_vectors {
                    let value = Vector::<f32, N>::cast_from(x[row * x_stride + c]);
                    #[unroll]
                    for k in 0..block {
                        let weight = Vector::<f32, N>::empty().fill(g[row * count + first + k]);
                        sums[k * slots + slot] += value * weight;
                    }
                }
            }
        }
        #[unroll]
        for k in 0..block {
            #[unroll]
            for slot in 0..slots {
                let c = slot * plane + lane;
                if c < row_vectors {
                    let sum = sums[k * slots + slot];
                    #[unroll]
                    for n in 0..sum.size() {
                        partial[((stretch * count + first + k) * row_vectors + c) * N::value() + n] = sum[n];
                    }
                }
            }
        }
        stretch += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
