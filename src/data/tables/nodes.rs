//! Node types under construction: their ids, labels and columns.

use super::cells::{Batch, Column, shown};
use super::description::{FeatureKind, NodeTable, Scale, TimeColumn, TimeFormat, WindowTable};
use super::files::TableFile;
use super::node_ids::{Key, NO_ID, NodeIds};
use super::text_table::TextTable;
use super::values::{self, TimeReader, check_unit, read_column};
use crate::data::text::ragged::Ragged;
use crate::data::text::terms::{Term, TermCounter};
use crate::error::{Error, Result};
use crate::graph::date;

/// One node type.
#[derive(Debug, Default)]
pub(super) struct NodeType {
    pub name: String,
    pub ids: NodeIds,
    /// Nodes of the type's own table; those behind them come from edges.
    pub declared: usize,
    /// Whether the type has a table.
    pub has_table: bool,
    /// One per declared node.
    pub labels: Vec<Option<u8>>,
    /// Columns that become features, with one value per declared node.
    pub columns: Vec<FeatureColumn>,
    /// Of events: what is known about them beside their features.
    pub facts: Vec<(Fact, FeatureColumn)>,
    /// Rows that repeat an earlier one.
    pub repeated: usize,
}

/// What a column says about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    /// When it happened; every event says it.
    Time,
    /// When its label became known.
    Known,
    /// What it costs.
    Amount,
    /// What windows sum.
    Value,
}

impl Fact {
    /// The facts that a description names about the events of a table, with their columns.
    pub fn of(table: &NodeTable, windows: &[WindowTable]) -> Vec<(Fact, FeatureColumn)> {
        let Some(time) = &table.time else { return Vec::new() };
        let moment = |column: &TimeColumn| {
            let TimeFormat { format, unit, in_1970 } = column.format.clone();
            FeatureColumn::new(&column.column, &FeatureKind::Timestamp { format, unit, in_1970 })
        };
        let number =
            |column: &String| FeatureColumn::new(column, &FeatureKind::Numeric { scale: Scale::None, log: false });
        let mut facts = vec![(Fact::Time, moment(time))];
        let known = table.label.as_ref().and_then(|label| label.known.as_ref());
        facts.extend(known.map(|column| (Fact::Known, moment(column))));
        facts.extend(table.amount.as_ref().map(|column| (Fact::Amount, number(column))));
        let value = windows.iter().find(|windows| windows.is_of(table)).and_then(|windows| windows.value.as_ref());
        facts.extend(value.or(table.amount.as_ref()).map(|column| (Fact::Value, number(column))));
        facts
    }
}

/// A column that becomes features.
#[derive(Debug)]
pub(super) struct FeatureColumn {
    pub name: String,
    pub kind: FeatureKind,
    pub values: Values,
}

/// Values of the declared nodes, or of the rows of a table of edges.
#[derive(Debug)]
pub(super) enum Values {
    Number(Vec<Option<f32>>),
    Time(Vec<Option<i64>>),
    /// Numbers of the names; an empty name is a missing value.
    Category(Vec<u32>, TextTable),
    Text(Ragged<Term>),
}

/// Values of the rows of a batch.
pub(super) enum Parsed<'a> {
    Number(Vec<Option<f32>>),
    Time(Vec<Option<i64>>),
    Category(&'a Column),
    Text(Vec<Vec<Term>>),
}

impl FeatureColumn {
    pub fn new(name: &str, kind: &FeatureKind) -> Self {
        let values = match kind {
            FeatureKind::Numeric { .. } | FeatureKind::Boolean {} => Values::Number(Vec::new()),
            FeatureKind::Timestamp { .. } => Values::Time(Vec::new()),
            FeatureKind::Categorical { .. } => Values::Category(Vec::new(), TextTable::default()),
            FeatureKind::Text { .. } => Values::Text(Ragged::default()),
        };
        Self { name: name.into(), kind: kind.clone(), values }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Number(values) => values.len(),
            Values::Time(values) => values.len(),
            Values::Category(codes, _) => codes.len(),
            Values::Text(terms) => terms.num_rows(),
        }
    }

    /// How many of them are missing.
    pub fn missing(&self) -> usize {
        match &self.values {
            Values::Number(values) => values.iter().filter(|value| value.is_none()).count(),
            Values::Time(values) => values.iter().filter(|value| value.is_none()).count(),
            Values::Category(codes, names) => codes.iter().filter(|&&code| names.get(code).is_empty()).count(),
            Values::Text(terms) => terms.rows().filter(|row| row.is_empty()).count(),
        }
    }

    /// Reads its cells of a batch, column `at`.
    pub fn parse<'a>(&self, batch: &'a Batch, at: usize) -> Result<Parsed<'a>> {
        let name = &self.name;
        Ok(match &self.kind {
            FeatureKind::Numeric { .. } => {
                Parsed::Number(read_column(batch, at, name, |column, row| values::number(column.get(row)))?)
            }
            FeatureKind::Boolean {} => {
                Parsed::Number(read_column(batch, at, name, |column, row| values::boolean(column.get(row)))?)
            }
            FeatureKind::Timestamp { .. } => {
                let format = self.kind.time_format().unwrap_or_default();
                let reader = time_reader(&format, name)?;
                Parsed::Time(read_column(batch, at, name, |column, row| reader.read(column.get(row), column.seconds))?)
            }
            FeatureKind::Categorical { .. } => Parsed::Category(&batch.columns[at]),
            FeatureKind::Text { .. } => Parsed::Text(read_column(batch, at, name, |column, row| {
                let mut terms = TermCounter::default();
                terms.add(column.get(row));
                Ok(terms.finish())
            })?),
        })
    }

    /// Appends the value of a row; `None` for more categories than can be numbered.
    pub fn push(&mut self, parsed: &mut Parsed, row: usize) -> Option<()> {
        match (&mut self.values, parsed) {
            (Values::Number(values), Parsed::Number(parsed)) => values.push(parsed[row]),
            (Values::Time(values), Parsed::Time(parsed)) => values.push(parsed[row]),
            (Values::Category(codes, names), Parsed::Category(column)) => {
                let name = column.get(row);
                codes.push(names.intern(name)?);
            }
            (Values::Text(rows), Parsed::Text(parsed)) => rows.push_row(std::mem::take(&mut parsed[row])),
            _ => {}
        }
        Some(())
    }

    /// Refuses times in another unit than the description says; `files` are those of the table.
    ///
    /// # Errors
    /// As for [`check_unit`].
    pub fn check_unit(&self, files: &[TableFile]) -> Result<()> {
        match (&self.values, self.kind.time_format()) {
            (Values::Time(times), Some(format)) => {
                check_unit(files, &self.name, &format, times.iter().flatten().copied())
            }
            _ => Ok(()),
        }
    }

    /// Whether a row says the same as the node has already.
    fn agrees(&self, node: usize, parsed: &Parsed, row: usize) -> bool {
        match (&self.values, parsed) {
            (Values::Number(values), Parsed::Number(parsed)) => values[node] == parsed[row],
            (Values::Time(values), Parsed::Time(parsed)) => values[node] == parsed[row],
            (Values::Category(codes, names), Parsed::Category(column)) => names.get(codes[node]) == column.get(row),
            (Values::Text(rows), Parsed::Text(parsed)) => *rows.row(node) == parsed[row][..],
            _ => true,
        }
    }
}

/// The reader of times, or the pattern that is none.
pub(super) fn time_reader<'a>(format: &'a TimeFormat, column: &str) -> Result<TimeReader<'a>> {
    TimeReader::new(format).ok_or_else(|| Error::Config {
        origin: "times of the description".into(),
        key: format!("{column}.format"),
        expected: "a strftime pattern such as %Y-%m-%d %H:%M:%S".into(),
        found: format.format.clone().unwrap_or_default(),
        help: "leave it out for ISO 8601 and numbers".into(),
    })
}

impl NodeType {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The columns that the table of the type has to hold: id, label, features, facts, each where there is one.
    pub fn wanted(&self, table: &NodeTable) -> Vec<String> {
        let label = table.label.iter().map(|label| &label.column);
        let features = table.features.0.iter().map(|(column, _)| column);
        let facts = self.facts.iter().map(|(_, column)| &column.name);
        table.id.iter().chain(label).chain(features).chain(facts).cloned().collect()
    }

    /// Refuses a label that was known before its event happened. `facts` are those of the batch, whose columns begin at
    /// `first_fact`.
    fn check_known(
        &self,
        batch: &Batch,
        labels: Option<&[Option<u8>]>,
        facts: &[Parsed],
        first_fact: usize,
    ) -> Result<()> {
        let times_of = |wanted| {
            let at = self.facts.iter().position(|(fact, _)| *fact == wanted)?;
            if let Parsed::Time(times) = &facts[at] { Some((at, times)) } else { None }
        };
        let (Some(labels), Some((_, times)), Some((at, known))) = (labels, times_of(Fact::Time), times_of(Fact::Known))
        else {
            return Ok(());
        };
        for (row, (time, known)) in times.iter().zip(known).enumerate() {
            let (Some(_), Some(time), Some(known)) = (labels[row], *time, *known) else { continue };
            if known < time {
                let expected = format!("a time from that of the event on, {}, when its label became known", date(time));
                let found = batch.columns[first_fact + at].get(row);
                let help = format!(
                    "{} is earlier: correct either time, or leave the label empty; a date alone is its first second",
                    date(known)
                );
                return Err(batch.error(row, &self.facts[at].1.name, &expected, found, &help));
            }
        }
        Ok(())
    }

    /// Refuses columns of times in another unit than they say; `files` are those of the table.
    ///
    /// # Errors
    /// As for [`check_unit`].
    pub fn check_units(&self, files: &[TableFile]) -> Result<()> {
        let mut columns = self.columns.iter().chain(self.facts.iter().map(|(_, column)| column));
        columns.try_for_each(|column| column.check_unit(files))
    }

    /// Whether the nodes are events.
    pub fn is_of_events(&self) -> bool {
        !self.facts.is_empty()
    }

    /// The values of a fact, of the declared nodes.
    pub fn fact(&self, wanted: Fact) -> Option<&Values> {
        self.facts.iter().find(|(fact, _)| *fact == wanted).map(|(_, column)| &column.values)
    }

    /// The name of the column of a fact.
    pub fn column_of(&self, wanted: Fact) -> Option<&str> {
        self.facts.iter().find(|(fact, _)| *fact == wanted).map(|(_, column)| column.name.as_str())
    }

    /// Adds the rows of a batch of [`wanted`](Self::wanted) columns; `first_row` is the number of the first one.
    ///
    /// # Errors
    /// [`Error::Format`] with the row and column of an empty id, a value that is none, or a second row of a node that
    /// says something else than the first.
    pub fn add(&mut self, table: &NodeTable, batch: &Batch, first_row: usize) -> Result<()> {
        let mut at = usize::from(table.id.is_some());
        let labels = match &table.label {
            None => None,
            Some(column) => {
                at += 1;
                Some(read_column(batch, at - 1, &column.column, |cells, row| values::label(cells.get(row), column))?)
            }
        };
        let mut parsed = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            parsed.push(column.parse(batch, at)?);
            at += 1;
        }
        let first_fact = at;
        let mut facts = Vec::with_capacity(self.facts.len());
        for (fact, column) in &self.facts {
            let values = column.parse(batch, at)?;
            if let (Fact::Time, Parsed::Time(times)) = (fact, &values)
                && let Some(row) = times.iter().position(Option::is_none)
            {
                let help = "every event has a time; fill it in, or leave the row out";
                return Err(batch.error(row, &column.name, "a time", batch.columns[at].get(row), help));
            }
            facts.push(values);
            at += 1;
        }
        self.check_known(batch, labels.as_deref(), &facts, first_fact)?;
        let key = |row: usize| match &table.id {
            Some(_) => Key::of(batch.columns[0].get(row)),
            None => Key::Natural((first_row + row + 1) as u64),
        };
        let nodes = self.ids.number(batch.num_rows(), key, true).ok_or_else(|| too_many(&self.name))?;
        for (row, &node) in nodes.iter().enumerate() {
            if let (NO_ID, Some(column)) = (node, &table.id) {
                let help = "give every row an id, or leave `id` out to number the rows";
                return Err(batch.error(row, column, "an id", "", help));
            }
            let node = node as usize;
            let label = labels.as_ref().and_then(|labels| labels[row]);
            if node == self.declared {
                self.declared += 1;
                self.labels.push(label);
                for (column, parsed) in self.columns.iter_mut().zip(&mut parsed) {
                    column.push(parsed, row).ok_or_else(|| too_many(&column.name))?;
                }
                for ((_, column), parsed) in self.facts.iter_mut().zip(&mut facts) {
                    column.push(parsed, row).ok_or_else(|| too_many(&column.name))?;
                }
                continue;
            }
            let first_column = first_fact - self.columns.len();
            let agrees = |(column, parsed): (&FeatureColumn, &Parsed)| column.agrees(node, parsed, row);
            let differing = self.columns.iter().zip(&parsed).position(|pair| !agrees(pair));
            let of_facts =
                self.facts.iter().zip(&facts).position(|((_, column), fact)| !column.agrees(node, fact, row));
            let of_facts = of_facts.map(|at| (&self.facts[at].1.name, first_fact + at));
            let differing = match (differing, &table.label) {
                (Some(column), _) => Some((&self.columns[column].name, first_column + column)),
                (None, Some(column)) if self.labels[node] != label => Some((&column.column, first_column - 1)),
                _ => of_facts,
            };
            if let Some((name, column)) = differing {
                let expected = format!("what an earlier row of the id {} says", shown(&key(row).to_text()));
                let help = "keep one row per id; rows that repeat one in full are merged";
                return Err(batch.error(row, name, &expected, batch.columns[column].get(row), help));
            }
            self.repeated += 1;
        }
        Ok(())
    }
}

/// More nodes than 32 bits can number.
pub(super) fn too_many(what: &str) -> Error {
    Error::Data {
        what: format!("`{what}`"),
        expected: format!("at most {} different values", i32::MAX),
        found: "more".into(),
        help: "ids have 32 bits; import a part of the tables".into(),
    }
}
