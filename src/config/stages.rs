//! `task = "stage1"` and `task = "stage2"`: what can be configured, and how it is read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::loader::{Draw, LoaderConfig, LoaderMode};
use super::ranges::seed;
use super::reader::{Document, MAX_NAME, Unread};
use super::sections::*;
use crate::error::Result;

/// Settings of the triple-stream graph auto-encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage1Config {
    /// Part of the run directory's name. Default `stage1`.
    pub name: String,
    /// Seed of every random choice of the run, 0 to 2^63 - 1. Default 42.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
    /// `[data]`
    pub data: Stage1Data,
    /// `[model]`
    pub model: Stage1Model,
    /// `[train]`
    pub train: TrainConfig,
    /// `[sampling]`
    pub sampling: SamplingConfig,
    /// `[loader]`
    pub loader: LoaderConfig,
    /// `[split]`
    pub split: EdgeSplitConfig,
    /// `[temperature]`
    pub temperature: TemperatureConfig,
    /// `[output]`
    pub output: OutputConfig,
}

impl Stage1Config {
    /// The published settings, on the data directory `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            name: "stage1".into(),
            seed: 42,
            data: Stage1Data { path: data.into(), window: 1 },
            model: Stage1Model { hidden: 128, out: 128, edge_weights: false },
            train: TrainConfig::stage1(),
            sampling: SamplingConfig::default(),
            loader: LoaderConfig::default(),
            split: EdgeSplitConfig::new(42),
            temperature: TemperatureConfig::default(),
            output: OutputConfig::default(),
        }
    }
}

/// Settings of the triple-stream graph attention network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage2Config {
    /// Part of the run directory's name. Default `stage2`.
    pub name: String,
    /// Seed of every random choice of the run, 0 to 2^63 - 1. Default 42.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
    /// `[data]`
    pub data: Stage2Data,
    /// `[model]`
    pub model: Stage2Model,
    /// `[train]`
    pub train: TrainConfig,
    /// `[drop_edge]`
    pub drop_edge: DropEdgeConfig,
    /// `[loss]`
    pub loss: LossConfig,
    /// `[early_stop]`
    pub early_stop: EarlyStopConfig,
    /// `[loader]`
    pub loader: LoaderConfig,
    /// `[split]`
    pub split: LabelSplit,
    /// `[output]`
    pub output: OutputConfig,
}

impl Stage2Config {
    /// The published settings, on the data directory `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            name: "stage2".into(),
            seed: 42,
            data: Stage2Data { path: data.into(), window: 1, input: Stage2Input::Embeddings, embeddings: None },
            model: Stage2Model {
                hidden: 128,
                out: 128,
                negative_slope: 0.2,
                heads: 1,
                recompute: false,
                own: OwnTransform::Auto,
                pieces: 0,
                edge_values: false,
                time_encoding: TimeEncodingKind::None,
                time_frequencies: 8,
                dropout: 0.0,
                residual: false,
                gate: false,
                norm: Norm::None,
                jump: Jump::None,
                labels: false,
                label_rate: 0.65,
            },
            train: TrainConfig::stage2(),
            drop_edge: DropEdgeConfig { rate: 0.85 },
            loss: LossConfig {
                positive_weight: Some(1.0),
                focal_gamma: 0.0,
                lambda_unsup: 0.5,
                samples_per_relation: 5_000,
            },
            early_stop: EarlyStopConfig::default(),
            loader: LoaderConfig::default(),
            split: LabelSplit::new(42),
            output: OutputConfig::default(),
        }
    }
}

/// Reads a Stage-1 document; keys that it lacks take their value from `default`.
pub(super) fn stage1(document: &Document, mut default: Stage1Config) -> Result<Stage1Config> {
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    if !document.strict && !document.has("split") {
        // A run that was made before there was this section held nothing out.
        default.split.held_out = 0.0;
    }
    let mut config = document.read(&default, &[], &[])?;
    document.check_name(&config.name, MAX_NAME)?;
    document.check_path(&config.data.path)?;
    config.train.resolve(document)?;
    config.loader.check(document, default.loader.fanouts.len())?;
    if config.loader.draw == Draw::Weighted {
        let expected =
            "\"uniform\" or \"latest\": draws by weight do not estimate the sums over all neighbours of Stage 1";
        let help = "leave it out; with model.edge_weights = true edges count by their weight whichever are drawn";
        return Err(document.error("loader.draw", expected, help));
    }
    let nothing_held_out = Unread {
        when: config.split.held_out == 0.0,
        keys: &[("split.seed", "the seed of the choice of held-out edges")],
        since: "split.held_out = 0 holds none out",
        help: "set split.held_out above 0, or remove the key",
    };
    let unread = config.loader.unread().into_iter().chain(config.train.unread(config.loader.mode));
    let unread = unread.chain([nothing_held_out]);
    document.check_read(&config, &default, &unread.collect::<Vec<_>>())?;
    Ok(config)
}

/// Reads a Stage-2 document; keys that it lacks take their value from `default`.
pub(super) fn stage2(document: &Document, mut default: Stage2Config) -> Result<Stage2Config> {
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    if !document.strict && !document.has("model.own") {
        // A run that was made before there was this key had none.
        default.model.own = OwnTransform::Never;
    }
    let mut config = document.read(&default, &["data.embeddings"], &[])?;
    document.check_name(&config.name, MAX_NAME)?;
    config.data.check(document)?;
    config.model.check(document)?;
    config.train.resolve(document)?;
    config.loader.check(document, default.loader.fanouts.len())?;
    config.split.check(document)?;
    let drop_edge = Unread {
        when: config.loader.mode == LoaderMode::Sampled && !config.loader.fanouts.contains(&0),
        keys: &[("drop_edge.rate", "the share of the edges that training ignores")],
        since: "fanouts above 0 thin out the edges in its place",
        help: "set a number of loader.fanouts to 0, or loader.mode to \"full\" or \"auto\", or remove the key",
    };
    let smoothness = Unread {
        when: config.loss.lambda_unsup == 0.0,
        keys: &[("loss.samples_per_relation", "how many edges the unsupervised term samples")],
        since: "loss.lambda_unsup = 0 leaves this term out",
        help: "set loss.lambda_unsup above 0, or remove the key",
    };
    let labels = Unread {
        when: !config.model.labels,
        keys: &[("model.label_rate", "the share of the training labels that an epoch shows")],
        since: "model.labels = false shows none",
        help: "set model.labels = true, or remove the key",
    };
    let of_stage = [drop_edge, smoothness, labels, config.model.edges().unread()];
    let unread = config.loader.unread().into_iter().chain(config.train.unread(config.loader.mode)).chain(of_stage);
    let unread = unread.chain(config.split.unread());
    document.check_read(&config, &default, &unread.collect::<Vec<_>>())?;
    Ok(config)
}
