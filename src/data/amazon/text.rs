//! Text columns of the products: hashed TF-IDF by default, sentence embeddings when the user has them; both reduced
//! to [`TEXT_COLUMNS`] principal directions.

use std::path::Path;

use ndarray::{Array2, Axis};
use rayon::prelude::*;

use super::ragged::Ragged;
use super::subspace::{Block, LANES, RowSpace, leading_vectors};
use super::terms::{NUM_COLUMNS, Term};
use super::{Progress, features::TEXT_COLUMNS};
use crate::error::Result;
use crate::graph::read_embeddings;

/// Passes of the subspace iteration; enough for features, whose last directions carry little.
const ITERATIONS: usize = 4;

/// Text directions ready to be written row by row.
pub(super) struct TextColumns {
    rows: Box<dyn RowSpace>,
    basis: Vec<Block>,
    scale: f32,
}

impl TextColumns {
    /// Reduces `rows` to its leading directions; scaled by one factor so that the mean square length of a row is 1.
    pub fn new(rows: Box<dyn RowSpace>, seed: u64, progress: &dyn Fn(Progress)) -> Self {
        let total = ITERATIONS as u64 + 1;
        let report = |done| progress(Progress { stage: "text", done, total });
        report(0);
        let (basis, rms) = leading_vectors(rows.as_ref(), TEXT_COLUMNS / LANES, ITERATIONS, seed, report);
        Self { rows, basis, scale: if rms > 0.0 { rms.recip() as f32 } else { 0.0 } }
    }

    /// Writes the columns of product `i`.
    pub fn write(&self, i: usize, out: &mut [f32]) {
        self.rows.project(i, &self.basis, out);
        out.iter_mut().for_each(|value| *value *= self.scale);
    }
}

/// Rows `(1 + ln tf) * idf`, of length one; `idf = ln((1 + rows) / (1 + df)) + 1`. Weights are computed on the fly, so
/// a term costs four bytes.
pub(super) struct TfIdf {
    terms: Ragged<Term>,
    /// Columns that occur, numbered from 0: the vectors of the iteration are that long.
    position: Vec<u32>,
    idf: Vec<f32>,
    /// 1 / length of each row before scaling.
    inverse_length: Vec<f32>,
}

impl TfIdf {
    pub fn new(terms: Ragged<Term>) -> Self {
        let mut frequency = vec![0_u32; NUM_COLUMNS];
        terms.items().iter().for_each(|term| frequency[usize::from(term.column)] += 1);
        let mut position = vec![0; NUM_COLUMNS];
        let mut idf = Vec::new();
        for (column, &df) in frequency.iter().enumerate().filter(|(_, df)| **df > 0) {
            position[column] = idf.len() as u32;
            idf.push(((1.0 + terms.num_rows() as f32) / (1.0 + df as f32)).ln() + 1.0);
        }
        let mut result = Self { terms, position, idf, inverse_length: Vec::new() };
        result.inverse_length = (0..result.terms.num_rows())
            .into_par_iter()
            .map(|row| result.weights(row).map(|(_, w)| w * w).sum::<f32>().sqrt())
            .map(|length| if length > 0.0 { length.recip() } else { 0.0 })
            .collect();
        result
    }

    /// Positions and weights of a row before it is scaled to length one.
    fn weights(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        self.terms.row(row).iter().map(|term| {
            let position = self.position[usize::from(term.column)] as usize;
            let frequency = if term.count == 1 { 1.0 } else { 1.0 + f32::from(term.count).ln() };
            (position, frequency * self.idf[position])
        })
    }

    fn dot(&self, row: usize, v: &Block) -> [f32; LANES] {
        let mut y = [0.0; LANES];
        for (position, weight) in self.weights(row) {
            y.iter_mut().zip(v[position]).for_each(|(y, v)| *y += weight * v);
        }
        y.map(|y| y * self.inverse_length[row])
    }
}

impl RowSpace for TfIdf {
    fn num_rows(&self) -> usize {
        self.terms.num_rows()
    }

    fn dim(&self) -> usize {
        self.idf.len()
    }

    fn gram(&self, v: &Block) -> Block {
        let mut out = vec![[0.0; LANES]; self.dim()];
        for row in 0..self.num_rows() {
            let y = self.dot(row, v).map(|y| y * self.inverse_length[row]);
            for (position, weight) in self.weights(row) {
                out[position].iter_mut().zip(y).for_each(|(out, y)| *out += weight * y);
            }
        }
        out
    }

    fn project(&self, row: usize, basis: &[Block], out: &mut [f32]) {
        for (block, out) in basis.iter().zip(out.chunks_mut(LANES)) {
            out.copy_from_slice(&self.dot(row, block));
        }
    }
}

/// The user's embeddings, centred on their mean: their leading directions are the principal components.
pub(super) struct Embeddings {
    rows: Array2<f32>,
    mean: Vec<f32>,
}

impl Embeddings {
    /// Reads `[num_products, d]`, one row per product in the order of the sorted product ids.
    ///
    /// # Errors
    /// Those of [`read_embeddings`], which names a wrong number of rows or a value that is not finite.
    pub fn read(path: &Path, num_products: usize) -> Result<Self> {
        let rows = read_embeddings(path, Some(num_products))?;
        // Rows are taken as slices below.
        let rows = rows.as_standard_layout().into_owned();
        let sums =
            rows.axis_iter(Axis(1)).into_par_iter().map(|column| column.iter().map(|&x| f64::from(x)).sum::<f64>());
        let mean = sums.map(|sum: f64| (sum / num_products as f64) as f32).collect();
        Ok(Self { rows, mean })
    }

    fn dot(&self, row: usize, v: &Block) -> [f32; LANES] {
        let mut y = [0.0; LANES];
        for ((x, mean), v) in self.rows.row(row).iter().zip(&self.mean).zip(v) {
            y.iter_mut().zip(v).for_each(|(y, v)| *y += (x - mean) * v);
        }
        y
    }
}

impl RowSpace for Embeddings {
    fn num_rows(&self) -> usize {
        self.rows.nrows()
    }

    fn dim(&self) -> usize {
        self.rows.ncols()
    }

    fn gram(&self, v: &Block) -> Block {
        let mut out = vec![[0.0; LANES]; self.dim()];
        for row in 0..self.num_rows() {
            let y = self.dot(row, v);
            for ((x, mean), out) in self.rows.row(row).iter().zip(&self.mean).zip(&mut out) {
                out.iter_mut().zip(y).for_each(|(out, y)| *out += (x - mean) * y);
            }
        }
        out
    }

    fn project(&self, row: usize, basis: &[Block], out: &mut [f32]) {
        for (block, out) in basis.iter().zip(out.chunks_mut(LANES)) {
            out.copy_from_slice(&self.dot(row, block));
        }
    }
}
