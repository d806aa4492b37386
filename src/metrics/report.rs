//! The report of an evaluation: every metric, over all labelled nodes and per node type.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::threshold::check_threshold;
use super::{Alerts, Confusion, Ranking, TopK, check_scores};
use crate::error::{Error, Result};

/// The fixed K of precision@K and recall@K; the other K is the number of anomalous nodes.
pub const TOP_K: u64 = 100;

/// Metrics over all labelled nodes and per group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// A node is flagged when its score is at least this. Chosen on validation nodes.
    pub threshold: f64,
    /// All labelled nodes.
    pub overall: GroupReport,
    /// One entry per group (node type), in the order given.
    pub groups: Vec<GroupReport>,
    /// Of events: what a day's alerts find.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerts: Option<Alerts>,
}

/// Metrics of one group of labelled nodes. What the group is too small for is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// `overall`, or the name of the group.
    pub name: String,
    /// Anomalous nodes.
    pub positives: u64,
    /// Normal nodes.
    pub negatives: u64,
    /// Area under the ROC curve; `None` when a class is missing.
    pub roc_auc: Option<f64>,
    /// Average precision; `None` when a class is missing. Compare with `positives / (positives + negatives)`.
    pub average_precision: Option<f64>,
    /// Precision and recall of the [`TOP_K`] highest scores; `None` without nodes.
    pub at_100: Option<TopK>,
    /// Precision and recall of as many nodes as are anomalous, where the two are equal; `None` without anomalous nodes.
    pub at_positives: Option<TopK>,
    /// Confusion matrix at the threshold.
    pub confusion: Confusion,
    /// [`Confusion::precision`] at the threshold.
    pub precision: Option<f64>,
    /// [`Confusion::recall`] at the threshold.
    pub recall: Option<f64>,
    /// [`Confusion::f1`] at the threshold.
    pub f1: Option<f64>,
    /// [`Confusion::accuracy`] at the threshold.
    pub accuracy: Option<f64>,
}

/// Evaluates the `scores` of labelled nodes against their `labels` (1 anomalous, 0 normal).
///
/// `groups` are names with positions in `scores`, e.g. one per node type; they may overlap and may be empty.
/// `threshold` should come from [`best_f1_threshold`](super::best_f1_threshold) on validation nodes.
///
/// # Errors
/// [`Error::Data`] for no nodes at all, unequal lengths, a score that is not finite, a label above 1, a threshold that
/// is NaN, or a group with a position past the end. A missing class is no error: its metrics are `None`.
pub fn evaluate(scores: &[f32], labels: &[u8], groups: &[(String, Vec<usize>)], threshold: f64) -> Result<Report> {
    check_scores(scores, labels)?;
    check_threshold(threshold)?;
    if scores.is_empty() {
        return Err(Error::Data {
            what: "evaluation".into(),
            expected: "at least one labelled node".into(),
            found: "none".into(),
            help: "give labels for the nodes of this graph, or a split that leaves some for the evaluation".into(),
        });
    }
    let overall = GroupReport::new("overall", scores, labels, threshold)?;
    let groups = groups.iter().map(|(name, positions)| {
        if let Some(&position) = positions.iter().find(|&&position| position >= scores.len()) {
            return Err(Error::Data {
                what: format!("group {name}"),
                expected: format!("positions below {}, the number of labelled nodes", scores.len()),
                found: position.to_string(),
                help: "give positions among the labelled nodes, not ids of nodes".into(),
            });
        }
        let scores: Vec<f32> = positions.iter().map(|&position| scores[position]).collect();
        let labels: Vec<u8> = positions.iter().map(|&position| labels[position]).collect();
        GroupReport::new(name, &scores, &labels, threshold)
    });
    let groups = groups.collect::<Result<Vec<_>>>()?;
    Ok(Report { threshold, overall, groups, alerts: None })
}

impl GroupReport {
    fn new(name: &str, scores: &[f32], labels: &[u8], threshold: f64) -> Result<Self> {
        let ranking = Ranking::new(scores, labels)?;
        let confusion = Confusion::at(scores, labels, threshold)?;
        Ok(Self {
            name: name.to_owned(),
            positives: ranking.positives(),
            negatives: ranking.negatives(),
            roc_auc: ranking.roc_auc(),
            average_precision: ranking.average_precision(),
            at_100: ranking.top_k(TOP_K),
            at_positives: ranking.top_k(ranking.positives()),
            precision: confusion.precision(),
            recall: confusion.recall(),
            f1: confusion.f1(),
            accuracy: confusion.accuracy(),
            confusion,
        })
    }
}

/// Two aligned tables of at most 80 columns (with group names of up to 12 letters): ranking, and decisions.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<&GroupReport> = std::iter::once(&self.overall).chain(&self.groups).collect();
        let mut ranking = vec![
            ["ranking", "nodes", "anomalous", "ROC-AUC", "avg.prec", "P@100", "R@100", "P=R@pos"].map(String::from),
        ];
        let decisions_head = format!("score >= {:.4}", self.threshold);
        let mut decisions =
            vec![[decisions_head.as_str(), "TP", "FP", "FN", "TN", "prec.", "recall", "F1", "acc."].map(String::from)];
        for row in &rows {
            ranking.push([
                row.name.clone(),
                (row.positives + row.negatives).to_string(),
                row.positives.to_string(),
                share(row.roc_auc),
                share(row.average_precision),
                share(row.at_100.map(|top| top.precision)),
                share(row.at_100.and_then(|top| top.recall)),
                share(row.at_positives.map(|top| top.precision)),
            ]);
            let counts = &row.confusion;
            decisions.push([
                row.name.clone(),
                counts.true_positives.to_string(),
                counts.false_positives.to_string(),
                counts.false_negatives.to_string(),
                counts.true_negatives.to_string(),
                share(row.precision),
                share(row.recall),
                share(row.f1),
                share(row.accuracy),
            ]);
        }
        write_table(f, &ranking)?;
        if rows.iter().any(|row| row.positives + row.negatives < TOP_K) {
            writeln!(f, "(@{TOP_K} looks at all nodes of a row where there are fewer)")?;
        }
        writeln!(f)?;
        write_table(f, &decisions)?;
        match &self.alerts {
            Some(alerts) => writeln!(f, "\n{alerts}"),
            None => Ok(()),
        }
    }
}

pub(crate) fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}

/// Writes a table: first column to the left, the others to the right, two spaces between.
pub(crate) fn write_table<R: AsRef<[String]>>(f: &mut fmt::Formatter<'_>, rows: &[R]) -> fmt::Result {
    let cells = || rows.iter().map(AsRef::as_ref);
    let columns = cells().map(<[String]>::len).max().unwrap_or(0);
    let width = |column: usize| cells().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let width: Vec<usize> = (0..columns).map(width).collect();
    for row in cells() {
        write!(f, "{:<1$}", row[0], width[0])?;
        for (cell, width) in row.iter().zip(&width).skip(1) {
            write!(f, "  {cell:>width$}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Report {
        let scores = [0.9, 0.8, 0.3, 0.1, 0.7, 0.2];
        let labels = [1, 0, 1, 0, 1, 1];
        let groups =
            [("user".to_owned(), vec![0, 1, 2, 3]), ("product".to_owned(), vec![4, 5]), ("seller".to_owned(), vec![])];
        evaluate(&scores, &labels, &groups, 0.5).unwrap()
    }

    #[test]
    fn groups_are_evaluated_on_their_own_nodes() {
        let report = example();
        let [user, product, seller] = &report.groups[..] else { panic!("three groups") };
        assert_eq!((report.overall.positives, report.overall.negatives), (4, 2));
        assert_eq!((user.positives, user.negatives, user.roc_auc), (2, 2, Some(0.75)));
        assert_eq!((product.positives, product.roc_auc, product.recall), (2, None, Some(0.5)));
        assert_eq!((seller.positives, seller.at_100, seller.accuracy), (0, None, None));
        let sum: u64 = report.groups.iter().map(|group| group.confusion.true_positives).sum();
        assert_eq!(sum, report.overall.confusion.true_positives);
    }

    #[test]
    fn the_table_is_aligned_and_marks_what_is_missing() {
        let text = example().to_string();
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "ranking  nodes  anomalous  ROC-AUC  avg.prec   P@100   R@100  P=R@pos",
            "overall      6          4   0.6250    0.8042  0.6667  1.0000   0.7500",
            "user         4          2   0.7500    0.8333  0.5000  1.0000   0.5000",
            "product      2          2        -         -  1.0000  1.0000   1.0000",
            "seller       0          0        -         -       -       -        -",
            "(@100 looks at all nodes of a row where there are fewer)",
            "",
            "score >= 0.5000  TP  FP  FN  TN   prec.  recall      F1    acc.",
            "overall           2   1   2   1  0.6667  0.5000  0.5714  0.5000",
            "user              1   1   1   1  0.5000  0.5000  0.5000  0.5000",
            "product           1   0   1   0  1.0000  0.5000  0.6667  0.5000",
            "seller            0   0   0   0       -       -       -       -",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_report_survives_json() {
        let report = example();
        let json = serde_json::to_string_pretty(&report).unwrap();
        assert!(json.contains("\"roc_auc\": null"));
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn positions_past_the_end_and_empty_input_are_typed_errors() {
        let error = evaluate(&[0.1], &[1], &[("user".to_owned(), vec![0, 1])], 0.5).unwrap_err();
        assert!(error.to_string().starts_with("group user: expected positions below 1"), "{error}");
        assert!(matches!(evaluate(&[], &[], &[], 0.5), Err(Error::Data { .. })));
        assert!(matches!(evaluate(&[0.1], &[1], &[], f64::NAN), Err(Error::Data { .. })));
    }
}
