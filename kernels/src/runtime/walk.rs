//! What the row-parallel kernels share: which rows a launch walks, how planes share a long one, and the inner loop that
//! gathers and adds up rows.

use cubecl::prelude::*;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

use crate::graph::csr::{LONG_ROW, View};
use crate::runtime::launch::{PlanePerRow, chunks, planes_per_cube};

/// Threads that share a long row.
const TEAM_THREADS: u32 = 512;
/// Shared memory that every device has.
const TEAM_BYTES: usize = 32 << 10;

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
pub(crate) struct Walk {
    pub mode: RowMode,
    /// Planes that share a row.
    pub team: usize,
    /// Lanes of a plane.
    pub plane: usize,
    /// Rows with more entries are left to another launch.
    pub longest: Option<usize>,
    /// Columns are looked up in a selection, and passed over when they are not in it.
    pub select_cols: bool,
    /// Words of a ballot that can have bits: a plane of 64 lanes has two.
    pub ballot_words: usize,
    /// Rows that are loaded at a time: several hide the latency of memory, but few edges want few registers.
    pub in_flight: usize,
}

/// One launch over the rows of a view.
pub(crate) struct Sweep<R: CubeRuntime> {
    pub walk: Walk,
    pub dim: CubeDim,
    pub count: CubeCount,
    pub start: usize,
    pub end: usize,
    /// The list of [`RowMode`]; unread when rows are walked one by one.
    pub list: CubeTensor<R>,
    pub position: CubeTensor<R>,
    /// Column positions; unread unless columns are selected.
    pub col_position: CubeTensor<R>,
}

/// The launches that walk every row of `view` once: short rows in chunks with a plane each, then long ones with a team
/// of planes each. `lane_bytes` of shared memory per thread hold what a team adds up and hands over; `drops` tells whether most edges may
/// be passed over.
pub(crate) fn sweeps<R: CubeRuntime>(
    view: &View<CubeTensor<R>>,
    chunk_rows: Option<usize>,
    lane_bytes: usize,
    drops: bool,
) -> Vec<Sweep<R>> {
    let topology = &view.topology;
    let client = &topology.row_ptr.client;
    let geometry = PlanePerRow::of(client);
    let plane = geometry.plane as usize;
    let unread = topology.col_idx.clone();
    let (rows, cols) = (&view.rows, &view.cols);
    let largest = client.properties().hardware.max_units_per_cube.min(TEAM_THREADS) as usize;
    let mut team = (largest / plane).max(1);
    while team > 1 && team * plane * lane_bytes > TEAM_BYTES {
        team /= 2;
    }
    let has_long = topology.num_long > 0 && team > 1;
    let col_position = cols.as_ref().map_or_else(|| unread.clone(), |c| c.position.clone());
    let walk = Walk {
        mode: if rows.is_some() { RowMode::Listed } else { RowMode::Each },
        team: 1,
        plane,
        longest: has_long.then_some(LONG_ROW),
        select_cols: cols.is_some(),
        ballot_words: plane.div_ceil(32),
        in_flight: if drops { 2 } else { 4 },
    };
    let mut all: Vec<Sweep<R>> = chunks(view.num_rows(), chunk_rows)
        .map(|(start, end)| Sweep {
            walk,
            dim: geometry.dim,
            count: geometry.count(end - start),
            start,
            end,
            list: rows.as_ref().map_or_else(|| unread.clone(), |r| r.rows.clone()),
            position: unread.clone(),
            col_position: col_position.clone(),
        })
        .collect();
    if has_long {
        let mode = if rows.is_some() { RowMode::LongSelected } else { RowMode::Long };
        all.push(Sweep {
            // A long row has kept edges enough.
            walk: Walk { mode, team, longest: None, in_flight: 4, ..walk },
            dim: CubeDim { x: plane as u32, y: team as u32, z: 1 },
            count: CubeCount::Static(topology.num_long.min(1 << 15) as u32, 1, 1),
            start: 0,
            end: topology.num_long,
            list: topology.long_rows.clone(),
            position: rows.as_ref().map_or_else(|| unread.clone(), |r| r.position.clone()),
            col_position,
        });
    }
    all
}

/// The launch that adds up groups: row `k` of a small CSR goes to row `list[k]` of the result.
pub(crate) fn scattered_sweep<R: CubeRuntime>(list: &CubeTensor<R>, rows: usize) -> Sweep<R> {
    let geometry = PlanePerRow::of(&list.client);
    let plane = geometry.plane as usize;
    Sweep {
        walk: Walk {
            mode: RowMode::Scattered,
            team: 1,
            plane,
            longest: None,
            select_cols: false,
            ballot_words: plane.div_ceil(32),
            in_flight: 4,
        },
        dim: geometry.dim,
        count: geometry.count(rows),
        start: 0,
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

/// Where this plane (or cube, of a team) starts in the work of a launch.
#[cube]
pub(crate) fn first_work(start: usize, #[comptime] walk: Walk) -> usize {
    if walk.team == 1 { start + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize } else { start + CUBE_POS }
}

/// From one piece of work to the next.
#[cube]
pub(crate) fn work_step(#[comptime] walk: Walk) -> usize {
    if walk.team == 1 { CUBE_COUNT * CUBE_DIM_Y as usize } else { CUBE_COUNT }
}

/// This plane's place in its team.
#[cube]
pub(crate) fn team_rank(#[comptime] walk: Walk) -> usize {
    if walk.team == 1 { 0usize.runtime() } else { UNIT_POS_Y as usize }
}

/// The row of piece `work`.
#[cube]
pub(crate) fn row_of(work: usize, list: &Array<i32>, #[comptime] walk: Walk) -> usize {
    match comptime!(walk.mode) {
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
    #[comptime] walk: Walk,
) -> i32 {
    match comptime!(walk.mode) {
        RowMode::Each | RowMode::Listed => i32::cast_from(work),
        RowMode::Scattered => list[work],
        RowMode::Long => i32::cast_from(row),
        RowMode::LongSelected => position[row],
    }
}

/// Whether a row of `entries` belongs to this launch.
#[cube]
pub(crate) fn in_reach(entries: usize, #[comptime] walk: Walk) -> bool {
    match comptime!(walk.longest) {
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
pub(crate) fn col_of(col: u32, kept: bool, position: &Array<i32>, #[comptime] walk: Walk) -> i32 {
    let mut at = i32::cast_from(col);
    if walk.select_cols {
        at = -1i32;
        // Most edges may be dropped already: their positions are not worth a load.
        if kept {
            at = position[col as usize];
        }
    }
    at
}

/// Shared memory through which the planes of a cube hand over the weights of several heads.
pub(crate) fn handed_weights(heads: usize, walk: Walk) -> usize {
    let planes = if walk.team == 1 { planes_per_cube(walk.plane) } else { walk.team };
    if hands_over(heads) { planes * heads * (walk.plane + 1) } else { 1 }
}

/// Whether weights go through shared memory: one takes a shuffle anyway, and very many would not fit.
fn hands_over(heads: usize) -> bool {
    (2..=32).contains(&heads)
}

/// The weight of head `head` that lane `from` holds, one shuffle per head.
#[cube]
fn weight_of_head(weights: &Array<f32>, head: usize, from: u32, #[comptime] heads: usize) -> f32 {
    let mut weight = plane_shuffle(weights[0], from);
    #[unroll]
    for h in 1..heads {
        let other = plane_shuffle(weights[h], from);
        weight = select(head == h, other, weight);
    }
    weight
}

/// Adds `weight x_j` to `sums` for every lane of the ballot; with `positive` also `max(weight, 0) x_j` to `positives`,
/// and then the weight is its absolute value. Lanes hold a stretch of channels each: `slots` vectors of a row, `plane`
/// vectors apart. `weights` has one value per head; `head` tells the head of a slot. Several heads hand their weights over
/// in `handed`, which has room for [`handed_weights`]: a lane reads that of its own head alone.
#[cube]
pub(crate) fn add_rows<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    x_stride: usize,
    vectors: usize,
    kept: bool,
    col: usize,
    weights: &Array<f32>,
    head: &Array<usize>,
    sums: &mut Array<Vector<f32, N>>,
    positives: &mut Array<Vector<f32, N>>,
    handed: &mut SharedMemory<f32>,
    #[comptime] heads: usize,
    #[comptime] slots: usize,
    #[comptime] positive: bool,
    #[comptime] walk: Walk,
) {
    let lane = UNIT_POS_X as usize;
    // Wide rows have several loads each.
    let unroll = comptime!(if slots >= walk.in_flight { 1usize } else { walk.in_flight / slots });
    let ballot = plane_ballot(kept);
    // Rows of a head lie a word more than a plane apart: lanes of all heads read the same edge from different banks.
    let own = UNIT_POS_Y as usize * comptime!(heads * (walk.plane + 1));
    if comptime!(hands_over(heads)) {
        sync_plane();
        #[unroll]
        for h in 0..heads {
            handed[own + h * comptime!(walk.plane + 1) + lane] = weights[h];
        }
        sync_plane();
    }
    #[unroll]
    for word in 0..walk.ballot_words {
        let mut bits = ballot[word];
        while bits != 0u32 {
            let mut rows = Array::<usize>::new(unroll);
            let mut lanes = Array::<u32>::new(unroll);
            let mut present = Array::<bool>::new(unroll);
            let mut last = 0u32;
            #[unroll]
            for u in 0..unroll {
                present[u] = bits != 0u32;
                // A missing one repeats the row before, which is in cache, with weight zero.
                last = select(bits != 0u32, bits.find_first_set() - 1u32, last);
                bits &= bits - select(bits != 0u32, 1u32, 0u32);
                lanes[u] = last + comptime!(word as u32 * 32u32);
                rows[u] = plane_shuffle(col as u32, lanes[u]) as usize;
            }
            #[unroll]
            for slot in 0..slots {
                let c = slot * walk.plane + lane;
                let mut values = Array::<Vector<F, N>>::new(unroll);
                #[unroll]
                for u in 0..unroll {
                    let at = select(c < vectors, rows[u] * x_stride + c, rows[u] * x_stride);
                    values[u] = x[at];
                }
                #[unroll]
                for u in 0..unroll {
                    let weight = if comptime!(hands_over(heads)) {
                        handed[own + head[slot] * comptime!(walk.plane + 1) + lanes[u] as usize]
                    } else {
                        weight_of_head(weights, head[slot], lanes[u], heads)
                    };
                    let weight = select(present[u], weight, 0.0f32);
                    let value = Vector::<f32, N>::cast_from(values[u]);
                    if positive {
                        sums[slot] += value * Vector::<f32, N>::empty().fill(weight.abs());
                        positives[slot] += value * Vector::<f32, N>::empty().fill(weight.max(0.0f32));
                    } else {
                        sums[slot] += value * Vector::<f32, N>::empty().fill(weight);
                    }
                }
            }
        }
    }
}

/// [`add_rows`] for rows of few vectors and one weight: a plane has several groups of `lanes` lanes, each with some of the
/// tile's entries; a row lies side by side on the lanes of its group. [`add_groups`] brings the groups together.
#[cube]
pub(crate) fn add_narrow_rows<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    x_stride: usize,
    vectors: usize,
    kept: bool,
    col: usize,
    weight: f32,
    sums: &mut Array<Vector<f32, N>>,
    #[comptime] lanes: usize,
) {
    let lane = UNIT_POS_X;
    let channel = lane % comptime!(lanes as u32);
    let channel_there = (channel as usize) < vectors;
    let mut values = Array::<Vector<F, N>>::new(lanes);
    let mut weights = Array::<f32>::new(lanes);
    #[unroll]
    for u in 0..lanes {
        let from = lane - channel + comptime!(u as u32);
        let row = plane_shuffle(col as u32, from) as usize;
        let present = plane_shuffle(u32::cast_from(kept), from) != 0u32 && channel_there;
        weights[u] = plane_shuffle(weight, from);
        values[u] = Vector::<F, N>::empty().fill(F::new(0.0));
        if present {
            values[u] = x[row * x_stride + channel as usize];
        }
    }
    #[unroll]
    for u in 0..lanes {
        sums[0] += Vector::<f32, N>::cast_from(values[u]) * Vector::<f32, N>::empty().fill(weights[u]);
    }
}

/// Adds up what the groups of `lanes` lanes of a plane hold; each has the total afterwards.
#[cube]
pub(crate) fn add_groups<N: Size>(sums: &mut Array<Vector<f32, N>>, #[comptime] lanes: usize, #[comptime] walk: Walk) {
    let mut apart = comptime!(lanes as u32).runtime();
    while apart < comptime!(walk.plane as u32) {
        let mine = sums[0];
        let mut other = Vector::<f32, N>::empty().fill(0.0f32);
        #[unroll]
        for n in 0..mine.size() {
            other[n] = plane_shuffle_xor(mine[n], apart);
        }
        sums[0] = mine + other;
        apart *= 2u32;
    }
}

/// Adds up what the planes of a team hold; the first plane has the total afterwards. All of the cube calls it.
#[cube]
pub(crate) fn team_sum<N: Size>(
    sums: &mut Array<Vector<f32, N>>,
    shared: &mut SharedMemory<Vector<f32, N>>,
    #[comptime] slots: usize,
    #[comptime] walk: Walk,
) {
    let lane = UNIT_POS_X as usize;
    let rank = UNIT_POS_Y as usize;
    sync_cube();
    #[unroll]
    for slot in 0..slots {
        shared[(rank * slots + slot) * walk.plane + lane] = sums[slot];
    }
    sync_cube();
    if rank == 0 {
        for other in 1..walk.team {
            #[unroll]
            for slot in 0..slots {
                sums[slot] += shared[(other * slots + slot) * walk.plane + lane];
            }
        }
    }
}

/// The sum of one value per lane over a team, in every lane.
#[cube]
pub(crate) fn team_sum_scalar(value: f32, shared: &mut SharedMemory<f32>, #[comptime] walk: Walk) -> f32 {
    let mut total = plane_sum(value);
    if walk.team > 1 {
        sync_cube();
        if UNIT_POS_X == 0 {
            shared[UNIT_POS_Y as usize] = total;
        }
        sync_cube();
        total = 0.0f32;
        for other in 0..walk.team {
            total += shared[other];
        }
    }
    total
}

/// The largest value of a team, in every lane; `value` is the same in all lanes of a plane.
#[cube]
pub(crate) fn team_max(value: f32, shared: &mut SharedMemory<f32>, #[comptime] walk: Walk) -> f32 {
    let mut largest = value;
    if walk.team > 1 {
        sync_cube();
        if UNIT_POS_X == 0 {
            shared[UNIT_POS_Y as usize] = value;
        }
        sync_cube();
        for other in 0..walk.team {
            largest = largest.max(shared[other]);
        }
    }
    largest
}

/// The sum of the elements of a vector.
#[cube]
pub(crate) fn lane_sum<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut sum = vector[0];
    #[unroll]
    for k in 1..vector.size() {
        sum += vector[k];
    }
    sum
}
