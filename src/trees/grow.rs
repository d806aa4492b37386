//! Growing one tree: leaf-wise by the best gain, or depth-first when the number of leaves is not limited.

use std::borrow::Cow;
use std::ops::Range;

use graphsieve_kernels::{FeatureMask, LeafTask, TreeEngine};

use super::binning::Missing;
use super::counter;
use super::dataset::Dataset;
use super::fixed_point::Gradients;
use super::grow_rule::GrowRule;
use super::host::HostTrees;
use super::split::{Cut, GradientScale, GradientSum, Split, SplitFeature, SplitLeaf, SplitRule, root_output};
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
    leaf: SplitLeaf,
    depth: u32,
    /// Names the node for the random draws: a hash of the way from the root, whatever the order of growth.
    key: u64,
    /// Node and side (left = true) that lead here.
    parent: Option<(usize, bool)>,
    /// Features on the way from the root, where that limits what may follow.
    branch: Vec<u32>,
    best: Option<(u32, Split)>,
}

/// Grows a tree on `rows` (ascending for best speed; the tree does not depend on their order).
///
/// # Panics
/// When a row is out of range of `data` or `gradients`.
pub fn grow(data: &Dataset, gradients: &Gradients, rows: Vec<u32>, rule: &GrowRule, seed: u64, tree: u64) -> Grown {
    let sum = gradients.total(&rows);
    let grower = Grower::new(data, gradients.scale, rule, counter::bits(seed, &[tree]));
    // Leaves that look at few of the features read those columns; histograms of all would be in vain.
    let direct = grower.by_node * 3 < grower.features.len();
    let features = split_features(data, rule);
    let mut host = HostTrees::new(data, gradients, &grower.split, &features, &grower.features, direct, rows);
    let (tree, spans, left_bins) = grower.run(&mut host, sum);
    Grown { tree, rows: host.rows, spans, left_bins }
}

/// Grows a tree on an engine, on rows of which gradients and hessians add up to `sum`.
pub(super) fn grow_on(
    engine: &mut dyn TreeEngine,
    data: &Dataset,
    (scale, sum): (GradientScale, GradientSum),
    rule: &GrowRule,
    seed: u64,
    tree: u64,
) -> Growth {
    Grower::new(data, scale, rule, counter::bits(seed, &[tree])).run(engine, sum)
}

/// A tree, the spans of its leaves, and for every node the bins that go left.
pub(super) type Growth = (Tree, Vec<Range<usize>>, Vec<Vec<bool>>);

impl Grown {
    /// What grew on an engine whose list of rows is `rows` now.
    pub(super) fn new((tree, spans, left_bins): Growth, rows: Vec<u32>) -> Self {
        Grown { tree, rows, spans, left_bins }
    }
}

/// What the search for splits has to know of the features of `data`.
pub(super) fn split_features(data: &Dataset, rule: &GrowRule) -> Vec<SplitFeature> {
    let of_feature = |(feature, mapper): (usize, &super::BinMapper)| SplitFeature {
        num_bin: mapper.num_bin,
        mfb_offset: mapper.mfb_offset(),
        default_bin: mapper.default_bin,
        missing: mapper.missing,
        categorical: mapper.is_categorical(),
        monotone: monotone(rule, feature as u32),
    };
    data.mappers().iter().enumerate().map(of_feature).collect()
}

fn monotone(rule: &GrowRule, feature: u32) -> i8 {
    rule.monotone.get(feature as usize).copied().unwrap_or(0)
}

struct Grower<'a> {
    data: &'a Dataset,
    scale: GradientScale,
    rule: &'a GrowRule,
    split: SplitRule,
    seed: u64,
    /// Those that the tree sees.
    features: Vec<u32>,
    /// How many of them a leaf sees.
    by_node: usize,
    /// What every leaf looks at, unless leaves differ.
    masks: Option<Vec<(u32, FeatureMask)>>,
}

impl<'a> Grower<'a> {
    fn new(data: &'a Dataset, scale: GradientScale, rule: &'a GrowRule, seed: u64) -> Self {
        let all = data.splittable();
        let mut features = counter::shuffled(seed, &[0], &all);
        features.truncate(share(all.len(), rule.feature_fraction));
        features.sort_unstable();
        let by_node = share(features.len(), rule.feature_fraction_bynode);
        let leaves_differ = by_node < features.len() || rule.extra_trees || !rule.interactions.is_empty();
        let masks = (!leaves_differ).then(|| features.iter().map(|&feature| (feature, FeatureMask::Any)).collect());
        Grower { data, scale, rule, split: rule.split_rule(), seed, features, by_node, masks }
    }

    fn run(&self, engine: &mut dyn TreeEngine, sum: GradientSum) -> Growth {
        let output = root_output(&self.split, sum, &self.scale);
        let leaf = SplitLeaf { sum, output, bounds: (f64::NEG_INFINITY, f64::INFINITY) };
        let span = 0..sum.count as usize;
        let (parent, branch, best) = (None, Vec::new(), None);
        let mut open = vec![Open { rows: span.clone(), leaf, depth: 0, key: 1, parent, branch, best }];
        if self.can_split(&open[0]) {
            engine.build(0, span, sum);
            self.search(engine, &mut open, &[0]);
        }
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
            engine.partition(open[at].rows.clone(), feature, &marks);
            nodes.push(self.node(feature, &split, &open[at]));
            left_bins.push(marks);
            let right = self.divide(&mut open[at], &split, feature, nodes.len() - 1);
            open.push(right);
            let more = self.rule.num_leaves.is_none_or(|most| open.len() < most as usize);
            if more {
                self.prepare(engine, &mut open, at);
            }
            stack.extend([at, open.len() - 1]);
        }
        self.finish(nodes, left_bins, open)
    }

    /// Makes `open` the left child of `node` and returns the right one.
    fn divide(&self, open: &mut Open, split: &Split, feature: u32, node: usize) -> Open {
        let span = open.rows.clone();
        let (mut left_bounds, mut right_bounds) = (open.leaf.bounds, open.leaf.bounds);
        let middle = (split.left.output + split.right.output) / 2.0;
        match monotone(self.rule, feature) {
            1.. => (left_bounds.1, right_bounds.0) = (middle, middle),
            0 => {}
            _ => (left_bounds.0, right_bounds.1) = (middle, middle),
        }
        if !self.rule.interactions.is_empty() && !open.branch.contains(&feature) {
            open.branch.push(feature);
        }
        let end_of_left = span.start + split.left.sum.count as usize;
        let right = Open {
            rows: end_of_left..span.end,
            leaf: SplitLeaf { sum: split.right.sum, output: split.right.output, bounds: right_bounds },
            depth: open.depth + 1,
            key: counter::bits(open.key, &[1]),
            parent: Some((node, false)),
            branch: open.branch.clone(),
            best: None,
        };
        open.rows = span.start..end_of_left;
        open.leaf = SplitLeaf { sum: split.left.sum, output: split.left.output, bounds: left_bounds };
        open.depth += 1;
        open.key = counter::bits(open.key, &[0]);
        open.parent = Some((node, true));
        right
    }

    /// Histograms and best splits of the leaf at `left`, which still has the histogram of its parent, and of the last
    /// one.
    fn prepare(&self, engine: &mut dyn TreeEngine, open: &mut [Open], left: usize) {
        let right = open.len() - 1;
        let can: Vec<usize> = [left, right].into_iter().filter(|&at| self.can_split(&open[at])).collect();
        if can.is_empty() {
            return engine.release(left);
        }
        let rows = |at: usize| (open[at].rows.clone(), open[at].leaf.sum);
        engine.build_children(left, right, rows(left), rows(right));
        self.search(engine, open, &can);
        for at in [left, right] {
            if open[at].best.is_none() {
                engine.release(at);
            }
        }
    }

    fn can_split(&self, open: &Open) -> bool {
        let (rule, sum) = (&self.split, open.leaf.sum);
        self.rule.max_depth.is_none_or(|most| open.depth < most)
            && sum.count >= 2
            && sum.count > rule.min_data_in_leaf as i64
            && self.scale.hess(sum.hess) > rule.min_sum_hessian
            && !self.features.is_empty()
    }

    /// Finds the best splits of the leaves `at`.
    fn search(&self, engine: &dyn TreeEngine, open: &mut [Open], at: &[usize]) {
        if self.rule.look_on && self.by_node < self.features.len() {
            at.iter().for_each(|&at| open[at].best = self.look_on(engine, at, &open[at]));
            return;
        }
        let drawn: Vec<Vec<(u32, FeatureMask)>> = match self.masks {
            Some(_) => Vec::new(),
            None => {
                let masks = |&at: &usize| {
                    let (features, by_node) = self.share(&open[at]);
                    self.masks_of(&features[..by_node], open[at].key)
                };
                at.iter().map(masks).collect()
            }
        };
        let task = |(number, &leaf): (usize, &usize)| {
            let masks = self.masks.as_ref().unwrap_or_else(|| &drawn[number]);
            LeafTask { leaf, about: open[leaf].leaf, masks: Some(masks) }
        };
        let tasks: Vec<LeafTask> = at.iter().enumerate().map(task).collect();
        let found = engine.best_splits(&tasks);
        at.iter().zip(found).for_each(|(&at, best)| open[at].best = best);
    }

    /// The best split by the first features of the leaf's order that have any.
    fn look_on(&self, engine: &dyn TreeEngine, leaf: usize, open: &Open) -> Option<(u32, Split)> {
        // Where no feature can split the rows every one would be tried.
        if engine.agree(open.rows.clone()) {
            return None;
        }
        let (features, by_node) = self.share(open);
        features.chunks(by_node.max(1)).find_map(|share| {
            let masks = self.masks_of(share, open.key);
            engine.best_splits(&[LeafTask { leaf, about: open.leaf, masks: Some(&masks) }]).pop().flatten()
        })
    }

    /// The features in the order in which a leaf looks at them, and how many of them it looks at.
    fn share(&self, open: &Open) -> (Vec<u32>, usize) {
        let allowed = self.allowed(open);
        let by_node = share(allowed.len(), self.rule.feature_fraction_bynode);
        match self.by_node < self.features.len() {
            true => (counter::shuffled(self.seed, &[1, open.key], &allowed), by_node),
            false => (allowed.into_owned(), by_node),
        }
    }

    /// The features that may follow those on the way to a leaf.
    fn allowed(&self, open: &Open) -> Cow<'_, [u32]> {
        if open.branch.is_empty() {
            return Cow::Borrowed(&self.features);
        }
        let in_common = |group: &&Vec<u32>| open.branch.iter().all(|feature| group.contains(feature));
        let groups: Vec<&Vec<u32>> = self.rule.interactions.iter().filter(in_common).collect();
        let follows =
            |feature: &&u32| open.branch.contains(feature) || groups.iter().any(|group| group.contains(feature));
        Cow::Owned(self.features.iter().filter(follows).copied().collect())
    }

    fn masks_of(&self, features: &[u32], key: u64) -> Vec<(u32, FeatureMask)> {
        let mask = |feature: u32| match self.rule.extra_trees {
            true => FeatureMask::Drawn(counter::bits(self.seed, &[2, key, feature as u64])),
            false => FeatureMask::Any,
        };
        features.iter().map(|&feature| (feature, mask(feature))).collect()
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

    fn node(&self, feature: u32, split: &Split, open: &Open) -> (Node, Option<(usize, bool)>) {
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
            value: open.leaf.output,
            weight: self.scale.hess(open.leaf.sum.hess),
            count: open.leaf.sum.count as u64,
        };
        (node, open.parent)
    }

    fn finish(&self, nodes: Vec<(Node, Option<(usize, bool)>)>, left_bins: Vec<Vec<bool>>, open: Vec<Open>) -> Growth {
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
            weight: self.scale.hess(open.leaf.sum.hess),
            count: open.leaf.sum.count as u64,
        };
        tree.leaves = open.iter().map(leaf).collect();
        (tree, open.into_iter().map(|open| open.rows).collect(), left_bins)
    }
}

/// So many of a number of features, at least one where there is one.
fn share(of: usize, fraction: f64) -> usize {
    ((of as f64 * fraction).round() as usize).clamp(1.min(of), of)
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
