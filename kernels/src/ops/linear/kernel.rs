//! Products of a tall matrix with a small one, and of two tall ones, in true f32: register tiles over shared memory.
//!
//! A cube of 16 x 16 threads computes 128 x 128 results, each thread 8 x 8 of them as two by two blocks of 4 x 4, so that
//! every load from shared memory is a vector of four and neighbours read neighbouring words.

use cubecl::prelude::*;

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

/// `out = x w`: `x` `[rows, depth]`, `w` `[depth, columns]`. A cube per tile of rows (y of the grid: of columns).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn tall_product_kernel<F: Float, G: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    w: &Array<Vector<G, N>>,
    out: &mut Array<Vector<F, N>>,
    x_stride: usize,
    w_stride: usize,
    rows: usize,
    depth_vectors: usize,
    column_vectors: usize,
    #[define(F, G)] _types: [StorageType; 2],
) {
    let mut left = SharedMemory::<Vector<f32, N>>::new(DEPTH * TILE_VECTORS);
    let mut right = SharedMemory::<Vector<f32, N>>::new(DEPTH * TILE_VECTORS);
    let thread = UNIT_POS as usize;
    let first_column = CUBE_POS_Y as usize * TILE_VECTORS;
    let zero = Vector::<f32, N>::empty().fill(0.0f32);
    let mut tile = CUBE_POS_X as usize;
    while tile * TILE < rows {
        let mut sums = zero_sums::<N>();
        let mut k = 0usize;
        while k < depth_vectors {
            sync_cube();
            // A thread loads four rows of one vector of the depth and stores them turned around.
            let kv = thread % (DEPTH / VECTOR);
            let group = thread / (DEPTH / VECTOR);
            let mut loaded = Array::<Vector<f32, N>>::new(4usize);
            #[unroll]
            for r in 0..4usize {
                let row = tile * TILE + group * 4 + r;
                loaded[r] = zero;
                if row < rows && k + kv < depth_vectors {
                    loaded[r] = Vector::<f32, N>::cast_from(x[row * x_stride + k + kv]);
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
                if row < depth_vectors * VECTOR && column < column_vectors {
                    // A weight of another dtype is rounded to that of `x`.
                    value = Vector::<f32, N>::cast_from(Vector::<F, N>::cast_from(w[row * w_stride + column]));
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
            if row < rows {
                if column < column_vectors {
                    out[row * column_vectors + column] = Vector::<F, N>::cast_from(sums[2 * r]);
                }
                if column + SIDE < column_vectors {
                    out[row * column_vectors + column + SIDE] = Vector::<F, N>::cast_from(sums[2 * r + 1]);
                }
            }
        }
        tile += CUBE_COUNT_X as usize;
    }
}

/// Partial sums of `x^T g` over stretches of rows: `x` `[rows, height]`, `g` `[rows, width]`, `partial` `[stretches, height,
/// width]`. A cube per stretch (x of the grid) and tile of the result (y and z).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_gram_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    g: &Array<Vector<F, N>>,
    partial: &mut Array<Vector<f32, N>>,
    x_stride: usize,
    g_stride: usize,
    rows: usize,
    rows_per_stretch: usize,
    height_vectors: usize,
    width_vectors: usize,
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
    let start = stretch * rows_per_stretch;
    let end = select(start + rows_per_stretch < rows, start + rows_per_stretch, rows);
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
                if top + column < height_vectors {
                    value = Vector::<f32, N>::cast_from(x[row * x_stride + top + column]);
                }
                if first_column + column < width_vectors {
                    gradient = Vector::<f32, N>::cast_from(g[row * g_stride + first_column + column]);
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
        if row < height_vectors * VECTOR {
            let at = (stretch * height_vectors * VECTOR + row) * width_vectors + column;
            if column < width_vectors {
                partial[at] = sums[2 * r];
            }
            if column + SIDE < width_vectors {
                partial[at + SIDE] = sums[2 * r + 1];
            }
        }
    }
}
