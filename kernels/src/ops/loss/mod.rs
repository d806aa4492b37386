//! Sums of loss terms over vectors of logits: one or two launches forward, one backward.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

#[cfg(feature = "cube")]
pub(crate) use kernel::loss_term;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use burn_backend::TensorMetadata;

use crate::runtime::check;

/// Which loss a backend sums up.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Binary cross-entropy of every logit with its target.
    CrossEntropy,
    /// The same with [`Focus`]; its numbers as bits, which a kernel is compiled for.
    Focal { gamma: u32, positive: u32 },
    /// Weighted squared difference of the scores in either row of a matrix of logits.
    Smoothness,
}

/// What [`focal_with_logits_sum`] makes of a cross-entropy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Focus {
    /// Exponent of the probability of the wrong class, at least 0. With 0 every label counts the same, with more those
    /// count less that the model is sure of. Default 0.
    pub gamma: f32,
    /// What a label of 1 counts, above 0; a label of 0 counts 1. Default 1.
    pub positive: f32,
}

impl Default for Focus {
    fn default() -> Self {
        Self { gamma: 0.0, positive: 1.0 }
    }
}

/// Backends with [`bce_with_logits_sum`] and [`smoothness_sum`].
pub trait LossBackend: Backend {
    /// `scale` times the sum, `[1]`, without gradient; `other` are the targets or the weights, not empty.
    #[doc(hidden)]
    fn loss_forward(logits: FloatTensor<Self>, other: FloatTensor<Self>, loss: Loss, scale: f32) -> FloatTensor<Self>;

    /// Gradient of the logits from that of the sum, `[1]`.
    #[doc(hidden)]
    fn loss_backward(
        g: FloatTensor<Self>,
        logits: FloatTensor<Self>,
        other: FloatTensor<Self>,
        loss: Loss,
        scale: f32,
    ) -> FloatTensor<Self>;

    /// The sum, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn loss_sum(logits: FloatTensor<Self>, other: FloatTensor<Self>, loss: Loss, scale: f32) -> FloatTensor<Self> {
        Self::loss_forward(logits, other, loss, scale)
    }
}

/// `scale` times the sum of binary cross-entropies of logits, `scale sum_k max(x_k, 0) - x_k y_k + ln(1 +
/// exp(-|x_k|))`, which never overflows. A mean has the scale `1 / n`.
///
/// # Shapes
/// `logits` and `targets` `[n]`, f32; result `[1]`, f32, zero where `n` is. The order of the sum depends on `n` alone.
///
/// # Gradient
/// `dx_k = dy scale (sigmoid(x_k) - y_k)`; targets are constants. Saved: the arguments. Deterministic.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Example
/// ```
/// use burn::backend::Autodiff;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::bce_with_logits_sum;
/// let device = Default::default();
/// let x = Tensor::<Autodiff<Flex>, 1>::from_data([0.0, 1e4], &device).require_grad();
/// let loss = bce_with_logits_sum(x.clone(), Tensor::from_data([1.0, 0.0], &device), 0.5);
/// assert!((loss.clone().into_scalar() - 0.5 * (2f32.ln() + 1e4)).abs() < 1e-3);
/// let gradients = loss.backward();
/// assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>().unwrap(), [-0.25, 0.5]);
/// ```
pub fn bce_with_logits_sum<B: LossBackend>(logits: Tensor<B, 1>, targets: Tensor<B, 1>, scale: f64) -> Tensor<B, 1> {
    const OP: &str = "bce_with_logits_sum";
    let (logits, targets) = (logits.into_primitive().tensor(), targets.into_primitive().tensor());
    check::vector(OP, "targets", &targets, logits.shape().num_elements());
    loss_sum(OP, logits, ("targets", targets), Loss::CrossEntropy, scale)
}

/// `scale` times the sum of focal losses of logits: with the margin `m_k = (1 - 2 y_k) x_k` towards the wrong class,
///
/// ```text
/// scale sum_k w_k sigmoid(m_k)^gamma ln(1 + exp(m_k))        w_k = positive where y_k = 1, else 1
/// ```
///
/// which is [`bce_with_logits_sum`] where both numbers of the [`Focus`] are their defaults, and is computed by it then.
///
/// # Shapes
/// `logits` and `targets` `[n]`, f32, targets 0 or 1; result `[1]`, f32, zero where `n` is. The order of the sum
/// depends on `n` alone.
///
/// # Gradient
/// With `s = sigmoid(m)`: `dm_k = dy scale w_k s^gamma (gamma (1 - s) ln(1 + exp(m_k)) + s)`,
/// `dx_k = (1 - 2 y_k) dm_k`; targets are constants. Saved: the arguments. Deterministic.
///
/// # Panics
/// If a shape or dtype does not fit, `gamma` is negative or not finite, or `positive` is not above 0 and finite.
///
/// # Source
/// Lin et al., Focal loss for dense object detection (ICCV 2017), equation 5.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Focus, focal_with_logits_sum};
/// let device = Default::default();
/// let x = Tensor::<Flex, 1>::from_data([0.0, 0.0], &device);
/// let y = Tensor::<Flex, 1>::from_data([1.0, 0.0], &device);
/// // Either class has half of the probability: a quarter of ln 2, three times for the label of 1.
/// let loss = focal_with_logits_sum(x, y, Focus { gamma: 2.0, positive: 3.0 }, 1.0);
/// assert!((loss.into_scalar() - 2f32.ln()).abs() < 1e-6);
/// ```
pub fn focal_with_logits_sum<B: LossBackend>(
    logits: Tensor<B, 1>,
    targets: Tensor<B, 1>,
    focus: Focus,
    scale: f64,
) -> Tensor<B, 1> {
    const OP: &str = "focal_with_logits_sum";
    let Focus { gamma, positive } = focus;
    assert!(gamma >= 0.0 && gamma.is_finite(), "{OP}: gamma: expected at least 0, got {gamma}");
    assert!(positive > 0.0 && positive.is_finite(), "{OP}: positive: expected above 0, got {positive}");
    if focus == Focus::default() {
        return bce_with_logits_sum(logits, targets, scale);
    }
    let (logits, targets) = (logits.into_primitive().tensor(), targets.into_primitive().tensor());
    check::vector(OP, "targets", &targets, logits.shape().num_elements());
    let loss = Loss::Focal { gamma: gamma.to_bits(), positive: positive.to_bits() };
    loss_sum(OP, logits, ("targets", targets), loss, scale)
}

/// `scale` times the weighted sum of squared differences of scores, `scale sum_e w_e (sigmoid(x_0e) -
/// sigmoid(x_1e))^2`: how far the scores at both ends of edges are apart.
///
/// # Shapes
/// `ends` `[2, n]`: the logits at either end of every edge; `weights` `[n]`; both f32. Result `[1]`, f32, zero where
/// `n` is. The order of the sum depends on `n` alone.
///
/// # Gradient
/// With `s = sigmoid(x)`: `dx_0e = 2 dy scale w_e (s_0e - s_1e) s_0e (1 - s_0e)`, and the same with the rows exchanged;
/// weights are constants. Saved: the arguments. Deterministic.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::smoothness_sum;
/// let device = Default::default();
/// let ends = Tensor::<Flex, 2>::from_data([[1e4, 5.0], [-1e4, 5.0]], &device);
/// let weights = Tensor::from_data([0.5, 3.0], &device);
/// assert_eq!(smoothness_sum(ends, weights, 1.0).into_scalar(), 0.5);
/// ```
pub fn smoothness_sum<B: LossBackend>(ends: Tensor<B, 2>, weights: Tensor<B, 1>, scale: f64) -> Tensor<B, 1> {
    const OP: &str = "smoothness_sum";
    let (ends, weights) = (ends.into_primitive().tensor(), weights.into_primitive().tensor());
    let [rows, len] = check::matrix(OP, "ends", &ends);
    check::size(OP, "rows of ends", 2, rows);
    check::vector(OP, "weights", &weights, len);
    loss_sum(OP, ends, ("weights", weights), Loss::Smoothness, scale)
}

fn loss_sum<B: LossBackend>(
    op: &str,
    logits: FloatTensor<B>,
    (what, other): (&str, FloatTensor<B>),
    loss: Loss,
    scale: f64,
) -> Tensor<B, 1> {
    check::dtype(op, "logits", &logits, DType::F32);
    check::dtype(op, what, &other, DType::F32);
    let sum = match other.shape()[0] {
        0 => B::float_zeros([1].into(), &B::float_device(&other), DType::F32.into()),
        _ => B::loss_sum(logits, other, loss, scale as f32),
    };
    Tensor::from_primitive(TensorPrimitive::Float(sum))
}
