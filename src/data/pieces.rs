//! Where the columns of a table are cut into pieces.

use std::sync::Arc;

use rayon::prelude::*;

use crate::graph::Features;

/// Rows on either side of a cut, at least.
const LEAST: usize = 20;

/// Cuts every column where it tells the labels of some rows apart best: the bounds of `pieces` pieces,
/// `[columns, pieces + 1]`, ascending. They are the smallest value, the splits of a decision tree on the column alone
/// (Gini impurity, the best split of all leaves first, at least 20 rows a leaf) and the largest value, which stands
/// again for pieces that a column does not need.
///
/// # Source
/// Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning (NeurIPS 2022): the
/// target-aware bins of their piecewise linear encoding.
pub fn bounds(features: &Features, labels: &[(u32, u8)], pieces: usize) -> Arc<[f32]> {
    let columns = features.dim();
    let mut values = vec![0.0f32; columns * labels.len()];
    for (at, (node, _)) in labels.iter().enumerate() {
        let row = features.row(*node as usize).enumerate();
        row.for_each(|(column, value)| values[column * labels.len() + at] = value);
    }
    let of_column = |column: usize| {
        let values = &values[column * labels.len()..(column + 1) * labels.len()];
        let mut sorted: Vec<(f32, u8)> = values.iter().copied().zip(labels.iter().map(|(_, label)| *label)).collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        of_sorted(&sorted, pieces)
    };
    (0..columns).into_par_iter().flat_map_iter(of_column).collect::<Vec<f32>>().into()
}

/// A split of the rows of a leaf, all in ascending order.
struct Split {
    from: usize,
    to: usize,
    /// The first row of the right side.
    at: usize,
    gain: f64,
}

fn of_sorted(sorted: &[(f32, u8)], pieces: usize) -> Vec<f32> {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return vec![0.0; pieces + 1] };
    // Anomalous rows before each.
    let mut before = vec![0u32; sorted.len() + 1];
    sorted.iter().enumerate().for_each(|(at, (_, label))| before[at + 1] = before[at] + u32::from(*label));
    let mut open: Vec<Split> = best(sorted, &before, 0, sorted.len()).into_iter().collect();
    let mut cuts = Vec::new();
    while cuts.len() + 1 < pieces {
        let largest = open.iter().enumerate().max_by(|(_, a), (_, b)| a.gain.total_cmp(&b.gain));
        let Some(largest) = largest.map(|(at, _)| at) else { break };
        let Split { from, to, at, .. } = open.swap_remove(largest);
        cuts.push(sorted[at - 1].0.midpoint(sorted[at].0));
        open.extend(best(sorted, &before, from, at).into_iter().chain(best(sorted, &before, at, to)));
    }
    cuts.sort_unstable_by(f32::total_cmp);
    let mut bounds = vec![first.0];
    for cut in cuts.into_iter().chain([last.0]) {
        let length = cut - bounds[bounds.len() - 1];
        // Nothing is divided by a length that has no inverse.
        if length.is_finite() && length.recip().is_finite() && length > 0.0 {
            bounds.push(cut);
        }
    }
    bounds.resize(pieces + 1, bounds[bounds.len() - 1]);
    bounds
}

/// The split of rows `from..to` that lowers the sum of squared errors of a constant on either side most, which is half
/// of the Gini impurity times the rows; none where nothing is gained.
fn best(sorted: &[(f32, u8)], before: &[u32], from: usize, to: usize) -> Option<Split> {
    let of = |from: usize, to: usize| {
        let anomalous = f64::from(before[to] - before[from]);
        anomalous * anomalous / (to - from) as f64
    };
    if to - from < 2 * LEAST || before[to] == before[from] {
        return None;
    }
    let whole = of(from, to);
    let places = (from + LEAST..=to - LEAST).filter(|&at| sorted[at - 1].0 < sorted[at].0);
    let gains = places.map(|at| (at, of(from, at) + of(at, to) - whole));
    let (at, gain) = gains.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (gain > 1e-9).then_some(Split { from, to, at, gain })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(columns: &[Vec<f32>]) -> Features {
        let rows = columns[0].len();
        let values = (0..rows).flat_map(|row| columns.iter().map(move |column| column[row]));
        Features::from_vec(values.map(half::f16::from_f32).collect(), rows, columns.len())
    }

    fn labels(of: impl Iterator<Item = bool>) -> Vec<(u32, u8)> {
        of.enumerate().map(|(node, anomalous)| (node as u32, u8::from(anomalous))).collect()
    }

    /// 200 rows with the values 0 to 199 in another order.
    fn scattered() -> Vec<f32> {
        (0..200).map(|row| (row * 73 % 200) as f32).collect()
    }

    #[test]
    fn cuts_are_where_labels_change() {
        let values = scattered();
        let anomalous = |value: f32| (60.0..100.0).contains(&value) || value >= 170.0;
        let labels = labels(values.iter().map(|&value| anomalous(value)));
        let found = bounds(&features(&[values, vec![7.0; 200]]), &labels, 6);
        // The constant column has no piece.
        assert_eq!(found[..], [0.0, 59.5, 99.5, 169.5, 199.0, 199.0, 199.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0]);
    }

    #[test]
    fn the_first_cuts_gain_most() {
        let values = scattered();
        let labels = labels(values.iter().map(|&value| (60.0..100.0).contains(&value) || value >= 170.0));
        let found = bounds(&features(&[values]), &labels, 2);
        let squares = |cut: f32| {
            let side = |right: bool| {
                let of: Vec<f64> = labels
                    .iter()
                    .filter(|(node, _)| (scattered()[*node as usize] >= cut) == right)
                    .map(|(_, label)| f64::from(*label))
                    .collect();
                let mean = of.iter().sum::<f64>() / of.len() as f64;
                of.iter().map(|label| (label - mean).powi(2)).sum::<f64>()
            };
            side(false) + side(true)
        };
        let least = (20..=180).map(|row| row as f32 - 0.5).min_by(|a, b| squares(*a).total_cmp(&squares(*b)));
        assert_eq!((found[0], Some(found[1]), found[2]), (0.0, least, 199.0));
    }

    #[test]
    fn few_rows_have_one_piece_and_none_has_nothing() {
        let values: Vec<f32> = (0..39).map(|row| row as f32).collect();
        let labels = labels((0..39).map(|row| row > 20));
        let features = features(&[values]);
        assert_eq!(bounds(&features, &labels, 3)[..], [0.0, 38.0, 38.0, 38.0]);
        assert_eq!(bounds(&features, &[], 3)[..], [0.0; 4]);
    }

    #[test]
    fn rows_without_a_label_do_not_count() {
        let mut values = scattered();
        let labels = labels(values.iter().map(|&value| value >= 90.0));
        let before = bounds(&features(&[values.clone()]), &labels, 4);
        values.extend([-50.0, 1000.0]);
        assert_eq!(before, bounds(&features(&[values]), &labels, 4));
    }
}
