//! Logistic regression, the baseline that a graph model has to beat.

use std::sync::atomic::{AtomicBool, Ordering};

use ndarray::{Array1, Array2, ArrayView2, Axis};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::metrics::{sigmoid_f64, softplus};

const MAX_ITERATIONS: usize = 50;
const TOLERANCE: f64 = 1e-8;

/// L2-regularised logistic regression on standardised columns.
///
/// Minimises `sum_i log(1 + exp(-s_i z_i)) + l2/2 * |w|^2` with `z = b + ((x - mean) / std) . w` and `s_i = ±1`, by
/// Newton's method with step halving. The intercept `b` is not penalised; a constant column gets weight 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogisticRegression {
    /// Weight of the raw column, `w / std`.
    weights: Vec<f64>,
    intercept: f64,
}

impl LogisticRegression {
    /// Fits on the rows of `x` with labels `y` (0 or 1); `l2 >= 0` in units of the summed loss.
    ///
    /// # Errors
    /// [`Error::Data`] when `x` and `y` differ in length, a value or `l2` is not finite, a label is neither 0 nor 1,
    /// or one of the classes has no example.
    pub fn fit(x: ArrayView2<f32>, y: &[u8], l2: f64) -> Result<Self> {
        let [fitted] = Self::fit_each(x, y, [l2], &AtomicBool::new(false))?;
        Ok(fitted)
    }

    /// [`fit`](Self::fit) with each `l2`, one after the other. Once the result is `unwanted`, what is left is not
    /// fitted well.
    ///
    /// # Errors
    /// As for [`fit`](Self::fit).
    pub fn fit_each<const N: usize>(
        x: ArrayView2<f32>,
        y: &[u8],
        l2: [f64; N],
        unwanted: &AtomicBool,
    ) -> Result<[Self; N]> {
        check(x, y, &l2)?;
        let (rows, columns) = x.dim();
        // Standardised design matrix; the last column is the intercept.
        let mut design = Array2::<f64>::ones((rows, columns + 1));
        let mut mean = Array1::<f64>::zeros(columns);
        let mut inverse_std = Array1::<f64>::zeros(columns);
        for (c, column) in x.axis_iter(Axis(1)).enumerate() {
            mean[c] = column.iter().map(|&v| f64::from(v)).sum::<f64>() / rows as f64;
            let variance = column.iter().map(|&v| (f64::from(v) - mean[c]).powi(2)).sum::<f64>() / rows as f64;
            // Relative to the mean: rounding alone gives a constant column a variance slightly above 0.
            inverse_std[c] =
                if variance > 1e-14 * (mean[c] * mean[c]).max(1e-30) { variance.sqrt().recip() } else { 0.0 };
            design
                .column_mut(c)
                .iter_mut()
                .zip(column)
                .for_each(|(d, &v)| *d = (f64::from(v) - mean[c]) * inverse_std[c]);
        }
        Ok(l2.map(|l2| {
            let w = newton(&design, y, l2, unwanted);
            let weights = &w.slice(ndarray::s![..columns]) * &inverse_std;
            let intercept = w[columns] - weights.dot(&mean);
            Self { weights: weights.to_vec(), intercept }
        }))
    }

    /// Probability of class 1 for every row of `x`.
    ///
    /// # Panics
    /// When `x` has another number of columns than the matrix that was fitted.
    pub fn scores(&self, x: ArrayView2<f32>) -> Vec<f32> {
        assert_eq!(x.ncols(), self.weights.len(), "LogisticRegression::scores: columns of x");
        x.outer_iter()
            .map(|row| {
                let z = self.intercept + row.iter().zip(&self.weights).map(|(&v, w)| f64::from(v) * w).sum::<f64>();
                sigmoid_f64(z) as f32
            })
            .collect()
    }

    /// Weight of every raw column: the change of the logit per unit of the column.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }
}

fn newton(design: &Array2<f64>, y: &[u8], l2: f64, unwanted: &AtomicBool) -> Array1<f64> {
    let last = design.ncols() - 1;
    let target: Array1<f64> = y.iter().map(|&label| f64::from(label)).collect();
    let penalty = |w: &Array1<f64>| 0.5 * l2 * w.iter().take(last).map(|v| v * v).sum::<f64>();
    let loss = |w: &Array1<f64>| {
        let z = design.dot(w);
        z.iter().zip(&target).map(|(&z, &t)| softplus(z) - t * z).sum::<f64>() + penalty(w)
    };
    let mut w = Array1::<f64>::zeros(last + 1);
    let mut current = loss(&w);
    for _ in 0..MAX_ITERATIONS {
        if unwanted.load(Ordering::Relaxed) {
            break;
        }
        let p = design.dot(&w).mapv(sigmoid_f64);
        let mut gradient = design.t().dot(&(&p - &target));
        let curvature = p.mapv(|p| p * (1.0 - p)).insert_axis(Axis(1));
        let mut hessian = weighted_gram(design.view(), curvature.view());
        for c in 0..last {
            gradient[c] += l2 * w[c];
            hessian[[c, c]] += l2;
        }
        // Keeps constant columns and perfectly separated classes solvable without moving the optimum visibly.
        let ridge = 1e-8 * design.nrows() as f64;
        hessian.diag_mut().mapv_inplace(|d| d + ridge);
        let Some(step) = cholesky_solve(hessian, &gradient) else { break };
        let mut length = 1.0;
        let improved = loop {
            let candidate = &w - &(&step * length);
            let value = loss(&candidate);
            if value < current {
                let gain = current - value;
                (w, current) = (candidate, value);
                break gain > TOLERANCE * (1.0 + current);
            }
            length *= 0.5;
            if length < 1e-6 {
                break false;
            }
        };
        if !improved {
            break;
        }
    }
    w
}

/// `design^T diag(weights) design`: of blocks of rows by all threads, added up in their order.
fn weighted_gram(design: ArrayView2<f64>, weights: ArrayView2<f64>) -> Array2<f64> {
    const ROWS: usize = 1 << 12;
    let blocks: Vec<_> = design.axis_chunks_iter(Axis(0), ROWS).zip(weights.axis_chunks_iter(Axis(0), ROWS)).collect();
    let grams = blocks.into_par_iter().map(|(design, weights)| design.t().dot(&(&design * &weights)));
    let grams: Vec<Array2<f64>> = grams.collect();
    grams.into_iter().fold(Array2::zeros((design.ncols(), design.ncols())), |sum, gram| sum + gram)
}

/// Solves `a x = b` for a symmetric positive definite `a`; `None` when it is not.
fn cholesky_solve(mut a: Array2<f64>, b: &Array1<f64>) -> Option<Array1<f64>> {
    let n = b.len();
    for j in 0..n {
        for k in 0..j {
            let factor = a[[j, k]];
            for i in j..n {
                a[[i, j]] -= factor * a[[i, k]];
            }
        }
        let pivot = a[[j, j]];
        if pivot <= 0.0 || !pivot.is_finite() {
            return None;
        }
        let root = pivot.sqrt();
        for i in j..n {
            a[[i, j]] /= root;
        }
    }
    let mut x = b.clone();
    for i in 0..n {
        let sum: f64 = (0..i).map(|k| a[[i, k]] * x[k]).sum();
        x[i] = (x[i] - sum) / a[[i, i]];
    }
    for i in (0..n).rev() {
        let sum: f64 = (i + 1..n).map(|k| a[[k, i]] * x[k]).sum();
        x[i] = (x[i] - sum) / a[[i, i]];
    }
    Some(x)
}

fn check(x: ArrayView2<f32>, y: &[u8], l2: &[f64]) -> Result<()> {
    let fail = |what: &str, expected: &str, found: String, help: &str| {
        Err(Error::Data { what: what.into(), expected: expected.into(), found, help: help.into() })
    };
    if x.nrows() != y.len() {
        let expected = format!("{} labels, one per row", x.nrows());
        return fail(
            "labels of the logistic regression",
            &expected,
            y.len().to_string(),
            "pass matching rows and labels",
        );
    }
    if let Some(l2) = l2.iter().find(|l2| !(l2.is_finite() && **l2 >= 0.0)) {
        return fail("l2 of the logistic regression", "a finite number >= 0", l2.to_string(), "1.0 suits most data");
    }
    if let Some(label) = y.iter().find(|&&label| label > 1) {
        return fail("labels of the logistic regression", "0 or 1", label.to_string(), "map the classes to 0 and 1");
    }
    let positives = y.iter().filter(|&&label| label == 1).count();
    if positives == 0 || positives == y.len() {
        let found = format!("{} of class 0, {positives} of class 1", y.len() - positives);
        return fail("labels of the logistic regression", "both classes", found, "label examples of the missing class");
    }
    if let Some(((row, column), value)) = x.indexed_iter().find(|(_, v)| !v.is_finite()) {
        let what = format!("row {row}, column {column} of the features");
        return fail(&what, "a finite number", value.to_string(), "replace missing values before training");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Rows uniform in [-1, 1]; class 1 where `2 x0 - x2 > 0.3`.
    fn separable(rows: usize) -> (Array2<f32>, Vec<u8>) {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let x = Array2::from_shape_fn((rows, 4), |_| rng.random_range(-1.0f32..1.0));
        let y = x.outer_iter().map(|r| u8::from(2.0 * r[0] - r[2] > 0.3)).collect();
        (x, y)
    }

    #[test]
    fn recovers_the_direction_that_separates_the_classes() {
        let (x, y) = separable(500);
        let model = LogisticRegression::fit(x.view(), &y, 0.1).unwrap();
        let w = model.weights();
        assert!((w[0] / w[2] + 2.0).abs() < 0.25, "{w:?}");
        assert!(w[1].abs() < 0.1 * w[0] && w[3].abs() < 0.1 * w[0], "{w:?}");
        let correct = model.scores(x.view()).iter().zip(&y).filter(|(s, y)| (**s > 0.5) == (**y == 1)).count();
        assert!(correct >= 490, "{correct} of 500");
    }

    #[test]
    fn the_gradient_vanishes_at_the_solution() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let x = Array2::from_shape_fn((200, 3), |(i, _)| rng.random_range(-1.0f32..1.0) + (i % 2) as f32 * 0.2);
        let y: Vec<u8> = (0..200).map(|i| (i % 2) as u8).collect();
        let model = LogisticRegression::fit(x.view(), &y, 0.0).unwrap();
        let scores = model.scores(x.view());
        for c in 0..3 {
            let g: f64 = (0..200).map(|i| f64::from(x[[i, c]]) * (f64::from(scores[i]) - f64::from(y[i]))).sum();
            assert!(g.abs() < 1e-3, "column {c}: {g}");
        }
    }

    #[test]
    fn constant_columns_get_no_weight_and_do_no_harm() {
        let (mut x, y) = separable(200);
        x.column_mut(1).fill(0.1);
        let model = LogisticRegression::fit(x.view(), &y, 1.0).unwrap();
        assert_eq!(model.weights()[1], 0.0);
        assert!(model.scores(x.view()).iter().all(|s| s.is_finite()));
    }

    #[test]
    fn several_penalties_fit_what_each_does_alone_and_nothing_once_it_is_unwanted() {
        let (x, y) = separable(100);
        let each = |unwanted| LogisticRegression::fit_each(x.view(), &y, [0.1, 10.0], &AtomicBool::new(unwanted));
        let alone = [0.1, 10.0].map(|l2| LogisticRegression::fit(x.view(), &y, l2).unwrap());
        assert_eq!(each(false).unwrap(), alone);
        assert!(each(true).unwrap().iter().all(|fitted| fitted.weights().iter().all(|&w| w == 0.0)));
    }

    #[test]
    fn separable_data_without_penalty_stays_finite() {
        let (x, y) = separable(50);
        let model = LogisticRegression::fit(x.view(), &y, 0.0).unwrap();
        assert!(model.weights().iter().all(|w| w.is_finite()));
    }

    #[test]
    fn one_class_ragged_labels_and_missing_values_are_data_errors() {
        let (mut x, y) = separable(20);
        let is_data_error = |r: Result<LogisticRegression>| matches!(r, Err(Error::Data { .. }));
        assert!(is_data_error(LogisticRegression::fit(x.view(), &[1; 20], 1.0)));
        assert!(is_data_error(LogisticRegression::fit(x.view(), &y[1..], 1.0)));
        assert!(is_data_error(LogisticRegression::fit(x.view(), &y, f64::NAN)));
        assert!(is_data_error(LogisticRegression::fit(x.view(), &y, -1.0)));
        x[[3, 2]] = f32::NAN;
        assert!(is_data_error(LogisticRegression::fit(x.view(), &y, 1.0)));
    }
}
