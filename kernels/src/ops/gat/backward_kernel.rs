//! The backward pass of graph attention: a pass over destinations without edges, then one over sources that gathers.

use cubecl::prelude::*;

use super::edges::kernel::read_vectors;
use super::kernel::{
    GatShape, HeadLayout, PositiveShare, Rules, Score, filled, heads_of_slots, leaky_relu, of_head, score,
    shared_vectors, zeros,
};
use crate::graph::drop_edge::DropMode;
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, first_work, id_at, in_reach, reached, result_of, row_of, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::{add_rows, handed_weights, lane_sum, team_sum, team_sum_scalar};
use crate::ops::dropout::kernel::edge_factor;
use crate::ops::gat::arrival_columns;
use crate::runtime::args::{Matrix, Table, launch_args};

launch_args! {
    /// Of destinations: what the first pass reads of the forward pass.
    ArrivalInputs, ArrivalInputsArgs<F: Float, N: Size> {
        score: Score,
        out: Array<Vector<F, N>>,
        log_sum_exp: Array<f32>,
        positive: PositiveShare<F, N>,
    }
}

launch_args! {
    /// The gradient of what edges add up to, and their sums: all of them and those of positive scores.
    ArrivalSums, ArrivalSumsArgs<F: Float> {
        g: Array<F>,
        out: Array<F>,
        positive: Array<F>,
    }
}

launch_args! {
    /// What the reverse pass reads of sources and destinations.
    BackwardInputs, BackwardInputsArgs<F: Float, N: Size, K: Size> {
        g: Matrix<F, N>,
        h_src: Matrix<F, N>,
        /// Of sources.
        score: Score,
        /// By destination and head, [`arrival_columns`] each: what an edge reads of its destination beside `g`. Each
        /// of these on its own would be a sector of memory per edge.
        arrivals: Matrix<f32, K>,
    }
}

launch_args! {
    /// Gradients of the features and of the scores.
    Gradients, GradientsArgs<F: Float, N: Size> {
        dh: Matrix<F, N>,
        dt: Table<f32>,
    }
}

/// What `arrivals` have of destination `i` for head `h`, with the gradient of `sums` that edges add up to.
#[cube]
pub(super) fn arrival_of<K: Size>(
    arrivals: &Matrix<f32, K>,
    i: usize,
    #[comptime] h: usize,
    #[comptime] sums: usize,
) -> Array<f32> {
    let columns = comptime!(arrival_columns(sums));
    let width = K::value();
    let mut values = Array::<f32>::new(columns);
    read_vectors(&arrivals.values, i * arrivals.stride + comptime!(h * columns / width), &mut values, columns);
    values
}

/// Whether a row changes its gradients: without kept edges both are zero, so nothing is worth reading, and a sum stays
/// what it was. Of a team, the others may have some.
#[cube]
pub(super) fn any_of_row(any_kept: bool, #[comptime] schedule: RowSchedule) -> bool {
    let mut any = true.runtime();
    if schedule.team == 1 {
        any = plane_any(any_kept);
    }
    any
}

/// Vector `c` of row `row` of the gradient of features; with `accumulate_into` it is added.
#[cube]
pub(super) fn put_vector<F: Float, N: Size>(
    gradient: &mut Matrix<F, N>,
    row: usize,
    c: usize,
    value: Vector<f32, N>,
    #[comptime] accumulate_into: bool,
) {
    let at = row * gradient.stride + c;
    if accumulate_into {
        let so_far = Vector::<f32, N>::cast_from(gradient.values[at]);
        gradient.values[at] = Vector::<F, N>::cast_from(value + so_far);
    } else {
        gradient.values[at] = Vector::<F, N>::cast_from(value);
    }
}

/// Row `row` of the gradient of a matrix of scores, of which a relation has the `heads` columns from `first` on: adds
/// to these with `accumulate_into`, else writes them and zeros beside them.
#[cube]
pub(super) fn put_scores(
    gradient: &mut Table<f32>,
    row: usize,
    columns: usize,
    first: usize,
    values: &Array<f32>,
    #[comptime] heads: usize,
    #[comptime] accumulate_into: bool,
) {
    let mut c = UNIT_POS_X as usize;
    if accumulate_into {
        while c < heads {
            gradient.values[row * gradient.stride + first + c] += of_head(values, c, heads);
            c += CUBE_DIM_X as usize;
        }
    } else {
        while c < columns {
            let own = c >= first && c < first + heads;
            let value = of_head(values, select(own, c - first, 0usize.runtime()), heads);
            gradient.values[row * gradient.stride + c] = select(own, value, 0.0f32);
            c += CUBE_DIM_X as usize;
        }
    }
}

/// What the reverse pass reads of every destination, one plane per row, with `delta_i = <g_i, y_i>` (and of what edges
/// add up to, likewise), and where `positive` the gradient of its score, `(1 - slope) (<g_i, y+_i> - delta_i A+_i)`,
/// added to what is there with `accumulate_into`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gat_arrivals_kernel<F: Float, N: Size>(
    g: &Matrix<F, N>,
    results: &ArrivalInputs<F, N>,
    of_edges: &ComptimeOption<ArrivalSums<F>>,
    arrivals: &mut Array<f32>,
    ds: &mut Table<f32>,
    slope: f32,
    layout: &HeadLayout,
    num_rows: usize,
    #[comptime] heads: usize,
    #[comptime] slots: usize,
    #[comptime] edge_columns: usize,
    #[comptime] positive: bool,
    #[comptime] accumulate_into: bool,
    #[define(F)] _type: StorageType,
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let columns = comptime!(arrival_columns(edge_columns));
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let own = row * comptime!(heads * columns);
        let mut deltas = filled(0.0f32, heads);
        let mut positives = filled(0.0f32, heads);
        #[unroll]
        for slot in 0..slots {
            let c = slot * plane + lane;
            if c < layout.vectors {
                let gradient = Vector::<f32, N>::cast_from(g.values[row * g.stride + c]);
                let product = lane_sum(gradient * Vector::<f32, N>::cast_from(results.out[row * layout.vectors + c]));
                let mut positive_product = 0.0f32;
                if positive {
                    positive_product = lane_sum(
                        gradient * Vector::<f32, N>::cast_from(results.positive.out[row * layout.vectors + c]),
                    );
                }
                let head = c / layout.head_vectors;
                #[unroll]
                for h in 0..heads {
                    deltas[h] += select(head == h, product, 0.0f32);
                    positives[h] += select(head == h, positive_product, 0.0f32);
                }
            }
        }
        #[comptime]
        if let ComptimeOption::Some(of_edges) = of_edges {
            let mut c = lane;
            while c < comptime!(heads * edge_columns) {
                let at = row * comptime!(heads * edge_columns) + c;
                let gradient = f32::cast_from(of_edges.g[at]);
                let product = gradient * f32::cast_from(of_edges.out[at]);
                let mut positive_product = 0.0f32;
                if positive {
                    positive_product = gradient * f32::cast_from(of_edges.positive[at]);
                }
                let head = c / edge_columns;
                arrivals[own + head * columns + 3 + c % edge_columns] = gradient;
                #[unroll]
                for h in 0..heads {
                    deltas[h] += select(head == h, product, 0.0f32);
                    positives[h] += select(head == h, positive_product, 0.0f32);
                }
                c += plane;
            }
        }
        #[unroll]
        for h in 0..heads {
            let total = plane_sum(deltas[h]);
            if positive {
                let difference = plane_sum(positives[h]) - total * results.positive.mass[row * heads + h];
                positives[h] = (1.0f32 - slope) * difference;
            }
            if lane == 0 {
                let at = own + comptime!(h * columns);
                arrivals[at] = score(&results.score, row, h);
                arrivals[at + 1] = results.log_sum_exp[row * heads + h];
                arrivals[at + 2] = total;
            }
        }
        if positive {
            put_scores(ds, row, results.score.columns, results.score.first, &positives, heads, accumulate_into);
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// The reverse pass, one plane per source `j`: gathers `g_i` of every destination once. Every row of the results is
/// written, or added to, by one launch alone.
///
/// `dt_j = sum_i a_ij l_ij (<g_i, h_j> - delta_i)` with `l_ij` the slope of the leaky ReLU needs no product per edge:
/// it is `<sum_i a_ij l_ij g_i, h_j> - sum_i a_ij l_ij delta_i`, and `l_ij` has two values, so two sums of rows are
/// enough.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gat_backward_kernel<F: Float, P: Int, N: Size, K: Size>(
    edges: &Edges<P>,
    inputs: &BackwardInputs<F, N, K>,
    attention_src: &Array<f32>,
    rules: &Rules,
    gradients: &mut Gradients<F, N>,
    rows: &RowList,
    columns: &ColumnPositions,
    layout: &HeadLayout,
    #[comptime] shape: GatShape,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let heads = comptime!(shape.heads);
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
            let j = usize::cast_from(result);
            let mut own_score = Array::<f32>::new(heads);
            #[unroll]
            for h in 0..heads {
                own_score[h] = score(&inputs.score, j, h);
            }
            let mut deltas = filled(0.0f32, heads);
            let mut sums = zeros::<N>(shape.slots);
            let mut positives = zeros::<N>(shape.slots);

            let mut any_kept = false.runtime();
            let mut tile = first + team_rank(schedule) * schedule.plane;
            let mut ahead = id_at(&edges.col_idx, tile + lane, last);
            while tile < last {
                let e = tile + lane;
                let valid = e < last;
                let col = u32::cast_from(ahead);
                ahead = id_at(&edges.col_idx, e + comptime!(schedule.plane * schedule.team), last);
                let (kept, i) = reached(row, col, valid, &rules.drop, columns, shape.drop, schedule);
                any_kept = any_kept || kept;
                let mut gathers = kept;
                let drops = comptime!(shape.attention_dropout != DropMode::KeepAll);
                if drops {
                    gathers = false.runtime();
                }
                let mut weights = filled(0.0f32, heads);
                if kept {
                    #[unroll]
                    for h in 0..heads {
                        let arrival = arrival_of(&inputs.arrivals, i, h, 0usize);
                        let z = arrival[0] + own_score[h];
                        let alpha = (leaky_relu(z, rules.slope) - arrival[1]).exp();
                        deltas[h] += alpha * select(z > 0.0f32, 1.0f32, rules.slope) * arrival[2];
                        let mut weight = alpha;
                        if drops {
                            weight *= edge_factor(&rules.dropout, row as u32, col, h, shape.attention_dropout);
                            gathers = gathers || weight > 0.0f32;
                        }
                        weights[h] = select(z > 0.0f32, weight, -weight);
                    }
                }
                add_rows::<F, N>(
                    &inputs.g,
                    layout.vectors,
                    gathers,
                    i,
                    &weights,
                    &head,
                    &mut sums,
                    &mut positives,
                    &mut handed,
                    heads,
                    shape.slots,
                    true,
                    schedule,
                );
                tile += comptime!(schedule.plane * schedule.team);
            }
            if schedule.team > 1 {
                team_sum::<N>(&mut sums, &mut shared, shape.slots, schedule);
                team_sum::<N>(&mut positives, &mut shared, shape.slots, schedule);
                #[unroll]
                for h in 0..heads {
                    deltas[h] = team_sum_scalar(deltas[h], &mut scalars, schedule);
                }
            }
            if team_rank(schedule) == 0 {
                let any = any_of_row(any_kept, schedule);
                // <sum a l g, h_j> per head: a lane's share first.
                let mut products = filled(0.0f32, heads);
                #[unroll]
                for slot in 0..shape.slots {
                    let c = slot * schedule.plane + lane;
                    if any && c < layout.vectors {
                        let own = Vector::<f32, N>::cast_from(inputs.h_src.values[j * inputs.h_src.stride + c]);
                        let negatives = (sums[slot] - positives[slot]) * Vector::<f32, N>::empty().fill(rules.slope);
                        let product = lane_sum(own * (positives[slot] + negatives));
                        #[unroll]
                        for h in 0..heads {
                            products[h] += select(head[slot] == h, product, 0.0f32);
                        }
                    }
                }
                let mut score_gradient = Array::<f32>::new(heads);
                #[unroll]
                for h in 0..heads {
                    let mut difference = products[h];
                    if schedule.team == 1 {
                        difference -= deltas[h];
                    }
                    score_gradient[h] = plane_sum(difference);
                    if schedule.team > 1 {
                        score_gradient[h] -= deltas[h];
                    }
                }
                if shape.second {
                    let changes = any || comptime!(!shape.accumulate_features);
                    #[unroll]
                    for slot in 0..shape.slots {
                        let c = slot * schedule.plane + lane;
                        if changes && c < layout.vectors {
                            let mut total = sums[slot];
                            if shape.through_score {
                                let through = of_head(&score_gradient, head[slot], heads);
                                #[unroll]
                                for k in 0..total.size() {
                                    total[k] += through * attention_src[c * N::value() + k];
                                }
                            }
                            put_vector(&mut gradients.dh, j, c, total, shape.accumulate_features);
                        }
                    }
                }
                if any || comptime!(!shape.accumulate_score) {
                    put_scores(
                        &mut gradients.dt,
                        j,
                        inputs.score.columns,
                        inputs.score.first,
                        &score_gradient,
                        heads,
                        shape.accumulate_score,
                    );
                }
            }
        }
        work += work_step(schedule);
    }
}
