//! What a training is about: a model, its loss, and what a validation means.

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::tensor::Tensor;
use graphsieve_kernels::GraphBackend;
use serde::Serialize;

use super::full::Full;
use super::optimiser::Optimiser;
use super::position::Position;
use super::ranks::Rank;
use super::sampled::Sampled;
use super::shard::Shard;
use crate::config::TrainConfig;
use crate::error::Result;
use crate::loader::Batch;
use crate::models::parameters::{Export, Parameters};
use crate::models::weights::ModelSpec;

/// The loss of an epoch or of a mini-batch.
pub struct Losses<B: GraphBackend, D = ()> {
    /// What is minimised.
    pub loss: Tensor<Autodiff<B>, 1>,
    /// The terms behind it, for the log, as [`Task::TERMS`] names them.
    pub terms: Vec<Tensor<B, 1>>,
    /// What a validation of this epoch reads of it.
    pub detail: D,
}

/// The passes of a training, one epoch after the other.
pub enum Runner<B: GraphBackend, T: Task<B>> {
    /// The whole graph at once.
    Full(Full<T::Input, T::Begun>),
    /// Mini-batches.
    Sampled(Box<Sampled<B, T::Part>>),
}

/// What a validation means for the training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// The model is the best one so far and is kept.
    pub keep: bool,
    /// Patience is at its end.
    pub stop: bool,
    /// The figure that the model was chosen by.
    pub metric: f64,
}

/// A task of the [`Trainer`](super::trainer::Trainer). It owns its data, where the passes find them.
pub trait Task<B: GraphBackend>: Sized {
    /// The model while it is trained.
    type Model: AutodiffModule<Autodiff<B>, InnerModule = Self::Inner>;
    /// The model without gradients.
    type Inner: Module<B>;
    /// What the host prepares of an epoch over the whole graph.
    type Input;
    /// The same when the device has begun the epoch.
    type Begun;
    /// What a mini-batch brings along with its graph.
    type Part: Send + 'static;
    /// What an epoch keeps of its mini-batches, or of the whole graph, for its validation.
    type Detail: Default;
    /// Figures of a validation.
    type Figures: Copy;
    /// One line of `metrics.jsonl`.
    type Line: Serialize;

    /// The name of the task for people.
    const NAME: &'static str;
    /// The loss and its terms, as a message about a value that is not finite names them.
    const TERMS: &'static [&'static str];

    /// Epochs, rates and intervals.
    fn train(&self) -> &TrainConfig;

    /// The shape of the model.
    fn spec(&self) -> ModelSpec;

    /// The model with the values of `parameters`.
    ///
    /// # Errors
    /// A checkpoint of another shape.
    fn model(&self, parameters: &mut Parameters<Autodiff<B>>) -> Result<Self::Model>;

    /// The same without gradients.
    ///
    /// # Errors
    /// A checkpoint of another shape.
    fn inner_model(&self, parameters: &mut Parameters<B>) -> Result<Self::Inner>;

    /// The parameters under their names in a checkpoint.
    fn export(&self, model: &Self::Inner) -> Export;

    /// The optimiser.
    fn optimiser(&self) -> Optimiser<B, Self::Model> {
        Optimiser::new(self.train())
    }

    /// How epochs are gone through, from the epoch `first` on, with the random numbers of `seed`.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    fn runner(&self, seed: u64, first: usize) -> Result<Runner<B, Self>> {
        self.runner_of(Shard::WHOLE, seed, first)
    }

    /// The same over one part of every mini-batch, or of what the loss of an epoch over the whole graph reads. The
    /// losses of all parts add up to that of the whole.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    fn runner_of(&self, shard: Shard, seed: u64, first: usize) -> Result<Runner<B, Self>>;

    /// Entries of adjacencies that an epoch visits; 0 where they are sampled.
    fn edges_per_epoch(&self) -> usize;

    /// Begins an epoch over the whole graph on the device, as far as it does not depend on the model: an epoch ahead,
    /// so that no step waits for a copy from or to the host but for columns of labels.
    fn begin(&self, input: Self::Input) -> Self::Begun;

    /// The loss of an epoch over the whole graph, or the part of it of one of several ranks.
    ///
    /// # Errors
    /// A graph that has nothing to learn from; a rank that fails.
    fn epoch(&self, model: &Self::Model, begun: Self::Begun, rank: Option<&Rank<B>>)
    -> Result<Losses<B, Self::Detail>>;

    /// What a validation reads of an epoch of all ranks, from what each of them has of it.
    ///
    /// # Errors
    /// A rank that fails.
    fn gathered(&self, own: Self::Detail, _: &Rank<B>) -> Result<Self::Detail> {
        Ok(own)
    }

    /// The loss of a mini-batch.
    ///
    /// # Errors
    /// A graph that has nothing to learn from.
    fn batch(&self, model: &Self::Model, batch: Batch<Autodiff<B>, Self::Part>) -> Result<Losses<B, Self::Detail>>;

    /// What a validation reads of an epoch up to a mini-batch, from what it has of those `before` and of this one.
    fn joined(&self, _before: Self::Detail, own: Self::Detail) -> Self::Detail {
        own
    }

    /// The figures of a model on what it is validated with; rank 0 asks for them, where there are several.
    ///
    /// # Errors
    /// A device that failed, or a score that is not finite; a rank that fails.
    fn validate(
        &self,
        model: &Self::Inner,
        detail: Self::Detail,
        epoch: usize,
        rank: Option<&Rank<B>>,
    ) -> Result<Self::Figures>;

    /// What another rank than 0 does for a validation: its part, where they score together.
    ///
    /// # Errors
    /// A rank that fails.
    fn assist(&self, _: &Self::Inner, _: &Rank<B>) -> Result<()> {
        Ok(())
    }

    /// What the figures mean; `position` is that before them, and remembers what the task needs.
    fn judge(&self, figures: &Self::Figures, position: &mut Position) -> Judgement;

    /// Whether a training that is resumed here is over.
    fn is_over(&self, _: &Position) -> bool {
        false
    }

    /// The line of an epoch.
    fn line(&self, epoch: usize, rate: f64, values: &[f32], figures: Option<Self::Figures>) -> Self::Line;

    /// How well the training does, behind its loss on the progress bar; `figures` are the last ones.
    fn progress(&self, figures: Option<Self::Figures>, position: &Position) -> String;
}
