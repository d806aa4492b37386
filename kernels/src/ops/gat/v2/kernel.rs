//! Attention with a score behind the non-linearity, a plane per row (a team of planes for a long one): lanes hold a
//! stretch of channels each, of a few edges at a time, which serve the score and the sum. All passes share this.

use cubecl::prelude::*;

use crate::graph::drop_edge::DropMode;
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, first_work, id_at, in_reach, reached, result_of, row_of, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::{lane_sum, load_vectors, take_lanes, team_max_by_lane, team_sum};
use crate::ops::dropout::kernel::edge_factor;
use crate::ops::gat::edges::kernel::{AgeMode, EdgeInputs, EdgeShape, edge_of, encode_age, read_values};
use crate::ops::gat::kernel::{
    Attended, GatShape, HeadLayout, Rules, filled, heads_of_slots, leaky_relu, shared_vectors, zeros,
};
use crate::runtime::args::{Matrix, launch_args};

/// Which slots and lanes hold the channels of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HeadSpan {
    /// All lanes of so many slots.
    Slots(usize),
    /// So many lanes beside each other, a power of two.
    Lanes(usize),
    /// Heads end anywhere.
    Any,
}

impl HeadSpan {
    /// Of `heads` heads of `head_vectors` vectors on planes of `plane` lanes with `slots` slots each.
    pub fn of(heads: usize, head_vectors: usize, plane: usize, slots: usize) -> Self {
        match head_vectors {
            _ if heads == 1 => HeadSpan::Slots(slots),
            n if n.is_multiple_of(plane) => HeadSpan::Slots(n / plane),
            n if n.is_power_of_two() && n < plane => HeadSpan::Lanes(n),
            _ => HeadSpan::Any,
        }
    }

    /// Slots of a lane that are of one head for sure.
    fn slots(self) -> usize {
        match self {
            HeadSpan::Slots(slots) => slots,
            _ => 1,
        }
    }

    /// Heads that a lane with `slots` slots has a part in; each has a softmax there.
    pub fn groups(self, slots: usize) -> usize {
        slots / self.slots()
    }
}

/// Entries whose rows are on their way at a time, where each has `rows` of them.
pub(super) fn batch(slots: usize, rows: usize, schedule: RowSchedule) -> usize {
    (schedule.in_flight / (slots * rows)).max(1)
}

/// Elements of shared memory through which the planes of a team find their maxima.
fn maxima(schedule: RowSchedule) -> usize {
    if schedule.team == 1 { 1 } else { schedule.team * schedule.plane }
}

launch_args! {
    /// The features of both ends, and the parameters: the attention vectors and the projection of what edges carry.
    V2Ends, V2EndsArgs<F: Float, N: Size> {
        src: Matrix<F, N>,
        dst: Matrix<F, N>,
        parameters: Array<Vector<f32, N>>,
    }
}

/// Row `row` of a matrix, zeros on lanes beyond it; all zeros unless `wanted`.
#[cube]
pub(super) fn own_row<F: Float, N: Size>(
    matrix: &Matrix<F, N>,
    row: usize,
    wanted: bool,
    layout: &HeadLayout,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    let mut own = zeros::<N>(slots);
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        if wanted && c < layout.vectors {
            own[slot] = Vector::<f32, N>::cast_from(matrix.values[row * matrix.stride + c]);
        }
    }
    own
}

/// The attention vectors, zeros on lanes beyond the row: so what these lanes compute counts nowhere.
#[cube]
pub(super) fn attention_of<N: Size>(
    parameters: &Array<Vector<f32, N>>,
    layout: &HeadLayout,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    let mut attention = zeros::<N>(slots);
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        if c < layout.vectors {
            attention[slot] = parameters[c];
        }
    }
    attention
}

/// The rows of a batch of entries, by entry and slot; lanes beyond a row have its first vector.
#[cube]
pub(super) fn rows_of<F: Float, N: Size>(
    matrix: &Matrix<F, N>,
    rows: &Array<usize>,
    layout: &HeadLayout,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    let mut all = Array::<Vector<f32, N>>::new(comptime!(batch * slots));
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        let values = load_vectors::<F, N>(matrix, layout.vectors, rows, c, batch);
        #[unroll]
        for u in 0..batch {
            all[u * slots + slot] = Vector::<f32, N>::cast_from(values[u]);
        }
    }
    all
}

/// Encodes the age of the edge of a lane, entry `e` between the nodes `row` and `col`, behind the columns of values in
/// `encoded`, with the slopes of its cosines by their angles in `slopes`; gives the age.
#[cube]
pub(super) fn encode_lane<F: Float, P: Int, M: Size>(
    carried: &EdgeInputs<F, P, M>,
    e: usize,
    kept: bool,
    row: usize,
    col: u32,
    encoded: &mut Array<f32>,
    slopes: &mut Array<f32>,
    #[comptime] with_slopes: bool,
    #[comptime] carries: EdgeShape,
) -> f32 {
    let mut age = 0.0f32;
    if comptime!(carries.age != AgeMode::Nowhere) {
        let col = col as usize;
        if kept {
            let edge = edge_of(carried, e, carries);
            age = encode_age(carried, edge, row, col, encoded, slopes, 0usize, with_slopes, carries);
        }
    }
    age
}

/// What a batch of entries of a tile carries, by entry: all lanes read the same values, and the lane of an entry hands
/// over the encoding of its age.
#[cube]
pub(super) fn values_of<F: Float, P: Int, M: Size>(
    carried: &EdgeInputs<F, P, M>,
    tile: usize,
    lanes: &Array<u32>,
    encoded: &Array<f32>,
    #[comptime] batch: usize,
    #[comptime] carries: EdgeShape,
) -> Array<f32> {
    let count = comptime!(carries.columns());
    let mut values = Array::<f32>::new(comptime!((batch * count).max(1)));
    if comptime!(carries.values > 0) {
        #[unroll]
        for u in 0..batch {
            let mut of_edge = Array::<f32>::new(comptime!(carries.values));
            let edge = edge_of(carried, tile + lanes[u] as usize, carries);
            read_values(carried, edge, &mut of_edge, carries);
            #[unroll]
            for k in 0..carries.values {
                values[u * count + k] = of_edge[k];
            }
        }
    }
    if comptime!(count > carries.values) {
        #[unroll]
        for u in 0..batch {
            #[unroll]
            for k in 0..comptime!(count - carries.values) {
                let column = comptime!(carries.values) + k;
                values[u * count + column] = plane_shuffle(encoded[column], lanes[u]);
            }
        }
    }
    values
}

/// Vector `c` of row `k` of the projection; the first one of lanes beyond the row.
#[cube]
pub(super) fn projection_at<N: Size>(
    parameters: &Array<Vector<f32, N>>,
    layout: &HeadLayout,
    k: usize,
    c: usize,
) -> Vector<f32, N> {
    parameters[(k + 1) * layout.vectors + select(c < layout.vectors, c, 0usize.runtime())]
}

/// What stands before the leaky ReLU of a batch of entries, by entry and slot: both ends and the projected values.
#[cube]
pub(super) fn hidden_of<N: Size>(
    own: &Array<Vector<f32, N>>,
    rows: &Array<Vector<f32, N>>,
    values: &Array<f32>,
    parameters: &Array<Vector<f32, N>>,
    layout: &HeadLayout,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] count: usize,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    let mut hidden = Array::<Vector<f32, N>>::new(comptime!(batch * slots));
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        #[unroll]
        for u in 0..batch {
            hidden[u * slots + slot] = own[slot] + rows[u * slots + slot];
        }
        // A vector of the projection serves all entries of the batch.
        #[unroll]
        for k in 0..count {
            let weight = projection_at::<N>(parameters, layout, k, c);
            #[unroll]
            for u in 0..batch {
                hidden[u * slots + slot] += weight * Vector::<f32, N>::empty().fill(values[u * count + k]);
            }
        }
    }
    hidden
}

/// [`leaky_relu`] of every element.
#[cube]
pub(super) fn leaky_relus<N: Size>(vector: Vector<f32, N>, slope: f32) -> Vector<f32, N> {
    let mut out = vector;
    #[unroll]
    for n in 0..out.size() {
        out[n] = leaky_relu(vector[n], slope);
    }
    out
}

/// The derivative of [`leaky_relu`] at every element.
#[cube]
pub(super) fn leans<N: Size>(vector: Vector<f32, N>, slope: f32) -> Vector<f32, N> {
    let mut out = vector;
    #[unroll]
    for n in 0..out.size() {
        out[n] = select(vector[n] > 0.0f32, 1.0f32, slope);
    }
    out
}

/// `<own, row>` of the head of every group of slots, by entry and group: every lane has those of its own heads.
#[cube]
pub(super) fn head_dots<N: Size>(
    own: &Array<Vector<f32, N>>,
    rows: &Array<Vector<f32, N>>,
    head: &Array<usize>,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] heads: usize,
    #[comptime] span: HeadSpan,
) -> Array<f32> {
    let groups = comptime!(span.groups(slots));
    let each = comptime!(span.slots());
    let mut dots = filled(0.0f32, comptime!(batch * groups));
    #[unroll]
    for u in 0..batch {
        // A lane's share.
        #[unroll]
        for slot in 0..slots {
            dots[comptime!(u * groups + slot / each)] += lane_sum(own[slot] * rows[u * slots + slot]);
        }
        match comptime!(span) {
            HeadSpan::Slots(_) =>
            {
                #[unroll]
                for group in 0..groups {
                    dots[u * groups + group] = plane_sum(dots[u * groups + group]);
                }
            }
            HeadSpan::Lanes(lanes) =>
            {
                #[unroll]
                for group in 0..groups {
                    let mut sum = dots[u * groups + group];
                    #[unroll]
                    for step in 0..comptime!(lanes.ilog2()) {
                        sum += plane_shuffle_xor(sum, comptime!(1u32 << step));
                    }
                    dots[u * groups + group] = sum;
                }
            }
            HeadSpan::Any => {
                let mut shares = Array::<f32>::new(groups);
                #[unroll]
                for group in 0..groups {
                    shares[group] = dots[u * groups + group];
                }
                #[unroll]
                for h in 0..heads {
                    let mut share = 0.0f32;
                    #[unroll]
                    for group in 0..groups {
                        share += select(head[group] == h, shares[group], 0.0f32);
                    }
                    let total = plane_sum(share);
                    #[unroll]
                    for group in 0..groups {
                        dots[u * groups + group] = select(head[group] == h, total, dots[u * groups + group]);
                    }
                }
            }
        }
    }
    dots
}

/// One plane per row `i`: scores, a running softmax and the weighted sum from one gather of `src_j`.
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
                        let x = rows_of::<F, N>(&ends.src, &sources, layout, batch, slots, schedule);
                        let values = values_of(carried, tile, &lanes, &encoded, batch, carries);
                        let count = comptime!(carries.columns());
                        let mut hidden =
                            hidden_of::<N>(&own, &x, &values, &ends.parameters, layout, batch, slots, count, schedule);
                        #[unroll]
                        for at in 0..comptime!(batch * slots) {
                            hidden[at] = leaky_relus::<N>(hidden[at], rules.slope);
                        }
                        let scores = head_dots::<N>(&attention, &hidden, &head, batch, slots, heads, span);
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
