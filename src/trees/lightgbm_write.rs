//! Models as LightGBM's text (v4), which LightGBM and its bindings load.

use std::fmt::{Debug, Write};

use super::binning::Missing;
use super::booster::Booster;
use super::forest::Forest;
use super::objective::Objective;
use super::tree::{Child, Test, Tree};

/// `decision_type` bit of a categorical test.
pub(crate) const CATEGORICAL_BIT: u32 = 1;
/// `decision_type` bit of a missing value that goes left.
pub(crate) const DEFAULT_LEFT_BIT: u32 = 2;

impl Booster {
    /// The model as LightGBM's text. The start margin is part of the first tree, as LightGBM has it; a focal booster is
    /// written as a logistic one, which predicts the same.
    ///
    /// # Example
    /// ```
    /// use graphsieve::trees::{BinRule, Booster, BoosterParams, Dataset, Fit, Matrix};
    /// let values: Vec<f32> = (0..200).map(|i| i as f32).collect();
    /// let labels: Vec<f32> = values.iter().map(|&v| (v >= 100.0) as u8 as f32).collect();
    /// let x = Matrix::f32(&values, 1)?;
    /// let data = Dataset::new(&x, &BinRule::default())?.with_names(vec!["age".into()])?;
    /// let booster = Booster::fit(&data, Fit::labels(&labels), &BoosterParams::default())?;
    /// let text = booster.to_lightgbm_text();
    /// assert!(text.contains("feature_names=age"));
    /// let again = Booster::from_lightgbm_text(&text)?;
    /// assert!((again.margin(&[42.0])? - booster.margin(&[42.0])?).abs() < 1e-12);
    /// # Ok::<(), graphsieve::Error>(())
    /// ```
    pub fn to_lightgbm_text(&self) -> String {
        let mut trees = self.trees.clone();
        match trees.first_mut() {
            Some(first) => first.add_bias(self.start),
            None => trees.push(Tree::constant(self.start, 0.0, 0)),
        }
        let objective = if self.objective == Objective::Squared { "regression" } else { "binary sigmoid:1" };
        write_model(&trees, &self.feature_names, &self.feature_infos, &format!("objective={objective}\n"), "gbdt")
    }
}

impl Forest {
    /// The model as LightGBM's text. LightGBM's plain prediction is the forest's score; its raw score is the sum over
    /// the trees.
    pub fn to_lightgbm_text(&self) -> String {
        write_model(&self.trees, &self.feature_names, &self.feature_infos, "average_output\n", "rf")
    }
}

fn write_model(trees: &[Tree], names: &[String], infos: &[String], objective: &str, boosting: &str) -> String {
    let blocks: Vec<String> = trees.iter().enumerate().map(|(at, tree)| write_tree(at, tree)).collect();
    let features = names.len();
    let sizes: Vec<usize> = blocks.iter().map(String::len).collect();
    let mut text = String::from("tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n");
    line(&mut text, "max_feature_idx", [features.saturating_sub(1)]);
    text.push_str(objective);
    let _ = writeln!(text, "feature_names={}", names.join(" "));
    let _ = writeln!(text, "feature_infos={}", infos.join(" "));
    line(&mut text, "tree_sizes", sizes);
    text.push('\n');
    blocks.iter().for_each(|block| text.push_str(block));
    text.push_str("end of trees\n\nfeature_importances:\n");
    let splits = super::importance::importance(trees, features, super::Importance::Split);
    let mut ranked: Vec<usize> = (0..features).filter(|&f| splits[f] > 0.0).collect();
    ranked.sort_by(|&a, &b| splits[b].total_cmp(&splits[a]));
    ranked.iter().for_each(|&f| {
        let _ = writeln!(text, "{}={}", names[f], splits[f]);
    });
    let _ = write!(text, "\nparameters:\n[boosting: {boosting}]\n\nend of parameters\n\npandas_categorical:null\n");
    text
}

/// `key=a b c`; `{:?}` of an f64 is the shortest text that reads back to the same bits.
fn line<T: Debug>(text: &mut String, key: &str, values: impl IntoIterator<Item = T>) {
    let values: Vec<String> = values.into_iter().map(|value| format!("{value:?}")).collect();
    let _ = writeln!(text, "{key}={}", values.join(" "));
}

fn write_tree(at: usize, tree: &Tree) -> String {
    let nodes = &tree.nodes;
    let (mut boundaries, mut words, mut thresholds) = (vec![0usize], Vec::new(), Vec::new());
    for node in nodes {
        match &node.test {
            Test::AtMost(threshold) => thresholds.push(format!("{threshold:?}")),
            Test::OneOf(set) => {
                thresholds.push((boundaries.len() - 1).to_string());
                words.extend_from_slice(set);
                boundaries.push(words.len());
            }
        }
    }
    let decision = |node: &super::tree::Node| {
        let missing = match node.missing {
            Missing::None => 0,
            Missing::Zero => 1,
            Missing::Nan => 2,
        };
        let categorical = if matches!(node.test, Test::OneOf(_)) { CATEGORICAL_BIT } else { 0 };
        categorical | if node.default_left { DEFAULT_LEFT_BIT } else { 0 } | missing << 2
    };
    let child = |child: Child| match child {
        Child::Node(node) => node as i64,
        Child::Leaf(leaf) => !(leaf as i64),
    };
    let mut text = format!("Tree={at}\n");
    line(&mut text, "num_leaves", [tree.leaves.len()]);
    line(&mut text, "num_cat", [boundaries.len() - 1]);
    line(&mut text, "split_feature", nodes.iter().map(|n| n.feature));
    line(&mut text, "split_gain", nodes.iter().map(|n| n.gain));
    let _ = writeln!(text, "threshold={}", thresholds.join(" "));
    line(&mut text, "decision_type", nodes.iter().map(decision));
    line(&mut text, "left_child", nodes.iter().map(|n| child(n.left)));
    line(&mut text, "right_child", nodes.iter().map(|n| child(n.right)));
    line(&mut text, "leaf_value", tree.leaves.iter().map(|l| l.value));
    line(&mut text, "leaf_weight", tree.leaves.iter().map(|l| l.weight));
    line(&mut text, "leaf_count", tree.leaves.iter().map(|l| l.count));
    line(&mut text, "internal_value", nodes.iter().map(|n| n.value));
    line(&mut text, "internal_weight", nodes.iter().map(|n| n.weight));
    line(&mut text, "internal_count", nodes.iter().map(|n| n.count));
    if boundaries.len() > 1 {
        line(&mut text, "cat_boundaries", &boundaries);
        line(&mut text, "cat_threshold", &words);
    }
    line(&mut text, "is_linear", [0]);
    line(&mut text, "shrinkage", [tree.shrinkage]);
    text.push_str("\n\n");
    text
}
