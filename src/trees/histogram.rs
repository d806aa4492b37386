//! Gradient histograms: for every feature and bin of a leaf the sums over its rows, in fixed point and exact.

use graphsieve_kernels::GradientSum;
use rayon::prelude::*;

use super::dataset::{Column, Dataset, TILE};
use super::fixed_point::Gradients;

/// Rows added up in packed form before they are unpacked: 16 bits hold the count, 46 the hessian.
const PACKED_ROWS: usize = 1 << 15;
/// Rows whose gradients are gathered at a time: 32 KiB, and with 64 features 128 KiB of bins, stay in cache.
const GATHERED_ROWS: usize = 2048;
/// Words from one tile to the next in the gathered bins: a cache line more, so that the tiles fall into different sets.
const GATHERED_STRIDE: usize = GATHERED_ROWS + 8;
/// Fewest rows that are worth a task of their own.
const TASK_ROWS: usize = 4096;

/// The histograms of one leaf: for every feature the sums per bin, one feature after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    sums: Vec<GradientSum>,
}

/// Where each feature's bins lie in a [`Histogram`].
#[derive(Clone, Debug)]
pub struct Layout {
    /// `offsets[f]..offsets[f + 1]` are the bins of feature f; empty for a feature that is not built.
    offsets: Vec<usize>,
    /// Tiles of the row-major bins that hold at least one built feature.
    tiles: Vec<usize>,
    /// Built features with more than 256 bins.
    wide: Vec<u32>,
}

impl Layout {
    /// The layout for `features` of `data`, ascending.
    pub fn new(data: &Dataset, features: &[u32]) -> Self {
        let mut built = vec![false; data.features()];
        features.iter().for_each(|&f| built[f as usize] = true);
        let mut offsets = vec![0];
        for (mapper, &built) in data.mappers().iter().zip(&built) {
            let bins = if built { mapper.num_bin as usize } else { 0 };
            offsets.push(offsets.last().expect("starts with one entry") + bins);
        }
        let tiles = data.narrow().chunks(TILE).enumerate();
        let tiles = tiles.filter(|(_, tile)| tile.iter().any(|&f| built[f as usize])).map(|(at, _)| at).collect();
        let is_wide = |f: &u32| matches!(data.columns()[*f as usize], Column::U16(_));
        let wide = features.iter().copied().filter(is_wide).collect();
        Layout { offsets, tiles, wide }
    }

    fn len(&self) -> usize {
        *self.offsets.last().expect("starts with one entry")
    }

    fn span(&self, feature: u32) -> std::ops::Range<usize> {
        self.offsets[feature as usize]..self.offsets[feature as usize + 1]
    }
}

impl Histogram {
    /// Adds up `rows` for every feature of `layout`.
    pub fn build(data: &Dataset, layout: &Layout, gradients: &Gradients, rows: &[u32]) -> Self {
        let tasks = (rows.len() / TASK_ROWS).clamp(1, rayon::current_num_threads());
        let mut parts: Vec<Histogram> = rows
            .par_chunks(rows.len().div_ceil(tasks).max(1))
            .map(|part| Self::build_part(data, layout, gradients, part))
            .collect();
        let mut all = parts.pop().unwrap_or_else(|| Histogram { sums: vec![GradientSum::default(); layout.len()] });
        for part in &parts {
            all.sums.iter_mut().zip(&part.sums).for_each(|(all, &part)| *all += part);
        }
        all
    }

    fn build_part(data: &Dataset, layout: &Layout, gradients: &Gradients, rows: &[u32]) -> Self {
        let mut sums = vec![GradientSum::default(); layout.len()];
        let mut scratch = vec![TileSums::default(); layout.tiles.len()];
        let mut gathered = Vec::with_capacity(GATHERED_ROWS);
        let mut words = vec![0u64; GATHERED_STRIDE * layout.tiles.len()];
        for chunk in rows.chunks(PACKED_ROWS) {
            for block in chunk.chunks(GATHERED_ROWS) {
                gathered.clear();
                gathered.extend(block.iter().map(|&row| Packed::new(gradients.pairs[row as usize])));
                gather_bins(&mut words, data, layout, block);
                for (words, scratch) in words.chunks_exact(GATHERED_STRIDE).zip(&mut scratch) {
                    add_tile(scratch, words, &gathered);
                }
                for &feature in &layout.wide {
                    if let Column::U16(bins) = &data.columns()[feature as usize] {
                        let sums = &mut sums[layout.span(feature)];
                        for (&row, &packed) in block.iter().zip(&gathered) {
                            sums[bins[row as usize] as usize] += packed.sum();
                        }
                    }
                }
            }
            for (&tile, scratch) in layout.tiles.iter().zip(&mut scratch) {
                for (feature, from) in data.narrow()[tile * TILE..].iter().zip(scratch.0.chunks_exact_mut(256)) {
                    let to = &mut sums[layout.span(*feature)];
                    to.iter_mut().zip(from.iter()).for_each(|(to, from)| *to += from.sum());
                    from.fill(Packed::default());
                }
            }
        }
        Histogram { sums }
    }

    /// The sums of one feature by bin, every bin stored.
    pub fn feature(&self, layout: &Layout, feature: u32) -> &[GradientSum] {
        &self.sums[layout.span(feature)]
    }

    /// Turns a parent's histogram into that of the sibling of `child`.
    pub fn subtract(&mut self, child: &Histogram) {
        self.sums.iter_mut().zip(&child.sums).for_each(|(all, &child)| *all -= child);
    }
}

/// The sums of one feature over `rows`, read from its column: for leaves that look at few of the features.
pub fn column_sums(column: &Column, num_bin: u32, gradients: &Gradients, rows: &[u32]) -> Vec<GradientSum> {
    let mut sums = vec![GradientSum::default(); num_bin as usize];
    let mut add = |bin: usize, row: u32| {
        let [grad, hess] = gradients.pairs[row as usize];
        sums[bin] += GradientSum { grad: grad as i64, hess: hess as i64, count: 1 };
    };
    match column {
        Column::U8(bins) => rows.iter().for_each(|&row| add(bins[row as usize] as usize, row)),
        Column::U16(bins) => rows.iter().for_each(|&row| add(bins[row as usize] as usize, row)),
    }
    sums
}

/// Fills in the bin that was left out of `sums`: the leaf's total less all other bins. Exact in fixed point.
pub fn reconstruct(sums: &mut [GradientSum], left_out: u32, total: GradientSum) {
    sums[left_out as usize] = GradientSum::default();
    let others: GradientSum = sums.iter().copied().sum();
    sums[left_out as usize] = total - others;
}

/// Gradient in one lane, hessian · 2^16 + count in the other: one 128-bit addition per row and feature.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
struct Packed {
    grad: i64,
    hess_count: i64,
}

impl Packed {
    #[inline]
    fn new([grad, hess]: [i32; 2]) -> Self {
        Packed { grad: grad as i64, hess_count: ((hess as i64) << 16) + 1 }
    }

    #[inline]
    fn sum(self) -> GradientSum {
        GradientSum { grad: self.grad, hess: self.hess_count >> 16, count: self.hess_count & 0xffff }
    }
}

#[derive(Clone, Debug)]
struct TileSums(Box<[Packed; TILE * 256]>);

impl Default for TileSums {
    fn default() -> Self {
        TileSums(Box::new([Packed::default(); TILE * 256]))
    }
}

/// Copies the bins of `block`, eight features to a word, tile after tile. The rows of a small leaf lie far apart: with
/// nothing else to do per row, many of their cache lines are on the way at the same time.
#[inline(never)]
fn gather_bins(words: &mut [u64], data: &Dataset, layout: &Layout, block: &[u32]) {
    let (bins, stride) = data.row_major();
    let (bins, per_row) = (bins.as_chunks::<TILE>().0, stride / TILE);
    for (at, &row) in block.iter().enumerate() {
        let line = &bins[line_of(row, per_row)];
        for (slot, &tile) in layout.tiles.iter().enumerate() {
            words[slot * GATHERED_STRIDE + at] = u64::from_le_bytes(line[tile]);
        }
    }
}

/// Tiles of `row`. Their number passes 2^32 long before that of the rows does.
#[inline]
fn line_of(row: u32, per_row: usize) -> std::ops::Range<usize> {
    let start = row as usize * per_row;
    start..start + per_row
}

/// The hot loop. A bin is a byte of a word and a feature has 256 slots, so no index needs a check.
#[inline(never)]
fn add_tile(sums: &mut TileSums, words: &[u64], gathered: &[Packed]) {
    let sums: &mut [Packed; TILE * 256] = &mut sums.0;
    for (&word, &packed) in words.iter().zip(gathered) {
        for slot in 0..TILE {
            let sum = &mut sums[slot * 256 + (word >> (8 * slot)) as u8 as usize];
            sum.grad += packed.grad;
            sum.hess_count += packed.hess_count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_32nd_bit_are_found() {
        assert_eq!(line_of(u32::MAX, 8), 34_359_738_360..34_359_738_368);
        assert_eq!(line_of(1 << 29, 16), 1 << 33..(1 << 33) + 16);
    }

    #[test]
    fn packed_sums_hold_the_largest_rows() {
        for extreme in [1 << 30, -(1 << 30)] {
            let mut packed = Packed::default();
            for _ in 0..PACKED_ROWS {
                let row = Packed::new([extreme, 1 << 30]);
                packed.grad += row.grad;
                packed.hess_count += row.hess_count;
            }
            let rows = PACKED_ROWS as i64;
            assert_eq!(packed.sum(), GradientSum { grad: extreme as i64 * rows, hess: rows << 30, count: rows });
        }
    }
}
