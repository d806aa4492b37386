//! Products of a tall matrix with a small one, and of two tall ones, in true f32: register tiles over shared memory.
//!
//! A cube of 16 x 16 threads computes 128 x 128 results, each thread 8 x 8 of them as two by two blocks of 4 x 4, so
//! that every load from shared memory is a vector of four and neighbours read neighbouring words.

use cubecl::prelude::*;

use crate::runtime::args::{Matrix, launch_args};

/// Results of a cube along either side.
pub(crate) const TILE: usize = 128;
/// Depth of a stage in shared memory: two tiles of it take 32 KiB.
pub(crate) const DEPTH: usize = 32;
/// Threads along either side of a cube.
pub(crate) const SIDE: usize = 16;
/// Elements of a vector.
pub(crate) const VECTOR: usize = 4;

const TILE_VECTORS: usize = TILE / VECTOR;
const THREADS: usize = SIDE * SIDE;

/// The sums of one thread: row `r` of 8 has two vectors, of the left and of the right half of the tile.
#[cube]
fn zero_sums<N: Size>() -> Array<Vector<f32, N>> {
    let mut sums = Array::<Vector<f32, N>>::new(16usize);
    #[unroll]
    for s in 0..16 {
        sums[s] = Vector::<f32, N>::empty().fill(0.0f32);
    }
    sums
}

/// Adds the products of a stage: `left` and `right` hold `DEPTH` rows of `TILE` values.
#[cube]
fn add_stage<N: Size>(
    left: &SharedMemory<Vector<f32, N>>,
    right: &SharedMemory<Vector<f32, N>>,
    sums: &mut Array<Vector<f32, N>>,
) {
    let x = UNIT_POS_X as usize;
    let y = UNIT_POS_Y as usize;
    for k in 0..DEPTH {
        let upper = left[k * TILE_VECTORS + y];
        let lower = left[k * TILE_VECTORS + SIDE + y];
        let west = right[k * TILE_VECTORS + x];
        let east = right[k * TILE_VECTORS + SIDE + x];
        #[unroll]
        for r in 0..4usize {
            let a = Vector::<f32, N>::empty().fill(upper[r]);
            let b = Vector::<f32, N>::empty().fill(lower[r]);
            sums[2 * r] += a * west;
            sums[2 * r + 1] += a * east;
            sums[8 + 2 * r] += b * west;
            sums[8 + 2 * r + 1] += b * east;
        }
    }
}

/// The row of a tile that row `r` of a thread's sums belongs to: four from the upper half, four from the lower.
#[cube]
fn tile_row(#[comptime] r: usize) -> usize {
    let first = comptime!(if r < 4 { r } else { TILE / 2 + r - 4 });
    UNIT_POS_Y as usize * 4 + first
}

launch_args! {
    /// The small factor of a product.
    Weight, WeightArgs<G: Float, N: Size> {
        matrix: Matrix<G, N>,
    }
}

launch_args! {
    /// Rows of a product, its depth and its columns; whether these two are counted in elements or in vectors says the
    /// kernel.
    ProductSizes, ProductSizesArgs {
        rows: usize,
        depth: usize,
        columns: usize,
    }
}

launch_args! {
    /// Two tall matrices.
    GramFactors, GramFactorsArgs<E: Scalar, N: Size> {
        x: Matrix<E, N>,
        g: Matrix<E, N>,
    }
}

launch_args! {
    /// Rows of both matrices and those of a stretch; vectors of the result along either side.
    GramSizes, GramSizesArgs {
        rows: usize,
        rows_per_stretch: usize,
        height: usize,
        width: usize,
    }
}

/// `out = x w`: `x` `[rows, depth]`, `w` `[depth, columns]`. A cube per tile of rows (y of the grid: of columns).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn tall_product_kernel<F: Float, G: Float, N: Size>(
    x: &Matrix<F, N>,
    w: &Weight<G, N>,
    out: &mut Array<Vector<F, N>>,
    sizes: &ProductSizes,
    #[define(F, G)] _types: [StorageType; 2],
) {
    let mut left = SharedMemory::<Vector<f32, N>>::new(DEPTH * TILE_VECTORS);
    let mut right = SharedMemory::<Vector<f32, N>>::new(DEPTH * TILE_VECTORS);
    let thread = UNIT_POS as usize;
    let first_column = CUBE_POS_Y as usize * TILE_VECTORS;
    let zero = Vector::<f32, N>::empty().fill(0.0f32);
    let mut tile = CUBE_POS_X as usize;
    while tile * TILE < sizes.rows {
        let mut sums = zero_sums::<N>();
        let mut k = 0usize;
        while k < sizes.depth {
            sync_cube();
            // A thread loads four rows of one vector of the depth and stores them turned around.
            let kv = thread % (DEPTH / VECTOR);
            let group = thread / (DEPTH / VECTOR);
            let mut loaded = Array::<Vector<f32, N>>::new(4usize);
            #[unroll]
            for r in 0..4usize {
                let row = tile * TILE + group * 4 + r;
                loaded[r] = zero;
                if row < sizes.rows && k + kv < sizes.depth {
                    loaded[r] = Vector::<f32, N>::cast_from(x.values[row * x.stride + k + kv]);
                }
            }
            #[unroll]
            for j in 0..4usize {
                let mut turned = zero;
                #[unroll]
                for r in 0..4usize {
                    turned[r] = loaded[r][j];
                }
                left[(kv * 4 + j) * TILE_VECTORS + group] = turned;
            }
            #[unroll]
            for part in 0..DEPTH * TILE_VECTORS / THREADS {
                let at = part * THREADS + thread;
                let row = k * VECTOR + at / TILE_VECTORS;
                let column = first_column + at % TILE_VECTORS;
                let mut value = zero;
                if row < sizes.depth * VECTOR && column < sizes.columns {
                    // A weight of another dtype is rounded to that of `x`.
                    value = Vector::<f32, N>::cast_from(Vector::<F, N>::cast_from(
                        w.matrix.values[row * w.matrix.stride + column],
                    ));
                }
                right[at] = value;
            }
            sync_cube();
            add_stage::<N>(&left, &right, &mut sums);
            k += DEPTH / VECTOR;
        }
        let column = first_column + UNIT_POS_X as usize;
        #[unroll]
        for r in 0..8usize {
            let row = tile * TILE + tile_row(r);
            if row < sizes.rows {
                if column < sizes.columns {
                    out[row * sizes.columns + column] = Vector::<F, N>::cast_from(sums[2 * r]);
                }
                if column + SIDE < sizes.columns {
                    out[row * sizes.columns + column + SIDE] = Vector::<F, N>::cast_from(sums[2 * r + 1]);
                }
            }
        }
        tile += CUBE_COUNT_X as usize;
    }
}

/// Partial sums of `x^T g` over stretches of rows: `x` `[rows, height]`, `g` `[rows, width]`, `partial` `[stretches,
/// height, width]`. A cube per stretch (x of the grid) and tile of the result (y and z).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_gram_kernel<F: Float, N: Size>(
    factors: &GramFactors<F, N>,
    partial: &mut Array<Vector<f32, N>>,
    sizes: &GramSizes,
    #[define(F)] _type: StorageType,
) {
    let mut left = SharedMemory::<Vector<f32, N>>::new(DEPTH * TILE_VECTORS);
    let mut right = SharedMemory::<Vector<f32, N>>::new(DEPTH * TILE_VECTORS);
    let thread = UNIT_POS as usize;
    let stretch = CUBE_POS_X as usize;
    let top = CUBE_POS_Y as usize * TILE_VECTORS;
    let first_column = CUBE_POS_Z as usize * TILE_VECTORS;
    let zero = Vector::<f32, N>::empty().fill(0.0f32);
    let mut sums = zero_sums::<N>();
    let start = stretch * sizes.rows_per_stretch;
    let end = select(start + sizes.rows_per_stretch < sizes.rows, start + sizes.rows_per_stretch, sizes.rows);
    let mut first = start;
    while first < end {
        sync_cube();
        #[unroll]
        for part in 0..DEPTH * TILE_VECTORS / THREADS {
            let at = part * THREADS + thread;
            let row = first + at / TILE_VECTORS;
            let column = at % TILE_VECTORS;
            let mut value = zero;
            let mut gradient = zero;
            if row < end {
                if top + column < sizes.height {
                    value = Vector::<f32, N>::cast_from(factors.x.values[row * factors.x.stride + top + column]);
                }
                if first_column + column < sizes.width {
                    gradient =
                        Vector::<f32, N>::cast_from(factors.g.values[row * factors.g.stride + first_column + column]);
                }
            }
            left[at] = value;
            right[at] = gradient;
        }
        sync_cube();
        add_stage::<N>(&left, &right, &mut sums);
        first += DEPTH;
    }
    let column = first_column + UNIT_POS_X as usize;
    #[unroll]
    for r in 0..8usize {
        let row = top * VECTOR + tile_row(r);
        if row < sizes.height * VECTOR {
            let at = (stretch * sizes.height * VECTOR + row) * sizes.width + column;
            if column < sizes.width {
                partial[at] = sums[2 * r];
            }
            if column + SIDE < sizes.width {
                partial[at + SIDE] = sums[2 * r + 1];
            }
        }
    }
}
