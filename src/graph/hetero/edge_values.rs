//! Values and weights of edges in a graph: those of a relation, and the same seen from the other end.

use std::sync::Arc;

use super::{Ages, HeteroGraph, Relation};
use crate::graph::{Adjacency, EdgeMatrix};

impl HeteroGraph {
    /// Gives the edges of a relation values, a row per entry of its `forward`.
    ///
    /// # Panics
    /// For a relation that there is not, whose rows are spans, or that has another number of edges.
    pub fn set_edge_values(&mut self, relation: &str, values: Arc<EdgeMatrix>) {
        let of = self.carrier("set_edge_values", relation, &values);
        of.values = Some(values);
    }

    /// Gives the edges of a relation weights, one per entry of its `forward`, each at least 0.
    ///
    /// # Panics
    /// As [`set_edge_values`](Self::set_edge_values), and for more than one column.
    pub fn set_edge_weights(&mut self, relation: &str, weights: Arc<EdgeMatrix>) {
        assert!(weights.width() == 1, "set_edge_weights: expected a column, got {}", weights.width());
        let of = self.carrier("set_edge_weights", relation, &weights);
        of.weights = Some(weights);
    }

    /// The relation that is to carry a row of `rows` per edge; `op` asks.
    fn carrier(&mut self, op: &str, relation: &str, rows: &EdgeMatrix) -> &mut Relation {
        let of = self.relations.iter_mut().find(|known| known.name == relation);
        let Some(of) = of else { panic!("{op}: no relation `{relation}`") };
        assert!(!of.forward.is_spans(), "{op}: rows of `{relation}` are spans, which share entries");
        let edges = of.forward.num_edges();
        assert!(rows.num_entries() == edges, "{op}: expected {edges} rows, got {}", rows.num_entries());
        of
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

    /// The same of weights.
    pub fn mirror_edge_weights(&mut self) {
        for at in 0..self.relations.len() {
            if self.relations[at].weights.is_none() {
                self.relations[at].weights = self.mirrored(at, |of| of.weights.as_deref()).map(Arc::new);
            }
        }
    }

    /// The same graph, whose edges have their weights for values, of the relations that `reads` says by their place,
    /// and of no others. With `of_loops` an edge from a node to itself weighs that: nothing, where it gives way to one
    /// that a layer adds, or 1, as much as one that is added to nodes without.
    pub fn with_weights_as_values(mut self, reads: impl Fn(usize) -> bool, of_loops: Option<f32>) -> Self {
        for (at, relation) in self.relations.iter_mut().enumerate() {
            relation.values = relation.weights.clone().filter(|_| reads(at));
            let Some(of_loop) = of_loops.filter(|_| relation.loops.in_range > 0) else { continue };
            let Some(weights) = relation.values.take() else { continue };
            let mut values = weights.values().to_vec();
            for row in 0..relation.forward.num_rows() {
                let entries = relation.forward.entries(row).zip(relation.forward.row(row));
                entries.filter(|(_, col)| **col as usize == row).for_each(|(entry, _)| values[entry] = of_loop);
            }
            relation.values = Some(Arc::new(EdgeMatrix::new(values, 1)));
        }
        self
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
    /// The relation with values, weights and ages of the edges alone that `keep` says of, by row and column; its
    /// adjacencies are as they were.
    pub(super) fn carried_where(&self, keep: impl Fn(u32, u32) -> bool + Copy) -> Self {
        let kept = |rows: &Arc<EdgeMatrix>| Arc::new(rows.picked(self.forward.entries_where(keep)));
        let ages = self.ages.as_ref().map(|ages| match ages {
            Ages::Nodes => Ages::Nodes,
            Ages::Edges(ages) => Ages::Edges(kept(ages)),
        });
        let [values, weights] = [&self.values, &self.weights].map(|rows| rows.as_ref().map(kept));
        Self { values, weights, ages, ..self.clone() }
    }
}

impl Adjacency {
    /// By entry of `reverse`, which holds the edges of `self` the other way round, the entry here that is the same
    /// edge. Of edges between the same two nodes the first here is the first there.
    pub(crate) fn entries_in(&self, reverse: &Adjacency) -> Vec<usize> {
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
