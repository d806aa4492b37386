//! From the parts of a run to what its report says.

use super::data::{
    Anomaly, Baseline, CalibrationFacts, Curves, DataFacts, Explained, HeldOut, Histogram, Panel, Part, PartFacts,
    RelationFacts, ReportData, RunFacts, SplitFacts, TypeEstimates, TypeFacts,
};
use super::warnings::{Grounds, warnings};
use crate::data::split::Split;
use crate::error::Result;
use crate::graph::{Dataset, Statistics};
use crate::metrics::{
    Bootstrap, Calibration, Confusion, Estimate, Estimates, FEWEST, Ranking, Reliability, best_f1_threshold,
};

/// Bins of a histogram, and at most of a reliability diagram.
const HISTOGRAM_BINS: usize = 40;
const RELIABILITY_BINS: usize = 10;

/// Places that an analyst may have time for; those up to half of the labelled nodes are shown.
const TOP: [u64; 9] = [10, 25, 50, 100, 250, 500, 1000, 2500, 5000];

/// Cells of the grid that a curve is thinned to: finer than it is drawn.
const CURVE_CELLS: f64 = 400.0;

/// The parts of a run.
#[derive(Debug)]
pub struct Parts<'a> {
    pub name: String,
    /// `Stage 2: graph attention`.
    pub stage: String,
    pub score_meaning: String,
    pub run: RunFacts,
    /// Where the data were read from.
    pub data_path: String,
    pub dataset: &'a Dataset,
    /// By global id; not finite for a node that has none.
    pub scores: &'a [f32],
    pub split: Option<&'a Split>,
    pub calibration: Option<&'a Calibration>,
    /// Whether the run was fitted to the training labels, and not to edges alone.
    pub fitted_to_labels: bool,
    pub baseline: BaselineScores,
    pub training: Vec<Panel>,
    /// Highest scores that are listed.
    pub top: usize,
    /// Whether labelled nodes are listed among the others. Without it they are left out, as nobody has to look for
    /// them, unless every node with a score is labelled.
    pub all: bool,
}

/// What is known of the logistic regression beside a run.
#[derive(Debug, Clone, PartialEq)]
pub enum BaselineScores {
    Unknown,
    /// Its test ROC-AUC.
    Area(f64),
    /// Its score of every test node, in the order of the split.
    Scores(Vec<f32>),
}

/// Computes everything but the explanations, which [`explain`] adds.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) for labels that do not fit the graph.
pub fn gather(parts: Parts) -> Result<ReportData> {
    let statistics = Statistics::of(parts.dataset);
    let data = data_facts(&statistics, parts.data_path.clone());
    let split = parts.split.map(split_facts);
    let test = parts.split.map(|split| labelled(parts.scores, &split.test));
    let held_out = match (parts.split, &test) {
        (Some(split), Some(test)) if !test.scores.is_empty() => Some(held_out(&parts, split, test)?),
        _ => None,
    };
    let calibration = match (parts.calibration, &test) {
        (Some(calibration), Some(test)) if !test.scores.is_empty() => Some(calibration_facts(calibration, test)?),
        _ => None,
    };
    let scored_nodes = parts.scores.iter().filter(|score| score.is_finite()).count();
    let by_class = |entries: &[(u32, u8)]| {
        let part = labelled(parts.scores, entries);
        [0, 1].map(|class| part.of_class(class))
    };
    let grounds = Grounds {
        nodes: parts.scores.len(),
        scored: scored_nodes,
        edges_needed: !parts.fitted_to_labels,
        types: &data.types,
        split: split.as_ref(),
        held_out: held_out.as_ref(),
        calibration: calibration.as_ref(),
        scores: match parts.split {
            Some(split) => [by_class(&split.train), by_class(&split.test)],
            None => Default::default(),
        },
        fitted_to_labels: parts.fitted_to_labels,
    };
    let warnings = warnings(&grounds);
    let labels = labels_by_node(&parts);
    let labelled_nodes = labels.iter().zip(parts.scores).filter(|(label, score)| label.is_some() && score.is_finite());
    let labelled_nodes = labelled_nodes.count();
    let with_labelled = parts.all || labelled_nodes == scored_nodes;
    Ok(ReportData {
        histograms: histograms(&parts),
        anomalies: anomalies(&parts, &labels, with_labelled),
        name: parts.name,
        stage: parts.stage,
        score_meaning: parts.score_meaning,
        run: parts.run,
        data,
        split,
        held_out,
        training: parts.training,
        calibration,
        scored_nodes,
        left_out: if with_labelled { 0 } else { labelled_nodes },
        warnings,
    })
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

/// Labelled nodes that have a score.
struct Labelled {
    nodes: Vec<u32>,
    scores: Vec<f32>,
    labels: Vec<u8>,
    /// Place of each among the entries.
    places: Vec<usize>,
}

impl Labelled {
    fn of_class(&self, class: u8) -> Vec<f32> {
        let of_class = self.scores.iter().zip(&self.labels).filter(|(_, label)| **label == class);
        of_class.map(|(score, _)| *score).collect()
    }
}

fn labelled(scores: &[f32], entries: &[(u32, u8)]) -> Labelled {
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

fn held_out(parts: &Parts, split: &Split, test: &Labelled) -> Result<HeldOut> {
    let bootstrap = Bootstrap::default();
    let validation = labelled(parts.scores, &split.validation);
    // Without both classes nothing can be chosen: then nothing is flagged.
    let chosen = best_f1_threshold(&validation.scores, &validation.labels);
    let threshold = chosen.map_or(f64::INFINITY, |choice| choice.threshold);
    let positives = test.labels.iter().map(|&label| u64::from(label)).sum::<u64>();
    let half = test.labels.len() as u64 / 2;
    let mut ks: Vec<u64> =
        TOP.into_iter().filter(|&k| k <= half).chain([positives].into_iter().filter(|&k| k > 0)).collect();
    ks.sort_unstable();
    ks.dedup();
    let overall = bootstrap.estimate(&test.scores, &test.labels, threshold, &ks)?;
    let graph = &parts.dataset.graph;
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

fn calibration_facts(calibration: &Calibration, test: &Labelled) -> Result<CalibrationFacts> {
    let probabilities: Vec<f32> =
        test.scores.iter().map(|&score| calibration.probability(score).unwrap_or_default() as f32).collect();
    Ok(CalibrationFacts {
        description: calibration.to_string(),
        labels: calibration.labels,
        anomalous: calibration.anomalous,
        raw: Reliability::of(&test.scores, &test.labels, RELIABILITY_BINS)?,
        calibrated: Reliability::of(&probabilities, &test.labels, RELIABILITY_BINS)?,
    })
}

fn data_facts(statistics: &Statistics, path: String) -> DataFacts {
    let types = statistics.node_types.iter().map(|t| TypeFacts {
        name: t.name.clone(),
        nodes: t.nodes,
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
        path,
        nodes: statistics.nodes,
        edges: statistics.edges,
        feature_dim: statistics.feature_dim,
        types: types.collect(),
        relations: relations.collect(),
        notes: statistics.notes.clone(),
    }
}

fn split_facts(split: &Split) -> SplitFacts {
    let parts = [(Part::Train, &split.train), (Part::Validation, &split.validation), (Part::Test, &split.test)];
    let facts = parts.map(|(part, entries)| {
        let anomalous = entries.iter().filter(|entry| entry.1 == 1).count();
        PartFacts { part, anomalous, normal: entries.len() - anomalous }
    });
    SplitFacts { parts: facts.into() }
}

/// One histogram of all nodes, then one per node type where there are several.
fn histograms(parts: &Parts) -> Vec<Histogram> {
    let finite = || parts.scores.iter().copied().filter(|score| score.is_finite());
    if finite().next().is_none() {
        return Vec::new();
    }
    // Scores are shares; others get the range that they have.
    let low = f64::from(finite().fold(0.0, f32::min));
    let high = f64::from(finite().fold(1.0, f32::max));
    let bin = |score: f32| {
        let place = (f64::from(score) - low) / (high - low) * HISTOGRAM_BINS as f64;
        (place as usize).min(HISTOGRAM_BINS - 1)
    };
    let graph = &parts.dataset.graph;
    let empty = |name: &str| Histogram {
        name: name.into(),
        low,
        high,
        all: vec![0; HISTOGRAM_BINS],
        normal: vec![0; HISTOGRAM_BINS],
        anomalous: vec![0; HISTOGRAM_BINS],
    };
    let types = graph.node_types();
    let mut made: Vec<Histogram> =
        std::iter::once(empty("all types")).chain(types.iter().map(|node_type| empty(&node_type.name))).collect();
    for (node, &score) in parts.scores.iter().enumerate().filter(|(_, score)| score.is_finite()) {
        for at in [0, 1 + graph.type_of(node)] {
            made[at].all[bin(score)] += 1;
        }
    }
    let test = labelled(parts.scores, parts.split.map_or(&[], |split| &split.test));
    for ((&node, &score), &label) in test.nodes.iter().zip(&test.scores).zip(&test.labels) {
        for at in [0, 1 + graph.type_of(node as usize)] {
            let counts = if label == 1 { &mut made[at].anomalous } else { &mut made[at].normal };
            counts[bin(score)] += 1;
        }
    }
    made.truncate(if types.len() > 1 { made.len() } else { 1 });
    made.retain(|histogram| histogram.all.iter().any(|&count| count > 0));
    made
}

/// The highest scores; of equal ones the lowest node first.
fn anomalies(parts: &Parts, labels: &[Option<u8>], with_labelled: bool) -> Vec<Anomaly> {
    let listed =
        |node: u32| parts.scores[node as usize].is_finite() && (with_labelled || labels[node as usize].is_none());
    let mut order: Vec<u32> = (0..parts.scores.len() as u32).filter(|&node| listed(node)).collect();
    let compare = |a: &u32, b: &u32| parts.scores[*b as usize].total_cmp(&parts.scores[*a as usize]).then(a.cmp(b));
    if parts.top < order.len() {
        if parts.top > 0 {
            order.select_nth_unstable_by(parts.top - 1, compare);
        }
        order.truncate(parts.top);
    }
    order.sort_unstable_by(compare);
    let graph = &parts.dataset.graph;
    let label_of = |node: u32| {
        let label = labels[node as usize]?;
        Some((label == 1, parts.split.and_then(|split| split.part_of(node))))
    };
    let anomaly = |(at, &node): (usize, &u32)| {
        let node_type = &graph.node_types()[graph.type_of(node as usize)];
        let id = parts.dataset.ids.as_ref().and_then(|ids| ids.get(node as usize));
        let score = parts.scores[node as usize];
        Anomaly {
            rank: at + 1,
            node,
            node_type: node_type.name.clone(),
            id: id.map_or_else(|| (node as usize - node_type.offset).to_string(), str::to_owned),
            score: f64::from(score),
            probability: parts.calibration.and_then(|calibration| calibration.probability(score)),
            label: label_of(node),
            explanation: None,
        }
    };
    order.iter().enumerate().map(anomaly).collect()
}

/// The label of every node by global id.
fn labels_by_node(parts: &Parts) -> Vec<Option<u8>> {
    let mut labels = vec![None; parts.scores.len()];
    for &(node, label) in parts.dataset.labels.iter().flat_map(|labels| &labels.entries) {
        labels[node as usize] = Some(label);
    }
    labels
}

/// Whether an interval can be given for nodes of these counts.
pub(super) fn has_interval(figures: &Estimates) -> bool {
    figures.positives.min(figures.negatives) >= FEWEST
}
