//! Single rows of the tables of an import, read as the import would read them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use half::f16;

use super::cells::shown;
use super::description::{Description, Encoding, FeatureColumns, FeatureKind, NodeTable, TimeFormat};
use super::encode;
use super::fitting::{Scaler, signed_log};
use super::input::MAX_CELL_BYTES;
use super::naming::{column_names, has_hour};
use super::nodes::{Fact, time_reader};
use super::stored::{IMPORT_FILE, Stored, UnknownCategories};
use super::values::{self, Fault};
use super::windowed::{entity_names, events_of};
use crate::data::text::terms::TermCounter;
use crate::data::windows::WindowConfig;
use crate::error::{Error, Result};

/// Cells of a row by column, as a table would have them; an empty one is missing.
pub(crate) type Cells<'a> = dyn Fn(&str) -> Result<Cow<'a, str>> + 'a;

/// A column of a table that becomes columns of numbers.
#[derive(Debug)]
pub(super) struct Source {
    pub column: String,
    pub kind: FeatureKind,
    /// The name of what was learned for it.
    pub fitted: String,
    pub start: usize,
    pub width: usize,
    /// Of categories: rows that have one, and those whose category no fitted row has.
    counts: [AtomicUsize; 2],
}

/// What an event is beside its features.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct NodeFacts {
    pub label: Option<u8>,
    pub time: Option<i64>,
    pub known: Option<i64>,
    pub amount: Option<f32>,
    pub value: Option<f32>,
}

/// What an edge carries.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EdgeFacts {
    pub weight: Option<f32>,
    pub time: Option<i64>,
    pub values: Vec<f32>,
}

/// An edge that a row of a node table gives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OwnEdge {
    /// Name of the relation.
    pub relation: String,
    /// Number of its `[[edges]]` table; none of a shared column.
    pub table: Option<usize>,
    /// Column of the id at the other end.
    pub column: String,
    /// Whether the row is the source.
    pub is_src: bool,
    /// Whether a row without an id at the other end has no edge, rather than a fault.
    pub may_be_empty: bool,
}

/// What a column of a table is, for whoever describes it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ColumnInfo {
    pub name: String,
    /// `numeric`, `boolean`, `categorical`, `timestamp`, `text`; `id`, `label`, `time`, `amount`, `weight`, or
    /// `feature` where there is no description.
    pub kind: &'static str,
    pub is_required: bool,
}

/// Windows that the description asks for.
#[derive(Debug, Clone)]
pub(crate) struct WindowRules {
    pub node_type: String,
    pub config: WindowConfig,
    /// Whether the labels of training rows alone are counted.
    pub of_training: bool,
    pub delay: Option<i64>,
    pub has_values: bool,
    /// Of pairs, the relations of both ends.
    pub pairs: Option<[String; 2]>,
    /// Of events that are edges, the relations of their ends.
    pub ends: Option<[String; 2]>,
}

/// Neighbouring columns of the feature matrix and their scales.
#[derive(Debug)]
pub(crate) struct WindowColumns {
    start: usize,
    scalers: Vec<Scaler>,
}

impl WindowColumns {
    /// Where they are.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.scalers.len()
    }

    /// Writes windows into a row of all columns.
    pub fn write(&self, values: &[f32], features: &mut [f16]) {
        for ((out, &value), scaler) in features[self.range()].iter_mut().zip(values).zip(&self.scalers) {
            *out = f16::from_f32(encode::window(value, *scaler));
        }
    }
}

/// What the edges at one end of a relation add up to for a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// Different neighbours.
    pub degree: u32,
    /// Edges.
    pub count: u32,
    pub weight_sum: f64,
    pub weight_max: f32,
    /// Time of the last one.
    pub last: i64,
}

impl Figures {
    pub const NONE: Self = Self { degree: 0, count: 0, weight_sum: 0.0, weight_max: f32::NEG_INFINITY, last: i64::MIN };

    /// Adds an edge, which may be the first one to its neighbour.
    pub fn add(&mut self, weight: Option<f32>, time: Option<i64>, is_new: bool) {
        self.degree += u32::from(is_new);
        self.count += 1;
        if let Some(weight) = weight {
            self.weight_sum += f64::from(weight);
            self.weight_max = self.weight_max.max(weight);
        }
        self.last = self.last.max(time.unwrap_or(i64::MIN));
    }
}

/// Columns of the edges at one end of a relation: where they are, and their scales.
#[derive(Debug)]
pub(crate) struct FigureColumns {
    degree: Option<(usize, Scaler)>,
    count: Option<(usize, Scaler)>,
    mean: Option<(usize, Scaler)>,
    max: Option<(usize, Scaler)>,
    last: Option<(usize, Scaler, i64)>,
}

impl FigureColumns {
    /// Numbers of the columns.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        let scaled = [self.degree, self.count, self.mean, self.max].into_iter().flatten().map(|(column, _)| column);
        scaled.chain(self.last.map(|(column, ..)| column))
    }

    /// Writes them into a row of all columns.
    pub fn write(&self, figures: &Figures, features: &mut [f16]) {
        let Figures { degree, count, weight_sum, weight_max, last } = *figures;
        let mut put = |column: usize, value: f32| features[column] = f16::from_f32(value);
        self.degree.iter().for_each(|&(column, scaler)| put(column, encode::degree(degree, scaler)));
        self.count.iter().for_each(|&(column, scaler)| put(column, encode::degree(count, scaler)));
        let mean = encode::mean_weight(weight_sum, count);
        self.mean.iter().for_each(|&(column, scaler)| put(column, mean.map_or(0.0, |mean| scaler.apply(mean))));
        let max = (count > 0).then(|| signed_log(weight_max));
        self.max.iter().for_each(|&(column, scaler)| put(column, max.map_or(0.0, |max| scaler.apply(max))));
        if let Some((column, scaler, latest)) = self.last {
            put(column, if count > 0 { scaler.apply(encode::log_age(latest, last)) } else { 0.0 });
        }
    }
}

/// The tables of an import.
#[derive(Debug)]
pub(crate) struct RowTables {
    pub description: Description,
    pub(super) stored: Stored,
    /// By node table.
    pub(super) nodes: Vec<Vec<Source>>,
    /// By edge table.
    edges: Vec<Vec<Source>>,
}

impl RowTables {
    /// Those of the import in a directory; `None` where it holds none.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for files that were changed or are of another version.
    pub fn open(dir: &Path) -> Result<Option<Self>> {
        let file = dir.join(IMPORT_FILE);
        if !file.is_file() {
            return Ok(None);
        }
        let stored = Stored::read(dir)?;
        let description = Description::of_stored(&stored.description, &file)?;
        let sources = |columns: &FeatureColumns, prefix: &str, place: &dyn Fn(&str) -> Option<usize>| {
            let mut next = 0;
            let source = |(column, kind): &(String, FeatureKind)| {
                let name = format!("{prefix}{column}");
                let names = column_names(kind, &name);
                let fitted = match kind {
                    FeatureKind::Timestamp { .. } => format!("{name}_recency"),
                    _ => name,
                };
                stored.transforms.get(&fitted).ok_or_else(|| stored.lacks(&fitted))?;
                let start = names.first().and_then(|first| place(first)).unwrap_or(next);
                next = start + names.len();
                let (column, kind, width) = (column.clone(), kind.clone(), names.len());
                Ok(Source { column, kind, fitted, start, width, counts: Default::default() })
            };
            columns.0.iter().map(source).collect::<Result<Vec<_>>>()
        };
        let column = |name: &str| stored.columns.iter().position(|column| column == name);
        let nodes = description.nodes.iter();
        let nodes = nodes.map(|table| sources(&table.features, &format!("{}.", table.node_type), &column));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let edges = description.edges.iter();
        let edges = edges.map(|table| sources(&table.values, &format!("edges[{}].", table.name), &|_| None));
        let edges = edges.collect::<Result<Vec<_>>>()?;
        Ok(Some(Self { description, stored, nodes, edges }))
    }

    /// Those of the import in the directory `data`, or, where there is none, of the one that the run keeps, if its
    /// columns are `names`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn of_data(data: &Path, run: &Path, names: Option<&[String]>) -> Result<Option<Self>> {
        match Self::open(data)? {
            None if names.is_some() => Ok(Self::open(run)?.filter(|tables| names == Some(tables.columns()))),
            found => Ok(found),
        }
    }

    /// All columns of the feature matrix.
    pub fn columns(&self) -> &[String] {
        &self.stored.columns
    }

    /// The table of a node type.
    pub fn node_table(&self, node_type: &str) -> Option<usize> {
        self.description.nodes.iter().position(|table| table.node_type == node_type)
    }

    /// The table of a relation.
    pub fn edge_table(&self, relation: &str) -> Option<usize> {
        self.description.edges.iter().position(|table| table.name == relation)
    }

    /// The edges that every row of a node table gives.
    pub fn own_edges(&self, table: usize) -> Vec<OwnEdge> {
        let nodes = &self.description.nodes[table];
        let mut own = Vec::new();
        for (at, edges) in self.description.edges.iter().enumerate() {
            if edges.file.as_ref().is_some_and(|file| *file != nodes.file) {
                continue;
            }
            for (row, other, is_src) in [(&edges.src, &edges.dst, true), (&edges.dst, &edges.src, false)] {
                if let (None, Some(column)) = (&row.column, &other.column)
                    && row.node_type == nodes.node_type
                {
                    let (relation, column) = (edges.name.clone(), column.clone());
                    own.push(OwnEdge { relation, table: Some(at), column, is_src, may_be_empty: edges.skip_empty });
                }
            }
        }
        for shared in &self.description.shared {
            if shared.table(&self.description.nodes).is_some_and(|of| of.node_type == nodes.node_type) {
                let (relation, column) = (shared.relation(), shared.column.clone());
                own.push(OwnEdge { relation, table: None, column, is_src: false, may_be_empty: true });
            }
        }
        own
    }

    /// Reads a row of a node table and writes its own columns into a row of all columns, which is zero before.
    ///
    /// # Errors
    /// [`Error::Data`] with the column of a value that is none, and for an event without a time.
    pub fn node(&self, table: usize, cells: &Cells, features: &mut [f32]) -> Result<NodeFacts> {
        let sources = &self.nodes[table];
        let table = &self.description.nodes[table];
        let name = &table.node_type;
        let mut facts = NodeFacts::default();
        if let Some(label) = &table.label {
            let cell = cells(&label.column)?;
            facts.label = values::label(&cell, label).map_err(|fault| refused(name, &label.column, &cell, fault))?;
        }
        for source in sources {
            let out = &mut features[source.start..source.start + source.width];
            self.encode(name, source, cells, out)?;
        }
        for (fact, column) in Fact::of(table, &self.description.windows) {
            let cell = cells(&column.name)?;
            let number = || values::number(&cell).map_err(|fault| refused(name, &column.name, &cell, fault));
            let moment = || moment(name, &column.name, &cell, &column.kind.time_format().unwrap_or_default());
            match fact {
                Fact::Time => {
                    let none = ("a time", "every event has a time; RFC 3339 will do");
                    let time = moment()?.ok_or_else(|| refused(name, &column.name, &cell, none))?;
                    facts.time = Some(time);
                }
                Fact::Known => facts.known = moment()?,
                Fact::Amount => facts.amount = number()?,
                Fact::Value => facts.value = number()?,
            }
        }
        self.check_known(table, cells, &mut facts)?;
        Ok(facts)
    }

    /// When the label became known, as an import says it; refuses one that was known before its event.
    fn check_known(&self, table: &NodeTable, cells: &Cells, facts: &mut NodeFacts) -> Result<()> {
        let (Some(_), Some(time), Some(label)) = (facts.label, facts.time, &table.label) else {
            facts.known = None;
            return Ok(());
        };
        let Some(column) = &label.known else {
            facts.known = Some(time.saturating_add(label.delay.map_or(0, |delay| delay.0)));
            return Ok(());
        };
        if facts.known.is_some_and(|known| known < time) {
            let fault = (
                "a time from that of the event on, when its label became known",
                "correct either time, or leave the label out; a date alone is its first second",
            );
            return Err(refused(&table.node_type, &column.column, &cells(&column.column)?, fault));
        }
        Ok(())
    }

    /// The columns of a node of which no row says anything.
    pub fn unnamed(&self, table: usize, features: &mut [f32]) -> Result<()> {
        let name = &self.description.nodes[table].node_type;
        self.nodes[table].iter().try_for_each(|source| {
            let out = &mut features[source.start..source.start + source.width];
            self.encode(name, source, &|_| Ok("".into()), out)
        })
    }

    /// Reads what an edge of an edge table carries.
    ///
    /// # Errors
    /// [`Error::Data`] with the column of a value that is none, or of a weight or time that is missing.
    pub fn edge(&self, table: usize, cells: &Cells) -> Result<EdgeFacts> {
        let sources = &self.edges[table];
        let table = &self.description.edges[table];
        let name = &table.name;
        let weight = table.weight.as_ref().map(|column| {
            let cell = cells(column)?;
            let weight = values::number(&cell);
            let weight = weight.and_then(|weight| weight.ok_or(("a weight", "every edge of the relation has one")));
            weight.map_err(|fault| refused(name, column, &cell, fault))
        });
        let time = table.time.as_ref().map(|column| {
            let cell = cells(&column.column)?;
            let none = ("a time", "every edge of the relation has one; RFC 3339 will do");
            moment(name, &column.column, &cell, &column.format)?
                .ok_or_else(|| refused(name, &column.column, &cell, none))
        });
        let mut values = vec![0.0; sources.iter().map(|source| source.width).sum()];
        for source in sources {
            self.encode(name, source, cells, &mut values[source.start..source.start + source.width])?;
        }
        Ok(EdgeFacts { weight: weight.transpose()?, time: time.transpose()?, values })
    }

    /// Reads a cell and writes its columns.
    fn encode(&self, of: &str, source: &Source, cells: &Cells, out: &mut [f32]) -> Result<()> {
        let cell = cells(&source.column)?;
        let fitted = self.stored.transforms.get(&source.fitted).ok_or_else(|| self.stored.lacks(&source.fitted))?;
        let refuse = |fault| refused(of, &source.column, &cell, fault);
        if cell.len() > MAX_CELL_BYTES {
            return Err(refuse(("a value of at most 1 MiB", "values of tables are short: leave it out")));
        }
        let (median, scaler) = (fitted.median.unwrap_or(0.0), fitted.scaler());
        match &source.kind {
            FeatureKind::Numeric { log, .. } => {
                encode::number(values::number(&cell).map_err(refuse)?, *log, median, scaler, out);
            }
            FeatureKind::Boolean {} => {
                encode::number(values::boolean(&cell).map_err(refuse)?, false, median, scaler, out);
            }
            FeatureKind::Categorical { encoding, .. } => {
                let rows = fitted.categories.as_ref().map_or(0, |categories| categories.rows_of(&cell));
                if !cell.is_empty() {
                    source.counts[0].fetch_add(1, Relaxed);
                    source.counts[1].fetch_add(usize::from(rows == 0), Relaxed);
                }
                match encoding {
                    Encoding::Hash => encode::hashed(&cell, out),
                    Encoding::Frequency => {
                        let scaled = (!cell.is_empty()).then(|| encode::scaled_frequency(rows, scaler));
                        encode::frequency(scaled, out);
                    }
                }
            }
            FeatureKind::Timestamp { format, .. } => {
                let time = moment(of, &source.column, &cell, &source.kind.time_format().unwrap_or_default())?;
                encode::time(time, has_hour(format.as_deref()), fitted.latest.unwrap_or(0), scaler, out);
            }
            FeatureKind::Text { width } => {
                let mut terms = TermCounter::default();
                terms.add(&cell);
                let directions = fitted.text.as_ref().filter(|directions| directions.width() == *width);
                directions.ok_or_else(|| self.stored.lacks(&source.fitted))?.write(&terms.finish(), out);
            }
        }
        Ok(())
    }

    /// Categories of the rows that were read, and how many no fitted row has, by column.
    pub fn unknown_categories(&self) -> Vec<UnknownCategories> {
        let sources = self.nodes.iter().chain(&self.edges).flatten();
        let of_categories = sources.filter(|source| matches!(source.kind, FeatureKind::Categorical { .. }));
        let counted = |source: &Source| {
            let [rows, unknown] = source.counts.each_ref().map(|count| count.load(Relaxed));
            UnknownCategories { column: source.fitted.clone(), rows, unknown }
        };
        of_categories.map(counted).collect()
    }

    /// The columns of a node table, with those of the edges that its rows give.
    pub fn columns_of_nodes(&self, at: usize) -> Vec<ColumnInfo> {
        let table = &self.description.nodes[at];
        let mut columns = of_features(&table.features);
        for (fact, column) in Fact::of(table, &self.description.windows) {
            let kind = if matches!(fact, Fact::Time | Fact::Known) { "time" } else { "amount" };
            add(&mut columns, &column.name, kind, fact == Fact::Time);
        }
        table.label.iter().for_each(|label| add(&mut columns, &label.column, "label", false));
        for edge in self.own_edges(at) {
            add(&mut columns, &edge.column, "id", !edge.may_be_empty);
            for column in edge.table.map(|table| self.columns_of_edges(table)).into_iter().flatten() {
                add(&mut columns, &column.name, column.kind, column.is_required);
            }
        }
        columns
    }

    /// The columns of an edge table, without the ids of its ends.
    pub fn columns_of_edges(&self, at: usize) -> Vec<ColumnInfo> {
        let table = &self.description.edges[at];
        let mut columns = of_features(&table.values);
        table.weight.iter().for_each(|column| add(&mut columns, column, "weight", true));
        table.time.iter().for_each(|column| add(&mut columns, &column.column, "time", true));
        columns
    }

    /// How many earlier events of the same entity an event is joined to over each relation.
    pub fn histories(&self) -> Vec<(String, usize)> {
        let of_table = |(at, table): (usize, &NodeTable)| {
            let most = table.history.most();
            let edges = self.description.edges.iter();
            let edges =
                edges.filter(|edges| [&edges.src, &edges.dst].iter().any(|end| end.node_type == table.node_type));
            let shared = self.own_edges(at).into_iter().filter(|edge| edge.table.is_none()).map(|edge| edge.relation);
            let names = edges.map(|edges| edges.name.clone()).chain(shared);
            names.map(|name| (name, most)).collect::<Vec<_>>()
        };
        let tables = self.description.nodes.iter().enumerate().filter(|(_, table)| table.time.is_some());
        tables.flat_map(of_table).collect()
    }

    /// How many nodes at most a value of a shared column joins, whose relation this is.
    pub fn max_degree(&self, relation: &str) -> Option<usize> {
        self.description.shared.iter().find(|shared| shared.relation() == relation)?.max_degree
    }

    /// The windows of the description, in the order of their columns.
    ///
    /// # Errors
    /// [`Error::Config`] for windows of later events, which are whole only once these have come.
    pub fn windows(&self) -> Result<Vec<WindowRules>> {
        if self.stored.windows.len() < self.description.windows.len() {
            return Err(self.stored.lacks("windows"));
        }
        let mut all = Vec::new();
        for (wanted, fitted) in self.description.windows.iter().zip(&self.stored.windows) {
            let Some((_, table)) = events_of(&self.description, wanted) else { continue };
            if wanted.ahead {
                return Err(Error::Config {
                    origin: "the description of the tables".into(),
                    key: "windows.ahead".into(),
                    expected: "false where rows are scored as they come: they have no later events yet".into(),
                    found: "true".into(),
                    help: "import the tables without windows ahead and train again".into(),
                });
            }
            let (config, of_training) = fitted.made(wanted, table, self.description.split.by);
            let rules = WindowRules {
                node_type: table.node_type.clone(),
                config,
                of_training,
                delay: table.label.as_ref().and_then(|label| label.delay).map(|delay| delay.0),
                has_values: Fact::of(table, &self.description.windows).iter().any(|(fact, _)| *fact == Fact::Value),
                pairs: None,
                ends: table.ends.clone(),
            };
            all.push(rules.clone());
            all.extend(
                table.ends.clone().filter(|_| wanted.pairs).map(|ends| WindowRules { pairs: Some(ends), ..rules }),
            );
        }
        Ok(all)
    }

    /// What entities are called in the names of columns, by their relations (as the description calls them) and types.
    pub fn entity_names<'a>(of: &[(&'a str, &'a str)], ends: Option<&[String; 2]>) -> Vec<&'a str> {
        entity_names(of, ends)
    }

    /// The relations of the description in their order.
    pub fn relations(&self) -> Vec<String> {
        let edges = self.description.edges.iter().map(|table| table.name.clone());
        edges.chain(self.description.shared.iter().map(|shared| shared.relation())).collect()
    }

    /// Columns of windows called `names` of a node type.
    ///
    /// # Errors
    /// [`Error::Format`] for columns that are not there.
    pub fn window_columns(&self, node_type: &str, names: &[String]) -> Result<WindowColumns> {
        let names: Vec<String> = names.iter().map(|name| format!("{node_type}.{name}")).collect();
        let columns = &self.stored.columns;
        let start = names.first().and_then(|first| columns.iter().position(|column| column == first)).unwrap_or(0);
        if let Some(at) = (0..names.len()).find(|&at| columns.get(start + at) != Some(&names[at])) {
            return Err(self.stored.lacks(&names[at]));
        }
        let scaler = |name: &String| {
            let fitted = self.stored.transforms.get(name).ok_or_else(|| self.stored.lacks(name))?;
            Ok(fitted.scaler())
        };
        Ok(WindowColumns { start, scalers: names.iter().map(scaler).collect::<Result<_>>()? })
    }

    /// Columns of one end of a relation, `pays.in` or `pays.out`.
    pub fn figure_columns(&self, end: &str) -> FigureColumns {
        let scaled = |part: &str| {
            let name = format!("{end}_{part}");
            let column = self.stored.columns.iter().position(|column| *column == name)?;
            let fitted = self.stored.transforms.get(&name)?;
            Some((column, fitted.scaler(), fitted.latest.unwrap_or(0)))
        };
        let plain = |part: &str| scaled(part).map(|(column, scaler, _)| (column, scaler));
        FigureColumns {
            degree: plain("degree"),
            count: plain("count"),
            mean: plain("mean_weight"),
            max: plain("max_weight"),
            last: scaled("recency"),
        }
    }
}

/// Seconds since 1970, or ISO 8601.
pub(crate) fn read_time(cell: &str) -> Option<i64> {
    let format = TimeFormat::default();
    time_reader(&format, "time").ok()?.read_one(cell, &format).ok().flatten()
}

/// Reads a time.
fn moment(of: &str, column: &str, cell: &str, format: &TimeFormat) -> Result<Option<i64>> {
    time_reader(format, column)?.read_one(cell, format).map_err(|fault| refused(of, column, cell, fault))
}

/// The error of a cell.
fn refused(of: &str, column: &str, cell: &str, (expected, help): Fault) -> Error {
    Error::Data {
        what: format!("column `{column}` of `{of}`"),
        expected: expected.into(),
        found: shown(cell),
        help: help.into(),
    }
}

fn of_features(columns: &FeatureColumns) -> Vec<ColumnInfo> {
    let info =
        |(name, kind): &(String, FeatureKind)| ColumnInfo { name: name.clone(), kind: kind.name(), is_required: false };
    columns.0.iter().map(info).collect()
}

/// Adds a column, or that one that is there is required as well.
fn add(columns: &mut Vec<ColumnInfo>, name: &str, kind: &'static str, is_required: bool) {
    match columns.iter_mut().find(|column| column.name == name) {
        Some(known) => known.is_required |= is_required,
        None => columns.push(ColumnInfo { name: name.into(), kind, is_required }),
    }
}
