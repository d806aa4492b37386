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
    /// The graph by what models read of its edges.
    graphs: RefCell<Vec<(Vec<Option<EdgeInput>>, DeviceGraph<B>)>>,
    /// The rows that were uploaded last, and in which data type.
    rows: RefCell<Option<(Features, DType, Vec<Tensor<B, 2>>)>>,
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
        if let Some((_, graph)) = graphs.iter().find(|(known, _)| known == reads) {
            return Ok(graph.clone());
        }
        let graph = DeviceGraph::one_way(&read()?, &self.device)?;
        graphs.push((reads.to_vec(), graph.clone()));
        Ok(graph)
    }

    /// Rows of all nodes, a matrix per type.
    ///
    /// # Errors
    /// What does not fit the data type.
    pub fn rows(&self, types: &[NodeType], features: &Features, dtype: DType) -> Result<Vec<Tensor<B, 2>>> {
        let mut rows = self.rows.borrow_mut();
        if let Some((.., known)) = rows.as_ref().filter(|(of, as_dtype, _)| *as_dtype == dtype && of.shares(features)) {
            return Ok(known.clone());
        }
        let uploaded = upload_features(types, features, dtype, &self.device)?;
        *rows = Some((features.clone(), dtype, uploaded.clone()));
        Ok(uploaded)
    }
}
