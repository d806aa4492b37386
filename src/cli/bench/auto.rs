//! `graphsieve bench auto`

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use rayon::prelude::*;

use super::super::{Compute, Console};
use super::Figures;
use crate::backend::with_backend;
use crate::bench::auto::{self, AutoBenchOptions, AutoReport, Measured};
use crate::config::{AutoConfig, SplitSource};
use crate::error::{Error, Result};
use crate::graph::json::read_json;
use crate::run::progress::{Progress, Unit};

/// What the choice of a tournament is worth: on several splits the test figures of what it picked and of all candidates
#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// Graph with features and labels: an .npz file or a data directory
    #[arg(long, value_name = "GRAPH")]
    data: PathBuf,

    /// Number of splits: of each the seed is one more than before; with `--set split.use=masks` the column of the masks
    #[arg(long, value_name = "N", default_value_t = 10)]
    splits: usize,

    /// Splits that run at a time, each in a process of its own. They share the device, so that each takes longer
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,

    /// Time for the trainings of each split
    #[arg(long, value_name = "MINUTES", default_value_t = 2.0)]
    minutes: f64,

    /// Set a key of the tournament, e.g. `--set split.anomalous=20 --set split.normal=80`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    #[command(flatten)]
    compute: Compute,

    #[command(flatten)]
    figures: Figures,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    arguments.figures.check()?;
    let config = auto::config(arguments.data.clone(), arguments.minutes, &arguments.set)?;
    let (device, description) = arguments.compute.choose(console)?;
    let options = AutoBenchOptions { config, splits: arguments.splits, jobs: arguments.jobs, description };
    let (note, mode) = (|text: &str| console.note(text), console.progress());
    let report = match arguments.jobs {
        0 | 1 => with_backend!(device, |B, d| auto::run::<B>(&options, &d, mode, &note))?,
        _ => in_processes(&arguments, &options, console)?,
    };
    arguments.figures.give(&report)
}

/// Measures every split in a process of its own, `jobs` at a time.
fn in_processes(arguments: &Arguments, options: &AutoBenchOptions, console: Console) -> Result<AutoReport> {
    options.check()?;
    let started = Instant::now();
    let files = tempfile::tempdir().map_err(|source| Error::io(std::env::temp_dir(), "write", source))?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs.min(options.splits)).build();
    let pool = pool.map_err(|fault| Error::io("--jobs", "start a thread", io::Error::other(fault)))?;
    let progress = Progress::with_mode("tournaments", options.splits as u64, Unit::Items, console.progress());
    let done = AtomicU64::new(0);
    let one = |at: usize| -> Result<Measured> {
        let measured = in_process(arguments, &options.of_split(at), &files.path().join(format!("{at}.json")))?;
        measured.splits.iter().for_each(|of| console.note(format_args!("split {}: {}", of.split, of.picked)));
        progress.update(done.fetch_add(1, Ordering::Relaxed) + 1, "");
        Ok(measured)
    };
    let all = || (0..options.splits).into_par_iter().with_max_len(1).map(one).collect::<Result<Vec<Measured>>>();
    let all = pool.install(all)?;
    progress.finish("");
    let figure = all[0].figure;
    let splits = all.into_iter().flat_map(|measured| measured.splits).collect();
    Ok(AutoReport::new(options, Measured { figure, splits }, started.elapsed().as_secs_f64()))
}

/// Measures the one split that `config` describes in a process, which leaves its figures in `file`.
fn in_process(arguments: &Arguments, config: &AutoConfig, file: &Path) -> Result<Measured> {
    let split = match config.split.source {
        SplitSource::Masks => format!("split.index={}", config.split.index),
        SplitSource::Random => format!("split.seed={}", config.split.seed),
    };
    let program = std::env::current_exe().map_err(|source| Error::io("graphsieve", "find", source))?;
    let mut command = Command::new(&program);
    command.args(["--quiet", "bench", "auto", "--splits", "1", "--device", &arguments.compute.device]);
    command.arg("--data").arg(&arguments.data).arg("--json").arg(file);
    command.args(["--minutes", &arguments.minutes.to_string()]);
    // The last of a key counts.
    let own = [format!("seed={}", config.seed), split];
    for set in arguments.set.iter().chain(&own) {
        command.args(["--set", set]);
    }
    let ended = command.stdin(Stdio::null()).output().map_err(|source| Error::io(&program, "run", source))?;
    if !ended.status.success() {
        let told = String::from_utf8_lossy(&ended.stderr);
        return Err(Error::Data {
            what: format!("split {}", auto::split_number(config)),
            expected: "a tournament that comes to its end".into(),
            found: format!("{}: {}", ended.status, told.trim()),
            help: "run the splits one after the other, with --jobs 1, or fewer at a time".into(),
        });
    }
    read_json(file, "figures of a split", "run the splits one after the other, with --jobs 1")
}
