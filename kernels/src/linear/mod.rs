//! Dense projection of very many rows.

mod autodiff;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

use crate::check;

/// Backends with [`linear`].
pub trait LinearBackend: Backend {
    /// `x w`, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn project(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(x, weight)
    }
}

impl LinearBackend for burn_flex::Flex {}

#[cfg(feature = "cube")]
impl<R, F, I, BT> LinearBackend for burn_cubecl::CubeBackend<R, F, I, BT>
where
    R: burn_cubecl::CubeRuntime,
    F: burn_cubecl::FloatElement,
    I: burn_cubecl::IntElement,
    BT: burn_cubecl::element::BoolElement,
{
}

/// Projects every row: `y = x w + b`.
///
/// The same as a matrix product followed by a sum, but for the gradient of `w`: the product of a `[k, n]` with an
/// `[n, m]` matrix keeps few output tiles busy when `n` is in the millions, so it is split along `n` into batches whose
/// partial products are added in f32 (25 times faster on an H100 at n = 1.54 M, k = m = 128).
///
/// # Shapes
/// `x` `[n, k]`, `weight` `[k, m]` of the same dtype, `bias` `[m]`; result `[n, m]`.
///
/// # Gradient
/// `dx = dy w^T`, `dw = x^T dy` (split over rows), `db = sum of dy over rows`. Saved: `x` and `w`, each only when the
/// other needs a gradient. Deterministic.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::linear;
/// let device = Default::default();
/// let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0]], &device);
/// let w = Tensor::<Flex, 2>::from_data([[1.0], [10.0]], &device);
/// let b = Tensor::<Flex, 1>::from_data([0.5], &device);
/// assert_eq!(linear(x, w, Some(b)).into_data().to_vec::<f32>().unwrap(), [21.5]);
/// ```
pub fn linear<B: LinearBackend>(x: Tensor<B, 2>, weight: Tensor<B, 2>, bias: Option<Tensor<B, 1>>) -> Tensor<B, 2> {
    const OP: &str = "linear";
    let (x, weight) = (x.into_primitive().tensor(), weight.into_primitive().tensor());
    check::storage(OP, "x", &x);
    check::same_dtype(OP, "weight", &weight, &x);
    check::size(OP, "rows of weight", check::matrix(OP, "x", &x)[1], check::matrix(OP, "weight", &weight)[0]);
    let y = Tensor::from_primitive(TensorPrimitive::Float(B::project(x, weight)));
    match bias {
        Some(bias) => y + bias.unsqueeze::<2>(),
        None => y,
    }
}
