//! Trainings in parts: how far one call goes, and what the validation labels say of the model by then.

use std::path::PathBuf;
use std::time::Instant;

use crate::error::Result;
use crate::metrics::ClassReport;
use crate::run::ensemble::mean_score;
use crate::run::evaluation::class_report;

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
    /// Epochs or trees so far; of several trainings all of theirs.
    pub done: usize,
    /// Whether nothing is left to train.
    pub complete: bool,
}

/// What a model says about the validation labels.
#[derive(Clone, Debug)]
pub enum Judged {
    /// A score for each label that is anomalous (1) or normal (0).
    Anomalies { scores: Vec<f32>, labels: Vec<u8> },
    /// Probabilities of all `classes`, row by row, for each label.
    Classes { probabilities: Vec<f32>, labels: Vec<u32>, classes: usize },
}

impl Validated {
    /// Trainings that differ in their seed alone, as one whose scores or probabilities are the mean of theirs; one
    /// training is itself.
    ///
    /// # Panics
    /// For no training, and for some that are judged by other labels.
    pub fn mean(of: Vec<Self>) -> Self {
        let lengths = |one: &Self| (one.judged.values().len(), one.also.len());
        let are_same = of.windows(2).all(|pair| lengths(&pair[0]) == lengths(&pair[1]));
        assert!(are_same, "trainings of one candidate are judged by the same labels");
        let values = mean_score(&of.iter().map(|one| one.judged.values().clone()).collect::<Vec<_>>());
        let also = mean_score(&of.iter().map(|one| one.also.clone()).collect::<Vec<_>>());
        let (done, complete) = (of.iter().map(|one| one.done).sum(), of.iter().all(|one| one.complete));
        let first = of.into_iter().next().unwrap_or_else(|| panic!("at least one training"));
        Self { run: first.run, judged: first.judged.with(values), also, done, complete }
    }
}

impl Judged {
    /// Scores by node of the labels `part`.
    pub fn of(scores: &[f32], part: &[(u32, u8)]) -> Self {
        let (scores, labels) = part.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
        Self::Anomalies { scores, labels }
    }

    /// Rows of `probabilities`, of all nodes and `classes`, of the labels `part`.
    pub fn of_classes(probabilities: &[f32], classes: usize, part: &[(u32, u32)]) -> Self {
        let row = |&(node, _): &(u32, u32)| &probabilities[node as usize * classes..][..classes];
        let labels = part.iter().map(|&(_, class)| class).collect();
        Self::Classes { probabilities: part.iter().flat_map(row).copied().collect(), labels, classes }
    }

    /// Scores or probabilities.
    fn values(&self) -> &Vec<f32> {
        match self {
            Self::Anomalies { scores, .. } => scores,
            Self::Classes { probabilities, .. } => probabilities,
        }
    }

    /// The same labels with other scores or probabilities.
    fn with(self, values: Vec<f32>) -> Self {
        match self {
            Self::Anomalies { labels, .. } => Self::Anomalies { scores: values, labels },
            Self::Classes { labels, classes, .. } => Self::Classes { probabilities: values, labels, classes },
        }
    }
}

/// Figures of probabilities of all `classes`, row by row, for each of the `labels`.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) without labels, or for a class that there is no probability of.
pub fn report_of(probabilities: &[f32], labels: &[u32], classes: usize) -> Result<ClassReport> {
    class_report(probabilities, classes, &(0..).zip(labels.iter().copied()).collect::<Vec<_>>())
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

    fn trained(judged: Judged, also: &[f32], done: usize, complete: bool) -> Validated {
        Validated { run: PathBuf::from("run"), judged, also: also.to_vec(), done, complete }
    }

    #[test]
    fn the_mean_of_trainings_is_judged_by_the_mean_of_their_scores() {
        let part = [(2u32, 1u8), (0, 0)];
        let of = |scores: [f32; 3], also: f32, complete| trained(Judged::of(&scores, &part), &[also], 10, complete);
        let all =
            vec![of([0.25, 0.9, 0.5], 0.125, true), of([0.75, 0.9, 1.0], 0.25, true), of([0.5, 0.0, 0.0], 0.75, false)];
        let mean = Validated::mean(all.clone());
        let Judged::Anomalies { scores, labels } = &mean.judged else { panic!("anomalies") };
        assert_eq!((&scores[..], &labels[..]), (&[0.5, 0.5][..], &[1, 0][..]));
        assert_eq!((&mean.also[..], mean.done, mean.complete), (&[0.375][..], 30, false));
        let one = Validated::mean(all[..1].to_vec());
        let Judged::Anomalies { scores, .. } = &one.judged else { panic!("anomalies") };
        assert_eq!((&scores[..], one.done, one.complete), (&[0.5, 0.25][..], 10, true), "one is itself");
    }

    #[test]
    fn the_mean_of_probabilities_can_find_a_class_that_one_training_misses() {
        // The last node is of class 1. One of three is certain of class 0.
        let part = [(1u32, 0u32), (2, 1)];
        let of = |last: [f32; 2]| {
            let probabilities = [0.0, 1.0, 0.75, 0.25, last[0], last[1]];
            trained(Judged::of_classes(&probabilities, 2, &part), &[], 5, true)
        };
        let all = vec![of([0.9, 0.1]), of([0.25, 0.75]), of([0.2, 0.8])];
        let report = |of: &Judged| match of {
            Judged::Classes { probabilities, labels, classes } => report_of(probabilities, labels, *classes).unwrap(),
            Judged::Anomalies { .. } => panic!("classes"),
        };
        let mean = Validated::mean(all.clone());
        assert_eq!([&all[0], &all[1], &mean].map(|of| report(&of.judged).accuracy), [0.5, 1.0, 1.0]);
        let Judged::Classes { probabilities, .. } = &mean.judged else { panic!("classes") };
        assert_eq!(probabilities[..2], [0.75, 0.25]);
        assert!((probabilities[3] - 0.55).abs() < 1e-6, "{probabilities:?}");
    }

    #[test]
    #[should_panic(expected = "judged by the same labels")]
    fn trainings_that_are_judged_by_other_labels_have_no_mean() {
        let of = |part: &[(u32, u8)]| trained(Judged::of(&[0.1, 0.2], part), &[], 1, true);
        Validated::mean(vec![of(&[(0, 1), (1, 0)]), of(&[(0, 1)])]);
    }

    #[test]
    fn a_share_is_rounded_up_and_never_more_than_all() {
        let of = |share: f64, all: usize| Stretch { share, deadline: None }.of(all);
        assert_eq!([of(0.0, 7), of(0.25, 7), of(0.5, 7), of(1.0, 7), of(0.1, 1)], [0, 2, 4, 7, 1]);
    }
}
