//! Every tree comes back bit for bit, and columns that were changed are refused or read as other trees, without a
//! panic.

use super::told::{more, undo_more, unzigzag, zigzag};
use super::*;
use crate::trees::binning::Missing;
use crate::trees::tree::{Child, LeafNode, Node, Test};
use crate::trees::{BinRule, Dataset, Forest, ForestParams, Matrix};

/// A tree with a set of categories, missing values of all kinds, and numbers that its children do not tell.
fn odd() -> Tree {
    let node = |feature, test, default_left, missing, left, right| Node {
        feature,
        test,
        default_left,
        missing,
        left,
        right,
        gain: -3.5,
        value: 1e-300,
        weight: 0.0,
        count: u64::MAX,
    };
    let leaf = |value| LeafNode { value, weight: 0.0, count: 7 };
    let nodes = vec![
        node(70_000, Test::OneOf(vec![0, u32::MAX]), true, Missing::Nan, Child::Node(2), Child::Node(1)),
        node(3, Test::AtMost(-0.0), false, Missing::Zero, Child::Leaf(2), Child::Leaf(0)),
        node(3, Test::AtMost(f64::MAX), true, Missing::None, Child::Leaf(3), Child::Leaf(1)),
    ];
    Tree { nodes, leaves: [0.0, -0.0, 1.0, f64::MIN_POSITIVE].map(leaf).into(), shrinkage: 0.1 }
}

fn forest() -> Forest {
    let values: Vec<f32> = (0..900).map(|i| (i * 7919 % 1000) as f32 / 8.0).collect();
    let labels: Vec<f32> = values.chunks(3).map(|row| f32::from(u8::from(row[0] + row[1] / 2.0 > 60.0))).collect();
    let data = Dataset::new(&Matrix::f32(&values, 3).unwrap(), &BinRule::default()).unwrap();
    Forest::fit(&data, &labels, None, &ForestParams { trees: 5, ..ForestParams::sklearn_like(3) }).unwrap()
}

fn of_columns(bytes: &[u8]) -> Result<Vec<Tree>> {
    Reader { rest: bytes }.trees()
}

#[test]
fn every_tree_comes_back_bit_for_bit() {
    let mut trees = forest().trees;
    trees.extend([odd(), Tree::constant(0.25, 3.0, 3), odd()]);
    // The text of every number is the shortest that has its bits: also those of -0.
    let text = |trees: &[Tree]| format!("{trees:?}");
    assert_eq!(text(&of_columns(&columns(&trees)).unwrap()), text(&trees));
    assert_eq!(of_columns(&columns(&[])).unwrap(), []);
    let forest = forest();
    assert_eq!(Forest::from_bytes(&forest.to_bytes()).unwrap(), forest);
    assert!(forest.to_bytes().len() * 4 < forest.to_json().len(), "{} bytes", forest.to_bytes().len());
}

#[test]
fn columns_that_were_changed_do_no_harm() {
    let whole = columns(&[forest().trees.swap_remove(0), odd()]);
    let names: Vec<String> = (0..3).map(|at| format!("f{at}")).collect();
    let used = |bytes: &[u8]| {
        let Ok(trees) = of_columns(bytes) else { return };
        let packed = Packed { kind: "forest".into(), model: Value::Null, more: Value::Null, trees };
        let model = serde_json::json!({ "trees": [], "feature_names": names, "feature_infos": names });
        if let Ok(forest) = Forest::unpacked(Packed { model, ..packed }) {
            forest.predict(&Matrix::f32(&[0.5, 90.0, f32::NAN], 3).unwrap()).unwrap();
        }
    };
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            used(&bytes);
        }
        used(&whole[..at]);
        assert!(of_columns(&whole[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn numbers_of_any_size_survive_a_column() {
    for values in [vec![], vec![0], vec![255, 256], vec![u64::MAX, 0, 1], [1 << 40, 3].repeat(9), (0..70_000).collect()]
    {
        let mut bytes = Vec::new();
        write::column(&mut bytes, values.iter().copied());
        assert_eq!(Reader { rest: &bytes }.column("", Some(values.len())).unwrap(), values);
    }
    for value in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(unzigzag(zigzag(value)), value);
        assert_eq!(undo_more(more(value as u64, 12345), 12345), value as u64);
    }
}
