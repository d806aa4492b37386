//! The sections of a configuration: one struct per section, one field per key, with meaning, unit, range and default.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::loader::LoaderMode;
use super::ranges::*;
use super::reader::{Document, Unread};
use crate::error::Result;

/// File that Stage 1 writes and Stage 2 reads when it is given a directory.
pub const EMBEDDINGS_FILE: &str = "Z_embeddings_stage1.npy";
/// Scores that Stage 2 writes: one float32 per node.
pub const STAGE2_SCORES_FILE: &str = "anomaly_scores_stage2.npy";
/// Refined embeddings that Stage 2 writes: one row per node.
pub const STAGE2_EMBEDDINGS_FILE: &str = "Z_stage2.npy";
/// Scores that Stage 3 writes: one float32 per node.
pub const STAGE3_SCORES_FILE: &str = "anomaly_scores_stage3.npy";
/// Scores that an ensemble writes: one float32 per node.
pub const ENSEMBLE_SCORES_FILE: &str = "anomaly_scores_ensemble.npy";
/// Class probabilities in a run of node classification, by global id: a row per node.
pub const PROBABILITIES_FILE: &str = "probabilities.npy";

/// `[data]` of Stage 1 and of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage1Data {
    /// Data directory (graph, features, labels), relative to the working directory. Required.
    pub path: PathBuf,
    /// Which window of a split by time, counted from 1. Default 1.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub window: usize,
}

/// `[data]` of Stage 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage2Data {
    /// Data directory (graph, features, labels), relative to the working directory. Required.
    pub path: PathBuf,
    /// Which window of a split by time, counted from 1. Default 1.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub window: usize,
    /// What a node's input vector is. Default `embeddings`.
    pub input: Stage2Input,
    /// A `.npy` file, or a directory that holds `Z_embeddings_stage1.npy` such as a Stage-1 run. Default: `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<PathBuf>,
}

/// The file of embeddings at a place, which is that file or a directory that holds it.
pub(crate) fn embeddings_at(place: &Path) -> PathBuf {
    let is_file = place.extension().is_some_and(|extension| extension == "npy") && !place.is_dir();
    if is_file { place.to_path_buf() } else { place.join(EMBEDDINGS_FILE) }
}

impl Stage2Data {
    /// The file of input embeddings: `embeddings`, or the data directory, with the file's name added to a directory.
    pub fn embeddings_file(&self) -> PathBuf {
        embeddings_at(self.embeddings.as_deref().unwrap_or(&self.path))
    }
}

impl Stage2Data {
    pub(super) fn check(&self, document: &Document) -> Result<()> {
        if self.input == Stage2Input::Features && self.embeddings.is_some() {
            let help = "remove `embeddings`, or set `input = \"embeddings\"`";
            return Err(document.error("data.embeddings", "no embeddings, since data.input = \"features\"", help));
        }
        document.check_path(&self.path)
    }
}

/// Input vectors of Stage 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage2Input {
    /// The embeddings of Stage 1.
    Embeddings,
    /// The features of the data directory, without Stage 1.
    Features,
}

/// `[model]` of Stage 1; the width of the input is that of the features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage1Model {
    /// Channels after layer 1, 1 to 65,536. Default 128.
    #[serde(deserialize_with = "channels")]
    pub hidden: usize,
    /// Channels of an embedding, 1 to 65,536. Default 128.
    #[serde(deserialize_with = "channels")]
    pub out: usize,
    /// Whether the weights that edges have in the data weigh what neighbours say. Default false.
    pub edge_weights: bool,
}

/// `[model]` of Stage 2; the width of the input is that of the embeddings or features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage2Model {
    /// Channels after layer 1, all heads together, up to 65,536; a multiple of `heads`. Default 128.
    #[serde(deserialize_with = "channels")]
    pub hidden: usize,
    /// Channels after layer 2, all heads together, up to 65,536; a multiple of `heads`. Default 128.
    #[serde(deserialize_with = "channels")]
    pub out: usize,
    /// Slope of LeakyReLU below zero in the attention logit, in [0, 1). Default 0.2.
    #[serde(deserialize_with = "rate")]
    pub negative_slope: f64,
    /// Attention heads per layer and stream, at least 1; their outputs are concatenated. Default 1.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub heads: usize,
    /// Whether the backward pass repeats the attention instead of keeping its results: less memory, one more pass over
    /// the kept edges, the same gradient. Default false.
    pub recompute: bool,
    /// Which node types have a transform of a node itself beside its neighbours'. Default `auto`.
    pub own: OwnTransform,
    /// Pieces in which the own transform of the first layer reads every column, cut where the training labels are told
    /// apart best; 0 to 64. Default 0: it reads columns as they are.
    #[serde(deserialize_with = "between::<0, 64, _>")]
    pub pieces: usize,
    /// Whether attention reads the values of edges, where the data have any. Default false.
    pub edge_values: bool,
    /// Whether attention reads the ages of edges, and whether frequencies of their cosines are learned. Default `none`.
    pub time_encoding: TimeEncodingKind,
    /// Cosines of an age, 1 to 16. Default 8.
    #[serde(deserialize_with = "between::<1, 16, _>")]
    pub time_frequencies: usize,
    /// Share of the values of a layer's result that training sets to zero, in [0, 1); the others are scaled. Default 0.
    #[serde(deserialize_with = "rate")]
    pub dropout: f64,
    /// Whether a layer whose input is as wide as its result adds a node's input to its result, before the activation.
    /// Default false.
    pub residual: bool,
    /// Whether a node weighs its own transform against what its neighbours send, where its type has such a transform.
    /// Default false.
    pub gate: bool,
    /// What is done to the rows of a layer's result before the activation. Default `none`.
    pub norm: Norm,
    /// Which layers the score is read from. Default `none`: the last one.
    pub jump: Jump,
    /// Whether a node's input has the known training labels of other nodes: two columns, of its neighbours' labels and
    /// never of its own. Default false.
    pub labels: bool,
    /// Share of the training labels that an epoch over the whole graph shows to the model, in (0, 1); it learns the
    /// others, drawn anew each epoch. Of events it is the largest share. Default 0.65.
    #[serde(deserialize_with = "part")]
    pub label_rate: f64,
}

/// What attention makes of the ages of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeEncodingKind {
    /// Nothing.
    None,
    /// The logarithm, and cosines of frequencies that stay as they began, as in GraphMixer.
    Fixed,
    /// The same with frequencies and phases that are learned, as in TGAT.
    Learned,
}

/// What attention reads of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeReads {
    /// Whether it reads their values.
    pub values: bool,
    /// What it makes of their ages.
    pub time: TimeEncodingKind,
    /// Cosines of an age.
    pub frequencies: usize,
}

impl EdgeReads {
    /// Whether it reads anything.
    pub fn any(self) -> bool {
        self.values || self.time != TimeEncodingKind::None
    }

    /// The keys that are without effect for it.
    pub(super) fn unread(self) -> Unread {
        Unread {
            when: self.time == TimeEncodingKind::None,
            keys: &[("model.time_frequencies", "the cosines of an age")],
            since: "model.time_encoding = \"none\" reads no age",
            help: "set model.time_encoding to \"fixed\" or \"learned\", or remove the key",
        }
    }
}

/// Which node types have a transform of a node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnTransform {
    /// Types into which no relation holds a loop for every node: without either, a node's own columns do not reach its
    /// score. None in the marketplace preset, whose files hold loops: there the model is the published one.
    Auto,
    /// All types.
    Always,
    /// None, as published.
    Never,
}

/// What is done to the rows of a layer's result before the activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// Nothing, as published.
    #[default]
    None,
    /// Mean 0 and variance 1 within the row, then a learned scale and shift: layer normalisation.
    Layer,
}

/// Which layers the score is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jump {
    /// The last one, as published.
    #[default]
    None,
    /// Both, side by side: embeddings have `hidden + out` columns.
    Concat,
    /// The larger value of both; `hidden` and `out` are equal.
    Max,
}

impl Stage2Model {
    /// What attention reads of edges.
    pub fn edges(&self) -> EdgeReads {
        EdgeReads { values: self.edge_values, time: self.time_encoding, frequencies: self.time_frequencies }
    }

    pub(super) fn check(&self, document: &Document) -> Result<()> {
        if self.own == OwnTransform::Never {
            if self.gate {
                let help = "a gate weighs a node's own transform: set model.own = \"auto\" or \"always\"";
                return Err(document.error("model.gate", "false where model.own = \"never\"", help));
            }
            if self.pieces > 0 {
                let help = "pieces are for a node's own transform: set model.own = \"auto\" or \"always\"";
                return Err(document.error("model.pieces", "0 where model.own = \"never\"", help));
            }
        }
        if self.jump == Jump::Max && self.hidden != self.out {
            let expected = format!("model.out = model.hidden = {} where model.jump = \"max\"", self.hidden);
            return Err(document.error("model.out", expected, "both layers are compared value by value"));
        }
        if self.hidden.is_multiple_of(self.heads) && self.out.is_multiple_of(self.heads) {
            return Ok(());
        }
        let expected = format!("a divisor of model.hidden = {} and model.out = {}", self.hidden, self.out);
        Err(document.error("model.heads", expected, "every head computes an equal share of the channels"))
    }
}

/// `[train]`: optimisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    /// Passes over the whole graph, at least 1. Default 200 in Stage 1, 100 in Stage 2.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub epochs: usize,
    /// Adam's step size at the first epoch, in (0, 1]. Default 1e-3.
    #[serde(deserialize_with = "share")]
    pub learning_rate: f64,
    /// Step size at the last epoch, in [0, `learning_rate`]. Default 1e-5. Equal to `learning_rate` when the schedule
    /// is constant, whatever the file says.
    #[serde(deserialize_with = "not_negative")]
    pub learning_rate_min: f64,
    /// How the step size falls. Default `cosine` in Stage 1, `constant` in Stage 2.
    pub schedule: Schedule,
    /// Largest L2 norm of the gradient of all parameters together; `None` (0 in TOML) does not clip.
    /// Default 1 in Stage 1, none in Stage 2.
    #[serde(with = "zero_is_no_number")]
    pub clip_norm: Option<f64>,
    /// Number format of the forward and backward pass. Default `f32`.
    pub precision: Precision,
    /// Destination rows that a layer computes at a time. Then whole are only the graph, the features, the result of
    /// each layer and its gradient, and the scores of attention (two numbers per node, head and stream); all else is
    /// there for one chunk, and the backward pass computes it again. Sums over rows are rounded by chunks, the rest is
    /// the same. For whole graphs: with mini-batches it is refused. `None` (0 in TOML) takes all rows at once, the
    /// default; the original system used 2,500.
    #[serde(with = "zero_is_none")]
    pub chunk_size: Option<usize>,
    /// Which rows an epoch computes: those that the loss can reach, or all. The loss and its gradient are the same.
    /// Default `reachable`.
    pub rows: Rows,
    /// Epochs between validations, at least 1; the last epoch is always validated. Default 10.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub validate_every: usize,
    /// Epochs between checkpoints, at least 1; the last epoch is always saved. Default 10.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub checkpoint_every: usize,
    /// First factor on the loss that keeps `f16` gradients from vanishing, at least 1; unused by other precisions.
    /// Default 65536, as in torch.amp.
    #[serde(deserialize_with = "from_one")]
    pub loss_scale: f64,
}

impl TrainConfig {
    /// Published optimisation of Stage 1.
    pub fn stage1() -> Self {
        Self {
            epochs: 200,
            learning_rate: 1e-3,
            learning_rate_min: Self::COSINE_MIN,
            schedule: Schedule::Cosine,
            clip_norm: Some(1.0),
            precision: Precision::F32,
            chunk_size: None,
            rows: Rows::Reachable,
            validate_every: 10,
            checkpoint_every: 10,
            loss_scale: Self::LOSS_SCALE,
        }
    }

    /// Published optimisation of Stage 2.
    pub fn stage2() -> Self {
        let schedule = Schedule::Constant;
        Self { epochs: 100, learning_rate_min: 1e-3, schedule, clip_norm: None, ..Self::stage1() }
    }

    /// The first loss scale of torch.amp.
    pub(super) const LOSS_SCALE: f64 = 65_536.0;

    /// Where the cosine schedule ends unless `learning_rate_min` is given.
    const COSINE_MIN: f64 = 1e-5;

    /// Resolves `learning_rate_min`, whose default and range depend on the schedule and the first step size.
    pub(super) fn resolve(&mut self, document: &Document) -> Result<()> {
        const KEY: &str = "train.learning_rate_min";
        let first = self.learning_rate;
        let given = document.has(KEY).then_some(self.learning_rate_min);
        self.learning_rate_min = match (self.schedule, given) {
            (Schedule::Cosine, None) => Self::COSINE_MIN.min(first),
            (Schedule::Cosine, Some(last)) if last <= first => last,
            (Schedule::Cosine, Some(_)) => {
                let help = "it is the step size at the last epoch, train.learning_rate that at the first";
                return Err(document.error(KEY, format!("a number in [0, {first}]"), help));
            }
            // What files that list every key say, and what a run writes back.
            (Schedule::Constant, Some(last)) if document.refuses(KEY) && last != Self::COSINE_MIN && last != first => {
                let expected =
                    format!("its default {}, since train.schedule = \"constant\" has one step size", Self::COSINE_MIN);
                let help =
                    "it is the step size at the last epoch; train.schedule = \"cosine\" reads it, or remove the key";
                return Err(document.error(KEY, expected, help));
            }
            (Schedule::Constant, _) => first,
        };
        Ok(())
    }

    /// The keys that nothing reads when the graph is computed by `mode`.
    pub(super) fn unread(&self, mode: LoaderMode) -> [Unread; 3] {
        [
            unscaled(self.precision),
            Unread {
                when: mode == LoaderMode::Sampled,
                keys: &[("train.rows", "which rows of the whole graph an epoch computes")],
                since: "loader.mode = \"sampled\" computes mini-batches, bounded by loader.batch_size",
                help: "set loader.mode = \"full\" or \"auto\", or remove the key",
            },
            Unread {
                when: mode != LoaderMode::Full,
                keys: &[("train.chunk_size", "how many rows of the whole graph a layer computes at a time")],
                since: "mini-batches have no chunks of rows, and loader.mode is not \"full\"",
                help: "set loader.mode = \"full\", or remove the key",
            },
        ]
    }
}

/// The loss scale, where no loss is scaled.
pub(super) fn unscaled(precision: Precision) -> Unread {
    Unread {
        when: precision != Precision::F16,
        keys: &[("train.loss_scale", "the first factor on the loss, against gradients that vanish")],
        since: "only train.precision = \"f16\" scales the loss",
        help: "set train.precision = \"f16\", or remove the key",
    }
}

/// The rows that a training epoch computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// Those that the loss depends on.
    Reachable,
    /// Those of the whole graph.
    All,
}

/// How the learning rate falls over the epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Half a cosine from `learning_rate` to `learning_rate_min`.
    Cosine,
    /// `learning_rate` throughout.
    Constant,
}

/// Number format of activations and gradients; parameters and the optimiser's state stay f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE single precision.
    F32,
    /// IEEE half precision, with loss scaling.
    F16,
    /// bfloat16: the range of f32 with 8 bits of significand.
    BF16,
}

impl Precision {
    /// The name in TOML: `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::BF16 => "bf16",
        }
    }
}

/// `[sampling]` of Stage 1: the edges that the reconstruction loss sees in one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingConfig {
    /// Positive edges per primary relation, by stream, at least 1; a smaller relation gives all it has.
    /// Default 30,000 `pu`, 8,000 `ps`, 12,000 `uu`.
    #[serde(deserialize_with = "counts")]
    pub edges: BTreeMap<String, usize>,
    /// The same for streams that `edges` does not name. Default 10,000 (our choice, for other graphs).
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub default_edges: usize,
    /// Non-edges drawn per positive edge, within the destination type, 1 to 1,000. Default 1.
    #[serde(deserialize_with = "between::<1, 1_000, _>")]
    pub negatives_per_positive: usize,
}

impl SamplingConfig {
    /// Positive edges to sample from a relation of `stream`.
    pub fn edges_of(&self, stream: &str) -> usize {
        self.edges.get(stream).copied().unwrap_or(self.default_edges)
    }
}

impl Default for SamplingConfig {
    fn default() -> Self {
        let edges = [("pu", 30_000), ("ps", 8_000), ("uu", 12_000)];
        Self {
            edges: edges.map(|(stream, count)| (stream.to_string(), count)).into(),
            default_edges: 10_000,
            negatives_per_positive: 1,
        }
    }
}

/// `[split]` of Stage 1: the edges that the training does not see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeSplitConfig {
    /// Share of the edges that are neither in the loss nor in the adjacency of the training, in [0, 1). Default 0.05.
    #[serde(deserialize_with = "rate")]
    pub held_out: f64,
    /// Seed of the choice. Default: that of the run.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
}

impl EdgeSplitConfig {
    /// The default share, chosen by `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self { held_out: 0.05, seed }
    }
}

/// `[temperature]` of Stage 1: the factor on dot products before the sigmoid. All factors are above 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemperatureConfig {
    /// Epochs of the linear rise from `start` to `peak`; a cosine to `end` follows. Default 20.
    #[serde(deserialize_with = "at_least::<0, _>")]
    pub warmup_epochs: usize,
    /// Factor at the first epoch. Default 2.
    #[serde(deserialize_with = "positive")]
    pub start: f64,
    /// Factor after the rise. Default 10.
    #[serde(deserialize_with = "positive")]
    pub peak: f64,
    /// Factor at the last epoch. Default 3.
    #[serde(deserialize_with = "positive")]
    pub end: f64,
}

impl Default for TemperatureConfig {
    fn default() -> Self {
        Self { warmup_epochs: 20, start: 2.0, peak: 10.0, end: 3.0 }
    }
}

/// `[drop_edge]` of Stage 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DropEdgeConfig {
    /// Probability that training ignores an edge, per epoch, layer and direction, in [0, 1). Default 0.85.
    #[serde(deserialize_with = "rate")]
    pub rate: f64,
}

/// `[loss]` of Stage 2: supervised term plus `lambda_unsup` times the smoothness of scores along edges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossConfig {
    /// What an anomalous label counts beside a normal one, above 0; all labels together count the same whatever it is.
    /// `None` (0 in TOML) lets both classes count the same together. Default 1.
    #[serde(with = "zero_is_no_number")]
    pub positive_weight: Option<f64>,
    /// Exponent of the focal loss, at least 0: labels that the model is sure of count less. Default 0, cross-entropy.
    #[serde(deserialize_with = "not_negative")]
    pub focal_gamma: f64,
    /// Weight of the unsupervised term, at least 0; 0 leaves it out, and nothing is sampled for it. Default 0.5.
    #[serde(deserialize_with = "not_negative")]
    pub lambda_unsup: f64,
    /// Edges that the unsupervised term samples per primary relation and epoch, at least 1. Default 5,000.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub samples_per_relation: usize,
}

/// `[early_stop]` of Stage 2: the epoch that is kept, and when a training ends before its last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlyStopConfig {
    /// What the best epoch has most of on the validation labels. Default `auroc`.
    pub metric: RankingMetric,
    /// Epochs since the best one at which the training ends; `None` (0 in TOML) goes through all. Default 0.
    #[serde(with = "zero_is_none")]
    pub patience: Option<usize>,
}

/// How well scores rank labels; higher is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankingMetric {
    /// The area under the ROC curve.
    Auroc,
    /// Average precision: says more than the ROC curve where anomalies are rare.
    AveragePrecision,
    /// Of events: the share of a day's alerts that are right, see [`Alerts::precision`](crate::metrics::Alerts).
    Alerts,
    /// Of events with amounts: the share of the fraudulent amount that these alerts stop.
    Stopped,
}

impl RankingMetric {
    /// As it is written for people.
    pub fn title(self) -> &'static str {
        match self {
            RankingMetric::Auroc => "ROC-AUC",
            RankingMetric::AveragePrecision => "average precision",
            RankingMetric::Alerts => "share of a day's alerts that are right",
            RankingMetric::Stopped => "share of the fraudulent amount that is stopped",
        }
    }
}

impl Default for EarlyStopConfig {
    fn default() -> Self {
        Self { metric: RankingMetric::Auroc, patience: None }
    }
}

/// `[split]` of Stage 2: stratified shares of the labels, each in (0, 1), together 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitConfig {
    /// Share that the loss sees. Default 0.6.
    #[serde(deserialize_with = "part")]
    pub train: f64,
    /// Share that selects the best checkpoint and the threshold. Default 0.2.
    #[serde(deserialize_with = "part")]
    pub validation: f64,
    /// Share that is looked at once, at the end. Default 0.2.
    #[serde(deserialize_with = "part")]
    pub test: f64,
    /// Seed of the split alone. Default: the run's seed.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
}

impl SplitConfig {
    /// Shares of 0.6, 0.2 and 0.2.
    pub(super) fn new(seed: u64) -> Self {
        Self { train: 0.6, validation: 0.2, test: 0.2, seed }
    }

    pub(super) fn check(&self, document: &Document) -> Result<()> {
        let sum = self.train + self.validation + self.test;
        if (sum - 1.0).abs() <= 1e-6 {
            return Ok(());
        }
        let given = ["split.test", "split.validation", "split.train"].into_iter().find(|key| document.has(key));
        let expected = format!("split.train + split.validation + split.test = 1 (it is {sum:.4})");
        Err(document.error(given.unwrap_or("split"), expected, "change the three shares together"))
    }
}

/// `[split]` of Stage 2, Stage 3 and a tournament: the parts of labels that are anomalous or normal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelSplit {
    /// Where the parts come from. Default `random`.
    #[serde(rename = "use")]
    pub source: SplitSource,
    /// Column of masks that hold several splits. Default 0.
    #[serde(deserialize_with = "at_least::<0, _>")]
    pub index: usize,
    /// Of a random split.
    #[serde(flatten)]
    pub drawn: LabelShares,
}

/// Where the parts of the labels come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitSource {
    /// They are drawn, stratified by node type and label.
    Random,
    /// From the masks of the data.
    Masks,
}

/// A random split of labels that are anomalous or normal: by shares, or few for training and validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelShares {
    /// Anomalous nodes for training, and as many for validation; the others are for the test. Default 0: shares.
    #[serde(deserialize_with = "at_least::<0, _>")]
    pub anomalous: usize,
    /// The same of normal nodes. Default 0: shares.
    #[serde(deserialize_with = "at_least::<0, _>")]
    pub normal: usize,
    /// Shares, and the seed of the split alone.
    #[serde(flatten)]
    pub shares: SplitConfig,
}

impl From<SplitConfig> for LabelShares {
    fn from(shares: SplitConfig) -> Self {
        Self { anomalous: 0, normal: 0, shares }
    }
}

impl From<LabelShares> for LabelSplit {
    fn from(drawn: LabelShares) -> Self {
        Self { source: SplitSource::Random, index: 0, drawn }
    }
}

impl From<SplitConfig> for LabelSplit {
    fn from(shares: SplitConfig) -> Self {
        LabelShares::from(shares).into()
    }
}

impl LabelShares {
    /// Normal and anomalous nodes for training, and as many for validation, where they are counted.
    pub fn few(&self) -> Option<[usize; 2]> {
        (self.anomalous > 0).then_some([self.normal, self.anomalous])
    }

    pub(super) fn check(&self, document: &Document) -> Result<()> {
        let one = match (self.anomalous, self.normal) {
            (0, 0) => return self.shares.check(document),
            (0, _) => "split.anomalous",
            (_, 0) => "split.normal",
            _ => return Ok(()),
        };
        let help = "count the nodes of both classes, or of none to split by shares";
        Err(document.error(one, "at least 1, since the nodes of the other class are counted", help))
    }

    pub(super) fn unread(&self) -> Unread {
        Unread {
            when: self.few().is_some(),
            keys: &[
                ("split.train", "the share of the labels for training"),
                ("split.validation", "the share for validation"),
                ("split.test", "the share for the test"),
            ],
            since: "split.anomalous and split.normal count the nodes for training and validation",
            help: "set both to 0, or remove the key",
        }
    }
}

impl LabelSplit {
    /// Shares of 0.6, 0.2 and 0.2.
    pub(super) fn new(seed: u64) -> Self {
        SplitConfig::new(seed).into()
    }

    pub(super) fn check(&self, document: &Document) -> Result<()> {
        match self.source {
            SplitSource::Masks => Ok(()),
            SplitSource::Random => self.drawn.check(document),
        }
    }

    pub(super) fn unread(&self) -> [Unread; 3] {
        let masks = Unread {
            when: self.source == SplitSource::Masks,
            keys: &[
                ("split.train", "the share of the labels for training"),
                ("split.validation", "the share for validation"),
                ("split.test", "the share for the test"),
                ("split.anomalous", "the number of anomalous nodes for training"),
                ("split.normal", "the number of normal nodes for training"),
            ],
            since: "split.use = \"masks\" takes the parts from the data",
            help: "set split.use = \"random\", or remove the key",
        };
        let random = Unread {
            when: self.source == SplitSource::Random,
            keys: &[("split.index", "the column of the masks")],
            since: "split.use = \"random\" has no masks to choose from",
            help: "set split.use = \"masks\", or remove the key",
        };
        [masks, random, self.drawn.unread()]
    }
}

impl Deref for LabelSplit {
    type Target = SplitConfig;

    fn deref(&self) -> &SplitConfig {
        &self.drawn.shares
    }
}

impl DerefMut for LabelSplit {
    fn deref_mut(&mut self) -> &mut SplitConfig {
        &mut self.drawn.shares
    }
}

/// `[output]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputConfig {
    /// Directory in which every run makes its own, relative to the working directory. Default `artifacts/runs`.
    pub dir: PathBuf,
    /// Whether to draw curves as SVG. Default true.
    pub plots: bool,
}

impl Default for OutputConfig {
    fn default() -> Self {
        Self { dir: "artifacts/runs".into(), plots: true }
    }
}
