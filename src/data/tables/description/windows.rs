//! `[[windows]]`: windowed features of events.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::{NodeTable, Span, SplitBy, wrong};
use crate::data::windows::{Measure, OtherMeasure};
use crate::error::Result;

/// One `[[windows]]` table: windowed features of the events of a node table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowTable {
    /// Node type of the events; may be left out where there is one table with times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Column of the values that are summed; default: the amount of the events, which have one value: of several tables
    /// for one type the first decides, and no other names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Lengths of the windows. Default: those that suit the training rows, see
    /// [`WindowConfig::suited_to`](crate::data::windows::WindowConfig::suited_to).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Vec<Span>>,
    /// Numbers of events that a window over the last events holds. Default: likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Vec<usize>>,
    /// Lengths of the windows over the other members of an entity, such as the other customers of a terminal. Default:
    /// likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_hop: Option<Vec<Span>>,
    /// What is computed over windows of time, in whatever order; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measures: Option<Vec<Measure>>,
    /// What is computed over windows of the last events, in whatever order; default: the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_measures: Option<Vec<Measure>>,
    /// What is computed over windows of one hop, in whatever order; default: z and over_mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_hop_measures: Option<Vec<OtherMeasure>>,
    /// Whether there are windows over the earlier events of the same two ends, too. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pairs: bool,
    /// Whether labels are counted: in a split by time those that are known by then, which takes `delay` or `known` of
    /// the labels; in a split at random those of training rows. Default: where that can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<bool>,
    /// Whether there are the same windows once more over later events, unless the split is by time. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
}

impl WindowTable {
    /// Whether it is about the events of a node table.
    pub(crate) fn is_of(&self, table: &NodeTable) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| *nodes == table.node_type)
    }

    /// Refuses windows that hold nothing, two windows of one name, and such of later events in a split by time.
    pub(super) fn check(&self, split: SplitBy) -> Result<()> {
        let wrong = |key: &str, expected: &str, found: String, help: &str| {
            Err(wrong(format!("windows.{key}"), expected, found, help))
        };
        if self.last.iter().flatten().any(|&last| last == 0) {
            return wrong("last", "numbers of events above 0", "0".into(), "for example last = [1, 5, 20]");
        }
        if self.ahead && split == SplitBy::Time {
            let expected = "false where the split is by time: a row of the test would be told by what comes after it";
            let help = "leave it out; or, for a table that is scored as a whole when all of it is over, write [split] \
                        by = \"random\"";
            return wrong("ahead", expected, "true".into(), help);
        }
        let again =
            [("spans", repeated(&self.spans)), ("one_hop", repeated(&self.one_hop)), ("last", repeated(&self.last))];
        match again.into_iter().find_map(|(key, again)| Some((key, again?))) {
            Some((key, again)) => wrong(key, "every window once", format!("{again} twice"), "remove one of them"),
            None => Ok(()),
        }
    }
}

/// Refuses a value other than the one that the first of the tables for the events of `of` has, which decides.
pub(super) fn check_values(tables: &[WindowTable], of: &NodeTable) -> Result<()> {
    let name = &of.node_type;
    let mut own = tables.iter().filter(|table| table.is_of(of));
    let first = own.next().and_then(|table| table.value.as_ref()).or(of.amount.as_ref());
    let Some(other) = own.find_map(|table| table.value.as_ref().filter(|&value| Some(value) != first)) else {
        return Ok(());
    };
    let as_first = format!("as of the first [[windows]] table of `{name}`");
    let (expected, help) = match first {
        Some(first) => (format!("{first:?}, {as_first}"), "events have one value: leave it out".to_owned()),
        None => (format!("none, {as_first}"), "events have one value: name it in the first table".to_owned()),
    };
    Err(wrong("windows.value", expected, format!("{other:?}"), help))
}

/// The first of a list that is there already.
fn repeated<T: PartialEq + Display>(list: &Option<Vec<T>>) -> Option<String> {
    let list = list.as_deref().unwrap_or_default();
    (1..list.len()).find(|&at| list[..at].contains(&list[at])).map(|at| list[at].to_string())
}
