//! `graphsieve bench`

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Console, Format};
use crate::backend::{self, with_backend};
use crate::bench::{self, BenchOptions, Work};
use crate::config::Precision;
use crate::error::Result;

/// Measure operators, epochs or inference: time, memory traffic against a plain copy, peak memory, error against f64
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to measure
    #[arg(value_enum, value_name = "WHAT")]
    work: Work,

    /// Data directory with the graph to measure on
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Where to compute: auto, cpu, cuda, cuda:N or vulkan; `graphsieve info` shows what there is
    #[arg(long, default_value = "auto")]
    device: String,

    /// Storage of features and activations; all sums are f32
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,

    /// Timed runs, after three that are not; their median is shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: usize,

    /// Relation of the operators [default: the one with most edges]
    #[arg(long, value_name = "NAME")]
    relation: Option<String>,

    /// Width of the features of the operators, a multiple of 4
    #[arg(long, value_name = "N", default_value_t = 128)]
    channels: usize,

    /// Seed of random features, weights and DropEdge
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// [`Precision`] as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dtype {
    /// IEEE single precision
    F32,
    /// IEEE half precision
    F16,
    /// bfloat16
    Bf16,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let choice = backend::choose(&arguments.device)?;
    let description = backend::description(&choice.device);
    console.note(format_args!("device: {description}; {}", choice.reason));
    let options = BenchOptions {
        data: arguments.data,
        relation: arguments.relation,
        precision: match arguments.dtype {
            Dtype::F32 => Precision::F32,
            Dtype::F16 => Precision::F16,
            Dtype::Bf16 => Precision::BF16,
        },
        channels: arguments.channels,
        runs: arguments.runs,
        seed: arguments.seed,
        device: choice.device.to_string(),
        description,
    };
    let note = |text: &str| console.note(format_args!("{text} ..."));
    let report = with_backend!(choice.device, |B, d| bench::run::<B>(arguments.work, &options, &d, &note))?;
    arguments.format.print(&report)?;
    // After the report: it shows what is wrong.
    report.verdict()
}
