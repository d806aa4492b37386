//! The same layers by chunks of destination rows: whole are only results and scores.

use burn::tensor::Tensor;
use graphsieve_kernels::{Destinations, GraphBackend, Term, sum_in_chunks};

use super::scores::Source;
use super::{AttentionLayer, TripleStreamGat, scale};
use crate::nn::{KeptRows, RelationEdges};

impl<B: GraphBackend> TripleStreamGat<B> {
    /// [`TripleStreamGat::embed_layer`] by `chunk_rows` rows at a time. Every head sums inputs and projects their sum,
    /// so that no projection of all sources is needed.
    pub(super) fn layer_in_chunks(
        &self,
        layer: &AttentionLayer<B>,
        source: &Source<'_, B>,
        chunk_rows: usize,
        done: &mut dyn FnMut(usize, Tensor<B, 2>),
    ) {
        let (block, h) = (source.block, source.h);
        let scores = layer.scores(source, self.heads);
        let of_type = |t: usize| {
            let into = block.edges.iter().filter(|edges| edges.dst == t);
            let term = |edges: &RelationEdges<B>| {
                let config = source.config(edges, self.negative_slope);
                let weight = layer.streams[edges.stream].projection.val();
                let x = h.rows(edges.src);
                if let Some(of_edges) = layer.edges.of(edges) {
                    let of_both = if block.reads_data { scores.of_data(edges) } else { scores.of(edges) };
                    let carried = (&of_edges.term(x.dtype(), self.heads), of_edges.projection());
                    Term::attend_edges(&edges.csr, x, of_both, carried, self.heads, weight, &config)
                } else if block.reads_data {
                    let rows = [x, source.of_destinations(t, h.rows(t))];
                    let vectors = scores.vectors(edges.stream);
                    Term::attend_inputs(&edges.csr, rows, vectors, scores.of(edges), self.heads, weight, &config)
                } else {
                    Term::attend(&edges.csr, x, scores.of(edges), self.heads, weight, &config)
                }
            };
            let (to, before) = match &block.kept[t] {
                KeptRows::Selected { before, after, of } => (Destinations::new(*of, after.as_ref()), before.as_ref()),
                kept => (Destinations::new(kept.after(), None), None),
            };
            self.finished(layer, source, t, |own, activation| {
                let rows = || match &block.kept[t] {
                    KeptRows::Selected { .. } => h.rows(t),
                    kept => kept.select(h.rows(t)),
                };
                let own = own.map(|own| Term::rows(layer.of_itself(t, rows()), before, own));
                let terms: Vec<Term<B>> = into.map(term).chain(own).collect();
                (!terms.is_empty()).then(|| sum_in_chunks(terms, None, scale(block, t), activation, to, chunk_rows))
            })
        };
        h.order().into_iter().for_each(|t| done(t, of_type(t)));
    }
}
