//! `graphsieve serve`: scores of a live graph over HTTP.

pub mod drift;
pub mod labels;
pub mod log;
pub mod notify;
pub mod recent;
pub mod state;
