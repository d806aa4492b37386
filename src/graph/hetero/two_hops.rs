//! The nodes exactly two edges away, as one more relation.

use std::sync::Arc;

use rayon::prelude::*;

use super::{HeteroGraph, LoopReport, Relation};
use crate::graph::Adjacency;
use crate::splitmix::mix;

/// Paths of two edges that a row looks at for each node that it may keep.
const PATHS: usize = 32;

impl HeteroGraph {
    /// The same graph with one more relation, `NAME_two_hops`: from every node of the first relation, which joins a
    /// node type with itself, to the nodes that two of its edges lead to, and that are neither its in-neighbours nor
    /// the node itself.
    ///
    /// Where there are more than `most`, so many of them are drawn, always the same ones, from every so manyth of their
    /// paths: 32 `most` in all, so that a node beside a hub costs no more than another. 0 takes all.
    ///
    /// # Panics
    /// For a first relation between two types, and for none.
    pub fn with_two_hops(mut self, most: usize) -> Self {
        let first = &self.relations[0];
        assert!(first.src == first.dst, "with_two_hops: relation: expected one of a type with itself");
        let adjacency = &first.forward;
        let rows: Vec<Vec<u32>> =
            (0..adjacency.num_rows()).into_par_iter().map(|node| two_edges_from(adjacency, node, most)).collect();
        let mut row_ptr = vec![0u64];
        for row in &rows {
            row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len() as u64);
        }
        let forward = Adjacency::new(row_ptr, rows.concat(), adjacency.num_cols())
            .unwrap_or_else(|e| unreachable!("rows of nodes that are there: {e}"));
        let reverse = forward.reverse();
        let relation = Relation {
            name: format!("{}_two_hops", first.name),
            src: first.src,
            dst: first.dst,
            stream: format!("{}_two_hops", first.stream),
            forward: Arc::new(forward),
            reverse: Arc::new(reverse),
            primary: false,
            loops: LoopReport::default(),
            values: None,
            weights: None,
            ages: None,
        };
        self.relations.push(relation);
        self
    }
}

/// The nodes exactly two edges from `node`, ascending.
fn two_edges_from(adjacency: &Adjacency, node: usize, most: usize) -> Vec<u32> {
    let neighbours = adjacency.row(node);
    let paths: usize = neighbours.iter().map(|&j| adjacency.row(j as usize).len()).sum();
    let mut found = Vec::new();
    match most.saturating_mul(PATHS) {
        limit if most > 0 && paths > limit => {
            // Every so manyth path, from one that depends on the node.
            let number = |k: usize| {
                ((k as u128 * paths as u128 + u128::from(mix(node as u64)) % paths as u128) / limit as u128) as usize
            };
            let (mut k, mut before) = (0, 0);
            for &j in neighbours {
                let row = adjacency.row(j as usize);
                while k < limit && number(k) < before + row.len() {
                    found.push(row[number(k) - before]);
                    k += 1;
                }
                before += row.len();
            }
        }
        _ => neighbours.iter().for_each(|&j| found.extend_from_slice(adjacency.row(j as usize))),
    }
    found.sort_unstable();
    found.dedup();
    let mut near = neighbours.to_vec();
    near.sort_unstable();
    found.retain(|&other| other as usize != node && near.binary_search(&other).is_err());
    if most > 0 && found.len() > most {
        let key = |other: &u32| mix((node as u64) << 32 | u64::from(*other));
        found.select_nth_unstable_by_key(most, key);
        found.truncate(most);
        found.sort_unstable();
    }
    found
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

    fn random_edges(nodes: usize, count: usize) -> Vec<(u32, u32)> {
        (0..count as u64)
            .map(|k| [mix(2 * k), mix(2 * k + 1)].map(|n| (n % nodes as u64) as u32))
            .map(|[a, b]| (a, b))
            .collect()
    }

    #[test]
    fn all_nodes_two_edges_away_and_no_others_are_taken() {
        // A path 0 - 1 - 2 - 3, a loop, and a triangle.
        let pairs = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 4)];
        let edges: Vec<_> = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).chain([(0, 0)]).collect();
        let with = graph(8, &edges).with_two_hops(0);
        let [_, two] = with.relations() else { panic!("two relations") };
        assert_eq!((two.name.as_str(), two.src, two.dst), ("edge_two_hops", 0, 0));
        let rows: Vec<&[u32]> = (0..8).map(|node| two.forward.row(node)).collect();
        assert_eq!(rows, [&[2][..], &[3], &[0], &[1], &[], &[], &[], &[]]);

        let graph = graph(60, &random_edges(60, 200));
        let adjacency = &graph.relations()[0].forward;
        let with = graph.clone().with_two_hops(0);
        for node in 0..60 {
            let near = adjacency.row(node);
            let is_two = |other: u32| {
                other as usize != node
                    && !near.contains(&other)
                    && near.iter().any(|&j| adjacency.row(j as usize).contains(&other))
            };
            let want: Vec<u32> = (0..60).filter(|&other| is_two(other)).collect();
            assert_eq!(with.relations()[1].forward.row(node), want, "node {node}");
        }
    }

    #[test]
    fn of_many_so_many_are_drawn_evenly_and_always_the_same() {
        // A hub that all nodes are joined to: every node is two edges from every other one.
        let edges: Vec<_> = (1..4_000u32).flat_map(|node| [(0, node), (node, 0)]).collect();
        let graph = graph(4_000, &edges);
        let [once, again] = [(); 2].map(|()| graph.clone().with_two_hops(10).relations()[1].forward.clone());
        let mut taken = [0usize; 4];
        for node in 1..4_000 {
            let row = once.row(node);
            assert_eq!((row.len(), row), (10, again.row(node)));
            assert!(row.iter().all(|&other| other != 0 && other as usize != node));
            row.iter().for_each(|&other| taken[other as usize / 1_000] += 1);
        }
        assert!(taken.iter().all(|&count| (9_000..11_000).contains(&count)), "{taken:?}");
        assert!(once.row(0).is_empty());
    }
}
