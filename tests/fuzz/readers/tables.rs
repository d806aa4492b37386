//! Tables, their description, and the raw files of reviews.

use std::path::Path;

use graphsieve::data::amazon::{PrepareOptions, prepare};
use graphsieve::data::tables::{ExportOptions, Import, ImportOptions, TableFormat, export, import};
use graphsieve::graph::{Labels, NodeType};

use super::files::{directory, file, get, put};
use super::packed;

/// Events with every kind of column, what they name, and edges between these with a weight and values.
pub const DESCRIPTION: &str = r#"
[split]
by = "time"
train = "4d"
validation = "2d"
test = "2d"

[[nodes]]
type = "payment"
file = "payments.csv"
id = "id"
time = "time"
amount = "amount"
alert = "card"
history = 2
label = { column = "fraud", delay = "1h" }

[nodes.features]
amount = { kind = "numeric", log = true }
kind = { kind = "categorical", width = 4 }
online = "boolean"
memo = { kind = "text", width = 8 }
seen = { kind = "timestamp", format = "%Y-%m-%d %H:%M" }

[[edges]]
name = "paid_with"
src = "card.card"
dst = "payment"

[[edges]]
name = "owns"
file = "owners.csv"
src = "person.person"
dst = "card.card"
weight = "share"
values = { share = "numeric", role = "categorical" }

[[windows]]
spans = ["1d"]
last = [2]
"#;

pub const PAYMENTS: &str = "\
id,time,card,amount,kind,online,memo,seen,fraud
1,0,c1,1.5,a,true,\"red case, new\",1970-01-01 00:00,0
2,86400,c2,20,b,no,,1970-01-02 10:30,1
3,172800,c1,,,,blue \"\"cover\"\",,
4,259200,c3,1e3,a,1,red,1970-01-04 23:59,1
5,345600,c2,-4,c,0,case,1970-01-05 00:00,0
6,432000,c1,7,a,yes,red red,1970-01-06 00:00,1
7,518400,c1,8,b,false,new,1970-01-07 00:00,0
8,604800,c3,9,a,TRUE,cover,1970-01-08 00:00,1
9,691200,c2,3.25,,n,,1970-01-09 00:00,0
";

pub const OWNERS: &str = "person,card,share,role\nann,c1,1,main\nbob,c1,0.5,second\nann,c2,0.25,main\neve,c3,2,\n";

pub const REVIEWS: &str = r#"{"reviewerID": "A1", "asin": "P1", "overall": 5.0, "reviewText": "Good \u00e9 case", "unixReviewTime": 1400000000, "helpful": [2, 3], "verified": true}
{'reviewerID': 'A2', 'asin': 'P2', 'overall': 1, 'reviewText': u'Bad\x21', 'helpful': [0, 1], 'vote': '1,2'}
{"reviewerID": "A1", "asin": "P2", "overall": "4.0", "summary": null}
{"reviewerID": "A3", "asin": "P1", "overall": 3}
"#;

pub const METADATA: &str = r#"{"asin": "P1", "title": "Red case", "brand": "Acme", "price": "$4.50", "categories": [["Cases", "Red"]], "related": {"also_bought": ["P2"]}, "description": ["For phones", "and more"]}
{'asin': 'P2', 'title': "Blue 'new' case", 'brand': None, 'price': 3.5, 'salesRank': {'Cases': 12}, 'imUrl': 'http://x/y.jpg', 'description': u'a\tb'}
"#;

/// A directory of tables with `DESCRIPTION`, in which the payments lie under another name.
fn make(dir: &Path, payments: &str) {
    put(&dir.join("graph.toml"), DESCRIPTION.replace("payments.csv", payments).as_bytes());
    put(&dir.join("payments.csv"), PAYMENTS.as_bytes());
    put(&dir.join("owners.csv"), OWNERS.as_bytes());
}

/// The tables of `make`, imported.
pub fn imported(dir: &Path) -> Import {
    make(dir, "payments.csv");
    import(&ImportOptions::new(dir.join("graph.toml")), &|_| {}).expect("tables that fit their description")
}

/// Imports tables of which the file `name` is under test.
fn read(reader: &'static str, name: &str, payments: &str, bytes: &[u8]) -> bool {
    let dir = directory(reader, |dir| make(dir, payments));
    put(&dir.join(name), bytes);
    let import = import(&ImportOptions::new(dir.join("graph.toml")), &|_| {});
    import.is_ok_and(|import| import.dataset.features.is_some())
}

pub fn csv(bytes: &[u8]) -> bool {
    read("csv", "payments.csv", "payments.csv", bytes)
}

pub fn tsv(bytes: &[u8]) -> bool {
    read("tsv", "payments.tsv", "payments.tsv", bytes)
}

pub fn tsv_seeds() -> Vec<Vec<u8>> {
    let plain = PAYMENTS.replace("red case, new", "red case").replace(',', "\t");
    vec![plain.clone().into(), ["\u{feff}", &plain.replace('\n', "\r\n")].concat().into()]
}

pub fn csv_gz(bytes: &[u8]) -> bool {
    read("csv_gz", "payments.csv.gz", "payments.csv.gz", bytes)
}

pub fn csv_gz_seeds() -> Vec<Vec<u8>> {
    let two = PAYMENTS.split_at(PAYMENTS.len() / 2);
    vec![packed::gzip(PAYMENTS.as_bytes()), [two.0, two.1].map(|part| packed::gzip(part.as_bytes())).concat()]
}

pub fn csv_zst(bytes: &[u8]) -> bool {
    read("csv_zst", "payments.csv.zst", "payments.csv.zst", bytes)
}

pub fn csv_zst_seeds() -> Vec<Vec<u8>> {
    vec![packed::zstd(PAYMENTS.as_bytes())]
}

pub fn parquet(bytes: &[u8]) -> bool {
    let dir = directory("parquet", |dir| {
        put(&dir.join("graph.toml"), PARQUET_DESCRIPTION.as_bytes());
    });
    put(&dir.join("edges.parquet"), bytes);
    import(&ImportOptions::new(dir.join("graph.toml")), &|_| {}).is_ok()
}

const PARQUET_DESCRIPTION: &str = r#"
[[edges]]
name = "owns"
file = "edges.parquet"
src = "person.src"
dst = "card.dst"
weight = "weight"
"#;

pub fn parquet_seeds() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dataset = imported(dir.path()).dataset;
    let out = dir.path().join("out");
    export(&dataset, &out, ExportOptions::from(TableFormat::Parquet)).expect("a new directory");
    vec![get(&out.join("edges_owns.parquet"))]
}

pub fn edge_table(bytes: &[u8]) -> bool {
    read("edge_table", "owners.csv", "payments.csv", bytes)
}

pub fn description(bytes: &[u8]) -> bool {
    read("description", "graph.toml", "payments.csv", bytes)
}

pub fn description_seeds() -> Vec<Vec<u8>> {
    let shared = "[[nodes]]\ntype = \"row\"\nfile = \"payments.csv\"\nlabel = \"fraud\"\nfeatures = { amount = \"numeric\", \
                  kind = { kind = \"categorical\", encoding = \"frequency\" } }\n[[shared]]\ncolumn = \"card\"\nas = \"card\"\n\
                  max_degree = 5\n";
    let scored = "[[edges]]\nname = \"transfer\"\nfile = \"owners.csv\"\nsrc = \"a.person\"\ndst = \"b.card\"\nscored = true\n\
                  values = [\"share\"]\n";
    vec![DESCRIPTION.into(), shared.into(), scored.into()]
}

pub fn label_table(bytes: &[u8]) -> bool {
    let types = [("user", 0, 6), ("product", 6, 4)];
    let types = types.map(|(name, offset, count)| NodeType { name: name.into(), offset, count });
    Labels::from_csv(file("label_table", "labels.csv", bytes), None, &types).is_ok()
}

/// Prepares raw files of which `name` is under test.
fn prepared(reader: &'static str, name: &str, bytes: &[u8]) -> bool {
    let dir = directory(reader, |dir| {
        put(&dir.join("reviews.json"), REVIEWS.as_bytes());
        put(&dir.join("metadata.json"), METADATA.as_bytes());
    });
    let under_test = put(&dir.join(name), bytes);
    let of =
        |usual: &str| if name.starts_with(usual) { under_test.clone() } else { dir.join(usual).with_extension("json") };
    prepare(&PrepareOptions::new(of("reviews"), of("metadata")), &|_| {}).is_ok()
}

pub fn reviews(bytes: &[u8]) -> bool {
    prepared("reviews", "reviews.json", bytes)
}

pub fn reviews_gz(bytes: &[u8]) -> bool {
    prepared("reviews_gz", "reviews.json.gz", bytes)
}

pub fn metadata(bytes: &[u8]) -> bool {
    prepared("metadata", "metadata.json", bytes)
}
