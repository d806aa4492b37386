use graphsieve::trees::grow_rule::GrowRule;
use graphsieve::trees::split_rule::SplitRule;
use graphsieve::trees::{
    Bagging, BinRule, Booster, BoosterParams, ClassWeight, Dataset, EarlyStop, Fit, Matrix, Missing, Objective,
    Validation,
};
use proptest::prelude::*;

use crate::made::{Made, on_threads, rule};

fn params(rounds: usize) -> BoosterParams {
    BoosterParams { rounds, ..BoosterParams::default() }
}

fn log_loss(scores: &[f64], labels: &[f32]) -> f64 {
    let loss = |(p, y): (&f64, &f32)| -(if *y > 0.5 { *p } else { 1.0 - p }).ln();
    scores.iter().zip(labels).map(loss).sum::<f64>() / labels.len() as f64
}

fn objectives() -> [Objective; 4] {
    [
        Objective::Binary { weight: ClassWeight::Balanced },
        Objective::Focal { gamma: 2.0, alpha: 0.25 },
        Objective::Focal { gamma: 0.0, alpha: 0.5 },
        Objective::Squared,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn derivatives_are_central_differences_of_the_loss(m in -5.0f64..5.0, positive: bool) {
        let (y, step) = (positive as u8 as f64, 1e-4);
        for objective in objectives() {
            let (g, h) = objective.derivatives(m, y);
            let slope = (objective.loss(m + step, y) - objective.loss(m - step, y)) / (2.0 * step);
            prop_assert!((g - slope).abs() < 1e-6, "{:?}: {} != {}", objective, g, slope);
            let curve = (objective.derivatives(m + step, y).0 - objective.derivatives(m - step, y).0) / (2.0 * step);
            prop_assert!(h > 0.0 && (curve < 1e-6 || (h - curve).abs() < 1e-6), "{:?}: {} != {}", objective, h, curve);
        }
    }
}

#[test]
fn every_round_lowers_the_training_loss() {
    let made = Made::mixed(3000, 51);
    let (data, x) = (made.data(), made.x());
    let mut before = f64::INFINITY;
    for rounds in [1, 2, 5, 10, 20] {
        let booster = Booster::fit(&data, Fit::labels(&made.labels), &params(rounds)).unwrap();
        let loss = log_loss(&booster.predict(&x).unwrap(), &made.labels);
        assert!(loss < before);
        before = loss;
    }
}

#[test]
fn a_booster_is_the_same_for_any_thread_count_and_another_for_another_seed() {
    let made = Made::mixed(6000, 52);
    let data = made.data();
    for objective in objectives() {
        let mut params = BoosterParams { objective, bagging: Bagging::share(0.6), seed: 1, ..params(6) };
        params.grow.feature_fraction_bynode = 0.6;
        let fit = |params: &BoosterParams| Booster::fit(&data, Fit::labels(&made.labels), params).unwrap();
        let (one, four) = (on_threads(1, || fit(&params)), on_threads(4, || fit(&params)));
        assert_eq!(one, four);
        params.seed = 2;
        assert_ne!(one, fit(&params));
    }
}

#[test]
fn single_rows_predict_as_batches() {
    let made = Made::mixed(1500, 53);
    let booster = Booster::fit(&made.data(), Fit::labels(&made.labels), &params(7)).unwrap();
    let margins = booster.margins(&made.x()).unwrap();
    assert!((0..1500).all(|row| booster.margin(&made.x(), row) == margins[row]));
}

#[test]
fn it_stops_early_and_keeps_the_best_round() {
    let (made, held) = (Made::mixed(1500, 54), Made::mixed(800, 55));
    let stop = EarlyStop { patience: 5, larger_is_better: false };
    let validation = Validation { x: held.x(), labels: &held.labels, metric: &log_loss, stop };
    let fit = Fit { validation: Some(validation), ..Fit::labels(&made.labels) };
    let params = BoosterParams { learning_rate: 0.3, ..params(300) };
    let booster = Booster::fit(&made.data(), fit, &params).unwrap();
    let best = booster.history.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(booster.history.len() < 300 && booster.trees.len() + 5 == booster.history.len());
    assert_eq!(booster.history[booster.trees.len() - 1], best);
    assert!((log_loss(&booster.predict(&held.x()).unwrap(), &held.labels) - best).abs() < 1e-12);
}

#[test]
fn a_positive_weight_is_the_same_as_sample_weights() {
    let made = Made::mixed(2000, 56);
    let data = made.data();
    let weights: Vec<f32> = made.labels.iter().map(|&y| if y > 0.5 { 3.0 } else { 1.0 }).collect();
    let objective = Objective::Binary { weight: ClassWeight::Positive(3.0) };
    let a = Booster::fit(&data, Fit::labels(&made.labels), &BoosterParams { objective, ..params(5) }).unwrap();
    let fit = Fit { weights: Some(&weights), ..Fit::labels(&made.labels) };
    assert_eq!(a.trees, Booster::fit(&data, fit, &params(5)).unwrap().trees);
}

#[test]
fn a_row_of_weight_zero_is_a_row_that_is_not_there() {
    let made = Made::mixed(1500, 57);
    let data = made.data();
    let weights: Vec<f32> = (0..1500).map(|row| (row >= 500) as u8 as f32).collect();
    let fit = Fit { weights: Some(&weights), ..Fit::labels(&made.labels) };
    let a = Booster::fit(&data, fit, &params(4)).unwrap();
    let rest = data.bin_like(&Matrix::f32(&made.values[2000..], 4).unwrap()).unwrap();
    let b = Booster::fit(&rest, Fit::labels(&made.labels[500..]), &params(4)).unwrap();
    for (a, b) in a.margins(&made.x()).unwrap().iter().zip(b.margins(&made.x()).unwrap()) {
        assert!((a - b).abs() < 1e-9);
    }
}

#[test]
fn missing_rows_go_to_the_default_side() {
    let made = Made::mixed(3000, 58);
    let data = Dataset::new(&made.x(), &BinRule { missing: Missing::Zero, ..rule() }).unwrap();
    let booster = Booster::fit(&data, Fit::labels(&made.labels), &params(10)).unwrap();
    let nodes = booster.trees.iter().flat_map(|tree| &tree.nodes).filter(|node| node.missing == Missing::Zero);
    let mut sides = [0, 0];
    for node in nodes {
        assert_eq!(node.goes_left(f64::NAN), node.default_left);
        assert_eq!(node.goes_left(0.0), node.default_left);
        sides[node.default_left as usize] += 1;
    }
    assert!(sides[0] > 0 && sides[1] > 0, "{sides:?}");
}

#[test]
fn labels_without_a_pattern_or_of_one_class_give_no_tree() {
    let made = Made::mixed(300, 59);
    let booster = Booster::fit(&made.data(), Fit::labels(&vec![0.0; 300]), &params(10)).unwrap();
    assert!(booster.predict(&made.x()).unwrap().iter().all(|score| *score < 1e-6));
}

#[test]
fn wrong_inputs_are_refused_by_name() {
    let made = Made::mixed(300, 60);
    let data = made.data();
    let of = |params: &BoosterParams, labels: &[f32]| {
        Booster::fit(&data, Fit::labels(labels), params).unwrap_err().to_string()
    };
    assert!(of(&params(1), &made.labels[1..]).contains("300 values"));
    assert!(of(&params(1), &vec![2.0; 300]).contains("label of row 0"));
    assert!(of(&BoosterParams { learning_rate: 0.0, ..params(1) }, &made.labels).contains("learning_rate = 0"));
    let split = SplitRule { path_smooth: 1.0, min_data_in_leaf: 1, ..SplitRule::default() };
    let grow = GrowRule { split, ..GrowRule::default() };
    assert!(of(&BoosterParams { grow, ..params(1) }, &made.labels).contains("min_data_in_leaf"));
    let booster = Booster::fit(&data, Fit::labels(&made.labels), &params(1)).unwrap();
    let narrow = Matrix::f32(&made.values, 2).unwrap();
    assert!(booster.predict(&narrow).unwrap_err().to_string().contains("feature columns"));
}
