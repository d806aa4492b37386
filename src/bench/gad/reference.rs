//! Trees with the settings of the benchmark, and settings of trees in words that other libraries have too.

use std::time::Instant;

use serde_json::{Value, json};

use crate::config::{AutoConfig, Candidate, RunConfig, TreeModel};
use crate::data::split::Split;
use crate::error::Result;
use crate::features::{FeatureTable, NeighbourhoodConfig};
use crate::train::stage3::{ColumnRules, booster_params, forest_params};
use crate::trees::{
    BinRule, Booster, BoosterParams, ClassWeight, Dataset, Fit, Forest, ForestParams, GrowRule, Matrix, Objective,
    SplitRule,
};

/// Scores of one model.
#[derive(Clone)]
pub(super) struct Scored {
    pub setting: String,
    pub validation: Vec<f32>,
    pub test: Vec<f32>,
    pub seconds: f64,
}

/// What GADBench fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learner {
    /// A random forest with the settings that GADBench measures scikit-learn's with.
    GadbenchForest,
    /// Gradient-boosted trees with the settings that GADBench measures XGBoost with.
    GadbenchBooster,
}

/// Settings of trees.
#[derive(Clone, Debug)]
pub(super) enum Settings {
    /// Of a forest.
    Forest(ForestParams),
    /// Of a booster.
    Booster(BoosterParams),
}

impl Settings {
    /// Those of GADBench for `columns` features and so many normal nodes per anomalous one in training: the defaults of
    /// scikit-learn's forest and of XGBoost, with both classes of equal weight.
    pub fn of(learner: Learner, columns: usize, normal_per_anomalous: f64, seed: u64) -> Self {
        let weight = ClassWeight::Positive(normal_per_anomalous);
        match learner {
            Learner::GadbenchForest => {
                Settings::Forest(ForestParams { class_weight: weight, seed, ..ForestParams::sklearn_like(columns) })
            }
            Learner::GadbenchBooster => {
                let split =
                    SplitRule { min_data_in_leaf: 1, min_sum_hessian: 1.0, lambda_l2: 1.0, ..SplitRule::default() };
                let grow = GrowRule { num_leaves: Some(64), max_depth: Some(6), split, ..GrowRule::default() };
                let objective = Objective::Binary { weight };
                let (learning_rate, default) = (0.3, BoosterParams::default());
                Settings::Booster(BoosterParams { objective, learning_rate, grow, seed, ..default })
            }
        }
    }

    /// Those of a candidate on `columns` features, and the blocks that these are; none of what are no trees.
    pub fn of_candidate(candidate: &'static Candidate, columns: usize) -> Result<Option<(Self, NeighbourhoodConfig)>> {
        let RunConfig::Stage3(config) = candidate.config(&AutoConfig::new("data"))? else { return Ok(None) };
        let settings = match &config.model {
            TreeModel::Forest(forest) => {
                Settings::Forest(forest_params(forest, ColumnRules::default(), columns, config.seed))
            }
            TreeModel::Booster(booster) => {
                Settings::Booster(booster_params(booster, ColumnRules::default(), columns, config.seed))
            }
        };
        Ok(Some((settings, config.features.neighbourhood)))
    }

    /// What `--export` says of them, by the name that sets them apart.
    pub fn describe(&self, name: &str) -> Value {
        match self {
            Settings::Forest(params) => json!({
                "name": name,
                "trees": params.trees,
                "min_data_in_leaf": params.grow.split.min_data_in_leaf,
                "columns_per_node": params.grow.feature_fraction_bynode,
                "balanced": params.class_weight != ClassWeight::None,
            }),
            Settings::Booster(params) => json!({
                "name": name,
                "rounds": params.rounds,
                "learning_rate": params.learning_rate,
                "num_leaves": params.grow.num_leaves,
                "max_depth": params.grow.max_depth,
                "min_data_in_leaf": params.grow.split.min_data_in_leaf,
                "min_sum_hessian": params.grow.split.min_sum_hessian,
                "lambda_l2": params.grow.split.lambda_l2,
                "columns_per_node": params.grow.feature_fraction_bynode,
                "rows_per_tree": params.bagging.negative,
                "random_thresholds": params.grow.extra_trees,
                "balanced": params.objective != Objective::Binary { weight: ClassWeight::None },
            }),
        }
    }
}

/// Rows of one part of a split.
struct Part {
    values: Vec<f32>,
    columns: usize,
    labels: Vec<u8>,
}

impl Part {
    fn new(table: &FeatureTable, nodes: &[(u32, u8)]) -> Self {
        Self {
            values: nodes.iter().flat_map(|&(node, _)| table.row(node as usize)).collect(),
            columns: table.columns().len(),
            labels: nodes.iter().map(|&(_, label)| label).collect(),
        }
    }

    fn matrix(&self) -> Result<Matrix<'_>> {
        Matrix::f32(&self.values, self.columns)
    }
}

/// Models of the benchmark on the same features and the same split.
pub(super) struct Reference {
    train: Dataset,
    targets: Vec<f32>,
    validation: Part,
    test: Part,
    seed: u64,
}

impl Reference {
    pub fn new(table: &FeatureTable, split: &Split, seed: u64) -> Result<Self> {
        let [train, validation, test] = [&split.train, &split.validation, &split.test].map(|p| Part::new(table, p));
        let targets = train.labels.iter().map(|&label| f32::from(label)).collect();
        Ok(Self { train: Dataset::new(&train.matrix()?, &BinRule::default())?, targets, validation, test, seed })
    }

    /// Fits one and scores the validation and the test part.
    pub fn scored(&self, learner: Learner) -> Result<Scored> {
        let started = Instant::now();
        let anomalous = self.targets.iter().filter(|&&target| target > 0.5).count() as f64;
        let normal_per_anomalous = (self.targets.len() as f64 - anomalous) / anomalous;
        let narrow = |scores: Vec<f64>| scores.into_iter().map(|score| score as f32).collect::<Vec<f32>>();
        let parts = [&self.validation, &self.test];
        let [validation, test] = match Settings::of(learner, self.validation.columns, normal_per_anomalous, self.seed) {
            Settings::Forest(params) => {
                let forest = Forest::fit(&self.train, &self.targets, None, &params)?;
                parts.map(|part| part.matrix().and_then(|x| forest.predict(&x)).map(narrow))
            }
            Settings::Booster(params) => {
                let booster = Booster::fit(&self.train, Fit::labels(&self.targets), &params)?;
                // Margins: probabilities close to 0 are equal in f32 sooner.
                parts.map(|part| part.matrix().and_then(|x| booster.margins(&x)).map(narrow))
            }
        };
        let (setting, seconds) = ("as in GADBench".into(), started.elapsed().as_secs_f64());
        Ok(Scored { setting, validation: validation?, test: test?, seconds })
    }
}
