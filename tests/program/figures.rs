//! The figures that the program is known by, within the spread over seeds that was measured. Where a bound says how it was
//! measured, the command gives it again.

use std::fs::File;
use std::path::Path;

use burn_flex::Flex;
use graphsieve::config::{RunConfig, Stage1Config};
use graphsieve::graph::{Adjacency, Dataset, Features, HeteroGraph, RelationSpec};
use graphsieve::run::progress::Mode;
use graphsieve::train::{self, RunOptions, Stage1Outcome};
use ndarray::{Array1, Array2, Ix1, Ix2};
use ndarray_npy::NpzWriter;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::support::{Sandbox, repository};

/// Nodes of one type in `groups` of equal size with random features; each of `edges` pairs is drawn from one group with
/// probability `within`, from all nodes otherwise.
fn random_graph(nodes: u32, edges: usize, groups: u32, within: f64, seed: u64) -> Dataset {
    const WIDTH: usize = 16;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pairs = Vec::new();
    for _ in 0..edges {
        let a = rng.random_range(0..nodes);
        let b = match rng.random_bool(within) {
            true => rng.random_range(0..nodes / groups) * groups + a % groups,
            false => rng.random_range(0..nodes),
        };
        if a != b {
            pairs.extend([(a, b), (b, a)]);
        }
    }
    let adjacency = Adjacency::from_edges(nodes as usize, nodes as usize, &pairs);
    let spec = RelationSpec { name: "r".into(), src: 0, dst: 0, stream: "r".into(), primary: true, adjacency };
    let graph = HeteroGraph::new(vec![("node".into(), nodes as usize)], vec![spec]).unwrap();
    let values = (0..nodes as usize * WIDTH).map(|_| rng.random_range(-1.0..1.0)).collect();
    Dataset::new(graph, Some(Features::from_f32(values, nodes as usize, WIDTH)), None, None)
}

fn stage1(dataset: &Dataset, held_out: f64) -> Stage1Outcome {
    let dir = tempfile::tempdir().unwrap();
    dataset.write(&dir.path().join("data")).unwrap();
    let mut config = Stage1Config::new(dir.path().join("data"));
    config.output.dir = dir.path().join("runs");
    config.output.plots = false;
    (config.model.hidden, config.model.out) = (32, 32);
    config.train.epochs = 80;
    config.train.learning_rate = 1e-2;
    config.split.held_out = held_out;
    let options = RunOptions { device: "test".into(), resume: None, pipeline: None, progress: Mode::Quiet };
    let outcome = train::run::<Flex>(RunConfig::Stage1(config), &options, &Default::default()).unwrap();
    outcome.stage1.unwrap()
}

#[test]
fn edges_of_pure_chance_cannot_be_found_though_those_trained_on_are_remembered() {
    // 8,000 held-out edges: an AUC of chance has a standard deviation of about 0.005.
    let outcome = stage1(&random_graph(3_000, 40_000, 1, 0.0, 5), 0.2);
    let (held_out, trained_on) = (outcome.held_out.unwrap(), outcome.trained_on.unwrap());
    assert!((held_out.edge_auc - 0.5).abs() < 0.03, "{held_out:?}");
    assert!(trained_on.edge_auc > 0.7, "{trained_on:?}");
    assert!(outcome.to_string().contains("edges held out of training against pairs that are no edges"), "{outcome}");
    assert!(outcome.to_string().contains("edges trained on against drawn pairs"), "{outcome}");
}

#[test]
fn edges_within_groups_are_found_and_nothing_is_said_where_nothing_is_held_out() {
    let graph = random_graph(1_000, 10_000, 10, 0.9, 6);
    let held_out = stage1(&graph, 0.1).held_out.unwrap();
    assert!(held_out.edge_auc > 0.8, "{held_out:?}");
    let outcome = stage1(&graph, 0.0);
    assert!(outcome.held_out.is_none() && outcome.trained_on.is_some());
    assert!(!outcome.to_string().contains("held out"), "{outcome}");
}

#[test]
fn a_resumed_stage_1_keeps_its_held_out_edges() {
    let sandbox = Sandbox::with_data();
    let keys = "hidden = 8\nout = 4\n[train]\nepochs = 3\nschedule = \"constant\"\ncheckpoint_every = 1";
    sandbox.write(
        "run.toml",
        format!(
            "task = \"stage1\"\n[data]\npath = \"data\"\n[model]\n{keys}\n[output]\ndir = \"runs\"\nplots = false\n"
        ),
    );
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let part = ["--set", "train.epochs=2", "--set", "output.dir=parts"];
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"].iter().chain(&part));
    let resume = |more: &[&'static str]| -> Vec<String> {
        let run = sandbox.only_run("parts");
        let fixed = ["--quiet", "train", "--resume", &run, "--device", "cpu", "--set", "train.epochs=3"];
        fixed.iter().chain(more).map(|s| s.to_string()).collect()
    };
    sandbox.refuses(resume(&["--set", "split.held_out=0.1"]), 2, &["split.held_out", "0.05"]);
    sandbox.refuses(resume(&["--set", "split.seed=7"]), 2, &["split.seed", "42"]);
    // Another seed of the run does not choose other edges.
    sandbox.succeeds(resume(&[]));
    let figures = |runs: &str| -> [Value; 2] {
        let run = sandbox.only_run(runs);
        let found: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
        [found["held_out"]["edge_auc"].clone(), found["trained_on"]["edge_auc"].clone()]
    };
    assert_eq!(figures("runs"), figures("parts"));
    assert!(figures("runs")[0].is_f64());
}

/// What the quickstart says of each seed: Stage 1's AUC on held-out edges and on those trained on, Stage 2's on test labels.
#[test]
fn the_quickstart_is_as_good_as_it_was_over_seeds() {
    let sandbox = Sandbox::new();
    let config = repository("configs/quickstart.toml");
    let mut figures = [0.0; 3];
    const SEEDS: [&str; 3] = ["1", "2", "3"];
    for seed in SEEDS {
        let (data, runs) = (format!("data.path=data{seed}"), format!("output.dir=runs{seed}"));
        let arguments = ["--quiet", "train", config.to_str().unwrap(), "--device", "cpu", "--set", &data];
        let seed_key = format!("seed={seed}");
        sandbox.succeeds(arguments.into_iter().chain(["--set", &runs, "--set", &seed_key]));
        let runs = std::fs::read_dir(sandbox.path(&format!("runs{seed}"))).unwrap();
        for run in runs.map(|entry| entry.unwrap().path()) {
            let found: Value = serde_json::from_slice(&std::fs::read(run.join("evaluation.json")).unwrap()).unwrap();
            let of = |value: &Value| value.as_f64().unwrap() / SEEDS.len() as f64;
            match run.ends_with("x") || run.to_str().unwrap().ends_with("stage1") {
                true => {
                    figures[0] += of(&found["held_out"]["edge_auc"]);
                    figures[1] += of(&found["trained_on"]["edge_auc"]);
                }
                false => figures[2] += of(&found["evaluation"]["test"]["overall"]["roc_auc"]),
            }
        }
    }
    eprintln!("{figures:?}");
}

/// A graph of four classes: features say little of a node's class, its neighbours' together much.
fn write_planted(path: &Path, with_edges: bool) {
    const NODES: usize = 1_200;
    const CLASSES: usize = 4;
    const WIDTH: usize = 24;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let labels: Vec<i64> = (0..NODES).map(|node| (node % CLASSES) as i64).collect();
    let mut features = Array2::<f32>::zeros((NODES, WIDTH));
    for node in 0..NODES {
        for _ in 0..4 {
            let own = rng.random_bool(0.3);
            let column =
                if own { 6 * labels[node] as usize + rng.random_range(0..6) } else { rng.random_range(0..WIDTH) };
            features[[node, column]] = 1.0;
        }
    }
    let mut edges = Vec::new();
    for node in 0..NODES * usize::from(with_edges) {
        for _ in 0..4 {
            let within = rng.random_bool(0.6);
            let other = rng.random_range(0..NODES / CLASSES) * CLASSES
                + if within { node % CLASSES } else { rng.random_range(0..CLASSES) };
            edges.extend([node as i64, other as i64]);
        }
    }
    let mut npz = NpzWriter::new_compressed(File::create(path).unwrap());
    npz.add_array::<_, ndarray::ArrayBase<_, Ix2>>("node_features", &features).unwrap();
    npz.add_array::<_, ndarray::ArrayBase<_, Ix1>>("node_labels", &Array1::from_vec(labels)).unwrap();
    let edges = Array2::from_shape_vec((edges.len() / 2, 2), edges).unwrap();
    npz.add_array::<_, ndarray::ArrayBase<_, Ix2>>("edges", &edges).unwrap();
    npz.finish().unwrap();
}

/// Mean test accuracy over seeds, by `graphsieve bench accuracy`.
fn accuracy(sandbox: &Sandbox, config: &Path, seeds: usize, more: &[&str]) -> f64 {
    let (config, seeds) = (config.to_str().unwrap().to_owned(), seeds.to_string());
    let fixed = ["--quiet", "bench", "accuracy", "--config", &config, "--seeds", &seeds, "--device", "cpu"];
    let said = sandbox.succeeds(fixed.iter().chain(&["--format", "json"]).chain(more));
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    report["test_accuracy"]["mean"].as_f64().unwrap()
}

#[test]
fn planted_classes_are_found_by_the_graph_and_not_by_features_alone() {
    let sandbox = Sandbox::new();
    write_planted(&sandbox.path("graph.npz"), true);
    write_planted(&sandbox.path("apart.npz"), false);
    for layer in ["gcn", "gat"] {
        let config = repository(&format!("configs/cora-{layer}.toml"));
        let keys = ["data.path=graph.npz", "split.use=random", "split.per_class=20", "train.epochs=100"];
        let keys: Vec<&str> = keys.iter().flat_map(|key| ["--set", *key]).collect();
        let with = accuracy(&sandbox, &config, 3, &keys);
        let without = accuracy(&sandbox, &config, 3, &[&keys[..], &["--set", "data.path=apart.npz"]].concat());
        eprintln!("{layer} {with} {without}");
    }
}
