//! A JSON value of whatever type the file happens to hold, so that one odd field never costs the whole record.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::fields;

/// Any JSON value; text is borrowed from the line where it holds no escapes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Loose<'a> {
    #[default]
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    List(Vec<Loose<'a>>),
    Map(Vec<(String, Loose<'a>)>),
}

impl<'a> Loose<'a> {
    pub fn text(&self) -> &str {
        if let Loose::Text(text) = self { text } else { "" }
    }

    /// A number, or a text that spells one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Loose::Number(value) => Some(*value),
            Loose::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
        .filter(|value: &f64| value.is_finite())
    }

    pub fn boolean(&self) -> Option<bool> {
        match self {
            Loose::Bool(value) => Some(*value),
            Loose::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Loose::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        }
    }

    pub fn price(&self) -> Option<f32> {
        match self {
            Loose::Number(value) => fields::positive(*value),
            Loose::Text(text) => fields::parse_price(text),
            _ => None,
        }
    }

    pub fn count(&self) -> Option<u32> {
        match self {
            Loose::Number(value) => fields::count(*value),
            Loose::Text(text) => fields::parse_count(text),
            _ => None,
        }
    }

    /// First entry of a list.
    pub fn first(&self) -> Option<&Loose<'a>> {
        if let Loose::List(entries) = self { entries.first() } else { None }
    }

    /// Value of `key` in a map.
    pub fn get(&self, key: &str) -> Option<&Loose<'a>> {
        if let Loose::Map(entries) = self { entries.iter().find(|(k, _)| k == key).map(|(_, v)| v) } else { None }
    }

    /// Calls `visit` for every text, alone or in lists of any depth, in order.
    pub fn for_each_text(&self, visit: &mut impl FnMut(&str)) {
        match self {
            Loose::Text(text) => visit(text),
            Loose::List(entries) => entries.iter().for_each(|entry| entry.for_each_text(visit)),
            _ => {}
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Loose<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Loose::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Loose::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Loose::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Loose::Number(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Loose::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = seq.next_element()? {
            entries.push(entry);
        }
        Ok(Loose::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Loose::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_wrong_type_is_kept_and_reads_as_absent() {
        let value: Loose =
            serde_json::from_str(r#"{"price": {"usd": 3}, "vote": [1], "n": "4.5", "b": "True"}"#).unwrap();
        assert_eq!(value.get("price").unwrap().price(), None);
        assert_eq!(value.get("vote").unwrap().count(), None);
        assert_eq!(value.get("n").unwrap().number(), Some(4.5));
        assert_eq!(value.get("b").unwrap().boolean(), Some(true));
        assert_eq!(Loose::Text("NaN".into()).number(), None);
    }

    #[test]
    fn texts_are_found_in_lists_of_lists() {
        let value: Loose = serde_json::from_str(r#"[["Electronics", "Audio"], "Deals", 3]"#).unwrap();
        let mut texts = Vec::new();
        value.for_each_text(&mut |text| texts.push(text.to_owned()));
        assert_eq!(texts, ["Electronics", "Audio", "Deals"]);
    }
}
