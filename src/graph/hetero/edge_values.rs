//! Values of edges in a graph: those of a relation, and the same seen from the other end.

use std::sync::Arc;

use super::{Ages, HeteroGraph, Relation};
use crate::graph::{Adjacency, EdgeMatrix};

impl HeteroGraph {
    /// Gives the edges of a relation values, a row per entry of its `forward`.
    ///
    /// # Panics
    /// For a relation that there is not, whose rows are spans, or that has another number of edges.
    pub fn set_edge_values(&mut self, relation: &str, values: Arc<EdgeMatrix>) {
        let of = self.relations.iter_mut().find(|known| known.name == relation);
        let Some(of) = of else { panic!("set_edge_values: no relation `{relation}`") };
        assert!(!of.forward.is_spans(), "set_edge_values: rows of `{relation}` are spans, which share entries");
        let edges = of.forward.num_edges();
        assert!(values.num_entries() == edges, "set_edge_values: expected {edges} rows, got {}", values.num_entries());
        of.values = Some(values);
    }

    /// Gives the reverse of every relation with values, where it is of the same stream and has none, the same values in
    /// its own order.
    pub fn mirror_edge_values(&mut self) {
        for at in 0..self.relations.len() {
            if self.relations[at].values.is_none() {
                self.relations[at].values = self.mirrored(at, |of| of.values.as_deref()).map(Arc::new);
            }
        }
    }

    /// What `rows` has of the edges of the relation of the same stream that relation `at` is the reverse of, in the
    /// order of `at`.
    pub(super) fn mirrored(&self, at: usize, rows: fn(&Relation) -> Option<&EdgeMatrix>) -> Option<EdgeMatrix> {
        let own = &self.relations[at];
        let is_partner = |other: &&Relation| {
            other.stream == own.stream && rows(other).is_some() && Arc::ptr_eq(&other.reverse, &own.forward)
        };
        let partner = self.relations.iter().filter(|_| !own.is_symmetric()).find(is_partner)?;
        Some(rows(partner)?.picked(partner.forward.entries_in(&own.forward)))
    }

    /// Whether any relation has values.
    pub fn has_edge_values(&self) -> bool {
        self.relations.iter().any(|relation| relation.values.is_some())
    }
}

impl Relation {
    /// Values and ages of the edges that `keep` says of, by row and column.
    pub(super) fn carried_where(
        &self,
        keep: impl Fn(u32, u32) -> bool + Copy,
    ) -> (Option<Arc<EdgeMatrix>>, Option<Ages>) {
        let kept = |rows: &Arc<EdgeMatrix>| Arc::new(rows.picked(self.forward.entries_where(keep)));
        let ages = self.ages.as_ref().map(|ages| match ages {
            Ages::Nodes => Ages::Nodes,
            Ages::Edges(ages) => Ages::Edges(kept(ages)),
        });
        (self.values.as_ref().map(kept), ages)
    }
}

impl Adjacency {
    /// By entry of `reverse`, which holds the edges of `self` the other way round, the entry here that is the same edge.
    /// Of edges between the same two nodes the first here is the first there.
    fn entries_in(&self, reverse: &Adjacency) -> Vec<usize> {
        // The edges of every column, by row and in the order of entries: a counting sort keeps them so.
        let mut next: Vec<u64> = vec![0; self.num_cols() + 1];
        for &col in self.col_idx() {
            next[col as usize + 1] += 1;
        }
        super::super::adjacency::accumulate(&mut next);
        let mut entries = vec![0usize; self.num_edges()];
        for row in 0..self.num_rows() {
            for (entry, &col) in self.entries(row).zip(self.row(row)) {
                let place = &mut next[col as usize];
                entries[*place as usize] = entry;
                *place += 1;
            }
        }
        // Those of a row of the reverse are sorted by its own entries, whatever order it has.
        let mut found = vec![0; entries.len()];
        let mut places: Vec<usize> = Vec::new();
        for row in 0..reverse.num_rows() {
            let (own, cols) = (reverse.entries(row), reverse.row(row));
            places.clear();
            places.extend(0..cols.len());
            places.sort_by_key(|&at| cols[at]);
            for (&place, entry) in places.iter().zip(&entries[own.clone()]) {
                found[own.start + place] = *entry;
            }
        }
        found
    }
}
