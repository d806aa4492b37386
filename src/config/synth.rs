//! `[synth]`: the synthetic marketplace of a pipeline.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ranges::{positive, seed};
use crate::error::{Error, Result, nearest_name};

/// `[synth]`: the synthetic marketplace of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PipelineSynth {
    /// Shape of the marketplace. Default `quickstart`.
    pub preset: Preset,
    /// Factor on the number of nodes of the preset, above 0. Default 1.
    #[serde(deserialize_with = "positive")]
    pub scale: f64,
    /// Seed of the generator. Default: the run's seed.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
}

/// Marketplaces of known sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// 5,000 nodes: seconds on a laptop.
    Quickstart,
    /// 15,937 nodes, the size of Amazon Luxury Beauty.
    LuxuryBeauty,
    /// 1,540,475 nodes, the size of Amazon Electronics.
    Electronics,
}

impl Preset {
    /// All presets, smallest first.
    pub const ALL: [Preset; 3] = [Preset::Quickstart, Preset::LuxuryBeauty, Preset::Electronics];

    /// Name on the command line, e.g. `luxury-beauty`.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Quickstart => "quickstart",
            Preset::LuxuryBeauty => "luxury-beauty",
            Preset::Electronics => "electronics",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(preset) = Self::ALL.into_iter().find(|preset| preset.name() == text) {
            return Ok(preset);
        }
        Err(Error::Usage {
            argument: "preset".into(),
            expected: Self::ALL.map(Preset::name).join(", "),
            found: format!("{text:?}"),
            help: match nearest_name(text, Self::ALL.map(Preset::name)) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => "`graphsieve synth --help` says what each of them is".into(),
            },
        })
    }
}
