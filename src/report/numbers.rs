//! Numbers as a page shows them.

use maud::{Markup, html};

pub(super) use crate::error::grouped;
use crate::metrics::Estimate;

/// `95.8 %`, on one line.
pub(super) fn percent(share: f64) -> String {
    format!("{}\u{a0}%", plain_percent(share))
}

pub(super) fn plain_percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// `0.958` with its interval below, or a dash.
pub(super) fn estimate(estimate: Option<Estimate>) -> Markup {
    html! {
        @match estimate {
            None => span.none { "–" },
            Some(Estimate { value, interval }) => {
                (format!("{value:.3}"))
                @if let Some(interval) = interval {
                    span.interval { (format!("{:.3}–{:.3}", interval.low, interval.high)) }
                }
            }
        }
    }
}
