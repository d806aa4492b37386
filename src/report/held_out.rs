//! Figures of the labels that nothing was chosen on.

use super::data::{Baseline, CalibrationFacts, Curves, HeldOut, Question, TypeEstimates};
use super::parts::{BaselineScores, Parts};
use crate::data::split::Split;
use crate::error::Result;
use crate::metrics::{Bootstrap, Confusion, Estimate, Estimates, FEWEST, Ranking, Reliability, best_f1_threshold};
use crate::run::ranked::LabelledEvents;
use crate::score::ClassView;
use crate::score::ranking::Scored;

/// Bins of a reliability diagram, at most.
const RELIABILITY_BINS: usize = 10;

/// Places that an analyst may have time for; those up to half of the labelled nodes are shown.
const TOP: [u64; 9] = [10, 25, 50, 100, 250, 500, 1000, 2500, 5000];

/// Cells of the grid that a curve is thinned to: finer than it is drawn.
const CURVE_CELLS: f64 = 400.0;

/// Labelled nodes that have a score.
pub(super) struct Labelled {
    pub nodes: Vec<u32>,
    pub scores: Vec<f32>,
    pub labels: Vec<u8>,
    /// Place of each among the entries.
    places: Vec<usize>,
}

impl Labelled {
    pub fn of_class(&self, class: u8) -> Vec<f32> {
        let of_class = self.scores.iter().zip(&self.labels).filter(|(_, label)| **label == class);
        of_class.map(|(score, _)| *score).collect()
    }
}

pub(super) fn labelled(scores: &[f32], entries: &[(u32, u8)]) -> Labelled {
    let mut found = Labelled { nodes: Vec::new(), scores: Vec::new(), labels: Vec::new(), places: Vec::new() };
    for (place, &(node, label)) in entries.iter().enumerate() {
        if let Some(score) = scores.get(node as usize).copied().filter(|score| score.is_finite()) {
            found.nodes.push(node);
            found.scores.push(score);
            found.labels.push(label);
            found.places.push(place);
        }
    }
    found
}

pub(super) fn held_out(parts: &Parts, split: &Split, test: &Labelled) -> Result<HeldOut> {
    let bootstrap = Bootstrap::default();
    let threshold = match &parts.refit {
        Some(own) => own.threshold,
        None => {
            let validation = labelled(parts.scored.scores, &split.validation);
            // Without both classes nothing can be chosen: then nothing is flagged.
            let chosen = best_f1_threshold(&validation.scores, &validation.labels);
            chosen.map_or(f64::INFINITY, |choice| choice.threshold)
        }
    };
    let positives = test.labels.iter().map(|&label| u64::from(label)).sum::<u64>();
    let half = test.labels.len() as u64 / 2;
    let mut ks: Vec<u64> =
        TOP.into_iter().filter(|&k| k <= half).chain([positives].into_iter().filter(|&k| k > 0)).collect();
    ks.sort_unstable();
    ks.dedup();
    let overall = bootstrap.estimate(&test.scores, &test.labels, threshold, &ks)?;
    let graph = &parts.scored.dataset.graph;
    let types = graph.node_types().iter().enumerate().filter_map(|(at, node_type)| {
        let own = |place: &usize| graph.type_of(test.nodes[*place] as usize) == at;
        let places: Vec<usize> = (0..test.nodes.len()).filter(own).collect();
        (!places.is_empty()).then_some((node_type.name.clone(), places))
    });
    let types = types
        .map(|(name, places)| -> Result<TypeEstimates> {
            let scores: Vec<f32> = places.iter().map(|&place| test.scores[place]).collect();
            let labels: Vec<u8> = places.iter().map(|&place| test.labels[place]).collect();
            let figures = bootstrap.estimate(&scores, &labels, threshold, &[])?;
            Ok(TypeEstimates { name, figures })
        })
        .collect::<Result<Vec<_>>>()?;
    let others = match &parts.baseline {
        BaselineScores::Scores(scores) => {
            let picked: Option<Vec<f32>> = test.places.iter().map(|&place| scores.get(place).copied()).collect();
            picked.filter(|scores| scores.iter().all(|score| score.is_finite()))
        }
        _ => None,
    };
    let baseline = match (&others, &parts.baseline) {
        (Some(others), _) => baseline_of(&bootstrap, test, others)?,
        (None, BaselineScores::Area(area)) => {
            let roc_auc = Estimate { value: *area, interval: None };
            Some(Baseline { roc_auc, average_precision: None, difference: None })
        }
        _ => None,
    };
    Ok(HeldOut {
        threshold,
        confusion: Confusion::at(&test.scores, &test.labels, threshold)?,
        curves: curves(test, others.as_deref(), &overall, threshold)?,
        overall,
        types,
        baseline,
        alerts: {
            let entries: Vec<(u32, u8)> = test.nodes.iter().copied().zip(test.labels.iter().copied()).collect();
            LabelledEvents::of(parts.scored.dataset, &entries).alerts(&test.scores)
        },
    })
}

fn baseline_of(bootstrap: &Bootstrap, test: &Labelled, others: &[f32]) -> Result<Option<Baseline>> {
    let figures = bootstrap.estimate(others, &test.labels, f64::INFINITY, &[])?;
    let Some(roc_auc) = figures.roc_auc else { return Ok(None) };
    let difference = bootstrap.area_difference(&test.scores, others, &test.labels)?;
    Ok(Some(Baseline { roc_auc, average_precision: figures.average_precision, difference }))
}

fn curves(test: &Labelled, others: Option<&[f32]>, overall: &Estimates, threshold: f64) -> Result<Option<Curves>> {
    type Points = Vec<(f64, f64)>;
    let of = |scores: &[f32]| -> Result<Option<(Points, Points)>> {
        let ranking = Ranking::new(scores, &test.labels)?;
        let (Some(roc), Some(precision)) = (ranking.roc_curve(), ranking.pr_curve()) else { return Ok(None) };
        let roc = roc.iter().map(|point| (point.false_positive_rate, point.true_positive_rate));
        let precision = precision.iter().map(|point| (point.recall, point.precision));
        Ok(Some((thinned(roc), thinned(precision))))
    };
    let Some((roc, precision_recall)) = of(&test.scores)? else { return Ok(None) };
    let (baseline_roc, baseline_precision_recall) = match others {
        Some(others) => of(others)?.unwrap_or_default(),
        None => Default::default(),
    };
    let confusion = Confusion::at(&test.scores, &test.labels, threshold)?;
    let at_threshold = (
        confusion.false_positives as f64 / overall.negatives.max(1) as f64,
        confusion.true_positives as f64 / overall.positives.max(1) as f64,
    );
    Ok(Some(Curves { roc, precision_recall, baseline_roc, baseline_precision_recall, at_threshold }))
}

/// Keeps the first and the last point of every run of points in one cell of a fine grid.
fn thinned(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let cell = |(x, y): (f64, f64)| ((x * CURVE_CELLS).round() as i64, (y * CURVE_CELLS).round() as i64);
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut held: Option<(f64, f64)> = None;
    for point in points {
        match kept.last() {
            Some(&last) if cell(last) == cell(point) => held = Some(point),
            _ => {
                kept.extend(held.take());
                kept.push(point);
            }
        }
    }
    kept.extend(held);
    kept
}

/// How the score of a test node and its probability compare with its label; none without a calibration. Of predicted
/// classes, each node has the calibration of its own class, and its label says whether the class is right.
pub(super) fn calibration_facts(
    scored: &Scored,
    question: Question,
    split: &Split,
    test: &Labelled,
) -> Result<Option<CalibrationFacts>> {
    let (description, labels, anomalous) = match (question, scored.calibration, scored.classes) {
        (Question::Predicted, _, Some(view)) => {
            let fitted = view.calibrations.iter().flatten().count();
            let labels = split.validation.len();
            let of = view.num_classes();
            let text =
                format!("of {fitted} of {of} classes, each fitted against the rest to {labels} validation labels");
            (text, labels, split.validation.iter().filter(|entry| entry.1 == 1).count())
        }
        (_, Some(calibration), view) => {
            let class = view.and_then(ClassView::class);
            (calibration.describe(class), calibration.labels, calibration.anomalous)
        }
        _ => return Ok(None),
    };
    let probabilities = test.nodes.iter().zip(&test.labels);
    let probabilities = probabilities.filter_map(|(&node, &label)| Some((scored.probability(node)? as f32, label)));
    let (probabilities, own_labels): (Vec<f32>, Vec<u8>) = probabilities.unzip();
    if probabilities.is_empty() {
        return Ok(None);
    }
    Ok(Some(CalibrationFacts {
        description,
        labels,
        anomalous,
        raw: Reliability::of(&test.scores, &test.labels, RELIABILITY_BINS)?,
        calibrated: Reliability::of(&probabilities, &own_labels, RELIABILITY_BINS)?,
    }))
}

/// Whether an interval can be given for nodes of these counts.
pub(super) fn has_interval(figures: &Estimates) -> bool {
    figures.positives.min(figures.negatives) >= FEWEST
}
