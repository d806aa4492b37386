//! What a logistic regression on the raw features reaches, for comparison.

use std::fmt;
use std::sync::atomic::AtomicBool;

use ndarray::Array2;
use serde::{Deserialize, Serialize};

use super::RunDir;
use super::evaluation::EVALUATION_FILE;
use super::ranked::{LabelledEvents, Ranked};
use crate::config::RankingMetric;
use crate::data::logistic::LogisticRegression;
use crate::data::split::Split;
use crate::error::Result;
use crate::graph::Dataset;
use crate::graph::json::read_json;
use crate::metrics::{Report, roc_auc};
use crate::timing::timed;

/// Strengths of the L2 penalty of the baseline; the best on the validation part is taken.
const PENALTIES: [f64; 4] = [0.1, 1.0, 10.0, 100.0];

/// A logistic regression on the raw features, whose penalty was chosen by ROC-AUC on the validation part.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// On the validation part.
    pub validation: Ranked,
    /// ROC-AUC on the test part.
    pub test_auc: f64,
    /// Of the test part, in its order.
    pub test_scores: Vec<f32>,
}

impl Baseline {
    /// Fits it to the training part of `split`; `None` without features. It reads missing values as networks do, see
    /// [`Filling`](crate::graph::Filling).
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when a part lacks a class.
    pub fn of(dataset: &Dataset, split: &Split) -> Result<Option<Self>> {
        Self::unless(&AtomicBool::new(false), dataset, split)
    }

    /// [`of`](Self::of), which ends soon, with any result, once that is `unwanted`.
    ///
    /// # Errors
    /// As for [`of`](Self::of).
    pub fn unless(unwanted: &AtomicBool, dataset: &Dataset, split: &Split) -> Result<Option<Self>> {
        let (Some(features), Some(filling)) = (&dataset.features, dataset.filling(None)?) else { return Ok(None) };
        let rows = |part: &[(u32, u8)]| {
            let nodes: Vec<u32> = part.iter().map(|(node, _)| *node).collect();
            let filled = filling.fill(&features.select(&nodes));
            let values = (0..nodes.len()).flat_map(|row| filled.row(row)).collect();
            Array2::from_shape_vec((part.len(), filled.dim()), values)
                .unwrap_or_else(|e| unreachable!("whole rows of features: {e}"))
        };
        let labels = |part: &[(u32, u8)]| part.iter().map(|(_, label)| *label).collect::<Vec<u8>>();
        let (train, validation) = (rows(&split.train), rows(&split.validation));
        let of_validation = labels(&split.validation);
        let of_train = labels(&split.train);
        let mut best: Option<(f64, LogisticRegression)> = None;
        for fitted in LogisticRegression::fit_each(train.view(), &of_train, PENALTIES, unwanted)? {
            let auc = roc_auc(&fitted.scores(validation.view()), &of_validation)?;
            if best.as_ref().is_none_or(|(so_far, _)| auc > *so_far) {
                best = Some((auc, fitted));
            }
        }
        let Some((_, fitted)) = best else { return Ok(None) };
        let events = LabelledEvents::of(dataset, &split.validation);
        let validation = Ranked::of(&fitted.scores(validation.view()), &of_validation, &events)?;
        let test_scores = fitted.scores(rows(&split.test).view());
        let test_auc = roc_auc(&test_scores, &labels(&split.test))?;
        Ok(Some(Self { validation, test_auc, test_scores }))
    }
}

/// What the outcome of a training says of the regression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BesideBaseline {
    /// Its ROC-AUC on the test part.
    pub baseline_auc: Option<f64>,
    pub baseline_validation: Option<OnValidation>,
}

impl BesideBaseline {
    /// Of a model with these `scores`, by global id, which `metric` chose on the validation part of `split`.
    ///
    /// # Errors
    /// As for [`Baseline::of`].
    pub fn of(dataset: &Dataset, split: &Split, metric: RankingMetric, scores: &[f32]) -> Result<Self> {
        let baseline = timed("the logistic regression", || Baseline::of(dataset, split))?;
        Self::with(baseline.as_ref(), dataset, split, metric, scores)
    }

    /// [`of`](Self::of) a regression that is fitted already; of none where there are no features.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when the validation part lacks a class.
    pub fn with(
        baseline: Option<&Baseline>,
        dataset: &Dataset,
        split: &Split,
        metric: RankingMetric,
        scores: &[f32],
    ) -> Result<Self> {
        let Some(baseline) = baseline else { return Ok(Self::default()) };
        let (scores, labels): (Vec<f32>, Vec<u8>) =
            split.validation.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
        let model = Ranked::of(&scores, &labels, &LabelledEvents::of(dataset, &split.validation))?;
        Ok(Self {
            baseline_auc: Some(baseline.test_auc),
            baseline_validation: OnValidation::of(metric, &model, &baseline.validation),
        })
    }
}

/// Lines at the end of a training.
impl fmt::Display for BesideBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(auc) = self.baseline_auc {
            writeln!(f, "logistic regression on raw features: test ROC-AUC {auc:.4}")?;
        }
        match self.baseline_validation.and_then(|compared| compared.warning()) {
            Some(warning) => writeln!(f, "warning: {warning}"),
            None => Ok(()),
        }
    }
}

/// On the validation labels, of the metric that chose a model on them: of the model and of the logistic regression.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnValidation {
    pub metric: RankingMetric,
    pub model: f64,
    #[serde(rename = "value")]
    pub baseline: f64,
}

/// What this reads of the outcome of a training.
#[derive(Deserialize)]
struct Stored {
    evaluation: Option<Parts>,
    baseline_validation: Option<StoredOnValidation>,
    /// Of an earlier version, which compared no other metric.
    baseline_validation_auc: Option<f64>,
}

#[derive(Deserialize)]
struct StoredOnValidation {
    metric: RankingMetric,
    /// An earlier version left it to the evaluation.
    model: Option<f64>,
    value: f64,
}

#[derive(Deserialize)]
struct Parts {
    validation: Report,
}

impl OnValidation {
    /// `None` for a metric that the labels do not have.
    fn of(metric: RankingMetric, model: &Ranked, baseline: &Ranked) -> Option<Self> {
        Some(Self { metric, model: model.by(metric)?, baseline: baseline.by(metric)? })
    }

    /// What a finished run left; `None` for Stage 1, for a classification of several classes, and for a run of an
    /// earlier version.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(run: &RunDir) -> Result<Option<Self>> {
        let file = run.output(EVALUATION_FILE);
        if !file.is_file() {
            return Ok(None);
        }
        let value: serde_json::Value = read_json(&file, "the outcome of a training", "train again")?;
        let Ok(stored) = serde_json::from_value::<Stored>(value) else { return Ok(None) };
        let of_earlier = |value: f64| StoredOnValidation { metric: RankingMetric::Auroc, model: None, value };
        let compared = stored.baseline_validation.or(stored.baseline_validation_auc.map(of_earlier));
        let evaluated = stored.evaluation.map(|parts| Ranked::from(&parts.validation));
        Ok(compared.and_then(|StoredOnValidation { metric, model, value }| {
            Some(Self { metric, model: model.or_else(|| evaluated?.by(metric))?, baseline: value })
        }))
    }

    /// In plain words, where the model does not beat the regression.
    pub fn warning(&self) -> Option<String> {
        let Self { metric, model, baseline } = self;
        let metric = metric.title();
        (model <= baseline).then(|| {
            format!(
                "This model is no better than a logistic regression that sees no graph: {metric} {model:.4} on the \
                 validation labels, the regression {baseline:.4}. Do not rely on its scores."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::graph::{Features, HeteroGraph};
    use crate::metrics::evaluate;
    use crate::run::Meta;

    #[test]
    fn the_regression_has_a_figure_on_both_parts() {
        let graph = HeteroGraph::new(vec![("node".into(), 40)], Vec::new()).unwrap();
        let values = (0..40).map(|node| if node % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let dataset = Dataset::new(graph, Some(Features::from_f32(values, 40, 1)), None, None);
        let part = |nodes: std::ops::Range<u32>| nodes.map(|node| (node, u8::from(node % 2 == 0))).collect::<Vec<_>>();
        let split = Split { train: part(0..20), validation: part(20..30), test: part(30..40) };
        let found = Baseline::of(&dataset, &split).unwrap().unwrap();
        assert_eq!((found.test_auc, found.test_scores.len()), (1.0, 10));
        let scores: Vec<f32> = (0..40).map(|node| if node < 26 { 0.0 } else { node as f32 }).collect();
        let beside = |dataset: &Dataset, metric| BesideBaseline::of(dataset, &split, metric, &scores).unwrap();
        for metric in [RankingMetric::Auroc, RankingMetric::AveragePrecision] {
            let BesideBaseline { baseline_auc, baseline_validation } = beside(&dataset, metric);
            let compared = baseline_validation.unwrap();
            assert_eq!((baseline_auc, compared.metric, compared.baseline), (Some(1.0), metric, 1.0));
            assert!(compared.model < 1.0 && compared.warning().is_some(), "{compared:?}");
        }
        let alerts = beside(&dataset, RankingMetric::Alerts);
        assert_eq!((alerts.baseline_auc, alerts.baseline_validation), (Some(1.0), None), "no events");
        let bare = Dataset { features: None, ..dataset };
        assert_eq!(Baseline::of(&bare, &split).unwrap(), None);
        assert_eq!(beside(&bare, RankingMetric::Auroc), BesideBaseline::default());
    }

    #[test]
    fn the_regression_reads_where_a_value_is_missing() {
        let graph = HeteroGraph::new(vec![("node".into(), 40)], Vec::new()).unwrap();
        // That a value is missing is all that tells.
        let values = (0..40).map(|node| if node % 2 == 0 { f32::NAN } else { 1.0 }).collect();
        let dataset = Dataset::new(graph, Some(Features::from_f32(values, 40, 1)), None, None);
        let part = |nodes: std::ops::Range<u32>| nodes.map(|node| (node, u8::from(node % 2 == 0))).collect::<Vec<_>>();
        let split = Split { train: part(0..20), validation: part(20..30), test: part(30..40) };
        assert_eq!(Baseline::of(&dataset, &split).unwrap().unwrap().test_auc, 1.0);
    }

    #[test]
    fn a_model_that_does_not_beat_the_regression_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "a", "", Meta::now("cpu", 1)).unwrap();
        assert_eq!(OnValidation::read(&run).unwrap(), None, "not finished");
        let report = evaluate(&[0.9, 0.6, 0.8, 0.1], &[1, 1, 0, 0], &[], 0.5).unwrap();
        let write = |baseline: serde_json::Value| {
            let outcome =
                serde_json::json!({ "evaluation": { "validation": report }, "baseline_validation_auc": baseline });
            fs::write(run.output("evaluation.json"), outcome.to_string()).unwrap();
            OnValidation::read(&run).unwrap()
        };
        assert_eq!(write(serde_json::Value::Null), None, "a run of an earlier version");
        let found = write(0.75.into()).unwrap();
        assert_eq!(found, OnValidation { metric: RankingMetric::Auroc, model: 0.75, baseline: 0.75 });
        let said = found.warning().unwrap();
        assert!(said.contains("ROC-AUC 0.7500 on the validation labels, the regression 0.7500"), "{said}");
        assert_eq!(write(0.7.into()).unwrap().warning(), None);
        // What chose the model decides: the average precision of these scores is 5/6.
        let by = |metric: &str, value: f64| {
            let outcome = serde_json::json!({
                "evaluation": { "validation": report },
                "baseline_validation": { "metric": metric, "value": value },
            });
            fs::write(run.output("evaluation.json"), outcome.to_string()).unwrap();
            OnValidation::read(&run).unwrap().unwrap().warning()
        };
        assert_eq!(by("average_precision", 0.8), None);
        let said = by("average_precision", 0.85).unwrap();
        assert!(said.contains("average precision 0.8333 on the validation labels, the regression 0.8500"), "{said}");
        assert_eq!(by("auroc", 0.7), None);
        // A classification has other figures of its parts.
        let classified = |compared: Option<OnValidation>| {
            let outcome = serde_json::json!({ "validation": { "accuracy": 1.0 }, "baseline_validation": compared });
            fs::write(run.output("evaluation.json"), outcome.to_string()).unwrap();
            OnValidation::read(&run).unwrap()
        };
        for compared in [None, Some(found)] {
            assert_eq!(classified(compared), compared);
        }
    }
}
