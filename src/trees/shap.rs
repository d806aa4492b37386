//! Exact, path-dependent TreeSHAP: how much each feature moves one prediction away from the mean.
//!
//! # Source
//! Lundberg, Erion, Lee: Consistent individualized feature attribution for tree ensembles, algorithm 2; covers are
//! training rows, as in LightGBM.

use rayon::prelude::*;

use super::booster::Booster;
use super::forest::Forest;
use super::matrix::{Matrix, check_columns};
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

/// Adds the attributions of one tree for the row `feature(f)`, times `scale`, to `out`.
pub fn add_tree(tree: &Tree, feature: &impl Fn(usize) -> f64, scale: f64, out: &mut [f64]) {
    let root = Step { feature: None, zero: 1.0, one: 1.0, weight: 0.0 };
    // A stack of its own: a tree from a file may be deeper than the stack of a thread.
    let mut open = vec![(tree.root(), Vec::new(), root)];
    while let Some((at, mut path, step)) = open.pop() {
        extend(&mut path, step);
        let node = match at {
            Child::Leaf(leaf) => {
                add_leaf(&path, tree.leaves[leaf as usize].value * scale, out);
                continue;
            }
            Child::Node(node) => &tree.nodes[node as usize],
        };
        let (mut zero, mut one) = (1.0, 1.0);
        if let Some(index) = path.iter().position(|step| step.feature == Some(node.feature)) {
            (zero, one) = (path[index].zero, path[index].one);
            unwind(&mut path, index);
        }
        let hot_left = node.goes_left(feature(node.feature as usize));
        let (left, right) = tree.shares(node);
        for (child, share, hot) in [(node.left, left, hot_left), (node.right, right, !hot_left)] {
            let (zero, one) = (zero * share, if hot { one } else { 0.0 });
            // Where nothing flows on, known or not, nothing is attributed.
            if zero > 0.0 || one > 0.0 {
                open.push((child, path.clone(), Step { feature: Some(node.feature), zero, one, weight: 0.0 }));
            }
        }
    }
}

fn add_leaf(path: &[Step], value: f64, out: &mut [f64]) {
    for index in 1..path.len() {
        let Step { feature: Some(feature), zero, one, .. } = path[index] else { continue };
        out[feature as usize] += unwound_sum(path, index) * (one - zero) * value;
    }
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
    /// # Example
    /// ```
    /// use graphsieve::trees::{BinRule, Booster, BoosterParams, Dataset, Fit, Matrix};
    /// // The label follows the first of two features.
    /// let values: Vec<f32> = (0..200).flat_map(|i| [i as f32, (i * 7 % 10) as f32]).collect();
    /// let labels: Vec<f32> = (0..200).map(|i| (i >= 100) as u8 as f32).collect();
    /// let x = Matrix::f32(&values, 2)?;
    /// let data = Dataset::new(&x, &BinRule::default())?;
    /// let booster = Booster::fit(&data, Fit::labels(&labels), &BoosterParams::default())?;
    /// let shap = booster.shap(&x)?;
    /// let [first, second] = [shap.values[0], shap.values[1]];
    /// assert!(first < -1.0 && second.abs() < 0.1 * first.abs());
    /// assert!((shap.base + first + second - booster.margin(&[0.0, 0.0])?).abs() < 1e-6);
    /// # Ok::<(), graphsieve::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the number of columns differs.
    pub fn shap(&self, x: &Matrix) -> Result<Attributions> {
        attributions(&self.trees, self.features(), 1.0, self.start, x)
    }
}

impl Forest {
    /// Attributions to the score.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the number of columns differs.
    pub fn shap(&self, x: &Matrix) -> Result<Attributions> {
        attributions(&self.trees, self.features(), 1.0 / self.trees.len() as f64, 0.0, x)
    }
}
