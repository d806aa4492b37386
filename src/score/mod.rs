//! From a checkpoint to scores: full-graph inference, lists of the highest scores in the terms of the data, explanations, and the
//! evaluation of scores against labels.

pub mod classes;
pub mod evaluate;
pub mod explain;
mod inference;
pub mod layerwise;
pub mod layerwise_classes;
pub mod ranking;
mod scored_run;
pub mod trees;

pub use inference::{Computed, Scored, Scores, attention_scores, compute, input_features, stage2_input};
pub use layerwise::{as_data, as_dtype};
pub use scored_run::{ScoredRun, Stage, calibrate, divided, read_calibration, write_calibration};

use std::path::PathBuf;

/// What is scored with what.
#[derive(Clone, Debug)]
pub struct ScoreOptions {
    /// A checkpoint file or a run directory.
    pub checkpoint: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The input of the model: a `.npy` file or a Stage-1 run. Default: what the run was trained on, else
    /// `Z_embeddings_stage1.npy` of the data directory.
    pub input: Option<PathBuf>,
    /// Whether the refined embeddings are wanted, too.
    pub embeddings: bool,
}
