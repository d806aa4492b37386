//! What a report says, as plain data: everything that is computed is in here, and rendering only arranges it.

use serde::{Deserialize, Serialize};

pub use super::question::Question;
pub use crate::data::split::Part;
use crate::metrics::{Alerts, ClassEstimates, ClassReport, Confusion, Estimate, Estimates, Reliability};
use crate::run::tournament::Tournament;
pub use crate::score::ModelFigures;
use crate::score::explain::Coverage;

/// A report about one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportData {
    /// Name of the run directory.
    pub name: String,
    /// What was trained, e.g. `Stage 2: graph attention`.
    pub stage: String,
    /// What a score of this stage is, in a sentence.
    pub score_meaning: String,
    /// What the scores are about.
    pub question: Question,
    pub run: RunFacts,
    pub data: DataFacts,
    /// Of a node classifier: how well classes are predicted.
    pub classes: Option<ClassFacts>,
    /// How the labels were divided; `None` without labels.
    pub split: Option<SplitFacts>,
    /// Figures of the test labels; `None` where there are none.
    pub held_out: Option<HeldOut>,
    /// Curves by epoch, one panel per unit.
    pub training: Vec<Panel>,
    /// Scores of all nodes and of both classes of the test labels: all types first, then each type.
    pub histograms: Vec<Histogram>,
    pub calibration: Option<CalibrationFacts>,
    /// The highest scores, in their order.
    pub anomalies: Vec<Anomaly>,
    /// Of an ensemble: which members the reasons of the list are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
    /// Nodes that have a score.
    pub scored_nodes: usize,
    /// Nodes that have a score and a label, where the list leaves them out; 0 where it does not.
    pub left_out: usize,
    pub warnings: Vec<Warning>,
    /// This run and others, each on its own test labels; empty unless others are named.
    pub beside: Vec<ModelFigures>,
    /// How the model was chosen, where it is that of a tournament.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tournament: Option<Tournament>,
}

/// Where a run comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    pub directory: String,
    pub version: String,
    pub commit: Option<String>,
    pub device: String,
    pub seed: u64,
    pub command: String,
    /// `2026-01-31T09:30:00Z`.
    pub started: String,
    /// The resolved configuration.
    pub config: String,
}

/// The graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataFacts {
    pub path: String,
    pub nodes: usize,
    pub edges: usize,
    pub feature_dim: Option<usize>,
    pub types: Vec<TypeFacts>,
    pub relations: Vec<RelationFacts>,
    /// What reading did to the data.
    pub notes: Vec<String>,
}

/// The nodes of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeFacts {
    pub name: String,
    pub nodes: usize,
    /// Nodes with a label. Where the scores are about a predicted class, neither anomalous nor normal.
    pub labelled: usize,
    pub anomalous: usize,
    pub normal: usize,
}

/// One relation; degrees are in-degrees of the destination nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelationFacts {
    pub name: String,
    pub src: String,
    pub dst: String,
    pub edges: usize,
    pub mean_degree: f64,
    pub max_degree: usize,
}

/// Labels of every part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitFacts {
    /// By what the data say that they are divided; `None` where the run divided them.
    pub rule: Option<String>,
    /// Of a model that was grown anew on training and validation labels, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refit: Option<String>,
    pub parts: Vec<PartFacts>,
}

/// Labels of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFacts {
    pub part: Part,
    /// All labels; where the scores are about a predicted class, neither anomalous nor normal.
    pub labelled: usize,
    pub anomalous: usize,
    pub normal: usize,
}

/// Predicted classes of the test nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassFacts {
    pub report: ClassReport,
    pub estimates: ClassEstimates,
}

/// Figures of the test labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// A node is flagged from this score on.
    pub threshold: f64,
    pub overall: Estimates,
    pub confusion: Confusion,
    /// Per node type that has test labels.
    pub types: Vec<TypeEstimates>,
    pub baseline: Option<Baseline>,
    pub curves: Option<Curves>,
    /// Of events: what a day's alerts find.
    pub alerts: Option<Alerts>,
}

/// Figures of one node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeEstimates {
    pub name: String,
    pub figures: Estimates,
}

/// A logistic regression on the raw features, on the same test labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub roc_auc: Estimate,
    /// `None` where only the area was kept.
    pub average_precision: Option<Estimate>,
    /// Area of the run less that of the baseline, on the same resamples.
    pub difference: Option<Estimate>,
}

/// Curves of the test labels, thinned to what a screen can show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// (false-positive rate, true-positive rate).
    pub roc: Vec<(f64, f64)>,
    /// (recall, precision).
    pub precision_recall: Vec<(f64, f64)>,
    pub baseline_roc: Vec<(f64, f64)>,
    pub baseline_precision_recall: Vec<(f64, f64)>,
    /// (false-positive rate, true-positive rate) at the threshold.
    pub at_threshold: (f64, f64),
}

/// Curves by epoch with one unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    pub title: String,
    pub unit: String,
    pub series: Vec<Series>,
}

/// A named curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Nodes by score, in bins of one width from `low` to `high`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// `all types`, or a node type.
    pub name: String,
    pub low: f64,
    pub high: f64,
    /// Scores of all nodes.
    pub all: Vec<u64>,
    /// Normal nodes of the test labels; of predicted classes those that are right.
    pub normal: Vec<u64>,
    /// Anomalous nodes of the test labels; of predicted classes those that are wrong.
    pub anomalous: Vec<u64>,
}

/// How far scores and probabilities can be taken at their word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationFacts {
    /// `Platt's sigmoid, fitted to 150 validation labels (75 anomalous)`.
    pub description: String,
    pub labels: usize,
    pub anomalous: usize,
    /// Of the score itself on the test labels.
    pub raw: Reliability,
    /// Of the calibrated probability on the test labels.
    pub calibrated: Reliability,
}

/// A node with a high score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Anomaly {
    pub rank: usize,
    /// Global number.
    pub node: u32,
    pub node_type: String,
    /// The id of the raw data, or the number within the type.
    pub id: String,
    /// Of an edge of the raw data: from where to where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<String>,
    pub score: f64,
    pub probability: Option<f64>,
    /// Whether the label says anomalous, and the part that the label is in. In the list of a node classifier, whether
    /// the class that is known is another than the one that is predicted.
    pub label: Option<(bool, Option<Part>)>,
    /// Of a node classifier.
    pub class: Option<NodeClass>,
    pub explanation: Option<Explained>,
}

/// The class of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClass {
    pub predicted: u32,
    pub known: Option<u32>,
}

/// Why a node has its score.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// A drawing of the neighbourhood. It is put into the page as it is: its maker has escaped every text.
    pub svg: String,
    /// One sentence each, the weightiest first.
    pub reasons: Vec<String>,
    /// What the numbers are.
    pub note: String,
}

/// Something that makes the figures worth less than they look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub title: String,
    pub text: String,
}
