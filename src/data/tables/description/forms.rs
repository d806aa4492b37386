//! Short and long forms of the values of a description: a name alone or a table, one file or several.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    End, FeatureColumns, FeatureKind, Files, KINDS, LabelColumn, Scale, Span, TimeColumn, TimeFormat, TimeUnit,
};

/// Columns of a hashed category of an edge unless a width is given.
const EDGE_HASH_WIDTH: i64 = 4;

impl Serialize for Files {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        // Without directories: what a directory is called is no property of the data.
        let names = self.0.iter().map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        serializer.collect_seq(names)
    }
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Files;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("the name of a file or a list of names")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<Files, E> {
                Ok(Files(vec![name.into()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> std::result::Result<Files, A::Error> {
                let mut files = Vec::new();
                while let Some(name) = names.next_element::<String>()? {
                    files.push(name.into());
                }
                if files.is_empty() {
                    return Err(de::Error::invalid_length(0, &self));
                }
                Ok(Files(files))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// Deserialises a value that is a name alone or a table.
fn name_or_table<'de, D, T, Full>(
    deserializer: D,
    expecting: &'static str,
    of_name: impl FnOnce(&str) -> std::result::Result<T, String>,
    of_table: impl FnOnce(Full) -> T,
) -> std::result::Result<T, D::Error>
where
    D: Deserializer<'de>,
    Full: Deserialize<'de>,
{
    struct NameOrTable<N, F, Full>(&'static str, N, F, std::marker::PhantomData<Full>);
    impl<'de, T, Full: Deserialize<'de>, N, F> Visitor<'de> for NameOrTable<N, F, Full>
    where
        N: FnOnce(&str) -> std::result::Result<T, String>,
        F: FnOnce(Full) -> T,
    {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<T, E> {
            (self.1)(name).map_err(E::custom)
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<T, A::Error> {
            Full::deserialize(MapAccessDeserializer::new(map)).map(self.2)
        }
    }
    deserializer.deserialize_any(NameOrTable(expecting, of_name, of_table, std::marker::PhantomData))
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            r#type: String,
            column: Option<String>,
        }
        let of_name = |name: &str| {
            let (node_type, column) = name.split_once('.').map_or((name, None), |(t, c)| (t, Some(c.to_owned())));
            if node_type.is_empty() || column.as_ref().is_some_and(String::is_empty) {
                return Err(format!("expected \"type.column\" or \"type\", found {name:?}"));
            }
            Ok(Self { node_type: node_type.into(), column })
        };
        name_or_table(deserializer, "\"type.column\", \"type\" or { type, column }", of_name, |full: Full| Self {
            node_type: full.r#type,
            column: full.column,
        })
    }
}

impl<'de> Deserialize<'de> for LabelColumn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            column: String,
            anomalous: Option<Vec<Cell>>,
            normal: Option<Vec<Cell>>,
            unknown: Option<Vec<Cell>>,
            delay: Option<Span>,
            known: Option<TimeColumn>,
        }
        let cells = |given: Option<Vec<Cell>>, default: &[&str]| match given {
            Some(cells) => cells.into_iter().map(|cell| cell.0).collect(),
            None => default.iter().map(|&cell| cell.to_owned()).collect(),
        };
        let of_table = |full: Full| Self {
            column: full.column,
            anomalous: cells(full.anomalous, &["1", "true"]),
            normal: cells(full.normal, &["0", "false"]),
            unknown: cells(full.unknown, &[]),
            delay: full.delay,
            known: full.known,
        };
        let of_name = |name: &str| {
            let (anomalous, normal, unknown) = (None, None, None);
            Ok(of_table(Full { column: name.into(), anomalous, normal, unknown, delay: None, known: None }))
        };
        let expecting = "the name of a column or { column, anomalous, normal, unknown, delay, known }";
        name_or_table(deserializer, expecting, of_name, of_table)
    }
}

/// A cell as the table writes it; numbers need no quotes.
struct Cell(String);

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self(text)),
            toml::Value::Integer(number) => Ok(Self(number.to_string())),
            toml::Value::Boolean(value) => Ok(Self(value.to_string())),
            other => Err(de::Error::custom(format!("expected a text, a whole number or a boolean, found {other}"))),
        }
    }
}

impl<'de> Deserialize<'de> for TimeColumn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            column: String,
            format: Option<String>,
            #[serde(default)]
            unit: TimeUnit,
            #[serde(default)]
            in_1970: bool,
        }
        let of_name = |name: &str| Ok(Self { column: name.into(), format: TimeFormat::default() });
        name_or_table(
            deserializer,
            "the name of a column or { column, format, unit, in_1970 }",
            of_name,
            |full: Full| Self {
                column: full.column,
                format: TimeFormat { format: full.format, unit: full.unit, in_1970: full.in_1970 },
            },
        )
    }
}

impl Serialize for FeatureColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, kind) in &self.0 {
            map.serialize_entry(column, kind)?;
        }
        map.end()
    }
}

/// A kind by its name or as a table.
struct Kind(FeatureKind);

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let of_name = |name: &str| {
            let unknown = || {
                let known: Vec<String> = KINDS.iter().map(|kind| format!("`{kind}`")).collect();
                format!("unknown variant `{name}`, expected one of {}", known.join(", "))
            };
            FeatureKind::named(name).ok_or_else(unknown)
        };
        name_or_table(deserializer, "the kind of a feature or { kind, ... }", of_name, |kind| kind).map(Kind)
    }
}

/// The columns of values of edges: a table of kinds as for nodes, or a list of names of numbers. Edges have room for
/// few columns, so that a category without a width is hashed to [`EDGE_HASH_WIDTH`] of them.
pub(super) fn edge_values<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<FeatureColumns, D::Error> {
    struct NamesOrKinds;
    impl<'de> Visitor<'de> for NamesOrKinds {
        type Value = FeatureColumns;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list of columns or a table of column = kind")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> std::result::Result<FeatureColumns, A::Error> {
            let mut columns = Vec::new();
            while let Some(name) = names.next_element::<String>()? {
                columns.push((name, FeatureKind::Numeric { scale: Scale::default(), log: false }));
            }
            Ok(FeatureColumns(columns))
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<FeatureColumns, A::Error> {
            let mut columns = Vec::new();
            while let Some((column, kind)) = map.next_entry::<String, toml::Value>()? {
                let mut kind = match kind {
                    toml::Value::String(name) => toml::Table::from_iter([("kind".into(), name.into())]),
                    toml::Value::Table(table) => table,
                    other => return Err(de::Error::invalid_type(de::Unexpected::Other(other.type_str()), &"a kind")),
                };
                if kind.get("kind").and_then(toml::Value::as_str) == Some("categorical")
                    && kind.get("encoding").is_none_or(|encoding| encoding.as_str() == Some("hash"))
                {
                    kind.entry("width").or_insert(EDGE_HASH_WIDTH.into());
                }
                let kind =
                    Kind::deserialize(toml::Value::Table(kind)).map_err(|fault| de::Error::custom(fault.message()))?;
                columns.push((column, kind.0));
            }
            Ok(FeatureColumns(columns))
        }
    }
    deserializer.deserialize_any(NamesOrKinds)
}

impl<'de> Deserialize<'de> for FeatureColumns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = FeatureColumns;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a table of column = kind")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<FeatureColumns, A::Error> {
                let mut columns = Vec::new();
                while let Some((column, Kind(kind))) = map.next_entry()? {
                    columns.push((column, kind));
                }
                Ok(FeatureColumns(columns))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
