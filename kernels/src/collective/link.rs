//! What a group of ranks is to the operations over it.

use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_flex::Flex;

use super::error::CollectiveError;
use super::operation::CollectiveOperation;
#[cfg(feature = "cube")]
use crate::runtime::backends::impl_for_devices;

/// A call of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What all ranks do.
    pub operation: &'a CollectiveOperation,
    /// In a backward pass: the number of the call whose gradients this brings back.
    pub backward_of: Option<u64>,
}

/// What a rank has exchanged so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Exchanges.
    pub calls: u64,
    /// Bytes of their results.
    pub bytes: u64,
    /// Seconds from where its own work was done to the end of each, the other ranks waited for.
    pub seconds: f64,
}

impl Traffic {
    pub(super) fn add(&mut self, bytes: usize, seconds: f64) {
        self.calls += 1;
        self.bytes += bytes as u64;
        self.seconds += seconds;
    }
}

/// Which exchanges of a pass are differentiated together.
#[derive(Clone, Debug)]
pub enum Chain<F> {
    /// Each by itself, where something that depends on it is differentiated.
    Free,
    /// The first of some that all are, or none.
    First,
    /// The one behind this result of another, which is differentiated later.
    After(F),
}

/// One rank's connection to the others. A way to connect ranks implements it; [`Communicator`](crate::Communicator) is
/// how it is used.
pub trait Collective<B: Backend>: fmt::Debug + Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn ranks(&self) -> usize;

    /// Exchanges that this rank has called so far.
    fn calls(&self) -> u64;

    /// What it has exchanged so far.
    fn traffic(&self) -> Traffic;

    /// Does with the other ranks what `call` says, to `x` and to theirs; comes back with an error once the deadline is
    /// over, and at once after a rank has failed. It waits for what the others give, never for what they take; or it
    /// leaves the waiting to the device, whose work on the result comes behind it.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault); those of what is left to the device are told by a later
    /// call.
    fn exchange(&self, call: Call<'_>, x: FloatTensor<B>) -> Result<FloatTensor<B>, CollectiveError>;

    /// Waits for what was left to the device: an error where the results of [`exchange`](Self::exchange) are not what
    /// they should be.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    fn settled(&self) -> Result<(), CollectiveError> {
        Ok(())
    }

    /// What is slower than it need be, for the user.
    fn note(&self) -> Option<String> {
        None
    }

    /// Why no further exchange succeeds.
    fn failure(&self, operation: &'static str) -> Option<CollectiveError>;

    /// Ends the group for all ranks with an error of this one.
    fn fail(&self, error: CollectiveError);

    /// This rank calls no more.
    fn leave(&self);
}

/// A [`Collective`] that operations share.
pub type Link<B> = Arc<dyn Collective<B>>;

/// Backends whose tensors ranks exchange.
pub trait CollectiveBackend: Backend {
    /// The backend without gradients, whose tensors are what is exchanged.
    type Plain: CollectiveBackend<Plain = Self::Plain>;

    /// [`Collective::exchange`], recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn exchange(
        link: &Link<Self::Plain>,
        call: Call<'_>,
        x: FloatTensor<Self>,
        chain: Chain<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, CollectiveError>;
}

impl CollectiveBackend for Flex {
    type Plain = Self;

    fn exchange(
        link: &Link<Self>,
        call: Call<'_>,
        x: FloatTensor<Self>,
        _: Chain<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        link.exchange(call, x)
    }
}

#[cfg(feature = "cube")]
impl_for_devices! { CollectiveBackend =>
    type Plain = Self;

    fn exchange(
        link: &Link<Self>,
        call: Call<'_>,
        x: FloatTensor<Self>,
        _: Chain<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        link.exchange(call, x)
    }
}
