//! Contiguous rows of a matrix reduced to one.

use std::fmt;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{Message, MessageBackend, Reduce, Strategy, gspmm};
use crate::graph::csr::{Csr, CsrError};
use crate::ops::spmm::SpmmBackend;
use crate::runtime::check;

/// Where contiguous segments of the rows of a matrix start and end, on a device.
pub struct SegmentOffsets<B: Backend> {
    rows: Csr<B>,
}

impl<B: Backend> Clone for SegmentOffsets<B> {
    fn clone(&self) -> Self {
        Self { rows: self.rows.clone() }
    }
}

impl<B: Backend> fmt::Debug for SegmentOffsets<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentOffsets({} segments of {} rows)", self.num_segments(), self.num_rows())
    }
}

impl<B: Backend> SegmentOffsets<B> {
    /// Segment `i` is rows `offsets[i]..offsets[i + 1]`; the last offset is the number of rows.
    ///
    /// # Errors
    /// [`CsrError`], which calls the offsets `row_ptr`, if they do not start at 0 or decrease, or there are 2^31 rows.
    pub fn from_host(offsets: &[u64], device: &B::Device) -> Result<Self, CsrError> {
        Ok(Self { rows: Csr::of_segments(offsets, device)? })
    }

    /// Number of segments.
    pub fn num_segments(&self) -> usize {
        self.rows.num_rows()
    }

    /// Rows of all segments together.
    pub fn num_rows(&self) -> usize {
        self.rows.num_edges()
    }
}

/// Contiguous rows reduced to one: `y_i = reduce x_k` over the rows `k` of segment `i`, channel by channel; 0 for an
/// empty segment.
///
/// # Shapes
/// `x` `[offsets.num_rows(), d]` in f32, f16 or bf16; result `[offsets.num_segments(), d]` in the same dtype. Sums are
/// taken in f32 whatever the storage.
///
/// # Gradient
/// `dx_k = dy_i` for a sum, `dy_i / n_i` for a mean of `n_i` rows; for a maximum or minimum `dy_i` in the channels in
/// which row `k` was the first of the best, 0 in others. Saved: the winning row of every element. Deterministic.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Source
/// Wang et al., Deep Graph Library: a graph-centric, highly-performant package for graph neural networks (2019).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Reduce, SegmentOffsets, Strategy, segment_reduce};
/// let device = Default::default();
/// let offsets = SegmentOffsets::from_host(&[0, 2, 2, 3], &device).unwrap();
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0], [5.0]], &device);
/// let y = segment_reduce(x, &offsets, Reduce::Mean, Strategy::Auto);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [2.0, 0.0, 5.0]);
/// ```
pub fn segment_reduce<B: MessageBackend + SpmmBackend>(
    x: Tensor<B, 2>,
    offsets: &SegmentOffsets<B>,
    reduce: Reduce,
    strategy: Strategy,
) -> Tensor<B, 2> {
    const OP: &str = "segment_reduce";
    check::storage::<B>(OP, "x", &x.clone().into_primitive().tensor());
    check::size(OP, "rows of x", offsets.num_rows(), x.dims()[0]);
    gspmm(&offsets.rows, Message::CopyE(x), reduce, strategy)
}
