//! Growing one tree: leaf-wise by the best gain, or depth-first when the number of leaves is not limited.

use std::ops::Range;

use rayon::prelude::*;

use super::binning::Missing;
use super::counter;
use super::dataset::Dataset;
use super::fixed_point::{Gradients, Sum};
use super::grow_rule::GrowRule;
use super::histogram::{Histogram, Layout, column_sums};
use super::partition::partition;
use super::split::{Cut, FeatureShape, Leaf, Split, best_split, root_output};
use super::split_rule::SplitRule;
use super::tree::{Child, LeafNode, Node, Test, Tree};

/// A grown tree and where its rows went.
#[derive(Clone, Debug)]
pub struct Grown {
    /// The tree.
    pub tree: Tree,
    /// The rows, leaf after leaf.
    pub rows: Vec<u32>,
    /// Span of each leaf in `rows`.
    pub spans: Vec<Range<usize>>,
    /// For every node the bins that go left.
    left_bins: Vec<Vec<bool>>,
}

impl Grown {
    /// The leaf of a row of the data set that the tree was grown on, also of a row that it has not seen.
    pub fn leaf_of(&self, data: &Dataset, row: usize) -> usize {
        let mut at = self.tree.root();
        loop {
            match at {
                Child::Leaf(leaf) => return leaf as usize,
                Child::Node(node) => {
                    let bin = data.columns()[self.tree.nodes[node as usize].feature as usize].bin(row);
                    let left = self.left_bins[node as usize][bin as usize];
                    let node = &self.tree.nodes[node as usize];
                    at = if left { node.left } else { node.right };
                }
            }
        }
    }
}

/// A leaf that may still be split.
struct Open {
    rows: Range<usize>,
    leaf: Leaf,
    depth: u32,
    /// Names the node for the random draws: a hash of the way from the root, whatever the order of growth.
    key: u64,
    /// Node and side (left = true) that lead here.
    parent: Option<(usize, bool)>,
    histogram: Option<Histogram>,
    best: Option<(u32, Split)>,
}

/// Grows a tree on `rows` (ascending for best speed; the tree does not depend on their order).
///
/// # Panics
/// When a row is out of range of `data` or `gradients`.
pub fn grow(data: &Dataset, gradients: &Gradients, rows: Vec<u32>, rule: &GrowRule, seed: u64, tree: u64) -> Grown {
    let grower = Grower::new(data, gradients, rule, counter::bits(seed, &[tree]));
    grower.run(rows)
}

struct Grower<'a> {
    data: &'a Dataset,
    gradients: &'a Gradients,
    rule: &'a GrowRule,
    split: SplitRule,
    seed: u64,
    features: Vec<u32>,
    by_node: usize,
    layout: Layout,
    /// Nodes look at few of the features: read those columns instead of keeping histograms of all.
    direct: bool,
}

impl<'a> Grower<'a> {
    fn new(data: &'a Dataset, gradients: &'a Gradients, rule: &'a GrowRule, seed: u64) -> Self {
        let all = data.splittable();
        let share = |of: usize, fraction: f64| ((of as f64 * fraction).round() as usize).clamp(1.min(of), of);
        let mut features = counter::shuffled(seed, &[0], &all);
        features.truncate(share(all.len(), rule.feature_fraction));
        features.sort_unstable();
        let by_node = share(features.len(), rule.feature_fraction_bynode);
        let mut split = rule.split.clone();
        split.bounded |= rule.monotone.iter().any(|&sign| sign != 0);
        let layout = Layout::new(data, &features);
        let direct = by_node * 3 < features.len();
        Grower { data, gradients, rule, split, seed, features, by_node, layout, direct }
    }

    fn run(&self, mut rows: Vec<u32>) -> Grown {
        let sum = self.gradients.total(&rows);
        let output = root_output(&self.split, sum, &self.gradients.scale);
        let leaf = Leaf { sum, output, bounds: (f64::NEG_INFINITY, f64::INFINITY) };
        let span = 0..rows.len();
        let mut root = Open { rows: span, leaf, depth: 0, key: 1, parent: None, histogram: None, best: None };
        if self.can_split(&root) {
            root.histogram = self.build(&rows);
            self.search(&mut root, &rows);
        }
        let mut scratch = vec![0u32; rows.len()];
        let mut open = vec![root];
        let mut stack = vec![0usize];
        let (mut nodes, mut left_bins) = (Vec::new(), Vec::new());
        while self.rule.num_leaves.is_none_or(|most| open.len() < most as usize) {
            let next = match self.rule.num_leaves {
                Some(_) => best_leaf(&open),
                None => std::iter::from_fn(|| stack.pop()).find(|&at| open[at].best.is_some()),
            };
            let Some(at) = next else { break };
            let (feature, split) = open[at].best.take().expect("only leaves with a split are chosen");
            let marks = self.left_bins(feature, &split);
            let right = self.divide(&mut open[at], &split, feature, &marks, &mut rows, &mut scratch, nodes.len());
            nodes.push(self.node(feature, &split, &right.1));
            left_bins.push(marks);
            open.push(right.0);
            let (low, high) = open.split_at_mut(at + 1);
            let (left, right) = (&mut low[at], high.last_mut().expect("just pushed"));
            let more = self.rule.num_leaves.is_none_or(|most| nodes.len() + 1 < most as usize);
            if more {
                self.prepare(left, right, &rows);
            }
            stack.extend([at, open.len() - 1]);
        }
        self.finish(nodes, left_bins, open, rows)
    }

    /// Moves the rows of `open`, makes it the left child and returns the right one with what the node must remember.
    #[allow(clippy::too_many_arguments)]
    fn divide(
        &self,
        open: &mut Open,
        split: &Split,
        feature: u32,
        marks: &[bool],
        rows: &mut [u32],
        scratch: &mut [u32],
        node: usize,
    ) -> (Open, (Leaf, Option<(usize, bool)>)) {
        let span = open.rows.clone();
        let column = &self.data.columns()[feature as usize];
        let lefts = partition(&mut rows[span.clone()], &mut scratch[span.clone()], column, marks);
        debug_assert_eq!(lefts as i64, split.left.sum.count);
        let (mut left_bounds, mut right_bounds) = (open.leaf.bounds, open.leaf.bounds);
        let middle = (split.left.output + split.right.output) / 2.0;
        match self.monotone(feature) {
            1.. => (left_bounds.1, right_bounds.0) = (middle, middle),
            0 => {}
            _ => (left_bounds.0, right_bounds.1) = (middle, middle),
        }
        let before = (open.leaf, open.parent);
        let right = Open {
            rows: span.start + lefts..span.end,
            leaf: Leaf { sum: split.right.sum, output: split.right.output, bounds: right_bounds },
            depth: open.depth + 1,
            key: counter::bits(open.key, &[1]),
            parent: Some((node, false)),
            histogram: None,
            best: None,
        };
        open.rows = span.start..span.start + lefts;
        open.leaf = Leaf { sum: split.left.sum, output: split.left.output, bounds: left_bounds };
        open.depth += 1;
        open.key = counter::bits(open.key, &[0]);
        open.parent = Some((node, true));
        (right, before)
    }

    /// Histograms and best splits of two siblings; `left` still holds the parent's histogram.
    fn prepare(&self, left: &mut Open, right: &mut Open, rows: &[u32]) {
        let parent = left.histogram.take();
        let (can_left, can_right) = (self.can_split(left), self.can_split(right));
        if !can_left && !can_right {
            return;
        }
        if let Some(mut larger) = parent {
            let left_is_smaller = left.rows.len() <= right.rows.len();
            let small = if left_is_smaller { &mut *left } else { &mut *right };
            let smaller = self.build(&rows[small.rows.clone()]);
            if let Some(smaller) = &smaller {
                larger.subtract(smaller);
            }
            small.histogram = smaller;
            let large = if left_is_smaller { &mut *right } else { &mut *left };
            large.histogram = Some(larger);
        }
        for (open, can) in [(left, can_left), (right, can_right)] {
            if can {
                self.search(open, rows);
            }
            if open.best.is_none() {
                open.histogram = None;
            }
        }
    }

    fn can_split(&self, open: &Open) -> bool {
        let (rule, sum) = (&self.split, open.leaf.sum);
        let hess = self.gradients.scale.hess(sum.hess);
        self.rule.max_depth.is_none_or(|most| open.depth < most)
            && sum.count >= 2
            && sum.count > rule.min_data_in_leaf as i64
            && hess > rule.min_sum_hessian
            && !self.features.is_empty()
    }

    fn build(&self, rows: &[u32]) -> Option<Histogram> {
        (!self.direct).then(|| Histogram::build(self.data, &self.layout, self.gradients, rows))
    }

    fn search(&self, open: &mut Open, rows: &[u32]) {
        let rows = &rows[open.rows.clone()];
        if self.by_node == self.features.len() {
            open.best = self.best_of(open, rows, &self.features);
            return;
        }
        if self.rule.look_on && self.agree(rows) {
            return;
        }
        let order = counter::shuffled(self.seed, &[1, open.key], &self.features);
        for share in order.chunks(self.by_node) {
            open.best = self.best_of(open, rows, share);
            if open.best.is_some() || !self.rule.look_on {
                return;
            }
        }
    }

    /// True when all rows ask for the same output: no feature can split them, and looking on would try every one.
    fn agree(&self, rows: &[u32]) -> bool {
        let pair = |row: u32| self.gradients.pairs[row as usize].map(i64::from);
        let [grad, hess] = pair(rows[0]);
        rows.iter().all(|&row| {
            let [other_grad, other_hess] = pair(row);
            grad * other_hess == other_grad * hess
        })
    }

    fn best_of(&self, open: &Open, rows: &[u32], features: &[u32]) -> Option<(u32, Split)> {
        // Small leaves are not worth handing out.
        let together = match open.histogram {
            Some(_) => 8,
            None if rows.len() < 2048 => features.len(),
            None => 1,
        };
        features
            .par_iter()
            .with_min_len(together)
            .filter_map(|&feature| {
                let shape = self.shape(feature);
                let draw = self.rule.extra_trees.then(|| counter::bits(self.seed, &[2, open.key, feature as u64]));
                let scan = |sums: &[Sum]| {
                    let stored = &sums[shape.mfb_offset as usize..];
                    best_split(stored, &shape, &open.leaf, &self.gradients.scale, &self.split, draw)
                };
                let split = match &open.histogram {
                    Some(histogram) => scan(histogram.feature(&self.layout, feature)),
                    None => {
                        let column = &self.data.columns()[feature as usize];
                        scan(&column_sums(column, shape.num_bin, self.gradients, rows))
                    }
                };
                split.map(|split| (feature, split))
            })
            .reduce_with(|a, b| if better((b.1.gain, b.0), (a.1.gain, a.0)) { b } else { a })
    }

    fn shape(&self, feature: u32) -> FeatureShape {
        let mapper = &self.data.mappers()[feature as usize];
        FeatureShape {
            num_bin: mapper.num_bin,
            mfb_offset: mapper.mfb_offset(),
            default_bin: mapper.default_bin,
            missing: mapper.missing,
            categorical: mapper.is_categorical(),
            monotone: self.monotone(feature),
        }
    }

    fn monotone(&self, feature: u32) -> i8 {
        self.rule.monotone.get(feature as usize).copied().unwrap_or(0)
    }

    /// For every bin of `feature` whether `split` sends it left.
    fn left_bins(&self, feature: u32, split: &Split) -> Vec<bool> {
        let mapper = &self.data.mappers()[feature as usize];
        let threshold = match &split.cut {
            Cut::Bins(bins) => return (0..mapper.num_bin).map(|bin| bins.contains(&bin)).collect(),
            Cut::UpTo(threshold) => *threshold,
        };
        let missing = match mapper.missing {
            Missing::None => None,
            Missing::Zero => Some(mapper.default_bin),
            Missing::Nan => Some(mapper.num_bin - 1),
        };
        let side = |bin| if Some(bin) == missing { split.default_left } else { bin <= threshold };
        (0..mapper.num_bin).map(side).collect()
    }

    fn node(
        &self,
        feature: u32,
        split: &Split,
        before: &(Leaf, Option<(usize, bool)>),
    ) -> (Node, Option<(usize, bool)>) {
        let mapper = &self.data.mappers()[feature as usize];
        let test = match &split.cut {
            Cut::UpTo(bin) => Test::AtMost(mapper.threshold(*bin)),
            Cut::Bins(bins) => {
                let categories: Vec<u32> = bins.iter().filter_map(|&bin| mapper.category_of(bin)).collect();
                let mut words = vec![0u32; categories.iter().max().map_or(0, |&most| most as usize / 32 + 1)];
                categories.iter().for_each(|&c| words[c as usize / 32] |= 1 << (c % 32));
                Test::OneOf(words)
            }
        };
        let node = Node {
            feature,
            test,
            default_left: split.default_left,
            missing: mapper.missing,
            left: Child::Leaf(0),
            right: Child::Leaf(0),
            gain: split.gain,
            value: before.0.output,
            weight: self.gradients.scale.hess(before.0.sum.hess),
            count: before.0.sum.count as u64,
        };
        (node, before.1)
    }

    fn finish(
        &self,
        nodes: Vec<(Node, Option<(usize, bool)>)>,
        left_bins: Vec<Vec<bool>>,
        open: Vec<Open>,
        rows: Vec<u32>,
    ) -> Grown {
        let parents: Vec<_> = nodes.iter().map(|node| node.1).collect();
        let mut tree = Tree { nodes: nodes.into_iter().map(|node| node.0).collect(), leaves: vec![], shrinkage: 1.0 };
        let mut link = |parent: Option<(usize, bool)>, child| match parent {
            Some((node, true)) => tree.nodes[node].left = child,
            Some((node, false)) => tree.nodes[node].right = child,
            None => {}
        };
        parents.iter().enumerate().for_each(|(at, &parent)| link(parent, Child::Node(at as u32)));
        open.iter().enumerate().for_each(|(at, leaf)| link(leaf.parent, Child::Leaf(at as u32)));
        let leaf = |open: &Open| LeafNode {
            value: open.leaf.output,
            weight: self.gradients.scale.hess(open.leaf.sum.hess),
            count: open.leaf.sum.count as u64,
        };
        tree.leaves = open.iter().map(leaf).collect();
        Grown { tree, rows, spans: open.into_iter().map(|open| open.rows).collect(), left_bins }
    }
}

/// Larger gain; on a tie the smaller number.
fn better(a: (f64, u32), b: (f64, u32)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
}

fn best_leaf(open: &[Open]) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for (at, leaf) in open.iter().enumerate() {
        if let Some((_, split)) = &leaf.best
            && best.is_none_or(|b| split.gain > b.0)
        {
            best = Some((split.gain, at));
        }
    }
    best.map(|b| b.1)
}
