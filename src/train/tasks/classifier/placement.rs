//! Where graph, features and labels of a classification are while it learns.

use burn::backend::Autodiff;
use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, RowIndex};

use crate::error::Result;
use crate::graph::{Features, HeteroGraph};
use crate::infer::sampled_input::{SampledInput, graph_of_blocks};
use crate::loader::FeatureStore;
use crate::models::device_graph::DeviceGraph;
use crate::models::graph_part::Division;
use crate::models::node_classifier::{ClassifierPart, ClassifierSpec};
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
    pub rows: Computed<B>,
    pub train_rows: RowIndex<Autodiff<B>>,
    pub targets: Tensor<Autodiff<B>, 2, Int>,
}

/// The rows that are computed.
pub(super) enum Computed<B: GraphBackend> {
    All {
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<NodeInput<Autodiff<B>>>,
        inner_graph: DeviceGraph<B>,
        inner_x: Vec<NodeInput<B>>,
    },
    /// Those of one of several ranks.
    Part { part: ClassifierPart<Autodiff<B>>, inner: Box<ClassifierPart<B>> },
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
        let nodes = graph.num_nodes();
        let graph = DeviceGraph::<Autodiff<B>>::upload(graph, device)?;
        let graph = if spec.attention.is_some() { graph.with_values_in(dtype) } else { graph };
        let (inner_graph, inner_x) = (graph.inner(), x.iter().map(NodeInput::inner).collect());
        Ok(Self::of(Computed::All { graph, x, inner_graph, inner_x }, nodes, train.iter().copied(), device))
    }

    /// The rows of one of several ranks.
    pub fn of_rank(
        spec: &ClassifierSpec,
        graph: &HeteroGraph,
        (rank, division): (usize, Division),
        features: &Features,
        dtype: DType,
        train: &[(u32, u32)],
        device: &B::Device,
    ) -> Result<Self> {
        let (graph, places) = (graph_of_blocks(spec, graph)?, division.places());
        let part = ClassifierPart::upload(spec, &graph, (rank, division), features, dtype, device)?;
        let train: Vec<(u32, u32)> = train.iter().map(|&(node, class)| (places[node as usize], class)).collect();
        let rows = Computed::Part { inner: Box::new(part.inner()), part };
        Ok(Self::of(rows, graph.num_nodes(), train.into_iter(), device))
    }

    /// `train` has the rows of logits that are learned from, of so many, and their classes.
    fn of(rows: Computed<B>, logits: usize, train: impl Iterator<Item = (u32, u32)>, device: &B::Device) -> Self {
        let (nodes, labels): (Vec<u32>, Vec<i32>) = train.map(|(node, class)| (node, class as i32)).unzip();
        let len = labels.len();
        let train_rows = RowIndex::new(&nodes, logits, device);
        Self { rows, train_rows, targets: Tensor::from_data(TensorData::new(labels, [len, 1]), device) }
    }
}
