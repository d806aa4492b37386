//! Ranks that are threads of one process and share a device.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_backend::Shape;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::error::{CollectiveError, CollectiveFault};
use super::hosts::among;
use super::link::{Begun, Call, Collective, Link, Traffic};
use super::operation::CollectiveOperation;
use super::values::Values;
use crate::runtime::turn::{SharedTurn, pause};

/// What a rank gave to an exchange.
#[derive(Debug)]
struct Part<B: Backend> {
    operation: CollectiveOperation,
    described: String,
    x: Values<B>,
}

/// Of a part: what its rank called, and its tensor.
type Taken<B> = (CollectiveOperation, Values<B>);

/// An exchange: the parts of ranks that have come, and how many still have to take their result.
#[derive(Debug)]
struct Round<B: Backend> {
    parts: Vec<Option<Part<B>>>,
    readers: usize,
}

#[derive(Debug)]
struct State<B: Backend> {
    /// By the number of the group, 0 of all ranks, and of the call.
    rounds: BTreeMap<(usize, u64), Round<B>>,
    /// The numbers of groups, by that of the group that was split, of the call behind which, and of the first member.
    groups: BTreeMap<(usize, u64, usize), usize>,
    /// Why a rank, by its number among all, is no longer in a group.
    left: BTreeMap<(usize, usize), &'static str>,
    failed: Option<CollectiveError>,
}

/// What all ranks have in common, and all groups of them.
#[derive(Debug)]
struct Shared<B: Backend> {
    deadline: Duration,
    state: Mutex<State<B>>,
    changed: Condvar,
}

/// A rank of a group.
///
/// A rank leaves its part and waits until all are there; then it computes its own result from them, sums in the order
/// of the ranks. The parts stay until every rank has taken its result, but nobody waits for that: a rank that has given
/// its part to all exchanges of a backward pass keeps no other rank from ending its own.
#[derive(Debug)]
pub(super) struct ThreadLink<B: Backend> {
    rank: usize,
    group: usize,
    /// The ranks of the group, by their numbers among all.
    members: Vec<usize>,
    shared: Arc<Shared<B>>,
    calls: AtomicU64,
    traffic: Mutex<Traffic>,
}

impl<B: Backend> ThreadLink<B> {
    /// All ranks of a group.
    pub fn group(ranks: usize, deadline: Duration) -> Vec<Self> {
        let state = State { rounds: BTreeMap::new(), groups: BTreeMap::new(), left: BTreeMap::new(), failed: None };
        let shared = Arc::new(Shared { deadline, state: Mutex::new(state), changed: Condvar::new() });
        (0..ranks).map(|rank| Self::new(rank, 0, (0..ranks).collect(), shared.clone())).collect()
    }

    fn new(rank: usize, group: usize, members: Vec<usize>, shared: Arc<Shared<B>>) -> Self {
        Self { rank, group, members, shared, calls: AtomicU64::new(0), traffic: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        // No invariant of the state spans a panic: parts come and go whole.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the call of a group says.
    fn said(&self, call: String) -> String {
        among((self.group > 0).then_some(&self.members[..]), call)
    }

    /// The number of this rank among all.
    fn number(&self) -> usize {
        self.members[self.rank]
    }

    /// Waits until all parts of `round` are there, and takes them.
    fn parts(&self, round: u64, operation: &'static str) -> Result<Vec<Taken<B>>, CollectiveError> {
        let start = Instant::now();
        let mut state = self.state();
        let fault = loop {
            let round = state.rounds.get(&(self.group, round));
            let is_there = |rank: usize| round.is_some_and(|found| found.parts[rank].is_some());
            let members = self.members.iter().enumerate();
            let missing: Vec<usize> = members.filter(|(rank, _)| !is_there(*rank)).map(|(_, &number)| number).collect();
            if let Some(found) = round.filter(|_| missing.is_empty()) {
                let parts: Vec<&Part<B>> = found.parts.iter().flatten().collect();
                let calls: Vec<_> = parts.iter().map(|part| (&part.operation, part.described.clone())).collect();
                match CollectiveOperation::disagreement(&calls) {
                    Some(fault) => break fault,
                    None => return Ok(parts.iter().map(|part| (part.operation.clone(), part.x.clone())).collect()),
                }
            }
            if let Some(failed) = &state.failed {
                return Err(self.seen(failed, operation));
            }
            let of = |rank| state.left.get(&(self.group, rank)).or_else(|| state.left.get(&(0, rank)));
            let lost = missing.iter().find_map(|&rank| Some((rank, *of(rank)?)));
            if let Some((rank, reason)) = lost {
                break CollectiveFault::Lost { rank, reason: reason.into() };
            }
            let waited = start.elapsed();
            let Some(left) = self.shared.deadline.checked_sub(waited).filter(|left| !left.is_zero()) else {
                break CollectiveFault::Late { missing, after: self.shared.deadline };
            };
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(state);
        let error = CollectiveError { rank: self.number(), operation, fault };
        self.fail(error.clone());
        Err(error)
    }

    fn seen(&self, failed: &CollectiveError, operation: &'static str) -> CollectiveError {
        CollectiveError { rank: self.number(), operation, fault: failed.fault.seen_from(self.number(), failed.rank) }
    }

    /// Gives `x` to the other ranks, and has what the call makes of all.
    fn exchange(&self, call: Call<'_>, x: Values<B>) -> Result<Values<B>, CollectiveError> {
        let Call { operation, backward_of } = call;
        let round = self.calls.fetch_add(1, Ordering::Relaxed);
        let failed = |fault| {
            let error = CollectiveError { rank: self.number(), operation: operation.name(), fault };
            self.fail(error.clone());
            error
        };
        if let Some(error) = self.failure(operation.name()) {
            return Err(error);
        }
        if backward_of.is_some() && self.ranks() > 1 && !SharedTurn::is_joined() {
            return Err(failed(CollectiveFault::Apart));
        }
        let (shape, dtype, device) = (x.shape(), x.dtype(), x.device());
        let output = operation.output(self.rank, self.ranks(), &shape, dtype).map_err(failed)?;
        // Another thread reads what this one has queued, and what it reads must not be written to before.
        let sync = || {
            B::sync(&device)
                .map_err(|error| failed(CollectiveFault::Device { reason: format!("{device:?}: {error:?}") }))
        };
        sync()?;
        let own_is_done = Instant::now();
        let described = self.said(operation.described(backward_of, &shape, dtype));
        let part = Part { operation: operation.clone(), described, x };
        let all_there = {
            let mut state = self.state();
            let ranks = self.ranks();
            let new = || Round { parts: (0..ranks).map(|_| None).collect(), readers: ranks };
            let found = state.rounds.entry((self.group, round)).or_insert_with(new);
            found.parts[self.rank] = Some(part);
            found.parts.iter().all(Option::is_some)
        };
        self.shared.changed.notify_all();
        // Within a backward pass the turn is that of all ranks.
        let parts = {
            let _pause = (!all_there && backward_of.is_none()).then(pause);
            self.parts(round, operation.name())?
        };
        let out = result(operation, self.rank, parts, output, dtype);
        sync()?;
        let bytes = out.shape().num_elements() * dtype.size();
        let seconds = own_is_done.elapsed().as_secs_f64();
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).add(bytes, seconds);
        let mut state = self.state();
        let round = (self.group, round);
        if let Some(found) = state.rounds.get_mut(&round) {
            found.readers -= 1;
            if found.readers == 0 {
                state.rounds.remove(&round);
            }
        }
        Ok(out)
    }
}

impl<B: Backend> Collective<B> for ThreadLink<B> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.members.len()
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn traffic(&self) -> Traffic {
        *self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, call: Call<'_>, x: FloatTensor<B>) -> Result<Begun<B>, CollectiveError> {
        self.exchange(call, Values::Floats(x)).map(|out| Begun::ended(out.floats()))
    }

    fn exchange_ids(&self, operation: &CollectiveOperation, x: IntTensor<B>) -> Result<IntTensor<B>, CollectiveError> {
        self.exchange(Call { operation, backward_of: None }, Values::Ids(x)).map(Values::ids)
    }

    fn split(&self, members: &[usize]) -> Result<Link<B>, CollectiveError> {
        let group = {
            let mut state = self.state();
            let next = state.groups.len() + 1;
            *state.groups.entry((self.group, self.calls(), members[0])).or_insert(next)
        };
        let place = members.iter().filter(|&&rank| rank < self.rank).count();
        let members = members.iter().map(|&rank| self.members[rank]).collect();
        Ok(Arc::new(Self::new(place, group, members, self.shared.clone())))
    }

    fn failure(&self, operation: &'static str) -> Option<CollectiveError> {
        self.state().failed.as_ref().map(|failed| self.seen(failed, operation))
    }

    fn fail(&self, error: CollectiveError) {
        // A group may have said it by another number.
        self.state().failed.get_or_insert(CollectiveError { rank: self.number(), ..error });
        self.shared.changed.notify_all();
    }

    fn leave(&self) {
        let panics = std::thread::panicking();
        let reason = if panics { "its thread panicked" } else { "it was dropped" };
        self.state().left.insert((self.group, self.number()), reason);
        self.shared.changed.notify_all();
    }
}

/// What rank `rank` gets from the parts of all.
fn result<B: Backend>(
    operation: &CollectiveOperation,
    rank: usize,
    parts: Vec<Taken<B>>,
    output: Vec<usize>,
    dtype: DType,
) -> Values<B> {
    // No device takes a launch over nothing.
    if output.iter().product::<usize>() == 0 {
        return parts[rank].1.empty(Shape::from(output));
    }
    let first = |counts: &[usize], of: usize| counts[..of].iter().sum::<usize>();
    let tensors = || parts.iter().map(|(_, x)| x.clone());
    match operation {
        CollectiveOperation::AllReduce => Values::Floats(sum::<B>(tensors().map(Values::floats), dtype)),
        CollectiveOperation::AllGather { .. } => Values::joined(tensors()),
        CollectiveOperation::ReduceScatter { rows } => {
            let own = |x: Values<B>| x.rows(first(rows, rank), rows[rank]).floats();
            Values::Floats(sum::<B>(tensors().map(own), dtype))
        }
        CollectiveOperation::AllToAll { .. } => Values::joined(parts.iter().filter_map(|(call, x)| match call {
            CollectiveOperation::AllToAll { send, .. } if send[rank] > 0 => {
                Some(x.clone().rows(first(send, rank), send[rank]))
            }
            _ => None,
        })),
        CollectiveOperation::Broadcast { root } => Values::joined([parts[*root].1.clone()]),
        CollectiveOperation::Barrier | CollectiveOperation::Backward => parts[rank].1.clone(),
    }
}

/// The sum in the order given, in f32.
pub(super) fn sum<B: Backend>(parts: impl Iterator<Item = FloatTensor<B>>, dtype: DType) -> FloatTensor<B> {
    let wide = |part| if dtype == DType::F32 { part } else { B::float_cast(part, DType::F32.into()) };
    let sum = parts.map(wide).reduce(B::float_add).expect("a group has a rank");
    if dtype == DType::F32 { sum } else { B::float_cast(sum, dtype.into()) }
}
