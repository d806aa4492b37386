//! A few dot products with every row: the scores of attention.

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

/// Backends with [`row_dots`].
pub trait RowDotsBackend: Backend {
    /// The dot products, without gradient.
    #[doc(hidden)]
    fn row_dots_forward(x: FloatTensor<Self>, vectors: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `out_i = sum_k g_ik vector_k` in `dtype`, added to `accumulate_into` where that is given.
    #[doc(hidden)]
    fn row_dots_gradient(
        g: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// `out_k = sum_i g_ik x_i`, f32, summed in a fixed order.
    #[doc(hidden)]
    fn weighted_column_sums(x: FloatTensor<Self>, g: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The dot products, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn row_dots(x: FloatTensor<Self>, vectors: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::row_dots_forward(x, vectors)
    }
}

/// The dot products of every row with a few vectors: `y_ik = <x_i, v_k>`. The rows are read once.
///
/// # Shapes
/// `x` `[n, d]` in f32, f16 or bf16; `vectors` `[k, d]`, f32; result `[n, k]`, f32 whatever the storage.
///
/// # Gradient
/// `dx_i = sum_k dy_ik v_k` in the dtype of `x`, `dv_k = sum_i dy_ik x_i`, summed in a fixed order. Saved: each input
/// for the other's gradient. Deterministic.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::row_dots;
/// let device = Default::default();
/// let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
/// let v = Tensor::<Flex, 2>::from_data([[1.0, 0.0], [1.0, 1.0], [0.0, -1.0]], &device);
/// let y = row_dots(x, v);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [1.0, 3.0, -2.0, 3.0, 7.0, -4.0]);
/// ```
pub fn row_dots<B: RowDotsBackend>(x: Tensor<B, 2>, vectors: Tensor<B, 2>) -> Tensor<B, 2> {
    const OP: &str = "row_dots";
    let (x, vectors) = (x.into_primitive().tensor(), vectors.into_primitive().tensor());
    check::storage::<B>(OP, "x", &x);
    check::dtype(OP, "vectors", &vectors, DType::F32);
    let [_, width] = check::matrix(OP, "x", &x);
    let [_, vector_width] = check::matrix(OP, "vectors", &vectors);
    check::size(OP, "columns of vectors", width, vector_width);
    Tensor::from_primitive(TensorPrimitive::Float(B::row_dots(x, vectors)))
}
