//! A network of Stage 2 that was read once, over any graph with its node types, streams and values of edges.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;

use super::attention::{for_graph, graph_for, host_scores, target_scores};
use super::layerwise::{HostScored, Replica};
use super::uploaded::Uploaded;
use crate::config::Stage2Config;
use crate::error::Result;
use crate::graph::{Dataset, Features, HeteroGraph, NodeType};
use crate::live::{Layer, Part};
use crate::models::attention::{AttentionSpec, Frozen, TripleStreamGat};
use crate::models::device_graph::{DeviceGraph, upload_features};
use crate::models::parameters::{HostTensor, Parameters};
use crate::models::precision::dtype_on;
use crate::run::known_labels::KnownLabels;

/// A network on a device, with how its rows are stored there.
#[derive(Debug)]
pub struct Stage2<B: GraphBackend> {
    spec: AttentionSpec,
    model: TripleStreamGat<B>,
    frozen: Frozen<B>,
    storage: DType,
    chunk_rows: Option<usize>,
    device: B::Device,
}

impl<B: GraphBackend> Stage2<B> {
    /// The network of a checkpoint, whose file is named in errors, for graphs like `graph`, as [`graph_for`] gives it.
    /// A bare checkpoint does not tell how it was `trained`.
    ///
    /// # Errors
    /// A checkpoint that is damaged or does not fit the graph; a device that does not compute in its precision.
    pub fn new(
        (spec, tensors, file): (&AttentionSpec, &BTreeMap<String, HostTensor>, &Path),
        graph: &HeteroGraph,
        trained: Option<&Stage2Config>,
        device: &B::Device,
    ) -> Result<Self> {
        let spec = for_graph(spec, graph, file)?;
        let model = TripleStreamGat::new(&spec, &mut Parameters::from_tensors(tensors, file, device))?;
        let storage = match trained {
            Some(config) => dtype_on::<B>(config.train.precision, device)?,
            None => DType::F32,
        };
        let chunk_rows = trained.and_then(|config| config.train.chunk_size);
        let frozen = model.freeze(&graph.streams_into());
        Ok(Self { spec, model, frozen, storage, chunk_rows, device: device.clone() })
    }

    /// Its shape, in the order of the graph.
    pub fn spec(&self) -> &AttentionSpec {
        &self.spec
    }

    /// How rows are stored.
    pub fn storage(&self) -> DType {
        self.storage
    }

    /// The network with its device, for layers one by one.
    pub fn replica(&self) -> Replica<TripleStreamGat<B>, B::Device> {
        (self.model.clone(), self.device.clone())
    }

    /// The graph of some data as the layers read it.
    ///
    /// # Errors
    /// As for [`graph_for`].
    pub fn graph_of(&self, dataset: &Dataset) -> Result<HeteroGraph> {
        graph_for(&self.spec, dataset)
    }

    /// Scores of all nodes of a graph, the whole of it at once; a model that reads labels has those that are `known`.
    ///
    /// # Errors
    /// What does not fit the device, or a device that failed.
    pub fn scores(
        &self,
        graph: &HeteroGraph,
        features: &Features,
        known: Option<&KnownLabels>,
        embeddings: bool,
    ) -> Result<HostScored> {
        let x = self.input(graph.node_types(), features)?;
        let graph = DeviceGraph::upload(graph, &self.device)?;
        host_scores(&self.model, &graph, &x, known, None, self.chunk_rows, embeddings)
    }

    /// The same of the targets of a part alone, in their order, from `features` of all its nodes; of all others no more
    /// is computed than they need, and rows behind the first layer are kept under `layer`.
    ///
    /// # Errors
    /// As for [`scores`](Self::scores) and [`graph_of`](Self::graph_of).
    pub fn target_scores(
        &self,
        (part, features): (&Part, &Features),
        known: Option<&KnownLabels>,
        (layer, embeddings): (Layer, bool),
        uploaded: &Uploaded<B>,
    ) -> Result<HostScored> {
        let graph = uploaded.graph(&self.spec.edges, || self.graph_of(&part.dataset))?;
        let x = uploaded.rows(&graph.node_types, features, self.storage)?;
        target_scores((&self.model, &self.frozen), &graph, &x, known, part, (layer, embeddings))
    }

    fn input(&self, types: &[NodeType], features: &Features) -> Result<Vec<Tensor<B, 2>>> {
        upload_features(types, features, self.storage, &self.device)
    }
}
