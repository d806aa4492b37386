//! What was run: data, labels, machine, settings.

use maud::{Markup, html};

use super::data::{DataFacts, Part, Question, ReportData, SplitFacts};
use super::numbers::grouped;
use super::question::capital;

pub(super) fn run(data: &ReportData) -> Markup {
    let run = &data.run;
    html! {
        dl.provenance {
            (fact("Run", html! { code { (run.directory) } }))
            (fact("Command", html! { code { (run.command) } }))
            (fact("Started", html! { (run.started) }))
            (fact("Version", html! { "graphsieve " (run.version) }))
            (fact("Commit", html! { @match &run.commit { Some(commit) => code { (commit) }, None => "unknown" } }))
            (fact("Device", html! { (run.device) }))
            (fact("Seed", html! { (run.seed) }))
            (fact("Data", html! { code { (data.data.path) } }))
            (fact("Scores", html! { (data.score_meaning) }))
        }
        (graph(&data.data, data.question))
        @if let Some(split) = &data.split { (parts(split, data.question)) }
        details.config data-print="open" {
            summary { "Settings, every default filled in" }
            div.scroll tabindex="0" role="group" aria-label="Settings" { pre { code { (run.config.trim_end()) } } }
        }
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// The columns that labels are counted in.
fn label_columns(question: Question) -> Vec<String> {
    match question {
        Question::Predicted => vec!["Labelled".into()],
        _ => vec![capital(&question.positive()), capital(question.negative())],
    }
}

/// What stands in these columns.
fn label_counts(question: Question, [labelled, anomalous, normal]: [usize; 3]) -> Vec<usize> {
    match question {
        Question::Predicted => vec![labelled],
        _ => vec![anomalous, normal],
    }
}

fn graph(data: &DataFacts, question: Question) -> Markup {
    html! {
        div.columns {
            div.scroll {
                table {
                    caption {
                        "Nodes"
                        @if let Some(dim) = data.feature_dim { ", with " (dim) " features each" }
                    }
                    thead {
                        tr {
                            th scope="col" { "Type" }
                            th.number scope="col" { "Nodes" }
                            @for name in label_columns(question) { th.number scope="col" { (name) } }
                        }
                    }
                    tbody {
                        @for t in &data.types {
                            tr {
                                th scope="row" { (t.name) }
                                td.number { (grouped(t.nodes)) }
                                @for count in label_counts(question, [t.labelled, t.anomalous, t.normal]) {
                                    td.number { (grouped(count)) }
                                }
                            }
                        }
                    }
                }
            }
            div.scroll {
                table {
                    caption { "Relations" }
                    thead {
                        tr {
                            th scope="col" { "Name" } th scope="col" { "To ← from" }
                            @for name in ["Edges", "Mean degree", "Highest"] { th.number scope="col" { (name) } }
                        }
                    }
                    tbody {
                        @for r in &data.relations {
                            tr {
                                th scope="row" { (r.name) } td { (r.dst) " ← " (r.src) }
                                td.number { (grouped(r.edges)) } td.number { (format!("{:.1}", r.mean_degree)) }
                                td.number { (grouped(r.max_degree)) }
                            }
                        }
                    }
                }
            }
        }
        @for note in &data.notes { p.note { (note) } }
    }
}

fn parts(split: &SplitFacts, question: Question) -> Markup {
    html! {
        div.scroll {
            table {
                caption {
                    "Labels"
                    @if let Some(rule) = &split.rule { ", divided " (rule) }
                }
                thead {
                    tr {
                        th scope="col" { "Part" }
                        @for name in label_columns(question) { th.number scope="col" { (name) } }
                        th scope="col" { "Used for" }
                    }
                }
                tbody {
                    @for facts in &split.parts {
                        tr {
                            th scope="row" { (facts.part.name()) }
                            @for count in label_counts(question, [facts.labelled, facts.anomalous, facts.normal]) {
                                td.number { (grouped(count)) }
                            }
                            td { (purpose(facts.part, question, split.refit.is_some())) }
                        }
                    }
                }
            }
        }
    }
}

/// What the labels of a part are for; a model that was grown anew (`refit`) has learned those of validation in the end.
fn purpose(part: Part, question: Question, refit: bool) -> &'static str {
    match part {
        Part::Train => "fitting",
        Part::Validation if refit => "choosing the trees and the threshold, fitting the calibration, then fitting",
        Part::Validation if question == Question::Predicted => "choosing the checkpoint, fitting the calibrations",
        Part::Validation => "choosing checkpoint and threshold, fitting the calibration",
        Part::Test => "the figures of this report",
    }
}
