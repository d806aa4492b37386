//! Lists by node of which most are short.

use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
enum Few {
    #[default]
    None,
    One(u32),
    Many(Vec<u32>),
}

impl Few {
    /// Numbers that it has room for beside itself.
    fn room(&self) -> usize {
        if let Self::Many(numbers) = self { numbers.capacity() } else { 0 }
    }
}

/// A list of numbers for every node of a type; those of appended nodes, which follow each other, need no hashing.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    /// Number of the first appended node.
    first: u32,
    of_known: HashMap<u32, Few>,
    of_appended: Vec<Few>,
    /// Numbers that lists of several have room for.
    room: usize,
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
        let before = few.room();
        match few {
            Few::None => *few = Few::One(number),
            Few::One(known) => *few = Few::Many(if at == 0 { vec![number, *known] } else { vec![*known, number] }),
            Few::Many(numbers) => numbers.insert(at, number),
        }
        let added = few.room() - before;
        self.room += added;
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
        let few = std::mem::take(self.of(node));
        self.room -= few.room();
        match few {
            Few::None => Vec::new(),
            Few::One(number) => vec![number],
            Few::Many(numbers) => numbers,
        }
    }

    /// Bytes that they take, without a look at each.
    pub fn bytes(&self) -> u64 {
        let known = self.of_known.capacity() * (size_of::<(u32, Few)>() + 1);
        (known + self.of_appended.capacity() * size_of::<Few>() + 4 * self.room) as u64
    }
}
