//! Stage 2 over rows that are divided over ranks.

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Communicator, GraphBackend};

use super::attention_loss::{LossInput, edges_of_epoch};
use crate::config::{Rows, Stage2Config};
use crate::error::Result;
use crate::graph::{Features, HeteroGraph};
use crate::infer::layerwise::HostScored;
use crate::metrics::sigmoid;
use crate::models::attention::{Pass, TripleStreamGat};
use crate::models::device_graph::{DeviceGraph, check_device};
use crate::models::graph_part::{GraphPart, by_node, gathered};
use crate::models::receptive_field::{ReceptiveField, Shares, hidden_rows};
use crate::train::ranks::failed;
use crate::train::shard::Shard;

/// The embeddings of the nodes of a rank, a matrix per type, and the logits of all nodes, those of one rank behind
/// those of another. `x` is the input of all nodes.
pub(super) fn embedded<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    part: &GraphPart<B>,
    x: &[Tensor<B, 2>],
    pass: Pass,
    rank: &Communicator<B::Plain>,
) -> Result<(Vec<Tensor<B, 2>>, Tensor<B, 2>)> {
    let layer = |layer: usize, h: &[Tensor<B, 2>]| {
        let block = part.block(layer, |graph, relation| pass.drop_of(graph, layer, relation));
        model.embed_layer(layer, &block, h, pass)
    };
    let hidden = part.gathered(layer(0, x), &[], rank).map_err(failed)?;
    let own = layer(1, &hidden);
    let logits = vec![model.logits(own.iter().cloned())];
    let logits = part.gathered_at_last(logits, &hidden, rank).map_err(failed)?;
    Ok((own, logits))
}

/// Hidden rows over reachable rows, in the first epoch without DropEdge.
pub(super) struct Reached {
    /// Those that a rank's part of the loss depends on.
    pub by_part: usize,
    /// Those of the whole loss.
    pub by_all: usize,
}

impl Reached {
    pub fn of(config: &Stage2Config, host: &HeteroGraph, train: &[(u32, u8)], ranks: usize) -> Self {
        let edges = edges_of_epoch(config, host, 1);
        let by = |shard: Shard| {
            let input = LossInput::of_shard(host, train, &edges, Rows::Reachable, shard);
            hidden_rows(host, &input.nodes.unwrap_or_default())
        };
        Self { by_part: by(Shard { rank: 0, ranks }), by_all: by(Shard::WHOLE) }
    }

    /// Whether it is less work to compute each of them once and to send it to the others: a row costs about a quarter
    /// of itself to send, forward and back.
    pub fn is_worth_sharing(&self, ranks: usize) -> bool {
        4 * ranks * self.by_part > 5 * self.by_all
    }
}

/// Logits of the rows `own` of a result. Each rank computes some of the hidden rows that the rows of all ranks,
/// `wanted`, depend on, and gets the others.
pub(super) fn logits_of_shared<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    (graph, shares): (&DeviceGraph<B>, &Shares<B>),
    [wanted, own]: [Option<Vec<Vec<u32>>>; 2],
    x: &[Tensor<B, 2>],
    pass: Pass,
    (rank, device): (&Communicator<B::Plain>, &B::Device),
) -> Result<Tensor<B, 2>> {
    let field = ReceptiveField::of_rows(graph, wanted, |relation| pass.drop_of(graph, 1, relation), device);
    let drop_edge = |layer: usize, relation: &_| pass.drop_of(graph, layer, relation);
    let (blocks, counts) = field.shared(own.unwrap_or_default(), shares, drop_edge, (graph, device));
    let hidden = model.embed_layer(0, &blocks[0], x, pass);
    let hidden = gathered(hidden, &counts, &[], rank).map_err(failed)?;
    let logits = model.logits(model.embed_layer(1, &blocks[1], &hidden, pass));
    // Zeros of all ranks behind the hidden rows: every loss depends on their exchanges, whatever of them it reads.
    let zero = Tensor::zeros([1, 1], (device, DType::F32));
    let zeros = rank.all_gather_rows_after(zero, &vec![1; rank.ranks()], hidden.last()).map_err(failed)?;
    Ok(logits + zeros.narrow(0, rank.rank(), 1))
}

/// Scores of all nodes on every rank and, where they are asked for, embeddings. Each node stands at its place of
/// `places` among those of all ranks.
pub(super) fn scores<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    (part, places): (&GraphPart<B>, &[u32]),
    x: &[Tensor<B, 2>],
    (chunk_rows, embeddings): (Option<usize>, bool),
    rank: &Communicator<B::Plain>,
) -> Result<HostScored> {
    let (own, logits) = embedded(model, part, x, Pass { chunk_rows, ..Pass::default() }, rank)?;
    let scores: Vec<f32> = by_node(logits, places, rank)?.into_iter().map(sigmoid).collect();
    let width = if embeddings { own[0].dims()[1] } else { 0 };
    let rows = match embeddings {
        true => by_node(part.gathered_at_last(own, &[], rank).map_err(failed)?, places, rank)?,
        false => Vec::new(),
    };
    check_device()?;
    let embeddings = Features::from_f32(rows, scores.len(), width);
    Ok(HostScored { scores, embeddings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_rows_are_shared_where_ranks_would_compute_more_of_them_than_these_cost_to_send() {
        let shared = |by_part, ranks| Reached { by_part, by_all: 100 }.is_worth_sharing(ranks);
        assert_eq!([shared(62, 2), shared(63, 2)], [false, true]);
        assert_eq!([shared(31, 4), shared(32, 4)], [false, true]);
    }
}
