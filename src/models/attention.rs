//! Stage 2: the triple-stream graph attention network.

mod ages;
mod connections;
mod edge_inputs;
mod edge_values;
mod in_chunks;
mod pieces;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{
    Activation, DropEdge, Dropout, GatConfig, GraphBackend, ScoreColumns, attend, attend_inputs, combine, dropout, gat,
    linear, row_dots,
};
use serde::{Deserialize, Serialize};

pub use self::ages::TimeInput;
pub(crate) use self::ages::time_names;
pub use self::connections::Connections;
use self::connections::LayerConnections;
pub(crate) use self::connections::{gate_name, norm_names};
pub use self::edge_inputs::{EdgeInput, edge_inputs, graph_with_edges, inputs_for, read_edges, time_input};
pub(super) use self::edge_values::EdgeLayer;
pub(crate) use self::edge_values::edge_names;
pub(crate) use self::pieces::BOUNDS_NAME;
pub use self::pieces::PieceInput;
use self::pieces::Pieces;
use super::device_graph::{DeviceGraph, DeviceRelation};
use super::parameters::{Export, Init, Parameters};
use super::receptive_field::ReceptiveField;
use crate::config::Jump;
use crate::error::Result;
use crate::nn::{Block, RelationEdges, by_head};
use crate::run::known_labels::LABEL_COLUMNS;

/// The shape of a [`TripleStreamGat`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionSpec {
    /// Weight-sharing groups of relations, in order.
    pub streams: Vec<String>,
    /// Width of the input, with labels where they are read.
    pub input: usize,
    /// Width after the first layer, all heads together.
    pub hidden: usize,
    /// Width after the second layer, all heads together.
    pub output: usize,
    /// Attention heads of either layer.
    pub heads: usize,
    /// Slope of the leaky ReLU on attention scores.
    pub negative_slope: f32,
    /// By node type, in order: its name where its nodes have a transform of themselves. Empty where none has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<Option<String>>,
    /// By relation, in order: what is read of its edges. Empty where no relation has values or ages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Option<EdgeInput>>,
    /// What is beside the published layers.
    #[serde(flatten)]
    pub connections: Connections,
    /// Whether the last columns of the input are known labels, [`LABEL_COLUMNS`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub labels: bool,
    /// How the transforms of nodes themselves read the columns of the input, labels aside, where they read them in
    /// pieces, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<PieceInput>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl AttentionSpec {
    /// Width of what the input has besides labels.
    pub fn given(&self) -> usize {
        if self.labels { self.input - LABEL_COLUMNS.len() } else { self.input }
    }

    /// Columns that the transform of a node itself reads in the first layer.
    pub fn own_input(&self) -> usize {
        self.input + self.pieces.as_ref().map_or(0, |input| self.given() * input.pieces)
    }

    /// Width of the embeddings, which the head reads.
    pub fn width(&self) -> usize {
        self.connections.jump.width([self.hidden, self.output])
    }
}

/// What distinguishes one pass from another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// DropEdge of a training pass.
    pub drop_edge: Option<EpochDrop>,
    /// Destination rows that a layer computes at a time: bounds the memory of everything that is not the result of a
    /// layer. The result does not depend on it.
    pub chunk_rows: Option<usize>,
    /// Whether the backward pass repeats the attention instead of keeping it: less memory, more time, same gradient.
    pub recompute: bool,
    /// Dropout of a training pass.
    pub dropout: Option<PassDropout>,
}

/// Dropout of the results of layers in one step of a training.
#[derive(Clone, Copy, Debug)]
pub struct PassDropout {
    /// Share of values to drop, in [0, 1).
    pub rate: f64,
    pub seed: u64,
    /// Epoch, and mini-batch of it.
    pub step: [u32; 2],
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
/// [`graphsieve_kernels::gat`]); what arrives at a node type is added up and divided by the number of streams into the
/// type. A type may have a transform of its nodes themselves beside that ([`AttentionSpec::own`]): attention adds up
/// in-neighbours alone, so a row's own columns enter its score by this transform or by a loop. ELU follows:
///
/// ```text
/// h'_t = elu( 1/|streams into t| sum_r gat_r(W_r h) [+ W_self,t h_t] )
/// logit = <w, h''> + b        score = sigmoid(logit)
/// ```
///
/// Where edges have values `e_ij` ([`AttentionSpec::edges`]), every relation has an attention vector and a projection
/// of them: the attention logit has `<a_r, V_r e_ij>` more, as in PyG's `GATConv(edge_dim)`, and the message is
/// `W_r h_j + V_r e_ij`. Values are added up before they are projected, so that nothing is computed per edge. Where
/// edges have ages that are read, these are more values: `ln(1 + age)` and cosines of it ([`TimeInput`]), as in TGAT
/// (Xu et al., ICLR 2020); with fixed frequencies as in GraphMixer (Cong et al., ICLR 2023).
///
/// A type that nothing points at is `elu(W_self,t h_t)`, or zero.
///
/// With [`AttentionSpec::pieces`] the transform of the first layer reads every column `x` in pieces, too: beside it
/// stand `min(max((x - b_k) / (b_{k+1} - b_k), 0), 1)` of the bounds `b` of its pieces, so that a unit is any
/// continuous function of a column that is linear in each piece, and not of their sum alone (Gorishniy et al., NeurIPS
/// 2022). A tree cuts at an amount above which all is fraud; two layers that read amounts linearly do not.
///
/// # Connections
/// All are off unless asked for ([`AttentionSpec::connections`]). With `n` what arrives over relations and
/// `u = W_self,t h_t`:
///
/// - residual: a layer whose input is as wide as its result adds `h_t` to `u`, as between the blocks of a ResNet (He et
///   al., CVPR 2016); there is nothing to learn in it
/// - gate: `beta u + (1 - beta) n` instead of `u + n`, with `beta = sigmoid(<g_t, (u, n)>)` for each node, as in PyG's
///   `TransformerConv(beta=True)` (Shi et al., IJCAI 2021)
/// - norm: `scale * (z - mean(z)) / deviation(z) + shift` of each row before the ELU (Ba et al., 2016). A row's own
///   numbers alone make it, so that a score depends neither on its mini-batch nor on nodes that come later
/// - jump: the embedding is `(h', h'')` side by side, or their larger values (Xu et al., ICML 2018)
///
/// With one head the sum over neighbours is taken before the projection, which is the same by linearity: then only the
/// destinations that are wanted are projected, and the scores come from `<W a, h>`.
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
    residual: bool,
    #[module(skip)]
    jump: Jump,
}

#[derive(Module, Debug)]
struct AttentionLayer<B: Backend> {
    streams: Vec<StreamAttention<B>>,
    /// By node type `[in, out]`: what a node has of itself; empty where no type has it.
    own: Vec<Option<Param<Tensor<B, 2>>>>,
    edges: EdgeLayer<B>,
    connections: LayerConnections<B>,
    pieces: Option<Pieces<B>>,
}

#[derive(Module, Debug)]
struct StreamAttention<B: Backend> {
    /// `[in, out]`
    projection: Param<Tensor<B, 2>>,
    /// `[2 * out]`: for the destination, then for the source.
    attention: Param<Tensor<B, 1>>,
}

impl<B: GraphBackend> AttentionLayer<B> {
    /// What the transform of the nodes of a type themselves reads of their rows.
    fn of_itself(&self, node_type: usize, rows: Tensor<B, 2>) -> Tensor<B, 2> {
        match (&self.pieces, self.own.get(node_type)) {
            (Some(pieces), Some(Some(_))) => pieces.beside(rows),
            _ => rows,
        }
    }
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
            let own_input = if layer == 0 { spec.own_input() } else { input };
            let mut of_itself = |name: &Option<String>| {
                let name = name.as_ref().map(|name| own_weight(layer, name));
                name.map(|name| parameters.weight(&name, [own_input, output], Init::xavier_uniform(own_input, output)))
                    .transpose()
            };
            let own = spec.own.iter().map(&mut of_itself).collect::<Result<_>>()?;
            let (edges, connections) = (EdgeLayer::none(), LayerConnections::none());
            layers.push(AttentionLayer { streams, own, edges, connections, pieces: None });
        }
        let width = spec.width();
        let bound = Init::Uniform { bound: 1.0 / (width as f64).sqrt() };
        let head = parameters.weight("score_head.weight", [width, 1], bound)?;
        let head_bias = parameters.vector("score_head.bias", 1, bound)?;
        // Last, so that all others begin as they do in the published model.
        for (at, (layer, (_, output))) in layers.iter_mut().zip(widths).enumerate() {
            layer.edges = EdgeLayer::new(at, &spec.edges, output, parameters)?;
            layer.connections = LayerConnections::new(at, &spec.connections, &spec.own, output, parameters)?;
        }
        let pieces = spec.pieces.as_ref().map(|input| Pieces::new(input, spec.given(), parameters));
        layers[0].pieces = pieces.transpose()?;
        Ok(Self {
            layers,
            head,
            head_bias,
            heads: spec.heads,
            negative_slope: spec.negative_slope,
            residual: spec.connections.residual,
            jump: spec.connections.jump,
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
            module.edges.export(layer, &spec.edges, &mut export);
            module.connections.export(layer, &spec.own, &mut export);
            module.pieces.iter().for_each(|pieces| pieces.export(&mut export));
            for (own, name) in module.own.iter().zip(&spec.own) {
                if let (Some(own), Some(name)) = (own, name) {
                    export.weight(own_weight(layer, name), own);
                }
            }
        }
        export.weight("score_head.weight".into(), &self.head);
        export.vector("score_head.bias".into(), &self.head_bias);
        export
    }
}

/// The name of the transform of a node type itself in a layer, counted from 0.
pub(crate) fn own_weight(layer: usize, node_type: &str) -> String {
    format!("gat{}.W_self_{node_type}.weight", layer + 1)
}

impl PassDropout {
    /// The result of layer `layer`, counted from 0, at a node type, from row `first` on.
    fn of_result<B: GraphBackend>(self, h: Tensor<B, 2>, layer: usize, node_type: usize, first: usize) -> Tensor<B, 2> {
        let [epoch, part] = self.step;
        match Dropout::new(self.rate, self.seed, epoch, layer as u32 | (node_type as u32) << 16, part) {
            Some(drop) if h.dims()[0] > 0 => dropout(h, &drop.with_bases(first as u32, 0)),
            _ => h,
        }
    }
}

impl Pass {
    /// The edges that layer `layer` drops from a relation.
    pub fn drop_of<B: Backend>(
        &self,
        graph: &DeviceGraph<B>,
        layer: usize,
        relation: &DeviceRelation<B>,
    ) -> Option<DropEdge> {
        let drop = self.drop_edge?;
        let base = |t: usize| graph.node_types[t].offset as u32;
        DropEdge::new(drop.rate, drop.seed, drop.epoch, layer as u32, relation.id as u32)
            .map(|key| key.with_bases(base(relation.dst), base(relation.src)))
    }
}

/// Whether a layer adds neighbours up before it projects them. The sum gathers rows of the input's width then, and no
/// gradient flows to the neighbours where these are data.
pub(crate) fn projects_last(heads: usize, input: usize, width: usize) -> bool {
    heads == 1 && input <= 2 * width
}

/// What a layer reads.
struct Source<'a, B: Backend> {
    block: &'a Block<B>,
    /// One matrix per node type, with the rows before the layer.
    h: &'a [Tensor<B, 2>],
    pass: Pass,
}

impl<B: GraphBackend> Source<'_, B> {
    fn config(&self, edges: &RelationEdges<B>, negative_slope: f32) -> GatConfig {
        GatConfig { negative_slope, drop_edge: edges.drop_edge, recompute: self.pass.recompute, ..GatConfig::default() }
    }

    /// Rows of the destinations out of `rows` before the layer. Attention over data looks destinations up by their
    /// number in a whole graph.
    fn of_destinations(&self, node_type: usize, rows: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.block.reads_data && self.block.is_restricted() {
            true => rows,
            false => self.block.destinations(node_type, rows),
        }
    }
}

impl<B: GraphBackend> TripleStreamGat<B> {
    /// Number of layers.
    pub const LAYERS: usize = 2;

    /// Width of the result of a layer, counted from 0; of the last one it is that of the embeddings.
    pub fn width_after(&self, layer: usize) -> usize {
        let width = |layer: &AttentionLayer<B>| layer.streams[0].projection.val().dims()[1];
        match layer + 1 == Self::LAYERS {
            true => self.jump.width([width(&self.layers[0]), width(&self.layers[layer])]),
            false => width(&self.layers[layer]),
        }
    }

    /// The refined embeddings of the rows that `field` wants, one matrix per node type. `x` is data: it gets no
    /// gradient. Storage follows `x`.
    pub fn embed(
        &self,
        graph: &DeviceGraph<B>,
        field: &ReceptiveField<B>,
        x: &[Tensor<B, 2>],
        pass: Pass,
    ) -> Vec<Tensor<B, 2>> {
        self.embed_blocks(&field.blocks(graph, |layer, relation| pass.drop_of(graph, layer, relation)), x, pass)
    }

    /// The same over given blocks, of this graph or of a sampled batch.
    pub fn embed_blocks(&self, blocks: &[Block<B>], x: &[Tensor<B, 2>], pass: Pass) -> Vec<Tensor<B, 2>> {
        let layers = blocks.iter().enumerate();
        layers.fold(x.to_vec(), |h, (at, block)| self.embed_layer(at, block, &h, pass))
    }

    /// One of the two layers, counted from 0: its result out of what comes before it, a matrix per type.
    pub fn embed_layer(&self, layer: usize, block: &Block<B>, h: &[Tensor<B, 2>], pass: Pass) -> Vec<Tensor<B, 2>> {
        let results = self.layer_result(&self.layers[layer], block, h, pass).into_iter().enumerate();
        let end = |(t, mut result): (usize, Tensor<B, 2>)| {
            if let Some(dropout) = pass.dropout {
                result = dropout.of_result(result, layer, t, block.kept[t].first());
            }
            match layer + 1 == Self::LAYERS {
                true => self.jump.join(|| block.destinations(t, h[t].clone()), result),
                false => result,
            }
        };
        results.map(end).collect()
    }

    fn layer_result(
        &self,
        layer: &AttentionLayer<B>,
        block: &Block<B>,
        h: &[Tensor<B, 2>],
        pass: Pass,
    ) -> Vec<Tensor<B, 2>> {
        let [input, width] = layer.streams[0].projection.val().dims();
        let project_last = projects_last(self.heads, input, width);
        let source = Source { block, h, pass };
        if let Some(chunk_rows) = pass.chunk_rows {
            return self.layer_in_chunks(layer, &source, chunk_rows);
        }
        let parts = if project_last { self.project_last(layer, &source) } else { self.project_first(layer, &source) };
        let finish = |(t, mut parts): (usize, Vec<Tensor<B, 2>>)| {
            self.finished(layer, &source, t, |own, activation| {
                parts.extend(own.map(|own| linear(layer.of_itself(t, block.destinations(t, h[t].clone())), own, None)));
                (!parts.is_empty()).then(|| combine(parts, None, scale(block, t), activation))
            })
        };
        parts.into_iter().enumerate().map(finish).collect()
    }

    /// A layer's rows of a type. `sum` adds up what arrives, and the rows of the type under a weight where it is given
    /// one, and activates the sum; it has nothing where nothing points at the type.
    fn finished(
        &self,
        layer: &AttentionLayer<B>,
        source: &Source<'_, B>,
        node_type: usize,
        sum: impl FnOnce(Option<Tensor<B, 2>>, Activation) -> Option<Tensor<B, 2>>,
    ) -> Tensor<B, 2> {
        let (block, h, connections) = (source.block, &source.h[node_type], &layer.connections);
        let rows = block.rows_after(node_type);
        let nothing = || blank([rows, layer.streams[0].projection.val().dims()[1]], h);
        if rows == 0 {
            return nothing();
        }
        let own = self.own_of(layer, node_type);
        // The sum is divided by the number of streams, and what a node has of itself is not.
        let undivided = |own: Tensor<B, 2>| match block.streams_into[node_type] {
            streams if streams > 1 => own.mul_scalar(streams as f32),
            _ => own,
        };
        if connections.is_none(node_type) {
            return sum(own.map(undivided), Activation::Elu).unwrap_or_else(nothing);
        }
        let z = match own {
            Some(own) if connections.has_gate(node_type) => {
                let own = linear(layer.of_itself(node_type, block.destinations(node_type, h.clone())), own, None);
                connections.gated(node_type, own, sum(None, Activation::Identity).unwrap_or_else(nothing))
            }
            own => sum(own.map(undivided), Activation::Identity).unwrap_or_else(nothing),
        };
        connections.finished(z)
    }

    /// Logits of the embeddings of some types, one behind the other, `[rows, 1]`, f32. There is at least one row.
    pub fn logits(&self, h: impl IntoIterator<Item = Tensor<B, 2>>) -> Tensor<B, 2> {
        let weight = self.head.val().transpose();
        let rows = h.into_iter().filter(|h| h.dims()[0] > 0);
        let products: Vec<_> = rows.map(|h| row_dots(h, weight.clone())).collect();
        combine(vec![Tensor::cat(products, 0)], Some(self.head_bias.val()), 1.0, Activation::Identity)
    }

    /// `sum_j a_ij (W h_j)` per destination type and relation.
    fn project_first(&self, layer: &AttentionLayer<B>, source: &Source<'_, B>) -> Vec<Vec<Tensor<B, 2>>> {
        let types = source.h.len();
        let mut parts = vec![Vec::new(); types];
        for (stream, parameters) in layer.streams.iter().enumerate() {
            if !source.block.has_stream(stream) {
                continue;
            }
            let weight = parameters.projection.val();
            let width = weight.dims()[1];
            let vector = |from: usize| {
                parameters.attention.val().narrow(0, from * width, width).reshape([self.heads, width / self.heads])
            };
            let (attention_dst, attention_src) = (vector(0), vector(1));
            let mut projected: Vec<Option<Tensor<B, 2>>> = vec![None; types];
            for edges in source.block.edges.iter().filter(|edges| edges.stream == stream) {
                let mut project = |t: usize| {
                    projected[t].get_or_insert_with(|| linear(source.h[t].clone(), weight.clone(), None)).clone()
                };
                let h_src = project(edges.src);
                let h_dst = source.block.destinations(edges.dst, project(edges.dst));
                let config = source.config(edges, self.negative_slope);
                if let Some(of_edges) = layer.edges.of(edges) {
                    let scores = |x: &Tensor<B, 2>, vectors: &Tensor<B, 2>| ScoreColumns {
                        scores: row_dots(x.clone(), by_head(vectors.clone())),
                        first: 0,
                    };
                    let scores = [scores(&h_dst, &attention_dst), scores(&h_src, &attention_src)];
                    parts[edges.dst].extend(of_edges.attend(&edges.csr, h_src, scores, self.heads, config));
                    continue;
                }
                parts[edges.dst].push(gat(
                    &edges.csr,
                    h_src,
                    h_dst,
                    attention_src.clone(),
                    attention_dst.clone(),
                    config,
                ));
            }
        }
        parts
    }

    /// `(sum_j a_ij h_j) W` per destination type and relation, for one head.
    fn project_last(&self, layer: &AttentionLayer<B>, source: &Source<'_, B>) -> Vec<Vec<Tensor<B, 2>>> {
        let block = source.block;
        // `[2, in]` per stream that has edges: what the two halves of the attention vector mean for an input row.
        let fold = |(stream, parameters): (usize, &StreamAttention<B>)| {
            block.has_stream(stream).then(|| {
                let weight = parameters.projection.val();
                let attention = parameters.attention.val().reshape([2, weight.dims()[1]]);
                linear(attention, weight.transpose(), None)
            })
        };
        let folded: Vec<Option<Tensor<B, 2>>> = layer.streams.iter().enumerate().map(fold).collect();
        let folded = |stream: usize| match &folded[stream] {
            Some(folded) => folded.clone(),
            None => unreachable!("a relation with edges has a stream with edges"),
        };
        // Both scores of all streams that touch a type come from one pass over its rows.
        let types = source.h.len();
        let mut columns: Vec<Vec<usize>> = vec![Vec::new(); types];
        for edges in &block.edges {
            for t in [edges.src, edges.dst] {
                if !columns[t].contains(&edges.stream) {
                    columns[t].push(edges.stream);
                }
            }
        }
        let mut scores: Vec<Option<[Tensor<B, 2>; 2]>> = vec![None; types];
        for (t, streams) in columns.iter().enumerate().filter(|(_, streams)| !streams.is_empty()) {
            let vectors = Tensor::cat(streams.iter().map(|&s| folded(s)).collect(), 0);
            let vectors = if block.reads_data { vectors.detach() } else { vectors };
            let all = row_dots(source.h[t].clone(), vectors);
            scores[t] = Some([source.of_destinations(t, all.clone()), all]);
        }
        let score = |t: usize, role: usize, stream: usize| {
            let place = columns[t].iter().position(|&s| s == stream).unwrap_or_default();
            let [dst, src] = scores[t].as_ref().unwrap_or_else(|| unreachable!("a live relation has scores"));
            ScoreColumns { scores: [dst, src][role].clone(), first: 2 * place + role }
        };
        let mut parts = vec![Vec::new(); types];
        for edges in &block.edges {
            let (dst, src) = (score(edges.dst, 0, edges.stream), score(edges.src, 1, edges.stream));
            let config = source.config(edges, self.negative_slope);
            let h_src = source.h[edges.src].clone();
            let weight = layer.streams[edges.stream].projection.val();
            if let Some(of_edges) = layer.edges.of(edges) {
                let scores = match block.reads_data {
                    false => [dst, src],
                    // Scores that the vectors get their gradient from, of the destinations that are left.
                    true => [(edges.dst, 0), (edges.src, 1)].map(|(t, first)| {
                        let x = source.h[t].clone();
                        let x = if first == 0 { block.destinations(t, x) } else { x };
                        ScoreColumns { scores: row_dots(x, folded(edges.stream)), first }
                    }),
                };
                let [attended, messages] = of_edges.attend(&edges.csr, h_src, scores, 1, config);
                parts[edges.dst].extend([linear(attended, weight, None), messages]);
                continue;
            }
            let attended = if block.reads_data {
                let h_dst = source.of_destinations(edges.dst, source.h[edges.dst].clone());
                attend_inputs(&edges.csr, h_src, h_dst, folded(edges.stream), [dst, src], config)
            } else {
                attend(&edges.csr, h_src, dst, src, 1, config)
            };
            parts[edges.dst].push(linear(attended, weight, None));
        }
        parts
    }
}

impl<B: GraphBackend> TripleStreamGat<B> {
    /// The weight of a type's nodes themselves, where the type has one. A residual connection is an identity in it.
    fn own_of(&self, layer: &AttentionLayer<B>, node_type: usize) -> Option<Tensor<B, 2>> {
        let projection = layer.streams[0].projection.val();
        let [input, width] = projection.dims();
        let own = layer.own.get(node_type).and_then(Option::as_ref).map(Param::val);
        let identity = (self.residual && input == width).then(|| {
            let (eye, device) = (Tensor::eye(width, &projection.device()), projection.device());
            match layer.pieces.as_ref().map(Pieces::width) {
                Some(pieces) if own.is_some() => Tensor::cat(vec![eye, Tensor::zeros([pieces, width], &device)], 0),
                _ => eye,
            }
        });
        match (own, identity) {
            (Some(own), Some(identity)) => Some(own + identity),
            (own, identity) => own.or(identity),
        }
    }
}

/// The factor on everything that arrives at a type.
fn scale<B: GraphBackend>(block: &Block<B>, node_type: usize) -> f32 {
    1.0 / block.streams_into[node_type].max(1) as f32
}

/// Zeros like `like`; a GPU does not fill a matrix without rows.
pub(super) fn blank<B: Backend>(shape: [usize; 2], like: &Tensor<B, 2>) -> Tensor<B, 2> {
    let options = (&like.device(), like.dtype());
    if shape[0] == 0 { Tensor::empty(shape, options) } else { Tensor::zeros(shape, options) }
}
