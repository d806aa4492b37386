//! Host work for later epochs, done while the device computes this one.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// Epochs that are prepared ahead.
const AHEAD: usize = 2;

/// What a function makes of every epoch, in order, on a thread of its own.
pub struct Prefetch<T> {
    results: Option<Receiver<T>>,
    worker: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts with the first of `epochs`.
    pub fn new(
        epochs: impl IntoIterator<Item = usize> + Send + 'static,
        make: impl Fn(usize) -> T + Send + 'static,
    ) -> Self {
        let (sender, results) = sync_channel(AHEAD);
        let worker = thread::spawn(move || {
            for epoch in epochs {
                // Nobody waits for more: the run ended early.
                if sender.send(make(epoch)).is_err() {
                    return;
                }
            }
        });
        Self { results: Some(results), worker: Some(worker) }
    }

    /// The next epoch's; waits if it is not ready.
    ///
    /// # Panics
    /// With the worker's own panic, or when called more often than there are epochs.
    pub fn next(&mut self) -> T {
        let next = self.results.as_ref().and_then(|results| results.recv().ok());
        next.unwrap_or_else(|| {
            if let Some(Err(panic)) = self.worker.take().map(JoinHandle::join) {
                std::panic::resume_unwind(panic);
            }
            unreachable!("one result per epoch")
        })
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        // Closed first: a worker that waits for room goes on and ends.
        drop(self.results.take());
        if let Some(worker) = self.worker.take() {
            // Its panic, if any, was told when it happened.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_an_early_end_does_not_hang() {
        let mut all = Prefetch::new(3..6, |epoch| epoch * 10);
        assert_eq!([all.next(), all.next(), all.next()], [30, 40, 50]);
        let mut endless = Prefetch::new(0.., |epoch| epoch);
        assert_eq!(endless.next(), 0);
        drop(endless);
    }

    #[test]
    #[should_panic(expected = "epoch 1 is bad")]
    fn a_panic_of_the_worker_reaches_the_loop() {
        let mut all = Prefetch::new(0..3, |epoch| assert!(epoch != 1, "epoch {epoch} is bad"));
        all.next();
        all.next();
    }
}
