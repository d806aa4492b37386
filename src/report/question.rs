//! What the scores of a report are about, in words.

use serde::{Deserialize, Serialize};

/// What a high score says of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// That it is anomalous, and not normal.
    Anomalous,
    /// That it is of this class, and not of another.
    OfClass(u32),
    /// That it is of the class that is predicted of it.
    Predicted,
}

impl Question {
    /// Of a node with the label 1, as a heading: `anomalous`.
    pub fn positive(self) -> String {
        match self {
            Question::Anomalous => "anomalous".into(),
            Question::OfClass(class) => format!("class {class}"),
            Question::Predicted => "right".into(),
        }
    }

    /// Of a node with the label 0.
    pub fn negative(self) -> &'static str {
        match self {
            Question::Anomalous => "normal",
            Question::OfClass(_) => "other classes",
            Question::Predicted => "wrong",
        }
    }

    /// What nodes with the label 1 are: `12 % are anomalous`.
    pub fn predicate(self) -> String {
        match self {
            Question::Anomalous => "anomalous".into(),
            Question::OfClass(class) => format!("of class {class}"),
            Question::Predicted => "of the predicted class".into(),
        }
    }

    /// Nodes with the label 1.
    pub fn positives(self) -> String {
        match self {
            Question::Anomalous => "anomalous nodes".into(),
            Question::OfClass(_) | Question::Predicted => format!("nodes {}", self.predicate()),
        }
    }

    /// Nodes with the label 0.
    pub fn negatives(self) -> &'static str {
        match self {
            Question::Anomalous => "normal nodes",
            Question::OfClass(_) | Question::Predicted => "nodes of other classes",
        }
    }
}

/// With a capital letter.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
