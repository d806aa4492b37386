//! Numbers as columns hold them, and what the children of a node tell of it.

use crate::trees::tree::{Child, Node, Tree};

/// First byte of a column of few different values.
pub(super) const FEW: u8 = 16;

pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// What `value` has more than `told`.
pub(super) fn more(value: u64, told: u64) -> u64 {
    zigzag(value.wrapping_sub(told) as i64)
}

pub(super) fn undo_more(more: u64, told: u64) -> u64 {
    told.wrapping_add(unzigzag(more) as u64)
}

/// Those of a NaN differ from one kind of CPU to another.
fn bits(value: f64) -> u64 {
    if value.is_nan() { 0 } else { value.to_bits() }
}

/// What the children of a node tell of it, by the numbers of both: value, weight and count.
pub(super) struct Told {
    sides: [(f64, f64, u64); 2],
}

impl Told {
    pub fn of(tree: &Tree, node: &Node) -> Self {
        let side = |child: Child| match child {
            Child::Node(at) => {
                let node = &tree.nodes[at as usize];
                (node.value, node.weight, node.count)
            }
            Child::Leaf(at) => {
                let leaf = &tree.leaves[at as usize];
                (leaf.value, leaf.weight, leaf.count)
            }
        };
        Self { sides: [side(node.left), side(node.right)] }
    }

    pub fn weight(&self) -> u64 {
        bits(self.sides[0].1 + self.sides[1].1)
    }

    pub fn count(&self) -> u64 {
        self.sides[0].2.wrapping_add(self.sides[1].2)
    }

    pub fn value(&self, weight: f64) -> u64 {
        let [left, right] = self.sides.map(|(value, weight, _)| value * weight);
        bits((left + right) / weight)
    }

    pub fn gain(&self, value: f64, weight: f64) -> u64 {
        let [left, right] = self.sides.map(|(value, weight, _)| value * value * weight);
        bits(left + right - value * value * weight)
    }
}
