//! Classes of nodes, any number of them, and the division into parts that a data set may come with.

use super::labels::Labels;
use crate::error::{Error, Result};

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
