//! Ages of the edges of a data set, read when they are asked for.

use std::sync::Arc;

use super::Dataset;
use crate::error::{Error, Result};
use crate::graph::{Ages, EdgeMatrix, Events, HeteroGraph, Relation};

impl Dataset {
    /// `graph`, which is that of these data, with ages of its edges, in seconds, wherever times tell them:
    ///
    /// - between events, the time of the destination less that of the source;
    /// - of an edge into an event that has a time of its own, the time of the event less that of the edge;
    /// - of an edge with a time in data without events, the latest time of any edge less its own. Other data have a
    ///   latest time of their own.
    ///
    /// Nothing of this depends on what happens after the destination. Edges between entities of data with events have
    /// no age: entities have no state.
    ///
    /// # Errors
    /// As [`edge_times`](Self::edge_times); [`Error::Data`] for events that lie more than 68 years apart.
    pub fn with_ages(&self, mut graph: HeteroGraph) -> Result<HeteroGraph> {
        if graph.has_ages() {
            return Ok(graph);
        }
        let is_event = |node_type: usize| {
            let of = &graph.node_types()[node_type];
            self.events.as_ref().is_some_and(|e| !e.time[of.offset..of.offset + of.count].contains(&Events::NO_TIME))
        };
        let event_types: Vec<bool> = (0..graph.node_types().len()).map(is_event).collect();
        let mut ages: Vec<(String, Ages)> = Vec::new();
        let mut of_edges = Vec::new();
        for relation in graph.relations() {
            if event_types[relation.src] && event_types[relation.dst] {
                ages.push((relation.name.clone(), Ages::Nodes));
            } else if event_types[relation.dst] || self.events.is_none() {
                of_edges.extend(self.edge_times(&relation.name)?.map(|times| (relation, times)));
            }
        }
        let latest = of_edges.iter().flat_map(|(_, times)| times.iter()).max().copied().unwrap_or_default();
        let until = |relation: &Relation, row: usize| match &self.events {
            Some(events) => events.time[graph.node_types()[relation.dst].offset + row],
            None => latest,
        };
        for (relation, times) in of_edges {
            let forward = &relation.forward;
            let rows = (0..forward.num_rows()).flat_map(|row| forward.entries(row).map(move |entry| (row, entry)));
            let of = rows.map(|(row, entry)| until(relation, row).saturating_sub(times[entry]) as f32);
            ages.push((relation.name.clone(), Ages::Edges(Arc::new(EdgeMatrix::new(of.collect(), 1)))));
        }
        if let Some(events) = self.events.as_ref().filter(|_| ages.iter().any(|(_, ages)| *ages == Ages::Nodes)) {
            graph.set_times(from_the_first(&events.time)?);
        }
        ages.into_iter().for_each(|(relation, ages)| graph.set_ages(&relation, ages));
        if self.events.is_none() {
            graph.mirror_ages();
        }
        Ok(graph)
    }

    /// Gives the graph the ages of its edges, see [`with_ages`](Self::with_ages). `key` is the setting that asks for
    /// them.
    ///
    /// # Errors
    /// As [`with_ages`](Self::with_ages); [`Error::Config`] where no edge has an age.
    pub fn load_ages(&mut self, key: &str) -> Result<()> {
        self.graph = self.with_ages(self.graph.clone())?;
        if self.graph.has_ages() {
            return Ok(());
        }
        Err(Error::setting(
            key,
            "no relation whose edges have an age",
            "data with times: events that are joined to earlier ones, or edges with a time",
            "name the column of times (`time`) of an [[edges]] or [[nodes]] table and import it again, or set it to \
             \"none\"",
        ))
    }
}

/// Seconds from the first event on; entities get 0, which nothing reads.
pub(crate) fn from_the_first(times: &[i64]) -> Result<Arc<[i32]>> {
    let of_events = || times.iter().filter(|time| **time != Events::NO_TIME).copied();
    let first = of_events().min().unwrap_or_default();
    let since = |&time: &i64| match time {
        Events::NO_TIME => Some(0),
        time => time.checked_sub(first).and_then(|seconds| i32::try_from(seconds).ok()),
    };
    times.iter().map(since).collect::<Option<_>>().ok_or_else(|| Error::Data {
        what: "times of events".into(),
        expected: format!("a span of at most {} seconds (68 years), of which ages are made", i32::MAX),
        found: format!("{first} to {}, in seconds since 1970", of_events().max().unwrap_or_default()),
        help: "leave out the events whose time is wrong, or set model.time_encoding = \"none\"".into(),
    })
}
