//! Laws that hold whatever the data.

use graphsieve::metrics::roc_auc;
use graphsieve::trees::{
    BinRule, Booster, BoosterParams, Dataset, Fit, Forest, ForestParams, Matrix, SplitRule, counter,
};
use proptest::prelude::*;

use super::made::{Made, on_threads, rule};

fn params(rounds: usize) -> BoosterParams {
    BoosterParams { rounds, ..BoosterParams::default() }
}

fn auroc(scores: &[f64], labels: &[f32]) -> f64 {
    let scores: Vec<f32> = scores.iter().map(|&score| score as f32).collect();
    let labels: Vec<u8> = labels.iter().map(|&label| label as u8).collect();
    roc_auc(&scores, &labels).unwrap()
}

#[test]
fn shuffled_training_labels_leave_held_out_scores_at_chance() {
    let (made, held) = (Made::mixed(3000, 71), Made::mixed(3000, 72));
    let data = made.data();
    let forest = ForestParams { trees: 20, ..ForestParams::sklearn_like(4) };
    let of = |labels: &[f32]| {
        let booster = Booster::fit(&data, Fit::labels(labels), &params(20)).unwrap();
        let forest = Forest::fit(&data, labels, None, &forest).unwrap();
        [booster.predict(&held.x()).unwrap(), forest.predict(&held.x()).unwrap()]
            .map(|scores| auroc(&scores, &held.labels))
    };
    let shuffled: Vec<[f64; 2]> = (0..12)
        .map(|seed| {
            let order = counter::shuffled(seed, &[], &(0..3000).collect::<Vec<u32>>());
            of(&order.iter().map(|&row| made.labels[row as usize]).collect::<Vec<f32>>())
        })
        .collect();
    for (model, learned) in of(&made.labels).into_iter().enumerate() {
        let mean = shuffled.iter().map(|auroc| auroc[model]).sum::<f64>() / 12.0;
        let variance = shuffled.iter().map(|auroc| (auroc[model] - mean).powi(2)).sum::<f64>() / 11.0;
        let standard_error = (variance / 12.0).sqrt();
        assert!((mean - 0.5).abs() < 3.0 * standard_error, "model {model}: {mean} ± {standard_error}");
        assert!(learned > mean + 6.0 * variance.sqrt() && learned > 0.75, "model {model}: {learned}, {mean}");
    }
}

#[test]
fn a_weight_of_two_is_a_row_that_is_there_twice() {
    let made = Made::mixed(2000, 73);
    let data = made.data();
    let weights: Vec<f32> = (0..2000).map(|row| if row % 3 == 0 { 2.0 } else { 1.0 }).collect();
    let copies: Vec<u32> = (0..2000).chain((0..2000).step_by(3)).collect();
    let values: Vec<f32> = copies.iter().flat_map(|&row| made.values[row as usize * 4..][..4].to_vec()).collect();
    let labels: Vec<f32> = copies.iter().map(|&row| made.labels[row as usize]).collect();
    let doubled = data.bin_like(&Matrix::f32(&values, 4).unwrap()).unwrap();
    // Limits that count rows tell a weight from a copy.
    let split = SplitRule { min_data_in_leaf: 1, cat_smooth: 0.0, min_data_per_group: 1, ..SplitRule::default() };
    let mut params = params(5);
    (params.grow.split, params.grow.num_leaves) = (split, Some(8));
    let fit = Fit { weights: Some(&weights), ..Fit::labels(&made.labels) };
    let weighted = Booster::fit(&data, fit, &params).unwrap().margins(&made.x()).unwrap();
    let copied = Booster::fit(&doubled, Fit::labels(&labels), &params).unwrap().margins(&made.x()).unwrap();
    for (row, (a, b)) in weighted.iter().zip(&copied).enumerate() {
        assert!((a - b).abs() < 1e-6, "row {row}: {a} != {b}");
    }
}

#[test]
fn neither_threads_nor_the_order_of_rows_change_a_model() {
    let made = Made::mixed(5000, 74);
    let weights: Vec<f32> = (0..5000).map(|row| 0.1 + (row % 7) as f32 / 3.0).collect();
    let order = counter::shuffled(9, &[], &(0..5000).collect::<Vec<u32>>());
    let pick = |from: &[f32]| order.iter().map(|&row| from[row as usize]).collect::<Vec<f32>>();
    let data = Dataset::on_rows(&made.x(), &order, &rule()).unwrap();
    let (labels, other_weights) = (pick(&made.labels), pick(&weights));
    let fit = Fit { weights: Some(&weights), ..Fit::labels(&made.labels) };
    let one = on_threads(1, || Booster::fit(&made.data(), fit, &params(5)).unwrap());
    let fit = Fit { weights: Some(&other_weights), ..Fit::labels(&labels) };
    assert_eq!(one, on_threads(3, || Booster::fit(&data, fit, &params(5)).unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bins_do_not_change_under_a_monotone_transform(
        values in prop::collection::vec(prop_oneof![4 => -50i32..50, 1 => Just(0)], 2..400),
        max_bin in 3usize..40,
    ) {
        let x: Vec<f64> = values.iter().map(|&v| v as f64).collect();
        // Keeps the sign: zero has a bin of its own.
        let y: Vec<f64> = x.iter().map(|v| v * v * v + 0.25 * v).collect();
        let rule = BinRule { max_bin, ..BinRule::default() };
        let of = |values: &[f64]| Dataset::new(&Matrix::f64(values, 1).unwrap(), &rule).unwrap();
        let (a, b) = (of(&x), of(&y));
        prop_assert_eq!(a.columns(), b.columns());
    }
}
