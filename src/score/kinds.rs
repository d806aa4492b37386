//! Which kind of model a checkpoint holds.

use std::path::Path;

use graphsieve_kernels::GraphBackend;

use super::attention::Attention;
use super::classes::Classifier;
use super::model::Model;
use super::reconstruction::Reconstruction;
use super::trees::Trees;
use crate::error::Result;
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::models::weights::{ModelSpec, Weights};

/// The model of a checkpoint file or of a run with one model.
///
/// # Errors
/// A checkpoint that cannot be read.
pub(super) fn open<B: GraphBackend>(checkpoint: &Path) -> Result<Box<dyn Model<B>>> {
    if let Some(file) = TreeCheckpoint::file_of(checkpoint) {
        return Ok(Box::new(Trees(TreeCheckpoint::read(&file)?)));
    }
    let (Weights { spec, tensors, .. }, file) = Weights::read(checkpoint)?;
    Ok(match spec {
        ModelSpec::AutoEncoder(_) => Box::new(Reconstruction),
        ModelSpec::Attention(spec) => Box::new(Attention { spec, tensors, file }),
        ModelSpec::NodeClassifier(spec) => Box::new(Classifier { spec, tensors, file }),
    })
}
