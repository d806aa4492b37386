//! Passes over few rows of a network that is not trained any more.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::GraphBackend;

use super::{AttentionLayer, Pass, Source, TripleStreamGat};
use crate::models::crossing::AtHand;
use crate::models::device_graph::DeviceGraph;
use crate::models::receptive_field::ReceptiveField;

/// What the layers make of parameters that nothing changes any more: for few rows it takes longer than they do.
#[derive(Clone, Debug)]
pub struct Frozen<B: Backend> {
    layers: Vec<FrozenLayer<B>>,
}

#[derive(Clone, Debug)]
pub(super) struct FrozenLayer<B: Backend> {
    /// By stream, what its attention vectors mean for an input row.
    pub vectors: Vec<Tensor<B, 2>>,
    /// By node type, the weight of its nodes themselves as the sum reads it.
    pub own: Vec<Option<Tensor<B, 2>>>,
}

impl<B: GraphBackend> TripleStreamGat<B> {
    /// What [`embed_frozen`](Self::embed_frozen) reads, for graphs into whose types so many streams lead.
    pub fn freeze(&self, streams_into: &[usize]) -> Frozen<B> {
        let of_layer = |layer: &AttentionLayer<B>| FrozenLayer {
            vectors: layer.streams.iter().map(|stream| stream.score_vectors(self.heads)).collect(),
            own: streams_into.iter().enumerate().map(|(t, &streams)| self.own_of(layer, t, streams)).collect(),
        };
        Frozen { layers: self.layers.iter().map(of_layer).collect() }
    }

    /// What [`embed`](Self::embed) makes in a pass that drops nothing, to the bit.
    pub fn embed_frozen(
        &self,
        frozen: &Frozen<B>,
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        x: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let blocks = field.blocks(graph, |_, _| None);
        blocks.iter().zip(&frozen.layers).enumerate().fold(x.to_vec(), |h, (at, (block, frozen))| {
            let mut results = Vec::with_capacity(h.len());
            let source = Source { block, h: &AtHand(&h), pass: Pass::default(), frozen: Some(frozen) };
            self.rows_of(at, &source, |_, result| results.push(result));
            results
        })
    }
}
