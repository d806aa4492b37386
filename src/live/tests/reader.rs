use serde_json::{Value, json};

use crate::data::tables::{ImportOptions, import};
use crate::error::Error;
use crate::graph::{Adjacency, Dataset, Features, HeteroGraph, RelationSpec};
use crate::live::{Change, Row, RowReader};

fn change(row: Value) -> Change {
    serde_json::from_value(row).unwrap()
}

const DESCRIPTION: &str = r#"
[[nodes]]
type = "payment"
file = "payments.csv"
id = "number"
time = { column = "time", unit = "ms" }
label = { column = "fraud", delay = "1d" }
features = { amount = "numeric", online = "boolean", type = "categorical" }
[[edges]]
name = "paid_by"
src = "customer.customer"
dst = "payment"
"#;

fn imported(dir: &std::path::Path) -> RowReader {
    let rows: String = (0..60)
        .map(|at| {
            format!(
                "{at},{}000,{}.5,{},t{},k{},{}\n",
                1_700_000_000 + at * 9_000,
                at,
                at % 2,
                at % 3,
                at % 7,
                at % 4 / 3
            )
        })
        .collect();
    std::fs::write(dir.join("payments.csv"), format!("number,time,amount,online,type,customer,fraud\n{rows}")).unwrap();
    std::fs::write(dir.join("graph.toml"), DESCRIPTION).unwrap();
    import(&ImportOptions::new(dir.join("graph.toml")), &|_| {}).unwrap().write(&dir.join("data")).unwrap();
    let data = dir.join("data");
    RowReader::open(dir, &data, &Dataset::open(&data).unwrap()).unwrap()
}

#[test]
fn the_same_row_is_read_from_texts_numbers_and_other_times() {
    let dir = tempfile::tempdir().unwrap();
    let reader = imported(dir.path());
    let read = |row: Value| reader.read(&change(row)).unwrap();
    let plain =
        read(json!({ "type": "payment", "id": "9", "time": 1_700_000_000_250_i64, "amount": 12.5, "online": true,
        "customer": "k1", "fraud": 1, "columns": { "type": "t1" } }));
    let texts = read(json!({ "type": "payment", "id": "9", "number": "9", "time": "2023-11-14T23:13:20+01:00",
        "amount": " 12.5", "online": "yes", "customer": "k1", "fraud": "1", "columns": { "type": "t1" } }));
    assert_eq!(plain, texts);
    let [Row::Node(node), Row::Edge(edge)] = &plain[..] else { panic!("{plain:?}") };
    assert_eq!((node.time, node.label, node.known), (Some(1_700_000_000), Some(1), Some(1_700_086_400)));
    assert_eq!((edge.src.as_str(), edge.dst.as_str()), ("k1", "9"));
    let columns = reader.columns();
    assert_eq!((columns[0].name.as_str(), columns[1].columns.len()), ("payment", 0));
    assert!(columns[0].columns.iter().any(|column| column.name == "customer" && column.is_required));
}

#[test]
fn rows_that_do_not_fit_are_refused_with_their_column_and_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let reader = imported(dir.path());
    let whole = json!({ "type": "payment", "id": "9", "time": 1_700_000_000_250_i64, "amount": 1, "customer": "k1" });
    let with = |key: &str, value: Value| {
        let mut row = whole.clone();
        row[key] = value;
        row
    };
    assert!(reader.read(&change(whole.clone())).is_ok());
    let long = "x".repeat(5_000);
    let cases = [
        (with("type", json!("paymant")), "did you mean `payment`?"),
        (with("amont", json!(1)), "column `amont` of `payment`: expected a column of the table"),
        (with("amount", json!("12 EUR")), "column `amount` of `payment`: expected a number, found \"12 EUR\""),
        (with("amount", json!([1])), "expected a number, a text, true, false or null, found [1]"),
        (with("amount", json!(1e39)), "a finite number of at most 3.4e38"),
        (with("amount", json!(long)), "and more, 5000 bytes in all"),
        (with("online", json!(2)), "column `online` of `payment`: expected true, false, yes, no, 1 or 0"),
        (with("time", json!(1_700_000_000)), "not in the first weeks of 1970"),
        (with("time", Value::Null), "column `time` of `payment`: expected a time"),
        (with("customer", json!("")), "expected an id, for the edge `paid_by`"),
        (with("fraud", json!("maybe")), "expected a label that is listed"),
        (with("number", json!("8")), "column `number` of `payment`: expected the id of the row"),
        (with("id", json!("")), "`id` of `payment`: expected an id"),
        (json!({ "relation": "paid_to", "src": "k1", "dst": "9" }), "did you mean `paid_by`?"),
        (
            json!({ "relation": "paid_by", "src": "k1", "dst": "9", "weight": 1 }),
            "leave it out: its rows have no columns",
        ),
    ];
    for (row, expected) in cases {
        let error = reader.read(&change(row)).unwrap_err();
        assert!(matches!(error, Error::Data { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains(expected) && error.len() < 500, "{error}\nlacks {expected}");
    }
}

#[test]
fn data_without_a_description_have_the_columns_of_their_features() {
    let adjacency = Adjacency::from_edges(3, 3, &[(0, 1)]);
    let spec = RelationSpec::new("r", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("node".into(), 3)], vec![spec]).unwrap();
    let features = Features::from_vec(vec![half::f16::ONE; 6], 3, 2);
    let mut dataset = Dataset::new(graph, Some(features), None, None);
    dataset.feature_names = Some(vec!["x".into(), "y".into()]);
    let dir = tempfile::tempdir().unwrap();
    let reader = RowReader::open(dir.path(), dir.path(), &dataset).unwrap();
    let read = |row: Value| reader.read(&change(row));
    let expected = read(json!({ "type": "node", "id": "a", "x": 0.5, "y": "-2" })).unwrap();
    assert_eq!(read(json!({ "type": "node", "id": "a", "features": [0.5, -2] })).unwrap(), expected);
    let Row::Node(node) = &expected[0] else { panic!("a node") };
    assert_eq!(node.features.iter().map(|value| value.to_f32()).collect::<Vec<_>>(), [0.5, -2.0]);
    let edge = read(json!({ "relation": "r", "src": "a", "dst": "b" })).unwrap();
    assert!(matches!(&edge[..], [Row::Edge(edge)] if edge.values.is_empty() && edge.weight.is_none()));
    let cases = [
        (json!({ "type": "node", "id": "a", "features": [1] }), "`features` of `node`: expected a list of 2 numbers"),
        (json!({ "type": "node", "id": "a", "x": 70_000, "y": 1 }), "at most 65504"),
        (json!({ "type": "node", "id": "a", "x": 1 }), "column `y` of `node`: expected a number, found nothing"),
        (json!({ "type": "node", "id": "a", "x": 1, "y": 1, "z": 1 }), "column `z` of `node`"),
    ];
    for (row, expected) in cases {
        let error = read(row).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nlacks {expected}");
    }
}
