//! The split operator against a brute-force f64 oracle that adds up each candidate's rows from scratch.

use graphsieve::trees::Missing;
use graphsieve::trees::split::{
    Counts, Cut, GradientScale, GradientSum, SplitFeature, SplitLeaf, SplitRule, best_split, check_rule,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Guards divisions by a hessian of zero (LightGBM's `kEpsilon`).
const EPSILON: f64 = 1e-15_f32 as f64;

struct Case {
    full: Vec<GradientSum>,
    shape: SplitFeature,
    leaf: SplitLeaf,
    scale: GradientScale,
    rule: SplitRule,
    draw: Option<u64>,
}

fn random_case(rng: &mut ChaCha8Rng) -> Case {
    let num_bin = [2u32, 3, 4, 5, 9, 17, 64, 255][rng.random_range(0..8)];
    let missing = [Missing::None, Missing::Zero, Missing::Nan][rng.random_range(0..3)];
    let categorical = rng.random_bool(0.25);
    let mfb_offset = rng.random_range(0..2);
    let default_bin = match (missing, mfb_offset) {
        (Missing::Zero, 1) => 0,
        _ => rng.random_range(0..num_bin),
    };
    let monotone = if categorical { 0 } else { rng.random_range(-1..=1i8) };
    let flag = |rng: &mut ChaCha8Rng, values: &[f64]| values[rng.random_range(0..values.len())];
    let ties = rng.random_bool(0.2);
    let full: Vec<GradientSum> = (0..num_bin)
        .map(|_| {
            let count = if rng.random_bool(0.15) { 0 } else { rng.random_range(1..60i64) };
            let mut grad = |span: i64| (0..count).map(|_| rng.random_range(-span..=span)).sum::<i64>();
            let (grad, hess) = if ties { (grad(1) << 29, count << 28) } else { (grad(1 << 30), 0) };
            let hess = if ties { hess } else { (0..count).map(|_| rng.random_range(0..1i64 << 30)).sum() };
            GradientSum { grad, hess, count }
        })
        .collect();
    let path_smooth = flag(rng, &[0.0, 0.0, 1.5, 40.0]);
    let rule = SplitRule {
        lambda_l1: flag(rng, &[0.0, 0.0, 0.3, 5.0]),
        lambda_l2: flag(rng, &[0.0, 1.0, 10.0]),
        max_delta_step: flag(rng, &[0.0, 0.0, 0.1, 1.0]),
        path_smooth,
        min_data_in_leaf: [2, 5, 20][rng.random_range(0..3)],
        min_sum_hessian: flag(rng, &[1e-3, 1.0, 10.0]),
        min_gain: flag(rng, &[0.0, 0.0, 0.5]),
        max_cat_to_onehot: 4,
        max_cat_threshold: [2, 32][rng.random_range(0..2)],
        cat_l2: flag(rng, &[0.0, 10.0]),
        cat_smooth: flag(rng, &[1.0, 10.0]),
        min_data_per_group: [1, 30][rng.random_range(0..2)],
        counts: if rng.random_bool(0.5) { Counts::Exact } else { Counts::Estimated },
        bounded: monotone != 0 || rng.random_bool(0.2),
    };
    let sum: GradientSum = full.iter().copied().sum();
    let output = rng.random::<f64>() - 0.5;
    let bounds = if rule.bounded && rng.random_bool(0.5) { (-0.2, 0.3) } else { (f64::NEG_INFINITY, f64::INFINITY) };
    let shape = SplitFeature { num_bin, mfb_offset, default_bin, missing, categorical, monotone };
    let draw = rng.random_bool(0.25).then(|| rng.random());
    Case { full, shape, leaf: SplitLeaf { sum, output, bounds }, scale: GradientScale::finest(1.0, 1.0), rule, draw }
}

/// Which bins a candidate sends left, which side is scanned, and its default side.
struct Candidate {
    left: Vec<u32>,
    threshold: u32,
    left_is_scanned: bool,
    default_left: bool,
}

impl Case {
    fn candidates(&self) -> Vec<Candidate> {
        let s = &self.shape;
        let only = self.draw.map(|bits| ((bits as u128 * (s.num_bin - 2) as u128) >> 64) as u32);
        let mut list = Vec::new();
        let mut add = |threshold: u32, missing: Option<u32>, default_left: bool, left_is_scanned: bool| {
            let goes_left = |bin: &u32| if Some(*bin) == missing { default_left } else { *bin <= threshold };
            if only.is_none_or(|only| only == threshold) {
                let left = (0..s.num_bin).filter(goes_left).collect();
                list.push(Candidate { left, threshold, left_is_scanned, default_left });
            }
        };
        let last = s.num_bin - 1;
        match s.missing {
            Missing::Nan if s.num_bin > 2 => {
                (0..last).for_each(|t| add(t, Some(last), false, true));
                (0..last - 1).rev().for_each(|t| add(t, Some(last), true, false));
            }
            Missing::Zero if s.num_bin > 2 => {
                (0..last).filter(|&t| t != s.default_bin).for_each(|t| add(t, Some(s.default_bin), false, true));
                let down = (0..last).rev().filter(|&t| t + 1 != s.default_bin);
                down.for_each(|t| add(t, Some(s.default_bin), true, false));
            }
            missing => (0..last).rev().for_each(|t| add(t, None, missing != Missing::Nan, false)),
        }
        list
    }

    fn sums(&self, bins: &[u32]) -> (f64, f64, f64) {
        bins.iter().fold((0.0, 0.0, 0.0), |acc, &bin| {
            let sum = self.full[bin as usize];
            (acc.0 + self.scale.grad(sum.grad), acc.1 + self.scale.hess(sum.hess), acc.2 + sum.count as f64)
        })
    }

    fn threshold_l1(&self, g: f64) -> f64 {
        if g > 0.0 { (g - self.rule.lambda_l1).max(0.0) } else { -((-g - self.rule.lambda_l1).max(0.0)) }
    }

    fn value(&self, g: f64, h: f64, n: f64, l2: f64, smooth: bool) -> f64 {
        let r = &self.rule;
        let mut w = -self.threshold_l1(g) / (h + l2);
        if r.max_delta_step > 0.0 && w.abs() > r.max_delta_step {
            w = w.signum() * r.max_delta_step;
        }
        if smooth && r.path_smooth > 0.0 {
            let k = n / r.path_smooth;
            w = w * k / (k + 1.0) + self.leaf.output / (k + 1.0);
        }
        w
    }

    fn given(&self, g: f64, h: f64, w: f64, l2: f64) -> f64 {
        -(2.0 * self.threshold_l1(g) * w + (h + l2) * w * w)
    }

    /// The gain of the split with these left bins, or `None` when it is not valid.
    fn gain(&self, left: &[u32], left_is_scanned: bool, l2: f64) -> Option<f64> {
        let r = &self.rule;
        let all: Vec<u32> = (0..self.shape.num_bin).collect();
        let (tg, th, tn) = self.sums(&all);
        let th = th + 2.0 * EPSILON;
        let right: Vec<u32> = all.into_iter().filter(|bin| !left.contains(bin)).collect();
        let scanned = self.sums(if left_is_scanned { left } else { &right });
        let (g, h) = (scanned.0, scanned.1 + EPSILON);
        let n = if r.counts == Counts::Exact { scanned.2 } else { (h * (tn / th)).round_ties_even() };
        let (scanned, other) = ((g, h, n), (tg - g, th - h, tn - n));
        let (l, r_) = if left_is_scanned { (scanned, other) } else { (other, scanned) };
        for side in [l, r_] {
            if side.2 < r.min_data_in_leaf as f64 || side.1 < r.min_sum_hessian {
                return None;
            }
        }
        let plain = r.max_delta_step == 0.0 && r.path_smooth == 0.0 && !r.bounded;
        let score = |side: (f64, f64, f64)| {
            if plain {
                return self.threshold_l1(side.0).powi(2) / (side.1 + l2);
            }
            let w = self.value(side.0, side.1, side.2, l2, true).max(self.leaf.bounds.0).min(self.leaf.bounds.1);
            self.given(side.0, side.1, w, l2)
        };
        if r.bounded && self.shape.monotone != 0 {
            let w = |side: (f64, f64, f64)| {
                self.value(side.0, side.1, side.2, l2, true).max(self.leaf.bounds.0).min(self.leaf.bounds.1)
            };
            if (self.shape.monotone > 0 && w(l) > w(r_)) || (self.shape.monotone < 0 && w(l) < w(r_)) {
                return None;
            }
        }
        let parent = if r.path_smooth > 0.0 {
            self.given(tg, th, self.leaf.output, r.lambda_l2)
        } else if r.max_delta_step > 0.0 {
            self.given(tg, th, self.value(tg, th, tn, r.lambda_l2, false), r.lambda_l2)
        } else {
            self.threshold_l1(tg).powi(2) / (th + r.lambda_l2)
        };
        let (shift, score) = (parent + r.min_gain, score(l) + score(r_));
        (score > shift).then_some(score - shift)
    }

    fn stored(&self) -> &[GradientSum] {
        &self.full[self.shape.mfb_offset as usize..]
    }
}

fn numeric_oracle(case: &Case) -> Option<(f64, u32, bool)> {
    let mut best: Option<(f64, u32, bool)> = None;
    for c in case.candidates() {
        if let Some(gain) = case.gain(&c.left, c.left_is_scanned, case.rule.lambda_l2)
            && best.is_none_or(|b| gain > b.0)
        {
            best = Some((gain, c.threshold, c.default_left));
        }
    }
    best
}

fn categorical_oracle(case: &Case) -> Option<(f64, Vec<u32>)> {
    let (r, s) = (&case.rule, &case.shape);
    let mut best: Option<(f64, Vec<u32>)> = None;
    let mut offer = |left: Vec<u32>, l2: f64| {
        if let Some(gain) = case.gain(&left, true, l2)
            && best.as_ref().is_none_or(|b| gain > b.0)
        {
            best = Some((gain, left));
        }
    };
    if s.num_bin <= r.max_cat_to_onehot {
        let only = case.draw.map(|bits| 1 + ((bits as u128 * (s.num_bin - 1) as u128) >> 64) as u32);
        (1..s.num_bin).filter(|b| only.is_none_or(|o| o == *b)).for_each(|bin| offer(vec![bin], r.lambda_l2));
        return best;
    }
    let total = case.sums(&(0..s.num_bin).collect::<Vec<_>>());
    let rows = |bins: &[u32], eps: f64| match r.counts {
        Counts::Exact => case.sums(bins).2,
        Counts::Estimated => ((case.sums(bins).1 + eps) * (total.2 / (total.1 + 2.0 * EPSILON))).round_ties_even(),
    };
    let mut order: Vec<u32> = (1..s.num_bin).filter(|&bin| rows(&[bin], 0.0) >= r.cat_smooth).collect();
    let key = |bin: u32| case.sums(&[bin]).0 / (case.sums(&[bin]).1 + r.cat_smooth);
    order.sort_by(|&a, &b| key(a).partial_cmp(&key(b)).unwrap());
    let longest = (r.max_cat_threshold as usize).min(order.len().div_ceil(2));
    let only = case.draw.map(|bits| ((bits as u128 * longest.saturating_sub(1) as u128) >> 64) as usize);
    for reversed in [false, true] {
        let mut group = 0.0;
        if reversed {
            order.reverse();
        }
        for end in 1..=longest {
            let left = order[..end].to_vec();
            group += rows(&order[end - 1..end], 0.0);
            let n = rows(&left, EPSILON);
            let hess = case.sums(&left).1 + EPSILON;
            if n < r.min_data_in_leaf as f64 || hess < r.min_sum_hessian {
                continue;
            }
            if total.2 - n < r.min_data_in_leaf as f64 || total.2 - n < r.min_data_per_group as f64 {
                break;
            }
            if group < r.min_data_per_group as f64 {
                continue;
            }
            group = 0.0;
            if only.is_none_or(|only| only == end - 1) {
                offer(left, r.lambda_l2 + r.cat_l2);
            }
        }
    }
    best
}

#[test]
fn every_flag_combination_equals_brute_force_on_20000_histograms() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let (mut found, mut none) = (0, 0);
    for number in 0..20_000 {
        let case = random_case(&mut rng);
        let got = best_split(case.stored(), &case.shape, &case.leaf, &case.scale, &case.rule, case.draw);
        let place = || format!("case {number}: {:?} {:?} {:?}", case.shape, case.rule, got);
        let gain = if case.shape.categorical {
            let expected = categorical_oracle(&case);
            assert_eq!(got.is_some(), expected.is_some(), "{}", place());
            expected.map(|(gain, bins)| {
                assert_eq!(got.as_ref().unwrap().cut, Cut::Bins(bins), "{}", place());
                assert!(!got.as_ref().unwrap().default_left);
                gain
            })
        } else {
            let expected = numeric_oracle(&case);
            assert_eq!(got.is_some(), expected.is_some(), "{}", place());
            expected.map(|(gain, threshold, default_left)| {
                let got = got.as_ref().unwrap();
                assert_eq!((&got.cut, got.default_left), (&Cut::UpTo(threshold), default_left), "{}", place());
                gain
            })
        };
        match (gain, &got) {
            (Some(gain), Some(got)) => {
                // The same formula on exact sums: only a summation that is not exact could move the last digits.
                assert!((got.gain - gain).abs() <= 1e-12 * gain.abs(), "{gain} {}", place());
                assert_eq!(got.left.sum + got.right.sum, case.leaf.sum);
                let bounds = case.leaf.bounds;
                for side in [got.left, got.right] {
                    assert!(side.output >= bounds.0 && side.output <= bounds.1);
                }
                found += 1;
            }
            _ => none += 1,
        }
    }
    assert!(found > 4000 && none > 1000, "the cases do not cover both outcomes: {found} found, {none} none");
}

#[test]
fn the_sums_of_the_sides_are_those_of_the_bins_that_go_there() {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    for _ in 0..3000 {
        let case = random_case(&mut rng);
        let got = best_split(case.stored(), &case.shape, &case.leaf, &case.scale, &case.rule, case.draw);
        let Some(got) = got else { continue };
        let s = &case.shape;
        let missing = match s.missing {
            Missing::Zero if s.num_bin > 2 => Some(s.default_bin),
            Missing::Nan if s.num_bin > 2 => Some(s.num_bin - 1),
            _ => None,
        };
        let goes_left = |bin: &u32| match &got.cut {
            Cut::Bins(bins) => bins.contains(bin),
            Cut::UpTo(_) if Some(*bin) == missing => got.default_left,
            Cut::UpTo(threshold) => bin <= threshold,
        };
        let left: GradientSum = (0..s.num_bin).filter(goes_left).map(|bin| case.full[bin as usize]).sum();
        assert_eq!(got.left.sum, left);
    }
}

#[test]
fn a_leaf_value_follows_the_formula() {
    let scale = GradientScale::finest(1.0, 1.0);
    let unit = 1i64 << 29;
    let full = [
        GradientSum { grad: -30 * unit, hess: 10 * unit, count: 10 },
        GradientSum { grad: 50 * unit, hess: 10 * unit, count: 10 },
    ];
    let one = scale.grad(unit);
    let leaf = SplitLeaf { sum: full[0] + full[1], output: 0.25, bounds: (f64::NEG_INFINITY, f64::INFINITY) };
    let shape = SplitFeature {
        num_bin: 2,
        mfb_offset: 0,
        default_bin: 0,
        missing: Missing::None,
        categorical: false,
        monotone: 0,
    };
    let rule =
        SplitRule { min_data_in_leaf: 2, lambda_l1: 1.0, lambda_l2: 3.0, path_smooth: 5.0, ..Default::default() };
    let split = best_split(&full, &shape, &leaf, &scale, &rule, None).unwrap();
    let free = (30.0 * one - 1.0) / (10.0 * one + 3.0);
    let expected = free * 2.0 / 3.0 + 0.25 / 3.0;
    assert!((split.left.output - expected).abs() < 1e-14);
}

#[test]
fn a_negative_setting_is_refused_by_name() {
    let error = check_rule(&SplitRule { lambda_l2: -1.0, ..Default::default() }).unwrap_err().to_string();
    assert!(error.contains("lambda_l2 = -1") && error.contains("help"), "{error}");
}
