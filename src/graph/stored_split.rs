//! The split of the labels that belongs to the data: made once, by import, and read by whatever learns from them.

use std::fmt;
use std::path::Path;

use ndarray::Array2;
use ndarray_npy::WriteNpyExt;
use serde::{Deserialize, Serialize};

use super::formats::{is_present, write_new};
use super::json::read_json;
use super::npy::Npy;
use crate::error::{Error, Result};

const HELP: &str = "the split is made by `graphsieve import`; import the tables again, or remove both files";
const RULE_FILE: &str = "split.json";
const PARTS_FILE: &str = "split.npy";

/// How the labels were divided, and the part of every node.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSplit {
    /// What the parts were made by.
    pub rule: SplitRule,
    /// By window and global id: 0 in no part, 1 training, 2 validation, 3 test. There is one window unless the split is
    /// by time.
    pub windows: Vec<Vec<u8>>,
    /// The window that is looked at, counted from 0; it is chosen, not stored.
    pub window: usize,
}

/// What decides about the part of a label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum SplitRule {
    /// A draw, stratified by label and node type.
    Random { seed: u64, train: f64, validation: f64, test: f64 },
    /// A draw of whole groups: nodes that are connected through nodes of these types stay together.
    Group { groups: Vec<String>, seed: u64, train: f64, validation: f64, test: f64 },
    /// The time of the event; windows in turn.
    Time {
        windows: Vec<TimeWindow>,
        /// Events of these entities count in validation and test only while no fraud of theirs is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocked: Option<String>,
    },
}

/// Times of the three parts: seconds since 1970, from and up to but not including.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeWindow {
    pub train: [i64; 2],
    pub validation: [i64; 2],
    pub test: [i64; 2],
}

impl TimeWindow {
    /// Up to here, and not including it, a training may know what happens.
    pub fn known_until(&self) -> i64 {
        self.validation[1].max(self.train[1])
    }
}

impl StoredSplit {
    /// One window: the nodes of each part.
    pub fn of_parts(rule: SplitRule, num_nodes: usize, parts: [&[(u32, u8)]; 3]) -> Self {
        let mut of_node = vec![0; num_nodes];
        for (part, nodes) in (1..).zip(parts) {
            nodes.iter().for_each(|&(node, _)| of_node[node as usize] = part);
        }
        Self { rule, windows: vec![of_node], window: 0 }
    }

    /// The part of every node in the window that is looked at.
    pub fn parts(&self) -> &[u8] {
        &self.windows[self.window]
    }

    /// The times of the window that is looked at, of a split by time.
    pub fn times(&self) -> Option<TimeWindow> {
        match &self.rule {
            SplitRule::Time { windows, .. } => windows.get(self.window).copied(),
            _ => None,
        }
    }

    /// The same split, looked at through another window, counted from 0.
    pub fn at(self, window: usize) -> Option<Self> {
        (window < self.windows.len()).then_some(Self { window, ..self })
    }

    /// How many windows the split of a data directory has: one where there is none, or it is not by time.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a damaged file.
    pub fn count(dir: &Path) -> Result<usize> {
        Ok(read_rule(dir)?.map_or(1, |rule| rule.windows()))
    }

    /// Reads what a data directory holds, if anything.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for files that do not belong together or to `num_nodes` nodes.
    pub(super) fn read(dir: &Path, num_nodes: usize) -> Result<Option<Self>> {
        let Some(rule) = read_rule(dir)? else { return Ok(None) };
        let count = rule.windows();
        let npy = Npy::open(&dir.join(PARTS_FILE))?;
        if npy.shape() != [count, num_nodes] {
            let expected = format!("[{count}, {num_nodes}]: windows, nodes");
            return Err(npy.error("shape", expected, format!("{:?}", npy.shape()), HELP));
        }
        let part = |(at, value): (usize, i128)| match u8::try_from(value) {
            Ok(part) if part <= 3 => Ok(part),
            _ => {
                let place = format!("window {}, node {}", at / num_nodes, at % num_nodes);
                Err(npy.error(place, "0, 1, 2 or 3", value.to_string(), HELP))
            }
        };
        let parts: Vec<u8> = npy.integers(HELP)?.enumerate().map(part).collect::<Result<_>>()?;
        let windows = (0..count).map(|window| parts[window * num_nodes..(window + 1) * num_nodes].to_vec()).collect();
        Ok(Some(Self { rule, windows, window: 0 }))
    }

    /// Writes the files and returns their names.
    pub(super) fn write(&self, dir: &Path) -> Result<Vec<String>> {
        write_new(&dir.join(RULE_FILE), |file| Ok(serde_json::to_writer_pretty(file, &self.rule)?))?;
        let nodes = self.windows.first().map_or(0, Vec::len);
        let parts = Array2::from_shape_fn((self.windows.len(), nodes), |(window, node)| self.windows[window][node]);
        write_new(&dir.join(PARTS_FILE), |file| parts.write_npy(file).map_err(std::io::Error::other))?;
        Ok([RULE_FILE, PARTS_FILE].map(str::to_owned).into())
    }

    /// Checks that there is a part per node and window.
    pub(super) fn check(&self, num_nodes: usize) -> Result<()> {
        match self.windows.iter().find(|parts| parts.len() != num_nodes) {
            None if !self.windows.is_empty() => Ok(()),
            found => Err(Error::Data {
                what: "the split of the data".into(),
                expected: format!("at least one window of {num_nodes} parts, one per node"),
                found: found.map_or("none".into(), |parts| parts.len().to_string()),
                help: "give every node a part, 0 for none".into(),
            }),
        }
    }
}

fn read_rule(dir: &Path) -> Result<Option<SplitRule>> {
    let path = dir.join(RULE_FILE);
    if !is_present(&path) {
        return Ok(None);
    }
    read_json(&path, "a split by random, group or time", HELP).map(Some)
}

impl SplitRule {
    fn windows(&self) -> usize {
        match self {
            SplitRule::Time { windows, .. } => windows.len(),
            _ => 1,
        }
    }
}

impl fmt::Display for StoredSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            SplitRule::Random { seed, train, validation, test } => {
                write!(f, "at random, {train} / {validation} / {test}, seed {seed}")
            }
            SplitRule::Group { groups, seed, train, validation, test } => {
                write!(f, "by group ({}), {train} / {validation} / {test}, seed {seed}", groups.join(", "))
            }
            SplitRule::Time { windows, .. } => {
                write!(f, "by time")?;
                let Some(window) = windows.get(self.window) else { return Ok(()) };
                for (name, [from, to]) in
                    [("training", window.train), ("validation", window.validation), ("test", window.test)]
                {
                    write!(f, ", {name} from {} to {}", date(from), date(to))?;
                }
                if windows.len() > 1 {
                    write!(f, " (window {} of {})", self.window + 1, windows.len())?;
                }
                Ok(())
            }
        }
    }
}

/// A time in words: `2018-07-25`, with the time of day unless it is midnight.
pub fn date(time: i64) -> String {
    let date = chrono::DateTime::from_timestamp(time, 0).unwrap_or_default();
    let pattern = if time.rem_euclid(86_400) == 0 { "%Y-%m-%d" } else { "%Y-%m-%d %H:%M:%S" };
    date.format(pattern).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(StoredSplit::read(dir.path(), 3).unwrap(), None);
        let window = TimeWindow { train: [0, 86_400], validation: [86_400, 90_000], test: [90_000, 100_000] };
        let rule = SplitRule::Time { windows: vec![window; 2], blocked: Some("card".into()) };
        let split = StoredSplit { rule, windows: vec![vec![1, 2, 3], vec![0, 1, 3]], window: 0 };
        assert_eq!(
            split.to_string(),
            "by time, training from 1970-01-01 to 1970-01-02, validation from 1970-01-02 to 1970-01-02 01:00:00, test \
             from 1970-01-02 01:00:00 to 1970-01-02 03:46:40 (window 1 of 2)"
        );
        split.write(dir.path()).unwrap();
        assert_eq!(StoredSplit::read(dir.path(), 3).unwrap(), Some(split));
        let error = StoredSplit::read(dir.path(), 2).unwrap_err().to_string();
        assert!(error.contains("split.npy") && error.contains("[2, 2]"), "{error}");
        std::fs::write(dir.path().join("split.json"), "{\"by\": \"luck\"}").unwrap();
        let error = StoredSplit::read(dir.path(), 3).unwrap_err().to_string();
        assert!(error.contains("split.json") && error.contains("luck"), "{error}");
    }
}
