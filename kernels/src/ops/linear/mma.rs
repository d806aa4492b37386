//! The products of [`super::kernel`] on tensor cores, to the accuracy of f32; that of two tall matrices is in
//! [`super::gram_mma`]. How an f32 is multiplied is told in [`super::halves`]; f16 and bf16 are multiplied as they are.
//!
//! Planes do not wait for each other: the rows of millions go from memory straight to the registers of the plane that
//! multiplies them, the next ones while these are multiplied. The small factor lies in shared memory, taken apart.
//!
//! The hardware wants values of a fragment in certain lanes, but which index of the depth, or which result, a place of
//! the fragment stands for is free. It is chosen so that a lane loads and stores vectors of four. Places are those of
//! PTX `mma.m16n8k16`: with `g = lane / 4` and `t = lane % 4`, the left operand has rows `g`, `g + 8` and depths `2 t`,
//! `2 t + 1`, `2 t + 8`, `2 t + 9`, the right one column `g`, the result columns `2 t`, `2 t + 1`.
//!
//! A step takes four words of a lane for each row and each column: an f32 vector, 16 of the depth, or two vectors of
//! halves, 32 of it.

use cubecl::prelude::*;

use super::halves::{
    Fragments, START, clear, column_of_place, exceeds, fragments, lower, most_of_four_lanes, multiply, power_for,
    power_of, root_of, take_apart, take_words,
};
use super::kernel::ProductSizes;
use crate::ops::combine::{Activation, activated};
use crate::runtime::args::{Matrix, launch_args};

/// Columns of a result that a cube computes.
pub(crate) const TILE: usize = 128;
/// Elements of a vector.
pub(crate) const VECTOR: usize = 4;
/// Planes of a cube of the tall product: as many as the registers allow, 255 a lane.
pub(crate) const PRODUCT_PLANES: u32 = 8;
/// Rows of a tall product that a cube computes at a time: 32 a plane.
pub(crate) const ROWS: usize = 32 * PRODUCT_PLANES as usize;

/// Fragments of a plane: two of 16 rows by sixteen of 8 columns.
const HIGH: usize = 2;
const WIDE: usize = 16;
/// Rows of a lane.
const OWN_ROWS: usize = 2 * HIGH;
/// Columns of fragments that are multiplied in turn: a sum is ready for the next product when the others have had
/// theirs.
const IN_TURN: usize = 4;

/// Vectors of the depth that a lane has of a row in a step.
const fn vectors_of_step(split: bool) -> usize {
    if split { 1 } else { 2 }
}

/// Depth of a step; terms begin at whole ones.
pub(crate) const fn depth_of_step(split: bool) -> usize {
    4 * VECTOR * vectors_of_step(split)
}

/// What distinguishes one compiled product from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProductShape {
    /// Products that are added up, at most four.
    pub terms: usize,
    /// The depth of what is in shared memory at a time, an even number of steps.
    pub chunk: usize,
    /// Whether that is all of it.
    pub whole: bool,
    /// Weights are `[depth, columns]`, else `[columns, depth]`.
    pub turned: bool,
    /// Values are f32: see [`super::halves`].
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
        /// Where it starts and ends in the depth of all terms side by side, whole steps each, in vectors.
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

/// Where words `k` of column `column` of the weight lie in shared memory: columns take turns, so that eight lanes which
/// read what two columns have for them meet no bank twice.
#[cube]
fn place(column: usize, k: usize, #[comptime] shape: ProductShape) -> usize {
    column * comptime!(shape.chunk / VECTOR / vectors_of_step(shape.split)) + (k ^ (column % 2 * 4))
}

/// The largest magnitudes of a lane's four columns of a weight, in the vectors of the depth that are its plane's.
#[cube]
fn measure_weight<G: Float, N: Size>(
    w: &Matrix<G, N>,
    most: &mut Array<Vector<f32, N>>,
    depth: usize,
    first_column: usize,
    columns: usize,
    #[comptime] turned: bool,
) {
    let column = first_column + UNIT_POS_X as usize * VECTOR;
    let mut along = UNIT_POS_Y as usize * VECTOR;
    while along < depth {
        let mut own = most[0];
        #[unroll]
        for r in 0..VECTOR {
            if turned {
                if along + r < depth && column < columns {
                    let value = Vector::<f32, N>::cast_from(w.values[(along + r) * w.stride + column / VECTOR]);
                    own = max(own, value.abs());
                }
            } else if column + r < columns {
                let value = Vector::<f32, N>::cast_from(w.values[(column + r) * w.stride + along / VECTOR]).abs();
                own[r] = max(max(own[r], max(value[0], value[1])), max(value[2], value[3]));
            }
        }
        most[0] = own;
        along += CUBE_DIM_Y as usize * VECTOR;
    }
}

/// [`measure_weight`] of all terms.
#[cube]
fn measure_terms<G: Float, N: Size, Words: Size>(
    terms: &Terms<G, N, Words>,
    first_column: usize,
    sizes: &ProductSizes,
    #[comptime] shape: ProductShape,
) -> Vector<f32, N> {
    let mut most = Array::<Vector<f32, N>>::new(1usize);
    most[0] = Vector::<f32, N>::empty().fill(0.0f32);
    measure_weight::<G, N>(&terms.a.w, &mut most, terms.a.depth, first_column, sizes.columns, shape.turned);
    if shape.terms > 1 {
        measure_weight::<G, N>(&terms.b.w, &mut most, terms.b.depth, first_column, sizes.columns, shape.turned);
    }
    if shape.terms > 2 {
        measure_weight::<G, N>(&terms.c.w, &mut most, terms.c.depth, first_column, sizes.columns, shape.turned);
    }
    if shape.terms > 3 {
        measure_weight::<G, N>(&terms.d.w, &mut most, terms.d.depth, first_column, sizes.columns, shape.turned);
    }
    most[0]
}

/// Roots of the powers that columns of the weights are multiplied by; `stage` is used on the way.
#[cube]
fn find_roots<N: Size>(
    most: Vector<f32, N>,
    stage: &mut SharedMemory<Vector<u32, N>>,
    roots: &mut SharedMemory<Vector<f32, N>>,
) {
    let lane = UNIT_POS_X as usize;
    stage[UNIT_POS_Y as usize * 32 + lane] = Vector::<u32, N>::reinterpret(most);
    sync_cube();
    if UNIT_POS_Y == 0 {
        let mut most = most;
        for plane in 1..CUBE_DIM_Y as usize {
            most = max(most, Vector::<f32, N>::reinterpret(stage[plane * 32 + lane]));
        }
        let mut own = Vector::<f32, N>::empty();
        #[unroll]
        for k in 0..VECTOR {
            own[k] = root_of(power_for(most[k]));
        }
        roots[lane] = own;
    }
    sync_cube();
}

/// Brings `vectors` of the depth of 128 columns of a weight, from `first_depth` on, to place `first` of shared memory
/// and those behind it, the depth along a row, zeros beyond the limits. It is rounded to the dtype of `x`, `F`.
#[cube]
fn load_weight<F: Float, G: Float, H: Float, N: Size>(
    w: &Matrix<G, N>,
    stage: &mut SharedMemory<Vector<u32, N>>,
    roots: &SharedMemory<Vector<f32, N>>,
    depth: usize,
    first_depth: usize,
    first: usize,
    vectors: usize,
    first_column: usize,
    columns: usize,
    #[comptime] shape: ProductShape,
) {
    let size!(P) = 2usize;
    let count = comptime!(vectors_of_step(shape.split));
    let words = vectors / count;
    let mut piece = (UNIT_POS_Y * CUBE_DIM_X + UNIT_POS_X) as usize;
    // A piece is four columns, so that vectors of four of them can be turned round.
    while piece < words * (TILE / VECTOR) {
        let k = piece % words;
        let group = piece / words;
        let across = first_column + group * VECTOR;
        let mut loaded = Array::<Vector<F, N>>::new(comptime!(4 * count));
        #[unroll]
        for v in 0..count {
            let along = first_depth + (k / 4 * (4 * count) + v * 4 + k % 4) * VECTOR;
            #[unroll]
            for r in 0..4usize {
                loaded[4 * v + r] = Vector::<F, N>::empty().fill(F::new(0.0));
                if shape.turned {
                    if along + r < depth && across < columns {
                        loaded[4 * v + r] = Vector::cast_from(w.values[(along + r) * w.stride + across / VECTOR]);
                    }
                } else if across + r < columns && along < depth {
                    loaded[4 * v + r] = Vector::cast_from(w.values[(across + r) * w.stride + along / VECTOR]);
                }
            }
        }
        #[unroll]
        for j in 0..4usize {
            let mut lead = Array::<Vector<H, P>>::new(comptime!(2 * count));
            let mut rest = Array::<Vector<H, P>>::new(2usize);
            #[unroll]
            for v in 0..count {
                let mut value = loaded[4 * v + j];
                if shape.turned {
                    #[unroll]
                    for r in 0..4usize {
                        value[r] = loaded[4 * v + r][j];
                    }
                }
                #[unroll]
                for part in 0..2usize {
                    if shape.split {
                        let power = power_of(roots[group][j]);
                        let upper = f32::cast_from(value[2 * part]) * power;
                        take_apart::<H, P>(
                            upper,
                            f32::cast_from(value[2 * part + 1]) * power,
                            &mut lead,
                            &mut rest,
                            part,
                        );
                    } else {
                        let mut pair = Vector::<H, P>::empty();
                        pair[0] = H::cast_from(value[2 * part]);
                        pair[1] = H::cast_from(value[2 * part + 1]);
                        lead[2 * v + part] = pair;
                    }
                }
            }
            let mut four = Vector::<u32, N>::empty();
            #[unroll]
            for part in 0..2usize {
                four[part] = u32::reinterpret(lead[part]);
                if shape.split {
                    four[2 + part] = u32::reinterpret(rest[part]);
                } else {
                    four[2 + part] = u32::reinterpret(lead[2 + part]);
                }
            }
            stage[place(group * VECTOR + j, first / count + k, shape)] = four;
        }
        piece += (CUBE_DIM_X * CUBE_DIM_Y) as usize;
    }
}

/// [`load_weight`] of all of a term.
#[cube]
fn load_term<F: Float, G: Float, H: Float, N: Size, Words: Size>(
    term: &Term<G, N, Words>,
    stage: &mut SharedMemory<Vector<u32, N>>,
    roots: &SharedMemory<Vector<f32, N>>,
    first_column: usize,
    columns: usize,
    #[comptime] shape: ProductShape,
) {
    load_weight::<F, G, H, N>(
        &term.w,
        stage,
        roots,
        term.depth,
        0usize.runtime(),
        term.first,
        term.end - term.first,
        first_column,
        columns,
        shape,
    );
}

/// Loads a step of a lane's rows `row + g`, `row + g + 8` and so on, whose vectors begin at `first`; zeros beyond the
/// depth, rows beyond the last repeat it.
#[cube]
fn load_rows<Words: Size>(
    x: &Matrix<u32, Words>,
    ahead: &mut Array<Vector<u32, Words>>,
    row: usize,
    rows: usize,
    first: usize,
    depth: usize,
    #[comptime] split: bool,
) {
    let count = comptime!(vectors_of_step(split));
    #[unroll]
    for own in 0..OWN_ROWS {
        let at = row + own * 8 + UNIT_POS_X as usize / 4;
        let at = select(at < rows, at, rows - 1);
        #[unroll]
        for v in 0..count {
            let k = first + v * 4 + UNIT_POS_X as usize % 4;
            let slot = comptime!(own * count + v);
            ahead[slot] = Vector::<u32, Words>::empty().fill(0u32);
            if k * VECTOR < depth {
                ahead[slot] = x.values[at * x.stride + k];
            }
        }
    }
}

/// [`load_rows`] of a term, where vectors from `first` of all depth on are its own.
#[cube]
fn load_own_rows<G: Float, N: Size, Words: Size>(
    term: &Term<G, N, Words>,
    ahead: &mut Array<Vector<u32, Words>>,
    row: usize,
    rows: usize,
    first: usize,
    #[comptime] split: bool,
) {
    if first >= term.first && first < term.end {
        load_rows::<Words>(&term.x, ahead, row, rows, first - term.first, term.depth, split);
    }
}

/// [`load_rows`] of the term that vectors from `first` of all depth on belong to.
#[cube]
fn load_step<G: Float, N: Size, Words: Size>(
    terms: &Terms<G, N, Words>,
    ahead: &mut Array<Vector<u32, Words>>,
    row: usize,
    rows: usize,
    first: usize,
    #[comptime] shape: ProductShape,
) {
    if comptime!(shape.terms == 1) {
        load_rows::<Words>(&terms.a.x, ahead, row, rows, first, terms.a.depth, shape.split);
    } else {
        load_own_rows::<G, N, Words>(&terms.a, ahead, row, rows, first, shape.split);
        load_own_rows::<G, N, Words>(&terms.b, ahead, row, rows, first, shape.split);
    }
    if comptime!(shape.terms > 2) {
        load_own_rows::<G, N, Words>(&terms.c, ahead, row, rows, first, shape.split);
    }
    if comptime!(shape.terms > 3) {
        load_own_rows::<G, N, Words>(&terms.d, ahead, row, rows, first, shape.split);
    }
}

/// Lowers the powers of a lane's rows where what was loaded of them needs it, and their sums with them.
#[cube]
fn fit_rows<Words: Size, P: Size>(
    ahead: &Array<Vector<u32, Words>>,
    powers: &mut Array<f32>,
    sums: &mut Fragments<f32, P>,
) {
    let mut most = Array::<f32>::new(OWN_ROWS);
    let mut too_large = false;
    #[unroll]
    for own in 0..OWN_ROWS {
        most[own] = 0.0f32;
        #[unroll]
        for k in 0..VECTOR {
            most[own] = max(most[own], f32::reinterpret(ahead[own][k]).abs());
        }
        too_large = too_large || exceeds(most[own], powers[own]);
    }
    if plane_any(too_large) {
        #[unroll]
        for own in 0..OWN_ROWS {
            let factor = lower(powers, most_of_four_lanes(most[own]), own);
            #[unroll]
            for column in 0..WIDE {
                let sum = sums.index_mut(comptime!(own / 2 * WIDE + column));
                sum[own % 2] *= Vector::<f32, P>::empty().fill(factor);
            }
        }
    }
}

/// Fragments of the left operand of a step: the leading bits of f32 and what they leave, or two fragments of halves.
#[cube]
fn take_rows_apart<H: Float, Words: Size, P: Size>(
    ahead: &Array<Vector<u32, Words>>,
    powers: &Array<f32>,
    left: &mut Fragments<H, P>,
    other: &mut Fragments<H, P>,
    #[comptime] split: bool,
) {
    #[unroll]
    for own in 0..OWN_ROWS {
        let left = left.index_mut(comptime!(own / 2));
        let other = other.index_mut(comptime!(own / 2));
        #[unroll]
        for part in 0..2usize {
            let at = comptime!(2 * part + own % 2);
            if split {
                let words = ahead[own];
                let upper = f32::reinterpret(words[2 * part]) * powers[own];
                take_apart::<H, P>(upper, f32::reinterpret(words[2 * part + 1]) * powers[own], left, other, at);
            } else {
                let slot = comptime!(own * 2);
                left[at] = Vector::<H, P>::reinterpret(ahead[slot][part]);
                other[at] = Vector::<H, P>::reinterpret(ahead[slot + 1][part]);
            }
        }
    }
}

/// Adds the products of a step: fragments of the left operand, and words `at` of each column of the weight.
#[cube]
fn multiply_step<H: Float, N: Size, P: Size>(
    left: &Fragments<H, P>,
    other: &Fragments<H, P>,
    weight: &SharedMemory<Vector<u32, N>>,
    sums: &mut Fragments<f32, P>,
    at: usize,
    #[comptime] shape: ProductShape,
) {
    #[unroll]
    for group in 0..WIDE / IN_TURN {
        let mut right = fragments::<H, P>(IN_TURN, 2usize);
        let mut right_other = fragments::<H, P>(IN_TURN, 2usize);
        #[unroll]
        for slot in 0..IN_TURN {
            let column = column_of_place(UNIT_POS_X as usize / 4, comptime!(group * IN_TURN + slot));
            take_words::<H, N, P>(weight[place(column, at, shape)], &mut right, &mut right_other, slot);
        }
        if shape.split {
            multiply_in_turn::<H, P>(other, &right, sums, group);
            multiply_in_turn::<H, P>(left, &right_other, sums, group);
        } else {
            multiply_in_turn::<H, P>(other, &right_other, sums, group);
        }
        multiply_in_turn::<H, P>(left, &right, sums, group);
    }
}

/// Adds the products of all fragments of the left operand and those of a group of columns.
#[cube]
fn multiply_in_turn<H: Float, P: Size>(
    left: &Fragments<H, P>,
    right: &Fragments<H, P>,
    sums: &mut Fragments<f32, P>,
    #[comptime] group: usize,
) {
    #[unroll]
    for slot in 0..IN_TURN {
        #[unroll]
        for m in 0..HIGH {
            multiply::<H, P>(left, right, sums, m, slot, m * WIDE + group * IN_TURN + slot);
        }
    }
}

/// `out = activation(scale (sum of x w + bias))`, or the sum alone: `x` `[rows, depth]`. Cubes stride over tiles of
/// rows (y of the grid: tiles of columns).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn tall_product_mma_kernel<F: Float, G: Float, H: Float, N: Size, Words: Size>(
    terms: &Terms<G, N, Words>,
    bias: &Array<f32>,
    scale: f32,
    out: &mut Array<Vector<F, N>>,
    sizes: &ProductSizes,
    #[comptime] shape: ProductShape,
    #[define(F, G, H)] _types: [StorageType; 3],
) {
    let size!(P) = 2usize;
    let chunk = comptime!(shape.chunk);
    let split = comptime!(shape.split);
    let step = comptime!(depth_of_step(split));
    let mut weight = SharedMemory::<Vector<u32, N>>::new(comptime!(TILE * chunk / VECTOR / vectors_of_step(split)));
    let mut roots = SharedMemory::<Vector<f32, N>>::new(TILE / VECTOR);
    let g_lane = UNIT_POS_X as usize / 4;
    let t_lane = UNIT_POS_X as usize % 4;
    let first_column = CUBE_POS_Y as usize * TILE;
    let mut sums = fragments::<f32, P>(comptime!(HIGH * WIDE), 2usize);
    let mut ahead = Array::<Vector<u32, Words>>::new(comptime!(OWN_ROWS * vectors_of_step(split)));
    let mut powers = Array::<f32>::new(OWN_ROWS);
    let stride = CUBE_COUNT_X as usize * ROWS;
    let mut row = CUBE_POS_X as usize * ROWS + UNIT_POS_Y as usize * (8 * OWN_ROWS);
    load_step::<G, N, Words>(terms, &mut ahead, row, sizes.rows, 0usize.runtime(), shape);
    if split {
        find_roots::<N>(measure_terms::<G, N, Words>(terms, first_column, sizes, shape), &mut weight, &mut roots);
    }
    if shape.whole {
        load_term::<F, G, H, N, Words>(&terms.a, &mut weight, &roots, first_column, sizes.columns, shape);
        if shape.terms > 1 {
            load_term::<F, G, H, N, Words>(&terms.b, &mut weight, &roots, first_column, sizes.columns, shape);
        }
        if shape.terms > 2 {
            load_term::<F, G, H, N, Words>(&terms.c, &mut weight, &roots, first_column, sizes.columns, shape);
        }
        if shape.terms > 3 {
            load_term::<F, G, H, N, Words>(&terms.d, &mut weight, &roots, first_column, sizes.columns, shape);
        }
        sync_cube();
    }
    let mut tile = CUBE_POS_X as usize;
    while tile * ROWS < sizes.rows {
        clear::<P>(&mut sums, comptime!(HIGH * WIDE));
        #[unroll]
        for own in 0..OWN_ROWS {
            powers[own] = START;
        }
        let mut start = 0usize;
        while start < sizes.depth {
            if !shape.whole {
                sync_cube();
                load_weight::<F, G, H, N>(
                    &terms.a.w,
                    &mut weight,
                    &roots,
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
            let mut at = start;
            while at < end {
                let mut left = fragments::<H, P>(HIGH, 4usize);
                let mut other = fragments::<H, P>(HIGH, 4usize);
                if split {
                    fit_rows::<Words, P>(&ahead, &mut powers, &mut sums);
                }
                take_rows_apart::<H, Words, P>(&ahead, &powers, &mut left, &mut other, split);
                // Behind the end of a row comes the next one of this lane.
                let ends = at + step >= sizes.depth;
                let next_row = select(ends, row + stride, row);
                if next_row < sizes.rows {
                    let first = select(ends, 0usize.runtime(), at + step) / VECTOR;
                    load_step::<G, N, Words>(terms, &mut ahead, next_row, sizes.rows, first, shape);
                }
                let words = (at - start) / comptime!(VECTOR * vectors_of_step(split)) + t_lane;
                multiply_step::<H, N, P>(&left, &other, &weight, &mut sums, words, shape);
                at += step;
            }
            start += chunk;
        }
        let mut row_roots = Array::<f32>::new(OWN_ROWS);
        if split {
            #[unroll]
            for own in 0..OWN_ROWS {
                row_roots[own] = root_of(powers[own]);
            }
        }
        #[unroll]
        for pair in 0..WIDE / 2 {
            let own_column = pair * 16 + t_lane * VECTOR;
            let column = first_column + own_column;
            if column < sizes.columns {
                let mut added = Vector::<f32, N>::empty();
                if shape.bias {
                    #[unroll]
                    for n in 0..VECTOR {
                        added[n] = bias[column + n];
                    }
                }
                let column_roots = roots[own_column / VECTOR];
                #[unroll]
                for own in 0..OWN_ROWS {
                    let at = row + own * 8 + g_lane;
                    if at < sizes.rows {
                        let mut four = Vector::<f32, N>::empty();
                        #[unroll]
                        for n in 0..VECTOR {
                            let sum = sums.index(comptime!(own / 2 * WIDE + 2 * pair + n / 2));
                            four[n] = sum[own % 2][n % 2];
                        }
                        if split {
                            let both = column_roots * Vector::<f32, N>::empty().fill(row_roots[own]);
                            four = four * both * both;
                        }
                        if shape.bias {
                            four += added;
                        }
                        if shape.ends {
                            four = activated::<N>(four, scale, shape.activation);
                        }
                        out[(at * sizes.columns + column) / VECTOR] = Vector::<F, N>::cast_from(four);
                    }
                }
            }
        }
        row += stride;
        tile += CUBE_COUNT_X as usize;
    }
}
