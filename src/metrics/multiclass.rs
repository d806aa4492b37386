//! Quality of predicted classes: confusion counts, accuracy, F1 of every class and their mean.

use std::fmt;

use ndarray::{Array2, ArrayView1};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How often nodes of one class were predicted as another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusionMatrix {
    /// `counts[actual][predicted]`.
    counts: Vec<Vec<u64>>,
}

/// Figures of predicted classes on some nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Number of nodes.
    pub nodes: u64,
    /// Share of nodes whose class is predicted.
    pub accuracy: f64,
    /// Mean F1 of the classes that occur, as labels or as predictions.
    pub macro_f1: f64,
    /// By class.
    pub classes: Vec<ClassFigures>,
    /// `confusion.counts[actual][predicted]`.
    pub confusion: ConfusionMatrix,
}

/// Figures of one class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClassFigures {
    /// Nodes of the class.
    pub nodes: u64,
    /// Nodes that are predicted to be of the class.
    pub predicted: u64,
    /// Share of the predictions that are right; `None` without predictions.
    pub precision: Option<f64>,
    /// Share of the nodes that are found; `None` without nodes.
    pub recall: Option<f64>,
    /// Harmonic mean of both, 0 when nothing is right; `None` without nodes and predictions.
    pub f1: Option<f64>,
}

impl ClassReport {
    /// The class with the most nodes, the first of equal ones, and how many it has.
    pub fn most_common(&self) -> (usize, u64) {
        let nodes = self.classes.iter().map(|class| class.nodes).enumerate();
        nodes.rev().max_by_key(|of| of.1).unwrap_or_default()
    }
}

impl ConfusionMatrix {
    /// Counts pairs of `(actual, predicted)` class.
    ///
    /// # Errors
    /// [`Error::Data`] for a class that is not below `num_classes`.
    pub fn of(pairs: impl IntoIterator<Item = (u32, u32)>, num_classes: usize) -> Result<Self> {
        let mut counts = vec![vec![0; num_classes]; num_classes];
        for (actual, predicted) in pairs {
            let count = counts.get_mut(actual as usize).and_then(|row| row.get_mut(predicted as usize));
            *count.ok_or_else(|| Error::Data {
                what: "predicted classes".into(),
                expected: format!("classes below {num_classes}"),
                found: format!("class {actual} predicted as {predicted}"),
                help: "compare the predictions of a model with the labels that it was trained on".into(),
            })? += 1;
        }
        Ok(Self { counts })
    }

    /// Nodes of class `actual` that are predicted as `predicted`.
    ///
    /// # Panics
    /// When one of them is no class.
    pub fn count(&self, actual: usize, predicted: usize) -> u64 {
        self.counts[actual][predicted]
    }

    fn figures(&self, class: usize) -> ClassFigures {
        let right = self.counts[class][class];
        let nodes = self.counts[class].iter().sum();
        let predicted = self.counts.iter().map(|row| row[class]).sum();
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        ClassFigures {
            nodes,
            predicted,
            precision: ratio(right, predicted),
            recall: ratio(right, nodes),
            f1: ratio(2 * right, nodes + predicted),
        }
    }

    /// All figures; `None` without nodes.
    pub fn report(self) -> Option<ClassReport> {
        let classes: Vec<ClassFigures> = (0..self.counts.len()).map(|class| self.figures(class)).collect();
        let nodes: u64 = classes.iter().map(|class| class.nodes).sum();
        let right: u64 = (0..self.counts.len()).map(|class| self.counts[class][class]).sum();
        let occurring: Vec<f64> = classes.iter().filter_map(|class| class.f1).collect();
        (nodes > 0).then(|| ClassReport {
            nodes,
            accuracy: right as f64 / nodes as f64,
            macro_f1: occurring.iter().sum::<f64>() / occurring.len() as f64,
            classes,
            confusion: self,
        })
    }
}

/// The class with the largest value of a row; the first of equal ones.
pub fn predicted_class(row: &[f32]) -> u32 {
    (1..row.len()).fold(0, |best, class| if row[class] > row[best] { class } else { best }) as u32
}

/// Class probabilities, `[nodes, classes]`, as one score per node: the probability of class 1 of two, of more classes
/// that of the predicted one.
pub fn class_scores(probabilities: &Array2<f32>) -> Vec<f32> {
    let score = |row: ArrayView1<f32>| match row.len() {
        2 => row[1],
        _ => row.iter().copied().fold(f32::NEG_INFINITY, f32::max),
    };
    probabilities.outer_iter().map(score).collect()
}

/// `ln(sum(exp(row)))`, without overflow.
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    largest + row.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum::<f64>().ln()
}

/// One line of figures, then every class with its confusion counts.
impl fmt::Display for ClassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "accuracy {:.4}, macro F1 {:.4} on {} nodes\n", self.accuracy, self.macro_f1, self.nodes)?;
        let share = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.4}"));
        let mut table = vec![["class", "nodes", "prec.", "recall", "F1"].map(String::from).to_vec()];
        table[0].extend((0..self.classes.len()).map(|class| format!("as {class}")));
        for (at, class) in self.classes.iter().enumerate() {
            let mut row = vec![at.to_string(), class.nodes.to_string()];
            row.extend([class.precision, class.recall, class.f1].map(share));
            row.extend((0..self.classes.len()).map(|predicted| self.confusion.count(at, predicted).to_string()));
            table.push(row);
        }
        let width: Vec<usize> =
            (0..table[0].len()).map(|column| table.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
        for row in table {
            let cells: Vec<String> = row.iter().zip(&width).map(|(cell, width)| format!("{cell:>width$}")).collect();
            writeln!(f, "{}", cells.join("  "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(pairs: &[(u32, u32)], classes: usize) -> ClassReport {
        ConfusionMatrix::of(pairs.iter().copied(), classes).unwrap().report().unwrap()
    }

    #[test]
    fn figures_are_those_counted_by_hand() {
        // sklearn.metrics.f1_score([0,0,0,1,1,2], [0,0,1,1,2,2], average="macro") = (0.8 + 0.5 + 2/3) / 3.
        let report = report(&[(0, 0), (0, 0), (0, 1), (1, 1), (1, 2), (2, 2)], 3);
        assert!((report.accuracy - 4.0 / 6.0).abs() < 1e-12);
        assert!((report.macro_f1 - (0.8 + 0.5 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
        assert_eq!((report.classes[1].precision, report.classes[1].recall), (Some(0.5), Some(0.5)));
        assert_eq!((report.confusion.count(0, 1), report.confusion.count(1, 0)), (1, 0));
        assert_eq!(report.most_common(), (0, 3));
    }

    #[test]
    fn a_class_that_does_not_occur_is_left_out_of_the_mean() {
        let of_two = report(&[(0, 0), (2, 0)], 3);
        assert_eq!(of_two.classes[1].f1, None);
        assert_eq!(of_two.classes[2].f1, Some(0.0), "never predicted, yet there");
        assert!((of_two.macro_f1 - (2.0 / 3.0) / 2.0).abs() < 1e-12);
        assert!(ConfusionMatrix::of([], 3).unwrap().report().is_none());
        assert!(ConfusionMatrix::of([(3, 0)], 3).is_err() && ConfusionMatrix::of([(0, 3)], 3).is_err());
    }

    #[test]
    fn the_first_of_equal_logits_wins_and_huge_ones_do_not_overflow() {
        assert_eq!([predicted_class(&[1.0, 2.0, 2.0]), predicted_class(&[5.0])], [1, 0]);
        assert!((log_sum_exp(&[1e30, 0.0]) - 1e30f32 as f64).abs() < 1e20);
        assert!((log_sum_exp(&[0.0, 0.0]) - 2f64.ln()).abs() < 1e-12);
        assert!((log_sum_exp(&[-1e4, -1e4]) + 1e4 - 2f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn the_table_is_aligned() {
        let text = report(&[(0, 0), (0, 0), (1, 0), (1, 1)], 2).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "accuracy 0.7500, macro F1 0.7333 on 4 nodes");
        assert_eq!(lines[2], "class  nodes   prec.  recall      F1  as 0  as 1");
        assert_eq!(lines[3], "    0      2  0.6667  1.0000  0.8000     2     0");
        assert_eq!(lines[4], "    1      2  1.0000  0.5000  0.6667     1     1");
    }
}
