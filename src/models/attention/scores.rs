//! What the scores of attention are read from, and passes over few rows of a network that is not trained any more.

use std::cell::RefCell;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{GraphBackend, ScoreColumns, linear, row_dots};

use super::{AttentionLayer, Pass, Source, StreamAttention, TripleStreamGat};
use crate::models::crossing::AtHand;
use crate::models::device_graph::DeviceGraph;
use crate::models::receptive_field::ReceptiveField;
use crate::nn::RelationEdges;

/// Per stream and type what the scores of attention are read from; all of a type come from one pass over its rows, when
/// the first of them is asked for.
pub(super) struct AllScores<'s, B: GraphBackend> {
    source: &'s Source<'s, B>,
    /// `[2 heads, in]` by stream: those of the destinations first.
    vectors: Vec<Option<Tensor<B, 2>>>,
    /// The streams that touch a type.
    streams: Vec<Vec<usize>>,
    /// By type: of the rows after the layer, and of those before it.
    scores: RefCell<Vec<Option<[Tensor<B, 2>; 2]>>>,
    heads: usize,
}

impl<'s, B: GraphBackend> AllScores<'s, B> {
    pub fn new(layer: &AttentionLayer<B>, source: &'s Source<'s, B>, heads: usize) -> Self {
        let (block, types) = (source.block, source.h.types());
        let of_stream = |at: usize| match source.frozen {
            Some(frozen) => frozen.vectors[at].clone(),
            None => layer.streams[at].score_vectors(heads),
        };
        let vectors = (0..layer.streams.len()).map(|at| block.has_stream(at).then(|| of_stream(at))).collect();
        let mut streams: Vec<Vec<usize>> = vec![Vec::new(); types];
        for edges in &block.edges {
            for t in [edges.src, edges.dst] {
                if !streams[t].contains(&edges.stream) {
                    streams[t].push(edges.stream);
                }
            }
        }
        Self { source, vectors, streams, scores: RefCell::new(vec![None; types]), heads }
    }

    /// What the attention vectors of a stream mean for an input row.
    pub fn vectors(&self, stream: usize) -> Tensor<B, 2> {
        match &self.vectors[stream] {
            Some(vectors) => vectors.clone(),
            None => unreachable!("a relation with edges has a stream with vectors"),
        }
    }

    /// The columns of the destinations and of the sources of a relation.
    pub fn of(&self, edges: &RelationEdges<B>) -> [ScoreColumns<B>; 2] {
        [self.columns(edges.dst, 0, edges.stream), self.columns(edges.src, 1, edges.stream)]
    }

    /// The same of data, of the destinations that are left: the vectors get their gradient from them.
    pub fn of_data(&self, edges: &RelationEdges<B>) -> [ScoreColumns<B>; 2] {
        let Source { block, h, .. } = self.source;
        let scores = |x: Tensor<B, 2>, role: usize| ScoreColumns {
            scores: row_dots(x, self.vectors(edges.stream)),
            first: role * self.heads,
        };
        [scores(block.destinations(edges.dst, h.rows(edges.dst)), 0), scores(h.rows(edges.src), 1)]
    }

    fn columns(&self, node_type: usize, role: usize, stream: usize) -> ScoreColumns<B> {
        let (source, streams) = (self.source, &self.streams[node_type]);
        let mut scores = self.scores.borrow_mut();
        let of_type = scores[node_type].get_or_insert_with(|| {
            let vectors = Tensor::cat(streams.iter().map(|&stream| self.vectors(stream)).collect(), 0);
            // Over data the vectors get their gradient from the attention.
            let vectors = if source.block.reads_data { vectors.detach() } else { vectors };
            let of_rows = row_dots(source.h.rows(node_type), vectors);
            [source.of_destinations(node_type, of_rows.clone()), of_rows]
        });
        let place = streams.iter().position(|&other| other == stream).unwrap_or_default();
        ScoreColumns { scores: of_type[role].clone(), first: (2 * place + role) * self.heads }
    }
}

impl<B: GraphBackend> StreamAttention<B> {
    /// What the attention vectors mean for an input row, `W_h a_h` for every head: those of the destinations first.
    pub(super) fn score_vectors(&self, heads: usize) -> Tensor<B, 2> {
        let weight = self.projection.val();
        let own = weight.dims()[1] / heads;
        let attention = self.attention.val().reshape([2 * heads, own]);
        if heads == 1 {
            return linear(attention, weight.transpose(), None);
        }
        let of = |role: usize, head: usize| {
            let weight = weight.clone().narrow(1, head * own, own);
            linear(attention.clone().narrow(0, role * heads + head, 1), weight.transpose(), None)
        };
        Tensor::cat(
            (0..2).flat_map(|role| (0..heads).map(move |head| (role, head))).map(|(r, h)| of(r, h)).collect(),
            0,
        )
    }
}

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
    /// What [`layer_frozen`](Self::layer_frozen) reads, for graphs into whose types so many streams lead.
    pub fn freeze(&self, streams_into: &[usize]) -> Frozen<B> {
        let of_layer = |layer: &AttentionLayer<B>| FrozenLayer {
            vectors: layer.streams.iter().map(|stream| stream.score_vectors(self.heads)).collect(),
            own: streams_into.iter().enumerate().map(|(t, &streams)| self.own_of(layer, t, streams)).collect(),
        };
        Frozen { layers: self.layers.iter().map(of_layer).collect() }
    }

    /// What a layer, counted from 0, makes of `h` in a pass of [`embed`](Self::embed) that drops nothing, to the bit.
    pub fn layer_frozen(
        &self,
        frozen: &Frozen<B>,
        layer: usize,
        (graph, field): (&DeviceGraph<B>, &ReceptiveField<B>),
        h: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let block = &field.block(graph, layer, |_| None);
        let mut results = Vec::with_capacity(h.len());
        let source = Source { block, h: &AtHand(h), pass: Pass::default(), frozen: Some(&frozen.layers[layer]) };
        self.rows_of(layer, &source, |_, result| results.push(result));
        results
    }
}
