//! Runs of node classification: their lists, their calibration and their report, on small planted partitions.

use std::fs::File;

use graphsieve::graph::{Adjacency, Classes, Dataset, Features, HeteroGraph, IdMaps, Labels, Masks, RelationSpec};
use ndarray::Array2;
use ndarray_npy::ReadNpyExt;
use serde_json::Value;

use crate::support::Sandbox;

const NODES: usize = 180;

/// Columns of features for each class.
const WIDTH: usize = 6;

/// A reproducible number below `bound` for the question `at`.
pub fn number(at: usize, bound: usize) -> usize {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) % bound as u64) as usize
}

/// The label of a node that has one: every tenth has none.
fn known(node: usize, classes: usize) -> Option<u32> {
    (node % 10 != 9).then_some((node % classes) as u32)
}

/// Papers `P000` to `P179` in groups that their features and most of their edges show.
fn planted(classes: usize) -> Dataset {
    let column = |node: usize, k: usize| match number(5 * node + k, 10) {
        0..4 => WIDTH * (node % classes) + number(7 * node + k, WIDTH),
        _ => number(11 * node + k, WIDTH * classes),
    };
    let mut features = vec![0f32; NODES * WIDTH * classes];
    (0..3 * NODES).for_each(|at| features[at / 3 * WIDTH * classes + column(at / 3, at % 3)] = 1.0);
    let edge = |at: usize| {
        let (node, group) = (at / 3, if number(13 * at, 10) < 8 { at / 3 % classes } else { number(17 * at, classes) });
        (node as u32, (classes * number(19 * at, NODES / classes) + group) as u32)
    };
    let edges: Vec<(u32, u32)> = (0..3 * NODES).map(edge).filter(|(a, b)| a != b).collect();
    let both: Vec<(u32, u32)> = edges.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
    let spec = RelationSpec::new("cites", 0, 0, Adjacency::from_edges(NODES, NODES, &both));
    let graph = HeteroGraph::new(vec![("paper".into(), NODES)], vec![spec]).unwrap();
    let ids = IdMaps(vec![(0..NODES).map(|node| format!("P{node:03}")).collect()]);
    Dataset::new(graph, Some(Features::from_f32(features, NODES, WIDTH * classes)), None, Some(ids))
}

/// Three classes; `validated` says which of them the validation part has nodes of.
pub fn three_classes(validated: &[u32]) -> Dataset {
    let of_node: Vec<Option<u32>> = (0..NODES).map(|node| known(node, 3)).collect();
    let part = |parts: &[usize]| {
        let labelled = (0..NODES as u32).filter(|&node| of_node[node as usize].is_some());
        labelled.filter(|&node| parts.contains(&number(23 * node as usize, 6))).collect::<Vec<_>>()
    };
    let mut validation = part(&[2, 3]);
    validation.retain(|&node| of_node[node as usize].is_some_and(|class| validated.contains(&class)));
    let masks = Masks { train: part(&[0, 1]), validation, test: part(&[4, 5]) };
    Dataset { classes: Some(Classes::new(of_node.clone()).with_masks(vec![masks])), ..planted(3) }
}

/// Trains on `dataset`, which is written as `data`, and gives the directory of the run.
fn trained(sandbox: &Sandbox, dataset: &Dataset, split: &str) -> String {
    dataset.write(&sandbox.path("data")).unwrap();
    let settings = "task = \"classify\"\n[data]\npath = \"data\"\n[model]\nhidden = 8\ndropout = 0.2\n[train]\n\
                    epochs = 40\nlearning_rate = 0.03\n[output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("run.toml", format!("{settings}[split]\n{split}\n"));
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    sandbox.only_run("runs")
}

fn probabilities(sandbox: &Sandbox, run: &str) -> Array2<f32> {
    Array2::read_npy(File::open(sandbox.path(&format!("{run}/probabilities.npy"))).unwrap()).unwrap()
}

/// The objects that `score --format json` prints.
fn listed(sandbox: &Sandbox, run: &str, more: &[&str]) -> Vec<Value> {
    let said = sandbox.succeeds([&["--quiet", "score", run, "--format", "json"], more].concat());
    serde_json::from_str(&said.stdout).unwrap()
}

/// The number of the node that a line of a list is about.
fn node_of(line: &Value) -> usize {
    line["id"].as_str().unwrap()[1..].parse().unwrap()
}

fn largest(row: ndarray::ArrayView1<f32>) -> usize {
    (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
}

#[test]
fn every_node_is_listed_with_its_predicted_and_its_known_class() {
    let sandbox = Sandbox::new();
    let run = trained(&sandbox, &three_classes(&[0, 1, 2]), "use = \"masks\"");
    let p = probabilities(&sandbox, &run);
    for class in [None, Some(0usize), Some(2)] {
        let text = class.map(|class| class.to_string());
        let arguments: Vec<&str> = text.iter().flat_map(|class| ["--class", class.as_str()]).collect();
        let lines = listed(&sandbox, &run, &arguments);
        assert_eq!(lines.len(), NODES);
        let mut before: Option<(f64, String)> = None;
        for (at, line) in lines.iter().enumerate() {
            let node = node_of(line);
            let predicted = largest(p.row(node));
            assert_eq!((&line["rank"], &line["class"]), (&(at + 1).into(), &predicted.into()), "{line}");
            let score = line["score"].as_f64().unwrap();
            assert_eq!(score as f32, p[[node, class.unwrap_or(predicted)]], "{line}");
            assert_eq!(line["label"].as_u64(), known(node, 3).map(u64::from), "the class, whichever is looked at");
            let part = ["training", "validation", "test"][number(23 * node, 6) / 2];
            assert_eq!(line["known"].as_str(), known(node, 3).map(|_| part), "{line}");
            let probability = line["probability"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&probability));
            let id = line["id"].as_str().unwrap().to_owned();
            if let Some((higher, earlier)) = &before {
                assert!(score < *higher || score == *higher && id > *earlier, "{line}");
            }
            before = Some((score, id));
        }
        assert_eq!(listed(&sandbox, &run, &[&arguments[..], &["--unlabelled"]].concat()).len(), NODES / 10);
        // Computed anew from the same data.
        let again = listed(&sandbox, &run, &[&arguments[..], &["--data", "data", "--device", "cpu"]].concat());
        assert_eq!(again, lines);
    }
}

#[test]
fn lists_of_classes_are_written_in_every_format_and_other_data_are_scored() {
    let sandbox = Sandbox::new();
    let run = trained(&sandbox, &three_classes(&[0, 1, 2]), "use = \"masks\"");
    let said = sandbox.succeeds(["score", &run, "--top", "2"]);
    assert!(said.stdout.starts_with("rank,type,id,class,score,probability,label,known\n1,paper,P"), "{}", said.stdout);
    assert!(said.stderr.contains("of 3 of 3 classes, each fitted against the rest"), "{}", said.stderr);
    let said = sandbox.succeeds(["score", &run, "--top", "2", "--class", "1"]);
    assert!(
        said.stderr.contains("Platt's sigmoid, fitted to") && said.stderr.contains("of class 1)"),
        "{}",
        said.stderr
    );
    let said = sandbox.succeeds(["score", &run, "--top", "2", "--class", "0", "--base-rate", "0.01"]);
    assert!(said.stderr.contains("of class 0), at a base rate of 1 %"), "{}", said.stderr);
    sandbox.refuses(["score", &run, "--base-rate", "0.01"], 2, &["--base-rate 0.01", "give --class C"]);
    for name in ["list.csv", "list.parquet", "list.json", "list.npy"] {
        sandbox.succeeds(["--quiet", "score", &run, "--out", name]);
    }
    assert!(sandbox.read("list.npy") == sandbox.read(&format!("{run}/probabilities.npy")));
    assert!(sandbox.read("list.parquet").starts_with(b"PAR1"));

    // Other data: probabilities of the same calibration, and no label that the run knew.
    let other = Dataset { classes: None, ..planted(3) };
    other.write(&sandbox.path("other")).unwrap();
    let lines = listed(&sandbox, &run, &["--data", "other", "--device", "cpu", "--class", "1"]);
    let own = listed(&sandbox, &run, &["--class", "1"]);
    for (line, own) in lines.iter().zip(&own) {
        assert!(line["label"].is_null() && line["known"].is_null(), "{line}");
        let same = ["id", "class", "score", "probability"].map(|key| line[key] == own[key]);
        assert_eq!(same, [true; 4], "the same graph and features: {line} {own}");
    }
    // A checkpoint alone has no calibration.
    let file = format!("{run}/checkpoint/best.bpk");
    let lines = listed(&sandbox, &file, &["--data", "data", "--device", "cpu"]);
    assert!(lines.len() == NODES && lines.iter().all(|line| line["probability"].is_null() && line["known"].is_null()));
}

#[test]
fn a_class_that_cannot_be_looked_at_and_a_run_that_is_not_finished_are_refused() {
    let sandbox = Sandbox::new();
    let run = trained(&sandbox, &three_classes(&[0, 1, 2]), "use = \"masks\"");
    let parts = ["--class 3", "a class of the model: 0, 1, 2"];
    sandbox.refuses(["score", &run, "--class", "3"], 2, &parts);
    sandbox.refuses(["score", &run, "--class", "3", "--data", "data", "--device", "cpu"], 2, &parts);
    sandbox.refuses(["report", &run, "--class", "3"], 2, &parts);
    sandbox.refuses(["score", &run, "--class", "x"], 2, &["--class"]);
    sandbox.refuses(["score", &run, "--class", "1", "--out", "p.npy"], 2, &["--class", "holds every class"]);
    sandbox.edit(&format!("{run}/calibration.json"), |bytes| *bytes = b"[null]".to_vec());
    sandbox.refuses(["score", &run], 1, &["calibration.json: length", "as model.json says"]);
    // A run of an earlier version says nothing of its files.
    std::fs::remove_file(sandbox.path(&format!("{run}/model.json"))).unwrap();
    sandbox.refuses(["score", &run], 1, &["calibration.json", "3 calibrations", "remove it"]);
    sandbox.edit(&format!("{run}/calibration.json"), |bytes| *bytes = b"[null,\n{}]".to_vec());
    sandbox.refuses(["score", &run], 1, &["calibration.json", "line 2"]);
    std::fs::remove_file(sandbox.path(&format!("{run}/calibration.json"))).unwrap();
    assert!(listed(&sandbox, &run, &[])[0]["probability"].is_f64(), "fitted anew");
    std::fs::remove_file(sandbox.path(&format!("{run}/probabilities.npy"))).unwrap();
    for command in ["score", "report"] {
        sandbox.refuses([command, &run], 2, &["probabilities.npy", "finished run", "--resume"]);
    }

    let detector = Sandbox::with_data();
    detector.write(
        "run.toml",
        "task = \"stage3\"\n[data]\npath = \"data\"\n[model]\ntrees = 5\n[output]\ndir = \"runs\"\nplots = false\n",
    );
    detector.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = detector.only_run("runs");
    let parts = ["--class 1", "a run of node classification"];
    detector.refuses(["score", &run, "--class", "1"], 2, &parts);
    detector.refuses(["score", &run, "--class", "1", "--data", "data", "--device", "cpu"], 2, &parts);
    detector.refuses(["report", &run, "--class", "1"], 2, &parts);
}

#[test]
fn a_class_without_validation_nodes_has_no_calibration_and_still_a_list_and_a_report() {
    let sandbox = Sandbox::new();
    let run = trained(&sandbox, &three_classes(&[0, 1]), "use = \"masks\"");
    let calibrations: Vec<Value> = serde_json::from_slice(&sandbox.read(&format!("{run}/calibration.json"))).unwrap();
    assert_eq!(calibrations.iter().map(Value::is_null).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(calibrations[0]["method"], "platt");
    for line in listed(&sandbox, &run, &[]) {
        assert_eq!(line["probability"].is_null(), line["class"] == 2, "{line}");
    }
    let said = sandbox.succeeds(["score", &run, "--class", "2", "--top", "1"]);
    assert!(said.stderr.contains("no probabilities"), "{}", said.stderr);
    sandbox.succeeds(["report", &run, "--class", "2"]);
    let page = String::from_utf8(sandbox.read(&format!("{run}/report.html"))).unwrap();
    assert!(page.contains("Class 2 against the rest") && !page.contains("id=\"calibration\""));
}

#[test]
fn of_two_classes_the_second_is_looked_at() {
    let sandbox = Sandbox::new();
    let entries: Vec<(u32, u8)> = (0..NODES).filter_map(|node| Some((node as u32, known(node, 2)? as u8))).collect();
    let dataset = Dataset { labels: Some(Labels { entries }), ..planted(2) };
    let run = trained(&sandbox, &dataset, "use = \"random\"");
    let p = probabilities(&sandbox, &run);
    let lines = listed(&sandbox, &run, &[]);
    assert_eq!(lines, listed(&sandbox, &run, &["--class", "1"]));
    for line in &lines {
        let node = node_of(line);
        assert_eq!(line["score"].as_f64().unwrap() as f32, p[[node, 1]]);
        assert_eq!(line["class"], u32::from(p[[node, 1]] > p[[node, 0]]));
        assert_eq!(line["label"].as_u64(), known(node, 2).map(u64::from));
    }
    let labelled = lines.iter().filter(|line| line["known"].is_string()).count();
    assert_eq!(labelled, NODES - NODES / 10);
    let other = listed(&sandbox, &run, &["--class", "0"]);
    assert_eq!((&other[0]["class"], &other[0]["label"].is_number()), (&0.into(), &true));
    sandbox.succeeds(["report", &run]);
    let page = String::from_utf8(sandbox.read(&format!("{run}/report.html"))).unwrap();
    for part in ["Node classification, class 1", "Class 1 against the rest", "A node of class 1 has a higher"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("anomalous node") && !page.contains("normal node"));
}

#[test]
fn the_report_of_several_classes_has_their_figures_and_their_confusion() {
    let sandbox = Sandbox::new();
    let run = trained(&sandbox, &three_classes(&[0, 1, 2]), "use = \"masks\"");
    let said = sandbox.succeeds(["report", &run, "--top", "7"]);
    let file = format!("{run}/report.html");
    assert_eq!(said.stdout.trim(), file);
    let page = String::from_utf8(sandbox.read(&file)).unwrap();
    let found: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
    let accuracy = found["test"]["accuracy"].as_f64().unwrap();
    assert!(page.contains(&format!("The class of <strong>{:.1}\u{a0}%</strong> of nodes is right", 100.0 * accuracy)));
    assert!(page.contains(&format!("measured on {} test labels", found["test"]["nodes"])));
    let counts = &found["test"]["confusion"]["counts"];
    for (actual, predicted) in (0..3).flat_map(|actual| (0..3).map(move |predicted| (actual, predicted))) {
        let count = counts[actual][predicted].as_u64().unwrap();
        assert!(page.contains(&format!(">{count}</td>")), "{actual} as {predicted}: {count}");
    }
    for part in [
        "Figures by class",
        "Predicted classes by actual class",
        "Validation nodes by epoch",
        "probability of the class that the node classifier predicts",
        "share of nodes that are of the predicted class",
        "nodes without a label",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("anomalous node") && !page.contains("Not evaluated"));
    assert_eq!(page.matches("class=\"why\"").count(), 7);
    assert_eq!(page.matches("<tbody data-type").count(), 7);
    assert_eq!(page.matches("data-class=").count(), 7);
    sandbox.refuses(["report", &run], 1, &["report.html", "exists already", "--force"]);
    sandbox.succeeds(["report", &run, "--top", "7", "--force"]);
    assert!(sandbox.read(&file) == page.as_bytes(), "the same run makes the same bytes");
    sandbox.succeeds(["report", &run, "--class", "1", "--all", "--out", "one.html"]);
    let one = String::from_utf8(sandbox.read("one.html")).unwrap();
    for part in ["Class 1 against the rest", "of class 1", "Figures by class", "data-filter=\"label\"", "ROC-AUC"] {
        assert!(one.contains(part), "{part}");
    }
}

#[test]
fn a_classification_goes_on_with_the_weights_of_another() {
    let sandbox = Sandbox::new();
    let dataset = three_classes(&[0, 1, 2]);
    let run = trained(&sandbox, &dataset, "use = \"masks\"");
    let train = |runs: &str, more: &[&str]| {
        let output = format!("output.dir={runs}");
        let train = ["--quiet", "train", "run.toml", "--device", "cpu", "--from", &run, "--set", &output];
        sandbox.succeeds([&train, more].concat());
        sandbox.only_run(runs)
    };
    // A step of next to no length leaves the weights where they were.
    let same = train("same", &["--set", "train.learning_rate=1e-30"]);
    assert_eq!(probabilities(&sandbox, &same), probabilities(&sandbox, &run));
    let model: Value = serde_json::from_slice(&sandbox.read(&format!("{same}/model.json"))).unwrap();
    assert_eq!(model["from"], Value::from(run.clone()));
    let moved = train("moved", &["--set", "train.epochs=3"]);
    assert_ne!(probabilities(&sandbox, &moved), probabilities(&sandbox, &run));

    let refused = ["--quiet", "train", "run.toml", "--device", "cpu", "--from", &run, "--set"];
    sandbox.refuses([&refused[..], &["model.hidden=16"]].concat(), 2, &["model", "train with the [model] of that run"]);
    // Of another division it may know the labels that judge the new one, and so of other labels.
    let flatters = ["labels: expected none that choose or test the new model"];
    sandbox.refuses([&refused[..], &["split.use=random"]].concat(), 1, &flatters);
    let of_node = (0..NODES).map(|node| known(node, 3).map(|class| (class + 1) % 3)).collect();
    let masks = dataset.classes.as_ref().unwrap().masks().to_vec();
    let other = Dataset { classes: Some(Classes::new(of_node).with_masks(masks)), ..planted(3) };
    other.write(&sandbox.path("other")).unwrap();
    sandbox.refuses([&refused[..], &["data.path=other"]].concat(), 1, &flatters);
}
