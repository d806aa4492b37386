//! Edge tables with labels: every row is scored as the edge that it is.

use std::collections::BTreeMap;

use burn_flex::{Flex, FlexDevice};
use graphsieve::config::NeighbourhoodConfig;
use graphsieve::graph::Dataset;
use graphsieve::infer::tree_table::neighbourhood_table;
use graphsieve::run::evaluation::read_scores;

use crate::events::{BY_TIME, DAY};
use crate::known_labels::{computed, flip, with_other_labels};
use crate::support::{Sandbox, repository};

/// `count` transfers among 9 accounts from 1970-01-01, several a day, some pairs again and again; every eleventh a
/// fraud.
fn transfers(count: usize) -> Vec<[String; 6]> {
    let row = |at: usize| {
        let time = at as i64 * DAY / 6 + (at * 7919 % 3_000) as i64;
        let from = at * 13 % 7;
        let to = (from + 1 + at * at % 5) % 9;
        let amount = 5.0 + (at * 31 % 97) as f64 + if at % 11 == 3 { 60.0 } else { 0.0 };
        let fraud = usize::from(at % 11 == 3);
        let [number, time, amount, fraud] = [at.to_string(), time.to_string(), amount.to_string(), fraud.to_string()];
        [number, time, format!("A{from}"), format!("A{to}"), amount, fraud]
    };
    (0..count).map(row).collect()
}

fn table(rows: &[[String; 6]]) -> String {
    let lines: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    format!("id,time,from,to,amount,fraud\n{}\n", lines.join("\n"))
}

fn sandbox(rows: &[[String; 6]], description: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("transfers.csv", table(rows));
    sandbox.write("graph.toml", description);
    sandbox
}

const EDGES: &str = r#"
[[edges]]
name = "transfer"
file = "transfers.csv"
src = "account.from"
dst = "account.to"
id = "id"
time = "time"
amount = "amount"
label = { column = "fraud", delay = "2d" }
values = ["amount"]
"#;

const WINDOWS: &str = "[[windows]]\nspans = [\"1d\", \"7d\"]\nlast = [3]\n";

/// The same table as nodes.
const NODES: &str = r#"
[[nodes]]
type = "transfer"
file = "transfers.csv"
id = "id"
time = "time"
amount = "amount"
label = { column = "fraud", delay = "2d" }
features = { amount = "numeric" }
ends = ["transfer_src", "transfer_dst"]
[[edges]]
name = "transfer_src"
src = "account.from"
dst = "transfer"
[[edges]]
name = "transfer_dst"
src = "account.to"
dst = "transfer"
"#;

#[test]
fn a_table_of_labelled_edges_is_one_of_nodes_and_of_their_two_ends() {
    for windows in ["", WINDOWS] {
        let files = |description: &str| {
            let sandbox = sandbox(&transfers(150), &format!("{BY_TIME}{description}{windows}"));
            sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
            let names = std::fs::read_dir(sandbox.path("data")).unwrap().map(|entry| entry.unwrap().file_name());
            let read = |name: std::ffi::OsString| {
                let name = name.into_string().unwrap();
                let content = sandbox.read(&format!("data/{name}"));
                (name, content)
            };
            names.map(read).collect::<BTreeMap<_, _>>()
        };
        let (edges, nodes) = (files(EDGES), files(NODES));
        assert!(edges.contains_key("event_time.npy") && edges.contains_key("import.json"));
        for (name, content) in &edges {
            assert!(nodes[name] == *content, "{name} differs");
        }
        assert_eq!(edges.len(), nodes.len());
    }
}

/// Both ends are accounts: their windows are called by the place of the end, and a pair has windows of its own.
#[test]
fn windows_of_pairs_hold_the_earlier_edges_of_the_same_two_ends() {
    let rows = transfers(150);
    let sandbox = sandbox(&rows, &format!("{BY_TIME}{EDGES}{WINDOWS}pairs = true\n"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    let (names, features) = (data.feature_names.as_ref().unwrap(), data.features.as_ref().unwrap());
    let column =
        |name: &str| names.iter().position(|of| of == name).unwrap_or_else(|| panic!("no {name} in {names:?}"));
    let time = |row: &[String; 6]| row[1].parse::<i64>().unwrap();
    let mut most = 0;
    for (name, of) in [("src", &[2][..]), ("dst", &[3][..]), ("pair", &[2, 3][..])] {
        let column = column(&format!("transfer.{name}_7d_count"));
        let counts: Vec<usize> = (rows.iter())
            .map(|row| {
                let is_same = |other: &&[String; 6]| of.iter().all(|&at| other[at] == row[at]);
                let window = time(row) - 7 * DAY..time(row);
                rows.iter().filter(is_same).filter(|other| window.contains(&time(other))).count()
            })
            .collect();
        // Columns are standardised: equal counts have equal values, larger ones larger values.
        let mut values: Vec<(usize, f32)> =
            counts.iter().enumerate().map(|(at, &count)| (count, features.row(at).nth(column).unwrap())).collect();
        values.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for two in values.windows(2) {
            assert_eq!(two[0].0 < two[1].0, two[0].1 < two[1].1, "{name}: {two:?}");
        }
        most = counts.iter().copied().max().unwrap();
    }
    assert!(most > 2, "some pairs have earlier transfers");
    let of_pairs: Vec<&String> = names.iter().filter(|name| name.starts_with("transfer.pair_")).collect();
    assert!(of_pairs.iter().all(|name| !name.contains("distinct") && !name.contains("other")), "{of_pairs:?}");
}

/// Trains attention and trees, and looks at everything that names an edge.
#[test]
fn lists_explanations_and_reports_say_from_where_to_where() {
    let rows = transfers(150);
    let sandbox = sandbox(&rows, &format!("{BY_TIME}{EDGES}{WINDOWS}"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    for (config, settings) in [
        ("configs/payments.toml", ["model.trees=20", "model.min_data_in_leaf=2"]),
        ("configs/payments-stage2.toml", ["train.epochs=2", "loader.batch_size=64"]),
    ] {
        let runs = config.replace(['/', '.'], "-");
        let (config, out) = (repository(config).display().to_string(), format!("output.dir={runs}"));
        let mut train: Vec<&str> = vec!["--quiet", "train", &config, "--device", "cpu"];
        let settings = ["data.path=data", &out, "output.plots=false"].into_iter().chain(settings);
        settings.for_each(|set| train.extend(["--set", set]));
        sandbox.succeeds(&train);
        let run = sandbox.only_run(&runs);
        let list = sandbox.succeeds(["score", &run, "--device", "cpu", "--node-type", "transfer"]).stdout;
        let mut lines = list.lines();
        assert_eq!(lines.next(), Some("rank,type,id,src,dst,score,probability,label,known"));
        let lines: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 150);
        for line in &lines {
            let row = &rows[line[2].parse::<usize>().unwrap()];
            assert_eq!([line[3], line[4], line[7]], [&row[2], &row[3], &row[5]]);
        }
        // Accounts have no ends.
        let accounts = sandbox.succeeds(["score", &run, "--device", "cpu", "--node-type", "account"]).stdout;
        assert!(accounts.lines().skip(1).all(|line| line.split(',').nth(3) == Some("")), "{accounts}");
        let json = sandbox.succeeds(["score", &run, "--device", "cpu", "--format", "json", "--top", "3"]).stdout;
        let json: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(json.len(), 3);
        for node in json.iter().filter(|node| node["type"] == "transfer") {
            let row = &rows[node["id"].as_str().unwrap().parse::<usize>().unwrap()];
            assert_eq!((&node["src"], &node["dst"]), (&row[2].as_str().into(), &row[3].as_str().into()));
        }
        let said = sandbox.succeeds(["explain", &run, "--device", "cpu", "--node", "transfer:140"]).stdout;
        let name = format!("transfer:140 ({} -> {})", rows[140][2], rows[140][3]);
        assert!(said.starts_with(&name), "{said}\nlacks {name}");
        sandbox.succeeds(["report", &run, "--device", "cpu", "--out", &format!("{runs}.html"), "--all"]);
        let page = String::from_utf8(sandbox.read(&format!("{runs}.html"))).unwrap();
        let first = lines.iter().find(|line| line[0] == "1").unwrap();
        assert!(page.contains(&format!("{} -&gt; {}", first[3], first[4])), "the report lacks {first:?}");
    }
}

/// Tables of another day have no labels yet.
#[test]
fn a_run_scores_the_edges_of_another_day() {
    let sandbox = sandbox(&transfers(150), &format!("{BY_TIME}{EDGES}{WINDOWS}"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    let config = repository("configs/payments.toml").display().to_string();
    let mut train: Vec<&str> = vec!["--quiet", "train", &config, "--device", "cpu"];
    let settings = ["data.path=data", "output.dir=runs", "model.trees=20", "model.min_data_in_leaf=2"];
    settings.iter().for_each(|set| train.extend(["--set", set]));
    sandbox.succeeds(&train);
    let run = sandbox.only_run("runs");
    let all = transfers(170);
    sandbox.write("transfers.csv", table(&all));
    let since = all[150][1].clone();
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", &run, "--out", "later"]);
    let score = |data: &str| sandbox.succeeds(["score", &run, "--device", "cpu", "--data", data, "--since", &since]);
    let list = score("later").stdout;
    let ids: Vec<usize> = list.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse().unwrap()).collect();
    assert_eq!((ids.len(), ids.iter().min()), (20, Some(&150)));
    assert!(list.lines().skip(1).any(|line| line.split(',').nth(3) == Some("A1")), "{list}");
}

/// Whether the label of a transfer is not known yet when another one happens: its own, or one within the delay.
fn is_unknown(row: &[String; 6], at: &[String; 6]) -> bool {
    let time = |row: &[String; 6]| row[1].parse::<i64>().unwrap();
    time(row) + 2 * DAY > time(at)
}

/// A transfer that training learns from, and the latest one of the same two accounts whose label is known by then.
fn twins(rows: &[[String; 6]]) -> [usize; 2] {
    let twin = |at: usize| {
        (at - 30..at).rev().find(|&of| rows[of][2..4] == rows[at][2..4] && !is_unknown(&rows[of], &rows[at]))
    };
    (50..75).find_map(|at| twin(at).map(|of| [at, of])).expect("some accounts pay each other again")
}

/// The rows with other labels where `is_other` says so.
fn relabelled(rows: &[[String; 6]], is_other: impl Fn(usize) -> bool) -> Vec<[String; 6]> {
    let other = |(at, row): (usize, &[String; 6])| {
        let mut row = row.clone();
        if is_other(at) {
            row[5] = if row[5] == "0" { "1" } else { "0" }.into();
        }
        row
    };
    rows.iter().enumerate().map(other).collect()
}

/// Imports rows with the transforms of `data`.
fn import_with(sandbox: &Sandbox, rows: &[[String; 6]], out: &str) -> Dataset {
    sandbox.write("transfers.csv", table(rows));
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", "data", "--out", out]);
    Dataset::open(&sandbox.path(out)).unwrap()
}

#[test]
fn no_label_that_is_not_known_yet_is_in_the_features_of_an_edge() {
    let rows = transfers(150);
    let sandbox = sandbox(&rows, &format!("{BY_TIME}{EDGES}{WINDOWS}pairs = true\n"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    let bits = |data: &Dataset, edges: std::ops::Range<usize>| -> Vec<Vec<u32>> {
        let features = data.features.as_ref().unwrap();
        edges.map(|edge| features.row(edge).map(f32::to_bits).collect()).collect()
    };
    let whole = Dataset::open(&sandbox.path("data")).unwrap();
    let [at, twin] = twins(&rows);
    // Its own label, those of later edges and those within the delay, among them other edges of the same two accounts.
    let unknown = import_with(&sandbox, &relabelled(&rows, |of| is_unknown(&rows[of], &rows[at])), "unknown");
    assert_eq!(bits(&whole, 0..at + 1), bits(&unknown, 0..at + 1));
    let known = import_with(&sandbox, &relabelled(&rows, |of| of == twin), "known");
    assert_ne!(bits(&whole, at..at + 1), bits(&known, at..at + 1), "a known label is read");
}

#[test]
fn no_label_that_is_not_known_yet_reaches_the_score_of_an_edge() {
    let rows = transfers(150);
    let sandbox = sandbox(&rows, &format!("{BY_TIME}{EDGES}{WINDOWS}pairs = true\n"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    let config = repository("configs/payments-stage2.toml").display().to_string();
    let train = |data: &str| {
        let settings = [format!("data.path={data}"), format!("output.dir=runs-{data}")];
        let small = ["output.plots=false", "model.labels=true", "train.epochs=2", "loader.batch_size=64"];
        let mut train: Vec<String> = ["--quiet", "train", &config, "--device", "cpu"].map(Into::into).into();
        let settings = settings.into_iter().chain(small.map(Into::into));
        settings.for_each(|set| train.extend(["--set".into(), set]));
        sandbox.succeeds(&train);
        sandbox.path(&sandbox.only_run(&format!("runs-{data}")))
    };
    let run = train("data");
    let (data, [at, _]) = (sandbox.path("data"), twins(&rows));
    let own = computed(&run, &data);
    let others = |is_other: &dyn Fn(usize) -> bool| {
        with_other_labels(&run, &data, |_, row| {
            if is_other(row["id"].as_str().unwrap().parse().unwrap()) {
                flip(row);
            }
        })
    };
    // Transfers come first, in the order of the table.
    let unknown = others(&|of| is_unknown(&rows[of], &rows[at]));
    assert_eq!(own[..=at], unknown[..=at], "its own label, later ones and those within the delay");
    assert_ne!(own[at + 1..150], unknown[at + 1..150], "which later ones read");
    let known = others(&|of| !is_unknown(&rows[of], &rows[at]));
    assert_ne!(own[at], known[at], "known labels are read");

    // Nor does a training read labels that become known after it.
    let split = Dataset::open(&data).unwrap().split.unwrap().times().unwrap();
    let end = rows.iter().position(|row| row[1].parse::<i64>().unwrap() >= split.known_until()).unwrap();
    let last = [String::new(), split.test[0].to_string(), String::new(), String::new(), String::new(), String::new()];
    let later = import_with(&sandbox, &relabelled(&rows, |of| is_unknown(&rows[of], &last)), "later");
    let nodes = later.graph.num_nodes();
    let scores = |run: std::path::PathBuf| read_scores(&run.join("anomaly_scores_stage2.npy"), nodes).unwrap();
    let (want, got) = (scores(run.clone()), scores(train("later")));
    assert_eq!(want[..end], got[..end]);
    assert_ne!(want[end..150], got[end..150], "later ones read them");
}

/// Devices that transfers were made with, over edges with values.
const VIA: &str = r#"
[[edges]]
name = "via"
file = "via.csv"
src = "device.device"
dst = "transfer.transfer"
values = ["signal"]
"#;

/// Columns of trees, by edge and then by account and device.
fn bits_of_trees(data: &Dataset) -> Vec<Vec<u32>> {
    let config = NeighbourhoodConfig { max: true, sum: true, edge_values: true, ..NeighbourhoodConfig::default() };
    let table = neighbourhood_table::<Flex>(data, "data".as_ref(), &config, &FlexDevice).unwrap();
    let names: Vec<&str> = table.columns().iter().map(|column| column.title.as_deref().unwrap_or_default()).collect();
    assert!(names.contains(&"via.edge_mean.signal"), "{names:?}");
    (0..table.num_rows()).map(|node| table.row(node).iter().map(|value| value.to_bits()).collect()).collect()
}

/// Labels are known late: without windows of what is known, no column tells any of them.
#[test]
fn the_label_of_an_edge_is_in_no_column_of_trees_of_any_edge() {
    let rows = transfers(150);
    let untimed = EDGES.replace("time = \"time\"\namount = \"amount\"\n", "").replace(", delay = \"2d\"", "");
    for description in [format!("{untimed}{VIA}"), format!("{BY_TIME}{EDGES}{VIA}")] {
        let sandbox = sandbox(&rows, &description);
        let via = |signal: &dyn Fn(usize) -> usize| -> String {
            let lines = (0..150).map(|at| format!("D{},{at},{}\n", at % 4, signal(at)));
            ["device,transfer,signal\n".to_owned()].into_iter().chain(lines).collect()
        };
        sandbox.write("via.csv", via(&|at| at * 29 % 31));
        sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
        let whole = Dataset::open(&sandbox.path("data")).unwrap();
        let labels = |data: &Dataset| data.labels.as_ref().unwrap().entries.clone();
        let columns = bits_of_trees(&whole);
        for edge in [70, 118, 140] {
            let other = import_with(&sandbox, &relabelled(&rows, |at| at == edge), &format!("other-{edge}"));
            let changed = labels(&whole).iter().zip(labels(&other)).filter(|(a, b)| *a != b).count();
            assert!(changed == 1 && columns == bits_of_trees(&other), "{edge}");
        }
        // A value of a later edge changes no column of an edge before it, where there are times.
        sandbox.write("via.csv", via(&|at| if at == 118 { 500 } else { at * 29 % 31 }));
        let other = bits_of_trees(&import_with(&sandbox, &rows, "signal"));
        assert_ne!(columns[118], other[118], "its own value is told");
        if description.contains("[split]") {
            assert_eq!(columns[..118], other[..118]);
        }
    }
}

/// Edges without times: both ways, and repeated edges stay apart.
#[test]
fn edges_without_times_are_scored_each() {
    let untimed = EDGES.replace("time = \"time\"\namount = \"amount\"\n", "").replace(", delay = \"2d\"", "");
    let sandbox = sandbox(&transfers(150), &untimed);
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    let relations: Vec<&str> = data.graph.relations().iter().map(|relation| relation.name.as_str()).collect();
    assert_eq!(relations, ["transfer_src", "transfer_src_T", "transfer_dst", "transfer_dst_T"]);
    assert_eq!(data.graph.node_types()[0].count, 150);
    let id = |node: Option<u32>| data.id_of(node.unwrap()).into_owned();
    let ends = |edge: u32| data.ends_of(edge).unwrap().map(id);
    for (at, row) in transfers(150).iter().enumerate() {
        assert_eq!(ends(at as u32), [row[2].clone(), row[3].clone()]);
    }
    // What is exported is what was imported.
    sandbox.succeeds(["export", "tables", "data", "--out", "tables"]);
    sandbox.succeeds(["import", "tables", "tables/graph.toml", "--out", "again"]);
    let again = Dataset::open(&sandbox.path("again")).unwrap();
    assert_eq!((again.ends_of(7), again.ends.len()), (data.ends_of(7), 1));
}

#[test]
fn keys_that_do_not_belong_together_are_refused_and_nothing_is_written() {
    let whole = format!("{BY_TIME}{EDGES}");
    let label = "label = { column = \"fraud\", delay = \"2d\" }\n";
    let cases = [
        (whole.replace(label, ""), "edges.id of `transfer`"),
        (whole.replace("values = [\"amount\"]\n", "weight = \"amount\"\n"), "edges.weight of `transfer`"),
        (whole.replace("src = \"account.from\"", "src = \"account\""), "write src = \"account.COLUMN\""),
        (whole.replace("file = \"transfers.csv\"\n", ""), "one row is one edge"),
        (format!("[[nodes]]\ntype = \"transfer\"\nfile = \"transfers.csv\"\n{EDGES}"), "edges.name of `transfer`"),
        (format!("{BY_TIME}{}", NODES.replace("\"transfer_dst\"]", "\"to\"]")), "nodes.ends of `transfer`"),
        (
            format!(
                "{BY_TIME}{}[[windows]]\npairs = true\n",
                NODES.replace("ends = [\"transfer_src\", \"transfer_dst\"]\n", "")
            ),
            "windows.pairs",
        ),
        (whole.replace("time = \"time\"\n", ""), "nodes.amount"),
    ];
    for (description, expected) in cases {
        let sandbox = sandbox(&transfers(150), &description);
        sandbox.refuses(["import", "tables", "graph.toml", "--out", "data"], 2, &[expected]);
    }
}
