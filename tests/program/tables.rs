//! Tables to graph and back: what is read, what is refused, and what is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphsieve::data::split::{Split, SplitFractions};
use graphsieve::data::tables::{Import, ImportOptions, TableFormat, export, import};
use graphsieve::error::Error;
use graphsieve::graph::Dataset;
use parquet::data_type::{ByteArrayType, DoubleType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use tempfile::TempDir;

/// The kind of table that S-FFSD is, in 15 lines.
const DESCRIPTION: &str = include_str!("../support/transactions.toml");

/// One transaction: time, source, target, amount, location, type, label.
type Transaction = (i64, String, String, f64, String, String, i64);

/// A generator of pseudo-random numbers, good enough for tables.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn transactions(count: usize) -> Vec<Transaction> {
    let mut state = 7;
    (0..count)
        .map(|at| {
            let mut draw = |n: u64| random(&mut state) % n;
            let label = [2, 2, 0, 0, 1][draw(5) as usize];
            let (source, target) = (format!("S{}", draw(60)), format!("T{}", draw(40)));
            let amount = draw(100_000) as f64 / 100.0;
            (at as i64 * 700, source, target, amount, format!("L{}", draw(12)), format!("TP{}", draw(5)), label)
        })
        .collect()
}

const HEADER: &str = "Time,Source,Target,Amount,Location,Type,Labels\n";

fn csv(rows: &[Transaction]) -> String {
    let mut text = HEADER.to_owned();
    for (time, source, target, amount, location, kind, label) in rows {
        writeln!(text, "{time},{source},{target},{amount},{location},{kind},{label}").unwrap();
    }
    text
}

/// In groups of 1,000 rows.
fn parquet(rows: &[Transaction]) -> Vec<u8> {
    let schema =
        "message transactions { required int64 Time; required binary Source (UTF8); required binary Target (UTF8);
        required double Amount; required binary Location (UTF8); required binary Type (UTF8); required int64 Labels; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    for rows in rows.chunks(1_000) {
        let mut group = writer.next_row_group().unwrap();
        for at in 0..7 {
            let mut column = group.next_column().unwrap().unwrap();
            let whole = |of: fn(&Transaction) -> i64| rows.iter().map(of).collect::<Vec<_>>();
            let text =
                |of: fn(&Transaction) -> &String| rows.iter().map(|row| of(row).as_str().into()).collect::<Vec<_>>();
            let amounts: Vec<f64> = rows.iter().map(|row| row.3).collect();
            match at {
                0 => column.typed::<Int64Type>().write_batch(&whole(|row| row.0), None, None),
                1 => column.typed::<ByteArrayType>().write_batch(&text(|row| &row.1), None, None),
                2 => column.typed::<ByteArrayType>().write_batch(&text(|row| &row.2), None, None),
                3 => column.typed::<DoubleType>().write_batch(&amounts, None, None),
                4 => column.typed::<ByteArrayType>().write_batch(&text(|row| &row.4), None, None),
                5 => column.typed::<ByteArrayType>().write_batch(&text(|row| &row.5), None, None),
                _ => column.typed::<Int64Type>().write_batch(&whole(|row| row.6), None, None),
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// A directory with a description and tables.
struct Tables(TempDir);

impl Tables {
    fn new(description: &str, files: &[(&str, &[u8])]) -> Self {
        let tables = Self(tempfile::tempdir().unwrap());
        tables.write("graph.toml", description.as_bytes());
        files.iter().for_each(|(name, content)| tables.write(name, content));
        tables
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn import_as(&self, strict: bool) -> Result<Import, Box<Error>> {
        Ok(import(&ImportOptions { strict, ..ImportOptions::new(self.path("graph.toml")) }, &|_| {})?)
    }

    fn import(&self) -> Import {
        self.import_as(false).unwrap()
    }

    /// The bytes of every file that an import writes.
    fn written(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        self.import().write(&self.path(name)).unwrap();
        files_of(&self.path(name))
    }
}

fn files_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// Ids of all types, by name of the type.
fn ids(dataset: &Dataset) -> BTreeMap<String, Vec<String>> {
    let types = dataset.graph.node_types().iter().map(|node_type| node_type.name.clone());
    types.zip(dataset.ids.as_ref().unwrap().0.clone()).collect()
}

/// Relation, source, destination, bits of the weight, time.
type NamedEdge = (String, String, String, Option<u32>, Option<i64>);

/// Every edge with the ids of its ends and its values, sorted.
fn edges(dataset: &Dataset) -> Vec<NamedEdge> {
    let ids = &dataset.ids.as_ref().unwrap().0;
    let mut all = Vec::new();
    for relation in dataset.graph.relations() {
        let weights = dataset.edge_weights(&relation.name).unwrap();
        let times = dataset.edge_times(&relation.name).unwrap();
        for row in 0..relation.forward.num_rows() {
            for (entry, &src) in relation.forward.entries(row).zip(relation.forward.row(row)) {
                let (src, dst) = (ids[relation.src][src as usize].clone(), ids[relation.dst][row].clone());
                let weight = weights.as_ref().map(|weights| weights[entry].to_bits());
                let time = times.as_ref().map(|times| times[entry]);
                all.push((relation.name.clone(), src, dst, weight, time));
            }
        }
    }
    all.sort_unstable();
    all
}

fn labels(dataset: &Dataset) -> BTreeMap<String, u8> {
    let entries = &dataset.labels.as_ref().unwrap().entries;
    let id = |node: u32| dataset.ids.as_ref().unwrap().get(node as usize).unwrap().to_owned();
    entries.iter().map(|&(node, class)| (id(node), class)).collect()
}

/// A feature column of the nodes of a type.
fn column(dataset: &Dataset, node_type: &str, name: &str) -> Vec<f32> {
    let names = dataset.feature_names.as_ref().unwrap();
    let at = names.iter().position(|known| known == name).unwrap_or_else(|| panic!("{name} is none of {names:?}"));
    let node_type = dataset.graph.node_types().iter().find(|known| known.name == node_type).unwrap();
    let features = dataset.features.as_ref().unwrap();
    let nodes = node_type.offset..node_type.offset + node_type.count;
    nodes.map(|node| features.row(node).nth(at).unwrap()).collect()
}

#[test]
fn a_table_of_transactions_becomes_a_typed_graph_by_fifteen_lines() {
    assert!(DESCRIPTION.lines().count() <= 15);
    let rows = transactions(500);
    let tables = Tables::new(DESCRIPTION, &[("transactions.csv", csv(&rows).as_bytes())]);
    let import = tables.import();
    let dataset = &import.dataset;
    let names: Vec<&str> = dataset.graph.relations().iter().map(|relation| relation.name.as_str()).collect();
    assert_eq!(names, ["pays", "pays_T", "receives", "receives_T", "same_location", "same_location_T"]);
    let mut expected = BTreeSet::new();
    for (at, (_, source, target, _, location, ..)) in rows.iter().enumerate() {
        let transaction = (at + 1).to_string();
        for (relation, src, dst) in [
            ("pays", source, &transaction),
            ("receives", &transaction, target),
            ("same_location", location, &transaction),
        ] {
            expected.insert((relation.to_owned(), src.clone(), dst.clone(), None, None));
            expected.insert((format!("{relation}_T"), dst.clone(), src.clone(), None, None));
        }
    }
    assert_eq!(edges(dataset), Vec::from_iter(expected));
    let known = rows.iter().enumerate().filter(|(_, row)| row.6 != 2);
    assert_eq!(labels(dataset), known.map(|(at, row)| ((at + 1).to_string(), row.6 as u8)).collect());
    let text = import.summary.to_string();
    assert!(text.contains("transaction: 500 nodes; labels: "), "{text}");
    assert!(text.contains("account: 100 nodes, 100 of them from edges only"), "{text}");
    assert!(text.contains("same_location (transaction <- location): 500 edges"), "{text}");

    import.write(&tables.path("data")).unwrap();
    let opened = Dataset::open(&tables.path("data")).unwrap();
    assert_eq!((edges(&opened), ids(&opened), labels(&opened)), (edges(dataset), ids(dataset), labels(dataset)));
    assert_eq!(opened.feature_names, dataset.feature_names);
    let features = opened.features.unwrap();
    assert!(
        (0..features.num_rows()).all(|node| features.row(node).any(|value| value != 0.0)),
        "nodes without features"
    );
}

#[test]
fn the_same_content_makes_the_same_bytes_whatever_the_format() {
    let rows = transactions(3_000);
    let text = csv(&rows);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let tables = [
        ("transactions.csv", text.clone().into_bytes()),
        ("transactions.csv.gz", gzip.finish().unwrap()),
        ("transactions.csv.zst", zstd),
        ("transactions.tsv", text.replace(',', "\t").into_bytes()),
        ("transactions.csv", text.replace('\n', "\r\n").into_bytes()),
        ("transactions.parquet", parquet(&rows)),
    ];
    let mut first: Option<BTreeMap<String, Vec<u8>>> = None;
    for (name, content) in tables {
        let tables = Tables::new(&DESCRIPTION.replace("transactions.csv", name), &[(name, &content)]);
        let once = tables.written("once");
        assert!(once == tables.written("twice"), "{name}: two imports differ");
        assert!(!String::from_utf8_lossy(&once["import.json"]).contains(tables.0.path().to_str().unwrap()));
        let mut data = once;
        // It names the file.
        data.remove("import.json");
        assert!(data.keys().any(|name| name == "feature_names.json"));
        assert!(*first.get_or_insert_with(|| data.clone()) == data, "{name} differs");
    }
}

#[test]
fn the_number_of_threads_does_not_change_the_bytes() {
    let tables = Tables::new(DESCRIPTION, &[("transactions.csv", csv(&transactions(5_000)).as_bytes())]);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| tables.written(&format!("of{threads}")))
    };
    assert!(with(1) == with(3));
}

#[test]
fn an_export_imports_to_the_same_ids_edges_and_labels() {
    let description =
        DESCRIPTION.replace("dst = \"transaction\"\n", "dst = \"transaction\"\nweight = \"Amount\"\ntime = \"Time\"\n");
    let tables = Tables::new(&description, &[("transactions.csv", csv(&transactions(700)).as_bytes())]);
    tables.import().write(&tables.path("data")).unwrap();
    let dataset = Dataset::open(&tables.path("data")).unwrap();
    for (name, format) in [("csv", TableFormat::Csv), ("parquet", TableFormat::Parquet)] {
        let out = tables.path(name);
        let summary = export(&dataset, &out, format).unwrap();
        assert_eq!(summary.files.len(), 3 + 3 + 1);
        let again =
            import(&ImportOptions { strict: true, ..ImportOptions::new(out.join("graph.toml")) }, &|_| {}).unwrap();
        assert_eq!(ids(&again.dataset), ids(&dataset));
        assert_eq!(edges(&again.dataset), edges(&dataset));
        assert_eq!(labels(&again.dataset), labels(&dataset));
        let again = export(&again.dataset, &tables.path("again"), format).unwrap();
        assert!(files_of(&tables.path("again")) == files_of(&out), "{:?}", again.files);
        fs::remove_dir_all(tables.path("again")).unwrap();
    }
    assert!(matches!(export(&dataset, &tables.path("csv"), TableFormat::Csv), Err(Error::Exists { .. })));
}

#[test]
fn repeated_edges_are_counted_and_merged_where_they_have_no_time() {
    let timed = "src = \"a.S\"\ndst = \"a.D\"\nweight = \"W\"\ntime = \"T\"\n";
    let table = b"S,D,W,T\nx,y,1.5,2020-01-02\nx,y,2,2020-01-01\ny,x,4,2020-01-01\n";
    let imported = |ends: &str| {
        let description = format!("[[edges]]\nname = \"pays\"\nfile = \"e.csv\"\n{ends}");
        Tables::new(&description, &[("e.csv", table)]).import()
    };
    let day = 1_577_836_800;
    let edge = |src: &str, dst: &str, weight: f32, time| {
        ("pays".to_owned(), src.to_owned(), dst.to_owned(), Some(weight.to_bits()), time)
    };
    let forward = |import: &Import| -> Vec<NamedEdge> {
        edges(&import.dataset).into_iter().filter(|edge| edge.0 == "pays").collect()
    };
    let merged = imported(&timed.replace("time = \"T\"\n", ""));
    assert_eq!(forward(&merged), [edge("x", "y", 3.5, None), edge("y", "x", 4.0, None)]);
    assert_eq!(merged.summary.relations[0].repeated, 1);
    let import = imported(timed);
    let [first, last] = [Some(day), Some(day + 86_400)];
    assert_eq!(forward(&import), [edge("x", "y", 1.5, last), edge("x", "y", 2.0, first), edge("y", "x", 4.0, first)]);
    assert_eq!(import.summary.relations[0].repeated, 1);
    // Both ends have names, degrees, counts, weights and recency.
    let mut names = import.dataset.feature_names.clone().unwrap();
    names.retain(|name| name.starts_with("pays.in"));
    assert_eq!(
        names,
        ["degree", "count", "mean_weight", "max_weight", "recency"].map(|part| format!("pays.in_{part}"))
    );
}

#[test]
fn rows_that_say_the_same_are_merged_and_shared_values_may_be_too_many() {
    let description = "[[nodes]]\ntype = \"user\"\nfile = \"u.csv\"\nid = \"Id\"\nfeatures = { Age = \"numeric\" }\n\
                       [[shared]]\ncolumn = \"Device\"\nmax_degree = 2\n";
    let table = b"Id,Age,Device\na,1,d1\nb,2,d1\na,1,d2\nc,,d3\nd,4,d3\ne,5,d3\nf,6,\n";
    let import = Tables::new(description, &[("u.csv", table)]).import();
    assert_eq!(ids(&import.dataset)["user"], ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(ids(&import.dataset)["device"], ["d1", "d2"]);
    let summary = &import.summary;
    assert_eq!((summary.node_types[0].repeated, summary.node_types[0].columns[0].missing), (1, 1));
    let hubs = summary.relations[0].hubs.unwrap();
    assert_eq!((hubs.hubs, hubs.of_one_node, hubs.above_max_degree, hubs.empty), (2, 1, 1, 1));
    // The median of 1, 2, 4, 5, 6 stands for the missing age.
    let ages = column(&import.dataset, "user", "user.Age");
    assert_eq!((ages[2], ages[3]), (0.0, 0.0));
    assert_eq!(column(&import.dataset, "user", "user.Age_missing"), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn scales_are_those_of_the_training_rows() {
    let mut rows = transactions(400);
    let before = Tables::new(DESCRIPTION, &[("transactions.csv", csv(&rows).as_bytes())]).import().dataset;
    let entries = &before.labels.as_ref().unwrap().entries;
    let split = Split::stratified(entries, |_| 0, SplitFractions::default(), 42).unwrap();
    let [test, training] = [split.test[0].0, split.train[0].0].map(|node| node as usize);
    let amounts = |dataset: &Dataset| column(dataset, "transaction", "transaction.Amount");
    let change = |rows: &mut Vec<Transaction>, row: usize| {
        let old = std::mem::replace(&mut rows[row].3, 1e6);
        let tables = Tables::new(DESCRIPTION, &[("transactions.csv", csv(rows).as_bytes())]);
        rows[row].3 = old;
        tables.import().dataset
    };
    let (before, after) = (amounts(&before), amounts(&change(&mut rows, test)));
    assert!(before.iter().zip(&after).enumerate().all(|(row, (a, b))| (a == b) == (row != test)));
    assert!(after[test].is_finite() && after[test] > 10.0, "drawn in, not cut off: {}", after[test]);
    // Twenty training rows of a million move the median: the test above can fail.
    let all: Vec<usize> = split.train.iter().map(|entry| entry.0 as usize).collect();
    let mut moved = rows.clone();
    all.iter().for_each(|&row| moved[row].3 = 1e6);
    let moved = amounts(&change(&mut moved, training));
    assert!(before.iter().zip(&moved).filter(|(a, b)| a != b).count() > 300);
}

#[test]
fn columns_follow_from_the_description_not_from_the_data() {
    let mut description = DESCRIPTION.replace("\"timestamp\"", "{ kind = \"timestamp\", format = \"%d.%m.%Y\" }");
    description =
        description.replace("Type = \"categorical\"", "Type = { kind = \"categorical\", encoding = \"frequency\" }");
    let table = |rows: &str| format!("{HEADER}{rows}");
    let names = |rows: &str| {
        let import = Tables::new(&description, &[("transactions.csv", table(rows).as_bytes())]).import();
        import.dataset.feature_names.unwrap()
    };
    let full = names("01.01.2020,a,b,1,l,t,2\n02.01.2020,a,b,2,l,t,2\n");
    assert_eq!(full, names(",a,b,,,,\n"));
    let of = ["weekday_sin", "weekday_cos", "yearday_sin", "yearday_cos", "recency", "missing"];
    let expected = [
        vec!["is_transaction".into(), "transaction.Amount".into(), "transaction.Amount_missing".into()],
        vec!["transaction.Type_frequency".into(), "transaction.Type_missing".into()],
        of.map(|part| format!("transaction.Time_{part}")).into(),
        vec!["pays.in_degree".into(), "receives.out_degree".into(), "same_location.in_degree".into()],
        vec!["is_account".into(), "pays.out_degree".into(), "receives.in_degree".into()],
        vec!["is_location".into(), "same_location.out_degree".into()],
    ];
    assert_eq!(full, expected.concat());
}

#[test]
fn times_and_categories_have_their_known_features() {
    let description = DESCRIPTION.replace("Type = \"categorical\"", "Type = { kind = \"categorical\", width = 4 }");
    // Monday, 1 January 2024, 06:00; Sunday, 1 July 2024 is a Monday as well, 12:00.
    let rows = "2024-01-01T06:00:00Z,a,b,1,l,red,2\n2024-07-01T12:00:00Z,a,b,2,l,red,2\n,a,b,3,l,blue,2\n";
    let import = Tables::new(&description, &[("transactions.csv", format!("{HEADER}{rows}").as_bytes())]).import();
    let of = |name: &str| column(&import.dataset, "transaction", &format!("transaction.{name}"));
    let close = |found: &[f32], expected: &[f64]| {
        assert!(found.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-3), "{found:?}, {expected:?}");
    };
    close(&of("Time_hour_sin"), &[1.0, 0.0, 0.0]);
    close(&of("Time_hour_cos"), &[0.0, -1.0, 0.0]);
    close(&of("Time_weekday_sin"), &[0.0, 0.0, 0.0]);
    close(&of("Time_weekday_cos"), &[1.0, 1.0, 0.0]);
    let july = std::f64::consts::TAU * 182.0 / 366.0;
    close(&of("Time_yearday_sin"), &[0.0, july.sin(), 0.0]);
    close(&of("Time_yearday_cos"), &[1.0, july.cos(), 0.0]);
    close(&of("Time_missing"), &[0.0, 0.0, 1.0]);
    let recency = of("Time_recency");
    assert!(recency[1] < recency[0], "the latest has the smallest age: {recency:?}");
    let types: Vec<Vec<f32>> = (0..4).map(|at| of(&format!("Type_{at}"))).collect();
    assert!(types.iter().all(|column| column[0] == column[1] && column[0].abs() == 0.5));
    assert!(types.iter().any(|column| column[0] != column[2]));
}

/// Every kind of column, so that everything that can be fitted is.
const EVERY_KIND: &str = r#"
[[nodes]]
type = "transaction"
file = "transactions.csv"
label = { column = "Labels", unknown = ["2"] }
[nodes.features]
Amount = { kind = "numeric", log = true }
Labels = "boolean"
Type = { kind = "categorical", encoding = "frequency" }
Location = { kind = "categorical", width = 8 }
Time = "timestamp"
Source = { kind = "text", width = 16 }
[[edges]]
name = "pays"
src = "account.Source"
dst = "transaction"
weight = "Amount"
time = "Time"
[[shared]]
column = "Location"
"#;

fn with_labels(rows: &[Transaction], of: impl Fn(i64) -> i64) -> Vec<Transaction> {
    let mut rows = rows.to_vec();
    rows.iter_mut().for_each(|row| row.6 = of(row.6));
    rows
}

fn every_kind(rows: &[Transaction]) -> Tables {
    // Labels 0 and 1 alone are booleans.
    Tables::new(EVERY_KIND, &[("transactions.csv", csv(&with_labels(rows, |label| label % 2)).as_bytes())])
}

/// Imports the tables of one directory with what was fitted in another.
fn import_with(tables: &Tables, with: PathBuf) -> Result<Import, Error> {
    import(&ImportOptions { with: Some(with), ..ImportOptions::new(tables.path("graph.toml")) }, &|_| {})
}

#[test]
fn the_same_tables_with_their_own_transforms_give_the_same_bytes() {
    let tables = every_kind(&transactions(400));
    let first = tables.written("monday");
    assert!(first.contains_key("import.bin"));
    let again = import_with(&tables, tables.path("monday")).unwrap();
    again.write(&tables.path("again")).unwrap();
    let mut again = files_of(&tables.path("again"));
    let (before, after) = (&first["import.json"], again.remove("import.json").unwrap());
    let [before, after]: [serde_json::Value; 2] = [before, &after].map(|bytes| serde_json::from_slice(bytes).unwrap());
    assert!(["fitted", "binary", "columns", "fitted_rows"].iter().all(|key| before[key] == after[key]));
    for (name, bytes) in &again {
        assert!(*bytes == first[name], "{name}");
    }
    // What was applied can be applied again.
    let third = import_with(&tables, tables.path("again")).unwrap();
    third.write(&tables.path("third")).unwrap();
    assert!(files_of(&tables.path("third"))["X_combined.memmap"] == first["X_combined.memmap"]);
}

#[test]
fn rows_of_another_day_have_the_features_that_they_would_have_had() {
    let rows = transactions(400);
    let monday = every_kind(&rows);
    monday.written("monday");
    let fitted = monday.import().dataset;
    // A part of the rows, in another order, with amounts that would move every scale.
    let mut some: Vec<Transaction> = rows[100..200].to_vec();
    some.reverse();
    (0..50).for_each(|_| some.push((9_000_000, "S1".into(), "T1".into(), 1e6, "L99".into(), "TP99".into(), 0)));
    let tuesday = every_kind(&some);
    let found = import_with(&tuesday, monday.path("monday")).unwrap();
    let alone = tuesday.import().dataset;
    assert_eq!(found.dataset.feature_names, fitted.feature_names);
    let names = fitted.feature_names.clone().unwrap();
    let own = names.iter().filter(|name| name.starts_with("transaction."));
    let mut moved = 0;
    for name in own {
        let [before, after, refitted] =
            [&fitted, &found.dataset, &alone].map(|dataset| column(dataset, "transaction", name));
        let expected: Vec<f32> = before[100..200].iter().rev().copied().collect();
        assert_eq!(after[..100], expected, "{name}");
        moved += usize::from(refitted[..100] != expected);
    }
    assert!(moved > 10, "{moved}");
    // A category that was never seen: as one of no row, and counted.
    let kinds = column(&found.dataset, "transaction", "transaction.Type_frequency");
    assert!(kinds[100] < kinds[..100].iter().copied().fold(f32::INFINITY, f32::min));
    let notes = found.summary.notes.join("\n");
    assert!(notes.contains("50 of 150 rows have a category of `transaction.Type`"), "{notes}");
}

#[test]
fn transforms_that_do_not_fit_are_refused_and_nothing_is_written() {
    let rows = transactions(200);
    let monday = every_kind(&rows);
    monday.written("monday");
    let table = csv(&with_labels(&rows, |_| 0));
    let with = |description: &str, table: &str| {
        let tables = Tables::new(description, &[("transactions.csv", table.as_bytes())]);
        let before = files_of(tables.0.path());
        let error = import_with(&tables, monday.path("monday")).unwrap_err();
        assert!(files_of(tables.0.path()) == before);
        (error.to_string(), error.exit_code())
    };
    let described = |from: &str, to: &str| with(&EVERY_KIND.replace(from, to), &table);
    let cases = [
        (
            described("log = true", "log = false"),
            "nodes[transaction].features.Amount.log = false: expected true, as",
            2,
        ),
        (described("width = 8", "width = 16"), "nodes[transaction].features.Location.width = 16: expected 8", 2),
        (described("Time = \"timestamp\"\n", ""), "features.Time = nothing: expected {", 2),
        (described("Labels = \"boolean\"\n", "Labels = \"boolean\"\nTarget = \"text\"\n"), "features.Target", 2),
        (described("weight = \"Amount\"\n", ""), "edges[pays].weight = nothing: expected \"Amount\"", 2),
        (described("account.Source", "user.Source"), "edges[pays].src.type = \"user\": expected \"account\"", 2),
        (with(EVERY_KIND, &table.replace("Amount", "amount")), "header: expected a column `Amount`", 1),
        (with(EVERY_KIND, &table.replacen(",TP", ",x,TP", 1)), "transactions.csv: line 2", 1),
    ];
    for ((error, code), expected, expected_code) in cases {
        assert!(error.contains(expected) && code == expected_code, "{error}\nlacks {expected}");
    }
    // Files, ids, labels and the split may be others; columns of the table may be more and in another order.
    let free = EVERY_KIND.replace("label = { column = \"Labels\", unknown = [\"2\"] }\n", "");
    let tables = Tables::new(&free, &[("transactions.csv", table.as_bytes())]);
    assert!(import_with(&tables, monday.path("monday")).is_ok());
}

#[test]
fn an_import_that_was_edited_cut_or_is_of_another_version_is_refused() {
    let tables = every_kind(&transactions(200));
    let files = tables.written("monday");
    let refused = |name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let path = tables.path("monday").join(name);
        fs::write(&path, change(files[name].clone())).unwrap();
        let error = import_with(&tables, tables.path("monday")).unwrap_err();
        fs::write(&path, &files[name]).unwrap();
        assert_eq!(error.exit_code(), 1);
        error.to_string()
    };
    let text = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replacen(from, to, 1).into_bytes()
    };
    let cut = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let cases = [
        (refused("import.json", &text("\"format\": 1", "\"format\": 99")), "format: expected version 1, found 99"),
        (refused("import.json", &text("\"format\": 1,", "")), "format: expected version 1, found none"),
        (refused("import.json", &cut), "import.json: line"),
        (refused("import.json", &text("\"transaction.Amount\"", "\"x\"")), "what was learned for `transaction.Amount`"),
        (refused("import.bin", &cut), "import.bin: SHA-256"),
        (
            refused("import.bin", &|mut bytes| {
                bytes[40] ^= 1;
                bytes
            }),
            "import.bin: SHA-256",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{error}\nlacks {expected}");
    }
    fs::remove_file(tables.path("monday/import.bin")).unwrap();
    assert!(import_with(&tables, tables.path("monday")).unwrap_err().to_string().contains("import.bin: cannot read"));
    let error = import_with(&tables, tables.0.path().into()).unwrap_err().to_string();
    assert!(error.contains("import.json: expected the import of tables, found no such file"), "{error}");
}

/// A description and its files.
type Bad = (String, Vec<(&'static str, String)>);

#[test]
fn bad_tables_are_refused_by_file_line_and_column_and_leave_nothing() {
    let row = "700,S1,T1,5.5,L1,TP1,0\n";
    let nodes = "[[nodes]]\ntype = \"user\"\nfile = \"u.csv\"\nid = \"Id\"\nfeatures = { Age = \"numeric\" }\n\
                 [[edges]]\nname = \"knows\"\nfile = \"e.csv\"\nsrc = \"user.A\"\ndst = \"user.B\"\n";
    let users = "Id,Age\na,1\nb,2\n";
    let two =
        |users: &str, edges: &str| (nodes.to_owned(), vec![("u.csv", users.to_owned()), ("e.csv", edges.to_owned())]);
    let one = |rows: &str| (DESCRIPTION.to_owned(), vec![("transactions.csv", format!("{HEADER}{row}{rows}"))]);
    let cases: Vec<(Bad, &str)> = vec![
        (one("700,S1,T1,x,L1,TP1,0\n"), "transactions.csv: line 3, column `Amount`: expected a number, found \"x\""),
        (one("soon,S1,T1,1,L1,TP1,0\n"), "line 3, column `Time`: expected a time"),
        (one("700,S1,T1,1,L1,TP1,9\n"), "line 3, column `Labels`: expected a label that is listed"),
        (one("700,,T1,1,L1,TP1,0\n"), "line 3, column `Source`: expected an id, found \"\""),
        (one("700,S1,T1,1,L1\n"), "line 3: expected 7 cells, as in the header, found a ragged row of 5"),
        (
            two("Id,Age\na,1\na,2\n", "A,B\na,b\n"),
            "u.csv: line 3, column `Age`: expected what an earlier row of the id \"a\"",
        ),
        (two("Id,Age\n,1\n", "A,B\na,b\n"), "u.csv: line 2, column `Id`: expected an id"),
        (two("Id,age\na,1\n", "A,B\na,b\n"), "u.csv: header: expected a column `Age`"),
        (
            two(users, "A,B\na,c\n"),
            "e.csv: line 2, column `B`: expected an id of the node table of `user`, found \"c\"",
        ),
        (two(users, ""), "e.csv: file length"),
        (two("", "A,B\n"), "u.csv: file length"),
    ];
    for ((description, files), expected) in cases {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        let tables = Tables::new(&description, &files);
        let before = files_of(tables.0.path());
        let error = tables.import_as(true).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains(expected), "{error}\nlacks {expected}");
        assert!(files_of(tables.0.path()) == before);
    }
    // Not strict, an unknown id is a new node without features.
    let tables = Tables::new(nodes, &[("u.csv", users.as_bytes()), ("e.csv", b"A,B\na,c\n")]);
    let import = tables.import();
    assert_eq!(ids(&import.dataset)["user"], ["a", "b", "c"]);
    assert_eq!(import.summary.node_types[0].from_edges, 1);
    assert_eq!(column(&import.dataset, "user", "user.Age_missing"), [0.0, 0.0, 1.0]);
}

#[test]
fn a_file_that_unpacks_to_too_much_is_refused() {
    let text = csv(&transactions(20_000));
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let description = DESCRIPTION.replace("transactions.csv", "t.csv.zst");
    let tables = Tables::new(&description, &[("t.csv.zst", &zstd)]);
    let options = ImportOptions { max_bytes: 100_000, ..ImportOptions::new(tables.path("graph.toml")) };
    let error = import(&options, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("t.csv.zst: unpacked size: expected at most 100000 bytes"), "{error}");
    assert!(import(&ImportOptions { max_bytes: text.len() as u64, ..options }, &|_| {}).is_ok());
}

#[test]
fn an_output_that_exists_is_never_overwritten() {
    let tables = Tables::new(DESCRIPTION, &[("transactions.csv", csv(&transactions(50)).as_bytes())]);
    let before = tables.written("data");
    assert!(matches!(tables.import().write(&tables.path("data")), Err(Error::Exists { .. })));
    assert!(files_of(&tables.path("data")) == before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_ids_are_called_a_round_trip_keeps_them(
        rows in prop::collection::vec(("\\PC{1,6}|[\",\n'; ]{1,4}", "\\PC{1,6}|[a-c]", -1e6f32..1e6, 0i64..1 << 33), 1..40),
        parquet: bool,
    ) {
        let mut text = csv::Writer::from_writer(Vec::new());
        text.write_record(["S", "D", "W", "T"]).unwrap();
        for (src, dst, weight, time) in &rows {
            text.write_record([src, dst, &weight.to_string(), &time.to_string()]).unwrap();
        }
        let description =
            "[[edges]]\nname = \"r\"\nfile = \"e.csv\"\nsrc = \"a.S\"\ndst = \"b.D\"\nweight = \"W\"\ntime = \"T\"\n";
        let tables = Tables::new(description, &[("e.csv", &text.into_inner().unwrap())]);
        let first = tables.import().dataset;
        let format = if parquet { TableFormat::Parquet } else { TableFormat::Csv };
        export(&first, &tables.path("out"), format).unwrap();
        let second = import(&ImportOptions::new(tables.path("out/graph.toml")), &|_| {}).unwrap().dataset;
        prop_assert_eq!(ids(&first), ids(&second));
        prop_assert_eq!(edges(&first), edges(&second));
        let expected: BTreeSet<(&str, &str)> = rows.iter().map(|row| (row.0.as_str(), row.1.as_str())).collect();
        let forward: Vec<NamedEdge> = edges(&first).into_iter().filter(|edge| edge.0 == "r").collect();
        prop_assert_eq!(forward.iter().map(|edge| (edge.1.as_str(), edge.2.as_str())).collect::<BTreeSet<_>>(), expected);
    }
}
