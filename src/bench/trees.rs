//! Training of histogram trees on rows that are made up: time to bin, to fit and to predict, quality on held-out rows.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use ndarray::{ArrayView1, ArrayView2};
use ndarray_npy::NpzWriter;
use rayon::prelude::*;
use serde::Serialize;

use super::Note;
use super::memory::{Peak, resident};
use crate::error::{Error, Result};
use crate::graph::atomic_write;
use crate::trees::{BinRule, Booster, BoosterParams, Dataset, Fit, Matrix, Metric, counter};

/// One held-out row to so many training rows.
const HELD_OUT: usize = 5;

/// How to measure.
#[derive(Clone, Debug)]
pub struct TreesOptions {
    /// Training rows, at least 1.
    pub rows: usize,
    /// Features, at least 5: the label depends on so many.
    pub features: usize,
    /// Rounds of boosting.
    pub trees: usize,
    /// Most leaves of a tree.
    pub leaves: u32,
    /// Most bins of a feature.
    pub bins: usize,
    /// Seed of the rows.
    pub seed: u64,
    /// What grows the trees, as a user sees it.
    pub description: String,
    /// File that the rows are written to, for other programs: `x`, `y`, `x_test`, `y_test`.
    pub export: Option<PathBuf>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct TreesReport {
    pub rows: usize,
    pub held_out_rows: usize,
    pub features: usize,
    /// Trees that were grown.
    pub trees: usize,
    pub leaves: u32,
    pub bins: usize,
    pub seed: u64,
    pub device: String,
    pub threads: usize,
    /// Seconds from the matrix to bins.
    pub bin_s: f64,
    /// Seconds of the fit, without binning.
    pub fit_s: f64,
    /// Rows per second of the fit, once per tree.
    pub rows_per_s: f64,
    /// Seconds to score the held-out rows.
    pub predict_s: f64,
    /// Area under the ROC curve on the held-out rows.
    pub auroc: f64,
    /// Largest resident set while binning and fitting, the matrix included; `None` where the system does not tell.
    pub peak: Option<Peak>,
    /// Fingerprint of all trees: the same for the same model, whatever grew it.
    pub fingerprint: String,
}

/// How a booster is fitted.
pub type Fitter<'a> = &'a dyn Fn(&Dataset, Fit, &BoosterParams) -> Result<Booster>;

/// Bins, fits by `fitter` and predicts once.
///
/// # Errors
/// Settings out of range, or a file that cannot be written.
pub fn run(options: &TreesOptions, fitter: Fitter, note: Note) -> Result<TreesReport> {
    let &TreesOptions { rows, features, trees, leaves, bins, seed, .. } = options;
    for (argument, found, least) in [("--rows", rows, 1), ("--features", features, 5), ("--trees", trees, 1)] {
        if found < least {
            let expected = format!("at least {least}");
            return Err(super::usage(argument, &expected, &found.to_string(), "see `graphsieve bench --help`"));
        }
    }
    note("making rows");
    let held_out_rows = rows.div_ceil(HELD_OUT);
    let (x, y) = make(0..rows, features, seed);
    let (x_test, y_test) = make(rows..rows + held_out_rows, features, seed);
    if let Some(path) = &options.export {
        note(&format!("writing {}", path.display()));
        atomic_write(path, |file| {
            let mut archive = NpzWriter::new(file);
            for (name, values) in [("x", &x), ("x_test", &x_test)] {
                let matrix = ArrayView2::from_shape((values.len() / features, features), values);
                archive.add_array(name, &matrix.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            for (name, values) in [("y", &y), ("y_test", &y_test)] {
                archive.add_array(name, &ArrayView1::from(values)).map_err(io::Error::other)?;
            }
            archive.finish().map(|_| ()).map_err(io::Error::other)
        })?;
    }
    let mut params = BoosterParams { rounds: trees, seed, ..BoosterParams::default() };
    params.grow.num_leaves = Some(leaves);
    let rule = BinRule { max_bin: bins, ..BinRule::default() };
    let ((booster, bin_s, fit_s), peak) = resident(|| {
        note("binning");
        let start = Instant::now();
        let data = Dataset::new(&Matrix::f32(&x, features)?, &rule)?;
        // Nothing needs the values any more.
        drop(x);
        let bin_s = start.elapsed().as_secs_f64();
        note("fitting");
        let start = Instant::now();
        let booster = fitter(&data, Fit::labels(&y), &params)?;
        Ok::<_, Error>((booster, bin_s, start.elapsed().as_secs_f64()))
    })?;
    note("predicting");
    let start = Instant::now();
    let scores = booster.predict(&Matrix::f32(&x_test, features)?)?;
    let predict_s = start.elapsed().as_secs_f64();
    Ok(TreesReport {
        rows,
        held_out_rows,
        features,
        trees: booster.trees.len(),
        leaves,
        bins,
        seed,
        device: options.description.clone(),
        threads: rayon::current_num_threads(),
        bin_s,
        fit_s,
        rows_per_s: (rows * booster.trees.len()) as f64 / fit_s,
        predict_s,
        auroc: Metric::Auroc.of(&scores, &y_test)?,
        peak,
        fingerprint: fingerprint(&booster),
    })
}

fn fingerprint(booster: &Booster) -> String {
    let words: Vec<u64> = booster.to_json().bytes().map(u64::from).collect();
    format!("{:016x}", counter::bits(0, &words))
}

/// Values uniform in [−1, 1), and labels from the logistic of a margin with a linear, a wavy, a joint and a stepped
/// term. Every feature of it matters on its own: where two matter only together, the first tree that splits them is a
/// matter of luck, and so is the quality.
fn make(rows: std::ops::Range<usize>, features: usize, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let mut values = vec![0f32; rows.len() * features];
    let draw = |row: usize, what: usize| counter::uniform(seed, &[row as u64, what as u64]);
    let labels = values
        .par_chunks_mut(features)
        .zip(rows)
        .map(|(line, row)| {
            line.iter_mut().enumerate().for_each(|(col, value)| *value = (2.0 * draw(row, col) - 1.0) as f32);
            let [linear, wavy, left, right, step] = [0, 1, 2, 3, 4].map(|col| line[col] as f64);
            let margin = 2.0 * linear + (3.0 * wavy).sin() + 2.0 * left.max(right) + (step > 0.3) as u8 as f64 - 1.0;
            (draw(row, features) < 1.0 / (1.0 + (-margin).exp())) as u8 as f32
        })
        .collect();
    (values, labels)
}

impl fmt::Display for TreesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, held_out_rows, features, trees, leaves, bins, seed, threads, .. } = self;
        writeln!(f, "{rows} rows of {features} features, {held_out_rows} held out, seed {seed}")?;
        writeln!(f, "{}; {threads} threads", self.device)?;
        writeln!(f, "{trees} trees of up to {leaves} leaves, up to {bins} bins\n")?;
        writeln!(f, "bin          {:9.3} s", self.bin_s)?;
        writeln!(f, "fit          {:9.3} s  {:.2} M rows/s per tree", self.fit_s, self.rows_per_s / 1e6)?;
        writeln!(f, "predict      {:9.3} s", self.predict_s)?;
        writeln!(f, "AUROC        {:9.5}", self.auroc)?;
        writeln!(f, "model        {}", self.fingerprint)?;
        self.peak.map_or(Ok(()), |peak| writeln!(f, "peak memory  {:9.1} MB", peak.bytes as f64 / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_depend_on_how_many_are_made() {
        let (all, labels) = make(0..50, 6, 3);
        let (some, some_labels) = make(20..30, 6, 3);
        assert_eq!((&all[120..180], &labels[20..30]), (&some[..], &some_labels[..]));
        assert!(labels.contains(&0.0) && labels.contains(&1.0));
        assert_ne!(make(0..50, 6, 4).0, all);
    }
}
