//! The element-wise end of a layer in one pass: sum, bias, scale, activation.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

pub(crate) use autodiff::End;
#[cfg(feature = "cube")]
pub(crate) use kernel::activated;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use serde::{Deserialize, Serialize};

use crate::ops::head::HeadBackend;
use crate::runtime::check;

/// What [`combine`] applies to every element at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// Nothing.
    #[default]
    Identity,
    /// `max(y, 0)`
    Relu,
    /// `y` where `y > 0`, `exp(y) - 1` elsewhere (Clevert et al., ICLR 2016).
    Elu,
}

/// Most matrices that one launch adds up.
pub(crate) const MAX_PARTS: usize = 4;

/// Backends with [`combine`].
pub trait CombineBackend: HeadBackend {
    /// `activation(scale (sum of parts + bias))` of one to [`MAX_PARTS`] parts, without gradient; the bias is `[1, d]`,
    /// f32.
    #[doc(hidden)]
    fn combine_forward(
        parts: Vec<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self>;

    /// `scale g activation'`, with the slope read off the result `out`, and its column sum `[1, d]`, f32 and in a fixed
    /// order, where `bias` asks for it.
    #[doc(hidden)]
    fn combine_backward(
        g: FloatTensor<Self>,
        out: FloatTensor<Self>,
        scale: f32,
        activation: Activation,
        bias: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);

    /// The sum, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn combine(
        parts: Vec<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        Self::combine_forward(parts, bias, scale, activation)
    }
}

/// Adds up matrices of one shape and finishes a layer: `y = activation(scale (x_1 + ... + x_p + bias))`, in one pass
/// over memory.
///
/// # Shapes
/// `parts`: at least one `[n, d]` matrix, all of one dtype (f32, f16 or bf16); `bias` `[d]`, f32; result like a part.
/// Sums are f32.
///
/// # Gradient
/// All parts share one gradient, `scale dy activation'(y)`; that of the bias is its column sum. The slope is read off
/// the result, the only tensor saved (none without an activation). Deterministic.
///
/// # Panics
/// If there is no part, or a shape or dtype does not fit.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Activation, combine};
/// let device = Default::default();
/// let a = Tensor::<Flex, 2>::from_data([[1.0, -5.0]], &device);
/// let b = Tensor::<Flex, 2>::from_data([[2.0, 1.0]], &device);
/// let bias = Tensor::<Flex, 1>::from_data([1.0, 0.0], &device);
/// let y = combine(vec![a, b], Some(bias), 0.5, Activation::Relu);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [2.0, 0.0]);
/// ```
pub fn combine<B: CombineBackend>(
    parts: Vec<Tensor<B, 2>>,
    bias: Option<Tensor<B, 1>>,
    scale: f32,
    activation: Activation,
) -> Tensor<B, 2> {
    const OP: &str = "combine";
    assert!(!parts.is_empty(), "{OP}: parts: expected at least one");
    let mut parts: Vec<_> = parts.into_iter().map(|p| p.into_primitive().tensor()).collect();
    check::storage::<B>(OP, "parts", &parts[0]);
    let [rows, width] = check::matrix(OP, "parts", &parts[0]);
    for part in &parts[1..] {
        let [part_rows, part_width] = check::matrix(OP, "parts", part);
        check::size(OP, "rows of parts", rows, part_rows);
        check::size(OP, "columns of parts", width, part_width);
        check::same_dtype(OP, "parts", part, &parts[0]);
    }
    let bias = bias.map(|bias| {
        let bias = bias.into_primitive().tensor();
        check::vector(OP, "bias", &bias, width);
        check::dtype(OP, "bias", &bias, DType::F32);
        B::float_reshape(bias, [1, width].into())
    });
    // More parts than a launch takes are added up before.
    while parts.len() > MAX_PARTS {
        let rest = parts.split_off(MAX_PARTS);
        parts = [vec![B::combine(parts, None, 1.0, Activation::Identity)], rest].concat();
    }
    Tensor::from_primitive(TensorPrimitive::Float(B::combine(parts, bias, scale, activation)))
}
