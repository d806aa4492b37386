//! Primitives over vectors on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::kernel::{
    Counted, FlaggedArgs, PartedArgs, PrefixInputsArgs, THREADS, TILE, TilesArgs, partition_kernel, prefix_sum_kernel,
    reduce_kernel, tile_sums_kernel,
};
use super::sort_kernel::{
    BLOCK, KeyOf, KeyedArgs, KeyedLaunch, LengthsArgs, RunsArgs, SORT_THREADS, StageArgs, keys_kernel,
    sort_block_kernel, sort_stage_kernel,
};
use super::{Prefix, PrimsBackend, Reduction};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{address, empty, flat};

/// Most cubes of a launch; they stride over the tiles.
const MAX_CUBES: usize = 1 << 15;

fn cubes(count: usize, threads: usize) -> (CubeCount, CubeDim) {
    (CubeCount::Static(count.clamp(1, MAX_CUBES) as u32, 1, 1), CubeDim::new_1d(threads as u32))
}

fn reduce<R: CubeRuntime>(x: CubeTensor<R>, by: Reduction) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let len = x.meta.shape()[0];
    let count = len.div_ceil(TILE).min(TILE);
    let out = empty(&x, [count], x.dtype);
    let (cube_count, dim) = cubes(count, THREADS);
    // SAFETY: the loop ends at the length of `x`, and every cube has its element of the result.
    unsafe {
        reduce_kernel::launch_unchecked::<R>(
            &out.client,
            cube_count,
            dim,
            address(&[&x]),
            array(&x),
            array(&out),
            len,
            by,
            x.dtype.into(),
        );
    }
    if count == 1 { out } else { reduce(out, by) }
}

/// Prefix sums of a contiguous vector that is not empty.
pub(crate) fn prefix_sum<R: CubeRuntime>(x: &CubeTensor<R>, what: Counted, prefix: Prefix) -> CubeTensor<R> {
    let len = x.meta.shape()[0];
    let tiles = len.div_ceil(TILE);
    let out = empty(x, [len], x.dtype);
    let (count, dim) = cubes(tiles, THREADS);
    // One tile has none before it; an argument that the kernel does not read still needs a buffer.
    let mut before = x.clone();
    if tiles > 1 {
        let sums = empty(x, [tiles], x.dtype);
        // SAFETY: the loops end at the number of elements and of tiles.
        unsafe {
            tile_sums_kernel::launch_unchecked::<R>(
                &out.client,
                count.clone(),
                dim,
                address(&[x]),
                array(x),
                array(&sums),
                TilesArgs { len, count: tiles }.launch(),
                what,
                x.dtype.into(),
            );
        }
        before = prefix_sum(&sums, Counted::Value, Prefix::Exclusive);
    }
    // SAFETY: as above.
    unsafe {
        prefix_sum_kernel::launch_unchecked::<R>(
            &out.client,
            count,
            dim,
            address(&[x]),
            PrefixInputsArgs { x: array(x), before: array(&before) }.launch(),
            array(&out),
            TilesArgs { len, count: tiles }.launch(),
            what,
            prefix,
            x.dtype.into(),
        );
    }
    out
}

fn keyed<K: Int, R: CubeRuntime>(keys: &CubeTensor<R>, order: &CubeTensor<R>) -> KeyedLaunch<K, R> {
    KeyedArgs { keys: array(keys), order: array(order) }.launch()
}

fn argsort<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let len = x.meta.shape()[0];
    let padded = len.next_power_of_two().max(BLOCK);
    let (key, of) = match x.dtype {
        DType::U32 => (DType::U32, KeyOf::Unsigned),
        DType::I32 => (DType::U32, KeyOf::Signed),
        DType::I64 => (DType::U64, KeyOf::Signed),
        _ => (DType::U32, KeyOf::Float),
    };
    let keys = empty(&x, [padded], key);
    let order = empty(&x, [padded], DType::I32);
    let client = &x.client;
    let (count, dim) = flat(padded);
    // SAFETY: the loop ends at the padded length of keys and positions.
    unsafe {
        keys_kernel::launch_unchecked::<R>(
            client,
            count,
            dim,
            array(&x),
            keyed(&keys, &order),
            LengthsArgs { len, padded }.launch(),
            of,
            key.size() * 8,
            [x.dtype.into(), key.into()],
        );
    }
    let in_blocks = |first_run: usize, last_run: usize| {
        let (count, dim) = cubes(padded / BLOCK, SORT_THREADS);
        // SAFETY: the padded length is a multiple of a block.
        unsafe {
            sort_block_kernel::launch_unchecked::<R>(
                client,
                count,
                dim,
                keyed(&keys, &order),
                RunsArgs { blocks: padded / BLOCK, first: first_run, last: last_run }.launch(),
                key.into(),
            );
        }
    };
    in_blocks(2, BLOCK);
    let mut run = 2 * BLOCK;
    while run <= padded {
        let mut distance = run / 2;
        while distance >= BLOCK {
            let (count, dim) = flat(padded / 2);
            // SAFETY: exchanges of a stage are disjoint and end at the padded length.
            unsafe {
                sort_stage_kernel::launch_unchecked::<R>(
                    client,
                    count,
                    dim,
                    keyed(&keys, &order),
                    StageArgs { pairs: padded / 2, run, distance }.launch(),
                    key.into(),
                );
            }
            distance /= 2;
        }
        in_blocks(run, run);
        run *= 2;
    }
    // The padding stands behind the end.
    let behind = ((padded - len) * size_of::<i32>()) as u64;
    let handle = order.handle.offset_end(behind);
    CubeTensor::new_contiguous(order.client, order.device, [len].into(), handle, DType::I32)
}

/// Values of one word each, those with a flag first, and the number of flags.
pub(crate) fn partition_by_flag<R: CubeRuntime>(
    values: &CubeTensor<R>,
    flags: &CubeTensor<R>,
) -> (CubeTensor<R>, CubeTensor<R>) {
    let len = flags.meta.shape()[0];
    let firsts = prefix_sum(flags, Counted::NonZero, Prefix::Exclusive);
    let out = empty(values, [len], values.dtype);
    let total = empty(values, [1], DType::I32);
    let (count, dim) = flat(len);
    // SAFETY: values and flags are as many, and the places are a permutation of them.
    unsafe {
        partition_kernel::launch_unchecked::<R>(
            &values.client,
            count,
            dim,
            FlaggedArgs { values: array(values), flags: array(flags), firsts: array(&firsts) }.launch(),
            PartedArgs { values: array(&out), count: array(&total) }.launch(),
            len,
        );
    }
    (out, total)
}

impl_for_devices! { PrimsBackend =>
    fn reduce_ints(x: IntTensor<Self>, by: Reduction) -> IntTensor<Self> {
        reduce(x, by)
    }

    fn reduce_floats(x: FloatTensor<Self>, by: Reduction) -> FloatTensor<Self> {
        reduce(x, by)
    }

    fn prefix_sum_ints(x: IntTensor<Self>, prefix: Prefix) -> IntTensor<Self> {
        prefix_sum(&into_contiguous(x), Counted::Value, prefix)
    }

    fn prefix_sum_floats(x: FloatTensor<Self>, prefix: Prefix) -> FloatTensor<Self> {
        prefix_sum(&into_contiguous(x), Counted::Value, prefix)
    }

    fn argsort_ints(x: IntTensor<Self>) -> IntTensor<Self> {
        argsort(x)
    }

    fn argsort_floats(x: FloatTensor<Self>) -> IntTensor<Self> {
        argsort(x)
    }

    fn partition_by_flag(values: IntTensor<Self>, flags: IntTensor<Self>) -> (IntTensor<Self>, IntTensor<Self>) {
        partition_by_flag(&into_contiguous(values), &into_contiguous(flags))
    }
}
