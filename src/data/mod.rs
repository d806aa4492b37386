//! From raw tables to graph, features and labels: importers, splits, the synthetic marketplace and the baseline model.
//!
//! Everything here runs on the host and is deterministic by its seed; nothing names a tensor library.

pub mod amazon;
pub mod class_split;
mod counted;
pub mod edge_split;
pub mod groups;
pub mod logistic;
pub mod mat;
pub(crate) mod parquet_file;
pub mod pieces;
pub mod split;
pub mod synth;
pub mod tables;
mod text;
pub mod windows;

/// How far a stage of an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done, in a word such as `"edges"`.
    pub stage: &'static str,
    /// Bytes of the files as they lie on disk while files are read, steps after that.
    pub done: u64,
    pub total: u64,
}
