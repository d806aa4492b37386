//! The search for splits against itself on the host, bit for bit, and against all thresholds tried one by one.

use graphsieve_kernels::testing::Rng;
use graphsieve_kernels::testing::harness::{Requirement, Trial, trial};
use graphsieve_kernels::{
    BinColumn, BinValues, Counts, Cut, FeatureMask, GradientScale, GradientSum, Histogram, Missing, NoDoublePrecision,
    Split, SplitBackend, SplitFeature, SplitFeatures, SplitLeaf, SplitRule, SplitTask, TreeBins, best_split,
    best_splits, finds_splits, on_every_backend,
};

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "splits";
        every_feature_splits_as_on_the_host_under_every_rule(double_precision),
        only_the_drawn_threshold_wins(double_precision),
        leaves_choose_among_all_features_as_on_the_host(double_precision),
        equal_gains_go_to_the_first_feature(double_precision),
        a_leaf_that_nothing_improves_is_not_split(double_precision),
    )
    .into_iter()
    .chain([trial(
        None,
        "splits::the_best_split_is_the_best_of_all_thresholds",
        &[],
        the_best_split_is_the_best_of_all_thresholds,
    )])
    .collect()
}

/// A device on which splits are found.
pub fn double_precision<B: SplitBackend>() -> Requirement {
    Requirement {
        name: "double precision",
        demand: "GRAPHSIEVE_REQUIRE_F64",
        probe: || if finds_splits::<B>(&Default::default()) { Ok(()) } else { Err(NoDoublePrecision.to_string()) },
    }
}

const FREE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

fn feature(num_bin: u32, mfb_offset: u32, missing: Missing, monotone: i8) -> SplitFeature {
    SplitFeature { num_bin, mfb_offset, default_bin: num_bin / 3, missing, categorical: false, monotone }
}

/// All kinds of features: few bins and more than a cube has threads, everything missing, directions, categories.
fn features() -> Vec<SplitFeature> {
    let mut features = Vec::new();
    for (k, num_bin) in [2, 3, 4, 17, 64, 255, 256, 257, 300, 700].into_iter().enumerate() {
        for missing in [Missing::None, Missing::Zero, Missing::Nan] {
            for mfb_offset in [0, 1] {
                features.push(feature(num_bin, mfb_offset, missing, [0, 1, -1][(k + features.len()) % 3]));
            }
        }
    }
    for (num_bin, mfb_offset) in [(2, 0), (3, 1), (4, 0), (5, 1), (12, 0), (80, 1)] {
        features.push(SplitFeature { categorical: true, ..feature(num_bin, mfb_offset, Missing::None, 1) });
    }
    features.push(feature(1, 0, Missing::None, 0));
    features
}

/// What is searched: the histograms of all features for one leaf.
struct Case {
    sums: Vec<Vec<GradientSum>>,
    leaf: SplitLeaf,
    scale: GradientScale,
}

impl Case {
    fn random(rng: &mut Rng, features: &[SplitFeature], rows: usize) -> Self {
        let pairs: Vec<GradientSum> = (0..rows)
            .map(|_| GradientSum {
                grad: rng.below(1 << 31) as i64 - (1 << 30),
                hess: rng.below(1 << 30) as i64,
                count: 1,
            })
            .collect();
        let mut sums = Vec::new();
        for feature in features {
            let mut of_feature = vec![GradientSum::default(); feature.num_bin as usize];
            // Some bins are empty and some common.
            let used = 1 + rng.below(feature.num_bin as usize);
            for &pair in &pairs {
                let bin = if rng.below(3) == 0 { 0 } else { rng.below(used) * feature.num_bin as usize / used };
                of_feature[bin] += pair;
            }
            sums.push(of_feature);
        }
        let exponent = |rng: &mut Rng| 2f64.powi(-(rng.below(12) as i32) - 25);
        let scale = GradientScale { grad_unit: exponent(rng), hess_unit: exponent(rng) };
        let output = rng.below(2001) as f64 / 1000.0 - 1.0;
        Self { sums, leaf: SplitLeaf { sum: pairs.into_iter().sum(), output, bounds: FREE }, scale }
    }

    /// Sums as a histogram holds them: a bin 0 that is not stored may be anything.
    fn upload<B: SplitBackend>(&self, features: &[SplitFeature], bins: &TreeBins<B>) -> Histogram<B> {
        let mut sums = Vec::new();
        for (of_feature, feature) in self.sums.iter().zip(features) {
            let first = sums.len();
            sums.extend(of_feature);
            if feature.mfb_offset == 1 {
                sums[first] = GradientSum { grad: 77, hess: -77, count: 7777 };
            }
        }
        Histogram::from_host(&sums, bins)
    }

    fn on_host(&self, at: usize, feature: &SplitFeature, rule: &SplitRule, mask: FeatureMask) -> Option<Split> {
        let draw = match mask {
            FeatureMask::Any => None,
            FeatureMask::Drawn(bits) => Some(bits),
            FeatureMask::Skip => return None,
        };
        best_split(&self.sums[at][feature.mfb_offset as usize..], feature, &self.leaf, &self.scale, rule, draw)
    }
}

/// Bins without rows, as wide as the features ask for.
fn bins<B: SplitBackend>(features: &[SplitFeature], device: &B::Device) -> TreeBins<B> {
    let column = |feature: &SplitFeature| BinColumn {
        bins: if feature.num_bin <= 256 { BinValues::U8(&[]) } else { BinValues::U16(&[]) },
        num_bin: feature.num_bin,
        left_out: (feature.mfb_offset == 1).then_some(0),
    };
    TreeBins::dense(&features.iter().map(column).collect::<Vec<_>>(), 0, device)
}

/// Every part of a rule alone and with others.
fn rules() -> Vec<SplitRule> {
    let plain = SplitRule { min_data_in_leaf: 3, lambda_l2: 0.7, ..Default::default() };
    vec![
        SplitRule::default(),
        SplitRule { min_data_in_leaf: 0, min_sum_hessian: 0.0, ..Default::default() },
        SplitRule { lambda_l1: 0.3, min_gain: 0.05, ..plain.clone() },
        SplitRule { max_delta_step: 0.4, ..plain.clone() },
        SplitRule { path_smooth: 7.0, ..plain.clone() },
        SplitRule { bounded: true, ..plain.clone() },
        SplitRule { counts: Counts::Estimated, ..plain.clone() },
        SplitRule { max_delta_step: 0.2, path_smooth: 3.0, lambda_l1: 0.1, counts: Counts::Estimated, ..plain.clone() },
        SplitRule { bounded: true, path_smooth: 1.5, max_delta_step: 0.6, lambda_l1: 0.2, min_gain: 0.01, ..plain },
    ]
}

/// Gains and sums to the last bit.
fn assert_same(name: &str, got: &Option<Split>, want: &Option<Split>) {
    assert_eq!(got, want, "{name}");
    let bits = |split: &Option<Split>| split.as_ref().map(|s| s.gain.to_bits());
    assert_eq!(bits(got), bits(want), "{name}: gain");
}

/// Features of a table in [`check_each`]: a launch has cubes for all of them, and one feature that is looked at.
const TOGETHER: usize = 8;

/// Searches every feature by itself, one leaf each; the others of its table are skipped.
fn check_each<B: SplitBackend>(
    case: &Case,
    features: &[SplitFeature],
    rule: &SplitRule,
    masks: &[FeatureMask],
    device: &B::Device,
) {
    let mut sums = case.sums.chunks(TOGETHER);
    for (some, masks) in features.chunks(TOGETHER).zip(masks.chunks(TOGETHER)) {
        let case = Case { sums: sums.next().expect("sums of every feature").to_vec(), ..*case };
        let bins = bins::<B>(some, device);
        let table = SplitFeatures::new(some, &bins, rule);
        let histogram = case.upload(some, &bins);
        let only = |k: usize| (0..some.len()).map(move |f| if f == k { masks[k] } else { FeatureMask::Skip });
        let alone: Vec<Vec<FeatureMask>> = (0..some.len()).map(|k| only(k).collect()).collect();
        let task = |masks| SplitTask { histogram: &histogram, leaf: case.leaf, masks: Some(masks) };
        let tasks: Vec<SplitTask<B>> = alone.iter().map(|masks| task(&masks[..])).collect();
        for (k, found) in best_splits(&bins, &table, &tasks, &case.scale).into_iter().enumerate() {
            let want = case.on_host(k, &some[k], rule, masks[k]);
            let name = format!("{:?} under {rule:?} with {:?}", some[k], masks[k]);
            assert!(found.as_ref().is_none_or(|(feature, _)| *feature as usize == k), "{name}");
            assert_same(&name, &found.map(|(_, split)| split), &want);
        }
    }
}

fn every_feature_splits_as_on_the_host_under_every_rule<B: SplitBackend>(device: &B::Device) {
    let mut rng = Rng::new(11);
    let features = features();
    for rule in rules() {
        for rows in [5, 60, 900, 4000] {
            let mut case = Case::random(&mut rng, &features, rows);
            if rule.bounded {
                case.leaf.bounds = (-0.3, 0.25);
            }
            check_each::<B>(&case, &features, &rule, &vec![FeatureMask::Any; features.len()], device);
        }
    }
}

fn only_the_drawn_threshold_wins<B: SplitBackend>(device: &B::Device) {
    let mut rng = Rng::new(12);
    let features = features();
    for rule in [&rules()[1], &rules()[7]] {
        for rows in [40, 2000] {
            let case = Case::random(&mut rng, &features, rows);
            let masks: Vec<FeatureMask> = features.iter().map(|_| FeatureMask::Drawn(rng.next_u64())).collect();
            check_each::<B>(&case, &features, rule, &masks, device);
        }
    }
}

fn leaves_choose_among_all_features_as_on_the_host<B: SplitBackend>(device: &B::Device) {
    let mut rng = Rng::new(13);
    // More candidates than a cube has threads.
    let features: Vec<SplitFeature> = features().into_iter().cycle().take(150).collect();
    let bins = bins::<B>(&features, device);
    let rule = &rules()[2];
    let table = SplitFeatures::new(&features, &bins, rule);
    let mut cases: Vec<Case> = [3, 100, 1500].map(|rows| Case::random(&mut rng, &features, rows)).into();
    let scale = cases[0].scale;
    cases.iter_mut().for_each(|case| case.scale = scale);
    let histograms: Vec<Histogram<B>> = cases.iter().map(|case| case.upload(&features, &bins)).collect();
    let masks: Vec<FeatureMask> =
        (0..features.len()).map(|k| if k % 3 == 0 { FeatureMask::Skip } else { FeatureMask::Any }).collect();
    for masks in [None, Some(&masks[..])] {
        let tasks: Vec<SplitTask<B>> = cases
            .iter()
            .zip(&histograms)
            .map(|(case, histogram)| SplitTask { histogram, leaf: case.leaf, masks })
            .collect();
        let got = best_splits(&bins, &table, &tasks, &scale);
        for (case, found) in cases.iter().zip(got) {
            let mut want: Option<(u32, Split)> = None;
            for (k, feature) in features.iter().enumerate() {
                let mask = masks.map_or(FeatureMask::Any, |masks| masks[k]);
                if let Some(split) = case.on_host(k, feature, rule, mask)
                    && want.as_ref().is_none_or(|(_, best)| split.gain > best.gain)
                {
                    want = Some((k as u32, split));
                }
            }
            assert_eq!(found, want, "leaf of {} rows", case.leaf.sum.count);
        }
    }
}

fn equal_gains_go_to_the_first_feature<B: SplitBackend>(device: &B::Device) {
    let mut rng = Rng::new(14);
    // Without zeros and NaNs both scans find the same gain; so do all copies of a feature.
    let features = vec![feature(9, 0, Missing::Nan, 0); 20];
    let mut case = Case::random(&mut rng, &features, 500);
    let mut first = case.sums[0].clone();
    first[8] = GradientSum::default();
    case.leaf.sum = first.iter().copied().sum();
    case.sums = vec![first; 20];
    let bins = bins::<B>(&features, device);
    let rule = SplitRule { min_data_in_leaf: 1, ..Default::default() };
    let table = SplitFeatures::new(&features, &bins, &rule);
    let histogram = case.upload(&features, &bins);
    let got =
        best_splits(&bins, &table, &[SplitTask { histogram: &histogram, leaf: case.leaf, masks: None }], &case.scale);
    let (number, split) = got[0].clone().expect("random gradients can be split");
    assert_eq!(
        (number, split.default_left),
        (0, false),
        "the first feature, and the scan that leaves missing rows right"
    );
    assert_same("equal gains", &Some(split), &case.on_host(0, &features[0], &rule, FeatureMask::Any));
}

fn a_leaf_that_nothing_improves_is_not_split<B: SplitBackend>(device: &B::Device) {
    let mut rng = Rng::new(15);
    let features = features();
    let case = Case::random(&mut rng, &features, 30);
    let bins = bins::<B>(&features, device);
    let histogram = case.upload(&features, &bins);
    for rule in
        [SplitRule { min_data_in_leaf: 31, ..Default::default() }, SplitRule { min_gain: 1e9, ..Default::default() }]
    {
        let table = SplitFeatures::new(&features, &bins, &rule);
        let task = SplitTask { histogram: &histogram, leaf: case.leaf, masks: None };
        assert_eq!(best_splits(&bins, &table, &[task], &case.scale), [None]);
    }
}

/// Tries every threshold with missing rows on either side, row sums taken by membership.
fn tried_one_by_one(sums: &[GradientSum], feature: &SplitFeature, case: &Case, rule: &SplitRule) -> Option<f64> {
    let missing = match feature.missing {
        Missing::None => None,
        Missing::Zero => Some(feature.default_bin),
        Missing::Nan => Some(feature.num_bin - 1),
    };
    let score = |sum: GradientSum| {
        let (grad, hess) = (sum.grad as f64 * case.scale.grad_unit, sum.hess as f64 * case.scale.hess_unit);
        (grad.abs() - rule.lambda_l1).max(0.0).powi(2) / (hess + rule.lambda_l2)
    };
    let mut best: Option<f64> = None;
    for threshold in 0..feature.num_bin - 1 {
        for missing_left in [false, true] {
            let goes_left = |bin: u32| if Some(bin) == missing { missing_left } else { bin <= threshold };
            let side = |left: bool| -> GradientSum {
                (0..feature.num_bin).filter(|&bin| goes_left(bin) == left).map(|bin| sums[bin as usize]).sum()
            };
            let (left, right) = (side(true), side(false));
            let valid = |sum: GradientSum| {
                sum.count >= i64::from(rule.min_data_in_leaf)
                    && sum.hess as f64 * case.scale.hess_unit >= rule.min_sum_hessian
            };
            let gain = score(left) + score(right) - score(case.leaf.sum) - rule.min_gain;
            if valid(left) && valid(right) && gain > 0.0 && best.is_none_or(|b| gain > b) {
                best = Some(gain);
            }
        }
    }
    best
}

fn the_best_split_is_the_best_of_all_thresholds() {
    let mut rng = Rng::new(16);
    let features: Vec<SplitFeature> =
        features().into_iter().filter(|f| !f.categorical && f.num_bin > 2 && f.num_bin < 100).collect();
    let rule = SplitRule { lambda_l1: 0.2, lambda_l2: 0.5, min_data_in_leaf: 4, min_gain: 0.01, ..Default::default() };
    let mut splits = 0;
    for rows in [10, 50, 300, 2000].repeat(8) {
        let case = Case::random(&mut rng, &features, rows);
        for (k, feature) in features.iter().enumerate() {
            let want = tried_one_by_one(&case.sums[k], feature, &case, &rule);
            let got = case.on_host(k, feature, &rule, FeatureMask::Any);
            assert_eq!(got.is_some(), want.is_some(), "{feature:?} with {rows} rows");
            if let (Some(got), Some(want)) = (got, want) {
                splits += 1;
                let scale = case.leaf.sum.count as f64;
                assert!((got.gain - want).abs() <= 1e-12 * scale.max(want), "{} for {want} of {feature:?}", got.gain);
                let Cut::UpTo(threshold) = got.cut else { panic!("an ordered feature is cut at a threshold") };
                let missing = match feature.missing {
                    Missing::None => None,
                    Missing::Zero => Some(feature.default_bin),
                    Missing::Nan => Some(feature.num_bin - 1),
                };
                let goes_left = |bin: u32| if Some(bin) == missing { got.default_left } else { bin <= threshold };
                let left: GradientSum =
                    (0..feature.num_bin).filter(|&bin| goes_left(bin)).map(|bin| case.sums[k][bin as usize]).sum();
                assert_eq!(got.left.sum, left, "{feature:?}");
                assert_eq!(got.left.sum + got.right.sum, case.leaf.sum);
            }
        }
    }
    assert!(splits > 50, "only {splits} splits were found");
}
