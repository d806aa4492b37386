//! Lists of rows and of row pairs on the device, with the grouping by row that their backward passes walk.

use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use rayon::prelude::*;

use crate::runtime::lists::UploadBackend;

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
    /// Groups and uploads `rows` of a matrix of `num_rows` rows.
    ///
    /// # Panics
    /// If a row is out of range or there are 2^31 rows or more.
    pub fn new(rows: &[u32], num_rows: usize, device: &B::Device) -> Self
    where
        B: UploadBackend,
    {
        RowList::new(rows, num_rows).upload(device)
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
    /// Groups and uploads the pairs `(left[p], right[p])` of matrices with `num_left` and `num_right` rows.
    ///
    /// # Panics
    /// If the lists differ in length, a row is out of range, or there are 2^31 rows or more.
    pub fn new(left: &[u32], right: &[u32], num_left: usize, num_right: usize, device: &B::Device) -> Self
    where
        B: UploadBackend,
    {
        PairList::new(left, right, num_left, num_right).upload(device)
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

/// A [`RowIndex`] that is still on the host: made on any thread, uploaded where the device is driven from.
#[derive(Clone, Debug)]
pub struct RowList {
    index: Vec<i32>,
    groups: HostGroups,
    num_rows: usize,
}

impl RowList {
    /// Groups `rows` of a matrix of `num_rows` rows.
    ///
    /// # Panics
    /// If a row is out of range or there are 2^31 rows or more.
    pub fn new(rows: &[u32], num_rows: usize) -> Self {
        check_rows("RowIndex", rows, num_rows);
        let groups = HostGroups::new(rows, &grouped_order(rows, num_rows), |p| p as i32);
        Self { index: signed(rows), groups, num_rows }
    }

    /// Uploads the list in one copy.
    pub fn upload<B: UploadBackend>(self, device: &B::Device) -> RowIndex<B> {
        let len = self.index.len();
        let ([index], [groups]) = upload::<B, 1, 1>([self.index], [self.groups], device);
        RowIndex { parts: Arc::new(RowIndexParts { index, groups, len, num_rows: self.num_rows }) }
    }
}

/// A [`PairIndex`] that is still on the host.
#[derive(Clone, Debug)]
pub struct PairList {
    left: Vec<i32>,
    right: Vec<i32>,
    by_left: HostGroups,
    by_right: HostGroups,
    num_left: usize,
    num_right: usize,
}

impl PairList {
    /// Groups the pairs `(left[p], right[p])` of matrices with `num_left` and `num_right` rows.
    ///
    /// # Panics
    /// If the lists differ in length, a row is out of range, or there are 2^31 rows or more.
    pub fn new(left: &[u32], right: &[u32], num_left: usize, num_right: usize) -> Self {
        assert!(
            left.len() == right.len(),
            "PairIndex: right: expected {} entries like left, got {}",
            left.len(),
            right.len()
        );
        check_rows("PairIndex: left", left, num_left);
        check_rows("PairIndex: right", right, num_right);
        let (by_left, by_right) = rayon::join(
            || HostGroups::new(left, &grouped_order(left, num_left), |p| right[p as usize] as i32),
            || HostGroups::new(right, &grouped_order(right, num_right), |p| left[p as usize] as i32),
        );
        Self { left: signed(left), right: signed(right), by_left, by_right, num_left, num_right }
    }

    /// Uploads the pairs in one copy.
    pub fn upload<B: UploadBackend>(self, device: &B::Device) -> PairIndex<B> {
        let Self { left, right, by_left, by_right, num_left, num_right } = self;
        let len = left.len();
        let ([left, right], [by_left, by_right]) = upload::<B, 2, 2>([left, right], [by_left, by_right], device);
        PairIndex { parts: Arc::new(PairIndexParts { left, right, by_left, by_right, len, num_left, num_right }) }
    }
}

fn signed(rows: &[u32]) -> Vec<i32> {
    rows.iter().map(|&r| r as i32).collect()
}

/// Positions sorted by row, then by position.
fn grouped_order(rows: &[u32], num_rows: usize) -> Vec<u32> {
    // Counting is faster than comparing unless most rows are not named at all.
    if num_rows > 8 * rows.len() {
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        order.par_sort_unstable_by_key(|&p| (rows[p as usize], p));
        return order;
    }
    let mut next = vec![0u32; num_rows + 1];
    for &row in rows {
        next[row as usize + 1] += 1;
    }
    for row in 0..num_rows {
        next[row + 1] += next[row];
    }
    let mut order = vec![0u32; rows.len()];
    for (p, &row) in rows.iter().enumerate() {
        let at = &mut next[row as usize];
        order[*at as usize] = p as u32;
        *at += 1;
    }
    order
}

/// [`Groups`] on the host.
#[derive(Clone, Debug)]
struct HostGroups {
    rows: Vec<i32>,
    row_ptr: Vec<i32>,
    entry: Vec<i32>,
    position: Vec<i32>,
}

impl HostGroups {
    fn new(rows: &[u32], order: &[u32], entry: impl Fn(u32) -> i32) -> Self {
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
        Self {
            rows: distinct,
            row_ptr,
            entry: order.iter().map(|&p| entry(p)).collect(),
            position: order.iter().map(|&p| p as i32).collect(),
        }
    }
}

/// Uploads lists and groups in one copy.
fn upload<B: UploadBackend, const L: usize, const G: usize>(
    lists: [Vec<i32>; L],
    groups: [HostGroups; G],
    device: &B::Device,
) -> ([IntTensor<B>; L], [Groups<IntTensor<B>>; G]) {
    let counts = groups.each_ref().map(|groups| groups.rows.len());
    let of_groups = groups.into_iter().flat_map(|groups| [groups.rows, groups.row_ptr, groups.entry, groups.position]);
    let mut uploaded = B::upload_lists(lists.into_iter().chain(of_groups).collect(), device).into_iter();
    let mut next = || uploaded.next().unwrap_or_else(|| unreachable!("a tensor for each list"));
    let lists = std::array::from_fn(|_| next());
    let of = |num_groups| Groups { num_groups, rows: next(), row_ptr: next(), entry: next(), position: next() };
    (lists, counts.map(of))
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
