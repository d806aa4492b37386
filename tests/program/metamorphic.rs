//! Changes of the data that leave scores as they are or change them as predicted, for every kind of model: nodes and
//! edges in another order, repeated edges, scaled columns, nodes without edges, a relation without any.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};

use graphsieve_kernels::testing::{Dtype, relative_error, tolerance};
use ndarray::{Array1, Array2, ArrayBase, Axis, Ix1, Ix2};
use ndarray_npy::NpzWriter;
use serde_json::Value;

use crate::support::Sandbox;
use crate::trees_on_graphs::chance;

/// Payments behind the first of these numbers have no edge, and neither has the last card.
const JOINED: u32 = 110;
const PAYMENTS: u32 = 120;
const CARDS: u32 = 12;

/// The longest sum of a layer: neighbours of a payment, or columns.
const SUM: usize = 16;
/// Layers, and what makes a score of the last one. Each rounds as its sums do; a sigmoid makes errors no larger.
const LAYERS: f64 = 3.0;

/// Payments that are joined with others and with their card. Nobody `refunds` anybody.
#[derive(Clone)]
struct Tables {
    payments: Vec<String>,
    cards: Vec<String>,
    pays: Vec<String>,
    by: Vec<String>,
}

const DESCRIPTION: &str = r#"
[[nodes]]
type = "payment"
file = "payments.csv"
id = "id"
label = "fraud"
features = { Amount = { kind = "numeric", scale = "standard" }, Hour = { kind = "numeric", scale = "none" } }
[[nodes]]
type = "card"
file = "cards.csv"
id = "id"
features = { Limit = { kind = "numeric", scale = "standard" } }
[[edges]]
name = "pays"
file = "pays.csv"
src = "payment.from"
dst = "payment.to"
[[edges]]
name = "by"
file = "by.csv"
src = "card.card"
dst = "payment.payment"
[[edges]]
name = "refunds"
file = "refunds.csv"
src = "payment.from"
dst = "payment.to"
"#;

impl Tables {
    fn new() -> Self {
        let amount = |at: u32| 10.0 + 90.0 * f64::from(chance(at, 1));
        let fraud = |at: u32| u8::from(amount(at) + 40.0 * f64::from(chance(at, 2)) > 100.0);
        let payment = |at: u32| format!("p{at},{:.2},{},{}", amount(at), (24.0 * chance(at, 3)) as u32, fraud(at));
        let others = |at: u32| [(at * 7 + 4) % JOINED, (at * 13 + 5) % JOINED];
        Self {
            payments: (0..PAYMENTS).map(payment).collect(),
            cards: (0..CARDS).map(|card| format!("c{card},{}", 100 + card * 37 % 90)).collect(),
            pays: (0..JOINED).flat_map(|at| others(at).map(|to| format!("p{at},p{to}"))).collect(),
            by: (0..JOINED).map(|at| format!("c{},p{at}", at % (CARDS - 1))).collect(),
        }
    }

    /// Writes and imports them, with what another import was fitted to where `with` names one.
    fn import(&self, sandbox: &Sandbox, out: &str, with: &[&str]) {
        let Self { payments, cards, pays, by } = self;
        let tables: [(&str, &str, &[String]); 5] = [
            ("payments", "id,Amount,Hour,fraud", &payments[..]),
            ("cards", "id,Limit", cards),
            ("pays", "from,to", pays),
            ("by", "card,payment", by),
            ("refunds", "from,to", &[]),
        ];
        for (name, header, rows) in tables {
            sandbox.write(&format!("{name}.csv"), format!("{header}\n{}\n", rows.join("\n")).replace("\n\n", "\n"));
        }
        sandbox.write("graph.toml", DESCRIPTION);
        sandbox.succeeds([&["--quiet", "import", "tables", "graph.toml", "--out", out][..], with].concat());
    }

    /// With the rows of nodes in another order.
    fn shuffled(&self) -> Self {
        Self { payments: shuffled(&self.payments), cards: shuffled(&self.cards), ..self.clone() }
    }
}

/// The same rows in another order.
fn shuffled<T: Clone>(rows: &[T]) -> Vec<T> {
    order(rows.len()).into_iter().map(|at| rows[at].clone()).collect()
}

/// All numbers below `count`, in the order of a draw.
fn order(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| chance(a as u32, 9).total_cmp(&chance(b as u32, 9)));
    order
}

/// Columns that are not rounded: where those are sums, a tree may divide nodes by what rounding has left of them.
const TREES: &str = "[features]\nmax = true\nmean = false\ndifference = false\nwavelets = false\n[model]\ntrees = 20\n\
                     min_data_in_leaf = 5\nbootstrap = false\n";

/// What is trained: a name, its task and its settings.
const MODELS: [(&str, &str, &str); 4] = [
    ("encoder", "stage1", "[model]\nhidden = 8\nout = 8\n[train]\nepochs = 20\n"),
    ("attention", "stage2", "input = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 20\n"),
    ("classes", "classify", "[split]\nuse = \"random\"\n[model]\nhidden = 8\n[train]\nepochs = 20\n"),
    ("trees", "stage3", TREES),
];

pub fn write_config(sandbox: &Sandbox, name: &str, task: &str, data: &str, settings: &str) {
    sandbox.write(
        &format!("{name}.toml"),
        format!("task = \"{task}\"\n[output]\ndir = \"{name}\"\nplots = false\n[data]\npath = \"{data}\"\n{settings}"),
    );
}

pub fn train(sandbox: &Sandbox, name: &str) -> String {
    sandbox.succeeds(["--quiet", "train", &format!("{name}.toml"), "--device", "cpu"]);
    sandbox.only_run(name)
}

/// Scores by type and id; none of a node that a model says nothing of.
pub fn scores(sandbox: &Sandbox, run: &str, data: &str) -> BTreeMap<String, Option<f32>> {
    let score = ["--quiet", "score", run, "--data", data, "--device", "cpu", "--format", "json"];
    let list: Vec<Value> = serde_json::from_str(&sandbox.succeeds(score).stdout).unwrap();
    let text = |node: &Value, key: &str| node[key].as_str().unwrap().to_owned();
    let score = |node: &Value| node["score"].as_f64().map(|score| score as f32);
    list.iter().map(|node| (format!("{} {}", text(node, "type"), text(node, "id")), score(node))).collect()
}

/// Nothing but the rounding of sums in another order, up to `most`, is between two lists.
fn assert_round_alike(name: &str, got: &[f32], want: &[f32], most: f64) {
    let exact: Vec<f64> = want.iter().map(|&score| f64::from(score)).collect();
    let error = relative_error(got, &exact);
    assert!(error <= most, "{name}: {error:e} is more than {most:e}");
}

#[test]
fn scores_go_with_their_nodes_and_not_with_their_places_or_with_others_that_no_edge_joins() {
    let sandbox = Sandbox::new();
    let tables = Tables::new();
    tables.import(&sandbox, "data", &[]);
    let with = ["--with", "data"];
    tables.shuffled().import(&sandbox, "shuffled", &with);
    let mut more = tables.clone();
    more.payments.extend((0..30).map(|at| format!("x{at},{},{},", 20 + at, at % 24)));
    more.cards.extend((0..5).map(|at| format!("y{at},{}", 90 + at)));
    more.import(&sandbox, "more", &with);
    for (name, task, settings) in MODELS {
        write_config(&sandbox, name, task, "data", settings);
        let run = train(&sandbox, name);
        let want = scores(&sandbox, &run, "data");
        assert_eq!(want.len(), (PAYMENTS + CARDS) as usize);
        // Stage 1 scores edges: a node without any has no score.
        let alone = |key: &str| {
            let payment = key.strip_prefix("payment p").and_then(|number| number.parse::<u32>().ok());
            key == "card c11" || payment.is_some_and(|number| number >= JOINED)
        };
        assert!(
            want.iter().all(|(key, score)| score.is_some() == (task != "stage1" || !alone(key))),
            "{name}: {want:?}"
        );
        assert!(want.values().flatten().all(|score| (0.0..=1.0).contains(score)), "{name}: {want:?}");
        let distinct: BTreeSet<u32> = want.values().flatten().map(|score| score.to_bits()).collect();
        assert!(distinct.len() > 10, "{name} tells nodes apart");
        for data in ["shuffled", "more"] {
            let got = scores(&sandbox, &run, data);
            let added: Vec<&Option<f32>> =
                got.iter().filter(|(key, _)| !want.contains_key(*key)).map(|(_, of)| of).collect();
            assert_eq!(added.len(), if data == "more" { 35 } else { 0 });
            assert!(added.iter().all(|score| score.is_some() == (task != "stage1")), "{name}, {data}");
            let pairs: Vec<(f32, f32)> = want.iter().filter_map(|(key, score)| got[key].zip(*score)).collect();
            assert_eq!(pairs.len(), want.values().flatten().count());
            let (got, want): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            if data == "more" || task == "stage3" {
                // Other neighbours change no sum, and trees of unrounded columns have none.
                assert!(got == want, "{name}, {data}");
            } else {
                assert_round_alike(&format!("{name}, {data}"), &got, &want, LAYERS * tolerance(Dtype::F32, SUM));
            }
        }
    }
}

#[test]
fn the_order_of_edges_and_repeated_ones_change_no_byte_of_the_data() {
    let sandbox = Sandbox::new();
    let tables = Tables::new();
    tables.import(&sandbox, "data", &[]);
    let mut others = tables.clone();
    others.pays.extend(tables.pays[20..60].to_vec());
    others.by.extend(tables.by.clone());
    (others.pays, others.by) = (shuffled(&others.pays), shuffled(&others.by));
    others.import(&sandbox, "others", &[]);
    let files = |data: &str| -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(sandbox.path(data)).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect()
    };
    let (data, others) = (files("data"), files("others"));
    let differ = |(name, bytes): (&String, &Vec<u8>)| (others.get(name) != Some(bytes)).then(|| name.clone());
    assert_eq!(data.iter().filter_map(differ).collect::<Vec<_>>(), ["import.json"], "what was read is told there");
    assert_eq!(data.len(), others.len());
}

#[test]
fn scaled_columns_are_the_same_features() {
    let sandbox = Sandbox::new();
    let mut tables = Tables::new();
    tables.import(&sandbox, "data", &[]);
    // Four times as much in every row of the column that is scaled: powers of two round nothing.
    for row in &mut tables.payments {
        let (id, rest) = row.split_once(',').unwrap();
        let (amount, rest) = rest.split_once(',').unwrap();
        let cents: u32 = amount.replace('.', "").parse().unwrap();
        *row = format!("{id},{}.{:02},{rest}", 4 * cents / 100, 4 * cents % 100);
    }
    tables.import(&sandbox, "fourfold", &[]);
    let features = |data: &str| sandbox.read(&format!("{data}/X_combined.memmap"));
    assert!(features("data") == features("fourfold"));
    // By what the first was fitted to they are others.
    tables.import(&sandbox, "unfitted", &["--with", "data"]);
    assert!(features("data") != features("unfitted"));
}

/// A graph of one node type with its parts, as an `.npz` file.
#[derive(Clone)]
pub struct Arrays {
    pub features: Array2<f32>,
    /// -1 unknown.
    pub labels: Vec<i64>,
    edges: Vec<[usize; 2]>,
    /// 0 training, 1 validation, 2 test, another number none of them.
    pub part: Vec<u8>,
}

pub const NODES: usize = 90;

impl Arrays {
    /// The last five nodes have no edge; each part has some of them, and of both labels.
    pub fn new() -> Self {
        let column = |node: usize, at: usize| chance(node as u32, 20 + at as u32);
        let features = Array2::from_shape_fn((NODES, 4), |(node, at)| column(node, at));
        let label = |node: usize| i64::from(column(node, 0) + 0.4 * column(node, 1) > 0.8);
        let joined = NODES - 5;
        let others = |node: usize| [[node, (node * 7 + 3) % joined], [node, (node * 11 + 8) % joined]];
        Self {
            features,
            labels: (0..NODES).map(label).collect(),
            edges: (0..joined).flat_map(others).collect(),
            part: (0..NODES).map(|node| [0, 0, 1, 2, 0][node % 5]).collect(),
        }
    }

    /// The same graph whose node `at` is the node `order[at]` here.
    fn in_order(&self, order: &[usize]) -> Self {
        let mut place = vec![0; NODES];
        order.iter().enumerate().for_each(|(to, &from)| place[from] = to);
        Self {
            features: self.features.select(Axis(0), order),
            labels: order.iter().map(|&from| self.labels[from]).collect(),
            edges: shuffled(&self.edges.iter().map(|ends| ends.map(|node| place[node])).collect::<Vec<_>>()),
            part: order.iter().map(|&from| self.part[from]).collect(),
        }
    }

    pub fn write(&self, sandbox: &Sandbox, name: &str) {
        let mut npz = NpzWriter::new(File::create(sandbox.path(name)).unwrap());
        npz.add_array::<_, ArrayBase<_, Ix2>>("node_features", &self.features).unwrap();
        npz.add_array::<_, ArrayBase<_, Ix1>>("node_labels", &Array1::from_vec(self.labels.clone())).unwrap();
        let edges = Array2::from_shape_fn((self.edges.len(), 2), |(edge, end)| self.edges[edge][end] as i64);
        npz.add_array::<_, ArrayBase<_, Ix2>>("edges", &edges).unwrap();
        for (part, mask) in [(0, "train_mask"), (1, "val_mask"), (2, "test_mask")] {
            let is_in: Array1<bool> = self.part.iter().map(|&own| own == part).collect();
            npz.add_array::<_, ArrayBase<_, Ix1>>(mask, &is_in).unwrap();
        }
        npz.finish().unwrap();
    }
}

/// Epochs of the trainings on masks.
const EPOCHS: usize = 20;

/// Trainings on masks, without a draw by the number of a node.
fn on_masks() -> [(&'static str, &'static str, String); 3] {
    let masks = "[split]\nuse = \"masks\"\n";
    let undrawn = "[drop_edge]\nrate = 0\n[loss]\nlambda_unsup = 0\n[model]\nhidden = 8\nout = 8\n";
    [
        ("attention", "stage2", format!("input = \"features\"\n{masks}{undrawn}[train]\nepochs = {EPOCHS}\n")),
        ("classes", "classify", format!("[model]\nhidden = 8\ndropout = 0\n[train]\nepochs = {EPOCHS}\n")),
        ("trees", "stage3", format!("{masks}{TREES}")),
    ]
}

#[test]
fn trainings_do_not_depend_on_the_order_of_nodes_and_edges() {
    let sandbox = Sandbox::new();
    let (arrays, order) = (Arrays::new(), order(NODES));
    arrays.write(&sandbox, "graph.npz");
    arrays.in_order(&order).write(&sandbox, "others.npz");
    for (name, task, settings) in on_masks() {
        // The first loss, and scores in the order of `nodes`.
        let trained = |data: &str, name: &str, nodes: &[usize]| -> (Option<f64>, Vec<f32>) {
            write_config(&sandbox, name, task, data, &settings);
            let run = train(&sandbox, name);
            // Trees have no epochs and write none.
            let log = fs::read_to_string(sandbox.path(&format!("{run}/metrics.jsonl"))).unwrap_or_default();
            let first = log.lines().next().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let scores = scores(&sandbox, &run, data);
            let scores = nodes.iter().map(|node| scores[&format!("node {node}")].unwrap()).collect();
            (first.and_then(|line| line["loss"].as_f64()), scores)
        };
        let (loss, want) = trained("graph.npz", name, &order);
        let (other_loss, got) = trained("others.npz", &format!("{name}_others"), &(0..NODES).collect::<Vec<_>>());
        if task == "stage3" {
            assert!(got == want, "{name}: trees count in fixed point");
            continue;
        }
        let (loss, other_loss) = (loss.unwrap(), other_loss.unwrap());
        assert!((loss - other_loss).abs() <= LAYERS * tolerance(Dtype::F32, NODES) * loss, "{loss} and {other_loss}");
        // Every epoch rounds anew.
        assert_round_alike(name, &got, &want, EPOCHS as f64 * LAYERS * tolerance(Dtype::F32, NODES));
    }
}
