//! An adjacency in the form that a device takes, still on the host.

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor, TensorData};
use rayon::prelude::*;

use super::{Csr, CsrError, LONG_ROW, Topology, check, index_tensor, reverse_host};

/// The checked arrays of an adjacency and of its reverse, for a thread to make while the device is busy: what is left to do is
/// to upload them.
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
    forward: Direction,
    reverse: Direction,
}

impl CsrArrays {
    /// Checks a CSR and builds its reverse; entries of a row of the reverse ascend.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn new(row_ptr: &[u64], col_idx: &[u32], num_cols: usize) -> Result<Self, CsrError> {
        check(row_ptr, col_idx, num_cols)?;
        let (reverse_ptr, reverse_idx) = reverse_host(row_ptr, col_idx, num_cols);
        Ok(Self {
            forward: Direction::new(row_ptr, col_idx, num_cols),
            reverse: Direction::new(&reverse_ptr, &reverse_idx, row_ptr.len() - 1),
        })
    }

    /// The adjacency on a device.
    pub fn upload<B: Backend>(self, device: &B::Device) -> Csr<B> {
        Csr::from_parts(self.forward.upload::<B>(device), self.reverse.upload::<B>(device))
    }
}

/// One direction.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    row_ptr: RowPtr,
    col_idx: Vec<i32>,
    long_rows: Vec<i32>,
    num_cols: usize,
}

#[derive(Clone, Debug)]
enum RowPtr {
    Narrow(Vec<i32>),
    /// From 2^31 entries on.
    Wide(Vec<i64>),
}

impl Direction {
    pub fn new(row_ptr: &[u64], col_idx: &[u32], num_cols: usize) -> Self {
        let is_long = |w: &[u64]| (w[1] - w[0]) as usize > LONG_ROW;
        Self {
            row_ptr: match col_idx.len() > i32::MAX as usize {
                true => RowPtr::Wide(row_ptr.par_iter().map(|&p| p as i64).collect()),
                false => RowPtr::Narrow(row_ptr.par_iter().map(|&p| p as i32).collect()),
            },
            col_idx: col_idx.par_iter().map(|&c| c as i32).collect(),
            long_rows: row_ptr.par_windows(2).enumerate().filter(|(_, w)| is_long(w)).map(|(i, _)| i as i32).collect(),
            num_cols,
        }
    }

    pub fn upload<B: Backend>(self, device: &B::Device) -> Topology<IntTensor<B>> {
        let (num_edges, num_long) = (self.col_idx.len(), self.long_rows.len());
        let (num_rows, row_ptr) = match self.row_ptr {
            RowPtr::Narrow(values) => (values.len() - 1, index_tensor::<B>(values, device)),
            RowPtr::Wide(values) => {
                let len = values.len();
                let data = TensorData::new(values, [len]);
                (len - 1, Tensor::<B, 1, Int>::from_data(data, (device, DType::I64)).into_primitive())
            }
        };
        Topology {
            row_ptr,
            col_idx: index_tensor::<B>(self.col_idx, device),
            num_rows,
            num_cols: self.num_cols,
            num_edges,
            num_long,
            long_rows: index_tensor::<B>(self.long_rows, device),
        }
    }
}
