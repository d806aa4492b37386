//! Trees as the settings of a Stage 3 describe them.

use std::time::Instant;

use graphsieve_kernels::{TreeBackend, finds_splits};

use super::columns::{ColumnRules, check_categories};
use crate::config::{
    BoosterConfig, ForestConfig, SharedTreeConfig, Stage3Config, TreeClassWeight, TreeMetric, TreeModel, TreeObjective,
};
use crate::data::split::Split;
use crate::error::Result;
use crate::features::FeatureTable;
use crate::models::tree_ensemble::{TreeEnsemble, parts};
use crate::run::ranked::LabelledEvents;
use crate::trees::{
    Bagging, BinRule, Booster, BoosterParams, ClassWeight, Dataset as Binned, Fit, Forest, ForestParams, GrowRule,
    Matrix, Measure, Metric, Objective, SplitRule, Validation,
};

/// Trains the trees on the training part of `split`; a booster stops by the validation part, whose labels are of
/// `events`. `features` are the names of the features of the data, if they have any. A booster on many rows grows on
/// the device, which changes nothing but the time. From the `deadline` on no tree is begun.
///
/// # Errors
/// Settings that the trees refuse or that name no column, a metric that the validation labels do not have, or a device
/// that fails.
pub fn fit<B: TreeBackend>(
    config: &Stage3Config,
    table: &FeatureTable,
    features: &[String],
    split: &Split,
    events: &LabelledEvents,
    deadline: Option<Instant>,
    device: &B::Device,
) -> Result<TreeEnsemble> {
    let labels_of = |part: &[(u32, u8)]| part.iter().map(|(_, label)| f32::from(*label)).collect::<Vec<_>>();
    let width = table.columns().len();
    let labels = labels_of(&split.train);
    let train: Vec<u32> = split.train.iter().map(|(node, _)| *node).collect();
    let rules = ColumnRules::of(&config.model, table.columns(), features)?;
    let held_values: Vec<f32> = split.validation.iter().flat_map(|(node, _)| table.row(*node as usize)).collect();
    let held_labels = labels_of(&split.validation);
    match &config.model {
        TreeModel::Forest(forest) => {
            let data = binned(&train, table, features, &forest.shared, &rules)?;
            let params = ForestParams { deadline, ..forest_params(forest, rules, width, config.seed) };
            Ok(TreeEnsemble::Forest(Forest::fit(&data, &labels, None, &params)?))
        }
        TreeModel::Booster(booster) => {
            let data = binned(&train, table, features, &booster.shared, &rules)?;
            let alerts = |scores: &[f64]| events.alerts(&scores.iter().map(|&score| score as f32).collect::<Vec<_>>());
            // NaN, which the booster refuses, where the labels have no such figure.
            let right = |scores: &[f64], _: &[f32]| alerts(scores).map_or(f64::NAN, |alerts| alerts.precision);
            let stopped = |scores: &[f64], _: &[f32]| alerts(scores).and_then(|of| of.stopped).unwrap_or(f64::NAN);
            let measure = match booster.metric {
                TreeMetric::Auroc => Measure::Metric(Metric::Auroc),
                TreeMetric::AveragePrecision => Measure::Metric(Metric::AveragePrecision),
                TreeMetric::LogLoss => Measure::Metric(Metric::LogLoss),
                TreeMetric::Alerts => Measure::Function { value: &right, larger_is_better: true },
                TreeMetric::Stopped => Measure::Function { value: &stopped, larger_is_better: true },
            };
            let validation = booster.patience.map(|patience| -> Result<Validation> {
                let x = Matrix::f32(&held_values, width)?;
                Ok(Validation { x, labels: &held_labels, measure, patience })
            });
            let fit = Fit { labels: &labels, weights: None, validation: validation.transpose()? };
            let params = BoosterParams { deadline, ..booster_params(booster, rules, width, config.seed) };
            let pays = B::MIN_ROWS_FOR_DEVICE.is_some_and(|rows| data.rows() >= rows) && finds_splits::<B>(device);
            let booster = match pays {
                true => Booster::fit_on::<B>(&data, fit, &params, device)?,
                false => Booster::fit(&data, fit, &params)?,
            };
            Ok(TreeEnsemble::Booster(booster))
        }
    }
}

/// Grows as many trees as `chosen` has anew on the labels of the training and the validation part together, as [`fit`]
/// does where all of them are there for training: bins and weights of the classes are those of both. What was measured
/// on the validation part while `chosen` grew stays.
///
/// # Errors
/// As for [`fit`].
pub(super) fn refit<B: TreeBackend>(
    config: &Stage3Config,
    table: &FeatureTable,
    features: &[String],
    split: &Split,
    chosen: &TreeEnsemble,
    device: &B::Device,
) -> Result<TreeEnsemble> {
    let (mut config, trees) = (config.clone(), chosen.num_trees());
    match &mut config.model {
        TreeModel::Booster(booster) => (booster.trees, booster.patience) = (trees, None),
        TreeModel::Forest(forest) => forest.trees = trees,
    }
    let both = Split { train: split.training_and_validation(), validation: Vec::new(), test: Vec::new() };
    let mut anew = fit::<B>(&config, table, features, &both, &LabelledEvents::default(), None, device)?;
    if let (TreeEnsemble::Booster(anew), TreeEnsemble::Booster(chosen)) = (&mut anew, chosen) {
        anew.history.clone_from(&chosen.history);
    }
    Ok(anew)
}

/// Rows of a table in bins, with the names of its columns. Values are read where they lie.
fn binned(
    rows: &[u32],
    table: &FeatureTable,
    features: &[String],
    shared: &SharedTreeConfig,
    rules: &ColumnRules,
) -> Result<Binned> {
    let parts = parts(table, 0..table.num_rows());
    let x = Matrix::parts(&parts)?;
    for &column in &rules.categorical {
        let name = table.columns()[column].named(features);
        check_categories(&name, rows.iter().map(|&row| x.get(row as usize, column) as f32))?;
    }
    let rule = BinRule { max_bin: shared.max_bin, categorical: rules.categorical.clone(), ..BinRule::default() };
    let names = table.columns().iter().map(|column| column.name.clone()).collect();
    let binned = Binned::on_rows(&x, rows, &rule)?.with_names(names);
    table.let_go();
    binned
}

fn grow_rule(
    shared: &SharedTreeConfig,
    rules: ColumnRules,
    width: usize,
    split: SplitRule,
    base: GrowRule,
) -> GrowRule {
    let fraction = match shared.feature_fraction_bynode {
        0.0 => (width as f64).sqrt().floor().max(1.0) / width.max(1) as f64,
        fraction => fraction,
    };
    GrowRule {
        max_depth: shared.max_depth.map(narrow),
        split,
        extra_trees: shared.extra_trees,
        feature_fraction_bynode: fraction,
        monotone: rules.monotone,
        interactions: rules.interactions,
        ..base
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn class_weight(of: TreeClassWeight) -> ClassWeight {
    match of {
        TreeClassWeight::None => ClassWeight::None,
        TreeClassWeight::Balanced => ClassWeight::Balanced,
    }
}

/// A forest on `width` columns.
pub fn forest_params(config: &ForestConfig, rules: ColumnRules, width: usize, seed: u64) -> ForestParams {
    let default = ForestParams::sklearn_like(width);
    let split = SplitRule { min_data_in_leaf: narrow(config.min_data_in_leaf), ..default.grow.split.clone() };
    ForestParams {
        trees: config.trees,
        bootstrap: config.bootstrap,
        class_weight: class_weight(config.shared.class_weight),
        grow: grow_rule(&config.shared, rules, width, split, default.grow),
        seed,
        deadline: None,
    }
}

/// A booster on `width` columns.
pub fn booster_params(config: &BoosterConfig, rules: ColumnRules, width: usize, seed: u64) -> BoosterParams {
    let split = SplitRule {
        lambda_l1: config.lambda_l1,
        lambda_l2: config.lambda_l2,
        path_smooth: config.path_smooth,
        min_data_in_leaf: narrow(config.min_data_in_leaf),
        min_sum_hessian: config.min_sum_hessian,
        ..SplitRule::default()
    };
    let base = GrowRule {
        num_leaves: Some(narrow(config.num_leaves)),
        feature_fraction: config.feature_fraction,
        ..GrowRule::default()
    };
    let weight = class_weight(config.shared.class_weight);
    BoosterParams {
        objective: match config.objective {
            TreeObjective::Logistic => Objective::Binary { weight },
            TreeObjective::Focal => Objective::Focal { gamma: config.focal_gamma, alpha: 0.5 },
        },
        rounds: config.trees,
        learning_rate: config.learning_rate,
        grow: grow_rule(&config.shared, rules, width, split, base),
        bagging: Bagging::share(config.bagging),
        seed,
        deadline: None,
    }
}
