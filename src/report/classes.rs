//! How well classes are predicted: figures by class, and which class is taken for which.

use maud::{Markup, html};

use super::data::ClassFacts;
use super::evaluation::key_figure;
use super::numbers::{estimate, grouped, percent};
use crate::metrics::{ClassReport, Estimate};

/// Classes up to which all pairs of them are shown; of more only those that are confused most.
const MATRIX_CLASSES: usize = 40;

/// Pairs of classes that are shown then.
const PAIRS: usize = 50;

pub(super) fn predicted(facts: &ClassFacts) -> Markup {
    let ClassFacts { report, estimates } = facts;
    let (common, nodes) = report.most_common();
    html! {
        dl.key-figures {
            (key_figure("Accuracy", Some(estimates.accuracy), html! {
                "always class " (common) " " (format!("{:.3}", nodes as f64 / report.nodes as f64))
            }))
            (key_figure("Macro F1", Some(estimates.macro_f1), html! { "mean of the classes" }))
        }
        (by_class(facts))
        @if report.classes.len() <= MATRIX_CLASSES { (matrix(report)) } @else { (confused(report)) }
        p.note {
            "Intervals: 95 % percentile intervals of a bootstrap with 1,000 resamples, drawn within each class. They \
             hold for other labels of the same kind, not for another training. A class with fewer than 5 nodes has \
             none, and then the macro F1 has none. The test labels chose nothing: the checkpoint comes from the \
             validation labels."
        }
    }
}

fn by_class(ClassFacts { report, estimates }: &ClassFacts) -> Markup {
    let value = |share: Option<f64>| estimate(share.map(|value| Estimate { value, interval: None }));
    html! {
        div.scroll.tall tabindex="0" role="group" aria-label="Figures by class" {
            table.wide {
                caption { "Figures by class" }
                thead {
                    tr {
                        th scope="col" { "Test labels" }
                        @for name in ["Nodes", "Predicted", "Precision", "Recall", "F1"] {
                            th.number scope="col" { (name) }
                        }
                    }
                }
                tbody {
                    @for ((at, class), f1) in report.classes.iter().enumerate().zip(&estimates.f1) {
                        tr {
                            th scope="row" { "class " (at) }
                            td.number { (grouped(class.nodes as usize)) }
                            td.number { (grouped(class.predicted as usize)) }
                            td.number { (value(class.precision)) }
                            td.number { (value(class.recall)) }
                            td.number { (estimate(*f1)) }
                        }
                    }
                }
            }
        }
    }
}

/// Every pair of classes, shaded by the share of the actual class.
fn matrix(report: &ClassReport) -> Markup {
    let classes = report.classes.len();
    html! {
        div.scroll tabindex="0" role="group" aria-label="Predicted classes by actual class" {
            table.matrix {
                caption { "Predicted classes by actual class" }
                thead {
                    tr {
                        th scope="col" { "Actual" }
                        @for predicted in 0..classes { th.number scope="col" { "as " (predicted) } }
                    }
                }
                tbody {
                    @for (actual, class) in report.classes.iter().enumerate() {
                        tr {
                            th scope="row" { "class " (actual) }
                            @for predicted in 0..classes {
                                (cell(report.confusion.count(actual, predicted), class.nodes, actual == predicted))
                            }
                        }
                    }
                }
            }
        }
        p.note { "Shaded by the share of the nodes of a row; what lies off the diagonal is wrong." }
    }
}

fn cell(count: u64, nodes: u64, right: bool) -> Markup {
    // Pale enough for the number to be read on it.
    let share = 45.0 * count as f64 / nodes.max(1) as f64;
    html! {
        @if count == 0 {
            td.number.none { "0" }
        } @else {
            td class={ "number " (if right { "right" } else { "wrong" }) } style={ "--share:" (format!("{share:.0}")) "%" } {
                (grouped(count as usize))
            }
        }
    }
}

/// The pairs of classes that are confused most.
fn confused(report: &ClassReport) -> Markup {
    let classes = report.classes.len();
    let pairs = (0..classes).flat_map(|actual| (0..classes).map(move |predicted| (actual, predicted)));
    let counted = pairs.filter(|(actual, predicted)| actual != predicted);
    let counted = counted.map(|(actual, predicted)| (report.confusion.count(actual, predicted), actual, predicted));
    let mut found: Vec<(u64, usize, usize)> = counted.filter(|of| of.0 > 0).collect();
    let all = found.len();
    found.sort_by_key(|&(count, actual, predicted)| (std::cmp::Reverse(count), actual, predicted));
    found.truncate(PAIRS);
    html! {
        div.scroll.tall tabindex="0" role="group" aria-label="Classes taken for others" {
            table {
                caption {
                    "Classes taken for others"
                    @if all > found.len() { ", the " (found.len()) " most frequent of " (grouped(all)) " pairs" }
                }
                thead {
                    tr {
                        th scope="col" { "Actual" } th scope="col" { "Predicted" }
                        th.number scope="col" { "Nodes" } th.number scope="col" { "Of the actual class" }
                    }
                }
                tbody {
                    @for (count, actual, predicted) in found {
                        tr {
                            th scope="row" { "class " (actual) } td { "class " (predicted) }
                            td.number { (grouped(count as usize)) }
                            td.number { (percent(count as f64 / report.classes[actual].nodes as f64)) }
                        }
                    }
                }
            }
        }
    }
}
