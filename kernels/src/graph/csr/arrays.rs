//! An adjacency in the form that a device takes, still on the host.

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use rayon::prelude::*;

use super::error::CsrError;
use super::spans::{ReverseSpans, RowBounds, check_spans, reverse_spans};
use super::topology::{LONG_ROW, Topology, is_wide};
use crate::runtime::host::index_tensor;
use crate::runtime::upload::{converted, int_tensor, large_index_tensor};

/// The checked arrays of an adjacency and of its reverse, for a thread to make while the device is busy: what is left
/// to do is to upload them.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::CsrArrays;
/// let arrays = CsrArrays::new(&[0, 2, 2], &[0, 2], 3).unwrap();
/// let csr = std::thread::spawn(|| arrays).join().unwrap().upload::<Flex>(&Default::default());
/// assert_eq!((csr.num_rows(), csr.num_cols(), csr.num_edges()), (2, 3, 2));
/// ```
#[derive(Clone, Debug)]
pub struct CsrArrays {
    pub(super) forward: Direction,
    pub(super) reverse: Option<Direction>,
}

impl CsrArrays {
    /// Checks a CSR and builds its reverse; entries of a row of the reverse ascend.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn new(row_ptr: &[u64], col_idx: &[u32], num_cols: usize) -> Result<Self, CsrError> {
        let arrays = Self::one_way(row_ptr, col_idx, num_cols)?;
        let (reverse_ptr, reverse_idx) = reverse_host(RowBounds::lists(row_ptr), col_idx, num_cols);
        let reverse = Direction::new(RowBounds::lists(&reverse_ptr), &reverse_idx, row_ptr.len() - 1);
        Ok(Self { reverse: Some(reverse), ..arrays })
    }

    /// Checks a CSR and leaves the reverse to whoever first needs it.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn one_way(row_ptr: &[u64], col_idx: &[u32], num_cols: usize) -> Result<Self, CsrError> {
        check(row_ptr, col_idx, num_cols)?;
        Ok(Self { forward: Direction::new(RowBounds::lists(row_ptr), col_idx, num_cols), reverse: None })
    }

    /// Checks rows that are spans of one list of entries ([`Csr::from_spans`](crate::Csr::from_spans)) and builds the
    /// reverse where it is spans, too; else it is left to whoever first needs it.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn spans(row_start: &[u64], row_end: &[u64], col_idx: &[u32], num_cols: usize) -> Result<Self, CsrError> {
        let rows = RowBounds::spans(row_start, row_end);
        check_spans(rows, col_idx.len())?;
        check_columns(col_idx, rows.len(), num_cols)?;
        let reverse = Direction::reverse_of_spans(rows, col_idx, num_cols);
        Ok(Self { forward: Direction::new(rows, col_idx, num_cols), reverse })
    }
}

/// What is left of an adjacency whose lists are being uploaded.
pub(crate) struct CsrShape {
    pub(super) forward: DirectionShape,
    pub(super) reverse: Option<DirectionShape>,
}

pub(super) struct DirectionShape {
    num_rows: usize,
    num_cols: usize,
    num_edges: usize,
    num_entries: usize,
    num_long: usize,
    spans: bool,
    /// Row pointers that no list of i32 holds.
    wide: Option<Vec<i64>>,
}

impl CsrArrays {
    /// Moves the lists of both directions behind `lists`.
    pub(crate) fn take_lists(self, lists: &mut Vec<Vec<i32>>) -> CsrShape {
        let forward = self.forward.take_lists(lists);
        CsrShape { forward, reverse: self.reverse.map(|reverse| reverse.take_lists(lists)) }
    }
}

impl DirectionShape {
    pub fn topology<B: Backend>(
        self,
        lists: &mut impl Iterator<Item = IntTensor<B>>,
        device: &B::Device,
    ) -> Topology<IntTensor<B>> {
        let mut next = || lists.next().unwrap_or_else(|| unreachable!("a list comes back for each that was given"));
        let (row_ptr, col_idx, long_rows) = (next(), next(), next());
        let DirectionShape { num_rows, num_cols, num_edges, num_entries, num_long, spans, wide } = self;
        let row_ptr = wide.map_or(row_ptr, |values| int_tensor::<B>(&values, true, device));
        Topology { row_ptr, col_idx, spans, num_rows, num_cols, num_edges, num_entries, long_rows, num_long }
    }
}

/// One direction.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    row_ptr: RowPtr,
    col_idx: Vec<i32>,
    long_rows: Vec<i32>,
    num_rows: usize,
    num_cols: usize,
    num_edges: usize,
    spans: bool,
}

/// [`Topology::row_ptr`].
#[derive(Clone, Debug)]
enum RowPtr {
    Narrow(Vec<i32>),
    /// From 2^31 entries on.
    Wide(Vec<i64>),
}

impl Direction {
    /// The reverse of spans, where it is spans, too.
    pub fn reverse_of_spans(rows: RowBounds<'_>, col_idx: &[u32], num_cols: usize) -> Option<Self> {
        let ReverseSpans { start, end, col_idx } = reverse_spans(rows, col_idx, num_cols)?;
        Some(Self::new(RowBounds::spans(&start, &end), &col_idx, rows.len()))
    }

    pub fn new(rows: RowBounds<'_>, col_idx: &[u32], num_cols: usize) -> Self {
        let RowBounds { start, end, spans } = rows;
        // A list ends where the next one starts.
        let last = [end.last().copied().unwrap_or(0)];
        let bounds = start.par_iter().chain(if spans { end } else { &last });
        Self {
            row_ptr: match is_wide(col_idx.len()) {
                true => RowPtr::Wide(bounds.map(|&p| p as i64).collect()),
                false => RowPtr::Narrow(bounds.map(|&p| p as i32).collect()),
            },
            col_idx: col_idx.par_iter().map(|&c| c as i32).collect(),
            long_rows: long_rows(rows),
            num_rows: rows.len(),
            num_cols,
            num_edges: start.par_iter().zip(end).map(|(start, end)| (end - start) as usize).sum(),
            spans,
        }
    }

    fn take_lists(self, lists: &mut Vec<Vec<i32>>) -> DirectionShape {
        let Self { row_ptr, col_idx, long_rows, num_rows, num_cols, num_edges, spans } = self;
        let (num_entries, num_long) = (col_idx.len(), long_rows.len());
        let (narrow, wide) = match row_ptr {
            RowPtr::Narrow(values) => (values, None),
            RowPtr::Wide(values) => (Vec::new(), Some(values)),
        };
        lists.extend([narrow, col_idx, long_rows]);
        DirectionShape { num_rows, num_cols, num_edges, num_entries, num_long, spans, wide }
    }

    pub fn upload<B: Backend>(self, device: &B::Device) -> Topology<IntTensor<B>> {
        let mut lists = Vec::new();
        let shape = self.take_lists(&mut lists);
        shape.topology::<B>(&mut lists.into_iter().map(|list| large_index_tensor::<B>(list, device)), device)
    }
}

/// [`Topology::long_rows`].
fn long_rows(rows: RowBounds<'_>) -> Vec<i32> {
    let is_long = |(start, end): (&u64, &u64)| (end - start) as usize > LONG_ROW;
    let rows = rows.start.par_iter().zip(rows.end).map(is_long).enumerate();
    rows.filter_map(|(row, is_long)| is_long.then_some(row as i32)).collect()
}

/// Positions of `keys` grouped by key, each group in ascending order, and where groups start.
pub(super) fn group_by(keys: &[u32], num_keys: usize) -> (Vec<u64>, Vec<u64>) {
    let mut starts = vec![0u64; num_keys + 1];
    for &key in keys {
        starts[key as usize + 1] += 1;
    }
    for key in 0..num_keys {
        starts[key + 1] += starts[key];
    }
    let mut next = starts.clone();
    let mut positions = vec![0u64; keys.len()];
    for (position, &key) in keys.iter().enumerate() {
        positions[next[key as usize] as usize] = position as u64;
        next[key as usize] += 1;
    }
    (starts, positions)
}

/// Numbers that one thread looks at faster than it asks others.
const FEW: usize = 1 << 14;

/// The first of so many numbers that is so.
fn first(count: usize, is_so: impl Fn(usize) -> bool + Sync) -> Option<usize> {
    match count {
        ..=FEW => (0..count).position(is_so),
        _ => (0..count).into_par_iter().position_first(&is_so),
    }
}

pub(super) fn check(row_ptr: &[u64], col_idx: &[u32], num_cols: usize) -> Result<(), CsrError> {
    let Some((&last, _)) = row_ptr.split_last() else { return Err(CsrError::NoRowPtr) };
    if row_ptr[0] != 0 {
        return Err(CsrError::FirstNotZero { found: row_ptr[0] });
    }
    if let Some(row) = first(row_ptr.len() - 1, |row| row_ptr[row + 1] < row_ptr[row]) {
        return Err(CsrError::Decreasing { row, from: row_ptr[row], to: row_ptr[row + 1] });
    }
    if last != col_idx.len() as u64 {
        return Err(CsrError::EdgeCount { row_ptr: last, col_idx: col_idx.len() });
    }
    check_columns(col_idx, row_ptr.len() - 1, num_cols)
}

pub(super) fn check_columns(col_idx: &[u32], num_rows: usize, num_cols: usize) -> Result<(), CsrError> {
    if let Some(edge) = first(col_idx.len(), |edge| col_idx[edge] as usize >= num_cols) {
        return Err(CsrError::ColumnOutOfRange { edge, found: col_idx[edge], num_cols });
    }
    match num_cols.max(num_rows) {
        n if n > i32::MAX as usize => Err(CsrError::TooManyNodes { found: n }),
        _ => Ok(()),
    }
}

/// Rows and columns exchanged; entries of each new row ascend.
pub(super) fn reverse_host(rows: RowBounds<'_>, col_idx: &[u32], num_cols: usize) -> (Vec<u64>, Vec<u32>) {
    let mut reverse_ptr = vec![0u64; num_cols + 1];
    for (_, entries) in rows.rows() {
        col_idx[entries].iter().for_each(|&c| reverse_ptr[c as usize + 1] += 1);
    }
    for c in 0..num_cols {
        reverse_ptr[c + 1] += reverse_ptr[c];
    }
    let mut next = reverse_ptr.clone();
    let mut reverse_idx = vec![0u32; reverse_ptr[num_cols] as usize];
    for (row, entries) in rows.rows() {
        for &c in &col_idx[entries] {
            reverse_idx[next[c as usize] as usize] = row;
            next[c as usize] += 1;
        }
    }
    (reverse_ptr, reverse_idx)
}

/// Uploads rows one behind the other, from where their lists lie.
pub(super) fn upload<B: Backend>(
    row_ptr: &[u64],
    col_idx: &[u32],
    num_cols: usize,
    device: &B::Device,
) -> Topology<IntTensor<B>> {
    let (rows, num_edges) = (RowBounds::lists(row_ptr), col_idx.len());
    let long_rows = long_rows(rows);
    let num_long = long_rows.len();
    Topology {
        row_ptr: converted::<B, u64>(row_ptr, is_wide(num_edges), device, |position| position as i64),
        col_idx: converted::<B, u32>(col_idx, false, device, i64::from),
        spans: false,
        num_rows: rows.len(),
        num_cols,
        num_edges,
        num_entries: num_edges,
        long_rows: index_tensor::<B>(long_rows, device),
        num_long,
    }
}
