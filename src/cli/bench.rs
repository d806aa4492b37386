//! `graphsieve bench`

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use graphsieve_kernels::BoostBackend;

use super::{Console, Format, check_new_file};
use crate::backend::{self, with_backend};
use crate::bench::accuracy::{self, AccuracyOptions};
use crate::bench::import::{self, ImportBenchOptions};
use crate::bench::loader::{self, LoadOptions};
use crate::bench::trees::{self, TreesOptions};
use crate::bench::{self, BenchOptions, Work};
use crate::config::Precision;
use crate::error::{Error, Result};
use crate::trees::{Booster, BoosterParams, Dataset, Fit};

/// Measure operators, epochs or inference: time, memory traffic against a plain copy, peak memory, error against f64;
/// the accuracy of a node classification over many seeds; the training of histogram trees; or the import of a table
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to measure
    #[arg(value_enum, value_name = "WHAT")]
    work: What,

    /// Data directory with the graph to measure on; `accuracy` takes that of its --config, `parallel-gat`,
    /// `trees` and `import` do without
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

    /// Timed runs, after three (of `import` none) that are not; their median is shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: usize,

    /// Relation of the operators [default: the one with most edges]
    #[arg(long, value_name = "NAME")]
    relation: Option<String>,

    /// Width of the features of the operators, a multiple of 4
    #[arg(long, value_name = "N", default_value_t = 128)]
    channels: usize,

    /// Seed of random features, weights and DropEdge, and of the rows of `trees` and `import`
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// Training rows of `trees`; edges of the table of `import`
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

    /// Neighbours per node and relation of `loader`, for the layer next to the seeds first; 0 takes all
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "15,10")]
    fanouts: Vec<u32>,

    /// Seeds of a mini-batch of `loader`
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,

    /// Mini-batches of `loader`
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,

    /// Mini-batches in a row that draw alike, in the last rows of `loader`
    #[arg(long, value_name = "N", default_value_t = 64)]
    kappa: u32,

    /// Share of the nodes that `loader` keeps on the device
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    hot: f64,

    /// Mini-batches that `loader` prepares at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    prefetch: u32,

    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What to measure: a [`Work`] on a data directory, the accuracy of a configuration, mini-batches, or work on rows that
/// are made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    On(Work),
    Accuracy,
    Trees,
    Loader,
    Import,
}

impl ValueEnum for What {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<What>> = LazyLock::new(|| {
            Work::value_variants()
                .iter()
                .copied()
                .map(What::On)
                .chain([What::Accuracy, What::Trees, What::Loader, What::Import])
                .collect()
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
            What::Import => Some(PossibleValue::new("import").help("Import of a table of edges that is made up")),
            What::Loader => Some(
                PossibleValue::new("loader").help("Sampled mini-batches: sampling, what moves, how busy the device is"),
            ),
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
        What::Loader => return load(arguments, console),
        What::Import => return import_table(arguments, console),
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

fn load(arguments: Arguments, console: Console) -> Result<()> {
    let data = arguments.data.ok_or_else(|| Error::Usage {
        argument: "--data".into(),
        expected: "a data directory with graph and features".into(),
        found: "none".into(),
        help: "`graphsieve synth` makes one".into(),
    })?;
    if !(0.0..=1.0).contains(&arguments.hot) {
        return Err(Error::Usage {
            argument: "--hot".into(),
            expected: "a share from 0 to 1".into(),
            found: arguments.hot.to_string(),
            help: "0.2 keeps a fifth of the nodes".into(),
        });
    }
    let choice = backend::choose(&arguments.device)?;
    let description = backend::description(&choice.device);
    console.note(format_args!("device: {description}; {}", choice.reason));
    let options = LoadOptions {
        data,
        fanouts: arguments.fanouts,
        batch_size: arguments.batch_size as usize,
        batches: arguments.batches as usize,
        kappa: arguments.kappa,
        hot: arguments.hot,
        prefetch: arguments.prefetch as usize,
        runs: arguments.runs,
        seed: arguments.seed,
        description,
    };
    let note = |text: &str| console.note(format_args!("{text} ..."));
    let report = with_backend!(choice.device, |B, d| loader::run::<B>(&options, &d, &note))?;
    arguments.format.print(&report)
}

fn import_table(arguments: Arguments, console: Console) -> Result<()> {
    let options = ImportBenchOptions { edges: arguments.rows, runs: arguments.runs, seed: arguments.seed };
    let report = import::run(&options, &|text| console.note(format_args!("{text} ...")))?;
    arguments.format.print(&report)
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
