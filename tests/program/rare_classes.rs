//! Node classification where one class in twelve is anomalous: what chooses the epoch, what labels count, and layers
//! that tell a node from its neighbours.

use graphsieve::graph::{Adjacency, Dataset, Features, HeteroGraph, Labels, RelationSpec, SplitRule, StoredSplit};
use serde_json::Value;

use crate::classes::{self, three_classes};
use crate::support::Sandbox;

const NODES: usize = 360;
const WIDTH: usize = 6;

/// A reproducible number in [-1, 1) for the question `at`.
fn number(at: usize) -> f32 {
    (classes::number(at, 2_000) as f32 - 1_000.0) / 1_000.0
}

fn is_anomalous(node: usize) -> bool {
    node % 12 == 5
}

/// Groups of 18 with columns of their own, whose nodes are joined; an anomaly has the columns of another group.
fn dataset() -> Dataset {
    let group = |node: usize| node / 18;
    let value = |at: usize| {
        let (node, column) = (at / WIDTH, at % WIDTH);
        let its = group(node) + if is_anomalous(node) { 7 } else { 0 };
        3.0 * number(31 * its + column) + 0.2 * number(7_919 + at)
    };
    let features = Features::from_f32((0..NODES * WIDTH).map(value).collect(), NODES, WIDTH);
    let edges = (0..NODES).flat_map(|node| {
        let own = move |k: usize| (node as u32, (18 * group(node) + (node + 1 + 4 * k) % 18) as u32);
        (0..4).map(own).filter(|(a, b)| a != b)
    });
    let edges: Vec<(u32, u32)> = edges.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    let adjacency = Adjacency::from_edges(NODES, NODES, &edges);
    let spec = RelationSpec::new("knows", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("user".into(), NODES)], vec![spec]).unwrap();
    let labels = Labels { entries: (0..NODES).map(|node| (node as u32, u8::from(is_anomalous(node)))).collect() };
    Dataset::new(graph, Some(features), Some(labels), None)
}

fn sandbox(model: &str, epochs: usize) -> Sandbox {
    let sandbox = Sandbox::new();
    dataset().write(&sandbox.path("data")).unwrap();
    sandbox.write(
        "run.toml",
        format!(
            "task = \"classify\"\n[data]\npath = \"data\"\nrow_normalise = false\n[model]\n{model}\ndropout = 0.1\n\
             [train]\nepochs = {epochs}\nlearning_rate = 0.01\nbest = \"average_precision\"\n[split]\nuse = \"labels\"\n\
             train = 0.4\nvalidation = 0.2\ntest = 0.4\n[output]\ndir = \"runs\"\n"
        ),
    );
    sandbox
}

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--quiet", "train", "run.toml", "--device", "cpu"], more].concat()
}

fn evaluation(sandbox: &Sandbox, run: &str) -> Value {
    serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap()
}

fn lines(sandbox: &Sandbox, run: &str) -> Vec<Value> {
    let text = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_epoch_of_the_highest_average_precision_is_kept_and_patience_counts_it() {
    let sandbox = sandbox("hidden = 8", 200);
    let said = sandbox.succeeds(train(&["--set", "train.patience=9"]));
    let run = sandbox.only_run("runs");
    let found = evaluation(&sandbox, &run);
    let figures: Vec<f64> = lines(&sandbox, &run)
        .iter()
        .map(|line| line["validation_average_precision"].as_f64().unwrap_or_else(|| panic!("{line}")))
        .collect();
    let best = found["best_epoch"].as_u64().unwrap() as usize;
    assert_eq!(figures.len(), found["epochs"].as_u64().unwrap() as usize);
    assert!(figures.len() < 200, "patience ended it: {figures:?}");
    let highest = figures.iter().copied().fold(0.0, f64::max);
    assert_eq!(figures[best - 1], highest, "{figures:?}");
    assert!(figures[best - 1] > figures[0], "something is learned: {figures:?}");
    let precision = found["test_average_precision"].as_f64().unwrap();
    assert!(said.stdout.contains(&format!("test average precision {precision:.4}, ROC-AUC ")), "{}", said.stdout);
    // The figure that chose the model is what is compared, and a better one has no warning.
    let compared = &found["baseline_validation"];
    assert_eq!(compared["model"].as_f64(), Some(highest));
    let is_better = highest > compared["value"].as_f64().unwrap();
    assert_eq!(said.stdout.contains("no better than a logistic regression"), !is_better, "{}", said.stdout);
    let drawn = String::from_utf8(sandbox.read(&format!("{run}/training.svg"))).unwrap();
    assert!(drawn.contains("validation average precision") && drawn.contains("validation accuracy"));
    // By accuracy there is no such figure.
    sandbox.succeeds(train(&["--set", "train.best=accuracy", "--set", "output.dir=other", "--set", "train.epochs=3"]));
    let other = sandbox.only_run("other");
    assert!(lines(&sandbox, &other).iter().all(|line| line.get("validation_average_precision").is_none()));
    assert!(evaluation(&sandbox, &other).get("test_average_precision").is_none());
}

#[test]
fn a_classifier_of_anomalies_that_does_not_beat_the_regression_says_so() {
    let sandbox = sandbox("hidden = 8", 2);
    // One column gives the label away, so that nothing is better than the regression.
    let column = (0..NODES).map(|node| f32::from(u8::from(is_anomalous(node)))).collect();
    let told = Dataset { features: Some(Features::from_f32(column, NODES, 1)), ..dataset() };
    told.write(&sandbox.path("told")).unwrap();
    three_classes(&[0, 1, 2]).write(&sandbox.path("several")).unwrap();
    let warning = "This model is no better than a logistic regression that sees no graph: ";
    let trained = |data: &str, more: &[&str]| {
        let [path, runs] = [format!("data.path={data}"), format!("output.dir=of-{data}")];
        let said = sandbox.succeeds(train(&[&["--set", &path, "--set", &runs], more].concat())).stdout;
        (sandbox.only_run(&format!("of-{data}")), said)
    };
    for (best, metric, title) in
        [("average_precision", "average_precision", "average precision"), ("accuracy", "auroc", "ROC-AUC")]
    {
        let (run, said) = trained("told", &["--set", &format!("train.best={best}")]);
        let compared = &evaluation(&sandbox, &run)["baseline_validation"];
        assert_eq!((&compared["metric"], &compared["value"]), (&metric.into(), &1.0.into()));
        let model = format!("{warning}{title} {:.4} on", compared["model"].as_f64().unwrap());
        assert!(said.contains("logistic regression on raw features: test ROC-AUC 1.0000"), "{said}");
        assert!(said.contains(&format!("warning: {model}")), "{said}");
        let said = sandbox.succeeds(["score", &run, "--top", "1"]).stderr;
        assert!(said.contains(&format!("warning: {model}")), "{said}");
        sandbox.succeeds(["--quiet", "report", &run, "--device", "cpu", "--no-explanations"]);
        let page = String::from_utf8(sandbox.read(&format!("{run}/report.html"))).unwrap();
        assert!(page.contains("No better than the baseline on the validation labels") && page.contains(&model));
        std::fs::remove_dir_all(sandbox.path("of-told")).unwrap();
    }
    // Of several classes there is no such comparison.
    let (run, said) = trained("several", &["--set", "train.best=accuracy", "--set", "split.use=random"]);
    assert!(evaluation(&sandbox, &run)["baseline_validation"].is_null() && !said.contains("regression"), "{said}");
    let said = sandbox.succeeds(["score", &run, "--top", "1"]).stderr;
    assert!(!said.contains(warning), "{said}");
}

#[test]
fn labels_that_count_the_same_together_find_more_anomalies() {
    let sandbox = sandbox("hidden = 8", 40);
    let found = |dir: &str, more: &[&str]| {
        let dir_ = format!("output.dir={dir}");
        // The last epoch alone is validated, and kept.
        sandbox.succeeds(train(&[&["--set", "train.validate_every=40", "--set", &dir_], more].concat()));
        let run = sandbox.only_run(dir);
        (evaluation(&sandbox, &run)["train"]["classes"][1]["predicted"].as_u64().unwrap(), lines(&sandbox, &run))
    };
    let (plain, lines) = found("plain", &[]);
    let (same, written) = found("same", &["--set", "loss.positive_weight=1", "--set", "loss.focal_gamma=0"]);
    assert_eq!((plain, &lines), (same, &written), "the defaults");
    let (balanced, _) = found("balanced", &["--set", "loss.positive_weight=0"]);
    assert!(balanced > plain, "{balanced} nodes are called anomalous, and {plain} where each counts one");
    let (_, focal) = found("focal", &["--set", "loss.focal_gamma=2"]);
    assert!(focal[0]["loss"].as_f64() < lines[0]["loss"].as_f64(), "the focal loss is the smaller one");
}

#[test]
fn settings_for_anomalies_are_refused_where_there_are_other_classes() {
    let sandbox = Sandbox::new();
    three_classes(&[0, 1, 2]).write(&sandbox.path("data")).unwrap();
    sandbox.write("run.toml", "task = \"classify\"\n[data]\npath = \"data\"\n[output]\ndir = \"runs\"\n");
    let two = ["expected two classes, 0 (normal) and 1 (anomalous), not 3"];
    let refused = |setting: &str, parts: &[&str]| {
        sandbox.refuses(train(&["--set", setting]), 2, &[&two[..], parts].concat());
    };
    refused("train.best=average_precision", &["train.best = \"average_precision\"", "\"accuracy\""]);
    refused("loss.positive_weight=0", &["[loss]", "loss.positive_weight"]);
    refused("loss.focal_gamma=1.5", &["[loss]", "loss.focal_gamma"]);
    refused("model.layer=ghrn", &["model.layer = \"ghrn\"", "\"bw\""]);
    assert!(!sandbox.path("runs").exists(), "nothing is made");
}

/// The data with a split of their own, and the labels of all but the training nodes turned round where that is asked.
fn divided(turned: bool) -> Dataset {
    let part = |node: usize| [0, 1, 0, 2, 0][node / 2 % 5];
    let label = |node: usize| u8::from(is_anomalous(node) != (turned && part(node) > 0));
    let of_part = |wanted: usize| (0..NODES).filter(move |&node| part(node) == wanted);
    let parts = [0, 1, 2].map(|wanted| of_part(wanted).map(|node| (node as u32, label(node))).collect::<Vec<_>>());
    let rule = SplitRule::Random { seed: 42, train: 0.6, validation: 0.2, test: 0.2 };
    let labels = Labels { entries: (0..NODES).map(|node| (node as u32, label(node))).collect() };
    let split = StoredSplit::of_parts(rule, NODES, [&parts[0], &parts[1], &parts[2]]);
    Dataset { labels: Some(labels), split: Some(split), ..dataset() }
}

/// Trains on the data for a few epochs, of which the last is kept whatever the validation labels say.
fn few_epochs(data: &Dataset, model: &str, more: &[&str]) -> (Sandbox, String, String) {
    let sandbox = Sandbox::new();
    data.write(&sandbox.path("data")).unwrap();
    let text = format!(
        "task = \"classify\"\n[data]\npath = \"data\"\n[model]\n{model}\n[train]\nepochs = 5\nvalidate_every = 5\n\
         [output]\ndir = \"runs\"\nplots = false\n"
    );
    sandbox.write("run.toml", text);
    let said = sandbox.succeeds([&["train", "run.toml", "--device", "cpu"], more].concat());
    let run = sandbox.only_run("runs");
    (sandbox, run, said.stderr)
}

#[test]
fn edges_are_cut_by_training_labels_alone() {
    let probabilities = |data: &Dataset, model: &str| {
        let (sandbox, run, said) = few_epochs(data, model, &[]);
        (sandbox.read(&format!("{run}/probabilities.npy")), said.replace(',', ""))
    };
    let ghrn = |cut: &str| format!("layer = \"ghrn\"\ncut = {cut}");
    let (cut, said) = probabilities(&divided(false), &ghrn("0.2"));
    // Both directions of an edge or none.
    let edges = dataset().graph.num_edges();
    assert!(said.contains(&format!("model.cut: {} of {edges} edges are cut", edges / 10 * 2)), "{said}");
    assert!(cut == probabilities(&divided(true), &ghrn("0.2")).0, "no label of validation or test is read");
    let (whole, said) = probabilities(&divided(false), &ghrn("0"));
    assert!(said.contains(&format!("model.cut: 0 of {edges} edges are cut")), "{said}");
    assert!(whole == probabilities(&divided(false), "layer = \"bw\"").0 && whole != cut);
}

/// Layers that tell a node from its neighbours, with the settings of a test.
const LAYERS: [(&str, &str); 5] = [
    ("sage", "layer = \"sage\"\nhidden = 16"),
    ("difference", "layer = \"difference\"\nhidden = 16"),
    ("h2gcn", "layer = \"h2gcn\"\nhidden = 16\ntwo_hops = 5"),
    ("bw", "layer = \"bw\"\nhidden = 16"),
    ("ghrn", "layer = \"ghrn\"\nhidden = 16\ncut = 0.02"),
];

#[test]
fn layers_that_tell_a_node_from_its_neighbours_find_those_of_another_group() {
    let precision = |model: &str| {
        let sandbox = sandbox(model, 80);
        sandbox.succeeds(train(&["--set", "loss.positive_weight=0", "--set", "output.plots=false"]));
        let run = sandbox.only_run("runs");
        let precision = evaluation(&sandbox, &run)["test_average_precision"].as_f64().unwrap();
        // The model alone says the same of the data as the run did.
        let score =
            ["--quiet", "score", &run, "--data", "data", "--device", "cpu", "--format", "npy", "--out", "p.npy"];
        sandbox.succeeds(score);
        assert!(sandbox.read("p.npy") == sandbox.read(&format!("{run}/probabilities.npy")), "{model}");
        precision
    };
    let smooth = precision("layer = \"gcn\"\nhidden = 16");
    for (layer, model) in LAYERS {
        let found = precision(model);
        assert!(found > smooth.max(0.3), "{layer}: {found}, graph convolution {smooth}");
    }
}

#[test]
fn scores_of_all_layers_are_explained() {
    for (layer, model) in LAYERS {
        let sandbox = sandbox(model, 5);
        sandbox.succeeds(train(&["--set", "output.plots=false"]));
        let run = sandbox.only_run("runs");
        let explain = ["--quiet", "explain", &run, "--node", "5", "--device", "cpu"];
        let said = sandbox.succeeds(explain).stdout;
        assert_eq!(said.contains("two edges away"), layer == "h2gcn", "{said}");
        assert!(said.contains("itself"), "{said}");
        sandbox.succeeds([&explain[..], &["--data", "data"]].concat());
        sandbox.succeeds(["--quiet", "report", &run, "--device", "cpu"]);
    }
}

#[test]
fn wavelets_take_no_mini_batches_and_layers_with_a_transform_of_the_node_do() {
    let sampled = ["--set", "loader.mode=sampled", "--set", "loader.batch_size=50", "--set", "output.plots=false"];
    for (layer, model) in LAYERS {
        let sandbox = sandbox(model, 30);
        if ["bw", "ghrn"].contains(&layer) {
            let full = format!("\"full\" with model.layer = \"{layer}\"");
            sandbox.refuses(train(&sampled), 2, &["loader.mode", &full, "\"sage\""]);
            continue;
        }
        sandbox.succeeds(train(&[&sampled[..], &["--set", "loader.fanouts=[3, 3]"]].concat()));
        let run = sandbox.only_run("runs");
        let lines = lines(&sandbox, &run);
        assert!(lines[29]["loss"].as_f64() < lines[0]["loss"].as_f64(), "{layer}: {lines:?}");
    }
}
