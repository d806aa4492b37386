//! What can be trained: one trait for models of all kinds.

use graphsieve_kernels::{GraphBackend, TreeBackend};

use super::Outcome;
use super::auto::known::{Known, Labels};
use super::ranks::Rank;
use super::session::RunOptions;
use super::stage3;
use super::stretch::Validated;
use super::tasks::classifier::ClassifierData;
use super::tasks::{attention, auto_encoder, classifier};
use crate::config::{ClassifyConfig, RunConfig, Stage1Config, Stage2Config, Stage3Config};
use crate::data::class_split::ClassSplit;
use crate::data::split::Split;
use crate::error::Result;
use crate::infer::tree_table::Tables;

/// The settings of one model, of whatever kind.
///
/// A new kind of model is an implementation, and a line in [`model`]. What a trained one can be asked is the trait
/// `Model` of `score`.
pub trait Fit<B: GraphBackend + TreeBackend> {
    /// Trains to the end: the run scores all nodes, is tested once, and is a model with all that it needs. As one of
    /// several ranks, where there are any: what rank 0 leaves.
    ///
    /// # Errors
    /// Data, a checkpoint or an output that cannot be used, a loss that is not finite, or an interruption.
    fn run(&self, options: &RunOptions, rank: Option<&Rank<B>>, device: &B::Device) -> Result<Option<Outcome>>;

    /// Trains as far as the stretch of `options` goes, and is judged by the validation labels.
    ///
    /// # Errors
    /// As for [`Fit::run`].
    ///
    /// # Panics
    /// For labels of another kind than the model learns from.
    fn validated(&self, given: &Given, options: &RunOptions, device: &B::Device) -> Result<Validated>;
}

/// What a search gives a training beside its settings.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    pub known: &'a Known,
    /// Nodes that are scored beside those of the validation part, of labels that are anomalous or normal.
    pub also: &'a [u32],
    /// Of the same graph and features.
    pub tables: &'a Tables,
}

impl Given<'_> {
    fn anomalies(&self) -> &Split {
        match &self.known.labels {
            Labels::Anomalies(split) => split,
            Labels::Classes(_) => unreachable!("the model does not suit classes"),
        }
    }
}

/// The model that a configuration is of.
///
/// # Panics
/// For a pipeline and a tournament, which train several.
pub fn model<B: GraphBackend + TreeBackend>(config: &RunConfig) -> &dyn Fit<B> {
    match config {
        RunConfig::Stage1(config) => config,
        RunConfig::Stage2(config) => config,
        RunConfig::Stage3(config) => config,
        RunConfig::Classify(config) => config,
        RunConfig::Pipeline(_) | RunConfig::Auto(_) => panic!("fit::model: expected one model, got {}", config.name()),
    }
}

impl<B: GraphBackend + TreeBackend> Fit<B> for Stage1Config {
    fn run(&self, options: &RunOptions, rank: Option<&Rank<B>>, device: &B::Device) -> Result<Option<Outcome>> {
        let left = auto_encoder::run::<B>(self, options, rank, device)?;
        Ok(left.map(|stage1| Outcome { stage1: Some(stage1), ..Outcome::default() }))
    }

    fn validated(&self, _: &Given, _: &RunOptions, _: &B::Device) -> Result<Validated> {
        unreachable!("Stage 1 learns from no labels")
    }
}

impl<B: GraphBackend + TreeBackend> Fit<B> for Stage2Config {
    fn run(&self, options: &RunOptions, rank: Option<&Rank<B>>, device: &B::Device) -> Result<Option<Outcome>> {
        let left = attention::run::<B>(self, options, rank, device)?;
        Ok(left.map(|stage2| Outcome { stage2: Some(stage2), ..Outcome::default() }))
    }

    fn validated(&self, given: &Given, options: &RunOptions, device: &B::Device) -> Result<Validated> {
        attention::validated::<B>(self, &given.known.dataset, given.anomalies(), given.also, options, device)
    }
}

impl<B: GraphBackend + TreeBackend> Fit<B> for Stage3Config {
    fn run(&self, options: &RunOptions, _: Option<&Rank<B>>, device: &B::Device) -> Result<Option<Outcome>> {
        let stage3 = stage3::run::<B>(self, options, device)?;
        Ok(Some(Outcome { stage3: Some(stage3), ..Outcome::default() }))
    }

    fn validated(&self, given: &Given, options: &RunOptions, device: &B::Device) -> Result<Validated> {
        let beside = (given.also, given.tables);
        stage3::validated::<B>(self, &given.known.dataset, given.anomalies(), beside, options, device)
    }
}

impl<B: GraphBackend + TreeBackend> Fit<B> for ClassifyConfig {
    fn run(&self, options: &RunOptions, rank: Option<&Rank<B>>, device: &B::Device) -> Result<Option<Outcome>> {
        let left = classifier::run::<B>(self, options, rank, device)?;
        Ok(left.map(|classify| Outcome { classify: Some(classify), ..Outcome::default() }))
    }

    fn validated(&self, given: &Given, options: &RunOptions, device: &B::Device) -> Result<Validated> {
        let Known { dataset, labels, .. } = given.known;
        let (split, anomalies) = match labels {
            Labels::Anomalies(split) => (ClassSplit::of_labels(split.clone()), true),
            Labels::Classes(split) => (split.clone(), false),
        };
        let data = ClassifierData::of_known(self, dataset, split, options.begun())?;
        classifier::validated::<B>(self, &data, anomalies, given.also, options, device)
    }
}
