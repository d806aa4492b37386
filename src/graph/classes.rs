//! Classes of nodes, any number of them, and the division into parts that a data set may come with.
//!
//! In a data directory they are two arrays: `classes.npy`, integers `[nodes]` with -1 for a node without a class, and
//! `masks.npy`, integers `[nodes, splits]` with 0 for no part, 1 for training, 2 for validation and 3 for test.

use std::collections::HashSet;
use std::path::Path;

use ndarray::{Array1, Array2};
use ndarray_npy::WriteNpyExt;

use super::formats::write_new;
use super::labels::Labels;
use super::npy::Npy;
use crate::error::{Error, Result};

/// Classes that a node classification takes at most: figures are kept for every pair of them.
pub(super) const MAX_CLASSES: usize = 4096;

/// The class of every node, and the parts that the data come with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    of_node: Vec<Option<u32>>,
    count: usize,
    masks: Vec<Masks>,
}

/// Nodes of one given split, each part in ascending order of id; no node is in two parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Masks {
    /// For the loss.
    pub train: Vec<u32>,
    /// For choosing the epoch.
    pub validation: Vec<u32>,
    /// Looked at once.
    pub test: Vec<u32>,
}

impl Classes {
    /// Classes by global id; `None` is a node without a label. The classes are `0..count`, `count` being one more than
    /// the largest.
    pub fn new(of_node: Vec<Option<u32>>) -> Self {
        let count = of_node.iter().flatten().max().map_or(0, |&largest| largest as usize + 1);
        Self { of_node, count, masks: Vec::new() }
    }

    /// The two classes of binary labels: 0 normal, 1 anomalous.
    pub fn of_labels(labels: &Labels, num_nodes: usize) -> Self {
        let mut of_node = vec![None; num_nodes];
        for &(node, class) in &labels.entries {
            of_node[node as usize] = Some(u32::from(class));
        }
        Self { count: 2, ..Self::new(of_node) }
    }

    /// With the splits that the data come with.
    pub fn with_masks(self, masks: Vec<Masks>) -> Self {
        Self { masks, ..self }
    }

    /// Forgets the classes of all other nodes than these.
    pub(super) fn keep(&mut self, nodes: &HashSet<u32>) {
        let others = self.of_node.iter_mut().zip(0u32..).filter(|(_, node)| !nodes.contains(node));
        others.for_each(|(class, _)| *class = None);
    }

    /// The class of every node by global id.
    pub fn of_node(&self) -> &[Option<u32>] {
        &self.of_node
    }

    /// Number of classes, also of those between 0 and the largest that no node has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The splits that the data come with; none where they come without.
    pub fn masks(&self) -> &[Masks] {
        &self.masks
    }

    /// `(global id, class)` of every labelled node, by id.
    pub fn labelled(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.of_node.iter().enumerate().filter_map(|(node, class)| Some((node as u32, (*class)?)))
    }

    /// The labels as anomalous and normal, when there are no other classes than 0 and 1.
    pub fn binary(&self) -> Option<Labels> {
        let entries = self.labelled().map(|(node, class)| Some((node, u8::try_from(class).ok().filter(|&c| c < 2)?)));
        let entries: Option<Vec<(u32, u8)>> = entries.collect();
        entries.filter(|entries| !entries.is_empty()).map(|entries| Labels { entries })
    }

    /// Reads `classes.npy`, and `masks.npy` where there is one.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for another type or shape, a class that is neither -1 nor below 4,096, an array
    /// without any class, an unknown part, a part without nodes, or a node of a part that has no class.
    pub(crate) fn read_npy(path: &Path, masks: Option<&Path>, num_nodes: usize) -> Result<Self> {
        const HELP: &str = "classes are a C-ordered integer array [nodes], counted from 0; -1 marks a node without one";
        let npy = Npy::open(path)?;
        if npy.shape() != [num_nodes] {
            return Err(npy.error("shape", format!("[{num_nodes}]"), format!("{:?}", npy.shape()), HELP));
        }
        let most = num_nodes.clamp(2, MAX_CLASSES);
        let class = |(node, class): (usize, i128)| match u32::try_from(class) {
            Ok(class) if (class as usize) < most => Ok(Some(class)),
            Err(_) if class == -1 => Ok(None),
            _ => {
                let expected = format!("-1 or a class below {most}");
                Err(npy.error(format!("node {node}"), expected, class.to_string(), HELP))
            }
        };
        let classes = Self::new(npy.integers(HELP)?.enumerate().map(class).collect::<Result<_>>()?);
        if classes.count() == 0 {
            return Err(npy.error("classes", "at least one labelled node", "none", HELP));
        }
        match masks {
            None => Ok(classes),
            Some(path) => {
                let masks = classes.read_masks(path)?;
                Ok(classes.with_masks(masks))
            }
        }
    }

    fn read_masks(&self, path: &Path) -> Result<Vec<Masks>> {
        const HELP: &str = "masks are an integer array [nodes, splits]: 0 no part, 1 training, 2 validation, 3 test";
        let npy = Npy::open(path)?;
        let [rows, splits] = npy.matrix_shape(HELP)?;
        if rows != self.of_node.len() || splits == 0 {
            let expected = format!("[{}, splits]", self.of_node.len());
            return Err(npy.error("shape", expected, format!("[{rows}, {splits}]"), HELP));
        }
        let mut masks = vec![Masks::default(); splits];
        for (at, part) in npy.integers(HELP)?.enumerate() {
            let (node, split) = (at / splits, at % splits);
            let place = || format!("node {node}, split {split}");
            let Masks { train, validation, test } = &mut masks[split];
            let part = match part {
                0 => continue,
                1 => train,
                2 => validation,
                3 => test,
                other => return Err(npy.error(place(), "0, 1, 2 or 3", other.to_string(), HELP)),
            };
            if self.of_node[node].is_none() {
                return Err(npy.error(place(), "a node with a class", "none", "only labelled nodes can be in a part"));
            }
            part.push(node as u32);
        }
        let empty = |masks: &Masks| [&masks.train, &masks.validation, &masks.test].iter().any(|part| part.is_empty());
        if let Some(split) = masks.iter().position(empty) {
            let help = "mark some nodes, or remove the file and use a random split";
            return Err(npy.error(format!("split {split}"), "at least one node in every part", "none in one", help));
        }
        Ok(masks)
    }

    /// Writes `classes.npy`.
    pub(crate) fn write_npy(&self, path: &Path) -> Result<()> {
        let classes: Array1<i64> = self.of_node.iter().map(|class| class.map_or(-1, i64::from)).collect();
        write_new(path, |file| classes.write_npy(file).map_err(std::io::Error::other))
    }

    /// Writes `masks.npy`.
    pub(crate) fn write_masks_npy(&self, path: &Path) -> Result<()> {
        let mut parts = Array2::<i8>::zeros((self.of_node.len(), self.masks.len()));
        for (split, masks) in self.masks.iter().enumerate() {
            for (part, nodes) in [(1, &masks.train), (2, &masks.validation), (3, &masks.test)] {
                nodes.iter().for_each(|&node| parts[[node as usize, split]] = part);
            }
        }
        write_new(path, |file| parts.write_npy(file).map_err(std::io::Error::other))
    }

    /// Checks that the classes belong to a graph of `num_nodes` nodes.
    pub(crate) fn check(&self, num_nodes: usize) -> Result<()> {
        if self.of_node.len() == num_nodes {
            return Ok(());
        }
        Err(Error::Data {
            what: "classes".into(),
            expected: format!("{num_nodes}, one per node"),
            found: self.of_node.len().to_string(),
            help: "give every node a class or none".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_classes_are_binary_labels_and_more_are_not() {
        let two = Classes::new(vec![Some(1), None, Some(0)]);
        let labels = two.binary().unwrap();
        assert_eq!(labels.entries, [(0, 1), (2, 0)]);
        assert_eq!(Classes::of_labels(&labels, 3), two);
        assert_eq!(Classes::new(vec![Some(2), Some(0)]).binary(), None);
        assert_eq!(Classes::new(vec![None]).binary(), None);
        assert_eq!(Classes::new(vec![Some(3), Some(0)]).count(), 4);
    }

    #[test]
    fn labels_of_one_class_are_still_two_classes() {
        assert_eq!(Classes::of_labels(&Labels { entries: vec![(0, 0)] }, 2).count(), 2);
    }
}
