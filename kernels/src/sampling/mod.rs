//! Neighbour sampling on the device, and the rows of features that a sample needs.

pub(crate) mod backend;
pub(crate) mod collect;
pub(crate) mod row_buffer;
pub(crate) mod sample;
