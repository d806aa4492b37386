//! The rows and entries of a launch, inside a kernel.

use cubecl::prelude::*;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

use super::{RowLaunch, RowMode, RowSchedule};
use crate::graph::csr::Topology;
use crate::graph::drop_edge::{DropEdgeKey, DropMode, keeps};
use crate::runtime::args::{array, launch_args};

launch_args! {
    /// The entries of the rows of an adjacency.
    Edges, EdgesArgs<P: Int> {
        row_ptr: Array<P>,
        col_idx: Array<i32>,
        /// How far behind the start of a row its end stands in `row_ptr`; unread unless rows are spans.
        ends: usize,
    }
}

launch_args! {
    /// The rows of a launch: pieces of work `0..end`, and what [`RowMode`] reads.
    RowList, RowListArgs {
        list: Array<i32>,
        position: Array<i32>,
        end: usize,
    }
}

launch_args! {
    /// Where columns stand in a selection; unread unless columns are selected.
    ColumnPositions, ColumnPositionsArgs {
        position: Array<i32>,
    }
}

impl<R: CubeRuntime> Topology<CubeTensor<R>> {
    pub(crate) fn edges<P: Int>(&self) -> EdgesLaunch<P, R> {
        EdgesArgs { row_ptr: array(&self.row_ptr), col_idx: array(&self.col_idx), ends: self.ends() }.launch()
    }
}

impl<R: CubeRuntime> RowLaunch<R> {
    pub fn rows(&self) -> RowListLaunch<R> {
        self.pieces(1)
    }

    /// The rows with `parts` pieces of work each.
    pub fn pieces(&self, parts: usize) -> RowListLaunch<R> {
        RowListArgs { list: array(&self.list), position: array(&self.position), end: self.end * parts }.launch()
    }

    pub fn columns(&self) -> ColumnPositionsLaunch<R> {
        ColumnPositionsArgs { position: array(&self.col_position) }.launch()
    }
}

/// Where this plane (or cube, of a team) starts in the work of a launch.
#[cube]
pub(crate) fn first_work(#[comptime] schedule: RowSchedule) -> usize {
    if schedule.team == 1 { CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize } else { CUBE_POS }
}

/// From one piece of work to the next.
#[cube]
pub(crate) fn work_step(#[comptime] schedule: RowSchedule) -> usize {
    if schedule.team == 1 { CUBE_COUNT * CUBE_DIM_Y as usize } else { CUBE_COUNT }
}

/// This plane's place in its team.
#[cube]
pub(crate) fn team_rank(#[comptime] schedule: RowSchedule) -> usize {
    if schedule.team == 1 { 0usize.runtime() } else { UNIT_POS_Y as usize }
}

/// The row of piece `work`.
#[cube]
pub(crate) fn row_of(work: usize, rows: &RowList, #[comptime] schedule: RowSchedule) -> usize {
    match comptime!(schedule.mode) {
        RowMode::Each | RowMode::Scattered => work,
        _ => usize::cast_from(rows.list[work]),
    }
}

/// The row of piece `work`, to be read ahead of time: behind the last piece that of the last.
#[cube]
pub(crate) fn row_ahead(work: usize, rows: &RowList, #[comptime] schedule: RowSchedule) -> usize {
    row_of(select(work < rows.end, work, rows.end - 1), rows, schedule)
}

/// Where the entries of `row` start and end.
#[cube]
pub(crate) fn span_of<P: Int>(edges: &Edges<P>, row: usize, #[comptime] spans: bool) -> (usize, usize) {
    let first = usize::cast_from(edges.row_ptr[row]);
    let end = if comptime!(spans) { row + edges.ends } else { row + 1 };
    (first, usize::cast_from(edges.row_ptr[end]))
}

/// Where the result of `row` goes; negative when nobody wants it.
#[cube]
pub(crate) fn result_of(work: usize, row: usize, rows: &RowList, #[comptime] schedule: RowSchedule) -> i32 {
    match comptime!(schedule.mode) {
        RowMode::Each | RowMode::Listed => i32::cast_from(work),
        RowMode::Scattered => rows.list[work],
        RowMode::Long => i32::cast_from(row),
        RowMode::LongSelected => rows.position[row],
    }
}

/// Whether a row of `entries` belongs to this launch.
#[cube]
pub(crate) fn in_reach(entries: usize, #[comptime] schedule: RowSchedule) -> bool {
    match comptime!(schedule.longest) {
        Some(longest) => entries <= longest,
        None => true.runtime(),
    }
}

/// The column of entry `e` of a row that ends before `last`, 0 behind it. It is read a tile ahead, so that it is there
/// when the rows of this tile have come.
#[cube]
pub(crate) fn id_at(col_idx: &Array<i32>, e: usize, last: usize) -> i32 {
    let mut id = 0i32;
    if e < last {
        id = col_idx[e];
    }
    id
}

/// The compact index of a column; negative when it is not selected.
#[cube]
pub(crate) fn col_of(col: u32, kept: bool, columns: &ColumnPositions, #[comptime] schedule: RowSchedule) -> i32 {
    let mut at = i32::cast_from(col);
    if schedule.select_cols {
        at = -1i32;
        // Most edges may be dropped already: their positions are not worth a load.
        if kept {
            at = columns.position[col as usize];
        }
    }
    at
}

/// Whether the entry of `row` in column `col` counts: it is `there` at all, is not dropped, and its column is selected.
/// Beside that the compact index of the column, 0 of an entry that does not count.
#[cube]
pub(crate) fn reached(
    row: usize,
    col: u32,
    there: bool,
    drop: &DropEdgeKey,
    columns: &ColumnPositions,
    #[comptime] mode: DropMode,
    #[comptime] schedule: RowSchedule,
) -> (bool, usize) {
    let kept = there && keeps(drop, row as u32, col, mode);
    let at = col_of(col, kept, columns, schedule);
    let kept = kept && at >= 0i32;
    (kept, usize::cast_from(select(kept, at, 0i32)))
}
