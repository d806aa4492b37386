//! Bitonic sort of pairs of key and position: stages of short distance in shared memory, the others in global memory.

use cubecl::prelude::*;

use crate::runtime::args::launch_args;

/// Pairs of one cube in shared memory.
pub(crate) const BLOCK: usize = 1024;

/// Threads of a cube, each for two exchanges of a stage.
pub(crate) const SORT_THREADS: usize = 256;

/// How bits of an element become an unsigned key of the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyOf {
    Unsigned,
    /// The sign bit is inverted.
    Signed,
    /// All bits of negative floats are inverted, the sign bit of others.
    Float,
}

launch_args! {
    /// Keys, and the positions that they came from.
    Keyed, KeyedArgs<K: Int> {
        keys: Array<K>,
        order: Array<u32>,
    }
}

launch_args! {
    /// Elements, with and without the padding.
    Lengths, LengthsArgs {
        len: usize,
        padded: usize,
    }
}

launch_args! {
    /// Lengths of the runs that are merged in each of so many blocks, the first and the last.
    Runs, RunsArgs {
        blocks: usize,
        first: usize,
        last: usize,
    }
}

launch_args! {
    /// The pairs of a stage, the runs that it belongs to, and how far the elements of a pair are apart.
    Stage, StageArgs {
        pairs: usize,
        run: usize,
        distance: usize,
    }
}

/// Keys and positions; behind the end both are as large as can be.
#[cube(launch_unchecked)]
pub(crate) fn keys_kernel<T: Numeric, K: Int>(
    x: &Array<T>,
    sorted: &mut Keyed<K>,
    lengths: &Lengths,
    #[comptime] of: KeyOf,
    #[comptime] bits: usize,
    #[define(T, K)] _types: [StorageType; 2],
) {
    let mut k = ABSOLUTE_POS;
    while k < lengths.padded {
        let mut key = K::max_value();
        let mut at = u32::MAX.runtime();
        if k < lengths.len {
            at = k as u32;
            let bits_of = K::reinterpret(x[k]);
            let last = comptime!(bits as i64 - 1);
            let sign = K::from_int(1) << K::from_int(last);
            key = match comptime!(of) {
                KeyOf::Unsigned => bits_of,
                KeyOf::Signed => bits_of ^ sign,
                KeyOf::Float => {
                    let negative = (bits_of >> K::from_int(last)) != K::from_int(0);
                    bits_of ^ select(negative, K::max_value(), sign)
                }
            };
        }
        sorted.keys[k] = key;
        sorted.order[k] = at;
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// The lower place of exchange `pair` at a distance that is a power of two.
#[cube]
pub(crate) fn lower_place(pair: usize, distance: usize) -> usize {
    2 * pair - pair % distance
}

/// Whether a pair at `place` of a run of `run` places is out of order with that behind it: runs ascend and descend in
/// turn.
#[cube]
pub(crate) fn out_of_order<K: Int>(key: K, at: u32, other_key: K, other_at: u32, place: usize, run: usize) -> bool {
    let after = key > other_key || (key == other_key && at > other_at);
    let ascends = (place / run) & 1 == 0;
    after == ascends
}

/// All stages of the runs of `first_run`, twice that, ... `last_run` places, as far as their distance stays in a block.
#[cube(launch_unchecked)]
pub(crate) fn sort_block_kernel<K: Int>(sorted: &mut Keyed<K>, runs: &Runs, #[define(K)] _type: StorageType) {
    let mut block_keys = SharedMemory::<K>::new(BLOCK);
    let mut block_order = SharedMemory::<u32>::new(BLOCK);
    let mut block = CUBE_POS;
    while block < runs.blocks {
        let start = block * BLOCK;
        let mut k = UNIT_POS as usize;
        while k < BLOCK {
            block_keys[k] = sorted.keys[start + k];
            block_order[k] = sorted.order[start + k];
            k += SORT_THREADS;
        }
        sync_cube();
        let mut run = runs.first;
        while run <= runs.last {
            let half = run / 2;
            let longest = comptime!(BLOCK / 2).runtime();
            let mut distance = select(half < longest, half, longest);
            while distance > 0 {
                let mut pair = UNIT_POS as usize;
                while pair < BLOCK / 2 {
                    let low = lower_place(pair, distance);
                    let high = low + distance;
                    let (key, other_key) = (block_keys[low], block_keys[high]);
                    let (at, other_at) = (block_order[low], block_order[high]);
                    if out_of_order::<K>(key, at, other_key, other_at, start + low, run) {
                        block_keys[low] = other_key;
                        block_keys[high] = key;
                        block_order[low] = other_at;
                        block_order[high] = at;
                    }
                    pair += SORT_THREADS;
                }
                sync_cube();
                distance /= 2;
            }
            run *= 2;
        }
        let mut k = UNIT_POS as usize;
        while k < BLOCK {
            sorted.keys[start + k] = block_keys[k];
            sorted.order[start + k] = block_order[k];
            k += SORT_THREADS;
        }
        sync_cube();
        block += CUBE_COUNT;
    }
}

/// One stage of a distance beyond a block.
#[cube(launch_unchecked)]
pub(crate) fn sort_stage_kernel<K: Int>(sorted: &mut Keyed<K>, stage: &Stage, #[define(K)] _type: StorageType) {
    let mut pair = ABSOLUTE_POS;
    while pair < stage.pairs {
        let low = lower_place(pair, stage.distance);
        let high = low + stage.distance;
        let (key, other_key) = (sorted.keys[low], sorted.keys[high]);
        let (at, other_at) = (sorted.order[low], sorted.order[high]);
        if out_of_order::<K>(key, at, other_key, other_at, low, stage.run) {
            sorted.keys[low] = other_key;
            sorted.keys[high] = key;
            sorted.order[low] = other_at;
            sorted.order[high] = at;
        }
        pair += CUBE_COUNT * CUBE_DIM as usize;
    }
}
