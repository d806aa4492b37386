//! A user's row in numbers, exactly as an import makes them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use serde_json::{Map, Value};

use super::change::COLUMNS;
use super::{Change, EdgeChange, EdgeRow, NodeChange, NodeRow, Row};
use crate::data::tables::{ColumnInfo, NodeFacts, OwnEdge, RowTables, UnknownCategories};
use crate::error::{Error, Result, nearest_name};
use crate::graph::{Dataset, FILLING_FILE, HeteroGraph};

/// Longest part of a user's value that a message repeats.
const SHOWN: usize = 80;
/// A key whose list holds all features, in data without a description.
const FEATURES: &str = "features";

/// A node type or a relation with the columns that its rows may have.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TableColumns {
    /// Name of the node type or of the relation.
    pub name: String,
    /// Whether rows are edges.
    pub is_edge: bool,
    pub columns: Vec<ColumnInfo>,
}

/// How rows of a node type are read.
#[derive(Debug)]
struct TypeRows {
    name: String,
    /// Number of its table in the description.
    table: Option<usize>,
    /// The column that is 1 for its nodes.
    is_type: Option<usize>,
    /// Edges that a row gives, each with the node type at its other end.
    edges: Vec<(OwnEdge, Target, usize)>,
    columns: Vec<ColumnInfo>,
    /// Whether nodes have a time.
    is_of_events: bool,
}

/// The relation of the graph that rows of an edge table become.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// Index in the graph.
    relation: usize,
    /// Whether it leads the other way.
    turned: bool,
}

/// How rows of a relation are read.
#[derive(Debug)]
struct RelationRows {
    target: Target,
    /// Number of its table in the description; none of a shared column, and of data without a description.
    table: Option<usize>,
    columns: Vec<ColumnInfo>,
}

/// Reads rows.
#[derive(Debug)]
pub struct RowReader {
    tables: Option<Arc<RowTables>>,
    types: Vec<TypeRows>,
    relations: HashMap<String, RelationRows>,
    /// Names of the relations that rows may have, in the order of the graph.
    names: Vec<String>,
    width: usize,
    /// Names of the columns of features, in data without a description.
    features: Vec<String>,
    /// Whether features may be missing in data without a description: a training filled them in.
    may_lack: bool,
}

impl RowReader {
    /// Of the import in the directory `data`, or, where there is none, of the one that the run keeps; without either,
    /// columns are those of the features. `dataset` is what `data` holds.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for an import that was changed or is of another version; [`Error::Data`] for
    /// one that does not belong to the data.
    pub fn open(run: &Path, data: &Path, dataset: &Dataset) -> Result<Self> {
        let tables = RowTables::of_data(data, run, dataset.feature_names.as_deref())?;
        let may_lack = run.join(FILLING_FILE).is_file();
        match tables {
            Some(tables) => Self::of_tables(tables, dataset),
            None => Ok(Self::of_data(dataset, may_lack)),
        }
    }

    fn of_tables(tables: RowTables, dataset: &Dataset) -> Result<Self> {
        let graph = &dataset.graph;
        let width = tables.columns().len();
        if dataset.features.as_ref().is_none_or(|features| features.dim() != width) {
            return Err(Error::Data {
                what: "features of the data".into(),
                expected: format!("{width} columns, as the import says"),
                found: dataset.features.as_ref().map_or("none".into(), |features| features.dim().to_string()),
                help: "serve the directory that the import wrote, or one of the same description".into(),
            });
        }
        let index = |name: &str| graph.relations().iter().position(|relation| relation.name == name);
        let target = |name: &str| match (index(name), index(&format!("{name}_T"))) {
            (Some(relation), _) => Ok(Target { relation, turned: false }),
            (None, Some(relation)) => Ok(Target { relation, turned: true }),
            (None, None) => Err(Error::Data {
                what: format!("relation `{name}`"),
                expected: "a relation of the data, as the import says".into(),
                found: "none of this name".into(),
                help: "serve the directory that the import wrote, or one of the same description".into(),
            }),
        };
        let mut types = Vec::new();
        for node_type in graph.node_types() {
            let name = node_type.name.clone();
            let table = tables.node_table(&name);
            let own = table.map(|table| tables.own_edges(table)).unwrap_or_default();
            let edges = own.into_iter().map(|edge| {
                let target = target(&edge.relation)?;
                let relation = &graph.relations()[target.relation];
                // The row is the source of the relation of the graph where it is that of its table and nothing turned.
                let other = if edge.is_src != target.turned { relation.dst } else { relation.src };
                Ok((edge, target, other))
            });
            let is_type = format!("is_{name}");
            types.push(TypeRows {
                table,
                is_type: tables.columns().iter().position(|column| *column == is_type),
                edges: edges.collect::<Result<_>>()?,
                columns: table.map(|table| tables.columns_of_nodes(table)).unwrap_or_default(),
                is_of_events: table.is_some_and(|table| tables.description.nodes[table].time.is_some()),
                name,
            });
        }
        let mut relations = HashMap::new();
        for name in tables.relations() {
            let table = tables.edge_table(&name);
            let columns = table.map(|table| tables.columns_of_edges(table)).unwrap_or_default();
            let target = target(&name)?;
            // The other way round, as the graph calls it.
            if let Some(relation) = index(&format!("{name}_T")) {
                let target = Target { relation, turned: false };
                relations.insert(format!("{name}_T"), RelationRows { target, table, columns: columns.clone() });
            }
            relations.insert(name, RelationRows { target, table, columns });
        }
        let names = tables.relations();
        let (tables, features) = (Some(Arc::new(tables)), Vec::new());
        Ok(Self { tables, types, relations, names, width, features, may_lack: true })
    }

    fn of_data(dataset: &Dataset, may_lack: bool) -> Self {
        let graph = &dataset.graph;
        let width = dataset.features.as_ref().map_or(0, |features| features.dim());
        let features = dataset.feature_names.clone();
        let features = features.unwrap_or_else(|| (0..width).map(|column| format!("{FEATURES}[{column}]")).collect());
        let info = |name: &str, kind, is_required| ColumnInfo { name: name.into(), kind, is_required };
        let is_of_events = |node_type: &crate::graph::NodeType| {
            node_type.count > 0
                && dataset.events.as_ref().is_some_and(|events| events.time_of(node_type.offset as u32).is_some())
        };
        let of_type = |node_type: &crate::graph::NodeType| {
            let is_of_events = is_of_events(node_type);
            let mut columns: Vec<ColumnInfo> = features.iter().map(|name| info(name, "feature", !may_lack)).collect();
            if is_of_events {
                columns.extend([("time", "time", true), ("amount", "amount", false)].map(|(n, k, r)| info(n, k, r)));
            }
            columns.push(info("label", "label", false));
            let (table, is_type, edges) = (None, None, Vec::new());
            TypeRows { name: node_type.name.clone(), table, is_type, edges, columns, is_of_events }
        };
        let of_relation = |(relation, of): (usize, &crate::graph::Relation)| {
            let carried = dataset.edge_values.iter().find(|values| values.relation == of.name);
            let mut columns = Vec::new();
            if let Some(carried) = carried {
                columns.extend(carried.weight.as_ref().map(|_| info("weight", "weight", true)));
                columns.extend(carried.time.as_ref().map(|_| info("time", "time", true)));
            }
            columns.extend(dataset.value_names(&of.name).iter().map(|name| info(name, "numeric", true)));
            let target = Target { relation, turned: false };
            (of.name.clone(), RelationRows { target, table: None, columns })
        };
        Self {
            tables: None,
            types: graph.node_types().iter().map(of_type).collect(),
            relations: graph.relations().iter().enumerate().map(of_relation).collect(),
            names: graph.relations().iter().map(|relation| relation.name.clone()).collect(),
            width,
            features,
            may_lack,
        }
    }

    /// The description, where there is one.
    pub(crate) fn tables(&self) -> Option<&Arc<RowTables>> {
        self.tables.as_ref()
    }

    /// Number of columns of features.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Node types, then relations, with the columns that their rows may have.
    pub fn columns(&self) -> Vec<TableColumns> {
        let of_type =
            |of: &TypeRows| TableColumns { name: of.name.clone(), is_edge: false, columns: of.columns.clone() };
        let relations = self.names.iter().filter_map(|name| Some((name, self.relations.get(name)?)));
        let of_relation = |(name, of): (&String, &RelationRows)| TableColumns {
            name: name.clone(),
            is_edge: true,
            columns: of.columns.clone(),
        };
        self.types.iter().map(of_type).chain(relations.map(of_relation)).collect()
    }

    /// By relation, as rows call it, the node types of what a row calls its source and its destination.
    pub fn named_ends(&self, graph: &HeteroGraph) -> HashMap<String, [String; 2]> {
        let ends = |of: &RelationRows| {
            let relation = &graph.relations()[of.target.relation];
            let ends = if of.target.turned { [relation.dst, relation.src] } else { [relation.src, relation.dst] };
            ends.map(|at| self.types[at].name.clone())
        };
        self.relations.iter().map(|(name, of)| (name.clone(), ends(of))).collect()
    }

    /// By node type, the columns of its rows that name other nodes, and the types of these.
    pub fn named_columns(&self) -> HashMap<String, Vec<(String, String)>> {
        let of_edge = |(edge, _, other): &(OwnEdge, _, usize)| (edge.column.clone(), self.types[*other].name.clone());
        let of_type = |of: &TypeRows| (of.name.clone(), of.edges.iter().map(of_edge).collect());
        self.types.iter().map(of_type).collect()
    }

    /// Rows that were read with a category that no row of the training has, by column.
    pub fn unknown_categories(&self) -> Vec<UnknownCategories> {
        self.tables.as_ref().map(|tables| tables.unknown_categories()).unwrap_or_default()
    }

    /// The features of a node that only edges name, as an import makes them; figures of its edges are left out.
    pub fn unnamed(&self, node_type: usize) -> Vec<f16> {
        let mut wide = vec![0.0; self.width];
        let of = &self.types[node_type];
        match &self.tables {
            None => wide.fill(if self.may_lack { f32::NAN } else { 0.0 }),
            Some(tables) => {
                if let Some(column) = of.is_type {
                    wide[column] = 1.0;
                }
                // What is missing has a number: nothing is read, so nothing is refused.
                let _ = of.table.map(|table| tables.unnamed(table, &mut wide));
            }
        }
        narrow(&wide)
    }

    /// Reads a row. That of a node gives the node, and the edges that the description takes from columns of its file;
    /// that of an edge gives the edge, in the direction of the graph.
    ///
    /// # Errors
    /// [`Error::Data`] with the column of what does not fit, what was expected, what was found and a way out.
    pub fn read(&self, change: &Change) -> Result<Vec<Row>> {
        self.read_row(change, false)
    }

    /// The same of a row that was taken before: what it named may have been forgotten since, and its columns that name
    /// a node may be empty.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_again(&self, change: &Change) -> Result<Vec<Row>> {
        self.read_row(change, true)
    }

    fn read_row(&self, change: &Change, is_again: bool) -> Result<Vec<Row>> {
        match change {
            Change::Node(node) => self.read_node(node, is_again),
            Change::Edge(edge) => Ok(vec![Row::Edge(self.read_edge(edge)?)]),
        }
    }

    fn read_node(&self, change: &NodeChange, is_again: bool) -> Result<Vec<Row>> {
        let found = self.types.iter().position(|of| of.name == change.node_type);
        let node_type = found.ok_or_else(|| {
            unknown("`type`", "a node type", &change.node_type, self.types.iter().map(|of| of.name.as_str()))
        })?;
        let of = &self.types[node_type];
        check_id("id", &of.name, &change.id)?;
        let columns = Columns::of(&of.name, &change.columns, &of.columns)?;
        let Some(tables) = &self.tables else {
            return Ok(vec![Row::Node(self.plain_node(node_type, change, &columns)?)]);
        };
        let id_column = of.table.and_then(|table| tables.description.nodes[table].id.as_deref());
        columns.check(&of.columns, id_column.map(|column| (column, change.id.as_str())))?;
        let mut wide = vec![0.0; self.width];
        if let Some(column) = of.is_type {
            wide[column] = 1.0;
        }
        let cells = |column: &str| match id_column == Some(column) && columns.get(column).is_none() {
            true => Ok(Cow::Borrowed(change.id.as_str())),
            false => columns.cell(column),
        };
        let facts = of.table.map(|table| tables.node(table, &cells, &mut wide)).transpose()?;
        let NodeFacts { label, time, known, amount, value } = facts.unwrap_or_default();
        let (id, features) = (change.id.clone(), narrow(&wide));
        let mut rows = vec![Row::Node(NodeRow { node_type, id, features, time, value, amount, label, known })];
        for (edge, target, _) in &of.edges {
            let other = cells(&edge.column)?;
            if other.is_empty() {
                if edge.may_be_empty || is_again {
                    continue;
                }
                return Err(Error::Data {
                    what: format!("column `{}` of `{}`", edge.column, of.name),
                    expected: format!("an id, for the edge `{}`", edge.relation),
                    found: "nothing".into(),
                    help: "fill it in; skip_empty = true in the description lets an import leave such edges out".into(),
                });
            }
            let facts = edge.table.map(|table| tables.edge(table, &cells)).transpose()?.unwrap_or_default();
            let [src, dst] = match edge.is_src != target.turned {
                true => [change.id.clone(), other.into_owned()],
                false => [other.into_owned(), change.id.clone()],
            };
            let (weight, time, values) = (facts.weight, facts.time, facts.values);
            rows.push(Row::Edge(EdgeRow { relation: target.relation, src, dst, weight, time, values }));
        }
        Ok(rows)
    }

    /// A node of data without a description.
    fn plain_node(&self, node_type: usize, change: &NodeChange, columns: &Columns) -> Result<NodeRow> {
        let of = &self.types[node_type];
        let mut wide = Vec::with_capacity(self.width);
        if let Some(list) = change.columns.get(FEATURES).filter(|_| self.features.iter().all(|name| name != FEATURES)) {
            let found = list.as_array().map(Vec::len);
            if found != Some(self.width) {
                return Err(Error::Data {
                    what: format!("`{FEATURES}` of `{}`", of.name),
                    expected: format!("a list of {} numbers", self.width),
                    found: found.map_or_else(|| shown(list), |found| format!("{found} of them")),
                    help: "write one number per column of the features, null where it is not known".into(),
                });
            }
            for (at, value) in list.as_array().into_iter().flatten().enumerate() {
                wide.push(self.feature(&of.name, &format!("{FEATURES}[{at}]"), Some(value))?);
            }
            columns.check_others(&of.columns, &[FEATURES], None)?;
        } else {
            columns.check(&of.columns, None)?;
            for name in &self.features {
                wide.push(self.feature(&of.name, name, columns.get(name))?);
            }
        }
        let time = match of.is_of_events {
            true => Some(columns.time("time")?),
            false => None,
        };
        let label = match columns.number("label")? {
            None => None,
            Some(0.0) => Some(0),
            Some(1.0) => Some(1),
            Some(_) => {
                let found = columns.get("label").map_or_else(String::new, shown);
                return Err(columns.refused("label", "0 or 1", found, "leave it out where it is not known"));
            }
        };
        let amount = if of.is_of_events { columns.number("amount")? } else { None };
        let (id, features, known) = (change.id.clone(), narrow(&wide), label.and(time));
        Ok(NodeRow { node_type, id, features, time, value: amount, amount, label, known })
    }

    /// A number that f16 holds.
    fn feature(&self, of: &str, column: &str, value: Option<&Value>) -> Result<f32> {
        let refused = |expected: &str, found: String, help: &str| Error::Data {
            what: format!("column `{column}` of `{of}`"),
            expected: expected.into(),
            found,
            help: help.into(),
        };
        let number = match value {
            None | Some(Value::Null) if self.may_lack => return Ok(f32::NAN),
            None | Some(Value::Null) => {
                let help = "the model was trained on data without gaps: write the number";
                return Err(refused("a number", "nothing".into(), help));
            }
            Some(value) => match value {
                Value::Number(number) => number.as_f64(),
                Value::String(text) => text.trim().parse().ok(),
                _ => None,
            }
            .ok_or_else(|| refused("a number", shown(value), "write it without units, with a decimal point"))?,
        };
        let found = || value.map_or_else(String::new, shown);
        let narrow = number as f32;
        match f16::from_f32(narrow).is_finite() {
            true => Ok(narrow),
            false => Err(refused(
                "a finite number of at most 65504, where f16 ends",
                found(),
                "scale it as the features of the data are scaled",
            )),
        }
    }

    fn read_edge(&self, change: &EdgeChange) -> Result<EdgeRow> {
        let of = self.relations.get(&change.relation).ok_or_else(|| {
            unknown("`relation`", "a relation", &change.relation, self.names.iter().map(String::as_str))
        })?;
        let name = &change.relation;
        check_id("src", name, &change.src)?;
        check_id("dst", name, &change.dst)?;
        let columns = Columns::of(name, &change.columns, &of.columns)?;
        columns.check(&of.columns, None)?;
        let (weight, time, values) = match (&self.tables, of.table) {
            (Some(tables), Some(table)) => {
                let facts = tables.edge(table, &|column| columns.cell(column))?;
                (facts.weight, facts.time, facts.values)
            }
            _ => self.plain_edge(of, &columns)?,
        };
        let Target { relation, turned } = of.target;
        let (src, dst) = match turned {
            true => (change.dst.clone(), change.src.clone()),
            false => (change.src.clone(), change.dst.clone()),
        };
        Ok(EdgeRow { relation, src, dst, weight, time, values })
    }

    /// What an edge of data without a description carries.
    fn plain_edge(&self, of: &RelationRows, columns: &Columns) -> Result<(Option<f32>, Option<i64>, Vec<f32>)> {
        let (mut weight, mut time, mut values) = (None, None, Vec::new());
        for ColumnInfo { name, kind, .. } in &of.columns {
            let number = || {
                let none = || columns.refused(name, "a number", "nothing".into(), "every edge of the relation has one");
                columns.number(name)?.ok_or_else(none)
            };
            match *kind {
                "weight" => weight = Some(number()?),
                "time" => time = Some(columns.time(name)?),
                _ => values.push(number()?),
            }
        }
        Ok((weight, time, values))
    }
}

/// The columns of a row.
struct Columns<'a> {
    of: &'a str,
    map: &'a Map<String, Value>,
    /// Those whose names are taken.
    more: Option<&'a Map<String, Value>>,
}

impl<'a> Columns<'a> {
    fn of(of: &'a str, map: &'a Map<String, Value>, known: &[ColumnInfo]) -> Result<Self> {
        let more = match map.get(COLUMNS) {
            Some(Value::Object(more)) if known.iter().all(|column| column.name != COLUMNS) => Some(more),
            _ => None,
        };
        if let Some(twice) = more.and_then(|more| more.keys().find(|name| map.contains_key(*name))) {
            let columns = Self { of, map, more };
            return Err(columns.refused(twice, "every column once", "it twice".into(), "remove one of them"));
        }
        Ok(Self { of, map, more })
    }

    fn get(&self, column: &str) -> Option<&'a Value> {
        self.more.and_then(|more| more.get(column)).or_else(|| self.map.get(column).filter(|_| !self.is_more(column)))
    }

    fn is_more(&self, column: &str) -> bool {
        self.more.is_some() && column == COLUMNS
    }

    /// Refuses columns that the table has not. `id` is the column of the ids and what it has to say.
    fn check(&self, known: &[ColumnInfo], id: Option<(&str, &str)>) -> Result<()> {
        self.check_others(known, &[], id)
    }

    /// Likewise, but for some keys.
    fn check_others(&self, known: &[ColumnInfo], but: &[&str], id: Option<(&str, &str)>) -> Result<()> {
        let own = self.map.keys().filter(|name| !self.is_more(name) && !but.contains(&name.as_str()));
        for name in own.chain(self.more.into_iter().flat_map(Map::keys)) {
            if let Some((column, id)) = id.filter(|(column, _)| column == name) {
                if self.cell(column)? != id {
                    let found = self.get(column).map_or_else(String::new, shown);
                    return Err(self.refused(column, "the id of the row", found, "leave it out, or correct either"));
                }
            } else if known.iter().all(|column| column.name != *name) {
                let names: Vec<&str> = known.iter().map(|column| column.name.as_str()).collect();
                let help = match nearest_name(name, names.iter().copied()) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None if names.is_empty() => "leave it out: its rows have no columns".into(),
                    None => format!("the columns are {}", shortened(&names.join(", "))),
                };
                return Err(Error::Data {
                    what: format!("column `{}` of `{}`", shortened(name), self.of),
                    expected: "a column of the table".into(),
                    found: "an unknown one".into(),
                    help,
                });
            }
        }
        Ok(())
    }

    fn refused(&self, column: &str, expected: &str, found: String, help: &str) -> Error {
        let what = format!("column `{}` of `{}`", shortened(column), self.of);
        Error::Data { what, expected: expected.into(), found, help: help.into() }
    }

    /// A value as a table has it; empty where it is missing.
    fn cell(&self, column: &str) -> Result<Cow<'a, str>> {
        match self.get(column) {
            None | Some(Value::Null) => Ok(Cow::Borrowed("")),
            Some(Value::String(text)) => Ok(Cow::Borrowed(text)),
            Some(Value::Bool(value)) => Ok(Cow::Borrowed(if *value { "true" } else { "false" })),
            Some(Value::Number(number)) => Ok(Cow::Owned(number.to_string())),
            Some(other) => {
                let help = "one cell of a table has one value; null or nothing where it is missing";
                Err(self.refused(column, "a number, a text, true, false or null", shown(other), help))
            }
        }
    }

    fn number(&self, column: &str) -> Result<Option<f32>> {
        let cell = self.cell(column)?;
        if cell.is_empty() {
            return Ok(None);
        }
        let number = cell.trim().parse::<f64>().ok().map(|number| number as f32).filter(|number| number.is_finite());
        let found = || self.get(column).map_or_else(String::new, shown);
        let refused = || self.refused(column, "a finite number", found(), "write it without units");
        number.map(Some).ok_or_else(refused)
    }

    /// Seconds since 1970, or RFC 3339.
    fn time(&self, column: &str) -> Result<i64> {
        let cell = self.cell(column)?;
        let time = crate::data::tables::read_time(&cell);
        let found = || self.get(column).map_or_else(|| "nothing".into(), shown);
        let expected = "a time: seconds since 1970, or RFC 3339";
        time.ok_or_else(|| self.refused(column, expected, found(), "for example \"2026-11-20T10:00:00Z\""))
    }
}

fn narrow(wide: &[f32]) -> Vec<f16> {
    let mut features = vec![f16::ZERO; wide.len()];
    features.convert_from_f32_slice(wide);
    features
}

fn check_id(key: &str, of: &str, id: &str) -> Result<()> {
    match id.is_empty() {
        false => Ok(()),
        true => Err(Error::Data {
            what: format!("`{key}` of `{of}`"),
            expected: "an id".into(),
            found: "an empty text".into(),
            help: "give every row an id".into(),
        }),
    }
}

fn unknown<'k>(what: &str, expected: &str, found: &str, known: impl Iterator<Item = &'k str>) -> Error {
    let known: Vec<&str> = known.collect();
    let help = match nearest_name(found, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("one of {}", shortened(&known.join(", "))),
    };
    Error::Data { what: what.into(), expected: expected.into(), found: format!("{:?}", shortened(found)), help }
}

/// A value as a message shows it.
fn shown(value: &Value) -> String {
    shortened(&value.to_string()).into_owned()
}

fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}
