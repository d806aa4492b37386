//! Ages of edges in a graph: from times of nodes, or given edge by edge.

use std::sync::Arc;

use rayon::prelude::*;

use super::{HeteroGraph, Relation};
use crate::graph::EdgeMatrix;

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// Where the ages of a relation's edges come from, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub enum Ages {
    /// The time of the destination less that of the source: both are events.
    Nodes,
    /// A number per entry of `forward`.
    Edges(Arc<EdgeMatrix>),
}

impl Relation {
    /// The ages that the edges have of their own.
    pub fn ages_of_edges(&self) -> Option<&EdgeMatrix> {
        match self.ages.as_ref()? {
            Ages::Edges(ages) => Some(ages),
            Ages::Nodes => None,
        }
    }
}

impl HeteroGraph {
    /// Gives the nodes times, one per node by global id, in seconds from any moment on. What has none is not read.
    ///
    /// # Panics
    /// Unless there is a time for every node.
    pub fn set_times(&mut self, times: Arc<[i32]>) {
        assert!(times.len() == self.num_nodes(), "set_times: expected {} times", self.num_nodes());
        self.times = Some(times);
    }

    /// Gives the edges of a relation ages.
    ///
    /// # Panics
    /// For a relation that there is not, for another number of ages than of edges, for ages by edge of rows that are
    /// spans, and for ages by node in a graph without times.
    pub fn set_ages(&mut self, relation: &str, ages: Ages) {
        let timed = self.times.is_some();
        let of = self.relations.iter_mut().find(|known| known.name == relation);
        let Some(of) = of else { panic!("set_ages: no relation `{relation}`") };
        match &ages {
            Ages::Nodes => assert!(timed, "set_ages: the nodes of `{relation}` have no times"),
            Ages::Edges(ages) => {
                assert!(!of.forward.is_spans(), "set_ages: rows of `{relation}` are spans, which share entries");
                let shape = (ages.num_entries(), ages.width());
                assert!(shape == (of.forward.num_edges(), 1), "set_ages: expected an age per edge of `{relation}`");
            }
        }
        of.ages = Some(ages);
    }

    /// Gives the reverse of every relation whose edges have ages of their own, where it is of the same stream and has
    /// none, the same ages in its own order.
    pub fn mirror_ages(&mut self) {
        for at in 0..self.relations.len() {
            if self.relations[at].ages.is_none() {
                self.relations[at].ages =
                    self.mirrored(at, Relation::ages_of_edges).map(|ages| Ages::Edges(Arc::new(ages)));
            }
        }
    }

    /// Whether the edges of any relation have ages.
    pub fn has_ages(&self) -> bool {
        self.relations.iter().any(|relation| relation.ages.is_some())
    }

    /// By node of a type: its time, where an age is made of times of this type.
    pub fn times_of(&self, node_type: usize) -> Option<&[i32]> {
        let reads = |relation: &Relation| {
            relation.ages == Some(Ages::Nodes) && [relation.src, relation.dst].contains(&node_type)
        };
        let of = &self.node_types[node_type];
        let times = self.times.as_ref().filter(|_| self.relations.iter().any(reads))?;
        Some(&times[of.offset..of.offset + of.count])
    }

    /// The age of the edge at an entry of a relation, between nodes numbered within their types; `None` where its edges
    /// have none.
    ///
    /// # Panics
    /// For an entry or a node that there is not.
    pub fn age(&self, relation: &Relation, entry: usize, row: usize, source: u32) -> Option<f64> {
        match relation.ages.as_ref()? {
            Ages::Edges(ages) => Some(f64::from(ages.row(entry)[0])),
            Ages::Nodes => {
                let [dst, src] = [self.times_of(relation.dst)?[row], self.times_of(relation.src)?[source as usize]];
                Some(f64::from(dst) - f64::from(src))
            }
        }
    }

    /// The longest and the shortest period that cosines of the ages here should have, in seconds: what the times span,
    /// and an hour, but no less than twice the shortest gap between two times, since a cosine tells nothing faster
    /// apart.
    pub fn age_periods(&self) -> [f64; 2] {
        let of_nodes = (0..self.node_types.len()).filter_map(|t| self.times_of(t)).flatten().map(|&time| time.into());
        let of_edges = self.relations.iter().filter_map(Relation::ages_of_edges).flat_map(|ages| ages.values());
        let mut times: Vec<f64> = of_nodes.chain(of_edges.map(|&age| age.into())).collect();
        times.par_sort_unstable_by(f64::total_cmp);
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0);
        let (gap, span) =
            (gaps.fold(f64::INFINITY, f64::min), times.last().zip(times.first()).map_or(0.0, |(b, a)| b - a));
        if span == 0.0 {
            return [HOUR; 2];
        }
        let shortest = if span > HOUR { HOUR.max(2.0 * gap) } else { 2.0 * gap };
        [span, shortest.min(span)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Adjacency, RelationSpec};

    fn graph() -> HeteroGraph {
        let spec = RelationSpec::new;
        let earlier = spec("earlier", 1, 1, Adjacency::from_edges(3, 3, &[(1, 0), (2, 0), (2, 1)]));
        let used = spec("used", 0, 1, Adjacency::from_edges(3, 2, &[(0, 0), (1, 1), (2, 1)]));
        HeteroGraph::new(vec![("card".into(), 2), ("payment".into(), 3)], vec![earlier, used]).unwrap()
    }

    #[test]
    fn an_age_is_the_difference_of_both_times_or_that_of_the_edge() {
        let mut graph = graph();
        assert!(!graph.has_ages() && graph.times_of(1).is_none());
        graph.set_times(vec![0, 0, 10, 40, 100].into());
        graph.set_ages("earlier", Ages::Nodes);
        graph.set_ages("used", Ages::Edges(Arc::new(EdgeMatrix::new(vec![5.0, 0.0, 2.5], 1))));
        let [earlier, used] = graph.relations() else { panic!("two relations") };
        assert_eq!(graph.age(earlier, 2, 2, 1), Some(60.0));
        assert_eq!(graph.age(used, 2, 2, 1), Some(2.5));
        assert_eq!((graph.times_of(0), graph.times_of(1)), (None, Some(&[10, 40, 100][..])));
        // The first card and the second payment go.
        let part = graph.induced(&[false, true, true, false, true]);
        let [earlier, used] = part.relations() else { panic!("two relations") };
        assert_eq!((part.age(earlier, 0, 1, 0), part.age(used, 0, 1, 0)), (Some(90.0), Some(2.5)));
        let cut = graph.without_pairs(|a, b| (a, b) == (2, 4));
        let [earlier, used] = cut.relations() else { panic!("two relations") };
        assert_eq!((cut.age(earlier, 1, 2, 1), cut.age(used, 2, 2, 1)), (Some(60.0), Some(2.5)));
    }

    #[test]
    fn periods_go_from_the_span_to_an_hour_or_twice_the_shortest_gap() {
        let periods = |times: [i32; 3]| {
            let mut graph = graph();
            graph.set_times([[0; 2].as_slice(), &times].concat().into());
            graph.set_ages("earlier", Ages::Nodes);
            graph.age_periods()
        };
        let day = 86_400;
        assert_eq!(periods([0, 60, 30 * day]), [30.0 * 86_400.0, 3600.0]);
        assert_eq!(periods([-day, 0, 29 * day]), [30.0 * 86_400.0, 2.0 * 86_400.0]);
        assert_eq!(periods([3, 5, 43]), [40.0, 4.0]);
        assert_eq!(periods([0, 0, 3]), [3.0; 2]);
        assert_eq!(periods([7; 3]), [3600.0; 2]);
    }
}
