//! Graphs on a device: adjacencies, sets of nodes, lists of rows, and how they get there.

pub(crate) mod csr;
pub(crate) mod drop_edge;
pub(crate) mod node_marks;
pub(crate) mod node_set;
pub(crate) mod row_entries;
pub(crate) mod row_index;
#[cfg(feature = "cube")]
pub(crate) mod row_schedule;
pub(crate) mod upload;
