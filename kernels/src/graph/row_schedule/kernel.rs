//! The rows and entries of a launch, inside a kernel.

use cubecl::prelude::*;

use super::{RowMode, RowSchedule};

/// Where this plane (or cube, of a team) starts in the work of a launch.
#[cube]
pub(crate) fn first_work(start: usize, #[comptime] schedule: RowSchedule) -> usize {
    if schedule.team == 1 { start + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize } else { start + CUBE_POS }
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
pub(crate) fn row_of(work: usize, list: &Array<i32>, #[comptime] schedule: RowSchedule) -> usize {
    match comptime!(schedule.mode) {
        RowMode::Each | RowMode::Scattered => work,
        _ => usize::cast_from(list[work]),
    }
}

/// Where the result of `row` goes; negative when nobody wants it.
#[cube]
pub(crate) fn result_of(
    work: usize,
    row: usize,
    list: &Array<i32>,
    position: &Array<i32>,
    #[comptime] schedule: RowSchedule,
) -> i32 {
    match comptime!(schedule.mode) {
        RowMode::Each | RowMode::Listed => i32::cast_from(work),
        RowMode::Scattered => list[work],
        RowMode::Long => i32::cast_from(row),
        RowMode::LongSelected => position[row],
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

/// The column of entry `e` of a row that ends before `last`, 0 behind it. It is read a tile ahead, so that it is there when
/// the rows of this tile have come.
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
pub(crate) fn col_of(col: u32, kept: bool, position: &Array<i32>, #[comptime] schedule: RowSchedule) -> i32 {
    let mut at = i32::cast_from(col);
    if schedule.select_cols {
        at = -1i32;
        // Most edges may be dropped already: their positions are not worth a load.
        if kept {
            at = position[col as usize];
        }
    }
    at
}
