//! Pairs of nodes of a graph, whatever joins them.

use std::sync::Arc;

use super::{HeteroGraph, Relation};
use crate::graph::Adjacency;

impl HeteroGraph {
    /// The graph without the edges of some pairs of nodes: of every relation, in both directions, however often they
    /// repeat. `removed(a, b)` is asked for global ids `a < b`; self-loops stay. Relations share their arrays as
    /// before.
    pub fn without_pairs(&self, removed: impl Fn(u32, u32) -> bool + Sync) -> Self {
        self.without_pairs_beside(removed, vec![None; self.relations.len()])
    }

    /// [`without_pairs`](Self::without_pairs), but for relations that `given` has a forward and a reverse of. Their
    /// edges carry nothing of their own.
    pub(crate) fn without_pairs_beside(
        &self,
        removed: impl Fn(u32, u32) -> bool + Sync,
        given: Vec<Option<[Arc<Adjacency>; 2]>>,
    ) -> Self {
        let mut done: Vec<(Arc<Adjacency>, Arc<Adjacency>)> = Vec::new();
        let keep = |rows: usize, columns: usize| {
            let (rows, columns) = (self.node_types[rows].offset as u32, self.node_types[columns].offset as u32);
            let removed = &removed;
            move |row: u32, column: u32| {
                let (a, b) = (rows + row, columns + column);
                a == b || !removed(a.min(b), a.max(b))
            }
        };
        let mut filter = |adjacency: &Arc<Adjacency>, rows: usize, columns: usize| {
            if let Some((_, filtered)) = done.iter().find(|(whole, _)| Arc::ptr_eq(whole, adjacency)) {
                return filtered.clone();
            }
            let filtered = Arc::new(adjacency.filtered(keep(rows, columns)));
            done.push((adjacency.clone(), filtered.clone()));
            filtered
        };
        let relation = |(relation, given): (&Relation, Option<[Arc<Adjacency>; 2]>)| match given {
            Some([forward, reverse]) => Relation { forward, reverse, ..relation.clone() },
            None => Relation {
                forward: filter(&relation.forward, relation.dst, relation.src),
                reverse: filter(&relation.reverse, relation.src, relation.dst),
                ..relation.carried_where(keep(relation.dst, relation.src))
            },
        };
        let relations = self.relations.iter().zip(given).map(relation).collect();
        let (node_types, times, reverses) = (self.node_types.clone(), self.times.clone(), self.reverses.clone());
        Self { node_types, relations, times, reverses }
    }

    /// Whether an edge of any relation leads from one of two nodes, given by global ids, to the other.
    ///
    /// # Panics
    /// When an id is not below [`num_nodes`](Self::num_nodes).
    pub fn are_joined(&self, a: u32, b: u32) -> bool {
        let place = |node: u32| {
            let node_type = self.type_of(node as usize);
            (node_type, node - self.node_types[node_type].offset as u32)
        };
        let (a, b) = (place(a), place(b));
        let leads = |relation: &Relation, (to, dst): (usize, u32), (from, src): (usize, u32)| {
            if (relation.dst, relation.src) != (to, from) {
                return false;
            }
            // Rows need not be sorted; a hub has a long one, the other end rarely.
            let (into, out) = (relation.forward.row(dst as usize), relation.reverse.row(src as usize));
            if into.len() <= out.len() { into.contains(&src) } else { out.contains(&dst) }
        };
        self.relations.iter().any(|relation| leads(relation, a, b) || leads(relation, b, a))
    }

    /// By global id, which nodes are joined to a node, as [`are_joined`](Self::are_joined) says of two.
    ///
    /// # Panics
    /// When the id is not below [`num_nodes`](Self::num_nodes).
    pub(crate) fn joined_to(&self, node: u32) -> Vec<bool> {
        let own = self.type_of(node as usize);
        let local = node as usize - self.node_types[own].offset;
        let mut joined = vec![false; self.num_nodes()];
        for relation in &self.relations {
            let sides =
                [(relation.dst, relation.src, &relation.forward), (relation.src, relation.dst, &relation.reverse)];
            for (_, others, rows) in sides.into_iter().filter(|(of, ..)| *of == own) {
                let first = self.node_types[others].offset;
                rows.row(local).iter().for_each(|&other| joined[first + other as usize] = true);
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::RelationSpec;

    fn graph() -> HeteroGraph {
        let spec = RelationSpec::new;
        // User 0 buys product 1 twice; users 0 and 2 know each other in one direction, and user 1 knows itself.
        let bought = Adjacency::new(vec![0, 3, 3, 4], vec![1, 0, 1, 1], 2).unwrap();
        let knows = Adjacency::from_edges(3, 3, &[(0, 2), (1, 1), (1, 2)]);
        let types = vec![("user".into(), 3), ("product".into(), 2)];
        let relations = vec![spec("bought", 1, 0, bought), spec("knows", 0, 0, knows)];
        HeteroGraph::with_reverse_relations(types, relations, |_| false).unwrap()
    }

    #[test]
    fn a_pair_goes_from_every_relation_and_direction_with_its_repetitions() {
        let whole = graph();
        // Products are nodes 3 and 4.
        let left = whole.without_pairs(|a, b| [(0, 4), (0, 2), (1, 1)].contains(&(a, b)));
        let [bought, bought_t, knows, knows_t] = left.relations() else { panic!("four relations") };
        assert_eq!(*bought.forward, Adjacency::new(vec![0, 1, 1, 2], vec![0, 1], 2).unwrap());
        assert_eq!(*knows.forward, Adjacency::new(vec![0, 0, 2, 2], vec![1, 2], 3).unwrap());
        for (relation, reverse) in [(bought, bought_t), (knows, knows_t)] {
            assert!(
                Arc::ptr_eq(&relation.forward, &reverse.reverse) && Arc::ptr_eq(&relation.reverse, &reverse.forward)
            );
            assert!(relation.reverse.is_reverse_of(&relation.forward));
        }
        assert_eq!((left.num_nodes(), left.num_edges()), (5, 8));
        assert_eq!(whole.without_pairs(|_, _| false).relations()[0].forward, whole.relations()[0].forward);
    }

    #[test]
    fn two_nodes_are_joined_by_any_relation_in_any_direction() {
        let graph = graph();
        let joined: Vec<(u32, u32)> =
            (0..5).flat_map(|a| (0..5).map(move |b| (a, b))).filter(|&(a, b)| graph.are_joined(a, b)).collect();
        let expected = [(0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (2, 0), (2, 1), (2, 4), (3, 0), (4, 0), (4, 2)];
        assert_eq!(joined, expected);
        for a in 0..5 {
            let all: Vec<bool> = (0..5).map(|b| graph.are_joined(a, b)).collect();
            assert_eq!(graph.joined_to(a), all);
        }
    }
}
