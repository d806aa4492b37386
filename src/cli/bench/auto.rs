//! `graphsieve bench auto`

use std::path::PathBuf;

use clap::Args;

use super::super::{Compute, Console};
use super::Figures;
use crate::backend::with_backend;
use crate::bench::auto::{self, AutoBenchOptions};
use crate::error::Result;

/// What the choice of a tournament is worth: on several splits the test figures of what it picked and of all candidates
#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// Graph with features and labels: an .npz file or a data directory
    #[arg(long, value_name = "GRAPH")]
    data: PathBuf,

    /// Number of splits: of each the seed is one more than before; with `--set split.use=masks` the column of the masks
    #[arg(long, value_name = "N", default_value_t = 10)]
    splits: usize,

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
    let config = auto::config(arguments.data, arguments.minutes, &arguments.set)?;
    let (device, description) = arguments.compute.choose(console)?;
    let options = AutoBenchOptions { config, splits: arguments.splits, description };
    let (note, mode) = (|text: &str| console.note(text), console.progress());
    let report = with_backend!(device, |B, d| auto::run::<B>(&options, &d, mode, &note))?;
    arguments.figures.give(&report)
}
