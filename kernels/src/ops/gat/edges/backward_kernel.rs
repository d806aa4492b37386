//! The reverse pass of attention whose edges carry something, a plane per source as in the plain one. Here every edge
//! needs the product of its own ends: it is taken from the row that is gathered anyway.

use cubecl::prelude::*;

use super::kernel::{EdgeInputs, EdgeShape, edge_ahead, edge_score, read_edge};
use crate::graph::drop_edge::DropMode;
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, first_work, id_at, in_reach, reached, result_of, row_of, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::{add_and_multiply_rows, handed_weights, team_sum, team_sum_scalar};
use crate::ops::dropout::kernel::edge_factor;
use crate::ops::gat::backward_kernel::{BackwardInputs, Gradients, any_of_row, arrival_of, put_scores, put_vector};
use crate::ops::gat::kernel::{
    GatShape, HeadLayout, Rules, filled, heads_of_slots, leaky_relu, score, shared_vectors, zeros,
};
use crate::runtime::args::launch_args;

launch_args! {
    /// Gradients of what edges carry.
    EdgeTargets, EdgeTargetsArgs<F: Float> {
        /// A row per plane: the share of its edges in the gradient of the parameters.
        partial: Array<f32>,
        /// The row of the first plane of the launch.
        first: usize,
        values: ComptimeOption<Array<F>>,
    }
}

/// The reverse pass, one plane per source `j`, with `dz_ij = a_ij l_ij (f_ij p_ij - delta_i)`,
/// `p_ij = <g_i, h_j> + <gv_i, e_ij>` and `l_ij` the slope of the leaky ReLU; of `gv_i` there are
/// `sum_columns` a head, or none. A lane owns an edge: what its edge adds to the gradients of parameters stays in its
/// registers from row to row, and is added up once, behind the last.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gat_edges_backward_kernel<F: Float, P: Int, N: Size, M: Size, K: Size>(
    edges: &Edges<P>,
    inputs: &BackwardInputs<F, N, K>,
    carried: &EdgeInputs<F, P, M>,
    rules: &Rules,
    gradients: &mut Gradients<F, N>,
    targets: &mut EdgeTargets<F>,
    rows: &RowList,
    columns: &ColumnPositions,
    layout: &HeadLayout,
    #[comptime] shape: GatShape,
    #[comptime] carries: EdgeShape,
    #[comptime] sum_columns: usize,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let heads = comptime!(shape.heads);
    let width = comptime!(carries.columns());
    let cosines = comptime!(carries.cosines);
    let parameters = comptime!(heads * width + 2 * cosines);
    let mut shared = SharedMemory::<Vector<f32, N>>::new(comptime!(shared_vectors(shape, schedule)));
    let mut scalars = SharedMemory::<f32>::new(schedule.team);
    let mut handed = SharedMemory::<f32>::new(comptime!(handed_weights(heads, schedule)));
    let head = heads_of_slots(layout, shape, schedule);
    let mut parameter_sums = filled(0.0f32, parameters);
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
            // Lanes beyond the row have zeros there.
            let mut own = zeros::<N>(shape.slots);
            #[unroll]
            for slot in 0..shape.slots {
                let c = slot * schedule.plane + lane;
                if first < last && c < layout.vectors {
                    own[slot] = Vector::<f32, N>::cast_from(inputs.h_src.values[j * inputs.h_src.stride + c]);
                }
            }
            let mut score_gradient = filled(0.0f32, heads);
            let mut sums = zeros::<N>(shape.slots);

            let mut any_kept = false.runtime();
            let mut tile = first + team_rank(schedule) * schedule.plane;
            let step = comptime!(schedule.plane * schedule.team);
            let mut ahead = id_at(&edges.col_idx, tile + lane, last);
            let mut next_edge = edge_ahead(carried, tile + lane, last, carries);
            while tile < last {
                let e = tile + lane;
                let valid = e < last;
                let col = u32::cast_from(ahead);
                let edge = next_edge;
                let next = e + step;
                ahead = id_at(&edges.col_idx, next, last);
                next_edge = edge_ahead(carried, next, last, carries);
                let (kept, i) = reached(row, col, valid, &rules.drop, columns, shape.drop, schedule);
                any_kept = any_kept || kept;
                let mut gathers = kept;
                let drops = comptime!(shape.attention_dropout != DropMode::KeepAll);
                if drops {
                    gathers = false.runtime();
                }
                let mut carried_values = filled(0.0f32, width);
                let mut slopes = filled(0.0f32, comptime!(cosines.max(1)));
                let mut age = 0.0f32;
                let mut alphas = filled(0.0f32, heads);
                let mut weights = filled(0.0f32, heads);
                let mut leans = filled(0.0f32, heads);
                // The gradient of what the edge carries, and its share in the products: first that of the sums of
                // edges, which are read before the rows, so that both are on their way together.
                let mut of_columns = filled(0.0f32, width);
                let mut products = filled(0.0f32, heads);
                let mut deltas = filled(0.0f32, heads);
                if kept {
                    age = read_edge(
                        carried,
                        edge,
                        row,
                        col as usize,
                        &mut carried_values,
                        &mut slopes,
                        heads,
                        true,
                        carries,
                    );
                    #[unroll]
                    for h in 0..heads {
                        let arrival = arrival_of(&inputs.arrivals, i, h, sum_columns);
                        let z = arrival[0] + own_score[h] + edge_score(carried, &carried_values, h, carries);
                        alphas[h] = (leaky_relu(z, rules.slope) - arrival[1]).exp();
                        deltas[h] = arrival[2];
                        leans[h] = select(z > 0.0f32, 1.0f32, rules.slope);
                        let mut weight = alphas[h];
                        if drops {
                            weight *= edge_factor(&rules.dropout, row as u32, col, h, shape.attention_dropout);
                            gathers = gathers || weight > 0.0f32;
                        }
                        weights[h] = weight;
                        #[unroll]
                        for k in 0..sum_columns {
                            let arrives = arrival[k + 3];
                            products[h] += arrives * carried_values[k];
                            of_columns[k] += weight * arrives;
                        }
                    }
                }
                add_and_multiply_rows::<F, N>(
                    &inputs.g,
                    layout.vectors,
                    gathers,
                    i,
                    &weights,
                    &head,
                    &own,
                    &mut sums,
                    &mut products,
                    &mut handed,
                    heads,
                    shape.slots,
                    schedule,
                );
                if kept {
                    #[unroll]
                    for h in 0..heads {
                        let dz = leans[h] * (weights[h] * products[h] - alphas[h] * deltas[h]);
                        score_gradient[h] += dz;
                        #[unroll]
                        for k in 0..width {
                            parameter_sums[comptime!(h * width) + k] += dz * carried_values[k];
                            of_columns[k] += dz * carried.parameters[comptime!(h * width) + k];
                        }
                    }
                    #[unroll]
                    for k in 0..cosines {
                        let of_angle = of_columns[comptime!(carries.first_cosine()) + k] * slopes[k];
                        parameter_sums[comptime!(heads * width) + k] += of_angle * age;
                        parameter_sums[comptime!(heads * width + cosines) + k] += of_angle;
                    }
                    #[comptime]
                    if let ComptimeOption::Some(values) = &mut targets.values {
                        #[unroll]
                        for k in 0..carries.values {
                            values[edge * carries.values + k] = F::cast_from(of_columns[k]);
                        }
                    }
                }
                tile += step;
            }
            if schedule.team > 1 {
                team_sum::<N>(&mut sums, &mut shared, shape.slots, schedule);
            }
            #[unroll]
            for h in 0..heads {
                score_gradient[h] = team_sum_scalar(score_gradient[h], &mut scalars, schedule);
            }
            if team_rank(schedule) == 0 {
                let any = any_of_row(any_kept, schedule);
                if shape.second {
                    let changes = any || comptime!(!shape.accumulate_features);
                    #[unroll]
                    for slot in 0..shape.slots {
                        let c = slot * schedule.plane + lane;
                        if changes && c < layout.vectors {
                            put_vector(&mut gradients.dh, j, c, sums[slot], shape.accumulate_features);
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
    let place = targets.first + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    #[unroll]
    for k in 0..parameters {
        let total = plane_sum(parameter_sums[k]);
        if lane == 0 {
            targets.partial[place * parameters + k] = total;
        }
    }
}
