//! Confidence intervals of the figures of predicted classes.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Binomial, Distribution};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::bootstrap::Measures;
use super::{Bootstrap, ClassReport, Estimate, FEWEST};
use crate::splitmix::nth;

/// Figures of a [`ClassReport`] with their intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassEstimates {
    /// Without an interval where there are fewer than [`FEWEST`] nodes.
    pub accuracy: Estimate,
    /// Without an interval where a class that occurs has fewer than [`FEWEST`] nodes.
    pub macro_f1: Estimate,
    /// By class, without an interval where it has fewer than [`FEWEST`] nodes; `None` where the class does not occur.
    pub f1: Vec<Option<Estimate>>,
}

impl Bootstrap {
    /// Intervals of accuracy and F1. Nodes are drawn with replacement within their class, as in
    /// [`estimate`](Self::estimate): so many nodes of a class as there are fall on its predicted classes as a
    /// multinomial sample of its row of the confusion counts, which is all that a resample needs.
    pub fn estimate_classes(&self, report: &ClassReport) -> ClassEstimates {
        let classes = report.classes.len();
        let rows: Vec<Vec<(usize, u64)>> = (0..classes)
            .map(|actual| {
                let row = (0..classes).map(|predicted| (predicted, report.confusion.count(actual, predicted)));
                row.filter(|(_, count)| *count > 0).collect()
            })
            .collect();
        let one = |resample: usize| measures(&self.class_draw(&rows, resample), classes);
        let resampled: Vec<Measures> = (0..self.resamples).into_par_iter().map(one).collect();
        let estimate = |value: f64, at: usize, enough: bool| Estimate {
            value,
            interval: if enough { self.interval(&resampled, at) } else { None },
        };
        let of_class = |class: usize| report.classes[class].nodes;
        let occurring = |class: &usize| of_class(*class) + report.classes[*class].predicted > 0;
        let f1 = |class: usize| Some(estimate(report.classes[class].f1?, 2 + class, of_class(class) >= FEWEST));
        ClassEstimates {
            accuracy: estimate(report.accuracy, 0, report.nodes >= FEWEST),
            macro_f1: estimate(
                report.macro_f1,
                1,
                (0..classes).filter(occurring).all(|class| of_class(class) >= FEWEST),
            ),
            f1: (0..classes).map(f1).collect(),
        }
    }

    /// Draws as many nodes of every class as it has: `(predicted, count)` of each actual class.
    fn class_draw(&self, rows: &[Vec<(usize, u64)>], resample: usize) -> Vec<Vec<(usize, u64)>> {
        let mut random = ChaCha8Rng::seed_from_u64(nth(nth(self.seed).wrapping_add(resample as u64)));
        let mut draw = |row: &Vec<(usize, u64)>| {
            let nodes: u64 = row.iter().map(|cell| cell.1).sum();
            let (mut left, mut rest) = (nodes, nodes);
            let of_cell = |&(predicted, count): &(usize, u64)| {
                // Of the nodes that fell on no cell before.
                let share = count as f64 / rest as f64;
                let drawn = Binomial::new(left, share).map_or(left, |binomial| binomial.sample(&mut random));
                (left, rest) = (left - drawn, rest - count);
                (predicted, drawn)
            };
            row.iter().map(of_cell).collect()
        };
        rows.iter().map(&mut draw).collect()
    }
}

/// Accuracy, macro F1, then the F1 of every class.
fn measures(rows: &[Vec<(usize, u64)>], classes: usize) -> Measures {
    let (mut nodes, mut predicted, mut right) = (vec![0u64; classes], vec![0u64; classes], vec![0u64; classes]);
    for (actual, row) in rows.iter().enumerate() {
        for &(as_class, count) in row {
            nodes[actual] += count;
            predicted[as_class] += count;
            right[actual] += if as_class == actual { count } else { 0 };
        }
    }
    let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let f1 = (0..classes).map(|class| ratio(2 * right[class], nodes[class] + predicted[class]));
    let f1: Vec<Option<f64>> = f1.collect();
    let occurring: Vec<f64> = f1.iter().flatten().copied().collect();
    let mean = (!occurring.is_empty()).then(|| occurring.iter().sum::<f64>() / occurring.len() as f64);
    [ratio(right.iter().sum(), nodes.iter().sum()), mean].into_iter().chain(f1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ConfusionMatrix;

    fn report(counts: &[&[u64]]) -> ClassReport {
        let rows = counts.iter().enumerate();
        let cells = rows.flat_map(|(actual, row)| row.iter().enumerate().map(move |(p, &n)| (actual, p, n)));
        let pairs = cells.flat_map(|(a, p, n)| std::iter::repeat_n((a as u32, p as u32), n as usize));
        ConfusionMatrix::of(pairs, counts.len()).unwrap().report().unwrap()
    }

    #[test]
    fn the_values_are_those_of_the_report_and_lie_inside_their_intervals() {
        let report = report(&[&[40, 10, 0], &[6, 30, 4], &[0, 5, 25]]);
        let found = Bootstrap::default().estimate_classes(&report);
        let f1 = report.classes.iter().zip(&found.f1).map(|(class, found)| (class.f1.unwrap(), found.unwrap()));
        let pairs = [(report.accuracy, found.accuracy), (report.macro_f1, found.macro_f1)].into_iter().chain(f1);
        for (value, found) in pairs {
            let interval = found.interval.unwrap();
            assert_eq!(found.value, value);
            assert!(interval.low < value && value < interval.high, "{found:?}");
        }
        assert_eq!(Bootstrap::default().estimate_classes(&report), found, "the same again");
    }

    #[test]
    fn the_interval_of_the_accuracy_is_that_of_a_sum_of_binomials() {
        // Within classes: variance sum n_c p_c (1 - p_c) / n^2.
        let report = report(&[&[900, 100], &[400, 600]]);
        let found = Bootstrap::default().estimate_classes(&report).accuracy.interval.unwrap();
        let deviation = (1000.0 * 0.9 * 0.1 + 1000.0 * 0.6 * 0.4f64).sqrt() / 2000.0;
        let (low, high) = (0.75 - 1.96 * deviation, 0.75 + 1.96 * deviation);
        // The quantile of 1,000 resamples has a standard error of about 0.085 deviations.
        let near = 4.0 * 0.085 * deviation;
        assert!((found.low - low).abs() < near && (found.high - high).abs() < near, "{found:?} {low} {high}");
    }

    #[test]
    fn resamples_keep_the_nodes_of_every_class() {
        let rows = vec![vec![(0, 7), (2, 3)], vec![], vec![(2, 5)]];
        for resample in 0..50 {
            let drawn = Bootstrap::default().class_draw(&rows, resample);
            let nodes: Vec<u64> = drawn.iter().map(|row| row.iter().map(|cell| cell.1).sum()).collect();
            assert_eq!(nodes, [10, 0, 5]);
        }
    }

    #[test]
    fn few_nodes_of_a_class_have_no_interval() {
        let found = Bootstrap::default().estimate_classes(&report(&[&[20, 2, 0], &[1, 3, 0], &[0, 0, 0]]));
        assert!(found.accuracy.interval.is_some() && found.macro_f1.interval.is_none());
        assert!(found.f1[0].unwrap().interval.is_some() && found.f1[1].unwrap().interval.is_none());
        assert_eq!(found.f1[2], None);
    }
}
