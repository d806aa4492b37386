//! Edge tables and shared columns, turned into lists of edges between numbered nodes.

use std::path::PathBuf;

use rayon::prelude::*;

use super::budget::{Budget, of_values};
use super::cells::Batch;
use super::description::{EdgeTable, End, NodeTable};
use super::edge_list::{Carried, Edge, EdgeList, key};
use super::files::TableFile;
use super::node_ids::{Key, NO_ID, NodeIds, UNKNOWN};
use super::nodes::{FeatureColumn, NodeType, time_reader, too_many};
use super::reading::Reading;
use super::values::{self, check_unit, read_column};
use crate::error::Result;

/// One relation while its tables are read.
#[derive(Debug)]
pub(super) struct RelationEdges {
    pub name: String,
    /// Indices of the node types.
    pub src: usize,
    pub dst: usize,
    pub edges: EdgeList,
    pub carried: Carried,
    /// Values by row; rows that were left out have none.
    pub columns: Vec<FeatureColumn>,
    pub one_way: bool,
    /// Rows left out because an end is empty.
    pub skipped: u64,
    /// Of a shared column.
    pub hubs: Option<HubCounts>,
}

impl RelationEdges {
    /// A relation between events of one type, whose edges are made and not read.
    pub fn of_events(name: String, events: usize) -> Self {
        Self {
            name,
            src: events,
            dst: events,
            edges: EdgeList::new(Carried::default()),
            carried: Carried::default(),
            columns: Vec::new(),
            one_way: true,
            skipped: 0,
            hubs: None,
        }
    }
}

/// What became of the values of a shared column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct HubCounts {
    /// Values that join nodes.
    pub hubs: usize,
    /// Of these, values of one node only.
    pub of_one_node: usize,
    /// Values that join nobody because they have more nodes than `max_degree`.
    pub above_max_degree: usize,
    /// Rows without a value.
    pub empty: u64,
}

/// How the node at one end of an edge is found in a row.
struct EndReader<'a> {
    /// Index of the node type.
    node_type: usize,
    /// Position and name of the column; without it the node is the row itself.
    column: Option<(usize, &'a str)>,
    /// Whether a new id is a new node.
    creates: bool,
}

impl<'a> EndReader<'a> {
    /// Also appends the column that has to be read.
    fn new(end: &'a End, tables: &'a [NodeTable], types: &[NodeType], strict: bool, wanted: &mut Vec<String>) -> Self {
        let node_type = types.iter().position(|known| known.name == end.node_type).unwrap_or_default();
        let table = tables.iter().find(|table| table.node_type == end.node_type);
        let name = end.column.as_deref().or_else(|| table?.id.as_deref());
        let column = name.map(|name| {
            wanted.push(name.to_owned());
            (wanted.len() - 1, name)
        });
        Self { node_type, column, creates: !(strict && types[node_type].has_table) }
    }

    /// The id that a row names; without a column there is none.
    fn key<'b>(&self, batch: &'b Batch, row: usize) -> Key<'b> {
        self.column.map_or(Key::Empty, |(at, _)| Key::of(batch.columns[at].get(row)))
    }

    /// The node of a row, whose number is `node`; `None` for an empty cell.
    fn node(&self, batch: &Batch, row: usize, node: u32, types: &[NodeType]) -> Result<Option<u32>> {
        match (node, self.column) {
            (NO_ID, _) => Ok(None),
            (UNKNOWN, Some((at, name))) => {
                let expected = format!("an id of the node table of `{}`", types[self.node_type].name);
                let help = "add the node to its table, or import without --strict to create it";
                Err(batch.error(row, name, &expected, batch.columns[at].get(row), help))
            }
            _ => Ok(Some(node)),
        }
    }

    /// The nodes of all rows of a batch, of which the first has the number `first`.
    fn number(&self, batch: &Batch, first: usize, types: &mut [NodeType]) -> Result<Vec<u32>> {
        let rows = batch.num_rows();
        if self.column.is_none() {
            // Rows without ids are their own nodes, in their order.
            return Ok((first..first + rows).map(|number| number as u32).collect());
        }
        let NodeType { name, ids, .. } = &mut types[self.node_type];
        ids.number(rows, |row| self.key(batch, row), self.creates).ok_or_else(|| too_many(name))
    }
}

/// The nodes at both ends of all rows of a batch. New ids get their numbers row by row, the source before the
/// destination.
fn number_both(ends: &[EndReader; 2], batch: &Batch, first: usize, types: &mut [NodeType]) -> Result<[Vec<u32>; 2]> {
    let [src, dst] = ends;
    if src.node_type != dst.node_type || src.column.is_none() || dst.column.is_none() {
        return Ok([src.number(batch, first, types)?, dst.number(batch, first, types)?]);
    }
    let NodeType { name, ids, .. } = &mut types[src.node_type];
    let both = ids.number(2 * batch.num_rows(), |at| ends[at % 2].key(batch, at / 2), src.creates);
    let both = both.ok_or_else(|| too_many(name))?;
    Ok([0, 1].map(|end| both.iter().skip(end).step_by(2).copied().collect()))
}

/// Makes a span of times reach to another one.
fn widen(span: &mut Option<[i64; 2]>, time: i64) {
    let [first, last] = span.unwrap_or([time; 2]);
    *span = Some([time.min(first), time.max(last)]);
}

/// What reading edges needs to know.
pub(super) struct EdgeReader<'a> {
    pub tables: &'a [NodeTable],
    pub strict: bool,
    pub budget: Option<&'a Budget>,
    /// Bytes of the values of edges that were read.
    pub values: u64,
}

impl EdgeReader<'_> {
    /// Takes edges out of memory where they have a budget and fill their part of it; all of them `at_end`.
    fn spill(&self, edges: &mut EdgeList, types: &[NodeType], columns: &[FeatureColumn], at_end: bool) -> Result<()> {
        let Some(budget) = self.budget else { return Ok(()) };
        let room = budget.while_reading(types, self.values + of_values(columns, edges.len()))?;
        edges.spill(&budget.disk, room, at_end)
    }

    /// Reads the files of an edge table.
    ///
    /// # Errors
    /// Those of reading; an empty end, a weight or time that is none or missing and, when strict, an unknown id.
    pub fn read(
        &self,
        table: &EdgeTable,
        files: &[TableFile],
        types: &mut [NodeType],
        reading: &mut Reading,
    ) -> Result<RelationEdges> {
        let mut wanted = Vec::new();
        let ends =
            [&table.src, &table.dst].map(|end| EndReader::new(end, self.tables, types, self.strict, &mut wanted));
        let weight = table.weight.as_ref().map(|name| {
            wanted.push(name.clone());
            (wanted.len() - 1, name.as_str())
        });
        let time = match &table.time {
            None => None,
            Some(column) => {
                wanted.push(column.column.clone());
                Some((wanted.len() - 1, column.column.as_str(), time_reader(&column.format, &column.column)?))
            }
        };
        let first_value = wanted.len();
        let mut columns: Vec<FeatureColumn> =
            table.values.0.iter().map(|(name, kind)| FeatureColumn::new(name, kind)).collect();
        wanted.extend(columns.iter().map(|column| column.name.clone()));
        let carried = Carried { weight: weight.is_some(), time: time.is_some(), values: !columns.is_empty() };
        let mut edges = EdgeList::new(carried);
        let (mut number, mut skipped, mut span) = (0, 0, None);
        reading.for_each_batch(files, &wanted, |batch| {
            let numbered = number_both(&ends, batch, number, types)?;
            number += batch.num_rows();
            let weights = weight.map(|(at, name)| {
                read_column(batch, at, name, |cells, row| {
                    values::number(cells.get(row))?.ok_or(("a weight", "fill it in, or leave `weight` out"))
                })
            });
            let weights = weights.transpose()?;
            let times = time.as_ref().map(|(at, name, reader)| {
                read_column(batch, *at, name, |cells, row| {
                    reader.read(cells.get(row), cells.seconds)?.ok_or(("a time", "fill it in, or leave `time` out"))
                })
            });
            let times = times.transpose()?;
            let parsed = columns.iter().zip(first_value..).map(|(column, at)| column.parse(batch, at));
            let mut parsed = parsed.collect::<Result<Vec<_>>>()?;
            let has_gaps = numbered.iter().flatten().any(|&node| node >= UNKNOWN);
            if let (EdgeList::Plain(keys), false) = (&mut edges, has_gaps) {
                keys.rest.par_extend(numbered[1].par_iter().zip(&numbered[0]).map(|(&dst, &src)| key(dst, src)));
                return self.spill(&mut edges, types, &columns, false);
            }
            if let (EdgeList::Valued(list), [], false) = (&mut edges, &columns[..], has_gaps) {
                let before = list.len();
                u32::try_from(before + batch.num_rows()).map_err(|_| too_many(&table.name))?;
                let edge = |row: usize| Edge {
                    key: key(numbered[1][row], numbered[0][row]),
                    time: times.as_ref().map_or(0, |times| times[row]),
                    weight: weights.as_ref().map_or(0.0, |weights| weights[row]),
                    row: (before + row) as u32,
                };
                list.rest.par_extend((0..batch.num_rows()).into_par_iter().with_min_len(1 << 12).map(edge));
                times.iter().flatten().for_each(|&time| widen(&mut span, time));
                return self.spill(&mut edges, types, &columns, false);
            }
            for row in 0..batch.num_rows() {
                let mut nodes = [0; 2];
                let mut is_complete = true;
                for (at, end) in ends.iter().enumerate() {
                    match end.node(batch, row, numbered[at][row], types)? {
                        Some(node) => nodes[at] = node,
                        None if table.skip_empty => is_complete = false,
                        None => {
                            let name = end.column.map_or("", |(_, name)| name);
                            let help = "fill it in, or set skip_empty = true to leave such rows out";
                            return Err(batch.error(row, name, "an id", "", help));
                        }
                    }
                }
                if !is_complete {
                    skipped += 1;
                    continue;
                }
                let key = key(nodes[1], nodes[0]);
                match &mut edges {
                    EdgeList::Plain(keys) => keys.rest.push(key),
                    EdgeList::Valued(edges) => {
                        for (column, parsed) in columns.iter_mut().zip(&mut parsed) {
                            column.push(parsed, row).ok_or_else(|| too_many(&column.name))?;
                        }
                        let time = times.as_ref().map_or(0, |times| times[row]);
                        widen(&mut span, time);
                        let weight = weights.as_ref().map_or(0.0, |weights| weights[row]);
                        let row = u32::try_from(edges.len()).map_err(|_| too_many(&table.name))?;
                        edges.rest.push(Edge { key, time, weight, row });
                    }
                }
            }
            self.spill(&mut edges, types, &columns, false)
        })?;
        self.spill(&mut edges, types, &columns, true)?;
        if let Some(column) = &table.time {
            check_unit(files, &column.column, &column.format, span.into_iter().flatten())?;
        }
        columns.iter().try_for_each(|column| column.check_unit(files))?;
        Ok(RelationEdges {
            name: table.name.clone(),
            src: ends[0].node_type,
            dst: ends[1].node_type,
            edges,
            carried,
            columns,
            one_way: table.one_way,
            skipped,
            hubs: None,
        })
    }

    /// Reads a shared column: an edge from the node that stands for a value to every node that has it.
    ///
    /// # Errors
    /// Those of reading and, when strict, a value that the node table of the values does not hold.
    pub fn read_shared(
        &self,
        shared: &ResolvedShared,
        files: &[TableFile],
        types: &mut [NodeType],
        reading: &mut Reading,
    ) -> Result<RelationEdges> {
        let mut wanted = Vec::new();
        let end = End { node_type: shared.nodes.clone(), column: None };
        let nodes = EndReader::new(&end, self.tables, types, self.strict, &mut wanted);
        wanted.push(shared.column.clone());
        let at = wanted.len() - 1;
        let hub = types.iter().position(|known| known.name == shared.hub).unwrap_or_default();
        let is_closed = self.strict && types[hub].has_table;

        // Values have numbers of their own first: those of too many nodes never become nodes.
        let mut values = NodeIds::default();
        let mut pairs: Vec<u64> = Vec::new();
        let (mut number, mut empty) = (0, 0);
        reading.for_each_batch(files, &wanted, |batch| {
            let numbered = nodes.number(batch, number, types)?;
            number += batch.num_rows();
            let value = |row: usize| match numbered[row] {
                NO_ID => Key::Empty,
                _ => Key::of(batch.columns[at].get(row)),
            };
            if is_closed {
                let ids = &types[hub].ids;
                let is_unknown = |row: usize| value(row) != Key::Empty && ids.find(value(row)).is_none();
                let unknown = (0..batch.num_rows()).into_par_iter().with_min_len(256).position_first(is_unknown);
                if let Some(row) = unknown {
                    let expected = format!("an id of the node table of `{}`", shared.hub);
                    let help = "add the node to its table, or import without --strict to create it";
                    return Err(batch.error(row, &shared.column, &expected, batch.columns[at].get(row), help));
                }
            }
            let values = values.number(batch.num_rows(), value, true).ok_or_else(|| too_many(&shared.column))?;
            for (row, (&node, &value)) in numbered.iter().zip(&values).enumerate() {
                match (nodes.node(batch, row, node, types)?, value) {
                    (Some(node), value) if value != NO_ID => pairs.push(key(value, node)),
                    _ => empty += 1,
                }
            }
            Ok(())
        })?;
        pairs.par_sort_unstable();
        pairs.dedup();
        let mut counts = HubCounts { empty, ..HubCounts::default() };
        let mut keys = Vec::with_capacity(pairs.len());
        for of_value in pairs.chunk_by(|a, b| a >> 32 == b >> 32) {
            if shared.max_degree.is_some_and(|max| of_value.len() > max) {
                counts.above_max_degree += 1;
                continue;
            }
            counts.hubs += 1;
            counts.of_one_node += usize::from(of_value.len() == 1);
            let value = values.key((of_value[0] >> 32) as u32);
            let hub = types[hub].ids.intern(value).ok_or_else(|| too_many(&shared.hub))?;
            keys.extend(of_value.iter().map(|&pair| key(pair as u32, hub)));
        }
        drop(pairs);
        let mut edges = EdgeList::Plain(keys.into());
        self.spill(&mut edges, types, &[], true)?;
        Ok(RelationEdges {
            name: shared.name.clone(),
            src: hub,
            dst: nodes.node_type,
            edges,
            carried: Carried::default(),
            columns: Vec::new(),
            one_way: false,
            skipped: 0,
            hubs: Some(counts),
        })
    }
}

/// A shared column with its defaults filled in.
#[derive(Debug)]
pub(super) struct ResolvedShared {
    pub name: String,
    pub nodes: String,
    pub column: String,
    pub hub: String,
    pub max_degree: Option<usize>,
    pub files: Vec<PathBuf>,
}
