//! From an explanation to what the list of a report shows of it.

use super::data::Explained;
use crate::score::explain::drawing::neighbourhood;
use crate::score::explain::{Explanation, Line, NeighbourPart};

/// Sentences about neighbours, about columns, and about known anomalies.
const NEIGHBOURS: usize = 6;
const COLUMNS: usize = 3;
const SIMILAR: usize = 2;

/// The drawing and the weightiest parts of an explanation, in words.
pub fn explained(explanation: &Explanation) -> Explained {
    let unit = &explanation.unit;
    let mut reasons: Vec<String> =
        explanation.neighbours.iter().take(NEIGHBOURS).map(|part| neighbour(part, explanation)).collect();
    let left = explanation.neighbours.len().saturating_sub(NEIGHBOURS) + explanation.more_neighbours;
    if left > 0 && !reasons.is_empty() {
        reasons.push(format!("{left} more neighbours, each of them weighs less"));
    }
    reasons.extend(explanation.lines().into_iter().take(COLUMNS).map(|line| {
        let Line { column, value, block, contribution } = line;
        format!("{column} {value} ({block}) adds {contribution:+.2} to the {unit}")
    }));
    let similar = explanation.similar.iter().take(SIMILAR);
    reasons.extend(
        similar.map(|part| {
            format!("like the known anomaly {} (cosine of the embeddings {:.2})", part.name, part.similarity)
        }),
    );
    Explained { svg: neighbourhood(explanation), reasons, note: explanation.method.text.replace('`', "") }
}

fn neighbour(part: &NeighbourPart, explanation: &Explanation) -> String {
    let known = match explanation.known(part.label) {
        Some([_, known]) => format!(" ({known})"),
        None => part.score.map(|score| format!(" (score {score:.2})")).unwrap_or_default(),
    };
    let unit = &explanation.unit;
    match (explanation.method.additive, part.removal) {
        (false, Some(removal)) => {
            format!("{}{known} by {}: {removal:+.2} to the {unit} by being there", part.name, part.relation)
        }
        _ => format!("{}{known} by {}: adds {:+.2} to the {unit}", part.name, part.relation, part.contribution),
    }
}
