//! From a checkpoint to scores: lists of the highest scores in the terms of the data, and explanations.

pub mod classes;
mod compute;
pub mod explain;
pub mod ranking;
mod scored_run;
mod trees;

pub use compute::{Computed, Scores, compute};
pub use scored_run::{ScoredRun, Stage, divided};

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
