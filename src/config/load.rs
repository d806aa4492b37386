//! From a TOML document to a [`RunConfig`].

use std::path::Path;

use super::auto;
use super::candidates;
use super::classify;
use super::document::{self, Table};
use super::reader::{Document, MAX_NAME};
use super::schema::{PipelineConfig, RunConfig};
use super::stage_file::{STAGE1, STAGE2, STAGE3, Task, stage_document, task};
use super::stage3::{self, Stage3Config};
use super::stages::{Stage1Config, Stage2Config, stage1, stage2};
use crate::error::Result;

/// Keys of a stage that its pipeline decides, and what the user should do instead.
const PIPELINE_DECIDES: &[(&str, &str)] = &[
    ("task", "the section's name is the task"),
    ("name", "set `name` at the top of this file; the stage's name is derived from it"),
    ("seed", "set `seed` at the top of this file; all steps share it"),
    ("data.path", "set `path` in [data] of this file; all steps share it"),
    ("data.window", "set `window` in [data] of this file; all steps share it"),
    ("data.embeddings", "stage 2 of a pipeline reads what stage 1 just wrote"),
    ("output", "set it in [output] of this file; all steps share it"),
];

/// The same of its Stage 3.
const PIPELINE_DECIDES_STAGE3: &[(&str, &str)] = &[
    ("split", "set it in [stage2] of this file; both stages learn from the same labels"),
    ("stage2", "set it in [stage2] of this file; the models out of fold have its settings"),
];

impl RunConfig {
    /// Reads a configuration file and applies `overrides` of the form `section.key=value` in their order.
    ///
    /// # Errors
    /// [`Usage`](crate::error::Error::Usage) if there is no such file or an override is malformed,
    /// [`Io`](crate::error::Error::Io) if the file cannot be read, and [`Config`](crate::error::Error::Config) with
    /// line and key for bad syntax and for a key that is unknown, mistyped, out of range, or without effect.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        Self::parse(&document::read(path)?, path, overrides)
    }

    /// Like [`RunConfig::load`], from the file that a run has kept. Keys of the file without effect are let through:
    /// the run was made with them.
    ///
    /// # Errors
    /// As for [`RunConfig::load`].
    pub fn load_kept(path: &Path, overrides: &[String]) -> Result<Self> {
        Self::of_text(&document::read(path)?, path, overrides, false)
    }

    /// Like [`RunConfig::load`], from text. `path` is the file that messages name and to which the stage files of a
    /// pipeline are relative.
    ///
    /// # Errors
    /// As for [`RunConfig::load`].
    pub fn parse(text: &str, path: &Path, overrides: &[String]) -> Result<Self> {
        Self::of_text(text, path, overrides, true)
    }

    fn of_text(text: &str, path: &Path, overrides: &[String], strict: bool) -> Result<Self> {
        let file = path.display().to_string();
        let mut table = Table::parse(text, &file)?;
        for argument in overrides {
            table.overlay(Table::parse_override(argument)?);
        }
        let document = Document { table, file, strict };
        match task(&document)? {
            Task::Stage1 => stage1(&document, Stage1Config::new("")).map(RunConfig::Stage1),
            Task::Stage2 => stage2(&document, Stage2Config::new("")).map(RunConfig::Stage2),
            Task::Pipeline => pipeline(document, path).map(RunConfig::Pipeline),
            Task::Stage3 => stage3::read(document, path).map(RunConfig::Stage3),
            Task::Classify => classify::read(&document).map(RunConfig::Classify),
            Task::Auto => {
                let config = auto::read(&document)?;
                candidates::check_names(&document, &config.auto.candidates)?;
                Ok(RunConfig::Auto(config))
            }
        }
    }
}

/// Reads a pipeline and the stage files that it names.
fn pipeline(mut document: Document, path: &Path) -> Result<PipelineConfig> {
    let [first, second, third] = [STAGE1, STAGE2, STAGE3].map(|stage| document.take_section(stage));
    let (first, second, third) = (first?, second?, third?);
    let mut default = PipelineConfig::new("");
    if let Some(synth) = &mut default.synth {
        synth.seed = document.integer("seed").unwrap_or(default.seed);
    }
    let PipelineConfig { name, seed, data, synth, output, .. } = document.read(&default, &[], &[])?;
    let synth = synth.filter(|_| document.has("synth"));
    let behind = if third.is_some() { "-stage3-stage2" } else { "-stage2" };
    document.check_name(&name, MAX_NAME - behind.len())?;
    document.check_path(&data.path)?;

    let stage = |stage, section| stage_document(stage, section, path, PIPELINE_DECIDES, document.strict);
    let stage1 = {
        let name = format!("{name}-{STAGE1}");
        let mut default = Stage1Config { name, seed, output: output.clone(), ..Stage1Config::new(&data.path) };
        default.data.window = data.window;
        stage1(&stage(STAGE1, first)?, default)?
    };
    let stage2 = {
        let name = format!("{name}-{STAGE2}");
        let mut default = Stage2Config { name, seed, output: output.clone(), ..Stage2Config::new(&data.path) };
        default.data.window = data.window;
        stage2(&stage(STAGE2, second)?, default)?
    };
    let stage3 = match third {
        None => None,
        Some(section) => {
            let decided = [PIPELINE_DECIDES, PIPELINE_DECIDES_STAGE3].concat();
            let document = stage_document(STAGE3, Some(section), path, &decided, document.strict)?;
            let name = format!("{name}-{STAGE3}");
            let mut default = Stage3Config { name, seed, output: output.clone(), ..Stage3Config::new(&data.path) };
            default.data.window = data.window;
            Some(Box::new(stage3::of_pipeline(&document, default, &stage2)?))
        }
    };
    Ok(PipelineConfig { name, seed, data, synth, stage1, stage2, stage3, output })
}
