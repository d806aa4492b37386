//! Which edges a classifier does not read: those between nodes that a first prediction tells to be unlike.

use ndarray::Array2;
use serde::{Deserialize, Serialize};

use crate::data::logistic::LogisticRegression;
use crate::error::Result;
use crate::graph::{Features, HeteroGraph};

/// Strength of the L2 penalty of the first prediction.
const PENALTY: f64 = 1.0;
/// Rows that are predicted at a time.
const ROWS: usize = 1 << 12;

/// The rule by which edges of a graph are cut before anything reads them. It is a part of the model, so that edges of
/// other data are cut by the same prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeCut {
    /// Share of the edges of every relation, at most, in [0, 1).
    pub share: f64,
    /// The first prediction: the probability of class 1 by the features of a node alone.
    pub prediction: LogisticRegression,
}

impl EdgeCut {
    /// The rule for a `share`, whose prediction is fitted to the training nodes `train` and their classes, 0 or 1.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when one of the classes has no training node.
    pub fn fit(share: f64, features: &Features, train: &[(u32, u32)]) -> Result<Self> {
        let nodes: Vec<usize> = train.iter().map(|&(node, _)| node as usize).collect();
        let classes: Vec<u8> = train.iter().map(|&(_, class)| class as u8).collect();
        Ok(Self { share, prediction: LogisticRegression::fit(rows(features, &nodes).view(), &classes, PENALTY)? })
    }

    /// What is left of a graph with one node type, see [`HeteroGraph::without_unlike`].
    pub fn of(&self, graph: HeteroGraph, features: &Features) -> HeteroGraph {
        let nodes: Vec<usize> = (0..features.num_rows()).collect();
        let scores = |nodes: &[usize]| self.prediction.scores(rows(features, nodes).view());
        graph.without_unlike(&nodes.chunks(ROWS).flat_map(scores).collect::<Vec<f32>>(), self.share)
    }
}

fn rows(features: &Features, nodes: &[usize]) -> Array2<f32> {
    let values = nodes.iter().flat_map(|&node| features.row(node)).collect();
    Array2::from_shape_vec((nodes.len(), features.dim()), values)
        .unwrap_or_else(|e| unreachable!("whole rows of features: {e}"))
}
