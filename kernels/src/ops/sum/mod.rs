//! Sums over vectors in a fixed order, in one launch or two.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

pub(crate) use cpu::sum_of_terms;
#[cfg(feature = "cube")]
pub(crate) use {kernel::Term, launch::sum};

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_backend::{AutodiffBackend, TensorMetadata};

use crate::runtime::check;

/// Backends with [`sum_of_squares`].
pub trait SumBackend: Backend {
    /// The sum of squares of a vector, `[1]`, f32.
    #[doc(hidden)]
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl<B: SumBackend, C: CheckpointStrategy> SumBackend for Autodiff<B, C> {
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::sum_of_squares(x.primitive))
    }
}

/// The squared length of a vector: `sum_k x_k^2`.
///
/// # Shapes
/// `x` `[n]`, f32; result `[1]`, f32, zero for an empty vector. The order of the sum depends on `n` alone.
///
/// # Gradient
/// None: the result is a constant.
///
/// # Panics
/// If `x` is not f32.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::sum_of_squares;
/// let x = Tensor::<Flex, 1>::from_data([3.0, 4.0], &Default::default());
/// assert_eq!(sum_of_squares(x).into_scalar(), 25.0);
/// ```
pub fn sum_of_squares<B: SumBackend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let x = x.into_primitive().tensor();
    check::dtype("sum_of_squares", "x", &x, DType::F32);
    if x.shape()[0] == 0 {
        return Tensor::zeros([1], &B::float_device(&x));
    }
    Tensor::from_primitive(TensorPrimitive::Float(B::sum_of_squares(x)))
}
