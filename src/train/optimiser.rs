//! Adam with a global gradient norm, loss scaling for f16 and a learning-rate schedule.

use std::marker::PhantomData;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{AdamConfig, AdamState, Clip, GraphBackend, Segments, adam, sum_of_squares};
use serde::{Deserialize, Serialize};

use super::ranks::{Rank, failed};
use crate::config::{Precision, Schedule, TrainConfig};
use crate::error::Result;
use crate::models::named;
use crate::models::parameters::to_host;

/// Good steps after which a loss scale that was halved is doubled again.
const GROWTH_INTERVAL: u32 = 200;

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

/// Adam of a model on backend `B`. All parameters are one vector to it: a step is a handful of launches, however many
/// parameters there are.
pub struct Optimiser<B: GraphBackend, M: AutodiffModule<Autodiff<B>>> {
    parameters: Option<FlatParameters<B>>,
    /// Moments of a checkpoint, until the first step shows where they belong.
    loaded: Option<[Vec<f32>; 2]>,
    steps: u64,
    clip_norm: Option<f64>,
    scale: Option<LossScale>,
    decay: Option<Decay>,
    model: PhantomData<fn(M) -> M>,
}

/// An L2 penalty: half of `coefficient` times the squared norm of the parameters that `applies` names. Its gradient is
/// added to that of the loss, as in the papers that use it with Adam.
#[derive(Clone, Copy, Debug)]
pub struct Decay {
    pub coefficient: f64,
    /// Takes a parameter's name, see [`crate::models::named`].
    pub applies: fn(&str) -> bool,
}

/// The parameters as the last step left them, with their moments.
struct FlatParameters<B: GraphBackend> {
    segments: Segments,
    state: AdamState<B>,
    /// The decay of every value.
    decay: Option<Tensor<B, 1>>,
}

impl<B: GraphBackend, M: AutodiffModule<Autodiff<B>>> Optimiser<B, M> {
    /// Adam with the usual moments (0.9, 0.999) and epsilon 1e-8.
    pub fn new(config: &TrainConfig) -> Self {
        let scale =
            (config.precision == Precision::F16).then_some(LossScale { factor: config.loss_scale, good_steps: 0 });
        let (clip_norm, model) = (config.clip_norm, PhantomData);
        Self { parameters: None, loaded: None, steps: 0, clip_norm, scale, decay: None, model }
    }

    /// With an L2 penalty.
    pub fn with_decay(self, decay: Decay) -> Self {
        Self { decay: Some(decay), ..self }
    }

    /// One step down the gradient of `loss`; `model` is the one that the step before returned. With loss scaling, a
    /// step whose gradient is not finite is skipped and the scale halved.
    pub fn step(&mut self, model: M, loss: Tensor<Autodiff<B>, 1>, learning_rate: f64) -> M {
        let device = loss.device();
        let grads = self.scaled(loss).backward();
        match self.gradient(&model, GradientsParams::from_grads(grads, &model), &device) {
            Some(gradient) => self.descend(model, gradient, learning_rate),
            None => model,
        }
    }

    /// The same on every rank, down the gradient of the sum of their losses.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn step_together(
        &mut self,
        model: M,
        loss: Tensor<Autodiff<B>, 1>,
        learning_rate: f64,
        rank: &Rank<B>,
    ) -> Result<M> {
        let device = loss.device();
        let loss = self.scaled(loss);
        let grads = rank.backward(|| loss.backward()).map_err(failed)?;
        match self.gradient(&model, GradientsParams::from_grads(grads, &model), &device) {
            Some(gradient) => Ok(self.descend(model, rank.all_reduce_queued(gradient).map_err(failed)?, learning_rate)),
            None => Ok(model),
        }
    }

    /// Gives every rank the parameters and moments that rank 0 has. Numbers of steps and loss scales are left.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn share(&mut self, model: M, rank: &Rank<B>, device: &B::Device) -> Result<M> {
        self.flat(&model, device);
        let FlatParameters { segments, state, decay } = self.taken();
        let AdamState { values, moments: [mean, square] } = state;
        let of_first = |x: Tensor<B, 1>| rank.broadcast(x, 0).map_err(failed);
        let (values, moments) = (of_first(values)?, [of_first(mean)?, of_first(square)?]);
        let model = model.map(&mut Assign { segments: &segments, values: &values, next: 0 });
        self.parameters = Some(FlatParameters { segments, state: AdamState { values, moments }, decay });
        Ok(model)
    }

    /// How many steps were taken, with those before this process.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Says how many steps were taken.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// A loss with its scale.
    fn scaled(&self, loss: Tensor<Autodiff<B>, 1>) -> Tensor<Autodiff<B>, 1> {
        match self.scale {
            Some(LossScale { factor, .. }) if factor != 1.0 => loss * factor,
            _ => loss,
        }
    }

    /// The parameters as the last step left them.
    fn flat(&mut self, model: &M, device: &B::Device) -> &FlatParameters<B> {
        let Self { parameters, loaded, decay, .. } = self;
        parameters.get_or_insert_with(|| FlatParameters::of(model, loaded.take(), *decay, device))
    }

    fn taken(&mut self) -> FlatParameters<B> {
        self.parameters.take().unwrap_or_else(|| unreachable!("parameters are listed before a step"))
    }

    /// The gradient of all parameters as one vector; none of a model without any.
    fn gradient(&mut self, model: &M, mut grads: GradientsParams, device: &B::Device) -> Option<Tensor<B, 1>> {
        let mut gradients = Gradients { grads: &mut grads, parts: Vec::new() };
        model.visit(&mut gradients);
        let parts = gradients.parts;
        (!parts.is_empty()).then(|| self.flat(model, device).segments.join(parts, device))
    }

    /// The step down `gradient`, that of the loss with its scale.
    fn descend(&mut self, model: M, gradient: Tensor<B, 1>, learning_rate: f64) -> M {
        let factor = self.scale.map_or(1.0, |s| s.factor);
        let FlatParameters { segments, state, decay } = self.taken();
        let gradient = match &decay {
            Some(decay) => gradient + state.values.clone() * decay.clone() * factor,
            None => gradient,
        };
        let wants_norm = self.clip_norm.is_some() || self.scale.is_some();
        let squares = wants_norm.then(|| sum_of_squares(gradient.clone()));
        if let (Some(scale), Some(squares)) = (&mut self.scale, &squares) {
            if !to_host(squares.clone())[0].is_finite() {
                *scale = LossScale { factor: scale.factor / 2.0, good_steps: 0 };
                self.parameters = Some(FlatParameters { segments, state, decay });
                return model;
            }
            scale.good_steps += 1;
            if scale.good_steps == GROWTH_INTERVAL {
                *scale = LossScale { factor: scale.factor * 2.0, good_steps: 0 };
            }
        }
        self.steps += 1;
        let config =
            AdamConfig { learning_rate, beta: BETA, epsilon: EPSILON, step: self.steps, gradient_scale: 1.0 / factor };
        // The norm stays on the device: no step waits for it.
        let clip = squares.zip(self.clip_norm).map(|(squares, norm)| Clip { squares, norm });
        let state = adam(state, gradient, clip, config);
        let model = model.map(&mut Assign { segments: &segments, values: &state.values, next: 0 });
        self.parameters = Some(FlatParameters { segments, state, decay });
        model
    }

    /// The state as bytes, for a checkpoint: the number of steps, then both moments.
    pub fn save(&self) -> Vec<u8> {
        let moments = match &self.parameters {
            Some(FlatParameters { segments, state, .. }) => {
                Some(state.moments.clone().map(|moment| segments.without_gaps(&to_host(moment))))
            }
            None => self.loaded.clone(),
        };
        let mut bytes = self.steps.to_le_bytes().to_vec();
        bytes.extend(moments.into_iter().flatten().flatten().flat_map(f32::to_le_bytes));
        bytes
    }

    /// Goes on from [`Self::save`]; a text says what is wrong with the bytes.
    pub fn load(mut self, bytes: &[u8]) -> Result<Self, String> {
        let Some((steps, values)) = bytes.split_first_chunk::<8>() else {
            return Err(format!("{} bytes, too few for a number of steps", bytes.len()));
        };
        if !values.len().is_multiple_of(8) {
            return Err(format!("{} bytes of moments, not two of the same length", values.len()));
        }
        self.steps = u64::from_le_bytes(*steps);
        let moment =
            |bytes: &[u8]| bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let (mean, square) = values.split_at(values.len() / 2);
        self.loaded = (!values.is_empty()).then(|| [moment(mean), moment(square)]);
        Ok(self)
    }

    /// Number of values in each moment; `None` before the first step.
    pub fn num_values(&self) -> Option<usize> {
        let loaded = self.loaded.as_ref().map(|[mean, _]| mean.len());
        self.parameters.as_ref().map(|parameters| parameters.segments.num_values()).or(loaded)
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

impl<B: GraphBackend> FlatParameters<B> {
    /// Those of `model`, before the first step that this process takes.
    fn of<M: AutodiffModule<Autodiff<B>>>(
        model: &M,
        moments: Option<[Vec<f32>; 2]>,
        decay: Option<Decay>,
        device: &B::Device,
    ) -> Self {
        let mut values = Values(Vec::new());
        model.visit(&mut values);
        let lens: Vec<usize> = values.0.iter().map(|part| part.shape().num_elements()).collect();
        let segments = Segments::new(&lens);
        let values = segments.join(values.0.into_iter().map(Some).collect(), device);
        let moments = match moments {
            None => [values.zeros_like(), values.zeros_like()],
            Some(moments) => moments.map(|moment| {
                let moment = segments.with_gaps(&moment);
                Tensor::from_data(TensorData::new(moment, [segments.total()]), device)
            }),
        };
        let decay = decay.map(|Decay { coefficient, applies }| {
            let of = |name: &str| if applies(name) { coefficient as f32 } else { 0.0 };
            let each = named::names::<Autodiff<B>, M>(model).into_iter().flat_map(|(name, len)| vec![of(&name); len]);
            let each = segments.with_gaps(&each.collect::<Vec<f32>>());
            Tensor::from_data(TensorData::new(each, [segments.total()]), device)
        });
        Self { segments, state: AdamState { values, moments }, decay }
    }
}

/// A tensor of any rank as a matrix with the same last dimension; a vector is one row. No copy for ranks up to two.
fn as_matrix<B: GraphBackend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, 2> {
    let width = tensor.dims()[D - 1];
    let rows = tensor.dims()[..D - 1].iter().product();
    tensor.reshape([rows, width])
}

/// Lists the values of parameters, in the order in which a module names them.
struct Values<B: GraphBackend>(Vec<Tensor<B, 2>>);

impl<B: GraphBackend> ModuleVisitor<Autodiff<B>> for Values<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<B>, D>>) {
        self.0.push(as_matrix(param.val().inner()));
    }
}

/// Lists the gradients of parameters in the order of [`Values`].
struct Gradients<'a, B: GraphBackend> {
    grads: &'a mut GradientsParams,
    /// A parameter that nothing depended on has none.
    parts: Vec<Option<Tensor<B, 2>>>,
}

impl<B: GraphBackend> ModuleVisitor<Autodiff<B>> for Gradients<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<B>, D>>) {
        self.parts.push(self.grads.remove::<B, D>(param.id).map(as_matrix));
    }
}

/// Gives every parameter its segment, in the order of [`Values`].
struct Assign<'a, B: GraphBackend> {
    segments: &'a Segments,
    values: &'a Tensor<B, 1>,
    next: usize,
}

impl<B: GraphBackend> ModuleMapper<Autodiff<B>> for Assign<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<Autodiff<B>, D>>) -> Param<Tensor<Autodiff<B>, D>> {
        let (id, old, mapper) = param.consume();
        let new = self.segments.part(self.values, self.next, old.dims());
        self.next += 1;
        // What is not learned stays so.
        let new = Tensor::from_inner(new).set_require_grad(old.is_require_grad());
        Param::from_mapped_value(id, new, mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::optim::{AdamConfig as BurnsAdam, Optimizer};
    use burn::tensor::backend::Backend;
    use burn_flex::Flex;
    use graphsieve_kernels::autodiff_turn;

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
        let _turn = autodiff_turn();
        let config = TrainConfig { clip_norm: None, ..TrainConfig::stage2() };
        let mut ours = Optimiser::<Flex, _>::new(&config);
        let mut burns = BurnsAdam::new().with_epsilon(1e-8).init::<Autodiff<Flex>, Pair<Autodiff<Flex>>>();
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
    fn decay_is_the_gradient_of_half_the_squared_norm_of_the_named_parameters() {
        let _turn = autodiff_turn();
        let mut ours = Optimiser::<Flex, _>::new(&TrainConfig::stage2())
            .with_decay(Decay { coefficient: 0.5, applies: |name| name == "matrix" });
        let mut plain = Optimiser::<Flex, _>::new(&TrainConfig::stage2());
        let (mut a, mut b) = (pair(), pair());
        for _ in 0..5 {
            let step = loss(&a);
            a = ours.step(a, step, 0.1);
            let step = loss(&b) + (b.matrix.val() * b.matrix.val()).sum() * 0.25;
            b = plain.step(b, step, 0.1);
        }
        for (a, b) in values(&a).into_iter().zip(values(&b)) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn a_saved_optimiser_goes_on_as_if_nothing_had_happened() {
        let _turn = autodiff_turn();
        let config = TrainConfig { clip_norm: Some(1.0), ..TrainConfig::stage2() };
        let mut whole = Optimiser::<Flex, _>::new(&config);
        let mut model = pair();
        for _ in 0..3 {
            let step = loss(&model);
            model = whole.step(model, step, 0.1);
        }
        let mut again = Optimiser::<Flex, _>::new(&config).load(&whole.save()).unwrap();
        assert_eq!(again.num_values(), Some(7));
        let next = |optimiser: &mut Optimiser<Flex, _>| values(&optimiser.step(model.clone(), loss(&model), 0.1));
        assert_eq!(next(&mut again), next(&mut whole));
        assert!(Optimiser::<Flex, Pair<_>>::new(&config).load(&[1, 2]).is_err());
        assert!(Optimiser::<Flex, Pair<_>>::new(&config).load(&[0; 12]).is_err());
    }

    #[test]
    fn a_model_kept_from_before_a_step_keeps_its_values() {
        let _turn = autodiff_turn();
        let mut optimiser = Optimiser::<Flex, _>::new(&TrainConfig::stage2());
        let first = pair();
        let second = optimiser.step(first.clone(), loss(&first), 0.1);
        let (before, kept) = (values(&second), second.clone());
        let third = optimiser.step(second.clone(), loss(&second), 0.1);
        assert_eq!(values(&first), values(&pair()));
        assert_eq!(values(&kept), before);
        assert!(values(&third).iter().zip(before).all(|(new, old)| *new != old));
    }

    #[test]
    fn a_parameter_that_the_loss_does_not_depend_on_stays_as_it_is() {
        let _turn = autodiff_turn();
        let mut optimiser = Optimiser::<Flex, _>::new(&TrainConfig::stage2());
        let mut model = pair();
        for _ in 0..2 {
            let step = model.vector.val().sum();
            model = optimiser.step(model, step, 0.1);
        }
        assert_eq!(values(&model)[..4], values(&pair())[..4]);
        assert_ne!(values(&model)[4..], values(&pair())[4..]);
    }

    #[test]
    fn a_gradient_that_overflows_skips_the_step_and_halves_the_loss_scale() {
        let _turn = autodiff_turn();
        let config = TrainConfig { precision: Precision::F16, ..TrainConfig::stage2() };
        let mut optimiser = Optimiser::<Flex, _>::new(&config);
        let start = optimiser.loss_scale().unwrap().factor;
        let model = pair();
        let skipped = optimiser.step(model.clone(), loss(&model) * f32::MAX, 0.1);
        assert_eq!(values(&skipped), values(&model));
        assert_eq!(optimiser.loss_scale().unwrap().factor, start / 2.0);
        assert_eq!(optimiser.save(), Optimiser::<Flex, Pair<_>>::new(&config).load(&optimiser.save()).unwrap().save());
        let scaled = optimiser.step(skipped, loss(&model), 0.1);
        let mut plain = Optimiser::<Flex, _>::new(&TrainConfig { precision: Precision::F32, ..config });
        let want = plain.step(model.clone(), loss(&model), 0.1);
        for (a, b) in values(&scaled).into_iter().zip(values(&want)) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }
}
