//! A run as a model: what it keeps, which data it is used on, and what it says of data that do not belong to it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Said, Sandbox, labels_npy};
use crate::walkthrough::draw;

const DESCRIPTION: &str = r#"[[nodes]]
type = "tx"
file = "TABLE"
label = "Fraud"
features = { Amount = "numeric", Fee = "numeric", Kind = { kind = "categorical", width = 4 }, Memo = { kind = "text", width = 8 } }
[[edges]]
name = "pays"
src = "account.Source"
dst = "tx"
[[shared]]
column = "Place"
"#;

fn table(rows: std::ops::Range<u64>, factor: u64) -> String {
    let mut table = String::from("Source,Amount,Fee,Kind,Memo,Place,Fraud\n");
    for at in rows {
        let fraud = u64::from(draw([at, 1], 4) == 0);
        let (source, place) = (draw([at, 2], 30 + 60 * (1 - fraud)), draw([at, 3], 20));
        let (amount, kind) = (factor * (1 + draw([at, 4], 900) + 500 * fraud), draw([at, 5], 3));
        let memo = ["rent", "gift card", "two books", "food and wine"][draw([at, 6], 4) as usize];
        writeln!(table, "S{source},{amount},{},K{kind},{memo},P{place},{fraud}", amount % 7).unwrap();
    }
    table
}

/// Imports rows with the transforms of `with`, if it is given.
fn import(sandbox: &Sandbox, name: &str, table: &str, with: Option<&str>) {
    sandbox.write(&format!("{name}.csv"), table);
    sandbox.write(&format!("{name}.toml"), DESCRIPTION.replace("TABLE", &format!("{name}.csv")));
    let description = format!("{name}.toml");
    let with = with.map_or(vec![], |with| vec!["--with", with]);
    sandbox.succeeds([&["--quiet", "import", "tables", &description, "--out", name], &with[..]].concat());
}

const STAGE2: &str = "input = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 3\ncheckpoint_every = 1\n";
const STAGE3: &str = "[model]\ntrees = 10\n";
const CLASSIFY: &str = "[split]\nuse = \"random\"\n[model]\nhidden = 8\n[train]\nepochs = 2\n";
const STAGE1: &str = "[model]\nhidden = 8\nout = 4\n[train]\nepochs = 2\n";

fn train(sandbox: &Sandbox, task: &str, settings: &str) -> String {
    let output = format!("[output]\ndir = \"runs-{task}\"\nplots = false\n");
    sandbox.write(&format!("{task}.toml"), format!("task = \"{task}\"\n{output}[data]\npath = \"monday\"\n{settings}"));
    sandbox.succeeds(["--quiet", "train", &format!("{task}.toml"), "--device", "cpu"]);
    sandbox.only_run(&format!("runs-{task}"))
}

/// A sandbox with an imported table and a run on it.
fn trained(task: &str, settings: &str) -> (Sandbox, String) {
    let sandbox = Sandbox::new();
    import(&sandbox, "monday", &table(0..300, 1), None);
    let run = train(&sandbox, task, settings);
    (sandbox, run)
}

fn scores<'a>(run: &'a str, data: &'a str) -> Vec<&'a str> {
    vec!["score", run, "--data", data, "--format", "json", "--device", "cpu"]
}

/// `id` to score of every node of a type.
fn listed(stdout: &str) -> std::collections::BTreeMap<String, f64> {
    let nodes: Vec<Value> = serde_json::from_str(stdout).unwrap();
    let of = |node: &Value| {
        let name = format!("{}:{}", node["type"].as_str().unwrap(), node["id"].as_str().unwrap());
        (name, node["score"].as_f64().unwrap())
    };
    nodes.iter().map(of).collect()
}

/// Copies the files of a directory.
fn copy(sandbox: &Sandbox, from: &str, to: &str) {
    fs::create_dir(sandbox.path(to)).unwrap();
    for entry in fs::read_dir(sandbox.path(from)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, sandbox.path(to).join(path.file_name().unwrap())).unwrap();
    }
}

impl Said {
    /// What the program says of data that are not those of the training, or not as they were.
    fn warnings(&self) -> Vec<&str> {
        let of_data = |line: &&str| ["since", "never saw", "moved"].iter().any(|word| line.contains(word));
        self.stderr.lines().filter(|line| line.starts_with("warning: ")).filter(of_data).collect()
    }
}

fn replace_text(sandbox: &Sandbox, file: &str, from: &str, to: &str) {
    let text = String::from_utf8(sandbox.read(file)).unwrap();
    assert!(text.contains(from), "{text}");
    sandbox.write(file, text.replacen(from, to, 1));
}

#[test]
fn another_table_is_imported_with_the_transforms_of_a_run_alone() {
    let (sandbox, run) = trained("stage2", STAGE2);
    let model: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/model.json"))).unwrap();
    assert_eq!((&model["task"], &model["finished"]), (&"stage2".into(), &true.into()));
    assert_eq!(model["schema"]["node_types"], serde_json::json!(["tx", "account", "place"]));
    assert_eq!(model["schema"]["features"]["names"][1], "tx.Amount");
    let files =
        ["checkpoint/best.bpk", "calibration.json", "evaluation.json", "import.json", "import.bin", "profile.json"];
    for file in files {
        assert_eq!(model["files"][file]["bytes"], fs::metadata(sandbox.path(&run).join(file)).unwrap().len(), "{file}");
    }
    // Nothing but the run is needed.
    fs::rename(sandbox.path("monday"), sandbox.path("gone")).unwrap();
    import(&sandbox, "again", &table(0..300, 1), Some(&run));
    assert!(sandbox.read("again/X_combined.memmap") == sandbox.read("gone/X_combined.memmap"));
    let said = sandbox.succeeds(scores(&run, "again"));
    assert_eq!(said.warnings(), [""; 0]);
    let own = sandbox.succeeds(scores(&run, "gone"));
    assert_eq!(listed(&said.stdout), listed(&own.stdout));

    import(&sandbox, "tuesday", &table(300..500, 1), Some(&run));
    sandbox.succeeds(scores(&run, "tuesday"));
    import(&sandbox, "alone", &table(300..500, 1), None);
    sandbox.refuses(
        scores(&run, "alone"),
        1,
        &["alone/import.json: fitted: expected the scales", "--with runs-stage2/"],
    );
}

#[test]
fn columns_types_and_relations_are_those_of_the_training_wherever_data_meet_a_model() {
    let sandbox = Sandbox::new();
    import(&sandbox, "monday", &table(0..300, 1), None);
    copy(&sandbox, "monday", "swapped");
    replace_text(&sandbox, "swapped/feature_names.json", "tx.Amount\"", "tx.X\"");
    replace_text(&sandbox, "swapped/feature_names.json", "tx.Fee\"", "tx.Amount\"");
    replace_text(&sandbox, "swapped/feature_names.json", "tx.X\"", "tx.Fee\"");
    copy(&sandbox, "monday", "renamed");
    replace_text(&sandbox, "renamed/feature_names.json", "tx.Amount\"", "tx.Sum\"");
    copy(&sandbox, "monday", "nameless");
    fs::remove_file(sandbox.path("nameless/feature_names.json")).unwrap();
    copy(&sandbox, "monday", "typed");
    replace_text(&sandbox, "typed/graph.toml", "\"place\"", "\"site\"");
    let swapped =
        ["swapped: feature columns, number 2: expected `tx.Amount`, as", "found `tx.Fee`: they are in another"];
    for (task, settings) in [("stage2", STAGE2), ("stage3", STAGE3), ("classify", CLASSIFY)] {
        let run = train(&sandbox, task, settings);
        sandbox.refuses(scores(&run, "swapped"), 1, &swapped);
        sandbox.refuses(["eval", &run, "--data", "swapped", "--device", "cpu"], 1, &swapped);
        let explain = ["explain", &run, "--data", "swapped", "--node", "tx:1", "--device", "cpu"];
        sandbox.refuses(explain, 1, &swapped);
        let renamed = ["feature columns: expected the ", "without `tx.Amount` and with `tx.Sum`"];
        sandbox.refuses(scores(&run, "renamed"), 1, &renamed);
        let said = sandbox.succeeds(scores(&run, "nameless"));
        assert!(said.stderr.contains("the data do not name their feature columns"), "{}", said.stderr);
        let said = sandbox.run(scores(&run, "typed"));
        said.is_refused(1, &["typed", "expected"]);
    }
    let run = train(&sandbox, "stage1", STAGE1);
    sandbox.refuses(["embed", &run, "--data", "swapped", "--out", "z.npy", "--device", "cpu"], 1, &swapped);
}

#[test]
fn a_model_whose_files_were_edited_or_cut_or_that_is_of_another_version_is_refused() {
    let (sandbox, run) = trained("stage3", STAGE3);
    let refused = |file: &str, change: &dyn Fn(&mut Vec<u8>), parts: &[&str]| {
        let file = format!("{run}/{file}");
        let whole = sandbox.read(&file);
        sandbox.edit(&file, change);
        sandbox.refuses(["score", &run, "--format", "json"], 1, parts);
        sandbox.refuses(scores(&run, "monday"), 1, parts);
        sandbox.refuses(["import", "tables", "monday.toml", "--with", &run, "--out", "x"], 1, parts);
        sandbox.refuses(["report", &run, "--device", "cpu"], 1, parts);
        sandbox.refuses(["eval", &run, "--data", "monday", "--device", "cpu"], 1, parts);
        sandbox.write(&file, whole);
    };
    let flip = |bytes: &mut Vec<u8>| {
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
    };
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    refused("checkpoint/best.trees", &flip, &["checkpoint/best.trees: SHA-256: expected"]);
    refused("checkpoint/best.trees", &cut, &["checkpoint/best.trees: length: expected"]);
    refused("calibration.json", &flip, &["calibration.json: SHA-256: expected"]);
    refused("import.bin", &flip, &["import.bin: SHA-256: expected"]);
    refused("import.json", &cut, &["import.json: length: expected"]);
    refused("model.json", &cut, &["model.json: line"]);
    // The threshold, with as many digits as before.
    let threshold = |bytes: &mut Vec<u8>| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let at = text.find("\"threshold\": 0.").unwrap() + "\"threshold\": 0.".len();
        bytes[at] = if bytes[at] == b'9' { b'1' } else { bytes[at] + 1 };
    };
    refused("evaluation.json", &threshold, &["evaluation.json: SHA-256: expected"]);
    let version = |bytes: &mut Vec<u8>| {
        *bytes = String::from_utf8_lossy(bytes).replacen("\"format\": 1", "\"format\": 7", 1).into_bytes();
    };
    refused("model.json", &version, &["model.json: format: expected version 1, found 7, of graphsieve"]);
    // It has no end.
    let elsewhere = |bytes: &mut Vec<u8>| {
        *bytes = String::from_utf8_lossy(bytes).replacen("\"calibration.json\"", "\"/dev/zero\"", 1).into_bytes();
    };
    refused("model.json", &elsewhere, &["model.json: files: expected paths within the run, found \"/dev/zero\""]);
    sandbox.succeeds(["--quiet", "score", &run]);
}

#[test]
fn a_run_and_its_data_may_be_moved() {
    for (task, settings) in [("stage2", STAGE2), ("stage3", STAGE3), ("stage1", STAGE1)] {
        let (sandbox, run) = trained(task, settings);
        let score = |run: &str| sandbox.succeeds(["--quiet", "score", run]).stdout;
        let before = score(&run);
        fs::rename(sandbox.path(&run), sandbox.path("model")).unwrap();
        assert_eq!(score("model"), before);
        sandbox.succeeds(["--quiet", "explain", "model", "--node", "tx:1", "--device", "cpu"]);
        sandbox.succeeds(["--quiet", "report", "model", "--device", "cpu", "--out", "r.html"]);

        fs::rename(sandbox.path("monday"), sandbox.path("moved")).unwrap();
        let gone = ["monday: path: expected the data that model was trained on, found nothing", "--data DIR"];
        for command in [&["score", "model"][..], &["report", "model"], &["explain", "model", "--node", "tx:1"]] {
            sandbox.refuses(command, 1, &gone);
        }
        sandbox.succeeds(["--quiet", "report", "model", "--data", "moved", "--device", "cpu", "--out", "s.html"]);
        if task != "stage1" {
            let said = sandbox.succeeds(["score", "model", "--data", "moved", "--device", "cpu"]);
            let known = |list: &str| list.lines().filter(|line| line.ends_with("validation")).count();
            assert!(known(&said.stdout) == known(&before) && known(&before) > 20, "the labels are the run's own");
        }
        import(&sandbox, "tuesday", &table(300..400, 1), Some("model"));
        let others = ["tuesday: data: expected those that model was trained on, found other graph"];
        sandbox.refuses(["report", "model", "--data", "tuesday", "--out", "t.html"], 1, &others);
    }
}

#[test]
fn data_that_changed_under_a_run_are_noticed() {
    let (sandbox, run) = trained("stage2", STAGE2);
    let labels = sandbox.read("monday/labels.npy");
    sandbox.write("monday/labels.npy", labels_npy(&(0..100).map(|node| (node, node % 2)).collect::<Vec<_>>()));
    let said = sandbox.succeeds(["score", &run]);
    assert!(said.stderr.contains("warning: monday: the labels changed since"), "{}", said.stderr);
    sandbox.write("monday/labels.npy", labels);
    sandbox.edit("monday/X_combined.memmap", |bytes| bytes[2] ^= 1);
    sandbox.refuses(["score", &run], 1, &["monday/X_combined.memmap: content: expected what was written"]);
    // Whoever made them anew has other digests, or none.
    fs::remove_file(sandbox.path("monday/SHA256SUMS")).unwrap();
    let said = sandbox.succeeds(["score", &run]);
    assert!(said.stderr.contains("warning: monday: the features changed since"), "{}", said.stderr);
    sandbox.succeeds(["--quiet", "report", &run, "--device", "cpu"]);
    let page = String::from_utf8(sandbox.read(&format!("{run}/report.html"))).unwrap();
    assert!(page.contains("The data changed since the training"));
    let resume = ["--quiet", "train", "--device", "cpu", "--resume", &run, "--set", "train.epochs=4"];
    sandbox.refuses(resume, 1, &["monday: data: expected those that", "found other features"]);
    sandbox.edit("monday/X_combined.memmap", |bytes| bytes[2] ^= 1);
    sandbox.succeeds(resume);
    let said = sandbox.succeeds(["score", &run]);
    assert_eq!(said.warnings(), [""; 0]);
}

#[test]
fn a_run_keeps_the_stage_1_model_whose_embeddings_it_reads() {
    let (sandbox, stage1) = trained("stage1", STAGE1);
    let settings = format!(
        "input = \"embeddings\"\nembeddings = \"{stage1}\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 2\n"
    );
    let run = train(&sandbox, "stage2", &settings);
    let kept = |file: &str| sandbox.read(&format!("{run}/stage1/{file}")) == sandbox.read(&format!("{stage1}/{file}"));
    assert!(["config.toml", "meta.json", "checkpoint/best.bpk"].iter().all(|file| kept(file)));
    sandbox.edit(&format!("{run}/stage1/checkpoint/best.bpk"), |bytes| bytes.truncate(100));
    sandbox.refuses(["score", &run], 1, &["stage1/checkpoint/best.bpk: length: expected"]);
}

#[test]
fn what_has_moved_since_the_training_is_said_and_nothing_of_the_same_data() {
    let (sandbox, run) = trained("stage3", STAGE3);
    let same = sandbox.succeeds(scores(&run, "monday"));
    assert_eq!(same.warnings(), [""; 0]);
    import(&sandbox, "alike", &table(1_000..1_300, 1), Some(&run));
    let alike = sandbox.succeeds(scores(&run, "alike"));
    assert_eq!(alike.warnings(), [""; 0]);
    let other = table(2_000..2_300, 40).replace(",K1,", ",NEW,");
    import(&sandbox, "other", &other, Some(&run));
    let said = sandbox.succeeds(scores(&run, "other"));
    for part in [
        "warning: `tx.Amount` of tx nodes has moved since the training: population stability index",
        "warning: scores of tx nodes have moved",
        "of the rows have a category of `tx.Kind` that the training never saw",
    ] {
        assert!(said.stderr.contains(part), "{}\nlacks {part}", said.stderr);
    }
    assert!(!said.stderr.contains("`tx.Fee`"), "{}", said.stderr);
}

#[test]
fn scores_of_stage_1_and_of_classes_that_have_moved_are_named() {
    for (task, settings) in [("stage1", STAGE1), ("classify", CLASSIFY)] {
        let (sandbox, run) = trained(task, settings);
        assert_eq!(sandbox.succeeds(scores(&run, "monday")).warnings(), [""; 0]);
        import(&sandbox, "other", &table(2_000..2_300, 40), Some(&run));
        let said = sandbox.succeeds(scores(&run, "other"));
        assert!(said.stderr.contains("warning: scores of tx nodes have moved"), "{task}: {}", said.stderr);
    }
}

#[test]
fn probabilities_follow_the_base_rate_and_the_order_stays() {
    for (task, settings) in [("stage3", STAGE3), ("classify", CLASSIFY)] {
        let (sandbox, run) = trained(task, settings);
        let list = |more: &[&str]| -> Vec<Value> {
            let said = sandbox.succeeds([&["--quiet", "score", &run, "--format", "json"], more].concat());
            serde_json::from_str(&said.stdout).unwrap()
        };
        let (plain, rare) = (list(&[]), list(&["--base-rate", "0.002"]));
        let calibration: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/calibration.json"))).unwrap();
        // Of two classes the second is looked at.
        let calibration = calibration.get(1).unwrap_or(&calibration);
        let share = calibration["anomalous"].as_f64().unwrap() / calibration["labels"].as_f64().unwrap();
        let odds = |p: f64| p / (1.0 - p);
        for (a, b) in plain.iter().zip(&rare) {
            assert_eq!((&a["id"], &a["score"]), (&b["id"], &b["score"]), "{task}");
            let [p, q] = [a, b].map(|node| odds(node["probability"].as_f64().unwrap()));
            assert!((q / p / (odds(0.002) / odds(share)) - 1.0).abs() < 1e-9, "{task}");
        }
        sandbox.refuses(["score", &run, "--base-rate", "1.5"], 2, &["--base-rate", "between 0 and 1"]);
        sandbox.refuses(["score", &run, "--since", "2026-11-17"], 2, &["--since", "data whose nodes have times"]);
        sandbox.refuses(["score", &run, "--since", "soon"], 2, &["--since", "2026-11-17T09:30:00"]);
        assert!(Path::new(&run).starts_with(format!("runs-{task}")));
    }
}
