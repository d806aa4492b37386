//! The piecewise linear encoding of columns beside them.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};

use crate::runtime::check;

/// Backends with [`beside_pieces`].
pub trait PiecesBackend: Backend {
    /// The rows with their pieces behind them.
    #[doc(hidden)]
    fn beside_pieces(x: FloatTensor<Self>, bounds: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// The rows of a matrix, each with the piecewise linear encoding of its first columns behind it. Piece `k` of column
/// `c` lies between `b_ck` and `b_c,k+1` and is
///
/// ```text
/// y_i,d+cp+k = min(max((x_ic - b_ck) / (b_c,k+1 - b_ck), 0), 1)        0 where the piece is empty
/// ```
///
/// so that a linear layer behind it is any continuous function of a column that is linear in each piece.
///
/// # Shapes
/// `x` `[n, d]` in f32, f16 or bf16; `bounds` `[c, p + 1]` in f32, ascending by row, with `c <= d` and at least one
/// piece; result `[n, d + c p]` as `x`.
///
/// # Gradient
/// None: `x` and `bounds` are data.
///
/// # Panics
/// If shapes or types do not fit, or a gradient of `x` or `bounds` is asked for.
///
/// # Source
/// Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning (NeurIPS 2022).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::beside_pieces;
/// let device = Default::default();
/// let x = Tensor::<Flex, 2>::from_data([[0.5], [3.0]], &device);
/// let bounds = Tensor::from_data([[0.0, 1.0, 5.0]], &device);
/// let y: Vec<f32> = beside_pieces(x, bounds).into_data().to_vec().unwrap();
/// assert_eq!(y, [0.5, 0.5, 0.0, 3.0, 1.0, 0.5]);
/// ```
pub fn beside_pieces<B: PiecesBackend>(x: Tensor<B, 2>, bounds: Tensor<B, 2>) -> Tensor<B, 2> {
    const OP: &str = "beside_pieces";
    let (x, bounds) = (x.into_primitive().tensor(), bounds.into_primitive().tensor());
    check::storage::<B>(OP, "x", &x);
    check::dtype(OP, "bounds", &bounds, DType::F32);
    let ([_, width], [columns, ends]) = (check::matrix(OP, "x", &x), check::matrix(OP, "bounds", &bounds));
    assert!(columns <= width, "{OP}: rows of bounds: expected at most {width}, got {columns}");
    assert!(ends >= 2, "{OP}: columns of bounds: expected at least 2, got {ends}");
    Tensor::from_primitive(TensorPrimitive::Float(B::beside_pieces(x, bounds)))
}
