//! Graphs: data directories file by file, arrays of NumPy, files of MATLAB.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use graphsieve::data::mat::{self, MatOptions};
use graphsieve::data::synth::{SynthConfig, generate};
use graphsieve::data::tables::{fit_of, fitted_times, looks_ahead, unknown_categories};
use graphsieve::graph::{Dataset, Manifest, read_embeddings};
use graphsieve::live::RowReader;
use graphsieve::run::evaluation::{read_anomaly_column, read_probabilities, read_scores};

use super::files::{directory, file, get, put};
use super::{packed, tables};

/// Digests of arrays: without them what is changed in these is read all the same.
const CHECKSUMS: &str = "SHA256SUMS";

fn remove_checksums(dir: &Path) {
    fs::remove_file(dir.join(CHECKSUMS)).expect("digests");
}

/// Writes the smallest marketplace.
fn market(dir: &Path) {
    whole_market(dir);
    remove_checksums(dir);
}

fn whole_market(dir: &Path) {
    let config = SynthConfig { users: 200, products: 200, sellers: 8, mean_reviews: 5.0, ..SynthConfig::default() };
    let made = generate(&config, &|_, _, _| {}).expect("a configuration in range");
    made.write(dir).expect("an empty directory");
}

/// Writes a small graph of events.
fn events(dir: &Path) {
    let raw = tempfile::tempdir().expect("a temporary directory");
    tables::imported(raw.path()).write(dir).expect("an empty directory");
    remove_checksums(dir);
}

/// A file of the marketplace.
pub fn of_market(name: &str) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    market(dir.path());
    vec![get(&dir.path().join(name))]
}

/// A file of the graph of events.
pub fn of_events(name: &str) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    events(dir.path());
    vec![get(&dir.path().join(name))]
}

/// Opens a data directory, and whatever a training or a server reads of it beside.
fn open(dir: &Path) -> bool {
    let said =
        [fit_of(dir).is_ok(), fitted_times(dir).is_ok(), looks_ahead(dir).is_ok(), unknown_categories(dir).is_ok()];
    let Ok(mut dataset) = Dataset::open(dir) else { return false };
    let has_values = dataset.load_edge_values().is_ok();
    // Not all data have them.
    let _ = (dataset.load_edge_weights("model.weights"), dataset.load_ages("model.ages"));
    RowReader::open(dir, dir, &dataset).is_ok() && has_values && !said.contains(&false)
}

fn of_directory(reader: &'static str, make: fn(&Path), name: &str, bytes: &[u8]) -> bool {
    let dir = directory(reader, make);
    put(&dir.join(name), bytes);
    open(&dir)
}

pub fn graph_toml(bytes: &[u8]) -> bool {
    of_directory("graph_toml", events, "graph.toml", bytes)
}

pub fn graph_toml_seeds() -> Vec<Vec<u8>> {
    of_events("graph.toml")
}

pub fn graph_json(bytes: &[u8]) -> bool {
    let dir = directory("graph_json", |dir| {
        events(dir);
        fs::remove_file(dir.join("graph.toml")).expect("a manifest");
    });
    put(&dir.join("graph.json"), bytes);
    open(&dir)
}

pub fn graph_json_seeds() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    events(dir.path());
    let (manifest, _) = Manifest::read(dir.path()).expect("a manifest");
    vec![serde_json::to_vec(&manifest).expect("plain data")]
}

pub fn node_counts(bytes: &[u8]) -> bool {
    of_directory("node_counts", market, "node_counts.json", bytes)
}

pub fn market_ids(bytes: &[u8]) -> bool {
    of_directory("market_ids", market, "node_id_mappings.json", bytes)
}

pub fn market_labels(bytes: &[u8]) -> bool {
    of_directory("market_labels", market, "labels.npy", bytes)
}

pub fn row_ptr(bytes: &[u8]) -> bool {
    of_directory("row_ptr", market, "epu_row_ptr.bin", bytes)
}

pub fn col_idx(bytes: &[u8]) -> bool {
    of_directory("col_idx", market, "eps_col_idx.bin", bytes)
}

pub fn row_start(bytes: &[u8]) -> bool {
    of_directory("row_start", events, "earlier_paid_with_row_start.bin", bytes)
}

pub fn checksums(bytes: &[u8]) -> bool {
    of_directory("checksums", whole_market, CHECKSUMS, bytes)
}

pub fn checksums_seeds() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    whole_market(dir.path());
    vec![get(&dir.path().join(CHECKSUMS))]
}

pub fn import_json(bytes: &[u8]) -> bool {
    of_directory("import_json", events, "import.json", bytes)
}

pub fn import_bin(bytes: &[u8]) -> bool {
    of_directory("import_bin", events, "import.bin", bytes)
}

/// Files of the graph of events, by name.
fn listed(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    paths
}

/// Any file of the graph of events: the first byte says which, the others are what it holds.
pub fn data_file(bytes: &[u8]) -> bool {
    static NAMES: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let Some((&which, content)) = bytes.split_first() else { return false };
    let dir = directory("data_file", events);
    let names =
        NAMES.get_or_init(|| listed(&dir).iter().map(|path| path.file_name().unwrap_or_default().into()).collect());
    let path = dir.join(&names[usize::from(which) % names.len()]);
    let whole = get(&path);
    put(&path, content);
    let is_taken = open(&dir);
    put(&path, &whole);
    is_taken
}

pub fn data_file_seeds() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    events(dir.path());
    listed(dir.path()).iter().enumerate().map(|(at, path)| [vec![at as u8], get(path)].concat()).collect()
}

/// Bytes of a `.npy` file.
fn array(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:<117}\n");
    [b"\x93NUMPY\x01\x00v\x00", header.as_bytes(), data].concat()
}

pub fn npy(bytes: &[u8]) -> bool {
    let path = file("npy", "x.npy", bytes);
    let taken = [
        read_embeddings(&path, None).is_ok(),
        read_scores(&path, 4).is_ok(),
        read_anomaly_column(&path, 2).is_ok(),
        read_probabilities(&path, 2, 2).is_ok(),
    ];
    taken.contains(&true)
}

pub fn npy_seeds() -> Vec<Vec<u8>> {
    let floats: Vec<u8> = [0.5f32, 1.0, -2.0, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let version_2 = {
        let mut bytes = array("<f4", "(2, 2)", &floats);
        bytes[6] = 2;
        bytes.splice(8..10, 118u32.to_le_bytes());
        bytes
    };
    vec![array("<f4", "(2, 2)", &floats), array("<f4", "(4,)", &floats), array("<f2", "(4, 2)", &floats), version_2]
}

/// A graph of four nodes in arrays.
pub fn npz_arrays() -> [(&'static str, Vec<u8>); 6] {
    let words = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let features: Vec<u8> = (0..8u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    [
        ("node_features.npy", array("<f4", "(4, 2)", &features)),
        ("node_labels.npy", array("<i8", "(4,)", &words(&[0, 1, -1, 0]))),
        ("edges.npy", array("<i8", "(3, 2)", &words(&[0, 1, 1, 2, 2, 2]))),
        ("train_mask.npy", array("|b1", "(4,)", &[1, 0, 0, 0])),
        ("val_mask.npy", array("|b1", "(4,)", &[0, 1, 0, 0])),
        ("test_mask.npy", array("|b1", "(4,)", &[0, 0, 0, 1])),
    ]
}

pub fn npz(bytes: &[u8]) -> bool {
    Dataset::open(&file("npz", "graph.npz", bytes)).is_ok()
}

/// One array in an archive of whole ones: the first byte says which.
pub fn npz_array(bytes: &[u8]) -> bool {
    let Some((&which, content)) = bytes.split_first() else { return false };
    let mut arrays = npz_arrays();
    // Masks may be absent.
    let arrays = if which < 128 { &mut arrays[..] } else { &mut arrays[..3] };
    let at = usize::from(which) % arrays.len();
    arrays[at].1 = content.to_vec();
    Dataset::open(&file("npz_array", "graph.npz", &packed::stored(arrays))).is_ok()
}

pub fn npz_array_seeds() -> Vec<Vec<u8>> {
    let of = |(at, (_, bytes)): (usize, (&str, Vec<u8>))| [vec![at as u8], bytes].concat();
    npz_arrays().into_iter().enumerate().map(of).collect()
}

pub fn mat(bytes: &[u8]) -> bool {
    mat::read(&MatOptions { path: file("mat", "graph.mat", bytes), ..MatOptions::default() }).is_ok()
}

/// A variable that is packed: its bytes are what is under test.
pub fn mat_packed(bytes: &[u8]) -> bool {
    let variables = mat_variables();
    let packed = packed::deflated(bytes);
    let packed = [&15u32.to_le_bytes()[..], &(packed.len() as u32).to_le_bytes(), &packed].concat();
    let path = file("mat_packed", "graph.mat", &mat_file(&[&variables[1..], &[packed]].concat()));
    mat::read(&MatOptions { path, ..MatOptions::default() }).is_ok()
}

pub fn mat_seeds() -> Vec<Vec<u8>> {
    let variables = mat_variables();
    vec![mat_file(&variables), mat_file(&variables[1..])]
}

pub fn mat_packed_seeds() -> Vec<Vec<u8>> {
    mat_variables()[..1].to_vec()
}

fn mat_file(variables: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"MATLAB 5.0 MAT-file".to_vec();
    bytes.resize(124, b' ');
    bytes.extend(b"\x00\x01IM");
    bytes.extend(variables.concat());
    bytes
}

/// A ring of three nodes, its features and its labels, as the format's elements.
fn mat_variables() -> Vec<Vec<u8>> {
    let element = |kind: u32, data: &[u8]| {
        let mut bytes = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let reals = |values: &[f64]| element(9, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    let variable = |class: u32, name: &str, shape: [u32; 2], values: &[u8]| {
        let head = [element(6, &words(&[class, 0])), element(5, &words(&shape)), element(1, name.as_bytes())].concat();
        element(14, &[&head, values].concat())
    };
    let sparse = |rows: &[u32], starts: &[u32], values: &[f64]| {
        [element(5, &words(rows)), element(5, &words(starts)), reals(values)].concat()
    };
    vec![
        variable(5, "Network", [3, 3], &sparse(&[1, 2, 0, 2, 0, 1], &[0, 2, 4, 6], &[1.0; 6])),
        variable(5, "homo", [3, 3], &sparse(&[1, 0], &[0, 1, 2, 2], &[1.0; 2])),
        variable(6, "features", [3, 2], &reals(&[0.5, 1.0, 2.0, -1.0, 0.0, 3.0])),
        variable(6, "label", [1, 3], &reals(&[0.0, 1.0, f64::NAN])),
    ]
}
