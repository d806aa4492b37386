//! Which epoch is kept, and when a training that no longer improves ends.

use serde::{Deserialize, Serialize};

use crate::config::Best;

/// The best validation so far. A plain value: it is part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Stored", from = "Stored")]
pub struct EarlyStopping {
    /// Lowest validation loss of all epochs; `None` before the first validation.
    pub loss: Option<f64>,
    /// Highest validation accuracy of all epochs, or average precision where that is what chooses.
    pub accuracy: f64,
    /// Validations since the last improvement.
    pub waited: usize,
}

/// [`EarlyStopping`] with numbers as their bits: decimal digits come back as a neighbouring number now and then, and a
/// resumed training would take an accuracy for better than its equal.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Stored {
    loss_bits: Option<u64>,
    accuracy_bits: u64,
    waited: usize,
}

impl From<EarlyStopping> for Stored {
    fn from(EarlyStopping { loss, accuracy, waited }: EarlyStopping) -> Self {
        Self { loss_bits: loss.map(f64::to_bits), accuracy_bits: accuracy.to_bits(), waited }
    }
}

impl From<Stored> for EarlyStopping {
    fn from(Stored { loss_bits, accuracy_bits, waited }: Stored) -> Self {
        Self { loss: loss_bits.map(f64::from_bits), accuracy: f64::from_bits(accuracy_bits), waited }
    }
}

/// What one validation means for the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The model is the best one so far and is to be kept.
    pub keep: bool,
    /// Patience is at its end.
    pub stop: bool,
}

impl EarlyStopping {
    /// Before the first validation.
    pub fn new() -> Self {
        Self { loss: None, accuracy: 0.0, waited: 0 }
    }

    /// Takes the figures of a validation; `accuracy` is the average precision with [`Best::AveragePrecision`].
    ///
    /// With [`Best::Both`] an epoch is kept when loss and accuracy are at least as good as ever, and patience starts
    /// anew when one of them is: the rule of the graph attention paper.
    pub fn observe(&mut self, best: Best, patience: Option<usize>, loss: f64, accuracy: f64) -> Verdict {
        let Some(lowest) = self.loss else {
            *self = Self { loss: Some(loss), accuracy, waited: 0 };
            return Verdict { keep: true, stop: false };
        };
        let (keep, improved) = match best {
            Best::Loss => (loss < lowest, loss < lowest),
            Best::Accuracy | Best::AveragePrecision => {
                let better = accuracy > self.accuracy || (accuracy == self.accuracy && loss < lowest);
                (better, better)
            }
            Best::Both => {
                let (loss, accuracy) = (loss <= lowest, accuracy >= self.accuracy);
                (loss && accuracy, loss || accuracy)
            }
        };
        // With `accuracy`, the loss to beat is that of the kept epoch, not the lowest of all.
        self.loss = Some(if matches!(best, Best::Accuracy | Best::AveragePrecision) && !keep {
            lowest
        } else if keep {
            loss
        } else {
            lowest.min(loss)
        });
        self.accuracy = self.accuracy.max(accuracy);
        self.waited = if improved { 0 } else { self.waited + 1 };
        Verdict { keep, stop: self.is_over(patience) }
    }

    /// Whether patience is at its end.
    pub fn is_over(&self, patience: Option<usize>) -> bool {
        patience.is_some_and(|patience| self.waited >= patience)
    }
}

impl Default for EarlyStopping {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of the validations that are kept, and of the one that ends the training.
    fn kept(best: Best, patience: usize, validations: &[(f64, f64)]) -> (Vec<usize>, Option<usize>) {
        let mut stopping = EarlyStopping::new();
        let mut kept = Vec::new();
        for (at, &(loss, accuracy)) in validations.iter().enumerate() {
            let Verdict { keep, stop } = stopping.observe(best, Some(patience), loss, accuracy);
            if keep {
                kept.push(at);
            }
            if stop {
                return (kept, Some(at));
            }
        }
        (kept, None)
    }

    #[test]
    fn the_lowest_loss_is_kept_and_patience_counts_from_it() {
        let losses = [(3.0, 0.0), (2.0, 0.0), (2.0, 0.9), (2.5, 0.9), (1.0, 0.0)];
        assert_eq!(kept(Best::Loss, 2, &losses), (vec![0, 1], Some(3)));
        assert_eq!(kept(Best::Loss, 3, &losses), (vec![0, 1, 4], None));
    }

    #[test]
    fn a_checkpoint_keeps_every_bit() {
        for at in 1..2_000 {
            let stopping =
                EarlyStopping { loss: Some(1.0 / f64::from(at)), accuracy: f64::from(at) / 2_003.0, waited: 3 };
            let text = serde_json::to_string(&stopping).unwrap();
            assert_eq!(serde_json::from_str::<EarlyStopping>(&text).unwrap(), stopping);
        }
        let new = EarlyStopping::new();
        assert_eq!(serde_json::from_str::<EarlyStopping>(&serde_json::to_string(&new).unwrap()).unwrap(), new);
    }

    #[test]
    fn of_equal_accuracies_the_lower_loss_is_kept() {
        let validations = [(3.0, 0.5), (1.0, 0.4), (2.0, 0.5), (2.5, 0.5), (9.0, 0.6)];
        assert_eq!(kept(Best::Accuracy, 9, &validations), (vec![0, 2, 4], None));
        assert_eq!(kept(Best::AveragePrecision, 9, &validations), (vec![0, 2, 4], None));
    }

    #[test]
    fn both_have_to_be_as_good_to_be_kept_and_one_is_enough_to_go_on() {
        let validations = [(3.0, 0.5), (2.0, 0.4), (4.0, 0.6), (2.0, 0.6), (2.1, 0.5), (2.2, 0.5)];
        assert_eq!(kept(Best::Both, 2, &validations), (vec![0, 3], Some(5)));
    }
}
