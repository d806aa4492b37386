//! The same layers by chunks of destination rows: whole are only features and results.

use burn::tensor::Tensor;
use graphsieve_kernels::{Activation, Destinations, GraphBackend, Term, sum_in_chunks};

use super::{ConvolutionLayer, DeviceGraph, Normalisation, ReceptiveField, blank, product_config};

impl<B: GraphBackend> ConvolutionLayer<B> {
    /// Layer `at`, counted from 0, by `chunk_rows` rows at a time. The first one aggregates features anew in every
    /// pass.
    pub(super) fn in_chunks(
        &self,
        at: usize,
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        normalisation: &[Normalisation<B>],
        h: &[Tensor<B, 2>],
        chunk_rows: usize,
    ) -> Vec<Tensor<B, 2>> {
        let activation = if at == 0 { Activation::Relu } else { Activation::Identity };
        let of_type = |t: usize| {
            let own = self.own[t].val();
            if field.rows(graph, at + 1, t) == 0 {
                return blank([0, own.dims()[1]], &h[t]);
            }
            let of_itself = |weight| Term::rows(h[t].clone(), field.levels[at][t].as_ref(), weight);
            let mut terms = vec![of_itself(own)];
            for (stream, relation) in graph.relations_into(t) {
                let weight = self.streams[stream].weight.val();
                terms.push(match relation {
                    // As `aggregate` has it.
                    None => of_itself(weight),
                    Some(relation) => {
                        let config = product_config(field, at, relation, normalisation, h);
                        let (csr, weights) = (field.csr(at, relation), relation.weights());
                        Term::spmm(&csr, h[relation.src].clone(), weights, config, weight)
                    }
                });
            }
            let to = Destinations::new(graph.node_types[t].count, field.levels[at + 1][t].as_ref());
            sum_in_chunks(terms, self.bias(graph, t), 1.0, activation, to, chunk_rows)
        };
        (0..h.len()).map(of_type).collect()
    }
}
