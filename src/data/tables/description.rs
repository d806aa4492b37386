//! The description of an import: a TOML file that says which tables hold nodes, edges and labels.

mod division;
mod forms;
mod history;
mod scored;
mod span;
mod windows;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::division::{SplitBy, SplitTable};
pub use self::history::History;
pub use self::span::Span;
pub use self::windows::WindowTable;
use crate::data::text::LANES;
use crate::error::{Error, Place, Result, Snippet, UnknownName};

/// Columns that one feature may have.
const MAX_WIDTH: usize = 512;

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
    /// Windowed features of events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowTable>,
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
    /// Column of the times: with it the nodes are events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeColumn>,
    /// Column of what a fraudulent event costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<String>,
    /// Node type that an alert about an event blocks, such as its card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
    /// Earlier events of the same entity that an event is joined to: so many of the latest, or `all`. Default 10.
    #[serde(default, skip_serializing_if = "History::is_default")]
    pub history: History,
    /// Column of the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<LabelColumn>,
    /// Columns that become features, in this order.
    #[serde(default, skip_serializing_if = "FeatureColumns::is_empty")]
    pub features: FeatureColumns,
    /// Of rows that are edges: the relations of their source and of their destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<[String; 2]>,
}

/// One `[[edges]]` table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// Columns that become values of the edges, in this order.
    #[serde(default, deserialize_with = "forms::edge_values", skip_serializing_if = "FeatureColumns::is_empty")]
    pub values: FeatureColumns,
    /// Leaves out rows with an empty end instead of refusing them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_empty: bool,
    /// Leaves out the generated reverse relation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
    /// Column of the labels: with it every row gets a score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<LabelColumn>,
    /// Whether every row gets a score, where no label is known yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scored: bool,
    /// Of scored edges, as of a node table: the column of their ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Of scored edges with times: the column of what a fraudulent one costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<String>,
    /// Of scored edges with times: the node type that an alert blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
    /// Of scored edges with times: earlier ones of the same end that an edge is joined to.
    #[serde(default, skip_serializing_if = "History::is_default")]
    pub history: History,
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
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    /// How long after its event a label becomes known; beside `known` the time by which windows of labels end before
    /// the event. With `known` alone a label is in the windows that hold the moment at which it became known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Column that says when each label became known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<TimeColumn>,
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
    /// Whether numbers of a unit below the second may all lie in the first weeks of 1970.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_1970: bool,
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

impl TimeUnit {
    /// As the description writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::S => "s",
            Self::Ms => "ms",
            Self::Us => "us",
            Self::Ns => "ns",
        }
    }
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
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_1970: bool,
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
    /// How a column of moments is written.
    pub(super) fn time_format(&self) -> Option<TimeFormat> {
        match self.clone() {
            Self::Timestamp { format, unit, in_1970 } => Some(TimeFormat { format, unit, in_1970 }),
            _ => None,
        }
    }

    /// As the description writes it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Numeric { .. } => "numeric",
            Self::Boolean {} => "boolean",
            Self::Categorical { .. } => "categorical",
            Self::Timestamp { .. } => "timestamp",
            Self::Text { .. } => "text",
        }
    }

    /// The kind of this name with its defaults.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "numeric" => Self::Numeric { scale: Scale::default(), log: false },
            "boolean" => Self::Boolean {},
            "categorical" => Self::Categorical { encoding: Encoding::default(), width: hash_width() },
            "timestamp" => Self::Timestamp { format: None, unit: TimeUnit::default(), in_1970: false },
            "text" => Self::Text { width: text_width() },
            _ => return None,
        })
    }
}

impl SharedColumn {
    /// The node table whose column it is.
    pub(super) fn table<'a>(&self, tables: &'a [NodeTable]) -> Option<&'a NodeTable> {
        match (&self.nodes, tables) {
            (Some(name), _) => tables.iter().find(|table| table.node_type == *name),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// Node type of the values.
    pub(super) fn hub(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
        self.hub.clone().unwrap_or_else(|| self.column.chars().map(plain).collect())
    }

    /// Name of the relation.
    pub(super) fn relation(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("same_{}", self.hub()))
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
        let checked = description.with_scored_edges_as_nodes().and_then(|description| {
            description.check()?;
            Ok(description)
        });
        checked.map_err(|error| located(error, path))
    }

    /// The description that an import kept in `file`.
    ///
    /// # Errors
    /// [`Error::Format`] for one that no import takes.
    pub(super) fn of_stored(stored: &Value, file: &Path) -> Result<Self> {
        let changed = |place: &str, expected: String, found: String| {
            let help = "the file was changed or is of another version; import the tables again";
            Error::format(file, place, expected, found, help)
        };
        let description: Self = serde_json::from_value(stored.clone())
            .map_err(|fault| changed("description", "a description of tables".into(), fault.to_string()))?;
        description.check().map_err(|error| match error {
            Error::Config { key, expected, found, .. } => changed(&key, expected, found),
            other => other,
        })?;
        Ok(description)
    }

    fn check(&self) -> Result<()> {
        self.split.check()?;
        self.check_ends()?;
        self.windows.iter().try_for_each(|table| table.check(self.split.by))?;
        if self.edges.is_empty() && self.shared.is_empty() {
            let help = "add an [[edges]] table with name, src and dst, or a [[shared]] table with a column";
            return Err(wrong("edges", "at least one [[edges]] or [[shared]] table", "none".into(), help));
        }
        for (at, table) in self.nodes.iter().enumerate() {
            if self.nodes[..at].iter().any(|earlier| earlier.node_type == table.node_type) {
                let help = "list the files of one type in one table: file = [\"a.csv\", \"b.csv\"]";
                let found = format!("`{}` twice", table.node_type);
                return Err(wrong("nodes.type", "every type once", found, help));
            }
            let of_events = [("amount", table.amount.is_some()), ("alert", table.alert.is_some())];
            if let (None, Some((key, _))) = (&table.time, of_events.iter().find(|(_, given)| *given)) {
                let help = "add time = \"COLUMN\", or leave it out";
                let expected = "it in a table of events, which has a time";
                return Err(wrong(format!("nodes.{key}"), expected, format!("no time in `{}`", table.node_type), help));
            }
            if let Some(label) = &table.label {
                let help = "a label is known at its time, after a delay, or when a column says";
                if table.time.is_none() && (label.delay.is_some() || label.known.is_some()) {
                    let found = format!("no time in `{}`", table.node_type);
                    return Err(wrong("nodes.label", "a delay in a table of events, which has a time", found, help));
                }
            }
        }
        if !self.windows.is_empty() && self.nodes.iter().all(|table| table.time.is_none()) {
            let help = "add time = \"COLUMN\" to the [[nodes]] table of the events, or leave [[windows]] out";
            let (expected, found) = ("a table of events, which has a time", "no [[nodes]] table with a time".into());
            return Err(wrong("windows", expected, found, help));
        }
        let mut of_events = self.nodes.iter().filter(|table| table.time.is_some());
        of_events.try_for_each(|table| windows::check_values(&self.windows, table))?;
        let of_nodes = self.nodes.iter().map(|table| ("nodes.features", &table.features));
        let of_edges = self.edges.iter().map(|table| ("edges.values", &table.values));
        for (key, columns) in of_nodes.chain(of_edges) {
            let mut seen = std::collections::HashSet::new();
            for (column, kind) in &columns.0 {
                let key = format!("{key}.{column}");
                if !seen.insert(column) {
                    return Err(wrong(key, "every column once", "it twice".into(), "remove one of them"));
                }
                match kind {
                    FeatureKind::Categorical { width, .. } if !(1..=256).contains(width) => {
                        return Err(wrong(key, "a width of 1 to 256", width.to_string(), "16 is the default"));
                    }
                    FeatureKind::Text { width } if width % LANES != 0 || !(LANES..=MAX_WIDTH).contains(width) => {
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

/// A fault of a description, whose file [`located`] adds.
fn wrong(key: impl Into<String>, expected: impl Into<String>, found: String, help: impl Into<String>) -> Error {
    let (key, expected, help) = (key.into(), expected.into(), help.into());
    Error::Config { origin: String::new().into(), key, expected, found, help }
}

/// Gives an error about the description its file.
pub(super) fn located(error: Error, file: &Path) -> Error {
    match error {
        Error::Config { key, expected, found, help, .. } => {
            Error::Config { origin: file.display().to_string().into(), key, expected, found, help }
        }
        other => other,
    }
}

/// Names the line and, for an unknown key or value, the nearest known one.
fn syntax_error(file: &str, text: &str, fault: &toml::de::Error) -> Error {
    let before = fault.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count();
    let origin = Place::from(format!("{file}:{}", line + 1));
    let origin = match fault.span() {
        Some(span) => origin.with_snippet(Snippet::of(text, span)),
        None => origin,
    };
    let written = text.lines().nth(line).unwrap_or_default();
    let (key, found) = written.split_once('=').map_or((written, ""), |(key, value)| (key, value));
    let message = fault.message().replace('\n', ", ");
    let help = match UnknownName::read(&message).and_then(|unknown| unknown.nearest()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`graphsieve import tables --help` shows an example".into(),
    };
    Error::Config {
        origin,
        key: key.trim().into(),
        expected: format!("a description of tables: {message}"),
        found: found.trim().into(),
        help,
    }
}

#[cfg(test)]
mod tests;
