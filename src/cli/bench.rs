//! `graphsieve bench`

mod auto;
mod endurance;
mod gad;

use std::fmt::Display;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use graphsieve_kernels::{BoostBackend, COLLECTIVE_DEADLINE};
use serde::Serialize;

use super::processes::{self, chosen, launched};
use super::{Compute, Console, Format, check_new_file};
use crate::backend::{as_process, with_backend, with_ranks};
use crate::bench::accuracy::{self, AccuracyOptions};
use crate::bench::import::{self, ImportBenchOptions};
use crate::bench::loader::{self, LoadOptions};
use crate::bench::scale::{ScaleData, ScaleOptions};
use crate::bench::trees::{self, TreesOptions};
use crate::bench::windows::{self, WindowBenchOptions};
use crate::bench::{self, BenchOptions, Work};
use crate::config::Precision;
use crate::error::{Error, Result};
use crate::graph::atomic_write;
use crate::train::ranks;
use crate::trees::{Booster, BoosterParams, Dataset, Fit};

/// Measure operators, epochs or inference: time, memory traffic against a plain copy, peak memory, error against f64;
/// the accuracy or quality of models; the training of histogram trees; the import of a table; or windowed features
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// How the figures of several splits are given.
#[derive(Debug, Args)]
struct Figures {
    /// Write all figures of all splits to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Replace the file of --json where it exists
    #[arg(long, requires = "json")]
    force: bool,

    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Figures {
    /// Fails where the file cannot be written, before anything is measured.
    fn check(&self) -> Result<()> {
        self.json.as_ref().map_or(Ok(()), |path| check_new_file(path, self.force))
    }

    fn give(&self, report: &(impl Display + Serialize)) -> Result<()> {
        if let Some(path) = &self.json {
            atomic_write(path, |file| {
                serde_json::to_writer_pretty(&mut *file, report)?;
                file.write_all(b"\n")
            })?;
        }
        self.format.print(report)
    }
}

#[derive(Debug, Subcommand)]
enum What {
    /// The sparse and dense operators of the detector, one by one, on one relation
    Kernels(Operators),
    /// General message passing on one relation: reductions, values of edges, softmax
    Messages(Operators),
    /// A graph attention layer with its projection: 2,048 wide on dense graphs of 2,048 nodes, and with four heads on
    /// --data
    ParallelGat(OnGraph),
    /// A training epoch of the auto-encoder, on reachable rows and on all
    Stage1(OnGraph),
    /// A training epoch of the attention network, on reachable rows and on all
    Stage2(OnGraph),
    /// Scores of all nodes with the attention network
    Inference(OnGraph),
    Accuracy(Accuracy),
    Trees(Trees),
    Loader(Loader),
    Scale(Scale),
    Import(Import),
    Windows(Windows),
    Gad(gad::Arguments),
    Auto(auto::Arguments),
    Endurance(endurance::Arguments),
}

/// The former name of `bench gad`
#[derive(Debug, Args)]
pub(super) struct Benchmark {
    #[command(subcommand)]
    what: OnlyGad,
}

#[derive(Debug, Subcommand)]
enum OnlyGad {
    Gad(gad::Arguments),
}

impl From<Benchmark> for Arguments {
    fn from(Benchmark { what: OnlyGad::Gad(arguments) }: Benchmark) -> Self {
        Self { what: What::Gad(arguments) }
    }
}

#[derive(Debug, Args)]
struct Data {
    /// Data directory with the graph to measure on
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Data {
    fn required(self) -> Result<PathBuf> {
        self.data.ok_or_else(|| Error::Usage {
            argument: "--data".into(),
            expected: "a data directory with the graph to measure on".into(),
            found: "none".into(),
            help: "`graphsieve synth` makes one".into(),
        })
    }
}

#[derive(Debug, Args)]
struct Repeated {
    /// Timed runs, after three that are not (of `import` and `windows` none); their median is shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: usize,

    /// Seed of all that is random
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

#[derive(Debug, Args)]
struct Shown {
    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Args)]
struct OnGraph {
    #[command(flatten)]
    data: Data,

    #[command(flatten)]
    compute: Compute,

    /// Storage of features and activations; all sums are f32
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,

    #[command(flatten)]
    repeated: Repeated,

    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, Args)]
struct Operators {
    #[command(flatten)]
    on: OnGraph,

    /// Relation to measure on [default: the one with most edges]
    #[arg(long, value_name = "NAME")]
    relation: Option<String>,

    /// Width of the features, a multiple of 4
    #[arg(long, value_name = "N", default_value_t = CHANNELS)]
    channels: usize,
}

/// Width of features without `--channels`.
const CHANNELS: usize = 128;

/// Test accuracy of a node classification over many seeds
#[derive(Debug, Args)]
struct Accuracy {
    /// Configuration of a node classification
    #[arg(long, value_name = "CONFIG")]
    config: PathBuf,

    /// Trainings: the first with the seed of the configuration, each further one with the next
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: usize,

    /// Replace a key of --config, e.g. data.path=GRAPH.npz; the last one wins
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    #[command(flatten)]
    compute: Compute,

    #[command(flatten)]
    shown: Shown,
}

/// Training of histogram trees on rows that are made up
#[derive(Debug, Args)]
struct Trees {
    /// Training rows
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: usize,

    /// Features, at least 5
    #[arg(long, value_name = "N", default_value_t = 64)]
    features: usize,

    /// Rounds of boosting
    #[arg(long, value_name = "N", default_value_t = 100)]
    trees: usize,

    /// Most leaves of a tree
    #[arg(long, value_name = "N", default_value_t = 31)]
    leaves: u32,

    /// Most bins of a feature
    #[arg(long, value_name = "N", default_value_t = 255)]
    bins: usize,

    /// Seed of the rows
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// Write the rows to this NPZ file, for other programs: x, y, x_test, y_test
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,

    #[command(flatten)]
    compute: Compute,

    #[command(flatten)]
    shown: Shown,
}

/// Sampled mini-batches: sampling, what moves, how busy the device is
#[derive(Debug, Args)]
struct Loader {
    #[command(flatten)]
    data: Data,

    /// Neighbours per node and relation, for the layer next to the seeds first; 0 takes all
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "15,10")]
    fanouts: Vec<u32>,

    /// Seeds of a mini-batch
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,

    /// Mini-batches
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,

    /// Mini-batches in a row that draw alike, in the last rows
    #[arg(long, value_name = "N", default_value_t = 64)]
    kappa: u32,

    /// Share of the nodes that stay on the device
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    hot: f64,

    /// Mini-batches that are prepared at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    prefetch: u32,

    #[command(flatten)]
    compute: Compute,

    #[command(flatten)]
    repeated: Repeated,

    #[command(flatten)]
    shown: Shown,
}

/// Epochs of Stage 2 on one and on several devices
#[derive(Debug, Args)]
struct Scale {
    /// Configuration of a Stage 2
    #[arg(long, value_name = "CONFIG", default_value = "configs/stage2.toml")]
    config: PathBuf,

    #[command(flatten)]
    data: Data,

    /// Replace a key of --config, e.g. loader.mode=sampled; the last one wins
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Numbers of devices, as `train --devices` takes them
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2")]
    devices: Vec<NonZeroUsize>,

    /// Timed epochs, after three that are not; their median is shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: usize,

    #[command(flatten)]
    compute: Compute,

    #[command(flatten)]
    shown: Shown,
}

/// Import of a table of edges that is made up
#[derive(Debug, Args)]
struct Import {
    /// Edges of the table
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: usize,

    /// Write the table as so many Parquet parts, with whole numbers as ids, instead of one CSV file
    #[arg(long, value_name = "N")]
    parts: Option<usize>,

    #[command(flatten)]
    repeated: Repeated,

    #[command(flatten)]
    shown: Shown,
}

/// Windowed features of events that are made up, with two entities each
#[derive(Debug, Args)]
struct Windows {
    /// Events of the table
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    events: usize,

    #[command(flatten)]
    repeated: Repeated,

    #[command(flatten)]
    shown: Shown,
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
    match arguments.what {
        What::Kernels(operators) => operators.run(Work::Kernels, console),
        What::Messages(operators) => operators.run(Work::Messages, console),
        What::ParallelGat(on) => on.run(Work::ParallelGat, None, CHANNELS, console),
        What::Stage1(on) => on.run(Work::Stage1, None, CHANNELS, console),
        What::Stage2(on) => on.run(Work::Stage2, None, CHANNELS, console),
        What::Inference(on) => on.run(Work::Inference, None, CHANNELS, console),
        What::Accuracy(accuracy) => accuracy.run(console),
        What::Trees(trees) => trees.run(console),
        What::Loader(loader) => loader.run(console),
        What::Scale(scale) => scale.run(console),
        What::Import(import) => import.run(console),
        What::Windows(windows) => windows.run(console),
        What::Gad(arguments) => gad::run(arguments, console),
        What::Auto(arguments) => auto::run(arguments, console),
        What::Endurance(arguments) => endurance::run(arguments, console),
    }
}

impl Operators {
    fn run(self, work: Work, console: Console) -> Result<()> {
        self.on.run(work, self.relation, self.channels, console)
    }
}

impl OnGraph {
    fn run(self, work: Work, relation: Option<String>, channels: usize, console: Console) -> Result<()> {
        let data = match work {
            Work::ParallelGat => self.data.data.unwrap_or_default(),
            _ => self.data.required()?,
        };
        let (device, description) = self.compute.choose(console)?;
        let options = BenchOptions {
            data,
            relation,
            precision: match self.dtype {
                Dtype::F32 => Precision::F32,
                Dtype::F16 => Precision::F16,
                Dtype::Bf16 => Precision::BF16,
            },
            channels,
            runs: self.repeated.runs,
            seed: self.repeated.seed,
            device: device.to_string(),
            description,
        };
        let report = with_backend!(device, |B, d| bench::run::<B>(work, &options, &d, &|text| console.step(text)))?;
        self.shown.format.print(&report)?;
        // After the report: it shows what is wrong.
        report.verdict()
    }
}

impl Scale {
    fn run(self, console: Console) -> Result<()> {
        let data = self.data.data.map(|path| format!("data.path={}", path.display()));
        let process = launched(1)?;
        let devices: Vec<usize> = match &process {
            // All processes of a launcher, together.
            Some(process) => vec![process.ranks],
            None => self.devices.into_iter().map(NonZeroUsize::get).collect(),
        };
        let (device, description) = chosen(&self.compute, process.as_ref(), console)?;
        let overrides = self.set.into_iter().chain(data).collect();
        let options = ScaleOptions { config: self.config, overrides, devices, runs: self.runs, description };
        console.step("reading");
        let data = ScaleData::read(&options)?;
        let measured = |count: usize| {
            console.step(&format!("measuring epochs on {count} device{}", if count == 1 { "" } else { "s" }));
            let row = processes::together(process.as_ref(), device, count, |process| {
                as_process!(device, process, COLLECTIVE_DEADLINE, |B, rank, d| {
                    rank.and_then(|rank| ranks::as_rank::<B, _>(&rank, || data.measure::<B>(Some(&rank), &d)))
                })
            });
            if let Some(row) = row? {
                return Ok(row);
            }
            match count {
                1 => with_backend!(device, |B, d| data.measure::<B>(None, &d)),
                _ => with_ranks!(device, count, COLLECTIVE_DEADLINE, |B, all| {
                    ranks::on_threads::<B, _>(all, |rank, d| {
                        let row = data.measure::<B>(Some(rank), d)?;
                        Ok((rank.rank() == 0).then_some(row))
                    })
                }),
            }
        };
        let rows = options.devices.iter().map(|&count| measured(count)).collect::<Result<Vec<_>>>()?;
        match process {
            Some(process) if process.rank > 0 => Ok(()),
            _ => self.shown.format.print(&data.report(&options, rows)),
        }
    }
}

impl Accuracy {
    fn run(self, console: Console) -> Result<()> {
        let (device, description) = self.compute.choose(console)?;
        let options = AccuracyOptions { config: self.config, overrides: self.set, seeds: self.seeds, description };
        let report = with_backend!(device, |B, d| accuracy::run::<B>(&options, &d, &|text| console.step(text)))?;
        self.shown.format.print(&report)
    }
}

impl Loader {
    fn run(self, console: Console) -> Result<()> {
        let data = self.data.required()?;
        if !(0.0..=1.0).contains(&self.hot) {
            return Err(Error::Usage {
                argument: "--hot".into(),
                expected: "a share from 0 to 1".into(),
                found: self.hot.to_string(),
                help: "0.2 keeps a fifth of the nodes".into(),
            });
        }
        let (device, description) = self.compute.choose(console)?;
        let options = LoadOptions {
            data,
            fanouts: self.fanouts,
            batch_size: self.batch_size as usize,
            batches: self.batches as usize,
            kappa: self.kappa,
            hot: self.hot,
            prefetch: self.prefetch as usize,
            runs: self.repeated.runs,
            seed: self.repeated.seed,
            description,
        };
        let report = with_backend!(device, |B, d| loader::run::<B>(&options, &d, &|text| console.step(text)))?;
        self.shown.format.print(&report)
    }
}

impl Import {
    fn run(self, console: Console) -> Result<()> {
        let Repeated { runs, seed } = self.repeated;
        let options = ImportBenchOptions { edges: self.rows, parts: self.parts, runs, seed };
        let report = import::run(&options, &|text| console.step(text))?;
        self.shown.format.print(&report)
    }
}

impl Windows {
    fn run(self, console: Console) -> Result<()> {
        let Repeated { runs, seed } = self.repeated;
        let options = WindowBenchOptions { events: self.events, runs, seed };
        let report = windows::run(&options, &|text| console.step(text))?;
        self.shown.format.print(&report)
    }
}

impl Trees {
    fn run(self, console: Console) -> Result<()> {
        if let Some(path) = &self.export {
            check_new_file(path, false)?;
        }
        let (device, description) = self.compute.choose(console)?;
        let options = TreesOptions {
            rows: self.rows,
            features: self.features,
            trees: self.trees,
            leaves: self.leaves,
            bins: self.bins,
            seed: self.seed,
            description,
            export: self.export,
        };
        let report = with_backend!(device, |B, d| {
            let fit = |data: &Dataset, fit: Fit, params: &BoosterParams| match B::MIN_ROWS_FOR_DEVICE {
                None => Booster::fit(data, fit, params),
                Some(_) => Booster::fit_on::<B>(data, fit, params, &d),
            };
            trees::run(&options, &fit, &|text| console.step(text))
        })?;
        self.shown.format.print(&report)
    }
}
