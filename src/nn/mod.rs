//! Graph layers as Burn modules, on the sparse operators of [`graphsieve_kernels`].
//!
//! | layer | what a node becomes | nodes of two kinds |
//! |---|---|---|
//! | [`GcnConv`] | normalised sum over itself and its in-neighbours, projected | yes |
//! | [`SageConv`] | mean, sum or maximum of its in-neighbours and itself, projected apart | yes |
//! | [`GinConv`] | a perceptron on the sum over itself and its in-neighbours | yes |
//! | [`GatConv`] | weighted mean of its in-neighbours; the weights add up scores of both ends | yes |
//! | [`GatV2Conv`] | the same with scores of both ends together | yes |
//! | [`AppnpConv`] | personalised PageRank of its features | no |
//! | [`BwConv`] | its features behind band-pass filters of the graph | no |
//! | [`HeteroConv`] | what a layer per relation makes of it, reduced or weighed by [`SemanticAttention`] | yes |
//! | [`RgcnConv`] | means of its in-neighbours by relation, and itself, projected apart and added up | yes |
//!
//! [`global_pool`] makes one row per graph of the rows of its nodes. A layer is made by its config from a seed
//! (`GcnConvConfig::new(64, 16).with_seed(1).init(&device)`) and reads a [`Csr`](graphsieve_kernels::Csr), whose rows
//! are destinations and whose entries are sources, and [`Nodes`]: all but the last two are [`GraphConv`]s. Those two
//! read the relations of a typed graph ([`TypedEdges`]). Parameters are f32; the result has the dtype of the features.

mod aggregation;
mod appnp_conv;
mod attention;
mod block;
mod bw_conv;
mod check;
mod conv;
mod dropout;
mod edge_features;
mod gat_conv;
mod gatv2_conv;
mod gcn_conv;
mod gin_conv;
mod graph_conv;
mod hetero_conv;
mod initial;
mod normalisation;
mod pool;
mod rgcn_conv;
mod sage_conv;
mod semantic_attention;
mod typed_edges;

pub use aggregation::Aggregation;
pub use appnp_conv::{AppnpConv, AppnpConvConfig};
pub(crate) use attention::{by_head, folded, projected_by_head};
pub use block::{
    Block, KeptRows, RelationEdges, ages_between, edge_ages, edge_values, edge_weights, inner_age, node_times,
};
pub use bw_conv::{BwConv, BwConvConfig};
pub use conv::{Conv, ConvConfig};
pub(crate) use edge_features::of_dtype;
pub use edge_features::{EdgeFeatures, TimeEncoder};
pub use gat_conv::{GatConv, GatConvConfig};
pub use gatv2_conv::{GatV2Conv, GatV2ConvConfig};
pub use gcn_conv::{GcnConv, GcnConvConfig};
pub use gin_conv::{GinConv, GinConvConfig};
pub use graph_conv::{GraphConv, Nodes, TrainingPass};
pub use hetero_conv::{HeteroConv, HeteroConvConfig, RelationAggregation};
pub(crate) use initial::even;
pub use pool::global_pool;
pub use rgcn_conv::{RelationWeights, RgcnConv, RgcnConvConfig};
pub use sage_conv::{SageConv, SageConvConfig};
pub use semantic_attention::{SemanticAttention, SemanticAttentionConfig};
pub use typed_edges::TypedEdges;
