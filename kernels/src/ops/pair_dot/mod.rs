//! Batched sparse dot products: the decoder of a graph auto-encoder.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorPrimitive};

use crate::graph::row_index::{PairIndex, PairIndexParts};
use crate::ops::spmm::SpmmBackend;
use crate::runtime::check;

/// Backends with [`pair_dot`].
pub trait PairDotBackend: SpmmBackend {
    /// The dot products, f32, without gradient.
    #[doc(hidden)]
    fn pair_dot_forward(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        pairs: &PairIndexParts<IntTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// The dot products, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn pair_dot(left: FloatTensor<Self>, right: FloatTensor<Self>, pairs: PairIndex<Self>) -> FloatTensor<Self> {
        Self::pair_dot_forward(left, right, &pairs.parts)
    }
}

/// Dot products of listed pairs of rows: `y_p = <left_{i_p}, right_{j_p}>`.
///
/// # Shapes
/// `left` `[num_left, d]` and `right` `[num_right, d]` of one dtype (f32, f16 or bf16; they may be the same tensor);
/// result `[pairs]`, always f32.
///
/// # Gradient
/// `dleft_i = sum over p with i_p = i of dy_p right_{j_p}`, and the same with the sides exchanged; sums in list order.
/// Saved: both matrices. Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Source
/// Kipf and Welling, Variational graph auto-encoders (2016), the inner-product decoder.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{PairIndex, pair_dot};
/// let device = Default::default();
/// let z = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
/// let y = pair_dot(z.clone(), z, &PairIndex::new(&[0, 1], &[1, 1], 2, 2, &device));
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [11.0, 25.0]);
/// ```
pub fn pair_dot<B: PairDotBackend>(left: Tensor<B, 2>, right: Tensor<B, 2>, pairs: &PairIndex<B>) -> Tensor<B, 1> {
    const OP: &str = "pair_dot";
    let (left, right) = (left.into_primitive().tensor(), right.into_primitive().tensor());
    check::storage::<B>(OP, "left", &left);
    let [left_rows, d] = check::matrix(OP, "left", &left);
    let [right_rows, right_d] = check::matrix(OP, "right", &right);
    check::size(OP, "rows of left", pairs.parts.num_left, left_rows);
    check::size(OP, "rows of right", pairs.parts.num_right, right_rows);
    check::size(OP, "columns of right", d, right_d);
    check::same_dtype(OP, "right", &right, &left);
    Tensor::from_primitive(TensorPrimitive::Float(B::pair_dot(left, right, pairs.clone())))
}
