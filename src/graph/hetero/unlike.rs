//! Edges that join unlike nodes.

use std::cmp::Ordering;
use std::sync::Arc;

use rayon::prelude::*;

use super::{HeteroGraph, Relation};
use crate::graph::Adjacency;

/// What edges are put in order by: the score, and both ends where scores are equal.
type Key = (f64, u32, u32);

impl HeteroGraph {
    /// The graph without the edges of lowest score, at most the `share` of those of every relation, which all join the
    /// only node type with itself. With `y` the probability of class 1 of every node:
    ///
    /// ```text
    /// s = Y - D^-1/2 A D^-1/2 Y      Y = [1 - y, y]      score(i, j) = s_i . s_j
    /// ```
    ///
    /// `s` is what a node differs by from its in-neighbours, the high frequencies of `Y`; degrees are as in
    /// [`BwConv`](crate::nn::BwConv). An edge, its mirror image and its repetitions have one score and share a fate.
    /// The lower ends come first where scores are equal. Self-loops stay and do not count.
    ///
    /// # Panics
    /// Unless there is one node type and `y` has a value for each of its nodes.
    ///
    /// # Source
    /// Gao et al., Addressing heterophily in graph anomaly detection: a perspective of graph spectrum (WWW 2023): the
    /// edges that the high frequencies of a class prediction tell to be heterophilic.
    pub fn without_unlike(mut self, y: &[f32], share: f64) -> Self {
        assert_eq!(self.node_types.len(), 1, "without_unlike: expected one node type");
        assert_eq!(y.len(), self.num_nodes(), "without_unlike: y: expected a value for every node");
        for relation in &mut self.relations {
            *relation = relation.without_unlike(y, share);
        }
        self
    }
}

impl Relation {
    fn without_unlike(&self, y: &[f32], share: f64) -> Self {
        let differs = differences(&self.forward, y);
        let key = |row: u32, col: u32| -> Key {
            let [[a, b], [c, d]] = [row, col].map(|node| differs[node as usize]);
            (a * c + b * d, row.min(col), row.max(col))
        };
        let of_row = |row: usize| {
            let others = self.forward.row(row).iter().filter(move |&&col| col as usize != row);
            others.map(|&col| key(row as u32, col)).collect::<Vec<Key>>()
        };
        let mut keys: Vec<Key> = (0..self.forward.num_rows()).into_par_iter().flat_map_iter(of_row).collect();
        let cut = (share * keys.len() as f64) as usize;
        if cut == 0 || cut >= keys.len() {
            return self.clone();
        }
        // The first one that stays.
        let first = *keys.select_nth_unstable_by(cut, order).1;
        let keep = |row: u32, col: u32| row == col || order(&key(row, col), &first).is_ge();
        let forward = Arc::new(self.forward.filtered(keep));
        let reverse = match self.is_symmetric() {
            true => forward.clone(),
            false => Arc::new(self.reverse.filtered(keep)),
        };
        Self { forward, reverse, ..self.carried_where(keep) }
    }
}

fn order(a: &Key, b: &Key) -> Ordering {
    a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2)))
}

/// By node: `Y - D^-1/2 A D^-1/2 Y`.
fn differences(adjacency: &Adjacency, y: &[f32]) -> Vec<[f64; 2]> {
    let scale = |node: usize| (adjacency.degree(node).max(1) as f64).sqrt().recip();
    let of = |node: usize| {
        let arrived = adjacency.row(node).iter().map(|&j| (scale(j as usize), f64::from(y[j as usize])));
        let [normal, anomalous] =
            arrived.fold([0.0, 0.0], |[normal, anomalous], (w, y)| [normal + w * (1.0 - y), anomalous + w * y]);
        let own = f64::from(y[node]);
        [1.0 - own - scale(node) * normal, own - scale(node) * anomalous]
    };
    (0..adjacency.num_rows()).into_par_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::RelationSpec;

    fn graph(nodes: usize, edges: &[(u32, u32)]) -> HeteroGraph {
        let adjacency = Adjacency::from_edges(nodes, nodes, edges);
        let spec = RelationSpec::new("edge", 0, 0, adjacency);
        HeteroGraph::new(vec![("node".into(), nodes)], vec![spec]).unwrap()
    }

    /// Two groups of four, all joined within, with loops; one edge from node 0 to node 4 joins them. In both
    /// directions.
    fn groups() -> (HeteroGraph, [f32; 8]) {
        let within = (0..8u32).flat_map(|a| (0..4).map(move |k| (a, a / 4 * 4 + k)));
        let edges: Vec<(u32, u32)> = within.chain([(0, 4), (4, 0)]).collect();
        (graph(8, &edges), [0.1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9])
    }

    #[test]
    fn what_joins_two_groups_is_cut_first_and_in_both_directions() {
        let (graph, y) = groups();
        let before = graph.relations()[0].forward.clone();
        // 26 edges between two nodes: two of them are one in thirteen.
        let cut = graph.clone().without_unlike(&y, 2.0 / 26.0 + 1e-9);
        let of = &cut.relations()[0];
        assert_eq!((of.forward.row(0), of.forward.row(4)), (&[0, 1, 2, 3][..], &[4, 5, 6, 7][..]));
        assert_eq!(of.forward.num_edges() + 2, before.num_edges());
        assert!(of.forward.is_reverse_of(&of.reverse));
        assert_eq!(of.is_symmetric(), graph.relations()[0].is_symmetric());
        // Half of a pair is none: at most the share is cut.
        for share in [0.0, 1.9 / 26.0] {
            let same = graph.clone().without_unlike(&y, share);
            assert_eq!(same.relations()[0].forward, before, "{share}");
        }
    }

    #[test]
    fn self_loops_stay_and_edges_that_lead_one_way_may_be_cut_alone() {
        let edges = [(0, 0), (0, 1), (1, 2), (2, 0), (3, 3), (3, 0)];
        let y = [0.9, 0.2, 0.1, 0.4];
        let cut = graph(4, &edges).without_unlike(&y, 0.99);
        let of = &cut.relations()[0];
        // Three of four are cut.
        assert_eq!(of.forward.num_edges(), 3);
        assert!(of.forward.row(0).contains(&0) && of.forward.row(3).contains(&3));
        assert!(of.forward.is_reverse_of(&of.reverse));
        assert_eq!(graph(3, &[]).without_unlike(&y[..3], 0.5).num_edges(), 0);
    }
}
