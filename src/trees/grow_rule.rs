//! Settings of the growth of a tree.

use super::refuse;
use super::split::{SplitRule, check_rule};
use crate::error::Result;

/// How a tree grows.
#[derive(Clone, Debug)]
pub struct GrowRule {
    /// Most leaves; `None` splits every leaf that can be split. Default 31.
    pub num_leaves: Option<u32>,
    /// Most edges from the root to a leaf. Default `None`, no limit.
    pub max_depth: Option<u32>,
    /// What makes a split valid. Default [`SplitRule::default`].
    pub split: SplitRule,
    /// Only one random threshold per feature and leaf may win. Default false.
    pub extra_trees: bool,
    /// Share of the features that a tree sees, in (0, 1]. Default 1.
    pub feature_fraction: f64,
    /// Share of the tree's features that a node sees, in (0, 1]. Default 1.
    pub feature_fraction_bynode: f64,
    /// When no feature of a node's share has a valid split, look at the next share. Default false.
    pub look_on: bool,
    /// Per feature +1, −1 or 0; empty for none. Default empty.
    pub monotone: Vec<i8>,
    /// Groups of features: those between the root and a leaf have a group in common. A feature of no group stands alone
    /// there, as in XGBoost. Empty for no constraint. Default empty.
    pub interactions: Vec<Vec<u32>>,
}

impl Default for GrowRule {
    fn default() -> Self {
        GrowRule {
            num_leaves: Some(31),
            max_depth: None,
            split: SplitRule::default(),
            extra_trees: false,
            feature_fraction: 1.0,
            feature_fraction_bynode: 1.0,
            look_on: false,
            monotone: Vec::new(),
            interactions: Vec::new(),
        }
    }
}

impl GrowRule {
    /// True when two trees on the same gradients may differ.
    pub(super) fn is_random(&self) -> bool {
        self.extra_trees || self.feature_fraction < 1.0 || self.feature_fraction_bynode < 1.0
    }

    /// The rule of splits, which knows whether any feature is monotone.
    pub(super) fn split_rule(&self) -> SplitRule {
        let bounded = self.split.bounded || self.monotone.iter().any(|&sign| sign != 0);
        SplitRule { bounded, ..self.split.clone() }
    }

    /// Checks every range against the `features` of the data.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) that names the key.
    pub fn check(&self, features: usize) -> Result<()> {
        check_rule(&self.split)?;
        let shares =
            [("feature_fraction", self.feature_fraction), ("feature_fraction_bynode", self.feature_fraction_bynode)];
        if let Some((key, found)) = shares.into_iter().find(|(_, v)| !(*v > 0.0 && *v <= 1.0)) {
            return Err(refuse::setting(key, "a number in (0, 1]", found, "1 uses every feature"));
        }
        if let Some(leaves) = self.num_leaves.filter(|&leaves| leaves < 2) {
            return Err(refuse::setting("num_leaves", "at least 2", leaves, "31 is the usual choice"));
        }
        if !self.monotone.is_empty() && self.monotone.len() != features {
            let help = "give one of -1, 0, 1 per feature, or none at all";
            return Err(refuse::setting("monotone", format!("{features} signs"), self.monotone.len(), help));
        }
        if let Some(sign) = self.monotone.iter().find(|sign| !(-1..=1).contains(*sign)) {
            return Err(refuse::setting("monotone", "-1, 0 or 1", sign, "0 leaves a feature free"));
        }
        if let Some(feature) = self.interactions.iter().flatten().find(|&&feature| feature as usize >= features) {
            let expected = format!("features below {features}");
            return Err(refuse::setting("interactions", expected, feature, "features are counted from 0"));
        }
        Ok(())
    }
}
