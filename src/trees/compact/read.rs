//! From columns to trees.

use super::told::{FEW, Told, undo_more, unzigzag};
use crate::error::{Error, Result};
use crate::trees::binning::Missing;
use crate::trees::refuse;
use crate::trees::tree::{Child, LeafNode, Node, Test, Tree};

pub(super) const HELP: &str = "the file is damaged or incomplete; copy it again, or train again";

/// What is left to read.
pub(super) struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bad(place: &str, expected: impl ToString, found: impl ToString) -> Error {
        refuse::model_text(place, expected, found, HELP)
    }

    pub fn bytes(&mut self, count: u64, place: &str) -> Result<&'a [u8]> {
        let taken = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let Some((taken, rest)) = taken else {
            return Err(Self::bad(place, format!("{count} bytes"), format!("{} bytes", self.rest.len())));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub fn u64(&mut self, place: &str) -> Result<u64> {
        let mut value = [0; 8];
        value.copy_from_slice(self.bytes(8, place)?);
        Ok(u64::from_le_bytes(value))
    }

    /// A column of `expected` values, or of any number of them.
    pub fn column(&mut self, place: &str, expected: Option<usize>) -> Result<Vec<u64>> {
        let values = if self.rest.first() == Some(&FEW) {
            self.rest = &self.rest[1..];
            let (different, places) = (self.plain(place)?, self.plain(place)?);
            let value = |at: u64| usize::try_from(at).ok().and_then(|at| different.get(at).copied());
            let values: Option<Vec<u64>> = places.into_iter().map(value).collect();
            values.ok_or_else(|| Self::bad(place, format!("places below {}", different.len()), "a larger one"))?
        } else {
            self.plain(place)?
        };
        match expected {
            Some(expected) if values.len() != expected => {
                Err(Self::bad(place, format!("{expected} values"), values.len()))
            }
            _ => Ok(values),
        }
    }

    fn plain(&mut self, place: &str) -> Result<Vec<u64>> {
        let width = self.bytes(1, place)?[0];
        if ![1, 2, 4, 8].contains(&width) {
            return Err(Self::bad(place, "1, 2, 4 or 8 bytes per value", width));
        }
        let count = self.u64(place)?;
        let planes = self.bytes(count.saturating_mul(u64::from(width)), place)?;
        let mut values = vec![0; count as usize];
        for (byte, plane) in planes.chunks_exact(values.len().max(1)).enumerate() {
            values.iter_mut().zip(plane).for_each(|(value, &part)| *value |= u64::from(part) << (8 * byte));
        }
        Ok(values)
    }

    /// The trees of all columns; whether they can predict is another question.
    pub fn trees(&mut self) -> Result<Vec<Tree>> {
        let sizes = self.column("number of nodes", None)?;
        let total = sizes.iter().try_fold(0u64, |sum, &size| sum.checked_add(size)).map(usize::try_from);
        let Some(Ok(total)) = total else {
            return Err(Self::bad("number of nodes", "a sum that fits", "a larger one"));
        };
        let shrinkage = self.column("shrinkage", Some(sizes.len()))?;
        let leaves = total.checked_add(sizes.len());
        let [leaf_values, leaf_weights] = [self.column("leaf value", leaves)?, self.column("leaf weight", leaves)?];
        let leaf_counts = self.column("leaf count", leaves)?;
        let [features, flags] = [self.column("feature", Some(total))?, self.column("flags", Some(total))?];
        let [left, right] = [self.column("left child", Some(total))?, self.column("right child", Some(total))?];

        let sets = flags.iter().filter(|&&flags| flags & 8 != 0).count();
        let edge_counts = self.column("edges of features", None)?;
        let edges = self.column("edges", None)?;
        let mut first = vec![0u64];
        for count in &edge_counts {
            first.push(first[first.len() - 1].saturating_add(*count));
        }
        let mut places = self.column("thresholds", Some(total - sets))?.into_iter();
        let mut lengths = self.column("sizes of sets", Some(sets))?.into_iter();
        let words = self.column("sets", None)?;
        let mut words = words.as_slice();

        let mut tests = Vec::with_capacity(total);
        for (&feature, &flags) in features.iter().zip(&flags) {
            let test = if flags & 8 == 0 {
                let within = usize::try_from(feature).ok().and_then(|feature| first.get(feature..)?.first_chunk::<2>());
                let place = places
                    .next()
                    .zip(within)
                    .and_then(|(place, [from, to])| from.checked_add(place).filter(|at| at < to));
                let edge = place.and_then(|at| edges.get(at as usize));
                edge.map(|&bits| Test::AtMost(f64::from_bits(bits)))
            } else {
                let taken = lengths.next().and_then(|length| words.split_at_checked(usize::try_from(length).ok()?));
                taken.map(|(set, rest)| {
                    words = rest;
                    Test::OneOf(set.iter().map(|&word| word as u32).collect())
                })
            };
            tests.push(test.ok_or_else(|| Self::bad("thresholds", "one of the edges of the feature", "none of them"))?);
        }
        let [weights, counts] = [self.column("weight", Some(total))?, self.column("count", Some(total))?];
        let [values, gains] = [self.column("value", Some(total))?, self.column("gain", Some(total))?];

        let mut tests = tests.into_iter();
        let (mut node, mut leaf) = (0, 0);
        let mut trees = Vec::with_capacity(sizes.len());
        for (&size, &shrinkage) in sizes.iter().zip(&shrinkage) {
            let size = size as usize;
            let tree_leaves = (leaf..leaf + size + 1).map(|at| LeafNode {
                value: f64::from_bits(leaf_values[at]),
                weight: f64::from_bits(leaf_weights[at]),
                count: leaf_counts[at],
            });
            let mut tree = Tree {
                nodes: Vec::with_capacity(size),
                leaves: tree_leaves.collect(),
                shrinkage: f64::from_bits(shrinkage),
            };
            for at in 0..size {
                let child = |code: u64| -> Result<Child> {
                    let half = code >> 1;
                    let found = if code & 1 == 0 {
                        u32::try_from(half + at as u64)
                            .ok()
                            .filter(|&n| n as usize > at && (n as usize) < size)
                            .map(Child::Node)
                    } else {
                        u32::try_from(unzigzag(half).wrapping_add(at as i64))
                            .ok()
                            .filter(|&leaf| leaf as usize <= size)
                            .map(Child::Leaf)
                    };
                    found.ok_or_else(|| Self::bad("children", "children after their parent, within the tree", code))
                };
                let missing = match flags[node + at] >> 1 & 3 {
                    0 => Missing::None,
                    1 => Missing::Zero,
                    2 => Missing::Nan,
                    other => return Err(Self::bad("flags", "0, 1 or 2 for what is missing", other)),
                };
                tree.nodes.push(Node {
                    feature: u32::try_from(features[node + at])
                        .map_err(|fault| Self::bad("feature", "32 bits", fault))?,
                    test: tests.next().ok_or_else(|| Self::bad("thresholds", "one per node", "fewer"))?,
                    default_left: flags[node + at] & 1 == 1,
                    missing,
                    left: child(left[node + at])?,
                    right: child(right[node + at])?,
                    gain: 0.0,
                    value: 0.0,
                    weight: 0.0,
                    count: 0,
                });
            }
            // A node is told of by its children, which come after it.
            for at in (0..size).rev() {
                let told = Told::of(&tree, &tree.nodes[at]);
                let weight = f64::from_bits(undo_more(weights[node + at], told.weight()));
                let value = f64::from_bits(undo_more(values[node + at], told.value(weight)));
                let gain = f64::from_bits(undo_more(gains[node + at], told.gain(value, weight)));
                let count = undo_more(counts[node + at], told.count());
                let place = &mut tree.nodes[at];
                (place.weight, place.value, place.gain, place.count) = (weight, value, gain, count);
            }
            (node, leaf) = (node + size, leaf + size + 1);
            trees.push(tree);
        }
        Ok(trees)
    }
}
