//! What the value of a key may be: functions for `#[serde(deserialize_with)]`, whose errors end in "expected …".

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value;

use crate::error::grouped;

/// A value that `take` can use.
fn checked<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: impl FnOnce() -> String,
    take: impl FnOnce(&Value) -> Option<T>,
) -> Result<T, D::Error> {
    take(&Value::deserialize(deserializer)?).ok_or_else(|| D::Error::custom(format!("expected {}", expected())))
}

fn integer(value: &Value) -> Option<usize> {
    usize::try_from(value.as_integer()?).ok()
}

/// An integer of at least `LOW`.
pub(super) fn at_least<'de, const LOW: usize, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let expected = || format!("an integer of at least {LOW}");
    checked(deserializer, expected, |value| integer(value).filter(|&integer| integer >= LOW))
}

/// An integer from `LOW` to `HIGH`.
pub(super) fn between<'de, const LOW: usize, const HIGH: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<usize, D::Error> {
    let expected = || format!("an integer from {LOW} to {}", grouped(HIGH));
    checked(deserializer, expected, |value| integer(value).filter(|integer| (LOW..=HIGH).contains(integer)))
}

/// Most channels of a layer: a matrix of that width on both sides has 17 GB.
const MAX_CHANNELS: usize = 1 << 16;

/// Channels of a layer.
pub(super) fn channels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    between::<1, MAX_CHANNELS, D>(deserializer)
}

/// A seed: TOML integers end at 2^63 - 1.
pub(super) fn seed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let seed = |value: &Value| u64::try_from(value.as_integer()?).ok();
    checked(deserializer, || "an integer from 0 to 2^63 - 1".into(), seed)
}

/// A list of integers of at least 0.
pub(super) fn integers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<usize>, D::Error> {
    let expected = || "a list of integers of at least 0, such as [15, 10]".into();
    checked(deserializer, expected, |value| value.as_array()?.iter().map(integer).collect())
}

/// Most quantiles that are computed of a column.
const MAX_QUANTILES: usize = 16;

/// A list of numbers in [0, 1].
pub(super) fn quantiles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|integer| integer as f64));
    let quantile = |value: &Value| number(value).filter(|quantile| (0.0..=1.0).contains(quantile));
    let expected = || format!("a list of at most {MAX_QUANTILES} numbers in [0, 1], such as [0.25, 0.5, 0.75]");
    let short = |list: &Vec<f64>| list.len() <= MAX_QUANTILES;
    checked(deserializer, expected, |value| {
        value.as_array()?.iter().map(quantile).collect::<Option<Vec<f64>>>().filter(short)
    })
}

/// Integers of at least 1 under names of the user's own.
pub(super) fn counts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, usize>, D::Error> {
    let count = |(name, value): (&String, &Value)| Some((name.clone(), integer(value).filter(|&count| count > 0)?));
    let expected = || "an integer of at least 1".into();
    checked(deserializer, expected, |value| value.as_table()?.iter().map(count).collect())
}

/// 1 or -1 under names of the user's own.
pub(super) fn signs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, i8>, D::Error> {
    let sign = |(name, value): (&String, &Value)| match value.as_integer()? {
        sign @ (-1 | 1) => Some((name.clone(), sign as i8)),
        _ => None,
    };
    checked(deserializer, || "1 or -1".into(), |value| value.as_table()?.iter().map(sign).collect())
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(String::from)).collect()
}

/// A list of names.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked(deserializer, || "a list of names, such as [\"code\"]".into(), texts)
}

/// Lists of names.
pub(super) fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<String>>, D::Error> {
    let expected = || "lists of names, such as [[\"amount\", \"age\"]]".into();
    checked(deserializer, expected, |value| value.as_array()?.iter().map(texts).collect())
}

fn number<'de, D: Deserializer<'de>>(deserializer: D, range: impl RangeBounds<f64>) -> Result<f64, D::Error> {
    let take = |value: &Value| {
        let number = value.as_float().or_else(|| value.as_integer().map(|integer| integer as f64));
        number.filter(|number| number.is_finite() && range.contains(number))
    };
    checked(deserializer, || describe(&range), take)
}

/// A range in words: `a number in [0, 1)`.
fn describe(range: &impl RangeBounds<f64>) -> String {
    let low = match range.start_bound() {
        Bound::Included(low) => format!("[{low}"),
        Bound::Excluded(low) => format!("({low}"),
        Bound::Unbounded => "(-infinity".to_string(),
    };
    let high = match range.end_bound() {
        Bound::Included(high) => format!("{high}]"),
        Bound::Excluded(high) => format!("{high})"),
        Bound::Unbounded => "infinity)".to_string(),
    };
    format!("a number in {low}, {high}")
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $range:expr;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
            number(deserializer, $range)
        }
    )*};
}

numbers! {
    /// Above 0.
    positive: (Bound::Excluded(0.0), Bound::Unbounded);
    /// At least 0.
    not_negative: 0.0..;
    /// At least 1.
    from_one: 1.0..;
    /// (0, 1]
    share: (Bound::Excluded(0.0), Bound::Included(1.0));
    /// [0, 1]
    share_or_none: 0.0..=1.0;
    /// [0, 1): a probability at which something is left.
    rate: 0.0..1.0;
    /// (0, 1): a share that leaves something.
    part: (Bound::Excluded(0.0), Bound::Excluded(1.0));
}

/// An integer in which 0 stands for "none".
pub(super) mod zero_is_none {
    use super::*;

    pub fn serialize<S: Serializer>(value: &Option<usize>, serializer: S) -> Result<S::Ok, S::Error> {
        value.unwrap_or(0).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
        at_least::<0, _>(deserializer).map(|integer| Some(integer).filter(|&integer| integer > 0))
    }
}

/// A number of at least 0 in which 0 stands for "none".
pub(super) mod zero_is_no_number {
    use super::*;

    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.unwrap_or(0.0).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        not_negative(deserializer).map(|number| Some(number).filter(|&number| number > 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_described_with_its_open_ends() {
        assert_eq!(describe(&(0.0..1.0)), "a number in [0, 1)");
        assert_eq!(describe(&(Bound::Excluded(0.0), Bound::Included(1.0))), "a number in (0, 1]");
        assert_eq!(describe(&(0.0..)), "a number in [0, infinity)");
    }
}
