//! Epochs that compute the whole graph at once.

use super::prefetch::Prefetch;

/// What the host prepares of every epoch, in order, and what the device has begun of the next one.
pub struct Full<I, D> {
    next: Box<dyn FnMut() -> Option<I>>,
    ahead: Option<(I, D)>,
}

impl<I: 'static, D> Full<I, D> {
    /// Inputs that take work: threads prepare those of later epochs while the device computes.
    pub fn prefetched(first: usize, last: usize, make: impl Fn(usize) -> I + Send + Sync + 'static) -> Self
    where
        I: Send,
    {
        let (mut epochs, mut inputs) = (first..=last, Prefetch::new(first..=last, make));
        Self { next: Box::new(move || epochs.next().map(|_| inputs.next())), ahead: None }
    }

    /// Inputs that are made at once.
    pub fn direct(first: usize, make: impl Fn(usize) -> I + 'static) -> Self {
        let mut epochs = first..;
        Self { next: Box::new(move || epochs.next().map(&make)), ahead: None }
    }
}

impl<I, D> Full<I, D> {
    /// The input of the next epoch, with what `begin` made of it while the epoch before was queued; the one behind it
    /// begins now.
    pub fn next_input(&mut self, begin: impl Fn(&mut I) -> D) -> (I, D) {
        let Self { next, ahead } = self;
        let mut begun = || {
            let mut input = next()?;
            let on_device = begin(&mut input);
            Some((input, on_device))
        };
        let now = ahead.take().or_else(&mut begun);
        *ahead = begun();
        now.unwrap_or_else(|| unreachable!("one input per epoch"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_epoch_begins_once_before_the_one_in_front_of_it_is_given() {
        let (begun, mut full) = (RefCell::new(Vec::new()), Full::prefetched(2, 4, |epoch| epoch));
        let mut next = || {
            full.next_input(|epoch| {
                begun.borrow_mut().push(*epoch);
                *epoch * 10
            })
        };
        for (given, begun_then) in [((2, 20), vec![2, 3]), ((3, 30), vec![2, 3, 4]), ((4, 40), vec![2, 3, 4])] {
            assert_eq!(next(), given);
            assert_eq!(*begun.borrow(), begun_then);
        }
    }
}
