//! The encoding of the age of an edge.

use std::f64::consts::TAU;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Age, TimeEncoding};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::models::parameters::{Export, Init, Parameters};

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

/// Frequencies and phases of a relation in a layer: `cos(exp(log_frequency_k) age + phase_k)`. Frequencies lie orders
/// of magnitude apart, so that the same step suits their logarithms alone.
#[derive(Module, Debug)]
pub(super) struct TimeParameters<B: Backend> {
    /// `[cosines]`: the logarithms of frequencies in radians a second.
    log_frequency: Param<Tensor<B, 1>>,
    /// `[cosines]`, in radians.
    phase: Param<Tensor<B, 1>>,
    learned: bool,
}

/// The names of log-frequencies and phases of a relation in a layer, counted from 0.
pub(crate) fn time_names(layer: usize, relation: &str) -> [String; 2] {
    ["log_frequency", "phase"].map(|part| format!("gat{}.time_{part}_{relation}", layer + 1))
}

impl<B: Backend> TimeParameters<B> {
    /// A new model has frequencies in geometric progression between those of the two periods, and phases 0.
    pub fn new(layer: usize, relation: &str, input: &TimeInput, parameters: &mut Parameters<B>) -> Result<Self> {
        let [frequency, phase] = time_names(layer, relation);
        let [from, to] = input.periods.map(|period| (TAU / period).ln());
        Ok(Self {
            log_frequency: parameters.vector(&frequency, input.frequencies, Init::Even { from, to })?,
            phase: parameters.vector(&phase, input.frequencies, Init::Zeros)?,
            learned: input.learned,
        })
    }

    pub fn export(&self, layer: usize, relation: &str, export: &mut Export) {
        let [frequency, phase] = time_names(layer, relation);
        export.vector(frequency, &self.log_frequency);
        export.vector(phase, &self.phase);
    }

    /// What an age becomes.
    pub fn encoding(&self, age: &Age<B>) -> TimeEncoding<B> {
        let of =
            |parameter: &Param<Tensor<B, 1>>| if self.learned { parameter.val() } else { parameter.val().detach() };
        let (frequency, phase) = (of(&self.log_frequency).exp(), of(&self.phase));
        TimeEncoding { age: age.clone(), log_age: true, frequency, phase }
    }
}
