//! Epochs that compute the whole graph at once.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use graphsieve_kernels::GraphBackend;

use super::loss::{GroupedLoss, LossInput, Terms, edges_of_epoch};
use crate::config::Stage2Config;
use crate::graph::HeteroGraph;
use crate::models::attention::{EpochDrop, Pass, TripleStreamGat};
use crate::models::device_graph::DeviceGraph;
use crate::models::receptive_field::ReceptiveField;
use crate::train::prefetch::Prefetch;

/// The forward passes of a training, one epoch after the other.
pub struct Epochs<B: GraphBackend> {
    graph: DeviceGraph<Autodiff<B>>,
    x: Vec<Tensor<Autodiff<B>, 2>>,
    batches: Prefetch<EpochInput>,
    config: Stage2Config,
    device: B::Device,
}

/// What the host prepares for an epoch.
struct EpochInput {
    epoch: usize,
    nodes: Option<Vec<Vec<u32>>>,
    loss: GroupedLoss,
}

impl<B: GraphBackend> Epochs<B> {
    /// Epochs from `first` on; `labels` are those of the training part.
    pub fn new(
        config: &Stage2Config,
        host: &HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        labels: &[(u32, u8)],
        first: usize,
        device: &B::Device,
    ) -> Self {
        let (settings, host, labels) = (config.clone(), host.clone(), labels.to_vec());
        let batches = Prefetch::new(first..=config.train.epochs, move |epoch| {
            let edges = edges_of_epoch(&settings, &host, epoch);
            let mut input = LossInput::new(&host, &labels, &edges, settings.train.rows);
            EpochInput { epoch, nodes: input.nodes.take(), loss: input.grouped() }
        });
        Self { graph, x, batches, config: config.clone(), device: device.clone() }
    }

    /// The loss of the next epoch.
    pub fn next(&mut self, model: &TripleStreamGat<Autodiff<B>>) -> Terms<Autodiff<B>> {
        let EpochInput { epoch, nodes, loss } = self.batches.next();
        let (config, graph, device) = (&self.config, &self.graph, &self.device);
        let drop_edge = EpochDrop { rate: config.drop_edge.rate, seed: config.seed, epoch: epoch as u32 };
        let pass =
            Pass { drop_edge: Some(drop_edge), chunk_rows: config.train.chunk_size, recompute: config.model.recompute };
        let field = ReceptiveField::of_rows(graph, nodes, |relation| pass.drop_of(graph, 1, relation), device);
        let h = model.embed(graph, &field, &self.x, pass);
        loss.of(model.logits(h), config.loss.lambda_unsup, device)
    }
}
