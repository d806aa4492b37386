//! From tables to a report, by the five commands of the README: two CSV files of accounts and payments, and one table
//! of transactions as S-FFSD is.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::support::{Sandbox, repository};

/// A number below `n`, spread evenly by a multiplicative hash of what it is for.
pub fn draw(of: [u64; 2], n: u64) -> u64 {
    let mixed = (of[0] * 1_000_003 + of[1] + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % n
}

const ACCOUNTS: u64 = 400;
/// The first accounts are a ring: they share two devices and pay one another.
const RING: u64 = 40;

/// The description of the README.
const SHOP: &str = r#"[[nodes]]
type = "account"
file = "accounts.csv"
id = "account"
label = "fraud"
features = { country = "categorical", age_days = "numeric" }

[[edges]]
name = "pays"
file = "payments.csv"
src = "account.from"
dst = "account.to"
weight = "amount"
time = { column = "time", format = "%Y-%m-%d" }

[[shared]]
nodes = "account"
column = "device"
"#;

/// `accounts.csv` and `payments.csv`.
fn shop(sandbox: &Sandbox) {
    let mut accounts = String::from("account,country,device,age_days,fraud\n");
    let mut payments = String::from("from,to,amount,time\n");
    for account in 0..ACCOUNTS {
        let ring = account < RING;
        let device = if ring { draw([account, 1], 2) } else { 2 + draw([account, 1], 300) };
        let country = ["DE", "FR", "NL"][draw([account, 2], 3) as usize];
        let age = draw([account, 3], 900);
        // A label for every ring member and for a third of the others.
        let label = match (ring, draw([account, 4], 3)) {
            (true, _) => "1",
            (false, 0) => "0",
            _ => "",
        };
        writeln!(accounts, "A{account:04},{country},D{device},{age},{label}").unwrap();
        for payment in 0..5 {
            let others = if ring && payment < 3 { RING } else { ACCOUNTS };
            let to = draw([account, 10 + payment], others);
            let (amount, day) = (draw([account, 20 + payment], 5_000), 1 + draw([account, 30 + payment], 28));
            writeln!(payments, "A{account:04},A{to:04},{}.{:02},2024-03-{day:02}", amount / 100, amount % 100).unwrap();
        }
    }
    sandbox.write("accounts.csv", accounts);
    sandbox.write("payments.csv", payments);
    sandbox.write("graph.toml", SHOP);
}

fn train(sandbox: &Sandbox, data: &str) -> String {
    let config = repository("configs/stage2.toml").display().to_string();
    let path = format!("data.path={data}");
    let settings = ["--set", &path, "--set", "model.hidden=16", "--set", "model.out=16", "--set", "train.epochs=60"];
    let rate = ["--set", "train.learning_rate=0.01", "--set", "output.plots=false", "--device", "cpu"];
    sandbox.succeeds([&["--quiet", "train", &config][..], &settings, &rate].concat());
    sandbox.only_run("artifacts/runs")
}

#[test]
fn two_tables_become_a_report_in_five_commands() {
    let sandbox = Sandbox::new();
    shop(&sandbox);
    let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    assert!(said.stdout.contains("account: 400 nodes"), "{}", said.stdout);
    let run = train(&sandbox, "data");

    let list =
        sandbox.succeeds(["--quiet", "score", &run, "--top", "20", "--node-type", "account", "--format", "json"]);
    let list: Vec<Value> = serde_json::from_str(&list.stdout).unwrap();
    let of_ring = |id: &str| id[1..].parse::<u64>().unwrap() < RING;
    let found = list.iter().filter(|node| of_ring(node["id"].as_str().unwrap())).count();
    assert!(found >= 15, "{found} of the first 20 are of the ring: {list:?}");
    assert!(list[0]["probability"].as_f64().unwrap() > 0.5);

    let node = format!("account:{}", list[0]["id"].as_str().unwrap());
    let why = sandbox.succeeds(["--quiet", "explain", &run, "--node", &node, "--device", "cpu", "--format", "json"]);
    let why: Value = serde_json::from_str(&why.stdout).unwrap();
    assert_eq!(why["name"], node.as_str());
    let columns: Vec<&str> = why["columns"].as_array().unwrap().iter().map(|c| c["column"].as_str().unwrap()).collect();
    assert!(columns.iter().any(|column| column.starts_with("account.")), "{columns:?}");
    let drawing = sandbox.succeeds(["--quiet", "explain", &run, "--node", &node, "--device", "cpu", "--format", "svg"]);
    let readme = fs::read_to_string(repository("README.md")).unwrap();
    assert!(readme.contains(SHOP), "the README shows another description");
    assert!(drawing.stdout.starts_with("<svg") && drawing.stdout.contains("A00"), "{}", &drawing.stdout[..200]);

    sandbox.succeeds(["--quiet", "report", &run, "--all", "--top", "5", "--device", "cpu"]);
    let page = String::from_utf8(sandbox.read(&format!("{run}/report.html"))).unwrap();
    assert!(page.contains(list[0]["id"].as_str().unwrap()) && page.contains("ROC-AUC"));
}

#[test]
fn one_table_of_transactions_trains_by_a_description_of_fifteen_lines() {
    let sandbox = Sandbox::new();
    let mut table = String::from("Time,Source,Target,Amount,Location,Type,Labels\n");
    for at in 0..600u64 {
        // One in five comes from the same few cards at the same place; two in five of all are unknown.
        let fraud = draw([at, 1], 5) == 0;
        let (source, place) = match fraud {
            true => (draw([at, 2], 6), draw([at, 3], 2)),
            false => (10 + draw([at, 2], 200), 2 + draw([at, 3], 30)),
        };
        let label = if draw([at, 4], 5) < 2 { 2 } else { u64::from(fraud) };
        let (target, amount, kind) = (draw([at, 5], 40), draw([at, 6], 20_000), draw([at, 7], 4));
        writeln!(table, "{},S{source},T{target},{amount},L{place},TP{kind},{label}", at * 60).unwrap();
    }
    sandbox.write("transactions.csv", table);
    let description = include_str!("../support/transactions.toml");
    assert!(description.lines().count() <= 15);
    sandbox.write("graph.toml", description);
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "data"]);
    let run = train(&sandbox, "data");
    let figures: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
    let auc = figures["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap();
    assert!(auc > 0.9, "test ROC-AUC {auc}");
}
