//! The ensemble of a tournament as a model: what candidates said of the validation labels, and the run of their mean.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use ndarray::Array1;
use serde::{Deserialize, Serialize};

use crate::config::{AutoConfig, ENSEMBLE_SCORES_FILE, RankingMetric, RunConfig};
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;
use crate::graph::{Dataset, write_npy_f32};
use crate::metrics::Calibration;
use crate::run::RunDir;
use crate::run::baseline::BesideBaseline;
use crate::run::bundle::Origin;
use crate::run::bundle::drift::Profile;
use crate::run::calibration::write_calibration;
use crate::run::ensemble::{Ensemble, Member};
use crate::run::evaluation::{EVALUATION_FILE, Evaluation, evaluate_split, read_anomaly_column, read_scores};
use crate::run::splits::split_of;

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

/// What a finished ensemble leaves.
#[derive(Clone, Debug, Serialize)]
pub struct EnsembleOutcome {
    pub run: PathBuf,
    /// Names of the candidates.
    pub members: Vec<String>,
    /// On the validation and the test part.
    pub evaluation: Evaluation,
    #[serde(flatten)]
    pub baseline: BesideBaseline,
}

impl fmt::Display for EnsembleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the mean of {}, held-out test labels:\n{}", self.members.join(", "), self.evaluation.test)?;
        write!(f, "{}", self.baseline)
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
    let outcome = EnsembleOutcome {
        run: run.path().to_path_buf(),
        members: runs.iter().map(|(name, _)| name.clone()).collect(),
        evaluation: evaluate_split(&scores, &dataset, &split)?,
        baseline: BesideBaseline::of(&dataset, &split, RankingMetric::AveragePrecision, &scores)?,
    };
    write_calibration(run, &scores, &split)?;
    atomic_write(run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    origin.finish(run, &Profile::of_training(&dataset, Some(&scores), &split.train), &[])?;
    Ok(outcome)
}

/// How anomalous the model of a finished run found every node.
///
/// # Errors
/// A run that has no such scores.
pub fn scores_of(run: &Path, nodes: usize) -> Result<Vec<f32>> {
    let config = RunConfig::load_kept(&run.join("config.toml"), &[])?;
    let file = config.output_file().unwrap_or_else(|| unreachable!("a pipeline is no candidate"));
    match config {
        RunConfig::Classify(_) => read_anomaly_column(&run.join(file), nodes),
        _ => read_scores(&run.join(file), nodes),
    }
}
