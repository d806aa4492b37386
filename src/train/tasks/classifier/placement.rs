//! Where graph, features and labels of a classification are while it learns.

use burn::backend::Autodiff;
use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, RowIndex};

use crate::error::Result;
use crate::graph::{Features, HeteroGraph};
use crate::infer::sampled_input::SampledInput;
use crate::loader::FeatureStore;
use crate::models::device_graph::DeviceGraph;
use crate::models::node_classifier::ClassifierSpec;
use crate::models::node_input::NodeInput;

/// Where graph and features are.
pub(super) enum Placement<B: GraphBackend> {
    /// On the device.
    Device(Box<OnDevice<B>>),
    /// On the host, from where mini-batches are loaded.
    Host { input: SampledInput, store: FeatureStore<Autodiff<B>> },
}

/// A graph that is trained at once.
pub(super) struct OnDevice<B: GraphBackend> {
    pub graph: DeviceGraph<Autodiff<B>>,
    pub x: Vec<NodeInput<Autodiff<B>>>,
    pub inner_graph: DeviceGraph<B>,
    pub inner_x: Vec<NodeInput<B>>,
    pub train_rows: RowIndex<Autodiff<B>>,
    pub targets: Tensor<Autodiff<B>, 2, Int>,
}

impl<B: GraphBackend> OnDevice<B> {
    pub fn upload(
        spec: &ClassifierSpec,
        graph: &HeteroGraph,
        features: &Features,
        dtype: DType,
        train: &[(u32, u32)],
        device: &B::Device,
    ) -> Result<Self> {
        let x = NodeInput::<Autodiff<B>>::upload(graph.node_types(), features, spec.row_normalise, dtype, device)?;
        let (nodes, labels): (Vec<u32>, Vec<i32>) = train.iter().map(|&(n, class)| (n, class as i32)).unzip();
        let len = labels.len();
        let train_rows = RowIndex::new(&nodes, graph.num_nodes(), device);
        let graph = DeviceGraph::<Autodiff<B>>::upload(graph, device)?;
        Ok(Self {
            inner_graph: graph.inner(),
            inner_x: x.iter().map(NodeInput::inner).collect(),
            graph,
            x,
            train_rows,
            targets: Tensor::from_data(TensorData::new(labels, [len, 1]), device),
        })
    }
}
