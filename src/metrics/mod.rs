//! Quality of anomaly scores against labels: ranking (ROC-AUC, average precision, top K), decisions at a threshold,
//! the report that joins them per node type, what a day's alerts find, and how far these figures can be trusted
//! (bootstrap, reliability). Predicted classes, where there are more than two, have a report of their own.
//!
//! A label is 1 for an anomalous node and 0 for a normal one; a higher score means more anomalous. Everything here is
//! a function of the ranks of distinct scores, so the order of the input and the number of threads never matter.

mod alerts;
mod bootstrap;
mod calibration;
mod class_bootstrap;
#[cfg(test)]
mod golden;
mod logit;
mod multiclass;
mod ranking;
mod reliability;
mod report;
mod threshold;
mod two_sample;

pub use alerts::{ALERTS_PER_DAY, AlertEvent, Alerts};
pub use bootstrap::{Bootstrap, Estimate, Estimates, FEWEST, Interval, TopEstimate};
pub use calibration::{Calibration, ISOTONIC_LABELS};
pub use class_bootstrap::ClassEstimates;
pub use logit::{score_of, scores_of, sigmoid, sigmoid_f64, softplus};
pub use multiclass::{ClassFigures, ClassReport, ConfusionMatrix, class_scores, log_sum_exp, predicted_class};
pub use ranking::{PrPoint, Ranking, RankingStep, RocPoint, TopK, average_precision, roc_auc};
pub use reliability::{Reliability, ReliabilityBin, wilson};
pub use report::{GroupReport, Report, TOP_K, evaluate};
pub(crate) use report::{share, write_table};
pub use threshold::{Confusion, ThresholdChoice, best_f1_threshold};
pub use two_sample::KolmogorovSmirnov;

use crate::error::{Error, Result};

/// Refuses what no metric is defined for: unequal lengths, scores that are not finite, labels other than 0 and 1.
fn check_scores(scores: &[f32], labels: &[u8]) -> Result<()> {
    if scores.len() != labels.len() {
        return Err(Error::Data {
            what: "scores and labels".into(),
            expected: format!("one label per score ({} scores)", scores.len()),
            found: format!("{} labels", labels.len()),
            help: "give the scores of the labelled nodes only, in the order of their labels".into(),
        });
    }
    if let Some(at) = scores.iter().position(|score| !score.is_finite()) {
        let bad = scores.iter().filter(|score| !score.is_finite()).count();
        return Err(Error::Data {
            what: format!("score {at} of {}", scores.len()),
            expected: "finite scores".into(),
            found: format!("{} ({bad} scores are not finite)", scores[at]),
            help: "the model that made these scores diverged; lower its learning rate or check its input features"
                .into(),
        });
    }
    if let Some(at) = labels.iter().position(|&label| label > 1) {
        return Err(Error::Data {
            what: format!("label {at} of {}", labels.len()),
            expected: "0 (normal) or 1 (anomalous)".into(),
            found: labels[at].to_string(),
            help: "map the labels to 0 and 1 and leave unlabelled nodes out".into(),
        });
    }
    Ok(())
}

/// The error of a metric that compares the two classes when one of them is missing.
fn one_class(metric: &str, positives: u64, negatives: u64) -> Error {
    Error::Data {
        what: format!("labels for {metric}"),
        expected: "at least one anomalous and one normal node".into(),
        found: format!("{positives} anomalous and {negatives} normal"),
        help: "use more labels, or a split that is stratified by class".into(),
    }
}
