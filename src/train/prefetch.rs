//! Host work for later epochs, done while the device computes this one.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// Epochs that a worker prepares ahead.
const AHEAD: usize = 2;
/// Most workers: an epoch of a GPU is shorter than its preparation on one core.
const MAX_WORKERS: usize = 4;

/// What a function makes of every epoch, in order, on threads of its own.
pub struct Prefetch<T> {
    /// The workers take turns.
    workers: Vec<Worker<T>>,
    turn: usize,
}

struct Worker<T> {
    results: Option<Receiver<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts with the first of `epochs`.
    pub fn new(epochs: RangeInclusive<usize>, make: impl Fn(usize) -> T + Send + Sync + 'static) -> Self {
        // Half of the cores are left to the device's threads and to the system.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let count = (cores / 2).clamp(1, MAX_WORKERS);
        let make = Arc::new(make);
        let worker = |turn: usize| {
            let (sender, results) = sync_channel(AHEAD);
            let (make, epochs) = (make.clone(), epochs.clone());
            let thread = thread::spawn(move || {
                for epoch in epochs.skip(turn).step_by(count) {
                    // Nobody waits for more: the run ended early.
                    if sender.send(make(epoch)).is_err() {
                        return;
                    }
                }
            });
            Worker { results: Some(results), thread: Some(thread) }
        };
        Self { workers: (0..count).map(worker).collect(), turn: 0 }
    }

    /// The next epoch's; waits if it is not ready.
    ///
    /// # Panics
    /// With a worker's own panic, or when called more often than there are epochs.
    pub fn next(&mut self) -> T {
        let count = self.workers.len();
        let worker = &mut self.workers[self.turn];
        self.turn = (self.turn + 1) % count;
        let next = worker.results.as_ref().and_then(|results| results.recv().ok());
        next.unwrap_or_else(|| {
            if let Some(Err(panic)) = worker.thread.take().map(JoinHandle::join) {
                std::panic::resume_unwind(panic);
            }
            unreachable!("one result per epoch")
        })
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        // Closed first: a worker that waits for room goes on and ends.
        self.workers.iter_mut().for_each(|worker| drop(worker.results.take()));
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            // Its panic, if any, was told when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_an_early_end_does_not_hang() {
        let mut all = Prefetch::new(3..=40, |epoch| epoch * 10);
        assert!((3..=40).all(|epoch| all.next() == epoch * 10));
        let mut long = Prefetch::new(0..=usize::MAX, |epoch| epoch);
        assert_eq!(long.next(), 0);
        drop(long);
    }

    #[test]
    #[should_panic(expected = "epoch 1 is bad")]
    fn a_panic_of_the_worker_reaches_the_loop() {
        let mut all = Prefetch::new(0..=2, |epoch| assert!(epoch != 1, "epoch {epoch} is bad"));
        all.next();
        all.next();
    }
}
