//! What a layer walks: relations between the nodes before it and the nodes after it.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, DropEdge, GraphBackend, NodeSet, select_rows};

use super::device_graph::{DeviceGraph, streams_into};
use super::reach::Reach;
use crate::graph::HeteroGraph;
use crate::loader::{BatchLayer, Kept};

/// One relation of a layer.
#[derive(Clone, Debug)]
pub struct Hop<B: Backend> {
    /// Node type of the sources.
    pub src: usize,
    /// Node type of the destinations.
    pub dst: usize,
    /// Weight-sharing group.
    pub stream: usize,
    /// Destinations by sources.
    pub csr: Csr<B>,
    /// Edges that the layer leaves out.
    pub drop_edge: Option<DropEdge>,
}

/// The rows before and after a layer.
#[derive(Clone, Debug)]
enum Ends<B: Backend> {
    /// Their nodes; all of a type without a set.
    Sets([Option<NodeSet<B>>; 2]),
    Kept(Kept<B>),
}

/// One layer of a pass. Relations without a node at either end are left out.
#[derive(Clone, Debug)]
pub struct LayerWalk<B: Backend> {
    /// The relations.
    pub hops: Vec<Hop<B>>,
    /// `[type]`: rows after the layer.
    pub rows: Vec<usize>,
    /// `[type]`: which rows before the layer those after it are.
    kept: Vec<Ends<B>>,
    /// Whether the layer reads features: they are data, and no gradient reaches them.
    pub reads_data: bool,
    /// Whether destinations are looked up by their number before the layer, because `csr` is restricted.
    pub whole: bool,
}

impl<B: GraphBackend> LayerWalk<B> {
    /// Whether a relation of a stream is walked. What autodiff writes down of parameters that no loss depends on is never
    /// forgotten, so nothing is computed of the others.
    pub fn walks(&self, stream: usize) -> bool {
        self.hops.iter().any(|hop| hop.stream == stream)
    }

    /// The rows of the destinations out of a matrix over the rows before the layer.
    pub fn destinations(&self, node_type: usize, before: Tensor<B, 2>) -> Tensor<B, 2> {
        match &self.kept[node_type] {
            Ends::Sets([from, to]) => select_rows(before, from.as_ref(), to.as_ref()),
            Ends::Kept(kept) => kept.select(before),
        }
    }
}

/// The layers of a pass over a graph whose nodes are all on the device; `drop_edge` says what a layer leaves out of a
/// relation.
pub fn of_graph<B: GraphBackend>(
    graph: &DeviceGraph<B>,
    reach: &Reach<B>,
    drop_edge: impl Fn(usize, &super::device_graph::DeviceRelation<B>) -> Option<DropEdge>,
) -> Vec<LayerWalk<B>> {
    let types = graph.node_types.len();
    let layer = |layer: usize| {
        let rows = |level: usize, t: usize| reach.rows(graph, level, t);
        let live = graph.relations.iter().filter(|r| rows(layer, r.src) > 0 && rows(layer + 1, r.dst) > 0);
        let hops = live.map(|relation| Hop {
            src: relation.src,
            dst: relation.dst,
            stream: relation.stream,
            csr: reach.csr(layer, relation),
            drop_edge: drop_edge(layer, relation),
        });
        let (before, after) = (&reach.levels[layer], &reach.levels[layer + 1]);
        LayerWalk {
            hops: hops.collect(),
            rows: (0..types).map(|t| rows(layer + 1, t)).collect(),
            kept: (0..types).map(|t| Ends::Sets([before[t].clone(), after[t].clone()])).collect(),
            reads_data: layer == 0 && before.iter().all(Option::is_none),
            whole: true,
        }
    };
    (0..reach.levels.len() - 1).map(layer).collect()
}

/// The streams of a graph that stays on the host.
#[derive(Clone, Debug)]
pub struct Streams {
    /// `[relation]`: source type, destination type, stream.
    relations: Vec<[usize; 3]>,
    /// `[type]`: distinct streams into it.
    pub into: Vec<usize>,
}

impl Streams {
    /// Of a graph.
    pub fn of(graph: &HeteroGraph) -> Self {
        let names = graph.streams();
        let stream = |name: &str| names.iter().position(|s| *s == name).unwrap_or_default();
        let relations = graph.relations().iter().map(|r| [r.src, r.dst, stream(&r.stream)]).collect();
        Self { relations, into: (0..graph.node_types().len()).map(|t| streams_into(graph, t)).collect() }
    }

    /// A layer of a sampled batch; `first` says whether it reads features.
    pub fn walk<B: GraphBackend>(&self, layer: BatchLayer<B>, first: bool) -> LayerWalk<B> {
        let types = 0..layer.kept.len();
        let rows = types.map(|t| layer.rows_after(t)).collect();
        let hops = self
            .relations
            .iter()
            .zip(layer.csr)
            .filter_map(|(&[src, dst, stream], csr)| Some(Hop { src, dst, stream, csr: csr?, drop_edge: None }));
        LayerWalk {
            hops: hops.collect(),
            rows,
            kept: layer.kept.into_iter().map(Ends::Kept).collect(),
            reads_data: first,
            whole: false,
        }
    }
}
