//! The engine of the program: the live graph, its log, the model that scores it, and how far all of it has moved.

use std::sync::Arc;

use super::engine::Engine;
use super::options::Options;
use crate::backend::Device;
use crate::error::Result;

/// Opens what `options` name, up to where the log ends.
pub fn open(_options: &Options, _device: Device) -> Result<Arc<dyn Engine>> {
    todo!("joined with the live graph")
}
