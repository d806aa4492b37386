//! Trainings in parts: how far one call goes, and what the validation labels say of the model by then.

use std::path::PathBuf;
use std::time::Instant;

use crate::metrics::ClassReport;

/// How far one call of a training goes. The rest can be gone on with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Of all epochs or trees, in [0, 1], with those of earlier calls.
    pub share: f64,
    /// When a training stops: networks at the end of an epoch, trees before the next tree.
    pub deadline: Option<Instant>,
}

impl Stretch {
    /// Trains nothing: what was trained before is all there is.
    pub const NONE: Self = Self { share: 0.0, deadline: None };

    /// The share of so many epochs or trees, rounded up.
    pub fn of(&self, all: usize) -> usize {
        ((self.share * all as f64).ceil() as usize).min(all)
    }

    /// The same with one of `parts` equal parts of the time that is left.
    pub fn divided(self, parts: u32) -> Self {
        let now = Instant::now();
        let deadline = self.deadline.map(|deadline| now + deadline.saturating_duration_since(now) / parts.max(1));
        Self { deadline, ..self }
    }

    /// Whether the time is over.
    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// A model that was trained as far as a [`Stretch`] goes, and judged by the validation part alone.
#[derive(Clone, Debug)]
pub struct Validated {
    /// Where it can be gone on with.
    pub run: PathBuf,
    pub judged: Judged,
    /// Scores of the other nodes that were asked about; of classes none.
    pub also: Vec<f32>,
    /// Epochs or trees so far.
    pub done: usize,
    /// Whether nothing is left to train.
    pub complete: bool,
}

/// What a model says about the validation labels.
#[derive(Clone, Debug)]
pub enum Judged {
    /// A score for each label that is anomalous (1) or normal (0).
    Anomalies { scores: Vec<f32>, labels: Vec<u8> },
    /// Predicted classes.
    Classes(ClassReport),
}

impl Judged {
    /// Scores by node of the labels `part`.
    pub fn of(scores: &[f32], part: &[(u32, u8)]) -> Self {
        let (scores, labels) = part.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
        Self::Anomalies { scores, labels }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_that_is_left_is_divided() {
        let now = Instant::now();
        let stretch = Stretch { share: 0.5, deadline: Some(now + Duration::from_secs(600)) };
        let own = stretch.divided(6);
        let time = own.deadline.unwrap() - now;
        assert!(time <= Duration::from_secs(110) && time > Duration::from_secs(60), "{time:?}");
        assert_eq!(own.share, 0.5);
        assert!(Stretch { share: 0.5, deadline: Some(now) }.divided(3).is_late());
        assert_eq!(Stretch::NONE.divided(3), Stretch::NONE);
    }

    #[test]
    fn a_share_is_rounded_up_and_never_more_than_all() {
        let of = |share: f64, all: usize| Stretch { share, deadline: None }.of(all);
        assert_eq!([of(0.0, 7), of(0.25, 7), of(0.5, 7), of(1.0, 7), of(0.1, 1)], [0, 2, 4, 7, 1]);
    }
}
