//! Rows of length one.

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

/// Added to squared lengths: a row of zeros stays zero.
pub(crate) const EPSILON: f32 = 1e-12;

/// Backends with [`normalise_rows`].
pub trait NormaliseBackend: Backend {
    /// Rows of length one, f32, and the inverse lengths `[n]`, without gradient.
    #[doc(hidden)]
    fn normalise_forward(x: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// `(g_i - z_i <g_i, z_i>) inverse_i` in `dtype`.
    #[doc(hidden)]
    fn normalise_backward(
        g: FloatTensor<Self>,
        z: FloatTensor<Self>,
        inverse: FloatTensor<Self>,
        dtype: DType,
    ) -> FloatTensor<Self>;

    /// The rows, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn normalise_rows(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::normalise_forward(x).0
    }
}

/// Divides every row by its length: `z_i = x_i / sqrt(|x_i|^2 + 1e-12)`.
///
/// # Shapes
/// `x` `[n, d]` in f32, f16 or bf16; result `[n, d]`, f32.
///
/// # Gradient
/// `dx_i = (dz_i - z_i <dz_i, z_i>) / |x_i|` in the dtype of `x`. Saved: the result and one number per row.
/// Deterministic.
///
/// # Panics
/// If `x` is no matrix.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::normalise_rows;
/// let x = Tensor::<Flex, 2>::from_data([[3.0, 4.0], [0.0, 0.0]], &Default::default());
/// let z = normalise_rows(x).into_data().to_vec::<f32>().unwrap();
/// assert!(z.iter().zip([0.6, 0.8, 0.0, 0.0]).all(|(a, b)| (a - b).abs() < 1e-6));
/// ```
pub fn normalise_rows<B: NormaliseBackend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let x = x.into_primitive().tensor();
    check::storage::<B>("normalise_rows", "x", &x);
    check::matrix("normalise_rows", "x", &x);
    Tensor::from_primitive(TensorPrimitive::Float(B::normalise_rows(x)))
}
