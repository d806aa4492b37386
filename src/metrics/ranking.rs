//! Metrics of the order of the scores: ROC-AUC, average precision, the two curves, and the top K.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{check_scores, one_class};
use crate::error::Result;

/// Labelled scores from the highest to the lowest, one step per distinct score.
///
/// Equal scores form one step, so no metric depends on how a sort happens to order them.
#[derive(Debug, Clone)]
pub struct Ranking {
    steps: Vec<RankingStep>,
}

/// What is flagged when every node that scores at least `score` is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankingStep {
    /// The lowest score that is flagged.
    pub score: f32,
    /// Anomalous nodes flagged.
    pub true_positives: u64,
    /// Normal nodes flagged.
    pub false_positives: u64,
}

impl RankingStep {
    const NONE_FLAGGED: Self = Self { score: f32::INFINITY, true_positives: 0, false_positives: 0 };

    fn flagged(&self) -> u64 {
        self.true_positives + self.false_positives
    }
}

/// A point of the ROC curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RocPoint {
    /// Nodes that score at least this are flagged; infinite at the first point, where none is.
    pub threshold: f32,
    /// Share of the normal nodes that are flagged, in \[0, 1\].
    pub false_positive_rate: f64,
    /// Share of the anomalous nodes that are flagged, in \[0, 1\].
    pub true_positive_rate: f64,
}

/// A point of the precision-recall curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrPoint {
    /// Nodes that score at least this are flagged; infinite at the first point, where none is.
    pub threshold: f32,
    /// Share of the anomalous nodes that are flagged, in \[0, 1\].
    pub recall: f64,
    /// Share of the flagged nodes that are anomalous, in \[0, 1\]; 1 by convention at the first point.
    pub precision: f64,
}

/// Quality of the K highest scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TopK {
    /// Nodes looked at: the K that was asked for, or all nodes where there are fewer.
    pub k: u64,
    /// Expected share of these nodes that are anomalous, in \[0, 1\].
    pub precision: f64,
    /// Expected share of the anomalous nodes that are among these, in \[0, 1\]; `None` without anomalous nodes.
    pub recall: Option<f64>,
}

impl Ranking {
    /// Ranks `scores` (any finite values, higher = more anomalous) with their `labels` (1 anomalous, 0 normal).
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) for unequal lengths, a score that is not finite, or a label above 1.
    pub fn new(scores: &[f32], labels: &[u8]) -> Result<Self> {
        check_scores(scores, labels)?;
        let mut ranked: Vec<(f32, u8)> = scores.iter().copied().zip(labels.iter().copied()).collect();
        ranked.par_sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let mut last = RankingStep::NONE_FLAGGED;
        let mut steps = Vec::new();
        // `==` and not the bits: -0 and +0 are one score.
        for tied in ranked.chunk_by(|a, b| a.0 == b.0) {
            let positives = tied.iter().map(|&(_, label)| u64::from(label)).sum::<u64>();
            last.score = tied[tied.len() - 1].0;
            last.true_positives += positives;
            last.false_positives += tied.len() as u64 - positives;
            steps.push(last);
        }
        Ok(Self { steps })
    }

    /// The steps, from the highest score down; the counts accumulate.
    pub fn steps(&self) -> &[RankingStep] {
        &self.steps
    }

    /// Number of anomalous nodes.
    pub fn positives(&self) -> u64 {
        self.last().true_positives
    }

    /// Number of normal nodes.
    pub fn negatives(&self) -> u64 {
        self.last().false_positives
    }

    fn last(&self) -> RankingStep {
        self.steps.last().copied().unwrap_or(RankingStep::NONE_FLAGGED)
    }

    /// Every step with the one before it.
    fn pairs(&self) -> impl Iterator<Item = (RankingStep, RankingStep)> + '_ {
        std::iter::once(RankingStep::NONE_FLAGGED).chain(self.steps.iter().copied()).zip(self.steps.iter().copied())
    }

    /// Area under the ROC curve: P(s⁺ > s⁻) + ½ P(s⁺ = s⁻) for a random anomalous and a random normal node.
    ///
    /// The same as the Mann-Whitney statistic with mid-ranks over positives × negatives, and as scikit-learn's
    /// `roc_auc_score`. `None` when a class is missing.
    pub fn roc_auc(&self) -> Option<f64> {
        let (positives, negatives) = self.both_classes()?;
        // Twice the trapezoids in whole numbers: exact, so reversed scores give exactly the complement.
        let doubled = self
            .pairs()
            .map(|(before, now)| {
                let width = u128::from(now.false_positives - before.false_positives);
                width * u128::from(before.true_positives + now.true_positives)
            })
            .sum::<u128>();
        Some(doubled as f64 / (2.0 * positives as f64 * negatives as f64))
    }

    /// Average precision: Σ (Rᵢ − Rᵢ₋₁) Pᵢ over distinct scores, from the highest down.
    ///
    /// The step-wise area under the precision-recall curve, without interpolation, as scikit-learn's
    /// `average_precision_score`. Scores without skill reach the share of anomalous nodes. `None` when a class is
    /// missing.
    pub fn average_precision(&self) -> Option<f64> {
        let (positives, _) = self.both_classes()?;
        let sum = self
            .pairs()
            .map(|(before, now)| {
                let gained = (now.true_positives - before.true_positives) as f64;
                gained * now.true_positives as f64 / now.flagged() as f64
            })
            .sum::<f64>();
        Some(sum / positives as f64)
    }

    /// The ROC curve from (0, 0) to (1, 1), one point per distinct score; `None` when a class is missing.
    pub fn roc_curve(&self) -> Option<Vec<RocPoint>> {
        let (positives, negatives) = self.both_classes()?;
        let point = |step: &RankingStep| RocPoint {
            threshold: step.score,
            false_positive_rate: step.false_positives as f64 / negatives as f64,
            true_positive_rate: step.true_positives as f64 / positives as f64,
        };
        Some(std::iter::once(&RankingStep::NONE_FLAGGED).chain(&self.steps).map(point).collect())
    }

    /// The precision-recall curve from recall 0 to recall 1, one point per distinct score; `None` when a class is
    /// missing. The same points as scikit-learn's `precision_recall_curve`, which lists them the other way round.
    pub fn pr_curve(&self) -> Option<Vec<PrPoint>> {
        let (positives, _) = self.both_classes()?;
        let first = PrPoint { threshold: f32::INFINITY, recall: 0.0, precision: 1.0 };
        let point = |step: &RankingStep| PrPoint {
            threshold: step.score,
            recall: step.true_positives as f64 / positives as f64,
            precision: step.true_positives as f64 / step.flagged() as f64,
        };
        Some(std::iter::once(first).chain(self.steps.iter().map(point)).collect())
    }

    /// Precision and recall of the `k` highest scores; `None` without nodes or for `k` = 0.
    ///
    /// Where equal scores lie across the cut, both are the expected value over a random order of these nodes: of `t`
    /// tied nodes, `a` of them anomalous, `r` places bring `a · r / t` anomalous nodes. With fewer than `k` nodes all
    /// of them are looked at, and [`TopK::k`] says so.
    pub fn top_k(&self, k: u64) -> Option<TopK> {
        let k = k.min(self.last().flagged());
        let cut = self.steps.partition_point(|step| step.flagged() < k);
        let now = *self.steps.get(cut).filter(|_| k > 0)?;
        let before = cut.checked_sub(1).map_or(RankingStep::NONE_FLAGGED, |above| self.steps[above]);
        let places = (k - before.flagged()) as f64 / (now.flagged() - before.flagged()) as f64;
        let found = before.true_positives as f64 + (now.true_positives - before.true_positives) as f64 * places;
        let positives = self.positives();
        let recall = (positives > 0).then(|| found / positives as f64);
        Some(TopK { k, precision: found / k as f64, recall })
    }

    fn both_classes(&self) -> Option<(u64, u64)> {
        let (positives, negatives) = (self.positives(), self.negatives());
        (positives > 0 && negatives > 0).then_some((positives, negatives))
    }
}

/// Area under the ROC curve; see [`Ranking::roc_auc`].
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) for what [`Ranking::new`] refuses, and when a class is missing.
///
/// # Example
/// ```
/// use graphsieve::metrics::roc_auc;
/// // Of the four (anomalous, normal) pairs, three are in order and one is tied.
/// assert_eq!(roc_auc(&[0.1, 0.4, 0.4, 0.8], &[0, 0, 1, 1])?, 0.875);
/// # Ok::<(), graphsieve::error::Error>(())
/// ```
pub fn roc_auc(scores: &[f32], labels: &[u8]) -> Result<f64> {
    let ranking = Ranking::new(scores, labels)?;
    ranking.roc_auc().ok_or_else(|| one_class("ROC-AUC", ranking.positives(), ranking.negatives()))
}

/// Average precision; see [`Ranking::average_precision`].
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) for what [`Ranking::new`] refuses, and when a class is missing.
pub fn average_precision(scores: &[f32], labels: &[u8]) -> Result<f64> {
    let ranking = Ranking::new(scores, labels)?;
    ranking.average_precision().ok_or_else(|| one_class("average precision", ranking.positives(), ranking.negatives()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;

    /// Scores k/64 in [0, 1], so ties are common and every transform below is exact in f32.
    fn labelled_scores() -> impl Strategy<Value = (Vec<f32>, Vec<u8>)> {
        proptest::collection::vec((0u8..=64, 0u8..=1), 2..80)
            .prop_filter("both classes", |nodes| {
                nodes.iter().any(|node| node.1 == 0) && nodes.iter().any(|node| node.1 == 1)
            })
            .prop_map(|nodes| nodes.into_iter().map(|(score, label)| (f32::from(score) / 64.0, label)).unzip())
    }

    /// P(s+ > s-) + P(s+ = s-)/2 over all pairs.
    fn auc_over_pairs(scores: &[f32], labels: &[u8]) -> f64 {
        let (mut sum, mut pairs) = (0.0, 0.0);
        for (a, _) in scores.iter().zip(labels).filter(|node| *node.1 == 1) {
            for (b, _) in scores.iter().zip(labels).filter(|node| *node.1 == 0) {
                sum += if a > b {
                    1.0
                } else if a == b {
                    0.5
                } else {
                    0.0
                };
                pairs += 1.0;
            }
        }
        sum / pairs
    }

    proptest! {
        #[test]
        fn auc_is_the_share_of_ordered_pairs((scores, labels) in labelled_scores()) {
            prop_assert!((roc_auc(&scores, &labels).unwrap() - auc_over_pairs(&scores, &labels)).abs() < 1e-12);
        }

        #[test]
        fn ranking_metrics_ignore_strictly_increasing_transforms((scores, labels) in labelled_scores()) {
            let transforms: [fn(f32) -> f32; 3] = [|s| 2.0 * s - 7.0, |s| s * s * s, |s| s.exp()];
            for transform in transforms {
                let moved: Vec<f32> = scores.iter().map(|&score| transform(score)).collect();
                prop_assert_eq!(roc_auc(&moved, &labels).unwrap(), roc_auc(&scores, &labels).unwrap());
                let precision = average_precision(&moved, &labels).unwrap();
                prop_assert_eq!(precision, average_precision(&scores, &labels).unwrap());
            }
        }

        #[test]
        fn auc_of_reversed_scores_is_the_complement((scores, labels) in labelled_scores()) {
            let reversed: Vec<f32> = scores.iter().map(|score| 1.0 - score).collect();
            let sum = roc_auc(&scores, &labels).unwrap() + roc_auc(&reversed, &labels).unwrap();
            prop_assert!((sum - 1.0).abs() < 1e-15, "{}", sum);
        }

        #[test]
        fn swapped_classes_give_the_complement((scores, labels) in labelled_scores()) {
            let swapped: Vec<u8> = labels.iter().map(|label| 1 - label).collect();
            let sum = roc_auc(&scores, &labels).unwrap() + roc_auc(&scores, &swapped).unwrap();
            prop_assert!((sum - 1.0).abs() < 1e-15, "{}", sum);
        }

        #[test]
        fn order_of_the_nodes_does_not_matter((scores, labels) in labelled_scores(), turn in 0usize..80) {
            let (mut turned, mut turned_labels) = (scores.clone(), labels.clone());
            turned.rotate_left(turn % scores.len());
            turned_labels.rotate_left(turn % scores.len());
            let (a, b) = (Ranking::new(&scores, &labels).unwrap(), Ranking::new(&turned, &turned_labels).unwrap());
            prop_assert_eq!(a.steps(), b.steps());
            prop_assert_eq!(a.top_k(7), b.top_k(7));
        }

        #[test]
        fn precision_and_recall_agree_where_k_is_the_number_of_positives((scores, labels) in labelled_scores()) {
            let ranking = Ranking::new(&scores, &labels).unwrap();
            let top = ranking.top_k(ranking.positives()).unwrap();
            prop_assert_eq!(Some(top.precision), top.recall);
        }
    }

    #[test]
    fn top_k_expects_the_average_over_orders_of_tied_nodes() {
        // One clear hit, then four tied nodes of which one is anomalous.
        let ranking = Ranking::new(&[0.9, 0.5, 0.5, 0.5, 0.5, 0.1], &[1, 0, 1, 0, 0, 1]).unwrap();
        assert_eq!(ranking.top_k(1), Some(TopK { k: 1, precision: 1.0, recall: Some(1.0 / 3.0) }));
        // Two of the four tied places: half of the one anomalous node is expected.
        assert_eq!(ranking.top_k(3), Some(TopK { k: 3, precision: 0.5, recall: Some(0.5) }));
        assert_eq!(ranking.top_k(5), Some(TopK { k: 5, precision: 0.4, recall: Some(2.0 / 3.0) }));
    }

    #[test]
    fn top_k_of_a_small_group_looks_at_every_node() {
        let ranking = Ranking::new(&[0.9, 0.5, 0.1, 0.0], &[1, 0, 0, 0]).unwrap();
        assert_eq!(ranking.top_k(100), Some(TopK { k: 4, precision: 0.25, recall: Some(1.0) }));
        assert_eq!(ranking.top_k(0), None);
        assert_eq!(Ranking::new(&[], &[]).unwrap().top_k(100), None);
    }

    #[test]
    fn top_k_without_anomalous_nodes_has_no_recall() {
        let top = Ranking::new(&[0.9, 0.5], &[0, 0]).unwrap().top_k(1).unwrap();
        assert_eq!((top.precision, top.recall), (0.0, None));
    }

    #[test]
    fn perfect_scores_reach_one() {
        let (scores, labels) = ([0.9, 0.8, 0.2, 0.1], [1, 1, 0, 0]);
        assert_eq!(roc_auc(&scores, &labels).unwrap(), 1.0);
        assert_eq!(average_precision(&scores, &labels).unwrap(), 1.0);
    }

    #[test]
    fn curves_run_from_nothing_flagged_to_everything_flagged() {
        let ranking = Ranking::new(&[0.3, 0.3, 0.7], &[0, 1, 0]).unwrap();
        let (roc, pr) = (ranking.roc_curve().unwrap(), ranking.pr_curve().unwrap());
        let last = RocPoint { threshold: 0.3, false_positive_rate: 1.0, true_positive_rate: 1.0 };
        assert_eq!((roc[0].false_positive_rate, roc[0].true_positive_rate, roc[2]), (0.0, 0.0, last));
        assert_eq!((pr[0].recall, pr[0].precision), (0.0, 1.0));
        assert_eq!(pr[2], PrPoint { threshold: 0.3, recall: 1.0, precision: 1.0 / 3.0 });
    }

    #[test]
    fn a_missing_class_is_a_typed_error() {
        for labels in [[1, 1], [0, 0]] {
            for metric in [roc_auc, average_precision] {
                let error = metric(&[0.1, 0.2], &labels).unwrap_err();
                assert!(matches!(&error, Error::Data { found, .. } if found.contains('2')), "{error}");
            }
            assert!(Ranking::new(&[0.1, 0.2], &labels).unwrap().roc_curve().is_none());
        }
    }

    #[test]
    fn unusable_input_is_a_typed_error_that_says_where() {
        let error = Ranking::new(&[0.1, f32::NAN, f32::NAN], &[0, 1, 0]).unwrap_err();
        assert!(error.to_string().starts_with("score 1 of 3: expected finite scores, found NaN (2 scores"), "{error}");
        assert!(matches!(Ranking::new(&[f32::INFINITY], &[0]), Err(Error::Data { .. })));
        let error = Ranking::new(&[0.1, 0.2], &[0, 2]).unwrap_err();
        assert!(
            error.to_string().starts_with("label 1 of 2: expected 0 (normal) or 1 (anomalous), found 2"),
            "{error}"
        );
        assert!(matches!(Ranking::new(&[0.1, 0.2], &[0]), Err(Error::Data { .. })));
    }
}
