//! Training: the loops of the stages and of node classification, run directories, checkpoints, progress.

pub mod classify;
pub mod early_stopping;
pub mod edges;
pub mod interrupt;
mod loading;
pub mod log_line;
pub mod loss_rows;
pub mod optimiser;
pub mod plots;
mod prefetch;
pub mod progress;
pub mod reconstruction;
pub mod run_dir;
mod session;
pub mod stage1;
pub mod stage2;
pub mod stage3;

use std::fmt;

use graphsieve_kernels::{GraphBackend, TreeBackend};

use crate::config::{RunConfig, Stage2Input};
use crate::data::synth;
use crate::error::Result;
use crate::train::progress::{StageProgress, Unit};
use crate::train::run_dir::RunDir;

pub use classify::ClassifyOutcome;
pub use session::RunOptions;
pub use stage1::Stage1Outcome;
pub use stage2::Stage2Outcome;
pub use stage3::Stage3Outcome;

/// What a run leaves, for the closing message.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub stage1: Option<Stage1Outcome>,
    pub stage2: Option<Stage2Outcome>,
    pub stage3: Option<Stage3Outcome>,
    pub classify: Option<ClassifyOutcome>,
}

impl Outcome {
    /// What was written where.
    ///
    /// # Errors
    /// When a run directory cannot be read.
    pub fn files(&self) -> Result<String> {
        let runs = self.stage1.iter().map(|s| &s.run).chain(self.stage2.iter().map(|s| &s.run));
        let runs = runs.chain(self.stage3.iter().map(|s| &s.run)).chain(self.classify.iter().map(|s| &s.run));
        let summaries: Result<Vec<String>> = runs.map(|run| RunDir::open(run)?.summary()).collect();
        Ok(summaries?.join("\n"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stage1) = &self.stage1 {
            writeln!(f, "Stage 1: {stage1}")?;
            write_speed(f, stage1.seconds_per_epoch)?;
        }
        if let Some(stage2) = &self.stage2 {
            write!(f, "Stage 2: {stage2}")?;
        }
        if let Some(stage3) = &self.stage3 {
            write!(f, "Stage 3: {stage3}")?;
        }
        match &self.classify {
            Some(classify) => write!(f, "classify: {classify}"),
            None => Ok(()),
        }
    }
}

fn write_speed(f: &mut fmt::Formatter<'_>, seconds_per_epoch: Option<f64>) -> fmt::Result {
    match seconds_per_epoch {
        Some(seconds) => writeln!(f, "{:.1} ms per epoch after the first", seconds * 1e3),
        None => Ok(()),
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
    match config {
        RunConfig::Stage1(config) => {
            let stage1 = stage1::run::<B>(&config, options, device)?;
            Ok(Outcome { stage1: Some(stage1), ..Outcome::default() })
        }
        RunConfig::Stage2(config) => {
            let stage2 = stage2::run::<B>(&config, options, device)?;
            Ok(Outcome { stage2: Some(stage2), ..Outcome::default() })
        }
        RunConfig::Stage3(config) => {
            let stage3 = stage3::run::<B>(&config, options, device)?;
            Ok(Outcome { stage3: Some(stage3), ..Outcome::default() })
        }
        RunConfig::Classify(config) => {
            let classify = classify::run::<B>(&config, options, device)?;
            Ok(Outcome { classify: Some(classify), ..Outcome::default() })
        }
        RunConfig::Pipeline(config) => {
            let progress = StageProgress::with_mode(Unit::Items, options.progress);
            synth::provide(&config.data.path, &(&config.synth).into(), &progress.callback())?;
            let stage1 = stage1::run::<B>(&config.stage1, options, device)?;
            let mut second = config.stage2.clone();
            if second.data.input == Stage2Input::Embeddings {
                second.data.embeddings = Some(stage1.run.clone());
            }
            let stage2 = stage2::run::<B>(&second, options, device)?;
            Ok(Outcome { stage1: Some(stage1), stage2: Some(stage2), ..Outcome::default() })
        }
    }
}
