//! Rows that come one by one have the features of an import of all of them.

use std::collections::HashMap;
use std::path::Path;

use half::f16;
use serde_json::{Value, json};

use crate::data::tables::{ImportOptions, import};
use crate::graph::{Dataset, FeatureValues};
use crate::live::{
    Change, Columns, Count, Derived, Draw, EdgeAt, EdgeRow, EventAt, Live, LiveStats, Makes, NodeRow, Row, RowReader,
};

const DAY: i64 = 86_400;

/// Writes tables and imports them, with what another import learned.
fn imported(dir: &Path, name: &str, description: &str, tables: &[(&str, String)], with: Option<&Path>) -> Dataset {
    let own = dir.join(name);
    std::fs::create_dir(&own).unwrap();
    for (file, table) in tables {
        std::fs::write(own.join(file), table).unwrap();
    }
    std::fs::write(own.join("graph.toml"), description).unwrap();
    let options = ImportOptions { with: with.map(Into::into), ..ImportOptions::new(own.join("graph.toml")) };
    import(&options, &|_| {}).unwrap_or_else(|error| panic!("{name}: {error}")).write(&own.join("data")).unwrap();
    Dataset::open(&own.join("data")).unwrap()
}

fn features(dataset: &Dataset, node: usize) -> Vec<u16> {
    let features = dataset.features.as_ref().unwrap();
    let FeatureValues::Half(values) = features.values() else { panic!("f16") };
    bits(&values[node * features.dim()..][..features.dim()])
}

fn bits(features: &[f16]) -> Vec<u16> {
    features.iter().map(|value| value.to_bits()).collect()
}

fn assert_same(what: &str, whole: &Dataset, found: &[f16], node: usize) {
    let (expected, found) = (features(whole, node), bits(found));
    let names = whole.feature_names.as_ref().unwrap();
    let differs = (0..names.len()).find(|&column| found[column] != expected[column]);
    let said = differs
        .map(|column| (&names[column], [found[column], expected[column]].map(|bits| f16::from_bits(bits).to_f32())));
    assert!(said.is_none(), "{what}: column, found, expected: {said:?}");
}

/// Numbers of nodes by type and id: those of the base, then new ones.
struct Numbers(HashMap<(usize, String), u32>, Vec<u32>);

impl Numbers {
    fn of(base: &Dataset) -> Self {
        let ids = &base.ids.as_ref().unwrap().0;
        let of_type = |(node_type, ids): (usize, &Vec<String>)| {
            let numbers = ids.iter().enumerate().map(|(at, id)| ((node_type, id.clone()), at as u32));
            numbers.collect::<Vec<_>>()
        };
        Self(ids.iter().enumerate().flat_map(of_type).collect(), ids.iter().map(|ids| ids.len() as u32).collect())
    }

    fn get(&mut self, node_type: usize, id: &str) -> u32 {
        let Self(known, next) = self;
        *known.entry((node_type, id.into())).or_insert_with(|| {
            next[node_type] += 1;
            next[node_type] - 1
        })
    }
}

/// A row of a table as JSON, some of its numbers as texts.
fn change(more: Value, header: &str, cells: &[String], at: usize) -> Change {
    let mut row = more;
    for (column, cell) in header.split(',').zip(cells) {
        let number = cell.parse::<f64>().ok().filter(|_| at.is_multiple_of(2) && column != "id");
        let value = match (cell.as_str(), number) {
            ("", _) if at.is_multiple_of(3) => continue,
            ("", _) => Value::Null,
            ("true", _) => json!(true),
            (_, Some(number)) if cell.contains('.') => json!(number),
            (_, Some(_)) => json!(cell.parse::<i64>().unwrap()),
            _ => json!(cell),
        };
        row[column] = value;
    }
    serde_json::from_value(row).unwrap()
}

fn table(header: &str, rows: &[Vec<String>]) -> String {
    rows.iter().fold(format!("{header}\n"), |text, row| text + &row.join(",") + "\n")
}

/// Appends the rows of events behind the base one by one, and compares the features of each with those of `whole`.
fn assert_events(base: &Dataset, whole: &Dataset, dir: &Path, changes: &[Change], count: usize) {
    let reader = RowReader::open(dir, dir, base).unwrap();
    let mut columns = Columns::new(&reader, base).unwrap();
    let mut numbers = Numbers::of(base);
    let relations = base.graph.relations();
    let mut known = vec![0; whole.feature_names.as_ref().unwrap().len()];
    for (at, change) in changes.iter().enumerate() {
        let rows = reader.read(change).unwrap();
        let Row::Node(NodeRow { node_type, id, mut features, time, value, label, known: known_at, .. }) =
            rows[0].clone()
        else {
            panic!("a node")
        };
        let local = numbers.get(node_type, &id);
        assert_eq!(local as usize, count + at);
        let entity = |row: &Row| match row {
            Row::Edge(EdgeRow { relation, src, dst, .. }) if relations[*relation].dst == node_type => {
                assert_eq!(*dst, id);
                Some((*relation, numbers.get(relations[*relation].src, src)))
            }
            _ => None,
        };
        let entities: Vec<(usize, u32)> = rows[1..].iter().filter_map(entity).collect();
        let time = time.unwrap();
        let said = label.zip(known_at);
        // Every other label comes later.
        let own = said.filter(|_| at % 2 == 0);
        let event = EventAt { node_type, local, time, value, label: own, entities: &entities };
        // What is later, or does not share anything, tells it nothing.
        let later = EventAt { local: local + 1, time: time + 1, ..event };
        let mut overlay = [features.clone(), features.clone()];
        columns.of_events(&[later, event], &mut overlay);
        columns.append(&[event], &[]);
        columns.of_event(&event, &mut features);
        assert_eq!(bits(&overlay[1]), bits(&features));
        if let (None, Some((label, known_at))) = (own, said) {
            columns.label(&event, label, known_at);
        }
        let node = whole.graph.node_types()[node_type].offset + count + at;
        assert_same(&format!("row {at} ({id})"), whole, &features, node);
        known.iter_mut().zip(&features).for_each(|(known, value)| *known += usize::from(*value != f16::ZERO));
    }
    let windows = (0..known.len()).filter(|&column| columns.is_derived(column));
    assert!(windows.clone().count() > 20 && windows.filter(|&column| known[column] < 3).count() < 6, "{known:?}");
}

const SPLIT: &str = "[split]\nby = \"time\"\ntrain = \"20d\"\nvalidation = \"5d\"\ntest = \"5d\"\n";

const PAYMENTS: &str = r#"
[[nodes]]
type = "payment"
file = "payments.csv"
id = "id"
time = "time"
amount = "amount"
label = { column = "fraud", delay = "2d", known = "charged_back" }
[nodes.features]
amount = { kind = "numeric", log = true }
points = "numeric"
online = "boolean"
channel = "categorical"
country = { kind = "categorical", encoding = "frequency" }
seen = { kind = "timestamp", unit = "ms" }
memo = { kind = "text", width = 8 }
[[edges]]
name = "paid_by"
src = "customer.customer"
dst = "payment"
[[edges]]
name = "paid_at"
src = "payment"
dst = { type = "terminal", column = "terminal" }
skip_empty = true
[[windows]]
value = "points"
spans = ["1d", "3d", "7d"]
last = [1, 3]
one_hop = ["1d", "7d"]
last_measures = ["mean", "sum", "distinct"]
one_hop_measures = ["count", "sum", "deviation", "largest", "distinct", "z", "over_mean", "fraud_share"]
"#;

const PAYMENT: &str = "id,time,amount,points,online,channel,country,seen,memo,customer,terminal,fraud,charged_back";

fn payments(count: usize) -> Vec<Vec<String>> {
    let row = |at: usize| {
        let draw = |factor: usize, below: usize| (at * factor + at * at * 31 + 7) % 10_007 % below;
        // Some of them at the same time.
        let time = 1_700_000_000 + at as i64 / 2 * (DAY / 4) + (at % 2 * draw(13, 2) * 600) as i64;
        let fraud = usize::from(draw(17, 9) == 3);
        let unless = |missing: bool, text: String| if missing { String::new() } else { text };
        vec![
            format!("p{at}"),
            time.to_string(),
            format!("{}.{:02}", draw(7, 300), draw(11, 100)),
            unless(draw(5, 6) == 0, format!("{}.5", draw(29, 4) as i64 - 1)),
            unless(draw(3, 5) == 0, ["true", "no"][draw(19, 2)].into()),
            // The last ones have categories that no row has before.
            unless(draw(23, 8) == 0, format!("c{}", draw(37, 3) + at / 200)),
            unless(draw(41, 7) == 0, ["DE", "FR", "IT"][draw(43, 3)].into()),
            unless(draw(47, 5) == 0, (time * 1000 + 250).to_string()),
            unless(draw(53, 4) == 0, format!("gift card {} of store {}", draw(59, 5), draw(61, 9))),
            format!("k{}", draw(67, 9) + at / 100),
            unless(draw(71, 9) == 0, draw(73, 5).to_string()),
            unless(draw(79, 6) == 0, fraud.to_string()),
            unless(draw(83, 7) == 0, crate::graph::date(time + (draw(89, 6) as i64) * DAY)),
        ]
    };
    (0..count).map(row).collect()
}

#[test]
fn payments_that_come_one_by_one_have_the_features_of_an_import_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let rows = payments(420);
    let description = format!("{SPLIT}{PAYMENTS}");
    let base = imported(dir.path(), "base", &description, &[("payments.csv", table(PAYMENT, &rows[..300]))], None);
    let data = dir.path().join("base/data");
    // Windows sum something else than what a fraud costs.
    assert!(data.join("event_value.npy").is_file() && base.events.as_ref().unwrap().value.is_some());
    let whole = imported(dir.path(), "all", &description, &[("payments.csv", table(PAYMENT, &rows))], Some(&data));
    let more = |at: usize| change(json!({ "type": "payment" }), PAYMENT, &rows[at], at);
    let changes: Vec<Change> = (300..420).map(more).collect();
    assert_events(&base, &whole, &data, &changes, 300);

    // Unknown categories are counted as an import counts them.
    let reader = RowReader::open(&data, &data, &base).unwrap();
    (0..420).for_each(|at| drop(reader.read(&more(at)).unwrap()));
    let said = crate::data::tables::unknown_categories(&dir.path().join("all/data")).unwrap();
    assert_eq!(reader.unknown_categories(), said);
    assert!(said.iter().any(|column| column.unknown > 0));
}

/// Payments of which 300 are the base.
struct Growing {
    dir: tempfile::TempDir,
    rows: Vec<Vec<String>>,
}

impl Growing {
    fn new() -> Self {
        let (dir, rows) = (tempfile::tempdir().unwrap(), payments(420));
        let description = format!("{SPLIT}{PAYMENTS}");
        imported(dir.path(), "base", &description, &[("payments.csv", table(PAYMENT, &rows[..300]))], None);
        Self { dir, rows }
    }

    fn open(&self) -> (Live, RowReader) {
        let data = self.dir.path().join("base/data");
        let base = Dataset::open(&data).unwrap();
        let reader = RowReader::open(&data, &data, &base).unwrap();
        let columns = Columns::new(&reader, &base).unwrap();
        (Live::open(base, columns).unwrap(), reader)
    }
}

/// The rows of some payments.
fn read(reader: &RowReader, rows: &[(usize, Vec<String>)]) -> Vec<Row> {
    let row = |(at, row): &(usize, Vec<String>)| change(json!({ "type": "payment" }), PAYMENT, row, *at);
    rows.iter().flat_map(|of| reader.read_again(&row(of)).unwrap()).collect()
}

/// Appends some payments together.
fn append((live, reader): &(Live, RowReader), rows: &[(usize, Vec<String>)]) {
    live.append(&read(reader, rows)).unwrap();
}

/// The features of some payments.
fn told((live, _): &(Live, RowReader), payments: &[usize]) -> Vec<Vec<u16>> {
    let draw = Draw { hops: 0, makes: Makes::default(), fanouts: None, seed: 0, max_nodes: 1, named: false };
    let part = |at: &usize| live.part(&[format!("payment:p{at}").parse().unwrap()], &[], &draw).unwrap();
    payments.iter().map(part).map(|part| features(&part.dataset, part.targets[0] as usize)).collect()
}

#[test]
fn what_is_forgotten_leaves_the_columns_of_events_that_were_appended_behind_it() {
    let growing = Growing::new();
    let left: Vec<usize> = (300..420).filter(|at| *at != 310).collect();
    let grown = growing.open();
    (300..420).for_each(|at| append(&grown, &[(at, growing.rows[at].clone())]));
    let before = told(&grown, &left);
    // A payment and a customer that were appended, and of each type one of the base.
    let forget = |(live, _): &(Live, RowReader), node: &str| assert!(live.forget(&node.parse().unwrap()).unwrap());
    let of_base = ["payment:p290", "customer:k4", "terminal:2"];
    ["payment:p310", "customer:k11"].iter().chain(&of_base).for_each(|node| forget(&grown, node));
    let after = told(&grown, &left);
    assert!(before.iter().zip(&after).filter(|(before, after)| before != after).count() > 40);

    // As if they had never come, or had been forgotten before.
    let other = growing.open();
    of_base.iter().for_each(|node| forget(&other, node));
    for &at in &left {
        let mut row = growing.rows[at].clone();
        for (cell, gone) in [(9, &["k4", "k11"][..]), (10, &["2"][..])] {
            if gone.contains(&row[cell].as_str()) {
                row[cell].clear();
            }
        }
        append(&other, &[(at, row)]);
    }
    for ((at, found), expected) in left.iter().zip(&after).zip(&told(&other, &left)) {
        assert_eq!(found, expected, "payment p{at}");
    }
}

#[test]
fn events_that_come_late_count_in_those_that_were_appended_before_however_they_are_put_together() {
    let growing = Growing::new();
    let all: Vec<usize> = (300..420).collect();
    // Every third comes when thirty others are there.
    let mut late = all.clone();
    late.sort_by_key(|at| at + if at % 3 == 0 { 30 } else { 0 });
    let rows: Vec<(usize, Vec<String>)> = late.iter().map(|&at| (at, growing.rows[at].clone())).collect();
    let of_some = |together: usize| {
        let grown = growing.open();
        let mut at_first = Vec::new();
        for some in rows.chunks(together) {
            append(&grown, some);
            at_first.extend(told(&grown, &some.iter().map(|(at, _)| *at).collect::<Vec<_>>()));
        }
        (at_first, told(&grown, &late))
    };
    let (_, expected) = of_some(rows.len());
    for together in [1, 7] {
        let (at_first, found) = of_some(together);
        assert!(at_first.iter().zip(&found).filter(|(first, last)| first != last).count() > 20);
        for ((at, found), expected) in late.iter().zip(&found).zip(&expected) {
            assert_eq!(found, expected, "payment p{at}, {together} at a time");
        }
    }
}

#[test]
fn columns_that_are_looked_up_until_they_are_filled_in_are_the_same() {
    let growing = Growing::new();
    let mut late: Vec<usize> = (300..420).collect();
    late.sort_by_key(|at| at + if at % 3 == 0 { 30 } else { 0 });
    let rows: Vec<(usize, Vec<String>)> = late.iter().map(|&at| (at, growing.rows[at].clone())).collect();
    let at_once = growing.open();
    rows.chunks(1).for_each(|some| append(&at_once, some));
    let (live, reader) = growing.open();
    for some in rows.chunks(50) {
        live.append_many(&read(&reader, some)).unwrap();
    }
    let later = (live, reader);
    // One leaves while columns are still to be filled in.
    for live in [&at_once.0, &later.0] {
        assert!(live.forget(&"payment:p330".parse().unwrap()).unwrap());
    }
    let left: Vec<usize> = late.into_iter().filter(|at| *at != 330).collect();
    let expected = told(&at_once, &left);
    assert_eq!(told(&later, &left), expected);
    for live in [&at_once.0, &later.0] {
        live.fill();
    }
    assert_eq!(told(&later, &left), expected);
    assert_eq!(told(&at_once, &left), expected);
}

#[test]
fn edges_that_follow_from_others_are_no_part_of_the_share_that_was_appended() {
    let growing = Growing::new();
    let grown = growing.open();
    let rows: Vec<(usize, Vec<String>)> = (300..330).map(|at| (at, growing.rows[at].clone())).collect();
    append(&grown, &rows);
    let LiveStats { nodes, edges, .. } = grown.0.stats();
    let told: Vec<&Count> = nodes.iter().chain(edges.iter().filter(|of| !of.name.starts_with("earlier_"))).collect();
    assert_eq!(edges.len() + nodes.len(), told.len() + 2);
    let [base, appended] = [|of: &&Count| of.base, |of: &&Count| of.appended].map(|of| told.iter().map(of).sum());
    let (base, appended): (usize, usize) = (base, appended);
    assert!(appended > 80 && grown.0.share_appended(0) == appended as f64 / base as f64);
}

#[test]
fn labels_that_come_late_count_in_events_that_happened_when_they_were_known() {
    let growing = Growing::new();
    let all: Vec<usize> = (300..420).collect();
    let rows: Vec<(usize, Vec<String>)> = all.iter().map(|&at| (at, growing.rows[at].clone())).collect();
    let without = rows.iter().cloned().map(|(at, mut row)| {
        row[11..].iter_mut().for_each(String::clear);
        (at, row)
    });
    let without: Vec<(usize, Vec<String>)> = without.collect();
    // Of the base, too: those that have none are frauds.
    let label_base = |live: &Live| {
        for at in (200..300).filter(|&at| growing.rows[at][11].is_empty()) {
            let time: i64 = growing.rows[at][1].parse().unwrap();
            live.set_label(&format!("payment:p{at}").parse().unwrap(), 1, time + DAY).unwrap();
        }
    };
    let expected = growing.open();
    label_base(&expected.0);
    append(&expected, &rows);
    let grown = growing.open();
    append(&grown, &without);
    let before = told(&grown, &all);
    label_base(&grown.0);
    for row in read(&grown.1, &rows) {
        if let Row::Node(NodeRow { id, label: Some(label), known: Some(known), .. }) = row {
            grown.0.set_label(&format!("payment:{id}").parse().unwrap(), label, known).unwrap();
        }
    }
    let found = told(&grown, &all);
    assert!(before.iter().zip(&found).filter(|(before, found)| before != found).count() > 40);
    for ((at, found), expected) in all.iter().zip(&found).zip(&told(&expected, &all)) {
        assert_eq!(found, expected, "payment p{at}");
    }
}

const TRANSFERS: &str = r#"
[[edges]]
name = "transfer"
file = "transfers.csv"
src = "account.from"
dst = "account.to"
id = "id"
time = { column = "time", format = "%d.%m.%Y %H:%M" }
amount = "amount"
label = { column = "fraud", delay = "1d" }
values = { amount = "numeric", kind = { kind = "categorical", width = 4 } }
[[windows]]
spans = ["2d", "7d"]
last = [2]
one_hop = ["2d"]
pairs = true
"#;

#[test]
fn scored_edges_have_the_windows_of_their_pairs() {
    let dir = tempfile::tempdir().unwrap();
    let header = "id,time,from,to,amount,kind,fraud";
    let row = |at: usize| {
        let time = chrono::DateTime::from_timestamp(1_700_000_000 + at as i64 * (DAY / 8), 0).unwrap();
        let (from, to) = (at * 13 % 5, 5 + at * at % 4 + at / 300);
        let fraud = usize::from(at % 11 == 3);
        [
            at.to_string(),
            time.format("%d.%m.%Y %H:%M").to_string(),
            format!("A{from}"),
            format!("A{to}"),
            format!("{}.25", at * 31 % 97),
            ["wire", "card"][at % 2].into(),
            fraud.to_string(),
        ]
        .to_vec()
    };
    let rows: Vec<Vec<String>> = (0..360).map(row).collect();
    let description = format!("{SPLIT}{TRANSFERS}");
    let base = imported(dir.path(), "base", &description, &[("transfers.csv", table(header, &rows[..280]))], None);
    let data = dir.path().join("base/data");
    let whole = imported(dir.path(), "all", &description, &[("transfers.csv", table(header, &rows))], Some(&data));
    let changes = (280..360).map(|at| {
        let id = json!({ "type": "transfer", "id": at.to_string() });
        change(id, &header[3..], &rows[at][1..], at)
    });
    assert_events(&base, &whole, &data, &changes.collect::<Vec<_>>(), 280);
}

const ACCOUNTS: &str = r#"
[[nodes]]
type = "account"
file = "accounts.csv"
id = "id"
label = "bad"
features = { age = "numeric" }
[[edges]]
name = "pays"
file = "pays.csv"
src = "account.from"
dst = "account.to"
weight = "sum"
time = "time"
values = { sum = "numeric", kind = { kind = "categorical", width = 2 } }
[[edges]]
name = "knows"
file = "knows.csv"
src = "account.a"
dst = "account.b"
[[shared]]
column = "city"
"#;

#[test]
fn figures_of_edges_follow_what_is_appended() {
    let dir = tempfile::tempdir().unwrap();
    let accounts: String =
        (0..40).map(|at| format!("a{at},{},{},c{}\n", at % 9, usize::from(at % 5 == 0), at % 6)).collect();
    let pays: Vec<Vec<String>> = (0..200)
        .map(|at| {
            let (from, to) = (at * 7 % 37, at * at % 31 + at / 180 * 12);
            let [sum, time] = [format!("{}.5", at % 13), (1_700_000_000 + at * 977).to_string()];
            vec![format!("a{from}"), format!("a{to}"), sum, time, ["x", "y", ""][at % 3].into()]
        })
        .collect();
    let knows: Vec<Vec<String>> = (0..60).map(|at| vec![format!("a{at}"), format!("a{}", at / 2)]).collect();
    let tables = |pays: &[Vec<String>], knows: &[Vec<String>]| {
        [
            ("accounts.csv", format!("id,age,bad,city\n{accounts}")),
            ("pays.csv", table("from,to,sum,time,kind", pays)),
            ("knows.csv", table("a,b", knows)),
        ]
    };
    let base = imported(dir.path(), "base", ACCOUNTS, &tables(&pays[..150], &knows[..45]), None);
    let data = dir.path().join("base/data");
    let whole = imported(dir.path(), "all", ACCOUNTS, &tables(&pays, &knows), Some(&data));
    let reader = RowReader::open(&data, &data, &base).unwrap();
    let mut columns = Columns::new(&reader, &base).unwrap();
    let mut numbers = Numbers::of(&base);
    let mut at_of = |row: Row| {
        let Row::Edge(EdgeRow { relation, src, dst, weight, time, .. }) = row else { panic!("an edge") };
        let of = &base.graph.relations()[relation];
        EdgeAt { relation, src: numbers.get(of.src, &src), dst: numbers.get(of.dst, &dst), weight, time }
    };
    let mut edges = Vec::new();
    for (at, row) in pays.iter().enumerate().skip(150) {
        let edge = json!({ "relation": "pays", "src": row[0], "dst": row[1] });
        edges.push(at_of(reader.read(&change(edge, "sum,time,kind", &row[2..], at)).unwrap().remove(0)));
    }
    for row in &knows[45..] {
        let edge = json!({ "relation": "knows", "src": row[0], "dst": row[1] });
        edges.push(at_of(reader.read(&serde_json::from_value(edge).unwrap()).unwrap().remove(0)));
    }
    let accounts = base.graph.node_types()[0].count;
    let ids = &whole.ids.as_ref().unwrap().0[0];
    let compare = |columns: &Columns, overlay: &[EdgeAt], numbers: &mut Numbers| {
        for (node, id) in ids.iter().enumerate() {
            let local = numbers.get(0, id);
            let mut own: Vec<f16> = match (local as usize) < accounts {
                true => features(&base, local as usize).into_iter().map(f16::from_bits).collect(),
                false => columns.of_unnamed(0),
            };
            columns.of_node(0, local, overlay, &mut own);
            assert_same(id, &whole, &own, node);
        }
    };
    compare(&columns, &edges, &mut numbers);
    for edge in &edges {
        columns.append(&[], &[*edge]);
    }
    compare(&columns, &[], &mut numbers);
    assert!(ids.len() > accounts && columns.is_changed(0, numbers.get(0, "a0")));

    // A row gives the edges of its own columns, and values of edges are those of the import.
    let node = json!({ "type": "account", "id": "new", "age": 3, "city": "c1" });
    let rows = reader.read(&serde_json::from_value(node).unwrap()).unwrap();
    let [Row::Node(_), Row::Edge(EdgeRow { src, dst, .. })] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!([src.as_str(), dst.as_str()], ["c1", "new"]);
    let (times, values) = (whole.edge_times("pays").unwrap().unwrap(), whole.edge_columns("pays").unwrap().unwrap());
    for (at, row) in pays.iter().enumerate() {
        let edge = json!({ "relation": "pays", "src": row[0], "dst": row[1] });
        let rows = reader.read(&change(edge, "sum,time,kind", &row[2..], at)).unwrap();
        let Row::Edge(edge) = &rows[0] else { panic!("an edge") };
        let entry = times.iter().position(|time| Some(*time) == edge.time).unwrap();
        assert_eq!(values.row(entry), edge.values, "row {at}");
    }
}

#[test]
fn a_value_that_joins_as_many_nodes_as_it_may_joins_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let accounts: String = (0..40).map(|at| format!("a{at},{},{},c{}\n", at % 9, at % 2, at % 6)).collect();
    let tables = [
        ("accounts.csv", format!("id,age,bad,city\n{accounts}")),
        ("pays.csv", "from,to,sum,time,kind\na1,a2,1,1700000000,x\n".to_owned()),
        ("knows.csv", "a,b\na1,a2\n".to_owned()),
    ];
    let description = ACCOUNTS.replace("\"city\"", "\"city\"\nmax_degree = 7");
    let base = imported(dir.path(), "base", &description, &tables, None);
    let data = dir.path().join("base/data");
    let reader = RowReader::open(&data, &data, &base).unwrap();
    let columns = Columns::new(&reader, &base).unwrap();
    let live = Live::open(base, columns).unwrap();
    let joined = |id: &str, city: &str| {
        let node = json!({ "type": "account", "id": id, "age": 3, "city": city });
        let rows = reader.read(&serde_json::from_value(node).unwrap()).unwrap();
        let appended = live.append(&rows).unwrap();
        (appended.edges, appended.left_out)
    };
    // Seven have c0, six have c5.
    let found = [("n1", "c0"), ("n2", "c5"), ("n3", "c5"), ("n4", "c9")].map(|(id, city)| joined(id, city));
    assert_eq!(found, [(0, 1), (1, 0), (0, 1), (1, 0)]);
}
