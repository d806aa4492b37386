//! Beta wavelets: band-pass filters of the spectrum of a graph.

use std::convert::Infallible;

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{Activation, Csr, GraphBackend, linear};

use super::check;
use super::graph_conv::{GraphConv, Nodes, TrainingPass, finish};
use super::initial::Initial;
use super::normalisation::{Isolated, Normalised};
use crate::features::coefficients;

const LAYER: &str = "BwConv";

/// The shape of a [`BwConv`].
#[derive(Config, Debug)]
pub struct BwConvConfig {
    /// Width of the input, at least 1.
    pub in_channels: usize,
    /// Width of the output, at least 1.
    pub out_channels: usize,
    /// Order `C` of the wavelets: there are `C + 1` of them, each of which reads `C` edges far. Default: 2 (Tang et
    /// al.).
    #[config(default = 2)]
    pub order: usize,
    /// Whether a bias is learned. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// Beta wavelet convolution: the results of `C + 1` band-pass filters side by side, projected. Anomalies show in high
/// frequencies, which the low-pass filter of [`GcnConv`](super::GcnConv) removes.
///
/// ```text
/// F_p = (L/2)^p (I - L/2)^(C-p) / (2 B(p+1, C-p+1))      L = I - D^-1/2 A D^-1/2      B: the beta function
/// y   = [F_0 x, F_1 x, ..., F_C x] W + b
/// ```
///
/// Degrees are in-degrees on both sides, and a node without in-edges counts as one of degree 1. All filters are
/// polynomials of one matrix `P = D^-1/2 A D^-1/2`, so that `y = sum_k P^k x M_k + b`, where `M_k` mixes the blocks of
/// `W`: `C` sparse products in all, of the narrower of input and output, and no filtered copy of `x` is stored.
///
/// # Shapes
/// `x` `[nodes, in_channels]` in f32, f16 or bf16; result `[nodes, out_channels]` in the same dtype. Parameters are
/// f32.
///
/// # Gradient
/// Of `x`, `W` and `b`. Saved: `x`, or where it is narrower than the output its `C` products. Deterministic.
///
/// # Panics
/// If a shape does not fit, or sources and destinations are not the same nodes.
///
/// # Source
/// Tang et al., Rethinking graph neural networks for anomaly detection (ICML 2022), equations 7 and 9.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::BwConvConfig;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 1, 2], &[1, 0], 2, &device).unwrap();
/// let mut conv = BwConvConfig::new(1, 1).with_order(1).init::<Flex>(&device);
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// conv.weight = Param::from_data([[1.0], [0.0]], &device); // the low-pass filter I - L/2 = (I + P)/2
/// assert_eq!(conv.forward(&csr, x.clone()).into_data().to_vec::<f32>().unwrap(), [2.0, 2.0]);
/// conv.weight = Param::from_data([[0.0], [1.0]], &device); // the high-pass filter L/2 = (I - P)/2
/// assert_eq!(conv.forward(&csr, x).into_data().to_vec::<f32>().unwrap(), [-1.0, 1.0]);
/// ```
#[derive(Module, Debug)]
pub struct BwConv<B: Backend> {
    /// `[(order + 1) * in_channels, out_channels]`: a block of rows per filter.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out_channels]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    order: usize,
}

impl BwConvConfig {
    /// A layer with initial values: uniform within `1 / sqrt(rows)` for the weight, zero for the bias.
    ///
    /// # Panics
    /// If a width is 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BwConv<B> {
        check::positive(LAYER, "in_channels", self.in_channels);
        check::positive(LAYER, "out_channels", self.out_channels);
        let rows = (self.order + 1) * self.in_channels;
        let mut initial = Initial::new(self.seed, device);
        BwConv {
            weight: initial.linear([rows, self.out_channels], rows),
            bias: self.bias.then(|| initial.zeros(self.out_channels)),
            order: self.order,
        }
    }
}

impl<B: GraphBackend> BwConv<B> {
    /// The layer; see [`BwConv`].
    pub fn forward(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>) -> Tensor<B, 2> {
        let x = x.into();
        x.check(LAYER, csr, [Some(self.weight.dims()[0] / (self.order + 1)), None]);
        let normalised = Normalised::of_entries(csr, Isolated::One);
        let Ok(y) = self.filtered(x.same(LAYER), |y, plus| {
            Ok::<_, Infallible>(match plus {
                None => normalised.product(csr, y, 1.0),
                Some(h) => normalised.product_plus(csr, y, h),
            })
        });
        y
    }

    /// The layer of some of the nodes, whose rows are `x`: `csr` has the edges into them from all nodes, whose
    /// in-degrees in the whole graph are `degrees`. `gathered` gives the rows of all nodes for those of these.
    ///
    /// # Shapes
    /// `x` `[num_rows, in_channels]`, `degrees` `[num_cols]`, f32; result `[num_rows, out_channels]`.
    ///
    /// # Errors
    /// Those of `gathered`.
    pub fn forward_part<E>(
        &self,
        csr: &Csr<B>,
        degrees: Tensor<B, 1>,
        x: Tensor<B, 2>,
        mut gathered: impl FnMut(Tensor<B, 2>) -> Result<Tensor<B, 2>, E>,
    ) -> Result<Tensor<B, 2>, E> {
        let normalised = Normalised::of_part(csr, degrees, Isolated::One);
        self.filtered(x, |y, plus| {
            let all = gathered(y)?;
            Ok(match plus {
                None => normalised.product(csr, all, 1.0),
                Some(h) => normalised.product_plus(csr, all, h),
            })
        })
    }

    /// The layer of rows `x`, where `product` makes `P y` of such rows `y`, and adds rows to it where it is given some.
    fn filtered<E>(
        &self,
        x: Tensor<B, 2>,
        mut product: impl FnMut(Tensor<B, 2>, Option<Tensor<B, 2>>) -> Result<Tensor<B, 2>, E>,
    ) -> Result<Tensor<B, 2>, E> {
        let filters = self.order + 1;
        let [rows, output] = self.weight.val().dims();
        let input = rows / filters;
        let mixed = self.mixed([input, output]);
        let y = if output <= input {
            // Horner's rule: one product with `x` gives all summands.
            let columns = mixed.swap_dims(0, 1).reshape([input, filters * output]);
            let parts = linear(x, columns, None);
            let part = |k: usize| parts.clone().narrow(1, k * output, output);
            let last = part(self.order);
            vec![(0..self.order).rev().try_fold(last, |y, k| product(y, Some(part(k))))?]
        } else {
            let project = |k, x| linear(x, mixed.clone().narrow(0, k, 1).reshape([input, output]), None);
            let mut parts = vec![project(0, x.clone())];
            let mut power = x;
            for k in 1..filters {
                power = product(power, None)?;
                parts.push(project(k, power.clone()));
            }
            parts
        };
        Ok(finish(y, self.bias.as_ref(), Activation::Identity))
    }

    /// `M_k`, one behind the other.
    fn mixed(&self, [input, output]: [usize; 2]) -> Tensor<B, 3> {
        let weight = self.weight.val();
        let filters = self.order + 1;
        let values: Vec<f32> = coefficients(self.order).into_iter().flatten().map(|c| c as f32).collect();
        let coefficients = Tensor::<B, 2>::from_data(TensorData::new(values, [filters, filters]), &weight.device());
        linear(coefficients, weight.reshape([filters, input * output]), None).reshape([filters, input, output])
    }
}

impl<B: GraphBackend> GraphConv<B> for BwConv<B> {
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, _training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.forward(csr, x)
    }
}
