//! What [`gatv2`](super::gatv2) reads and leaves, as primitives.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::{Slice, TensorMetadata};

use crate::graph::csr::Csr;
use crate::ops::gat::GatArgs;
use crate::ops::gat::edges::EdgeParts;

/// What the forward pass reads.
#[derive(Clone, Debug)]
pub struct V2Inputs<F, I> {
    /// `[num_cols, heads * channels]`.
    pub src: F,
    /// `[num_rows, heads * channels]`.
    pub dst: F,
    /// `[1 + columns, heads * channels]`, f32: the attention vectors, and below them the projection of what edges
    /// carry.
    pub parameters: F,
    /// What edges carry, if anything. Its parameters are frequencies and phases; without any they are not read.
    pub edges: EdgeParts<F, I>,
    /// Whether messages have what edges carry, projected, too.
    pub messages: bool,
}

/// All heads of a layer, of which some are attended by at a time.
#[derive(Clone, Debug)]
pub(crate) struct V2Heads<F, I> {
    /// As in [`V2Inputs`], of all heads, and so are the parameters.
    pub src: F,
    pub parameters: F,
    pub edges: EdgeParts<F, I>,
    pub messages: bool,
    pub args: GatArgs,
    /// Heads at a time; the last may be fewer.
    pub together: usize,
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

/// Which gradients of what edges carry the pass over destinations is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct V2Wanted {
    pub values: bool,
    /// Of frequencies and phases.
    pub angles: bool,
}

/// What the backward pass over destinations gives.
#[derive(Clone, Debug)]
pub struct V2RowGradients<F> {
    /// Of [`V2Inputs::dst`].
    pub dst: F,
    /// Of the parameters, f32.
    pub parameters: F,
    /// Of frequencies and then phases, f32, where asked for.
    pub angles: Option<F>,
    /// Of the values, where asked for.
    pub values: Option<F>,
}

impl<F, I> V2Inputs<F, I> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> V2Inputs<G, I> {
        let (src, dst, parameters) = (f(self.src), f(self.dst), f(self.parameters));
        V2Inputs { src, dst, parameters, edges: self.edges.map(&f), messages: self.messages }
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

impl<F, I> V2Heads<F, I> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> V2Heads<G, I> {
        V2Heads {
            src: f(self.src),
            parameters: f(self.parameters),
            edges: self.edges.map(&f),
            messages: self.messages,
            args: self.args,
            together: self.together,
        }
    }
}

impl<F: Clone + TensorMetadata, I: Clone> V2Heads<F, I> {
    /// Heads times channels.
    pub(crate) fn width(&self) -> usize {
        self.src.shape()[1]
    }

    /// Heads that are attended by together.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let (heads, together) = (self.args.heads, self.together);
        (0..heads).step_by(together).map(move |first| first..heads.min(first + together))
    }

    /// The columns of some heads of a matrix that has those of all.
    pub(crate) fn columns<B: Backend<FloatTensorPrimitive = F>>(&self, matrix: &F, heads: &Range<usize>) -> F {
        if heads.len() == self.args.heads {
            return matrix.clone();
        }
        let [rows, columns] = [matrix.shape()[0], matrix.shape()[1]];
        let of_head = columns / self.args.heads;
        let own = heads.start * of_head..heads.end * of_head;
        B::float_slice(matrix.clone(), &[Slice::from(0..rows), Slice::from(own)])
    }

    /// What some heads read, and their settings; `dst` has the destinations of all.
    pub(crate) fn part<B: Backend<FloatTensorPrimitive = F, IntTensorPrimitive = I>>(
        &self,
        dst: &F,
        heads: &Range<usize>,
    ) -> (V2Inputs<F, I>, GatArgs) {
        let [src, dst, parameters] = [&self.src, dst, &self.parameters].map(|matrix| self.columns::<B>(matrix, heads));
        let attention_dropout = self.args.attention_dropout;
        let attention_dropout = attention_dropout.map(|dropout| dropout.of_heads(self.args.heads, heads.start));
        let args = GatArgs { heads: heads.len(), attention_dropout, ..self.args };
        (V2Inputs { src, dst, parameters, edges: self.edges.clone(), messages: self.messages }, args)
    }
}

impl<F, I> V2Backward<F, I> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> V2Backward<G, I> {
        V2Backward { g: f(self.g), inputs: self.inputs.map(&f), log_sum_exp: f(self.log_sum_exp), delta: f(self.delta) }
    }
}

impl<F> V2RowGradients<F> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> V2RowGradients<G> {
        V2RowGradients {
            dst: f(self.dst),
            parameters: f(self.parameters),
            angles: self.angles.map(&f),
            values: self.values.map(&f),
        }
    }
}
