//! Several models side by side: each on its own test labels, such as those of windows in turn, or all on one list of
//! labels, such as an old and a new model on what came after both.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Comparison, compare};
use crate::config::RunConfig;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::{Dataset, TimeWindow, date};
use crate::metrics::{Report, share, write_table};
use crate::run::RunDir;
use crate::run::bundle::Bundle;
use crate::run::evaluation::{Evaluation, report};
use crate::run::tournament::model_of;

/// Figures of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFigures {
    pub run: PathBuf,
    /// Times of the labels that the figures are about, where they have some: from, and up to but not including.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_until: Option<[i64; 2]>,
    pub report: Report,
}

/// Figures of several models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideBySide {
    /// Whether all figures are about the same labels.
    pub same_labels: bool,
    pub models: Vec<ModelFigures>,
}

/// A finished run of Stage 2 or 3 with what it said of itself.
pub struct Judged {
    pub run: RunDir,
    pub config: RunConfig,
    pub evaluation: Evaluation,
    times: Option<TimeWindow>,
}

impl Judged {
    /// Opens a run.
    ///
    /// # Errors
    /// [`Error::Usage`] for a run that is not finished or has no scores of anomalies; what [`Bundle::open`] refuses.
    pub fn open(run: &Path) -> Result<Self> {
        let run = RunDir::open(&model_of(run)?)?;
        let config = RunConfig::load_kept(&run.config(), &[])?;
        let Some(evaluation) = Evaluation::of_run(&run)? else {
            return Err(Error::Usage {
                argument: run.path().display().to_string(),
                expected: "a finished run of stage 2 or stage 3".into(),
                found: "a run without an evaluation of anomaly scores".into(),
                help: "of a pipeline give the run of its last stage".into(),
            });
        };
        let times = Bundle::open(run.path())?.and_then(|bundle| bundle.times);
        Ok(Self { run, config, evaluation, times })
    }

    /// What it reached on its own test labels.
    pub fn own_figures(&self) -> ModelFigures {
        let from_until = self.times.map(|times| times.test);
        ModelFigures { run: self.run.path().to_owned(), from_until, report: self.evaluation.test.clone() }
    }

    /// What its `scores` of other labels, or of the labels that it left out of its training, reach.
    ///
    /// # Errors
    /// [`Error::Data`] for labels that it has learned from.
    pub fn figures(
        &self,
        dataset: &Dataset,
        data: &Path,
        scores: &[f32],
        entries: &[(u32, u8)],
    ) -> Result<ModelFigures> {
        let Comparison { same_data, warnings } = compare(&self.run, dataset, scores, data, None)?;
        warnings.iter().for_each(|warning| log::warn!("warning: {}: {warning}", self.run.path().display()));
        self.check_unseen(dataset, entries, same_data)?;
        let time = |&(node, _): &(u32, u8)| dataset.events.as_ref()?.time_of(node);
        let times = || entries.iter().filter_map(time);
        Ok(ModelFigures {
            run: self.run.path().to_owned(),
            from_until: times().min().zip(times().max()).map(|(first, last)| [first, last + 1]),
            report: report(scores, dataset, entries, self.evaluation.threshold)?,
        })
    }

    fn check_unseen(&self, dataset: &Dataset, entries: &[(u32, u8)], same_data: bool) -> Result<()> {
        let refuse = |expected: String, found: String, help: &str| {
            let what = format!("labels for {}", self.run.path().display());
            Err(Error::Data { what, expected, found, help: help.into() })
        };
        let help = "its figures would flatter; take later labels (--since)";
        let time = |node| dataset.events.as_ref().and_then(|events| events.time_of(node));
        if let Some(end) = self.times.map(|times| times.known_until()) {
            let seen = entries.iter().filter(|(node, _)| time(*node).is_none_or(|time| time < end)).count();
            return match seen {
                0 => Ok(()),
                _ => refuse(format!("labels of events from {} on", date(end)), format!("{seen} that it knew"), help),
            };
        }
        if !same_data {
            let run = self.run.path().display();
            log::warn!(
                "warning: {run} was not split by time: some of these labels may be among those that it learned from"
            );
            return Ok(());
        }
        let Some(Split { test, .. }) = super::divided(&self.config, dataset)? else { return Ok(()) };
        let seen = entries.iter().filter(|entry| test.binary_search(entry).is_err()).count();
        match seen {
            0 => Ok(()),
            _ => refuse("test labels of its own split".into(), format!("{seen} others"), "its figures would flatter"),
        }
    }
}

impl ModelFigures {
    /// Labels that the figures are about.
    pub fn labels(&self) -> u64 {
        self.report.overall.positives + self.report.overall.negatives
    }

    /// What a row of a table shows: ROC-AUC, average precision, precision of the 100 highest, F1, precision of a day's
    /// alerts, and the share of the fraudulent amount that they stop.
    pub fn shown(&self) -> [Option<f64>; 6] {
        let Report { overall, alerts, .. } = &self.report;
        [
            overall.roc_auc,
            overall.average_precision,
            overall.at_100.map(|top| top.precision),
            overall.f1,
            alerts.map(|alerts| alerts.precision),
            alerts.and_then(|alerts| alerts.stopped),
        ]
    }
}

impl fmt::Display for SideBySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["model", "labels", "anomalous", "ROC-AUC", "avg.prec", "P@100", "F1", "alerts", "stopped"];
        let mut rows = vec![head.map(String::from)];
        let row = |name: String, counts: [String; 2], figures: [Option<f64>; 6]| {
            let [auc, precision, top, f1, alerts, stopped] = figures.map(share);
            let [labels, anomalous] = counts;
            [name, labels, anomalous, auc, precision, top, f1, alerts, stopped]
        };
        for model in &self.models {
            let counts = [model.labels(), model.report.overall.positives].map(|count| count.to_string());
            let name = model.run.file_name().unwrap_or_default().to_string_lossy().into_owned();
            rows.push(row(name, counts, model.shown()));
        }
        if !self.same_labels && self.models.len() > 1 {
            let all: Vec<_> = self.models.iter().map(ModelFigures::shown).collect();
            let of = |summary: fn(&[f64]) -> f64| -> [Option<f64>; 6] {
                std::array::from_fn(|at| {
                    let values: Option<Vec<f64>> = all.iter().map(|figures| figures[at]).collect();
                    values.map(|values| summary(&values))
                })
            };
            rows.push(row("mean".into(), Default::default(), of(mean)));
            rows.push(row("standard deviation".into(), Default::default(), of(deviation)));
        }
        write_table(f, &rows)?;
        let span = |[from, until]: [i64; 2]| format!("{} to {}", date(from), date(until));
        match (self.same_labels, self.models.first().and_then(|model| model.from_until)) {
            (true, Some(of_all)) => writeln!(f, "all on the same labels, {}", span(of_all))?,
            (true, None) => writeln!(f, "all on the same labels")?,
            (false, _) => {
                for model in &self.models {
                    let Some(own) = model.from_until else { continue };
                    let name = model.run.file_name().unwrap_or_default().to_string_lossy();
                    writeln!(f, "{name}: test from {}", span(own))?;
                }
            }
        }
        writeln!(f, "F1 at the threshold of each model's own validation labels")
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of a sample: with one less than the number of values.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}
