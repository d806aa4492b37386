//! What both stages share around their loops: run directory, log, progress, checkpoints, interruption.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use graphsieve_kernels::{DropEdge, GraphBackend, NodeSet};
use serde::{Deserialize, Serialize};

use super::early_stopping::EarlyStopping;
use super::interrupt;
use super::optimiser::{LossScale, Optimiser};
use super::progress::{Mode, Progress, Unit, rate};
use super::run_dir::{Meta, MetricsLog, RunDir};
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::models::device_graph::{DeviceGraph, DeviceRelation};
use crate::models::parameters::{Export, Parameters};
use crate::models::reach::Reach;
use crate::models::weights::{ModelSpec, NATIVE_EXTENSION, TrainingState, Weights};

/// How a training is started, besides its configuration.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Description of the device, for `meta.json`.
    pub device: String,
    /// The run directory to go on with.
    pub resume: Option<PathBuf>,
    /// How progress is shown.
    pub progress: Mode,
}

/// Position of a training, kept in its `last` checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Last finished epoch; epochs count from 1.
    pub epoch: usize,
    /// Epoch of the best checkpoint, 0 before the first validation.
    pub best_epoch: usize,
    /// Validation metric of the best checkpoint.
    pub best_metric: f64,
    /// Of an f16 run.
    pub loss_scale: Option<LossScale>,
    /// Of a training that stops when the validation no longer improves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
}

/// One running training.
pub struct Session {
    pub run: RunDir,
    pub position: Position,
    log: MetricsLog,
    progress: Progress,
    started: Instant,
    epochs: usize,
    edges_per_epoch: usize,
    /// Last epoch before this process.
    resumed_at: usize,
    /// When the first epoch of this process was done: it compiles kernels and fills caches.
    warm_since: Option<Instant>,
}

/// File of the checkpoint with the best validation metric.
pub fn best_file(run: &RunDir) -> PathBuf {
    run.best_checkpoint().with_extension(NATIVE_EXTENSION)
}

/// File of the checkpoint to go on from.
pub fn last_file(run: &RunDir) -> PathBuf {
    run.last_checkpoint().with_extension(NATIVE_EXTENSION)
}

/// Opens the run to resume, with its last checkpoint, or makes a new one.
pub fn open_or_create(
    options: &RunOptions,
    runs: &Path,
    name: &str,
    seed: u64,
    config_toml: &str,
) -> Result<(RunDir, Option<Weights>)> {
    match &options.resume {
        None => Ok((RunDir::create(runs, name, config_toml, Meta::now(options.device.clone(), seed))?, None)),
        Some(path) => {
            let run = RunDir::open(path)?;
            check_same_settings(&run, config_toml, &["data", "split"])?;
            let (weights, _) = Weights::read(&last_file(&run))?;
            Ok((run, Some(weights)))
        }
    }
}

/// Refuses to go on with other settings in these sections, or of these names. Other labels, other nodes to learn from or another kind of input
/// would test what was learnt already on nodes that it has seen. Paths may change, data move.
pub(super) fn check_same_settings(run: &RunDir, config_toml: &str, sections: &[&str]) -> Result<()> {
    let file = run.config();
    let text = fs::read_to_string(&file).map_err(|source| Error::io(&file, "read", source))?;
    let parse = |text: &str| -> Result<toml::Table> {
        let help = "the file is damaged; start a new run";
        text.parse().map_err(|fault: toml::de::Error| {
            Error::format(&file, "TOML", "the settings of a run", fault.message().to_owned(), help)
        })
    };
    let (mut before, now) = (parse(&text)?, parse(config_toml)?);
    // Stage 1 held nothing out before it had the key.
    if before.get("task").and_then(toml::Value::as_str) == Some("stage1") && !before.contains_key("split") {
        let mut split = toml::Table::from_iter([("held_out".into(), toml::Value::Float(0.0))]);
        split.extend(before.get("seed").map(|seed| ("seed".into(), seed.clone())));
        before.insert("split".into(), split.into());
    }
    let settings = |table: &toml::Table, name: &str| -> BTreeMap<String, toml::Value> {
        match table.get(name) {
            None => BTreeMap::new(),
            Some(toml::Value::Table(section)) => {
                let named = |(key, value): (&String, &toml::Value)| (format!("{name}.{key}"), value.clone());
                section.iter().filter(|(key, _)| *key != "path" && *key != "embeddings").map(named).collect()
            }
            Some(value) => BTreeMap::from([(name.into(), value.clone())]),
        }
    };
    for section in sections {
        let (before, now) = (settings(&before, section), settings(&now, section));
        for key in before.keys().chain(now.keys()) {
            let show = |value: Option<&toml::Value>| value.map_or("nothing".into(), toml::Value::to_string);
            let (before, now) = (before.get(key), now.get(key));
            if before != now {
                return Err(Error::Usage {
                    argument: key.clone(),
                    expected: format!("{} as in {}", show(before), file.display()),
                    found: show(now),
                    help: "a resumed run keeps what it has begun with; start a new run for other settings".into(),
                });
            }
        }
    }
    Ok(())
}

impl Session {
    /// Starts the log and the progress bar.
    pub fn new(
        run: RunDir,
        position: Position,
        title: &str,
        train: &TrainConfig,
        edges_per_epoch: usize,
        mode: Mode,
    ) -> Result<Self> {
        let log = run.metrics_log(position.epoch as u64)?;
        let progress = Progress::with_mode(title, train.epochs as u64, Unit::Items, mode);
        progress.start_at(position.epoch as u64);
        interrupt::install();
        let (epochs, resumed_at) = (train.epochs, position.epoch);
        Ok(Self {
            run,
            position,
            log,
            progress,
            started: Instant::now(),
            epochs,
            edges_per_epoch,
            resumed_at,
            warm_since: None,
        })
    }

    /// Records a finished epoch.
    pub fn log(&mut self, epoch: usize, values: &impl Serialize) -> Result<()> {
        self.log.append(epoch as u64, values)
    }

    /// Shows the progress after `epoch`.
    pub fn show(&self, epoch: usize, message: &str) {
        let edges = self.edges_per_epoch as f64 * (epoch - self.resumed_at) as f64;
        let speed = rate(edges, self.started.elapsed(), "edges");
        self.progress.update(epoch as u64, &format!("{message}  {speed}"));
    }

    /// Marks the end of an epoch. The first one waits for the device, so that [`Self::seconds_per_epoch`] starts there.
    pub fn epoch_done<B: GraphBackend>(&mut self, device: &B::Device) -> Result<()> {
        if self.warm_since.is_none() {
            B::sync(device).map_err(|e| Error::Device {
                device: format!("{device:?}"),
                reason: format!("{e:?}"),
                help: "the device failed during the first epoch; try a smaller graph, precision f16 or another device"
                    .into(),
            })?;
            self.warm_since = Some(Instant::now());
        }
        Ok(())
    }

    /// Mean wall time of the epochs after the first, validation and checkpoints included.
    pub fn seconds_per_epoch(&self) -> Option<f64> {
        let epochs = self.position.epoch.checked_sub(self.resumed_at + 1).filter(|&n| n > 0)?;
        Some(self.warm_since?.elapsed().as_secs_f64() / epochs as f64)
    }

    /// Tells the user something about the run.
    pub fn note(&self, text: &str) {
        self.progress.println(text);
    }

    /// Ends the progress display.
    pub fn finish(&self, message: &str) {
        self.progress.finish(message);
    }

    /// Writes the checkpoint to go on from.
    pub fn save_last<B: GraphBackend, M: AutodiffModule<Autodiff<B>>>(
        &mut self,
        spec: &ModelSpec,
        tensors: Export,
        optimiser: &Optimiser<B, M>,
    ) -> Result<()> {
        self.log.sync()?;
        self.position.loss_scale = optimiser.loss_scale();
        let progress = serde_json::to_string(&self.position).unwrap_or_default();
        let training = TrainingState { progress, optimiser: optimiser.save() };
        let weights = Weights { spec: spec.clone(), tensors: tensors.0, training: Some(training) };
        weights.write_native(&last_file(&self.run))
    }

    /// Writes the best checkpoint, and the same weights as safetensors for other programs.
    pub fn save_best(&mut self, spec: &ModelSpec, tensors: Export) -> Result<()> {
        let weights = Weights { spec: spec.clone(), tensors: tensors.0, training: None };
        weights.write_native(&best_file(&self.run))?;
        weights.write_safetensors(&best_file(&self.run).with_extension("safetensors"))
    }

    /// Makes `epoch` the last one.
    pub fn end_at(&mut self, epoch: usize) {
        self.epochs = epoch;
    }

    /// Whether a checkpoint is due after `epoch`.
    pub fn checkpoint_due(&self, epoch: usize, train: &TrainConfig) -> bool {
        epoch == self.epochs || epoch.is_multiple_of(train.checkpoint_every) || interrupt::requested()
    }

    /// After a Ctrl-C: how to go on. Call it when everything is saved.
    pub fn stop_if_asked(&self, epoch: usize) -> Result<()> {
        if !interrupt::requested() || epoch == self.epochs {
            return Ok(());
        }
        self.progress.finish("interrupted");
        let resume = format!("graphsieve train --resume {}", self.run.path().display());
        Err(Error::Interrupted { epoch, resume })
    }
}

/// A model with its optimiser and position: new from `seed`, or as the last checkpoint of the run left them.
pub fn start<B: GraphBackend, M: AutodiffModule<Autodiff<B>>>(
    run: &RunDir,
    checkpoint: Option<Weights>,
    spec: &ModelSpec,
    seed: u64,
    train: &TrainConfig,
    device: &B::Device,
    build: impl FnOnce(&mut Parameters<Autodiff<B>>) -> Result<M>,
) -> Result<(M, Optimiser<B, M>, Position)> {
    start_with(run, checkpoint, spec, seed, Optimiser::new(train), device, build)
}

/// Like [`start`], with an optimiser that has settings of its own.
pub fn start_with<B: GraphBackend, M: AutodiffModule<Autodiff<B>>>(
    run: &RunDir,
    checkpoint: Option<Weights>,
    spec: &ModelSpec,
    seed: u64,
    optimiser: Optimiser<B, M>,
    device: &B::Device,
    build: impl FnOnce(&mut Parameters<Autodiff<B>>) -> Result<M>,
) -> Result<(M, Optimiser<B, M>, Position)> {
    let Some(weights) = checkpoint else {
        return Ok((build(&mut Parameters::from_seed(seed, device))?, optimiser, Position::default()));
    };
    let file = last_file(run);
    if weights.spec != *spec {
        let help = "resume with the configuration of the run: graphsieve train --resume RUN";
        let (expected, found) = (format!("{spec:?}"), format!("{:?}", weights.spec));
        return Err(Error::format(file, "model", expected, found, help));
    }
    let help = "the checkpoint is damaged or of another version; start a new run";
    let Some(training) = weights.training else {
        return Err(Error::format(file, "optimiser", "the state of a training", "weights alone", help));
    };
    let position: Position = serde_json::from_str(&training.progress)
        .map_err(|e| Error::format(&file, "progress", "the position of a training", e.to_string(), help))?;
    let mut optimiser = optimiser
        .load(&training.optimiser)
        .map_err(|e| Error::format(&file, "optimiser", "the state of an optimiser", e, help))?;
    optimiser.set_loss_scale(position.loss_scale);
    let model = build(&mut Parameters::from_tensors(&weights.tensors, &file, device))?;
    let values = model.num_params();
    if optimiser.num_values().is_some_and(|len| len != values) {
        let (expected, found) = (format!("moments of {values} values"), format!("{:?}", optimiser.num_values()));
        return Err(Error::format(file, "optimiser", expected, found, help));
    }
    Ok((model, optimiser, position))
}

/// What the rows `nodes` of a result depend on; everything when there is no list.
pub fn reach_of<B: GraphBackend>(
    graph: &DeviceGraph<B>,
    nodes: Option<Vec<Vec<u32>>>,
    drop_edge: impl Fn(&DeviceRelation<B>) -> Option<DropEdge>,
    device: &B::Device,
) -> Reach<B> {
    let Some(nodes) = nodes else { return Reach::all(graph) };
    let wanted = nodes.iter().zip(&graph.node_types).map(|(nodes, t)| NodeSet::new(nodes, t.count, device)).collect();
    Reach::of(graph, wanted, drop_edge, device)
}

/// Fails when a value of the loss is not finite.
pub fn check_finite(term: &str, value: f32, epoch: usize) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Error::NonFinite {
        term: term.into(),
        value: f64::from(value),
        epoch,
        help: "lower train.learning_rate, set train.clip_norm, or use precision f32".into(),
    })
}
