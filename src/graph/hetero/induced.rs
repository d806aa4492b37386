//! The part of a graph on some of its nodes.

use std::sync::Arc;

use super::{HeteroGraph, LoopReport, NodeType, Relation};
use crate::graph::Adjacency;

/// Stands for a node that is not kept.
const LEFT_OUT: u32 = u32::MAX;

impl HeteroGraph {
    /// The sub-graph that the nodes with `keep`, by global id, induce: all node types and relations, the kept nodes in
    /// their order, and the edges between two of them, in theirs. Relations share arrays as they do here.
    ///
    /// # Panics
    /// Unless there is a flag for every node.
    pub fn induced(&self, keep: &[bool]) -> Self {
        assert_eq!(keep.len(), self.num_nodes(), "induced: expected a flag for every node");
        // By global id: the number within the type.
        let mut place = vec![LEFT_OUT; keep.len()];
        let mut node_types = Vec::with_capacity(self.node_types.len());
        let mut offset = 0;
        for NodeType { name, offset: first, count } in &self.node_types {
            let mut kept = 0;
            for node in (*first..first + count).filter(|&node| keep[node]) {
                place[node] = kept;
                kept += 1;
            }
            node_types.push(NodeType { name: name.clone(), offset, count: kept as usize });
            offset += kept as usize;
        }
        let of_type = |t: usize| {
            let NodeType { offset, count, .. } = self.node_types[t];
            &place[offset..offset + count]
        };
        let mut done: Vec<(Arc<Adjacency>, [usize; 2], Arc<Adjacency>)> = Vec::new();
        let mut part = |whole: &Arc<Adjacency>, ends: [usize; 2]| {
            if let Some((.., part)) = done.iter().find(|(known, of, _)| Arc::ptr_eq(known, whole) && *of == ends) {
                return part.clone();
            }
            let [rows, columns] = ends.map(of_type);
            let part = Arc::new(induced(whole, rows, columns, node_types[ends[1]].count));
            done.push((whole.clone(), ends, part.clone()));
            part
        };
        let mut relations = Vec::with_capacity(self.relations.len());
        for relation in &self.relations {
            let forward = part(&relation.forward, [relation.dst, relation.src]);
            let reverse = part(&relation.reverse, [relation.src, relation.dst]);
            let in_range = if relation.src == relation.dst { forward.num_loops() } else { 0 };
            let loops = LoopReport { in_range, removed: relation.loops.removed.min(forward.num_rows()) };
            let [rows, columns] = [relation.dst, relation.src].map(of_type);
            let is_kept =
                |row: u32, column: u32| rows[row as usize] != LEFT_OUT && columns[column as usize] != LEFT_OUT;
            relations.push(Relation { forward, reverse, loops, ..relation.carried_where(is_kept) });
        }
        let kept =
            |times: &Arc<[i32]>| times.iter().zip(keep).filter(|(_, keep)| **keep).map(|(&time, _)| time).collect();
        let times = self.times.as_ref().map(kept);
        Self { node_types, relations, times, reverses: self.reverses.clone() }
    }
}

fn induced(whole: &Adjacency, rows: &[u32], columns: &[u32], num_cols: usize) -> Adjacency {
    let kept = (0..rows.len()).filter(|&row| rows[row] != LEFT_OUT);
    let column = |column: u32| Some(columns[column as usize]).filter(|&column| column != LEFT_OUT);
    whole.restricted(kept, column, num_cols)
}
