//! Texts of a table as fitted: the weights of their terms and the directions that they are projected on.

use super::embedding::{TfIdf, reduced};
use super::ragged::Ragged;
use super::subspace::{Block, LANES};
use super::terms::{NUM_COLUMNS, Term};

/// TF-IDF and its leading directions, learned from some texts and applied to any.
///
/// Of a text with terms `t` and weights `w(t) = (1 + ln tf(t)) * idf(t)` the columns are `scale * (w / |w|) · basis`. A
/// term that no fitted text has is one of no fitted text in `idf`, and has no direction: it makes a text longer only.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::data) struct TextDirections {
    /// Columns of the term matrix that fitted texts have, ascending.
    columns: Vec<u16>,
    /// One per column.
    idf: Vec<f32>,
    /// Of every other column.
    unseen: f32,
    /// Eight directions each, one component per column.
    basis: Vec<Block>,
    scale: f32,
    /// By column of the term matrix the number of its component, `idf.len()` for one that has none.
    position: Vec<u32>,
}

impl TextDirections {
    /// Learns `width` directions, a multiple of [`LANES`], from the rows `fitted` of `terms`, in ascending order.
    /// Returns the terms too.
    pub fn fit(terms: Ragged<Term>, fitted: Vec<u32>, width: usize, seed: u64) -> (Self, Ragged<Term>) {
        let mut seen = vec![false; NUM_COLUMNS];
        let of_fitted = fitted.iter().flat_map(|&row| terms.row(row as usize));
        of_fitted.for_each(|term| seen[usize::from(term.column)] = true);
        let rows = TfIdf::fitted_on(terms, fitted);
        let (basis, scale) = reduced(&rows, width, seed, &|_, _| {});
        let kept: Vec<usize> = (0..NUM_COLUMNS).filter(|&column| seen[column]).collect();
        // Directions are sums of fitted rows: other columns have no part in them.
        let at: Vec<usize> = kept.iter().map(|&column| rows.position_of(column)).collect();
        let result = Self::from_parts(
            kept.iter().map(|&column| column as u16).collect(),
            at.iter().map(|&at| rows.idf()[at]).collect(),
            rows.unseen_idf(),
            basis.iter().map(|block| at.iter().map(|&at| block[at]).collect()).collect(),
            scale,
        );
        (result, rows.into_terms())
    }

    /// Puts stored parts together: ascending `columns`, one `idf` and one component of each block per column.
    pub fn from_parts(columns: Vec<u16>, idf: Vec<f32>, unseen: f32, basis: Vec<Block>, scale: f32) -> Self {
        let mut position = vec![idf.len() as u32; NUM_COLUMNS];
        columns.iter().enumerate().for_each(|(at, &column)| position[usize::from(column)] = at as u32);
        Self { columns, idf, unseen, basis, scale, position }
    }

    /// Columns, their weights and their directions.
    pub fn parts(&self) -> (&[u16], &[f32], &[Block]) {
        (&self.columns, &self.idf, &self.basis)
    }

    /// Weight of terms that no fitted text has, and the factor of all columns.
    pub fn factors(&self) -> (f32, f32) {
        (self.unseen, self.scale)
    }

    /// Number of columns that it makes.
    pub fn width(&self) -> usize {
        self.basis.len() * LANES
    }

    /// Writes the columns of a text.
    pub fn write(&self, terms: &[Term], out: &mut [f32]) {
        let weights = || {
            terms.iter().map(|term| {
                let at = self.position[usize::from(term.column)] as usize;
                let frequency = if term.count == 1 { 1.0 } else { 1.0 + f32::from(term.count).ln() };
                (at, frequency * self.idf.get(at).copied().unwrap_or(self.unseen))
            })
        };
        let length = weights().map(|(_, weight)| weight * weight).sum::<f32>().sqrt();
        let inverse_length = if length > 0.0 { length.recip() } else { 0.0 };
        for (block, out) in self.basis.iter().zip(out.chunks_mut(LANES)) {
            let mut sums = [0.0; LANES];
            for (at, weight) in weights().filter(|(at, _)| *at < block.len()) {
                sums.iter_mut().zip(block[at]).for_each(|(sum, v)| *sum += weight * v);
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * inverse_length * self.scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::embedding::TextColumns;
    use super::*;

    fn texts() -> Ragged<Term> {
        let mut rows = Ragged::default();
        for row in 0..60u16 {
            let terms = (0..40u16).filter(|column| (row * 7 + column * 3) % 5 == 0 || *column == row % 40);
            rows.push_row(terms.map(|column| Term { column: column * 9, count: 1 + (row + column) % 3 }));
        }
        rows
    }

    #[test]
    fn directions_of_the_fitted_rows_are_those_of_the_whole_table() {
        let fitted: Vec<u32> = (0..60).filter(|row| row % 4 != 1).collect();
        let (directions, terms) = TextDirections::fit(texts(), fitted.clone(), 16, 5);
        assert_eq!(terms, texts());
        let whole = TextColumns::new(Box::new(TfIdf::fitted_on(texts(), fitted)), 16, 5, &|_, _| {});
        let (mut found, mut expected) = ([0.0; 16], [0.0; 16]);
        for row in 0..60 {
            directions.write(terms.row(row), &mut found);
            whole.write(row, &mut expected);
            assert_eq!(found, expected, "row {row}");
            assert!(found.iter().any(|value| *value != 0.0));
        }
    }

    #[test]
    fn a_term_that_was_never_seen_makes_a_text_longer_and_gives_it_no_direction() {
        let (directions, terms) = TextDirections::fit(texts(), (0..60).collect(), 8, 5);
        let (mut without, mut with) = ([0.0; 8], [0.0; 8]);
        directions.write(terms.row(3), &mut without);
        let mut longer = terms.row(3).to_vec();
        longer.push(Term { column: 60_000, count: 2 });
        directions.write(&longer, &mut with);
        let ratio = with[0] / without[0];
        assert!(ratio > 0.0 && ratio < 1.0, "{ratio}");
        assert!(with.iter().zip(without).all(|(a, b)| (a - b * ratio).abs() < 1e-6));
        directions.write(&longer[longer.len() - 1..], &mut with);
        assert_eq!(with, [0.0; 8]);
    }
}
