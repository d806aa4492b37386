//! What every run has around its work: its directory and provenance, the log of its epochs, progress, interruption, the
//! split of its labels, and what its scores are held against.

pub mod baseline;
pub mod bundle;
pub mod calibration;
pub mod directory;
pub mod ensemble;
pub mod evaluation;
pub mod interrupt;
pub mod known_labels;
pub mod log_line;
mod metrics_log;
pub mod model;
pub mod progress;
mod provenance;
pub mod ranked;
pub mod splits;
pub mod stages;
pub mod tournament;

pub use directory::RunDir;
pub use metrics_log::{History, MetricsLog};
pub use provenance::Meta;
