//! When the nodes of a graph happened, and what of them was known at which time.

use std::path::Path;

use ndarray::Array1;
use ndarray_npy::{WritableElement, WriteNpyExt};
use rayon::prelude::*;

use super::formats::{is_present, write_new};
use super::hetero::HeteroGraph;
use super::npy::Npy;
use crate::error::{Error, Result};

const TIME_FILE: &str = "event_time.npy";
const KNOWN_FILE: &str = "label_known.npy";
const AMOUNT_FILE: &str = "event_amount.npy";
const VALUE_FILE: &str = "event_value.npy";
const ALERT_FILE: &str = "event_alert.npy";

/// Times and amounts of the nodes that are events, by global id; times are seconds since 1970.
///
/// A node without a time is an entity: a customer, a terminal. Nothing of an entity changes, so whatever uses events
/// may read its features at any time, but may give it no state that events entered.
#[derive(Debug, Clone, PartialEq)]
pub struct Events {
    /// When each event happened; [`NO_TIME`](Self::NO_TIME) for an entity.
    pub time: Vec<i64>,
    /// When the label of each event became known; [`NEVER`](Self::NEVER) for a node without a label.
    pub known: Vec<i64>,
    /// What a fraudulent event costs; NaN for a node without one.
    pub amount: Option<Vec<f32>>,
    /// What windows sum, where that is something else than the amount; NaN for a node without it.
    pub value: Option<Vec<f32>>,
    /// The entity that an alert about an event blocks, such as its card, by global id; [`NO_NODE`](Self::NO_NODE) for
    /// none.
    pub alert: Option<Vec<u32>>,
}

impl Events {
    /// Stands for no time.
    pub const NO_TIME: i64 = i64::MIN;
    /// Stands for a label that never becomes known.
    pub const NEVER: i64 = i64::MAX;
    /// Stands for no node.
    pub const NO_NODE: u32 = u32::MAX;

    /// The time of a node, if it is an event.
    pub fn time_of(&self, node: u32) -> Option<i64> {
        self.time.get(node as usize).copied().filter(|&time| time != Self::NO_TIME)
    }

    /// What windows sum, by node; `None` where there is nothing.
    pub fn values(&self) -> Option<&[f32]> {
        self.value.as_deref().or(self.amount.as_deref())
    }

    /// The first and the last time of the events that `wanted` names, by global id.
    pub fn ends(&self, wanted: impl Fn(u32) -> bool) -> Option<[i64; 2]> {
        let times = (0..self.time.len() as u32).filter(|&node| wanted(node)).filter_map(|node| self.time_of(node));
        times.fold(None, |ends: Option<[i64; 2]>, time| {
            let [first, last] = ends.unwrap_or([time; 2]);
            Some([time.min(first), time.max(last)])
        })
    }

    /// Whether the rows of a graph that are spans have what came before them, in the order of time: that is how the
    /// latest are found, and how nothing is told of what comes later.
    ///
    /// # Errors
    /// [`Error::Data`] that names the relation.
    pub(super) fn check_spans(&self, graph: &HeteroGraph) -> Result<()> {
        for relation in graph.relations().iter().filter(|relation| relation.forward.is_spans()) {
            let [dst, src] = [relation.dst, relation.src].map(|t| graph.node_types()[t].offset);
            let refuse = |what: String, expected: &str, found: &str| Error::Data {
                what,
                expected: expected.into(),
                found: found.into(),
                help: "import the tables again".into(),
            };
            let time = |node: u32| self.time[src + node as usize];
            if !relation.forward.rows_ascend_by(time) {
                let what = format!("rows of relation `{}`", relation.name);
                return Err(refuse(what, "spans of events in the order of time", "a later one before an earlier one"));
            }
            let is_late = |&row: &usize| {
                let (last, own) = (relation.forward.row(row).last(), self.time[dst + row]);
                own != Self::NO_TIME && last.is_some_and(|&last| time(last) >= own)
            };
            if let Some(row) = (0..relation.forward.num_rows()).into_par_iter().find_first(is_late) {
                let what = format!("row {row} of relation `{}`", relation.name);
                return Err(refuse(what, "events before its own", "one that is not"));
            }
        }
        Ok(())
    }

    /// Reads what a data directory holds; `None` without times.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for an array of another type or length, or an entity that is no node.
    pub(super) fn read(dir: &Path, num_nodes: usize) -> Result<Option<Self>> {
        let path = dir.join(TIME_FILE);
        if !is_present(&path) {
            return Ok(None);
        }
        let optional = |name: &str| Some(dir.join(name)).filter(|path| is_present(path));
        let time = integers(&path, num_nodes)?;
        let known = match optional(KNOWN_FILE) {
            Some(path) => integers(&path, num_nodes)?,
            None => time.clone(),
        };
        let amount = optional(AMOUNT_FILE).map(|path| floats(&path, num_nodes)).transpose()?;
        let value = optional(VALUE_FILE).map(|path| floats(&path, num_nodes)).transpose()?;
        let alert = optional(ALERT_FILE).map(|path| nodes(&path, num_nodes)).transpose()?;
        Ok(Some(Self { time, known, amount, value, alert }))
    }

    /// Writes the files and returns their names.
    pub(super) fn write(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names = vec![TIME_FILE.to_owned(), KNOWN_FILE.to_owned()];
        write(&dir.join(TIME_FILE), &self.time)?;
        write(&dir.join(KNOWN_FILE), &self.known)?;
        for (name, numbers) in [(AMOUNT_FILE, &self.amount), (VALUE_FILE, &self.value)] {
            if let Some(numbers) = numbers {
                write(&dir.join(name), numbers)?;
                names.push(name.to_owned());
            }
        }
        if let Some(alert) = &self.alert {
            let signed = |&node: &u32| if node == Self::NO_NODE { -1 } else { i64::from(node) };
            write(&dir.join(ALERT_FILE), &alert.iter().map(signed).collect::<Vec<_>>())?;
            names.push(ALERT_FILE.to_owned());
        }
        Ok(names)
    }

    /// Checks that every array has a value per node.
    pub(super) fn check(&self, num_nodes: usize) -> Result<()> {
        let lengths = [
            Some(self.time.len()),
            Some(self.known.len()),
            self.amount.as_ref().map(Vec::len),
            self.value.as_ref().map(Vec::len),
            self.alert.as_ref().map(Vec::len),
        ];
        match lengths.into_iter().flatten().find(|&length| length != num_nodes) {
            None => Ok(()),
            Some(found) => Err(Error::Data {
                what: "times and amounts of events".into(),
                expected: format!("{num_nodes} values, one per node"),
                found: found.to_string(),
                help: "give every node one value".into(),
            }),
        }
    }
}

const HELP: &str = "these files are made by `graphsieve import`; import the tables again";

fn open(path: &Path, num_nodes: usize) -> Result<Npy> {
    let npy = Npy::open(path)?;
    match npy.shape() == [num_nodes] {
        true => Ok(npy),
        false => Err(npy.error("shape", format!("[{num_nodes}]"), format!("{:?}", npy.shape()), HELP)),
    }
}

fn integers(path: &Path, num_nodes: usize) -> Result<Vec<i64>> {
    let npy = open(path, num_nodes)?;
    let time = |(node, value): (usize, i128)| {
        let fault = |_| npy.error(format!("node {node}"), "64 bits", value.to_string(), HELP);
        i64::try_from(value).map_err(fault)
    };
    npy.integers(HELP)?.enumerate().map(time).collect()
}

fn nodes(path: &Path, num_nodes: usize) -> Result<Vec<u32>> {
    let npy = open(path, num_nodes)?;
    let node = |(node, value): (usize, i128)| match u32::try_from(value) {
        _ if value == -1 => Ok(Events::NO_NODE),
        Ok(entity) if (entity as usize) < num_nodes => Ok(entity),
        _ => Err(npy.error(format!("node {node}"), format!("-1 or below {num_nodes}"), value.to_string(), HELP)),
    };
    npy.integers(HELP)?.enumerate().map(node).collect()
}

fn floats(path: &Path, num_nodes: usize) -> Result<Vec<f32>> {
    open(path, num_nodes)?.floats(HELP)
}

fn write<T: WritableElement + Clone>(path: &Path, values: &[T]) -> Result<()> {
    let values: Array1<T> = values.iter().cloned().collect();
    write_new(path, |file| values.write_npy(file).map_err(std::io::Error::other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Events::read(dir.path(), 3).unwrap(), None);
        let events = Events {
            time: vec![Events::NO_TIME, -5, 7],
            known: vec![Events::NEVER, 2, Events::NEVER],
            amount: Some(vec![0.0, 2.5, 1e30]),
            value: Some(vec![-1.0, 0.0, 7.5]),
            alert: Some(vec![Events::NO_NODE, 0, 0]),
        };
        assert_eq!(events.write(dir.path()).unwrap().len(), 5);
        assert_eq!(Events::read(dir.path(), 3).unwrap(), Some(events));
        let error = Events::read(dir.path(), 4).unwrap_err().to_string();
        assert!(error.contains("event_time.npy") && error.contains("[4]"), "{error}");
    }
}
