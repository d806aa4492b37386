//! What a model that was read from a file must be before it predicts.

use super::feature_names::check_names;
use super::refuse;
use super::tree::{Child, Test, Tree};
use crate::error::{Error, Result};

/// Names must be such as [`check_names`] allows, and there must be as many words about the features.
pub(super) fn check_features(names: &[String], infos: &[String]) -> Result<()> {
    check_names(names, names.len()).map_err(|error| match error {
        Error::Data { what, expected, found, help } => refuse::model_text(what, expected, found, help),
        other => other,
    })?;
    if infos.len() != names.len() || infos.iter().any(|info| info.contains(char::is_whitespace)) {
        let expected = format!("{} words", names.len());
        return Err(refuse::model_text("feature_infos", expected, format!("{infos:?}"), "save the model again"));
    }
    Ok(())
}

/// Every tree must lead from its root to leaves, once to each: prediction relies on it.
pub(super) fn check_trees(trees: &[Tree], features: usize) -> Result<()> {
    for (at, tree) in trees.iter().enumerate() {
        let bad = |expected: String, found: String| {
            Err(refuse::model_text(format!("tree {at}"), expected, found, "the file is damaged; save the model again"))
        };
        if tree.leaves.len() != tree.nodes.len() + 1 {
            let found = format!("{} nodes, {} leaves", tree.nodes.len(), tree.leaves.len());
            return bad("one leaf more than nodes".into(), found);
        }
        let (mut seen_node, mut seen_leaf) = (vec![false; tree.nodes.len()], vec![false; tree.leaves.len()]);
        for (index, node) in tree.nodes.iter().enumerate() {
            if node.feature as usize >= features {
                return bad(format!("features below {features}"), node.feature.to_string());
            }
            for child in [node.left, node.right] {
                let fresh = match child {
                    Child::Node(n) if n as usize > index => seen_node.get_mut(n as usize),
                    Child::Node(_) => None,
                    Child::Leaf(l) => seen_leaf.get_mut(l as usize),
                };
                match fresh {
                    Some(seen) if !*seen => *seen = true,
                    _ => return bad("children after their parent, each once".into(), format!("{child:?}")),
                }
            }
        }
    }
    Ok(())
}

/// Every number must be finite: others cannot be written again, and predictions would not be scores.
pub(super) fn check_numbers(trees: &[Tree], others: &[f64]) -> Result<()> {
    let bad = |at: usize, name: &str, value: f64| {
        let help = "the file is damaged; save the model again";
        Err(refuse::model_text(format!("tree {at}, {name}"), "finite numbers", value, help))
    };
    if let Some(&value) = others.iter().find(|value| !value.is_finite()) {
        return Err(refuse::model_text("start", "a finite number", value, "save the model again"));
    }
    for (at, tree) in trees.iter().enumerate() {
        let of_nodes = tree.nodes.iter().flat_map(|n| [("gain", n.gain), ("value", n.value), ("weight", n.weight)]);
        let of_leaves = tree.leaves.iter().flat_map(|leaf| [("leaf value", leaf.value), ("leaf weight", leaf.weight)]);
        let thresholds = tree.nodes.iter().filter_map(|node| match node.test {
            Test::AtMost(threshold) => Some(("threshold", threshold)),
            Test::OneOf(_) => None,
        });
        let mut all = of_nodes.chain(of_leaves).chain(thresholds).chain([("shrinkage", tree.shrinkage)]);
        if let Some((name, value)) = all.find(|(_, value)| !value.is_finite()) {
            return bad(at, name, value);
        }
    }
    Ok(())
}
