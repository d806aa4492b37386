//! The score of sides and outputs of leaves, in double precision.
//!
//! Kernels repeat this arithmetic operation for operation and give the same bits.

use super::EPSILON;
use super::rule::{Counts, GradientScale, SplitLeaf, SplitRule, SplitSide};
use crate::trees::histogram::GradientSum;

/// Gradient, hessian and rows of a side.
pub(crate) type Terms = (f64, f64, f64);

/// One leaf, one rule: everything that does not change from threshold to threshold.
pub(crate) struct Search<'a> {
    pub rule: &'a SplitRule,
    pub leaf: &'a SplitLeaf,
    pub scale: &'a GradientScale,
    pub grad: f64,
    /// With two epsilons, so that a side without hessian can be divided by.
    pub hess: f64,
    pub rows_per_hess: f64,
    /// Score that a split must exceed.
    pub shift: f64,
    pub monotone: i8,
}

impl<'a> Search<'a> {
    pub fn new(rule: &'a SplitRule, leaf: &'a SplitLeaf, scale: &'a GradientScale, monotone: i8) -> Self {
        let grad = scale.grad(leaf.sum.grad);
        let hess = scale.hess(leaf.sum.hess) + 2.0 * EPSILON;
        let own = if rule.path_smooth > 0.0 {
            score_of(rule, rule.lambda_l2, grad, hess, leaf.output)
        } else if rule.max_delta_step > 0.0 {
            score_of(rule, rule.lambda_l2, grad, hess, free_output(rule, rule.lambda_l2, grad, hess))
        } else {
            shrunk(grad, rule.lambda_l1).powi(2) / (hess + rule.lambda_l2)
        };
        let rows_per_hess = leaf.sum.count as f64 / hess;
        Search { rule, leaf, scale, grad, hess, rows_per_hess, shift: own + rule.min_gain, monotone }
    }

    /// Rows of a side with exact count `count` and hessian `hess`.
    #[inline]
    pub fn rows(&self, count: i64, hess: f64) -> f64 {
        match self.rule.counts {
            Counts::Exact => count as f64,
            Counts::Estimated => (hess * self.rows_per_hess).round_ties_even(),
        }
    }

    /// The terms of a side that a scan has summed up.
    #[inline]
    pub fn terms(&self, sum: GradientSum) -> Terms {
        let hess = self.scale.hess(sum.hess) + EPSILON;
        (self.scale.grad(sum.grad), hess, self.rows(sum.count, hess))
    }

    /// The terms of the other side.
    #[inline]
    pub fn rest(&self, side: Terms) -> Terms {
        (self.grad - side.0, self.hess - side.1, self.leaf.sum.count as f64 - side.2)
    }

    /// Gain over `shift` of the split with these sides; `None` when it is not valid.
    #[inline]
    pub fn gain(&self, l2: f64, left: Terms, right: Terms) -> Option<f64> {
        let rule = self.rule;
        let few = |side: Terms| side.2 < rule.min_data_in_leaf as f64 || side.1 < rule.min_sum_hessian;
        if few(left) || few(right) {
            return None;
        }
        let score = if rule.bounded {
            let (w_left, w_right) = (self.output(l2, left), self.output(l2, right));
            if (w_right - w_left) * f64::from(self.monotone) < 0.0 {
                return None;
            }
            score_of(rule, l2, left.0, left.1, w_left) + score_of(rule, l2, right.0, right.1, w_right)
        } else if rule.max_delta_step > 0.0 || rule.path_smooth > 0.0 {
            let own = |side: Terms| score_of(rule, l2, side.0, side.1, self.output(l2, side));
            own(left) + own(right)
        } else {
            let own = |side: Terms| {
                let t = shrunk(side.0, rule.lambda_l1);
                t * t / (side.1 + l2)
            };
            own(left) + own(right)
        };
        (score > self.shift).then_some(score - self.shift)
    }

    /// Output of a side.
    #[inline]
    pub fn output(&self, l2: f64, side: Terms) -> f64 {
        let w = smoothed(self.rule, free_output(self.rule, l2, side.0, side.1), side.2, self.leaf.output);
        // `f64::clamp` panics where the bounds cross.
        if w < self.leaf.bounds.0 {
            self.leaf.bounds.0
        } else if w > self.leaf.bounds.1 {
            self.leaf.bounds.1
        } else {
            w
        }
    }

    /// The two sides of a split whose left rows sum to `left`.
    pub fn sides(&self, l2: f64, left: GradientSum) -> (SplitSide, SplitSide) {
        let side = |sum: GradientSum| {
            let hess = self.scale.hess(sum.hess);
            let rows = self.rows(sum.count, hess);
            SplitSide { sum, output: self.output(l2, (self.scale.grad(sum.grad), hess, rows)) }
        };
        (side(left), side(self.leaf.sum - left))
    }
}

/// `sign(x) max(0, |x| - l1)`
#[inline]
fn shrunk(x: f64, l1: f64) -> f64 {
    if l1 == 0.0 { x } else { (x.abs() - l1).max(0.0).copysign(x) }
}

/// The output of a leaf without ancestors: neither smoothed nor bounded.
pub fn root_output(rule: &SplitRule, sum: GradientSum, scale: &GradientScale) -> f64 {
    free_output(rule, rule.lambda_l2, scale.grad(sum.grad), scale.hess(sum.hess))
}

fn free_output(rule: &SplitRule, l2: f64, grad: f64, hess: f64) -> f64 {
    let t = shrunk(grad, rule.lambda_l1);
    // Without hessian and lambda_2 there is no optimum; such a side has no weight and stays where it is.
    let w = if hess + l2 > 0.0 { -t / (hess + l2) } else { 0.0 };
    if rule.max_delta_step > 0.0 { w.clamp(-rule.max_delta_step, rule.max_delta_step) } else { w }
}

fn smoothed(rule: &SplitRule, w: f64, rows: f64, parent: f64) -> f64 {
    if rule.path_smooth > 0.0 {
        let ratio = rows / rule.path_smooth;
        w * ratio / (ratio + 1.0) + parent / (ratio + 1.0)
    } else {
        w
    }
}

#[inline]
fn score_of(rule: &SplitRule, l2: f64, grad: f64, hess: f64, w: f64) -> f64 {
    -(2.0 * shrunk(grad, rule.lambda_l1) * w + (hess + l2) * w * w)
}
