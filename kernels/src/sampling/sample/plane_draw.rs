//! A plane per destination draws where a thread would take long: by weights, by variates of sources, and many.
//!
//! What is drawn is that of [`rule`](super::rule), to the bit. A plane looks at all entries of its row, one a lane, and
//! keeps what it has picked in shared memory. It is a cube of its own, so that its lanes can wait for each other.
#![allow(
    clippy::collapsible_if,
    clippy::if_same_then_else,
    reason = "of two conditions one is known when the kernel is compiled, or guards a load"
)]

use cubecl::prelude::*;

use super::args::{Drawn, Layer, PlaneDraws};
use super::doubles;
use super::kernel::{available_of, below, destination, entries_of, hash, is_weighted, of_row, word};
use super::rule::TERMS;
use super::table::relation;
use crate::runtime::prims::sort_kernel::{lower_place, out_of_order};
use crate::sampling::backend::DrawKinds;
use crate::trees::split::kernel::kept;

/// All bits of a number in single precision but its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Places of a row that were picked, and what they were picked by.
#[derive(CubeType)]
struct Picks {
    places: SharedMemory<u32>,
    highs: SharedMemory<u32>,
    lows: SharedMemory<u32>,
}

/// The pick that is to go first, and its slot.
#[derive(CubeType, Clone, Copy)]
struct Worst {
    high: u32,
    low: u32,
    slot: u32,
}

/// The row that a plane draws for.
#[derive(CubeType, Clone, Copy)]
struct DrawnRow {
    relation: u32,
    /// What its draws are hashed under.
    key_high: u32,
    key_low: u32,
    /// Its entries among those of the relation.
    first: u32,
    degree: u32,
    /// How many are drawn.
    count: u32,
    weighted: bool,
}

/// The double of two words.
#[cube]
fn double(high: u32, low: u32) -> f64 {
    f64::reinterpret((i64::cast_from(high) << i64::cast_from(32i32)) | i64::cast_from(low))
}

/// The words of a positive double.
#[cube]
fn halves(x: f64) -> (u32, u32) {
    let bits = i64::reinterpret(x);
    (u32::cast_from(bits >> i64::cast_from(32i32)), u32::cast_from(bits))
}

/// One of [`doubles`].
#[cube]
fn constant(doubles: &Array<u32>, at: usize) -> f64 {
    double(doubles[2 * at], doubles[2 * at + 1])
}

/// `-ln u` as on the host. Every product that is added to something is kept from being fused with the sum.
#[cube]
fn exponential(high: u32, low: u32, doubles: &Array<u32>) -> f64 {
    let zero = i64::cast_from(doubles[comptime!(2 * doubles::ZERO)]);
    // Exact.
    let x = f64::cast_from(high) * 1048576.0f64 + (f64::cast_from(low >> 12u32) + 0.5f64);
    let (upper, lower) = halves(x);
    // 52 less the exponent.
    let mut halvings = 1075u32 - (upper >> 20u32);
    let mut m = double((upper & 0xfffffu32) | 0x3ff00000u32, lower);
    if m > constant(doubles, doubles::SQRT_2.runtime()) {
        m *= 0.5f64;
        halvings -= 1u32;
    }
    let s = (m - 1.0f64) / (m + 1.0f64);
    let square = s * s;
    let mut sum = f64::new(0.0f32);
    for term in 0..comptime!(TERMS) {
        let next = constant(doubles, comptime!(doubles::FIRST_TERM + TERMS - 1) - term);
        sum = kept(sum * square, zero) + next;
    }
    kept(f64::cast_from(halvings) * constant(doubles, doubles::LN_2.runtime()), zero) - kept(2.0f64 * s * sum, zero)
}

/// The double of a positive number in single precision, by its bits: devices may take the smallest ones for 0.
#[cube]
fn widened(bits: u32, doubles: &Array<u32>) -> f64 {
    let (exponent, mantissa) = (bits >> 23u32, bits & 0x7fffffu32);
    let normal = double(((exponent + 896u32) << 20u32) | (mantissa >> 3u32), mantissa << 29u32);
    let small = f64::cast_from(mantissa) * constant(doubles, doubles::SMALL_BIT.runtime());
    select(exponent > 0u32, normal, small)
}

/// Whether a key of two words is below another.
#[cube]
fn is_below(high: u32, low: u32, other_high: u32, other_low: u32) -> bool {
    high < other_high || high == other_high && low < other_low
}

/// The bits of the weight of an entry of a row; some positive number where it has none.
#[cube]
fn weight_of(layer: &Layer, inputs: &PlaneDraws, row: DrawnRow, place: u32, #[comptime] kinds: DrawKinds) -> u32 {
    let mut bits = 1u32.runtime();
    if kinds.weighted {
        if row.weighted {
            let first = usize::cast_from(word(&layer.relations, row.relation, relation::WEIGHTS));
            bits = inputs.weights.words[first + usize::cast_from(row.first + place) + inputs.weights.delta] & MAGNITUDE;
        }
    }
    bits
}

/// What an entry is picked by: a variate, over its weight where it has one.
#[cube]
fn key_of(
    layer: &Layer,
    inputs: &PlaneDraws,
    row: DrawnRow,
    place: u32,
    weight: u32,
    #[comptime] kinds: DrawKinds,
) -> (u32, u32) {
    let mut hashed = place;
    if kinds.by_source {
        let first = usize::cast_from(word(&layer.relations, row.relation, relation::COL_IDX));
        hashed = inputs.col_idx.words[first + usize::cast_from(row.first + place) + inputs.col_idx.delta];
    }
    let (mut high, mut low) = hash(row.key_high, row.key_low, hashed);
    if kinds.weighted {
        if row.weighted {
            let (upper, lower) = halves(exponential(high, low, &inputs.doubles) / widened(weight, &inputs.doubles));
            high = upper;
            low = lower;
        }
    }
    (high, low)
}

/// Takes all entries of a row that have not weight 0.
#[cube]
fn take_all(
    layer: &Layer,
    inputs: &PlaneDraws,
    row: DrawnRow,
    start: usize,
    out: &mut Drawn,
    #[comptime] kinds: DrawKinds,
) {
    let (mut base, mut filled) = (0u32.runtime(), 0u32.runtime());
    while base < row.degree {
        let place = base + UNIT_POS_X;
        let mut taken = 0u32.runtime();
        if place < row.degree {
            taken = select(weight_of(layer, inputs, row, place, kinds) > 0u32, 1u32, 0u32);
        }
        let to = filled + plane_exclusive_sum(taken);
        if taken > 0u32 {
            out.edges[start + usize::cast_from(to)] = row.first + place;
        }
        filled += plane_sum(taken);
        base += CUBE_DIM_X;
    }
}

/// The largest of the picks, of equal keys the last place. No lane goes on before all have read.
#[cube]
fn find_worst(picks: &Picks, count: u32, worst: &mut Worst) {
    let (mut high, mut low, mut behind, mut slot) = (0u32.runtime(), 0u32.runtime(), 0u32.runtime(), 0u32.runtime());
    let mut at = UNIT_POS_X;
    while at < count {
        let k = usize::cast_from(at);
        let is_worse = is_below(high, low, picks.highs[k], picks.lows[k])
            || high == picks.highs[k] && low == picks.lows[k] && picks.places[k] >= behind;
        if is_worse {
            high = picks.highs[k];
            low = picks.lows[k];
            // One more than the place: 0 is that of a lane without picks.
            behind = picks.places[k] + 1u32;
            slot = at;
        }
        at += CUBE_DIM_X;
    }
    let worst_high = plane_max(high);
    let worst_low = plane_max(select(high == worst_high, low, 0u32));
    let is_worst = high == worst_high && low == worst_low;
    let worst_behind = plane_max(select(is_worst, behind, 0u32));
    worst.slot = plane_max(select(is_worst && behind == worst_behind, slot, 0u32));
    worst.high = worst_high;
    worst.low = worst_low;
    sync_cube();
}

/// Picks the entries with the smallest keys. There are more than are picked: the first ones fill the slots, a later one
/// that is below the largest of them takes its slot.
#[cube]
fn pick_smallest(layer: &Layer, inputs: &PlaneDraws, row: DrawnRow, picks: &mut Picks, #[comptime] kinds: DrawKinds) {
    let (mut base, mut filled) = (0u32.runtime(), 0u32.runtime());
    let mut worst = Worst { high: 0u32.runtime(), low: 0u32.runtime(), slot: 0u32.runtime() };
    while base < row.degree {
        let place = base + UNIT_POS_X;
        let mut left = 0u32.runtime();
        let (mut high, mut low) = (0u32.runtime(), 0u32.runtime());
        if place < row.degree {
            let weight = weight_of(layer, inputs, row, place, kinds);
            if weight > 0u32 {
                let (upper, lower) = key_of(layer, inputs, row, place, weight, kinds);
                high = upper;
                low = lower;
                left = 1u32;
            }
        }
        if filled < row.count {
            let slot = filled + plane_exclusive_sum(left);
            filled = u32::min(filled + plane_sum(left), row.count);
            if left > 0u32 && slot < row.count {
                let k = usize::cast_from(slot);
                picks.places[k] = place;
                picks.highs[k] = high;
                picks.lows[k] = low;
                left = 0u32;
            }
            sync_cube();
            if filled == row.count {
                find_worst(picks, row.count, &mut worst);
            }
        }
        // Without free slots there is a worst pick.
        left = select(is_below(high, low, worst.high, worst.low), left, 0u32);
        let mut any = plane_any(left > 0u32);
        while any {
            let lane = plane_min(select(left > 0u32, UNIT_POS_X, CUBE_DIM_X));
            if lane == UNIT_POS_X {
                let k = usize::cast_from(worst.slot);
                picks.places[k] = place;
                picks.highs[k] = high;
                picks.lows[k] = low;
                left = 0u32;
            }
            sync_cube();
            find_worst(picks, row.count, &mut worst);
            left = select(is_below(high, low, worst.high, worst.low), left, 0u32);
            any = plane_any(left > 0u32);
        }
        base += CUBE_DIM_X;
    }
}

/// Picks with replacement.
#[cube]
fn pick_repeated(layer: &Layer, inputs: &PlaneDraws, row: DrawnRow, picks: &mut Picks, #[comptime] kinds: DrawKinds) {
    let mut at = UNIT_POS_X;
    while at < row.count {
        let (high, low) = hash(row.key_high, row.key_low, at);
        let mut place = below(high, low, row.degree);
        if kinds.weighted {
            if row.weighted {
                place = place_by_weight(layer, inputs, row, high, low, kinds);
            }
        }
        picks.places[usize::cast_from(at)] = place;
        picks.highs[usize::cast_from(at)] = at;
        at += CUBE_DIM_X;
    }
}

/// The first entry of a row whose sum of weights is above a draw.
#[cube]
fn place_by_weight(
    layer: &Layer,
    inputs: &PlaneDraws,
    row: DrawnRow,
    high: u32,
    low: u32,
    #[comptime] kinds: DrawKinds,
) -> u32 {
    let first = usize::cast_from(word(&layer.relations, row.relation, relation::WEIGHTS));
    let sums = 2 * (first + usize::cast_from(row.first)) + inputs.sums.delta;
    let (mut from, mut to) = (0u32.runtime(), row.degree);
    let last = sums + 2 * usize::cast_from(row.degree - 1u32);
    let total = double(inputs.sums.words[last], inputs.sums.words[last + 1]);
    // Exact but for the last product.
    let unit = f64::cast_from(high) * 2097152.0f64 + f64::cast_from(low >> 11u32);
    let drawn = unit * constant(&inputs.doubles, doubles::DRAWN_BIT.runtime()) * total;
    while from < to {
        let middle = from + (to - from) / 2u32;
        let at = sums + 2 * usize::cast_from(middle);
        if double(inputs.sums.words[at], inputs.sums.words[at + 1]) <= drawn {
            from = middle + 1u32;
        } else {
            to = middle;
        }
    }
    // Where rounding reaches the end, the last entry of positive weight.
    if from == row.degree {
        from -= 1u32;
        while weight_of(layer, inputs, row, from, kinds) == 0u32 {
            from -= 1u32;
        }
    }
    from
}

/// Sorts the picks by their places, of the same place by `highs`.
#[cube]
fn sort(picks: &mut Picks, count: u32) {
    let count = usize::cast_from(count);
    let mut slots = 1usize.runtime();
    while slots < count {
        slots *= 2;
    }
    let mut k = count + UNIT_POS_X as usize;
    while k < slots {
        picks.places[k] = u32::MAX.runtime();
        picks.highs[k] = u32::MAX.runtime();
        k += CUBE_DIM_X as usize;
    }
    sync_cube();
    let mut run = 2usize.runtime();
    while run <= slots {
        let mut distance = run / 2;
        while distance > 0 {
            let mut pair = UNIT_POS_X as usize;
            while pair < slots / 2 {
                let low = lower_place(pair, distance);
                let high = low + distance;
                let (place, other_place) = (picks.places[low], picks.places[high]);
                let (with, other_with) = (picks.highs[low], picks.highs[high]);
                if out_of_order::<u32>(place, with, other_place, other_with, low, run) {
                    picks.places[low] = other_place;
                    picks.places[high] = place;
                    picks.highs[low] = other_with;
                    picks.highs[high] = with;
                }
                pair += CUBE_DIM_X as usize;
            }
            sync_cube();
            distance /= 2;
        }
        run *= 2;
    }
}

/// Picks without replacement, all alike, as Floyd does one after the other: a draw that gives a known place gives the
/// last place of its range instead. A place is known if an earlier draw gave it, or if it is the last of an earlier
/// range and was taken so.
#[cube]
fn pick_distinct(row: DrawnRow, picks: &mut Picks) {
    let others = row.degree - row.count;
    let mut at = UNIT_POS_X;
    while at < row.count {
        let (high, low) = hash(row.key_high, row.key_low, at);
        picks.places[usize::cast_from(at)] = below(high, low, others + at + 1u32);
        picks.highs[usize::cast_from(at)] = at;
        at += CUBE_DIM_X;
    }
    // Draws of the same place stand together, the earliest first; `highs` says which draw it is, `lows` of every draw
    // whether its place is known.
    sort(picks, row.count);
    let mut k = UNIT_POS_X as usize;
    let count = usize::cast_from(row.count);
    while k < count {
        let mut known = 0u32.runtime();
        if k > 0 {
            known = select(picks.places[k - 1] == picks.places[k], 1u32, 0u32);
        }
        picks.lows[usize::cast_from(picks.highs[k])] = known;
        k += CUBE_DIM_X as usize;
    }
    sync_cube();
    let mut changes = true.runtime();
    while changes {
        let mut changed = false.runtime();
        let mut base = 0usize.runtime();
        while base < count {
            k = base + UNIT_POS_X as usize;
            let mut taken = false.runtime();
            if k < count {
                let (place, draw) = (picks.places[k], picks.highs[k]);
                if picks.lows[usize::cast_from(draw)] == 0u32 && place >= others && place < others + draw {
                    taken = picks.lows[usize::cast_from(place - others)] > 0u32;
                }
            }
            // All have read before one writes.
            sync_cube();
            if taken {
                picks.lows[usize::cast_from(picks.highs[k])] = 1u32;
                changed = true;
            }
            sync_cube();
            base += CUBE_DIM_X as usize;
        }
        changes = plane_any(changed);
    }
    k = UNIT_POS_X as usize;
    while k < count {
        let draw = picks.highs[k];
        picks.places[k] = select(picks.lows[usize::cast_from(draw)] > 0u32, others + draw, picks.places[k]);
        k += CUBE_DIM_X as usize;
    }
}

/// Writes the picked entries in ascending order.
#[cube]
fn write_in_order(row: DrawnRow, picks: &mut Picks, start: usize, out: &mut Drawn) {
    sort(picks, row.count);
    let mut at = UNIT_POS_X;
    while at < row.count {
        out.edges[start + usize::cast_from(at)] = row.first + picks.places[usize::cast_from(at)];
        at += CUBE_DIM_X;
    }
    sync_cube();
}

/// Draws the entries of the rows that planes draw for, in ascending order, and notes whose they are. No row gives more
/// than `room` of more entries than it takes; `room` is a power of two.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn plane_draw_kernel(
    layer: &Layer,
    inputs: &PlaneDraws,
    out: &mut Drawn,
    #[comptime] kinds: DrawKinds,
    #[comptime] room: usize,
) {
    let mut picks = Picks {
        places: SharedMemory::<u32>::new(room),
        highs: SharedMemory::<u32>::new(room),
        lows: SharedMemory::<u32>::new(room),
    };
    let mut at = CUBE_POS;
    while at < layer.rows {
        let of = of_row(&layer.relations, u32::cast_from(at));
        if word(&layer.relations, of, relation::BY_PLANE) > 0u32 {
            let node = destination(layer, of, u32::cast_from(at));
            let (first, degree) = entries_of(&layer.relations, of, &inputs.row_ptr, node, kinds);
            let start = usize::cast_from(inputs.starts[at]);
            let count = inputs.starts[at + 1] - inputs.starts[at];
            let (mut key_high, mut key_low) =
                (word(&layer.relations, of, relation::KEY_HIGH), word(&layer.relations, of, relation::KEY_LOW));
            if comptime!(!kinds.by_source) {
                let (high, low) = hash(key_high, key_low, node);
                key_high = high;
                key_low = low;
            }
            let weighted = is_weighted(&layer.relations, of, kinds);
            let row = DrawnRow { relation: of, key_high, key_low, first, degree, count, weighted };
            let by_chance = kinds.replace && word(&layer.relations, of, relation::FANOUT) > 0u32;
            let available = available_of(&layer.relations, of, &inputs.row_ptr, node, degree, kinds);
            if by_chance && count > 0u32 {
                pick_repeated(layer, inputs, row, &mut picks, kinds);
                write_in_order(row, &mut picks, start, out);
            } else if count == available {
                take_all(layer, inputs, row, start, out, kinds);
            } else {
                if comptime!(kinds.by_source) {
                    pick_smallest(layer, inputs, row, &mut picks, kinds);
                } else if weighted {
                    pick_smallest(layer, inputs, row, &mut picks, kinds);
                } else {
                    pick_distinct(row, &mut picks);
                }
                write_in_order(row, &mut picks, start, out);
            }
            let mut owned = UNIT_POS_X;
            while owned < count {
                out.owners[start + usize::cast_from(owned)] = u32::cast_from(at);
                owned += CUBE_DIM_X;
            }
        }
        at += CUBE_COUNT;
    }
}
