//! Takes typed values out of a [`Table`]: one call per key states its type, range and default.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};

use super::document::{COMMAND_LINE, Entry, Table, Value};
use crate::error::{Error, Result, nearest_name};

/// A setting that is one of a few names.
pub(super) trait Choice: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

/// The names of a choice as an error lists them.
pub(super) fn quoted_names<T: Choice>() -> String {
    quoted(T::NAMES.iter().map(|(name, _)| *name))
}

fn quoted<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ")
}

/// Ends a known key that stands for every key of a section.
const ANY_KEY: &str = ".*";

/// Reads one document and remembers which keys exist, so that [`Reader::finish`] can reject the others.
pub(super) struct Reader<'a> {
    table: &'a Table,
    file: &'a str,
    known: RefCell<Vec<String>>,
    /// The first required key that is absent. Reported last: a misspelt key is the likelier cause.
    missing: RefCell<Option<Error>>,
}

impl<'a> Reader<'a> {
    pub fn new(table: &'a Table, file: &'a str) -> Self {
        Self { table, file, known: RefCell::default(), missing: RefCell::default() }
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.known.borrow_mut().push(key.to_string());
        self.table.get(key)
    }

    /// Says what is wrong with the value of `key`, at the place where it was written.
    pub fn error(&self, key: &str, expected: impl Into<String>, help: impl Into<String>) -> Error {
        let (expected, help) = (expected.into(), help.into());
        match self.table.get(key) {
            Some(entry) => entry.error(expected, help),
            None => {
                Error::Config { origin: self.file.into(), key: key.into(), expected, found: "nothing".into(), help }
            }
        }
    }

    fn wrong(&self, key: &str, expected: impl Into<String>, default: impl Display) -> Error {
        self.error(key, expected, format!("without the key it is {default}; configs/README.md describes every key"))
    }

    /// An integer of at least `low`.
    pub fn integer(&self, key: &str, default: usize, low: usize) -> Result<usize> {
        let Some(entry) = self.entry(key) else { return Ok(default) };
        let value = if let Value::Integer(integer) = entry.value { usize::try_from(integer).ok() } else { None };
        let in_range = value.filter(|&integer| integer >= low);
        in_range.ok_or_else(|| self.wrong(key, format!("an integer of at least {low}"), default))
    }

    /// A list of integers of at least 0.
    pub fn integers(&self, key: &str, default: &[usize]) -> Result<Vec<usize>> {
        let list = match self.entry(key).map(|entry| &entry.value) {
            None => return Ok(default.to_vec()),
            Some(Value::Integers(list)) => list.iter().map(|&integer| usize::try_from(integer).ok()).collect(),
            Some(_) => None,
        };
        let text = default.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        list.ok_or_else(|| self.wrong(key, "a list of integers of at least 0, such as [15, 10]", format!("[{text}]")))
    }

    /// An integer in which 0 stands for "absent".
    pub fn integer_or_zero(&self, key: &str, default: Option<usize>) -> Result<Option<usize>> {
        let integer = self.integer(key, default.unwrap_or(0), 0)?;
        Ok((integer > 0).then_some(integer))
    }

    /// A seed: TOML integers end at 2^63 - 1.
    pub fn seed(&self, key: &str, default: u64) -> Result<u64> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(default),
            Some(Value::Integer(seed)) if *seed >= 0 => Ok(seed.unsigned_abs()),
            Some(_) => Err(self.wrong(key, "an integer from 0 to 2^63 - 1", default)),
        }
    }

    /// A finite number in `range`; integers count as numbers.
    pub fn number(&self, key: &str, default: f64, range: impl RangeBounds<f64>) -> Result<f64> {
        let value = match self.entry(key).map(|entry| &entry.value) {
            None => return Ok(default),
            Some(Value::Float(number)) => Some(*number),
            Some(Value::Integer(integer)) => Some(*integer as f64),
            Some(_) => None,
        };
        let in_range = value.filter(|number| number.is_finite() && range.contains(number));
        in_range.ok_or_else(|| self.wrong(key, describe(&range), default))
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(key, "true or false", default)),
        }
    }

    /// Text that is not empty. On the command line anything is text: `--set name=42` needs no quotes.
    pub fn text(&self, key: &str) -> Result<Option<String>> {
        let text = match self.entry(key) {
            None => return Ok(None),
            Some(Entry { value: Value::String(text), .. }) => text,
            Some(entry) if entry.origin == COMMAND_LINE && !matches!(entry.value, Value::Table(_)) => &entry.text,
            Some(_) => return Err(self.error(key, "text in quotes", "write it as \"...\"")),
        };
        if text.trim().is_empty() {
            return Err(self.error(key, "text that is not empty", "leave the key out or give it a value"));
        }
        Ok(Some(text.clone()))
    }

    /// A name of at most `longest` characters that becomes part of a directory name.
    pub fn name(&self, key: &str, default: &str, longest: usize) -> Result<String> {
        let Some(name) = self.text(key)? else { return Ok(default.to_string()) };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.len() <= longest && name.chars().all(plain) && !name.starts_with('.') {
            return Ok(name);
        }
        let expected = format!("at most {longest} of a-z, A-Z, 0-9, `-`, `_` and `.`, not starting with `.`");
        Err(self.error(key, expected, "the name becomes part of the run directory's name"))
    }

    /// A path that has to be given unless `default` is one.
    pub fn required_path(&self, key: &str, default: &Path, help: &str) -> Result<PathBuf> {
        let path = self.text(key)?.map_or(default.to_path_buf(), PathBuf::from);
        if path.as_os_str().is_empty() {
            self.missing.borrow_mut().get_or_insert_with(|| self.error(key, "a path", help));
        }
        Ok(path)
    }

    pub fn choice<T: Choice>(&self, key: &str, default: T) -> Result<T> {
        Ok(self.optional_choice(key)?.unwrap_or(default))
    }

    pub fn optional_choice<T: Choice>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let names: Vec<_> = T::NAMES.iter().map(|(name, _)| *name).collect();
        match T::NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => Err(self.not_one_of(key, &text, &names)),
        }
    }

    /// The error of a name that is none of `names`.
    pub fn not_one_of(&self, key: &str, found: &str, names: &[&str]) -> Error {
        let help = match nearest_name(found, names.iter().copied()) {
            Some(name) => format!("did you mean \"{name}\"?"),
            None => "configs/README.md says what each of them does".to_string(),
        };
        self.error(key, quoted(names.iter().copied()), help)
    }

    /// A section whose keys somebody else reads and checks.
    pub fn section(&self, key: &str) -> Result<Option<&'a Table>> {
        self.known.borrow_mut().push(format!("{key}{ANY_KEY}"));
        match self.table.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(_) => Err(self.error(key, "a section", format!("write [{key}]"))),
        }
    }

    /// The names in a table whose keys are the user's own.
    pub fn names_in(&self, key: &str) -> Result<Vec<&'a str>> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(Vec::new()),
            Some(Value::Table(table)) => Ok(table.entries.iter().map(|(name, _)| name.as_str()).collect()),
            Some(_) => Err(self.error(key, "a table such as { pu = 30000 }", "write it as { name = value, ... }")),
        }
    }

    /// Whether the document gives this key itself.
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Rejects keys that nobody asked for, then required ones that are absent.
    pub fn finish(self) -> Result<()> {
        self.reject_unknown(self.table, "")?;
        self.missing.into_inner().map_or(Ok(()), Err)
    }

    fn reject_unknown(&self, table: &Table, section: &str) -> Result<()> {
        let known = self.known.borrow();
        for (name, entry) in &table.entries {
            let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
            let is_section = known.iter().any(|known| known.starts_with(&format!("{key}.")));
            match &entry.value {
                _ if known.contains(&format!("{key}{ANY_KEY}")) => {}
                // A misspelt section is best shown by a key in it: the nearest key then shows the section's name.
                Value::Table(inner) if is_section || !inner.entries.is_empty() => self.reject_unknown(inner, &key)?,
                _ if known.contains(&key) => {}
                _ if is_section => return Err(self.error(&key, "a section", format!("write [{}]", entry.key))),
                _ => return Err(self.unknown(&key, section, entry)),
            }
        }
        Ok(())
    }

    fn unknown(&self, key: &str, section: &str, entry: &Entry) -> Error {
        let known = self.known.borrow();
        let prefix = entry.key.strip_suffix(key).unwrap_or("");
        let mut siblings: Vec<_> = known.iter().filter_map(|known| sibling(known, section)).collect();
        siblings.dedup();
        let expected = match (siblings.is_empty(), section) {
            (true, _) => "a known section".to_string(),
            (false, "") => format!("a known key or section: {}", siblings.join(", ")),
            (false, _) => format!("a known key of [{prefix}{section}]: {}", siblings.join(", ")),
        };
        let help = match nearest_name(key, known.iter()) {
            Some(near) => format!("did you mean `{prefix}{near}`?"),
            None => "configs/README.md describes every key".to_string(),
        };
        entry.key_error(expected, help)
    }
}

/// The part of a known key that may stand in `section`.
fn sibling<'k>(known: &'k str, section: &str) -> Option<&'k str> {
    let rest = if section.is_empty() { known } else { known.strip_prefix(section)?.strip_prefix('.')? };
    rest.split('.').next()
}

/// A range in words: `a number in [0, 1)`.
fn describe(range: &impl RangeBounds<f64>) -> String {
    let low = match range.start_bound() {
        Bound::Included(low) => format!("[{low}"),
        Bound::Excluded(low) => format!("({low}"),
        Bound::Unbounded => "(-infinity".to_string(),
    };
    let high = match range.end_bound() {
        Bound::Included(high) => format!("{high}]"),
        Bound::Excluded(high) => format!("{high})"),
        Bound::Unbounded => "infinity)".to_string(),
    };
    format!("a number in {low}, {high}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_described_with_its_open_ends() {
        assert_eq!(describe(&(0.0..1.0)), "a number in [0, 1)");
        assert_eq!(describe(&(Bound::Excluded(0.0), Bound::Included(1.0))), "a number in (0, 1]");
        assert_eq!(describe(&(0.0..)), "a number in [0, infinity)");
    }
}
