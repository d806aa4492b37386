//! Best split of a leaf by a categorical feature.
//!
//! Few categories: each against the rest. More: the categories sorted by G / (H + `cat_smooth`), and prefixes of that
//! order from either end. Bin 0 (missing, rare and unseen categories) always goes right.

use super::fixed_point::Sum;
use super::split::{Cut, EPSILON, FeatureShape, Search, Split, pick};

pub(crate) fn best(search: &Search, stored: &[Sum], shape: &FeatureShape, draw: Option<u64>) -> Option<Split> {
    match shape.num_bin <= search.rule.max_cat_to_onehot {
        true => one_against_rest(search, stored, shape, draw),
        false => sorted_subset(search, stored, shape, draw),
    }
}

fn one_against_rest(search: &Search, stored: &[Sum], shape: &FeatureShape, draw: Option<u64>) -> Option<Split> {
    let l2 = search.rule.lambda_l2;
    let only = draw.map(|bits| 1 + pick(bits, shape.num_bin - 1));
    let mut best: Option<(f64, u32, Sum)> = None;
    for bin in (1..shape.num_bin).filter(|&bin| only.is_none_or(|only| only == bin)) {
        let left = stored[(bin - shape.mfb_offset) as usize];
        if let Some(gain) = gain(search, l2, left)
            && best.is_none_or(|b| gain > b.0)
        {
            best = Some((gain, bin, left));
        }
    }
    best.map(|(gain, bin, left)| split(search, l2, gain, vec![bin], left))
}

fn sorted_subset(search: &Search, stored: &[Sum], shape: &FeatureShape, draw: Option<u64>) -> Option<Split> {
    let rule = search.rule;
    let l2 = rule.lambda_l2 + rule.cat_l2;
    let sum_of = |bin: u32| stored[(bin - shape.mfb_offset) as usize];
    let rows_of = |sum: Sum| search.rows(sum.count, search.scale.hess(sum.hess));
    let key = |bin: u32| {
        let sum = sum_of(bin);
        search.scale.grad(sum.grad) / (search.scale.hess(sum.hess) + rule.cat_smooth)
    };
    let mut order: Vec<u32> = (1..shape.num_bin).filter(|&bin| rows_of(sum_of(bin)) >= rule.cat_smooth).collect();
    order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
    let longest = (rule.max_cat_threshold as usize).min(order.len().div_ceil(2));
    let only = draw.map(|bits| pick(bits, longest.saturating_sub(1) as u32) as usize);
    let mut best: Option<(f64, bool, usize, Sum)> = None;
    for from_end in [false, true] {
        let (mut left, mut group) = (Sum::default(), 0.0);
        for at in 0..longest {
            let next = sum_of(if from_end { order[order.len() - 1 - at] } else { order[at] });
            left += next;
            group += rows_of(next);
            let hess = search.scale.hess(left.hess) + EPSILON;
            let rows = search.rows(left.count, hess);
            if rows < rule.min_data_in_leaf as f64 || hess < rule.min_sum_hessian {
                continue;
            }
            let rest = search.leaf.sum.count as f64 - rows;
            if rest < (rule.min_data_in_leaf.max(rule.min_data_per_group)) as f64 {
                break;
            }
            if group < rule.min_data_per_group as f64 {
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
    best.map(|(gain, from_end, at, left)| {
        let bins = match from_end {
            false => order[..=at].to_vec(),
            true => order[order.len() - 1 - at..].iter().rev().copied().collect(),
        };
        split(search, l2, gain, bins, left)
    })
}

fn gain(search: &Search, l2: f64, left: Sum) -> Option<f64> {
    let (grad, hess) = (search.scale.grad(left.grad), search.scale.hess(left.hess) + EPSILON);
    let rows = search.rows(left.count, hess);
    let rest = (search.grad - grad, search.hess - hess, search.leaf.sum.count as f64 - rows);
    search.gain(l2, (grad, hess, rows), rest)
}

fn split(search: &Search, l2: f64, gain: f64, bins: Vec<u32>, left: Sum) -> Split {
    let (left, right) = search.sides(l2, left);
    Split { gain, cut: Cut::Bins(bins), default_left: false, left, right }
}
