use std::time::{Duration, Instant};

use graphsieve::trees::{
    Bagging, BinRule, Booster, BoosterParams, ClassWeight, Dataset, Fit, Forest, ForestParams, Matrix, Measure, Metric,
    Missing, Objective, Validation,
};
use proptest::prelude::*;

use super::made::{Made, on_threads, rule};

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
    assert!((0..1500).all(|row| booster.margin(&made.row(row)).unwrap() == margins[row]));
}

#[test]
fn it_stops_early_and_keeps_the_best_round() {
    let (made, held) = (Made::mixed(1500, 54), Made::mixed(800, 55));
    let own = Measure::Function { value: &log_loss, larger_is_better: false };
    let measures = [
        (own, false),
        (Measure::Metric(Metric::LogLoss), false),
        (Measure::Metric(Metric::Auroc), true),
        (Measure::Metric(Metric::AveragePrecision), true),
    ];
    for (at, (measure, larger_is_better)) in measures.into_iter().enumerate() {
        let validation = Validation { x: held.x(), labels: &held.labels, measure, patience: 5 };
        let fit = Fit { validation: Some(validation), ..Fit::labels(&made.labels) };
        let params = BoosterParams { learning_rate: 0.3, ..params(300) };
        let booster = Booster::fit(&made.data(), fit, &params).unwrap();
        let better = |a: f64, b: f64| if larger_is_better { a > b } else { a < b };
        let best = booster.history.iter().copied().reduce(|a, b| if better(b, a) { b } else { a }).unwrap();
        assert!(booster.history.len() < 300 && booster.trees.len() + 5 == booster.history.len());
        assert_eq!(booster.history[booster.trees.len() - 1], best);
        let scores = booster.predict(&held.x()).unwrap();
        let again = match measure {
            Measure::Metric(metric) => metric.of(&scores, &held.labels).unwrap(),
            Measure::Function { value, .. } => value(&scores, &held.labels),
        };
        assert!((again - best).abs() < 1e-12, "measure {at}: {again} != {best}");
    }
}

#[test]
fn metrics_are_their_definitions() {
    let (scores, labels) = ([0.1, 0.4, 0.35, 0.8], [0.0, 0.0, 1.0, 1.0]);
    assert_eq!(Metric::Auroc.of(&scores, &labels).unwrap(), 0.75);
    assert!((Metric::AveragePrecision.of(&scores, &labels).unwrap() - (0.5 + 0.5 * 2.0 / 3.0)).abs() < 1e-12);
    let loss = -(0.9f64.ln() + 0.6f64.ln() + 0.35f64.ln() + 0.8f64.ln()) / 4.0;
    assert!((Metric::LogLoss.of(&scores, &labels).unwrap() - loss).abs() < 1e-12);
    assert!((Metric::LogLoss.of(&[0.0], &[1.0]).unwrap() + 1e-15f64.ln()).abs() < 1e-9);
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
fn no_tree_is_begun_when_the_time_is_over() {
    let made = Made::mixed(2000, 47);
    let (data, labels) = (made.data(), Fit::labels(&made.labels));
    let over = Some(Instant::now());
    let all = Booster::fit(&data, labels, &params(5)).unwrap();
    let cut = Booster::fit(&data, labels, &BoosterParams { deadline: over, ..params(5) }).unwrap();
    assert_eq!((all.trees.len(), cut.trees.len()), (5, 1));
    assert_eq!(all.trees[0], cut.trees[0]);
    let later = Instant::now().checked_add(Duration::from_secs(3600));
    assert_eq!(Booster::fit(&data, labels, &BoosterParams { deadline: later, ..params(5) }).unwrap(), all);
    let forest = |deadline: Option<Instant>| {
        let params = ForestParams { trees: 6, deadline, ..ForestParams::sklearn_like(4) };
        Forest::fit(&data, &made.labels, None, &params).unwrap()
    };
    assert_eq!((forest(over).trees.len(), forest(later).trees.len()), (1, 6));
    assert_eq!(forest(over).trees[0], forest(later).trees[0]);
}
