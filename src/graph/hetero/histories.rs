//! Relations in which nodes have spans of what came before them.

use std::sync::Arc;

use super::{HeteroGraph, Relation};
use crate::graph::Adjacency;

/// The relations of a graph that are histories, see [`Adjacency::is_history`].
pub(crate) struct Histories<'a> {
    graph: &'a HeteroGraph,
    /// By relation.
    of: Vec<Option<History<'a>>>,
}

struct History<'a> {
    /// Rows are the later nodes, entries the earlier ones.
    adjacency: &'a Arc<Adjacency>,
    reverse: &'a Arc<Adjacency>,
    /// Node types of rows and of entries.
    types: [usize; 2],
    /// Whether the relation leads from later nodes to earlier ones.
    backwards: bool,
}

impl<'a> Histories<'a> {
    pub(crate) fn of(graph: &'a HeteroGraph) -> Self {
        let of_relation = |relation: &'a Relation| {
            let (there, back) = (&relation.forward, &relation.reverse);
            let (of_there, of_back) = ([relation.dst, relation.src], [relation.src, relation.dst]);
            let forwards = History { adjacency: there, reverse: back, types: of_there, backwards: false };
            let backwards = History { adjacency: back, reverse: there, types: of_back, backwards: true };
            // Where both directions could be one, a relation and its reverse are asked in the same order.
            let mut directions = [forwards, backwards];
            if !relation.primary {
                directions.reverse();
            }
            directions.into_iter().find(|of| of.adjacency.is_history(relation.src == relation.dst))
        };
        Self { graph, of: graph.relations().iter().map(of_relation).collect() }
    }

    /// Of two nodes, given by global ids, the one that stands in a history of the other.
    pub(crate) fn earlier_of(&self, a: u32, b: u32) -> Option<u32> {
        let local = |node: u32, of: usize| {
            let of = &self.graph.node_types()[of];
            (node as usize).checked_sub(of.offset).filter(|&local| local < of.count)
        };
        let has = |later: u32, earlier: u32| {
            self.of.iter().flatten().any(|History { adjacency, types: [rows, columns], .. }| {
                match (local(later, *rows), local(earlier, *columns)) {
                    (Some(row), Some(column)) => adjacency.row(row).contains(&(column as u32)),
                    _ => false,
                }
            })
        };
        if has(a, b) { Some(b) } else { has(b, a).then_some(a) }
    }

    /// By relation, where it is a history: its edges from those earlier nodes alone that `keep` names by global id, and
    /// their reverse. Histories stay spans, and relations share their arrays as before.
    pub(crate) fn kept_of(&self, keep: impl Fn(u32) -> bool) -> Vec<Option<[Arc<Adjacency>; 2]>> {
        let mut done: Vec<(&Arc<Adjacency>, Arc<Adjacency>)> = Vec::new();
        let mut part = |History { adjacency, reverse, types, backwards }: &History<'a>| {
            let known = |whole: &Arc<Adjacency>| done.iter().find(|(of, _)| Arc::ptr_eq(of, whole));
            let (kept, back) = match (known(adjacency), known(reverse)) {
                (Some((_, kept)), Some((_, back))) => (kept.clone(), back.clone()),
                _ => {
                    let first = self.graph.node_types()[types[1]].offset as u32;
                    let column = |column: u32| Some(column).filter(|&column| keep(first + column));
                    let kept = adjacency.restricted(0..adjacency.num_rows(), column, adjacency.num_cols());
                    let (back, kept) = (Arc::new(kept.reverse()), Arc::new(kept));
                    done.extend([(*adjacency, kept.clone()), (*reverse, back.clone())]);
                    (kept, back)
                }
            };
            if *backwards { [back, kept] } else { [kept, back] }
        };
        self.of.iter().map(|history| history.as_ref().map(&mut part)).collect()
    }
}

impl Adjacency {
    /// Whether rows are spans, and no two nodes have one another in their rows: the row of a node that stands among the
    /// entries ends before its place there. `square` says whether rows and columns are the same nodes.
    fn is_history(&self, square: bool) -> bool {
        let comes_before = |(at, &col): (usize, &u32)| {
            let row = self.entries(col as usize);
            row.is_empty() || row.end <= at
        };
        self.is_spans() && (!square || self.col_idx().iter().enumerate().all(comes_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::RelationSpec;

    #[test]
    fn a_history_is_known_in_both_directions_and_stays_shared() {
        // Payments 1, 3, 0 of one card, in this order, and 2 alone.
        let earlier = Adjacency::from_spans(vec![0, 0, 3, 0], vec![2, 0, 3, 1], vec![1, 3, 0, 2], 4).unwrap();
        let spec = |name: &str, [src, dst]: [usize; 2], adjacency| RelationSpec::new(name, src, dst, adjacency);
        let paid = Adjacency::from_edges(4, 1, &[(0, 0), (1, 0), (3, 0)]);
        let types = vec![("card".into(), 1), ("payment".into(), 4)];
        let relations = vec![spec("paid", [0, 1], paid), spec("earlier", [1, 1], earlier)];
        let graph = HeteroGraph::with_reverse_relations(types, relations, |_| false).unwrap();
        let histories = Histories::of(&graph);
        // Payments are nodes 1 to 4.
        assert_eq!([(1, 4), (4, 1), (2, 4), (3, 4), (0, 1)].map(|(a, b)| histories.earlier_of(a, b)), {
            [Some(4), Some(4), Some(2), None, None]
        });
        let parts = histories.kept_of(|node| node != 2);
        let names: Vec<&str> = graph.relations().iter().map(|relation| relation.name.as_str()).collect();
        assert_eq!(names, ["paid", "paid_T", "earlier", "earlier_T"]);
        let [None, None, Some([forward, reverse]), Some([later, back])] = &parts[..] else { panic!("two histories") };
        assert!(Arc::ptr_eq(forward, back) && Arc::ptr_eq(reverse, later) && forward.is_spans());
        assert_eq!([0, 1, 2, 3].map(|row| forward.row(row)), [&[3][..], &[], &[], &[]]);
        assert!(reverse.is_reverse_of(forward) && reverse.row(3) == [0]);
    }
}
