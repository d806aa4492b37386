//! Batches whose neighbours the device draws.

use graphsieve_kernels::{DeviceSampler, MAX_FANOUT, NodeDraw, SampleBackend, SampleRelation};

use super::config::DropRule;
use super::placement::Placement;
use crate::error::{Error, Result};
use crate::sampler::{Block, EdgePlace, Fanout, MiniBatch, NeighbourSampler};

/// Draws on a device what a [`NeighbourSampler`] draws on the host.
pub(super) struct OnDevice<B: SampleBackend> {
    sampler: DeviceSampler<B>,
}

/// Whether a device can draw for `sampler`: without weights and variates of sources, and not too many at a time.
pub fn draws_on_device<B: SampleBackend>(sampler: &NeighbourSampler) -> bool {
    let config = sampler.config();
    let plain = config.dependency.is_none() && config.weights.iter().all(Option::is_none);
    let few = |fanout: &Fanout| !matches!(fanout, Fanout::Most(most) if *most > MAX_FANOUT);
    B::SAMPLES && plain && config.fanouts.iter().flatten().all(few)
}

impl<B: SampleBackend> OnDevice<B> {
    /// Uploads or page-locks the adjacencies; `None` for [`Placement::Host`].
    ///
    /// # Errors
    /// [`Error::Device`] when the device cannot sample so.
    pub fn new(sampler: &NeighbourSampler, placement: Placement, device: &B::Device) -> Result<Option<Self>> {
        let pinned = match placement {
            Placement::Host => return Ok(None),
            Placement::Device => false,
            Placement::HostZeroCopy => true,
        };
        let refuse = |reason: String| Error::Device {
            device: format!("{device:?}"),
            reason,
            help: "let the processor sample: Placement::Host".into(),
        };
        if !draws_on_device::<B>(sampler) {
            return Err(refuse("it has no kernel for these draws".into()));
        }
        let graph = sampler.graph();
        let relation = |r: &crate::graph::Relation| {
            SampleRelation::new([r.src, r.dst], r.forward.row_ptr(), r.forward.col_idx(), pinned, device)
        };
        let relations: Result<Vec<_>, String> = graph.relations().iter().map(relation).collect();
        let counts: Vec<usize> = graph.node_types().iter().map(|t| t.count).collect();
        let sampler = relations.and_then(|relations| DeviceSampler::new(relations, &counts, device)).map_err(refuse)?;
        Ok(Some(OnDevice { sampler }))
    }

    /// The batch that `host` would sample, without the numbers of its edges. Seeds are checked by the caller.
    pub fn sample(
        &mut self,
        host: &NeighbourSampler,
        number: u64,
        seeds: &[Vec<u32>],
        drop_edge: Option<&DropRule>,
    ) -> MiniBatch {
        let (graph, config) = (host.graph(), host.config());
        let base = |t: usize| graph.node_types()[t].offset as u32;
        let sample = self.sampler.sample(seeds, config.fanouts.len(), |layer, relation| {
            let of = &graph.relations()[relation];
            let drop = drop_edge.and_then(|rule| rule(number, EdgePlace { layer, relation }));
            NodeDraw {
                fanout: match config.fanouts[layer][relation] {
                    Fanout::All => None,
                    Fanout::Most(most) => Some(most),
                },
                replace: config.replace,
                key: host.key(number, layer, relation, of.src),
                drop_edge: drop.map(|drop| drop.with_bases(base(of.dst), base(of.src))),
            }
        });
        let block = |block: &graphsieve_kernels::SampledRelation<B>| {
            let (row_ptr, cols) = block.rows_to_host();
            Block { row_ptr, cols, edges: Vec::new() }
        };
        MiniBatch {
            number,
            nodes: sample.nodes_to_host(),
            blocks: sample.blocks.iter().map(|layer| layer.iter().map(block).collect()).collect(),
            counts: sample.counts,
        }
    }
}
