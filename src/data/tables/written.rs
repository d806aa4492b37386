//! From the columns of a node's features back to what its table says, for explanations.

use std::iter;

use half::f16;
use serde::{Deserialize, Serialize};

use super::description::{Encoding, FeatureKind};
use super::encode;
use super::fitting::{Scaler, signed_exp_m1};
use super::one_row::{RowTables, Source};
use super::transforms::Fitted;
use crate::data::text::hashing::hash_text;

/// Digits that tell any two numbers of single precision apart.
const MAX_DIGITS: usize = 9;

/// What a table says where a model reads a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Written {
    /// The column of the table; of a figure over edges or a window what its column is called.
    pub column: String,
    /// What stands there; `None` for an empty cell.
    pub value: Option<String>,
    /// Whether features, which are kept in half precision, are the same of a number that differs by a hundredth; of
    /// less than one by a hundredth part.
    pub is_rounded: bool,
}

impl Written {
    fn new(column: &str, value: Option<String>) -> Self {
        Self { column: column.into(), value, is_rounded: false }
    }
}

impl RowTables {
    /// By column what the tables say of a node of a type whose features are `row`: of a number the one with the fewest
    /// digits that becomes them, of a category its name where it is kept. `None` for columns of which they do not tell:
    /// times and texts, rare categories, those of other types.
    pub fn written(&self, node_type: &str, row: &[f32]) -> Vec<Option<Written>> {
        let mut all = vec![None; row.len()];
        let sources = self.node_table(node_type).map_or(&[][..], |at| self.nodes[at].as_slice());
        for source in sources {
            let range = source.start..source.start + source.width;
            if let (Some(fitted), Some(cells)) = (self.stored.transforms.get(&source.fitted), row.get(range.clone())) {
                all[range].clone_from_slice(&self.of_source(source, fitted, cells));
            }
        }
        let is_own = |at: usize| sources.iter().any(|source| (source.start..source.start + source.width).contains(&at));
        for (at, (name, &stored)) in self.stored.columns.iter().zip(row).enumerate() {
            // Where nothing is known there is a zero, as in the columns of other types.
            if stored != 0.0
                && !is_own(at)
                && let Some(fitted) = self.stored.transforms.get(name)
            {
                all[at] = number(name, stored, true, fitted.scaler());
            }
        }
        all
    }

    /// The columns of a source.
    fn of_source(&self, source: &Source, fitted: &Fitted, cells: &[f32]) -> Vec<Option<Written>> {
        let name = &source.column;
        let (nothing, mut found) = (Some(Written::new(name, None)), vec![None; cells.len()]);
        let flagged = |value: Option<Written>| {
            let is_missing = cells[1] == 1.0;
            let flag = Written::new(&format!("{name} missing"), Some(is_missing.to_string()));
            vec![if is_missing { nothing.clone() } else { value }, Some(flag)]
        };
        match &source.kind {
            FeatureKind::Numeric { log, .. } => flagged(number(name, cells[0], *log, fitted.scaler())),
            FeatureKind::Boolean {} => flagged(Some(Written::new(name, Some((cells[0] == 1.0).to_string())))),
            FeatureKind::Categorical { encoding: Encoding::Frequency, .. } => {
                let scaler = fitted.scaler();
                let is_it = |_, rows| is_same(encode::scaled_frequency(rows, scaler), cells[0]);
                flagged(self.category(source, fitted, is_it))
            }
            FeatureKind::Categorical { encoding: Encoding::Hash, .. } => {
                let mut direction = vec![0.0; cells.len()];
                let is_it = |hash, _| {
                    direction.fill(0.0);
                    encode::direction(hash, &mut direction);
                    direction.iter().zip(cells).all(|(&made, &stored)| is_same(made, stored))
                };
                let is_missing = cells.iter().all(|&stored| stored == 0.0);
                found.fill(if is_missing { nothing } else { self.category(source, fitted, is_it) });
                found
            }
            FeatureKind::Timestamp { .. } | FeatureKind::Text { .. } => found,
        }
    }

    /// The one category that `is_it` holds for, given by its hash and its fitted rows.
    fn category(&self, source: &Source, fitted: &Fitted, is_it: impl FnMut(u64, u32) -> bool) -> Option<Written> {
        let names = self.stored.category_names.get(&source.fitted)?;
        let hash = fitted.categories.as_ref()?.only(is_it)?;
        let name = names.iter().find(|name| hash_text(name) == hash)?;
        Some(Written::new(&source.column, Some(name.clone())))
    }
}

/// Whether a value becomes a feature.
fn is_same(made: f32, stored: f32) -> bool {
    f16::from_f32(made) == f16::from_f32(stored)
}

/// The number with the fewest digits that becomes a feature, scaled or the logarithm first.
fn number(column: &str, stored: f32, log: bool, scaler: Scaler) -> Option<Written> {
    let near = scaler.inverse(stored);
    let near = if log { signed_exp_m1(near) } else { near };
    let becomes = |value: f32| {
        let mut cells = [0.0; 2];
        encode::number(Some(value), log, 0.0, scaler, &mut cells);
        is_same(cells[0], stored)
    };
    let of_digits = |digits: usize| format!("{near:.digits$e}").parse::<f32>().ok();
    // No digits of what half precision keeps of a scaled zero are zero.
    let value = iter::once(0.0).chain((0..MAX_DIGITS).filter_map(of_digits)).find(|&value| becomes(value))?;
    let step = (value.abs() / 100.0).min(0.01);
    let is_rounded = step > 0.0 && (becomes(value + step) || becomes(value - step));
    // Minus zero is none that somebody writes.
    Some(Written { is_rounded, ..Written::new(column, Some((value + 0.0).to_string())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_written_as_far_as_half_precision_tells() {
        let back = |value: f32, log: bool, scaler: Scaler| {
            let mut cells = [0.0; 2];
            encode::number(Some(value), log, 0.0, scaler, &mut cells);
            let Written { value, is_rounded, .. } = number("x", f16::from_f32(cells[0]).to_f32(), log, scaler).unwrap();
            (value.unwrap(), is_rounded)
        };
        let scaler = Scaler { centre: 20.0, spread: 8.0 };
        let whole = [12.5, 0.0, -3.0, 20.0, 7.25].map(|value| back(value, false, scaler));
        assert_eq!(whole, ["12.5", "0", "-3", "20", "7.25"].map(|text| (text.to_owned(), false)));
        // 111.6 units of the scale are drawn in, where half precision tells steps of a fifth.
        let (far, is_rounded) = back(912.5, false, scaler);
        assert!(is_rounded && (far.parse::<f32>().unwrap() - 912.5).abs() < 4.0, "{far}");
        let (log, is_rounded) = back(950.0, true, Scaler { centre: 3.0, spread: 1.5 });
        assert!(is_rounded && (log.parse::<f32>().unwrap() / 950.0 - 1.0).abs() < 0.005, "{log}");
        // Half precision has no exact place of this zero.
        assert_eq!(back(0.0, false, Scaler { centre: 3.3, spread: 1.7 }), ("0".into(), false));
        assert_eq!(back(3.0, true, Scaler { centre: 1.0, spread: 1.0 }), ("3".into(), false));
    }
}
