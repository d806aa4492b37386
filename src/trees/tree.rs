//! A decision tree and its prediction.

use serde::{Deserialize, Serialize};

use super::binning::{Missing, ZERO_THRESHOLD, category};
use super::matrix::Matrix;

/// A decision tree. Node 0 is the root; a tree of one leaf has no nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// Inner nodes.
    pub nodes: Vec<Node>,
    /// Leaves.
    pub leaves: Vec<LeafNode>,
    /// Factor that the leaf values contain already.
    pub shrinkage: f64,
}

/// An inner node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Feature that is tested.
    pub feature: u32,
    /// What is tested.
    pub test: Test,
    /// Side of a missing value.
    pub default_left: bool,
    /// What counts as missing.
    pub missing: Missing,
    /// Where the test leads.
    pub left: Child,
    /// Where it leads otherwise.
    pub right: Child,
    /// Gain of the split.
    pub gain: f64,
    /// Output that the node would have as a leaf.
    pub value: f64,
    /// Hessian sum.
    pub weight: f64,
    /// Training rows.
    pub count: u64,
}

/// The test of an inner node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Test {
    /// Left when the value is at most this.
    AtMost(f64),
    /// Left when the category's bit is set: bit c % 32 of word c / 32.
    OneOf(Vec<u32>),
}

/// A child of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Child {
    /// An inner node.
    Node(u32),
    /// A leaf.
    Leaf(u32),
}

/// A leaf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeafNode {
    /// Output.
    pub value: f64,
    /// Hessian sum.
    pub weight: f64,
    /// Training rows.
    pub count: u64,
}

impl Node {
    /// True when `value` goes left.
    #[inline]
    pub fn goes_left(&self, value: f64) -> bool {
        match &self.test {
            Test::AtMost(threshold) => {
                let value = if value.is_nan() && self.missing != Missing::Nan { 0.0 } else { value };
                let missing = match self.missing {
                    Missing::None => false,
                    Missing::Zero => value.abs() <= ZERO_THRESHOLD,
                    Missing::Nan => value.is_nan(),
                };
                if missing { self.default_left } else { value <= *threshold }
            }
            Test::OneOf(words) => category(value)
                .is_some_and(|c| words.get(c as usize / 32).is_some_and(|word| word >> (c % 32) & 1 == 1)),
        }
    }

    /// The child that `value` goes to.
    #[inline]
    pub fn next(&self, value: f64) -> Child {
        if self.goes_left(value) { self.left } else { self.right }
    }
}

impl Tree {
    /// A tree of one leaf.
    pub fn constant(value: f64, weight: f64, count: u64) -> Self {
        Tree { nodes: Vec::new(), leaves: vec![LeafNode { value, weight, count }], shrinkage: 1.0 }
    }

    /// The root.
    pub fn root(&self) -> Child {
        if self.nodes.is_empty() { Child::Leaf(0) } else { Child::Node(0) }
    }

    /// The leaf that a row with `feature(f)` falls into.
    #[inline]
    pub fn leaf(&self, feature: impl Fn(usize) -> f64) -> usize {
        let mut at = self.root();
        loop {
            match at {
                Child::Leaf(leaf) => return leaf as usize,
                Child::Node(node) => {
                    let node = &self.nodes[node as usize];
                    at = node.next(feature(node.feature as usize));
                }
            }
        }
    }

    /// The output for a row with `feature(f)`.
    #[inline]
    pub fn output(&self, feature: impl Fn(usize) -> f64) -> f64 {
        self.leaves[self.leaf(feature)].value
    }

    /// The output for `row` of `x`.
    #[inline]
    pub fn predict(&self, x: &Matrix, row: usize) -> f64 {
        self.output(|f| x.get(row, f))
    }

    /// Training rows under `child`.
    pub fn count(&self, child: Child) -> u64 {
        match child {
            Child::Node(node) => self.nodes[node as usize].count,
            Child::Leaf(leaf) => self.leaves[leaf as usize].count,
        }
    }

    /// Multiplies every output.
    pub fn shrink(&mut self, rate: f64) {
        self.leaves.iter_mut().for_each(|leaf| leaf.value *= rate);
        self.nodes.iter_mut().for_each(|node| node.value *= rate);
        self.shrinkage *= rate;
    }

    /// Adds `bias` to every output.
    pub fn add_bias(&mut self, bias: f64) {
        self.leaves.iter_mut().for_each(|leaf| leaf.value += bias);
        self.nodes.iter_mut().for_each(|node| node.value += bias);
    }

    /// Edges on the longest way from the root to a leaf.
    pub fn depth(&self) -> usize {
        // Children come after their parent, so one pass upwards sees every child before its parent.
        let mut below = vec![0usize; self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            let depth = |child| if let Child::Node(node) = child { below[node as usize] } else { 0 };
            below[at] = 1 + depth(self.nodes[at].left).max(depth(self.nodes[at].right));
        }
        below.first().copied().unwrap_or(0)
    }

    /// Share of the rows of a node that go left and right, by the training rows under either; half where none are
    /// known.
    pub fn shares(&self, node: &Node) -> (f64, f64) {
        let (left, right) = (self.count(node.left) as f64, self.count(node.right) as f64);
        if left + right > 0.0 { (left / (left + right), right / (left + right)) } else { (0.5, 0.5) }
    }

    /// Mean output over the training rows.
    pub fn mean(&self) -> f64 {
        // Children come after their parent.
        let mut means = vec![0.0; self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            let mean = |child| match child {
                Child::Node(node) => means[node as usize],
                Child::Leaf(leaf) => self.leaves[leaf as usize].value,
            };
            let (left, right) = self.shares(&self.nodes[at]);
            means[at] = left * mean(self.nodes[at].left) + right * mean(self.nodes[at].right);
        }
        means.first().copied().unwrap_or_else(|| self.leaves.first().map_or(0.0, |leaf| leaf.value))
    }
}
