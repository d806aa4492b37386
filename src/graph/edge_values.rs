//! Weights, times and values of edges: raw little-endian arrays beside the adjacency, read when they are asked for.

use std::borrow::Cow;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::array::Array;
use super::checksums::Checksums;
use super::formats::{map_file, parent_of, write_new};
use crate::error::{Error, Result};

/// Columns of values that a relation has at most: operators keep those of an edge at hand.
pub const MAX_EDGE_COLUMNS: usize = 16;

/// The largest weight of an edge that models read: sums of weights stay far from the end of f32, and one that is taken
/// for certain can be much larger.
pub const MAX_EDGE_WEIGHT: f32 = 1e12;

/// What the edges of one relation carry, one of each per entry in the order of `col_idx`.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeValues {
    /// Name of the relation.
    pub relation: String,
    /// Weight of each entry.
    pub weight: Option<Values<f32>>,
    /// Time of each entry, in seconds since 1970.
    pub time: Option<Values<i64>>,
    /// Values for models.
    pub columns: Option<EdgeColumns>,
}

impl EdgeValues {
    /// The weights of a relation of `entries` edges as models read them, a column; `None` where it has none.
    ///
    /// # Errors
    /// As [`Values::read`]; [`Error::Format`] or [`Error::Data`] for a weight below 0 or above [`MAX_EDGE_WEIGHT`].
    pub fn read_weights(&self, entries: usize) -> Result<Option<EdgeMatrix>> {
        let Some(weight) = &self.weight else { return Ok(None) };
        let values = weight.read(entries)?.into_owned();
        match values.par_iter().position_first(|value| !(0.0..=MAX_EDGE_WEIGHT).contains(value)) {
            None => Ok(Some(EdgeMatrix::new(values, 1))),
            Some(at) => {
                let help = "a weight says how much an edge counts: name another column as `weight` of the [[edges]] \
                            table and import it again";
                let expected = format!("a number from 0 to {MAX_EDGE_WEIGHT:e}");
                Err(weight.refused(format!("weight of entry {at} of `{}`", self.relation), expected, values[at], help))
            }
        }
    }
}

/// Named columns of values, row after row.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeColumns {
    /// At most [`MAX_EDGE_COLUMNS`].
    pub names: Vec<String>,
    /// As many of each entry.
    pub values: Values<f32>,
}

/// What an import makes of a column beside or in place of one of its own name.
const PARTS: [&str; 8] =
    ["frequency", "hour_sin", "hour_cos", "weekday_sin", "weekday_cos", "yearday_sin", "yearday_cos", "recency"];

/// By name of a column of values the place of the one that is 1 where an edge lacks the value, where there is one: of
/// `amount` and of `amount_frequency` that is `amount_missing`, as an import calls it.
pub fn missing_flags(names: &[String]) -> Vec<Option<usize>> {
    let flag_of = |of: &str| names.iter().position(|flag| flag.strip_suffix("_missing") == Some(of));
    let flag = |name: &String| {
        let of_part = |part: &&str| flag_of(name.strip_suffix(part)?.strip_suffix('_')?);
        flag_of(name).or_else(|| PARTS.iter().find_map(of_part))
    };
    names.iter().map(flag).collect()
}

/// Values of edges in memory: a row per entry.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeMatrix {
    width: usize,
    values: Vec<f32>,
}

impl EdgeMatrix {
    /// Rows of `width` values.
    ///
    /// # Panics
    /// Unless there are whole rows.
    pub fn new(values: Vec<f32>, width: usize) -> Self {
        assert!(width > 0 && values.len().is_multiple_of(width), "EdgeMatrix: expected rows of {width} values");
        Self { width, values }
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of entries.
    pub fn num_entries(&self) -> usize {
        self.values.len() / self.width
    }

    /// Row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Those of an entry.
    ///
    /// # Panics
    /// For an entry that there is not.
    pub fn row(&self, entry: usize) -> &[f32] {
        &self.values[entry * self.width..(entry + 1) * self.width]
    }

    /// The columns of `self` and, behind them, those of `other`, which has as many entries.
    ///
    /// # Panics
    /// For another number of entries.
    pub fn beside(&self, other: &Self) -> Self {
        let entries = self.num_entries();
        assert!(entries == other.num_entries(), "EdgeMatrix: expected {entries} rows, got {}", other.num_entries());
        let values = (0..entries).flat_map(|entry| self.row(entry).iter().chain(other.row(entry))).copied().collect();
        Self { width: self.width + other.width, values }
    }

    /// The rows of some, which are equally wide, one behind another.
    ///
    /// # Panics
    /// Without any, and for rows of other widths.
    pub fn joined(parts: &[&Self]) -> Self {
        let width = parts.first().map_or(0, |part| part.width);
        assert!(width > 0 && parts.iter().all(|part| part.width == width), "EdgeMatrix: expected rows of one width");
        Self { width, values: parts.iter().flat_map(|part| &part.values).copied().collect() }
    }

    /// Those of some entries, in their order.
    ///
    /// # Panics
    /// For an entry that there is not.
    pub fn picked(&self, entries: impl IntoIterator<Item = usize>) -> Self {
        let values = entries.into_iter().flat_map(|entry| self.row(entry)).copied().collect();
        Self { width: self.width, values }
    }
}

impl EdgeColumns {
    /// The values of a relation of `entries` edges, called `relation`.
    ///
    /// # Errors
    /// As [`Values::read`]; [`Error::Format`] or [`Error::Data`] for a value that is not finite.
    pub fn read(&self, relation: &str, entries: usize) -> Result<EdgeMatrix> {
        let width = self.names.len();
        let values = self.values.read_rows(entries, width)?.into_owned();
        let Some(at) = values.par_iter().position_first(|value| !value.is_finite()) else {
            return Ok(EdgeMatrix::new(values, width));
        };
        let place = format!("entry {} of `{relation}`, column `{}`", at / width, self.names[at % width]);
        let help = match &self.values {
            Values::File(_) => "the file is damaged; import the tables again",
            Values::Made(_) => "give every edge a finite value",
        };
        Err(self.values.refused(place, "a finite number".into(), values[at], help))
    }

    /// Whether they are as many as a relation may have, each with a name of its own.
    pub(super) fn check(&self, relation: &str) -> Result<()> {
        let is_repeated = |at: &usize| self.names[..*at].contains(&self.names[*at]);
        let found = match (0..self.names.len()).find(is_repeated) {
            Some(at) => format!("`{}` twice", self.names[at]),
            None if (1..=MAX_EDGE_COLUMNS).contains(&self.names.len()) => return Ok(()),
            None => self.names.len().to_string(),
        };
        Err(Error::Data {
            what: format!("columns of values of the edges of `{relation}`"),
            expected: format!("1 to {MAX_EDGE_COLUMNS}, every name once"),
            found,
            help: "leave some of them out".into(),
        })
    }
}

/// Values that were made, or the file that holds them.
#[derive(Debug, Clone, PartialEq)]
pub enum Values<T: bytemuck::Pod> {
    /// In memory, or on disk where there was too little of it.
    Made(Array<T>),
    /// In a file of raw values, not read yet.
    File(PathBuf),
}

impl Values<f32> {
    /// The error of a value, with the file that holds it.
    fn refused(&self, place: String, expected: String, found: f32, help: &str) -> Error {
        let found = found.to_string();
        match self {
            Self::File(path) => Error::format(path, place, expected, found, help),
            Self::Made(_) => Error::Data { what: place, expected, found, help: help.into() },
        }
    }
}

impl<T: bytemuck::Pod> Values<T> {
    /// All values, of a relation of `entries` edges.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file of another length or that is not what was written, [`Error::Data`]
    /// for values of another number.
    pub fn read(&self, entries: usize) -> Result<Cow<'_, [T]>> {
        self.read_rows(entries, 1)
    }

    /// The same of `width` values an edge.
    fn read_rows(&self, entries: usize, width: usize) -> Result<Cow<'_, [T]>> {
        let count = entries * width;
        match self {
            Self::Made(values) if values.len() == count => Ok(Cow::Borrowed(values)),
            Self::Made(values) => Err(Error::Data {
                what: "values of edges".into(),
                expected: format!(
                    "{count}, {}",
                    if width == 1 { "one per edge".into() } else { format!("{width} per edge") }
                ),
                found: values.len().to_string(),
                help: "give every edge of the relation its values".into(),
            }),
            Self::File(path) => {
                let bytes = count as u64 * size_of::<T>() as u64;
                let found = fs::metadata(path).map_err(|source| Error::io(path, "read", source))?.len();
                if found != bytes {
                    let expected = format!("{bytes} bytes: {entries} edges x {} bytes", width * size_of::<T>());
                    let help = "the file is truncated or belongs to another relation; write the directory again";
                    return Err(Error::format(path, "file length", expected, format!("{found} bytes"), help));
                }
                let values = bytemuck::pod_collect_to_vec(&map_file(path)?);
                Checksums::read(parent_of(path))?.check(path)?;
                Ok(Cow::Owned(values))
            }
        }
    }

    /// Writes the raw values, `width` an edge, to a new file.
    pub(super) fn write(&self, path: &Path, entries: usize, width: usize) -> Result<()> {
        let values = self.read_rows(entries, width)?;
        write_new(path, |file| match self {
            Self::Made(made) => made.pieces().try_for_each(|piece| file.write_all(bytemuck::cast_slice(piece))),
            Self::File(_) => file.write_all(bytemuck::cast_slice(&values)),
        })
    }
}
