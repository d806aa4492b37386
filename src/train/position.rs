//! How far a training is.

use serde::{Deserialize, Serialize};

use super::early_stopping::EarlyStopping;
use super::optimiser::LossScale;

/// Position of a training, kept in its `last` checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Last finished epoch; epochs count from 1.
    pub epoch: usize,
    /// Epoch of the best checkpoint, 0 before the first validation.
    pub best_epoch: usize,
    /// Validation metric of the best checkpoint.
    pub best_metric: f64,
    /// Of an f16 run.
    pub loss_scale: Option<LossScale>,
    /// Of a training that stops when the validation no longer improves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
}
