//! A plane per row (a team of planes for a long one): lanes own an entry each while weights are read, a stretch of
//! channels each while rows are gathered; of narrow rows, a plane gathers several at a time. f32 sums stay in
//! registers.

use cubecl::prelude::*;

use crate::graph::drop_edge::{DropEdgeKey, DropMode, keeps};
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, col_of, first_work, in_reach, reached, result_of, row_of, span_of, team_rank,
    work_step,
};
use crate::graph::row_schedule::sums::{add_groups, add_narrow_rows, add_rows, lane_sum, team_sum, team_sum_scalar};
use crate::runtime::args::{Matrix, launch_args};

/// What a launch reads besides the matrix; each combination is a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpmmShape {
    pub dst_scale: bool,
    pub src_scale: bool,
    pub weight: bool,
    /// Weights are read through an edge map.
    pub edge_map: bool,
    /// It has an edge per row, not per entry.
    pub edge_of_row: bool,
    /// A self term is added, its rows found through positions or not.
    pub own: bool,
    pub own_position: bool,
    /// The result is added to the rows that are there.
    pub accumulate_into: bool,
    pub drop: DropMode,
    /// Vectors of a row held by one lane.
    pub slots: usize,
    /// Lanes side by side on a row: a plane, or few where rows are narrow.
    pub lanes: usize,
}

launch_args! {
    /// One value per node of the whole graph.
    Scales, ScalesArgs {
        dst: Array<f32>,
        src: Array<f32>,
    }
}

launch_args! {
    /// One value per edge, and the edges of the entries.
    Weights, WeightsArgs<P: Int> {
        values: Array<f32>,
        edge_map: Array<P>,
    }
}

launch_args! {
    /// The self term: rows, a factor per node of the whole graph, and where the row of a node stands.
    OwnTerm, OwnTermArgs<F: Float, N: Size> {
        h: Matrix<F, N>,
        scale: Array<f32>,
        position: Array<i32>,
    }
}

launch_args! {
    /// What the product reads.
    SpmmInputs, SpmmInputsArgs<F: Float, P: Int, N: Size> {
        x: Matrix<F, N>,
        scales: Scales,
        weight: Weights<P>,
        own: OwnTerm<F, N>,
    }
}

launch_args! {
    /// What the gradient of the weights reads: a matrix by rows of the adjacency and one by its columns.
    WeightInputs, WeightInputsArgs<F: Float, N: Size> {
        of_rows: Matrix<F, N>,
        of_columns: Matrix<F, N>,
        scales: Scales,
    }
}

launch_args! {
    /// The nodes that entries stand for, and where these stand in a selection.
    EntryNodes, EntryNodesArgs {
        node: Array<i32>,
        position: Array<i32>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn spmm_kernel<F: Float, P: Int, N: Size>(
    edges: &Edges<P>,
    inputs: &SpmmInputs<F, P, N>,
    out: &mut Matrix<F, N>,
    rows: &RowList,
    columns: &ColumnPositions,
    drop: &DropEdgeKey,
    vectors: usize,
    #[comptime] shape: SpmmShape,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let mut handed = SharedMemory::<f32>::new(1usize);
    let lane = UNIT_POS_X as usize;
    let mut shared = SharedMemory::<Vector<f32, N>>::new(comptime!(if schedule.team == 1 {
        1usize
    } else {
        schedule.team * schedule.plane * shape.slots
    }));
    let head = Array::<usize>::new(1usize);
    let mut work = first_work(schedule);
    while work < rows.end {
        let row = row_of(work, rows, schedule);
        let out_row = result_of(work, row, rows, schedule);
        let (first, last) = span_of(edges, row, schedule.spans);
        if out_row >= 0i32 && in_reach(last - first, schedule) {
            let mut sums = Array::<Vector<f32, N>>::new(shape.slots);
            let mut unused = Array::<Vector<f32, N>>::new(shape.slots);
            #[unroll]
            for slot in 0..shape.slots {
                sums[slot] = Vector::<f32, N>::empty().fill(0.0f32);
                unused[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            }
            let mut any_kept = false.runtime();
            let mut tile = first + team_rank(schedule) * schedule.plane;
            while tile < last {
                let e = tile + lane;
                let valid = e < last;
                let e = select(valid, e, first);
                let col = u32::cast_from(edges.col_idx[e]);
                let kept = valid && keeps(drop, row as u32, col, shape.drop);
                let j = col_of(col, kept, columns, schedule);
                let kept = kept && j >= 0i32;
                any_kept = any_kept || kept;
                let mut w = 1.0f32;
                if kept {
                    if shape.src_scale {
                        w *= inputs.scales.src[col as usize];
                    }
                    if shape.weight {
                        let mut edge = e;
                        if shape.edge_map {
                            let named = if comptime!(shape.edge_of_row) { row } else { e };
                            edge = usize::cast_from(inputs.weight.edge_map[named]);
                        }
                        w *= inputs.weight.values[edge];
                    }
                }
                if comptime!(shape.lanes < schedule.plane) {
                    add_narrow_rows::<F, N>(
                        &inputs.x,
                        vectors,
                        kept,
                        usize::cast_from(select(kept, j, 0i32)),
                        w,
                        &mut sums,
                        shape.lanes,
                    );
                } else {
                    let mut weights = Array::<f32>::new(1usize);
                    weights[0] = w;
                    add_rows::<F, N>(
                        &inputs.x,
                        vectors,
                        kept,
                        usize::cast_from(j),
                        &weights,
                        &head,
                        &mut sums,
                        &mut unused,
                        &mut handed,
                        1usize,
                        shape.slots,
                        false,
                        schedule,
                    );
                }
                tile += comptime!(schedule.plane * schedule.team);
            }
            if comptime!(shape.lanes < schedule.plane) {
                add_groups::<N>(&mut sums, shape.lanes, schedule);
            }
            if schedule.team > 1 {
                team_sum::<N>(&mut sums, &mut shared, shape.slots, schedule);
            }
            let mut changes = team_rank(schedule) == 0;
            // Where nothing is added, the row is not worth reading.
            if comptime!(shape.accumulate_into && !shape.own && schedule.team == 1) {
                changes = plane_any(any_kept);
            }
            if changes {
                let mut scale = 1.0f32;
                if shape.dst_scale {
                    scale = inputs.scales.dst[row];
                }
                let mut own_at = i32::cast_from(row);
                if shape.own_position {
                    own_at = inputs.own.position[row];
                }
                #[unroll]
                for slot in 0..shape.slots {
                    let c = slot * schedule.plane + lane;
                    if c < vectors {
                        let mut scaled = sums[slot] * Vector::<f32, N>::empty().fill(scale);
                        if shape.own && own_at >= 0i32 {
                            let term = Vector::<f32, N>::cast_from(
                                inputs.own.h.values[usize::cast_from(own_at) * inputs.own.h.stride + c],
                            );
                            scaled += term * Vector::<f32, N>::empty().fill(inputs.own.scale[row]);
                        }
                        let at = usize::cast_from(out_row) * out.stride + c;
                        if shape.accumulate_into {
                            scaled += Vector::<f32, N>::cast_from(out.values[at]);
                        }
                        out.values[at] = Vector::<F, N>::cast_from(scaled);
                    }
                }
            }
        }
        work += work_step(schedule);
    }
}

/// `out_e = u_i v_j <g_i, x_j>`, one plane per row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn weight_gradient_kernel<F: Float, P: Int, N: Size>(
    edges: &Edges<P>,
    edge_map: &Array<P>,
    inputs: &WeightInputs<F, N>,
    out: &mut Array<f32>,
    rows: &RowList,
    columns: &ColumnPositions,
    drop: &DropEdgeKey,
    vectors: usize,
    #[comptime] shape: SpmmShape,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let mut work = first_work(schedule);
    while work < rows.end {
        let row = row_of(work, rows, schedule);
        let (start, end) = span_of(edges, row, schedule.spans);
        let mut own = Array::<Vector<f32, N>>::new(shape.slots);
        #[unroll]
        for slot in 0..shape.slots {
            own[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            let c = slot * schedule.plane + lane;
            if start < end && c < vectors {
                own[slot] = Vector::<f32, N>::cast_from(inputs.of_rows.values[work * inputs.of_rows.stride + c]);
            }
        }
        for e in start..end {
            let col = u32::cast_from(edges.col_idx[e]);
            let (kept, j) = reached(row, col, true, drop, columns, shape.drop, schedule);
            let mut product = Vector::<f32, N>::empty().fill(0.0f32);
            #[unroll]
            for slot in 0..shape.slots {
                let c = slot * schedule.plane + lane;
                if kept && c < vectors {
                    let at = j * inputs.of_columns.stride + c;
                    product += own[slot] * Vector::<f32, N>::cast_from(inputs.of_columns.values[at]);
                }
            }
            let mut dot = plane_sum(lane_sum(product));
            if shape.dst_scale {
                dot *= inputs.scales.dst[row];
            }
            if shape.src_scale {
                dot *= inputs.scales.src[col as usize];
            }
            if lane == 0 {
                let mut edge = e;
                if shape.edge_map {
                    edge = usize::cast_from(edge_map[e]);
                }
                if shape.accumulate_into {
                    dot += out[edge];
                }
                out[edge] = dot;
            }
        }
        work += work_step(schedule);
    }
}

/// `out_e = u_j <x_j, sum_i v_i g_i>` over the rows `i` that share entry `e` of node `j`, one plane per entry, or a
/// team of planes where many rows share it: rows here are entries, columns the rows that share them.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn shared_weight_gradient_kernel<F: Float, P: Int, N: Size>(
    sharers: &Edges<P>,
    nodes: &EntryNodes,
    inputs: &WeightInputs<F, N>,
    out: &mut Array<f32>,
    rows: &RowList,
    columns: &ColumnPositions,
    drop: &DropEdgeKey,
    vectors: usize,
    #[comptime] shape: SpmmShape,
    #[comptime] select_nodes: bool,
    #[comptime] schedule: RowSchedule,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let mut shared = SharedMemory::<f32>::new(schedule.team);
    let mut work = first_work(schedule);
    while work < rows.end {
        let entry = row_of(work, rows, schedule);
        let (start, end) = span_of(sharers, entry, schedule.spans);
        if in_reach(end - start, schedule) {
            let node = usize::cast_from(nodes.node[entry]);
            let mut at = nodes.node[entry];
            if select_nodes {
                at = nodes.position[node];
            }
            let mut sums = Array::<Vector<f32, N>>::new(shape.slots);
            #[unroll]
            for slot in 0..shape.slots {
                sums[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            }
            let mut any_kept = false.runtime();
            if at >= 0i32 {
                let mut k = start + team_rank(schedule);
                while k < end {
                    let sharer = u32::cast_from(sharers.col_idx[k]);
                    let (kept, i) = reached(node, sharer, true, drop, columns, shape.drop, schedule);
                    any_kept = any_kept || kept;
                    if kept {
                        let mut scale = 1.0f32;
                        if shape.src_scale {
                            scale = inputs.scales.src[sharer as usize];
                        }
                        #[unroll]
                        for slot in 0..shape.slots {
                            let c = slot * schedule.plane + lane;
                            if c < vectors {
                                let g = inputs.of_columns.values[i * inputs.of_columns.stride + c];
                                sums[slot] += Vector::<f32, N>::cast_from(g) * Vector::<f32, N>::empty().fill(scale);
                            }
                        }
                    }
                    k += schedule.team;
                }
            }
            let mut product = Vector::<f32, N>::empty().fill(0.0f32);
            #[unroll]
            for slot in 0..shape.slots {
                let c = slot * schedule.plane + lane;
                if any_kept && c < vectors {
                    let x = inputs.of_rows.values[usize::cast_from(at) * inputs.of_rows.stride + c];
                    product += sums[slot] * Vector::<f32, N>::cast_from(x);
                }
            }
            let mut dot = team_sum_scalar(lane_sum(product), &mut shared, schedule);
            if shape.dst_scale {
                dot *= inputs.scales.dst[node];
            }
            if lane == 0 && team_rank(schedule) == 0 {
                if shape.accumulate_into {
                    dot += out[entry];
                }
                out[entry] = dot;
            }
        }
        work += work_step(schedule);
    }
}
