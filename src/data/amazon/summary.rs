//! What a preparation found and made.

use std::fmt;

use serde::Serialize;

use super::json_lines::LineReport;
use super::weak_labels::ReasonCounts;
use crate::graph::{HeteroGraph, Labels};

/// What [`prepare`](super::prepare) read, skipped and made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrepareSummary {
    pub metadata: LineReport,
    pub reviews: LineReport,
    /// Metadata records dropped because an earlier one had the same `asin`.
    pub duplicate_products: u64,
    /// Reviews dropped because the metadata does not list their product.
    pub unknown_product_reviews: u64,
    /// Reviews dropped as repetitions: same user, product, time, rating and text.
    pub duplicate_reviews: u64,
    /// Reviews used.
    pub used_reviews: u64,
    pub users: usize,
    pub products: usize,
    pub sellers: usize,
    pub relations: Vec<RelationCount>,
    pub labels: LabelSummary,
}

/// Entries of one relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelationCount {
    pub name: String,
    pub entries: usize,
}

/// Labels by node type, and where they come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabelSummary {
    /// `true`: heuristic labels; `false`: read from the user's file.
    pub weak: bool,
    /// One sentence that every output showing the labels should carry.
    pub note: String,
    pub by_type: Vec<ClassCounts>,
    /// Nodes found by each heuristic; absent for the user's labels.
    pub reasons: Option<ReasonCounts>,
}

/// Labelled nodes of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    pub node_type: String,
    pub anomalous: usize,
    pub normal: usize,
}

impl LabelSummary {
    /// Counts `labels` by the node types of `graph`; `reasons` marks them as weak.
    pub(super) fn new(labels: &Labels, graph: &HeteroGraph, reasons: Option<ReasonCounts>) -> Self {
        let mut by_type: Vec<ClassCounts> = graph
            .node_types()
            .iter()
            .map(|node_type| ClassCounts { node_type: node_type.name.clone(), anomalous: 0, normal: 0 })
            .collect();
        for &(id, class) in &labels.entries {
            let counts = &mut by_type[graph.type_of(id as usize)];
            *(if class == 1 { &mut counts.anomalous } else { &mut counts.normal }) += 1;
        }
        let note = match (reasons, labels.entries.is_empty()) {
            (None, _) => "The labels are those of the label file.",
            (Some(_), false) => {
                "The labels are weak: heuristics made them, nobody verified them. Measures on them say how well a \
                 model agrees with the heuristics, not how much fraud it finds."
            }
            (Some(_), true) => {
                "There are no labels: no heuristic found an anomaly. Lower the thresholds or give a label file."
            }
        };
        Self { weak: reasons.is_some(), note: note.into(), by_type, reasons }
    }
}

impl fmt::Display for PrepareSummary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write_lines(f, "metadata", &self.metadata)?;
        writeln!(f, "           {} with a repeated id dropped", self.duplicate_products)?;
        write_lines(f, "reviews", &self.reviews)?;
        writeln!(
            f,
            "           {} of unknown products dropped, {} repetitions dropped, {} used",
            self.unknown_product_reviews, self.duplicate_reviews, self.used_reviews
        )?;
        writeln!(f, "nodes      {} users, {} products, {} sellers", self.users, self.products, self.sellers)?;
        let relations: Vec<String> = self.relations.iter().map(|r| format!("{} {}", r.name, r.entries)).collect();
        writeln!(f, "entries    {}", relations.join(", "))?;
        let labels: Vec<String> = self
            .labels
            .by_type
            .iter()
            .map(|counts| format!("{} {} anomalous / {} normal", counts.node_type, counts.anomalous, counts.normal))
            .collect();
        writeln!(f, "labels     {}", labels.join(", "))?;
        if let Some(reasons) = &self.labels.reasons {
            writeln!(
                f,
                "  by rule  product: too cheap {}, unverified {}, core >= {:.1} {}; user: core >= {:.1} and unverified \
                 {}, burst {}",
                reasons.product_too_cheap,
                reasons.product_unverified,
                reasons.product_core_threshold,
                reasons.product_dense_core,
                reasons.user_core_threshold,
                reasons.user_dense_core,
                reasons.user_burst
            )?;
        }
        write!(f, "           {}", self.labels.note)
    }
}

fn write_lines(f: &mut fmt::Formatter, name: &str, report: &LineReport) -> fmt::Result {
    write!(f, "{name:<10} {} lines, {} malformed skipped", report.lines, report.malformed)?;
    if report.malformed > 0 {
        let first: Vec<String> = report.first_malformed.iter().map(u64::to_string).collect();
        let more = if report.malformed as usize > first.len() { ", ..." } else { "" };
        write!(f, " (line {}{more})", first.join(", "))?;
    }
    writeln!(f)
}
