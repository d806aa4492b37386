//! One convolution per relation of a typed graph.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, Csr, GraphBackend, combine};

use super::aggregation::Aggregation;
use super::check;
use super::conv::{Conv, ConvConfig};
use super::graph_conv::{GraphConv, Nodes, TrainingPass};

const LAYER: &str = "HeteroConv";

/// The shape of a [`HeteroConv`] over layers of this library.
#[derive(Config, Debug)]
pub struct HeteroConvConfig {
    /// The layer of every relation.
    pub convs: Vec<ConvConfig>,
    /// What becomes of the results that arrive at a node type. Default: sum (PyG).
    #[config(default = "Aggregation::Sum")]
    pub aggr: Aggregation,
}

/// One relation of a typed graph: edges from nodes of type `src` to nodes of type `dst`.
#[derive(Debug)]
pub struct TypedEdges<'a, B: Backend> {
    /// Rows are nodes of `dst`, columns nodes of `src`.
    pub csr: &'a Csr<B>,
    /// Position of the type of the sources.
    pub src: usize,
    /// Position of the type of the destinations.
    pub dst: usize,
}

impl<B: Backend> Clone for TypedEdges<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for TypedEdges<'_, B> {}

/// A convolution per relation; what arrives at a node type is added up, averaged, or the largest taken of each channel.
///
/// ```text
/// y_t = aggr_r conv_r(x_src(r), x_t)      over the relations r into type t
/// ```
///
/// A relation of a type with itself hands its layer [`Nodes::Same`], any other [`Nodes::Between`].
///
/// # Shapes
/// A matrix `[nodes, channels]` per node type, all of one dtype; the layers into one type agree in the width of their
/// results. A type that no relation leads to has no result.
///
/// # Gradient
/// That of the layers; of equal largest values the last relation has it. Deterministic.
///
/// # Panics
/// If there is not a relation per layer, or one names a type that is not there; and where the layers do.
///
/// # Source
/// Schlichtkrull et al., Modeling relational data with graph convolutional networks (ESWC 2018), equation 2.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::{HeteroConv, SageConvConfig, TypedEdges};
/// use graphsieve::nn::Aggregation::Sum;
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// // Two users bought one product: the relation, and its reverse.
/// let bought = Csr::<Flex>::from_host(&[0, 2], &[0, 1], 2, &device).unwrap();
/// let conv = |weight: f32| {
///     let mut conv = SageConvConfig::new(1, 1).with_bias(false).with_root_weight(false).init::<Flex>(&device);
///     conv.weight = Param::from_data([[weight]], &device);
///     conv
/// };
/// let layer = HeteroConv::new(vec![conv(1.0), conv(10.0)], Sum);
/// let relations =
///     [TypedEdges { csr: &bought, src: 0, dst: 1 }, TypedEdges { csr: &bought.reverse(), src: 1, dst: 0 }];
/// let users = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let products = Tensor::<Flex, 2>::from_data([[7.0]], &device);
/// let y = layer.forward(&relations, &[users, products], None);
/// let values = |t: usize| y[t].clone().unwrap().into_data().to_vec::<f32>().unwrap();
/// assert_eq!((values(0), values(1)), (vec![70.0, 70.0], vec![2.0]));
/// ```
#[derive(Module, Debug)]
pub struct HeteroConv<B: Backend, C: Module<B> = Conv<B>> {
    /// The layer of every relation.
    pub convs: Vec<C>,
    #[module(skip)]
    aggr: Aggregation,
    _backend: std::marker::PhantomData<B>,
}

impl HeteroConvConfig {
    /// The layers with their initial values.
    ///
    /// # Panics
    /// Where the layers do.
    pub fn init<B: GraphBackend>(&self, device: &B::Device) -> HeteroConv<B> {
        HeteroConv::new(self.convs.iter().map(|conv| conv.init(device)).collect(), self.aggr)
    }
}

impl<B: GraphBackend, C: GraphConv<B>> HeteroConv<B, C> {
    /// A layer per relation.
    pub fn new(convs: Vec<C>, aggr: Aggregation) -> Self {
        Self { convs, aggr, _backend: std::marker::PhantomData }
    }

    /// The layer; see [`HeteroConv`]. Relations come in the order of the layers, `x` has a matrix per node type.
    ///
    /// Every relation has dropout of its own: layer `l` hands relation `r` the pass for layer `2^16 l + r`.
    pub fn forward(
        &self,
        relations: &[TypedEdges<'_, B>],
        x: &[Tensor<B, 2>],
        training: Option<TrainingPass>,
    ) -> Vec<Option<Tensor<B, 2>>> {
        check::size(LAYER, "relations", self.convs.len(), relations.len());
        let mut arrived: Vec<Vec<Tensor<B, 2>>> = vec![Vec::new(); x.len()];
        for (index, (conv, &TypedEdges { csr, src, dst })) in self.convs.iter().zip(relations).enumerate() {
            for (end, t) in [("src", src), ("dst", dst)] {
                let types = x.len();
                assert!(t < types, "{LAYER}: {end} of relation {index}: expected one of {types} node types, got {t}");
            }
            let nodes = match src == dst {
                true => Nodes::Same(x[src].clone()),
                false => Nodes::Between { src: x[src].clone(), dst: x[dst].clone() },
            };
            let training = training.map(|pass| pass.layer(((pass.layer + 1) << 16) | index as u32));
            arrived[dst].push(conv.forward(csr, nodes, training));
        }
        arrived.into_iter().map(|parts| self.reduce(parts)).collect()
    }

    fn reduce(&self, parts: Vec<Tensor<B, 2>>) -> Option<Tensor<B, 2>> {
        let scale = match self.aggr {
            _ if parts.len() <= 1 => return parts.into_iter().next(),
            Aggregation::Max => return parts.into_iter().reduce(|a, b| a.max_pair(b)),
            Aggregation::Sum => 1.0,
            Aggregation::Mean => 1.0 / parts.len() as f32,
        };
        Some(combine(parts, None, scale, Activation::Identity))
    }
}
