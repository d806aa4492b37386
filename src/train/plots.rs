//! SVG plots of a run: training curves, ROC curve, precision-recall curve, scores by class.
//!
//! Every function takes plain slices and writes one file atomically. Points that are not finite are left out, and a
//! curve keeps a few points per pixel, so a file stays small for millions of nodes.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::chart::{Axis, Chart, Corner, Ink, Mark, page};
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::metrics::Ranking;

/// Colours of curves, in their order.
const INKS: [Ink; 4] = [Ink::Model, Ink::Second, Ink::Baseline, Ink::All];

/// A named curve.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// Name in the key.
    pub name: &'a str,
    /// (epoch, value), by ascending epoch.
    pub points: &'a [(f64, f64)],
}

fn write(path: &Path, title: &str, charts: &[Chart]) -> Result<()> {
    atomic_write(path, |file| file.write_all(page(title, charts).as_bytes()))
}

fn line(points: &[(f64, f64)], ink: Ink, name: impl Into<String>) -> Mark {
    Mark::Line { points: points.to_vec(), ink, name: name.into() }
}

/// Loss terms (above) and validation metrics (below, where there are any) by epoch.
///
/// The loss axis is logarithmic when the terms are positive and differ more than fiftyfold.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) when the file cannot be written.
pub fn training_curves(path: &Path, title: &str, losses: &[Series], metrics: &[Series]) -> Result<()> {
    let epochs = losses.iter().chain(metrics).flat_map(|series| series.points).map(|point| point.0);
    let x = Axis::around("epoch", epochs, 0.0);
    let values = |series: &'_ [Series]| -> Vec<f64> {
        series.iter().flat_map(|series| series.points).map(|point| point.1).collect()
    };
    let marks = |series: &[Series], first: usize| -> Vec<Mark> {
        let inks = INKS.into_iter().cycle().skip(first);
        series.iter().zip(inks).map(|(series, ink)| line(series.points, ink, series.name)).collect()
    };
    let mut loss = Axis::around_spread("loss", values(losses).into_iter(), 0.06);
    if loss.logarithmic {
        loss.name = "loss [log scale]".into();
    }
    let chart = |id: &str, y: Axis, key: Corner, marks: Vec<Mark>| Chart {
        id: id.into(),
        title: title.into(),
        description: format!("{} by epoch", y.name),
        x: x.clone(),
        y,
        key,
        marks,
    };
    let mut charts = vec![chart("loss", loss, Corner::TopRight, marks(losses, 0))];
    if !metrics.is_empty() {
        let values = values(metrics);
        let mut y = Axis::around("validation metric", values.iter().copied(), 0.08);
        // The padding of shares stops at their limits.
        if values.iter().all(|value| (0.0..=1.0).contains(value)) {
            (y.low, y.high) = (y.low.max(0.0), y.high.min(1.0));
        }
        charts.push(chart("metric", y, Corner::BottomRight, marks(metrics, losses.len())));
    }
    write(path, title, &charts)
}

/// The ROC curve through `points` of (false positive rate, true positive rate), with its area and the line of chance.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) when the file cannot be written.
pub fn roc_curve(path: &Path, title: &str, points: &[(f64, f64)], roc_auc: f64) -> Result<()> {
    let chart = Chart {
        id: "roc".into(),
        title: title.into(),
        description: format!("ROC curve with area {roc_auc:.4}"),
        x: Axis::share("false positive rate [share of normal nodes]"),
        y: Axis::share("true positive rate [share of anomalous nodes]"),
        key: Corner::BottomRight,
        marks: vec![
            line(&[(0.0, 0.0), (1.0, 1.0)], Ink::Chance, "chance: area 0.5000"),
            line(points, Ink::Model, format!("scores: area {roc_auc:.4}")),
        ],
    };
    write(path, title, &[chart])
}

/// The precision-recall curve through `points` of (recall, precision), with its average precision and the line of
/// chance at `prevalence`, the share of anomalous nodes.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) when the file cannot be written.
pub fn precision_recall_curve(
    path: &Path,
    title: &str,
    points: &[(f64, f64)],
    average_precision: f64,
    prevalence: f64,
) -> Result<()> {
    let chart = Chart {
        id: "precision-recall".into(),
        title: title.into(),
        description: format!("precision and recall, average precision {average_precision:.4}"),
        x: Axis::share("recall [share of anomalous nodes]"),
        y: Axis::share("precision [share of flagged nodes]"),
        key: Corner::BottomLeft,
        marks: vec![
            line(&[(0.0, prevalence), (1.0, prevalence)], Ink::Chance, format!("chance: {prevalence:.4}")),
            line(points, Ink::Model, format!("scores: average precision {average_precision:.4}")),
        ],
    };
    write(path, title, &[chart])
}

/// Histogram of `scores` by class (`labels`: 1 anomalous, 0 normal; other labels are left out), with the threshold.
///
/// Heights are shares of the class, so a rare class is as visible as the other. The axis is \[0, 1\], or the range of
/// the scores where some lie outside.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) when the file cannot be written.
pub fn score_histogram(path: &Path, title: &str, scores: &[f32], labels: &[u8], threshold: Option<f64>) -> Result<()> {
    const BINS: usize = 50;
    let of_class = |class: u8| {
        let nodes = scores.iter().zip(labels).filter(move |node| *node.1 == class);
        nodes.map(|node| f64::from(*node.0)).filter(|score| score.is_finite())
    };
    let all = || of_class(0).chain(of_class(1));
    let x = match all().all(|score| (0.0..=1.0).contains(&score)) {
        true => Axis::share("anomaly score"),
        false => Axis::around("anomaly score", all(), 0.0),
    };
    let (low, high) = (x.low, x.high);
    let steps = |class: u8, ink: Ink, name: &str| {
        let mut counts = [0u64; BINS];
        for score in of_class(class) {
            counts[((((score - low) / (high - low)) * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
        let total = counts.iter().sum::<u64>();
        let heights = counts.map(|count| 100.0 * count as f64 / total.max(1) as f64).to_vec();
        let highest = heights.iter().copied().fold(1.0, f64::max);
        (highest, Mark::Steps { low, high, heights, ink, name: format!("{name} ({total} nodes)") })
    };
    let (normal, anomalous) = (steps(0, Ink::Normal, "normal"), steps(1, Ink::Anomalous, "anomalous"));
    let highest = f64::max(normal.0, anomalous.0);
    let mut marks = vec![normal.1, anomalous.1];
    let threshold = threshold.filter(|threshold| (low..=high).contains(threshold));
    marks.extend(threshold.map(|x| Mark::Rule { x, text: format!("threshold {x:.4}") }));
    let chart = Chart {
        id: "scores".into(),
        title: title.into(),
        description: "scores of normal and of anomalous nodes".into(),
        x,
        y: Axis { name: "nodes [% of class per bin]".into(), low: 0.0, high: 1.3 * highest, logarithmic: false },
        key: Corner::TopRight,
        marks,
    };
    write(path, title, &[chart])
}

/// `roc.svg`, `precision_recall.svg` and `scores.svg` of held-out labels `(node, label)`; curves need both classes.
pub fn held_out(
    file: impl Fn(&str) -> PathBuf,
    title: &str,
    scores: &[f32],
    labels: &[(u32, u8)],
    threshold: f64,
) -> Result<()> {
    let (values, labels): (Vec<f32>, Vec<u8>) =
        labels.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
    let ranking = Ranking::new(&values, &labels)?;
    if let (Some(points), Some(auc)) = (ranking.roc_curve(), ranking.roc_auc()) {
        let points: Vec<_> = points.iter().map(|p| (p.false_positive_rate, p.true_positive_rate)).collect();
        roc_curve(&file("roc.svg"), title, &points, auc)?;
    }
    if let (Some(points), Some(average)) = (ranking.pr_curve(), ranking.average_precision()) {
        let points: Vec<_> = points.iter().map(|p| (p.recall, p.precision)).collect();
        let prevalence = ranking.positives() as f64 / values.len() as f64;
        precision_recall_curve(&file("precision_recall.svg"), title, &points, average, prevalence)?;
    }
    score_histogram(&file("scores.svg"), title, &values, &labels, Some(threshold))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn drawn(plot: impl FnOnce(&Path) -> Result<()>) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        plot(&path).unwrap();
        let svg = fs::read_to_string(&path).unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        svg
    }

    #[test]
    fn training_curves_name_every_term_and_axis() {
        let (loss, small, metric) = ([(1.0, 0.7), (2.0, 0.5)], [(1.0, 0.6), (2.0, 0.2)], [(2.0, 0.9)]);
        let losses = [Series { name: "margin <&>", points: &loss }, Series { name: "contrastive", points: &small }];
        let metrics = [Series { name: "validation ROC-AUC", points: &metric }];
        let svg = drawn(|path| training_curves(path, "Stage 2", &losses, &metrics));
        for text in ["Stage 2", "margin &lt;&amp;&gt;", "contrastive", "validation ROC-AUC", "epoch", "loss"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(!svg.contains("log scale"));
    }

    #[test]
    fn loss_terms_of_different_size_get_a_logarithmic_axis() {
        let (large, small) = ([(1.0, 1.0), (2.0, 0.5)], [(1.0, 0.01), (2.0, 0.005)]);
        let losses = [Series { name: "large", points: &large }, Series { name: "small", points: &small }];
        assert!(drawn(|path| training_curves(path, "", &losses, &[])).contains("loss [log scale]"));
    }

    #[test]
    fn plots_without_usable_points_are_drawn_with_empty_axes() {
        let bad = [(1.0, f64::NAN), (f64::INFINITY, 1.0)];
        let series = [Series { name: "loss", points: &bad }];
        drawn(|path| training_curves(path, "", &series, &series));
        drawn(|path| training_curves(path, "", &[], &[]));
        drawn(|path| roc_curve(path, "", &[], 0.5));
        drawn(|path| precision_recall_curve(path, "", &bad, 0.5, 0.5));
        drawn(|path| score_histogram(path, "", &[], &[], None));
        drawn(|path| score_histogram(path, "", &[f32::NAN, 0.5], &[1, 1], Some(0.5)));
    }

    #[test]
    fn values_that_never_change_or_are_huge_still_have_axes() {
        let (flat, huge) = ([(1.0, 0.5), (2.0, 0.5)], [(1.0, 1e30), (2.0, -1e30), (3.0, f64::MAX), (4.0, f64::MIN)]);
        let series = [Series { name: "huge", points: &huge }];
        drawn(|path| training_curves(path, "", &series, &series));
        drawn(|path| training_curves(path, "", &[Series { name: "flat", points: &flat }], &[]));
        drawn(|path| score_histogram(path, "", &[3.0; 4], &[0, 1, 0, 1], Some(3.0)));
        drawn(|path| score_histogram(path, "", &[-1e30, 1e30], &[0, 1], None));
    }

    #[test]
    fn a_curve_of_a_million_points_stays_a_small_file() {
        let points: Vec<(f64, f64)> = (0..=1_000_000).map(|at| f64::from(at) / 1e6).map(|x| (x, x.sqrt())).collect();
        let svg = drawn(|path| roc_curve(path, "ROC curve", &points, 2.0 / 3.0));
        assert!(svg.len() < 40_000, "{} bytes", svg.len());
        assert!(svg.contains("scores: area 0.6667"));
    }

    #[test]
    fn the_histogram_counts_nodes_per_class_and_marks_the_threshold() {
        let svg = drawn(|path| score_histogram(path, "", &[0.1, 0.2, 0.9], &[0, 0, 1], Some(0.5)));
        for text in ["normal (2 nodes)", "anomalous (1 nodes)", "threshold 0.5000", "anomaly score"] {
            assert!(svg.contains(text), "{text} is missing");
        }
    }
}
