//! Histogram trees: one engine behind a gradient booster and a random forest.
//!
//! [`Dataset`] bins a feature matrix, [`Booster`] and [`Forest`] are fitted on it and predict from plain arrays; no
//! graph is needed. Gradients and hessians are summed in fixed point, so a tree does not depend on the number of
//! threads, on the order of the rows, or on the device that built its histograms.

pub mod binning;
pub mod booster;
mod booster_params;
mod check_model;
pub mod compact;
pub mod counter;
pub mod dataset;
mod device;
pub mod early_stop;
mod feature_names;
pub mod fixed_point;
pub mod forest;
pub mod grow;
pub mod grow_rule;
pub mod histogram;
mod host;
pub mod importance;
mod lightgbm_read;
mod lightgbm_write;
pub mod matrix;
mod model_file;
pub mod objective;
pub mod partition;
mod refuse;
mod rounds;
pub mod shap;
pub mod split;
pub mod tree;

pub use binning::{BinMapper, BinRule, Missing};
pub use booster::{Bagging, Booster, BoosterParams, Fit};
pub use dataset::Dataset;
pub use early_stop::{Measure, Metric, Validation};
pub use fixed_point::Gradients;
pub use forest::{Forest, ForestParams};
pub use grow_rule::GrowRule;
pub use importance::Importance;
pub use matrix::{Matrix, Parts};
pub use objective::{ClassWeight, Objective};
pub use shap::Attributions;
pub use split::{Counts, SplitRule};
pub use tree::Tree;
