//! A thread per destination draws, a thread per entry finds out which nodes are new: all relations of a layer in one launch.
//!
//! Rows are the destinations of the relations, one relation behind the other, and so are the entries. What a relation is sampled
//! by stands in a [`table`](super::table). The hash has 64 bits; it is computed in halves of 32, which every device has.

use cubecl::prelude::*;

use super::table::{relation, span};
use super::{ASKED, NOWHERE};
use crate::runtime::hash::{SPLITMIX_FACTORS, SPLITMIX_STEP, mix_cube};

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
    let (high, low) = product(0u32.runtime(), word + 1u32, SPLITMIX_STEP);
    let low = low + key_low;
    // Where a sum of 32 bits is below a summand it has wrapped around.
    let high = high + key_high + select(low < key_low, 1u32, 0u32);
    let (high, low) = folded(high, low, 30u32);
    let (high, low) = product(high, low, comptime!(SPLITMIX_FACTORS[0]));
    let (high, low) = folded(high, low, 27u32);
    let (high, low) = product(high, low, comptime!(SPLITMIX_FACTORS[1]));
    folded(high, low, 31u32)
}

/// `bits` mapped to `0..bound`.
#[cube]
fn below(high: u32, low: u32, bound: u32) -> u32 {
    let middle = high * bound;
    let carried = middle + low.mul_hi(bound);
    high.mul_hi(bound) + select(carried < middle, 1u32, 0u32)
}

/// A word of a relation.
#[cube]
fn word(table: &Array<u32>, relation: u32, #[comptime] field: u32) -> u32 {
    table[usize::cast_from(relation * comptime!(relation::WORDS) + field)]
}

/// The relation of a row.
#[cube]
fn of_row(table: &Array<u32>, row: u32, relations: u32) -> u32 {
    let mut found = 0u32;
    let mut next = 1u32.runtime();
    while next < relations {
        // Relations without rows begin where the next one does.
        if word(table, next, relation::FIRST_ROW) <= row {
            found = next;
        }
        next += 1u32;
    }
    found
}

/// The relation of an entry: the last one whose entries begin at or before it.
#[cube]
fn of_entry(table: &Array<u32>, starts: &Array<u32>, entry: u32, relations: u32) -> u32 {
    let mut found = 0u32;
    let mut next = 1u32.runtime();
    while next < relations {
        if starts[usize::cast_from(word(table, next, relation::FIRST_ROW))] <= entry {
            found = next;
        }
        next += 1u32;
    }
    found
}

/// Where the entries of a relation end.
#[cube]
fn end_of(table: &Array<u32>, starts: &Array<u32>, relation: u32) -> u32 {
    let row = word(table, relation, relation::FIRST_ROW) + word(table, relation, relation::ROWS);
    starts[usize::cast_from(row)]
}

/// The destination of a row, numbered within its type.
#[cube]
fn destination(table: &Array<u32>, nodes: &Array<u32>, relation: u32, row: u32) -> u32 {
    let place = row - word(table, relation, relation::FIRST_ROW);
    nodes[usize::cast_from(word(table, relation, relation::DST_LIST) + place)]
}

/// How many entries every row gives.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn count_kernel(
    table: &Array<u32>,
    row_ptr: &Array<u32>,
    row_delta: usize,
    nodes: &Array<u32>,
    counts: &mut Array<u32>,
    rows: usize,
    relations: u32,
    #[comptime] replace: bool,
) {
    let mut row = ABSOLUTE_POS;
    // One more, so that the sum of all stands behind the starts of the rows.
    while row <= rows {
        let mut count = 0u32;
        if row < rows {
            let of = of_row(table, u32::cast_from(row), relations);
            let node = destination(table, nodes, of, u32::cast_from(row));
            let at = usize::cast_from(word(table, of, relation::ROW_PTR) + node) + row_delta;
            let degree = row_ptr[at + 1] - row_ptr[at];
            let fanout = word(table, of, relation::FANOUT);
            count = degree;
            if fanout > 0u32 {
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
    table: &Array<u32>,
    row_ptr: &Array<u32>,
    row_delta: usize,
    nodes: &Array<u32>,
    starts: &Array<u32>,
    edges: &mut Array<u32>,
    owners: &mut Array<u32>,
    rows: usize,
    relations: u32,
    #[comptime] replace: bool,
) {
    let mut row = ABSOLUTE_POS;
    while row < rows {
        let of = of_row(table, u32::cast_from(row), relations);
        let node = destination(table, nodes, of, u32::cast_from(row));
        let at_row = usize::cast_from(word(table, of, relation::ROW_PTR) + node) + row_delta;
        let first = row_ptr[at_row];
        let degree = row_ptr[at_row + 1] - first;
        let start = usize::cast_from(starts[row]);
        let count = starts[row + 1] - starts[row];
        let by_chance = replace && word(table, of, relation::FANOUT) > 0u32;
        let (row_high, row_low) = hash(word(table, of, relation::KEY_HIGH), word(table, of, relation::KEY_LOW), node);
        let mut at = 0u32;
        while at < count {
            let takes_all = count == degree && !by_chance;
            if !takes_all {
                let mut bound = degree;
                if !by_chance {
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
                if known && !by_chance {
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
            owners[start + usize::cast_from(at)] = u32::cast_from(row);
            at += 1u32;
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Looks up the source of every entry, numbered among all nodes, and asks for a place for it. Where some entries are left out
/// (`drops`), it says which are kept instead: `flags` has one more for what lies behind.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn source_kernel(
    table: &Array<u32>,
    col_idx: &Array<u32>,
    col_delta: usize,
    nodes: &Array<u32>,
    starts: &Array<u32>,
    edges: &Array<u32>,
    owners: &Array<u32>,
    cols: &mut Array<u32>,
    flags: &mut Array<u32>,
    places: &mut Array<Atomic<u32>>,
    rows: usize,
    len: usize,
    relations: u32,
    #[comptime] drops: bool,
) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    while entry <= len {
        let mut flag = 0u32;
        if entry < total {
            let of = of_entry(table, starts, u32::cast_from(entry), relations);
            let at = usize::cast_from(word(table, of, relation::COL_IDX)) + usize::cast_from(edges[entry]);
            let source = col_idx[at + col_delta];
            let global = word(table, of, relation::SRC_BASE) + source;
            cols[entry] = global;
            if drops {
                flag = 1u32;
                let threshold = word(table, of, relation::DROP_THRESHOLD);
                // No threshold stands for a relation that keeps all.
                if threshold > 0u32 {
                    let row = destination(table, nodes, of, owners[entry]) + word(table, of, relation::DROP_ROW_BASE);
                    let col = source + word(table, of, relation::DROP_COL_BASE);
                    let hashed = mix_cube(
                        row ^ word(table, of, relation::DROP_KEY0),
                        col ^ word(table, of, relation::DROP_KEY1),
                    );
                    flag = select(hashed < threshold, 1u32, 0u32);
                }
            } else {
                // A place that is given already is below all that ask.
                places[usize::cast_from(global)].fetch_min(ASKED.runtime() + u32::cast_from(entry));
            }
        }
        if drops {
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
    owners: &Array<u32>,
    kept_edges: &mut Array<u32>,
    kept_cols: &mut Array<u32>,
    kept_owners: &mut Array<u32>,
    len: usize,
) {
    let mut entry = ABSOLUTE_POS;
    while entry < len {
        let rank = ranks[entry];
        if ranks[entry + 1] > rank {
            let to = usize::cast_from(rank);
            kept_edges[to] = edges[entry];
            kept_cols[to] = cols[entry];
            kept_owners[to] = owners[entry];
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
        places[usize::cast_from(cols[entry])].fetch_min(ASKED.runtime() + u32::cast_from(entry));
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

/// Gives the new sources their places behind the nodes of their type, and lists them.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn list_kernel(
    table: &Array<u32>,
    starts: &Array<u32>,
    cols: &Array<u32>,
    ranks: &Array<u32>,
    places: &mut Array<u32>,
    nodes: &mut Array<u32>,
    len: usize,
    relations: u32,
) {
    let mut entry = ABSOLUTE_POS;
    while entry < len {
        let rank = ranks[entry];
        if ranks[entry + 1] > rank {
            let of = of_entry(table, starts, u32::cast_from(entry), relations);
            let kind = word(table, of, relation::SRC_TYPE);
            let first = starts[usize::cast_from(word(table, of, relation::FIRST_ROW))];
            let mut place = word(table, of, relation::SRC_KNOWN) + rank - ranks[usize::cast_from(first)];
            // Behind those that relations before this one found.
            let mut other = 0u32.runtime();
            while other < of {
                if word(table, other, relation::SRC_TYPE) == kind {
                    let begin = starts[usize::cast_from(word(table, other, relation::FIRST_ROW))];
                    let end = end_of(table, starts, other);
                    place += ranks[usize::cast_from(end)] - ranks[usize::cast_from(begin)];
                }
                other += 1u32;
            }
            let global = cols[entry];
            places[usize::cast_from(global)] = place;
            let at = word(table, of, relation::SRC_LIST) + place;
            nodes[usize::cast_from(at)] = global - word(table, of, relation::SRC_BASE);
        }
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Replaces sources by their places, and counts: for every relation the nodes that it found and its entries.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn name_kernel(
    table: &Array<u32>,
    cols: &mut Array<u32>,
    places: &Array<u32>,
    starts: &Array<u32>,
    ranks: &Array<u32>,
    counts: &mut Array<u32>,
    rows: usize,
    relations: u32,
) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    if entry < usize::cast_from(relations) {
        let of = u32::cast_from(entry);
        let begin = starts[usize::cast_from(word(table, of, relation::FIRST_ROW))];
        let end = end_of(table, starts, of);
        counts[2 * entry] = ranks[usize::cast_from(end)] - ranks[usize::cast_from(begin)];
        counts[2 * entry + 1] = end - begin;
    }
    while entry < total {
        let global = usize::cast_from(cols[entry]);
        cols[entry] = places[global];
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// The type of a row among the rows of all types; rows of a type begin at a multiple, so there are some that stand for nothing.
#[cube]
pub(crate) fn type_of(spans: &Array<u32>, row: u32, types: u32) -> u32 {
    let mut found = 0u32;
    let mut next = 1u32.runtime();
    while next < types {
        if span_word(spans, next, span::FIRST) <= row {
            found = next;
        }
        next += 1u32;
    }
    found
}

/// A word of a type.
#[cube]
pub(crate) fn span_word(spans: &Array<u32>, of: u32, #[comptime] field: u32) -> u32 {
    spans[usize::cast_from(of * comptime!(span::WORDS) + field)]
}

/// Lists the seeds and gives them the first places.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn seed_kernel(
    spans: &Array<u32>,
    seeds: &Array<u32>,
    nodes: &mut Array<u32>,
    places: &mut Array<u32>,
    rows: usize,
    types: u32,
) {
    let mut row = ABSOLUTE_POS;
    while row < rows {
        let of = type_of(spans, u32::cast_from(row), types);
        let place = u32::cast_from(row) - span_word(spans, of, span::FIRST);
        if place < span_word(spans, of, span::ROWS) {
            let node = seeds[row];
            let (at, global) = (span_word(spans, of, span::LIST) + place, span_word(spans, of, span::BASE) + node);
            nodes[usize::cast_from(at)] = node;
            places[usize::cast_from(global)] = place;
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Takes the places of all nodes of a batch away.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn forget_kernel(spans: &Array<u32>, nodes: &Array<u32>, places: &mut Array<u32>, rows: usize, types: u32) {
    let mut row = ABSOLUTE_POS;
    while row < rows {
        let of = type_of(spans, u32::cast_from(row), types);
        let place = u32::cast_from(row) - span_word(spans, of, span::FIRST);
        if place < span_word(spans, of, span::ROWS) {
            let node = nodes[usize::cast_from(span_word(spans, of, span::LIST) + place)];
            let global = span_word(spans, of, span::BASE) + node;
            places[usize::cast_from(global)] = NOWHERE.runtime();
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// How many entries lead from every column: columns of a relation stand behind those of the ones before.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn column_count_kernel(
    table: &Array<u32>,
    starts: &Array<u32>,
    cols: &Array<u32>,
    counts: &mut Array<Atomic<u32>>,
    rows: usize,
    relations: u32,
) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    while entry < total {
        let of = of_entry(table, starts, u32::cast_from(entry), relations);
        let col = word(table, of, relation::FIRST_COL) + cols[entry];
        counts[usize::cast_from(col)].fetch_add(1u32);
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Puts every entry somewhere among those of its column.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn scatter_kernel(
    table: &Array<u32>,
    starts: &Array<u32>,
    cols: &Array<u32>,
    col_starts: &Array<u32>,
    taken: &mut Array<Atomic<u32>>,
    entries: &mut Array<u32>,
    rows: usize,
    relations: u32,
) {
    let total = usize::cast_from(starts[rows]);
    let mut entry = ABSOLUTE_POS;
    while entry < total {
        let of = of_entry(table, starts, u32::cast_from(entry), relations);
        let col = usize::cast_from(word(table, of, relation::FIRST_COL) + cols[entry]);
        let place = col_starts[col] + taken[col].fetch_add(1u32);
        entries[usize::cast_from(place)] = u32::cast_from(entry);
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// The destinations of the entries of every column, in ascending order: as many of the column's entries stand before an entry as
/// are below it.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn order_kernel(
    table: &Array<u32>,
    starts: &Array<u32>,
    cols: &Array<u32>,
    owners: &Array<u32>,
    col_starts: &Array<u32>,
    entries: &Array<u32>,
    destinations: &mut Array<u32>,
    rows: usize,
    relations: u32,
) {
    let total = usize::cast_from(starts[rows]);
    let mut k = ABSOLUTE_POS;
    while k < total {
        let entry = entries[k];
        let of = of_entry(table, starts, entry, relations);
        let col = usize::cast_from(word(table, of, relation::FIRST_COL) + cols[usize::cast_from(entry)]);
        let (mut other, end) = (usize::cast_from(col_starts[col]), usize::cast_from(col_starts[col + 1]));
        let mut place = other;
        while other < end {
            place += select(entries[other] < entry, 1usize, 0usize);
            other += 1;
        }
        destinations[place] = owners[usize::cast_from(entry)] - word(table, of, relation::FIRST_ROW);
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Lists the rows of one relation with more than `longest` entries behind the entries, and counts them.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn long_kernel(
    starts: &Array<u32>,
    first: usize,
    rows: usize,
    longest: u32,
    list: &mut Array<u32>,
    behind: usize,
    counts: &mut Array<Atomic<u32>>,
    count: usize,
) {
    let mut row = ABSOLUTE_POS;
    while row < rows {
        if starts[first + row + 1] - starts[first + row] > longest {
            let place = counts[count].fetch_add(1u32);
            list[behind + usize::cast_from(place)] = u32::cast_from(row);
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Copies stretches of arrays to the words from `start` to `end`. A stretch has four words: where it goes, how long it is, where it comes
/// from and how (see [`super::pack`]).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn pack_kernel(
    stretches: &Array<u32>,
    a: &Array<u32>,
    b: &Array<u32>,
    c: &Array<u32>,
    d: &Array<u32>,
    out: &mut Array<u32>,
    count: u32,
    start: usize,
    end: usize,
) {
    let mut at = start + ABSOLUTE_POS;
    while at < end {
        // The last stretch that begins at or before this word.
        let (mut low, mut high) = (0u32.runtime(), count);
        while high - low > 1u32 {
            let middle = (low + high) / 2u32;
            let begins = stretches[usize::cast_from(middle * 4u32)] <= u32::cast_from(at);
            low = select(begins, middle, low);
            high = select(begins, high, middle);
        }
        let stretch = usize::cast_from(low * 4u32);
        let inside = at - usize::cast_from(stretches[stretch]);
        if inside < usize::cast_from(stretches[stretch + 1]) {
            let from = usize::cast_from(stretches[stretch + 2]);
            let way = stretches[stretch + 3];
            if way == 0u32 {
                out[at] = a[from + inside] - a[from];
            } else if way == 1u32 {
                out[at] = b[from + inside];
            } else if way == 2u32 {
                out[at] = c[from + inside] - c[from];
            } else {
                out[at] = d[from + inside];
            }
        }
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}
