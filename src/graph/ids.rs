//! String ids that nodes had in the raw data.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::Path;

use rayon::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::formats::{map_file, write_new};
use super::hetero::NodeType;
use crate::error::{Error, Result};

/// Ids that one thread writes at once.
const AT_ONCE: usize = 1 << 13;

/// String ids of the raw data: per node type, local id -> original id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdMaps(pub Vec<Vec<String>>);

impl IdMaps {
    /// The original id of a global id.
    pub fn get(&self, global: usize) -> Option<&str> {
        let mut local = global;
        for names in &self.0 {
            match names.get(local) {
                Some(name) => return Some(name),
                None => local -= names.len(),
            }
        }
        None
    }

    /// By node type: original id -> global id.
    pub fn index(&self) -> Vec<HashMap<&str, u32>> {
        let mut global = 0..;
        self.0.iter().map(|names| names.iter().map(String::as_str).zip(&mut global).collect()).collect()
    }

    /// Reads `node_id_mappings.json`: for every type `{type}_map`, an object string id -> global id that names every
    /// node of the type exactly once.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] with the line of malformed JSON or the map and key of a wrong id.
    pub fn read_json(path: &Path, node_types: &[NodeType]) -> Result<Self> {
        const HELP: &str = "for every node type T the file holds \"T_map\": {string id: global id}, each node once";
        let map = map_file(path)?;
        let maps: Pairs<Pairs<u64>> = serde_json::from_slice(&map).map_err(|source| {
            let place = format!("line {}, column {}", source.line(), source.column());
            Error::format(path, place, "objects of string id -> global id", source.to_string(), HELP)
        })?;
        let mut maps = maps.0;
        let mut all = Vec::with_capacity(node_types.len());
        for node_type in node_types {
            let key = format!("{}_map", node_type.name);
            let error =
                |place: &str, expected: String, found: String| Error::format(path, place, expected, found, HELP);
            let Some(at) = maps.iter().position(|(name, _)| *name == key) else {
                return Err(error("keys", format!("`{key}`"), "no such key".into()));
            };
            let pairs = maps.swap_remove(at).1.0;
            if pairs.len() != node_type.count {
                let expected = format!("{} ids, one per `{}` node", node_type.count, node_type.name);
                return Err(error(&key, expected, format!("{} ids", pairs.len())));
            }
            let mut names: Vec<Option<String>> = vec![None; node_type.count];
            for (name, id) in pairs {
                let place = || format!("{key}, key {name:?}");
                let end = node_type.offset + node_type.count;
                let local = usize::try_from(id).ok().filter(|id| (node_type.offset..end).contains(id));
                let Some(local) = local.map(|id| id - node_type.offset) else {
                    let expected = format!("a global id in [{}, {end})", node_type.offset);
                    return Err(error(&place(), expected, format!("id out of range: {id}")));
                };
                if let Some(earlier) = &names[local] {
                    let found = format!("duplicate id: {id}, which {earlier:?} has as well");
                    return Err(error(&place(), "every id once".into(), found));
                }
                names[local] = Some(name);
            }
            // As many pairs as nodes and none twice: every slot is filled.
            let names: Vec<String> = names.into_iter().flatten().collect();
            if let Some([earlier, local]) = first_repeated(&names) {
                let ids = [earlier, local].map(|local| local + node_type.offset);
                let found = format!("one key for the ids {} and {}", ids[0], ids[1]);
                return Err(error(&format!("{key}, key {:?}", names[local]), "every key once".into(), found));
            }
            all.push(names);
        }
        Ok(Self(all))
    }

    /// Writes `node_id_mappings.json` in the order of the ids.
    pub(crate) fn write_json(&self, path: &Path, node_types: &[NodeType]) -> Result<()> {
        let entries = |names: &[String], first: usize| {
            let mut text = Vec::with_capacity(names.len() * 24);
            for (name, id) in names.iter().zip(first..) {
                serde_json::to_writer(&mut text, name)?;
                write!(text, ":{id},")?;
            }
            Ok(text)
        };
        write_new(path, |file| {
            file.write_all(b"{")?;
            for (at, (names, node_type)) in self.0.iter().zip(node_types).enumerate() {
                file.write_all(if at == 0 { b"" } else { b"," })?;
                serde_json::to_writer(&mut *file, &format!("{}_map", node_type.name))?;
                file.write_all(b":{")?;
                // So many at a time that all threads are busy and the text takes little room.
                let at_once = AT_ONCE * rayon::current_num_threads();
                let is_last = |part: usize, names: &[String]| part * at_once + names.len() == node_type.count;
                for (part, names) in names.chunks(at_once).enumerate() {
                    let first = |at: usize| node_type.offset + part * at_once + at * AT_ONCE;
                    let texts = names.par_chunks(AT_ONCE).enumerate().map(|(at, names)| entries(names, first(at)));
                    let mut texts = texts.collect::<io::Result<Vec<_>>>()?;
                    if let (Some(text), true) = (texts.last_mut(), is_last(part, names)) {
                        text.pop();
                    }
                    texts.iter().try_for_each(|text| file.write_all(text))?;
                }
                file.write_all(b"}")?;
            }
            file.write_all(b"}")
        })
    }

    /// Checks that every node has one id, unique in its type.
    pub(crate) fn check(&self, node_types: &[NodeType]) -> Result<()> {
        let error = |expected: String, found: String| Error::Data {
            what: "string ids".into(),
            expected,
            found,
            help: "give every node one string id, unique in its type, or none to any".into(),
        };
        if self.0.len() != node_types.len() {
            return Err(error(format!("{} node types", node_types.len()), self.0.len().to_string()));
        }
        for (names, node_type) in self.0.iter().zip(node_types) {
            if names.len() != node_type.count {
                return Err(error(
                    format!("{} ids of type `{}`", node_type.count, node_type.name),
                    names.len().to_string(),
                ));
            }
            if let Some([earlier, local]) = first_repeated(names) {
                let name = &names[local];
                let found = format!("{name:?} for nodes {earlier} and {local} of type `{}`", node_type.name);
                return Err(error("every id once".into(), found));
            }
        }
        Ok(())
    }
}

/// The first name that occurs a second time: both places.
fn first_repeated(names: &[String]) -> Option<[usize; 2]> {
    let random = RandomState::new();
    let hashed = names.par_iter().enumerate().with_min_len(1 << 10).map(|(at, name)| (random.hash_one(name), at));
    let mut hashed: Vec<(u64, usize)> = hashed.collect();
    hashed.par_sort_unstable();
    // Equal names have equal hashes: they lie beside each other, in their order.
    let of_hash = |equal: &[(u64, usize)]| {
        let repeats = (1..equal.len()).filter_map(|at| {
            let earlier = equal[..at].iter().rev().find(|(_, earlier)| names[*earlier] == names[equal[at].1])?;
            Some([earlier.1, equal[at].1])
        });
        repeats.min_by_key(|[_, at]| *at)
    };
    let repeats = hashed.par_chunk_by(|a, b| a.0 == b.0).filter_map(of_hash);
    repeats.min_by_key(|[_, at]| *at)
}

/// A JSON object as pairs in file order, repeated keys included.
struct Pairs<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct PairsVisitor<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
            type Value = Pairs<V>;
            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn wrong_id_maps_are_named_by_map_and_key() {
        let types = [
            NodeType { name: "user".into(), offset: 0, count: 2 },
            NodeType { name: "item".into(), offset: 2, count: 1 },
        ];
        let read = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), text).unwrap();
            IdMaps::read_json(file.path(), &types)
        };
        let maps = read(r#"{"item_map": {"x": 2}, "user_map": {"b": 1, "a": 0}}"#).unwrap();
        assert_eq!(maps, IdMaps(vec![vec!["a".into(), "b".into()], vec!["x".into()]]));
        assert_eq!([0, 2, 3].map(|node| maps.get(node)), [Some("a"), Some("x"), None]);
        let cases = [
            (r#"{"user_map": {"a": 0, "b": 1}}"#, "keys: expected `item_map`"),
            (
                r#"{"user_map": {"a": 0}, "item_map": {"x": 2}}"#,
                "user_map: expected 2 ids, one per `user` node, found 1",
            ),
            (
                r#"{"user_map": {"a": 0, "b": 2}, "item_map": {"x": 2}}"#,
                "user_map, key \"b\": expected a global id in [0, 2)",
            ),
            (r#"{"user_map": {"a": 0, "b": 0}, "item_map": {"x": 2}}"#, "duplicate id: 0, which \"a\" has as well"),
            (r#"{"user_map": {"a": 0, "a": 1}, "item_map": {"x": 2}}"#, "user_map, key \"a\": expected every key once"),
            ("{\"user_map\": {\"a\": 0,\n \"b\": -1}}", "line 2"),
            ("{\"user_map\": {\"a\": 0,\n \"b\": 1}", "line 2"),
            ("[]", "line 1"),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\nlacks {expected}");
        }
    }
}
