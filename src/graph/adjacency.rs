//! In-neighbour lists of one relation in compressed sparse rows.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use crate::splitmix::mix;

/// Rows and entries below which one task does the work: large enough to hide the cost of handing it over.
const GRAIN: usize = 1 << 14;

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
    #[error("entry {edge} (row {row}) is {col}, expected less than {num_cols}")]
    ColumnOutOfRange { edge: usize, row: usize, col: u32, num_cols: usize },
}

/// In-neighbours of every destination row; entries are ids *local* to the source type.
///
/// Row `i` is `col_idx[row_ptr[i]..row_ptr[i + 1]]`. Rows may be empty; entries may repeat and need not be sorted,
/// though everything this crate builds has sorted rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjacency {
    row_ptr: Vec<u64>,
    col_idx: Vec<u32>,
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
        let adjacency = Self { row_ptr, col_idx, num_cols };
        let bad = |chunk: &[u32]| chunk.iter().position(|&col| col as usize >= num_cols);
        let chunks = adjacency.col_idx.par_chunks(GRAIN).enumerate();
        match chunks.find_map_first(|(chunk, entries)| bad(entries).map(|at| chunk * GRAIN + at)) {
            None => Ok(adjacency),
            Some(edge) => Err(AdjacencyError::ColumnOutOfRange {
                edge,
                row: adjacency.row_of_edge(edge as u64),
                col: adjacency.col_idx[edge],
                num_cols,
            }),
        }
    }

    /// Takes over arrays that the caller has checked already.
    pub(crate) fn from_checked(row_ptr: Vec<u64>, col_idx: Vec<u32>, num_cols: usize) -> Self {
        debug_assert_eq!(row_ptr.last().copied(), Some(col_idx.len() as u64));
        Self { row_ptr, col_idx, num_cols }
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
        let col_idx = keys.par_iter().with_min_len(GRAIN).map(|&key| key as u32).collect();
        Self { row_ptr, col_idx, num_cols }
    }

    /// Number of destination nodes.
    pub fn num_rows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Number of source nodes.
    pub fn num_cols(&self) -> usize {
        self.num_cols
    }

    /// Number of entries.
    pub fn num_edges(&self) -> usize {
        self.col_idx.len()
    }

    /// Start of every row and, as the last element, the number of entries.
    pub fn row_ptr(&self) -> &[u64] {
        &self.row_ptr
    }

    /// Source ids of all rows, one row behind another.
    pub fn col_idx(&self) -> &[u32] {
        &self.col_idx
    }

    /// In-neighbours of row `i`.
    ///
    /// # Panics
    /// When `i` is not below [`num_rows`](Self::num_rows).
    pub fn row(&self, i: usize) -> &[u32] {
        &self.col_idx[self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize]
    }

    /// Positions of the entries of row `i`.
    pub fn entries(&self, i: usize) -> std::ops::Range<usize> {
        self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize
    }

    /// Number of in-neighbours of row `i`, repeated ones counted as often as they occur.
    ///
    /// # Panics
    /// When `i` is not below [`num_rows`](Self::num_rows).
    pub fn degree(&self, i: usize) -> usize {
        (self.row_ptr[i + 1] - self.row_ptr[i]) as usize
    }

    /// The row that holds entry `e`, by binary search.
    ///
    /// # Panics
    /// When `e` is not below [`num_edges`](Self::num_edges).
    pub fn row_of_edge(&self, e: u64) -> usize {
        assert!(e < self.col_idx.len() as u64, "entry {e} is out of range: there are {} entries", self.col_idx.len());
        self.row_ptr.partition_point(|&start| start <= e) - 1
    }

    /// The same edges seen from the sources: rows = source nodes, entries = destinations, every row sorted.
    ///
    /// A counting sort whose scatter runs in parallel; sorting the rows afterwards makes the result independent of the
    /// order in which threads arrive.
    pub fn reverse(&self) -> Adjacency {
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
        Adjacency { row_ptr, col_idx, num_cols: self.num_rows() }
    }

    /// The entries `(row, column)` that `keep` wants, in the same order.
    pub(crate) fn filtered(&self, keep: impl Fn(u32, u32) -> bool + Sync) -> Adjacency {
        let kept = |row: usize| self.row(row).iter().copied().filter(|&col| keep(row as u32, col)).collect::<Vec<_>>();
        let rows = || (0..self.num_rows()).into_par_iter().with_min_len(256);
        let lengths: Vec<u64> = rows().map(|row| kept(row).len() as u64).collect();
        let mut row_ptr: Vec<u64> = std::iter::once(0).chain(lengths).collect();
        accumulate(&mut row_ptr);
        let mut col_idx = vec![0; row_ptr[self.num_rows()] as usize];
        for_each_row_mut(&row_ptr, &mut col_idx, &|row, entries| entries.copy_from_slice(&kept(row)));
        Adjacency { row_ptr, col_idx, num_cols: self.num_cols }
    }

    /// Whether `other` holds exactly the edges of `self` with rows and columns exchanged, in whatever order.
    ///
    /// Compares the counts and an order-independent 64-bit hash of the pairs.
    pub fn is_reverse_of(&self, other: &Adjacency) -> bool {
        self.num_rows() == other.num_cols
            && self.num_cols == other.num_rows()
            && self.num_edges() == other.num_edges()
            && self.edge_hash() == other.reverse_edge_hash()
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
        let rows = (0..self.num_rows()).into_par_iter().with_min_len(256);
        rows.map(of_row).reduce(|| 0, u64::wrapping_add)
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
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn edges_of(adjacency: &Adjacency) -> Vec<(u32, u32)> {
        (0..adjacency.num_rows()).flat_map(|i| adjacency.row(i).iter().map(move |&col| (i as u32, col))).collect()
    }

    #[test]
    fn from_edges_sorts_rows_and_drops_duplicates() {
        let adjacency = Adjacency::from_edges(4, 3, &[(2, 1), (0, 2), (2, 0), (0, 2), (2, 2)]);
        assert_eq!(adjacency.row_ptr(), [0, 1, 1, 4, 4]);
        assert_eq!(adjacency.col_idx(), [2, 0, 1, 2]);
        assert_eq!((adjacency.num_rows(), adjacency.num_cols(), adjacency.num_edges()), (4, 3, 4));
        assert_eq!((adjacency.degree(1), adjacency.degree(2), adjacency.row(2)), (0, 3, &[0, 1, 2][..]));
    }

    #[test]
    #[should_panic(expected = "column 3 is out of range")]
    fn from_edges_panics_on_a_column_out_of_range() {
        Adjacency::from_edges(1, 3, &[(0, 3)]);
    }

    #[test]
    fn row_of_edge_skips_empty_rows() {
        let adjacency = Adjacency::from_edges(6, 9, &[(1, 0), (1, 8), (4, 3)]);
        assert_eq!([0, 1, 2].map(|e| adjacency.row_of_edge(e)), [1, 1, 4]);
    }

    #[test]
    fn new_names_the_first_broken_place() {
        use AdjacencyError::*;
        let build = |row_ptr: &[u64], col_idx: &[u32]| Adjacency::new(row_ptr.to_vec(), col_idx.to_vec(), 3);
        assert_eq!(build(&[], &[]), Err(Empty));
        assert_eq!(build(&[1, 2], &[0, 1]), Err(FirstNotZero { found: 1 }));
        assert_eq!(build(&[0, 2, 1, 2], &[0, 1]), Err(Decreasing { row: 1, start: 2, end: 1 }));
        assert_eq!(build(&[0, 1, 3], &[0, 1]), Err(Overrun { end: 3, entries: 2 }));
        let bad = ColumnOutOfRange { edge: 2, row: 2, col: 3, num_cols: 3 };
        assert_eq!(build(&[0, 1, 1, 4], &[0, 1, 3, 9]), Err(bad));
        assert!(build(&[0], &[]).is_ok());
    }

    #[test]
    fn reverse_of_a_large_graph_with_a_hub_is_sorted_and_complete() {
        // Larger than GRAIN, so that work is split; column 7 is a hub, most rows are empty.
        let edges: Vec<(u32, u32)> = (0..60_000u32)
            .map(|e| (e.wrapping_mul(2_654_435_761) % 70_000, if e % 3 == 0 { 7 } else { e % 501 }))
            .collect();
        let adjacency = Adjacency::from_edges(70_000, 501, &edges);
        let expected: BTreeSet<(u32, u32)> = edges.iter().map(|&(row, col)| (col, row)).collect();
        assert_eq!(edges_of(&adjacency.reverse()), expected.into_iter().collect::<Vec<_>>());
        assert!(adjacency.is_reverse_of(&adjacency.reverse()));
    }

    #[test]
    fn reverse_keeps_repeated_edges() {
        let adjacency = Adjacency::new(vec![0, 2, 3], vec![1, 1, 0], 2).unwrap();
        assert_eq!(edges_of(&adjacency.reverse()), [(0, 1), (1, 0), (1, 0)]);
    }

    #[test]
    fn is_reverse_of_ignores_the_order_inside_rows() {
        let sorted = Adjacency::new(vec![0, 2], vec![0, 1], 2).unwrap();
        let unsorted = Adjacency::new(vec![0, 2], vec![1, 0], 2).unwrap();
        assert!(unsorted.is_reverse_of(&sorted.reverse()));
    }

    fn graphs() -> impl Strategy<Value = (usize, usize, Vec<(u32, u32)>)> {
        (1..20usize, 1..20usize).prop_flat_map(|(rows, cols)| {
            let edges = prop::collection::vec((0..rows as u32, 0..cols as u32), 0..60);
            (Just(rows), Just(cols), edges)
        })
    }

    proptest! {
        #[test]
        fn from_edges_holds_the_set_of_edges((rows, cols, edges) in graphs()) {
            let adjacency = Adjacency::from_edges(rows, cols, &edges);
            let set: BTreeSet<_> = edges.into_iter().collect();
            prop_assert_eq!(edges_of(&adjacency), set.into_iter().collect::<Vec<_>>());
            let (row_ptr, col_idx) = (adjacency.row_ptr().to_vec(), adjacency.col_idx().to_vec());
            prop_assert_eq!(Adjacency::new(row_ptr, col_idx, cols), Ok(adjacency));
        }

        #[test]
        fn reversing_twice_changes_nothing((rows, cols, edges) in graphs()) {
            let adjacency = Adjacency::from_edges(rows, cols, &edges);
            prop_assert_eq!(adjacency.reverse().reverse(), adjacency);
        }

        #[test]
        fn only_the_exact_reverse_is_a_reverse((rows, cols, edges) in graphs()) {
            let adjacency = Adjacency::from_edges(rows, cols, &edges);
            let reverse = adjacency.reverse();
            prop_assert!(adjacency.is_reverse_of(&reverse) && reverse.is_reverse_of(&adjacency));
            for missing in 0..adjacency.num_edges() {
                let mut fewer = edges_of(&adjacency);
                let (row, col) = fewer[missing];
                fewer[missing] = (row, (col + 1) % cols as u32);
                let other = Adjacency::from_edges(rows, cols, &fewer);
                prop_assert_eq!(other.is_reverse_of(&reverse), other == adjacency);
            }
        }

        #[test]
        fn every_entry_lies_in_its_row((rows, cols, edges) in graphs()) {
            let adjacency = Adjacency::from_edges(rows, cols, &edges);
            for (e, (row, _)) in edges_of(&adjacency).into_iter().enumerate() {
                prop_assert_eq!(adjacency.row_of_edge(e as u64), row as usize);
            }
        }
    }
}
