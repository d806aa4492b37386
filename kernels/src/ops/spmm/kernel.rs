//! A plane per row (a team of planes for a long one): lanes own an entry each while weights are read, a stretch of
//! channels each while rows are gathered; of narrow rows, a plane gathers several at a time. f32 sums stay in registers.

use cubecl::prelude::*;

use crate::graph::drop_edge::{DropEdgeKey, DropMode, keeps};
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{col_of, first_work, in_reach, result_of, row_of, team_rank, work_step};
use crate::graph::row_schedule::sums::{add_groups, add_narrow_rows, add_rows, lane_sum, team_sum};

/// What a launch reads besides the matrix; each combination is a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpmmShape {
    pub dst_scale: bool,
    pub src_scale: bool,
    pub weight: bool,
    /// Weights are read through an edge map.
    pub edge_map: bool,
    /// A self term is added, its rows found through positions or not.
    pub own: bool,
    pub own_position: bool,
    /// The result is added to the rows that are there.
    pub onto: bool,
    pub drop: DropMode,
    /// Vectors of a row held by one lane.
    pub slots: usize,
    /// Lanes side by side on a row: a plane, or few where rows are narrow.
    pub lanes: usize,
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn spmm_kernel<F: Float, P: Int, N: Size>(
    row_ptr: &Array<P>,
    col_idx: &Array<i32>,
    x: &Array<Vector<F, N>>,
    out: &mut Array<Vector<F, N>>,
    dst_scale: &Array<f32>,
    src_scale: &Array<f32>,
    weight: &Array<f32>,
    edge_map: &Array<P>,
    own: &Array<Vector<F, N>>,
    own_scale: &Array<f32>,
    own_position: &Array<i32>,
    list: &Array<i32>,
    position: &Array<i32>,
    col_position: &Array<i32>,
    drop: &DropEdgeKey,
    x_stride: usize,
    own_stride: usize,
    out_stride: usize,
    vectors: usize,
    start: usize,
    end: usize,
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
    let mut work = first_work(start, schedule);
    while work < end {
        let row = row_of(work, list, schedule);
        let out_row = result_of(work, row, list, position, schedule);
        let first = usize::cast_from(row_ptr[row]);
        let last = usize::cast_from(row_ptr[row + 1]);
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
                let col = u32::cast_from(col_idx[e]);
                let kept = valid && keeps(drop, row as u32, col, shape.drop);
                let j = col_of(col, kept, col_position, schedule);
                let kept = kept && j >= 0i32;
                any_kept = any_kept || kept;
                let mut w = 1.0f32;
                if kept {
                    if shape.src_scale {
                        w *= src_scale[col as usize];
                    }
                    if shape.weight {
                        if shape.edge_map {
                            w *= weight[usize::cast_from(edge_map[e])];
                        } else {
                            w *= weight[e];
                        }
                    }
                }
                if comptime!(shape.lanes < schedule.plane) {
                    add_narrow_rows::<F, N>(
                        x,
                        x_stride,
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
                        x,
                        x_stride,
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
            if comptime!(shape.onto && !shape.own && schedule.team == 1) {
                changes = plane_any(any_kept);
            }
            if changes {
                let mut scale = 1.0f32;
                if shape.dst_scale {
                    scale = dst_scale[row];
                }
                let mut own_at = i32::cast_from(row);
                if shape.own_position {
                    own_at = own_position[row];
                }
                #[unroll]
                for slot in 0..shape.slots {
                    let c = slot * schedule.plane + lane;
                    if c < vectors {
                        let mut scaled = sums[slot] * Vector::<f32, N>::empty().fill(scale);
                        if shape.own && own_at >= 0i32 {
                            let term = Vector::<f32, N>::cast_from(own[usize::cast_from(own_at) * own_stride + c]);
                            scaled += term * Vector::<f32, N>::empty().fill(own_scale[row]);
                        }
                        let at = usize::cast_from(out_row) * out_stride + c;
                        if shape.onto {
                            scaled += Vector::<f32, N>::cast_from(out[at]);
                        }
                        out[at] = Vector::<F, N>::cast_from(scaled);
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
    row_ptr: &Array<P>,
    col_idx: &Array<i32>,
    edge_map: &Array<P>,
    g: &Array<Vector<F, N>>,
    x: &Array<Vector<F, N>>,
    out: &mut Array<f32>,
    dst_scale: &Array<f32>,
    src_scale: &Array<f32>,
    drop: &DropEdgeKey,
    g_stride: usize,
    x_stride: usize,
    vectors: usize,
    num_rows: usize,
    #[comptime] shape: SpmmShape,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let plane = CUBE_DIM_X as usize;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let start = usize::cast_from(row_ptr[row]);
        let end = usize::cast_from(row_ptr[row + 1]);
        let mut own = Array::<Vector<f32, N>>::new(shape.slots);
        #[unroll]
        for slot in 0..shape.slots {
            own[slot] = Vector::<f32, N>::empty().fill(0.0f32);
            let c = slot * plane + lane;
            if c < vectors {
                own[slot] = Vector::<f32, N>::cast_from(g[row * g_stride + c]);
            }
        }
        for e in start..end {
            let col = col_idx[e];
            let j = usize::cast_from(col);
            let mut product = Vector::<f32, N>::empty().fill(0.0f32);
            #[unroll]
            for slot in 0..shape.slots {
                let c = slot * plane + lane;
                if c < vectors {
                    product += own[slot] * Vector::<f32, N>::cast_from(x[j * x_stride + c]);
                }
            }
            let mut dot = plane_sum(lane_sum(product));
            if shape.dst_scale {
                dot *= dst_scale[row];
            }
            if shape.src_scale {
                dot *= src_scale[j];
            }
            if !keeps(drop, row as u32, u32::cast_from(col), shape.drop) {
                dot = 0.0f32;
            }
            if lane == 0 {
                let mut edge = e;
                if shape.edge_map {
                    edge = usize::cast_from(edge_map[e]);
                }
                out[edge] = dot;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
