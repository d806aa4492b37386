//! The rows of a graph divided over ranks: each computes its own, out of those of all ranks before the layer.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Age, CollectiveError, Communicator, DropEdge, EdgeRows, GraphBackend, download};

use super::device_graph::{DeviceGraph, DeviceRelation, arriving, csr, refused};
use crate::error::{Error, Result};
use crate::graph::{Ages, EdgeMatrix, HeteroGraph, Relation};
use crate::nn::{Block, KeptRows, ages_between, edge_ages, edge_values, node_times};

/// Which nodes each rank computes: of every type some that follow each other, so that ranks have about as many edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// By type: where the nodes of each rank begin, and the number of all.
    starts: Vec<Vec<usize>>,
}

impl Division {
    /// Of the nodes of `graph` over `ranks`; `None` where a rank would have none. A node counts 1, and so does each of
    /// its in-neighbours.
    pub fn balanced(graph: &HeteroGraph, ranks: usize) -> Option<Self> {
        let starts = (0..graph.node_types().len()).map(|t| {
            let into: Vec<&Relation> = graph.relations().iter().filter(|relation| relation.dst == t).collect();
            let count = graph.node_types()[t].count;
            let cost = |node: usize| 1 + into.iter().map(|relation| relation.forward.degree(node)).sum::<usize>();
            let all: usize = (0..count).map(cost).sum();
            let (mut starts, mut so_far) = (vec![0], 0);
            for node in 0..count {
                // The first node with which a rank has its share is its last.
                while starts.len() < ranks && so_far * ranks >= starts.len() * all {
                    starts.push(node);
                }
                so_far += cost(node);
            }
            starts.resize(ranks + 1, count);
            starts
        });
        let division = Self { starts: starts.collect() };
        let has_nodes = |rank: usize| (0..division.starts.len()).any(|t| !division.nodes(t, rank).is_empty());
        (0..ranks).all(has_nodes).then_some(division)
    }

    /// The nodes of type `t` that `rank` computes, numbered within the type.
    pub fn nodes(&self, t: usize, rank: usize) -> Range<usize> {
        self.starts[t][rank]..self.starts[t][rank + 1]
    }

    /// Of type `t`: how many nodes each rank computes.
    pub fn counts(&self, t: usize) -> Vec<usize> {
        self.starts[t].windows(2).map(|ends| ends[1] - ends[0]).collect()
    }

    fn ranks(&self) -> usize {
        self.starts.first().map_or(0, |starts| starts.len() - 1)
    }

    /// How many nodes of all types each rank computes.
    fn totals(&self) -> Vec<usize> {
        (0..self.ranks()).map(|rank| (0..self.starts.len()).map(|t| self.nodes(t, rank).len()).sum()).collect()
    }

    /// The nodes in the order of the whole graph, as ranges of places among all nodes, see [`places`](Self::places).
    fn pieces(&self) -> Vec<Range<usize>> {
        let mut first = 0;
        let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
        for rank in 0..self.ranks() {
            for t in 0..self.starts.len() {
                let count = self.nodes(t, rank).len();
                pieces.push((t, first..first + count));
                first += count;
            }
        }
        // Stable: those of a type stay in the order of the ranks.
        pieces.sort_by_key(|(t, _)| *t);
        pieces.into_iter().map(|(_, piece)| piece).collect()
    }

    /// By node of the whole graph: its place among all nodes, those of one rank behind those of another.
    pub fn places(&self) -> Vec<u32> {
        self.pieces().into_iter().flatten().map(|place| place as u32).collect()
    }
}

impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals: Vec<String> = self.totals().iter().map(usize::to_string).collect();
        write!(f, "rows are divided over {} ranks, which compute {} nodes", totals.len(), totals.join(", "))
    }
}

/// What one rank has on its device of a graph: the edges into the nodes that it computes.
#[derive(Clone, Debug)]
pub struct GraphPart<B: Backend> {
    division: Division,
    rank: usize,
    /// Rows of its adjacencies are the nodes of this rank.
    graph: DeviceGraph<B>,
    /// The types of the whole graph, those with most edges into them first.
    order: Arc<[usize]>,
}

impl<B: Backend> GraphPart<B> {
    /// Uploads the part of `rank`.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when a relation does not fit what the kernels can index.
    pub fn upload(graph: &HeteroGraph, division: Division, rank: usize, device: &B::Device) -> Result<Self> {
        let streams: Vec<String> = graph.streams().into_iter().map(String::from).collect();
        let times = |t: usize, nodes: Range<usize>| Some(node_times(&graph.times_of(t)?[nodes], device));
        let all = |t: usize| 0..graph.node_types()[t].count;
        let (arriving, mut relations) = (arriving(graph, &streams), Vec::new());
        for (id, relation) in graph.relations().iter().enumerate() {
            let rows = division.nodes(relation.dst, rank);
            if rows.is_empty() || relation.forward.num_cols() == 0 {
                continue;
            }
            let (part, entries) = relation.forward.slice(rows.clone());
            let of_entries = |values: &EdgeMatrix| values.picked(entries.clone());
            let age = match &relation.ages {
                Some(Ages::Edges(ages)) => Some(edge_ages(&of_entries(ages), device)),
                Some(Ages::Nodes) => {
                    ages_between([&times(relation.dst, rows), &times(relation.src, all(relation.src))])
                }
                None => None::<Age<B>>,
            };
            let csr = csr(&part, device).map_err(|problem| refused(relation, &problem))?;
            let values = relation.values.as_deref().map(|values| edge_values(&of_entries(values), device));
            relations.push(DeviceRelation {
                src: relation.src,
                dst: relation.dst,
                stream: arriving[id].1,
                values: values.map(|values| EdgeRows::kept(&csr, values)),
                csr,
                id,
                age,
            });
        }
        let (node_types, streams_into) = (graph.node_types().to_vec(), graph.streams_into().into());
        let edges_into = |t: &usize| {
            let into = graph.relations().iter().filter(|relation| relation.dst == *t);
            Reverse(into.map(|relation| relation.forward.num_edges()).sum::<usize>())
        };
        let mut order: Vec<usize> = (0..node_types.len()).collect();
        order.sort_by_key(edges_into);
        let graph = DeviceGraph { node_types, streams, relations, arriving, streams_into };
        Ok(Self { division, rank, graph, order: order.into() })
    }

    /// The same part, whose edges have their values in a data type.
    pub fn with_values_in(self, dtype: DType) -> Self {
        Self { graph: self.graph.with_values_in(dtype), ..self }
    }

    /// The nodes of type `t` that this rank computes, numbered within the type.
    pub fn own(&self, t: usize) -> Range<usize> {
        self.division.nodes(t, self.rank)
    }

    /// The types, as a pass over layers of divided rows goes through them.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Of type `t`: how many nodes each rank computes.
    pub fn counts(&self, t: usize) -> Vec<usize> {
        self.division.counts(t)
    }

    /// The number of the first of them in the whole graph.
    pub fn first_id(&self, t: usize) -> usize {
        self.graph.node_types[t].offset + self.own(t).start
    }

    /// Edges into the nodes of this rank: those that one layer visits.
    pub fn num_edges(&self) -> usize {
        self.graph.num_edges()
    }

    /// Layer `layer` of a pass, counted from 0, over the rows of all ranks before it; `drop_edge` says what it leaves
    /// out of a relation.
    pub fn block(
        &self,
        layer: usize,
        drop_edge: impl Fn(&DeviceGraph<B>, &DeviceRelation<B>) -> Option<DropEdge>,
    ) -> Block<B> {
        let edges = self.graph.relations.iter().map(|relation| {
            let dropped = drop_edge(&self.graph, relation).map(|key| {
                let [dst, src] = [relation.dst, relation.src].map(|t| self.graph.node_types[t].offset);
                key.with_bases((dst + self.division.nodes(relation.dst, self.rank).start) as u32, src as u32)
            });
            relation.edges(relation.csr.clone(), dropped)
        });
        let kept = self.graph.node_types.iter().enumerate().map(|(t, of)| {
            let own = self.division.nodes(t, self.rank);
            KeptRows::Slice { first: own.start, rows: own.len(), of: of.count }
        });
        Block {
            edges: edges.collect(),
            kept: kept.collect(),
            streams_into: self.graph.streams_into.clone(),
            reads_data: layer == 0,
        }
    }
}

impl<B: Backend> GraphPart<Autodiff<B>> {
    /// The same arrays for passes that record nothing.
    pub fn inner(&self) -> GraphPart<B> {
        let (division, order) = (self.division.clone(), self.order.clone());
        GraphPart { division, rank: self.rank, graph: self.graph.inner(), order }
    }
}

impl<B: GraphBackend> GraphPart<B> {
    /// The rows of all ranks, out of those of this one, by type, behind the exchanges of `before`. One exchange follows
    /// the other, in the backward pass, too, whatever of them this rank goes on with.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn gathered(
        &self,
        own: Vec<Tensor<B, 2>>,
        before: &[Tensor<B, 2>],
        rank: &Communicator<B::Plain>,
    ) -> Result<Vec<Tensor<B, 2>>, CollectiveError> {
        let mut all: Vec<Tensor<B, 2>> = Vec::with_capacity(own.len());
        for (t, own) in own.into_iter().enumerate() {
            let after = all.last().or(before.last());
            all.push(rank.all_gather_rows_after(own, &self.division.counts(t), after)?);
        }
        Ok(all)
    }

    /// One matrix of all nodes, those of one rank behind those of another, out of the rows of this rank by type; behind
    /// the exchanges of `before`.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn gathered_at_last(
        &self,
        own: Vec<Tensor<B, 2>>,
        before: &[Tensor<B, 2>],
        rank: &Communicator<B::Plain>,
    ) -> Result<Tensor<B, 2>, CollectiveError> {
        let own: Vec<Tensor<B, 2>> = own.into_iter().filter(|rows| rows.dims()[0] > 0).collect();
        rank.all_gather_rows_after(Tensor::cat(own, 0), &self.division.totals(), before.last())
    }

    /// The rows of all nodes by their numbers, on the host of rank 0, out of a matrix of all ranks as
    /// [`gathered_at_last`](Self::gathered_at_last) gives it. The others, which only have their part in it, get none.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn on_first_host(&self, rows: Tensor<B, 2>, rank: &Communicator<B::Plain>) -> Result<Vec<f32>> {
        let pieces = match rank.rank() {
            0 => self.division.pieces(),
            _ => Vec::new(),
        };
        // No device takes a launch over nothing.
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        let by_node = download(pieces.map(|piece| rows.clone().narrow(0, piece.start, piece.len())).collect());
        rank.settled().map_err(failed)?;
        Ok(by_node)
    }
}

/// What a training says of an exchange that gave nothing.
pub fn failed(error: CollectiveError) -> Error {
    Error::Ranks {
        reason: error.to_string(),
        help: "the last checkpoint is as it was: `graphsieve train --resume RUN` goes on from there, on any number of \
               ranks"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Adjacency, RelationSpec};

    /// 6 users, of whom the last has most in-neighbours, and 3 products that nothing points at.
    fn graph() -> HeteroGraph {
        let into_last: Vec<(u32, u32)> = (0..6).map(|user| (5, user)).collect();
        let users = Adjacency::from_edges(6, 6, &into_last);
        let relation =
            RelationSpec { name: "uu".into(), src: 0, dst: 0, stream: "uu".into(), primary: true, adjacency: users };
        HeteroGraph::new(vec![("user".into(), 6), ("product".into(), 3)], vec![relation]).unwrap()
    }

    #[test]
    fn ranks_have_as_many_edges_and_every_node_has_one_place() {
        let graph = graph();
        let division = Division::balanced(&graph, 2).unwrap();
        // Twelve in all: the last user counts seven of them.
        assert_eq!([0, 1].map(|rank| division.nodes(0, rank)), [0..6, 6..6]);
        assert_eq!([0, 1].map(|rank| division.nodes(1, rank)), [0..2, 2..3]);
        assert_eq!((division.counts(0), division.totals()), (vec![6, 0], vec![8, 1]));
        let mut places = division.places();
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        places.sort_unstable();
        assert_eq!(places, (0..9).collect::<Vec<u32>>());
        let of_three = Division::balanced(&graph, 3).unwrap();
        assert_eq!([0, 1, 2].map(|rank| of_three.nodes(0, rank)), [0..4, 4..6, 6..6]);
        assert_eq!(of_three.places(), [0, 1, 2, 3, 5, 6, 4, 7, 8]);
        assert_eq!(of_three.pieces().into_iter().flatten().collect::<Vec<usize>>(), [0, 1, 2, 3, 5, 6, 4, 7, 8]);
        assert_eq!(Division::balanced(&graph, 40), None, "more ranks than nodes");
        assert_eq!(Division::balanced(&graph, 1).unwrap().nodes(0, 0), 0..6);
    }
}
