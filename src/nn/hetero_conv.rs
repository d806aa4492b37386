//! One convolution per relation of a typed graph.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, GraphBackend, combine};
use serde::{Deserialize, Serialize};

use super::aggregation::Aggregation;
use super::check;
use super::conv::{Conv, ConvConfig};
use super::graph_conv::{GraphConv, Nodes, TrainingPass};
use super::semantic_attention::{SemanticAttention, SemanticAttentionConfig};
use super::typed_edges::TypedEdges;

const LAYER: &str = "HeteroConv";

/// The shape of a [`HeteroConv`] over layers of this library.
#[derive(Config, Debug)]
pub struct HeteroConvConfig {
    /// The layer of every relation.
    pub convs: Vec<ConvConfig>,
    /// What becomes of the results that arrive at a node type. Default: sum (PyG).
    #[config(default = "RelationAggregation::Fixed(Aggregation::Sum)")]
    pub aggr: RelationAggregation,
}

/// What becomes of the results of several relations, as a setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RelationAggregation {
    /// All of them count the same.
    Fixed(Aggregation),
    /// A weighted mean with learned weights, see [`SemanticAttention`].
    Attention(SemanticAttentionConfig),
}

impl From<Aggregation> for RelationAggregation {
    fn from(aggregation: Aggregation) -> Self {
        RelationAggregation::Fixed(aggregation)
    }
}

impl From<SemanticAttentionConfig> for RelationAggregation {
    fn from(config: SemanticAttentionConfig) -> Self {
        RelationAggregation::Attention(config)
    }
}

/// A convolution per relation; what arrives at a node type is added up, averaged, the largest taken of each channel, or
/// the mean weighted by attention over relations.
///
/// ```text
/// y_t = aggr_r conv_r(x_src(r), x_t)      over the relations r into type t
/// ```
///
/// Of [`GatConv`](super::GatConv)s and [`SemanticAttention`], which all node types share, this is the heterogeneous
/// attention network HAN, with a projection for every relation. [`RgcnConv`](super::RgcnConv) is the sum of projected
/// means with projections that relations share.
///
/// A relation of a type with itself hands its layer [`Nodes::Same`], any other [`Nodes::Between`].
///
/// # Shapes
/// A matrix `[nodes, channels]` per node type, all of one dtype; the layers into one type agree in the width of their
/// results, and with attention all layers. A type that no relation leads to has no result.
///
/// # Gradient
/// That of the layers, and of the attention; of equal largest values the last relation has it. Deterministic.
///
/// # Panics
/// If there is not a relation per layer, or one names a type that is not there; and where the layers do.
///
/// # Source
/// Schlichtkrull et al., Modeling relational data with graph convolutional networks (ESWC 2018), equation 2; for the
/// attention Wang et al., Heterogeneous graph attention network (WWW 2019).
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
    /// What weighs the relations, where that is attention.
    pub attention: Option<SemanticAttention<B>>,
    /// What becomes of them otherwise.
    #[module(skip)]
    aggr: Aggregation,
}

impl HeteroConvConfig {
    /// The layers with their initial values.
    ///
    /// # Panics
    /// Where the layers do.
    pub fn init<B: GraphBackend>(&self, device: &B::Device) -> HeteroConv<B> {
        let convs = self.convs.iter().map(|conv| conv.init(device)).collect();
        match &self.aggr {
            RelationAggregation::Fixed(aggr) => HeteroConv::new(convs, *aggr),
            RelationAggregation::Attention(config) => HeteroConv::with_attention(convs, config.init(device)),
        }
    }
}

impl<B: GraphBackend, C: GraphConv<B>> HeteroConv<B, C> {
    /// A layer per relation, all of which count the same.
    pub fn new(convs: Vec<C>, aggr: Aggregation) -> Self {
        Self { convs, attention: None, aggr }
    }

    /// A layer per relation, weighed by attention.
    pub fn with_attention(convs: Vec<C>, attention: SemanticAttention<B>) -> Self {
        Self { convs, attention: Some(attention), aggr: Aggregation::Mean }
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
        self.forward_with_edges(relations, &vec![None; relations.len()], x, training)
    }

    /// The layer where edges of some relations have features, `[num_edges, channels]` in the order of its adjacency:
    /// those relations whose layers read some, [`GatConv`](super::GatConv)s and [`GatV2Conv`](super::GatV2Conv)s.
    ///
    /// # Panics
    /// As [`HeteroConv`], and unless there is an entry per relation, and where a layer reads no features.
    pub fn forward_with_edges(
        &self,
        relations: &[TypedEdges<'_, B>],
        edges: &[Option<Tensor<B, 2>>],
        x: &[Tensor<B, 2>],
        training: Option<TrainingPass>,
    ) -> Vec<Option<Tensor<B, 2>>> {
        check::size(LAYER, "relations", self.convs.len(), relations.len());
        check::size(LAYER, "relations of edges", relations.len(), edges.len());
        let mut arrived: Vec<Vec<Tensor<B, 2>>> = vec![Vec::new(); x.len()];
        for (index, ((conv, relation), edges)) in self.convs.iter().zip(relations).zip(edges).enumerate() {
            relation.check(LAYER, index, x.len());
            let &TypedEdges { csr, src, dst } = relation;
            let nodes = match src == dst {
                true => Nodes::Same(x[src].clone()),
                false => Nodes::Between { src: x[src].clone(), dst: x[dst].clone() },
            };
            let training = training.map(|pass| pass.layer(((pass.layer + 1) << 16) | index as u32));
            arrived[dst].push(match edges {
                Some(edges) => conv.forward_along(csr, nodes, edges.clone(), training),
                None => conv.forward(csr, nodes, training),
            });
        }
        arrived.into_iter().map(|parts| self.reduce(parts)).collect()
    }

    fn reduce(&self, parts: Vec<Tensor<B, 2>>) -> Option<Tensor<B, 2>> {
        if let Some(attention) = self.attention.as_ref().filter(|_| !parts.is_empty()) {
            return Some(attention.forward(parts));
        }
        let scale = match self.aggr {
            _ if parts.len() <= 1 => return parts.into_iter().next(),
            Aggregation::Max => return parts.into_iter().reduce(|a, b| a.max_pair(b)),
            Aggregation::Sum => 1.0,
            Aggregation::Mean => 1.0 / parts.len() as f32,
        };
        Some(combine(parts, None, scale, Activation::Identity))
    }
}
