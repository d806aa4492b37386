//! What an import learned from its tables, kept so that another import can apply it: `import.json` and `import.bin`.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::fitting::Scaler;
use super::text_table::TextTable;
use crate::data::text::hashing::hash_text;
use crate::data::text::{Block, LANES, TextDirections};
use crate::error::{Error, Result};

/// Fitted rows that a category has at least whose name is kept, names of a column, and bytes of a name at most.
const MIN_ROWS: u32 = 5;
const MAX_NAMES: usize = 1000;
const MAX_NAME_BYTES: usize = 200;

/// What was learned for one source of columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fitted {
    /// Name of the source: the first of its columns, or what their names begin with.
    pub column: String,
    /// What takes the place of a missing value.
    pub median: Option<f32>,
    pub scaler: Option<Scaler>,
    /// The latest time, from which recency counts.
    pub latest: Option<i64>,
    pub categories: Option<Categories>,
    pub text: Option<TextDirections>,
}

/// The categories that the fitted rows have, by their hashes, and in how many rows each occurs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Categories {
    /// Ascending.
    hashes: Vec<u64>,
    counts: Vec<u32>,
}

/// Everything that an import learned, in the order of the columns.
#[derive(Debug, Clone, Default)]
pub(super) struct Transforms {
    entries: Vec<Fitted>,
    by_name: HashMap<String, usize>,
}

/// A [`Fitted`] in `import.json`; what is long lies in `import.bin`, entry by entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    column: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    median: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    centre: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spread: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latest: Option<i64>,
    /// Their number. In `import.bin` a hash (u64) each, then a count (u32) each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    categories: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<TextEntry>,
}

/// In `import.bin` a column of the hashed terms (u16) per term, a weight (f32) each, then `width / 8` times eight
/// numbers (f32) per term.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextEntry {
    terms: usize,
    width: usize,
    unseen: f32,
    scale: f32,
}

impl Fitted {
    /// A scale and nothing else.
    pub fn scale(column: &str, scaler: Scaler) -> Self {
        Self { column: column.into(), scaler: Some(scaler), ..Self::default() }
    }

    /// The scale; without one values stay as they are.
    pub fn scaler(&self) -> Scaler {
        self.scaler.unwrap_or(Scaler::IDENTITY)
    }
}

impl Categories {
    /// Counts the rows of `codes`, numbers of `names`; an empty name is no category.
    pub fn count(codes: impl Iterator<Item = u32>, names: &TextTable) -> Self {
        let mut counts = vec![0u32; names.len()];
        codes.for_each(|code| counts[code as usize] += 1);
        let seen = names.iter().zip(counts).filter(|(name, count)| *count > 0 && !name.is_empty());
        let mut pairs: Vec<(u64, u32)> = seen.map(|(name, count)| (hash_text(name), count)).collect();
        pairs.sort_unstable();
        pairs.dedup_by(|later, first| {
            later.0 == first.0 && {
                first.1 += later.1;
                true
            }
        });
        let (hashes, counts) = pairs.into_iter().unzip();
        Self { hashes, counts }
    }

    /// Rows that have a category; 0 for one that none has.
    pub fn rows_of(&self, name: &str) -> u32 {
        self.hashes.binary_search(&hash_text(name)).map_or(0, |at| self.counts[at])
    }

    /// The names that an explanation may say: of the most frequent categories, none of them of so few rows that it
    /// might be somebody's own, in the order of the alphabet. `rows` are those of each name.
    pub fn common(names: &TextTable, rows: &[u32]) -> Vec<String> {
        let mut common: Vec<(u32, &str)> = rows.iter().copied().zip(names.iter()).collect();
        common.retain(|&(rows, name)| rows >= MIN_ROWS && !name.is_empty() && name.len() <= MAX_NAME_BYTES);
        common.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let mut common: Vec<String> = common.into_iter().take(MAX_NAMES).map(|(_, name)| name.to_owned()).collect();
        common.sort_unstable();
        common
    }

    /// The one category that `is_it` holds for, given by its hash and its rows; `None` where there is none or several.
    pub fn only(&self, mut is_it: impl FnMut(u64, u32) -> bool) -> Option<u64> {
        let mut found = self.hashes.iter().zip(&self.counts).filter(|&(&hash, &rows)| is_it(hash, rows));
        let (&hash, _) = found.next()?;
        found.next().is_none().then_some(hash)
    }

    /// By category.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }
}

impl Transforms {
    /// What was learned for a source.
    pub fn get(&self, column: &str) -> Option<&Fitted> {
        self.by_name.get(column).map(|&at| &self.entries[at])
    }

    /// Adds what was learned for a source, whose name is new.
    pub fn push(&mut self, fitted: Fitted) -> &Fitted {
        let at = self.entries.len();
        self.by_name.insert(fitted.column.clone(), at);
        self.entries.push(fitted);
        &self.entries[at]
    }

    /// What `import.json` and `import.bin` hold of it; the second is empty where there is nothing to hold.
    pub fn stored(&self) -> (Vec<Entry>, Vec<u8>) {
        let mut binary = Vec::new();
        let entry = |fitted: &Fitted| {
            let Fitted { column, median, scaler, latest, categories, text } = fitted;
            if let Some(Categories { hashes, counts }) = categories {
                binary.extend(hashes.iter().flat_map(|hash| hash.to_le_bytes()));
                binary.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
            }
            if let Some(text) = text {
                let (columns, idf, basis) = text.parts();
                binary.extend(columns.iter().flat_map(|column| column.to_le_bytes()));
                let basis = basis.iter().flatten().flatten();
                binary.extend(idf.iter().chain(basis).flat_map(|value| value.to_le_bytes()));
            }
            Entry {
                column: column.clone(),
                median: *median,
                centre: scaler.map(|scaler| scaler.centre),
                spread: scaler.map(|scaler| scaler.spread),
                latest: *latest,
                categories: categories.as_ref().map(|categories| categories.hashes.len()),
                text: text.as_ref().map(|text| {
                    let (unseen, scale) = text.factors();
                    TextEntry { terms: text.parts().0.len(), width: text.width(), unseen, scale }
                }),
            }
        };
        let entries = self.entries.iter().map(entry).collect();
        (entries, binary)
    }

    /// Puts together what [`stored`](Self::stored) took apart; `file` is where `binary` comes from.
    ///
    /// # Errors
    /// [`Error::Format`] for parts that do not belong together.
    pub fn from_stored(entries: Vec<Entry>, binary: &[u8], file: &Path) -> Result<Self> {
        let mut rest = Bytes { rest: binary, all: binary.len(), file };
        let mut result = Self::default();
        for entry in entries {
            let Entry { column, median, centre, spread, latest, categories, text } = entry;
            let scaler = centre.zip(spread).map(|(centre, spread)| Scaler { centre, spread });
            let categories = categories.map(|count| {
                let hashes = rest.take(count, u64::from_le_bytes)?;
                Ok(Categories { hashes, counts: rest.take(count, u32::from_le_bytes)? })
            });
            let text = text.map(|TextEntry { terms, width, unseen, scale }| {
                let columns = rest.take(terms, u16::from_le_bytes)?;
                let idf = rest.take(terms, f32::from_le_bytes)?;
                let mut block = || -> Result<Block> {
                    let values = rest.take(terms.saturating_mul(LANES), f32::from_le_bytes)?;
                    Ok(values.as_chunks().0.to_vec())
                };
                let basis = (0..width / LANES).map(|_| block()).collect::<Result<_>>()?;
                Ok(TextDirections::from_parts(columns, idf, unseen, basis, scale))
            });
            let (categories, text) = (categories.transpose()?, text.transpose()?);
            result.push(Fitted { column, median, scaler, latest, categories, text });
        }
        if rest.rest.is_empty() { Ok(result) } else { Err(rest.fault()) }
    }
}

/// Numbers behind one another.
struct Bytes<'a> {
    rest: &'a [u8],
    all: usize,
    file: &'a Path,
}

impl Bytes<'_> {
    fn take<const N: usize, T>(&mut self, count: usize, number: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
        let Some((taken, rest)) = self.rest.split_at_checked(count.saturating_mul(N)) else { return Err(self.fault()) };
        self.rest = rest;
        Ok(taken.as_chunks().0.iter().map(|bytes| number(*bytes)).collect())
    }

    fn fault(&self) -> Error {
        let found = format!("{} bytes", self.all);
        Error::format(self.file, "length", "what import.json says of it", found, "import the tables again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::text::ragged::Ragged;
    use crate::data::text::terms::Term;

    fn transforms() -> Transforms {
        let mut names = TextTable::default();
        for name in ["red", "", "blue", "never"] {
            names.intern(name);
        }
        let mut terms = Ragged::default();
        (0..9u16).for_each(|row| terms.push_row([Term { column: row * 5, count: 2 }, Term { column: 900, count: 1 }]));
        let text = TextDirections::fit(terms, (0..9).collect(), 16, 1).0;
        let mut made = Transforms::default();
        made.push(Fitted { median: Some(0.1), ..Fitted::scale("a", Scaler { centre: 1.0 / 3.0, spread: 1e-20 }) });
        let categories = Categories::count([0, 2, 0, 1].into_iter(), &names);
        made.push(Fitted { column: "b".into(), categories: Some(categories), ..Fitted::default() });
        made.push(Fitted { column: "c".into(), latest: Some(i64::MAX), text: Some(text), ..Fitted::default() });
        made
    }

    #[test]
    fn what_was_stored_is_read_bit_for_bit() {
        let made = transforms();
        let (entries, binary) = made.stored();
        let text = serde_json::to_string(&entries).unwrap();
        let read = Transforms::from_stored(serde_json::from_str(&text).unwrap(), &binary, Path::new("x")).unwrap();
        assert_eq!(read.entries, made.entries);
        let categories = read.get("b").unwrap().categories.as_ref().unwrap();
        assert_eq!(["red", "blue", "never", "", "green"].map(|name| categories.rows_of(name)), [2, 1, 0, 0, 0]);
        assert!(read.get("d").is_none());
    }

    #[test]
    fn a_file_that_is_cut_or_too_long_is_refused() {
        let (entries, mut binary) = transforms().stored();
        binary.push(0);
        for length in [0, 7, binary.len() - 2, binary.len()] {
            let read = Transforms::from_stored(entries.clone(), &binary[..length], Path::new("import.bin"));
            let error = read.unwrap_err().to_string();
            assert!(error.contains("import.bin: length") && error.contains(&format!("{length} bytes")), "{error}");
        }
    }
}
