//! What every layer has in common: the nodes that it reads, the randomness of a pass, and the trait of all of them.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, Csr, GraphBackend, combine};

use super::check;

/// Features of the nodes that a layer reads.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::Nodes;
/// let x = Tensor::<Flex, 2>::zeros([4, 2], &Default::default());
/// let same: Nodes<Flex> = x.clone().into();
/// let between: Nodes<Flex> = (x, Tensor::zeros([3, 5], &Default::default())).into();
/// assert_eq!((same.dst().dims(), between.dst().dims()), ([4, 2], [3, 5]));
/// ```
#[derive(Clone, Debug)]
pub enum Nodes<B: Backend> {
    /// Sources and destinations are the same nodes: `[nodes, channels]`.
    Same(Tensor<B, 2>),
    /// A relation between two kinds of nodes, or from the neighbours of a mini-batch to its seeds.
    Between {
        /// `[num_cols, channels]`.
        src: Tensor<B, 2>,
        /// `[num_rows, channels]`.
        dst: Tensor<B, 2>,
    },
}

impl<B: Backend> From<Tensor<B, 2>> for Nodes<B> {
    fn from(x: Tensor<B, 2>) -> Self {
        Nodes::Same(x)
    }
}

impl<B: Backend> From<(Tensor<B, 2>, Tensor<B, 2>)> for Nodes<B> {
    fn from((src, dst): (Tensor<B, 2>, Tensor<B, 2>)) -> Self {
        Nodes::Between { src, dst }
    }
}

impl<B: Backend> Nodes<B> {
    /// Features of the sources.
    pub fn src(&self) -> &Tensor<B, 2> {
        match self {
            Nodes::Same(x) => x,
            Nodes::Between { src, .. } => src,
        }
    }

    /// Features of the destinations.
    pub fn dst(&self) -> &Tensor<B, 2> {
        match self {
            Nodes::Same(x) => x,
            Nodes::Between { dst, .. } => dst,
        }
    }

    /// Whether sources and destinations are the same nodes.
    pub fn is_same(&self) -> bool {
        matches!(self, Nodes::Same(_))
    }

    /// Panics unless there is a row per node of `csr` and the widths are these; `None` takes any.
    #[track_caller]
    pub(super) fn check(&self, layer: &str, csr: &Csr<B>, channels: [Option<usize>; 2]) {
        let width = |argument: &str, channels: Option<usize>, x: &Tensor<B, 2>| {
            if let Some(channels) = channels {
                check::size(layer, &format!("columns of {argument}"), channels, x.dims()[1]);
            }
        };
        match self {
            Nodes::Same(x) => {
                check::size(layer, "rows of csr between the same nodes", csr.num_cols(), csr.num_rows());
                check::size(layer, "rows of x", csr.num_cols(), x.dims()[0]);
                channels.into_iter().for_each(|channels| width("x", channels, x));
            }
            Nodes::Between { src, dst } => {
                check::size(layer, "rows of src", csr.num_cols(), src.dims()[0]);
                check::size(layer, "rows of dst", csr.num_rows(), dst.dims()[0]);
                width("src", channels[0], src);
                width("dst", channels[1], dst);
            }
        }
    }

    /// The only nodes, for a layer that knows no others.
    #[track_caller]
    pub(super) fn same(self, layer: &str) -> Tensor<B, 2> {
        match self {
            Nodes::Same(x) => x,
            Nodes::Between { .. } => {
                panic!("{layer}: x: expected sources and destinations to be the same nodes, got Nodes::Between")
            }
        }
    }
}

/// Randomness of one training pass (dropout); evaluation passes `None`.
///
/// # Example
/// ```
/// use graphsieve::nn::TrainingPass;
/// let pass = TrainingPass { seed: 42, step: 7, layer: 0, first: 0 };
/// assert_eq!(pass.layer(1).layer, 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TrainingPass {
    /// Seed of the run.
    pub seed: u64,
    /// Counts optimiser steps: each has masks of its own.
    pub step: u32,
    /// Tells layers apart that have masks of one shape.
    pub layer: u32,
    /// The number of the first destination, where a part of them is computed that follow each other; 0 otherwise.
    pub first: u32,
}

impl TrainingPass {
    /// The same pass for layer `layer`.
    pub fn layer(self, layer: u32) -> Self {
        Self { layer, ..self }
    }

    /// The same pass over destinations from number `first` on: they drop what they drop among all.
    pub fn from_row(self, first: usize) -> Self {
        Self { first: first as u32, ..self }
    }
}

/// A layer that turns features of sources into features of destinations.
pub trait GraphConv<B: GraphBackend>: Module<B> {
    /// Features of the destinations `[csr.num_rows(), width of the layer]`.
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, training: Option<TrainingPass>) -> Tensor<B, 2>;

    /// The same along edges that have features, `[num_edges, channels]` in the order of `csr`.
    ///
    /// # Panics
    /// If the layer reads none: all but [`GatConv`](super::GatConv) and [`GatV2Conv`](super::GatV2Conv) with
    /// `edge_channels`.
    fn forward_along(
        &self,
        _csr: &Csr<B>,
        _x: Nodes<B>,
        edges: Tensor<B, 2>,
        _training: Option<TrainingPass>,
    ) -> Tensor<B, 2> {
        panic!("GraphConv: edges: expected none for a layer that reads none, got features {:?}", edges.dims())
    }
}

/// The sum of matrices and the bias.
pub(super) fn finish<B: GraphBackend>(
    parts: Vec<Tensor<B, 2>>,
    bias: Option<&Param<Tensor<B, 1>>>,
    activation: Activation,
) -> Tensor<B, 2> {
    combine(parts, bias.map(Param::val), 1.0, activation)
}
