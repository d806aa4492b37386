//! Stage 2: the triple-stream graph attention network.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{DropEdge, GatConfig, GraphBackend, elu, gat, linear};
use serde::{Deserialize, Serialize};

use super::device_graph::DeviceGraph;
use super::parameters::{Export, Init, Parameters, cast};
use crate::error::Result;

/// The shape of a [`TripleStreamGat`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionSpec {
    /// Weight-sharing groups of relations, in order.
    pub streams: Vec<String>,
    /// Width of the input embeddings.
    pub input: usize,
    /// Width after the first layer, all heads together.
    pub hidden: usize,
    /// Width after the second layer, all heads together.
    pub output: usize,
    /// Attention heads of either layer.
    pub heads: usize,
    /// Slope of the leaky ReLU on attention scores.
    pub negative_slope: f32,
}

/// What distinguishes one pass from another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// DropEdge of a training pass.
    pub drop_edge: Option<EpochDrop>,
    /// Rows per kernel launch; the result does not depend on it.
    pub chunk_rows: Option<usize>,
    /// Whether the backward pass repeats the attention instead of keeping it: less memory, more time, same gradient.
    pub recompute: bool,
}

/// DropEdge of one epoch.
#[derive(Clone, Copy, Debug)]
pub struct EpochDrop {
    /// Share of edges to drop, in [0, 1).
    pub rate: f64,
    pub seed: u64,
    pub epoch: u32,
}

/// Two layers of relation-wise attention and a linear head.
///
/// For every stream `r`, `Wh = W_r h`; for every relation of the stream, attention over the in-neighbours (see
/// [`graphsieve_kernels::gat`]); what arrives at a node type is added up, divided by the number of streams into the type
/// and passed through ELU:
///
/// ```text
/// h'_t = elu( 1/|streams into t| sum_r gat_r(W_r h) )        logit = <w, h''> + b        score = sigmoid(logit)
/// ```
///
/// # Shapes
/// Input and output are one `[nodes, width]` tensor per node type; logits `[nodes]`, f32.
///
/// # Source
/// GNN-EADD, Stage 2; the attention is that of Velickovic et al. (ICLR 2018).
#[derive(Module, Debug)]
pub struct TripleStreamGat<B: Backend> {
    layers: Vec<AttentionLayer<B>>,
    head: Param<Tensor<B, 2>>,
    head_bias: Param<Tensor<B, 1>>,
    heads: usize,
    negative_slope: f32,
}

#[derive(Module, Debug)]
struct AttentionLayer<B: Backend> {
    streams: Vec<StreamAttention<B>>,
}

#[derive(Module, Debug)]
struct StreamAttention<B: Backend> {
    /// `[in, out]`
    projection: Param<Tensor<B, 2>>,
    /// `[2 * out]`: for the destination, then for the source.
    attention: Param<Tensor<B, 1>>,
}

impl<B: Backend> TripleStreamGat<B> {
    /// Builds the model from a seed or from a checkpoint.
    ///
    /// # Errors
    /// What the source of the parameters finds wrong: a tensor that is missing or has another shape.
    pub fn new(spec: &AttentionSpec, parameters: &mut Parameters<B>) -> Result<Self> {
        let widths = [(spec.input, spec.hidden), (spec.hidden, spec.output)];
        let mut layers = Vec::new();
        for (layer, (input, output)) in widths.into_iter().enumerate() {
            let mut streams = Vec::new();
            for stream in &spec.streams {
                let name = |part: &str| format!("gat{}.{part}_{stream}", layer + 1);
                let weight = format!("{}.weight", name("W"));
                streams.push(StreamAttention {
                    projection: parameters.weight(&weight, [input, output], Init::xavier_uniform(input, output))?,
                    attention: parameters.vector(&name("a"), 2 * output, Init::xavier_normal(2 * output, 1))?,
                });
            }
            layers.push(AttentionLayer { streams });
        }
        let bound = Init::Uniform { bound: 1.0 / (spec.output as f64).sqrt() };
        Ok(Self {
            layers,
            head: parameters.weight("score_head.weight", [spec.output, 1], bound)?,
            head_bias: parameters.vector("score_head.bias", 1, bound)?,
            heads: spec.heads,
            negative_slope: spec.negative_slope,
        })
    }

    /// The parameters under the names of a PyTorch state dict.
    pub fn export(&self, spec: &AttentionSpec) -> Export {
        let mut export = Export::default();
        for (layer, module) in self.layers.iter().enumerate() {
            for (stream, name) in module.streams.iter().zip(&spec.streams) {
                export.weight(format!("gat{}.W_{name}.weight", layer + 1), &stream.projection);
                export.vector(format!("gat{}.a_{name}", layer + 1), &stream.attention);
            }
        }
        export.weight("score_head.weight".into(), &self.head);
        export.vector("score_head.bias".into(), &self.head_bias);
        export
    }
}

impl<B: GraphBackend> TripleStreamGat<B> {
    /// The refined embeddings of every node type. Storage follows `x`: weights are cast to its dtype.
    pub fn embed(&self, graph: &DeviceGraph<B>, x: &[Tensor<B, 2>], pass: Pass) -> Vec<Tensor<B, 2>> {
        let mut h = x.to_vec();
        for (index, layer) in self.layers.iter().enumerate() {
            h = self.layer(index, layer, graph, &h, pass);
        }
        h
    }

    /// Logits of embeddings, `[rows]`, f32.
    pub fn logits(&self, h: Tensor<B, 2>) -> Tensor<B, 1> {
        let rows = h.dims()[0];
        linear(cast(h, DType::F32), self.head.val(), Some(self.head_bias.val())).reshape([rows])
    }

    fn layer(
        &self,
        index: usize,
        layer: &AttentionLayer<B>,
        graph: &DeviceGraph<B>,
        h: &[Tensor<B, 2>],
        pass: Pass,
    ) -> Vec<Tensor<B, 2>> {
        let mut sums: Vec<Option<Tensor<B, 2>>> = vec![None; graph.node_types.len()];
        let mut width = 0;
        for (stream, parameters) in layer.streams.iter().enumerate() {
            let weight = cast(parameters.projection.val(), h[0].dtype());
            width = weight.dims()[1];
            let channels = width / self.heads;
            let vector =
                |from: usize| parameters.attention.val().narrow(0, from * width, width).reshape([self.heads, channels]);
            let (attention_dst, attention_src) = (vector(0), vector(1));
            let mut projected: Vec<Option<Tensor<B, 2>>> = vec![None; graph.node_types.len()];
            for relation in graph.relations.iter().filter(|r| r.stream == stream) {
                let mut project =
                    |t: usize| projected[t].get_or_insert_with(|| linear(h[t].clone(), weight.clone(), None)).clone();
                let (h_src, h_dst) = (project(relation.src), project(relation.dst));
                let drop_edge = pass.drop_edge.and_then(|drop| {
                    let bases = [relation.dst, relation.src].map(|t| graph.node_types[t].offset as u32);
                    DropEdge::new(drop.rate, drop.seed, drop.epoch, index as u32, relation.id as u32)
                        .map(|key| key.with_bases(bases[0], bases[1]))
                });
                let config = GatConfig {
                    negative_slope: self.negative_slope,
                    drop_edge,
                    chunk_rows: pass.chunk_rows,
                    recompute: pass.recompute,
                };
                let out = gat(&relation.csr, h_src, h_dst, attention_src.clone(), attention_dst.clone(), config);
                sums[relation.dst] = Some(match sums[relation.dst].take() {
                    Some(sum) => sum + out,
                    None => out,
                });
            }
        }
        let rows = graph.node_types.iter().map(|t| t.count);
        sums.into_iter()
            .zip(rows)
            .enumerate()
            .map(|(t, (sum, rows))| match sum {
                Some(sum) => {
                    let streams = graph.streams_into(t);
                    elu(if streams > 1 { sum / streams as f64 } else { sum })
                }
                // Nothing points at this type.
                None if rows == 0 => Tensor::empty([0, width], (&h[t].device(), h[t].dtype())),
                None => Tensor::zeros([rows, width], (&h[t].device(), h[t].dtype())),
            })
            .collect()
    }
}
