//! Best split of a leaf by a categorical feature.
//!
//! Few categories: each against the rest. More: the categories sorted by `G / (H + cat_smooth)`, and prefixes of that
//! order from either end. Bin 0 (missing, rare and unseen categories) always goes right.

use super::rule::{Cut, Split, SplitFeature, pick};
use super::search::Search;
use crate::trees::histogram::GradientSum;

pub(crate) fn best(
    search: &Search,
    stored: &[GradientSum],
    feature: &SplitFeature,
    draw: Option<u64>,
) -> Option<Split> {
    if feature.num_bin <= search.rule.max_cat_to_onehot {
        one_against_rest(search, stored, feature, draw)
    } else {
        sorted_subset(search, stored, feature, draw)
    }
}

fn one_against_rest(
    search: &Search,
    stored: &[GradientSum],
    feature: &SplitFeature,
    draw: Option<u64>,
) -> Option<Split> {
    let l2 = search.rule.lambda_l2;
    let only = draw.map(|bits| feature.drawn(bits));
    let mut best: Option<(f64, u32, GradientSum)> = None;
    for bin in (1..feature.num_bin).filter(|&bin| only.is_none_or(|only| only == bin)) {
        let left = stored[(bin - feature.mfb_offset) as usize];
        if let Some(gain) = gain(search, l2, left)
            && best.is_none_or(|b| gain > b.0)
        {
            best = Some((gain, bin, left));
        }
    }
    best.map(|(gain, bin, left)| split(search, l2, gain, vec![bin], left))
}

fn sorted_subset(search: &Search, stored: &[GradientSum], feature: &SplitFeature, draw: Option<u64>) -> Option<Split> {
    let rule = search.rule;
    let l2 = rule.lambda_l2 + rule.cat_l2;
    let sum_of = |bin: u32| stored[(bin - feature.mfb_offset) as usize];
    let rows_of = |sum: GradientSum| search.rows(sum.count, search.scale.hess(sum.hess));
    let order = sorted_categories(search, stored, feature);
    let longest = (rule.max_cat_threshold as usize).min(order.len().div_ceil(2));
    let only = draw.map(|bits| pick(bits, longest.saturating_sub(1) as u32) as usize);
    let mut best: Option<(f64, bool, usize, GradientSum)> = None;
    for from_end in [false, true] {
        let (mut left, mut group) = (GradientSum::default(), 0.0);
        for at in 0..longest {
            let next = sum_of(if from_end { order[order.len() - 1 - at] } else { order[at] });
            left += next;
            group += rows_of(next);
            let (_, hess, rows) = search.terms(left);
            if rows < f64::from(rule.min_data_in_leaf) || hess < rule.min_sum_hessian {
                continue;
            }
            let rest = search.leaf.sum.count as f64 - rows;
            if rest < f64::from(rule.min_data_in_leaf.max(rule.min_data_per_group)) {
                break;
            }
            if group < f64::from(rule.min_data_per_group) {
                continue;
            }
            group = 0.0;
            if only.is_some_and(|only| only != at) {
                continue;
            }
            if let Some(gain) = gain(search, l2, left)
                && best.is_none_or(|b| gain > b.0)
            {
                best = Some((gain, from_end, at, left));
            }
        }
    }
    best.map(|(gain, from_end, at, left)| split(search, l2, gain, list(&order, from_end, at), left))
}

/// The categories with rows enough, by ascending key; equal keys by bin.
fn sorted_categories(search: &Search, stored: &[GradientSum], feature: &SplitFeature) -> Vec<u32> {
    let smooth = search.rule.cat_smooth;
    let sum_of = |bin: u32| stored[(bin - feature.mfb_offset) as usize];
    let has_rows = |sum: GradientSum| search.rows(sum.count, search.scale.hess(sum.hess)) >= smooth;
    let key = |bin: u32| search.scale.grad(sum_of(bin).grad) / (search.scale.hess(sum_of(bin).hess) + smooth);
    let mut order: Vec<u32> = (1..feature.num_bin).filter(|&bin| has_rows(sum_of(bin))).collect();
    order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
    order
}

fn list(order: &[u32], from_end: bool, at: usize) -> Vec<u32> {
    if from_end { order[order.len() - 1 - at..].iter().rev().copied().collect() } else { order[..=at].to_vec() }
}

fn gain(search: &Search, l2: f64, left: GradientSum) -> Option<f64> {
    let side = search.terms(left);
    search.gain(l2, side, search.rest(side))
}

fn split(search: &Search, l2: f64, gain: f64, bins: Vec<u32>, left: GradientSum) -> Split {
    let (left, right) = search.sides(l2, left);
    Split { gain, cut: Cut::Bins(bins), default_left: false, left, right }
}
