//! How the parts of a layer come together, and the layers: all of it is off unless asked for.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, GraphBackend, combine, row_dots};
use serde::{Deserialize, Serialize};

use crate::config::{Jump, Norm, Stage2Model};
use crate::error::Result;
use crate::models::layer_norm::LayerNorm;
use crate::models::parameters::{Export, Init, Parameters};

/// What a model does beside the published layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Whether a layer whose input is as wide as its result adds a node's input to what arrives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub residual: bool,
    /// Whether a node weighs its own transform against what arrives, where its type has one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gate: bool,
    /// What is done to a row before the activation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub norm: Norm,
    /// Which layers the head reads.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jump: Jump,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Connections {
    /// Those that a configuration asks for.
    pub fn of(model: &Stage2Model) -> Self {
        let &Stage2Model { residual, gate, norm, jump, .. } = model;
        Self { residual, gate, norm, jump }
    }
}

impl Jump {
    /// Width of what the head reads, given those of both layers.
    pub fn width(self, [hidden, output]: [usize; 2]) -> usize {
        match self {
            Jump::None | Jump::Max => output,
            Jump::Concat => hidden + output,
        }
    }

    /// What the head reads: `hidden` are the rows of the first layer that belong to `result`.
    pub(super) fn join<B: Backend>(self, hidden: impl FnOnce() -> Tensor<B, 2>, result: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            _ if self == Jump::None || result.dims()[0] == 0 => result,
            Jump::Max => result.max_pair(hidden()),
            _ => Tensor::cat(vec![hidden(), result], 1),
        }
    }
}

/// The parameters of a layer's connections.
#[derive(Module, Debug)]
pub(super) struct LayerConnections<B: Backend> {
    norm: Option<LayerNorm<B>>,
    /// By node type `[2 * out]`: for what a node has of itself, then for what arrives.
    gates: Vec<Option<Param<Tensor<B, 1>>>>,
}

/// The names of the scale and the shift of a layer's normalisation, the layer counted from 0.
pub(crate) fn norm_names(layer: usize) -> [String; 2] {
    ["scale", "shift"].map(|part| format!("gat{}.norm_{part}", layer + 1))
}

/// The name of the gate of a node type in a layer, counted from 0.
pub(crate) fn gate_name(layer: usize, node_type: &str) -> String {
    format!("gat{}.gate_{node_type}", layer + 1)
}

impl<B: Backend> LayerConnections<B> {
    /// Of a layer as published.
    pub fn none() -> Self {
        Self { norm: None, gates: Vec::new() }
    }

    /// Builds the parameters of a layer of `output` columns; `own` are the types with a transform of their own.
    pub fn new(
        layer: usize,
        connections: &Connections,
        own: &[Option<String>],
        output: usize,
        parameters: &mut Parameters<B>,
    ) -> Result<Self> {
        let norm = match connections.norm {
            Norm::None => None,
            Norm::Layer => Some(LayerNorm::new(norm_names(layer), output, parameters)?),
        };
        let mut gate = |name: &Option<String>| {
            let name = name.as_ref().map(|name| gate_name(layer, name));
            name.map(|name| parameters.vector(&name, 2 * output, Init::xavier_normal(2 * output, 1))).transpose()
        };
        let own = if connections.gate { own } else { &[] };
        let gates = own.iter().map(&mut gate).collect::<Result<_>>()?;
        Ok(Self { norm, gates })
    }

    /// Adds the parameters under their names.
    pub fn export(&self, layer: usize, own: &[Option<String>], export: &mut Export) {
        if let Some(norm) = &self.norm {
            norm.export(norm_names(layer), export);
        }
        for (gate, name) in self.gates.iter().zip(own) {
            if let (Some(gate), Some(name)) = (gate, name) {
                export.vector(gate_name(layer, name), gate);
            }
        }
    }

    /// Whether a type has nothing here.
    pub fn is_none(&self, node_type: usize) -> bool {
        self.norm.is_none() && !self.has_gate(node_type)
    }

    pub fn has_gate(&self, node_type: usize) -> bool {
        self.gate(node_type).is_some()
    }

    fn gate(&self, node_type: usize) -> Option<&Param<Tensor<B, 1>>> {
        self.gates.get(node_type)?.as_ref()
    }
}

impl<B: GraphBackend> LayerConnections<B> {
    /// `beta own + (1 - beta) arrived` with `beta = sigmoid(<g, (own, arrived)>)`, a number per row.
    pub fn gated(&self, node_type: usize, own: Tensor<B, 2>, arrived: Tensor<B, 2>) -> Tensor<B, 2> {
        let Some(gate) = self.gate(node_type) else { return own + arrived };
        let width = own.dims()[1];
        let score = |x: &Tensor<B, 2>, first: usize| {
            row_dots(x.clone(), gate.val().narrow(0, first * width, width).reshape([1, width]))
        };
        let beta = sigmoid(score(&own, 0) + score(&arrived, 1));
        let beta = if own.dtype() == beta.dtype() { beta } else { beta.cast(own.dtype()) };
        arrived.clone() + (own - arrived) * beta
    }

    /// The end of a layer: normalised, if it is, and activated.
    pub fn finished(&self, z: Tensor<B, 2>) -> Tensor<B, 2> {
        let z = self.norm.as_ref().map_or_else(|| z.clone(), |norm| norm.of(z.clone()));
        combine(vec![z], None, 1.0, Activation::Elu)
    }
}
