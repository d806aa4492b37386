//! `[[windows]]`: windowed features of events.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::Span;
use crate::data::windows::{Measure, OtherMeasure};
use crate::error::{Error, Result};

/// One `[[windows]]` table: windowed features of the events of a node table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowTable {
    /// Node type of the events; may be left out where there is one table with times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Column of the values that are summed; default: the amount of the events.
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
    /// Whether known labels are counted; default: where it is known when labels become known and the split is by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<bool>,
}

impl WindowTable {
    /// Refuses windows that hold nothing, and two windows of one name.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |key: &str, expected: &str, found: String, help: &str| {
            let (key, expected, help) = (format!("windows.{key}"), expected.into(), help.into());
            Err(Error::Config { origin: String::new().into(), key, expected, found, help })
        };
        if self.last.iter().flatten().any(|&last| last == 0) {
            return wrong("last", "numbers of events above 0", "0".into(), "for example last = [1, 5, 20]");
        }
        let again =
            [("spans", repeated(&self.spans)), ("one_hop", repeated(&self.one_hop)), ("last", repeated(&self.last))];
        match again.into_iter().find_map(|(key, again)| Some((key, again?))) {
            Some((key, again)) => wrong(key, "every window once", format!("{again} twice"), "remove one of them"),
            None => Ok(()),
        }
    }
}

/// The first of a list that is there already.
fn repeated<T: PartialEq + Display>(list: &Option<Vec<T>>) -> Option<String> {
    let list = list.as_deref().unwrap_or_default();
    (1..list.len()).find(|&at| list[..at].contains(&list[at])).map(|at| list[at].to_string())
}
