//! Stage 2: graph attention that turns a few labels into a score for every node.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{DropEdge, GraphBackend};
use ndarray::ArrayView1;
use rayon::prelude::*;
use serde::Serialize;

use super::attention_batches::{BatchInput, parts, sampler};
use super::attention_divided as divided;
use super::attention_loss::{DeviceLoss, GroupedLoss, LossInput, LossWeights, edges_of_epoch};
use crate::config::{
    LoaderMode, RankingMetric, Rows, RunConfig, STAGE2_EMBEDDINGS_FILE, STAGE2_SCORES_FILE, Stage2Config, Stage2Input,
    Stage2Model, TrainConfig,
};
use crate::data::pieces;
use crate::data::split::Split;
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::graph::{Dataset, Features, HeteroGraph, NodeType, Spill, Subset, write_npy_f32, write_npy_f32_digested};
use crate::infer::attention::{
    check_own, edge_inputs, host_scores, input_features, load_edges, own_types, with_edges, with_labels,
};
use crate::infer::finite::check_finite_rows;
use crate::infer::label_input::beside;
use crate::infer::layerwise::{self, HostScored};
use crate::infer::plan;
use crate::loader::{Batch, FeatureStore};
use crate::models::attention::{
    AttentionSpec, Connections, EpochDrop, Pass, PassDropout, PieceInput, TripleStreamGat, projects_last, time_input,
};
use crate::models::device_graph::{DeviceGraph, check_range, upload_features};
use crate::models::graph_part::{Division, GraphPart};
use crate::models::parameters::{Export, Parameters};
use crate::models::precision::{as_data, dtype, dtype_on};
use crate::models::receptive_field::{PendingField, ReceptiveField};
use crate::models::weights::ModelSpec;
use crate::run::baseline::{Baseline, BesideBaseline};
use crate::run::bundle::Origin;
use crate::run::bundle::drift::Profile;
use crate::run::calibration::write_calibration;
use crate::run::evaluation::{EVALUATION_FILE, Evaluation, evaluate_split};
use crate::run::known_labels::{KnownLabels, LABEL_COLUMNS, Seen};
use crate::run::ranked::{LabelledEvents, Ranked};
use crate::run::splits::{split_of, within};
use crate::sampler::{EdgePlace, check_draw};
use crate::timing::{alongside, timed};
use crate::train::full::Full;
use crate::train::loading::{beside_digests, opened, transferred};
use crate::train::plots::{self, Series};
use crate::train::position::Position;
use crate::train::ranks::{Rank, agree, alone, of_part, planned};
use crate::train::runner::Runner;
use crate::train::sampled::{Sampled, Sampling, epoch_of, part_of};
use crate::train::session::{RunOptions, Session, check_finite, part_note};
use crate::train::shard::Shard;
use crate::train::stretch::{Judged, Validated};
use crate::train::task::{Judgement, Losses, Task};
use crate::train::trainer::{self, Led, Place, Trained};

/// One line of `metrics.jsonl`.
#[derive(Serialize)]
pub struct EpochLine {
    loss: f32,
    supervised: f32,
    unsupervised: f32,
    learning_rate: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_auc: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_average_precision: Option<f64>,
    /// Of events: share of a day's alerts that are right.
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_alerts: Option<f64>,
    /// Of events with amounts: share of the fraudulent amount that these alerts stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_stopped: Option<f64>,
}

/// What a finished Stage 2 leaves.
#[derive(Clone, Debug, Serialize)]
pub struct Stage2Outcome {
    pub run: PathBuf,
    pub best_epoch: usize,
    /// Of the best checkpoint, on the validation and the test part.
    pub evaluation: Evaluation,
    #[serde(flatten)]
    pub baseline: BesideBaseline,
    /// Mean wall time of the epochs after the first.
    #[serde(skip)]
    pub seconds_per_epoch: Option<f64>,
}

impl fmt::Display for Stage2Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "best epoch {}, held-out test labels:\n{}", self.best_epoch, self.evaluation.test)?;
        write!(f, "{}", self.baseline)?;
        crate::train::session::write_speed(f, self.seconds_per_epoch)
    }
}

/// The attention network with its labels, and its graph where the passes find it.
pub struct Attention<B: GraphBackend> {
    config: Stage2Config,
    spec: AttentionSpec,
    host: Arc<HeteroGraph>,
    placement: Placement<B>,
    /// Labels that are learnt, and those that choose the epoch.
    train: Vec<(u32, u8)>,
    validation: Vec<(u32, u8)>,
    /// What alerts about the latter need to know.
    events: LabelledEvents,
    weights: LossWeights,
    /// Labels that are input, of a model that reads them.
    known: Option<Arc<KnownLabels>>,
    device: B::Device,
}

/// Where graph and input are.
enum Placement<B: GraphBackend> {
    /// On the device.
    Device {
        graph: OnDevice<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        /// For passes without gradients, which compute all rows.
        inner: OnDevice<B>,
    },
    /// On the host, from where mini-batches are loaded.
    Host { store: FeatureStore<Autodiff<B>>, features: Features },
}

/// What a device has of a graph.
enum OnDevice<B: Backend> {
    Whole(Box<DeviceGraph<B>>),
    /// The rows of one rank, and where the rows of all ranks stand behind each other, by node.
    Part(Box<GraphPart<B>>, Arc<[u32]>),
}

/// What the host prepares for an epoch over the whole graph.
pub struct EpochInput {
    epoch: usize,
    nodes: Option<Vec<Vec<u32>>>,
    loss: GroupedLoss,
    /// By type: columns of labels.
    labels: Option<Vec<Vec<f32>>>,
    /// The part of the loss that this is.
    shard: Shard,
}

/// The same when the device has begun it.
pub struct BegunEpoch<B: GraphBackend> {
    epoch: usize,
    /// The rows that the loss depends on, where the whole graph is on the device.
    field: Option<PendingField<Autodiff<B>>>,
    loss: DeviceLoss<B>,
    labels: Option<Vec<Vec<f32>>>,
    shard: Shard,
}

/// Trains the attention network, scores every node with the best checkpoint and evaluates it once on the test labels;
/// as one of several ranks, where there are any: what rank 0 leaves.
///
/// # Errors
/// Data or a checkpoint that cannot be used, outputs that cannot be written, a loss that is not finite, another rank
/// that fails, or an interruption (everything is saved then).
pub fn run<B: GraphBackend>(
    config: &Stage2Config,
    options: &RunOptions,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Stage2Outcome>> {
    let mut dataset = opened::<B>(&config.data.path, &options.check, device)?.in_window(config.data.window)?;
    load_edges(config, &mut dataset)?;
    let labels = dataset.binary_labels(&config.data.path)?;
    let split = split_of(&dataset, &labels.entries, &config.split, config.seed)?;
    let Some(fitted) = compared::<B>(config, &dataset, &split, Kind::Model, options, rank, device)? else {
        return Ok(None);
    };
    finished(config, &dataset, &split, fitted, rank, device)
}

/// [`run`] on data that are read and labels that are divided already. The run is a part of another one and leaves no
/// model of its own.
///
/// # Errors
/// As for [`run`].
pub fn run_on<B: GraphBackend>(
    config: &Stage2Config,
    dataset: &Dataset,
    split: &Split,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Stage2Outcome> {
    let fitted = alone(compared::<B>(config, dataset, split, Kind::Part, options, None, device)?);
    Ok(alone(finished(config, dataset, split, fitted, None, device)?))
}

/// [`fitted`], beside the logistic regression that rank 0 compares it with.
fn compared<B: GraphBackend>(
    config: &Stage2Config,
    dataset: &Dataset,
    split: &Split,
    kind: Kind,
    options: &RunOptions,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Fitted<B>>> {
    let leads = rank.is_none_or(|rank| rank.rank() == 0);
    let unwanted = AtomicBool::new(false);
    let baseline = || if leads { Baseline::unless(&unwanted, dataset, split) } else { Ok(None) };
    let (baseline, fitted) = alongside("the logistic regression", baseline, || {
        let fitted = fitted::<B>(config, dataset, split, kind, options, rank, device);
        // Who interrupts and other ranks wait for the error.
        unwanted.store(fitted.is_err(), Ordering::Relaxed);
        fitted
    });
    Ok(fitted?.map(|fitted| Fitted { baseline, ..fitted }))
}

/// What a trained network leaves, on rank 0; the others score with it where they can.
fn finished<B: GraphBackend>(
    config: &Stage2Config,
    dataset: &Dataset,
    split: &Split,
    fitted: Fitted<B>,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Stage2Outcome>> {
    let host = &dataset.graph;
    let Fitted { trained: Trained { model, led }, task, known, features, of_all, origin, baseline } = fitted;
    let rank = rank.filter(|_| task.scores_together());
    if led.is_none() && rank.is_none() {
        return Ok(None);
    }
    let task = match known {
        None => task,
        // What is written is of the whole graph.
        Some(_) => {
            drop(task);
            Attention::<B>::open(config, host, features, split, of_all.clone(), rank, device)?.0
        }
    };
    let HostScored { scores, embeddings } = timed("scoring all nodes", || task.scored(&model, None, rank))?;
    let Some(Led { session, position, seconds_per_epoch, .. }) = led else { return Ok(None) };
    check_finite_rows("the score", &scores, 1, dataset)?;
    let run = &session.run;
    let write = || {
        write_npy_f32(run.output(STAGE2_SCORES_FILE), &ArrayView1::from(&scores))?;
        write_npy_f32_digested(run.output(STAGE2_EMBEDDINGS_FILE), &embeddings.as_f32())
    };
    let judge = || -> Result<_> {
        let outcome = Stage2Outcome {
            run: run.path().to_path_buf(),
            best_epoch: position.best_epoch,
            evaluation: timed("the evaluation", || evaluate_split(&scores, dataset, split))?,
            baseline: BesideBaseline::with(baseline?.as_ref(), dataset, split, config.early_stop.metric, &scores)?,
            seconds_per_epoch,
        };
        if let Some(of_all) = &of_all {
            of_all.write(run.path(), dataset)?;
        }
        write_calibration(run, &scores, split)?;
        if config.output.plots {
            plot(&session, &scores, split, outcome.evaluation.threshold)?;
        }
        let profile = || Profile::of_training(dataset, Some(&scores), &split.train);
        Ok((outcome, origin.map(|origin| (origin, timed("the profile", profile)))))
    };
    // Embeddings are as large as the hidden layer: the disk takes the longest.
    let (written, judged) = alongside("writing scores and embeddings", write, judge);
    let digest = written?;
    let (outcome, profile) = judged?;
    atomic_write(run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    if let Some((origin, profile)) = profile {
        origin.finish(run, &profile, &[(STAGE2_EMBEDDINGS_FILE, digest)])?;
    }
    session.finish(&best_in_words(config, &position));
    Ok(Some(outcome))
}

/// Trains as far as `options` say and looks at nothing but the training and the validation labels of `split`. `also`
/// are other nodes that are scored.
///
/// # Errors
/// As for [`run`].
///
/// # Panics
/// For other nodes of data that are split by time.
pub fn validated<B: GraphBackend>(
    config: &Stage2Config,
    dataset: &Dataset,
    split: &Split,
    also: &[u32],
    options: &RunOptions,
    device: &B::Device,
) -> Result<Validated> {
    let dataset = with_edges(config, dataset)?;
    let fitted = fitted::<B>(config, &dataset, split, Kind::Part, options, None, device)?;
    let Fitted { trained: Trained { model, led }, task, known, .. } = alone(fitted);
    let Led { session, position, .. } = alone(led);
    assert!(known.is_none() || also.is_empty(), "the nodes of a part of the data have other numbers");
    let wanted: Vec<u32> = task.validation.iter().map(|(node, _)| *node).chain(also.iter().copied()).collect();
    let scores = task.scored(&model, Some(&wanted), None)?.scores;
    session.finish("");
    Ok(Validated {
        run: session.run.path().to_path_buf(),
        judged: Judged::of(&scores, &task.validation),
        also: also.iter().map(|&node| scores[node as usize]).collect(),
        done: position.epoch,
        complete: position.epoch == config.train.epochs || task.is_over(&position),
    })
}

/// What a run is.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A model, which remembers its data.
    Model,
    /// A part of another run.
    Part,
}

/// A trained network, and what it was trained on.
struct Fitted<B: GraphBackend> {
    trained: Trained<TripleStreamGat<B>>,
    task: Attention<B>,
    /// Of data that are split by time what the training saw.
    known: Option<Subset>,
    features: Features,
    of_all: Option<KnownLabels>,
    /// Of a model of its own.
    origin: Option<Origin>,
    /// Where the network is compared with one. An error waits until scores and embeddings are written.
    baseline: Result<Option<Baseline>>,
}

fn fitted<B: GraphBackend>(
    config: &Stage2Config,
    dataset: &Dataset,
    split: &Split,
    kind: Kind,
    options: &RunOptions,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Fitted<B>>> {
    let filling = match config.data.input {
        Stage2Input::Features => dataset.filling(options.begun())?,
        Stage2Input::Embeddings => None,
    };
    let features = input_features(&config.data, dataset, filling.as_ref(), None)?;
    // Before there is a run: what does not fit leaves none.
    let known = dataset.training_part();
    let of_known = known.as_ref().map(|known| (&known.dataset, within(split, known, dataset)));
    let (part, labels) = of_known.as_ref().map_or((dataset, split), |(part, labels)| (*part, labels));
    let events = LabelledEvents::of(part, &labels.validation);
    events.check(config.early_stop.metric, &config.name, "early_stop.metric")?;
    let labels_of = |dataset: &Dataset, split: &Split| {
        let (Stage2Model { labels, label_rate, .. }, seed) = (&config.model, config.seed);
        labels.then(|| KnownLabels::of(dataset, &split.train, *label_rate, seed))
    };
    let of_all = labels_of(dataset, split);
    let (rows, of_part) = match &known {
        None => (features.clone(), of_all.clone()),
        Some(known) => (known.rows_of(&features), labels_of(part, labels)),
    };
    let toml = RunConfig::Stage2(config.clone()).to_toml()?;
    let read = || -> Result<Option<Origin>> {
        let of_model = || Origin::of("stage2", &config.data.path, dataset, config.data.embeddings.as_deref());
        (kind == Kind::Model).then(of_model).transpose()
    };
    let open = || Attention::<B>::open(config, &part.graph, rows, labels, of_part, rank, device);
    // Several ranks agree on the data before they do anything together.
    let agreed = |rank: &Rank<B>| -> Result<Option<Origin>> {
        let origin = read()?;
        let input = match config.data.input {
            Stage2Input::Features => None,
            Stage2Input::Embeddings => Some(&features),
        };
        agree::<B>(rank, &toml, origin.as_ref(), input)?;
        Ok(origin)
    };
    let agreed = rank.map(agreed).transpose()?;
    let (origin, (task, decisions)) = beside_digests(agreed, read, open)?;
    let task = Attention { events, ..task };
    let of_part = known.as_ref().map(|known| part_note(known, dataset));
    let filled = filling.as_ref().and_then(|filling| dataset.filling_note(filling));
    let notes: Vec<String> = dataset.notes.iter().cloned().chain(decisions).chain(of_part).chain(filled).collect();
    let (runs, name, seed) = (&config.output.dir, &config.name, config.seed);
    let place = Place { runs, name, seed, config: &toml, origin: origin.as_ref(), filling: filling.as_ref() };
    let trained = trainer::train(&task, &place, options, &notes, rank, device)?;
    Ok(trained.map(|trained| Fitted { trained, task, known, features, of_all, origin, baseline: Ok(None) }))
}

impl<B: GraphBackend> Attention<B> {
    /// Uploads graph and input, or prepares to load them in mini-batches, with what was decided about that. `known` are
    /// labels that are input, too. Several ranks decide together.
    ///
    /// # Errors
    /// A precision or a transfer that the device does not have, features or relations that do not fit its types; a rank
    /// that fails.
    pub fn open(
        config: &Stage2Config,
        host: &HeteroGraph,
        features: Features,
        split: &Split,
        known: Option<KnownLabels>,
        rank: Option<&Rank<B>>,
        device: &B::Device,
    ) -> Result<(Self, Vec<String>)> {
        let storage = dtype_on::<B>(config.train.precision, device)?;
        check_draw(config.loader.draw, host.relations(), &config.name)?;
        check_own(config, host)?;
        let width = features.dim() + known.as_ref().map_or(0, |_| LABEL_COLUMNS.len());
        let pieces = (config.model.pieces > 0).then(|| PieceInput {
            pieces: config.model.pieces,
            bounds: pieces::bounds(&features, &split.train, config.model.pieces),
        });
        let plan = planned::<B>(plan::attention::<B>(config, host, width, device), rank, device)?;
        let mut notes = Vec::new();
        if config.loader.mode != LoaderMode::Full {
            notes.push(plan.to_string());
        }
        let placement = if plan.sampled {
            check_range(&features, storage)?;
            let store = FeatureStore::new(features.clone(), host, device)?;
            let (store, how) = transferred(store, &config.loader, rank)?;
            notes.push(how);
            Placement::Host { store, features }
        } else {
            let x = timed("uploading features", || upload_features(host.node_types(), &features, storage, device))?;
            let several = rank.filter(|rank| rank.ranks() > 1);
            let division = several.and_then(|rank| Division::balanced(host, rank.ranks()).map(|of| (rank.rank(), of)));
            notes.extend(several.map(|_| shared_work(config.train.rows, division.as_ref().map(|(_, of)| of))));
            match division {
                Some(division) => Placement::of_rank(host, division, x, config.train.rows, device)?,
                None => Placement::on_device(timed("uploading the graph", || DeviceGraph::upload(host, device))?, x),
            }
        };
        let labels = [split.train.clone(), split.validation.clone()];
        let task = Self::of(config, host, placement, width, labels, known, device);
        Ok((Self { spec: AttentionSpec { pieces, ..task.spec }, ..task }, notes))
    }

    /// On a graph on the device with the input `x`, one matrix per node type.
    pub fn on_device(
        config: &Stage2Config,
        host: &HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        train: &[(u32, u8)],
        device: &B::Device,
    ) -> Self {
        let width = x.first().map_or(0, |x| x.dims()[1]);
        Self::of(config, host, Placement::on_device(graph, x), width, [train.to_vec(), Vec::new()], None, device)
    }

    /// In mini-batches of the rows of `store`.
    pub fn on_host(
        config: &Stage2Config,
        host: &HeteroGraph,
        features: Features,
        store: FeatureStore<Autodiff<B>>,
        train: &[(u32, u8)],
        device: &B::Device,
    ) -> Self {
        let width = features.dim();
        Self::of(config, host, Placement::Host { store, features }, width, [train.to_vec(), Vec::new()], None, device)
    }

    fn of(
        config: &Stage2Config,
        host: &HeteroGraph,
        placement: Placement<B>,
        input: usize,
        [train, validation]: [Vec<(u32, u8)>; 2],
        known: Option<KnownLabels>,
        device: &B::Device,
    ) -> Self {
        let spec = AttentionSpec {
            negative_slope: config.model.negative_slope as f32,
            own: own_types(config.model.own, host),
            edges: edge_inputs(host, time_input(config.model.edges(), host).as_ref()),
            connections: Connections::of(&config.model),
            labels: known.is_some(),
            ..AttentionSpec::new(host.streams(), input, [config.model.hidden, config.model.out], config.model.heads)
        };
        let weights = LossWeights::of(&config.loss, &train);
        let (config, host, device) = (config.clone(), Arc::new(host.clone()), device.clone());
        let known = known.map(Arc::new);
        let events = LabelledEvents::default();
        Self { config, spec, host, placement, train, validation, events, weights, known, device }
    }

    /// Dropout of mini-batch `part` of an epoch, of which a rank has the part `shard`.
    fn dropout(&self, epoch: u64, part: u32, shard: Shard) -> Option<PassDropout> {
        let (rate, seed) = (self.config.model.dropout, shard.seed(self.config.seed));
        (rate > 0.0).then_some(PassDropout { rate, seed, step: [epoch as u32, part] })
    }

    /// DropEdge of an epoch.
    fn drop_edge(&self, epoch: usize) -> EpochDrop {
        EpochDrop { rate: self.config.drop_edge.rate, seed: self.config.seed, epoch: epoch as u32 }
    }

    /// The data type of features and hidden vectors.
    fn dtype(&self) -> DType {
        dtype(self.config.train.precision)
    }

    /// Whether ranks score together.
    fn scores_together(&self) -> bool {
        matches!(&self.placement, Placement::Host { .. } | Placement::Device { inner: OnDevice::Part(..), .. })
    }

    /// The nodes that a validation wants scores of.
    fn wanted(&self) -> Vec<u32> {
        self.validation.iter().map(|(node, _)| *node).collect()
    }

    /// Scores and embeddings of all nodes, or scores of at least those in `wanted`. Ranks that score together all
    /// ask for them; where rows are divided rank 0 alone gets them.
    ///
    /// # Errors
    /// A device that failed; a rank that fails.
    pub fn scored(
        &self,
        model: &TripleStreamGat<B>,
        wanted: Option<&[u32]>,
        rank: Option<&Rank<B>>,
    ) -> Result<HostScored> {
        let known = self.known.as_deref();
        match &self.placement {
            Placement::Device { inner, x, .. } => {
                let x: Vec<Tensor<B, 2>> = x.iter().map(|x| x.clone().inner()).collect();
                // Who wants some nodes wants their scores.
                let (chunk_rows, embeddings) = (self.config.train.chunk_size, wanted.is_none());
                match inner {
                    OnDevice::Whole(graph) => host_scores(model, graph, &x, known, wanted, chunk_rows, embeddings),
                    OnDevice::Part(part, _) => with_labels(self.host.node_types(), &x, known, wanted, |x| {
                        divided::scores(model, part, x, (chunk_rows, embeddings), of_part(rank))
                    }),
                }
            }
            Placement::Host { features, .. } => {
                let replica = [(model.clone(), self.device.clone())];
                let spill = Spill::of_gigabytes(self.config.loader.host_memory, &self.config.output.dir);
                let places = (rank, &spill);
                layerwise::scores_with_labels(&replica, &self.host, features, known, wanted, self.dtype(), places)
            }
        }
    }

    /// By type: columns of labels of nodes, numbered within their types.
    fn labels_of(&self, known: &KnownLabels, seen: &Seen, nodes: &[Vec<u32>]) -> Vec<Vec<f32>> {
        let of_type = |(of, nodes): (&NodeType, &Vec<u32>)| {
            known.columns(seen, nodes.par_iter().map(|node| of.offset as u32 + node))
        };
        self.host.node_types().iter().zip(nodes).map(of_type).collect()
    }

    fn sampled(
        &self,
        store: &FeatureStore<Autodiff<B>>,
        seed: u64,
        first: usize,
        shard: Shard,
    ) -> Result<Sampled<B, BatchInput>> {
        let config = Stage2Config { seed, ..self.config.clone() };
        let sampling = Sampling {
            config: &self.config.loader,
            graph: &self.host,
            sampler: sampler(&config.loader, seed, self.host.clone())?,
            store: store.clone(),
            first_reverse: !projects_last(config.model.heads, self.spec.input, config.model.hidden),
            drop_edge: (config.drop_edge.rate > 0.0).then(|| {
                let (rate, fanouts) = (config.drop_edge.rate, config.loader.fanouts.clone());
                let layers = fanouts.len();
                let rule = move |number: u64, place: EdgePlace| {
                    // A fanout thins a layer out already.
                    if fanouts[place.layer] > 0 {
                        return None;
                    }
                    let layer = (layers - 1 - place.layer) as u32;
                    DropEdge::new(rate, seed, epoch_of(number) as u32, layer, place.relation as u32)
                };
                Arc::new(rule) as _
            }),
        };
        let (host, labels, known) = (self.host.clone(), self.train.clone(), self.known.clone());
        Sampled::new(sampling, first, self.config.train.epochs, move |epoch| {
            parts(&config, &host, &labels, known.as_deref(), epoch, shard)
        })
    }
}

impl<B: GraphBackend> Placement<B> {
    fn on_device(graph: DeviceGraph<Autodiff<B>>, x: Vec<Tensor<Autodiff<B>, 2>>) -> Self {
        let graph = graph.with_values_in(x.first().map_or(DType::F32, Tensor::dtype));
        Placement::Device { inner: OnDevice::Whole(graph.inner().into()), graph: OnDevice::Whole(graph.into()), x }
    }

    /// The rows of one of several ranks; reachable rows are found in the whole graph.
    fn of_rank(
        host: &HeteroGraph,
        (rank, division): (usize, Division),
        x: Vec<Tensor<Autodiff<B>, 2>>,
        rows: Rows,
        device: &B::Device,
    ) -> Result<Self> {
        let places: Arc<[u32]> = division.places().into();
        let dtype = x.first().map_or(DType::F32, Tensor::dtype);
        let part = GraphPart::upload(host, division, rank, device)?.with_values_in(dtype);
        let inner = OnDevice::Part(part.inner().into(), places.clone());
        let graph = match rows {
            Rows::All => OnDevice::Part(part.into(), places),
            Rows::Reachable => OnDevice::Whole(DeviceGraph::upload(host, device)?.with_values_in(dtype).into()),
        };
        Ok(Placement::Device { graph, x, inner })
    }
}

impl<B: GraphBackend> Task<B> for Attention<B> {
    type Model = TripleStreamGat<Autodiff<B>>;
    type Inner = TripleStreamGat<B>;
    type Input = EpochInput;
    type Begun = BegunEpoch<B>;
    type Part = BatchInput;
    type Detail = ();
    type Figures = Ranked;
    type Line = EpochLine;

    const NAME: &'static str = "stage 2";
    const TERMS: &'static [&'static str] = &["the loss", "the supervised loss", "the unsupervised loss"];

    fn train(&self) -> &TrainConfig {
        &self.config.train
    }

    fn spec(&self) -> ModelSpec {
        ModelSpec::Attention(self.spec.clone())
    }

    fn model(&self, parameters: &mut Parameters<Autodiff<B>>) -> Result<Self::Model> {
        TripleStreamGat::new(&self.spec, parameters)
    }

    fn inner_model(&self, parameters: &mut Parameters<B>) -> Result<Self::Inner> {
        TripleStreamGat::new(&self.spec, parameters)
    }

    fn export(&self, model: &Self::Inner) -> Export {
        model.export(&self.spec)
    }

    fn runner_of(&self, shard: Shard, seed: u64, first: usize) -> Result<Runner<B, Self>> {
        if let Placement::Host { store, .. } = &self.placement {
            return Ok(Runner::Sampled(Box::new(self.sampled(store, seed, first, shard)?)));
        }
        let config = Stage2Config { seed, ..self.config.clone() };
        let (host, labels, known) = (self.host.clone(), self.train.clone(), self.known.clone());
        let places = match &self.placement {
            Placement::Device { graph: OnDevice::Part(_, places), .. } => Some(places.clone()),
            _ => None,
        };
        Ok(Runner::Full(Full::prefetched(first, self.config.train.epochs, move |epoch| {
            let edges = edges_of_epoch(&config, &host, epoch);
            let drawn = known.as_ref().map(|known| known.of_epoch(config.model.label_rate, seed, epoch));
            let learned = drawn.as_ref().map_or(&labels, |masked| &masked.learned);
            let input = LossInput::of_shard(&host, learned, &edges, config.train.rows, shard);
            let mut input = match &places {
                Some(places) => input.placed(places),
                None => input,
            };
            let columns = |known: &KnownLabels, seen: &Seen| known.by_type(seen, host.node_types());
            let labels = known.as_ref().zip(drawn.as_ref()).map(|(known, masked)| columns(known, &masked.seen));
            EpochInput { epoch, nodes: input.nodes.take(), loss: input.grouped(), labels, shard }
        })))
    }

    fn edges_per_epoch(&self) -> usize {
        match &self.placement {
            Placement::Device { graph: OnDevice::Whole(graph), .. } => 2 * graph.num_edges(),
            Placement::Device { graph: OnDevice::Part(part, _), .. } => 2 * part.num_edges(),
            Placement::Host { .. } => 0,
        }
    }

    fn begin(&self, EpochInput { epoch, nodes, loss, labels, shard }: EpochInput) -> BegunEpoch<B> {
        let pass = Pass { drop_edge: Some(self.drop_edge(epoch)), ..Pass::default() };
        let field = match &self.placement {
            Placement::Device { graph: OnDevice::Whole(graph), .. } => {
                let drops = |relation: &_| pass.drop_of(graph, 1, relation);
                Some(ReceptiveField::begin_rows(graph, nodes, drops, &self.device))
            }
            _ => None,
        };
        BegunEpoch { epoch, field, loss: loss.upload(&self.device), labels, shard }
    }

    fn epoch(&self, model: &Self::Model, begun: BegunEpoch<B>, rank: Option<&Rank<B>>) -> Result<Losses<B>> {
        let Placement::Device { graph, x, .. } = &self.placement else {
            unreachable!("epochs over the whole graph have it on the device")
        };
        let BegunEpoch { epoch, field, loss, labels, shard } = begun;
        let x = labels.map_or_else(|| x.clone(), |columns| beside(x, columns));
        let config = &self.config;
        // Where all rows are computed, their numbers are those of the nodes, and all ranks drop the same.
        let of_rows = if config.train.rows == Rows::All { Shard::WHOLE } else { shard };
        let pass = Pass {
            drop_edge: Some(self.drop_edge(epoch)),
            chunk_rows: config.train.chunk_size,
            recompute: config.model.recompute,
            dropout: self.dropout(epoch as u64, 0, of_rows),
        };
        let logits = match (graph, field) {
            (OnDevice::Whole(graph), Some(field)) => model.logits(model.embed(graph, &field.end(), &x, pass)),
            (OnDevice::Whole(_), None) => unreachable!("an epoch over the whole graph begins there"),
            (OnDevice::Part(part, _), _) => divided::embedded(model, part, &x, pass, of_part(rank))?.1,
        };
        Ok(loss.of(logits, self.weights))
    }

    fn batch(&self, model: &Self::Model, batch: Batch<Autodiff<B>, BatchInput>) -> Result<Losses<B>> {
        let Batch { number, x, blocks, seed_rows, nodes, payload, .. } = batch;
        let x: Vec<Tensor<Autodiff<B>, 2>> = x.into_iter().map(|x| as_data(x, self.dtype())).collect();
        let x = match &self.known {
            Some(known) => beside(&x, self.labels_of(known, &payload.seen, &nodes.to_host())),
            None => x,
        };
        let dropout = self.dropout(epoch_of(number), part_of(number), payload.shard);
        let pass = Pass { recompute: self.config.model.recompute, dropout, ..Pass::default() };
        let h = model.embed_blocks(&blocks, &x, pass);
        let loss = payload.loss.reordered(&seed_rows).grouped();
        Ok(loss.of(model.logits(h), self.weights, &self.device))
    }

    fn validate(&self, model: &Self::Inner, (): (), epoch: usize, rank: Option<&Rank<B>>) -> Result<Ranked> {
        let scores = self.scored(model, Some(&self.wanted()), rank)?.scores;
        if let Some(&score) = scores.iter().find(|score| !score.is_finite()) {
            check_finite("a validation score", score, epoch)?;
        }
        let of_label = |&(node, label): &(u32, u8)| (scores[node as usize], label);
        let (scores, labels): (Vec<f32>, Vec<u8>) = self.validation.iter().map(of_label).unzip();
        Ranked::of(&scores, &labels, &self.events)
    }

    fn assist(&self, model: &Self::Inner, rank: &Rank<B>) -> Result<()> {
        if self.scores_together() {
            self.scored(model, Some(&self.wanted()), Some(rank))?;
        }
        Ok(())
    }

    fn judge(&self, figures: &Ranked, position: &mut Position) -> Judgement {
        let metric = figures.by(self.config.early_stop.metric);
        let metric = metric.unwrap_or_else(|| unreachable!("labels without the metric were refused"));
        let keep = position.best_epoch == 0 || metric > position.best_metric;
        Judgement { keep, stop: !keep && self.is_over(position), metric }
    }

    fn is_over(&self, position: &Position) -> bool {
        let waited = position.epoch - position.best_epoch;
        position.best_epoch > 0 && self.config.early_stop.patience.is_some_and(|patience| waited >= patience)
    }

    fn line(&self, _: usize, rate: f64, values: &[f32], ranked: Option<Ranked>) -> EpochLine {
        let [loss, supervised, unsupervised] = [values[0], values[1], values[2]];
        let figure = |metric| ranked.and_then(|ranked| ranked.by(metric));
        EpochLine {
            loss,
            supervised,
            unsupervised,
            learning_rate: rate,
            validation_auc: figure(RankingMetric::Auroc),
            validation_average_precision: figure(RankingMetric::AveragePrecision),
            validation_alerts: figure(RankingMetric::Alerts),
            validation_stopped: figure(RankingMetric::Stopped),
        }
    }

    fn progress(&self, _: Option<Ranked>, position: &Position) -> String {
        format!("  {}", best_in_words(&self.config, position))
    }
}

/// How several ranks share the work over a whole graph.
fn shared_work(rows: Rows, division: Option<&Division>) -> String {
    match (rows, division) {
        (Rows::All, Some(division)) => division.to_string(),
        (Rows::Reachable, Some(division)) => {
            format!("every rank trains on the rows that its part of the loss depends on; to score, {division}")
        }
        (_, None) => "every rank has the whole graph: a part of it would have no rows".into(),
    }
}

/// The figure that chose the best epoch.
fn best_in_words(config: &Stage2Config, position: &Position) -> String {
    format!("best validation {} {:.4}", config.early_stop.metric.title(), position.best_metric)
}

fn plot(session: &Session, scores: &[f32], split: &Split, threshold: f64) -> Result<()> {
    let history = session.run.history()?;
    let series = |key: &str| history.series(key);
    let (supervised, unsupervised) = (series("supervised"), series("unsupervised"));
    let losses = [
        Series { name: "supervised loss", points: &supervised },
        Series { name: "unsupervised loss", points: &unsupervised },
    ];
    let metrics = [
        ("validation ROC-AUC", series("validation_auc")),
        ("validation average precision", series("validation_average_precision")),
        ("validation alerts that are right", series("validation_alerts")),
        ("validation amount that is stopped", series("validation_stopped")),
    ];
    let metrics = metrics.iter().filter(|(_, points)| !points.is_empty());
    let metrics: Vec<Series> = metrics.map(|(name, points)| Series { name, points }).collect();
    let file = |name: &str| session.run.output(name);
    plots::training_curves(&file("training.svg"), "Stage 2: graph attention", &losses, &metrics)?;

    plots::held_out(file, "Stage 2: test labels", scores, &split.test, threshold)
}
