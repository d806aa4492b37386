//! When a booster stops: held-out rows and what is measured on them.

use rayon::prelude::*;

use super::matrix::{Matrix, check_columns};
use super::objective::{Objective, check_labels};
use super::refuse;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::metrics;

/// Fewest rows that are worth a task of their own.
const TASK_ROWS: usize = 512;

/// A metric of scores against labels 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The area under the ROC curve of the scores as f32.
    Auroc,
    /// Average precision of the scores as f32.
    AveragePrecision,
    /// Mean of −ln of the probability that is given to the true class; a probability counts as at least 1e-15.
    LogLoss,
}

impl Metric {
    /// True when a larger value is better.
    pub fn larger_is_better(self) -> bool {
        self != Metric::LogLoss
    }

    /// The metric of `scores` (probabilities) against `labels`.
    ///
    /// # Errors
    /// [`Error::Data`] for labels other than 0 and 1, and for a ranking metric when one of the two is missing.
    pub fn of(self, scores: &[f64], labels: &[f32]) -> Result<f64> {
        check_labels(labels, true)?;
        let ranked = |metric: fn(&[f32], &[u8]) -> Result<f64>| {
            let scores: Vec<f32> = scores.iter().map(|&score| score as f32).collect();
            let labels: Vec<u8> = labels.iter().map(|&label| (label > 0.5) as u8).collect();
            metric(&scores, &labels)
        };
        match self {
            Metric::Auroc => ranked(metrics::roc_auc),
            Metric::AveragePrecision => ranked(metrics::average_precision),
            Metric::LogLoss => {
                let loss = |(&score, &label): (&f64, &f32)| {
                    let of_true_class: f64 = if label > 0.5 { score } else { 1.0 - score };
                    -of_true_class.max(1e-15).ln()
                };
                Ok(scores.iter().zip(labels).map(loss).sum::<f64>() / labels.len().max(1) as f64)
            }
        }
    }
}

/// What is measured on held-out rows.
#[derive(Clone, Copy)]
pub enum Measure<'a> {
    /// A metric by name.
    Metric(Metric),
    /// Any function of scores (margins for [`Objective::Squared`]) and labels.
    Function {
        /// Scores and labels to a finite number.
        value: &'a (dyn Fn(&[f64], &[f32]) -> f64 + Sync),
        /// True when a larger value is better.
        larger_is_better: bool,
    },
}

impl Measure<'_> {
    fn larger_is_better(&self) -> bool {
        match *self {
            Measure::Metric(metric) => metric.larger_is_better(),
            Measure::Function { larger_is_better, .. } => larger_is_better,
        }
    }
}

/// Held-out rows that decide when to stop.
#[derive(Clone, Copy)]
pub struct Validation<'a> {
    /// Their features.
    pub x: Matrix<'a>,
    /// Their labels.
    pub labels: &'a [f32],
    /// What is measured on them after every round.
    pub measure: Measure<'a>,
    /// Rounds without a better value before the fit stops; the trees up to the best round are kept. At least 1.
    pub patience: usize,
}

impl Validation<'_> {
    pub(super) fn check(&self, features: usize) -> Result<()> {
        check_columns(&self.x, features)?;
        if self.labels.len() != self.x.rows() || self.labels.is_empty() {
            let expected = format!("{} values, at least one", self.x.rows());
            return Err(refuse::data("validation labels", expected, self.labels.len(), "give one per held-out row"));
        }
        if self.patience == 0 {
            return Err(refuse::setting("patience", "at least 1", 0, "50 is a usual choice"));
        }
        check_labels(self.labels, matches!(self.measure, Measure::Metric(_)))
    }
}

/// The held-out rows during a fit.
pub(super) struct Watch<'a> {
    validation: Validation<'a>,
    margins: Vec<f64>,
    /// Value and round.
    best: Option<(f64, usize)>,
}

impl<'a> Watch<'a> {
    pub fn new(validation: Validation<'a>, start: f64) -> Self {
        Watch { margins: vec![start; validation.x.rows()], validation, best: None }
    }

    /// Number of trees up to the best round.
    pub fn best_trees(&self) -> usize {
        self.best.map_or(0, |(_, round)| round + 1)
    }

    /// Adds the tree of `round` and measures.
    pub fn after(&mut self, tree: &Tree, objective: Objective, round: usize) -> Result<f64> {
        let Validation { x, labels, measure, .. } = self.validation;
        let margins = self.margins.par_iter_mut().with_min_len(TASK_ROWS).enumerate();
        margins.for_each(|(row, margin)| *margin += tree.predict(&x, row));
        let scores: Vec<f64> = self.margins.iter().map(|&margin| objective.output(margin)).collect();
        let value = match measure {
            Measure::Metric(metric) => metric.of(&scores, labels)?,
            Measure::Function { value, .. } => value(&scores, labels),
        };
        if !value.is_finite() {
            let help = "most metrics need both classes among the held-out rows".into();
            return Err(Error::NonFinite { term: "validation metric".into(), value, epoch: round, help });
        }
        let better = |best: f64| if measure.larger_is_better() { value > best } else { value < best };
        if self.best.is_none_or(|(best, _)| better(best)) {
            self.best = Some((value, round));
        }
        Ok(value)
    }

    /// True when the patience is used up.
    pub fn stops(&self, round: usize) -> bool {
        self.best.is_some_and(|(_, best)| round - best >= self.validation.patience)
    }
}
