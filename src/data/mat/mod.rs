//! Benchmark graphs in MATLAB files: `.mat` of level 5 to a typed graph with features and labels.
//!
//! | what | variables, unless options name others | |
//! |---|---|---|
//! | relations | `Network` or `A`; else each square sparse matrix but `homo` | (i, j): edge from node i to node j |
//! | features | `features`, `Attributes` or `X` | `[nodes, columns]`, sparse or dense |
//! | labels | `label`, `Label`, `gnd` or `y` | one per node: 0, 1, or -1 or NaN for none; other integers are classes |
//!
//! These are the layouts of fraud graphs (YelpChi and Amazon of CARE-GNN: several relations, and their union `homo`)
//! and of anomaly benchmarks (`Network`, `Attributes`, `Label`). The graph has one node type, `node`, and a relation
//! for every adjacency, named after its variable.

mod format;
mod values;

use std::path::PathBuf;

use self::format::{Class, MatFile, Variable};
use self::values::{Dense, Sparse};
use crate::error::Result;
use crate::graph::{Adjacency, Classes, Dataset, Features, HeteroGraph, RelationSpec};

const RELATIONS: [&str; 2] = ["Network", "A"];
const FEATURES: [&str; 3] = ["features", "Attributes", "X"];
const LABELS: [&str; 4] = ["label", "Label", "gnd", "y"];
/// The union of the other relations, in fraud graphs.
const UNION: &str = "homo";
/// Values of a sparse feature matrix for each that is not zero, and as many as one of 2^16 may have. Bags of words have
/// a few hundred; a damaged shape must not take all memory.
const MAX_SPREAD: usize = 4096;
const MIN_ENTRIES: usize = 1 << 16;
/// As the class arrays of other formats.
const MAX_CLASSES: f64 = 4096.0;

/// Which variables of a file are what; see [the module](self).
#[derive(Debug, Clone, Default)]
pub struct MatOptions {
    /// The file.
    pub path: PathBuf,
    /// Variable of the features.
    pub features: Option<String>,
    /// Variable of the labels.
    pub labels: Option<String>,
    /// Variables of the relations; empty to find them.
    pub relations: Vec<String>,
}

/// Reads a MAT file. Self-loops are removed, weights are not kept; [`Dataset::notes`] says where there were any.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io); [`Error::Format`](crate::Error::Format) for another format (level 4 and HDF5 are
/// named), for damage, for a variable that is absent or of another class (all variables are listed), for shapes that do
/// not fit each other, for features that are not finite and for labels that are no small integers.
pub fn read(options: &MatOptions) -> Result<Dataset> {
    let file = MatFile::open(&options.path)?;
    let features = wanted(&file, "features", options.features.as_deref(), &FEATURES)?.ok_or_else(|| {
        let expected = format!("features, named {}", either(&FEATURES));
        file.error("variables", expected, file.listing(), "name the variable with --features")
    })?;
    let relations = relations(&file, options, &features.name)?;
    let nodes = relations[0].shape[0];
    let mut notes = Vec::new();
    let specs = relations.iter().map(|variable| {
        if variable.shape != [nodes, nodes] {
            let expected = format!("{nodes}x{nodes}, as `{}`", relations[0].name);
            let help = "relations of one node type have one size; choose with --relations";
            return Err(file.error(&variable.name, expected, variable.describe(), help));
        }
        let adjacency = adjacency(&file, variable, &mut notes)?;
        let name = variable.name.clone();
        Ok(RelationSpec::new(name, 0, 0, adjacency))
    });
    let specs = specs.collect::<Result<Vec<_>>>()?;
    let features = read_features(&file, features, nodes)?;
    let classes = match wanted(&file, "labels", options.labels.as_deref(), &LABELS)? {
        Some(variable) => Some(read_classes(&file, variable, nodes, &mut notes)?),
        None => {
            notes.push(format!("no labels: there is no variable {}; --labels names another", either(&LABELS)));
            None
        }
    };
    let graph = HeteroGraph::with_reverse_relations(vec![("node".into(), nodes)], specs, |_| false)
        .map_err(|fault| file.error("relations", "a graph", fault.to_string(), "choose with --relations"))?;
    let labels = classes.as_ref().and_then(Classes::binary);
    Ok(Dataset { classes, notes, ..Dataset::new(graph, Some(features), labels, None) })
}

/// The variable that the user names, else the first of the usual names that is there.
fn wanted<'f>(file: &'f MatFile, what: &str, given: Option<&str>, usual: &[&str]) -> Result<Option<&'f Variable>> {
    let variable = match given {
        Some(name) => Some(named(file, name, &format!("--{what}"))?),
        None => usual.iter().find_map(|name| file.get(name)),
    };
    match variable.map(|variable| (variable, variable.class)) {
        Some((variable, Class::Other(class))) => {
            let help = format!("only matrices of numbers can be {what}; convert it, or name another one with --{what}");
            Err(file.error(&variable.name, "a dense or sparse matrix", format!("a {class}"), &help))
        }
        found => Ok(found.map(|(variable, _)| variable)),
    }
}

fn named<'f>(file: &'f MatFile, name: &str, option: &str) -> Result<&'f Variable> {
    file.get(name).ok_or_else(|| {
        file.error("variables", format!("`{name}`, named by {option}"), file.listing(), "names are case-sensitive")
    })
}

fn relations<'f>(file: &'f MatFile, options: &MatOptions, features: &str) -> Result<Vec<&'f Variable>> {
    const HELP: &str = "name the adjacency matrices with --relations A,B";
    let square = |variable: &&Variable| variable.square().is_some() && variable.name != features;
    let usual = || RELATIONS.iter().find_map(|name| file.get(name).filter(square)).map(|variable| vec![variable]);
    let found = || {
        let (union, parts): (Vec<_>, Vec<_>) = file.variables.iter().filter(square).partition(|v| v.name == UNION);
        if parts.is_empty() { union } else { parts }
    };
    let relations = match options.relations.is_empty() {
        true => usual().unwrap_or_else(found),
        false => {
            let given = options.relations.iter().map(|name| named(file, name, "--relations"));
            given.collect::<Result<Vec<_>>>()?
        }
    };
    if relations.is_empty() {
        return Err(file.error("variables", "a square sparse matrix", file.listing(), HELP));
    }
    for (at, variable) in relations.iter().enumerate() {
        if variable.square().is_none() {
            return Err(file.error(&variable.name, "a square sparse matrix", variable.describe(), HELP));
        }
        // Names become names of files.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !variable.name.chars().all(plain) {
            let found = format!("{:?}", variable.name);
            return Err(file.error("variable name", "letters, digits and `_`", found, "rename the variable"));
        }
        if relations[..at].iter().any(|earlier| earlier.name == variable.name) {
            return Err(file.error(&variable.name, "every relation once", "it is named twice", HELP));
        }
    }
    Ok(relations)
}

/// Rows are destinations: column j of the matrix, whose entries (i, j) are edges from i.
fn adjacency(file: &MatFile, variable: &Variable, notes: &mut Vec<String>) -> Result<Adjacency> {
    let matrix = file.sparse(variable)?;
    let (mut edges, mut loops, mut weighted) = (Vec::with_capacity(matrix.values.len()), 0usize, false);
    for (row, col, value) in matrix.entries() {
        weighted |= value != 1.0;
        if row == col { loops += 1 } else { edges.push((col, row)) }
    }
    let name = &variable.name;
    if weighted {
        notes.push(format!("{name}: its entries are weights; every one that is not 0 became an edge"));
    }
    if loops > 0 {
        notes.push(format!("{name}: {loops} self-loops were removed; layers that need them add their own"));
    }
    Ok(Adjacency::from_edges(matrix.cols, matrix.rows, &edges))
}

fn read_features(file: &MatFile, variable: &Variable, nodes: usize) -> Result<Features> {
    let name = &variable.name;
    let cols = match variable.shape[..] {
        [rows, cols] if rows == nodes && cols > 0 => cols,
        _ => {
            let expected = format!("[{nodes}, columns], one row per node");
            let help = "transpose the matrix where its columns are the nodes, or name another one with --features";
            return Err(file.error(name, expected, variable.describe(), help));
        }
    };
    let finite = |row: usize, col: usize, value: f64| {
        let value = value as f32;
        let help = "replace missing values before saving; values have to fit single precision";
        let place = || format!("{name}, row {row}, column {col}");
        value
            .is_finite()
            .then_some(value)
            .ok_or_else(|| file.error(place(), "a finite number", value.to_string(), help))
    };
    let values = match variable.class {
        Class::Sparse => {
            let matrix = file.sparse(variable)?;
            let most = matrix.values.len().max(MIN_ENTRIES).saturating_mul(MAX_SPREAD);
            let mut values: Vec<f32> = Vec::new();
            let count = nodes.checked_mul(cols).filter(|&count| count <= most);
            let count = count.filter(|&count| values.try_reserve_exact(count).is_ok()).ok_or_else(|| {
                let found = format!("{nodes}x{cols} with {} entries", matrix.values.len());
                let help = "features are kept dense; reduce the columns first, for example by a truncated SVD";
                file.error(name, "features that fit the memory", found, help)
            })?;
            values.resize(count, 0.0);
            for (row, col, value) in matrix.entries() {
                values[row as usize * cols + col as usize] = finite(row as usize, col as usize, value)?;
            }
            values
        }
        _ => {
            let Dense { values, rows } = file.dense(variable)?;
            let value = |at: usize| finite(at / cols, at % cols, values[at % cols * rows + at / cols]);
            (0..nodes * cols).map(value).collect::<Result<_>>()?
        }
    };
    Ok(Features::from_f32(values, nodes, cols))
}

/// The class of every node.
fn read_classes(file: &MatFile, variable: &Variable, nodes: usize, notes: &mut Vec<String>) -> Result<Classes> {
    let name = &variable.name;
    let values = match (&variable.shape[..], variable.class) {
        ([1, length] | [length, 1], _) if *length != nodes => None,
        ([1, _] | [_, 1], Class::Sparse) => Some(spread(&file.sparse(variable)?)),
        ([1, _] | [_, 1], _) => Some(file.dense(variable)?.values),
        _ => None,
    };
    let values = values.ok_or_else(|| {
        let help = "labels are a vector with one number per node; name another variable with --labels";
        file.error(name, format!("{nodes} labels, 1x{nodes} or {nodes}x1"), variable.describe(), help)
    })?;
    let known = |value: f64| !value.is_nan() && value != -1.0;
    let (mut smallest, mut largest) = (f64::INFINITY, f64::NEG_INFINITY);
    for (node, &value) in values.iter().enumerate().filter(|(_, value)| known(**value)) {
        if value.fract() != 0.0 || !(0.0..MAX_CLASSES).contains(&value) {
            let expected = format!("an integer from 0 to {}, or -1 or NaN for no label", MAX_CLASSES - 1.0);
            let help = "labels are 1 for anomalous and 0 for normal nodes, or classes counted from 0";
            return Err(file.error(format!("{name}, node {node}"), expected, value.to_string(), help));
        }
        (smallest, largest) = (smallest.min(value), largest.max(value));
    }
    if largest < 0.0 {
        return Err(file.error(name, "at least one labelled node", "none", "name another variable with --labels"));
    }
    // MATLAB counts from 1.
    let first = if smallest == 1.0 && largest > 1.0 { 1.0 } else { 0.0 };
    if first == 1.0 {
        notes.push(format!("{name}: classes 1 to {largest} became 0 to {}", largest - 1.0));
    }
    let class = |value: f64| known(value).then_some((value - first) as u32);
    Ok(Classes::new(values.into_iter().map(class).collect()))
}

/// "`a` or `b`"
fn either(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

/// A sparse vector with its zeros.
fn spread(vector: &Sparse) -> Vec<f64> {
    let mut values = vec![0.0; vector.rows.max(vector.cols)];
    for (row, col, value) in vector.entries() {
        values[row.max(col) as usize] = value;
    }
    values
}

#[cfg(test)]
mod tests;
