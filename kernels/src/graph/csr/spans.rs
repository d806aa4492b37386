//! Where rows start and end on the host, and the reverse of rows that share their entries.

use std::ops::Range;

use rayon::prelude::*;

use super::error::CsrError;

/// Where the rows of an adjacency start and end among its entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBounds<'a> {
    pub start: &'a [u64],
    pub end: &'a [u64],
    /// Whether these are spans, which may overlap; else a row ends where the next one starts.
    pub spans: bool,
}

impl<'a> RowBounds<'a> {
    /// Rows one behind the other; `row_ptr` has an element.
    pub fn lists(row_ptr: &'a [u64]) -> Self {
        Self { start: &row_ptr[..row_ptr.len() - 1], end: &row_ptr[1..], spans: false }
    }

    pub fn spans(start: &'a [u64], end: &'a [u64]) -> Self {
        Self { start, end, spans: true }
    }

    pub fn len(&self) -> usize {
        self.start.len()
    }

    pub fn row(&self, row: usize) -> Range<usize> {
        self.start[row] as usize..self.end[row] as usize
    }

    pub fn rows(self) -> impl Iterator<Item = (u32, Range<usize>)> + 'a {
        (0..self.len()).map(move |row| (row as u32, self.row(row)))
    }
}

pub(super) fn check_spans(rows: RowBounds<'_>, entries: usize) -> Result<(), CsrError> {
    let RowBounds { start, end, .. } = rows;
    if start.len() != end.len() {
        return Err(CsrError::SpanEnds { row_start: start.len(), row_end: end.len() });
    }
    let is_bad = |(&start, &end): (&u64, &u64)| end < start || end > entries as u64;
    if let Some(row) = start.par_iter().zip(end).position_first(is_bad) {
        let (start, end) = (start[row], end[row]);
        return Err(match end < start {
            true => CsrError::BackwardSpan { row, start, end },
            false => CsrError::SpanOutOfRange { row, end, entries },
        });
    }
    Ok(())
}

/// What [`reverse_spans`] found.
pub(super) struct ReverseSpans {
    pub start: Vec<u64>,
    pub end: Vec<u64>,
    pub col_idx: Vec<u32>,
}

/// The reverse as spans of the rows sorted by their ends, where it is that: every source stands at most once among the
/// entries, and in that order the starts ascend, too.
///
/// Then an entry `p` is seen from the first row that ends behind it to the last one that starts at or before it. So it
/// is for histories: all that came before, the latest few, windows of time.
pub(super) fn reverse_spans(rows: RowBounds<'_>, col_idx: &[u32], num_cols: usize) -> Option<ReverseSpans> {
    if col_idx.len() > num_cols {
        return None;
    }
    let RowBounds { start, end, .. } = rows;
    let bounds = |row: &u32| (end[*row as usize], start[*row as usize]);
    let mut by_end: Vec<u32> = (0..rows.len() as u32).filter(|&row| !rows.row(row as usize).is_empty()).collect();
    by_end.par_sort_unstable_by_key(|row| (bounds(row), *row));
    if !by_end.is_sorted_by_key(|row| bounds(row).1) {
        return None;
    }
    let (mut reverse_start, mut reverse_end) = (vec![0; num_cols], vec![0; num_cols]);
    let mut stood = vec![false; num_cols];
    let (mut first, mut last) = (0, 0);
    for (entry, &source) in col_idx.iter().enumerate() {
        if std::mem::replace(&mut stood[source as usize], true) {
            return None;
        }
        while by_end.get(first).is_some_and(|row| bounds(row).0 <= entry as u64) {
            first += 1;
        }
        while by_end.get(last).is_some_and(|row| bounds(row).1 <= entry as u64) {
            last += 1;
        }
        (reverse_start[source as usize], reverse_end[source as usize]) = (first as u64, last as u64);
    }
    Some(ReverseSpans { start: reverse_start, end: reverse_end, col_idx: by_end })
}

#[cfg(test)]
mod tests;
