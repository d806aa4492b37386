//! Mini-batches of graphs whose features do not fit the device: sampled, fetched and laid out while the device
//! computes.
//!
//! A [`Loader`] is an iterator of [`Batch`]es, made in one of two ways that [`Placement`] tells apart; the samples are
//! the same.
//!
//! The device makes them where its kernels draw neighbours and reach the features. A thread has it sample a batch and
//! collect its rows while the one before trains: rows that the batch before had are copied from its matrix, rows of a
//! static cache from there, and only the others are fetched. Rows, edges and seeds have the order of the sample, in
//! which the nodes of a layer come first among those of the layer before. The thread that trains takes a copy, and the
//! matrices of two batches take turns.
//!
//! Else the processor makes them. Threads sample, one gives nodes their slots in the order of the batches, others
//! number the edges by slots and gather the rows that the device lacks; the thread that trains uploads and moves rows.
//! There is one buffer, changed in place: rows of nodes that the batch before had stay where they are ([`Window`]).
//! Slots of that buffer, not places in the sample, are what blocks and seeds are numbered by.
//!
//! Either way a row is moved to the device once as long as batches in a row, or the cache, have it.
//!
//! Ranks can have a part of the features each on their devices ([`FeatureStore::divided`]). Then a batch gets the rows
//! that it lacks from the ranks that have them, where it is taken ([`Loader::next_of`]): all ranks do that together. Of
//! several hosts each has all rows, or they have them together ([`Deal`]).

mod batch;
mod config;
mod device;
mod divided;
mod features;
mod guarded;
mod levels;
mod pipeline;
mod placement;
mod store;
mod window;

pub use batch::{Batch, BatchNodes, BatchStats, Job};
pub use config::{DropRule, Hot, LoaderOptions};
pub(crate) use device::device_sampler;
pub use device::undrawable;
pub use divided::Deal;
pub use pipeline::Loader;
pub use placement::{Footprint, Placement, PlacementInput};
pub use store::FeatureStore;
pub use window::{Update, Window};

#[cfg(test)]
mod tests;
