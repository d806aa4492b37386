//! Mini-batches of graphs whose features do not fit the device: sampled, fetched and laid out while the device computes.
//!
//! A [`Loader`] is an iterator of [`Batch`]es. Threads sample batches, one gives their nodes slots in the order of the
//! batches, others number the edges by slots and gather the rows that the device lacks; what is left for the thread that trains
//! is to upload and to move rows. Rows of nodes
//! that the batch before had, too, stay where they are ([`Window`]), and rows of a static cache are copied on the device, so
//! that each row is moved once. Slots of that buffer, not places in the batch, are what blocks, seeds and labels are numbered
//! by.

mod batch;
mod config;
mod device;
mod features;
mod levels;
mod pipeline;
mod placement;
mod store;
mod window;

pub use batch::{Batch, BatchLayer, BatchStats};
pub use config::{DropRule, Hot, LoaderOptions};
pub use device::draws_on_device;
pub use features::FeatureBuffers;
pub use pipeline::{Job, Loader};
pub use placement::{Footprint, Placement, PlacementInput};
pub use store::FeatureStore;
pub use window::{Update, Window};

#[cfg(test)]
mod tests;
