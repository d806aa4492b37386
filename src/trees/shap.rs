//! Exact, path-dependent TreeSHAP: how much each feature moves one prediction away from the mean.
//!
//! # Source
//! Lundberg, Erion, Lee: Consistent individualized feature attribution for tree ensembles, algorithm 2; covers are
//! training rows, as in LightGBM.

use rayon::prelude::*;

use super::booster::{Booster, check_columns};
use super::forest::Forest;
use super::matrix::Matrix;
use super::tree::{Child, Tree};
use crate::error::Result;

/// One feature on the way from the root, as the recursion sees it.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// `None` only for the root's own step.
    feature: Option<u32>,
    /// Share of the paths that flow on when the feature is not known.
    zero: f64,
    /// 1 when the row itself flows on, else 0.
    one: f64,
    /// Weight of the subsets of this size.
    weight: f64,
}

/// Attributions of a set of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Attributions {
    /// Row-major, one column per feature.
    pub values: Vec<f64>,
    /// The mean prediction; it and a row's values sum to the row's prediction.
    pub base: f64,
}

/// Adds the attributions of one tree for the row `feature(f)` to `out`.
pub fn add_tree(tree: &Tree, feature: &impl Fn(usize) -> f64, scale: f64, out: &mut [f64]) {
    if !tree.nodes.is_empty() {
        let path = Vec::with_capacity(tree.depth() + 2);
        walk(tree, feature, scale, out, tree.root(), path, Step { feature: None, zero: 1.0, one: 1.0, weight: 0.0 });
    }
}

fn walk(
    tree: &Tree,
    feature: &impl Fn(usize) -> f64,
    scale: f64,
    out: &mut [f64],
    at: Child,
    mut path: Vec<Step>,
    step: Step,
) {
    extend(&mut path, step);
    let node = match at {
        Child::Leaf(leaf) => {
            let value = tree.leaves[leaf as usize].value * scale;
            for index in 1..path.len() {
                let Step { feature: Some(feature), zero, one, .. } = path[index] else { continue };
                out[feature as usize] += unwound_sum(&path, index) * (one - zero) * value;
            }
            return;
        }
        Child::Node(node) => &tree.nodes[node as usize],
    };
    let hot_left = node.goes_left(feature(node.feature as usize));
    let (hot, cold) = if hot_left { (node.left, node.right) } else { (node.right, node.left) };
    let (mut zero, mut one) = (1.0, 1.0);
    if let Some(index) = path.iter().position(|step| step.feature == Some(node.feature)) {
        (zero, one) = (path[index].zero, path[index].one);
        unwind(&mut path, index);
    }
    // A model read from a file may hold no counts; then both ways are as likely.
    let share = |child| match node.count {
        0 => 0.5,
        count => tree.count(child) as f64 / count as f64,
    };
    let step = |zero, one| Step { feature: Some(node.feature), zero, one, weight: 0.0 };
    walk(tree, feature, scale, out, hot, path.clone(), step(zero * share(hot), one));
    walk(tree, feature, scale, out, cold, path, step(zero * share(cold), 0.0));
}

fn extend(path: &mut Vec<Step>, step: Step) {
    let depth = path.len();
    path.push(Step { weight: if depth == 0 { 1.0 } else { 0.0 }, ..step });
    let size = (depth + 1) as f64;
    for i in (0..depth).rev() {
        path[i + 1].weight += step.one * path[i].weight * (i + 1) as f64 / size;
        path[i].weight *= step.zero * (depth - i) as f64 / size;
    }
}

/// Takes the step at `index` out of the path again.
fn unwind(path: &mut Vec<Step>, index: usize) {
    let depth = path.len() - 1;
    let (zero, one, size) = (path[index].zero, path[index].one, path.len() as f64);
    let mut next = path[depth].weight;
    for i in (0..depth).rev() {
        if one != 0.0 {
            let before = path[i].weight;
            path[i].weight = next * size / ((i + 1) as f64 * one);
            next = before - path[i].weight * zero * (depth - i) as f64 / size;
        } else {
            path[i].weight = path[i].weight * size / (zero * (depth - i) as f64);
        }
    }
    for i in index..depth {
        let Step { feature, zero, one, .. } = path[i + 1];
        path[i] = Step { feature, zero, one, weight: path[i].weight };
    }
    path.pop();
}

/// Sum of the weights of the path without the step at `index`.
fn unwound_sum(path: &[Step], index: usize) -> f64 {
    let depth = path.len() - 1;
    let (zero, one, size) = (path[index].zero, path[index].one, path.len() as f64);
    let mut next = path[depth].weight;
    let mut total = 0.0;
    for i in (0..depth).rev() {
        if one != 0.0 {
            let weight = next * size / ((i + 1) as f64 * one);
            total += weight;
            next = path[i].weight - weight * zero * (depth - i) as f64 / size;
        } else if zero != 0.0 {
            total += path[i].weight / zero / ((depth - i) as f64 / size);
        }
    }
    total
}

fn attributions(trees: &[Tree], features: usize, scale: f64, start: f64, x: &Matrix) -> Result<Attributions> {
    check_columns(x, features)?;
    let mut values = vec![0.0; x.rows() * features];
    values.par_chunks_mut(features).enumerate().for_each(|(row, out)| {
        trees.iter().for_each(|tree| add_tree(tree, &|f| x.get(row, f), scale, out));
    });
    Ok(Attributions { values, base: start + trees.iter().map(|tree| tree.mean() * scale).sum::<f64>() })
}

impl Booster {
    /// Attributions to the margin.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when the number of columns differs.
    pub fn shap(&self, x: &Matrix) -> Result<Attributions> {
        attributions(&self.trees, self.features, 1.0, self.start, x)
    }
}

impl Forest {
    /// Attributions to the score.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when the number of columns differs.
    pub fn shap(&self, x: &Matrix) -> Result<Attributions> {
        attributions(&self.trees, self.features, 1.0 / self.trees.len() as f64, 0.0, x)
    }
}
