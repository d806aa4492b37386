//! Strings numbered in the order of their first appearance, compactly.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// Ids of one node type: text in one piece, an offset of eight bytes per id, and a hash table of their numbers of five
/// to ten bytes per id. Keys are hashed with a random key, so nobody can make all ids collide; numbers do not depend on
/// it.
#[derive(Debug, Default)]
pub(super) struct IdTable {
    text: String,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: RandomState,
}

impl IdTable {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, number: u32) -> &str {
        text_of(&self.text, &self.ends, number)
    }

    /// The hash under which [`intern`](Self::intern) and [`find`](Self::find) look; callers compute it in parallel.
    pub fn hash(&self, id: &str) -> u64 {
        self.hasher.hash_one(id.as_bytes())
    }

    /// The number of a known id.
    pub fn find(&self, hash: u64, id: &str) -> Option<u32> {
        self.table.find(hash, |&number| self.get(number) == id).copied()
    }

    /// The number of an id, a new one for a new id; `None` when there are `u32::MAX` already.
    pub fn intern(&mut self, hash: u64, id: &str) -> Option<u32> {
        if let Some(known) = self.find(hash, id) {
            return Some(known);
        }
        let number = u32::try_from(self.ends.len()).ok().filter(|&number| number < u32::MAX)?;
        self.text.push_str(id);
        self.ends.push(self.text.len());
        let Self { text, ends, table, hasher } = self;
        table.insert_unique(hash, number, |&number| hasher.hash_one(text_of(text, ends, number).as_bytes()));
        Some(number)
    }

    /// All ids in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.get(number as u32))
    }
}

fn text_of<'a>(text: &'a str, ends: &[usize], number: u32) -> &'a str {
    let at = number as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &text[start..ends[at]]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn numbers_follow_the_first_appearance() {
        let mut table = IdTable::default();
        let mut oracle: HashMap<String, u32> = HashMap::new();
        for i in 0..50_000u64 {
            let id = format!("id {}", i * i % 7919);
            let next = oracle.len() as u32;
            let expected = *oracle.entry(id.clone()).or_insert(next);
            let hash = table.hash(&id);
            assert_eq!(table.intern(hash, &id), Some(expected));
        }
        assert_eq!(table.len(), oracle.len());
        assert!(table.iter().enumerate().all(|(number, id)| oracle[id] == number as u32));
        assert_eq!(table.find(table.hash("id x"), "id x"), None);
        let hash = table.hash("");
        assert_eq!(table.intern(hash, ""), Some(oracle.len() as u32), "an empty string is an id like any other");
    }
}
