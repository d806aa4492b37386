//! The passes of the split operator over the bins of a numeric feature.

use super::binning::Missing;
use super::fixed_point::Sum;
use super::split::{EPSILON, FeatureShape, Search};

/// One pass over a numeric histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Right sums from the last bin down, instead of left sums from the first bin up.
    pub reverse: bool,
    /// The bin of zero is in neither scanned sum: it goes to the default side.
    pub skip_default_bin: bool,
    /// The last bin holds the missing rows and goes to the default side.
    pub na_as_missing: bool,
    /// The default side of what this pass finds.
    pub default_left: bool,
}

/// The passes for a numeric feature, in order.
pub fn tasks(shape: &FeatureShape) -> [Option<Task>; 2] {
    let task = |reverse, skip_default_bin, na_as_missing| {
        Some(Task { reverse, skip_default_bin, na_as_missing, default_left: reverse })
    };
    match shape.missing {
        Missing::Zero if shape.num_bin > 2 => [task(false, true, false), task(true, true, false)],
        Missing::Nan if shape.num_bin > 2 => [task(false, false, true), task(true, false, true)],
        // With two bins the missing bin can only be the right side.
        missing => {
            let default_left = missing != Missing::Nan;
            [Some(Task { reverse: true, skip_default_bin: false, na_as_missing: false, default_left }), None]
        }
    }
}

/// True when a threshold cannot win: it is not the drawn one, or, without a draw, it adds an empty bin and so repeats
/// the candidate before it. Small leaves consist of empty bins.
#[inline]
fn not_wanted(added: Sum, threshold: u32, only: Option<u32>) -> bool {
    only.map_or(added == Sum::default(), |only| only != threshold)
}

/// Gain, threshold and left sum.
pub(super) type Found = Option<(f64, u32, Sum)>;

/// Left sums over bins 0, 1, ...; whatever is skipped or missing stays right.
pub(super) fn scan_up(search: &Search, stored: &[Sum], shape: &FeatureShape, task: &Task, only: Option<u32>) -> Found {
    let l2 = search.rule.lambda_l2;
    let offset = shape.mfb_offset as usize;
    let mut left = Sum::default();
    let mut best: Found = None;
    for threshold in 0..shape.num_bin - 1 {
        if task.skip_default_bin && threshold == shape.default_bin {
            continue;
        }
        let added = match (threshold as usize).checked_sub(offset) {
            Some(at) => stored[at],
            None => search.leaf.sum - stored.iter().copied().sum(),
        };
        left += added;
        if not_wanted(added, threshold, only) {
            continue;
        }
        let grad = search.scale.grad(left.grad);
        let hess = search.scale.hess(left.hess) + EPSILON;
        let (rest_grad, rest_hess) = (search.grad - grad, search.hess - hess);
        let rows = search.rows(left.count, hess);
        let rest_rows = search.leaf.sum.count as f64 - rows;
        if let Some(gain) = search.gain(l2, (grad, hess, rows), (rest_grad, rest_hess, rest_rows))
            && best.is_none_or(|b| gain > b.0)
        {
            best = Some((gain, threshold, left));
        }
    }
    best
}

/// Right sums over bins `num_bin` − 1 (or − 2 when the last is missing), ...; the rest stays left.
pub(super) fn scan_down(
    search: &Search,
    stored: &[Sum],
    shape: &FeatureShape,
    task: &Task,
    only: Option<u32>,
) -> Found {
    let l2 = search.rule.lambda_l2;
    let offset = shape.mfb_offset as usize;
    let mut right = Sum::default();
    let mut best: Found = None;
    for bin in (1..shape.num_bin - task.na_as_missing as u32).rev() {
        if task.skip_default_bin && bin == shape.default_bin {
            continue;
        }
        let added = stored[bin as usize - offset];
        right += added;
        let threshold = bin - 1;
        if not_wanted(added, threshold, only) {
            continue;
        }
        let grad = search.scale.grad(right.grad);
        let hess = search.scale.hess(right.hess) + EPSILON;
        let (rest_grad, rest_hess) = (search.grad - grad, search.hess - hess);
        let rows = search.rows(right.count, hess);
        let rest_rows = search.leaf.sum.count as f64 - rows;
        if let Some(gain) = search.gain(l2, (rest_grad, rest_hess, rest_rows), (grad, hess, rows))
            && best.is_none_or(|b| gain > b.0)
        {
            best = Some((gain, threshold, search.leaf.sum - right));
        }
    }
    best
}
