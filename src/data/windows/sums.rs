//! Sums that windows are differences of.

use std::ops::Range;

/// A sum to about 32 digits: the nearest f64, and what that one lacks.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    pub(super) fn plus(self, term: f64) -> Self {
        let high = self.high + term;
        let added = high - self.high;
        let lost = (self.high - (high - added)) + (term - added);
        Self { high, low: self.low + lost }
    }

    /// The difference, rounded once: sums that lack no digit give the same, whatever they began with.
    pub(super) fn minus(self, earlier: Self) -> f64 {
        self.less(earlier).rounded()
    }

    pub(super) fn rounded(self) -> f64 {
        self.high + self.low
    }

    /// The difference to all digits.
    pub(super) fn less(self, other: Self) -> Self {
        let difference = self.plus(-other.high);
        Self { low: difference.low - other.low, ..difference }
    }
}

/// Sums of the leading terms of a sequence; terms that are NaN do not count.
#[derive(Default)]
pub(super) struct Prefix {
    sums: Vec<(Sum, u32)>,
}

impl Prefix {
    pub(super) fn fill(&mut self, terms: impl Iterator<Item = f64>) {
        self.sums.clear();
        let mut sum = (Sum::default(), 0);
        self.sums.push(sum);
        for term in terms {
            if !term.is_nan() {
                sum = (sum.0.plus(term), sum.1 + 1);
            }
            self.sums.push(sum);
        }
    }

    /// Sum and number of the terms from `start` to before `end`.
    #[inline]
    pub(super) fn between(&self, start: usize, end: usize) -> (f64, u32) {
        let (from, to) = (self.sums[start], self.sums[end]);
        (to.0.minus(from.0), to.1 - from.1)
    }

    /// Sum and number of the terms of the range `all`, less those of the range `own` of `part`, some of these terms.
    /// What is left may be far smaller than either sum.
    pub(super) fn between_less(&self, all: &Range<usize>, part: &Self, own: &Range<usize>) -> (f64, u32) {
        let of = |prefix: &Self, range: &Range<usize>| {
            let (from, to) = (prefix.sums[range.start], prefix.sums[range.end]);
            (to.0.less(from.0), to.1 - from.1)
        };
        let ((sum, count), (own, own_count)) = (of(self, all), of(part, own));
        let others = sum.less(own);
        (others.rounded(), count - own_count)
    }
}
