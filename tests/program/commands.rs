//! The commands that need no training, from end to end.

use std::fs;

use serde_json::Value;

use crate::support::{Sandbox, repository};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_marketplace_is_made_described_and_evaluated() {
    let sandbox = Sandbox::new();
    let made = sandbox.succeeds(["synth", "--preset", "quickstart", "--scale", "0.1", "--out", "a/b/data"]);
    assert!(made.stdout.starts_with("500 nodes"), "{}", made.stdout);
    assert!(made.stderr.contains("wrote 15 files to a/b/data"), "{}", made.stderr);

    let info = json(&sandbox.succeeds(["info", "--data", "a/b/data", "--format", "json"]).stdout);
    assert_eq!((&info["nodes"], &info["feature_dim"]), (&Value::from(500), &Value::from(128)));
    let labels = info["node_types"].as_array().unwrap();
    let count = |class: &str| labels.iter().map(|node_type| node_type[class].as_u64().unwrap()).sum::<u64>();
    assert_eq!(count("normal"), count("anomalous"));
    assert!(sandbox.succeeds(["info", "--data", "a/b/data"]).stdout.contains("epu_T"));

    // Scores that know everything.
    let labels = sandbox.read("a/b/data/labels.npy");
    let header = 10 + usize::from(u16::from_le_bytes([labels[8], labels[9]]));
    let mut scores = [0.5f32; 500];
    for entry in labels[header..].chunks_exact(16) {
        let node = u16::from_le_bytes([entry[0], entry[1]]);
        scores[usize::from(node)] = f32::from(entry[8]);
    }
    sandbox.write_scores("scores.npy", &scores);
    let eval = ["eval", "--scores", "scores.npy", "--data", "a/b/data"];
    let test = sandbox.succeeds(eval);
    assert!(test.stdout.contains("test labels") && test.stdout.contains("ROC-AUC"), "{}", test.stdout);
    assert_eq!(test.stderr, "");
    let figures = |more: &[&str]| json(&sandbox.succeeds([&eval[..], &["--format", "json"], more].concat()).stdout);
    let test = figures(&[]);
    assert_eq!((&test["part"], &test["overall"]["roc_auc"]), (&Value::from("test"), &Value::from(1.0)));
    assert_eq!(test["overall"]["f1"], 1.0);
    assert_eq!(test["groups"][0]["name"], "user");
    let [validation, all] = [&["--split", "validation"][..], &["--include-train"]].map(figures);
    assert_eq!(all["labels"], count("normal") + count("anomalous"));
    assert!(test["labels"].as_u64() < all["labels"].as_u64());
    assert_eq!(validation["labels"], test["threshold_labels"]);
    assert_eq!(test["threshold"], all["threshold"], "the threshold comes from the validation labels either way");
    assert_ne!(figures(&["--fractions", "0.2,0.2,0.6"])["labels"], test["labels"]);
}

#[test]
fn detectors_are_compared_by_a_public_protocol() {
    let sandbox = Sandbox::with_data();
    let arguments = ["bench", "gad", "--data", "data", "--splits", "2", "--models", "booster,gcn"];
    let said = sandbox.succeeds([&arguments[..], &["--json", "figures/gad.json", "--device", "cpu"]].concat());
    assert!(said.stdout.contains("protocol full, 2 splits") && said.stdout.contains("AUPRC"), "{}", said.stdout);
    assert!(said.stderr.contains("models: 4/4"), "{}", said.stderr);
    let report = json(&String::from_utf8(sandbox.read("figures/gad.json")).unwrap());
    let models = report["models"].as_array().unwrap();
    assert_eq!((&models[0]["model"], &models[1]["model"]), (&"booster".into(), &"gcn".into()));
    for model in models {
        let splits = model["splits"].as_array().unwrap();
        let of = |split: &Value| split["test"]["auprc"].as_f64().unwrap();
        let mean = splits.iter().map(of).sum::<f64>() / 2.0;
        assert!((mean - model["test"]["auprc"]["mean"].as_f64().unwrap()).abs() < 1e-12, "{model}");
        assert!(splits[0]["setting"].as_str().unwrap().starts_with(model["model"].as_str().unwrap()), "{model}");
        assert!(model["seconds"].as_f64() > Some(0.0));
    }
    // The same command prints the same figures; an existing file is kept.
    let again = json(&sandbox.succeeds([&arguments[..], &["--quiet", "--format", "json"]].concat()).stdout);
    assert_eq!(again["models"][0]["test"], report["models"][0]["test"]);
    sandbox.refuses([&arguments[..], &["--json", "figures/gad.json"]].concat(), 1, &["exists already", "--force"]);
}

#[test]
fn the_split_of_a_run_is_used_for_its_evaluation() {
    let sandbox = Sandbox::with_data();
    sandbox.write_scores("scores.npy", &[0.25; 500]);
    fs::create_dir(sandbox.path("run")).unwrap();
    let meta = r#"{"version": "0", "git_commit": null, "device": "cpu", "seed": 3, "command": [], "started": ""}"#;
    sandbox.write("run/meta.json", meta);
    let eval = ["eval", "--scores", "scores.npy", "--data", "data", "--run", "run", "--format", "json"];
    let split = "[data]\npath = \"data\"\n[split]\nseed = 7\ntrain = 0.2\nvalidation = 0.2\ntest = 0.6\n";
    sandbox.write("run/config.toml", format!("task = \"stage2\"\n{split}"));
    let figures = json(&sandbox.succeeds(eval).stdout);
    assert_eq!(figures["seed"], 7);
    assert!(figures["labels"].as_u64() > figures["threshold_labels"].as_u64());
    sandbox.write("run/config.toml", "task = \"stage1\"\n[data]\npath = \"data\"\n");
    sandbox.refuses(eval, 2, &["--run run: expected a run that splits labels"]);
}

#[test]
fn a_seed_decides_every_byte() {
    let sandbox = Sandbox::new();
    for (seed, out) in [("1", "a"), ("1", "b"), ("2", "c")] {
        sandbox.succeeds(["--quiet", "synth", "--scale", "0.1", "--seed", seed, "--out", out]);
    }
    let content = |data: &str| {
        let names = fs::read_dir(sandbox.path(data)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names.iter().map(|name| sandbox.read(&format!("{data}/{name}"))).collect::<Vec<_>>()
    };
    assert!(content("a") == content("b"));
    assert!(content("a") != content("c"));
}

#[test]
fn quiet_leaves_nothing_but_the_result() {
    let sandbox = Sandbox::new();
    let said = sandbox.succeeds(["synth", "--scale", "0.1", "--out", "data", "--quiet"]);
    assert!(said.stderr.is_empty() && said.stdout.starts_with("500 nodes"), "{said:?}");
}

#[test]
fn amazon_tables_become_a_data_directory() {
    let sandbox = Sandbox::new();
    let products = (0..6).map(|p| {
        let price = 10.0 + f64::from(p);
        format!(
            r#"{{"asin": "P{p}", "title": "Acme case {p}", "brand": "Acme", "category": ["Cases"], "price": {price}}}"#
        )
    });
    let reviews = (0..40).map(|r| {
        let (user, product, verified) = (r % 8, r % 6, r % 8 != 0);
        format!(
            r#"{{"reviewerID": "A{user}", "asin": "P{product}", "overall": {}, "verified": {verified}, "unixReviewTime": {}, "reviewText": "Text {r}"}}"#,
            1 + r % 5,
            1_500_000_000 + 86_400 * r
        )
    });
    sandbox.write("meta.json", products.collect::<Vec<_>>().join("\n"));
    sandbox.write("reviews.json", reviews.collect::<Vec<_>>().join("\n"));
    sandbox.write("thresholds.toml", "user_max_burst = 2\n");
    let tables = ["prepare", "amazon", "--reviews", "reviews.json", "--metadata", "meta.json"];
    let said = sandbox.succeeds([&tables[..], &["--thresholds", "thresholds.toml", "--out", "weak"]].concat());
    assert!(said.stdout.contains("8 users, 6 products, 1 sellers"), "{}", said.stdout);
    assert!(said.stdout.contains("labels"), "{}", said.stdout);
    assert!(said.stderr.contains("to weak"), "{}", said.stderr);

    sandbox.write("labels.csv", "id,label\nA0,1\nP3,0\n");
    sandbox.succeeds([&tables[..], &["--labels", "labels.csv", "--co-review-cap", "3", "--out", "own"]].concat());
    let info = json(&sandbox.succeeds(["info", "--data", "own", "--format", "json"]).stdout);
    assert_eq!(info["node_types"][0]["anomalous"], 1);
    assert_eq!(info["node_types"][1]["normal"], 1);
}

#[test]
fn a_configuration_that_is_shown_runs_as_it_is() {
    let sandbox = Sandbox::new();
    for name in ["quickstart", "stage1", "stage2", "cora-gcn", "cora-gat"] {
        let file = repository(&format!("configs/{name}.toml"));
        let file = file.to_str().unwrap();
        let shown = sandbox.succeeds(["config", "show", file, "--set", "seed=7"]).stdout;
        assert!(shown.contains("seed = 7"), "{shown}");
        sandbox.write("shown.toml", &shown);
        assert_eq!(sandbox.succeeds(["config", "show", "shown.toml"]).stdout, shown);
        let checked = sandbox.succeeds(["config", "check", file, "shown.toml"]).stdout;
        assert_eq!(checked, format!("{file}: ok\nshown.toml: ok\n"));
    }
}

#[test]
fn every_file_is_checked_and_every_error_shown() {
    let sandbox = Sandbox::new();
    sandbox.write("a.toml", "task = 1\n");
    sandbox.write("b.toml", "task = \"stage2\"\n[data]\npath = \"data\"\n");
    sandbox.write("c.toml", "tsk = \"stage2\"\n");
    let said = sandbox.run(["config", "check", "a.toml", "b.toml", "c.toml"]);
    said.is_refused(2, &["error: a.toml:1", "error: c.toml"]);
    assert_eq!(said.stdout, "b.toml: ok\n");
}

#[test]
fn info_says_what_there_is_and_what_auto_takes() {
    let sandbox = Sandbox::new();
    let info = json(&sandbox.succeeds(["info", "--format", "json"]).stdout);
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["backends"][0], "cpu");
    assert!(info["cpu"]["threads"].as_u64().unwrap() >= 1);
    for api in ["cuda", "vulkan"] {
        let (devices, unusable) = (info[api]["devices"].as_array(), info[api]["unusable"].as_str());
        assert!(devices.is_some_and(|devices| !devices.is_empty()) || unusable.is_some_and(|why| !why.is_empty()));
    }
    let (device, reason) = (info["auto"]["device"].as_str().unwrap(), info["auto"]["reason"].as_str().unwrap());
    assert!(reason.starts_with("auto: "), "{reason}");
    if device.starts_with("cpu") {
        assert!(reason.contains("no CUDA (") && reason.contains("no Vulkan GPU ("), "{reason}");
    }
    assert!(sandbox.succeeds(["info"]).stdout.contains(device));
}

#[test]
fn every_command_explains_itself() {
    let sandbox = Sandbox::new();
    let commands = [
        "import",
        "import tables",
        "import npz",
        "import mat",
        "import amazon",
        "prepare amazon",
        "export tables",
        "synth",
        "train",
        "score",
        "eval",
        "explain",
        "report",
        "completions",
        "man",
        "info",
        "plan",
        "bench",
        "config init",
        "config show",
        "config check",
    ];
    for command in commands {
        let said = sandbox.succeeds(command.split(' ').chain(["--help"]));
        assert!(said.stdout.contains("Usage: graphsieve") && said.stderr.is_empty(), "{command}: {said:?}");
    }
    assert!(sandbox.succeeds(["--version"]).stdout.contains(env!("CARGO_PKG_VERSION")));
}
