//! Feature importance.

use super::booster::Booster;
use super::forest::Forest;
use super::tree::Tree;

/// What is added up per feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Gains of its splits.
    Gain,
    /// Number of its splits.
    Split,
}

/// Importance of `features` features over `trees`; splits without gain do not count.
pub fn importance(trees: &[Tree], features: usize, kind: Importance) -> Vec<f64> {
    let mut sums = vec![0.0; features];
    for node in trees.iter().flat_map(|tree| &tree.nodes).filter(|node| node.gain > 0.0) {
        sums[node.feature as usize] += if kind == Importance::Gain { node.gain } else { 1.0 };
    }
    sums
}

impl Booster {
    /// Importance per feature.
    pub fn importance(&self, kind: Importance) -> Vec<f64> {
        importance(&self.trees, self.features(), kind)
    }
}

impl Forest {
    /// Importance per feature.
    pub fn importance(&self, kind: Importance) -> Vec<f64> {
        importance(&self.trees, self.features(), kind)
    }
}
