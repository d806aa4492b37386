//! What makes a run a model that can be used elsewhere: `model.json`.
//!
//! ```text
//! artifacts/runs/20260131-093000-stage2/
//!   model.json           versions, schema, digests of the training data and of the files below
//!   checkpoint/best.bpk  (best.trees, calibration.json, folds/*/checkpoint/best.bpk)
//!   known_labels.json    labels that the model reads, where it does (folds/*/known_labels.json)
//!   filling.json         of networks that read features: what stands for missing values (folds/*/filling.json)
//!   import.json          of imported tables: description and everything that was fitted, with import.bin
//!   profile.json         what features and scores of the training looked like
//!   evaluation.json      what it reached, with the threshold between anomalous and normal
//!   stage1/              the Stage-1 model that the embeddings came from: config.toml, meta.json, checkpoint/best.bpk,
//!                        filling.json
//! ```
//!
//! Paths in it are relative to the run, so that a run can be moved. It is begun with the training, so that a run that
//! goes on finds the data that it began with, and finished at the end, when the files are there.

pub(super) mod data;
pub mod drift;
mod schema;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::data::{DataDigest, digest_of};
use self::drift::Profile;
pub use self::schema::{Columns, Reads, RelationFacts, Schema, changed};
use super::RunDir;
use super::ensemble::ENSEMBLE_FILE;
use super::evaluation::EVALUATION_FILE;
use super::known_labels::KNOWN_LABELS_FILE;
use crate::data::tables::{IMPORT_BINARY, IMPORT_FILE, fit_of};
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;
use crate::graph::{Dataset, FILLING_FILE, Features, Filling, TimeWindow, date, digest, open_embeddings};

/// The file.
pub const MODEL_FILE: &str = "model.json";
/// What features and scores of the training looked like.
pub const PROFILE_FILE: &str = "profile.json";
/// Directory in a run that holds the Stage-1 model whose embeddings it reads.
pub const STAGE1_DIR: &str = "stage1";
/// Grows when an older program could not read it.
pub const FORMAT: u32 = 1;

const CHANGED: &str = "the file was changed after the run wrote it; restore it or train again";
const OUTPUT_CHANGED: &str =
    "the file was changed after the run wrote it; restore it, train again, or compute it into another directory";

/// `model.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// Version of this file.
    pub format: u32,
    /// Program and version that trained.
    pub program: String,
    /// `stage1`, `stage2`, `stage3`, `classify` or `ensemble`.
    pub task: String,
    /// Whether the training came to its end.
    pub finished: bool,
    /// Of data that are split by time, the window that was looked at: it knows nothing from the end of validation on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<TimeWindow>,
    /// The run whose weights it began with, if it did not begin anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Whether it was grown anew on training and validation labels: then it has learned both, and threshold and
    /// calibration are those of the trees before, which had not seen the validation labels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refit: bool,
    /// The data that it was trained on.
    pub data: DataDigest,
    /// What data that it is used on have to agree in.
    pub schema: Schema,
    /// Files of the model by their paths in the run; none before the end.
    pub files: BTreeMap<String, FileFacts>,
    /// Arrays that the run wrote for others to read, which may be removed.
    #[serde(default)]
    pub outputs: BTreeMap<String, FileFacts>,
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    pub bytes: u64,
    /// As [`digest::in_pieces`] gives it.
    pub sha256: String,
}

/// The data of a training: what its run remembers of them.
#[derive(Debug)]
pub struct Origin {
    task: &'static str,
    /// Where they were read from.
    data: PathBuf,
    digest: DataDigest,
    schema: Schema,
    /// Of data that are split by time.
    times: Option<TimeWindow>,
    /// The Stage-1 run whose embeddings are read.
    stage1: Option<PathBuf>,
    /// As [`Bundle::refit`].
    refit: bool,
}

impl Origin {
    /// Of the data at `data`; `embeddings` is where the input comes from instead of the features: a `.npy` file, or a
    /// Stage-1 run, whose model the run keeps.
    ///
    /// # Errors
    /// Weights or times of edges that cannot be read.
    pub fn of(task: &'static str, data: &Path, dataset: &Dataset, embeddings: Option<&Path>) -> Result<Self> {
        // The run of embeddings that are named by their file.
        let run_of = |path: &Path| {
            let is_run = |path: &Path| path.join("meta.json").is_file();
            [Some(path), path.parent()].into_iter().flatten().find(|path| is_run(path)).map(Path::to_owned)
        };
        Ok(Self {
            task,
            data: data.to_owned(),
            digest: DataDigest::of(dataset)?,
            schema: Schema::of(dataset),
            times: dataset.split.as_ref().and_then(|split| split.times()),
            stage1: embeddings.and_then(run_of),
            refit: false,
        })
    }

    /// What the data are.
    pub fn digest(&self) -> &DataDigest {
        &self.digest
    }

    /// The same of a model that learns the validation labels, too, where `refit` says so.
    pub fn with_refit(self, refit: bool) -> Self {
        Self { refit, ..self }
    }

    /// Refuses to begin a training with the weights of the run `from` where they do not fit, or know too much.
    ///
    /// # Errors
    /// [`Error::Usage`] for a run of another task and one that is not finished. [`Error::Format`] for one of other
    /// columns, node types, relations or scales; and, of a model that learned from labels, for one that may know those
    /// that choose and test this one: its data have to end before the validation part of these begins, or be these,
    /// divided as they are now (`same_division`).
    pub fn check_from(&self, from: &RunDir, same_division: bool) -> Result<()> {
        let run = from.path().display();
        let Some(begun) = Bundle::open(from.path())?.filter(|bundle| bundle.finished) else {
            return Err(Error::Usage {
                argument: format!("--from {run}"),
                expected: "a finished run".into(),
                found: format!("one whose {MODEL_FILE} does not say so"),
                help: "train without --from, or begin with a run of this version that came to its end".into(),
            });
        };
        if begun.task != self.task {
            return Err(Error::Usage {
                argument: format!("--from {run}"),
                expected: format!("a run of {}, with whose weights the new one begins", self.task),
                found: format!("a run of {}", begun.task),
                help: match (self.task, begun.task.as_str()) {
                    ("stage2", "stage1") => {
                        format!("train without --from; --set data.embeddings={run} reads the embeddings of that run")
                    }
                    _ => format!("train without --from, or begin with a run of {}", self.task),
                },
            });
        }
        begun.schema.check(&self.schema, Reads::Features, &self.data, &from.output(MODEL_FILE))?;
        same_fit(from.path(), &self.data)?;
        let end = begun.times.map(|times| times.known_until());
        let is_earlier = || end.zip(self.times).is_some_and(|(end, times)| end <= times.validation[0]);
        let same_labels = || same_division && begun.data.labels == self.digest.labels;
        if self.task != "stage1" && !is_earlier() && !same_labels() {
            return Err(Error::format(
                from.path(),
                "labels",
                "none that choose or test the new model",
                match end {
                    Some(end) => format!("a model that knows all labels up to {}", date(end)),
                    None => "a model that may have learned from some of them".into(),
                },
                "split by time with a validation part that begins later ([split] of the description), or train without --from",
            ));
        }
        Ok(())
    }

    /// Writes what is known when a training begins or goes on: everything but the files of the model. `from` is the run
    /// whose weights a new one begins with.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn begin(&self, run: &RunDir, from: Option<&Path>) -> Result<()> {
        for name in [IMPORT_FILE, IMPORT_BINARY] {
            copy(&self.data.join(name), &run.output(name))?;
        }
        if let Some(stage1) = &self.stage1 {
            for name in ["config.toml", "meta.json", "checkpoint/best.bpk", FILLING_FILE] {
                copy(&stage1.join(name), &run.output(STAGE1_DIR).join(name))?;
            }
        }
        let from = match from {
            Some(from) => Some(from.display().to_string()),
            None => Bundle::read(run.path())?.and_then(|begun| begun.from),
        };
        self.bundle(from).write(run)
    }

    /// Refuses to go on with a run that began with other data. A run of an earlier version knows nothing of them.
    ///
    /// # Errors
    /// [`Error::Format`] for other columns, node types or relations, and for data that changed since.
    pub fn check_resumed(&self, run: &RunDir) -> Result<()> {
        let Some(begun) = Bundle::read(run.path())? else { return Ok(()) };
        begun.schema.check(&self.schema, Reads::Features, &self.data, &run.output(MODEL_FILE))?;
        let changed = changed(&begun.data, &self.digest);
        if changed.is_empty() {
            return Ok(());
        }
        let help = "a run goes on with the data that it began with; start a new run for others";
        let found = format!("other {}", changed.join(" and "));
        Err(Error::format(&self.data, "data", format!("those that {} began with", run.path().display()), found, help))
    }

    /// Writes what is known at the end, when all files of the model are there; `digests` are those of files that were
    /// hashed while they were written.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(&self, run: &RunDir, profile: &Profile, digests: &[(&str, String)]) -> Result<()> {
        atomic_write(run.output(PROFILE_FILE), |file| Ok(serde_json::to_writer(file, profile)?))?;
        let (mut files, mut outputs) = (BTreeMap::new(), BTreeMap::new());
        for (path, bytes) in run.files()? {
            let relative = path.strip_prefix(run.path()).unwrap_or(&path);
            let name = relative.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
            let of = if makes_the_model(&name) { &mut files } else { &mut outputs };
            if makes_the_model(&name) || name.ends_with(".npy") && !name.contains('/') {
                let known = digests.iter().find(|(of, _)| *of == name);
                let sha256 = known.map_or_else(|| digest::in_pieces(&path), |(_, digest)| Ok(digest.clone()))?;
                of.insert(name, FileFacts { bytes, sha256 });
            }
        }
        let from = Bundle::read(run.path())?.and_then(|begun| begun.from);
        Bundle { finished: true, files, outputs, ..self.bundle(from) }.write(run)
    }

    /// Of a training that is not at its end.
    fn bundle(&self, from: Option<String>) -> Bundle {
        Bundle {
            format: FORMAT,
            program: concat!("graphsieve ", env!("CARGO_PKG_VERSION")).into(),
            task: self.task.into(),
            finished: false,
            times: self.times,
            from,
            refit: self.refit,
            data: self.digest.clone(),
            schema: self.schema.clone(),
            files: BTreeMap::new(),
            outputs: BTreeMap::new(),
        }
    }
}

impl FileFacts {
    /// Refuses a file that was changed or cut, and says what helps.
    fn check(&self, file: &Path, help: &str) -> Result<()> {
        let found = fs::metadata(file).map_err(|source| Error::io(file, "read", source))?.len();
        if found != self.bytes {
            let expected = format!("{} bytes, as {MODEL_FILE} says", self.bytes);
            return Err(Error::format(file, "length", expected, format!("{found} bytes"), help));
        }
        // Earlier versions wrote those of whole files.
        let found = if self.sha256.contains('-') { digest::in_pieces(file)? } else { digest::of_file(file)? };
        if found != self.sha256 {
            let expected = format!("{}, as {MODEL_FILE} says", self.sha256);
            return Err(Error::format(file, "SHA-256", expected, found, help));
        }
        Ok(())
    }
}

/// Refuses an array in a run that is no longer what the run wrote; all of it is read for that. One from elsewhere, be
/// it beside another `model.json`, or of a run of an earlier version, is taken as it is.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for an array that was changed or cut.
pub fn check_output(file: &Path) -> Result<()> {
    let (Some(run), Some(name)) = (file.parent(), file.file_name().and_then(OsStr::to_str)) else { return Ok(()) };
    let Ok(Some(bundle)) = Bundle::read(run) else { return Ok(()) };
    bundle.outputs.get(name).map_or(Ok(()), |known| known.check(file, OUTPUT_CHANGED))
}

/// The embeddings in a file, see [`open_embeddings`]; those in a run are what the run wrote.
///
/// # Errors
/// As for [`check_output`] and [`open_embeddings`].
pub fn open_output(file: &Path, expected_rows: Option<usize>) -> Result<Features> {
    check_output(file)?;
    open_embeddings(file, expected_rows)
}

/// Whether scores depend on a file of a run. Its configuration may be edited: data move.
fn makes_the_model(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    let is_checkpoint = name.starts_with("checkpoint/") || name.contains("/checkpoint/");
    [IMPORT_FILE, IMPORT_BINARY, PROFILE_FILE, EVALUATION_FILE, ENSEMBLE_FILE, "calibration.json"].contains(&name)
        || [KNOWN_LABELS_FILE, FILLING_FILE].contains(&file)
        || is_checkpoint && ["best.bpk", "best.trees"].contains(&file)
}

impl Bundle {
    /// What a run says of its model; none of a run of an earlier version. The files of a finished run are those that it
    /// wrote.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for another version, and for a file that was changed, cut or removed.
    pub fn open(run: &Path) -> Result<Option<Self>> {
        let Some(bundle) = Self::read(run)? else { return Ok(None) };
        for (name, known) in &bundle.files {
            // What lies elsewhere is no file of the run, and may be one without an end.
            if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
                let file = run.join(MODEL_FILE);
                return Err(Error::format(file, "files", "paths within the run", format!("{name:?}"), CHANGED));
            }
            known.check(&run.join(name), CHANGED)?;
        }
        Ok(Some(bundle))
    }

    /// Whether a training came to its end. A run of an earlier version says so with its evaluation alone.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for another version.
    pub fn is_finished(run: &Path) -> Result<bool> {
        Ok(run.join(EVALUATION_FILE).is_file() && Self::read(run)?.is_none_or(|bundle| bundle.finished))
    }

    /// `model.json` alone.
    fn read(run: &Path) -> Result<Option<Self>> {
        let file = run.join(MODEL_FILE);
        if !file.is_file() {
            return Ok(None);
        }
        let content: Value = read_json(&file, "what a run says of its model", CHANGED)?;
        let found = content.get("format").map_or("none".into(), Value::to_string);
        if found != FORMAT.to_string() {
            let help = "use the version of the program that trained it, or train again with this one";
            let program = content.get("program").and_then(Value::as_str).unwrap_or("an unknown program");
            let found = format!("{found}, of {program}");
            return Err(Error::format(file, "format", format!("version {FORMAT}"), found, help));
        }
        serde_json::from_value(content).map(Some).map_err(|fault| {
            Error::format(&file, "content", "what a run says of its model", fault.to_string(), CHANGED)
        })
    }

    /// Refuses data, read from `data`, that the model of `run` cannot be used on, and says what should be known of
    /// those that it can be used on.
    ///
    /// # Errors
    /// As for [`Schema::check`].
    pub fn check(&self, run: &Path, dataset: &Dataset, data: &Path, reads: Reads) -> Result<()> {
        let notes = self.schema.check(&Schema::of(dataset), reads, data, &run.join(MODEL_FILE))?;
        notes.iter().for_each(|note| log::info!("{note}"));
        if reads == Reads::Graph {
            return Ok(());
        }
        for run in [run, &run.join(STAGE1_DIR)] {
            let note = Filling::of_run(run)?.and_then(|filling| dataset.filling_note(&filling));
            note.iter().for_each(|note| log::info!("{}: {note}", data.display()));
        }
        same_fit(run, data)
    }

    /// Which parts of the data are no longer those of the training: `graph`, `features`, `labels`.
    ///
    /// # Errors
    /// Weights or times of edges that cannot be read.
    pub fn changes(&self, dataset: &Dataset) -> Result<Vec<&'static str>> {
        Ok(changed(&self.data, &DataDigest::of(dataset)?))
    }

    /// What features and scores of the training looked like, of a finished run.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file that was changed.
    pub fn profile(&self, run: &Path) -> Result<Option<Profile>> {
        let file = run.join(PROFILE_FILE);
        if !self.files.contains_key(PROFILE_FILE) {
            return Ok(None);
        }
        let profile: Profile = read_json(&file, "the profile of a training", CHANGED)?;
        match profile.is_whole() {
            true => Ok(Some(profile)),
            false => {
                Err(Error::format(&file, "profile", "a count for each range, in ascending order", "others", CHANGED))
            }
        }
    }

    fn write(&self, run: &RunDir) -> Result<()> {
        atomic_write(run.output(MODEL_FILE), |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })
    }
}

/// Refuses imported tables whose scales, categories and texts were fitted on themselves and not taken from the model:
/// the same value then has another feature.
fn same_fit(run: &Path, data: &Path) -> Result<()> {
    let [known, found] = [run, data].map(fit_of);
    let (Some(known), Some(found)) = (known?, found?) else { return Ok(()) };
    if known == found {
        return Ok(());
    }
    Err(Error::format(
        data.join(IMPORT_FILE),
        "fitted",
        format!("the scales, categories and texts of {}", run.display()),
        "others, fitted to these tables",
        format!(
            "the same value would have another feature; import them again: graphsieve import tables GRAPH.toml --with {} --out DIR",
            run.display()
        ),
    ))
}

/// Copies a file that is there, and not there yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_file() || to.is_file() {
        return Ok(());
    }
    let bytes = fs::read(from).map_err(|source| Error::io(from, "read", source))?;
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(|source| Error::io(parent, "create", source))?;
    }
    atomic_write(to, |file| file.write_all(&bytes))
}
