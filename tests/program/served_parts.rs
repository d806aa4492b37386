//! What the server says of a part of the graph is what `score` says of the whole.

use serde_json::{Value, json};

use crate::events::{BY_TIME, EVENTS, payments, tables};
use crate::serve::Server;

const STAGE1: &str = "task = \"stage1\"\n[data]\npath = \"data\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 1\n\
                      [output]\ndir = \"runs\"\nplots = false\n";

/// Every fifth payment is made with one card and at no shop: around it there is none.
#[test]
fn a_payment_without_a_shop_around_it_is_scored_as_in_the_whole_graph() {
    let mut rows = payments(151);
    for row in rows.iter_mut().step_by(5) {
        row[2] = "alone".into();
        row[3].clear();
    }
    let description = format!("{BY_TIME}{EVENTS}");
    let sandbox = tables(&rows[..150], &description.replace("\"shop.shop\"\n", "\"shop.shop\"\nskip_empty = true\n"));
    let import = ["--quiet", "import", "tables", "graph.toml", "--out"];
    sandbox.succeeds([&import[..], &["data"]].concat());
    let new = &rows[150];
    sandbox.edit("payments.csv", |table| table.extend(format!("{}\n", new.join(",")).into_bytes()));
    sandbox.succeeds([&import[..], &["all", "--with", "data"]].concat());
    sandbox.write("run.toml", STAGE1);
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = sandbox.only_run("runs");

    let score = ["--quiet", "score", &run, "--data", "all", "--device", "cpu", "--format", "json"];
    let listed: Vec<Value> = serde_json::from_str(&sandbox.succeeds(score).stdout).unwrap();
    let of_new = listed.iter().find(|of| of["type"] == "payment" && of["id"] == *new[0]).unwrap();
    let (time, amount) = (new[1].parse::<i64>().unwrap(), new[4].parse::<f64>().unwrap());
    let row = json!({"type": "payment", "id": new[0], "time": time, "card": new[2], "amount": amount});
    let server = Server::start(&sandbox, &run, &[]);
    let scores = server.scores(&json!({"nodes": [row], "targets": ["payment:150"]}));
    let (served, whole) = (scores["payment:150"].parse::<f64>().unwrap(), of_new["score"].as_f64().unwrap());
    assert!((served - whole).abs() < 1e-6, "{served} of the part, {whole} of the whole graph");
    server.stop();
}
