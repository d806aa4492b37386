//! `task = "classify"`: one class for every node of a graph with one node type.
//!
//! Defaults are those of the two papers: graph convolution (Kipf and Welling, ICLR 2017) and graph attention (Velickovic
//! and others, ICLR 2018).

use std::ops::Bound::{Excluded, Included};
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::document::Table;
use super::load::{LONGEST_NAME, Task, data_path, output, split};
use super::loader::{LoaderConfig, LoaderMode, loader};
use super::reader::{Choice, Reader};
use super::sections::{OutputConfig, Schedule, SplitConfig, TrainConfig, zero_for_none};
use crate::error::Result;

/// Settings of a node classifier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassifyConfig {
    /// Part of the run directory's name. Default `classify`.
    pub name: String,
    /// Seed of every random choice of the run, 0 to 2^63 - 1. Default 42.
    pub seed: u64,
    /// `[data]`
    pub data: ClassifyData,
    /// `[model]`
    pub model: ClassifyModel,
    /// `[train]`
    pub train: ClassifyTrain,
    /// `[loader]`, with a fanout for every layer.
    #[serde(serialize_with = "in_effect")]
    pub loader: LoaderConfig,
    /// `[split]`
    pub split: ClassifySplit,
    /// `[output]`
    pub output: OutputConfig,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassifyData {
    /// `.npz` file or data directory. Required.
    pub path: PathBuf,
    /// Whether the features of every node are divided by the sum of their absolute values, as both papers do. Default true.
    pub row_normalise: bool,
    /// Whether edges of an `.npz` file lead one way only. Default false: every edge gets its mirror image.
    pub directed: bool,
}

/// `[model]`; the width of the input is that of the features, that of the output the number of classes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassifyModel {
    /// Kind of all layers. Default `gcn`.
    pub layer: LayerKind,
    /// Number of layers, at least 1. Default 2.
    pub layers: usize,
    /// Channels between layers, all heads together. Default 16 (gcn), 64 (gat).
    pub hidden: usize,
    /// Probability that training drops an input value of a layer, in [0, 1). Default 0.5 (gcn), 0.6 (gat).
    pub dropout: f64,
    /// Settings of attention, of `gat` alone.
    #[serde(flatten)]
    pub attention: Option<ClassifyAttention>,
}

/// Keys of `[model]` for `layer = "gat"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassifyAttention {
    /// Heads of every layer but the last, concatenated; divides `hidden`. Default 8.
    pub heads: usize,
    /// Heads of the last layer, averaged. Default 1.
    pub out_heads: usize,
    /// Probability that training drops an attention coefficient, in [0, 1). Default 0.6.
    pub attention_dropout: f64,
    /// Slope of LeakyReLU below zero in the attention logit, in [0, 1). Default 0.2.
    pub negative_slope: f64,
}

/// The layers of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// Graph convolution with symmetric normalisation; ReLU between layers.
    Gcn,
    /// Graph attention; ELU between layers.
    Gat,
}

impl Choice for LayerKind {
    const NAMES: &'static [(&'static str, Self)] = &[("gcn", LayerKind::Gcn), ("gat", LayerKind::Gat)];
}

/// Writes what has an effect: a graph that is computed at once is sampled by no rule.
fn in_effect<S: Serializer>(loader: &LoaderConfig, serializer: S) -> Result<S::Ok, S::Error> {
    match loader.mode {
        LoaderMode::Full => serializer.collect_map([("mode", loader.mode)]),
        LoaderMode::Sampled | LoaderMode::Auto => loader.serialize(serializer),
    }
}

/// `[train]`: Adam with an L2 penalty, a step for the whole graph or for every mini-batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassifyTrain {
    /// Most passes over the training nodes, at least 1. Default 200 (gcn), 1,000 (gat).
    pub epochs: usize,
    /// Adam's step size, in (0, 1]. Default 0.01 (gcn), 0.005 (gat).
    pub learning_rate: f64,
    /// The penalty is half of this times the squared norm of the weights, at least 0. Default 5e-4.
    pub weight_decay: f64,
    /// Whose weights are penalised; biases never are. Default `first` (gcn), `all` (gat).
    pub decayed_layers: DecayedLayers,
    /// Validations without improvement after which training stops; `None` (0 in TOML) goes on to the last epoch.
    /// Default none (gcn), 100 (gat).
    #[serde(serialize_with = "zero_for_none")]
    pub patience: Option<usize>,
    /// What counts as an improvement and decides the epoch that is kept. Default `loss` (gcn), `both` (gat).
    pub best: Best,
    /// Epochs between validations, at least 1; the last epoch is always validated. Default 1.
    pub validate_every: usize,
    /// Epochs between checkpoints, at least 1; the last epoch is always saved. Default 100.
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
            validate_every: self.validate_every,
            checkpoint_every: self.checkpoint_every,
            ..TrainConfig::stage2()
        }
    }
}

/// Layers whose weights are penalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecayedLayers {
    /// The first one: the last layer of a small network does not overfit.
    First,
    /// All of them.
    All,
}

impl Choice for DecayedLayers {
    const NAMES: &'static [(&'static str, Self)] = &[("first", DecayedLayers::First), ("all", DecayedLayers::All)];
}

/// The validation metric that chooses the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Best {
    /// The lowest loss.
    Loss,
    /// The highest accuracy, of equal ones the lower loss.
    Accuracy,
    /// Loss and accuracy at least as good as in all epochs before; patience ends when neither is.
    Both,
}

impl Choice for Best {
    const NAMES: &'static [(&'static str, Self)] =
        &[("loss", Best::Loss), ("accuracy", Best::Accuracy), ("both", Best::Both)];
}

/// `[split]`: which labelled nodes are for training, validation and test.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "use", rename_all = "lowercase")]
pub enum ClassifySplit {
    /// The masks of the data.
    Masks {
        /// Column of masks that hold several splits. Default 0.
        index: usize,
    },
    /// A stratified random split.
    Random {
        /// Training nodes of every class; then `validation` and `test` are shares that may leave nodes over. `None`
        /// (0 in TOML) takes the share `train`. Default none.
        #[serde(serialize_with = "zero_for_none")]
        per_class: Option<usize>,
        /// Shares of the labelled nodes, and the seed of the split alone.
        #[serde(flatten)]
        shares: SplitConfig,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum SplitUse {
    Masks,
    Random,
}

impl Choice for SplitUse {
    const NAMES: &'static [(&'static str, Self)] = &[("masks", SplitUse::Masks), ("random", SplitUse::Random)];
}

impl ClassifyConfig {
    /// The published settings for layers of one kind, on the data at `data`.
    pub fn new(layer: LayerKind, data: impl Into<PathBuf>) -> Self {
        let attention = ClassifyAttention { heads: 8, out_heads: 1, attention_dropout: 0.6, negative_slope: 0.2 };
        let gcn = ClassifyTrain {
            epochs: 200,
            learning_rate: 0.01,
            weight_decay: 5e-4,
            decayed_layers: DecayedLayers::First,
            patience: None,
            best: Best::Loss,
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
                (64, 0.6, Some(attention), train)
            }
        };
        Self {
            name: "classify".into(),
            seed: 42,
            data: ClassifyData { path: data.into(), row_normalise: true, directed: false },
            model: ClassifyModel { layer, layers: 2, hidden, dropout, attention },
            train,
            loader: LoaderConfig::classify(2),
            split: ClassifySplit::Masks { index: 0 },
            output: OutputConfig::default(),
        }
    }
}

/// Reads a document of this task.
pub(super) fn read(table: &Table, file: &str) -> Result<ClassifyConfig> {
    let reader = Reader::new(table, file);
    reader.optional_choice::<Task>("task")?;
    let default = ClassifyConfig::new(reader.choice("model.layer", LayerKind::Gcn)?, "");
    let seed = reader.seed("seed", default.seed)?;
    let model = model(&reader, default.model)?;
    let config = ClassifyConfig {
        name: reader.name("name", &default.name, LONGEST_NAME)?,
        seed,
        data: ClassifyData {
            path: data_path(&reader, &default.data.path)?,
            row_normalise: reader.flag("data.row_normalise", default.data.row_normalise)?,
            directed: reader.flag("data.directed", default.data.directed)?,
        },
        train: train(&reader, default.train)?,
        loader: node_loader(&reader, model.layers)?,
        model,
        split: node_split(&reader, seed)?,
        output: output(&reader, default.output)?,
    };
    reader.finish()?;
    Ok(config)
}

fn model(reader: &Reader, default: ClassifyModel) -> Result<ClassifyModel> {
    let hidden = reader.integer("model.hidden", default.hidden, 1)?;
    let attention = match default.attention {
        Some(default) => Some(attention(reader, default, hidden)?),
        None => {
            let keys = ["heads", "out_heads", "attention_dropout", "negative_slope"];
            no_effect(reader, &keys.map(|key| format!("model.{key}")), "model.layer = \"gcn\" has no attention")?;
            None
        }
    };
    Ok(ClassifyModel {
        layer: default.layer,
        layers: reader.integer("model.layers", default.layers, 1)?,
        hidden,
        dropout: reader.number("model.dropout", default.dropout, 0.0..1.0)?,
        attention,
    })
}

fn attention(reader: &Reader, default: ClassifyAttention, hidden: usize) -> Result<ClassifyAttention> {
    let attention = ClassifyAttention {
        heads: reader.integer("model.heads", default.heads, 1)?,
        out_heads: reader.integer("model.out_heads", default.out_heads, 1)?,
        attention_dropout: reader.number("model.attention_dropout", default.attention_dropout, 0.0..1.0)?,
        negative_slope: reader.number("model.negative_slope", default.negative_slope, 0.0..1.0)?,
    };
    if !hidden.is_multiple_of(attention.heads) {
        let key = if reader.has("model.heads") { "model.heads" } else { "model.hidden" };
        let expected = format!("model.hidden = {hidden} to be a multiple of model.heads = {}", attention.heads);
        return Err(reader.error(key, expected, "every head computes an equal share of the channels"));
    }
    Ok(attention)
}

fn train(reader: &Reader, default: ClassifyTrain) -> Result<ClassifyTrain> {
    Ok(ClassifyTrain {
        epochs: reader.integer("train.epochs", default.epochs, 1)?,
        learning_rate: reader.number("train.learning_rate", default.learning_rate, (Excluded(0.0), Included(1.0)))?,
        weight_decay: reader.number("train.weight_decay", default.weight_decay, 0.0..)?,
        decayed_layers: reader.choice("train.decayed_layers", default.decayed_layers)?,
        patience: reader.integer_or_zero("train.patience", default.patience)?,
        best: reader.choice("train.best", default.best)?,
        validate_every: reader.integer("train.validate_every", default.validate_every, 1)?,
        checkpoint_every: reader.integer("train.checkpoint_every", default.checkpoint_every, 1)?,
    })
}

/// Reads `[loader]` for a model of so many layers.
fn node_loader(reader: &Reader, layers: usize) -> Result<LoaderConfig> {
    const SAMPLING: [&str; 9] =
        ["fanouts", "batch_size", "kappa", "window", "hot", "hot_by", "transfer", "prefetch", "memory"];
    let default = LoaderConfig::classify(layers);
    if reader.choice("loader.mode", default.mode)? == LoaderMode::Full {
        let why = "loader.mode = \"full\" samples nothing (\"sampled\" and \"auto\" do)";
        no_effect(reader, &SAMPLING.map(|key| format!("loader.{key}")), why)?;
    }
    loader(reader, default)
}

fn node_split(reader: &Reader, seed: u64) -> Result<ClassifySplit> {
    const RANDOM: [&str; 5] = ["per_class", "train", "validation", "test", "seed"];
    let random = RANDOM.map(|key| format!("split.{key}"));
    if reader.choice("split.use", SplitUse::Masks)? == SplitUse::Masks {
        no_effect(reader, &random, "split.use = \"masks\" takes the parts from the data")?;
        return Ok(ClassifySplit::Masks { index: reader.integer("split.index", 0, 0)? });
    }
    no_effect(reader, &["split.index".to_string()], "split.use = \"random\" has no masks to choose from")?;
    let per_class = reader.integer_or_zero("split.per_class", None)?;
    let shares = match per_class {
        None => split(reader, SplitConfig { train: 0.6, validation: 0.2, test: 0.2, seed })?,
        Some(_) => {
            let share = |key, default| reader.number(key, default, (Excluded(0.0), Excluded(1.0)));
            // Written back by a run, where it has no effect.
            share("split.train", 0.6)?;
            let (validation, test) = (share("split.validation", 0.2)?, share("split.test", 0.4)?);
            if validation + test >= 1.0 {
                let key = if reader.has("split.test") { "split.test" } else { "split.validation" };
                let expected = "split.validation + split.test below 1, so that nodes are left for training";
                return Err(reader.error(key, expected, "lower one of them"));
            }
            SplitConfig { train: 0.6, validation, test, seed: reader.seed("split.seed", seed)? }
        }
    };
    Ok(ClassifySplit::Random { per_class, shares })
}

/// Refuses keys that would be ignored.
fn no_effect(reader: &Reader, keys: &[String], why: &str) -> Result<()> {
    match keys.iter().find(|key| reader.has(key)) {
        None => Ok(()),
        Some(key) => Err(reader.error(key, format!("no such key, since {why}"), "remove it")),
    }
}
