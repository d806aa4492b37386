//! One step of Adam on a vector in one pass.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_backend::AutodiffBackend;

use crate::runtime::check;

/// Backends with [`adam`].
pub trait AdamBackend: Backend {
    /// New values, mean and square; `squares` is the sum of squares of the gradient, for clipping.
    #[doc(hidden)]
    fn adam_step(
        state: [FloatTensor<Self>; 3],
        gradient: FloatTensor<Self>,
        squares: Option<FloatTensor<Self>>,
        factors: AdamFactors,
    ) -> [FloatTensor<Self>; 3];
}

impl<B: AdamBackend, C: CheckpointStrategy> AdamBackend for Autodiff<B, C> {
    fn adam_step(
        state: [FloatTensor<Self>; 3],
        gradient: FloatTensor<Self>,
        squares: Option<FloatTensor<Self>>,
        factors: AdamFactors,
    ) -> [FloatTensor<Self>; 3] {
        let state = state.map(|tensor| tensor.primitive);
        B::adam_step(state, gradient.primitive, squares.map(|s| s.primitive), factors).map(Self::from_inner)
    }
}

/// The settings of a step of [`adam`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConfig {
    pub learning_rate: f64,
    /// Decay of the mean gradient and of the mean square, in [0, 1).
    pub beta: [f64; 2],
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// Number of the step, from 1: moments that started at zero are too small at first.
    pub step: u64,
    /// Factor on the gradient before everything else: the inverse of a loss scale.
    pub gradient_scale: f64,
}

/// [`AdamConfig`] as the backends take it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct AdamFactors {
    /// Learning rate over the correction of the mean.
    rate: f32,
    beta: [f32; 2],
    /// `1 - beta`
    fresh: [f32; 2],
    /// Of the square.
    correction: f32,
    epsilon: f32,
    gradient_scale: f32,
    /// Largest norm of the gradient, where there is one.
    clip_norm: f32,
}

impl AdamFactors {
    fn new(config: AdamConfig, clip_norm: f64) -> Self {
        let correction = config.beta.map(|beta| 1.0 - beta.powf(config.step as f64));
        Self {
            rate: (config.learning_rate / correction[0]) as f32,
            beta: config.beta.map(|beta| beta as f32),
            fresh: config.beta.map(|beta| (1.0 - beta) as f32),
            correction: correction[1] as f32,
            epsilon: config.epsilon as f32,
            gradient_scale: config.gradient_scale as f32,
            clip_norm: clip_norm as f32,
        }
    }
}

/// Added to the norm of a gradient before something is divided by it.
pub(crate) const CLIP_EPSILON: f32 = 1e-6;

/// What Adam keeps of a vector of parameters.
#[derive(Clone, Debug)]
pub struct AdamState<B: Backend> {
    pub values: Tensor<B, 1>,
    /// Decaying means of the gradient and of its square.
    pub moments: [Tensor<B, 1>; 2],
}

/// The largest norm of a gradient, and the norm that it has.
#[derive(Clone, Debug)]
pub struct Clip<B: Backend> {
    /// [`sum_of_squares`](crate::sum_of_squares) of the gradient before [`AdamConfig::gradient_scale`], so that no step
    /// waits for it.
    pub squares: Tensor<B, 1>,
    /// Largest norm after it.
    pub norm: f64,
}

/// A step down `gradient`: with `g` the scaled and clipped gradient and `t` the number of the step,
///
/// ```text
/// m' = b_1 m + (1 - b_1) g      v' = b_2 v + (1 - b_2) g^2
/// x' = x - rate / (1 - b_1^t) m' / (sqrt(v' / (1 - b_2^t)) + epsilon)
/// g  = s gradient min(1, norm / (s |gradient| + 1e-6))
/// ```
///
/// # Shapes
/// All tensors `[n]`, f32, but `clip.squares` `[1]`. The result stands in new memory: whoever holds the old values
/// keeps them.
///
/// # Gradient
/// None: the result is a constant.
///
/// # Panics
/// If a shape or dtype does not fit, or `config.step` is 0.
///
/// # Source
/// Kingma and Ba (ICLR 2015), algorithm 1.
///
/// # Example
/// The first step is as long as the learning rate, whatever the gradient.
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{AdamConfig, AdamState, adam};
/// let device = Default::default();
/// let zeros = Tensor::<Flex, 1>::zeros([2], &device);
/// let state = AdamState { values: Tensor::from_data([1.0, 1.0], &device), moments: [zeros.clone(), zeros] };
/// let config = AdamConfig { learning_rate: 0.25, beta: [0.9, 0.999], epsilon: 1e-8, step: 1, gradient_scale: 1.0 };
/// let state = adam(state, Tensor::from_data([100.0, -0.5], &device), None, config);
/// let values = state.values.into_data().to_vec::<f32>().unwrap();
/// assert!(values.iter().zip([0.75, 1.25]).all(|(a, b)| (a - b).abs() < 1e-6));
/// ```
pub fn adam<B: AdamBackend>(
    state: AdamState<B>,
    gradient: Tensor<B, 1>,
    clip: Option<Clip<B>>,
    config: AdamConfig,
) -> AdamState<B> {
    const OP: &str = "adam";
    assert!(config.step > 0, "{OP}: step: expected at least 1, got 0");
    let len = gradient.dims()[0];
    let vector = |what: &str, tensor: Tensor<B, 1>, len: usize| {
        let tensor = tensor.into_primitive().tensor();
        check::vector(OP, what, &tensor, len);
        check::dtype(OP, what, &tensor, DType::F32);
        tensor
    };
    let AdamState { values, moments: [mean, square] } = state;
    let state = [vector("values", values, len), vector("moments", mean, len), vector("moments", square, len)];
    let factors = AdamFactors::new(config, clip.as_ref().map_or(f64::INFINITY, |clip| clip.norm));
    let squares = clip.map(|clip| vector("squares", clip.squares, 1));
    let [values, mean, square] = match len {
        0 => state,
        _ => B::adam_step(state, vector("gradient", gradient, len), squares, factors),
    }
    .map(|tensor| Tensor::from_primitive(TensorPrimitive::Float(tensor)));
    AdamState { values, moments: [mean, square] }
}
