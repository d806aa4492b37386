//! Dense projection of very many rows.

mod autodiff;
mod cpu;
mod factors;
#[cfg(feature = "cube")]
mod gram_mma;
#[cfg(feature = "cube")]
mod halves;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;
#[cfg(feature = "cube")]
mod mma;
mod sum;

pub use sum::{Part, combine_products};

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};

use crate::ops::combine::{Activation, CombineBackend};
use crate::runtime::check;

/// `x` and weight of products.
type Products<B> = Vec<(FloatTensor<B>, FloatTensor<B>)>;

/// Backends with [`linear`] and [`combine_products`].
pub trait LinearBackend: CombineBackend {
    /// `x w` for an `x` of many rows and a small `w`, without gradient; f32 is full f32. A `w` in f32 is rounded to the
    /// dtype of `x` first.
    #[doc(hidden)]
    fn product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `x^T g` of two matrices of many rows, in `dtype`; sums of rows are f32 in a fixed order.
    #[doc(hidden)]
    fn weight_gradient(x: FloatTensor<Self>, g: FloatTensor<Self>, dtype: DType) -> FloatTensor<Self>;

    /// `activation(scale (sum of x w + bias))` of one to [`MAX_PARTS`](crate::ops::combine::MAX_PARTS) products of one
    /// shape, recorded for the backward pass where the backend differentiates; the bias is `[1, m]`, f32.
    #[doc(hidden)]
    fn combine_products(
        terms: Products<Self>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        sum::one_by_one::<Self>(terms, bias, scale, activation)
    }

    /// `x w + b`, recorded for the backward pass where the backend differentiates; the bias is `[1, m]`.
    #[doc(hidden)]
    fn project(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        let product = Self::product(x, weight);
        match bias {
            Some(bias) => Self::float_add(product, bias),
            None => product,
        }
    }
}

/// Projects every row: `y = x w + b`.
///
/// The same as a matrix product followed by a sum, but for the gradient of `w`: the product of a `[k, n]` with an
/// `[n, m]` matrix keeps few output tiles busy when `n` is in the millions, so it is split along `n` into stretches
/// whose partial products are added in f32. The gradient of `b` is a column sum in the same manner.
///
/// # Shapes
/// `x` `[n, k]`, `weight` `[k, m]` and `bias` `[m]` of the same dtype; result `[n, m]`. The weight of an `x` in f16 or
/// bf16 may also be f32: it is rounded on its way into the product, and its gradient is f32.
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
    check::storage::<B>(OP, "x", &x);
    if weight.dtype() != DType::F32 {
        check::same_dtype(OP, "weight", &weight, &x);
    }
    check::size(OP, "rows of weight", check::matrix(OP, "x", &x)[1], check::matrix(OP, "weight", &weight)[0]);
    let width = weight.shape()[1];
    let bias = bias.map(|bias| {
        let bias = bias.into_primitive().tensor();
        check::vector(OP, "bias", &bias, width);
        check::same_dtype(OP, "bias", &bias, &x);
        B::float_reshape(bias, [1, width].into())
    });
    Tensor::from_primitive(TensorPrimitive::Float(B::project(x, weight, bias)))
}
