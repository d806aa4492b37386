//! Scores in the terms of the data: nodes by original id, from the most to the least suspicious.

use std::borrow::Cow;

use rayon::prelude::*;
use serde::Serialize;

use super::class_view::ClassView;
use crate::data::split::{Part, Split};
use crate::error::{Error, Result, nearest_name};
use crate::graph::{Dataset, date};
use crate::metrics::Calibration;

/// Scores of all nodes with what a list says beside them.
#[derive(Clone, Copy, Debug)]
pub struct Scored<'a> {
    pub dataset: &'a Dataset,
    /// By global id; NaN for a node without one.
    pub scores: &'a [f32],
    pub calibration: Option<&'a Calibration>,
    /// How the run that gave the scores divided the labels of these data.
    pub split: Option<&'a Split>,
    /// Of a node classifier: then classes, probabilities, labels and parts are those of the view.
    pub classes: Option<&'a ClassView>,
}

/// One line of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedNode<'a> {
    /// From 1, among the nodes that are listed.
    pub rank: u64,
    /// Name of the node type.
    #[serde(rename = "type")]
    pub node_type: &'a str,
    /// The id of the raw data; the number within the type, from 0, where nodes have no ids.
    pub id: Cow<'a, str>,
    /// Ids of the source and of the destination of an edge of the raw data; none of other nodes.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub ends: Option<RankedEnds<'a>>,
    /// The class that a node classifier predicts; none in lists of other scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// None where the stage has no score for the node: such nodes come last.
    pub score: Option<f32>,
    /// None without a calibration.
    pub probability: Option<f64>,
    /// 1 anomalous, 0 normal; in lists of a node classifier the class. None where it is unknown.
    pub label: Option<u32>,
    /// The part of its run's labels that the label was in: `training` and `validation` were used to make the model,
    /// `test` was not. None without a label, and for labels that the run did not have.
    pub known: Option<&'static str>,
    /// Global id.
    #[serde(skip)]
    pub node: u32,
}

/// The two ends of a ranked edge; `None` where the data do not say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedEnds<'a> {
    pub src: Option<Cow<'a, str>>,
    pub dst: Option<Cow<'a, str>>,
}

/// Which nodes a ranking lists.
#[derive(Clone, Debug, Default)]
pub struct RankingFilter {
    /// At most so many.
    pub top: Option<usize>,
    /// Of one type only.
    pub node_type: Option<String>,
    /// Only nodes that have no label in the data.
    pub unlabelled: bool,
    /// Only events of this time and later, in seconds since 1970.
    pub since: Option<i64>,
}

impl Scored<'_> {
    /// The known label of every node by global id: 1 anomalous and 0 normal, or the class.
    pub fn labels(&self) -> Vec<Option<u32>> {
        let mut known = vec![None; self.scores.len()];
        match (self.classes, &self.dataset.classes) {
            (Some(_), Some(classes)) => known.copy_from_slice(classes.of_node()),
            (Some(_), None) => {}
            (None, _) => {
                for &(node, label) in self.dataset.labels.iter().flat_map(|labels| &labels.entries) {
                    known[node as usize] = Some(u32::from(label));
                }
            }
        }
        known
    }

    /// What the score of a node means, calibrated.
    pub fn probability(&self, node: u32) -> Option<f64> {
        match self.classes {
            Some(view) => view.probability(node),
            None => self.calibration?.probability(self.scores[node as usize]),
        }
    }

    /// The part of the run's labels that the label of a node was in.
    pub fn part_of(&self, node: u32) -> Option<Part> {
        match self.classes {
            Some(view) => view.part_of(node),
            None => self.split?.part_of(node),
        }
    }
}

/// The error of a time after which nothing comes; `last` is the latest time of what was looked for.
pub fn none_since(what: String, since: i64, last: Option<i64>, help: &str) -> Error {
    Error::Data {
        what,
        expected: format!("some from {} on", date(since)),
        found: last.map_or("none with a time".into(), |last| format!("the latest of {}", date(last))),
        help: help.into(),
    }
}

/// Nodes by descending score; equal scores by id, then by type, so that the order never depends on anything else.
///
/// # Errors
/// [`Error::Usage`] for a type that the graph does not have, and for a time where nodes have none; [`Error::Data`] for
/// a time after the last event.
///
/// # Panics
/// When there is not one score per node.
pub fn rank<'a>(scored: &Scored<'a>, filter: &RankingFilter) -> Result<Vec<RankedNode<'a>>> {
    let Scored { dataset, scores, .. } = *scored;
    let graph = &dataset.graph;
    assert_eq!(scores.len(), graph.num_nodes(), "one score per node");
    let types = graph.node_types();
    let listed = match &filter.node_type {
        None => 0..graph.num_nodes() as u32,
        Some(name) => {
            let known = || types.iter().map(|of_type| of_type.name.as_str());
            let found = types.iter().find(|of_type| of_type.name == *name).ok_or_else(|| Error::Usage {
                argument: format!("--node-type {name}"),
                expected: format!("a node type of the data: {}", known().collect::<Vec<_>>().join(", ")),
                found: format!("`{name}`"),
                help: match nearest_name(name, known()) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => "leave it out for all types".into(),
                },
            })?;
            found.offset as u32..(found.offset + found.count) as u32
        }
    };
    let events = dataset.events.as_ref();
    if let (Some(since), None) = (filter.since, events) {
        return Err(Error::Usage {
            argument: format!("--since {}", date(since)),
            expected: "data whose nodes have times".into(),
            found: "none".into(),
            help: "name the column of the times, `time = \"COLUMN\"` in [[nodes]], and import the tables again".into(),
        });
    }
    if let (Some(since), Some(events)) = (filter.since, events)
        && let last = events.ends(|_| true).map(|[_, last]| last)
        && last < Some(since)
    {
        return Err(none_since("events of the data".into(), since, last, "give an earlier --since"));
    }
    let is_late = |node| filter.since.is_none_or(|since| events.and_then(|of| of.time_of(node)) >= Some(since));
    let id = |node: u32| dataset.id_of(node);
    let labels = scored.labels();
    let label = |node: u32| labels[node as usize];
    let mut order: Vec<u32> =
        listed.filter(|&node| (!filter.unlabelled || label(node).is_none()) && is_late(node)).collect();
    let descending = |&a: &u32, &b: &u32| {
        let [score_a, score_b] = [a, b].map(|node| scores[node as usize]);
        score_a
            .is_nan()
            .cmp(&score_b.is_nan())
            .then(score_b.partial_cmp(&score_a).unwrap_or(std::cmp::Ordering::Equal))
            .then_with(|| id(a).cmp(&id(b)))
            .then(a.cmp(&b))
    };
    // Of many nodes only those that are asked for are put in order.
    if let Some(top) = filter.top.filter(|&top| top > 0 && top < order.len()) {
        order.select_nth_unstable_by(top - 1, descending);
    }
    order.truncate(filter.top.unwrap_or(usize::MAX));
    order.par_sort_unstable_by(descending);
    let line = |(at, node): (usize, u32)| {
        let score = scores[node as usize];
        RankedNode {
            rank: at as u64 + 1,
            node_type: &types[graph.type_of(node as usize)].name,
            id: id(node),
            ends: dataset
                .ends_of(node)
                .map(|ends| ends.map(|end| end.map(id)))
                .map(|[src, dst]| RankedEnds { src, dst }),
            class: scored.classes.map(|view| view.predicted()[node as usize]),
            score: Some(score).filter(|score| !score.is_nan()),
            probability: scored.probability(node),
            label: label(node),
            known: scored.part_of(node).map(Part::name),
            node,
        }
    };
    Ok(order.into_iter().enumerate().map(line).collect())
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::data::class_split::ClassSplit;
    use crate::graph::{Classes, HeteroGraph, IdMaps, Labels};

    /// Users b, a, "c, \"d\"" and products x, b.
    fn dataset(ids: bool) -> Dataset {
        let graph = HeteroGraph::new(vec![("user".into(), 3), ("product".into(), 2)], Vec::new()).unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let ids = ids.then(|| IdMaps(vec![names(&["b", "a", "c, \"d\""]), names(&["x", "b"])]));
        Dataset::new(graph, None, Some(Labels { entries: vec![(4, 1), (0, 0)] }), ids)
    }

    fn plain<'a>(dataset: &'a Dataset, scores: &'a [f32]) -> Scored<'a> {
        Scored { dataset, scores, calibration: None, split: None, classes: None }
    }

    fn names<'a>(ranking: &'a [RankedNode]) -> Vec<(&'a str, &'a str)> {
        ranking.iter().map(|node| (node.node_type, &*node.id)).collect()
    }

    #[test]
    fn equal_scores_go_by_id_then_by_type_and_nodes_without_a_score_come_last() {
        let data = dataset(true);
        let scores = [0.5, 0.5, f32::NAN, 0.9, 0.5];
        let ranking = rank(&plain(&data, &scores), &RankingFilter::default()).unwrap();
        let expected = [("product", "x"), ("user", "a"), ("user", "b"), ("product", "b"), ("user", "c, \"d\"")];
        assert_eq!(names(&ranking), expected);
        assert_eq!(ranking.iter().map(|node| node.label).collect::<Vec<_>>(), [None, None, Some(0), Some(1), None]);
        assert_eq!((ranking[4].score, ranking[4].rank), (None, 5));
        for top in 0..6 {
            let filter = RankingFilter { top: Some(top), ..Default::default() };
            let fewer = rank(&plain(&data, &scores), &filter).unwrap();
            assert_eq!(fewer, ranking[..top.min(5)], "the first {top}");
        }
    }

    #[test]
    fn one_type_is_ranked_among_itself() {
        let data = dataset(false);
        let filter = RankingFilter { node_type: Some("product".into()), ..Default::default() };
        let ranking = rank(&plain(&data, &[0.1, 0.2, 0.3, 0.4, 0.5]), &filter).unwrap();
        assert_eq!(names(&ranking), [("product", "1"), ("product", "0")]);
        assert_eq!(ranking[0].rank, 1);
        let filter = RankingFilter { node_type: Some("prodct".into()), ..Default::default() };
        let error = rank(&plain(&data, &[0.0; 5]), &filter).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("did you mean product?"), "{error}");
    }

    #[test]
    fn labelled_nodes_are_left_out_and_the_part_of_their_label_is_told() {
        let data = dataset(true);
        let split = Split { train: vec![(0, 0)], validation: Vec::new(), test: vec![(4, 1)] };
        let scores = [0.5, 0.4, 0.3, 0.2, 0.1];
        let with_split = Scored { split: Some(&split), ..plain(&data, &scores) };
        let ranking = rank(&with_split, &RankingFilter::default()).unwrap();
        let known: Vec<_> = ranking.iter().map(|node| node.known).collect();
        assert_eq!(known, [Some("training"), None, None, None, Some("test")]);
        let filter = RankingFilter { unlabelled: true, top: Some(2), ..Default::default() };
        let ranking = rank(&with_split, &filter).unwrap();
        assert_eq!(names(&ranking), [("user", "a"), ("user", "c, \"d\"")]);
        assert_eq!((ranking[0].rank, ranking[0].known), (1, None));
    }

    #[test]
    fn nodes_of_a_classifier_have_their_predicted_class_and_their_known_one() {
        let mut data =
            Dataset { classes: Some(Classes::new(vec![Some(2), None, Some(0), None, Some(1)])), ..dataset(true) };
        let probabilities =
            array![[0.1f32, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.4, 0.4], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]];
        for class in [None, Some(2)] {
            let mut view = ClassView::new(probabilities.clone(), class).unwrap();
            let split = ClassSplit { train: vec![(0, 2)], validation: vec![(2, 0)], test: vec![(4, 1)] };
            view.split = Some(split);
            view.calibrations = vec![None, None, Some(Calibration::fit(&[0.2, 0.8], &[0, 1]).unwrap())];
            view.relabel(&mut data);
            let scores = view.scores();
            let scored = Scored { classes: Some(&view), ..plain(&data, &scores) };
            let ranking = rank(&scored, &RankingFilter::default()).unwrap();
            let lines: Vec<_> = ranking.iter().map(|n| (n.node, n.class, n.label, n.known)).collect();
            let line = |node: u32| {
                let predicted = [2, 0, 1, 1, 2][node as usize];
                let known = [Some("training"), None, Some("validation"), None, Some("test")][node as usize];
                (node, Some(predicted), [Some(2), None, Some(0), None, Some(1)][node as usize], known)
            };
            let order = if class.is_none() { [3, 0, 1, 4, 2] } else { [0, 4, 2, 1, 3] };
            assert_eq!(lines, order.map(line));
            for node in &ranking {
                let of_two = class.or(node.class) == Some(2);
                assert_eq!(node.probability.is_some(), of_two, "only class 2 has a calibration: {node:?}");
                assert_eq!(
                    node.score.unwrap(),
                    probabilities[[node.node as usize, class.or(node.class).unwrap() as usize]]
                );
            }
            let unlabelled = RankingFilter { unlabelled: true, ..Default::default() };
            assert_eq!(rank(&scored, &unlabelled).unwrap().len(), 2);
        }
    }
}
