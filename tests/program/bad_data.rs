//! Damaged, contradictory and missing inputs, through the program: every refusal names the file, the place, what was
//! expected and what was found, and leaves nothing behind.

use std::fs;

use crate::support::{Sandbox, labels_npy, npy};

const INFO: [&str; 3] = ["info", "--data", "data"];
const NODES: usize = 500;

/// Writes `value` as the `at`-th little-endian i32.
fn put(bytes: &mut [u8], at: usize, value: i32) {
    bytes[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at * 4..at * 4 + 4].try_into().unwrap())
}

fn refused_after(file: &str, change: impl FnOnce(&mut Vec<u8>), parts: &[&str]) {
    let sandbox = Sandbox::with_data();
    sandbox.edit(&format!("data/{file}"), change);
    sandbox.refuses(INFO, 1, &[parts, &[file]].concat());
}

#[test]
fn a_missing_directory_or_file_is_named() {
    let sandbox = Sandbox::with_data();
    sandbox.refuses(["info", "--data", "nowhere"], 1, &["nowhere: cannot open", "graphsieve synth"]);
    sandbox.refuses(["info", "--data", "data/labels.npy"], 1, &["labels.npy: cannot open"]);
    for file in ["epu_row_ptr.bin", "euu_col_idx.bin", "eps_T_row_ptr.bin"] {
        let content = sandbox.read(&format!("data/{file}"));
        fs::remove_file(sandbox.path(&format!("data/{file}"))).unwrap();
        sandbox.refuses(INFO, 1, &[file, "cannot read", "No such file"]);
        sandbox.write(&format!("data/{file}"), content);
    }
    fs::remove_file(sandbox.path("data/node_counts.json")).unwrap();
    sandbox.refuses(INFO, 1, &["expected graph.toml or graph.json or node_counts.json, found none"]);
}

#[test]
fn truncated_files_are_refused() {
    refused_after("epu_row_ptr.bin", |bytes| bytes.truncate(100), &["file length: expected 1044 bytes", "100 bytes"]);
    refused_after("epu_row_ptr.bin", Vec::clear, &["file length: expected 1044 bytes", "found 0 bytes"]);
    refused_after("euu_col_idx.bin", |bytes| bytes.truncate(402), &["file length: expected", "402 bytes"]);
    refused_after("X_combined.memmap", |bytes| bytes.truncate(1000), &["expected", "128000", "1000"]);
    refused_after("labels.npy", |bytes| bytes.truncate(200), &["file length: expected", "72 bytes"]);
    refused_after("labels.npy", |bytes| bytes.truncate(40), &["header"]);
    refused_after("node_counts.json", |bytes| bytes.truncate(20), &["line", "expected"]);
    refused_after("node_id_mappings.json", |bytes| bytes.truncate(99), &["line", "expected"]);
}

#[test]
fn over_long_files_are_refused() {
    for file in ["epu_row_ptr.bin", "eps_col_idx.bin", "X_combined.memmap", "labels.npy"] {
        refused_after(file, |bytes| bytes.extend([0; 8]), &["expected", "found"]);
    }
}

#[test]
fn row_pointers_that_decrease_or_overrun_are_refused() {
    let decrease = |bytes: &mut Vec<u8>| {
        let start = get(bytes, 7);
        put(bytes, 8, start - 1);
    };
    refused_after("epu_row_ptr.bin", decrease, &["row 7: expected an end of at least"]);
    refused_after("epu_row_ptr.bin", |bytes| put(bytes, 0, -3), &["row 0: expected a start of 0, found -3"]);
    let sandbox = Sandbox::with_data();
    sandbox.edit("data/epu_row_ptr.bin", |bytes| {
        let end = get(bytes, 260);
        put(bytes, 260, end + 5);
    });
    sandbox.refuses(INFO, 1, &["epu_col_idx.bin: file length: expected", "the last value of", "epu_row_ptr.bin"]);
}

#[test]
fn ids_out_of_range_are_refused() {
    // Users are 0..260, products 260..480; an entry is a product or the row's own id.
    refused_after("epu_col_idx.bin", |bytes| put(bytes, 0, 480), &["entry 0, row 0", "[260, 480)", "480"]);
    refused_after("epu_col_idx.bin", |bytes| put(bytes, 0, -1), &["id out of range: -1"]);
    refused_after("euu_col_idx.bin", |bytes| put(bytes, 9, i32::MAX), &["[0, 260)", "id out of range: 2147483647"]);
}

#[test]
fn counts_that_disagree_are_refused() {
    let sandbox = Sandbox::with_data();
    let counts =
        |users: &str, total: u64| format!(r#"{{"users": {users}, "products": 220, "sellers": 20, "total": {total}}}"#);
    let refused = |counts: String, parts: &[&str]| {
        sandbox.write("data/node_counts.json", counts);
        sandbox.refuses(INFO, 1, parts);
    };
    refused(counts("261", 500), &["node_counts.json: total: expected 501", "found 500"]);
    refused(counts("261", 501), &["X_combined.memmap", "expected", "128000"]);
    refused(counts("-1", 239), &["node_counts.json", "-1"]);
    refused(counts("18446744073709551615", 255), &["node_counts.json: total: expected"]);
    refused(counts("4294967296", 4294967536), &["expected"]);
    fs::remove_file(sandbox.path("data/X_combined.memmap")).unwrap();
    refused(counts("259", 499), &["epu_row_ptr.bin: file length", "it would fit 260 `user` nodes"]);
}

#[test]
fn relations_that_are_not_each_others_reverse_are_refused() {
    let sandbox = Sandbox::with_data();
    // Another product for the first purchase, on one side only. Row 0 holds its own id first.
    sandbox.edit("data/epu_col_idx.bin", |bytes| {
        let bought = get(bytes, 1);
        put(bytes, 1, if bought == 260 { 261 } else { bought - 1 });
    });
    sandbox.refuses(INFO, 1, &["relation `epu_T`: expected exactly the edges of `epu` the other way round"]);
}

#[test]
fn infinite_features_are_refused() {
    let at = (3 * 128 + 5) * 2;
    let put = |value: u16| move |bytes: &mut Vec<u8>| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    let place = "row 3, column 5: expected a finite number, or NaN for a missing one, found";
    refused_after("X_combined.memmap", put(0x7c00), &[place, "inf"]);
    refused_after("X_combined.memmap", put(0xfc00), &[place, "-inf"]);
}

#[test]
fn a_wrong_feature_width_is_refused() {
    let half = |bytes: &mut Vec<u8>| bytes.truncate(NODES * 64 * 2);
    refused_after("X_combined.memmap", half, &["expected", "128000", "64000", "64"]);
}

#[test]
fn a_faulty_manifest_is_refused_with_its_line() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("data")).unwrap();
    let head = "[[node_types]]\nname = \"review\"\ncount = 3\n";
    let cases = [
        ("count = 3\n", "expected"),
        ("[[node_types]]\nname = \"review\"\ncuont = 3\n", "count"),
        ("[[node_types]]\nname = \"review\"\ncount = \"three\"\n", "line 3"),
        (&format!("{head}[[relations]]\nname = \"r\"\nsrc = \"reviews\"\ndst = \"review\"\n"), "review"),
    ];
    for (manifest, part) in cases {
        sandbox.write("data/graph.toml", manifest);
        sandbox.refuses(INFO, 1, &["graph.toml", part]);
    }
    sandbox.write("data/graph.toml", head);
    sandbox.write("data/graph.json", "{}");
    sandbox.refuses(INFO, 1, &["expected graph.toml or graph.json, found both"]);
}

#[test]
fn faulty_labels_are_refused() {
    let sandbox = Sandbox::with_data();
    let refused = |content: Vec<u8>, parts: &[&str]| {
        sandbox.write("data/labels.npy", content);
        sandbox.refuses(INFO, 1, &[parts, &["labels.npy"]].concat());
    };
    refused(labels_npy(&[(1, 0), (2, 2)]), &["row 1: expected a label of 0 or 1, found label 2 of node 2"]);
    refused(labels_npy(&[(1, 0), (2, -1)]), &["row 1", "label -1"]);
    refused(labels_npy(&[(1, 0), (2, 1), (1, 1)]), &["row 2", "duplicate id: 1 again, first in row 0"]);
    refused(labels_npy(&[(500, 1)]), &["row 0: expected a global id in [0, 500)", "500"]);
    refused(labels_npy(&[(-1, 1)]), &["row 0", "-1"]);
    refused(npy("<i8", "(3,)", &[0; 24]), &["shape: expected two dimensions"]);
    refused(npy("<i8", "(1, 3)", &[0; 24]), &["shape: expected [1, 2]"]);
    refused(npy("<f8", "(1, 2)", &[0; 16]), &["dtype", "<f8"]);
}

/// `eval` with scores that fit and the given table of labels.
fn eval_refuses(table: &str, parts: &[&str]) {
    let sandbox = Sandbox::with_data();
    sandbox.write_scores("scores.npy", &[0.5; NODES]);
    sandbox.write("labels.csv", table);
    sandbox.refuses(["eval", "--scores", "scores.npy", "--data", "data", "--labels", "labels.csv"], 1, parts);
}

#[test]
fn faulty_label_tables_are_refused_with_their_line() {
    eval_refuses("id,label\nU000001,1\nU999999,0\n", &["labels.csv: line 3", "unknown id \"U999999\""]);
    eval_refuses("id,label\nU000001,1\nU000002,2\n", &["labels.csv: line 3: expected a label of 0 or 1", "2"]);
    eval_refuses("id,label\nU000001,1\n1,0\n", &["labels.csv: line 3", "duplicate id: 1 again, first in line 2"]);
    eval_refuses("id,label\n500,1\n", &["labels.csv: line 2", "500"]);
    eval_refuses("user,label\nU000001,1\n", &["labels.csv: line 1: expected a header with a column `id`"]);
    eval_refuses("", &["labels.csv"]);
}

#[test]
fn a_class_without_examples_in_a_split_is_refused() {
    let normal: String = (0..9).map(|id| format!("{id},0\n")).collect();
    let expected = "expected at least one example in each of training, validation and test, found";
    eval_refuses(&format!("id,label\n{normal}20,1\n21,1\n"), &["class 1 (anomalous)", expected, "2 in all"]);
    eval_refuses(&format!("id,label\n{normal}"), &["class 1 (anomalous)", "0 in all"]);
}

#[test]
fn scores_that_do_not_fit_are_refused() {
    let sandbox = Sandbox::with_data();
    let refused = |parts: &[&str]| {
        sandbox.refuses(["eval", "--scores", "scores.npy", "--data", "data"], 1, &[parts, &["scores.npy"]].concat());
    };
    refused(&["cannot read", "No such file"]);
    sandbox.write_scores("scores.npy", &[0.5; NODES - 1]);
    refused(&["shape: expected 500 scores, one per node of the graph, found 499"]);
    let mut scores = [0.5; NODES];
    scores[17] = f32::NAN;
    sandbox.write_scores("scores.npy", &scores);
    refused(&["score of node 17: expected a finite number, found NaN"]);
    sandbox.write_scores("scores.npy", &[0.5; NODES]);
    sandbox.edit("scores.npy", |bytes| bytes.truncate(1000));
    refused(&["array: expected a .npy array of 500 float32 numbers"]);
    sandbox.write("scores.npy", npy("<f8", "(500,)", &[0; NODES * 8]));
    refused(&["float32"]);
    sandbox.write("scores.npy", npy("<f4", "(500, 1)", &[0; NODES * 4]));
    refused(&["array"]);
    sandbox.write("scores.npy", npy("<f4", "(9223372036854775807, 9)", &[0; 16]));
    refused(&["array"]);
    sandbox.write("scores.npy", "0.5\n0.25\n");
    refused(&["array"]);
}

#[test]
fn data_without_labels_needs_a_table() {
    let sandbox = Sandbox::with_data();
    sandbox.write_scores("scores.npy", &[0.5; NODES]);
    fs::remove_file(sandbox.path("data/labels.npy")).unwrap();
    let parts = ["labels.npy: expected labels of some nodes, found no such file", "--labels"];
    sandbox.refuses(["eval", "--scores", "scores.npy", "--data", "data"], 1, &parts);
}

const METADATA: &str = "{\"asin\": \"P1\", \"title\": \"Red case\", \"brand\": \"Acme\"}\n";
const REVIEWS: &str = "{\"reviewerID\": \"A\", \"asin\": \"P1\", \"overall\": 5}\n";

fn prepare(more: &[&'static str]) -> Vec<&'static str> {
    let fixed =
        ["--quiet", "prepare", "amazon", "--reviews", "reviews.json", "--metadata", "meta.json", "--out", "out"];
    [&fixed[..], more].concat()
}

#[test]
fn malformed_lines_are_skipped_and_counted_or_stop_a_strict_run() {
    let sandbox = Sandbox::new();
    sandbox.write("meta.json", METADATA);
    sandbox.write("reviews.json", format!("{REVIEWS}{{\"reviewerID\": \"B\", \"asin\":\n{{\"asin\": \"P1\"}}\n"));
    sandbox.refuses(prepare(&["--strict"]), 1, &["reviews.json: line 2: expected", "found"]);
    let said = sandbox.succeeds(prepare(&[]));
    assert!(said.stdout.contains("reviews    3 lines, 2 malformed skipped (line 2, 3)"), "{}", said.stdout);
}

#[test]
fn raw_files_that_hold_nothing_of_use_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("reviews.json", REVIEWS);
    sandbox.refuses(prepare(&[]), 1, &["meta.json: cannot"]);
    sandbox.write("meta.json", "not json\n");
    sandbox.refuses(prepare(&[]), 1, &["meta.json: expected products", "1 of them malformed"]);
    sandbox.write("meta.json", METADATA);
    sandbox.write("reviews.json", REVIEWS.replace("P1", "P9"));
    sandbox.refuses(prepare(&[]), 1, &["reviews.json", "expected"]);
    sandbox.write("reviews.json", [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3]);
    sandbox.refuses(prepare(&[]), 1, &["reviews.json"]);
    sandbox.write("reviews.json", REVIEWS);
    sandbox.write("labels.csv", "id,label\nnobody,1\n");
    sandbox.refuses(prepare(&["--labels", "labels.csv"]), 1, &["labels.csv: line 2", "nobody"]);
    sandbox.write("text.npy", npy("<f4", "(2, 3)", &[0; 24]));
    sandbox.refuses(prepare(&["--text-embeddings", "text.npy"]), 1, &["text.npy", "expected 1", "found 2"]);
    sandbox.write("thresholds.toml", "# how dense\ncore_precentile = 99.0\n");
    let parts = ["thresholds.toml:2: core_precentile = 99.0", "did you mean core_percentile?"];
    sandbox.refuses(prepare(&["--thresholds", "thresholds.toml"]), 2, &parts);
    sandbox.write("thresholds.toml", "core_percentile = 200\n");
    sandbox.refuses(prepare(&["--thresholds", "thresholds.toml"]), 2, &["thresholds.toml: core_percentile = 200"]);
}

#[test]
fn nothing_is_overwritten() {
    let sandbox = Sandbox::with_data();
    sandbox.refuses(
        ["synth", "--scale", "0.1", "--out", "data"],
        1,
        &["data: exists already and is never overwritten"],
    );
    fs::create_dir(sandbox.path("out")).unwrap();
    sandbox.write("out/precious", "mine");
    sandbox.write("reviews.json", REVIEWS);
    sandbox.write("meta.json", METADATA);
    sandbox.refuses(prepare(&[]), 1, &["out: exists already"]);
}

#[test]
fn an_output_below_a_file_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "");
    for out in ["file", "file/data", "file/far/below"] {
        sandbox.refuses(["synth", "--scale", "0.1", "--out", out], 1, &[out, "cannot create", "is a file, not a dir"]);
    }
}

/// Takes from root, for whom permissions are no obstacle, the right to override them.
#[cfg(unix)]
fn without_privilege(command: &mut std::process::Command) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::os::unix::process::CommandExt;
        const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
        // SAFETY: one system call; for other users it fails and changes nothing.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
                Ok(())
            });
        }
    }
}

#[cfg(unix)]
#[test]
fn a_directory_without_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    let locked = sandbox.path("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    let mut synth = std::process::Command::new(env!("CARGO_BIN_EXE_graphsieve"));
    synth.args(["--quiet", "synth", "--scale", "0.1", "--out", "locked/data"]).current_dir(sandbox.path(""));
    without_privilege(&mut synth);
    let said = crate::support::Said::from(synth.output().unwrap());
    said.is_refused(1, &["locked", "Permission denied", "check the permissions"]);
    assert!(fs::read_dir(&locked).unwrap().next().is_none());
}

/// A limit on the size of files stands for a full disk: writing stops in the middle of a file.
#[cfg(unix)]
#[test]
fn a_disk_that_fills_up_leaves_nothing_half_written() {
    let sandbox = Sandbox::new();
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" --quiet synth --scale 0.1 --out new/data";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_graphsieve")]).current_dir(sandbox.path(""));
    crate::support::Said::from(shell.output().unwrap()).is_refused(1, &["cannot write", "File too large"]);
    let left: Vec<_> = fs::read_dir(sandbox.path("new")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    use std::process::{Command, Stdio};
    let sandbox = Sandbox::with_data();
    let mut info = Command::new(env!("CARGO_BIN_EXE_graphsieve"));
    info.args(INFO).current_dir(sandbox.path(""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = crate::support::Said::from(info.stdout(full).output().unwrap());
    said.is_refused(1, &["stdout: cannot write: No space left on device"]);
    let mut child = info.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
