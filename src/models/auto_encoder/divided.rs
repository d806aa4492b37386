//! The same layers over rows that are divided over ranks.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, CollectiveError, Communicator, GraphBackend, normalise_rows};

use super::in_batches::{BatchNormalisation, aggregate};
use super::{Inputs, TripleStreamGae, blank, stacked};
use crate::graph::HeteroGraph;
use crate::models::crossing::{AtHand, Crossing, LayerRows};
use crate::models::graph_part::GraphPart;

/// What a rank has of a graph, its normalisation and the inputs of the first layer.
#[derive(Clone, Debug)]
pub struct DividedInputs<B: Backend> {
    part: GraphPart<B>,
    normalisation: BatchNormalisation<B>,
    /// Of the nodes of this rank; the features of all nodes where layers compute some rows at a time.
    inputs: Inputs<B>,
}

impl<B: GraphBackend> DividedInputs<B> {
    /// Of the nodes of `part`, out of the features `x` of all nodes, see [`Inputs::new`]. `graph` and `causal` are as
    /// [`HostNormalisation::of`](super::HostNormalisation::of) has them.
    pub fn new(
        part: GraphPart<B>,
        graph: &HeteroGraph,
        causal: bool,
        x: Vec<Tensor<B, 2>>,
        chunk_rows: Option<usize>,
        device: &B::Device,
    ) -> Self {
        let normalisation = BatchNormalisation::of_part(graph, causal, |t| part.own(t), device);
        let block = part.block(0, |_, _| None);
        let of_own = |t: usize| {
            if block.rows_after(t) == 0 {
                return blank([0, x[t].dims()[1]], &x[t]);
            }
            let rows = block.destinations(t, x[t].clone());
            let into = normalisation.relations.iter().filter(|of| of.dst == t);
            stacked((into.filter_map(|of| aggregate(&block, of, &AtHand(&x), &rows)).collect(), rows))
        };
        let rows = match chunk_rows {
            None => (0..x.len()).map(of_own).collect(),
            Some(_) => x,
        };
        Self { part, normalisation, inputs: Inputs { rows, chunk_rows } }
    }

    /// The same out of the inputs of all nodes, of a rank that has the whole graph.
    pub fn of_whole(
        part: GraphPart<B>,
        graph: &HeteroGraph,
        causal: bool,
        Inputs { rows, chunk_rows }: Inputs<B>,
        device: &B::Device,
    ) -> Self {
        let normalisation = BatchNormalisation::of_part(graph, causal, |t| part.own(t), device);
        let of_own = |(t, rows): (usize, Tensor<B, 2>)| match part.own(t) {
            own if own.is_empty() => blank([0, rows.dims()[1]], &rows),
            own => rows.narrow(0, own.start, own.len()),
        };
        let rows = match chunk_rows {
            None => rows.into_iter().enumerate().map(of_own).collect(),
            Some(_) => rows,
        };
        Self { part, normalisation, inputs: Inputs { rows, chunk_rows } }
    }

    /// The nodes of this rank, and the edges into them.
    pub fn part(&self) -> &GraphPart<B> {
        &self.part
    }

    /// Edges into the nodes of this rank.
    pub fn num_edges(&self) -> usize {
        self.part.num_edges()
    }
}

impl<B: Backend> DividedInputs<Autodiff<B>> {
    /// The same for passes that record nothing.
    pub fn inner(&self) -> DividedInputs<B> {
        DividedInputs {
            part: self.part.inner(),
            normalisation: self.normalisation.clone().inner(),
            inputs: self.inputs.clone().inner(),
        }
    }
}

impl<B: GraphBackend> TripleStreamGae<B> {
    /// Embeddings of length one of all nodes on every rank, one matrix with those of one rank behind those of another,
    /// f32.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn embed_divided(
        &self,
        DividedInputs { part, normalisation, inputs: Inputs { rows, chunk_rows } }: &DividedInputs<B>,
        rank: &Communicator<B::Plain>,
    ) -> Result<Tensor<B, 2>, CollectiveError> {
        let [first, second] = &self.layers[..] else { unreachable!("two layers") };
        let block = |layer: usize| part.block(layer, |_, _| None);
        let crossing = Crossing::new(part, rank);
        let data = crossing.data(rows);
        match chunk_rows {
            Some(_) => {
                let send = |t, own| crossing.send(t, own);
                first.over_block(&block(0), normalisation, &data, Activation::Relu, *chunk_rows, send);
            }
            None => data.order().into_iter().for_each(|t| {
                let into = normalisation.relations.iter().filter(|of| of.dst == t);
                crossing.send(
                    t,
                    match rows[t].dims()[0] {
                        0 => blank([0, first.own[t].val().dims()[1]], &rows[t]),
                        _ => first.of_stacked(t, into.map(|of| of.stream), data.rows(t)),
                    },
                );
            }),
        }
        let mut own: Vec<Option<Tensor<B, 2>>> = vec![None; rows.len()];
        second.over_block(&block(1), normalisation, &crossing, Activation::Identity, *chunk_rows, |t, result| {
            own[t] = Some(normalise_rows(result));
        });
        let hidden = crossing.ended()?;
        part.gathered_at_last(own.into_iter().flatten().collect(), &hidden, rank)
    }
}
