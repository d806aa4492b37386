//! The graphs over all nodes that columns are computed over.

use std::sync::Arc;

use crate::config::{NeighbourhoodConfig, Over};
use crate::graph::{Adjacency, HeteroGraph, Relation};

/// A simple graph over all nodes in their global numbering.
pub(super) struct View {
    /// `euu.` where blocks are named after a relation; empty for the union.
    pub prefix: String,
    /// Name of its column of degrees.
    pub degree: String,
    /// Whether neighbourhood blocks are made over it, or the degree alone.
    pub in_blocks: bool,
    pub adjacency: Adjacency,
    /// Whether every edge has its mirror image.
    pub symmetric: bool,
}

impl View {
    fn of(graph: &HeteroGraph, relations: &[&Relation], self_loops: bool, prefix: String) -> Self {
        let nodes = graph.num_nodes();
        let count: usize = relations.iter().map(|relation| relation.forward.num_edges()).sum();
        let mut edges = Vec::with_capacity(count + if self_loops { nodes } else { 0 });
        for relation in relations {
            let [dst, src] = [relation.dst, relation.src].map(|t| graph.node_types()[t].offset as u32);
            let into = |i: usize| relation.forward.row(i).iter().map(move |&j| (dst + i as u32, src + j));
            edges.extend((0..relation.forward.num_rows()).flat_map(into));
        }
        if self_loops {
            edges.extend((0..nodes as u32).map(|node| (node, node)));
        }
        let adjacency = Adjacency::from_edges(nodes, nodes, &edges);
        let symmetric = adjacency.is_reverse_of(&adjacency);
        Self { degree: format!("{prefix}log_degree"), prefix, in_blocks: true, adjacency, symmetric }
    }
}

/// The graphs that a configuration asks for, the union first.
pub(super) fn views(graph: &HeteroGraph, config: &NeighbourhoodConfig) -> Vec<View> {
    let groups = groups(graph.relations());
    let of_relation = |group: &Vec<&Relation>| View::of(graph, group, config.self_loops, name(group));
    if config.over == Over::Relations {
        return groups.iter().map(of_relation).collect();
    }
    let all: Vec<&Relation> = graph.relations().iter().collect();
    let mut views = vec![View::of(graph, &all, config.self_loops, String::new())];
    match &groups[..] {
        [] => {}
        // The union is this relation.
        [group] => views[0].degree = format!("{}log_degree", name(group)),
        several if config.log_degree || config.over == Over::Both => {
            let in_blocks = config.over == Over::Both;
            views.extend(several.iter().map(|group| View { in_blocks, ..of_relation(group) }));
        }
        _ => {}
    }
    views
}

fn name(group: &[&Relation]) -> String {
    format!("{}.", group[0].name)
}

/// Every relation, with its reverse where the two lead between different types.
fn groups(relations: &[Relation]) -> Vec<Vec<&Relation>> {
    let mut groups: Vec<Vec<&Relation>> = Vec::new();
    for relation in relations {
        let is_reverse = |first: &Relation| {
            let crosses = first.src != first.dst && (first.src, first.dst) == (relation.dst, relation.src);
            crosses && Arc::ptr_eq(&first.forward, &relation.reverse)
        };
        match groups.iter_mut().find(|group| group.len() == 1 && is_reverse(group[0])) {
            Some(group) => group.push(relation),
            None => groups.push(vec![relation]),
        }
    }
    groups
}
