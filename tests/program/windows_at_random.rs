//! Windows in a split at random: the labels of training rows and of no others, windows of later events, and times that
//! are numbers of rows.

use graphsieve::graph::Dataset;
use serde_json::Value;

use crate::events::{BY_CARD, BY_TIME, DAY, EVENTS, imported, payments, tables};
use crate::support::Sandbox;

type Row = [String; 6];

const IMPORT: [&str; 5] = ["import", "tables", "graph.toml", "--out", "data"];
const LABEL: &str = "label = { column = \"fraud\", delay = \"2d\" }";

/// [`EVENTS`] whose labels are known at once.
fn known_at_once() -> String {
    EVENTS.replace(LABEL, "label = \"fraud\"")
}

/// The same with windows of later events, which count labels because no event is joined to another.
fn ahead() -> String {
    known_at_once().replace("alert = \"card\"\n", "alert = \"card\"\nhistory = 0\n") + "ahead = true\n"
}

fn time(row: &Row) -> i64 {
    row[1].parse().unwrap()
}

fn parts(data: &Dataset) -> &[u8] {
    data.split.as_ref().unwrap().parts()
}

fn has_column(data: &Dataset, name: &str) -> bool {
    data.feature_names.as_ref().unwrap().iter().any(|found| found == &format!("payment.{name}"))
}

fn write_payments(sandbox: &Sandbox, rows: &[Row]) {
    let lines: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud\n{}\n", lines.join("\n")));
}

/// Imports other rows by the transforms of `data`.
fn imported_with(sandbox: &Sandbox, rows: &[Row], name: &str) -> Dataset {
    write_payments(sandbox, rows);
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", "data", "--out", name]);
    Dataset::open(&sandbox.path(name)).unwrap()
}

/// That two rows have the same value of a column exactly where they have the same count, and that counts differ.
fn goes_by(data: &Dataset, name: &str, counts: &[usize]) {
    let names = data.feature_names.as_ref().unwrap();
    let column = names.iter().position(|found| found == &format!("payment.{name}")).unwrap();
    let features = data.features.as_ref().unwrap();
    let value = |row: usize| features.row(row).nth(column).unwrap();
    let mut by_count: Vec<(usize, f32)> = counts.iter().enumerate().map(|(row, &count)| (count, value(row))).collect();
    by_count.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert!(by_count[0].0 == 0 && by_count[by_count.len() - 1].0 > 1, "{name}");
    for pair in by_count.windows(2) {
        assert_eq!(pair[0].0 == pair[1].0, pair[0].1 == pair[1].1, "{name}: {pair:?}");
    }
}

#[test]
fn frauds_of_training_are_counted_in_every_part_and_those_of_validation_and_test_in_none() {
    let rows = payments(600);
    for (description, delay) in [(known_at_once(), 0), (EVENTS.to_owned(), 2 * DAY), (ahead(), 0)] {
        // A card has a fraud in thirteen days.
        let (data, _sandbox) = imported(&rows, &description.replace("\"7d\"", "\"30d\""));
        let parts = parts(&data);
        assert!((1..=3).all(|part| parts[..600].contains(&part)));
        let frauds = |row: &Row, within: &dyn Fn(i64) -> bool| {
            let of_card = (0..600).filter(|&other| rows[other][2] == row[2] && rows[other][5] == "1");
            of_card.filter(|&other| parts[other] == 1 && within(time(&rows[other]))).count()
        };
        let span = 30 * DAY;
        let earlier = |row: &Row| {
            let until = time(row) - delay;
            frauds(row, &|then| (until - span..until).contains(&then))
        };
        goes_by(&data, "card_30d_known_frauds", &rows.iter().map(earlier).collect::<Vec<_>>());
        assert!(has_column(&data, "card_last_known_days"));
        let later = |row: &Row| frauds(row, &|then| then > time(row) && then <= time(row) + span);
        let counts: Vec<usize> = rows.iter().map(later).collect();
        match description.contains("ahead = true") {
            true => goes_by(&data, "card_ahead_30d_known_frauds", &counts),
            false => assert!(!has_column(&data, "card_ahead_30d_known_frauds")),
        }
    }
    let (by_time, _sandbox) = imported(&payments(150), &format!("{BY_TIME}{EVENTS}"));
    assert!(has_column(&by_time, "card_7d_known_frauds") && !has_column(&by_time, "card_last_known_days"));
}

/// The first of two rows of one part that follow one another, one of them a fraud, and the rows with their labels
/// exchanged: the draw, which is one of each class, divides both alike.
fn exchanged(rows: &[Row], data: &Dataset, part: u8) -> (usize, Vec<Row>) {
    let parts = parts(data);
    let is_pair = |&at: &usize| rows[at][5] != rows[at + 1][5] && parts[at] == part && parts[at + 1] == part;
    let at = (200..1_400).find(is_pair).expect("two rows of one part");
    let mut other = rows.to_vec();
    (other[at][5], other[at + 1][5]) = (rows[at + 1][5].clone(), rows[at][5].clone());
    (at, other)
}

/// The rows whose features differ in a bit.
fn changed(a: &Dataset, b: &Dataset) -> Vec<usize> {
    let [a, b] = [a, b].map(|data| data.features.as_ref().unwrap());
    let bits = |row: usize| (a.row(row).map(f32::to_bits), b.row(row).map(f32::to_bits));
    let differs = |&row: &usize| {
        let (a, b) = bits(row);
        !a.eq(b)
    };
    (0..1_500).filter(differs).collect()
}

#[test]
fn a_label_of_validation_or_test_changes_no_row() {
    let rows = payments(1_500);
    let shares = "one_hop_measures = [\"z\", \"fraud_share\"]\n";
    for description in [known_at_once(), EVENTS.to_owned(), ahead() + shares] {
        let (data, _sandbox) = imported(&rows, &description);
        for part in [2, 3] {
            let (at, other) = exchanged(&rows, &data, part);
            let (other, _sandbox) = imported(&other, &description);
            assert_eq!(other.split, data.split);
            assert_ne!(other.labels.as_ref().unwrap().entries, data.labels.as_ref().unwrap().entries);
            assert_eq!(changed(&data, &other), [0; 0], "part {part}, row {at}");
        }
    }
}

#[test]
fn a_label_of_training_changes_later_rows_and_ahead_earlier_ones_but_never_its_own() {
    let rows = payments(1_500);
    for (description, is_ahead) in [(known_at_once(), false), (EVENTS.to_owned(), false), (ahead(), true)] {
        let (data, sandbox) = imported(&rows, &description);
        // By the same scales the same rows are the same.
        assert_eq!(changed(&data, &imported_with(&sandbox, &rows, "same")), [0; 0]);
        let (at, other) = exchanged(&rows, &data, 1);
        let other = imported_with(&sandbox, &other, "other");
        assert_eq!(other.split, data.split);
        let changed = changed(&data, &other);
        assert!(changed.iter().any(|&row| row > at + 1), "{changed:?}");
        assert_eq!(changed.iter().any(|&row| row < at), is_ahead, "row {at}: {changed:?}");
        assert!(!changed.contains(&at) && !changed.contains(&(at + 1)), "row {at}: {changed:?}");
    }
}

#[test]
fn windows_that_would_tell_a_label_are_refused_and_nothing_is_written() {
    let by_time = format!("{BY_TIME}{EVENTS}");
    let joined = ahead().replace("history = 0\n", "");
    let edge = "[[edges]]\nname = \"refunds\"\nfile = \"links.csv\"\nsrc = \"payment.from\"\ndst = \"payment.to\"\n";
    let linked = ahead().replace("[[windows]]", &format!("{edge}[[windows]]"));
    let cases: [(String, &[&str]); 6] = [
        (format!("{by_time}ahead = true\n"), &["windows.ahead = true", "false where the split is by time", "random"]),
        (by_time.replace(", delay = \"2d\"", "") + "labels = true\n", &["windows.labels", "tell of the test", "delay"]),
        (format!("{BY_CARD}{EVENTS}labels = true\n"), &["windows.labels", "where the split is by group"]),
        (EVENTS.replace(LABEL, "") + "labels = true\n", &["windows.labels", "label = \"COLUMN\""]),
        (format!("{joined}labels = true\n"), &["windows.labels", "their own labels", "history = 0"]),
        (format!("{linked}labels = true\n"), &["windows.labels", "their own labels", "no [[edges]] between events"]),
    ];
    for (description, said) in cases {
        let sandbox = tables(&payments(150), &description);
        sandbox.write("links.csv", "from,to\n3,9\n");
        sandbox.refuses(IMPORT, 2, said);
    }
}

#[test]
fn windows_ahead_count_no_labels_where_an_earlier_event_would_tell_a_later_one_its_own() {
    let sandbox = tables(&payments(150), &ahead().replace("history = 0\n", ""));
    let said = sandbox.succeeds(IMPORT).stdout;
    assert!(
        said.contains("windows ahead count no labels, which takes history = 0 and no edges between events"),
        "{said}"
    );
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    for name in ["card_7d_known_frauds", "card_ahead_7d_mean", "card_ahead_7d_distinct_shop"] {
        assert!(has_column(&data, name), "{name}");
    }
    assert!(!has_column(&data, "card_ahead_7d_known_frauds"));
    // A split by group has windows ahead, and counts labels neither way.
    let by_card = format!("{BY_CARD}{EVENTS}ahead = true\n");
    let (data, _sandbox) = imported(&payments(150), &by_card);
    assert!(has_column(&data, "shop_ahead_1d_other_card_z") && !has_column(&data, "card_7d_known_frauds"));
}

#[test]
fn labels_that_cannot_be_divided_are_counted_nowhere() {
    // Two frauds, for three parts.
    let sandbox = tables(&payments(20), &known_at_once());
    let said = sandbox.succeeds(IMPORT).stdout;
    assert!(said.contains("windows count no label: the labels cannot be divided"), "{said}");
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    assert!(data.split.is_none());
    let names = data.feature_names.as_ref().unwrap();
    let column = names.iter().position(|name| name == "payment.card_7d_known_frauds").unwrap();
    let values: Vec<f32> = (0..20).map(|row| data.features.as_ref().unwrap().row(row).nth(column).unwrap()).collect();
    assert!(values.iter().all(|&value| value == values[0]), "{values:?}");
}

#[test]
fn another_import_counts_labels_as_the_one_whose_transforms_it_takes() {
    let (_data, sandbox) = imported(&payments(300), &known_at_once());
    // Too few labels for a split: the columns are there, and none is counted.
    let few = imported_with(&sandbox, &payments(20), "few");
    assert!(few.split.is_none() && has_column(&few, "card_last_known_days"));
    let with = ["import", "tables", "graph.toml", "--with", "data", "--out", "later"];
    // Labels of another split mean something else.
    sandbox.write("graph.toml", format!("{BY_TIME}{}", known_at_once()));
    sandbox.refuses(with, 2, &["split.by", "labels of training rows"]);
    sandbox.write("graph.toml", EVENTS.replace(LABEL, ""));
    sandbox.refuses(with, 2, &["nodes.label", "the column of the labels"]);

    // An import of an earlier version counted none where the split was at random.
    let (_data, sandbox) = imported(&payments(300), &format!("{EVENTS}labels = false\n"));
    sandbox.edit("data/import.json", |bytes| {
        let mut json: Value = serde_json::from_slice(bytes).unwrap();
        let windows = json["description"]["windows"][0].as_object_mut().unwrap();
        assert_eq!(windows.remove("labels"), Some(Value::Bool(false)));
        *bytes = serde_json::to_vec(&json).unwrap();
    });
    sandbox.write("graph.toml", EVENTS);
    sandbox.succeeds(with);
    assert!(!has_column(&Dataset::open(&sandbox.path("later")).unwrap(), "card_7d_known_frauds"));
}

#[test]
fn numbers_of_rows_have_no_spans_and_import_says_so() {
    let mut rows = payments(300);
    let description = known_at_once().replace("spans = [\"1d\", \"7d\"]\nlast = [3]\n", "");
    let import = |rows: &[Row]| {
        let sandbox = tables(rows, &description);
        let said = sandbox.succeeds(IMPORT).stdout;
        let json: Value = serde_json::from_slice(&sandbox.read("data/import.json")).unwrap();
        (said, json["windows"][0].clone())
    };
    let note = "times are numbers of rows: no spans";
    let (said, windows) = import(&rows);
    assert!(!said.contains(note) && windows["spans"].as_array().unwrap().len() == 5, "{said}");
    rows.iter_mut().for_each(|row| row[1] = row[0].clone());
    let (said, windows) = import(&rows);
    assert!(said.contains(note), "{said}");
    assert_eq!([&windows["spans"], &windows["one_hop"]], [&Value::Array(Vec::new()); 2]);
    assert_eq!(windows["last"], serde_json::json!([1, 3, 5, 20]));
}

#[test]
fn a_list_of_new_events_by_a_model_that_looks_ahead_comes_with_a_word() {
    let words = "reads windows of later events";
    for (description, is_ahead) in [(ahead(), true), (known_at_once(), false)] {
        let (_data, sandbox) = imported(&payments(300), &description);
        let settings = "[data]\npath = \"data\"\n[output]\ndir = \"runs\"\nplots = false\n[model]\ntrees = 5\n";
        sandbox.write("run.toml", format!("task = \"stage3\"\n{settings}"));
        sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
        let run = sandbox.only_run("runs");
        // Later tables, with the same rows again.
        sandbox.succeeds(["import", "tables", "graph.toml", "--with", &run, "--out", "later"]);
        let score = ["score", &run, "--data", "later", "--device", "cpu"];
        assert!(!sandbox.succeeds(score).stderr.contains(words));
        let said = sandbox.succeeds(score.iter().chain(&["--since", "1970-02-01"])).stderr;
        assert_eq!(said.contains(words), is_ahead, "{said}");
    }
}
