//! Stage 1: the triple-stream graph auto-encoder.

mod divided;
mod in_batches;
mod in_chunks;

use std::path::Path;

use burn::backend::Autodiff;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{
    Activation, GraphBackend, Part, SelfTerm, SpmmConfig, combine_products, normalise_rows, select_rows, spmm,
    upload_data,
};
use serde::{Deserialize, Serialize};

pub use self::divided::DividedInputs;
pub use self::in_batches::{BatchNormalisation, HostNormalisation};
use super::crossing::blank;
use super::device_graph::{DeviceGraph, DeviceRelation};
use super::parameters::{Export, Init, Parameters};
use super::receptive_field::ReceptiveField;
use crate::config::Stage1Model;
use crate::error::Result;
use crate::graph::{Dataset, HeteroGraph, Relation};

/// The shape of a [`TripleStreamGae`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoEncoderSpec {
    /// Weight-sharing groups of relations, in order.
    pub streams: Vec<String>,
    /// Node types, in order: each has a weight for its own features.
    pub node_types: Vec<String>,
    /// Width of the features.
    pub input: usize,
    /// Width after the first layer.
    pub hidden: usize,
    /// Width of the embeddings.
    pub output: usize,
    /// Whether sums over neighbours are means: of data with events, where the degree of a source grows with what comes
    /// later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub causal: bool,
    /// Names of the relations whose edges have weights that the layers read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weighted: Vec<String>,
}

impl AutoEncoderSpec {
    /// The shape that a configuration asks for on a graph with so many columns of features: with
    /// `model.edge_weights` the layers read all weights that the graph has.
    pub fn of(model: &Stage1Model, graph: &HeteroGraph, input: usize, causal: bool) -> Self {
        let weighted = graph.relations().iter().filter(|of| model.edge_weights && of.weights.is_some());
        Self {
            streams: graph.streams().into_iter().map(String::from).collect(),
            node_types: graph.node_types().iter().map(|t| t.name.clone()).collect(),
            input,
            hidden: model.hidden,
            output: model.out,
            causal,
            weighted: weighted.map(|of| of.name.clone()).collect(),
        }
    }

    /// A graph as the layers read it: the values of its edges are the weights that they read, which it has. A node
    /// itself weighs 1, whether the data hold the loop or it is added.
    pub fn reading(&self, graph: HeteroGraph) -> HeteroGraph {
        let reads: Vec<bool> = graph.relations().iter().map(|of| self.weighted.contains(&of.name)).collect();
        graph.with_weights_as_values(|at| reads[at], Some(1.0))
    }

    /// The graph of some data, read from `data`, as the layers read it.
    ///
    /// # Errors
    /// As [`Dataset::graph_with_weights_of`].
    pub fn graph_for(&self, dataset: &Dataset, data: &Path) -> Result<HeteroGraph> {
        let read: Vec<&str> = self.weighted.iter().map(String::as_str).collect();
        Ok(self.reading(dataset.graph_with_weights_of(&read, data)?))
    }
}

/// Two layers of relation-wise graph convolution; embeddings have length one.
///
/// ```text
/// h'_t = act( sum_r (A~_r h) W_r + b_r + h_t W_self,t )        z = h'' / |h''|
/// A~_r = D^-1/2 (A_r + I) D^-1/2, degrees of a relation and of its reverse, self-loop included
///        D^-1 (A_r + I) on data with events ([`AutoEncoderSpec::causal`])
/// ```
///
/// `act` is ReLU after the first layer and nothing after the second. `A_r` has ones, or the weights of the edges where
/// the layers read them ([`AutoEncoderSpec::weighted`]), and a degree is the sum of a row: `sum_j w_ij h_j / sqrt(d_i
/// d'_j) + h_i / d_i` with `d_i = 1 + sum_j w_ij` and `d'_j = 1 + sum_i w_ij`. `A~` is never stored: rows are scaled
/// before and after a sum over the edges, and the self term is added, except where the data holds the loops as edges.
/// A relation from a type without nodes is one without edges: `A~_r h = h`, as of any node that has no neighbour there.
/// So a part of a graph gives a node what the whole graph does, whichever types the part has nodes of.
///
/// # Source
/// GNN-EADD, Stage 1; Kipf and Welling, Variational graph auto-encoders (2016).
#[derive(Module, Debug)]
pub struct TripleStreamGae<B: Backend> {
    layers: Vec<ConvolutionLayer<B>>,
}

#[derive(Module, Debug)]
struct ConvolutionLayer<B: Backend> {
    streams: Vec<Affine<B>>,
    own: Vec<Param<Tensor<B, 2>>>,
}

#[derive(Module, Debug)]
struct Affine<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

impl<B: Backend> TripleStreamGae<B> {
    /// Builds the model from a seed or from a checkpoint.
    ///
    /// # Errors
    /// What the source of the parameters finds wrong: a tensor that is missing or has another shape.
    pub fn new(spec: &AutoEncoderSpec, parameters: &mut Parameters<B>) -> Result<Self> {
        let widths = [(spec.input, spec.hidden), (spec.hidden, spec.output)];
        let mut layers = Vec::new();
        for (layer, (input, output)) in widths.into_iter().enumerate() {
            let init = Init::xavier_uniform(input, output);
            let mut streams = Vec::new();
            for stream in &spec.streams {
                let name = format!("gcn{}.W_{stream}", layer + 1);
                streams.push(Affine {
                    weight: parameters.weight(&format!("{name}.weight"), [input, output], init)?,
                    bias: parameters.vector(&format!("{name}.bias"), output, Init::Zeros)?,
                });
            }
            let mut own = Vec::new();
            for node_type in &spec.node_types {
                let name = format!("gcn{}.W_self_{node_type}.weight", layer + 1);
                own.push(parameters.weight(&name, [input, output], init)?);
            }
            layers.push(ConvolutionLayer { streams, own });
        }
        Ok(Self { layers })
    }

    /// The parameters by name.
    pub fn export(&self, spec: &AutoEncoderSpec) -> Export {
        let mut export = Export::default();
        for (layer, module) in self.layers.iter().enumerate() {
            for (stream, name) in module.streams.iter().zip(&spec.streams) {
                export.weight(format!("gcn{}.W_{name}.weight", layer + 1), &stream.weight);
                export.vector(format!("gcn{}.W_{name}.bias", layer + 1), &stream.bias);
            }
            for (own, node_type) in module.own.iter().zip(&spec.node_types) {
                export.weight(format!("gcn{}.W_self_{node_type}.weight", layer + 1), own);
            }
        }
        export
    }
}

/// `D^-1/2` of both ends of a relation and the weight of the added self term, as device vectors. Edges with a value
/// count as much.
#[derive(Clone, Debug)]
pub struct Normalisation<B: Backend> {
    dst_scale: Tensor<B, 1>,
    src_scale: Tensor<B, 1>,
    /// `None` when every row holds its own loop as an edge.
    self_weight: Option<Tensor<B, 1>>,
}

impl<B: Backend> Normalisation<B> {
    /// For every relation of `graph`, as [`AutoEncoderSpec::reading`] makes it; `causal` is
    /// [`AutoEncoderSpec::causal`].
    ///
    /// # Panics
    /// For edges with several values.
    pub fn of(graph: &HeteroGraph, causal: bool, device: &B::Device) -> Vec<Self> {
        graph.relations().iter().map(|relation| Self::of_relation(relation, causal, device)).collect()
    }

    fn of_relation(relation: &Relation, causal: bool, device: &B::Device) -> Self {
        let Factors { dst_scale, src_scale, self_weight } = Factors::of(relation, causal);
        let vector = |values| vector(values, device);
        Self { dst_scale: vector(dst_scale), src_scale: vector(src_scale), self_weight: self_weight.map(vector) }
    }
}

fn vector<B: Backend>(values: Vec<f32>, device: &B::Device) -> Tensor<B, 1> {
    match values.len() {
        // No device takes a copy of nothing.
        0 => Tensor::empty([0], device),
        len => upload_data::<B, 1>(TensorData::new(values, [len]), device),
    }
}

/// The same in host memory.
#[derive(Clone, Debug)]
struct Factors {
    dst_scale: Vec<f32>,
    src_scale: Vec<f32>,
    self_weight: Option<Vec<f32>>,
}

impl Factors {
    fn of(relation: &Relation, causal: bool) -> Self {
        let forward = &relation.forward;
        let may_loop = relation.loops.in_range > 0;
        let own_loop = |i: usize| may_loop && forward.row(i).contains(&(i as u32));
        let rows = forward.num_rows();
        let has_loop: Vec<bool> = (0..rows).map(own_loop).collect();
        // The degree counts the self-loop, stored or added.
        let degree = |sum: f64, has_loop: bool| (sum + f64::from(u8::from(!has_loop))) as f32;
        let [into, out_of] = edge_sums(relation);
        let dst_degree: Vec<f32> = into.into_iter().zip(&has_loop).map(|(sum, &l)| degree(sum, l)).collect();
        let sources = relation.reverse.num_rows();
        let src_loop = |j: usize| relation.src == relation.dst && has_loop[j];
        let src_degree: Vec<f32> = out_of.into_iter().enumerate().map(|(j, sum)| degree(sum, src_loop(j))).collect();
        let inverse_root = |degree: &[f32]| degree.iter().map(|d| 1.0 / d.max(1.0).sqrt()).collect();
        let self_weight = (!has_loop.iter().all(|&l| l)).then(|| {
            let weights = dst_degree.iter().zip(&has_loop).map(|(d, &l)| if l { 0.0 } else { 1.0 / d.max(1.0) });
            weights.collect()
        });
        if causal {
            let means = dst_degree.iter().map(|d| 1.0 / d.max(1.0)).collect();
            return Self { dst_scale: means, src_scale: vec![1.0; sources], self_weight };
        }
        Self { dst_scale: inverse_root(&dst_degree), src_scale: inverse_root(&src_degree), self_weight }
    }
}

/// What the edges into every destination and out of every source weigh: their number, where they have no weights.
fn edge_sums(relation: &Relation) -> [Vec<f64>; 2] {
    let (forward, reverse) = (&relation.forward, &relation.reverse);
    let Some(weights) = &relation.values else {
        return [forward, reverse].map(|of| (0..of.num_rows()).map(|row| of.degree(row) as f64).collect());
    };
    assert!(
        weights.width() == 1,
        "Normalisation: {}: expected a weight per edge, got {}",
        relation.name,
        weights.width()
    );
    let [mut into, mut out_of] = [forward, reverse].map(|of| vec![0.0; of.num_rows()]);
    for (row, sum) in into.iter_mut().enumerate() {
        for (entry, &col) in forward.entries(row).zip(forward.row(row)) {
            let weight = f64::from(weights.values()[entry]);
            *sum += weight;
            out_of[col as usize] += weight;
        }
    }
    [into, out_of]
}

impl<B: Backend> Normalisation<Autodiff<B>> {
    /// The same for passes that record nothing.
    pub fn inner(self) -> Normalisation<B> {
        Normalisation {
            dst_scale: self.dst_scale.inner(),
            src_scale: self.src_scale.inner(),
            self_weight: self.self_weight.map(Tensor::inner),
        }
    }
}

/// What the first layer projects, one matrix per node type: the aggregate of every relation into the type side by side,
/// and behind them the features. It is constant, so a run makes it once and the layer is one product per type. A run in
/// chunks of rows keeps the features alone and aggregates them in every pass.
#[derive(Clone, Debug)]
pub struct Inputs<B: Backend> {
    rows: Vec<Tensor<B, 2>>,
    chunk_rows: Option<usize>,
}

impl<B: GraphBackend> Inputs<B> {
    /// Aggregates the features `x`, unless layers compute `chunk_rows` destination rows at a time.
    pub fn new(
        graph: &DeviceGraph<B>,
        normalisation: &[Normalisation<B>],
        x: Vec<Tensor<B, 2>>,
        chunk_rows: Option<usize>,
    ) -> Self {
        Self::of(graph, &ReceptiveField::all(graph), normalisation, x, chunk_rows)
    }

    /// The same for a pass over this field alone: nothing is aggregated that it does not read.
    pub fn of(
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        normalisation: &[Normalisation<B>],
        x: Vec<Tensor<B, 2>>,
        chunk_rows: Option<usize>,
    ) -> Self {
        if chunk_rows.is_some() {
            return Self { rows: x, chunk_rows };
        }
        let aggregates = |t: usize| {
            let into = graph.relations_into(t).filter(|_| field.rows(graph, 1, t) > 0);
            into.map(|(_, relation)| aggregate(field, 0, t, relation, normalisation, &x)).collect()
        };
        let columns: Vec<Vec<Tensor<B, 2>>> = (0..x.len()).map(aggregates).collect();
        let own = |(t, x): (usize, Tensor<B, 2>)| select_rows(x, None, field.levels[1][t].as_ref());
        let x = x.into_iter().enumerate().map(own);
        Self { rows: columns.into_iter().zip(x).map(stacked).collect(), chunk_rows }
    }
}

/// What the first layer projects of a type: the aggregates side by side, and behind them the features `x`.
fn stacked<B: Backend>((mut columns, x): (Vec<Tensor<B, 2>>, Tensor<B, 2>)) -> Tensor<B, 2> {
    columns.push(x);
    if columns[0].dims()[0] == 0 { columns.remove(0) } else { Tensor::cat(columns, 1) }
}

impl<B: Backend> Inputs<Autodiff<B>> {
    /// The same for passes that record nothing.
    pub fn inner(self) -> Inputs<B> {
        Inputs { rows: self.rows.into_iter().map(Tensor::inner).collect(), chunk_rows: self.chunk_rows }
    }
}

/// `A~_r h` on the rows of type `t` that layer `layer` wants, of which there are some; `relation` points at them.
fn aggregate<B: GraphBackend>(
    field: &ReceptiveField<B>,
    layer: usize,
    t: usize,
    relation: Option<&DeviceRelation<B>>,
    normalisation: &[Normalisation<B>],
    h: &[Tensor<B, 2>],
) -> Tensor<B, 2> {
    // No node is at its other end: every degree is 1, that of the node itself.
    let Some(relation) = relation else { return kept(field, layer, t, h) };
    let config = product_config(field, layer, relation, normalisation, h);
    spmm(&field.csr(layer, relation), h[relation.src].clone(), relation.weights(), config)
}

/// The rows of type `t` before layer `layer` that are rows after it.
fn kept<B: GraphBackend>(field: &ReceptiveField<B>, layer: usize, t: usize, h: &[Tensor<B, 2>]) -> Tensor<B, 2> {
    select_rows(h[t].clone(), field.levels[layer][t].as_ref(), field.levels[layer + 1][t].as_ref())
}

/// How the product with `A~_r` scales rows, and its self term.
fn product_config<B: GraphBackend>(
    field: &ReceptiveField<B>,
    layer: usize,
    relation: &DeviceRelation<B>,
    normalisation: &[Normalisation<B>],
    h: &[Tensor<B, 2>],
) -> SpmmConfig<B> {
    let norm = &normalisation[relation.id];
    let own = norm.self_weight.as_ref().map(|scale| SelfTerm {
        h: h[relation.dst].clone(),
        scale: scale.clone(),
        nodes: field.levels[layer][relation.dst].clone(),
    });
    let (dst_scale, src_scale) = (Some(norm.dst_scale.clone()), Some(norm.src_scale.clone()));
    SpmmConfig { dst_scale, src_scale, own, ..SpmmConfig::default() }
}

impl<B: GraphBackend> TripleStreamGae<B> {
    /// Embeddings of length one of the rows that `field` wants, one matrix per node type, f32.
    pub fn embed(
        &self,
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        normalisation: &[Normalisation<B>],
        inputs: &Inputs<B>,
    ) -> Vec<Tensor<B, 2>> {
        let h = self.hidden(graph, field, normalisation, inputs);
        self.embed_hidden(graph, field, normalisation, (&h, inputs.chunk_rows))
    }

    /// Rows behind the first layer.
    pub fn hidden(
        &self,
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        normalisation: &[Normalisation<B>],
        inputs: &Inputs<B>,
    ) -> Vec<Tensor<B, 2>> {
        match inputs.chunk_rows {
            None => self.layers[0].first(graph, field, inputs),
            Some(chunk_rows) => self.layers[0].in_chunks(0, graph, field, normalisation, &inputs.rows, chunk_rows),
        }
    }

    /// Embeddings out of rows behind the first layer.
    pub fn embed_hidden(
        &self,
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        normalisation: &[Normalisation<B>],
        (h, chunk_rows): (&[Tensor<B, 2>], Option<usize>),
    ) -> Vec<Tensor<B, 2>> {
        let z = match chunk_rows {
            None => self.layers[1].second(graph, field, normalisation, h),
            Some(chunk_rows) => self.layers[1].in_chunks(1, graph, field, normalisation, h, chunk_rows),
        };
        z.into_iter().map(normalise_rows).collect()
    }
}

impl<B: GraphBackend> ConvolutionLayer<B> {
    /// One product per type: the weights are stacked as the inputs are.
    fn first(&self, graph: &DeviceGraph<B>, field: &ReceptiveField<B>, inputs: &Inputs<B>) -> Vec<Tensor<B, 2>> {
        let one = |(t, stacked): (usize, &Tensor<B, 2>)| {
            let width = self.own[t].val().dims()[1];
            if field.rows(graph, 1, t) == 0 {
                return blank([0, width], stacked);
            }
            // Inputs of this field alone have no others.
            let has_others = stacked.dims()[0] > field.rows(graph, 1, t);
            let hidden = field.levels[1][t].as_ref().filter(|_| has_others);
            let rows = select_rows(stacked.clone(), None, hidden);
            self.of_stacked(t, graph.relations_into(t).map(|(stream, _)| stream), rows)
        };
        inputs.rows.iter().enumerate().map(one).collect()
    }

    /// The first layer's result of rows of [`Inputs`]; `streams` are those of the relations into their type.
    fn of_stacked(&self, t: usize, streams: impl Iterator<Item = usize> + Clone, rows: Tensor<B, 2>) -> Tensor<B, 2> {
        let weights = streams.clone().map(|stream| self.streams[stream].weight.val()).chain([self.own[t].val()]);
        let weight = Tensor::cat(weights.collect(), 0);
        combine_products(vec![Part::Product { x: rows, weight }], self.biases(streams), 1.0, Activation::Relu)
    }

    fn second(
        &self,
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        normalisation: &[Normalisation<B>],
        h: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let one = |t: usize| {
            let own = self.own[t].val();
            if field.rows(graph, 2, t) == 0 {
                return blank([0, own.dims()[1]], &h[t]);
            }
            let rows = kept(field, 1, t, h);
            let mut parts = vec![Part::Product { x: rows, weight: own }];
            for (stream, relation) in graph.relations_into(t) {
                let x = aggregate(field, 1, t, relation, normalisation, h);
                parts.push(Part::Product { x, weight: self.streams[stream].weight.val() });
            }
            combine_products(parts, self.bias(graph, t), 1.0, Activation::Identity)
        };
        (0..h.len()).map(one).collect()
    }

    /// The biases of all relations into a type together.
    fn bias(&self, graph: &DeviceGraph<B>, t: usize) -> Option<Tensor<B, 1>> {
        self.biases(graph.relations_into(t).map(|(stream, _)| stream))
    }

    /// The biases of some streams together.
    fn biases(&self, streams: impl Iterator<Item = usize>) -> Option<Tensor<B, 1>> {
        streams.map(|stream| self.streams[stream].bias.val()).reduce(|a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;
    use burn_flex::{Flex, FlexDevice};
    use graphsieve_kernels::download;

    use super::*;
    use crate::graph::{Adjacency, RelationSpec};

    #[test]
    fn rows_of_a_field_are_those_of_the_whole_graph_to_the_bit() {
        let relation = |name: &str, src, sources: usize, edges: &[(u32, u32)]| RelationSpec {
            name: name.into(),
            src,
            dst: 1,
            stream: name.into(),
            primary: true,
            adjacency: Adjacency::from_edges(40, sources, edges),
        };
        let used: Vec<(u32, u32)> = (0..40).map(|at| (at, at % 6)).collect();
        let next: Vec<(u32, u32)> = (0..40).flat_map(|at| [3, 5, 11].map(|step| (at, (at * 7 + step) % 40))).collect();
        let types = vec![("card".into(), 6), ("payment".into(), 40)];
        let graph = HeteroGraph::new(types, vec![relation("used", 0, 6, &used), relation("next", 1, 40, &next)]);
        let (graph, device) = (graph.unwrap(), FlexDevice);
        let on_device = DeviceGraph::<Flex>::upload(&graph, &device).unwrap();
        let x = |rows: usize| Tensor::<Flex, 2>::random([rows, 5], Distribution::Normal(0.0, 1.0), &device);
        let x = vec![x(6), x(40)];
        for causal in [false, true] {
            let spec = AutoEncoderSpec::of(&Stage1Model { hidden: 8, out: 4, edge_weights: false }, &graph, 5, causal);
            let model = TripleStreamGae::<Flex>::new(&spec, &mut Parameters::from_seed(1, &device)).unwrap();
            let normalisation = Normalisation::of(&graph, causal, &device);
            let (inputs, all) =
                (Inputs::new(&on_device, &normalisation, x.clone(), None), ReceptiveField::all(&on_device));
            let whole = download(model.embed(&on_device, &all, &normalisation, &inputs));
            let field = ReceptiveField::of_rows(&on_device, Some(vec![vec![], vec![3, 17]]), |_| None, &device);
            assert!(field.rows(&on_device, 1, 1) < 40 && field.rows(&on_device, 1, 0) < 6);
            let inputs = Inputs::of(&on_device, &field, &normalisation, x.clone(), None);
            let some = download(model.embed(&on_device, &field, &normalisation, &inputs));
            let bits = |rows: &[f32]| rows.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&some), [6 + 3, 6 + 17].map(|node| bits(&whole[node * 4..][..4])).concat());
        }
    }

    #[test]
    fn a_checkpoint_without_weights_is_as_it_was_before_there_were_any() {
        let stored = "{\"streams\":[\"pays\"],\"node_types\":[\"account\"],\"input\":7,\"hidden\":4,\"output\":2}";
        let spec: AutoEncoderSpec = serde_json::from_str(stored).unwrap();
        assert!(spec.weighted.is_empty() && serde_json::to_string(&spec).unwrap() == stored);
        let weighted = AutoEncoderSpec { weighted: vec!["pays".into()], ..spec };
        let again: AutoEncoderSpec = serde_json::from_str(&serde_json::to_string(&weighted).unwrap()).unwrap();
        assert_eq!(again, weighted);
    }
}
