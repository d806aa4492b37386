//! The settings that validation nodes choose from.

use super::model::Learner;
use crate::trees::{Bagging, BoosterParams, ForestParams, GrowRule, SplitRule};

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

/// Trees of a forest: the average precision of fewer still depends on the seed.
const TREES: usize = 300;

/// Trees of a booster. Validation nodes do not choose it: among twenty anomalies the best of a hundred rounds is chance.
const ROUNDS: usize = 100;

/// The grid of `learner` for `columns` features: the smallest leaf, and for a booster whether thresholds are random.
///
/// Labels of anomalies are noisy, and few features matter at a time: leaves of a single node, the default for a forest,
/// are seldom the best, and neither are boosted trees that look at every feature.
pub fn candidates(learner: Learner, columns: usize, seed: u64) -> Vec<Candidate> {
    let root = ForestParams::sklearn_like(columns).grow.feature_fraction_bynode;
    match learner {
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
