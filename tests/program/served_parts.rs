//! What the server says of a part of the graph is what `score` says of the whole, whatever rows it has kept.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::events::{BY_TIME, DAY, EVENTS, payments, tables};
use crate::serve::{Server, payments_of, targets, trained};

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

const STAGES: &str = "[stage1]\nmodel.hidden = 8\nmodel.out = 8\ntrain.epochs = 1\n[stage2]\ndata.input = \"features\"\n\
                      model.hidden = 8\nmodel.out = 8\ntrain.epochs = 2\n[stage3]\nfeatures.mean = false\n\
                      features.stage2_folds = 2\nmodel.kind = \"booster\"\nmodel.trees = 10\nmodel.patience = 0\n\
                      model.min_data_in_leaf = 2\n";

#[test]
fn kept_rows_make_the_scores_of_a_server_that_has_none() {
    let (sandbox, run) = trained("pipeline", STAGES);
    let mut server = Server::start(&sandbox, &run, &[]);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (mut new, mut next): (Vec<u64>, u64) = (Vec::new(), 0);
    for _ in 0..4 {
        for _ in 0..24 {
            let any = rng.random_range(0..new.len().max(1));
            match rng.random_range(0..10) {
                0 if new.len() > 3 => {
                    let path = format!("/v1/nodes/payment/new-{}", new.swap_remove(any));
                    assert_eq!(server.connect().ask("DELETE", &path, &[], b"").unwrap().status, 200);
                }
                1 if new.len() > 3 => {
                    let node = format!("payment:new-{}", new[any]);
                    server.post("/v1/labels", &json!({"labels": [{"node": node, "label": 1, "known": 30 * DAY}]}));
                }
                kind => {
                    let mut rows = payments_of([next]);
                    if kind < 4 {
                        // Before others, be they known or new.
                        let time = rows["nodes"][0]["time"].as_i64().unwrap();
                        rows["nodes"][0]["time"] = json!(time - rng.random_range(0..3 * DAY));
                    }
                    let waits = server.scores(&json!({"nodes": rows["nodes"], "targets": targets([], [next])}));
                    server.post("/v1/events", &rows);
                    assert_eq!(server.scores(&json!({"targets": targets([], [next])})), waits);
                    new.push(next);
                    next += 1;
                }
            }
            server.scores(&json!({"targets": targets([rng.random_range(0..150)], new.last().copied())}));
        }
        let all = json!({"targets": targets((0..150).step_by(5), new.iter().copied())});
        let kept = server.scores(&all);
        server.stop();
        server = Server::start(&sandbox, &run, &[]);
        assert_eq!(server.scores(&all), kept);
    }
    server.stop();
}
