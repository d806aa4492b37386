//! The inner loops of row-parallel kernels: rows gathered and added up, sums over the planes of a team.

use cubecl::prelude::*;

use super::RowSchedule;
use crate::runtime::args::Matrix;
use crate::runtime::launch::planes_per_cube;

/// Shared memory through which the planes of a cube hand over the weights of several heads.
pub(crate) fn handed_weights(heads: usize, schedule: RowSchedule) -> usize {
    let planes = if schedule.team == 1 { planes_per_cube(schedule.plane) } else { schedule.team };
    if hands_over(heads) { planes * heads * (schedule.plane + 1) } else { 1 }
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

/// Hands the weights of several heads over to all lanes of the plane, in `handed`; gives where those of this plane
/// begin.
#[cube]
fn hand_over(
    weights: &Array<f32>,
    handed: &mut SharedMemory<f32>,
    #[comptime] heads: usize,
    #[comptime] schedule: RowSchedule,
) -> usize {
    // Rows of a head lie a word more than a plane apart: lanes of all heads read the same edge from different banks.
    let place = UNIT_POS_Y as usize * comptime!(heads * (schedule.plane + 1));
    if comptime!(hands_over(heads)) {
        sync_plane();
        #[unroll]
        for h in 0..heads {
            handed[place + h * comptime!(schedule.plane + 1) + UNIT_POS_X as usize] = weights[h];
        }
        sync_plane();
    }
    place
}

/// Takes the next lanes out of word `word` of a ballot, `bits` of which are left, and the rows `col` that they have;
/// gives what is left then. A missing one repeats the row before, which is in cache.
#[cube]
pub(crate) fn take_lanes(
    bits: u32,
    col: usize,
    rows: &mut Array<usize>,
    lanes: &mut Array<u32>,
    present: &mut Array<bool>,
    #[comptime] word: usize,
    #[comptime] unroll: usize,
) -> u32 {
    let mut bits = bits;
    let mut last = 0u32;
    #[unroll]
    for u in 0..unroll {
        present[u] = bits != 0u32;
        last = select(bits != 0u32, bits.find_first_set() - 1u32, last);
        bits &= bits - select(bits != 0u32, 1u32, 0u32);
        lanes[u] = last + comptime!(word as u32 * 32u32);
        rows[u] = plane_shuffle(col as u32, lanes[u]) as usize;
    }
    bits
}

/// Vector `c` of every one of `rows`, the first one of lanes beyond the row.
#[cube]
pub(crate) fn load_vectors<F: Float, N: Size>(
    x: &Matrix<F, N>,
    vectors: usize,
    rows: &Array<usize>,
    c: usize,
    #[comptime] unroll: usize,
) -> Array<Vector<F, N>> {
    let mut values = Array::<Vector<F, N>>::new(unroll);
    #[unroll]
    for u in 0..unroll {
        let at = select(c < vectors, rows[u] * x.stride + c, rows[u] * x.stride);
        values[u] = x.values[at];
    }
    values
}

/// The weight of head `head` that lane `from` has, which [`hand_over`] left at `place`.
#[cube]
fn weight_from(
    weights: &Array<f32>,
    handed: &SharedMemory<f32>,
    place: usize,
    head: usize,
    from: u32,
    #[comptime] heads: usize,
    #[comptime] schedule: RowSchedule,
) -> f32 {
    if comptime!(hands_over(heads)) {
        handed[place + head * comptime!(schedule.plane + 1) + from as usize]
    } else {
        weight_of_head(weights, head, from, heads)
    }
}

/// Adds `weight x_j` to `sums` for every lane of the ballot; with `positive` also `max(weight, 0) x_j` to `positives`,
/// and then the weight is its absolute value. Lanes hold a stretch of channels each: `slots` vectors of a row, `plane`
/// vectors apart. `weights` has one value per head; `head` tells the head of a slot. Several heads hand their weights
/// over in `handed`, which has room for [`handed_weights`]: a lane reads that of its own head alone.
#[cube]
pub(crate) fn add_rows<F: Float, N: Size>(
    x: &Matrix<F, N>,
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
    #[comptime] schedule: RowSchedule,
) {
    let lane = UNIT_POS_X as usize;
    // Wide rows have several loads each.
    let unroll = comptime!(if slots >= schedule.in_flight { 1usize } else { schedule.in_flight / slots });
    let ballot = plane_ballot(kept);
    let place = hand_over(weights, handed, heads, schedule);
    #[unroll]
    for word in 0..schedule.ballot_words {
        let mut bits = ballot[word];
        while bits != 0u32 {
            let mut rows = Array::<usize>::new(unroll);
            let mut lanes = Array::<u32>::new(unroll);
            let mut present = Array::<bool>::new(unroll);
            bits = take_lanes(bits, col, &mut rows, &mut lanes, &mut present, word, unroll);
            #[unroll]
            for slot in 0..slots {
                let values = load_vectors::<F, N>(x, vectors, &rows, slot * schedule.plane + lane, unroll);
                #[unroll]
                for u in 0..unroll {
                    let weight = weight_from(weights, handed, place, head[slot], lanes[u], heads, schedule);
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

/// [`add_rows`] with one sum, which also adds `<own, x_j>` per head to `products` of the lane that the entry belongs
/// to; lanes beyond the row have zeros in `own`.
#[cube]
pub(crate) fn add_and_multiply_rows<F: Float, N: Size>(
    x: &Matrix<F, N>,
    vectors: usize,
    kept: bool,
    col: usize,
    weights: &Array<f32>,
    head: &Array<usize>,
    own: &Array<Vector<f32, N>>,
    sums: &mut Array<Vector<f32, N>>,
    products: &mut Array<f32>,
    handed: &mut SharedMemory<f32>,
    #[comptime] heads: usize,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) {
    let lane = UNIT_POS_X as usize;
    let unroll = comptime!(if slots >= schedule.in_flight { 1usize } else { schedule.in_flight / slots });
    let ballot = plane_ballot(kept);
    let place = hand_over(weights, handed, heads, schedule);
    #[unroll]
    for word in 0..schedule.ballot_words {
        let mut bits = ballot[word];
        while bits != 0u32 {
            let mut rows = Array::<usize>::new(unroll);
            let mut lanes = Array::<u32>::new(unroll);
            let mut present = Array::<bool>::new(unroll);
            bits = take_lanes(bits, col, &mut rows, &mut lanes, &mut present, word, unroll);
            let mut shares = Array::<f32>::new(comptime!(unroll * heads));
            #[unroll]
            for share in 0..comptime!(unroll * heads) {
                shares[share] = 0.0f32;
            }
            #[unroll]
            for slot in 0..slots {
                let values = load_vectors::<F, N>(x, vectors, &rows, slot * schedule.plane + lane, unroll);
                #[unroll]
                for u in 0..unroll {
                    let weight = weight_from(weights, handed, place, head[slot], lanes[u], heads, schedule);
                    let weight = select(present[u], weight, 0.0f32);
                    let value = Vector::<f32, N>::cast_from(values[u]);
                    sums[slot] += value * Vector::<f32, N>::empty().fill(weight);
                    let share = lane_sum(value * own[slot]);
                    #[unroll]
                    for h in 0..heads {
                        shares[comptime!(u * heads + h)] += select(head[slot] == h, share, 0.0f32);
                    }
                }
            }
            // A missing one has the product of the row before, and belongs to the same lane.
            let mut own_row = comptime!(unroll as u32).runtime();
            #[unroll]
            for u in 0..unroll {
                own_row = select(lane as u32 == lanes[u], comptime!(u as u32), own_row);
            }
            #[unroll]
            for h in 0..heads {
                let product = sum_of_row(&shares, own_row, h, heads, unroll, schedule.plane);
                products[h] += select(own_row < comptime!(unroll as u32), product, 0.0f32);
            }
        }
    }
}

/// The sum over the plane of the shares of row `row`, for head `head`; each lane asks for a row of its own, and what it
/// gets for one that is not there has no meaning. `shares` are by row and head.
#[cube]
fn sum_of_row(
    shares: &Array<f32>,
    row: u32,
    #[comptime] head: usize,
    #[comptime] heads: usize,
    #[comptime] rows: usize,
    #[comptime] plane: usize,
) -> f32 {
    let mut found = 0.0f32;
    if comptime!(rows.is_power_of_two() && rows <= plane) {
        let mut of_rows = Array::<f32>::new(rows);
        #[unroll]
        for u in 0..rows {
            of_rows[u] = shares[comptime!(u * heads) + head];
        }
        let sum = sum_across(&mut of_rows, rows, plane);
        let row = row.min(comptime!(rows as u32 - 1u32));
        found = plane_shuffle(sum, row * comptime!((plane / rows) as u32));
    } else {
        #[unroll]
        for u in 0..rows {
            let sum = plane_sum(shares[comptime!(u * heads) + head]);
            found = select(row == comptime!(u as u32), sum, found);
        }
    }
    found
}

/// Sums of `len` values over the lanes of a plane: lane `k plane / len` has that of value `k`. Lanes halve what they
/// carry with every exchange, so four sums cost six exchanges instead of twenty. `len` is a power of two, at most
/// `plane`.
#[cube]
pub(crate) fn sum_across(values: &mut Array<f32>, #[comptime] len: usize, #[comptime] plane: usize) -> f32 {
    let lane = UNIT_POS_X;
    #[unroll]
    for level in 0..comptime!(len.ilog2()) {
        let distance = comptime!((plane >> (level + 1)) as u32);
        let half = comptime!(len >> (level + 1));
        let upper = (lane & distance) != 0u32;
        #[unroll]
        for k in 0..half {
            let kept = select(upper, values[k + half], values[k]);
            let given = select(upper, values[k], values[k + half]);
            values[k] = kept + plane_shuffle_xor(given, distance);
        }
    }
    let mut sum = values[0];
    #[unroll]
    for level in 0..comptime!((plane / len).ilog2()) {
        sum += plane_shuffle_xor(sum, comptime!(((plane / len) >> (level + 1)) as u32));
    }
    sum
}

/// [`add_rows`] for rows of few vectors and one weight: a plane has several groups of `lanes` lanes, each with some of
/// the tile's entries; a row lies side by side on the lanes of its group. [`add_groups`] brings the groups together.
#[cube]
pub(crate) fn add_narrow_rows<F: Float, N: Size>(
    x: &Matrix<F, N>,
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
            values[u] = x.values[row * x.stride + channel as usize];
        }
    }
    #[unroll]
    for u in 0..lanes {
        sums[0] += Vector::<f32, N>::cast_from(values[u]) * Vector::<f32, N>::empty().fill(weights[u]);
    }
}

/// Adds up what the groups of `lanes` lanes of a plane hold; each has the total afterwards.
#[cube]
pub(crate) fn add_groups<N: Size>(
    sums: &mut Array<Vector<f32, N>>,
    #[comptime] lanes: usize,
    #[comptime] schedule: RowSchedule,
) {
    let mut apart = comptime!(lanes as u32).runtime();
    while apart < comptime!(schedule.plane as u32) {
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
    #[comptime] schedule: RowSchedule,
) {
    let lane = UNIT_POS_X as usize;
    let rank = UNIT_POS_Y as usize;
    sync_cube();
    #[unroll]
    for slot in 0..slots {
        shared[(rank * slots + slot) * schedule.plane + lane] = sums[slot];
    }
    sync_cube();
    if rank == 0 {
        for other in 1..schedule.team {
            #[unroll]
            for slot in 0..slots {
                sums[slot] += shared[(other * slots + slot) * schedule.plane + lane];
            }
        }
    }
}

/// The sum of one value per lane over a team, in every lane.
#[cube]
pub(crate) fn team_sum_scalar(value: f32, shared: &mut SharedMemory<f32>, #[comptime] schedule: RowSchedule) -> f32 {
    let mut total = plane_sum(value);
    if schedule.team > 1 {
        sync_cube();
        if UNIT_POS_X == 0 {
            shared[UNIT_POS_Y as usize] = total;
        }
        sync_cube();
        total = 0.0f32;
        for other in 0..schedule.team {
            total += shared[other];
        }
    }
    total
}

/// The largest value of a team, in every lane; `value` is the same in all lanes of a plane.
#[cube]
pub(crate) fn team_max(value: f32, shared: &mut SharedMemory<f32>, #[comptime] schedule: RowSchedule) -> f32 {
    let mut largest = value;
    if schedule.team > 1 {
        sync_cube();
        if UNIT_POS_X == 0 {
            shared[UNIT_POS_Y as usize] = value;
        }
        sync_cube();
        for other in 0..schedule.team {
            largest = largest.max(shared[other]);
        }
    }
    largest
}

/// The largest value that lanes of the same place have over the planes of a team, in each of them. `shared` has an
/// element per thread of the team.
#[cube]
pub(crate) fn team_max_by_lane(value: f32, shared: &mut SharedMemory<f32>, #[comptime] schedule: RowSchedule) -> f32 {
    let mut largest = value;
    if schedule.team > 1 {
        let lane = UNIT_POS_X as usize;
        sync_cube();
        shared[UNIT_POS_Y as usize * schedule.plane + lane] = value;
        sync_cube();
        for other in 0..schedule.team {
            largest = largest.max(shared[other * schedule.plane + lane]);
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
