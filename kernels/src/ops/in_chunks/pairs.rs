//! Attention with a score behind the non-linearity: sources are projected before, destinations chunk by chunk.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};

use super::{ChunkBackend, beside, own_rows};
use crate::graph::csr::Csr;
use crate::graph::node_set::NodeSet;
use crate::ops::combine::Activation;
use crate::ops::gat::v2::V2Heads;

#[derive(Clone, Debug)]
pub(super) struct Pairs<B: Backend> {
    pub csr: Csr<B>,
    pub heads: V2Heads<FloatTensor<B>, IntTensor<B>>,
    /// The rows of the destinations before their projection, out of those of `from`.
    pub x: FloatTensor<B>,
    pub from: Option<NodeSet<B>>,
    /// Of the projection, `[1, width]`, f32.
    pub bias: Option<FloatTensor<B>>,
}

impl<B: ChunkBackend> Pairs<B> {
    /// Rows of destinations, projected.
    pub fn projected(&self, rows: FloatTensor<B>, weight: &FloatTensor<B>) -> FloatTensor<B> {
        let rows = B::product(rows, weight.clone());
        match &self.bias {
            Some(bias) => B::combine_forward(vec![rows], Some(bias.clone()), 1.0, Activation::Identity),
            None => rows,
        }
    }

    /// The attended rows of `nodes`; `weight` projects destinations.
    pub fn part(&self, nodes: &NodeSet<B>, weight: &FloatTensor<B>) -> FloatTensor<B> {
        let view = self.csr.view_of(nodes);
        let dst = self.projected(own_rows::<B>(&self.x, self.from.as_ref(), nodes), weight);
        let of_group = |group: Range<usize>| {
            let (inputs, args) = self.heads.part::<B>(&dst, &group);
            B::gatv2_forward(&view, inputs.of_rows(&self.csr), args).out
        };
        beside::<B>(self.heads.groups().map(of_group).collect())
    }
}
