//! Lists of scores in the terms of the data: `graphsieve score RUN`, for runs of all three stages.

use std::collections::HashMap;
use std::fs;

use graphsieve::graph::read_embeddings;
use graphsieve::score::{ScoredRun, Stage};
use serde_json::Value;

use crate::support::Sandbox;

const OUTPUT: &str = "[output]\ndir = \"runs\"\nplots = false\n";

/// Trains one task and gives the run's directory, as the program is told it.
fn trained(sandbox: &Sandbox, name: &str, settings: &str) -> String {
    sandbox.write("run.toml", format!("task = \"{name}\"\nname = \"{name}\"\n{OUTPUT}{settings}"));
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let names = fs::read_dir(sandbox.path("runs")).unwrap().map(|entry| entry.unwrap().file_name());
    let runs: Vec<String> =
        names.map(|found| found.into_string().unwrap()).filter(|found| found.ends_with(name)).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    format!("runs/{}", runs[0])
}

const STAGE1: &str = "[data]\npath = \"data\"\n[model]\nhidden = 8\nout = 4\n[train]\nepochs = 2\n";
const STAGE2: &str =
    "[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 3\n";
const STAGE3: &str = "[data]\npath = \"data\"\n[model]\ntrees = 10\n";

/// The objects that `score --format json` prints.
fn listed(sandbox: &Sandbox, run: &str, more: &[&str]) -> Vec<Value> {
    let said = sandbox.succeeds([&["--quiet", "score", run, "--format", "json"], more].concat());
    serde_json::from_str(&said.stdout).unwrap()
}

#[test]
fn runs_of_all_stages_list_every_node_by_its_original_id() {
    let sandbox = Sandbox::with_data();
    let ids: HashMap<String, HashMap<String, usize>> =
        serde_json::from_slice(&sandbox.read("data/node_id_mappings.json")).unwrap();
    for (name, settings) in [("stage1", STAGE1), ("stage2", STAGE2), ("stage3", STAGE3)] {
        let run = trained(&sandbox, name, settings);
        let nodes = listed(&sandbox, &run, &[]);
        assert_eq!(nodes.len(), 500, "{name}");
        let scored = {
            // Paths in a run's configuration are relative to where it was started.
            let config = String::from_utf8(sandbox.read(&format!("{run}/config.toml"))).unwrap();
            let here = format!("path = \"{}\"", sandbox.path("data").display());
            sandbox.write(&format!("{run}/config.toml"), config.replace("path = \"data\"", &here));
            ScoredRun::open(&sandbox.path(&run), None).unwrap()
        };
        let mut before: Option<(f64, String)> = None;
        for (at, node) in nodes.iter().enumerate() {
            let (kind, id) = (node["type"].as_str().unwrap(), node["id"].as_str().unwrap());
            let global = ids[&format!("{kind}_map")][id];
            assert_eq!(node["rank"], at + 1);
            let Some(score) = node["score"].as_f64() else {
                assert!(name == "stage1" && scored.scores[global].is_nan());
                continue;
            };
            assert_eq!(score as f32, scored.scores[global], "{name}: {node}");
            assert!((0.0..=1.0).contains(&score), "{name}: {node}");
            let probability = node["probability"].as_f64().unwrap();
            assert!((probability - scored.probability(global as u32).unwrap()).abs() < 1e-12);
            if let Some((higher, earlier)) = &before {
                assert!(score < *higher || score == *higher && *id > **earlier || score == *higher && id == earlier);
            }
            before = Some((score, id.to_owned()));
        }
        let labels = nodes.iter().filter(|node| !node["label"].is_null()).count();
        assert_eq!(labels, scored.dataset.labels.as_ref().unwrap().entries.len());
        let calibration = scored.calibration.unwrap();
        assert_eq!(calibration.method(), "Platt's sigmoid");
        // Stage 1 sees no labels and leaves no calibration behind.
        assert_eq!(sandbox.path(&format!("{run}/calibration.json")).exists(), scored.stage != Stage::Reconstruction);
    }
}

#[test]
fn the_score_of_stage_1_is_one_minus_the_geometric_mean_of_the_probabilities_of_a_nodes_edges() {
    let sandbox = Sandbox::with_data();
    let run = trained(&sandbox, "stage1", STAGE1);
    let dataset = graphsieve::graph::Dataset::open(&sandbox.path("data")).unwrap();
    let z = read_embeddings(sandbox.path(&format!("{run}/Z_embeddings_stage1.npy")), Some(500)).unwrap();
    let first = listed(&sandbox, &run, &["--top", "1"]).remove(0);
    let node = graphsieve::score::explain::node_of(
        &dataset,
        &format!("{}:{}", first["type"].as_str().unwrap(), first["id"].as_str().unwrap()),
    )
    .unwrap() as usize;
    let types = dataset.graph.node_types();
    let t = dataset.graph.type_of(node);
    let (mut logarithms, mut edges) = (0f64, 0);
    for relation in dataset.graph.relations().iter().filter(|relation| relation.dst == t) {
        for &source in relation.forward.row(node - types[t].offset) {
            let other = types[relation.src].offset + source as usize;
            let dot: f64 = z.row(node).iter().zip(z.row(other)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            logarithms += (1.0 / (1.0 + (-dot).exp())).ln();
            edges += 1;
        }
    }
    let expected = 1.0 - (logarithms / f64::from(edges)).exp();
    assert!((first["score"].as_f64().unwrap() - expected).abs() < 1e-5, "{first} instead of {expected}");
}

#[test]
fn a_list_is_cut_filtered_and_written_in_every_format() {
    let sandbox = Sandbox::with_data();
    let run = trained(&sandbox, "stage2", STAGE2);
    let said = sandbox.succeeds(["score", &run, "--top", "3", "--node-type", "user"]);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!((lines[0], lines.len()), ("rank,type,id,score,probability,label,known", 4), "{}", said.stdout);
    assert!(lines[1..].iter().all(|line| line.contains(",user,U")), "{}", said.stdout);
    assert!(said.stderr.contains("Platt's sigmoid, fitted to"), "{}", said.stderr);

    for name in ["list.csv", "list.json", "list.parquet", "list.npy"] {
        sandbox.succeeds(["--quiet", "score", &run, "--out", name]);
        sandbox.refuses(["score", &run, "--out", name], 1, &[name, "exists already", "--force"]);
        let first = sandbox.read(name);
        sandbox.succeeds(["--quiet", "score", &run, "--out", name, "--force"]);
        assert!(sandbox.read(name) == first, "{name}: the same bytes again");
    }
    assert!(sandbox.read("list.npy") == sandbox.read(&format!("{run}/anomaly_scores_stage2.npy")));
    assert!(sandbox.read("list.parquet").starts_with(b"PAR1"));
    // Scored anew, which a list of the run's own scores does not need.
    sandbox.succeeds(["--quiet", "score", &run, "--data", "data", "--device", "cpu", "--out", "again.csv"]);
    assert!(sandbox.read("again.csv") == sandbox.read("list.csv"));
}

#[test]
fn a_list_of_unlabelled_nodes_holds_no_label_and_known_says_what_training_used() {
    let sandbox = Sandbox::with_data();
    let run = trained(&sandbox, "stage3", STAGE3);
    let all = listed(&sandbox, &run, &[]);
    let known = |node: &Value| node["known"].as_str().map(str::to_owned);
    assert!(all.iter().all(|node| node["label"].is_null() == known(node).is_none()));
    let count = |part: &str| all.iter().filter(|node| known(node).as_deref() == Some(part)).count();
    let labels = all.iter().filter(|node| !node["label"].is_null()).count();
    let [train, validation, test] = ["training", "validation", "test"].map(count);
    assert!(
        train + validation + test == labels && train > validation + test && test > 0,
        "{train} {validation} {test}"
    );
    let found: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
    let overall = &found["evaluation"]["test"]["overall"];
    assert_eq!(overall["positives"].as_u64().unwrap() + overall["negatives"].as_u64().unwrap(), test as u64);

    let unlabelled = listed(&sandbox, &run, &["--unlabelled"]);
    let without: Vec<&Value> = all.iter().filter(|node| node["label"].is_null()).collect();
    assert_eq!(unlabelled.len(), without.len());
    for (at, (node, other)) in unlabelled.iter().zip(without).enumerate() {
        assert_eq!(
            (&node["id"], &node["score"], node["rank"].as_u64()),
            (&other["id"], &other["score"], Some(at as u64 + 1))
        );
    }
    // Of other data the run knows no label, whatever the data say.
    sandbox.succeeds(["--quiet", "synth", "--scale", "0.1", "--seed", "7", "--out", "other"]);
    let other = listed(&sandbox, &run, &["--data", "other", "--device", "cpu"]);
    assert!(other.iter().all(|node| node["known"].is_null()) && other.iter().any(|node| !node["label"].is_null()));
}

#[test]
fn what_cannot_be_listed_is_refused() {
    let sandbox = Sandbox::with_data();
    let run = trained(&sandbox, "stage2", STAGE2);
    sandbox.refuses(["score", &run, "--node-type", "usr"], 2, &["user, product, seller", "did you mean user?"]);
    sandbox.refuses(["score", &run, "--format", "parquet"], 2, &["--out", "binary"]);
    sandbox.refuses(
        ["score", &run, "--format", "npy", "--out", "s.npy", "--top", "3"],
        2,
        &["--top", "one score per node"],
    );
    sandbox.refuses(["score", &run, "--out", "s.npy", "--unlabelled"], 2, &["--unlabelled", "one score per node"]);
    sandbox.refuses(["score", &run, "--out", "scores.xlsx"], 2, &["scores.xlsx", ".csv, .parquet, .json or .npy"]);
    let file = format!("{run}/checkpoint/best.bpk");
    sandbox.refuses(["score", &file, "--top", "3"], 2, &["--data", "a checkpoint file does not know them"]);
    fs::remove_file(sandbox.path(&format!("{run}/anomaly_scores_stage2.npy"))).unwrap();
    sandbox.refuses(["score", &run, "--top", "3"], 2, &["anomaly_scores_stage2.npy", "finished run", "--resume"]);
}
