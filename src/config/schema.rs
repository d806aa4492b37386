//! What can be configured: one struct per task, made of one struct per section (see the `sections` module).
//!
//! `new` gives a stage's defaults. Unless a field says otherwise they are those of the published detector (GNN-EADD).
//! `configs/README.md` is the same reference for readers of TOML.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::auto::AutoConfig;
use super::classify::ClassifyConfig;
use super::ranges::seed;
use super::sections::*;
use super::stage3::Stage3Config;
use super::stages::{Stage1Config, Stage2Config};
use super::synth::{PipelineSynth, Preset};

/// One run of `graphsieve train`, chosen by the top-level key `task`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "task", rename_all = "lowercase")]
pub enum RunConfig {
    /// `task = "stage1"`: the graph auto-encoder, without labels.
    Stage1(Stage1Config),
    /// `task = "stage2"`: the graph attention classifier, on a few labels.
    Stage2(Stage2Config),
    /// `task = "pipeline"`: a synthetic marketplace, Stage 1 and Stage 2 in one go.
    Pipeline(PipelineConfig),
    /// `task = "stage3"`: trees on features of nodes, of their surroundings and of both stages.
    Stage3(Stage3Config),
    /// `task = "classify"`: one class for every node.
    Classify(ClassifyConfig),
    /// `task = "auto"`: candidates of all kinds, of which one becomes the model.
    Auto(AutoConfig),
}

/// What the configurations of all tasks have alike.
macro_rules! of_any {
    ($run:expr, $config:ident => $value:expr) => {
        match $run {
            RunConfig::Stage1($config) => $value,
            RunConfig::Stage2($config) => $value,
            RunConfig::Pipeline($config) => $value,
            RunConfig::Stage3($config) => $value,
            RunConfig::Classify($config) => $value,
            RunConfig::Auto($config) => $value,
        }
    };
}

impl RunConfig {
    /// The name of the run, part of its directory's name.
    pub fn name(&self) -> &str {
        of_any!(self, config => &config.name)
    }

    /// Renames the run.
    pub fn set_name(&mut self, name: String) {
        match self {
            RunConfig::Stage1(config) => config.name = name,
            RunConfig::Stage2(config) => config.name = name,
            RunConfig::Classify(config) => config.name = name,
            RunConfig::Auto(config) => config.name = name,
            RunConfig::Stage3(config) => {
                if let Some(stage2) = &mut config.stage2 {
                    stage2.name = format!("{name}-stage2");
                }
                config.name = name;
            }
            RunConfig::Pipeline(config) => {
                config.stage1.name = format!("{name}-stage1");
                config.stage2.name = format!("{name}-stage2");
                if let Some(stage3) = &mut config.stage3 {
                    stage3.name = format!("{name}-stage3");
                    if let Some(stage2) = &mut stage3.stage2 {
                        stage2.name = format!("{name}-stage3-stage2");
                    }
                }
                config.name = name;
            }
        }
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        of_any!(self, config => config.seed)
    }

    /// The data directory that the run reads.
    pub fn data_path(&self) -> &Path {
        of_any!(self, config => &config.data.path)
    }

    /// The window of a split by time that the run looks at, counted from 1.
    pub fn window(&self) -> usize {
        of_any!(self, config => config.data.window)
    }

    /// Reads the data from another place.
    pub fn set_data_path(&mut self, path: PathBuf) {
        of_any!(self, config => config.data.path = path);
    }

    /// Looks at another window of a split by time, counted from 1.
    pub fn set_window(&mut self, window: usize) {
        of_any!(self, config => config.data.window = window);
        if let RunConfig::Stage3(Stage3Config { stage2: Some(stage2), .. }) = self {
            stage2.data.window = window;
        }
        if let RunConfig::Pipeline(config) = self {
            (config.stage1.data.window, config.stage2.data.window) = (window, window);
            if let Some(stage3) = &mut config.stage3 {
                stage3.data.window = window;
                if let Some(stage2) = &mut stage3.stage2 {
                    stage2.data.window = window;
                }
            }
        }
    }

    /// Where the run reads embeddings of Stage 1, if its settings name a place.
    pub fn embeddings_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            RunConfig::Stage2(config) => config.data.embeddings.as_mut(),
            RunConfig::Stage3(config) => config.data.embeddings.as_mut(),
            _ => None,
        }
    }

    /// Where and what the run writes.
    pub fn output(&self) -> &OutputConfig {
        of_any!(self, config => &config.output)
    }

    /// To be changed.
    pub fn output_mut(&mut self) -> &mut OutputConfig {
        of_any!(self, config => &mut config.output)
    }

    /// The file with what a finished run says of all nodes: scores, of Stage 1 embeddings, of a tournament those of an
    /// ensemble.
    pub fn output_file(&self) -> Option<&'static str> {
        match self {
            RunConfig::Stage1(_) => Some(EMBEDDINGS_FILE),
            RunConfig::Stage2(_) => Some(STAGE2_SCORES_FILE),
            RunConfig::Stage3(_) => Some(STAGE3_SCORES_FILE),
            RunConfig::Classify(_) => Some(PROBABILITIES_FILE),
            RunConfig::Auto(_) => Some(ENSEMBLE_SCORES_FILE),
            RunConfig::Pipeline(_) => None,
        }
    }
}

/// A synthetic marketplace, or data that are there, then the stages on them, each on what the one before learned.
///
/// The pipeline decides what has to agree between the stages: both take its seed, data directory and output, and
/// Stage 2 starts from the embeddings of the pipeline's own Stage 1 ([`Stage2Data::embeddings`] is `None`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PipelineConfig {
    /// Part of the run directories' names; the stages are called `<name>-stage1` and so on. Default
    /// `pipeline`.
    pub name: String,
    /// Seed of every random choice of all three steps, 0 to 2^63 - 1. Default 42.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
    /// `[data]`: where the synthetic marketplace is, or will be.
    pub data: Stage1Data,
    /// `[synth]`: the marketplace that is made where there are no data; without the section none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synth: Option<PipelineSynth>,
    /// `[stage1]`: Stage 1 as it will run.
    pub stage1: Stage1Config,
    /// `[stage2]`: Stage 2 as it will run.
    pub stage2: Stage2Config,
    /// `[stage3]`: Stage 3 as it will run, where there is the section: on the embeddings of the pipeline's own Stage 1,
    /// with its Stage 2 out of fold and the same split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage3: Option<Box<Stage3Config>>,
    /// `[output]`
    pub output: OutputConfig,
}

impl PipelineConfig {
    /// The quickstart marketplace in the data directory `data`, and the published settings of both stages.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let path = data.into();
        Self {
            name: "pipeline".into(),
            seed: 42,
            synth: Some(PipelineSynth { preset: Preset::Quickstart, scale: 1.0, seed: 42 }),
            stage1: Stage1Config::new(&path),
            stage2: Stage2Config::new(&path),
            stage3: None,
            data: Stage1Data { path, window: 1 },
            output: OutputConfig::default(),
        }
    }
}
