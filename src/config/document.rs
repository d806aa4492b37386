//! A TOML document in which every entry remembers where it was written.

use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Place, Result, Snippet, line_number};

/// Origin of everything that the command line set.
pub(super) const COMMAND_LINE: &str = "--set";

/// One value, with what an error message has to say about it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Dotted key as the user wrote it, e.g. `stage1.train.epochs`.
    pub key: String,
    /// `configs/stage2.toml:14` with a mark under the value, or `--set`.
    pub origin: Place,
    /// The same with a mark under the key.
    pub key_origin: Place,
    /// The value's own text.
    pub text: String,
    pub value: Value,
}

impl Entry {
    /// Says what is wrong with this value.
    pub fn error(&self, expected: impl Into<String>, help: impl Into<String>) -> Error {
        self.error_at(&self.origin, expected.into(), help.into())
    }

    /// Says that there should be no such key.
    pub fn key_error(&self, expected: impl Into<String>, help: impl Into<String>) -> Error {
        self.error_at(&self.key_origin, expected.into(), help.into())
    }

    fn error_at(&self, origin: &Place, expected: String, help: String) -> Error {
        Error::Config { origin: origin.clone(), key: self.key.clone(), expected, found: self.text.clone(), help }
    }
}

/// A section, or what a key says.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Table(Table),
    Leaf(toml::Value),
}

impl Value {
    /// The same without places.
    pub fn plain(&self) -> toml::Value {
        match self {
            Value::Leaf(value) => value.clone(),
            Value::Table(table) => table
                .entries
                .iter()
                .map(|(name, entry)| (name.clone(), entry.value.plain()))
                .collect::<toml::Table>()
                .into(),
        }
    }
}

/// Entries in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub entries: Vec<(String, Entry)>,
}

impl Table {
    /// Parses `text`; `origin` is the file name that errors show.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let parser = Parser { text, origin, numbered: true };
        let document = DeTable::parse(text).map_err(|error| parser.syntax_error(&error))?;
        Ok(parser.table(document.get_ref(), ""))
    }

    /// The table that one `--set key=value` stands for. The value is TOML where it parses as such, else plain text.
    pub fn parse_override(argument: &str) -> Result<Self> {
        let Some((key, value)) = argument.split_once('=') else {
            return Err(Error::Usage {
                argument: format!("{COMMAND_LINE} {argument}"),
                expected: "key=value".into(),
                found: "no `=`".into(),
                help: "for example --set train.epochs=20".into(),
            });
        };
        let quoted = format!("{key}={}", toml::Value::from(value));
        for text in [argument, &quoted] {
            if let Ok(document) = DeTable::parse(text) {
                return Ok(Parser { text, origin: COMMAND_LINE, numbered: false }.table(document.get_ref(), ""));
            }
        }
        Err(Error::Usage {
            argument: format!("{COMMAND_LINE} {argument}"),
            expected: "a dotted key before the `=`".into(),
            found: format!("`{key}`"),
            help: "for example --set train.epochs=20".into(),
        })
    }

    /// The entry at a dotted key; `None` where it, or a section on the way, is absent.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
        let entry = self.entries.iter().find(|(name, _)| name == first).map(|(_, entry)| entry)?;
        match (rest, &entry.value) {
            (None, _) => Some(entry),
            (Some(rest), Value::Table(table)) => table.get(rest),
            (Some(_), _) => None,
        }
    }

    /// Takes the entry at a dotted key out of the table.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
        let position = self.entries.iter().position(|(name, _)| name == first)?;
        match (rest, &mut self.entries[position].1.value) {
            (None, _) => Some(self.entries.remove(position).1),
            (Some(rest), Value::Table(table)) => table.remove(rest),
            (Some(_), _) => None,
        }
    }

    /// Puts the entries of `other` over those of `self`; tables on both sides are merged.
    pub fn overlay(&mut self, other: Table) {
        for (name, entry) in other.entries {
            match self.entries.iter_mut().find(|(own, _)| *own == name) {
                None => self.entries.push((name, entry)),
                Some((_, own)) => match (&mut own.value, entry.value) {
                    (Value::Table(own), Value::Table(over)) => own.overlay(over),
                    (_, value) => *own = Entry { value, ..entry },
                },
            }
        }
    }
}

/// Text being turned into a [`Table`].
struct Parser<'a> {
    text: &'a str,
    origin: &'a str,
    /// Whether line numbers mean anything to the user.
    numbered: bool,
}

impl Parser<'_> {
    fn table(&self, table: &DeTable<'_>, prefix: &str) -> Table {
        let entries = table.iter().map(|(name, written)| {
            let key =
                if prefix.is_empty() { name.get_ref().to_string() } else { format!("{prefix}.{}", name.get_ref()) };
            let (text, value) = match written.get_ref() {
                DeValue::Table(inner) => ("a section".to_string(), Value::Table(self.table(inner, &key))),
                _ => {
                    let text = self.text.get(written.span()).unwrap_or_default();
                    (text.to_string(), Value::Leaf(leaf(text)))
                }
            };
            let line = line_number(self.text, name.span().start);
            let place = |span| self.place(line, Snippet::of(self.text, span));
            // The value of a section has no place of its own.
            let marked = if matches!(value, Value::Table(_)) { name.span() } else { written.span() };
            let (origin, key_origin) = (place(marked), place(name.span()));
            (name.get_ref().to_string(), Entry { key, origin, key_origin, text, value })
        });
        Table { entries: entries.collect() }
    }

    fn place(&self, line: usize, snippet: Snippet) -> Place {
        match self.numbered {
            true => Place::from(format!("{}:{line}", self.origin)).with_snippet(snippet),
            false => self.origin.into(),
        }
    }

    fn syntax_error(&self, error: &toml::de::Error) -> Error {
        let span = error.span().unwrap_or(0..0);
        let line = line_number(self.text, span.start);
        Error::Config {
            origin: self.place(line, Snippet::of(self.text, span)),
            key: "this line".into(),
            expected: format!("valid TOML ({})", error.message().replace('\n', ", ")),
            found: format!("`{}`", self.text.lines().nth(line - 1).unwrap_or_default().trim()),
            help: "text needs quotes, true and false are lower case, and a key may occur once".into(),
        }
    }
}

/// The value that is written as `text`. An integer beyond 64 bits is a number that no integer key takes.
fn leaf(text: &str) -> toml::Value {
    let value = toml::de::ValueDeserializer::parse(text).and_then(toml::Value::deserialize);
    value.unwrap_or_else(|_| text.replace('_', "").parse().map_or(toml::Value::Array(Vec::new()), toml::Value::Float))
}

/// Reads a configuration file.
pub(super) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| match error.kind() {
        kind @ (std::io::ErrorKind::NotFound | std::io::ErrorKind::IsADirectory) => Error::Usage {
            argument: path.display().to_string(),
            expected: "a configuration file".into(),
            found: if kind == std::io::ErrorKind::NotFound { "no such file" } else { "a directory" }.into(),
            help: "configs/quickstart.toml runs as it is; configs/README.md lists the others".into(),
        },
        std::io::ErrorKind::InvalidData => Error::Config {
            origin: path.display().to_string().into(),
            key: "its bytes".into(),
            expected: "UTF-8 text".into(),
            found: "something else".into(),
            help: "save the file as UTF-8".into(),
        },
        _ => Error::io(path, "read", error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_knows_its_line_its_key_and_its_text() {
        let table = Table::parse("name = \"a\"\n\n[train]\n# why\nepochs = 1_000\n", "x.toml").unwrap();
        let entry = table.get("train.epochs").unwrap();
        assert_eq!([&*entry.key, &*entry.origin, &*entry.text], ["train.epochs", "x.toml:5", "1_000"]);
        assert!(matches!(entry.value, Value::Leaf(toml::Value::Integer(1000))));
        assert!(table.get("name.epochs").is_none(), "a string has no keys");
    }

    #[test]
    fn an_override_is_toml_where_it_parses_and_text_elsewhere() {
        let value =
            |argument: &str, key: &str| Table::parse_override(argument).unwrap().get(key).unwrap().value.plain();
        assert_eq!(value("a.b=3", "a.b"), toml::Value::Integer(3));
        assert_eq!(value("a.b = 0.5", "a.b"), toml::Value::Float(0.5));
        assert_eq!(value("a={b=true}", "a.b"), toml::Value::Boolean(true));
        assert_eq!(value("a=some/dir", "a"), "some/dir".into());
        assert_eq!(value("a=x=\"y\"", "a"), "x=\"y\"".into());
        assert_eq!(value("a=", "a"), "".into());
        assert_eq!(value("a=99999999999999999999", "a"), toml::Value::Float(1e20), "beyond 64 bits");
    }

    #[test]
    fn an_override_without_a_key_or_a_value_is_a_usage_error() {
        for argument in ["train.epochs", "=3", "a..b=3", "a b=3"] {
            assert!(matches!(Table::parse_override(argument), Err(Error::Usage { .. })), "{argument}");
        }
    }

    #[test]
    fn overlaying_merges_tables_and_replaces_the_rest() {
        let mut table = Table::parse("[a]\nx = 1\ny = 2\n", "x.toml").unwrap();
        table.overlay(Table::parse_override("a.y=3").unwrap());
        assert_eq!(table.get("a.x").unwrap().origin, "x.toml:2");
        assert_eq!((&*table.get("a.y").unwrap().origin, &*table.get("a.y").unwrap().text), ("--set", "3"));
        table.overlay(Table::parse_override("a=4").unwrap());
        assert!(matches!(table.get("a").unwrap().value, Value::Leaf(toml::Value::Integer(4))));
        assert!(table.remove("a").is_some() && table.get("a").is_none());
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = Table::parse("name = \"a\"\n[train]\nepochs = = 3\n", "x.toml").unwrap_err();
        let Error::Config { origin, found, .. } = &error else { panic!("{error}") };
        assert_eq!((&**origin, found.as_str()), ("x.toml:3", "`epochs = = 3`"));
        assert_eq!(error.exit_code(), 2);
        let shown = error.to_string();
        assert!(shown.contains("\n  |\n3 | epochs = = 3\n  |          ^\n  help: "), "{shown}");
    }

    #[test]
    fn an_entry_marks_its_value_and_its_key() {
        let text = "[train]\n\tepochs = \"ten\" # passes\nsteps = { a = 1 }\n";
        let table = Table::parse(text, "x.toml").unwrap();
        let entry = table.get("train.epochs").unwrap();
        let shown = entry.error("an integer", "write one").to_string();
        let expected = [
            "x.toml:2: train.epochs = \"ten\": expected an integer",
            "  |",
            "2 |  epochs = \"ten\" # passes",
            "  |           ^^^^^",
            "  help: write one",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
        let shown = entry.key_error("another key", "leave it out").to_string();
        assert!(shown.contains("\n  |  ^^^^^^\n"), "{shown}");
        let inner = table.get("train.steps.a").unwrap().error("text", "quote it").to_string();
        assert!(inner.contains("\n3 | steps = { a = 1 }\n  |               ^\n"), "{inner}");
        let section = table.get("train").unwrap().error("a value", "give one").to_string();
        assert!(section.contains("\n1 | [train]\n  |  ^^^^^\n"), "{section}");
        let set = Table::parse_override("train.epochs=ten").unwrap();
        let shown = set.get("train.epochs").unwrap().error("an integer", "write one").to_string();
        assert!(!shown.contains(" | "), "the command line has no lines: {shown}");
    }
}
