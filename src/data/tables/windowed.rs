//! Windowed features of the tables of events.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::description::{Description, NodeTable, Span, SplitBy, WindowTable as Wanted};
use super::events::{Named, known, numbers, times, wrong_key};
use super::nodes::{Fact, NodeType};
use crate::data::windows::{self, Entity, EventColumns, KnownLabels, Measure, OtherMeasure, WindowConfig, WindowTable};
use crate::error::Result;
use crate::graph::Events;

/// Windows of the events of one type.
pub(super) struct Windowed {
    /// Index of the node type.
    pub node_type: usize,
    pub table: WindowTable,
}

/// How far the windows of one `[[windows]]` table reach, in `import.json`: as the description says, otherwise as suits
/// the fitted rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FittedWindows {
    spans: Vec<Span>,
    last: Vec<usize>,
    one_hop: Vec<Span>,
}

impl FittedWindows {
    fn of(config: &WindowConfig) -> Self {
        let spans = |seconds: &[i64]| seconds.iter().copied().map(Span).collect();
        Self { spans: spans(&config.spans), last: config.last.clone(), one_hop: spans(&config.one_hop) }
    }

    /// What the user should know where the description leaves something to the data.
    pub fn note(&self, wanted: &Wanted) -> Option<String> {
        let list = |key: &str, items: Vec<String>| match items.is_empty() {
            true => format!("{key} none"),
            false => format!("{key} {}", items.join(" ")),
        };
        let spans = |key, spans: &[Span]| list(key, spans.iter().map(Span::to_string).collect());
        let last = || list("last", self.last.iter().map(usize::to_string).collect());
        let chosen = [
            wanted.spans.is_none().then(|| spans("spans", &self.spans)),
            wanted.last.is_none().then(last),
            wanted.one_hop.is_none().then(|| spans("one_hop", &self.one_hop)),
        ];
        let chosen: Vec<String> = chosen.into_iter().flatten().collect();
        let nodes = wanted.nodes.as_ref().map_or(String::new(), |nodes| format!(" of `{nodes}`"));
        (!chosen.is_empty()).then(|| format!("windows{nodes} that suit the training rows: {}", chosen.join(", ")))
    }
}

/// What windows are computed from.
pub(super) struct Windows<'a> {
    pub types: &'a [NodeType],
    pub description: &'a Description,
    pub named: &'a [Named],
    /// By global id: what may be learned from.
    pub is_fitted: &'a [bool],
    /// How far windows reach in the import whose transforms are applied, by `[[windows]]` table.
    pub with: Option<&'a [FittedWindows]>,
}

impl Windows<'_> {
    /// Computes what the `[[windows]]` of the description ask for, and says how far those of each table reach.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for windows of nodes that are no events, and for windows of labels where
    /// the split is not by time or nothing says when they become known.
    pub fn compute(&self, progress: &dyn Fn(u64, u64)) -> Result<(Vec<Windowed>, Vec<FittedWindows>)> {
        let (mut windowed, mut fitted) = (Vec::new(), Vec::new());
        for (at, wanted) in self.description.windows.iter().enumerate() {
            let (made, reach) = self.of_table(at, wanted, progress)?;
            windowed.extend(made);
            fitted.push(reach);
        }
        Ok((windowed, fitted))
    }

    fn of_table(
        &self,
        at: usize,
        wanted: &Wanted,
        progress: &dyn Fn(u64, u64),
    ) -> Result<(Vec<Windowed>, FittedWindows)> {
        let Self { types, description, named, .. } = *self;
        let mut of_events = description.nodes.iter().enumerate().filter(|(_, table)| table.time.is_some());
        let found = match &wanted.nodes {
            Some(name) => of_events.find(|(_, table)| table.node_type == *name),
            None => of_events.next().filter(|_| of_events.next().is_none()),
        };
        let Some((node_type, table)) = found else {
            let expected = "the type of a [[nodes]] table with a time";
            let found = wanted.nodes.clone().unwrap_or_default();
            let help = "name the type of the events: nodes = \"payment\"";
            return Err(wrong_key("windows.nodes", expected, &found, help));
        };
        let has_labels = self.has_labels(wanted, table)?;
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
        let delay = table.label.as_ref().and_then(|label| label.delay).map(|delay| delay.0);
        let labels = Some(KnownLabels { label: &of_type.labels, known: &known, delay });
        let events = |entities| EventColumns { times: &times, values: values.as_deref(), labels, entities };
        let events_of_entities = events(entities);
        let offset: usize = types[..node_type].iter().map(|before| before.ids.len()).sum();
        let is_fitted = &self.is_fitted[offset..][..times.len()];
        let windows = self.config(at, wanted, has_labels, &events_of_entities, is_fitted);
        let compute = |events| Windowed { node_type, table: windows::compute(events, &windows, progress) };
        let mut made = vec![compute(&events_of_entities)];
        // Apart, because what the events of a pair have to do with others is what those of its ends have.
        if let Some(Pairs { of_event, count }) = &pairs {
            made.push(compute(&events(vec![Entity { name: "pair", of_event, count: *count }])));
        }
        Ok((made, FittedWindows::of(&windows)))
    }

    /// Whether known labels are counted.
    fn has_labels(&self, wanted: &Wanted, table: &NodeTable) -> Result<bool> {
        let may_be = self.description.split.by == SplitBy::Time
            && table.label.as_ref().is_some_and(|label| label.delay.is_some() || label.known.is_some());
        if wanted.labels == Some(true) && !may_be {
            let expected = "false, unless labels have `delay` or `known` and the split is by time: otherwise they tell of the test";
            let help = "write label = { column = \"...\", delay = \"7d\" } and [split] by = \"time\", or leave it out";
            return Err(wrong_key("windows.labels", expected, "true", help));
        }
        let has_labels = wanted.labels.unwrap_or(may_be);
        if !has_labels && wanted.one_hop_measures.iter().flatten().any(|&measure| measure == OtherMeasure::FraudShare) {
            let expected = "no fraud_share where known labels are not counted";
            let help =
                "fraud_share needs [split] by = \"time\", `delay` or `known` of the labels, and no labels = false";
            return Err(wrong_key("windows.one_hop_measures", expected, "fraud_share", help));
        }
        Ok(has_labels)
    }

    fn config(
        &self,
        at: usize,
        wanted: &Wanted,
        labels: bool,
        events: &EventColumns,
        is_fitted: &[bool],
    ) -> WindowConfig {
        let default = WindowConfig::default();
        let seconds = |spans: &Vec<Span>| spans.iter().map(|span| span.0).collect::<Vec<_>>();
        let suited = match self.with {
            // An import that says nothing of it had the same windows for all data.
            Some(stored) => stored.get(at).map_or(default.clone(), |fitted| WindowConfig {
                spans: seconds(&fitted.spans),
                last: fitted.last.clone(),
                one_hop: seconds(&fitted.one_hop),
                ..default.clone()
            }),
            None => WindowConfig::suited_to(events, is_fitted),
        };
        let own = |wanted: &Option<Vec<Measure>>, default: Vec<Measure>| match wanted {
            Some(wanted) => Measure::ALL.into_iter().filter(|measure| wanted.contains(measure)).collect(),
            None => default,
        };
        WindowConfig {
            spans: wanted.spans.as_ref().map_or(suited.spans, seconds),
            last: wanted.last.clone().unwrap_or(suited.last),
            one_hop: wanted.one_hop.as_ref().map_or(suited.one_hop, seconds),
            labels,
            measures: own(&wanted.measures, default.measures),
            last_measures: own(&wanted.last_measures, default.last_measures),
            one_hop_measures: match &wanted.one_hop_measures {
                Some(wanted) => OtherMeasure::ALL.into_iter().filter(|measure| wanted.contains(measure)).collect(),
                None => default.one_hop_measures,
            },
        }
    }
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
