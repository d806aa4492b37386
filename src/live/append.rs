//! Rows that become part of a graph, for good or for a single call.

use std::collections::HashSet;

use super::base::Base;
use super::delta::{Delta, NewEdge};
use super::derived::{EdgeAt, EventAt};
use super::plan::{Appended, Plan, Until, plan};
use super::refused::Refused;
use super::row::Row;
use super::state::State;
use super::view::{NamedEvent, View};
use crate::graph::Events;

/// When derived columns of new events are filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Now,
    Later,
}

/// What a single call appends for itself.
pub(super) struct Overlay {
    pub delta: Delta,
    /// Edges between nodes that are no events.
    pub edges: Vec<EdgeAt>,
    /// As [`Plan::unheard_until`] says.
    pub unheard_until: i64,
}

impl State {
    /// Appends all rows or none. Derived columns of new events are filled in now, or by [`fill`](Self::fill).
    ///
    /// # Errors
    /// As [`plan`].
    pub fn append(&mut self, rows: &[Row], until: Until, fill: Fill) -> Result<Appended, Refused> {
        let plan = plan(View { state: self, overlay: None }, rows, until)?;
        let base = self.base.clone();
        let unheard_until = plan.unheard_until(View { state: self, overlay: None });
        self.made.keep_until(unheard_until);
        put(&base, &plan, &mut self.delta);
        for (local, row) in &plan.told {
            if let Some(label) = row.label {
                self.put_label(row.node_type, *local, label, row.known.unwrap_or(Events::NEVER));
            }
        }
        let events = events_of(View { state: self, overlay: None }, &plan);
        let events: Vec<EventAt> = events.iter().map(NamedEvent::at).collect();
        let changed = self.derived.append(&events, &static_edges(&base, &plan));
        self.make_stale(&changed);
        match fill {
            Fill::Now => events.iter().for_each(|event| self.derive(event)),
            Fill::Later => {
                let new: Vec<(usize, u32)> = events.iter().map(|event| (event.node_type, event.local)).collect();
                self.make_stale(&new);
            }
        }
        let latest = plan.edges.iter().filter_map(|edge| edge.time).max();
        self.latest = self.latest.max(latest.unwrap_or(i64::MIN));
        Ok(plan.counts)
    }

    /// Fills in derived columns that are stale, of at most so many events, those of the latest change first. Says
    /// whether there are more.
    pub fn fill(&mut self, most: usize) -> bool {
        let first = self.stale.len() - most.min(self.stale.len());
        for (node_type, local) in self.stale.split_off(first).into_iter().rev() {
            let view = View { state: self, overlay: None };
            if !view.is_gone(node_type, local) {
                let event = NamedEvent::of(view, node_type, local);
                self.derive(&event.at());
            }
        }
        first > 0
    }

    /// Fills in the derived columns of an event, where it was appended.
    fn derive(&mut self, event: &EventAt) {
        let nodes = &mut self.delta.nodes[event.node_type];
        if let Some(at) = nodes.at(event.local) {
            nodes.is_stale[at] = false;
        }
        if let Some(features) = features_of(event, &mut self.delta) {
            self.derived.of_event(event, features);
        }
    }

    /// What rows would add, for a single call.
    ///
    /// # Errors
    /// As [`plan`].
    pub fn overlay(&self, rows: &[Row], until: Until) -> Result<Overlay, Refused> {
        let view = View { state: self, overlay: None };
        let plan = plan(view, rows, until)?;
        let counts: Vec<u32> = (0..self.base.of_events.len()).map(|t| view.count(t)).collect();
        let mut delta = Delta::behind(&counts, &self.base.ends);
        put(&self.base, &plan, &mut delta);
        let events = events_of(View { state: self, overlay: Some(&delta) }, &plan);
        let events: Vec<EventAt> = events.iter().map(NamedEvent::at).collect();
        let none = || vec![half::f16::ZERO; self.base.width()];
        let own = |event: &EventAt| features_of(event, &mut delta).map_or_else(none, |features| features.to_vec());
        let mut features: Vec<Vec<half::f16>> = events.iter().map(own).collect();
        self.derived.of_events(&events, &mut features);
        for (event, features) in events.iter().zip(&features) {
            if let Some(own) = features_of(event, &mut delta) {
                own.copy_from_slice(features);
            }
        }
        let unheard_until = plan.unheard_until(view);
        Ok(Overlay { delta, edges: static_edges(&self.base, &plan), unheard_until })
    }
}

fn put(base: &Base, plan: &Plan, delta: &mut Delta) {
    let width = base.width();
    for new in &plan.nodes {
        let nodes = &mut delta.nodes[new.node_type];
        nodes.names.push(new.id);
        match new.row {
            Some(row) => nodes.features.extend_from_slice(&row.features),
            None => {
                let unnamed = plan.unnamed.get(&new.node_type);
                nodes.features.extend(unnamed.into_iter().flatten().take(width));
                nodes.features.resize(width * nodes.names.len(), half::f16::ZERO);
            }
        }
        let number = |value: Option<f32>| value.unwrap_or(f32::NAN);
        nodes.time.push(new.row.and_then(|row| row.time).unwrap_or(Events::NO_TIME));
        nodes.value.push(number(new.row.and_then(|row| row.value)));
        nodes.amount.push(number(new.row.and_then(|row| row.amount)));
        nodes.label.push(new.row.and_then(|row| row.label).unwrap_or(super::delta::NONE));
        nodes.known.push(new.row.and_then(|row| row.known).unwrap_or(Events::NEVER));
        nodes.has_row.push(new.row.is_some());
        nodes.is_gone.push(false);
        nodes.is_stale.push(false);
    }
    for (local, row) in &plan.told {
        delta.rows.insert((row.node_type, *local), row.features.as_slice().into());
    }
    plan.edges.iter().for_each(|edge| delta.push_edge(edge));
}

/// The new events, and those that were there and now name something.
fn events_of(view: View, plan: &Plan) -> Vec<NamedEvent> {
    let base = view.base();
    let new = plan.nodes.iter().filter(|new| base.of_events[new.node_type]).map(|new| (new.node_type, new.local));
    let new: Vec<(usize, u32)> = new.collect();
    let mut seen: HashSet<(usize, u32)> = new.iter().copied().collect();
    let names = |edge: &NewEdge| {
        let [src, dst] = base.ends[edge.relation];
        (base.of_events[dst] && !base.of_events[src]).then_some((dst, edge.dst))
    };
    let late: Vec<_> = plan.edges.iter().filter_map(names).filter(|event| seen.insert(*event)).collect();
    new.into_iter().chain(late).map(|(node_type, local)| NamedEvent::of(view, node_type, local)).collect()
}

fn static_edges(base: &Base, plan: &Plan) -> Vec<EdgeAt> {
    let is_static = |edge: &&NewEdge| base.ends[edge.relation].iter().all(|&end| !base.of_events[end]);
    let edge =
        |&NewEdge { relation, src, dst, weight, time, .. }: &NewEdge| EdgeAt { relation, src, dst, weight, time };
    plan.edges.iter().filter(is_static).map(edge).collect()
}

/// The features of an event that a delta has.
fn features_of<'d>(event: &EventAt, delta: &'d mut Delta) -> Option<&'d mut [half::f16]> {
    let nodes = &mut delta.nodes[event.node_type];
    let at = nodes.at(event.local)?;
    let width = nodes.features.len() / nodes.names.len();
    Some(&mut nodes.features[at * width..(at + 1) * width])
}
