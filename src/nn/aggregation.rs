//! What several rows become one by, as a setting.

use graphsieve_kernels::Reduce;
use serde::{Deserialize, Serialize};

/// How a layer reduces several rows to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest of each channel.
    Max,
}

impl From<Aggregation> for Reduce {
    fn from(aggregation: Aggregation) -> Self {
        match aggregation {
            Aggregation::Sum => Reduce::Sum,
            Aggregation::Mean => Reduce::Mean,
            Aggregation::Max => Reduce::Max,
        }
    }
}
