//! What a training keeps on the disk and shows: run directory, log, checkpoints, progress, interruption.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use graphsieve_kernels::GraphBackend;
use serde::Serialize;

use super::check::Check;
use super::optimiser::Optimiser;
use super::position::Position;
use super::stretch::Stretch;
use super::task::Task;
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::graph::{Dataset, Subset};
use crate::models::parameters::{Export, Parameters};
use crate::models::weights::{ModelSpec, NATIVE_EXTENSION, TrainingState, Weights};
use crate::run::bundle::{Bundle, Origin};
use crate::run::progress::{Mode, Progress, Unit, rate};
use crate::run::stages::Pipeline;
use crate::run::{Meta, MetricsLog, RunDir, interrupt};

/// How a training is started, besides its configuration.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Description of the device, for `meta.json`.
    pub device: String,
    /// The run directory to go on with.
    pub resume: Option<PathBuf>,
    /// The run whose best weights a new one begins with.
    pub from: Option<PathBuf>,
    /// The pipeline that this run is a stage of.
    pub pipeline: Option<Pipeline>,
    /// How far the training goes; `None` goes to its end.
    pub stretch: Option<Stretch>,
    /// How progress is shown.
    pub progress: Mode,
    /// What has to hold before it begins, found out while its data are read.
    pub check: Check,
}

impl RunOptions {
    /// A new run from nothing to its end, of which nothing is shown.
    pub fn quiet(device: impl Into<String>) -> Self {
        let (resume, from, pipeline, stretch, check) = (None, None, None, None, Check::default());
        Self { device: device.into(), resume, from, pipeline, stretch, progress: Mode::Quiet, check }
    }

    /// The run that a training goes on with or begins with.
    pub fn begun(&self) -> Option<&Path> {
        self.resume.as_deref().or(self.from.as_deref())
    }
}

/// One running training.
pub struct Session {
    pub run: RunDir,
    log: MetricsLog,
    progress: Progress,
    started: Instant,
    epochs: usize,
    edges_per_epoch: usize,
    /// Last epoch before this process.
    resumed_at: usize,
    /// When the first epoch of this process was done: it compiles kernels and fills caches.
    warm_since: Option<Instant>,
    writing: Writing,
}

/// Checkpoints that a thread writes, one after the other, while the training goes on.
#[derive(Default)]
struct Writing(Option<JoinHandle<Result<()>>>);

impl Writing {
    /// Writes one more, behind those that are under way if they could be written.
    fn begin(&mut self, write: impl FnOnce() -> Result<()> + Send + 'static) {
        let mut before = Self(self.0.take());
        self.0 = Some(thread::spawn(move || before.end().and_then(|()| write())));
    }

    /// Whether there were some, and [`end`](Self::end) does not wait for them.
    fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Waits until all are written.
    fn end(&mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // A training that failed says why itself, but not this.
        if let Some(Ok(Err(error))) = self.0.take().map(JoinHandle::join) {
            log::warn!("a checkpoint was not written: {error}");
        }
    }
}

/// File of the checkpoint with the best validation metric.
pub fn best_file(run: &RunDir) -> PathBuf {
    run.best_checkpoint().with_extension(NATIVE_EXTENSION)
}

/// File of the weights that a run began with, if they are those of another one.
fn start_file(run: &RunDir) -> PathBuf {
    best_file(run).with_file_name("start").with_extension(NATIVE_EXTENSION)
}

/// The best weights of another run, for a new one to begin with.
pub struct Start {
    from: RunDir,
    weights: Weights,
}

impl Start {
    /// Reads them before there is the new run, of a model as `spec` and data as `origin` say.
    ///
    /// # Errors
    /// A run that has no such model, and what [`Origin::check_from`] refuses.
    pub fn read(from: &Path, spec: &ModelSpec, origin: &Origin, config_toml: &str) -> Result<Self> {
        let from = RunDir::open(from)?;
        let same_division = check_same_settings(&from, config_toml, &["data", "split"]).is_ok();
        origin.check_from(&from, same_division)?;
        let (weights, file) = Weights::read(&best_file(&from))?;
        check_same_model(&weights, &file, spec, "train with the [model] of that run, or without --from")?;
        Ok(Self { from, weights })
    }

    /// The run that they are of.
    pub fn run(&self) -> &Path {
        self.from.path()
    }

    /// Keeps them in the new run, which then needs the other one no longer.
    pub fn keep(&self, run: &RunDir) -> Result<()> {
        self.weights.write_native(&start_file(run))
    }
}

/// File of the checkpoint to go on from.
pub fn last_file(run: &RunDir) -> PathBuf {
    run.last_checkpoint().with_extension(NATIVE_EXTENSION)
}

/// Opens the run to resume, with its last checkpoint, or makes a new one. A run that ended before its first checkpoint
/// begins again.
///
/// # Errors
/// A run that cannot be made or read, that has other settings, or whose last checkpoint is missing or damaged.
pub fn open_or_create(
    options: &RunOptions,
    runs: &Path,
    name: &str,
    seed: u64,
    config_toml: &str,
) -> Result<(RunDir, Option<Weights>)> {
    let Some(path) = &options.resume else {
        let run = RunDir::create(runs, name, config_toml, Meta::now(options.device.clone(), seed))?;
        if let Some(pipeline) = &options.pipeline {
            pipeline.record(&run).inspect_err(|_| {
                // A run that its pipeline does not know would not be gone on with.
                if !matches!(pipeline.begun(), Ok(Some(_))) {
                    run.remove_if_empty();
                }
            })?;
        }
        return Ok((run, None));
    };
    let run = RunDir::resume(path)?;
    check_same_settings(&run, config_toml, &["data", "split"])?;
    // The best one is written first. Without the other a run that is not finished was killed between both.
    if !last_file(&run).exists() && (!best_file(&run).exists() || !Bundle::is_finished(path)?) {
        return Ok((run, None));
    }
    let (weights, _) = Weights::read(&last_file(&run))?;
    Ok((run, Some(weights)))
}

/// Refuses to go on with other settings in these sections, or of these names. Other labels, other nodes to learn from
/// or another kind of input would test what was learnt already on nodes that it has seen. Paths may change, data move.
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
    // Labels were divided by shares before there was another way.
    if let Some(toml::Value::Table(split)) = before.get_mut("split").filter(|_| now.contains_key("split")) {
        let of_labels = match split.get("use").and_then(toml::Value::as_str) {
            None => !split.contains_key("held_out"),
            Some(name) => name == "labels",
        };
        if of_labels {
            for key in ["anomalous", "normal"] {
                split.entry(key).or_insert(toml::Value::Integer(0));
            }
            if !split.contains_key("use") {
                split.insert("use".into(), toml::Value::String("random".into()));
                split.insert("index".into(), toml::Value::Integer(0));
            }
        }
    }
    // Data had one window before there was the key.
    if let Some(toml::Value::Table(data)) = before.get_mut("data") {
        data.entry("window").or_insert(toml::Value::Integer(1));
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
        resumed_at: usize,
        title: &str,
        train: &TrainConfig,
        edges_per_epoch: usize,
        mode: Mode,
    ) -> Result<Self> {
        // Before there is anything to save.
        interrupt::install();
        let log = run.metrics_log(resumed_at as u64)?;
        let run = if resumed_at > 0 { run.gone_on_with()? } else { run };
        let progress = Progress::with_mode(title, train.epochs as u64, Unit::Items, mode);
        progress.start_at(resumed_at as u64);
        let epochs = train.epochs;
        let (started, warm_since, writing) = (Instant::now(), None, Writing::default());
        Ok(Self { run, log, progress, started, epochs, edges_per_epoch, resumed_at, warm_since, writing })
    }

    /// Records a finished epoch.
    pub fn log(&mut self, epoch: usize, values: &impl Serialize) -> Result<()> {
        self.log.append(epoch as u64, values)
    }

    /// Shows the progress after `epoch`.
    pub fn show(&self, epoch: usize, message: &str) {
        // A loss without edges has no rate of them.
        if self.edges_per_epoch == 0 {
            return self.progress.update(epoch as u64, message);
        }
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

    /// Mean wall time of the epochs after the first until `epoch`, validation and checkpoints included.
    pub fn seconds_per_epoch(&self, epoch: usize) -> Option<f64> {
        let epochs = epoch.checked_sub(self.resumed_at + 1).filter(|&n| n > 0)?;
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

    /// Writes the checkpoint to go on from, behind the best one, which it refers to; see [`saved`](Self::saved).
    pub fn save_last<B: GraphBackend, M: AutodiffModule<Autodiff<B>>>(
        &mut self,
        spec: &ModelSpec,
        position: &mut Position,
        tensors: Export,
        optimiser: &Optimiser<B, M>,
    ) -> Result<()> {
        self.log.sync()?;
        position.loss_scale = optimiser.loss_scale();
        let progress = serde_json::to_string(position).unwrap_or_default();
        let training = TrainingState { progress, optimiser: optimiser.save() };
        let weights = Weights { spec: spec.clone(), tensors: tensors.0, training: Some(training) };
        let file = last_file(&self.run);
        self.writing.begin(move || weights.write_native(&file));
        Ok(())
    }

    /// Writes the best checkpoint, and the same weights as safetensors for other programs; see [`saved`](Self::saved).
    pub fn save_best(&mut self, spec: &ModelSpec, tensors: Export) {
        let weights = Weights { spec: spec.clone(), tensors: tensors.0, training: None };
        let file = best_file(&self.run);
        self.writing.begin(move || {
            weights.write_native(&file)?;
            weights.write_safetensors(&file.with_extension("safetensors"))
        });
    }

    /// Waits until all checkpoints are written.
    ///
    /// # Errors
    /// Those that could not be.
    pub fn saved(&mut self) -> Result<()> {
        self.writing.end()
    }

    /// [`saved`](Self::saved) as far as it does not wait.
    ///
    /// # Errors
    /// As for [`saved`](Self::saved).
    pub fn check_saved(&mut self) -> Result<()> {
        if self.writing.is_over() { self.saved() } else { Ok(()) }
    }

    /// Makes `epoch` the last one.
    pub fn end_at(&mut self, epoch: usize) {
        self.epochs = epoch;
    }

    /// Whether a checkpoint is due after `epoch`.
    pub fn checkpoint_due(&self, epoch: usize, train: &TrainConfig) -> bool {
        epoch == self.epochs || epoch.is_multiple_of(train.checkpoint_every) || interrupt::requested()
    }

    /// After a Ctrl-C, when everything is saved: how to go on.
    pub fn stop_if_asked(&mut self, epoch: usize) -> Result<()> {
        if !interrupt::stops() || epoch == self.epochs {
            return Ok(());
        }
        self.saved()?;
        self.progress.finish("interrupted");
        let resume = format!("graphsieve train --resume {}", self.run.path().display());
        Err(Error::Interrupted { saved: format!("everything up to epoch {epoch}"), resume })
    }
}

/// Where a training begins.
pub struct Restored<B: GraphBackend, T: Task<B>> {
    pub model: T::Model,
    pub optimiser: Optimiser<B, T::Model>,
    pub position: Position,
}

/// Refuses settings of another model than that of `weights`, which were read from `file`.
fn check_same_model(weights: &Weights, file: &Path, spec: &ModelSpec, help: &str) -> Result<()> {
    if weights.spec == *spec {
        return Ok(());
    }
    let [now, before] = spec.unlike(&weights.spec);
    Err(Error::Usage {
        argument: "[model]".into(),
        expected: format!("{before} as in {}", file.display()),
        found: now,
        help: help.into(),
    })
}

/// A model with its optimiser and position: new from `seed` or from the weights that the run began with, or as the last
/// checkpoint of the run left them.
///
/// # Errors
/// A checkpoint that is damaged, of another model, or of a later epoch than the last one of the settings.
pub fn restored<B: GraphBackend, T: Task<B>>(
    run: &RunDir,
    checkpoint: Option<Weights>,
    task: &T,
    spec: &ModelSpec,
    seed: u64,
    device: &B::Device,
) -> Result<Restored<B, T>> {
    let Some(weights) = checkpoint else {
        let start = start_file(run);
        let model = match start.is_file() {
            true => task.model(&mut Parameters::from_tensors(&Weights::read(&start)?.0.tensors, &start, device))?,
            false => task.model(&mut Parameters::from_seed(seed, device))?,
        };
        return Ok(Restored { model, optimiser: task.optimiser(), position: Position::default() });
    };
    let file = last_file(run);
    let help = "resume with the configuration of the run: graphsieve train --resume RUN";
    check_same_model(&weights, &file, spec, help)?;
    let help = "the checkpoint is damaged or of another version; start a new run";
    let Some(training) = weights.training else {
        return Err(Error::format(file, "optimiser", "the state of a training", "weights alone", help));
    };
    let position: Position = serde_json::from_str(&training.progress)
        .map_err(|e| Error::format(&file, "progress", "the position of a training", e.to_string(), help))?;
    let mut optimiser = task
        .optimiser()
        .load(&training.optimiser)
        .map_err(|e| Error::format(&file, "optimiser", "the state of an optimiser", e, help))?;
    let epochs = task.train().epochs;
    if position.epoch > epochs {
        return Err(Error::Usage {
            argument: "train.epochs".into(),
            expected: format!("at least {}, the epochs that {} has", position.epoch, run.path().display()),
            found: epochs.to_string(),
            help: "a run goes on to more epochs; for fewer start a new one".into(),
        });
    }
    optimiser.set_loss_scale(position.loss_scale);
    let model = task.model(&mut Parameters::from_tensors(&weights.tensors, &file, device))?;
    let values = model.num_params();
    if optimiser.num_values().is_some_and(|len| len != values) {
        let (expected, found) = (format!("moments of {values} values"), format!("{:?}", optimiser.num_values()));
        return Err(Error::format(file, "optimiser", expected, found, help));
    }
    Ok(Restored { model, optimiser, position })
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
        help:
            "lower train.learning_rate, set train.clip_norm, use precision f32, or scale features that are very large"
                .into(),
    })
}

/// What a training says that is made on a part of the data.
pub fn part_note(known: &Subset, dataset: &Dataset) -> String {
    let [nodes, all] = [known.nodes.len(), dataset.graph.num_nodes()];
    format!("split by time: trained on the {nodes} of {all} nodes that were known at the end of validation")
}

/// How fast the epochs were, as a line of an outcome.
pub fn write_speed(f: &mut fmt::Formatter<'_>, seconds_per_epoch: Option<f64>) -> fmt::Result {
    match seconds_per_epoch {
        Some(seconds) => writeln!(f, "{:.1} ms per epoch after the first", seconds * 1e3),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_stage_that_its_pipeline_cannot_record_leaves_no_run() {
        let runs = tempfile::tempdir().unwrap();
        let create = |name| RunDir::create(runs.path(), name, "seed = 1\n", Meta::now("cpu", 1)).unwrap();
        let pipeline = create("all");
        let begin = || {
            let pipeline = Some(Pipeline::stage(&pipeline, "stage1"));
            let options = RunOptions { pipeline, ..RunOptions::quiet("cpu") };
            open_or_create(&options, runs.path(), "all-stage1", 1, "seed = 1\n").map(|(run, _)| run)
        };
        let run = begin().unwrap();
        assert!(run.path().is_dir());
        // No record can be written into a file.
        fs::remove_dir_all(pipeline.path()).unwrap();
        fs::write(pipeline.path(), "").unwrap();
        assert!(begin().is_err());
        let mut left: Vec<PathBuf> = fs::read_dir(runs.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        assert_eq!(left, [pipeline.path(), run.path()]);
    }

    #[test]
    fn checkpoints_are_written_in_their_order_and_none_behind_one_that_failed() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut writing = Writing::default();
        let mut write = |number: u64, result: Result<()>| {
            let written = written.clone();
            writing.begin(move || {
                // The first takes the longest.
                thread::sleep(std::time::Duration::from_millis(20 / number));
                written.lock().unwrap().push(number);
                result
            });
        };
        write(1, Ok(()));
        write(2, Err(Error::io("checkpoint", "write", io::Error::other("no room"))));
        write(3, Ok(()));
        while !writing.is_over() {
            thread::yield_now();
        }
        assert!(writing.end().unwrap_err().to_string().contains("no room"));
        assert_eq!(*written.lock().unwrap(), [1, 2]);
        assert!(!writing.is_over() && writing.end().is_ok());
    }
}
