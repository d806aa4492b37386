//! From a TOML document to a [`RunConfig`].

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::auto;
use super::classify;
use super::document::{self, COMMAND_LINE, Entry, Table, Value};
use super::loader::{Draw, LoaderMode};
use super::reader::{Document, MAX_NAME, Unread};
use super::schema::{PipelineConfig, RunConfig, Stage1Config, Stage2Config};
use super::sections::OwnTransform;
use super::stage3::{self, Stage3Config};
use crate::error::Result;

const STAGE1: &str = "stage1";
pub(super) const STAGE2: &str = "stage2";
const STAGE3: &str = "stage3";

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

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Task {
    Stage1,
    Stage2,
    Stage3,
    Pipeline,
    Classify,
    Auto,
}

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
            Task::Auto => auto::read(&document).map(RunConfig::Auto),
        }
    }
}

/// The task of a document; its absence is an error because nothing else can be checked without it.
fn task(document: &Document) -> Result<Task> {
    document.choice("task")?.ok_or_else(|| {
        let expected = "\"stage1\" or \"stage2\" or \"stage3\" or \"pipeline\" or \"classify\" or \"auto\"";
        document.error("task", expected, "see the first lines of configs/quickstart.toml for an example")
    })
}

/// Reads a Stage-1 document; keys that it lacks take their value from `default`.
fn stage1(document: &Document, mut default: Stage1Config) -> Result<Stage1Config> {
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    if !document.strict && !document.has("split") {
        // A run that was made before there was this section held nothing out.
        default.split.held_out = 0.0;
    }
    let mut config = document.read(&default, &[], &[])?;
    document.check_name(&config.name, MAX_NAME)?;
    document.check_path(&config.data.path)?;
    config.train.resolve(document)?;
    config.loader.check(document, default.loader.fanouts.len())?;
    if config.loader.draw == Draw::Weighted {
        let expected =
            "\"uniform\" or \"latest\": draws by weight do not estimate the sums over all neighbours of Stage 1";
        let help = "leave it out; with model.edge_weights = true edges count by their weight whichever are drawn";
        return Err(document.error("loader.draw", expected, help));
    }
    let nothing_held_out = Unread {
        when: config.split.held_out == 0.0,
        keys: &[("split.seed", "the seed of the choice of held-out edges")],
        since: "split.held_out = 0 holds none out",
        help: "set split.held_out above 0, or remove the key",
    };
    let unread = config.loader.unread().into_iter().chain(config.train.unread(config.loader.mode));
    let unread = unread.chain([nothing_held_out]);
    document.check_read(&config, &default, &unread.collect::<Vec<_>>())?;
    Ok(config)
}

/// Reads a Stage-2 document; keys that it lacks take their value from `default`.
pub(super) fn stage2(document: &Document, mut default: Stage2Config) -> Result<Stage2Config> {
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    if !document.strict && !document.has("model.own") {
        // A run that was made before there was this key had none.
        default.model.own = OwnTransform::Never;
    }
    let mut config = document.read(&default, &["data.embeddings"], &[])?;
    document.check_name(&config.name, MAX_NAME)?;
    config.data.check(document)?;
    config.model.check(document)?;
    config.train.resolve(document)?;
    config.loader.check(document, default.loader.fanouts.len())?;
    config.split.check(document)?;
    let drop_edge = Unread {
        when: config.loader.mode == LoaderMode::Sampled && !config.loader.fanouts.contains(&0),
        keys: &[("drop_edge.rate", "the share of the edges that training ignores")],
        since: "fanouts above 0 thin out the edges in its place",
        help: "set a number of loader.fanouts to 0, or loader.mode to \"full\" or \"auto\", or remove the key",
    };
    let smoothness = Unread {
        when: config.loss.lambda_unsup == 0.0,
        keys: &[("loss.samples_per_relation", "how many edges the unsupervised term samples")],
        since: "loss.lambda_unsup = 0 leaves this term out",
        help: "set loss.lambda_unsup above 0, or remove the key",
    };
    let labels = Unread {
        when: !config.model.labels,
        keys: &[("model.label_rate", "the share of the training labels that an epoch shows")],
        since: "model.labels = false shows none",
        help: "set model.labels = true, or remove the key",
    };
    let of_stage = [drop_edge, smoothness, labels, config.model.edges().unread()];
    let unread = config.loader.unread().into_iter().chain(config.train.unread(config.loader.mode)).chain(of_stage);
    let unread = unread.chain(config.split.unread());
    document.check_read(&config, &default, &unread.collect::<Vec<_>>())?;
    Ok(config)
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

/// One stage of a larger task: the file that `config` names with the section's own keys on top. `decided` lists the
/// keys that the file at `path` decides.
pub(super) fn stage_document(
    stage: &str,
    section: Option<Table>,
    path: &Path,
    decided: &[(&str, &str)],
    strict: bool,
) -> Result<Document> {
    let mut own = section.unwrap_or_default();
    let mut document = match own.remove("config") {
        Some(entry) => read_stage_file(stage, &entry, path, strict)?,
        None => Document { table: Table::default(), file: path.display().to_string(), strict },
    };
    for (key, help) in decided {
        if let Some(entry) = own.get(key) {
            let expected = format!("`{key}` to be left to the file that has this section");
            return Err(entry.key_error(expected, *help));
        }
        document.table.remove(key);
    }
    document.table.overlay(own);
    Ok(document)
}

fn read_stage_file(stage: &str, entry: &Entry, pipeline: &Path, strict: bool) -> Result<Document> {
    let Value::Leaf(toml::Value::String(name)) = &entry.value else {
        return Err(entry.error("a path in quotes", format!("for example config = \"{stage}.toml\"")));
    };
    // A path in the file is relative to the file, a path on the command line to the working directory.
    let base = if entry.origin == COMMAND_LINE { None } else { pipeline.parent() };
    let path = base.map_or_else(|| PathBuf::from(name), |base| base.join(name));
    if !path.is_file() {
        let expected = format!("the file of a {stage} run");
        return Err(entry.error(expected, format!("there is no file {}", path.display())));
    }
    let file = path.display().to_string();
    let document = Document { table: Table::parse(&document::read(&path)?, &file)?, file, strict };
    task(&document)?;
    match document.table.get("task").map(|entry| entry.value.plain()) {
        Some(toml::Value::String(task)) if task == stage => Ok(document),
        _ => {
            let help = format!("{} names this file as its {stage}", pipeline.display());
            Err(document.error("task", format!("\"{stage}\""), help))
        }
    }
}
