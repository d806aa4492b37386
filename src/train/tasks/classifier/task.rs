//! A node classifier as a task of the training loop.

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, gather_rows};
use serde::Serialize;

use super::batches::{Targets, parts};
use super::data::ClassifierData;
use super::placement::{Computed, OnDevice, Placement};
use crate::config::{Best, ClassifyConfig, ClassifyTrain, DecayedLayers, LoaderConfig, LoaderMode, TrainConfig};
use crate::data::class_split::ClassSplit;
use crate::error::{Error, Result, grouped};
use crate::graph::Spill;
use crate::infer::layerwise_classes::class_logits;
use crate::infer::plan;
use crate::infer::sampled_input::SampledInput;
use crate::loader::{Batch, FeatureStore};
use crate::metrics::ClassReport;
use crate::models::device_graph::check_device;
use crate::models::graph_part::Division;
use crate::models::node_classifier::{ClassifierSpec, NodeClassifier};
use crate::models::parameters::{Export, Parameters, to_host};
use crate::models::precision::dtype_on;
use crate::models::weights::ModelSpec;
use crate::nn::TrainingPass;
use crate::run::evaluation::class_report;
use crate::sampler::check_draw;
use crate::train::early_stopping::Verdict;
use crate::train::full::Full;
use crate::train::loading::transferred;
use crate::train::optimiser::{Decay, Optimiser};
use crate::train::position::Position;
use crate::train::ranks::{Rank, failed, of_part, planned};
use crate::train::runner::Runner;
use crate::train::sampled::{Sampled, Sampling};
use crate::train::session::check_finite;
use crate::train::shard::Shard;
use crate::train::task::{Judgement, Losses, Task};
use crate::train::tasks::class_loss::{ClassLoss, Validation, validate};

/// One line of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EpochLine {
    pub loss: f32,
    #[serde(flatten)]
    pub validation: Option<Validation>,
}

/// Graph, features and labels of a classification, where the passes find them; models of all seeds share them.
pub struct Classifier<B: GraphBackend> {
    pub spec: ClassifierSpec,
    pub split: ClassSplit,
    /// What was decided about mini-batches, where the configuration leaves that to the program.
    pub decisions: Vec<String>,
    config: ClassifyConfig,
    train: TrainConfig,
    loss: ClassLoss,
    placement: Placement<B>,
    device: B::Device,
}

impl<B: GraphBackend> Classifier<B> {
    /// Uploads data or prepares to load them; several ranks decide about that together.
    ///
    /// # Errors
    /// A precision or a transfer that the device does not have, data that do not fit the model, and a rank that fails.
    pub fn of(
        config: &ClassifyConfig,
        data: &ClassifierData,
        rank: Option<&Rank<B>>,
        device: &B::Device,
    ) -> Result<Self> {
        let ClassifierData { dataset, features, spec, split, .. } = data;
        let graph = &spec.reading(dataset.graph.clone(), features);
        let dtype = dtype_on::<B>(config.train.precision, device)?;
        check_draw(config.loader.draw, graph.relations(), &config.name)?;
        let plan = planned::<B>(plan::classes::<B>(config, spec, graph, features, device), rank, device)?;
        let mut decisions = Vec::new();
        if spec.cut.is_some() {
            let (all, left) = (dataset.graph.num_edges(), graph.num_edges());
            decisions.push(format!("model.cut: {} of {} edges are cut", grouped(all - left), grouped(all)));
        }
        if config.loader.mode != LoaderMode::Full {
            decisions.push(plan.to_string());
        }
        let placement = if plan.sampled {
            let input = SampledInput::new(spec, graph, features, dtype)?;
            let store = FeatureStore::new(input.features().clone(), input.graph(), device)?;
            let (store, how) = transferred(store, &config.loader, rank)?;
            decisions.push(how);
            Placement::Host { input, store }
        } else {
            let several = rank.filter(|rank| rank.ranks() > 1);
            let division = several.and_then(|rank| Some((rank.rank(), Division::balanced(graph, rank.ranks())?)));
            decisions.extend(several.map(|_| match &division {
                Some((_, division)) => division.to_string(),
                None => "every rank has the whole graph: a part of it would have no rows".into(),
            }));
            let train = &split.train;
            Placement::Device(Box::new(match division {
                Some(division) => OnDevice::of_rank(spec, graph, division, features, dtype, train, device)?,
                None => OnDevice::upload(spec, graph, features, dtype, train, device)?,
            }))
        };
        Ok(Self { decisions, ..Self::placed(config, spec.clone(), split.clone(), placement, device) })
    }

    /// In mini-batches of the rows of `input`, which `store` holds.
    pub fn on_host(
        config: &ClassifyConfig,
        spec: ClassifierSpec,
        split: ClassSplit,
        input: SampledInput,
        store: FeatureStore<Autodiff<B>>,
    ) -> Self {
        let device = store.device().clone();
        Self::placed(config, spec, split, Placement::Host { input, store }, &device)
    }

    fn placed(
        config: &ClassifyConfig,
        spec: ClassifierSpec,
        split: ClassSplit,
        placement: Placement<B>,
        device: &B::Device,
    ) -> Self {
        let loss = ClassLoss::of(&config.loss, &split.train);
        let (train, config, device) = (config.train.shared(), config.clone(), device.clone());
        Self { spec, split, decisions: Vec::new(), config, train, loss, placement, device }
    }

    fn sampled(
        &self,
        input: &SampledInput,
        store: &FeatureStore<Autodiff<B>>,
        seed: u64,
        first: usize,
        shard: Shard,
    ) -> Result<Sampled<B, Targets>> {
        let config = ClassifyConfig { seed, ..self.config.clone() };
        let settings = &self.config.loader;
        let layers = config.model.layers;
        if settings.fanouts.len() != layers {
            return Err(Error::Config {
                origin: config.name.clone().into(),
                key: "loader.fanouts".into(),
                expected: format!("{layers} fanouts, as model.layers"),
                found: format!("{:?}", settings.fanouts),
                help: "one for each layer, the one next to the seeds first; 0 takes all neighbours".into(),
            });
        }
        if self.split.train.is_empty() {
            return Err(Error::Data {
                what: "split of the labels".into(),
                expected: "at least one training node".into(),
                found: "none".into(),
                help: "label more nodes, or choose another split".into(),
            });
        }
        let sampling = Sampling {
            config: settings,
            graph: input.graph(),
            sampler: input.sampler(&settings.fanouts, (settings.draw, settings.kappa), seed)?,
            store: store.clone(),
            first_reverse: true,
            drop_edge: None,
        };
        let (host, train) = (input.graph().clone(), self.split.train.clone());
        Sampled::new(sampling, first, config.train.epochs, move |epoch| parts(&config, &host, &train, epoch, shard))
    }

    /// Whether ranks compute logits of all nodes together.
    pub(super) fn scores_together(&self) -> bool {
        match &self.placement {
            Placement::Device(on_device) => matches!(on_device.rows, Computed::Part { .. }),
            Placement::Host { .. } => true,
        }
    }

    /// Logits of all nodes, row by row. Ranks that compute them together all ask for them; where rows are divided rank
    /// 0 alone gets them.
    ///
    /// # Errors
    /// A device that failed, or what a thread of the loader ran into; a rank that fails.
    pub fn logits(&self, model: &NodeClassifier<B>, rank: Option<&Rank<B>>) -> Result<Vec<f32>> {
        match &self.placement {
            Placement::Device(on_device) => {
                let logits = match &on_device.rows {
                    Computed::All { inner_graph, inner_x, .. } => to_host(model.forward(inner_graph, inner_x, None)),
                    Computed::Part { inner, .. } => {
                        let logits = model.forward_divided(inner, None, of_part(rank)).map_err(failed)?;
                        inner.graph().on_first_host(logits, of_part(rank))?
                    }
                };
                check_device()?;
                Ok(logits)
            }
            Placement::Host { input, .. } => {
                let spill = Spill::of_gigabytes(self.config.loader.host_memory, &self.config.output.dir);
                class_logits(&[(model.clone(), self.device.clone())], &self.spec, input, rank, &spill)
            }
        }
    }

    /// Figures of logits on some labelled nodes.
    ///
    /// # Errors
    /// Never for the labels of this task.
    pub fn report(&self, logits: &[f32], part: &[(u32, u32)]) -> Result<ClassReport> {
        class_report(logits, self.spec.classes, part)
    }
}

/// Whether a parameter is no bias, no number of normalisation, and no frequency or phase of ages.
fn is_weight(name: &str) -> bool {
    !name.ends_with(".bias") && !name.starts_with("norms.") && !name.contains(".time.")
}

impl<B: GraphBackend> Task<B> for Classifier<B> {
    type Model = NodeClassifier<Autodiff<B>>;
    type Inner = NodeClassifier<B>;
    /// A pass, and the part of the loss that is computed of it.
    type Input = (TrainingPass, Shard);
    type Begun = (TrainingPass, Shard);
    type Part = Targets;
    type Detail = ();
    type Figures = Validation;
    type Line = EpochLine;

    const NAME: &'static str = "classify";
    const TERMS: &'static [&'static str] = &["the loss of the training nodes"];

    fn train(&self) -> &TrainConfig {
        &self.train
    }

    fn spec(&self) -> ModelSpec {
        ModelSpec::NodeClassifier(self.spec.clone())
    }

    fn model(&self, parameters: &mut Parameters<Autodiff<B>>) -> Result<Self::Model> {
        NodeClassifier::new(&self.spec, parameters, &self.device)
    }

    fn inner_model(&self, parameters: &mut Parameters<B>) -> Result<Self::Inner> {
        NodeClassifier::new(&self.spec, parameters, &self.device)
    }

    fn export(&self, model: &Self::Inner) -> Export {
        model.export(&self.spec)
    }

    fn optimiser(&self) -> Optimiser<B, Self::Model> {
        let ClassifyTrain { weight_decay, decayed_layers, .. } = self.config.train;
        let applies: fn(&str) -> bool = match decayed_layers {
            DecayedLayers::First => {
                |name| (name.starts_with("layers.0.") || name.starts_with("edges.0.")) && is_weight(name)
            }
            DecayedLayers::All => is_weight,
        };
        let optimiser = Optimiser::new(&self.train);
        if weight_decay == 0.0 {
            return optimiser;
        }
        optimiser.with_decay(Decay { coefficient: weight_decay, applies })
    }

    fn runner_of(&self, shard: Shard, seed: u64, first: usize) -> Result<Runner<B, Self>> {
        match &self.placement {
            Placement::Device(_) => {
                let pass = move |epoch: usize| (TrainingPass { seed, step: epoch as u32, layer: 0, first: 0 }, shard);
                Ok(Runner::Full(Full::direct(first, pass)))
            }
            Placement::Host { input, store } => {
                Ok(Runner::Sampled(Box::new(self.sampled(input, store, seed, first, shard)?)))
            }
        }
    }

    /// All layers together.
    fn edges_per_epoch(&self) -> usize {
        match &self.placement {
            Placement::Device(on_device) => {
                self.spec.layers
                    * match &on_device.rows {
                        Computed::All { graph, .. } => graph.num_edges(),
                        Computed::Part { part, .. } => part.num_edges(),
                    }
            }
            Placement::Host { .. } => 0,
        }
    }

    fn begin(&self, input: Self::Input) -> Self::Begun {
        input
    }

    fn epoch(&self, model: &Self::Model, (pass, shard): Self::Begun, rank: Option<&Rank<B>>) -> Result<Losses<B>> {
        let Placement::Device(on_device) = &self.placement else {
            unreachable!("epochs over the whole graph have it on the device")
        };
        let training = Some((pass, self.config.model.dropout));
        let logits = match &on_device.rows {
            Computed::All { graph, x, .. } => model.forward(graph, x, training),
            Computed::Part { part, .. } => model.forward_divided(part, training, of_part(rank)).map_err(failed)?,
        };
        let (logits, targets) = (gather_rows(logits, &on_device.train_rows), on_device.targets.clone());
        let loss = match targets.dims()[0] {
            all if shard == Shard::WHOLE || all == 0 => self.loss.of_rows(logits, targets),
            all => {
                // A part without a node has one that counts nothing.
                let own = shard.of(all);
                let (first, len) = (own.start, own.len().max(1));
                let loss = self.loss.of_rows(logits.narrow(0, first, len), targets.narrow(0, first, len));
                loss * (own.len() as f64 / all as f64)
            }
        };
        Ok(Losses { loss, terms: Vec::new(), detail: () })
    }

    fn batch(&self, model: &Self::Model, batch: Batch<Autodiff<B>, Targets>) -> Result<Losses<B>> {
        let Placement::Host { input, .. } = &self.placement else {
            unreachable!("mini-batches are loaded from the host")
        };
        let Batch { x, blocks, seed_rows, payload: Targets { classes, share, step, seed }, .. } = batch;
        let pass = TrainingPass { seed, step, layer: 0, first: 0 };
        // Without a gradient, see `as_data`.
        let rows = input.read(x.into_iter().map(Tensor::inner).collect()).into_autodiff();
        let LoaderConfig { draw, fanouts, .. } = &self.config.loader;
        let (blocks, rows) = input.estimating((*draw, fanouts), blocks, rows);
        let logits = model.forward_batch(&blocks, rows, Some((pass, self.config.model.dropout)));
        // The rows that are left are the seeds, of one type behind those of another.
        let mut targets = Vec::new();
        for (rows, classes) in seed_rows.iter().zip(&classes) {
            let first = targets.len();
            targets.resize(first + classes.len(), 0i32);
            rows.iter().zip(classes).for_each(|(&row, &class)| targets[first + row as usize] = class as i32);
        }
        let len = targets.len();
        let targets = Tensor::from_data(TensorData::new(targets, [len, 1]), &self.device);
        let loss = self.loss.of_rows(logits, targets);
        let loss = if share == 1.0 { loss } else { loss * share };
        Ok(Losses { loss, terms: Vec::new(), detail: () })
    }

    fn validate(&self, model: &Self::Inner, (): (), epoch: usize, rank: Option<&Rank<B>>) -> Result<Validation> {
        let ClassifyTrain { best, .. } = self.config.train;
        let validation = validate(&self.logits(model, rank)?, self.spec.classes, &self.split.validation, best)?;
        check_finite("the validation loss", validation.validation_loss as f32, epoch)?;
        Ok(validation)
    }

    fn assist(&self, model: &Self::Inner, rank: &Rank<B>) -> Result<()> {
        if self.scores_together() {
            self.logits(model, Some(rank))?;
        }
        Ok(())
    }

    fn judge(&self, figures: &Validation, position: &mut Position) -> Judgement {
        let ClassifyTrain { best, patience, .. } = self.config.train;
        let stopping = position.early_stopping.get_or_insert_default();
        let metric = figures.figure();
        let Verdict { keep, stop } = stopping.observe(best, patience, figures.validation_loss, metric);
        Judgement { keep, stop, metric }
    }

    fn is_over(&self, position: &Position) -> bool {
        position.early_stopping.is_some_and(|stopping| stopping.is_over(self.config.train.patience))
    }

    fn line(&self, _: usize, _: f64, values: &[f32], validation: Option<Validation>) -> EpochLine {
        EpochLine { loss: values[0], validation }
    }

    fn progress(&self, _: Option<Validation>, position: &Position) -> String {
        let figure = match self.config.train.best {
            Best::AveragePrecision => "average precision",
            Best::Loss | Best::Accuracy | Best::Both => "accuracy",
        };
        format!("  best validation {figure} {:.4}", position.best_metric)
    }
}
