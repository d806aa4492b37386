//! The known anomalies that a model takes for the likes of a node.

use serde::{Deserialize, Serialize};

use super::MOST_SIMILAR;
use super::names::Names;
use crate::graph::Features;
use crate::score::ScoredRun;

/// A known anomaly whose embedding points where that of the node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimilarPart {
    pub node: u32,
    /// `type:id`
    pub name: String,
    /// Cosine of the two embeddings.
    pub similarity: f64,
    /// 1: an anomaly.
    pub label: u8,
    /// Part of the labels that it is from.
    pub part: String,
    /// Its own score.
    pub score: Option<f32>,
}

/// Where embeddings are and which nodes are known to be anomalous.
pub(in crate::score) struct Known<'a> {
    /// One row per node.
    pub embeddings: &'a Features,
    /// Anomalies among the training labels.
    pub anomalies: Vec<u32>,
}

impl<'a> Known<'a> {
    /// The embeddings of all nodes and the anomalies of the training labels, where there are any.
    pub fn of(run: &ScoredRun, embeddings: &'a Features) -> Option<Self> {
        let train = &run.split.as_ref()?.train;
        let anomalies = train.iter().filter(|(_, label)| *label == 1).map(|&(node, _)| node).collect();
        Some(Self { embeddings, anomalies })
    }

    /// The nearest by cosine, without the node itself.
    pub fn nearest_to(&self, node: u32, names: &Names) -> Vec<SimilarPart> {
        let others = self.anomalies.iter().filter(|&&other| other != node);
        let mut nearest: Vec<(f64, u32)> = others.map(|&other| (self.cosine(node, other), other)).collect();
        nearest.retain(|(cosine, _)| cosine.is_finite());
        nearest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        nearest.truncate(MOST_SIMILAR);
        let part = |(similarity, node)| SimilarPart {
            node,
            name: names.name(node),
            similarity,
            label: 1,
            part: "train".into(),
            score: names.score(node),
        };
        nearest.into_iter().map(part).collect()
    }

    /// NaN where a row is zero.
    fn cosine(&self, a: u32, b: u32) -> f64 {
        let (a, b) = (self.embeddings.row(a as usize), self.embeddings.row(b as usize));
        let (mut product, mut squares) = (0.0, [0.0; 2]);
        for (a, b) in a.zip(b) {
            let (a, b) = (f64::from(a), f64::from(b));
            product += a * b;
            squares[0] += a * a;
            squares[1] += b * b;
        }
        product / (squares[0] * squares[1]).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Dataset, HeteroGraph};

    #[test]
    fn the_nearest_anomalies_point_the_same_way_whatever_their_length() {
        let graph = HeteroGraph::new(vec![("account".into(), 5)], Vec::new()).unwrap();
        let dataset = Dataset::new(graph, None, None, None);
        let rows = vec![3.0, 4.0, 9.0, 12.0, 1.0, 0.0, -6.0, -8.0, 0.0, 0.0];
        let embeddings = Features::from_f32(rows, 5, 2);
        let names = Names::new(&dataset, &[0.5; 5]);
        let known = Known { embeddings: &embeddings, anomalies: vec![0, 1, 2, 3, 4] };
        let found: Vec<(u32, f64)> =
            known.nearest_to(0, &names).iter().map(|part| (part.node, (part.similarity * 1e4).round() / 1e4)).collect();
        assert_eq!(found, [(1, 1.0), (2, 0.6), (3, -1.0)], "a row of zeros points nowhere");
    }
}
