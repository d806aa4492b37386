//! A data directory as tables: one of nodes per type, one of edges per relation, and the description that imports them.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use rayon::prelude::*;
use serde::Serialize;

use crate::data::parquet_file::{self, ParquetFile};
use crate::error::{Error, Result};
use crate::graph::formats::sync_directory;
use crate::graph::{Dataset, EdgeMatrix, Relation, write_directory};

/// Rows that are held at once.
const ROWS: usize = 1 << 16;

/// How tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Text, one row per line.
    Csv,
    /// Parquet.
    Parquet,
}

impl TableFormat {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// How tables are written.
    pub format: TableFormat,
    /// Rows of a part: every table is a directory of so many parts as it takes. `None` for one file per table.
    pub part_rows: Option<NonZeroUsize>,
}

impl From<TableFormat> for ExportOptions {
    fn from(format: TableFormat) -> Self {
        Self { format, part_rows: None }
    }
}

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportSummary {
    /// Files in the order of node types and relations, the description last.
    pub files: Vec<PathBuf>,
    pub nodes: usize,
    pub edges: usize,
}

impl fmt::Display for ExportSummary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} nodes and {} edges in {} files", self.nodes, self.edges, self.files.len())
    }
}

/// Writes the tables of a dataset to a new directory.
///
/// `nodes_{type}` has the columns `id` and, where the type has labels, `label`; `edges_{relation}` has `src`, `dst`,
/// and `weight` and `time` (seconds since 1970) where the relation has them; `graph.toml` imports them again with the
/// same ids and edges. A generated reverse has no table. Nodes without string ids are numbered from 0 inside of their
/// type. Values of edges stand in `value_0`, `value_1`, … as models read them, scaled and filled in; the description
/// names them but does not import them. Features are not exported: they were made from tables that hold more. With
/// [`ExportOptions::part_rows`] a table is the directory `nodes_{type}` or `edges_{relation}` of parts, `part-00000`
/// and so on, each with a header of its own; one without rows has one part.
///
/// # Errors
/// [`Error::Exists`] unless `out` is absent or empty; [`Error::Io`]; what reading weights, times and values reports.
pub fn export(dataset: &Dataset, out: &Path, options: impl Into<ExportOptions>) -> Result<ExportSummary> {
    let options = options.into();
    let graph = &dataset.graph;
    let mut edges = 0;
    let files = write_directory(out, |dir| {
        let exporter = Exporter { dataset, dir, options };
        let mut names = Vec::new();
        let mut description = String::new();
        for at in 0..graph.node_types().len() {
            exporter.nodes(at, &mut names, &mut description)?;
        }
        for relation in graph.relations() {
            if !is_generated(relation, graph.relations()) {
                exporter.edges(relation, &mut names, &mut description)?;
                edges += relation.forward.num_edges();
            }
        }
        let path = dir.join("graph.toml");
        let write = || File::create_new(&path)?.write_all(description.as_bytes());
        write().map_err(|source| Error::io(&path, "write", source))?;
        names.push("graph.toml".into());
        Ok(names)
    })?;
    Ok(ExportSummary { files, nodes: graph.num_nodes(), edges })
}

/// Whether importing another relation makes this one.
fn is_generated(relation: &Relation, all: &[Relation]) -> bool {
    let makes = |other: &Relation| {
        relation.name == format!("{}_T", other.name) && Arc::ptr_eq(&other.reverse, &relation.forward)
    };
    !relation.primary && all.iter().any(makes)
}

struct Exporter<'a> {
    dataset: &'a Dataset,
    dir: &'a Path,
    options: ExportOptions,
}

/// A column of a batch of rows.
enum Cells {
    Text(Vec<String>),
    Label(Vec<Option<i8>>),
    Float(Vec<f32>),
    Time(Vec<i64>),
}

impl Exporter<'_> {
    fn id(&self, node_type: usize, node: usize) -> String {
        match &self.dataset.ids {
            Some(ids) => ids.0[node_type][node].clone(),
            None => node.to_string(),
        }
    }

    fn nodes(&self, at: usize, names: &mut Vec<String>, description: &mut String) -> Result<()> {
        let node_type = &self.dataset.graph.node_types()[at];
        let own = node_type.offset..node_type.offset + node_type.count;
        let mut labels: Vec<Option<i8>> = vec![None; node_type.count];
        let entries = self.dataset.labels.iter().flat_map(|labels| &labels.entries);
        for &(node, class) in entries.filter(|(node, _)| own.contains(&(*node as usize))) {
            labels[node as usize - node_type.offset] = Some(class as i8);
        }
        let is_labelled = labels.iter().any(Option::is_some);
        let name = self.name(&format!("nodes_{}", node_type.name));
        let columns: &[&str] = if is_labelled { &["id", "label"] } else { &["id"] };
        let files = self.table(&name, columns, node_type.count, |rows| {
            let ids = rows.clone().map(|node| self.id(at, node)).collect();
            let labels = is_labelled.then(|| Cells::Label(labels[rows].to_vec()));
            [Cells::Text(ids)].into_iter().chain(labels).collect()
        })?;
        let label = if is_labelled { "label = \"label\"\n" } else { "" };
        let ends = self.dataset.ends.iter().find(|ends| ends.node_type() == at).map(|ends| {
            let (_, [src, dst]) = ends.names(&self.dataset.graph);
            format!("ends = [\"{src}\", \"{dst}\"]\n")
        });
        let (of_type, ends) = (&node_type.name, ends.unwrap_or_default());
        *description += &format!("[[nodes]]\ntype = \"{of_type}\"\nfile = \"{name}\"\nid = \"id\"\n{label}{ends}\n");
        names.extend(files);
        Ok(())
    }

    fn edges(&self, relation: &Relation, names: &mut Vec<String>, description: &mut String) -> Result<()> {
        let weights = self.dataset.edge_weights(&relation.name)?;
        let times = self.dataset.edge_times(&relation.name)?;
        let values = self.dataset.edge_columns(&relation.name)?;
        let name = self.name(&format!("edges_{}", relation.name));
        let valued = [("weight", weights.is_some()), ("time", times.is_some())];
        let valued: Vec<&str> = valued.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
        // Numbered: not every name can be that of a column of Parquet.
        let value_names: Vec<String> =
            (0..values.as_ref().map_or(0, EdgeMatrix::width)).map(|at| format!("value_{at}")).collect();
        let of_values: Vec<&str> = value_names.iter().map(String::as_str).collect();
        let columns = [&["src", "dst"][..], &valued, &of_values].concat();
        let adjacency = &relation.forward;
        let files = self.table(&name, &columns, adjacency.num_edges(), |edges| {
            let (dsts, srcs) = edges
                .clone()
                .map(|edge| adjacency.edge(edge))
                .map(|(dst, src)| (self.id(relation.dst, dst), self.id(relation.src, src as usize)))
                .unzip();
            let mut cells = vec![Cells::Text(srcs), Cells::Text(dsts)];
            cells.extend(weights.as_ref().map(|weights| Cells::Float(weights[edges.clone()].to_vec())));
            cells.extend(times.as_ref().map(|times| Cells::Time(times[edges.clone()].to_vec())));
            let of_column = |values: &EdgeMatrix, column: usize| {
                Cells::Float(edges.clone().map(|edge| values.row(edge)[column]).collect())
            };
            cells.extend(values.iter().flat_map(|values| (0..values.width()).map(|column| of_column(values, column))));
            cells
        })?;
        let types = self.dataset.graph.node_types();
        let end = |at: usize, column: &str| format!("{{ type = \"{}\", column = \"{column}\" }}", types[at].name);
        let (src, dst) = (end(relation.src, "src"), end(relation.dst, "dst"));
        *description +=
            &format!("[[edges]]\nname = \"{}\"\nfile = \"{name}\"\nsrc = {src}\ndst = {dst}\n", relation.name);
        valued.iter().for_each(|column| *description += &format!("{column} = \"{column}\"\n"));
        for (column, name) in value_names.iter().zip(self.dataset.value_names(&relation.name)) {
            *description += &format!("# {column}: {name:?}, as models read it\n");
        }
        let all = self.dataset.graph.relations();
        if !all.iter().any(|other| Arc::ptr_eq(&relation.reverse, &other.forward)) {
            *description += "one_way = true\n";
        }
        description.push('\n');
        names.extend(files);
        Ok(())
    }

    /// What a table is called: its file, or the directory of its parts.
    fn name(&self, table: &str) -> String {
        match self.options.part_rows {
            Some(_) => table.to_owned(),
            None => format!("{table}.{}", self.options.format.extension()),
        }
    }

    /// Writes `num_rows` rows, whose cells `cells` makes for ranges of them, and returns the names of the files.
    fn table(
        &self,
        name: &str,
        columns: &[&str],
        num_rows: usize,
        cells: impl Fn(Range<usize>) -> Vec<Cells> + Sync,
    ) -> Result<Vec<String>> {
        let Some(part_rows) = self.options.part_rows else {
            self.file(name, columns, 0..num_rows, &cells)?;
            return Ok(vec![name.to_owned()]);
        };
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir).map_err(|source| Error::io(&dir, "create", source))?;
        let write = |part: usize| {
            let start = part * part_rows.get();
            let name = format!("{name}/part-{part:05}.{}", self.options.format.extension());
            self.file(&name, columns, start..(start + part_rows.get()).min(num_rows), &cells)?;
            Ok(name)
        };
        let files = (0..num_rows.div_ceil(part_rows.get()).max(1)).into_par_iter().map(write).collect();
        sync_directory(&dir)?;
        files
    }

    /// Writes a file of some rows.
    fn file(
        &self,
        name: &str,
        columns: &[&str],
        rows: Range<usize>,
        cells: &(impl Fn(Range<usize>) -> Vec<Cells> + Sync),
    ) -> Result<()> {
        let path = self.dir.join(name);
        let failed = |source| Error::io(&path, "write", source);
        let file = BufWriter::with_capacity(1 << 20, File::create_new(&path).map_err(failed)?);
        let end = rows.end;
        let batches = rows.step_by(ROWS).map(|start| cells(start..(start + ROWS).min(end)));
        match self.options.format {
            TableFormat::Csv => write_csv(file, columns, batches).map_err(failed),
            TableFormat::Parquet => {
                write_parquet(file, columns, batches).map_err(|fault| failed(io::Error::other(fault)))
            }
        }
    }
}

fn write_csv(file: BufWriter<File>, columns: &[&str], batches: impl Iterator<Item = Vec<Cells>>) -> io::Result<()> {
    // A cell of one empty text would be an empty line: quotes keep it.
    let mut writer = csv::WriterBuilder::new().from_writer(file);
    writer.write_record(columns)?;
    for batch in batches {
        let rows = match batch.first() {
            Some(Cells::Text(ids)) => ids.len(),
            _ => 0,
        };
        for row in 0..rows {
            for cells in &batch {
                match cells {
                    Cells::Text(cells) => writer.write_field(&cells[row])?,
                    Cells::Label(cells) => writer.write_field(cells[row].map_or(String::new(), |c| c.to_string()))?,
                    Cells::Float(cells) => writer.write_field(cells[row].to_string())?,
                    Cells::Time(cells) => writer.write_field(cells[row].to_string())?,
                }
            }
            writer.write_record(None::<&[u8]>)?;
        }
    }
    let file = writer.into_inner().map_err(|refused| io::Error::other(refused.to_string()))?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn write_parquet(
    file: BufWriter<File>,
    columns: &[&str],
    batches: impl Iterator<Item = Vec<Cells>>,
) -> std::result::Result<(), ParquetError> {
    let types = columns.iter().map(|name| match *name {
        "label" => "optional int32 label (INTEGER(8,true))".to_owned(),
        "weight" => "required float weight".to_owned(),
        value if value.starts_with("value_") => format!("required float {value}"),
        "time" => "required int64 time".to_owned(),
        id => format!("required binary {id} (STRING)"),
    });
    let types: Vec<String> = types.collect();
    let mut writer = ParquetFile::new(file, &types.iter().map(String::as_str).collect::<Vec<_>>())?;
    for batch in batches {
        let cells = batch.into_iter().map(|cells| match cells {
            Cells::Text(cells) => {
                parquet_file::Cells::Text(cells.iter().map(|cell| Some(cell.as_str().into())).collect())
            }
            Cells::Label(cells) => parquet_file::Cells::Int32(cells.iter().map(|cell| cell.map(i32::from)).collect()),
            Cells::Float(cells) => parquet_file::Cells::Float(cells.into_iter().map(Some).collect()),
            Cells::Time(cells) => parquet_file::Cells::Int64(cells),
        });
        writer.write(&cells.collect::<Vec<_>>())?;
    }
    writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(())
}
