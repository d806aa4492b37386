//! Scores of a graph against a split of its labels, as `eval` and the summary of a training show it.

use std::path::Path;

use ndarray::{ArrayView1, ArrayView2};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunDir;
use super::ranked::LabelledEvents;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::formats::map_file;
use crate::graph::json::read_json;
use crate::graph::npy::view_npy;
use crate::graph::{Dataset, HeteroGraph};
use crate::metrics::{self, ClassReport, ConfusionMatrix, Report, predicted_class};

/// Outcome of a finished run.
pub const EVALUATION_FILE: &str = "evaluation.json";

/// Reports on the parts of a split that a model was not fitted to, at one threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The threshold with the best F1 on the validation part.
    pub threshold: f64,
    /// The validation part, on which checkpoint and threshold were chosen: optimistic.
    pub validation: Report,
    /// The test part.
    pub test: Report,
    /// Of a model that was grown anew on training and validation labels the number of its trees: only the test part is
    /// about it, the threshold and the validation part are those of the trees before, which had not seen these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refit: Option<usize>,
}

impl Evaluation {
    /// As [`of_run`](Self::of_run), of a model that has learned the validation labels; `None` of others.
    ///
    /// # Errors
    /// As for [`of_run`](Self::of_run).
    pub fn of_refit(run: &RunDir) -> Result<Option<Self>> {
        Ok(Self::of_run(run)?.filter(|own| own.refit.is_some()))
    }

    /// What a model that was grown anew has learned from, and what it has not chosen itself; `None` of others.
    pub fn refit_in_words(&self) -> Option<String> {
        let trees = self.refit?;
        let trees = if trees == 1 { "1 tree".into() } else { format!("{trees} trees") };
        Some(format!(
            "grown anew on training and validation labels with {trees}; threshold and calibration are those of the \
             trees that had not seen the validation labels"
        ))
    }

    /// What a finished run of Stage 2 or 3 found; `None` of other runs.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file that is no JSON.
    pub fn of_run(run: &RunDir) -> Result<Option<Self>> {
        let file = run.output(EVALUATION_FILE);
        if !file.is_file() {
            return Ok(None);
        }
        let mut outcome: Value = read_json(&file, "the outcome of a training", "train again")?;
        // That of a classification has other figures.
        Ok(outcome.get_mut("evaluation").and_then(|value| serde_json::from_value(value.take()).ok()))
    }
}

/// What a finished run of node classification found on its test nodes; `None` of a run that is not finished.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that is no JSON.
pub fn class_test_of_run(run: &RunDir) -> Result<Option<ClassReport>> {
    let file = run.output(EVALUATION_FILE);
    if !file.is_file() {
        return Ok(None);
    }
    let mut outcome: Value = read_json(&file, "the outcome of a training", "train again")?;
    Ok(outcome.get_mut("test").and_then(|value| serde_json::from_value(value.take()).ok()))
}

/// Evaluates `scores` (one per node, by global id) on the validation and the test part of `split`.
///
/// # Errors
/// As for [`validation_threshold`] and [`report`].
pub fn evaluate_split(scores: &[f32], dataset: &Dataset, split: &Split) -> Result<Evaluation> {
    evaluate_parts([scores; 2], dataset, split)
}

/// As [`evaluate_split`], with the scores that the validation part is evaluated by, and those of the test part.
///
/// # Errors
/// As for [`validation_threshold`] and [`report`].
pub fn evaluate_parts([validation, test]: [&[f32]; 2], dataset: &Dataset, split: &Split) -> Result<Evaluation> {
    let threshold = validation_threshold(validation, &dataset.graph, split)?;
    Ok(Evaluation {
        threshold,
        validation: report(validation, dataset, &split.validation, threshold)?,
        test: report(test, dataset, &split.test, threshold)?,
        refit: None,
    })
}

/// The threshold with the best F1 on the validation part of `split`.
///
/// # Errors
/// [`Error::Data`] when there is not one finite score per node, or when the part lacks a class.
pub fn validation_threshold(scores: &[f32], graph: &HeteroGraph, split: &Split) -> Result<f64> {
    check_scores(scores, graph)?;
    let (scores, labels) = select(scores, &split.validation)?;
    Ok(metrics::best_f1_threshold(&scores, &labels)?.threshold)
}

/// Metrics of `scores` on the labelled nodes `entries` `(global id, label)`, over all of them and per node type that
/// has any.
///
/// # Errors
/// [`Error::Data`] when there is not one finite score per node, when there is no labelled node or one outside the
/// graph, and for a threshold that is NaN.
pub fn report(scores: &[f32], dataset: &Dataset, entries: &[(u32, u8)], threshold: f64) -> Result<Report> {
    let graph = &dataset.graph;
    check_scores(scores, graph)?;
    let (scores, labels) = select(scores, entries)?;
    let alerts = LabelledEvents::of(dataset, entries).alerts(&scores);
    let mut groups: Vec<(String, Vec<usize>)> =
        graph.node_types().iter().map(|node_type| (node_type.name.clone(), Vec::new())).collect();
    for (position, &(node, _)) in entries.iter().enumerate() {
        groups[graph.type_of(node as usize)].1.push(position);
    }
    groups.retain(|(_, positions)| !positions.is_empty());
    Ok(Report { alerts, ..metrics::evaluate(&scores, &labels, &groups, threshold)? })
}

/// Figures of `values` (logits or probabilities, `classes` per node) on some labelled nodes.
///
/// # Errors
/// [`Error::Data`] without nodes, or for a class that the values do not have.
pub fn class_report(values: &[f32], classes: usize, part: &[(u32, u32)]) -> Result<ClassReport> {
    let row = |node: u32| &values[node as usize * classes..][..classes];
    let pairs = part.iter().map(|&(node, class)| (class, predicted_class(row(node))));
    ConfusionMatrix::of(pairs, classes)?.report().ok_or_else(|| Error::Data {
        what: "evaluation".into(),
        expected: "at least one labelled node".into(),
        found: "none".into(),
        help: "give labels for the nodes of this graph".into(),
    })
}

/// Reads the scores of all nodes: a `.npy` array of f32, shape `[num_nodes]`, every value finite.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read; [`Error::Format`] for another type, shape or length, a truncated file,
/// or a score that is NaN or infinite (with its node).
pub fn read_scores(path: &Path, num_nodes: usize) -> Result<Vec<f32>> {
    const HELP: &str = "scores are a float32 array with one score per node, as `graphsieve score` writes it; convert \
                        others with .astype(np.float32)";
    let map = map_file(path)?;
    let array: ArrayView1<f32> = view_npy(&map).map_err(|found| {
        let expected = format!("a .npy array of {num_nodes} float32 numbers");
        Error::format(path, "array", expected, found, HELP)
    })?;
    if array.len() != num_nodes {
        let expected = format!("{num_nodes} scores, one per node of the graph");
        let help = "these scores belong to another graph; score this data directory";
        return Err(Error::format(path, "shape", expected, array.len().to_string(), help));
    }
    if let Some((node, score)) = array.iter().enumerate().find(|(_, score)| !score.is_finite()) {
        let help = "the model diverged or the file is damaged; score the data again";
        return Err(Error::format(path, format!("score of node {node}"), "a finite number", score.to_string(), help));
    }
    Ok(array.to_vec())
}

/// Reads the probabilities of class 1 of all nodes: the second column of a `.npy` array of f32, shape `[num_nodes, 2]`.
///
/// # Errors
/// As for [`read_scores`].
pub fn read_anomaly_column(path: &Path, num_nodes: usize) -> Result<Vec<f32>> {
    const HELP: &str = "class probabilities are a float32 array with a row per node, as a node classifier writes it";
    let map = map_file(path)?;
    let expected = format!("a .npy array [{num_nodes}, 2] of float32 numbers");
    let array: ArrayView2<f32> =
        view_npy(&map).map_err(|found| Error::format(path, "array", expected.clone(), found, HELP))?;
    if array.dim() != (num_nodes, 2) {
        return Err(Error::format(path, "shape", expected, format!("{:?}", array.dim()), HELP));
    }
    Ok(array.column(1).to_vec())
}

/// Reads class probabilities: a `.npy` array of f32, shape `[num_nodes, num_classes]`, every value finite.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read; [`Error::Format`] for another type or shape, a truncated file, or a
/// value that is NaN or infinite (with its node).
pub fn read_probabilities(path: &Path, num_nodes: usize, num_classes: usize) -> Result<Vec<f32>> {
    const HELP: &str = "probabilities are a float32 array with a row per node and a column per class, as `graphsieve \
                        score` writes it with a node classifier";
    let map = map_file(path)?;
    let array: ArrayView2<f32> = view_npy(&map).map_err(|found| {
        let expected = format!("a .npy array [{num_nodes}, {num_classes}] of float32 numbers");
        Error::format(path, "array", expected, found, HELP)
    })?;
    if array.dim() != (num_nodes, num_classes) {
        let expected = format!("[{num_nodes}, {num_classes}], a row per node and a column per class");
        let found = format!("[{}, {}]", array.nrows(), array.ncols());
        return Err(Error::format(path, "shape", expected, found, "score this data with a model of these classes"));
    }
    if let Some(((node, class), value)) = array.indexed_iter().find(|(_, value)| !value.is_finite()) {
        let help = "the model diverged or the file is damaged; score the data again";
        let place = format!("node {node}, class {class}");
        return Err(Error::format(path, place, "a finite number", value.to_string(), help));
    }
    Ok(array.iter().copied().collect())
}

/// Every score, not only those of labelled nodes: one that is not finite is a fault of the model.
fn check_scores(scores: &[f32], graph: &HeteroGraph) -> Result<()> {
    let error = |what: String, expected: String, found: String, help: &str| {
        Err(Error::Data { what, expected, found, help: help.into() })
    };
    if scores.len() != graph.num_nodes() {
        let expected = format!("{}, one per node of the graph", graph.num_nodes());
        return error("scores".into(), expected, scores.len().to_string(), "use the scores of this graph");
    }
    if let Some(node) = scores.iter().position(|score| !score.is_finite()) {
        let help = "the model that made these scores diverged; lower its learning rate or check its input features";
        return error(format!("score of node {node}"), "a finite number".into(), scores[node].to_string(), help);
    }
    Ok(())
}

/// Scores and labels of `entries`, in their order.
fn select(scores: &[f32], entries: &[(u32, u8)]) -> Result<(Vec<f32>, Vec<u8>)> {
    let pick = |&(node, label): &(u32, u8)| match scores.get(node as usize) {
        Some(&score) => Ok((score, label)),
        None => Err(Error::Data {
            what: format!("label of node {node}"),
            expected: format!("a node of the graph, below {}", scores.len()),
            found: node.to_string(),
            help: "the labels belong to another graph".into(),
        }),
    };
    entries.iter().map(pick).collect()
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, array};
    use ndarray_npy::WriteNpyExt;

    use super::*;
    use crate::config::RankingMetric;
    use crate::graph::{Events, write_npy_f32};
    use crate::run::ranked::Ranked;

    fn graph() -> HeteroGraph {
        let types = [("user", 4), ("product", 3), ("seller", 1)];
        HeteroGraph::new(types.map(|(name, count)| (name.to_owned(), count)).into(), Vec::new()).unwrap()
    }

    fn dataset() -> Dataset {
        Dataset::new(graph(), None, None, None)
    }

    fn split() -> Split {
        Split { train: vec![(7, 1)], validation: vec![(0, 1), (1, 0)], test: vec![(2, 1), (3, 0), (4, 1), (5, 0)] }
    }

    #[test]
    fn the_threshold_comes_from_the_validation_part_and_the_figures_from_the_test_part() {
        let scores = [0.75, 0.25, 0.9, 0.6, 0.4, 0.1, 0.5, 0.0];
        let evaluation = evaluate_split(&scores, &dataset(), &split()).unwrap();
        assert_eq!(evaluation.threshold, 0.5);
        assert_eq!(evaluation.validation.overall.f1, Some(1.0));
        let test = &evaluation.test;
        let confusion = test.overall.confusion;
        assert_eq!([confusion.true_positives, confusion.false_positives, confusion.false_negatives], [1, 1, 1]);
        assert_eq!(test.overall.roc_auc, Some(0.75));
        let by_type: Vec<_> = test.groups.iter().map(|group| (group.name.as_str(), group.roc_auc)).collect();
        assert_eq!(by_type, [("user", Some(1.0)), ("product", Some(1.0))], "no seller is labelled in the test part");
    }

    #[test]
    fn what_cannot_be_evaluated_is_a_typed_error() {
        let fault = |scores: &[f32], split: &Split| match evaluate_split(scores, &dataset(), split) {
            Err(Error::Data { what, found, .. }) => (what, found),
            other => panic!("{other:?}"),
        };
        assert_eq!(fault(&[0.5; 7], &split()), ("scores".into(), "7".into()));
        let mut scores = [0.5; 8];
        scores[6] = f32::NAN;
        assert_eq!(fault(&scores, &split()), ("score of node 6".into(), "NaN".into()), "node 6 has no label");
        let outside = Split { test: vec![(8, 1)], ..split() };
        assert_eq!(fault(&[0.5; 8], &outside), ("label of node 8".into(), "8".into()));
        let one_class = Split { validation: vec![(0, 1)], ..split() };
        assert_eq!(fault(&[0.5; 8], &one_class).1, "1 anomalous and 0 normal");
        let no_test = Split { test: Vec::new(), ..split() };
        assert_eq!(fault(&[0.5; 8], &no_test).1, "none");
    }

    #[test]
    fn scores_are_read_as_they_were_written_and_refused_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scores.npy");
        write_npy_f32(&path, &array![0.25f32, 1.0, 0.0]).unwrap();
        assert_eq!(read_scores(&path, 3).unwrap(), [0.25, 1.0, 0.0]);
        let fault = |num_nodes: usize| {
            let error = read_scores(&path, num_nodes).unwrap_err().to_string();
            assert!(error.starts_with(&path.display().to_string()), "{error}");
            error
        };
        assert!(fault(4).contains("shape: expected 4 scores, one per node of the graph, found 3"));
        write_npy_f32(&path, &array![0.25f32, f32::NAN]).unwrap();
        assert!(fault(2).contains("score of node 1: expected a finite number, found NaN"));
        write_npy_f32(&path, &array![[0.25f32], [1.0]]).unwrap();
        assert!(fault(2).contains("array: expected a .npy array of 2 float32 numbers"));
        Array1::<f64>::zeros(2).write_npy(std::fs::File::create(&path).unwrap()).unwrap();
        assert!(fault(2).contains("float32"));
        write_npy_f32(&path, &Array1::zeros(9)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 4, 40, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(fault(9).contains("array"), "{length} bytes");
        }
    }

    #[test]
    fn the_figures_of_a_report_are_those_of_its_scores() {
        // Two cards and three payments on one day, of which the last is a fraud.
        let graph = HeteroGraph::new(vec![("card".into(), 2), ("payment".into(), 3)], Vec::new()).unwrap();
        let time = vec![Events::NO_TIME, Events::NO_TIME, 10, 20, 30];
        let alert = Some(vec![Events::NO_NODE, Events::NO_NODE, 0, 0, 1]);
        let amount = Some(vec![0.0, 0.0, 5.0, 5.0, 7.0]);
        let events = Some(Events { known: time.clone(), time, amount, value: None, alert });
        let data = Dataset { events, ..Dataset::new(graph, None, None, None) };
        let entries = [(4, 1), (2, 0), (3, 0)];
        let ranked = Ranked::of(&[0.5, 0.9, 0.1], &[1, 0, 0], &LabelledEvents::of(&data, &entries)).unwrap();
        let by_node = [0.0, 0.0, 0.9, 0.1, 0.5];
        assert_eq!(Ranked::from(&report(&by_node, &data, &entries, 0.5).unwrap()), ranked);
        // Of two cards both are looked at, and one has the fraud.
        let by = |metric| ranked.by(metric);
        assert_eq!((by(RankingMetric::Alerts), by(RankingMetric::Stopped)), (Some(0.5), Some(1.0)));
        assert_eq!((by(RankingMetric::Auroc), by(RankingMetric::AveragePrecision)), (Some(0.5), Some(0.5)));
    }
}
