//! From the parts of a run to what its report says.

use super::class_facts::{against_prediction, class_facts};
use super::data::{DataFacts, Explained, Part, PartFacts, Question, RelationFacts, ReportData, SplitFacts, TypeFacts};
use super::held_out::{calibration_facts, held_out, labelled};
use super::listed::{anomalies, histograms};
use super::parts::Parts;
use super::warnings::{Grounds, warnings};
use crate::data::split::Split;
use crate::error::Result;
use crate::graph::{Dataset, Statistics};
use crate::run::evaluation::Evaluation;
use crate::score::ranking::Scored;

/// Computes everything but the explanations, which [`explain`] adds.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) for labels that do not fit the graph.
pub fn gather(parts: Parts) -> Result<ReportData> {
    let scored = &parts.scored;
    let question = question(scored);
    let labels = scored.labels();
    let data = data_facts(&Statistics::of(scored.dataset), &labels, &parts);
    // What the scores are held against.
    let judged = match (question, scored.classes) {
        (Question::Predicted, Some(view)) => view.split.as_ref().map(|split| against_prediction(view, split)),
        _ => scored.split.cloned(),
    };
    let judged = judged.as_ref();
    let refit = parts.refit.as_ref().and_then(Evaluation::refit_in_words);
    let split = judged.map(|split| split_facts(split, scored.dataset, refit));
    let test = judged.map(|split| labelled(scored.scores, &split.test)).filter(|test| !test.scores.is_empty());
    let held_out = match (judged, &test) {
        (Some(split), Some(test)) if question != Question::Predicted => Some(held_out(&parts, split, test)?),
        _ => None,
    };
    let calibration = match (judged, &test) {
        (Some(split), Some(test)) => calibration_facts(scored, question, split, test)?,
        _ => None,
    };
    let classes = scored.classes.map(class_facts).transpose()?.flatten();
    let scored_nodes = scored.scores.iter().filter(|score| score.is_finite()).count();
    let by_class = |entries: &[(u32, u8)]| {
        let part = labelled(scored.scores, entries);
        [0, 1].map(|class| part.of_class(class))
    };
    let grounds = Grounds {
        question,
        nodes: scored.scores.len(),
        scored: scored_nodes,
        edges_needed: !parts.fitted_to_labels,
        types: &data.types,
        split: split.as_ref(),
        held_out: held_out.as_ref(),
        on_validation: parts.on_validation,
        calibration: calibration.as_ref(),
        classes: classes.as_ref(),
        scores: match judged {
            Some(split) => [by_class(&split.train), by_class(&split.test)],
            None => Default::default(),
        },
        fitted_to_labels: parts.fitted_to_labels,
    };
    let warnings = warnings(&grounds);
    let labelled_nodes = labels.iter().zip(scored.scores).filter(|(label, score)| label.is_some() && score.is_finite());
    let labelled_nodes = labelled_nodes.count();
    let with_labelled = parts.all || labelled_nodes == scored_nodes;
    Ok(ReportData {
        histograms: histograms(scored, question, judged.map_or(&[], |split| &split.test)),
        anomalies: anomalies(scored, parts.top, &labels, with_labelled),
        coverage: None,
        name: parts.name,
        stage: parts.stage,
        score_meaning: parts.score_meaning,
        question,
        run: parts.run,
        data,
        classes,
        split,
        held_out,
        training: parts.training,
        calibration,
        scored_nodes,
        left_out: if with_labelled { 0 } else { labelled_nodes },
        warnings,
        beside: Vec::new(),
        tournament: None,
    })
}

fn question(scored: &Scored) -> Question {
    match scored.classes {
        None => Question::Anomalous,
        Some(view) => view.class().map_or(Question::Predicted, Question::OfClass),
    }
}

impl ReportData {
    /// Adds why the listed nodes have their scores; `explained` are in the order of [`anomalies`](Self::anomalies),
    /// which may be longer.
    pub fn explain(&mut self, explained: impl IntoIterator<Item = Explained>) {
        for (anomaly, explained) in self.anomalies.iter_mut().zip(explained) {
            anomaly.explanation = Some(explained);
        }
    }
}

fn data_facts(statistics: &Statistics, labels: &[Option<u32>], parts: &Parts) -> DataFacts {
    let of_types = parts.scored.dataset.graph.node_types();
    let types = statistics.node_types.iter().zip(of_types).map(|(t, nodes)| TypeFacts {
        name: t.name.clone(),
        nodes: t.nodes,
        labelled: labels[nodes.offset..][..nodes.count].iter().flatten().count(),
        anomalous: t.anomalous,
        normal: t.normal,
    });
    let relations = statistics.relations.iter().map(|r| RelationFacts {
        name: r.name.clone(),
        src: r.src.clone(),
        dst: r.dst.clone(),
        edges: r.edges,
        mean_degree: r.mean_degree,
        max_degree: r.max_degree,
    });
    DataFacts {
        path: parts.data_path.clone(),
        nodes: statistics.nodes,
        edges: statistics.edges,
        feature_dim: statistics.feature_dim,
        types: types.collect(),
        relations: relations.collect(),
        notes: statistics.notes.clone(),
    }
}

fn split_facts(split: &Split, dataset: &Dataset, refit: Option<String>) -> SplitFacts {
    let parts = [(Part::Train, &split.train), (Part::Validation, &split.validation), (Part::Test, &split.test)];
    let facts = parts.map(|(part, entries)| {
        let anomalous = entries.iter().filter(|entry| entry.1 == 1).count();
        PartFacts { part, labelled: entries.len(), anomalous, normal: entries.len() - anomalous }
    });
    SplitFacts { rule: dataset.split.as_ref().map(|stored| stored.to_string()), refit, parts: facts.into() }
}
