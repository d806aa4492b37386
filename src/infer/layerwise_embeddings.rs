//! Embeddings of Stage 1 layer by layer, for graphs that do not fit the device: as in [`layerwise`](super::layerwise),
//! every layer of all nodes, a few at a time, between matrices in host memory or in files. Exact: every node sees all
//! of its neighbours.

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Communicator, GraphBackend};

use super::layerwise::{Span, over_all_nodes};
use crate::error::Result;
use crate::graph::{Features, Spill};
use crate::loader::{Batch, FeatureStore};
use crate::models::TripleStreamGae;
use crate::models::auto_encoder::HostNormalisation;
use crate::models::device_graph::check_range;
use crate::models::precision::as_dtype;
use crate::sampler::{Fanout, NeighbourSampler, SamplerConfig};

/// Embeddings of length one of every node, by global id; layers compute in `dtype`. Several ranks share the work, and
/// have all embeddings each.
///
/// # Errors
/// Features that are not one row per node, or that `dtype` does not hold; a device that failed, or what a thread of the
/// loader ran into; a rank that fails; a file of `spill`.
pub fn embeddings<B: GraphBackend>(
    model: &TripleStreamGae<B>,
    normalisation: &HostNormalisation,
    features: &Features,
    dtype: DType,
    (rank, spill): (Option<&Communicator<B::Plain>>, &Spill),
    device: &B::Device,
) -> Result<Features> {
    check_range(features, dtype)?;
    let graph = normalisation.graph();
    let nodes = graph.num_nodes();
    let sampler = || {
        let config = SamplerConfig::new(&[Fanout::All], graph.relations().len());
        NeighbourSampler::new(graph.clone(), config)
    };
    let mut input = features.clone();
    for layer in 0.. {
        let width = model.width_after(layer);
        let rows = spill.beside(input.bytes_in_memory()).zeros(nodes, width)?;
        let store = FeatureStore::new(input, graph, device)?;
        let (model, device) = (model.clone(), device.clone());
        let compute = move |Batch { x, blocks, nodes, payload, .. }: Batch<B, Span>| {
            let x: Vec<Tensor<B, 2>> = x.into_iter().map(|x| as_dtype(x, dtype)).collect();
            let of_layer = normalisation.of_blocks(&nodes.to_host(), &blocks, &device).swap_remove(0);
            (model.embed_layer(layer, &blocks[0], &of_layer, &x).swap_remove(payload.node_type), None)
        };
        input = over_all_nodes(graph, sampler, vec![(store, compute)], rows, &mut [], rank)?;
        if layer + 1 == TripleStreamGae::<B>::LAYERS {
            return Ok(input);
        }
    }
    unreachable!("the last layer returns")
}
