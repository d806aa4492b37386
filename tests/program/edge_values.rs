//! Values of edges: from columns of a table to rows of a relation, and back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use burn_flex::{Flex, FlexDevice};
use graphsieve::data::tables::{Import, ImportOptions, import};
use graphsieve::error::Error;
use graphsieve::graph::{Dataset, EdgeMatrix, Features, HeteroGraph, Relation};
use graphsieve::infer::attention::{edge_inputs, for_graph};
use graphsieve::loader::{FeatureStore, Job, Loader, LoaderOptions, undrawable};
use graphsieve::models::attention::Connections;
use graphsieve::models::device_graph::{DeviceGraph, upload_features};
use graphsieve::models::parameters::{HostTensor, Parameters, to_host};
use graphsieve::models::{AttentionSpec, Pass, ReceptiveField, TripleStreamGat};
use graphsieve::nn::Block;
use graphsieve::run::bundle::DataDigest;
use graphsieve::sampler::{Fanout, NeighbourSampler, SamplerConfig};
use graphsieve::score::explain::Explanation;
use graphsieve_kernels::{Message, Reduce, Strategy, gspmm};
use tempfile::TempDir;

use crate::auto;
use crate::support::Sandbox;

const NODES: &str = "[[nodes]]\ntype = \"account\"\nfile = \"accounts.csv\"\nid = \"id\"\nlabel = \"fraud\"\n";
const EDGES: &str = "[[edges]]\nname = \"pays\"\nfile = \"payments.csv\"\nsrc = \"account.from\"\n\
                     dst = \"account.to\"\n";
const VALUES: &str = "values = { amount = \"numeric\", online = \"boolean\", kind = \"categorical\" }\n";
const COLUMNS: [&str; 8] =
    ["amount", "amount_missing", "online", "online_missing", "kind_0", "kind_1", "kind_2", "kind_3"];

/// A payment: source, destination, amount, whether it was made online, kind, day.
#[derive(Clone)]
struct Payment(usize, usize, Option<f32>, Option<bool>, &'static str, usize);

const ACCOUNTS: usize = 60;

fn payments() -> Vec<Payment> {
    let payment = |at: usize| {
        let draw = at.wrapping_mul(2_654_435_761) >> 7;
        let (from, to) = (draw % ACCOUNTS, draw / 61 % 20);
        let amount = (!at.is_multiple_of(13)).then_some((at * 104_729 % 1000) as f32 / 8.0);
        let kind = ["card", "cash", "", "wire"][at * 5 % 7 % 4];
        Payment(from, to, amount, (!at.is_multiple_of(5)).then_some(at.is_multiple_of(3)), kind, at * 17 % 28)
    };
    (0..900).map(payment).collect()
}

fn accounts() -> String {
    let row = |node: usize| format!("a{node},{}\n", if node % 5 == 1 { 1 } else { 0 });
    ["id,fraud\n".to_owned()].into_iter().chain((0..ACCOUNTS).map(row)).collect()
}

fn table(payments: &[Payment]) -> String {
    let mut text = String::from("from,to,amount,online,kind,day\n");
    for Payment(from, to, amount, online, kind, day) in payments {
        let (amount, online) = (amount.map(|a| a.to_string()), online.map(|online| online.to_string()));
        let (amount, online) = (amount.unwrap_or_default(), online.unwrap_or_default());
        writeln!(text, "a{from},a{to},{amount},{online},{kind},2020-01-{:02}", day + 1).unwrap();
    }
    text
}

fn tables(description: &str, payments: &[Payment]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("graph.toml"), description).unwrap();
    fs::write(dir.path().join("accounts.csv"), accounts()).unwrap();
    fs::write(dir.path().join("payments.csv"), table(payments)).unwrap();
    dir
}

fn import_of(dir: &Path, with: Option<PathBuf>) -> Result<Import, Box<Error>> {
    Ok(import(&ImportOptions { with, ..ImportOptions::new(dir.join("graph.toml")) }, &|_| {})?)
}

fn relation<'a>(dataset: &'a Dataset, name: &str) -> &'a Relation {
    dataset.graph.relations().iter().find(|relation| relation.name == name).unwrap()
}

/// The rows of a relation's values by source and destination, in the order of entries.
fn by_ends(relation: &Relation, values: &EdgeMatrix) -> BTreeMap<(u32, u32), Vec<Vec<f32>>> {
    let mut all: BTreeMap<(u32, u32), Vec<Vec<f32>>> = BTreeMap::new();
    for row in 0..relation.forward.num_rows() {
        for (entry, &src) in relation.forward.entries(row).zip(relation.forward.row(row)) {
            all.entry((src, row as u32)).or_default().push(values.row(entry).to_vec());
        }
    }
    all
}

fn quantile(sorted: &[f32], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    f64::from(low) + (f64::from(high) - f64::from(low)) * place.fract()
}

/// What an import of `payments` has to make of them when `is_training` says which accounts are learned from: by ends
/// the columns of amount and online of every payment.
fn expected(payments: &[Payment], is_training: impl Fn(usize) -> bool) -> BTreeMap<(u32, u32), Vec<[f64; 4]>> {
    let fitted = || payments.iter().filter(|payment| is_training(payment.0) && is_training(payment.1));
    let mut amounts: Vec<f32> = fitted().filter_map(|payment| payment.2).collect();
    amounts.sort_unstable_by(f32::total_cmp);
    let (median, range) = (quantile(&amounts, 0.5), quantile(&amounts, 0.75) - quantile(&amounts, 0.25));
    let online: Vec<bool> = fitted().filter_map(|payment| payment.3).collect();
    let usual = f64::from(u8::from(2 * online.iter().filter(|online| **online).count() > online.len()));
    let mut all: BTreeMap<(u32, u32), Vec<[f64; 4]>> = BTreeMap::new();
    for Payment(from, to, amount, online, ..) in payments {
        let scaled = amount.map_or(0.0, |amount| (f64::from(amount) - median) / range);
        let online_value = online.map_or(usual, |online| f64::from(u8::from(online)));
        let missing = [amount.is_none(), online.is_none()].map(|missing| f64::from(u8::from(missing)));
        all.entry((*from as u32, *to as u32)).or_default().push([scaled, missing[0], online_value, missing[1]]);
    }
    all
}

#[test]
fn merged_payments_have_the_mean_of_columns_that_were_fitted_to_training_edges() {
    let payments = payments();
    let dir = tables(&format!("{NODES}{EDGES}{VALUES}"), &payments);
    let mut dataset = import_of(dir.path(), None).unwrap().dataset;
    assert_eq!(dataset.value_names("pays"), COLUMNS);
    assert_eq!(dataset.value_names("pays_T"), [""; 0]);
    let parts = dataset.split.as_ref().unwrap().parts().to_vec();
    assert!(parts.contains(&3) && parts.contains(&1));
    let expected = expected(&payments, |account| parts[account] <= 1);
    assert!(expected.values().any(|of| of.len() > 1) && expected.values().any(|of| of.len() == 1));
    let values = dataset.edge_columns("pays").unwrap().unwrap();
    let found = by_ends(relation(&dataset, "pays"), &values);
    assert_eq!(found.len(), expected.len());
    for (ends, rows) in &expected {
        let [found] = &found[ends][..] else { panic!("{ends:?} was not merged") };
        for column in 0..4 {
            let mean = rows.iter().map(|row| row[column]).sum::<f64>() / rows.len() as f64;
            assert!((f64::from(found[column]) - mean).abs() < 1e-6, "{ends:?}: {found:?} for {mean}");
        }
    }
    // A category is the same direction wherever it stands, and none where it is missing.
    let mut of_kind: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
    for Payment(from, to, .., kind, _) in &payments {
        let ends = (*from as u32, *to as u32);
        if expected[&ends].len() == 1 {
            let direction = found[&ends][0][4..].to_vec();
            assert_eq!(of_kind.entry(kind).or_insert_with(|| direction.clone()), &direction, "{kind}");
        }
    }
    assert_eq!((of_kind.len(), &of_kind[""]), (4, &vec![0.0; 4]));
    assert!(of_kind["card"] != of_kind["cash"] && of_kind["wire"].iter().any(|value| *value != 0.0));

    // The reverse sees the same values; nodes have no column of them.
    dataset.load_edge_values().unwrap();
    let reverse = relation(&dataset, "pays_T");
    for ((src, dst), rows) in by_ends(reverse, reverse.values.as_ref().unwrap()) {
        assert_eq!(rows, found[&(dst, src)]);
    }
    assert!(dataset.feature_names.unwrap().iter().all(|name| !name.contains("amount")));
}

#[test]
fn payments_with_times_keep_their_values_in_the_order_of_time() {
    let mut payments = payments();
    let dir = tables(&format!("{NODES}{EDGES}{VALUES}time = \"day\"\nweight = \"weight\"\n"), &payments);
    let text = table(&payments).replace('\n', ",1\n").replacen(",1\n", ",weight\n", 1);
    fs::write(dir.path().join("payments.csv"), text).unwrap();
    let mut dataset = import_of(dir.path(), None).unwrap().dataset;
    let parts = dataset.split.as_ref().unwrap().parts().to_vec();
    payments.sort_by_key(|payment| payment.5);
    let expected = expected(&payments, |account| parts[account] <= 1);
    dataset.load_edge_values().unwrap();
    let times = dataset.edge_times("pays").unwrap().unwrap();
    for name in ["pays", "pays_T"] {
        let relation = relation(&dataset, name);
        let found = by_ends(relation, relation.values.as_ref().unwrap());
        assert_eq!(found.values().map(Vec::len).sum::<usize>(), payments.len(), "none was merged");
        for ((src, dst), rows) in found {
            let ends = if name == "pays" { (src, dst) } else { (dst, src) };
            for (found, expected) in rows.iter().zip(&expected[&ends]) {
                let close = found.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-6);
                assert!(close, "{name} {ends:?}: {found:?} for {expected:?}");
            }
        }
    }
    assert_eq!(times.len(), payments.len());
}

#[test]
fn what_is_written_is_read_again_and_tells_one_digest_from_another() {
    let dir = tables(&format!("{NODES}{EDGES}{VALUES}"), &payments());
    let imported = import_of(dir.path(), None).unwrap();
    let data = dir.path().join("data");
    imported.write(&data).unwrap();
    let opened = Dataset::open(&data).unwrap();
    assert_eq!(opened.value_names("pays"), COLUMNS);
    assert_eq!(opened.edge_columns("pays").unwrap(), imported.dataset.edge_columns("pays").unwrap());
    let digest = DataDigest::of(&opened).unwrap();
    assert_eq!(digest, DataDigest::of(&imported.dataset).unwrap());
    opened.write(&dir.path().join("again")).unwrap();
    for file in ["graph.toml", "pays_values.bin"] {
        assert_eq!(fs::read(data.join(file)).unwrap(), fs::read(dir.path().join("again").join(file)).unwrap());
    }
    let mut bytes = fs::read(data.join("pays_values.bin")).unwrap();
    bytes[0] ^= 1;
    fs::write(data.join("pays_values.bin"), bytes).unwrap();
    fs::remove_file(data.join("SHA256SUMS")).unwrap();
    let changed = DataDigest::of(&Dataset::open(&data).unwrap()).unwrap();
    assert!(changed.graph != digest.graph && changed.features == digest.features && changed.labels == digest.labels);
    // Without the key the data are those of a program that knows none.
    fs::write(dir.path().join("graph.toml"), format!("{NODES}{EDGES}")).unwrap();
    let plain = import_of(dir.path(), None).unwrap();
    plain.write(&dir.path().join("plain")).unwrap();
    let text = fs::read_to_string(dir.path().join("plain/graph.toml")).unwrap();
    assert!(!text.contains("value") && !dir.path().join("plain/pays_values.bin").exists());
    assert_eq!(plain.dataset.edge_columns("pays").unwrap(), None);
}

#[test]
fn payments_of_another_day_have_the_values_that_they_would_have_had() {
    let payments = payments();
    let dir = tables(&format!("{NODES}{EDGES}{VALUES}"), &payments);
    let data = dir.path().join("data");
    let imported = import_of(dir.path(), None).unwrap();
    imported.write(&data).unwrap();
    let all = by_ends(relation(&imported.dataset, "pays"), &imported.dataset.edge_columns("pays").unwrap().unwrap());
    // Some of the payments, and one of a new kind: other medians, same values.
    let is_kept =
        |payment: &&Payment| payment.0 % 3 == 1 && payment.2.is_none_or(|amount| amount > 20.0 || payment.1 > 3);
    let mut some: Vec<Payment> = payments.iter().filter(is_kept).cloned().collect();
    let count = |of: &[Payment], ends: (u32, u32)| {
        of.iter().filter(|payment| (payment.0 as u32, payment.1 as u32) == ends).count()
    };
    some.push(Payment(0, 59, None, None, "barter", 3));
    fs::write(dir.path().join("payments.csv"), table(&some)).unwrap();
    let later = import_of(dir.path(), Some(data.clone())).unwrap();
    let found = by_ends(relation(&later.dataset, "pays"), &later.dataset.edge_columns("pays").unwrap().unwrap());
    let mut compared = 0;
    for (ends, rows) in found.iter().filter(|(ends, _)| count(&some, **ends) == count(&payments, **ends)) {
        assert_eq!(rows, &all[ends]);
        compared += 1;
    }
    assert!(compared > 20 && some.len() < payments.len(), "{compared} compared");
    assert!(found[&(0, 59)][0][4..].iter().any(|value| *value != 0.0), "a new category has a direction, too");
    assert!(later.summary.to_string().contains("have a category of `edges[pays].kind`"), "{}", later.summary);
    let refused = |values: &str| {
        fs::write(dir.path().join("graph.toml"), format!("{NODES}{EDGES}{values}")).unwrap();
        import_of(dir.path(), Some(data.clone())).unwrap_err().to_string()
    };
    let order = refused("values = { online = \"boolean\", amount = \"numeric\", kind = \"categorical\" }\n");
    assert!(order.contains("edges[pays].values") && order.contains("the order amount, online, kind"), "{order}");
    let kind = refused(
        "values = { amount = { kind = \"numeric\", log = true }, online = \"boolean\", kind = \"categorical\" }\n",
    );
    assert!(kind.contains("edges[pays].values.amount.log"), "{kind}");
    let none = refused("");
    assert!(none.contains("edges[pays].values") && none.contains("nothing"), "{none}");
}

#[test]
fn parts_of_a_graph_keep_the_values_of_their_edges() {
    let dir = tables(&format!("{NODES}{EDGES}{VALUES}"), &payments());
    let mut dataset = import_of(dir.path(), None).unwrap().dataset;
    dataset.load_edge_values().unwrap();
    let of = |graph: &graphsieve::graph::HeteroGraph, name: &str| {
        let relation = graph.relations().iter().find(|relation| relation.name == name).unwrap();
        by_ends(relation, relation.values.as_ref().unwrap())
    };
    let keep: Vec<bool> = (0..dataset.graph.num_nodes()).map(|node| node % 3 != 1).collect();
    let subset = dataset.subset(&keep);
    let cut = dataset.graph.without_pairs(|a, b| (a + b) % 4 == 0);
    for name in ["pays", "pays_T"] {
        let whole = of(&dataset.graph, name);
        let named = |(src, dst): (u32, u32)| (subset.nodes[src as usize], subset.nodes[dst as usize]);
        let part: BTreeMap<_, _> =
            of(&subset.dataset.graph, name).into_iter().map(|(ends, rows)| (named(ends), rows)).collect();
        let kept = |ends: &(u32, u32)| keep[ends.0 as usize] && keep[ends.1 as usize];
        let expected: BTreeMap<_, _> = whole.clone().into_iter().filter(|(ends, _)| kept(ends)).collect();
        assert!(part == expected && part.len() < whole.len() && !part.is_empty(), "{name}");
        let left: BTreeMap<_, _> =
            whole.into_iter().filter(|((src, dst), _)| src == dst || (src + dst) % 4 != 0).collect();
        assert!(of(&cut, name) == left, "{name}");
    }
}

#[test]
fn a_list_names_numbers() {
    let dir = tables(&format!("{NODES}{EDGES}values = [\"amount\"]\n"), &payments());
    let listed = import_of(dir.path(), None).unwrap().dataset.edge_columns("pays").unwrap();
    fs::write(dir.path().join("graph.toml"), format!("{NODES}{EDGES}values = {{ amount = \"numeric\" }}\n")).unwrap();
    let named = import_of(dir.path(), None).unwrap().dataset;
    assert_eq!(named.value_names("pays"), &COLUMNS[..2]);
    assert_eq!(named.edge_columns("pays").unwrap(), listed);
}

#[test]
fn bad_values_are_refused_by_file_line_and_column() {
    let sandbox = Sandbox::new();
    sandbox.write("accounts.csv", accounts());
    let text = table(&payments());
    sandbox.write("payments.csv", &text);
    let describe = |values: &str| sandbox.write("graph.toml", format!("{NODES}{EDGES}{values}"));
    let import = ["import", "tables", "graph.toml", "--out", "data"];
    describe("values = [\"fee\"]\n");
    sandbox.refuses(import, 1, &["payments.csv", "`fee`"]);
    describe("values = { amount = \"numerc\" }\n");
    sandbox.refuses(import, 2, &["graph.toml:", "did you mean `numeric`?"]);
    describe("values = { amount = \"numeric\", kind = { kind = \"categorical\", width = 15 } }\n");
    sandbox.refuses(
        import,
        2,
        &["edges.values of `pays`", "17: amount 2, kind 15", "at most 16 columns", "give a category fewer"],
    );
    describe("values = [\"amount\", \"amount\"]\n");
    sandbox.refuses(import, 2, &["edges.values.amount", "every column once"]);
    describe("values = [\"kind\"]\n");
    sandbox.refuses(import, 1, &["payments.csv: line 2, column `kind`", "a number", "card"]);
    describe("values = { day = { kind = \"timestamp\", format = \"%Q\" } }\n");
    sandbox.refuses(import, 2, &["day.format"]);
    assert!(!sandbox.path("data").exists());

    describe(VALUES);
    sandbox.succeeds(import);
    let said = sandbox.succeeds(["info", "--data", "data"]);
    assert!(said.stdout.contains(&format!("values of the edges of pays: {}", COLUMNS.join(", "))), "{}", said.stdout);
    for format in ["csv", "parquet"] {
        sandbox.succeeds(["export", "tables", "data", "--out", format, "--format", format]);
        sandbox.succeeds(["import", "tables", &format!("{format}/graph.toml"), "--out", &format!("of-{format}")]);
    }
    let table = String::from_utf8(sandbox.read("csv/edges_pays.csv")).unwrap();
    assert!(table.starts_with("src,dst,value_0,value_1,value_2,value_3,value_4,"), "{table}");
    let description = String::from_utf8(sandbox.read("csv/graph.toml")).unwrap();
    assert!(description.contains("# value_1: \"amount_missing\", as models read it\n"), "{description}");

    let edges = sandbox.read("data/pays_col_idx.bin").len() / 4;
    let export = ["export", "tables", "data", "--out", "out"];
    sandbox.edit("data/pays_values.bin", |bytes| bytes[8..12].copy_from_slice(&f32::NAN.to_le_bytes()));
    sandbox.refuses(export, 1, &["pays_values.bin: content: expected what was written", "SHA256SUMS"]);
    fs::remove_file(sandbox.path("data/SHA256SUMS")).unwrap();
    sandbox.refuses(export, 1, &["pays_values.bin: entry 0 of `pays`, column `online`", "a finite number", "NaN"]);
    sandbox.edit("data/pays_values.bin", |bytes| bytes.truncate(32));
    let length = format!("file length: expected {} bytes: {edges} edges x 32 bytes, found 32 bytes", edges * 32);
    sandbox.refuses(export, 1, &["pays_values.bin", &length]);
    let manifest = String::from_utf8(sandbox.read("data/graph.toml")).unwrap();
    let without = |key: &str| {
        let kept = manifest.lines().filter(|line| !line.starts_with(&format!("{key} =")));
        sandbox.write("data/graph.toml", kept.map(|line| format!("{line}\n")).collect::<String>());
    };
    without("values");
    sandbox.refuses(["info", "--data", "data"], 1, &["`pays`, values", "the file of the columns"]);
    sandbox.write("data/graph.toml", manifest.replace("\"online\"", "\"amount\""));
    sandbox.refuses(["info", "--data", "data"], 1, &["columns of values of the edges of `pays`", "`amount` twice"]);
}

/// Checks that every edge of a block has its own values: the source's number, which `x` has too, and the destination's,
/// the other way round in the generated reverse. `x` are the rows before the layer.
fn check_block(block: &Block<Flex>, x: &Tensor<Flex, 2>) {
    let rows = block.kept[0].select(x.clone());
    for edges in &block.edges {
        let values = edges.values.as_ref().unwrap().tensor().clone();
        let message = |message| gspmm(&edges.csr, message, Reduce::Sum, Strategy::Auto);
        let sums = message(Message::CopyE(values));
        let degrees = message(Message::CopyU(x.ones_like()));
        let (src, dst) = (message(Message::CopyU(x.clone())), rows.clone() * degrees);
        let expected = if edges.relation == 0 { [src, dst] } else { [dst, src] };
        assert_eq!(to_host(sums), to_host(Tensor::cat(expected.to_vec(), 1)));
    }
    assert_eq!(block.edges.len(), 2);
}

#[test]
fn an_edge_keeps_its_values_in_a_whole_graph_and_in_a_sampled_batch() {
    let dir = tables(&format!("{NODES}{EDGES}time = \"day\"\n"), &payments());
    let mut graph = import_of(dir.path(), None).unwrap().dataset.graph;
    let forward = graph.relations()[0].forward.clone();
    let ends = (0..forward.num_edges()).map(|edge| forward.edge(edge));
    let values = ends.flat_map(|(dst, src)| [src as f32, dst as f32]).collect();
    graph.set_edge_values("pays", Arc::new(EdgeMatrix::new(values, 2)));
    graph.mirror_edge_values();
    let nodes = graph.num_nodes();
    let features = Features::from_f32((0..nodes).map(|node| node as f32).collect(), nodes, 1);
    let whole = DeviceGraph::<Flex>::upload(&graph, &FlexDevice).unwrap().whole();
    let x = upload_features(graph.node_types(), &features, DType::F32, &FlexDevice).unwrap();
    check_block(&whole, &x[0]);
    let graph = Arc::new(graph);
    for fanouts in [[Fanout::All, Fanout::All], [Fanout::Most(3), Fanout::Most(2)]] {
        let sampler = NeighbourSampler::new(graph.clone(), SamplerConfig::new(&fanouts, 2)).unwrap();
        assert!(undrawable::<Flex>(&sampler, &FlexDevice).is_some());
        let store = FeatureStore::<Flex>::new(features.clone(), &graph, &FlexDevice).unwrap();
        let seeds = |number: u64| vec![vec![number as u32, 30 + number as u32, 7]];
        let jobs = (0..5).map(move |number| Job { number, seeds: seeds(number), payload: () });
        for batch in Loader::new(jobs, sampler, store, LoaderOptions::default()).unwrap() {
            let batch = batch.unwrap();
            let mut x = batch.x[0].clone();
            for block in &batch.blocks {
                check_block(block, &x);
                x = block.kept[0].select(x);
            }
        }
    }
}

/// A layer of all nodes by the formula, in f64: `h` and the result are `[nodes][channels]`.
fn layer_of(
    spec: &AttentionSpec,
    tensors: &BTreeMap<String, HostTensor>,
    graph: &HeteroGraph,
    layer: usize,
    h: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let matrix = |name: String| {
        let HostTensor { shape, values } = &tensors[&name];
        let width = shape[1];
        values.chunks(width).map(|row| row.iter().map(|&w| f64::from(w)).collect()).collect::<Vec<Vec<f64>>>()
    };
    let vector = |name: String| tensors[&name].values.iter().map(|&a| f64::from(a)).collect::<Vec<f64>>();
    let times = |w: &[Vec<f64>], x: &[f64]| -> Vec<f64> {
        w.iter().map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    };
    let (w, a) = (matrix(format!("gat{layer}.W_pays.weight")), vector(format!("gat{layer}.a_pays")));
    let (width, of_head) = (w.len(), w.len() / spec.heads);
    // A residual connection, and what a node has of itself.
    let is_added = spec.connections.residual && h[0].len() == width;
    let own = spec.own.iter().flatten().next().map(|name| matrix(format!("gat{layer}.W_self_{name}.weight")));
    let of_itself = |h: &Vec<f64>| -> Vec<f64> {
        let own = own.as_ref().map_or_else(|| vec![0.0; width], |own| times(own, h));
        own.iter().enumerate().map(|(c, own)| own + if is_added { h[c] } else { 0.0 }).collect()
    };
    let mut result: Vec<Vec<f64>> = h.iter().map(of_itself).collect();
    for relation in graph.relations() {
        let name = &relation.name;
        let w_edge = matrix(format!("gat{layer}.W_edge_{name}.weight"));
        let a_edge = vector(format!("gat{layer}.a_edge_{name}"));
        let values = relation.values.as_ref().unwrap();
        for (i, result) in result.iter_mut().enumerate() {
            let messages: Vec<[Vec<f64>; 2]> = relation
                .forward
                .entries(i)
                .zip(relation.forward.row(i))
                .map(|(entry, &j)| {
                    let e: Vec<f64> = values.row(entry).iter().map(|&e| f64::from(e)).collect();
                    [times(&w, &h[j as usize]), times(&w_edge, &e)]
                })
                .collect();
            let at_destination = times(&w, &h[i]);
            for head in 0..spec.heads {
                let of = head * of_head..(head + 1) * of_head;
                let logit = |[source, edge]: &[Vec<f64>; 2]| {
                    let parts =
                        of.clone().map(|c| a[c] * at_destination[c] + a[width + c] * source[c] + a_edge[c] * edge[c]);
                    let sum = parts.sum::<f64>();
                    if sum > 0.0 { sum } else { f64::from(spec.negative_slope) * sum }
                };
                let total: f64 = messages.iter().map(|message| logit(message).exp()).sum();
                for message in &messages {
                    let share = logit(message).exp() / total;
                    of.clone().for_each(|c| result[c] += share * (message[0][c] + message[1][c]));
                }
            }
        }
    }
    let elu = |z: f64| if z > 0.0 { z } else { z.exp_m1() };
    result.into_iter().map(|row| row.into_iter().map(elu).collect()).collect()
}

#[test]
fn attention_over_values_is_that_of_a_dense_loop() {
    let dir = tables(&format!("{NODES}{EDGES}{VALUES}time = \"day\"\n"), &payments());
    let mut dataset = import_of(dir.path(), None).unwrap().dataset;
    dataset.load_edge_values().unwrap();
    let graph = &dataset.graph;
    let nodes = graph.num_nodes();
    let x: Vec<f32> = (0..nodes * 5).map(|k| (k * 7919 % 103) as f32 / 51.0 - 1.0).collect();
    let features = Features::from_f32(x.clone(), nodes, 5);
    let on_device = DeviceGraph::<Flex>::upload(graph, &FlexDevice).unwrap();
    let input = upload_features(graph.node_types(), &features, DType::F32, &FlexDevice).unwrap();
    // One head projects last, more heads project first; 20 inputs are projected first by one head, too.
    // Residual connections in both layers, in the second one alone, and beside transforms of the nodes themselves.
    let account = || vec![Some("account".to_owned())];
    for (heads, [hidden, output], residual, own) in [
        (1, [8, 4], false, Vec::new()),
        (1, [2, 4], false, Vec::new()),
        (2, [8, 4], false, Vec::new()),
        (1, [5, 5], true, Vec::new()),
        (2, [8, 8], true, Vec::new()),
        (1, [5, 5], true, account()),
    ] {
        let edges = edge_inputs(graph, None);
        assert!(edges.iter().flatten().map(|input| input.width).eq([8, 8]));
        let spec = AttentionSpec {
            own,
            edges,
            connections: Connections { residual, ..Connections::default() },
            ..AttentionSpec::new(["pays"], 5, [hidden, output], heads)
        };
        let model = TripleStreamGat::<Flex>::new(&spec, &mut Parameters::from_seed(3, &FlexDevice)).unwrap();
        let tensors = model.export(&spec).0;
        assert_eq!(tensors["gat1.a_edge_pays_T"].shape, [hidden]);
        let h: Vec<Vec<f64>> = x.chunks(5).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
        let want = layer_of(&spec, &tensors, graph, 2, &layer_of(&spec, &tensors, graph, 1, &h));
        let got = model.embed(&on_device, &ReceptiveField::all(&on_device), &input, Pass::default());
        for (got, want) in to_host(got[0].clone()).iter().zip(want.iter().flatten()) {
            assert!((f64::from(*got) - want).abs() < 1e-5, "{heads} heads: {got} for {want}");
        }
        // What is read from a checkpoint is the same model; without values the others begin as they did.
        let file = Path::new("checkpoint");
        let again = TripleStreamGat::<Flex>::new(&spec, &mut Parameters::from_tensors(&tensors, file, &FlexDevice));
        assert_eq!(again.unwrap().export(&spec).0, tensors);
        let plain = AttentionSpec { edges: Vec::new(), ..spec.clone() };
        let model = TripleStreamGat::<Flex>::new(&plain, &mut Parameters::from_seed(3, &FlexDevice)).unwrap();
        let plain_tensors = model.export(&plain).0;
        assert!(plain_tensors.iter().all(|(name, tensor)| tensors[name] == *tensor));
        assert_eq!(plain_tensors.len() + 8, tensors.len());
        // Data without the values, or with others, are refused.
        let without = import_of(dir.path(), None).unwrap().dataset;
        let error = for_graph(&spec, &without.graph, file).unwrap_err().to_string();
        assert!(error.contains("values of edges") && error.contains("`pays` 8, `pays_T` 8"), "{error}");
        assert!(for_graph(&plain, graph, file).is_err() && for_graph(&spec, graph, file).unwrap() == spec);
    }
}

/// Accounts that are told by the amounts that they are paid alone, each as often as any other.
fn told_by_amounts(sandbox: &Sandbox) {
    let accounts = 240;
    let is_fraud = |account: usize| account % 4 == 1;
    let mut nodes = String::from("id,fraud\n");
    let mut edges = String::from("from,to,amount\n");
    for account in 0..accounts {
        writeln!(nodes, "a{account},{}", u8::from(is_fraud(account))).unwrap();
        for at in 1..=6 {
            let amount = (account * 37 + at * 11) % 20 + if is_fraud(account) { 30 } else { 0 };
            writeln!(edges, "a{},a{account},{amount}", (account + at * at * 7) % accounts).unwrap();
        }
    }
    sandbox.write("accounts.csv", nodes);
    sandbox.write("payments.csv", edges);
    sandbox.write("graph.toml", format!("{NODES}{EDGES}values = [\"amount\"]\n"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
}

#[test]
fn a_training_reads_values_and_its_run_scores_and_explains_with_them() {
    let sandbox = Sandbox::new();
    told_by_amounts(&sandbox);
    let config = "task = \"stage2\"\nname = \"values\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 8\nout = 8\nedge_values = true\n\
                  [train]\nepochs = 60\nlearning_rate = 1e-2\n[drop_edge]\nrate = 0.0\n[loss]\n\
                  samples_per_relation = 50\n[output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("stage2.toml", config);
    let trained = |dir: &str, more: &[&str]| {
        let dir = format!("output.dir={dir}");
        let train = ["--quiet", "train", "stage2.toml", "--device", "cpu", "--set", &dir];
        let said = sandbox.succeeds([&train[1..], more].concat()).stderr;
        let is_unread = more.contains(&"model.edge_values=false");
        assert_eq!(said.contains("model.edge_values = true alone"), is_unread, "{said}");
        let run = sandbox.only_run(&dir[11..]);
        let evaluation = sandbox.read(&format!("{run}/evaluation.json"));
        let evaluation: serde_json::Value = serde_json::from_slice(&evaluation).unwrap();
        (run, evaluation["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap())
    };
    let (run, with) = trained("with", &[]);
    let (unread, without) = trained("without", &["--set", "model.edge_values=false"]);
    let (_, sampled) = trained("sampled", &["--set", "loader.mode=sampled", "--set", "loader.fanouts=[0, 0]"]);
    let all = format!("{with} with values, {sampled} in batches, {without} without");
    assert!(with > 0.95 && sampled > 0.95 && without < 0.8, "{all}");

    // A training goes on with these weights: a step of next to no length leaves them where they were.
    let still =
        ["--set", "train.epochs=2", "--set", "train.learning_rate=1e-30", "--set", "train.learning_rate_min=1e-30"];
    let (same, _) = trained("same", &[&["--from", &run], &still[..]].concat());
    let scores = |run: &str| sandbox.read(&format!("{run}/anomaly_scores_stage2.npy"));
    assert!(scores(&same) == scores(&run));
    let other = ["train", "stage2.toml", "--device", "cpu", "--from", &run, "--set", "model.edge_values=false"];
    sandbox.refuses(other, 2, &["[model]: expected", "best.bpk", "train with the [model] of that run"]);

    // Scores of the run are those of its training, and what explains them adds up to them.
    sandbox.succeeds(["--quiet", "score", &run, "--out", "s.npy", "--device", "cpu"]);
    assert!(sandbox.read("s.npy") == sandbox.read(&format!("{run}/anomaly_scores_stage2.npy")));
    let explain = ["--quiet", "explain", &run, "--node", "account:a1", "--format", "json", "--device", "cpu"];
    let found: Explanation = serde_json::from_str(&sandbox.succeeds(explain).stdout).unwrap();
    let sums = [
        found.own + found.rest + found.neighbours.iter().map(|part| part.contribution).sum::<f64>(),
        found.columns.iter().map(|part| part.contribution).sum(),
        found.blocks.iter().map(|part| part.contribution).sum(),
    ];
    assert!(sums.iter().all(|sum| (found.base + sum - found.sum).abs() < 1e-9), "{sums:?} for {}", found.sum);
    assert!((1.0 / (1.0 + (-found.sum).exp()) - f64::from(found.score)).abs() < 1e-5);
    let amount = found.columns.iter().find(|part| part.column == "pays: amount").unwrap();
    assert!(amount.block == "values of edges" && amount.contribution > 0.1, "{amount:?}");
    // Values that have moved are named, and those of a training that read none are not looked at.
    let payments = String::from_utf8(sandbox.read("payments.csv")).unwrap();
    let larger = payments.lines().map(|line| match line.rsplit_once(',') {
        Some((ends, amount)) => {
            format!("{ends},{}\n", amount.parse::<u32>().map_or(amount.into(), |n| (n + 40).to_string()))
        }
        None => unreachable!("three columns"),
    });
    sandbox.write("payments.csv", larger.collect::<String>());
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", &run, "--out", "larger"]);
    let said = |run: &str| sandbox.succeeds(["score", run, "--data", "larger", "--device", "cpu"]).stderr;
    let moved = "warning: `amount` of pays edges has moved since the training";
    assert!(said(&run).contains(moved) && !said(&unread).contains(moved), "{}", said(&run));
    assert!(!said(&run).contains("pays_T edges"), "a reverse has the same values");
    // Data whose edges have no values are no data of this model.
    sandbox.write("graph.toml", format!("{NODES}{EDGES}"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "plain"]);
    let plain = ["score", &run, "--data", "plain", "--out", "plain.csv", "--device", "cpu"];
    sandbox.refuses(plain, 1, &["values of edges by relation", "found `pays` 2, `pays_T` 2"]);
}

#[test]
fn a_classification_reads_values_and_its_run_scores_and_explains_with_them() {
    let sandbox = Sandbox::new();
    told_by_amounts(&sandbox);
    let config = "task = \"classify\"\nname = \"values\"\n[data]\npath = \"data\"\nrow_normalise = false\n[model]\n\
                  layer = \"gat\"\nhidden = 8\nheads = 2\nout_heads = 2\ndropout = 0.0\nattention_dropout = 0.0\n\
                  edge_values = true\n[train]\nepochs = 60\nlearning_rate = 2e-2\nbest = \"average_precision\"\n\
                  [output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("classify.toml", config);
    let trained = |dir: &str, more: &[&str]| {
        let dir = format!("output.dir={dir}");
        let train = ["train", "classify.toml", "--device", "cpu", "--set", &dir];
        let said = sandbox.succeeds([&train[..], more].concat()).stderr;
        assert_eq!(
            said.contains("model.edge_values = true alone"),
            more.contains(&"model.edge_values=false"),
            "{said}"
        );
        let run = sandbox.only_run(&dir[11..]);
        let evaluation = sandbox.read(&format!("{run}/evaluation.json"));
        let evaluation: serde_json::Value = serde_json::from_slice(&evaluation).unwrap();
        (run, evaluation["test_roc_auc"].as_f64().unwrap())
    };
    let (run, with) = trained("with", &[]);
    let (_, without) = trained("without", &["--set", "model.edge_values=false"]);
    let (_, sampled) = trained("sampled", &["--set", "loader.mode=sampled", "--set", "loader.fanouts=[0, 0]"]);
    let all = format!("{with} with values, {sampled} in batches, {without} without");
    assert!(with > 0.95 && sampled > 0.95 && without < 0.8, "{all}");

    // Another import of the same tables has the scores of the training, and what explains them adds up to them.
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", &run, "--out", "again"]);
    sandbox.succeeds(["--quiet", "score", &run, "--data", "again", "--out", "s.npy", "--device", "cpu"]);
    assert!(sandbox.read("s.npy") == sandbox.read(&format!("{run}/probabilities.npy")));
    let explain = ["--quiet", "explain", &run, "--node", "account:a1", "--format", "json", "--device", "cpu"];
    let found: Explanation = serde_json::from_str(&sandbox.succeeds(explain).stdout).unwrap();
    let sum: f64 = found.columns.iter().map(|part| part.contribution).sum();
    assert!((found.base + sum - found.sum).abs() < 1e-9, "{sum} for {}", found.sum);
    let amount = found.columns.iter().find(|part| part.column == "pays: amount").unwrap();
    assert!(amount.block == "values of edges" && amount.contribution > 0.1, "{amount:?}");
    // Data whose edges have no values are no data of this model.
    sandbox.write("graph.toml", format!("{NODES}{EDGES}"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "plain"]);
    let plain = ["score", &run, "--data", "plain", "--out", "plain.csv", "--device", "cpu"];
    sandbox.refuses(plain, 1, &["expected the 2 of the training", "values amount amount_missing)"]);
}

#[test]
fn trees_read_values_of_edges_and_their_run_scores_and_explains_with_them() {
    let sandbox = Sandbox::new();
    told_by_amounts(&sandbox);
    let config = "task = \"stage3\"\n[data]\npath = \"data\"\n[features]\nedge_values = true\n[model]\n\
                  kind = \"booster\"\ntrees = 30\nmin_data_in_leaf = 5\n\
                  monotone = { \"pays.edge_max.amount\" = 1 }\n[output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("trees.toml", config);
    sandbox.succeeds(["--quiet", "train", "trees.toml", "--device", "cpu"]);
    let run = sandbox.only_run("runs");
    let evaluation = sandbox.read(&format!("{run}/evaluation.json"));
    let evaluation: serde_json::Value = serde_json::from_slice(&evaluation).unwrap();
    let area = evaluation["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap();
    let gain = evaluation["blocks"].as_array().unwrap().iter().find(|of| of["block"] == "edges").unwrap();
    assert!(area > 0.95 && gain["share"].as_f64().unwrap() > 0.5, "{evaluation}");

    // Another import of the same tables has the scores of the training.
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", &run, "--out", "again"]);
    sandbox.succeeds(["--quiet", "score", &run, "--data", "again", "--out", "s.npy", "--device", "cpu"]);
    assert!(sandbox.read("s.npy") == sandbox.read(&format!("{run}/anomaly_scores_stage3.npy")));
    let explain = ["--quiet", "explain", &run, "--node", "account:a1", "--format", "json", "--device", "cpu"];
    let found: Explanation = serde_json::from_str(&sandbox.succeeds(explain).stdout).unwrap();
    let of_edges = found.columns.iter().filter(|part| part.block == "edges");
    assert!(of_edges.clone().any(|part| part.column == "pays.edge_mean.amount"));
    assert!(of_edges.map(|part| part.contribution).sum::<f64>() > 0.1, "{:?}", found.columns);

    sandbox.write("graph.toml", format!("{NODES}{EDGES}"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "plain"]);
    let plain = ["train", "trees.toml", "--device", "cpu", "--set", "data.path=plain"];
    sandbox.refuses(plain, 1, &["values of edges", "features.edge_values = true", "[[edges]]"]);
}

#[test]
fn a_tournament_tries_what_reads_values_where_edges_have_them() {
    let sandbox = Sandbox::new();
    told_by_amounts(&sandbox);
    let best = "[\"stage2-long\", \"stage2-values\"]\nprefer = \"best\"";
    sandbox.write("run.toml", auto::config(best, 0.2));
    sandbox.succeeds(auto::TRAIN);
    let found = auto::record(&sandbox, &sandbox.only_run("runs"));
    let value = |at: usize| {
        let candidate = &found["candidates"][at];
        candidate["rounds"].as_array().unwrap().last().unwrap()["value"].as_f64().unwrap()
    };
    assert!(value(1) > value(0) + 0.1 && found["model"]["name"] == "stage2-values", "{found}");
    sandbox.write("graph.toml", format!("{NODES}{EDGES}"));
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "plain"]);
    let refused = ["train", "run.toml", "--device", "cpu", "--set", "data.path=plain"];
    sandbox.refuses(refused, 2, &["auto.candidates", "stage2-values"]);
}
