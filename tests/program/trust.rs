//! The worst day: files that are bombs or have a flipped bit, names that are nearly right, and processes that are
//! killed or not alone. Nothing is silently wrong, and every refusal says what to do.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use graphsieve::models::weights::Weights;
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::support::{Sandbox, npy};

const TABLE: &str = "\
[[nodes]]\ntype = \"tx\"\nfile = \"tx.csv\"\nid = \"id\"\nlabel = \"fraud\"\nfeatures = { Amount = \"numeric\" }\n\
[[edges]]\nname = \"pays\"\nfile = \"pays.csv\"\nsrc = \"tx.from\"\ndst = \"tx.to\"\n";

/// 60 rows that are joined one after another; every fourth is a fraud.
pub fn tables(sandbox: &Sandbox) {
    let rows = (0..60).map(|at| format!("t{at},{},{}\n", 10 + at * 7 % 40, u8::from(at % 4 == 0)));
    sandbox.write("tx.csv", format!("id,Amount,fraud\n{}", rows.collect::<String>()));
    let edges = (0..60).map(|at| format!("t{at},t{}\n", (at * 7 + 4) % 60));
    sandbox.write("pays.csv", format!("from,to\n{}", edges.collect::<String>()));
    sandbox.write("graph.toml", TABLE);
}

pub const IMPORT: [&str; 6] = ["--quiet", "import", "tables", "graph.toml", "--out", "data"];

fn configuration(task: &str, more: &str) -> String {
    format!("task = \"{task}\"\n[output]\ndir = \"{task}\"\nplots = false\n[data]\npath = \"data\"\n{more}")
}

/// Settings of short trainings.
pub const STAGE2: &str =
    "input = \"features\"\n[model]\nhidden = 4\nout = 4\n[train]\nepochs = 2\ncheckpoint_every = 1\n";
pub const STAGE1: &str = "[model]\nhidden = 4\nout = 4\n[train]\nepochs = 1\n";

pub fn train(sandbox: &Sandbox, task: &str, more: &str) -> String {
    sandbox.write(&format!("{task}.toml"), configuration(task, more));
    sandbox.succeeds(["--quiet", "train", &format!("{task}.toml"), "--device", "cpu"]);
    sandbox.only_run(task)
}

#[test]
fn every_command_calls_columns_as_the_tables_do() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    sandbox.succeeds(IMPORT);
    let of_trees = "[features]\nmax = true\nover = \"both\"\n[model]\ntrees = 5\n";
    let cases =
        [("stage2", STAGE2), ("classify", "[split]\nuse = \"random\"\n[train]\nepochs = 1\n"), ("stage3", of_trees)];
    let names: Vec<String> = serde_json::from_slice(&sandbox.read("data/feature_names.json")).unwrap();
    assert!(names.contains(&"tx.Amount".to_owned()), "{names:?}");
    // Of columns that are made of features the last part of the name is the feature's.
    let is_own = |column: &str| names.iter().any(|name| column == name || column.ends_with(&format!(".{name}")));
    let is_internal = |column: &str| {
        let last = column.rsplit('.').next().unwrap_or_default();
        last.strip_prefix('x').is_some_and(|number| number.parse::<usize>().is_ok())
    };
    for (task, settings) in cases {
        let run = train(&sandbox, task, settings);
        let explain = ["--quiet", "explain", &run, "--node", "tx:t4", "--device", "cpu", "--format", "json"];
        let explained: Value = serde_json::from_str(&sandbox.succeeds(explain).stdout).unwrap();
        let columns: Vec<&str> =
            explained["columns"].as_array().unwrap().iter().map(|of| of["column"].as_str().unwrap()).collect();
        assert!(columns.iter().any(|column| is_own(column)), "{task}: {columns:?}");
        assert!(!columns.iter().any(|column| is_internal(column)), "{task}: {columns:?}");
        sandbox.succeeds(["--quiet", "report", &run, "--device", "cpu", "--out", &format!("{task}.html")]);
        let page = String::from_utf8(sandbox.read(&format!("{task}.html"))).unwrap();
        assert!(!page.contains(">x1<") && !page.contains(".x1<"), "{task}");
        if task == "stage3" {
            let importance = String::from_utf8(sandbox.read(&format!("{run}/importance.csv"))).unwrap();
            let columns: Vec<&str> = importance.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
            assert!(columns.iter().any(|column| is_own(column)), "{columns:?}");
            assert!(!columns.iter().any(|column| is_internal(column)), "{columns:?}");
        }
    }
}

/// As a table says them, where a model reads a half-precision number of its own.
#[test]
fn explanations_say_what_is_written_in_the_tables() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    let rows = (0..60).map(|at| {
        let amount = if at == 8 { String::new() } else { format!("{}.5", 10 + at * 7 % 40) };
        format!("t{at},{amount},{},{}\n", ["till", "web", "app"][at % 3], u8::from(at % 4 == 0))
    });
    sandbox.write("tx.csv", format!("id,Amount,Kind,fraud\n{}", rows.collect::<String>()));
    let kind = "\"numeric\", Kind = { kind = \"categorical\", width = 8 } }";
    sandbox.write("graph.toml", TABLE.replace("\"numeric\" }", kind));
    sandbox.succeeds(IMPORT);
    for (task, settings, block) in [("stage2", STAGE2, "features"), ("stage3", "[model]\ntrees = 5\n", "raw")] {
        let run = train(&sandbox, task, settings);
        let explain = |node: &str, format: &str| {
            let explain = ["--quiet", "explain", &run, "--node", node, "--device", "cpu", "--format", format];
            sandbox.succeeds(explain).stdout
        };
        let written = |node: &str, column: &str| {
            let said: Value = serde_json::from_str(&explain(node, "json")).unwrap();
            let columns = said["columns"].as_array().unwrap();
            let is_it = |of: &&Value| of["column"] == column && of["block"] == block;
            let column = columns.iter().find(is_it).unwrap_or_else(|| panic!("{task}: no {column} in {said}"));
            let mut written = column["written"].clone();
            // How the split fell decides whether half precision tells hundredths.
            written.as_object_mut().and_then(|of| of.remove("is_rounded"));
            written
        };
        let said = |column: &str, value: Option<&str>| json!({"column": column, "value": value});
        assert_eq!(written("tx:t4", "tx.Amount"), said("Amount", Some("38.5")), "{task}");
        assert_eq!(written("tx:t4", "tx.Kind_5"), said("Kind", Some("web")), "{task}");
        assert_eq!(written("tx:t4", "tx.Amount_missing"), said("Amount missing", Some("false")), "{task}");
        assert_eq!(written("tx:t8", "tx.Amount"), said("Amount", None), "{task}");
        assert_eq!(written("tx:t4", "is_tx"), Value::Null, "{task}: no table has it");
        if task == "stage2" {
            let table = explain("tx:t4", "table");
            let has = |name: &str, value: &str| {
                table.lines().any(|line| line.starts_with(&format!("{name} ")) && line.ends_with(value))
            };
            assert!(has("Amount", "38.5") && has("Kind", "web") && has("is_tx", "1.00000 in the model"), "{table}");
            sandbox.succeeds(["--quiet", "report", &run, "--device", "cpu", "--out", "written.html"]);
            let page = String::from_utf8(sandbox.read("written.html")).unwrap();
            assert!(page.contains(" (features) adds ") && !page.contains("tx.Kind_"), "{page}");
        }
    }
}

/// A zip archive of entries, each packed in its way.
pub fn archive(entries: &[(&str, &[u8], CompressionMethod)]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes, method) in entries {
        archive.start_file(*name, SimpleFileOptions::default().compression_method(*method)).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn checkpoints_of_pytorch_that_nest_copy_or_unpack_without_end_are_refused() {
    let sandbox = Sandbox::with_data();
    let (stored, deflated) = (CompressionMethod::Stored, CompressionMethod::Deflated);
    let nested = [vec![b']'; 1 << 20], vec![b'a'; (1 << 20) - 1], vec![b'.']].concat();
    let doubled = [&b"\x80\x02)q\x00"[..], &b"h\x00h\x00\x86q\x00".repeat(60), b"."].concat();
    let zeros = vec![0; 1 << 20];
    let cases: [(Vec<u8>, &[&str]); 6] = [
        (nested.clone(), &["archive", "since PyTorch 1.6"]),
        (archive(&[("archive/data.pkl", &nested, stored)]), &["archive/data.pkl", "objects within at most 100 others"]),
        (archive(&[("data.pkl", &doubled, stored)]), &["data.pkl: expected at most", "objects"]),
        (archive(&[("data.pkl", b"}.", stored), ("data/0", &zeros, deflated)]), &["data/0", "bytes as they are"]),
        (archive(&[("other", b"", stored)]), &["No data.pkl"]),
        (
            archive(&[("data.pkl", b"\x80\x02(((tttX\xff\xff\xff\x7f", stored)]),
            &["data.pkl: expected 2147483651 more bytes"],
        ),
    ];
    for (bytes, parts) in cases {
        sandbox.write("x.pt", bytes);
        let score = ["--quiet", "score", "x.pt", "--data", "data", "--device", "cpu"];
        sandbox.refuses(score, 1, &[parts, &["x.pt: "]].concat());
    }
}

#[test]
fn arrays_that_unpack_to_more_than_they_may_are_refused_before_they_are_unpacked() {
    let sandbox = Sandbox::new();
    let features = npy("<f4", "(4, 1)", &[0; 16]);
    let edges = npy("<i8", "(2, 2)", &[0i64, 1, 1, 2].map(i64::to_le_bytes).concat());
    let labels = npy("<i8", "(4,)", &[0i64, 1, 0, 1].map(i64::to_le_bytes).concat());
    let bomb = |header: &str, dtype: &str| npy(dtype, header, &vec![0; 16 << 20]);
    let cases: [([&[u8]; 3], &[&str]); 7] = [
        ([&bomb("(1048576, 4)", "<f4")[..100_000], &labels, &edges], &["node_features: expected 16777216 bytes"]),
        ([&bomb("(16, 1)", "<f4"), &labels, &edges], &["node_features: expected 64 bytes of data", "16777216 bytes"]),
        ([&bomb("(16777216, 1)", "|S1"), &labels, &edges], &["node_features, dtype"]),
        ([&bomb("(16777216,)", "|u1"), &labels, &edges], &["node_features, shape: expected [nodes, columns]"]),
        ([&features, &bomb("(2097152,)", "<i8"), &edges], &["node_labels, shape: expected [4]", "[2097152]"]),
        ([&features, &labels, &bomb("(699050, 3)", "<i8")], &["edges, shape: expected [edges, 2]"]),
        ([&npy("<f4", "(1099511627776, 1099511627776)", &[]), &labels, &edges], &["more bytes than can be addressed"]),
    ];
    for (arrays, parts) in cases {
        let [features, labels, edges] = arrays;
        let deflated = CompressionMethod::Deflated;
        let entries = [("node_features.npy", features), ("node_labels.npy", labels), ("edges.npy", edges)];
        sandbox.write("graph.npz", archive(&entries.map(|(name, bytes)| (name, bytes, deflated))));
        sandbox.refuses(["info", "--data", "graph.npz"], 1, &[parts, &["graph.npz: "]].concat());
    }
}

#[test]
fn arrays_are_read_in_either_order_of_bytes() {
    let sandbox = Sandbox::new();
    let features = npy(">f4", "(4, 1)", &[1.0f32, 2.0, 3.0, 4.0].map(f32::to_be_bytes).concat());
    let labels = npy(">i4", "(4,)", &[0i32, 1, 0, -1].map(i32::to_be_bytes).concat());
    let edges = npy(">u8", "(2, 2)", &[0u64, 1, 1, 2].map(u64::to_be_bytes).concat());
    let stored = CompressionMethod::Stored;
    let entries = [("node_features.npy", features), ("node_labels.npy", labels), ("edges.npy", edges)];
    sandbox.write("graph.npz", archive(&entries.each_ref().map(|(name, bytes)| (*name, &bytes[..], stored))));
    // Labels and ends of edges in the wrong order are out of range.
    sandbox.succeeds(["info", "--data", "graph.npz"]);
}

#[test]
fn a_flipped_bit_of_a_checkpoint_is_never_read_as_another_model() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    sandbox.succeeds(IMPORT);
    let run = train(&sandbox, "stage2", STAGE2);
    for name in ["best.bpk", "last.bpk", "best.safetensors"] {
        let file = sandbox.path(&format!("{run}/checkpoint/{name}"));
        let (whole, bytes) = (Weights::read(&file).unwrap().0, fs::read(&file).unwrap());
        let flipped = sandbox.path(&format!("flipped.{}", name.split('.').next_back().unwrap()));
        let mut refused = false;
        for at in (0..bytes.len()).step_by(3) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            fs::write(&flipped, changed).unwrap();
            match Weights::read(&flipped) {
                // Bytes between the parts of a file hold nothing.
                Ok((found, _)) => assert!(found == whole, "{name}: byte {at}"),
                Err(error) => {
                    refused = true;
                    assert!(error.to_string().contains("flipped."), "{error}");
                }
            }
        }
        assert!(refused, "{name}");
    }
    // Through the program: what a run goes on from, and what is scored with.
    let last = format!("{run}/checkpoint/last.bpk");
    let middle = sandbox.read(&last).len() / 2;
    sandbox.edit(&last, |bytes| bytes[middle - 300..middle + 300].iter_mut().for_each(|byte| *byte ^= 4));
    let resume = ["--quiet", "train", "--resume", &run, "--device", "cpu", "--set", "train.epochs=3"];
    sandbox.refuses(resume, 1, &["checkpoint/last.bpk: "]);
    let best = format!("{run}/checkpoint/best.safetensors");
    let end = sandbox.read(&best).len() - 2;
    sandbox.edit(&best, |bytes| bytes[end] ^= 4);
    let score = ["--quiet", "score", &best, "--data", "data", "--device", "cpu"];
    sandbox.refuses(score, 1, &["best.safetensors: SHA-256: expected", "the file was changed"]);
}

#[test]
fn arrays_that_a_run_wrote_are_read_as_it_wrote_them() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    sandbox.succeeds(IMPORT);
    let stage1 = train(&sandbox, "stage1", STAGE1);
    let array = format!("{stage1}/Z_embeddings_stage1.npy");
    sandbox.edit(&array, |bytes| bytes[200] ^= 1);
    sandbox.write("stage2.toml", configuration("stage2", &format!("embeddings = \"{stage1}\"\n[train]\nepochs = 1\n")));
    let parts = ["Z_embeddings_stage1.npy: SHA-256: expected", "compute it into another directory"];
    sandbox.refuses(["train", "stage2.toml", "--device", "cpu"], 1, &parts);
    sandbox.write("stage3.toml", configuration("stage3", &format!("embeddings = \"{stage1}\"\n[model]\ntrees = 2\n")));
    sandbox.refuses(["train", "stage3.toml", "--device", "cpu"], 1, &parts);
    // A run of an earlier version has no sums of them.
    sandbox.edit(&format!("{stage1}/model.json"), |text| {
        let mut bundle: Value = serde_json::from_slice(text).unwrap();
        bundle.as_object_mut().unwrap().remove("outputs").unwrap();
        *text = serde_json::to_vec(&bundle).unwrap();
    });
    sandbox.succeeds(["--quiet", "train", "stage2.toml", "--device", "cpu"]);
    // Elsewhere a file of this name may be of anything.
    fs::create_dir(sandbox.path("other")).unwrap();
    sandbox.write("other/model.json", "{}");
    sandbox.write("other/Z.npy", sandbox.read(&array));
    sandbox.write("stage2.toml", configuration("stage2", "embeddings = \"other/Z.npy\"\n[train]\nepochs = 1\n"));
    sandbox.succeeds(["--quiet", "train", "stage2.toml", "--device", "cpu"]);
}

#[test]
fn tables_that_are_nearly_right_are_read_or_it_is_said_what_to_do() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    let (nodes, edges) = (sandbox.read("tx.csv"), sandbox.read("pays.csv"));
    let [nodes, edges] = [nodes, edges].map(|bytes| String::from_utf8(bytes).unwrap());
    let reset = |nodes: &str, description: &str| {
        sandbox.write("tx.csv", nodes);
        sandbox.write("graph.toml", description);
    };
    // A slip of the pen makes no nodes of its own with --strict, and is told without.
    let of_payers = |src: &str| {
        let named = TABLE.replace("type = \"tx\"", "type = \"payer\"").replace("tx.to", "payer.to");
        named.replace("tx.from", &format!("{src}.from"))
    };
    reset(&nodes, &of_payers("payre"));
    let strict = [&IMPORT[..], &["--strict"]].concat();
    sandbox.refuses(strict, 1, &["edges of `pays`: expected a node type that has a table", "did you mean `payer`?"]);
    let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", "misspelt"]);
    let all = said.stdout + &said.stderr;
    assert!(all.contains("`payre` has no [[nodes]] table") && all.contains("did you mean `payer`?"), "{all}");
    // A name that counts is none.
    reset(&nodes, &of_payers("payer2"));
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "counted", "--strict"]);

    let refusals: [(&str, String, &[&str]); 4] = [
        ("tx.csv", nodes.replace(',', ";"), &["tx.csv: header", "separated by ';'", "with commas"]),
        ("tx.csv", nodes.replace(',', "|"), &["tx.csv: header", "separated by '|'"]),
        ("tx.csv", nodes.replace("t1,", "t1,\u{20ac}"), &["tx.csv: line 3, column `Amount`", "leave the cell empty"]),
        ("pays.csv", edges.replace(',', "\t"), &["pays.csv: header", "separated by '\\t'", ".tsv"]),
    ];
    for (file, text, parts) in refusals {
        reset(&nodes, TABLE);
        sandbox.write("pays.csv", &edges);
        sandbox.write(file, text);
        sandbox.refuses(IMPORT, 1, parts);
    }
    sandbox.write("pays.csv", &edges);
    let accepted = [
        nodes.replace("t1,17,", "t1,NA,").replace("t2,24,", "t2,n/a,"),
        nodes.replace(",0\n", ",0.0\n").replace(",1\n", ",1.0\n"),
    ];
    for (at, nodes) in accepted.iter().enumerate() {
        reset(nodes, TABLE);
        let out = format!("accepted-{at}");
        let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", &out]);
        assert!(said.stdout.contains("15 anomalous, 45 normal"), "{}", said.stdout);
    }
}

#[test]
fn escape_sequences_of_a_file_do_not_reach_the_terminal() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    sandbox.write("tx.csv", "id,\u{1b}[31mAmount\u{1b}]0;owned\u{7}\u{9b}2J,fraud\nt1,1,0\n");
    let said = sandbox.run(IMPORT);
    said.is_refused(1, &["header: expected a column `Amount`", "\\u{1b}[31mAmount\\u{1b}]0;owned\\u{7}"]);
    sandbox.write("tx.csv", "id,Amount,fraud\nt1,1,\u{1b}[2J\u{9b}2J\u{7f}\n");
    for json in [false, true] {
        let format = if json { &["--log-format", "json"][..] } else { &[] };
        let said = sandbox.run([format, &IMPORT].concat());
        assert_eq!(said.code, Some(1));
        let obeyed = ['\u{1b}', '\u{9b}', '\u{7f}'];
        assert!(!said.stderr.contains(obeyed) && said.stderr.contains("[2J"), "{}", said.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let sandbox = Sandbox::with_data();
    sandbox.write(
        "run.toml",
        "task = \"stage3\"\n[data]\npath = \"data\"\n[model]\ntrees = 2\n[features]\nwavelets = false\n",
    );
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu", "--set", "output.dir=runs"]);
    let run = sandbox.only_run("runs");
    for format in ["csv", "json"] {
        let mut score = sandbox.command(["--quiet", "score", &run, "--device", "cpu", "--format", format]);
        let mut child =
            score.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = crate::support::Said::from(child.wait_with_output().unwrap());
        assert_eq!((said.code, said.stderr.contains("error")), (Some(0), false), "{format}: {}", said.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_killed_process_left_is_removed_and_what_another_one_makes_is_not() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    let make_old = |name: &str| {
        fs::File::open(sandbox.path(name)).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    };
    let names = [".graphsieve-abc.tmp", ".graphsieve-def.tmp", ".graphsieve-ghi.tmp", ".graphsieve-mine"];
    for left in &names[..3] {
        fs::create_dir(sandbox.path(left)).unwrap();
        sandbox.write(&format!("{left}/graph.toml"), "half");
        make_old(left);
    }
    // The last one has a young file.
    names[..2].iter().for_each(|left| make_old(&format!("{left}/graph.toml")));
    sandbox.write(".graphsieve-mine", "a name of somebody else");
    // As a process that is still at it holds it.
    let held = fs::File::open(sandbox.path(".graphsieve-def.tmp")).unwrap();
    held.lock().unwrap();
    let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    assert!(said.stderr.contains(".graphsieve-abc.tmp, which a process that was killed had left"), "{}", said.stderr);
    let is_there = |name: &str| sandbox.path(name).exists();
    assert_eq!(names.map(is_there), [false, true, true, true]);

    let run = train(&sandbox, "stage2", STAGE2);
    let left = format!("{run}/checkpoint/.graphsieve-xyz.tmp");
    sandbox.write(&left, "half a checkpoint");
    make_old(&left);
    sandbox.succeeds(["--quiet", "train", "--resume", &run, "--device", "cpu"]);
    assert!(!is_there(&left));
}

/// A step of so many layers takes minutes.
#[cfg(unix)]
#[test]
fn a_step_that_goes_on_is_ended_by_a_second_signal_and_after_its_grace() {
    let sandbox = Sandbox::with_data();
    let model = "[model]\nlayer = \"sage\"\nlayers = 1000\nhidden = 128\n[split]\nuse = \"random\"\n";
    sandbox.write("deep.toml", configuration("classify", model));
    let cases: [(&[&str], usize, &str); 2] =
        [(&["--grace", "100ms"], 1, "ended within a step"), (&["--grace", "1h"], 2, "ended at once")];
    for (at, (grace, signals, expected)) in cases.into_iter().enumerate() {
        let dir = format!("runs-{at}");
        let set = format!("output.dir={dir}");
        let begun = || {
            let runs = fs::read_dir(sandbox.path(&dir)).into_iter().flatten().flatten();
            runs.into_iter().any(|run| run.path().join("metrics.jsonl").is_file())
        };
        let train = [&["train", "deep.toml", "--device", "cpu", "--set", &set][..], grace].concat();
        let said = sandbox.told_to_stop(train, begun, signals);
        assert_eq!(said.code, Some(130), "{}", said.stderr);
        assert!(said.stderr.contains("stopping: ") && said.stderr.contains(expected), "{}", said.stderr);
        let left = fs::read_dir(sandbox.path(&sandbox.only_run(&dir))).unwrap().flatten();
        assert!(left.map(|of| of.file_name()).all(|name| !name.to_string_lossy().ends_with(".tmp")));
    }
}

#[test]
fn of_two_processes_that_make_the_same_data_one_wins_and_the_other_says_so() {
    let sandbox = Sandbox::new();
    let synth = ["--quiet", "synth", "--scale", "0.1", "--out", "data"];
    let said = std::thread::scope(|scope| {
        let runs = [1, 2].map(|_| scope.spawn(|| sandbox.run(synth)));
        runs.map(|run| run.join().unwrap())
    });
    let lost: Vec<_> = said.iter().filter(|said| said.code != Some(0)).collect();
    assert_eq!(lost.len(), 1, "{said:?}");
    lost[0].is_refused(1, &["data: exists already and is never overwritten", "choose another directory"]);
    let names: Vec<_> = fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["data"], "no temporary directory is left");
}

#[test]
fn a_training_that_is_refused_leaves_no_run() {
    let sandbox = Sandbox::new();
    sandbox.succeeds(["--quiet", "synth", "--scale", "0.1", "--out", "data"]);
    fs::create_dir(sandbox.path("runs")).unwrap();
    let write = |task: &str, more: &str| {
        let text =
            format!("task = \"{task}\"\n[output]\ndir = \"runs\"\nplots = false\n[data]\npath = \"data\"\n{more}");
        sandbox.write("run.toml", text);
    };
    let refused = |parts: &[&str]| sandbox.refuses(["train", "run.toml", "--device", "cpu"], 1, parts);
    write("stage3", "embeddings = \"nowhere\"\n");
    refused(&["nowhere/Z_embeddings_stage1.npy: cannot read"]);
    fs::remove_file(sandbox.path("data/X_combined.memmap")).unwrap();
    for task in ["stage1", "stage3", "pipeline", "auto"] {
        write(task, "");
        refused(&["data: features: expected a feature file"]);
    }
    write("stage2", "input = \"features\"\n");
    refused(&["data: features: expected a feature file"]);
    assert!(Path::new(&sandbox.path("runs")).read_dir().unwrap().next().is_none());
}

#[test]
fn a_graph_without_edges_to_learn_leaves_no_run() {
    let sandbox = Sandbox::new();
    tables(&sandbox);
    let loops: String = (0..60).map(|at| format!("t{at},t{at}\n")).collect();
    sandbox.write("pays.csv", format!("from,to\n{loops}"));
    sandbox.succeeds(IMPORT);
    sandbox.write("stage1.toml", configuration("stage1", STAGE1));
    let words = ["at least one relation with edges other than self-loops", "graphsieve info"];
    sandbox.refuses(["--quiet", "train", "stage1.toml", "--device", "cpu"], 1, &words);
    assert!(!sandbox.path("stage1").exists());
}
