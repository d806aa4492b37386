//! Candidates with several trainings through the program: their mean as a model of anomalies and of classes, the same
//! bytes again and after an interruption, and labels that say nothing.

use std::fs::{self, File};

use ndarray::{Array1, Array2};
use ndarray_npy::ReadNpyExt;
use serde_json::{Value, json};

use crate::auto::{TRAIN, config, json as parsed, record, with_shuffled_labels};
use crate::classes::three_classes;
use crate::support::Sandbox;

/// Enough to train a small network to its end.
const MINUTES: f64 = 10.0;

/// The run of the model of the tournament `run`.
fn model(sandbox: &Sandbox, run: &str) -> String {
    format!("{run}/{}", record(sandbox, run)["model"]["run"].as_str().unwrap())
}

/// The runs of the members of a mean whose run is `own`, in their order.
fn members(sandbox: &Sandbox, own: &str) -> Vec<String> {
    let of = parsed(&sandbox.read(&format!("{own}/ensemble.json")));
    let run = |member: &Value| format!("{own}/{}", member["run"].as_str().unwrap());
    of["members"].as_array().unwrap().iter().map(run).collect()
}

fn scores(sandbox: &Sandbox, own: &str) -> Array1<f32> {
    Array1::read_npy(File::open(sandbox.path(&format!("{own}/anomaly_scores_ensemble.npy"))).unwrap()).unwrap()
}

fn probabilities(sandbox: &Sandbox, own: &str) -> Array2<f32> {
    Array2::read_npy(File::open(sandbox.path(&format!("{own}/probabilities.npy"))).unwrap()).unwrap()
}

fn seed(sandbox: &Sandbox, run: &str) -> i64 {
    let text = String::from_utf8(sandbox.read(&format!("{run}/config.toml"))).unwrap();
    text.parse::<toml::Table>().unwrap()["seed"].as_integer().unwrap()
}

/// By the name of each node what `score` says of it.
pub fn listed(sandbox: &Sandbox, run: &str, more: &[&str]) -> Vec<(String, f64)> {
    let fixed = ["--quiet", "score", run, "--device", "cpu", "--format", "json"];
    let nodes = parsed(sandbox.succeeds([&fixed, more].concat()).stdout.as_bytes());
    let of = |node: &Value| (format!("{}:{}", node["type"], node["id"]), node["score"].as_f64().unwrap());
    let mut all: Vec<(String, f64)> = nodes.as_array().unwrap().iter().map(of).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Whether two of these lists say the same of the same nodes.
pub fn are_near(one: &[(String, f64)], other: &[(String, f64)]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-5)
}

#[test]
fn the_mean_of_trainings_with_other_seeds_is_a_model_of_anomalies() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", config(r#"["gcn-x3"]"#, MINUTES));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    let found = record(&sandbox, &run);
    assert_eq!((&found["complete"], &found["model"]["name"]), (&true.into(), &"gcn-x3".into()), "{found}");
    let own = model(&sandbox, &run);
    let of = members(&sandbox, &own);
    assert_eq!(of.len(), 3);
    let seeds: Vec<i64> = of.iter().map(|member| seed(&sandbox, member)).collect();
    assert!(seeds[0] == 42 && seeds[1] != 42 && seeds[2] != 42 && seeds[1] != seeds[2], "{seeds:?}");
    let each: Vec<Array2<f32>> = of.iter().map(|member| probabilities(&sandbox, member)).collect();
    assert!(each[0] != each[1] && each[0] != each[2] && each[1] != each[2], "other seeds, other models");
    let mean = scores(&sandbox, &own);
    assert_eq!(mean.len(), 500);
    for (node, &score) in mean.iter().enumerate() {
        let expected = each.iter().map(|of| f64::from(of[[node, 1]])).sum::<f64>() / 3.0;
        assert!((f64::from(score) - expected).abs() < 1e-7, "{node}: {score} {expected}");
    }
    // The validation labels judged this mean, and all epochs count.
    let round = found["candidates"][0]["rounds"].as_array().unwrap().last().unwrap();
    let evaluation = parsed(&sandbox.read(&format!("{own}/evaluation.json")));
    let validation = evaluation["evaluation"]["validation"]["overall"]["average_precision"].as_f64().unwrap();
    assert!((round["value"].as_f64().unwrap() - validation).abs() < 1e-6, "{round} {validation}");
    let epochs: u64 = of
        .iter()
        .map(|member| parsed(&sandbox.read(&format!("{member}/evaluation.json")))["epochs"].as_u64().unwrap())
        .sum();
    assert_eq!(round["done"].as_u64(), Some(epochs));

    // A second tournament comes to the same bytes.
    sandbox.succeeds([&TRAIN[..], &["--set", "output.dir=again"]].concat());
    let again = model(&sandbox, &sandbox.only_run("again"));
    let bytes = |own: &str| sandbox.read(&format!("{own}/anomaly_scores_ensemble.npy"));
    assert!(bytes(&own) == bytes(&again), "the same seed makes the same bytes");

    // It is a model wherever it is.
    fs::rename(sandbox.path(&run), sandbox.path("moved")).unwrap();
    let own = model(&sandbox, "moved");
    let first = listed(&sandbox, "moved", &[]);
    assert!(first == listed(&sandbox, &own, &[]) && first.len() == 500);
    assert!(are_near(&first, &listed(&sandbox, "moved", &["--data", "data"])), "what its members say of the same data");
    let explain = ["--quiet", "explain", "moved", "--node", "3", "--device", "cpu"];
    let why = parsed(sandbox.succeeds([&explain[..], &["--format", "json"]].concat()).stdout.as_bytes());
    assert_eq!((&why["node"], why["members"].as_array().unwrap().len()), (&3.into(), 3));
    assert_eq!(why["not_explained"], json!([]));
    let told = sandbox.succeeds(explain).stdout;
    assert!(told.contains("the mean of the probabilities of gcn-x3-1, gcn-x3-2, gcn-x3-3"), "{told}");
    sandbox.succeeds(["--quiet", "report", "moved", "--device", "cpu", "--top", "3"]);
    let eval = parsed(sandbox.succeeds(["--quiet", "eval", "moved", "--format", "json"]).stdout.as_bytes());
    let test = &evaluation["evaluation"]["test"]["overall"]["roc_auc"];
    assert_eq!(&eval["models"][0]["report"]["overall"]["roc_auc"], test);
    // What is finished is not trained again.
    let before = bytes(&own);
    sandbox.succeeds(["--quiet", "train", "--resume", "moved", "--device", "cpu"]);
    assert_eq!(record(&sandbox, "moved")["candidates"], found["candidates"]);
    assert!(bytes(&model(&sandbox, "moved")) == before);

    // It can be a member of an ensemble itself, as one of its trainings can.
    let place = |name: &str| format!("moved/candidates/{name}");
    fs::create_dir(sandbox.path(&place("nested"))).unwrap();
    for file in ["config.toml", "meta.json", "calibration.json"] {
        fs::copy(sandbox.path(&format!("{own}/{file}")), sandbox.path(&place(&format!("nested/{file}")))).unwrap();
    }
    let member = |run: &str| {
        let name = run.rsplit('/').next().unwrap();
        let calibration = json!({ "method": "identity", "labels": 0, "anomalous": 0 });
        json!({ "name": name, "run": format!("../{name}"), "calibration": calibration })
    };
    let of = members(&sandbox, &own);
    let two = json!({ "members": [member(&own), member(&of[0])] });
    sandbox.write(&place("nested/ensemble.json"), two.to_string());
    let nested = place("nested");
    let both = listed(&sandbox, &nested, &["--data", "data"]);
    let whole = listed(&sandbox, &own, &["--data", "data"]);
    let one = listed(&sandbox, &of[0], &["--data", "data"]);
    let halves = whole.iter().zip(&one).map(|(a, b)| (a.0.clone(), (a.1 + b.1) / 2.0)).collect::<Vec<_>>();
    assert!(are_near(&both, &halves), "{both:?} {halves:?}");
    let explain = ["--quiet", "explain", &nested, "--node", "3", "--device", "cpu", "--data", "data"];
    let why = parsed(sandbox.succeeds([&explain[..], &["--format", "json"]].concat()).stdout.as_bytes());
    assert_eq!(why["members"].as_array().unwrap().len(), 2);
}

#[test]
fn the_mean_of_trainings_with_other_seeds_is_a_model_of_classes() {
    let sandbox = Sandbox::new();
    three_classes(&[0, 1, 2]).write(&sandbox.path("data")).unwrap();
    sandbox.write("run.toml", config(r#"["gcn-x3"]"#, MINUTES));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    fs::rename(sandbox.path(&run), sandbox.path("moved")).unwrap();
    let found = record(&sandbox, "moved");
    assert_eq!((&found["figure"], &found["model"]["name"]), (&"accuracy".into(), &"gcn-x3".into()), "{found}");
    let own = model(&sandbox, "moved");
    let of = members(&sandbox, &own);
    let each: Vec<Array2<f32>> = of.iter().map(|member| probabilities(&sandbox, member)).collect();
    assert!(each.len() == 3 && each[0] != each[1] && each[0] != each[2] && each[1] != each[2]);
    let mean = probabilities(&sandbox, &own);
    assert_eq!(mean.dim(), (180, 3));
    for (place, &p) in mean.indexed_iter() {
        let expected = each.iter().map(|of| f64::from(of[place])).sum::<f64>() / 3.0;
        assert!((f64::from(p) - expected).abs() < 1e-7, "{place:?}: {p} {expected}");
    }
    let predicted: Array1<i64> =
        Array1::read_npy(File::open(sandbox.path(&format!("{own}/predictions.npy"))).unwrap()).unwrap();
    let largest = |row: ndarray::ArrayView1<f32>| (0..3).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    assert!(predicted.iter().zip(mean.outer_iter()).all(|(&class, row)| class as usize == largest(row)));
    let evaluation = parsed(&sandbox.read(&format!("{own}/evaluation.json")));
    let [validation, test] = ["validation", "test"].map(|part| evaluation[part]["accuracy"].as_f64().unwrap());
    let round = found["candidates"][0]["rounds"].as_array().unwrap().last().unwrap();
    assert!((round["value"].as_f64().unwrap() - validation).abs() < 1e-9 && test > 0.5, "{round} {evaluation}");

    let score = |more: &[&str]| {
        let fixed = ["--quiet", "score", "moved", "--device", "cpu", "--format", "json"];
        parsed(sandbox.succeeds([&fixed, more].concat()).stdout.as_bytes())
    };
    let (first, again) = (score(&[]), score(&["--data", "data"]));
    let of_each = |nodes: &Value| -> Vec<(String, Value)> {
        let of = |node: &Value| (node["id"].as_str().unwrap().to_owned(), node["class"].clone());
        let mut all: Vec<(String, Value)> = nodes.as_array().unwrap().iter().map(of).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    assert_eq!(of_each(&first).len(), 180);
    assert!(of_each(&first).iter().all(|(_, class)| class.is_u64()), "{first}");
    assert_eq!(of_each(&first), of_each(&again), "what its members say of the same data");
    for more in [&[][..], &["--data", "data"], &["--class", "2"]] {
        let explain = ["--quiet", "explain", "moved", "--node", "P003", "--device", "cpu", "--format", "json"];
        let why = parsed(sandbox.succeeds([&explain[..], more].concat()).stdout.as_bytes());
        assert_eq!(why["members"].as_array().map(Vec::len), Some(3), "{why}");
    }
    sandbox.succeeds(["--quiet", "report", "moved", "--device", "cpu", "--top", "3"]);
    let file = format!("{own}/probabilities.npy");
    sandbox.succeeds(["--quiet", "eval", "--scores", &file, "--data", "data", "--run", "moved"]);
    sandbox.succeeds(["--quiet", "train", "--resume", "moved", "--device", "cpu"]);
    assert_eq!(probabilities(&sandbox, &model(&sandbox, "moved")), mean);
}

#[test]
fn restarts_are_measured_beside_the_single_training() {
    let sandbox = Sandbox::with_data();
    let bench = ["bench", "auto", "--data", "data", "--splits", "1", "--minutes", "10", "--device", "cpu"];
    let set = ["--set", r#"auto.candidates=["gcn", "gcn-x3"]"#, "--json", "auto.json"];
    sandbox.succeeds([&bench[..], &set].concat());
    let report = parsed(&sandbox.read("auto.json"));
    let of = |name: &str| {
        let all = report["splits"][0]["candidates"].as_array().unwrap();
        all.iter().find(|of| of["candidate"] == name).unwrap_or_else(|| panic!("{report}")).clone()
    };
    let (one, three) = (of("gcn"), of("gcn-x3"));
    assert!(three["test"].as_f64() > Some(0.0) && three["test"] != one["test"], "{one} {three}");
    assert!([&one, &three].iter().all(|of| of["seconds"].as_f64() > Some(0.0)), "{one} {three}");
}

#[test]
fn restarts_tell_shuffled_labels_apart_no_better_than_by_chance() {
    let sandbox = with_shuffled_labels();
    sandbox.write("run.toml", config(r#"["gcn-x3", "stage2-long-x3"]"#, 0.5));
    sandbox.succeeds(TRAIN);
    let run = sandbox.only_run("runs");
    for name in ["gcn-x3", "stage2-long-x3"] {
        let only = format!("auto.candidates=[\"{name}\"]");
        sandbox.succeeds(["--quiet", "train", "--resume", &run, "--device", "cpu", "--set", &only]);
        let evaluation = parsed(&sandbox.read(&format!("{}/evaluation.json", model(&sandbox, &run))));
        let area = evaluation["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap();
        // 75 against 75 labels: a standard error of 0.047.
        assert!((area - 0.5).abs() < 0.17, "{name}: {area}");
    }
}

#[cfg(unix)]
#[test]
fn restarts_that_were_interrupted_go_on_as_if_they_had_never_stopped() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", config(r#"["stage2-long-x3"]"#, MINUTES));
    // In the middle of its trainings.
    let is_second = || {
        let stages = || {
            let run = fs::read_dir(sandbox.path("runs")).ok()?.next()?.ok()?.path();
            fs::read_to_string(run.join("stages.json")).ok()
        };
        stages().is_some_and(|stages| stages.contains("stage2-long-x3-2"))
    };
    let said = sandbox.interrupted(["train", "run.toml", "--device", "cpu"], is_second);
    assert_eq!(said.code, Some(130), "{}", said.stderr);
    let run = sandbox.only_run("runs");
    assert_eq!(record(&sandbox, &run)["complete"], false);
    sandbox.succeeds(["--quiet", "train", "--resume", &run, "--device", "cpu"]);
    assert_eq!(record(&sandbox, &run)["complete"], true);
    let trained = fs::read_dir(sandbox.path(&format!("{run}/candidates"))).unwrap().count();
    assert_eq!(trained, 4, "three trainings, each begun once, and their mean");
    sandbox.succeeds([&TRAIN[..], &["--set", "output.dir=whole"]].concat());
    let whole = model(&sandbox, &sandbox.only_run("whole"));
    assert_eq!(scores(&sandbox, &model(&sandbox, &run)), scores(&sandbox, &whole));
}
