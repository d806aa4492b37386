//! Histograms: a cube per stretch of rows and tile of four features, in shared memory; wide and sparse features in
//! global memory.

use cubecl::prelude::*;

use super::WORDS;
use super::bins::{NARROW_BINS, TILE_FEATURES, TILE_WORDS};
use crate::runtime::args::launch_args;
use crate::runtime::prims::Reduction;
use crate::runtime::prims::kernel::{THREADS, cube_reduce};

/// Rows that a cube may add up in words of 32 bits: `2^16` lower halves of less than `2^16`.
pub(crate) const MAX_CUBE_ROWS: usize = 1 << 16;

/// Bins of a tile.
const TILE_BINS: usize = NARROW_BINS * TILE_FEATURES;

// A thread clears and adds up the bin of its number in every feature.
const _: () = assert!(THREADS == NARROW_BINS);

/// Words of a bin in shared memory: lower and upper half of gradient and hessian, count.
const SHARED_WORDS: usize = 5;

launch_args! {
    /// The gradients of all rows, and the rows `start..end` of a list.
    RowGradients, RowGradientsArgs {
        gradients: Array<i32>,
        rows: Array<i32>,
        start: usize,
        end: usize,
    }
}

launch_args! {
    /// Bins of a byte each, some features to a word.
    DenseBins, DenseBinsArgs {
        words: Array<u32>,
        tiles: Array<u32>,
        num_rows: usize,
    }
}

launch_args! {
    /// Bins of a word each.
    WideBins, WideBinsArgs {
        bins: Array<i32>,
        features: Array<i32>,
        num_rows: usize,
    }
}

launch_args! {
    /// The stored bins of every row.
    SparseBins, SparseBinsArgs {
        row_ptr: Array<i32>,
        entries: Array<i32>,
    }
}

launch_args! {
    /// Where the bins of a feature begin, which of them is not stored, and the sums over all rows.
    LeftOut, LeftOutArgs {
        offsets: Array<i32>,
        left_out: Array<i32>,
        total: Array<i64>,
        num_features: usize,
    }
}

/// `sums[at] += value`, whatever the other threads do. Without 64-bit additions, every thread that makes the lower word
/// wrap around carries one into the upper word.
#[cube]
fn add_to_sum<A: Int>(sums: &mut Array<Atomic<A>>, at: usize, value: i64, #[comptime] wide: bool) {
    if comptime!(wide) {
        sums[at].fetch_add(A::cast_from(value));
    } else {
        let low = u32::cast_from(value & 0xffff_ffffi64);
        let high = u32::cast_from((value >> 32i64) & 0xffff_ffffi64);
        let before = u32::cast_from(sums[2 * at].fetch_add(A::cast_from(low)));
        let after = before + low;
        let carry = select(after < before, 1u32, 0u32);
        sums[2 * at + 1].fetch_add(A::cast_from(high + carry));
    }
}

#[cube]
fn add_row<A: Int>(sums: &mut Array<Atomic<A>>, bin: usize, of: &RowGradients, row: usize, #[comptime] wide: bool) {
    add_to_sum::<A>(sums, WORDS * bin, i64::cast_from(of.gradients[2 * row]), wide);
    add_to_sum::<A>(sums, WORDS * bin + 1, i64::cast_from(of.gradients[2 * row + 1]), wide);
    add_to_sum::<A>(sums, WORDS * bin + 2, i64::cast_from(1i32), wide);
}

/// The number whose lower halves add up to `low` and whose upper halves to `high`.
#[cube]
fn joined(low: u32, high: u32) -> i64 {
    i64::cast_from(low) + i64::cast_from(i32::reinterpret(high)) * 65536i64
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn dense_kernel<A: Int>(
    bins: &DenseBins,
    of: &RowGradients,
    sums: &mut Array<Atomic<A>>,
    cube_rows: usize,
    #[comptime] wide: bool,
    #[define(A)] _type: StorageType,
) {
    let shared = SharedMemory::<Atomic<u32>>::new(comptime!(SHARED_WORDS * TILE_BINS));
    let unit = UNIT_POS as usize;
    // Not unrolled: CubeCL keeps only the first of several stores to atomics.
    let mut k = unit;
    while k < comptime!(SHARED_WORDS * TILE_BINS) {
        shared[k].store(0u32);
        k += THREADS;
    }
    sync_cube();

    let tile = CUBE_POS_Y as usize;
    let first = of.start + CUBE_POS_X as usize * cube_rows;
    let last = select(first + cube_rows < of.end, first + cube_rows, of.end);
    // All threads make as many rounds: where they left the loop at different times, Mesa's software driver (22.3) lost
    // the sums of all features but the first.
    let mut round = first;
    while round < last {
        let k = round + unit;
        if k < last {
            let row = usize::cast_from(of.rows[k]);
            let grad = of.gradients[2 * row];
            let hess = of.gradients[2 * row + 1];
            let word = bins.words[tile * bins.num_rows + row];
            #[unroll]
            for slot in 0..TILE_FEATURES {
                let bin = (word >> comptime!(8 * slot as u32)) & 255u32;
                if bin != bins.tiles[tile * TILE_WORDS + slot] {
                    let at = comptime!(slot * NARROW_BINS) + usize::cast_from(bin);
                    shared[at].fetch_add(u32::reinterpret(grad & 0xffffi32));
                    shared[at + TILE_BINS].fetch_add(u32::reinterpret(grad >> 16i32));
                    shared[at + 2 * TILE_BINS].fetch_add(u32::reinterpret(hess & 0xffffi32));
                    shared[at + 3 * TILE_BINS].fetch_add(u32::reinterpret(hess >> 16i32));
                    shared[at + 4 * TILE_BINS].fetch_add(1u32);
                }
            }
        }
        round += THREADS;
    }
    sync_cube();

    #[unroll]
    for slot in 0..TILE_FEATURES {
        let k = unit + comptime!(slot * NARROW_BINS);
        let count = shared[k + 4 * TILE_BINS].load();
        if count > 0u32 {
            let offset = usize::cast_from(bins.tiles[tile * TILE_WORDS + TILE_FEATURES + slot]);
            let at = WORDS * (offset + unit);
            let grad = joined(shared[k].load(), shared[k + TILE_BINS].load());
            let hess = joined(shared[k + 2 * TILE_BINS].load(), shared[k + 3 * TILE_BINS].load());
            add_to_sum::<A>(sums, at, grad, wide);
            add_to_sum::<A>(sums, at + 1, hess, wide);
            add_to_sum::<A>(sums, at + 2, i64::cast_from(count), wide);
        }
    }
}

/// Features of more bins than shared memory holds: a thread per row of the list, a row of cubes per feature.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn wide_kernel<A: Int>(
    bins: &WideBins,
    of: &RowGradients,
    sums: &mut Array<Atomic<A>>,
    #[comptime] wide: bool,
    #[define(A)] _type: StorageType,
) {
    let feature = CUBE_POS_Y as usize;
    let offset = bins.features[2 * feature];
    let left_out = bins.features[2 * feature + 1];
    let mut k = of.start + CUBE_POS_X as usize * CUBE_DIM as usize + UNIT_POS as usize;
    while k < of.end {
        let row = usize::cast_from(of.rows[k]);
        let bin = bins.bins[feature * bins.num_rows + row];
        if bin != left_out {
            add_row::<A>(sums, usize::cast_from(offset + bin), of, row, wide);
        }
        k += CUBE_COUNT_X as usize * CUBE_DIM as usize;
    }
}

/// A line of threads per row of the list.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn sparse_kernel<A: Int>(
    bins: &SparseBins,
    of: &RowGradients,
    sums: &mut Array<Atomic<A>>,
    #[comptime] wide: bool,
    #[define(A)] _type: StorageType,
) {
    let mut k = of.start + CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while k < of.end {
        let row = usize::cast_from(of.rows[k]);
        let last = usize::cast_from(bins.row_ptr[row + 1]);
        let mut entry = usize::cast_from(bins.row_ptr[row]) + UNIT_POS_X as usize;
        while entry < last {
            add_row::<A>(sums, usize::cast_from(bins.entries[entry]), of, row, wide);
            entry += CUBE_DIM_X as usize;
        }
        k += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// The sum over a stretch of the list.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn total_kernel<A: Int>(
    of: &RowGradients,
    sums: &mut Array<Atomic<A>>,
    #[comptime] wide: bool,
    #[define(A)] _type: StorageType,
) {
    let mut shared = SharedMemory::<i64>::new(THREADS);
    let mut grad = i64::cast_from(0i32);
    let mut hess = i64::cast_from(0i32);
    let mut count = i64::cast_from(0i32);
    let mut k = of.start + ABSOLUTE_POS;
    while k < of.end {
        let row = usize::cast_from(of.rows[k]);
        grad += i64::cast_from(of.gradients[2 * row]);
        hess += i64::cast_from(of.gradients[2 * row + 1]);
        count += i64::cast_from(1i32);
        k += CUBE_COUNT * THREADS;
    }
    let grads = cube_reduce::<i64>(grad, &mut shared, Reduction::Sum);
    let hessians = cube_reduce::<i64>(hess, &mut shared, Reduction::Sum);
    let counts = cube_reduce::<i64>(count, &mut shared, Reduction::Sum);
    if UNIT_POS == 0 {
        add_to_sum::<A>(sums, 0usize, grads, wide);
        add_to_sum::<A>(sums, 1usize, hessians, wide);
        add_to_sum::<A>(sums, 2usize, counts, wide);
    }
}

/// A cube per feature.
#[cube(launch_unchecked)]
pub(crate) fn reconstruct_kernel(sums: &mut Array<i64>, bins: &LeftOut) {
    let mut shared = SharedMemory::<i64>::new(THREADS);
    let mut feature = CUBE_POS;
    while feature < bins.num_features {
        let bin = bins.left_out[feature];
        if bin >= 0i32 {
            let first = usize::cast_from(bins.offsets[feature]);
            let last = usize::cast_from(bins.offsets[feature + 1]);
            let skipped = first + usize::cast_from(bin);
            #[unroll]
            for word in 0..WORDS {
                let mut others = i64::cast_from(0i32);
                let mut k = first + UNIT_POS as usize;
                while k < last {
                    if k != skipped {
                        others += sums[WORDS * k + word];
                    }
                    k += THREADS;
                }
                let all = cube_reduce::<i64>(others, &mut shared, Reduction::Sum);
                if UNIT_POS == 0 {
                    sums[WORDS * skipped + word] = bins.total[word] - all;
                }
            }
        }
        feature += CUBE_COUNT;
    }
}

#[cube(launch_unchecked)]
pub(crate) fn subtract_kernel(sums: &mut Array<i64>, child: &Array<i64>, len: usize) {
    let mut k = ABSOLUTE_POS;
    while k < len {
        sums[k] -= child[k];
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
