//! A synthetic marketplace, or data that are there, then the stages on them. The pipeline has a run of its own, from
//! which it goes on to its end.

use std::path::{Path, PathBuf};

use graphsieve_kernels::{GraphBackend, TreeBackend};

use super::ranks::alone;
use super::session::{RunOptions, check_same_settings};
use super::stage3;
use super::tasks::{attention, auto_encoder};
use super::{Outcome, tasks::attention::Stage2Outcome, tasks::auto_encoder::Stage1Outcome};
use crate::config::{PipelineConfig, RankingMetric, RunConfig, Stage2Input};
use crate::data::synth;
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::run::progress::{StageProgress, Unit};
use crate::run::ranked::LabelledEvents;
use crate::run::splits::split_of;
use crate::run::stages::Pipeline;
use crate::run::{Meta, RunDir};

/// Runs what is left of a pipeline: all of it, or what comes behind the point where the run that `options` name ended.
///
/// # Errors
/// What a stage runs into; an interruption names the run of the pipeline.
pub fn run<B: GraphBackend + TreeBackend>(
    config: &PipelineConfig,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Outcome> {
    let toml = RunConfig::Pipeline(config.clone()).to_toml()?;
    if let Some(from) = &options.from {
        stage_of(from, "stage1").and(stage_of(from, "stage2"))?;
    }
    if config.synth.is_none() && !config.data.path.exists() {
        let help = "import tables first; a section [synth] would make a marketplace";
        return Err(Error::format(&config.data.path, "path", "a data directory", "nothing", help));
    }
    check_labels(config)?;
    let run = match &options.resume {
        Some(path) => {
            let run = RunDir::resume(path)?;
            check_same_settings(&run, &toml, &["seed", "data", "synth"])?;
            run
        }
        None => {
            let meta = Meta::now(options.device.clone(), config.seed);
            RunDir::create(&config.output.dir, &config.name, &toml, meta)?
        }
    };
    let outcome = stages::<B>(config, options, &run, device);
    if outcome.is_err() && options.resume.is_none() {
        run.remove_if_empty();
    }
    outcome
}

fn stages<B: GraphBackend + TreeBackend>(
    config: &PipelineConfig,
    options: &RunOptions,
    run: &RunDir,
    device: &B::Device,
) -> Result<Outcome> {
    let progress = StageProgress::with_mode(Unit::Items, options.progress);
    if let Some(of) = &config.synth {
        let made = synth::provide(&config.data.path, &of.into(), &progress.callback())?;
        if !made && options.resume.is_none() {
            log::info!("data of {}; [synth] is for a run that finds none", config.data.path.display());
        }
    }
    let stage1: Stage1Outcome = stage(run, "stage1", options, |options| {
        auto_encoder::run::<B>(&config.stage1, options, None, device).map(alone)
    })?;
    let mut second = config.stage2.clone();
    if second.data.input == Stage2Input::Embeddings {
        second.data.embeddings = Some(stage1.run.clone());
    }
    let stage2: Stage2Outcome =
        stage(run, "stage2", options, |options| attention::run::<B>(&second, options, None, device).map(alone))?;
    let stage3 = match config.stage3.clone() {
        None => None,
        Some(mut third) => {
            third.data.embeddings = Some(stage1.run.clone());
            if let Some(folded) = third.stage2.as_mut().filter(|of| of.data.input == Stage2Input::Embeddings) {
                folded.data.embeddings = Some(stage1.run.clone());
            }
            Some(stage(run, "stage3", options, |options| stage3::run::<B>(&third, options, device))?)
        }
    };
    Ok(Outcome { stage1: Some(stage1), stage2: Some(stage2), stage3, ..Outcome::default() })
}

/// Refuses labels that do not divide, and metrics of events that the data do not have: a stage would find out when
/// those before it are trained.
fn check_labels(config: &PipelineConfig) -> Result<()> {
    let events = match config.data.path.exists() {
        true => {
            let dataset = Dataset::open(&config.data.path)?.in_window(config.data.window)?;
            let labels = dataset.binary_labels(&config.data.path)?;
            let split = split_of(&dataset, &labels.entries, &config.stage2.split, config.stage2.seed)?;
            LabelledEvents::of(&dataset, &split.validation)
        }
        // A marketplace has labels, and no events.
        false => LabelledEvents::default(),
    };
    let of_third = config.stage3.iter().flat_map(|third| stage3::stopping_metrics(third));
    let of_third = of_third.map(|(metric, key)| (metric, format!("stage3.{key}")));
    let of_second = (config.stage2.early_stop.metric, "stage2.early_stop.metric".to_owned());
    let is_of_events = |metric: &RankingMetric| matches!(metric, RankingMetric::Alerts | RankingMetric::Stopped);
    let mut metrics = [of_second].into_iter().chain(of_third).filter(|(metric, _)| is_of_events(metric));
    metrics.try_for_each(|(metric, key)| events.check(metric, &config.name, &key))
}

/// Runs a stage from where it ended; an interruption of it is one of the pipeline.
fn stage<T>(
    run: &RunDir,
    name: &'static str,
    options: &RunOptions,
    work: impl FnOnce(&RunOptions) -> Result<T>,
) -> Result<T> {
    let pipeline = Pipeline::stage(run, name);
    let from = match &options.from {
        // Trees are grown anew.
        Some(from) if name != "stage3" => Some(stage_of(from, name)?),
        _ => None,
    };
    let options = RunOptions { resume: pipeline.begun()?, from, pipeline: Some(pipeline), ..options.clone() };
    work(&options).map_err(|error| error.of_part(run.path()))
}

/// The run of a stage of the pipeline `from`.
fn stage_of(from: &Path, name: &'static str) -> Result<PathBuf> {
    Pipeline::stage(&RunDir::open(from)?, name).begun()?.ok_or_else(|| Error::Usage {
        argument: format!("--from {}", from.display()),
        expected: format!("the run of a pipeline that has trained a {name}"),
        found: "none".into(),
        help: "a pipeline begins with a pipeline, or with its last stage, a stage with a run of that stage".into(),
    })
}
