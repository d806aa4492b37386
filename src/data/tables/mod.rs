//! Tables of nodes and edges, turned into a typed graph with features and labels, and back.
//!
#![doc = include_str!("TABLES.md")]

mod budget;
mod cells;
mod description;
mod division;
mod edge_columns;
mod edge_list;
mod edges;
mod encode;
mod events;
mod export;
mod features;
mod files;
mod fitting;
mod input;
mod naming;
mod node_ids;
mod nodes;
mod on_disk;
mod one_row;
mod parquet;
mod plan;
mod reading;
mod separated;
mod spilled;
mod stored;
mod summary;
mod text_table;
mod thrift;
mod transforms;
mod values;
mod windowed;
mod written;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use description::Description;
pub use edges::HubCounts;
pub(crate) use events::earlier;
pub use export::{ExportOptions, ExportSummary, TableFormat, export};
pub use one_row::ColumnInfo;
pub(crate) use one_row::{
    FigureColumns, Figures, NodeFacts, OwnEdge, RowTables, WindowColumns, WindowRules, read_time,
};
pub use stored::{
    IMPORT_BINARY, IMPORT_FILE, UnknownCategories, earlier_in_words, fit_of, fitted_times, looks_ahead,
    unknown_categories,
};
pub use summary::{ColumnSummary, ImportSummary, RelationSummary, TypeSummary};
pub use written::Written;

use self::budget::{Budget, of_values};
use self::description::{History, SplitBy, located};
use self::division::Divider;
use self::edge_list::{Carried, EdgeList, Merged};
use self::edges::{EdgeReader, RelationEdges};
use self::events::events_of;
use self::features::{Builder, FeatureMatrix, RelationEnd};
use self::files::{TableFile, files_of};
use self::input::Limits;
use self::nodes::NodeType;
use self::on_disk::{held, merge};
use self::plan::Plan;
use self::reading::{MAX_HELD, Reading};
use self::stored::{BinaryFile, CategoryNames, FORMAT, Stored};
use self::transforms::Entry;
use self::windowed::{FittedWindows, Made, Windows};
use crate::data::Progress;
use crate::error::{Error, Result, nearest_name};
use crate::graph::digest;
use crate::graph::{
    Dataset, Disk, EdgeColumns, EdgeValues, Ends, Features, HeteroGraph, IdMaps, Labels, RelationSpec, Values,
};

/// Bytes to which one file may unpack unless told otherwise: one tebibyte.
pub const MAX_BYTES: u64 = 1 << 40;

/// What to import, and how.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The description.
    pub description: PathBuf,
    /// Edges may only name ids that the node table of their type holds, where it has one.
    pub strict: bool,
    /// Bytes to which one file may unpack.
    pub max_bytes: u64,
    /// A run or a data directory whose fitted transforms are applied, instead of fitting them to these tables.
    pub with: Option<PathBuf>,
    /// How much memory the import may take, and where edges are sorted that take more.
    pub memory: Option<MemoryLimit>,
}

/// What an import may take of memory.
#[derive(Clone, Debug)]
pub struct MemoryLimit {
    /// Bytes, those of the pieces of tables that are being read not counted.
    pub bytes: u64,
    /// A directory for temporary files, which have no name there.
    pub dir: PathBuf,
}

impl ImportOptions {
    /// The defaults for a description.
    pub fn new(description: impl Into<PathBuf>) -> Self {
        Self { description: description.into(), strict: false, max_bytes: MAX_BYTES, with: None, memory: None }
    }
}

/// What an import made.
#[derive(Debug)]
pub struct Import {
    /// Graph, features, labels and ids.
    pub dataset: Dataset,
    /// What was found.
    pub summary: ImportSummary,
    provenance: Provenance,
    /// `import.bin`, where there is one.
    binary: Vec<u8>,
}

/// `import.json`: where the data come from and what was learned from them. Without times and directories, so that the
/// same tables make the same bytes.
#[derive(Debug, Serialize)]
struct Provenance {
    format: u32,
    program: String,
    strict: bool,
    description: Description,
    files: Vec<FileFacts>,
    fitted_rows: usize,
    held_out_rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    fitted_times: Option<[i64; 2]>,
    fitted: Vec<Entry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    windows: Vec<FittedWindows>,
    #[serde(skip_serializing_if = "CategoryNames::is_empty")]
    category_names: CategoryNames,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<BinaryFile>,
    columns: Vec<String>,
    unknown_categories: Vec<UnknownCategories>,
    node_types: Vec<TypeSummary>,
    relations: Vec<RelationSummary>,
    notes: Vec<String>,
}

/// One input file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct FileFacts {
    name: String,
    bytes: u64,
}

impl Import {
    /// Writes the data directory, `import.json` included, and returns the paths of its files.
    ///
    /// # Errors
    /// Those of [`Dataset::write`].
    pub fn write(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let text = serde_json::to_vec_pretty(&self.provenance);
        let text = text.map_err(|fault| Error::io(dir.join("import.json"), "write", fault.into()))?;
        let mut more = vec![(IMPORT_FILE, text)];
        if self.provenance.binary.is_some() {
            more.push((IMPORT_BINARY, self.binary.clone()));
        }
        self.dataset.write_with(dir, &more)
    }
}

/// Types of ends of edges that have no table although one of nearly the same name has, as a slip of the pen does: the
/// first relation, the type, and the other one. Short names, and names that count or end on purpose, as `card1` and
/// `card2` or `account_a` and `account_b` do, are no slips.
fn near_types(description: &Description) -> Vec<(&str, &str, &str)> {
    fn stem(name: &str) -> &str {
        let counted = || name.trim_end_matches(|c: char| c.is_ascii_digit());
        name.rsplit_once('_').map_or_else(counted, |(stem, _)| stem)
    }
    let tables = || description.nodes.iter().map(|table| table.node_type.as_str());
    let mut found: Vec<(&str, &str, &str)> = Vec::new();
    for (edges, end) in description.edges.iter().flat_map(|edges| [(edges, &edges.src), (edges, &edges.dst)]) {
        let name = end.node_type.as_str();
        let is_scored = description.edges.iter().any(|edges| edges.name == name);
        let is_told = found.iter().any(|(_, known, _)| *known == name);
        if name.len() < 4 || is_scored || is_told || tables().any(|table| table == name) {
            continue;
        }
        let near = nearest_name(name, tables()).filter(|near| near.len().abs_diff(name.len()) <= 1);
        if let Some(near) = near.filter(|near| stem(near) != stem(name)) {
            found.push((edges.name.as_str(), name, near));
        }
    }
    found
}

/// Reads the tables of a description. The result depends on the tables and the options only, not on the number of
/// threads. `progress` is called on the calling thread.
///
/// With [`ImportOptions::with`] nothing is learned from the tables: medians, scales, categories and texts are those of
/// that import, so the same row has the same features in both.
///
/// # Errors
/// [`Error::Config`] for a description that is wrong, or that says something else of columns and relations than that of
/// the import whose transforms are applied; [`Error::Io`]; [`Error::Format`] with file, line (row for
/// Parquet), column and value of what does not fit; [`Error::Data`] for more nodes than 32 bits can number;
/// [`Error::Usage`] for memory that does not hold the nodes.
pub fn import(options: &ImportOptions, progress: &dyn Fn(Progress)) -> Result<Import> {
    let Plan { description, mut types, node_files, edge_files, shared } = Plan::read(&options.description)?;
    let mut notes = Vec::new();
    for (relation, found, near) in near_types(&description) {
        if options.strict {
            let expected = "a node type that has a table, with --strict";
            let help = format!("did you mean `{near}`? Otherwise give `{found}` a [[nodes]] table of its own");
            return Err(Error::format(&options.description, format!("edges of `{relation}`"), expected, found, help));
        }
        notes.push(format!(
            "edges of `{relation}`: `{found}` has no [[nodes]] table, so that every id is a new node; did you mean \
             `{near}`?"
        ));
    }
    let with = options.with.as_deref().map(Stored::read).transpose()?;
    if let Some(stored) = &with {
        stored.check_description(&description, &options.description)?;
    }
    let limits = Limits::new(options.max_bytes);
    let budget = options.memory.as_ref().map(|limit| Budget { disk: Disk::new(&limit.dir), bytes: limit.bytes });
    let most_held = budget.as_ref().map_or(MAX_HELD, |budget| MAX_HELD.min(budget.bytes / 8));
    // Every file is looked for before the first is read.
    let files = |paths: &[PathBuf]| files_of(paths, limits);
    let node_files = node_files.iter().map(|paths| files(paths)).collect::<Result<Vec<_>>>()?;
    let edge_files = edge_files.iter().map(|paths| files(paths)).collect::<Result<Vec<_>>>()?;
    let shared_files = shared.iter().map(|shared| files(&shared.files)).collect::<Result<Vec<_>>>()?;
    let facts = facts_of([&node_files, &edge_files, &shared_files].into_iter().flatten().flatten());
    let reading = |stage, files: &[Vec<TableFile>]| {
        let total = files.iter().flatten().map(|file| file.bytes).sum();
        Reading { limits, stage, progress, done: 0, total, most_held }
    };
    let mut of_nodes = reading("nodes", &node_files);
    let mut of_edges = reading("edges", &edge_files);
    let mut of_shared = reading("shared", &shared_files);

    for ((table, files), node_type) in description.nodes.iter().zip(&node_files).zip(&mut types) {
        let mut rows = 0;
        of_nodes.for_each_batch(files, &node_type.wanted(table), |batch| {
            node_type.add(table, batch, rows)?;
            rows += batch.num_rows();
            Ok(())
        })?;
        node_type.check_units(files)?;
    }
    let (tables, strict) = (&description.nodes[..], options.strict);
    let mut reader = EdgeReader { tables, strict, budget: budget.as_ref(), values: 0 };
    let mut relations: Vec<RelationEdges> = Vec::new();
    for (table, files) in description.edges.iter().zip(&edge_files) {
        let relation = reader.read(table, files, &mut types, &mut of_edges)?;
        reader.values += of_values(&relation.columns, relation.edges.len());
        relations.push(relation);
    }
    for (shared, files) in shared.iter().zip(&shared_files) {
        relations.push(reader.read_shared(shared, files, &mut types, &mut of_shared)?);
    }

    let named = events::named(&types, &relations)?;
    let events = events_of(&types, &description, &named).map_err(|error| located(error, &options.description))?;
    let labels = labels_of(&types);
    let divider = Divider {
        types: &types,
        description: &description,
        labels: &labels.entries,
        events: events.as_ref(),
        named: &named,
        relations: &relations,
    };
    let split = match divider.divide() {
        _ if labels.entries.is_empty() => None,
        Ok(split) => {
            if description.split.by != SplitBy::Random {
                notes.push(format!("labels are divided {split}"));
                notes.extend(divider.note_of_gap(&split));
            }
            Some(split)
        }
        // Labels of a later day need not be enough for a split: nothing is fitted to them.
        Err(_) if with.is_some() => None,
        // Too few labels for a split: training cannot make one either.
        Err(Error::Data { what, expected, found, .. }) if description.split.by == SplitBy::Random => {
            notes.push(format!(
                "scales are fitted on all rows, because the labels cannot be split ({what}: expected {expected}, found \
                 {found})"
            ));
            None
        }
        Err(error) => return Err(located(error, &options.description)),
    };
    let is_fitted = match &with {
        Some(_) => vec![true; types.iter().map(|node_type| node_type.ids.len()).sum()],
        None => divider.fitted(split.as_ref()),
    };
    let fitted_times = match (&with, &events) {
        (Some(stored), _) => stored.fitted_times,
        (None, events) => events.as_ref().and_then(|events| events.ends(|node| is_fitted[node as usize])),
    };
    if with.is_some() {
        notes.extend(earlier_in_words(fitted_times, events.as_ref()));
    }
    let Made { windowed, fitted: windows, notes: of_windows } = match &events {
        None => Made::default(),
        Some(_) => {
            notes
                .extend(events::one_way(&mut relations, &types).map_err(|error| located(error, &options.description))?);
            let windows = Windows {
                types: &types,
                description: &description,
                named: &named,
                is_fitted: &is_fitted,
                split: split.as_ref(),
                with: with.as_ref().map(|stored| &stored.windows[..]),
            };
            let made = windows.compute(&|done, total| progress(Progress { stage: "windows", done, total }));
            made.map_err(|error| located(error, &options.description))?
        }
    };
    notes.extend(of_windows);

    let counts: Vec<usize> = types.iter().map(|node_type| node_type.ids.len()).collect();
    let fitted_edges = edge_columns::fitted_rows(&relations, &is_fitted, &counts)?;
    let held = held(&types, &relations);
    // What edges may take beside that and `more` bytes.
    let room = |more| budget.as_ref().map_or(Ok(0), |budget| budget.beside(held + more, is_fitted.len()));
    let for_edges = room(0)?;
    let merged: Result<Vec<Merged>> = relations
        .iter_mut()
        .map(|relation| {
            let edges = std::mem::replace(&mut relation.edges, EdgeList::new(Carried::default()));
            merge(edges, [relation.dst, relation.src].map(|end| counts[end]), relation.carried, for_edges)
        })
        .collect();
    let mut merged = merged?;
    for named in named.iter().filter(|_| events.is_some()) {
        let history = description.nodes[named.events].history;
        let times = events::times(&types[named.events]).unwrap_or_default();
        if history != History::Latest(0) {
            let entities = types[named.entity].ids.len();
            let adjacency = events::earlier(&named.of_event, &times, entities, history.most());
            relations.push(RelationEdges::of_events(format!("earlier_{}", named.relation), named.events));
            merged.push(Merged::of_events(adjacency));
        }
    }
    let summaries = types.iter().map(TypeSummary::of).collect::<Vec<_>>();
    let repeated: Vec<usize> = merged.iter().map(|merged| merged.repeated).collect();
    let FeatureMatrix { values, names, transforms, unknown, category_names } = {
        // What an entity adds up to would tell an event of later ones: windows say it as of the event.
        let is_static = |(relation, _): &(&RelationEdges, &Merged)| {
            [relation.src, relation.dst].iter().all(|&end| !types[end].is_of_events())
        };
        let ends: Vec<RelationEnd> = relations.iter().zip(&merged).filter(is_static).flat_map(ends_of).collect();
        features::build(
            &mut types,
            &ends,
            &windowed,
            &is_fitted,
            with.as_ref(),
            &|bytes| room(bytes).map(drop),
            &|done, total| {
                progress(Progress { stage: "features", done, total });
            },
        )?
    };
    if let Some(stored) = &with {
        stored.check_columns(&names)?;
    }
    let mut builder = Builder { with: with.as_ref(), made: transforms, unknown, ..Builder::default() };
    let columns = edge_columns::encode(&mut relations, &merged, &fitted_edges, &mut builder)?;
    let Builder { made: transforms, unknown, .. } = builder;
    let (specs, edge_values) = specs_and_values(&relations, merged, columns);
    let one_way: Vec<&str> = relations.iter().filter(|r| r.one_way).map(|r| r.name.as_str()).collect();
    let named = types.iter().map(|node_type| (node_type.name.clone(), node_type.ids.len())).collect();
    let for_reverses = room(size_of_val(&values[..]) as u64)?;
    let disk = budget.as_ref().map(|budget| (&budget.disk, for_reverses));
    let graph = HeteroGraph::with_reverse_relations_on(named, specs, |name| one_way.contains(&name), disk)?;
    let ids = types.into_iter().map(|node_type| node_type.ids.texts()).collect();
    let features = Features::from_vec(values, graph.num_nodes(), names.len());
    let relations =
        relations.iter().zip(repeated).map(|(relation, repeated)| RelationSummary::of(relation, repeated, &graph));
    let relations: Vec<RelationSummary> = relations.collect();
    let held_out_rows = is_fitted.iter().filter(|fitted| !**fitted).count();
    let (fitted_rows, held_out_rows) = match &with {
        Some(stored) => (stored.fitted_rows, stored.held_out_rows),
        None => (is_fitted.len() - held_out_rows, held_out_rows),
    };
    let unknown_of = |of: &UnknownCategories| {
        (with.is_some() && of.unknown > 0).then(|| {
            let UnknownCategories { column, rows, unknown } = of;
            format!("{unknown} of {rows} rows have a category of `{column}` that the fitted rows lack")
        })
    };
    notes.extend(unknown.iter().filter_map(unknown_of));
    let (fitted, binary) = transforms.stored();
    let binary_facts = |bytes: &Vec<u8>| BinaryFile { bytes: bytes.len(), sha256: digest::of_bytes(bytes) };
    let summary = ImportSummary::new(&summaries, &relations, names.len(), &notes);
    let ends: Vec<_> =
        description.nodes.iter().filter_map(|of| Some((of.node_type.clone(), of.ends.clone()?))).collect();
    let provenance = Provenance {
        format: FORMAT,
        program: concat!("graphsieve ", env!("CARGO_PKG_VERSION")).into(),
        strict: options.strict,
        files: facts,
        fitted_rows,
        held_out_rows,
        fitted_times,
        fitted,
        windows,
        category_names,
        binary: (!binary.is_empty()).then(|| binary_facts(&binary)),
        columns: names.clone(),
        unknown_categories: unknown,
        node_types: summaries,
        relations,
        notes,
        description,
    };
    let labels = (!labels.entries.is_empty()).then_some(labels);
    let ends =
        ends.into_iter().map(|(node_type, names)| Ends::new(&graph, &node_type, &names)).collect::<Result<_>>()?;
    let dataset = Dataset {
        feature_names: Some(names),
        edge_values,
        ends,
        events,
        split,
        ..Dataset::new(graph, Some(features), labels, Some(IdMaps(ids)))
    };
    Ok(Import { dataset, summary, provenance, binary })
}

/// What is recorded of the files, each once.
fn facts_of<'a>(files: impl Iterator<Item = &'a TableFile>) -> Vec<FileFacts> {
    let mut seen = HashSet::new();
    let facts = files.filter(|file| seen.insert((file.name.as_str(), file.bytes)));
    facts.map(|file| FileFacts { name: file.name.clone(), bytes: file.bytes }).collect()
}

/// Labels by global id.
fn labels_of(types: &[NodeType]) -> Labels {
    let mut entries = Vec::new();
    let mut offset = 0;
    for node_type in types {
        let known = node_type.labels.iter().enumerate().filter_map(|(node, label)| Some((node, (*label)?)));
        entries.extend(known.map(|(node, label)| ((offset + node) as u32, label)));
        offset += node_type.ids.len();
    }
    Labels { entries }
}

/// Both ends of a relation, destination first.
fn ends_of<'a>((relation, merged): (&RelationEdges, &'a Merged)) -> [RelationEnd<'a>; 2] {
    [(relation.dst, "in", &merged.dst), (relation.src, "out", &merged.src)].map(|(node_type, direction, figures)| {
        RelationEnd { node_type, name: format!("{}.{direction}", relation.name), figures }
    })
}

fn specs_and_values(
    relations: &[RelationEdges],
    merged: Vec<Merged>,
    columns: Vec<Option<EdgeColumns>>,
) -> (Vec<RelationSpec>, Vec<EdgeValues>) {
    let mut specs = Vec::with_capacity(relations.len());
    let mut values = Vec::new();
    for ((relation, Merged { adjacency, weight, time, .. }), columns) in relations.iter().zip(merged).zip(columns) {
        let name = relation.name.clone();
        if weight.is_some() || time.is_some() || columns.is_some() {
            let (weight, time) = (weight.map(Values::Made), time.map(Values::Made));
            values.push(EdgeValues { relation: name.clone(), weight, time, columns });
        }
        specs.push(RelationSpec::new(name, relation.src, relation.dst, adjacency));
    }
    (specs, values)
}
