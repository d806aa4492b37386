//! The gradient of the attention vectors of [`super::attend_inputs`], a plane per row or stripe of a long row.

use cubecl::prelude::*;

use super::kernel::{Attended, Attention, GatShape, leaky_relu, score, zeros};
use crate::graph::drop_edge::DropMode;
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, first_work, id_at, in_reach, reached, result_of, row_ahead, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::lane_sum;
use crate::ops::dropout::kernel::edge_factor;
use crate::runtime::args::{Matrix, launch_args};

/// Rows of sources that are on their way at a time.
const IN_FLIGHT: usize = 4;

launch_args! {
    /// The gradient of the results, the results, and the features of both ends of an edge.
    VectorInputs, VectorInputsArgs<F: Float, N: Size> {
        g: Matrix<F, N>,
        results: Attended<F, N>,
        x_src: Matrix<F, N>,
        x_dst: Matrix<F, N>,
    }
}

launch_args! {
    /// Where partial sums of `vectors` each go.
    PartialSums, PartialSumsArgs {
        first: usize,
        vectors: usize,
    }
}

/// `dv_0 = sum_i (sum_j dz_ij) x_i` and `dv_1 = sum_ij dz_ij x_j` over the rows of a plane, with
/// `dz_ij = a_ij l_ij (f_ij <g_i, x_j> - <g_i, y_i>)` and `l_ij` the slope of the leaky ReLU. `partial` has two rows of
/// `vectors` per plane, from plane `first_partial` on. Planes of a team take stripes of a row: all of it is sums.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn attention_vector_kernel<F: Float, P: Int, N: Size>(
    edges: &Edges<P>,
    inputs: &VectorInputs<F, N>,
    attention: &Attention,
    partial: &mut Array<Vector<f32, N>>,
    rows: &RowList,
    columns: &ColumnPositions,
    place: &PartialSums,
    #[comptime] shape: GatShape,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let unroll = comptime!(if shape.slots >= IN_FLIGHT { 1usize } else { IN_FLIGHT / shape.slots });
    let drops = comptime!(shape.attention_dropout != DropMode::KeepAll);
    let mut to_dst = zeros::<N>(shape.slots);
    let mut to_src = zeros::<N>(shape.slots);
    // Row, entries and first columns of the next rows come while this one is added up: each is read where the one
    // before has come already, so that a plane does not wait for one after the other.
    let step = work_step(schedule);
    let stripe = team_rank(schedule) * schedule.plane + lane;
    let mut work = first_work(schedule);
    let mut row = row_ahead(work, rows, schedule);
    let mut next_row = row_ahead(work + step, rows, schedule);
    let mut third_row = row_ahead(work + 2 * step, rows, schedule);
    let (start, end) = span_of(edges, row, schedule.spans);
    let mut first = start;
    let mut last = end;
    let (start, end) = span_of(edges, next_row, schedule.spans);
    let mut next_first = start;
    let mut next_last = end;
    let mut id = id_at(&edges.col_idx, first + stripe, last);
    while work < rows.end {
        let next_id = id_at(&edges.col_idx, next_first + stripe, next_last);
        let (third_first, third_last) = span_of(edges, third_row, schedule.spans);
        let fourth_row = row_ahead(work + 3 * step, rows, schedule);
        let result = result_of(work, row, rows, schedule);
        if result >= 0i32 && first < last && in_reach(last - first, schedule) {
            let i = usize::cast_from(result);
            let scored = if shape.whole { row } else { i };
            let own_score = score(&attention.dst, scored, 0usize);
            let own_log = inputs.results.log_sum_exp[i];
            let mut own = zeros::<N>(shape.slots);
            let mut gradient = zeros::<N>(shape.slots);
            let mut delta = 0.0f32;
            #[unroll]
            for slot in 0..shape.slots {
                let c = slot * schedule.plane + lane;
                if c < place.vectors {
                    own[slot] = Vector::<f32, N>::cast_from(inputs.x_dst.values[row * inputs.x_dst.stride + c]);
                    gradient[slot] = Vector::<f32, N>::cast_from(inputs.g.values[i * inputs.g.stride + c]);
                    delta += lane_sum(
                        gradient[slot] * Vector::<f32, N>::cast_from(inputs.results.out[i * place.vectors + c]),
                    );
                }
            }
            let delta = plane_sum(delta);
            let mut score_gradient = 0.0f32;

            let mut tile = first + team_rank(schedule) * schedule.plane;
            let mut ahead = id;
            while tile < last {
                // Each lane owns an edge: is it kept, and what is its attention, times the slope at its score?
                let e = tile + lane;
                let valid = e < last;
                let col = u32::cast_from(ahead);
                ahead = id_at(&edges.col_idx, e + comptime!(schedule.plane * schedule.team), last);
                let (kept, j) = reached(row, col, valid, &attention.rules.drop, columns, shape.drop, schedule);
                let mut weight = 0.0f32;
                let mut factor = 1.0f32;
                if kept {
                    if drops {
                        factor =
                            edge_factor(&attention.rules.dropout, row as u32, col, 0usize, shape.attention_dropout);
                    }
                    let z = own_score + score(&attention.src, j, 0usize);
                    weight = (leaky_relu(z, attention.rules.slope) - own_log).exp()
                        * select(z > 0.0f32, 1.0f32, attention.rules.slope);
                }
                let ballot = plane_ballot(kept);
                #[unroll]
                for word in 0..schedule.ballot_words {
                    let mut bits = ballot[word];
                    while bits != 0u32 {
                        let mut weights = Array::<f32>::new(unroll);
                        let mut factors = Array::<f32>::new(unroll);
                        let mut values = Array::<Vector<f32, N>>::new(comptime!(unroll * shape.slots));
                        let mut from = 0u32;
                        #[unroll]
                        for u in 0..unroll {
                            // A missing one repeats the row before, which is in cache, with weight zero.
                            let present = bits != 0u32;
                            from = select(present, bits.find_first_set() - 1u32, from);
                            bits &= bits - select(present, 1u32, 0u32);
                            let source = from + comptime!(word as u32 * 32u32);
                            let source_row = plane_shuffle(j as u32, source) as usize * inputs.x_src.stride;
                            weights[u] = select(present, plane_shuffle(weight, source), 0.0f32);
                            if drops {
                                factors[u] = plane_shuffle(factor, source);
                            }
                            #[unroll]
                            for slot in 0..shape.slots {
                                let c = slot * schedule.plane + lane;
                                let value =
                                    inputs.x_src.values[source_row + select(c < place.vectors, c, 0usize.runtime())];
                                values[u * shape.slots + slot] = Vector::<f32, N>::cast_from(value);
                            }
                        }
                        #[unroll]
                        for u in 0..unroll {
                            // Lanes beyond the row have a gradient of zero.
                            let mut product = 0.0f32;
                            #[unroll]
                            for slot in 0..shape.slots {
                                product += lane_sum(gradient[slot] * values[u * shape.slots + slot]);
                            }
                            let mut through = plane_sum(product);
                            if drops {
                                through *= factors[u];
                            }
                            let dz = weights[u] * (through - delta);
                            score_gradient += dz;
                            #[unroll]
                            for slot in 0..shape.slots {
                                to_src[slot] += values[u * shape.slots + slot] * Vector::<f32, N>::empty().fill(dz);
                            }
                        }
                    }
                }
                tile += comptime!(schedule.plane * schedule.team);
            }
            #[unroll]
            for slot in 0..shape.slots {
                to_dst[slot] += own[slot] * Vector::<f32, N>::empty().fill(score_gradient);
            }
        }
        row = next_row;
        first = next_first;
        last = next_last;
        id = next_id;
        next_row = third_row;
        next_first = third_first;
        next_last = third_last;
        third_row = fourth_row;
        work += step;
    }
    let at = (place.first + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize) * 2 * place.vectors;
    #[unroll]
    for slot in 0..shape.slots {
        let c = slot * schedule.plane + lane;
        if c < place.vectors {
            partial[at + c] = to_dst[slot];
            partial[at + place.vectors + c] = to_src[slot];
        }
    }
}
