//! From trees to columns.

use super::told::{FEW, Told, more, zigzag};
use crate::trees::binning::Missing;
use crate::trees::tree::{Child, Node, Test, Tree};

/// A value among so many is worth a table of the different ones.
const FEW_SHARE: usize = 4;

/// All columns of `trees`.
pub(super) fn columns(trees: &[Tree]) -> Vec<u8> {
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
pub(super) fn column(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
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
