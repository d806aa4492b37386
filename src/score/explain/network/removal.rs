//! The logit of a node without the edges between it and another one, computed anew where that changes anything.

use super::edges::Cut;
use super::ego::{Before, Ego, Level};
use super::parameters::Head;

impl Ego<'_> {
    /// The logit without any edge between the node and `other`.
    pub fn logit_without(&self, other: u32, head: &Head) -> f64 {
        let edges = self.view.edges;
        let cut = edges.without([self.node, other]);
        let mut below: Option<Level> = None;
        for (layer, nodes) in self.recomputed(&cut).into_iter().enumerate() {
            let before = match self.before(layer) {
                Before::Hidden { level, .. } => Before::Hidden { level, changed: below.as_ref() },
                features => features,
            };
            let level = self.view.level(layer, nodes, before, Some(&cut));
            if layer + 1 == self.levels.len() {
                return head.logit(before.row(self.node), level.row(self.node));
            }
            below = Some(level);
        }
        unreachable!("a network has a layer")
    }

    /// The rows of every layer that a cut changes and the next layer still reads.
    fn recomputed(&self, cut: &Cut) -> Vec<Vec<u32>> {
        let (edges, layers) = (self.view.edges, self.levels.len());
        let at_once = edges.changed_by(cut);
        // The rows of each layer that may change: those, and all that read a row which changed before.
        let mut changed: Vec<Vec<u32>> = Vec::with_capacity(layers);
        for (level, layer) in self.levels[..layers - 1].iter().zip(&self.view.network.layers) {
            let below = changed.last().map_or(&[][..], |below| below);
            let mut nodes = below.to_vec();
            if layer.meets() {
                nodes.extend(at_once.iter().copied().chain(below.iter().flat_map(|&node| edges.destinations(node))));
            }
            nodes.retain(|&node| level.position(node).is_some());
            nodes.sort_unstable();
            nodes.dedup();
            changed.push(nodes);
        }
        // Of these, what is read.
        let mut read = vec![vec![self.node]];
        for (layer, changed) in changed.iter().enumerate().rev() {
            let mut nodes = self.view.sources(layer + 1, &read[read.len() - 1], Some(cut));
            nodes.retain(|source| changed.binary_search(source).is_ok());
            read.push(nodes);
        }
        read.reverse();
        read
    }
}
