//! What [`gatv2`](super::gatv2) reads and leaves, as primitives.

use burn::tensor::backend::Backend;

use crate::graph::csr::Csr;
use crate::ops::gat::edges::EdgeParts;

/// What the forward pass reads.
#[derive(Clone, Debug)]
pub struct V2Inputs<F, I> {
    /// `[num_cols, heads * channels]`.
    pub src: F,
    /// `[num_rows, heads * channels]`.
    pub dst: F,
    /// Values of edges, if any. The parameters are `[1 + columns of values, heads * channels]`: the attention vectors,
    /// and below them the projection of the values.
    pub edges: EdgeParts<F, I>,
}

/// What the backward pass reads.
#[derive(Clone, Debug)]
pub struct V2Backward<F, I> {
    /// The gradient of the result.
    pub g: F,
    pub inputs: V2Inputs<F, I>,
    /// `[num_rows, heads]`, f32.
    pub log_sum_exp: F,
    /// `[num_rows, heads]`, f32: `<g_i, y_i>` per head.
    pub delta: F,
}

/// What the backward pass over destinations gives.
#[derive(Clone, Debug)]
pub struct V2RowGradients<F> {
    /// Of [`V2Inputs::dst`].
    pub dst: F,
    /// Of the parameters, f32.
    pub parameters: F,
    /// Of the values, where asked for.
    pub values: Option<F>,
}

impl<F, I> V2Inputs<F, I> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> V2Inputs<G, I> {
        V2Inputs { src: f(self.src), dst: f(self.dst), edges: self.edges.map(&f) }
    }
}

impl<F: Clone, I: Clone> V2Inputs<F, I> {
    /// For the entries of `csr`.
    pub(crate) fn of_rows<B: Backend<IntTensorPrimitive = I>>(&self, csr: &Csr<B>) -> Self {
        Self { edges: self.edges.of_rows(csr), ..self.clone() }
    }

    /// For the entries of the reverse of `csr`.
    pub(crate) fn of_reverse<B: Backend<IntTensorPrimitive = I>>(&self, csr: &Csr<B>) -> Self {
        Self { edges: self.edges.of_reverse(csr), ..self.clone() }
    }
}

impl<F, I> V2Backward<F, I> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> V2Backward<G, I> {
        V2Backward { g: f(self.g), inputs: self.inputs.map(&f), log_sum_exp: f(self.log_sum_exp), delta: f(self.delta) }
    }
}

impl<F> V2RowGradients<F> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> V2RowGradients<G> {
        V2RowGradients { dst: f(self.dst), parameters: f(self.parameters), values: self.values.map(&f) }
    }
}
