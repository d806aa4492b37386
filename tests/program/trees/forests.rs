use graphsieve::trees::tree::Child;
use graphsieve::trees::{ClassWeight, Forest, ForestParams};

use super::made::{Made, on_threads};

#[test]
fn a_forest_is_the_same_for_any_thread_count_and_predicts_rows_as_batches() {
    let made = Made::mixed(1500, 41);
    let data = made.data();
    let params = ForestParams { trees: 8, seed: 5, ..ForestParams::sklearn_like(4) };
    let one = on_threads(1, || Forest::fit(&data, &made.labels, None, &params).unwrap());
    let four = on_threads(4, || Forest::fit(&data, &made.labels, None, &params).unwrap());
    assert_eq!(one, four);
    let scores = one.predict(&made.x()).unwrap();
    assert!((0..1500).all(|row| one.score(&made.row(row)).unwrap() == scores[row]));
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
}

#[test]
fn leaves_hold_the_weighted_mean_of_their_labels() {
    let made = Made::mixed(1000, 42);
    let data = made.data();
    let weights: Vec<f32> = (0..1000).map(|row| (row % 4) as f32).collect();
    let mut params = ForestParams { trees: 1, bootstrap: false, ..ForestParams::sklearn_like(4) };
    params.grow.num_leaves = Some(6);
    let forest = Forest::fit(&data, &made.labels, Some(&weights), &params).unwrap();
    let (tree, x) = (&forest.trees[0], made.x());
    for (leaf, node) in tree.leaves.iter().enumerate() {
        let rows: Vec<usize> = (0..1000).filter(|&row| tree.leaf(|f| x.get(row, f)) == leaf).collect();
        let total: f64 = rows.iter().map(|&row| weights[row] as f64).sum();
        let sum: f64 = rows.iter().map(|&row| (weights[row] * made.labels[row]) as f64).sum();
        assert!((node.value - sum / total).abs() < 1e-9);
        assert_eq!(node.count, rows.iter().filter(|&&row| weights[row] > 0.0).count() as u64);
    }
}

#[test]
fn a_forest_of_full_depth_learns_its_training_rows() {
    let made = Made::mixed(1000, 43);
    let params = ForestParams { trees: 30, class_weight: ClassWeight::Balanced, ..ForestParams::sklearn_like(4) };
    let forest = Forest::fit(&made.data(), &made.labels, None, &params).unwrap();
    let scores = forest.predict(&made.x()).unwrap();
    let right = scores.iter().zip(&made.labels).filter(|(s, y)| (**s > 0.5) == (**y > 0.5)).count();
    assert!(right > 930, "{right} of 1000");
}

#[test]
fn a_leaf_of_one_class_is_not_split() {
    let made = Made::mixed(500, 44);
    let params = ForestParams { trees: 3, ..ForestParams::sklearn_like(4) };
    for label in [0.0, 1.0] {
        let forest = Forest::fit(&made.data(), &[label; 500], None, &params).unwrap();
        assert!(forest.trees.iter().all(|tree| tree.leaves.len() == 1));
        assert_eq!(forest.score(&made.row(0)).unwrap(), label as f64);
    }
    let forest = Forest::fit(&made.data(), &made.labels, None, &params).unwrap();
    for tree in &forest.trees {
        let pure = |at: Child| match at {
            Child::Leaf(leaf) => Some(tree.leaves[leaf as usize].value).filter(|v| *v == 0.0 || *v == 1.0),
            Child::Node(_) => None,
        };
        assert!(tree.nodes.iter().all(|n| pure(n.left).is_none() || pure(n.left) != pure(n.right)));
    }
}

#[test]
fn bags_are_drawn_from_the_rows_that_have_weight() {
    let made = Made::mixed(400, 45);
    let mut weights = vec![0.0f32; 400];
    let present = (0..400).position(|row| made.labels[row] == 1.0).unwrap();
    weights[present] = 1.0;
    let params = ForestParams { trees: 20, ..ForestParams::sklearn_like(4) };
    let forest = Forest::fit(&made.data(), &made.labels, Some(&weights), &params).unwrap();
    assert_eq!(forest.score(&made.row(0)).unwrap(), 1.0);
}
