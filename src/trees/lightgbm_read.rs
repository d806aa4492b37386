//! Models from LightGBM's text (v3 and v4).

use std::collections::HashMap;
use std::str::FromStr;

use super::binning::Missing;
use super::booster::Booster;
use super::check_model::{check_features, check_numbers, check_trees};
use super::forest::Forest;
use super::lightgbm_write::{CATEGORICAL_BIT, DEFAULT_LEFT_BIT};
use super::objective::{ClassWeight, Objective};
use super::refuse;
use super::tree::{Child, LeafNode, Node, Test, Tree};
use crate::error::{Error, Result};

/// What to do about a text that contradicts itself.
const DAMAGED: &str = "the file is damaged; save the model again";

impl Booster {
    /// The booster in a LightGBM text. A model without an objective line predicts its raw score.
    ///
    /// # Errors
    /// [`Error::Format`] for a text that is damaged or holds what this crate has no equal of: several classes, linear
    /// leaves, averaged trees, other link functions.
    pub fn from_lightgbm_text(text: &str) -> Result<Self> {
        let model = Model::read(text)?;
        if model.averaged {
            let help = "read it with Forest::from_lightgbm_text";
            return Err(refuse::model_text("header", "a sum of trees", "average_output", help));
        }
        let name = model.objective.as_deref().unwrap_or("regression");
        let objective = match name.split(' ').next().unwrap_or("") {
            "binary" if name.split(' ').skip(1).all(|word| word == "sigmoid:1") => {
                Objective::Binary { weight: ClassWeight::None }
            }
            "cross_entropy" | "xentropy" => Objective::Binary { weight: ClassWeight::None },
            "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" | "custom" | "lambdarank"
                if !name.contains("sqrt") =>
            {
                Objective::Squared
            }
            _ => {
                let help = "convert the model with LightGBM, or predict with it";
                return Err(refuse::model_text(
                    "header, objective",
                    "binary sigmoid:1 or a plain regression",
                    name,
                    help,
                ));
            }
        };
        Ok(Booster {
            objective,
            start: 0.0,
            trees: model.trees,
            feature_names: model.feature_names,
            feature_infos: model.feature_infos,
            history: Vec::new(),
        })
    }
}

impl Forest {
    /// The forest (`boosting=rf`) in a LightGBM text.
    ///
    /// # Errors
    /// As [`Booster::from_lightgbm_text`].
    pub fn from_lightgbm_text(text: &str) -> Result<Self> {
        let model = Model::read(text)?;
        if !model.averaged {
            let help = "read it with Booster::from_lightgbm_text";
            return Err(refuse::model_text("header", "average_output", "a sum of trees", help));
        }
        if model.trees.is_empty() {
            return Err(refuse::model_text(
                "trees",
                "at least one tree",
                0,
                "the file is cut off; save the model again",
            ));
        }
        Ok(Forest { trees: model.trees, feature_names: model.feature_names, feature_infos: model.feature_infos })
    }
}

struct Model {
    averaged: bool,
    objective: Option<String>,
    feature_names: Vec<String>,
    feature_infos: Vec<String>,
    trees: Vec<Tree>,
}

impl Model {
    fn read(text: &str) -> Result<Self> {
        let end = text.find("end of trees").ok_or_else(|| {
            refuse::model_text("text", "a line `end of trees`", "none", "the file is cut off; save the model again")
        })?;
        let mut parts = text[..end].split("\nTree=");
        let head = Block::new("header".into(), parts.next().unwrap_or(""));
        if head.lines.contains_key("num_tree_per_iteration") && head.number::<usize>("num_tree_per_iteration")? != 1 {
            let found = head.get("num_tree_per_iteration")?;
            let help = "only one score per row can be read";
            return Err(refuse::model_text("header, num_tree_per_iteration", 1, found, help));
        }
        let feature_names: Vec<String> = head.words("feature_names")?.map(String::from).collect();
        let features = feature_names.len();
        if head.number::<u32>("max_feature_idx")? as usize + 1 != features {
            let expected = format!("{}, one less than there are names", features as i64 - 1);
            return Err(head.bad("max_feature_idx", expected, head.get("max_feature_idx")?, DAMAGED));
        }
        let feature_infos: Vec<String> = match head.lines.contains_key("feature_infos") {
            true => head.words("feature_infos")?.map(String::from).collect(),
            false => vec!["none".into(); features],
        };
        check_features(&feature_names, &feature_infos)?;
        let trees = parts
            .enumerate()
            .map(|(at, part)| read_tree(&Block::new(format!("tree {at}"), part)))
            .collect::<Result<Vec<Tree>>>()?;
        check_numbers(&trees, &[])?;
        check_trees(&trees, features)?;
        Ok(Model {
            averaged: head.lines.contains_key("average_output"),
            objective: head.lines.get("objective").map(|line| line.to_string()),
            feature_names,
            feature_infos,
            trees,
        })
    }
}

fn read_tree(block: &Block) -> Result<Tree> {
    let leaves: usize = block.number("num_leaves")?;
    let shrinkage = if block.lines.contains_key("shrinkage") { block.number("shrinkage")? } else { 1.0 };
    if block.lines.get("is_linear").is_some_and(|line| *line != "0") {
        let help = "fit it with linear_tree=false";
        return Err(block.bad("is_linear", "0: constant leaves", "1", help));
    }
    let values: Vec<f64> = block.list("leaf_value", leaves)?;
    if leaves < 2 {
        let value = *values.first().ok_or_else(|| block.bad("num_leaves", "at least 1", leaves, DAMAGED))?;
        return Ok(Tree { shrinkage, ..Tree::constant(value, 0.0, 0) });
    }
    let inner = leaves - 1;
    let leaf_weights: Vec<f64> = block.list_or_zeros("leaf_weight", leaves)?;
    let leaf_counts: Vec<u64> = block.list_or_zeros("leaf_count", leaves)?;
    let leaf = |at: usize| LeafNode { value: values[at], weight: leaf_weights[at], count: leaf_counts[at] };
    let features: Vec<u32> = block.list("split_feature", inner)?;
    let thresholds: Vec<f64> = block.list("threshold", inner)?;
    let decisions: Vec<u32> = block.list_or_zeros("decision_type", inner)?;
    let (lefts, rights): (Vec<i32>, Vec<i32>) = (block.list("left_child", inner)?, block.list("right_child", inner)?);
    let gains: Vec<f64> = block.list_or_zeros("split_gain", inner)?;
    let inner_values: Vec<f64> = block.list_or_zeros("internal_value", inner)?;
    let inner_weights: Vec<f64> = block.list_or_zeros("internal_weight", inner)?;
    let counts: Vec<u64> = block.list_or_zeros("internal_count", inner)?;
    let mut sets = category_sets(block)?;
    let mut nodes = Vec::with_capacity(inner);
    for at in 0..inner {
        let decision = decisions[at];
        let test = if decision & CATEGORICAL_BIT != 0 {
            let number = Some(thresholds[at]).filter(|t| *t >= 0.0 && t.fract() == 0.0);
            // One node alone has a set: a short text in which all have a large one would take any memory.
            let set = number.and_then(|number| sets.get_mut(number as usize)?.take());
            let bad = || block.bad("threshold", "the number of a category set of its own", thresholds[at], DAMAGED);
            Test::OneOf(set.ok_or_else(bad)?)
        } else {
            Test::AtMost(thresholds[at].clamp(f64::MIN, f64::MAX))
        };
        let missing = match decision >> 2 & 3 {
            0 => Missing::None,
            1 => Missing::Zero,
            2 => Missing::Nan,
            _ => return Err(block.bad("decision_type", "a missing type up to 2", decision, DAMAGED)),
        };
        nodes.push(Node {
            feature: features[at],
            test,
            default_left: decision & DEFAULT_LEFT_BIT != 0,
            missing,
            left: child(lefts[at]),
            right: child(rights[at]),
            gain: gains[at],
            value: inner_values[at],
            weight: inner_weights[at],
            count: counts[at],
        });
    }
    Ok(Tree { nodes, leaves: (0..leaves).map(leaf).collect(), shrinkage })
}

/// A node from 0 up, or the bits of a leaf turned round.
fn child(number: i32) -> Child {
    if number >= 0 { Child::Node(number as u32) } else { Child::Leaf(!number as u32) }
}

fn category_sets(block: &Block) -> Result<Vec<Option<Vec<u32>>>> {
    let sets = if block.lines.contains_key("num_cat") { block.number::<u32>("num_cat")? as usize } else { 0 };
    if sets == 0 {
        return Ok(Vec::new());
    }
    let bounds: Vec<usize> = block.list("cat_boundaries", sets + 1)?;
    let words: Vec<u32> = block.list("cat_threshold", bounds[sets])?;
    bounds
        .windows(2)
        .map(|pair| {
            let set = words.get(pair[0]..pair[1]);
            set.map(|set| Some(set.to_vec()))
                .ok_or_else(|| block.bad("cat_boundaries", "ascending numbers", pair[1], DAMAGED))
        })
        .collect()
}

/// The `key=value` lines of the header or of one tree.
struct Block<'a> {
    name: String,
    lines: HashMap<&'a str, &'a str>,
}

impl<'a> Block<'a> {
    fn new(name: String, text: &'a str) -> Self {
        let lines = text.lines().map(|line| line.trim()).filter(|line| !line.is_empty());
        Block { name, lines: lines.map(|line| line.split_once('=').unwrap_or((line, ""))).collect() }
    }

    fn bad(&self, key: &str, expected: impl ToString, found: impl ToString, help: &str) -> Error {
        refuse::model_text(format!("{}, {key}", self.name), expected, found, help)
    }

    fn get(&self, key: &str) -> Result<&'a str> {
        let absent = || self.bad(key, "a line of this name", "none", "save the model with LightGBM 3 or later");
        self.lines.get(key).copied().ok_or_else(absent)
    }

    fn words(&self, key: &str) -> Result<std::str::SplitAsciiWhitespace<'a>> {
        Ok(self.get(key)?.split_ascii_whitespace())
    }

    fn number<T: FromStr>(&self, key: &str) -> Result<T> {
        let text = self.get(key)?;
        text.parse().map_err(|_| self.bad(key, "a number", text, DAMAGED))
    }

    /// Never reserves more than there are words, whatever `len` the file asks for.
    fn list<T: FromStr>(&self, key: &str, len: usize) -> Result<Vec<T>> {
        let found = self.words(key)?.count();
        if found != len {
            return Err(self.bad(key, format!("{len} numbers"), found, DAMAGED));
        }
        self.words(key)?.map(|word| word.parse().map_err(|_| self.bad(key, "a number", word, DAMAGED))).collect()
    }

    fn list_or_zeros<T: FromStr + Clone + Default>(&self, key: &str, len: usize) -> Result<Vec<T>> {
        if self.lines.contains_key(key) { self.list(key, len) } else { Ok(vec![T::default(); len]) }
    }
}
