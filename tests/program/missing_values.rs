//! Features with missing values as networks read them: means of the training in their place, and flags behind them.

use std::path::PathBuf;

use graphsieve::config::{ClassifyConfig, LayerKind, RunConfig, Stage2Input};
use graphsieve::graph::{Dataset, FILLING_FILE, Features};
use graphsieve::models::weights::{ModelSpec, Weights};
use graphsieve::run::evaluation::read_scores;
use half::f16;
use serde_json::Value;

use crate::causal::{Leak, Past, WINDOW, dataset_with, payments, run, stage1, stage2};
use crate::support::Sandbox;
use crate::trees_on_graphs::{NAMES, chance, dataset, rows, sandbox};

const WIDTH: usize = NAMES.len();
const AMOUNT: usize = 0;
const AGE: usize = 1;

const STAGE1: (&str, &str) = ("stage1", "[model]\nhidden = 8\nout = 4\n[train]\nepochs = 3\n");
const STAGE2: (&str, &str) =
    ("stage2", "input = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 3\nvalidate_every = 1\n");
const CLASSIFY: (&str, &str) = ("classify", "[split]\nuse = \"random\"\n[model]\nhidden = 8\n[train]\nepochs = 3\n");
const BATCHES: &str = "[loader]\nmode = \"sampled\"\nbatch_size = 100\n";

fn train(sandbox: &Sandbox, (task, settings): (&str, &str)) -> String {
    let output = "[output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("run.toml", format!("task = \"{task}\"\n{output}[data]\npath = \"data\"\n{settings}"));
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    sandbox.only_run("runs")
}

/// What the model of a run says of `data`, to the bit, and what the program says.
fn score(sandbox: &Sandbox, run: &str, data: &str) -> (Vec<u8>, String) {
    let said = sandbox.succeeds(["score", run, "--data", data, "--out", "s.npy", "--force", "--device", "cpu"]);
    (sandbox.read("s.npy"), said.stderr)
}

/// Rows that lack ages, most often those of anomalies; `half` numbers are ones that f16 holds.
fn lacking(half: bool) -> Vec<f32> {
    let (mut values, labels) = rows();
    if half {
        values.iter_mut().for_each(|value| *value = (*value * 256.0).floor() / 256.0);
    }
    for (node, label) in labels {
        if chance(node, 5) < if label == 1 { 0.6 } else { 0.1 } {
            values[node as usize * WIDTH + AGE] = f32::NAN;
        }
    }
    values
}

/// The same rows without the amount of every seventh node.
fn without_amounts(values: &[f32]) -> Vec<f32> {
    let is_lost = |at: usize| at % WIDTH == AMOUNT && (at / WIDTH).is_multiple_of(7);
    values.iter().enumerate().map(|(at, &value)| if is_lost(at) { f32::NAN } else { value }).collect()
}

/// The same rows with `mean` wherever a column has no value.
fn filled(values: &[f32], column: usize, mean: f32) -> Vec<f32> {
    let is_missing = |at: usize, value: f32| at % WIDTH == column && value.is_nan();
    values.iter().enumerate().map(|(at, &value)| if is_missing(at, value) { mean } else { value }).collect()
}

fn means(values: &[f32]) -> Vec<f32> {
    let mean = |column: usize| {
        let known = values.iter().skip(column).step_by(WIDTH).filter(|value| !value.is_nan());
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), &value| (sum + f64::from(value), count + 1.0));
        (sum / count) as f32
    };
    (0..WIDTH).map(mean).collect()
}

/// The means of a run and the columns with a flag.
fn filling(sandbox: &Sandbox, run: &str) -> (Vec<f32>, Vec<u64>) {
    let found: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/{FILLING_FILE}"))).unwrap();
    let list = |key: &str| found[key].as_array().unwrap().clone();
    let means = list("means").iter().map(|mean| mean.as_f64().unwrap() as f32).collect();
    (means, list("flags").iter().map(|flag| flag.as_u64().unwrap()).collect())
}

/// Input columns of the model of a run.
fn width(sandbox: &Sandbox, run: &str) -> usize {
    match Weights::read(&sandbox.path(run)).unwrap().0.spec {
        ModelSpec::AutoEncoder(spec) => spec.input,
        ModelSpec::Attention(spec) => spec.input,
        ModelSpec::NodeClassifier(spec) => spec.input,
    }
}

#[test]
fn networks_fill_with_the_means_of_their_training_and_read_where_they_did() {
    let [stage2_batches, classify_batches] = [STAGE2, CLASSIFY].map(|(task, text)| (task, format!("{text}{BATCHES}")));
    let in_batches = [&stage2_batches, &classify_batches].map(|(task, text)| (*task, &text[..]));
    for network in [STAGE1, STAGE2, CLASSIFY].into_iter().chain(in_batches) {
        for half in [false, true] {
            let values = lacking(half);
            let sandbox = sandbox(values.clone());
            let run = train(&sandbox, network);
            let means = means(&values);
            assert_eq!(filling(&sandbox, &run), (means.clone(), vec![AGE as u64]), "{network:?}");
            assert_eq!(width(&sandbox, &run), WIDTH + 1, "{network:?}");

            // A column that lacked nothing in the training has its mean and no flag.
            let stored = |mean: f32| if half { f16::from_f32(mean).to_f32() } else { mean };
            let other = without_amounts(&values);
            dataset(other.clone()).write(&sandbox.path("other")).unwrap();
            dataset(filled(&other, AMOUNT, stored(means[AMOUNT]))).write(&sandbox.path("by_hand")).unwrap();
            let [own, other, by_hand] = ["data", "other", "by_hand"].map(|data| score(&sandbox, &run, data));
            assert!(other.0 == by_hand.0, "{network:?}");
            assert!(other.0 != own.0, "{network:?}");
            let note = "`amount`: missing values are filled with the means of the training";
            let notes = [&own, &other, &by_hand].map(|(_, said)| said.matches(note).count());
            assert_eq!(notes, [0, 1, 0], "{}", other.1);

            // Of one that did the flag is read, too.
            dataset(filled(&values, AGE, stored(means[AGE]))).write(&sandbox.path("unflagged")).unwrap();
            assert!(score(&sandbox, &run, "unflagged").0 != own.0, "{network:?}");
        }
    }
}

#[test]
fn a_model_of_complete_data_has_no_flags_and_fills_what_is_missing_later() {
    for network in [STAGE1, STAGE2, CLASSIFY] {
        let (values, _) = rows();
        let sandbox = sandbox(values.clone());
        let run = train(&sandbox, network);
        let means = means(&values);
        assert_eq!(filling(&sandbox, &run), (means.clone(), Vec::new()));
        assert_eq!(width(&sandbox, &run), WIDTH);
        let other = without_amounts(&values);
        dataset(other.clone()).write(&sandbox.path("other")).unwrap();
        dataset(filled(&other, AMOUNT, means[AMOUNT])).write(&sandbox.path("by_hand")).unwrap();
        let [other, by_hand] = ["other", "by_hand"].map(|data| score(&sandbox, &run, data));
        assert!(other.0 == by_hand.0, "{network:?}");
        // The file is part of the model.
        sandbox.edit(&format!("{run}/{FILLING_FILE}"), |bytes| bytes.truncate(bytes.len() - 1));
        let parts = [FILLING_FILE, "length: expected"];
        sandbox.refuses(["--quiet", "score", &run, "--data", "other", "--device", "cpu"], 1, &parts);
    }
}

#[test]
fn a_checkpoint_without_its_run_does_not_know_what_stands_for_a_missing_value() {
    let sandbox = sandbox(lacking(false));
    let run = train(&sandbox, CLASSIFY);
    let file = format!("{run}/checkpoint/best.bpk");
    dataset(without_amounts(&rows().0)).write(&sandbox.path("other")).unwrap();
    let parts = ["missing values in 1 of 3 columns, the first `amount`", "give the directory of the run"];
    sandbox.refuses(["--quiet", "score", &file, "--data", "other", "--device", "cpu"], 1, &parts);
}

#[test]
fn explanations_name_the_flag() {
    for network in [STAGE2, CLASSIFY] {
        let values = lacking(false);
        let sandbox = sandbox(values.clone());
        let run = train(&sandbox, network);
        let (means, _) = filling(&sandbox, &run);
        for missing in [true, false] {
            let ages = || values.iter().skip(AGE).step_by(WIDTH);
            let node = ages().position(|age| age.is_nan() == missing).unwrap();
            let text = node.to_string();
            let why =
                sandbox.succeeds(["--quiet", "explain", &run, "--node", &text, "--device", "cpu", "--format", "json"]);
            let why: Value = serde_json::from_str(&why.stdout).unwrap();
            let value = |name: &str| {
                let column = why["columns"].as_array().unwrap().iter().find(|column| column["column"] == name);
                column.unwrap_or_else(|| panic!("no {name}: {why}"))["value"].as_f64().unwrap() as f32
            };
            assert_eq!(value("age missing"), f32::from(u8::from(missing)), "{network:?}");
            assert_eq!(value("age"), if missing { means[AGE] } else { *ages().nth(node).unwrap() }, "{network:?}");
        }
    }
}

#[test]
fn a_training_that_begins_with_a_run_fills_as_that_does() {
    let sandbox = sandbox(lacking(false));
    let first = train(&sandbox, STAGE1);
    dataset(without_amounts(&rows().0)).write(&sandbox.path("next")).unwrap();
    let next = |runs: &str, more: &[&str]| {
        let out = format!("output.dir={runs}");
        let fixed = ["train", "run.toml", "--device", "cpu", "--set", "data.path=next", "--set", &out];
        let said = sandbox.succeeds([&fixed, more].concat());
        (filling(&sandbox, &sandbox.only_run(runs)), said.stderr)
    };
    let (found, said) = next("next-runs", &["--from", &first]);
    assert_eq!(found, filling(&sandbox, &first));
    assert!(said.contains("`amount`: missing values are filled with the means of the training"), "{said}");
    let (anew, _) = next("other-runs", &[]);
    assert_eq!((anew.0.len(), anew.1), (WIDTH, vec![AMOUNT as u64]));
}

/// Payments whose second value is missing in places, with what `change` makes of the values of a node at its time.
fn changed(change: impl Fn(i64, &mut [f32])) -> Dataset {
    let data = dataset_with(&payments(), Leak::Nothing, Past::Copies);
    let (features, events) = (data.features.as_ref().unwrap(), data.events.as_ref().unwrap());
    let mut values: Vec<f32> = (0..features.num_rows()).flat_map(|node| features.row(node)).collect();
    for (node, row) in values.chunks_exact_mut(features.dim()).enumerate() {
        if node % 4 == 0 {
            row[1] = f32::NAN;
        }
        change(events.time[node], row);
    }
    let features = Features::from_f32(values, features.num_rows(), features.dim());
    Dataset { features: Some(features), ..data }
}

#[test]
fn values_behind_the_end_of_training_enter_neither_means_nor_flags() {
    let of = |from: i64, until: i64| {
        changed(|time, row| {
            if (from..until).contains(&time) {
                (row[0], row[2]) = (row[0] + 3.0, f32::NAN);
            }
        })
    };
    let trained = |data: &Dataset| -> Vec<(Vec<u8>, PathBuf, tempfile::TempDir)> {
        let network = |at: usize| {
            let dir = tempfile::tempdir().unwrap();
            data.write(&dir.path().join("data")).unwrap();
            let mut classify = ClassifyConfig::new(LayerKind::Gat, dir.path().join("data"));
            (classify.output.dir, classify.output.plots) = (dir.path().join("runs"), false);
            (classify.model.hidden, classify.train.epochs) = (16, 3);
            let path = run(match at {
                0 => RunConfig::Stage1(stage1(dir.path())),
                1 => RunConfig::Stage2(stage2(dir.path(), Stage2Input::Features)),
                _ => RunConfig::Classify(classify),
            });
            (std::fs::read(path.join(FILLING_FILE)).unwrap(), path, dir)
        };
        (0..3).map(network).collect()
    };
    let [train_end, test] = [WINDOW.train[1], WINDOW.test[0]];
    let fillings = |data: &Dataset| trained(data).into_iter().map(|(filling, ..)| filling).collect::<Vec<_>>();
    let now = trained(&of(0, 0));
    let kept: Vec<Vec<u8>> = now.iter().map(|(filling, ..)| filling.clone()).collect();
    assert!(fillings(&of(train_end, i64::MAX)) == kept);
    assert!(fillings(&of(train_end - 1, train_end)).iter().zip(&kept).all(|(changed, kept)| changed != kept));

    // What only the test shows changes no score of what was before.
    let data = of(test, i64::MAX);
    let time = &data.events.as_ref().unwrap().time;
    let earlier = |path: &PathBuf| {
        let scores = read_scores(&path.join("anomaly_scores_stage2.npy"), time.len()).unwrap();
        let earlier = scores.iter().zip(time).filter(|(_, time)| (0..test).contains(*time));
        earlier.map(|(score, _)| score.to_bits()).collect::<Vec<_>>()
    };
    let later = trained(&data);
    assert!(earlier(&now[1].1) == earlier(&later[1].1));
}

#[test]
fn candidates_of_a_tournament_read_missing_values() {
    let values = lacking(false);
    let sandbox = sandbox(values.clone());
    let text = "task = \"auto\"\n[data]\npath = \"data\"\n[auto]\nminutes = 0.2\ncandidates = [\"gcn\", \"forest-raw\"]\n\
                [output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("run.toml", text);
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = sandbox.only_run("runs");
    let found: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/tournament.json"))).unwrap();
    let candidates = found["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    for candidate in candidates {
        assert!(candidate["fault"].is_null(), "{candidate}");
        assert!(candidate["rounds"][0]["done"].as_u64() > Some(0), "{candidate}");
    }
    let node = values.iter().skip(AGE).step_by(WIDTH).position(|age| age.is_nan()).unwrap().to_string();
    sandbox.succeeds(["--quiet", "explain", &run, "--node", &node, "--device", "cpu"]);
}
