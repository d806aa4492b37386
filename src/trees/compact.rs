//! Models in few bytes; numbers come back bit for bit.
//!
//! # The file
//! All integers are little-endian.
//!
//! | bytes | |
//! |---|---|
//! | 0 to 7 | `GSTREES` and a zero byte |
//! | 8 to 11 | version of the layout, 1 |
//! | from 12 on | one zstd frame with a checksum of what is in it |
//!
//! In the frame there are the length of the header (u64), the header (JSON: the model without its trees) and the columns
//! below. A column holds one number of every node, or leaf, of all trees in a row. It begins with the number of bytes per
//! value (u8: 1, 2, 4 or 8) and the number of values (u64); then come the lowest bytes of all values, the second lowest, and
//! so on. Where there are few different values of more than two bytes, the first byte is 16, and two columns follow:
//! the different values in ascending order, and the place of each value among them.
//!
//! 1. Nodes of every tree; it has one leaf more. Shrinkage of every tree, as the bits of the f64.
//! 2. Of leaves: value, weight, count.
//! 3. Of nodes: feature; 1 where missing values go left, plus 2 times what is missing (0 nothing, 1 zero, 2 NaN), plus 8
//!    for a set of categories; left child; right child. A child is twice a node less its parent, or twice the zigzag of
//!    a leaf less the parent, plus 1.
//! 4. Thresholds: how many edges each feature has, all edges by feature in ascending order of their bits, and per node the
//!    place of its threshold among those of its feature. Sets: words of every set, and the words.
//! 5. Of nodes: value, weight, count and gain, each as the zigzag of what it has more than its children tell:
//!    `(v_l w_l + v_r w_r) / w`, `w_l + w_r`, `n_l + n_r` and `v_l^2 w_l + v_r^2 w_r - v^2 w`, of f64 the bits as integers, 0 for those of NaN.
//!    Where that is exact or nearly so the highest bytes are 0, which takes no space.

use std::io::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::binning::Missing;
use super::refuse;
use super::tree::{Child, LeafNode, Node, Test, Tree};
use crate::error::{Error, Result};

/// What such a file begins with.
pub(crate) const MAGIC: &[u8; 8] = b"GSTREES\0";
/// Counted up when the layout changes.
const VERSION: u32 = 1;
/// First byte of a column of few different values.
const FEW: u8 = 16;
/// A value among so many is worth a table of the different ones.
const FEW_SHARE: usize = 4;
/// More takes longer and gains little.
const LEVEL: i32 = 6;

const HELP: &str = "the file is damaged or incomplete; copy it again, or train again";

/// A model with its trees apart.
#[derive(Serialize, Deserialize)]
pub(crate) struct Packed {
    /// `booster` or `forest`.
    pub kind: String,
    /// The model without its trees.
    pub model: Value,
    /// What else belongs to it.
    pub more: Value,
    #[serde(skip)]
    pub trees: Vec<Tree>,
}

/// The bytes of a file; the trees are those of `trees`, not of `packed`.
pub(crate) fn pack(packed: &Packed, trees: &[Tree]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    let write = || -> std::io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(out, LEVEL)?;
        encoder.include_checksum(true)?;
        let header = serde_json::to_vec(packed)?;
        encoder.write_all(&(header.len() as u64).to_le_bytes())?;
        encoder.write_all(&header)?;
        encoder.write_all(&columns(trees))?;
        encoder.finish()
    };
    write().expect("a vector takes every byte, and a header has only string keys and finite numbers")
}

/// Reads what [`pack`] wrote.
///
/// # Errors
/// [`Error::Format`] for bytes of another kind or version, and for damaged ones.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Packed> {
    let bad = |place: &str, expected: &str, found: String| refuse::model_text(place, expected, found, HELP);
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(bad(
            "first bytes",
            "GSTREES",
            format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(8)])),
        ));
    };
    let Some((version, frame)) = rest.split_first_chunk() else {
        return Err(bad("version", "four bytes", format!("{} bytes", rest.len())));
    };
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        let help = "read it with the version that wrote it, or train again";
        return Err(refuse::model_text("version", VERSION, version, help));
    }
    let content = zstd::decode_all(frame).map_err(|fault| bad("content", "a whole zstd frame", fault.to_string()))?;
    let mut reader = Reader { rest: &content };
    let length = reader.u64("header")?;
    let header = reader.bytes(length, "header")?;
    let mut packed: Packed =
        serde_json::from_slice(header).map_err(|fault| bad("header", "the header of a model", fault.to_string()))?;
    packed.trees = reader.trees()?;
    match reader.rest.len() {
        0 => Ok(packed),
        more => Err(bad("end", "nothing after the trees", format!("{more} bytes"))),
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// What `value` has more than `told`.
fn more(value: u64, told: u64) -> u64 {
    zigzag(value.wrapping_sub(told) as i64)
}

fn undo_more(more: u64, told: u64) -> u64 {
    told.wrapping_add(unzigzag(more) as u64)
}

/// Those of a NaN differ from one kind of CPU to another.
fn bits(value: f64) -> u64 {
    if value.is_nan() { 0 } else { value.to_bits() }
}

/// What the children of a node tell of it, by the numbers of both: value, weight and count.
struct Told {
    sides: [(f64, f64, u64); 2],
}

impl Told {
    fn of(tree: &Tree, node: &Node) -> Self {
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

    fn weight(&self) -> u64 {
        bits(self.sides[0].1 + self.sides[1].1)
    }

    fn count(&self) -> u64 {
        self.sides[0].2.wrapping_add(self.sides[1].2)
    }

    fn value(&self, weight: f64) -> u64 {
        let [left, right] = self.sides.map(|(value, weight, _)| value * weight);
        bits((left + right) / weight)
    }

    fn gain(&self, value: f64, weight: f64) -> u64 {
        let [left, right] = self.sides.map(|(value, weight, _)| value * value * weight);
        bits(left + right - value * value * weight)
    }
}

fn columns(trees: &[Tree]) -> Vec<u8> {
    let nodes = || trees.iter().flat_map(|tree| &tree.nodes);
    let leaves = || trees.iter().flat_map(|tree| &tree.leaves);
    let with_tree =
        || trees.iter().flat_map(|tree| tree.nodes.iter().enumerate().map(move |(at, node)| (tree, at, node)));
    let mut out = Vec::new();
    column(&mut out, trees.iter().map(|tree| tree.nodes.len() as u64));
    column(&mut out, trees.iter().map(|tree| tree.shrinkage.to_bits()));
    column(&mut out, leaves().map(|leaf| leaf.value.to_bits()));
    column(&mut out, leaves().map(|leaf| leaf.weight.to_bits()));
    column(&mut out, leaves().map(|leaf| leaf.count));

    let flags = |node: &Node| {
        let missing = match node.missing {
            Missing::None => 0,
            Missing::Zero => 1,
            Missing::Nan => 2,
        };
        u64::from(node.default_left) | missing << 1 | if matches!(node.test, Test::OneOf(_)) { 8 } else { 0 }
    };
    let child = |at: usize, child: Child| match child {
        Child::Node(node) => u64::from(node).wrapping_sub(at as u64) << 1,
        Child::Leaf(leaf) => zigzag(i64::from(leaf) - at as i64) << 1 | 1,
    };
    column(&mut out, nodes().map(|node| u64::from(node.feature)));
    column(&mut out, nodes().map(flags));
    column(&mut out, with_tree().map(|(_, at, node)| child(at, node.left)));
    column(&mut out, with_tree().map(|(_, at, node)| child(at, node.right)));

    let edge = |node: &Node| match node.test {
        Test::AtMost(threshold) => Some((node.feature, threshold.to_bits())),
        Test::OneOf(_) => None,
    };
    let mut edges: Vec<(u32, u64)> = nodes().filter_map(edge).collect();
    edges.sort_unstable();
    edges.dedup();
    let features = edges.last().map_or(0, |edge| edge.0 as usize + 1);
    let mut first = vec![0usize; features + 1];
    edges.iter().for_each(|edge| first[edge.0 as usize + 1] += 1);
    column(&mut out, first[1..].iter().map(|&count| count as u64));
    (0..features).for_each(|feature| first[feature + 1] += first[feature]);
    column(&mut out, edges.iter().map(|edge| edge.1));
    let place = |wanted: (u32, u64)| edges.partition_point(|edge| *edge < wanted) - first[wanted.0 as usize];
    column(&mut out, nodes().filter_map(edge).map(|wanted| place(wanted) as u64));
    let sets = || {
        nodes().filter_map(|node| match &node.test {
            Test::OneOf(words) => Some(words),
            Test::AtMost(_) => None,
        })
    };
    column(&mut out, sets().map(|words| words.len() as u64));
    column(&mut out, sets().flatten().map(|&word| u64::from(word)));

    column(&mut out, with_tree().map(|(tree, _, node)| more(node.weight.to_bits(), Told::of(tree, node).weight())));
    column(&mut out, with_tree().map(|(tree, _, node)| more(node.count, Told::of(tree, node).count())));
    let value =
        |(tree, _, node): (&Tree, usize, &Node)| more(node.value.to_bits(), Told::of(tree, node).value(node.weight));
    column(&mut out, with_tree().map(value));
    let gain = |(tree, _, node): (&Tree, usize, &Node)| {
        more(node.gain.to_bits(), Told::of(tree, node).gain(node.value, node.weight))
    };
    column(&mut out, with_tree().map(gain));
    out
}

/// Appends a column in the shorter of both forms.
fn column(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    let values: Vec<u64> = values.collect();
    if width(&values) > 2 {
        let mut different = values.clone();
        different.sort_unstable();
        different.dedup();
        if different.len() <= values.len() / FEW_SHARE {
            out.push(FEW);
            let places: Vec<u64> = values.iter().map(|value| different.partition_point(|d| d < value) as u64).collect();
            plain(out, &different);
            return plain(out, &places);
        }
    }
    plain(out, &values);
}

/// Bytes that every value fits.
fn width(values: &[u64]) -> usize {
    match values.iter().copied().max().unwrap_or(0) {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

fn plain(out: &mut Vec<u8>, values: &[u64]) {
    let width = width(values);
    out.push(width as u8);
    out.extend((values.len() as u64).to_le_bytes());
    (0..width).for_each(|byte| out.extend(values.iter().map(|value| (value >> (8 * byte)) as u8)));
}

/// What is left to read.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bad(place: &str, expected: impl ToString, found: impl ToString) -> Error {
        refuse::model_text(place, expected, found, HELP)
    }

    fn bytes(&mut self, count: u64, place: &str) -> Result<&'a [u8]> {
        let taken = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let Some((taken, rest)) = taken else {
            return Err(Self::bad(place, format!("{count} bytes"), format!("{} bytes", self.rest.len())));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn u64(&mut self, place: &str) -> Result<u64> {
        let mut value = [0; 8];
        value.copy_from_slice(self.bytes(8, place)?);
        Ok(u64::from_le_bytes(value))
    }

    /// A column of `expected` values, or of any number of them.
    fn column(&mut self, place: &str, expected: Option<usize>) -> Result<Vec<u64>> {
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

    fn trees(&mut self) -> Result<Vec<Tree>> {
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
