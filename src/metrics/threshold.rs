//! Decisions at a threshold: the confusion matrix, what follows from it, and the threshold with the best F1.

use serde::{Deserialize, Serialize};

use super::{Ranking, check_scores, one_class};
use crate::error::{Error, Result};

/// Confusion matrix of the rule "anomalous when score >= threshold".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    /// Anomalous nodes that are flagged.
    pub true_positives: u64,
    /// Normal nodes that are flagged.
    pub false_positives: u64,
    /// Normal nodes that are not flagged.
    pub true_negatives: u64,
    /// Anomalous nodes that are not flagged.
    pub false_negatives: u64,
}

impl Confusion {
    /// Counts the decisions for `scores` at `threshold`, which is compared in f64.
    ///
    /// # Errors
    /// [`Error::Data`] for unequal lengths, a score that is not finite, a label above 1, or a threshold that is NaN.
    pub fn at(scores: &[f32], labels: &[u8], threshold: f64) -> Result<Self> {
        check_scores(scores, labels)?;
        check_threshold(threshold)?;
        let mut confusion = Self::default();
        for (&score, &label) in scores.iter().zip(labels) {
            let count = match (label == 1, f64::from(score) >= threshold) {
                (true, true) => &mut confusion.true_positives,
                (false, true) => &mut confusion.false_positives,
                (false, false) => &mut confusion.true_negatives,
                (true, false) => &mut confusion.false_negatives,
            };
            *count += 1;
        }
        Ok(confusion)
    }

    /// TP / (TP + FP); `None` when no node is flagged.
    pub fn precision(&self) -> Option<f64> {
        ratio(self.true_positives, self.true_positives + self.false_positives)
    }

    /// TP / (TP + FN); `None` without anomalous nodes.
    pub fn recall(&self) -> Option<f64> {
        ratio(self.true_positives, self.true_positives + self.false_negatives)
    }

    /// 2 TP / (2 TP + FP + FN), the harmonic mean of precision and recall; `None` when no node is anomalous or flagged.
    pub fn f1(&self) -> Option<f64> {
        let doubled = 2 * self.true_positives;
        ratio(doubled, doubled + self.false_positives + self.false_negatives)
    }

    /// (TP + TN) / all; `None` without nodes.
    pub fn accuracy(&self) -> Option<f64> {
        let right = self.true_positives + self.true_negatives;
        ratio(right, right + self.false_positives + self.false_negatives)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

pub(super) fn check_threshold(threshold: f64) -> Result<()> {
    if !threshold.is_nan() {
        return Ok(());
    }
    Err(Error::Data {
        what: "threshold".into(),
        expected: "a number".into(),
        found: threshold.to_string(),
        help: "choose it on the validation nodes".into(),
    })
}

/// A threshold and the F1 that it reaches on the nodes on which it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThresholdChoice {
    /// Flag a node when its score is at least this.
    pub threshold: f64,
    /// F1 on the nodes on which the threshold was chosen.
    pub f1: f64,
}

/// The threshold with the highest F1; choose it on validation nodes and never on the nodes that are reported.
///
/// Of equally good thresholds the one that flags the fewest nodes is taken. It lies half-way between the lowest score
/// that is flagged and the next score below, so a difference of rounding between devices does not change a decision.
///
/// # Errors
/// [`Error::Data`] for what [`Ranking::new`] refuses, and when a class is missing.
pub fn best_f1_threshold(scores: &[f32], labels: &[u8]) -> Result<ThresholdChoice> {
    let ranking = Ranking::new(scores, labels)?;
    let (positives, negatives) = (ranking.positives(), ranking.negatives());
    if positives == 0 || negatives == 0 {
        return Err(one_class("the threshold with the best F1", positives, negatives));
    }
    let steps = ranking.steps();
    let f1 = |at: usize| {
        let step = &steps[at];
        2.0 * step.true_positives as f64 / (step.true_positives + step.false_positives + positives) as f64
    };
    let best = (1..steps.len()).fold(0, |best, at| if f1(at) > f1(best) { at } else { best });
    let lowest = f64::from(steps[best].score);
    let next = steps.get(best + 1).map_or(lowest, |step| f64::from(step.score));
    Ok(ThresholdChoice { threshold: lowest / 2.0 + next / 2.0, f1: f1(best) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_matrix_cannot_tell_is_none() {
        let none_flagged = Confusion { true_negatives: 3, false_negatives: 1, ..Default::default() };
        assert_eq!((none_flagged.precision(), none_flagged.recall(), none_flagged.f1()), (None, Some(0.0), Some(0.0)));
        let all_normal = Confusion { true_negatives: 3, ..Default::default() };
        assert_eq!((all_normal.recall(), all_normal.f1(), all_normal.accuracy()), (None, None, Some(1.0)));
        assert_eq!(Confusion::default().accuracy(), None);
    }

    #[test]
    fn a_score_at_the_threshold_is_flagged() {
        let confusion = Confusion::at(&[0.5, 0.5, 0.49], &[1, 0, 1], 0.5).unwrap();
        assert_eq!((confusion.true_positives, confusion.false_positives, confusion.false_negatives), (1, 1, 1));
    }

    #[test]
    fn the_best_threshold_lies_half_way_to_the_next_score() {
        let choice = best_f1_threshold(&[0.75, 0.5, 0.25, 0.0], &[1, 1, 0, 0]).unwrap();
        assert_eq!(choice, ThresholdChoice { threshold: 0.375, f1: 1.0 });
    }

    #[test]
    fn of_equally_good_thresholds_the_fewest_nodes_are_flagged() {
        // Flagging one node (1 of 2 found) and flagging four (2 of 2 found) both reach an F1 of 2/3.
        let choice = best_f1_threshold(&[0.9, 0.6, 0.5, 0.4], &[1, 0, 0, 1]).unwrap();
        assert_eq!(choice.f1, 2.0 / 3.0);
        assert_eq!(choice.threshold, (f64::from(0.9f32) + f64::from(0.6f32)) / 2.0);
    }

    #[test]
    fn a_missing_class_or_threshold_is_a_typed_error() {
        assert!(matches!(best_f1_threshold(&[0.1, 0.2], &[1, 1]), Err(Error::Data { .. })));
        assert!(matches!(best_f1_threshold(&[], &[]), Err(Error::Data { .. })));
        assert!(matches!(Confusion::at(&[0.1], &[1], f64::NAN), Err(Error::Data { .. })));
    }

    proptest! {
        #[test]
        fn no_threshold_beats_the_best_one(nodes in proptest::collection::vec((0u8..16, 0u8..=1), 2..60)) {
            let (scores, labels): (Vec<f32>, Vec<u8>) =
                nodes.into_iter().map(|(score, label)| (f32::from(score) / 16.0, label)).unzip();
            prop_assume!(labels.contains(&0) && labels.contains(&1));
            let choice = best_f1_threshold(&scores, &labels).unwrap();
            let f1_at = |threshold| Confusion::at(&scores, &labels, threshold).unwrap().f1().unwrap_or(0.0);
            prop_assert_eq!(f1_at(choice.threshold), choice.f1);
            prop_assert!(scores.iter().all(|&score| f1_at(f64::from(score)) <= choice.f1));
        }
    }
}
