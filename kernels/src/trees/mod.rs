//! What gradient-boosted trees ask of a device: histograms, splits, partitions of rows, margins.

pub(crate) mod boosting;
pub(crate) mod engine;
pub(crate) mod histogram;
pub(crate) mod partition;
pub(crate) mod split;
pub(crate) mod tree_device;
