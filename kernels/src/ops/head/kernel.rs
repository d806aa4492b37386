//! One plane per row, per stretch of rows or per column.

use cubecl::prelude::*;

use crate::runtime::args::{Matrix, Table, launch_args};
use crate::runtime::launch::COLUMN_THREADS;

launch_args! {
    /// Rows of `count` heads of `channels` elements or vectors each.
    Heads, HeadsArgs {
        rows: usize,
        count: usize,
        channels: usize,
    }
}

launch_args! {
    /// Two matrices; of a single row the stride is zero.
    DotInputs, DotInputsArgs<F: Float, G: Float> {
        x: Table<F>,
        y: Table<G>,
    }
}

launch_args! {
    /// A weight per row and head, and a vector of all channels.
    OuterInputs, OuterInputsArgs {
        w: Array<f32>,
        a: Array<f32>,
    }
}

launch_args! {
    /// A matrix, and a weight per row and head.
    SumInputs, SumInputsArgs<F: Float, N: Size> {
        x: Matrix<F, N>,
        w: Array<f32>,
    }
}

/// Per head `<x_i, y_i>`; `y_stride` 0 makes one row of `y` serve all.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn head_dot_kernel<F: Float, G: Float>(
    inputs: &DotInputs<F, G>,
    out: &mut Array<f32>,
    heads: &Heads,
    #[define(F, G)] _types: [StorageType; 2],
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < heads.rows {
        for h in 0..heads.count {
            let mut product = 0.0f32;
            let mut c = UNIT_POS_X as usize;
            while c < heads.channels {
                let at = h * heads.channels + c;
                product += f32::cast_from(inputs.x.values[row * inputs.x.stride + at])
                    * f32::cast_from(inputs.y.values[row * inputs.y.stride + at]);
                c += CUBE_DIM_X as usize;
            }
            let dot = plane_sum(product);
            if UNIT_POS_X == 0 {
                out[row * heads.count + h] = dot;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// `out_i,h = w_i,h a_h`, added to what is there with `accumulate_into`; one plane per row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn head_outer_kernel<F: Float>(
    inputs: &OuterInputs,
    out: &mut Table<F>,
    heads: &Heads,
    #[comptime] accumulate_into: bool,
    #[define(F)] _type: StorageType,
) {
    let width = heads.count * heads.channels;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < heads.rows {
        let mut c = UNIT_POS_X as usize;
        while c < width {
            let mut sum = inputs.w[row * heads.count + c / heads.channels] * inputs.a[c];
            if accumulate_into {
                sum += f32::cast_from(out.values[row * out.stride + c]);
            }
            out.values[row * out.stride + c] = F::cast_from(sum);
            c += CUBE_DIM_X as usize;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// Rows that are on their way to a thread at a time.
const IN_FLIGHT: usize = 4;

/// Adds up `sum` over the threads of every column of the cube, into row `CUBE_POS_X` of `partial`: the first of two
/// steps of a column sum. `half` is half of the power of two that is not below `CUBE_DIM_Y`. All of the cube calls it.
#[cube]
pub(crate) fn put_partial_sum<N: Size>(
    sum: Vector<f32, N>,
    partial: &mut Array<Vector<f32, N>>,
    column: usize,
    vectors: usize,
    half: usize,
) {
    let mut shared = SharedMemory::<Vector<f32, N>>::new(COLUMN_THREADS);
    let lanes = CUBE_DIM_X as usize;
    let y = UNIT_POS_Y as usize;
    let own = y * lanes + UNIT_POS_X as usize;
    shared[own] = sum;
    sync_cube();
    let mut apart = half;
    while apart > 0 {
        if y < apart && y + apart < CUBE_DIM_Y as usize {
            let other = shared[own + apart * lanes];
            shared[own] += other;
        }
        sync_cube();
        apart /= 2;
    }
    if y == 0 && column < vectors {
        partial[CUBE_POS_X as usize * vectors + column] = shared[own];
    }
}

/// Sums `w_i,h x_i,h`, or `x_i` where nothing is `weighted`: a thread keeps to a vector of columns and strides over
/// rows.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_column_sum_kernel<F: Float, N: Size>(
    inputs: &SumInputs<F, N>,
    partial: &mut Array<Vector<f32, N>>,
    vectors: usize,
    heads: &Heads,
    half: usize,
    #[comptime] weighted: bool,
    #[define(F)] _type: StorageType,
) {
    let column = CUBE_POS_Y as usize * CUBE_DIM_X as usize + UNIT_POS_X as usize;
    let step = CUBE_COUNT_X as usize * CUBE_DIM_Y as usize;
    let mut sum = Vector::<f32, N>::empty().fill(0.0f32);
    if column < vectors {
        let head = column / heads.channels;
        let mut row = CUBE_POS_X as usize * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
        while row < heads.rows {
            let mut values = Array::<Vector<F, N>>::new(IN_FLIGHT);
            let mut weights = Array::<f32>::new(IN_FLIGHT);
            #[unroll]
            for u in 0..IN_FLIGHT {
                // Beyond the last row the first one is repeated, which is in cache, with weight zero.
                let present = row + u * step < heads.rows;
                let at = select(present, row + u * step, row);
                values[u] = inputs.x.values[at * inputs.x.stride + column];
                let mut weight = 1.0f32.runtime();
                if weighted {
                    weight = inputs.w[at * heads.count + head];
                }
                weights[u] = select(present, weight, 0.0f32);
            }
            #[unroll]
            for u in 0..IN_FLIGHT {
                sum += Vector::<f32, N>::cast_from(values[u]) * Vector::<f32, N>::empty().fill(weights[u]);
            }
            row += IN_FLIGHT * step;
        }
    }
    put_partial_sum::<N>(sum, partial, column, vectors, half);
}

/// Columns that a cube adds up, a thread beside the other (a sector of memory), and threads that share a column.
pub(crate) const COLUMNS: usize = 8;
pub(crate) const SHARES: usize = 32;

launch_args! {
    /// Partial sums of `width` columns, and how many a stretch takes.
    PartialSizes, PartialSizesArgs {
        partials: usize,
        width: usize,
        per_stretch: usize,
    }
}

/// Adds up partial sums: neighbours read neighbouring columns. The y of the grid takes a stretch of them each, `out`
/// has a row per stretch.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn column_sum_kernel(partial: &Array<f32>, out: &mut Array<f32>, sizes: &PartialSizes) {
    let mut shared = SharedMemory::<f32>::new(COLUMNS * SHARES);
    let x = UNIT_POS_X as usize;
    let y = UNIT_POS_Y as usize;
    let column = CUBE_POS_X as usize * COLUMNS + x;
    let start = CUBE_POS_Y as usize * sizes.per_stretch;
    let end = select(start + sizes.per_stretch < sizes.partials, start + sizes.per_stretch, sizes.partials);
    let mut sum = 0.0f32;
    if column < sizes.width {
        let mut p = start + y;
        while p < end {
            let mut values = Array::<f32>::new(IN_FLIGHT);
            #[unroll]
            for u in 0..IN_FLIGHT {
                let present = p + u * SHARES < end;
                let value = partial[select(present, p + u * SHARES, p) * sizes.width + column];
                values[u] = select(present, value, 0.0f32);
            }
            #[unroll]
            for u in 0..IN_FLIGHT {
                sum += values[u];
            }
            p += IN_FLIGHT * SHARES;
        }
    }
    shared[y * COLUMNS + x] = sum;
    sync_cube();
    if y == 0 && column < sizes.width {
        let mut total = 0.0f32;
        #[unroll]
        for share in 0..SHARES {
            total += shared[share * COLUMNS + x];
        }
        out[CUBE_POS_Y as usize * sizes.width + column] = total;
    }
}
