//! What a group of ranks is to the operations over it.

use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorPrimitive};
use burn_backend::tensor::{FloatTensor, IntTensor};
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

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self { calls: self.calls + other.calls, bytes: self.bytes + other.bytes, seconds: self.seconds + other.seconds }
    }
}

/// Where an exchange stands in a backward pass.
#[derive(Clone, Debug)]
pub struct Place<F> {
    /// The result of another one, which is differentiated whenever this one is, and later.
    pub after: Option<F>,
    /// So deep at least is it recorded: what is less deep is differentiated later.
    pub depth: usize,
}

impl<F> Default for Place<F> {
    fn default() -> Self {
        Self { after: None, depth: 0 }
    }
}

type End<B> = dyn FnOnce(Place<FloatTensor<B>>) -> Result<FloatTensor<B>, CollectiveError> + Send;

/// An exchange that has begun. What is computed until its end does not wait for it; the memory of what was given and of
/// the result is kept until then. One that is dropped ends there.
pub struct Begun<B: Backend>(Box<End<B>>);

impl<B: Backend> fmt::Debug for Begun<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begun")
    }
}

impl<B: Backend> Begun<B> {
    pub(super) fn new(
        end: impl FnOnce(Place<FloatTensor<B>>) -> Result<FloatTensor<B>, CollectiveError> + Send + 'static,
    ) -> Self {
        Self(Box::new(end))
    }

    /// Of an exchange that is over already.
    pub fn ended(result: FloatTensor<B>) -> Self {
        Self::new(|_| Ok(result))
    }

    /// The result, on which the device works once it is there; recorded at `place` where the backend differentiates.
    ///
    /// # Errors
    /// A device that fails.
    pub fn end(self, place: Place<FloatTensor<B>>) -> Result<FloatTensor<B>, CollectiveError> {
        (self.0)(place)
    }
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

    /// Begins to do with the other ranks what `call` says, to `x` and to theirs; comes back with an error once the
    /// deadline is over, and at once after a rank has failed. It waits for what the others give, never for what they
    /// take, so that the exchange is over when it comes back; or it leaves the waiting to the device, whose work behind
    /// [`Begun::end`] comes behind the exchange.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault); those of what is left to the device are told by a later
    /// call.
    fn begin(&self, call: Call<'_>, x: FloatTensor<B>) -> Result<Begun<B>, CollectiveError>;

    /// What `operation`, which moves rows and adds up none, makes of whole numbers. They have no gradient; otherwise as
    /// [`begin`](Self::begin) and its end.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault); those of what is left to the device are told by a later
    /// call.
    fn exchange_ids(&self, operation: &CollectiveOperation, x: IntTensor<B>) -> Result<IntTensor<B>, CollectiveError>;

    /// This rank's connection to `members` alone, numbers of ranks in their order, among them its own. All ranks come,
    /// each with the members of its group. Errors name ranks by their numbers among all, and an error of a group ends
    /// all others.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    fn split(&self, members: &[usize]) -> Result<Link<B>, CollectiveError>;

    /// Waits for what was left to the device: an error where the results of [`begin`](Self::begin) are not what they
    /// should be.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    fn settled(&self) -> Result<(), CollectiveError> {
        Ok(())
    }

    /// Whether every exchange ends where it begins, from here on: what that takes longer is what crosses beside other
    /// work. False where it makes no difference.
    fn end_at_once(&self, _: bool) -> bool {
        false
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

    /// [`Collective::begin`], recorded for the backward pass where the backend differentiates; with `always` also for
    /// an `x` that needs no gradient. The transposed exchange of a backward pass ends right before `x` is
    /// differentiated.
    #[doc(hidden)]
    fn begin(
        link: &Link<Self::Plain>,
        call: Call<'_>,
        x: FloatTensor<Self>,
        always: bool,
    ) -> Result<Begun<Self>, CollectiveError>;

    /// [`Collective::exchange_ids`].
    #[doc(hidden)]
    fn exchange_ids(
        link: &Link<Self::Plain>,
        operation: &CollectiveOperation,
        x: IntTensor<Self>,
    ) -> Result<IntTensor<Self>, CollectiveError>;

    /// How deep `x` is recorded; a backward pass goes from the deepest on.
    #[doc(hidden)]
    fn depth(_: &FloatTensor<Self>) -> usize {
        0
    }

    /// `x` so deep, where it is data.
    #[doc(hidden)]
    fn at_depth(x: FloatTensor<Self>, _: usize) -> FloatTensor<Self> {
        x
    }
}

/// How deep `x` is recorded where the backend differentiates: one deeper than what it was computed from. A backward
/// pass goes from the deepest on. 0 for data.
pub fn depth_of<B: CollectiveBackend, const D: usize>(x: &Tensor<B, D>) -> usize {
    B::depth(&x.clone().into_primitive().tensor())
}

/// The data `x`, from which everything is recorded deeper than `depth`: a backward pass comes to what was computed of
/// it before it comes to what is no deeper. The same tensor where it needs a gradient.
pub fn at_depth<B: CollectiveBackend, const D: usize>(x: Tensor<B, D>, depth: usize) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(B::at_depth(x.into_primitive().tensor(), depth)))
}

impl CollectiveBackend for Flex {
    type Plain = Self;

    fn begin(link: &Link<Self>, call: Call<'_>, x: FloatTensor<Self>, _: bool) -> Result<Begun<Self>, CollectiveError> {
        link.begin(call, x)
    }

    fn exchange_ids(
        link: &Link<Self>,
        operation: &CollectiveOperation,
        x: IntTensor<Self>,
    ) -> Result<IntTensor<Self>, CollectiveError> {
        link.exchange_ids(operation, x)
    }
}

#[cfg(feature = "cube")]
impl_for_devices! { CollectiveBackend =>
    type Plain = Self;

    fn begin(
        link: &Link<Self>,
        call: Call<'_>,
        x: FloatTensor<Self>,
        _: bool,
    ) -> Result<Begun<Self>, CollectiveError> {
        link.begin(call, x)
    }

    fn exchange_ids(
        link: &Link<Self>,
        operation: &CollectiveOperation,
        x: IntTensor<Self>,
    ) -> Result<IntTensor<Self>, CollectiveError> {
        link.exchange_ids(operation, x)
    }
}
