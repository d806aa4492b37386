//! Epochs that compute the whole graph at once.

use super::prefetch::Prefetch;

/// What the host prepares of every epoch, in order, and the next one as the device has begun it.
pub struct Full<I, D> {
    next: Box<dyn FnMut() -> Option<I>>,
    ahead: Option<D>,
    is_first: bool,
}

impl<I: 'static, D> Full<I, D> {
    /// Inputs that take work: threads prepare those of later epochs while the device computes.
    pub fn prefetched(first: usize, last: usize, make: impl Fn(usize) -> I + Send + Sync + 'static) -> Self
    where
        I: Send,
    {
        let (mut epochs, mut inputs) = (first..=last, Prefetch::new(first..=last, make));
        Self { next: Box::new(move || epochs.next().map(|_| inputs.next())), ahead: None, is_first: true }
    }

    /// Inputs that are made at once.
    pub fn direct(first: usize, make: impl Fn(usize) -> I + 'static) -> Self {
        let mut epochs = first..;
        Self { next: Box::new(move || epochs.next().map(&make)), ahead: None, is_first: true }
    }
}

impl<I, D> Full<I, D> {
    /// The next epoch, which [`Self::begin_ahead`] has begun or `begin` begins.
    pub fn next_begun(&mut self, begin: impl Fn(I) -> D) -> D {
        let now = self.ahead.take().or_else(|| (self.next)().map(&begin));
        now.unwrap_or_else(|| unreachable!("one input per epoch"))
    }

    /// Lets `begin` begin the epoch behind it, but for the first one: to begin waits for the device, and what is still
    /// to be compiled for both passes is compiled together.
    pub fn begin_ahead(&mut self, begin: impl Fn(I) -> D) {
        if !std::mem::take(&mut self.is_first) {
            self.ahead = (self.next)().map(begin);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_epoch_begins_once_and_all_but_two_ahead() {
        let (begun, mut full) = (RefCell::new(Vec::new()), Full::prefetched(2, 4, |epoch| epoch));
        let begin = |epoch| {
            begun.borrow_mut().push(epoch);
            epoch * 10
        };
        for (given, ahead) in [(20, vec![2]), (30, vec![2, 3, 4]), (40, vec![2, 3, 4])] {
            assert_eq!(full.next_begun(begin), given);
            full.begin_ahead(begin);
            assert_eq!(*begun.borrow(), ahead);
        }
    }
}
