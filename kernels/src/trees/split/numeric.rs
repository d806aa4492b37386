//! Best split of one leaf by one feature, one threshold after the other: what the kernels must equal.

use super::categories;
use super::rule::{Cut, GradientScale, Missing, Split, SplitFeature, SplitLeaf, SplitRule};
use super::search::Search;
use crate::trees::histogram::GradientSum;

/// The best split of `leaf` by a feature with the sums `stored`.
///
/// With `T(G) = sign(G) max(0, |G| - lambda_1)`, a side of gradient `G`, hessian `H` and `n` rows has the output
/// `w = -T(G) / (H + lambda_2)`, clipped to `max_delta_step`; smoothed with the parent's output `w_0` to
/// `(w n/p + w_0) / (n/p + 1)`; then clipped to the bounds of monotone ancestors. Its score is `T(G)^2 / (H +
/// lambda_2)`, or `-(2 T(G) w + (H + lambda_2) w^2)` where `w` is not the free optimum. The gain is the sum of both
/// scores less that of the leaf and `min_gain`.
///
/// Candidates are compared with strict `>`: the scan that leaves missing rows right before that which leaves them left,
/// and within a scan in the order in which the scanned side grows.
///
/// # Shapes
/// `stored` `[num_bin - mfb_offset]`: entry `i` is bin `i + mfb_offset`. `draw`: random bits that choose the one
/// threshold that may win, as extremely randomised trees draw it (of a feature split one category against the rest the
/// one bin; of one split by sorted categories the one length).
///
/// # Panics
/// If `stored` has another length.
///
/// # Source
/// LightGBM `feature_histogram.hpp` and `cuda_best_split_finder.cu`.
///
/// # Example
/// ```
/// use graphsieve_kernels::{
///     Cut, GradientScale, GradientSum, Missing, SplitFeature, SplitLeaf, SplitRule, best_split,
/// };
/// let sum = |grad, count| GradientSum { grad, hess: count, count };
/// let stored = [sum(-4, 2), sum(-3, 2), sum(7, 2)];
/// let (missing, monotone) = (Missing::None, 0);
/// let feature = SplitFeature { num_bin: 3, mfb_offset: 0, default_bin: 0, missing, categorical: false, monotone };
/// let leaf = SplitLeaf { sum: sum(0, 6), output: 0.0, bounds: (f64::NEG_INFINITY, f64::INFINITY) };
/// let scale = GradientScale { grad_unit: 1.0, hess_unit: 1.0 };
/// let rule = SplitRule { min_data_in_leaf: 1, ..Default::default() };
/// let split = best_split(&stored, &feature, &leaf, &scale, &rule, None).unwrap();
/// assert_eq!(split.cut, Cut::UpTo(1));
/// assert!((split.gain - (49.0 / 4.0 + 49.0 / 2.0)).abs() < 1e-9);
/// ```
pub fn best_split(
    stored: &[GradientSum],
    feature: &SplitFeature,
    leaf: &SplitLeaf,
    scale: &GradientScale,
    rule: &SplitRule,
    draw: Option<u64>,
) -> Option<Split> {
    let expected = feature.num_bin - feature.mfb_offset;
    crate::runtime::check::size("best_split", "stored sums", expected as usize, stored.len());
    if feature.num_bin < 2 {
        return None;
    }
    let search = Search::new(rule, leaf, scale, if feature.categorical { 0 } else { feature.monotone });
    if feature.categorical {
        return categories::best(&search, stored, feature, draw);
    }
    let only = draw.map(|bits| feature.drawn(bits));
    let mut best: Option<(Found, bool)> = None;
    for scan in scans(feature).into_iter().flatten() {
        let found = if scan.reverse {
            scan_down(&search, stored, feature, &scan, only)
        } else {
            scan_up(&search, stored, feature, &scan, only)
        };
        if let Some(found) = found
            && best.is_none_or(|(b, _)| found.gain > b.gain)
        {
            best = Some((found, scan.default_left));
        }
    }
    best.map(|(found, default_left)| {
        let (left, right) = search.sides(rule.lambda_l2, found.left);
        Split { gain: found.gain, cut: Cut::UpTo(found.threshold), default_left, left, right }
    })
}

/// One pass over a numeric histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scan {
    /// Right sums from the last bin down, instead of left sums from the first bin up.
    reverse: bool,
    /// The bin of zero is in neither scanned sum: it goes to the default side.
    skip_default_bin: bool,
    /// The last bin holds the missing rows and goes to the default side.
    na_as_missing: bool,
    /// Whether missing rows go left by what this pass finds.
    default_left: bool,
}

/// The passes over a numeric feature, in order.
fn scans(feature: &SplitFeature) -> [Option<Scan>; 2] {
    let scan = |reverse, skip_default_bin, na_as_missing| {
        Some(Scan { reverse, skip_default_bin, na_as_missing, default_left: reverse })
    };
    match feature.missing {
        Missing::Zero if feature.num_bin > 2 => [scan(false, true, false), scan(true, true, false)],
        Missing::Nan if feature.num_bin > 2 => [scan(false, false, true), scan(true, false, true)],
        // With two bins the missing bin can only be the right side.
        missing => {
            let default_left = missing != Missing::Nan;
            [None, Some(Scan { reverse: true, skip_default_bin: false, na_as_missing: false, default_left })]
        }
    }
}

#[derive(Clone, Copy)]
struct Found {
    gain: f64,
    threshold: u32,
    left: GradientSum,
}

/// Whether a threshold cannot win: it is not the only one, or it adds an empty bin and so repeats the candidate before
/// it. Small leaves consist of empty bins.
#[inline]
fn not_wanted(added: GradientSum, threshold: u32, only: Option<u32>) -> bool {
    only.map_or(added == GradientSum::default(), |only| only != threshold)
}

/// Left sums over bins 0, 1, ...; whatever is skipped or missing stays right.
fn scan_up(
    search: &Search,
    stored: &[GradientSum],
    feature: &SplitFeature,
    scan: &Scan,
    only: Option<u32>,
) -> Option<Found> {
    let l2 = search.rule.lambda_l2;
    let mut left = GradientSum::default();
    let mut best: Option<Found> = None;
    for threshold in 0..feature.num_bin - 1 {
        if scan.skip_default_bin && threshold == feature.default_bin {
            continue;
        }
        let added = match (threshold as usize).checked_sub(feature.mfb_offset as usize) {
            Some(at) => stored[at],
            None => search.leaf.sum - stored.iter().copied().sum(),
        };
        left += added;
        if not_wanted(added, threshold, only) {
            continue;
        }
        let side = search.terms(left);
        if let Some(gain) = search.gain(l2, side, search.rest(side))
            && best.is_none_or(|b| gain > b.gain)
        {
            best = Some(Found { gain, threshold, left });
        }
    }
    best
}

/// Right sums over bins `num_bin - 1` (or `num_bin - 2` when the last is missing), ...; the rest stays left.
fn scan_down(
    search: &Search,
    stored: &[GradientSum],
    feature: &SplitFeature,
    scan: &Scan,
    only: Option<u32>,
) -> Option<Found> {
    let l2 = search.rule.lambda_l2;
    let mut right = GradientSum::default();
    let mut best: Option<Found> = None;
    for bin in (1..feature.num_bin - u32::from(scan.na_as_missing)).rev() {
        if scan.skip_default_bin && bin == feature.default_bin {
            continue;
        }
        let added = stored[(bin - feature.mfb_offset) as usize];
        right += added;
        let threshold = bin - 1;
        if not_wanted(added, threshold, only) {
            continue;
        }
        let side = search.terms(right);
        if let Some(gain) = search.gain(l2, search.rest(side), side)
            && best.is_none_or(|b| gain > b.gain)
        {
            best = Some(Found { gain, threshold, left: search.leaf.sum - right });
        }
    }
    best
}
