//! The description of an import: a TOML file that says which tables hold nodes, edges and labels.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::split::SplitFractions;
use crate::data::text::LANES;
use crate::error::{Error, Result};

/// A whole description; the TOML keys are the field names, see the [module](super).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The split whose training rows scales are fitted on.
    #[serde(default)]
    pub split: SplitTable,
    /// Node tables.
    #[serde(default)]
    pub nodes: Vec<NodeTable>,
    /// Edge tables.
    #[serde(default)]
    pub edges: Vec<EdgeTable>,
    /// Columns whose equal values join nodes.
    #[serde(default)]
    pub shared: Vec<SharedColumn>,
}

/// `[split]`: give training the same one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SplitTable {
    /// Seed of the split, default 42.
    pub seed: u64,
    /// Share of the labels for training, default 0.6.
    pub train: f64,
    /// Share for validation, default 0.2.
    pub validation: f64,
    /// Share for the test, default 0.2.
    pub test: f64,
}

impl Default for SplitTable {
    fn default() -> Self {
        let SplitFractions { train, validation, test } = SplitFractions::default();
        Self { seed: 42, train, validation, test }
    }
}

/// One `[[nodes]]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTable {
    /// Name of the node type.
    #[serde(rename = "type")]
    pub node_type: String,
    /// Files of one header each, read one behind another.
    pub file: Files,
    /// Column of the ids; without it the id is the number of the row, counted from 1 over all files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Column of the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<LabelColumn>,
    /// Columns that become features, in this order.
    #[serde(default, skip_serializing_if = "FeatureColumns::is_empty")]
    pub features: FeatureColumns,
}

/// One `[[edges]]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeTable {
    /// Name of the relation.
    pub name: String,
    /// Files; default: those of the end that has no column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Files>,
    /// Source.
    pub src: End,
    /// Destination.
    pub dst: End,
    /// Column of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Column of the times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeColumn>,
    /// Leaves out rows with an empty end instead of refusing them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_empty: bool,
    /// Leaves out the generated reverse relation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
}

/// One `[[shared]]` table: nodes with the same value are joined through one node that stands for the value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedColumn {
    /// Column of the node table.
    pub column: String,
    /// Node type; may be left out where there is one node table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Name of the relation; default `same_{as}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Node type of the values; default: the column in lower case.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// A value of more nodes joins nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_degree: Option<usize>,
}

/// One file or several.
#[derive(Debug, Clone, PartialEq)]
pub struct Files(pub Vec<PathBuf>);

/// One end of an edge: `"type.column"`, `"type"` or `{ type = "...", column = "..." }`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct End {
    /// Node type.
    #[serde(rename = "type")]
    pub node_type: String,
    /// Column of the ids; without it the row itself is the node, so the file is that of the type's node table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

/// How a column of labels is read: a name alone for 0 and 1 (or false and true).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelColumn {
    /// Name of the column.
    pub column: String,
    /// Cells that mean anomalous; default `1` and `true`.
    pub anomalous: Vec<String>,
    /// Cells that mean normal; default `0` and `false`.
    pub normal: Vec<String>,
    /// Cells that say nothing; an empty cell never does.
    pub unknown: Vec<String>,
}

/// A column of times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeColumn {
    /// Name of the column.
    pub column: String,
    /// How it is written.
    #[serde(flatten)]
    pub format: TimeFormat,
}

/// How times are written; without a format as ISO 8601 or as a number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeFormat {
    /// `strftime` pattern, e.g. `%d.%m.%Y %H:%M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Unit of numbers since 1970.
    #[serde(default)]
    pub unit: TimeUnit,
}

/// Unit of numeric times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Seconds.
    #[default]
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

/// Columns and what becomes of them, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeatureColumns(pub Vec<(String, FeatureKind)>);

/// What becomes of a column: the name of a kind alone, or a table `{ kind = "...", ... }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum FeatureKind {
    /// A number.
    Numeric {
        #[serde(default)]
        scale: Scale,
        /// `sign(x) ln(1 + |x|)` before scaling.
        #[serde(default)]
        log: bool,
    },
    /// True or false.
    Boolean {},
    /// One of several values.
    Categorical {
        #[serde(default)]
        encoding: Encoding,
        /// Columns of the hash encoding.
        #[serde(default = "hash_width")]
        width: usize,
    },
    /// A moment.
    Timestamp {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
        #[serde(default)]
        unit: TimeUnit,
    },
    /// Words.
    Text {
        #[serde(default = "text_width")]
        width: usize,
    },
}

/// How numbers are scaled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// `(x - median) / interquartile range`.
    #[default]
    Robust,
    /// `(x - mean) / standard deviation`.
    Standard,
    /// As it is.
    None,
}

/// How categories become numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// A fixed random direction per value.
    #[default]
    Hash,
    /// How frequent the value is.
    Frequency,
}

fn hash_width() -> usize {
    16
}

fn text_width() -> usize {
    64
}

const KINDS: [&str; 5] = ["numeric", "boolean", "categorical", "timestamp", "text"];

impl FeatureKind {
    /// The kind of this name with its defaults.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "numeric" => Self::Numeric { scale: Scale::default(), log: false },
            "boolean" => Self::Boolean {},
            "categorical" => Self::Categorical { encoding: Encoding::default(), width: hash_width() },
            "timestamp" => Self::Timestamp { format: None, unit: TimeUnit::default() },
            "text" => Self::Text { width: text_width() },
            _ => return None,
        })
    }
}

impl FeatureColumns {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Description {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Config`] with the line of a syntax error or an unknown key, and the nearest known one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
        let description: Self =
            toml::from_str(&text).map_err(|fault| syntax_error(&path.display().to_string(), &text, &fault))?;
        description.check().map_err(|error| match error {
            Error::Config { key, expected, found, help, .. } => {
                Error::Config { origin: path.display().to_string(), key, expected, found, help }
            }
            other => other,
        })?;
        Ok(description)
    }

    /// The shares of `[split]`.
    pub(super) fn fractions(&self) -> SplitFractions {
        let SplitTable { train, validation, test, .. } = self.split;
        SplitFractions { train, validation, test }
    }

    fn check(&self) -> Result<()> {
        let wrong = |key: String, expected: &str, found: String, help: &str| Error::Config {
            origin: String::new(),
            key,
            expected: expected.into(),
            found,
            help: help.into(),
        };
        let SplitTable { train, validation, test, .. } = self.split;
        let shares = [train, validation, test];
        if !shares.iter().all(|share| share.is_finite() && *share > 0.0)
            || (shares.iter().sum::<f64>() - 1.0).abs() > 1e-6
        {
            let found = format!("train {train}, validation {validation}, test {test}");
            let help = "use for example 0.6, 0.2 and 0.2";
            return Err(wrong("split".into(), "three positive shares that add up to 1", found, help));
        }
        if self.edges.is_empty() && self.shared.is_empty() {
            let help = "add an [[edges]] table with name, src and dst, or a [[shared]] table with a column";
            return Err(wrong("edges".into(), "at least one [[edges]] or [[shared]] table", "none".into(), help));
        }
        for (at, table) in self.nodes.iter().enumerate() {
            if self.nodes[..at].iter().any(|earlier| earlier.node_type == table.node_type) {
                let help = "list the files of one type in one table: file = [\"a.csv\", \"b.csv\"]";
                let found = format!("`{}` twice", table.node_type);
                return Err(wrong("nodes.type".into(), "every type once", found, help));
            }
            let mut seen = std::collections::HashSet::new();
            for (column, kind) in &table.features.0 {
                let key = format!("nodes.features.{column}");
                if !seen.insert(column) {
                    return Err(wrong(key, "every column once", "it twice".into(), "remove one of them"));
                }
                match kind {
                    FeatureKind::Categorical { width, .. } if !(1..=256).contains(width) => {
                        return Err(wrong(key, "a width of 1 to 256", width.to_string(), "16 is the default"));
                    }
                    FeatureKind::Text { width } if width % LANES != 0 || !(LANES..=512).contains(width) => {
                        let help = "64 is the default";
                        return Err(wrong(key, "a width of 8 to 512, a multiple of 8", width.to_string(), help));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Serialize for Files {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        // Without directories: what a directory is called is no property of the data.
        let names = self.0.iter().map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        serializer.collect_seq(names)
    }
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Files;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("the name of a file or a list of names")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<Files, E> {
                Ok(Files(vec![name.into()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> std::result::Result<Files, A::Error> {
                let mut files = Vec::new();
                while let Some(name) = names.next_element::<String>()? {
                    files.push(name.into());
                }
                if files.is_empty() {
                    return Err(de::Error::invalid_length(0, &self));
                }
                Ok(Files(files))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// Deserialises a value that is a name alone or a table.
fn name_or_table<'de, D, T, Full>(
    deserializer: D,
    expecting: &'static str,
    of_name: impl FnOnce(&str) -> std::result::Result<T, String>,
    of_table: impl FnOnce(Full) -> T,
) -> std::result::Result<T, D::Error>
where
    D: Deserializer<'de>,
    Full: Deserialize<'de>,
{
    struct NameOrTable<N, F, Full>(&'static str, N, F, std::marker::PhantomData<Full>);
    impl<'de, T, Full: Deserialize<'de>, N, F> Visitor<'de> for NameOrTable<N, F, Full>
    where
        N: FnOnce(&str) -> std::result::Result<T, String>,
        F: FnOnce(Full) -> T,
    {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<T, E> {
            (self.1)(name).map_err(E::custom)
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<T, A::Error> {
            Full::deserialize(MapAccessDeserializer::new(map)).map(self.2)
        }
    }
    deserializer.deserialize_any(NameOrTable(expecting, of_name, of_table, std::marker::PhantomData))
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            r#type: String,
            column: Option<String>,
        }
        let of_name = |name: &str| {
            let (node_type, column) = name.split_once('.').map_or((name, None), |(t, c)| (t, Some(c.to_owned())));
            Ok(Self { node_type: node_type.into(), column })
        };
        name_or_table(deserializer, "\"type.column\", \"type\" or { type, column }", of_name, |full: Full| Self {
            node_type: full.r#type,
            column: full.column,
        })
    }
}

impl<'de> Deserialize<'de> for LabelColumn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            column: String,
            anomalous: Option<Vec<Cell>>,
            normal: Option<Vec<Cell>>,
            unknown: Option<Vec<Cell>>,
        }
        let cells = |given: Option<Vec<Cell>>, default: &[&str]| match given {
            Some(cells) => cells.into_iter().map(|cell| cell.0).collect(),
            None => default.iter().map(|&cell| cell.to_owned()).collect(),
        };
        let of_table = |full: Full| Self {
            column: full.column,
            anomalous: cells(full.anomalous, &["1", "true"]),
            normal: cells(full.normal, &["0", "false"]),
            unknown: cells(full.unknown, &[]),
        };
        let of_name =
            |name: &str| Ok(of_table(Full { column: name.into(), anomalous: None, normal: None, unknown: None }));
        name_or_table(deserializer, "the name of a column or { column, anomalous, normal, unknown }", of_name, of_table)
    }
}

/// A cell as the table writes it; numbers need no quotes.
struct Cell(String);

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self(text)),
            toml::Value::Integer(number) => Ok(Self(number.to_string())),
            toml::Value::Boolean(value) => Ok(Self(value.to_string())),
            other => Err(de::Error::custom(format!("expected a text, a whole number or a boolean, found {other}"))),
        }
    }
}

impl<'de> Deserialize<'de> for TimeColumn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            column: String,
            format: Option<String>,
            #[serde(default)]
            unit: TimeUnit,
        }
        let of_name = |name: &str| Ok(Self { column: name.into(), format: TimeFormat::default() });
        name_or_table(deserializer, "the name of a column or { column, format, unit }", of_name, |full: Full| Self {
            column: full.column,
            format: TimeFormat { format: full.format, unit: full.unit },
        })
    }
}

impl Serialize for FeatureColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, kind) in &self.0 {
            map.serialize_entry(column, kind)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for FeatureColumns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Kind(FeatureKind);
        impl<'de> Deserialize<'de> for Kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let of_name = |name: &str| {
                    let unknown = || {
                        let known: Vec<String> = KINDS.iter().map(|kind| format!("`{kind}`")).collect();
                        format!("unknown variant `{name}`, expected one of {}", known.join(", "))
                    };
                    FeatureKind::named(name).ok_or_else(unknown)
                };
                name_or_table(deserializer, "the kind of a feature or { kind, ... }", of_name, |kind| kind).map(Kind)
            }
        }
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = FeatureColumns;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a table of column = kind")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<FeatureColumns, A::Error> {
                let mut columns = Vec::new();
                while let Some((column, Kind(kind))) = map.next_entry()? {
                    columns.push((column, kind));
                }
                Ok(FeatureColumns(columns))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Names the line and, for an unknown key or value, the nearest known one.
fn syntax_error(file: &str, text: &str, fault: &toml::de::Error) -> Error {
    let before = fault.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count();
    let written = text.lines().nth(line).unwrap_or_default();
    let (key, found) = written.split_once('=').map_or((written, ""), |(key, value)| (key, value));
    let message = fault.message().replace('\n', ", ");
    // serde's wording: "unknown field `x`, expected one of `a`, `b`".
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let is_unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let nearest = quoted.split_first().filter(|_| is_unknown).and_then(|(found, known)| nearest(found, known.iter()));
    let help = match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`graphsieve import tables --help` shows an example".into(),
    };
    Error::Config {
        origin: format!("{file}:{}", line + 1),
        key: key.trim().into(),
        expected: format!("a description of tables: {message}"),
        found: found.trim().into(),
        help,
    }
}

/// The name that `found` was probably meant to be.
pub(super) fn nearest<'a, N: AsRef<str> + ?Sized + 'a>(
    found: &str,
    known: impl Iterator<Item = &'a N>,
) -> Option<&'a str> {
    known.map(AsRef::as_ref).min_by_key(|name| strsim::damerau_levenshtein(&name.to_lowercase(), &found.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Description> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Description::read(file.path())
    }

    #[test]
    fn short_and_long_forms_say_the_same() {
        let short = "[[nodes]]\ntype = \"tx\"\nfile = \"t.csv\"\nlabel = \"L\"\n\
                     features = { A = \"numeric\", B = \"text\", C = \"timestamp\" }\n\
                     [[edges]]\nname = \"pays\"\nsrc = \"account.Source\"\ndst = \"tx\"\ntime = \"T\"\n";
        let long = "[split]\nseed = 42\n[[nodes]]\ntype = \"tx\"\nfile = [\"t.csv\"]\n\
                    label = { column = \"L\", anomalous = [1, true], normal = [0, \"false\"] }\n\
                    [nodes.features]\nA = { kind = \"numeric\", scale = \"robust\" }\n\
                    B = { kind = \"text\", width = 64 }\nC = { kind = \"timestamp\", unit = \"s\" }\n\
                    [[edges]]\nname = \"pays\"\nsrc = { type = \"account\", column = \"Source\" }\n\
                    dst = { type = \"tx\" }\ntime = { column = \"T\" }\n";
        let description = parsed(short).unwrap();
        assert_eq!(description, parsed(long).unwrap());
        let columns: Vec<&str> = description.nodes[0].features.0.iter().map(|(column, _)| column.as_str()).collect();
        assert_eq!(columns, ["A", "B", "C"]);
    }

    #[test]
    fn wrong_descriptions_are_named_by_line_with_the_nearest_key() {
        let edges = "[[edges]]\nname = \"r\"\nfile = \"e.csv\"\nsrc = \"a.x\"\ndst = \"a.y\"\n";
        let cases = [
            (format!("{edges}wieght = \"w\"\n"), ":6: wieght", "did you mean `weight`?"),
            ("[[edge]]\nname = \"r\"\n".into(), ":1: ", "did you mean `edges`?"),
            (
                format!("{edges}[[nodes]]\ntype = \"a\"\nfile = \"n.csv\"\nfeatures = {{ A = \"numerc\" }}\n"),
                ":9: features",
                "did you mean `numeric`?",
            ),
            (
                format!(
                    "{edges}[[nodes]]\ntype = \"a\"\nfile = \"n.csv\"\n[nodes.features]\n\
                     A = {{ kind = \"text\", wdth = 8 }}\n"
                ),
                ":10: A",
                "did you mean `width`?",
            ),
            (
                format!(
                    "{edges}[[nodes]]\ntype = \"a\"\nfile = \"n\"\nfeatures.A = {{ kind = \"text\", width = 9 }}\n"
                ),
                "nodes.features.A = 9: expected a width of 8 to 512",
                "64",
            ),
            ("[split]\ntrain = 0.9\n".into(), "split = train 0.9", "0.6, 0.2 and 0.2"),
            (String::new(), "edges = none", "[[edges]]"),
            (format!("{edges}src = \"b\"\n"), ":6: src", "example"),
            (format!("{edges}time = {{ column = \"t\", unit = \"sec\" }}\n"), ":6: time", "did you mean `s`?"),
        ];
        for (text, what, help) in cases {
            let error = parsed(&text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            let error = error.to_string();
            assert!(error.contains(what) && error.contains(help), "{error}\nlacks {what} or {help}");
        }
    }
}
