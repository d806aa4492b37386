//! What a layer reads, and what the scores of attention are read from.

use std::cell::RefCell;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{GatConfig, GraphBackend, ScoreColumns, row_dots};

use super::pass::Pass;
use crate::models::crossing::LayerRows;
use crate::nn::{Block, RelationEdges};

/// What a layer reads.
pub(super) struct Source<'a, B: Backend> {
    pub block: &'a Block<B>,
    /// The rows before the layer.
    pub h: &'a dyn LayerRows<B>,
    pub pass: Pass,
    pub frozen: Option<&'a FrozenLayer<B>>,
}

impl<B: GraphBackend> Source<'_, B> {
    pub fn config(&self, edges: &RelationEdges<B>, negative_slope: f32) -> GatConfig {
        GatConfig { negative_slope, drop_edge: edges.drop_edge, recompute: self.pass.recompute, ..GatConfig::default() }
    }

    /// Rows of the destinations out of `rows` before the layer. Attention over data looks destinations up by their
    /// number in a whole graph.
    pub fn of_destinations(&self, node_type: usize, rows: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.block.reads_data && self.block.is_restricted() {
            true => rows,
            false => self.block.destinations(node_type, rows),
        }
    }
}

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
    /// Of so many streams; `vectors_of` makes those of one where they are not frozen.
    pub fn new(
        streams: usize,
        source: &'s Source<'s, B>,
        heads: usize,
        vectors_of: impl Fn(usize) -> Tensor<B, 2>,
    ) -> Self {
        let (block, types) = (source.block, source.h.types());
        let of_stream = |at: usize| match source.frozen {
            Some(frozen) => frozen.vectors[at].clone(),
            None => vectors_of(at),
        };
        let vectors = (0..streams).map(|at| block.has_stream(at).then(|| of_stream(at))).collect();
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

/// What the layers make of parameters that nothing changes any more: for few rows it takes longer than they do.
#[derive(Clone, Debug)]
pub struct Frozen<B: Backend> {
    pub(super) layers: Vec<FrozenLayer<B>>,
}

#[derive(Clone, Debug)]
pub(super) struct FrozenLayer<B: Backend> {
    /// By stream, what its attention vectors mean for an input row.
    pub vectors: Vec<Tensor<B, 2>>,
    /// By node type, the weight of its nodes themselves as the sum reads it.
    pub own: Vec<Option<Tensor<B, 2>>>,
}
