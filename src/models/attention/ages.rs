//! The encoding of the age of an edge.

use std::f64::consts::TAU;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::models::parameters::{Export, Init, Parameters};
use crate::nn::TimeEncoder;

/// How ages are read: `ln(1 + age)` and cosines of it, in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeInput {
    /// Number of cosines.
    pub frequencies: usize,
    /// Whether frequencies and phases are learned; otherwise they stay as they began.
    pub learned: bool,
    /// The longest and the shortest period that a new model begins with, in seconds. No part of the shape: a checkpoint
    /// has frequencies.
    #[serde(skip)]
    pub periods: [f64; 2],
}

impl PartialEq for TimeInput {
    fn eq(&self, other: &Self) -> bool {
        (self.frequencies, self.learned) == (other.frequencies, other.learned)
    }
}

impl Eq for TimeInput {}

impl TimeInput {
    /// Columns that an age becomes.
    pub fn columns(&self) -> usize {
        1 + self.frequencies
    }
}

/// The names of log-frequencies and phases of a relation in a layer, counted from 0.
pub(crate) fn time_names(layer: usize, relation: &str) -> [String; 2] {
    ["log_frequency", "phase"].map(|part| format!("gat{}.time_{part}_{relation}", layer + 1))
}

impl TimeInput {
    /// The parameters of a relation in a layer. A new model has frequencies in geometric progression between those of
    /// the two periods, and phases 0.
    pub(super) fn encoder<B: Backend>(
        &self,
        layer: usize,
        relation: &str,
        parameters: &mut Parameters<B>,
    ) -> Result<TimeEncoder<B>> {
        let [frequency, phase] = time_names(layer, relation);
        let [from, to] = self.periods.map(|period| (TAU / period).ln());
        Ok(TimeEncoder {
            log_frequency: parameters.vector(&frequency, self.frequencies, Init::Even { from, to })?,
            phase: parameters.vector(&phase, self.frequencies, Init::Zeros)?,
            learned: self.learned,
        })
    }
}

/// Adds the parameters of a relation in a layer under their names.
pub(super) fn export_time<B: Backend>(time: &TimeEncoder<B>, layer: usize, relation: &str, export: &mut Export) {
    let [frequency, phase] = time_names(layer, relation);
    export.vector(frequency, &time.log_frequency);
    export.vector(phase, &time.phase);
}
