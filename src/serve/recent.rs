//! Where a score stands among those that were given lately.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The last scores, as many as it was made for.
#[derive(Debug)]
pub struct Recent {
    most: usize,
    scores: Mutex<Scores>,
}

#[derive(Debug, Default)]
struct Scores {
    /// As they came.
    order: VecDeque<f32>,
    /// Ascending.
    sorted: Vec<f32>,
}

impl Recent {
    /// Of the last `most` scores.
    pub fn new(most: usize) -> Self {
        Self { most, scores: Mutex::default() }
    }

    /// Adds a finite score; the oldest one leaves where there are too many.
    pub fn add(&self, score: f32) {
        if !score.is_finite() || self.most == 0 {
            return;
        }
        let mut scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner);
        if scores.order.len() == self.most
            && let Some(oldest) = scores.order.pop_front()
        {
            let at = scores.sorted.partition_point(|other| other.total_cmp(&oldest).is_lt());
            scores.sorted.remove(at);
        }
        let at = scores.sorted.partition_point(|other| other.total_cmp(&score).is_lt());
        scores.sorted.insert(at, score);
        scores.order.push_back(score);
    }

    /// Share of the recent scores that are lower, in \[0, 1\]; none where there are no scores. O(log n).
    pub fn rank(&self, score: f32) -> Option<f64> {
        let sorted = &self.scores.lock().unwrap_or_else(PoisonError::into_inner).sorted;
        let lower = sorted.partition_point(|other| *other < score);
        (!sorted.is_empty()).then(|| lower as f64 / sorted.len() as f64)
    }

    /// Number of scores that it knows.
    pub fn len(&self) -> usize {
        self.scores.lock().unwrap_or_else(PoisonError::into_inner).sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::nth;

    #[test]
    fn a_rank_is_the_share_of_lower_ones_among_the_last() {
        let recent = Recent::new(50);
        assert_eq!((recent.rank(0.5), recent.is_empty()), (None, true));
        // Few distinct values, so that there are ties.
        let scores: Vec<f32> = (0..200).map(|at| (nth(at) % 16) as f32 / 16.0 - 0.25).collect();
        for (at, &score) in scores.iter().enumerate() {
            recent.add(score);
            recent.add(f32::NAN);
            let last = &scores[(at + 1).saturating_sub(50)..=at];
            assert_eq!(recent.len(), last.len());
            for of in [-1.0, -0.0, 0.0, score, 0.4, 9.0] {
                let lower = last.iter().filter(|other| **other < of).count();
                assert_eq!(recent.rank(of), Some(lower as f64 / last.len() as f64));
            }
        }
    }
}
