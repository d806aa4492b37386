//! The product of two tall matrices on tensor cores, to the accuracy of f32. Here they multiply tf32: the exponent of
//! f32, ten bits of fraction. Rows are the depth, and come from memory straight to the registers of each plane that
//! multiplies them; with [`super::halves`] every plane would have to find powers for all of its columns.
//!
//! An f32 is the sum of two tf32, as it is of two halves; f16 and bf16 fit exactly. Sums are f32 in the hardware, but
//! cut off instead of rounded, so long ones are taken in stretches.
//!
//! Places of fragments are those of PTX `mma.m16n8k8`: with `g = lane / 4` and `t = lane % 4`, the left operand has
//! rows `g`, `g + 8` and depths `t`, `t + 4`, the right one column `g`, the result columns `2 t`, `2 t + 1`.

use cubecl::prelude::*;
use cubecl::{cmma::MmaDefinition, tf32};

use super::kernel::{GramFactors, GramSizes};
use super::mma::{TILE, VECTOR};
use crate::runtime::args::Matrix;

/// Planes of a cube of the gram product: two by four, 64 x 32 results each.
pub(crate) const GRAM_PLANES: u32 = 8;
/// Fragments of a plane: four of 16 rows by four of 8 columns.
const FRAGMENTS: usize = 16;
/// Rows after which the sums of the hardware are added to those in shared memory.
const FLUSH: usize = 256;

/// Leading bits of values, and what they leave; without `split` they fit in a tf32 as they are.
#[cube]
fn take_apart<S: Size>(
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
fn multiply<S: Size, P: Size>(
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
fn clear<P: Size>(sums: &mut Array<Vector<f32, P>>) {
    #[unroll]
    for s in 0..2 * FRAGMENTS {
        sums[s] = Vector::<f32, P>::empty().fill(0.0f32);
    }
}

/// The values of a vector that was loaded as words. Halves would be taken out of their word as soon as it comes, and
/// every load be waited for.
#[cube]
fn values_of<F: Float, N: Size, Words: Size>(words: Vector<u32, Words>) -> Vector<f32, N> {
    Vector::<f32, N>::cast_from(Vector::<F, N>::reinterpret(words))
}

/// A lane's vectors of `parts` rows `4 r + t` from `row` on: vector `8 group + g` from vector `first` on of each. Rows
/// from `end` on and vectors from `vectors` on are zeros.
#[cube]
fn load_columns<Words: Size>(
    x: &Matrix<u32, Words>,
    loaded: &mut Array<Vector<u32, Words>>,
    row: usize,
    end: usize,
    first: usize,
    vectors: usize,
    #[comptime] groups: usize,
    #[comptime] parts: usize,
) {
    #[unroll]
    for group in 0..groups {
        let vector = first + group * 8 + UNIT_POS_X as usize / 4;
        #[unroll]
        for r in 0..parts {
            let at = row + r * 4 + UNIT_POS_X as usize % 4;
            loaded[group * parts + r] = Vector::<u32, Words>::empty().fill(0u32);
            if at < end && vector < vectors {
                loaded[group * parts + r] = x.values[at * x.stride + vector];
            }
        }
    }
}

/// Partial sums of `x^T g` over stretches of rows: `x` `[rows, height]`, `g` `[rows, width]`, `partial` `[stretches,
/// height, width]`. A cube per stretch (x of the grid) and tile of the result (y and z).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn partial_gram_mma_kernel<F: Float, N: Size, Words: Size>(
    factors: &GramFactors<u32, Words>,
    partial: &mut Array<Vector<f32, N>>,
    sizes: &GramSizes,
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
    let mut row = stretch * sizes.rows_per_stretch;
    let end = select(row + sizes.rows_per_stretch < sizes.rows, row + sizes.rows_per_stretch, sizes.rows);
    let mut since_flush = 0usize;
    // Rows at a time: as many as the registers take, since they are what is on its way from memory.
    let parts = comptime!(if split { 4usize } else { 8 });
    let mut xs = Array::<Vector<u32, Words>>::new(comptime!(2 * parts));
    let mut gs = Array::<Vector<u32, Words>>::new(parts);
    let mut next_x = Array::<Vector<u32, Words>>::new(comptime!(2 * parts));
    let mut next_g = Array::<Vector<u32, Words>>::new(parts);
    load_columns::<Words>(&factors.x, &mut next_x, row, end, top, sizes.height, 2usize, parts);
    load_columns::<Words>(&factors.g, &mut next_g, row, end, left, sizes.width, 1usize, parts);
    while row < end {
        #[unroll]
        for k in 0..2 * parts {
            xs[k] = next_x[k];
        }
        #[unroll]
        for k in 0..parts {
            gs[k] = next_g[k];
        }
        row += comptime!(4 * parts);
        if row < end {
            load_columns::<Words>(&factors.x, &mut next_x, row, end, top, sizes.height, 2usize, parts);
            load_columns::<Words>(&factors.g, &mut next_g, row, end, left, sizes.width, 1usize, parts);
        }
        // A fragment of rows takes two of a vector's four, one of columns takes one of them.
        #[unroll]
        for step in 0..parts / 2 {
            let upper = values_of::<F, N, Words>(gs[2 * step]);
            let lower = values_of::<F, N, Words>(gs[2 * step + 1]);
            let mut columns_of = Array::<f32>::new(8usize);
            #[unroll]
            for n in 0..4usize {
                columns_of[2 * n] = upper[n];
                columns_of[2 * n + 1] = lower[n];
            }
            let mut right = Array::<Vector<tf32, S>>::new(8usize);
            let mut right_rest = Array::<Vector<tf32, S>>::new(8usize);
            take_apart::<S>(&columns_of, &mut right, &mut right_rest, 8usize, split);
            #[unroll]
            for m in 0..4usize {
                let mut rows_of = Array::<f32>::new(4usize);
                #[unroll]
                for half in 0..2usize {
                    let four = values_of::<F, N, Words>(xs[m / 2 * parts + 2 * step + half]);
                    rows_of[2 * half] = four[m % 2 * 2];
                    rows_of[2 * half + 1] = four[m % 2 * 2 + 1];
                }
                let mut left_lead = Array::<Vector<tf32, S>>::new(4usize);
                let mut left_rest = Array::<Vector<tf32, S>>::new(4usize);
                take_apart::<S>(&rows_of, &mut left_lead, &mut left_rest, 4usize, split);
                if split {
                    #[unroll]
                    for n in 0..4usize {
                        multiply::<S, P>(&left_rest, &right, &mut sums, n, m * 4 + n);
                    }
                    #[unroll]
                    for n in 0..4usize {
                        multiply::<S, P>(&left_lead, &right_rest, &mut sums, n, m * 4 + n);
                    }
                }
                #[unroll]
                for n in 0..4usize {
                    multiply::<S, P>(&left_lead, &right, &mut sums, n, m * 4 + n);
                }
            }
        }
        since_flush += comptime!(4 * parts);
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
    // Row `8 half + g` of fragment `m` is result row `4 g + 2 (m % 2) + half` of its group; column `2 t + pair` of the
    // four fragments `n` are the results `8 t + 4 pair + n`.
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
                if result < sizes.height * VECTOR && column < sizes.width {
                    partial[(stretch * sizes.height * VECTOR + result) * sizes.width + column] = four;
                }
            }
        }
    }
}
