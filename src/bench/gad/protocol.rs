//! Splits of the labelled nodes.

use clap::ValueEnum;
use serde::Serialize;

use crate::data::split::{Split, SplitFractions};
use crate::error::Result;
use crate::graph::Labels;

/// How many of the labelled nodes are known in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// 40 % for training, 20 % for validation, 40 % for the test, the same in both classes
    Full,
    /// 20 anomalous and 80 normal nodes for training, as many for validation, the rest for the test
    Semi,
}

impl Protocol {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Full => "full",
            Protocol::Semi => "semi",
        }
    }

    /// Split number `at`, counted from 0.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when there are too few nodes of a class.
    pub(super) fn split(self, labels: &Labels, at: usize) -> Result<Split> {
        match self {
            Protocol::Full => {
                let fractions = SplitFractions { train: 0.4, validation: 0.2, test: 0.4 };
                Split::stratified(&labels.entries, |_| 0, fractions, seed(at))
            }
            Protocol::Semi => Split::few_labels(&labels.entries, [80, 20], seed(at)),
        }
    }
}

/// Seed of a split and of the models on it.
pub(super) fn seed(at: usize) -> u64 {
    3407 + 10 * at as u64
}
