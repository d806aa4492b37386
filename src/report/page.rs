//! The frame of the page: head, header with the verdict, warnings, sections, footer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::data::{ClassFacts, HeldOut, Question, ReportData, Warning};
use super::numbers::{grouped, percent, plain_percent};
use super::{anomalies, classes, evaluation, figures, provenance, tournament};
use crate::metrics::Estimate;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The report as an HTML document.
pub fn render(data: &ReportData) -> String {
    let sections = sections(data);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                // Before anything else: what follows can load nothing, and run no script but ours.
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                meta name="generator" content={ "graphsieve " (data.run.version) };
                title { (data.name) " · graphsieve report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                (header(data))
                nav aria-label="Sections" {
                    ul {
                        @for section in &sections {
                            li { a href={ "#" (section.id) } { (section.title) } }
                        }
                    }
                    // The script shows it: without one it could do nothing.
                    button #theme type="button" hidden { "Dark" }
                }
                main #content {
                    (warnings(&data.warnings))
                    @for section in &sections {
                        section aria-labelledby=(section.id) {
                            h2 id=(section.id) { (section.title) }
                            (section.content)
                        }
                    }
                }
                footer {
                    p {
                        "Made by graphsieve " (data.run.version) " from " code { (data.run.directory) }
                        ". This file is complete: it loads nothing and sends nothing."
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Nothing may be loaded; styles are inline, and the script is known by its hash.
fn policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
}

struct Section {
    id: &'static str,
    title: String,
    content: Markup,
}

fn sections(data: &ReportData) -> Vec<Section> {
    let section = |id, title: &str, content| Section { id, title: title.into(), content };
    let mut sections = Vec::new();
    if let Some(facts) = &data.classes {
        sections.push(section("classes", "Classes", classes::predicted(facts)));
    }
    if let Some(held_out) = &data.held_out {
        let refit = data.split.as_ref().and_then(|split| split.refit.as_deref());
        let title = match data.question {
            Question::OfClass(class) => format!("Class {class} against the rest"),
            Question::Anomalous | Question::Predicted => "Test labels".into(),
        };
        sections.push(section("test", &title, evaluation::held_out(held_out, data.question, refit)));
    }
    if !data.beside.is_empty() {
        sections.push(section("beside", "Beside other models", evaluation::beside(&data.beside)));
    }
    if let Some(of) = &data.tournament {
        sections.push(section("tournament", "How the model was chosen", tournament::chosen(of)));
    }
    if !data.anomalies.is_empty() {
        sections.push(section("top", "Highest scores", anomalies::table(data)));
    }
    if !data.histograms.is_empty() {
        sections.push(section("scores", "Scores", figures::histograms(data)));
    }
    if let Some(calibration) = &data.calibration {
        sections.push(section("calibration", "Calibration", evaluation::calibration(calibration, data.question)));
    }
    if !data.training.is_empty() {
        sections.push(section("training", "Training", figures::training(&data.training)));
    }
    sections.push(section("run", "What was run", provenance::run(data)));
    sections
}

fn header(data: &ReportData) -> Markup {
    html! {
        header {
            p.eyebrow { "graphsieve report · " (data.stage) }
            h1 { (data.name) }
            p.verdict { (verdict(data)) }
            dl.facts {
                div { dt { "Started" } dd { time datetime=(data.run.started) { (readable_time(&data.run.started)) } } }
                div { dt { "Graph" } dd { (grouped(data.data.nodes)) " nodes, " (grouped(data.data.edges)) " edges" } }
                div { dt { "Device" } dd { (data.run.device) } }
                div { dt { "Seed" } dd { (data.run.seed) } }
            }
        }
    }
}

/// How good the run is, in one sentence.
fn verdict(data: &ReportData) -> Markup {
    if let Some(ClassFacts { report, estimates }) = &data.classes {
        let area = data.held_out.as_ref().and_then(|held_out| held_out.overall.roc_auc);
        let (_, common) = report.most_common();
        return html! {
            "The class of " strong { (percent(estimates.accuracy.value)) } " of nodes is right"
            (interval(estimates.accuracy)) ", measured on " (report.nodes) " test labels. Giving every node the most \
             common class would be right for " (percent(common as f64 / report.nodes as f64)) "."
            @if let (Some(area), Question::OfClass(class)) = (area, data.question) {
                " A node of class " (class) " has a higher probability of it than another node in "
                (percent(area.value)) " of pairs" (interval(area)) "."
            }
        };
    }
    let Some(HeldOut { overall, baseline, .. }) = &data.held_out else {
        return html! {
            "There are no test labels, so nothing here says how good the scores are: " (data.score_meaning) "."
        };
    };
    let nodes = overall.positives + overall.negatives;
    let Some(area) = overall.roc_auc else {
        return html! {
            "All " (nodes) " test labels are of one class, so nothing here says how good the scores are."
        };
    };
    html! {
        "An anomalous node scores above a normal one in " strong { (percent(area.value)) } " of pairs"
        (interval(area))
        ", measured on " (nodes) " test labels. "
        @if let Some(baseline) = baseline {
            "Logistic regression without the graph: " (percent(baseline.roc_auc.value)) ". "
        }
        "Chance: 50\u{a0}%."
    }
}

/// ` (95 % interval 80.1–83.2 %)`
fn interval(estimate: Estimate) -> Markup {
    html! {
        @if let Some(interval) = estimate.interval {
            " (95\u{a0}% interval " (plain_percent(interval.low)) "–" (percent(interval.high)) ")"
        }
    }
}

fn warnings(warnings: &[Warning]) -> Markup {
    html! {
        @if !warnings.is_empty() {
            section.warnings aria-labelledby="warnings" {
                h2 #warnings { @if warnings.len() == 1 { "A word of caution" } @else { "Words of caution" } }
                ul {
                    @for warning in warnings {
                        li { strong { (warning.title) "." } " " (warning.text) }
                    }
                }
            }
        }
    }
}

/// `2026-01-31 09:30 UTC` of `2026-01-31T09:30:00Z`; anything else as it is.
fn readable_time(text: &str) -> String {
    match text.split_once('T') {
        Some((day, clock)) if clock.len() >= 5 && clock.is_char_boundary(5) => format!("{day} {} UTC", &clock[..5]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_readable() {
        assert_eq!([0, 999, 1000, 1_540_475].map(grouped), ["0", "999", "1,000", "1,540,475"]);
        assert_eq!(readable_time("2026-01-31T09:30:00Z"), "2026-01-31 09:30 UTC");
        assert_eq!(readable_time("yesterday"), "yesterday");
        assert_eq!(percent(0.9577), "95.8\u{a0}%");
    }

    #[test]
    fn the_script_can_stand_in_a_page() {
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"), "would end the element early");
        assert!(!SCRIPT.contains("http") && !STYLE.contains("http") && !STYLE.contains("url("));
        assert!(SCRIPT.lines().count() < 150);
    }
}
