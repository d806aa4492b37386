//! Marks and compaction: a plane per stretch of nodes, or per row of an adjacency.

use cubecl::prelude::*;

use crate::graph::drop_edge::{DropEdgeKey, DropMode, keeps};
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    Edges, RowList, first_work, in_reach, result_of, row_of, span_of, team_rank, work_step,
};
use crate::runtime::args::launch_args;

#[cube(launch_unchecked)]
pub(crate) fn fill_kernel(out: &mut Array<i32>, value: i32, len: usize) {
    let mut k = ABSOLUTE_POS;
    while k < len {
        out[k] = value;
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// `out[rows[k]]` becomes `k`, or one.
#[cube(launch_unchecked)]
pub(crate) fn scatter_kernel(rows: &Array<i32>, out: &mut Array<i32>, len: usize, #[comptime] place: bool) {
    let mut k = ABSOLUTE_POS;
    while k < len {
        let node = usize::cast_from(rows[k]);
        if place {
            out[node] = i32::cast_from(k);
        } else {
            out[node] = 1i32;
        }
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn mark_sources_kernel<P: Int>(
    edges: &Edges<P>,
    rows: &RowList,
    marks: &mut Array<i32>,
    drop: &DropEdgeKey,
    #[comptime] mode: DropMode,
    #[comptime] schedule: RowSchedule,
    #[define(P)] _type: StorageType,
) {
    let mut work = first_work(schedule);
    while work < rows.end {
        let row = row_of(work, rows, schedule);
        let (first, last) = span_of(edges, row, schedule.spans);
        if result_of(work, row, rows, schedule) >= 0i32 && in_reach(last - first, schedule) {
            let mut e = first + team_rank(schedule) * schedule.plane + UNIT_POS_X as usize;
            while e < last {
                let col = u32::cast_from(edges.col_idx[e]);
                if keeps(drop, row as u32, col, mode) {
                    // Every writer writes the same.
                    marks[col as usize] = 1i32;
                }
                e += comptime!(schedule.plane * schedule.team);
            }
        }
        work += work_step(schedule);
    }
}

launch_args! {
    /// How many nodes there are, and how many stretches of them.
    MarkSizes, MarkSizesArgs {
        nodes: usize,
        stretches: usize,
    }
}

launch_args! {
    /// Marks of nodes, and how many are marked before each stretch.
    Marked, MarkedArgs {
        marks: Array<i32>,
        firsts: Array<i32>,
    }
}

launch_args! {
    /// The marked nodes, and where each stands among them.
    NodeList, NodeListArgs {
        rows: Array<i32>,
        position: Array<i32>,
    }
}

/// The number of marked nodes of every stretch. A lane reads `per_lane` nodes at a time, so that it waits for memory
/// less often.
#[cube(launch_unchecked)]
pub(crate) fn count_kernel(
    marks: &Array<i32>,
    counts: &mut Array<i32>,
    sizes: &MarkSizes,
    #[comptime] stretch_len: usize,
    #[comptime] per_lane: usize,
) {
    let mut stretch = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while stretch < sizes.stretches {
        let mut count = 0i32;
        let mut k = stretch * stretch_len + UNIT_POS_X as usize * per_lane;
        let end = (stretch + 1) * stretch_len;
        while k < end {
            #[unroll]
            for u in 0..per_lane {
                count += mark_of(marks, k + u, sizes.nodes);
            }
            k += CUBE_DIM_X as usize * per_lane;
        }
        let total = plane_sum(count);
        if UNIT_POS_X == 0 {
            counts[stretch] = total;
        }
        stretch += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// The mark of node `k`; 0 where there is none.
#[cube]
fn mark_of(marks: &Array<i32>, k: usize, nodes: usize) -> i32 {
    if k < nodes { marks[k] } else { 0i32.runtime() }
}

/// Counts become the sums of the counts before them; one plane.
#[cube(launch_unchecked)]
pub(crate) fn scan_kernel(counts: &mut Array<i32>, total: &mut Array<i32>, num_stretches: usize) {
    let mut before = 0i32;
    let mut tile = 0usize;
    while tile < num_stretches {
        let k = tile + UNIT_POS_X as usize;
        let valid = k < num_stretches;
        let count = if valid { counts[k] } else { 0i32.runtime() };
        let first = before + plane_exclusive_sum(count);
        if valid {
            counts[k] = first;
        }
        before += plane_sum(count);
        tile += CUBE_DIM_X as usize;
    }
    if UNIT_POS_X == 0 {
        total[0] = before;
    }
}

/// Writes every node's position and the list of marked nodes; `per_lane` as in [`count_kernel`].
#[cube(launch_unchecked)]
pub(crate) fn list_kernel(
    inputs: &Marked,
    out: &mut NodeList,
    sizes: &MarkSizes,
    #[comptime] stretch_len: usize,
    #[comptime] per_lane: usize,
) {
    let mut stretch = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while stretch < sizes.stretches {
        let mut before = inputs.firsts[stretch];
        let mut tile = stretch * stretch_len;
        let end = (stretch + 1) * stretch_len;
        while tile < end {
            let first = tile + UNIT_POS_X as usize * per_lane;
            let mut marks = Array::<i32>::new(per_lane);
            let mut count = 0i32;
            #[unroll]
            for u in 0..per_lane {
                marks[u] = mark_of(&inputs.marks, first + u, sizes.nodes);
                count += marks[u];
            }
            let mut at = before + plane_exclusive_sum(count);
            #[unroll]
            for u in 0..per_lane {
                let k = first + u;
                if k < sizes.nodes {
                    out.position[k] = select(marks[u] != 0i32, at, -1i32);
                    if marks[u] != 0i32 {
                        out.rows[usize::cast_from(at)] = i32::cast_from(k);
                    }
                }
                at += marks[u];
            }
            before += plane_sum(count);
            tile += CUBE_DIM_X as usize * per_lane;
        }
        stretch += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
