//! What distinguishes one pass over the network from another.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{DropEdge, Dropout, GraphBackend, dropout};

use crate::models::device_graph::{DeviceGraph, DeviceRelation};

/// What distinguishes one pass from another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// DropEdge of a training pass.
    pub drop_edge: Option<EpochDrop>,
    /// Destination rows that a layer computes at a time: bounds the memory of everything that is not the result of a
    /// layer. The result does not depend on it.
    pub chunk_rows: Option<usize>,
    /// Whether the backward pass repeats the attention instead of keeping it: less memory, more time, same gradient.
    pub recompute: bool,
    /// Dropout of a training pass.
    pub dropout: Option<PassDropout>,
}

/// Dropout of the results of layers in one step of a training.
#[derive(Clone, Copy, Debug)]
pub struct PassDropout {
    /// Share of values to drop, in [0, 1).
    pub rate: f64,
    pub seed: u64,
    /// Epoch, and mini-batch of it.
    pub step: [u32; 2],
}

/// DropEdge of one epoch.
#[derive(Clone, Copy, Debug)]
pub struct EpochDrop {
    /// Share of edges to drop, in [0, 1).
    pub rate: f64,
    pub seed: u64,
    pub epoch: u32,
}

impl PassDropout {
    /// The result of layer `layer`, counted from 0, at a node type, from row `first` on.
    pub(super) fn of_result<B: GraphBackend>(
        self,
        h: Tensor<B, 2>,
        layer: usize,
        node_type: usize,
        first: usize,
    ) -> Tensor<B, 2> {
        let [epoch, part] = self.step;
        match Dropout::new(self.rate, self.seed, epoch, layer as u32 | (node_type as u32) << 16, part) {
            Some(drop) if h.dims()[0] > 0 => dropout(h, &drop.with_bases(first as u32, 0)),
            _ => h,
        }
    }
}

impl Pass {
    /// The edges that layer `layer` drops from a relation.
    pub fn drop_of<B: Backend>(
        &self,
        graph: &DeviceGraph<B>,
        layer: usize,
        relation: &DeviceRelation<B>,
    ) -> Option<DropEdge> {
        let drop = self.drop_edge?;
        let base = |t: usize| graph.node_types[t].offset as u32;
        DropEdge::new(drop.rate, drop.seed, drop.epoch, layer as u32, relation.id as u32)
            .map(|key| key.with_bases(base(relation.dst), base(relation.src)))
    }
}
