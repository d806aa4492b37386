//! What the server took is there after a restart, and what it forgot is not, however ids, relations and columns are
//! written.

use std::fs;

use serde_json::{Value, json};

use crate::events::{BY_TIME, DAY, EVENTS, payments, tables};
use crate::serve::{STAGE3, Server, has, trained};
use crate::support::Sandbox;

/// Behind all payments of the base.
const NOW: i64 = 26 * DAY;

fn row(id: &str, time: i64, card: &str) -> Value {
    json!({"type": "payment", "id": id, "time": time, "card": card, "shop": "s1", "amount": 20})
}

fn forget(server: &Server, node: &str) {
    assert_eq!(server.connect().ask("DELETE", &format!("/v1/nodes/{node}"), &[], b"").unwrap().status, 200);
}

fn node(server: &Server, node: &str) -> Value {
    let answer = server.connect().ask("GET", &format!("/v1/nodes/{node}"), &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{node}");
    answer.json()
}

#[test]
fn an_id_that_retention_set_free_is_the_new_payment_after_a_restart_too() {
    let (sandbox, run) = trained("stage3", STAGE3);
    // Payment 7 of the base is 25 days old.
    let retention = ["--retention", "10d"];
    let server = Server::start(&sandbox, &run, &retention);
    assert!(!has(&mut server.connect(), "payment/7"));
    // So soon behind the latest one that no more is left out.
    let time = 149 * DAY / 6 + 1_000;
    server.post("/v1/events", &json!({"nodes": [row("7", time, "c1")]}));
    let all = json!({"targets": ["payment:7", "payment:149"]});
    let expected = (server.scores(&all), node(&server, "payment/7"));
    drop(server);
    for _ in 0..2 {
        let again = Server::start(&sandbox, &run, &retention);
        assert_eq!((again.scores(&all), node(&again, "payment/7")), expected);
    }
}

/// Payments and where they were made, in a table of its own, which import turns round.
fn with_visits() -> (Sandbox, String) {
    let shop = "[[edges]]\nname = \"paid_at\"\nsrc = \"payment\"\ndst = \"shop.shop\"\n";
    let visits =
        "[[edges]]\nname = \"paid_at\"\nfile = \"visits.csv\"\nsrc = \"payment.payment\"\ndst = \"shop.shop\"\n";
    assert!(EVENTS.contains(shop));
    let rows = payments(150);
    let sandbox = tables(&rows, &format!("{BY_TIME}{}", EVENTS.replace(shop, visits)));
    let lines: Vec<String> = rows.iter().map(|row| format!("{},{}", row[0], row[3])).collect();
    sandbox.write("visits.csv", format!("payment,shop\n{}\n", lines.join("\n")));
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "data"]);
    sandbox.write(
        "run.toml",
        format!("task = \"stage3\"\n[output]\ndir = \"runs\"\nplots = false\n[data]\npath = \"data\"\n{STAGE3}"),
    );
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = sandbox.only_run("runs");
    (sandbox, run)
}

#[test]
fn forgetting_a_card_leaves_the_edges_of_a_payment_of_the_same_id() {
    let (sandbox, run) = with_visits();
    let server = Server::start(&sandbox, &run, &[]);
    let mut payment = row("c3", NOW, "c1");
    payment.as_object_mut().unwrap().remove("shop");
    let edge = json!({"relation": "paid_at", "src": "c3", "dst": "s2"});
    server.post("/v1/events", &json!({"nodes": [payment], "edges": [edge]}));
    forget(&server, "card/c3");
    let (all, seen) = (json!({"targets": ["payment:c3"]}), node(&server, "payment/c3"));
    assert!(seen.to_string().contains("shop:s2"), "{seen}");
    let before = server.scores(&all);
    server.stop();
    let server = Server::start(&sandbox, &run, &[]);
    assert_eq!((server.scores(&all), node(&server, "payment/c3")), (before, seen));
}

#[test]
fn a_card_that_is_forgotten_is_in_no_file_however_its_payments_were_written() {
    let (sandbox, run) = trained("stage3", STAGE3);
    let server = Server::start(&sandbox, &run, &["--compact-share", "100"]);
    let nested = json!({"type": "payment", "id": "n1",
        "columns": {"time": NOW, "card": "secret77", "shop": "s1", "amount": 20}});
    server.post("/v1/events", &json!({"nodes": [nested, row("n2", NOW + 1, "secret77")]}));
    forget(&server, "card/secret77");
    let mut files = 0;
    for file in fs::read_dir(sandbox.path("state/log")).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        // That it is forgotten is noted for as long as the base may have it.
        let text = String::from_utf8_lossy(&bytes).replace("{\"forget\":\"card:secret77\"}", "");
        assert!(!text.contains("secret77"), "{text}");
        files += usize::from(text.contains("\"n1\"") && text.contains("\"n2\""));
    }
    assert_eq!(files, 1);
    server.stop();
    let server = Server::start(&sandbox, &run, &[]);
    let mut connection = server.connect();
    assert!(has(&mut connection, "payment/n1") && !has(&mut connection, "card/secret77"));
}

#[test]
fn a_late_label_changes_the_columns_of_the_first_payment_that_sees_it_in_what_is_kept_too() {
    let whole = "input = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 2\n";
    let (sandbox, run) = trained("stage2", whole);
    let server = Server::start(&sandbox, &run, &[]);
    // Of one card: what is kept of the second payment is read for the third one.
    let rows = [("e", NOW), ("x", NOW + 5 * DAY), ("y", NOW + 6 * DAY)].map(|(id, time)| row(id, time, "c1"));
    server.post("/v1/events", &json!({"nodes": rows}));
    let third = json!({"targets": ["payment:y"]});
    let before = server.scores(&third);
    server.post("/v1/labels", &json!({"labels": [{"node": "payment:e", "label": 1, "known": NOW + DAY}]}));
    let after = server.scores(&third);
    assert_ne!(after, before, "the label is seen");
    server.stop();
    assert_eq!(Server::start(&sandbox, &run, &[]).scores(&third), after);
}

#[test]
fn a_repeat_is_answered_as_the_first_time_wherever_the_graph_has_gone_since() {
    let (sandbox, run) = with_visits();
    let server = Server::start(&sandbox, &run, &[]);
    let ask = |path: &str, key: &str, body: &Value| {
        let header = format!("Idempotency-Key: {key}");
        server.connect().ask("POST", path, &[&header], body.to_string().as_bytes()).unwrap()
    };
    let mut payment = row("again", NOW, "c1");
    payment.as_object_mut().unwrap().remove("shop");
    let edges = json!({"edges": [{"relation": "paid_at", "src": "again", "dst": "s2"}]});
    let labels = json!({"labels": [{"node": "payment:again", "label": 1, "known": NOW + DAY}]});
    let requests = [
        ("/v1/events", "payment", json!({"nodes": [payment]})),
        ("/v1/events", "edges", edges),
        ("/v1/labels", "label", labels),
    ];
    let first = requests.each_ref().map(|(path, key, body)| ask(path, key, body).json());
    assert!(first.iter().all(|answer| answer["repeated"] == false), "{first:?}");
    forget(&server, "payment/again");
    for ((path, key, body), first) in requests.iter().zip(&first) {
        let again = ask(path, key, body);
        assert_eq!((again.status, &again.json()["position"]), (200, &first["position"]), "{key}: {}", again.json());
        assert_eq!(again.json()["repeated"], true);
        let other = match *key {
            "label" => json!({"labels": [{"node": "payment:5", "label": 1, "known": NOW}]}),
            _ => json!({"nodes": [row("other", NOW, "c1")]}),
        };
        assert_eq!(ask(path, key, &other).status, 409, "{key}");
    }
    assert!(!has(&mut server.connect(), "payment/again"));
}
