//! Ids of nodes, numbered by all threads in the order of their first appearance.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use rayon::prelude::*;

/// Ids that one type can have: the numbers of nodes are those of Parquet's and NumPy's 32-bit integers.
const MAX_IDS: usize = i32::MAX as usize;
/// Hash tables of each kind of ids, filled by different threads.
const SHARDS: usize = 64;
/// Numbers from here on are places among the new ids of a call.
const PLACE: u32 = 1 << 31;
/// Ids that one thread numbers at least.
const GRAIN: usize = 256;
/// Bits of a word that hold the length of a text.
const LENGTH_BITS: u32 = 21;

/// A cell that names a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key<'a> {
    Empty,
    /// A whole number as it is usually written, which stands for itself: no sign but a minus, no zeros in front.
    Natural(u64),
    /// Its size.
    Negative(u64),
    Text(&'a str),
}

impl<'a> Key<'a> {
    pub fn of(cell: &'a str) -> Self {
        let (digits, is_negative) = match cell.strip_prefix('-') {
            Some(digits) => (digits.as_bytes(), true),
            None => (cell.as_bytes(), false),
        };
        let add = |sum: u64, byte: &u8| sum.checked_mul(10)?.checked_add(char::from(*byte).to_digit(10)?.into());
        let number = match digits {
            [] if !is_negative => return Self::Empty,
            [b'0'] if !is_negative => Some(0),
            [b'1'..=b'9', ..] if digits.len() <= 20 => digits.iter().try_fold(0, add),
            _ => None,
        };
        match number {
            Some(number) if is_negative => Self::Negative(number),
            Some(number) => Self::Natural(number),
            None => Self::Text(cell),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Natural(_) => Kind::Natural,
            Self::Negative(_) => Kind::Negative,
            Self::Text(_) | Self::Empty => Kind::Text,
        }
    }

    /// As the table has it.
    pub fn to_text(self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Natural(number) => number.to_string(),
            Self::Negative(number) => format!("-{number}"),
            Self::Text(text) => text.to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Natural,
    Negative,
    Text,
}

/// What a call found for a cell: the number of its id, or one of these two.
pub(super) const NO_ID: u32 = u32::MAX;
/// An id that was not there and was not to be made.
pub(super) const UNKNOWN: u32 = u32::MAX - 1;

/// Ids of one node type. A whole number takes eight bytes and one for its kind, a text its length besides; the hash
/// tables take five to ten bytes per id. Ids are hashed with a random key, so nobody can make all of them collide;
/// numbers do not depend on it, nor on the number of threads.
#[derive(Debug)]
pub(super) struct NodeIds {
    ids: Stored,
    shards: Vec<[HashTable<u32>; 3]>,
    hasher: Hasher,
}

/// Ids by number.
#[derive(Debug, Default)]
struct Stored {
    /// A whole number, or start and length of a text.
    words: Vec<u64>,
    kinds: Vec<Kind>,
    text: String,
}

#[derive(Debug, Clone, Copy)]
struct Hasher([u64; 2]);

impl Default for NodeIds {
    fn default() -> Self {
        let random = RandomState::new();
        let shards = (0..SHARDS).map(|_| Default::default()).collect();
        Self { ids: Stored::default(), shards, hasher: Hasher([0, 1].map(|at: u64| random.hash_one(at))) }
    }
}

impl Stored {
    fn of_kind(&self, number: u32, kind: Kind) -> Key<'_> {
        let word = self.words[number as usize];
        match kind {
            Kind::Natural => Key::Natural(word),
            Kind::Negative => Key::Negative(word),
            Kind::Text => {
                let start = (word >> LENGTH_BITS) as usize;
                Key::Text(&self.text[start..start + (word & ((1 << LENGTH_BITS) - 1)) as usize])
            }
        }
    }

    /// The number of a new id; `None` when there is none left.
    fn push(&mut self, key: Key) -> Option<u32> {
        let number = self.words.len();
        if number >= MAX_IDS {
            return None;
        }
        let word = match key {
            Key::Empty => return None,
            Key::Natural(word) | Key::Negative(word) => word,
            Key::Text(text) => {
                let start = self.text.len() as u64;
                self.text.push_str(text);
                start << LENGTH_BITS | text.len() as u64
            }
        };
        self.words.push(word);
        self.kinds.push(key.kind());
        Some(number as u32)
    }
}

impl Hasher {
    /// Products of keyed words, both halves added without carry, as wyhash makes them.
    fn hash(self, key: Key) -> u64 {
        let Self([first, second]) = self;
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let second = second | 1;
        let mixed = match key {
            Key::Empty => 0,
            Key::Natural(word) | Key::Negative(word) => fold(word ^ first, second),
            Key::Text(text) => {
                let (words, rest) = text.as_bytes().as_chunks::<8>();
                let mut last = [0; 8];
                last[..rest.len()].copy_from_slice(rest);
                let start = first ^ text.len() as u64;
                let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
                words.fold(start, |sum, word| fold(sum ^ word, second))
            }
        };
        fold(mixed ^ second, 0x9e37_79b9_7f4a_7c15)
    }
}

/// Neither the bits by which a hash table finds a place nor those that it compares first.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

impl NodeIds {
    pub fn len(&self) -> usize {
        self.ids.words.len()
    }

    /// The id of a number.
    pub fn key(&self, number: u32) -> Key<'_> {
        self.ids.of_kind(number, self.ids.kinds[number as usize])
    }

    /// All ids in the order of their numbers.
    pub fn texts(&self) -> Vec<String> {
        (0..self.len() as u32).into_par_iter().with_min_len(GRAIN).map(|number| self.key(number).to_text()).collect()
    }

    /// The number of a known id.
    pub fn find(&self, key: Key) -> Option<u32> {
        self.find_hashed(self.hasher.hash(key), key)
    }

    fn find_hashed(&self, hash: u64, key: Key) -> Option<u32> {
        let kind = key.kind();
        let table = &self.shards[shard_of(hash)][kind as usize];
        table.find(hash, |&number| self.ids.of_kind(number, kind) == key).copied()
    }

    /// The number of an id, a new one for a new id; `None` when there is none left, and for an empty cell.
    pub fn intern(&mut self, key: Key) -> Option<u32> {
        let hash = self.hasher.hash(key);
        if let Some(known) = self.find_hashed(hash, key) {
            return Some(known);
        }
        let Self { ids, shards, hasher } = self;
        let number = ids.push(key)?;
        let kind = key.kind();
        let table = &mut shards[shard_of(hash)][kind as usize];
        table.insert_unique(hash, number, |&number| hasher.hash(ids.of_kind(number, kind)));
        Some(number)
    }

    /// The numbers of the ids `key(0)` to `key(count - 1)`, [`NO_ID`] for empty cells. New ids get theirs in this order
    /// or, unless `creates`, are [`UNKNOWN`]. `None` when there is no number left.
    pub fn number<'a>(
        &mut self,
        count: usize,
        key: impl Fn(usize) -> Key<'a> + Sync,
        creates: bool,
    ) -> Option<Vec<u32>> {
        // With many nodes most of the time goes to the caches that these lookups miss.
        let known = |at: usize| match key(at) {
            Key::Empty => NO_ID,
            key => self.find(key).unwrap_or(UNKNOWN),
        };
        let mut numbers: Vec<u32> = (0..count).into_par_iter().with_min_len(GRAIN).map(known).collect();
        if !creates {
            return Some(numbers);
        }
        let is_new = |(at, number): (usize, &u32)| (*number == UNKNOWN).then_some(at);
        let new: Vec<usize> = numbers.iter().enumerate().filter_map(is_new).collect();
        if new.len() < 4 * GRAIN {
            for at in new {
                numbers[at] = self.intern(key(at))?;
            }
            return Some(numbers);
        }
        let Self { ids, shards, hasher } = self;
        let hashes: Vec<u64> = new.par_iter().with_min_len(GRAIN).map(|&at| hasher.hash(key(at))).collect();
        let mut of_shards = vec![Vec::new(); SHARDS];
        hashes.iter().zip(0u32..).for_each(|(&hash, place)| of_shards[shard_of(hash)].push(place));
        // Equal ids meet in one shard, in their order: the first of them stands in the table by its place.
        let first_of = |(tables, places): (&mut [HashTable<u32>; 3], &Vec<u32>)| {
            let first = |&place: &u32| {
                let (own, hash) = (key(new[place as usize]), hashes[place as usize]);
                let kind = own.kind();
                let is_own = |&other: &u32| match other.checked_sub(PLACE) {
                    Some(place) => key(new[place as usize]) == own,
                    None => ids.of_kind(other, kind) == own,
                };
                let hash_of = |&other: &u32| match other.checked_sub(PLACE) {
                    Some(place) => hashes[place as usize],
                    None => hasher.hash(ids.of_kind(other, kind)),
                };
                *tables[kind as usize].entry(hash, is_own, hash_of).or_insert(PLACE | place).get() - PLACE
            };
            places.iter().map(first).collect::<Vec<u32>>()
        };
        let firsts: Vec<Vec<u32>> = shards.par_iter_mut().zip(&of_shards).map(first_of).collect();
        let mut first_places = vec![0; new.len()];
        for (places, firsts) in of_shards.iter().zip(&firsts) {
            places.iter().zip(firsts).for_each(|(&place, &first)| first_places[place as usize] = first);
        }
        for (place, &first) in first_places.iter().enumerate() {
            let at = new[place];
            numbers[at] = if first as usize == place { ids.push(key(at))? } else { numbers[new[first as usize]] };
        }
        let settle = |(tables, places): (&mut [HashTable<u32>; 3], &Vec<u32>)| {
            for &place in places.iter().filter(|&&place| first_places[place as usize] == place) {
                let (at, hash) = (new[place as usize], hashes[place as usize]);
                let table = &mut tables[key(at).kind() as usize];
                if let Some(number) = table.find_mut(hash, |&number| number == PLACE | place) {
                    *number = numbers[at];
                }
            }
        };
        shards.par_iter_mut().zip(&of_shards).for_each(settle);
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Ids of every kind, many of them repeated; some look like numbers and are none.
    fn cells(count: u64) -> Vec<String> {
        let cell = |at: u64| {
            let id = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
            match at % 7 {
                0 => format!("account {id}"),
                1 => format!("-{id}"),
                2 => format!("0{id}"),
                3 => format!("{}", u64::MAX - id),
                4 => format!("+{id}"),
                5 if id % 100 == 0 => String::new(),
                _ => id.to_string(),
            }
        };
        (0..count).map(cell).collect()
    }

    #[test]
    fn whole_numbers_are_those_that_are_written_so() {
        let numbers = ["0", "7", "-7", "18446744073709551615", "-18446744073709551615", "-9223372036854775808"];
        for cell in numbers {
            assert!(!matches!(Key::of(cell), Key::Text(_) | Key::Empty), "{cell}");
            assert_eq!(Key::of(cell).to_text(), cell);
        }
        for cell in ["-0", "00", "07", "+7", "7 ", "18446744073709551616", "-", "1.0", "1e3", "٣"] {
            assert_eq!(Key::of(cell), Key::Text(cell));
        }
        assert_eq!(Key::of(""), Key::Empty);
    }

    #[test]
    fn numbers_follow_the_first_appearance_whatever_the_number_of_threads() {
        let cells = cells(60_000);
        let mut oracle: HashMap<&str, u32> = HashMap::new();
        let mut expected = Vec::new();
        for cell in &cells {
            let next = oracle.len() as u32;
            expected.push(if cell.is_empty() { NO_ID } else { *oracle.entry(cell).or_insert(next) });
        }
        for (threads, step) in [(1, 60_000), (3, 60_000), (8, 7_001), (2, 100)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut ids = NodeIds::default();
            let mut found = Vec::new();
            for cells in cells.chunks(step) {
                let numbers = pool.install(|| ids.number(cells.len(), |at| Key::of(&cells[at]), true));
                found.extend(numbers.unwrap());
            }
            assert_eq!(found, expected, "{threads} threads, {step} at once");
            let texts = ids.texts();
            assert!(texts.iter().enumerate().all(|(number, id)| oracle[id.as_str()] == number as u32));
            assert_eq!((texts.len(), ids.len()), (oracle.len(), oracle.len()));
            assert!(oracle.iter().all(|(id, number)| ids.find(Key::of(id)) == Some(*number)));
        }
    }

    #[test]
    fn ids_that_are_not_to_be_made_stay_unknown() {
        let mut ids = NodeIds::default();
        assert_eq!(ids.intern(Key::of("7")), Some(0));
        let cells = ["7", "", "8", "07"];
        assert_eq!(ids.number(4, |at| Key::of(cells[at]), false), Some(vec![0, NO_ID, UNKNOWN, UNKNOWN]));
        assert_eq!((ids.len(), ids.key(0)), (1, Key::Natural(7)));
    }
}
