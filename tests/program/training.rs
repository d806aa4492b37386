//! Training, scoring and resuming through the program, and what they refuse: checkpoints, inputs and outputs that do
//! not fit. Everything runs on the processor with a tiny model.

use std::fs;

use serde_json::Value;

use crate::support::{Sandbox, labels_npy, npy};

const STAGE2: &str = r#"task = "stage2"
[data]
path = "data"
input = "features"
[model]
hidden = 8
out = 8
[train]
epochs = 3
learning_rate = 0.01
validate_every = 1
checkpoint_every = 1
[output]
dir = "runs"
plots = false
"#;

const STAGE1: &str = r#"task = "stage1"
[data]
path = "data"
[model]
hidden = 8
out = 4
[train]
epochs = 2
[output]
dir = "runs"
plots = false
"#;

fn with_config(config: &str) -> Sandbox {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", config);
    sandbox
}

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--quiet", "train", "run.toml", "--device", "cpu"], more].concat()
}

fn score<'a>(checkpoint: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["--quiet", "score", checkpoint, "--data", "data", "--out", "s.npy", "--device", "cpu"];
    [&fixed, more].concat()
}

/// A sandbox with a finished Stage-2 run.
fn trained() -> (Sandbox, String) {
    let sandbox = with_config(STAGE2);
    sandbox.succeeds(train(&[]));
    let run = sandbox.only_run("runs");
    (sandbox, run)
}

#[test]
fn a_gate_with_nothing_to_weigh_is_refused_and_one_between_both_is_trained_and_scored() {
    let sandbox = with_config(STAGE2);
    // Every node of a marketplace has a loop, so that no type has a transform of its own.
    let gate = ["--set", "model.gate=true"];
    sandbox.refuses(train(&gate), 2, &["model.gate", "every node of this graph has a loop", "\"always\""]);
    assert!(!sandbox.path("runs").exists());
    let more = ["--set", "model.own=always", "--set", "model.norm=layer", "--set", "model.jump=concat"];
    sandbox.succeeds(train(&[gate, [more[0], more[1]], [more[2], more[3]], [more[4], more[5]]].concat()));
    let run = sandbox.only_run("runs");
    let scores = sandbox.read(&format!("{run}/anomaly_scores_stage2.npy"));
    // Again from the checkpoint.
    sandbox.succeeds(score(&run, &[]));
    assert_eq!(sandbox.read("s.npy"), scores);
    let embeddings = sandbox.read(&format!("{run}/Z_stage2.npy"));
    let header = String::from_utf8_lossy(&embeddings[..128]).into_owned();
    assert!(header.contains(", 16)"), "both layers side by side: {header}");
}

#[test]
fn columns_in_pieces_are_the_same_however_they_are_computed() {
    let sandbox = with_config(STAGE2);
    let pieces = ["--set", "model.pieces=4"];
    sandbox.refuses(train(&pieces), 2, &["model.pieces", "= 4: expected 0", "every node of this graph has a loop"]);
    let never = [&pieces[..], &["--set", "model.own=never"]].concat();
    sandbox.refuses(train(&never), 2, &["model.pieces", "0 where model.own = \"never\""]);
    assert!(!sandbox.path("runs").exists());
    let always = [&pieces[..], &["--set", "model.own=always"]].concat();
    sandbox.succeeds(train(&always));
    let run = sandbox.only_run("runs");
    let scores = sandbox.read(&format!("{run}/anomaly_scores_stage2.npy"));
    sandbox.succeeds(score(&run, &[]));
    assert_eq!(sandbox.read("s.npy"), scores);
    let loss = |run: &str| -> f64 {
        let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        last["loss"].as_f64().unwrap()
    };
    let plain = ["--set", "model.own=always", "--set", "output.dir=plain"];
    let chunks = [&always[..], &["--set", "train.chunk_size=70", "--set", "output.dir=chunks"]].concat();
    let batches = [&always[..], &["--set", "loader.mode=sampled", "--set", "output.dir=batches"]].concat();
    [&plain[..], &chunks, &batches].iter().for_each(|keys| drop(sandbox.succeeds(train(keys))));
    let [plain, chunks] = ["plain", "chunks"].map(|dir| loss(&sandbox.only_run(dir)));
    let whole = loss(&run);
    assert!((chunks - whole).abs() < 1e-4, "{chunks} in chunks, {whole} whole");
    assert!((plain - whole).abs() > 1e-3, "pieces change nothing: {plain}");
    // Layer by layer, as mini-batches are scored, and over the whole graph.
    let batches = sandbox.only_run("batches");
    sandbox.succeeds(score(&batches, &["--force"]));
    let values = |file: &str| -> Vec<f32> {
        let bytes = sandbox.read(file);
        let numbers = &bytes[10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))..];
        numbers.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
    };
    let [there, here] = [values(&format!("{batches}/anomaly_scores_stage2.npy")), values("s.npy")];
    let apart = there.iter().zip(&here).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(there.len() == here.len() && apart < 1e-5, "{apart}");
}

/// A learning rate that moves nothing: the first epoch stays the best one.
#[test]
fn a_training_ends_when_validation_no_longer_improves() {
    let sandbox = with_config(STAGE2);
    let more = ["--set", "train.epochs=9", "--set", "train.learning_rate=1e-30", "--set", "early_stop.patience=3"];
    let said = sandbox.succeeds(train(&[&more[..], &["--set", "early_stop.metric=average_precision"]].concat()));
    let run = sandbox.only_run("runs");
    let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
    let epochs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(epochs.len(), 4, "the best epoch is 1, and three follow");
    assert!(said.stdout.contains("best epoch 1,"), "{}", said.stdout);
    let best = epochs[0]["validation_average_precision"].as_f64().unwrap();
    assert!(best > 0.0 && best < 1.0 && epochs.iter().all(|line| line["validation_auc"].is_number()));
    // What is over stays over.
    let said = sandbox.succeeds(["train", "--resume", &run, "--device", "cpu"]).stderr;
    assert!(said.contains("nothing is left to train: the run ended with epoch 4 of 9"), "{said}");
    assert_eq!(String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap(), lines);
    sandbox.refuses(train(&["--set", "early_stop.metric=accuracy"]), 2, &["early_stop.metric", "average_precision"]);
    // Where it moves, what is kept is the epoch of the highest average precision in the log, the first of equals.
    let moved = ["train.epochs=12", "train.learning_rate=0.05", "early_stop.metric=average_precision"];
    let moved: Vec<&str> = moved.iter().chain(&["output.dir=moved"]).flat_map(|key| ["--set", *key]).collect();
    sandbox.succeeds(train(&moved));
    let run = sandbox.only_run("moved");
    let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
    let epochs = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let figure = |line: &Value| line["validation_average_precision"].as_f64().unwrap();
    let figures: Vec<(u64, f64)> = epochs.map(|line| (line["epoch"].as_u64().unwrap(), figure(&line))).collect();
    let best = figures.iter().copied().reduce(|best, of| if of.1 > best.1 { of } else { best }).unwrap();
    assert!(figures.len() == 12 && figures.iter().any(|(_, figure)| *figure < best.1), "{figures:?}");
    let outcome: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
    assert_eq!(outcome["best_epoch"], best.0, "{figures:?}");
    let kept = outcome["evaluation"]["validation"]["overall"]["average_precision"].as_f64().unwrap();
    assert!((kept - best.1).abs() < 1e-9, "{kept} for {best:?}");
}

#[test]
fn a_run_is_trained_scored_and_evaluated() {
    let (sandbox, run) = trained();
    assert!(run.ends_with("-stage2"), "{run}");
    let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
    let epochs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(epochs.iter().map(|line| line["epoch"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(epochs.iter().all(|line| line["loss"].as_f64().unwrap().is_finite()));
    let meta: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/meta.json"))).unwrap();
    assert!(meta["device"].as_str().unwrap().starts_with("cpu"), "{meta}");
    assert_eq!((&meta["seed"], &meta["command"][1]), (&Value::from(42), &Value::from("--quiet")));

    sandbox.succeeds(score(&run, &["--embeddings", "z.npy"]));
    let z = sandbox.read("z.npy");
    assert!(String::from_utf8_lossy(&z[..100]).contains("(500, 8)"));
    assert_eq!(sandbox.read("s.npy"), sandbox.read(&format!("{run}/anomaly_scores_stage2.npy")));
    let eval = ["eval", "--scores", "s.npy", "--data", "data", "--run", &run, "--format", "json"];
    let evaluated: Value = serde_json::from_str(&sandbox.succeeds(eval).stdout).unwrap();
    let summary: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
    assert_eq!(evaluated["overall"], summary["evaluation"]["test"]["overall"]);

    // Written before: only --force replaces it.
    sandbox.refuses(score(&run, &[]), 1, &["s.npy: exists already", "--force"]);
    sandbox.succeeds(score(&run, &["--force"]));
}

#[test]
fn a_run_is_scored_in_the_precision_that_it_was_trained_in() {
    let sandbox = with_config(STAGE2);
    for (at, (precision, mode)) in [("f16", "full"), ("bf16", "full"), ("f16", "sampled")].into_iter().enumerate() {
        let [precision, mode, dir] =
            [format!("train.precision={precision}"), format!("loader.mode={mode}"), format!("output.dir=runs{at}")];
        sandbox.succeeds(train(&["--set", &precision, "--set", &mode, "--set", &dir]));
        let run = sandbox.only_run(&format!("runs{at}"));
        sandbox.succeeds(score(&run, &["--force"]));
        let own = sandbox.read(&format!("{run}/anomaly_scores_stage2.npy"));
        assert!(sandbox.read("s.npy") == own, "{precision}, {mode}");
    }
}

/// What a training says of mini-batches that the processor makes, where the device may not hold the graph.
const OF_BATCHES: [&str; 5] = [
    "sampled mini-batches: at once it takes about",
    "loader.memory allows 1.0 kB",
    "features: gathered by the processor: kernels of this device do not read host memory",
    "neighbours: sampled by the processor",
    "mini-batches of",
];

#[test]
fn a_run_in_mini_batches_is_scored_resumed_and_says_what_it_moved() {
    let sampled = "[loader]\nmode = \"auto\"\nmemory = 1e-6\nfanouts = [4, 3]\nbatch_size = 2000\nhot = 0.1\n";
    let sandbox = with_config(&format!("{STAGE2}{sampled}"));
    let said = sandbox.succeeds(["train", "run.toml", "--device", "cpu", "--set", "loss.samples_per_relation=500"]);
    for part in OF_BATCHES {
        assert!(said.stderr.contains(part) || said.stdout.contains(part), "{part}: {said:?}");
    }
    let run = sandbox.only_run("runs");
    sandbox.succeeds(score(&run, &["--embeddings", "z.npy"]));
    assert_eq!(sandbox.read("s.npy"), sandbox.read(&format!("{run}/anomaly_scores_stage2.npy")));

    // Two epochs and one more are three.
    let more = ["--set", "loss.samples_per_relation=500", "--set", "output.dir=parts"];
    sandbox.succeeds(train(&[&more[..], &["--set", "train.epochs=2"]].concat()));
    let part = sandbox.only_run("parts");
    sandbox.succeeds(["--quiet", "train", "--resume", &part, "--device", "cpu", "--set", "train.epochs=3"]);
    let meta: Value = serde_json::from_slice(&sandbox.read(&format!("{part}/meta.json"))).unwrap();
    assert_eq!(meta["command"].as_array().unwrap().last().unwrap(), "train.epochs=2");
    let resumed = meta["resumed"].as_array().unwrap();
    assert_eq!(
        (resumed.len(), resumed[0]["command"].as_array().unwrap().last().unwrap()),
        (1, &"train.epochs=3".into())
    );
    // The window starts empty again, so that rows stand in other slots and sums are taken in another order.
    let scores = |run: &str| -> Vec<f32> {
        let bytes = sandbox.read(&format!("{run}/anomaly_scores_stage2.npy"));
        let values = bytes[bytes.len() - 500 * 4..].chunks_exact(4);
        values.map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
    };
    let (whole, parts) = (scores(&run), scores(&part));
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-4), "{whole:?} {parts:?}");
    assert!(whole.iter().any(|score| (score - whole[0]).abs() > 1e-3));
    let losses = |run: &str| -> Vec<f64> {
        let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64().unwrap()).collect()
    };
    let (whole, parts) = (losses(&run), losses(&part));
    assert!(whole.len() == 3 && parts.len() == 3);
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} {parts:?}");
    // A device that cannot read host memory is not asked to.
    let zero_copy = train(&["--set", "loader.transfer=zero_copy", "--set", "output.dir=none"]);
    sandbox.refuses(zero_copy, 2, &["loader.transfer = \"zero_copy\"", "loader.transfer = \"gathered\""]);
}

#[test]
fn a_stage_1_in_mini_batches_is_resumed_embedded_and_says_what_it_moved() {
    let sandbox = Sandbox::with_data();
    let keys = "hidden = 8\nout = 8\n[train]\nepochs = 3\nschedule = \"constant\"\ncheckpoint_every = 1\n[loader]\n\
                mode = \"auto\"\nmemory = 1e-6\nfanouts = [4, 3]\nbatch_size = 500\nhot = 0.1";
    let fixed = "[output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("run.toml", format!("task = \"stage1\"\n[data]\npath = \"data\"\n[model]\n{keys}\n{fixed}"));
    let said = sandbox.succeeds(["train", "run.toml", "--device", "cpu"]);
    for part in OF_BATCHES.into_iter().chain(["held out of training"]) {
        assert!(said.stderr.contains(part) || said.stdout.contains(part), "{part}: {said:?}");
    }
    let run = sandbox.only_run("runs");
    let embeddings = |run: &str| sandbox.read(&format!("{run}/Z_embeddings_stage1.npy"));
    sandbox.succeeds(["--quiet", "embed", &run, "--data", "data", "--out", "z.npy", "--device", "cpu"]);
    assert!(sandbox.read("z.npy") == embeddings(&run));

    let part = ["--set", "train.epochs=2", "--set", "output.dir=parts"];
    sandbox.succeeds(train(&part));
    let part = sandbox.only_run("parts");
    sandbox.succeeds(["--quiet", "train", "--resume", &part, "--device", "cpu", "--set", "train.epochs=3"]);
    // The window starts empty again, so that rows stand in other slots and sums are taken in another order.
    let values = |run: &str| -> Vec<f32> {
        let bytes = embeddings(run);
        let values = bytes[bytes.len() - 500 * 8 * 4..].chunks_exact(4);
        values.map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
    };
    let apart = values(&run).iter().zip(values(&part)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-4, "{apart}");
    let figures = |run: &str, key: &str| -> Vec<f64> {
        let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter_map(|line| line[key].as_f64()).collect()
    };
    let (whole, parts) = (figures(&run, "loss"), figures(&part, "loss"));
    assert!(whole.len() == 3 && parts.len() == 3);
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} {parts:?}");
    let (whole, parts) = (figures(&run, "edge_auc"), figures(&part, "edge_auc"));
    assert!((whole[whole.len() - 1] - parts[parts.len() - 1]).abs() < 1e-4, "{whole:?} {parts:?}");
}

#[test]
fn the_configuration_of_a_run_runs_as_it_is_and_gives_the_same_bytes() {
    let (sandbox, run) = trained();
    let config = format!("{run}/config.toml");
    sandbox.succeeds(["--quiet", "train", &config, "--device", "cpu", "--name", "again", "--set", "output.dir=others"]);
    let again = sandbox.only_run("others");
    assert!(again.ends_with("-again"), "{again}");
    for file in ["metrics.jsonl", "anomaly_scores_stage2.npy"] {
        assert!(sandbox.read(&format!("{run}/{file}")) == sandbox.read(&format!("{again}/{file}")), "{file}");
    }
}

#[test]
fn a_run_goes_on_from_its_last_checkpoint_as_if_it_had_never_stopped() {
    let (sandbox, whole) = trained();
    sandbox.succeeds(train(&["--set", "train.epochs=2", "--set", "output.dir=parts"]));
    let part = sandbox.only_run("parts");
    sandbox.succeeds(["--quiet", "train", "--device", "cpu", "--resume", &part, "--set", "train.epochs=3"]);
    for file in ["metrics.jsonl", "anomaly_scores_stage2.npy"] {
        assert!(sandbox.read(&format!("{whole}/{file}")) == sandbox.read(&format!("{part}/{file}")), "{file}");
    }
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_refused() {
    let (sandbox, run) = trained();
    sandbox.refuses(score("nowhere.bpk", &[]), 1, &["nowhere.bpk: cannot read"]);
    sandbox.refuses(score("data", &[]), 1, &["data: checkpoint/best.bpk: expected", "no such file"]);
    let whole = sandbox.read(&format!("{run}/checkpoint/best.bpk"));
    for length in [0, 1, 11, 100, whole.len() / 2, whole.len() - 1] {
        sandbox.write("part.bpk", &whole[..length]);
        sandbox.refuses(score("part.bpk", &[]), 1, &["part.bpk", "expected"]);
    }
    let whole = sandbox.read(&format!("{run}/checkpoint/best.safetensors"));
    for length in [0, 7, 100, whole.len() - 1] {
        sandbox.write("part.safetensors", &whole[..length]);
        sandbox.refuses(score("part.safetensors", &[]), 1, &["part.safetensors", "expected"]);
    }
    for name in ["text.bpk", "text.safetensors", "text.pt", "text.onnx"] {
        sandbox.write(name, "this is no checkpoint, whatever its name says; it only has to be longer than a header\n");
        sandbox.refuses(score(name, &[]), 1, &[name, "expected"]);
    }
}

#[test]
fn a_checkpoint_of_other_shapes_is_refused() {
    let (sandbox, run) = trained();
    sandbox.write("z.npy", npy("<f4", "(500, 5)", &[0; 500 * 5 * 4]));
    let parts = ["z.npy: width: expected 128 columns", "found 5"];
    sandbox.refuses(score(&run, &["--input", "z.npy"]), 1, &parts);
    let resume = ["--quiet", "train", "--device", "cpu", "--resume", &run, "--set"];
    sandbox.refuses([&resume[..], &["model.hidden=16"]].concat(), 2, &["last.bpk", "expected", "found"]);

    // Another kind of graph: one relation, other streams.
    fs::create_dir(sandbox.path("other")).unwrap();
    let manifest = "[[node_types]]\nname = \"review\"\ncount = 2\n[features]\nfile = \"x.bin\"\ndim = 128\n\
                    [[relations]]\nname = \"r\"\nsrc = \"review\"\ndst = \"review\"\nids = \"local\"\n";
    sandbox.write("other/graph.toml", manifest);
    sandbox.write("other/x.bin", [0; 2 * 128 * 2]);
    sandbox.write("other/r_row_ptr.bin", [0i32, 1, 2].map(i32::to_le_bytes).concat());
    sandbox.write("other/r_col_idx.bin", [1i32, 0].map(i32::to_le_bytes).concat());
    let other = ["--quiet", "score", &run, "--data", "other", "--out", "o.npy", "--device", "cpu"];
    sandbox.refuses(other, 1, &["best.bpk: streams: expected streams r, found"]);
}

#[test]
fn a_run_of_stage_1_scores_and_embeds_and_is_not_taken_for_another() {
    let sandbox = with_config(STAGE1);
    sandbox.succeeds(train(&[]));
    let run = sandbox.only_run("runs");
    assert!(sandbox.path(&run).join("Z_embeddings_stage1.npy").is_file());
    sandbox.succeeds(score(&run, &[]));
    let embed = ["--quiet", "embed", &run, "--device", "cpu", "--out"];
    sandbox.succeeds([&embed[..], &["Z.npy", "--data", "data"]].concat());
    assert!(sandbox.read("Z.npy") == sandbox.read(&format!("{run}/Z_embeddings_stage1.npy")));
    sandbox.refuses([&embed[..], &["Z.npy"]].concat(), 1, &["exists already"]);
    sandbox.succeeds(["--quiet", "synth", "--scale", "0.1", "--seed", "3", "--out", "other"]);
    sandbox.succeeds([&embed[..], &["other.npy", "--data", "other"]].concat());
    let eval = ["eval", "--scores", "s.npy", "--data", "data", "--run", &run];
    sandbox.refuses(eval, 2, &["expected a run that splits labels"]);
}

#[test]
fn a_damaged_run_is_not_resumed() {
    let (sandbox, run) = trained();
    let resume = ["--quiet", "train", "--device", "cpu", "--resume", &run, "--set", "train.epochs=4"];
    let refused = |file: &str, change: fn(&mut Vec<u8>), code: i32| {
        let file = format!("{run}/{file}");
        let whole = sandbox.read(&file);
        sandbox.edit(&file, change);
        sandbox.refuses(resume, code, &[&file]);
        sandbox.write(&file, whole);
    };
    refused("checkpoint/last.bpk", |bytes| bytes.truncate(bytes.len() / 2), 1);
    refused("meta.json", |bytes| bytes.truncate(10), 1);
    refused("config.toml", |bytes| bytes.extend(b"\n[nonsense]\nkey = 1\n"), 2);
    refused("metrics.jsonl", |bytes| bytes[0] = b'?', 1);
    fs::remove_file(sandbox.path(&format!("{run}/checkpoint/last.bpk"))).unwrap();
    sandbox.refuses(resume, 1, &["last.bpk: cannot read"]);
}

#[test]
fn input_that_does_not_fit_stops_a_training_before_it_makes_a_run() {
    let sandbox = with_config(STAGE2);
    let embeddings = ["--set", "data.input=embeddings", "--set", "data.embeddings=z.npy"];
    sandbox.refuses(train(&embeddings), 1, &["z.npy: cannot read"]);
    sandbox.write("z.npy", npy("<f4", "(499, 2)", &[0; 499 * 2 * 4]));
    sandbox.refuses(train(&embeddings), 1, &["z.npy: shape: expected 500 rows, one per node of the graph, found 499"]);
    let mut values = vec![0u8; 500 * 2 * 4];
    values[7 * 4..8 * 4].copy_from_slice(&f32::NAN.to_le_bytes());
    sandbox.write("z.npy", npy("<f4", "(500, 2)", &values));
    sandbox.refuses(train(&embeddings), 1, &["z.npy: row 3, column 1: expected a finite number, found NaN"]);
    sandbox.refuses(train(&["--set", "data.path=nowhere"]), 1, &["nowhere: cannot open"]);

    let labels = sandbox.read("data/labels.npy");
    sandbox.write("data/labels.npy", labels_npy(&[(0, 1), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0)]));
    sandbox.refuses(train(&[]), 1, &["class 1 (anomalous)", "at least one example in each of training"]);
    fs::remove_file(sandbox.path("data/labels.npy")).unwrap();
    sandbox.refuses(train(&[]), 1, &["labels.npy: expected labelled nodes, found no such file"]);
    sandbox.write("data/labels.npy", labels);
    fs::remove_file(sandbox.path("data/X_combined.memmap")).unwrap();
    sandbox.refuses(train(&[]), 1, &["data: features: expected a feature file, found none"]);
    sandbox.write("run.toml", STAGE1);
    sandbox.refuses(train(&[]), 1, &["data: features: expected a feature file, found none"]);
}

#[test]
fn outputs_that_cannot_be_written_are_refused() {
    let sandbox = with_config(STAGE2);
    sandbox.write("file", "");
    sandbox.refuses(train(&["--set", "output.dir=file/runs"]), 1, &["file", "cannot create"]);
    sandbox.refuses(train(&["--name", "../up"]), 2, &["../up"]);
    let score = ["score", "c.bpk", "--data", "data", "--out"];
    sandbox.refuses([&score[..], &["file/s.npy"]].concat(), 1, &["file/s.npy: cannot"]);
    sandbox.refuses([&score[..], &["data", "--format", "npy", "--force"]].concat(), 1, &["data: cannot write"]);
}

#[test]
fn a_loss_that_diverges_stops_the_run_and_is_named() {
    let sandbox = with_config(STAGE2);
    // More than f32 can hold.
    let said = sandbox.run(train(&["--set", "loss.lambda_unsup=1e308", "--set", "train.epochs=5"]));
    said.is_refused(1, &["in epoch", "lower train.learning_rate"]);
}

#[test]
fn a_run_that_ended_before_its_first_checkpoint_begins_again() {
    let (sandbox, run) = trained();
    let files = ["metrics.jsonl", "anomaly_scores_stage2.npy"];
    let whole = files.map(|file| sandbox.read(&format!("{run}/{file}")));
    fs::remove_dir_all(sandbox.path(&format!("{run}/checkpoint"))).unwrap();
    // What it had logged until then goes.
    sandbox.edit(&format!("{run}/metrics.jsonl"), |bytes| bytes.truncate(bytes.len() / 2));
    sandbox.succeeds(["--quiet", "train", "--device", "cpu", "--resume", &run]);
    assert!(files.map(|file| sandbox.read(&format!("{run}/{file}"))) == whole);
}

const PIPELINE: &str = r#"task = "pipeline"
name = "both"
[data]
path = "market"
[synth]
preset = "quickstart"
scale = 0.1
[stage1]
model.hidden = 8
model.out = 4
train.epochs = 4
[stage2]
model.hidden = 8
model.out = 8
train.epochs = 3
train.validate_every = 1
[output]
dir = "runs"
plots = false
"#;

#[test]
fn a_pipeline_goes_on_to_its_end_wherever_it_ended() {
    let sandbox = with_config(PIPELINE);
    sandbox.succeeds(train(&[]));
    let runs = |name: &str| -> Vec<String> {
        let entries = fs::read_dir(sandbox.path("runs")).unwrap();
        let names = entries.map(|entry| format!("runs/{}", entry.unwrap().file_name().to_str().unwrap()));
        names.filter(|run| run.ends_with(name)).collect()
    };
    let only = |name: &str| -> String {
        let mut runs = runs(name);
        assert_eq!(runs.len(), 1, "{name}: {runs:?}");
        runs.swap_remove(0)
    };
    let (pipeline, first, second) = (only("-both"), only("-both-stage1"), only("-both-stage2"));
    let files = [
        format!("{first}/metrics.jsonl"),
        format!("{first}/Z_embeddings_stage1.npy"),
        format!("{second}/metrics.jsonl"),
        format!("{second}/anomaly_scores_stage2.npy"),
    ];
    let whole = files.each_ref().map(|file| sandbox.read(file));
    let resume = ["--quiet", "train", "--device", "cpu", "--resume", &pipeline];

    // In Stage 2, before its first checkpoint. Stage 1 is done.
    fs::remove_dir_all(sandbox.path(&format!("{second}/checkpoint"))).unwrap();
    fs::remove_file(sandbox.path(&files[3])).unwrap();
    let said = sandbox.succeeds(&resume[1..]).stderr;
    assert!(said.contains("stage 1: 4/4, ") && !said.contains("nothing is left"), "{said}");
    assert!(files.each_ref().map(|file| sandbox.read(file)) == whole);

    // In Stage 1, before there is a Stage 2.
    fs::remove_dir_all(sandbox.path(&second)).unwrap();
    fs::remove_dir_all(sandbox.path(&format!("{first}/checkpoint"))).unwrap();
    fs::remove_file(sandbox.path(&files[1])).unwrap();
    let stages: Value = serde_json::from_slice(&sandbox.read(&format!("{pipeline}/stages.json"))).unwrap();
    let stages = serde_json::json!({ "stage1": stages["stage1"] });
    sandbox.write(&format!("{pipeline}/stages.json"), stages.to_string());
    sandbox.succeeds(resume);
    let again = only("-both-stage2");
    for (file, bytes) in [("metrics.jsonl", &whole[2]), ("anomaly_scores_stage2.npy", &whole[3])] {
        assert!(&sandbox.read(&format!("{again}/{file}")) == bytes, "{file}");
    }
    assert!(sandbox.read(&files[1]) == whole[1] && sandbox.read(&files[0]) == whole[0]);
    assert_eq!(runs("").len(), 3);

    // Other data would be another pipeline.
    sandbox.refuses([&resume[..], &["--set", "seed=7"]].concat(), 2, &["seed", "keeps what it has begun"]);
}

#[test]
fn a_pipeline_of_three_stages_ends_with_a_model_that_is_resumed_and_scored() {
    let third = "[stage3]\nfeatures.stage2_folds = 2\nmodel.trees = 9\n";
    let sandbox = with_config(&PIPELINE.replace("[output]", &format!("{third}[output]")));
    let said = sandbox.succeeds(train(&[]));
    assert!(said.stdout.contains("Stage 3: 9 trees"), "{}", said.stdout);
    let entries = fs::read_dir(sandbox.path("runs")).unwrap();
    let mut runs: Vec<String> =
        entries.map(|entry| format!("runs/{}", entry.unwrap().file_name().to_str().unwrap())).collect();
    runs.sort_unstable_by_key(|run| run.rsplit('-').next().unwrap().to_owned());
    let [pipeline, _, _, last] = &runs[..] else { panic!("{runs:?}") };
    assert!(pipeline.ends_with("-both") && last.ends_with("-both-stage3"), "{runs:?}");
    let scores = format!("{last}/anomaly_scores_stage3.npy");
    let whole = sandbox.read(&scores);
    sandbox.succeeds(["--quiet", "score", last, "--device", "cpu", "--out", "scores.csv"]);
    for file in ["evaluation.json", "anomaly_scores_stage3.npy"] {
        fs::remove_file(sandbox.path(&format!("{last}/{file}"))).unwrap();
    }
    sandbox.succeeds(["--quiet", "train", "--device", "cpu", "--resume", pipeline]);
    assert!(sandbox.read(&scores) == whole);
}

#[test]
fn a_pipeline_that_has_no_labels_for_its_second_stage_does_not_train_the_first() {
    let pipeline = "task = \"pipeline\"\n[data]\npath = \"data\"\n[output]\ndir = \"runs\"\nplots = false\n\
                    [stage1]\nmodel.hidden = 8\nmodel.out = 4\ntrain.epochs = 1\n\
                    [stage2]\nmodel.hidden = 8\nmodel.out = 8\ntrain.epochs = 1\n";
    let sandbox = with_config(pipeline);
    let labels = sandbox.read("data/labels.npy");
    sandbox.write("data/labels.npy", labels_npy(&[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]));
    sandbox.refuses(train(&[]), 1, &["class 0"]);
    fs::remove_file(sandbox.path("data/labels.npy")).unwrap();
    sandbox.refuses(train(&[]), 1, &["labels.npy", "name the column of the labels"]);
    assert!(!sandbox.path("runs").exists());
    sandbox.write("data/labels.npy", labels);
    sandbox.succeeds(train(&[]));
}
