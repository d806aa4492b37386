//! Typed configuration of a run: TOML in two levels, overrides from the command line, errors with line and key.
//!
//! [`RunConfig::load`] reads a file, [`RunConfig::to_toml`] writes the resolved settings back. A document is parsed
//! once into a tree that knows the line of every entry and laid over the defaults of its task, which know every key; a
//! field states its range. Unknown keys are refused with the nearest known one, keys that nothing reads with what reads
//! them.
//!
//! A pipeline stays at two levels: its `[stage1]` and `[stage2]` name a stage's file and take any key of such a file
//! under its dotted name.
//!
//! ```toml
//! task = "pipeline"
//!
//! [data]
//! path = "artifacts/data/quickstart"
//!
//! [stage1]
//! config = "stage1.toml"   # relative to this file
//! train.epochs = 60        # instead of [train] epochs in that file
//! ```

mod auto;
mod candidates;
mod classify;
mod document;
mod load;
mod loader;
mod neighbourhood;
mod ranges;
mod reader;
mod schema;
mod sections;
mod stage3;
mod stage_file;
mod stages;
mod synth;
mod write;

pub use auto::{AutoConfig, AutoSettings, Prefer};
pub use candidates::{Candidate, DataKind, Suits, Training};
pub use classify::{
    Best, ClassifyAttention, ClassifyConfig, ClassifyData, ClassifyLoss, ClassifyModel, ClassifySplit, ClassifyTrain,
    DecayedLayers, LayerKind,
};
pub use loader::{Draw, HotBy, LoaderConfig, LoaderMode, Transfer};
pub use neighbourhood::{NeighbourhoodConfig, Over};
pub use schema::{PipelineConfig, RunConfig};
pub(crate) use sections::embeddings_at;
pub use sections::*;
pub use stage3::{
    BoosterConfig, ForestConfig, SharedTreeConfig, Stage3Config, Stage3Data, Stage3Features, TreeClassWeight,
    TreeMetric, TreeModel, TreeObjective,
};
pub use stages::{Stage1Config, Stage2Config};
pub use synth::{PipelineSynth, Preset};

#[cfg(test)]
mod tests;
