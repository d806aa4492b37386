//! The ensemble of a tournament: candidates that rank the validation labels better together than each alone.
//!
//! The scores of candidates become probabilities by Platt's sigmoid, fitted to the validation labels; an ensemble is the mean
//! of those of its members. The first member is the best candidate, each further one what raises the average precision
//! most, as long as something does. The figure of the ensemble is nested: each of five parts of the validation labels
//! is scored by the members and sigmoids that the other parts choose, so that it stands beside the figures of
//! candidates. Of data that are split by group no group is in two parts.
//!
//! # Source
//! Caruana, Niculescu-Mizil, Crew and Ksikes, Ensemble selection from libraries of models (ICML 2004).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use ndarray::Array1;
use serde::{Deserialize, Serialize};

use crate::config::{AutoConfig, PROBABILITIES_FILE, RankingMetric, RunConfig, STAGE2_SCORES_FILE, STAGE3_SCORES_FILE};
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;
use crate::graph::{Dataset, write_npy_f32};
use crate::metrics::{Calibration, average_precision};
use crate::run::RunDir;
use crate::run::baseline::{Baseline, BaselineOnValidation, OnValidation};
use crate::run::bundle::Origin;
use crate::run::bundle::drift::Profile;
use crate::run::calibration::write_calibration;
use crate::run::ensemble::{ENSEMBLE_SCORES_FILE, Ensemble, Member, mean_probability};
use crate::run::evaluation::{EVALUATION_FILE, Evaluation, evaluate_split, read_anomaly_column, read_scores};
use crate::run::splits::split_of;

/// Parts of the validation labels for the figure.
const FOLDS: usize = 5;
/// Candidates that may become members: the best ones.
pub const MOST_CANDIDATES: usize = 10;

/// What a candidate said about the validation labels when it was judged last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said {
    pub scores: Vec<f32>,
    pub labels: Vec<u8>,
}

impl Said {
    fn file(run: &RunDir, candidate: &str) -> PathBuf {
        run.output("validation").join(format!("{candidate}.json"))
    }

    /// Keeps it in the run of the tournament.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, run: &RunDir, candidate: &str) -> Result<()> {
        let file = Self::file(run, candidate);
        let place = run.output("validation");
        fs::create_dir_all(&place).map_err(|source| Error::io(&place, "create", source))?;
        atomic_write(file, |file| Ok(serde_json::to_writer(file, self)?))
    }

    /// What was kept, if anything was.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file that was changed.
    pub fn read(run: &RunDir, candidate: &str) -> Result<Option<Self>> {
        let file = Self::file(run, candidate);
        match file.is_file() {
            true => {
                read_json(&file, "validation scores of a candidate", "the file was changed; start a new run").map(Some)
            }
            false => Ok(None),
        }
    }
}

/// Members, the best first, and the nested scores of the validation labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub members: Vec<usize>,
    pub scores: Vec<f32>,
}

/// The ensemble of at most `most` of the candidates whose `scores` of the validation labels these are; labels of one of
/// the `groups` stay together. `None` where no second one is of use, or a class has too few labels or groups to divide.
///
/// # Errors
/// [`Error::Data`] for scores that are not finite.
pub fn found(scores: &[Vec<f32>], labels: &[u8], groups: &[u32], most: usize) -> Result<Option<Found>> {
    if scores.len() < 2 || most < 2 {
        return Ok(None);
    }
    let Some((folds, fold_of)) = folds_of(labels, groups) else { return Ok(None) };
    let everything: Vec<usize> = (0..labels.len()).collect();
    let (members, _) = select(scores, labels, &everything, most)?;
    if members.len() < 2 {
        return Ok(None);
    }
    let mut nested = vec![0.0; labels.len()];
    for fold in 0..folds {
        let (held, others): (Vec<usize>, Vec<usize>) = everything.iter().copied().partition(|&at| fold_of[at] == fold);
        let (of_others, calibrations) = select(scores, labels, &others, most)?;
        let of_held: Vec<Vec<f32>> = of_others.iter().map(|&member| at(&scores[member], &held)).collect();
        let mean = mean_probability(&calibrations.iter().zip(&of_held).collect::<Vec<_>>());
        held.iter().zip(mean).for_each(|(&at, score)| nested[at] = score);
    }
    Ok(Some(Found { members, scores: nested }))
}

/// The number of parts and that of each label: whole groups, the largest first, each to the part that has least of what
/// the group has. Labels that stand alone go by turns within a class. `None` where a part would hold all of a class.
fn folds_of(labels: &[u8], groups: &[u32]) -> Option<(usize, Vec<usize>)> {
    let mut counts: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    for (&group, &label) in groups.iter().zip(labels) {
        counts.entry(group).or_default()[usize::from(label)] += 1;
    }
    let of_class = [0, 1].map(|class| counts.values().filter(|counts| counts[class] > 0).count());
    let total = [0, 1].map(|class| labels.iter().filter(|&&label| label == class).count());
    let folds = FOLDS.min(of_class[0]).min(of_class[1]);
    let mut order: Vec<(u32, [usize; 2])> = counts.into_iter().collect();
    order.sort_by_key(|(_, counts)| Reverse(counts[0] + counts[1]));
    let mut have = vec![[0usize; 2]; folds];
    let mut fold_of: BTreeMap<u32, usize> = BTreeMap::new();
    for (group, counts) in order {
        let share = |fold: usize, class: usize| have[fold][class] as f64 * counts[class] as f64 / total[class] as f64;
        let has = |fold: usize| share(fold, 0) + share(fold, 1);
        let fold = (0..folds).min_by(|&a, &b| has(a).total_cmp(&has(b)))?;
        (0..2).for_each(|class| have[fold][class] += counts[class]);
        fold_of.insert(group, fold);
    }
    let holds_all = |have: &[usize; 2]| (0..2).any(|class| have[class] == total[class]);
    (folds >= 2 && !have.iter().any(holds_all)).then(|| (folds, groups.iter().map(|group| fold_of[group]).collect()))
}

fn at<T: Copy>(values: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&at| values[at]).collect()
}

/// Members and their sigmoids by the labels at some places.
fn select(scores: &[Vec<f32>], labels: &[u8], places: &[usize], most: usize) -> Result<(Vec<usize>, Vec<Calibration>)> {
    let labels = at(labels, places);
    let mut calibrations = Vec::with_capacity(scores.len());
    let mut probabilities = Vec::with_capacity(scores.len());
    for scores in scores {
        let scores = at(scores, places);
        let calibration = Calibration::platt(&scores, &labels)?;
        probabilities.push(mean_probability(&[(&calibration, &scores)]));
        calibrations.push(calibration);
    }
    let mut members: Vec<usize> = Vec::new();
    let (mut sum, mut reached) = (vec![0.0f32; labels.len()], 0.0);
    while members.len() < most {
        let mut best: Option<(f64, usize, Vec<f32>)> = None;
        for candidate in (0..scores.len()).filter(|candidate| !members.contains(candidate)) {
            let with: Vec<f32> = sum.iter().zip(&probabilities[candidate]).map(|(sum, own)| sum + own).collect();
            let value = average_precision(&with, &labels)?;
            if best.as_ref().is_none_or(|(best, ..)| value > *best) {
                best = Some((value, candidate, with));
            }
        }
        match best {
            Some((value, candidate, with)) if members.is_empty() || value > reached + 1e-9 => {
                (reached, sum) = (value, with);
                members.push(candidate);
            }
            _ => break,
        }
    }
    let calibrations = members.iter().map(|&member| calibrations[member].clone()).collect();
    Ok((members, calibrations))
}

/// What a finished ensemble leaves.
#[derive(Clone, Debug, Serialize)]
pub struct EnsembleOutcome {
    pub run: PathBuf,
    /// Names of the candidates.
    pub members: Vec<String>,
    /// On the validation and the test part.
    pub evaluation: Evaluation,
    /// Test ROC-AUC of a logistic regression on the raw features, for comparison.
    pub baseline_auc: Option<f64>,
    /// What the same has on the validation part, of average precision.
    pub baseline_validation: Option<BaselineOnValidation>,
}

impl fmt::Display for EnsembleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the mean of {}, held-out test labels:\n{}", self.members.join(", "), self.evaluation.test)?;
        if let Some(auc) = self.baseline_auc {
            writeln!(f, "logistic regression on raw features: test ROC-AUC {auc:.4}")?;
        }
        let compared = OnValidation::of(&self.evaluation.validation, self.baseline_validation);
        match compared.and_then(|compared| compared.warning()) {
            Some(warning) => writeln!(f, "warning: {warning}"),
            None => Ok(()),
        }
    }
}

/// Runs that are averaged, beside that of their mean: name and place.
pub type Runs = [(String, PathBuf)];

/// What the members of an ensemble are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Candidates, whose scores are calibrated on the validation labels before they are averaged.
    Candidates,
    /// Trainings of one candidate that differ in their seed alone: their scores are averaged as they are.
    Restarts,
}

/// Where the run `own` is, from a run beside it.
fn beside(own: &Path) -> PathBuf {
    Path::new("..").join(own.file_name().unwrap_or_default())
}

/// The record of trainings that differ in their seed alone.
pub fn of_restarts(runs: &Runs) -> Ensemble {
    Ensemble::of_restarts(runs.iter().map(|(name, own)| (name.clone(), beside(own))))
}

/// Makes `run` the model that is the mean of finished runs with anomaly scores: scores all nodes and is tested once.
///
/// # Errors
/// Data and runs that cannot be read, files that cannot be written.
pub fn finish(config: &AutoConfig, members: Members, runs: &Runs, run: &RunDir) -> Result<EnsembleOutcome> {
    let dataset = Dataset::open(&config.data.path)?.in_window(config.data.window)?;
    let labels = dataset.binary_labels(&config.data.path)?;
    let split = split_of(&dataset, &labels.entries, &config.split, config.seed)?;
    let origin = Origin::of("ensemble", &config.data.path, &dataset, None)?;
    origin.begin(run, None)?;
    let nodes = dataset.graph.num_nodes();
    let scores = runs.iter().map(|(_, own)| scores_of(own, nodes)).collect::<Result<Vec<_>>>()?;
    let calibrated = |((name, own), of_all): (&(String, PathBuf), &Vec<f32>)| {
        let part = split.validation.iter();
        let (of_validation, labels): (Vec<f32>, Vec<u8>) =
            part.map(|&(node, label)| (of_all[node as usize], label)).unzip();
        let calibration = Calibration::platt(&of_validation, &labels)?;
        Ok(Member { name: name.clone(), run: beside(own), calibration })
    };
    let ensemble = match members {
        Members::Candidates => Ensemble { members: runs.iter().zip(&scores).map(calibrated).collect::<Result<_>>()? },
        Members::Restarts => of_restarts(runs),
    };
    let scores = ensemble.mean(&scores);
    ensemble.write(run)?;
    write_npy_f32(run.output(ENSEMBLE_SCORES_FILE), &Array1::from_vec(scores.clone()))?;
    let baseline = Baseline::of(&dataset, &split)?;
    let outcome = EnsembleOutcome {
        run: run.path().to_path_buf(),
        members: runs.iter().map(|(name, _)| name.clone()).collect(),
        evaluation: evaluate_split(&scores, &dataset, &split)?,
        baseline_auc: baseline.as_ref().map(|baseline| baseline.test_auc),
        baseline_validation: baseline.and_then(|baseline| baseline.on_validation(RankingMetric::AveragePrecision)),
    };
    write_calibration(run, &scores, &split)?;
    atomic_write(run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    origin.finish(run, &Profile::of_training(&dataset, Some(&scores), &split.train))?;
    Ok(outcome)
}

/// How anomalous the model of a finished run found every node.
///
/// # Errors
/// A run that has no such scores.
pub fn scores_of(run: &Path, nodes: usize) -> Result<Vec<f32>> {
    match RunConfig::load_kept(&run.join("config.toml"), &[])? {
        RunConfig::Stage2(_) => read_scores(&run.join(STAGE2_SCORES_FILE), nodes),
        RunConfig::Stage3(_) => read_scores(&run.join(STAGE3_SCORES_FILE), nodes),
        RunConfig::Auto(_) => read_scores(&run.join(ENSEMBLE_SCORES_FILE), nodes),
        RunConfig::Stage1(_) | RunConfig::Classify(_) | RunConfig::Pipeline(_) => {
            read_anomaly_column(&run.join(PROBABILITIES_FILE), nodes)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// Labels in no order, and scores that know as much of them as `knows`, the rest being noise of a seed.
    fn labels(count: u64) -> Vec<u8> {
        (0..count).map(|at| u8::from(noise(7, at) < 0.25)).collect()
    }

    fn noise(seed: u64, at: u64) -> f64 {
        let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 32)) as f64 / u64::MAX as f64
    }

    fn scores(labels: &[u8], seed: u64, knows: f64) -> Vec<f32> {
        let of = |(at, &label): (usize, &u8)| knows * f64::from(label) + (1.0 - knows) * noise(seed, at as u64);
        labels.iter().enumerate().map(|of_one| of(of_one) as f32).collect()
    }

    /// Every label in a group of its own.
    static ALONE: LazyLock<Vec<u32>> = LazyLock::new(|| (0..400).collect());

    #[test]
    fn candidates_that_err_elsewhere_are_better_together_and_copies_are_not() {
        let labels = labels(400);
        let good: Vec<Vec<f32>> = (1..4).map(|seed| scores(&labels, seed, 0.3)).collect();
        let value = |scores: &[f32]| average_precision(scores, &labels).unwrap();
        let together = found(&good, &labels, &ALONE, 3).unwrap().unwrap();
        assert!(together.members.len() >= 2, "{together:?}");
        let best = good.iter().map(|own| value(own)).fold(0.0, f64::max);
        assert!(value(&together.scores) > best + 0.02, "{} against {best}", value(&together.scores));
        assert_eq!(
            found(&[good[0].clone(), good[0].clone()], &labels, &ALONE, 3).unwrap(),
            None,
            "a copy adds nothing"
        );
        assert_eq!(found(&good, &labels, &ALONE, 1).unwrap(), None);
        assert_eq!(found(&good[..1], &labels, &ALONE, 3).unwrap(), None);
        assert_eq!(found(&good, &labels, &ALONE, 2).unwrap().unwrap().members.len(), 2);
        let few: Vec<u8> = (0..400).map(|at| u8::from(at == 5)).collect();
        assert_eq!(found(&good, &few, &ALONE, 3).unwrap(), None, "a single anomaly cannot be divided");
    }

    #[test]
    fn among_many_candidates_that_know_nothing_the_figure_is_chance() {
        let labels = labels(400);
        let share = labels.iter().filter(|&&label| label == 1).count() as f64 / 400.0;
        let mut sum = 0.0;
        for draw in 0..6u64 {
            let blind: Vec<Vec<f32>> = (0..10).map(|seed| scores(&labels, 100 * draw + seed + 11, 0.0)).collect();
            let Some(of) = found(&blind, &labels, &ALONE, 3).unwrap() else { continue };
            // On the labels that chose the members they look better than they are.
            let (members, calibrations) = select(&blind, &labels, &(0..400).collect::<Vec<_>>(), 3).unwrap();
            let own: Vec<(&Calibration, &Vec<f32>)> =
                calibrations.iter().zip(members.iter().map(|&member| &blind[member])).collect();
            let chosen = average_precision(&mean_probability(&own), &labels).unwrap();
            let nested = average_precision(&of.scores, &labels).unwrap();
            assert!(chosen > nested, "{chosen} {nested}");
            sum += nested - share;
        }
        assert!((sum / 6.0).abs() < 0.04, "{} beside chance", sum / 6.0);
    }

    #[test]
    fn labels_that_stand_alone_are_divided_by_turns_within_a_class() {
        let labels = labels(400);
        let (folds, fold_of) = folds_of(&labels, &ALONE).unwrap();
        assert_eq!(folds, FOLDS);
        for class in 0..2 {
            let of_class = (0..400).filter(|&at| labels[at] == class).map(|at| fold_of[at]);
            assert!(of_class.enumerate().all(|(turn, fold)| fold == turn % FOLDS), "{fold_of:?}");
        }
    }

    #[test]
    fn labels_of_a_group_are_in_one_part_and_every_part_leaves_both_classes() {
        let labels = labels(400);
        let groups: Vec<u32> = (0..400).map(|at| (noise(3, at) * 60.0) as u32).collect();
        let (folds, fold_of) = folds_of(&labels, &groups).unwrap();
        assert_eq!(folds, FOLDS);
        let mut of_group: BTreeMap<u32, usize> = BTreeMap::new();
        for (&group, &fold) in groups.iter().zip(&fold_of) {
            assert_eq!(*of_group.entry(group).or_insert(fold), fold, "group {group}");
        }
        for fold in 0..folds {
            let size = fold_of.iter().filter(|&&of| of == fold).count();
            assert!((50..=110).contains(&size), "{size}");
        }
        // Two groups have all anomalies.
        let pairs: Vec<u32> =
            labels.iter().zip(0..).map(|(&label, at)| if label == 1 { at % 2 } else { at + 2 }).collect();
        assert_eq!(folds_of(&labels, &pairs).unwrap().0, 2);
        let one: Vec<u32> = labels.iter().zip(0..).map(|(&label, at)| if label == 1 { 0 } else { at + 1 }).collect();
        assert_eq!(folds_of(&labels, &one), None, "one group has all anomalies");
    }
}
