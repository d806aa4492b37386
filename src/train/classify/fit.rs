//! The training of one model.

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use graphsieve_kernels::GraphBackend;
use serde::Serialize;

use super::sampled::{SampledEpochs, Step};
use super::task::Task;
use crate::error::Result;
use crate::metrics::{log_sum_exp, predicted_class};
use crate::models::device_graph::check_device;
use crate::models::node_classifier::NodeClassifier;
use crate::models::parameters::{Parameters, to_host};
use crate::nn::TrainingPass;
use crate::train::early_stopping::{EarlyStopping, Verdict};
use crate::train::optimiser::Optimiser;
use crate::train::session::check_finite;

/// One line of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EpochLine {
    #[serde(skip)]
    pub epoch: usize,
    pub loss: f32,
    #[serde(flatten)]
    pub validation: Option<Validation>,
}

/// Figures of the validation nodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Validation {
    pub validation_loss: f64,
    pub validation_accuracy: f64,
}

/// A training in progress.
pub struct Fit<'t, B: GraphBackend> {
    pub model: NodeClassifier<Autodiff<B>>,
    pub optimiser: Optimiser<B, NodeClassifier<Autodiff<B>>>,
    /// The model of the best epoch so far, and that epoch.
    pub best: Option<(usize, NodeClassifier<B>)>,
    pub stopping: EarlyStopping,
    task: &'t Task<B>,
    seed: u64,
    /// The mini-batches, where the graph is not trained at once.
    sampled: Option<Box<SampledEpochs<B>>>,
    /// Losses that nobody has read yet.
    pending: Vec<(usize, Tensor<B, 1>)>,
}

/// What an epoch showed.
pub struct EpochEnd {
    /// Of this epoch and of those before that were not shown yet; empty when nobody asked.
    pub lines: Vec<EpochLine>,
    /// Training is over.
    pub stop: bool,
}

impl<'t, B: GraphBackend> Fit<'t, B> {
    /// A training that goes on with `model` from the epoch `first` on.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    pub fn new(
        task: &'t Task<B>,
        model: NodeClassifier<Autodiff<B>>,
        optimiser: Optimiser<B, NodeClassifier<Autodiff<B>>>,
        seed: u64,
        first: usize,
    ) -> Result<Self> {
        let sampled = task.sampled_epochs(seed, first)?.map(Box::new);
        let (stopping, pending) = (EarlyStopping::new(), Vec::new());
        Ok(Self { model, optimiser, best: None, stopping, task, seed, sampled, pending })
    }

    /// A training that starts from `seed`.
    ///
    /// # Errors
    /// None for a valid configuration.
    pub fn from_seed(task: &'t Task<B>, seed: u64) -> Result<Self> {
        let model = task.model(&mut Parameters::<Autodiff<B>>::from_seed(seed, &task.device))?;
        Self::new(task, model, task.optimiser(), seed, 1)
    }

    /// The mini-batches, where the graph is not trained at once.
    pub fn sampled(&self) -> Option<&SampledEpochs<B>> {
        self.sampled.as_deref()
    }

    /// Takes the steps of an epoch; the result is its loss.
    fn steps(&mut self, epoch: usize) -> Result<Tensor<B, 1>> {
        let rate = self.task.config.train.learning_rate;
        let Some(sampled) = &mut self.sampled else {
            let pass = TrainingPass { seed: self.seed, step: epoch as u32, layer: 0 };
            let loss = self.task.loss(&self.model, pass);
            let value = loss.clone().inner();
            self.model = self.optimiser.step(self.model.clone(), loss, rate);
            return Ok(value);
        };
        let mut sum: Option<Tensor<B, 1>> = None;
        loop {
            let Step { loss, share, last } = sampled.next(&self.model)?;
            let part = loss.clone().inner() * share;
            let so_far = match sum {
                None => part,
                Some(sum) => sum + part,
            };
            self.model = self.optimiser.step(self.model.clone(), loss, rate);
            if last {
                return Ok(so_far);
            }
            sum = Some(so_far);
        }
    }

    /// Trains one epoch, counted from 1, and validates when that is due; `read` asks for the losses in any case.
    ///
    /// # Errors
    /// A loss that is not finite, a device that failed, or what a thread of the loader ran into.
    pub fn epoch(&mut self, epoch: usize, read: bool) -> Result<EpochEnd> {
        let loss = self.steps(epoch)?;
        self.pending.push((epoch, loss));
        let config = &self.task.config;
        let due = epoch == config.train.epochs || epoch.is_multiple_of(config.train.validate_every);
        if !due && !read {
            return Ok(EpochEnd { lines: Vec::new(), stop: false });
        }
        let mut lines = Vec::new();
        for (epoch, loss) in self.pending.drain(..) {
            let loss = to_host(loss)[0];
            check_device()?;
            check_finite("the cross-entropy of the training nodes", loss, epoch)?;
            lines.push(EpochLine { epoch, loss, validation: None });
        }
        let mut stop = false;
        if due {
            let model = self.model.valid();
            let validation = validate(&self.task.logits(&model)?, self.task.spec.classes, &self.task.split.validation);
            check_finite("the validation loss", validation.validation_loss as f32, epoch)?;
            let (loss, accuracy) = (validation.validation_loss, validation.validation_accuracy);
            let verdict = self.stopping.observe(config.train.best, config.train.patience, loss, accuracy);
            let Verdict { keep, stop: over } = verdict;
            stop = over;
            if keep {
                self.best = Some((epoch, model));
            }
            lines.last_mut().into_iter().for_each(|line| line.validation = Some(validation));
        }
        Ok(EpochEnd { lines, stop })
    }
}

/// Mean cross-entropy of rows of logits against classes `[rows, 1]`: `mean_i (ln sum_c exp(z_ic) - z_i,y_i)`, with the
/// largest logit of a row subtracted first.
pub fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, classes: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    log_softmax(logits, 1).gather(1, classes).mean().neg()
}

/// The same on the host in f64, with the share of right predictions.
fn validate(logits: &[f32], classes: usize, part: &[(u32, u32)]) -> Validation {
    let (mut loss, mut right) = (0.0, 0usize);
    for &(node, class) in part {
        let row = &logits[node as usize * classes..][..classes];
        loss += log_sum_exp(row) - f64::from(row[class as usize]);
        right += usize::from(predicted_class(row) == class);
    }
    let nodes = part.len() as f64;
    Validation { validation_loss: loss / nodes, validation_accuracy: right as f64 / nodes }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;

    #[test]
    fn the_cross_entropy_and_its_gradient_are_those_of_f64() {
        // Large logits, whose exponentials f32 cannot hold.
        let logits = [[0.5f32, -1.25, 3.0], [200.0, 199.0, -200.0], [-1e4, -1e4, -1e4 + 1.0], [7.0, 7.0, 7.0]];
        let labels = [2u32, 1, 0, 1];
        let x = Tensor::<Autodiff<Flex>, 2>::from_data(logits, &FlexDevice).require_grad();
        let classes = Tensor::<Autodiff<Flex>, 2, Int>::from_data([[2], [1], [0], [1]], &FlexDevice);
        let loss = cross_entropy(x.clone(), classes);
        let flat: Vec<f32> = logits.iter().flatten().copied().collect();
        let part: Vec<(u32, u32)> = (0..4).zip(labels).collect();
        let want = validate(&flat, 3, &part);
        assert!((f64::from(to_host(loss.clone())[0]) - want.validation_loss).abs() < 1e-5);
        let gradient = to_host(x.grad(&loss.backward()).unwrap());
        for (row, (logits, label)) in logits.iter().zip(labels).enumerate() {
            for class in 0..3 {
                let probability = (f64::from(logits[class]) - log_sum_exp(logits)).exp();
                let want = (probability - f64::from(u8::from(class as u32 == label))) / 4.0;
                let got = f64::from(gradient[row * 3 + class]);
                assert!((got - want).abs() < 1e-6, "{row}, {class}: {got} {want}");
            }
        }
    }

    #[test]
    fn accuracy_counts_the_largest_logit() {
        let validation = validate(&[1.0, 2.0, 3.0, 0.0], 2, &[(0, 1), (1, 1)]);
        assert_eq!(validation.validation_accuracy, 0.5);
    }
}
