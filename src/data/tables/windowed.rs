//! Windowed features of the tables of events.

use std::collections::HashMap;

use super::description::{Description, SplitBy, WindowTable as Wanted};
use super::events::{Named, known, numbers, times, wrong_key};
use super::nodes::{Fact, NodeType};
use crate::data::windows::{self, Entity, EventColumns, KnownLabels, WindowConfig, WindowTable};
use crate::error::Result;
use crate::graph::Events;

/// Windows of the events of one type.
pub(super) struct Windowed {
    /// Index of the node type.
    pub node_type: usize,
    pub table: WindowTable,
}

/// Computes what the `[[windows]]` of a description ask for.
///
/// # Errors
/// [`Error::Config`] for windows of nodes that are no events, and for windows of labels where the split is not by time.
pub(super) fn compute(
    types: &[NodeType],
    description: &Description,
    named: &[Named],
    progress: &dyn Fn(u64, u64),
) -> Result<Vec<Windowed>> {
    let of_table = |wanted| of_table(types, description, named, wanted, progress);
    description
        .windows
        .iter()
        .map(of_table)
        .collect::<Result<Vec<_>>>()
        .map(|made| made.into_iter().flatten().collect())
}

fn of_table(
    types: &[NodeType],
    description: &Description,
    named: &[Named],
    wanted: &Wanted,
    progress: &dyn Fn(u64, u64),
) -> Result<Vec<Windowed>> {
    let mut of_events = description.nodes.iter().enumerate().filter(|(_, table)| table.time.is_some());
    let found = match &wanted.nodes {
        Some(name) => of_events.find(|(_, table)| table.node_type == *name),
        None => of_events.next().filter(|_| of_events.next().is_none()),
    };
    let Some((node_type, table)) = found else {
        let expected = "the type of a [[nodes]] table with a time";
        let found = wanted.nodes.clone().unwrap_or_default();
        return Err(wrong_key("windows.nodes", expected, &found, "name the type of the events: nodes = \"payment\""));
    };
    let delay = table.label.as_ref().and_then(|label| label.delay.map(|delay| delay.0));
    let by_time = description.split.by == SplitBy::Time;
    if wanted.labels == Some(true) && !(by_time && delay.is_some()) {
        let expected = "false, unless labels have a delay and the split is by time: otherwise they tell of the test";
        let help = "write label = { column = \"...\", delay = \"7d\" } and [split] by = \"time\", or leave it out";
        return Err(wrong_key("windows.labels", expected, "true", help));
    }
    let ends = table.ends.as_ref().map(|ends| {
        ends.each_ref().map(|end| named.iter().find(|named| named.events == node_type && named.relation == *end))
    });
    let pairs = match (wanted.pairs, ends) {
        (false, _) => None,
        (true, Some([Some(src), Some(dst)])) => Some(Pairs::of(&src.of_event, &dst.of_event)),
        (true, _) => {
            let expected = "false, unless the events are edges, each of which has one source and one destination";
            let help =
                "describe the table by [[edges]] with a label, or name both relations: ends = [\"...\", \"...\"]";
            return Err(wrong_key("windows.pairs", expected, "true", help));
        }
    };
    let of_type = &types[node_type];
    let (times, values) = (times(of_type).unwrap_or_default(), numbers(of_type, Fact::Value));
    let known = known(of_type, table);
    let mut entities: Vec<Entity> = Vec::new();
    // Both ends are of one type: they are called by their place.
    let is_alike = |[src, dst]: [&Named; 2]| src.entity == dst.entity;
    let alike = ends.and_then(|[src, dst]| Some([src?, dst?])).filter(|&ends| is_alike(ends));
    for named in named.iter().filter(|named| named.events == node_type) {
        let place = alike.and_then(|ends| ends.iter().position(|end| end.relation == named.relation));
        let name = place.map_or(types[named.entity].name.as_str(), |place| ["src", "dst"][place]);
        // Two relations to one type: the second is called by its own name.
        let is_taken = entities.iter().any(|entity| entity.name == name);
        let name = if is_taken { named.relation.as_str() } else { name };
        entities.push(Entity { name, of_event: &named.of_event, count: types[named.entity].ids.len() });
    }
    let labels = delay.map(|delay| KnownLabels { label: &of_type.labels, known: &known, delay });
    let default = WindowConfig::default();
    let seconds = |spans: &Vec<super::description::Span>| spans.iter().map(|span| span.0).collect::<Vec<_>>();
    let windows = WindowConfig {
        spans: wanted.spans.as_ref().map_or(default.spans, seconds),
        last: wanted.last.clone().unwrap_or(default.last),
        one_hop: wanted.one_hop.as_ref().map_or(default.one_hop, seconds),
        labels: wanted.labels.unwrap_or(by_time && delay.is_some()),
        measures: match &wanted.measures {
            Some(wanted) => default.measures.into_iter().filter(|measure| wanted.contains(measure)).collect(),
            None => default.measures,
        },
    };
    let compute = |entities| {
        let events = EventColumns { times: &times, values: values.as_deref(), labels, entities };
        Windowed { node_type, table: windows::compute(&events, &windows, progress) }
    };
    // Apart, because what the events of a pair have to do with others is what those of its ends have.
    let of_pairs = pairs.as_ref().map(|Pairs { of_event, count }| Entity { name: "pair", of_event, count: *count });
    Ok(std::iter::once(entities).chain(of_pairs.map(|pair| vec![pair])).map(compute).collect())
}

/// Pairs of a source and a destination, numbered.
struct Pairs {
    /// By event; [`Events::NO_NODE`] where an end is missing.
    of_event: Vec<u32>,
    count: usize,
}

impl Pairs {
    fn of(src: &[u32], dst: &[u32]) -> Self {
        let mut numbers = HashMap::new();
        let number = |(&src, &dst): (&u32, &u32)| {
            if src == Events::NO_NODE || dst == Events::NO_NODE {
                return Events::NO_NODE;
            }
            let next = numbers.len() as u32;
            *numbers.entry((src, dst)).or_insert(next)
        };
        let of_event = src.iter().zip(dst).map(number).collect();
        Self { of_event, count: numbers.len() }
    }
}
