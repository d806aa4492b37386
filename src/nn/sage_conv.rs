//! GraphSAGE: neighbours and the node itself, projected apart.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{
    Activation, Csr, GraphBackend, Message, SpmmConfig, Strategy, gspmm, linear, normalise_rows, spmm,
};

use super::aggregation::Aggregation;
use super::check;
use super::graph_conv::{GraphConv, Nodes, TrainingPass, finish};
use super::initial::Initial;
use super::normalisation::sums_of_weights;

const LAYER: &str = "SageConv";

/// The shape of a [`SageConv`].
#[derive(Config, Debug)]
pub struct SageConvConfig {
    /// Width of the sources, at least 1.
    pub in_channels: usize,
    /// Width of the output, at least 1.
    pub out_channels: usize,
    /// Width of the destinations. Default: that of the sources.
    pub dst_channels: Option<usize>,
    /// What becomes of the in-neighbours. Default: mean (Hamilton et al.).
    #[config(default = "Aggregation::Mean")]
    pub aggr: Aggregation,
    /// Whether the rows of the result have length one. Default: false (PyG).
    #[config(default = false)]
    pub normalize: bool,
    /// Whether the node itself takes part. Default: true (PyG).
    #[config(default = true)]
    pub root_weight: bool,
    /// Whether a bias is learned. Default: true (PyG).
    #[config(default = true)]
    pub bias: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// GraphSAGE: the mean (sum, maximum) of the in-neighbours and the node itself, each with a projection of its own.
///
/// ```text
/// y_i = reduce_j x_j W_l + x_i W_r + b      over j in N(i); divided by its length where asked for
/// ```
///
/// Where the output is narrower than the input, sums and means are taken of `x_j W_l`, which is the same by linearity.
/// A node without in-neighbours has 0 in place of the reduction.
///
/// # Shapes
/// `x` `[nodes, in_channels]`, or sources `[num_cols, in_channels]` and destinations `[num_rows, dst_channels]`; f32,
/// f16 or bf16. Result `[num_rows, out_channels]` in the same dtype. Parameters are f32.
///
/// # Gradient
/// Of `x`, both weights and the bias. Saved: `x`, what is projected, and the winners of a maximum. Deterministic.
///
/// # Panics
/// If a shape does not fit; the message names the argument, what was expected and what was got.
///
/// # Source
/// Hamilton et al., Inductive representation learning on large graphs (NeurIPS 2017), algorithm 1 with the two halves
/// of the weight for a concatenation.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::SageConvConfig;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 2], &[0, 1], 2, &device).unwrap();
/// let mut conv = SageConvConfig::new(1, 1).with_bias(false).init::<Flex>(&device);
/// conv.weight = Param::from_data([[1.0]], &device);
/// conv.weight_root = Some(Param::from_data([[10.0]], &device));
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// assert_eq!(conv.forward(&csr, x).into_data().to_vec::<f32>().unwrap(), [12.0, 30.0]);
/// ```
#[derive(Module, Debug)]
pub struct SageConv<B: Backend> {
    /// `W_l`, `[in_channels, out_channels]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `W_r`, `[dst_channels, out_channels]`.
    pub weight_root: Option<Param<Tensor<B, 2>>>,
    /// `[out_channels]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    dst_channels: usize,
    #[module(skip)]
    aggr: Aggregation,
    normalize: bool,
}

impl SageConvConfig {
    /// A layer with initial values, uniform within `1 / sqrt(width of the input)`.
    ///
    /// # Panics
    /// If a width is 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> SageConv<B> {
        let dst_channels = self.dst_channels.unwrap_or(self.in_channels);
        check::positive(LAYER, "in_channels", self.in_channels);
        check::positive(LAYER, "dst_channels", dst_channels);
        check::positive(LAYER, "out_channels", self.out_channels);
        let mut initial = Initial::new(self.seed, device);
        let mut weight = |width: usize| initial.linear([width, self.out_channels], width);
        SageConv {
            weight: weight(self.in_channels),
            weight_root: self.root_weight.then(|| weight(dst_channels)),
            bias: self.bias.then(|| initial.linear([self.out_channels], self.in_channels)),
            dst_channels,
            aggr: self.aggr,
            normalize: self.normalize,
        }
    }
}

impl<B: GraphBackend> SageConv<B> {
    /// The layer; see [`SageConv`].
    pub fn forward(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>) -> Tensor<B, 2> {
        let x = x.into();
        let weight = self.weight.val();
        let [input, output] = weight.dims();
        x.check(LAYER, csr, [Some(input), Some(self.dst_channels)]);
        let reduce = |x| gspmm(csr, Message::CopyU(x), self.aggr.into(), Strategy::Auto);
        let neighbours = if output < input && self.aggr != Aggregation::Max {
            reduce(linear(x.src().clone(), weight, None))
        } else {
            linear(reduce(x.src().clone()), weight, None)
        };
        let own = self.weight_root.as_ref().map(|weight| linear(x.dst().clone(), weight.val(), None));
        let parts = [Some(neighbours), own].into_iter().flatten().collect();
        let y = finish(parts, self.bias.as_ref(), Activation::Identity);
        if !self.normalize {
            return y;
        }
        let dtype = y.dtype();
        normalise_rows(y).cast(dtype)
    }

    /// The layer after the projection of its neighbours, for a caller with another way to `h = x W`: their sum or mean,
    /// and the bias. Nothing is added of the destinations themselves.
    ///
    /// # Shapes
    /// `h` `[num_cols, out_channels]`; result `[num_rows, out_channels]`.
    ///
    /// # Panics
    /// If a shape does not fit, or the layer has a root weight, takes the maximum, or normalises.
    pub fn propagate(&self, csr: &Csr<B>, h: Tensor<B, 2>) -> Tensor<B, 2> {
        self.check_projected(csr, &h);
        let y = gspmm(csr, Message::CopyU(h), self.aggr.into(), Strategy::Auto);
        finish(vec![y], self.bias.as_ref(), Activation::Identity)
    }

    /// The same with a weight per entry: `sum_j w_ij h_j`, of a mean over `sum_j w_ij`; 0 where that is 0.
    ///
    /// # Shapes
    /// As [`SageConv::propagate`]; `edge_weight` `[num_edges]` in the order of `csr`, f32, at least 0.
    ///
    /// # Gradient
    /// Of `h` and the bias.
    ///
    /// # Panics
    /// As [`SageConv::propagate`].
    pub fn propagate_weighted(&self, csr: &Csr<B>, h: Tensor<B, 2>, edge_weight: Tensor<B, 1>) -> Tensor<B, 2> {
        self.check_projected(csr, &h);
        check::size(LAYER, "elements of edge_weight", csr.num_edges(), edge_weight.dims()[0]);
        let dst_scale = (self.aggr == Aggregation::Mean).then(|| {
            let sums = sums_of_weights(csr, edge_weight.clone());
            let none = sums.clone().lower_equal_elem(0.0);
            sums.mask_fill(none.clone(), 1.0).recip().mask_fill(none, 0.0)
        });
        let y = spmm(csr, h, Some(edge_weight), SpmmConfig { dst_scale, ..Default::default() });
        finish(vec![y], self.bias.as_ref(), Activation::Identity)
    }

    fn check_projected(&self, csr: &Csr<B>, h: &Tensor<B, 2>) {
        let plain = self.weight_root.is_none() && self.aggr != Aggregation::Max && !self.normalize;
        assert!(plain, "{LAYER}: expected a sum or a mean of neighbours alone in propagate");
        check::size(LAYER, "rows of h", csr.num_cols(), h.dims()[0]);
        check::size(LAYER, "columns of h", self.weight.dims()[1], h.dims()[1]);
    }
}

impl<B: GraphBackend> GraphConv<B> for SageConv<B> {
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, _training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.forward(csr, x)
    }
}
