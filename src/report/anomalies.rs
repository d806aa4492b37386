//! The list of the highest scores, each with the reasons for it.

use maud::{Markup, PreEscaped, html};

use super::data::{Anomaly, Explained, Part, ReportData};
use super::page::grouped;

/// What a column is sorted by; the script reads it.
#[derive(Clone, Copy)]
enum Sort {
    Number,
    Text,
}

const COLUMNS: [(&str, Sort); 6] = [
    ("Rank", Sort::Number),
    ("Type", Sort::Text),
    ("Id", Sort::Text),
    ("Score", Sort::Number),
    ("Probability", Sort::Number),
    ("Label", Sort::Text),
];

pub(super) fn table(data: &ReportData) -> Markup {
    let anomalies = &data.anomalies;
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
                        option value="anomalous" { "anomalous" }
                        option value="normal" { "normal" }
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
                        @for (at, (name, sort)) in COLUMNS.into_iter().enumerate() {
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

/// The row of a node and the one with its reasons: a body of their own, so that they stay together when sorted.
fn row(anomaly: &Anomaly) -> Markup {
    let (label, class) = match anomaly.label {
        None => ("unlabelled", "none"),
        Some((true, _)) => ("anomalous", "anomalous"),
        Some((false, _)) => ("normal", "normal"),
    };
    let part = anomaly.label.and_then(|(_, part)| part).map(Part::name);
    html! {
        tbody data-type=(anomaly.node_type) data-label=(label) data-text={ (anomaly.node_type) ":" (anomaly.id) } {
            tr {
                td.rank data-value=(anomaly.rank) { (anomaly.rank) }
                td data-value=(anomaly.node_type) { (anomaly.node_type) }
                th.id scope="row" data-value=(anomaly.id) { (anomaly.id) }
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
                                span.word { (if anomalous { " anomalous" } else { " normal" }) }
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
            td colspan=(COLUMNS.len()) {
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
        p => super::page::percent(p),
    }
}
