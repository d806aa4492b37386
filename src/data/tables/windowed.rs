//! Windowed features of the tables of events.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::description::{Description, History, NodeTable, Span, SplitBy, WindowTable as Wanted};
use super::events::{Named, known, numbers, times, wrong_key};
use super::nodes::{Fact, NodeType};
use crate::data::windows::{self, Entity, EventColumns, KnownLabels, Measure, OtherMeasure, WindowConfig, WindowTable};
use crate::error::Result;
use crate::graph::{Events, StoredSplit};

/// The part of a stored split that a model learns from.
const TRAINING: u8 = 1;

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
    /// Whether labels of training rows are counted, which takes a split at random.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    training_labels: bool,
}

/// Whose labels windows count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Those that are known by then.
    Known,
    /// Those of training rows.
    Training,
}

impl FittedWindows {
    fn of(config: &WindowConfig, counted: Option<Counted>) -> Self {
        let spans = |seconds: &[i64]| seconds.iter().copied().map(Span).collect();
        Self {
            spans: spans(&config.spans),
            last: config.last.clone(),
            one_hop: spans(&config.one_hop),
            training_labels: counted == Some(Counted::Training),
        }
    }

    /// What the user should know where the description leaves something to the data.
    fn note(&self, wanted: &Wanted) -> Option<String> {
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
        // Of other times there is always a span that suits.
        let is_numbered = [(&wanted.spans, &self.spans), (&wanted.one_hop, &self.one_hop)]
            .into_iter()
            .any(|(wanted, chosen)| wanted.is_none() && chosen.is_empty());
        let why = if is_numbered { " (times are numbers of rows: no spans)" } else { "" };
        let of_nodes = of_nodes(wanted);
        (!chosen.is_empty())
            .then(|| format!("windows{of_nodes} that suit the training rows: {}{why}", chosen.join(", ")))
    }
}

/// Which windows, for a note.
fn of_nodes(wanted: &Wanted) -> String {
    wanted.nodes.as_ref().map_or(String::new(), |nodes| format!(" of `{nodes}`"))
}

/// What windows are computed from.
pub(super) struct Windows<'a> {
    pub types: &'a [NodeType],
    pub description: &'a Description,
    pub named: &'a [Named],
    /// By global id: what may be learned from.
    pub is_fitted: &'a [bool],
    /// The split of the tables, where their labels can be divided.
    pub split: Option<&'a StoredSplit>,
    /// How far windows reach in the import whose transforms are applied, by `[[windows]]` table.
    pub with: Option<&'a [FittedWindows]>,
}

/// All windows of the description.
#[derive(Default)]
pub(super) struct Made {
    pub windowed: Vec<Windowed>,
    /// By `[[windows]]` table.
    pub fitted: Vec<FittedWindows>,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Windows<'_> {
    /// Computes what the `[[windows]]` of the description ask for, and says how far those of each table reach.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for windows of nodes that are no events; for windows of labels where
    /// there are none, where the split is by group, or by time and nothing says when they become known; for windows
    /// ahead that would tell events their own labels; for a window that two tables have; and for another split than the
    /// transforms of `with` need.
    pub fn compute(&self, progress: &dyn Fn(u64, u64)) -> Result<Made> {
        let mut made = Made::default();
        for (at, wanted) in self.description.windows.iter().enumerate() {
            self.add_table(at, wanted, &mut made, progress)?;
        }
        Ok(made)
    }

    fn add_table(&self, at: usize, wanted: &Wanted, made: &mut Made, progress: &dyn Fn(u64, u64)) -> Result<()> {
        let Self { types, description, named, .. } = *self;
        let Some((node_type, table)) = events_of(description, wanted) else {
            let expected = "the type of a [[nodes]] table with a time";
            let found = wanted.nodes.clone().unwrap_or_default();
            let help = "name the type of the events: nodes = \"payment\"";
            return Err(wrong_key("windows.nodes", expected, &found, help));
        };
        let counted = self.counted(at, wanted, table)?;
        let ahead_too = self.counts_ahead(wanted, table, counted)?;
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
        let of_table = || named.iter().filter(move |named| named.events == node_type);
        let called: Vec<_> =
            of_table().map(|named| (named.relation.as_str(), types[named.entity].name.as_str())).collect();
        let names = entity_names(&called, table.ends.as_ref());
        let entities = of_table().zip(names);
        let entities: Vec<Entity> = entities
            .map(|(named, name)| Entity { name, of_event: &named.of_event, count: types[named.entity].ids.len() })
            .collect();
        let offset: usize = types[..node_type].iter().map(|before| before.ids.len()).sum();
        let delay = table.label.as_ref().and_then(|label| label.delay).map(|delay| delay.0);
        let label = match counted {
            Some(Counted::Training) => Cow::from(self.of_training(&of_type.labels, offset)),
            _ => Cow::from(&of_type.labels),
        };
        let labels = Some(KnownLabels { label: &label, known: &known, delay });
        let events = |entities| EventColumns { times: &times, values: values.as_deref(), labels, entities };
        let events_of_entities = events(entities);
        let is_fitted = &self.is_fitted[offset..][..times.len()];
        let suited = match self.with {
            // An import that says nothing of it had the same windows for all data.
            Some(stored) => stored.get(at).map_or_else(WindowConfig::default, FittedWindows::suited),
            None => WindowConfig::suited_to(&events_of_entities, is_fitted),
        };
        let earlier = FittedWindows::config(wanted, counted, suited);
        let later = wanted.ahead.then(|| WindowConfig { ahead: true, labels: ahead_too, ..earlier.clone() });
        // Apart, because what the events of a pair have to do with others is what those of its ends have.
        let of_pairs = pairs.as_ref().map(|Pairs { of_event, count }| {
            let count = *count;
            events(vec![Entity { name: "pair", of_event, count }])
        });
        let of = [Some(&events_of_entities), of_pairs.as_ref()];
        let with_events = |config| of.into_iter().flatten().map(move |events| (events, config));
        let all: Vec<_> = [Some(&earlier), later.as_ref()].into_iter().flatten().flat_map(with_events).collect();
        let others: Vec<&Windowed> = made.windowed.iter().filter(|other| other.node_type == node_type).collect();
        all.iter().try_for_each(|(events, config)| check_once(&table.node_type, events, config, &others))?;
        for (events, config) in all {
            made.windowed.push(Windowed { node_type, table: windows::compute(events, config, progress) });
        }
        let fitted = FittedWindows::of(&earlier, counted);
        made.notes.extend(fitted.note(wanted));
        let of_nodes = of_nodes(wanted);
        if fitted.training_labels && self.split.is_none() && of_type.labels.iter().any(Option::is_some) {
            made.notes.push(format!(
                "windows{of_nodes} count no label: the labels cannot be divided, so none is of training"
            ));
        }
        if wanted.ahead && counted.is_some() && !ahead_too {
            made.notes.push(format!(
                "windows{of_nodes} ahead count no labels, which takes history = 0 and no edges between events: an \
                 earlier event would tell a later one its own"
            ));
        }
        made.fitted.push(fitted);
        Ok(())
    }

    /// The labels of rows in training, of a type whose first node is `first`; of the others none is ever known.
    fn of_training(&self, labels: &[Option<u8>], first: usize) -> Vec<Option<u8>> {
        let is_of_training = |at: usize| self.split.is_some_and(|split| split.parts()[first + at] == TRAINING);
        labels.iter().enumerate().map(|(at, label)| label.filter(|_| is_of_training(at))).collect()
    }

    /// Whose labels are counted, if any are.
    fn counted(&self, at: usize, wanted: &Wanted, table: &NodeTable) -> Result<Option<Counted>> {
        let by = self.description.split.by;
        // An import that says nothing of it did not count them.
        let stored = self.with.map(|stored| stored.get(at).is_some_and(|fitted| fitted.training_labels));
        let may_be = match (by, &table.label) {
            (SplitBy::Time, Some(label)) if label.delay.is_some() || label.known.is_some() => Some(Counted::Known),
            (SplitBy::Random, Some(_)) if stored != Some(false) => Some(Counted::Training),
            _ => None,
        };
        if stored == Some(true) && may_be != Some(Counted::Training) {
            let (key, expected, found) = match table.label {
                Some(_) => ("split.by", "\"random\"", by.name()),
                None => ("nodes.label", "the column of the labels, and [split] by = \"random\"", ""),
            };
            let expected = format!(
                "{expected}, as of the import whose transforms are applied: its windows count labels of training rows"
            );
            let help = "leave [split] out, and name the column of the labels: an empty cell is no label";
            return Err(wrong_key(key, &expected, found, help));
        }
        if wanted.labels == Some(true) && may_be.is_none() {
            let [expected, help] = match (by, &table.label) {
                (_, None) => {
                    ["false where events have no label", "add label = \"COLUMN\" to their table, or leave it out"]
                }
                (SplitBy::Group, _) => [
                    "false where the split is by group: no group of validation or test has a label in training",
                    "split by time or at random, or leave it out",
                ],
                (SplitBy::Time, _) => [
                    "false, unless labels have `delay` or `known`: otherwise they tell of the test",
                    "write label = { column = \"...\", delay = \"7d\" }, or leave it out",
                ],
                (SplitBy::Random, _) => [
                    "false where the import whose transforms are applied counts no labels of training rows",
                    "write [split] as that import has it",
                ],
            };
            return Err(wrong_key("windows.labels", expected, "true", help));
        }
        let counted = may_be.filter(|_| wanted.labels != Some(false));
        let is_share = |&measure: &OtherMeasure| measure == OtherMeasure::FraudShare;
        if counted.is_none() && wanted.one_hop_measures.as_ref().is_some_and(|measures| measures.iter().any(is_share)) {
            let expected = "no fraud_share where labels are not counted";
            let help = "fraud_share needs labels, a split at random or by time, in that by time also their `delay` or \
                        `known`, and no labels = false";
            return Err(wrong_key("windows.one_hop_measures", expected, "fraud_share", help));
        }
        Ok(counted)
    }

    /// Whether windows ahead count labels, too. Those of an earlier event count the label of this one: where events are
    /// joined to earlier ones, a model would read that of every training row from its neighbours.
    fn counts_ahead(&self, wanted: &Wanted, table: &NodeTable, counted: Option<Counted>) -> Result<bool> {
        let is_of_events =
            |name: &str| self.description.nodes.iter().any(|table| table.node_type == name && table.time.is_some());
        let joins_events = self
            .description
            .edges
            .iter()
            .any(|edges| [&edges.src, &edges.dst].iter().all(|end| is_of_events(&end.node_type)));
        let are_joined = table.history != History::Latest(0) || joins_events;
        if wanted.ahead && wanted.labels == Some(true) && are_joined {
            let expected = "no labels = true beside ahead = true where events are joined to earlier ones, whose \
                            windows ahead would tell them their own labels";
            let help = "write history = 0 in the table of the events, and no [[edges]] between events; or leave labels \
                        out: windows ahead count none then";
            return Err(wrong_key("windows.labels", expected, "true", help));
        }
        Ok(counted.is_some() && !are_joined)
    }
}

impl FittedWindows {
    /// The windows that a `[[windows]]` table of an import asks for, where what it leaves open is as `suited`.
    fn config(wanted: &Wanted, counted: Option<Counted>, suited: WindowConfig) -> WindowConfig {
        let default = WindowConfig::default();
        let own = |wanted: &Option<Vec<Measure>>, default: Vec<Measure>| match wanted {
            Some(wanted) => Measure::ALL.into_iter().filter(|measure| wanted.contains(measure)).collect(),
            None => default,
        };
        WindowConfig {
            spans: wanted.spans.as_deref().map_or(suited.spans, seconds),
            last: wanted.last.clone().unwrap_or(suited.last),
            one_hop: wanted.one_hop.as_deref().map_or(suited.one_hop, seconds),
            labels: counted.is_some(),
            last_known: counted == Some(Counted::Training),
            measures: own(&wanted.measures, default.measures),
            last_measures: own(&wanted.last_measures, default.last_measures),
            one_hop_measures: match &wanted.one_hop_measures {
                Some(wanted) => OtherMeasure::ALL.into_iter().filter(|measure| wanted.contains(measure)).collect(),
                None => default.one_hop_measures,
            },
            ahead: false,
        }
    }

    /// As far as these reach.
    fn suited(&self) -> WindowConfig {
        let (spans, one_hop) = (seconds(&self.spans), seconds(&self.one_hop));
        WindowConfig { spans, last: self.last.clone(), one_hop, ..WindowConfig::default() }
    }

    /// The windows of an import that was made, and whether the labels that they count are those of training rows alone.
    pub fn made(&self, wanted: &Wanted, table: &NodeTable, by: SplitBy) -> (WindowConfig, bool) {
        let is_known = by == SplitBy::Time
            && wanted.labels != Some(false)
            && table.label.as_ref().is_some_and(|label| label.delay.is_some() || label.known.is_some());
        let counted = match (self.training_labels, is_known) {
            (true, _) => Some(Counted::Training),
            (false, true) => Some(Counted::Known),
            (false, false) => None,
        };
        (Self::config(wanted, counted, self.suited()), self.training_labels)
    }
}

/// Refuses a window of events of the type `name` that is among `others`, of earlier tables: two columns would have one
/// name. What is of no window, such as how many events there were so far, every table has.
fn check_once(name: &str, events: &EventColumns, config: &WindowConfig, others: &[&Windowed]) -> Result<()> {
    let none = WindowConfig { spans: Vec::new(), last: Vec::new(), one_hop: Vec::new(), ..config.clone() };
    let of_all = windows::column_names(events, &none);
    let alone = [
        ("windows.spans", WindowConfig { spans: config.spans.clone(), ..none.clone() }),
        ("windows.last", WindowConfig { last: config.last.clone(), ..none.clone() }),
        ("windows.one_hop", WindowConfig { one_hop: config.one_hop.clone(), ..none.clone() }),
    ];
    for (key, config) in &alone {
        let is_new = |column: &String| others.iter().all(|other| !other.table.names.contains(column));
        let mut columns = windows::column_names(events, config).into_iter().filter(|column| !of_all.contains(column));
        if let Some(column) = columns.find(|column| !is_new(column)) {
            let expected =
                format!("every window once: an earlier [[windows]] table of `{name}` makes this column, too");
            let help = "remove the window from one table; a list that is left out is what suits the data, [] is none";
            return Err(wrong_key(key, &expected, &column, help));
        }
    }
    Ok(())
}

fn seconds(spans: &[Span]) -> Vec<i64> {
    spans.iter().map(|span| span.0).collect()
}

/// What entities are called in the names of columns, by their relations and types; `ends` are the relations of the
/// source and the destination of events that are edges.
pub(super) fn entity_names<'a>(of: &[(&'a str, &'a str)], ends: Option<&[String; 2]>) -> Vec<&'a str> {
    let type_of = |end: &String| of.iter().find(|(relation, _)| relation == end).map(|(_, node_type)| *node_type);
    // Both ends are of one type: they are called by their place.
    let alike = ends.filter(|[src, dst]| type_of(src).is_some() && type_of(src) == type_of(dst));
    let mut names: Vec<&str> = Vec::new();
    for &(relation, node_type) in of {
        let place = alike.and_then(|ends| ends.iter().position(|end| end == relation));
        let name = place.map_or(node_type, |place| ["src", "dst"][place]);
        // Two relations to one type: the second is called by its own name.
        names.push(if names.contains(&name) { relation } else { name });
    }
    names
}

/// The table of the events that a `[[windows]]` table is of, and its number.
pub(super) fn events_of<'a>(description: &'a Description, wanted: &Wanted) -> Option<(usize, &'a NodeTable)> {
    let mut of_events = description.nodes.iter().enumerate().filter(|(_, table)| table.time.is_some());
    match &wanted.nodes {
        Some(name) => of_events.find(|(_, table)| table.node_type == *name),
        None => of_events.next().filter(|_| of_events.next().is_none()),
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
