//! Charts with their captions, and the same numbers as tables.

use maud::{Markup, PreEscaped, html};

use super::data::{Curves, HeldOut, Histogram, Panel, Question, ReportData};
use super::numbers::grouped;
use crate::chart::{Axis, Chart, Corner, Ink, Mark};
use crate::metrics::Reliability;

/// Rows of a table that stands for a curve.
const ROWS: usize = 21;

/// A chart with a caption and its numbers.
fn figure(chart: &Chart, caption: Markup, numbers: Markup) -> Markup {
    html! {
        figure {
            figcaption { strong { (chart.title) } " " (caption) }
            (PreEscaped(chart.svg()))
            details.numbers {
                summary { "Numbers" span.aside { " of: " (chart.title) } }
                div.scroll tabindex="0" role="group" aria-label={ "Numbers of: " (chart.title) } { (numbers) }
            }
        }
    }
}

/// A table of numbers with three decimals, the first column as the caller wrote it.
fn numbers(head: &[&str], rows: impl Iterator<Item = (String, Vec<Option<f64>>)>) -> Markup {
    html! {
        table {
            thead { tr { @for name in head { th scope="col" { (name) } } } }
            tbody {
                @for (first, rest) in rows {
                    tr {
                        th scope="row" { (first) }
                        @for value in rest {
                            td { @match value { Some(value) => (format!("{value:.3}")), None => "–" } }
                        }
                    }
                }
            }
        }
    }
}

/// At most [`ROWS`] of `points`, evenly, with the first and the last.
fn picked<T: Copy>(points: &[T]) -> Vec<T> {
    let last = points.len().saturating_sub(1);
    let rows = points.len().min(ROWS);
    (0..rows).map(|row| points[row * last / rows.saturating_sub(1).max(1)]).collect()
}

/// ROC and precision-recall curve.
pub(super) fn curves(held_out: &HeldOut, curves: &Curves, question: Question) -> Markup {
    let overall = &held_out.overall;
    let chance = overall.positives as f64 / (overall.positives + overall.negatives).max(1) as f64;
    let value = |estimate: Option<crate::metrics::Estimate>| estimate.map_or(f64::NAN, |estimate| estimate.value);
    let line = |points: &[(f64, f64)], ink, name: String| Mark::Line { points: points.to_vec(), ink, name };
    let area = value(overall.roc_auc);
    let mut marks = vec![line(&[(0.0, 0.0), (1.0, 1.0)], Ink::Chance, "chance 0.500".into())];
    if let Some(baseline) = held_out.baseline.as_ref().filter(|_| !curves.baseline_roc.is_empty()) {
        let name = format!("logistic regression {:.3}", baseline.roc_auc.value);
        marks.insert(0, line(&curves.baseline_roc, Ink::Baseline, name));
    }
    marks.insert(0, line(&curves.roc, Ink::Model, format!("this run {area:.3}")));
    let (x, y) = curves.at_threshold;
    if held_out.threshold.is_finite() {
        marks.push(Mark::Point { x, y, ink: Ink::Model, text: "threshold".into() });
    }
    let roc = Chart {
        id: "roc".into(),
        title: "ROC curve".into(),
        description: format!("Area {area:.3}; chance would be the diagonal with area 0.5."),
        x: Axis::share(&format!("share of {} flagged", question.negatives())),
        y: Axis::share(&format!("share of {} flagged", question.positives())),
        key: Corner::BottomRight,
        marks,
    };
    let precision = value(overall.average_precision);
    let mut marks = vec![line(&[(0.0, chance), (1.0, chance)], Ink::Chance, format!("chance {chance:.3}"))];
    if let Some(baseline) = held_out.baseline.as_ref().filter(|_| !curves.baseline_precision_recall.is_empty()) {
        let name = format!("logistic regression {:.3}", value(baseline.average_precision));
        marks.insert(0, line(&curves.baseline_precision_recall, Ink::Baseline, name));
    }
    marks.insert(0, line(&curves.precision_recall, Ink::Model, format!("this run {precision:.3}")));
    let pr = Chart {
        id: "precision-recall".into(),
        title: "Precision and recall".into(),
        description: format!(
            "Average precision {precision:.3}; chance would be a level line at {chance:.3}, the share of {}.",
            match question {
                Question::Anomalous => "anomalous labels".into(),
                _ => format!("labels {}", question.predicate()),
            }
        ),
        x: Axis::share(&format!("recall: share of {} found", question.positives())),
        y: Axis::share(&format!("precision: share of flagged nodes that are {}", question.predicate())),
        key: Corner::BottomLeft,
        marks,
    };
    let flagged = [format!("{} flagged", question.negative()), format!("{} flagged", question.positive())];
    let pairs = |points: &[(f64, f64)]| picked(points).into_iter().map(|(x, y)| (format!("{x:.3}"), vec![Some(y)]));
    html! {
        (figure(&roc, html! { "What flagging more nodes costs." },
            numbers(&flagged.each_ref().map(String::as_str), pairs(&curves.roc))))
        (figure(&pr, html! { "What is right among what is flagged." },
            numbers(&["recall", "precision"], pairs(&curves.precision_recall))))
    }
}

/// Scores of both classes and of all nodes, for all types and for each.
pub(super) fn histograms(data: &ReportData) -> Markup {
    let threshold = data.held_out.as_ref().map(|held_out| held_out.threshold).filter(|value| value.is_finite());
    html! {
        p {
            "How the scores lie; " (data.score_meaning) ". Every step line shows shares of its own group, so that "
            (match data.question {
                Question::Anomalous => "rare anomalies can be compared with common normal nodes.",
                Question::OfClass(_) => "a rare class can be compared with the others.",
                Question::Predicted => "few mistakes can be compared with many right predictions.",
            })
            @if data.held_out.is_some() { " Test labels only, beside all nodes with a score." }
        }
        div.figures {
            @for (at, histogram) in data.histograms.iter().enumerate() { (one_histogram(at, histogram, threshold, data.question)) }
        }
    }
}

fn one_histogram(at: usize, histogram: &Histogram, threshold: Option<f64>, question: Question) -> Markup {
    let shares = |counts: &[u64]| -> Vec<f64> {
        let total = counts.iter().sum::<u64>().max(1) as f64;
        counts.iter().map(|&count| count as f64 / total).collect()
    };
    let sum = |counts: &[u64]| counts.iter().sum::<u64>() as usize;
    let mut names = [question.negative().to_owned(), question.positive()];
    if question == Question::Predicted {
        names.reverse();
    }
    let [normal, anomalous] = names.each_ref().map(String::as_str);
    let groups = [
        (Ink::All, "all nodes", &histogram.all),
        (Ink::Normal, normal, &histogram.normal),
        (Ink::Anomalous, anomalous, &histogram.anomalous),
    ];
    let shown: Vec<_> = groups.into_iter().filter(|(_, _, counts)| sum(counts) > 0).collect();
    let highest = shown.iter().flat_map(|(_, _, counts)| shares(counts)).fold(0.0, f64::max);
    let mut marks: Vec<Mark> = shown
        .iter()
        .map(|&(ink, name, counts)| Mark::Steps {
            low: histogram.low,
            high: histogram.high,
            heights: shares(counts),
            ink,
            name: format!("{name} ({})", grouped(sum(counts))),
        })
        .collect();
    marks.extend(threshold.map(|x| Mark::Rule { x, text: "threshold".into() }));
    let range = Axis { name: "score".into(), low: histogram.low, high: histogram.high, logarithmic: false };
    let chart = Chart {
        id: format!("histogram-{at}"),
        title: format!("Scores of {}", histogram.name),
        description: shown
            .iter()
            .map(|(_, name, counts)| format!("{name}: {} nodes", grouped(sum(counts))))
            .collect::<Vec<_>>()
            .join(", "),
        x: range,
        y: Axis { name: "share of the group".into(), low: 0.0, high: highest.max(1e-3) * 1.35, logarithmic: false },
        key: Corner::TopRight,
        marks,
    };
    let width = (histogram.high - histogram.low) / histogram.all.len().max(1) as f64;
    let rows = (0..histogram.all.len()).filter(|&bin| groups.iter().any(|(_, _, counts)| counts[bin] > 0));
    let table = html! {
        table {
            thead { tr { th scope="col" { "score from" } @for (_, name, _) in &shown { th scope="col" { (name) } } } }
            tbody {
                @for bin in rows {
                    tr {
                        th scope="row" { (format!("{:.3}", histogram.low + width * bin as f64)) }
                        @for (_, _, counts) in &shown { td { (grouped(counts[bin] as usize)) } }
                    }
                }
            }
        }
    };
    figure(&chart, html! {}, table)
}

/// Curves by epoch.
pub(super) fn training(panels: &[Panel]) -> Markup {
    html! { div.figures { @for (at, panel) in panels.iter().enumerate() { (one_panel(at, panel)) } } }
}

fn one_panel(at: usize, panel: &Panel) -> Markup {
    const INKS: [Ink; 4] = [Ink::Model, Ink::Second, Ink::Baseline, Ink::All];
    let values = panel.series.iter().flat_map(|series| series.points.iter());
    let epochs = Axis::around("epoch", values.clone().map(|point| point.0), 0.0);
    let y = Axis::around_spread(&panel.unit, values.map(|point| point.1), 0.12);
    let last = |points: &[(f64, f64)]| points.last().map_or(f64::NAN, |point| point.1);
    let rising = panel.series.first().is_some_and(|s| s.points.first().is_some_and(|first| first.1 < last(&s.points)));
    let chart = Chart {
        id: format!("training-{at}"),
        title: panel.title.clone(),
        description: panel
            .series
            .iter()
            .map(|series| format!("{} ends at {:.4}", series.name, last(&series.points)))
            .collect::<Vec<_>>()
            .join(", "),
        x: epochs,
        y,
        key: if rising { Corner::BottomRight } else { Corner::TopRight },
        marks: panel
            .series
            .iter()
            .zip(INKS.into_iter().cycle())
            .map(|(series, ink)| Mark::Line {
                points: series.points.clone(),
                ink,
                name: format!("{} {:.3}", series.name, last(&series.points)),
            })
            .collect(),
    };
    let head: Vec<&str> = std::iter::once("epoch").chain(panel.series.iter().map(|s| s.name.as_str())).collect();
    let longest = panel.series.iter().map(|series| &series.points).max_by_key(|points| points.len());
    let epochs = longest.map(|points| picked(points)).unwrap_or_default();
    let at_epoch = |epoch: f64| -> Vec<Option<f64>> {
        let find = |points: &[(f64, f64)]| points.iter().find(|point| point.0 == epoch).map(|point| point.1);
        panel.series.iter().map(|series| find(&series.points)).collect()
    };
    let rows = epochs.into_iter().map(|(epoch, _)| (format!("{epoch:.0}"), at_epoch(epoch)));
    figure(&chart, html! {}, numbers(&head, rows))
}

/// Predicted against observed shares.
pub(super) fn reliability(
    id: &str,
    title: &str,
    predicted: &str,
    reliability: &Reliability,
    question: Question,
) -> Markup {
    let bins = &reliability.bins;
    let points = bins.iter().map(|bin| [bin.mean_probability, bin.share, bin.interval.low, bin.interval.high]);
    let chart = Chart {
        id: id.into(),
        title: title.into(),
        description: format!(
            "{} bins; on average the share differs from the prediction by {:.3}.",
            bins.len(),
            reliability.calibration_error
        ),
        x: Axis::share(predicted),
        y: Axis::share(&format!("share of nodes that are {}", question.predicate())),
        key: Corner::TopLeft,
        marks: vec![
            Mark::Dots { points: points.collect(), ink: Ink::Model, name: "test labels, 95 % interval".into() },
            Mark::Line { points: vec![(0.0, 0.0), (1.0, 1.0)], ink: Ink::Chance, name: "perfect".into() },
        ],
    };
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { (predicted) }
                    @for name in ["nodes", &question.positive(), "share", "95 % interval"] { th scope="col" { (name) } }
                }
            }
            tbody {
                @for bin in bins {
                    tr {
                        th scope="row" { (format!("{:.3}", bin.mean_probability)) }
                        td { (bin.nodes) } td { (bin.anomalous) } td { (format!("{:.3}", bin.share)) }
                        td { (format!("{:.3}–{:.3}", bin.interval.low, bin.interval.high)) }
                    }
                }
            }
        }
    };
    let caption = html! {
        "Brier score " (format!("{:.3}", reliability.brier)) ", calibration error "
        (format!("{:.3}", reliability.calibration_error)) "."
    };
    figure(&chart, caption, table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_first_and_the_last_point_of_a_curve() {
        let points: Vec<u32> = (0..1000).collect();
        let rows = picked(&points);
        assert_eq!((rows.len(), rows.first(), rows.last()), (ROWS, Some(&0), Some(&999)));
        assert_eq!((picked(&[7]), picked::<u32>(&[]), picked(&[1, 2])), (vec![7], vec![], vec![1, 2]));
    }
}
