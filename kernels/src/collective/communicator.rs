//! A rank of a group, as a program uses it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burn::tensor::{DType, Tensor, TensorData, TensorPrimitive};

use super::error::{CollectiveError, CollectiveFault};
use super::handshake::{differing, digest};
use super::hosts::Hosts;
use super::link::{Begun, Call, CollectiveBackend, Link, Place, Traffic};
use super::operation::CollectiveOperation;
use super::threads::ThreadLink;
use crate::runtime::turn::{SharedTurn, autodiff_turn, pause};

/// How long a rank waits for the others where nothing else is said.
pub const COLLECTIVE_DEADLINE: Duration = Duration::from_secs(60);

/// One rank of a group that computes together. Every rank is used by one thread, and all ranks make the same calls in
/// the same order. Once it is dropped, calls of the others that need it give an error.
///
/// # Gradients
/// The loss of the group is the **sum** of the losses of its ranks: gradients of what all ranks share, such as
/// parameters, are the sum of those that [`all_reduce`](Self::all_reduce) adds up, and a mean over all examples divides
/// by their number on all ranks. Every rank's loss must depend on the result of every exchange that is differentiated,
/// if only on no row of it: a rank that leaves one out of its backward pass is one for which the others wait.
///
/// Each rank has parameters of its own, equal in value ([`broadcast`](Self::broadcast)): threads that share a tensor
/// with gradients share a graph, of which one at a time can run backward.
///
/// # Example
/// ```
/// use burn::backend::Autodiff;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator, autodiff_turn};
///
/// let device = Default::default();
/// let ranks = Communicator::<Flex>::threads(2, COLLECTIVE_DEADLINE, &device);
/// let train = |rank: Communicator<Flex>| {
///     // Rank 0 has one row, rank 1 has two.
///     let own: &[[f32; 1]] = [&[[1.0]][..], &[[2.0], [3.0]]][rank.rank()];
///     let x = Tensor::<Autodiff<Flex>, 2>::from_floats(
///         burn::tensor::TensorData::new(own.concat(), [own.len(), 1]), &device,
///     ).require_grad();
///     let _turn = autodiff_turn();
///     let all = rank.all_gather_rows(x.clone(), &[1, 2]).unwrap();
///     assert_eq!(all.to_data().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
///     let loss = (all.clone() * all).sum();
///     let gradients = rank.backward(|| loss.backward()).unwrap();
///     x.grad(&gradients).unwrap().into_data().to_vec::<f32>().unwrap()
/// };
/// let gradients = Communicator::on_threads(ranks, train);
/// // Both ranks have a loss of all rows: 2 x from each.
/// assert_eq!(gradients, [vec![4.0], vec![8.0, 12.0]]);
/// ```
#[derive(Debug)]
pub struct Communicator<B: CollectiveBackend<Plain = B>> {
    // Groups of the ranks, once they are made, end before what they are parts of.
    pub(super) within_host: OnceLock<Box<Self>>,
    pub(super) across_hosts: OnceLock<Box<Self>>,
    pub(super) link: Link<B>,
    device: B::Device,
    /// Of all ranks of this process, where there are several.
    pub(super) turn: Option<Arc<SharedTurn>>,
    pub(super) hosts: Hosts,
}

/// Rows of all ranks that are on their way; see [`Communicator::begin_all_gather_rows`].
#[derive(Debug)]
pub struct Gathering<A: CollectiveBackend>(Begun<A>);

impl<A: CollectiveBackend> Gathering<A> {
    /// The rows, behind `after`, the result of the one before. In the backward pass their gradients begin to cross
    /// before anything is differentiated that is no deeper than `depth`, see [`depth_of`](crate::depth_of).
    ///
    /// # Errors
    /// A device that fails; other ranks' failures are told later, see [`Communicator::settled`].
    pub fn end(self, after: Option<&Tensor<A, 2>>, depth: usize) -> Result<Tensor<A, 2>, CollectiveError> {
        let after = after.map(|after| after.clone().into_primitive().tensor());
        Ok(Tensor::from_primitive(TensorPrimitive::Float(self.0.end(Place { after, depth })?)))
    }
}

impl<B: CollectiveBackend<Plain = B>> Drop for Communicator<B> {
    fn drop(&mut self) {
        // Graphs that are not cleared yet may hold the link for longer.
        self.link.leave();
    }
}

impl<B: CollectiveBackend<Plain = B>> Communicator<B> {
    /// A group of `ranks` threads of this process, with `device` for all of them: each is moved to its thread. A call
    /// for which a rank does not come within `deadline` is an error.
    ///
    /// Sums are made in the order of the ranks: results do not depend on which comes first.
    ///
    /// # Panics
    /// Without a rank.
    pub fn threads(ranks: usize, deadline: Duration, device: &B::Device) -> Vec<Self> {
        assert!(ranks > 0, "Communicator::threads: ranks: expected at least one, got none");
        let turn = (ranks > 1).then(|| Arc::new(SharedTurn::default()));
        let links = ThreadLink::<B>::group(ranks, deadline);
        let rank = |link| Self::of(Arc::new(link), device.clone(), turn.clone(), Hosts::one(ranks));
        links.into_iter().map(rank).collect()
    }

    /// Runs `work` on every rank, each on a thread of its own; what each of them gives, in the order of the ranks.
    ///
    /// # Panics
    /// Where `work` panics on one of them.
    pub fn on_threads<T: Send>(ranks: Vec<Self>, work: impl Fn(Self) -> T + Sync) -> Vec<T> {
        let work = &work;
        std::thread::scope(|scope| {
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
        })
    }

    pub(super) fn of(link: Link<B>, device: B::Device, turn: Option<Arc<SharedTurn>>, hosts: Hosts) -> Self {
        Self { within_host: OnceLock::new(), across_hosts: OnceLock::new(), link, device, turn, hosts }
    }

    fn groups(&self) -> impl Iterator<Item = &Self> {
        [&self.within_host, &self.across_hosts].into_iter().filter_map(OnceLock::get).map(Box::as_ref)
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.link.rank()
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.link.ranks()
    }

    /// What this rank has exchanged so far, in its groups as well.
    pub fn traffic(&self) -> Traffic {
        self.groups().fold(self.link.traffic(), |sum, group| sum.and(group.traffic()))
    }

    /// The device of this rank.
    pub fn device(&self) -> &B::Device {
        &self.device
    }

    /// Whether every exchange ends where it begins, from here on: what that takes longer is what crosses beside other
    /// work. False where it makes no difference.
    pub fn end_at_once(&self, at_once: bool) -> bool {
        self.groups().for_each(|group| _ = group.end_at_once(at_once));
        self.link.end_at_once(at_once)
    }

    /// What is slower than it need be, for the user.
    pub fn note(&self) -> Option<String> {
        self.link.note()
    }

    fn exchange<A: CollectiveBackend<Plain = B>, const D: usize>(
        &self,
        operation: CollectiveOperation,
        x: Tensor<A, D>,
    ) -> Result<Tensor<A, D>, CollectiveError> {
        let out = self.queued(operation, x)?;
        self.link.settled()?;
        Ok(out)
    }

    /// Waits for the exchanges that were left to the device: those that are queued, as by
    /// [`all_reduce_queued`](Self::all_reduce_queued), [`all_gather_rows_after`](Self::all_gather_rows_after), and
    /// those of backward passes, and those of groups. What is computed from their results is right where this is no
    /// error, however much later it is read.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn settled(&self) -> Result<(), CollectiveError> {
        self.link.settled()?;
        self.groups().try_for_each(Self::settled)
    }

    fn begun<A: CollectiveBackend<Plain = B>, const D: usize>(
        &self,
        operation: CollectiveOperation,
        x: Tensor<A, D>,
        always: bool,
    ) -> Result<Begun<A>, CollectiveError> {
        let call = Call { operation: &operation, backward_of: None };
        A::begin(&self.link, call, x.into_primitive().tensor(), always)
    }

    fn queued<A: CollectiveBackend<Plain = B>, const D: usize>(
        &self,
        operation: CollectiveOperation,
        x: Tensor<A, D>,
    ) -> Result<Tensor<A, D>, CollectiveError> {
        let out = self.begun(operation, x, false)?.end(Place::default())?;
        Ok(Tensor::from_primitive(TensorPrimitive::Float(out)))
    }

    /// The sum of the ranks' tensors, on every rank: `y = sum_r x_r`.
    ///
    /// # Shapes
    /// `x` of one shape on all ranks, in f32, f16 or bf16; sums are in f32.
    ///
    /// # Gradient
    /// `dx = sum_s dy_s` on every rank. Gradients of parameters are added up by this as plain tensors.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn all_reduce<A: CollectiveBackend<Plain = B>, const D: usize>(
        &self,
        x: Tensor<A, D>,
    ) -> Result<Tensor<A, D>, CollectiveError> {
        self.exchange(CollectiveOperation::AllReduce, x)
    }

    /// [`all_reduce`](Self::all_reduce) that nobody waits for here: what is queued behind it on the device has its sum,
    /// and what went wrong is an error of a later call, of [`settled`](Self::settled) at the latest.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn all_reduce_queued<A: CollectiveBackend<Plain = B>, const D: usize>(
        &self,
        x: Tensor<A, D>,
    ) -> Result<Tensor<A, D>, CollectiveError> {
        self.queued(CollectiveOperation::AllReduce, x)
    }

    /// The rows of all ranks, one rank behind the other, on every rank.
    ///
    /// # Shapes
    /// `rows` has the number of rows of every rank, the same list everywhere. `x` `[rows[rank], d]` in f32, f16 or
    /// bf16; result `[sum of rows, d]`.
    ///
    /// # Gradient
    /// `dx_r` is the rows of `r` in `sum_s dy_s`: a [`reduce_scatter_rows`](Self::reduce_scatter_rows).
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn all_gather_rows<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2>,
        rows: &[usize],
    ) -> Result<Tensor<A, 2>, CollectiveError> {
        self.exchange(CollectiveOperation::AllGather { rows: rows.to_vec() }, x)
    }

    /// [`all_gather_rows`](Self::all_gather_rows) in a chain, behind `after`, the result of the one before: whoever
    /// differentiates this one differentiates that one, too, later, and with a gradient of zero where nothing else
    /// depends on it. Ranks that go on with different ones of several matrices so make the same calls in the same
    /// order. Nobody waits for the rows here, see [`settled`](Self::settled).
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    ///
    /// # Example
    /// ```
    /// use burn::backend::Autodiff;
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator, autodiff_turn};
    /// let ranks = Communicator::<Flex>::threads(2, COLLECTIVE_DEADLINE, &Default::default());
    /// let gradients = Communicator::on_threads(ranks, |rank| {
    ///     let own = |value: f32| Tensor::<Autodiff<Flex>, 2>::from_data([[value]], rank.device()).require_grad();
    ///     let (a, b) = (own(2.0), own(3.0));
    ///     let _turn = autodiff_turn();
    ///     let all_a = rank.all_gather_rows(a.clone(), &[1, 1]).unwrap();
    ///     let all_b = rank.all_gather_rows_after(b.clone(), &[1, 1], Some(&all_a)).unwrap();
    ///     // Rank 1 alone reads the rows of `a`.
    ///     let loss = if rank.rank() == 0 { all_b.sum() } else { (all_a * all_b).sum() };
    ///     let gradients = rank.backward(|| loss.backward()).unwrap();
    ///     [a, b].map(|x| x.grad(&gradients).unwrap().into_scalar())
    /// });
    /// assert_eq!(gradients, [[3.0, 3.0], [3.0, 3.0]]);
    /// ```
    pub fn all_gather_rows_after<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2>,
        rows: &[usize],
        after: Option<&Tensor<A, 2>>,
    ) -> Result<Tensor<A, 2>, CollectiveError> {
        self.begin_all_gather_rows(x, rows)?.end(after, 0)
    }

    /// Begins [`all_gather_rows_after`](Self::all_gather_rows_after): what is computed until [`Gathering::end`] does
    /// not wait for the rows. In the backward pass the gradients of `x` begin to cross where those of the result are
    /// whole, and `x` alone waits for them. All ranks end what they have begun, in the order in which they began it.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator};
    /// let ranks = Communicator::<Flex>::threads(2, COLLECTIVE_DEADLINE, &Default::default());
    /// let rows = Communicator::on_threads(ranks, |rank| {
    ///     let own = Tensor::<Flex, 2>::from_data([[rank.rank() as f32]], rank.device());
    ///     let rows = rank.begin_all_gather_rows(own.clone(), &[1, 1]).unwrap();
    ///     // Computed while the rows cross.
    ///     let ten = own * 0.0 + 10.0;
    ///     (rows.end(None, 0).unwrap() + ten).into_data().to_vec::<f32>().unwrap()
    /// });
    /// assert_eq!(rows, [[10.0, 11.0], [10.0, 11.0]]);
    /// ```
    pub fn begin_all_gather_rows<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2>,
        rows: &[usize],
    ) -> Result<Gathering<A>, CollectiveError> {
        Ok(Gathering(self.begun(CollectiveOperation::AllGather { rows: rows.to_vec() }, x, true)?))
    }

    /// The sum of the ranks' matrices, of which every rank gets its own rows.
    ///
    /// # Shapes
    /// `rows` has the number of rows of every rank, the same list everywhere. `x` `[sum of rows, d]` in f32, f16 or
    /// bf16, sums are in f32; result `[rows[rank], d]`.
    ///
    /// # Gradient
    /// `dx = dy_0, dy_1, ..`: an [`all_gather_rows`](Self::all_gather_rows).
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn reduce_scatter_rows<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2>,
        rows: &[usize],
    ) -> Result<Tensor<A, 2>, CollectiveError> {
        self.exchange(CollectiveOperation::ReduceScatter { rows: rows.to_vec() }, x)
    }

    /// Rows for every rank against rows of every rank.
    ///
    /// # Shapes
    /// `x` `[sum of send, d]` in f32, f16 or bf16: `send[0]` rows for rank 0, then `send[1]` for rank 1, and so on.
    /// Result `[sum of receive, d]`: `receive[0]` rows of rank 0, and so on. `receive[s]` here is `send[rank]` on rank
    /// `s`.
    ///
    /// # Gradient
    /// The rows go back the way they came: the same with `receive` and `send` exchanged.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator};
    /// let device = Default::default();
    /// let ranks = Communicator::<Flex>::threads(2, COLLECTIVE_DEADLINE, &device);
    /// let results = Communicator::on_threads(ranks, |rank| {
    ///     let first = 10.0 * rank.rank() as f32;
    ///     let x = Tensor::<Flex, 2>::from_data([[first], [first + 1.0], [first + 2.0]], &rank.device().clone());
    ///     // Rank 0 keeps one row and sends two, rank 1 sends all three.
    ///     let (send, receive) = [([1, 2], [1, 3]), ([3, 0], [2, 0])][rank.rank()];
    ///     rank.all_to_all_rows(x, &send, &receive).unwrap().into_data().to_vec::<f32>().unwrap()
    /// });
    /// assert_eq!(results, [vec![0.0, 10.0, 11.0, 12.0], vec![1.0, 2.0]]);
    /// ```
    pub fn all_to_all_rows<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2>,
        send: &[usize],
        receive: &[usize],
    ) -> Result<Tensor<A, 2>, CollectiveError> {
        self.exchange(CollectiveOperation::AllToAll { send: send.to_vec(), receive: receive.to_vec() }, x)
    }

    /// [`all_to_all_rows`](Self::all_to_all_rows) that nobody waits for here, as
    /// [`all_reduce_queued`](Self::all_reduce_queued).
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn all_to_all_rows_queued<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2>,
        send: &[usize],
        receive: &[usize],
    ) -> Result<Tensor<A, 2>, CollectiveError> {
        self.queued(CollectiveOperation::AllToAll { send: send.to_vec(), receive: receive.to_vec() }, x)
    }

    /// What `root` has, on every rank; the others give a tensor of the same shape, whose values do not matter. No
    /// gradient flows back.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn broadcast<A: CollectiveBackend<Plain = B>, const D: usize>(
        &self,
        x: Tensor<A, D>,
        root: usize,
    ) -> Result<Tensor<A, D>, CollectiveError> {
        self.exchange(CollectiveOperation::Broadcast { root }, x)
    }

    /// Waits until every rank has come.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.meet(CollectiveOperation::Barrier)
    }

    fn meet(&self, operation: CollectiveOperation) -> Result<(), CollectiveError> {
        self.exchange(operation, Tensor::<B, 1>::zeros([1], (&self.device, DType::F32))).map(drop)
    }

    /// Ends the group: current and later calls of all ranks give an error with the reason.
    pub fn abort(&self, reason: &str) {
        let fault = CollectiveFault::Aborted { reason: reason.into() };
        self.link.fail(CollectiveError { rank: self.rank(), operation: "abort", fault });
    }

    /// Makes sure that all ranks mean the same before they work: each gives named parts, such as its version, its
    /// configuration and a digest of its data.
    ///
    /// # Errors
    /// [`CollectiveFault::Handshake`] on every rank, with the parts that differ and the ranks on which they do.
    ///
    /// # Example
    /// ```
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator};
    /// let ranks = Communicator::<Flex>::threads(2, COLLECTIVE_DEADLINE, &Default::default());
    /// Communicator::on_threads(ranks, |rank| {
    ///     let seed = [rank.rank() as u8];
    ///     let error = rank.handshake(&[("version", b"1.0"), ("seed", &seed)]).unwrap_err();
    ///     assert!(error.to_string().contains("another seed on rank 1 than on rank 0"), "{error}");
    /// });
    /// ```
    pub fn handshake(&self, parts: &[(&str, &[u8])]) -> Result<(), CollectiveError> {
        if parts.is_empty() {
            return self.meet(CollectiveOperation::Barrier);
        }
        let own = digest(parts);
        let width = own.len();
        // Bytes are small whole numbers, which every type of float holds; ranks with other numbers of parts disagree.
        let row = Tensor::<B, 2>::from_data(TensorData::new(own, [1, width]), (&self.device, DType::F32));
        let all = self.exchange(CollectiveOperation::AllGather { rows: vec![1; self.ranks()] }, row);
        let all = all.map_err(|error| CollectiveError { operation: "handshake", ..error })?;
        let all: Vec<f32> = all.into_data().convert::<f32>().into_vec().expect("f32 after convert");
        let differing = differing(parts, &all.chunks(width).collect::<Vec<_>>());
        if differing.is_empty() {
            return Ok(());
        }
        let fault = CollectiveFault::Handshake { differing };
        let error = CollectiveError { rank: self.rank(), operation: "handshake", fault };
        self.link.fail(error.clone());
        Err(error)
    }

    /// Runs a backward pass, `pass`, that all ranks run: `rank.backward(|| loss.backward())`. The loss is recorded
    /// before; `pass` does nothing but differentiate it.
    ///
    /// Ranks that are threads of one process need it, for three reasons that lie in Burn 0.21. A backward pass holds
    /// the lock of its own graph from its first step to its last, exchanges included. At its end it takes the locks of
    /// all other graphs of the process, one after the other, to clear them; and what it clears there must not be what
    /// another thread is about to record ([`autodiff_turn`]). Therefore the ranks begin together, after the last of
    /// them has ended what it did before; they have one turn for all, so that none of them and nobody else records
    /// meanwhile; and a rank that comes to the clearing has given its part to every exchange of the pass, so that those
    /// whose locks it waits for need nothing more of it. In an exchange outside of a pass no lock is held, and a rank
    /// that waits there hands over its turn.
    ///
    /// # Errors
    /// Where an exchange failed, with NaN in its gradients; see [`CollectiveFault`]. What is left to the device fails
    /// later, see [`settled`](Self::settled).
    pub fn backward<T>(&self, pass: impl FnOnce() -> T) -> Result<T, CollectiveError> {
        let result = match &self.turn {
            None => {
                let _turn = autodiff_turn();
                pass()
            }
            Some(turn) => {
                let _pause = pause();
                self.meet(CollectiveOperation::Backward)?;
                let _share = turn.join();
                pass()
            }
        };
        match self.link.failure("backward") {
            Some(error) => Err(error),
            None => Ok(result),
        }
    }
}
