//! Names of features.

use std::collections::HashSet;

use super::refuse;
use crate::error::Result;

/// `Column_0`, `Column_1`, …: the names of features that were given none, as in LightGBM.
pub(super) fn default_names(features: usize) -> Vec<String> {
    (0..features).map(|feature| format!("Column_{feature}")).collect()
}

/// Refuses names that are not one per feature, or that LightGBM's text cannot hold: empty ones, repeated ones, with
/// white space or with a character that is special in JSON.
pub(super) fn check_names(names: &[String], features: usize) -> Result<()> {
    if names.len() != features {
        return Err(refuse::data("feature names", format!("{features} names"), names.len(), "give one per feature"));
    }
    let special = |c: char| c.is_whitespace() || c.is_control() || "\",:[]{}".contains(c);
    let mut seen = HashSet::new();
    for (feature, name) in names.iter().enumerate() {
        let what = || format!("name of feature {feature}");
        if name.is_empty() || name.contains(special) {
            let help = "write _ in its place";
            let expected = "a word without white space and without any of \" , : [ ] { }";
            return Err(refuse::data(what(), expected, format!("{name:?}"), help));
        }
        if !seen.insert(name) {
            return Err(refuse::data(what(), "a name of its own", format!("{name:?} again"), "number the names"));
        }
    }
    Ok(())
}
