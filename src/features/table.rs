//! A feature matrix with named columns.

use std::collections::HashSet;
use std::ops::Range;

use rayon::prelude::*;

use super::columns::{Block, Column};
use crate::error::{Error, Result};
use crate::graph::{FeatureValues, Features, Spill};

/// Some columns of all nodes.
#[derive(Debug)]
pub struct Piece {
    /// Number of the first column.
    pub first: usize,
    /// Number of columns.
    pub width: usize,
    /// `[nodes, width]`, row-major: finite, or NaN for what is missing.
    pub values: Vec<f32>,
}

/// Features of all nodes in f32, with the names and blocks of the columns.
///
/// Columns lie in pieces, each a row-major matrix of all nodes in memory or in a mapped file: as they were computed,
/// and as they came from elsewhere. Clones share them.
#[derive(Clone, Debug)]
pub struct FeatureTable {
    /// Side by side.
    pieces: Vec<Features>,
    rows: usize,
    columns: Vec<Column>,
}

impl PartialEq for FeatureTable {
    /// The same columns with the same values, whatever pieces they lie in.
    fn eq(&self, other: &Self) -> bool {
        (self.rows, &self.columns) == (other.rows, &other.columns)
            && (0..self.rows).all(|node| self.row(node) == other.row(node))
    }
}

impl FeatureTable {
    /// A table of zeros.
    #[cfg(test)]
    pub(crate) fn zeros(rows: usize, columns: Vec<Column>) -> Self {
        Self::of(vec![0.0; rows * columns.len()], rows, columns)
    }

    /// The values of all columns, row-major.
    fn of(values: Vec<f32>, rows: usize, columns: Vec<Column>) -> Self {
        Self { pieces: vec![Features::from_f32(values, rows, columns.len())], rows, columns }
    }

    /// A table whose `columns` are those that `compute` hands over, each once and in any order. Pieces that need more
    /// memory than `spill` has lie in files.
    pub(super) fn filled(
        rows: usize,
        columns: Vec<Column>,
        spill: &Spill,
        compute: impl FnOnce(&mut dyn FnMut(Piece) -> Result<()>) -> Result<()>,
    ) -> Result<Self> {
        if rows == 0 {
            return Ok(Self::of(Vec::new(), 0, columns));
        }
        let (mut pieces, mut held) = (Vec::new(), 0);
        compute(&mut |Piece { first, width, values }| {
            let piece = spill.beside(held).keep(values, rows, width)?;
            held += piece.bytes_in_memory();
            pieces.push((first, piece));
            Ok(())
        })?;
        pieces.sort_unstable_by_key(|(first, _)| *first);
        let pieces: Vec<Features> = pieces.into_iter().map(|(_, piece)| piece).collect();
        let width: usize = pieces.iter().map(Features::dim).sum();
        assert_eq!(width, columns.len(), "FeatureTable: expected every column once");
        Ok(Self { pieces, rows, columns })
    }

    /// Number of rows: nodes.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Names and blocks of the columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The values of some rows, piece by piece: those of each, row-major, and its number of columns.
    ///
    /// # Panics
    /// For rows that are not there.
    pub fn pieces(&self, rows: Range<usize>) -> impl Iterator<Item = (&[f32], usize)> {
        self.pieces.iter().map(move |piece| {
            let width = piece.dim();
            (&values_of(piece)[rows.start * width..rows.end * width], width)
        })
    }

    /// Gives back the memory of what was read of pieces in files.
    pub(crate) fn let_go(&self) {
        self.pieces.iter().for_each(Features::let_go);
    }

    /// Bytes of the pieces in memory.
    pub fn bytes_in_memory(&self) -> u64 {
        self.pieces.iter().map(Features::bytes_in_memory).sum()
    }

    /// The features of one node.
    ///
    /// # Panics
    /// When `node` is not below [`num_rows`](Self::num_rows).
    pub fn row(&self, node: usize) -> Vec<f32> {
        self.pieces.iter().flat_map(|piece| piece.row(node)).collect()
    }

    /// The rows of some nodes, in their order.
    ///
    /// # Panics
    /// When one of them is not below [`num_rows`](Self::num_rows).
    pub fn rows(&self, nodes: &[u32]) -> Self {
        let pieces = self.pieces.iter().map(|piece| piece.select(nodes)).collect();
        Self { pieces, rows: nodes.len(), columns: self.columns.clone() }
    }

    /// The values of all nodes in one column.
    ///
    /// # Panics
    /// For a column that is not there.
    pub fn column(&self, column: usize) -> impl Iterator<Item = f32> + Clone + '_ {
        let mut place = column;
        let of = self.pieces(0..self.rows).find(|(_, width)| {
            let found = place < *width;
            place -= if found { 0 } else { *width };
            found
        });
        let (values, width) = of.unwrap_or_else(|| panic!("FeatureTable: expected a column, got {column}"));
        values.iter().skip(place).step_by(width).copied()
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
        let columns: Vec<Column> = kept.iter().map(|&at| self.columns[at].clone()).collect();
        let mut values = vec![0.0; self.rows * kept.len()];
        if !kept.is_empty() {
            values.par_chunks_exact_mut(kept.len()).enumerate().for_each(|(node, new)| {
                let row = self.row(node);
                new.iter_mut().zip(&kept).for_each(|(new, &at)| *new = row[at]);
            });
        }
        Self::of(values, self.rows, columns)
    }

    /// Appends a block `name` of columns `name.0`, `name.1`, … (`name` alone if there is one) that came from elsewhere:
    /// an embedding, a reconstruction error, an out-of-fold score. `values` is `[rows, width]`, in f32; NaN marks a
    /// value that is not known. Returns the new columns.
    ///
    /// # Errors
    /// [`Error::Data`] when there is not a row per node or no column, a value is infinite, or the block is there
    /// already.
    ///
    /// # Panics
    /// For values of f16.
    pub fn append(&mut self, name: &str, block: Features) -> Result<Range<usize>> {
        let refused = |expected: String, found: String, help: &str| Error::Data {
            what: format!("block `{name}`"),
            expected,
            found,
            help: help.into(),
        };
        let width = block.dim();
        if width == 0 || block.num_rows() != self.rows {
            let expected = format!("{} rows, of at least one column", self.rows);
            let found = format!("{} rows of {width} columns", block.num_rows());
            return Err(refused(expected, found, "give every node one row of the block"));
        }
        let values = values_of(&block);
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
        self.join(new, block)
    }

    /// Appends columns, `[rows, columns]` in f32. Returns their places.
    ///
    /// # Errors
    /// [`Error::Data`] for a name that is there already.
    pub(crate) fn join(&mut self, new: Vec<Column>, values: Features) -> Result<Range<usize>> {
        let expected = [self.rows, new.len()];
        assert_eq!([values.num_rows(), values.dim()], expected, "FeatureTable: expected a row per node");
        let known: HashSet<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        if let Some(column) = new.iter().find(|new| known.contains(new.name.as_str())) {
            return Err(Error::Data {
                what: format!("block `{}`", column.block),
                expected: "a new name".into(),
                found: format!("column `{}` again", column.name),
                help: "rename the block".into(),
            });
        }
        let old = self.columns.len();
        if !new.is_empty() {
            self.pieces.push(values);
            self.columns.extend(new);
        }
        Ok(old..self.columns.len())
    }
}

/// The values of a piece.
fn values_of(piece: &Features) -> &[f32] {
    match piece.values() {
        FeatureValues::Single(values) => values,
        FeatureValues::Half(_) => panic!("FeatureTable: expected f32, got f16"),
    }
}
