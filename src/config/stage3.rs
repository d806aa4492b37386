//! `task = "stage3"`: trees on features of a node, of its surroundings and of the two stages before.

use std::ops::Bound::{Excluded, Included};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::document::Table;
use super::load::{LONGEST_NAME, STAGE2, StageTable, Task, data_path, output, split, stage2};
use super::reader::{Choice, Reader};
use super::schema::Stage2Config;
use super::sections::{EMBEDDINGS_FILE, OutputConfig, SplitConfig, Stage2Input, zero_for_none};
use crate::error::Result;
use crate::features::{NeighbourhoodConfig, Over};
use crate::trees::Metric;

/// Settings of a booster or a forest on graph features.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage3Config {
    /// Part of the run directory's name. Default `stage3`.
    pub name: String,
    /// Seed of every random choice of the run, 0 to 2^63 - 1. Default 42.
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
    pub split: SplitConfig,
    /// `[output]`
    pub output: OutputConfig,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage3Data {
    /// Data directory or `.npz` file: graph, features, labels. Required.
    pub path: PathBuf,
    /// A `.npy` file, or a directory that holds `Z_embeddings_stage1.npy` such as a Stage-1 run; for the blocks
    /// `embedding` and `reconstruction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<PathBuf>,
}

impl Stage3Data {
    /// The file of Stage-1 embeddings, if there is one.
    pub fn embeddings_file(&self) -> Option<PathBuf> {
        let place = self.embeddings.as_deref()?;
        let is_file = place.extension().is_some_and(|extension| extension == "npy") && !place.is_dir();
        Some(if is_file { place.to_path_buf() } else { place.join(EMBEDDINGS_FILE) })
    }
}

/// `[features]`: the blocks of columns, each of which can be left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage3Features {
    /// Features of a node and of its surroundings.
    #[serde(flatten)]
    pub neighbourhood: NeighbourhoodConfig,
    /// The Stage-1 embedding. Default: whether `data.embeddings` is given.
    pub embedding: bool,
    /// How badly the Stage-1 embedding explains the edges of a node. Default: whether `data.embeddings` is given.
    pub reconstruction: bool,
    /// Logit of a Stage 2 that has not seen the label of the node. Default: whether there is a section `[stage2]`.
    pub stage2_score: bool,
    /// Refined embedding of the same Stage 2. Default false.
    pub stage2_embedding: bool,
    /// Parts of the training labels, at least 2: each is scored by a Stage 2 that was trained on the others. Default 5.
    pub stage2_folds: usize,
}

impl Default for Stage3Features {
    fn default() -> Self {
        Self {
            neighbourhood: NeighbourhoodConfig::default(),
            embedding: false,
            reconstruction: false,
            stage2_score: false,
            stage2_embedding: false,
            stage2_folds: 5,
        }
    }
}

/// `[model]`, by `model.kind`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TreeModel {
    /// Gradient boosting; stops when the validation part no longer improves.
    Booster(BoosterConfig),
    /// Random forest.
    Forest(ForestConfig),
}

/// Keys of `[model]` for `kind = "booster"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoosterConfig {
    /// Most trees, at least 1. Default 1,000.
    pub trees: usize,
    /// Factor on every tree, in (0, 1]. Default 0.05.
    pub learning_rate: f64,
    /// Trees without improvement on the validation part after which training stops; `None` (0 in TOML) builds all.
    /// Default 100.
    #[serde(serialize_with = "zero_for_none")]
    pub patience: Option<usize>,
    /// What has to improve. Default `average_precision`.
    pub metric: Metric,
    /// What is minimised. Default `logistic`.
    pub objective: TreeObjective,
    /// Exponent of the focal loss, at least 0. Default 2. No effect with `logistic`.
    pub focal_gamma: f64,
    /// Most leaves of a tree, at least 2. Default 31.
    pub num_leaves: usize,
    /// Share of the rows that a tree sees, in (0, 1]. Default 1.
    pub bagging: f64,
    /// Share of the columns that a tree sees, in (0, 1]. Default 1.
    pub feature_fraction: f64,
    /// L1 penalty of leaf values, at least 0. Default 0.
    pub lambda_l1: f64,
    /// L2 penalty of leaf values, at least 0. Default 0.
    pub lambda_l2: f64,
    /// Pull of a leaf towards its parent, at least 0. Default 0.
    pub path_smooth: f64,
    /// Fewest rows of a leaf, at least 1. Default 20.
    pub min_data_in_leaf: usize,
    /// What both kinds have.
    #[serde(flatten)]
    pub shared: SharedTreeConfig,
}

/// Keys of `[model]` for `kind = "forest"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForestConfig {
    /// Trees, at least 1. Default 500.
    pub trees: usize,
    /// Whether a tree sees rows drawn with replacement. Default true.
    pub bootstrap: bool,
    /// Fewest rows of a leaf, at least 1. Default 1.
    pub min_data_in_leaf: usize,
    /// What both kinds have.
    #[serde(flatten)]
    pub shared: SharedTreeConfig,
}

/// Keys of `[model]` for either kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedTreeConfig {
    /// Most splits between the root and a leaf; `None` (0 in TOML) does not limit it. Default none.
    #[serde(serialize_with = "zero_for_none")]
    pub max_depth: Option<usize>,
    /// Most bins of a column, 2 to 65,535. Default 255.
    pub max_bin: usize,
    /// Share of a tree's columns that a node sees, in (0, 1]; 0 takes the square root of their number, as a share.
    /// Default 1 (booster), 0 (forest).
    pub feature_fraction_bynode: f64,
    /// Whether a node tries one random threshold per column instead of all. Default false.
    pub extra_trees: bool,
    /// Weight of the classes. Default `none`.
    pub class_weight: TreeClassWeight,
}

impl Choice for Metric {
    const NAMES: &'static [(&'static str, Self)] =
        &[("average_precision", Metric::AveragePrecision), ("auroc", Metric::Auroc), ("log_loss", Metric::LogLoss)];
}

/// Loss of a booster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TreeObjective {
    /// Cross-entropy.
    Logistic,
    /// Cross-entropy that counts rows the less, the surer the model is of them.
    Focal,
}

impl Choice for TreeObjective {
    const NAMES: &'static [(&'static str, Self)] =
        &[("logistic", TreeObjective::Logistic), ("focal", TreeObjective::Focal)];
}

/// Weight of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TreeClassWeight {
    /// Every row counts once.
    None,
    /// Both classes count alike.
    Balanced,
}

impl Choice for TreeClassWeight {
    const NAMES: &'static [(&'static str, Self)] =
        &[("none", TreeClassWeight::None), ("balanced", TreeClassWeight::Balanced)];
}

/// Keys of Stage 2 that Stage 3 decides, and what the user should do instead.
const STAGE3_DECIDES: &[(&str, &str)] = &[
    ("task", "the section's name is the task"),
    ("name", "set `name` at the top of this file; the names of the folds are derived from it"),
    ("seed", "set `seed` at the top of this file; all models share it"),
    ("data.path", "set `path` in [data] of this file"),
    ("data.embeddings", "set `embeddings` in [data] of this file"),
    ("split", "set it in [split] of this file; the folds are parts of its training labels"),
    ("output", "set it in [output] of this file"),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Booster,
    Forest,
}

impl Choice for Kind {
    const NAMES: &'static [(&'static str, Self)] = &[("booster", Kind::Booster), ("forest", Kind::Forest)];
}

impl Choice for Over {
    const NAMES: &'static [(&'static str, Self)] =
        &[("union", Over::Union), ("relations", Over::Relations), ("both", Over::Both)];
}

impl SharedTreeConfig {
    fn new(feature_fraction_bynode: f64) -> Self {
        Self {
            max_depth: None,
            max_bin: 255,
            feature_fraction_bynode,
            extra_trees: false,
            class_weight: TreeClassWeight::None,
        }
    }
}

impl Default for BoosterConfig {
    fn default() -> Self {
        Self {
            trees: 1_000,
            learning_rate: 0.05,
            patience: Some(100),
            metric: Metric::AveragePrecision,
            objective: TreeObjective::Logistic,
            focal_gamma: 2.0,
            num_leaves: 31,
            bagging: 1.0,
            feature_fraction: 1.0,
            lambda_l1: 0.0,
            lambda_l2: 0.0,
            path_smooth: 0.0,
            min_data_in_leaf: 20,
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
            data: Stage3Data { path: data.into(), embeddings: None },
            features: Stage3Features::default(),
            model: TreeModel::Forest(ForestConfig::default()),
            stage2: None,
            split: SplitConfig { train: 0.6, validation: 0.2, test: 0.2, seed: 42 },
            output: OutputConfig::default(),
        }
    }
}

/// Reads a document of this task; `path` is its file, to which `stage2.config` is relative.
pub(super) fn read(table: &Table, path: &Path) -> Result<Stage3Config> {
    let file = path.display().to_string();
    let reader = Reader::new(table, &file);
    reader.optional_choice::<Task>("task")?;
    let default = Stage3Config::new("");
    let seed = reader.seed("seed", default.seed)?;
    let name = reader.name("name", &default.name, LONGEST_NAME - "-stage2".len())?;
    let data = Stage3Data {
        path: data_path(&reader, &default.data.path)?,
        embeddings: reader.text("data.embeddings")?.map(PathBuf::from),
    };
    let model = model(&reader)?;
    let section = reader.section(STAGE2)?;
    let features = features(&reader, &data, section.is_some())?;
    let split = split(&reader, SplitConfig { seed, ..default.split })?;
    let output = output(&reader, default.output)?;
    reader.finish()?;

    let stage2 = match section {
        None => None,
        Some(section) => {
            let defaults = (format!("{name}-{STAGE2}"), seed, split.clone(), output.clone());
            Some(folded(section, path, &data, defaults)?)
        }
    };
    Ok(Stage3Config { name, seed, data, features, model, stage2, split, output })
}

fn features(reader: &Reader, data: &Stage3Data, has_stage2: bool) -> Result<Stage3Features> {
    let default = NeighbourhoodConfig::default();
    let flag = |key: &str, default: bool| reader.flag(&format!("features.{key}"), default);
    let given = data.embeddings.is_some();
    let neighbourhood = NeighbourhoodConfig {
        raw: flag("raw", default.raw)?,
        hops: reader.integer("features.hops", default.hops, 1)?,
        mean: flag("mean", default.mean)?,
        max: flag("max", default.max)?,
        sum: flag("sum", default.sum)?,
        difference: flag("difference", default.difference)?,
        wavelets: flag("wavelets", default.wavelets)?,
        wavelet_order: reader.integer("features.wavelet_order", default.wavelet_order, 1)?,
        log_degree: flag("log_degree", default.log_degree)?,
        over: reader.choice("features.over", default.over)?,
        self_loops: flag("self_loops", default.self_loops)?,
    };
    let features = Stage3Features {
        neighbourhood,
        embedding: flag("embedding", given)?,
        reconstruction: flag("reconstruction", given)?,
        stage2_score: flag("stage2_score", has_stage2)?,
        stage2_embedding: flag("stage2_embedding", false)?,
        stage2_folds: reader.integer("features.stage2_folds", Stage3Features::default().stage2_folds, 2)?,
    };
    let of_stage1 = [("embedding", features.embedding), ("reconstruction", features.reconstruction)];
    if let Some((key, _)) = of_stage1.iter().find(|(_, wanted)| *wanted && !given) {
        let help = "set `embeddings` in [data] to a Stage-1 run or a .npy file";
        return Err(reader.error(&format!("features.{key}"), "data.embeddings to be given", help));
    }
    let of_stage2 = [("stage2_score", features.stage2_score), ("stage2_embedding", features.stage2_embedding)];
    if let Some((key, _)) = of_stage2.iter().find(|(_, wanted)| *wanted && !has_stage2) {
        let help = "add the section, e.g. [stage2] with config = \"stage2.toml\"";
        return Err(reader.error(&format!("features.{key}"), "a section [stage2]", help));
    }
    if has_stage2 && !of_stage2.iter().any(|(_, wanted)| *wanted) {
        let help = "remove [stage2], or set stage2_score in [features]";
        return Err(reader.error("stage2", "a feature that it is for", help));
    }
    Ok(features)
}

fn model(reader: &Reader) -> Result<TreeModel> {
    let share = (Excluded(0.0), Included(1.0));
    match reader.choice("model.kind", Kind::Forest)? {
        Kind::Forest => {
            let default = ForestConfig::default();
            Ok(TreeModel::Forest(ForestConfig {
                trees: reader.integer("model.trees", default.trees, 1)?,
                bootstrap: reader.flag("model.bootstrap", default.bootstrap)?,
                min_data_in_leaf: reader.integer("model.min_data_in_leaf", default.min_data_in_leaf, 1)?,
                shared: shared(reader, default.shared)?,
            }))
        }
        Kind::Booster => {
            let default = BoosterConfig::default();
            Ok(TreeModel::Booster(BoosterConfig {
                trees: reader.integer("model.trees", default.trees, 1)?,
                learning_rate: reader.number("model.learning_rate", default.learning_rate, share)?,
                patience: reader.integer_or_zero("model.patience", default.patience)?,
                metric: reader.choice("model.metric", default.metric)?,
                objective: reader.choice("model.objective", default.objective)?,
                focal_gamma: reader.number("model.focal_gamma", default.focal_gamma, 0.0..)?,
                num_leaves: reader.integer("model.num_leaves", default.num_leaves, 2)?,
                bagging: reader.number("model.bagging", default.bagging, share)?,
                feature_fraction: reader.number("model.feature_fraction", default.feature_fraction, share)?,
                lambda_l1: reader.number("model.lambda_l1", default.lambda_l1, 0.0..)?,
                lambda_l2: reader.number("model.lambda_l2", default.lambda_l2, 0.0..)?,
                path_smooth: reader.number("model.path_smooth", default.path_smooth, 0.0..)?,
                min_data_in_leaf: reader.integer("model.min_data_in_leaf", default.min_data_in_leaf, 1)?,
                shared: shared(reader, default.shared)?,
            }))
        }
    }
}

fn shared(reader: &Reader, default: SharedTreeConfig) -> Result<SharedTreeConfig> {
    let max_bin = reader.integer("model.max_bin", default.max_bin, 2)?;
    if max_bin > 65_535 {
        return Err(reader.error("model.max_bin", "an integer from 2 to 65,535", "255 is the usual choice"));
    }
    let fraction = default.feature_fraction_bynode;
    Ok(SharedTreeConfig {
        max_depth: reader.integer_or_zero("model.max_depth", default.max_depth)?,
        max_bin,
        feature_fraction_bynode: reader.number("model.feature_fraction_bynode", fraction, 0.0..=1.0)?,
        extra_trees: reader.flag("model.extra_trees", default.extra_trees)?,
        class_weight: reader.choice("model.class_weight", default.class_weight)?,
    })
}

/// The Stage 2 of every fold.
fn folded(
    section: &Table,
    path: &Path,
    data: &Stage3Data,
    defaults: (String, u64, SplitConfig, OutputConfig),
) -> Result<Stage2Config> {
    let stage = StageTable::resolve(STAGE2, Some(section), path, STAGE3_DECIDES)?;
    let (name, seed, split, output) = defaults;
    let mut default = Stage2Config { name, seed, output, ..Stage2Config::new(&data.path) };
    default.data.input = if data.embeddings.is_some() { Stage2Input::Embeddings } else { Stage2Input::Features };
    let mut config = stage2(&stage.table, &stage.file, default)?;
    config.split = split;
    if config.data.input == Stage2Input::Embeddings {
        config.data.embeddings = data.embeddings.clone();
    }
    Ok(config)
}
