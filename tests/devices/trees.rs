//! Boosters grown by the kernels are those of the CPU's engine: every number of every node.

use graphsieve::trees::{
    Bagging, BinRule, Booster, BoosterParams, ClassWeight, Dataset, Fit, GrowRule, Measure, Metric, Objective,
    SplitRule, Validation,
};
use graphsieve_kernels::testing::harness::{Requirement, Trial};
use graphsieve_kernels::{TreeBackend, on_every_backend};

use crate::made::{Made, rule};

pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "trees";
        a_device_grows_trees_or_says_that_it_lacks_double_precision,
        every_rule_of_growth_gives_the_trees_of_the_cpu(double_precision),
        every_objective_bag_and_weight_gives_the_trees_of_the_cpu(double_precision),
        wide_and_constant_columns_give_the_trees_of_the_cpu(double_precision),
        margins_that_leave_the_numbers_end_in_the_same_error(double_precision),
    )
}

fn assert_same<B: TreeBackend>(name: &str, data: &Dataset, fit: Fit, params: &BoosterParams, device: &B::Device) {
    let want = Booster::fit(data, fit, params).unwrap();
    let got = Booster::fit_on::<B>(data, fit, params, device).unwrap();
    assert!(want.trees.iter().any(|tree| tree.leaves.len() > 3), "{name}: the trees are trivial");
    assert_eq!(got, want, "{name}");
}

/// A device that grows trees.
fn double_precision<B: TreeBackend>() -> Requirement {
    Requirement {
        name: "double precision",
        demand: "GRAPHSIEVE_REQUIRE_F64",
        probe: || match graphsieve_kernels::finds_splits::<B>(&Default::default()) {
            true => Ok(()),
            false => Err("trees need it".into()),
        },
    }
}

fn a_device_grows_trees_or_says_that_it_lacks_double_precision<B: TreeBackend>(device: &B::Device) {
    let made = Made::mixed(500, 1);
    let fitted = Booster::fit_on::<B>(&made.data(), Fit::labels(&made.labels), &BoosterParams::default(), device);
    match graphsieve_kernels::finds_splits::<B>(device) {
        true => assert!(!fitted.unwrap().trees.is_empty()),
        false => assert!(fitted.unwrap_err().to_string().contains("double precision")),
    }
}

fn params(grow: GrowRule) -> BoosterParams {
    BoosterParams { rounds: 6, grow, seed: 4, ..BoosterParams::default() }
}

fn grow(num_leaves: u32, split: SplitRule) -> GrowRule {
    GrowRule { num_leaves: Some(num_leaves), split, ..GrowRule::default() }
}

fn every_rule_of_growth_gives_the_trees_of_the_cpu<B: TreeBackend>(device: &B::Device) {
    let made = Made::mixed(6000, 81);
    let data = made.data();
    let plain = SplitRule::default();
    let rules = [
        ("default", grow(31, plain.clone())),
        ("random thresholds", GrowRule { extra_trees: true, ..grow(12, plain.clone()) }),
        (
            "some of the features",
            GrowRule { feature_fraction: 0.75, feature_fraction_bynode: 0.5, ..grow(12, plain.clone()) },
        ),
        (
            "on to the next features, without a limit of leaves",
            GrowRule {
                num_leaves: None,
                max_depth: Some(5),
                feature_fraction_bynode: 0.3,
                look_on: true,
                ..grow(2, SplitRule { min_data_in_leaf: 200, ..plain.clone() })
            },
        ),
        (
            "monotone and smooth",
            GrowRule {
                monotone: vec![1, -1, 0, 0],
                max_depth: Some(4),
                ..grow(20, SplitRule { path_smooth: 3.0, lambda_l1: 0.2, lambda_l2: 1.5, ..plain.clone() })
            },
        ),
        (
            "groups of features and a smallest sum of hessians",
            GrowRule {
                interactions: vec![vec![0, 1], vec![1, 2, 3]],
                ..grow(20, SplitRule { min_sum_hessian: 30.0, ..plain })
            },
        ),
    ];
    for (name, rule) in rules {
        assert_same::<B>(name, &data, Fit::labels(&made.labels), &params(rule), device);
    }
}

fn every_objective_bag_and_weight_gives_the_trees_of_the_cpu<B: TreeBackend>(device: &B::Device) {
    let made = Made::mixed(3000, 82);
    let data = made.data();
    let some: Vec<f32> = (0..3000).map(|row| (row % 5) as f32 * 0.4).collect();
    let all: Vec<f32> = some.iter().map(|w| w + 0.25).collect();
    let labels = Fit::labels(&made.labels);
    let base = params(grow(12, SplitRule::default()));
    let balanced = Objective::Binary { weight: ClassWeight::Balanced };
    let focal = Objective::Focal { gamma: 2.0, alpha: 0.25 };
    let held_out = Made::mixed(500, 83);
    let validation =
        Validation { x: held_out.x(), labels: &held_out.labels, measure: Measure::Metric(Metric::Auroc), patience: 2 };
    let cases = [
        ("balanced", labels, BoosterParams { objective: balanced, ..base.clone() }),
        ("focal", labels, BoosterParams { objective: focal, ..base.clone() }),
        ("squared", labels, BoosterParams { objective: Objective::Squared, ..base.clone() }),
        ("weights", Fit { weights: Some(&all), ..labels }, BoosterParams { objective: balanced, ..base.clone() }),
        ("weights of which some are 0", Fit { weights: Some(&some), ..labels }, base.clone()),
        ("bags", labels, BoosterParams { bagging: Bagging::share(0.6), ..base.clone() }),
        (
            "held-out rows",
            Fit { validation: Some(validation), ..labels },
            BoosterParams { rounds: 40, learning_rate: 0.5, ..base },
        ),
    ];
    for (name, fit, params) in cases {
        assert_same::<B>(name, &data, fit, &params, device);
    }
}

fn wide_and_constant_columns_give_the_trees_of_the_cpu<B: TreeBackend>(device: &B::Device) {
    let mut made = Made::mixed(4000, 84);
    made.values.chunks_exact_mut(4).for_each(|row| row[2] = 7.0);
    for (name, rule) in [
        ("wide", BinRule { max_bin: 1000, min_data_in_bin: 1, ..rule() }),
        ("two bins", BinRule { max_bin: 2, ..rule() }),
    ] {
        let data = Dataset::new(&made.x(), &rule).unwrap();
        let params = params(grow(15, SplitRule { max_cat_to_onehot: 13, ..SplitRule::default() }));
        assert_same::<B>(name, &data, Fit::labels(&made.labels), &params, device);
    }
}

fn margins_that_leave_the_numbers_end_in_the_same_error<B: TreeBackend>(device: &B::Device) {
    let made = Made::mixed(300, 85);
    let mut labels = made.labels.clone();
    labels.iter_mut().enumerate().for_each(|(row, label)| *label = if row % 2 == 0 { 3e38 } else { -3e38 });
    let weights = vec![f32::MAX; 300];
    let fit = Fit { weights: Some(&weights), ..Fit::labels(&labels) };
    let params = BoosterParams { objective: Objective::Squared, ..BoosterParams::default() };
    let data = made.data();
    let on_cpu = Booster::fit(&data, fit, &params).map_err(|error| error.to_string());
    let on_device = Booster::fit_on::<B>(&data, fit, &params, device).map_err(|error| error.to_string());
    assert_eq!(on_device, on_cpu);
}
