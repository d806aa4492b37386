//! Personalised PageRank on features.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, Csr, GraphBackend};

use super::graph_conv::{GraphConv, Nodes, TrainingPass, finish};
use super::normalisation::{Isolated, Normalised};

const LAYER: &str = "AppnpConv";

/// The settings of an [`AppnpConv`].
#[derive(Config, Debug)]
pub struct AppnpConvConfig {
    /// Steps of propagation: how many edges away a node still counts. At least 1 to do anything; the paper has 10.
    pub k: usize,
    /// Teleport probability, in [0, 1]: the share that every step takes from the input. The paper has 0.1.
    pub alpha: f64,
    /// Whether every node counts as its own neighbour once. Default: true (PyG).
    #[config(default = true)]
    pub add_self_loops: bool,
}

/// Propagation by personalised PageRank, without parameters: after a network on single nodes it brings in the
/// neighbourhood.
///
/// ```text
/// z_0 = x        z_{k+1} = (1 - alpha) D^-1/2 A D^-1/2 z_k + alpha x        y = z_K
/// ```
///
/// The normalisation is that of [`GcnConv`](super::GcnConv).
///
/// # Shapes
/// `x` `[nodes, channels]` in f32, f16 or bf16; result likewise.
///
/// # Gradient
/// Of `x`: the same recursion with the reverse adjacency. Nothing is saved. Deterministic.
///
/// # Panics
/// If a shape does not fit, or sources and destinations are not the same nodes.
///
/// # Source
/// Gasteiger et al., Predict then propagate: graph neural networks meet personalized PageRank (ICLR 2019), equation 4.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::AppnpConvConfig;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 1, 2], &[1, 0], 2, &device).unwrap();
/// let conv = AppnpConvConfig::new(1, 0.5).init::<Flex>(&device);
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let y = conv.forward(&csr, x).into_data().to_vec::<f32>().unwrap();
/// // Half of the mean of both, half of the input.
/// assert!((y[0] - 1.5).abs() < 1e-6 && (y[1] - 2.5).abs() < 1e-6);
/// ```
#[derive(Module, Clone, Debug)]
pub struct AppnpConv {
    k: usize,
    alpha: f64,
    add_self_loops: bool,
}

impl AppnpConvConfig {
    /// The layer.
    ///
    /// # Panics
    /// If `alpha` is outside [0, 1].
    pub fn init<B: Backend>(&self, _device: &B::Device) -> AppnpConv {
        assert!((0.0..=1.0).contains(&self.alpha), "{LAYER}: alpha: expected [0, 1], got {}", self.alpha);
        AppnpConv { k: self.k, alpha: self.alpha, add_self_loops: self.add_self_loops }
    }
}

impl AppnpConv {
    /// The layer; see [`AppnpConv`].
    pub fn forward<B: GraphBackend>(&self, csr: &Csr<B>, x: impl Into<Nodes<B>>) -> Tensor<B, 2> {
        let x = x.into();
        x.check(LAYER, csr, [None, None]);
        let x = x.same(LAYER);
        let normalised = match self.add_self_loops {
            true => Normalised::with_self_loops(csr),
            false => Normalised::of_entries(csr, Isolated::Zero),
        };
        let teleport = x.clone() * self.alpha;
        (0..self.k).fold(x, |z, _| {
            let spread = normalised.product(csr, z, 1.0 - self.alpha);
            finish(vec![spread, teleport.clone()], None, Activation::Identity)
        })
    }
}

impl<B: GraphBackend> GraphConv<B> for AppnpConv {
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, _training: Option<TrainingPass>) -> Tensor<B, 2> {
        self.forward(csr, x)
    }
}
