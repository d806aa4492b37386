//! What edges carry, and what attention layers make of their ages.

use std::f64::consts::TAU;

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Age, MAX_EDGE_COLUMNS, TimeEncoding};

use super::initial::Initial;

/// What edges carry, in the order of their adjacency.
#[derive(Clone, Debug)]
pub struct EdgeFeatures<B: Backend> {
    /// `[num_edges, edge_channels]`, f32, f16 or bf16.
    pub values: Option<Tensor<B, 2>>,
    /// Their ages, in seconds.
    pub age: Option<Age<B>>,
}

impl<B: Backend> EdgeFeatures<B> {
    /// Nothing.
    pub fn none() -> Self {
        Self { values: None, age: None }
    }

    /// With values as `dtype`, that of the features of nodes beside them.
    pub(crate) fn of_dtype(self, dtype: DType) -> Self {
        let of_dtype = |values: Tensor<B, 2>| match values.dims()[0] {
            _ if values.dtype() == dtype => values,
            // Some devices do not take a launch over nothing.
            0 => Tensor::empty(values.dims(), (&values.device(), dtype)),
            _ => values.cast(dtype),
        };
        Self { values: self.values.map(of_dtype), ..self }
    }

    /// What their ages become, where there are any and `encoder` reads them.
    pub(crate) fn encoding(&self, encoder: Option<&TimeEncoder<B>>) -> Option<TimeEncoding<B>> {
        encoder.zip(self.age.as_ref()).map(|(encoder, age)| encoder.encoding(age))
    }
}

impl<B: Backend> From<Tensor<B, 2>> for EdgeFeatures<B> {
    fn from(values: Tensor<B, 2>) -> Self {
        Self { values: Some(values), age: None }
    }
}

/// How a layer reads the age `t` of an edge, in seconds: `ln(1 + max(t, 0))`, and cosines `cos(exp(log_frequency_k) t +
/// phase_k)`. Frequencies lie orders of magnitude apart, so that the same step suits their logarithms alone.
///
/// # Source
/// Xu et al., Inductive representation learning on temporal graphs (ICLR 2020), equation 5.
#[derive(Module, Debug)]
pub struct TimeEncoder<B: Backend> {
    /// `[cosines]`: the logarithms of frequencies in radians a second.
    pub log_frequency: Param<Tensor<B, 1>>,
    /// `[cosines]`, in radians.
    pub phase: Param<Tensor<B, 1>>,
    /// Whether both get a gradient.
    pub learned: bool,
}

impl<B: Backend> TimeEncoder<B> {
    /// Frequencies in geometric progression between those of the two periods, and phases 0.
    pub(super) fn new(layer: &str, cosines: usize, periods: [f64; 2], initial: &Initial<'_, B>) -> Self {
        let fits = (1..=MAX_EDGE_COLUMNS).contains(&cosines);
        assert!(fits, "{layer}: time_cosines: expected 1 to {MAX_EDGE_COLUMNS}, got {cosines}");
        assert!(periods.iter().all(|period| *period > 0.0), "{layer}: time_periods: expected seconds, got {periods:?}");
        let log_frequency = initial.even(cosines, periods.map(|period| (TAU / period).ln()));
        Self { log_frequency, phase: initial.zeros(cosines), learned: true }
    }

    /// Columns that an age becomes.
    pub fn columns(&self) -> usize {
        1 + self.phase.dims()[0]
    }

    /// What an age becomes.
    pub fn encoding(&self, age: &Age<B>) -> TimeEncoding<B> {
        let of =
            |parameter: &Param<Tensor<B, 1>>| if self.learned { parameter.val() } else { parameter.val().detach() };
        let (frequency, phase) = (of(&self.log_frequency).exp(), of(&self.phase));
        TimeEncoding { age: age.clone(), log_age: true, frequency, phase }
    }
}
