//! Classes by layers that read known labels: they tell of other nodes, never of a node itself.

use std::path::PathBuf;

use graphsieve::config::{ClassifyConfig, LayerKind, RunConfig};
use graphsieve::graph::Dataset;
use ndarray::Array2;
use ndarray_npy::read_npy;
use serde_json::Value;
use tempfile::TempDir;

use crate::causal::run;
use crate::known_labels::{
    GROUP, Labelled, NODES, auroc, computed, dataset, flip, labels, of_part, part, with_other_labels,
};
use crate::support::Sandbox;

struct Trained {
    dir: TempDir,
    run: PathBuf,
}

impl Trained {
    fn scores(&self) -> Vec<f32> {
        let probabilities: Array2<f32> = read_npy(self.run.join("probabilities.npy")).unwrap();
        probabilities.column(1).to_vec()
    }
}

/// The last epoch is kept, whatever the validation labels say.
fn trained(data: &Dataset, layer: LayerKind) -> Trained {
    let dir = tempfile::tempdir().unwrap();
    data.write(&dir.path().join("data")).unwrap();
    let mut config = ClassifyConfig::new(layer, dir.path().join("data"));
    (config.data.row_normalise, config.model.hidden, config.model.dropout) = (false, 16, 0.0);
    (config.train.epochs, config.train.validate_every, config.train.learning_rate) = (150, 150, 0.02);
    (config.output.dir, config.output.plots) = (dir.path().join("runs"), false);
    Trained { run: run(RunConfig::Classify(config)), dir }
}

#[test]
fn neighbours_labels_tell_what_nothing_else_does() {
    let labels = labels(Labelled::ByGroup);
    let data = dataset(&labels, None);
    let [with, without] = [LayerKind::Pmp, LayerKind::Sage].map(|layer| trained(&data, layer).scores());
    for part in 0..3 {
        let [with, without] = [&with, &without].map(|scores| auroc(scores, &of_part(&labels, part)));
        assert!(with > 0.9 && without == 0.5, "part {part}: {with}, {without}");
    }
}

#[test]
fn labels_that_nothing_tells_are_not_learned() {
    let labels = labels(Labelled::ByChance);
    let trained = trained(&dataset(&labels, None), LayerKind::Pmp);
    let log = std::fs::read_to_string(trained.run.join("metrics.jsonl")).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert!(last["loss"].as_f64().unwrap() > 0.6, "{last}");
    for part in [0, 2] {
        let found = auroc(&trained.scores(), &of_part(&labels, part));
        assert!((0.25..0.75).contains(&found), "part {part}: {found}");
    }
}

#[test]
fn no_label_of_validation_or_test_is_read() {
    let labels = labels(Labelled::ByGroup);
    let others: Vec<(u32, u8)> =
        labels.iter().map(|&(node, label)| (node, if part(node) == 0 { label } else { 1 - label })).collect();
    let [own, other] = [&labels, &others].map(|labels| trained(&dataset(labels, None), LayerKind::Pmp));
    assert_eq!(own.scores(), other.scores());
    let known: Value = serde_json::from_slice(&std::fs::read(own.run.join("known_labels.json")).unwrap()).unwrap();
    assert_eq!(known["labels"].as_array().unwrap().len(), of_part(&labels, 0).len());
}

#[test]
fn at_fixed_weights_no_nodes_score_depends_on_its_own_label() {
    let labels = labels(Labelled::ByGroup);
    let trained = trained(&dataset(&labels, None), LayerKind::Pmp);
    let data = trained.dir.path().join("data");
    let own = computed(&trained.run, &data);
    assert_eq!(own, trained.scores());
    for at in [0, 7, 50, 119] {
        let node = of_part(&labels, 0)[at].0 as usize;
        let flipped = with_other_labels(&trained.run, &data, |row, label| {
            if row == at {
                flip(label);
            }
        });
        assert_eq!(own[node], flipped[node], "{node}");
        let group = node - node % GROUP as usize;
        assert!((group..group + GROUP as usize).any(|other| own[other] != flipped[other]), "{node}");
    }
}

#[test]
fn a_run_keeps_the_labels_that_it_reads_and_scores_and_reports_with_them() {
    let sandbox = Sandbox::new();
    dataset(&labels(Labelled::ByGroup), None).write(&sandbox.path("data")).unwrap();
    sandbox.write(
        "run.toml",
        "task = \"classify\"\n[data]\npath = \"data\"\n[model]\nlayer = \"pmp\"\nhidden = 8\n[train]\nepochs = 10\n\
         [output]\ndir = \"runs\"\nplots = false\n",
    );
    let train = ["--quiet", "train", "run.toml", "--device", "cpu"];
    sandbox.refuses(
        [&train[..], &["--set", "loader.mode=sampled"]].concat(),
        2,
        &["loader.mode", "\"full\"", "\"pmp\""],
    );
    sandbox.succeeds(train);
    let run = sandbox.only_run("runs");
    let score = ["--quiet", "score", &run, "--data", "data", "--device", "cpu", "--format", "npy", "--out", "p.npy"];
    sandbox.succeeds(score);
    assert!(sandbox.read("p.npy") == sandbox.read(&format!("{run}/probabilities.npy")));
    let stored: Array2<f32> = read_npy(sandbox.path("p.npy")).unwrap();
    assert_eq!(stored.dim(), (NODES as usize, 2));
    let half = ["--set", "train.precision=bf16", "--set", "output.dir=half"];
    sandbox.succeeds([&train[..], &half].concat());
    let half = sandbox.only_run("half");
    let score = ["--quiet", "score", &half, "--data", "data", "--device", "cpu", "--format", "npy", "--out", "h.npy"];
    sandbox.succeeds(score);
    assert!(sandbox.read("h.npy") == sandbox.read(&format!("{half}/probabilities.npy")));
    // Stopped in the middle and resumed, a run has drawn the same labels.
    sandbox.succeeds([&train[..], &["--set", "train.epochs=4", "--set", "output.dir=parts"]].concat());
    let parts = sandbox.only_run("parts");
    sandbox.succeeds(["--quiet", "train", "--device", "cpu", "--resume", &parts, "--set", "train.epochs=10"]);
    assert!(sandbox.read(&format!("{parts}/probabilities.npy")) == sandbox.read("p.npy"));
    let said = sandbox.succeeds(["report", &run, "--device", "cpu"]);
    assert!(said.stderr.contains("the report gives no reasons"), "{}", said.stderr);
    sandbox.refuses(["explain", &run, "--node", "a5", "--device", "cpu"], 2, &["model.layer = \"pmp\"", "\"sage\""]);
    // The checkpoint alone has no labels.
    let alone = format!("{run}/checkpoint/best.bpk");
    let bare = ["score", &alone, "--data", "data", "--device", "cpu", "--format", "npy", "--out", "q.npy"];
    sandbox.refuses(bare, 1, &["known labels", "the directory of a run"]);
}
