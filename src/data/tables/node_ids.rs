//! Ids of nodes, numbered by all threads in the order of their first appearance.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

/// Ids that one type can have: the numbers of nodes are those of Parquet's and NumPy's 32-bit integers.
const MAX_IDS: usize = i32::MAX as usize;
/// Numbers from here on are places among the new ids of a call.
const PLACE: u32 = 1 << 31;
/// Ids that one thread numbers at least.
const GRAIN: usize = 256;
/// Ids that are looked up beside each other, so that the memory is waited for once.
const ABREAST: usize = 32;
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
        let (digits, is_negative) = match cell.as_bytes() {
            [b'-', digits @ ..] => (digits, true),
            digits => (digits, false),
        };
        let digit = |byte: u8| Some(byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
        let add = |sum: u64, byte: &u8| sum.checked_mul(10)?.checked_add(digit(*byte)?.into());
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
/// table takes 11 to 22 bytes per id. Ids are hashed with a random key, so nobody can make all of them collide; numbers
/// do not depend on it, nor on the number of threads.
#[derive(Debug)]
pub(super) struct NodeIds {
    ids: Stored,
    table: Table,
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

/// Numbers by hash: open addresses, one behind another. A slot has the tag of an id above its number.
#[derive(Debug)]
struct Table {
    slots: Vec<AtomicU64>,
    /// What is left of a hash are the bits of a slot's number.
    shift: u32,
}

/// No tag and number are these.
const FREE: u64 = u64::MAX;

/// Where an id begins to be looked for, and the tag by which it is told from most others there.
#[derive(Debug, Clone, Copy)]
struct Mark {
    hash: u64,
    tag: u32,
}

impl Mark {
    /// Tags from here on are the ids themselves: whole numbers below 2^31.
    const EXACT: u32 = 1 << 31;

    fn of(key: Key, hasher: Hasher) -> Self {
        let hash = hasher.hash(key);
        let tag = match key {
            Key::Natural(number) if number < u64::from(Self::EXACT) => number as u32 | Self::EXACT,
            // Ids of one tag are of one kind.
            _ => (key.kind() as u32) << 29 | hash as u32 >> 3,
        };
        Self { hash, tag }
    }

    fn is_exact(self) -> bool {
        self.tag >= Self::EXACT
    }

    fn slot(self, number: u32) -> u64 {
        u64::from(self.tag) << 32 | u64::from(number)
    }

    /// The number in a slot of this tag.
    fn number(self, slot: u64) -> Option<u32> {
        (slot >> 32 == u64::from(self.tag) && slot != FREE).then_some(slot as u32)
    }
}

impl Table {
    /// With room for so many ids.
    fn with_room(ids: usize) -> Self {
        let bits = (ids + ids / 3).max(16).next_power_of_two().trailing_zeros();
        let slots = (0..1usize << bits).into_par_iter().with_min_len(1 << 12).map(|_| AtomicU64::new(FREE));
        Self { slots: slots.collect(), shift: 64 - bits }
    }

    fn has_room(&self, ids: usize) -> bool {
        ids + ids / 3 <= self.slots.len()
    }

    fn start(&self, mark: Mark) -> usize {
        (mark.hash >> self.shift) as usize
    }

    /// The slots from the first one that an id may have, in turn.
    fn probe(&self, mark: Mark) -> impl Iterator<Item = (usize, u64)> {
        let last = self.slots.len() - 1;
        let mut at = self.start(mark);
        std::iter::from_fn(move || {
            let found = (at, self.slots[at].load(Relaxed));
            at = (at + 1) & last;
            Some(found)
        })
    }

    /// The number of an id in the table, which is one of those with its tag that `is_own`.
    fn find(&self, mark: Mark, is_own: impl Fn(u32) -> bool) -> Option<u32> {
        for (_, slot) in self.probe(mark) {
            match mark.number(slot) {
                Some(number) if mark.is_exact() || is_own(number) => return Some(number),
                None if slot == FREE => return None,
                _ => {}
            }
        }
        None
    }

    /// Puts the number of an id that is not in the table into a free slot and returns which. Of equal ids, which
    /// `is_own` tells, that of the least number stays.
    fn insert(&self, mark: Mark, number: u32, is_own: impl Fn(u32) -> bool) -> usize {
        let own = mark.slot(number);
        let last = self.slots.len() - 1;
        let mut at = self.start(mark);
        loop {
            let slot = match self.slots[at].compare_exchange(FREE, own, Relaxed, Relaxed) {
                Ok(_) => return at,
                Err(slot) => slot,
            };
            // Ids do not leave their slots: whoever meets an equal one meets it here.
            if mark.number(slot).is_some_and(|other| mark.is_exact() || is_own(other)) {
                self.slots[at].fetch_min(own, Relaxed);
                return at;
            }
            at = (at + 1) & last;
        }
    }
}

impl Default for NodeIds {
    fn default() -> Self {
        let random = RandomState::new();
        let hasher = Hasher([0, 1].map(|at: u64| random.hash_one(at)));
        Self { ids: Stored::default(), table: Table::with_room(0), hasher }
    }
}

impl Stored {
    fn key(&self, number: u32) -> Key<'_> {
        self.meant(self.words[number as usize], self.kinds[number as usize])
    }

    /// What a word stands for.
    fn meant(&self, word: u64, kind: Kind) -> Key<'_> {
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

impl NodeIds {
    pub fn len(&self) -> usize {
        self.ids.words.len()
    }

    /// Bytes that they take.
    pub fn num_bytes(&self) -> u64 {
        let Stored { words, kinds, text } = &self.ids;
        (8 * (words.capacity() + self.table.slots.len()) + kinds.capacity() + text.capacity()) as u64
    }

    /// The id of a number.
    pub fn key(&self, number: u32) -> Key<'_> {
        self.ids.key(number)
    }

    /// All ids in the order of their numbers.
    pub fn texts(&self) -> Vec<String> {
        (0..self.len() as u32).into_par_iter().with_min_len(GRAIN).map(|number| self.key(number).to_text()).collect()
    }

    /// The number of a known id.
    pub fn find(&self, key: Key) -> Option<u32> {
        self.find_marked(Mark::of(key, self.hasher), key)
    }

    fn find_marked(&self, mark: Mark, key: Key) -> Option<u32> {
        self.table.find(mark, |number| self.key(number) == key)
    }

    /// Makes room for so many more ids.
    fn reserve(&mut self, more: usize) {
        let needed = self.len() + more;
        if self.table.has_room(needed) {
            return;
        }
        // Nothing but this is held of the old one: ids are hashed again in the order in which they lie.
        self.table = Table::with_room(0);
        self.table = Table::with_room(needed);
        (0..self.len() as u32).into_par_iter().with_min_len(GRAIN).for_each(|number| {
            self.table.insert(Mark::of(self.key(number), self.hasher), number, |_| false);
        });
    }

    /// The number of an id, a new one for a new id; `None` when there is none left, and for an empty cell.
    pub fn intern(&mut self, key: Key) -> Option<u32> {
        let mark = Mark::of(key, self.hasher);
        if let Some(known) = self.find_marked(mark, key) {
            return Some(known);
        }
        self.reserve(1);
        let number = self.ids.push(key)?;
        self.table.insert(mark, number, |_| false);
        Some(number)
    }

    /// What is known of some ids, [`NO_ID`] or [`UNKNOWN`] for the others. With many nodes most of the time goes to the
    /// caches that this misses: every step is made for all of them before the next.
    fn look_up(&self, keys: &[Key], numbers: &mut [u32]) {
        let mut marks = [Mark { hash: 0, tag: 0 }; ABREAST];
        marks.iter_mut().zip(keys).for_each(|(mark, key)| *mark = Mark::of(*key, self.hasher));
        let mut slots = [FREE; ABREAST];
        for (slot, mark) in slots.iter_mut().zip(&marks[..keys.len()]) {
            *slot = self.table.slots[self.table.start(*mark)].load(Relaxed);
        }
        let mut words = [0; ABREAST];
        for ((mark, slot), word) in marks.iter().zip(slots).zip(&mut words) {
            if let Some(number) = mark.number(slot).filter(|_| !mark.is_exact()) {
                *word = self.ids.words[number as usize];
            }
        }
        for (at, (key, out)) in keys.iter().zip(numbers).enumerate() {
            let (mark, slot) = (marks[at], slots[at]);
            let is_own = |_: &u32| mark.is_exact() || self.ids.meant(words[at], key.kind()) == *key;
            *out = match mark.number(slot).filter(is_own) {
                _ if *key == Key::Empty => NO_ID,
                Some(number) => number,
                None if slot == FREE => UNKNOWN,
                None => self.find_marked(mark, *key).unwrap_or(UNKNOWN),
            };
        }
    }

    /// The numbers of the ids `key(0)` to `key(count - 1)`, [`NO_ID`] for empty cells. New ids get theirs in this order
    /// or, unless `creates`, are [`UNKNOWN`]. `None` when there is no number left.
    pub fn number<'a>(
        &mut self,
        count: usize,
        key: impl Fn(usize) -> Key<'a> + Sync,
        creates: bool,
    ) -> Option<Vec<u32>> {
        let mut numbers = vec![UNKNOWN; count];
        let chunks = numbers.par_chunks_mut(ABREAST).with_min_len(GRAIN / ABREAST).enumerate();
        chunks.for_each(|(chunk, numbers)| {
            let mut keys = [Key::Empty; ABREAST];
            keys.iter_mut().zip(0..numbers.len()).for_each(|(own, at)| *own = key(chunk * ABREAST + at));
            self.look_up(&keys[..numbers.len()], numbers);
        });
        if !creates {
            return Some(numbers);
        }
        let is_new = |(at, number): (usize, &u32)| (*number == UNKNOWN).then_some(at);
        let new: Vec<usize> = numbers.iter().enumerate().filter_map(is_new).collect();
        if new.len() < GRAIN {
            for at in new {
                numbers[at] = self.intern(key(at))?;
            }
            return Some(numbers);
        }
        self.reserve(new.len());
        let Self { ids, table, hasher } = self;
        // A new id stands in the table by its place; where it occurs several times, by the first one.
        let insert = |place: usize| {
            let own = key(new[place]);
            let is_own = |other: u32| other.checked_sub(PLACE).is_some_and(|place| key(new[place as usize]) == own);
            table.insert(Mark::of(own, *hasher), PLACE | place as u32, is_own)
        };
        let slots: Vec<usize> = (0..new.len()).into_par_iter().with_min_len(GRAIN).map(insert).collect();
        let first = |&slot: &usize| table.slots[slot].load(Relaxed) as u32 - PLACE;
        let firsts: Vec<u32> = slots.par_iter().with_min_len(GRAIN).map(first).collect();
        for (place, &first) in firsts.iter().enumerate() {
            let at = new[place];
            numbers[at] = if first as usize == place { ids.push(key(at))? } else { numbers[new[first as usize]] };
        }
        slots.par_iter().zip(&new).with_min_len(GRAIN).for_each(|(&slot, &at)| {
            let tag = table.slots[slot].load(Relaxed) >> 32;
            table.slots[slot].store(tag << 32 | u64::from(numbers[at]), Relaxed);
        });
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
                5 if id.is_multiple_of(100) => String::new(),
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
