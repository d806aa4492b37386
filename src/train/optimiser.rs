//! Adam with a global gradient norm, loss scaling for f16 and a learning-rate schedule.

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;
use serde::{Deserialize, Serialize};

use crate::config::{Precision, Schedule, TrainConfig};
use crate::models::parameters::to_host;

type Bytes = BinBytesRecorder<FullPrecisionSettings>;

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

/// Optimiser of a model on backend `B`.
pub struct Optimiser<B: GraphBackend, M: AutodiffModule<Autodiff<B>>> {
    adam: OptimizerAdaptor<Adam, M, Autodiff<B>>,
    clip_norm: Option<f64>,
    scale: Option<LossScale>,
}

impl<B: GraphBackend, M: AutodiffModule<Autodiff<B>>> Optimiser<B, M> {
    /// Adam with the usual moments (0.9, 0.999) and epsilon 1e-8.
    pub fn new(config: &TrainConfig) -> Self {
        let scale =
            (config.precision == Precision::F16).then_some(LossScale { factor: config.loss_scale, good_steps: 0 });
        Self { adam: AdamConfig::new().with_epsilon(1e-8).init(), clip_norm: config.clip_norm, scale }
    }

    /// One step down the gradient of `loss`. With loss scaling, a step whose gradient is not finite is skipped and the
    /// scale halved.
    pub fn step(&mut self, model: M, loss: Tensor<Autodiff<B>, 1>, learning_rate: f64) -> M {
        let factor = self.scale.map_or(1.0, |s| s.factor);
        let loss = if factor == 1.0 { loss } else { loss * factor };
        let mut grads = GradientsParams::from_grads(loss.backward(), &model);
        if self.clip_norm.is_some() || self.scale.is_some() {
            let mut norm = SquaredNorm { grads: &grads, sum: None };
            model.visit(&mut norm);
            let Some(sum) = norm.sum else { return model };
            let norm = sum.sqrt() / factor;
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
            model.visit(&mut Rescale { grads: &mut grads, factor: shrink / factor });
        }
        self.adam.step(learning_rate, model, grads)
    }

    /// The state as bytes, for a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        let record: <OptimizerAdaptor<Adam, M, Autodiff<B>> as Optimizer<M, Autodiff<B>>>::Record =
            self.adam.to_record();
        Recorder::<Autodiff<B>>::record(&Bytes::default(), record, ())
            .unwrap_or_else(|e| unreachable!("tensors and counters can be encoded: {e}"))
    }

    /// Goes on from [`Self::save`]; a text says what is wrong with the bytes.
    pub fn load(mut self, bytes: Vec<u8>, device: &B::Device) -> Result<Self, String> {
        let record = Recorder::<Autodiff<B>>::load(&Bytes::default(), bytes, device).map_err(|e| e.to_string())?;
        self.adam = self.adam.load_record(record);
        Ok(self)
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

/// Sum of squares of all gradients.
struct SquaredNorm<'a, B: GraphBackend> {
    grads: &'a GradientsParams,
    sum: Option<Tensor<B, 1>>,
}

impl<B: GraphBackend> ModuleVisitor<Autodiff<B>> for SquaredNorm<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<B>, D>>) {
        if let Some(grad) = self.grads.get::<B, D>(param.id) {
            let squares = (grad.clone() * grad).sum();
            self.sum = Some(match self.sum.take() {
                Some(sum) => sum + squares,
                None => squares,
            });
        }
    }
}

/// Multiplies all gradients by one number that stays on the device.
struct Rescale<'a, B: GraphBackend> {
    grads: &'a mut GradientsParams,
    factor: Tensor<B, 1>,
}

impl<B: GraphBackend> ModuleVisitor<Autodiff<B>> for Rescale<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<B>, D>>) {
        if let Some(grad) = self.grads.remove::<B, D>(param.id) {
            self.grads.register(param.id, grad * self.factor.clone().reshape([1; D]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosine_schedule_starts_at_the_rate_and_approaches_the_minimum() {
        let config = TrainConfig::stage1();
        assert_eq!(learning_rate(&config, 1), 1e-3);
        let middle = learning_rate(&config, 101);
        assert!((middle - (1e-3 + 1e-5) / 2.0).abs() < 1e-12, "{middle}");
        assert!(learning_rate(&config, 200) < 1.1e-5);
    }
}
