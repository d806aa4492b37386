//! How well a node classifier predicts classes.

use super::data::ClassFacts;
use crate::data::class_split::ClassSplit;
use crate::data::split::Split;
use crate::error::Result;
use crate::metrics::{Bootstrap, ConfusionMatrix};
use crate::score::ClassView;

/// Figures of the test nodes; none where there are no such nodes.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) for a class that the model does not have.
pub(super) fn class_facts(view: &ClassView) -> Result<Option<ClassFacts>> {
    let Some(split) = &view.split else { return Ok(None) };
    let pairs = split.test.iter().map(|&(node, class)| (class, view.predicted()[node as usize]));
    let report = ConfusionMatrix::of(pairs, view.num_classes())?.report();
    Ok(report.map(|report| ClassFacts { estimates: Bootstrap::default().estimate_classes(&report), report }))
}

/// The same parts with the label 1 for nodes whose class is predicted and 0 for others.
pub(super) fn against_prediction(view: &ClassView, split: &ClassSplit) -> Split {
    let predicted = view.predicted();
    let part = |nodes: &[(u32, u32)]| {
        nodes.iter().map(|&(node, class)| (node, u8::from(predicted[node as usize] == class))).collect()
    };
    Split { train: part(&split.train), validation: part(&split.validation), test: part(&split.test) }
}
