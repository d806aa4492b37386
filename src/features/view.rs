//! The graphs over all nodes that columns are computed over.

use super::spans::{places, unite};
use crate::config::{NeighbourhoodConfig, Over};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, HeteroGraph, Relation, Rows};

/// A simple graph over all nodes in their global numbering.
///
/// An edge of it is in `plus` once more often than in `minus`. A graph of lists is one adjacency; rows that are spans
/// stay so, each relation for itself, and what two of them have in common is taken off again.
pub(super) struct View {
    /// `euu.` where blocks are named after a relation; empty for the union.
    pub prefix: String,
    /// Name of its column of degrees.
    pub degree: String,
    /// Whether neighbourhood blocks are made over it, or the degree alone.
    pub in_blocks: bool,
    /// At least one; every edge is in some.
    pub plus: Vec<Adjacency>,
    pub minus: Vec<Adjacency>,
}

/// Most edges of rows that share entries, where every row has to have a list of its own.
const MOST_EXPANDED: usize = i32::MAX as usize;

impl View {
    fn of(graph: &HeteroGraph, relations: &[&Relation], self_loops: bool, prefix: String) -> Result<Self> {
        let (mut shared, mut listed) = (Vec::new(), Vec::new());
        for relation in relations {
            match spans(graph, relation) {
                Some(adjacency) => shared.push(adjacency),
                None => listed.push(*relation),
            }
        }
        let places: Vec<Vec<usize>> = shared.iter().map(places).collect();
        let stands_in = |(adjacency, places): (&Adjacency, &Vec<usize>), row: u32, col: u32| {
            adjacency.entries(row as usize).contains(&places[col as usize])
        };
        let [plus, minus] = match unite(&shared).filter(|_| !shared.is_empty()) {
            Some([mut plus, minus]) => {
                let is_new = |row: u32, col: u32| !shared.iter().zip(&places).any(|of| stands_in(of, row, col));
                let others = simple(graph, &listed, self_loops)?.filtered(is_new);
                if others.num_edges() > 0 {
                    plus.insert(0, others);
                }
                [plus, minus]
            }
            None => [vec![simple(graph, relations, self_loops)?], Vec::new()],
        };
        Ok(Self { degree: format!("{prefix}log_degree"), prefix, in_blocks: true, plus, minus })
    }

    /// Number of in-neighbours of a node.
    pub fn num_neighbours(&self, node: usize) -> usize {
        let sum = |of: &[Adjacency]| of.iter().map(|adjacency| adjacency.degree(node)).sum::<usize>();
        sum(&self.plus) - sum(&self.minus)
    }

    /// Replaces what is in `neighbours` by the in-neighbours of a node, each once.
    pub fn neighbours(&self, node: usize, neighbours: &mut Vec<u32>) {
        neighbours.clear();
        self.plus.iter().for_each(|adjacency| neighbours.extend(adjacency.row(node)));
        if !self.minus.is_empty() {
            neighbours.sort_unstable();
            neighbours.dedup();
        }
    }
}

/// A relation whose rows are spans, over all nodes; none where an entry stands twice, which a simple graph does not
/// have. Rows keep their order, that of time.
fn spans(graph: &HeteroGraph, relation: &Relation) -> Option<Adjacency> {
    let Rows::Spans { start: own_start, end: own_end } = relation.forward.rows() else { return None };
    let [dst, src] = [relation.dst, relation.src].map(|t| graph.node_types()[t].offset);
    let mut seen = vec![false; relation.forward.num_cols()];
    let is_repeated = |&col: &u32| std::mem::replace(&mut seen[col as usize], true);
    if relation.forward.col_idx().iter().any(is_repeated) {
        return None;
    }
    let (mut start, mut end) = (vec![0; graph.num_nodes()], vec![0; graph.num_nodes()]);
    start[dst..dst + own_start.len()].copy_from_slice(own_start);
    end[dst..dst + own_end.len()].copy_from_slice(&own_end);
    let col_idx = relation.forward.col_idx().iter().map(|&col| src as u32 + col).collect();
    Some(Adjacency::from_checked_spans(start, &end, col_idx, graph.num_nodes()))
}

/// All edges of some relations, each once and in the order of ids.
fn simple(graph: &HeteroGraph, relations: &[&Relation], self_loops: bool) -> Result<Adjacency> {
    let nodes = graph.num_nodes();
    let count: usize = relations.iter().map(|relation| relation.forward.num_edges()).sum();
    if count > MOST_EXPANDED && relations.iter().any(|relation| relation.forward.is_spans()) {
        return Err(Error::Data {
            what: "edges of one graph for neighbourhood features".into(),
            expected: format!("at most {MOST_EXPANDED} where events share their histories"),
            found: count.to_string(),
            help: "set features.over = \"relations\", or import with a shorter history".into(),
        });
    }
    let mut edges = Vec::with_capacity(count + if self_loops { nodes } else { 0 });
    for relation in relations {
        let [dst, src] = [relation.dst, relation.src].map(|t| graph.node_types()[t].offset as u32);
        let into = |i: usize| relation.forward.row(i).iter().map(move |&j| (dst + i as u32, src + j));
        edges.extend((0..relation.forward.num_rows()).flat_map(into));
    }
    if self_loops {
        edges.extend((0..nodes as u32).map(|node| (node, node)));
    }
    Ok(Adjacency::from_edges(nodes, nodes, &edges))
}

/// The graphs that a configuration asks for, the union first; none where no column looks at an edge.
///
/// # Errors
/// [`Error::Data`] for more edges of shared histories than can be listed, where they cannot stay shared.
pub(super) fn views(graph: &HeteroGraph, config: &NeighbourhoodConfig) -> Result<Vec<View>> {
    if !config.looks_at_neighbours() {
        return Ok(Vec::new());
    }
    let groups = groups(graph);
    let of_relation = |group: &Vec<&Relation>| View::of(graph, group, config.self_loops, name(group));
    if config.over == Over::Relations {
        return groups.iter().map(of_relation).collect();
    }
    let all: Vec<&Relation> = graph.relations().iter().collect();
    let mut views = vec![View::of(graph, &all, config.self_loops, String::new())?];
    match &groups[..] {
        [] => {}
        // The union is this relation.
        [group] => views[0].degree = format!("{}log_degree", name(group)),
        several if config.log_degree || config.over == Over::Both => {
            let in_blocks = config.over == Over::Both;
            for group in several {
                views.push(View { in_blocks, ..of_relation(group)? });
            }
        }
        _ => {}
    }
    Ok(views)
}

fn name(group: &[&Relation]) -> String {
    format!("{}.", group[0].name)
}

/// Every relation, with its reverse where the two lead between different types.
fn groups(graph: &HeteroGraph) -> Vec<Vec<&Relation>> {
    let relations = graph.relations();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, relation) in relations.iter().enumerate() {
        let is_reverse = |first: usize| {
            let Relation { src, dst, .. } = relations[first];
            src != dst && (src, dst) == (relation.dst, relation.src) && graph.reverse_of(at) == Some(first)
        };
        match groups.iter_mut().find(|group| group.len() == 1 && is_reverse(group[0])) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups.into_iter().map(|group| group.into_iter().map(|at| &relations[at]).collect()).collect()
}
