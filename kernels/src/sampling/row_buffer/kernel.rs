//! Copies of rows: one plane per row on the device, a thread per vector from host memory.

use cubecl::prelude::*;

use crate::runtime::args::{Extent, Matrix, launch_args};

launch_args! {
    /// A matrix, which of its rows are copied, and where to.
    PutRows, PutRowsArgs<F: Float, N: Size> {
        rows: Matrix<F, N>,
        from: Array<i32>,
        to: Array<i32>,
    }
}

launch_args! {
    /// Which rows are copied, and where to.
    Moves, MovesArgs {
        from: Array<i32>,
        to: Array<i32>,
    }
}

launch_args! {
    /// Rows that begin `delta` vectors behind an array, which of them are copied, and where to.
    FetchedRows, FetchedRowsArgs<F: Float, N: Size> {
        anchor: Array<Vector<F, N>>,
        delta: usize,
        rows: Array<i32>,
        to: Array<i32>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn put_rows_kernel<F: Float, N: Size>(
    source: &PutRows<F, N>,
    target: &mut Matrix<F, N>,
    extent: &Extent,
    #[comptime] listed: bool,
    #[define(F)] _type: StorageType,
) {
    let mut k = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while k < extent.rows {
        let mut row = k;
        if listed {
            row = usize::cast_from(source.from[k]);
        }
        let (read, write) = (row * source.rows.stride, usize::cast_from(source.to[k]) * target.stride);
        let mut c = UNIT_POS_X as usize;
        while c < extent.vectors {
            target.values[write + c] = source.rows.values[read + c];
            c += CUBE_DIM_X as usize;
        }
        k += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn move_rows_kernel<F: Float, N: Size>(
    target: &mut Matrix<F, N>,
    moves: &Moves,
    extent: &Extent,
    #[define(F)] _type: StorageType,
) {
    let mut k = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while k < extent.rows {
        let (read, write) =
            (usize::cast_from(moves.from[k]) * target.stride, usize::cast_from(moves.to[k]) * target.stride);
        let mut c = UNIT_POS_X as usize;
        while c < extent.vectors {
            target.values[write + c] = target.values[read + c];
            c += CUBE_DIM_X as usize;
        }
        k += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// A thread per vector, so that every one has a load under way: host memory is far.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn fetch_rows_kernel<F: Float, N: Size>(
    source: &FetchedRows<F, N>,
    target: &mut Matrix<F, N>,
    extent: &Extent,
    #[define(F)] _type: StorageType,
) {
    let mut at = ABSOLUTE_POS;
    while at < extent.rows * extent.vectors {
        let (k, c) = (at / extent.vectors, at % extent.vectors);
        let from = usize::cast_from(source.rows[k]) * extent.vectors;
        let write = usize::cast_from(source.to[k]) * target.stride;
        target.values[write + c] = source.anchor[source.delta + from + c];
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}
