//! A feature matrix with named columns.

use std::ops::Range;

use rayon::prelude::*;

use super::columns::{Block, Column};
use super::compute::Piece;
use crate::error::{Error, Result};

/// Features of all nodes, row-major in f32, with the names and blocks of the columns.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureTable {
    values: Vec<f32>,
    rows: usize,
    columns: Vec<Column>,
}

impl FeatureTable {
    /// A table of zeros.
    pub(crate) fn zeros(rows: usize, columns: Vec<Column>) -> Self {
        Self { values: vec![0.0; rows * columns.len()], rows, columns }
    }

    pub(super) fn fill(&mut self, piece: &Piece) {
        if self.columns.is_empty() || piece.width == 0 {
            return;
        }
        let place = piece.first..piece.first + piece.width;
        let rows = self.values.par_chunks_exact_mut(self.columns.len());
        rows.zip(piece.values.par_chunks_exact(piece.width)).for_each(|(row, new)| {
            row[place.clone()].copy_from_slice(new);
        });
    }

    /// Number of rows: nodes.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Names and blocks of the columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// All values, row-major.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The features of one node.
    ///
    /// # Panics
    /// When `node` is not below [`num_rows`](Self::num_rows).
    pub fn row(&self, node: usize) -> &[f32] {
        let width = self.columns.len();
        &self.values[node * width..(node + 1) * width]
    }

    /// Blocks in order of first use, each with its columns: what importance is summed over.
    pub fn blocks(&self) -> Vec<(Block, Vec<usize>)> {
        let mut blocks: Vec<(Block, Vec<usize>)> = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            match blocks.iter_mut().find(|(block, _)| *block == column.block) {
                Some((_, members)) => members.push(at),
                None => blocks.push((column.block.clone(), vec![at])),
            }
        }
        blocks
    }

    /// The columns of some blocks alone, in the same order.
    pub fn select(&self, keep: impl Fn(&Column) -> bool) -> Self {
        let kept: Vec<usize> = (0..self.columns.len()).filter(|&at| keep(&self.columns[at])).collect();
        let mut selected = Self::zeros(self.rows, kept.iter().map(|&at| self.columns[at].clone()).collect());
        if !kept.is_empty() {
            let rows = selected.values.par_chunks_exact_mut(kept.len());
            rows.zip(self.values.par_chunks_exact(self.columns.len())).for_each(|(new, old)| {
                new.iter_mut().zip(&kept).for_each(|(new, &at)| *new = old[at]);
            });
        }
        selected
    }

    /// Appends a block `name` of columns `name.0`, `name.1`, … (`name` alone if there is one) that came from elsewhere:
    /// an embedding, a reconstruction error, an out-of-fold score. `values` is `[rows, width]`, row-major; NaN marks a
    /// value that is not known. Returns the new columns.
    ///
    /// # Errors
    /// [`Error::Data`] when the values are not `width` per row, one is infinite, or the block is there already.
    pub fn append(&mut self, name: &str, values: &[f32], width: usize) -> Result<Range<usize>> {
        let refused = |expected: String, found: String, help: &str| Error::Data {
            what: format!("block `{name}`"),
            expected,
            found,
            help: help.into(),
        };
        if width == 0 || Some(values.len()) != self.rows.checked_mul(width) {
            let expected = format!("{} x {width} values, at least one column", self.rows);
            return Err(refused(expected, values.len().to_string(), "give every node one row of the block"));
        }
        if let Some(at) = values.iter().position(|value| value.is_infinite()) {
            let found = format!("{} in row {}, column {}", values[at], at / width, at % width);
            return Err(refused("finite values or NaN".into(), found, "write NaN for a value that is not known"));
        }
        let new: Vec<Column> = (0..width)
            .map(|at| {
                let name_of = if width == 1 { name.to_owned() } else { format!("{name}.{at}") };
                Column::new(name_of, Block::Given(name.to_owned()))
            })
            .collect();
        self.join(new, values)
    }

    /// Appends columns; `values` is `[rows, columns]`, row-major. Returns their places.
    ///
    /// # Errors
    /// [`Error::Data`] for a name that is there already.
    pub(crate) fn join(&mut self, new: Vec<Column>, values: &[f32]) -> Result<Range<usize>> {
        let width = new.len();
        if let Some(column) = new.iter().find(|new| self.columns.iter().any(|column| column.name == new.name)) {
            return Err(Error::Data {
                what: format!("block `{}`", column.block),
                expected: "a new name".into(),
                found: format!("column `{}` again", column.name),
                help: "rename the block".into(),
            });
        }
        if width == 0 {
            return Ok(self.columns.len()..self.columns.len());
        }
        let old = self.columns.len();
        let total = old + width;
        let mut joined = vec![0.0; self.rows * total];
        joined.par_chunks_exact_mut(total).zip(values.par_chunks_exact(width)).enumerate().for_each(
            |(node, (row, new))| {
                row[..old].copy_from_slice(&self.values[node * old..(node + 1) * old]);
                row[old..].copy_from_slice(new);
            },
        );
        self.values = joined;
        self.columns.extend(new);
        Ok(old..total)
    }
}
