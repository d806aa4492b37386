//! The edges of a row in two parts.

use super::vector::EDGES_AHEAD;

/// The edges of a row by whether their scores are positive: sums over both kinds cost what a sum over all edges does.
#[derive(Default)]
pub(crate) struct Split {
    /// Rows of the positive ones, of the others, and rows that come next.
    pub(super) ids: Vec<u32>,
    /// Without those of rows that come next.
    pub(super) weights: Vec<f32>,
    pub(super) positive: usize,
}

impl Split {
    /// Divides the edges to `ids`. Those whose `share` is 0 go to the others: their scores are not positive, or they
    /// have no weight. Rows `next` are read later.
    ///
    /// # Panics
    /// If lengths differ.
    pub(crate) fn divide(&mut self, ids: &[u32], weights: &[f32], share: &[f32], next: &[u32]) {
        let len = ids.len();
        assert!(weights.len() == len && share.len() == len, "an id, a weight and a share for every edge");
        self.ids.resize(len, 0);
        self.weights.resize(len, 0.0);
        let (mut front, mut back) = (0, len);
        for ((&id, &weight), &share) in ids.iter().zip(weights).zip(share) {
            // No branch: which edges are positive cannot be guessed.
            let positive = share.to_bits() != 0;
            let at = if positive { front } else { back - 1 };
            (self.ids[at], self.weights[at]) = (id, weight);
            front += usize::from(positive);
            back -= usize::from(!positive);
        }
        self.positive = front;
        self.ids.extend(next.iter().take(EDGES_AHEAD));
    }
}
