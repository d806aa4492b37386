//! What the columns are called that a column of a table becomes. They follow from the description alone.

use super::description::{Encoding, FeatureKind};

/// The columns of a kind, whose names begin with `name`.
pub(super) fn column_names(kind: &FeatureKind, name: &str) -> Vec<String> {
    let missing = || format!("{name}_missing");
    let numbered = |width: usize| (0..width).map(|at| format!("{name}_{at}")).collect();
    match kind {
        FeatureKind::Numeric { .. } | FeatureKind::Boolean {} => vec![name.to_owned(), missing()],
        FeatureKind::Categorical { encoding: Encoding::Hash, width } | FeatureKind::Text { width } => numbered(*width),
        FeatureKind::Categorical { encoding: Encoding::Frequency, .. } => {
            vec![format!("{name}_frequency"), missing()]
        }
        FeatureKind::Timestamp { format, .. } => {
            let hour = ["hour_sin", "hour_cos"].into_iter().filter(|_| has_hour(format.as_deref()));
            let parts = hour.chain(["weekday_sin", "weekday_cos", "yearday_sin", "yearday_cos", "recency", "missing"]);
            parts.map(|part| format!("{name}_{part}")).collect()
        }
    }
}

/// Whether times of a pattern have a time of day; without a pattern they do.
pub(super) fn has_hour(format: Option<&str>) -> bool {
    let names_hours = |pattern: &str| {
        ["%H", "%I", "%k", "%l", "%T", "%R", "%r", "%X", "%c", "%s", "%+"].iter().any(|part| pattern.contains(part))
    };
    format.is_none_or(names_hours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::missing_flags;

    #[test]
    fn the_column_that_says_what_is_missing_is_found_by_its_name() {
        let flags = |kind: &str| {
            let names = column_names(&toml::from_str(kind).unwrap(), "a_b");
            (missing_flags(&names), names.len())
        };
        for kind in ["numeric", "boolean", "timestamp"] {
            let (mut flags, width) = flags(&format!("kind = \"{kind}\""));
            assert_eq!(flags.pop(), Some(None), "{kind}");
            assert!(flags.len() + 1 == width && flags.iter().all(|flag| *flag == Some(width - 1)), "{kind}: {flags:?}");
        }
        let counted = flags("kind = \"categorical\"\nencoding = \"frequency\"");
        assert_eq!(counted, (vec![Some(1), None], 2));
        assert_eq!(flags("kind = \"categorical\"\nencoding = \"hash\"\nwidth = 2"), (vec![None; 2], 2));
    }
}
