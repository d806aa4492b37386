//! Stage 2: the triple-stream graph attention network.

mod ages;
mod connections;
mod edge_inputs;
mod edge_values;
mod in_chunks;
mod pass;
mod pieces;
mod scores;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{
    Activation, GraphBackend, Part, ScoreColumns, attend, attend_inputs, combine, combine_products, gat, linear,
    row_dots,
};
use serde::{Deserialize, Serialize};

pub use self::ages::TimeInput;
pub(crate) use self::ages::time_names;
pub use self::connections::Connections;
use self::connections::LayerConnections;
pub(crate) use self::connections::{gate_name, norm_names};
pub use self::edge_inputs::{EdgeInput, edge_inputs, graph_with_edges, inputs_for, read_edges, reads_ages, time_input};
pub(super) use self::edge_values::EdgeLayer;
pub(crate) use self::edge_values::edge_names;
pub use self::pass::{EpochDrop, Pass, PassDropout};
pub(crate) use self::pieces::BOUNDS_NAME;
pub use self::pieces::PieceInput;
use self::pieces::Pieces;
pub use self::scores::Frozen;
use self::scores::{AllScores, FrozenLayer, Source};
use super::crossing::{AtHand, LayerRows, blank, in_turn};
use super::device_graph::DeviceGraph;
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
    /// The published layers alone, from `input` over `hidden` to `output` columns.
    pub fn new(
        streams: impl IntoIterator<Item: Into<String>>,
        input: usize,
        [hidden, output]: [usize; 2],
        heads: usize,
    ) -> Self {
        Self {
            streams: streams.into_iter().map(Into::into).collect(),
            input,
            hidden,
            output,
            heads,
            negative_slope: 0.2,
            own: Vec::new(),
            edges: Vec::new(),
            connections: Connections::default(),
            labels: false,
            pieces: None,
        }
    }

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
    /// What the scores of attention over `source` are read from.
    fn scores<'s>(&self, source: &'s Source<'s, B>, heads: usize) -> AllScores<'s, B> {
        AllScores::new(self.streams.len(), source, heads, |stream| self.streams[stream].score_vectors(heads))
    }

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

/// Whether a layer adds neighbours up before it projects them. The sum gathers rows of the input's width then, and no
/// gradient flows to the neighbours where these are data.
pub(crate) fn projects_last(heads: usize, input: usize, width: usize) -> bool {
    heads == 1 && input <= 2 * width
}

impl<B: GraphBackend> StreamAttention<B> {
    /// What the attention vectors mean for an input row, `W_h a_h` for every head: those of the destinations first.
    fn score_vectors(&self, heads: usize) -> Tensor<B, 2> {
        let weight = self.projection.val();
        let own = weight.dims()[1] / heads;
        let attention = self.attention.val().reshape([2 * heads, own]);
        if heads == 1 {
            return linear(attention, weight.transpose(), None);
        }
        let of = |role: usize, head: usize| {
            let weight = weight.clone().narrow(1, head * own, own);
            linear(attention.clone().narrow(0, role * heads + head, 1), weight.transpose(), None)
        };
        Tensor::cat(
            (0..2).flat_map(|role| (0..heads).map(move |head| (role, head))).map(|(r, h)| of(r, h)).collect(),
            0,
        )
    }
}

/// Rows of types under the weight of a stream, and the halves of its attention vector.
struct Projected<B: Backend> {
    stream: usize,
    weight: Tensor<B, 2>,
    attention: [Tensor<B, 2>; 2],
    rows: Vec<Option<Tensor<B, 2>>>,
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
        let mut results = Vec::with_capacity(h.len());
        self.embed_rows(layer, block, &AtHand(h), pass, |_, result| results.push(result));
        results
    }

    /// The same in the order of `h`: the result of a type goes to `done` as soon as it is there.
    pub fn embed_rows(
        &self,
        layer: usize,
        block: &Block<B>,
        h: &dyn LayerRows<B>,
        pass: Pass,
        done: impl FnMut(usize, Tensor<B, 2>),
    ) {
        self.rows_of(layer, &Source { block, h, pass, frozen: None }, done);
    }

    /// What [`layer_frozen`](Self::layer_frozen) reads, for graphs into whose types so many streams lead.
    pub fn freeze(&self, streams_into: &[usize]) -> Frozen<B> {
        let of_layer = |layer: &AttentionLayer<B>| FrozenLayer {
            vectors: layer.streams.iter().map(|stream| stream.score_vectors(self.heads)).collect(),
            own: streams_into.iter().enumerate().map(|(t, &streams)| self.own_of(layer, t, streams)).collect(),
        };
        Frozen { layers: self.layers.iter().map(of_layer).collect() }
    }

    /// What a layer, counted from 0, makes of `h` in a pass of [`embed`](Self::embed) that drops nothing, to the bit.
    pub fn layer_frozen(
        &self,
        frozen: &Frozen<B>,
        layer: usize,
        (graph, field): (&DeviceGraph<B>, &ReceptiveField<B>),
        h: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let block = &field.block(graph, layer, |_| None);
        let mut results = Vec::with_capacity(h.len());
        let source = Source { block, h: &AtHand(h), pass: Pass::default(), frozen: Some(&frozen.layers[layer]) };
        self.rows_of(layer, &source, |_, result| results.push(result));
        results
    }

    fn rows_of(&self, layer: usize, source: &Source<'_, B>, mut done: impl FnMut(usize, Tensor<B, 2>)) {
        let Source { block, h, pass, .. } = *source;
        self.layer_results(&self.layers[layer], source, &mut |t, mut result| {
            if let Some(dropout) = pass.dropout {
                result = dropout.of_result(result, layer, t, block.kept[t].first());
            }
            if layer + 1 == Self::LAYERS {
                result = self.jump.join(|| block.destinations(t, h.rows(t)), result);
            }
            done(t, result);
        });
    }

    fn layer_results(
        &self,
        layer: &AttentionLayer<B>,
        source: &Source<'_, B>,
        done: &mut dyn FnMut(usize, Tensor<B, 2>),
    ) {
        let (block, h) = (source.block, source.h);
        if let Some(chunk_rows) = source.pass.chunk_rows {
            return self.layer_in_chunks(layer, source, chunk_rows, done);
        }
        let [input, width] = layer.streams[0].projection.val().dims();
        let scores = projects_last(self.heads, input, width).then(|| layer.scores(source, self.heads));
        let (mut edges, mut projected) = (h.edges(block), None);
        if scores.is_none() {
            // Those of one stream need the same projections.
            edges.sort_by_key(|edges| edges.stream);
        }
        let along = |edges: &RelationEdges<B>| match &scores {
            Some(scores) => self.project_last(layer, source, scores, edges),
            None => self.project_first(layer, source, &mut projected, edges),
        };
        in_turn(h, edges.into_iter().map(|edges| (edges.dst, edges)).collect(), along, |t, mut parts| {
            let result = self.finished(layer, source, t, |own, activation| {
                let of_itself = |own| product(layer.of_itself(t, block.destinations(t, h.rows(t))), own);
                parts.extend(own.map(of_itself));
                (!parts.is_empty()).then(|| combine_products(parts, None, scale(block, t), activation))
            });
            done(t, result);
        });
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
        let (block, connections) = (source.block, &layer.connections);
        let rows = block.rows_after(node_type);
        let nothing = || blank([rows, layer.streams[0].projection.val().dims()[1]], &source.h.any());
        if rows == 0 {
            return nothing();
        }
        let own = match source.frozen {
            Some(frozen) => frozen.own[node_type].clone(),
            None => self.own_of(layer, node_type, block.streams_into[node_type]),
        };
        if connections.is_none(node_type) {
            return sum(own, Activation::Elu).unwrap_or_else(nothing);
        }
        let z = match own {
            Some(own) if connections.has_gate(node_type) => {
                let rows = block.destinations(node_type, source.h.rows(node_type));
                let own = linear(layer.of_itself(node_type, rows), own, None);
                connections.gated(node_type, own, sum(None, Activation::Identity).unwrap_or_else(nothing))
            }
            own => sum(own, Activation::Identity).unwrap_or_else(nothing),
        };
        connections.finished(z)
    }

    /// Logits of the embeddings of some types, one behind the other, `[rows, 1]`, f32. There is at least one row.
    pub fn logits(&self, h: impl IntoIterator<Item = Tensor<B, 2>>) -> Tensor<B, 2> {
        let column = self.head.val();
        // Not transposed: a row with gaps would be copied.
        let width = column.dims()[0];
        let weight = column.reshape([1, width]);
        let rows = h.into_iter().filter(|h| h.dims()[0] > 0);
        let products: Vec<_> = rows.map(|h| row_dots(h, weight.clone())).collect();
        combine(vec![Tensor::cat(products, 0)], Some(self.head_bias.val()), 1.0, Activation::Identity)
    }

    /// `sum_j a_ij (W h_j)` of a relation.
    fn project_first(
        &self,
        layer: &AttentionLayer<B>,
        source: &Source<'_, B>,
        projected: &mut Option<Projected<B>>,
        edges: &RelationEdges<B>,
    ) -> Vec<Part<B>> {
        if projected.as_ref().is_none_or(|of| of.stream != edges.stream) {
            let parameters = &layer.streams[edges.stream];
            let weight = parameters.projection.val();
            let width = weight.dims()[1];
            let vector = |from: usize| {
                parameters.attention.val().narrow(0, from * width, width).reshape([self.heads, width / self.heads])
            };
            let (attention, rows) = ([vector(0), vector(1)], vec![None; source.h.types()]);
            *projected = Some(Projected { stream: edges.stream, weight, attention, rows });
        }
        let Some(Projected { weight, attention, rows, .. }) = projected else { return Vec::new() };
        let mut project =
            |t: usize| rows[t].get_or_insert_with(|| linear(source.h.rows(t), weight.clone(), None)).clone();
        let h_src = project(edges.src);
        let h_dst = source.block.destinations(edges.dst, project(edges.dst));
        let (config, [attention_dst, attention_src]) = (source.config(edges, self.negative_slope), attention.clone());
        if let Some(of_edges) = layer.edges.of(edges) {
            let scores = |x: &Tensor<B, 2>, vectors: Tensor<B, 2>| ScoreColumns {
                scores: row_dots(x.clone(), by_head(vectors)),
                first: 0,
            };
            let scores = [scores(&h_dst, attention_dst), scores(&h_src, attention_src)];
            return of_edges.attend(&edges.csr, h_src, scores, self.heads, config).map(Part::Matrix).into();
        }
        vec![Part::Matrix(gat(&edges.csr, h_src, h_dst, attention_src, attention_dst, config))]
    }

    /// `(sum_j a_ij h_j) W` of a relation, for one head.
    fn project_last(
        &self,
        layer: &AttentionLayer<B>,
        source: &Source<'_, B>,
        scores: &AllScores<'_, B>,
        edges: &RelationEdges<B>,
    ) -> Vec<Part<B>> {
        let config = source.config(edges, self.negative_slope);
        let h_src = source.h.rows(edges.src);
        let weight = layer.streams[edges.stream].projection.val();
        let reads_data = source.block.reads_data;
        if let Some(of_edges) = layer.edges.of(edges) {
            let scores = if reads_data { scores.of_data(edges) } else { scores.of(edges) };
            let [attended, messages] = of_edges.attend(&edges.csr, h_src, scores, 1, config);
            return vec![product(attended, weight), Part::Matrix(messages)];
        }
        let attended = if reads_data {
            let h_dst = source.of_destinations(edges.dst, source.h.rows(edges.dst));
            attend_inputs(&edges.csr, h_src, h_dst, scores.vectors(edges.stream), scores.of(edges), config)
        } else {
            let [dst, src] = scores.of(edges);
            attend(&edges.csr, h_src, dst, src, 1, config)
        };
        vec![product(attended, weight)]
    }
}

impl<B: GraphBackend> TripleStreamGat<B> {
    /// The weight of a type's nodes themselves, where the type has one, into which so many streams lead. A residual
    /// connection is an identity in it.
    fn own_of(&self, layer: &AttentionLayer<B>, node_type: usize, streams: usize) -> Option<Tensor<B, 2>> {
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
        let has_gate = own.is_some() && layer.connections.has_gate(node_type);
        let own = match (own, identity) {
            (Some(own), Some(identity)) => Some(own + identity),
            (own, identity) => own.or(identity),
        };
        // The sum is divided by the number of streams, and what a node has of itself is not.
        if streams > 1 && !has_gate { own.map(|own| own.mul_scalar(streams as f32)) } else { own }
    }
}

/// `x weight`, to be added up with what else arrives.
fn product<B: GraphBackend>(x: Tensor<B, 2>, weight: Tensor<B, 2>) -> Part<B> {
    Part::Product { x, weight }
}

/// The factor on everything that arrives at a type.
fn scale<B: GraphBackend>(block: &Block<B>, node_type: usize) -> f32 {
    1.0 / block.streams_into[node_type].max(1) as f32
}
