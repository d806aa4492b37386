//! A thread per row finds out where it is, a thread per vector copies.

use cubecl::prelude::*;

use super::COLD;
use crate::sampling::sample::NOWHERE;
use crate::sampling::sample::kernel::{span_word, type_of};
use crate::sampling::sample::table::span;

/// Stands for a row that is not there.
pub(crate) const NOTHING: u32 = u32::MAX;

/// Where every row is: rows of the batch before come first in the numbering, then those of the cache from `first_cached` on, then
/// all features from `first_source` on. A plane counts its rows together.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn locate_kernel(
    spans: &Array<u32>,
    nodes: &Array<u32>,
    before: &Array<u32>,
    cached: &Array<u32>,
    from: &mut Array<u32>,
    tally: &mut Array<Atomic<u32>>,
    rows: usize,
    types: u32,
    first_cached: u32,
    first_source: u32,
    #[comptime] window: bool,
    #[comptime] cache: bool,
) {
    let step = CUBE_COUNT * CUBE_DIM_Y as usize * CUBE_DIM_X as usize;
    let mut first = (CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize) * CUBE_DIM_X as usize;
    while first < rows {
        let row = first + UNIT_POS_X as usize;
        let mut found = NOTHING.runtime();
        let (mut is_shared, mut is_cached) = (0u32.runtime(), 0u32.runtime());
        if row < rows {
            let of = type_of(spans, u32::cast_from(row), types);
            let place = u32::cast_from(row) - span_word(spans, of, span::FIRST);
            if place < span_word(spans, of, span::ROWS) {
                let node = nodes[usize::cast_from(span_word(spans, of, span::LIST) + place)];
                let global = span_word(spans, of, span::BASE) + node;
                found = first_source + global;
                if cache {
                    let at = cached[usize::cast_from(global)];
                    if at != COLD {
                        found = first_cached + at;
                        is_cached = 1u32;
                    }
                }
                if window {
                    let at = before[usize::cast_from(global)];
                    if at != NOWHERE {
                        found = span_word(spans, of, span::BEFORE) + at;
                        is_shared = 1u32;
                        is_cached = 0u32;
                    }
                }
            }
            from[row] = found;
        }
        let (shared, of_cache) = (plane_sum(is_shared), plane_sum(is_cached));
        if UNIT_POS_X == 0 {
            tally[0].fetch_add(shared);
            tally[1].fetch_add(of_cache);
        }
        first += step;
    }
}

/// Copies the rows; a thread per vector, so that every one has a load under way: host memory is far.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn collect_kernel<F: Float, N: Size>(
    from: &Array<u32>,
    before: &Array<Vector<F, N>>,
    cached: &Array<Vector<F, N>>,
    source: &Array<Vector<F, N>>,
    out: &mut Array<Vector<F, N>>,
    delta: usize,
    before_stride: usize,
    cached_stride: usize,
    source_stride: usize,
    out_stride: usize,
    vectors: usize,
    rows: usize,
    first_cached: u32,
    first_source: u32,
    #[define(F)] _type: StorageType,
) {
    let mut at = ABSOLUTE_POS;
    while at < rows * vectors {
        let (row, c) = (at / vectors, at % vectors);
        let found = from[row];
        let to = row * out_stride + c;
        if found < first_cached {
            out[to] = before[usize::cast_from(found) * before_stride + c];
        } else if found < first_source {
            out[to] = cached[usize::cast_from(found - first_cached) * cached_stride + c];
        } else if found != NOTHING {
            out[to] = source[delta + usize::cast_from(found - first_source) * source_stride + c];
        }
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}
