//! Ids of nodes that can leave again.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use rayon::prelude::*;

/// Tables of numbers, so that none of them is long in growing.
const TABLES: usize = 64;

/// The ids of the nodes of a type by number, in one piece, and their numbers by hash. Ids are hashed with a random key,
/// so nobody can make all of them collide.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    text: Vec<u8>,
    ends: Vec<u64>,
    /// [`TABLES`], or none before the first id.
    tables: Vec<HashTable<u32>>,
    hasher: RandomState,
}

fn text_of<'a>(text: &'a [u8], ends: &[u64], number: u32) -> &'a [u8] {
    let at = number as usize;
    let start = at.checked_sub(1).map_or(0, |before| ends[before]);
    &text[start as usize..ends[at] as usize]
}

impl Names {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The id of a number, empty where it was forgotten.
    pub fn get(&self, number: u32) -> &str {
        std::str::from_utf8(text_of(&self.text, &self.ends, number)).unwrap_or_default()
    }

    pub fn find(&self, id: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(id.as_bytes());
        let is_own = |&number: &u32| text_of(&self.text, &self.ends, number) == id.as_bytes();
        self.tables.get(table_of(hash))?.find(hash, is_own).copied()
    }

    /// Gives ids the numbers from 0, as [`push`](Self::push) does one after the other.
    pub fn of(ids: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut names = Self::default();
        let Self { text, ends, tables, hasher } = &mut names;
        for id in ids {
            text.extend_from_slice(id.as_ref().as_bytes());
            ends.push(text.len() as u64);
        }
        let hash_of = |number: u32| hasher.hash_one(text_of(text, ends, number));
        let hashes: Vec<u64> = (0..ends.len() as u32).into_par_iter().map(hash_of).collect();
        let mut numbers = vec![Vec::new(); TABLES];
        for (number, &hash) in (0u32..).zip(&hashes) {
            numbers[table_of(hash)].push(number);
        }
        let table = |numbers: Vec<u32>| {
            let mut table = HashTable::with_capacity(numbers.len());
            for number in numbers {
                let id = text_of(text, ends, number);
                let is_own = |&known: &u32| text_of(text, ends, known) == id;
                put(&mut table, hashes[number as usize], number, is_own, |&known| hashes[known as usize]);
            }
            table
        };
        *tables = numbers.into_par_iter().map(table).collect();
        names
    }

    /// Gives an id the next number. An earlier number of the same id is found no more.
    pub fn push(&mut self, id: &str) {
        let Self { text, ends, tables, hasher } = self;
        let (number, hash) = (ends.len() as u32, hasher.hash_one(id.as_bytes()));
        tables.resize_with(TABLES, HashTable::new);
        let is_own = |&known: &u32| text_of(text, ends, known) == id.as_bytes();
        let hash_of = |&known: &u32| hasher.hash_one(text_of(text, ends, known));
        put(&mut tables[table_of(hash)], hash, number, is_own, hash_of);
        text.extend_from_slice(id.as_bytes());
        ends.push(text.len() as u64);
    }

    /// Overwrites an id, and its number is no longer found by it.
    pub fn forget(&mut self, number: u32) {
        let Self { text, ends, tables, hasher } = self;
        let hash = hasher.hash_one(text_of(text, ends, number));
        if let Ok(entry) = tables[table_of(hash)].find_entry(hash, |&known| known == number) {
            entry.remove();
        }
        let start = (number as usize).checked_sub(1).map_or(0, |before| ends[before]);
        text[start as usize..ends[number as usize] as usize].fill(0);
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        let tables: usize = self.tables.iter().map(HashTable::allocation_size).sum();
        (self.text.capacity() + 8 * self.ends.capacity() + tables) as u64
    }
}

fn put(
    table: &mut HashTable<u32>,
    hash: u64,
    number: u32,
    is_own: impl Fn(&u32) -> bool,
    hash_of: impl Fn(&u32) -> u64,
) {
    if let Some(known) = table.find_mut(hash, is_own) {
        *known = number;
    } else {
        table.insert_unique(hash, number, hash_of);
    }
}

fn table_of(hash: u64) -> usize {
    // Other bits than those by which a table finds its place and tells apart what is there.
    (hash >> 32) as usize % TABLES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_until_they_are_forgotten_and_can_come_again() {
        let id = |at: u32| format!("id {}", at * 7919);
        let mut names = Names::of((0..3000).map(id));
        (3000..5000).for_each(|at| names.push(&id(at)));
        // Of an id that comes twice the later number is found, either way.
        assert_eq!(Names::of(["a", "b", "a"]).find("a"), Some(2));
        assert!((0..5000).all(|at| names.find(&id(at)) == Some(at) && names.get(at) == id(at)));
        assert_eq!((names.find("id 1"), names.len()), (None, 5000));
        names.forget(7);
        assert_eq!((names.find(&id(7)), names.find(&id(8))), (None, Some(8)));
        assert!(!String::from_utf8_lossy(&names.text).contains(&format!("{}id", id(7))));
        names.push(&id(7));
        names.push(&id(8));
        assert_eq!([7, 8].map(|at| names.find(&id(at))), [Some(5000), Some(5001)]);
        // The number that an id had before is not the one that goes with it now.
        names.forget(8);
        assert_eq!(names.find(&id(8)), Some(5001));
    }
}
