//! From a checkpoint to scores: full-graph inference, and the evaluation of scores against labels.

pub mod classes;
pub mod evaluate;
pub mod explain;
mod inference;
pub mod layerwise;
pub mod layerwise_classes;
pub mod trees;

pub use inference::{Scored, Written, attention_scores, input_features, run, stage2_input};
pub use layerwise::{as_data, as_dtype};

use std::path::PathBuf;

/// What `graphsieve score` is asked for.
#[derive(Clone, Debug)]
pub struct ScoreOptions {
    /// A checkpoint file or a run directory.
    pub checkpoint: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// Where the scores go: `.npy`, f32, one per node; a row of class probabilities per node with a node classifier.
    pub out: PathBuf,
    /// Where the refined embeddings go, if anywhere.
    pub embeddings_out: Option<PathBuf>,
    /// The input of the model: a `.npy` file or a Stage-1 run. Default: what the run was trained on, else
    /// `Z_embeddings_stage1.npy` of the data directory.
    pub input: Option<PathBuf>,
}
