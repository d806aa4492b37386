//! Node classification through the program, on small planted partitions that the tests write themselves; and
//! mini-batches of all neighbours, which are the whole graph, on every backend.

use std::fs::File;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve::config::{ClassifyConfig, Draw, EdgeReads, Jump, LayerKind, LoaderMode, Norm, TimeEncodingKind};
use graphsieve::data::class_split::ClassSplit;
use graphsieve::graph::{Adjacency, Ages, EdgeMatrix, Features, HeteroGraph, Relation, RelationSpec, Spill};
use graphsieve::infer::layerwise_classes::class_logits;
use graphsieve::infer::sampled_input::SampledInput;
use graphsieve::loader::{Batch, FeatureStore, Job, Loader, LoaderOptions};
use graphsieve::models::attention::Connections;
use graphsieve::models::device_graph::DeviceGraph;
use graphsieve::models::node_classifier::{AttentionShape, ClassifierSpec, NodeClassifier};
use graphsieve::models::node_input::NodeInput;
use graphsieve::models::parameters::{Parameters, to_host};
use graphsieve::train::runner::Runner;
use graphsieve::train::task::Task;
use graphsieve::train::tasks::class_loss::cross_entropy;
use graphsieve::train::tasks::classifier::Classifier;
use graphsieve_kernels::on_every_backend;
use graphsieve_kernels::testing::harness::{Requirement, Trial, hardware};
use graphsieve_kernels::{GraphBackend, RowIndex, gather_rows};
use ndarray::{Array1, Array2, Ix1, Ix2};
use ndarray_npy::{NpzWriter, ReadNpyExt, WritableElement};
use serde_json::Value;

use crate::gradients::{assert_same, gradients};
use crate::support::Sandbox;

pub fn trials() -> Vec<Trial> {
    use bodies::*;
    let mut trials = on_every_backend!(
        "classify";
        one_batch_of_all_neighbours_has_the_loss_and_gradients_of_the_whole_graph,
        class_logits_layer_by_layer_are_those_of_the_whole_graph,
        half_precision_is_close_to_single(half),
        sampled_neighbours_estimate_the_sum_over_all_of_them(hardware),
        draws_by_weight_estimate_weighted_sums_and_means_over_all_neighbours(hardware),
        a_batch_by_weight_of_all_neighbours_has_the_logits_of_the_whole_graph,
        an_edge_of_weight_two_is_that_edge_twice,
    );
    trials.extend(on_cpu!(
        "classify";
        groups_are_found_scored_and_evaluated,
        a_seed_decides_every_byte_and_a_resumed_run_is_as_if_it_had_never_stopped,
        patience_ends_a_training_and_the_best_epoch_is_kept,
        shuffled_training_labels_teach_nothing,
        a_random_split_replaces_masks,
        both_stages_train_on_a_file_with_two_classes,
        what_does_not_fit_is_refused_before_anything_is_made,
        several_types_and_relations_are_classified,
        a_run_in_mini_batches_finds_the_groups_is_scored_and_says_what_it_moved,
        one_mini_batch_of_all_neighbours_trains_as_the_whole_graph_does,
        a_resumed_run_in_mini_batches_goes_on_where_it_stopped,
        accuracy_over_seeds_is_measured,
    ));
    trials
}

/// Nodes of the small graphs.
const NODES: usize = 150;

/// A reproducible number below `bound` for the `at`-th question.
fn number(at: usize, bound: usize) -> usize {
    let mixed = (at as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) % bound as u64) as usize
}

/// A graph of `classes` groups: most edges stay within a group, and a few of 60 columns say which it is.
struct Planted {
    features: Array2<f32>,
    labels: Vec<i64>,
    edges: Array2<i64>,
    /// 0 training, 1 validation, 2 test.
    part: Vec<usize>,
}

impl Planted {
    fn new(classes: usize) -> Self {
        let labels: Vec<i64> = (0..NODES).map(|node| (node % classes) as i64).collect();
        let column = |node: usize, k: usize| match k < 2 {
            true => 10 * labels[node] as usize + number(7 * node + k, 10),
            false => number(91 * node + k, 60),
        };
        let mut features = Array2::zeros((NODES, 60));
        (0..NODES).for_each(|node| (0..4).for_each(|k| features[[node, column(node, k)]] = 1.0));
        let end = |edge: usize| {
            let node = edge % NODES;
            let other = match number(13 * edge, 10) < 9 {
                true => classes * number(17 * edge, NODES / classes) + node % classes,
                false => number(19 * edge, NODES),
            };
            [node as i64, other as i64]
        };
        let edges = Array2::from_shape_fn((4 * NODES, 2), |(edge, side)| end(edge)[side]);
        let part = (0..NODES).map(|node| [0, 1, 2, 2, 0, 1][number(23 * node, 6)]).collect();
        Self { features, labels, edges, part }
    }

    fn write(&self, sandbox: &Sandbox, name: &str, masks: bool) {
        let mut npz = NpzWriter::new_compressed(File::create(sandbox.path(name)).unwrap());
        npz.add_array::<_, ndarray::ArrayBase<_, Ix2>>("node_features", &self.features).unwrap();
        add(&mut npz, "node_labels", &self.labels);
        npz.add_array::<_, ndarray::ArrayBase<_, Ix2>>("edges", &self.edges).unwrap();
        for (part, name) in ["train_mask", "val_mask", "test_mask"].iter().enumerate().filter(|_| masks) {
            add(&mut npz, name, &self.part.iter().map(|&p| p == part).collect::<Vec<bool>>());
        }
        npz.finish().unwrap();
    }
}

fn add<T: WritableElement + Clone>(npz: &mut NpzWriter<File>, name: &str, values: &[T]) {
    npz.add_array::<_, ndarray::ArrayBase<_, Ix1>>(name, &Array1::from_vec(values.to_vec())).unwrap();
}

fn config(layer: &str) -> String {
    let attention = if layer == "gat" { "heads = 2\nattention_dropout = 0.3\n" } else { "" };
    format!(
        "task = \"classify\"\n[data]\npath = \"graph.npz\"\n[model]\nlayer = \"{layer}\"\nhidden = 8\n{attention}\
         dropout = 0.3\n[train]\nepochs = 60\nlearning_rate = 0.03\ncheckpoint_every = 7\n[output]\ndir = \"runs\"\n\
         plots = false\n"
    )
}

fn sandbox(layer: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    Planted::new(3).write(&sandbox, "graph.npz", true);
    sandbox.write("run.toml", config(layer));
    sandbox
}

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--quiet", "train", "run.toml", "--device", "cpu"], more].concat()
}

fn evaluation(sandbox: &Sandbox, run: &str) -> Value {
    serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap()
}

fn groups_are_found_scored_and_evaluated() {
    for layer in ["gcn", "gat", "sage", "h2gcn"] {
        let sandbox = sandbox(layer);
        let said = sandbox.succeeds(train(&[]));
        let run = sandbox.only_run("runs");
        let found = evaluation(&sandbox, &run);
        let accuracy = found["test"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.9, "{layer}: {accuracy}\n{}", said.stdout);
        assert!(said.stdout.contains(&format!("test accuracy {accuracy:.4}")), "{}", said.stdout);
        assert!(found["notes"].to_string().contains("lacked their mirror image"), "{found}");

        let path = |name: &str| sandbox.path(&format!("{run}/{name}"));
        let probabilities = Array2::<f32>::read_npy(File::open(path("probabilities.npy")).unwrap()).unwrap();
        let predictions = Array1::<i64>::read_npy(File::open(path("predictions.npy")).unwrap()).unwrap();
        assert_eq!((probabilities.dim(), predictions.len()), ((NODES, 3), NODES));
        for (row, class) in probabilities.rows().into_iter().zip(predictions) {
            assert!((row.sum() - 1.0).abs() < 1e-5);
            assert!(row.iter().all(|p| *p <= row[class as usize]));
        }
        let score = ["--quiet", "score", "--data", "graph.npz", "--device", "cpu"];
        sandbox.succeeds([&score[..], &[&run, "--out", "p.npy"]].concat());
        assert!(sandbox.read("p.npy") == sandbox.read(&format!("{run}/probabilities.npy")));
        let eval = ["eval", "--scores", "p.npy", "--data", "graph.npz", "--format", "json"];
        let of_run = sandbox.succeeds([&eval[..], &["--run", &run]].concat());
        let evaluated: Value = serde_json::from_str(&of_run.stdout).unwrap();
        assert_eq!((&evaluated["part"], &evaluated["accuracy"]), (&"test".into(), &found["test"]["accuracy"]));
        assert_eq!(evaluated["confusion"], found["test"]["confusion"]);
        sandbox.refuses(eval, 2, &["--run", "which nodes were held out"]);
        sandbox.refuses([&score[..], &[&run, "--out", "q.npy", "--input", "p.npy"]].concat(), 2, &["--input"]);
    }
}

fn a_seed_decides_every_byte_and_a_resumed_run_is_as_if_it_had_never_stopped() {
    for (layer, norm) in [("gcn", "none"), ("gat", "layer")] {
        let sandbox = sandbox(layer);
        sandbox.write("run.toml", config(layer).replace("[model]", &format!("[model]\nnorm = \"{norm}\"")));
        sandbox.succeeds(train(&["--set", "output.dir=whole", "--set", "train.epochs=20"]));
        sandbox.succeeds(train(&["--set", "output.dir=again", "--set", "train.epochs=20"]));
        sandbox.succeeds(train(&["--set", "output.dir=parts", "--set", "train.epochs=14"]));
        let [whole, again, parts] = ["whole", "again", "parts"].map(|runs| sandbox.only_run(runs));
        let resume = ["--quiet", "train", "--device", "cpu", "--resume", &parts];
        let other = [&resume[..], &["--set", "data.row_normalise=false"]].concat();
        sandbox.refuses(other, 2, &["data.row_normalise", "a resumed run keeps what it has begun with"]);
        sandbox.succeeds([&resume[..], &["--set", "train.epochs=20"]].concat());
        for file in ["metrics.jsonl", "probabilities.npy", "predictions.npy"] {
            let bytes = |run: &str| sandbox.read(&format!("{run}/{file}"));
            assert!(bytes(&whole) == bytes(&again) && bytes(&whole) == bytes(&parts), "{layer}: {file}");
        }
        sandbox.succeeds(train(&["--set", "output.dir=other", "--set", "train.epochs=20", "--set", "seed=1"]));
        let other = sandbox.only_run("other");
        assert!(sandbox.read(&format!("{whole}/metrics.jsonl")) != sandbox.read(&format!("{other}/metrics.jsonl")));
    }
}

fn patience_ends_a_training_and_the_best_epoch_is_kept() {
    let sandbox = sandbox("gcn");
    let early = ["--set", "train.patience=3", "--set", "train.best=loss", "--set", "train.learning_rate=0.5"];
    sandbox.succeeds(train(&early));
    let run = sandbox.only_run("runs");
    let found = evaluation(&sandbox, &run);
    let (best, epochs) = (found["best_epoch"].as_u64().unwrap(), found["epochs"].as_u64().unwrap());
    assert!(epochs < 60 && best == epochs - 3, "{best} of {epochs}");
    let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
    let losses: Vec<f64> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["validation_loss"].as_f64().unwrap())
        .collect();
    assert_eq!(losses.len() as u64, epochs);
    assert!(losses.iter().all(|loss| *loss >= losses[best as usize - 1]));
    // There is nothing left to train.
    let before = sandbox.read(&format!("{run}/probabilities.npy"));
    sandbox.succeeds(["--quiet", "train", "--device", "cpu", "--resume", &run]);
    assert_eq!(evaluation(&sandbox, &run)["epochs"], epochs);
    assert!(sandbox.read(&format!("{run}/probabilities.npy")) == before);
}

fn shuffled_training_labels_teach_nothing() {
    let sandbox = Sandbox::new();
    let mut planted = Planted::new(3);
    let fitted = |part: usize| part < 2;
    for node in (0..NODES).filter(|&node| fitted(planted.part[node])) {
        planted.labels[node] = number(31 * node, 3) as i64;
    }
    planted.write(&sandbox, "graph.npz", true);
    sandbox.write("run.toml", config("gcn"));
    sandbox.succeeds(train(&[]));
    let accuracy = evaluation(&sandbox, &sandbox.only_run("runs"))["test"]["accuracy"].as_f64().unwrap();
    assert!(accuracy < 0.6, "{accuracy} by labels that say nothing");
}

fn a_random_split_replaces_masks() {
    let sandbox = Sandbox::new();
    Planted::new(3).write(&sandbox, "graph.npz", false);
    sandbox.write("run.toml", config("gcn"));
    sandbox.refuses(train(&[]), 2, &["split.use = \"masks\"", "train_mask", "split.use = \"random\""]);
    let random = ["--set", "split.use=random", "--set", "output.dir"];
    let nodes = |more: &[&str], runs: &str| {
        let dir = format!("output.dir={runs}");
        sandbox.succeeds(train(&[&["--set", "split.use=random", "--set", &dir][..], more].concat()));
        let found = evaluation(&sandbox, &sandbox.only_run(runs));
        assert!(found["test"]["accuracy"].as_f64().unwrap() > 0.8, "{found}");
        ["train", "validation", "test"].map(|part| found[part]["nodes"].as_u64().unwrap())
    };
    assert_eq!(nodes(&[], "shares"), [90, 30, 30]);
    let per_class = ["--set", "split.per_class=10", "--set", "split.validation=0.2", "--set", "split.test=0.4"];
    assert_eq!(nodes(&per_class, "counts"), [30, 30, 60]);
    let refused = [&random[..2], &["--set", "split.per_class=50"]].concat();
    sandbox.refuses(train(&refused), 2, &["split.per_class = 50", "class 0 with 50 labelled nodes"]);
}

fn both_stages_train_on_a_file_with_two_classes() {
    let sandbox = Sandbox::new();
    Planted::new(2).write(&sandbox, "graph.npz", false);
    let stage = |stage: &str, more: &str| {
        format!(
            "task = \"{stage}\"\n[data]\npath = \"graph.npz\"\n{more}[model]\nhidden = 8\nout = 8\n[train]\nepochs = 30\n\
             learning_rate = 0.01\n[output]\ndir = \"{stage}\"\nplots = false\n"
        )
    };
    sandbox.write("run.toml", stage("stage1", ""));
    sandbox.succeeds(train(&[]));
    sandbox.write("run.toml", stage("stage2", "input = \"features\"\n"));
    let said = sandbox.succeeds(train(&[]));
    assert!(said.stdout.contains("ROC-AUC"), "{}", said.stdout);
    let first = sandbox.only_run("stage1");
    let embeddings = format!("data.embeddings={first}");
    sandbox.succeeds(train(&["--set", "data.input=embeddings", "--set", &embeddings, "--set", "output.dir=second"]));
    assert!(sandbox.succeeds(["info", "--data", "graph.npz"]).stdout.contains("2 classes"));

    Planted::new(3).write(&sandbox, "graph.npz", false);
    sandbox.refuses(train(&[]), 1, &["graph.npz: node_labels: expected the labels 0, 1", "classes 0 to 2", "classify"]);
}

fn what_does_not_fit_is_refused_before_anything_is_made() {
    let sandbox = sandbox("gat");
    for (setting, code, parts) in [
        ("model.layer=gcm", 2, &["model.layer", "\"gcn\" or \"gat\"", "did you mean"][..]),
        ("model.hidden=9", 2, &["multiple of model.heads"]),
        ("model.layer=gcn", 2, &["model.heads", "has no attention"]),
        ("model.dropout=1.0", 2, &["model.dropout", "[0, 1)"]),
        ("train.patiense=3", 2, &["train.patiense", "did you mean `train.patience`"]),
        ("split.train=0.5", 2, &["split.train", "takes the parts from the data"]),
        ("loader.fanouts=[3, 3]", 2, &["loader.fanouts", "loader.mode = \"full\" samples nothing"]),
        ("split.index=1", 2, &["below 1"]),
        ("data.path=none.npz", 1, &["none.npz: cannot open"]),
    ] {
        sandbox.refuses(train(&["--set", setting]), code, parts);
    }
    let whole = sandbox.read("graph.npz");
    sandbox.write("graph.npz", &whole[..whole.len() / 2]);
    sandbox.refuses(train(&[]), 1, &["graph.npz: archive: expected an .npz file"]);
}

fn several_types_and_relations_are_classified() {
    for layer in ["gcn", "gat", "sage", "difference"] {
        let sandbox = Sandbox::with_data();
        Planted::new(3).write(&sandbox, "graph.npz", true);
        sandbox.write("run.toml", config(layer).replace("graph.npz", "data").replace("dropout = 0.3", "dropout = 0.0"));
        let random = ["--set", "split.use=random", "--set", "data.row_normalise=false"];
        let trained = |runs: &str, more: &[&str]| {
            let dir = format!("output.dir={runs}");
            sandbox.succeeds(train(&[&random[..], &["--set", &dir], more].concat()));
            sandbox.only_run(runs)
        };
        let whole = trained("whole", &[]);
        // Half of the labels are anomalous.
        let accuracy = evaluation(&sandbox, &whole)["test"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.7, "{layer}: {accuracy}");
        let score = ["--quiet", "score", "--device", "cpu", "--format", "npy", "--data"];
        sandbox.succeeds([&score[..], &["data", &whole, "--out", "p.npy"]].concat());
        let file = format!("{whole}/probabilities.npy");
        assert!(sandbox.read("p.npy") == sandbox.read(&file), "{layer}");
        // One mini-batch of all neighbours is the whole graph.
        let all =
            ["--set", "loader.mode=sampled", "--set", "loader.fanouts=[0, 0]", "--set", "loader.batch_size=100000"];
        let parts = trained("parts", &all);
        assert_close(
            &probabilities(&sandbox, &format!("{parts}/probabilities.npy")),
            &probabilities(&sandbox, &file),
            2e-3,
        );
        let few = ["--set", "loader.mode=sampled", "--set", "loader.fanouts=[4, 3]", "--set", "loader.batch_size=64"];
        let sampled = evaluation(&sandbox, &trained("few", &few))["test"]["accuracy"].as_f64().unwrap();
        assert!(sampled > 0.7, "{layer}: {sampled}");
        let other = [&score[..], &["graph.npz", &whole, "--out", "q.npy"]].concat();
        sandbox.refuses(
            other,
            1,
            &["expected the 3 of the training", "`seller`", "node types and relations of the training"],
        );
    }
}

/// A configuration in mini-batches, which the small graph is made too large for.
fn sampled(layer: &str, dropout: &str) -> Sandbox {
    let sandbox = sandbox(layer);
    let whole = config(layer).replace("dropout = 0.3", dropout);
    sandbox.write("whole.toml", &whole);
    let loader = "[loader]\nmode = \"auto\"\nmemory = 1e-6\nfanouts = [4, 3]\nbatch_size = 16\nhot = 0.1\n";
    sandbox.write("run.toml", format!("{whole}{loader}"));
    sandbox
}

fn probabilities(sandbox: &Sandbox, file: &str) -> Vec<f32> {
    Array2::<f32>::read_npy(File::open(sandbox.path(file)).unwrap()).unwrap().into_iter().collect()
}

fn assert_close(got: &[f32], want: &[f32], within: f32) {
    assert!(got.len() == want.len() && want.iter().any(|p| (p - want[0]).abs() > 0.1));
    let off = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(off <= within, "off by {off}");
}

fn a_run_in_mini_batches_finds_the_groups_is_scored_and_says_what_it_moved() {
    for layer in ["gcn", "gat"] {
        let sandbox = sampled(layer, "dropout = 0.3");
        let said = sandbox.succeeds(["train", "run.toml", "--device", "cpu"]);
        for part in [
            "sampled mini-batches: at once it takes about",
            "loader.memory allows 1.0 kB",
            "features: gathered by the processor: kernels of this device do not read host memory",
            "neighbours: sampled by the processor",
            "mini-batches of",
        ] {
            assert!(said.stderr.contains(part) || said.stdout.contains(part), "{part}: {said:?}");
        }
        let run = sandbox.only_run("runs");
        let found = evaluation(&sandbox, &run);
        assert!(found["test"]["accuracy"].as_f64().unwrap() > 0.9, "{layer}: {found}");
        assert!(!found["notes"].to_string().contains("mini-batches"), "notes are of the data: {found}");
        // In mini-batches as the run, or at once from its checkpoint alone.
        let score = ["--quiet", "score", "--data", "graph.npz", "--device", "cpu"];
        sandbox.succeeds([&score[..], &[&run, "--out", "p.npy"]].concat());
        assert!(sandbox.read("p.npy") == sandbox.read(&format!("{run}/probabilities.npy")));
        let file = format!("{run}/checkpoint/best.bpk");
        sandbox.succeeds([&score[..], &[&file, "--out", "q.npy"]].concat());
        assert_close(&probabilities(&sandbox, "p.npy"), &probabilities(&sandbox, "q.npy"), 1e-5);
        let eval = ["eval", "--scores", "p.npy", "--data", "graph.npz", "--format", "json", "--run", &run];
        let evaluated: Value = serde_json::from_str(&sandbox.succeeds(eval).stdout).unwrap();
        assert_eq!(evaluated["accuracy"], found["test"]["accuracy"]);

        let zero_copy = train(&["--set", "loader.transfer=zero_copy", "--set", "output.dir=none"]);
        sandbox.refuses(zero_copy, 2, &["loader.transfer = \"zero_copy\"", "loader.transfer = \"gathered\""]);
        assert!(!sandbox.path("none").exists(), "what cannot be leaves no run");
    }
}

fn one_mini_batch_of_all_neighbours_trains_as_the_whole_graph_does() {
    for layer in ["gcn", "gat", "difference", "h2gcn"] {
        let sandbox = sampled(layer, "dropout = 0.0");
        let attention = ["--set", "model.attention_dropout=0"];
        let attention = if layer == "gat" { &attention[..] } else { &[] };
        let losses = |config: &'static str, more: &[&str]| -> Vec<[f64; 2]> {
            let dir = format!("output.dir={config}-runs");
            let fixed = ["--quiet", "train", config, "--device", "cpu", "--set", "train.epochs=25", "--set", &dir];
            sandbox.succeeds([&fixed[..], attention, more].concat());
            let run = sandbox.only_run(&format!("{config}-runs"));
            let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
            let of_line = |line: &str| {
                let line: Value = serde_json::from_str(line).unwrap();
                ["loss", "validation_loss"].map(|key| line[key].as_f64().unwrap())
            };
            lines.lines().map(of_line).collect()
        };
        let whole = losses("whole.toml", &[]);
        let batch = losses("run.toml", &["--set", "loader.fanouts=[0, 0]", "--set", "loader.batch_size=1000"]);
        assert_eq!((whole.len(), batch.len()), (25, 25));
        let close = |a: &[f64; 2], b: &[f64; 2]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3 * b);
        assert!(batch.iter().zip(&whole).all(|(a, b)| close(a, b)), "{layer}: {batch:?} {whole:?}");
        assert!(whole[24][0] < 0.5 * whole[0][0], "{whole:?}");
    }
}

fn a_resumed_run_in_mini_batches_goes_on_where_it_stopped() {
    // Without a window the rows of a batch stand where the batch alone puts them, and dropout goes by places.
    let fixed = ["--set", "loader.window=false"];
    for layer in ["gcn", "gat"] {
        let sandbox = sampled(layer, "dropout = 0.3");
        let run = |dir: &str, epochs: &str| {
            let (dir, epochs) = (format!("output.dir={dir}"), format!("train.epochs={epochs}"));
            sandbox.succeeds(train(&[&fixed[..], &["--set", &dir, "--set", &epochs]].concat()));
        };
        run("whole", "12");
        run("parts", "7");
        let [whole, parts] = ["whole", "parts"].map(|runs| sandbox.only_run(runs));
        let resume = ["--quiet", "train", "--device", "cpu", "--resume", &parts, "--set", "train.epochs=12"];
        sandbox.succeeds(resume);
        for file in ["metrics.jsonl", "probabilities.npy", "predictions.npy"] {
            let bytes = |run: &str| sandbox.read(&format!("{run}/{file}"));
            assert!(bytes(&whole) == bytes(&parts), "{layer}: {file}");
        }
    }
}

fn accuracy_over_seeds_is_measured() {
    let sandbox = sandbox("gcn");
    let bench = ["bench", "accuracy", "--config", "run.toml", "--device", "cpu", "--seeds", "3", "--format", "json"];
    let said = sandbox.succeeds(bench);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let seeds: Vec<_> = report["seeds"].as_array().unwrap().iter().map(|seed| seed["seed"].as_u64()).collect();
    assert_eq!(seeds, [Some(42), Some(43), Some(44)]);
    assert!(report["test_accuracy"]["mean"].as_f64().unwrap() > 0.9, "{report}");
    assert!(!sandbox.path("runs").exists());
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = evaluation(&sandbox, &sandbox.only_run("runs"));
    assert_eq!(run["test"]["accuracy"], report["seeds"][0]["test_accuracy"], "the same training");
    let table = sandbox.succeeds(["bench", "accuracy", "--config", "run.toml", "--device", "cpu", "--seeds", "1"]);
    assert!(table.stdout.contains("test accuracy 0.9") || table.stdout.contains("test accuracy 1.0"), "{table:?}");
    sandbox.refuses(["bench", "accuracy"], 2, &["--config"]);
    sandbox.refuses(["bench", "accuracy", "--config", "run.toml", "--seeds", "0"], 2, &["--seeds"]);
    sandbox.refuses(["bench", "kernels", "--config", "run.toml"], 2, &["unexpected argument '--config'"]);
}

pub mod bodies {
    use super::*;

    const COLUMNS: usize = 13;
    const CLASSES: usize = 4;

    /// A directed graph with self-loops, a hub, a node without in-edges and one without any.
    fn graph() -> HeteroGraph {
        let n = NODES as u32;
        let some = (0..900).map(|k| (number(3 * k, NODES - 2) as u32, number(5 * k + 1, NODES - 1) as u32));
        let hub = (1..n - 2).step_by(2).map(|node| (0, node));
        let loops = (0..n - 2).step_by(4).map(|node| (node, node));
        let edges: Vec<(u32, u32)> = some.chain(hub).chain(loops).collect();
        let adjacency = Adjacency::from_edges(NODES, NODES, &edges);
        let spec = RelationSpec::new("edge", 0, 0, adjacency);
        let graph = HeteroGraph::new(vec![("node".into(), NODES)], vec![spec]).unwrap();
        assert!(!graph.relations()[0].is_symmetric() && graph.relations()[0].loops.in_range > 20);
        with_weights(graph, &["edge"])
    }

    /// The same graph, the edges of some of whose relations weigh 0 to 3; all those into the sixth node weigh 0.
    fn with_weights(mut graph: HeteroGraph, relations: &[&str]) -> HeteroGraph {
        for name in relations {
            let of = graph.relations().iter().find(|of| of.name == *name).unwrap().forward.clone();
            let weight = |entry| if of.entries(5).contains(&entry) { 0 } else { number(11 * entry, 4) };
            let weights = (0..of.num_edges()).map(|entry| weight(entry) as f32).collect();
            graph.set_edge_weights(name, Arc::new(EdgeMatrix::new(weights, 1)));
        }
        graph
    }

    /// The same graph, in which every edge of a relation with weights is there as often as its weight says.
    fn repeated(graph: &HeteroGraph) -> HeteroGraph {
        let relation = |of: &Relation| {
            let (mut row_ptr, mut cols) = (vec![0u64], Vec::new());
            for row in 0..of.forward.num_rows() {
                for (entry, &col) in of.forward.entries(row).zip(of.forward.row(row)) {
                    let times = of.weights.as_ref().map_or(1, |weights| weights.row(entry)[0] as usize);
                    cols.extend(std::iter::repeat_n(col, times));
                }
                row_ptr.push(cols.len() as u64);
            }
            let adjacency = Adjacency::new(row_ptr, cols, of.forward.num_cols()).unwrap();
            let (name, stream) = (of.name.clone(), of.stream.clone());
            RelationSpec { name, src: of.src, dst: of.dst, stream, primary: of.primary, adjacency }
        };
        let types = graph.node_types().iter().map(|t| (t.name.clone(), t.count)).collect();
        HeteroGraph::new(types, graph.relations().iter().map(relation).collect()).unwrap()
    }

    /// That the device stores matrices in f16.
    pub fn half<B: GraphBackend>() -> Requirement {
        let probe = || match B::supports_dtype(&Default::default(), DType::F16) {
            true => Ok(()),
            false => Err("the device has no such type".into()),
        };
        Requirement { name: "storage in f16", demand: "GRAPHSIEVE_REQUIRE_F16", probe }
    }

    /// The same nodes as two types, with a relation, its reverse, and one among the first type with loops.
    fn typed_graph() -> HeteroGraph {
        let some = |count: usize, rows: usize, cols: usize| -> Vec<(u32, u32)> {
            (0..count).map(|k| (number(3 * k, rows - 2) as u32, number(5 * k + 1, cols - 1) as u32)).collect()
        };
        let [a, b] = [90, NODES - 90];
        let bought: Vec<(u32, u32)> = some(500, b, a).into_iter().chain((0..a as u32).map(|node| (0, node))).collect();
        let buys: Vec<(u32, u32)> = bought.iter().map(|&(dst, src)| (src, dst)).collect();
        let loops = (0..a as u32 / 2).map(|node| (node, node));
        let knows: Vec<(u32, u32)> = some(300, a, a).into_iter().chain(loops).collect();
        let relation = |name: &str, src: usize, dst: usize, edges: &[(u32, u32)]| {
            let adjacency = Adjacency::from_edges([a, b][dst], [a, b][src], edges);
            RelationSpec { name: name.into(), src, dst, stream: name.into(), primary: false, adjacency }
        };
        let relations =
            vec![relation("bought", 0, 1, &bought), relation("buys", 1, 0, &buys), relation("knows", 0, 0, &knows)];
        let graph = HeteroGraph::new(vec![("a".into(), a), ("b".into(), b)], relations).unwrap();
        with_weights(graph, &["bought", "knows"])
    }

    /// The same graph, whose edges of the first relation have two values each, and those of the last one ages.
    fn carrying(mut graph: HeteroGraph) -> HeteroGraph {
        let edges: Vec<(String, usize)> =
            graph.relations().iter().map(|of| (of.name.clone(), of.forward.num_edges())).collect();
        let matrix = |count: usize, width: usize| {
            let value = |at: usize| number(13 * at, 9) as f32 / 4.0;
            Arc::new(EdgeMatrix::new((0..count * width).map(value).collect(), width))
        };
        graph.set_edge_values(&edges[0].0, matrix(edges[0].1, 2));
        let (last, count) = &edges[edges.len() - 1];
        graph.set_ages(last, Ages::Edges(matrix(*count, 1)));
        graph
    }

    fn graph_of(spec: &ClassifierSpec) -> HeteroGraph {
        let [features, _] = features();
        let graph = if spec.is_typed() { typed_graph() } else { graph() };
        spec.reading(if spec.edges.is_empty() { graph } else { carrying(graph) }, &features)
    }

    /// The same values, as `.npz` files and as data directories hold them; a node without any.
    fn features() -> [Features; 2] {
        let value = |k: usize| if k / COLUMNS == 9 { 0.0 } else { number(7 * k, 41) as f32 / 8.0 - 2.5 };
        let values: Vec<f32> = (0..NODES * COLUMNS).map(value).collect();
        let halves = values.iter().map(|&v| half::f16::from_f32(v)).collect();
        [Features::from_f32(values, NODES, COLUMNS), Features::from_vec(halves, NODES, COLUMNS)]
    }

    fn specs() -> Vec<ClassifierSpec> {
        let gcn = |layers| ClassifierSpec {
            row_normalise: layers > 1,
            directed: true,
            ..ClassifierSpec::new(LayerKind::Gcn, [COLUMNS, 6, CLASSES], layers)
        };
        let typed = |spec: ClassifierSpec| spec.over(&typed_graph()).unwrap();
        let gat = |layers, heads, out_heads| {
            let attention = Some(AttentionShape { heads, out_heads, negative_slope: 0.2, dropout: 0.0 });
            ClassifierSpec { layer: LayerKind::Gat, attention, ..gcn(layers) }
        };
        let plain = vec![gcn(1), gcn(2), gcn(3), gat(1, 1, 1), gat(2, 3, 1), gat(3, 2, 2)];
        let weighted = |spec: ClassifierSpec| match spec.is_typed() {
            true => spec.with_weights_of(&typed_graph()),
            false => spec.with_weights_of(&graph()),
        };
        let own = |layer, layers, jump| {
            let connections = Connections { residual: layers > 2, jump, ..Connections::default() };
            let two_hops = (layer == LayerKind::H2gcn).then_some(7);
            ClassifierSpec { layer, connections, two_hops, ..gcn(layers) }
        };
        let [sage, apart, two] = [LayerKind::Sage, LayerKind::Difference, LayerKind::H2gcn];
        let beside = vec![
            own(sage, 1, Jump::None),
            own(sage, 3, Jump::Concat),
            own(apart, 3, Jump::None),
            own(two, 2, Jump::Concat),
            typed(own(sage, 2, Jump::Concat)),
            typed(own(apart, 2, Jump::None)),
        ];
        let weighted =
            vec![weighted(gcn(1)), weighted(gcn(2)), weighted(typed(gcn(2))), weighted(own(sage, 2, Jump::None))];
        let normalised = |spec: ClassifierSpec| {
            let connections = Connections { norm: Norm::Layer, ..spec.connections };
            ClassifierSpec { connections, row_normalise: false, ..spec }
        };
        let normalised =
            [gcn(2), gat(2, 3, 1), own(sage, 2, Jump::Concat), typed(own(apart, 2, Jump::None))].map(normalised);
        let reads = EdgeReads { values: true, time: TimeEncodingKind::Learned, frequencies: 2 };
        let carried = vec![
            gat(2, 3, 1).with_edges_of(reads, &carrying(graph())),
            typed(gat(2, 3, 2)).with_edges_of(reads, &carrying(typed_graph())),
        ];
        [plain, vec![typed(gcn(1)), typed(gcn(3))], weighted, beside, normalised.into(), carried].concat()
    }

    /// Every spec with features of both kinds; with one of them in turn on a device of kernels, which are compiled for
    /// minutes there.
    fn cases<B: GraphBackend>() -> Vec<(ClassifierSpec, Features)> {
        let with_features = |(at, spec): (usize, ClassifierSpec)| {
            let kinds = features().into_iter().enumerate().filter(move |(kind, _)| !B::SAMPLES || at % 2 == *kind);
            kinds.map(move |(_, features)| (spec.clone(), features))
        };
        specs().into_iter().enumerate().flat_map(with_features).collect()
    }

    fn model<B: GraphBackend>(spec: &ClassifierSpec, device: &B::Device) -> NodeClassifier<B> {
        NodeClassifier::new(spec, &mut Parameters::from_seed(5, device), device).unwrap()
    }

    fn full_logits<B: GraphBackend>(
        model: &NodeClassifier<B>,
        spec: &ClassifierSpec,
        features: &Features,
        device: &B::Device,
    ) -> Tensor<B, 2> {
        logits_on(&graph_of(spec), model, spec, features, device)
    }

    fn logits_on<B: GraphBackend>(
        graph: &HeteroGraph,
        model: &NodeClassifier<B>,
        spec: &ClassifierSpec,
        features: &Features,
        device: &B::Device,
    ) -> Tensor<B, 2> {
        let x = NodeInput::upload(graph.node_types(), features, spec.row_normalise, DType::F32, device).unwrap();
        model.forward(&DeviceGraph::upload(graph, device).unwrap(), &x, None)
    }

    pub fn an_edge_of_weight_two_is_that_edge_twice<B: GraphBackend>(device: &B::Device) {
        let [features, _] = features();
        for spec in specs().into_iter().filter(|spec| !spec.weighted.is_empty()) {
            let model = model::<Autodiff<B>>(&spec, device);
            let of = |graph: &HeteroGraph| {
                let logits = logits_on(graph, &model, &spec, &features, device);
                (to_host(logits.clone()), gradients::<B>(&model, logits.powi_scalar(2).mean()))
            };
            let whole = if spec.is_typed() { typed_graph() } else { graph() };
            let read = spec.reading(whole.clone(), &features);
            let [(got, gradient), (want, expected)] = [read.clone(), repeated(&whole)].map(|g| of(&g));
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
            assert!(got.iter().zip(&want).all(close), "{spec:?}");
            assert_same(&format!("{spec:?}"), &gradient, &expected, 1e-5);
            assert!(!got.iter().zip(&of(&read.with_weights_as_values(|_| false, None)).0).all(close));
        }
    }

    pub fn one_batch_of_all_neighbours_has_the_loss_and_gradients_of_the_whole_graph<B: GraphBackend>(
        device: &B::Device,
    ) {
        let train: Vec<(u32, u32)> = (0..NODES)
            .step_by(3)
            .map(|n| (n as u32, number(n, CLASSES) as u32))
            .chain([(NODES as u32 - 1, 1)])
            .collect();
        for (spec, features) in cases::<B>() {
            let model = model::<Autodiff<B>>(&spec, device);
            let logits = full_logits(&model, &spec, &features, device);
            let (nodes, classes): (Vec<u32>, Vec<i32>) = train.iter().map(|&(n, class)| (n, class as i32)).unzip();
            let rows = gather_rows(logits, &RowIndex::new(&nodes, NODES, device));
            let classes = Tensor::from_data(TensorData::new(classes, [nodes.len(), 1]), device);
            let want = cross_entropy(rows, classes);
            let (value, gradient) = (to_host(want.clone())[0], gradients::<B>(&model, want));

            let input = SampledInput::new(&spec, &graph_of(&spec), &features, DType::F32).unwrap();
            for (batch_size, window, fanout) in [(1 << 30, true, 0), (1 << 30, false, 1000), (20, true, 0)] {
                let mut config = ClassifyConfig::new(spec.layer, "unused");
                (config.model.layers, config.model.dropout) = (spec.layers, 0.0);
                config.loader.mode = LoaderMode::Sampled;
                config.loader.fanouts = vec![fanout; spec.layers];
                (config.loader.batch_size, config.loader.window) = (batch_size, window);
                config.train.epochs = 2;
                let store = FeatureStore::new(input.features().clone(), input.graph(), device).unwrap();
                let split = ClassSplit { train: train.clone(), validation: Vec::new(), test: Vec::new() };
                let task = Classifier::<B>::on_host(&config, spec.clone(), split, input.clone(), store);
                let mut sampled = task.runner(config.seed, 1).unwrap();
                for epoch in 1..=2 {
                    let mut loss = None;
                    loop {
                        let step = sampled.next(&task, &model, None).unwrap();
                        // Shares of an epoch are the epoch.
                        let part = step.losses.loss * step.share;
                        loss = Some(loss.map_or(part.clone(), |sum| sum + part));
                        if step.last {
                            break;
                        }
                    }
                    let loss = loss.unwrap();
                    let got = to_host(loss.clone())[0];
                    let name = format!("{spec:?}, {batch_size} seeds, epoch {epoch}");
                    assert!((got - value).abs() <= 4e-6 * value.abs(), "{name}: {got} for {value}");
                    assert_same(&name, &gradients::<B>(&model, loss), &gradient, 1e-6);
                }
                let Runner::Sampled(sampled) = sampled else { panic!("mini-batches were asked for") };
                assert_eq!(sampled.stats().batches, if batch_size == 20 { 6 } else { 2 });
            }
        }
    }

    pub fn half_precision_is_close_to_single<B: GraphBackend>(device: &B::Device) {
        for (spec, features) in cases::<B>() {
            let model = model::<B>(&spec, device);
            let want = to_host(full_logits(&model, &spec, &features, device));
            let graph = graph_of(&spec);
            let x = NodeInput::upload(graph.node_types(), &features, spec.row_normalise, DType::F16, device).unwrap();
            let logits = model.forward(&DeviceGraph::upload(&graph, device).unwrap(), &x, None);
            assert_eq!(logits.dtype(), DType::F16);
            let input = SampledInput::new(&spec, &graph, &features, DType::F16).unwrap();
            let by_layers =
                class_logits(&[(model.clone(), device.clone())], &spec, &input, None, &Spill::default()).unwrap();
            for got in [to_host(logits), by_layers] {
                // Eleven bits, over up to three layers of sums.
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-2 * b.abs().max(1.0);
                assert!(got.iter().zip(&want).all(close), "{spec:?}");
            }
        }
    }

    pub fn class_logits_layer_by_layer_are_those_of_the_whole_graph<B: GraphBackend>(device: &B::Device) {
        for (spec, features) in cases::<B>() {
            let model = model::<B>(&spec, device);
            let want = to_host(full_logits(&model, &spec, &features, device));
            let input = SampledInput::new(&spec, &graph_of(&spec), &features, DType::F32).unwrap();
            // In files they are the same.
            for (replicas, most) in [(1, None), (3, Some(1))] {
                let (on, spill) = (vec![(model.clone(), device.clone()); replicas], std::env::temp_dir());
                let got = class_logits(&on, &spec, &input, None, &Spill::new(most, spill)).unwrap();
                assert_eq!(got.len(), NODES * CLASSES);
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                assert!(got.iter().zip(&want).all(close), "{spec:?}, {replicas} replicas");
            }
        }
    }

    pub fn sampled_neighbours_estimate_the_sum_over_all_of_them<B: GraphBackend>(device: &B::Device) {
        let [features, _] = features();
        for spec in specs().iter().filter(|spec| spec.layers == 1 && spec.layer == LayerKind::Gcn && !spec.is_typed()) {
            estimates::<B>(spec, &features, Draw::Uniform, device);
        }
    }

    /// Specs of one layer, which is linear: convolution, and means over several types and beside the node itself.
    fn weighted_specs() -> Vec<ClassifierSpec> {
        let specs = specs().into_iter().filter(|spec| !spec.weighted.is_empty());
        let specs: Vec<ClassifierSpec> = specs.map(|spec| ClassifierSpec { layers: 1, ..spec }).collect();
        let kinds = specs.iter().map(|spec| (spec.layer, spec.is_typed())).collect::<Vec<_>>();
        let (gcn, sage) = (LayerKind::Gcn, LayerKind::Sage);
        assert!([(gcn, false), (gcn, true), (sage, false)].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
        specs
    }

    pub fn draws_by_weight_estimate_weighted_sums_and_means_over_all_neighbours<B: GraphBackend>(device: &B::Device) {
        let [features, _] = features();
        // The first two differ in what the host makes of the features alone.
        for spec in weighted_specs().into_iter().skip(usize::from(B::SAMPLES)) {
            estimates::<B>(&spec, &features, Draw::Weighted, device);
        }
    }

    pub fn a_batch_by_weight_of_all_neighbours_has_the_logits_of_the_whole_graph<B: GraphBackend>(device: &B::Device) {
        let [features, _] = features();
        for spec in weighted_specs() {
            let model = model::<B>(&spec, device);
            let want = to_host(full_logits(&model, &spec, &features, device));
            // Entries that weigh nothing are not taken: the rest is all that counts.
            let got = sampled_logits(&model, &spec, &features, (Draw::Weighted, 0), 1, device).remove(0);
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
            assert!(got.iter().zip(&want).all(close), "{spec:?}");
        }
    }

    /// The logits of all nodes in every one of some batches, with so many neighbours.
    fn sampled_logits<B: GraphBackend>(
        model: &NodeClassifier<B>,
        spec: &ClassifierSpec,
        features: &Features,
        (draw, fanout): (Draw, usize),
        batches: u64,
        device: &B::Device,
    ) -> Vec<Vec<f32>> {
        let input = SampledInput::new(spec, &graph_of(spec), features, DType::F32).unwrap();
        let store = FeatureStore::new(input.features().clone(), input.graph(), device).unwrap();
        let types = input.graph().node_types().iter();
        let seeds: Vec<Vec<u32>> = types.map(|t| (0..t.count as u32).collect()).collect();
        let jobs: Vec<Job> = (0..batches).map(|number| Job { number, seeds: seeds.clone(), payload: () }).collect();
        let fanouts = vec![fanout; spec.layers];
        let sampler = input.sampler(&fanouts, (draw, 0), 3).unwrap();
        let logits = |batch: graphsieve::Result<Batch<B>>| {
            let Batch { x, blocks, seed_rows, .. } = batch.unwrap();
            let (blocks, rows) = input.estimating((draw, &fanouts), blocks, input.read(x));
            let rows = to_host(model.forward_batch(&blocks, rows, None));
            let (mut of_nodes, mut first) = (Vec::new(), 0);
            for of_type in &seed_rows {
                let row = |&row: &u32| rows[(first + row as usize) * CLASSES..][..CLASSES].to_vec();
                of_nodes.extend(of_type.iter().flat_map(row));
                first += of_type.len();
            }
            of_nodes
        };
        Loader::new(jobs, sampler, store, LoaderOptions::default()).unwrap().map(logits).collect()
    }

    fn estimates<B: GraphBackend>(spec: &ClassifierSpec, features: &Features, draw: Draw, device: &B::Device) {
        const BATCHES: usize = 600;
        let model = model::<B>(spec, device);
        let want = to_host(full_logits(&model, spec, features, device));
        let (mut sums, mut squares) = (vec![0f64; want.len()], vec![0f64; want.len()]);
        for logits in sampled_logits(&model, spec, features, (draw, 2), BATCHES as u64, device) {
            assert_eq!(logits.len(), want.len());
            for (at, value) in logits.into_iter().map(f64::from).enumerate() {
                sums[at] += value;
                squares[at] += value * value;
            }
        }
        let mut varied = 0;
        for (at, want) in want.iter().enumerate() {
            let mean = sums[at] / BATCHES as f64;
            let error = ((squares[at] / BATCHES as f64 - mean * mean).max(0.0) / BATCHES as f64).sqrt();
            varied += usize::from(error > 1e-3);
            // Five standard errors of some hundred means.
            assert!((mean - f64::from(*want)).abs() < 5.0 * error + 1e-5, "{at}: {mean} +- {error} for {want}");
        }
        assert!(varied > NODES, "{varied} values depend on the sample");
    }
}
