//! Ranks that compute one thing together: sums over all of them, rows gathered, scattered and exchanged, with
//! gradients.
//!
//! A [`CollectiveOperation`] is what all ranks call, a [`Collective`] is a way to connect them, and a [`Communicator`]
//! is one rank. Threads of one process work on every backend; with the feature `cuda`, processes and threads with a
//! device each are connected by NCCL. Errors are values on every rank.

mod autodiff;
mod communicator;
mod environment;
mod error;
mod groups;
mod handshake;
mod hosts;
mod ids;
mod link;
#[cfg(feature = "cuda")]
mod nccl;
mod operation;
#[cfg(any(feature = "cuda", test))]
mod presence;
#[cfg(any(feature = "cuda", test))]
mod rendezvous;
#[cfg(test)]
mod tests;
mod threads;
mod values;

pub use communicator::{COLLECTIVE_DEADLINE, Communicator, Gathering};
pub use environment::{LaunchEnvironment, LaunchError, Rendezvous, host_identity};
pub use error::{CollectiveError, CollectiveFault};
pub use hosts::Hosts;
pub use link::{Begun, Call, Collective, CollectiveBackend, Link, Place, Traffic, at_depth, depth_of};
#[cfg(feature = "cuda")]
pub use nccl::{NcclConfig, probe_nccl};
pub use operation::CollectiveOperation;
