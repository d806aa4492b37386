//! A tournament: candidates of all kinds learn from the training labels, the validation labels choose, and the one that
//! is chosen is tested once.
//!
//! The search sees [`Known`] alone, which has the labels of the training and the validation part and no others. Only
//! [`finish`] opens the data again and lets the candidate that was chosen be tested, as any other run is.

pub mod ensemble;
mod figure;
pub(super) mod known;
mod search;
mod selection;
mod trainings;

use std::path::{Path, PathBuf};

use graphsieve_kernels::{GraphBackend, TreeBackend};
use serde::{Deserialize, Serialize};

use self::ensemble::{Members, Runs};
pub use self::known::{Known, kind_of};
use self::search::search;
pub use self::trainings::Trainings;
use super::Outcome;
use super::session::{RunOptions, check_same_settings};
use super::tasks::classifier::{self, ClassifyOutcome};
use crate::config::{AutoConfig, Candidate, ClassifyConfig, RunConfig, Training};
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::infer::tree_table::Tables;
use crate::metrics::{average_precision, roc_auc};
use crate::run::evaluation::class_test_of_run;
use crate::run::splits::split_of;
use crate::run::stages::Pipeline;
use crate::run::tournament::{Entry, Figure, Model, Tournament};
use crate::run::{Meta, RunDir, interrupt};

/// Where the runs of the candidates are, in the run of the tournament: with them it is the model.
const CANDIDATES: &str = "candidates";

/// The name of an ensemble where candidates have theirs.
const ENSEMBLE: &str = "ensemble";

/// The name of the Stage 1 that candidates share where candidates have theirs.
const STAGE1: &str = "stage1";

/// Runs a tournament, or what is left of one.
///
/// # Errors
/// Data that no candidate can learn from, what the last candidate ran into where none could be trained, or an
/// interruption: then the best so far is the model.
pub fn run<B: GraphBackend + TreeBackend>(
    config: &AutoConfig,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Outcome> {
    if let Some(from) = &options.from {
        return Err(Error::Usage {
            argument: format!("--from {}", from.display()),
            expected: "a task with one model: stage 1, stage 2, classify or a pipeline".into(),
            found: "a tournament".into(),
            help: "leave it out, or train the task of that run".into(),
        });
    }
    let toml = RunConfig::Auto(config.clone()).to_toml()?;
    let dataset = Dataset::open(&config.data.path)?.in_window(config.data.window)?;
    let known = Known::of(config, dataset)?;
    let candidates = known.candidates(config)?;
    let run = match &options.resume {
        Some(path) => {
            let run = RunDir::resume(path)?;
            check_same_settings(&run, &toml, &["seed", "data", "split"])?;
            run
        }
        None => {
            let meta = Meta::now(options.device.clone(), config.seed);
            RunDir::create(&config.output.dir, &config.name, &toml, meta)?
        }
    };
    interrupt::install();
    let mut tournament = begun(config, &known, &candidates, &run)?;
    tournament.device_memory = B::memory_probe(device).is_some();
    log::info!("{} candidates, validation {} decides", candidates.len(), tournament.figure.title());
    log::info!("{}", tournament.header());
    let tables = Tables::default();
    let mut trainings = Trainings::<B>::new(config, &known, &candidates, &run, options, device, &tables)?;
    let ended = search(&mut tournament, &mut trainings);
    tournament.ensemble = trainings.ensemble(&tournament, config.auto.ensemble)?;
    if let Some(averaged) = &tournament.ensemble {
        log::info!("{}", tournament.line(&averaged.entry));
    }
    let trainings = trainings.into_trainings()?;
    // From here on what was chosen is fixed, and its test labels may be read.
    drop((known, tables));
    let outcome = match tournament.preferred().map(|entry| entry.name.clone()) {
        Some(name) => {
            let figure = tournament.figure;
            let of = Finishing { config, candidates: &candidates, trainings: &trainings, figure, run: &run };
            let (path, outcome) = of.end::<B>(&name, &tournament, options, device)?;
            let relative = path.strip_prefix(run.path()).map_or_else(|_| path.clone(), Path::to_path_buf);
            tournament.model = Some(Model { name, run: relative });
            tournament.write(&run)?;
            outcome
        }
        None => Outcome::default(),
    };
    match ended {
        Ok(()) => Ok(Outcome { tournament: Some((run.path().to_path_buf(), tournament)), ..outcome }),
        Err(error) => {
            if let (Error::Interrupted { .. }, Some(model)) = (&error, &tournament.model) {
                log::info!("{tournament}");
                log::info!("the model of {} is the best so far, {}", run.path().display(), model.name);
            }
            Err(error.of_part(run.path()))
        }
    }
}

/// The record to go on with, or a new one. It is about the candidates that the settings name now: others are added, and
/// those that are no longer named are left out.
fn begun(config: &AutoConfig, known: &Known, candidates: &[&'static Candidate], run: &RunDir) -> Result<Tournament> {
    let before = Tournament::of_run(run.path())?;
    let mut earlier = before.as_ref().map(|before| before.candidates.clone()).unwrap_or_default();
    let entry = |candidate: &&'static Candidate| {
        let begun = earlier.iter().position(|entry| entry.name == candidate.name);
        begun.map(|at| earlier.swap_remove(at)).unwrap_or_else(|| Entry {
            name: candidate.name.into(),
            about: candidate.about.into(),
            rounds: Vec::new(),
            fault: None,
        })
    };
    Ok(Tournament {
        figure: known.figure(),
        validation_labels: known.validation_labels(),
        minutes: config.auto.minutes,
        seconds: before.as_ref().map_or(0.0, |before| before.seconds),
        prefer: config.auto.prefer,
        candidates: candidates.iter().map(entry).collect(),
        ensemble: None,
        complete: false,
        device_memory: false,
        model: before.and_then(|before| before.model),
    })
}

/// What has been trained, to be ended.
struct Finishing<'a> {
    config: &'a AutoConfig,
    candidates: &'a [&'static Candidate],
    /// Of each candidate.
    trainings: &'a [Vec<Training>],
    figure: Figure,
    run: &'a RunDir,
}

impl Finishing<'_> {
    /// Lets a candidate end its run as any run ends: it scores all nodes, is tested once, and is a model of its own. Of
    /// an ensemble, and of a candidate with several trainings, all members do so first.
    fn end<B: GraphBackend + TreeBackend>(
        &self,
        name: &str,
        tournament: &Tournament,
        options: &RunOptions,
        device: &B::Device,
    ) -> Result<(PathBuf, Outcome)> {
        if let Some(averaged) = tournament.ensemble.as_ref().filter(|_| name == ENSEMBLE) {
            let mut members: Vec<(String, PathBuf)> = Vec::new();
            for member in &averaged.members {
                members.push((member.clone(), self.end::<B>(member, tournament, options, device)?.0));
            }
            return self.mean(ENSEMBLE, Members::Candidates, &members, options);
        }
        let at = self.candidates.iter().position(|candidate| candidate.name == name);
        let at = at.unwrap_or_else(|| unreachable!("{name} has been tried"));
        let (mut members, mut ends) = (Vec::new(), Vec::new());
        for Training { name, config } in &self.trainings[at] {
            let options = trainings::options_of(name, self.run, options)?;
            let path = options.resume.clone().unwrap_or_else(|| self.runs());
            ends.push(super::run::<B>(config.clone(), &options, device)?);
            members.push((name.clone(), path));
        }
        if let [(_, path)] = &members[..] {
            return Ok((path.clone(), ends.remove(0)));
        }
        match (self.figure, &self.trainings[at][0].config) {
            (Figure::Accuracy, RunConfig::Classify(first)) => {
                let first = ClassifyConfig { name: format!("{}-{name}", self.config.name), ..first.clone() };
                let run = self.run_of(name, &RunConfig::Classify(first.clone()), options)?;
                let ends: Vec<ClassifyOutcome> = ends.into_iter().filter_map(|end| end.classify).collect();
                let outcome = classifier::averaged(&first, &ensemble::of_restarts(&members), &ends, &run)?;
                Ok((run.path().to_path_buf(), Outcome { classify: Some(outcome), ..Outcome::default() }))
            }
            _ => self.mean(name, Members::Restarts, &members, options),
        }
    }

    /// The mean of anomaly scores, in a run of its own.
    fn mean(&self, name: &str, members: Members, runs: &Runs, options: &RunOptions) -> Result<(PathBuf, Outcome)> {
        let run = self.run_of(name, &RunConfig::Auto(self.config.clone()), options)?;
        let outcome = ensemble::finish(self.config, members, runs, &run)?;
        Ok((run.path().to_path_buf(), Outcome { ensemble: Some(outcome), ..Outcome::default() }))
    }

    /// The run of a mean, beside those of its members: the one that there is, or a new one that keeps `config`.
    fn run_of(&self, name: &str, config: &RunConfig, options: &RunOptions) -> Result<RunDir> {
        let place = Pipeline::candidate(self.run, &self.runs(), name);
        if let Some(path) = place.begun()? {
            return RunDir::resume(&path);
        }
        let meta = Meta::now(options.device.clone(), self.config.seed);
        let run = RunDir::create(&self.runs(), &format!("{}-{name}", self.config.name), &config.to_toml()?, meta)?;
        place.record(&run)?;
        Ok(run)
    }

    fn runs(&self) -> PathBuf {
        self.run.path().join(CANDIDATES)
    }
}

/// What test labels say of a candidate after its tournament, for measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    #[serde(rename = "candidate")]
    pub name: String,
    /// Of its latest round.
    pub validation: f64,
    /// The same figure on the test labels.
    pub test: f64,
    /// On the test labels, where these are anomalous or normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roc_auc: Option<f64>,
    /// Of all rounds.
    pub seconds: f64,
}

/// Tests every candidate of a tournament that is over, and the ensemble: for measurements of the choice, which knows
/// nothing of it.
///
/// # Errors
/// Data and runs that cannot be read, and what the end of a training runs into.
pub fn tested<B: GraphBackend + TreeBackend>(
    config: &AutoConfig,
    (run, tournament): (&Path, &Tournament),
    options: &RunOptions,
    device: &B::Device,
) -> Result<Vec<Tested>> {
    let run = RunDir::open(run)?;
    let dataset = Dataset::open(&config.data.path)?.in_window(config.data.window)?;
    let split = match (&dataset.labels, tournament.figure) {
        (Some(labels), Figure::AveragePrecision) => {
            Some(split_of(&dataset, &labels.entries, &config.split, config.seed)?)
        }
        _ => None,
    };
    let nodes = dataset.graph.num_nodes();
    let known = Known::of(config, dataset)?;
    let candidates = known.candidates(config)?;
    let tables = Tables::default();
    let trainings = Trainings::<B>::new(config, &known, &candidates, &run, options, device, &tables)?;
    let (trainings, figure) = (trainings.into_trainings()?, tournament.figure);
    let of = Finishing { config, candidates: &candidates, trainings: &trainings, figure, run: &run };
    let mut tested = Vec::new();
    for entry in tournament.entries() {
        let Some(latest) = entry.latest() else { continue };
        let (path, _) = of.end::<B>(&entry.name, tournament, options, device)?;
        let (test, roc_auc) = match &split {
            Some(split) => {
                let scores = ensemble::scores_of(&path, nodes)?;
                let (scores, labels): (Vec<f32>, Vec<u8>) =
                    split.test.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
                (average_precision(&scores, &labels)?, Some(roc_auc(&scores, &labels)?))
            }
            None => (class_test_of_run(&RunDir::open(&path)?)?.map_or(f64::NAN, |report| report.accuracy), None),
        };
        let seconds = entry.rounds.iter().map(|round| round.seconds).sum();
        tested.push(Tested { name: entry.name.clone(), validation: latest.value, test, roc_auc, seconds });
    }
    Ok(tested)
}
