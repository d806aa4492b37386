//! Exchanges that are on the device: a thread sees their ends, and those that do not come.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::resources::{Events, Resources};
use crate::collective::error::{CollectiveError, CollectiveFault};
use crate::collective::link::Traffic;
use crate::collective::presence::{Peers, lock};

/// Exchanges that a rank asks for before the first of them has ended: enough for the device to have work while the host
/// prepares more, and few enough for its queue not to be full where another rank does not come.
const AHEAD: usize = 8;

/// Between two looks of the thread.
const PERIOD: Duration = Duration::from_millis(1);

/// Between two looks of a rank that waits, once it takes longer than [`SHORT`].
const LOOK: Duration = Duration::from_micros(20);

/// So long a rank looks without a rest: a thread that sleeps wakes up some 50 microseconds late.
const SHORT: Duration = Duration::from_millis(2);

/// Waits a moment in what began at `start`.
pub(super) fn rest(start: Instant) {
    match start.elapsed() < SHORT {
        true => std::hint::spin_loop(),
        false => std::thread::sleep(LOOK),
    }
}

/// A rank's connection, shared with the thread that watches it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its number among all ranks.
    pub rank: usize,
    /// Whether it connects all of them: those that leave say after how many calls of it.
    of_all: bool,
    pub deadline: Duration,
    pub resources: Mutex<Resources>,
    pub peers: Arc<Mutex<Peers>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    traffic: Mutex<Traffic>,
}

/// What is on the device, the oldest first.
#[derive(Debug, Default)]
struct Queue {
    exchanges: VecDeque<OnDevice>,
    /// Since when the first of them waits for other ranks.
    since: Option<Instant>,
    /// Events of those that have ended; streams may still be told to wait for them.
    free: Vec<Arc<Events>>,
    /// There come no more.
    closed: bool,
    /// The connection was given up: nobody knows what the last exchanges have left.
    broken: bool,
}

/// An exchange on the device.
#[derive(Clone, Debug)]
pub(super) struct OnDevice {
    pub call: u64,
    pub operation: &'static str,
    pub events: Arc<Events>,
    /// Of its result, where it counts.
    pub bytes: Option<usize>,
}

impl Connection {
    pub fn new(rank: usize, of_all: bool, deadline: Duration, resources: Resources, peers: Arc<Mutex<Peers>>) -> Self {
        let (resources, queue) = (Mutex::new(resources), Mutex::default());
        Self { rank, of_all, deadline, resources, peers, queue, changed: Condvar::new(), traffic: Mutex::default() }
    }

    /// Starts the thread that looks after exchanges while nobody waits for them.
    pub fn watched(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let connection = self.clone();
        std::thread::Builder::new().name(format!("exchanges of rank {}", self.rank)).spawn(move || connection.look_on())
    }

    fn look_on(&self) {
        if let Err(fault) = lock(&self.resources).enter() {
            self.fail("watch", fault);
        }
        loop {
            {
                let idle = |queue: &mut Queue| queue.exchanges.is_empty() && !queue.closed;
                let queue = self.changed.wait_while(lock(&self.queue), idle).unwrap_or_else(PoisonError::into_inner);
                if queue.closed {
                    return;
                }
            }
            // The others see an error, too.
            if self.left().is_err() {
                return;
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// Ends the thread.
    pub fn close(&self) {
        lock(&self.queue).closed = true;
        self.changed.notify_all();
    }

    /// Events for the next exchange.
    pub fn events(&self) -> Result<Arc<Events>, CollectiveFault> {
        let free = &mut lock(&self.queue).free;
        match free.iter().position(|events| Arc::strong_count(events) == 1) {
            Some(at) => Ok(free.swap_remove(at)),
            None => Events::new().map(Arc::new),
        }
    }

    /// Looks after an exchange from here on.
    pub fn add(&self, exchange: OnDevice) {
        lock(&self.queue).exchanges.push_back(exchange);
        self.changed.notify_all();
    }

    /// What was exchanged, as far as it has ended.
    pub fn traffic(&self) -> Traffic {
        // An error is that of the next exchange, too.
        let _ = self.left();
        *lock(&self.traffic)
    }

    /// Waits until fewer than [`AHEAD`] exchanges are on the device.
    pub fn make_room(&self) -> Result<(), CollectiveError> {
        // The device has enough to do, and CubeCL's thread asks the driver, too.
        self.wait(|left| left < AHEAD, |_| std::thread::sleep(LOOK))
    }

    /// Waits until all exchanges have ended.
    pub fn settled(&self) -> Result<(), CollectiveError> {
        self.wait(|left| left == 0, rest)
    }

    fn wait(&self, enough: impl Fn(usize) -> bool, rest: impl Fn(Instant)) -> Result<(), CollectiveError> {
        let start = Instant::now();
        while !enough(self.left()?) {
            rest(start);
        }
        Ok(())
    }

    /// Looks at the exchanges on the device: how many have not ended. One that never will ends the group.
    fn left(&self) -> Result<usize, CollectiveError> {
        let oldest = lock(&self.queue).exchanges.front().map(|exchange| (exchange.call, exchange.operation));
        let looked = match oldest {
            None => Ok(0),
            Some((call, operation)) => self.look(call).map_err(|fault| self.fail(operation, fault)),
        };
        // What ends with the connection has not ended as it should.
        let broken = lock(&self.queue).broken;
        looked.and_then(|left| match self.failure("exchange").filter(|_| broken) {
            Some(error) => Err(error),
            None => Ok(left),
        })
    }

    fn look(&self, call: u64) -> Result<usize, CollectiveFault> {
        // First what needs no word of the driver, which may wait for a device that waits for a rank.
        self.watch(None, call)?;
        let (waiting, left) = self.reap()?;
        if let Some((since, call)) = waiting {
            self.watch(Some(since), call)?;
            // Who holds them is in an exchange, and looks itself.
            if let Ok(resources) = self.resources.try_lock() {
                resources.is_settled()?;
            }
        }
        Ok(left)
    }

    /// Takes out the exchanges that have ended: how many are left, and of the oldest of them the number and since when
    /// it waits for others, where this rank's own work before it is done.
    fn reap(&self) -> Result<(Option<(Instant, u64)>, usize), CollectiveFault> {
        let mut queue = lock(&self.queue);
        while let Some(OnDevice { call, events, bytes, .. }) = queue.exchanges.front().cloned() {
            if !events.has_ended()? {
                if queue.since.is_none() && events.has_begun()? {
                    queue.since = Some(Instant::now());
                }
                return Ok((queue.since.map(|since| (since, call)), queue.exchanges.len()));
            }
            if let Some(bytes) = bytes {
                lock(&self.traffic).add(bytes, events.seconds());
            }
            queue.exchanges.pop_front();
            queue.free.push(events);
            queue.since = None;
        }
        Ok((None, 0))
    }

    /// What another rank says about call `call`, or that the deadline is over, which began `since`.
    pub fn watch(&self, since: Option<Instant>, call: u64) -> Result<(), CollectiveFault> {
        let peers = lock(&self.peers);
        if let Some(failed) = &peers.failed {
            return Err(failed.fault.seen_from(self.rank, failed.rank));
        }
        if let Some((rank, _, reason)) = peers.left.iter().find(|(_, calls, _)| self.of_all && *calls <= call) {
            return Err(CollectiveFault::Lost { rank: *rank, reason: (*reason).into() });
        }
        match since.is_some_and(|since| since.elapsed() > self.deadline) {
            true => Err(CollectiveFault::Late { missing: Vec::new(), after: self.deadline }),
            false => Ok(()),
        }
    }

    /// Waits until NCCL has done what it does on the host; an error of another rank shows here.
    pub fn settle(&self, resources: &Resources, start: Instant, call: u64) -> Result<(), CollectiveFault> {
        while !resources.is_settled()? {
            self.watch(Some(start), call)?;
            rest(start);
        }
        Ok(())
    }

    /// Ends the group, and with it what is on the device.
    pub fn fail(&self, operation: &'static str, fault: CollectiveFault) -> CollectiveError {
        let error = CollectiveError { rank: self.rank, operation, fault };
        lock(&self.peers).failed.get_or_insert(error.clone());
        lock(&self.queue).broken = true;
        lock(&self.resources).abort();
        error
    }

    /// Why no further exchange succeeds.
    pub fn failure(&self, operation: &'static str) -> Option<CollectiveError> {
        let peers = lock(&self.peers);
        let fault = peers.failed.as_ref().map(|failed| failed.fault.seen_from(self.rank, failed.rank))?;
        Some(CollectiveError { rank: self.rank, operation, fault })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if lock(&self.resources).enter().is_ok() {
            let mut queue = lock(&self.queue);
            let on_device = queue.exchanges.drain(..).map(|exchange| exchange.events).collect::<Vec<_>>();
            on_device.into_iter().chain(queue.free.drain(..)).for_each(|events| events.destroy());
        }
    }
}
