//! The same layers by chunks of destination rows: whole are only results and scores.

use burn::tensor::Tensor;
use graphsieve_kernels::{Destinations, GraphBackend, ScoreColumns, Term, linear, row_dots, sum_in_chunks};

use super::{AttentionLayer, Source, StreamAttention, TripleStreamGat, scale};
use crate::nn::{KeptRows, RelationEdges};

/// Per stream and type what the scores of attention are read from; all of them come from one pass over the rows of a
/// type.
struct AllScores<B: GraphBackend> {
    /// `[2 heads, in]` by stream: those of the destinations first.
    vectors: Vec<Option<Tensor<B, 2>>>,
    /// The streams that touch a type.
    streams: Vec<Vec<usize>>,
    /// By type: of the rows after the layer, and of those before it.
    scores: Vec<Option<[Tensor<B, 2>; 2]>>,
    heads: usize,
}

impl<B: GraphBackend> TripleStreamGat<B> {
    /// [`TripleStreamGat::embed_layer`] by `chunk_rows` rows at a time. Every head sums inputs and projects their sum,
    /// so that no projection of all sources is needed.
    pub(super) fn layer_in_chunks(
        &self,
        layer: &AttentionLayer<B>,
        source: &Source<'_, B>,
        chunk_rows: usize,
    ) -> Vec<Tensor<B, 2>> {
        let (block, h) = (source.block, source.h);
        let scores = self.all_scores(layer, source);
        let of_type = |t: usize| {
            let into = block.edges.iter().filter(|edges| edges.dst == t);
            let term = |edges: &RelationEdges<B>| {
                let config = source.config(edges, self.negative_slope);
                let weight = layer.streams[edges.stream].projection.val();
                let of_both = [scores.columns(t, 0, edges.stream), scores.columns(edges.src, 1, edges.stream)];
                let x = h[edges.src].clone();
                if let Some(of_edges) = layer.edges.of(edges) {
                    // Scores of data that the vectors get their gradient from.
                    let tracked = |x: Tensor<B, 2>, role: usize| ScoreColumns {
                        scores: row_dots(x, scores.vectors(edges.stream)),
                        first: role * self.heads,
                    };
                    let of_both = match block.reads_data {
                        true => [tracked(block.destinations(t, h[t].clone()), 0), tracked(x.clone(), 1)],
                        false => of_both,
                    };
                    let carried = (&of_edges.term(x.dtype(), self.heads), of_edges.projection());
                    Term::attend_edges(&edges.csr, x, of_both, carried, self.heads, weight, &config)
                } else if block.reads_data {
                    let rows = [x, source.of_destinations(t, h[t].clone())];
                    let vectors = scores.vectors(edges.stream);
                    Term::attend_inputs(&edges.csr, rows, vectors, of_both, self.heads, weight, &config)
                } else {
                    Term::attend(&edges.csr, x, of_both, self.heads, weight, &config)
                }
            };
            let (to, rows, before) = match &block.kept[t] {
                KeptRows::Selected { before, after, of } => {
                    (Destinations::new(*of, after.as_ref()), h[t].clone(), before.as_ref())
                }
                kept => (Destinations::new(kept.after(), None), kept.select(h[t].clone()), None),
            };
            self.finished(layer, source, t, |own, activation| {
                let own = own.map(|own| Term::rows(layer.of_itself(t, rows), before, own));
                let terms: Vec<Term<B>> = into.map(term).chain(own).collect();
                (!terms.is_empty()).then(|| sum_in_chunks(terms, None, scale(block, t), activation, to, chunk_rows))
            })
        };
        (0..h.len()).map(of_type).collect()
    }

    fn all_scores(&self, layer: &AttentionLayer<B>, source: &Source<'_, B>) -> AllScores<B> {
        let block = source.block;
        let vectors = layer.streams.iter().enumerate();
        let vectors: Vec<_> =
            vectors.map(|(at, stream)| block.has_stream(at).then(|| self.score_vectors(stream))).collect();
        let types = source.h.len();
        let mut streams: Vec<Vec<usize>> = vec![Vec::new(); types];
        for edges in &block.edges {
            for t in [edges.src, edges.dst] {
                if !streams[t].contains(&edges.stream) {
                    streams[t].push(edges.stream);
                }
            }
        }
        let mut all = AllScores { vectors, streams, scores: vec![None; types], heads: self.heads };
        for t in (0..types).filter(|&t| !all.streams[t].is_empty()) {
            let vectors = Tensor::cat(all.streams[t].iter().map(|&stream| all.vectors(stream)).collect(), 0);
            // Over data the vectors get their gradient from the attention.
            let vectors = if block.reads_data { vectors.detach() } else { vectors };
            let of_rows = row_dots(source.h[t].clone(), vectors);
            all.scores[t] = Some([source.of_destinations(t, of_rows.clone()), of_rows]);
        }
        all
    }

    /// What the attention vectors mean for an input row, `W_h a_h` for every head: those of the destinations first.
    fn score_vectors(&self, stream: &StreamAttention<B>) -> Tensor<B, 2> {
        let weight = stream.projection.val();
        let (width, heads) = (weight.dims()[1], self.heads);
        let own = width / heads;
        let attention = stream.attention.val().reshape([2 * heads, own]);
        let of = |role: usize, head: usize| {
            let weight = if heads == 1 { weight.clone() } else { weight.clone().narrow(1, head * own, own) };
            linear(attention.clone().narrow(0, role * heads + head, 1), weight.transpose(), None)
        };
        Tensor::cat(
            (0..2).flat_map(|role| (0..heads).map(move |head| (role, head))).map(|(r, h)| of(r, h)).collect(),
            0,
        )
    }
}

impl<B: GraphBackend> AllScores<B> {
    fn vectors(&self, stream: usize) -> Tensor<B, 2> {
        match &self.vectors[stream] {
            Some(vectors) => vectors.clone(),
            None => unreachable!("a relation with edges has a stream with vectors"),
        }
    }

    /// The columns of the destinations' (0) or the sources' (1) part of a stream.
    fn columns(&self, node_type: usize, role: usize, stream: usize) -> ScoreColumns<B> {
        let place = self.streams[node_type].iter().position(|&other| other == stream).unwrap_or_default();
        let scores = self.scores[node_type].as_ref().unwrap_or_else(|| unreachable!("a live relation has scores"));
        ScoreColumns { scores: scores[role].clone(), first: (2 * place + role) * self.heads }
    }
}
