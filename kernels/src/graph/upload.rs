//! Lists of rows, and adjacencies with them, in one copy to the device.

use std::fmt;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;

use crate::graph::csr::{Csr, CsrArrays};
use crate::runtime::host::index_tensor;
use crate::runtime::lists::UploadBackend;

/// Numbers of rows on the host, ready to be uploaded.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::{CsrArrays, RowNumbers, upload_together};
/// let csr = CsrArrays::new(&[0, 1], &[1], 2).unwrap();
/// let rows = RowNumbers::new(&[4, 2]);
/// let (csrs, rows) = upload_together::<Flex>(vec![csr], vec![rows], &Default::default());
/// assert_eq!((csrs[0].num_cols(), rows[0].len()), (2, 2));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RowNumbers {
    values: Vec<i32>,
    /// All are below it.
    end: usize,
}

impl RowNumbers {
    /// Takes a list.
    ///
    /// # Panics
    /// If there are rows from 2^31 on.
    pub fn new(rows: &[u32]) -> Self {
        let end = rows.iter().copied().max().map_or(0, |last| last as usize + 1);
        assert!(end <= i32::MAX as usize, "RowNumbers: expected rows below 2^31, got {}", end - 1);
        Self { values: rows.iter().map(|&row| row as i32).collect(), end }
    }
}

/// Numbers of rows on a device.
pub struct RowIds<B: Backend> {
    pub(crate) ids: IntTensor<B>,
    len: usize,
    end: usize,
}

impl<B: Backend> fmt::Debug for RowIds<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowIds({} below {})", self.len, self.end)
    }
}

impl<B: Backend> RowIds<B> {
    /// Uploads a list on its own.
    ///
    /// # Panics
    /// If there are rows from 2^31 on.
    pub fn new(rows: &[u32], device: &B::Device) -> Self {
        let RowNumbers { values, end } = RowNumbers::new(rows);
        Self { len: values.len(), ids: index_tensor::<B>(values, device), end }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[track_caller]
    pub(crate) fn check(&self, op: &str, argument: &str, num_rows: usize) {
        assert!(self.end <= num_rows, "{op}: {argument}: expected rows below {num_rows}, got {}", self.end.max(1) - 1);
    }
}

/// Uploads adjacencies and lists in one copy.
pub fn upload_together<B: UploadBackend>(
    csrs: Vec<CsrArrays>,
    rows: Vec<RowNumbers>,
    device: &B::Device,
) -> (Vec<Csr<B>>, Vec<RowIds<B>>) {
    let mut lists = Vec::with_capacity(6 * csrs.len() + rows.len());
    let ends: Vec<(usize, usize)> = rows.iter().map(|rows| (rows.values.len(), rows.end)).collect();
    lists.extend(rows.into_iter().map(|rows| rows.values));
    let shapes: Vec<_> = csrs.into_iter().map(|csr| csr.take_lists(&mut lists)).collect();
    let mut uploaded = B::upload_lists(lists, device).into_iter();
    let ids = ends.into_iter().zip(uploaded.by_ref()).map(|((len, end), ids)| RowIds { ids, len, end }).collect();
    let csrs = shapes.into_iter().map(|shape| Csr::of_lists(shape, &mut uploaded, device)).collect();
    (csrs, ids)
}
