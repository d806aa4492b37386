//! `graphsieve train`

use std::path::{Path, PathBuf};

use clap::Args;
use graphsieve_kernels::{GraphBackend, TreeBackend};

use super::{Compute, Console};
use crate::backend::with_backend;
use crate::config::RunConfig;
use crate::data::synth::{self, DEFAULT_SEED, Preset, SynthConfig};
use crate::error::Result;
use crate::graph::StoredSplit;
use crate::run::RunDir;
use crate::run::model::start_of;
use crate::run::progress::{StageProgress, Unit};
use crate::score::{Judged, SideBySide};
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

    /// Begin with the weights of this finished run instead of random ones, for example with those of last week when new
    /// labels have come in. A pipeline begins with a pipeline or its last stage, and grows its trees anew; a stage may
    /// begin with a pipeline, too
    #[arg(long, value_name = "MODEL", conflicts_with = "resume")]
    from: Option<PathBuf>,

    /// Train once for each window of the data's split by time, and set the test figures side by side
    #[arg(long, conflicts_with_all = ["resume", "from"])]
    each_window: bool,
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
    let from = arguments.from.as_deref().map(|from| start_of(from, &config)).transpose()?;
    let (resume, progress) = (arguments.resume, console.progress());
    let options = RunOptions { device: description, resume, from, pipeline: None, stretch: None, progress };
    if arguments.each_window {
        return with_backend!(device, |B, d| each_window::<B>(&config, &options, &d, console));
    }
    let outcome = with_backend!(device, |B, d| train::run::<B>(config, &options, &d))?;
    super::print(&outcome)?;
    console.note(outcome.files()?);
    Ok(())
}

/// Trains for one window of the split after the other.
fn each_window<B: GraphBackend + TreeBackend>(
    config: &RunConfig,
    options: &RunOptions,
    device: &B::Device,
    console: Console,
) -> Result<()> {
    let windows = StoredSplit::count(config.data_path())?;
    let mut last = Vec::with_capacity(windows);
    for window in 1..=windows {
        let mut own = config.clone();
        own.set_window(window);
        own.set_name(format!("{}-window-{window}", config.name()));
        console.note(format_args!("window {window} of {windows}"));
        let outcome = train::run::<B>(own, options, device)?;
        super::print(&outcome)?;
        console.note(outcome.files()?);
        last.extend(outcome.last_judged().map(Path::to_owned));
    }
    let models = last.iter().map(|run| Ok(Judged::open(run)?.own_figures())).collect::<Result<Vec<_>>>()?;
    if models.is_empty() {
        // Stage 1 has no such figures.
        return Ok(());
    }
    super::print(&SideBySide::new(false, models)?)
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
