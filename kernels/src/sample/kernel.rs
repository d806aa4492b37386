//! A thread per destination draws, a thread per entry finds out which nodes are new.
//!
//! The hash has 64 bits; it is computed in halves of 32, which every device has.

use cubecl::prelude::*;

use super::rule::{MIX, WORD};
use super::{ASKED, NOWHERE};
use crate::drop_edge::{DropEdgeKey, DropMode, keeps};

/// The lower half of the product of two numbers of 64 bits, in halves: high, low.
#[cube]
fn product(high: u32, low: u32, #[comptime] factor: u64) -> (u32, u32) {
    let factor_low = comptime!(factor as u32).runtime();
    let factor_high = comptime!((factor >> 32) as u32).runtime();
    (low.mul_hi(factor_low) + low * factor_high + high * factor_low, low * factor_low)
}

/// `x ^ (x >> by)`, for `by` below 32.
#[cube]
fn folded(high: u32, low: u32, #[comptime] by: u32) -> (u32, u32) {
    (high ^ (high >> by), low ^ ((low >> by) | (high << comptime!(32 - by))))
}

/// The hash of a word of 32 bits under a key.
#[cube]
fn hash(key_high: u32, key_low: u32, word: u32) -> (u32, u32) {
    let (high, low) = product(0u32.runtime(), word + 1u32, WORD);
    let low = low + key_low;
    // Where a sum of 32 bits is below a summand it has wrapped around.
    let high = high + key_high + select(low < key_low, 1u32, 0u32);
    let (high, low) = folded(high, low, 30u32);
    let (high, low) = product(high, low, comptime!(MIX[0]));
    let (high, low) = folded(high, low, 27u32);
    let (high, low) = product(high, low, comptime!(MIX[1]));
    folded(high, low, 31u32)
}

/// `bits` mapped to `0..bound`.
#[cube]
fn below(high: u32, low: u32, bound: u32) -> u32 {
    let middle = high * bound;
    let carried = middle + low.mul_hi(bound);
    high.mul_hi(bound) + select(carried < middle, 1u32, 0u32)
}

/// How many entries every row gives.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn count_kernel(
    row_ptr: &Array<u32>,
    row_delta: usize,
    destinations: &Array<u32>,
    counts: &mut Array<u32>,
    rows: usize,
    fanout: u32,
    #[comptime] all: bool,
    #[comptime] replace: bool,
) {
    let mut row = ABSOLUTE_POS;
    // One more, so that the sum of all stands behind the starts of the rows.
    while row <= rows {
        let mut count = 0u32;
        if row < rows {
            let node = usize::cast_from(destinations[row]) + row_delta;
            let degree = row_ptr[node + 1] - row_ptr[node];
            count = degree;
            if !all {
                if replace {
                    count = select(degree > 0u32, fanout, 0u32);
                } else {
                    count = u32::min(degree, fanout);
                }
            }
        }
        counts[row] = count;
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Draws the entries of every row, in ascending order, and notes whose they are.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn draw_kernel(
    row_ptr: &Array<u32>,
    row_delta: usize,
    destinations: &Array<u32>,
    starts: &Array<u32>,
    edges: &mut Array<u32>,
    owners: &mut Array<u32>,
    rows: usize,
    key_high: u32,
    key_low: u32,
    #[comptime] replace: bool,
) {
    let mut row = ABSOLUTE_POS;
    while row < rows {
        let node = destinations[row];
        let at_row = usize::cast_from(node) + row_delta;
        let first = row_ptr[at_row];
        let degree = row_ptr[at_row + 1] - first;
        let start = usize::cast_from(starts[row]);
        let count = starts[row + 1] - starts[row];
        let (row_high, row_low) = hash(key_high, key_low, node);
        let mut at = 0u32;
        while at < count {
            let takes_all = count == degree && !replace;
            if !takes_all {
                let mut bound = degree;
                if !replace {
                    bound = degree - count + at + 1u32;
                }
                let (high, low) = hash(row_high, row_low, at);
                let mut drawn = below(high, low, bound);
                // What is there already is in ascending order.
                let mut to = at;
                let mut known = false;
                let mut looks = at > 0u32;
                while looks {
                    let other = edges[start + usize::cast_from(to) - 1];
                    if other <= drawn + first {
                        known = other == drawn + first;
                        looks = false;
                    } else {
                        to -= 1u32;
                        looks = to > 0u32;
                    }
                }
                if known && !replace {
                    // The last place is above all of them.
                    drawn = bound - 1u32;
                    to = at;
                }
                let mut from = at;
                while from > to {
                    edges[start + usize::cast_from(from)] = edges[start + usize::cast_from(from) - 1];
                    from -= 1u32;
                }
                edges[start + usize::cast_from(to)] = drawn + first;
            } else {
                edges[start + usize::cast_from(at)] = first + at;
            }
            owners[start + usize::cast_from(at)] = node;
            at += 1u32;
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Looks up the source of every entry, and whether the entry is kept: `flags` has one more for what lies behind.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn source_kernel(
    col_idx: &Array<u32>,
    col_delta: usize,
    starts: &Array<u32>,
    edges: &Array<u32>,
    owners: &Array<u32>,
    cols: &mut Array<u32>,
    flags: &mut Array<u32>,
    key: DropEdgeKey,
    rows: usize,
    len: usize,
    #[comptime] mode: DropMode,
) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    while entry <= len {
        let mut flag = 0u32;
        if entry < total {
            let source = col_idx[usize::cast_from(edges[entry]) + col_delta];
            cols[entry] = source;
            flag = select(keeps(&key, owners[entry], source, mode), 1u32, 0u32);
        }
        if mode != DropMode::KeepAll {
            flags[entry] = flag;
        }
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Moves the entries that are kept together.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn keep_kernel(
    ranks: &Array<u32>,
    edges: &Array<u32>,
    cols: &Array<u32>,
    kept_edges: &mut Array<u32>,
    kept_cols: &mut Array<u32>,
    len: usize,
) {
    let mut entry = ABSOLUTE_POS;
    while entry < len {
        let rank = ranks[entry];
        if ranks[entry + 1] > rank {
            let to = usize::cast_from(rank);
            kept_edges[to] = edges[entry];
            kept_cols[to] = cols[entry];
        }
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Where the rows begin among the entries that are kept.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn start_kernel(ranks: &Array<u32>, starts: &Array<u32>, kept_starts: &mut Array<u32>, rows: usize) {
    let mut row = ABSOLUTE_POS;
    while row <= rows {
        let at = usize::cast_from(starts[row]);
        kept_starts[row] = ranks[at];
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Asks for places for the sources of all entries.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn ask_kernel(cols: &Array<u32>, starts: &Array<u32>, places: &mut Array<Atomic<u32>>, rows: usize) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    while entry < total {
        let node = usize::cast_from(cols[entry]);
        // A place that is given already is below all that ask.
        places[node].fetch_min(ASKED.runtime() + u32::cast_from(entry));
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Marks the entries that are the first to ask for their source.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn first_kernel(
    cols: &Array<u32>,
    places: &Array<u32>,
    starts: &Array<u32>,
    flags: &mut Array<u32>,
    rows: usize,
    len: usize,
) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    while entry <= len {
        let mut flag = 0u32;
        if entry < total {
            let asked = ASKED.runtime() + u32::cast_from(entry);
            flag = select(places[usize::cast_from(cols[entry])] == asked, 1u32, 0u32);
        }
        flags[entry] = flag;
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Gives the new sources their places and lists them.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn list_kernel(
    cols: &Array<u32>,
    ranks: &Array<u32>,
    counts: &Array<u32>,
    places: &mut Array<u32>,
    sources: &mut Array<u32>,
    source_count: usize,
    len: usize,
) {
    let known = counts[source_count];
    let mut entry = ABSOLUTE_POS;
    while entry < len {
        if ranks[entry + 1] > ranks[entry] {
            let place = known + ranks[entry];
            let source = cols[entry];
            let (node, at) = (usize::cast_from(source), usize::cast_from(place));
            places[node] = place;
            sources[at] = source;
        }
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Replaces sources by their places, and counts.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn name_kernel(
    cols: &mut Array<u32>,
    places: &Array<u32>,
    starts: &Array<u32>,
    ranks: &Array<u32>,
    counts: &mut Array<u32>,
    rows: usize,
    len: usize,
    source_count: usize,
    edge_count: usize,
) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    if entry == 0 {
        counts[source_count] += ranks[len];
        counts[edge_count] = u32::cast_from(total);
    }
    while entry < total {
        let node = usize::cast_from(cols[entry]);
        cols[entry] = places[node];
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn places_kernel(nodes: &Array<u32>, places: &mut Array<u32>, count: usize, #[comptime] forget: bool) {
    let mut k = ABSOLUTE_POS;
    while k < count {
        let mut place = u32::cast_from(k);
        if forget {
            place = NOWHERE.runtime();
        }
        let node = usize::cast_from(nodes[k]);
        places[node] = place;
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
