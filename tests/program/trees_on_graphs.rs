//! Trees of Stage 3 through the program: settings that name columns, features with missing values.

use std::time::Instant;

use burn_flex::{Flex, FlexDevice};
use graphsieve::config::{ForestConfig, Stage3Config, TreeModel};
use graphsieve::graph::{Adjacency, Dataset, Features, HeteroGraph, Labels, RelationSpec};
use graphsieve::infer::tree_table::Tables;
use graphsieve::run::splits::split_of;
use graphsieve::train::RunOptions;
use graphsieve::train::stage3::validated;
use graphsieve::train::stretch::Stretch;
use graphsieve::trees::{Booster, Matrix};
use ndarray::Array1;
use ndarray_npy::read_npy;

use crate::support::Sandbox;

const NODES: u32 = 600;
/// The features: a number, another one, and one of twelve codes.
pub const NAMES: [&str; 3] = ["amount", "age", "code"];

pub fn chance(node: u32, salt: u32) -> f32 {
    let mixed = (node.wrapping_mul(2_654_435_761) ^ salt.wrapping_mul(0x9e37_79b9)).wrapping_mul(2_246_822_519);
    ((mixed ^ (mixed >> 15)).wrapping_mul(3_266_489_917) >> 8) as f32 / (1 << 24) as f32
}

/// Anomalies have other codes, and larger amounts up to a point from where on these are smaller again.
pub fn rows() -> (Vec<f32>, Vec<(u32, u8)>) {
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for node in 0..NODES {
        let [amount, age, code] = [chance(node, 1), chance(node, 2), (chance(node, 3) * 12.0).floor()];
        let risk = if amount > 0.7 { 0.2 } else { amount } + if (code as u32).is_multiple_of(3) { 0.4 } else { 0.0 }
            - 0.3 * age;
        values.extend([amount, age, code]);
        labels.push((node, u8::from(risk + 0.3 * chance(node, 4) > 0.55)));
    }
    (values, labels)
}

pub fn dataset(values: Vec<f32>) -> Dataset {
    let edges: Vec<(u32, u32)> = (0..NODES).flat_map(|node| [1, 7, 30].map(|by| (node, (node + by) % NODES))).collect();
    let adjacency = Adjacency::from_edges(NODES as usize, NODES as usize, &edges);
    let edge = RelationSpec::new("near", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("node".into(), NODES as usize)], vec![edge]).unwrap();
    let features = Features::from_f32(values, NODES as usize, NAMES.len());
    let data = Dataset::new(graph, Some(features), Some(Labels { entries: rows().1 }), None);
    Dataset { feature_names: Some(NAMES.map(String::from).into()), ..data }
}

pub fn sandbox(values: Vec<f32>) -> Sandbox {
    let sandbox = Sandbox::new();
    dataset(values).write(&sandbox.path("data")).unwrap();
    sandbox
}

const TREES: &str = "task = \"stage3\"\n[data]\npath = \"data\"\n[model]\nkind = \"booster\"\ntrees = 40\n\
                     patience = 0\nmin_data_in_leaf = 5\n[output]\ndir = \"runs\"\nplots = false\n";
const RAW: [&str; 4] = ["mean", "difference", "wavelets", "log_degree"];

fn train(sandbox: &Sandbox, features: &str, model: &str) -> String {
    let text = TREES.replace("[model]\n", &format!("[features]\n{features}[model]\n{model}"));
    sandbox.write("run.toml", text);
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    sandbox.only_run("runs")
}

fn raw() -> String {
    RAW.map(|block| format!("{block} = false\n")).concat()
}

fn scores(sandbox: &Sandbox, run: &str, data: &str) -> Vec<f32> {
    let _ = std::fs::remove_file(sandbox.path("s.npy"));
    sandbox.succeeds(["--quiet", "score", run, "--data", data, "--out", "s.npy", "--device", "cpu"]);
    read_npy::<_, Array1<f32>>(sandbox.path("s.npy")).unwrap().to_vec()
}

/// Rows that differ from a node in their amount alone, which grows.
fn along_amounts(values: &[f32], node: usize) -> Vec<f32> {
    let row = &values[node * NAMES.len()..][..NAMES.len()];
    (0..NODES).flat_map(|step| [step as f32 / NODES as f32, row[1], row[2]]).collect()
}

#[test]
fn scores_never_fall_along_a_monotone_column_and_branches_keep_to_groups() {
    let (values, _) = rows();
    let falls = |model: &str| {
        let sandbox = sandbox(values.clone());
        let run = train(&sandbox, &raw(), model);
        let falls = [0, 17, 99].map(|node| {
            let other = format!("along-{node}");
            dataset(along_amounts(&values, node)).write(&sandbox.path(&other)).unwrap();
            scores(&sandbox, &run, &other).windows(2).filter(|pair| pair[1] < pair[0]).count()
        });
        sandbox.succeeds(["export", "lightgbm", &run, "--out", "trees.txt"]);
        let text = String::from_utf8(sandbox.read("trees.txt")).unwrap();
        let booster = Booster::from_lightgbm_text(&text).unwrap();
        let exported = booster.predict(&Matrix::f32(&values, NAMES.len()).unwrap()).unwrap();
        let written = scores(&sandbox, &run, "data");
        assert!(written.iter().zip(&exported).all(|(own, exported)| (f64::from(*own) - exported).abs() < 1e-6));
        (falls, text, booster)
    };
    let (free, text, _) = falls("");
    assert!(free.iter().sum::<usize>() > 0, "amounts of anomalies end at a point");
    let categorical = |text: &str| text.lines().any(|line| line.starts_with("num_cat=") && line != "num_cat=0");
    assert!(!categorical(&text), "codes are numbers");
    let model =
        "monotone = { amount = 1, x1 = -1 }\ncategorical = [\"code\"]\ninteractions = [[\"amount\", \"code\"]]\n";
    let (bound, text, booster) = falls(model);
    assert_eq!(bound, [0; 3]);
    assert!(categorical(&text), "codes are categories");
    for tree in &booster.trees {
        let mut seen: Vec<u32> = tree.nodes.iter().map(|node| node.feature).collect();
        seen.dedup();
        // `age` stands alone: a tree that begins with it has nothing else.
        let root = tree.nodes.first().map(|node| node.feature);
        assert!(root.is_none() || seen.iter().all(|&feature| (feature == 1) == (root == Some(1))), "{seen:?}");
    }
}

#[test]
fn a_column_that_nobody_knows_is_refused_before_any_training() {
    let sandbox = sandbox(rows().0);
    let refused = |set: &str, code: i32, parts: &[&str]| {
        sandbox.write("run.toml", TREES);
        sandbox.refuses(["--quiet", "train", "run.toml", "--device", "cpu", "--set", set], code, parts);
    };
    refused("model.categorical=[\"cod\"]", 2, &["model.categorical = `cod`", "did you mean `code`?"]);
    refused("model.monotone={ \"mean1.amuont\" = 1 }", 2, &["model.monotone", "did you mean `mean1.amount`?"]);
    refused("model.interactions=[[\"age\", \"zzz\"]]", 2, &["model.interactions = `zzz`", "`amount` is the first"]);
    refused("model.categorical=[\"age\"]", 1, &["column `age` of model.categorical", "whole numbers"]);
}

#[test]
fn trees_read_missing_values_and_infinite_ones_are_refused() {
    let (mut values, labels) = rows();
    // The age of anomalies is often missing: that alone tells.
    for &(node, label) in &labels {
        let often = if label == 1 { 0.6 } else { 0.1 };
        if chance(node, 5) < often {
            values[node as usize * NAMES.len() + 1] = f32::NAN;
        }
    }
    let sandbox = sandbox(values);
    for features in [String::new(), "max = true\nsum = true\nquantiles = [0.25, 0.5]\n".into()] {
        let run = train(&sandbox, &features, "");
        let written = read_npy::<_, Array1<f32>>(sandbox.path(&format!("{run}/anomaly_scores_stage3.npy"))).unwrap();
        assert_eq!(scores(&sandbox, &run, "data"), written.to_vec());
        let found: serde_json::Value =
            serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
        let auc = found["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap();
        assert!(auc > 0.8, "{auc}");
        sandbox.succeeds(["--quiet", "explain", &run, "--node", "3", "--device", "cpu", "--format", "json"]);
        std::fs::remove_dir_all(sandbox.path("runs")).unwrap();
    }
    let file = "data/X_combined.memmap";
    sandbox.edit(file, |bytes| bytes[12..16].copy_from_slice(&f32::INFINITY.to_le_bytes()));
    let network = "task = \"stage1\"\n[data]\npath = \"data\"\n[output]\ndir = \"runs\"\n";
    for text in [TREES, network] {
        sandbox.write("run.toml", text);
        let parts = ["row 1, column 0", "NaN for a missing one"];
        sandbox.refuses(["--quiet", "train", "run.toml", "--device", "cpu"], 1, &parts);
    }
}

#[test]
fn a_training_of_trees_stops_when_its_time_is_over_and_keeps_what_it_has() {
    let sandbox = sandbox(rows().0);
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    let mut config = Stage3Config::new(sandbox.path("data"));
    (config.output.dir, config.output.plots) = (sandbox.path("runs"), false);
    config.model = TreeModel::Forest(ForestConfig { trees: 8, ..ForestConfig::default() });
    let split = split_of(&data, &data.labels.as_ref().unwrap().entries, &config.split, config.seed).unwrap();
    let trained = |resume: Option<std::path::PathBuf>, deadline: Option<Instant>| {
        let stretch = Some(Stretch { share: 1.0, deadline });
        let options = RunOptions { resume, stretch, ..RunOptions::quiet("test") };
        let found =
            validated::<Flex>(&config, &data, &split, (&[], &Tables::default()), &options, &FlexDevice).unwrap();
        (found.run, found.done, found.complete)
    };
    let (run, done, complete) = trained(None, Some(Instant::now()));
    assert_eq!((done, complete), (1, false));
    let (_, done, complete) = trained(Some(run.clone()), None);
    assert_eq!((done, complete), (8, true));
    // What an earlier call got to is not given up for less.
    let (_, done, _) = trained(Some(run), Some(Instant::now()));
    assert_eq!(done, 8);
}
