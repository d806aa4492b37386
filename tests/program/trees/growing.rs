use graphsieve::trees::counter;
use graphsieve::trees::fixed_point::Gradients;
use graphsieve::trees::grow::grow;
use graphsieve::trees::grow_rule::GrowRule;
use graphsieve::trees::split::SplitRule;
use graphsieve::trees::tree::{Child, Tree};
use graphsieve::trees::{BinRule, Dataset, Matrix};

use super::made::{Made, on_threads};

fn gradients(labels: &[f32]) -> Gradients {
    Gradients::new(&labels.iter().map(|&y| (0.4 - y as f64, 0.24)).collect::<Vec<_>>(), 0).unwrap()
}

fn rows(count: usize) -> Vec<u32> {
    (0..count as u32).collect()
}

fn rule(min_data_in_leaf: u32) -> GrowRule {
    GrowRule { split: SplitRule { min_data_in_leaf, ..SplitRule::default() }, ..GrowRule::default() }
}

fn rules() -> Vec<GrowRule> {
    vec![
        rule(20),
        GrowRule { extra_trees: true, ..rule(5) },
        GrowRule { feature_fraction: 0.75, feature_fraction_bynode: 0.5, ..rule(5) },
        GrowRule { num_leaves: None, feature_fraction_bynode: 0.25, look_on: true, ..rule(1) },
        GrowRule { num_leaves: None, ..rule(10) },
        GrowRule { monotone: vec![1, 0, 0, 0], max_depth: Some(4), ..rule(5) },
        GrowRule { interactions: vec![vec![0, 1], vec![1, 3]], feature_fraction_bynode: 0.5, ..rule(5) },
    ]
}

#[test]
fn the_tree_is_the_same_for_any_thread_count_and_row_order() {
    let made = Made::mixed(20_000, 5);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    for rule in rules() {
        let one = on_threads(1, || grow(&data, &gradients, rows(20_000), &rule, 3, 7)).tree;
        let four = on_threads(4, || grow(&data, &gradients, rows(20_000), &rule, 3, 7)).tree;
        let shuffled = counter::shuffled(9, &[], &rows(20_000));
        let other = grow(&data, &gradients, shuffled, &rule, 3, 7).tree;
        assert!(one.leaves.len() > 3, "{rule:?}");
        assert_eq!(one, four);
        assert_eq!(one, other);
    }
}

#[test]
fn rows_end_in_the_leaf_that_prediction_finds_and_counts_agree() {
    let made = Made::mixed(6000, 6);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    let x = made.x();
    for rule in rules() {
        let bag: Vec<u32> = rows(6000).into_iter().filter(|row| row % 3 != 0).collect();
        let grown = grow(&data, &gradients, bag, &rule, 1, 1);
        for (leaf, span) in grown.spans.iter().enumerate() {
            assert_eq!(grown.tree.leaves[leaf].count, span.len() as u64);
            for &row in &grown.rows[span.clone()] {
                assert_eq!(grown.tree.leaf(|f| x.get(row as usize, f)), leaf);
            }
        }
        for row in 0..6000 {
            assert_eq!(grown.leaf_of(&data, row), grown.tree.leaf(|f| x.get(row, f)));
        }
    }
}

#[test]
fn limits_are_respected() {
    let made = Made::mixed(5000, 7);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    for (leaves, depth, data_in_leaf) in [(4, 2, 20), (31, 3, 100), (8, 10, 600)] {
        let rule = GrowRule { num_leaves: Some(leaves), max_depth: Some(depth), ..rule(data_in_leaf) };
        let tree = grow(&data, &gradients, rows(5000), &rule, 0, 0).tree;
        assert!(tree.leaves.len() <= leaves as usize && tree.depth() <= depth as usize);
        assert!(tree.leaves.iter().all(|leaf| leaf.count >= data_in_leaf as u64));
        assert!(tree.leaves.len() > 2);
    }
}

#[test]
fn a_leaf_has_the_smallest_sum_of_hessians_that_is_asked_for() {
    let made = Made::mixed(5000, 7);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    let leaves = |min_sum_hessian: f64| {
        let rule = GrowRule { split: SplitRule { min_sum_hessian, ..rule(1).split }, ..rule(1) };
        let mut weights: Vec<f64> =
            grow(&data, &gradients, rows(5000), &rule, 0, 0).tree.leaves.iter().map(|leaf| leaf.weight).collect();
        weights.sort_by(f64::total_cmp);
        weights
    };
    assert!(leaves(1e-3)[0] < 60.0);
    for least in [60.0, 200.0] {
        let weights = leaves(least);
        assert!(weights[0] >= least && weights.len() > 2, "{weights:?}");
    }
}

/// The features on the way to every leaf.
fn branches(tree: &Tree) -> Vec<Vec<u32>> {
    let (mut open, mut branches) = (vec![(tree.root(), Vec::new())], Vec::new());
    while let Some((at, mut branch)) = open.pop() {
        match at {
            Child::Leaf(_) => branches.push(branch),
            Child::Node(node) => {
                let node = &tree.nodes[node as usize];
                branch.push(node.feature);
                branch.sort_unstable();
                branch.dedup();
                open.extend([(node.left, branch.clone()), (node.right, branch)]);
            }
        }
    }
    branches
}

#[test]
fn only_features_of_a_common_group_follow_one_another() {
    let made = Made::mixed(8000, 9);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    let some = |rule: GrowRule| GrowRule { feature_fraction_bynode: 0.5, ..rule };
    let depth_first = |rule: GrowRule| GrowRule { num_leaves: None, look_on: true, max_depth: Some(6), ..some(rule) };
    // Column 3 is in no group: it stands alone.
    let rule = GrowRule { interactions: vec![vec![0, 1], vec![1, 2]], ..rule(5) };
    let extra = GrowRule { extra_trees: true, ..rule.clone() };
    let mut seen = Vec::new();
    for (seed, rule) in [rule.clone(), some(rule.clone()), depth_first(rule), extra].into_iter().enumerate() {
        for tree in 0..10 {
            seen.extend(branches(&grow(&data, &gradients, rows(8000), &rule, seed as u64, tree).tree));
        }
    }
    seen.sort();
    seen.dedup();
    let groups: [&[u32]; 3] = [&[0, 1], &[1, 2], &[3]];
    assert!(seen.iter().all(|branch| groups.iter().any(|group| branch.iter().all(|f| group.contains(f)))), "{seen:?}");
    assert!(seen.contains(&vec![0, 1]) && seen.contains(&vec![1, 2]), "groups are used: {seen:?}");
    let free = branches(&grow(&data, &gradients, rows(8000), &self::rule(5), 0, 0).tree);
    assert!(free.iter().any(|branch| branch.len() > 2), "otherwise all follow: {free:?}");
}

#[test]
fn one_group_of_all_features_is_no_constraint() {
    let made = Made::mixed(4000, 12);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    for free in [rule(5), GrowRule { feature_fraction_bynode: 0.5, ..rule(5) }] {
        let grouped = GrowRule { interactions: vec![vec![3, 2, 1, 0]], ..free.clone() };
        let [one, other] = [free, grouped].map(|rule| grow(&data, &gradients, rows(4000), &rule, 1, 2).tree);
        assert_eq!(one, other);
    }
}

#[test]
fn leaf_values_are_newton_steps() {
    let made = Made::mixed(3000, 8);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    let mut rule = rule(20);
    rule.split.lambda_l2 = 2.0;
    rule.split.cat_l2 = 0.0;
    let grown = grow(&data, &gradients, rows(3000), &rule, 0, 0);
    for (leaf, span) in grown.tree.leaves.iter().zip(&grown.spans) {
        let sum = gradients.total(&grown.rows[span.clone()]);
        let expected = -gradients.scale.grad(sum.grad) / (gradients.scale.hess(sum.hess) + 2.0);
        assert!((leaf.value - expected).abs() < 1e-12);
    }
}

#[test]
fn a_monotone_feature_never_moves_the_output_the_wrong_way() {
    let made = Made::mixed(8000, 9);
    let labels: Vec<f32> = made.labels.iter().enumerate().map(|(i, y)| if i % 3 == 0 { 1.0 - y } else { *y }).collect();
    let (data, gradients) = (made.data(), gradients(&labels));
    for sign in [1i8, -1] {
        let rule = GrowRule { monotone: vec![sign, 0, 0, 0], ..rule(5) };
        let tree = grow(&data, &gradients, rows(8000), &rule, 0, 0).tree;
        for row in 0..200 {
            let at = |a: f64| tree.leaves[tree.leaf(|f| if f == 0 { a } else { made.x().get(row, f) })].value;
            let along: Vec<f64> = (-20..=20).map(|step| at(step as f64 / 10.0)).collect();
            assert!(along.windows(2).all(|w| (w[1] - w[0]) * sign as f64 >= 0.0));
        }
    }
}

#[test]
fn a_weight_of_two_is_a_row_that_is_there_twice() {
    let made = Made::mixed(2000, 10);
    let data = made.data();
    let twice = |row: usize| row.is_multiple_of(3);
    let pair = |row: usize| (0.4 - made.labels[row] as f64, 0.24);
    let weighted: Vec<(f64, f64)> =
        (0..2000).map(|row| if twice(row) { (2.0 * pair(row).0, 2.0 * pair(row).1) } else { pair(row) }).collect();
    let copies: Vec<usize> = (0..2000).chain((0..2000).filter(|&row| twice(row))).collect();
    let values: Vec<f32> = copies.iter().flat_map(|&row| made.values[row * 4..row * 4 + 4].to_vec()).collect();
    let doubled = data.bin_like(&Matrix::f32(&values, 4).unwrap()).unwrap();
    let mut rule = rule(1);
    (rule.split.cat_smooth, rule.split.min_data_per_group) = (0.0, 1);
    rule.num_leaves = Some(8);
    let a = grow(&data, &Gradients::new(&weighted, 0).unwrap(), rows(2000), &rule, 0, 0).tree;
    let pairs: Vec<(f64, f64)> = copies.iter().map(|&row| pair(row)).collect();
    let b = grow(&doubled, &Gradients::new(&pairs, 0).unwrap(), rows(copies.len()), &rule, 0, 0).tree;
    assert_eq!(a.nodes.len(), b.nodes.len());
    for (a, b) in a.nodes.iter().zip(&b.nodes) {
        assert_eq!((a.feature, &a.test, a.default_left), (b.feature, &b.test, b.default_left));
    }
    for (a, b) in a.leaves.iter().zip(&b.leaves) {
        assert!((a.value - b.value).abs() < 1e-7);
    }
}

#[test]
fn depth_first_growth_without_a_limit_finds_the_leaves_of_leaf_wise_growth() {
    let made = Made::mixed(3000, 11);
    let (data, gradients) = (made.data(), gradients(&made.labels));
    let grown = |num_leaves| grow(&data, &gradients, rows(3000), &GrowRule { num_leaves, ..rule(10) }, 0, 0).tree;
    let (limited, free) = (grown(Some(100_000)), grown(None));
    let spread = |tree: &Tree| {
        let mut leaves: Vec<(u64, u64)> = tree.leaves.iter().map(|l| (l.value.to_bits(), l.count)).collect();
        leaves.sort_unstable();
        leaves
    };
    assert_eq!(spread(&limited), spread(&free));
}

#[test]
fn bins_above_256_split_as_well() {
    let values: Vec<f32> = (0..4000).map(|row| ((row * 7919) % 4000) as f32).collect();
    let labels: Vec<f32> = values.iter().map(|&v| (v >= 2345.0) as u8 as f32).collect();
    let rule_of_bins = BinRule { max_bin: 2000, min_data_in_bin: 1, ..BinRule::default() };
    let data = Dataset::new(&Matrix::f32(&values, 1).unwrap(), &rule_of_bins).unwrap();
    let tree = grow(&data, &gradients(&labels), rows(4000), &GrowRule { num_leaves: Some(2), ..rule(20) }, 0, 0).tree;
    assert_eq!((tree.nodes[0].left, tree.nodes[0].right), (Child::Leaf(0), Child::Leaf(1)));
    assert!((tree.leaves[0].count as i64 - 2345).abs() <= 1);
}
