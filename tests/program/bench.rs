//! `graphsieve bench` on a small marketplace: every row is there, finite and correct.

use serde_json::Value;

use crate::support::Sandbox;

const COMMON: [&str; 8] = ["--data", "data", "--device", "cpu", "--runs", "3", "--format", "json"];

fn bench(sandbox: &Sandbox, work: &str, more: &[&str]) -> Value {
    let said = sandbox.succeeds([&["bench", work][..], &COMMON, more].concat());
    assert!(said.stderr.contains("measuring "), "{}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value > 0.0 && value.is_finite())
}

fn check_times(row: &Value) {
    let of = |name: &str| row[name].as_f64().unwrap();
    let ordered = ["min_ms", "lower_quartile_ms", "median_ms", "upper_quartile_ms"].map(of);
    assert!(ordered[0] > 0.0 && ordered.is_sorted(), "{row}");
    for name in ["first_ms", "bytes", "floor_ms", "ratio"] {
        assert!(positive(&row[name]), "{name} of {row}");
    }
    assert!(!cfg!(target_os = "linux") || positive(&row["peak"]["bytes"]), "{row}");
}

#[test]
fn every_operator_is_measured_and_correct_in_every_storage() {
    let sandbox = Sandbox::with_data();
    for (dtype, bound) in [("f32", 1e-4), ("f16", 1e-2), ("bf16", 5e-2)] {
        let report = bench(&sandbox, "kernels", &["--dtype", dtype]);
        assert_eq!((&report["work"], &report["dtype"], &report["runs"]), (&"kernels".into(), &dtype.into(), &3.into()));
        assert_eq!((&report["graph"]["relation"], &report["graph"]["rows"]), (&"euu".into(), &260.into()));
        assert!(positive(&report["copy_gb_per_s"]) && report["device"].as_str().unwrap().starts_with("cpu"));
        let rows = report["rows"].as_array().unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        let expected = [
            "copy of the features",
            "spmm forward",
            "spmm forward + backward",
            "gat 1 head forward",
            "gat 1 head forward + backward",
            "gat 1 head forward, 15 % kept",
            "gat 1 head forward + backward, 15 % kept",
            "gat 4 heads forward",
            "gat 4 heads forward + backward",
            "gat 4 heads forward, 15 % kept",
            "gat 4 heads forward + backward, 15 % kept",
            "gat 1 head forward + backward, scores given",
            "gat 1 head forward + backward, 4 values an edge",
            "gatv2 1 head forward",
            "gatv2 1 head forward + backward",
            "gatv2 1 head forward, 4 values an edge",
            "gatv2 1 head forward + backward, 4 values an edge",
            "spmm forward, rows as spans",
            "spmm forward + backward, rows as spans",
            "gat 1 head forward, rows as spans",
            "gat 1 head forward + backward, rows as spans",
            "linear forward",
            "linear forward + dx + dw",
            "elu forward + backward",
        ];
        assert_eq!(names, expected);
        for row in rows {
            check_times(row);
            let (error, on_graph) = (row["error"].as_f64().unwrap(), row["edges_per_s"].is_number());
            assert!(error <= bound && row["correct"] == true, "{dtype}: {row}");
            let name = row["name"].as_str().unwrap();
            assert_eq!(on_graph, name.starts_with("gat") || name.starts_with("spmm"), "{row}");
        }
        // Storage that rounds shows it: the f64 computation does not round along.
        let errors = rows.iter().map(|row| row["error"].as_f64().unwrap());
        let largest = errors.fold(0.0, f64::max);
        assert!(dtype == "f32" || largest > 1e-5, "{dtype}: {largest}");
    }
}

#[test]
fn a_relation_between_two_types_and_another_width_are_measured_too() {
    let sandbox = Sandbox::with_data();
    let report = bench(&sandbox, "kernels", &["--relation", "eps_T", "--channels", "20"]);
    let graph = &report["graph"];
    assert_eq!((&graph["relation"], &graph["rows"], &graph["cols"]), (&"eps_T".into(), &20.into(), &220.into()));
    assert!(report["rows"].as_array().unwrap().iter().all(|row| row["correct"] == true), "{report}");
}

#[test]
fn inference_is_measured_on_the_whole_graph() {
    let sandbox = Sandbox::with_data();
    for dtype in ["f32", "f16"] {
        let report = bench(&sandbox, "inference", &["--dtype", dtype]);
        assert_eq!((&report["work"], &report["graph"]["rows"]), (&"inference".into(), &500.into()));
        let [row] = &report["rows"].as_array().unwrap()[..] else { panic!("one row: {report}") };
        check_times(row);
        assert!(positive(&row["edges_per_s"]), "{row}");
    }
    let table = sandbox.succeeds(["bench", "inference", "--data", "data", "--device", "cpu", "--runs", "1", "--quiet"]);
    assert!(table.stdout.contains("median ms") && table.stdout.contains("copy"), "{}", table.stdout);
    assert_eq!(table.stderr, "");
}

#[test]
fn epochs_are_measured_on_reachable_rows_and_on_all() {
    let sandbox = Sandbox::with_data();
    for (work, edges_visited) in [("stage1", 2.0), ("stage2", 2.0)] {
        let report = bench(&sandbox, work, &[]);
        let edges = report["graph"]["edges"].as_f64().unwrap();
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{report}");
        for (row, which) in rows.iter().zip(["reachable rows", "all rows"]) {
            assert_eq!(row["name"], format!("{work} epoch, {which}"));
            let (median, rate) = (row["median_ms"].as_f64().unwrap(), row["edges_per_s"].as_f64().unwrap());
            // A rate is that of all edges once per layer, whatever an epoch leaves out.
            assert!((rate * median / 1e3 / (edges_visited * edges) - 1.0).abs() < 1e-6, "{row}");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let sandbox = Sandbox::with_data();
    let refuses = |arguments: &[&str], code: i32, part: &str| sandbox.refuses(arguments, code, &[part]);
    refuses(&["bench", "everything", "--data", "data"], 2, "unrecognized subcommand 'everything'");
    refuses(&["bench", "kernel", "--data", "data"], 2, "'kernels'");
    let help = sandbox.succeeds(["bench", "--help"]).stdout;
    for work in ["kernels", "messages", "parallel-gat", "stage1", "stage2", "inference", "accuracy", "trees", "loader"]
    {
        assert!(help.contains(&format!("  {work} ")), "{help}");
    }
    refuses(&["bench", "kernels"], 2, "--data");
    sandbox.write("trees.toml", "task = \"stage3\"\n[data]\npath = \"data\"\n");
    refuses(&["bench", "scale", "--config", "trees.toml", "--device", "cpu"], 2, "--config: expected a configuration");
    refuses(&["bench", "kernels", "--data", "absent", "--device", "cpu"], 1, "absent: cannot open");
    let kernels = |more: &[&str], part: &str| {
        refuses(&[&["bench", "kernels", "--data", "data", "--device", "cpu"], more].concat(), 2, part);
    };
    kernels(&["--relation", "epx"], "--relation: expected epu, epu_T, eps, eps_T, euu, found \"epx\"");
    kernels(&["--channels", "6"], "--channels: expected a multiple of 4");
    kernels(&["--runs", "0"], "--runs: expected at least 1");
    kernels(&["--dtype", "f64"], "[possible values: f32, f16, bf16]");
    kernels(&["--device", "gpu"], "--device");
}

#[test]
fn trees_are_trained_on_rows_that_other_programs_can_read() {
    let sandbox = Sandbox::with_data();
    let few = ["bench", "trees", "--rows", "3000", "--features", "6", "--trees", "20", "--leaves", "8", "--bins", "32"];
    let said = sandbox.succeeds([&few[..], &["--device", "cpu", "--export", "rows.npz", "--format", "json"]].concat());
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        [&report["rows"], &report["held_out_rows"], &report["trees"]],
        [3000, 600, 20].map(Value::from).each_ref()
    );
    assert!(["bin_s", "fit_s", "predict_s", "rows_per_s"].iter().all(|name| positive(&report[*name])), "{report}");
    let auroc = report["auroc"].as_f64().unwrap();
    assert!(auroc > 0.75 && auroc < 0.95, "{auroc}");
    #[cfg(feature = "vulkan")]
    if graphsieve_kernels::device::probe_vulkan().is_ok() {
        let said = sandbox.succeeds([&few[..], &["--device", "vulkan", "--format", "json"]].concat());
        let on_device: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(on_device["fingerprint"], report["fingerprint"], "the model of another device");
    }
    let file = std::fs::File::open(sandbox.path("rows.npz")).unwrap();
    let mut archive = ndarray_npy::NpzReader::new(file).unwrap();
    let x: ndarray::Array2<f32> = archive.by_name("x").unwrap();
    let y: ndarray::Array1<f32> = archive.by_name("y_test").unwrap();
    assert_eq!((x.dim(), y.dim()), ((3000, 6), 600));
    sandbox.refuses([&few[..], &["--export", "rows.npz"]].concat(), 1, &["rows.npz", "exists already"]);
    sandbox.refuses(["bench", "trees", "--features", "4"], 2, &["--features", "at least 5"]);
}

#[test]
fn a_loader_is_measured_on_sampled_batches() {
    let sandbox = Sandbox::with_data();
    let said = sandbox.succeeds([
        "bench",
        "loader",
        "--data",
        "data",
        "--device",
        "cpu",
        "--runs",
        "2",
        "--format",
        "json",
        "--batches",
        "6",
        "--batch-size",
        "40",
        "--fanouts",
        "4,3",
        "--kappa",
        "3",
    ]);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&report["nodes"], &report["batch_size"]), (&500.into(), &40.into()));
    let sampling = report["sampling"].as_array().unwrap();
    assert!(sampling.len() == 1 && positive(&sampling[0]["edges_per_s"]), "{report}");
    assert!(report["transfer"].as_array().unwrap().iter().all(|row| positive(&row["gb_per_s"])), "{report}");
    let policies = report["policies"].as_array().unwrap();
    let of = |at: usize, name: &str| policies[at][name].as_f64().unwrap();
    assert_eq!((policies.len(), of(0, "ratio"), of(0, "shared")), (6, 1.0, 0.0));
    for at in 0..6 {
        assert!((of(at, "rows") - of(at, "shared") - of(at, "hot") - of(at, "fetched")).abs() < 1e-6, "{report}");
    }
    // Window and cache move less than either alone.
    assert!(of(3, "fetched") <= of(1, "fetched") && of(3, "fetched") <= of(2, "fetched"), "{report}");
    let passes = &report["passes"][0];
    assert!(["loaded_ms", "alone_ms", "busy"].iter().all(|name| positive(&passes[name])), "{report}");
    assert_eq!(passes["stats"]["batches"], 6);
    sandbox.refuses(["bench", "loader"], 2, &["--data", "graphsieve synth"]);
    sandbox.refuses(["bench", "loader", "--data", "data", "--hot", "2"], 2, &["--hot", "from 0 to 1"]);
}

#[test]
fn epochs_on_one_and_on_several_ranks_are_measured() {
    let sandbox = Sandbox::with_data();
    sandbox
        .write("run.toml", "task = \"stage2\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 8\n");
    let fixed =
        ["--quiet", "bench", "scale", "--config", "run.toml", "--data", "data", "--devices", "1,2", "--runs", "1"];
    let more = |mode| ["--set", mode, "--device", "cpu", "--format"];
    let said = sandbox.succeeds([&fixed[..], &more("loader.mode=full"), &["json"]].concat());
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    for (at, devices) in [(0, 1), (1, 2)] {
        assert_eq!(report["rows"][at]["devices"], devices);
        for what in ["times", "scores"] {
            assert!(report["rows"][at][what]["median_ms"].as_f64().unwrap() > 0.0, "{report}");
        }
    }
    let table = sandbox.succeeds([&fixed[..], &more("loader.mode=sampled"), &["table"]].concat()).stdout;
    let row = table.lines().find(|line| line.trim_start().starts_with("2 ")).unwrap();
    assert!(row.contains('x') && row.contains(" %") && table.contains("seeds/s"), "{table}");
}

#[test]
fn an_import_is_measured_on_a_table_that_is_made_up() {
    let sandbox = Sandbox::new();
    let said = sandbox.succeeds(["bench", "import", "--rows", "2000", "--runs", "2", "--format", "json"]);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&report["edges"], &report["runs"]), (&2000.into(), &2.into()));
    // 4,000 draws of 400 ids.
    assert_eq!(report["nodes"], 400, "{report}");
    assert!(positive(&report["times"]["median_ms"]) && positive(&report["edges_per_s"]), "{report}");
    sandbox.refuses(["bench", "import", "--rows", "0"], 2, &["--rows", "at least 1"]);
}

#[cfg(target_os = "linux")]
#[test]
fn many_trainings_and_scorings_in_one_process_leave_no_handle_and_no_thread() {
    let sandbox = Sandbox::new();
    let few = ["--epochs", "400", "--scorings", "40", "--rounds", "10", "--device", "cpu"];
    let said = sandbox.succeeds([&["bench", "endurance", "--format", "json"], &few[..]].concat());
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let samples = report["samples"].as_array().unwrap();
    assert_eq!((samples.len(), &report["trainings"], &report["nodes"]), (11, &40.into(), &408.into()));
    let [first, last] = [&samples[1], &samples[10]];
    assert_eq!([&last["epochs"], &last["scorings"]], [400, 40].map(Value::from).each_ref());
    for what in ["handles", "threads"] {
        let [before, after] = [first, last].map(|sample| sample[what].as_u64().unwrap());
        assert!(before > 0 && after <= before, "{report}");
    }
    assert!(positive(&last["resident_bytes"]) && positive(&last["peak_bytes"]), "{report}");
    sandbox.refuses(["bench", "endurance", "--rounds", "9", "--device", "cpu"], 2, &["--rounds: expected at least 10"]);
}
