//! Gradient boosting.

use graphsieve_kernels::{BoostEngine, TreeBackend};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::Instant;

pub use super::booster_params::{Bagging, BoosterParams, Fit};
use super::dataset::Dataset;
use super::device;
use super::early_stop::Watch;
use super::matrix::{Matrix, check_columns};
use super::objective::{Objective, check_weights};
use super::refuse;
use super::rounds::Rounds;
use super::tree::Tree;
use crate::error::Result;

/// Rows that a prediction task takes at a time: every tree is read once per block.
const BLOCK: usize = 512;

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
            feature_infos: data.feature_infos(),
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
