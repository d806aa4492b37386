//! From a checkpoint to scores: lists of the highest scores in the terms of the data, and explanations.

mod attention;
mod class_view;
pub mod classes;
mod compute;
mod drawn;
pub mod explain;
mod fits;
mod kinds;
pub mod list;
mod model;
mod prepared;
pub mod ranking;
mod reconstruction;
mod scored_run;
mod side_by_side;
mod trees;

pub use class_view::ClassView;
pub use compute::{compute, compute_on};
pub use drawn::compute_drawn;
pub use fits::{Comparison, check_place, compare};
pub use prepared::{Prepared, Refreshed};
pub use scored_run::{ScoredRun, Stage, check_class, divided, divided_classes};
pub use side_by_side::{Figures, Judged, ModelFigures, SideBySide};

use std::path::PathBuf;

use ndarray::Array2;

use crate::graph::{Dataset, Features, Spill};

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
    /// The host memory that rows of layers and columns of trees may take. With a limit layers are computed one after
    /// another; without one it is as the run was trained.
    pub spill: Spill,
}

impl ScoreOptions {
    /// With the input that the model was trained on, and memory as it comes.
    pub fn new(checkpoint: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        let (checkpoint, data) = (checkpoint.into(), data.into());
        Self { checkpoint, data, input: None, embeddings: false, spill: Spill::default() }
    }
}

/// What a model says about every node, by global id.
#[derive(Clone, Debug)]
pub enum Scores {
    /// In [0, 1]; higher is more anomalous.
    Anomaly(Vec<f32>),
    /// One row of class probabilities per node.
    Classes(Array2<f32>),
}

/// Scores of a data directory.
#[derive(Debug)]
pub struct Computed {
    pub dataset: Dataset,
    pub scores: Scores,
    /// The last hidden layer, `[nodes, width]` in f32, where it was asked for.
    pub embeddings: Option<Features>,
}
