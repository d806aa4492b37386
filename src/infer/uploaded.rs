//! What the models of several stages read of one part of a graph, on the device once.

use std::cell::RefCell;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

use crate::error::Result;
use crate::graph::{Features, HeteroGraph, NodeType};
use crate::models::attention::EdgeInput;
use crate::models::device_graph::{DeviceGraph, upload_features};

/// Graph and rows of one part for passes that no gradient follows.
#[derive(Debug)]
pub struct Uploaded<B: Backend> {
    device: B::Device,
    graphs: RefCell<Vec<OfGraph<B>>>,
    /// Those that were uploaded last.
    rows: RefCell<Option<OfRows<B>>>,
}

/// The graph, and what its models read of edges.
#[derive(Debug)]
struct OfGraph<B: Backend> {
    reads: Vec<Option<EdgeInput>>,
    graph: DeviceGraph<B>,
}

/// Rows by type, and what they were made of.
#[derive(Debug)]
struct OfRows<B: Backend> {
    features: Features,
    dtype: DType,
    rows: Vec<Tensor<B, 2>>,
}

impl<B: Backend> Uploaded<B> {
    /// Nothing yet.
    pub fn new(device: &B::Device) -> Self {
        Self { device: device.clone(), graphs: RefCell::default(), rows: RefCell::default() }
    }

    /// The graph that `read` makes for a model that `reads` this of edges, by relation.
    ///
    /// # Errors
    /// Those of `read`; what does not fit the device.
    pub fn graph(
        &self,
        reads: &[Option<EdgeInput>],
        read: impl FnOnce() -> Result<HeteroGraph>,
    ) -> Result<DeviceGraph<B>> {
        // Nothing of any relation is nothing.
        let reads = if reads.iter().any(Option::is_some) { reads } else { &[] };
        let mut graphs = self.graphs.borrow_mut();
        if let Some(known) = graphs.iter().find(|known| known.reads == reads) {
            return Ok(known.graph.clone());
        }
        let graph = DeviceGraph::one_way(&read()?, &self.device)?;
        graphs.push(OfGraph { reads: reads.to_vec(), graph: graph.clone() });
        Ok(graph)
    }

    /// Rows of all nodes, a matrix per type.
    ///
    /// # Errors
    /// What does not fit the data type.
    pub fn rows(&self, types: &[NodeType], features: &Features, dtype: DType) -> Result<Vec<Tensor<B, 2>>> {
        let mut last = self.rows.borrow_mut();
        if let Some(known) = last.as_ref().filter(|known| known.dtype == dtype && known.features.shares(features)) {
            return Ok(known.rows.clone());
        }
        let rows = upload_features(types, features, dtype, &self.device)?;
        *last = Some(OfRows { features: features.clone(), dtype, rows: rows.clone() });
        Ok(rows)
    }
}
