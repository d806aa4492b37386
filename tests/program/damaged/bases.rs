//! What is there before the damage: made once, copied for every case.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::events::{BY_TIME, EVENTS, payments, tables};
use crate::support::{Sandbox, npy, repository};
use crate::trust::{self, IMPORT, STAGE1, STAGE2};

/// Inputs by their name.
pub(super) struct Bases(BTreeMap<&'static str, Sandbox>);

/// Settings of a short training.
const TASKS: [(&str, &str); 4] = [
    ("stage1", STAGE1),
    ("stage2", STAGE2),
    ("stage3", "[features]\nwavelets = false\n[model]\ntrees = 3\n"),
    ("classify", "[model]\nhidden = 4\n[split]\nuse = \"random\"\n[train]\nepochs = 1\n"),
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, to).unwrap()),
        }
    }
}

/// Trains on `data`, as TASK.toml says then, and calls the run TASK/run.
fn train(sandbox: &Sandbox, (task, settings): (&str, &str)) {
    let run = trust::train(sandbox, task, settings);
    fs::rename(sandbox.path(&run), sandbox.path(&format!("{task}/run"))).unwrap();
}

impl Bases {
    pub(super) fn new() -> Self {
        let empty = Sandbox::new();
        // A marketplace, and scores of its nodes.
        let market = Sandbox::with_data();
        market.write_scores("scores.npy", &[0.5; 500]);
        // A graph of four nodes, to be packed.
        let arrays = Sandbox::new();
        arrays.write("node_features.npy", npy("<f4", "(4, 1)", &[1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()));
        arrays.write("node_labels.npy", npy("<i8", "(4,)", &[0i64, 1, 0, 1].map(i64::to_le_bytes).concat()));
        arrays.write("edges.npy", npy("<i8", "(2, 2)", &[0i64, 1, 1, 2].map(i64::to_le_bytes).concat()));
        // A configuration of every task without a setting.
        let config = Sandbox::new();
        for task in ["stage1", "stage2", "stage3", "classify", "auto", "pipeline"] {
            let input = if task == "stage2" { "input = \"features\"\n" } else { "" };
            config.write(&format!("{task}.toml"), format!("task = \"{task}\"\n\n[data]\npath = \"data\"\n{input}"));
        }
        // Tables of nodes and edges with their description; the same with their data directory and a run of each task.
        let [plain, trained] = [Sandbox::new(), Sandbox::new()];
        [&plain, &trained].into_iter().for_each(trust::tables);
        trained.succeeds(IMPORT);
        TASKS.into_iter().for_each(|task| train(&trained, task));
        // The tables in Parquet.
        let parquet = Sandbox::new();
        let mut export = trained.command(["--quiet", "export", "tables", "data", "--format", "parquet", "--out"]);
        assert!(export.arg(parquet.path("")).output().unwrap().status.success());
        // Events; the same with a run that can be served.
        let [events, served] = [(); 2].map(|()| tables(&payments(150), &format!("{BY_TIME}{EVENTS}")));
        served.succeeds(IMPORT);
        train(&served, ("stage2", STAGE2));
        // A checkpoint of PyTorch with its graph.
        let golden = Sandbox::new();
        copy(&repository("tests/golden/stage2"), &golden.path("data"));
        // Reviews.
        let raw = Sandbox::new();
        raw.write("meta.json", "{\"asin\": \"P1\", \"title\": \"Red case\", \"brand\": \"Acme\"}\n");
        raw.write("reviews.json", "{\"reviewerID\": \"A\", \"asin\": \"P1\", \"overall\": 5}\n");
        let all = [
            ("empty", empty),
            ("market", market),
            ("arrays", arrays),
            ("config", config),
            ("tables", plain),
            ("trained", trained),
            ("parquet", parquet),
            ("events", events),
            ("served", served),
            ("golden", golden),
            ("raw", raw),
        ];
        Self(all.into())
    }

    pub(super) fn copy(&self, base: &str, sandbox: &Sandbox) {
        copy(&self.0[base].path(""), &sandbox.path(""));
    }
}
