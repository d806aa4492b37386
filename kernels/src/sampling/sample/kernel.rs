//! A thread per destination draws, a thread per entry finds out which nodes are new: all relations of a layer in one
//! launch.
//!
//! Rows are the destinations of the relations, one relation behind the other, and so are the entries. What a relation
//! is sampled by stands in a [`table`](super::table). The hash has 64 bits; it is computed in halves of 32, which every
//! device has.
#![allow(clippy::collapsible_if, reason = "one of two conditions is known when the kernel is compiled")]

use cubecl::prelude::*;

use super::args::{
    AskedColumns, BatchNodes, ColumnEntries, Drawn, DrawnEntries, KeptEntries, Layer, ListedEntries, ListedNodes,
    LongPlace, LongRows, NamedColumns, NewSources, PackedFrom, PlacedSources, RankedEntries, RankedRows, RelationRows,
    Relations, RowColumns, ScatteredEntries, Sources, SpanTable, WordRange, WordsBehind,
};
use super::table::{relation, span};
use super::{ASKED, NOWHERE};
use crate::runtime::hash::{SPLITMIX_FACTORS, SPLITMIX_STEP, mix_cube};
use crate::sampling::backend::DrawKinds;

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
pub(super) fn hash(key_high: u32, key_low: u32, word: u32) -> (u32, u32) {
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
pub(super) fn below(high: u32, low: u32, bound: u32) -> u32 {
    let middle = high * bound;
    let carried = middle + low.mul_hi(bound);
    high.mul_hi(bound) + select(carried < middle, 1u32, 0u32)
}

/// A word of a relation.
#[cube]
pub(super) fn word(relations: &Relations, relation: u32, #[comptime] field: u32) -> u32 {
    relations.table[usize::cast_from(relation * comptime!(relation::WORDS) + field)]
}

/// The relation of a row.
#[cube]
pub(super) fn of_row(relations: &Relations, row: u32) -> u32 {
    let mut found = 0u32;
    let mut next = 1u32.runtime();
    while next < relations.count {
        // Relations without rows begin where the next one does.
        if word(relations, next, relation::FIRST_ROW) <= row {
            found = next;
        }
        next += 1u32;
    }
    found
}

/// The relation of an entry: the last one whose entries begin at or before it.
#[cube]
fn of_entry(relations: &Relations, starts: &Array<u32>, entry: u32) -> u32 {
    let mut found = 0u32;
    let mut next = 1u32.runtime();
    while next < relations.count {
        if starts[usize::cast_from(word(relations, next, relation::FIRST_ROW))] <= entry {
            found = next;
        }
        next += 1u32;
    }
    found
}

/// Where the entries of a relation end.
#[cube]
fn end_of(relations: &Relations, starts: &Array<u32>, relation: u32) -> u32 {
    let row = word(relations, relation, relation::FIRST_ROW) + word(relations, relation, relation::ROWS);
    starts[usize::cast_from(row)]
}

/// The destination of a row, numbered within its type.
#[cube]
pub(super) fn destination(layer: &Layer, relation: u32, row: u32) -> u32 {
    let place = row - word(&layer.relations, relation, relation::FIRST_ROW);
    layer.nodes[usize::cast_from(word(&layer.relations, relation, relation::DST_LIST) + place)]
}

/// Where the entries of a node begin, and how many there are.
#[cube]
pub(super) fn entries_of(
    relations: &Relations,
    relation: u32,
    row_ptr: &WordsBehind,
    node: u32,
    #[comptime] kinds: DrawKinds,
) -> (u32, u32) {
    let at = usize::cast_from(word(relations, relation, relation::ROW_PTR) + node) + row_ptr.delta;
    let mut end = at + 1;
    if kinds.spans {
        end = at + usize::cast_from(word(relations, relation, relation::ENDS));
    }
    let first = row_ptr.words[at];
    (first, row_ptr.words[end] - first)
}

/// Whether a relation gives the last entries of its rows.
#[cube]
fn takes_latest(relations: &Relations, relation: u32, #[comptime] kinds: DrawKinds) -> bool {
    let mut latest = false.runtime();
    if kinds.latest {
        latest = word(relations, relation, relation::LATEST) > 0u32;
    }
    latest
}

/// Whether the entries of a relation have weights.
#[cube]
pub(super) fn is_weighted(relations: &Relations, relation: u32, #[comptime] kinds: DrawKinds) -> bool {
    let mut weighted = false.runtime();
    if kinds.weighted {
        weighted = word(relations, relation, relation::WEIGHTED) > 0u32;
    }
    weighted
}

/// How many of the `degree` entries of a node can be taken.
#[cube]
pub(super) fn available_of(
    relations: &Relations,
    relation: u32,
    row_ptr: &WordsBehind,
    node: u32,
    degree: u32,
    #[comptime] kinds: DrawKinds,
) -> u32 {
    let mut available = degree;
    if kinds.weighted {
        if is_weighted(relations, relation, kinds) {
            let at = usize::cast_from(word(relations, relation, relation::AVAILABLE) + node);
            available = row_ptr.words[at + row_ptr.delta];
        }
    }
    available
}

/// How many entries every row gives.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn count_kernel(
    layer: &Layer,
    row_ptr: &WordsBehind,
    counts: &mut Array<u32>,
    #[comptime] kinds: DrawKinds,
) {
    let mut row = ABSOLUTE_POS;
    // One more, so that the sum of all stands behind the starts of the rows.
    while row <= layer.rows {
        let mut count = 0u32;
        if row < layer.rows {
            let of = of_row(&layer.relations, u32::cast_from(row));
            let node = destination(layer, of, u32::cast_from(row));
            let (_, degree) = entries_of(&layer.relations, of, row_ptr, node, kinds);
            let available = available_of(&layer.relations, of, row_ptr, node, degree, kinds);
            let fanout = word(&layer.relations, of, relation::FANOUT);
            count = available;
            if fanout > 0u32 {
                count = u32::min(available, fanout);
                if kinds.replace {
                    let repeats = available > 0u32 && !takes_latest(&layer.relations, of, kinds);
                    count = select(repeats, fanout, count);
                }
            }
        }
        counts[row] = count;
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Draws the entries of every row, in ascending order, and notes whose they are. Rows that planes draw for are left to
/// [`plane_draw_kernel`](super::plane_draw::plane_draw_kernel).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn draw_kernel(
    layer: &Layer,
    row_ptr: &WordsBehind,
    starts: &Array<u32>,
    out: &mut Drawn,
    #[comptime] kinds: DrawKinds,
) {
    let mut row = ABSOLUTE_POS;
    while row < layer.rows {
        let of = of_row(&layer.relations, u32::cast_from(row));
        let node = destination(layer, of, u32::cast_from(row));
        let (first, degree) = entries_of(&layer.relations, of, row_ptr, node, kinds);
        let start = usize::cast_from(starts[row]);
        let mut count = starts[row + 1] - starts[row];
        if kinds.planes {
            count = select(word(&layer.relations, of, relation::BY_PLANE) > 0u32, 0u32, count);
        }
        let latest = takes_latest(&layer.relations, of, kinds);
        let by_chance = kinds.replace && !latest && word(&layer.relations, of, relation::FANOUT) > 0u32;
        let (row_high, row_low) =
            hash(word(&layer.relations, of, relation::KEY_HIGH), word(&layer.relations, of, relation::KEY_LOW), node);
        let mut at = 0u32;
        while at < count {
            let in_order = latest || count == degree && !by_chance;
            if !in_order {
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
                    let other = out.edges[start + usize::cast_from(to) - 1];
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
                    out.edges[start + usize::cast_from(from)] = out.edges[start + usize::cast_from(from) - 1];
                    from -= 1u32;
                }
                out.edges[start + usize::cast_from(to)] = drawn + first;
            } else {
                // The last ones, which may be all.
                out.edges[start + usize::cast_from(at)] = first + degree - count + at;
            }
            out.owners[start + usize::cast_from(at)] = u32::cast_from(row);
            at += 1u32;
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Looks up the source of every entry, numbered among all nodes, and asks for a place for it. Where some entries are
/// left out (`drops`), it says which are kept instead: `flags` has one more for what lies behind.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn source_kernel(
    layer: &Layer,
    col_idx: &WordsBehind,
    entries: &DrawnEntries,
    out: &mut Sources,
    len: usize,
    #[comptime] drops: bool,
) {
    let total = usize::cast_from(entries.starts[layer.rows]);
    let mut entry = ABSOLUTE_POS;
    while entry <= len {
        let mut flag = 0u32;
        if entry < total {
            let of = of_entry(&layer.relations, &entries.starts, u32::cast_from(entry));
            let at = usize::cast_from(word(&layer.relations, of, relation::COL_IDX))
                + usize::cast_from(entries.edges[entry]);
            let source = col_idx.words[at + col_idx.delta];
            let global = word(&layer.relations, of, relation::SRC_BASE) + source;
            out.cols[entry] = global;
            if drops {
                flag = 1u32;
                let threshold = word(&layer.relations, of, relation::DROP_THRESHOLD);
                // No threshold stands for a relation that keeps all.
                if threshold > 0u32 {
                    let row = destination(layer, of, entries.owners[entry])
                        + word(&layer.relations, of, relation::DROP_ROW_BASE);
                    let col = source + word(&layer.relations, of, relation::DROP_COL_BASE);
                    let hashed = mix_cube(
                        row ^ word(&layer.relations, of, relation::DROP_KEY0),
                        col ^ word(&layer.relations, of, relation::DROP_KEY1),
                    );
                    flag = select(hashed < threshold, 1u32, 0u32);
                }
            } else {
                // A place that is given already is below all that ask.
                out.places[usize::cast_from(global)].fetch_min(ASKED.runtime() + u32::cast_from(entry));
            }
        }
        if drops {
            out.flags[entry] = flag;
        }
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Moves the entries that are kept together.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn keep_kernel(entries: &RankedEntries, kept: &mut KeptEntries, len: usize) {
    let mut entry = ABSOLUTE_POS;
    while entry < len {
        let rank = entries.ranks[entry];
        if entries.ranks[entry + 1] > rank {
            let to = usize::cast_from(rank);
            kept.edges[to] = entries.edges[entry];
            kept.cols[to] = entries.cols[entry];
            kept.owners[to] = entries.owners[entry];
        }
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Where the rows begin among the entries that are kept.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn start_kernel(inputs: &RankedRows, kept_starts: &mut Array<u32>, rows: usize) {
    let mut row = ABSOLUTE_POS;
    while row <= rows {
        let at = usize::cast_from(inputs.starts[row]);
        kept_starts[row] = inputs.ranks[at];
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Asks for places for the sources of all entries.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn ask_kernel(columns: &RowColumns, places: &mut Array<Atomic<u32>>) {
    let total = usize::cast_from(columns.starts[columns.rows]);
    let mut entry = ABSOLUTE_POS;
    while entry < total {
        places[usize::cast_from(columns.cols[entry])].fetch_min(ASKED.runtime() + u32::cast_from(entry));
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Marks the entries that are the first to ask for their source.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn first_kernel(inputs: &AskedColumns, flags: &mut Array<u32>, len: usize) {
    let total = usize::cast_from(inputs.columns.starts[inputs.columns.rows]);
    let mut entry = ABSOLUTE_POS;
    while entry <= len {
        let mut flag = 0u32;
        if entry < total {
            let asked = ASKED.runtime() + u32::cast_from(entry);
            flag = select(inputs.places[usize::cast_from(inputs.columns.cols[entry])] == asked, 1u32, 0u32);
        }
        flags[entry] = flag;
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Gives the new sources their places behind the nodes of their type, and lists them.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn list_kernel(relations: &Relations, inputs: &NewSources, out: &mut ListedNodes, len: usize) {
    let mut entry = ABSOLUTE_POS;
    while entry < len {
        let rank = inputs.ranks[entry];
        if inputs.ranks[entry + 1] > rank {
            let of = of_entry(relations, &inputs.starts, u32::cast_from(entry));
            let kind = word(relations, of, relation::SRC_TYPE);
            let first = inputs.starts[usize::cast_from(word(relations, of, relation::FIRST_ROW))];
            let mut place = word(relations, of, relation::SRC_KNOWN) + rank - inputs.ranks[usize::cast_from(first)];
            // Behind those that relations before this one found.
            let mut other = 0u32.runtime();
            while other < of {
                if word(relations, other, relation::SRC_TYPE) == kind {
                    let begin = inputs.starts[usize::cast_from(word(relations, other, relation::FIRST_ROW))];
                    let end = end_of(relations, &inputs.starts, other);
                    place += inputs.ranks[usize::cast_from(end)] - inputs.ranks[usize::cast_from(begin)];
                }
                other += 1u32;
            }
            let global = inputs.cols[entry];
            out.places[usize::cast_from(global)] = place;
            let at = word(relations, of, relation::SRC_LIST) + place;
            out.nodes[usize::cast_from(at)] = global - word(relations, of, relation::SRC_BASE);
        }
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Replaces sources by their places, and counts: for every relation the nodes that it found and its entries.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn name_kernel(relations: &Relations, inputs: &PlacedSources, out: &mut NamedColumns, rows: usize) {
    let total = usize::cast_from(inputs.starts[rows]);
    let mut entry = ABSOLUTE_POS;
    if entry < usize::cast_from(relations.count) {
        let of = u32::cast_from(entry);
        let begin = inputs.starts[usize::cast_from(word(relations, of, relation::FIRST_ROW))];
        let end = end_of(relations, &inputs.starts, of);
        out.counts[2 * entry] = inputs.ranks[usize::cast_from(end)] - inputs.ranks[usize::cast_from(begin)];
        out.counts[2 * entry + 1] = end - begin;
    }
    while entry < total {
        let global = usize::cast_from(out.cols[entry]);
        out.cols[entry] = inputs.places[global];
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// The type of a row among the rows of all types; rows of a type begin at a multiple, so there are some that stand for
/// nothing.
#[cube]
pub(crate) fn type_of(spans: &SpanTable, row: u32) -> u32 {
    let mut found = 0u32;
    let mut next = 1u32.runtime();
    while next < spans.types {
        if span_word(spans, next, span::FIRST) <= row {
            found = next;
        }
        next += 1u32;
    }
    found
}

/// A word of a type.
#[cube]
pub(crate) fn span_word(spans: &SpanTable, of: u32, #[comptime] field: u32) -> u32 {
    spans.table[usize::cast_from(of * comptime!(span::WORDS) + field)]
}

/// Lists the seeds and gives them the first places.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn seed_kernel(spans: &SpanTable, seeds: &Array<u32>, out: &mut ListedNodes) {
    let mut row = ABSOLUTE_POS;
    while row < spans.rows {
        let of = type_of(spans, u32::cast_from(row));
        let place = u32::cast_from(row) - span_word(spans, of, span::FIRST);
        if place < span_word(spans, of, span::ROWS) {
            let node = seeds[row];
            let (at, global) = (span_word(spans, of, span::LIST) + place, span_word(spans, of, span::BASE) + node);
            out.nodes[usize::cast_from(at)] = node;
            out.places[usize::cast_from(global)] = place;
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Takes the places of all nodes of a batch away.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn forget_kernel(batch: &BatchNodes, places: &mut Array<u32>) {
    let mut row = ABSOLUTE_POS;
    while row < batch.spans.rows {
        let of = type_of(&batch.spans, u32::cast_from(row));
        let place = u32::cast_from(row) - span_word(&batch.spans, of, span::FIRST);
        if place < span_word(&batch.spans, of, span::ROWS) {
            let node = batch.nodes[usize::cast_from(span_word(&batch.spans, of, span::LIST) + place)];
            let global = span_word(&batch.spans, of, span::BASE) + node;
            places[usize::cast_from(global)] = NOWHERE.runtime();
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// How many entries lead from every column: columns of a relation stand behind those of the ones before.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn column_count_kernel(relations: &Relations, columns: &RowColumns, counts: &mut Array<Atomic<u32>>) {
    let total = usize::cast_from(columns.starts[columns.rows]);
    let mut entry = ABSOLUTE_POS;
    while entry < total {
        let of = of_entry(relations, &columns.starts, u32::cast_from(entry));
        let col = word(relations, of, relation::FIRST_COL) + columns.cols[entry];
        counts[usize::cast_from(col)].fetch_add(1u32);
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Puts every entry somewhere among those of its column.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn scatter_kernel(
    relations: &Relations,
    columns: &RowColumns,
    col_starts: &Array<u32>,
    out: &mut ScatteredEntries,
) {
    let total = usize::cast_from(columns.starts[columns.rows]);
    let mut entry = ABSOLUTE_POS;
    while entry < total {
        let of = of_entry(relations, &columns.starts, u32::cast_from(entry));
        let col = usize::cast_from(word(relations, of, relation::FIRST_COL) + columns.cols[entry]);
        let place = col_starts[col] + out.taken[col].fetch_add(1u32);
        out.entries[usize::cast_from(place)] = u32::cast_from(entry);
        entry += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// The destinations of the entries of every column, in ascending order: as many of the column's entries stand before an
/// entry as are below it.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn order_kernel(
    relations: &Relations,
    columns: &RowColumns,
    of_columns: &ColumnEntries,
    destinations: &mut Array<u32>,
) {
    let total = usize::cast_from(columns.starts[columns.rows]);
    let mut k = ABSOLUTE_POS;
    while k < total {
        let entry = of_columns.entries[k];
        let of = of_entry(relations, &columns.starts, entry);
        let col = usize::cast_from(word(relations, of, relation::FIRST_COL) + columns.cols[usize::cast_from(entry)]);
        let (mut other, end) = (usize::cast_from(of_columns.starts[col]), usize::cast_from(of_columns.starts[col + 1]));
        let mut place = other;
        while other < end {
            place += select(of_columns.entries[other] < entry, 1usize, 0usize);
            other += 1;
        }
        destinations[place] = of_columns.owners[usize::cast_from(entry)] - word(relations, of, relation::FIRST_ROW);
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Lists the rows of one relation with more than `longest` entries behind the entries, and counts them.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn long_kernel(rows: &RelationRows, out: &mut LongRows, at: &LongPlace) {
    let mut row = ABSOLUTE_POS;
    while row < rows.count {
        if rows.starts[rows.first + row + 1] - rows.starts[rows.first + row] > at.longest {
            let place = out.counts[at.count].fetch_add(1u32);
            out.list[at.behind + usize::cast_from(place)] = u32::cast_from(row);
        }
        row += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Copies stretches of arrays to the words from `start` to `end`. A stretch has four words: where it goes, how long it
/// is, where it comes from and how (see [`super::pack`]).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn pack_kernel(from: &PackedFrom, out: &mut Array<u32>, words: &WordRange) {
    let mut at = words.start + ABSOLUTE_POS;
    while at < words.end {
        // The last stretch that begins at or before this word.
        let (mut low, mut high) = (0u32.runtime(), from.count);
        while high - low > 1u32 {
            let middle = (low + high) / 2u32;
            let begins = from.stretches[usize::cast_from(middle * 4u32)] <= u32::cast_from(at);
            low = select(begins, middle, low);
            high = select(begins, high, middle);
        }
        let stretch = usize::cast_from(low * 4u32);
        let inside = at - usize::cast_from(from.stretches[stretch]);
        if inside < usize::cast_from(from.stretches[stretch + 1]) {
            let first = usize::cast_from(from.stretches[stretch + 2]);
            let way = from.stretches[stretch + 3];
            if way == 0u32 {
                out[at] = from.a[first + inside] - from.a[first];
            } else if way == 1u32 {
                out[at] = from.b[first + inside];
            } else if way == 2u32 {
                out[at] = from.c[first + inside] - from.c[first];
            } else {
                out[at] = from.d[first + inside];
            }
        }
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Copies the values of listed entries to `out` from word `start` on. A thread per value: those of an entry lie side by
/// side, so that threads beside each other read from one line of memory.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn value_kernel(
    entries: &ListedEntries,
    values: &WordsBehind,
    out: &mut Array<u32>,
    start: usize,
    width: usize,
) {
    let mut at = ABSOLUTE_POS;
    while at < entries.len * width {
        let entry = usize::cast_from(entries.edges[entries.first + at / width]);
        out[start + at] = values.words[values.delta + entry * width + at % width];
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}
