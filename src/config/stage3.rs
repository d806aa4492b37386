//! `task = "stage3"`: trees on features of a node, of its surroundings and of the two stages before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::document::Table;
use super::neighbourhood::NeighbourhoodConfig;
use super::ranges::*;
use super::reader::{Document, MAX_NAME, Unread, Variant};
use super::sections::{LabelSplit, OutputConfig, RankingMetric, Stage2Input, embeddings_at};
use super::stage_file::{STAGE2, stage_document};
use super::stages::{Stage2Config, stage2};
use crate::error::Result;

/// Settings of a booster or a forest on graph features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage3Config {
    /// Part of the run directory's name. Default `stage3`.
    pub name: String,
    /// Seed of every random choice of the run, 0 to 2^63 - 1. Default 42.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
    /// `[data]`
    pub data: Stage3Data,
    /// `[features]`
    pub features: Stage3Features,
    /// `[model]`
    pub model: TreeModel,
    /// `[stage2]`: Stage 2 as it is trained out of fold, where `features` ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage2: Option<Stage2Config>,
    /// `[split]`
    pub split: LabelSplit,
    /// `[output]`
    pub output: OutputConfig,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage3Data {
    /// Data directory or `.npz` file: graph, features, labels. Required.
    pub path: PathBuf,
    /// Which window of a split by time, counted from 1. Default 1.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub window: usize,
    /// A `.npy` file, or a directory that holds `Z_embeddings_stage1.npy` such as a Stage-1 run; for the blocks
    /// `embedding` and `reconstruction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<PathBuf>,
}

impl Stage3Data {
    /// The file of Stage-1 embeddings, if there is one.
    pub fn embeddings_file(&self) -> Option<PathBuf> {
        self.embeddings.as_deref().map(embeddings_at)
    }
}

/// `[features]`: the blocks of columns, each of which can be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage3Features {
    /// Features of a node and of its surroundings.
    #[serde(flatten)]
    pub neighbourhood: NeighbourhoodConfig,
    /// Shares of anomalous ones among the known training labels of neighbours, at 1 and at most 2 of `hops` edges, and
    /// how many are known; out of fold, so that no node sees its own label. Not of events. Default false.
    pub label_share: bool,
    /// The Stage-1 embedding. Default: whether `data.embeddings` is given.
    pub embedding: bool,
    /// How badly the Stage-1 embedding explains the edges of a node. Default: whether `data.embeddings` is given.
    pub reconstruction: bool,
    /// Logit of a Stage 2 that has not seen the label of the node. Default: whether there is a section `[stage2]`.
    pub stage2_score: bool,
    /// Refined embedding of the same Stage 2. Default false.
    pub stage2_embedding: bool,
    /// Parts of the training labels, at least 2: each is scored by a Stage 2 that was trained on the others. Default 5.
    #[serde(deserialize_with = "at_least::<2, _>")]
    pub stage2_folds: usize,
    /// Host memory in GB (10^9 bytes) that the columns of all nodes may take; those that need more lie in temporary
    /// files. 0 keeps them all in memory. Default 0.
    #[serde(deserialize_with = "not_negative")]
    pub host_memory: f64,
}

impl Default for Stage3Features {
    fn default() -> Self {
        Self {
            neighbourhood: NeighbourhoodConfig::default(),
            label_share: false,
            embedding: false,
            reconstruction: false,
            stage2_score: false,
            stage2_embedding: false,
            stage2_folds: 5,
            host_memory: 0.0,
        }
    }
}

/// `[model]`, by `model.kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TreeModel {
    /// Gradient boosting; stops when the validation part no longer improves.
    Booster(BoosterConfig),
    /// Random forest.
    Forest(ForestConfig),
}

/// Keys of `[model]` for `kind = "booster"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoosterConfig {
    /// Most trees, at least 1. Default 1,000.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub trees: usize,
    /// Factor on every tree, in (0, 1]. Default 0.05.
    #[serde(deserialize_with = "share")]
    pub learning_rate: f64,
    /// Trees without improvement on the validation part after which training stops; `None` (0 in TOML) builds all.
    /// Default 100.
    #[serde(with = "zero_is_none")]
    pub patience: Option<usize>,
    /// What has to improve. Default `average_precision`.
    pub metric: TreeMetric,
    /// What is minimised. Default `logistic`.
    pub objective: TreeObjective,
    /// Exponent of the focal loss, at least 0. Default 2. No effect with `logistic`.
    #[serde(deserialize_with = "not_negative")]
    pub focal_gamma: f64,
    /// Most leaves of a tree, at least 2. Default 31.
    #[serde(deserialize_with = "at_least::<2, _>")]
    pub num_leaves: usize,
    /// Share of the rows that a tree sees, in (0, 1]. Default 1.
    #[serde(deserialize_with = "share")]
    pub bagging: f64,
    /// Share of the columns that a tree sees, in (0, 1]. Default 1.
    #[serde(deserialize_with = "share")]
    pub feature_fraction: f64,
    /// L1 penalty of leaf values, at least 0. Default 0.
    #[serde(deserialize_with = "not_negative")]
    pub lambda_l1: f64,
    /// L2 penalty of leaf values, at least 0. Default 0.
    #[serde(deserialize_with = "not_negative")]
    pub lambda_l2: f64,
    /// Pull of a leaf towards its parent, at least 0. Default 0.
    #[serde(deserialize_with = "not_negative")]
    pub path_smooth: f64,
    /// Fewest rows of a leaf, at least 1. Default 20.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub min_data_in_leaf: usize,
    /// Smallest sum of the hessians of a leaf, at least 0; under the logistic loss a row of probability p has p (1 - p)
    /// times its weight. LightGBM's `min_sum_hessian_in_leaf`, XGBoost's `min_child_weight`. Default 1e-3.
    #[serde(deserialize_with = "not_negative")]
    pub min_sum_hessian: f64,
    /// What both kinds have.
    #[serde(flatten)]
    pub shared: SharedTreeConfig,
}

/// Keys of `[model]` for `kind = "forest"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForestConfig {
    /// Trees, at least 1. Default 500.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub trees: usize,
    /// Whether a tree sees rows drawn with replacement. Default true.
    pub bootstrap: bool,
    /// Fewest rows of a leaf, at least 1. Default 1.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub min_data_in_leaf: usize,
    /// What both kinds have.
    #[serde(flatten)]
    pub shared: SharedTreeConfig,
}

/// Keys of `[model]` for either kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedTreeConfig {
    /// Most splits between the root and a leaf; `None` (0 in TOML) does not limit it. Default none.
    #[serde(with = "zero_is_none")]
    pub max_depth: Option<usize>,
    /// Most bins of a column, 2 to 65,535. Default 255.
    #[serde(deserialize_with = "between::<2, 65_535, _>")]
    pub max_bin: usize,
    /// Share of a tree's columns that a node sees, in (0, 1]; 0 takes the square root of their number, as a share.
    /// Default 1 (booster), 0 (forest).
    #[serde(deserialize_with = "share_or_none")]
    pub feature_fraction_bynode: f64,
    /// Whether a node tries one random threshold per column instead of all. Default false.
    pub extra_trees: bool,
    /// Weight of the classes. Default `none`.
    pub class_weight: TreeClassWeight,
    /// Columns along which the score may not fall (1) or not rise (-1) while all others stay as they are, by the names
    /// in `importance.csv` or those of the user's own columns. Default none.
    #[serde(deserialize_with = "signs")]
    pub monotone: BTreeMap<String, i8>,
    /// Columns of category numbers, whole numbers from 0 to 2^24: splits take any set of them. Default none.
    #[serde(deserialize_with = "names")]
    pub categorical: Vec<String>,
    /// Groups of columns: those that splits between the root and a leaf look at have a group in common; a column of no
    /// group stands alone there. Default none, which is no constraint.
    #[serde(deserialize_with = "groups")]
    pub interactions: Vec<Vec<String>>,
    /// Whether the model is grown once more, with as many trees, on training and validation labels, and is then the one
    /// that is kept and tested. Threshold, calibration and figures of the validation part stay those of the trees that
    /// had not seen these labels. Default false.
    pub refit: bool,
}

/// What has to improve on the validation part while a booster grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeMetric {
    /// The area under the ROC curve.
    Auroc,
    /// Average precision.
    AveragePrecision,
    /// Mean of −ln of the probability that is given to the true class.
    LogLoss,
    /// Of events: as [`RankingMetric::Alerts`].
    Alerts,
    /// Of events with amounts: as [`RankingMetric::Stopped`].
    Stopped,
}

impl TreeMetric {
    /// The same of scores alone; `None` for the log loss, which is about probabilities.
    pub fn ranking(self) -> Option<RankingMetric> {
        match self {
            TreeMetric::Auroc => Some(RankingMetric::Auroc),
            TreeMetric::AveragePrecision => Some(RankingMetric::AveragePrecision),
            TreeMetric::LogLoss => None,
            TreeMetric::Alerts => Some(RankingMetric::Alerts),
            TreeMetric::Stopped => Some(RankingMetric::Stopped),
        }
    }
}

/// Loss of a booster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TreeObjective {
    /// Cross-entropy.
    Logistic,
    /// Cross-entropy that counts rows the less, the surer the model is of them.
    Focal,
}

/// Weight of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TreeClassWeight {
    /// Every row counts once.
    None,
    /// Both classes count alike.
    Balanced,
}

/// Keys of Stage 2 that Stage 3 decides, and what the user should do instead.
const STAGE3_DECIDES: &[(&str, &str)] = &[
    ("task", "the section's name is the task"),
    ("name", "set `name` at the top of this file; the names of the folds are derived from it"),
    ("seed", "set `seed` at the top of this file; all models share it"),
    ("data.path", "set `path` in [data] of this file"),
    ("data.window", "set `window` in [data] of this file"),
    ("data.embeddings", "set `embeddings` in [data] of this file"),
    ("split", "set it in [split] of this file; the folds are parts of its training labels"),
    ("output", "set it in [output] of this file"),
];

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Booster,
    Forest,
}

impl SharedTreeConfig {
    fn new(feature_fraction_bynode: f64) -> Self {
        Self {
            max_depth: None,
            max_bin: 255,
            feature_fraction_bynode,
            extra_trees: false,
            class_weight: TreeClassWeight::None,
            monotone: BTreeMap::new(),
            categorical: Vec::new(),
            interactions: Vec::new(),
            refit: false,
        }
    }
}

impl Default for BoosterConfig {
    fn default() -> Self {
        Self {
            trees: 1_000,
            learning_rate: 0.05,
            patience: Some(100),
            metric: TreeMetric::AveragePrecision,
            objective: TreeObjective::Logistic,
            focal_gamma: 2.0,
            num_leaves: 31,
            bagging: 1.0,
            feature_fraction: 1.0,
            lambda_l1: 0.0,
            lambda_l2: 0.0,
            path_smooth: 0.0,
            min_data_in_leaf: 20,
            min_sum_hessian: 1e-3,
            shared: SharedTreeConfig::new(1.0),
        }
    }
}

impl Default for ForestConfig {
    fn default() -> Self {
        Self { trees: 500, bootstrap: true, min_data_in_leaf: 1, shared: SharedTreeConfig::new(0.0) }
    }
}

impl Stage3Config {
    /// A forest on the neighbourhood features of the data at `data`: with few labels it beats boosting.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            name: "stage3".into(),
            seed: 42,
            data: Stage3Data { path: data.into(), window: 1, embeddings: None },
            features: Stage3Features::default(),
            model: TreeModel::Forest(ForestConfig::default()),
            stage2: None,
            split: LabelSplit::new(42),
            output: OutputConfig::default(),
        }
    }
}

/// Reads a document of this task; `path` is its file, to which `stage2.config` is relative.
pub(super) fn read(mut document: Document, path: &Path) -> Result<Stage3Config> {
    let section = document.take_section(STAGE2)?;
    let mut default = Stage3Config::new("");
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    let before = Before { stage1: document.has("data.embeddings"), stage2: section.is_some() };
    let mut config = keys(&document, default, before)?;
    document.check_name(&config.name, MAX_NAME - "-stage2".len())?;
    document.check_path(&config.data.path)?;
    if before.stage2 && !(config.features.stage2_score || config.features.stage2_embedding) {
        let help = "remove [stage2], or set stage2_score in [features]";
        return Err(document.error("stage2", "a feature that it is for", help));
    }
    if let Some(section) = section {
        config.stage2 = Some(folded(section, path, &config, document.strict)?);
    }
    Ok(config)
}

/// Reads the Stage 3 of a pipeline; what its document lacks has its value from `default`. The models out of fold are
/// those of the pipeline's Stage 2.
pub(super) fn of_pipeline(
    document: &Document,
    mut default: Stage3Config,
    stage2: &Stage2Config,
) -> Result<Stage3Config> {
    default.split = stage2.split.clone();
    let mut config = keys(document, default, Before { stage1: true, stage2: true })?;
    if config.features.stage2_score || config.features.stage2_embedding {
        let name = format!("{}-{STAGE2}", config.name);
        config.stage2 = Some(Stage2Config { name, ..stage2.clone() });
    }
    Ok(config)
}

/// Which stages have results that trees may read.
#[derive(Clone, Copy)]
struct Before {
    stage1: bool,
    stage2: bool,
}

/// Reads everything but a section `[stage2]`.
fn keys(document: &Document, mut default: Stage3Config, before: Before) -> Result<Stage3Config> {
    default.features.embedding = before.stage1;
    default.features.reconstruction = before.stage1;
    default.features.stage2_score = before.stage2;
    let [booster, forest] = [TreeModel::Booster(BoosterConfig::default()), TreeModel::Forest(ForestConfig::default())];
    let (model, other, since, help) = match document.choice("model.kind")?.unwrap_or(Kind::Forest) {
        Kind::Forest => {
            (forest, booster, "model.kind = \"forest\" builds no tree on another", "set model.kind = \"booster\"")
        }
        Kind::Booster => {
            (booster, forest, "model.kind = \"booster\" draws without replacement", "set model.kind = \"forest\"")
        }
    };
    default.model = model;
    let variant = Variant { defaults: Stage3Config { model: other, ..default.clone() }, since, help };
    let config: Stage3Config = document.read(&default, &["data.embeddings"], &[variant])?;
    config.features.check(document, before)?;
    config.model.check(document)?;
    config.split.check(document)?;
    let unread = config.features.unread(before.stage2).into_iter().chain(config.model.unread());
    let unread = unread.chain(config.split.unread());
    document.check_read(&config, &default, &unread.collect::<Vec<_>>())?;
    Ok(config)
}

impl Stage3Features {
    fn check(&self, document: &Document, before: Before) -> Result<()> {
        let of_stage1 = [("embedding", self.embedding), ("reconstruction", self.reconstruction)];
        if let Some((key, _)) = of_stage1.iter().find(|(_, wanted)| *wanted && !before.stage1) {
            let help = "set `embeddings` in [data] to a Stage-1 run or a .npy file";
            return Err(document.error(&format!("features.{key}"), "data.embeddings to be given", help));
        }
        let of_stage2 = [("stage2_score", self.stage2_score), ("stage2_embedding", self.stage2_embedding)];
        if let Some((key, _)) = of_stage2.iter().find(|(_, wanted)| *wanted && !before.stage2) {
            let help = "add the section, e.g. [stage2] with config = \"stage2.toml\"";
            return Err(document.error(&format!("features.{key}"), "a section [stage2]", help));
        }
        Ok(())
    }

    fn unread(&self, has_stage2: bool) -> [Unread; 4] {
        let NeighbourhoodConfig { mean, max, sum, wavelets, .. } = self.neighbourhood;
        [
            Unread {
                when: !(mean || max || sum || self.label_share),
                keys: &[("features.hops", "how far means, maxima and sums look")],
                since: "features.mean, features.max and features.sum are all false",
                help: "set one of them, or remove the key",
            },
            Unread {
                when: !wavelets,
                keys: &[("features.wavelet_order", "the order of the wavelets")],
                since: "features.wavelets = false",
                help: "set features.wavelets = true, or remove the key",
            },
            Unread {
                when: !(self.neighbourhood.looks_at_neighbours() || self.label_share),
                keys: &[
                    ("features.over", "which relations neighbourhoods are made of"),
                    ("features.self_loops", "whether every node is its own neighbour"),
                ],
                since: "no feature looks at neighbours",
                help: "set features.mean or another of them, or remove the key",
            },
            Unread {
                when: !has_stage2,
                keys: &[("features.stage2_folds", "how many parts the training labels have for Stage 2")],
                since: "there is no section [stage2]",
                help: "add the section, e.g. [stage2] with config = \"stage2.toml\", or remove the key",
            },
        ]
    }
}

impl TreeModel {
    /// How its scores rank labels is measured so: as a booster is chosen, unless that is by the log loss.
    pub fn ranking_metric(&self) -> RankingMetric {
        match self {
            TreeModel::Booster(booster) => booster.metric.ranking().unwrap_or(RankingMetric::Auroc),
            TreeModel::Forest(_) => RankingMetric::Auroc,
        }
    }

    /// What both kinds have.
    pub fn shared(&self) -> &SharedTreeConfig {
        match self {
            TreeModel::Booster(booster) => &booster.shared,
            TreeModel::Forest(forest) => &forest.shared,
        }
    }

    fn check(&self, document: &Document) -> Result<()> {
        let SharedTreeConfig { monotone, categorical, .. } = self.shared();
        match categorical.iter().find(|name| monotone.contains_key(*name)) {
            None => Ok(()),
            Some(name) => {
                let expected = format!("`{name}` in one of model.categorical and model.monotone");
                Err(document.error("model.categorical", expected, "categories have no order to be monotone along"))
            }
        }
    }

    fn unread(&self) -> Vec<Unread> {
        let TreeModel::Booster(booster) = self else { return Vec::new() };
        let gamma = Unread {
            when: booster.objective != TreeObjective::Focal,
            keys: &[("model.focal_gamma", "the exponent of the focal loss")],
            since: "model.objective = \"logistic\" has none",
            help: "set model.objective = \"focal\", or remove the key",
        };
        let metric = Unread {
            when: booster.patience.is_none(),
            keys: &[("model.metric", "what has to improve on the validation part")],
            since: "model.patience = 0 builds all trees",
            help: "set model.patience above 0, or remove the key",
        };
        vec![gamma, metric]
    }
}

/// The Stage 2 of every fold.
fn folded(section: Table, path: &Path, config: &Stage3Config, strict: bool) -> Result<Stage2Config> {
    let document = stage_document(STAGE2, Some(section), path, STAGE3_DECIDES, strict)?;
    let mut default = Stage2Config {
        name: format!("{}-{STAGE2}", config.name),
        seed: config.seed,
        output: config.output.clone(),
        ..Stage2Config::new(&config.data.path)
    };
    default.data.window = config.data.window;
    let embeddings = &config.data.embeddings;
    default.data.input = if embeddings.is_some() { Stage2Input::Embeddings } else { Stage2Input::Features };
    let mut stage = stage2(&document, default)?;
    stage.split = config.split.clone();
    if stage.data.input == Stage2Input::Embeddings {
        stage.data.embeddings = embeddings.clone();
    }
    Ok(stage)
}
