//! `task = "classify"`: one class for every node of a graph.
//!
//! Defaults are those of the two papers: graph convolution (Kipf and Welling, ICLR 2017) and graph attention
//! (Velickovic and others, ICLR 2018).

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use super::loader::{Draw, LoaderConfig, LoaderMode};
use super::ranges::*;
use super::reader::{Document, MAX_NAME, Unread, Variant};
use super::sections::{
    EdgeReads, Jump, LabelShares, Norm, OutputConfig, Precision, Schedule, SplitConfig, TimeEncodingKind, TrainConfig,
    unscaled,
};
use crate::error::Result;

/// Most layers of a model: each has a fanout.
const MAX_LAYERS: usize = 1_000;

/// Settings of a node classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifyConfig {
    /// Part of the run directory's name. Default `classify`.
    pub name: String,
    /// Seed of every random choice of the run, 0 to 2^63 - 1. Default 42.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
    /// `[data]`
    pub data: ClassifyData,
    /// `[model]`
    pub model: ClassifyModel,
    /// `[loss]`
    pub loss: ClassifyLoss,
    /// `[train]`
    pub train: ClassifyTrain,
    /// `[loader]`, with a fanout for every layer.
    pub loader: LoaderConfig,
    /// `[split]`
    pub split: ClassifySplit,
    /// `[output]`
    pub output: OutputConfig,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifyData {
    /// `.npz` file or data directory. Required.
    pub path: PathBuf,
    /// Which window of a split by time, counted from 1. Default 1.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub window: usize,
    /// Whether the features of every node are divided by the sum of their absolute values, as both papers do. Default
    /// true.
    pub row_normalise: bool,
    /// Whether edges of an `.npz` file lead one way only. Default false: every edge gets its mirror image.
    pub directed: bool,
}

/// `[model]`; the width of the input is that of the features, that of the output the number of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifyModel {
    /// Kind of all layers. Default `gcn`.
    pub layer: LayerKind,
    /// Number of layers, 1 to 1,000. Default 2, of `bw` and `ghrn` 1.
    #[serde(deserialize_with = "between::<1, MAX_LAYERS, _>")]
    pub layers: usize,
    /// Channels between layers, all heads together, up to 65,536. Default 16 (gcn), 64 (all others).
    #[serde(deserialize_with = "channels")]
    pub hidden: usize,
    /// Whether the weights that edges have in the data weigh what neighbours say, of `gcn` and `sage`. Default false.
    pub edge_weights: bool,
    /// Probability that training drops an input value of a layer, in [0, 1). Default 0.5 (gcn), 0.6 (gat), 0.2 (all
    /// others).
    #[serde(deserialize_with = "rate")]
    pub dropout: f64,
    /// Whether a layer whose input is as wide as its result adds a node's input to its result, before the activation,
    /// of `sage`, `h2gcn` and `difference`. Default false.
    pub residual: bool,
    /// What is done to the rows of a layer's result before the activation; the last layer has none, unless a head reads
    /// all layers. Default `none`.
    pub norm: Norm,
    /// Which layers the classes are read from, of `sage`, `h2gcn` and `difference`: `none`, the last one, or `concat`,
    /// a linear head on the results of all, side by side. Default `none`, of `h2gcn` `concat`.
    pub jump: Jump,
    /// Order of the wavelets of `bw` and `ghrn`, which is how many edges far a layer reads, 1 to 8. Default 2.
    #[serde(deserialize_with = "between::<1, 8, _>")]
    pub order: usize,
    /// Most nodes two edges away that a node of `h2gcn` reads, drawn where there are more; 0 takes all. Default 64.
    #[serde(deserialize_with = "at_least::<0, _>")]
    pub two_hops: usize,
    /// Share of the edges of every relation that `ghrn` does not read, at most, in [0, 1): those between the nodes that
    /// a logistic regression tells to be unlike. Default 0.015.
    #[serde(deserialize_with = "rate")]
    pub cut: f64,
    /// Settings of attention, of `gat` alone.
    #[serde(flatten, deserialize_with = "attention")]
    pub attention: Option<ClassifyAttention>,
}

/// Keys of `[model]` for `layer = "gat"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassifyAttention {
    /// Heads of every layer but the last, concatenated; divides `hidden`. Default 8.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub heads: usize,
    /// Heads of the last layer, averaged, 1 to 1,000. Default 1.
    #[serde(deserialize_with = "between::<1, 1_000, _>")]
    pub out_heads: usize,
    /// Probability that training drops an attention coefficient, in [0, 1). Default 0.6.
    #[serde(deserialize_with = "rate")]
    pub attention_dropout: f64,
    /// Slope of LeakyReLU below zero in the attention logit, in [0, 1). Default 0.2.
    #[serde(deserialize_with = "rate")]
    pub negative_slope: f64,
    /// Whether attention reads the values of edges, where the data have any. Default false.
    pub edge_values: bool,
    /// Whether attention reads the ages of edges, and whether frequencies of their cosines are learned. Default `none`.
    pub time_encoding: TimeEncodingKind,
    /// Cosines of an age, 1 to 16. Default 8.
    #[serde(deserialize_with = "between::<1, 16, _>")]
    pub time_frequencies: usize,
}

impl Default for ClassifyAttention {
    fn default() -> Self {
        let (edge_values, time_encoding, time_frequencies) = (false, TimeEncodingKind::None, 8);
        let (attention_dropout, negative_slope) = (0.6, 0.2);
        Self { heads: 8, out_heads: 1, attention_dropout, negative_slope, edge_values, time_encoding, time_frequencies }
    }
}

impl ClassifyAttention {
    /// What attention reads of edges.
    pub fn edges(&self) -> EdgeReads {
        EdgeReads { values: self.edge_values, time: self.time_encoding, frequencies: self.time_frequencies }
    }
}

/// The keys of `gat`; whether they apply is decided when `layer` is known.
fn attention<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClassifyAttention>, D::Error> {
    ClassifyAttention::deserialize(deserializer).map(Some)
}

impl ClassifyModel {
    fn check(&self, document: &Document) -> Result<()> {
        if self.jump == Jump::Max {
            let help = "a linear head reads all layers where model.jump = \"concat\"";
            return Err(document.error("model.jump", "\"none\" or \"concat\"", help));
        }
        let Some(heads) = self.attention.as_ref().map(|attention| attention.heads) else { return Ok(()) };
        if self.hidden.is_multiple_of(heads) {
            return Ok(());
        }
        let key = if document.has("model.heads") { "model.heads" } else { "model.hidden" };
        let expected = format!("model.hidden = {} to be a multiple of model.heads = {heads}", self.hidden);
        Err(document.error(key, expected, "every head computes an equal share of the channels"))
    }
}

/// The layers of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// Graph convolution with symmetric normalisation; ReLU between layers.
    Gcn,
    /// Graph attention; ELU between layers.
    Gat,
    /// The node itself and the mean of its neighbours, projected apart; ReLU between layers.
    Sage,
    /// The same, and how far the node is from that mean, without a sign.
    Difference,
    /// The node itself, the mean of its neighbours and the mean of the nodes exactly two edges away, projected apart.
    H2gcn,
    /// Beta wavelets: band-pass filters of the whole graph, between linear layers with ReLU.
    Bw,
    /// The same on a graph without the edges between the most unlike nodes.
    Ghrn,
}

impl LayerKind {
    /// As configurations name it.
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::Gcn => "gcn",
            LayerKind::Gat => "gat",
            LayerKind::Sage => "sage",
            LayerKind::Difference => "difference",
            LayerKind::H2gcn => "h2gcn",
            LayerKind::Bw => "bw",
            LayerKind::Ghrn => "ghrn",
        }
    }

    /// Whether a node has a transform of its own beside one for each relation, whatever the graph.
    pub fn has_own(self) -> bool {
        matches!(self, LayerKind::Sage | LayerKind::Difference | LayerKind::H2gcn)
    }

    /// Whether the layers are wavelets, which filter the whole graph at once.
    pub fn is_wavelets(self) -> bool {
        matches!(self, LayerKind::Bw | LayerKind::Ghrn)
    }

    /// Whether the layers take a graph with so many node types and relations.
    pub fn takes(self, types: usize, relations: usize) -> bool {
        match self {
            LayerKind::H2gcn => types == 1 && relations == 1,
            _ => types == 1 || !self.is_wavelets(),
        }
    }

    /// Whether weights of edges can weigh what neighbours say.
    pub fn reads_weights(self) -> bool {
        matches!(self, LayerKind::Gcn | LayerKind::Sage)
    }
}

/// `[loss]`: cross-entropy, of labels that are anomalous (class 1) or normal (class 0) with what either counts. More
/// than two classes take the defaults alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifyLoss {
    /// What an anomalous label counts beside a normal one, above 0; all labels together count the same whatever it is.
    /// `None` (0 in TOML) lets both classes count the same together. Default 1.
    #[serde(with = "zero_is_no_number")]
    pub positive_weight: Option<f64>,
    /// Exponent of the focal loss, at least 0: labels that the model is sure of count less. Default 0, cross-entropy.
    #[serde(deserialize_with = "not_negative")]
    pub focal_gamma: f64,
}

impl Default for ClassifyLoss {
    fn default() -> Self {
        Self { positive_weight: Some(1.0), focal_gamma: 0.0 }
    }
}

/// `[train]`: Adam with an L2 penalty, a step for the whole graph or for every mini-batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifyTrain {
    /// Most passes over the training nodes, at least 1. Default 200 (gcn), 1,000 (gat).
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub epochs: usize,
    /// Adam's step size, in (0, 1]. Default 0.01 (gcn), 0.005 (gat).
    #[serde(deserialize_with = "share")]
    pub learning_rate: f64,
    /// The penalty is half of this times the squared norm of the weights, at least 0. Default 5e-4.
    #[serde(deserialize_with = "not_negative")]
    pub weight_decay: f64,
    /// Whose weights are penalised; biases and the numbers of normalisation never are. Default `first` (gcn), `all`
    /// (gat).
    pub decayed_layers: DecayedLayers,
    /// Validations without improvement after which training stops; `None` (0 in TOML) goes on to the last epoch.
    /// Default none (gcn), 100 (gat).
    #[serde(with = "zero_is_none")]
    pub patience: Option<usize>,
    /// What counts as an improvement and decides the epoch that is kept. Default `loss` (gcn), `both` (gat).
    pub best: Best,
    /// Number format of the forward and backward pass. Default `f32`.
    pub precision: Precision,
    /// First factor on the loss that keeps `f16` gradients from vanishing, at least 1; unused by other precisions.
    /// Default 65536, as in torch.amp.
    #[serde(deserialize_with = "from_one")]
    pub loss_scale: f64,
    /// Epochs between validations, at least 1; the last epoch is always validated. Default 1.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub validate_every: usize,
    /// Epochs between checkpoints, at least 1; the last epoch is always saved. Default 100.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub checkpoint_every: usize,
}

impl ClassifyTrain {
    /// The same as the settings that loops of all tasks share.
    pub fn shared(&self) -> TrainConfig {
        TrainConfig {
            epochs: self.epochs,
            learning_rate: self.learning_rate,
            learning_rate_min: self.learning_rate,
            schedule: Schedule::Constant,
            clip_norm: None,
            precision: self.precision,
            loss_scale: self.loss_scale,
            validate_every: self.validate_every,
            checkpoint_every: self.checkpoint_every,
            ..TrainConfig::stage2()
        }
    }
}

/// Layers whose weights are penalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecayedLayers {
    /// The first one: the last layer of a small network does not overfit.
    First,
    /// All of them.
    All,
}

/// The validation metric that chooses the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Best {
    /// The lowest loss.
    Loss,
    /// The highest accuracy, of equal ones the lower loss.
    Accuracy,
    /// Loss and accuracy at least as good as in all epochs before; patience ends when neither is.
    Both,
    /// The highest average precision of the probability of class 1, of equal ones the lower loss. For labels that are
    /// anomalous or normal: where anomalies are rare, a model that finds none is accurate.
    AveragePrecision,
}

/// `[split]`: which labelled nodes are for training, validation and test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "use", rename_all = "lowercase")]
pub enum ClassifySplit {
    /// The masks of the data.
    Masks {
        /// Column of masks that hold several splits. Default 0.
        #[serde(deserialize_with = "at_least::<0, _>")]
        index: usize,
    },
    /// A stratified random split.
    Random {
        /// Training nodes of every class; then `validation` and `test` are shares that may leave nodes over. `None`
        /// (0 in TOML) takes the share `train`. Default none.
        #[serde(with = "zero_is_none")]
        per_class: Option<usize>,
        /// Shares of the labelled nodes, and the seed of the split alone.
        #[serde(flatten)]
        shares: SplitConfig,
    },
    /// As Stage 2 and 3 divide labels that are anomalous or normal: stratified by node type and label.
    Labels(LabelShares),
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SplitUse {
    Masks,
    Random,
    Labels,
}

impl ClassifyConfig {
    /// The published settings for layers of one kind, on the data at `data`.
    pub fn new(layer: LayerKind, data: impl Into<PathBuf>) -> Self {
        let gcn = ClassifyTrain {
            epochs: 200,
            learning_rate: 0.01,
            weight_decay: 5e-4,
            decayed_layers: DecayedLayers::First,
            patience: None,
            best: Best::Loss,
            precision: Precision::F32,
            loss_scale: TrainConfig::LOSS_SCALE,
            validate_every: 1,
            checkpoint_every: 100,
        };
        let (hidden, dropout, attention, train) = match layer {
            LayerKind::Gcn => (16, 0.5, None, gcn),
            LayerKind::Gat => {
                let train = ClassifyTrain {
                    epochs: 1_000,
                    learning_rate: 0.005,
                    decayed_layers: DecayedLayers::All,
                    patience: Some(100),
                    best: Best::Both,
                    ..gcn
                };
                (64, 0.6, Some(ClassifyAttention::default()), train)
            }
            _ => (64, 0.2, None, gcn),
        };
        let layers = if layer.is_wavelets() { 1 } else { 2 };
        let jump = if layer == LayerKind::H2gcn { Jump::Concat } else { Jump::None };
        Self {
            name: "classify".into(),
            seed: 42,
            data: ClassifyData { path: data.into(), window: 1, row_normalise: true, directed: false },
            model: ClassifyModel {
                layer,
                layers,
                hidden,
                edge_weights: false,
                dropout,
                residual: false,
                norm: Norm::None,
                jump,
                order: 2,
                two_hops: 64,
                cut: 0.015,
                attention,
            },
            loss: ClassifyLoss::default(),
            train,
            loader: LoaderConfig::classify(layers),
            split: ClassifySplit::Masks { index: 0 },
            output: OutputConfig::default(),
        }
    }
}

impl ClassifySplit {
    /// A random split without anything said of it; with `per_class` the shares may leave nodes over.
    fn random(counted: bool, seed: u64) -> Self {
        let shares = SplitConfig::new(seed);
        let test = if counted { 0.4 } else { shares.test };
        ClassifySplit::Random { per_class: None, shares: SplitConfig { test, ..shares } }
    }

    fn check(&self, document: &Document) -> Result<()> {
        match self {
            ClassifySplit::Masks { .. } => Ok(()),
            ClassifySplit::Random { per_class: None, shares } => shares.check(document),
            ClassifySplit::Labels(shares) => shares.check(document),
            ClassifySplit::Random { per_class: Some(_), shares } if shares.validation + shares.test < 1.0 => Ok(()),
            ClassifySplit::Random { .. } => {
                let key = if document.has("split.test") { "split.test" } else { "split.validation" };
                let expected = "split.validation + split.test below 1, so that nodes are left for training";
                Err(document.error(key, expected, "lower one of them"))
            }
        }
    }
}

/// Reads a document of this task.
pub(super) fn read(document: &Document) -> Result<ClassifyConfig> {
    let layer = document.choice("model.layer")?.unwrap_or(LayerKind::Gcn);
    let split_use = document.choice("split.use")?.unwrap_or(SplitUse::Masks);
    let mut default = ClassifyConfig::new(layer, "");
    let layers =
        document.integer("model.layers").map_or(default.model.layers, |layers| layers.min(MAX_LAYERS as u64) as usize);
    default.loader = LoaderConfig::classify(layers);
    let seed = document.integer("seed").unwrap_or(default.seed);
    let random = ClassifySplit::random(document.integer("split.per_class").is_some_and(|count| count > 0), seed);
    match split_use {
        SplitUse::Masks => {}
        SplitUse::Random => default.split = random.clone(),
        SplitUse::Labels => default.split = ClassifySplit::Labels(SplitConfig::new(seed).into()),
    }
    let variants = [
        Variant {
            defaults: ClassifyConfig { model: ClassifyConfig::new(LayerKind::Gat, "").model, ..default.clone() },
            since: match layer {
                LayerKind::Gcn => "model.layer = \"gcn\" has no attention",
                _ => "this model.layer has no attention",
            },
            help: "set model.layer = \"gat\"",
        },
        Variant {
            defaults: ClassifyConfig { split: random, ..default.clone() },
            since: match split_use {
                SplitUse::Labels => "split.use = \"labels\" takes shares of the labels",
                SplitUse::Masks | SplitUse::Random => "split.use = \"masks\" takes the parts from the data",
            },
            help: "set split.use = \"random\"",
        },
        Variant {
            defaults: ClassifyConfig { split: ClassifySplit::Masks { index: 0 }, ..default.clone() },
            since: match split_use {
                SplitUse::Labels => "split.use = \"labels\" has no masks to choose from",
                SplitUse::Masks | SplitUse::Random => "split.use = \"random\" has no masks to choose from",
            },
            help: "set split.use = \"masks\"",
        },
    ];
    let mut config = document.read(&default, &[], &variants)?;
    if layer != LayerKind::Gat {
        config.model.attention = None;
    }
    document.check_name(&config.name, MAX_NAME)?;
    document.check_path(&config.data.path)?;
    config.model.check(document)?;
    config.loader.check(document, config.model.layers)?;
    if layer != LayerKind::Gat && config.loader.draw == Draw::Weighted {
        check_estimates(document, &config)?;
    }
    if layer.is_wavelets() && config.loader.mode != LoaderMode::Full {
        let help =
            "wavelets filter the whole graph at once; model.layer = \"sage\" and \"difference\" take mini-batches";
        let expected = format!("\"full\" with model.layer = \"{}\"", layer.name());
        return Err(document.error("loader.mode", expected, help));
    }
    config.split.check(document)?;
    let unread = [
        Unread {
            when: config.train.weight_decay == 0.0,
            keys: &[("train.decayed_layers", "whose weights the penalty counts")],
            since: "train.weight_decay = 0 penalises none",
            help: "set train.weight_decay above 0, or remove the key",
        },
        unscaled(config.train.precision),
        Unread {
            when: layer == LayerKind::Gat,
            keys: &[("model.edge_weights", "whether edges count by their weight")],
            since: "model.layer = \"gat\" learns what an edge counts",
            help: "set model.layer = \"gcn\" or \"sage\", or remove the key",
        },
        Unread {
            when: !layer.reads_weights() && layer != LayerKind::Gat,
            keys: &[("model.edge_weights", "whether edges count by their weight")],
            since: "this model.layer counts all edges the same",
            help: "set model.layer = \"gcn\" or \"sage\", or remove the key",
        },
        Unread {
            when: !layer.has_own(),
            keys: &[
                ("model.residual", "whether a layer adds a node's input to its result"),
                ("model.jump", "which layers the classes are read from"),
            ],
            since: "this model.layer has no transform of a node itself",
            help: "set model.layer = \"sage\", \"h2gcn\" or \"difference\", or remove the key",
        },
        Unread {
            when: config.model.layers == 1 && config.model.jump == Jump::None && !layer.is_wavelets(),
            keys: &[("model.norm", "what is done to rows before the activation")],
            since: "the only layer has no activation",
            help: "set model.layers above 1, or remove the key",
        },
        Unread {
            when: !layer.is_wavelets(),
            keys: &[("model.order", "the order of wavelets")],
            since: "this model.layer has none",
            help: "set model.layer = \"bw\" or \"ghrn\", or remove the key",
        },
        Unread {
            when: layer != LayerKind::Ghrn,
            keys: &[("model.cut", "the share of the edges that are cut")],
            since: "this model.layer reads all edges",
            help: "set model.layer = \"ghrn\", or remove the key",
        },
        Unread {
            when: layer != LayerKind::H2gcn,
            keys: &[("model.two_hops", "how many nodes two edges away a node reads")],
            since: "this model.layer reads neighbours alone",
            help: "set model.layer = \"h2gcn\", or remove the key",
        },
        Unread {
            when: matches!(config.split, ClassifySplit::Random { per_class: Some(_), .. }),
            keys: &[("split.train", "the share of the labelled nodes for training")],
            since: "split.per_class counts the training nodes of every class",
            help: "set split.per_class = 0, or remove the key",
        },
    ];
    let few = match &config.split {
        ClassifySplit::Labels(shares) => Some(shares.unread()),
        _ => None,
    };
    let edges = config.model.attention.as_ref().map(|attention| attention.edges().unread());
    let unread = config.loader.unread().into_iter().chain(unread).chain(few).chain(edges).collect::<Vec<_>>();
    document.check_read(&config, &default, &unread)?;
    Ok(config)
}

/// Refuses draws by weights of edges where these do not estimate what layers make of all neighbours.
fn check_estimates(document: &Document, config: &ClassifyConfig) -> Result<()> {
    let layer = config.model.layer.name();
    if !config.model.edge_weights {
        let help = match config.model.layer.reads_weights() {
            true => "set model.edge_weights = true, and edges count by their weight; or leave it out",
            false => {
                "leave it out, or set model.layer = \"gcn\" or \"sage\" with model.edge_weights = true, or \"gat\""
            }
        };
        let expected = format!(
            "\"uniform\" or \"latest\" with model.layer = \"{layer}\" and model.edge_weights = false: draws by weight do \
             not estimate sums and means over all neighbours in which every edge counts the same"
        );
        return Err(document.error("loader.draw", expected, help));
    }
    if config.loader.kappa > 0 {
        let expected = format!(
            "0 with loader.draw = \"weighted\" and model.layer = \"{layer}\", where every node draws for itself and with \
             replacement"
        );
        return Err(document.error("loader.kappa", expected, "leave it out, or set loader.draw = \"uniform\""));
    }
    Ok(())
}
