//! Stage 2 over rows that are divided over ranks.

use burn::tensor::Tensor;
use graphsieve_kernels::{Communicator, GraphBackend};

use crate::error::Result;
use crate::graph::Features;
use crate::infer::layerwise::HostScored;
use crate::metrics::scores_of;
use crate::models::attention::{Pass, TripleStreamGat};
use crate::models::crossing::Crossing;
use crate::models::device_graph::check_device;
use crate::models::graph_part::GraphPart;
use crate::train::ranks::failed;

/// The embeddings of the nodes of a rank, a matrix per type, and the logits of all nodes, those of one rank behind
/// those of another. `x` is the input of all nodes.
pub(super) fn embedded<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    part: &GraphPart<B>,
    x: &[Tensor<B, 2>],
    pass: Pass,
    rank: &Communicator<B::Plain>,
) -> Result<(Vec<Tensor<B, 2>>, Tensor<B, 2>)> {
    let block = |layer: usize| part.block(layer, |graph, relation| pass.drop_of(graph, layer, relation));
    let crossing = Crossing::new(part, rank);
    model.embed_rows(0, &block(0), &crossing.data(x), pass, |t, own| crossing.send(t, own));
    let mut own: Vec<Option<Tensor<B, 2>>> = vec![None; x.len()];
    model.embed_rows(1, &block(1), &crossing, pass, |t, result| own[t] = Some(result));
    let own: Vec<Tensor<B, 2>> = own.into_iter().flatten().collect();
    let hidden = crossing.ended().map_err(failed)?;
    let logits = vec![model.logits(own.iter().cloned())];
    let logits = part.gathered_at_last(logits, &hidden, rank).map_err(failed)?;
    Ok((own, logits))
}

/// Scores of all nodes on rank 0, and embeddings where they are asked for: the other ranks get none.
pub(super) fn scores<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    part: &GraphPart<B>,
    x: &[Tensor<B, 2>],
    (chunk_rows, embeddings): (Option<usize>, bool),
    rank: &Communicator<B::Plain>,
) -> Result<HostScored> {
    let (own, logits) = embedded(model, part, x, Pass { chunk_rows, ..Pass::default() }, rank)?;
    let scores = scores_of(part.on_first_host(logits, rank)?);
    let width = if embeddings { own[0].dims()[1] } else { 0 };
    let rows = match embeddings {
        true => part.on_first_host(part.gathered_at_last(own, &[], rank).map_err(failed)?, rank)?,
        false => Vec::new(),
    };
    check_device()?;
    let embeddings = Features::from_f32(rows, scores.len(), width);
    Ok(HostScored { scores, embeddings })
}
