//! The backward pass of attention with a score behind the non-linearity: one pass over destinations, one over sources.
//! Both compute the scores of their edges again, from rows that they gather anyway.

use cubecl::prelude::*;

use super::V2Wanted;
use super::kernel::{
    HeadSpan, V2Ends, attention_of, batch, encode_lane, head_dots, hidden_of, leaky_relus, leans, own_row,
    projection_at, rows_of, values_of,
};
use crate::graph::drop_edge::DropMode;
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, first_work, id_at, in_reach, reached, result_of, row_of, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::{lane_sum, take_lanes, team_sum};
use crate::ops::dropout::kernel::edge_factor;
use crate::ops::gat::backward_kernel::put_vector;
use crate::ops::gat::edges::kernel::{EdgeInputs, EdgeShape, edge_of};
use crate::ops::gat::kernel::{GatShape, HeadLayout, Rules, filled, heads_of_slots, shared_vectors, zeros};
use crate::runtime::args::{Matrix, launch_args};

launch_args! {
    /// What both passes read of destinations.
    V2Arrivals, V2ArrivalsArgs<F: Float, N: Size> {
        /// The gradient of the result.
        g: Matrix<F, N>,
        /// By head, both.
        log_sum_exp: Array<f32>,
        delta: Array<f32>,
    }
}

launch_args! {
    /// What the pass over destinations leaves.
    V2RowTargets, V2RowTargetsArgs<F: Float, N: Size> {
        dst: Matrix<F, N>,
        /// A row per plane: the share of its edges in the gradient of the parameters.
        partial: Array<Vector<f32, N>>,
        /// The row of the first plane of the launch.
        first: usize,
        /// A row per plane: its share in that of frequencies and phases.
        angles: ComptimeOption<Array<f32>>,
        values: ComptimeOption<Array<F>>,
    }
}

/// The pass over destinations, one plane per row `i`, with `dz_ij = a_ij (f_ij <g_i, m_ij> - delta_i)` and
/// `du_ij = dz_ij attention leaky_relu'(u_ij)`. Sums over all edges stay in registers from row to row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gatv2_rows_kernel<F: Float, P: Int, N: Size, M: Size>(
    edges: &Edges<P>,
    ends: &V2Ends<F, N>,
    arrivals: &V2Arrivals<F, N>,
    carried: &EdgeInputs<F, P, M>,
    rules: &Rules,
    targets: &mut V2RowTargets<F, N>,
    rows: &RowList,
    columns: &ColumnPositions,
    layout: &HeadLayout,
    #[comptime] shape: GatShape,
    #[comptime] span: HeadSpan,
    #[comptime] carries: EdgeShape,
    #[comptime] messages: bool,
    #[comptime] wanted: V2Wanted,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let (slots, heads) = comptime!((shape.slots, shape.heads));
    let groups = comptime!(span.groups(slots));
    let batch = comptime!(batch(slots, 1, schedule));
    let cosines = comptime!(carries.cosines);
    let count = comptime!(carries.columns());
    let drops = comptime!(shape.attention_dropout != DropMode::KeepAll);
    let mut shared = SharedMemory::<Vector<f32, N>>::new(comptime!(shared_vectors(shape, schedule)));
    let head = heads_of_slots(layout, shape, schedule);
    let attention = attention_of::<N>(&ends.parameters, layout, slots, schedule);
    let mut attention_sums = zeros::<N>(slots);
    let mut projection_sums = zeros::<N>(comptime!((count * slots).max(1)));
    let mut angle_sums = filled(0.0f32, comptime!((2 * cosines).max(1)));
    let mut work = first_work(schedule);
    while work < rows.end {
        let row = row_of(work, rows, schedule);
        let result = result_of(work, row, rows, schedule);
        let (first, last) = span_of(edges, row, schedule.spans);
        if result >= 0i32 && in_reach(last - first, schedule) {
            let i = usize::cast_from(result);
            let own = own_row::<F, N>(&ends.dst, i, first < last, layout, slots, schedule);
            let g = own_row::<F, N>(&arrivals.g, i, first < last, layout, slots, schedule);
            let mut log_sum_exp = Array::<f32>::new(groups);
            let mut delta = Array::<f32>::new(groups);
            #[unroll]
            for group in 0..groups {
                let at = i * heads + head[comptime!(group * (slots / groups))];
                log_sum_exp[group] = arrivals.log_sum_exp[at];
                delta[group] = arrivals.delta[at];
            }
            let mut sums = zeros::<N>(slots);

            let mut tile = first + team_rank(schedule) * schedule.plane;
            let mut ahead = id_at(&edges.col_idx, tile + lane, last);
            while tile < last {
                let e = tile + lane;
                let valid = e < last;
                let col = u32::cast_from(ahead);
                ahead = id_at(&edges.col_idx, e + comptime!(schedule.plane * schedule.team), last);
                let (kept, j) = reached(row, col, valid, &rules.drop, columns, shape.drop, schedule);
                let mut encoded = filled(0.0f32, comptime!(count.max(1)));
                let mut slopes = filled(0.0f32, comptime!(cosines.max(1)));
                let age = encode_lane(carried, e, kept, row, col, &mut encoded, &mut slopes, wanted.angles, carries);
                let ballot = plane_ballot(kept);
                #[unroll]
                for word in 0..schedule.ballot_words {
                    let mut bits = ballot[word];
                    while bits != 0u32 {
                        let mut sources = Array::<usize>::new(batch);
                        let mut lanes = Array::<u32>::new(batch);
                        let mut present = Array::<bool>::new(batch);
                        bits = take_lanes(bits, j, &mut sources, &mut lanes, &mut present, word, batch);
                        let mut x = rows_of::<F, N>(&ends.src, &sources, layout, batch, slots, schedule);
                        let values = values_of(carried, tile, &lanes, &encoded, batch, carries);
                        let hidden = hidden_of::<N>(
                            &own,
                            &mut x,
                            &values,
                            &ends.parameters,
                            layout,
                            batch,
                            slots,
                            count,
                            0usize,
                            slots,
                            messages,
                            schedule,
                        );
                        let mut active = Array::<Vector<f32, N>>::new(comptime!(batch * slots));
                        #[unroll]
                        for at in 0..comptime!(batch * slots) {
                            active[at] = leaky_relus::<N>(hidden[at], rules.slope);
                        }
                        let scores = head_dots::<N>(&attention, &active, &head, 0usize, batch, slots, heads, span);
                        let products = head_dots::<N>(&g, &x, &head, 0usize, batch, slots, heads, span);
                        let mut weights = Array::<f32>::new(comptime!(batch * groups));
                        let mut dz = Array::<f32>::new(comptime!(batch * groups));
                        #[unroll]
                        for u in 0..batch {
                            #[unroll]
                            for group in 0..groups {
                                let alpha = (scores[u * groups + group] - log_sum_exp[group]).exp();
                                let alpha = select(present[u], alpha, 0.0f32);
                                let mut factor = 1.0f32;
                                if drops {
                                    let h = head[comptime!(group * (slots / groups))];
                                    let col = plane_shuffle(col, lanes[u]);
                                    factor = edge_factor(&rules.dropout, row as u32, col, h, shape.attention_dropout);
                                }
                                weights[u * groups + group] = alpha * factor;
                                dz[u * groups + group] = alpha * (factor * products[u * groups + group] - delta[group]);
                            }
                        }
                        let mut of_values = filled(0.0f32, comptime!((batch * count).max(1)));
                        #[unroll]
                        for slot in 0..slots {
                            let group = comptime!(slot / (slots / groups));
                            let c = slot * schedule.plane + lane;
                            // The gradients of the hidden layers of the batch, then of its projected values.
                            let mut du = Array::<Vector<f32, N>>::new(batch);
                            #[unroll]
                            for u in 0..batch {
                                let dz = Vector::<f32, N>::empty().fill(dz[u * groups + group]);
                                du[u] = attention[slot] * dz * leans::<N>(hidden[u * slots + slot], rules.slope);
                                sums[slot] += du[u];
                                attention_sums[slot] += active[u * slots + slot] * dz;
                                if comptime!(messages) {
                                    du[u] += g[slot] * Vector::<f32, N>::empty().fill(weights[u * groups + group]);
                                }
                            }
                            #[unroll]
                            for k in 0..count {
                                #[unroll]
                                for u in 0..batch {
                                    let value = Vector::<f32, N>::empty().fill(values[u * count + k]);
                                    projection_sums[k * slots + slot] += du[u] * value;
                                }
                                if comptime!(wanted.values || wanted.angles) {
                                    let weight = projection_at::<N>(&ends.parameters, layout, k, c);
                                    #[unroll]
                                    for u in 0..batch {
                                        of_values[u * count + k] += lane_sum(weight * du[u]);
                                    }
                                }
                            }
                        }
                        #[comptime]
                        if let ComptimeOption::Some(gradient) = &mut targets.values {
                            #[unroll]
                            for u in 0..batch {
                                let edge = edge_of(carried, tile + lanes[u] as usize, carries);
                                #[unroll]
                                for k in 0..carries.values {
                                    let total = plane_sum(of_values[u * count + k]);
                                    if lane == 0 && present[u] {
                                        gradient[edge * carries.values + k] = F::cast_from(total);
                                    }
                                }
                            }
                        }
                        if comptime!(wanted.angles) {
                            #[unroll]
                            for u in 0..batch {
                                let age = plane_shuffle(age, lanes[u]);
                                #[unroll]
                                for k in 0..cosines {
                                    let column = comptime!(carries.first_cosine()) + k;
                                    let total = plane_sum(of_values[u * count + column]);
                                    let slope = plane_shuffle(slopes[k], lanes[u]);
                                    let of_angle = select(present[u], total * slope, 0.0f32);
                                    angle_sums[k] += of_angle * age;
                                    angle_sums[comptime!(cosines) + k] += of_angle;
                                }
                            }
                        }
                    }
                }
                tile += comptime!(schedule.plane * schedule.team);
            }
            if schedule.team > 1 {
                team_sum::<N>(&mut sums, &mut shared, slots, schedule);
            }
            if team_rank(schedule) == 0 {
                #[unroll]
                for slot in 0..slots {
                    let c = slot * schedule.plane + lane;
                    if c < layout.vectors {
                        put_vector(&mut targets.dst, i, c, sums[slot], false);
                    }
                }
            }
        }
        work += work_step(schedule);
    }
    let place = targets.first + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    let at = place * comptime!(1 + count) * layout.vectors;
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + lane;
        if c < layout.vectors {
            targets.partial[at + c] = attention_sums[slot];
            #[unroll]
            for k in 0..count {
                targets.partial[at + (k + 1) * layout.vectors + c] = projection_sums[k * slots + slot];
            }
        }
    }
    #[comptime]
    if let ComptimeOption::Some(partial) = &mut targets.angles {
        let at = place * comptime!(2 * cosines);
        if lane == 0 {
            #[unroll]
            for k in 0..comptime!(2 * cosines) {
                partial[at + k] = angle_sums[k];
            }
        }
    }
}

/// So many copies of a row.
#[cube]
fn copies_of<N: Size>(
    row: &Array<Vector<f32, N>>,
    #[comptime] slots: usize,
    #[comptime] copies: usize,
) -> Array<Vector<f32, N>> {
    let mut rows = Array::<Vector<f32, N>>::new(comptime!(copies * slots));
    #[unroll]
    for u in 0..copies {
        #[unroll]
        for slot in 0..slots {
            rows[u * slots + slot] = row[slot];
        }
    }
    rows
}

/// Zeros on lanes beyond the rows, so that their products count nowhere.
#[cube]
fn clear_beyond<N: Size>(
    rows: &mut Array<Vector<f32, N>>,
    layout: &HeadLayout,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) {
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        if c >= layout.vectors {
            #[unroll]
            for u in 0..batch {
                rows[u * slots + slot] = Vector::<f32, N>::empty().fill(0.0f32);
            }
        }
    }
}

/// The reverse pass, one plane per source `j`: `dsrc_j = sum_i (f_ij a_ij g_i + du_ij)`. Every row is written by one
/// launch alone.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gatv2_sources_kernel<F: Float, P: Int, N: Size, M: Size>(
    edges: &Edges<P>,
    ends: &V2Ends<F, N>,
    arrivals: &V2Arrivals<F, N>,
    carried: &EdgeInputs<F, P, M>,
    rules: &Rules,
    gradient: &mut Matrix<F, N>,
    rows: &RowList,
    columns: &ColumnPositions,
    layout: &HeadLayout,
    #[comptime] shape: GatShape,
    #[comptime] span: HeadSpan,
    #[comptime] carries: EdgeShape,
    #[comptime] messages: bool,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let (slots, heads) = comptime!((shape.slots, shape.heads));
    let groups = comptime!(span.groups(slots));
    let batch = comptime!(batch(slots, 2, schedule));
    let count = comptime!(carries.columns());
    let drops = comptime!(shape.attention_dropout != DropMode::KeepAll);
    // Messages of a batch, one for all entries or one each, and how far apart these are.
    let (senders, apart) = comptime!(if messages { (batch, slots) } else { (1, 0) });
    let mut shared = SharedMemory::<Vector<f32, N>>::new(comptime!(shared_vectors(shape, schedule)));
    let head = heads_of_slots(layout, shape, schedule);
    let attention = attention_of::<N>(&ends.parameters, layout, slots, schedule);
    let mut work = first_work(schedule);
    while work < rows.end {
        let row = row_of(work, rows, schedule);
        let result = result_of(work, row, rows, schedule);
        let (first, last) = span_of(edges, row, schedule.spans);
        if result >= 0i32 && in_reach(last - first, schedule) {
            let j = usize::cast_from(result);
            let own = own_row::<F, N>(&ends.src, j, first < last, layout, slots, schedule);
            let mut sums = zeros::<N>(slots);

            let mut tile = first + team_rank(schedule) * schedule.plane;
            let mut ahead = id_at(&edges.col_idx, tile + lane, last);
            while tile < last {
                let e = tile + lane;
                let valid = e < last;
                let col = u32::cast_from(ahead);
                ahead = id_at(&edges.col_idx, e + comptime!(schedule.plane * schedule.team), last);
                let (kept, i) = reached(row, col, valid, &rules.drop, columns, shape.drop, schedule);
                let mut encoded = filled(0.0f32, comptime!(count.max(1)));
                let mut slopes = filled(0.0f32, comptime!(carries.cosines.max(1)));
                encode_lane(carried, e, kept, row, col, &mut encoded, &mut slopes, false, carries);
                let ballot = plane_ballot(kept);
                #[unroll]
                for word in 0..schedule.ballot_words {
                    let mut bits = ballot[word];
                    while bits != 0u32 {
                        let mut to = Array::<usize>::new(batch);
                        let mut lanes = Array::<u32>::new(batch);
                        let mut present = Array::<bool>::new(batch);
                        bits = take_lanes(bits, i, &mut to, &mut lanes, &mut present, word, batch);
                        let x = rows_of::<F, N>(&ends.dst, &to, layout, batch, slots, schedule);
                        let g = rows_of::<F, N>(&arrivals.g, &to, layout, batch, slots, schedule);
                        let values = values_of(carried, tile, &lanes, &encoded, batch, carries);
                        let mut sent = copies_of::<N>(&own, slots, senders);
                        let hidden = hidden_of::<N>(
                            &x,
                            &mut sent,
                            &values,
                            &ends.parameters,
                            layout,
                            batch,
                            slots,
                            count,
                            slots,
                            apart,
                            messages,
                            schedule,
                        );
                        if comptime!(messages) {
                            clear_beyond::<N>(&mut sent, layout, batch, slots, schedule);
                        }
                        let mut active = Array::<Vector<f32, N>>::new(comptime!(batch * slots));
                        #[unroll]
                        for at in 0..comptime!(batch * slots) {
                            active[at] = leaky_relus::<N>(hidden[at], rules.slope);
                        }
                        let scores = head_dots::<N>(&attention, &active, &head, 0usize, batch, slots, heads, span);
                        let products = head_dots::<N>(&sent, &g, &head, apart, batch, slots, heads, span);
                        let mut weights = Array::<f32>::new(comptime!(batch * groups));
                        let mut dz = Array::<f32>::new(comptime!(batch * groups));
                        #[unroll]
                        for u in 0..batch {
                            #[unroll]
                            for group in 0..groups {
                                let h = head[comptime!(group * (slots / groups))];
                                let at = to[u] * heads + h;
                                let alpha = (scores[u * groups + group] - arrivals.log_sum_exp[at]).exp();
                                let alpha = select(present[u], alpha, 0.0f32);
                                let mut weight = alpha;
                                if drops {
                                    let col = plane_shuffle(col, lanes[u]);
                                    weight *= edge_factor(&rules.dropout, row as u32, col, h, shape.attention_dropout);
                                }
                                weights[u * groups + group] = weight;
                                dz[u * groups + group] =
                                    weight * products[u * groups + group] - alpha * arrivals.delta[at];
                            }
                        }
                        #[unroll]
                        for slot in 0..slots {
                            let group = comptime!(slot / (slots / groups));
                            #[unroll]
                            for u in 0..batch {
                                let weight = Vector::<f32, N>::empty().fill(weights[u * groups + group]);
                                let dz = Vector::<f32, N>::empty().fill(dz[u * groups + group]);
                                let lean = leans::<N>(hidden[u * slots + slot], rules.slope);
                                sums[slot] += g[u * slots + slot] * weight + attention[slot] * dz * lean;
                            }
                        }
                    }
                }
                tile += comptime!(schedule.plane * schedule.team);
            }
            if schedule.team > 1 {
                team_sum::<N>(&mut sums, &mut shared, slots, schedule);
            }
            if team_rank(schedule) == 0 {
                #[unroll]
                for slot in 0..slots {
                    let c = slot * schedule.plane + lane;
                    if c < layout.vectors {
                        put_vector(gradient, j, c, sums[slot], false);
                    }
                }
            }
        }
        work += work_step(schedule);
    }
}
