//! A mini-batch on a device.

use std::ops::AddAssign;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use graphsieve_kernels::{Age, Csr, EdgeRows, PackedSample, SampleBackend};
use serde::Serialize;

use crate::graph::{Ages, HeteroGraph};
use crate::nn::{Block, KeptRows, RelationEdges, ages_between};

/// Seeds of a batch.
#[derive(Clone, Debug)]
pub struct Job<P = ()> {
    /// Number of the batch: what is drawn depends on it.
    pub number: u64,
    /// `[type]`: distinct nodes, numbered within their type.
    pub seeds: Vec<Vec<u32>>,
    /// What the batch brings along.
    pub payload: P,
}

/// Where the feature rows of a batch came from, and what else there is to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchStats {
    /// Batches counted.
    pub batches: u64,
    /// Sampled edges.
    pub edges: u64,
    /// Seeds.
    pub seeds: u64,
    /// Rows of the batch.
    pub rows: u64,
    /// Rows that were there already.
    pub shared: u64,
    /// Rows that the device has for good, in the hot cache or in its part of divided ones.
    pub hot: u64,
    /// Rows from host memory, or from other ranks where they are divided.
    pub fetched: u64,
    /// Rows moved within the buffer.
    pub moved: u64,
    /// Bytes of the fetched rows, if they are not on the device.
    pub bytes: u64,
}

impl AddAssign for BatchStats {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.edges += other.edges;
        self.seeds += other.seeds;
        self.rows += other.rows;
        self.shared += other.shared;
        self.hot += other.hot;
        self.fetched += other.fetched;
        self.moved += other.moved;
        self.bytes += other.bytes;
    }
}

/// What the blocks of all batches of a graph have in common.
#[derive(Clone, Debug)]
pub(super) struct BlockShape {
    /// `[relation]`: source type, destination type, stream.
    relations: Vec<[usize; 3]>,
    /// `[relation]`: whether ages are differences of times of nodes.
    by_nodes: Vec<bool>,
    /// `[relation]`: whether edges have ages of their own.
    of_edges: Vec<bool>,
    streams_into: Arc<[usize]>,
}

impl BlockShape {
    pub fn of(graph: &HeteroGraph) -> Self {
        let names = graph.streams();
        let stream = |name: &str| names.iter().position(|s| *s == name).unwrap_or_default();
        let relations = graph.relations().iter().map(|r| [r.src, r.dst, stream(&r.stream)]).collect();
        let by_nodes = graph.relations().iter().map(|of| of.ages == Some(Ages::Nodes)).collect();
        let of_edges = graph.relations().iter().map(|of| of.ages_of_edges().is_some()).collect();
        Self { relations, by_nodes, of_edges, streams_into: graph.streams_into().into() }
    }

    /// Values and own ages of the edges of a relation, out of a matrix with the ages, where there are any, in its last
    /// column.
    pub fn carried<B: SampleBackend>(
        &self,
        relation: usize,
        carried: Option<Tensor<B, 2>>,
    ) -> (Option<Tensor<B, 2>>, Option<Age<B>>) {
        let carried = match carried {
            Some(carried) if self.of_edges[relation] => carried,
            values => return (values, None),
        };
        let [edges, width] = carried.dims();
        let columns = |first: usize, count: usize| match edges {
            // No device takes a launch over nothing.
            0 => Tensor::empty([0, count], (&carried.device(), carried.dtype())),
            _ => carried.clone().narrow(1, first, count),
        };
        let age = Age::Edges(columns(width - 1, 1).reshape([edges]));
        ((width > 1).then(|| columns(0, width - 1)), Some(age))
    }

    /// The ages of a layer by relation: `of_edges`, or made of the times of the nodes before and after it, by type.
    pub fn ages<B: SampleBackend>(
        &self,
        of_edges: Vec<Option<Age<B>>>,
        [before, after]: [&[Option<Tensor<B, 1, Int>>]; 2],
    ) -> Vec<Option<Age<B>>> {
        let mut of_edges = of_edges.into_iter();
        let relations = self.relations.iter().zip(&self.by_nodes);
        let of = |(&[src, dst, _], &by_nodes): (&[usize; 3], &bool)| match (of_edges.next().flatten(), by_nodes) {
            (_, true) => ages_between([&after[dst], &before[src]]),
            (of_edges, false) => of_edges,
        };
        relations.map(of).collect()
    }

    /// Layer `layer`, counted from the features, with an adjacency of every relation that has nodes at both ends.
    /// `values` and `ages` are those of its edges by relation, or no list where no relation has any.
    pub fn block<B: SampleBackend>(
        &self,
        layer: usize,
        csr: impl IntoIterator<Item = Option<Csr<B>>>,
        values: Vec<Option<Tensor<B, 2>>>,
        ages: Vec<Option<Age<B>>>,
        kept: Vec<KeptRows<B>>,
    ) -> Block<B> {
        let relations = self.relations.iter().enumerate().zip(csr);
        let (mut values, mut ages) = (values.into_iter(), ages.into_iter());
        let edges = relations.filter_map(|((relation, &[src, dst, stream]), csr)| {
            let (values, age, csr) = (values.next().flatten().map(EdgeRows::from), ages.next().flatten(), csr?);
            Some(RelationEdges { relation, src, dst, stream, csr, drop_edge: None, values, age })
        });
        Block { edges: edges.collect(), kept, streams_into: self.streams_into.clone(), reads_data: layer == 0 }
    }
}

/// A mini-batch whose arrays are on the device; `P` is what came with its seeds.
#[derive(Debug)]
pub struct Batch<B: SampleBackend, P = ()> {
    /// Number of the batch.
    pub number: u64,
    /// `[type]`: the features of the nodes, as they are stored.
    pub x: Vec<Tensor<B, 2>>,
    /// The layer that reads the features first.
    pub blocks: Vec<Block<B>>,
    /// `[type]`: for every seed, in the order given, its row after the last layer.
    pub seed_rows: Vec<Vec<u32>>,
    /// The node of every row of `x`.
    pub nodes: BatchNodes<B>,
    /// What came with the seeds.
    pub payload: P,
    /// Of this batch.
    pub stats: BatchStats,
}

/// The nodes of a batch, on the host or on the device.
#[derive(Clone, Debug)]
pub struct BatchNodes<B: SampleBackend>(pub(super) NodesAt<B>);

#[derive(Clone, Debug)]
pub(super) enum NodesAt<B: SampleBackend> {
    Host(Vec<Vec<u32>>),
    Device(PackedSample<B>),
}

impl<B: SampleBackend> BatchNodes<B> {
    /// `[type]`: the node of every row, numbered within its type.
    pub fn to_host(&self) -> Vec<Vec<u32>> {
        match &self.0 {
            NodesAt::Host(nodes) => nodes.clone(),
            NodesAt::Device(sample) => {
                let types = sample.counts.first().map_or(0, Vec::len);
                (0..types).map(|t| sample.nodes_to_host(t)).collect()
            }
        }
    }
}
