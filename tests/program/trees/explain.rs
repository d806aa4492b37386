use graphsieve::trees::tree::{Child, Test, Tree};
use graphsieve::trees::{Booster, BoosterParams, Fit, Forest, ForestParams, Importance};

use super::made::Made;

fn booster(made: &Made) -> Booster {
    let params = BoosterParams { rounds: 10, ..BoosterParams::default() };
    Booster::fit(&made.data(), Fit::labels(&made.labels), &params).unwrap()
}

/// Mean output when only the features of `known` are known: both ways are followed by their share of rows.
fn expectation(tree: &Tree, at: Child, feature: &dyn Fn(usize) -> f64, known: u32) -> f64 {
    match at {
        Child::Leaf(leaf) => tree.leaves[leaf as usize].value,
        Child::Node(node) => {
            let node = &tree.nodes[node as usize];
            if known >> node.feature & 1 == 1 {
                return expectation(tree, node.next(feature(node.feature as usize)), feature, known);
            }
            let of = |child| tree.count(child) as f64 / node.count as f64 * expectation(tree, child, feature, known);
            of(node.left) + of(node.right)
        }
    }
}

#[test]
fn attributions_are_the_shapley_values_of_all_subsets() {
    let made = Made::mixed(1500, 31);
    let (booster, x) = (booster(&made), made.x());
    let shap = booster.shap(&x).unwrap();
    let factorial = [1.0, 1.0, 2.0, 6.0, 24.0];
    for row in 0..40 {
        for feature in 0..4u32 {
            let mut expected = 0.0;
            for subset in (0..16u32).filter(|s| s >> feature & 1 == 0) {
                let size = subset.count_ones() as usize;
                let weight = factorial[size] * factorial[3 - size] / factorial[4];
                for tree in &booster.trees {
                    let value = |known| expectation(tree, tree.root(), &|f| x.get(row, f), known);
                    expected += weight * (value(subset | 1 << feature) - value(subset));
                }
            }
            let got = shap.values[row * 4 + feature as usize];
            assert!((got - expected).abs() < 1e-10, "row {row} feature {feature}: {got} != {expected}");
        }
    }
}

#[test]
fn attributions_and_base_sum_to_the_prediction() {
    let made = Made::mixed(1500, 32);
    let (booster, x) = (booster(&made), made.x());
    let shap = booster.shap(&x).unwrap();
    for (row, margin) in booster.margins(&x).unwrap().iter().enumerate() {
        let sum: f64 = shap.base + shap.values[row * 4..row * 4 + 4].iter().sum::<f64>();
        assert!((sum - margin).abs() < 1e-6);
    }
    let params = ForestParams { trees: 5, ..ForestParams::sklearn_like(4) };
    let forest = Forest::fit(&made.data(), &made.labels, None, &params).unwrap();
    let shap = forest.shap(&x).unwrap();
    for (row, score) in forest.predict(&x).unwrap().iter().enumerate() {
        let sum: f64 = shap.base + shap.values[row * 4..row * 4 + 4].iter().sum::<f64>();
        assert!((sum - score).abs() < 1e-6);
    }
}

#[test]
fn importance_counts_splits_and_adds_up_gains() {
    let booster = booster(&Made::mixed(1500, 33));
    let splits: f64 = booster.importance(Importance::Split).iter().sum();
    let gains: f64 = booster.importance(Importance::Gain).iter().sum();
    let nodes: Vec<_> = booster.trees.iter().flat_map(|tree| &tree.nodes).collect();
    assert_eq!(splits, nodes.len() as f64);
    assert!((gains - nodes.iter().map(|node| node.gain).sum::<f64>()).abs() < 1e-9 * gains);
    assert!(nodes.iter().any(|node| matches!(node.test, Test::OneOf(_))));
}

#[test]
fn json_brings_models_back_bit_for_bit_and_refuses_damage() {
    let made = Made::mixed(800, 34);
    let booster = booster(&made);
    assert_eq!(Booster::from_json(&booster.to_json()).unwrap(), booster);
    let params = ForestParams { trees: 3, ..ForestParams::sklearn_like(4) };
    let forest = Forest::fit(&made.data(), &made.labels, None, &params).unwrap();
    assert_eq!(Forest::from_json(&forest.to_json()).unwrap(), forest);
    let error = Booster::from_json(&booster.to_json().replace("\"left\":{\"Node\":1}", "\"left\":{\"Node\":0}"));
    assert!(error.unwrap_err().to_string().contains("tree 0"));
    assert!(Booster::from_json("{").unwrap_err().to_string().contains("line 1"));
    let newer = booster.to_json().replacen("\"format\":1", "\"format\":2", 1);
    assert!(Booster::from_json(&newer).unwrap_err().to_string().contains("format"));
}
