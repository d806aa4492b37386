//! The directory of a run: configuration, provenance, metrics by epoch, checkpoints and outputs.
//!
//! ```text
//! artifacts/runs/20260131-093000-stage2/
//!   config.toml       the resolved configuration, runs as it is
//!   meta.json         version, git commit, device, seed, command line, start
//!   metrics.jsonl     one object per epoch
//!   checkpoint/best   checkpoint/last
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indicatif::DecimalBytes;

use super::metrics_log::{History, MetricsLog};
use super::provenance::{Meta, UtcTime};
use crate::error::{Error, Result};
use crate::graph::formats::{atomic_write, remove_leftovers, write_new};
use crate::graph::json::read_json;
use crate::graph::write_directory;

const CONFIG: &str = "config.toml";
const META: &str = "meta.json";
const METRICS: &str = "metrics.jsonl";
const CHECKPOINT: &str = "checkpoint";

/// A run directory that exists.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
    meta: Meta,
}

impl RunDir {
    /// Creates `<runs>/<time>-<name>/` with `config.toml` (`config`, the resolved configuration) and `meta.json`.
    ///
    /// It is there with both or not at all. A run that exists is never touched: of two runs in the same second the
    /// second gets `-2` behind its name.
    ///
    /// # Errors
    /// [`Error::Usage`] for a name that is not letters, digits, `.`, `-` and `_`; [`Error::Io`] when the directory or
    /// a file cannot be written.
    pub fn create(runs: &Path, name: &str, config: &str, meta: Meta) -> Result<Self> {
        check_name(name)?;
        fs::create_dir_all(runs).map_err(|source| Error::io(runs, "create", source))?;
        let stem = format!("{}-{name}", UtcTime::now().compact());
        let path = create_unique(runs, &stem, |building| {
            write_new(&building.join(CONFIG), |file| file.write_all(config.as_bytes()))?;
            write_new(&building.join(META), |file| write_meta(file, &meta))
        })?;
        Ok(Self { path, meta })
    }

    /// Opens the directory of an earlier run.
    ///
    /// # Errors
    /// [`Error::Usage`] when `path` is no run directory, [`Error::Format`] when its `meta.json` is missing or damaged,
    /// [`Error::Io`] when it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        const HELP: &str = "give the directory of a run, e.g. artifacts/runs/<time>-<name>";
        if !path.join(CONFIG).is_file() {
            let found = match (path.is_dir(), path.exists()) {
                (true, _) => "a directory without config.toml",
                (false, true) => "a file",
                (false, false) => "nothing",
            };
            let (argument, expected) = (path.display().to_string(), "the directory of a run".into());
            return Err(Error::Usage { argument, expected, found: found.into(), help: HELP.into() });
        }
        let file = path.join(META);
        if !file.is_file() {
            return Err(Error::format(path, META, "a file that every run has", "no such file", HELP));
        }
        let help = "the file was changed after the run wrote it; restore it or start a new run";
        let meta = read_json(&file, "the provenance of a run", help)?;
        Ok(Self { path: path.to_owned(), meta })
    }

    /// Opens the run to go on with, and removes what a process that was killed left in it under temporary names.
    ///
    /// # Errors
    /// As for [`RunDir::open`].
    pub fn resume(path: &Path) -> Result<Self> {
        let run = Self::open(path)?;
        let mut open = vec![path.to_owned()];
        while let Some(directory) = open.pop() {
            remove_leftovers(&directory);
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            open.extend(directories.map(|entry| entry.path()));
        }
        Ok(run)
    }

    /// Notes in `meta.json` that this process goes on with the run, and by which command.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn gone_on_with(self) -> Result<Self> {
        let meta = self.meta.resumed_now();
        atomic_write(self.path.join(META), |file| write_meta(file, &meta))?;
        Ok(Self { meta, ..self })
    }

    /// Removes the directory of a run that ended before anything was added to it.
    pub fn remove_if_empty(&self) {
        let names: Vec<_> = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|of| of.file_name()).collect();
        if names.iter().all(|name| name == CONFIG || name == META) {
            for name in [META, CONFIG] {
                let _ = fs::remove_file(self.path.join(name));
            }
            // What somebody put there meanwhile keeps it.
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the run comes from.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Path of the resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.path.join(CONFIG)
    }

    /// Path of an output of the run, e.g. a plot.
    pub fn output(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Path of the checkpoint with the best validation metric.
    pub fn best_checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT).join("best")
    }

    /// Path of the checkpoint from which the run can go on.
    pub fn last_checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT).join("last")
    }

    /// What has been logged so far.
    ///
    /// # Errors
    /// [`Error::Io`] when the log cannot be read.
    pub fn history(&self) -> Result<History> {
        History::read(&self.path.join(METRICS))
    }

    /// The log of metrics of a run that starts, or that goes on after epoch `resumed` (epochs count from 1; 0 for a new
    /// run): what was logged for later epochs, and a line that was cut short, are removed, so the file becomes that of
    /// an uninterrupted run.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be opened, read or shortened; [`Error::Format`] for a line of an earlier
    /// epoch that is not an object with an `epoch`.
    pub fn metrics_log(&self, resumed: u64) -> Result<MetricsLog> {
        MetricsLog::open(self.path.join(METRICS), resumed)
    }

    /// Every file of the run with its size in bytes, by path; temporary files of other processes are left out.
    ///
    /// # Errors
    /// [`Error::Io`] when a directory cannot be read.
    pub fn files(&self) -> Result<Vec<(PathBuf, u64)>> {
        let mut files = Vec::new();
        let mut open = vec![self.path.clone()];
        while let Some(directory) = open.pop() {
            let failed = |source| Error::io(&directory, "read", source);
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file() && !entry.file_name().as_encoded_bytes().starts_with(b".") {
                    files.push((entry.path(), entry.metadata().map_err(failed)?.len()));
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// What was written where: the directory, then every file with its size, as a text for people.
    ///
    /// # Errors
    /// See [`RunDir::files`].
    pub fn summary(&self) -> Result<String> {
        let files = self.files()?;
        let rows: Vec<(String, String)> = files
            .iter()
            .map(|(path, bytes)| {
                let name = path.strip_prefix(&self.path).unwrap_or(path);
                (name.display().to_string(), DecimalBytes(*bytes).to_string())
            })
            .collect();
        let name_width = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0);
        let size_width = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
        let mut text = format!("{}\n", self.path.display());
        for (name, size) in rows {
            text += &format!("  {name:<name_width$}  {size:>size_width$}\n");
        }
        Ok(text)
    }
}

fn write_meta(file: &mut impl Write, meta: &Meta) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *file, meta)?;
    file.write_all(b"\n")
}

fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !name.is_empty() && name.len() <= 100 && name.chars().all(allowed) {
        return Ok(());
    }
    Err(Error::Usage {
        argument: "name of the run".into(),
        expected: "1 to 100 letters, digits, '.', '-' or '_'".into(),
        found: format!("{name:?}"),
        help: "the name becomes a part of the name of the run directory".into(),
    })
}

/// Makes `<runs>/<stem>` with the files that `fill` writes, or `<stem>-2`, `<stem>-3`, … where that exists.
fn create_unique(runs: &Path, stem: &str, fill: impl Fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let mut path = runs.join(stem);
    for copy in 2u64.. {
        match write_directory(&path, |building| fill(building).map(|()| Vec::new())) {
            Err(Error::Exists { .. }) if path.is_dir() => path = runs.join(format!("{stem}-{copy}")),
            outcome => {
                outcome?;
                break;
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_run(runs: &Path) -> RunDir {
        RunDir::create(runs, "stage2", "seed = 42\n", Meta::now("cpu", 42)).unwrap()
    }

    #[test]
    fn a_new_run_can_be_opened_again() {
        let runs = tempfile::tempdir().unwrap();
        let run = new_run(&runs.path().join("artifacts/runs"));
        assert_eq!(fs::read_to_string(run.config()).unwrap(), "seed = 42\n");
        let opened = RunDir::open(run.path()).unwrap();
        assert_eq!((opened.path(), opened.meta()), (run.path(), run.meta()));
        assert_eq!((opened.meta().seed, opened.meta().version.as_str()), (42, env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn runs_of_one_second_get_directories_of_their_own() {
        let runs = tempfile::tempdir().unwrap();
        let one = |building: &Path| write_new(&building.join(CONFIG), |_| Ok(()));
        let names: Vec<PathBuf> =
            (0..3).map(|_| create_unique(runs.path(), "20260131-093000-stage2", one).unwrap()).collect();
        let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["20260131-093000-stage2", "20260131-093000-stage2-2", "20260131-093000-stage2-3"]);
    }

    #[test]
    fn names_that_leave_the_directory_are_usage_errors() {
        let runs = tempfile::tempdir().unwrap();
        for name in ["", "../up", "a b", "stage/2", "ü"] {
            let refused = RunDir::create(runs.path(), name, "", Meta::now("cpu", 42));
            assert!(matches!(refused, Err(Error::Usage { .. })), "{name}");
        }
        assert_eq!(fs::read_dir(runs.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_run_directory_is_a_typed_error() {
        let directory = tempfile::tempdir().unwrap();
        let other = |path: &Path| match RunDir::open(path) {
            Err(Error::Usage { found, .. }) => found,
            other => panic!("{other:?}"),
        };
        let damaged = |path: &Path| match RunDir::open(path) {
            Err(Error::Format { place, .. }) => place,
            other => panic!("{other:?}"),
        };
        assert_eq!(other(&directory.path().join("missing")), "nothing");
        assert_eq!(other(directory.path()), "a directory without config.toml");
        fs::write(directory.path().join(CONFIG), "").unwrap();
        assert_eq!(other(&directory.path().join(CONFIG)), "a file");
        assert_eq!(damaged(directory.path()), "meta.json");
        fs::write(directory.path().join(META), "{\n  \"seed\": -1}").unwrap();
        assert!(damaged(directory.path()).starts_with("line 2"));
    }

    #[test]
    fn the_summary_lists_every_file_with_its_size() {
        let runs = tempfile::tempdir().unwrap();
        let run = new_run(runs.path());
        fs::create_dir_all(run.best_checkpoint()).unwrap();
        fs::write(run.best_checkpoint().join("model"), vec![0; 1500]).unwrap();
        let summary = run.summary().unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(lines[0], run.path().display().to_string());
        assert_eq!(lines[1], "  checkpoint/best/model  1.50 kB");
        assert_eq!(lines[2], "  config.toml               10 B");
        assert!(lines[3].starts_with("  meta.json") && lines.len() == 4, "{summary}");
    }
}
