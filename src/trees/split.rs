//! The split operator and its settings. It stands with the kernels that repeat it on devices.

pub use graphsieve_kernels::{
    Counts, Cut, GradientScale, GradientSum, Split, SplitFeature, SplitLeaf, SplitRule, SplitSide, best_split,
    root_output,
};

use super::refuse;
use crate::error::Result;

/// Checks every range of a rule.
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) that names the key.
pub fn check_rule(rule: &SplitRule) -> Result<()> {
    let floors = [
        ("lambda_l1", rule.lambda_l1),
        ("lambda_l2", rule.lambda_l2),
        ("max_delta_step", rule.max_delta_step),
        ("path_smooth", rule.path_smooth),
        ("min_sum_hessian", rule.min_sum_hessian),
        ("min_gain", rule.min_gain),
        ("cat_l2", rule.cat_l2),
        ("cat_smooth", rule.cat_smooth),
    ];
    if let Some((key, found)) = floors.into_iter().find(|(_, v)| !(v.is_finite() && *v >= 0.0)) {
        return Err(refuse::setting(key, "a finite number of at least 0", found, "0 switches it off"));
    }
    if rule.path_smooth > 0.0 && rule.min_data_in_leaf < 2 {
        let (expected, found) = ("at least 2 with path_smooth", rule.min_data_in_leaf);
        return Err(refuse::setting(
            "min_data_in_leaf",
            expected,
            found,
            "raise min_data_in_leaf, or set path_smooth to 0",
        ));
    }
    Ok(())
}
