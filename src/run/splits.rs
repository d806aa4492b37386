//! How a configuration divides labels into a training, a validation and a test part.

use crate::config::{ClassifySplit, SplitConfig};
use crate::data::class_split::ClassSplit;
use crate::data::split::{Split, SplitFractions};
use crate::error::Result;
use crate::graph::{Classes, HeteroGraph};

/// The split of binary labels, stratified by node type and label.
///
/// # Errors
/// As for [`Split::stratified`].
pub fn split_of(graph: &HeteroGraph, entries: &[(u32, u8)], split: &SplitConfig) -> Result<Split> {
    let fractions = SplitFractions { train: split.train, validation: split.validation, test: split.test };
    Split::stratified(entries, |node| graph.type_of(node as usize), fractions, split.seed)
}

/// The split of classes.
///
/// # Errors
/// As for [`ClassSplit`].
pub fn class_split_of(classes: &Classes, split: &ClassifySplit) -> Result<ClassSplit> {
    match split {
        ClassifySplit::Masks { index } => ClassSplit::of_masks(classes, *index),
        ClassifySplit::Random { per_class: Some(count), shares } => {
            ClassSplit::per_class(classes, *count, [shares.validation, shares.test], shares.seed)
        }
        ClassifySplit::Random { per_class: None, shares } => {
            let fractions = SplitFractions { train: shares.train, validation: shares.validation, test: shares.test };
            ClassSplit::stratified(classes, fractions, shares.seed)
        }
    }
}
