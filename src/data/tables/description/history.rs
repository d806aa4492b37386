//! How many earlier events an event is joined to: `history = 10`, `history = "all"`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How many earlier events of the same entity an event is joined to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// So many, the latest ones; 0 joins none.
    Latest(u32),
    /// Every one.
    All,
}

impl Default for History {
    fn default() -> Self {
        Self::Latest(10)
    }
}

impl History {
    /// How many these are.
    pub fn most(self) -> usize {
        match self {
            Self::Latest(most) => most as usize,
            Self::All => usize::MAX,
        }
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Latest(count) => serializer.serialize_u32(*count),
            Self::All => serializer.serialize_str("all"),
        }
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountOrAll;
        impl CountOrAll {
            fn count<E: de::Error>(self, count: impl TryInto<u32>) -> Result<History, E> {
                let count = count.try_into().map(History::Latest);
                count.map_err(|_| E::custom("expected a number of events below 2^32, or \"all\""))
            }
        }
        impl de::Visitor<'_> for CountOrAll {
            type Value = History;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number of events, or \"all\"")
            }
            fn visit_i64<E: de::Error>(self, count: i64) -> Result<History, E> {
                self.count(count)
            }
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<History, E> {
                self.count(count)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<History, E> {
                match text {
                    "all" => Ok(History::All),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(CountOrAll)
    }
}
