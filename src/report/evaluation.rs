//! How good the scores are: figures with intervals, the baseline, decisions, calibration.

use maud::{Markup, html};

use super::data::{CalibrationFacts, HeldOut, ModelFigures, Question};
use super::figures;
use super::held_out::has_interval;
use super::numbers::{estimate, percent};
use super::question::capital;
use crate::graph::date;
use crate::metrics::{Alerts, Estimate, Estimates};

/// `refit` are the words for a model that was grown anew.
pub(super) fn held_out(held_out: &HeldOut, question: Question, refit: Option<&str>) -> Markup {
    html! {
        (key_figures(held_out))
        div.figures {
            @if let Some(curves) = &held_out.curves { (figures::curves(held_out, curves, question)) }
        }
        (by_type(held_out, question))
        @if let Some(alerts) = &held_out.alerts { (of_alerts(alerts)) }
        div.columns {
            (top(held_out, question))
            (decisions(held_out, question))
        }
        p.note {
            "Intervals: 95 % percentile intervals of a bootstrap with 1,000 resamples, drawn within each class. They \
             hold for other labels of the same kind, not for another training; one of a single value only says that no \
             resample found a mistake. A row with fewer than 5 nodes of a class has none. The test labels chose nothing: \
             checkpoint and threshold come from the validation labels."
            @if let Some(refit) = refit { " The model was " (refit) "." }
        }
    }
}

fn key_figures(held_out: &HeldOut) -> Markup {
    let overall = &held_out.overall;
    let share = overall.positives as f64 / (overall.positives + overall.negatives).max(1) as f64;
    let baseline = held_out.baseline.as_ref();
    let places = overall.top.iter().find(|top| top.k == overall.positives);
    html! {
        dl.key-figures {
            (key_figure("ROC-AUC", overall.roc_auc, html! {
                @match baseline {
                    Some(baseline) => { "logistic regression " (format!("{:.3}", baseline.roc_auc.value)) }
                    None => "chance 0.500",
                }
            }))
            (key_figure("Average precision", overall.average_precision, html! {
                @match baseline.and_then(|baseline| baseline.average_precision) {
                    Some(other) => { "logistic regression " (format!("{:.3}", other.value)) }
                    None => { "chance " (format!("{share:.3}")) }
                }
            }))
            @if let Some(places) = places {
                (key_figure("R-precision", places.precision, html! { "right among the " (places.k) " highest" }))
            }
            (key_figure("F1", overall.f1, html! {
                @if held_out.threshold.is_finite() { "flagged from score " (format!("{:.3}", held_out.threshold)) }
                @else { "no threshold could be chosen" }
            }))
        }
    }
}

pub(super) fn key_figure(name: &str, figure: Option<Estimate>, aside: Markup) -> Markup {
    html! {
        div {
            dt { (name) }
            dd.value { @match figure { Some(figure) => (format!("{:.3}", figure.value)), None => "–" } }
            dd.interval {
                @match figure.and_then(|figure| figure.interval) {
                    Some(interval) => { "95 %: " (format!("{:.3}–{:.3}", interval.low, interval.high)) }
                    None => "no interval",
                }
            }
            dd.aside { (aside) }
        }
    }
}

fn by_type(held_out: &HeldOut, question: Question) -> Markup {
    let baseline = held_out.baseline.as_ref();
    html! {
        div.scroll tabindex="0" role="group" aria-label="Figures by node type" {
            table.wide {
                caption { "Figures by node type" }
                thead {
                    tr {
                        th scope="col" { "Test labels" }
                        th.number scope="col" { "Nodes" }
                        th.number scope="col" { (capital(&question.positive())) }
                        th.number scope="col" { "ROC-AUC" }
                        th scope="col" { "0 · chance · 1" }
                        @for name in ["Average precision", "Precision", "Recall", "F1"] {
                            th.number scope="col" { (name) }
                        }
                    }
                }
                tbody {
                    (type_row("all types", &held_out.overall))
                    @for node_type in &held_out.types { (type_row(&node_type.name, &node_type.figures)) }
                    @if let Some(baseline) = baseline {
                        tr.baseline {
                            th scope="row" { "logistic regression, no graph" }
                            td.number { (held_out.overall.positives + held_out.overall.negatives) }
                            td.number { (held_out.overall.positives) }
                            td.number { (estimate(Some(baseline.roc_auc))) }
                            td { (range(Some(baseline.roc_auc), "baseline")) }
                            td.number { (estimate(baseline.average_precision)) }
                            td.number { (estimate(None)) } td.number { (estimate(None)) } td.number { (estimate(None)) }
                        }
                    }
                }
            }
        }
        @if let Some(difference) = baseline.and_then(|baseline| baseline.difference) {
            p {
                "This run less logistic regression, ROC-AUC on the same resamples: "
                strong { (format!("{:+.3}", difference.value)) }
                @if let Some(interval) = difference.interval {
                    " (" (format!("{:+.3} to {:+.3}", interval.low, interval.high)) ")"
                }
                "."
            }
        }
    }
}

fn type_row(name: &str, figures: &Estimates) -> Markup {
    html! {
        tr {
            th scope="row" { (name) @if !has_interval(figures) { span.interval { "too few for intervals" } } }
            td.number { (figures.positives + figures.negatives) }
            td.number { (figures.positives) }
            td.number { (estimate(figures.roc_auc)) }
            td { (range(figures.roc_auc, "model")) }
            @for figure in [figures.average_precision, figures.precision, figures.recall, figures.f1] {
                td.number { (estimate(figure)) }
            }
        }
    }
}

/// A dot with its interval on a line from 0 to 1. The numbers stand beside it.
fn range(figure: Option<Estimate>, class: &str) -> Markup {
    let Some(Estimate { value, interval }) = figure else { return html! {} };
    let x = |share: f64| format!("{:.1}", 4.0 + 112.0 * share);
    html! {
        svg.range viewBox="0 0 120 14" aria-hidden="true" {
            path.grid d="M4 7H116M60 2V12" {}
            @if let Some(interval) = interval {
                path class={ "line " (class) } d={ "M" (x(interval.low)) " 7H" (x(interval.high)) } {}
            }
            circle class={ "dot " (class) } cx=(x(value)) cy="7" r="3.5" {}
        }
    }
}

fn of_alerts(alerts: &Alerts) -> Markup {
    html! {
        p {
            strong { (percent(alerts.precision)) }
            " of " (alerts.per_day) " alerts a day are right, on " (alerts.days) " days (no order of the scores could reach \
              more than " (percent(alerts.best_precision)) "). What is found leaves the queue of the days after it"
            @if let Some(stopped) = alerts.stopped {
                ", and " strong { (percent(stopped)) } " of the fraudulent amount falls on it from that day on"
            }
            "."
        }
    }
}

/// This run and others on their own test labels.
pub(super) fn beside(models: &[ModelFigures]) -> Markup {
    let share = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.4}"));
    html! {
        div.scroll {
            table {
                caption { "Each model on its own test labels" }
                thead {
                    tr {
                        th scope="col" { "Run" }
                        th scope="col" { "Test" }
                        @for model in models.iter().take(1) {
                            @for (name, _) in model.counts() { th.number scope="col" { (name) } }
                            @for (name, _) in model.shown() { th.number scope="col" { (name) } }
                        }
                    }
                }
                tbody {
                    @for model in models {
                        tr {
                            th scope="row" { (model.run.file_name().unwrap_or_default().to_string_lossy()) }
                            td { @if let Some([from, until]) = model.from_until { (date(from)) " to " (date(until)) } @else { "–" } }
                            @for (_, count) in model.counts() { td.number { (count) } }
                            @for (_, figure) in model.shown() { td.number { (share(figure)) } }
                        }
                    }
                }
            }
        }
    }
}

fn top(held_out: &HeldOut, question: Question) -> Markup {
    html! {
        div.scroll {
            table {
                caption { "Looking at the highest scores only" }
                thead {
                    tr {
                        th.number scope="col" { "Nodes" }
                        th.number scope="col" { "Right among them" }
                        th.number scope="col" { "Of all " (question.predicate()) }
                    }
                }
                tbody {
                    @for top in &held_out.overall.top {
                        tr {
                            th.number scope="row" {
                                (top.k)
                                @if top.k == held_out.overall.positives { span.interval { "as many as are " (question.predicate()) } }
                            }
                            td.number { (estimate(top.precision)) }
                            td.number { (estimate(top.recall)) }
                        }
                    }
                }
            }
        }
    }
}

fn decisions(held_out: &HeldOut, question: Question) -> Markup {
    let counts = &held_out.confusion;
    html! {
        div.scroll {
            table {
                caption {
                    "Decisions"
                    @if held_out.threshold.is_finite() { " from score " (format!("{:.4}", held_out.threshold)) }
                }
                thead {
                    tr { td {} th.number scope="col" { "Flagged" } th.number scope="col" { "Not flagged" } }
                }
                tbody {
                    tr {
                        th scope="row" { (capital(&question.positive())) }
                        td.number { (counts.true_positives) span.interval { "found" } }
                        td.number { (counts.false_negatives) span.interval { "missed" } }
                    }
                    tr {
                        th scope="row" { (capital(question.negative())) }
                        td.number { (counts.false_positives) span.interval { "false alarms" } }
                        td.number { (counts.true_negatives) span.interval { "left alone" } }
                    }
                }
            }
        }
    }
}

pub(super) fn calibration(calibration: &CalibrationFacts, question: Question) -> Markup {
    let share = percent(calibration.anomalous as f64 / calibration.labels.max(1) as f64);
    let predicate = question.predicate();
    html! {
        p {
            "Probabilities: " (calibration.description) ". They hold for nodes drawn like these labels, of which "
            (share)
            " are " (predicate) "; where "
            @match question {
                Question::Anomalous => "anomalies are rarer, a probability is",
                Question::OfClass(_) => "the class is rarer, a probability is",
                Question::Predicted => "a class is rarer, its probabilities are",
            }
            " too high by the ratio of the odds."
        }
        div.figures {
            (figures::reliability(
                "reliability-raw", "The score taken as a probability", "score", &calibration.raw, question
            ))
            (figures::reliability(
                "reliability", "The calibrated probability", "probability", &calibration.calibrated, question
            ))
        }
    }
}
