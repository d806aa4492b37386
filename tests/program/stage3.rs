//! Stage 3 through the program, on a small synthetic marketplace.

use std::fs;

use serde_json::Value;

use crate::support::Sandbox;

const FOREST: &str = "task = \"stage3\"\n[data]\npath = \"data\"\n[features]\nhops = 1\nwavelet_order = 1\n[model]\n\
                      kind = \"forest\"\ntrees = 40\n[output]\ndir = \"runs\"\n";
const BOOSTER: &str = "task = \"stage3\"\n[data]\npath = \"data\"\nembeddings = \"z/RUN\"\n[features]\nstage2_folds = 2\n\
                       stage2_embedding = true\nwavelets = false\nhops = 1\n[model]\nkind = \"booster\"\ntrees = 60\n\
                       num_leaves = 4\nmin_data_in_leaf = 2\npatience = 20\n[stage2]\ntrain.epochs = 6\n\
                       model.hidden = 8\nmodel.out = 8\ntrain.validate_every = 2\n[output]\ndir = \"runs\"\n";

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

fn sum(parts: &Value) -> f64 {
    parts.as_array().unwrap().iter().map(|part| part["contribution"].as_f64().unwrap()).sum()
}

#[test]
fn a_forest_finds_the_anomalies_scores_and_explains_them() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", FOREST);
    let train = ["--quiet", "train", "run.toml", "--device", "cpu"];
    let said = sandbox.succeeds(train);
    let run = sandbox.only_run("runs");
    let found = json(&sandbox.read(&format!("{run}/evaluation.json")));
    let auc = found["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap();
    assert!(auc > 0.8 && said.stdout.contains(&format!("{auc:.4}")), "{auc}\n{}", said.stdout);
    let shares: f64 = found["blocks"].as_array().unwrap().iter().map(|b| b["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{found}");

    let score = ["--quiet", "score", "--device", "cpu", "--data", "data"];
    sandbox.succeeds([&score[..], &[&run, "--out", "s.npy"]].concat());
    let written = sandbox.read(&format!("{run}/anomaly_scores_stage3.npy"));
    assert!(sandbox.read("s.npy") == written);
    let file = format!("{run}/checkpoint/best.trees");
    sandbox.succeeds([&score[..], &[&file, "--out", "t.npy", "--memory", "1K"]].concat());
    assert!(
        sandbox.read("t.npy") == written,
        "the file alone is enough without the stages before, columns lie in files"
    );
    let eval = ["eval", "--scores", "s.npy", "--data", "data", "--format", "json", "--run", &run];
    assert_eq!(json(sandbox.succeeds(eval).stdout.as_bytes())["overall"]["roc_auc"], auc);

    let explain = ["--quiet", "explain", &run, "--node", "user:U000003", "--device", "cpu"];
    let why = json(sandbox.succeeds([&explain[..], &["--format", "json"]].concat()).stdout.as_bytes());
    let (base, total) = (why["base"].as_f64().unwrap(), why["sum"].as_f64().unwrap());
    assert!((base + sum(&why["blocks"]) - total).abs() < 1e-6 && (base + sum(&why["columns"]) - total).abs() < 1e-6);
    assert!((total - why["score"].as_f64().unwrap()).abs() < 1e-6, "a forest's contributions add up to its score");
    assert_eq!(why["node"], 3);
    assert!(!why["neighbours"].as_array().unwrap().is_empty());
    assert_eq!(why["method"]["additive"], false, "what neighbours add does not add up with trees");
    sandbox.succeeds([&explain[..], &["--out", "why.svg"]].concat());
    assert!(String::from_utf8(sandbox.read("why.svg")).unwrap().contains("Neighbourhood of user:U000003"));

    sandbox.succeeds(["export", "lightgbm", &run, "--out", "trees.txt"]);
    let text = sandbox.read("trees.txt");
    assert!(text.starts_with(b"tree\nversion=v4\n"));
    let out = ["export", "lightgbm", &file, "--out", "trees.txt"];
    sandbox.refuses(out, 1, &["trees.txt", "exists already"]);
    sandbox.succeeds([&out[..], &["--force"]].concat());
    assert!(sandbox.read("trees.txt") == text);
    sandbox.refuses(["export", "lightgbm", "data", "--out", "no.txt"], 2, &["the trees of a run of Stage 3"]);

    // The same seed makes the same bytes, wherever columns lie.
    let in_files = ["--set", "output.dir=again", "--set", "features.host_memory=1e-6"];
    sandbox.succeeds([&train[..], &in_files].concat());
    let again = sandbox.only_run("again");
    for name in ["anomaly_scores_stage3.npy", "checkpoint/best.trees", "importance.csv"] {
        assert!(sandbox.read(&format!("{run}/{name}")) == sandbox.read(&format!("{again}/{name}")), "{name}");
    }
    for (text, part) in [("user:U999", "--node"), ("99999", "a number below"), ("nobody", "no such node")] {
        sandbox.refuses(["explain", &run, "--node", text, "--device", "cpu"], 2, &[part]);
    }
    sandbox.refuses(["explain", "data", "--node", "1"], 2, &["the directory of a run"]);
    sandbox.refuses(["--quiet", "train", "--resume", &run, "--device", "cpu"], 2, &["--resume", "finished"]);
    sandbox.edit(&file, |bytes| bytes.truncate(bytes.len() / 2));
    sandbox.refuses([&score[..], &[&run, "--out", "u.npy"]].concat(), 1, &["best.trees", "length: expected"]);
}

#[cfg(unix)]
#[test]
fn trees_that_are_interrupted_say_how_they_are_made_again() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", FOREST.replace("trees = 40", "trees = 100_000"));
    let is_begun = || {
        let run = || Some(fs::read_dir(sandbox.path("runs")).ok()?.next()?.ok()?.path());
        run().is_some_and(|run| run.join("model.json").is_file())
    };
    let said = sandbox.interrupted(["train", "run.toml", "--device", "cpu"], is_begun);
    let run = sandbox.only_run("runs");
    assert_eq!(said.code, Some(130), "{}", said.stderr);
    let words = format!("interrupted; features and trees are made again. Go on with: graphsieve train --resume {run}");
    assert!(said.stderr.contains(&words), "{}", said.stderr);
    sandbox.succeeds(["--quiet", "train", "--resume", &run, "--device", "cpu", "--set", "model.trees=4"]);
}

#[test]
fn a_booster_takes_both_stages_and_is_scored_with_them() {
    let sandbox = Sandbox::with_data();
    let stage1 = "task = \"stage1\"\n[data]\npath = \"data\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 3\n\
                  [output]\ndir = \"z\"\nplots = false\n";
    sandbox.write("stage1.toml", stage1);
    sandbox.succeeds(["--quiet", "train", "stage1.toml", "--device", "cpu"]);
    let embeddings = sandbox.only_run("z");
    sandbox.write("run.toml", BOOSTER.replace("z/RUN", &embeddings));
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = sandbox.only_run("runs");
    assert_eq!(fs::read_dir(sandbox.path(&format!("{run}/folds"))).unwrap().count(), 2);
    let importance = String::from_utf8(sandbox.read(&format!("{run}/importance.csv"))).unwrap();
    for column in ["stage2_score,stage2_score,", "reconstruction,reconstruction,", "embedding.7,embedding,"] {
        assert!(importance.contains(column), "{importance}");
    }
    // An interrupted run goes on: a fold that is done is kept, one that is not trains on where it is, from the
    // beginning where it has no checkpoint to go on from, and the result is the same.
    let whole = sandbox.read(&format!("{run}/anomaly_scores_stage3.npy"));
    let folds: Vec<_> =
        fs::read_dir(sandbox.path(&format!("{run}/folds"))).unwrap().map(|entry| entry.unwrap().path()).collect();
    let done = folds[0].join("evaluation.json");
    let written = fs::metadata(&done).unwrap().modified().unwrap();
    let resume = ["--quiet", "train", "--device", "cpu", "--resume", &run];
    for lost in [&["evaluation.json"][..], &["evaluation.json", "checkpoint/last.bpk"]] {
        lost.iter().for_each(|file| fs::remove_file(folds[1].join(file)).unwrap());
        for file in ["evaluation.json", "anomaly_scores_stage3.npy", "checkpoint/best.trees"] {
            fs::remove_file(sandbox.path(&format!("{run}/{file}"))).unwrap();
        }
        let other = [&resume[..], &["--set", "stage2.model.hidden=16"]].concat();
        sandbox.refuses(other, 2, &["stage2.model", "config.toml", "resumed run"]);
        sandbox.refuses([&resume[..], &["--set", "seed=7"]].concat(), 2, &["seed: expected 42"]);
        sandbox.succeeds(resume);
        assert!(sandbox.read(&format!("{run}/anomaly_scores_stage3.npy")) == whole);
        assert_eq!(fs::metadata(&done).unwrap().modified().unwrap(), written, "a finished fold is left alone");
        assert!(folds[1].join("evaluation.json").is_file());
        assert_eq!(fs::read_dir(sandbox.path(&format!("{run}/folds"))).unwrap().count(), 2);
    }
    sandbox.refuses(resume, 2, &["finished"]);
    // Settings are written out and load again.
    let config = format!("{run}/config.toml");
    sandbox.succeeds(["config", "check", &config]);

    let score = ["--quiet", "score", "--device", "cpu", "--data", "data"];
    sandbox.succeeds([&score[..], &[&run, "--out", "s.npy"]].concat());
    let eval = ["eval", "--scores", "s.npy", "--data", "data", "--format", "json", "--run", &run];
    let found = json(&sandbox.read(&format!("{run}/evaluation.json")));
    // Test nodes have the mean of all folds in the training, too.
    let test = &found["evaluation"]["test"]["overall"];
    assert_eq!(json(sandbox.succeeds(eval).stdout.as_bytes())["overall"]["roc_auc"], test["roc_auc"]);
    let file = format!("{run}/checkpoint/best.trees");
    let alone = [&score[..], &[&file, "--input", &embeddings, "--out", "t.npy"]].concat();
    sandbox.refuses(alone, 1, &["the directory of a run"]);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", FOREST);
    let refused = |settings: &[&str], parts: &[&str]| {
        let mut arguments = vec!["--quiet", "train", "run.toml", "--device", "cpu"];
        settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
        sandbox.refuses(arguments, 2, parts);
    };
    refused(&["features.embedding=true"], &["features.embedding", "data.embeddings to be given"]);
    refused(&["features.stage2_score=true"], &["features.stage2_score", "a section [stage2]"]);
    refused(&["stage2.train.epochs=3", "features.stage2_score=false"], &["stage2", "a feature that it is for"]);
    refused(&["stage2.split.seed=3"], &["split", "training labels"]);
    refused(&["model.max_bin=70000"], &["model.max_bin", "65,535"]);
    refused(&["model.learning_rate=0.1"], &["model.learning_rate"]);
    refused(&["model.kind=tree"], &["model.kind", "\"booster\" or \"forest\""]);
    refused(&["features.hops=9"], &["hops", "from 1 to 8"]);
    let folds = ["--set", "stage2.train.epochs=1", "--set", "features.stage2_folds=400"];
    let train = [&["--quiet", "train", "run.toml", "--device", "cpu"], &folds[..]].concat();
    sandbox.refuses(train, 1, &["features.stage2_folds = 400"]);
}
