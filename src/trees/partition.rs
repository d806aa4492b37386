//! Stable partition of a leaf's rows.

use rayon::prelude::*;

use super::dataset::Column;

/// Rows that are worth a task of their own.
const TASK_ROWS: usize = 1 << 14;

/// Moves the rows whose bin is marked in `left_bins` to the front and returns how many there are; both sides keep
/// their order. `scratch` is at least as long as `rows`.
pub fn partition(rows: &mut [u32], scratch: &mut [u32], column: &Column, left_bins: &[bool]) -> usize {
    match column {
        Column::U8(bins) => {
            let mut table = [false; 256];
            table[..left_bins.len()].copy_from_slice(left_bins);
            partition_by(rows, scratch, |row| table[bins[row as usize] as usize])
        }
        Column::U16(bins) => partition_by(rows, scratch, |row| left_bins[bins[row as usize] as usize]),
    }
}

fn partition_by(rows: &mut [u32], scratch: &mut [u32], goes_left: impl Fn(u32) -> bool + Sync) -> usize {
    let len = rows.len();
    if len == 0 {
        return 0;
    }
    let chunk = len.div_ceil(rayon::current_num_threads()).max(TASK_ROWS);
    // Left rows fill each chunk of the scratch from its front, right rows from its back.
    let lefts: Vec<usize> = rows
        .par_chunks(chunk)
        .zip(scratch[..len].par_chunks_mut(chunk))
        .map(|(rows, out)| {
            let (mut left, mut free) = (0, out.len());
            for &row in rows {
                let goes_left = goes_left(row) as usize;
                out[left] = row;
                out[free - 1] = row;
                left += goes_left;
                free -= 1 - goes_left;
            }
            left
        })
        .collect();
    let total: usize = lefts.iter().sum();
    let (mut to_left, mut to_right) = rows.split_at_mut(total);
    let mut jobs = Vec::with_capacity(lefts.len());
    for (out, &left) in scratch[..len].chunks(chunk).zip(&lefts) {
        let (a, rest) = to_left.split_at_mut(left);
        to_left = rest;
        let (b, rest) = to_right.split_at_mut(out.len() - left);
        to_right = rest;
        jobs.push((a, b, out));
    }
    jobs.into_par_iter().for_each(|(a, b, out)| {
        let left = a.len();
        a.copy_from_slice(&out[..left]);
        b.iter_mut().zip(out[left..].iter().rev()).for_each(|(b, &row)| *b = row);
    });
    total
}
