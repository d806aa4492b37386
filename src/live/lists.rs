//! Lists by node of which most are short.

use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
enum Few {
    #[default]
    None,
    One(u32),
    Many(Vec<u32>),
}

/// A list of numbers for every node of a type; those of appended nodes, which follow each other, need no hashing.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    /// Number of the first appended node.
    first: u32,
    of_known: HashMap<u32, Few>,
    of_appended: Vec<Few>,
}

impl Lists {
    pub fn new(first: u32) -> Self {
        Self { first, ..Self::default() }
    }

    pub fn get(&self, node: u32) -> &[u32] {
        let few = match node.checked_sub(self.first) {
            None => self.of_known.get(&node),
            Some(at) => self.of_appended.get(at as usize),
        };
        match few {
            None | Some(Few::None) => &[],
            Some(Few::One(number)) => std::slice::from_ref(number),
            Some(Few::Many(numbers)) => numbers,
        }
    }

    fn of(&mut self, node: u32) -> &mut Few {
        let Some(at) = node.checked_sub(self.first) else { return self.of_known.entry(node).or_default() };
        let at = at as usize;
        if at >= self.of_appended.len() {
            self.of_appended.resize_with(at + 1, Few::default);
        }
        &mut self.of_appended[at]
    }

    /// Puts a number before the place `at` of the list of a node.
    pub fn insert(&mut self, node: u32, at: usize, number: u32) {
        let few = self.of(node);
        match few {
            Few::None => *few = Few::One(number),
            Few::One(known) => *few = Few::Many(if at == 0 { vec![number, *known] } else { vec![*known, number] }),
            Few::Many(numbers) => numbers.insert(at, number),
        }
    }

    pub fn push(&mut self, node: u32, number: u32) {
        self.insert(node, self.get(node).len(), number);
    }

    /// Takes a number out of the list of a node.
    pub fn remove(&mut self, node: u32, number: u32) {
        match self.of(node) {
            Few::Many(numbers) => numbers.retain(|known| *known != number),
            few => *few = Few::None,
        }
    }

    /// Takes the list of a node out.
    pub fn take(&mut self, node: u32) -> Vec<u32> {
        match std::mem::take(self.of(node)) {
            Few::None => Vec::new(),
            Few::One(number) => vec![number],
            Few::Many(numbers) => numbers,
        }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        let heap = |few: &Few| if let Few::Many(numbers) = few { 4 * numbers.capacity() } else { 0 };
        let known = self.of_known.capacity() * (size_of::<(u32, Few)>() + 1);
        let of_all: usize = self.of_known.values().chain(&self.of_appended).map(heap).sum();
        (known + self.of_appended.capacity() * size_of::<Few>() + of_all) as u64
    }
}
