//! What a logistic regression on the raw features reaches, for comparison.

use ndarray::Array2;

use crate::data::logistic::LogisticRegression;
use crate::data::split::Split;
use crate::error::Result;
use crate::graph::Dataset;
use crate::metrics::roc_auc;

/// Strengths of the L2 penalty of the baseline; the best on the validation part is taken.
const PENALTIES: [f64; 4] = [0.1, 1.0, 10.0, 100.0];

/// Test ROC-AUC of a logistic regression on the raw features; `None` without features.
///
/// # Errors
/// As for [`baseline_scores`].
pub fn baseline_auc(dataset: &Dataset, split: &Split) -> Result<Option<f64>> {
    let Some(scores) = baseline_scores(dataset, split)? else { return Ok(None) };
    roc_auc(&scores, &split.test.iter().map(|(_, label)| *label).collect::<Vec<u8>>()).map(Some)
}

/// Scores that a logistic regression on the raw features gives to the test part of `split`, in its order; `None`
/// without features. The strength of its penalty is chosen on the validation part.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) when a part lacks a class.
pub fn baseline_scores(dataset: &Dataset, split: &Split) -> Result<Option<Vec<f32>>> {
    let Some(features) = &dataset.features else { return Ok(None) };
    let rows = |part: &[(u32, u8)]| {
        let values = part.iter().flat_map(|(node, _)| features.row(*node as usize)).collect();
        Array2::from_shape_vec((part.len(), features.dim()), values)
            .unwrap_or_else(|e| unreachable!("whole rows of features: {e}"))
    };
    let labels = |part: &[(u32, u8)]| part.iter().map(|(_, label)| *label).collect::<Vec<u8>>();
    let (train, validation) = (rows(&split.train), rows(&split.validation));
    let mut best: Option<(f64, LogisticRegression)> = None;
    for penalty in PENALTIES {
        let fitted = LogisticRegression::fit(train.view(), &labels(&split.train), penalty)?;
        let auc = roc_auc(&fitted.scores(validation.view()), &labels(&split.validation))?;
        if best.as_ref().is_none_or(|(so_far, _)| auc > *so_far) {
            best = Some((auc, fitted));
        }
    }
    Ok(best.map(|(_, fitted)| fitted.scores(rows(&split.test).view())))
}
