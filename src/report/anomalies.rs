//! The list of the highest scores, each with the reasons for it.

use std::collections::BTreeSet;

use maud::{Markup, PreEscaped, html};

use super::data::{Anomaly, Explained, NodeClass, Part, ReportData};
use super::numbers::grouped;
use crate::score::explain::Coverage;

/// What a column is sorted by; the script reads it.
#[derive(Clone, Copy)]
enum Sort {
    Number,
    Text,
}

/// Names of the columns; lists of node classifiers have the predicted class, too.
fn columns(classes: bool) -> Vec<(&'static str, Sort)> {
    let class = classes.then_some(("Class", Sort::Number));
    let before = [("Rank", Sort::Number), ("Type", Sort::Text), ("Id", Sort::Text)];
    let behind = [("Score", Sort::Number), ("Probability", Sort::Number), ("Label", Sort::Text)];
    before.into_iter().chain(class).chain(behind).collect()
}

pub(super) fn table(data: &ReportData) -> Markup {
    let anomalies = &data.anomalies;
    let classes = data.classes.is_some();
    let types: Vec<&str> = data.data.types.iter().map(|node_type| node_type.name.as_str()).collect();
    html! {
        p {
            @if data.left_out > 0 {
                "The " (anomalies.len()) " highest of the " (grouped(data.scored_nodes - data.left_out))
                " scores of nodes without a label; " (grouped(data.left_out)) " labelled nodes are left out. "
            } @else {
                "The " (anomalies.len()) " highest of " (grouped(data.scored_nodes)) " scores. "
            }
            @if anomalies.iter().any(|anomaly| anomaly.explanation.is_some()) {
                "Open a line below a node to see its neighbourhood and what moved its score."
                @if let Some((first, others)) = data.coverage.as_ref().and_then(Coverage::of_first) {
                    @if !others.is_empty() {
                        " The reasons are those of " (first) " alone, not of " (others.join(", "))
                        ", which the ensemble averages, too."
                    }
                }
            }
        }
        // The script shows it: without one it could do nothing.
        div.controls hidden data-controls="anomalies" {
            label {
                "Type "
                select data-filter="type" {
                    option value="" { "all" }
                    @for name in types { option value=(name) { (name) } }
                }
            }
            @if anomalies.iter().any(|anomaly| anomaly.label.is_some()) {
                label {
                    "Label "
                    select data-filter="label" {
                        option value="" { "all" }
                        option value="unlabelled" { "without" }
                        @for name in labels(classes) { option value=(name) { (name) } }
                    }
                }
            }
            @if classes {
                label {
                    "Class "
                    select data-filter="class" {
                        option value="" { "all" }
                        @for class in predicted(anomalies) { option value=(class) { (class) } }
                    }
                }
            }
            label {
                "Search "
                input type="search" data-filter="text" placeholder="id" autocomplete="off" spellcheck="false";
            }
            output aria-live="polite" data-count="anomalies" {}
        }
        div.scroll {
            table.wide.anomalies #anomalies {
                caption { "Highest scores" }
                thead {
                    tr {
                        @for (at, (name, sort)) in columns(classes).into_iter().enumerate() {
                            th scope="col" class=[(at > 0 && matches!(sort, Sort::Number)).then_some("number")]
                                data-sort=(match sort { Sort::Number => "number", Sort::Text => "text" })
                                aria-sort=[(at == 0).then_some("ascending")] { (name) }
                        }
                    }
                }
                @for anomaly in anomalies { (row(anomaly)) }
            }
        }
    }
}

/// What a label can say: the first is the conspicuous one.
fn labels(classes: bool) -> [&'static str; 2] {
    if classes { ["wrong", "right"] } else { ["anomalous", "normal"] }
}

/// The classes that are predicted of listed nodes, each once.
fn predicted(anomalies: &[Anomaly]) -> BTreeSet<u32> {
    anomalies.iter().filter_map(|anomaly| Some(anomaly.class?.predicted)).collect()
}

/// The row of a node and the one with its reasons: a body of their own, so that they stay together when sorted.
fn row(anomaly: &Anomaly) -> Markup {
    let [conspicuous, expected] = labels(anomaly.class.is_some());
    let (label, class) = match anomaly.label {
        None => ("unlabelled", "none"),
        Some((true, _)) => (conspicuous, "anomalous"),
        Some((false, _)) => (expected, "normal"),
    };
    let part = anomaly.label.and_then(|(_, part)| part).map(Part::name);
    html! {
        tbody data-type=(anomaly.node_type) data-label=(label)
            data-class=[anomaly.class.map(|class| class.predicted)] data-text={ (anomaly.node_type) ":" (anomaly.id) " " (anomaly.between.as_deref().unwrap_or_default()) } {
            tr {
                td.rank data-value=(anomaly.rank) { (anomaly.rank) }
                td data-value=(anomaly.node_type) { (anomaly.node_type) }
                th.id scope="row" data-value=(anomaly.id) {
                    (anomaly.id)
                    @if let Some(between) = &anomaly.between { span.interval { (between) } }
                }
                @if let Some(NodeClass { predicted, .. }) = anomaly.class {
                    td.number data-value=(predicted) { (predicted) }
                }
                td.number data-value=(anomaly.score) { (format!("{:.4}", anomaly.score)) }
                td.number data-value=[anomaly.probability] {
                    @match anomaly.probability { Some(p) => (probability(p)), None => span.none { "–" } }
                }
                td data-value=(label) {
                    @match anomaly.label {
                        None => span.none { "–" },
                        Some((anomalous, _)) => {
                            span class={ "label " (class) } {
                                (if anomalous { "▲" } else { "○" })
                                @match anomaly.class.and_then(|class| class.known) {
                                    Some(known) => { " " (known) span.word { " " (label) } }
                                    None => span.word { " " (label) },
                                }
                            }
                            @if let Some(part) = part { span.interval { (part) " label" } }
                        }
                    }
                }
            }
            @if let Some(explained) = &anomaly.explanation { (why(anomaly, explained)) }
        }
    }
}

fn why(anomaly: &Anomaly, explained: &Explained) -> Markup {
    let first = explained.reasons.first().map_or("Neighbourhood", String::as_str);
    html! {
        tr.why {
            td colspan=(columns(anomaly.class.is_some()).len()) {
                details {
                    summary { (first) span.aside { " · why " (anomaly.node_type) ":" (anomaly.id) } }
                    div.reasons {
                        div.neighbourhood { (PreEscaped(&explained.svg)) }
                        div {
                            @if explained.reasons.len() > 1 {
                                ol { @for reason in &explained.reasons { li { (reason) } } }
                            }
                            @if !explained.note.is_empty() { p.note { (explained.note) } }
                        }
                    }
                }
            }
        }
    }
}

/// `93.1 %`; what rounds to certainty is not called certain.
fn probability(p: f64) -> String {
    match p {
        p if p > 0.999 => "> 99.9\u{a0}%".into(),
        p if p < 0.001 => "< 0.1\u{a0}%".into(),
        p => super::numbers::percent(p),
    }
}
