//! `graphsieve bench auto`

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::super::{Compute, Console, Format, check_new_file};
use crate::backend::with_backend;
use crate::bench::auto::{self, AutoBenchOptions};
use crate::error::Result;
use crate::graph::atomic_write;

/// What the choice of a tournament is worth: on several splits the test figures of what it picked and of all candidates
#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// Graph with features and labels: an .npz file or a data directory
    #[arg(long, value_name = "GRAPH")]
    data: PathBuf,

    /// Number of splits: of each the seed is one more than before, or the column of the masks
    #[arg(long, value_name = "N", default_value_t = 10)]
    splits: usize,

    /// Time for the trainings of each split
    #[arg(long, value_name = "MINUTES", default_value_t = 2.0)]
    minutes: f64,

    /// Set a key of the tournament, e.g. `--set split.anomalous=20 --set split.normal=80`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Write all figures of all splits to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Replace the file of --json where it exists
    #[arg(long, requires = "json")]
    force: bool,

    #[command(flatten)]
    compute: Compute,

    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    if let Some(path) = &arguments.json {
        check_new_file(path, arguments.force)?;
    }
    let config = auto::config(arguments.data, arguments.minutes, &arguments.set)?;
    let (device, description) = arguments.compute.choose(console)?;
    let options = AutoBenchOptions { config, splits: arguments.splits, description };
    let (note, mode) = (|text: &str| console.note(text), console.progress());
    let report = with_backend!(device, |B, d| auto::run::<B>(&options, &d, mode, &note))?;
    if let Some(path) = &arguments.json {
        atomic_write(path, |file| {
            serde_json::to_writer_pretty(&mut *file, &report)?;
            file.write_all(b"\n")
        })?;
    }
    arguments.format.print(&report)
}
