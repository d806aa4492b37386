//! Exponential linear unit that keeps one tensor for its backward pass instead of three.

mod autodiff;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

/// Backends with [`elu`].
pub trait EluBackend: Backend {
    /// The activation, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn elu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let above = Self::float_clamp_min(x.clone(), 0.0.into());
        let below = Self::float_exp(Self::float_clamp_max(x, 0.0.into()));
        Self::float_add(above, Self::float_sub_scalar(below, 1.0.into()))
    }
}

impl EluBackend for burn_flex::Flex {}

#[cfg(feature = "cube")]
impl<R, F, I, BT> EluBackend for burn_cubecl::CubeBackend<R, F, I, BT>
where
    R: burn_cubecl::CubeRuntime,
    F: burn_cubecl::FloatElement,
    I: burn_cubecl::IntElement,
    BT: burn_cubecl::element::BoolElement,
{
}

/// `y = x` where `x > 0`, `exp(x) - 1` elsewhere.
///
/// # Shapes
/// Any; the result is like `x`.
///
/// # Gradient
/// `dx = dy (min(y, 0) + 1)`. Saved: the result, which the next layer keeps anyway (Burn's own keeps an exponential and
/// a mask besides). Deterministic.
///
/// # Source
/// Clevert et al., Fast and accurate deep network learning by exponential linear units (ICLR 2016).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::elu;
/// let x = Tensor::<Flex, 2>::from_data([[2.0, 0.0]], &Default::default());
/// assert_eq!(elu(x).into_data().to_vec::<f32>().unwrap(), [2.0, 0.0]);
/// ```
pub fn elu<B: EluBackend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(B::elu(x.into_primitive().tensor())))
}
