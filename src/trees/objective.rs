//! Losses of the booster: gradient and hessian of a row with respect to its margin.

use graphsieve_kernels::{BoostLoss, boost_derivatives};
use serde::{Deserialize, Serialize};

use super::fixed_point::order_free_sum;
use super::refuse;
use crate::error::Result;
use crate::metrics::{sigmoid_f64, softplus};

/// What the booster minimises.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Objective {
    /// Logistic loss on labels 0 and 1: g = p − y, h = p (1 − p), times the class weight.
    Binary {
        /// Weight of the positive class.
        weight: ClassWeight,
    },
    /// Focal loss −α_t (1 − q)^γ ln q with q the probability of the true class; α_t = α for positives, 1 − α for
    /// negatives. Where the loss is not convex the hessian is that of the logistic loss times α_t (1 − q)^γ.
    Focal {
        /// γ ≥ 0; 0 is the logistic loss. Usual 2.
        gamma: f64,
        /// α in (0, 1). Usual 0.25; 0.5 weighs both classes alike.
        alpha: f64,
    },
    /// (y − m)² / 2: g = m − y, h = 1.
    Squared,
}

/// How the rare class is weighted.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub enum ClassWeight {
    /// Not at all.
    #[default]
    None,
    /// n / (2 · n_class) for either class.
    Balanced,
    /// This factor for positives, 1 for negatives.
    Positive(f64),
}

impl ClassWeight {
    pub(super) fn check(&self) -> Result<()> {
        match *self {
            ClassWeight::Positive(weight) if !(weight > 0.0 && weight.is_finite()) => {
                let help = "use Balanced to have it computed";
                Err(refuse::setting("positive weight", "a positive number", weight, help))
            }
            _ => Ok(()),
        }
    }

    /// (weight of negatives, weight of positives) for the labels, which are weighted by `weights`.
    pub fn resolve(&self, labels: &[f32], weights: Option<&[f32]>) -> (f64, f64) {
        match *self {
            ClassWeight::None => (1.0, 1.0),
            ClassWeight::Positive(factor) => (1.0, factor),
            ClassWeight::Balanced => {
                let rows_of = |positive: bool| {
                    let rows = (0..labels.len()).filter(move |&row| (labels[row] > 0.5) == positive);
                    order_free_sum(rows.map(|row| weights.map_or(1.0, |w| w[row] as f64)))
                };
                let (negative, positive) = (rows_of(false), rows_of(true));
                let half = (negative + positive) / 2.0;
                let of = |class: f64| if class > 0.0 { half / class } else { 1.0 };
                (of(negative), of(positive))
            }
        }
    }
}

impl Objective {
    /// True when margins are log-odds.
    pub fn is_binary(&self) -> bool {
        !matches!(self, Objective::Squared)
    }

    pub(super) fn check(&self, labels: &[f32]) -> Result<()> {
        match *self {
            Objective::Focal { gamma, .. } if !(gamma >= 0.0 && gamma.is_finite()) => {
                return Err(refuse::setting("gamma", "a finite number of at least 0", gamma, "2 is the usual choice"));
            }
            Objective::Focal { alpha, .. } if !(alpha > 0.0 && alpha < 1.0) => {
                return Err(refuse::setting("alpha", "a number in (0, 1)", alpha, "0.25 is the usual choice"));
            }
            Objective::Binary { weight } => weight.check()?,
            _ => {}
        }
        check_labels(labels, self.is_binary())
    }

    /// The loss whose gradients devices compute, if this is one.
    pub(super) fn boost_loss(&self) -> Option<BoostLoss> {
        match self {
            Objective::Binary { .. } => Some(BoostLoss::Logistic),
            Objective::Squared => Some(BoostLoss::Squared),
            Objective::Focal { .. } => None,
        }
    }

    /// (gradient, hessian) of one row at margin `m`, not weighted.
    #[inline]
    pub fn derivatives(&self, m: f64, y: f64) -> (f64, f64) {
        match *self {
            Objective::Squared => boost_derivatives(BoostLoss::Squared, m, y),
            Objective::Binary { .. } => boost_derivatives(BoostLoss::Logistic, m, y),
            Objective::Focal { gamma, alpha } => {
                let (sign, alpha) = if y > 0.5 { (1.0, alpha) } else { (-1.0, 1.0 - alpha) };
                let q = sigmoid_f64(sign * m);
                // 1 − q and ln q from the margin: both keep their digits when q is close to 1 or 0.
                let (rest, log_q) = (sigmoid_f64(-sign * m), -softplus(-sign * m));
                let weight = alpha * rest.powf(gamma);
                let inner = gamma * q * log_q - rest;
                let curve = weight * q * (rest * (gamma * log_q + gamma + 1.0) - gamma * inner);
                (sign * weight * inner, if curve > 0.0 { curve } else { weight * q * rest })
            }
        }
    }

    /// The loss of one row at margin `m`, not weighted.
    pub fn loss(&self, m: f64, y: f64) -> f64 {
        match *self {
            Objective::Squared => (m - y) * (m - y) / 2.0,
            Objective::Binary { .. } => softplus(if y > 0.5 { -m } else { m }),
            Objective::Focal { gamma, alpha } => {
                let (sign, alpha) = if y > 0.5 { (1.0, alpha) } else { (-1.0, 1.0 - alpha) };
                alpha * sigmoid_f64(-sign * m).powf(gamma) * softplus(-sign * m)
            }
        }
    }

    /// The constant margin to start from: log-odds of the weighted share of positives, or the weighted mean. A share of
    /// 0 or 1, of labels of one class, counts as 1e-15 or 1 − 1e-15.
    pub(super) fn start(&self, labels: &[f32], weight: impl Fn(usize) -> f64) -> f64 {
        let rows = 0..labels.len();
        let sum = order_free_sum(rows.clone().map(|row| weight(row) * labels[row] as f64));
        let mean = sum / order_free_sum(rows.map(&weight));
        if self.is_binary() {
            let p = mean.clamp(1e-15, 1.0 - 1e-15);
            (p / (1.0 - p)).ln()
        } else {
            mean
        }
    }

    /// Margin to output: probability, or the margin itself.
    #[inline]
    pub fn output(&self, margin: f64) -> f64 {
        if self.is_binary() { sigmoid_f64(margin) } else { margin }
    }
}

pub(super) fn check_labels(labels: &[f32], binary: bool) -> Result<()> {
    let bad = labels.iter().position(|&y| if binary { y != 0.0 && y != 1.0 } else { !y.is_finite() });
    match bad {
        Some(row) => Err(refuse::data(
            format!("label of row {row}"),
            if binary { "0 or 1" } else { "a finite number" },
            labels[row],
            "leave rows without a label out of the training rows",
        )),
        None => Ok(()),
    }
}

pub(super) fn check_weights(weights: Option<&[f32]>, rows: usize) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    if weights.len() != rows {
        return Err(refuse::data("sample weights", format!("{rows} values"), weights.len(), "give one per row"));
    }
    if let Some(row) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        let help = "0 leaves a row out";
        return Err(refuse::data(format!("weight of row {row}"), "a finite number of at least 0", weights[row], help));
    }
    if weights.iter().all(|&w| w == 0.0) {
        return Err(refuse::data("sample weights", "at least one positive weight", 0, "check the weights"));
    }
    Ok(())
}
