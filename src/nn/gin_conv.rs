//! Graph isomorphism network: a perceptron on sums of neighbours.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Activation, Csr, GraphBackend, SelfTerm, SpmmConfig, linear, spmm};

use super::check;
use super::graph_conv::{GraphConv, Nodes, TrainingPass, finish};
use super::initial::Initial;

const LAYER: &str = "GinConv";

/// The shape of a [`GinConv`].
#[derive(Config, Debug)]
pub struct GinConvConfig {
    /// Width of the input, at least 1.
    pub in_channels: usize,
    /// Width between the two projections of the perceptron, at least 1.
    pub hidden_channels: usize,
    /// Width of the output, at least 1.
    pub out_channels: usize,
    /// What the node itself counts more than a neighbour, any number. Default: 0 (Xu et al.).
    #[config(default = 0.0)]
    pub eps: f64,
    /// Whether `eps` is learned. Default: false (PyG).
    #[config(default = false)]
    pub train_eps: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// Graph isomorphism convolution: a perceptron with one hidden layer on the sum over a node and its in-neighbours.
///
/// ```text
/// s_i = (1 + eps) x_i + sum_j x_j        y_i = relu(s_i W_1 + b_1) W_2 + b_2
/// ```
///
/// Where the hidden layer is narrower than the input, the sum is taken of `x_j W_1`, which is the same by linearity.
///
/// # Shapes
/// `x` `[nodes, in_channels]`, or sources `[num_cols, in_channels]` and destinations `[num_rows, in_channels]`; f32,
/// f16 or bf16. Result `[num_rows, out_channels]` in the same dtype. Parameters are f32.
///
/// # Gradient
/// Of `x`, the weights, the biases, and `eps` where it is learned. Saved: what is projected, and the hidden layer.
/// Deterministic.
///
/// # Panics
/// If a shape does not fit; the message names the argument, what was expected and what was got.
///
/// # Source
/// Xu et al., How powerful are graph neural networks? (ICLR 2019), equation 4.1.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::GinConvConfig;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 2], &[0, 1], 2, &device).unwrap();
/// let mut conv = GinConvConfig::new(1, 1, 1).with_eps(0.5).init::<Flex>(&device);
/// conv.weights = [[[1.0]], [[2.0]]].map(|w| Param::from_data(w, &device));
/// conv.biases = [[-2.0], [0.25]].map(|b| Param::from_data(b, &device));
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [1.0]], &device);
/// // Sums are 3.5 and 1.5.
/// assert_eq!(conv.forward(&csr, x).into_data().to_vec::<f32>().unwrap(), [3.25, 0.25]);
/// ```
#[derive(Module, Debug)]
pub struct GinConv<B: Backend> {
    /// `[in_channels, hidden_channels]` and `[hidden_channels, out_channels]`.
    pub weights: [Param<Tensor<B, 2>>; 2],
    /// `[hidden_channels]` and `[out_channels]`.
    pub biases: [Param<Tensor<B, 1>>; 2],
    /// `[1]`, where it is learned.
    pub eps: Option<Param<Tensor<B, 1>>>,
    fixed_eps: f64,
}

impl GinConvConfig {
    /// A layer with initial values, uniform within `1 / sqrt(width of the input)` of each projection.
    ///
    /// # Panics
    /// If a width is 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> GinConv<B> {
        check::positive(LAYER, "in_channels", self.in_channels);
        check::positive(LAYER, "hidden_channels", self.hidden_channels);
        check::positive(LAYER, "out_channels", self.out_channels);
        let mut initial = Initial::new(self.seed, device);
        let widths = [[self.in_channels, self.hidden_channels], [self.hidden_channels, self.out_channels]];
        GinConv {
            weights: widths.map(|[input, output]| initial.linear([input, output], input)),
            biases: widths.map(|[input, output]| initial.linear([output], input)),
            eps: self.train_eps.then(|| initial.scalar(self.eps)),
            fixed_eps: self.eps,
        }
    }
}

impl<B: GraphBackend> GinConv<B> {
    /// The layer; see [`GinConv`].
    pub fn forward(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>) -> Tensor<B, 2> {
        let x = x.into();
        let [first, second] = [self.weights[0].val(), self.weights[1].val()];
        let [input, hidden] = first.dims();
        x.check(LAYER, csr, [Some(input), Some(input)]);
        let hidden = if hidden < input {
            let project = |x| linear(x, first.clone(), None);
            let x = match x {
                Nodes::Same(x) => Nodes::Same(project(x)),
                Nodes::Between { src, dst } => Nodes::Between { src: project(src), dst: project(dst) },
            };
            self.sum(csr, x)
        } else {
            linear(self.sum(csr, x), first, None)
        };
        let hidden = finish(vec![hidden], Some(&self.biases[0]), Activation::Relu);
        finish(vec![linear(hidden, second, None)], Some(&self.biases[1]), Activation::Identity)
    }

    /// `(1 + eps) x_i + sum_j x_j`.
    fn sum(&self, csr: &Csr<B>, x: Nodes<B>) -> Tensor<B, 2> {
        let dst = x.dst().clone();
        let (h, scale) = match &self.eps {
            None => (dst.clone(), 1.0 + self.fixed_eps),
            Some(eps) => (dst.clone() * (eps.val() + 1.0).reshape([1, 1]).cast(dst.dtype()), 1.0),
        };
        let scale = Tensor::<B, 1>::full([dst.dims()[0]], scale, (&dst.device(), DType::F32));
        let own = Some(SelfTerm { h, scale, nodes: None });
        spmm(csr, x.src().clone(), None, SpmmConfig { own, ..Default::default() })
    }
}

impl<B: GraphBackend> GraphConv<B> for GinConv<B> {
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, _training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.forward(csr, x)
    }
}
