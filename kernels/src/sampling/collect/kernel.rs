//! A thread per row finds out where it is, a thread per vector copies.

use cubecl::prelude::*;

use super::COLD;
use crate::runtime::args::{Extent, Matrix, launch_args};
use crate::sampling::sample::NOWHERE;
use crate::sampling::sample::args::BatchNodes;
use crate::sampling::sample::kernel::{span_word, type_of};
use crate::sampling::sample::table::span;

/// Stands for a row that is not there.
pub(crate) const NOTHING: u32 = u32::MAX;

launch_args! {
    /// The place of every node in the batch before, and its row of the cache.
    RowPlaces, RowPlacesArgs {
        before: Array<u32>,
        cached: Array<u32>,
    }
}

launch_args! {
    /// Where every row is, and how many are in the batch before and in the cache.
    Located, LocatedArgs {
        from: Array<u32>,
        tally: Array<Atomic<u32>>,
    }
}

launch_args! {
    /// The first row of the cache, and the first of all features.
    RowBounds, RowBoundsArgs {
        first_cached: u32,
        first_source: u32,
    }
}

launch_args! {
    /// Where every row is, the matrices that it can be in, and how many vectors behind its array the last of them lies.
    CollectedFrom, CollectedFromArgs<F: Float, N: Size> {
        from: Array<u32>,
        before: Matrix<F, N>,
        cached: Matrix<F, N>,
        source: Matrix<F, N>,
        delta: usize,
    }
}

/// Where every row is: rows of the batch before come first in the numbering, then those of the cache from
/// `first_cached` on, then all features from `first_source` on. A plane counts its rows together.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn locate_kernel(
    batch: &BatchNodes,
    places: &RowPlaces,
    out: &mut Located,
    bounds: &RowBounds,
    #[comptime] window: bool,
    #[comptime] cache: bool,
) {
    let step = CUBE_COUNT * CUBE_DIM_Y as usize * CUBE_DIM_X as usize;
    let mut first = (CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize) * CUBE_DIM_X as usize;
    while first < batch.spans.rows {
        let row = first + UNIT_POS_X as usize;
        let mut found = NOTHING.runtime();
        let (mut is_shared, mut is_cached) = (0u32.runtime(), 0u32.runtime());
        if row < batch.spans.rows {
            let of = type_of(&batch.spans, u32::cast_from(row));
            let place = u32::cast_from(row) - span_word(&batch.spans, of, span::FIRST);
            if place < span_word(&batch.spans, of, span::ROWS) {
                let node = batch.nodes[usize::cast_from(span_word(&batch.spans, of, span::LIST) + place)];
                let global = span_word(&batch.spans, of, span::BASE) + node;
                found = bounds.first_source + global;
                if cache {
                    let at = places.cached[usize::cast_from(global)];
                    if at != COLD {
                        found = bounds.first_cached + at;
                        is_cached = 1u32;
                    }
                }
                if window {
                    let at = places.before[usize::cast_from(global)];
                    if at != NOWHERE {
                        found = span_word(&batch.spans, of, span::BEFORE) + at;
                        is_shared = 1u32;
                        is_cached = 0u32;
                    }
                }
            }
            out.from[row] = found;
        }
        let (shared, of_cache) = (plane_sum(is_shared), plane_sum(is_cached));
        if UNIT_POS_X == 0 {
            out.tally[0].fetch_add(shared);
            out.tally[1].fetch_add(of_cache);
        }
        first += step;
    }
}

/// Copies the rows; a thread per vector, so that every one has a load under way: host memory is far.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn collect_kernel<F: Float, N: Size>(
    of: &CollectedFrom<F, N>,
    out: &mut Matrix<F, N>,
    extent: &Extent,
    bounds: &RowBounds,
    #[define(F)] _type: StorageType,
) {
    let mut at = ABSOLUTE_POS;
    while at < extent.rows * extent.vectors {
        let (row, c) = (at / extent.vectors, at % extent.vectors);
        let found = of.from[row];
        let to = row * out.stride + c;
        if found < bounds.first_cached {
            out.values[to] = of.before.values[usize::cast_from(found) * of.before.stride + c];
        } else if found < bounds.first_source {
            out.values[to] = of.cached.values[usize::cast_from(found - bounds.first_cached) * of.cached.stride + c];
        } else if found != NOTHING {
            out.values[to] =
                of.source.values[of.delta + usize::cast_from(found - bounds.first_source) * of.source.stride + c];
        } else {
            // Room between the types, which is copied with the rest.
            out.values[to] = Vector::<F, N>::empty().fill(F::new(0.0f32));
        }
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}
