//! Sums that windows are differences of.

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

    pub(super) fn minus(self, earlier: Self) -> f64 {
        (self.high - earlier.high) + (self.low - earlier.low)
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
}
