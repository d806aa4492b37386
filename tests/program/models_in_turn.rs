//! Models one after the other: windows of a split by time, training that goes on with new labels, and models side by
//! side.

use std::fs;

use serde_json::Value;

use crate::events::DAY;
use crate::support::{Sandbox, repository};

const DESCRIPTION: &str = r#"
[[nodes]]
type = "payment"
file = "payments.csv"
id = "id"
time = "time"
amount = "amount"
alert = "card"
label = { column = "fraud", delay = "2d" }
features = { amount = "numeric" }
[[edges]]
name = "paid_with"
src = "card.card"
dst = "payment"
[[windows]]
spans = ["1d", "7d"]
[split]
by = "time"
train = "10d"
validation = "4d"
test = "4d"
windows = 3
"#;

/// 50 days, six payments on each of nine cards; a fraud costs more than the others.
fn imported() -> Sandbox {
    let sandbox = Sandbox::new();
    let mut table = String::from("id,time,card,amount,fraud\n");
    for at in 0..300i64 {
        let fraud = i64::from(at % 11 == 3);
        let time = at * DAY / 6 + at * 7919 % 3_000;
        let amount = 5 + at * 31 % 97 + fraud * 60;
        table += &format!("{at},{time},c{},{amount},{fraud}\n", at * 13 % 9);
    }
    sandbox.write("payments.csv", table);
    sandbox.write("graph.toml", DESCRIPTION);
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "data"]);
    sandbox
}

fn json(sandbox: &Sandbox, file: &str) -> Value {
    serde_json::from_slice(&sandbox.read(file)).unwrap()
}

/// Times of the windows of the stored split.
fn windows(sandbox: &Sandbox) -> Vec<Value> {
    json(sandbox, "data/split.json")["windows"].as_array().unwrap().clone()
}

const STAGE2: &str = "task = \"stage2\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 8\nout = 8\npieces = 3\n\
                      [train]\nepochs = 4\ncheckpoint_every = 2\n[output]\nplots = false\n";

/// Trains Stage 2 in a directory of its own and returns the run.
fn stage2(sandbox: &Sandbox, runs: &str, settings: &[&str]) -> String {
    let output = format!("output.dir={runs}");
    let sets = settings.iter().copied().chain(["--set", &output]);
    sandbox.succeeds(["--quiet", "train", "stage2.toml", "--device", "cpu"].into_iter().chain(sets));
    sandbox.only_run(runs)
}

fn scores(sandbox: &Sandbox, run: &str) -> Vec<f32> {
    let bytes = sandbox.read(&format!("{run}/anomaly_scores_stage2.npy"));
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[header..].as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

#[test]
fn every_window_has_a_model_of_its_own_and_their_figures_stand_side_by_side() {
    let sandbox = imported();
    let config = repository("configs/payments.toml").display().to_string();
    let mut train: Vec<&str> = vec!["--quiet", "train", &config, "--device", "cpu", "--each-window"];
    let settings =
        ["data.path=data", "output.dir=runs", "output.plots=false", "model.trees=20", "model.min_data_in_leaf=2"];
    settings.iter().for_each(|set| train.extend(["--set", set]));
    let said = sandbox.succeeds(&train);
    let mut runs: Vec<String> = fs::read_dir(sandbox.path("runs"))
        .unwrap()
        .map(|entry| format!("runs/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    runs.sort_by_key(|run| run.split("-window-").nth(1).unwrap().to_owned());
    assert_eq!(runs.len(), 3, "{runs:?}");
    for (run, window) in runs.iter().zip(windows(&sandbox)) {
        let model = json(&sandbox, &format!("{run}/model.json"));
        assert_eq!((&model["times"], &model["refit"]), (&window, &true.into()), "{run}");
    }
    let table = sandbox.succeeds(["eval"].into_iter().chain(runs.iter().map(String::as_str))).stdout;
    assert!(said.stdout.ends_with(&table), "training ends with the table of eval:\n{}", said.stdout);
    let figures = |name: &str| -> Vec<f64> {
        let line = table.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {table}"));
        line.split_whitespace().rev().take(6).map(|figure| figure.parse().unwrap()).collect()
    };
    let all = [1, 2, 3].map(|window| figures(&format!("-window-{window} ")));
    for (at, mean) in figures("mean").into_iter().enumerate() {
        assert!((all.iter().map(|own| own[at]).sum::<f64>() / 3.0 - mean).abs() < 2e-4, "{table}");
    }
    // Every event of the test of a window is in the figures of that window, and in no other's.
    let said = sandbox.succeeds(["eval", &runs[0], &runs[1], &runs[2], "--format", "json"]);
    let stated: Value = serde_json::from_str(&said.stdout).unwrap();
    for (model, window) in stated["models"].as_array().unwrap().iter().zip(windows(&sandbox)) {
        assert_eq!(model["from_until"], window["test"]);
        let [from, to] = [0, 1].map(|at| window["test"][at].as_i64().unwrap());
        let within = (0..300i64).filter(|at| (from..to).contains(&(at * DAY / 6 + at * 7919 % 3_000))).count();
        let overall = &model["report"]["overall"];
        let labels = ["positives", "negatives"].map(|class| overall[class].as_u64().unwrap());
        assert_eq!(labels.iter().sum::<u64>(), within as u64);
    }
    // The report has them, too, with the window that it is about and what a day's alerts find.
    sandbox.succeeds(["--quiet", "report", &runs[1], "--beside", &runs[0], "--beside", &runs[2], "--no-explanations"]);
    let page = String::from_utf8(sandbox.read(&format!("{}/report.html", runs[1]))).unwrap();
    for run in &runs {
        assert!(page.contains(&format!("<th scope=\"row\">{}</th>", run.strip_prefix("runs/").unwrap())), "{run}");
    }
    assert!(page.contains("(window 2 of 3)") && page.contains("alerts a day are right"), "{page}");
    let set = ["--set", "data.path=data", "--set", "data.window=4", "--set", "output.dir=runs"];
    let refused = ["--quiet", "train", &config, "--device", "cpu"].into_iter().chain(set);
    sandbox.refuses(refused, 2, &["data.window = 4", "1 to 3"]);
}

#[test]
fn a_training_goes_on_from_a_model_that_knows_no_label_which_judges_the_new_one() {
    let sandbox = imported();
    sandbox.write("stage2.toml", STAGE2);
    let monday = stage2(&sandbox, "monday", &[]);
    // A step of next to no length leaves the weights where they were.
    let still = ["--from", &monday, "--set", "train.learning_rate=1e-30", "--set", "train.learning_rate_min=1e-30"];
    let same = stage2(&sandbox, "same", &still);
    assert_eq!(scores(&sandbox, &same), scores(&sandbox, &monday));
    assert_eq!(json(&sandbox, &format!("{same}/model.json"))["from"], Value::from(monday.clone()));
    // Without its last checkpoint a run begins again, with the weights that it began with; the other run may be gone.
    for file in fs::read_dir(sandbox.path(&format!("{same}/checkpoint"))).unwrap().map(|entry| entry.unwrap().path()) {
        if !file.file_name().unwrap().to_str().unwrap().starts_with("start") {
            fs::remove_file(file).unwrap();
        }
    }
    fs::rename(sandbox.path("monday"), sandbox.path("away")).unwrap();
    sandbox.succeeds(["--quiet", "train", "--resume", &same, "--device", "cpu"]);
    fs::rename(sandbox.path("away"), sandbox.path("monday")).unwrap();
    assert_eq!(scores(&sandbox, &same), scores(&sandbox, &monday));
    assert_eq!(json(&sandbox, &format!("{same}/model.json"))["from"], Value::from(monday.clone()));

    let tuesday = stage2(&sandbox, "tuesday", &["--from", &monday, "--set", "data.window=2"]);
    let from_none = stage2(&sandbox, "none", &["--set", "data.window=2"]);
    assert_ne!(scores(&sandbox, &tuesday), scores(&sandbox, &from_none));
    let train = |from: &str, more: &[&str]| -> Vec<String> {
        let first =
            ["--quiet", "train", "stage2.toml", "--device", "cpu", "--set", "output.dir=refused", "--from", from];
        first.iter().chain(more).map(|text| text.to_string()).collect()
    };
    sandbox.refuses(train(&tuesday, &[]), 1, &["labels", "knows all labels up to", "begins later"]);
    let wider = train(&monday, &["--set", "model.hidden=16"]);
    sandbox.refuses(wider, 2, &["model", "train with the [model] of that run"]);
    let trees = repository("configs/payments.toml").display().to_string();
    let trees = ["--quiet", "train", &trees, "--device", "cpu", "--set", "data.path=data", "--from", &monday];
    sandbox.refuses(trees, 2, &["--from", "stage 3", "grown anew"]);

    // Both on what came after both.
    let window = &windows(&sandbox)[1];
    let [from, to] = [0, 1].map(|at| window["test"][at].to_string());
    let both = ["eval", &monday, &tuesday, "--data", "data", "--device", "cpu", "--format", "json"];
    let said = sandbox.succeeds(both.into_iter().chain(["--since", &from, "--until", &to]));
    let stated: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(stated["same_labels"], true);
    let counted = |at: usize| stated["models"][at]["report"]["overall"]["negatives"].as_u64().unwrap();
    assert!(counted(0) > 10 && counted(0) == counted(1));
    let auc = |report: &Value| report["overall"]["roc_auc"].as_f64().unwrap();
    let own = json(&sandbox, &format!("{tuesday}/evaluation.json"));
    assert!((auc(&stated["models"][1]["report"]) - auc(&own["evaluation"]["test"])).abs() < 1e-6);
    let early = both.into_iter().chain(["--since", "1970-01-12"]);
    sandbox.refuses(early, 1, &["labels of events from", "that it knew", "flatter"]);
}

/// Later tables with the transforms of a run: their rows continue its training.
#[test]
fn a_training_goes_on_with_tables_that_were_imported_with_its_run() {
    let sandbox = imported();
    let all = String::from_utf8(sandbox.read("payments.csv")).unwrap();
    let earlier: Vec<&str> = all.lines().take(1 + 180).collect();
    sandbox.write("payments.csv", earlier.join("\n"));
    // Windows that are named: what suits the later tables would be others.
    let named = "[[windows]]\nlast = [1, 3]\none_hop = [\"7d\"]\n";
    sandbox.write("graph.toml", DESCRIPTION.replace("windows = 3\n", "").replace("[[windows]]\n", named));
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "earlier"]);
    sandbox.write("stage2.toml", STAGE2);
    let monday = stage2(&sandbox, "monday", &["--set", "data.path=earlier"]);
    sandbox.write("payments.csv", &all);
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--with", &monday, "--out", "later"]);

    // A step of next to no length: the same model says the same of the later tables.
    let later = ["--set", "data.path=later", "--from", &monday];
    let still = ["--set", "train.learning_rate=1e-30", "--set", "train.learning_rate_min=1e-30"];
    let same = stage2(&sandbox, "same", &[&later[..], &still].concat());
    assert_eq!(json(&sandbox, &format!("{same}/model.json"))["from"], Value::from(monday.clone()));
    let score = ["--quiet", "score", &monday, "--data", "later", "--device", "cpu", "--out", "scores.npy"];
    sandbox.succeeds(score);
    assert!(sandbox.read("scores.npy") == sandbox.read(&format!("{same}/anomaly_scores_stage2.npy")));
    let moved = stage2(&sandbox, "moved", &later);
    assert_ne!(scores(&sandbox, &moved), scores(&sandbox, &same));

    // Tables with transforms of their own have other features.
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "own"]);
    let own = ["--quiet", "train", "stage2.toml", "--device", "cpu", "--from", &monday, "--set", "data.path=own"];
    sandbox.refuses(own, 1, &["own/import.json: fitted: expected the scales", "--with monday/"]);
}

/// A pipeline of three stages on the marketplace `data`: its run and those of its stages.
fn pipeline(sandbox: &Sandbox, runs: &str, more: &[&str]) -> [String; 4] {
    let text = "task = \"pipeline\"\n[data]\npath = \"data\"\n[output]\nplots = false\ndir = \"RUNS\"\n[stage1]\n\
                train.epochs = 2\nmodel.hidden = 8\nmodel.out = 8\n[stage2]\ntrain.epochs = 2\nmodel.hidden = 8\n\
                model.out = 8\n[stage3]\nmodel.trees = 5\nfeatures.stage2_score = false\n";
    sandbox.write("pipeline.toml", text.replace("RUNS", runs));
    sandbox.succeeds(["--quiet", "train", "pipeline.toml", "--device", "cpu"].iter().chain(more));
    let stage = |name: &str| {
        let of = |file: fs::DirEntry| file.file_name().to_str().unwrap().to_owned();
        let mut all = fs::read_dir(sandbox.path(runs)).unwrap().map(|entry| of(entry.unwrap()));
        format!("{runs}/{}", all.find(|run| run.ends_with(name)).unwrap())
    };
    ["pipeline", "pipeline-stage1", "pipeline-stage2", "pipeline-stage3"].map(stage)
}

#[test]
fn a_pipeline_begins_with_the_weights_of_another_and_grows_its_trees_anew() {
    let sandbox = Sandbox::with_data();
    let first = pipeline(&sandbox, "first", &[]);
    for (runs, from) in [("second", &first[0]), ("third", &first[3])] {
        let next = pipeline(&sandbox, runs, &["--from", from]);
        for at in [1, 2] {
            assert_eq!(json(&sandbox, &format!("{}/model.json", next[at]))["from"], Value::from(first[at].clone()));
        }
        assert_eq!(json(&sandbox, &format!("{}/model.json", next[3])).get("from"), None);
    }
    let stage = ["--quiet", "train", "pipeline.toml", "--device", "cpu", "--from", &first[1]];
    sandbox.refuses(stage, 2, &["--from", "a pipeline begins with a pipeline, or with its last stage"]);
    // A stage begins with this stage of a pipeline.
    let settings = format!("input = \"embeddings\"\nembeddings = {:?}\n", first[1]);
    let alone = STAGE2.replace("input = \"features\"\n", &settings).replace("pieces = 3\n", "");
    sandbox.write("stage2.toml", alone);
    let run = stage2(&sandbox, "alone", &["--from", &first[0]]);
    assert_eq!(json(&sandbox, &format!("{run}/model.json"))["from"], Value::from(first[2].clone()));
}

#[test]
fn a_pipeline_is_a_model_wherever_one_is_asked_for() {
    let sandbox = Sandbox::with_data();
    let [run, stage1, stage2, last] = pipeline(&sandbox, "runs", &[]);
    let same = |command: &[&str], more: &[&str]| {
        let said = |run: &str| sandbox.succeeds([&["--quiet"], command, &[run], more].concat()).stdout;
        let of_pipeline = said(&run);
        assert!(!of_pipeline.is_empty() && of_pipeline == said(&last), "{command:?}");
    };
    same(&["score"], &["--top", "9"]);
    same(&["score"], &["--data", "data", "--device", "cpu"]);
    same(&["explain"], &["--node", "3", "--device", "cpu"]);
    same(&["eval"], &[]);
    sandbox.succeeds(["--quiet", "score", &run, "--out", "s.npy"]);
    same(&["eval", "--scores", "s.npy", "--data", "data", "--run"], &[]);
    let wrote = |command: &[&str], run: &str, file: &str| {
        sandbox.succeeds([&["--quiet"], command, &[run, "--out", file]].concat());
        sandbox.read(file)
    };
    let export = ["export", "lightgbm"];
    assert!(wrote(&export, &run, "a.txt") == wrote(&export, &last, "b.txt"));
    let embed = ["embed", "--device", "cpu", "--data", "data"];
    assert!(wrote(&embed, &run, "z.npy") == sandbox.read(&format!("{stage1}/Z_embeddings_stage1.npy")));
    sandbox.succeeds(["--quiet", "report", &run, "--no-explanations", "--device", "cpu"]);
    let page = String::from_utf8(sandbox.read(&format!("{run}/report.html"))).unwrap();
    assert!(page.contains("Stage 3: trees"));

    // Without what it refers to, it says what is missing.
    let refused = |code: i32, parts: &[&str]| {
        for command in [&["score", &run][..], &["report", &run, "--out", "r.html"], &["eval", &run]] {
            sandbox.refuses(command, code, parts);
        }
    };
    fs::rename(sandbox.path(&last), sandbox.path("away")).unwrap();
    refused(1, &["the run of the stage3 of", "beside it", "move a pipeline with the runs of its stages"]);
    fs::rename(sandbox.path("away"), sandbox.path(&last)).unwrap();
    sandbox.edit(&format!("{last}/model.json"), |bytes| {
        *bytes = String::from_utf8_lossy(bytes).replacen("\"finished\": true", "\"finished\": false", 1).into_bytes();
    });
    let resume = format!("train --resume {run}");
    refused(2, &["the end of its stage3", "ended within it", &resume]);
    let name = |run: &str| run.rsplit('/').next().unwrap().to_owned();
    let stages = serde_json::json!({ "stage1": name(&stage1), "stage2": name(&stage2) });
    sandbox.write(&format!("{run}/stages.json"), stages.to_string());
    refused(2, &["the end of its stage3", "ended before it", &resume]);
    sandbox.succeeds([&["--quiet"], &embed[..], &[&run, "--out", "again.npy"]].concat());
}

#[test]
fn classifiers_stand_side_by_side_by_accuracy_and_macro_f1() {
    let sandbox = imported();
    let settings = "task = \"classify\"\n[data]\npath = \"data\"\n[model]\nhidden = 8\n[train]\nepochs = 3\n[output]\n\
                    dir = \"runs\"\nplots = false\n";
    sandbox.write("classify.toml", settings);
    let train = ["--quiet", "train", "classify.toml", "--device", "cpu"];
    let said = sandbox.succeeds([&train[..], &["--each-window"]].concat());
    let mut runs: Vec<String> = fs::read_dir(sandbox.path("runs"))
        .unwrap()
        .map(|entry| format!("runs/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    runs.sort_by_key(|run| run.split("-window-").nth(1).unwrap().to_owned());
    let table = sandbox.succeeds(["eval", &runs[0], &runs[1], &runs[2]]).stdout;
    assert!(said.stdout.ends_with(&table), "training ends with the table of eval:\n{}", said.stdout);
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["model", "labels", "accuracy", "macro", "F1"]);
    let figures = |name: &str| -> [f64; 2] {
        let line = table.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {table}"));
        let last: Vec<f64> = line.split_whitespace().rev().take(2).map(|figure| figure.parse().unwrap()).collect();
        [last[1], last[0]]
    };
    let mut sums = [0.0; 2];
    for (run, window) in runs.iter().zip(1..) {
        let test = &json(&sandbox, &format!("{run}/evaluation.json"))["test"];
        for (at, key) in ["accuracy", "macro_f1"].into_iter().enumerate() {
            let shown = figures(&format!("-window-{window} "))[at];
            assert!((shown - test[key].as_f64().unwrap()).abs() < 1e-4, "{key}: {table}");
            sums[at] += shown;
        }
    }
    assert!(figures("mean").iter().zip(sums).all(|(mean, sum)| (mean - sum / 3.0).abs() < 2e-4), "{table}");

    // On the same labels: those of the last test, which no training saw.
    let window = &windows(&sandbox)[2];
    let [from, to] = [0, 1].map(|at| window["test"][at].to_string());
    let all = ["eval", &runs[0], &runs[1], &runs[2], "--data", "data", "--device", "cpu", "--format", "json"];
    let said = sandbox.succeeds([&all[..], &["--since", &from, "--until", &to]].concat());
    let stated: Value = serde_json::from_str(&said.stdout).unwrap();
    let own = json(&sandbox, &format!("{}/evaluation.json", runs[2]));
    let models = stated["models"].as_array().unwrap();
    assert!(models.iter().all(|model| model["report"]["nodes"] == own["test"]["nodes"]), "{stated}");
    assert_eq!(models[2]["report"]["confusion"], own["test"]["confusion"]);
    sandbox.refuses([&all[..], &["--since", "1970-01-12"]].concat(), 1, &["labels of events from", "flatter"]);

    sandbox.write("stage2.toml", STAGE2);
    let other = stage2(&sandbox, "other", &[]);
    sandbox.refuses(["eval", &runs[0], &other], 2, &["all score anomalies, or that all classify"]);
}
