//! Models in LightGBM's text: fixtures written by LightGBM 4.7 (`lightgbm_models/make.py`), and round trips.

use std::path::Path;

use graphsieve::trees::split::Counts;
use graphsieve::trees::{
    BinRule, Booster, BoosterParams, ClassWeight, Dataset, Fit, Forest, ForestParams, Matrix, Missing, Objective,
};

use super::made::{Made, rule};

fn fixture(name: &str) -> (String, serde_json::Value, Vec<f64>) {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/trees/lightgbm_models");
    let text = std::fs::read_to_string(at.join(format!("{name}.txt"))).unwrap();
    let json = std::fs::read_to_string(at.join(format!("{name}.json"))).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["rows"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
    let values = rows.map(|v| v.as_f64().unwrap_or(f64::NAN)).collect();
    (text, json, values)
}

fn close(got: &[f64], expected: &serde_json::Value, tolerance: f64) {
    let expected = expected.as_array().unwrap();
    assert_eq!(got.len(), expected.len());
    for (row, (got, expected)) in got.iter().zip(expected).enumerate() {
        let expected = expected.as_f64().unwrap();
        assert!((got - expected).abs() <= tolerance, "row {row}: {got} != {expected}");
    }
}

fn close_shap(values: &[f64], base: f64, expected: &serde_json::Value) {
    for (ours, theirs) in values.chunks(4).zip(expected.as_array().unwrap()) {
        let all: Vec<f64> = ours.iter().copied().chain([base]).collect();
        close(&all, theirs, 1e-10);
    }
}

#[test]
fn boosters_of_lightgbm_predict_and_explain_as_there() {
    for name in ["binary", "zero", "squared"] {
        let (text, json, values) = fixture(name);
        let booster = Booster::from_lightgbm_text(&text).unwrap();
        let x = Matrix::f64(&values, 4).unwrap();
        close(&booster.margins(&x).unwrap(), &json["raw"], 1e-12);
        close(&booster.predict(&x).unwrap(), &json["score"], 1e-12);
        let shap = booster.shap(&x).unwrap();
        close_shap(&shap.values, shap.base, &json["shap"]);
    }
}

#[test]
fn forests_of_lightgbm_predict_as_there() {
    let (text, json, values) = fixture("forest");
    let forest = Forest::from_lightgbm_text(&text).unwrap();
    close(&forest.predict(&Matrix::f64(&values, 4).unwrap()).unwrap(), &json["score"], 1e-12);
}

#[test]
fn a_booster_comes_back_from_its_text_with_the_same_predictions() {
    let made = Made::mixed(3000, 21);
    let x = made.x();
    let binary = Objective::Binary { weight: ClassWeight::None };
    for (missing, objective) in [(Missing::Nan, binary), (Missing::Zero, binary), (Missing::Nan, Objective::Squared)] {
        let data = Dataset::new(&x, &BinRule { missing, ..rule() }).unwrap();
        let mut params = BoosterParams { objective, rounds: 12, ..BoosterParams::default() };
        params.grow.split.counts = Counts::Estimated;
        // Counts estimated per side or per bin differ by a row or two: without a limit they do not matter.
        params.grow.split.min_data_in_leaf = 1;
        let booster = Booster::fit(&data, Fit::labels(&made.labels), &params).unwrap();
        let text = booster.to_lightgbm_text();
        let again = Booster::from_lightgbm_text(&text).unwrap();
        assert!(text.contains("cat_threshold=") && text.contains("end of trees"));
        let (before, after) = (booster.margins(&x).unwrap(), again.margins(&x).unwrap());
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-12));
        assert_eq!(again.to_lightgbm_text(), text);
    }
}

#[test]
fn a_forest_comes_back_from_its_text_bit_for_bit() {
    let made = Made::mixed(800, 22);
    let (x, data) = (made.x(), made.data());
    let forest =
        Forest::fit(&data, &made.labels, None, &ForestParams { trees: 5, ..ForestParams::sklearn_like(4) }).unwrap();
    let text = forest.to_lightgbm_text();
    let again = Forest::from_lightgbm_text(&text).unwrap();
    assert_eq!(again.predict(&x).unwrap(), forest.predict(&x).unwrap());
}

#[test]
fn names_go_into_the_text_and_come_back() {
    let made = Made::mixed(500, 24);
    let names = ["age", "price", "Größe_3", "kind|of"].map(String::from).to_vec();
    let data = made.data().with_names(names.clone()).unwrap();
    let params = BoosterParams { rounds: 2, ..BoosterParams::default() };
    let booster = Booster::fit(&data, Fit::labels(&made.labels), &params).unwrap();
    assert_eq!(Booster::from_lightgbm_text(&booster.to_lightgbm_text()).unwrap().feature_names, names);
    assert_eq!(Booster::from_json(&booster.to_json()).unwrap(), booster);
    let plain = Booster::fit(&made.data(), Fit::labels(&made.labels), &params).unwrap();
    assert_eq!(plain.feature_names, ["Column_0", "Column_1", "Column_2", "Column_3"]);
    assert_eq!(plain.trees, booster.trees);
}

#[test]
fn tree_sizes_are_the_bytes_of_the_tree_blocks() {
    let made = Made::mixed(500, 23);
    let params = BoosterParams { rounds: 3, ..BoosterParams::default() };
    let text = Booster::fit(&made.data(), Fit::labels(&made.labels), &params).unwrap().to_lightgbm_text();
    let sizes = text.lines().find_map(|line| line.strip_prefix("tree_sizes=")).unwrap();
    let total: usize = sizes.split(' ').map(|size| size.parse::<usize>().unwrap()).sum();
    assert_eq!(text.find("end of trees").unwrap() - text.find("Tree=0").unwrap(), total);
}

#[test]
fn a_damaged_text_is_refused_with_its_place() {
    let (text, _, _) = fixture("binary");
    let cut = text.replace("left_child=1", "left_child=0");
    for (broken, place) in [
        (text[..text.len() / 2].to_string(), "end of trees"),
        (cut, "tree"),
        (text.replace("num_tree_per_iteration=1", "num_tree_per_iteration=3"), "num_tree_per_iteration"),
        (text.replace("sigmoid:1", "sigmoid:2"), "objective"),
        (text.replacen("leaf_value=", "leaf_value=x ", 1), "leaf_value"),
        // The set of another node.
        (text.replacen("0.56699177432149861 1 ", "0.56699177432149861 0 ", 1), "threshold"),
    ] {
        let error = Booster::from_lightgbm_text(&broken).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains("help"), "{error}");
    }
}
