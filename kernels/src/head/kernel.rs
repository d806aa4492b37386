//! One plane per row, per stretch of rows or per column.

use cubecl::prelude::*;

/// Per head `<x_i, y_i>`; `y_stride` 0 makes one row of `y` serve all.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn head_dot_kernel<F: Float, G: Float>(
    x: &Array<F>,
    y: &Array<G>,
    out: &mut Array<f32>,
    x_stride: usize,
    y_stride: usize,
    channels: usize,
    heads: usize,
    num_rows: usize,
    #[define(F, G)] _types: [StorageType; 2],
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        for h in 0..heads {
            let mut product = 0.0f32;
            let mut c = UNIT_POS_X as usize;
            while c < channels {
                let at = h * channels + c;
                product += f32::cast_from(x[row * x_stride + at]) * f32::cast_from(y[row * y_stride + at]);
                c += CUBE_DIM_X as usize;
            }
            let dot = plane_sum(product);
            if UNIT_POS_X == 0 {
                out[row * heads + h] = dot;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// `out_i,h = w_i,h a_h`, added to what is there with `onto`; one plane per row.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn head_outer_kernel<F: Float>(
    w: &Array<f32>,
    a: &Array<f32>,
    out: &mut Array<F>,
    out_stride: usize,
    channels: usize,
    heads: usize,
    num_rows: usize,
    #[comptime] onto: bool,
    #[define(F)] _type: StorageType,
) {
    let width = heads * channels;
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < num_rows {
        let mut c = UNIT_POS_X as usize;
        while c < width {
            let mut sum = w[row * heads + c / channels] * a[c];
            if onto {
                sum += f32::cast_from(out[row * out_stride + c]);
            }
            out[row * out_stride + c] = F::cast_from(sum);
            c += CUBE_DIM_X as usize;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// Sums `w_i,h x_i,h` over a stretch of rows per plane: the first of two steps of a column sum.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_column_sum_kernel<F: Float>(
    x: &Array<F>,
    w: &Array<f32>,
    partial: &mut Array<f32>,
    x_stride: usize,
    channels: usize,
    heads: usize,
    num_rows: usize,
    rows_per_partial: usize,
    num_partials: usize,
    #[define(F)] _type: StorageType,
) {
    let width = heads * channels;
    let mut stretch = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while stretch < num_partials {
        let first = stretch * rows_per_partial;
        let last = select(first + rows_per_partial < num_rows, first + rows_per_partial, num_rows);
        let mut c = UNIT_POS_X as usize;
        while c < width {
            let mut sum = 0.0f32;
            for row in first..last {
                sum += w[row * heads + c / channels] * f32::cast_from(x[row * x_stride + c]);
            }
            partial[stretch * width + c] = sum;
            c += CUBE_DIM_X as usize;
        }
        stretch += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// Columns that a cube adds up, a thread beside the other, and threads that share a column.
pub(crate) const COLUMNS: usize = 32;
pub(crate) const SHARES: usize = 8;

/// Adds up partial sums: neighbours read neighbouring columns.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn column_sum_kernel(partial: &Array<f32>, out: &mut Array<f32>, width: usize, num_partials: usize) {
    let mut shared = SharedMemory::<f32>::new(COLUMNS * SHARES);
    let x = UNIT_POS_X as usize;
    let y = UNIT_POS_Y as usize;
    let column = CUBE_POS * COLUMNS + x;
    let mut sum = 0.0f32;
    if column < width {
        let mut p = y;
        while p < num_partials {
            sum += partial[p * width + column];
            p += SHARES;
        }
    }
    shared[y * COLUMNS + x] = sum;
    sync_cube();
    if y == 0 && column < width {
        let mut total = 0.0f32;
        #[unroll]
        for share in 0..SHARES {
            total += shared[share * COLUMNS + x];
        }
        out[column] = total;
    }
}
