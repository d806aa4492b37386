//! From a TOML document to a [`RunConfig`]: which keys there are and what each of them accepts.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::{Path, PathBuf};

use super::classify;
use super::document::{self, COMMAND_LINE, Entry, Table, Value};
use super::loader::loader;
use super::reader::{Choice, Reader, quoted_names};
use super::schema::{PipelineConfig, RunConfig, Stage1Config, Stage2Config};
use super::sections::*;
use super::stage3;
use crate::data::synth::Preset;
use crate::error::Result;

const STAGE1: &str = "stage1";
pub(super) const STAGE2: &str = "stage2";

/// Characters of a run's name; leaves room for the time in the name of its directory.
pub(super) const LONGEST_NAME: usize = 100;

/// Keys of a stage that its pipeline decides, and what the user should do instead.
const PIPELINE_DECIDES: &[(&str, &str)] = &[
    ("task", "the section's name is the task"),
    ("name", "set `name` at the top of this file; the stage's name is derived from it"),
    ("seed", "set `seed` at the top of this file; all steps share it"),
    ("data.path", "set `path` in [data] of this file; all steps share it"),
    ("data.embeddings", "stage 2 of a pipeline reads what stage 1 just wrote"),
    ("output", "set it in [output] of this file; all steps share it"),
];

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Task {
    Stage1,
    Stage2,
    Pipeline,
    Classify,
    Stage3,
}

impl Choice for Task {
    const NAMES: &'static [(&'static str, Self)] = &[
        (STAGE1, Task::Stage1),
        (STAGE2, Task::Stage2),
        ("stage3", Task::Stage3),
        ("pipeline", Task::Pipeline),
        ("classify", Task::Classify),
    ];
}

impl RunConfig {
    /// Reads a configuration file and applies `overrides` of the form `section.key=value` in their order.
    ///
    /// # Errors
    /// [`Usage`](crate::error::Error::Usage) if there is no such file or an override is malformed,
    /// [`Io`](crate::error::Error::Io) if the file cannot be read, and [`Config`](crate::error::Error::Config) with line
    /// and key for bad syntax and for a key that is unknown, mistyped or out of range.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        Self::parse(&document::read(path)?, path, overrides)
    }

    /// Like [`RunConfig::load`], from text. `path` is the file that messages name and to which the stage files of a
    /// pipeline are relative.
    ///
    /// # Errors
    /// As for [`RunConfig::load`].
    pub fn parse(text: &str, path: &Path, overrides: &[String]) -> Result<Self> {
        let file = path.display().to_string();
        let mut table = Table::parse(text, &file)?;
        for argument in overrides {
            table.overlay(Table::parse_override(argument)?);
        }
        match task(&table, &file)? {
            Task::Stage1 => stage1(&table, &file, Stage1Config::new("")).map(RunConfig::Stage1),
            Task::Stage2 => stage2(&table, &file, Stage2Config::new("")).map(RunConfig::Stage2),
            Task::Pipeline => pipeline(&table, path).map(RunConfig::Pipeline),
            Task::Stage3 => stage3::read(&table, path).map(RunConfig::Stage3),
            Task::Classify => classify::read(&table, &file).map(RunConfig::Classify),
        }
    }
}

/// The task of a document; its absence is an error because nothing else can be checked without it.
fn task(table: &Table, file: &str) -> Result<Task> {
    let reader = Reader::new(table, file);
    reader.optional_choice("task")?.ok_or_else(|| {
        reader.error("task", quoted_names::<Task>(), "see the first lines of configs/quickstart.toml for an example")
    })
}

/// Reads a Stage-1 document; keys that it lacks take their value from `default`.
fn stage1(table: &Table, file: &str, default: Stage1Config) -> Result<Stage1Config> {
    let reader = Reader::new(table, file);
    reader.optional_choice::<Task>("task")?;
    let config = Stage1Config {
        name: reader.name("name", &default.name, LONGEST_NAME)?,
        seed: reader.seed("seed", default.seed)?,
        data: Stage1Data { path: data_path(&reader, &default.data.path)? },
        model: Stage1Model {
            hidden: reader.integer("model.hidden", default.model.hidden, 1)?,
            out: reader.integer("model.out", default.model.out, 1)?,
        },
        train: train(&reader, default.train)?,
        sampling: sampling(&reader, default.sampling)?,
        temperature: temperature(&reader, default.temperature)?,
        output: output(&reader, default.output)?,
    };
    reader.finish()?;
    Ok(config)
}

/// Reads a Stage-2 document; keys that it lacks take their value from `default`.
pub(super) fn stage2(table: &Table, file: &str, default: Stage2Config) -> Result<Stage2Config> {
    let reader = Reader::new(table, file);
    reader.optional_choice::<Task>("task")?;
    let seed = reader.seed("seed", default.seed)?;
    let config = Stage2Config {
        name: reader.name("name", &default.name, LONGEST_NAME)?,
        seed,
        data: stage2_data(&reader, default.data)?,
        model: stage2_model(&reader, default.model)?,
        train: train(&reader, default.train)?,
        drop_edge: DropEdgeConfig { rate: reader.number("drop_edge.rate", default.drop_edge.rate, 0.0..1.0)? },
        loss: LossConfig {
            lambda_unsup: reader.number("loss.lambda_unsup", default.loss.lambda_unsup, 0.0..)?,
            samples_per_relation: reader.integer("loss.samples_per_relation", default.loss.samples_per_relation, 1)?,
        },
        loader: loader(&reader, default.loader)?,
        split: split(&reader, SplitConfig { seed, ..default.split })?,
        output: output(&reader, default.output)?,
    };
    reader.finish()?;
    Ok(config)
}

/// Reads a pipeline and the stage files that it names.
fn pipeline(table: &Table, path: &Path) -> Result<PipelineConfig> {
    let file = path.display().to_string();
    let reader = Reader::new(table, &file);
    reader.optional_choice::<Task>("task")?;
    let seed = reader.seed("seed", 42)?;
    let name = reader.name("name", "pipeline", LONGEST_NAME - "-stage1".len())?;
    let data = Stage1Data { path: data_path(&reader, Path::new(""))? };
    let synth = PipelineSynth {
        preset: preset(&reader)?,
        scale: reader.number("synth.scale", 1.0, (Excluded(0.0), Unbounded))?,
        seed: reader.seed("synth.seed", seed)?,
    };
    let output = output(&reader, OutputConfig::default())?;
    let sections = [STAGE1, STAGE2].map(|stage| reader.section(stage));
    reader.finish()?;

    let [first, second] = sections;
    let first = StageTable::resolve(STAGE1, first?, path, PIPELINE_DECIDES)?;
    let second = StageTable::resolve(STAGE2, second?, path, PIPELINE_DECIDES)?;
    let stage1 = {
        let default = Stage1Config::new(&data.path);
        let name = format!("{name}-{STAGE1}");
        stage1(&first.table, &first.file, Stage1Config { name, seed, output: output.clone(), ..default })?
    };
    let stage2 = {
        let default = Stage2Config::new(&data.path);
        let name = format!("{name}-{STAGE2}");
        stage2(&second.table, &second.file, Stage2Config { name, seed, output: output.clone(), ..default })?
    };
    Ok(PipelineConfig { name, seed, data, synth, stage1, stage2, output })
}

/// One stage of a pipeline: the file that `config` names with the section's own keys on top.
pub(super) struct StageTable {
    pub table: Table,
    pub file: String,
}

impl StageTable {
    /// `decided` lists the keys that the file at `pipeline` decides.
    pub fn resolve(stage: &str, section: Option<&Table>, pipeline: &Path, decided: &[(&str, &str)]) -> Result<Self> {
        let mut own = section.cloned().unwrap_or_default();
        let (mut table, file) = match own.remove("config") {
            Some(entry) => read_stage_file(stage, &entry, pipeline)?,
            None => (Table::default(), pipeline.display().to_string()),
        };
        for (key, help) in decided {
            if let Some(entry) = own.get(key) {
                let expected = format!("`{key}` to be left to the file that has this section");
                return Err(entry.key_error(expected, *help));
            }
            table.remove(key);
        }
        table.overlay(own);
        Ok(Self { table, file })
    }
}

fn read_stage_file(stage: &str, entry: &Entry, pipeline: &Path) -> Result<(Table, String)> {
    let Value::String(name) = &entry.value else {
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
    let table = Table::parse(&document::read(&path)?, &file)?;
    if task(&table, &file)?.name() != stage {
        let reader = Reader::new(&table, &file);
        let help = format!("{} names this file as its {stage}", pipeline.display());
        return Err(reader.error("task", format!("\"{stage}\""), help));
    }
    Ok((table, file))
}

pub(super) fn data_path(reader: &Reader, default: &Path) -> Result<PathBuf> {
    let help = "set `path` in [data], or --set data.path=DIR; `graphsieve synth` and `graphsieve import` make one";
    reader.required_path("data.path", default, help)
}

fn preset(reader: &Reader) -> Result<Preset> {
    let Some(text) = reader.text("synth.preset")? else { return Ok(Preset::Quickstart) };
    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == text);
    preset.ok_or_else(|| reader.not_one_of("synth.preset", &text, &Preset::ALL.map(Preset::name)))
}

fn stage2_data(reader: &Reader, default: Stage2Data) -> Result<Stage2Data> {
    let data = Stage2Data {
        path: data_path(reader, &default.path)?,
        input: reader.choice("data.input", default.input)?,
        embeddings: reader.text("data.embeddings")?.map(PathBuf::from),
    };
    if data.input == Stage2Input::Features && data.embeddings.is_some() {
        let help = "remove `embeddings`, or set `input = \"embeddings\"`";
        return Err(reader.error("data.embeddings", "no embeddings, since data.input = \"features\"", help));
    }
    Ok(data)
}

fn stage2_model(reader: &Reader, default: Stage2Model) -> Result<Stage2Model> {
    let model = Stage2Model {
        hidden: reader.integer("model.hidden", default.hidden, 1)?,
        out: reader.integer("model.out", default.out, 1)?,
        negative_slope: reader.number("model.negative_slope", default.negative_slope, 0.0..1.0)?,
        heads: reader.integer("model.heads", default.heads, 1)?,
        recompute: reader.flag("model.recompute", default.recompute)?,
    };
    if !model.hidden.is_multiple_of(model.heads) || !model.out.is_multiple_of(model.heads) {
        let expected = format!("a divisor of model.hidden = {} and model.out = {}", model.hidden, model.out);
        return Err(reader.error("model.heads", expected, "every head computes an equal share of the channels"));
    }
    Ok(model)
}

fn train(reader: &Reader, default: TrainConfig) -> Result<TrainConfig> {
    let epochs = reader.integer("train.epochs", default.epochs, 1)?;
    let learning_rate = reader.number("train.learning_rate", default.learning_rate, (Excluded(0.0), Included(1.0)))?;
    let schedule = reader.choice("train.schedule", default.schedule)?;
    let learning_rate_min = match schedule {
        Schedule::Cosine => {
            let lowest = TrainConfig::COSINE_MIN.min(learning_rate);
            reader.number("train.learning_rate_min", lowest, 0.0..=learning_rate)?
        }
        Schedule::Constant => {
            reader.number("train.learning_rate_min", learning_rate, 0.0..)?;
            learning_rate
        }
    };
    let clip_norm = reader.number("train.clip_norm", default.clip_norm.unwrap_or(0.0), 0.0..)?;
    Ok(TrainConfig {
        epochs,
        learning_rate,
        learning_rate_min,
        schedule,
        clip_norm: (clip_norm > 0.0).then_some(clip_norm),
        precision: reader.choice("train.precision", default.precision)?,
        chunk_size: reader.integer_or_zero("train.chunk_size", default.chunk_size)?,
        rows: reader.choice("train.rows", default.rows)?,
        validate_every: reader.integer("train.validate_every", default.validate_every, 1)?,
        checkpoint_every: reader.integer("train.checkpoint_every", default.checkpoint_every, 1)?,
        loss_scale: reader.number("train.loss_scale", default.loss_scale, 1.0..)?,
    })
}

fn sampling(reader: &Reader, default: SamplingConfig) -> Result<SamplingConfig> {
    let default_edges = reader.integer("sampling.default_edges", default.default_edges, 1)?;
    let mut edges = default.edges;
    for stream in reader.names_in("sampling.edges")? {
        edges.entry(stream.to_string()).or_insert(default_edges);
    }
    for (stream, count) in &mut edges {
        *count = reader.integer(&format!("sampling.edges.{stream}"), *count, 1)?;
    }
    Ok(SamplingConfig {
        edges,
        default_edges,
        negatives_per_positive: reader.integer("sampling.negatives_per_positive", default.negatives_per_positive, 1)?,
    })
}

fn temperature(reader: &Reader, default: TemperatureConfig) -> Result<TemperatureConfig> {
    let factor = |key, default| reader.number(key, default, (Excluded(0.0), Unbounded));
    Ok(TemperatureConfig {
        warmup_epochs: reader.integer("temperature.warmup_epochs", default.warmup_epochs, 0)?,
        start: factor("temperature.start", default.start)?,
        peak: factor("temperature.peak", default.peak)?,
        end: factor("temperature.end", default.end)?,
    })
}

pub(super) fn split(reader: &Reader, default: SplitConfig) -> Result<SplitConfig> {
    let share = |key, default| reader.number(key, default, (Excluded(0.0), Excluded(1.0)));
    let split = SplitConfig {
        train: share("split.train", default.train)?,
        validation: share("split.validation", default.validation)?,
        test: share("split.test", default.test)?,
        seed: reader.seed("split.seed", default.seed)?,
    };
    let sum = split.train + split.validation + split.test;
    if (sum - 1.0).abs() > 1e-6 {
        let given = ["split.test", "split.validation", "split.train"].into_iter().find(|key| reader.has(key));
        let expected = format!("split.train + split.validation + split.test = 1 (it is {:.4})", sum);
        return Err(reader.error(given.unwrap_or("split"), expected, "change the three shares together"));
    }
    Ok(split)
}

pub(super) fn output(reader: &Reader, default: OutputConfig) -> Result<OutputConfig> {
    Ok(OutputConfig {
        dir: reader.text("output.dir")?.map_or(default.dir, PathBuf::from),
        plots: reader.flag("output.plots", default.plots)?,
    })
}
