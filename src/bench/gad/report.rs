//! Figures of models over splits.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::protocol::Protocol;
use crate::bench::accuracy::Spread;
use crate::error::Result;
use crate::metrics::{Ranking, average_precision, roc_auc};

/// Quality of scores on one part of one split, each in \[0, 1\].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Area under the ROC curve.
    pub auroc: f64,
    /// Average precision; settings are chosen by it.
    pub auprc: f64,
    /// Share of the K anomalous nodes that are among the K highest scores.
    pub recall_at_k: f64,
}

impl Figures {
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) for a score that is not finite or a missing class.
    pub(super) fn of(scores: &[f32], labels: &[u8]) -> Result<Self> {
        let ranking = Ranking::new(scores, labels)?;
        let recall = ranking.top_k(ranking.positives()).and_then(|top| top.recall);
        Ok(Self {
            auroc: roc_auc(scores, labels)?,
            auprc: average_precision(scores, labels)?,
            recall_at_k: recall.unwrap_or(0.0),
        })
    }
}

/// [`Figures`] over the splits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FiguresSpread {
    pub auroc: Spread,
    pub auprc: Spread,
    pub recall_at_k: Spread,
}

impl FiguresSpread {
    fn of(figures: impl Iterator<Item = Figures> + Clone) -> Self {
        Self {
            auroc: Spread::of(figures.clone().map(|figures| figures.auroc)),
            auprc: Spread::of(figures.clone().map(|figures| figures.auprc)),
            recall_at_k: Spread::of(figures.map(|figures| figures.recall_at_k)),
        }
    }
}

/// One model on one split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    /// Of the split and of the model.
    pub seed: u64,
    /// The candidate, or the one that the validation nodes chose.
    pub setting: String,
    pub validation: Figures,
    pub test: Figures,
    /// Time of the training, of what is chosen that of all candidates. The first of several models on the same columns
    /// makes them.
    pub seconds: f64,
}

/// One model on all splits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelReport {
    pub model: &'static str,
    /// Features that it sees.
    pub columns: usize,
    pub validation: FiguresSpread,
    pub test: FiguresSpread,
    /// Time of all splits.
    pub seconds: f64,
    pub splits: Vec<SplitReport>,
}

impl ModelReport {
    pub(super) fn new(model: &'static str, columns: usize, splits: Vec<SplitReport>) -> Self {
        Self {
            model,
            columns,
            validation: FiguresSpread::of(splits.iter().map(|split| split.validation)),
            test: FiguresSpread::of(splits.iter().map(|split| split.test)),
            seconds: splits.iter().map(|split| split.seconds).sum(),
            splits,
        }
    }
}

/// All models of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GadReport {
    pub data: PathBuf,
    pub protocol: Protocol,
    /// Where the splits come from.
    pub splits: &'static str,
    pub nodes: usize,
    /// Of all relations, as they were read: without added self-loops.
    pub edges: usize,
    pub labelled: usize,
    pub anomalous: usize,
    /// What computed features and networks.
    pub device: String,
    pub models: Vec<ModelReport>,
    pub total_seconds: f64,
}

impl fmt::Display for GadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, edges, labelled, anomalous, .. } = self;
        let splits = self.models.first().map_or(0, |model| model.splits.len());
        writeln!(f, "{}, protocol {}, {splits} splits, {}", self.data.display(), self.protocol.name(), self.device)?;
        writeln!(
            f,
            "{nodes} nodes, {edges} edges; {anomalous} of {labelled} labelled nodes anomalous; splits: {}",
            self.splits
        )?;
        writeln!(
            f,
            "\n{:<22} {:>8}  {:>14} {:>14} {:>14}  {:>14}  {:>8}",
            "test, in %", "features", "AUROC", "AUPRC", "Rec@K", "validation", "seconds"
        )?;
        for model in &self.models {
            let [auroc, auprc, recall] =
                [model.test.auroc, model.test.auprc, model.test.recall_at_k].map(|spread| percent(&spread));
            writeln!(
                f,
                "{:<22} {:>8}  {auroc:>14} {auprc:>14} {recall:>14}  {:>14}  {:>8.1}",
                model.model,
                model.columns,
                percent(&model.validation.auprc),
                model.seconds
            )?;
        }
        writeln!(
            f,
            "\nmean +- standard deviation over splits; gadbench-*: its settings; forest, booster: chosen by the AUPRC of validation nodes"
        )?;
        writeln!(f, "{:.1} s in all", self.total_seconds)
    }
}

fn percent(spread: &Spread) -> String {
    format!("{:.2} +- {:.2}", spread.mean * 100.0, spread.standard_deviation * 100.0)
}
