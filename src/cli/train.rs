//! `graphsieve train`

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Compute, Console};
use crate::backend::with_backend;
use crate::config::RunConfig;
use crate::data::synth::{self, DEFAULT_SEED, Preset, SynthConfig};
use crate::error::Result;
use crate::run::RunDir;
use crate::run::progress::{StageProgress, Unit};
use crate::train::{self, RunOptions};

/// `data.path` of the shipped configurations. Where it is missing a first training makes it.
const SHIPPED_DATA: &str = "artifacts/data/quickstart";

/// Train what a configuration file describes, or go on with a run
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// TOML file, see configs/README.md [with --resume: that of the run]
    #[arg(value_name = "CONFIG", required_unless_present = "resume")]
    config: Option<PathBuf>,

    /// Replace a key of the file, e.g. train.epochs=20; the last one wins
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    #[command(flatten)]
    compute: Compute,

    /// Name of the run, part of its directory's name [default: the key `name` of the file]
    #[arg(long, conflicts_with = "resume")]
    name: Option<String>,

    /// Go on with this run from its last checkpoint
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let mut config = match (&arguments.config, &arguments.resume) {
        (None, Some(run)) => RunConfig::load_kept(&RunDir::open(run)?.config(), &arguments.set)?,
        (file, _) => RunConfig::load(&file.clone().unwrap_or_default(), &arguments.set)?,
    };
    if let Some(name) = arguments.name {
        config.set_name(name);
    }
    let (device, description) = arguments.compute.choose(console)?;
    if arguments.resume.is_none() {
        provide_data(&config, console)?;
    }
    let (resume, progress) = (arguments.resume, console.progress());
    let options = RunOptions { device: description, resume, pipeline: None, progress };
    let outcome = with_backend!(device, |B, d| train::run::<B>(config, &options, &d))?;
    super::print(&outcome)?;
    console.note(outcome.files()?);
    Ok(())
}

/// The marketplace that `graphsieve synth --preset quickstart` makes, for a run on the shipped data path that has
/// nothing there yet. A pipeline makes its own; any other path has to be there.
fn provide_data(config: &RunConfig, console: Console) -> Result<()> {
    if matches!(config, RunConfig::Pipeline(_)) || config.data_path() != Path::new(SHIPPED_DATA) {
        return Ok(());
    }
    let marketplace = SynthConfig { seed: DEFAULT_SEED, ..SynthConfig::preset(Preset::Quickstart) };
    let progress = StageProgress::with_mode(Unit::Items, console.progress());
    synth::provide(config.data_path(), &marketplace, &progress.callback()).map(drop)
}
