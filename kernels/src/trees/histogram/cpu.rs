//! Histograms on the CPU.

use std::ops::Range;

use burn::tensor::ops::IntTensor;
use burn::tensor::{Bytes, DType};
use burn_flex::{Flex, FlexTensor, Layout};
use rayon::prelude::*;

use super::bins::{BinParts, Storage, TILE_FEATURES, TILE_WORDS};
use super::{HistogramBackend, WORDS};
use crate::runtime::flex::ids;

/// Rows of one task.
const TASK_ROWS: usize = 1 << 14;

pub(crate) fn i64s(tensor: &FlexTensor) -> &[i64] {
    tensor.as_slice().expect("sums are contiguous i64")
}

pub(crate) fn i64_vector(values: Vec<i64>) -> FlexTensor {
    let len = values.len();
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous([len].into()), DType::I64)
}

/// Sums of whole numbers: any order gives the same.
fn sum_tasks(rows: &[i32], len: usize, add: impl Fn(&mut [i64], i32) + Sync) -> Vec<i64> {
    let of_task = |rows: &[i32]| {
        let mut sums = vec![0; len];
        rows.iter().for_each(|&row| add(&mut sums, row));
        sums
    };
    let plus = |mut a: Vec<i64>, b: Vec<i64>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    rows.par_chunks(TASK_ROWS).map(of_task).reduce_with(plus).unwrap_or_else(|| vec![0; len])
}

fn add(sums: &mut [i64], bin: usize, gradients: &[i32], row: usize) {
    sums[WORDS * bin] += i64::from(gradients[2 * row]);
    sums[WORDS * bin + 1] += i64::from(gradients[2 * row + 1]);
    sums[WORDS * bin + 2] += 1;
}

impl HistogramBackend for Flex {
    fn build_histogram(
        bins: &BinParts<IntTensor<Self>>,
        gradients: &IntTensor<Self>,
        rows: &IntTensor<Self>,
        span: Range<usize>,
    ) -> IntTensor<Self> {
        let (gradients, rows) = (ids(gradients), &ids(rows)[span]);
        let len = WORDS * bins.num_bins;
        i64_vector(match &bins.storage {
            Storage::Dense(dense) => {
                let (words, tiles) = (ids(&dense.words), ids(&dense.tiles).as_chunks::<TILE_WORDS>().0);
                let (wide, features) = (ids(&dense.wide), ids(&dense.wide_features).as_chunks::<2>().0);
                sum_tasks(rows, len, |sums, row| {
                    let row = row as usize;
                    for (tile, about) in tiles[..dense.num_tiles].iter().enumerate() {
                        let bytes = words[tile * bins.num_rows + row].to_le_bytes();
                        for k in 0..TILE_FEATURES {
                            if i32::from(bytes[k]) != about[k] {
                                add(sums, about[TILE_FEATURES + k] as usize + bytes[k] as usize, gradients, row);
                            }
                        }
                    }
                    for (column, &[offset, left_out]) in features[..dense.num_wide].iter().enumerate() {
                        let bin = wide[column * bins.num_rows + row];
                        if bin != left_out {
                            add(sums, (offset + bin) as usize, gradients, row);
                        }
                    }
                })
            }
            Storage::Sparse(sparse) => {
                let (row_ptr, entries) = (ids(&sparse.row_ptr), ids(&sparse.entries));
                sum_tasks(rows, len, |sums, row| {
                    let row = row as usize;
                    for &at in &entries[row_ptr[row] as usize..row_ptr[row + 1] as usize] {
                        add(sums, at as usize, gradients, row);
                    }
                })
            }
        })
    }

    fn gradient_total(gradients: &IntTensor<Self>, rows: &IntTensor<Self>, span: Range<usize>) -> IntTensor<Self> {
        let gradients = ids(gradients);
        i64_vector(sum_tasks(&ids(rows)[span], WORDS, |sums, row| add(sums, 0, gradients, row as usize)))
    }

    fn reconstruct_bins(
        sums: IntTensor<Self>,
        bins: &BinParts<IntTensor<Self>>,
        total: &IntTensor<Self>,
    ) -> IntTensor<Self> {
        let (offsets, left_out, total) = (ids(&bins.offsets), ids(&bins.left_out), i64s(total));
        let mut sums = i64s(&sums).to_vec();
        for (feature, &left_out) in left_out[..bins.num_features].iter().enumerate().filter(|(_, l)| **l >= 0) {
            let sums = &mut sums[WORDS * offsets[feature] as usize..WORDS * offsets[feature + 1] as usize];
            for word in 0..WORDS {
                let at = WORDS * left_out as usize + word;
                sums[at] = 0;
                sums[at] = total[word] - sums[word..].iter().step_by(WORDS).sum::<i64>();
            }
        }
        i64_vector(sums)
    }

    fn subtract_histogram(parent: IntTensor<Self>, child: &IntTensor<Self>) -> IntTensor<Self> {
        i64_vector(i64s(&parent).iter().zip(i64s(child)).map(|(parent, child)| parent - child).collect())
    }
}
