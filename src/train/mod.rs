//! Training: one loop for every task, over the whole graph or over mini-batches; trees; pipelines.

pub mod auto;
mod check;
pub mod early_stopping;
pub mod edges;
pub mod fit;
pub mod full;
mod loading;
pub mod loss_rows;
pub mod optimiser;
pub mod pipeline;
pub mod plots;
pub mod position;
mod prefetch;
pub mod ranks;
pub mod reconstruction;
pub mod runner;
pub mod sampled;
mod session;
pub mod shard;
pub mod stage3;
pub mod stretch;
pub mod task;
pub mod tasks;
pub mod trainer;
pub mod watch;

use std::fmt;
use std::path::{Path, PathBuf};

use graphsieve_kernels::{GraphBackend, TreeBackend};

use self::ranks::{Rank, alone};
use crate::config::RunConfig;
use crate::error::Result;
use crate::run::RunDir;
use crate::run::tournament::Tournament;

pub use self::auto::ensemble::EnsembleOutcome;
pub use self::check::Check;
pub use self::session::RunOptions;
pub use self::stage3::Stage3Outcome;
pub use self::tasks::attention::Stage2Outcome;
pub use self::tasks::auto_encoder::Stage1Outcome;
pub use self::tasks::classifier::ClassifyOutcome;

/// What a run leaves, for the closing message.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub stage1: Option<Stage1Outcome>,
    pub stage2: Option<Stage2Outcome>,
    pub stage3: Option<Stage3Outcome>,
    pub classify: Option<ClassifyOutcome>,
    pub ensemble: Option<EnsembleOutcome>,
    /// How the model was chosen, and the run that says so.
    pub tournament: Option<(PathBuf, Tournament)>,
}

impl Outcome {
    /// What was written where.
    ///
    /// # Errors
    /// When a run directory cannot be read.
    pub fn files(&self) -> Result<String> {
        let runs = self.stage1.iter().map(|s| &s.run).chain(self.stage2.iter().map(|s| &s.run));
        let runs = runs.chain(self.stage3.iter().map(|s| &s.run)).chain(self.classify.iter().map(|s| &s.run));
        if let Some((run, _)) = &self.tournament {
            return Ok(format!("model: {0}\n  graphsieve score {0}\n  graphsieve report {0}", run.display()));
        }
        let summaries: Result<Vec<String>> = runs.map(|run| RunDir::open(run)?.summary()).collect();
        Ok(summaries?.join("\n"))
    }
}

impl Outcome {
    /// The run of the last stage that says of nodes what labels can judge.
    pub fn last_judged(&self) -> Option<&Path> {
        let before = self.stage2.as_ref().map(|of| &of.run).or(self.classify.as_ref().map(|of| &of.run));
        let before = self.stage3.as_ref().map(|of| &of.run).or(before);
        self.ensemble.as_ref().map(|of| &of.run).or(before).map(PathBuf::as_path)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, tournament)) = &self.tournament {
            writeln!(f, "{tournament}")?;
        }
        if let Some(stage1) = &self.stage1 {
            writeln!(f, "Stage 1: {stage1}")?;
            session::write_speed(f, stage1.seconds_per_epoch)?;
        }
        if let Some(stage2) = &self.stage2 {
            write!(f, "Stage 2: {stage2}")?;
        }
        if let Some(stage3) = &self.stage3 {
            write!(f, "Stage 3: {stage3}")?;
        }
        if let Some(classify) = &self.classify {
            write!(f, "classify: {classify}")?;
        }
        match &self.ensemble {
            Some(ensemble) => write!(f, "ensemble: {ensemble}"),
            None => Ok(()),
        }
    }
}

/// Runs what a configuration describes on backend `B`.
///
/// # Errors
/// Data, a checkpoint or an output that cannot be used, a loss that is not finite, or an interruption.
pub fn run<B: GraphBackend + TreeBackend>(
    config: RunConfig,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Outcome> {
    graphsieve_kernels::device::watch();
    match &config {
        RunConfig::Pipeline(config) => pipeline::run::<B>(config, options, device),
        RunConfig::Auto(config) => auto::run::<B>(config, options, device),
        single => Ok(alone(fit::model::<B>(single).run(options, None, device)?)),
    }
}

/// [`run`] as one of several ranks, each of which has a part of every loss; what rank 0 leaves. Ask [`ranks::check`]
/// first.
///
/// # Errors
/// As for [`run`]; what [`ranks::check`] refuses, and a rank that fails.
pub fn run_together<B: GraphBackend + TreeBackend>(
    config: &RunConfig,
    options: &RunOptions,
    rank: &Rank<B>,
    device: &B::Device,
) -> Result<Option<Outcome>> {
    ranks::check(config, rank.ranks())?;
    graphsieve_kernels::device::watch();
    fit::model::<B>(config).run(options, Some(rank), device)
}
