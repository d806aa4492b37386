//! The best split of leaves by binned features.

mod categories;
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
mod launch;
mod numeric;
mod rule;
mod search;
mod table;

pub use numeric::best_split;
pub use rule::{
    Counts, Cut, GradientScale, Missing, Split, SplitFeature, SplitLeaf, SplitRule, SplitSide, better_split,
};
pub use search::root_output;
pub use table::{FeatureMask, SplitBackend, SplitFeatures, SplitTask, best_splits, finds_splits};

/// Guards divisions by a hessian of zero (LightGBM's `kEpsilon`).
pub(crate) const EPSILON: f64 = 1e-15_f32 as f64;
