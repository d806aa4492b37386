//! The sections of a configuration: one struct per section, one field per key, with meaning, unit, range and default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::Serializer;

use super::reader::Choice;
use crate::data::synth::{Preset, SynthConfig};

/// File that Stage 1 writes and Stage 2 reads when it is given a directory.
pub const EMBEDDINGS_FILE: &str = "Z_embeddings_stage1.npy";
/// Scores that Stage 2 writes: one float32 per node.
pub const STAGE2_SCORES_FILE: &str = "anomaly_scores_stage2.npy";
/// Refined embeddings that Stage 2 writes: one row per node.
pub const STAGE2_EMBEDDINGS_FILE: &str = "Z_stage2.npy";
/// Scores that Stage 3 writes: one float32 per node.
pub const STAGE3_SCORES_FILE: &str = "anomaly_scores_stage3.npy";

/// `[synth]`: the synthetic marketplace of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineSynth {
    /// Shape of the marketplace. Default `quickstart`.
    #[serde(serialize_with = "preset_name")]
    pub preset: Preset,
    /// Factor on the number of nodes of the preset, above 0. Default 1.
    pub scale: f64,
    /// Seed of the generator. Default: the run's seed.
    pub seed: u64,
}

impl PipelineSynth {
    /// The generator's own configuration.
    pub fn marketplace(&self) -> SynthConfig {
        SynthConfig { seed: self.seed, ..SynthConfig::preset(self.preset).scaled(self.scale) }
    }
}

/// `[data]` of Stage 1 and of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage1Data {
    /// Data directory (graph, features, labels), relative to the working directory. Required.
    pub path: PathBuf,
}

/// `[data]` of Stage 2.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage2Data {
    /// Data directory (graph, features, labels), relative to the working directory. Required.
    pub path: PathBuf,
    /// What a node's input vector is. Default `embeddings`.
    pub input: Stage2Input,
    /// A `.npy` file, or a directory that holds `Z_embeddings_stage1.npy` such as a Stage-1 run. Default: `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<PathBuf>,
}

impl Stage2Data {
    /// The file of input embeddings: `embeddings`, or the data directory, with the file's name added to a directory.
    pub fn embeddings_file(&self) -> PathBuf {
        let place: &Path = self.embeddings.as_deref().unwrap_or(&self.path);
        let is_file = place.extension().is_some_and(|extension| extension == "npy") && !place.is_dir();
        if is_file { place.to_path_buf() } else { place.join(EMBEDDINGS_FILE) }
    }
}

/// Input vectors of Stage 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage2Input {
    /// The embeddings of Stage 1.
    Embeddings,
    /// The features of the data directory, without Stage 1.
    Features,
}

impl Choice for Stage2Input {
    const NAMES: &'static [(&'static str, Self)] =
        &[("embeddings", Stage2Input::Embeddings), ("features", Stage2Input::Features)];
}

/// `[model]` of Stage 1; the width of the input is that of the features.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage1Model {
    /// Channels after layer 1, at least 1. Default 128.
    pub hidden: usize,
    /// Channels of an embedding, at least 1. Default 128.
    pub out: usize,
}

/// `[model]` of Stage 2; the width of the input is that of the embeddings or features.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage2Model {
    /// Channels after layer 1, all heads together; a multiple of `heads`. Default 128.
    pub hidden: usize,
    /// Channels after layer 2, all heads together; a multiple of `heads`. Default 128.
    pub out: usize,
    /// Slope of LeakyReLU below zero in the attention logit, in [0, 1). Default 0.2.
    pub negative_slope: f64,
    /// Attention heads per layer and stream, at least 1; their outputs are concatenated. Default 1.
    pub heads: usize,
    /// Whether the backward pass repeats the attention instead of keeping its results: less memory, one more pass over
    /// the kept edges, the same gradient. Default false.
    pub recompute: bool,
}

/// `[train]`: optimisation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainConfig {
    /// Passes over the whole graph, at least 1. Default 200 in Stage 1, 100 in Stage 2.
    pub epochs: usize,
    /// Adam's step size at the first epoch, in (0, 1]. Default 1e-3.
    pub learning_rate: f64,
    /// Step size at the last epoch, in [0, `learning_rate`]. Default 1e-5. Equal to `learning_rate` when the schedule
    /// is constant, whatever the file says.
    pub learning_rate_min: f64,
    /// How the step size falls. Default `cosine` in Stage 1, `constant` in Stage 2.
    pub schedule: Schedule,
    /// Largest L2 norm of the gradient of all parameters together; `None` (0 in TOML) does not clip.
    /// Default 1 in Stage 1, none in Stage 2.
    #[serde(serialize_with = "zero_for_none_f64")]
    pub clip_norm: Option<f64>,
    /// Number format of the forward and backward pass. Default `f32`.
    pub precision: Precision,
    /// Destination rows per launch: bounds transient memory, never changes the result. `None` (0 in TOML) takes the
    /// whole graph, the default; the original system used 2,500.
    #[serde(serialize_with = "zero_for_none")]
    pub chunk_size: Option<usize>,
    /// Which rows an epoch computes: those that the loss can reach, or all. The loss and its gradient are the same.
    /// Default `reachable`.
    pub rows: Rows,
    /// Epochs between validations, at least 1; the last epoch is always validated. Default 10.
    pub validate_every: usize,
    /// Epochs between checkpoints, at least 1; the last epoch is always saved. Default 10.
    pub checkpoint_every: usize,
    /// First factor on the loss that keeps `f16` gradients from vanishing, at least 1; unused by other precisions.
    /// Default 65536, as in torch.amp.
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
            loss_scale: 65_536.0,
        }
    }

    /// Published optimisation of Stage 2.
    pub fn stage2() -> Self {
        let schedule = Schedule::Constant;
        Self { epochs: 100, learning_rate_min: 1e-3, schedule, clip_norm: None, ..Self::stage1() }
    }

    /// Where the cosine schedule ends unless `learning_rate_min` is given.
    pub(super) const COSINE_MIN: f64 = 1e-5;
}

/// The rows that a training epoch computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// Those that the loss depends on.
    Reachable,
    /// Those of the whole graph.
    All,
}

impl Choice for Rows {
    const NAMES: &'static [(&'static str, Self)] = &[("reachable", Rows::Reachable), ("all", Rows::All)];
}

/// How the learning rate falls over the epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Half a cosine from `learning_rate` to `learning_rate_min`.
    Cosine,
    /// `learning_rate` throughout.
    Constant,
}

impl Choice for Schedule {
    const NAMES: &'static [(&'static str, Self)] = &[("cosine", Schedule::Cosine), ("constant", Schedule::Constant)];
}

/// Number format of activations and gradients; parameters and the optimiser's state stay f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
        Choice::name(self)
    }
}

impl Choice for Precision {
    const NAMES: &'static [(&'static str, Self)] =
        &[("f32", Precision::F32), ("f16", Precision::F16), ("bf16", Precision::BF16)];
}

/// `[sampling]` of Stage 1: the edges that the reconstruction loss sees in one epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SamplingConfig {
    /// Positive edges per primary relation, by stream, at least 1; a smaller relation gives all it has.
    /// Default 30,000 `pu`, 8,000 `ps`, 12,000 `uu`.
    pub edges: BTreeMap<String, usize>,
    /// The same for streams that `edges` does not name. Default 10,000 (our choice, for other graphs).
    pub default_edges: usize,
    /// Non-edges drawn per positive edge, within the destination type, at least 1. Default 1.
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

/// `[temperature]` of Stage 1: the factor on dot products before the sigmoid. All factors are above 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TemperatureConfig {
    /// Epochs of the linear rise from `start` to `peak`; a cosine to `end` follows. Default 20.
    pub warmup_epochs: usize,
    /// Factor at the first epoch. Default 2.
    pub start: f64,
    /// Factor after the rise. Default 10.
    pub peak: f64,
    /// Factor at the last epoch. Default 3.
    pub end: f64,
}

impl Default for TemperatureConfig {
    fn default() -> Self {
        Self { warmup_epochs: 20, start: 2.0, peak: 10.0, end: 3.0 }
    }
}

/// `[drop_edge]` of Stage 2.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DropEdgeConfig {
    /// Probability that training ignores an edge, per epoch, layer and direction, in [0, 1). Default 0.85.
    pub rate: f64,
}

/// `[loss]` of Stage 2: supervised term plus `lambda_unsup` times the smoothness of scores along edges.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossConfig {
    /// Weight of the unsupervised term, at least 0. Default 0.5.
    pub lambda_unsup: f64,
    /// Edges that the unsupervised term samples per primary relation and epoch, at least 1. Default 5,000.
    pub samples_per_relation: usize,
}

/// `[split]` of Stage 2: stratified shares of the labels, each in (0, 1), together 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitConfig {
    /// Share that the loss sees. Default 0.6.
    pub train: f64,
    /// Share that selects the best checkpoint and the threshold. Default 0.2.
    pub validation: f64,
    /// Share that is looked at once, at the end. Default 0.2.
    pub test: f64,
    /// Seed of the split alone. Default: the run's seed.
    pub seed: u64,
}

/// `[output]`
#[derive(Clone, Debug, PartialEq, Serialize)]
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

pub(super) fn zero_for_none<S: Serializer>(value: &Option<usize>, serializer: S) -> Result<S::Ok, S::Error> {
    value.unwrap_or(0).serialize(serializer)
}

fn zero_for_none_f64<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.unwrap_or(0.0).serialize(serializer)
}

fn preset_name<S: Serializer>(preset: &Preset, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(preset.name())
}
