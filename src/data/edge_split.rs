//! Division of the edges of a graph into those that a training sees and those that it is judged on.

use std::sync::Arc;

use crate::graph::{Adjacency, HeteroGraph, Histories};
use crate::splitmix::mix;

/// Which pairs of nodes are held out: a hash of the seed and of both ids decides, so the choice depends neither on
/// threads nor on the order of edges, and it is the same for both directions, all relations and repetitions of a pair.
///
/// Of a pair that a history joins, the earlier node decides: it goes from all histories that it stands in, which stay
/// spans of what is left. Pair by pair, what is left would be a list for every row, with as many entries as edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeSplit {
    key: u64,
    /// A pair is held out when its hash is below this.
    threshold: u64,
}

/// Edges of one relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOut {
    /// Index of the relation.
    pub relation: usize,
    /// The edges, of all nodes of the relation.
    pub edges: Arc<Adjacency>,
}

impl HeldOut {
    /// All edges as `(destination, source)`, local ids, row after row. Spans can stand for more than can be listed.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let rows = 0..self.edges.num_rows() as u32;
        rows.flat_map(|dst| self.edges.row(dst as usize).iter().map(move |&src| (dst, src)))
    }
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

    /// Whether the edges between two nodes, given by global ids, are held out where no history joins them. Self-loops
    /// never are.
    pub fn holds_out(&self, a: u32, b: u32) -> bool {
        let pair = u64::from(a.min(b)) << 32 | u64::from(a.max(b));
        a != b && mix(mix(pair) ^ self.key) < self.threshold
    }

    /// Whether the edges from an earlier node, given by its global id, to those that have it in a history are held out.
    fn holds_out_earlier(&self, node: u32) -> bool {
        mix(mix(u64::from(node) << 32 | u64::from(node)) ^ self.key) < self.threshold
    }

    /// The graph without what is held out. Nodes stay, those that lose all their edges too.
    pub fn training_graph(&self, graph: &HeteroGraph) -> HeteroGraph {
        let histories = Histories::of(graph);
        let left = histories.kept_of(|node| !self.holds_out_earlier(node));
        graph.without_pairs_beside(|a, b| self.decides(&histories, a, b), left)
    }

    /// Whether the edges between two nodes, given by global ids, are held out, whatever joins them.
    fn decides(&self, histories: &Histories, a: u32, b: u32) -> bool {
        match histories.earlier_of(a, b) {
            Some(earlier) => self.holds_out_earlier(earlier),
            None => self.holds_out(a, b),
        }
    }

    /// The held-out edges of every primary relation that has some.
    pub fn held_out(&self, graph: &HeteroGraph) -> Vec<HeldOut> {
        let histories = Histories::of(graph);
        let of_histories = histories.kept_of(|node| self.holds_out_earlier(node));
        let relations = graph.relations().iter().zip(of_histories).enumerate();
        let primary = relations.filter(|(_, (relation, _))| relation.primary);
        let of_relation = primary.map(|(at, (relation, of_history))| {
            let [to, from] = [relation.dst, relation.src].map(|t| graph.node_types()[t].offset as u32);
            let is_held_out = |dst: u32, src: u32| {
                let (a, b) = (to + dst, from + src);
                a != b && self.decides(&histories, a, b)
            };
            let edges = match of_history {
                Some([forward, _]) => forward,
                None => Arc::new(relation.forward.filtered(is_held_out)),
            };
            HeldOut { relation: at, edges }
        });
        of_relation.filter(|held_out| held_out.edges.num_edges() > 0).collect()
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
                RelationSpec::new(name, src, dst, adjacency)
            };
            let relations =
                vec![spec("pays", 0, 0, pays, 12), spec("knows", 0, 0, knows, 12), spec("buys", 1, 0, buys, 7)];
            let types = vec![("user".into(), 12), ("shop".into(), 7)];
            HeteroGraph::with_reverse_relations(types, relations, |name| name == "knows").unwrap()
        })
    }

    /// Payments in the order of time. Each has its card, the earlier ones of its card, at most so many, and of its
    /// terminal as spans, and any others as lists.
    fn histories() -> impl Strategy<Value = HeteroGraph> {
        let payments = prop::collection::vec((0..3u32, 0..3u32), 1..20);
        let follows = prop::collection::vec((0..1000u32, 0..1000u32), 0..30);
        (payments, follows, 1..5usize).prop_map(|(payments, follows, most)| {
            let nodes = payments.len();
            let earlier = |key: &dyn Fn(usize) -> u32, most: usize| {
                let mut order: Vec<usize> = (0..nodes).collect();
                order.sort_by_key(|&at| (key(at), at));
                let before = |of: (u32, usize)| order.partition_point(|&at| (key(at), at) < of);
                let span = |at: usize| {
                    let end = before((key(at), at));
                    (before((key(at), 0)).max(end.saturating_sub(most)) as u64, end as u64)
                };
                let (start, end) = (0..nodes).map(span).unzip();
                Adjacency::from_spans(start, end, order.iter().map(|&at| at as u32).collect(), nodes).unwrap()
            };
            let spec = |name: &str, src, adjacency| RelationSpec::new(name, src, 1, adjacency);
            let paid: Vec<(u32, u32)> = payments.iter().zip(0..).map(|(&(card, _), at)| (at, card)).collect();
            let within = |&(a, b): &(u32, u32)| (a % nodes as u32, b % nodes as u32);
            let follows: Vec<(u32, u32)> = follows.iter().map(within).collect();
            let relations = vec![
                spec("paid", 0, Adjacency::from_edges(nodes, 3, &paid)),
                spec("card", 1, earlier(&|at| payments[at].0, most)),
                spec("terminal", 1, earlier(&|at| payments[at].1, nodes)),
                spec("follows", 1, Adjacency::from_edges(nodes, nodes, &follows)),
            ];
            let types = vec![("card".into(), 3), ("payment".into(), nodes)];
            HeteroGraph::with_reverse_relations(types, relations, |name| name == "follows").unwrap()
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
            (graph, share, seed) in (prop_oneof![graphs(), histories()], 0.01..0.99, any::<u64>())
        ) {
            let split = EdgeSplit::new(share, seed).unwrap();
            let (training, held_out) = (edges_of(&split.training_graph(&graph)), split.held_out(&graph));
            let types = graph.node_types();
            let held_out: Vec<(usize, u32, u32)> = held_out.iter().flat_map(|of_relation| {
                let relation = &graph.relations()[of_relation.relation];
                let [to, from] = [relation.dst, relation.src].map(|t| types[t].offset as u32);
                of_relation.pairs().map(move |(dst, src)| (of_relation.relation, to + dst, from + src))
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
        fn what_is_left_of_histories_are_spans_of_what_is_left_of_their_lists(
            (graph, share, seed) in (histories(), 0.01..0.99, any::<u64>())
        ) {
            let split = EdgeSplit::new(share, seed).unwrap();
            let training = split.training_graph(&graph);
            for (whole, left) in graph.relations().iter().zip(training.relations()) {
                if ["card", "terminal"].contains(&whole.name.as_str()) {
                    prop_assert!(left.forward.is_spans());
                    // Payments are the nodes from 3 on.
                    let kept = whole.forward.expanded().filtered(|_, src| !split.holds_out_earlier(3 + src));
                    prop_assert_eq!(left.forward.expanded(), kept);
                }
            }
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
        let spec = RelationSpec::new("r", 0, 0, adjacency);
        let graph = HeteroGraph::new(vec![("node".into(), 2)], vec![spec]).unwrap();
        let split = (0..).find_map(|seed| EdgeSplit::new(0.5, seed).filter(|split| split.holds_out(0, 1))).unwrap();
        let training = split.training_graph(&graph);
        assert_eq!((training.num_nodes(), training.num_edges()), (2, 0));
        assert_eq!(split.held_out(&graph)[0].pairs().collect::<Vec<_>>(), [(0, 1), (1, 0)]);
    }
}
