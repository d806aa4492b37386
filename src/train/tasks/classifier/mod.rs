//! Node classification: one class for every node of a graph.

mod batches;
mod data;
mod placement;
mod run;
mod task;

pub use self::batches::Targets;
pub use self::data::ClassifierData;
pub use self::run::{ClassifyOutcome, Ranked, averaged, run, validated};
pub use self::task::{Classifier, EpochLine};
