//! Settings of the split operator.

use super::refuse;
use crate::error::Result;

/// Where the rows of a side are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Counts {
    /// Counted.
    #[default]
    Exact,
    /// rint(H_side · n / H), as LightGBM does; differs from the true count where hessians differ.
    Estimated,
}

/// What makes a split valid and what it is worth.
#[derive(Clone, Debug)]
pub struct SplitRule {
    /// λ₁ ≥ 0. Default 0.
    pub lambda_l1: f64,
    /// λ₂ ≥ 0. Default 0.
    pub lambda_l2: f64,
    /// Largest magnitude of an output; 0 sets no limit. Default 0.
    pub max_delta_step: f64,
    /// p ≥ 0 of the path smoothing; 0 is off. Default 0.
    pub path_smooth: f64,
    /// Fewest rows on a side. Default 20.
    pub min_data_in_leaf: u32,
    /// Smallest hessian sum on a side. Default 1e-3.
    pub min_sum_hessian: f64,
    /// Gain that a split must exceed. Default 0.
    pub min_gain: f64,
    /// Categorical features with at most this many bins are split one category against the rest. Default 4.
    pub max_cat_to_onehot: u32,
    /// Most categories on the smaller list of a sorted split. Default 32.
    pub max_cat_threshold: u32,
    /// Added to λ₂ in sorted splits. Default 10.
    pub cat_l2: f64,
    /// Fewest rows of a category in sorted splits, and the pull of its sorting key towards 0. Default 10.
    pub cat_smooth: f64,
    /// Fewest rows between two candidates of a sorted split. Default 100.
    pub min_data_per_group: u32,
    /// How rows are counted. Default exact.
    pub counts: Counts,
    /// True when any feature is monotone: sides are then scored by their bounded outputs. Default false.
    pub bounded: bool,
}

impl Default for SplitRule {
    fn default() -> Self {
        SplitRule {
            lambda_l1: 0.0,
            lambda_l2: 0.0,
            max_delta_step: 0.0,
            path_smooth: 0.0,
            min_data_in_leaf: 20,
            min_sum_hessian: 1e-3,
            min_gain: 0.0,
            max_cat_to_onehot: 4,
            max_cat_threshold: 32,
            cat_l2: 10.0,
            cat_smooth: 10.0,
            min_data_per_group: 100,
            counts: Counts::Exact,
            bounded: false,
        }
    }
}

impl SplitRule {
    /// Checks every range.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) that names the key.
    pub fn check(&self) -> Result<()> {
        let floors = [
            ("lambda_l1", self.lambda_l1),
            ("lambda_l2", self.lambda_l2),
            ("max_delta_step", self.max_delta_step),
            ("path_smooth", self.path_smooth),
            ("min_sum_hessian", self.min_sum_hessian),
            ("min_gain", self.min_gain),
            ("cat_l2", self.cat_l2),
            ("cat_smooth", self.cat_smooth),
        ];
        if let Some((key, found)) = floors.into_iter().find(|(_, v)| !(v.is_finite() && *v >= 0.0)) {
            return Err(refuse::setting(key, "a finite number of at least 0", found, "0 switches it off"));
        }
        if self.path_smooth > 0.0 && self.min_data_in_leaf < 2 {
            let help = "raise min_data_in_leaf, or set path_smooth to 0";
            return Err(refuse::setting(
                "min_data_in_leaf",
                "at least 2 with path_smooth",
                self.min_data_in_leaf,
                help,
            ));
        }
        Ok(())
    }
}
