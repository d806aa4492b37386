//! `graph.toml` (or `graph.json`): which node types and relations a data directory holds, and in which files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::edge_values::{EdgeColumns, EdgeValues, Values};
use super::formats::{AdjacencyFiles, FEATURES_FILE, RowFiles, is_present};
use super::hetero::{HeteroGraph, NodeType, check_name};
use crate::error::{Error, Place, Result, Snippet, UnknownName, byte_at, line_number, nearest_name};

/// Columns of the features unless a manifest says otherwise.
pub(crate) const FEATURES_DIM: usize = 128;

/// Node types, relations and features of a data directory. The TOML keys are the field names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Node types in the order of their global ids.
    pub node_types: Vec<NodeTypeEntry>,
    /// Relations in the order in which models see them.
    pub relations: Vec<RelationEntry>,
    /// Raw features; without the table the default file is used if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<FeaturesEntry>,
}

/// One `[[node_types]]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTypeEntry {
    /// Unique name.
    pub name: String,
    /// Number of nodes.
    pub count: usize,
    /// Of nodes that are edges of the raw tables: the relations that lead to them from source and destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<[String; 2]>,
}

/// One `[[relations]]` table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationEntry {
    /// Unique name and file stem.
    pub name: String,
    /// Name of the source node type.
    pub src: String,
    /// Name of the destination node type.
    pub dst: String,
    /// Weight-sharing group; default: that of `reverse_of`, else the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// File of row starts; default `{name}_row_ptr.bin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_ptr: Option<PathBuf>,
    /// File of the starts of rows that are spans of the source ids, and can share them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_start: Option<PathBuf>,
    /// File of their ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_end: Option<PathBuf>,
    /// File of source ids; default `{name}_col_idx.bin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub col_idx: Option<PathBuf>,
    /// File of the weights of the edges, f32, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<PathBuf>,
    /// File of the times of the edges, i64, in seconds since 1970, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<PathBuf>,
    /// File of the values of the edges, f32, a row per edge, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<PathBuf>,
    /// Names of their columns, 1 to 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value_names: Vec<String>,
    /// Whether the file counts ids over all types or inside the source type.
    #[serde(default)]
    pub ids: IdSpace,
    /// The relation that holds exactly these edges the other way round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse_of: Option<String>,
    /// Whether loss terms sample edges from this relation; default: true unless `reverse_of` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// Leaves out the generated `{name}_T` of a relation that no other one reverses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
}

/// How the ids of a file are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdSpace {
    /// Over all node types; rows may carry their own global id as a self-loop.
    #[default]
    Global,
    /// Inside the source type.
    Local,
}

/// The `[features]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeaturesEntry {
    /// File of raw values; default `X_combined.memmap`.
    #[serde(default = "default_file")]
    pub file: PathBuf,
    /// Columns; default 128.
    #[serde(default = "default_dim")]
    pub dim: usize,
    /// Type of the values.
    #[serde(default)]
    pub dtype: FeatureType,
}

/// Type of the raw feature values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureType {
    /// IEEE half precision.
    #[default]
    F16,
    /// IEEE single precision, for values that half precision does not hold exactly.
    F32,
}

impl FeatureType {
    /// Bytes of a value.
    pub(crate) fn width(self) -> usize {
        match self {
            FeatureType::F16 => 2,
            FeatureType::F32 => 4,
        }
    }

    /// The name in a manifest.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FeatureType::F16 => "f16",
            FeatureType::F32 => "f32",
        }
    }
}

fn default_file() -> PathBuf {
    FEATURES_FILE.into()
}

fn default_dim() -> usize {
    FEATURES_DIM
}

/// `node_counts.json` of the marketplace preset.
#[derive(Serialize, Deserialize)]
pub(crate) struct NodeCounts {
    pub users: usize,
    pub products: usize,
    pub sellers: usize,
    pub total: usize,
}

pub(crate) const FILES: [&str; 3] = ["graph.toml", "graph.json", "node_counts.json"];

impl Manifest {
    /// Reads the manifest of `dir`: `graph.toml` or `graph.json`, otherwise `node_counts.json`, which stands for the
    /// marketplace preset. Returns it with its path.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] when there is none or there are two, with the line of a syntax error or unknown
    /// key (and the nearest known one), or the relation with an unknown type, partner or contradiction.
    pub fn read(dir: &Path) -> Result<(Self, PathBuf)> {
        let [toml, json, counts] = FILES.map(|name| dir.join(name));
        let manifest = match (is_present(&toml), is_present(&json)) {
            (true, true) => {
                let help = "remove one of them; both describe the graph";
                return Err(Error::format(dir, "manifest", "graph.toml or graph.json", "both", help));
            }
            (true, false) => (Self::parse_toml(&toml, &read_text(&toml)?)?, toml),
            (false, true) => (Self::parse_json(&json, &read_text(&json)?)?, json),
            (false, false) if is_present(&counts) => (Self::parse_counts(&counts, &read_text(&counts)?)?, counts),
            (false, false) => {
                let help = "write a graph.toml that declares node types and relations, or make a directory with \
                            `graphsieve synth` or `graphsieve import`";
                return Err(Error::format(dir, "manifest", FILES.join(" or "), "none of them", help));
            }
        };
        manifest.0.check(&manifest.1)?;
        Ok(manifest)
    }

    fn parse_toml(path: &Path, text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|source| {
            let span = source.span().unwrap_or(0..0);
            let place = Place::from(format!("line {}", line_number(text, span.start)));
            syntax_error(path, place.with_snippet(Snippet::of(text, span)), source.message())
        })
    }

    fn parse_json(path: &Path, text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|source| json_error(path, text, &source))
    }

    fn parse_counts(path: &Path, text: &str) -> Result<Self> {
        let counts: NodeCounts = serde_json::from_str(text).map_err(|source| json_error(path, text, &source))?;
        let NodeCounts { users, products, sellers, total } = counts;
        let sum = users as u128 + products as u128 + sellers as u128;
        if sum != total as u128 {
            let expected = format!("{sum} = {users} users + {products} products + {sellers} sellers");
            let help = "the counts disagree; write the directory again";
            return Err(Error::format(path, "total", expected, total.to_string(), help));
        }
        let node_types = [("user", users), ("product", products), ("seller", sellers)];
        let relation = |name: &str, src: &str, dst: &str, stream: &str, reverse_of: Option<&str>| RelationEntry {
            name: name.into(),
            src: src.into(),
            dst: dst.into(),
            stream: Some(stream.into()),
            reverse_of: reverse_of.map(Into::into),
            ..RelationEntry::default()
        };
        Ok(Self {
            node_types: node_types.map(|(name, count)| NodeTypeEntry { name: name.into(), count, ends: None }).into(),
            relations: vec![
                relation("epu", "product", "user", "pu", None),
                relation("epu_T", "user", "product", "pu", Some("epu")),
                relation("eps", "seller", "product", "ps", None),
                relation("eps_T", "product", "seller", "ps", Some("eps")),
                RelationEntry { one_way: true, ..relation("euu", "user", "user", "uu", None) },
            ],
            features: None,
        })
    }

    /// The manifest under which [`Dataset::write`](super::Dataset::write) stores `graph`.
    /// `features` are the columns and the type of their values.
    pub fn of_graph(graph: &HeteroGraph, ids: IdSpace, features: Option<(usize, FeatureType)>) -> Self {
        let types = graph.node_types();
        let relations = graph.relations();
        let partner_of = |at: usize| {
            let relation = &relations[at];
            let is_partner = |other: &&super::Relation| {
                std::sync::Arc::ptr_eq(&relation.reverse, &other.forward) && relation.stream == other.stream
            };
            relations[..at].iter().find(is_partner).filter(|_| !relation.is_symmetric())
        };
        let entry = |at: usize| {
            let relation = &relations[at];
            let reverse_of = partner_of(at).map(|partner| partner.name.clone());
            let reversed = relations.iter().any(|other| std::sync::Arc::ptr_eq(&relation.reverse, &other.forward));
            let of_spans =
                |part: &str| relation.forward.is_spans().then(|| format!("{}_{part}.bin", relation.name).into());
            RelationEntry {
                name: relation.name.clone(),
                src: types[relation.src].name.clone(),
                dst: types[relation.dst].name.clone(),
                stream: Some(relation.stream.clone()),
                row_ptr: None,
                row_start: of_spans("row_start"),
                row_end: of_spans("row_end"),
                col_idx: None,
                weight: None,
                time: None,
                values: None,
                value_names: Vec::new(),
                ids,
                primary: (relation.primary == reverse_of.is_some()).then_some(relation.primary),
                one_way: !reversed,
                reverse_of,
            }
        };
        Self {
            node_types: types
                .iter()
                .map(|t| NodeTypeEntry { name: t.name.clone(), count: t.count, ends: None })
                .collect(),
            relations: (0..relations.len()).map(entry).collect(),
            features: features.map(|(dim, dtype)| FeaturesEntry { file: default_file(), dim, dtype }),
        }
    }

    /// Stream of a relation, defaults filled in.
    pub fn stream_of<'a>(&'a self, relation: &'a RelationEntry) -> &'a str {
        let partner = || self.relation(relation.reverse_of.as_deref()?)?.stream.as_deref();
        let fallback = || relation.reverse_of.as_deref().unwrap_or(&relation.name);
        relation.stream.as_deref().or_else(partner).unwrap_or_else(fallback)
    }

    /// Index of a node type.
    pub fn type_index(&self, name: &str) -> Option<usize> {
        self.node_types.iter().position(|node_type| node_type.name == name)
    }

    /// The files of what edges carry, which are read when it is asked for.
    pub(super) fn read_later(&self, dir: &Path) -> Vec<PathBuf> {
        let files = self.relations.iter().flat_map(|entry| [&entry.weight, &entry.time, &entry.values]);
        files.flatten().map(|file| dir.join(file)).collect()
    }

    /// Whether nothing is generated beside a relation: it is one way, or one of a declared pair.
    pub(super) fn is_complete(&self, name: &str) -> bool {
        self.relations.iter().any(|entry| match &entry.reverse_of {
            Some(partner) => entry.name == name || partner == name,
            None => entry.name == name && entry.one_way,
        })
    }

    fn relation(&self, name: &str) -> Option<&RelationEntry> {
        self.relations.iter().find(|relation| relation.name == name)
    }

    fn check(&self, path: &Path) -> Result<()> {
        if self.relations.is_empty() {
            let help = "add a [[relations]] table with name, src and dst";
            return Err(Error::format(path, "relations", "at least one", "none", help));
        }
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (at, relation) in self.relations.iter().enumerate() {
            let place = |key: &str| format!("relations[{at}] `{}`, {key}", relation.name);
            // Before a file of this name is looked for, which may lie outside the directory.
            if let Err(Error::Data { expected, found, help, .. }) = check_name("relation", &relation.name) {
                return Err(Error::format(path, place("name"), expected, found, help));
            }
            if let Some(earlier) = seen.insert(&relation.name, at) {
                let found = format!("the name of relations[{earlier}] again");
                return Err(Error::format(path, place("name"), "every name once", found, "rename one of them"));
            }
            for (key, name) in [("src", &relation.src), ("dst", &relation.dst)] {
                if self.type_index(name).is_none() {
                    let names = self.node_types.iter().map(|node_type| node_type.name.as_str());
                    return Err(unknown_name(path, place(key).into(), "a name of node_types", name, names));
                }
            }
            relation.check_rows().map_err(|(key, expected, found)| {
                let help = "rows are spans with a row_start and a row_end, else they are lists with a row_ptr";
                Error::format(path, place(key), expected, found, help)
            })?;
            if relation.values.is_some() == relation.value_names.is_empty() {
                let (key, expected, found) = match &relation.values {
                    Some(_) => ("value_names", "names of the columns of `values`", "none"),
                    None => ("values", "the file of the columns that value_names names", "none"),
                };
                let help = "name the file and its columns, or neither";
                return Err(Error::format(path, place(key), expected, found, help));
            }
            let Some(partner_name) = &relation.reverse_of else { continue };
            let names = self.relations.iter().map(|other| other.name.as_str()).filter(|name| *name != relation.name);
            let partner = self.relation(partner_name).filter(|partner| partner.name != relation.name);
            let Some(partner) = partner else {
                return Err(unknown_name(
                    path,
                    place("reverse_of").into(),
                    "the name of another relation",
                    partner_name,
                    names,
                ));
            };
            if (&partner.src, &partner.dst) != (&relation.dst, &relation.src) {
                let expected = format!("a relation {} <- {}", relation.src, relation.dst);
                let found = format!("`{partner_name}`, {} <- {}", partner.dst, partner.src);
                let help = "a reverse exchanges source and destination type; correct src, dst or reverse_of";
                return Err(Error::format(path, place("reverse_of"), expected, found, help));
            }
            if partner.reverse_of.is_some() {
                let found = format!("`{partner_name}`, which has a reverse_of itself");
                let help = "keep reverse_of on one relation of the pair; the other one is the primary direction";
                return Err(Error::format(path, place("reverse_of"), "a relation without reverse_of", found, help));
            }
            if self.stream_of(relation) != self.stream_of(partner) {
                let expected = format!("`{}`, as `{partner_name}`", self.stream_of(partner));
                let help = "a relation and its reverse share weights; leave out `stream`, or leave out `reverse_of`";
                return Err(Error::format(path, place("stream"), expected, self.stream_of(relation), help));
            }
        }
        Ok(())
    }
}

impl RelationEntry {
    /// What its edges carry, in files of `dir`.
    pub(super) fn edge_values(&self, dir: &Path) -> Option<EdgeValues> {
        let columns = self
            .values
            .as_ref()
            .map(|file| EdgeColumns { names: self.value_names.clone(), values: Values::File(dir.join(file)) });
        let weight = self.weight.as_ref().map(|file| Values::File(dir.join(file)));
        let time = self.time.as_ref().map(|file| Values::File(dir.join(file)));
        let has_any = weight.is_some() || time.is_some() || columns.is_some();
        has_any.then(|| EdgeValues { relation: self.name.clone(), weight, time, columns })
    }

    /// Its files in `dir`.
    pub(super) fn files<'a>(&self, dir: &Path, src: &'a NodeType, dst: &'a NodeType) -> AdjacencyFiles<'a> {
        let file = |given: &Option<PathBuf>, part: &str| match given {
            Some(path) => dir.join(path),
            None => dir.join(format!("{}_{part}.bin", self.name)),
        };
        AdjacencyFiles {
            rows: match (&self.row_start, &self.row_end) {
                (Some(start), Some(end)) => RowFiles::Spans([dir.join(start), dir.join(end)]),
                _ => RowFiles::Lists(file(&self.row_ptr, "row_ptr")),
            },
            col_idx: file(&self.col_idx, "col_idx"),
            dst: (&dst.name, dst.count),
            src: &src.name,
            src_ids: match self.ids {
                IdSpace::Global => src.offset..src.offset + src.count,
                IdSpace::Local => 0..src.count,
            },
            first_row_id: (self.ids == IdSpace::Global).then_some(dst.offset),
        }
    }

    /// Whether the files of its rows belong together: else the key, what was expected and what was found.
    fn check_rows(&self) -> std::result::Result<(), (&'static str, &'static str, &'static str)> {
        match (&self.row_start, &self.row_end) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(("row_end", "the ends of the rows", "their starts alone")),
            (None, Some(_)) => Err(("row_start", "the starts of the rows", "their ends alone")),
            _ if self.row_ptr.is_some() => Err(("row_ptr", "starts and ends, or a row_ptr", "both")),
            _ if self.weight.is_some() => Err(("weight", "no values of edges where rows share entries", "a file")),
            _ if self.time.is_some() => Err(("time", "no values of edges where rows share entries", "a file")),
            _ if self.values.is_some() => Err(("values", "no values of edges where rows share entries", "a file")),
            _ => Ok(()),
        }
    }
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))
}

fn json_error(path: &Path, text: &str, source: &serde_json::Error) -> Error {
    let message = source.to_string();
    let position = format!(" at line {} column {}", source.line(), source.column());
    let message = message.strip_suffix(&position).unwrap_or(&message);
    // serde stops behind what it does not know.
    let end = byte_at(text, source.line(), source.column() + 1);
    let snippet = Snippet::of(text, end.saturating_sub(1)..end);
    syntax_error(path, Place::from(format!("line {}", source.line())).with_snippet(snippet), message)
}

/// Keys of a description of tables.
const TABLES: [&str; 5] = ["nodes", "edges", "shared", "windows", "split"];

/// Turns serde's message into an error; for an unknown key or value it names the nearest known one.
fn syntax_error(path: &Path, place: Place, message: &str) -> Error {
    match UnknownName::read(message) {
        Some(UnknownName { is_key: true, found, .. }) if TABLES.contains(&found) => {
            let expected = "the description of a graph, or none";
            let help = format!("import them first: graphsieve import tables {} --out DIR", path.display());
            Error::format(path, place, expected, format!("one of tables (`{found}`)"), help)
        }
        Some(UnknownName { is_key, found, known }) => {
            let expected = if is_key { "a known key" } else { "a known value" };
            unknown_name(path, place, expected, found, known.into_iter())
        }
        None => {
            let help = "see the example in the documentation of `graph`; keys: node_types, relations, features";
            Error::format(path, place, "a well-formed description of the graph", message, help)
        }
    }
}

fn unknown_name<'a>(
    path: &Path,
    place: Place,
    expected: &str,
    found: &str,
    known: impl Iterator<Item = &'a str>,
) -> Error {
    let known: Vec<&str> = known.collect();
    let nearest = nearest_name(found, known.iter().copied());
    let help = nearest.map_or("remove it".into(), |nearest| format!("did you mean `{nearest}`?"));
    let expected = format!("{expected} ({})", known.join(", "));
    Error::format(path, place, expected, format!("unknown `{found}`"), help)
}

#[cfg(test)]
mod tests;
