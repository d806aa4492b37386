//! Tables of events: what an event may be told by, and the relations that keep to it.
//!
//! An event at time `t` is told by events of smaller times alone; entities (customers, terminals) have the columns of
//! their own tables and no state, so nothing that happens later reaches an event through them. The relations of a graph
//! with events are therefore one way: entity to event, and event to later event of the same entity
//! (`earlier_{relation}`), the latest ones of each or all.

use rayon::prelude::*;

use super::description::{Description, NodeTable};
use super::edge_list::{Edge, EdgeList, key};
use super::edges::RelationEdges;
use super::nodes::{Fact, NodeType, Values};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Events};

/// What the events of one type name in one relation: at most one entity each.
#[derive(Debug)]
pub(super) struct Named {
    /// Name of the relation.
    pub relation: String,
    /// Index of the node type of the events.
    pub events: usize,
    /// Index of the node type of the entities.
    pub entity: usize,
    /// By event; [`Events::NO_NODE`] for none.
    pub of_event: Vec<u32>,
}

/// Times of the declared nodes of a type of events.
pub(super) fn times(node_type: &NodeType) -> Option<Vec<i64>> {
    match node_type.fact(Fact::Time)? {
        Values::Time(times) => Some(times.iter().map(|time| time.unwrap_or(Events::NO_TIME)).collect()),
        _ => None,
    }
}

/// Numbers that a fact has, NaN where it has none.
pub(super) fn numbers(node_type: &NodeType, fact: Fact) -> Option<Vec<f32>> {
    match node_type.fact(fact)? {
        Values::Number(values) => Some(values.iter().map(|value| value.unwrap_or(f32::NAN)).collect()),
        _ => None,
    }
}

/// When each label of a type of events became known; [`Events::NEVER`] without a label.
pub(super) fn known(node_type: &NodeType, table: &NodeTable) -> Vec<i64> {
    let delay = table.label.as_ref().and_then(|label| label.delay).map_or(0, |delay| delay.0);
    let times = times(node_type).unwrap_or_default();
    let said = match node_type.fact(Fact::Known) {
        Some(Values::Time(known)) => Some(known),
        _ => None,
    };
    let of_event = |event: usize| match (node_type.labels[event], said) {
        (None, _) => Events::NEVER,
        // A label of which nobody says when it became known is not known.
        (Some(_), Some(known)) => known[event].unwrap_or(Events::NEVER),
        (Some(_), None) => times[event].saturating_add(delay),
    };
    (0..times.len()).map(of_event).collect()
}

/// Times and amounts by global id; `None` where no table has events.
///
/// # Errors
/// [`Error::Data`] for an event that no row tells the time of, [`Error::Config`] for an alert of a type that the events
/// do not name.
pub(super) fn events_of(types: &[NodeType], description: &Description, named: &[Named]) -> Result<Option<Events>> {
    if !types.iter().any(NodeType::is_of_events) {
        return Ok(None);
    }
    let mut events = Events { time: Vec::new(), known: Vec::new(), amount: None, value: None, alert: None };
    let mut offsets = Vec::with_capacity(types.len());
    let mut nodes = 0;
    for node_type in types {
        offsets.push(nodes);
        nodes += node_type.ids.len();
    }
    events.time = vec![Events::NO_TIME; nodes];
    events.known = vec![Events::NEVER; nodes];
    let (mut values, mut has_other_values) = (None::<Vec<f32>>, false);
    for (at, table) in description.nodes.iter().enumerate().filter(|(_, table)| table.time.is_some()) {
        let (node_type, first) = (&types[at], offsets[at]);
        let own = first..first + node_type.ids.len();
        if node_type.ids.len() > node_type.declared {
            return Err(Error::Data {
                what: format!("events of type `{}`", node_type.name),
                expected: "a row with a time for each".into(),
                found: format!("{} that only edges name", node_type.ids.len() - node_type.declared),
                help: "add their rows, or import with --strict to see the first of them".into(),
            });
        }
        events.time[own.clone()].copy_from_slice(&times(node_type).unwrap_or_default());
        events.known[own.clone()].copy_from_slice(&known(node_type, table));
        if let Some(amount) = numbers(node_type, Fact::Amount) {
            events.amount.get_or_insert_with(|| vec![f32::NAN; nodes])[own.clone()].copy_from_slice(&amount);
        }
        if let Some(value) = numbers(node_type, Fact::Value) {
            values.get_or_insert_with(|| vec![f32::NAN; nodes])[own.clone()].copy_from_slice(&value);
            has_other_values |= node_type.column_of(Fact::Value) != node_type.column_of(Fact::Amount);
        }
        if let Some(alert) = &table.alert {
            let entity = named.iter().find(|named| named.events == at && types[named.entity].name == *alert);
            let entity = entity.ok_or_else(|| no_entity("nodes.alert", alert, at, types, named))?;
            let base = offsets[entity.entity] as u32;
            let global = entity.of_event.iter().map(|&node| if node == Events::NO_NODE { node } else { base + node });
            let all = events.alert.get_or_insert_with(|| vec![Events::NO_NODE; nodes]);
            all[own].iter_mut().zip(global).for_each(|(to, from)| *to = from);
        }
    }
    events.value = values.filter(|_| has_other_values);
    Ok(Some(events))
}

/// The error of a key that has to name an entity of the events.
pub(super) fn no_entity(key: &str, found: &str, events: usize, types: &[NodeType], named: &[Named]) -> Error {
    let of_events = named.iter().filter(|named| named.events == events);
    let known: Vec<&str> = of_events.map(|named| types[named.entity].name.as_str()).collect();
    let expected = format!("a node type that the events of type `{}` name", types[events].name);
    let help = match known.is_empty() {
        true => "name it in an [[edges]] or [[shared]] table of their rows".into(),
        false => format!("one of {}", known.join(", ")),
    };
    wrong_key(key, &expected, found, &help)
}

/// The error of a key of the description; whoever read the file adds where it lies.
pub(super) fn wrong_key(key: &str, expected: &str, found: &str, help: &str) -> Error {
    Error::Config {
        origin: "the description of the tables".into(),
        key: key.into(),
        expected: expected.into(),
        found: format!("{found:?}"),
        help: help.into(),
    }
}

/// The entities that events name: of every relation with events at one end in which each has at most one partner.
///
/// # Errors
/// [`Error::Io`] of edges on disk.
pub(super) fn named(types: &[NodeType], relations: &[RelationEdges]) -> Result<Vec<Named>> {
    let mut all = Vec::new();
    for relation in relations {
        for (events, entity, is_src) in [(relation.src, relation.dst, true), (relation.dst, relation.src, false)] {
            if !types[events].is_of_events() || events == entity {
                continue;
            }
            let mut of_event = vec![Events::NO_NODE; types[events].ids.len()];
            let mut is_one = true;
            relation.edges.for_each_key(|key| {
                let [event, node] =
                    if is_src { [key as u32, (key >> 32) as u32] } else { [(key >> 32) as u32, key as u32] };
                let place = &mut of_event[event as usize];
                is_one &= *place == Events::NO_NODE || *place == node;
                *place = node;
            })?;
            if is_one {
                all.push(Named { relation: relation.name.clone(), events, entity, of_event });
            }
        }
    }
    Ok(all)
}

/// Turns the relations of tables with events into those that keep to the order of time. Returns what the user should
/// know.
///
/// # Errors
/// [`Error::Config`] for edges with times between entities: their rows have to be events; [`Error::Io`] of edges on
/// disk.
pub(super) fn one_way(relations: &mut [RelationEdges], types: &[NodeType]) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let times: Vec<Option<Vec<i64>>> = types.iter().map(times).collect();
    for relation in relations.iter_mut() {
        match (&times[relation.src], &times[relation.dst]) {
            (None, None) if relation.carried.time => {
                return Err(Error::Config {
                    origin: "the description of the tables".into(),
                    key: format!("edges.time of `{}`", relation.name),
                    expected: "edges without times between nodes without times, because other nodes are events".into(),
                    found: "edges with times".into(),
                    help: "add label = \"COLUMN\" or scored = true to the table: its rows are events then".into(),
                });
            }
            (None, None) => continue,
            (Some(src), Some(dst)) => {
                let all = relation.edges.len();
                relation.edges.retain(|key| src[key as u32 as usize] < dst[(key >> 32) as usize])?;
                let left = all - relation.edges.len();
                if left > 0 {
                    notes.push(format!(
                        "{left} of {all} edges of `{}` lead to an earlier event: left out",
                        relation.name
                    ));
                }
            }
            (None, Some(_)) => {}
            // An entity has no state: the edge tells the event what the entity is.
            (Some(_), None) => {
                relation.edges.flip()?;
                relation.name = format!("{}_T", relation.name);
                std::mem::swap(&mut relation.src, &mut relation.dst);
            }
        }
        relation.one_way = true;
    }
    Ok(notes)
}

/// `earlier_{relation}`: every event and the latest `most` events of smaller times that name the same entity, in the
/// order of time. The events of an entity are there once: what an event is joined to is a span of them. `of_event` is
/// the entity of each, [`Events::NO_NODE`] for none.
pub(crate) fn earlier(of_event: &[u32], times: &[i64], entities: usize, most: usize) -> Adjacency {
    let entity_of = |event: u32| Some(of_event[event as usize] as usize).filter(|&entity| entity < entities);
    let mut order: Vec<u32> = (0..times.len() as u32).filter(|&event| entity_of(event).is_some()).collect();
    order.par_sort_unstable_by_key(|&event| (entity_of(event), times[event as usize], event));
    let (mut row_start, mut row_end) = (vec![0; times.len()], vec![0; times.len()]);
    // Where the list of the entity begins, and where its events of smaller times end.
    let (mut first, mut end) = (0, 0);
    for (at, &event) in order.iter().enumerate() {
        if at == 0 || entity_of(event) != entity_of(order[at - 1]) {
            (first, end) = (at, at);
        } else if times[order[at - 1] as usize] < times[event as usize] {
            end = at;
        }
        row_start[event as usize] = end.saturating_sub(most).max(first) as u64;
        row_end[event as usize] = end as u64;
    }
    Adjacency::from_checked_spans(row_start, &row_end, order.into(), times.len())
}

impl EdgeList {
    pub fn for_each_key(&self, mut f: impl FnMut(u64)) -> Result<()> {
        match self {
            Self::Plain(keys) => keys.for_each(f),
            Self::Valued(edges) => edges.for_each(|edge| f(edge.key)),
        }
    }

    fn retain(&mut self, keep: impl Fn(u64) -> bool) -> Result<()> {
        match self {
            Self::Plain(keys) => keys.rewrite(|key| keep(key).then_some(key)),
            Self::Valued(edges) => edges.rewrite(|edge| keep(edge.key).then_some(edge)),
        }
    }

    /// Exchanges source and destination.
    fn flip(&mut self) -> Result<()> {
        let flipped = |of: u64| key(of as u32, (of >> 32) as u32);
        match self {
            Self::Plain(keys) => keys.rewrite(|key| Some(flipped(key))),
            Self::Valued(edges) => edges.rewrite(|edge| Some(Edge { key: flipped(edge.key), ..edge })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_joined_to_the_latest_earlier_ones_of_its_entity_and_to_none_of_its_own_time() {
        let times = [5, 1, 5, 9, 2, 7, 9];
        let none = Events::NO_NODE;
        let entities = [0, 0, 0, 0, 1, none, 0];
        let rows = |most| {
            let adjacency = earlier(&entities, &times, 2, most);
            // Every event that names an entity is stored once.
            assert_eq!((adjacency.col_idx(), adjacency.num_rows()), (&[1, 0, 2, 3, 6, 4][..], 7));
            (0..7).map(|event| adjacency.row(event).to_vec()).collect::<Vec<_>>()
        };
        let all = rows(usize::MAX);
        let no: Vec<u32> = Vec::new();
        assert_eq!(all, [vec![1], no.clone(), vec![1], vec![1, 0, 2], no.clone(), no.clone(), vec![1, 0, 2]]);
        assert_eq!(rows(9), all);
        assert_eq!(rows(2)[3], [0, 2]);
        assert_eq!(rows(1), [vec![1], no.clone(), vec![1], vec![2], no.clone(), no, vec![2]]);
        // Whatever comes later changes nothing before.
        let adjacency = earlier(&entities[..6], &times[..6], 2, usize::MAX);
        assert_eq!((0..6).map(|event| adjacency.row(event).to_vec()).collect::<Vec<_>>(), all[..6]);
    }
}
