//! A mini-batch on a device.

use std::ops::AddAssign;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, GraphBackend, NodeSet, PackedSample, SampleBackend, select_rows};
use serde::Serialize;

use crate::nn::Nodes;

/// Where the feature rows of a batch came from, and what else there is to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchStats {
    /// Batches counted.
    pub batches: u64,
    /// Sampled edges.
    pub edges: u64,
    /// Rows of the batch.
    pub rows: u64,
    /// Rows that were there already.
    pub shared: u64,
    /// Rows copied from the hot cache.
    pub hot: u64,
    /// Rows from host memory.
    pub fetched: u64,
    /// Rows moved within the buffer.
    pub moved: u64,
    /// Bytes of features that went from the host to the device.
    pub bytes: u64,
}

impl AddAssign for BatchStats {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.edges += other.edges;
        self.rows += other.rows;
        self.shared += other.shared;
        self.hot += other.hot;
        self.fetched += other.fetched;
        self.moved += other.moved;
        self.bytes += other.bytes;
    }
}

/// One layer of a batch: the edges between its sources and its destinations, which are some of the sources.
#[derive(Clone, Debug)]
pub struct BatchLayer<B: Backend> {
    /// `[relation]`: destinations by sources, in the order of the rows after and before the layer; `None` where either end has
    /// no node.
    pub csr: Vec<Option<Csr<B>>>,
    /// `[type]`: which of the rows before the layer are rows after it, in the same order.
    pub kept: Vec<Kept<B>>,
}

/// Which of the rows before a layer are rows after it.
#[derive(Clone, Debug)]
pub enum Kept<B: Backend> {
    /// These.
    Listed(NodeSet<B>),
    /// The first ones.
    First {
        /// How many.
        rows: usize,
        /// Of so many.
        of: usize,
    },
}

impl<B: GraphBackend> Kept<B> {
    /// Rows before the layer.
    pub fn before(&self) -> usize {
        match self {
            Kept::Listed(set) => set.num_nodes(),
            Kept::First { of, .. } => *of,
        }
    }

    /// Rows after the layer.
    pub fn after(&self) -> usize {
        match self {
            Kept::Listed(set) => set.len(),
            Kept::First { rows, .. } => *rows,
        }
    }

    /// The rows after the layer out of a matrix of those before.
    ///
    /// # Panics
    /// For another number of rows.
    pub fn select(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            Kept::Listed(set) => select_rows(x, None, Some(set)),
            Kept::First { rows, of } => {
                let [found, width] = x.dims();
                assert!(found == *of, "Kept::select: rows of x: expected {of}, got {found}");
                match *rows {
                    // No device takes a launch over nothing.
                    0 => Tensor::empty([0, width], (&x.device(), x.dtype())),
                    rows if rows == found => x,
                    rows => x.narrow(0, 0, rows),
                }
            }
        }
    }
}

impl<B: GraphBackend> BatchLayer<B> {
    /// Rows of a type before the layer.
    pub fn rows_before(&self, node_type: usize) -> usize {
        self.kept[node_type].before()
    }

    /// Rows of a type after the layer.
    pub fn rows_after(&self, node_type: usize) -> usize {
        self.kept[node_type].after()
    }

    /// What a layer of [`nn`](crate::nn) reads of a graph with one node type, given the rows before it.
    ///
    /// # Panics
    /// For another number of rows.
    pub fn nodes(&self, x: Tensor<B, 2>) -> Nodes<B> {
        self.nodes_between(x.clone(), x, 0)
    }

    /// The same for a relation: sources, and the rows before the layer of the destinations' type.
    ///
    /// # Panics
    /// For another number of rows.
    pub fn nodes_between(&self, src: Tensor<B, 2>, dst: Tensor<B, 2>, dst_type: usize) -> Nodes<B> {
        Nodes::Between { src, dst: self.kept[dst_type].select(dst) }
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
    pub layers: Vec<BatchLayer<B>>,
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
