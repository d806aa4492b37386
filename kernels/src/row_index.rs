//! Lists of rows and of row pairs on the device, with the grouping by row that their backward passes walk.

use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use rayon::prelude::*;

use crate::csr::index_tensor;

/// Positions of a list grouped by the row that they name: a small CSR over the rows that occur.
#[derive(Debug)]
pub struct Groups<I> {
    /// The distinct rows, ascending.
    pub rows: I,
    /// `[rows + 1]` into `entry` and `position`.
    pub row_ptr: I,
    /// What each position refers to: itself for a gather, the other end for a pair.
    pub entry: I,
    /// Position in the list.
    pub position: I,
    pub num_groups: usize,
}

/// Both directions of a list of rows; `I` is the backend's integer primitive.
#[derive(Debug)]
pub struct RowIndexParts<I> {
    pub index: I,
    pub groups: Groups<I>,
    pub len: usize,
    pub num_rows: usize,
}

/// Rows of a matrix to gather, in any order and with repetitions.
///
/// The grouping by row is made once on the host, so that the backward pass of [`gather_rows`](crate::gather_rows) sums
/// the gradients of each row in list order: no atomics, the same result every time.
pub struct RowIndex<B: Backend> {
    pub(crate) parts: Arc<RowIndexParts<IntTensor<B>>>,
}

impl<B: Backend> Clone for RowIndex<B> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

impl<B: Backend> fmt::Debug for RowIndex<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowIndex({} of {} rows)", self.parts.len, self.parts.num_rows)
    }
}

impl<B: Backend> RowIndex<B> {
    /// Uploads `rows` of a matrix of `num_rows` rows.
    ///
    /// # Panics
    /// If a row is out of range or there are 2^31 rows or more.
    pub fn new(rows: &[u32], num_rows: usize, device: &B::Device) -> Self {
        check_rows("RowIndex", rows, num_rows);
        let order = grouped_order(rows);
        let groups = groups::<B>(rows, &order, |p| p as i32, device);
        let index = index_tensor::<B>(rows.iter().map(|&r| r as i32).collect(), device);
        Self { parts: Arc::new(RowIndexParts { index, groups, len: rows.len(), num_rows }) }
    }

    /// Number of gathered rows.
    pub fn len(&self) -> usize {
        self.parts.len
    }

    /// Whether nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.parts.len == 0
    }
}

#[derive(Debug)]
pub struct PairIndexParts<I> {
    pub left: I,
    pub right: I,
    pub by_left: Groups<I>,
    pub by_right: Groups<I>,
    pub len: usize,
    pub num_left: usize,
    pub num_right: usize,
}

/// Pairs of rows of two matrices (or of one), for [`pair_dot`](crate::pair_dot).
///
/// Grouped once on the host by either end, so that the backward pass needs no atomics.
pub struct PairIndex<B: Backend> {
    pub(crate) parts: Arc<PairIndexParts<IntTensor<B>>>,
}

impl<B: Backend> Clone for PairIndex<B> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

impl<B: Backend> fmt::Debug for PairIndex<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PairIndex({} pairs)", self.parts.len)
    }
}

impl<B: Backend> PairIndex<B> {
    /// Uploads the pairs `(left[p], right[p])` of matrices with `num_left` and `num_right` rows.
    ///
    /// # Panics
    /// If the lists differ in length, a row is out of range, or there are 2^31 rows or more.
    pub fn new(left: &[u32], right: &[u32], num_left: usize, num_right: usize, device: &B::Device) -> Self {
        assert!(
            left.len() == right.len(),
            "PairIndex: right: expected {} entries like left, got {}",
            left.len(),
            right.len()
        );
        check_rows("PairIndex: left", left, num_left);
        check_rows("PairIndex: right", right, num_right);
        let (left_order, right_order) = rayon::join(|| grouped_order(left), || grouped_order(right));
        let ids = |v: &[u32]| index_tensor::<B>(v.iter().map(|&r| r as i32).collect(), device);
        let parts = PairIndexParts {
            left: ids(left),
            right: ids(right),
            by_left: groups::<B>(left, &left_order, |p| right[p as usize] as i32, device),
            by_right: groups::<B>(right, &right_order, |p| left[p as usize] as i32, device),
            len: left.len(),
            num_left,
            num_right,
        };
        Self { parts: Arc::new(parts) }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.parts.len
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.parts.len == 0
    }
}

#[track_caller]
fn check_rows(what: &str, rows: &[u32], num_rows: usize) {
    assert!(num_rows <= i32::MAX as usize, "{what}: expected fewer than 2^31 rows, got {num_rows}");
    if let Some(p) = rows.iter().position(|&r| r as usize >= num_rows) {
        panic!("{what}: entry {p}: expected a row below {num_rows}, got {}", rows[p]);
    }
}

/// Positions sorted by row, then by position.
fn grouped_order(rows: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows.len() as u32).collect();
    order.par_sort_unstable_by_key(|&p| (rows[p as usize], p));
    order
}

fn groups<B: Backend>(
    rows: &[u32],
    order: &[u32],
    entry: impl Fn(u32) -> i32,
    device: &B::Device,
) -> Groups<IntTensor<B>> {
    let mut distinct = Vec::new();
    let mut row_ptr = Vec::new();
    for (at, &p) in order.iter().enumerate() {
        let row = rows[p as usize] as i32;
        if distinct.last() != Some(&row) {
            distinct.push(row);
            row_ptr.push(at as i32);
        }
    }
    row_ptr.push(order.len() as i32);
    Groups {
        num_groups: distinct.len(),
        rows: index_tensor::<B>(distinct, device),
        row_ptr: index_tensor::<B>(row_ptr, device),
        entry: index_tensor::<B>(order.iter().map(|&p| entry(p)).collect(), device),
        position: index_tensor::<B>(order.iter().map(|&p| p as i32).collect(), device),
    }
}

impl<B: Backend, C: CheckpointStrategy> RowIndex<Autodiff<B, C>> {
    /// The same arrays for the inner backend.
    pub(crate) fn inner(self) -> RowIndex<B> {
        RowIndex { parts: self.parts }
    }
}

impl<B: Backend, C: CheckpointStrategy> PairIndex<Autodiff<B, C>> {
    /// The same arrays for the inner backend.
    pub(crate) fn inner(self) -> PairIndex<B> {
        PairIndex { parts: self.parts }
    }
}
