//! Attention over the relations that lead to a node.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Activation, GraphBackend, linear, row_dots};

use super::check;
use super::graph_conv::finish;
use super::initial::Initial;

const LAYER: &str = "SemanticAttention";

/// The shape of a [`SemanticAttention`].
#[derive(Config, Debug)]
pub struct SemanticAttentionConfig {
    /// Width of what the relations come to, at least 1.
    pub channels: usize,
    /// Width of the hidden layer behind the scores, at least 1. Default: 128 (Wang et al.).
    #[config(default = 128)]
    pub hidden_channels: usize,
    /// What is applied to the result of every relation first. Default: ELU (Wang et al.; PyG has ReLU).
    #[config(default = "Activation::Elu")]
    pub activation: Activation,
    /// Whether every node has weights of its own; otherwise those of all nodes of a type are the same. Default: false
    /// (Wang et al.).
    #[config(default = false)]
    pub per_node: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// A weighted mean of what several relations come to, with weights from a score of each: the semantic attention of HAN.
///
/// ```text
/// z_ir = activation(x_ir)
/// w_ir = <q, tanh(z_ir W + b)>
/// b_r  = softmax_r(mean_i w_ir)       or for every node its own, b_ir = softmax_r(w_ir)
/// y_i  = sum_r b_r z_ir
/// ```
///
/// The mean is taken over the rows at hand: in a mini-batch, or over some rows of a graph, the weights are those of
/// these rows. With weights of every node's own a row depends on nothing beside itself. Softmax over the neighbours of
/// all relations together, as the heterogeneous graph transformer has it, is not what this computes.
///
/// # Shapes
/// `x` `[nodes, channels]` for every relation, all of one dtype (f32, f16 or bf16); result likewise. Parameters, scores
/// and weights are f32, and so is the sum before it is rounded to the dtype.
///
/// # Gradient
/// Of all matrices and parameters; of a single relation the parameters have none, since its weight is 1. Saved: the
/// matrices, and the hidden layer of each `[nodes, hidden_channels]`. Deterministic.
///
/// # Panics
/// If there is no matrix, or a shape does not fit; the message names the argument, what was expected and what was got.
///
/// # Source
/// Wang et al., Heterogeneous graph attention network (WWW 2019), equations 7 to 9. Weights of every node's own are
/// those of Zhang et al., Heterogeneous graph neural network (KDD 2019), equation 6, with the score of the former.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::SemanticAttentionConfig;
/// let device = Default::default();
/// let mut attention = SemanticAttentionConfig::new(1).with_hidden_channels(1).init::<Flex>(&device);
/// attention.weight = Param::from_data([[1.0]], &device);
/// attention.query = Param::from_data([[1000.0]], &device);
/// let x = |values: [[f32; 1]; 2]| Tensor::<Flex, 2>::from_data(values, &device);
/// // By far the larger mean: nearly all of the weight.
/// let y = attention.forward(vec![x([[0.0], [1.0]]), x([[3.0], [2.0]])]);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [3.0, 2.0]);
/// ```
#[derive(Module, Debug)]
pub struct SemanticAttention<B: Backend> {
    /// `W`, `[channels, hidden_channels]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `b`, `[hidden_channels]`.
    pub bias: Param<Tensor<B, 1>>,
    /// `q`, `[1, hidden_channels]`.
    pub query: Param<Tensor<B, 2>>,
    per_node: bool,
    #[module(skip)]
    activation: Activation,
}

impl SemanticAttentionConfig {
    /// The attention with initial values: Glorot for the weight and the query, zero for the bias.
    ///
    /// # Panics
    /// If a width is 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> SemanticAttention<B> {
        check::positive(LAYER, "channels", self.channels);
        check::positive(LAYER, "hidden_channels", self.hidden_channels);
        let mut initial = Initial::new(self.seed, device);
        SemanticAttention {
            weight: initial.glorot([self.channels, self.hidden_channels]),
            bias: initial.zeros(self.hidden_channels),
            query: initial.glorot([1, self.hidden_channels]),
            per_node: self.per_node,
            activation: self.activation,
        }
    }
}

impl<B: GraphBackend> SemanticAttention<B> {
    /// The weighted mean; see [`SemanticAttention`].
    pub fn forward(&self, x: Vec<Tensor<B, 2>>) -> Tensor<B, 2> {
        self.forward_with_weights(x).0
    }

    /// The weighted mean and the weights `b`, f32: `[1, relations]`, or `[nodes, relations]` where every node has its
    /// own. Without nodes there are none, `[0, relations]`.
    pub fn forward_with_weights(&self, x: Vec<Tensor<B, 2>>) -> (Tensor<B, 2>, Tensor<B, 2>) {
        assert!(!x.is_empty(), "{LAYER}: x: expected at least one matrix, got none");
        let (rows, dtype, device) = (x[0].dims()[0], x[0].dtype(), x[0].device());
        for x in &x {
            check::size(LAYER, "rows of x", rows, x.dims()[0]);
            check::size(LAYER, "columns of x", self.weight.dims()[0], x.dims()[1]);
        }
        let options = (&device, DType::F32);
        // No device takes a launch over nothing.
        if rows == 0 {
            return (x[0].clone(), Tensor::empty([0, x.len()], options));
        }
        let mut z: Vec<_> = x.into_iter().map(|x| self.activated(x)).collect();
        if z.len() == 1 {
            let sets = if self.per_node { rows } else { 1 };
            return (z.remove(0), Tensor::ones([sets, 1], options));
        }
        let scores = Tensor::cat(z.iter().map(|z| self.scores(z.clone())).collect(), 1);
        let weights = softmax(if self.per_node { scores } else { scores.mean_dim(0) }, 1);
        // Sums over rows for the gradients of the weights are f32, too.
        let weighted = |(r, z): (usize, Tensor<B, 2>)| as_dtype(z, DType::F32) * weights.clone().narrow(1, r, 1);
        let sum = z.into_iter().enumerate().map(weighted).reduce(|sum, z| sum + z);
        (as_dtype(sum.unwrap_or_else(|| unreachable!("there is a relation")), dtype), weights)
    }

    fn activated(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.activation {
            Activation::Identity => x,
            activation => finish(vec![x], None, activation),
        }
    }

    /// `<q, tanh(z W + b)>` of every row `[nodes, 1]`, f32.
    fn scores(&self, z: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = finish(vec![linear(z, self.weight.val(), None)], Some(&self.bias), Activation::Identity);
        row_dots(hidden.tanh(), self.query.val())
    }
}

fn as_dtype<B: Backend>(x: Tensor<B, 2>, dtype: DType) -> Tensor<B, 2> {
    if x.dtype() == dtype { x } else { x.cast(dtype) }
}
