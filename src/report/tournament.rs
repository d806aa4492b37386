//! What else was tried, and why the model was chosen.

use maud::{Markup, html};

use crate::run::tournament::Tournament;

pub(super) fn chosen(of: &Tournament) -> Markup {
    let model = of.model.as_ref().map(|model| model.name.as_str());
    html! {
        p { (of.why()) }
        @if !of.complete { p { "The tournament was interrupted: the model is the best so far." } }
        div.scroll tabindex="0" role="group" aria-label="Candidates" {
            table {
                caption { "Candidates, the simplest first, by validation " (of.figure.title()) }
                thead {
                    tr {
                        @for (at, title) in of.titles().iter().enumerate() {
                            th.number[at > 0] scope="col" { (title) }
                        }
                    }
                }
                tbody {
                    @for entry in of.entries() {
                        @let cells = of.cells(entry);
                        tr {
                            th scope="row" {
                                @if Some(entry.name.as_str()) == model { strong { (entry.name) } } @else { (entry.name) }
                                ": " (entry.about)
                            }
                            @for cell in &cells[1..] { td.number { (cell) } }
                        }
                    }
                }
            }
        }
        p.note {
            "± is a standard error of the figure by a bootstrap of the validation labels. A candidate that a round "
            "leaves out, or that had no time left, keeps the figure of its latest round. An ensemble has as many models as "
            "its column of epochs or trees says, the time of all of them, and a figure by parts of the validation labels."
        }
    }
}
