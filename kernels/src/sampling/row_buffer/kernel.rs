//! Copies of rows: one plane per row on the device, a thread per vector from host memory.

use cubecl::prelude::*;

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn put_rows_kernel<F: Float, N: Size>(
    source: &Array<Vector<F, N>>,
    from: &Array<i32>,
    to: &Array<i32>,
    target: &mut Array<Vector<F, N>>,
    source_stride: usize,
    target_stride: usize,
    vectors: usize,
    len: usize,
    #[comptime] listed: bool,
    #[define(F)] _type: StorageType,
) {
    let mut k = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while k < len {
        let mut row = k;
        if listed {
            row = usize::cast_from(from[k]);
        }
        let (read, write) = (row * source_stride, usize::cast_from(to[k]) * target_stride);
        let mut c = UNIT_POS_X as usize;
        while c < vectors {
            target[write + c] = source[read + c];
            c += CUBE_DIM_X as usize;
        }
        k += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn move_rows_kernel<F: Float, N: Size>(
    target: &mut Array<Vector<F, N>>,
    from: &Array<i32>,
    to: &Array<i32>,
    stride: usize,
    vectors: usize,
    len: usize,
    #[define(F)] _type: StorageType,
) {
    let mut k = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while k < len {
        let (read, write) = (usize::cast_from(from[k]) * stride, usize::cast_from(to[k]) * stride);
        let mut c = UNIT_POS_X as usize;
        while c < vectors {
            target[write + c] = target[read + c];
            c += CUBE_DIM_X as usize;
        }
        k += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// A thread per vector, so that every one has a load under way: host memory is far.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn fetch_rows_kernel<F: Float, N: Size>(
    anchor: &Array<Vector<F, N>>,
    rows: &Array<i32>,
    to: &Array<i32>,
    target: &mut Array<Vector<F, N>>,
    delta: usize,
    target_stride: usize,
    vectors: usize,
    len: usize,
    #[define(F)] _type: StorageType,
) {
    let mut at = ABSOLUTE_POS;
    while at < len * vectors {
        let (k, c) = (at / vectors, at % vectors);
        let from = usize::cast_from(rows[k]) * vectors;
        let write = usize::cast_from(to[k]) * target_stride;
        target[write + c] = anchor[delta + from + c];
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}
