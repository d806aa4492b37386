//! The products of [`super::kernel`] on tensor cores, to the accuracy of f32.
//!
//! Tensor cores multiply tf32: the exponent of f32, ten bits of fraction. f16 and bf16 fit exactly. An f32 is the sum of
//! two of them, its leading bits and what they leave, and three products out of four give the product of two f32 but for
//! a part in 2^21. Sums are f32 in the hardware, but cut off instead of rounded, so long ones are taken in stretches.
//!
//! Planes do not wait for each other: the operands of millions of rows go from memory straight to the registers of the
//! plane that multiplies them, the next ones while these are multiplied. The hardware wants values of a fragment in certain
//! lanes, but which index of the depth, or which result, a place of the fragment stands for is free. It is chosen so that a
//! lane loads vectors of four. Places are those of PTX `mma.m16n8k8`: with `g = lane / 4` and `t = lane % 4`, the left
//! operand has rows `g`, `g + 8` and depths `t`, `t + 4`, the right one column `g`, the result columns `2 t`, `2 t + 1`.
//!
//! Source: the splitting is that of Markidis et al., NVIDIA tensor core programmability, performance and precision (2018).

use cubecl::prelude::*;
use cubecl::{cmma::MmaDefinition, tf32};

/// Columns of a result that a cube computes.
pub(crate) const TILE: usize = 128;
/// Elements of a vector.
pub(crate) const VECTOR: usize = 4;
/// Depth that a lane's vectors of one load cover: four lanes, four values.
pub(crate) const BLOCK: usize = 16;
/// Rows of a tall product that a cube computes at a time: eight groups of two planes, which share 32 rows.
pub(crate) const ROWS: usize = 256;
/// Planes of a cube of the tall product.
pub(crate) const PRODUCT_PLANES: u32 = 16;
/// Planes of a cube of the gram product: two by four, 64 x 32 results each.
pub(crate) const GRAM_PLANES: u32 = 8;

/// Fragments of a plane: two of 16 rows by eight of 8 columns, or four by four.
const FRAGMENTS: usize = 16;
/// Rows after which the sums of the hardware are added to those in shared memory.
const FLUSH: usize = 256;

/// The values of one operand for one step of the hardware: leading bits, and what they leave.
#[derive(CubeType)]
struct Halves<S: Size> {
    lead: Array<Vector<tf32, S>>,
    rest: Array<Vector<tf32, S>>,
}

/// Takes the `len` values apart; without `split` they fit in a tf32.
#[cube]
fn halves<S: Size>(values: &Array<f32>, #[comptime] len: usize, #[comptime] split: bool) -> Halves<S> {
    let mut lead = Array::<Vector<tf32, S>>::new(len);
    let mut rest = Array::<Vector<tf32, S>>::new(len);
    #[unroll]
    for k in 0..len {
        if split {
            let bits = f32::reinterpret(u32::reinterpret(values[k]) & 0xFFFF_E000u32);
            lead[k] = Vector::<tf32, S>::reinterpret(bits);
            rest[k] = Vector::<tf32, S>::reinterpret(values[k] - bits);
        } else {
            lead[k] = Vector::<tf32, S>::reinterpret(values[k]);
        }
    }
    Halves::<S> { lead, rest }
}

/// Adds the product of two fragments to sums `2 fragment` and `2 fragment + 1`.
#[cube]
fn multiply<S: Size, P: Size>(
    left: &Halves<S>,
    right: &Halves<S>,
    sums: &mut Array<Vector<f32, P>>,
    #[comptime] fragment: usize,
    #[comptime] split: bool,
) {
    let product = MmaDefinition::<tf32, tf32, f32>::new(16usize, 8usize, 8usize);
    let mut own = Array::<Vector<f32, P>>::new(2usize);
    own[0] = sums[2 * fragment];
    own[1] = sums[2 * fragment + 1];
    if split {
        product.execute_inplace(&left.rest, &right.lead, &mut own);
        product.execute_inplace(&left.lead, &right.rest, &mut own);
    }
    product.execute_inplace(&left.lead, &right.lead, &mut own);
    sums[2 * fragment] = own[0];
    sums[2 * fragment + 1] = own[1];
}

#[cube]
fn clear<P: Size>(sums: &mut Array<Vector<f32, P>>) {
    #[unroll]
    for s in 0..2 * FRAGMENTS {
        sums[s] = Vector::<f32, P>::empty().fill(0.0f32);
    }
}

/// Where vector `k` of column `column` of the weight lies in shared memory: odd columns have halves of eight vectors
/// exchanged, so that eight lanes which read four vectors of two columns meet no bank twice.
#[cube]
fn place(column: usize, k: usize, #[comptime] chunk: usize) -> usize {
    column * comptime!(chunk / VECTOR) + (k ^ ((column & 1) * 4))
}

/// Brings `chunk` of the depth of 128 columns of `w` into shared memory, the depth along a row, zeros beyond the limits.
/// `turned`: `w` is `[depth, columns]`, else `[columns, depth]`.
#[cube]
fn load_weight<F: Float, N: Size>(
    w: &Array<Vector<F, N>>,
    stage: &mut SharedMemory<Vector<f32, N>>,
    w_stride: usize,
    first_depth: usize,
    depth: usize,
    first_column: usize,
    columns: usize,
    #[comptime] chunk: usize,
    #[comptime] turned: bool,
) {
    let row = comptime!(chunk / VECTOR);
    let mut piece = (UNIT_POS_Y * CUBE_DIM_X + UNIT_POS_X) as usize;
    // A piece is four vectors: of four columns, so that they can be turned round.
    while piece < row * (TILE / VECTOR) {
        let k = piece % row;
        let group = piece / row;
        let mut loaded = Array::<Vector<f32, N>>::new(4usize);
        #[unroll]
        for r in 0..4usize {
            loaded[r] = Vector::<f32, N>::empty().fill(0.0f32);
            let along = first_depth + k * VECTOR;
            let across = first_column + group * VECTOR;
            if turned {
                if along + r < depth && across < columns {
                    loaded[r] = Vector::<f32, N>::cast_from(w[(along + r) * w_stride + across / VECTOR]);
                }
            } else if across + r < columns && along < depth {
                loaded[r] = Vector::<f32, N>::cast_from(w[(across + r) * w_stride + along / VECTOR]);
            }
        }
        #[unroll]
        for j in 0..4usize {
            let mut value = loaded[j];
            if turned {
                #[unroll]
                for r in 0..4usize {
                    value[r] = loaded[r][j];
                }
            }
            stage[place(group * VECTOR + j, k, chunk)] = value;
        }
        piece += (CUBE_DIM_X * CUBE_DIM_Y) as usize;
    }
}

/// A lane's vectors of four rows `8 r + g` from `row` on, vector `k` of each; zeros beyond the depth, rows beyond the last
/// repeat it.
#[cube]
fn load_rows<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    loaded: &mut Array<Vector<F, N>>,
    x_stride: usize,
    row: usize,
    rows: usize,
    k: usize,
    depth: usize,
) {
    #[unroll]
    for r in 0..4usize {
        let at = row + r * 8 + UNIT_POS_X as usize / 4;
        let at = select(at < rows, at, rows - 1);
        loaded[r] = Vector::<F, N>::empty().fill(F::new(0.0f32));
        if k * VECTOR < depth {
            loaded[r] = x[at * x_stride + k];
        }
    }
}

/// `out = x w`: `x` `[rows, depth]`; `w` `[depth, columns]`, or `[columns, depth]` where not `turned`. Cubes stride over
/// tiles of rows (y of the grid: tiles of columns). `chunk` is the depth that fits in shared memory.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn tall_product_mma_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    w: &Array<Vector<F, N>>,
    out: &mut Array<Vector<F, N>>,
    x_stride: usize,
    w_stride: usize,
    rows: usize,
    depth: usize,
    columns: usize,
    #[comptime] chunk: usize,
    #[comptime] turned: bool,
    #[comptime] split: bool,
    #[define(F)] _type: StorageType,
) {
    let size!(S) = 1usize;
    let size!(P) = 2usize;
    let mut weight = SharedMemory::<Vector<f32, N>>::new(comptime!(TILE * chunk / VECTOR));
    let lane = UNIT_POS_X as usize;
    let odd = lane % 2 == 1;
    let first_column = CUBE_POS_Y as usize * TILE;
    let own_column = UNIT_POS_Y as usize % 2 * (TILE / 2);
    let mut sums = Array::<Vector<f32, P>>::new(2 * FRAGMENTS);
    let mut current = Array::<Vector<F, N>>::new(4usize);
    let mut next = Array::<Vector<F, N>>::new(4usize);
    let mut tile = CUBE_POS_X as usize;
    if depth <= chunk {
        load_weight::<F, N>(w, &mut weight, w_stride, 0usize.runtime(), depth, first_column, columns, chunk, turned);
        sync_cube();
    }
    while tile * ROWS < rows {
        let row = tile * ROWS + UNIT_POS_Y as usize / 2 * 32;
        clear::<P>(&mut sums);
        let mut start = 0usize;
        while start < depth {
            if depth > chunk {
                sync_cube();
                load_weight::<F, N>(w, &mut weight, w_stride, start, depth, first_column, columns, chunk, turned);
                sync_cube();
            }
            let end = select(start + chunk < depth, start + chunk, depth);
            let mut k = start / VECTOR + lane % 4;
            load_rows::<F, N>(x, &mut next, x_stride, row, rows, k, depth);
            let mut block = start;
            while block < end {
                #[unroll]
                for r in 0..4usize {
                    current[r] = next[r];
                }
                block += BLOCK;
                if block < end {
                    load_rows::<F, N>(x, &mut next, x_stride, row, rows, k + BLOCK / VECTOR, depth);
                }
                let mut values = Array::<Vector<f32, N>>::new(4usize);
                #[unroll]
                for r in 0..4usize {
                    values[r] = Vector::<f32, N>::cast_from(current[r]);
                }
                let at = k - start / VECTOR;
                #[unroll]
                for step in 0..2usize {
                    let mut upper = Array::<f32>::new(4usize);
                    let mut lower = Array::<f32>::new(4usize);
                    #[unroll]
                    for part in 0..4usize {
                        upper[part] = values[part % 2][2 * step + part / 2];
                        lower[part] = values[2 + part % 2][2 * step + part / 2];
                    }
                    let upper = halves::<S>(&upper, 4usize, split);
                    let lower = halves::<S>(&lower, 4usize, split);
                    #[unroll]
                    for n in 0..8usize {
                        let four = weight[place(own_column + n * 8 + lane / 4, at, chunk)];
                        let mut right = Array::<f32>::new(2usize);
                        right[0] = four[2 * step];
                        right[1] = four[2 * step + 1];
                        let right = halves::<S>(&right, 2usize, split);
                        multiply::<S, P>(&upper, &right, &mut sums, n, split);
                        multiply::<S, P>(&lower, &right, &mut sums, 8 + n, split);
                    }
                }
                k += BLOCK / VECTOR;
            }
            start += chunk;
        }
        // Neighbouring lanes hold two columns each of two rows; they exchange them, so that each has four columns of one.
        #[unroll]
        for fragment in 0..FRAGMENTS {
            let upper = sums[2 * fragment];
            let lower = sums[2 * fragment + 1];
            let mut four = Vector::<f32, N>::empty().fill(0.0f32);
            #[unroll]
            for j in 0..2usize {
                let other = plane_shuffle_xor(select(odd, upper[j], lower[j]), 1u32);
                four[j] = select(odd, other, upper[j]);
                four[2 + j] = select(odd, lower[j], other);
            }
            let at = row + fragment / 8 * 16 + lane / 4 + select(odd, 8usize, 0usize.runtime());
            let column = first_column + own_column + fragment % 8 * 8 + lane % 4 / 2 * 4;
            if at < rows && column < columns {
                out[(at * columns + column) / VECTOR] = Vector::<F, N>::cast_from(four);
            }
        }
        tile += CUBE_COUNT_X as usize;
    }
}

/// A lane's vectors of two rows `4 r + t` from `row` on: vector `8 group + g` from vector `first` on of each. Rows from
/// `end` on and vectors from `vectors` on are zeros.
#[cube]
fn load_columns<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    loaded: &mut Array<Vector<F, N>>,
    x_stride: usize,
    row: usize,
    end: usize,
    first: usize,
    vectors: usize,
    #[comptime] groups: usize,
) {
    #[unroll]
    for group in 0..groups {
        let vector = first + group * 8 + UNIT_POS_X as usize / 4;
        #[unroll]
        for r in 0..2usize {
            let at = row + r * 4 + UNIT_POS_X as usize % 4;
            loaded[group * 2 + r] = Vector::<F, N>::empty().fill(F::new(0.0f32));
            if at < end && vector < vectors {
                loaded[group * 2 + r] = x[at * x_stride + vector];
            }
        }
    }
}

/// Partial sums of `x^T g` over stretches of rows: `x` `[rows, height]`, `g` `[rows, width]`, `partial` `[stretches, height,
/// width]`. A cube per stretch (x of the grid) and tile of the result (y and z).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_gram_mma_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    g: &Array<Vector<F, N>>,
    partial: &mut Array<Vector<f32, N>>,
    x_stride: usize,
    g_stride: usize,
    rows: usize,
    rows_per_stretch: usize,
    height_vectors: usize,
    width_vectors: usize,
    #[comptime] split: bool,
    #[define(F)] _type: StorageType,
) {
    let size!(S) = 1usize;
    let size!(P) = 2usize;
    let threads = comptime!(GRAM_PLANES as usize * 32);
    let thread = (UNIT_POS_Y * 32 + UNIT_POS_X) as usize;
    let mut totals = SharedMemory::<Vector<f32, P>>::new(comptime!(2 * FRAGMENTS * threads));
    let stretch = CUBE_POS_X as usize;
    let top = CUBE_POS_Y as usize * (TILE / VECTOR) + UNIT_POS_Y as usize / 4 * 16;
    let left = CUBE_POS_Z as usize * (TILE / VECTOR) + UNIT_POS_Y as usize % 4 * 8;
    let mut sums = Array::<Vector<f32, P>>::new(2 * FRAGMENTS);
    clear::<P>(&mut sums);
    #[unroll]
    for s in 0..2 * FRAGMENTS {
        totals[s * threads + thread] = sums[s];
    }
    let mut row = stretch * rows_per_stretch;
    let end = select(row + rows_per_stretch < rows, row + rows_per_stretch, rows);
    let mut since_flush = 0usize;
    let mut next_x = Array::<Vector<F, N>>::new(4usize);
    let mut next_g = Array::<Vector<F, N>>::new(2usize);
    load_columns::<F, N>(x, &mut next_x, x_stride, row, end, top, height_vectors, 2usize);
    load_columns::<F, N>(g, &mut next_g, g_stride, row, end, left, width_vectors, 1usize);
    while row < end {
        let mut xs = Array::<Vector<f32, N>>::new(4usize);
        let mut gs = Array::<Vector<f32, N>>::new(2usize);
        #[unroll]
        for k in 0..4usize {
            xs[k] = Vector::<f32, N>::cast_from(next_x[k]);
        }
        #[unroll]
        for k in 0..2usize {
            gs[k] = Vector::<f32, N>::cast_from(next_g[k]);
        }
        row += 8;
        if row < end {
            load_columns::<F, N>(x, &mut next_x, x_stride, row, end, top, height_vectors, 2usize);
            load_columns::<F, N>(g, &mut next_g, g_stride, row, end, left, width_vectors, 1usize);
        }
        // A fragment of rows takes two of a vector's four, one of columns takes one of them.
        #[unroll]
        for m in 0..4usize {
            let mut rows_of = Array::<f32>::new(4usize);
            #[unroll]
            for part in 0..4usize {
                rows_of[part] = xs[m / 2 * 2 + part / 2][m % 2 * 2 + part % 2];
            }
            let rows_of = halves::<S>(&rows_of, 4usize, split);
            #[unroll]
            for n in 0..4usize {
                let mut columns_of = Array::<f32>::new(2usize);
                columns_of[0] = gs[0][n];
                columns_of[1] = gs[1][n];
                let columns_of = halves::<S>(&columns_of, 2usize, split);
                multiply::<S, P>(&rows_of, &columns_of, &mut sums, m * 4 + n, split);
            }
        }
        since_flush += 8;
        if since_flush == FLUSH || row >= end {
            since_flush = 0usize;
            #[unroll]
            for s in 0..2 * FRAGMENTS {
                totals[s * threads + thread] += sums[s];
            }
            clear::<P>(&mut sums);
        }
    }
    #[unroll]
    for s in 0..2 * FRAGMENTS {
        sums[s] = totals[s * threads + thread];
    }
    // Row `8 half + g` of fragment `m` is result row `4 g + 2 (m % 2) + half` of its group; column `2 t + pair` of the four
    // fragments `n` are the results `8 t + 4 pair + n`.
    let g_lane = UNIT_POS_X as usize / 4;
    let t_lane = UNIT_POS_X as usize % 4;
    #[unroll]
    for m in 0..4usize {
        #[unroll]
        for half in 0..2usize {
            let result = (top + m / 2 * 8 + g_lane) * VECTOR + m % 2 * 2 + half;
            #[unroll]
            for pair in 0..2usize {
                let mut four = Vector::<f32, N>::empty().fill(0.0f32);
                #[unroll]
                for n in 0..4usize {
                    four[n] = sums[2 * (m * 4 + n) + half][pair];
                }
                let column = left + 2 * t_lane + pair;
                if result < height_vectors * VECTOR && column < width_vectors {
                    partial[(stretch * height_vectors * VECTOR + result) * width_vectors + column] = four;
                }
            }
        }
    }
}
