//! One thread at a time records operations and differentiates them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whether somebody has the turn. It is given back by whoever ends it, which for a group may be another thread than
/// took it.
static TAKEN: Mutex<bool> = Mutex::new(false);
static FREE: Condvar = Condvar::new();

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    Nothing,
    /// The thread alone.
    Own,
    /// With the other ranks of a group, see [`SharedTurn`].
    Shared,
}

thread_local! {
    static HOLD: Cell<Hold> = const { Cell::new(Hold::Nothing) };
}

/// What a panicked thread had recorded is gone with its tensors.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take() {
    let taken = lock(&TAKEN);
    *FREE.wait_while(taken, |taken| *taken).unwrap_or_else(PoisonError::into_inner) = true;
}

fn give_back() {
    *lock(&TAKEN) = false;
    FREE.notify_one();
}

/// The right of this thread to differentiate, until it is dropped; see [`autodiff_turn`].
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct AutodiffTurn {
    /// Not within another turn of the same thread.
    outer: bool,
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
/// The ranks of a [`Communicator`](crate::Communicator) that are threads hand the turn over while they wait for each
/// other, and differentiate together within [`Communicator::backward`](crate::Communicator::backward).
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
    let outer = HOLD.get() == Hold::Nothing;
    if outer {
        take();
        HOLD.set(Hold::Own);
    }
    AutodiffTurn { outer, thread: PhantomData }
}

impl Drop for AutodiffTurn {
    fn drop(&mut self) {
        if self.outer {
            HOLD.set(Hold::Nothing);
            give_back();
        }
    }
}

/// The time in which a thread that waits for others lets them have its turn; see [`pause`].
pub(crate) struct Pause {
    held: bool,
    thread: PhantomData<*const ()>,
}

/// Gives the turn of this thread away until the pause is dropped, which waits for it. Only between operations that are
/// recorded: what clears the graphs there takes nothing that a tensor of this thread refers to.
pub(crate) fn pause() -> Pause {
    let held = HOLD.get() == Hold::Own;
    if held {
        HOLD.set(Hold::Nothing);
        give_back();
    }
    Pause { held, thread: PhantomData }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if self.held {
            take();
            HOLD.set(Hold::Own);
        }
    }
}

/// One turn for all threads of a group: the first to come takes it, the last to leave gives it back.
#[derive(Debug, Default)]
pub(crate) struct SharedTurn {
    threads: Mutex<usize>,
}

/// The part of a thread in a [`SharedTurn`].
pub(crate) struct Share<'a> {
    of: &'a SharedTurn,
    thread: PhantomData<*const ()>,
}

impl SharedTurn {
    /// Joins the turn. The thread has none of its own: it is in a [`pause`].
    pub fn join(&self) -> Share<'_> {
        let mut threads = lock(&self.threads);
        if *threads == 0 {
            take();
        }
        *threads += 1;
        HOLD.set(Hold::Shared);
        Share { of: self, thread: PhantomData }
    }

    /// Whether this thread differentiates together with others.
    pub fn is_joined() -> bool {
        HOLD.get() == Hold::Shared
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        HOLD.set(Hold::Nothing);
        let mut threads = lock(&self.of.threads);
        *threads -= 1;
        if *threads == 0 {
            give_back();
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

    #[test]
    fn a_pause_lets_another_thread_have_the_turn_and_a_shared_turn_ends_with_its_last_thread() {
        let turn = autodiff_turn();
        let shared = SharedTurn::default();
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            {
                let _pause = pause();
                scope.spawn(|| drop(autodiff_turn())).join().unwrap();
                let own = shared.join();
                // Within a shared turn the thread has a turn at once.
                drop(autodiff_turn());
                let other = scope.spawn(|| drop(shared.join()));
                other.join().unwrap();
                scope.spawn(move || {
                    let _turn = autodiff_turn();
                    send.send(()).unwrap();
                });
                assert!(receive.recv_timeout(Duration::from_millis(200)).is_err(), "the first to leave ended the turn");
                drop(own);
                assert!(!SharedTurn::is_joined());
            }
            drop(turn);
            receive.recv_timeout(Duration::from_secs(60)).unwrap();
        });
    }
}
