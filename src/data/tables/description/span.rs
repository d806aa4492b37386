//! Lengths of time: `"7d"`, `"12h"`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time in whole seconds, above 0; written as a number and a unit: `s`, `m`, `h`, `d` or `w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub i64);

const UNITS: [(char, i64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

impl Span {
    /// Reads `"7d"`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unit = text.chars().last()?;
        let (_, seconds) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let count: i64 = text[..text.len() - unit.len_utf8()].trim().parse().ok()?;
        count.checked_mul(seconds).filter(|&span| span > 0).map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Weeks are read, but days are what people compare.
        let whole = UNITS[1..].iter().find(|(_, seconds)| self.0 % seconds == 0);
        let (unit, seconds) = whole.unwrap_or(&UNITS[4]);
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "expected a length of time such as \"7d\", \"12h\", \"30m\" or \"2w\", found {text:?}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_a_unit() {
        let known = [("7d", 604_800, "7d"), ("1w", 604_800, "7d"), ("36 h", 129_600, "36h"), ("90m", 5_400, "90m")];
        for (text, seconds, written) in known {
            assert_eq!(Span::parse(text), Some(Span(seconds)));
            assert_eq!(Span(seconds).to_string(), written);
        }
        assert!(
            ["", "7", "d", "0d", "-1d", "7 days", "1.5d", "9223372036854775807w", "7é"]
                .iter()
                .all(|bad| Span::parse(bad).is_none())
        );
    }
}
