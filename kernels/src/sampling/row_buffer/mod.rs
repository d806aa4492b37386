//! A matrix that is changed in place, a few rows at a time.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;
mod pinned;

pub use pinned::PinnedRows;

use std::fmt;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_backend::AutodiffBackend;

use crate::graph::upload::RowIds;
use crate::runtime::check;

/// Backends with a [`RowBuffer`]. Nothing here has a gradient: the rows are data.
pub trait RowBufferBackend: Backend {
    /// `target[to_k] = source[from_k]`, or `source[k]` without `from`; in place where nobody else holds `target`. The
    /// `to` are distinct and there is at least one.
    #[doc(hidden)]
    fn put_rows(
        target: FloatTensor<Self>,
        source: FloatTensor<Self>,
        from: Option<IntTensor<Self>>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self>;

    /// `target[to_k] = target[from_k]`; no row is among both, and the `to` are distinct.
    #[doc(hidden)]
    fn move_rows(
        target: FloatTensor<Self>,
        from: IntTensor<Self>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self>;

    /// `rows` rows from row `first` on, sharing their memory.
    #[doc(hidden)]
    fn rows_at(target: &FloatTensor<Self>, first: usize, rows: usize) -> FloatTensor<Self>;

    /// Where kernels find a tensor; `None` where they do not read host memory under its own address.
    #[doc(hidden)]
    fn address(_tensor: &FloatTensor<Self>) -> Option<u64> {
        None
    }

    /// The same of integers.
    #[doc(hidden)]
    fn int_address(_tensor: &IntTensor<Self>) -> Option<u64> {
        None
    }

    /// `target[to_k] = memory[rows_k]` for rows that lie `delta` elements behind `anchor`, one behind the other.
    #[doc(hidden)]
    fn fetch_rows(
        _target: FloatTensor<Self>,
        _anchor: &IntTensor<Self>,
        _delta: usize,
        _rows: IntTensor<Self>,
        _to: IntTensor<Self>,
        _len: usize,
    ) -> FloatTensor<Self> {
        unreachable!("no rows are pinned for a device without an address for them")
    }
}

impl<B: RowBufferBackend, C: CheckpointStrategy> RowBufferBackend for Autodiff<B, C> {
    fn put_rows(
        target: FloatTensor<Self>,
        source: FloatTensor<Self>,
        from: Option<IntTensor<Self>>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::put_rows(target.primitive, source.primitive, from, to, len))
    }

    fn move_rows(
        target: FloatTensor<Self>,
        from: IntTensor<Self>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::move_rows(target.primitive, from, to, len))
    }

    fn rows_at(target: &FloatTensor<Self>, first: usize, rows: usize) -> FloatTensor<Self> {
        Self::from_inner(B::rows_at(&target.primitive, first, rows))
    }

    fn address(tensor: &FloatTensor<Self>) -> Option<u64> {
        B::address(&tensor.primitive)
    }

    fn int_address(tensor: &IntTensor<Self>) -> Option<u64> {
        B::int_address(tensor)
    }

    fn fetch_rows(
        target: FloatTensor<Self>,
        anchor: &IntTensor<Self>,
        delta: usize,
        rows: IntTensor<Self>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::fetch_rows(target.primitive, anchor, delta, rows, to, len))
    }
}

/// Rows `[capacity, width]` in f32, f16 or bf16 on a device.
///
/// Rows are written in place as long as nobody holds a matrix of [`RowBuffer::rows`]; while somebody does, the next
/// change copies the buffer first, so that a matrix once handed out never changes.
///
/// # Example
/// ```
/// use burn::tensor::{DType, Tensor};
/// use burn_flex::Flex;
/// use graphsieve_kernels::RowBuffer;
/// let device = Default::default();
/// let mut buffer = RowBuffer::<Flex>::new([3, 2], DType::F32, &device);
/// let fetched = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
/// buffer.put(fetched, None, &[2, 0]);
/// buffer.shift(&[(2, 1)]);
/// assert_eq!(buffer.rows(2).into_data().to_vec::<f32>().unwrap(), [3.0, 4.0, 1.0, 2.0]);
/// ```
pub struct RowBuffer<B: Backend> {
    /// Taken out while it is changed, so that it is held once.
    rows: Option<FloatTensor<B>>,
    capacity: usize,
    device: B::Device,
}

impl<B: RowBufferBackend> fmt::Debug for RowBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowBuffer({} x {}, {:?})", self.capacity, self.width(), self.dtype())
    }
}

impl<B: RowBufferBackend> RowBuffer<B> {
    /// A buffer of that many rows and columns. What is in it is not defined before it is put there.
    pub fn new([capacity, width]: [usize; 2], dtype: DType, device: &B::Device) -> Self {
        // One row at least: no device binds a buffer of nothing.
        check::storage_type("RowBuffer", "dtype", dtype);
        let rows = B::float_empty([capacity.max(1), width].into(), device, dtype.into());
        Self { rows: Some(rows), capacity, device: device.clone() }
    }

    fn held(&self) -> &FloatTensor<B> {
        self.rows.as_ref().unwrap_or_else(|| unreachable!("the rows are put back after every change"))
    }

    /// Number of rows.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.held().shape()[1]
    }

    /// How a value is stored.
    pub fn dtype(&self) -> DType {
        self.held().dtype()
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.capacity * self.width() * self.dtype().size()
    }

    /// Writes rows of `source` to the rows `to`: those that `from` lists, or all in their order.
    ///
    /// # Panics
    /// If `source` has another width or dtype, a list has another length than the other or than `source` has rows, or a
    /// row does not exist. That the rows of `to` are distinct is the caller's promise.
    pub fn put(&mut self, source: Tensor<B, 2>, from: Option<&[u32]>, to: &[u32]) {
        let device = self.device.clone();
        let ids = |rows: &[u32]| RowIds::new(rows, &device);
        self.put_ids(source, from.map(ids), ids(to));
    }

    /// [`RowBuffer::put`] with lists that are on the device already.
    ///
    /// # Panics
    /// As [`RowBuffer::put`].
    pub fn put_ids(&mut self, source: Tensor<B, 2>, from: Option<RowIds<B>>, to: RowIds<B>) {
        const OP: &str = "RowBuffer::put";
        let source = source.into_primitive().tensor();
        let [rows, width] = check::matrix(OP, "source", &source);
        check::size(OP, "columns of source", self.width(), width);
        check::same_dtype(OP, "source", &source, self.held());
        check::size(OP, "rows to write", from.as_ref().map_or(rows, RowIds::len), to.len());
        to.check(OP, "to", self.capacity);
        from.iter().for_each(|from| from.check(OP, "from", rows));
        if to.is_empty() || width == 0 {
            return;
        }
        let (len, target) = (to.len(), self.take());
        self.rows = Some(B::put_rows(target, source, from.map(|from| from.ids), to.ids, len));
    }

    /// Reads `rows` from page-locked host memory into the rows `to`; the device reads them itself.
    ///
    /// # Panics
    /// If the memory has another width or dtype, the lists differ in length or a row does not exist. That the rows of
    /// `to` are distinct is the caller's promise.
    pub fn fetch(&mut self, from: &PinnedRows<B>, rows: &RowIds<B>, to: &RowIds<B>) {
        const OP: &str = "RowBuffer::fetch";
        check::size(OP, "columns of the host rows", self.width(), from.width());
        assert!(from.dtype() == self.dtype(), "{OP}: expected {:?}, got {:?}", self.dtype(), from.dtype());
        check::size(OP, "rows to write", rows.len(), to.len());
        to.check(OP, "to", self.capacity);
        rows.check(OP, "rows", from.num_rows());
        if to.is_empty() || self.width() == 0 {
            return;
        }
        let target = self.take();
        let (rows, to, len) = (rows.ids.clone(), to.ids.clone(), to.len());
        self.rows = Some(B::fetch_rows(target, from.anchor(), from.delta(), rows, to, len));
    }

    /// Copies the first `rows` rows of page-locked memory as one piece, and waits for it: what no gather of as many
    /// bytes beats.
    ///
    /// # Errors
    /// Says why it cannot be copied.
    ///
    /// # Panics
    /// If the buffer or the memory has fewer bytes.
    pub fn copy_first(&mut self, from: &PinnedRows<B>, rows: usize) -> Result<(), String> {
        assert!(
            rows <= self.capacity && rows <= from.num_rows() && from.width() == self.width(),
            "RowBuffer::copy_first"
        );
        let to = B::address(self.held()).ok_or("this device has no address to copy to")?;
        B::sync(&self.device).map_err(|failure| failure.to_string())?;
        from.copy_to(to, rows)
    }

    /// Copies rows to other rows of the buffer, `(from, to)`.
    ///
    /// # Panics
    /// If a row does not exist. That no row is read and written, and none written twice, is the caller's promise.
    pub fn shift(&mut self, moves: &[(u32, u32)]) {
        let (from, to): (Vec<u32>, Vec<u32>) = moves.iter().copied().unzip();
        let [from, to] = [from, to].map(|rows| RowIds::new(&rows, &self.device));
        self.shift_ids(from, to);
    }

    /// [`RowBuffer::shift`] with lists that are on the device already.
    ///
    /// # Panics
    /// As [`RowBuffer::shift`], and if the lists differ in length.
    pub fn shift_ids(&mut self, from: RowIds<B>, to: RowIds<B>) {
        const OP: &str = "RowBuffer::shift";
        check::size(OP, "rows to write", from.len(), to.len());
        from.check(OP, "from", self.capacity);
        to.check(OP, "to", self.capacity);
        if to.is_empty() || self.width() == 0 {
            return;
        }
        let (len, target) = (to.len(), self.take());
        self.rows = Some(B::move_rows(target, from.ids, to.ids, len));
    }

    /// A buffer of another capacity with the first `keep` rows of this one.
    ///
    /// # Panics
    /// If either buffer has fewer rows than are kept.
    pub fn resize(&mut self, capacity: usize, keep: usize) {
        check::size("RowBuffer::resize", "rows to keep", keep.min(capacity).min(self.capacity), keep);
        let mut other = Self::new([capacity, self.width()], self.dtype(), &self.device);
        let all: Vec<u32> = (0..keep as u32).collect();
        other.put(self.rows(keep), None, &all);
        *self = other;
    }

    /// The first `rows` rows, which share the buffer's memory.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn rows(&self, rows: usize) -> Tensor<B, 2> {
        assert!(rows <= self.capacity, "RowBuffer::rows: expected at most {}, got {rows}", self.capacity);
        if rows == 0 {
            let empty = B::float_empty([0, self.width()].into(), &self.device, self.dtype().into());
            return Tensor::from_primitive(TensorPrimitive::Float(empty));
        }
        Tensor::from_primitive(TensorPrimitive::Float(B::rows_at(self.held(), 0, rows)))
    }

    fn take(&mut self) -> FloatTensor<B> {
        self.rows.take().unwrap_or_else(|| unreachable!("the rows are put back after every change"))
    }
}
