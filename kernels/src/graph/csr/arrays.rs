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
    reverse: Option<Direction>,
}

impl CsrArrays {
    /// Checks a CSR and builds its reverse; entries of a row of the reverse ascend.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn new(row_ptr: &[u64], col_idx: &[u32], num_cols: usize) -> Result<Self, CsrError> {
        let arrays = Self::one_way(row_ptr, col_idx, num_cols)?;
        let (reverse_ptr, reverse_idx) = reverse_host(row_ptr, col_idx, num_cols);
        Ok(Self { reverse: Some(Direction::new(&reverse_ptr, &reverse_idx, row_ptr.len() - 1)), ..arrays })
    }

    /// Checks a CSR and leaves the reverse to whoever first needs it.
    ///
    /// # Errors
    /// [`CsrError`] names the first row or entry that is wrong.
    pub fn one_way(row_ptr: &[u64], col_idx: &[u32], num_cols: usize) -> Result<Self, CsrError> {
        check(row_ptr, col_idx, num_cols)?;
        Ok(Self { forward: Direction::new(row_ptr, col_idx, num_cols), reverse: None })
    }

    /// The adjacency on a device.
    pub fn upload<B: Backend>(self, device: &B::Device) -> Csr<B> {
        Csr::of_topologies(self.forward.upload::<B>(device), self.reverse.map(|reverse| reverse.upload::<B>(device)))
    }
}

/// What is left of an adjacency whose lists are being uploaded.
pub(crate) struct CsrShape {
    forward: DirectionShape,
    reverse: Option<DirectionShape>,
}

struct DirectionShape {
    num_rows: usize,
    num_cols: usize,
    num_edges: usize,
    num_long: usize,
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

impl<B: Backend> Csr<B> {
    /// The adjacency of lists that [`CsrArrays::take_lists`] gave.
    pub(crate) fn of_lists(
        shape: CsrShape,
        lists: &mut impl Iterator<Item = IntTensor<B>>,
        device: &B::Device,
    ) -> Self {
        let forward = shape.forward.topology::<B>(lists, device);
        Csr::of_topologies(forward, shape.reverse.map(|reverse| reverse.topology::<B>(lists, device)))
    }
}

impl DirectionShape {
    fn topology<B: Backend>(
        self,
        lists: &mut impl Iterator<Item = IntTensor<B>>,
        device: &B::Device,
    ) -> Topology<IntTensor<B>> {
        let mut next = || lists.next().unwrap_or_else(|| unreachable!("a list comes back for each that was given"));
        let (row_ptr, col_idx, long_rows) = (next(), next(), next());
        let DirectionShape { num_rows, num_cols, num_edges, num_long, wide } = self;
        let row_ptr = wide.map_or(row_ptr, |values| wide_tensor::<B>(values, device));
        Topology { row_ptr, col_idx, num_rows, num_cols, num_edges, long_rows, num_long }
    }
}

fn wide_tensor<B: Backend>(values: Vec<i64>, device: &B::Device) -> IntTensor<B> {
    let len = values.len();
    Tensor::<B, 1, Int>::from_data(TensorData::new(values, [len]), (device, DType::I64)).into_primitive()
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

    fn take_lists(self, lists: &mut Vec<Vec<i32>>) -> DirectionShape {
        let (num_edges, num_long, num_cols) = (self.col_idx.len(), self.long_rows.len(), self.num_cols);
        let (num_rows, narrow, wide) = match self.row_ptr {
            RowPtr::Narrow(values) => (values.len() - 1, values, None),
            RowPtr::Wide(values) => (values.len() - 1, Vec::new(), Some(values)),
        };
        lists.extend([narrow, self.col_idx, self.long_rows]);
        DirectionShape { num_rows, num_cols, num_edges, num_long, wide }
    }

    pub fn upload<B: Backend>(self, device: &B::Device) -> Topology<IntTensor<B>> {
        let mut lists = Vec::new();
        let shape = self.take_lists(&mut lists);
        shape.topology::<B>(&mut lists.into_iter().map(|list| index_tensor::<B>(list, device)), device)
    }
}
