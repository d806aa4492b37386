//! `graphsieve plan` on a small marketplace.

use serde_json::Value;

use crate::support::Sandbox;

const ALL_ROWS: [&str; 6] = ["plan", "--data", "data", "--set", "train.rows=all", "--format"];

fn planned(sandbox: &Sandbox, more: &[&str]) -> Value {
    let said = sandbox.succeeds([&ALL_ROWS[..], &["json"], more].concat());
    serde_json::from_str(&said.stdout).unwrap()
}

#[test]
fn a_plan_has_a_row_for_every_number_of_devices_and_says_what_it_assumes() {
    let sandbox = Sandbox::with_data();
    let table = sandbox.succeeds([&ALL_ROWS[..], &["table", "--devices", "1,2,64", "--hosts", "8"]].concat()).stdout;
    let first_two = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = table.lines().filter(|line| line.contains('x') && line.contains("  ")).map(first_two).collect();
    for row in [["1", "1"], ["2", "1"], ["64", "8"]] {
        assert!(rows.iter().any(|found| *found == row), "{row:?}\n{table}");
    }
    for part in ["500 nodes", "all rows of the whole graph", "4050 GB/s", "400 Gbit/s", "hidden", "not counted"] {
        assert!(table.contains(part), "{part}\n{table}");
    }
    // The settings decide the way; without any they are those of the shipped file.
    let way = |more: &[&str]| sandbox.succeeds([&["plan", "--data", "data"], more].concat()).stdout;
    assert!(way(&[]).contains("reachable rows") && way(&["--set", "loader.mode=sampled"]).contains("mini-batches"));
    assert!(way(&["--set", "loader.mode=auto", "--memory", "0.001"]).contains("mini-batches"));
}

#[test]
fn figures_of_a_plan_follow_devices_scale_memory_and_epoch() {
    let sandbox = Sandbox::with_data();
    let plan = planned(&sandbox, &["--memory", "0.002"]);
    let row = |plan: &Value, at: usize, name: &str| plan["rows"][at][name].as_f64().unwrap();
    assert_eq!([0, 1, 2].map(|at| row(&plan, at, "devices")), [1.0, 2.0, 4.0]);
    let info = sandbox.succeeds(["info", "--data", "data", "--format", "json"]).stdout;
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!([plan["nodes"].as_f64(), plan["edges"].as_f64()], [info["nodes"].as_f64(), info["edges"].as_f64()]);
    assert_eq!((row(&plan, 0, "calls"), row(&plan, 0, "bytes"), row(&plan, 1, "calls")), (0.0, 0.0, 10.0));
    // Hidden rows and logits of 500 nodes forward, their half backward, three streams of two layers and two sums.
    let parameters = 3 * (2 * 128 * 128 + 2 * 256) + 129;
    assert_eq!(row(&plan, 1, "bytes"), (500 * 516 * 3 / 2 + 4 * parameters + 12) as f64);
    let [compute, exchange, hidden] = ["compute_ms", "exchange_ms", "hidden_ms"].map(|name| row(&plan, 1, name));
    assert!(((compute + exchange - hidden) / row(&plan, 1, "epoch_ms") - 1.0).abs() < 1e-9);
    assert!(hidden > 0.0 && hidden < exchange && hidden <= compute, "{compute}, {exchange}, {hidden}");
    assert_eq!(plan["rows"][0]["fits"], false);
    let memory = |plan: &Value, part: &str| plan["rows"][0]["memory"][part].as_f64().unwrap();
    assert_eq!(memory(&plan, "features"), f64::from(500 * 128 * 4));

    let larger = planned(&sandbox, &["--scale", "3", "--epoch", "10", "--memory", "1"]);
    assert_eq!((larger["nodes"].as_f64(), memory(&larger, "features")), (Some(1500.0), f64::from(1500 * 128 * 4)));
    assert_eq!(larger["rows"][0]["fits"], true);
    // Nearly three times what is no launch: weights do not grow with the graph.
    let launches = row(&larger, 0, "launch_ms");
    let grown = (row(&larger, 0, "epoch_ms") - launches) / (10.0 - launches);
    assert!(launches > 1.0 && (2.7..3.0).contains(&grown), "{larger}");
    assert_eq!(planned(&sandbox, &["--epoch", "10"])["rows"][0]["epoch_ms"], 10.0);
    let slow = planned(&sandbox, &["--link-rate", "0.001"]);
    assert_eq!(slow["rows"][1]["bottleneck"], "link");
    let hosts = planned(&sandbox, &["--devices", "4", "--hosts", "2", "--network-rate", "0.001"]);
    assert_eq!((&hosts["rows"][0]["hosts"], &hosts["rows"][0]["bottleneck"]), (&2.into(), &"network".into()));
}

#[test]
fn every_network_can_be_planned() {
    let sandbox = Sandbox::with_data();
    sandbox.write("stage1.toml", "task = \"stage1\"\n[data]\npath = \"data\"\n");
    sandbox.write("classify.toml", "task = \"classify\"\n[data]\npath = \"data\"\n[split]\nuse = \"labels\"\n");
    let sampled = ["--set", "loader.mode=sampled"];
    for (config, more, parts) in [
        ("stage1.toml", &[][..], ["Stage 1, reachable rows", "0 labels", "all nodes forward alone"]),
        ("stage1.toml", &sampled, ["Stage 1, mini-batches", "seeds a second", "rows of features"]),
        ("classify.toml", &[], ["classify, layers of gcn, all rows", "0 edges", "million a second"]),
        ("classify.toml", &sampled, ["classify, layers of gcn, mini-batches", "seeds a second", "rows of features"]),
    ] {
        let said = sandbox.succeeds([&["plan", config, "--data", "data", "--devices", "1,64"], more].concat()).stdout;
        for part in parts {
            assert!(said.contains(part), "{part}\n{said}");
        }
    }
    // Stage 1 learns without labels.
    std::fs::remove_file(sandbox.path("data/labels.npy")).unwrap();
    sandbox.succeeds(["plan", "stage1.toml", "--data", "data"]);
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let sandbox = Sandbox::with_data();
    let refuses = |more: &[&str], code: i32, part: &str| sandbox.refuses([&["plan"], more].concat(), code, &[part]);
    refuses(&[], 2, "--data");
    refuses(&["--data", "absent"], 1, "absent: cannot open");
    for argument in
        ["--scale", "--memory", "--epoch", "--device-rate", "--link-rate", "--network-rate", "--launch-time"]
    {
        refuses(&["--data", "data", argument, "0"], 2, &format!("{argument}: expected a number above 0, found 0"));
    }
    refuses(&["--data", "data", "--devices", "0"], 2, "--devices");
    refuses(&["--data", "data", "--set", "train.row=all"], 2, "train.row");
    sandbox.write("stage3.toml", "task = \"stage3\"\n[data]\npath = \"data\"\n");
    refuses(&["stage3.toml", "--data", "data"], 2, "CONFIG: expected a configuration of task = \"stage1\"");
    sandbox.write("classify.toml", "task = \"classify\"\n[data]\npath = \"data\"\n[model]\nlayer = \"h2gcn\"\n");
    refuses(&["classify.toml", "--data", "data"], 2, "model.layer: expected layers that read edges of the data");
    sandbox.write("graph.npz", "");
    refuses(&["--data", "graph.npz"], 2, "`graphsieve import npz`");
    std::fs::rename(sandbox.path("data/labels.npy"), sandbox.path("labels.npy")).unwrap();
    refuses(&["--data", "data"], 1, "add labels.npy");
    sandbox.write("data/euu_row_ptr.bin", "short");
    refuses(&["--data", "data"], 1, "euu_row_ptr.bin: file length");
}
