//! The forward pass of attention with a score behind the non-linearity.

use cubecl::prelude::*;

use super::kernel::{
    HeadSpan, V2Ends, attention_of, batch, encode_lane, head_dots, hidden_of, leaky_relus, own_row, rows_of, values_of,
};
use crate::graph::drop_edge::DropMode;
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, first_work, id_at, in_reach, reached, result_of, row_of, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::{take_lanes, team_max_by_lane, team_sum};
use crate::ops::dropout::kernel::edge_factor;
use crate::ops::gat::edges::kernel::{EdgeInputs, EdgeShape};
use crate::ops::gat::kernel::{Attended, GatShape, HeadLayout, Rules, filled, heads_of_slots, shared_vectors, zeros};

/// Elements of shared memory through which the planes of a team find their maxima.
fn maxima(schedule: RowSchedule) -> usize {
    if schedule.team == 1 { 1 } else { schedule.team * schedule.plane }
}

/// One plane per row `i`: scores, a running softmax and the weighted sum of messages from one gather of `src_j`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gatv2_forward_kernel<F: Float, P: Int, N: Size, M: Size>(
    edges: &Edges<P>,
    ends: &V2Ends<F, N>,
    carried: &EdgeInputs<F, P, M>,
    rules: &Rules,
    results: &mut Attended<F, N>,
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
    let batch = comptime!(batch(slots, 1, schedule));
    let drops = comptime!(shape.attention_dropout != DropMode::KeepAll);
    let mut shared = SharedMemory::<Vector<f32, N>>::new(comptime!(shared_vectors(shape, schedule)));
    let mut scalars = SharedMemory::<f32>::new(comptime!(maxima(schedule)));
    let head = heads_of_slots(layout, shape, schedule);
    let attention = attention_of::<N>(&ends.parameters, layout, slots, schedule);
    let mut work = first_work(schedule);
    while work < rows.end {
        let row = row_of(work, rows, schedule);
        let result = result_of(work, row, rows, schedule);
        let (first, last) = span_of(edges, row, schedule.spans);
        if result >= 0i32 && in_reach(last - first, schedule) {
            let i = usize::cast_from(result);
            let own = own_row::<F, N>(&ends.dst, i, first < last, layout, slots, schedule);
            // Of the softmax of every group, relative to the maximum so far.
            let mut max = filled(f32::min_value(), groups);
            let mut mass = filled(0.0f32, groups);
            let mut sums = zeros::<N>(slots);

            let mut tile = first + team_rank(schedule) * schedule.plane;
            let mut ahead = id_at(&edges.col_idx, tile + lane, last);
            while tile < last {
                let e = tile + lane;
                let valid = e < last;
                let col = u32::cast_from(ahead);
                ahead = id_at(&edges.col_idx, e + comptime!(schedule.plane * schedule.team), last);
                let (kept, j) = reached(row, col, valid, &rules.drop, columns, shape.drop, schedule);
                let mut encoded = filled(0.0f32, comptime!(carries.columns().max(1)));
                let mut slopes = filled(0.0f32, comptime!(carries.cosines.max(1)));
                encode_lane(carried, e, kept, row, col, &mut encoded, &mut slopes, false, carries);
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
                        let mut hidden = hidden_of::<N>(
                            &own,
                            &mut x,
                            &values,
                            &ends.parameters,
                            layout,
                            batch,
                            slots,
                            comptime!(carries.columns()),
                            0usize,
                            slots,
                            messages,
                            schedule,
                        );
                        #[unroll]
                        for at in 0..comptime!(batch * slots) {
                            hidden[at] = leaky_relus::<N>(hidden[at], rules.slope);
                        }
                        let scores = head_dots::<N>(&attention, &hidden, &head, 0usize, batch, slots, heads, span);
                        let mut weights = Array::<f32>::new(comptime!(batch * groups));
                        let mut rescale = Array::<f32>::new(groups);
                        #[unroll]
                        for group in 0..groups {
                            let mut new_max = max[group];
                            #[unroll]
                            for u in 0..batch {
                                let score = select(present[u], scores[u * groups + group], f32::min_value());
                                new_max = new_max.max(score);
                            }
                            rescale[group] = (max[group] - new_max).exp();
                            max[group] = new_max;
                            mass[group] *= rescale[group];
                            #[unroll]
                            for u in 0..batch {
                                let weight = (scores[u * groups + group] - new_max).exp();
                                let mut weight = select(present[u], weight, 0.0f32);
                                mass[group] += weight;
                                if drops {
                                    let h = head[comptime!(group * (slots / groups))];
                                    let col = plane_shuffle(col, lanes[u]);
                                    weight *= edge_factor(&rules.dropout, row as u32, col, h, shape.attention_dropout);
                                }
                                weights[u * groups + group] = weight;
                            }
                        }
                        #[unroll]
                        for slot in 0..slots {
                            let group = comptime!(slot / (slots / groups));
                            sums[slot] *= Vector::<f32, N>::empty().fill(rescale[group]);
                            #[unroll]
                            for u in 0..batch {
                                let weight = weights[u * groups + group];
                                sums[slot] += x[u * slots + slot] * Vector::<f32, N>::empty().fill(weight);
                            }
                        }
                    }
                }
                tile += comptime!(schedule.plane * schedule.team);
            }

            if schedule.team > 1 {
                let mut masses = zeros::<N>(groups);
                #[unroll]
                for group in 0..groups {
                    let team_max = team_max_by_lane(max[group], &mut scalars, schedule);
                    let rescale = (max[group] - team_max).exp();
                    max[group] = team_max;
                    masses[group] = Vector::<f32, N>::empty().fill(mass[group] * rescale);
                    #[unroll]
                    for k in 0..comptime!(slots / groups) {
                        sums[comptime!(group * (slots / groups)) + k] *= Vector::<f32, N>::empty().fill(rescale);
                    }
                }
                team_sum::<N>(&mut masses, &mut shared, groups, schedule);
                team_sum::<N>(&mut sums, &mut shared, slots, schedule);
                #[unroll]
                for group in 0..groups {
                    let total = masses[group];
                    mass[group] = total[0];
                }
            }
            if team_rank(schedule) == 0 {
                #[unroll]
                for slot in 0..slots {
                    let c = slot * schedule.plane + lane;
                    let group = comptime!(slot / (slots / groups));
                    // Without kept edges all sums are zero and stay so.
                    let any = mass[group] > 0.0f32;
                    if c < layout.vectors {
                        let scale = Vector::<f32, N>::empty().fill(select(any, 1.0f32 / mass[group], 0.0f32));
                        results.out[i * layout.vectors + c] = Vector::<F, N>::cast_from(sums[slot] * scale);
                        // The lane with the first channels of a head.
                        let place = c % layout.head_vectors;
                        if place == 0 {
                            let log_sum_exp = select(any, max[group] + mass[group].ln(), f32::max_value());
                            results.log_sum_exp[i * heads + c / layout.head_vectors] = log_sum_exp;
                        }
                    }
                }
            }
        }
        work += work_step(schedule);
    }
}
