//! Sums over the threads of a cube, and over vectors by tiles of a few elements per thread.

use cubecl::prelude::*;

use super::{Prefix, Reduction};
use crate::runtime::args::launch_args;

/// Threads of a cube, a power of two.
pub(crate) const THREADS: usize = 256;

/// Elements of one thread.
const ITEMS: usize = 8;

/// Elements of one cube.
pub(crate) const TILE: usize = THREADS * ITEMS;

/// What stands for an element in a prefix sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    /// Itself.
    Value,
    /// One where it is not zero.
    NonZero,
}

/// False for a NaN alone; compilers take a number that differs from itself for none.
#[cube]
fn is_number<T: Numeric>(x: T) -> bool {
    x <= T::max_value() || x > T::max_value()
}

#[cube]
fn merged<T: Numeric>(a: T, b: T, #[comptime] by: Reduction) -> T {
    match comptime!(by) {
        Reduction::Sum => a + b,
        Reduction::Max => select(b > a || !is_number::<T>(a), b, a),
        Reduction::Min => select(b < a || !is_number::<T>(a), b, a),
    }
}

/// Every thread's value and those of all threads before it. Threads that follow up with another use of `shared` need no
/// `sync_cube` of their own.
#[cube]
pub(crate) fn cube_prefix_sum<T: Numeric>(value: T, shared: &mut SharedMemory<T>) -> T {
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut sum = value;
    let mut step = 1usize.runtime();
    while step < THREADS {
        let mut before = T::from_int(0);
        if unit >= step {
            before = shared[unit - step];
        }
        sum += before;
        sync_cube();
        shared[unit] = sum;
        sync_cube();
        step *= 2;
    }
    sum
}

/// What a reduction makes of the values of all threads, for every thread.
#[cube]
pub(crate) fn cube_reduce<T: Numeric>(value: T, shared: &mut SharedMemory<T>, #[comptime] by: Reduction) -> T {
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut half = THREADS.runtime() / 2;
    while half > 0 {
        if unit < half {
            shared[unit] = merged::<T>(shared[unit], shared[unit + half], by);
        }
        sync_cube();
        half /= 2;
    }
    let all = shared[0];
    sync_cube();
    all
}

/// One element per cube.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_kernel<T: Numeric>(
    x: &Array<T>,
    out: &mut Array<T>,
    len: usize,
    #[comptime] by: Reduction,
    #[define(T)] _type: StorageType,
) {
    let mut shared = SharedMemory::<T>::new(THREADS);
    let mut k = ABSOLUTE_POS;
    // Taking an element twice changes no extreme.
    let mut value = x[select(k < len, k, 0usize)];
    if comptime!(by == Reduction::Sum) {
        value = T::from_int(0);
    }
    while k < len {
        value = merged::<T>(value, x[k], by);
        k += CUBE_COUNT * THREADS;
    }
    let all = cube_reduce::<T>(value, &mut shared, by);
    if UNIT_POS == 0 {
        out[CUBE_POS] = all;
    }
}

#[cube]
fn counted<T: Numeric>(x: &Array<T>, k: usize, len: usize, #[comptime] what: Counted) -> T {
    let mut value = T::from_int(0);
    if k < len {
        value = x[k];
        if comptime!(what == Counted::NonZero) {
            value = select(value != T::from_int(0), T::from_int(1), T::from_int(0));
        }
    }
    value
}

#[cube]
fn sum_of_thread<T: Numeric>(x: &Array<T>, first: usize, len: usize, #[comptime] what: Counted) -> T {
    let mut sum = T::from_int(0);
    for k in 0..ITEMS {
        sum += counted::<T>(x, first + k, len, what);
    }
    sum
}

launch_args! {
    /// How many elements there are, and how many tiles of them.
    Tiles, TilesArgs {
        len: usize,
        count: usize,
    }
}

/// The sum of every tile.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn tile_sums_kernel<T: Numeric>(
    x: &Array<T>,
    sums: &mut Array<T>,
    tiles: &Tiles,
    #[comptime] what: Counted,
    #[define(T)] _type: StorageType,
) {
    let mut shared = SharedMemory::<T>::new(THREADS);
    let mut tile = CUBE_POS;
    while tile < tiles.count {
        let own = sum_of_thread::<T>(x, tile * TILE + UNIT_POS as usize * ITEMS, tiles.len, what);
        let all = cube_reduce::<T>(own, &mut shared, Reduction::Sum);
        if UNIT_POS == 0 {
            sums[tile] = all;
        }
        tile += CUBE_COUNT;
    }
}

launch_args! {
    /// Elements, and the sums before every tile; these are not read where there is one.
    PrefixInputs, PrefixInputsArgs<T: Numeric> {
        x: Array<T>,
        before: Array<T>,
    }
}

/// Prefix sums; `before` holds the sum of all tiles before each, where there are several.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn prefix_sum_kernel<T: Numeric>(
    inputs: &PrefixInputs<T>,
    out: &mut Array<T>,
    tiles: &Tiles,
    #[comptime] what: Counted,
    #[comptime] prefix: Prefix,
    #[define(T)] _type: StorageType,
) {
    let mut shared = SharedMemory::<T>::new(THREADS);
    let mut tile = CUBE_POS;
    while tile < tiles.count {
        let first = tile * TILE + UNIT_POS as usize * ITEMS;
        let own = sum_of_thread::<T>(&inputs.x, first, tiles.len, what);
        let mut sum = cube_prefix_sum::<T>(own, &mut shared) - own;
        if tiles.count > 1 {
            sum += inputs.before[tile];
        }
        for k in 0..ITEMS {
            let at = first + k;
            let with = sum + counted::<T>(&inputs.x, at, tiles.len, what);
            if at < tiles.len {
                if comptime!(prefix == Prefix::Inclusive) {
                    out[at] = with;
                } else {
                    out[at] = sum;
                }
            }
            sum = with;
        }
        tile += CUBE_COUNT;
    }
}

launch_args! {
    /// Values, their flags, and how many flags are set before each.
    Flagged, FlaggedArgs {
        values: Array<u32>,
        flags: Array<i32>,
        firsts: Array<i32>,
    }
}

launch_args! {
    /// Values with a flag before those without, and how many have one.
    Parted, PartedArgs {
        values: Array<u32>,
        count: Array<i32>,
    }
}

/// Values to the front where their flag is not zero, to the back otherwise; `firsts` are the exclusive sums of the
/// flags.
#[cube(launch_unchecked)]
pub(crate) fn partition_kernel(inputs: &Flagged, out: &mut Parted, len: usize) {
    let mut total = inputs.firsts[len - 1];
    if inputs.flags[len - 1] != 0i32 {
        total += 1i32;
    }
    if ABSOLUTE_POS == 0 {
        out.count[0] = total;
    }
    let mut k = ABSOLUTE_POS;
    while k < len {
        let first = inputs.firsts[k];
        let behind = total + i32::cast_from(k) - first;
        let at = select(inputs.flags[k] != 0i32, first, behind);
        out.values[usize::cast_from(at)] = inputs.values[k];
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
