//! Adam with a global gradient norm, loss scaling for f16 and a learning-rate schedule.

use std::marker::PhantomData;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::GraphBackend;
use serde::{Deserialize, Serialize};

use crate::config::{Precision, Schedule, TrainConfig};
use crate::models::parameters::to_host;

/// Good steps after which a loss scale that was halved is doubled again.
const GROWTH_INTERVAL: u32 = 200;

/// The storage type of features and activations.
pub fn dtype(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::F16 => DType::F16,
        Precision::BF16 => DType::BF16,
    }
}

/// The learning rate of `epoch`, counted from 1.
pub fn learning_rate(config: &TrainConfig, epoch: usize) -> f64 {
    match config.schedule {
        Schedule::Constant => config.learning_rate,
        Schedule::Cosine => {
            let progress = (epoch - 1) as f64 / config.epochs as f64;
            let span = config.learning_rate - config.learning_rate_min;
            config.learning_rate_min + span * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
        }
    }
}

/// Scale of an f16 loss: gradients of 1e-7 and below would vanish in f16.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    pub factor: f64,
    good_steps: u32,
}

/// Decay of the mean gradient and of the mean square (Kingma and Ba, ICLR 2015).
const BETA: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;

/// Adam of a model on backend `B`. All parameters are one vector to it: a step is a dozen launches, however many
/// parameters there are.
pub struct Optimiser<B: GraphBackend, M: AutodiffModule<Autodiff<B>>> {
    moments: Option<[Tensor<B, 1>; 2]>,
    /// The parameters as the last step left them.
    values: Option<Tensor<B, 1>>,
    steps: u64,
    clip_norm: Option<f64>,
    scale: Option<LossScale>,
    model: PhantomData<fn(M) -> M>,
}

impl<B: GraphBackend, M: AutodiffModule<Autodiff<B>>> Optimiser<B, M> {
    /// Adam with the usual moments (0.9, 0.999) and epsilon 1e-8.
    pub fn new(config: &TrainConfig) -> Self {
        let scale =
            (config.precision == Precision::F16).then_some(LossScale { factor: config.loss_scale, good_steps: 0 });
        Self { moments: None, values: None, steps: 0, clip_norm: config.clip_norm, scale, model: PhantomData }
    }

    /// One step down the gradient of `loss`; `model` is the one that the step before returned. With loss scaling, a step whose gradient is not finite is skipped and the
    /// scale halved.
    pub fn step(&mut self, model: M, loss: Tensor<Autodiff<B>, 1>, learning_rate: f64) -> M {
        let factor = self.scale.map_or(1.0, |s| s.factor);
        let loss = if factor == 1.0 { loss } else { loss * factor };
        let mut grads = GradientsParams::from_grads(loss.backward(), &model);
        let mut flat = Flatten::<B> { grads: &mut grads, values: Vec::new(), gradients: Vec::new() };
        model.visit(&mut flat);
        if flat.values.is_empty() {
            return model;
        }
        let mut gradient = Tensor::cat(flat.gradients, 0);
        if self.clip_norm.is_some() || self.scale.is_some() {
            let norm = (gradient.clone() * gradient.clone()).sum().sqrt() / factor;
            if let Some(scale) = &mut self.scale {
                if !to_host(norm.clone())[0].is_finite() {
                    *scale = LossScale { factor: scale.factor / 2.0, good_steps: 0 };
                    return model;
                }
                scale.good_steps += 1;
                if scale.good_steps == GROWTH_INTERVAL {
                    *scale = LossScale { factor: scale.factor * 2.0, good_steps: 0 };
                }
            }
            // On the device: no step waits for the norm.
            let shrink = match self.clip_norm {
                Some(clip) => (norm + 1e-6).recip().mul_scalar(clip).clamp_max(1.0),
                None => norm.ones_like(),
            };
            gradient = gradient * (shrink / factor);
        }
        let values = self.values.take().unwrap_or_else(|| Tensor::cat(flat.values, 0));
        let values = self.update(values, gradient, learning_rate);
        self.values = Some(values.clone());
        model.map(&mut Unflatten { values, next: 0 })
    }

    fn update(&mut self, values: Tensor<B, 1>, gradient: Tensor<B, 1>, learning_rate: f64) -> Tensor<B, 1> {
        let [mean, square] = self.moments.take().unwrap_or_else(|| [gradient.zeros_like(), gradient.zeros_like()]);
        let mean = mean * BETA[0] + gradient.clone() * (1.0 - BETA[0]);
        let square = square * BETA[1] + gradient.clone() * gradient * (1.0 - BETA[1]);
        self.steps += 1;
        let correction = BETA.map(|beta| 1.0 - beta.powf(self.steps as f64));
        let length = (square.clone() / correction[1]).sqrt() + EPSILON;
        let step = mean.clone() / length * (learning_rate / correction[0]);
        self.moments = Some([mean, square]);
        values - step
    }

    /// The state as bytes, for a checkpoint: the number of steps, then both moments.
    pub fn save(&self) -> Vec<u8> {
        let mut bytes = self.steps.to_le_bytes().to_vec();
        for moment in self.moments.iter().flatten() {
            bytes.extend(to_host(moment.clone()).into_iter().flat_map(f32::to_le_bytes));
        }
        bytes
    }

    /// Goes on from [`Self::save`]; a text says what is wrong with the bytes.
    pub fn load(mut self, bytes: Vec<u8>, device: &B::Device) -> Result<Self, String> {
        let Some((steps, values)) = bytes.split_first_chunk::<8>() else {
            return Err(format!("{} bytes, too few for a number of steps", bytes.len()));
        };
        if !values.len().is_multiple_of(8) {
            return Err(format!("{} bytes of moments, not two of the same length", values.len()));
        }
        self.steps = u64::from_le_bytes(*steps);
        let half = values.len() / 2;
        let moment = |bytes: &[u8]| {
            let values: Vec<f32> =
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            let len = values.len();
            Tensor::from_data(TensorData::new(values, [len]), device)
        };
        self.moments = (half > 0).then(|| [moment(&values[..half]), moment(&values[half..])]);
        Ok(self)
    }

    /// Number of values in each moment; `None` before the first step.
    pub fn num_values(&self) -> Option<usize> {
        self.moments.as_ref().map(|[mean, _]| mean.dims()[0])
    }

    /// The loss scale, of an f16 run.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.scale
    }

    /// Restores the loss scale.
    pub fn set_loss_scale(&mut self, scale: Option<LossScale>) {
        self.scale = scale.or(self.scale);
    }
}

/// Lists parameters and gradients as vectors, in the order in which a module names its parameters.
struct Flatten<'a, B: GraphBackend> {
    grads: &'a mut GradientsParams,
    values: Vec<Tensor<B, 1>>,
    gradients: Vec<Tensor<B, 1>>,
}

impl<B: GraphBackend> ModuleVisitor<Autodiff<B>> for Flatten<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<B>, D>>) {
        let value = param.val().inner();
        let len = value.shape().num_elements();
        // A parameter that nothing depended on has no gradient.
        let gradient = self.grads.remove::<B, D>(param.id).unwrap_or_else(|| value.zeros_like());
        self.gradients.push(gradient.reshape([len]));
        self.values.push(value.reshape([len]));
    }
}

/// Gives every parameter its part of a vector, in the order of [`Flatten`].
struct Unflatten<B: GraphBackend> {
    values: Tensor<B, 1>,
    next: usize,
}

impl<B: GraphBackend> ModuleMapper<Autodiff<B>> for Unflatten<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<Autodiff<B>, D>>) -> Param<Tensor<Autodiff<B>, D>> {
        let (id, old, mapper) = param.consume();
        let shape = old.shape();
        let len = shape.num_elements();
        let new = self.values.clone().narrow(0, self.next, len).reshape(shape);
        self.next += len;
        Param::from_mapped_value(id, Tensor::from_inner(new).require_grad(), mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::optim::{AdamConfig, Optimizer};
    use burn::tensor::backend::Backend;
    use burn_flex::Flex;

    use super::*;

    #[test]
    fn a_cosine_schedule_starts_at_the_rate_and_approaches_the_minimum() {
        let config = TrainConfig::stage1();
        assert_eq!(learning_rate(&config, 1), 1e-3);
        let middle = learning_rate(&config, 101);
        assert!((middle - (1e-3 + 1e-5) / 2.0).abs() < 1e-12, "{middle}");
        assert!(learning_rate(&config, 200) < 1.1e-5);
    }

    /// Two parameters under a loss with a known gradient.
    #[derive(Module, Debug)]
    struct Pair<B: Backend> {
        matrix: Param<Tensor<B, 2>>,
        vector: Param<Tensor<B, 1>>,
    }

    fn pair() -> Pair<Autodiff<Flex>> {
        let device = Default::default();
        let matrix = Tensor::from_data([[1.0, -2.0], [3.0, 0.5]], &device).require_grad();
        let vector = Tensor::from_data([4.0, -1.0, 0.25], &device).require_grad();
        Pair { matrix: Param::initialized(1.into(), matrix), vector: Param::initialized(2.into(), vector) }
    }

    fn loss(pair: &Pair<Autodiff<Flex>>) -> Tensor<Autodiff<Flex>, 1> {
        (pair.matrix.val() * pair.matrix.val()).sum() + (pair.vector.val() * pair.vector.val() * 3.0).sum()
    }

    fn values(pair: &Pair<Autodiff<Flex>>) -> Vec<f32> {
        [to_host(pair.matrix.val()), to_host(pair.vector.val())].concat()
    }

    #[test]
    fn steps_are_those_of_burns_adam() {
        let config = TrainConfig { clip_norm: None, ..TrainConfig::stage2() };
        let mut ours = Optimiser::<Flex, _>::new(&config);
        let mut burns = AdamConfig::new().with_epsilon(1e-8).init::<Autodiff<Flex>, Pair<Autodiff<Flex>>>();
        let (mut a, mut b) = (pair(), pair());
        for _ in 0..20 {
            let step = loss(&a);
            a = ours.step(a, step, 0.1);
            let grads = GradientsParams::from_grads(loss(&b).backward(), &b);
            b = burns.step(0.1, b, grads);
        }
        for (a, b) in values(&a).into_iter().zip(values(&b)) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn a_saved_optimiser_goes_on_as_if_nothing_had_happened() {
        let config = TrainConfig { clip_norm: Some(1.0), ..TrainConfig::stage2() };
        let mut whole = Optimiser::<Flex, _>::new(&config);
        let mut model = pair();
        for _ in 0..3 {
            let step = loss(&model);
            model = whole.step(model, step, 0.1);
        }
        let mut again = Optimiser::<Flex, _>::new(&config).load(whole.save(), &Default::default()).unwrap();
        assert_eq!(again.num_values(), Some(7));
        let next = |optimiser: &mut Optimiser<Flex, _>| values(&optimiser.step(model.clone(), loss(&model), 0.1));
        assert_eq!(next(&mut again), next(&mut whole));
        assert!(Optimiser::<Flex, Pair<_>>::new(&config).load(vec![1, 2], &Default::default()).is_err());
        assert!(Optimiser::<Flex, Pair<_>>::new(&config).load(vec![0; 12], &Default::default()).is_err());
    }
}
