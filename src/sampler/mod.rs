//! Neighbour sampling: mini-batches of a typed graph, one block of edges per layer and relation.
//!
//! What is drawn depends on the seed, the number of the batch and the nodes alone: not on threads, and not on what was
//! sampled before. Nothing carries a state, so a device can make the same draws.

mod batch;
mod config;
mod neighbour;

pub use batch::{Block, MiniBatch};
pub use config::{Fanout, SamplerConfig, check_draw, weights_of};
pub(crate) use graphsieve_kernels::distinct;
pub use neighbour::{EdgePlace, NeighbourSampler, SampleScratch};

#[cfg(test)]
mod tests;
