//! Graph convolution by a symmetrically normalised adjacency.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{
    Activation, Csr, GraphBackend, LoopValue, Message, Reduce, SpmmConfig, Strategy, gspmm, linear, spmm,
};

use super::check;
use super::graph_conv::{GraphConv, Nodes, TrainingPass, finish};
use super::initial::Initial;
use super::normalisation::{Isolated, Normalised, inverse_root_of_weights};

const LAYER: &str = "GcnConv";

/// The shape of a [`GcnConv`].
#[derive(Config, Debug)]
pub struct GcnConvConfig {
    /// Width of the input, at least 1.
    pub in_channels: usize,
    /// Width of the output, at least 1.
    pub out_channels: usize,
    /// Whether a bias is learned. Default: true (PyG).
    #[config(default = true)]
    pub bias: bool,
    /// Whether every node counts as its own neighbour once, where sources and destinations are the same nodes. Default:
    /// true (Kipf and Welling, the renormalisation trick).
    #[config(default = true)]
    pub add_self_loops: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// Graph convolution: every node becomes a normalised sum over itself and its in-neighbours, projected.
///
/// ```text
/// y_i = sum_j x_j W / sqrt(deg_i deg_j) + b      over j in N(i) and i itself
/// ```
///
/// On one kind of nodes the degree counts in-edges and one self-loop, on both sides also where the graph is directed
/// (as `gcn_norm` of PyG does); loops of the graph give way to the one. Between two kinds of nodes there are no
/// self-loops, and `deg_j` is the out-degree of the source. No normalised weight is stored: factors per node are
/// applied within the sum. `X W` comes first where the output is narrower than the input, the sum over neighbours
/// otherwise; by associativity the result is the same.
///
/// # Shapes
/// `x` `[nodes, in_channels]`, or sources `[num_cols, in_channels]` and destinations `[num_rows, any]`, of which only
/// the number counts; f32, f16 or bf16. Result `[num_rows, out_channels]` in the same dtype. Parameters are f32.
///
/// # Gradient
/// Of `x`, `W` and `b`; with [`GcnConv::forward_weighted`] also of the weights, through the degrees. Saved: the
/// narrower of `x` and its sum over neighbours. Deterministic.
///
/// # Panics
/// If a shape does not fit; the message names the argument, what was expected and what was got.
///
/// # Source
/// Kipf and Welling, Semi-supervised classification with graph convolutional networks (ICLR 2017), equation 2.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::GcnConvConfig;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 1, 2], &[1, 0], 2, &device).unwrap();
/// let mut conv = GcnConvConfig::new(1, 1).init::<Flex>(&device);
/// conv.weight = Param::from_data([[10.0]], &device);
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// // Both degrees are 2 with the self-loop.
/// let y = conv.forward(&csr, x).into_data().to_vec::<f32>().unwrap();
/// assert!(y.iter().all(|y| (y - 20.0).abs() < 1e-4));
/// ```
#[derive(Module, Debug)]
pub struct GcnConv<B: Backend> {
    /// `[in_channels, out_channels]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out_channels]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    add_self_loops: bool,
}

impl GcnConvConfig {
    /// A layer with initial values: Glorot for the weight, zero for the bias.
    ///
    /// # Panics
    /// If a width is 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> GcnConv<B> {
        check::positive(LAYER, "in_channels", self.in_channels);
        check::positive(LAYER, "out_channels", self.out_channels);
        let mut initial = Initial::new(self.seed, device);
        GcnConv {
            weight: initial.glorot([self.in_channels, self.out_channels]),
            bias: self.bias.then(|| initial.zeros(self.out_channels)),
            add_self_loops: self.add_self_loops,
        }
    }
}

impl<B: GraphBackend> GcnConv<B> {
    /// The layer; see [`GcnConv`].
    pub fn forward(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>) -> Tensor<B, 2> {
        let x = x.into();
        x.check(LAYER, csr, [Some(self.weight.dims()[0]), None]);
        let normalised = match &x {
            Nodes::Between { .. } => Normalised::between(csr),
            Nodes::Same(_) if self.add_self_loops => Normalised::with_self_loops(csr),
            Nodes::Same(_) => Normalised::of_entries(csr, Isolated::Zero),
        };
        self.projected(x.src().clone(), |x| normalised.product(csr, x, 1.0))
    }

    /// The layer after its projection, for a caller with another way to `h = x W`: `y_i = sum_j h_j / sqrt(deg_i deg_j)
    /// + b`.
    ///
    /// # Shapes
    /// `h` `[nodes, out_channels]`; result likewise.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn propagate(&self, csr: &Csr<B>, h: Tensor<B, 2>) -> Tensor<B, 2> {
        let h = Nodes::Same(h);
        h.check(LAYER, csr, [Some(self.weight.dims()[1]), None]);
        let normalised = match self.add_self_loops {
            true => Normalised::with_self_loops(csr),
            false => Normalised::of_entries(csr, Isolated::Zero),
        };
        finish(vec![normalised.product(csr, h.same(LAYER), 1.0)], self.bias.as_ref(), Activation::Identity)
    }

    /// The layer after its projection with a weight per entry: `y_i = sum_j w_ij h_j / sqrt(deg_i deg_j) +
    /// h_i / deg_i + b` with `deg_i = 1 + sum_j w_ij`. The added self-loop weighs 1, also where the graph has loops.
    ///
    /// # Shapes
    /// `h` `[nodes, out_channels]`, `edge_weight` `[num_edges]` in the order of `csr`, f32, at least 0; result `[nodes,
    /// out_channels]`.
    ///
    /// # Gradient
    /// Of `h` and `b`.
    ///
    /// # Panics
    /// If a shape does not fit, or the layer adds no self-loops.
    pub fn propagate_weighted(&self, csr: &Csr<B>, h: Tensor<B, 2>, edge_weight: Tensor<B, 1>) -> Tensor<B, 2> {
        assert!(self.add_self_loops, "{LAYER}: add_self_loops: expected true in propagate_weighted");
        let h = Nodes::Same(h);
        h.check(LAYER, csr, [Some(self.weight.dims()[1]), None]);
        check::size(LAYER, "elements of edge_weight", csr.num_edges(), edge_weight.dims()[0]);
        let normalised = Normalised::weighted(csr, edge_weight);
        finish(vec![normalised.product(csr, h.same(LAYER), 1.0)], self.bias.as_ref(), Activation::Identity)
    }

    /// The layer after its projection in a mini-batch, whose nodes have sampled neighbours: with `k_i` of the
    /// `n_i = deg_i - 1` neighbours of node `i`
    ///
    /// ```text
    /// y_i = n_i / k_i sum_j h_j / sqrt(deg_i deg_j) + h_i / deg_i + b      over the sampled j
    /// ```
    ///
    /// Neighbours that are drawn evenly make the sum an unbiased estimate of that over all of them. Where all are taken
    /// the factor is 1, and the layer that of [`GcnConv::propagate`].
    ///
    /// # Shapes
    /// `csr` has no self-loops. `h` [`Nodes::Between`] the sources `[num_cols, out_channels]` and the destinations
    /// `[num_rows, out_channels]`, which are some of them; `degree` the in-degrees of both in the whole graph, without
    /// self-loops and one added, `[num_cols, 1]` and `[num_rows, 1]`, f32. Result `[num_rows, out_channels]`.
    ///
    /// # Gradient
    /// Of `h` and `b`. Nothing is saved.
    ///
    /// # Panics
    /// If a shape does not fit, or the layer adds no self-loops.
    ///
    /// # Source
    /// Hamilton, Ying and Leskovec, Inductive representation learning on large graphs (NeurIPS 2017), for the sample;
    /// the factor is that of Horvitz and Thompson (1952).
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve::nn::GcnConvConfig;
    /// use graphsieve_kernels::Csr;
    /// let device = Default::default();
    /// // Node 0 has two neighbours, of which node 1 was drawn; that one has a neighbour somewhere.
    /// let csr = Csr::<Flex>::from_host(&[0, 1], &[1], 2, &device).unwrap();
    /// let conv = GcnConvConfig::new(1, 1).init::<Flex>(&device);
    /// let h = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
    /// let degree = Tensor::<Flex, 2>::from_data([[3.0], [2.0]], &device);
    /// let first = |x: &Tensor<Flex, 2>| x.clone().narrow(0, 0, 1);
    /// let (h, degree) = ((h.clone(), first(&h)), (degree.clone(), first(&degree)));
    /// let y = conv.propagate_sampled(&csr, h.into(), degree.into());
    /// assert!((y.into_scalar() - (2.0 * 3.0 / 6f32.sqrt() + 1.0 / 3.0)).abs() < 1e-6);
    /// ```
    pub fn propagate_sampled(&self, csr: &Csr<B>, h: Nodes<B>, degree: Nodes<B>) -> Tensor<B, 2> {
        self.check_sample(csr, &h, &degree);
        self.of_sample(csr, &h, &Normalised::of_sample(csr, &degree))
    }

    /// The same with a weight per entry, as [`GcnConv::propagate_weighted`] has them: with `k_i` of `n_i` neighbours
    ///
    /// ```text
    /// y_i = n_i / k_i sum_j w_ij h_j / sqrt(deg_i deg_j) + h_i / deg_i + b      over the sampled j
    /// ```
    ///
    /// which, too, is unbiased for neighbours that are drawn evenly, and the whole sum where all are taken.
    ///
    /// # Shapes
    /// As [`GcnConv::propagate_sampled`], where `degree` are sums of weights and 1; `edge_weight` `[num_edges]` those
    /// of the sampled edges, `neighbours` `[num_rows, 1]` how many a destination has in the whole graph; f32.
    ///
    /// # Gradient
    /// Of `h` and `b`.
    ///
    /// # Panics
    /// If a shape does not fit, or the layer adds no self-loops.
    pub fn propagate_weighted_sample(
        &self,
        csr: &Csr<B>,
        h: Nodes<B>,
        degree: Nodes<B>,
        edge_weight: Tensor<B, 1>,
        neighbours: &Tensor<B, 2>,
    ) -> Tensor<B, 2> {
        self.check_sample(csr, &h, &degree);
        check::size(LAYER, "elements of edge_weight", csr.num_edges(), edge_weight.dims()[0]);
        check::size(LAYER, "rows of neighbours", csr.num_rows(), neighbours.dims()[0]);
        self.of_sample(csr, &h, &Normalised::of_weighted_sample(csr, &degree, edge_weight, neighbours))
    }

    fn check_sample(&self, csr: &Csr<B>, h: &Nodes<B>, degree: &Nodes<B>) {
        assert!(self.add_self_loops, "{LAYER}: add_self_loops: expected true in mini-batches");
        let width = Some(self.weight.dims()[1]);
        h.check(LAYER, csr, [width, width]);
        degree.check(LAYER, csr, [Some(1), Some(1)]);
    }

    fn of_sample(&self, csr: &Csr<B>, h: &Nodes<B>, normalised: &Normalised<B>) -> Tensor<B, 2> {
        let y = normalised.product_between(csr, h.src().clone(), h.dst().clone());
        finish(vec![y], self.bias.as_ref(), Activation::Identity)
    }

    /// The layer with a weight per entry, where the degree is a sum of weights: `w_ij / sqrt(deg_i deg_j)` in place of
    /// `1 / sqrt(deg_i deg_j)`, `deg_i = sum_j w_ij`; 0 where a degree is not positive. A loop of the graph keeps its
    /// weight (of several their mean), one that was added weighs 1.
    ///
    /// # Shapes
    /// `edge_weight` `[num_edges]` in the order of `csr`, f32.
    ///
    /// # Panics
    /// As [`GcnConv`]; and unless sources and destinations are the same nodes.
    pub fn forward_weighted(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>, edge_weight: Tensor<B, 1>) -> Tensor<B, 2> {
        let x = x.into();
        x.check(LAYER, csr, [Some(self.weight.dims()[0]), None]);
        let x = x.same(LAYER);
        check::size(LAYER, "elements of edge_weight", csr.num_edges(), edge_weight.dims()[0]);
        let weight = edge_weight.reshape([csr.num_edges(), 1]);
        let (csr, weight) = if self.add_self_loops {
            let looped = csr.with_self_loops();
            let weight = looped.edge_values(weight, LoopValue::Kept(1.0));
            (looped.csr, weight)
        } else {
            (csr.clone(), weight)
        };
        let degrees = gspmm(&csr, Message::CopyE(weight.clone()), Reduce::Sum, Strategy::Auto);
        let scale = inverse_root_of_weights(degrees);
        let weight = weight.reshape([csr.num_edges()]);
        self.projected(x, |x| {
            let scale = scale.cast(x.dtype());
            spmm(&csr, x * scale.clone(), Some(weight), SpmmConfig::default()) * scale
        })
    }

    fn projected(&self, x: Tensor<B, 2>, aggregate: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>) -> Tensor<B, 2> {
        let weight = self.weight.val();
        let [input, output] = weight.dims();
        let y = if output < input { aggregate(linear(x, weight, None)) } else { linear(aggregate(x), weight, None) };
        finish(vec![y], self.bias.as_ref(), Activation::Identity)
    }
}

impl<B: GraphBackend> GraphConv<B> for GcnConv<B> {
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, _training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.forward(csr, x)
    }
}
