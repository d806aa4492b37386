//! Which rows the launches of a row-parallel kernel cover, and how planes share a long row.

pub(crate) mod kernel;
pub(crate) mod sums;

use cubecl::prelude::*;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

use crate::graph::csr::{LONG_ROW, View};
use crate::runtime::launch::PlanePerRow;

/// Threads that share a long row, however many of them there are: what a row adds up to must not depend on later ones.
const TEAM_THREADS: u32 = 512;
/// Shared memory that every device has.
const TEAM_BYTES: usize = 32 << 10;
/// What a plane of a team needs beside that: a scalar, and its share of one for all.
const PLANE_BYTES: usize = 2 * size_of::<f32>();

/// Which rows a launch walks, and where their results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowMode {
    /// Row and result `k`.
    Each,
    /// Row `list[k]`, result `k`.
    Listed,
    /// Row `k`, result `list[k]`.
    Scattered,
    /// Row and result `list[k]`.
    Long,
    /// Row `list[k]`, result `position[list[k]]`; none when that is negative.
    LongSelected,
}

/// How a kernel walks the rows: fixed when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowSchedule {
    pub mode: RowMode,
    /// Planes that share a row.
    pub team: usize,
    /// Lanes of a plane.
    pub plane: usize,
    /// Rows with more entries are left to another launch.
    pub longest: Option<usize>,
    /// Rows have an end of their own beside their start, and may share entries.
    pub spans: bool,
    /// Columns are looked up in a selection, and passed over when they are not in it.
    pub select_cols: bool,
    /// Words of a ballot that can have bits: a plane of 64 lanes has two.
    pub ballot_words: usize,
    /// Rows that are loaded at a time: several hide the latency of memory, but few edges want few registers.
    pub in_flight: usize,
}

/// One launch over the rows of a view.
pub(crate) struct RowLaunch<R: CubeRuntime> {
    pub schedule: RowSchedule,
    pub dim: CubeDim,
    pub count: CubeCount,
    pub end: usize,
    /// The list of [`RowMode`]; unread when rows are walked one by one.
    pub list: CubeTensor<R>,
    pub position: CubeTensor<R>,
    /// Column positions; unread unless columns are selected.
    pub col_position: CubeTensor<R>,
}

impl<R: CubeRuntime> RowLaunch<R> {
    pub fn cubes(&self) -> u32 {
        let CubeCount::Static(cubes, ..) = self.count else { unreachable!("row launches count their cubes") };
        cubes
    }
}

/// The launches that walk every row of `view` once: short rows with a plane each, then long ones with a team
/// of planes each. `lane_bytes` of shared memory per thread hold what a team adds up and hands over; `drops` tells
/// whether most edges may be passed over.
pub(crate) fn row_launches<R: CubeRuntime>(
    view: &View<CubeTensor<R>>,
    lane_bytes: usize,
    drops: bool,
) -> Vec<RowLaunch<R>> {
    let topology = &view.topology;
    let client = &topology.row_ptr.client;
    let plane = PlanePerRow::of(client).plane as usize;
    let rows = &view.rows;
    let largest = client.properties().hardware.max_units_per_cube.min(TEAM_THREADS) as usize;
    let room = client.properties().hardware.max_shared_memory_size;
    let fits = |team: usize| {
        let bytes = team * plane * lane_bytes;
        bytes <= TEAM_BYTES && bytes + team * PLANE_BYTES <= room
    };
    let mut team = (largest / plane).max(1);
    while team > 1 && !fits(team) {
        team /= 2;
    }
    let has_long = topology.num_long > 0 && team > 1;
    // Spans share their kernel with whatever rows there will be: a long one changes nothing for the others.
    let leaves_long = has_long || topology.spans && team > 1;
    let short = plane_launch(view, leaves_long.then_some(LONG_ROW), if drops { 2 } else { 4 });
    let (schedule, unread, col_position) = (short.schedule, short.position.clone(), short.col_position.clone());
    let mut all = Vec::with_capacity(2);
    if view.num_rows() > 0 {
        all.push(short);
    }
    if has_long {
        let mode = if rows.is_some() { RowMode::LongSelected } else { RowMode::Long };
        all.push(RowLaunch {
            // A long row has kept edges enough.
            schedule: RowSchedule { mode, team, longest: None, in_flight: 4, ..schedule },
            dim: CubeDim { x: plane as u32, y: team as u32, z: 1 },
            count: CubeCount::Static(topology.num_long.min(1 << 15) as u32, 1, 1),
            end: topology.num_long,
            list: topology.long_rows.clone(),
            position: rows.as_ref().map_or_else(|| unread.clone(), |r| r.position.clone()),
            col_position,
        });
    }
    all
}

/// The launch that walks the rows of `view` with a plane each, those of more than `longest` entries left out.
pub(crate) fn plane_launch<R: CubeRuntime>(
    view: &View<CubeTensor<R>>,
    longest: Option<usize>,
    in_flight: usize,
) -> RowLaunch<R> {
    let View { topology, rows, cols } = view;
    let geometry = PlanePerRow::of(&topology.row_ptr.client);
    let plane = geometry.plane as usize;
    let unread = topology.col_idx.clone();
    RowLaunch {
        schedule: RowSchedule {
            mode: if rows.is_some() { RowMode::Listed } else { RowMode::Each },
            team: 1,
            plane,
            longest,
            spans: topology.spans,
            select_cols: cols.is_some(),
            ballot_words: plane.div_ceil(32),
            in_flight,
        },
        dim: geometry.dim,
        count: geometry.count(view.num_rows()),
        end: view.num_rows(),
        list: rows.as_ref().map_or_else(|| unread.clone(), |r| r.rows.clone()),
        col_position: cols.as_ref().map_or_else(|| unread.clone(), |c| c.position.clone()),
        position: unread,
    }
}

/// The launch that adds up groups: row `k` of a small CSR goes to row `list[k]` of the result.
pub(crate) fn scattered_launch<R: CubeRuntime>(list: &CubeTensor<R>, rows: usize) -> RowLaunch<R> {
    let geometry = PlanePerRow::of(&list.client);
    let plane = geometry.plane as usize;
    RowLaunch {
        schedule: RowSchedule {
            mode: RowMode::Scattered,
            team: 1,
            plane,
            longest: None,
            spans: false,
            select_cols: false,
            ballot_words: plane.div_ceil(32),
            in_flight: 4,
        },
        dim: geometry.dim,
        count: geometry.count(rows),
        end: rows,
        list: list.clone(),
        position: list.clone(),
        col_position: list.clone(),
    }
}

/// Shared memory per thread that holds a row of `width` f32 sums across a plane.
pub(crate) fn padded_bytes<R: CubeRuntime>(width: usize, like: &CubeTensor<R>) -> usize {
    // The widest vectors leave the most lanes without any: eight channels a lane.
    let plane = PlanePerRow::of(&like.client).plane as usize;
    width.div_ceil(plane * 8) * 8 * size_of::<f32>()
}
