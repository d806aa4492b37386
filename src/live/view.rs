//! What a graph looks like with all that was appended to it.

use std::ops::Range;

use half::f16;

use super::base::{Base, Kind};
use super::delta::{Delta, Edges, NONE, Nodes};
use super::derived::EventAt;
use super::state::State;
use crate::graph::{Events, FeatureValues};

/// A base, what was appended to it, and what a single call appends for itself.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub state: &'a State,
    pub overlay: Option<&'a Delta>,
}

/// Where a node stands.
pub(super) enum Place<'a> {
    /// In the base, by global id.
    Base(usize),
    /// Among appended nodes.
    Appended(&'a Nodes, usize),
}

/// An event with what it names.
pub(super) struct NamedEvent {
    node_type: usize,
    local: u32,
    time: i64,
    value: Option<f32>,
    label: Option<(u8, i64)>,
    entities: Vec<(usize, u32)>,
}

/// Where what an edge carries is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Carrier {
    /// By entry.
    Base(usize),
    /// By layer and number of the edge.
    Appended(usize, u32),
    /// Nothing is carried.
    Nothing,
}

/// A row of a relation: sources, numbered within their type.
pub(super) struct Sources<'a> {
    range: Range<usize>,
    cols: &'a [u32],
    /// Appended edges by layer.
    more: [(&'a [u32], &'a [u32]); 2],
    /// All of it, where some entries of the base are left out.
    listed: Option<Vec<(u32, Carrier)>>,
}

impl Sources<'_> {
    fn listed(entries: Vec<(u32, Carrier)>) -> Self {
        Self { range: 0..0, cols: &[], more: [(&[], &[]); 2], listed: Some(entries) }
    }

    pub fn len(&self) -> usize {
        match &self.listed {
            Some(entries) => entries.len(),
            None => self.range.len() + self.more.iter().map(|(edges, _)| edges.len()).sum::<usize>(),
        }
    }

    /// The source at a place of the row, and where what the edge carries is.
    pub fn at(&self, place: usize) -> (u32, Carrier) {
        if let Some(entries) = &self.listed {
            return entries[place];
        }
        if place < self.range.len() {
            let entry = self.range.start + place;
            return (self.cols[entry], Carrier::Base(entry));
        }
        let (place, first) = (place - self.range.len(), self.more[0].0.len());
        let (layer, place) = if place < first { (0, place) } else { (1, place - first) };
        let (edges, sources) = self.more[layer];
        (sources[edges[place] as usize], Carrier::Appended(layer, edges[place]))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Carrier)> + '_ {
        (0..self.len()).map(|place| self.at(place))
    }
}

impl<'a> View<'a> {
    pub fn base(&self) -> &'a Base {
        &self.state.base
    }

    /// What was appended, for good first.
    pub fn layers(&self) -> impl Iterator<Item = &'a Delta> + use<'a> {
        std::iter::once(&self.state.delta).chain(self.overlay)
    }

    pub fn layer(&self, at: usize) -> &'a Delta {
        match self.overlay {
            Some(overlay) if at == 1 => overlay,
            _ => &self.state.delta,
        }
    }

    /// How many nodes of a type there are, those that left included.
    pub fn count(&self, node_type: usize) -> u32 {
        self.base().count(node_type) + self.layers().map(|layer| layer.nodes[node_type].len()).sum::<u32>()
    }

    /// # Panics
    /// For a node that there is not.
    pub fn place(&self, node_type: usize, local: u32) -> Place<'a> {
        if let Some(global) = self.base().global(node_type, local) {
            return Place::Base(global);
        }
        let found = self.layers().find_map(|layer| {
            let nodes = &layer.nodes[node_type];
            Some(Place::Appended(nodes, nodes.at(local)?))
        });
        found.unwrap_or_else(|| panic!("node {local} of type {node_type} is out of range"))
    }

    /// The time of an event, [`Events::NO_TIME`] of what is none.
    pub fn time(&self, node_type: usize, local: u32) -> i64 {
        match self.place(node_type, local) {
            Place::Base(global) => self.base().time(global),
            Place::Appended(nodes, at) => nodes.time[at],
        }
    }

    pub fn name(&self, node_type: usize, local: u32) -> &'a str {
        match self.place(node_type, local) {
            Place::Base(_) => self.state.names[node_type].get(local),
            Place::Appended(nodes, at) => nodes.names.get(at as u32),
        }
    }

    /// Whether a node was forgotten or is too old.
    pub fn is_gone(&self, node_type: usize, local: u32) -> bool {
        match self.place(node_type, local) {
            Place::Base(global) => {
                self.is_old(self.base().time(global)) || self.state.forgotten.contains(&(node_type, local))
            }
            Place::Appended(nodes, at) => nodes.is_gone[at] || self.is_old(nodes.time[at]),
        }
    }

    /// Whether a time, if it is one, lies before what is kept.
    pub fn is_old(&self, time: i64) -> bool {
        time != Events::NO_TIME && time < self.state.cutoff
    }

    /// The node of an id.
    pub fn find(&self, node_type: usize, id: &str) -> Option<u32> {
        let in_layer = |layer: &Delta| {
            let nodes = &layer.nodes[node_type];
            Some(nodes.first + nodes.names.find(id)?)
        };
        let appended = self.overlay.and_then(in_layer).or_else(|| in_layer(&self.state.delta));
        let found = appended.or_else(|| self.state.names[node_type].find(id))?;
        (!self.is_gone(node_type, found)).then_some(found)
    }

    /// The label of a node and when it became known.
    pub fn label(&self, node_type: usize, local: u32) -> Option<(u8, i64)> {
        let (label, known) = match self.place(node_type, local) {
            Place::Base(global) => {
                if let Some(label) = self.state.labels.get(&(node_type, local)) {
                    return Some(*label);
                }
                let known = self.base().dataset.events.as_ref().map_or(Events::NEVER, |events| events.known[global]);
                (self.base().labels[global], known)
            }
            Place::Appended(nodes, at) => (nodes.label[at], nodes.known[at]),
        };
        (label != NONE).then_some((label, known))
    }

    /// The row that a node was given after it was there already.
    fn late_row(&self, node_type: usize, local: u32) -> Option<&'a [f16]> {
        let row = |layer: &'a Delta| layer.rows.get(&(node_type, local)).map(|row| &row[..]);
        self.overlay.and_then(row).or_else(|| row(&self.state.delta))
    }

    /// Stored features of a node, behind others.
    pub fn features(&self, node_type: usize, local: u32, half: &mut Vec<f16>, single: &mut Vec<f32>) {
        let Some(features) = &self.base().dataset.features else { return };
        let width = features.dim();
        let place = self.place(node_type, local);
        let mut own = Vec::new();
        let appended = match (self.late_row(node_type, local), &place) {
            (Some(row), _) => row,
            (None, Place::Appended(nodes, at)) => match &nodes.features[at * width..(at + 1) * width] {
                stale if nodes.is_stale[*at] => {
                    own.extend_from_slice(stale);
                    let event = NamedEvent::of(View { state: self.state, overlay: None }, node_type, local);
                    self.state.derived.of_event(&event.at(), &mut own);
                    &own
                }
                row => row,
            },
            (None, Place::Base(_)) => &[],
        };
        match (features.values(), place) {
            (FeatureValues::Half(values), Place::Base(at)) if appended.is_empty() => {
                half.extend_from_slice(&values[at * width..(at + 1) * width]);
            }
            (FeatureValues::Single(values), Place::Base(at)) if appended.is_empty() => {
                single.extend_from_slice(&values[at * width..(at + 1) * width]);
            }
            (FeatureValues::Half(_), _) => half.extend_from_slice(appended),
            (FeatureValues::Single(_), _) => single.extend(appended.iter().map(|value| value.to_f32())),
        }
    }

    /// The row of a node in a relation that leads to its type: what its edges come from, in their order.
    pub fn sources(&self, relation: usize, local: u32) -> Sources<'a> {
        let (of, reversed) = match &self.base().kinds[relation] {
            Kind::Earlier { named, history, .. } => return self.earlier(relation, *named, *history, local),
            Kind::Told { of, reversed } => (*of, *reversed),
        };
        let forward = &self.base().relation(relation).forward;
        let range = if (local as usize) < forward.num_rows() { forward.entries(local as usize) } else { 0..0 };
        let mut more: [(&[u32], &[u32]); 2] = [(&[], &[]); 2];
        for (more, layer) in more.iter_mut().zip(self.layers()) {
            let edges = &layer.edges[of];
            *more = match reversed {
                true => (edges.out.get(local), &edges.dst),
                false => (edges.into.get(local), &edges.src),
            };
        }
        let all = Sources { range, cols: forward.col_idx(), more, listed: None };
        let holes = self.state.holes[relation].get(&local);
        let [src, _] = self.base().ends[relation];
        let of_time = self.base().of_events[src] || self.base().carried[relation].time.is_some();
        if holes.is_none() && !(of_time && self.state.cutoff != i64::MIN) {
            return all;
        }
        let is_kept = |&(source, carrier): &(u32, Carrier)| {
            let is_hole = matches!(carrier, Carrier::Base(entry) if holes.is_some_and(|holes| holes.contains(&entry)));
            let time = self.edge_time(relation, carrier).unwrap_or(Events::NO_TIME);
            let is_out = self.base().of_events[src] && self.is_gone(src, source);
            !(is_hole || is_out || self.is_old(time))
        };
        let kept = all.iter().filter(is_kept).collect();
        Sources::listed(kept)
    }

    /// The time of an edge of its own.
    pub fn edge_time(&self, relation: usize, carrier: Carrier) -> Option<i64> {
        match carrier {
            Carrier::Base(entry) => Some(self.base().carried[relation].time.as_ref()?[entry]),
            Carrier::Appended(layer, edge) => self.edges(relation, layer)?.time.get(edge as usize).copied(),
            Carrier::Nothing => None,
        }
    }

    pub fn weight(&self, relation: usize, carrier: Carrier) -> Option<f32> {
        match carrier {
            Carrier::Base(entry) => Some(self.base().carried[relation].weight.as_ref()?[entry]),
            Carrier::Appended(layer, edge) => self.edges(relation, layer)?.weight.get(edge as usize).copied(),
            Carrier::Nothing => None,
        }
    }

    /// The values of an edge, none where the relation has none.
    pub fn values(&self, relation: usize, carrier: Carrier) -> &'a [f32] {
        let carried = &self.base().carried[relation];
        let width = carried.names.len();
        let (values, at) = match carrier {
            Carrier::Base(entry) => (&carried.values, entry),
            Carrier::Appended(layer, edge) => match self.edges(relation, layer) {
                Some(edges) => (&edges.values, edge as usize),
                None => return &[],
            },
            Carrier::Nothing => return &[],
        };
        &values[at * width..(at + 1) * width]
    }

    /// The appended edges that a relation has in a layer.
    fn edges(&self, relation: usize, layer: usize) -> Option<&'a Edges> {
        match self.base().kinds[relation] {
            Kind::Told { of, .. } => Some(&self.layer(layer).edges[of]),
            Kind::Earlier { .. } => None,
        }
    }

    /// What an event names in a relation.
    pub fn entity(&self, named: usize, event: u32) -> Option<u32> {
        let sources = self.sources(named, event);
        (sources.len() > 0).then(|| sources.at(0).0)
    }

    /// The latest `history` events that name the same entity as an event and have a smaller time.
    fn earlier(&self, relation: usize, named: usize, history: usize, event: u32) -> Sources<'a> {
        let Some(entity) = self.entity(named, event) else { return Sources::listed(Vec::new()) };
        let forward = &self.base().relation(relation).forward;
        let is_base = (event as usize) < forward.num_rows();
        let is_same = self.state.cutoff == i64::MIN && self.state.forgotten.is_empty();
        if is_base && is_same && self.layers().all(|layer| layer.edges[named].out.get(entity).is_empty()) {
            let range = forward.entries(event as usize);
            return Sources { range, cols: forward.col_idx(), more: [(&[], &[]); 2], listed: None };
        }
        let node_type = self.base().ends[relation][0];
        let mut latest = self.events_of(relation, entity, self.time(node_type, event), history);
        latest.reverse();
        Sources::listed(latest.into_iter().map(|event| (event, Carrier::Nothing)).collect())
    }

    /// The latest `most` events of an entity before a time, the last one first. `relation` joins them to each other.
    pub fn events_of(&self, relation: usize, entity: u32, before: i64, most: usize) -> Vec<u32> {
        let Kind::Earlier { named, lists, .. } = &self.base().kinds[relation] else { return Vec::new() };
        let node_type = self.base().ends[relation][0];
        let moment = |event: u32| self.time(node_type, event);
        let of_base = &self.base().relation(relation).forward.col_idx()[lists.of(entity)];
        let of_base = &of_base[..of_base.partition_point(|&event| moment(event) < before)];
        let mut of_layers: [(&[u32], &[u32]); 2] = [(&[], &[]); 2];
        for (list, layer) in of_layers.iter_mut().zip(self.layers()) {
            let edges = &layer.edges[*named];
            *list = (edges.before(entity, before), &edges.dst);
        }
        let mut left = [of_base.len(), of_layers[0].0.len(), of_layers[1].0.len()];
        let mut found = Vec::new();
        while found.len() < most {
            let last = |list: usize| {
                let at = left[list].checked_sub(1)?;
                let event = match list {
                    0 => of_base[at],
                    _ => of_layers[list - 1].1[of_layers[list - 1].0[at] as usize],
                };
                Some((moment(event), event, list))
            };
            let Some((time, event, list)) = (0..3).filter_map(last).max() else { break };
            if self.is_old(time) {
                break;
            }
            left[list] -= 1;
            if !self.is_gone(node_type, event) {
                found.push(event);
            }
        }
        found
    }
}

impl NamedEvent {
    pub fn of(view: View, node_type: usize, local: u32) -> Self {
        let value = match view.place(node_type, local) {
            Place::Appended(nodes, at) => nodes.value[at],
            Place::Base(global) => {
                let events = view.base().dataset.events.as_ref();
                events.and_then(|events| events.values()).map_or(f32::NAN, |values| values[global])
            }
        };
        let entity = |relation: usize| Some((relation, view.entity(relation, local)?));
        Self {
            node_type,
            local,
            time: view.time(node_type, local),
            value: Some(value).filter(|value| !value.is_nan()),
            label: view.label(node_type, local),
            entities: view.base().entity_relations(node_type).filter_map(entity).collect(),
        }
    }

    pub fn at(&self) -> EventAt<'_> {
        let Self { node_type, local, time, value, label, .. } = *self;
        EventAt { node_type, local, time, value, label, entities: &self.entities }
    }
}
