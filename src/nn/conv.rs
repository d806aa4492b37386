//! Any layer of this library, chosen at run time.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, GraphBackend};

use super::appnp_conv::{AppnpConv, AppnpConvConfig};
use super::bw_conv::{BwConv, BwConvConfig};
use super::gat_conv::{GatConv, GatConvConfig};
use super::gatv2_conv::{GatV2Conv, GatV2ConvConfig};
use super::gcn_conv::{GcnConv, GcnConvConfig};
use super::gin_conv::{GinConv, GinConvConfig};
use super::graph_conv::{GraphConv, Nodes, TrainingPass};
use super::sage_conv::{SageConv, SageConvConfig};

/// The shape of any layer.
#[derive(Config, Debug)]
pub enum ConvConfig {
    /// See [`GcnConv`].
    Gcn(GcnConvConfig),
    /// See [`SageConv`].
    Sage(SageConvConfig),
    /// See [`GinConv`].
    Gin(GinConvConfig),
    /// See [`GatConv`].
    Gat(GatConvConfig),
    /// See [`GatV2Conv`].
    GatV2(GatV2ConvConfig),
    /// See [`AppnpConv`].
    Appnp(AppnpConvConfig),
    /// See [`BwConv`].
    Bw(BwConvConfig),
}

/// Any layer.
#[derive(Module, Debug)]
pub enum Conv<B: Backend> {
    /// See [`GcnConv`].
    Gcn(GcnConv<B>),
    /// See [`SageConv`].
    Sage(SageConv<B>),
    /// See [`GinConv`].
    Gin(GinConv<B>),
    /// See [`GatConv`].
    Gat(GatConv<B>),
    /// See [`GatV2Conv`].
    GatV2(GatV2Conv<B>),
    /// See [`AppnpConv`].
    Appnp(AppnpConv),
    /// See [`BwConv`].
    Bw(BwConv<B>),
}

impl ConvConfig {
    /// The layer with its initial values.
    ///
    /// # Panics
    /// Where the layer does.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Conv<B> {
        match self {
            ConvConfig::Gcn(config) => Conv::Gcn(config.init(device)),
            ConvConfig::Sage(config) => Conv::Sage(config.init(device)),
            ConvConfig::Gin(config) => Conv::Gin(config.init(device)),
            ConvConfig::Gat(config) => Conv::Gat(config.init(device)),
            ConvConfig::GatV2(config) => Conv::GatV2(config.init(device)),
            ConvConfig::Appnp(config) => Conv::Appnp(config.init::<B>(device)),
            ConvConfig::Bw(config) => Conv::Bw(config.init(device)),
        }
    }
}

impl<B: GraphBackend> GraphConv<B> for Conv<B> {
    fn forward(&self, csr: &Csr<B>, x: Nodes<B>, training: Option<TrainingPass>) -> Tensor<B, 2> {
        match self {
            Conv::Gcn(conv) => conv.forward(csr, x),
            Conv::Sage(conv) => conv.forward(csr, x),
            Conv::Gin(conv) => conv.forward(csr, x),
            Conv::Gat(conv) => conv.forward(csr, x, training),
            Conv::GatV2(conv) => conv.forward(csr, x, training),
            Conv::Appnp(conv) => conv.forward(csr, x),
            Conv::Bw(conv) => conv.forward(csr, x),
        }
    }

    fn forward_along(
        &self,
        csr: &Csr<B>,
        x: Nodes<B>,
        edges: Tensor<B, 2>,
        training: Option<TrainingPass>,
    ) -> Tensor<B, 2> {
        match self {
            Conv::Gcn(conv) => conv.forward_along(csr, x, edges, training),
            Conv::Sage(conv) => conv.forward_along(csr, x, edges, training),
            Conv::Gin(conv) => conv.forward_along(csr, x, edges, training),
            Conv::Gat(conv) => conv.forward_along(csr, x, edges, training),
            Conv::GatV2(conv) => conv.forward_along(csr, x, edges, training),
            Conv::Appnp(conv) => conv.forward_along(csr, x, edges, training),
            Conv::Bw(conv) => conv.forward_along(csr, x, edges, training),
        }
    }
}
