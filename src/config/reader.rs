//! Reads a document over the defaults of its task.
//!
//! The defaults, written as TOML, say which keys there are and of which type; serde and the module `ranges` say what a
//! value may be. The entries of the document are laid over the defaults one at a time, so that an error belongs to the
//! entry that was laid last.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Value as Plain;

use super::document::{COMMAND_LINE, Entry, Table, Value};
use crate::error::{Error, Result, UnknownName, nearest_name};

/// Tables whose keys are the user's own.
const OPEN: [&str; 2] = ["sampling.edges", "model.monotone"];
/// Read before all others.
const TASK: &str = "task";

/// Characters of a run's name; leaves room for the time in the name of its directory.
pub(super) const MAX_NAME: usize = 100;

/// A document and the file that errors name.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub table: Table,
    pub file: String,
    /// Whether keys of the file are refused that have no effect. A run that was made when they were not can still be
    /// read.
    pub strict: bool,
}

/// Keys that another value of a setting has.
pub(super) struct Variant<T> {
    pub defaults: T,
    /// Why they do not exist, and what makes them exist.
    pub since: &'static str,
    pub help: &'static str,
}

/// Keys that nothing reads under a setting: there only their defaults may stand.
pub(super) struct Unread {
    pub when: bool,
    /// Key, and what it is.
    pub keys: &'static [(&'static str, &'static str)],
    /// Why nothing reads them, and what makes them work.
    pub since: &'static str,
    pub help: &'static str,
}

impl Document {
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Says what is wrong with the value of `key`, at the place where it was written.
    pub fn error(&self, key: &str, expected: impl Into<String>, help: impl Into<String>) -> Error {
        let (expected, help) = (expected.into(), help.into());
        match self.table.get(key) {
            Some(entry) => entry.error(expected, help),
            None => {
                let origin = self.file.as_str().into();
                Error::Config { origin, key: key.into(), expected, found: "nothing".into(), help }
            }
        }
    }

    /// Whether a key is given that is refused where it has no effect.
    pub fn refuses(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|entry| self.strict || entry.origin == COMMAND_LINE)
    }

    /// A name that defaults depend on, read before the other keys.
    pub fn choice<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(entry) = self.table.get(key) else { return Ok(None) };
        let name = typed(entry, Some(&Plain::String(String::new())), false)?;
        T::deserialize(name).map(Some).map_err(|fault| fault_of(entry, None, fault.message()))
    }

    /// An integer that defaults depend on; what is wrong with it shows when it is read.
    pub fn integer(&self, key: &str) -> Option<u64> {
        self.table.get(key)?.value.plain().as_integer()?.try_into().ok()
    }

    /// A section that is read on its own; an empty one where there is none.
    pub fn take_section(&mut self, key: &str) -> Result<Option<Table>> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Entry { value: Value::Table(table), .. }) => Ok(Some(table)),
            Some(entry) => Err(entry.error("a section", format!("write [{key}]"))),
        }
    }

    /// `defaults` with what the document says. `optional` are keys of texts that no default stands for, `variants`
    /// other defaults, whose keys are known but refused.
    pub fn read<T>(&self, defaults: &T, optional: &[&str], variants: &[Variant<T>]) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let defaults = Plain::try_from(defaults).map_err(unwritable)?;
        let mut known = vec![TASK.to_string()];
        push_keys(&defaults, "", &mut known);
        known.extend(optional.iter().map(|key| key.to_string()));
        let mut others = Vec::new();
        for variant in variants {
            let mut keys = Vec::new();
            push_keys(&Plain::try_from(&variant.defaults).map_err(unwritable)?, "", &mut keys);
            others.push((keys, variant.since, variant.help));
        }
        let mut reading = Reading { known, others, tree: defaults.clone(), defaults };
        reading.lay::<T>(&self.table, "")?;
        T::deserialize(reading.tree).map_err(|fault| self.error("", fault.message(), "this is a bug"))
    }

    /// A name of at most `longest` characters that becomes part of a directory name.
    pub fn check_name(&self, name: &str, longest: usize) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.len() <= longest && name.chars().all(plain) && !name.starts_with('.') {
            return Ok(());
        }
        let expected = format!("at most {longest} of a-z, A-Z, 0-9, `-`, `_` and `.`, not starting with `.`");
        let help = match name.len() > longest {
            true => "shorten it: names of run directories begin with it, with those of stages and candidates behind it",
            false => "the name becomes part of the run directory's name",
        };
        Err(self.error("name", expected, help))
    }

    /// Refuses a task without data.
    pub fn check_path(&self, path: &Path) -> Result<()> {
        if !path.as_os_str().is_empty() {
            return Ok(());
        }
        let help = "set `path` in [data], or --set data.path=DIR; `graphsieve synth` and `graphsieve import` make one";
        Err(self.error("data.path", "a path", help))
    }

    /// Refuses keys that nothing reads, unless they say their default.
    pub fn check_read<T: Serialize>(&self, config: &T, defaults: &T, unread: &[Unread]) -> Result<()> {
        let [config, defaults] = [config, defaults].map(Plain::try_from);
        let (config, defaults) = (config.map_err(unwritable)?, defaults.map_err(unwritable)?);
        for Unread { keys, since, help, .. } in unread.iter().filter(|unread| unread.when) {
            for (key, meaning) in *keys {
                let default = at(&defaults, key);
                if let (true, Some(value)) = (at(&config, key) != default && self.refuses(key), default) {
                    let expected = format!("its default {value}, since {since}");
                    return Err(self.error(key, expected, format!("`{key}` is {meaning}; {help}")));
                }
            }
        }
        Ok(())
    }
}

/// A document that is being read.
struct Reading {
    defaults: Plain,
    known: Vec<String>,
    others: Vec<(Vec<String>, &'static str, &'static str)>,
    /// The defaults with the entries so far.
    tree: Plain,
}

impl Reading {
    fn lay<T: DeserializeOwned>(&mut self, table: &Table, section: &str) -> Result<()> {
        for (name, entry) in &table.entries {
            let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
            if name.contains('.') && !OPEN.contains(&section) {
                // In quotes it is one name, and no section.
                return Err(entry.key_error("a key without quotes around its dots", format!("write {key} = ...")));
            }
            let default = at(&self.defaults, &key).cloned();
            match (&entry.value, &default) {
                (Value::Table(inner), Some(Plain::Table(_))) => self.lay::<T>(inner, &key)?,
                (Value::Leaf(_), Some(Plain::Table(_))) => {
                    return Err(entry.error("a section", format!("write [{}]", entry.key)));
                }
                _ if key == TASK => {}
                (value, None) if !OPEN.contains(&section) && !self.known.contains(&key) => match value {
                    // A misspelt section is best shown by a key in it: the nearest key then shows the section's name.
                    Value::Table(inner) if !inner.entries.is_empty() => self.lay::<T>(inner, &key)?,
                    _ => return Err(self.unknown(&key, section, entry)),
                },
                _ => {
                    insert(&mut self.tree, section, name, typed(entry, default.as_ref(), OPEN.contains(&section))?);
                    let laid = T::deserialize(self.tree.clone());
                    laid.map_err(|fault| fault_of(entry, default.as_ref(), fault.message()))?;
                }
            }
        }
        Ok(())
    }

    fn unknown(&self, key: &str, section: &str, entry: &Entry) -> Error {
        if let Some((_, since, help)) = self.others.iter().find(|(keys, ..)| keys.iter().any(|other| other == key)) {
            return entry.error(format!("no such key, since {since}"), format!("remove it, or {help}"));
        }
        let prefix = entry.key.strip_suffix(key).unwrap_or("");
        let mut siblings = Vec::new();
        for name in self.known.iter().filter_map(|known| sibling(known, section)) {
            if !siblings.contains(&name) {
                siblings.push(name);
            }
        }
        let expected = match (siblings.is_empty(), section) {
            (true, _) => "a known section".to_string(),
            (false, "") => format!("a known key or section: {}", siblings.join(", ")),
            (false, _) => format!("a known key of [{prefix}{section}]: {}", siblings.join(", ")),
        };
        let help = match nearest_name(key, self.known.iter().chain(self.others.iter().flat_map(|(keys, ..)| keys))) {
            Some(near) => format!("did you mean `{prefix}{near}`?"),
            None => "configs/README.md describes every key".to_string(),
        };
        entry.key_error(expected, help)
    }
}

/// The value of an entry whose type the default decides. On the command line anything is text: `--set name=42` needs no
/// quotes.
fn typed(entry: &Entry, default: Option<&Plain>, open: bool) -> Result<Plain> {
    let is_text = default.map_or(!open, Plain::is_str);
    match &entry.value {
        Value::Leaf(Plain::String(text)) if is_text && text.trim().is_empty() => {
            Err(entry.error("text that is not empty", "leave the key out or give it a value"))
        }
        Value::Leaf(leaf) if is_text && !leaf.is_str() && entry.origin == COMMAND_LINE => Ok(entry.text.clone().into()),
        value if is_text && !matches!(value, Value::Leaf(Plain::String(_))) => {
            Err(entry.error("text in quotes", "write it as \"...\""))
        }
        value => match (value.plain(), default) {
            (plain, Some(Plain::Boolean(_))) if !plain.is_bool() => Err(wrong(entry, default, "true or false")),
            (plain, _) => Ok(plain),
        },
    }
}

/// What serde says of a value, as an error of the configuration.
fn fault_of(entry: &Entry, default: Option<&Plain>, message: &str) -> Error {
    match UnknownName::read(message) {
        Some(unknown) => {
            let names: Vec<_> = unknown.known.iter().map(|name| format!("\"{name}\"")).collect();
            let help = match unknown.nearest() {
                Some(name) => format!("did you mean \"{name}\"?"),
                None => "configs/README.md says what each of them does".to_string(),
            };
            entry.error(names.join(" or "), help)
        }
        None => wrong(entry, default, message.rsplit_once("expected ").map_or(message, |(_, expected)| expected)),
    }
}

fn wrong(entry: &Entry, default: Option<&Plain>, expected: &str) -> Error {
    let reference = "configs/README.md describes every key";
    entry.error(
        expected,
        default.map_or(reference.into(), |value| format!("without the key it is {value}; {reference}")),
    )
}

/// The value at a dotted key.
fn at<'t>(tree: &'t Plain, key: &str) -> Option<&'t Plain> {
    key.split('.').try_fold(tree, |tree, name| tree.as_table()?.get(name))
}

/// Puts a value into a section that exists. A name of the user's own may have dots.
fn insert(tree: &mut Plain, section: &str, name: &str, value: Plain) {
    let mut path = section.split('.').filter(|part| !part.is_empty());
    let found = path.try_fold(tree, |tree, part| tree.as_table_mut()?.get_mut(part));
    if let Some(Plain::Table(table)) = found {
        table.insert(name.to_string(), value);
    }
}

/// The dotted keys of all values.
fn push_keys(tree: &Plain, section: &str, keys: &mut Vec<String>) {
    for (name, value) in tree.as_table().into_iter().flatten() {
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        match value {
            Plain::Table(inner) if !inner.is_empty() => push_keys(value, &key, keys),
            _ => keys.push(key),
        }
    }
}

/// The part of a known key that may stand in `section`.
fn sibling<'k>(known: &'k str, section: &str) -> Option<&'k str> {
    let rest = if section.is_empty() { known } else { known.strip_prefix(section)?.strip_prefix('.')? };
    rest.split('.').next()
}

pub(super) fn unwritable(error: toml::ser::Error) -> Error {
    Error::Config {
        origin: "resolved configuration".into(),
        key: "one of its values".into(),
        expected: "what TOML can hold".into(),
        found: error.to_string(),
        help: "seeds end at 2^63 - 1 and paths have to be UTF-8".into(),
    }
}
