//! Stage 1: the triple-stream graph auto-encoder.

use burn::module::{Module, Param};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, SpmmConfig, linear, spmm};
use serde::{Deserialize, Serialize};

use super::device_graph::{DeviceGraph, DeviceRelation, map_rows};
use super::parameters::{Export, Init, Parameters, cast};
use crate::error::Result;
use crate::graph::{HeteroGraph, Relation};

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
}

/// Two layers of relation-wise graph convolution; embeddings have length one.
///
/// ```text
/// h'_t = act( sum_r (A~_r h) W_r + b_r + h_t W_self,t )        z = h'' / |h''|
/// A~_r = D^-1/2 (A_r + I) D^-1/2, degrees of a relation and of its reverse, self-loop included
/// ```
///
/// `act` is ReLU after the first layer and nothing after the second. `A~` is never stored: rows are scaled before and
/// after an unweighted sum, and the self term is added, except where the data holds the loops as edges.
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

/// `D^-1/2` of both ends of a relation and the weight of the added self term, as device vectors.
#[derive(Clone, Debug)]
pub struct Normalisation<B: Backend> {
    dst_scale: Tensor<B, 1>,
    src_scale: Tensor<B, 1>,
    /// `[rows, 1]`; `None` when every row holds its own loop as an edge.
    self_weight: Option<Tensor<B, 2>>,
}

impl<B: Backend> Normalisation<B> {
    /// For every relation of `graph`.
    pub fn of(graph: &HeteroGraph, device: &B::Device) -> Vec<Self> {
        graph.relations().iter().map(|relation| Self::of_relation(relation, device)).collect()
    }

    fn of_relation(relation: &Relation, device: &B::Device) -> Self {
        let forward = &relation.forward;
        let own_loop = |i: usize| relation.src == relation.dst && forward.row(i).contains(&(i as u32));
        let rows = forward.num_rows();
        let has_loop: Vec<bool> = (0..rows).map(own_loop).collect();
        // The degree counts the self-loop, stored or added.
        let dst_degree: Vec<f32> = (0..rows).map(|i| (forward.degree(i) + usize::from(!has_loop[i])) as f32).collect();
        let sources = relation.reverse.num_rows();
        let src_loop = |j: usize| relation.src == relation.dst && has_loop[j];
        let src_degree: Vec<f32> =
            (0..sources).map(|j| (relation.reverse.degree(j) + usize::from(!src_loop(j))) as f32).collect();
        let vector = |values: Vec<f32>| {
            let len = values.len();
            Tensor::<B, 1>::from_data(TensorData::new(values, [len]), device)
        };
        let inverse_root = |degree: &[f32]| vector(degree.iter().map(|d| 1.0 / d.max(1.0).sqrt()).collect());
        let self_weight = (!has_loop.iter().all(|&l| l)).then(|| {
            let weights = dst_degree.iter().zip(&has_loop).map(|(d, &l)| if l { 0.0 } else { 1.0 / d.max(1.0) });
            vector(weights.collect()).reshape([rows, 1])
        });
        Self { dst_scale: inverse_root(&dst_degree), src_scale: inverse_root(&src_degree), self_weight }
    }
}

impl<B: GraphBackend> TripleStreamGae<B> {
    /// `A~_r h` for every relation on the device. Of the features it is constant, so a run computes it once.
    pub fn aggregate(
        graph: &DeviceGraph<B>,
        normalisation: &[Normalisation<B>],
        h: &[Tensor<B, 2>],
        chunk_rows: Option<usize>,
    ) -> Vec<Tensor<B, 2>> {
        let one = |(relation, norm): (&DeviceRelation<B>, &Normalisation<B>)| {
            let config = SpmmConfig {
                dst_scale: Some(norm.dst_scale.clone()),
                src_scale: Some(norm.src_scale.clone()),
                drop_edge: None,
                chunk_rows,
            };
            let sum = spmm(&relation.csr, h[relation.src].clone(), None, config);
            match &norm.self_weight {
                Some(weight) => sum + h[relation.dst].clone() * cast(weight.clone(), h[relation.dst].dtype()),
                None => sum,
            }
        };
        graph.relations.iter().map(|relation| one((relation, &normalisation[relation.id]))).collect()
    }

    /// Embeddings of length one, one tensor per node type, f32. `aggregated` is [`Self::aggregate`] of the features `x`.
    pub fn embed(
        &self,
        graph: &DeviceGraph<B>,
        normalisation: &[Normalisation<B>],
        x: &[Tensor<B, 2>],
        aggregated: &[Tensor<B, 2>],
        chunk_rows: Option<usize>,
    ) -> Vec<Tensor<B, 2>> {
        let mut h = self.layers[0].forward(graph, x, aggregated);
        for layer in &self.layers[1..] {
            h = h.into_iter().map(|h| map_rows(h, relu)).collect();
            let aggregated = Self::aggregate(graph, normalisation, &h, chunk_rows);
            h = layer.forward(graph, &h, &aggregated);
        }
        h.into_iter().map(|h| map_rows(h, normalise_rows)).collect()
    }
}

impl<B: GraphBackend> ConvolutionLayer<B> {
    fn forward(&self, graph: &DeviceGraph<B>, h: &[Tensor<B, 2>], aggregated: &[Tensor<B, 2>]) -> Vec<Tensor<B, 2>> {
        let project = |x: &Tensor<B, 2>, weight: &Param<Tensor<B, 2>>, bias: Option<Tensor<B, 1>>| {
            let dtype = x.dtype();
            linear(x.clone(), cast(weight.val(), dtype), bias.map(|b| cast(b, dtype)))
        };
        let mut out: Vec<Tensor<B, 2>> = h.iter().zip(&self.own).map(|(h, own)| project(h, own, None)).collect();
        for (relation, sum) in graph.relations.iter().zip(aggregated) {
            let affine = &self.streams[relation.stream];
            let arrived = project(sum, &affine.weight, Some(affine.bias.val()));
            out[relation.dst] = out[relation.dst].clone() + arrived;
        }
        out
    }
}

/// `h / |h|` by row, in f32; a row of zeros stays zero.
fn normalise_rows<B: Backend>(h: Tensor<B, 2>) -> Tensor<B, 2> {
    let h = cast(h, DType::F32);
    let length = (h.clone() * h.clone()).sum_dim(1).add_scalar(1e-12).sqrt();
    h / length
}
