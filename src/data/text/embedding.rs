//! Text columns of nodes: hashed TF-IDF by default, sentence embeddings when the user has them; both reduced to their
//! leading directions.

use std::path::Path;

use ndarray::{Array2, Axis};
use rayon::prelude::*;

use super::ragged::Ragged;
use super::subspace::{Block, LANES, RowSpace, leading_vectors};
use super::terms::{NUM_COLUMNS, Term};
use crate::error::Result;
use crate::graph::read_embeddings;

/// Passes of the subspace iteration; enough for features, whose last directions carry little.
const ITERATIONS: usize = 4;

/// Text directions ready to be written row by row.
pub(in crate::data) struct TextColumns {
    rows: Box<dyn RowSpace>,
    basis: Vec<Block>,
    scale: f32,
}

impl TextColumns {
    /// Reduces `rows` to `columns` leading directions, a multiple of [`LANES`]; scaled by one factor so that the mean
    /// square length of a row is 1. `progress` is told the steps that are done and their number.
    pub fn new(rows: Box<dyn RowSpace>, columns: usize, seed: u64, progress: &dyn Fn(u64, u64)) -> Self {
        let (basis, scale) = reduced(rows.as_ref(), columns, seed, progress);
        Self { rows, basis, scale }
    }

    /// Writes the columns of row `i`.
    pub fn write(&self, i: usize, out: &mut [f32]) {
        self.rows.project(i, &self.basis, out);
        out.iter_mut().for_each(|value| *value *= self.scale);
    }
}

/// The leading directions of `rows` and the factor that makes the mean square length of a row 1, see
/// [`TextColumns::new`].
pub(super) fn reduced(
    rows: &dyn RowSpace,
    columns: usize,
    seed: u64,
    progress: &dyn Fn(u64, u64),
) -> (Vec<Block>, f32) {
    let total = ITERATIONS as u64 + 1;
    let report = |done| progress(done, total);
    report(0);
    let (basis, rms) = leading_vectors(rows, columns / LANES, ITERATIONS, seed, report);
    (basis, if rms > 0.0 { rms.recip() as f32 } else { 0.0 })
}

/// Rows `(1 + ln tf) * idf`, of length one; `idf = ln((1 + rows) / (1 + df)) + 1`. Weights are computed on the fly, so
/// a term costs four bytes.
pub(in crate::data) struct TfIdf {
    terms: Ragged<Term>,
    /// Columns that occur, numbered from 0: the vectors of the iteration are that long.
    position: Vec<u32>,
    idf: Vec<f32>,
    /// 1 / length of each row before scaling.
    inverse_length: Vec<f32>,
    /// Rows from which frequencies and directions are learned; `None`: all.
    fitted: Option<Vec<u32>>,
}

impl TfIdf {
    /// Of all rows.
    pub fn new(terms: Ragged<Term>) -> Self {
        Self::build(terms, None)
    }

    /// Frequencies and directions are those of the rows `fitted`, in ascending order; every row is projected on them.
    pub fn fitted_on(terms: Ragged<Term>, fitted: Vec<u32>) -> Self {
        Self::build(terms, Some(fitted))
    }

    fn build(terms: Ragged<Term>, fitted: Option<Vec<u32>>) -> Self {
        let mut seen = vec![false; NUM_COLUMNS];
        terms.items().iter().for_each(|term| seen[usize::from(term.column)] = true);
        let mut frequency = vec![0_u32; NUM_COLUMNS];
        let mut count = |terms: &[Term]| terms.iter().for_each(|term| frequency[usize::from(term.column)] += 1);
        match &fitted {
            None => count(terms.items()),
            Some(rows) => rows.iter().for_each(|&row| count(terms.row(row as usize))),
        }
        let rows = fitted.as_ref().map_or(terms.num_rows(), Vec::len);
        let mut position = vec![0; NUM_COLUMNS];
        let mut idf = Vec::new();
        for (column, &df) in frequency.iter().enumerate().filter(|(column, _)| seen[*column]) {
            position[column] = idf.len() as u32;
            idf.push(idf_of(rows, df));
        }
        let mut result = Self { terms, position, idf, inverse_length: Vec::new(), fitted };
        result.inverse_length = (0..result.terms.num_rows())
            .into_par_iter()
            .map(|row| result.weights(row).map(|(_, w)| w * w).sum::<f32>().sqrt())
            .map(|length| if length > 0.0 { length.recip() } else { 0.0 })
            .collect();
        result
    }

    /// Number of the component of a column that occurs.
    pub fn position_of(&self, column: usize) -> usize {
        self.position[column] as usize
    }

    /// By number of component.
    pub fn idf(&self) -> &[f32] {
        &self.idf
    }

    /// That of a term which no fitted row has.
    pub fn unseen_idf(&self) -> f32 {
        idf_of(self.num_rows(), 0)
    }

    /// What it was made of.
    pub fn into_terms(self) -> Ragged<Term> {
        self.terms
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

/// `ln((1 + rows) / (1 + df)) + 1`.
fn idf_of(rows: usize, df: u32) -> f32 {
    ((1.0 + rows as f32) / (1.0 + df as f32)).ln() + 1.0
}

impl RowSpace for TfIdf {
    fn num_rows(&self) -> usize {
        self.fitted.as_ref().map_or(self.terms.num_rows(), Vec::len)
    }

    fn dim(&self) -> usize {
        self.idf.len()
    }

    fn gram(&self, v: &Block) -> Block {
        let mut out = vec![[0.0; LANES]; self.dim()];
        for at in 0..self.num_rows() {
            let row = self.fitted.as_ref().map_or(at, |rows| rows[at] as usize);
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
pub(in crate::data) struct Embeddings {
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
