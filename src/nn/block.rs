//! A message-flow block: what one layer reads and computes of a graph or of a mini-batch.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use graphsieve_kernels::{Age, Csr, DropEdge, EdgeRows, GraphBackend, NodeSet, select_rows, upload, upload_ints};

use super::check;
use super::graph_conv::Nodes;
use super::typed_edges::TypedEdges;
use crate::graph::EdgeMatrix;

/// The edges of one relation between the rows before a layer and the rows after it.
#[derive(Clone, Debug)]
pub struct RelationEdges<B: Backend> {
    /// Index of the relation in its graph.
    pub relation: usize,
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
    /// Values of the edges, a row per entry of the whole adjacency, also where `csr` is restricted.
    pub values: Option<EdgeRows<B>>,
    /// Ages of the edges in seconds, also of the whole adjacency.
    pub age: Option<Age<B>>,
}

impl<B: Backend> RelationEdges<B> {
    /// The values of edges that have one each, `[num_edges]`: of a classifier, their weights.
    ///
    /// # Panics
    /// For edges with several values.
    pub fn weights(&self) -> Option<Tensor<B, 1>> {
        edge_weights(self.values.as_ref().map(EdgeRows::tensor))
    }
}

/// Which of the rows of a type before a layer are rows after it.
#[derive(Clone, Debug)]
pub enum KeptRows<B: Backend> {
    /// Between two selections of a whole graph.
    Selected {
        /// The nodes before the layer; all without a set.
        before: Option<NodeSet<B>>,
        /// The nodes after it.
        after: Option<NodeSet<B>>,
        /// Nodes of the type.
        of: usize,
    },
    /// These, of a batch in a buffer.
    Listed(NodeSet<B>),
    /// Some that follow each other: the first ones of a batch in the order of its sample, or those of one rank.
    Slice {
        /// The first of them.
        first: usize,
        /// How many.
        rows: usize,
        /// Of so many.
        of: usize,
    },
}

/// One layer of a pass, after DGL's message-flow block. Relations without a node at either end are left out.
#[derive(Clone, Debug)]
pub struct Block<B: Backend> {
    /// The edges, by relation.
    pub edges: Vec<RelationEdges<B>>,
    /// `[type]`: which rows before the layer those after it are.
    pub kept: Vec<KeptRows<B>>,
    /// `[type]`: distinct streams of the whole graph into it.
    pub streams_into: Arc<[usize]>,
    /// Whether the layer reads features: they are data, and no gradient reaches them.
    pub reads_data: bool,
}

/// Values of edges on a device, a row per edge.
pub fn edge_values<B: Backend>(values: &EdgeMatrix, device: &B::Device) -> Tensor<B, 2> {
    let shape = [values.num_entries(), values.width()];
    upload(shape, device, |first, to| to.copy_from_slice(&values.values()[first..][..to.len()]))
}

/// Values of edges that have one each as weights, `[num_edges]`.
///
/// # Panics
/// For edges with several values.
pub fn edge_weights<B: Backend>(values: Option<&Tensor<B, 2>>) -> Option<Tensor<B, 1>> {
    let values = values?;
    Some(values.clone().reshape([values.dims()[0]]))
}

/// Ages of edges on a device, one per entry: of one column of values.
pub fn edge_ages<B: Backend>(ages: &EdgeMatrix, device: &B::Device) -> Age<B> {
    Age::Edges(edge_values(ages, device).reshape([ages.num_entries()]))
}

/// Times of nodes on a device, as [`Age::Nodes`] has them.
pub fn node_times<B: Backend>(times: &[i32], device: &B::Device) -> Tensor<B, 1, Int> {
    upload_ints(times.len(), device, |first, to| to.copy_from_slice(&times[first..][..to.len()]))
}

/// Ages of edges by the times of the nodes at both ends, destinations first.
pub fn ages_between<B: Backend>([dst, src]: [&Option<Tensor<B, 1, Int>>; 2]) -> Option<Age<B>> {
    Some(Age::Nodes { dst: dst.clone()?, src: src.clone()? })
}

/// The same ages for passes that record nothing.
pub fn inner_age<B: Backend>(age: Age<Autodiff<B>>) -> Age<B> {
    match age {
        Age::Edges(ages) => Age::Edges(ages.inner()),
        Age::Nodes { dst, src } => Age::Nodes { dst: dst.inner(), src: src.inner() },
    }
}

impl<B: Backend> KeptRows<Autodiff<B>> {
    /// The same for passes that record nothing.
    pub fn inner(self) -> KeptRows<B> {
        match self {
            KeptRows::Selected { before, after, of } => {
                KeptRows::Selected { before: before.map(NodeSet::inner), after: after.map(NodeSet::inner), of }
            }
            KeptRows::Listed(set) => KeptRows::Listed(set.inner()),
            KeptRows::Slice { first, rows, of } => KeptRows::Slice { first, rows, of },
        }
    }
}

impl<B: Backend> Block<Autodiff<B>> {
    /// The same for passes that record nothing.
    pub fn inner(self) -> Block<B> {
        let edges = |edges: RelationEdges<Autodiff<B>>| RelationEdges {
            relation: edges.relation,
            src: edges.src,
            dst: edges.dst,
            stream: edges.stream,
            csr: edges.csr.inner(),
            drop_edge: edges.drop_edge,
            values: edges.values.map(EdgeRows::inner),
            age: edges.age.map(inner_age),
        };
        Block {
            edges: self.edges.into_iter().map(edges).collect(),
            kept: self.kept.into_iter().map(KeptRows::inner).collect(),
            streams_into: self.streams_into,
            reads_data: self.reads_data,
        }
    }
}

impl<B: GraphBackend> KeptRows<B> {
    /// Rows before the layer.
    pub fn before(&self) -> usize {
        match self {
            KeptRows::Selected { before, of, .. } => before.as_ref().map_or(*of, NodeSet::len),
            KeptRows::Listed(set) => set.num_nodes(),
            KeptRows::Slice { of, .. } => *of,
        }
    }

    /// Rows after the layer.
    pub fn after(&self) -> usize {
        match self {
            KeptRows::Selected { after, of, .. } => after.as_ref().map_or(*of, NodeSet::len),
            KeptRows::Listed(set) => set.len(),
            KeptRows::Slice { rows, .. } => *rows,
        }
    }

    /// The number before the layer of the first row after it, where others follow it.
    pub fn first(&self) -> usize {
        match self {
            KeptRows::Slice { first, .. } => *first,
            _ => 0,
        }
    }

    /// The rows after the layer out of a matrix of those before.
    ///
    /// # Panics
    /// For another number of rows.
    pub fn select(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            KeptRows::Selected { before, after, .. } => select_rows(x, before.as_ref(), after.as_ref()),
            KeptRows::Listed(set) => select_rows(x, None, Some(set)),
            KeptRows::Slice { first, rows, of } => {
                let [found, width] = x.dims();
                assert!(found == *of, "KeptRows::select: rows of x: expected {of}, got {found}");
                match *rows {
                    // No device takes a launch over nothing.
                    0 => Tensor::empty([0, width], (&x.device(), x.dtype())),
                    rows if rows == found => x,
                    rows => x.narrow(0, *first, rows),
                }
            }
        }
    }
}

impl<B: Backend> Block<B> {
    /// A layer over all of a typed graph with so many nodes of each type, every relation in a stream of its own.
    ///
    /// # Panics
    /// If a relation names a type that is not there, or has another number of nodes at an end.
    pub fn whole(relations: &[TypedEdges<'_, B>], nodes: &[usize]) -> Self {
        const NAME: &str = "Block::whole";
        let mut streams_into = vec![0; nodes.len()];
        let mut edges = Vec::new();
        for (relation, typed) in relations.iter().enumerate() {
            typed.check(NAME, relation, nodes.len());
            let &TypedEdges { csr, src, dst } = typed;
            check::size(NAME, &format!("destinations of relation {relation}"), nodes[dst], csr.num_rows());
            check::size(NAME, &format!("sources of relation {relation}"), nodes[src], csr.num_cols());
            streams_into[dst] += 1;
            if nodes[src] > 0 && nodes[dst] > 0 {
                let csr = csr.clone();
                let (stream, drop_edge, values, age) = (relation, None, None, None);
                edges.push(RelationEdges { relation, src, dst, stream, csr, drop_edge, values, age });
            }
        }
        let kept = nodes.iter().map(|&of| KeptRows::Selected { before: None, after: None, of }).collect();
        Self { edges, kept, streams_into: streams_into.into(), reads_data: false }
    }
}

impl<B: GraphBackend> Block<B> {
    /// Rows of a type before the layer.
    pub fn rows_before(&self, node_type: usize) -> usize {
        self.kept[node_type].before()
    }

    /// Rows of a type after the layer.
    pub fn rows_after(&self, node_type: usize) -> usize {
        self.kept[node_type].after()
    }

    /// The edges of the relation with this index; `None` where either end has no node.
    pub fn csr(&self, relation: usize) -> Option<&Csr<B>> {
        self.edges.iter().find(|edges| edges.relation == relation).map(|edges| &edges.csr)
    }

    /// Whether a relation of a stream has edges here. Autodiff keeps nodes of parameters that a loss does not reach, so
    /// nothing is computed of the others.
    pub fn has_stream(&self, stream: usize) -> bool {
        self.edges.iter().any(|edges| edges.stream == stream)
    }

    /// Whether the adjacencies are those of a whole graph, restricted: then attention over data looks destinations up
    /// by their number before the layer.
    pub fn is_restricted(&self) -> bool {
        self.kept.iter().any(|kept| matches!(kept, KeptRows::Selected { .. }))
    }

    /// The rows of the destinations of a type out of a matrix over the rows before the layer.
    pub fn destinations(&self, node_type: usize, before: Tensor<B, 2>) -> Tensor<B, 2> {
        self.kept[node_type].select(before)
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
