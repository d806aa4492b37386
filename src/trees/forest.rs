//! Random forest on the same engine: every leaf holds the weighted mean of its labels.
//!
//! With g = −w y and h = w the output −G / H is that mean, and the gain is the decrease of the squared error, which for
//! labels 0 and 1 is half the decrease of the Gini impurity: both criteria choose the same split.

use std::time::Instant;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::booster::is_over;
use super::counter;
use super::dataset::Dataset;
use super::fixed_point::Gradients;
use super::grow::grow;
use super::grow_rule::GrowRule;
use super::matrix::{Matrix, check_columns};
use super::objective::{ClassWeight, check_labels, check_weights};
use super::refuse;
use super::split::SplitRule;
use super::tree::Tree;
use crate::error::Result;

/// Rows that a prediction task takes at a time.
const BLOCK: usize = 256;

/// Settings of a forest.
#[derive(Clone, Debug)]
pub struct ForestParams {
    /// Trees. Default 100.
    pub trees: usize,
    /// True to give every tree n rows drawn with replacement. Default true.
    pub bootstrap: bool,
    /// Weight of the rare class. Default none.
    pub class_weight: ClassWeight,
    /// How a tree grows.
    pub grow: GrowRule,
    /// Seed of every draw. Default 0.
    pub seed: u64,
    /// From when on no tree is begun, other than a first one. What is fitted then depends on the speed of the machine.
    /// Default `None`.
    pub deadline: Option<Instant>,
}

impl ForestParams {
    /// scikit-learn's classifier for `features` columns: full depth, ⌊√features⌋ features per node, and on to the next
    /// ones where these have no valid split. Thresholds are those of the bins, not every midpoint.
    pub fn sklearn_like(features: usize) -> Self {
        let split = SplitRule {
            min_data_in_leaf: 1,
            min_sum_hessian: 0.0,
            // Far below any real decrease, above what rounding makes of a leaf whose labels are all the same.
            min_gain: 1e-9,
            // A leaf is the plain mean of its labels, also after a categorical split, and few rows may decide one.
            cat_l2: 0.0,
            cat_smooth: 1.0,
            min_data_per_group: 1,
            ..SplitRule::default()
        };
        let fraction = ((features as f64).sqrt().floor() / features.max(1) as f64).clamp(1e-9, 1.0);
        let grow = GrowRule {
            num_leaves: None,
            split,
            feature_fraction_bynode: fraction,
            look_on: true,
            ..GrowRule::default()
        };
        ForestParams { trees: 100, bootstrap: true, class_weight: ClassWeight::None, grow, seed: 0, deadline: None }
    }
}

/// A random forest.
///
/// # Example
/// ```
/// use graphsieve::trees::{BinRule, Dataset, Forest, ForestParams, Matrix};
/// let values: Vec<f32> = (0..200).map(|i| i as f32).collect();
/// let labels: Vec<f32> = (0..200).map(|i| (i >= 100) as u8 as f32).collect();
/// let x = Matrix::f32(&values, 1)?;
/// let data = Dataset::new(&x, &BinRule::default())?;
/// let params = ForestParams { trees: 20, ..ForestParams::sklearn_like(1) };
/// let forest = Forest::fit(&data, &labels, None, &params)?;
/// assert_eq!((forest.score(&[10.0])?, forest.score(&[190.0])?), (0.0, 1.0));
/// # Ok::<(), graphsieve::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forest {
    /// Trees; a leaf holds the weighted mean of its labels.
    pub trees: Vec<Tree>,
    /// Names of the features.
    pub feature_names: Vec<String>,
    /// Smallest and largest sampled value per feature, or its categories, as LightGBM's text writes them.
    pub feature_infos: Vec<String>,
}

impl Forest {
    /// Fits a forest to labels (0 and 1 for scores, any finite number otherwise).
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a setting out of range, [`Error::Data`](crate::Error::Data) for
    /// labels or weights that do not fit the data.
    pub fn fit(data: &Dataset, labels: &[f32], weights: Option<&[f32]>, params: &ForestParams) -> Result<Self> {
        if labels.len() != data.rows() {
            return Err(refuse::data("labels", format!("{} values", data.rows()), labels.len(), "give one per row"));
        }
        check_labels(labels, params.class_weight != ClassWeight::None)?;
        check_weights(weights, data.rows())?;
        params.class_weight.check()?;
        params.grow.check(data.features())?;
        if params.trees == 0 {
            return Err(refuse::setting("trees", "at least 1", 0, "100 is the usual choice"));
        }
        let class = params.class_weight.resolve(labels, weights);
        // Rows of weight 0 are not there: a bag of nothing else would make an empty tree.
        let present: Vec<u32> =
            (0..data.rows() as u32).filter(|&row| weights.is_none_or(|w| w[row as usize] > 0.0)).collect();
        let one = |tree: usize| {
            let times = draws(params, &present, data.rows(), tree as u64);
            let weight = |row: usize| {
                let of_class = if labels[row] > 0.5 { class.1 } else { class.0 };
                times[row] as f64 * of_class * weights.map_or(1.0, |w| w[row] as f64)
            };
            let pairs: Vec<(f64, f64)> =
                (0..data.rows()).map(|row| (-weight(row) * labels[row] as f64, weight(row))).collect();
            let gradients = Gradients::new(&pairs, tree)?;
            let rows = (0..data.rows() as u32).filter(|&row| pairs[row as usize].1 > 0.0).collect();
            drop(pairs);
            Ok(grow(data, &gradients, rows, &params.grow, params.seed, tree as u64).tree)
        };
        let wanted = |&tree: &usize| tree == 0 || !is_over(params.deadline);
        let trees = (0..params.trees).into_par_iter().filter(wanted).map(one).collect::<Result<_>>()?;
        Ok(Forest { trees, feature_names: data.names().to_vec(), feature_infos: data.feature_infos() })
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.feature_names.len()
    }

    /// The mean over the trees for one row.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the number of features differs.
    pub fn score(&self, row: &[f64]) -> Result<f64> {
        check_columns(&Matrix::f64(row, row.len())?, self.features())?;
        Ok(self.trees.iter().map(|tree| tree.output(|f| row[f])).sum::<f64>() / self.trees.len() as f64)
    }

    /// The mean over the trees for every row, in parallel; the same as row by row.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the number of columns differs.
    pub fn predict(&self, x: &Matrix) -> Result<Vec<f64>> {
        check_columns(x, self.features())?;
        let mut scores = vec![0.0; x.rows()];
        scores.par_chunks_mut(BLOCK).enumerate().for_each(|(block, scores)| {
            for tree in &self.trees {
                for (at, score) in scores.iter_mut().enumerate() {
                    *score += tree.predict(x, block * BLOCK + at);
                }
            }
            scores.iter_mut().for_each(|score| *score /= self.trees.len() as f64);
        });
        Ok(scores)
    }
}

/// How often each row is in the bag of `tree`, which is drawn from the rows `present`.
fn draws(params: &ForestParams, present: &[u32], rows: usize, tree: u64) -> Vec<u32> {
    let mut times = vec![0; rows];
    for at in 0..present.len() as u64 {
        let drawn = match params.bootstrap {
            true => counter::below(params.seed, &[4, tree, at], present.len() as u64),
            false => at,
        };
        times[present[drawn as usize] as usize] += 1;
    }
    times
}
