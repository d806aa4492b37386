//! Models as JSON; numbers come back bit for bit.

use serde::{Deserialize, Serialize};

use super::booster::Booster;
use super::forest::Forest;
use super::refuse;
use super::tree::{Child, Tree};
use crate::error::Result;

/// Counted up when the layout changes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File<M> {
    format: u32,
    model: M,
}

impl Booster {
    /// The model as JSON.
    pub fn to_json(&self) -> String {
        write(self)
    }

    /// The model from JSON.
    ///
    /// # Errors
    /// [`Error::Format`](crate::error::Error::Format) that says where the text is not a model.
    pub fn from_json(text: &str) -> Result<Self> {
        let booster: Booster = read(text)?;
        check_trees(&booster.trees, booster.features)?;
        Ok(booster)
    }
}

impl Forest {
    /// The model as JSON.
    pub fn to_json(&self) -> String {
        write(self)
    }

    /// The model from JSON.
    ///
    /// # Errors
    /// [`Error::Format`](crate::error::Error::Format) that says where the text is not a model.
    pub fn from_json(text: &str) -> Result<Self> {
        let forest: Forest = read(text)?;
        check_trees(&forest.trees, forest.features)?;
        Ok(forest)
    }
}

fn write<M: Serialize>(model: &M) -> String {
    serde_json::to_string(&File { format: FORMAT, model }).expect("a model has only string keys and finite numbers")
}

fn read<M: for<'a> Deserialize<'a>>(text: &str) -> Result<M> {
    let file: File<M> = serde_json::from_str(text).map_err(|error| {
        let place = format!("model JSON, line {} column {}", error.line(), error.column());
        refuse::model_text(place, "a model written by to_json", error, "save the model again")
    })?;
    if file.format != FORMAT {
        let help = "read it with the version that wrote it, or fit again";
        return Err(refuse::model_text("model JSON, format", FORMAT, file.format, help));
    }
    Ok(file.model)
}

/// Every tree must lead from its root to leaves, once to each: prediction relies on it.
pub(crate) fn check_trees(trees: &[Tree], features: usize) -> Result<()> {
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
