//! Several models side by side: each on its own test labels, such as those of windows in turn, or all on one list of
//! labels, such as an old and a new model on what came after both.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Comparison, Scores, compare, divided, divided_classes};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::graph::{Dataset, TimeWindow, date};
use crate::metrics::{ClassReport, Report, share, write_table};
use crate::run::RunDir;
use crate::run::bundle::Bundle;
use crate::run::evaluation::{Evaluation, class_report, class_test_of_run, report};
use crate::run::model::model_of;

/// Figures of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFigures {
    pub run: PathBuf,
    /// Times of the labels that the figures are about, where they have some: from, and up to but not including.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_until: Option<[i64; 2]>,
    pub report: Figures,
}

/// What labels say of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(clippy::large_enum_variant, reason = "one for each of a few models")]
pub enum Figures {
    /// Of scores of anomalies.
    Anomalies(Report),
    /// Of predicted classes.
    Classes(ClassReport),
}

/// Figures of several models, all of anomalies or all of classes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideBySide {
    /// Whether all figures are about the same labels.
    pub same_labels: bool,
    pub models: Vec<ModelFigures>,
}

/// A finished run of Stage 2 or 3 or of node classification with what it said of itself.
pub struct Judged {
    pub run: RunDir,
    config: RunConfig,
    /// On its test labels.
    test: Figures,
    /// Above which a node is anomalous; none of classes.
    threshold: f64,
    times: Option<TimeWindow>,
}

impl Judged {
    /// Opens a run.
    ///
    /// # Errors
    /// [`Error::Usage`] for a run that is not finished or that labels cannot judge; what [`Bundle::open`] refuses.
    pub fn open(run: &Path) -> Result<Self> {
        let run = RunDir::open(&model_of(run)?)?;
        let config = RunConfig::load_kept(&run.config(), &[])?;
        let times = Bundle::open(run.path())?.and_then(|bundle| bundle.times);
        let own = match &config {
            RunConfig::Classify(_) => class_test_of_run(&run)?.map(|test| (Figures::Classes(test), f64::NAN)),
            _ => Evaluation::of_run(&run)?.map(|own| (Figures::Anomalies(own.test), own.threshold)),
        };
        let Some((test, threshold)) = own else {
            return Err(Error::Usage {
                argument: run.path().display().to_string(),
                expected: "a finished run of stage 2, stage 3 or classify".into(),
                found: "a run without an evaluation by labels".into(),
                help: "give a run that scores how anomalous nodes are, or that classifies them".into(),
            });
        };
        Ok(Self { run, config, test, threshold, times })
    }

    /// What it reached on its own test labels.
    pub fn own_figures(&self) -> ModelFigures {
        let from_until = self.times.map(|times| times.test);
        ModelFigures { run: self.run.path().to_owned(), from_until, report: self.test.clone() }
    }

    /// What its `scores` reach on the labelled nodes that `counts` names, of other data or left out of its training.
    ///
    /// # Errors
    /// [`Error::Data`] for labels that it has learned from, and without any.
    pub fn figures(
        &self,
        dataset: &Dataset,
        data: &Path,
        scores: &Scores,
        counts: impl Fn(u32) -> bool,
    ) -> Result<ModelFigures> {
        let anomalies = if let Scores::Anomaly(scores) = scores { &scores[..] } else { &[] };
        let Comparison { same_data, warnings } = compare(&self.run, dataset, anomalies, data, None)?;
        warnings.iter().for_each(|warning| log::warn!("warning: {}: {warning}", self.run.path().display()));
        let (nodes, report) = match scores {
            Scores::Anomaly(scores) => {
                let labels = dataset.binary_labels(data)?;
                let entries: Vec<_> = labels.entries.iter().filter(|(node, _)| counts(*node)).copied().collect();
                check_any(entries.len(), data)?;
                let report = report(scores, dataset, &entries, self.threshold)?;
                (nodes_of(&entries), Figures::Anomalies(report))
            }
            Scores::Classes(values) => {
                let classes = dataset.node_classes(data)?;
                let entries: Vec<_> = classes.labelled().filter(|(node, _)| counts(*node)).collect();
                check_any(entries.len(), data)?;
                let rows: Vec<f32> = values.iter().copied().collect();
                let report = class_report(&rows, values.ncols(), &entries)?;
                (nodes_of(&entries), Figures::Classes(report))
            }
        };
        self.check_unseen(dataset, &nodes, same_data)?;
        let times = || nodes.iter().filter_map(|&node| dataset.events.as_ref()?.time_of(node));
        Ok(ModelFigures {
            run: self.run.path().to_owned(),
            from_until: times().min().zip(times().max()).map(|(first, last)| [first, last + 1]),
            report,
        })
    }

    fn check_unseen(&self, dataset: &Dataset, nodes: &[u32], same_data: bool) -> Result<()> {
        let refuse = |expected: String, found: String, help: &str| {
            let what = format!("labels for {}", self.run.path().display());
            Err(Error::Data { what, expected, found, help: help.into() })
        };
        let help = "its figures would flatter; take later labels (--since)";
        let time = |node| dataset.events.as_ref().and_then(|events| events.time_of(node));
        if let Some(end) = self.times.map(|times| times.known_until()) {
            let seen = nodes.iter().filter(|node| time(**node).is_none_or(|time| time < end)).count();
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
        let test: Option<Vec<u32>> = match &self.test {
            Figures::Anomalies(_) => divided(&self.config, dataset)?.map(|split| nodes_of(&split.test)),
            Figures::Classes(_) => divided_classes(&self.config, dataset)?.map(|split| nodes_of(&split.test)),
        };
        let Some(test) = test else { return Ok(()) };
        let seen = nodes.iter().filter(|node| test.binary_search(node).is_err()).count();
        match seen {
            0 => Ok(()),
            _ => refuse("test labels of its own split".into(), format!("{seen} others"), "its figures would flatter"),
        }
    }
}

fn nodes_of<L>(entries: &[(u32, L)]) -> Vec<u32> {
    entries.iter().map(|(node, _)| *node).collect()
}

/// Refuses to judge without labels.
fn check_any(labels: usize, data: &Path) -> Result<()> {
    if labels > 0 {
        return Ok(());
    }
    Err(Error::Data {
        what: format!("labels of {}", data.display()),
        expected: "some of the time that is asked for, or of the test part".into(),
        found: "none".into(),
        help: "give an earlier --since or a later --until".into(),
    })
}

impl ModelFigures {
    /// Counts of the labels that the figures are about, by the names of their columns in a table.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        match &self.report {
            Figures::Anomalies(Report { overall, .. }) => {
                vec![("labels", overall.positives + overall.negatives), ("anomalous", overall.positives)]
            }
            Figures::Classes(report) => vec![("labels", report.nodes)],
        }
    }

    /// Figures by the names of their columns in a table. Of anomalies ROC-AUC, average precision, precision of the 100
    /// highest, F1, share of a day's alerts that are right, and of the fraudulent amount that they stop.
    pub fn shown(&self) -> Vec<(&'static str, Option<f64>)> {
        match &self.report {
            Figures::Anomalies(Report { overall, alerts, .. }) => vec![
                ("ROC-AUC", overall.roc_auc),
                ("average precision", overall.average_precision),
                ("P@100", overall.at_100.map(|top| top.precision)),
                ("F1", overall.f1),
                ("alerts", alerts.map(|alerts| alerts.precision)),
                ("stopped", alerts.and_then(|alerts| alerts.stopped)),
            ],
            Figures::Classes(report) => {
                vec![("accuracy", Some(report.accuracy)), ("macro F1", Some(report.macro_f1))]
            }
        }
    }
}

impl SideBySide {
    /// Sets figures side by side, which are about the `same_labels` or each about those of its own model.
    ///
    /// # Errors
    /// [`Error::Usage`] for figures of anomalies and of classes.
    pub fn new(same_labels: bool, models: Vec<ModelFigures>) -> Result<Self> {
        let of_classes = |model: &&ModelFigures| matches!(model.report, Figures::Classes(_));
        let classes = models.iter().filter(of_classes).count();
        if let Some(other) = models.iter().find(of_classes).filter(|_| classes < models.len()) {
            return Err(Error::Usage {
                argument: other.run.display().to_string(),
                expected: "runs that all score anomalies, or that all classify".into(),
                found: "a classification beside scores of anomalies".into(),
                help: "leave one kind out: they have no figure in common".into(),
            });
        }
        Ok(Self { same_labels, models })
    }
}

impl fmt::Display for SideBySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.models.first() else { return Ok(()) };
        let counts = first.counts();
        let names = counts.iter().map(|(name, _)| *name).chain(first.shown().into_iter().map(|(name, _)| name));
        let mut rows = vec![["model"].into_iter().chain(names).map(String::from).collect::<Vec<_>>()];
        let all: Vec<Vec<Option<f64>>> =
            self.models.iter().map(|model| model.shown().into_iter().map(|(_, figure)| figure).collect()).collect();
        for (model, figures) in self.models.iter().zip(&all) {
            let mut row = vec![model.run.file_name().unwrap_or_default().to_string_lossy().into_owned()];
            row.extend(model.counts().iter().map(|(_, count)| count.to_string()));
            row.extend(figures.iter().copied().map(share));
            rows.push(row);
        }
        if !self.same_labels && all.len() > 1 {
            for (name, summary) in [("mean", mean as fn(&[f64]) -> f64), ("standard deviation", deviation)] {
                let mut row = vec![name.to_owned()];
                row.extend(counts.iter().map(|_| String::new()));
                row.extend((0..all[0].len()).map(|at| {
                    let values: Option<Vec<f64>> = all.iter().map(|figures| figures[at]).collect();
                    share(values.map(|values| summary(&values)))
                }));
                rows.push(row);
            }
        }
        write_table(f, &rows)?;
        let span = |[from, until]: [i64; 2]| format!("{} to {}", date(from), date(until));
        match (self.same_labels, first.from_until) {
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
        match first.report {
            Figures::Anomalies(_) => writeln!(f, "F1 at the threshold of each model's own validation labels"),
            Figures::Classes(_) => Ok(()),
        }
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
