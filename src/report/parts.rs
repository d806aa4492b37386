//! What a report is gathered from.

use super::data::{Panel, RunFacts};
use crate::run::baseline::OnValidation;
use crate::run::evaluation::Evaluation;
use crate::score::ranking::Scored;

/// The parts of a run.
#[derive(Debug)]
pub struct Parts<'a> {
    pub name: String,
    /// `Stage 2: graph attention`.
    pub stage: String,
    pub score_meaning: String,
    pub run: RunFacts,
    /// Where the data were read from.
    pub data_path: String,
    pub scored: Scored<'a>,
    /// Whether the run was fitted to the training labels, and not to edges alone.
    pub fitted_to_labels: bool,
    pub baseline: BaselineScores,
    /// On the validation labels, as the training left it.
    pub on_validation: Option<OnValidation>,
    /// What the training found, of a model that was grown anew on training and validation labels: no threshold can be
    /// chosen on labels that it has learned.
    pub refit: Option<Evaluation>,
    pub training: Vec<Panel>,
    /// Highest scores that are listed.
    pub top: usize,
    /// Whether labelled nodes are listed among the others. Without it they are left out, as nobody has to look for
    /// them, unless every node with a score is labelled.
    pub all: bool,
}

/// What is known of the logistic regression beside a run.
#[derive(Debug, Clone, PartialEq)]
pub enum BaselineScores {
    Unknown,
    /// Its test ROC-AUC.
    Area(f64),
    /// Its score of every test node, in the order of the split.
    Scores(Vec<f32>),
}
