//! SVG plots of a run: training curves, ROC curve, precision-recall curve, scores by class.
//!
//! Every function takes plain slices and writes one file atomically. Points that are not finite are left out, and a
//! curve keeps one point per pixel, so a file stays small for millions of nodes.

mod canvas;

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use self::canvas::{
    Axis, Canvas, Drawn, HEIGHT, PALETTE, Plot, SQUARE, WIDTH, axes, curve, decimals, draw, is_drawable, legend,
    padded, reference, sample, two_digits, whole,
};
use crate::error::Result;
use crate::metrics::Ranking;

/// A named curve.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// (epoch, value), by ascending epoch.
    pub points: &'a [(f64, f64)],
}

/// Loss terms (above) and validation metrics (below, where there are any) by epoch.
///
/// The loss axis is logarithmic when the terms are positive and differ more than fiftyfold.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) when the file cannot be written.
pub fn training_curves(path: &Path, title: &str, losses: &[Series], metrics: &[Series]) -> Result<()> {
    let height = if metrics.is_empty() { HEIGHT } else { HEIGHT * 3 / 2 };
    draw(path, title, (WIDTH, height), |canvas| {
        let curves = losses.iter().chain(metrics).flat_map(|series| series.points);
        let epochs = padded(curves.map(|point| point.0), 0.0);
        if metrics.is_empty() {
            return loss_panel(canvas, losses, Axis { name: "epoch", range: epochs });
        }
        let (above, below) = canvas.split_vertically(canvas.dim_in_pixel().1 * 11 / 20);
        loss_panel(&above, losses, Axis { name: "", range: epochs.clone() })?;
        let values = || drawable(metrics.iter().flat_map(|series| series.points)).map(|point| point.1);
        let range = padded(values(), 0.08);
        // The padding of shares stops at their limits (a little past 1, so a curve along the border stays visible).
        let shares = values().all(|value| (0.0..=1.0).contains(&value));
        let range = if shares { range.start.max(0.0)..range.end.min(1.01) } else { range };
        let axis = Axis { name: "validation metric", range };
        let mut plot = axes(&below, Axis { name: "epoch", range: epochs }, axis, &whole, &decimals)?;
        curves_of(&mut plot, metrics, |value| value, losses.len())?;
        legend(&mut plot, SeriesLabelPosition::LowerRight)
    })
}

fn loss_panel(canvas: &Canvas, losses: &[Series], epochs: Axis) -> Drawn {
    let values = || drawable(losses.iter().flat_map(|series| series.points)).map(|point| point.1);
    let (lowest, highest) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let logarithmic = lowest > 0.0 && highest > 50.0 * lowest;
    let scale = |value: f64| if logarithmic { value.log10() } else { value };
    let name = if logarithmic { "loss [log scale]" } else { "loss" };
    let range = padded(values().map(scale), 0.06);
    let label = |value: &f64| if logarithmic { two_digits(10f64.powf(*value)) } else { decimals(value) };
    let mut plot = axes(canvas, epochs, Axis { name, range }, &whole, &label)?;
    curves_of(&mut plot, losses, scale, 0)?;
    legend(&mut plot, SeriesLabelPosition::UpperRight)
}

/// The ROC curve through `points` of (false positive rate, true positive rate), with its area and the line of chance.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) when the file cannot be written.
pub fn roc_curve(path: &Path, title: &str, points: &[(f64, f64)], roc_auc: f64) -> Result<()> {
    draw(path, title, SQUARE, |canvas| {
        let x = Axis::share("false positive rate [share of normal nodes]");
        let y = Axis::share("true positive rate [share of anomalous nodes]");
        let mut plot = axes(canvas, x, y, &decimals, &decimals)?;
        let name = format!("scores: area {roc_auc:.4}");
        curve(&mut plot, &name, points.iter().copied(), PALETTE[0])?;
        reference(&mut plot, "chance: area 0.5000", [(0.0, 0.0), (1.0, 1.0)])?;
        legend(&mut plot, SeriesLabelPosition::LowerRight)
    })
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
    draw(path, title, SQUARE, |canvas| {
        let x = Axis::share("recall [share of anomalous nodes]");
        let y = Axis::share("precision [share of flagged nodes]");
        let mut plot = axes(canvas, x, y, &decimals, &decimals)?;
        let name = format!("scores: average precision {average_precision:.4}");
        curve(&mut plot, &name, points.iter().copied(), PALETTE[0])?;
        let chance = format!("chance: {prevalence:.4}");
        reference(&mut plot, &chance, [(0.0, prevalence), (1.0, prevalence)])?;
        // Where neither the curve nor the line of chance is likely to pass.
        let free = match (average_precision < 0.75, prevalence < 0.2) {
            (true, _) => SeriesLabelPosition::UpperRight,
            (false, true) => SeriesLabelPosition::MiddleLeft,
            (false, false) => SeriesLabelPosition::LowerLeft,
        };
        legend(&mut plot, free)
    })
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
    let range = {
        let outside = of_class(0).chain(of_class(1)).filter(|score| !(0.0..=1.0).contains(score));
        let range = outside.fold(0.0..1.0, |range, score| f64::min(range.start, score)..f64::max(range.end, score));
        if range == (0.0..1.0) { range } else { padded(of_class(0).chain(of_class(1)), 0.0) }
    };
    let width = (range.end - range.start) / BINS as f64;
    let histogram = |class: u8| {
        let mut counts = [0u64; BINS];
        for score in of_class(class) {
            counts[(((score - range.start) / width) as usize).min(BINS - 1)] += 1;
        }
        let total = counts.iter().sum::<u64>();
        (total, counts.map(|count| 100.0 * count as f64 / total.max(1) as f64))
    };
    let classes = [("normal", histogram(0), PALETTE[0]), ("anomalous", histogram(1), PALETTE[1])];
    let highest = classes.iter().flat_map(|class| class.1.1).fold(1.0, f64::max);
    draw(path, title, (WIDTH, HEIGHT), |canvas| {
        let x = Axis { name: "anomaly score", range: range.clone() };
        let y = Axis { name: "nodes [% of class per bin]", range: 0.0..highest * 1.15 };
        let mut plot = axes(canvas, x, y, &decimals, &decimals)?;
        for (name, (total, shares), colour) in &classes {
            let edge = |bin: usize| range.start + width * bin as f64;
            let steps = (0..BINS).flat_map(|bin| [(edge(bin), shares[bin]), (edge(bin + 1), shares[bin])]);
            let outline: Vec<(f64, f64)> =
                std::iter::once((range.start, 0.0)).chain(steps).chain([(range.end, 0.0)]).collect();
            plot.draw_series([Polygon::new(outline.clone(), colour.mix(0.3))])?;
            let name = format!("{name} ({total} nodes)");
            let line = plot.draw_series([PathElement::new(outline, colour.stroke_width(2))])?;
            line.label(name).legend(sample(*colour));
        }
        if let Some(threshold) = threshold.filter(|threshold| (range.start..=range.end).contains(threshold)) {
            let line = [(threshold, 0.0), (threshold, highest * 1.15)];
            reference(&mut plot, &format!("threshold {threshold:.4}"), line)?;
        }
        legend(&mut plot, SeriesLabelPosition::UpperMiddle)
    })
}

fn curves_of<'a, 'b: 'a>(
    plot: &mut Plot<'a, 'b>,
    series: &[Series],
    scale: impl Fn(f64) -> f64,
    first_colour: usize,
) -> Drawn {
    for (at, series) in series.iter().enumerate() {
        let colour = PALETTE[(first_colour + at) % PALETTE.len()];
        curve(plot, series.name, series.points.iter().map(|&(epoch, value)| (epoch, scale(value))), colour)?;
    }
    Ok(())
}

fn drawable<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> impl Iterator<Item = &'a (f64, f64)> {
    points.filter(|point| is_drawable(point.0) && is_drawable(point.1))
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
