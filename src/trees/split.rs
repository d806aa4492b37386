//! Best split of one leaf by one feature: the scalar reference that a kernel must equal.
//!
//! With T(G) = sign(G) · max(0, |G| − λ₁): output w = −T(G) / (H + λ₂), clipped to ±`max_delta_step`; smoothed with
//! n rows and parent output w₀ to w · (n/p) / (n/p + 1) + w₀ / (n/p + 1); then clipped to the monotone bounds. The
//! score of a side is T(G)² / (H + λ₂), or −(2 T(G) w + (H + λ₂) w²) where w is not the free optimum; the gain is the
//! sum over both sides less the parent's score and `min_gain`.
//!
//! # Source
//! LightGBM `feature_histogram.hpp` and `cuda_best_split_finder.cu`.

use super::binning::Missing;
use super::categories;
use super::fixed_point::{Scale, Sum};
use super::scan::{scan_down, scan_up, tasks};
use super::split_rule::{Counts, SplitRule};

/// Guards divisions by a hessian of zero (LightGBM's `kEpsilon`).
pub const EPSILON: f64 = 1e-15_f32 as f64;

/// What the operator has to know about a feature.
#[derive(Clone, Copy, Debug)]
pub struct FeatureShape {
    /// Number of bins, the missing one included.
    pub num_bin: u32,
    /// 1 when bin 0 is the most frequent bin and is not among the stored sums.
    pub mfb_offset: u32,
    /// Bin of the value 0.
    pub default_bin: u32,
    /// What counts as missing.
    pub missing: Missing,
    /// Category bins instead of ordered ones.
    pub categorical: bool,
    /// +1: the output may not fall as the feature grows; −1: it may not rise; 0: free.
    pub monotone: i8,
}

/// What the operator has to know about a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// Sum over its rows.
    pub sum: Sum,
    /// Its output, which path smoothing pulls the children towards.
    pub output: f64,
    /// Smallest and largest output that monotone ancestors allow.
    pub bounds: (f64, f64),
}

/// Which bins go left.
#[derive(Clone, Debug, PartialEq)]
pub enum Cut {
    /// Bins up to this one.
    UpTo(u32),
    /// These bins.
    Bins(Vec<u32>),
}

/// One side of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Sum over its rows.
    pub sum: Sum,
    /// Output of the new leaf.
    pub output: f64,
}

/// The best split of a leaf by one feature.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Score of both sides less the parent's score and `min_gain`; positive.
    pub gain: f64,
    /// Which bins go left.
    pub cut: Cut,
    /// Side of the missing bin.
    pub default_left: bool,
    /// The rows that go left.
    pub left: Side,
    /// The other rows.
    pub right: Side,
}

/// One leaf, one rule: everything that does not change from threshold to threshold.
pub(crate) struct Search<'a> {
    pub rule: &'a SplitRule,
    pub leaf: &'a Leaf,
    pub scale: &'a Scale,
    pub grad: f64,
    /// With two epsilons, so that a side without hessian can be divided by.
    pub hess: f64,
    pub rows_per_hess: f64,
    /// Score that a split must exceed.
    pub shift: f64,
    pub monotone: i8,
}

impl<'a> Search<'a> {
    fn new(rule: &'a SplitRule, leaf: &'a Leaf, scale: &'a Scale, monotone: i8) -> Self {
        let grad = scale.grad(leaf.sum.grad);
        let hess = scale.hess(leaf.sum.hess) + 2.0 * EPSILON;
        let own = match rule.path_smooth > 0.0 {
            true => score_of(rule, rule.lambda_l2, grad, hess, leaf.output),
            false if rule.max_delta_step > 0.0 => {
                score_of(rule, rule.lambda_l2, grad, hess, free_output(rule, rule.lambda_l2, grad, hess))
            }
            false => shrunk(grad, rule.lambda_l1).powi(2) / (hess + rule.lambda_l2),
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

    /// Gain over `shift` of the split with these sides (gradient, hessian, rows); `None` when it is not valid.
    #[inline]
    pub fn gain(&self, l2: f64, left: (f64, f64, f64), right: (f64, f64, f64)) -> Option<f64> {
        let rule = self.rule;
        let few = |side: (f64, f64, f64)| side.2 < rule.min_data_in_leaf as f64 || side.1 < rule.min_sum_hessian;
        if few(left) || few(right) {
            return None;
        }
        let score = if rule.bounded {
            let (w_left, w_right) = (self.output(l2, left), self.output(l2, right));
            let against = (w_right - w_left) * self.monotone as f64;
            if against < 0.0 {
                return None;
            }
            score_of(rule, l2, left.0, left.1, w_left) + score_of(rule, l2, right.0, right.1, w_right)
        } else if rule.max_delta_step > 0.0 || rule.path_smooth > 0.0 {
            let own = |side: (f64, f64, f64)| score_of(rule, l2, side.0, side.1, self.output(l2, side));
            own(left) + own(right)
        } else {
            let own = |side: (f64, f64, f64)| {
                let t = shrunk(side.0, rule.lambda_l1);
                t * t / (side.1 + l2)
            };
            own(left) + own(right)
        };
        (score > self.shift).then_some(score - self.shift)
    }

    /// Output of a side (gradient, hessian, rows).
    #[inline]
    pub fn output(&self, l2: f64, side: (f64, f64, f64)) -> f64 {
        smoothed(self.rule, free_output(self.rule, l2, side.0, side.1), side.2, self.leaf.output)
            .clamp(self.leaf.bounds.0, self.leaf.bounds.1)
    }

    /// The two sides of a split whose left rows sum to `left`.
    pub fn sides(&self, l2: f64, left: Sum) -> (Side, Side) {
        let side = |sum: Sum| {
            let hess = self.scale.hess(sum.hess);
            let rows = self.rows(sum.count, hess);
            Side { sum, output: self.output(l2, (self.scale.grad(sum.grad), hess, rows)) }
        };
        (side(left), side(self.leaf.sum - left))
    }
}

/// sign(x) · max(0, |x| − l1).
#[inline]
fn shrunk(x: f64, l1: f64) -> f64 {
    if l1 == 0.0 { x } else { (x.abs() - l1).max(0.0).copysign(x) }
}

fn free_output(rule: &SplitRule, l2: f64, grad: f64, hess: f64) -> f64 {
    let t = shrunk(grad, rule.lambda_l1);
    // Without hessian and λ₂ there is no optimum; such a side has no weight and stays where it is.
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

/// Output of a leaf without ancestors: neither smoothed nor bounded.
pub fn root_output(rule: &SplitRule, sum: Sum, scale: &Scale) -> f64 {
    free_output(rule, rule.lambda_l2, scale.grad(sum.grad), scale.hess(sum.hess))
}

/// The best split of `leaf` by a feature with the sums `stored`.
///
/// Candidates are compared with strict >: the default-right scan before the default-left one, and within a scan in
/// the order in which the scanned side grows.
///
/// # Shapes
/// `stored`: [`num_bin` − `mfb_offset`]; entry i is bin i + `mfb_offset`. `draw`: with extra trees, the random bits
/// that choose the one threshold that may win.
///
/// # Panics
/// When `stored` has another length.
pub fn best_split(
    stored: &[Sum],
    shape: &FeatureShape,
    leaf: &Leaf,
    scale: &Scale,
    rule: &SplitRule,
    draw: Option<u64>,
) -> Option<Split> {
    let expected = shape.num_bin - shape.mfb_offset;
    assert_eq!(stored.len(), expected as usize, "best_split: stored sums: expected num_bin - mfb_offset = {expected}");
    if shape.num_bin < 2 {
        return None;
    }
    let search = Search::new(rule, leaf, scale, if shape.categorical { 0 } else { shape.monotone });
    if shape.categorical {
        return categories::best(&search, stored, shape, draw);
    }
    let only = draw.map(|bits| pick(bits, shape.num_bin - 2));
    let mut best: Option<(f64, u32, bool, Sum)> = None;
    for task in tasks(shape).into_iter().flatten() {
        let found = match task.reverse {
            false => scan_up(&search, stored, shape, &task, only),
            true => scan_down(&search, stored, shape, &task, only),
        };
        if let Some((gain, threshold, left)) = found
            && best.is_none_or(|b| gain > b.0)
        {
            best = Some((gain, threshold, task.default_left, left));
        }
    }
    best.map(|(gain, threshold, default_left, left)| {
        let (left, right) = search.sides(rule.lambda_l2, left);
        Split { gain, cut: Cut::UpTo(threshold), default_left, left, right }
    })
}

/// `bits` mapped to 0..`bound`; 0 when the range is empty.
pub(crate) fn pick(bits: u64, bound: u32) -> u32 {
    ((bits as u128 * bound as u128) >> 64) as u32
}
