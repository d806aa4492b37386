//! Node classification: one class for every node of a graph.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, RowIndex, gather_rows};
use ndarray::{Array1, Array2};
use serde::Serialize;

use super::class_loss::{ClassLoss, Validation, validate};
use crate::config::{
    Best, ClassifyConfig, ClassifyLoss, ClassifyTrain, DecayedLayers, LayerKind, LoaderMode, PROBABILITIES_FILE,
    RunConfig, TrainConfig,
};
use crate::data::class_split::ClassSplit;
use crate::error::{Error, Result, grouped};
use crate::graph::formats::atomic_write;
use crate::graph::{Dataset, EdgeReading, Features, Filling, HeteroGraph, write_npy};
use crate::infer::label_input::partition;
use crate::infer::layerwise_classes::class_logits;
use crate::infer::plan;
use crate::infer::sampled_input::SampledInput;
use crate::infer::whole_classes::whole_logits;
use crate::loader::{Batch, FeatureStore, Job};
use crate::metrics::{ClassReport, Ranking, class_scores, predicted_class};
use crate::models::attention::Connections;
use crate::models::device_graph::DeviceGraph;
use crate::models::named;
use crate::models::node_classifier::{AttentionShape, ClassifierSpec, EdgeCut, NodeClassifier, probabilities};
use crate::models::node_input::NodeInput;
use crate::models::parameters::{Export, Parameters};
use crate::models::precision::{dtype, dtype_on};
use crate::models::weights::ModelSpec;
use crate::nn::TrainingPass;
use crate::run::bundle::Origin;
use crate::run::bundle::drift::Profile;
use crate::run::calibration::write_class_calibrations;
use crate::run::evaluation::{EVALUATION_FILE, class_report};
use crate::run::known_labels::{KnownLabels, Masked};
use crate::run::splits::{class_split_of, classes_within};
use crate::sampler::check_draw;
use crate::train::early_stopping::Verdict;
use crate::train::full::Full;
use crate::train::loading::transferred;
use crate::train::optimiser::{Decay, Optimiser};
use crate::train::plots::{self, Series};
use crate::train::position::Position;
use crate::train::runner::Runner;
use crate::train::sampled::{Part, Sampled, Sampling, number_of, order_of};
use crate::train::session::{RunOptions, Session, check_finite, part_note};
use crate::train::stretch::{Judged, Validated};
use crate::train::task::{Judgement, Losses, Task};
use crate::train::trainer::{self, Place, Trained};

/// What a finished classification leaves.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifyOutcome {
    pub run: PathBuf,
    /// The epoch whose model is kept.
    pub best_epoch: usize,
    /// Epochs that were trained.
    pub epochs: usize,
    /// What reading did to the data.
    pub notes: Vec<String>,
    /// Of the kept model, on the nodes that it was fitted to.
    pub train: ClassReport,
    /// On the nodes that chose the epoch.
    pub validation: ClassReport,
    /// On the nodes that nothing was chosen on.
    pub test: ClassReport,
    /// How the probability of class 1 ranks the test nodes, where average precision chose the epoch.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub ranked: Option<Ranked>,
    /// Mean wall time of the epochs after the first.
    #[serde(skip)]
    pub seconds_per_epoch: Option<f64>,
}

/// How well scores tell anomalies from normal test nodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ranked {
    pub test_average_precision: Option<f64>,
    pub test_roc_auc: Option<f64>,
}

impl fmt::Display for ClassifyOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "best epoch {} of {}, test nodes:\n{}", self.best_epoch, self.epochs, self.test)?;
        let Self { train, validation, test, .. } = self;
        for (name, part) in [("training", train), ("validation", validation), ("test", test)] {
            writeln!(f, "{name} accuracy {:.4}, macro F1 {:.4}", part.accuracy, part.macro_f1)?;
        }
        if let Some(Ranked { test_average_precision: Some(precision), test_roc_auc: Some(area) }) = self.ranked {
            writeln!(f, "test average precision {precision:.4}, ROC-AUC {area:.4}")?;
        }
        crate::train::session::write_speed(f, self.seconds_per_epoch)
    }
}

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
    /// Labels that are input, of layers that read them.
    known: Option<Arc<KnownLabels>>,
    device: B::Device,
}

/// Where graph and features are.
enum Placement<B: GraphBackend> {
    /// On the device.
    Device(Box<OnDevice<B>>),
    /// On the host, from where mini-batches are loaded.
    Host { input: SampledInput, store: FeatureStore<Autodiff<B>> },
}

/// What a mini-batch brings along.
pub struct Targets {
    /// `[type]`: of the seeds, in their order.
    classes: Vec<Vec<u32>>,
    /// Counts mini-batches from 1, over all epochs.
    step: u32,
    seed: u64,
}

/// What an epoch over the whole graph draws.
pub struct EpochInput {
    pass: TrainingPass,
    /// Of layers that read labels: which of them, and those that are learned.
    masked: Option<Masked>,
}

/// Rows of logits and what they should be.
struct Learned<B: GraphBackend> {
    rows: RowIndex<Autodiff<B>>,
    targets: Tensor<Autodiff<B>, 2, Int>,
}

impl<B: GraphBackend> Learned<B> {
    fn upload(labels: impl Iterator<Item = (u32, u32)>, nodes: usize, device: &B::Device) -> Self {
        let (rows, classes): (Vec<u32>, Vec<i32>) = labels.map(|(node, class)| (node, class as i32)).unzip();
        let len = classes.len();
        Self {
            rows: RowIndex::new(&rows, nodes, device),
            targets: Tensor::from_data(TensorData::new(classes, [len, 1]), device),
        }
    }
}

/// A graph that is trained at once.
struct OnDevice<B: GraphBackend> {
    graph: DeviceGraph<Autodiff<B>>,
    x: Vec<NodeInput<Autodiff<B>>>,
    inner_graph: DeviceGraph<B>,
    inner_x: Vec<NodeInput<B>>,
    /// All training nodes.
    train: Learned<B>,
}

impl<B: GraphBackend> OnDevice<B> {
    fn upload(
        spec: &ClassifierSpec,
        graph: &HeteroGraph,
        features: &Features,
        dtype: DType,
        train: &[(u32, u32)],
        device: &B::Device,
    ) -> Result<Self> {
        let x = NodeInput::<Autodiff<B>>::upload(graph.node_types(), features, spec.row_normalise, dtype, device)?;
        let train = Learned::upload(train.iter().copied(), graph.num_nodes(), device);
        let graph = DeviceGraph::<Autodiff<B>>::upload(graph, device)?;
        Ok(Self { inner_graph: graph.inner(), inner_x: x.iter().map(NodeInput::inner).collect(), graph, x, train })
    }
}

/// Trains a classifier, predicts the class of every node with the best epoch's model and evaluates it once on the test
/// nodes.
///
/// # Errors
/// Data or a checkpoint that cannot be used, outputs that cannot be written, a loss that is not finite, or an
/// interruption (everything is saved then).
pub fn run<B: GraphBackend>(
    config: &ClassifyConfig,
    options: &RunOptions,
    device: &B::Device,
) -> Result<ClassifyOutcome> {
    let data = ClassifierData::read(config, options.begun())?;
    let origin = Origin::of("classify", &config.data.path, &data.dataset, None)?;
    let Fitted { trained, task, known } = fitted::<B>(config, &data, Some(&origin), options, device)?;
    let Trained { session, model, position, seconds_per_epoch, .. } = trained;
    let task = match known {
        None => task,
        // What is written is of the whole graph.
        Some(_) => {
            drop(task);
            Classifier::<B>::of(config, &data, device)?
        }
    };
    let logits = task.logits(&model)?;
    let classes = task.spec.classes;
    let predictions: Array1<i64> = logits.chunks_exact(classes).map(|row| i64::from(predicted_class(row))).collect();
    let probabilities = Array2::from_shape_vec((predictions.len(), classes), probabilities(&logits, classes))
        .unwrap_or_else(|e| unreachable!("one row per node: {e}"));
    if let Some(known) = &task.known {
        known.write(session.run.path(), &data.dataset)?;
    }
    write_npy(session.run.output(PROBABILITIES_FILE), &probabilities)?;
    write_npy(session.run.output("predictions.npy"), &predictions)?;
    write_class_calibrations(&session.run, &probabilities, &task.split)?;
    let ranked =
        (config.train.best == Best::AveragePrecision).then(|| ranked(&probabilities, &task.split)).transpose()?;
    let profile = Profile::of_training(&data.dataset, Some(&class_scores(&probabilities)), &task.split.train);
    let outcome = ClassifyOutcome {
        run: session.run.path().to_path_buf(),
        best_epoch: position.best_epoch,
        epochs: position.epoch,
        notes: data.dataset.notes.clone(),
        train: task.report(&logits, &task.split.train)?,
        validation: task.report(&logits, &task.split.validation)?,
        test: task.report(&logits, &task.split.test)?,
        ranked,
        seconds_per_epoch,
    };
    atomic_write(session.run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    origin.finish(&session.run, &profile)?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&match ranked.and_then(|ranked| ranked.test_average_precision) {
        Some(precision) => format!("test average precision {precision:.4}"),
        None => format!("test accuracy {:.4}", outcome.test.accuracy),
    });
    Ok(outcome)
}

/// Figures of the probability of class 1 on the test nodes.
fn ranked(probabilities: &Array2<f32>, split: &ClassSplit) -> Result<Ranked> {
    let test = split.against_rest(1).test;
    let (scores, labels): (Vec<f32>, Vec<u8>) =
        test.iter().map(|&(node, label)| (probabilities[[node as usize, 1]], label)).unzip();
    let ranking = Ranking::new(&scores, &labels)?;
    Ok(Ranked { test_average_precision: ranking.average_precision(), test_roc_auc: ranking.roc_auc() })
}

/// Trains as far as `options` say and looks at nothing but the training and the validation nodes of `data`. Of labels
/// that are `anomalies` the score is the probability of class 1, which the nodes `also` are given, too.
///
/// # Errors
/// As for [`run`].
///
/// # Panics
/// For other nodes of data that are split by time.
pub fn validated<B: GraphBackend>(
    config: &ClassifyConfig,
    data: &ClassifierData,
    anomalies: bool,
    also: &[u32],
    options: &RunOptions,
    device: &B::Device,
) -> Result<Validated> {
    let Fitted { trained, task, known } = fitted::<B>(config, data, None, options, device)?;
    assert!(known.is_none() || also.is_empty(), "the nodes of a part of the data have other numbers");
    let logits = task.logits(&trained.model)?;
    let classes = task.spec.classes;
    let (judged, also) = match anomalies {
        false => (Judged::Classes(task.report(&logits, &task.split.validation)?), Vec::new()),
        true => {
            let scores: Vec<f32> = probabilities(&logits, classes).chunks_exact(classes).map(|row| row[1]).collect();
            let also = also.iter().map(|&node| scores[node as usize]).collect();
            (Judged::of(&scores, &task.split.against_rest(1).validation), also)
        }
    };
    trained.session.finish("");
    Ok(Validated {
        run: trained.session.run.path().to_path_buf(),
        judged,
        also,
        done: trained.position.epoch,
        complete: trained.position.epoch == config.train.epochs || task.is_over(&trained.position),
    })
}

/// A trained classifier, and what it was trained on.
struct Fitted<B: GraphBackend> {
    trained: Trained<NodeClassifier<B>>,
    task: Classifier<B>,
    /// Of data that are split by time what the training saw.
    known: Option<ClassifierData>,
}

fn fitted<B: GraphBackend>(
    config: &ClassifyConfig,
    data: &ClassifierData,
    origin: Option<&Origin>,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Fitted<B>> {
    let (known, of_part) = data.known().unzip();
    let task = Classifier::<B>::of(config, known.as_ref().unwrap_or(data), device)?;
    let toml = RunConfig::Classify(config.clone()).to_toml()?;
    let (runs, name, seed) = (&config.output.dir, &config.name, config.seed);
    let place = Place { runs, name, seed, config: &toml, origin, filling: Some(&data.filling) };
    let filled = data.dataset.filling_note(&data.filling);
    let notes = data.dataset.notes.iter().chain(&task.decisions).cloned().chain(of_part).chain(filled);
    let notes: Vec<String> = notes.collect();
    let trained = trainer::train(&task, &place, options, &notes, device)?;
    Ok(Fitted { trained, task, known })
}

/// What a classification reads: data with features and classes, and how they are divided.
pub struct ClassifierData {
    pub dataset: Arc<Dataset>,
    /// Those of the data, with what stands for missing values.
    features: Features,
    filling: Filling,
    spec: ClassifierSpec,
    split: ClassSplit,
}

impl ClassifierData {
    /// Reads what a configuration names, for a training that goes on with the run `begun` or begins with it.
    ///
    /// # Errors
    /// Data that cannot be read, that lack features or labels, or that do not fit the split.
    pub fn read(config: &ClassifyConfig, begun: Option<&Path>) -> Result<Self> {
        let path = &config.data.path;
        let edges = EdgeReading { directed: config.data.directed };
        let mut dataset = Dataset::open_with(path, edges)?.in_window(config.data.window)?;
        let by_weight = (config.loader.draws_by_weight(), "loader.draw");
        for (asked, key) in [(config.model.edge_weights, "model.edge_weights"), by_weight] {
            if asked {
                dataset.load_edge_weights(key)?;
            }
        }
        let split = class_split_of(&dataset, &*dataset.node_classes(path)?, &config.split, config.seed)?;
        Self::of(config, Arc::new(dataset), split, begun)
    }

    /// Of data that are read and divided already, with the weights of edges that are asked for.
    ///
    /// # Errors
    /// Data that lack features or labels.
    pub fn of(config: &ClassifyConfig, dataset: Arc<Dataset>, split: ClassSplit, begun: Option<&Path>) -> Result<Self> {
        let path = &config.data.path;
        let classes = dataset.node_classes(path)?;
        let filling = dataset.filling(begun)?;
        let features = dataset.filled(filling.as_ref(), path)?;
        let (Some(filling), Some(features)) = (filling, features) else {
            let help = "node classification learns from features; add them to the data";
            return Err(Error::format(path, "features", "a feature file", "none", help));
        };
        if classes.count() < 2 {
            let help = "there is nothing to tell apart; look at the labels";
            return Err(Error::format(path, "labels", "at least two classes", classes.count().to_string(), help));
        }
        check_two_classes(config, classes.count(), &split)?;
        let spec = ClassifierSpec {
            layer: config.model.layer,
            input: features.dim(),
            hidden: config.model.hidden,
            classes: classes.count(),
            layers: config.model.layers,
            attention: AttentionShape::of(&config.model),
            row_normalise: config.data.row_normalise,
            directed: config.data.directed,
            types: Vec::new(),
            relations: Vec::new(),
            weighted: Vec::new(),
            connections: Connections {
                residual: config.model.residual,
                jump: config.model.jump,
                ..Connections::default()
            },
            order: config.model.layer.is_wavelets().then_some(config.model.order),
            two_hops: (config.model.layer == LayerKind::H2gcn).then_some(config.model.two_hops),
            cut: None,
        };
        let spec = spec.over(&dataset.graph)?;
        let cut = |features: &Features, train: &[(u32, u32)]| EdgeCut::fit(config.model.cut, features, train);
        let cut = match spec.layer {
            LayerKind::Ghrn => Some(match dataset.training_part() {
                None => cut(&features, &split.train)?,
                // By no label that came later than what training may see.
                Some(known) => cut(&known.rows_of(&features), &classes_within(&split, &known, &dataset).train)?,
            }),
            _ => None,
        };
        let spec = ClassifierSpec { cut, ..spec };
        let spec = match config.model.edge_weights {
            true => {
                dataset.check_edge_weights("model.edge_weights")?;
                spec.with_weights_of(&dataset.graph)
            }
            false => spec,
        };
        drop(classes);
        Ok(Self { dataset, features, filling, spec, split })
    }

    /// Of data that are split by time what training may see, and a note about it.
    fn known(&self) -> Option<(Self, String)> {
        let known = self.dataset.training_part()?;
        let (split, note) = (classes_within(&self.split, &known, &self.dataset), part_note(&known, &self.dataset));
        let (features, filling, spec) = (known.rows_of(&self.features), self.filling.clone(), self.spec.clone());
        Some((Self { split, features, filling, spec, dataset: Arc::new(known.dataset) }, note))
    }
}

impl<B: GraphBackend> Classifier<B> {
    /// Uploads data or prepares to load them.
    ///
    /// # Errors
    /// A precision or a transfer that the device does not have, and data that do not fit the model.
    pub fn of(config: &ClassifyConfig, data: &ClassifierData, device: &B::Device) -> Result<Self> {
        let ClassifierData { dataset, features, spec, split, .. } = data;
        let graph = &spec.reading(dataset.graph.clone(), features);
        let dtype = dtype_on::<B>(config.train.precision, device)?;
        check_draw(config.loader.draw, graph.relations(), &config.name)?;
        let plan = plan::classes::<B>(config, spec, graph, features, device);
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
            let (store, how) = transferred(store, &config.loader)?;
            decisions.push(how);
            Placement::Host { input, store }
        } else {
            Placement::Device(Box::new(OnDevice::upload(spec, graph, features, dtype, &split.train, device)?))
        };
        let known = spec.reads_labels().then(|| {
            let train: Vec<(u32, u8)> = split.train.iter().map(|&(node, class)| (node, class as u8)).collect();
            Arc::new(KnownLabels::of(dataset, &train, config.model.label_rate, config.seed))
        });
        Ok(Self { decisions, known, ..Self::placed(config, spec.clone(), split.clone(), placement, device) })
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
        Self { spec, split, decisions: Vec::new(), config, train, loss, placement, known: None, device }
    }

    fn sampled(
        &self,
        input: &SampledInput,
        store: &FeatureStore<Autodiff<B>>,
        seed: u64,
        first: usize,
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
        Sampled::new(sampling, first, config.train.epochs, move |epoch| parts(&config, &host, &train, epoch))
    }

    /// Logits of all nodes, row by row.
    ///
    /// # Errors
    /// A device that failed, or what a thread of the loader ran into.
    pub fn logits(&self, model: &NodeClassifier<B>) -> Result<Vec<f32>> {
        self.logits_of(model, None)
    }

    /// The same, of which at least the nodes in `wanted` have theirs.
    fn logits_of(&self, model: &NodeClassifier<B>, wanted: Option<&[u32]>) -> Result<Vec<f32>> {
        match &self.placement {
            Placement::Device(whole) => {
                let (graph, x, known) = (&whole.inner_graph, &whole.inner_x, self.known.as_deref());
                whole_logits(model, graph, x, known, wanted, &self.device)
            }
            Placement::Host { input, .. } => class_logits(model, &self.spec, input, &self.device),
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

impl<B: GraphBackend> Task<B> for Classifier<B> {
    type Model = NodeClassifier<Autodiff<B>>;
    type Inner = NodeClassifier<B>;
    type Input = EpochInput;
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
        named::export(model)
    }

    fn optimiser(&self) -> Optimiser<B, Self::Model> {
        let ClassifyTrain { weight_decay, decayed_layers, .. } = self.config.train;
        let applies: fn(&str) -> bool = match decayed_layers {
            DecayedLayers::First => |name| name.starts_with("layers.0.") && !name.ends_with(".bias"),
            DecayedLayers::All => |name| !name.ends_with(".bias"),
        };
        let optimiser = Optimiser::new(&self.train);
        if weight_decay == 0.0 {
            return optimiser;
        }
        optimiser.with_decay(Decay { coefficient: weight_decay, applies })
    }

    fn runner(&self, seed: u64, first: usize) -> Result<Runner<B, Self>> {
        match &self.placement {
            Placement::Device(_) => {
                let (known, rate) = (self.known.clone(), self.config.model.label_rate);
                let input = move |epoch: usize| EpochInput {
                    pass: TrainingPass { seed, step: epoch as u32, layer: 0 },
                    masked: known.as_ref().map(|known| known.of_epoch(rate, seed, epoch)),
                };
                Ok(Runner::Full(Full::direct(first, input)))
            }
            Placement::Host { input, store } => Ok(Runner::Sampled(Box::new(self.sampled(input, store, seed, first)?))),
        }
    }

    /// All layers together.
    fn edges_per_epoch(&self) -> usize {
        match &self.placement {
            Placement::Device(whole) => self.spec.layers * whole.graph.num_edges(),
            Placement::Host { .. } => 0,
        }
    }

    fn epoch(&self, model: &Self::Model, EpochInput { pass, masked }: EpochInput) -> Result<Losses<B>> {
        let Placement::Device(whole) = &self.placement else {
            unreachable!("epochs over the whole graph have it on the device")
        };
        let (graph, x, training) = (&whole.graph, &whole.x, Some((pass, self.config.model.dropout)));
        let (logits, masked) = match (&self.known, masked) {
            (Some(known), Some(Masked { seen, learned })) => {
                let dtype = dtype(self.config.train.precision);
                let labels = partition(known, &seen, &graph.node_types, dtype, &self.device);
                let logits = model.forward_with(graph, x, &labels, training);
                let learned = learned.iter().map(|&(node, label)| (node, u32::from(label)));
                let learned = Learned::<B>::upload(learned, logits.dims()[0], &self.device);
                (logits, Some(learned))
            }
            _ => (model.forward(graph, x, training), None),
        };
        let learned = masked.as_ref().unwrap_or(&whole.train);
        let loss = self.loss.of_rows(gather_rows(logits, &learned.rows), learned.targets.clone());
        Ok(Losses { loss, terms: Vec::new(), detail: () })
    }

    fn batch(&self, model: &Self::Model, batch: Batch<Autodiff<B>, Targets>) -> Losses<B> {
        let Placement::Host { input, .. } = &self.placement else {
            unreachable!("mini-batches are loaded from the host")
        };
        let Batch { x, blocks, seed_rows, payload: Targets { classes, step, seed }, .. } = batch;
        let pass = TrainingPass { seed, step, layer: 0 };
        // Without a gradient, see `as_data`.
        let rows = input.read(x.into_iter().map(Tensor::inner).collect()).into_autodiff();
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
        Losses { loss: self.loss.of_rows(logits, targets), terms: Vec::new(), detail: () }
    }

    fn validate(&self, model: &Self::Inner, (): (), epoch: usize) -> Result<Validation> {
        let ClassifyTrain { best, .. } = self.config.train;
        let wanted: Vec<u32> = self.split.validation.iter().map(|(node, _)| *node).collect();
        let logits = self.logits_of(model, Some(&wanted))?;
        let validation = validate(&logits, self.spec.classes, &self.split.validation, best)?;
        check_finite("the validation loss", validation.validation_loss as f32, epoch)?;
        Ok(validation)
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

/// Refuses settings that are for labels which are anomalous or normal where there are other classes, and a choice by
/// average precision on validation labels of one class.
fn check_two_classes(config: &ClassifyConfig, classes: usize, split: &ClassSplit) -> Result<()> {
    let by_precision = config.train.best == Best::AveragePrecision;
    let of_layer = |layer| config.model.layer == layer;
    let asked = [
        ("model.layer = \"ghrn\"", of_layer(LayerKind::Ghrn), "set model.layer = \"bw\", which reads all edges"),
        ("model.layer = \"pmp\"", of_layer(LayerKind::Pmp), "set model.layer = \"sage\", which reads no labels"),
        ("train.best = \"average_precision\"", by_precision, "set train.best = \"accuracy\", \"loss\" or \"both\""),
        ("[loss]", config.loss != ClassifyLoss::default(), "leave out loss.positive_weight and loss.focal_gamma"),
    ];
    if let Some((what, _, help)) = asked.into_iter().find(|(_, asked, _)| *asked && classes != 2) {
        return Err(Error::Data {
            what: what.into(),
            expected: "two classes, 0 (normal) and 1 (anomalous)".into(),
            found: format!("{classes} classes"),
            help: help.into(),
        });
    }
    let anomalous = split.validation.iter().filter(|(_, class)| *class == 1).count();
    let normal = split.validation.len() - anomalous;
    if by_precision && (anomalous == 0 || normal == 0) {
        return Err(Error::Data {
            what: "train.best = \"average_precision\"".into(),
            expected: "anomalous and normal validation nodes".into(),
            found: format!("{anomalous} anomalous and {normal} normal"),
            help: "label more nodes, or give validation a larger share (split.validation)".into(),
        });
    }
    Ok(())
}

/// The mini-batches of an epoch: the training nodes in an order that the epoch decides, in equal shares of at most
/// `loader.batch_size`.
fn parts(config: &ClassifyConfig, graph: &HeteroGraph, train: &[(u32, u32)], epoch: usize) -> Vec<Job<Part<Targets>>> {
    let of = train.len().div_ceil(config.loader.batch_size);
    let order = order_of(train.len(), of, config.seed, epoch);
    let types = graph.node_types();
    let job = |part: usize| {
        let (mut seeds, mut classes) = (vec![Vec::new(); types.len()], vec![Vec::new(); types.len()]);
        let own = order.iter().skip(part).step_by(of).map(|&at| train[at]);
        for (node, class) in own {
            let t = graph.type_of(node as usize);
            seeds[t].push(node - types[t].offset as u32);
            classes[t].push(class);
        }
        let share = seeds.iter().map(Vec::len).sum::<usize>() as f64 / train.len() as f64;
        let step = ((epoch - 1) * of + part + 1) as u32;
        let payload = Part { payload: Targets { classes, step, seed: config.seed }, share, last: part + 1 == of };
        Job { number: number_of(epoch, part), seeds, payload }
    };
    (0..of).map(job).collect()
}

fn plot(session: &Session) -> Result<()> {
    let history = session.run.history()?;
    let [loss, validation, accuracy, precision] =
        ["loss", "validation_loss", "validation_accuracy", "validation_average_precision"]
            .map(|key| history.series(key));
    let losses =
        [Series { name: "training loss", points: &loss }, Series { name: "validation loss", points: &validation }];
    let metrics = [("validation accuracy", &accuracy), ("validation average precision", &precision)];
    let metrics = metrics.into_iter().filter(|(_, points)| !points.is_empty());
    let metrics: Vec<Series> = metrics.map(|(name, points)| Series { name, points }).collect();
    plots::training_curves(&session.run.output("training.svg"), "Node classification", &losses, &metrics)
}
