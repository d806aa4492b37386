//! Strings numbered in the order of their first appearance, compactly.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// Most texts: a column of categories has no more rows than a type has nodes.
const MAX_TEXTS: u32 = i32::MAX as u32;

/// The categories of a column: text in one piece, an offset of eight bytes per category, and a hash table of their
/// numbers of five to ten bytes per category. Texts are hashed with a random key, so nobody can make all of them
/// collide; numbers do not depend on it. Ids of nodes, of which there are more, are in
/// [`NodeIds`](super::node_ids::NodeIds).
#[derive(Debug, Default)]
pub(super) struct TextTable {
    text: String,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: RandomState,
}

impl TextTable {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, number: u32) -> &str {
        text_of(&self.text, &self.ends, number)
    }

    /// The number of a text, a new one for a new text; `None` when there is none left.
    pub fn intern(&mut self, own: &str) -> Option<u32> {
        let Self { text, ends, table, hasher } = self;
        let hash = hasher.hash_one(own);
        if let Some(known) = table.find(hash, |&number| text_of(text, ends, number) == own) {
            return Some(*known);
        }
        let number = u32::try_from(ends.len()).ok().filter(|&number| number < MAX_TEXTS)?;
        text.push_str(own);
        ends.push(text.len());
        table.insert_unique(hash, number, |&number| hasher.hash_one(text_of(text, ends, number)));
        Some(number)
    }

    /// All texts in the order of their numbers.
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
        let mut table = TextTable::default();
        let mut oracle: HashMap<String, u32> = HashMap::new();
        for i in 0..50_000u64 {
            let id = format!("id {}", i * i % 7919);
            let next = oracle.len() as u32;
            let expected = *oracle.entry(id.clone()).or_insert(next);
            assert_eq!(table.intern(&id), Some(expected));
        }
        assert_eq!(table.len(), oracle.len());
        assert!(table.iter().enumerate().all(|(number, id)| oracle[id] == number as u32));
        assert_eq!(table.intern(""), Some(oracle.len() as u32), "an empty string is a text like any other");
        assert_eq!(table.intern("id x"), Some(oracle.len() as u32 + 1), "a new text has a new number");
    }
}
