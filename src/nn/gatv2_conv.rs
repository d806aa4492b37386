//! Graph attention with scores that depend on both ends together.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::leaky_relu;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{
    Activation, Csr, Destinations, EdgeProjection, EdgeValue, GatConfig, GraphBackend, MAX_EDGE_COLUMNS,
    MAX_V2_CHANNELS, Strategy, Target, Term, dropout, gatv2, gsddmm, linear, row_dots, sum_in_chunks,
};

use super::attention::{
    Residual, check_messages, check_no_ages, edges_of, finish_heads, read_of_edges, weighted_messages, weights_of,
};
use super::check;
use super::dropout::{features, of_attention};
use super::edge_features::{EdgeFeatures, TimeEncoder};
use super::graph_conv::{GraphConv, Nodes, TrainingPass, finish};
use super::initial::Initial;

const LAYER: &str = "GatV2Conv";

/// The shape of a [`GatV2Conv`].
#[derive(Config, Debug)]
pub struct GatV2ConvConfig {
    /// Width of the sources, at least 1.
    pub in_channels: usize,
    /// Width of the output of one head, at least 1.
    pub out_channels: usize,
    /// Attention heads, at least 1. Default: 1 (PyG).
    #[config(default = 1)]
    pub heads: usize,
    /// Whether heads stand side by side; their mean is taken otherwise. Default: true (PyG).
    #[config(default = true)]
    pub concat: bool,
    /// Width of the destinations. Default: that of the sources.
    pub dst_channels: Option<usize>,
    /// Width of the features of edges. Default: edges have none.
    pub edge_channels: Option<usize>,
    /// Cosines of the age of an edge, 1 to 16, which stand behind the features of the edge and the logarithm of its age
    /// ([`TimeEncoder`]). Default: ages are not read.
    pub time_cosines: Option<usize>,
    /// The longest and the shortest period that frequencies begin with, in seconds. Default: a year and an hour.
    #[config(default = "[31_536_000.0, 3_600.0]")]
    pub time_periods: [f64; 2],
    /// Whether what an edge carries is in its message, too, projected as in the score. Default: false (PyG).
    #[config(default = false)]
    pub edge_messages: bool,
    /// Slope of the leaky ReLU within the score, in [0, 1]. Default: 0.2 (Brody et al.).
    #[config(default = 0.2)]
    pub negative_slope: f64,
    /// Share of the features that a training pass sets to zero, in [0, 1). Default: 0.
    #[config(default = 0.0)]
    pub feature_dropout: f64,
    /// Share of the attention weights that a training pass sets to zero, in [0, 1); `dropout` in PyG. Default: 0.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// Whether every node attends to itself, where sources and destinations are the same nodes. Default: true (PyG).
    #[config(default = true)]
    pub add_self_loops: bool,
    /// Whether the destinations are added to the result: as they are where the widths agree, projected otherwise.
    /// Default: false (PyG).
    #[config(default = false)]
    pub residual: bool,
    /// Whether biases are learned: of both projections and of the result. Default: true (PyG).
    #[config(default = true)]
    pub bias: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// Graph attention whose ranking of the neighbours depends on who asks: the score is taken behind the non-linearity.
///
/// ```text
/// l_j  = x_j W_l + b_l        r_i = x_i W_r + b_r
/// e_ij = <a, leaky_relu(l_j + r_i [+ f_ij W_edge])>        a_ij = exp(e_ij) / sum_k exp(e_ik)
/// y_i  = ||_heads sum_j a_ij (l_j [+ f_ij W_edge])  (or their mean)  [+ x_i W_res]  + b
/// ```
///
/// The features of edges are in messages with `edge_messages` alone.
///
/// Self-loops, their features and destinations without in-edges are as in [`GatConv`](super::GatConv).
///
/// The fused operator [`gatv2`] runs, and nothing is stored per edge beside its features. More than 16 features of an
/// edge, heads of more than 512 channels, and [`GatV2Conv::forward_with_attention`], take scores and weights
/// `[num_edges, heads]` of memory, and `[num_edges, out_channels]` for one head at a time (twice for a moment), of
/// which a training pass keeps one for every head.
///
/// # Shapes
/// `x` `[nodes, in_channels]`, or sources `[num_cols, in_channels]` and destinations `[num_rows, dst_channels]`; f32,
/// f16 or bf16. Result `[num_rows, heads * out_channels]`, or `[num_rows, out_channels]` for the mean, in the same
/// dtype. Parameters and scores are f32.
///
/// # Gradient
/// Of features, features of edges (not of ages) and all parameters. Saved: both projections, the result and a value per
/// row and head; on the path with weights per edge what is said above. Deterministic.
///
/// # Panics
/// If a shape does not fit; the message names the argument, what was expected and what was got. If the layer has
/// `edge_channels` and features of edges are not given, or the other way round; so with `time_cosines` and ages, which
/// [`GatV2Conv::forward_with_attention`] does not take.
///
/// # Source
/// Brody et al., How attentive are graph attention networks? (ICLR 2022), equation 7.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::GatV2ConvConfig;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 1, 2], &[1, 0], 2, &device).unwrap();
/// let mut conv = GatV2ConvConfig::new(1, 1).with_bias(false).init::<Flex>(&device);
/// conv.weight_src = Param::from_data([[2.0]], &device);
/// conv.att = Param::from_data([[0.0]], &device); // equal scores
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let y = conv.forward(&csr, x, None);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [4.0, 4.0]);
/// ```
#[derive(Module, Debug)]
pub struct GatV2Conv<B: Backend> {
    /// `W_l`, `[in_channels, heads * out_channels]`.
    pub weight_src: Param<Tensor<B, 2>>,
    /// `b_l`, `[heads * out_channels]`.
    pub bias_src: Option<Param<Tensor<B, 1>>>,
    /// `W_r`, `[dst_channels, heads * out_channels]`.
    pub weight_dst: Param<Tensor<B, 2>>,
    /// `b_r`, `[heads * out_channels]`.
    pub bias_dst: Option<Param<Tensor<B, 1>>>,
    /// `[edge_channels, heads * out_channels]`, with the columns of ages behind those.
    pub weight_edge: Option<Param<Tensor<B, 2>>>,
    /// How ages are read.
    pub time: Option<TimeEncoder<B>>,
    /// `[dst_channels, width of the result]`, where the residual is projected.
    pub weight_residual: Option<Param<Tensor<B, 2>>>,
    /// `[heads, out_channels]`.
    pub att: Param<Tensor<B, 2>>,
    /// `[width of the result]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    concat: bool,
    edge_messages: bool,
    negative_slope: f64,
    feature_dropout: f64,
    attention_dropout: f64,
    add_self_loops: bool,
    #[module(skip)]
    residual: Residual,
}

impl GatV2ConvConfig {
    /// A layer with initial values: Glorot for weights and attention vectors, zero for biases.
    ///
    /// # Panics
    /// If a width or the number of heads is 0, or a rate is outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> GatV2Conv<B> {
        let dst_channels = self.dst_channels.unwrap_or(self.in_channels);
        check::positive(LAYER, "in_channels", self.in_channels);
        check::positive(LAYER, "dst_channels", dst_channels);
        check::positive(LAYER, "edge_channels", self.edge_channels.unwrap_or(1));
        check::positive(LAYER, "out_channels", self.out_channels);
        check::positive(LAYER, "heads", self.heads);
        check::rate(LAYER, "feature_dropout", self.feature_dropout);
        check::rate(LAYER, "attention_dropout", self.attention_dropout);
        let width = self.heads * self.out_channels;
        let output = if self.concat { width } else { self.out_channels };
        let residual = Residual::new(self.residual, dst_channels, output);
        let mut initial = Initial::new(self.seed, device);
        let time = self.time_cosines.map(|cosines| TimeEncoder::new(LAYER, cosines, self.time_periods, &initial));
        let edge_columns = self.edge_channels.unwrap_or(0) + time.as_ref().map_or(0, TimeEncoder::columns);
        check_messages(LAYER, self.edge_messages, edge_columns > 0);
        GatV2Conv {
            weight_src: initial.glorot([self.in_channels, width]),
            bias_src: self.bias.then(|| initial.zeros(width)),
            weight_dst: initial.glorot([dst_channels, width]),
            bias_dst: self.bias.then(|| initial.zeros(width)),
            weight_edge: (edge_columns > 0).then(|| initial.glorot([edge_columns, width])),
            time,
            weight_residual: (residual == Residual::Projected).then(|| initial.glorot([dst_channels, output])),
            att: initial.glorot([self.heads, self.out_channels]),
            bias: self.bias.then(|| initial.zeros(output)),
            concat: self.concat,
            edge_messages: self.edge_messages,
            negative_slope: self.negative_slope,
            feature_dropout: self.feature_dropout,
            attention_dropout: self.attention_dropout,
            add_self_loops: self.add_self_loops,
            residual,
        }
    }
}

/// What attention runs on.
struct Ends<B: Backend> {
    csr: Csr<B>,
    edges: EdgeFeatures<B>,
    /// The projected sources.
    left: Tensor<B, 2>,
    /// Both ends before their projection.
    x: Nodes<B>,
}

impl<B: GraphBackend> GatV2Conv<B> {
    /// The layer; see [`GatV2Conv`].
    pub fn forward(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>, training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.without_weights(csr, x.into(), EdgeFeatures::none(), training)
    }

    /// The layer with what edges carry, in the order of `csr`: features, ages or both. The age of a self-loop that is
    /// added is 0.
    pub fn forward_with_edges(
        &self,
        csr: &Csr<B>,
        x: impl Into<Nodes<B>>,
        edges: impl Into<EdgeFeatures<B>>,
        training: Option<TrainingPass>,
    ) -> Tensor<B, 2> {
        self.without_weights(csr, x.into(), edges.into(), training)
    }

    fn without_weights(
        &self,
        csr: &Csr<B>,
        x: Nodes<B>,
        edges: EdgeFeatures<B>,
        training: Option<TrainingPass>,
    ) -> Tensor<B, 2> {
        if self.read_of_edges().0 > MAX_EDGE_COLUMNS || self.att.dims()[1] > MAX_V2_CHANNELS {
            return self.forward_with_attention(csr, x, edges.values, training).0;
        }
        let Ends { csr, edges, left, x } = self.ends(csr, x, edges, training);
        let (edges, config) = (self.projection(edges), self.config(training));
        self.finish(gatv2(&csr, left, self.right(&x), self.att.val(), edges, config), &x)
    }

    /// The layer, with what edges carry where it reads that, by `chunk_rows` destination rows at a time
    /// ([`sum_in_chunks`]): whole are both ends, the projected sources and the heads side by side, and in the backward
    /// pass the projected destinations. The same result and gradients within their rounding.
    ///
    /// # Panics
    /// As [`GatV2Conv`]; if `chunk_rows` is 0, or edges have more than 16 features or heads more than 512 channels, for
    /// which there is no fused operator.
    pub fn forward_in_chunks(
        &self,
        csr: &Csr<B>,
        x: impl Into<Nodes<B>>,
        edges: Option<EdgeFeatures<B>>,
        training: Option<TrainingPass>,
        chunk_rows: usize,
    ) -> Tensor<B, 2> {
        let edges = edges.unwrap_or_else(EdgeFeatures::none);
        let Ends { csr, edges, left, x } = self.ends(csr, x.into(), edges, training);
        let to = Destinations::of(&csr);
        let x_dst = (x.dst().clone(), to.set());
        let dst = (self.weight_dst.val(), self.bias_dst.as_ref().map(Param::val));
        let edges = self.projection(edges);
        let term = Term::gatv2(&csr, left, x_dst, dst, self.att.val(), edges, &self.config(training));
        let y = sum_in_chunks(vec![term], None, 1.0, Activation::Identity, to, chunk_rows);
        self.finish(y, &x)
    }

    /// What edges add to the hidden layer, and to messages.
    fn projection(&self, edges: EdgeFeatures<B>) -> Option<EdgeProjection<B>> {
        let weight = self.weight_edge.as_ref()?.val();
        let time = edges.encoding(self.time.as_ref());
        Some(EdgeProjection { values: edges.values, time, weight, messages: self.edge_messages })
    }

    fn read_of_edges(&self) -> (usize, bool) {
        read_of_edges(self.weight_edge.as_ref(), self.time.as_ref())
    }

    fn config(&self, training: Option<TrainingPass>) -> GatConfig {
        GatConfig {
            negative_slope: self.negative_slope as f32,
            attention_dropout: of_attention(self.attention_dropout, training),
            ..Default::default()
        }
    }

    /// The layer, with features of edges where it has `edge_channels`, and its attention weights `[num_edges, heads]`,
    /// f32, before dropout. A training pass drops other weights than [`GatV2Conv::forward`] does, where parallel edges
    /// share a fate: here each edge has its own. They are in the order of `csr`, or where self-loops were added in that
    /// of [`csr.with_self_loops().csr`](Csr::with_self_loops).
    pub fn forward_with_attention(
        &self,
        csr: &Csr<B>,
        x: impl Into<Nodes<B>>,
        edges: Option<Tensor<B, 2>>,
        training: Option<TrainingPass>,
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        check_no_ages(LAYER, self.time.as_ref());
        let edges = EdgeFeatures { values: edges, age: None };
        let Ends { csr, edges, left, x } = self.ends(csr, x.into(), edges, training);
        let (right, [heads, _]) = (self.right(&x), self.att.dims());
        let logits = |head| self.logits(head, &csr, &left, &right, edges.values.as_ref());
        let all = || Tensor::cat((0..heads).map(logits).collect(), 1);
        let attention = weights_of(&csr, heads, &left.device(), all);
        let kept = match of_attention(self.attention_dropout, training) {
            Some(drop) => dropout(attention.clone(), &drop),
            None => attention.clone(),
        };
        let of_edges = edges.values.zip(self.weight_edge.as_ref().map(Param::val)).filter(|_| self.edge_messages);
        (self.finish(weighted_messages(&csr, left, kept, of_edges), &x), attention)
    }

    /// Checks, drops and projects the sources.
    fn ends(&self, csr: &Csr<B>, x: Nodes<B>, edges: EdgeFeatures<B>, training: Option<TrainingPass>) -> Ends<B> {
        x.check(LAYER, csr, [Some(self.weight_src.dims()[0]), Some(self.weight_dst.dims()[0])]);
        let x = features(x, self.feature_dropout, training);
        let loops = self.add_self_loops && x.is_same();
        let (csr, edges) = edges_of(LAYER, csr, edges, self.read_of_edges(), loops);
        let left = projected(x.src(), &self.weight_src, self.bias_src.as_ref());
        Ends { csr, edges: edges.of_dtype(left.dtype()), left, x }
    }

    /// The projected destinations.
    fn right(&self, x: &Nodes<B>) -> Tensor<B, 2> {
        projected(x.dst(), &self.weight_dst, self.bias_dst.as_ref())
    }

    fn finish(&self, y: Tensor<B, 2>, x: &Nodes<B>) -> Tensor<B, 2> {
        let heads = (self.att.dims()[0], self.concat);
        let residual = (self.residual, self.weight_residual.as_ref());
        finish_heads(y, heads, residual, x, self.bias.as_ref())
    }

    /// The scores of one head `[num_edges, 1]`.
    fn logits(
        &self,
        head: usize,
        csr: &Csr<B>,
        left: &Tensor<B, 2>,
        right: &Tensor<B, 2>,
        edges: Option<&Tensor<B, 2>>,
    ) -> Tensor<B, 2> {
        let [_, channels] = self.att.dims();
        let columns = |x: &Tensor<B, 2>| x.clone().narrow(1, head * channels, channels);
        let ends = EdgeValue::add(Target::Source(columns(left)), Target::Destination(columns(right)));
        let mut hidden = gsddmm(csr, ends, Strategy::Auto);
        if let (Some(edges), Some(weight)) = (edges, &self.weight_edge) {
            hidden = hidden + linear(edges.clone(), columns(&weight.val()), None);
        }
        row_dots(leaky_relu(hidden, self.negative_slope), self.att.val().narrow(0, head, 1))
    }
}

fn projected<B: GraphBackend>(
    x: &Tensor<B, 2>,
    weight: &Param<Tensor<B, 2>>,
    bias: Option<&Param<Tensor<B, 1>>>,
) -> Tensor<B, 2> {
    finish(vec![linear(x.clone(), weight.val(), None)], bias, Activation::Identity)
}

impl<B: GraphBackend> GraphConv<B> for GatV2Conv<B> {
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.forward(csr, x, training)
    }

    fn forward_along(
        &self,
        csr: &Csr<B>,
        x: Nodes<B>,
        edges: Tensor<B, 2>,
        training: Option<TrainingPass>,
    ) -> Tensor<B, 2> {
        self.forward_with_edges(csr, x, edges, training)
    }
}
