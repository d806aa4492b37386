//! Graphs of the same relations over other nodes: parts of a graph, and several of them side by side.

use std::sync::Arc;

use super::{Ages, HeteroGraph, LoopReport, NodeType, Relation};
use crate::graph::{Adjacency, EdgeMatrix};

impl HeteroGraph {
    /// A graph of the same node types and relations over so many nodes of each type, whose rows are `forward`, by
    /// relation. What edges carry and times of nodes are left out.
    ///
    /// Rows of a relation and of its reverse are their own: in a part of a graph a node at the border lacks rows, and
    /// what was drawn of one need not be among what was drawn of the other. Which relation is the reverse of which
    /// ([`reverse_of`](Self::reverse_of)) is as it is here. Takes no other thread: a small graph is made faster than
    /// one wakes up.
    ///
    /// # Panics
    /// For another number of types or relations, and for rows that do not fit the numbers of nodes.
    ///
    /// # Example
    /// ```
    /// use graphsieve::graph::{Adjacency, HeteroGraph, RelationSpec};
    /// let spec = RelationSpec::new("used", 0, 1, Adjacency::from_edges(3, 2, &[(0, 0), (1, 0), (2, 1)]));
    /// let types = vec![("card".into(), 2), ("payment".into(), 3)];
    /// let whole = HeteroGraph::with_reverse_relations(types, vec![spec], |_| false)?;
    /// // The last payment with its card, whose row was not asked for.
    /// let rows = vec![Adjacency::from_edges(1, 1, &[(0, 0)]), Adjacency::from_edges(1, 1, &[])];
    /// let part = whole.with_rows(&[1, 1], rows);
    /// assert_eq!((part.relations()[1].name.as_str(), part.num_edges()), ("used_T", 1));
    /// assert_eq!(part.reverse_of(1), Some(0));
    /// # Ok::<(), graphsieve::error::Error>(())
    /// ```
    pub fn with_rows(&self, counts: &[usize], forward: Vec<Adjacency>) -> Self {
        let [types, relations] = [self.node_types.len(), self.relations.len()];
        assert!(counts.len() == types, "with_rows: expected {types} counts, got {}", counts.len());
        assert!(forward.len() == relations, "with_rows: expected {relations} relations, got {}", forward.len());
        let relation = |(relation, forward): (&Relation, Adjacency)| {
            let [rows, columns] = [counts[relation.dst], counts[relation.src]];
            let shape = (forward.num_rows(), forward.num_cols());
            assert!(shape == (rows, columns), "with_rows: {}: expected {rows} x {columns}", relation.name);
            let is_loop = |(row, col): &(usize, u32)| *row == *col as usize;
            let in_range = if relation.src == relation.dst { edges(&forward).filter(is_loop).count() } else { 0 };
            Relation {
                name: relation.name.clone(),
                src: relation.src,
                dst: relation.dst,
                stream: relation.stream.clone(),
                reverse: Arc::new(reversed(&forward)),
                forward: Arc::new(forward),
                primary: relation.primary,
                loops: LoopReport { in_range, removed: 0 },
                values: None,
                weights: None,
                ages: None,
            }
        };
        let mut offset = 0;
        let node_type = |(of, &count): (&NodeType, &usize)| {
            offset += count;
            NodeType { name: of.name.clone(), offset: offset - count, count }
        };
        Self {
            node_types: self.node_types.iter().zip(counts).map(node_type).collect(),
            relations: self.relations.iter().zip(forward).map(relation).collect(),
            times: None,
            reverses: self.reverses.clone(),
        }
    }

    /// Graphs of the same node types and relations as one, without an edge between two of them: of every type the nodes
    /// of one behind those of another, and rows alike. Edges and nodes carry what they do in each; all of them carry
    /// it, or none does.
    ///
    /// # Panics
    /// Without a graph, and for graphs of other types or relations.
    pub fn side_by_side(graphs: &[&Self]) -> Self {
        let first = *graphs.first().unwrap_or_else(|| panic!("side_by_side: expected a graph"));
        let counts: Vec<usize> =
            (0..first.node_types.len()).map(|t| graphs.iter().map(|graph| graph.node_types[t].count).sum()).collect();
        let joined = |at: usize| joined(graphs.iter().map(|graph| &*graph.relations[at].forward));
        let mut all = first.with_rows(&counts, (0..first.relations.len()).map(joined).collect());
        for (at, relation) in all.relations.iter_mut().enumerate() {
            let rows = |of: fn(&Relation) -> Option<&EdgeMatrix>| {
                let rows: Option<Vec<&EdgeMatrix>> = graphs.iter().map(|graph| of(&graph.relations[at])).collect();
                rows.map(|rows| Arc::new(EdgeMatrix::joined(&rows)))
            };
            relation.values = rows(|relation| relation.values.as_deref());
            relation.weights = rows(|relation| relation.weights.as_deref());
            relation.ages = match &first.relations[at].ages {
                Some(Ages::Nodes) => Some(Ages::Nodes),
                _ => rows(Relation::ages_of_edges).map(Ages::Edges),
            };
        }
        // What has no times has none that are read.
        let of_graph = |t: usize, graph: &Self| -> Vec<i32> {
            let NodeType { offset, count, .. } = graph.node_types[t];
            graph.times.as_ref().map_or_else(|| vec![0; count], |times| times[offset..offset + count].to_vec())
        };
        let of_type = |t: usize| graphs.iter().flat_map(move |&graph| of_graph(t, graph));
        let timed = graphs.iter().any(|graph| graph.times.is_some());
        all.times = timed.then(|| (0..counts.len()).flat_map(of_type).collect());
        all
    }
}

/// Row and column of every edge.
fn edges(adjacency: &Adjacency) -> impl Iterator<Item = (usize, u32)> + '_ {
    (0..adjacency.num_rows()).flat_map(|row| adjacency.row(row).iter().map(move |&col| (row, col)))
}

/// The edges seen from the sources, on this thread alone; rows ascend.
fn reversed(adjacency: &Adjacency) -> Adjacency {
    let columns = adjacency.num_cols();
    let mut row_ptr = vec![0u64; columns + 1];
    edges(adjacency).for_each(|(_, col)| row_ptr[col as usize + 1] += 1);
    crate::graph::adjacency::accumulate(&mut row_ptr);
    let mut next = row_ptr.clone();
    let mut col_idx = vec![0; adjacency.num_edges()];
    for (row, col) in edges(adjacency) {
        let place = &mut next[col as usize];
        col_idx[*place as usize] = row as u32;
        *place += 1;
    }
    Adjacency::from_checked(row_ptr, col_idx, adjacency.num_rows())
}

/// Adjacencies along the diagonal of one.
fn joined<'a>(parts: impl Iterator<Item = &'a Adjacency>) -> Adjacency {
    let (mut row_ptr, mut col_idx, mut columns) = (vec![0u64], Vec::new(), 0u32);
    for part in parts {
        for row in 0..part.num_rows() {
            col_idx.extend(part.row(row).iter().map(|&col| columns + col));
            row_ptr.push(col_idx.len() as u64);
        }
        columns += part.num_cols() as u32;
    }
    Adjacency::from_checked(row_ptr, col_idx, columns as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::RelationSpec;

    #[test]
    fn graphs_side_by_side_keep_their_rows_and_what_edges_carry() {
        let relation = |adjacency| RelationSpec::new("used", 0, 1, adjacency);
        let types = vec![("card".into(), 2), ("payment".into(), 3)];
        let used = Adjacency::from_edges(3, 2, &[(0, 1), (1, 0), (2, 1)]);
        let whole = HeteroGraph::with_reverse_relations(types, vec![relation(used)], |_| false).unwrap();
        let part = |counts: [usize; 2], edges: &[(u32, u32)], values: Vec<f32>, times: Vec<i32>| {
            let rows =
                [Adjacency::from_edges(counts[1], counts[0], edges), Adjacency::from_edges(counts[0], counts[1], &[])];
            let mut part = whole.with_rows(&counts, rows.into());
            part.set_edge_values("used", Arc::new(EdgeMatrix::new(values, 1)));
            part.set_times(times.into());
            part
        };
        let a = part([1, 2], &[(0, 0), (1, 0)], vec![5.0, 6.0], vec![0, 1, 2]);
        let b = part([2, 1], &[(0, 1)], vec![7.0], vec![3, 4, 5]);
        let both = HeteroGraph::side_by_side(&[&a, &b]);
        let [used, back] = both.relations() else { panic!("two relations") };
        assert_eq!([0, 1, 2].map(|row| used.forward.row(row)), [&[0][..], &[0], &[2]]);
        assert_eq!([0, 1, 2].map(|row| used.reverse.row(row)), [&[0, 1][..], &[], &[2]]);
        assert_eq!((used.values.as_ref().unwrap().values(), back.values.is_none()), (&[5.0, 6.0, 7.0][..], true));
        assert_eq!(both.times.as_deref(), Some(&[0, 3, 4, 1, 2, 5][..]));
        assert_eq!((back.forward.num_edges(), both.reverse_of(0), both.reverse_of(1)), (0, Some(1), Some(0)));
    }
}
