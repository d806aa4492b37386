//! In-neighbour lists of one relation in compressed sparse rows.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::array::Array;
use crate::splitmix::mix;

/// Rows and entries below which one task does the work: large enough to hide the cost of handing it over.
const GRAIN: usize = 1 << 14;
/// Rows that are read before the memory of what lies in a file is given back.
const BLOCK: usize = 1 << 20;

/// Why arrays do not form an [`Adjacency`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdjacencyError {
    /// `row_ptr` has no element; even a matrix without rows has one.
    #[error("row_ptr is empty, expected one more element than rows")]
    Empty,
    /// There are more rows or columns than ids of 32 bits can name.
    #[error("{found} rows or columns, expected at most {}", u32::MAX)]
    TooLarge { found: usize },
    /// `row_ptr[0]` is not zero.
    #[error("row_ptr[0] is {found}, expected 0")]
    FirstNotZero { found: u64 },
    /// `row_ptr[row + 1] < row_ptr[row]`.
    #[error("row {row} starts at {start} and ends before it, at {end}")]
    Decreasing { row: usize, start: u64, end: u64 },
    /// The last element of `row_ptr` is not the number of entries.
    #[error("row_ptr ends at {end}, but col_idx has {entries} entries")]
    Overrun { end: u64, entries: usize },
    /// An entry is not below the number of columns.
    #[error("entry {entry} is {col}, expected less than {num_cols}")]
    ColumnOutOfRange { entry: usize, col: u32, num_cols: usize },
    /// Rows as spans have another number of starts than of ends.
    #[error("{starts} starts of rows and {ends} ends")]
    LengthsDiffer { starts: usize, ends: usize },
    /// A span ends behind the last entry.
    #[error("row {row} ends at {end}, but col_idx has {entries} entries")]
    SpanOverrun { row: usize, end: u64, entries: usize },
}

/// How the rows of an [`Adjacency`] lie in its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows<'a> {
    /// One behind another: row `i` is `row_ptr[i]..row_ptr[i + 1]`.
    Lists { row_ptr: &'a [u64] },
    /// Each with a start and an end of its own: row `i` is `start[i]..end[i]`.
    Spans { start: &'a [u64], end: Vec<u64> },
}

/// In-neighbours of every destination row; entries are ids *local* to the source type.
///
/// Row `i` is `col_idx[row_ptr[i]..row_ptr[i + 1]]`, or, where rows are spans, `col_idx[start[i]..end[i]]`: rows can
/// then share entries, as payments share the earlier payments of their card, and what an entry stands in counts as
/// often as there are edges to it. Rows may be empty; entries may repeat and need not be sorted, though all lists that
/// this crate builds are. Spans of events are in the order of time. Entries that are read from a data directory stay in
/// its file, so that they can be more than memory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjacency {
    /// Where the edges of each row begin, counted row after row, and their number.
    edge_ptr: Vec<u64>,
    /// Where each row begins among the entries; without it edges are entries.
    row_start: Option<Vec<u64>>,
    col_idx: Array<u32>,
    num_cols: usize,
}

impl Adjacency {
    /// Takes over both arrays after checking every element.
    ///
    /// # Errors
    /// The first element that breaks the layout, see [`AdjacencyError`].
    pub fn new(row_ptr: Vec<u64>, col_idx: Vec<u32>, num_cols: usize) -> Result<Self, AdjacencyError> {
        let (Some(&first), Some(&end)) = (row_ptr.first(), row_ptr.last()) else { return Err(AdjacencyError::Empty) };
        let largest = num_cols.max(row_ptr.len() - 1);
        if largest > u32::MAX as usize {
            return Err(AdjacencyError::TooLarge { found: largest });
        }
        if first != 0 {
            return Err(AdjacencyError::FirstNotZero { found: first });
        }
        if let Some(row) = row_ptr.par_windows(2).with_min_len(GRAIN).position_first(|w| w[1] < w[0]) {
            return Err(AdjacencyError::Decreasing { row, start: row_ptr[row], end: row_ptr[row + 1] });
        }
        if end != col_idx.len() as u64 {
            return Err(AdjacencyError::Overrun { end, entries: col_idx.len() });
        }
        check_columns(&col_idx, num_cols)?;
        Ok(Self::from_checked(row_ptr, col_idx, num_cols))
    }

    /// Takes over rows as spans, `col_idx[start[i]..end[i]]`, after checking every element.
    ///
    /// # Errors
    /// The first element that breaks the layout, see [`AdjacencyError`].
    ///
    /// # Example
    /// ```
    /// use graphsieve::graph::Adjacency;
    /// // Four payments of one card: each has those before it in its row, at most two.
    /// let earlier = Adjacency::from_spans(vec![0, 0, 0, 1], vec![0, 1, 2, 3], vec![0, 1, 2, 3], 4)?;
    /// assert_eq!((earlier.row(3), earlier.num_edges(), earlier.num_entries()), (&[1, 2][..], 5, 4));
    /// assert_eq!(earlier.reverse().row(1), [2, 3]);
    /// # Ok::<(), graphsieve::graph::AdjacencyError>(())
    /// ```
    pub fn from_spans(
        row_start: Vec<u64>,
        row_end: Vec<u64>,
        col_idx: Vec<u32>,
        num_cols: usize,
    ) -> Result<Self, AdjacencyError> {
        Self::spans_of(row_start, row_end, col_idx.into(), num_cols)
    }

    /// [`from_spans`](Self::from_spans) of entries that lie anywhere.
    pub(super) fn spans_of(
        row_start: Vec<u64>,
        row_end: Vec<u64>,
        col_idx: Array<u32>,
        num_cols: usize,
    ) -> Result<Self, AdjacencyError> {
        if row_start.len() != row_end.len() {
            return Err(AdjacencyError::LengthsDiffer { starts: row_start.len(), ends: row_end.len() });
        }
        let largest = num_cols.max(row_start.len());
        if largest > u32::MAX as usize {
            return Err(AdjacencyError::TooLarge { found: largest });
        }
        let entries = col_idx.len();
        let is_bad = |(start, end): (&u64, &u64)| end < start || *end > entries as u64;
        if let Some(row) = row_start.par_iter().zip(&row_end).with_min_len(GRAIN).position_first(is_bad) {
            let (start, end) = (row_start[row], row_end[row]);
            return Err(match end < start {
                true => AdjacencyError::Decreasing { row, start, end },
                false => AdjacencyError::SpanOverrun { row, end, entries },
            });
        }
        check_columns(&col_idx, num_cols)?;
        Ok(Self::from_checked_spans(row_start, &row_end, col_idx, num_cols))
    }

    /// Takes over arrays that the caller has checked already.
    pub(crate) fn from_checked(row_ptr: Vec<u64>, col_idx: Vec<u32>, num_cols: usize) -> Self {
        Self::lists_of(row_ptr, col_idx.into(), num_cols)
    }

    /// [`from_checked`](Self::from_checked) of entries that lie anywhere.
    pub(crate) fn lists_of(row_ptr: Vec<u64>, col_idx: Array<u32>, num_cols: usize) -> Self {
        debug_assert_eq!(row_ptr.last().copied(), Some(col_idx.len() as u64));
        Self { edge_ptr: row_ptr, row_start: None, col_idx, num_cols }
    }

    /// Takes over spans that the caller has checked already.
    pub(crate) fn from_checked_spans(
        row_start: Vec<u64>,
        row_end: &[u64],
        col_idx: Array<u32>,
        num_cols: usize,
    ) -> Self {
        let lengths = row_start.iter().zip(row_end).map(|(start, end)| end - start);
        let mut edge_ptr: Vec<u64> = std::iter::once(0).chain(lengths).collect();
        accumulate(&mut edge_ptr);
        Self { edge_ptr, row_start: Some(row_start), col_idx, num_cols }
    }

    /// Builds sorted rows from `(destination row, source column)` pairs of local ids; duplicates are removed.
    ///
    /// # Panics
    /// When a row or column is out of range.
    pub fn from_edges(num_rows: usize, num_cols: usize, edges: &[(u32, u32)]) -> Self {
        let pack = |&(row, col): &(u32, u32)| {
            assert!((row as usize) < num_rows, "row {row} is out of range: there are {num_rows} rows");
            assert!((col as usize) < num_cols, "column {col} is out of range: there are {num_cols} columns");
            u64::from(row) << 32 | u64::from(col)
        };
        let mut keys: Vec<u64> = edges.par_iter().with_min_len(GRAIN).map(pack).collect();
        keys.par_sort_unstable();
        keys.dedup();
        let mut row_ptr = vec![0u64; num_rows + 1];
        for key in &keys {
            row_ptr[(key >> 32) as usize + 1] += 1;
        }
        accumulate(&mut row_ptr);
        let col_idx: Vec<u32> = keys.par_iter().with_min_len(GRAIN).map(|&key| key as u32).collect();
        Self::from_checked(row_ptr, col_idx, num_cols)
    }

    /// Number of destination nodes.
    pub fn num_rows(&self) -> usize {
        self.edge_ptr.len() - 1
    }

    /// Number of source nodes.
    pub fn num_cols(&self) -> usize {
        self.num_cols
    }

    /// Number of edges: the lengths of all rows together.
    pub fn num_edges(&self) -> usize {
        self.edge_ptr.last().map_or(0, |&end| end as usize)
    }

    /// Number of entries, which rows as spans share.
    pub fn num_entries(&self) -> usize {
        self.col_idx.len()
    }

    /// How the rows lie in the entries.
    pub fn rows(&self) -> Rows<'_> {
        match &self.row_start {
            None => Rows::Lists { row_ptr: &self.edge_ptr },
            Some(start) => {
                let end = start.iter().zip(self.edge_ptr.windows(2)).map(|(start, edges)| start + edges[1] - edges[0]);
                Rows::Spans { start, end: end.collect() }
            }
        }
    }

    /// Numbers that hold it: entries, and where rows lie in them.
    pub fn num_words(&self) -> usize {
        self.num_entries() + if self.is_spans() { 2 * self.num_rows() } else { self.num_rows() + 1 }
    }

    /// Whether rows are spans, which can share entries.
    pub fn is_spans(&self) -> bool {
        self.row_start.is_some()
    }

    /// Source ids of all rows: one row behind another, or what spans are part of.
    pub fn col_idx(&self) -> &[u32] {
        &self.col_idx
    }

    /// [`col_idx`](Self::col_idx) and where it lies.
    pub(crate) fn entry_array(&self) -> &Array<u32> {
        &self.col_idx
    }

    /// In-neighbours of row `i`.
    ///
    /// # Panics
    /// When `i` is not below [`num_rows`](Self::num_rows).
    pub fn row(&self, i: usize) -> &[u32] {
        &self.col_idx[self.entries(i)]
    }

    /// Positions of the entries of row `i`.
    ///
    /// # Panics
    /// When `i` is not below [`num_rows`](Self::num_rows).
    pub fn entries(&self, i: usize) -> Range<usize> {
        let start = match &self.row_start {
            None => self.edge_ptr[i],
            Some(starts) => starts[i],
        } as usize;
        start..start + self.degree(i)
    }

    /// Number of in-neighbours of row `i`, repeated ones counted as often as they occur.
    ///
    /// # Panics
    /// When `i` is not below [`num_rows`](Self::num_rows).
    pub fn degree(&self, i: usize) -> usize {
        (self.edge_ptr[i + 1] - self.edge_ptr[i]) as usize
    }

    /// Row and column of edge `e`, counted row after row, by binary search.
    ///
    /// # Panics
    /// When `e` is not below [`num_edges`](Self::num_edges).
    pub fn edge(&self, e: usize) -> (usize, u32) {
        assert!(e < self.num_edges(), "edge {e} is out of range: there are {} edges", self.num_edges());
        let row = self.edge_ptr.partition_point(|&first| first <= e as u64) - 1;
        (row, self.row(row)[e - self.edge_ptr[row] as usize])
    }

    /// The rows `rows` alone, and which of the entries they are in. Spans keep all entries.
    ///
    /// # Panics
    /// When `rows` ends behind the last row.
    pub fn slice(&self, rows: Range<usize>) -> (Adjacency, Range<usize>) {
        let edges = &self.edge_ptr[rows.start..=rows.end];
        let entries = match &self.row_start {
            None => edges[0] as usize..edges[edges.len() - 1] as usize,
            Some(_) => 0..self.num_entries(),
        };
        let part = Self {
            edge_ptr: edges.iter().map(|end| end - edges[0]).collect(),
            row_start: self.row_start.as_ref().map(|starts| starts[rows].to_vec()),
            col_idx: self.col_idx[entries.clone()].to_vec().into(),
            num_cols: self.num_cols,
        };
        (part, entries)
    }

    /// The same edges seen from the sources: rows = source nodes, entries = destinations, every row sorted.
    ///
    /// A counting sort whose scatter runs in parallel; sorting the rows afterwards makes the result independent of the
    /// order in which threads arrive. The reverse of spans is spans where that can be, see the module `spans`.
    pub fn reverse(&self) -> Adjacency {
        if self.is_spans() {
            return self.reverse_of_spans().unwrap_or_else(|| self.expanded().reverse());
        }
        let cursors: Vec<AtomicU64> = (0..self.num_cols).map(|_| AtomicU64::new(0)).collect();
        self.col_idx.par_iter().with_min_len(GRAIN).for_each(|&col| {
            cursors[col as usize].fetch_add(1, Relaxed);
        });
        let mut row_ptr = Vec::with_capacity(self.num_cols + 1);
        let mut start = 0;
        for cursor in &cursors {
            row_ptr.push(start);
            start += cursor.swap(start, Relaxed);
        }
        row_ptr.push(start);

        let slots: Vec<AtomicU32> = (0..self.num_edges()).map(|_| AtomicU32::new(0)).collect();
        (0..self.num_rows()).into_par_iter().with_min_len(256).for_each(|row| {
            for &col in self.row(row) {
                slots[cursors[col as usize].fetch_add(1, Relaxed) as usize].store(row as u32, Relaxed);
            }
        });
        // Same size and alignment: `collect` reuses the allocation.
        let mut col_idx: Vec<u32> = slots.into_iter().map(AtomicU32::into_inner).collect();
        for_each_row_mut(&row_ptr, &mut col_idx, &|_, entries| entries.sort_unstable());
        Adjacency::from_checked(row_ptr, col_idx, self.num_rows())
    }

    /// The edges `(row, column)` that `keep` wants, in the same order. What a row keeps of a span is its own: where
    /// edges go, every row has its list.
    pub(crate) fn filtered(&self, keep: impl Fn(u32, u32) -> bool + Sync) -> Adjacency {
        const ROWS: usize = 1 << 12;
        let of_block = |block: usize| {
            let rows = block * ROWS..self.num_rows().min((block + 1) * ROWS);
            let (mut lengths, mut kept) = (Vec::with_capacity(rows.len()), Vec::new());
            for row in rows {
                let before = kept.len();
                kept.extend(self.row(row).iter().copied().filter(|&col| keep(row as u32, col)));
                lengths.push((kept.len() - before) as u64);
            }
            (lengths, kept)
        };
        let blocks = (0..self.num_rows().div_ceil(ROWS)).into_par_iter();
        let (lengths, kept): (Vec<Vec<u64>>, Vec<Vec<u32>>) = blocks.map(of_block).unzip();
        let mut row_ptr: Vec<u64> = std::iter::once(0).chain(lengths.into_iter().flatten()).collect();
        accumulate(&mut row_ptr);
        let edges = row_ptr[self.num_rows()] as usize;
        if edges == self.num_edges() {
            return self.clone();
        }
        // Each block is freed before the next one is copied.
        let mut col_idx = Vec::with_capacity(edges);
        kept.into_iter().for_each(|kept| col_idx.extend_from_slice(&kept));
        Adjacency::from_checked(row_ptr, col_idx, self.num_cols)
    }

    /// The entries, in their order, whose `(row, column)` `keep` wants; rows are lists.
    pub(crate) fn entries_where(&self, keep: impl Fn(u32, u32) -> bool) -> impl Iterator<Item = usize> {
        (0..self.num_rows()).flat_map(move |row| {
            let kept = self.entries(row).zip(self.row(row)).filter(|(_, col)| keep(row as u32, **col));
            kept.map(|(entry, _)| entry).collect::<Vec<_>>()
        })
    }

    /// Whether `other` holds exactly the edges of `self` with rows and columns exchanged, in whatever order.
    ///
    /// Compares the counts and an order-independent 64-bit hash of the pairs.
    pub fn is_reverse_of(&self, other: &Adjacency) -> bool {
        self.may_reverse(other) && self.edge_hash() == other.reverse_edge_hash()
    }

    /// Sum over all edges of a hash of `(row, column)`, modulo 2^64.
    pub(crate) fn edge_hash(&self) -> u64 {
        self.sum_over_edges(|row, col| mix(row << 32 | col))
    }

    /// [`edge_hash`](Self::edge_hash) of the reverse, without building it.
    pub(crate) fn reverse_edge_hash(&self) -> u64 {
        self.sum_over_edges(|row, col| mix(col << 32 | row))
    }

    fn sum_over_edges(&self, term: impl Fn(u64, u64) -> u64 + Sync) -> u64 {
        let of_row = |row: usize| {
            self.row(row).iter().fold(0u64, |sum, &col| sum.wrapping_add(term(row as u64, u64::from(col))))
        };
        let of_block = |first: usize| {
            self.col_idx.let_go();
            let rows = first..self.num_rows().min(first + BLOCK);
            rows.into_par_iter().with_min_len(256).map(of_row).reduce(|| 0, u64::wrapping_add)
        };
        (0..self.num_rows()).step_by(BLOCK).map(of_block).fold(0, u64::wrapping_add)
    }
}

/// Whether every entry is below the number of columns.
fn check_columns(col_idx: &[u32], num_cols: usize) -> Result<(), AdjacencyError> {
    let is_bad = |&col: &u32| col as usize >= num_cols;
    match col_idx.par_iter().with_min_len(GRAIN).position_first(is_bad) {
        None => Ok(()),
        Some(entry) => Err(AdjacencyError::ColumnOutOfRange { entry, col: col_idx[entry], num_cols }),
    }
}

/// Turns counts shifted by one (`row_ptr[i + 1]` = length of row `i`) into row starts.
pub(crate) fn accumulate(row_ptr: &mut [u64]) {
    let mut sum = 0;
    for value in row_ptr {
        sum += *value;
        *value = sum;
    }
}

/// Calls `f(row, entries of the row)` for every row, in parallel.
pub(crate) fn for_each_row_mut(row_ptr: &[u64], entries: &mut [u32], f: &(impl Fn(usize, &mut [u32]) + Sync)) {
    fn split(rows: Range<usize>, row_ptr: &[u64], entries: &mut [u32], f: &(impl Fn(usize, &mut [u32]) + Sync)) {
        let length = |from: usize, to: usize| (row_ptr[to] - row_ptr[from]) as usize;
        if rows.len() <= 1 || rows.len() + entries.len() <= GRAIN {
            let mut rest = entries;
            for row in rows {
                let (entries, behind) = rest.split_at_mut(length(row, row + 1));
                f(row, entries);
                rest = behind;
            }
            return;
        }
        let middle = rows.start + rows.len() / 2;
        let (left, right) = entries.split_at_mut(length(rows.start, middle));
        rayon::join(|| split(rows.start..middle, row_ptr, left, f), || split(middle..rows.end, row_ptr, right, f));
    }
    split(0..row_ptr.len() - 1, row_ptr, entries, f);
}

#[cfg(test)]
mod tests;
