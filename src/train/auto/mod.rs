//! A tournament: candidates of all kinds learn from the training labels, the validation labels choose, and the one that
//! is chosen is tested once.
//!
//! The search sees [`Known`] alone, which has the labels of the training and the validation part and no others. Only
//! [`finish`] opens the data again and lets the candidate that was chosen be tested, as any other run is.

mod search;
mod trainings;

use std::path::{Path, PathBuf};

use graphsieve_kernels::{GraphBackend, TreeBackend};

use self::search::search;
pub use self::trainings::{Known, Trainings};
use super::Outcome;
use super::session::{RunOptions, check_same_settings};
use crate::config::{AutoConfig, Candidate, RunConfig};
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::infer::tree_table::Tables;
use crate::run::tournament::{Entry, Model, Tournament};
use crate::run::{Meta, RunDir, interrupt};

/// Where the runs of the candidates are, in the run of the tournament: with them it is the model.
const CANDIDATES: &str = "candidates";

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
            let run = RunDir::open(path)?;
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
    log::info!("{} candidates, validation {} decides", candidates.len(), tournament.figure.title());
    log::info!("{}", tournament.header());
    let tables = Tables::default();
    let mut trainings = Trainings::<B>::new(config, &known, &candidates, &run, options, device, &tables)?;
    let ended = search(&mut tournament, &mut trainings);
    let configs = trainings.into_configs();
    // From here on what was chosen is fixed, and its test labels may be read.
    drop((known, tables));
    let chosen = tournament.preferred().map(|entry| entry.name.clone());
    let chosen = candidates.iter().position(|candidate| Some(candidate.name) == chosen.as_deref());
    let outcome = match chosen {
        Some(at) => {
            let (own, path, outcome) = finish::<B>(candidates[at], &configs[at], &run, options, device)?;
            let relative = path.strip_prefix(run.path()).map_or_else(|_| path.clone(), Path::to_path_buf);
            tournament.model = Some(Model { name: own.into(), run: relative });
            tournament.write(&run)?;
            outcome
        }
        None => Outcome::default(),
    };
    let resume = format!("graphsieve train --resume {}", run.path().display());
    match ended {
        Ok(()) => Ok(Outcome { tournament: Some((run.path().to_path_buf(), tournament)), ..outcome }),
        Err(Error::Interrupted { epoch, .. }) => {
            if let Some(model) = &tournament.model {
                log::info!("{tournament}");
                log::info!("the model of {} is the best so far, {}", run.path().display(), model.name);
            }
            Err(Error::Interrupted { epoch, resume })
        }
        Err(error) => Err(error),
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
        complete: false,
        model: before.and_then(|before| before.model),
    })
}

/// Lets a candidate end its run as any run ends: it scores all nodes, is tested once, and is a model of its own.
fn finish<B: GraphBackend + TreeBackend>(
    candidate: &'static Candidate,
    config: &RunConfig,
    run: &RunDir,
    options: &RunOptions,
    device: &B::Device,
) -> Result<(&'static str, PathBuf, Outcome)> {
    let options = trainings::options_of(candidate, run, options)?;
    let path = options.resume.clone().unwrap_or_else(|| run.path().join(CANDIDATES));
    let outcome = super::run::<B>(config.clone(), &options, device)?;
    Ok((candidate.name, path, outcome))
}
