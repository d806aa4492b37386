//! Agreement with scikit-learn 1.9.1 (NumPy 2.4.6) on scores with heavy ties. The expected values are its output for
//! `roc_auc_score`, `average_precision_score`, `confusion_matrix`, `f1_score`, `accuracy_score`, `roc_curve` with
//! `drop_intermediate=False`, and `precision_recall_curve`.

use super::*;

struct Golden {
    scores: &'static [f32],
    labels: &'static [u8],
    roc_auc: f64,
    average_precision: f64,
    threshold: f64,
    /// True negatives, false positives, false negatives, true positives: the rows of `confusion_matrix`.
    confusion: [u64; 4],
    f1: f64,
    accuracy: f64,
    /// Best F1 of the precision-recall curve and the score at which it is reached.
    best_f1: (f64, f32),
}

const SMALL: Golden = Golden {
    scores: &[0.1, 0.5, 0.5, 0.5, 0.8, 0.8, 0.2, 0.1, 0.9, 0.2],
    labels: &[0, 0, 1, 1, 1, 0, 0, 0, 1, 1],
    roc_auc: 0.76,
    average_precision: 0.7249999999999999,
    threshold: 0.5,
    confusion: [3, 2, 1, 4],
    f1: 0.7272727272727273,
    accuracy: 0.7,
    best_f1: (0.7692307692307693, 0.2),
};

const GRID: Golden = Golden {
    scores: &[
        0.5, 0.5, 0.0, 0.75, 0.75, 0.5, 0.25, 0.25, 0.25, 0.25, 1.0, 0.5, 0.75, 0.75, 0.25, 0.5, 0.5, 0.5, 0.25, 0.5,
        1.0, 0.25, 0.75, 0.75,
    ],
    labels: &[0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1],
    roc_auc: 0.7592592592592593,
    average_precision: 0.6911231884057971,
    threshold: 0.75,
    confusion: [13, 2, 3, 6],
    f1: 0.7058823529411765,
    accuracy: 0.7916666666666666,
    best_f1: (0.7058823529411765, 0.75),
};

const RARE: Golden = Golden {
    scores: &[
        0.25, 0.0, 0.75, 0.25, 0.5, 0.25, 0.5, 0.0, 0.25, 0.0, 0.0, 0.75, 0.5, 0.25, 0.5, 0.75, 0.25, 0.5, 0.5, 0.25,
        0.5, 0.5, 0.75, 0.0, 0.75, 0.0, 0.5, 0.5, 0.0, 0.25, 0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25,
    ],
    labels: &[
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
        0, 0, 0,
    ],
    roc_auc: 0.45138888888888884,
    average_precision: 0.09843750000000001,
    threshold: 0.5,
    confusion: [18, 18, 2, 2],
    f1: 0.16666666666666666,
    accuracy: 0.5,
    best_f1: (0.18181818181818182, 0.0),
};

const CONSTANT: Golden = Golden {
    scores: &[0.5; 6],
    labels: &[1, 0, 0, 1, 0, 0],
    roc_auc: 0.5,
    average_precision: 0.3333333333333333,
    threshold: 0.5,
    confusion: [0, 4, 0, 2],
    f1: 0.5,
    accuracy: 0.3333333333333333,
    best_f1: (0.5, 0.5),
};

/// Worse than chance, negative scores, and both zeros.
const INVERTED: Golden = Golden {
    scores: &[-2.0, -1.0, 1.0, -1.0, -0.0, 0.0, -2.0, -0.0, -1.0, 0.0, -0.0, -0.0, -1.0, -2.0, 2.0, -2.0],
    labels: &[1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1],
    roc_auc: 0.11666666666666667,
    average_precision: 0.2986111111111111,
    threshold: 0.0,
    confusion: [3, 7, 5, 1],
    f1: 0.14285714285714285,
    accuracy: 0.25,
    best_f1: (0.5454545454545454, -2.0),
};

const ALL: [&Golden; 5] = [&SMALL, &GRID, &RARE, &CONSTANT, &INVERTED];

fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-14, "found {found}, expected {expected}");
}

#[test]
fn areas_equal_those_of_scikit_learn() {
    for golden in ALL {
        assert_close(roc_auc(golden.scores, golden.labels).unwrap(), golden.roc_auc);
        assert_close(average_precision(golden.scores, golden.labels).unwrap(), golden.average_precision);
    }
}

#[test]
fn decisions_at_a_threshold_equal_those_of_scikit_learn() {
    for golden in ALL {
        let found = Confusion::at(golden.scores, golden.labels, golden.threshold).unwrap();
        let rows = [found.true_negatives, found.false_positives, found.false_negatives, found.true_positives];
        assert_eq!(rows, golden.confusion);
        assert_close(found.f1().unwrap(), golden.f1);
        assert_close(found.accuracy().unwrap(), golden.accuracy);
    }
}

#[test]
fn the_best_f1_is_the_highest_of_the_precision_recall_curve() {
    for golden in ALL {
        let choice = best_f1_threshold(golden.scores, golden.labels).unwrap();
        let (f1, lowest_flagged) = golden.best_f1;
        assert_close(choice.f1, f1);
        let flagged = golden.scores.iter().copied().filter(|&score| f64::from(score) >= choice.threshold);
        assert_eq!(flagged.reduce(f32::min), Some(lowest_flagged));
        let reached = Confusion::at(golden.scores, golden.labels, choice.threshold).unwrap();
        assert_eq!(reached.f1(), Some(choice.f1));
    }
}

#[test]
fn the_roc_curve_equals_that_of_scikit_learn() {
    let curve = Ranking::new(SMALL.scores, SMALL.labels).unwrap().roc_curve().unwrap();
    let false_positive_rates: Vec<f64> = curve.iter().map(|point| point.false_positive_rate).collect();
    let true_positive_rates: Vec<f64> = curve.iter().map(|point| point.true_positive_rate).collect();
    let thresholds: Vec<f32> = curve.iter().map(|point| point.threshold).collect();
    assert_eq!(false_positive_rates, [0.0, 0.0, 0.2, 0.4, 0.6, 1.0]);
    assert_eq!(true_positive_rates, [0.0, 0.2, 0.4, 0.8, 1.0, 1.0]);
    assert_eq!(thresholds, [f32::INFINITY, 0.9, 0.8, 0.5, 0.2, 0.1]);
}

#[test]
fn the_precision_recall_curve_equals_that_of_scikit_learn_reversed() {
    let curve = Ranking::new(SMALL.scores, SMALL.labels).unwrap().pr_curve().unwrap();
    let precisions: Vec<f64> = curve.iter().map(|point| point.precision).collect();
    let recalls: Vec<f64> = curve.iter().map(|point| point.recall).collect();
    let thresholds: Vec<f32> = curve.iter().map(|point| point.threshold).collect();
    assert_eq!(precisions, [1.0, 1.0, 0.6666666666666666, 0.6666666666666666, 0.625, 0.5]);
    assert_eq!(recalls, [0.0, 0.2, 0.4, 0.8, 1.0, 1.0]);
    assert_eq!(thresholds, [f32::INFINITY, 0.9, 0.8, 0.5, 0.2, 0.1]);
}
