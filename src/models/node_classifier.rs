//! One class for every node: layers of graph convolution or of graph attention.

use burn::backend::Autodiff;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{Activation, Csr, Dropout, GatConfig, GraphBackend, SpmmConfig, combine, gat, linear, spmm};
use serde::{Deserialize, Serialize};

use super::named;
use super::node_input::{NodeInput, dropped};
use super::parameters::Parameters;
use crate::config::{ClassifyModel, LayerKind};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, HeteroGraph};
use crate::metrics::log_sum_exp;

/// The shape of a [`NodeClassifier`], and what its input is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifierSpec {
    /// Kind of all layers.
    pub layer: LayerKind,
    /// Columns of the features.
    pub input: usize,
    /// Channels between layers, all heads together.
    pub hidden: usize,
    /// Columns of the result.
    pub classes: usize,
    /// Number of layers.
    pub layers: usize,
    /// Of graph attention.
    pub attention: Option<AttentionShape>,
    /// Whether the features of every node are divided by their sum.
    pub row_normalise: bool,
    /// Whether edges of an `.npz` file lead one way only.
    pub directed: bool,
}

/// Heads of a graph attention classifier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Of every layer but the last; concatenated.
    pub heads: usize,
    /// Of the last layer; averaged.
    pub out_heads: usize,
    /// Slope of LeakyReLU below zero.
    pub negative_slope: f32,
}

impl AttentionShape {
    /// The heads that a configuration asks for.
    pub fn of(model: &ClassifyModel) -> Option<Self> {
        let attention = model.attention.as_ref()?;
        let negative_slope = attention.negative_slope as f32;
        Some(Self { heads: attention.heads, out_heads: attention.out_heads, negative_slope })
    }
}

/// The graph as the layers walk it: every node is its own neighbour once.
#[derive(Clone, Debug)]
pub struct NodeGraph<B: Backend> {
    csr: Csr<B>,
    /// `1 / sqrt(in-degree)` of every node, self-loop included.
    dst_scale: Tensor<B, 1>,
    /// `1 / sqrt(out-degree)`.
    src_scale: Tensor<B, 1>,
}

impl<B: GraphBackend> NodeGraph<B> {
    /// Uploads the only relation of a graph with one node type.
    ///
    /// # Errors
    /// [`Error::Data`] for a graph with several node types or relations, or one that the kernels cannot index.
    pub fn upload(graph: &HeteroGraph, device: &B::Device) -> Result<Self> {
        let [relation] = graph.relations() else {
            return Err(several("relations", graph.relations().iter().map(|relation| relation.name.as_str())));
        };
        if graph.node_types().len() != 1 {
            return Err(several("node types", graph.node_types().iter().map(|node_type| node_type.name.as_str())));
        }
        let forward = with_loops(&relation.forward);
        let reverse = if relation.is_symmetric() { None } else { Some(with_loops(&relation.reverse)) };
        let scale = |adjacency: &Adjacency| {
            let of = |row| 1.0 / (adjacency.degree(row) as f32).sqrt();
            let values: Vec<f32> = (0..adjacency.num_rows()).map(of).collect();
            let len = values.len();
            Tensor::from_data(TensorData::new(values, [len]), device)
        };
        let csr = match &reverse {
            None => Csr::from_host_symmetric(forward.row_ptr(), forward.col_idx(), device),
            Some(reverse) => {
                let rows = (forward.row_ptr(), forward.col_idx());
                Csr::from_host_with_reverse(rows, (reverse.row_ptr(), reverse.col_idx()), device)
            }
        };
        let csr = csr.map_err(|problem| Error::Data {
            what: format!("relation {}", relation.name),
            expected: "an adjacency that the kernels can index".into(),
            found: problem.to_string(),
            help: "split the graph".into(),
        })?;
        Ok(Self { csr, dst_scale: scale(&forward), src_scale: scale(reverse.as_ref().unwrap_or(&forward)) })
    }

    /// Entries of the adjacency, self-loops included.
    pub fn num_edges(&self) -> usize {
        self.csr.num_edges()
    }
}

impl<B: GraphBackend> NodeGraph<Autodiff<B>> {
    /// The same arrays for passes that record nothing.
    pub fn inner(&self) -> NodeGraph<B> {
        NodeGraph {
            csr: self.csr.clone().inner(),
            dst_scale: self.dst_scale.clone().inner(),
            src_scale: self.src_scale.clone().inner(),
        }
    }
}

/// The adjacency with every node among its own neighbours once.
fn with_loops(adjacency: &Adjacency) -> Adjacency {
    let row = |i: usize| adjacency.row(i).iter().map(move |&j| (i as u32, j)).chain([(i as u32, i as u32)]);
    let edges: Vec<(u32, u32)> = (0..adjacency.num_rows()).flat_map(row).collect();
    Adjacency::from_edges(adjacency.num_rows(), adjacency.num_cols(), &edges)
}

fn several<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Error {
    Error::Data {
        what: what.into(),
        expected: "exactly one, for node classification".into(),
        found: names.collect::<Vec<_>>().join(", "),
        help: "classify nodes of a graph with one node type and one symmetric relation (in graph.toml, one_way = true \
               keeps a directed one from being reversed), or use task = \"stage2\""
            .into(),
    }
}

/// Class probabilities of rows of logits: `exp(z_c) / sum exp(z)`.
pub fn probabilities(logits: &[f32], classes: usize) -> Vec<f32> {
    let of_row = |row: &[f32]| {
        let normaliser = log_sum_exp(row);
        row.iter().map(|&logit| (f64::from(logit) - normaliser).exp() as f32).collect::<Vec<f32>>()
    };
    logits.chunks_exact(classes).flat_map(of_row).collect()
}

/// Attention vectors of the heads of a layer, `[heads, channels]` each.
#[derive(Module, Debug)]
struct AttentionVectors<B: Backend> {
    src: Param<Tensor<B, 2>>,
    dst: Param<Tensor<B, 2>>,
    negative_slope: f32,
}

/// One layer: projection, a weighted sum over neighbours, bias.
#[derive(Module, Debug)]
struct NodeLayer<B: Backend> {
    /// `[in, heads * channels]`
    weight: Param<Tensor<B, 2>>,
    /// Without them the weights are those of the symmetric normalisation.
    attention: Option<AttentionVectors<B>>,
    bias: Param<Tensor<B, 1>>,
}

/// Training-time randomness of one pass.
#[derive(Clone, Copy, Debug)]
pub struct ClassifierDropout {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the pass.
    pub step: u32,
    /// Rate of the inputs of every layer.
    pub inputs: f64,
    /// Rate of the attention coefficients.
    pub attention: f64,
}

/// Streams of a layer's dropout.
const INPUTS: u32 = 0;
const COEFFICIENTS: u32 = 1;

/// A stack of layers of one kind.
///
/// Graph convolution: `H' = ReLU(D^-1/2 (A + I) D^-1/2 H W + b)`; graph attention: `H' = ELU(b + ||_k sum_j a^k_ij W^k h_j)`
/// over the neighbours and the node itself, heads of the last layer averaged. The last layer has no activation.
///
/// # Source
/// Kipf and Welling (ICLR 2017), equation 2; Velickovic and others (ICLR 2018), equations 4 to 6.
#[derive(Module, Debug)]
pub struct NodeClassifier<B: Backend> {
    layers: Vec<NodeLayer<B>>,
}

impl<B: GraphBackend> NodeClassifier<B> {
    /// A model with the values of `parameters`.
    ///
    /// # Errors
    /// When a checkpoint lacks a parameter or holds it with another shape.
    pub fn new(spec: &ClassifierSpec, parameters: &mut Parameters<B>, device: &B::Device) -> Result<Self> {
        let matrix = |shape: [usize; 2]| Param::from_tensor(Tensor::zeros(shape, device));
        let layer = |at: usize| {
            let last = at + 1 == spec.layers;
            let input = if at == 0 { spec.input } else { spec.hidden };
            let output = if last { spec.classes } else { spec.hidden };
            // Averaged heads have the width of the result each, concatenated ones share it.
            let heads = spec.attention.map_or(1, |shape| if last { shape.out_heads } else { shape.heads });
            let channels = if last { output } else { output / heads };
            NodeLayer {
                weight: matrix([input, heads * channels]),
                attention: spec.attention.map(|shape| AttentionVectors {
                    src: matrix([heads, channels]),
                    dst: matrix([heads, channels]),
                    negative_slope: shape.negative_slope,
                }),
                bias: Param::from_tensor(Tensor::zeros([output], device)),
            }
        };
        named::fill(Self { layers: (0..spec.layers).map(layer).collect() }, parameters)
    }

    /// Logits `[nodes, classes]`; with `training`, inputs and coefficients are dropped.
    pub fn forward(&self, graph: &NodeGraph<B>, x: &NodeInput<B>, training: Option<ClassifierDropout>) -> Tensor<B, 2> {
        let drop = |layer: usize, stream: u32| {
            let ClassifierDropout { seed, step, inputs, attention } = training?;
            let rate = if stream == INPUTS { inputs } else { attention };
            Dropout::new(rate, seed, step, layer as u32, stream)
        };
        let mut h: Option<Tensor<B, 2>> = None;
        for (at, layer) in self.layers.iter().enumerate() {
            let weight = layer.weight.val();
            let projected = match h {
                None => x.project(weight, drop(at, INPUTS)),
                Some(h) => linear(dropped(h, drop(at, INPUTS)), weight, None),
            };
            let last = at + 1 == self.layers.len();
            h = Some(layer.aggregate(graph, projected, drop(at, COEFFICIENTS), last));
        }
        h.unwrap_or_else(|| unreachable!("a classifier has at least one layer"))
    }
}

impl<B: GraphBackend> NodeLayer<B> {
    fn aggregate(&self, graph: &NodeGraph<B>, h: Tensor<B, 2>, drop: Option<Dropout>, last: bool) -> Tensor<B, 2> {
        let NodeGraph { csr, dst_scale, src_scale } = graph;
        let activation = match (&self.attention, last) {
            (_, true) => Activation::Identity,
            (None, _) => Activation::Relu,
            (Some(_), _) => Activation::Elu,
        };
        let Some(attention) = &self.attention else {
            let scales = SpmmConfig {
                dst_scale: Some(dst_scale.clone()),
                src_scale: Some(src_scale.clone()),
                ..Default::default()
            };
            return combine(vec![spmm(csr, h, None, scales)], Some(self.bias.val()), 1.0, activation);
        };
        let (src, dst) = (attention.src.val(), attention.dst.val());
        let ([heads, channels], [nodes, _]) = (src.dims(), h.dims());
        let config =
            GatConfig { negative_slope: attention.negative_slope, attention_dropout: drop, ..Default::default() };
        let mut y = gat(csr, h.clone(), h, src, dst, config);
        if last && heads > 1 {
            y = y.reshape([nodes, heads, channels]).mean_dim(1).reshape([nodes, channels]);
        }
        combine(vec![y], Some(self.bias.val()), 1.0, activation)
    }
}
