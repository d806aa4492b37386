//! One thread at a time records operations and differentiates them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// The right of this thread to differentiate, until it is dropped; see [`autodiff_turn`].
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct AutodiffTurn {
    /// `None` within another turn of the same thread.
    held: Option<MutexGuard<'static, ()>>,
    /// A turn belongs to a thread.
    thread: PhantomData<*const ()>,
}

/// Waits until no other thread holds a turn.
///
/// In Burn 0.21 a backward pass ends by clearing the recorded graphs of *all* threads of what no tensor refers to, and
/// an operation that another thread is about to record looks like that: a part of its graph is cut off, and its
/// gradients are missing without an error. Whoever differentiates in several threads of one process lets each take its
/// turn, from the first recorded operation to the end of `backward`. Within a turn its thread gets another at once.
///
/// # Example
/// ```
/// use burn::backend::Autodiff;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::autodiff_turn;
/// let train = || {
///     let x = Tensor::<Autodiff<Flex>, 1>::from_data([3.0], &Default::default()).require_grad();
///     let _turn = autodiff_turn();
///     let gradients = (x.clone() * 2.0 * x.clone()).sum().backward();
///     x.grad(&gradients).unwrap().into_scalar()
/// };
/// std::thread::scope(|scope| {
///     let threads = [scope.spawn(train), scope.spawn(train)];
///     assert_eq!(threads.map(|thread| thread.join().unwrap()), [12.0, 12.0]);
/// });
/// ```
pub fn autodiff_turn() -> AutodiffTurn {
    let held = (!HELD.get()).then(|| {
        // What a panicked thread had recorded is gone with its tensors.
        let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        HELD.set(true);
        guard
    });
    AutodiffTurn { held, thread: PhantomData }
}

impl Drop for AutodiffTurn {
    fn drop(&mut self) {
        if self.held.is_some() {
            HELD.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_waits_for_the_turn_of_another_and_never_for_its_own() {
        let outer = autodiff_turn();
        drop(autodiff_turn());
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _turn = autodiff_turn();
                send.send(()).unwrap();
            });
            assert!(receive.recv_timeout(Duration::from_millis(200)).is_err(), "the inner one ended the outer one");
            drop(outer);
            receive.recv_timeout(Duration::from_secs(60)).unwrap();
        });
    }
}
