//! `task = "auto"`: candidates of all kinds on the same labels, and the one that ranks the validation part best.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::candidates::Candidate;
use super::load::MAX_NAME;
use super::ranges::*;
use super::reader::Document;
use super::sections::{OutputConfig, SplitConfig, Stage1Data};
use crate::error::{Result, nearest_name};

/// Longest name of a candidate that may stand behind the name of the run.
const MAX_CANDIDATE: usize = 24;

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
    pub split: SplitConfig,
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
    /// Which candidate becomes the model. Default `best`.
    pub prefer: Prefer,
}

/// Which candidate becomes the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// The one with the highest validation figure.
    Best,
    /// The simplest one whose validation figure is at most a standard error below the highest.
    Simplest,
}

impl AutoConfig {
    /// All candidates for ten minutes, on the data at `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            name: "auto".into(),
            seed: 42,
            data: Stage1Data { path: data.into(), window: 1 },
            auto: AutoSettings { minutes: 10.0, candidates: Vec::new(), prefer: Prefer::Best },
            split: SplitConfig::new(42),
            output: OutputConfig::default(),
        }
    }
}

/// Reads a document of this task.
pub(super) fn read(document: &Document) -> Result<AutoConfig> {
    const KEY: &str = "auto.candidates";
    let mut default = AutoConfig::new("");
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    let config: AutoConfig = document.read(&default, &[], &[])?;
    document.check_name(&config.name, MAX_NAME - MAX_CANDIDATE)?;
    document.check_path(&config.data.path)?;
    config.split.check(document)?;
    let known: Vec<&str> = Candidate::ALL.iter().map(|candidate| candidate.name).collect();
    for (at, name) in config.auto.candidates.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let help = match nearest_name(name, known.iter().copied()) {
                Some(near) => format!("there is no candidate \"{name}\"; did you mean \"{near}\"?"),
                None => format!("there is no candidate \"{name}\"; configs/README.md describes all of them"),
            };
            return Err(document.error(KEY, format!("names out of {}", known.join(", ")), help));
        }
        if config.auto.candidates[..at].contains(name) {
            return Err(document.error(KEY, "every name once", format!("\"{name}\" is there twice")));
        }
    }
    Ok(config)
}
