//! The settings that validation nodes choose from.

use serde_json::{Value, json};

use super::model::Learner;
use crate::trees::{Bagging, BoosterParams, ClassWeight, ForestParams, GrowRule, Objective, SplitRule};

/// One setting of a learner.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What sets it apart from the others of its learner.
    pub name: String,
    /// The setting.
    pub settings: Settings,
}

/// Settings of one of the learners.
#[derive(Clone, Debug)]
pub enum Settings {
    /// Of a forest.
    Forest(ForestParams),
    /// Of a booster.
    Booster(BoosterParams),
}

impl Candidate {
    /// The setting in words that other libraries have too, for `--export`.
    pub(super) fn describe(&self) -> Value {
        match &self.settings {
            Settings::Forest(params) => json!({
                "name": self.name,
                "trees": params.trees,
                "min_data_in_leaf": params.grow.split.min_data_in_leaf,
                "columns_per_node": params.grow.feature_fraction_bynode,
                "balanced": params.class_weight != ClassWeight::None,
            }),
            Settings::Booster(params) => json!({
                "name": self.name,
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

/// Trees of a forest: the average precision of fewer still depends on the seed.
const TREES: usize = 300;

/// Trees of a booster. Validation nodes do not choose it: among twenty anomalies the best of a hundred rounds is
/// chance.
const ROUNDS: usize = 100;

/// The settings of `learner` for `columns` features and so many normal nodes per anomalous one in training.
///
/// Those of GADBench are one each: the defaults of scikit-learn's forest and of XGBoost, with both classes of equal
/// weight. Ours are a grid of the smallest leaf, and for a booster of whether thresholds are random. Labels of
/// anomalies are noisy, and few features matter at a time: leaves of a single node, the default for a forest, are
/// seldom the best, and neither are boosted trees that look at every feature.
pub fn candidates(learner: Learner, columns: usize, normal_per_anomalous: f64, seed: u64) -> Vec<Candidate> {
    let root = ForestParams::sklearn_like(columns).grow.feature_fraction_bynode;
    let weight = ClassWeight::Positive(normal_per_anomalous);
    let only = |settings| vec![Candidate { name: "as in GADBench".into(), settings }];
    match learner {
        Learner::GadbenchForest => {
            only(Settings::Forest(ForestParams { class_weight: weight, seed, ..ForestParams::sklearn_like(columns) }))
        }
        Learner::GadbenchBooster => {
            let split = SplitRule { min_data_in_leaf: 1, min_sum_hessian: 1.0, lambda_l2: 1.0, ..SplitRule::default() };
            let grow = GrowRule { num_leaves: Some(64), max_depth: Some(6), split, ..GrowRule::default() };
            let objective = Objective::Binary { weight };
            only(Settings::Booster(BoosterParams {
                objective,
                learning_rate: 0.3,
                grow,
                seed,
                ..BoosterParams::default()
            }))
        }
        Learner::Forest => [1, 5, 10, 20]
            .into_iter()
            .map(|smallest| {
                let mut params = ForestParams { trees: TREES, seed, ..ForestParams::sklearn_like(columns) };
                params.grow.split.min_data_in_leaf = smallest;
                Candidate { name: format!("min_data_in_leaf {smallest}"), settings: Settings::Forest(params) }
            })
            .collect(),
        Learner::Booster => [(5, false), (5, true), (20, false), (20, true)]
            .into_iter()
            .map(|(smallest, extra_trees)| {
                let grow = GrowRule {
                    num_leaves: Some(7),
                    split: SplitRule { min_data_in_leaf: smallest, ..SplitRule::default() },
                    extra_trees,
                    feature_fraction_bynode: (2.0 * root).min(1.0),
                    ..GrowRule::default()
                };
                let params = BoosterParams {
                    rounds: ROUNDS,
                    learning_rate: 0.03,
                    grow,
                    bagging: Bagging::share(0.7),
                    seed,
                    ..BoosterParams::default()
                };
                let kind = if extra_trees { ", extra_trees" } else { "" };
                Candidate { name: format!("min_data_in_leaf {smallest}{kind}"), settings: Settings::Booster(params) }
            })
            .collect(),
        Learner::Ensemble => Vec::new(),
    }
}
