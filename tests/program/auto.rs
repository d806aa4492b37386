//! Tournaments through the program: a small marketplace, classes, shuffled labels, interruptions, and what is refused.

use std::fs;

use graphsieve::graph::{Dataset, Labels};
use serde_json::Value;

use crate::classes::three_classes;
use crate::restarts::{are_near, listed};
use crate::support::Sandbox;

pub fn config(candidates: &str, minutes: f64) -> String {
    format!(
        "task = \"auto\"\n[data]\npath = \"data\"\n[auto]\nminutes = {minutes}\ncandidates = {candidates}\n[output]\n\
         dir = \"runs\"\nplots = false\n"
    )
}

pub const TRAIN: [&str; 5] = ["train", "run.toml", "--device", "cpu", "--quiet"];

pub fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

/// What the run of a tournament says of it.
pub fn record(sandbox: &Sandbox, run: &str) -> Value {
    json(&sandbox.read(&format!("{run}/tournament.json")))
}

#[test]
fn a_tournament_ends_with_a_model_that_scores_explains_and_reports() {
    let sandbox = Sandbox::with_data();
    let best = "[\"forest-raw\", \"forest-means\", \"gcn\", \"stage2-labels\"]\nprefer = \"best\"";
    sandbox.write("run.toml", config(best, 0.2));
    let said = sandbox.succeeds(TRAIN.iter().filter(|argument| **argument != "--quiet"));
    let run = sandbox.only_run("runs");
    let found = record(&sandbox, &run);
    let candidates = found["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 4);
    for candidate in candidates {
        let name = candidate["name"].as_str().unwrap();
        let round = &candidate["rounds"][0];
        assert!(round["value"].as_f64().is_some_and(|value| value > 0.0 && value <= 1.0), "{candidate}");
        assert!(round["done"].as_u64() > Some(0) && said.stdout.contains(name) && said.stderr.contains(name));
    }
    assert_eq!((&found["complete"], &found["figure"]), (&true.into(), &"average_precision".into()));
    // The features say little, those of neighbours much.
    let model = found["model"]["name"].as_str().unwrap();
    assert_ne!(model, "forest-raw", "{found}");
    assert!(said.stdout.contains(&format!("model: {model}")), "{}", said.stdout);
    let all = candidates.iter().chain(found.pointer("/ensemble/entry"));
    let best = all.clone().map(|of| of["rounds"].as_array().unwrap().last().unwrap()["value"].as_f64().unwrap());
    let of_model = all.clone().find(|of| of["name"] == model).unwrap();
    let value = of_model["rounds"].as_array().unwrap().last().unwrap()["value"].as_f64().unwrap();
    assert_eq!(best.fold(0.0, f64::max), value);

    // The run of the tournament is the model, wherever it is.
    fs::rename(sandbox.path(&run), sandbox.path("moved")).unwrap();
    let own = format!("moved/{}", found["model"]["run"].as_str().unwrap());
    let score = |run: &str, more: &[&str]| {
        let fixed = ["--quiet", "score", run, "--device", "cpu"];
        sandbox.succeeds([&fixed, more].concat()).stdout
    };
    let listed = score("moved", &[]);
    assert_eq!(listed.lines().count(), 501, "all nodes and a header");
    assert_eq!(listed, score(&own, &[]));
    assert_eq!(listed, score("moved", &["--data", "data"]), "what the run left is what its model says");
    let why = json(
        sandbox
            .succeeds(["--quiet", "explain", "moved", "--node", "3", "--device", "cpu", "--format", "json"])
            .stdout
            .as_bytes(),
    );
    assert_eq!(why["node"], 3);
    sandbox.succeeds(["--quiet", "report", "moved", "--device", "cpu", "--no-explanations"]);
    let report = String::from_utf8(sandbox.read("moved/report.html")).unwrap();
    for part in ["How the model was chosen", "has the highest validation average precision", "stage2-labels"] {
        assert!(report.contains(part), "{part}");
    }
    sandbox.refuses(
        ["--quiet", "train", "run.toml", "--device", "cpu", "--from", "moved"],
        2,
        &["--from", "tournament"],
    );
    // What is finished is not trained again.
    sandbox.succeeds(["--quiet", "train", "--resume", "moved", "--device", "cpu"]);
    assert_eq!(record(&sandbox, "moved")["candidates"], found["candidates"]);
    assert_eq!(listed, score("moved", &[]));
}

#[test]
fn an_ensemble_is_a_model_that_scores_explains_evaluates_and_reports() {
    let sandbox = Sandbox::new();
    sandbox.succeeds(["--quiet", "synth", "--scale", "0.5", "--seed", "4", "--out", "data"]);
    // Neither finds all anomalies, so that the mean of both is better on validation.
    sandbox.write("run.toml", config(r#"["forest-raw", "booster-raw"]"#, 0.2));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    fs::rename(sandbox.path(&run), sandbox.path("moved")).unwrap();
    let found = record(&sandbox, "moved");
    let members: Vec<&str> =
        found["ensemble"]["members"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(members.len() == 2 && found["model"]["name"] == "ensemble", "it is the model unasked: {found}");
    let own = format!("moved/{}", found["model"]["run"].as_str().unwrap());
    let of_run = json(&sandbox.read(&format!("{own}/ensemble.json")));
    let score = |run: &str, more: &[&str]| {
        let fixed = ["--quiet", "score", run, "--device", "cpu", "--format", "json"];
        json(sandbox.succeeds([&fixed, more].concat()).stdout.as_bytes())
    };
    let scores = |run: &str, more: &[&str]| {
        let mut of_node = std::collections::BTreeMap::new();
        for node in score(run, more).as_array().unwrap() {
            let id = format!("{}:{}", node["type"], node["id"]);
            of_node.insert(id, (node["score"].as_f64().unwrap(), node["probability"].as_f64().unwrap()));
        }
        of_node
    };
    let listed = scores("moved", &[]);
    assert_eq!(listed.len(), 2500);
    assert_eq!(listed, scores(&own, &[]));
    let again = scores("moved", &["--data", "data"]);
    assert!(listed.iter().all(|(id, of)| (of.0 - again[id].0).abs() < 1e-5), "what its members say of the same data");
    // The mean of what the members say, each through its sigmoid.
    let logit = |p: f64| (p.clamp(6e-8, 1.0 - 6e-8) / (1.0 - p.clamp(6e-8, 1.0 - 6e-8))).ln();
    let mut means = std::collections::BTreeMap::new();
    for member in of_run["members"].as_array().unwrap() {
        let [slope, intercept] = ["slope", "intercept"].map(|key| member["calibration"][key].as_f64().unwrap());
        for (id, (score, _)) in scores(&format!("{own}/{}", member["run"].as_str().unwrap()), &[]) {
            let p = 1.0 / (1.0 + (-(slope * logit(score) + intercept)).exp());
            *means.entry(id).or_insert(0.0) += p / members.len() as f64;
        }
    }
    assert!(listed.iter().all(|(id, of)| (of.0 - means[id]).abs() < 1e-4), "{means:?}");
    let explain = ["--quiet", "explain", "moved", "--node", "3", "--device", "cpu"];
    let why = json(sandbox.succeeds([&explain[..], &["--format", "json"]].concat()).stdout.as_bytes());
    assert_eq!((&why["node"], why["members"].as_array().unwrap().len()), (&3.into(), members.len()));
    let told = sandbox.succeeds(explain).stdout;
    assert!(members.iter().all(|name| told.contains(name)), "{told}");
    sandbox.refuses([&explain[..], &["--format", "svg"]].concat(), 2, &["--format svg", "members"]);
    sandbox.refuses(
        ["--quiet", "export", "lightgbm", "moved", "--out", "trees.txt"],
        2,
        &["trees of a run of Stage 3", "found an ensemble", "member with trees", "-ensemble"],
    );
    sandbox.succeeds(["--quiet", "report", "moved", "--device", "cpu", "--top", "3"]);
    let report = String::from_utf8(sandbox.read("moved/report.html")).unwrap();
    let why =
        ["The model is the ensemble: by default", "The ensemble is the mean of", "of 2 candidates", "The simplest"];
    assert!(why.iter().all(|part| report.contains(part)) && report.contains("Ensemble"), "{}", report.len());
    let eval = ["--quiet", "eval", "moved", "--format", "json"];
    let figures = json(sandbox.succeeds(eval).stdout.as_bytes());
    let evaluation = json(&sandbox.read(&format!("{own}/evaluation.json")));
    let test = &evaluation["evaluation"]["test"]["overall"]["roc_auc"];
    assert_eq!(&figures["models"][0]["report"]["overall"]["roc_auc"], test);
    // What is finished is not trained again.
    sandbox.succeeds(["--quiet", "train", "--resume", "moved", "--device", "cpu"]);
    assert_eq!(record(&sandbox, "moved")["candidates"], found["candidates"]);
    assert_eq!(listed, scores("moved", &[]));
}

#[test]
fn trees_on_scores_out_of_fold_are_a_candidate_whose_networks_are_trained_once() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", config(r#"["booster-stage2"]"#, 0.6));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    let found = record(&sandbox, &run);
    let rounds = found["candidates"][0]["rounds"].as_array().unwrap();
    assert!(rounds.len() > 1 && found["ensemble"].is_null(), "{found}");
    // What time there is, and an epoch and a tree beyond it.
    assert!(found["seconds"].as_f64().is_some_and(|seconds| seconds < 90.0), "{found}");
    let own = format!("{run}/{}", found["model"]["run"].as_str().unwrap());
    let folds = fs::read_dir(sandbox.path(&format!("{own}/folds"))).unwrap().count();
    assert_eq!(folds, 5, "trained once for all rounds and the end");
    let evaluation = json(&sandbox.read(&format!("{own}/evaluation.json")));
    let area = evaluation["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap();
    assert!(area > 0.6, "{evaluation}");
    fs::rename(sandbox.path(&run), sandbox.path("moved")).unwrap();
    let listed = sandbox.succeeds(["--quiet", "score", "moved", "--device", "cpu", "--data", "data"]).stdout;
    assert_eq!(listed.lines().count(), 501, "all nodes and a header");
    sandbox.succeeds(["--quiet", "explain", "moved", "--node", "3", "--device", "cpu"]);
}

#[test]
fn candidates_on_embeddings_share_one_stage_1_and_are_models_wherever_they_are() {
    let sandbox = Sandbox::with_data();
    let auto = config(r#"["stage2-embeddings", "booster-embeddings"]"#, 0.6);
    sandbox.write("run.toml", auto.replace("[output]", "ensemble = 1\n[output]"));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    let found = record(&sandbox, &run);
    let tried = found["candidates"].as_array().unwrap();
    assert!(tried.iter().all(|of| of["rounds"].as_array().is_some_and(|rounds| !rounds.is_empty())), "{found}");
    fs::rename(sandbox.path(&run), sandbox.path("moved")).unwrap();
    let stages = || {
        let runs = fs::read_dir(sandbox.path("moved/candidates")).unwrap();
        let names = runs.map(|run| run.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with("-stage1")).collect::<Vec<_>>()
    };
    let trained = stages();
    let [stage1] = &trained[..] else { panic!("{trained:?}") };
    let scores = |more: &[&str]| {
        let fixed = ["--quiet", "score", "moved", "--device", "cpu", "--format", "json"];
        let nodes = json(sandbox.succeeds([&fixed, more].concat()).stdout.as_bytes());
        let of = |node: &Value| (format!("{}:{}", node["type"], node["id"]), node["score"].as_f64().unwrap());
        nodes.as_array().unwrap().iter().map(of).collect::<std::collections::BTreeMap<_, _>>()
    };
    for name in ["stage2-embeddings", "booster-embeddings"] {
        // The other one is left out: the model is this one.
        let only = format!("auto.candidates=[\"{name}\"]");
        sandbox.succeeds(["--quiet", "train", "--resume", "moved", "--device", "cpu", "--set", &only]);
        let found = record(&sandbox, "moved");
        assert_eq!(found["model"]["name"], name, "{found}");
        assert_eq!(stages(), std::slice::from_ref(stage1), "trained once");
        let own = format!("moved/{}", found["model"]["run"].as_str().unwrap());
        let embeds = sandbox.read(&format!("moved/candidates/{stage1}/checkpoint/best.bpk"));
        assert_eq!(sandbox.read(&format!("{own}/stage1/checkpoint/best.bpk")), embeds, "the model holds its Stage 1");
        let evaluation = json(&sandbox.read(&format!("{own}/evaluation.json")));
        assert!(evaluation["evaluation"]["test"]["overall"]["roc_auc"].as_f64() > Some(0.4), "{evaluation}");
        let (listed, again) = (scores(&[]), scores(&["--data", "data"]));
        assert_eq!(listed.len(), 500);
        assert!(
            listed.iter().all(|(id, score)| (score - again[id]).abs() < 1e-3),
            "what its model says of the same data"
        );
        sandbox.succeeds(["--quiet", "explain", "moved", "--node", "3", "--device", "cpu"]);
        sandbox.succeeds(["--quiet", "report", "moved", "--device", "cpu", "--no-explanations", "--force"]);
        sandbox.succeeds(["--quiet", "eval", "moved", "--format", "json"]);
        sandbox.succeeds(["--quiet", "embed", "moved", "--device", "cpu", "--out", "z.npy", "--force"]);
        let embedded = sandbox.read("z.npy");
        let written = sandbox.read(&format!("moved/candidates/{stage1}/Z_embeddings_stage1.npy"));
        assert_eq!(embedded.len(), written.len(), "a row per node");
    }
}

#[test]
fn classes_are_chosen_by_their_accuracy() {
    let sandbox = Sandbox::new();
    three_classes(&[0, 1, 2]).write(&sandbox.path("data")).unwrap();
    sandbox.write("run.toml", config("[]", 0.1));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    let found = record(&sandbox, &run);
    let names: Vec<&str> =
        found["candidates"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["gcn", "gcn-wide", "gat", "gcn-wide-x5", "gat-x5"]);
    assert_eq!(found["figure"], "accuracy");
    let evaluation = format!("{run}/{}/evaluation.json", found["model"]["run"].as_str().unwrap());
    let accuracy = json(&sandbox.read(&evaluation))["test"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.5, "{accuracy}");
    let listed = sandbox.succeeds(["--quiet", "score", &run, "--device", "cpu"]).stdout;
    assert!(listed.lines().next().unwrap().contains("class"), "{listed}");
    sandbox.write("run.toml", config(r#"["booster-all"]"#, 0.1));
    sandbox.refuses(TRAIN, 2, &["auto.candidates", "booster-all", "gcn, gcn-wide, gat"]);
}

#[test]
fn events_that_are_split_by_time_have_candidates_of_their_own() {
    let sandbox = Sandbox::new();
    let synth = ["--quiet", "synth", "--preset", "payments", "--scale", "0.02", "--seed", "3", "--out", "tables"];
    sandbox.succeeds(synth);
    sandbox.succeeds(["--quiet", "import", "tables", "tables/graph.toml", "--out", "data"]);
    sandbox.write("run.toml", config("[]", 0.1));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    let found = record(&sandbox, &run);
    let of = |of: &Value| (of["name"].as_str().unwrap().to_owned(), of["rounds"].as_array().unwrap().len());
    let tried: Vec<(String, usize)> = found["candidates"].as_array().unwrap().iter().map(of).collect();
    let names: Vec<&str> = tried.iter().map(|(name, _)| name.as_str()).collect();
    let networks = ["stage2-events", "stage2-events-labels", "stage2-events-ages"];
    assert_eq!(names, [&["forest-raw", "booster-raw", "booster-events"][..], &networks].concat());
    assert!(tried[0].1 > 0 && found["model"]["name"].is_string(), "{found}");
    let first = listed(&sandbox, &run, &[]);
    assert!(are_near(&first, &listed(&sandbox, &run, &["--data", "data"])), "what its model says of the same data");
}

/// A marketplace in `data` whose labels are those of other nodes.
pub fn with_shuffled_labels() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.succeeds(["--quiet", "synth", "--out", "made"]);
    let made = Dataset::open(&sandbox.path("made")).unwrap();
    let labels = made.labels.clone().unwrap().entries;
    // The labels of other nodes, in an order that a hash decides.
    let count = labels.len();
    assert!(count > 500, "{count}");
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&at| (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
    let entries = labels.iter().zip(&order).map(|(&(node, _), &other)| (node, labels[other].1)).collect();
    let shuffled = Dataset { labels: Some(Labels { entries }), ..made };
    shuffled.write(&sandbox.path("data")).unwrap();
    sandbox
}

#[test]
fn shuffled_labels_are_told_apart_no_better_than_by_chance() {
    let sandbox = with_shuffled_labels();
    let mut minutes = 0.2;
    sandbox.write("run.toml", config("[]\nprefer = \"best\"", minutes));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    // Trees and networks; a machine that has not come to all of these goes on.
    let wanted = ["forest-raw", "booster-raw", "booster-small", "booster-means", "forest-all", "forest-leaf5"];
    let wanted = [&wanted[..], &["booster-leaf5", "gcn", "gat", "stage2"]].concat();
    let trained = || {
        let found = record(&sandbox, &run);
        let all = found["candidates"].as_array().unwrap().iter();
        let all = all.filter(|of| of["rounds"].as_array().is_some_and(|rounds| !rounds.is_empty()));
        all.map(|of| of["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let lacks = || wanted.iter().any(|name| !trained().iter().any(|trained| trained == name));
    while lacks() && minutes < 5.0 {
        minutes *= 2.0;
        let more = format!("auto.minutes={minutes}");
        sandbox.succeeds(["train", "--resume", &run, "--device", "cpu", "--quiet", "--set", &more]);
    }
    assert!(!lacks(), "{:?}", trained());
    let found = record(&sandbox, &run);
    let own = format!("{run}/{}", found["model"]["run"].as_str().unwrap());
    let evaluation = json(&sandbox.read(&format!("{own}/evaluation.json")));
    let area = match &evaluation["evaluation"]["test"]["overall"]["roc_auc"] {
        Value::Number(area) => area.as_f64().unwrap(),
        // A classifier says no more than its accuracy.
        _ => evaluation["test"]["accuracy"].as_f64().unwrap(),
    };
    // 75 against 75 labels: a standard error of 0.047.
    assert!((area - 0.5).abs() < 0.17, "{area} {evaluation}");
    // Nor together: half of the labels are anomalous.
    if let Some(value) = found.pointer("/ensemble/entry/rounds/0/value") {
        assert!((value.as_f64().unwrap() - 0.5).abs() < 0.17, "{}", found["ensemble"]);
        sandbox.succeeds(["train", "--resume", &run, "--device", "cpu", "--quiet", "--set", "auto.prefer=ensemble"]);
        let found = record(&sandbox, &run);
        let own = format!("{run}/{}", found["model"]["run"].as_str().unwrap());
        let evaluation = json(&sandbox.read(&format!("{own}/evaluation.json")));
        let area = evaluation["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap();
        assert!((area - 0.5).abs() < 0.17, "{area} {}", found["ensemble"]);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_tournament_keeps_the_best_so_far_and_goes_on() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", config(r#"["forest-raw", "stage2", "stage2-long"]"#, 5.0));
    let is_tried = || {
        let run = || Some(fs::read_dir(sandbox.path("runs")).ok()?.next()?.ok()?.path());
        run().is_some_and(|run| run.join("tournament.json").is_file())
    };
    let said = sandbox.interrupted(["train", "run.toml", "--device", "cpu"], is_tried);
    let (told, run) = (said.stderr, sandbox.only_run("runs"));
    assert_eq!(said.code, Some(130), "{told}");
    assert!(told.contains(&format!("graphsieve train --resume {run}")) && told.contains("best so far"), "{told}");
    assert!(told.contains("interrupted; everything so far is saved."), "{told}");
    let before = record(&sandbox, &run);
    assert_eq!(before["complete"], false);
    let listed = sandbox.succeeds(["--quiet", "score", &run, "--device", "cpu"]).stdout;
    assert_eq!(listed.lines().count(), 501);
    sandbox.succeeds(["--quiet", "train", "--resume", &run, "--device", "cpu"]);
    let after = record(&sandbox, &run);
    assert_eq!(after["complete"], true);
    for (before, after) in before["candidates"].as_array().unwrap().iter().zip(after["candidates"].as_array().unwrap())
    {
        let rounds = before["rounds"].as_array().unwrap();
        assert_eq!(rounds[..], after["rounds"].as_array().unwrap()[..rounds.len()], "nothing is trained twice");
        assert!(!after["rounds"].as_array().unwrap().is_empty());
    }
    let resume = ["--quiet", "train", "--resume", &run, "--device", "cpu", "--set", "seed=7"];
    sandbox.refuses(resume, 2, &["seed", "42"]);
}

#[test]
fn settings_that_cannot_be_run_are_refused_with_their_key() {
    let sandbox = Sandbox::with_data();
    let refused = |text: String, parts: &[&str]| {
        sandbox.write("run.toml", text);
        sandbox.refuses(TRAIN, 2, parts);
    };
    refused(config(r#"["boster-raw"]"#, 1.0), &["run.toml:6: auto.candidates", "did you mean \"booster-raw\"?"]);
    refused(config("[]", 0.0), &["run.toml:5: auto.minutes", "(0, infinity)"]);
    refused(config("[]", -1.0), &["run.toml:5: auto.minutes"]);
    refused(config("[]\nensemble = 0", 1.0), &["run.toml:7: auto.ensemble", "1 to 10"]);
    refused(config("[]\nprefer = \"small\"", 1.0), &["run.toml:7: auto.prefer", "\"simplest\""]);
    refused(config(r#"["stage2-events"]"#, 1.0), &["auto.candidates", "stage2-events", "forest-raw"]);
    assert!(!sandbox.path("runs").exists(), "what is refused leaves no directory");
}
