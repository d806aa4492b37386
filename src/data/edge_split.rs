//! Division of the edges of a graph into those that a training sees and those that it is judged on.

use crate::graph::HeteroGraph;
use crate::splitmix::mix;

/// Which pairs of nodes are held out: a hash of the seed and of both ids decides, so the choice depends neither on
/// threads nor on the order of edges, and it is the same for both directions, all relations and repetitions of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeSplit {
    key: u64,
    /// A pair is held out when its hash is below this.
    threshold: u64,
}

/// Edges of one relation, local ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldOut {
    /// Index of the relation.
    pub relation: usize,
    /// `(destination, source)`.
    pub edges: Vec<(u32, u32)>,
}

impl EdgeSplit {
    /// Holds each pair out with probability `share`; `None` when that is none.
    ///
    /// # Panics
    /// Unless `0 <= share < 1`.
    pub fn new(share: f64, seed: u64) -> Option<Self> {
        assert!((0.0..1.0).contains(&share), "share of held-out edges: expected [0, 1), got {share}");
        // 2^64; what is at least that becomes the largest integer.
        let threshold = (share * 18_446_744_073_709_551_616.0) as u64;
        // Other random choices of the same seed hash it as it is.
        let key = mix(seed ^ 0x6564_6765_2073_706c);
        (threshold > 0).then_some(Self { key, threshold })
    }

    /// Whether the edges between two nodes, given by global ids, are held out. Self-loops never are.
    pub fn holds_out(&self, a: u32, b: u32) -> bool {
        let pair = u64::from(a.min(b)) << 32 | u64::from(a.max(b));
        a != b && mix(mix(pair) ^ self.key) < self.threshold
    }

    /// The graph without what is held out. Nodes stay, those that lose all their edges too.
    pub fn training_graph(&self, graph: &HeteroGraph) -> HeteroGraph {
        graph.without_pairs(|a, b| self.holds_out(a, b))
    }

    /// The held-out edges of every primary relation that has some.
    pub fn held_out(&self, graph: &HeteroGraph) -> Vec<HeldOut> {
        let primary = graph.relations().iter().enumerate().filter(|(_, relation)| relation.primary);
        let of_relation = primary.map(|(at, relation)| {
            let [to, from] = [relation.dst, relation.src].map(|t| graph.node_types()[t].offset as u32);
            let entries = (0..relation.forward.num_rows() as u32)
                .flat_map(|dst| relation.forward.row(dst as usize).iter().map(move |&src| (dst, src)));
            HeldOut {
                relation: at,
                edges: entries.filter(|&(dst, src)| self.holds_out(to + dst, from + src)).collect(),
            }
        });
        of_relation.filter(|held_out| !held_out.edges.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::graph::{Adjacency, RelationSpec};

    /// Two types; edges among users under two names and between users and shops, repeated ones and loops among them.
    fn graphs() -> impl Strategy<Value = HeteroGraph> {
        let edges = |rows: u32, cols: u32| prop::collection::vec((0..rows, 0..cols), 0..80);
        (edges(12, 12), edges(12, 12), edges(12, 7)).prop_map(|(pays, knows, buys)| {
            let spec = |name: &str, src, dst, mut edges: Vec<(u32, u32)>, cols: usize| {
                edges.sort_unstable();
                let starts = (0..=12).map(|row| edges.partition_point(|&(dst, _)| dst < row) as u64).collect();
                let adjacency = Adjacency::new(starts, edges.iter().map(|&(_, src)| src).collect(), cols).unwrap();
                RelationSpec { name: name.into(), src, dst, stream: name.into(), primary: true, adjacency }
            };
            let relations =
                vec![spec("pays", 0, 0, pays, 12), spec("knows", 0, 0, knows, 12), spec("buys", 1, 0, buys, 7)];
            let types = vec![("user".into(), 12), ("shop".into(), 7)];
            HeteroGraph::with_reverse_relations(types, relations, |name| name == "knows").unwrap()
        })
    }

    /// Edges of every relation by global ids, with repetitions.
    fn edges_of(graph: &HeteroGraph) -> Vec<(usize, u32, u32)> {
        let offset = |t: usize| graph.node_types()[t].offset as u32;
        let of_relation = |(at, relation): (usize, &crate::graph::Relation)| {
            let rows = 0..relation.forward.num_rows() as u32;
            let entry = |dst: u32| {
                let sources = relation.forward.row(dst as usize).iter();
                sources
                    .map(move |&src| (at, offset(relation.dst) + dst, offset(relation.src) + src))
                    .collect::<Vec<_>>()
            };
            rows.flat_map(entry).collect::<Vec<_>>()
        };
        graph.relations().iter().enumerate().flat_map(of_relation).collect()
    }

    proptest! {
        #[test]
        fn every_edge_is_trained_on_or_held_out_and_no_pair_is_both(
            (graph, share, seed) in (graphs(), 0.01..0.99, any::<u64>())
        ) {
            let split = EdgeSplit::new(share, seed).unwrap();
            let (training, held_out) = (edges_of(&split.training_graph(&graph)), split.held_out(&graph));
            let types = graph.node_types();
            let held_out: Vec<(usize, u32, u32)> = held_out.iter().flat_map(|of_relation| {
                let relation = &graph.relations()[of_relation.relation];
                let [to, from] = [relation.dst, relation.src].map(|t| types[t].offset as u32);
                of_relation.edges.iter().map(move |&(dst, src)| (of_relation.relation, to + dst, from + src))
            }).collect();
            // A partition of the edges of primary relations.
            let primary = |edges: Vec<(usize, u32, u32)>| edges.into_iter().filter(|e| graph.relations()[e.0].primary);
            let mut parts: Vec<_> = primary(training.clone()).chain(held_out.iter().copied()).collect();
            parts.sort_unstable();
            let mut all: Vec<_> = primary(edges_of(&graph)).collect();
            all.sort_unstable();
            prop_assert_eq!(parts, all);
            // What is held out is in no relation of the training graph, in neither direction.
            let pair = |&(_, a, b): &(usize, u32, u32)| (a.min(b), a.max(b));
            let held_out: BTreeSet<(u32, u32)> = held_out.iter().map(pair).collect();
            prop_assert!(training.iter().all(|edge| !held_out.contains(&pair(edge))));
            // Loops stay; a relation and its reverse still belong together.
            let loops = |edges: &[(usize, u32, u32)]| edges.iter().filter(|e| e.1 == e.2).count();
            prop_assert_eq!(loops(&training), loops(&edges_of(&graph)));
            let training = split.training_graph(&graph);
            prop_assert!(training.relations().iter().all(|r| r.reverse.is_reverse_of(&r.forward)));
        }

        #[test]
        fn both_directions_have_one_fate((a, b, seed) in (any::<u32>(), any::<u32>(), any::<u64>())) {
            let split = EdgeSplit::new(0.5, seed).unwrap();
            prop_assert_eq!(split.holds_out(a, b), split.holds_out(b, a));
            prop_assert!(!split.holds_out(a, a));
        }
    }

    #[test]
    fn the_share_is_what_was_asked_for_and_seeds_choose_differently() {
        let pairs = || (0..400u32).flat_map(|a| (a + 1..400).map(move |b| (a, b)));
        let total = pairs().count() as f64;
        for share in [0.01, 0.05, 0.5, 0.95] {
            let [first, second] = [1, 2].map(|seed| EdgeSplit::new(share, seed).unwrap());
            // Five standard deviations of a binomial count.
            let near = |count: usize, share: f64| {
                (count as f64 - share * total).abs() < 5.0 * (share * (1.0 - share) * total).sqrt()
            };
            assert!(near(pairs().filter(|&(a, b)| first.holds_out(a, b)).count(), share), "{share}");
            let both = pairs().filter(|&(a, b)| first.holds_out(a, b) && second.holds_out(a, b)).count();
            assert!(near(both, share * share), "{share}: seeds depend on each other");
        }
        assert_eq!(EdgeSplit::new(0.0, 1), None);
    }

    #[test]
    fn a_node_may_lose_all_its_edges() {
        let adjacency = Adjacency::from_edges(2, 2, &[(0, 1), (1, 0)]);
        let spec = RelationSpec { name: "r".into(), src: 0, dst: 0, stream: "r".into(), primary: true, adjacency };
        let graph = HeteroGraph::new(vec![("node".into(), 2)], vec![spec]).unwrap();
        let split = (0..).find_map(|seed| EdgeSplit::new(0.5, seed).filter(|split| split.holds_out(0, 1))).unwrap();
        let training = split.training_graph(&graph);
        assert_eq!((training.num_nodes(), training.num_edges()), (2, 0));
        assert_eq!(split.held_out(&graph)[0].edges, [(0, 1), (1, 0)]);
    }
}
