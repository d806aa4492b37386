//! Epochs that compute the whole graph at once.

use super::prefetch::Prefetch;

/// What the host prepares of every epoch, in order.
pub struct Full<I> {
    next: Box<dyn FnMut() -> I>,
}

impl<I: 'static> Full<I> {
    /// Inputs that take work: threads prepare those of later epochs while the device computes.
    pub fn prefetched(first: usize, last: usize, make: impl Fn(usize) -> I + Send + Sync + 'static) -> Self
    where
        I: Send,
    {
        let mut inputs = Prefetch::new(first..=last, make);
        Self { next: Box::new(move || inputs.next()) }
    }

    /// Inputs that are made at once.
    pub fn direct(first: usize, make: impl Fn(usize) -> I + 'static) -> Self {
        let mut epochs = first..;
        Self { next: Box::new(move || make(epochs.next().unwrap_or_else(|| unreachable!("epochs do not run out")))) }
    }
}

impl<I> Full<I> {
    /// The input of the next epoch.
    pub fn next_input(&mut self) -> I {
        (self.next)()
    }
}
