//! Gradient boosting.

use graphsieve_kernels::{BoostEngine, TreeBackend};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::Instant;

use super::dataset::Dataset;
use super::device;
use super::early_stop::{Validation, Watch};
use super::grow_rule::GrowRule;
use super::matrix::{Matrix, check_columns};
use super::objective::{ClassWeight, Objective, check_weights};
use super::refuse;
use super::rounds::Rounds;
use super::tree::Tree;
use crate::error::Result;

/// Rows that a prediction task takes at a time: every tree is read once per block.
const BLOCK: usize = 512;

/// Settings of a booster.
#[derive(Clone, Debug)]
pub struct BoosterParams {
    /// Loss. Default logistic without class weight.
    pub objective: Objective,
    /// Most trees. Default 100.
    pub rounds: usize,
    /// Factor on every tree, in (0, 1]. Default 0.1.
    pub learning_rate: f64,
    /// How a tree grows.
    pub grow: GrowRule,
    /// Rows that a tree sees. Default all.
    pub bagging: Bagging,
    /// Seed of every draw. Default 0.
    pub seed: u64,
    /// From when on no tree is begun, other than a first one. What is fitted then depends on the speed of the machine.
    /// Default `None`.
    pub deadline: Option<Instant>,
}

impl Default for BoosterParams {
    fn default() -> Self {
        BoosterParams {
            objective: Objective::Binary { weight: ClassWeight::None },
            rounds: 100,
            learning_rate: 0.1,
            grow: GrowRule::default(),
            bagging: Bagging::default(),
            seed: 0,
            deadline: None,
        }
    }
}

/// Which rows a tree sees: each row is drawn on its own, without replacement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bagging {
    /// Share of the negative rows (of all rows for [`Objective::Squared`]), in (0, 1]. Default 1.
    pub negative: f64,
    /// Share of the positive rows, in (0, 1]. Default 1.
    pub positive: f64,
    /// Rounds for which a bag is kept, at least 1. Default 1.
    pub every: usize,
}

impl Default for Bagging {
    fn default() -> Self {
        Bagging { negative: 1.0, positive: 1.0, every: 1 }
    }
}

impl Bagging {
    /// The same share of both classes, drawn anew for every tree.
    pub fn share(share: f64) -> Self {
        Bagging { negative: share, positive: share, every: 1 }
    }

    pub(super) fn all(&self) -> bool {
        self.negative >= 1.0 && self.positive >= 1.0
    }
}

/// What is fitted: labels, and optionally weights and held-out rows.
#[derive(Clone, Copy)]
pub struct Fit<'a> {
    /// One label per row: 0 or 1, or any number for [`Objective::Squared`].
    pub labels: &'a [f32],
    /// One weight per row, at least 0. A weight of 2 is a row that is there twice.
    pub weights: Option<&'a [f32]>,
    /// Rows that decide when to stop.
    pub validation: Option<Validation<'a>>,
}

impl<'a> Fit<'a> {
    /// Labels alone.
    pub fn labels(labels: &'a [f32]) -> Self {
        Fit { labels, weights: None, validation: None }
    }
}

/// A boosted sum of trees.
///
/// # Example
/// ```
/// use graphsieve::trees::{BinRule, Booster, BoosterParams, Dataset, Fit, Matrix};
/// let values: Vec<f32> = (0..200).map(|i| i as f32).collect();
/// let labels: Vec<f32> = (0..200).map(|i| (i >= 100) as u8 as f32).collect();
/// let x = Matrix::f32(&values, 1)?;
/// let data = Dataset::new(&x, &BinRule::default())?;
/// let booster = Booster::fit(&data, Fit::labels(&labels), &BoosterParams::default())?;
/// let score = booster.predict(&x)?;
/// assert!(score[0] < 0.01 && score[199] > 0.99);
/// # Ok::<(), graphsieve::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Booster {
    /// Loss it was fitted to.
    pub objective: Objective,
    /// Margin before the first tree.
    pub start: f64,
    /// Trees, learning rate included.
    pub trees: Vec<Tree>,
    /// Names of the features.
    pub feature_names: Vec<String>,
    /// Smallest and largest sampled value per feature, or its categories, as LightGBM's text writes them.
    pub feature_infos: Vec<String>,
    /// Metric on the held-out rows after each round, for as long as there were any.
    pub history: Vec<f64>,
}

impl Booster {
    /// Fits a booster.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a setting out of range, [`Error::Data`](crate::Error::Data) for
    /// labels or weights that do not fit the data, [`Error::NonFinite`](crate::Error::NonFinite) for a gradient or
    /// metric that is not a finite number.
    pub fn fit(data: &Dataset, fit: Fit, params: &BoosterParams) -> Result<Self> {
        check(data, &fit, params)?;
        Self::fit_with(data, fit, params, None)
    }

    /// Fits a booster on a device: the same, bit for bit, as [`Booster::fit`], where the device computes in double
    /// precision as IEEE 754 asks.
    ///
    /// Bins, gradients and margins stay on the device from tree to tree where every round sees all rows and the
    /// objective is logistic or squared; otherwise a round's gradients come from the CPU. Small data is faster there
    /// throughout.
    ///
    /// # Errors
    /// As [`Booster::fit`]; [`Error::Data`](crate::Error::Data) for more rows or bins than a device numbers;
    /// [`Error::Device`](crate::Error::Device) for one without double precision;
    /// [`Error::DeviceFailed`](crate::Error::DeviceFailed) for one that fails.
    pub fn fit_on<B: TreeBackend>(
        data: &Dataset,
        fit: Fit,
        params: &BoosterParams,
        device: &B::Device,
    ) -> Result<Self> {
        check(data, &fit, params)?;
        graphsieve_kernels::device::watch();
        let mut engine = device::upload::<B>(data, &params.grow, device)?;
        let booster = Self::fit_with(data, fit, params, Some(&mut engine))?;
        device::check()?;
        Ok(booster)
    }

    fn fit_with(
        data: &Dataset,
        fit: Fit,
        params: &BoosterParams,
        engine: Option<&mut dyn BoostEngine>,
    ) -> Result<Self> {
        let mut rounds = Rounds::new(data, fit, params, engine)?;
        let start = rounds.start();
        let mut booster = Booster {
            objective: params.objective,
            start,
            trees: Vec::new(),
            feature_names: data.names().to_vec(),
            feature_infos: super::lightgbm_write::feature_infos(data),
            history: Vec::new(),
        };
        let mut held_out = fit.validation.map(|v| Watch::new(v, start));
        for round in 0..params.rounds {
            if round > 0 && is_over(params.deadline) {
                break;
            }
            let tree = rounds.next(round)?;
            if tree.nodes.is_empty() && params.bagging.all() && !params.grow.is_random() {
                // Nothing can be split any more, and the next round would find the same.
                break;
            }
            if let Some(watch) = &mut held_out {
                booster.history.push(watch.after(&tree, params.objective, round)?);
            }
            booster.trees.push(tree);
            if held_out.as_ref().is_some_and(|watch| watch.stops(round)) {
                break;
            }
        }
        if let Some(watch) = held_out {
            booster.trees.truncate(watch.best_trees());
        }
        Ok(booster)
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.feature_names.len()
    }

    /// The margin of one row: log-odds, or the value for [`Objective::Squared`].
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the number of features differs.
    pub fn margin(&self, row: &[f64]) -> Result<f64> {
        check_columns(&Matrix::f64(row, row.len())?, self.features())?;
        Ok(self.trees.iter().fold(self.start, |margin, tree| margin + tree.output(|f| row[f])))
    }

    /// The margins of all rows, in parallel; the same as row by row.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the number of columns differs.
    pub fn margins(&self, x: &Matrix) -> Result<Vec<f64>> {
        check_columns(x, self.features())?;
        let mut margins = vec![self.start; x.rows()];
        margins.par_chunks_mut(BLOCK).enumerate().for_each(|(block, margins)| {
            for tree in &self.trees {
                for (at, margin) in margins.iter_mut().enumerate() {
                    *margin += tree.predict(x, block * BLOCK + at);
                }
            }
        });
        Ok(margins)
    }

    /// Scores in [0, 1] (values for [`Objective::Squared`]) of all rows.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the number of columns differs.
    pub fn predict(&self, x: &Matrix) -> Result<Vec<f64>> {
        let mut scores = self.margins(x)?;
        scores.iter_mut().for_each(|score| *score = self.objective.output(*score));
        Ok(scores)
    }
}

/// Whether the time of a fit is over.
pub(super) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn check(data: &Dataset, fit: &Fit, params: &BoosterParams) -> Result<()> {
    if fit.labels.len() != data.rows() {
        return Err(refuse::data("labels", format!("{} values", data.rows()), fit.labels.len(), "give one per row"));
    }
    params.objective.check(fit.labels)?;
    check_weights(fit.weights, data.rows())?;
    params.grow.check(data.features())?;
    let rate = params.learning_rate;
    if !(rate > 0.0 && rate <= 1.0) {
        return Err(refuse::setting("learning_rate", "a number in (0, 1]", rate, "0.1 is the usual choice"));
    }
    let bagging = params.bagging;
    for (key, share) in [("bagging.negative", bagging.negative), ("bagging.positive", bagging.positive)] {
        if !(share > 0.0 && share <= 1.0) {
            return Err(refuse::setting(key, "a number in (0, 1]", share, "1 uses every row"));
        }
    }
    if bagging.every == 0 {
        return Err(refuse::setting("bagging.every", "at least 1", 0, "1 draws a bag for every tree"));
    }
    fit.validation.map_or(Ok(()), |validation| validation.check(data.features()))
}
