//! Rows of a table on their way: the cells of the columns that were asked for.

use std::path::Path;
use std::sync::Arc;

use super::input::MAX_CELL_BYTES;
use crate::error::{Error, Result, nearest_name};

/// Some rows of one file.
#[derive(Debug)]
pub(super) struct Batch {
    pub path: Arc<Path>,
    /// `"line"` for text, `"row"` for Parquet, which has no lines.
    pub unit: &'static str,
    /// Line or number of each row.
    pub places: Vec<u64>,
    /// One column per name that was asked for, in that order.
    pub columns: Vec<Column>,
    /// Bytes of the file that are read so far.
    pub consumed: u64,
}

/// Cells of one column.
#[derive(Debug, Default)]
pub(super) struct Column {
    text: String,
    ends: Vec<usize>,
    /// The cells are seconds since 1970, however times are written elsewhere.
    pub seconds: bool,
}

impl Batch {
    pub fn num_rows(&self) -> usize {
        self.places.len()
    }

    /// An error about one cell. `found` is shown as it stands.
    pub fn error(&self, row: usize, column: &str, expected: &str, found: &str, help: &str) -> Error {
        let place = format!("{} {}, column `{column}`", self.unit, self.places[row]);
        Error::format(&*self.path, place, expected, shown(found), help)
    }
}

/// A cell as an error shows it: quoted, and not all of it when it is long.
pub(super) fn shown(cell: &str) -> String {
    const MAX: usize = 80;
    match cell.char_indices().nth(MAX) {
        None => format!("{cell:?}"),
        Some((end, _)) => format!("{:?} and more, {} bytes in all", &cell[..end], cell.len()),
    }
}

impl Column {
    pub fn get(&self, row: usize) -> &str {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.text[start..self.ends[row]]
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// So many cells of one text.
    pub fn constant(text: &str, rows: usize) -> Self {
        let ends = (1..=rows).map(|row| row * text.len()).collect();
        Self { text: text.repeat(rows), ends, seconds: false }
    }

    /// Bytes that it takes.
    pub fn num_bytes(&self) -> usize {
        self.text.len() + self.ends.len() * size_of::<usize>()
    }
}

/// Collects the cells of one column before it is known that they are text.
#[derive(Debug, Default)]
pub(super) struct ColumnBuilder {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pub seconds: bool,
}

impl ColumnBuilder {
    pub fn push(&mut self, cell: &[u8]) {
        self.bytes.extend_from_slice(cell);
        self.ends.push(self.bytes.len());
    }

    pub fn num_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Checks that every cell is UTF-8.
    fn finish(self, place: impl Fn(usize) -> (Arc<Path>, String)) -> Result<Column> {
        let Self { bytes, ends, seconds } = self;
        let whole = match String::from_utf8(bytes) {
            // A character must not be cut by the end of a cell either.
            Ok(text) if ends.iter().all(|&end| text.is_char_boundary(end)) => Ok(text),
            Ok(text) => Err(text.into_bytes()),
            Err(refused) => Err(refused.into_bytes()),
        };
        let bytes = match whole {
            Ok(text) => return Ok(Column { text, ends, seconds }),
            Err(bytes) => bytes,
        };
        let mut start = 0;
        let bad =
            ends.iter().position(|&end| std::str::from_utf8(&bytes[std::mem::replace(&mut start, end)..end]).is_err());
        let row = bad.unwrap_or_default();
        let start = if row == 0 { 0 } else { ends[row - 1] };
        let (path, place) = place(row);
        let found = shown(&String::from_utf8_lossy(&bytes[start..ends[row]]));
        let help = "save the table in the encoding UTF-8";
        Err(Error::format(&*path, place, "UTF-8 text", format!("other bytes: {found}"), help))
    }
}

/// Rows that become a [`Batch`].
pub(super) struct BatchBuilder<'a> {
    path: Arc<Path>,
    unit: &'static str,
    names: &'a [String],
    pub places: Vec<u64>,
    pub columns: Vec<ColumnBuilder>,
}

impl<'a> BatchBuilder<'a> {
    pub fn new(path: &Arc<Path>, unit: &'static str, names: &'a [String]) -> Self {
        let columns = names.iter().map(|_| ColumnBuilder::default()).collect();
        Self { path: Arc::clone(path), unit, names, places: Vec::new(), columns }
    }

    /// Whether it is time to hand it on.
    pub fn is_full(&self) -> bool {
        self.places.len() >= 1 << 15 || self.columns.iter().map(ColumnBuilder::num_bytes).sum::<usize>() >= 16 << 20
    }

    /// Refuses a cell that is too large, as an error about the row at `place`.
    pub fn check_cell(&self, column: usize, place: u64, bytes: &[u8]) -> Result<()> {
        if bytes.len() <= MAX_CELL_BYTES {
            return Ok(());
        }
        let place = format!("{} {place}, column `{}`", self.unit, self.names[column]);
        let start = String::from_utf8_lossy(&bytes[..60]);
        let found = format!("{} bytes that start with {start:?}", bytes.len());
        let help = "cells of tables are short; look for a quote that is never closed, or leave the column out";
        Err(Error::format(&*self.path, place, "a cell of at most 1 MiB", found, help))
    }

    /// The rows so far; the builder starts anew.
    pub fn take(&mut self, consumed: u64) -> Result<Batch> {
        let places = std::mem::take(&mut self.places);
        let mut columns = Vec::with_capacity(self.columns.len());
        for (builder, name) in self.columns.iter_mut().zip(self.names) {
            let place =
                |row: usize| (Arc::clone(&self.path), format!("{} {}, column `{name}`", self.unit, places[row]));
            columns.push(std::mem::take(builder).finish(place)?);
        }
        Ok(Batch { path: Arc::clone(&self.path), unit: self.unit, places, columns, consumed })
    }
}

/// Positions of `names` in a header.
pub(super) fn find_columns(path: &Path, header: &[String], names: &[String]) -> Result<Vec<usize>> {
    let find = |name: &String| {
        let mut found = header.iter().enumerate().filter(|(_, column)| *column == name).map(|(at, _)| at);
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(at),
            (None, _) => {
                let nearest = nearest_name(name, header);
                let mut all = header.join(", ");
                if let Some((end, _)) = all.char_indices().nth(300) {
                    all.truncate(end);
                    all.push_str(", ...");
                }
                let other =
                    [';', '|', '\t', ','].into_iter().find(|&other| header.len() == 1 && header[0].contains(other));
                let help = match (other, nearest) {
                    (Some(other), _) => format!(
                        "cells seem to be separated by {other:?}: write the table again with commas (or with tabs, as \
                         .tsv), and numbers with a decimal point"
                    ),
                    (None, Some(nearest)) => {
                        format!("did you mean `{nearest}`? The first line of a table names its columns")
                    }
                    (None, None) => "the first line of a table names its columns".into(),
                };
                Err(Error::format(path, "header", format!("a column `{name}`"), format!("the columns {all}"), help))
            }
            (Some(_), Some(_)) => {
                let help = "give every column a name of its own";
                Err(Error::format(path, "header", format!("one column `{name}`"), "several", help))
            }
        }
    };
    names.iter().map(find).collect()
}
