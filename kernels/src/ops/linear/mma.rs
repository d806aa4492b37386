//! The products of [`super::kernel`] on tensor cores, to the accuracy of f32; that of two tall matrices is in
//! [`super::gram_mma`].
//!
//! Tensor cores multiply tf32: the exponent of f32, ten bits of fraction. f16 and bf16 fit exactly. An f32 is the sum
//! of two of them, its leading bits and what they leave, and three products out of four give the product of two f32 but
//! for a part in 2^21 (infinities give NaN). Sums are f32 in the hardware, but cut off instead of rounded, so long ones
//! are taken in stretches.
//!
//! Planes do not wait for each other: the operands of millions of rows go from memory straight to the registers of the
//! plane that multiplies them, the next ones while these are multiplied. The hardware wants values of a fragment in
//! certain lanes, but which index of the depth, or which result, a place of the fragment stands for is free. It is
//! chosen so that a lane loads vectors of four. Places are those of PTX `mma.m16n8k8`: with `g = lane / 4` and `t =
//! lane % 4`, the left operand has rows `g`, `g + 8` and depths `t`, `t + 4`, the right one column `g`, the result
//! columns `2 t`, `2 t + 1`.
//!
//! Source: the splitting is that of Markidis et al., NVIDIA tensor core programmability, performance and precision
//! (2018).

use cubecl::prelude::*;
use cubecl::{cmma::MmaDefinition, tf32};

use super::kernel::ProductSizes;
use crate::ops::combine::{Activation, activated};
use crate::runtime::args::{Matrix, launch_args};

/// Columns of a result that a cube computes.
pub(crate) const TILE: usize = 128;
/// Elements of a vector.
pub(crate) const VECTOR: usize = 4;
/// Depth that the loads of a plane cover: four lanes, two vectors each, which fill a sector of memory.
pub(crate) const BLOCK: usize = 32;
/// Planes of a cube of the tall product: as many as the registers allow, 168 a lane.
pub(crate) const PRODUCT_PLANES: u32 = 12;
/// Rows of a tall product that a cube computes at a time: 16 a plane.
pub(crate) const ROWS: usize = 16 * PRODUCT_PLANES as usize;

/// Fragments of a plane: one of 16 rows by sixteen of 8 columns, or four by four.
pub(super) const FRAGMENTS: usize = 16;
/// Fragments that are multiplied round robin: a sum is ready for the next product when the others have had theirs.
const ROUND_ROBIN: usize = 4;

/// What distinguishes one compiled product from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProductShape {
    /// Products that are added up, at most four.
    pub terms: usize,
    /// The depth that fits in shared memory; all of it, where there are several terms.
    pub chunk: usize,
    /// Weights are `[depth, columns]`, else `[columns, depth]`.
    pub turned: bool,
    /// Values are f32: see [`take_apart`].
    pub split: bool,
    pub bias: bool,
    /// Whether the sum is scaled and activated in the end.
    pub ends: bool,
    pub activation: Activation,
}

launch_args! {
    /// A factor of many rows and the small one.
    Term, TermArgs<G: Float, N: Size, Words: Size> {
        x: Matrix<u32, Words>,
        w: Matrix<G, N>,
        depth: usize,
        /// Where it starts and ends in the depth of all terms side by side, whole blocks each, in vectors.
        first: usize,
        end: usize,
    }
}

launch_args! {
    /// What is added up; terms that there are not are not read.
    Terms, TermsArgs<G: Float, N: Size, Words: Size> {
        a: Term<G, N, Words>,
        b: Term<G, N, Words>,
        c: Term<G, N, Words>,
        d: Term<G, N, Words>,
    }
}

/// Leading bits of values, and what they leave; without `split` they fit in a tf32 as they are.
#[cube]
pub(super) fn take_apart<S: Size>(
    values: &Array<f32>,
    lead: &mut Array<Vector<tf32, S>>,
    rest: &mut Array<Vector<tf32, S>>,
    #[comptime] len: usize,
    #[comptime] split: bool,
) {
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
}

/// Adds the product of a fragment and fragment `r` of the right operand to that fragment of the sums.
#[cube]
pub(super) fn multiply<S: Size, P: Size>(
    left: &Array<Vector<tf32, S>>,
    right: &Array<Vector<tf32, S>>,
    sums: &mut Array<Vector<f32, P>>,
    #[comptime] r: usize,
    #[comptime] fragment: usize,
) {
    let product = MmaDefinition::<tf32, tf32, f32>::new(16usize, 8usize, 8usize);
    let mut a = Array::<Vector<tf32, S>>::new(4usize);
    let mut b = Array::<Vector<tf32, S>>::new(2usize);
    let mut own = Array::<Vector<f32, P>>::new(2usize);
    #[unroll]
    for k in 0..4usize {
        a[k] = left[k];
    }
    #[unroll]
    for k in 0..2usize {
        b[k] = right[r * 2 + k];
        own[k] = sums[2 * fragment + k];
    }
    product.execute_inplace(&a, &b, &mut own);
    #[unroll]
    for k in 0..2usize {
        sums[2 * fragment + k] = own[k];
    }
}

#[cube]
pub(super) fn clear<P: Size>(sums: &mut Array<Vector<f32, P>>) {
    #[unroll]
    for s in 0..2 * FRAGMENTS {
        sums[s] = Vector::<f32, P>::empty().fill(0.0f32);
    }
}

/// Where vector `k` of column `column` of the weight lies in shared memory: odd columns have neighbours exchanged, so
/// that eight lanes which read every other of eight vectors of two columns meet no bank twice.
#[cube]
fn place(column: usize, k: usize, #[comptime] chunk: usize) -> usize {
    column * comptime!(chunk / VECTOR) + (k ^ (column & 1))
}

/// Brings `vectors` of the depth of 128 columns of a weight, from `first_depth` on, to place `first` of shared memory
/// and those behind it, the depth along a row, zeros beyond the limits. It is rounded to the dtype of `x`, `F`.
#[cube]
fn load_weight<F: Float, G: Float, N: Size>(
    w: &Matrix<G, N>,
    stage: &mut SharedMemory<Vector<f32, N>>,
    depth: usize,
    first_depth: usize,
    first: usize,
    vectors: usize,
    first_column: usize,
    columns: usize,
    #[comptime] shape: ProductShape,
) {
    let mut piece = (UNIT_POS_Y * CUBE_DIM_X + UNIT_POS_X) as usize;
    // A piece is four vectors: of four columns, so that they can be turned round.
    while piece < vectors * (TILE / VECTOR) {
        let k = piece % vectors;
        let group = piece / vectors;
        let mut loaded = Array::<Vector<f32, N>>::new(4usize);
        #[unroll]
        for r in 0..4usize {
            loaded[r] = Vector::<f32, N>::empty().fill(0.0f32);
            let along = first_depth + k * VECTOR;
            let across = first_column + group * VECTOR;
            if shape.turned {
                if along + r < depth && across < columns {
                    let value = w.values[(along + r) * w.stride + across / VECTOR];
                    loaded[r] = Vector::<f32, N>::cast_from(Vector::<F, N>::cast_from(value));
                }
            } else if across + r < columns && along < depth {
                let value = w.values[(across + r) * w.stride + along / VECTOR];
                loaded[r] = Vector::<f32, N>::cast_from(Vector::<F, N>::cast_from(value));
            }
        }
        #[unroll]
        for j in 0..4usize {
            let mut value = loaded[j];
            if shape.turned {
                #[unroll]
                for r in 0..4usize {
                    value[r] = loaded[r][j];
                }
            }
            stage[place(group * VECTOR + j, first + k, shape.chunk)] = value;
        }
        piece += (CUBE_DIM_X * CUBE_DIM_Y) as usize;
    }
}

/// [`load_weight`] of all of a term.
#[cube]
fn load_term<F: Float, G: Float, N: Size, Words: Size>(
    term: &Term<G, N, Words>,
    stage: &mut SharedMemory<Vector<f32, N>>,
    first_column: usize,
    columns: usize,
    #[comptime] shape: ProductShape,
) {
    load_weight::<F, G, N>(
        &term.w,
        stage,
        term.depth,
        0usize.runtime(),
        term.first,
        term.end - term.first,
        first_column,
        columns,
        shape,
    );
}

/// The values of a vector that was loaded as words. Halves would be taken out of their word as soon as it comes, and
/// every load be waited for.
#[cube]
pub(super) fn values_of<F: Float, N: Size, Words: Size>(words: Vector<u32, Words>) -> Vector<f32, N> {
    Vector::<f32, N>::cast_from(Vector::<F, N>::reinterpret(words))
}

/// A lane's vectors `k` and `k + 1` of rows `row + g` and `row + g + 8`; zeros beyond the depth, rows beyond the last
/// repeat it.
#[cube]
fn load_rows<Words: Size>(
    x: &Matrix<u32, Words>,
    loaded: &mut Array<Vector<u32, Words>>,
    row: usize,
    rows: usize,
    k: usize,
    depth: usize,
) {
    #[unroll]
    for half in 0..2usize {
        let at = row + half * 8 + UNIT_POS_X as usize / 4;
        let at = select(at < rows, at, rows - 1);
        #[unroll]
        for v in 0..2usize {
            loaded[2 * half + v] = Vector::<u32, Words>::empty().fill(0u32);
            if (k + v) * VECTOR < depth {
                loaded[2 * half + v] = x.values[at * x.stride + k + v];
            }
        }
    }
}

/// [`load_rows`] of a term, where the block of the depth from vector `block` on is its own.
#[cube]
fn load_own_rows<G: Float, N: Size, Words: Size>(
    term: &Term<G, N, Words>,
    loaded: &mut Array<Vector<u32, Words>>,
    row: usize,
    rows: usize,
    block: usize,
    k: usize,
) {
    if block >= term.first && block < term.end {
        load_rows::<Words>(&term.x, loaded, row, rows, k - term.first, term.depth);
    }
}

/// [`load_rows`] of the term that the block of the depth from vector `block` on belongs to.
#[cube]
fn load_block<G: Float, N: Size, Words: Size>(
    terms: &Terms<G, N, Words>,
    loaded: &mut Array<Vector<u32, Words>>,
    row: usize,
    rows: usize,
    block: usize,
    k: usize,
    #[comptime] count: usize,
) {
    if comptime!(count == 1) {
        load_rows::<Words>(&terms.a.x, loaded, row, rows, k, terms.a.depth);
    } else {
        load_own_rows::<G, N, Words>(&terms.a, loaded, row, rows, block, k);
        load_own_rows::<G, N, Words>(&terms.b, loaded, row, rows, block, k);
    }
    if comptime!(count > 2) {
        load_own_rows::<G, N, Words>(&terms.c, loaded, row, rows, block, k);
    }
    if comptime!(count > 3) {
        load_own_rows::<G, N, Words>(&terms.d, loaded, row, rows, block, k);
    }
}

/// `out = activation(scale (sum of x w + bias))`, or the sum alone: `x` `[rows, depth]`. Cubes stride over tiles of
/// rows (y of the grid: tiles of columns).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn tall_product_mma_kernel<F: Float, G: Float, N: Size, Words: Size>(
    terms: &Terms<G, N, Words>,
    bias: &Array<f32>,
    scale: f32,
    out: &mut Array<Vector<F, N>>,
    sizes: &ProductSizes,
    #[comptime] shape: ProductShape,
    #[define(F, G)] _types: [StorageType; 2],
) {
    let size!(S) = 1usize;
    let size!(P) = 2usize;
    let chunk = comptime!(shape.chunk);
    let split = comptime!(shape.split);
    let mut weight = SharedMemory::<Vector<f32, N>>::new(comptime!(TILE * chunk / VECTOR));
    let lane = UNIT_POS_X as usize;
    let odd = lane % 2 == 1;
    let first_column = CUBE_POS_Y as usize * TILE;
    let mut sums = Array::<Vector<f32, P>>::new(2 * FRAGMENTS);
    let mut next = Array::<Vector<u32, Words>>::new(4usize);
    let mut tile = CUBE_POS_X as usize;
    if sizes.depth <= chunk {
        load_term::<F, G, N, Words>(&terms.a, &mut weight, first_column, sizes.columns, shape);
        if shape.terms > 1 {
            load_term::<F, G, N, Words>(&terms.b, &mut weight, first_column, sizes.columns, shape);
        }
        if shape.terms > 2 {
            load_term::<F, G, N, Words>(&terms.c, &mut weight, first_column, sizes.columns, shape);
        }
        if shape.terms > 3 {
            load_term::<F, G, N, Words>(&terms.d, &mut weight, first_column, sizes.columns, shape);
        }
        sync_cube();
    }
    while tile * ROWS < sizes.rows {
        let row = tile * ROWS + UNIT_POS_Y as usize * 16;
        clear::<P>(&mut sums);
        let mut start = 0usize;
        while start < sizes.depth {
            if sizes.depth > chunk {
                sync_cube();
                load_weight::<F, G, N>(
                    &terms.a.w,
                    &mut weight,
                    sizes.depth,
                    start,
                    0usize.runtime(),
                    comptime!(chunk / VECTOR).runtime(),
                    first_column,
                    sizes.columns,
                    shape,
                );
                sync_cube();
            }
            let end = select(start + chunk < sizes.depth, start + chunk, sizes.depth);
            // A plane behind the last row multiplies nothing: of few rows, it would keep the others waiting.
            let end = select(row < sizes.rows, end, start);
            let mut k = start / VECTOR + lane % 4 * 2;
            load_block::<G, N, Words>(terms, &mut next, row, sizes.rows, start / VECTOR, k, shape.terms);
            let mut block = start;
            while block < end {
                let mut values = Array::<Vector<f32, N>>::new(4usize);
                #[unroll]
                for r in 0..4usize {
                    values[r] = values_of::<F, N, Words>(next[r]);
                }
                block += BLOCK;
                if block < end {
                    let ahead = k + BLOCK / VECTOR;
                    load_block::<G, N, Words>(terms, &mut next, row, sizes.rows, block / VECTOR, ahead, shape.terms);
                }
                let at = k - start / VECTOR;
                // Two vectors of four values, two values to a step.
                #[unroll]
                for step in 0..4usize {
                    let mut own = Array::<f32>::new(4usize);
                    #[unroll]
                    for part in 0..4usize {
                        own[part] = values[part % 2 * 2 + step / 2][2 * (step % 2) + part / 2];
                    }
                    let mut left = Array::<Vector<tf32, S>>::new(4usize);
                    let mut left_rest = Array::<Vector<tf32, S>>::new(4usize);
                    take_apart::<S>(&own, &mut left, &mut left_rest, 4usize, split);
                    #[unroll]
                    for group in 0..FRAGMENTS / ROUND_ROBIN {
                        let mut column = Array::<f32>::new(2 * ROUND_ROBIN);
                        #[unroll]
                        for slot in 0..ROUND_ROBIN {
                            let n = (group * ROUND_ROBIN + slot) * 8 + lane / 4;
                            let four = weight[place(n, at + step / 2, chunk)];
                            column[2 * slot] = four[2 * (step % 2)];
                            column[2 * slot + 1] = four[2 * (step % 2) + 1];
                        }
                        let mut right = Array::<Vector<tf32, S>>::new(2 * ROUND_ROBIN);
                        let mut right_rest = Array::<Vector<tf32, S>>::new(2 * ROUND_ROBIN);
                        take_apart::<S>(&column, &mut right, &mut right_rest, 2 * ROUND_ROBIN, split);
                        if split {
                            #[unroll]
                            for slot in 0..ROUND_ROBIN {
                                multiply::<S, P>(&left_rest, &right, &mut sums, slot, group * ROUND_ROBIN + slot);
                            }
                            #[unroll]
                            for slot in 0..ROUND_ROBIN {
                                multiply::<S, P>(&left, &right_rest, &mut sums, slot, group * ROUND_ROBIN + slot);
                            }
                        }
                        #[unroll]
                        for slot in 0..ROUND_ROBIN {
                            multiply::<S, P>(&left, &right, &mut sums, slot, group * ROUND_ROBIN + slot);
                        }
                    }
                }
                k += BLOCK / VECTOR;
            }
            start += chunk;
        }
        // Neighbouring lanes hold two columns each of two rows; they exchange them, so that each has four columns of
        // one.
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
            let at = row + lane / 4 + select(odd, 8usize, 0usize.runtime());
            let column = first_column + fragment * 8 + lane % 4 / 2 * 4;
            if at < sizes.rows && column < sizes.columns {
                if shape.bias {
                    #[unroll]
                    for n in 0..4usize {
                        four[n] += bias[column + n];
                    }
                }
                if shape.ends {
                    four = activated::<N>(four, scale, shape.activation);
                }
                out[(at * sizes.columns + column) / VECTOR] = Vector::<F, N>::cast_from(four);
            }
        }
        tile += CUBE_COUNT_X as usize;
    }
}
