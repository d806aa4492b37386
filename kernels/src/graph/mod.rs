//! Graphs on a device: adjacencies, sets of nodes, lists of rows, and how they get there.

pub(crate) mod csr;
pub(crate) mod drop_edge;
pub(crate) mod node_set;
pub(crate) mod row_index;
pub(crate) mod upload;
