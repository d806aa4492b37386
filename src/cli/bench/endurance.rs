//! `graphsieve bench endurance`

use clap::Args;

use super::super::{Compute, Console};
use super::Shown;
use crate::backend::with_backend;
use crate::bench::endurance::{self, EnduranceOptions};
use crate::error::Result;

/// Many short trainings and scorings in one process: memory, open files and threads over time. Growth is exit status 1
#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// Epochs of all trainings together
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    epochs: usize,

    /// Scorings of all nodes, of the trained models in turn
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    scorings: usize,

    /// Rounds of one training of each kind with its scorings, at least 10: with more of them trainings are shorter
    #[arg(long, value_name = "N", default_value_t = 100)]
    rounds: usize,

    /// Seed of data and trainings
    #[arg(long, default_value_t = 42)]
    seed: u64,

    #[command(flatten)]
    compute: Compute,

    #[command(flatten)]
    shown: Shown,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let Arguments { epochs, scorings, rounds, seed, compute, shown } = arguments;
    let (device, description) = compute.choose(console)?;
    let options = EnduranceOptions { epochs, scorings, rounds, seed, description };
    let report = with_backend!(device, |B, d| endurance::run::<B>(&options, &d, &|text| console.step(text)))?;
    shown.format.print(&report)?;
    // After the report: it shows what has grown.
    report.verdict()
}
