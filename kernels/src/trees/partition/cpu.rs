//! Partition of rows on the CPU.

use std::ops::Range;

use burn::tensor::ops::IntTensor;
use burn_flex::Flex;
use rayon::prelude::*;

use super::PartitionBackend;
use crate::runtime::flex::{self, ids};
use crate::trees::histogram::{BinParts, Storage, TILE_FEATURES};

/// Rows of one task.
const TASK_ROWS: usize = 1 << 14;

impl PartitionBackend for Flex {
    fn partition_rows(
        rows: &mut IntTensor<Self>,
        span: Range<usize>,
        bins: &BinParts<IntTensor<Self>>,
        feature: usize,
        goes_left: &IntTensor<Self>,
    ) {
        let marks = ids(goes_left);
        let rows = &mut flex::ints_mut(rows)[span];
        let goes_left = |row: i32| {
            let row = row as usize;
            let bin = match &bins.storage {
                Storage::Dense(dense) => {
                    let [column, byte] = dense.places[feature];
                    match byte {
                        TILE_FEATURES => ids(&dense.wide)[column * bins.num_rows + row] as usize,
                        _ => ids(&dense.words)[column * bins.num_rows + row].to_le_bytes()[byte] as usize,
                    }
                }
                Storage::Sparse(sparse) => {
                    let row_ptr = ids(&sparse.row_ptr);
                    let of_row = &ids(&sparse.entries)[row_ptr[row] as usize..row_ptr[row + 1] as usize];
                    let span = &bins.spans[feature];
                    let stored = of_row.iter().map(|&at| at as usize).find(|at| span.contains(at));
                    stored.map_or(bins.left_outs[feature].unwrap_or(0) as usize, |at| at - span.start)
                }
            };
            marks[bin] != 0
        };
        let part = |wanted: bool| {
            rows.par_chunks(TASK_ROWS)
                .flat_map_iter(move |rows| rows.iter().copied().filter(move |&row| goes_left(row) == wanted))
        };
        let parted: Vec<i32> = part(true).chain(part(false)).collect();
        rows.copy_from_slice(&parted);
    }
}
