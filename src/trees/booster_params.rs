//! What a booster is fitted to, and how.

use std::time::Instant;

use super::early_stop::Validation;
use super::grow_rule::GrowRule;
use super::objective::{ClassWeight, Objective};

/// Settings of a booster.
#[derive(Clone, Debug)]
pub struct BoosterParams {
    /// Loss. Default logistic without class weight.
    pub objective: Objective,
    /// Most trees. Default 100.
    pub rounds: usize,
    /// Factor on every tree, in (0, 1]. Default 0.1.
    pub learning_rate: f64,
    /// How a tree grows.
    pub grow: GrowRule,
    /// Rows that a tree sees. Default all.
    pub bagging: Bagging,
    /// Seed of every draw. Default 0.
    pub seed: u64,
    /// From when on no tree is begun, other than a first one. What is fitted then depends on the speed of the machine.
    /// Default `None`.
    pub deadline: Option<Instant>,
}

impl Default for BoosterParams {
    fn default() -> Self {
        BoosterParams {
            objective: Objective::Binary { weight: ClassWeight::None },
            rounds: 100,
            learning_rate: 0.1,
            grow: GrowRule::default(),
            bagging: Bagging::default(),
            seed: 0,
            deadline: None,
        }
    }
}

/// Which rows a tree sees: each row is drawn on its own, without replacement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bagging {
    /// Share of the negative rows (of all rows for [`Objective::Squared`]), in (0, 1]. Default 1.
    pub negative: f64,
    /// Share of the positive rows, in (0, 1]. Default 1.
    pub positive: f64,
    /// Rounds for which a bag is kept, at least 1. Default 1.
    pub every: usize,
}

impl Default for Bagging {
    fn default() -> Self {
        Bagging { negative: 1.0, positive: 1.0, every: 1 }
    }
}

impl Bagging {
    /// The same share of both classes, drawn anew for every tree.
    pub fn share(share: f64) -> Self {
        Bagging { negative: share, positive: share, every: 1 }
    }

    pub(super) fn all(&self) -> bool {
        self.negative >= 1.0 && self.positive >= 1.0
    }
}

/// What is fitted: labels, and optionally weights and held-out rows.
#[derive(Clone, Copy)]
pub struct Fit<'a> {
    /// One label per row: 0 or 1, or any number for [`Objective::Squared`].
    pub labels: &'a [f32],
    /// One weight per row, at least 0. A weight of 2 is a row that is there twice.
    pub weights: Option<&'a [f32]>,
    /// Rows that decide when to stop.
    pub validation: Option<Validation<'a>>,
}

impl<'a> Fit<'a> {
    /// Labels alone.
    pub fn labels(labels: &'a [f32]) -> Self {
        Fit { labels, weights: None, validation: None }
    }
}
