//! What stands below the operators: devices and their memory, launches, rows on the CPU, primitives over vectors.

pub(crate) mod accumulate;
#[cfg(feature = "cube")]
pub(crate) mod ahead;
#[cfg(feature = "cube")]
pub(crate) mod args;
#[cfg(feature = "cube")]
pub(crate) mod backends;
pub(crate) mod check;
pub mod device;
pub(crate) mod flex;
pub(crate) mod hash;
pub(crate) mod host;
#[cfg(feature = "cube")]
pub(crate) mod launch;
pub(crate) mod lists;
pub(crate) mod memory;
pub(crate) mod page_locked;
pub(crate) mod prims;
pub(crate) mod queued;
pub(crate) mod rows;
pub(crate) mod start_gradient;
#[cfg(feature = "testing")]
pub(crate) mod switches;
pub(crate) mod turn;
pub(crate) mod upload;
