//! Tables of events: times, delays, the split that import stores, and what an event is told by.

use graphsieve::graph::{Dataset, SplitRule};
use serde_json::Value;

use crate::support::{Sandbox, repository};

pub const DAY: i64 = 86_400;

/// `count` payments of 7 cards at 5 shops, several a day from 1970-01-01, every eleventh a fraud.
pub fn payments(count: usize) -> Vec<[String; 6]> {
    let row = |at: usize| {
        let time = at as i64 * DAY / 6 + (at * 7919 % 3_000) as i64;
        let amount = 5.0 + (at * 31 % 97) as f64;
        let fraud = usize::from(at % 11 == 3);
        [
            at.to_string(),
            time.to_string(),
            format!("c{}", at * 13 % 7),
            format!("s{}", at * 17 % 5),
            amount.to_string(),
            fraud.to_string(),
        ]
    };
    (0..count).map(row).collect()
}

pub fn tables(rows: &[[String; 6]], description: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let lines: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud\n{}\n", lines.join("\n")));
    sandbox.write("graph.toml", description);
    sandbox
}

pub const EVENTS: &str = r#"
[[nodes]]
type = "payment"
file = "payments.csv"
id = "id"
time = "time"
amount = "amount"
alert = "card"
label = { column = "fraud", delay = "2d" }
features = { amount = "numeric" }
[[edges]]
name = "paid_with"
src = "card.card"
dst = "payment"
[[edges]]
name = "paid_at"
src = "payment"
dst = "shop.shop"
[[windows]]
spans = ["1d", "7d"]
last = [3]
"#;

pub const BY_TIME: &str = "[split]\nby = \"time\"\ntrain = \"10d\"\nvalidation = \"4d\"\ntest = \"4d\"\n";

pub const BY_CARD: &str = "[split]\nby = \"group\"\ngroups = [\"card\"]\n";

pub fn imported(rows: &[[String; 6]], description: &str) -> (Dataset, Sandbox) {
    let sandbox = tables(rows, description);
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    (Dataset::open(&sandbox.path("data")).unwrap(), sandbox)
}

/// Every edge of a graph with events leads from an entity or an earlier event to an event.
#[test]
fn nothing_points_from_a_later_event_or_at_an_entity() {
    let (data, _dir) = imported(&payments(150), &format!("{BY_TIME}{EVENTS}"));
    let events = data.events.as_ref().unwrap();
    let types = data.graph.node_types();
    let names: Vec<&str> = data.graph.relations().iter().map(|relation| relation.name.as_str()).collect();
    assert_eq!(names, ["paid_with", "paid_at_T", "earlier_paid_with", "earlier_paid_at"]);
    for relation in data.graph.relations() {
        assert_eq!(types[relation.dst].name, "payment");
        for dst in 0..relation.forward.num_rows() {
            for &src in relation.forward.row(dst) {
                let [to, from] = [types[relation.dst].offset + dst, types[relation.src].offset + src as usize];
                assert!(events.time[from] < events.time[to], "{}: {from} to {to}", relation.name);
            }
        }
    }
    let earlier = &data.graph.relations()[2].forward;
    assert_eq!((0..150).map(|row| earlier.degree(row)).max(), Some(10), "long histories are cut to the latest ten");
    assert_eq!(events.alert.as_ref().unwrap()[0], types[1].offset as u32);
    assert_eq!(events.known[3] - events.time[3], 2 * DAY);
}

#[test]
fn an_event_may_have_all_earlier_ones_and_each_is_stored_once() {
    let rows = payments(150);
    let import = |history: &str| {
        let description = EVENTS.replace("alert = \"card\"\n", &format!("alert = \"card\"\n{history}"));
        imported(&rows, &format!("{BY_TIME}{description}"))
    };
    let ((all, dir), (ten, other)) = (import("history = \"all\"\n"), import(""));
    let events = all.events.as_ref().unwrap();
    for (at, column) in [(2, 2), (3, 3)] {
        let (all, ten) = (&all.graph.relations()[at].forward, &ten.graph.relations()[at].forward);
        for row in 0..150 {
            let before = |of: usize| rows[of][column] == rows[row][column] && events.time[of] < events.time[row];
            let mut expected: Vec<u32> = (0..150).filter(|&of| before(of)).map(|of| of as u32).collect();
            expected.sort_by_key(|&of| events.time[of as usize]);
            assert_eq!(all.row(row), expected);
            assert_eq!(ten.row(row), &expected[expected.len().saturating_sub(10)..]);
        }
        assert_eq!((all.num_entries(), ten.num_entries()), (150, 150));
        assert!(all.num_edges() > 1_000, "{}", all.num_edges());
    }
    for file in ["earlier_paid_with_row_start.bin", "earlier_paid_with_row_end.bin", "earlier_paid_with_col_idx.bin"] {
        for sandbox in [&dir, &other] {
            assert_eq!(std::fs::metadata(sandbox.path(&format!("data/{file}"))).unwrap().len(), 4 * 150, "{file}");
        }
    }
    let none = import("history = 0\n").0;
    assert_eq!(none.graph.relations().len(), 2);
}

#[test]
fn the_split_by_time_is_stored_with_its_gaps() {
    let (data, _dir) = imported(&payments(150), &format!("{BY_TIME}{EVENTS}"));
    let (split, events) = (data.split.as_ref().unwrap(), data.events.as_ref().unwrap());
    let times = split.times().unwrap();
    assert_eq!(times.test, [21 * DAY, 25 * DAY], "it ends with the last day");
    assert_eq!((times.validation, times.train), ([15 * DAY, 19 * DAY], [3 * DAY, 13 * DAY]));
    for (node, &part) in split.windows[0].iter().enumerate() {
        let within = [times.train, times.validation, times.test];
        let expected = within.iter().position(|[from, to]| (*from..*to).contains(&events.time[node]));
        assert_eq!(usize::from(part), expected.map_or(0, |part| part + 1));
    }
}

#[test]
fn a_label_known_before_its_own_event_is_refused_with_both_times() {
    let said = EVENTS.replace("delay = \"2d\"", "delay = \"2d\", known = \"said\"");
    let sandbox = tables(&[], &format!("{BY_TIME}{said}"));
    let write = |of: &dyn Fn(usize, i64) -> (String, String)| {
        let rows = payments(150).into_iter().enumerate().map(|(at, mut row)| {
            let (label, known) = of(at, row[1].parse().unwrap());
            row[5] = label;
            format!("{},{known}", row.join(","))
        });
        let rows: Vec<String> = rows.collect();
        sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud,said\n{}\n", rows.join("\n")));
    };
    let label = |at: usize| u8::from(at % 11 == 3).to_string();
    let import = ["import", "tables", "graph.toml", "--out", "data"];
    // Line 42 is row 40, of the seventh day.
    write(&|at, time| (label(at), if at == 40 { time - 1 } else { time + 5 }.to_string()));
    let said = ["payments.csv: line 42, column `said`", "1970-01-07 16:29:20", "found \"577759\"", "is earlier"];
    sandbox.refuses(import, 1, &said);
    // At its own time it may be known, and of no label nothing is said.
    write(&|at, time| {
        (if at == 40 { String::new() } else { label(at) }, if at == 40 { time - 1 } else { time }.to_string())
    });
    sandbox.succeeds(import);
}

#[test]
fn an_edge_to_an_earlier_event_is_left_out_and_counted() {
    let links = "[[edges]]\nname = \"refunds\"\nfile = \"links.csv\"\nsrc = \"payment.from\"\ndst = \"payment.to\"\n";
    let description = format!("{BY_TIME}{}", EVENTS.replace("[[windows]]", &format!("{links}[[windows]]")));
    let sandbox = tables(&payments(150), &description);
    // Two to later payments, one to an earlier one, one to itself.
    sandbox.write("links.csv", "from,to\n3,9\n9,3\n5,5\n7,120\n");
    let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    let note = "2 of 4 edges of `refunds` lead to an earlier event: left out";
    assert!(said.stdout.contains(note) || said.stderr.contains(note), "{said:?}");
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    let refunds = data.graph.relations().iter().find(|relation| relation.name == "refunds").unwrap();
    let edges: Vec<(usize, u32)> = (0..refunds.forward.num_edges()).map(|edge| refunds.forward.edge(edge)).collect();
    assert_eq!(edges, [(9, 3), (120, 7)], "destination and source");
}

/// Seconds that are read as milliseconds all lie in the first weeks of 1970.
#[test]
fn times_in_another_unit_are_refused_unless_they_are_meant() {
    let mut rows = payments(150);
    // From 2018 on.
    rows.iter_mut().for_each(|row| row[1] = (row[1].parse::<i64>().unwrap() + 1_520_000_000).to_string());
    let of_events = |time: &str| EVENTS.replace("time = \"time\"", &format!("time = {{ column = \"time\", {time} }}"));
    let as_feature = |time: &str| {
        let kind = format!("time = {{ kind = \"timestamp\", {time} }}");
        EVENTS.replace("amount = \"numeric\"", &format!("amount = \"numeric\", {kind}"))
    };
    let of_edges = |time: &str| {
        let untimed = EVENTS.replace("time = \"time\"\namount = \"amount\"\nalert = \"card\"\n", "");
        let untimed = untimed.replace(", delay = \"2d\"", "").split("[[windows]]").next().unwrap().to_owned();
        untimed.replace("name = \"paid_at\"", &format!("name = \"paid_at\"\ntime = {{ column = \"time\", {time} }}"))
    };
    let import = ["import", "tables", "graph.toml", "--out", "data"];
    for unit in ["ms", "us", "ns"] {
        for description in [of_events, as_feature, of_edges].map(|of| of(&format!("unit = {unit:?}"))) {
            let said =
                ["payments.csv: column `time`", unit, "first weeks of 1970", "leave `unit` out", "in_1970 = true"];
            tables(&rows, &description).refuses(import, 1, &said);
        }
    }
    for description in [as_feature, of_edges].map(|of| of("unit = \"ms\", in_1970 = true")) {
        tables(&rows, &description).succeeds(import);
    }
    // In seconds nothing is said, and of milliseconds that are some neither.
    tables(&payments(150), EVENTS).succeeds(import);
    rows.iter_mut().for_each(|row| row[1].push_str("000"));
    tables(&rows, &of_events("unit = \"ms\"")).succeeds(import);
}

/// Whatever comes after a moment may change: the features and edges of what came before it do not, bit for bit.
#[test]
fn what_comes_later_changes_nothing_before_it() {
    let by_time = format!("{BY_TIME}test_from = \"1970-01-19\"\n");
    let all = EVENTS.replace("alert = \"card\"\n", "alert = \"card\"\nhistory = \"all\"\n");
    for events in [EVENTS, &all] {
        assert_eq!(changes_before(&format!("{by_time}{events}")), [false; 3]);
    }
    // Scales of rows by chance are fitted to later ones, too: the same check notices it, where amounts are all that is
    // scaled.
    let amounts = EVENTS.split("[[windows]]").next().unwrap();
    assert_eq!(changes_before(&format!("{by_time}{amounts}")), [false; 3]);
    assert_eq!(changes_before(amounts), [true; 3]);
}

/// Whether features or edges before a moment change where later rows are others, fewer or more.
fn changes_before(description: &str) -> [bool; 3] {
    let whole = payments(150);
    let until = 12 * DAY;
    let is_later = |row: &[String; 6]| row[1].parse::<i64>().unwrap() >= until;
    let mut changed: Vec<[String; 6]> = whole.clone();
    for row in changed.iter_mut().filter(|row| is_later(row)) {
        row[4] = "9999".into();
        row[3] = "s1".into();
        row[5] = if row[5] == "0" { "1" } else { "0" }.into();
    }
    let removed: Vec<_> = whole
        .iter()
        .enumerate()
        .filter(|(at, row)| !is_later(row) || at % 3 != 1)
        .map(|(_, row)| row.clone())
        .collect();
    let mut added = whole.clone();
    added.extend((0..40).map(|at| {
        let row = &whole[149 - at];
        [format!("new{at}"), row[1].clone(), format!("c{}", at % 9), "s9".into(), "1".into(), "0".into()]
    }));
    let first = |rows: &[[String; 6]]| {
        let (data, _dir) = imported(rows, description);
        let (features, before) = (data.features.as_ref().unwrap(), rows.iter().filter(|row| !is_later(row)).count());
        let values: Vec<Vec<u32>> = (0..before).map(|node| features.row(node).map(f32::to_bits).collect()).collect();
        let earlier = data.graph.relations().iter().filter(|relation| relation.src == relation.dst);
        let edges: Vec<Vec<u32>> =
            earlier.flat_map(|relation| (0..before).map(|row| relation.forward.row(row).to_vec())).collect();
        (values, edges)
    };
    let expected = first(&whole);
    assert!(expected.0.len() > 60 && expected.1.iter().any(|row| row.len() > 5));
    [changed, removed, added].map(|rows| first(&rows) != expected)
}

#[test]
fn another_split_than_that_of_the_data_is_refused() {
    let (_data, sandbox) = imported(&payments(150), &format!("{BY_TIME}{EVENTS}"));
    let config = |task: &str, by: &str| {
        let split = format!("[split]\nuse = \"{by}\"\ntrain = 0.5\ntest = 0.3\n");
        format!("task = \"{task}\"\n[data]\npath = \"data\"\n{split}[output]\ndir = \"runs\"\n")
    };
    for (task, by) in [("stage3", "random"), ("auto", "random"), ("classify", "random"), ("classify", "labels")] {
        sandbox.write("run.toml", config(task, by));
        let said = ["by time, training from 1970-01-04 to 1970-01-14", "shares 0.5, 0.2, 0.3", "leave it out"];
        sandbox.refuses(["train", "run.toml", "--device", "cpu"], 2, &said);
    }
}

#[test]
fn groups_stay_together() {
    let description = EVENTS.replace("[[windows]]\nspans = [\"1d\", \"7d\"]\nlast = [3]\n", "");
    let (data, _dir) = imported(&payments(150), &format!("{BY_CARD}{description}"));
    let split = data.split.as_ref().unwrap();
    assert!(matches!(&split.rule, SplitRule::Group { groups, .. } if groups == &["card"]));
    let cards = data.events.as_ref().unwrap().alert.as_ref().unwrap();
    let mut part_of = std::collections::HashMap::new();
    for (node, &part) in split.windows[0].iter().enumerate().take(150) {
        assert_eq!(*part_of.entry(cards[node]).or_insert(part), part, "one card on two sides");
    }
    assert!((1..=3).all(|part| part_of.values().any(|of| *of == part)));
}

#[test]
fn bad_times_and_keys_are_named_and_nothing_is_written() {
    let mut gap = payments(60);
    gap[17][1] = String::new();
    let mut odd = payments(60);
    odd[20][1] = "1534567890123".into();
    let whole = payments(150);
    let by_time = format!("{BY_TIME}{EVENTS}");
    let without_time = EVENTS.replace("time = \"time\"\namount = \"amount\"\nalert = \"card\"\n", "");
    let without_delay = format!("{}labels = true\n", by_time.replace(", delay = \"2d\"", ""));
    let history = |value: &str| by_time.replace("alert = \"card\"", &format!("alert = \"card\"\nhistory = {value}"));
    let cases: [(&[[String; 6]], String, i32, &str); 12] = [
        (&gap, by_time.clone(), 1, "payments.csv: line 19"),
        (&odd, by_time.clone(), 1, "payments.csv: line 22"),
        (&whole, by_time.replace("\"10d\"", "\"10 days\""), 2, "expected a share such as 0.2, or a length of time"),
        (&whole, by_time.replace("alert = \"card\"", "alert = \"till\""), 2, "one of card, shop"),
        (&whole, by_time.replace("by = \"time\"\n", ""), 2, "add by = \"time\""),
        (&whole, without_time, 2, "no time in `payment`"),
        (&whole, history("\"ten\""), 2, "a number of events, or \"all\""),
        (&whole, history("-1"), 2, "a number of events below 2^32"),
        (&whole, history("2.5"), 2, "a number of events, or \"all\""),
        (&whole, without_delay, 2, "otherwise they tell of the test"),
        (
            &whole,
            format!("{BY_TIME}test_from = \"1980-01-01\"\n{EVENTS}"),
            1,
            "none in training (from 1979-12-14 until 1979-12-24), validation (from 1979-12-26 until 1979-12-30), test \
             (from 1980-01-01 until 1980-01-05): the labelled events go from 1970-01-01 to 1970-01-25",
        ),
        (
            &whole,
            format!("{BY_TIME}test_from = \"1970-01-26\"\n{EVENTS}"),
            1,
            "none in test (from 1970-01-26 until 1970-01-30)",
        ),
    ];
    for (rows, description, code, expected) in cases {
        tables(rows, &description).refuses(["import", "tables", "graph.toml", "--out", "data"], code, &[expected]);
    }
}

/// What a run said of the events that it held out, it says of them in another import, too: trees, attention that is
/// trained on mini-batches and on the whole graph, and all three stages.
#[test]
fn later_events_of_another_import_get_the_scores_that_the_run_gave_them() {
    let trees = ["model.trees=20", "model.min_data_in_leaf=2"];
    let batches = ["train.epochs=2", "loader.batch_size=64"];
    scores_later_events_alike("payments", &trees);
    scores_later_events_alike("payments-stage2", &batches);
    scores_later_events_alike("stage2", &["train.epochs=3", "data.input=features"]);
    let of = |stage: &str, settings: &[&str]| settings.iter().map(|set| format!("{stage}.{set}")).collect::<Vec<_>>();
    let stages = [of("stage1", &["train.epochs=3"]), of("stage2", &batches), of("stage3", &trees)].concat();
    scores_later_events_alike("payments-stages", &stages.iter().map(String::as_str).collect::<Vec<_>>());
}

fn scores_later_events_alike(config: &str, settings: &[&str]) {
    let rows = payments(150);
    let (data, sandbox) = imported(&rows, &format!("{BY_TIME}{EVENTS}"));
    let file = repository(&format!("configs/{config}.toml")).display().to_string();
    let mut train: Vec<&str> = vec!["--quiet", "train", &file, "--device", "cpu", "--name", "model"];
    let settings = ["data.path=data", "output.dir=runs", "output.plots=false"].iter().chain(settings);
    settings.for_each(|set| train.extend(["--set", set]));
    sandbox.succeeds(&train);
    // Of all stages as one model the directory that is the whole.
    let whole = |run: &String| run.ends_with("-model");
    let run = sandbox.runs("runs").into_iter().find(whole).unwrap();
    let from = data.split.as_ref().unwrap().times().unwrap().test[0];
    // Without the labels that nobody knows yet: they come two days after a payment.
    let time = |row: &[String; 6]| row[1].parse::<i64>().unwrap();
    let known_until = rows.iter().map(time).max().unwrap() - 2 * 86_400;
    assert!(known_until > from, "some labels of the test are known to its last events");
    let later: Vec<[String; 6]> = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            if time(&row) > known_until {
                row[5] = String::new();
            }
            row
        })
        .collect();
    let lines: Vec<String> = later.iter().map(|row| row.join(",")).collect();
    sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud\n{}\n", lines.join("\n")));
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", &run, "--out", "later"]);
    let since = from.to_string();
    let listed = |arguments: &[&str]| -> Vec<(String, f64)> {
        let said = sandbox.succeeds([&["score", &run, "--device", "cpu"][..], arguments].concat());
        let mut lines = said.stdout.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        let at = |name: &str| names.iter().position(|column| *column == name).unwrap();
        let mut rows: Vec<(String, f64)> = lines
            .map(|line| {
                let cells: Vec<&str> = line.split(',').collect();
                (cells[at("id")].to_owned(), cells[at("score")].parse().unwrap())
            })
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        rows
    };
    // Nothing is no list: neither scores nor figures.
    let after = ["the latest of 1970-01-25 20:15:31", "some from 1980-01-01 on", "give an earlier --since"];
    sandbox.refuses(["score", &run, "--since", "1980-01-01"], 1, &after);
    sandbox.refuses(["eval", &run, "--data", "data", "--device", "cpu", "--since", "1980-01-01"], 1, &after);
    let (own, other) = (listed(&["--since", &since]), listed(&["--data", "later", "--since", &since]));
    assert!(own.len() > 15 && own.len() == other.len(), "{} and {}", own.len(), other.len());
    for ((id, score), (same, again)) in own.iter().zip(&other) {
        assert!(id == same && (score - again).abs() <= 1e-6, "{config}, {id}: {score}, {same}: {again}");
    }
}

/// What comes before all that a model has learned from is scored, with a word.
#[test]
fn data_before_the_times_of_the_training_are_named() {
    let rows = payments(150);
    let (_data, sandbox) = imported(&rows, &format!("{BY_TIME}{EVENTS}"));
    let config = repository("configs/payments.toml").display().to_string();
    let mut train: Vec<&str> = vec!["--quiet", "train", &config, "--device", "cpu"];
    let settings = ["data.path=data", "output.dir=runs", "output.plots=false", "model.trees=5"];
    settings.iter().for_each(|set| train.extend(["--set", set]));
    sandbox.succeeds(&train);
    let run = sandbox.only_run("runs");
    // Training begins on the fourth day.
    let said = |name: &str, days: i64| {
        let moved = rows.iter().map(|row| {
            let mut row = row.clone();
            row[1] = (row[1].parse::<i64>().unwrap() - days * DAY).to_string();
            row.join(",")
        });
        let moved = moved.collect::<Vec<_>>().join("\n");
        sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud\n{moved}\n"));
        let import = sandbox.succeeds(["import", "tables", "graph.toml", "--with", &run, "--out", name]);
        let score = sandbox.succeeds(["score", &run, "--data", name, "--device", "cpu"]);
        [import.stdout + &import.stderr, score.stderr]
    };
    let words =
        "all events, from 1969-11-22 to 1969-12-16 20:15:31, are earlier than those of the training, which begin at";
    for said in said("before", 40) {
        assert!(said.contains(words), "{said}\nlacks {words}");
    }
    for said in said("overlapping", 20) {
        assert!(!said.contains("are earlier than"), "{said}");
    }
}

/// Under a split by time no Stage 2 scores the first fold of the training labels. Trees learn from it nevertheless:
/// what frauds there look like is found again in the test.
#[test]
fn trees_learn_from_the_first_fold_without_scores_of_stage_2() {
    // Frauds of the second half of the training days have small amounts, all others large ones.
    let rows: Vec<[String; 6]> = (0..1_000)
        .map(|at| {
            let (time, day) = (at as i64 * DAY / 40, at / 40);
            let is_fraud = at % 10 == 3;
            let is_large = is_fraud && !(8..13).contains(&day);
            let amount = if is_large { 5_000.0 } else { 5.0 + (at * 31 % 97) as f64 };
            let shop = if is_fraud && !is_large { 9 } else { at * 17 % 5 };
            let [number, time, amount] = [at.to_string(), time.to_string(), amount.to_string()];
            [number, time, format!("c{}", at * 13 % 7), format!("s{shop}"), amount, u8::from(is_fraud).to_string()]
        })
        .collect();
    let (_data, sandbox) = imported(&rows, &format!("{BY_TIME}{EVENTS}"));
    let [trees, stage2] = ["configs/payments.toml", "configs/payments-stage2.toml"].map(repository);
    let stage2 = format!("stage2.config={:?}", stage2.display().to_string());
    let mut train: Vec<String> =
        ["--quiet", "train", trees.to_str().unwrap(), "--device", "cpu"].map(Into::into).into();
    let settings =
        ["data.path=data", "output.dir=runs", "output.plots=false", "model.trees=60", "model.min_data_in_leaf=5"];
    let of_stage2 = [&stage2, "stage2.train.epochs=1", "features.stage2_folds=2", "model.patience=0"];
    // The validation part has such frauds, too.
    let of_stage2 = of_stage2.into_iter().chain(["model.refit=false"]);
    settings.into_iter().chain(of_stage2).for_each(|set| train.extend(["--set".into(), set.into()]));
    sandbox.succeeds(&train);
    let run = sandbox.only_run("runs");
    let since = (21 * DAY).to_string();
    let list = sandbox.succeeds(["score", &run, "--device", "cpu", "--node-type", "payment", "--since", &since]).stdout;
    let labels: Vec<(bool, f64)> = list
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            (cells[5] == "1", cells[3].parse().unwrap())
        })
        .collect();
    let frauds = labels.iter().filter(|(fraud, _)| *fraud).count();
    assert!(frauds > 10, "{frauds} frauds of large amounts in the test");
    assert!(labels[..frauds].iter().all(|(fraud, _)| *fraud), "the first places are not all frauds:\n{list}");
}

/// Seven cards, of which a day's alerts look at all: no scores find more than others, so that the first validation
/// stays the best.
#[test]
fn a_days_alerts_choose_the_epoch_and_the_number_of_trees_and_are_compared_with_the_regression() {
    let (_data, sandbox) = imported(&payments(150), &format!("{BY_TIME}{EVENTS}"));
    let json = |file: String| serde_json::from_slice::<Value>(&sandbox.read(&file)).unwrap();
    let train = |config: &str, runs: &str, metric: &str, settings: &[&str]| {
        let config = repository(config).display().to_string();
        let mut train = vec!["--quiet".into(), "train".into(), config, "--device".into(), "cpu".into()];
        let of_all = ["data.path=data".to_owned(), format!("output.dir={runs}"), metric.to_owned()];
        let settings = of_all.into_iter().chain(settings.iter().map(|set| set.to_string()));
        settings.for_each(|set| train.extend(["--set".into(), set]));
        let said = sandbox.succeeds(&train).stdout;
        (sandbox.only_run(runs), said)
    };
    let [right, stopped] = ["alerts", "stopped"].map(|metric| {
        let settings = ["train.epochs=9", "early_stop.patience=3", "loader.batch_size=64", "train.validate_every=1"];
        let metric = format!("early_stop.metric={metric}");
        train("configs/payments-stage2.toml", &metric[18..], &metric, &settings)
    });
    for ((run, said), metric) in [(&right, "alerts"), (&stopped, "stopped")] {
        let lines = String::from_utf8(sandbox.read(&format!("{run}/metrics.jsonl"))).unwrap();
        let epochs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(epochs.len(), 4, "the best epoch is 1, and three follow: {lines}");
        let outcome = json(format!("{run}/evaluation.json"));
        assert_eq!(outcome["best_epoch"], 1);
        let alerts = &outcome["evaluation"]["validation"]["alerts"];
        assert_eq!(alerts["precision"], alerts["best_precision"]);
        for line in &epochs {
            assert_eq!(line["validation_alerts"], alerts["precision"], "{line}");
            assert_eq!(line["validation_stopped"], alerts["stopped"], "{line}");
        }
        // The regression finds as much, and more is not to be had.
        let compared = &outcome["baseline_validation"];
        assert_eq!(
            (&compared["metric"], &compared["value"]),
            (&metric.into(), &epochs[0][format!("validation_{metric}")])
        );
        let words = if metric == "alerts" { "share of a day's alerts that are right" } else { "fraudulent amount" };
        assert!(said.contains("no better than a logistic regression") && said.contains(words), "{said}");
    }
    sandbox.succeeds(["--quiet", "report", &right.0, "--device", "cpu", "--no-explanations"]);
    let page = String::from_utf8(sandbox.read(&format!("{}/report.html", right.0))).unwrap();
    assert!(page.contains("Alerts about validation labels by epoch") && page.contains("amount that is stopped"));
    assert!(page.contains("No better than the baseline on the validation labels"));
    let said = sandbox.succeeds(["score", &right.0, "--top", "1"]).stderr;
    assert!(said.contains("warning: This model is no better than a logistic regression"), "{said}");

    let settings = ["model.trees=40", "model.patience=20", "model.min_data_in_leaf=2"];
    for metric in ["alerts", "stopped"] {
        let name = format!("trees-{metric}");
        let (run, _) = train("configs/payments.toml", &name, &format!("model.metric={metric}"), &settings);
        let outcome = json(format!("{run}/evaluation.json"));
        assert_eq!((&outcome["trees"], &outcome["baseline_validation"]["metric"]), (&1.into(), &metric.into()));
    }
}

#[test]
fn a_metric_of_events_is_refused_where_the_data_have_none_and_nothing_is_written() {
    let without_amount = EVENTS.replace("amount = \"amount\"\n", "");
    let (_data, sandbox) = imported(&payments(150), &format!("{BY_TIME}{without_amount}"));
    sandbox.succeeds(["--quiet", "synth", "--scale", "0.1", "--out", "market"]);
    let pipeline = "task = \"pipeline\"\n[data]\npath = \"market\"\n[stage3]\nmodel.kind = \"booster\"\n";
    sandbox.write("pipeline.toml", pipeline);
    let [stage2, trees] = ["configs/payments-stage2.toml", "configs/payments.toml"]
        .map(|config| repository(config).display().to_string());
    let cases = [
        (&stage2, "data", "early_stop.metric", "stopped", "amount = \"COLUMN\""),
        (&stage2, "market", "early_stop.metric", "alerts", "time = \"COLUMN\""),
        (&trees, "data", "model.metric", "stopped", "amount = \"COLUMN\""),
        (&trees, "market", "model.metric", "alerts", "time = \"COLUMN\""),
        (&"pipeline.toml".into(), "market", "stage2.early_stop.metric", "alerts", "time = \"COLUMN\""),
        (&"pipeline.toml".into(), "market", "stage3.model.metric", "stopped", "amount = \"COLUMN\""),
    ];
    for (config, data, key, metric, way_out) in cases {
        let [data, set] = [format!("data.path={data}"), format!("{key}={metric}")];
        let train = ["train", config, "--device", "cpu", "--set", &data, "--set", &set, "--set", "output.dir=runs"];
        sandbox.refuses(train, 2, &[&format!("{key} = \"{metric}\""), way_out]);
    }
}
