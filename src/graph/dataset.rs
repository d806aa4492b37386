//! The data directory: graph, features, labels and string ids, read with every check and written as a whole.

mod ages;
mod edge_values;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

pub(crate) use self::ages::from_the_first;
use super::adjacency::Rows;
use super::checksums::Checksums;
use super::classes::Classes;
use super::directory::write_directory;
use super::edge_values::{EdgeColumns, EdgeValues};
use super::ends::Ends;
use super::events::Events;
use super::features::Features;
use super::formats::{FEATURES_FILE, is_present, write_lists, write_new, write_spans};
use super::hetero::{HeteroGraph, NodeType, RelationSpec};
use super::ids::IdMaps;
use super::labels::Labels;
use super::manifest::{FEATURES_DIM, FeatureType, FeaturesEntry, IdSpace, Manifest, NodeCounts};
use super::npz::{self, EdgeReading};
use super::stored_split::StoredSplit;
use crate::error::{Error, Result};
use crate::timing::timed;

pub(super) const LABELS_FILE: &str = "labels.npy";
const ADD_LABELS: &str =
    "name the column of the labels, `label = \"COLUMN\"` in [[nodes]], and import the tables again; or add labels.npy";
const IDS_FILE: &str = "node_id_mappings.json";
pub(super) const CLASSES_FILE: &str = "classes.npy";
pub(super) const MASKS_FILE: &str = "masks.npy";
const FEATURE_NAMES_FILE: &str = "feature_names.json";

/// What a data directory, or an `.npz` file, holds.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Node types and relations.
    pub graph: HeteroGraph,
    /// Raw features of all nodes.
    pub features: Option<Features>,
    /// Known labels of some nodes: anomalous or normal.
    pub labels: Option<Labels>,
    /// Classes of nodes, of data for node classification; with two classes there are `labels` too.
    pub classes: Option<Classes>,
    /// Ids that the nodes had in the raw data.
    pub ids: Option<IdMaps>,
    /// Names of the feature columns.
    pub feature_names: Option<Vec<String>>,
    /// Weights, times and values of edges, of the relations that have any.
    pub edge_values: Vec<EdgeValues>,
    /// Of node types whose nodes are edges of the raw tables: where these begin and end.
    pub ends: Vec<Ends>,
    /// Times of the nodes that are events.
    pub events: Option<Events>,
    /// The split of the labels, where the data have one.
    pub split: Option<StoredSplit>,
    /// What reading did to the data and the user should know.
    pub notes: Vec<String>,
}

impl Dataset {
    /// Joins parts that were made rather than read.
    pub fn new(graph: HeteroGraph, features: Option<Features>, labels: Option<Labels>, ids: Option<IdMaps>) -> Self {
        Self {
            graph,
            features,
            labels,
            classes: None,
            ids,
            feature_names: None,
            edge_values: Vec::new(),
            ends: Vec::new(),
            events: None,
            split: None,
            notes: Vec::new(),
        }
    }

    /// Reads and validates a data directory, or an `.npz` file of arrays (see the `npz` module) whose edges are taken
    /// as undirected.
    ///
    /// The graph is described by `graph.toml` or `graph.json`, or is the marketplace preset when there is only a
    /// `node_counts.json`. Features, `labels.npy`, `classes.npy` (with `masks.npy`) and `node_id_mappings.json` are
    /// optional; two classes without labels are labels as well. Self-loops that lie outside a relation's source type
    /// are removed and counted in [`Relation::loops`](super::Relation::loops).
    ///
    /// # Errors
    /// [`Error::Io`] for a missing or unreadable file, [`Error::Format`] for content that is truncated, out of range,
    /// contradictory, not finite or not what was written, [`Error::Data`] for files that do not belong together.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, EdgeReading::default())
    }

    /// The same data, looked at through one of the windows of their split by time, counted from 1. Data that are
    /// divided otherwise, or not, have one.
    ///
    /// # Errors
    /// [`Error::Config`] for a window that there is not.
    pub fn in_window(mut self, window: usize) -> Result<Self> {
        let windows = self.split.as_ref().map_or(1, |split| split.windows.len());
        if !(1..=windows).contains(&window) {
            let expected = match windows {
                1 => "1: the data have one window".into(),
                _ => format!("1 to {windows}, the windows of the split of the data"),
            };
            let help = "import makes windows in turn: by = \"time\" and windows = N in [split] of the description";
            return Err(Error::setting("data.window", window.to_string(), expected, help));
        }
        self.split = self.split.and_then(|split| split.at(window - 1));
        Ok(self)
    }

    /// Like [`open`](Self::open), with a word on the edges of an `.npz` file. A data directory says itself which way
    /// its relations go.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(dir: &Path, edges: EdgeReading) -> Result<Self> {
        let dataset = timed("reading the data", || Self::read(dir, edges))?;
        let [nodes, edges] = [dataset.graph.num_nodes(), dataset.graph.num_edges()];
        log::debug!("read {}: {nodes} nodes, {edges} edges", dir.display());
        Ok(dataset)
    }

    fn read(dir: &Path, edges: EdgeReading) -> Result<Self> {
        let metadata = fs::metadata(dir).map_err(|source| Error::io(dir, "open", source))?;
        if metadata.is_file() && dir.extension().is_some_and(|extension| extension == npz::EXTENSION) {
            let (graph, features, classes, notes) = npz::read(dir, edges)?;
            let labels = classes.binary();
            return Ok(Self { classes: Some(classes), notes, ..Self::new(graph, Some(features), labels, None) });
        }
        if !metadata.is_dir() {
            return Err(Error::io(dir, "open", io::ErrorKind::NotADirectory.into()));
        }
        let (manifest, manifest_path) = Manifest::read(dir)?;
        // Who reads a file that was changed may say more of what is wrong with it.
        let (dataset, checked) = rayon::join(
            || Self::read_files(dir, &manifest, &manifest_path),
            || timed("comparing digests", || Checksums::read(dir)?.check_all(dir, &manifest.read_later(dir))),
        );
        let dataset = dataset?;
        checked.map(|()| dataset)
    }

    fn read_files(dir: &Path, manifest: &Manifest, manifest_path: &Path) -> Result<Self> {
        let types: Vec<(String, usize)> = manifest.node_types.iter().map(|t| (t.name.clone(), t.count)).collect();
        // Without relations yet: names and counts are checked, also against the features, before anything is allocated.
        let nodes = HeteroGraph::new(types, Vec::new()).map_err(|error| located(error, manifest_path))?;
        let optional = |name: &str| Some(dir.join(name)).filter(|path| is_present(path));
        let features = || match &manifest.features {
            Some(FeaturesEntry { file, dim, dtype }) => {
                Features::open(&dir.join(file), nodes.num_nodes(), *dim, *dtype).map(Some)
            }
            None => optional(FEATURES_FILE)
                .map(|path| Features::open(&path, nodes.num_nodes(), FEATURES_DIM, FeatureType::F16))
                .transpose(),
        };
        let graph = || read_graph(dir, manifest, manifest_path, nodes.node_types());
        let ids = || optional(IDS_FILE).map(|path| IdMaps::read_json(&path, nodes.node_types())).transpose();
        // The large files at the same time: ids are read by one thread.
        let (ids, (graph, features)) = rayon::join(
            || timed("reading ids", ids),
            || rayon::join(|| timed("reading relations", graph), || timed("reading features", features)),
        );
        let (features, graph) = (features?, graph?);
        let labels = optional(LABELS_FILE).map(|path| Labels::read_npy(&path, graph.num_nodes())).transpose()?;
        let classes = optional(CLASSES_FILE)
            .map(|path| Classes::read_npy(&path, optional(MASKS_FILE).as_deref(), graph.num_nodes()))
            .transpose()?;
        let ids = ids?;
        let feature_names = optional(FEATURE_NAMES_FILE).map(|path| read_feature_names(&path)).transpose()?;
        let edge_values: Vec<EdgeValues> =
            manifest.relations.iter().filter_map(|entry| entry.edge_values(dir)).collect();
        let mut columns = edge_values.iter().filter_map(|values| Some((&values.relation, values.columns.as_ref()?)));
        let checked = columns.try_for_each(|(relation, columns)| columns.check(relation));
        checked.map_err(|error| located(error, manifest_path))?;
        let labels = labels.or_else(|| classes.as_ref()?.binary());
        let events = Events::read(dir, graph.num_nodes())?;
        let spans = events.as_ref().map_or(Ok(()), |events| events.check_spans(&graph));
        spans.map_err(|error| located(error, manifest_path))?;
        let split = StoredSplit::read(dir, graph.num_nodes())?;
        let ends = manifest.node_types.iter().filter_map(|of| Some(Ends::new(&graph, &of.name, of.ends.as_ref()?)));
        let ends = ends.collect::<Result<_>>().map_err(|error| located(error, manifest_path))?;
        let parts = Self::new(graph, features, labels, ids);
        let dataset = Self { classes, feature_names, edge_values, ends, events, split, ..parts };
        dataset.check_feature_names().map_err(|error| located(error, &dir.join(FEATURE_NAMES_FILE)))?;
        Ok(dataset)
    }

    /// The id that a node had in the raw data; its number within its type, from 0, where nodes have no ids.
    pub fn id_of(&self, node: u32) -> Cow<'_, str> {
        match &self.ids {
            Some(ids) => Cow::Borrowed(ids.get(node as usize).unwrap_or_default()),
            None => {
                let types = self.graph.node_types();
                Cow::Owned((node as usize - types[self.graph.type_of(node as usize)].offset).to_string())
            }
        }
    }

    /// Source and destination of a node that is an edge of the raw data; see [`Ends::of`].
    pub fn ends_of(&self, node: u32) -> Option<[Option<u32>; 2]> {
        self.ends.iter().find_map(|ends| ends.of(&self.graph, node))
    }

    /// The labels of a detector: anomalous and normal nodes. `path` is where the dataset was read from.
    ///
    /// # Errors
    /// [`Error::Format`] when there are none, or other classes.
    pub fn binary_labels(&self, path: &Path) -> Result<&Labels> {
        self.labels.as_ref().ok_or_else(|| match &self.classes {
            Some(classes) => npz::not_binary(path, classes),
            None => Error::format(path, LABELS_FILE, "labelled nodes", "no such file", ADD_LABELS),
        })
    }

    /// The classes of the nodes: those of the data, or the two of binary labels.
    ///
    /// # Errors
    /// [`Error::Format`] when there are neither.
    pub fn node_classes(&self, path: &Path) -> Result<Cow<'_, Classes>> {
        match (&self.classes, &self.labels) {
            (Some(classes), _) => Ok(Cow::Borrowed(classes)),
            (None, Some(labels)) => Ok(Cow::Owned(Classes::of_labels(labels, self.graph.num_nodes()))),
            (None, None) => Err(Error::format(path, LABELS_FILE, "labelled nodes", "no such file", ADD_LABELS)),
        }
    }

    /// Forgets the labels and classes of all other nodes than these. How many classes there are stays as it is.
    pub fn keep_labels_of(&mut self, nodes: impl IntoIterator<Item = u32>) {
        let nodes: HashSet<u32> = nodes.into_iter().collect();
        if let Some(labels) = &mut self.labels {
            labels.entries.retain(|(node, _)| nodes.contains(node));
        }
        if let Some(classes) = &mut self.classes {
            classes.keep(&nodes);
        }
    }

    /// Writes the whole directory and returns the paths of its files.
    ///
    /// Everything is written and synced under a temporary name beside `dir` and renamed at the end, so that `dir` is
    /// complete or absent. A marketplace graph gets the original's files: global ids, `node_counts.json`, and in every
    /// relation one self-loop per row carrying the row's own global id (rows of `euu` that hold theirs already get no
    /// second one). Every other graph gets a `graph.toml` and local ids without added loops. Features are f16 where
    /// that holds every value exactly, else f32.
    ///
    /// # Errors
    /// [`Error::Exists`] unless `dir` is absent or an empty directory; [`Error::Data`] when features, labels or ids do
    /// not fit the graph; [`Error::Io`].
    pub fn write(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.write_with(dir, &[])
    }

    /// Like [`write`](Self::write), with files of other content (name and bytes) that belong to the data.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) fn write_with(&self, dir: &Path, more: &[(&str, Vec<u8>)]) -> Result<Vec<PathBuf>> {
        self.check()?;
        let files = write_directory(dir, |building| {
            let mut names = self.write_files(building)?;
            for (name, content) in more {
                write_new(&building.join(name), |file| file.write_all(content))?;
                names.push((*name).to_owned());
            }
            Ok(names)
        })?;
        for file in &files {
            log::debug!("wrote {}, {} bytes", file.display(), fs::metadata(file).map_or(0, |metadata| metadata.len()));
        }
        Ok(files)
    }

    fn write_files(&self, dir: &Path) -> Result<Vec<String>> {
        let graph = &self.graph;
        let types = graph.node_types();
        // Its files have entries that no edge stands for: values could not be told apart.
        let lists = graph.relations().iter().all(|relation| !relation.forward.is_spans());
        let marketplace = graph.is_marketplace() && lists && self.edge_values.is_empty() && self.ends.is_empty();
        let mut names = Vec::new();
        let features = self.features.as_ref().map(|features| (features.dim(), features.exact_type()));
        if marketplace {
            let [users, products, sellers] = [0, 1, 2].map(|at| types[at].count);
            let counts = NodeCounts { users, products, sellers, total: graph.num_nodes() };
            names.push("node_counts.json".to_owned());
            write_new(&dir.join("node_counts.json"), |file| Ok(serde_json::to_writer_pretty(file, &counts)?))?;
        }
        if !marketplace || features.is_some_and(|features| features != (FEATURES_DIM, FeatureType::F16)) {
            let ids = if marketplace { IdSpace::Global } else { IdSpace::Local };
            let mut manifest = Manifest::of_graph(graph, ids, features);
            for entry in &mut manifest.relations {
                let values = self.values_of(&entry.name);
                let file = |part: &str| PathBuf::from(format!("{}_{part}.bin", entry.name));
                (entry.weight, entry.time) = (
                    values.and_then(|values| values.weight.as_ref()).map(|_| file("weight")),
                    values.and_then(|values| values.time.as_ref()).map(|_| file("time")),
                );
                if let Some(EdgeColumns { names, .. }) = values.and_then(|values| values.columns.as_ref()) {
                    (entry.values, entry.value_names) = (Some(file("values")), names.clone());
                }
            }
            for ends in &self.ends {
                let (_, relations) = ends.names(graph);
                manifest.node_types[ends.node_type()].ends = Some(relations.map(str::to_owned));
            }
            let text = toml::to_string(&manifest).map_err(io::Error::other);
            names.push("graph.toml".to_owned());
            write_new(&dir.join("graph.toml"), |file| file.write_all(text?.as_bytes()))?;
        }
        let written = graph.relations().par_iter().map(|relation| {
            let file = |part: &str| format!("{}_{part}.bin", relation.name);
            if let Rows::Spans { start, end } = relation.forward.rows() {
                let names = ["row_start", "row_end", "col_idx"].map(file);
                write_spans(&names.each_ref().map(|name| dir.join(name)), [start, &end], &relation.forward)?;
                return Ok(names.to_vec());
            }
            let names = ["row_ptr", "col_idx"].map(file);
            let [row_ptr, col_idx] = [0, 1].map(|at| dir.join(&names[at]));
            let (src_offset, own_ids) =
                if marketplace { (types[relation.src].offset, Some(types[relation.dst].offset)) } else { (0, None) };
            write_lists([&row_ptr, &col_idx], &relation.forward, src_offset, own_ids)?;
            Ok(names.to_vec())
        });
        let lists = || written.collect::<Result<Vec<_>>>();
        let values =
            || self.edge_values.par_iter().map(|values| self.write_values(values, dir)).collect::<Result<Vec<_>>>();
        let features = || self.features.as_ref().map_or(Ok(()), |features| features.write(&dir.join(FEATURES_FILE)));
        let ids = || self.ids.as_ref().map_or(Ok(()), |ids| ids.write_json(&dir.join(IDS_FILE), types));
        // The large files at the same time: each is written by one thread and waits for the disk.
        let ((lists, values), (features, ids)) =
            rayon::join(|| rayon::join(lists, values), || rayon::join(features, ids));
        names.extend(lists?.into_iter().flatten());
        names.extend(values?.into_iter().flatten());
        features?;
        ids?;
        if let Some(columns) = &self.feature_names {
            names.push(FEATURE_NAMES_FILE.to_owned());
            write_new(&dir.join(FEATURE_NAMES_FILE), |file| Ok(serde_json::to_writer_pretty(file, columns)?))?;
        }
        if self.features.is_some() {
            names.push(FEATURES_FILE.to_owned());
        }
        if let Some(labels) = &self.labels {
            names.push(LABELS_FILE.to_owned());
            labels.write_npy(&dir.join(LABELS_FILE))?;
        }
        if let Some(classes) = &self.classes {
            names.push(CLASSES_FILE.to_owned());
            classes.write_npy(&dir.join(CLASSES_FILE))?;
            if !classes.masks().is_empty() {
                names.push(MASKS_FILE.to_owned());
                classes.write_masks_npy(&dir.join(MASKS_FILE))?;
            }
        }
        if let Some(events) = &self.events {
            names.extend(events.write(dir)?);
        }
        if let Some(split) = &self.split {
            names.extend(split.write(dir)?);
        }
        if self.ids.is_some() {
            names.push(IDS_FILE.to_owned());
        }
        let checksums = timed("digests of the files", || Checksums::write(dir, &names))?;
        names.push(checksums);
        Ok(names)
    }

    /// Writes the values of the edges of a relation and returns the names of the files.
    fn write_values(&self, values: &EdgeValues, dir: &Path) -> Result<Vec<String>> {
        let EdgeValues { relation, weight, time, columns } = values;
        let entries = self.num_entries(relation);
        let file = |part: &str| format!("{relation}_{part}.bin");
        let mut names = Vec::new();
        if let Some(values) = weight {
            values.write(&dir.join(file("weight")), entries, 1)?;
            names.push(file("weight"));
        }
        if let Some(values) = time {
            values.write(&dir.join(file("time")), entries, 1)?;
            names.push(file("time"));
        }
        if let Some(EdgeColumns { names: columns, values }) = columns {
            values.write(&dir.join(file("values")), entries, columns.len())?;
            names.push(file("values"));
        }
        Ok(names)
    }

    fn check_feature_names(&self) -> Result<()> {
        let (Some(names), dim) = (&self.feature_names, self.features.as_ref().map_or(0, Features::dim)) else {
            return Ok(());
        };
        if names.len() == dim {
            return Ok(());
        }
        Err(Error::Data {
            what: "names of features".into(),
            expected: format!("{dim}, one per feature column"),
            found: names.len().to_string(),
            help: "give every column a name, or none to any".into(),
        })
    }

    /// Whether the parts belong together.
    fn check(&self) -> Result<()> {
        let nodes = self.graph.num_nodes();
        if let Some(features) = self.features.as_ref().filter(|features| features.num_rows() != nodes) {
            return Err(Error::Data {
                what: "features".into(),
                expected: format!("{nodes} rows, one per node"),
                found: features.num_rows().to_string(),
                help: "give every node one row of features".into(),
            });
        }
        self.check_feature_names()?;
        let relations = self.graph.relations();
        let is_known = |values: &&EdgeValues| relations.iter().any(|relation| relation.name == values.relation);
        if let Some(values) = self.edge_values.iter().find(|values| !is_known(values)) {
            return Err(Error::Data {
                what: "values of edges".into(),
                expected: "the name of a relation".into(),
                found: format!("{:?}", values.relation),
                help: "name the relation as the graph does".into(),
            });
        }
        let is_spans = |values: &&EdgeValues| {
            relations.iter().any(|relation| relation.name == values.relation && relation.forward.is_spans())
        };
        if let Some(values) = self.edge_values.iter().find(is_spans) {
            return Err(Error::Data {
                what: format!("values of edges of `{}`", values.relation),
                expected: "a list per row, so that every edge has an entry of its own".into(),
                found: "rows as spans, which share entries".into(),
                help: "leave the values out, or give the relation lists".into(),
            });
        }
        for values in &self.edge_values {
            values.columns.as_ref().map_or(Ok(()), |columns| columns.check(&values.relation))?;
        }
        self.labels.as_ref().map_or(Ok(()), |labels| labels.check(nodes))?;
        self.classes.as_ref().map_or(Ok(()), |classes| classes.check(nodes))?;
        self.events.as_ref().map_or(Ok(()), |events| events.check(nodes))?;
        self.split.as_ref().map_or(Ok(()), |split| split.check(nodes))?;
        self.ids.as_ref().map_or(Ok(()), |ids| ids.check(self.graph.node_types()))
    }
}

fn read_feature_names(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
    serde_json::from_str(&text).map_err(|source| {
        let place = format!("line {}, column {}", source.line(), source.column());
        let help = "the file holds a JSON list of one name per feature column; it may be removed";
        Error::format(path, place, "a list of names", source.to_string(), help)
    })
}

fn read_graph(dir: &Path, manifest: &Manifest, manifest_path: &Path, types: &[NodeType]) -> Result<HeteroGraph> {
    let mut specs = Vec::with_capacity(manifest.relations.len());
    let mut removed = Vec::with_capacity(manifest.relations.len());
    let read = manifest.relations.par_iter().filter_map(|entry| {
        let (src, dst) = (manifest.type_index(&entry.src)?, manifest.type_index(&entry.dst)?);
        Some((entry, src, dst, entry.files(dir, &types[src], &types[dst]).read()))
    });
    for (entry, src, dst, read) in read.collect::<Vec<_>>() {
        let (adjacency, loops) = read?;
        removed.push((entry.name.as_str(), loops));
        specs.push(RelationSpec {
            name: entry.name.clone(),
            src,
            dst,
            stream: manifest.stream_of(entry).to_owned(),
            primary: entry.primary.unwrap_or(entry.reverse_of.is_none()),
            adjacency,
        });
    }
    // A declared pair that does not match is an error below; nothing is generated for it.
    let complete = |name: &str| manifest.is_complete(name);
    let types = types.iter().map(|node_type| (node_type.name.clone(), node_type.count)).collect();
    let mut graph =
        HeteroGraph::with_reverse_relations(types, specs, complete).map_err(|error| located(error, manifest_path))?;
    for (name, loops) in removed {
        graph.record_removed_loops(name, loops);
    }
    check_partners(manifest, manifest_path, &graph)?;
    Ok(graph)
}

/// Whether relations that are declared to be each other's reverse are.
fn check_partners(manifest: &Manifest, path: &Path, graph: &HeteroGraph) -> Result<()> {
    let relation = |name: &str| graph.relations().iter().find(|relation| relation.name == name);
    for entry in &manifest.relations {
        let Some(partner_name) = &entry.reverse_of else { continue };
        let (Some(own), Some(partner)) = (relation(&entry.name), relation(partner_name)) else { continue };
        let (own, reverse, partner) = (&own.forward, &own.reverse, &partner.forward);
        if Arc::ptr_eq(reverse, partner) || own.is_reverse_of(partner) {
            continue;
        }
        return Err(Error::format(
            path,
            // Either may be the one that is damaged.
            format!("relations `{}` and `{partner_name}`", entry.name),
            "the same edges, in one of them the other way round",
            format!("{} and {} edges, which differ", own.num_edges(), partner.num_edges()),
            "restore the files of the one that was changed; or remove those of the reverse and its declaration: it is \
             then generated; or, if the two are different relations, describe them in graph.toml without reverse_of",
        ));
    }
    Ok(())
}

/// Gives an error about declared types and relations the file that declares them.
pub(super) fn located(error: Error, path: &Path) -> Error {
    match error {
        Error::Data { what, expected, found, help } => Error::format(path, what, expected, found, help),
        other => other,
    }
}

#[cfg(test)]
mod tests;
