//! The record of a pipeline: its configuration, and the runs of its stages as soon as they are there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::RunDir;
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;

/// The runs of the stages by the names of the stages: those of their directories.
pub(super) const STAGES: &str = "stages.json";

/// A stage of a pipeline, or a candidate of a tournament, that has a run of its own.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The run of the pipeline.
    directory: PathBuf,
    /// Where the runs of its stages are.
    runs: PathBuf,
    /// Name of the stage.
    stage: String,
}

impl Pipeline {
    /// The stage `stage` of the pipeline whose run is `run`.
    pub fn stage(run: &RunDir, stage: &str) -> Self {
        let directory = run.path().to_path_buf();
        let runs = directory.parent().unwrap_or(Path::new(".")).to_path_buf();
        Self { directory, runs, stage: stage.into() }
    }

    /// The candidate, or one of its trainings, `name` of the tournament whose run is `run`; the runs of candidates lie
    /// in it, in `runs`.
    pub fn candidate(run: &RunDir, runs: &Path, name: &str) -> Self {
        Self { directory: run.path().to_path_buf(), runs: runs.to_path_buf(), stage: name.into() }
    }

    /// The run that the stage is a part of.
    pub fn run(&self) -> &Path {
        &self.directory
    }

    /// The run of the stage, if an earlier process began one.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub fn begun(&self) -> Result<Option<PathBuf>> {
        let Some(name) = self.read()?.remove(&self.stage) else { return Ok(None) };
        Ok(Some(self.runs.join(name)))
    }

    /// Writes down that the stage has a run now.
    ///
    /// # Errors
    /// A record that cannot be read or written.
    pub fn record(&self, run: &RunDir) -> Result<()> {
        let mut stages = self.read()?;
        let name = run.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        stages.insert(self.stage.clone(), name);
        atomic_write(self.directory.join(STAGES), |file| Ok(serde_json::to_writer_pretty(file, &stages)?))
    }

    fn read(&self) -> Result<BTreeMap<String, String>> {
        let file = self.directory.join(STAGES);
        if !file.exists() {
            return Ok(BTreeMap::new());
        }
        let help = "the file was changed after the run wrote it; start a new run";
        read_json(&file, "the runs of a pipeline by stage", help)
    }
}
