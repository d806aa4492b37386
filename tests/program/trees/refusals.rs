//! Bad input ends in an error that names it, or in a result that is described.

use graphsieve::Error;
use graphsieve::trees::{
    Bagging, BinRule, Booster, BoosterParams, ClassWeight, Dataset, Fit, Forest, ForestParams, GrowRule, Matrix,
    Measure, Metric, Objective, SplitRule, Validation,
};

use super::made::{Made, rule};

fn params(rounds: usize) -> BoosterParams {
    BoosterParams { rounds, ..BoosterParams::default() }
}

/// The message of an error that is about data, a setting or a format and says how to go on.
fn message<T>(result: graphsieve::Result<T>) -> String {
    let error = result.err().expect("an error");
    assert!(matches!(error, Error::Data { .. } | Error::Config { .. } | Error::Format { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("help: ") && !text.ends_with("help: "), "{text}");
    text
}

#[test]
fn labels_that_cannot_be_learned_from_are_refused_by_row() {
    let made = Made::mixed(300, 60);
    let data = made.data();
    let with = |row: usize, label: f32| {
        let mut labels = made.labels.clone();
        labels[row] = label;
        labels
    };
    let squared = BoosterParams { objective: Objective::Squared, ..params(1) };
    let forest = ForestParams { trees: 1, ..ForestParams::sklearn_like(4) };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let labels = with(7, bad);
        for text in [
            message(Booster::fit(&data, Fit::labels(&labels), &params(1))),
            message(Booster::fit(&data, Fit::labels(&labels), &squared)),
            message(Forest::fit(&data, &labels, None, &forest)),
        ] {
            assert!(text.contains("label of row 7") && text.contains(&bad.to_string()), "{text}");
        }
    }
    assert!(message(Booster::fit(&data, Fit::labels(&with(3, 2.0)), &params(1))).contains("label of row 3"));
    assert!(message(Booster::fit(&data, Fit::labels(&made.labels[1..]), &params(1))).contains("300 values, found 299"));
    assert!(message(Forest::fit(&data, &made.labels[1..], None, &forest)).contains("300 values, found 299"));
}

#[test]
fn weights_are_finite_not_negative_and_not_all_zero() {
    let made = Made::mixed(300, 61);
    let data = made.data();
    let forest = ForestParams { trees: 1, ..ForestParams::sklearn_like(4) };
    let check = |weights: &[f32], part: &str| {
        let fit = Fit { weights: Some(weights), ..Fit::labels(&made.labels) };
        let texts = [
            message(Booster::fit(&data, fit, &params(1))),
            message(Forest::fit(&data, &made.labels, Some(weights), &forest)),
        ];
        texts.iter().for_each(|text| assert!(text.contains(part), "{text}"));
    };
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        let mut weights = vec![1.0; 300];
        weights[5] = bad;
        check(&weights, "weight of row 5");
    }
    check(&vec![0.0; 300], "at least one positive weight");
    check(&[1.0; 2], "300 values, found 2");
}

#[test]
fn the_largest_and_smallest_numbers_of_an_f32_are_learned_from() {
    let made = Made::mixed(400, 62);
    for scale in [f32::MAX, f32::MIN_POSITIVE, 1e-45] {
        let labels: Vec<f32> = made.labels.iter().map(|y| y * scale).collect();
        let weights = vec![scale; 400];
        let fit = Fit { weights: Some(&weights), ..Fit::labels(&labels) };
        let mut params = BoosterParams { objective: Objective::Squared, learning_rate: 1.0, ..params(3) };
        params.grow.split.min_sum_hessian = 0.0;
        let booster = Booster::fit(&made.data(), fit, &params).unwrap();
        assert!(booster.predict(&made.x()).unwrap().iter().all(|value| value.is_finite()));
    }
}

#[test]
fn labels_of_one_class_give_their_own_score_everywhere() {
    let made = Made::mixed(300, 59);
    for label in [0.0, 1.0] {
        for weight in [ClassWeight::None, ClassWeight::Balanced] {
            let params = BoosterParams { objective: Objective::Binary { weight }, ..params(10) };
            let booster = Booster::fit(&made.data(), Fit::labels(&[label; 300]), &params).unwrap();
            assert!(booster.predict(&made.x()).unwrap().iter().all(|score| (score - label as f64).abs() < 1e-6));
        }
    }
    let labels = vec![1.0; 300];
    let measure = Measure::Metric(Metric::Auroc);
    let validation = Validation { x: made.x(), labels: &labels, measure, patience: 5 };
    let fit = Fit { validation: Some(validation), ..Fit::labels(&made.labels) };
    assert!(message(Booster::fit(&made.data(), fit, &params(2))).contains("ROC-AUC"));
}

#[test]
fn columns_without_a_difference_are_never_split() {
    let made = Made::mixed(500, 63);
    let values: Vec<f32> = (0..500).flat_map(|row| [3.5, f32::NAN, made.values[row * 4], 0.0]).collect();
    let x = Matrix::f32(&values, 4).unwrap();
    let data = Dataset::new(&x, &BinRule { categorical: vec![3], ..BinRule::default() }).unwrap();
    let booster = Booster::fit(&data, Fit::labels(&made.labels), &params(5)).unwrap();
    assert!(!booster.trees.is_empty());
    assert!(booster.trees.iter().flat_map(|tree| &tree.nodes).all(|node| node.feature == 2));
    // Nothing to split at all: the score is the share of positives.
    let constant: Vec<f32> = (0..500).flat_map(|_| [1.0, f32::NAN]).collect();
    let x = Matrix::f32(&constant, 2).unwrap();
    let data = Dataset::new(&x, &BinRule::default()).unwrap();
    let share = made.labels.iter().sum::<f32>() as f64 / 500.0;
    let booster = Booster::fit(&data, Fit::labels(&made.labels), &params(5)).unwrap();
    assert!(booster.trees.is_empty() && (booster.predict(&x).unwrap()[7] - share).abs() < 1e-12);
    assert_eq!(Booster::from_json(&booster.to_json()).unwrap(), booster);
    let again = Booster::from_lightgbm_text(&booster.to_lightgbm_text()).unwrap();
    assert!((again.predict(&x).unwrap()[7] - share).abs() < 1e-12);
    let forest = ForestParams { trees: 2, bootstrap: false, ..ForestParams::sklearn_like(2) };
    let forest = Forest::fit(&data, &made.labels, None, &forest).unwrap();
    assert!((forest.predict(&x).unwrap()[7] - share).abs() < 1e-9);
}

#[test]
fn more_categories_than_bins_share_the_bin_of_missing_ones() {
    // 400 categories of 50 rows each, then 200 of one row: these hold the last percent.
    let mut values: Vec<f32> = (0..20_000).map(|row| (row % 400) as f32).collect();
    values.extend((0..200).map(|row| (400 + row) as f32));
    let x = Matrix::f32(&values, 1).unwrap();
    let data = Dataset::new(&x, &BinRule { max_bin: 16, categorical: vec![0], ..BinRule::default() }).unwrap();
    let mapper = &data.mappers()[0];
    assert_eq!((mapper.num_bin, mapper.bin(0.0) > 0, mapper.bin(450.0), mapper.bin(1e9)), (401, true, 0, 0));
    let labels: Vec<f32> = values.iter().map(|&v| (v as u32).is_multiple_of(2) as u8 as f32).collect();
    let booster = Booster::fit(&data, Fit::labels(&labels), &params(5)).unwrap();
    assert!(booster.predict(&x).unwrap().iter().all(|score| score.is_finite()));
    // More categories than 16 bits number.
    let values: Vec<f32> = (0..140_000).map(|row| (row / 2) as f32).collect();
    let rule = BinRule { max_bin: 65_535, min_data_in_bin: 1, categorical: vec![0], ..BinRule::default() };
    let data = Dataset::new(&Matrix::f32(&values, 1).unwrap(), &rule).unwrap();
    assert_eq!(data.mappers()[0].num_bin, 65_536);
    let far = Matrix::f32(&[0.0, 3e8, 1.0, 3e8], 1).unwrap();
    assert!(message(Dataset::new(&far, &rule)).contains("16777216"));
}

#[test]
fn matrices_that_do_not_fit_are_refused() {
    let made = Made::mixed(300, 64);
    assert!(
        message(Dataset::new(&Matrix::f32(&[], 3).unwrap(), &rule_without_categories())).contains("at least one row")
    );
    assert!(message(Dataset::on_rows(&made.x(), &[], &rule())).contains("at least one row"));
    assert!(message(Matrix::f32(&[1.0; 5], 2)).contains("multiple of 2"));
    let data = made.data();
    let booster = Booster::fit(&data, Fit::labels(&made.labels), &params(1)).unwrap();
    let forest = ForestParams { trees: 1, ..ForestParams::sklearn_like(4) };
    let forest = Forest::fit(&data, &made.labels, None, &forest).unwrap();
    for cols in [2, 5] {
        let values = vec![0.0f32; 10];
        let other = Matrix::f32(&values, cols).unwrap();
        for text in [
            message(booster.predict(&other)),
            message(booster.shap(&other)),
            message(booster.margin(&vec![0.0; cols])),
            message(forest.predict(&other)),
            message(forest.shap(&other)),
            message(forest.score(&vec![0.0; cols])),
            message(data.bin_like(&other)),
        ] {
            assert!(text.contains(&format!("feature columns: expected 4, found {cols}")), "{text}");
        }
    }
    let none = Matrix::f32(&[], 4).unwrap();
    assert!(booster.predict(&none).unwrap().is_empty() && forest.shap(&none).unwrap().values.is_empty());
}

fn rule_without_categories() -> BinRule {
    BinRule { categorical: vec![], ..rule() }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let made = Made::mixed(300, 65);
    let data = made.data();
    let fit = |params: &BoosterParams| message(Booster::fit(&data, Fit::labels(&made.labels), params));
    assert!(fit(&BoosterParams { learning_rate: 0.0, ..params(1) }).contains("learning_rate = 0"));
    assert!(fit(&BoosterParams { bagging: Bagging::share(1.5), ..params(1) }).contains("bagging.negative = 1.5"));
    let split = SplitRule { path_smooth: 1.0, min_data_in_leaf: 1, ..SplitRule::default() };
    assert!(
        fit(&BoosterParams { grow: GrowRule { split, ..GrowRule::default() }, ..params(1) })
            .contains("min_data_in_leaf")
    );
    for (grow, part) in [
        (GrowRule { num_leaves: Some(1), ..GrowRule::default() }, "num_leaves"),
        (GrowRule { feature_fraction: f64::NAN, ..GrowRule::default() }, "feature_fraction = NaN"),
        (GrowRule { monotone: vec![1], ..GrowRule::default() }, "4 signs"),
        (GrowRule { monotone: vec![2, 0, 0, 0], ..GrowRule::default() }, "monotone = 2"),
        (GrowRule { interactions: vec![vec![0], vec![1, 4]], ..GrowRule::default() }, "interactions = 4"),
    ] {
        assert!(fit(&BoosterParams { grow, ..params(1) }).contains(part), "{part}");
    }
    for weight in [ClassWeight::Positive(f64::NAN), ClassWeight::Positive(-1.0)] {
        let forest = ForestParams { class_weight: weight, trees: 1, ..ForestParams::sklearn_like(4) };
        assert!(message(Forest::fit(&data, &made.labels, None, &forest)).contains("positive weight"));
    }
    let measure = Measure::Metric(Metric::LogLoss);
    let validation = Validation { x: made.x(), labels: &made.labels, measure, patience: 0 };
    let stopped = Fit { validation: Some(validation), ..Fit::labels(&made.labels) };
    assert!(message(Booster::fit(&data, stopped, &params(1))).contains("patience = 0"));
    for (bins, part) in [
        (BinRule { max_bin: 1, ..rule() }, "max_bin = 1"),
        (BinRule { max_bin: 65_536, ..rule() }, "max_bin = 65536"),
        (BinRule { categorical: vec![4], ..rule() }, "categorical = 4"),
        (BinRule { sample_rows: 0, ..rule() }, "sample_rows = 0"),
    ] {
        assert!(message(Dataset::new(&made.x(), &bins)).contains(part), "{part}");
    }
}

#[test]
fn names_that_a_model_text_cannot_hold_are_refused() {
    let data = Made::mixed(50, 66).data();
    for (bad, part) in [
        (vec!["a"; 3], "4 names, found 3"),
        (vec!["a", "b", "c", ""], "name of feature 3"),
        (vec!["a", "b c", "d", "e"], "name of feature 1"),
        (vec!["a", "b", "c", "a"], "again"),
        (vec!["a", "b", "c:d", "e"], "name of feature 2"),
    ] {
        let text = message(data.clone().with_names(bad.into_iter().map(String::from).collect()));
        assert!(text.contains(part), "{text}");
    }
}
