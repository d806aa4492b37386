//! Graph attention, a plane per row (a team of planes for a long one): lanes own an edge each while scores are
//! computed, a stretch of channels each while rows are gathered. Sums and softmax stay in registers. What both passes
//! share is here.

use cubecl::prelude::*;

use super::edges::kernel::{EdgeInputs, EdgeShape, edge_of, edge_score, read_edge};
use crate::graph::drop_edge::{DropEdgeKey, DropMode};
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, first_work, id_at, in_reach, reached, result_of, row_of, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::{add_rows, handed_weights, team_max, team_sum, team_sum_scalar};
use crate::ops::dropout::kernel::{DropoutKey, edge_factor};
use crate::runtime::args::{Matrix, launch_args};

/// What distinguishes one compiled kernel from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GatShape {
    pub heads: usize,
    /// Vectors of a row held by one lane.
    pub slots: usize,
    /// Whether the share of positive scores is written (forward); whether the gradient of the features is (reverse).
    pub second: bool,
    /// Reverse: whether the path through the source's score is part of the gradient of the features.
    pub through_score: bool,
    /// Whether scores of destinations have a row per node of the whole graph.
    pub whole: bool,
    /// Reverse: whether the gradient of the features, and that of the score, is added to what is there.
    pub accumulate_features: bool,
    pub accumulate_score: bool,
    pub drop: DropMode,
    /// Dropout of weights after the softmax.
    pub attention_dropout: DropMode,
}

launch_args! {
    /// Sums of what edges carry, as [`Attended`] and [`PositiveShare`] are of rows.
    EdgeSums, EdgeSumsArgs<F: Float> {
        out: Array<F>,
        positive: Array<F>,
    }
}

launch_args! {
    /// One part of the score: `heads` columns of a matrix from column `first` on.
    Score, ScoreArgs {
        values: Array<f32>,
        columns: usize,
        first: usize,
    }
}

launch_args! {
    /// What is left out, and the slope of the leaky ReLU.
    Rules, RulesArgs {
        slope: f32,
        drop: DropEdgeKey,
        dropout: DropoutKey,
    }
}

launch_args! {
    /// What the attention of an edge is computed from.
    Attention, AttentionArgs {
        dst: Score,
        src: Score,
        rules: Rules,
    }
}

launch_args! {
    /// The results of the forward pass.
    Attended, AttendedArgs<F: Float, N: Size> {
        out: Array<Vector<F, N>>,
        log_sum_exp: Array<f32>,
    }
}

launch_args! {
    /// The share of the results that edges with a positive score contributed.
    PositiveShare, PositiveShareArgs<F: Float, N: Size> {
        out: Array<Vector<F, N>>,
        mass: Array<f32>,
    }
}

launch_args! {
    /// Vectors of a row, and of one head of it.
    HeadLayout, HeadLayoutArgs {
        vectors: usize,
        head_vectors: usize,
    }
}

impl HeadLayout {
    /// Of rows of `width` elements in vectors of `vector`.
    pub fn of<R: Runtime>(width: usize, heads: usize, vector: usize) -> HeadLayoutLaunch<R> {
        HeadLayoutArgs { vectors: width / vector, head_vectors: width / heads / vector }.launch()
    }
}

/// The score of `row` for head `h`.
#[cube]
pub(super) fn score(part: &Score, row: usize, h: usize) -> f32 {
    part.values[row * part.columns + part.first + h]
}

#[cube]
pub(super) fn leaky_relu(z: f32, slope: f32) -> f32 {
    select(z > 0.0f32, z, z * slope)
}

/// The head of every slot of this lane; lanes beyond the row read head 0, whose values they never write.
#[cube]
pub(super) fn heads_of_slots(
    layout: &HeadLayout,
    #[comptime] shape: GatShape,
    #[comptime] schedule: RowSchedule,
) -> Array<usize> {
    let mut head = Array::<usize>::new(shape.slots);
    #[unroll]
    for slot in 0..shape.slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        if shape.heads == 1 {
            head[slot] = 0usize;
        } else {
            head[slot] = select(c < layout.vectors, c / layout.head_vectors, 0usize.runtime());
        }
    }
    head
}

/// The value of head `head` among `values`, which stay in registers: no array is indexed at run time.
#[cube]
pub(super) fn of_head(values: &Array<f32>, head: usize, #[comptime] heads: usize) -> f32 {
    let mut value = values[0];
    #[unroll]
    for h in 1..heads {
        value = select(head == h, values[h], value);
    }
    value
}

#[cube]
pub(super) fn zeros<N: Size>(#[comptime] slots: usize) -> Array<Vector<f32, N>> {
    let mut sums = Array::<Vector<f32, N>>::new(slots);
    #[unroll]
    for slot in 0..slots {
        sums[slot] = Vector::<f32, N>::empty().fill(0.0f32);
    }
    sums
}

#[cube]
pub(super) fn filled(value: f32, #[comptime] len: usize) -> Array<f32> {
    let mut values = Array::<f32>::new(len);
    #[unroll]
    for h in 0..len {
        values[h] = value;
    }
    values
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gat_forward_kernel<F: Float, P: Int, N: Size, M: Size>(
    edges: &Edges<P>,
    h_src: &Matrix<F, N>,
    carried: &ComptimeOption<EdgeInputs<F, P, M>>,
    attention: &Attention,
    results: &mut Attended<F, N>,
    positive: &mut PositiveShare<F, N>,
    edge_results: &mut ComptimeOption<EdgeSums<F>>,
    rows: &RowList,
    columns: &ColumnPositions,
    layout: &HeadLayout,
    #[comptime] shape: GatShape,
    #[comptime] carries: EdgeShape,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let heads = comptime!(shape.heads);
    let width = comptime!(carries.columns());
    let mut shared = SharedMemory::<Vector<f32, N>>::new(comptime!(shared_vectors(shape, schedule)));
    let mut scalars = SharedMemory::<f32>::new(schedule.team);
    let mut handed = SharedMemory::<f32>::new(comptime!(handed_weights(heads, schedule)));
    let head = heads_of_slots(layout, shape, schedule);
    let mut work = first_work(schedule);
    while work < rows.end {
        let row = row_of(work, rows, schedule);
        let result = result_of(work, row, rows, schedule);
        let (first, last) = span_of(edges, row, schedule.spans);
        if result >= 0i32 && in_reach(last - first, schedule) {
            let i = usize::cast_from(result);
            let scored = if shape.whole { row } else { i };
            // Running softmax per head: the maximum so far, and this lane's share of the masses relative to it.
            let mut max = filled(f32::min_value(), heads);
            let mut mass = filled(0.0f32, heads);
            let mut mass_of_positive = filled(0.0f32, heads);
            let mut sums = zeros::<N>(shape.slots);
            let mut positives = zeros::<N>(shape.slots);
            // Of what edges carry, a lane's share as well.
            let mut edge_sums = filled(0.0f32, comptime!((heads * width).max(1)));
            let mut edge_positives = filled(0.0f32, comptime!((heads * width).max(1)));

            let mut tile = first + team_rank(schedule) * schedule.plane;
            let mut ahead = id_at(&edges.col_idx, tile + lane, last);
            while tile < last {
                // Each lane owns an edge: is it kept, and what is its score?
                let e = tile + lane;
                let valid = e < last;
                let col = u32::cast_from(ahead);
                ahead = id_at(&edges.col_idx, e + comptime!(schedule.plane * schedule.team), last);
                let (kept, j) = reached(row, col, valid, &attention.rules.drop, columns, shape.drop, schedule);
                let mut gathers = kept;
                let drops = comptime!(shape.attention_dropout != DropMode::KeepAll);
                if drops {
                    gathers = false.runtime();
                }
                let mut carried_values = filled(0.0f32, comptime!(width.max(1)));
                #[comptime]
                if let ComptimeOption::Some(carried) = carried {
                    let mut unused = Array::<f32>::new(1usize);
                    if kept {
                        let edge = edge_of(carried, e, carries);
                        let (values, slopes) = (&mut carried_values, &mut unused);
                        read_edge(carried, edge, row, col as usize, values, slopes, heads, false, carries);
                    }
                }
                let mut weights = Array::<f32>::new(heads);
                let mut rescale = Array::<f32>::new(heads);
                #[unroll]
                for h in 0..heads {
                    let mut z = score(&attention.dst, scored, h) + score(&attention.src, j, h);
                    #[comptime]
                    if let ComptimeOption::Some(carried) = carried {
                        z += edge_score(carried, &carried_values, h, carries);
                    }
                    let logit = select(kept, leaky_relu(z, attention.rules.slope), f32::min_value());
                    let new_max = max[h].max(plane_max(logit));
                    rescale[h] = (max[h] - new_max).exp();
                    max[h] = new_max;
                    let weight = select(kept, (logit - new_max).exp(), 0.0f32);
                    mass[h] = mass[h] * rescale[h] + weight;
                    if shape.second {
                        mass_of_positive[h] = mass_of_positive[h] * rescale[h] + select(z > 0.0f32, weight, 0.0f32);
                    }
                    let mut weight = weight;
                    if drops {
                        weight *= edge_factor(&attention.rules.dropout, row as u32, col, h, shape.attention_dropout);
                        gathers = gathers || weight > 0.0f32;
                    }
                    #[unroll]
                    for k in 0..width {
                        let at = comptime!(h * width) + k;
                        let term = weight * carried_values[k];
                        edge_sums[at] = edge_sums[at] * rescale[h] + term;
                        if shape.second {
                            edge_positives[at] = edge_positives[at] * rescale[h] + select(z > 0.0f32, term, 0.0f32);
                        }
                    }
                    if shape.second {
                        // One number for both sums: its sign says whether the score is positive.
                        weights[h] = select(z > 0.0f32, weight, -weight);
                    } else {
                        weights[h] = weight;
                    }
                }
                #[unroll]
                for slot in 0..shape.slots {
                    let factor = Vector::<f32, N>::empty().fill(of_head(&rescale, head[slot], heads));
                    sums[slot] *= factor;
                    if shape.second {
                        positives[slot] *= factor;
                    }
                }
                add_rows::<F, N>(
                    h_src,
                    layout.vectors,
                    gathers,
                    j,
                    &weights,
                    &head,
                    &mut sums,
                    &mut positives,
                    &mut handed,
                    heads,
                    shape.slots,
                    shape.second,
                    schedule,
                );
                tile += comptime!(schedule.plane * schedule.team);
            }

            #[unroll]
            for h in 0..heads {
                let team_maximum = team_max(max[h], &mut scalars, schedule);
                let rescale = (max[h] - team_maximum).exp();
                max[h] = team_maximum;
                mass[h] = team_sum_scalar(mass[h] * rescale, &mut scalars, schedule);
                if shape.second {
                    mass_of_positive[h] = team_sum_scalar(mass_of_positive[h] * rescale, &mut scalars, schedule);
                }
                #[unroll]
                for k in 0..width {
                    let at = comptime!(h * width) + k;
                    edge_sums[at] = team_sum_scalar(edge_sums[at] * rescale, &mut scalars, schedule);
                    if shape.second {
                        edge_positives[at] = team_sum_scalar(edge_positives[at] * rescale, &mut scalars, schedule);
                    }
                }
                if schedule.team > 1 {
                    #[unroll]
                    for slot in 0..shape.slots {
                        let factor = select(head[slot] == h, rescale, 1.0f32);
                        sums[slot] *= Vector::<f32, N>::empty().fill(factor);
                        positives[slot] *= Vector::<f32, N>::empty().fill(factor);
                    }
                }
            }
            if schedule.team > 1 {
                team_sum::<N>(&mut sums, &mut shared, shape.slots, schedule);
                if shape.second {
                    team_sum::<N>(&mut positives, &mut shared, shape.slots, schedule);
                }
            }
            if team_rank(schedule) == 0 {
                #[unroll]
                for slot in 0..shape.slots {
                    let c = slot * schedule.plane + lane;
                    if c < layout.vectors {
                        // Without kept edges all sums are zero and stay so.
                        let total = of_head(&mass, head[slot], heads);
                        let scale = select(total > 0.0f32, 1.0f32 / total, 0.0f32);
                        let scale_all = Vector::<f32, N>::empty().fill(scale);
                        results.out[i * layout.vectors + c] = Vector::<F, N>::cast_from(sums[slot] * scale_all);
                        if shape.second {
                            positive.out[i * layout.vectors + c] =
                                Vector::<F, N>::cast_from(positives[slot] * scale_all);
                        }
                    }
                }
                if lane == 0 {
                    #[unroll]
                    for h in 0..heads {
                        let any = mass[h] > 0.0f32;
                        results.log_sum_exp[i * heads + h] = select(any, max[h] + mass[h].ln(), f32::max_value());
                        if shape.second {
                            positive.mass[i * heads + h] = select(any, mass_of_positive[h] / mass[h], 0.0f32);
                        }
                        #[comptime]
                        if let ComptimeOption::Some(edge_results) = edge_results {
                            let scale = select(any, 1.0f32 / mass[h], 0.0f32);
                            #[unroll]
                            for k in 0..width {
                                let at = comptime!(h * width) + k;
                                let to = i * comptime!(heads * width) + at;
                                edge_results.out[to] = F::cast_from(edge_sums[at] * scale);
                                if shape.second {
                                    edge_results.positive[to] = F::cast_from(edge_positives[at] * scale);
                                }
                            }
                        }
                    }
                }
            }
        }
        work += work_step(schedule);
    }
}

/// Vectors that a team adds up through shared memory.
pub(super) fn shared_vectors(shape: GatShape, schedule: RowSchedule) -> usize {
    if schedule.team == 1 { 1 } else { schedule.team * schedule.plane * shape.slots }
}
