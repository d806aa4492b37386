//! Nodes that stay together when labels are divided by group.

use crate::graph::{Dataset, SplitRule};

/// Groups of nodes, by union and find.
#[derive(Debug)]
pub struct Groups {
    parent: Vec<u32>,
}

impl Groups {
    /// Every node alone.
    pub fn new(nodes: usize) -> Self {
        Self { parent: (0..nodes as u32).collect() }
    }

    /// Of data that are split by group: nodes that are connected through nodes of the types that the split names. None
    /// for other data, and where what it names are no nodes, such as the rings of `graphsieve synth`.
    pub fn of_split(dataset: &Dataset) -> Option<Self> {
        let SplitRule::Group { groups: names, .. } = &dataset.split.as_ref()?.rule else { return None };
        let (graph, types) = (&dataset.graph, dataset.graph.node_types());
        let is_group = |of: usize| names.contains(&types[of].name);
        if !(0..types.len()).any(is_group) {
            return None;
        }
        let mut groups = Self::new(graph.num_nodes());
        for relation in graph.relations().iter().filter(|of| is_group(of.src) || is_group(of.dst)) {
            let (src, dst) = (types[relation.src].offset as u32, types[relation.dst].offset as u32);
            for row in 0..types[relation.dst].count {
                relation.forward.row(row).iter().for_each(|&source| groups.join(src + source, dst + row as u32));
            }
        }
        Some(groups)
    }

    /// The smallest member of a node's group.
    pub fn of(&mut self, node: u32) -> u32 {
        let mut root = node;
        while self.parent[root as usize] != root {
            root = self.parent[root as usize];
        }
        let mut at = node;
        while self.parent[at as usize] != root {
            at = std::mem::replace(&mut self.parent[at as usize], root);
        }
        root
    }

    /// Makes the groups of two nodes one.
    pub fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.of(a), self.of(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Adjacency, HeteroGraph, RelationSpec, StoredSplit};

    #[test]
    fn groups_are_connected_nodes() {
        let mut groups = Groups::new(6);
        [(4, 1), (2, 4), (5, 3)].into_iter().for_each(|(a, b)| groups.join(a, b));
        assert_eq!((0..6).map(|node| groups.of(node)).collect::<Vec<_>>(), [0, 1, 1, 3, 1, 3]);
    }

    #[test]
    fn groups_of_a_split_are_connected_through_nodes_of_its_types_alone() {
        // Users 0 to 3 and cards 4, 5: 0 and 2 have card 4, 3 has card 5; 0 and 1 know each other.
        let relation = |name: &str, src, rows, edges: &[(u32, u32)]| {
            RelationSpec::new(name, src, 0, Adjacency::from_edges(rows, if src == 0 { 4 } else { 2 }, edges))
        };
        let relations =
            vec![relation("knows", 0, 4, &[(0, 1), (1, 0)]), relation("has", 1, 4, &[(0, 0), (2, 0), (3, 1)])];
        let graph = HeteroGraph::new(vec![("user".into(), 4), ("card".into(), 2)], relations).unwrap();
        let mut dataset = Dataset::new(graph, None, None, None);
        assert!(Groups::of_split(&dataset).is_none());
        let rule = SplitRule::Group { groups: vec!["card".into()], seed: 1, train: 0.6, validation: 0.2, test: 0.2 };
        dataset.split = Some(StoredSplit::of_parts(rule, 6, [&[], &[], &[]]));
        let mut groups = Groups::of_split(&dataset).unwrap();
        assert_eq!((0..6).map(|node| groups.of(node)).collect::<Vec<_>>(), [0, 1, 0, 3, 0, 3]);
        let rule = SplitRule::Group { groups: vec!["ring".into()], seed: 1, train: 0.6, validation: 0.2, test: 0.2 };
        dataset.split = Some(StoredSplit::of_parts(rule, 6, [&[], &[], &[]]));
        assert!(Groups::of_split(&dataset).is_none());
    }
}
