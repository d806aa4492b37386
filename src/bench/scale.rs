//! Epochs of Stage 2 on one and on several ranks.

use std::fmt;
use std::path::PathBuf;

use graphsieve_kernels::{Communicator, GraphBackend, MemoryBackend};
use serde::Serialize;

use super::clock::{Times, time};
use super::epochs::{Epochs, Training};
use super::memory::{Peak, WATCHED_RUNS, peak};
use super::{WARM_UP, usage};
use crate::config::{RunConfig, Stage2Config};
use crate::data::split::Split;
use crate::error::Result;
use crate::graph::{Dataset, Features};
use crate::infer::attention::input_features;
use crate::loader::BatchStats;
use crate::run::splits::split_of;
use crate::train::ranks::Rank;
use crate::train::tasks::attention::Attention;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ScaleOptions {
    /// The configuration file of a Stage 2, with what the command line replaces.
    pub config: PathBuf,
    pub overrides: Vec<String>,
    /// Numbers of devices, one after the other.
    pub devices: Vec<usize>,
    /// Timed epochs.
    pub runs: usize,
    /// Name and model of the device, for the report.
    pub description: String,
}

/// Epochs on so many devices.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleRow {
    pub devices: usize,
    /// Of an epoch.
    pub times: Times,
    /// Of the scores of all nodes on the host of rank 0, where the graph is on the device.
    pub scores: Option<Times>,
    /// Of the first device; of the whole process where ranks share the processor.
    pub peak: Option<Peak>,
    /// Of an epoch on the first device, on average; of one device there is none.
    pub exchanged: Option<Exchanged>,
    /// Where mini-batches are trained.
    pub loaded: Option<Loaded>,
    /// What was decided about the training.
    pub notes: Vec<String>,
}

/// The mini-batches of the first device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Loaded {
    /// Seeds that it trains in a second.
    pub seeds_per_s: f64,
    /// Of a mini-batch, on average.
    pub seeds: f64,
    pub rows: f64,
    /// Rows that were not on the device, and their bytes.
    pub fetched: f64,
    pub bytes: f64,
}

impl Loaded {
    /// Of all epochs so far, of which one takes `ms`.
    fn of(stats: BatchStats, epochs: usize, ms: f64) -> Self {
        let mean = |count: u64| count as f64 / stats.batches.max(1) as f64;
        Self {
            seeds_per_s: stats.seeds as f64 / epochs.max(1) as f64 / (1e-3 * ms),
            seeds: mean(stats.seeds),
            rows: mean(stats.rows),
            fetched: mean(stats.fetched),
            bytes: mean(stats.bytes),
        }
    }
}

/// What a rank exchanges in an epoch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Exchanged {
    pub calls: f64,
    /// Bytes of the results.
    pub bytes: f64,
    /// From where the rank's own work was done to the end of each exchange, the other ranks waited for.
    pub ms: f64,
    /// The epoch where nothing is computed while rows cross; between CUDA devices that wait for each other.
    pub at_once: Option<Times>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    pub device: String,
    pub data: PathBuf,
    pub nodes: usize,
    pub edges: usize,
    /// Labelled nodes that an epoch learns from.
    pub labels: usize,
    /// `loader.mode` of the configuration.
    pub mode: String,
    pub runs: usize,
    pub rows: Vec<ScaleRow>,
}

/// What every rank trains on.
pub struct ScaleData {
    config: Stage2Config,
    dataset: Dataset,
    features: Features,
    split: Split,
    runs: usize,
}

impl ScaleData {
    /// Reads configuration and data.
    ///
    /// # Errors
    /// A configuration of another task, no run, data that cannot be used.
    pub fn read(options: &ScaleOptions) -> Result<Self> {
        if options.runs == 0 {
            return Err(usage("--runs", "at least 1", "0", "10 is the default"));
        }
        let RunConfig::Stage2(mut config) = RunConfig::load(&options.config, &options.overrides)? else {
            let found = options.config.display().to_string();
            return Err(usage("--config", "a configuration of task = \"stage2\"", &found, "take configs/stage2.toml"));
        };
        config.train.epochs = 2 * (WARM_UP + options.runs) + WATCHED_RUNS;
        let dataset = Dataset::open(&config.data.path)?;
        let filling = dataset.filling(None)?;
        let features = input_features(&config.data, &dataset, filling.as_ref(), None)?;
        let labels = dataset.binary_labels(&config.data.path)?;
        let split = split_of(&dataset, &labels.entries, &config.split, config.seed)?;
        Ok(Self { config, dataset, features, split, runs: options.runs })
    }

    /// The figures of one rank, and of all that train with it.
    ///
    /// # Errors
    /// What a training reports; a rank or a device that fails.
    pub fn measure<B: GraphBackend + MemoryBackend>(
        &self,
        rank: Option<&Rank<B>>,
        device: &B::Device,
    ) -> Result<ScaleRow> {
        graphsieve_kernels::device::watch();
        let Self { config, dataset, features, split, runs } = self;
        let (task, notes) = Attention::<B>::open(config, &dataset.graph, features.clone(), split, None, rank, device)?;
        let mut training = Training::<B, _>::of(task, config.seed, rank, device)?;
        let mut epoch = 0;
        let mut next = || {
            epoch += 1;
            training.step(epoch)
        };
        let times = time::<B>(device, *runs, &mut next)?;
        // Of epochs whose kernels are compiled on every rank.
        let before = rank.map(Communicator::traffic);
        let peak = peak::<B, _>(device, &mut next)?;
        let exchanged = rank.map(Communicator::traffic).zip(before);
        let differs = rank.is_some_and(|rank| rank.end_at_once(true));
        let at_once = differs.then(|| time::<B>(device, *runs, &mut next)).transpose()?;
        if let Some(rank) = rank {
            rank.end_at_once(false);
        }
        let loaded = training.loaded().map(|stats| Loaded::of(stats, epoch, times.median_ms));
        let on_device = loaded.is_none();
        let scores = on_device.then(|| time::<B>(device, *runs, || training.score())).transpose()?;
        let epochs = WATCHED_RUNS as f64;
        let exchanged = exchanged.map(|(after, before)| Exchanged {
            calls: (after.calls - before.calls) as f64 / epochs,
            bytes: (after.bytes - before.bytes) as f64 / epochs,
            ms: 1e3 * (after.seconds - before.seconds) / epochs,
            at_once,
        });
        Ok(ScaleRow { devices: rank.map_or(1, |rank| rank.ranks()), times, scores, peak, exchanged, loaded, notes })
    }

    /// The report of `rows`.
    pub fn report(self, options: &ScaleOptions, rows: Vec<ScaleRow>) -> ScaleReport {
        let Self { config, dataset, split, runs, .. } = self;
        ScaleReport {
            device: options.description.clone(),
            nodes: dataset.graph.num_nodes(),
            edges: dataset.graph.num_edges(),
            labels: split.train.len(),
            mode: format!("{:?}", config.loader.mode).to_lowercase(),
            data: config.data.path,
            runs,
            rows,
        }
    }
}

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, data, nodes, edges, labels, mode, runs, rows } = self;
        writeln!(f, "{}: {nodes} nodes, {edges} edges, {labels} labelled nodes to learn from", data.display())?;
        writeln!(f, "{device}; Stage 2, loader.mode = \"{mode}\", median of {runs} epochs\n")?;
        writeln!(
            f,
            "devices   ms/epoch   quartiles            speed   a device   memory   exchanges       MB       ms   hidden   ms/scores"
        )?;
        let one = rows.iter().find(|row| row.devices == 1).map(|row| row.times.median_ms);
        for ScaleRow { devices, times, scores, peak, exchanged, .. } in rows {
            let quartiles = format!("{:.2} to {:.2}", times.lower_quartile_ms, times.upper_quartile_ms);
            let speed = one.map(|one| one / times.median_ms);
            let shown = |value: Option<f64>, unit: &str, digits: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}{unit}"))
            };
            writeln!(
                f,
                "{devices:>7} {:>10.2}   {quartiles:<18} {:>7} {:>10} {:>8} {:>11} {:>8} {:>8} {:>8} {:>11}",
                times.median_ms,
                shown(speed, "x", 2),
                shown(speed.map(|speed| 100.0 * speed / *devices as f64), " %", 0),
                shown(peak.map(|peak| peak.bytes as f64 / 1e9), " GB", 2),
                shown(exchanged.map(|exchanged| exchanged.calls), "", 0),
                shown(exchanged.map(|exchanged| exchanged.bytes / 1e6), "", 1),
                shown(exchanged.map(|exchanged| exchanged.ms), "", 2),
                shown(exchanged.and_then(|of| Some(of.at_once?.median_ms - times.median_ms)), "", 2),
                shown(scores.map(|scores| scores.median_ms), "", 2),
            )?;
        }
        let loaded: Vec<(usize, Loaded)> = rows.iter().filter_map(|row| Some((row.devices, row.loaded?))).collect();
        if !loaded.is_empty() {
            writeln!(f, "\nmini-batches of the first device; rows that it lacks are fetched")?;
            writeln!(f, "devices    seeds/s    seeds       rows    fetched       MB")?;
        }
        for (devices, Loaded { seeds_per_s, seeds, rows, fetched, bytes }) in loaded {
            let mb = bytes / 1e6;
            writeln!(f, "{devices:>7} {seeds_per_s:>10.0} {seeds:>8.0} {rows:>10.0} {fetched:>10.0} {mb:>8.2}")?;
        }
        for (row, note) in rows.iter().flat_map(|row| row.notes.iter().map(move |note| (row, note))) {
            writeln!(f, "{} device{}: {note}", row.devices, if row.devices == 1 { "" } else { "s" })?;
        }
        Ok(())
    }
}
