//! What is known of a node, in the terms of the tables.

use serde::Serialize;
use serde_json::{Map, Value};

use super::base::Kind;
use super::change::NodeKey;
use super::view::{Carrier, View};
use crate::graph::Events;

/// A node and what it is joined to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    pub node: NodeKey,
    /// Of an event, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<u8>,
    /// When the label became known, of an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<i64>,
    /// Features by name, without those of other types.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub columns: Map<String, Value>,
    pub relations: Vec<Joined>,
    /// Some of them, the latest first.
    pub neighbours: Vec<Neighbour>,
}

/// How many neighbours a node has in a relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Joined {
    pub relation: String,
    pub neighbours: usize,
}

/// A node at the other end of an edge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Neighbour {
    pub node: NodeKey,
    pub relation: String,
    /// Of the edge, or of the event at its other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<u8>,
}

/// The node of a key with at most so many neighbours of every relation: those that its rows have, and of an entity its
/// events.
pub(super) fn node_view(view: View, key: &NodeKey, most: usize) -> Option<NodeView> {
    let base = view.base();
    let types = base.dataset.graph.node_types();
    let t = types.iter().position(|of| of.name == key.node_type)?;
    let local = view.find(t, &key.id)?;
    let mut relations = Vec::new();
    let mut neighbours: Vec<Neighbour> = Vec::new();
    for (at, &[src, dst]) in base.ends.iter().enumerate() {
        let name = &base.relation(at).name;
        let mut add = |other: usize, mut found: Vec<(i64, u32, Carrier)>| {
            if found.is_empty() {
                return;
            }
            relations.push(Joined { relation: name.clone(), neighbours: found.len() });
            found.sort_by_key(|&(time, ..)| std::cmp::Reverse(time));
            neighbours.extend(found.into_iter().take(most).map(|(time, node, carrier)| Neighbour {
                node: NodeKey { node_type: types[other].name.clone(), id: view.name(other, node).into() },
                relation: name.clone(),
                time: Some(time).filter(|&time| time != Events::NO_TIME),
                weight: view.weight(at, carrier),
                label: view.label(other, node).map(|(label, _)| label),
            }));
        };
        if dst == t {
            let sources = view.sources(at, local);
            let found = sources.iter().map(|(source, carrier)| {
                (view.edge_time(at, carrier).unwrap_or_else(|| view.time(src, source)), source, carrier)
            });
            // The latest of those of one time stand last in a row.
            let mut found: Vec<_> = found.collect();
            found.reverse();
            add(src, found);
        }
        if src == t && base.of_events[dst] && !base.of_events[src] && matches!(base.kinds[at], Kind::Told { .. }) {
            add(dst, events_from(view, at, local));
        }
    }
    let label = view.label(t, local);
    Some(NodeView {
        node: key.clone(),
        time: Some(view.time(t, local)).filter(|&time| time != Events::NO_TIME),
        label: label.map(|(label, _)| label),
        known: label.map(|(_, known)| known).filter(|&known| known != Events::NEVER),
        columns: columns(view, t, local),
        relations,
        neighbours,
    })
}

/// The events that name an entity in a relation.
fn events_from(view: View, relation: usize, entity: u32) -> Vec<(i64, u32, Carrier)> {
    let base = view.base();
    let [src, dst] = base.ends[relation];
    let of_base = base.global(src, entity).map_or(&[][..], |_| base.relation(relation).reverse.row(entity as usize));
    let of_layers = view.layers().flat_map(|layer| {
        let edges = &layer.edges[relation];
        edges.out.get(entity).iter().map(|&edge| edges.dst[edge as usize])
    });
    let events = of_base.iter().copied().chain(of_layers).filter(|&event| !view.is_gone(dst, event));
    events.map(|event| (view.time(dst, event), event, Carrier::Nothing)).collect()
}

fn columns(view: View, node_type: usize, local: u32) -> Map<String, Value> {
    let Some(names) = &view.base().dataset.feature_names else { return Map::new() };
    let features = super::extract::features_of(view, &one(view, node_type, local), None);
    let Some(features) = features else { return Map::new() };
    let own = format!("{}.", view.base().type_name(node_type));
    let values: Vec<f32> = features.row(0).collect();
    let columns = names.iter().zip(values).filter(|(name, value)| *value != 0.0 || name.starts_with(&own));
    columns.map(|(name, value)| (name.clone(), Value::from(value))).collect()
}

/// A list by type with one node.
fn one(view: View, node_type: usize, local: u32) -> Vec<Vec<u32>> {
    (0..view.base().of_events.len()).map(|t| if t == node_type { vec![local] } else { Vec::new() }).collect()
}
