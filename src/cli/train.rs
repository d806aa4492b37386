//! `graphsieve train`

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use graphsieve_kernels::{GraphBackend, TreeBackend};

use super::moment::time;
use super::processes::{self, chosen, launched};
use super::room::Room;
use super::{Compute, Console};
use crate::backend::{as_process, with_backend, with_ranks};
use crate::config::RunConfig;
use crate::data::synth::{self, DEFAULT_SEED, Preset, SynthConfig};
use crate::error::{Error, Result};
use crate::graph::StoredSplit;
use crate::run::model::start_of;
use crate::run::progress::{StageProgress, Unit};
use crate::run::{RunDir, interrupt};
use crate::score::{Judged, SideBySide};
use crate::timing::timed;
use crate::train::{self, Check, Outcome, RunOptions, ranks};

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

    /// Train on so many devices at once: CUDA devices from --device on, over NCCL, each with a process of its own; on
    /// the processor and with Vulkan so many threads that share it. For task = "stage1", "stage2" or "classify": each
    /// device has a part of every mini-batch, or a part of the rows of the whole graph where all are computed
    /// ("classify", and train.rows = "all"), or the whole graph and a part of what the loss reads. A run may go on with
    /// another number of devices. Several processes that torchrun, srun or mpirun starts are ranks without this
    /// option, with a CUDA device each
    #[arg(long, value_name = "N", conflicts_with = "each_window")]
    devices: Option<NonZeroUsize>,

    /// After a Ctrl-C, SIGTERM or SIGHUP, how long a step may go on: one that ends in time is saved, otherwise the
    /// process ends and leaves the last checkpoint. A second signal ends it at once [default: 30s, or three times as
    /// long as the longest step so far]
    #[arg(long, value_name = "TIME", value_parser = time)]
    grace: Option<Duration>,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    if let Some(grace) = arguments.grace {
        interrupt::set_grace(grace);
    }
    let mut config = match (&arguments.config, &arguments.resume) {
        (None, Some(run)) => RunConfig::load_kept(&RunDir::open(run)?.config(), &arguments.set)?,
        (file, _) => RunConfig::load(&file.clone().unwrap_or_default(), &arguments.set)?,
    };
    if let Some(name) = arguments.name {
        config.set_name(name);
    }
    let devices = arguments.devices.map_or(1, NonZeroUsize::get);
    let process = launched(devices)?;
    if let Some(process) = process.as_ref().filter(|_| arguments.each_window) {
        return Err(Error::Usage {
            argument: "--each-window".into(),
            expected: "one process".into(),
            found: format!("process {} of {} of a launcher", process.rank, process.ranks),
            help: "train one window after the other without a launcher".into(),
        });
    }
    let ranks = process.as_ref().map_or(devices, |process| process.ranks);
    ranks::check(&config, ranks)?;
    let console = match &process {
        // Rank 0 speaks for all; errors are said by each.
        Some(process) if process.rank > 0 => console.silenced(),
        _ => console,
    };
    let (device, description) = chosen(&arguments.compute, process.as_ref(), console)?;
    let description = match ranks {
        1 => description,
        ranks => format!("{description}, {ranks} ranks"),
    };
    let provide = || match arguments.resume {
        None => provide_data(&config, console),
        Some(_) => Ok(()),
    };
    if process.is_none() {
        provide()?;
    }
    let check = {
        let config = config.clone();
        Check::new(move || timed("memory of the device", || Room::of(device, ranks).check(&config, console)))
    };
    // One training of a network reads its data beside it.
    let reads = matches!(config, RunConfig::Stage1(_) | RunConfig::Stage2(_)) && ranks == 1 && !arguments.each_window;
    let check = match reads {
        true => check,
        false => check.run().map(|()| Check::default())?,
    };
    let from = arguments.from.as_deref().map(|from| start_of(from, &config)).transpose()?;
    let (resume, progress) = (arguments.resume.clone(), console.progress());
    let options = RunOptions { resume, from, progress, check, ..RunOptions::quiet(description) };
    if arguments.each_window {
        return with_backend!(device, |B, d| each_window::<B>(&config, &options, &d, console));
    }
    let left = processes::together(process.as_ref(), device, devices, |process| {
        as_process!(device, process, ranks::RANKS_DEADLINE, |B, rank, d| {
            rank.and_then(|rank| {
                ranks::as_rank::<B, _>(&rank, || {
                    if rank.rank() == 0 {
                        provide()?;
                    }
                    rank.barrier().map_err(ranks::failed)?;
                    train::run_together::<B>(&config, &options, &rank, &d)
                })
            })
        })
    });
    if let Some(left) = left? {
        return left.map_or(Ok(()), |outcome| give(&outcome, console));
    }
    let outcome = match devices {
        1 => with_backend!(device, |B, d| train::run::<B>(config, &options, &d))?,
        _ => with_ranks!(device, devices, ranks::RANKS_DEADLINE, |B, all| {
            ranks::on_threads::<B, _>(all, |rank, d| train::run_together::<B>(&config, &options, rank, d))
        })?,
    };
    give(&outcome, console)
}

fn give(outcome: &Outcome, console: Console) -> Result<()> {
    super::print(outcome)?;
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
