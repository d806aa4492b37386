//! The same layers over mini-batches, whose nodes have sampled neighbours.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{
    Activation, Csr, Destinations, GraphBackend, SelfTerm, SpmmConfig, Term, combine, linear, normalise_rows, spmm,
    sum_in_chunks,
};
use rayon::prelude::*;

use super::{ConvolutionLayer, Factors, Normalisation, TripleStreamGae, blank, vector};
use crate::graph::{HeteroGraph, Relation};
use crate::models::crossing::{AtHand, LayerRows, in_turn};
use crate::nn::{Block, KeptRows, RelationEdges};

/// Rows of one task.
const TASK_ROWS: usize = 256;

/// [`Normalisation`] of a whole graph in host memory, of which mini-batches get that of their nodes.
#[derive(Clone, Debug)]
pub struct HostNormalisation {
    graph: Arc<HeteroGraph>,
    /// By relation.
    factors: Vec<Factors>,
}

/// [`Normalisation`] of one layer over a mini-batch, of the relations into its rows.
///
/// With `k_i` of the `n_i` neighbours of node `i` the sum over those that were drawn counts `n_i / k_i` times: drawn
/// evenly they make it an unbiased estimate of the sum over all, and it is that sum where all are taken.
#[derive(Clone, Debug)]
pub struct BatchNormalisation<B: Backend> {
    pub(super) relations: Vec<BatchRelation<B>>,
}

#[derive(Clone, Debug)]
pub(super) struct BatchRelation<B: Backend> {
    id: usize,
    pub dst: usize,
    pub stream: usize,
    normalisation: Normalisation<B>,
}

/// Factors of nodes of one type, and their neighbours in number: a column of `[rows, columns]` for each.
#[derive(Clone, Copy, Debug)]
enum Column {
    DstScale(usize),
    SelfWeight(usize),
    Neighbours(usize),
    SrcScale(usize),
}

impl HostNormalisation {
    /// For every relation of `graph`, as [`AutoEncoderSpec::reading`](super::AutoEncoderSpec::reading) makes it;
    /// `causal` is [`AutoEncoderSpec::causal`](super::AutoEncoderSpec::causal).
    ///
    /// # Panics
    /// For edges with several values.
    pub fn of(graph: Arc<HeteroGraph>, causal: bool) -> Self {
        let factors = graph.relations().iter().map(|relation| Factors::of(relation, causal)).collect();
        Self { graph, factors }
    }

    /// The graph.
    pub fn graph(&self) -> &Arc<HeteroGraph> {
        &self.graph
    }

    /// Relations into types with nodes, by number.
    fn relations(&self) -> impl Iterator<Item = (usize, &Relation)> {
        arriving(&self.graph)
    }

    /// What the layers read of nodes of a type.
    fn columns(&self, node_type: usize) -> Vec<Column> {
        let mut columns = Vec::new();
        for (id, relation) in self.relations() {
            if relation.dst == node_type {
                columns.push(Column::DstScale(id));
                columns.extend(self.factors[id].self_weight.is_some().then_some(Column::SelfWeight(id)));
                columns.push(Column::Neighbours(id));
            }
            if relation.src == node_type {
                columns.push(Column::SrcScale(id));
            }
        }
        columns
    }

    fn value(&self, column: Column, node: u32) -> f32 {
        let node = node as usize;
        match column {
            Column::DstScale(id) => self.factors[id].dst_scale[node],
            Column::SelfWeight(id) => self.factors[id].self_weight.as_ref().map_or(0.0, |weight| weight[node]),
            Column::Neighbours(id) => self.graph.relations()[id].forward.degree(node) as f32,
            Column::SrcScale(id) => self.factors[id].src_scale[node],
        }
    }

    /// Of the layers of a mini-batch with the nodes `nodes` before the first of them, by type and numbered within it.
    pub fn of_blocks<B: GraphBackend>(
        &self,
        nodes: &[Vec<u32>],
        blocks: &[Block<B>],
        device: &B::Device,
    ) -> Vec<BatchNormalisation<B>> {
        let columns: Vec<Vec<Column>> = (0..nodes.len()).map(|t| self.columns(t)).collect();
        let upload = |(columns, nodes): (&Vec<Column>, &Vec<u32>)| {
            let shape = [nodes.len(), columns.len()];
            // No device takes a copy of nothing.
            (shape[0] * shape[1] > 0).then(|| {
                let mut values = vec![0f32; shape[0] * shape[1]];
                let rows = values.par_chunks_exact_mut(shape[1]).zip(nodes).with_min_len(TASK_ROWS);
                rows.for_each(|(row, &node)| {
                    row.iter_mut().zip(columns).for_each(|(to, &column)| *to = self.value(column, node));
                });
                Tensor::<B, 2>::from_data(TensorData::new(values, shape), device)
            })
        };
        let mut before: Vec<Option<Tensor<B, 2>>> = columns.iter().zip(nodes).map(upload).collect();
        let of_block = |block: &Block<B>| {
            let kept = |(kept, rows): (&KeptRows<B>, &Option<Tensor<B, 2>>)| {
                rows.clone().filter(|_| kept.after() > 0).map(|rows| kept.select(rows))
            };
            let after: Vec<Option<Tensor<B, 2>>> = block.kept.iter().zip(&before).map(kept).collect();
            let of_block = self.of_block(block, &columns, [&before, &after], device);
            before = after;
            of_block
        };
        blocks.iter().map(of_block).collect()
    }

    /// The same for a training: nothing is recorded.
    pub fn of_training<B: GraphBackend>(
        &self,
        nodes: &[Vec<u32>],
        blocks: &[Block<Autodiff<B>>],
        device: &B::Device,
    ) -> Vec<BatchNormalisation<Autodiff<B>>> {
        let inner: Vec<Block<B>> = blocks.iter().cloned().map(Block::inner).collect();
        self.of_blocks(nodes, &inner, device).into_iter().map(BatchNormalisation::into_autodiff).collect()
    }

    /// Of one layer; `rows` are the columns of the nodes before and after it.
    fn of_block<B: GraphBackend>(
        &self,
        block: &Block<B>,
        columns: &[Vec<Column>],
        rows: [&[Option<Tensor<B, 2>>]; 2],
        device: &B::Device,
    ) -> BatchNormalisation<B> {
        let [before, after] = rows;
        let column = |of: &Option<Tensor<B, 2>>, t: usize, is: &dyn Fn(&Column) -> bool| -> Option<Tensor<B, 1>> {
            let (rows, place) = (of.as_ref()?, columns[t].iter().position(is)?);
            Some(rows.clone().narrow(1, place, 1).reshape([rows.dims()[0]]))
        };
        let streams = self.graph.streams();
        let of_relation = |(id, relation): (usize, &Relation)| {
            let (dst, src) = (relation.dst, relation.src);
            let of_dst = |is: &dyn Fn(&Column) -> bool| column(&after[dst], dst, is);
            let dst_scale = of_dst(&|column| matches!(column, Column::DstScale(of) if *of == id))?;
            let neighbours = of_dst(&|column| matches!(column, Column::Neighbours(of) if *of == id))?;
            let estimate = |csr: &Csr<B>| neighbours / csr.degrees().clamp_min(1.0);
            let src_scale = column(&before[src], src, &|column| matches!(column, Column::SrcScale(of) if *of == id));
            let normalisation = Normalisation {
                dst_scale: match block.csr(id) {
                    Some(csr) => dst_scale * estimate(csr),
                    None => dst_scale,
                },
                // No source is there.
                src_scale: src_scale.unwrap_or_else(|| Tensor::empty([0], device)),
                self_weight: of_dst(&|column| matches!(column, Column::SelfWeight(of) if *of == id)),
            };
            let stream = streams.iter().position(|stream| *stream == relation.stream).unwrap_or_default();
            Some(BatchRelation { id, dst, stream, normalisation })
        };
        BatchNormalisation { relations: self.relations().filter_map(of_relation).collect() }
    }
}

/// Relations into types with nodes, by number.
fn arriving(graph: &HeteroGraph) -> impl Iterator<Item = (usize, &Relation)> {
    graph.relations().iter().enumerate().filter(|(_, of)| of.forward.num_rows() > 0)
}

impl<B: Backend> BatchNormalisation<Autodiff<B>> {
    /// The same for passes that record nothing.
    pub(super) fn inner(self) -> BatchNormalisation<B> {
        let relation = |of: BatchRelation<Autodiff<B>>| BatchRelation {
            id: of.id,
            dst: of.dst,
            stream: of.stream,
            normalisation: of.normalisation.inner(),
        };
        BatchNormalisation { relations: self.relations.into_iter().map(relation).collect() }
    }
}

impl<B: Backend> BatchNormalisation<B> {
    /// Of a layer from all nodes of `graph` to those that are `own`, by type; the graph and `causal` are as
    /// [`HostNormalisation::of`] has them.
    pub(super) fn of_part(
        graph: &HeteroGraph,
        causal: bool,
        own: impl Fn(usize) -> Range<usize>,
        device: &B::Device,
    ) -> Self {
        let streams = graph.streams();
        let of_relation = |(id, relation): (usize, &Relation)| {
            let (factors, own) = (Factors::of(relation, causal), own(relation.dst));
            let normalisation = Normalisation {
                dst_scale: vector(factors.dst_scale[own.clone()].to_vec(), device),
                src_scale: vector(factors.src_scale, device),
                self_weight: factors.self_weight.map(|weight| vector(weight[own].to_vec(), device)),
            };
            let stream = streams.iter().position(|stream| *stream == relation.stream).unwrap_or_default();
            BatchRelation { id, dst: relation.dst, stream, normalisation }
        };
        Self { relations: arriving(graph).map(of_relation).collect() }
    }

    fn into_autodiff(self) -> BatchNormalisation<Autodiff<B>> {
        let relation = |of: BatchRelation<B>| BatchRelation {
            id: of.id,
            dst: of.dst,
            stream: of.stream,
            normalisation: Normalisation {
                dst_scale: Tensor::from_inner(of.normalisation.dst_scale),
                src_scale: Tensor::from_inner(of.normalisation.src_scale),
                self_weight: of.normalisation.self_weight.map(Tensor::from_inner),
            },
        };
        BatchNormalisation { relations: self.relations.into_iter().map(relation).collect() }
    }
}

impl<B: GraphBackend> TripleStreamGae<B> {
    /// Number of layers.
    pub const LAYERS: usize = 2;

    /// Width of the result of a layer, counted from 0.
    pub fn width_after(&self, layer: usize) -> usize {
        self.layers[layer].streams[0].weight.val().dims()[1]
    }

    /// Embeddings of length one of the rows that are left behind the last of `blocks`, one matrix per node type. `x` is
    /// data: it gets no gradient.
    pub fn embed_blocks(
        &self,
        blocks: &[Block<B>],
        normalisation: &[BatchNormalisation<B>],
        x: Vec<Tensor<B, 2>>,
    ) -> Vec<Tensor<B, 2>> {
        let layers = blocks.iter().zip(normalisation).enumerate();
        layers.fold(x, |h, (at, (block, of_block))| self.embed_layer(at, block, of_block, &h))
    }

    /// One of the layers, counted from 0: its result out of what comes before it, a matrix per type. That of the last
    /// one has length one.
    pub fn embed_layer(
        &self,
        layer: usize,
        block: &Block<B>,
        normalisation: &BatchNormalisation<B>,
        h: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let last = layer + 1 == Self::LAYERS;
        let activation = if last { Activation::Identity } else { Activation::Relu };
        let mut results = Vec::with_capacity(h.len());
        self.layers[layer].over_block(block, normalisation, &AtHand(h), activation, None, |_, result| {
            results.push(if last { normalise_rows(result) } else { result });
        });
        results
    }
}

impl<B: GraphBackend> ConvolutionLayer<B> {
    /// The layer, in the order of `h`: the result of a type goes to `done` as soon as it is there; also by `chunk_rows`
    /// rows at a time.
    pub(super) fn over_block(
        &self,
        block: &Block<B>,
        normalisation: &BatchNormalisation<B>,
        h: &dyn LayerRows<B>,
        activation: Activation,
        chunk_rows: Option<usize>,
        mut done: impl FnMut(usize, Tensor<B, 2>),
    ) {
        let into = |t: usize| normalisation.relations.iter().filter(move |of| of.dst == t);
        let biases = |t: usize| self.biases(into(t).map(|of| of.stream));
        let weight = |of: &BatchRelation<B>| self.streams[of.stream].weight.val();
        // Of types whose results are not there yet.
        let selected = RefCell::new(vec![None; h.types()]);
        let own = |t: usize| -> Tensor<B, 2> {
            selected.borrow_mut()[t].get_or_insert_with(|| block.destinations(t, h.rows(t))).clone()
        };
        let mut end = |t: usize, of_rows: &mut dyn FnMut(Tensor<B, 2>) -> Tensor<B, 2>| {
            let weight = self.own[t].val();
            done(
                t,
                match block.rows_after(t) {
                    0 => blank([0, weight.dims()[1]], &h.any()),
                    _ => of_rows(weight),
                },
            );
            selected.borrow_mut()[t] = None;
        };
        if let Some(chunk_rows) = chunk_rows {
            for t in h.order() {
                end(t, &mut |weight_of_own| {
                    let rows = own(t);
                    let sums = into(t).filter_map(|of| match product(block, of, &rows) {
                        None => Some(Term::rows(self_term(of, &rows)?, None, weight(of))),
                        Some((edges, weights, config)) => {
                            Some(Term::spmm(&edges.csr, h.rows(edges.src), weights, config, weight(of)))
                        }
                    });
                    let terms = sums.chain([Term::rows(rows.clone(), None, weight_of_own)]).collect();
                    let to = Destinations::new(block.rows_after(t), None);
                    sum_in_chunks(terms, biases(t), 1.0, activation, to, chunk_rows)
                });
            }
            return;
        }
        // Relations without a source are not among the edges.
        let mut relations: Vec<&BatchRelation<B>> =
            normalisation.relations.iter().filter(|of| block.rows_after(of.dst) > 0).collect();
        let edges = h.edges(block);
        relations.sort_by_key(|of| edges.iter().position(|edges| edges.relation == of.id));
        let along = |of: &BatchRelation<B>| {
            let sum = aggregate(block, of, h, &own(of.dst));
            sum.map(|sum| linear(sum, weight(of), None)).into_iter().collect()
        };
        in_turn(h, relations.into_iter().map(|of| (of.dst, of)).collect(), along, |t, mut parts| {
            end(t, &mut |weight| {
                parts.push(linear(own(t), weight, None));
                combine(std::mem::take(&mut parts), biases(t), 1.0, activation)
            });
        });
    }
}

/// What the product with `A~_r` reads: edges, their weights, and the rest; nothing without a source.
type Product<'b, B> = (&'b RelationEdges<B>, Option<Tensor<B, 1>>, SpmmConfig<B>);

fn product<'b, B: GraphBackend>(
    block: &'b Block<B>,
    of: &BatchRelation<B>,
    rows: &Tensor<B, 2>,
) -> Option<Product<'b, B>> {
    let edges = block.edges.iter().find(|edges| edges.relation == of.id)?;
    let Normalisation { dst_scale, src_scale, self_weight } = of.normalisation.clone();
    let own = self_weight.map(|scale| SelfTerm { h: rows.clone(), scale, nodes: None });
    let config = SpmmConfig { dst_scale: Some(dst_scale), src_scale: Some(src_scale), own, ..SpmmConfig::default() };
    Some((edges, edges.weights().filter(|weights| weights.dims()[0] > 0), config))
}

/// `A~_r h` on the rows after a layer; `rows` are those of the destinations before it. Nothing where there is neither a
/// source nor a self term.
pub(super) fn aggregate<B: GraphBackend>(
    block: &Block<B>,
    of: &BatchRelation<B>,
    h: &dyn LayerRows<B>,
    rows: &Tensor<B, 2>,
) -> Option<Tensor<B, 2>> {
    let Some((edges, weights, config)) = product(block, of, rows) else { return self_term(of, rows) };
    Some(spmm(&edges.csr, h.rows(edges.src), weights, config))
}

/// The self term alone, where no source is there.
fn self_term<B: Backend>(of: &BatchRelation<B>, rows: &Tensor<B, 2>) -> Option<Tensor<B, 2>> {
    let weight = of.normalisation.self_weight.clone()?;
    let count = weight.dims()[0];
    Some(rows.clone() * weight.reshape([count, 1]).cast(rows.dtype()))
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::graph::{Adjacency, RelationSpec};
    use crate::nn::RelationEdges;

    #[test]
    fn neighbours_that_were_drawn_count_for_all_and_degrees_are_those_of_the_whole_graph() {
        let edges: Vec<(u32, u32)> = (1..6).map(|src| (0, src)).chain([(1, 0)]).collect();
        let adjacency = Adjacency::from_edges(6, 6, &edges);
        let spec = RelationSpec { name: "r".into(), src: 0, dst: 0, stream: "r".into(), primary: true, adjacency };
        let graph = Arc::new(HeteroGraph::new(vec![("node".into(), 6)], vec![spec]).unwrap());
        // Of the five neighbours of node 0 two were drawn; node 1 has one.
        let csr = Csr::<Flex>::from_host(&[0, 2, 3], &[2, 3, 0], 4, &FlexDevice).unwrap();
        let edges =
            RelationEdges { relation: 0, src: 0, dst: 0, stream: 0, csr, drop_edge: None, values: None, age: None };
        let kept = vec![KeptRows::Slice { first: 0, rows: 2, of: 4 }];
        let block = Block { edges: vec![edges], kept, streams_into: [1].into(), reads_data: true };
        let of = |causal: bool| {
            let mut layers = HostNormalisation::of(graph.clone(), causal).of_blocks(
                &[vec![0, 1, 3, 5]],
                std::slice::from_ref(&block),
                &FlexDevice,
            );
            let Normalisation { dst_scale, src_scale, self_weight } = layers[0].relations.remove(0).normalisation;
            [dst_scale, src_scale, self_weight.unwrap()].map(|of| of.into_data().to_vec::<f32>().unwrap())
        };
        let near = |got: [Vec<f32>; 3], want: [&[f32]; 3]| {
            for (got, want) in got.iter().zip(want) {
                assert!(got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?}");
            }
        };
        let root = |degree: f32| degree.sqrt().recip();
        let (own, out_of) = ([1.0 / 6.0, 0.5], [root(2.0), root(2.0), root(2.0), root(2.0)]);
        near(of(false), [&[2.5 * root(6.0), root(2.0)], &out_of, &own]);
        near(of(true), [&[2.5 / 6.0, 0.5], &[1.0; 4], &own]);
    }
}
