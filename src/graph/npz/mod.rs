//! A graph in one file: an `.npz` archive of NumPy arrays, as citation graphs and other benchmarks are passed around.
//!
//! | array | type | shape | |
//! |---|---|---|---|
//! | `node_features` | f32, f64, f16, integers, bool | `[nodes, columns]` | |
//! | `node_labels` | integers, bool | `[nodes]` | class from 0; -1 = none |
//! | `edges` | integers | `[edges, 2]`, `[2, edges]` | source, destination |
//! | `train_mask`, `val_mask`, `test_mask` | bool | `[nodes]`, `[nodes, splits]` | all three or none |
//! | `train_masks`, `val_masks`, `test_masks` | bool | `[splits, nodes]` | instead of these: all three or none |
//!
//! The graph has one node type, `node`, and one relation, `edge`.

mod arrays;

use std::collections::HashSet;
use std::path::Path;

use ndarray::ArrayD;

use self::arrays::{Arrays, Shape};
use super::adjacency::Adjacency;
use super::classes::{Classes, MAX_CLASSES, Masks};
use super::features::Features;
use super::hetero::{HeteroGraph, RelationSpec};
use crate::error::{Error, Result};

const FEATURES: &str = "node_features";
const LABELS: &str = "node_labels";
const EDGES: &str = "edges";
const MASKS: [&str; 3] = ["train_mask", "val_mask", "test_mask"];
/// The same with a row per split.
const MASKS_BY_SPLIT: [&str; 3] = ["train_masks", "val_masks", "test_masks"];

/// Extension of such a file.
pub(super) const EXTENSION: &str = "npz";

/// How the list of edges is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeReading {
    /// Whether an edge leads from its source to its destination alone. Otherwise every edge gets its mirror image.
    pub directed: bool,
}

/// Reads the whole file; beside what is in it, what was done to its edges.
pub(super) fn read(path: &Path, reading: EdgeReading) -> Result<(HeteroGraph, Features, Classes, Vec<String>)> {
    let mut arrays = Arrays::open(path)?;
    let features = arrays.features(FEATURES)?;
    let nodes = features.rows;
    if nodes == 0 || features.cols == 0 {
        let found = format!("[{nodes}, {}]", features.cols);
        return Err(arrays.error(
            format!("{FEATURES}, shape"),
            "at least one node and one column",
            found,
            "nothing to learn from",
        ));
    }
    if nodes > i32::MAX as usize {
        return Err(arrays.error(FEATURES, "fewer than 2^31 nodes", nodes.to_string(), "split the graph"));
    }
    let classes = classes(&mut arrays, nodes)?;
    let (adjacency, notes) = adjacency(&mut arrays, nodes, reading)?;
    let spec = RelationSpec::new("edge", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("node".into(), nodes)], vec![spec])?;
    Ok((graph, Features::from_f32(features.values, nodes, features.cols), classes, notes))
}

fn classes(arrays: &mut Arrays, nodes: usize) -> Result<Classes> {
    const HELP: &str = "labels are classes counted from 0, one per node; -1 marks a node without a label";
    let expected = format!("[{nodes}], one label per row of {FEATURES}");
    let shape = Shape { takes: &|shape| shape == [nodes], expected: &expected, help: HELP };
    let labels = arrays.integers(LABELS, "the class of every node, [nodes]", true, shape)?;
    // More classes than nodes are none.
    let most = nodes.clamp(2, MAX_CLASSES);
    let class = |(node, &label): (usize, &i64)| match u32::try_from(label) {
        Ok(class) if (class as usize) < most => Ok(Some(class)),
        Err(_) if label == -1 => Ok(None),
        _ => {
            let expected = format!("-1 or a class below {most}");
            Err(arrays.error(format!("{LABELS}, node {node}"), expected, label.to_string(), HELP))
        }
    };
    let classes = Classes::new(labels.iter().enumerate().map(class).collect::<Result<_>>()?);
    if classes.count() == 0 {
        return Err(arrays.error(LABELS, "at least one labelled node", "none", HELP));
    }
    let masks = masks(arrays, &classes)?;
    Ok(classes.with_masks(masks))
}

fn masks(arrays: &mut Arrays, classes: &Classes) -> Result<Vec<Masks>> {
    let [mut there, by_split] =
        [MASKS, MASKS_BY_SPLIT].map(|names| names.into_iter().filter(|name| arrays.has(name)).collect::<Vec<_>>());
    let splits_first = !by_split.is_empty();
    let names = if splits_first { MASKS_BY_SPLIT } else { MASKS };
    there.extend(by_split);
    if there.is_empty() {
        return Ok(Vec::new());
    }
    if there != names {
        let help = format!("give {}, or none and a random split", names.join(", "));
        return Err(arrays.error(names.join(", "), "these three arrays alone", there.join(", "), &help));
    }
    let nodes = classes.of_node().len();
    let [train, validation, test] = names.map(|name| arrays.marked(name, nodes, splits_first));
    let (train, validation, test) = (train?, validation?, test?);
    let counts = [&train, &validation, &test].map(Vec::len);
    if counts[1..] != [counts[0]; 2] {
        let help = "every split needs a mask of each of these arrays";
        return Err(arrays.error(names.join(", "), "the same number of splits", format!("{counts:?}"), help));
    }
    let mut splits = Vec::with_capacity(counts[0]);
    for (at, ((train, validation), test)) in train.into_iter().zip(validation).zip(test).enumerate() {
        let masks = Masks { train, validation, test };
        check_masks(arrays, classes, (names, &masks), at)?;
        splits.push(masks);
    }
    Ok(splits)
}

/// Every part has nodes, all of them labelled and in no other part.
fn check_masks(
    arrays: &Arrays,
    classes: &Classes,
    (names, masks): ([&'static str; 3], &Masks),
    split: usize,
) -> Result<()> {
    let mut part_of: Vec<Option<&str>> = vec![None; classes.of_node().len()];
    for (name, nodes) in names.into_iter().zip([&masks.train, &masks.validation, &masks.test]) {
        if nodes.is_empty() {
            let help = "mark some nodes, or leave all masks out and use a random split";
            return Err(arrays.error(format!("{name}, split {split}"), "at least one node", "none", help));
        }
        for &node in nodes {
            let place = || format!("{name}, split {split}, node {node}");
            if let Some(other) = part_of[node as usize].replace(name) {
                let help = "a node may be in one part only; otherwise figures are about nodes that were fitted";
                return Err(arrays.error(place(), "a node of no other mask", format!("it is in {other} too"), help));
            }
            if classes.of_node()[node as usize].is_none() {
                let help = "only nodes with a label can be in a mask";
                return Err(arrays.error(place(), "a labelled node", "label -1", help));
            }
        }
    }
    Ok(())
}

/// In-neighbours of every node, and what was done to the list to get there.
fn adjacency(arrays: &mut Arrays, nodes: usize, reading: EdgeReading) -> Result<(Adjacency, Vec<String>)> {
    let help = "edges are pairs of source and destination, one pair per row";
    let takes = |shape: &[usize]| matches!(shape, [_, 2] | [2, _]);
    let shape = Shape { takes: &takes, expected: "[edges, 2]", help };
    let list = arrays.integers(EDGES, "pairs of source and destination, [edges, 2]", false, shape)?;
    let pairs = pairs(arrays, list, nodes)?;
    let given = pairs.len();
    // Rows are destinations.
    let distinct: HashSet<(u32, u32)> = pairs.iter().map(|&(src, dst)| (dst, src)).collect();
    let duplicates = given - distinct.len();
    let loops = distinct.iter().filter(|(dst, src)| dst == src).count();
    let mut edges: Vec<(u32, u32)> = distinct.iter().copied().filter(|(dst, src)| dst != src).collect();
    let one_way = edges.iter().filter(|&&(dst, src)| !distinct.contains(&(src, dst))).count();
    let mut notes = Vec::new();
    if duplicates > 0 {
        notes.push(format!("{EDGES}: {duplicates} of {given} entries repeat an earlier one and were removed"));
    }
    if loops > 0 {
        notes.push(format!("{EDGES}: {loops} self-loops were removed; layers that need them add their own"));
    }
    if one_way > 0 && !reading.directed {
        let mirrored: Vec<(u32, u32)> = edges.iter().map(|&(dst, src)| (src, dst)).collect();
        edges.extend(mirrored);
        notes.push(format!(
            "{EDGES}: {one_way} edges lacked their mirror image, which was added; task classify keeps them one-way \
             with data.directed = true"
        ));
    }
    Ok((Adjacency::from_edges(nodes, nodes, &edges), notes))
}

/// `(source, destination)` of every entry.
fn pairs(arrays: &Arrays, list: ArrayD<i64>, nodes: usize) -> Result<Vec<(u32, u32)>> {
    let shape = list.shape().to_vec();
    // Of two edges either reading is possible.
    let by_row = shape[1] == 2;
    let count = if by_row { shape[0] } else { shape[1] };
    if count == 0 {
        return Err(arrays.error(EDGES, "at least one edge", format!("shape {shape:?}"), "a graph needs edges"));
    }
    let end = |edge: usize, end: usize| {
        let id = if by_row { list[[edge, end]] } else { list[[end, edge]] };
        u32::try_from(id).ok().filter(|&id| (id as usize) < nodes).ok_or_else(|| {
            let place = format!("{EDGES}, edge {edge}, {}", ["source", "destination"][end]);
            let help = "ids are rows of node_features, counted from 0";
            arrays.error(place, format!("an id from 0 to {}", nodes - 1), id.to_string(), help)
        })
    };
    (0..count).map(|edge| Ok((end(edge, 0)?, end(edge, 1)?))).collect()
}

/// The error of a file whose classes are not the two of a detector.
pub(super) fn not_binary(path: &Path, classes: &Classes) -> Error {
    let found = format!("classes 0 to {}", classes.count().saturating_sub(1));
    let help = "Stage 2 tells anomalous (1) from normal (0) nodes; for more classes use task = \"classify\"";
    Error::format(path, LABELS, "the labels 0, 1 and -1 (none)", found, help)
}

#[cfg(test)]
mod tests;
