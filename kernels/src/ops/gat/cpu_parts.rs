//! What attention on the CPU has in common: scores of nodes, factors of dropout, how far sums go.

use burn::tensor::TensorMetadata;
use burn_flex::FlexTensor;

use super::Scores;
use crate::ops::dropout::Dropout;
use crate::runtime::flex;
use crate::runtime::rows::Columns;

/// Rows whose contributions are added up before those of all tasks are: enough that the sums of tasks cost nothing.
pub(super) const ROWS_PER_SUM: usize = 256;

/// The scores of nodes by head.
pub(super) struct ScoreTable<'a> {
    values: &'a [f32],
    pub(super) columns: usize,
    pub(super) first: usize,
}

impl<'a> ScoreTable<'a> {
    pub(super) fn of(scores: &'a Scores<FlexTensor>) -> Self {
        let columns = scores.matrix.shape()[1];
        Self { values: flex::slice::<f32>(&scores.matrix), columns, first: scores.first }
    }

    /// Those of the nodes `ids`.
    pub(super) fn at<'b>(&'b self, ids: &'b [u32]) -> Columns<'b> {
        Columns { table: self.values, stride: self.columns, at: self.first, ids }
    }

    /// Those of all heads.
    pub(super) fn row(&self, node: usize, heads: usize) -> &[f32] {
        &self.values[node * self.columns + self.first..][..heads]
    }

    pub(super) fn get(&self, node: usize, head: usize) -> f32 {
        self.values[node * self.columns + self.first + head]
    }
}

/// The factors of dropout on the weights of the entries of a row, or nothing where none is dropped.
pub(super) struct Factors {
    dropout: Option<Dropout>,
    /// By head.
    factors: Vec<Vec<f32>>,
}

impl Factors {
    pub(super) fn new(dropout: Option<Dropout>, heads: usize) -> Self {
        Self { dropout, factors: vec![Vec::new(); heads] }
    }

    /// Those of the entries of `row` in the columns `cols`, both by node.
    pub(super) fn of_row(&mut self, row: usize, cols: &[u32]) {
        let Some(dropout) = self.dropout else { return };
        for (head, factors) in self.factors.iter_mut().enumerate() {
            factors.clear();
            factors.extend(cols.iter().map(|&col| dropout.edge_factor(row as u32, col, head)));
        }
    }

    pub(super) fn of(&self, head: usize, entry: usize) -> f32 {
        self.factors[head].get(entry).map_or(1.0, |&factor| factor)
    }

    pub(super) fn apply(&self, head: usize, weights: &mut [f32]) {
        if self.dropout.is_some() {
            weights.iter_mut().zip(&self.factors[head]).for_each(|(weight, factor)| *weight *= factor);
        }
    }
}
