//! The part of the labels that figures are about, and whether it may be shown.

use clap::ValueEnum;
use serde::Serialize;

use crate::error::{Error, Result};

/// Labels that the figures are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SplitPart {
    /// Labels that nothing was chosen on
    Test,
    /// Labels on which checkpoint and threshold were chosen; of a model that was grown anew on them (model.refit) with
    /// --include-train only
    Validation,
    /// With --include-train only
    Train,
    /// With --include-train only
    All,
}

impl SplitPart {
    /// Whether a model has learned from these labels; one that was grown anew (`refit`) also from those of validation.
    fn is_learned(self, refit: bool) -> bool {
        match self {
            SplitPart::Test => false,
            SplitPart::Validation => refit,
            SplitPart::Train | SplitPart::All => true,
        }
    }

    pub(super) fn in_words(self, refit: bool) -> &'static str {
        match self {
            SplitPart::Test => "test labels",
            SplitPart::Validation if refit => "validation labels: these figures flatter the model",
            SplitPart::Validation => "validation labels, on which the threshold or the epoch was chosen",
            SplitPart::Train => "training labels: these figures flatter the model",
            SplitPart::All => "all labels, those of the training included: these figures flatter the model",
        }
    }
}

/// Labels that a model has learned are shown only to those who say that they know; `refit` as for
/// [`SplitPart::is_learned`].
pub(super) fn part(split: Option<SplitPart>, include_train: bool, refit: bool) -> Result<SplitPart> {
    let refuse = |argument: &str, expected: &str, found: &str, help: &str| {
        let [argument, expected, found, help] = [argument, expected, found, help].map(String::from);
        Err(Error::Usage { argument, expected, found, help })
    };
    match (split, include_train) {
        (None, true) => Ok(SplitPart::All),
        (None, false) => Ok(SplitPart::Test),
        (Some(part), _) if part.is_learned(refit) == include_train => Ok(part),
        (Some(SplitPart::Validation), false) => {
            let help = "the model was grown anew on training and validation labels; to see these figures anyway, add \
                        --include-train";
            refuse("--split", "test", "validation, which this model has learned, without --include-train", help)
        }
        (Some(_), false) => {
            let help = "the model was fitted to the training labels; to see these figures anyway, add --include-train";
            refuse("--split", "test or validation", "a part with training labels, without --include-train", help)
        }
        (Some(_), true) => {
            let help = "leave --include-train out, or ask for --split all";
            refuse("--include-train", "--split all or train", "a part without training labels", help)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_labels_need_a_word_of_their_own() {
        for refit in [false, true] {
            assert_eq!(part(None, false, refit).unwrap(), SplitPart::Test);
            assert_eq!(part(None, true, refit).unwrap(), SplitPart::All);
            for wanted in [SplitPart::Train, SplitPart::Validation, SplitPart::Test, SplitPart::All] {
                let is_learned = match wanted {
                    SplitPart::Test => false,
                    SplitPart::Validation => refit,
                    SplitPart::Train | SplitPart::All => true,
                };
                assert_eq!(part(Some(wanted), is_learned, refit).unwrap(), wanted);
                assert_eq!(part(Some(wanted), !is_learned, refit).unwrap_err().exit_code(), 2);
            }
        }
    }
}
