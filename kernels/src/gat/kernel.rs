//! Graph attention, one plane per row: lanes own an edge each while scores are computed, a stretch of channels each while
//! rows are gathered. Sums and softmax stay in registers.

#![allow(clippy::manual_is_multiple_of, reason = "the kernel language has no is_multiple_of")]

use cubecl::prelude::*;

use crate::drop_edge::{DropEdgeKey, DropMode, keeps};
use crate::spmm::kernel::lane_sum;

/// What distinguishes one compiled kernel from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GatShape {
    pub heads: usize,
    /// Vectors of a row held by one lane.
    pub slots: usize,
    /// Words of a ballot that can have bits: a plane of 64 lanes has two.
    pub ballot_words: usize,
    /// Whether the share of positive scores is written.
    pub positive: bool,
    pub drop: DropMode,
}

#[cube]
fn leaky_relu(z: f32, slope: f32) -> f32 {
    select(z > 0.0f32, z, z * slope)
}

/// The head of vector `c`; lanes beyond the row read head 0, whose values they never write.
#[cube]
fn head_of(c: usize, vectors: usize, head_vectors: usize, #[comptime] heads: usize) -> usize {
    if heads == 1 { 0usize.runtime() } else { select(c < vectors, c / head_vectors, 0usize.runtime()) }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gat_forward_kernel<F: Float, P: Int, N: Size>(
    row_ptr: &Array<P>,
    col_idx: &Array<i32>,
    h_src: &Array<Vector<F, N>>,
    dst_score: &Array<f32>,
    src_score: &Array<f32>,
    out: &mut Array<Vector<F, N>>,
    log_sum_exp: &mut Array<f32>,
    out_positive: &mut Array<Vector<F, N>>,
    mass_positive: &mut Array<f32>,
    drop: &DropEdgeKey,
    slope: f32,
    h_stride: usize,
    vectors: usize,
    head_vectors: usize,
    row_start: usize,
    row_end: usize,
    #[comptime] shape: GatShape,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let heads = comptime!(shape.heads);
    let mut row = row_start + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < row_end {
        let start = usize::cast_from(row_ptr[row]);
        let end = usize::cast_from(row_ptr[row + 1]);

        // Running softmax and sums of the head that each slot belongs to.
        let mut head = Array::<usize>::new(shape.slots);
        let mut max = Array::<f32>::new(shape.slots);
        let mut mass = Array::<f32>::new(shape.slots);
        let mut sums = Array::<Vector<f32, N>>::new(shape.slots);
        let mut positive_mass = Array::<f32>::new(shape.slots);
        let mut positive_sums = Array::<Vector<f32, N>>::new(shape.slots);
        #[unroll]
        for slot in 0..shape.slots {
            head[slot] = head_of(slot * plane + lane, vectors, head_vectors, shape.heads);
            max[slot] = f32::min_value();
            mass[slot] = 0.0f32;
            sums[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            positive_mass[slot] = 0.0f32;
            positive_sums[slot] = Vector::<f32, N>::empty().fill(0.0f32);
        }

        let mut tile = start;
        while tile < end {
            // Each lane owns an edge: is it kept, and what is its score?
            let e = tile + lane;
            let valid = e < end;
            let col = u32::cast_from(col_idx[select(valid, e, start)]);
            let kept = valid && keeps(drop, row as u32, col, shape.drop);
            let mut own_weight = 0.0f32;
            let mut own_positive = 0.0f32;
            for h in 0..heads {
                let z = dst_score[row * heads + h] + src_score[col as usize * heads + h];
                let logit = select(kept, leaky_relu(z, slope), f32::min_value());
                let tile_max = plane_max(logit);
                #[unroll]
                for slot in 0..shape.slots {
                    if head[slot] == h {
                        let new_max = max[slot].max(tile_max);
                        let rescale = (max[slot] - new_max).exp();
                        max[slot] = new_max;
                        mass[slot] *= rescale;
                        sums[slot] *= Vector::<f32, N>::empty().fill(rescale);
                        if shape.positive {
                            positive_mass[slot] *= rescale;
                            positive_sums[slot] *= Vector::<f32, N>::empty().fill(rescale);
                        }
                    }
                }
                if shape.heads == 1 {
                    own_weight = (logit - max[0]).exp();
                    own_positive = select(z > 0.0f32, own_weight, 0.0f32);
                }
            }

            // All lanes visit the kept edges of the tile together, each adding its channels.
            let ballot = plane_ballot(kept);
            #[unroll]
            for word in 0..shape.ballot_words {
                let mut bits = ballot[word];
                while bits != 0u32 {
                    let k = bits.find_first_set() - 1u32;
                    bits &= bits - 1u32;
                    let source_lane = k + comptime!(word as u32 * 32u32);
                    let j = plane_shuffle(col, source_lane) as usize;
                    let mut shared_weight = 0.0f32;
                    let mut shared_positive = 0.0f32;
                    if shape.heads == 1 {
                        shared_weight = plane_shuffle(own_weight, source_lane);
                        if shape.positive {
                            shared_positive = plane_shuffle(own_positive, source_lane);
                        }
                    }
                    #[unroll]
                    for slot in 0..shape.slots {
                        let c = slot * plane + lane;
                        let mut weight = shared_weight;
                        let mut positive = shared_positive;
                        if shape.heads != 1 {
                            let z = dst_score[row * heads + head[slot]] + src_score[j * heads + head[slot]];
                            weight = (leaky_relu(z, slope) - max[slot]).exp();
                            positive = select(z > 0.0f32, weight, 0.0f32);
                        }
                        mass[slot] += weight;
                        if c < vectors {
                            let value = Vector::<f32, N>::cast_from(h_src[j * h_stride + c]);
                            sums[slot] += value * Vector::<f32, N>::empty().fill(weight);
                            if shape.positive {
                                positive_mass[slot] += positive;
                                positive_sums[slot] += value * Vector::<f32, N>::empty().fill(positive);
                            }
                        }
                    }
                }
            }
            tile += plane;
        }

        #[unroll]
        for slot in 0..shape.slots {
            let c = slot * plane + lane;
            if c < vectors {
                // Without kept edges all sums are zero and stay so.
                let any = mass[slot] > 0.0f32;
                let scale = select(any, 1.0f32 / mass[slot], 0.0f32);
                let scale_all = Vector::<f32, N>::empty().fill(scale);
                out[row * vectors + c] = Vector::<F, N>::cast_from(sums[slot] * scale_all);
                let first_of_head = c % head_vectors == 0;
                if shape.positive {
                    out_positive[row * vectors + c] = Vector::<F, N>::cast_from(positive_sums[slot] * scale_all);
                    if first_of_head {
                        mass_positive[row * heads + head[slot]] = positive_mass[slot] * scale;
                    }
                }
                if first_of_head {
                    log_sum_exp[row * heads + head[slot]] = select(any, max[slot] + mass[slot].ln(), f32::max_value());
                }
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// The reverse pass, one plane per source `j`: gathers `g_i` of every destination once.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gat_backward_kernel<F: Float, P: Int, N: Size>(
    row_ptr: &Array<P>,
    col_idx: &Array<i32>,
    g: &Array<Vector<F, N>>,
    h_src: &Array<Vector<F, N>>,
    attention_src: &Array<f32>,
    dst_score: &Array<f32>,
    src_score: &Array<f32>,
    log_sum_exp: &Array<f32>,
    centre: &Array<f32>,
    dh: &mut Array<Vector<F, N>>,
    dt: &mut Array<f32>,
    drop: &DropEdgeKey,
    slope: f32,
    g_stride: usize,
    h_stride: usize,
    vectors: usize,
    head_vectors: usize,
    row_start: usize,
    row_end: usize,
    #[comptime] shape: GatShape,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let heads = comptime!(shape.heads);
    let mut row = row_start + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < row_end {
        let start = usize::cast_from(row_ptr[row]);
        let end = usize::cast_from(row_ptr[row + 1]);

        let mut head = Array::<usize>::new(shape.slots);
        let mut own = Array::<Vector<f32, N>>::new(shape.slots);
        let mut sums = Array::<Vector<f32, N>>::new(shape.slots);
        let mut products = Array::<f32>::new(shape.slots);
        let mut score_gradient = Array::<f32>::new(shape.heads);
        #[unroll]
        for slot in 0..shape.slots {
            let c = slot * plane + lane;
            head[slot] = head_of(c, vectors, head_vectors, shape.heads);
            own[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            sums[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            products[slot] = 0.0f32;
            if c < vectors {
                own[slot] = Vector::<f32, N>::cast_from(h_src[row * h_stride + c]);
            }
        }
        #[unroll]
        for h in 0..shape.heads {
            score_gradient[h] = 0.0f32;
        }

        let mut tile = start;
        while tile < end {
            let e = tile + lane;
            let valid = e < end;
            let col = u32::cast_from(col_idx[select(valid, e, start)]);
            let kept = valid && keeps(drop, row as u32, col, shape.drop);
            let ballot = plane_ballot(kept);
            #[unroll]
            for word in 0..shape.ballot_words {
                let mut bits = ballot[word];
                while bits != 0u32 {
                    let k = bits.find_first_set() - 1u32;
                    bits &= bits - 1u32;
                    let i = plane_shuffle(col, k + comptime!(word as u32 * 32u32)) as usize;
                    #[unroll]
                    for slot in 0..shape.slots {
                        let c = slot * plane + lane;
                        if c < vectors {
                            let at = i * heads + head[slot];
                            let z = dst_score[at] + src_score[row * heads + head[slot]];
                            let alpha = (leaky_relu(z, slope) - log_sum_exp[at]).exp();
                            let value = Vector::<f32, N>::cast_from(g[i * g_stride + c]);
                            products[slot] = lane_sum(value * own[slot]);
                            sums[slot] += value * Vector::<f32, N>::empty().fill(alpha);
                        }
                    }
                    #[unroll]
                    for h in 0..shape.heads {
                        let mut part = 0.0f32;
                        #[unroll]
                        for slot in 0..shape.slots {
                            part += select(head[slot] == h, products[slot], 0.0f32);
                        }
                        let dot = plane_sum(part);
                        let at = i * heads + h;
                        let z = dst_score[at] + src_score[row * heads + h];
                        let alpha = (leaky_relu(z, slope) - log_sum_exp[at]).exp();
                        score_gradient[h] += alpha * (dot - centre[at]) * select(z > 0.0f32, 1.0f32, slope);
                    }
                }
            }
            tile += plane;
        }

        #[unroll]
        for slot in 0..shape.slots {
            let c = slot * plane + lane;
            if c < vectors {
                let mut through_score = 0.0f32;
                #[unroll]
                for h in 0..shape.heads {
                    through_score = select(head[slot] == h, score_gradient[h], through_score);
                }
                let mut total = sums[slot];
                #[unroll]
                for k in 0..total.size() {
                    total[k] += through_score * attention_src[c * N::value() + k];
                }
                dh[row * vectors + c] = Vector::<F, N>::cast_from(total);
            }
        }
        if lane == 0 {
            #[unroll]
            for h in 0..shape.heads {
                dt[row * heads + h] = score_gradient[h];
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
