//! Rows that are spans of entries which they share.
//!
//! Events are what spans are for: the entries are the events of one entity after another, in the order of time, and the
//! row of an event is a span of them that ends where it happened. Whatever comes later stands behind that end.

use rayon::prelude::*;

use super::adjacency::{Adjacency, Rows, accumulate, for_each_row_mut};

/// Stands for a column that is no entry.
const NOWHERE: u64 = u64::MAX;

impl Adjacency {
    /// The same edges with a list for every row.
    pub fn expanded(&self) -> Adjacency {
        if !self.is_spans() {
            return self.clone();
        }
        let lengths = (0..self.num_rows()).map(|row| self.degree(row) as u64);
        let mut row_ptr: Vec<u64> = std::iter::once(0).chain(lengths).collect();
        accumulate(&mut row_ptr);
        let mut col_idx = vec![0; self.num_edges()];
        for_each_row_mut(&row_ptr, &mut col_idx, &|row, entries| entries.copy_from_slice(self.row(row)));
        Adjacency::from_checked(row_ptr, col_idx, self.num_cols())
    }

    /// The reverse as spans, where every source stands at most once among the entries and rows that end later do not
    /// start earlier, as those of events do: then the rows that an entry stands in are neighbours in the order of their
    /// ends, in which the reverse has them.
    pub(super) fn reverse_of_spans(&self) -> Option<Adjacency> {
        let mut place = vec![NOWHERE; self.num_cols()];
        for (&col, at) in self.col_idx().iter().zip(0..) {
            if std::mem::replace(&mut place[col as usize], at) != NOWHERE {
                return None;
            }
        }
        let span = |row: usize| {
            let entries = self.entries(row);
            (!entries.is_empty()).then_some((entries.end, entries.start, row as u32))
        };
        let mut spans: Vec<(usize, usize, u32)> = (0..self.num_rows()).filter_map(span).collect();
        spans.par_sort_unstable();
        if spans.windows(2).any(|pair| pair[1].1 < pair[0].1) {
            return None;
        }
        // By entry: how many spans end up to it, and how many start up to it.
        let mut up_to = vec![(0u64, 0u64); self.num_entries() + 1];
        for &(end, start, _) in &spans {
            up_to[end].0 += 1;
            up_to[start].1 += 1;
        }
        let (mut ended, mut started) = (0, 0);
        for (ends, starts) in &mut up_to {
            ended += *ends;
            started += *starts;
            (*ends, *starts) = (ended, started);
        }
        // Those that end behind it, up to those that start behind it.
        let seen_by = |&at: &u64| if at == NOWHERE { (0, 0) } else { up_to[at as usize] };
        let rows: Vec<u32> = spans.iter().map(|&(_, _, row)| row).collect();
        let (row_start, row_end): (Vec<u64>, Vec<u64>) = place.par_iter().map(seen_by).unzip();
        Some(Adjacency::from_checked_spans(row_start, &row_end, rows.into(), self.num_rows()))
    }

    /// Whether sizes, and degrees where rows are spans, allow `other` to be the reverse: to hash the edges of long
    /// spans takes far longer than to count them.
    pub(super) fn may_reverse(&self, other: &Adjacency) -> bool {
        let sizes = |of: &Adjacency| (of.num_rows(), of.num_cols(), of.num_edges());
        let (rows, cols, edges) = sizes(self);
        if (cols, rows, edges) != sizes(other) {
            return false;
        }
        if !self.is_spans() && !other.is_spans() {
            return true;
        }
        other.column_degrees().par_iter().enumerate().all(|(row, &degree)| self.degree(row) as u64 == degree)
    }

    /// How many rows each column stands in, repeated ones counted as often as they occur.
    fn column_degrees(&self) -> Vec<u64> {
        let mut degrees = vec![0u64; self.num_cols()];
        match self.rows() {
            Rows::Lists { .. } => self.col_idx().iter().for_each(|&col| degrees[col as usize] += 1),
            Rows::Spans { start, end } => {
                // How many spans begin and end at an entry.
                let mut change = vec![(0u64, 0u64); self.num_entries() + 1];
                start.iter().for_each(|&at| change[at as usize].0 += 1);
                end.iter().for_each(|&at| change[at as usize].1 += 1);
                let mut open = 0;
                for (&col, (begin, end)) in self.col_idx().iter().zip(change) {
                    open = open + begin - end;
                    degrees[col as usize] += open;
                }
            }
        }
        degrees
    }

    /// Number of edges from a node to itself, where rows and columns are the same nodes.
    pub(super) fn num_loops(&self) -> usize {
        let mut first = 0;
        let loops = self.entry_array().pieces().map(|piece| {
            let is_loop = |&(at, &col): &(usize, &u32)| self.entries(col as usize).contains(&(first + at));
            let loops = piece.par_iter().with_min_len(1 << 14).enumerate().filter(is_loop).count();
            first += piece.len();
            loops
        });
        loops.sum()
    }

    /// The entries in `columns`, renumbered so, of the rows in `rows`; `None` for what is left out. Spans stay spans,
    /// over fewer entries.
    pub(super) fn restricted(
        &self,
        rows: impl Iterator<Item = usize>,
        columns: impl Fn(u32) -> Option<u32>,
        num_cols: usize,
    ) -> Adjacency {
        let mut col_idx = Vec::new();
        if !self.is_spans() {
            let mut row_ptr = vec![0];
            for row in rows {
                col_idx.extend(self.row(row).iter().filter_map(|&col| columns(col)));
                row_ptr.push(col_idx.len() as u64);
            }
            return Adjacency::from_checked(row_ptr, col_idx, num_cols);
        }
        // By entry: how many are kept before it.
        let mut before = Vec::with_capacity(self.num_entries() + 1);
        for &col in self.col_idx() {
            before.push(col_idx.len() as u64);
            col_idx.extend(columns(col));
        }
        before.push(col_idx.len() as u64);
        let span = |row: usize| {
            let entries = self.entries(row);
            (before[entries.start], before[entries.end])
        };
        let (row_start, row_end): (Vec<u64>, Vec<u64>) = rows.map(span).unzip();
        Adjacency::from_checked_spans(row_start, &row_end, col_idx.into(), num_cols)
    }

    /// Whether what `key` says of the entries of a row ascends or stays along every row.
    pub fn rows_ascend_by<K: PartialOrd>(&self, key: impl Fn(u32) -> K + Sync) -> bool {
        let falls = |at: usize| u64::from(at > 0 && key(self.col_idx()[at - 1]) > key(self.col_idx()[at]));
        // By entry: how many up to it lie below the one before it.
        let mut falls_until: Vec<u64> =
            (0..self.num_entries()).into_par_iter().with_min_len(1 << 14).map(falls).collect();
        accumulate(&mut falls_until);
        (0..self.num_rows())
            .into_par_iter()
            .with_min_len(1 << 12)
            .map(|row| self.entries(row))
            .all(|entries| entries.is_empty() || falls_until[entries.start] == falls_until[entries.end - 1])
    }
}

#[cfg(test)]
mod tests;
