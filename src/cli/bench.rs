//! `graphsieve bench`

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use graphsieve_kernels::BoostBackend;

use super::{Console, Format, check_new_file};
use crate::backend::{self, with_backend};
use crate::bench::accuracy::{self, AccuracyOptions};
use crate::bench::trees::{self, TreesOptions};
use crate::bench::{self, BenchOptions, Work};
use crate::config::Precision;
use crate::error::{Error, Result};
use crate::trees::{Booster, BoosterParams, Dataset, Fit};

/// Measure operators, epochs or inference: time, memory traffic against a plain copy, peak memory, error against f64;
/// the accuracy of a node classification over many seeds; or the training of histogram trees
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to measure
    #[arg(value_enum, value_name = "WHAT")]
    work: What,

    /// Data directory with the graph to measure on; `accuracy` takes that of its --config, `parallel-gat` and
    /// `trees` do without
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Configuration of a node classification, for `accuracy`
    #[arg(long, value_name = "CONFIG", required_if_eq("work", "accuracy"), conflicts_with = "data")]
    config: Option<PathBuf>,

    /// Trainings of `accuracy`: the first with the seed of the configuration, each further one with the next
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: usize,

    /// Replace a key of --config, e.g. data.path=GRAPH.npz; the last one wins
    #[arg(long, value_name = "KEY=VALUE", requires = "config")]
    set: Vec<String>,

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

    /// Seed of random features, weights and DropEdge, and of the rows of `trees`
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// Training rows of `trees`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: usize,

    /// Features of `trees`, at least 5
    #[arg(long, value_name = "N", default_value_t = 64)]
    features: usize,

    /// Rounds of boosting of `trees`
    #[arg(long, value_name = "N", default_value_t = 100)]
    trees: usize,

    /// Most leaves of one of the `trees`
    #[arg(long, value_name = "N", default_value_t = 31)]
    leaves: u32,

    /// Most bins of a feature of `trees`
    #[arg(long, value_name = "N", default_value_t = 255)]
    bins: usize,

    /// Write the rows of `trees` to this NPZ file, for other programs: x, y, x_test, y_test
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,

    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What to measure: a [`Work`] on a data directory, the accuracy of a configuration, or the training of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    On(Work),
    Accuracy,
    Trees,
}

impl ValueEnum for What {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<What>> = LazyLock::new(|| {
            Work::value_variants().iter().copied().map(What::On).chain([What::Accuracy, What::Trees]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            What::On(work) => work.to_possible_value(),
            What::Accuracy => {
                Some(PossibleValue::new("accuracy").help("Test accuracy of a node classification over many seeds"))
            }
            What::Trees => {
                Some(PossibleValue::new("trees").help("Training of histogram trees on rows that are made up"))
            }
        }
    }
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
    let work = match arguments.work {
        What::Trees => return train_trees(arguments, console),
        What::Accuracy => None,
        What::On(work) => Some(work),
    };
    let choice = backend::choose(&arguments.device)?;
    let description = backend::description(&choice.device);
    console.note(format_args!("device: {description}; {}", choice.reason));
    let note = |text: &str| console.note(format_args!("{text} ..."));
    let Some(work) = work else {
        let options = AccuracyOptions {
            config: arguments.config.unwrap_or_default(),
            overrides: arguments.set,
            seeds: arguments.seeds,
            description,
        };
        let report = with_backend!(choice.device, |B, d| accuracy::run::<B>(&options, &d, &note))?;
        return arguments.format.print(&report);
    };
    let data =
        arguments.data.or_else(|| (work == Work::ParallelGat).then(PathBuf::new)).ok_or_else(|| Error::Usage {
            argument: "--data".into(),
            expected: "a data directory with the graph to measure on".into(),
            found: "none".into(),
            help: "`graphsieve synth` makes one; --config belongs to `bench accuracy`".into(),
        })?;
    let options = BenchOptions {
        data,
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
    let report = with_backend!(choice.device, |B, d| bench::run::<B>(work, &options, &d, &note))?;
    arguments.format.print(&report)?;
    // After the report: it shows what is wrong.
    report.verdict()
}

fn train_trees(arguments: Arguments, console: Console) -> Result<()> {
    if let Some(path) = &arguments.export {
        check_new_file(path, false)?;
    }
    let choice = backend::choose(&arguments.device)?;
    let description = backend::description(&choice.device);
    console.note(format_args!("device: {description}; {}", choice.reason));
    let options = TreesOptions {
        rows: arguments.rows,
        features: arguments.features,
        trees: arguments.trees,
        leaves: arguments.leaves,
        bins: arguments.bins,
        seed: arguments.seed,
        description,
        export: arguments.export,
    };
    let note = |text: &str| console.note(format_args!("{text} ..."));
    let report = with_backend!(choice.device, |B, d| {
        let fit = |data: &Dataset, fit: Fit, params: &BoosterParams| match B::PAYS_FROM_ROWS {
            None => Booster::fit(data, fit, params),
            Some(_) => Booster::fit_on::<B>(data, fit, params, &d),
        };
        trees::run(&options, &fit, &note)
    })?;
    arguments.format.print(&report)
}
