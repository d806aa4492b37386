//! Graph attention.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::leaky_relu;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{
    Csr, EdgeTerm, EdgeValue, GatConfig, GraphBackend, MAX_EDGE_COLUMNS, ScoreColumns, Strategy, Target, attend,
    attend_edges, dropout, gat, gsddmm, linear, row_dots,
};

use super::attention::{
    Residual, by_head, check_messages, check_no_ages, edges_of, finish_heads, folded, read_of_edges, weighted_messages,
    weights_of, with_edges,
};
use super::check;
use super::dropout::{features, of_attention};
use super::edge_features::{EdgeFeatures, TimeEncoder};
use super::graph_conv::{GraphConv, Nodes, TrainingPass};
use super::initial::Initial;

const LAYER: &str = "GatConv";

/// The shape of a [`GatConv`].
#[derive(Config, Debug)]
pub struct GatConvConfig {
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
    /// Width of the destinations, which then have a projection of their own. Default: that of the sources, with one
    /// projection for both (PyG).
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
    /// Slope of the leaky ReLU on negative scores, in [0, 1]. Default: 0.2 (Velickovic et al.).
    #[config(default = 0.2)]
    pub negative_slope: f64,
    /// Share of the features that a training pass sets to zero, in [0, 1). Default: 0; the paper has 0.6.
    #[config(default = 0.0)]
    pub feature_dropout: f64,
    /// Share of the attention weights that a training pass sets to zero, in [0, 1); `dropout` in PyG. Default: 0; the
    /// paper has 0.6.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// Whether every node attends to itself, where sources and destinations are the same nodes. Default: true (PyG).
    #[config(default = true)]
    pub add_self_loops: bool,
    /// Whether the destinations are added to the result: as they are where the widths agree, projected otherwise.
    /// Default: false (PyG).
    #[config(default = false)]
    pub residual: bool,
    /// Whether a bias is learned. Default: true (PyG).
    #[config(default = true)]
    pub bias: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// Graph attention: a weighted mean of projected in-neighbours, with weights from a score of both ends.
///
/// ```text
/// e_ij = leaky_relu(<a_dst, x_i W> + <a_src, x_j W> [+ <a_edge, f_ij W_edge>])
/// a_ij = exp(e_ij) / sum_k exp(e_ik)
/// y_i  = ||_heads sum_j a_ij (x_j W [+ f_ij W_edge])  (or their mean)  [+ x_i W_res]  + b
/// ```
///
/// The features of edges are in messages with `edge_messages` alone: those are added up and projected per node.
///
/// On one kind of nodes every node is its own neighbour exactly once, and the features of that edge are the mean of
/// those of its in-edges ([`Csr::with_self_loops`]). A destination without in-edges has the bias (and the residual)
/// alone.
///
/// The fused operators [`attend`] and, with up to 16 features an edge, [`attend_edges`] run: nothing is stored per edge
/// beside its features, and where a single head widens its input, attention comes before projection. Scores are dot
/// products with `W a`. More features of edges, and [`GatConv::forward_with_attention`], take scores and weights
/// `[num_edges, heads]` of memory.
///
/// # Shapes
/// `x` `[nodes, in_channels]`, or sources `[num_cols, in_channels]` and destinations `[num_rows, dst_channels]`; f32,
/// f16 or bf16. Result `[num_rows, heads * out_channels]`, or `[num_rows, out_channels]` for the mean, in the same
/// dtype. Parameters and scores are f32.
///
/// # Gradient
/// Of features, features of edges (not of ages) and all parameters. Saved: the projected sources, the result and four
/// values per row and head; on the path with weights per edge also three matrices `[num_edges, heads]`. Deterministic.
///
/// # Panics
/// If a shape does not fit; the message names the argument, what was expected and what was got. If the layer has
/// `edge_channels` and features of edges are not given, or the other way round; so with `time_cosines` and ages, which
/// [`GatConv::forward_with_attention`] does not take.
///
/// # Source
/// Velickovic et al., Graph attention networks (ICLR 2018), equations 1 to 6.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::GatConvConfig;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 1, 2], &[1, 0], 2, &device).unwrap();
/// let mut conv = GatConvConfig::new(1, 1).init::<Flex>(&device);
/// conv.weight = Param::from_data([[2.0]], &device);
/// conv.att_src = Param::from_data([[0.0]], &device); // equal scores
/// conv.att_dst = Param::from_data([[0.0]], &device);
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let (y, attention) = conv.forward_with_attention(&csr, x, None, None);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [4.0, 4.0]);
/// assert_eq!(attention.into_data().to_vec::<f32>().unwrap(), [0.5; 4]);
/// ```
#[derive(Module, Debug)]
pub struct GatConv<B: Backend> {
    /// `[in_channels, heads * out_channels]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[dst_channels, heads * out_channels]`, where destinations have a width of their own.
    pub weight_dst: Option<Param<Tensor<B, 2>>>,
    /// `[edge_channels, heads * out_channels]`, with the columns of ages behind those.
    pub weight_edge: Option<Param<Tensor<B, 2>>>,
    /// `[dst_channels, width of the result]`, where the residual is projected.
    pub weight_residual: Option<Param<Tensor<B, 2>>>,
    /// `[heads, out_channels]`.
    pub att_src: Param<Tensor<B, 2>>,
    /// `[heads, out_channels]`.
    pub att_dst: Param<Tensor<B, 2>>,
    /// `[heads, out_channels]`.
    pub att_edge: Option<Param<Tensor<B, 2>>>,
    /// How ages are read.
    pub time: Option<TimeEncoder<B>>,
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

impl GatConvConfig {
    /// A layer with initial values: Glorot for weights and attention vectors, zero for the bias.
    ///
    /// # Panics
    /// If a width or the number of heads is 0, or a rate is outside [0, 1).
    pub fn init<B: Backend>(&self, device: &B::Device) -> GatConv<B> {
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
        let vectors = [self.heads, self.out_channels];
        let mut initial = Initial::new(self.seed, device);
        let time = self.time_cosines.map(|cosines| TimeEncoder::new(LAYER, cosines, self.time_periods, &initial));
        let edge_columns = self.edge_channels.unwrap_or(0) + time.as_ref().map_or(0, TimeEncoder::columns);
        let reads_edges = edge_columns > 0;
        check_messages(LAYER, self.edge_messages, reads_edges);
        GatConv {
            weight: initial.glorot([self.in_channels, width]),
            weight_dst: self.dst_channels.map(|channels| initial.glorot([channels, width])),
            weight_edge: reads_edges.then(|| initial.glorot([edge_columns, width])),
            weight_residual: (residual == Residual::Projected).then(|| initial.glorot([dst_channels, output])),
            att_src: initial.glorot(vectors),
            att_dst: initial.glorot(vectors),
            att_edge: reads_edges.then(|| initial.glorot(vectors)),
            time,
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

/// Both parts of the score of every head.
struct Scores<B: Backend> {
    src: ScoreColumns<B>,
    dst: ScoreColumns<B>,
}

impl<B: GraphBackend> GatConv<B> {
    /// The layer; see [`GatConv`].
    pub fn forward(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>, training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.fused(csr, x.into(), EdgeFeatures::none(), training)
    }

    fn fused(&self, csr: &Csr<B>, x: Nodes<B>, edges: EdgeFeatures<B>, training: Option<TrainingPass>) -> Tensor<B, 2> {
        let x = self.input(csr, x, training);
        let (csr, edges) = edges_of(LAYER, csr, edges, self.read_of_edges(), self.loops(&x));
        let Scores { src, dst } = self.scores(&x);
        let config = self.config(training);
        let (h, weight) = (x.src().clone(), self.weight.val());
        let ([input, width], [heads, _]) = (weight.dims(), self.att_src.dims());
        let time = edges.encoding(self.time.as_ref());
        let values = edges.of_dtype(h.dtype()).values;
        let term = self.logits_of_edges().map(|logit| EdgeTerm { values, time, logit });
        let attended = |h: Tensor<B, 2>| match term {
            Some(term) => {
                let (y, v) = attend_edges(&csr, h, dst, src, term, heads, config);
                (y, Some(v))
            }
            None => (attend(&csr, h, dst, src, heads, config), None),
        };
        let (y, v) = if heads == 1 && input < width {
            let (y, v) = attended(h);
            (linear(y, weight, None), v)
        } else {
            attended(linear(h, weight, None))
        };
        self.finish(with_edges(y, self.in_messages(v), heads), &x)
    }

    /// What edges carry and its projection, where messages have it.
    fn in_messages(&self, carried: Option<Tensor<B, 2>>) -> Option<(Tensor<B, 2>, Tensor<B, 2>)> {
        carried.zip(self.weight_edge.as_ref().map(Param::val)).filter(|_| self.edge_messages)
    }

    /// `W_edge a_edge` of every head, so that features of edges are never projected.
    fn logits_of_edges(&self) -> Option<Tensor<B, 2>> {
        let (weight, vectors) = (self.weight_edge.as_ref()?, self.att_edge.as_ref()?);
        Some(folded(weight.val(), vectors.val()))
    }

    /// The layer after its projection, for a caller with another way to `h = x W`: attention among the nodes of `h`
    /// without features of edges, then residual-free heads and bias. No feature is dropped. Between two lists of nodes,
    /// such as those before and after a layer of a mini-batch, the entries of `csr` are all that there is: loops are
    /// among them or nowhere.
    ///
    /// # Shapes
    /// `h` `[nodes, heads * out_channels]`, or sources and destinations of that width; result as [`GatConv::forward`].
    ///
    /// # Panics
    /// If a shape does not fit, or the layer has a residual connection or wants features of edges.
    pub fn propagate(&self, csr: &Csr<B>, h: impl Into<Nodes<B>>, training: Option<TrainingPass>) -> Tensor<B, 2> {
        assert!(self.residual == Residual::Nothing, "{LAYER}: residual: expected none in propagate");
        let h = h.into();
        let width = Some(self.weight.dims()[1]);
        h.check(LAYER, csr, [width, width]);
        let (csr, _) = edges_of(LAYER, csr, EdgeFeatures::none(), self.read_of_edges(), self.loops(&h));
        let (src, dst) = (h.src().clone(), h.dst().clone());
        self.finish(gat(&csr, src, dst, self.att_src.val(), self.att_dst.val(), self.config(training)), &h)
    }

    /// [`GatConv::propagate`] for a caller that attends to more than sources: `attend` is given these, the scores of
    /// destinations and sources and the number of heads, and makes what arrives, heads side by side.
    pub(crate) fn propagate_by(
        &self,
        h: &Nodes<B>,
        training: Option<TrainingPass>,
        attend: impl FnOnce(Tensor<B, 2>, [ScoreColumns<B>; 2], usize, GatConfig) -> Tensor<B, 2>,
    ) -> Tensor<B, 2> {
        let scores = |x: &Tensor<B, 2>, vectors: &Param<Tensor<B, 2>>| ScoreColumns {
            scores: row_dots(x.clone(), by_head(vectors.val())),
            first: 0,
        };
        let scores = [scores(h.dst(), &self.att_dst), scores(h.src(), &self.att_src)];
        self.finish(attend(h.src().clone(), scores, self.att_src.dims()[0], self.config(training)), h)
    }

    fn config(&self, training: Option<TrainingPass>) -> GatConfig {
        GatConfig {
            negative_slope: self.negative_slope as f32,
            attention_dropout: of_attention(self.attention_dropout, training),
            ..Default::default()
        }
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
        let edges = edges.into();
        if self.read_of_edges().0 > MAX_EDGE_COLUMNS {
            return self.forward_with_attention(csr, x, edges.values, training).0;
        }
        self.fused(csr, x.into(), edges, training)
    }

    /// The layer, with features of edges where it has `edge_channels`, and its attention weights `[num_edges, heads]`,
    /// f32, before dropout. A training pass drops other weights than [`GatConv::forward`] does, where parallel edges
    /// share a fate: here each edge has its own. They are in the order of `csr`, or where self-loops were added in that
    /// of
    /// [`csr.with_self_loops().csr`](Csr::with_self_loops).
    pub fn forward_with_attention(
        &self,
        csr: &Csr<B>,
        x: impl Into<Nodes<B>>,
        edges: Option<Tensor<B, 2>>,
        training: Option<TrainingPass>,
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        check_no_ages(LAYER, self.time.as_ref());
        let x = self.input(csr, x.into(), training);
        let edges = EdgeFeatures { values: edges, age: None };
        let (csr, edges) = edges_of(LAYER, csr, edges, self.read_of_edges(), self.loops(&x));
        let scores = self.scores(&x);
        let heads = self.att_src.dims()[0];
        let columns = |part: ScoreColumns<B>| part.scores.narrow(1, part.first, heads);
        let logits = || {
            let ends = EdgeValue::add(Target::Source(columns(scores.src)), Target::Destination(columns(scores.dst)));
            let mut logits = gsddmm(&csr, ends, Strategy::Auto);
            if let Some((edges, vectors)) = edges.values.clone().zip(self.logits_of_edges()) {
                logits = logits + row_dots(edges, vectors);
            }
            leaky_relu(logits, self.negative_slope)
        };
        let attention = weights_of(&csr, heads, &x.src().device(), logits);
        let kept = match of_attention(self.attention_dropout, training) {
            Some(drop) => dropout(attention.clone(), &drop),
            None => attention.clone(),
        };
        let h = linear(x.src().clone(), self.weight.val(), None);
        let of_edges = self.in_messages(edges.of_dtype(h.dtype()).values);
        (self.finish(weighted_messages(&csr, h, kept, of_edges), &x), attention)
    }

    /// Slope of the leaky ReLU on negative scores.
    pub fn negative_slope(&self) -> f64 {
        self.negative_slope
    }

    fn read_of_edges(&self) -> (usize, bool) {
        read_of_edges(self.weight_edge.as_ref(), self.time.as_ref())
    }

    fn loops(&self, x: &Nodes<B>) -> bool {
        self.add_self_loops && x.is_same()
    }

    fn input(&self, csr: &Csr<B>, x: Nodes<B>, training: Option<TrainingPass>) -> Nodes<B> {
        let dst = self.weight_dst.as_ref().unwrap_or(&self.weight);
        x.check(LAYER, csr, [Some(self.weight.dims()[0]), Some(dst.dims()[0])]);
        features(x, self.feature_dropout, training)
    }

    fn scores(&self, x: &Nodes<B>) -> Scores<B> {
        let dst_weight = self.weight_dst.as_ref().unwrap_or(&self.weight);
        let src = folded(self.weight.val(), self.att_src.val());
        let dst = folded(dst_weight.val(), self.att_dst.val());
        let heads = src.dims()[0];
        let part = |scores: &Tensor<B, 2>, first: usize| ScoreColumns { scores: scores.clone(), first };
        match x {
            Nodes::Same(x) => {
                // One pass over the rows.
                let scores = row_dots(x.clone(), Tensor::cat(vec![src, dst], 0));
                Scores { src: part(&scores, 0), dst: part(&scores, heads) }
            }
            Nodes::Between { src: x_src, dst: x_dst } => {
                Scores { src: part(&row_dots(x_src.clone(), src), 0), dst: part(&row_dots(x_dst.clone(), dst), 0) }
            }
        }
    }

    fn finish(&self, y: Tensor<B, 2>, x: &Nodes<B>) -> Tensor<B, 2> {
        let heads = (self.att_src.dims()[0], self.concat);
        let residual = (self.residual, self.weight_residual.as_ref());
        finish_heads(y, heads, residual, x, self.bias.as_ref())
    }
}

impl<B: GraphBackend> GraphConv<B> for GatConv<B> {
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
