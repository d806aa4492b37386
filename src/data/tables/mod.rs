//! Tables.
mod cells;
mod description;
mod edge_list;
mod edges;
mod features;
mod fitting;
mod id_table;
mod input;
mod nodes;
mod parquet;
mod plan;
mod reading;
mod separated;
mod values;

/// How far a stage of an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// `"nodes"`, `"edges"`, `"shared"` or `"features"`.
    pub stage: &'static str,
    /// Bytes of the files as they lie on disk for the first three stages, steps for the last.
    pub done: u64,
    pub total: u64,
}
