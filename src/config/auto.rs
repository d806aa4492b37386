//! `task = "auto"`: candidates of all kinds on the same labels, and the best of them by the validation part, together
//! or alone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ranges::*;
use super::reader::{Document, MAX_NAME};
use super::sections::{LabelSplit, OutputConfig, Stage1Data};
use crate::error::Result;

/// What may stand behind the name of a tournament: the longest name of a candidate, and that of a stage of its own.
const MAX_BEHIND: usize = "-booster-leaf20-random-stage2".len();

/// Settings of a tournament.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoConfig {
    /// Part of the run directory's name. Default `auto`.
    pub name: String,
    /// Seed of every random choice of all candidates, 0 to 2^63 - 1. Default 42.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
    /// `[data]`
    pub data: Stage1Data,
    /// `[auto]`
    pub auto: AutoSettings,
    /// `[split]`: the same for all candidates.
    pub split: LabelSplit,
    /// `[output]`
    pub output: OutputConfig,
}

/// `[auto]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoSettings {
    /// Time for all trainings together, in minutes, above 0. Default 10.
    #[serde(deserialize_with = "positive")]
    pub minutes: f64,
    /// Names of the candidates that are tried; none stands for all that suit the data. Default none.
    pub candidates: Vec<String>,
    /// What becomes the model. Default `ensemble`.
    pub prefer: Prefer,
    /// Most candidates that an ensemble averages, 1 to 10; 1 makes none, and classes have none. Default 5.
    #[serde(deserialize_with = "between::<1, 10, _>")]
    pub ensemble: usize,
}

/// What becomes the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// The one with the highest validation figure.
    Best,
    /// The simplest one whose validation figure is at most a standard error below the highest.
    Simplest,
    /// The ensemble, where there is one, else the one with the highest validation figure.
    Ensemble,
}

impl AutoConfig {
    /// All candidates for ten minutes, on the data at `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            name: "auto".into(),
            seed: 42,
            data: Stage1Data { path: data.into(), window: 1 },
            auto: AutoSettings { minutes: 10.0, candidates: Vec::new(), prefer: Prefer::Ensemble, ensemble: 5 },
            split: LabelSplit::new(42),
            output: OutputConfig::default(),
        }
    }
}

/// Reads a document of this task; whether there are the candidates that it names is left to the caller.
pub(super) fn read(document: &Document) -> Result<AutoConfig> {
    let mut default = AutoConfig::new("");
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    let config: AutoConfig = document.read(&default, &[], &[])?;
    document.check_name(&config.name, MAX_NAME - MAX_BEHIND)?;
    document.check_path(&config.data.path)?;
    config.split.check(document)?;
    document.check_read(&config, &default, &config.split.unread())?;
    Ok(config)
}

#[cfg(test)]
mod tests;
