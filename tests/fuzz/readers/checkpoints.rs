//! Checkpoints of networks and of trees.

use std::path::Path;

use burn_flex::{Flex, FlexDevice};
use graphsieve::config::NeighbourhoodConfig;
use graphsieve::models::attention::EdgeInput;
use graphsieve::models::parameters::Parameters;
use graphsieve::models::tree_ensemble::{TreeCheckpoint, TreeEnsemble, TreeInputs};
use graphsieve::models::weights::TrainingState;
use graphsieve::models::{
    AttentionSpec, AutoEncoderSpec, ModelSpec, NodeClassifier, TripleStreamGae, TripleStreamGat, Weights,
};
use graphsieve::trees::{BinRule, Booster, BoosterParams, Dataset, Fit, Forest, ForestParams, Matrix};

use super::files::{directory, file, get};
use super::packed;

/// Reads a checkpoint and makes its model; whether it could be read.
fn read(path: &Path) -> bool {
    let Ok((Weights { spec, tensors, .. }, path)) = Weights::read(path) else { return false };
    let device = FlexDevice;
    let mut parameters = Parameters::<Flex>::from_tensors(&tensors, &path, &device);
    let made = match &spec {
        ModelSpec::AutoEncoder(spec) => TripleStreamGae::new(spec, &mut parameters).map(drop),
        ModelSpec::Attention(spec) => TripleStreamGat::new(spec, &mut parameters).map(drop),
        ModelSpec::NodeClassifier(spec) => NodeClassifier::new(spec, &mut parameters, &device).map(drop),
    };
    // A shape that does not fit the tensors is refused here.
    let _ = made;
    true
}

fn attention() -> AttentionSpec {
    AttentionSpec {
        own: vec![Some("n".into())],
        edges: vec![Some(EdgeInput { relation: "r".into(), width: 1, time: None })],
        ..AttentionSpec::new(["a"], 2, [2, 2], 1)
    }
}

/// Small models with the values that a training begins with.
fn weights() -> Vec<Weights> {
    let device = FlexDevice;
    let parameters = || Parameters::<Flex>::from_seed(1, &device);
    let attention = attention();
    let model = TripleStreamGat::new(&attention, &mut parameters()).expect("a seed has every parameter");
    let tensors = model.export(&attention).0;
    let training = Some(TrainingState { progress: "{\"epoch\":3}".into(), optimiser: vec![1, 2, 3] });
    let of_stage2 = Weights { spec: ModelSpec::Attention(attention), tensors, training };
    let spec = AutoEncoderSpec {
        streams: vec!["a".into()],
        node_types: vec!["n".into()],
        input: 2,
        hidden: 2,
        output: 1,
        causal: false,
        weighted: Vec::new(),
    };
    let model = TripleStreamGae::new(&spec, &mut parameters()).expect("a seed has every parameter");
    let tensors = model.export(&spec).0;
    vec![of_stage2, Weights { spec: ModelSpec::AutoEncoder(spec), tensors, training: None }]
}

pub fn bpk(bytes: &[u8]) -> bool {
    read(&file("bpk", "model.bpk", bytes))
}

pub fn bpk_seeds() -> Vec<Vec<u8>> {
    let path = directory("bpk", |_| {}).join("seed.bpk");
    let bytes = |weights: &Weights| weights.write_native(&path).map(|()| get(&path)).expect("a writable file");
    let whole: Vec<Vec<u8>> = weights().iter().map(bytes).collect();
    // Without the name of its checksum a changed file is one of an earlier version.
    let without = whole.iter().map(|bytes| replaced(bytes, b"graphsieve.sha256", b"graphsieve.sha255"));
    [whole.clone(), without.collect()].concat()
}

pub fn safetensors(bytes: &[u8]) -> bool {
    read(&file("safetensors", "model.safetensors", bytes))
}

pub fn safetensors_seeds() -> Vec<Vec<u8>> {
    let path = directory("safetensors", |_| {}).join("seed.safetensors");
    let bytes = |weights: &Weights| weights.write_safetensors(&path).map(|()| get(&path)).expect("a writable file");
    let whole: Vec<Vec<u8>> = weights().iter().map(bytes).collect();
    let without = whole.iter().map(|bytes| replaced(bytes, b"graphsieve.sha256", b"graphsieve.sha255"));
    // The shape of Stage 2 follows from the tensors.
    let bare = replaced(&whole[0], b"\"graphsieve\"", b"\"graphsievf\"");
    [whole.clone(), without.chain([bare]).collect()].concat()
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|part| part == from).expect("what is replaced");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

/// The shape of a model, in a checkpoint whose tensors fit another one.
pub fn model_shape(bytes: &[u8]) -> bool {
    let Ok(spec) = serde_json::from_slice::<ModelSpec>(bytes) else { return false };
    weights().into_iter().all(|weights| {
        let path = directory("model_shape", |_| {}).join("model.safetensors");
        Weights { spec: spec.clone(), ..weights }.write_safetensors(&path).expect("a writable file");
        read(&path)
    })
}

pub fn model_shape_seeds() -> Vec<Vec<u8>> {
    weights().iter().map(|weights| serde_json::to_vec(&weights.spec).expect("plain data")).collect()
}

pub fn pt(bytes: &[u8]) -> bool {
    read(&file("pt", "model.pt", bytes))
}

/// What is pickled in a checkpoint of PyTorch.
pub fn pickle(bytes: &[u8]) -> bool {
    read(&file("pickle", "model.pt", &archive(bytes)))
}

/// An archive as `torch.save` writes it.
pub fn archive(pickle: &[u8]) -> Vec<u8> {
    let values: Vec<u8> = (0..4u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    packed::stored(&[
        ("archive/data.pkl", pickle.to_vec()),
        ("archive/byteorder", b"little".to_vec()),
        ("archive/data/0", values),
        ("archive/version", b"3\n".to_vec()),
    ])
}

/// A state dict of the three tensors that tell the shape of a model, all of one storage.
pub fn pickled() -> Vec<u8> {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"\x80\x02ccollections\nOrderedDict\n)R(".to_vec();
    // Shape and strides.
    let matrix: &[u8] = b"K\x02K\x02\x86K\x02K\x01\x86";
    let tensors = [("gat1.W_a.weight", matrix), ("gat1.a_a", b"K\x04\x85K\x01\x85"), ("gat2.W_a.weight", matrix)];
    for (name, shape) in tensors {
        bytes.extend(text(name));
        bytes.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        bytes.extend([text("storage"), b"ctorch\nFloatStorage\n".to_vec(), text("0"), text("cpu")].concat());
        bytes.extend([b"K\x04tQK\x00", shape, b"\x89ccollections\nOrderedDict\n)RtR"].concat());
    }
    bytes.extend(b"u.");
    bytes
}

/// Trees on 24 rows of two columns, one of them with missing values.
fn fitted() -> (Booster, Forest) {
    let values: Vec<f32> =
        (0..24u8).flat_map(|at| [f32::from(at), if at % 5 == 0 { f32::NAN } else { f32::from(at % 7) }]).collect();
    let labels: Vec<f32> = (0..24u8).map(|at| f32::from(at % 3 == 0 || at > 18)).collect();
    let x = Matrix::f32(&values, 2).expect("two columns");
    let data = Dataset::new(&x, &BinRule::default()).expect("rows that fit");
    let mut params = BoosterParams { rounds: 3, ..BoosterParams::default() };
    params.grow.split.min_data_in_leaf = 2;
    let booster = Booster::fit(&data, Fit::labels(&labels), &params).expect("labels of both classes");
    let forest = Forest::fit(&data, &labels, None, &ForestParams { trees: 2, ..ForestParams::sklearn_like(2) });
    (booster, forest.expect("labels of both classes"))
}

fn inputs() -> TreeInputs {
    TreeInputs {
        neighbourhood: NeighbourhoodConfig::default(),
        embedding: false,
        reconstruction: false,
        stage2_score: false,
        stage2_embedding: false,
        label_share: false,
        folds: Vec::new(),
    }
}

/// What is read may predict, tell its importances and be written again.
fn used(ensemble: &TreeEnsemble) {
    let width = ensemble.columns().len().min(1 << 10);
    for value in [0.0, 1e30, f64::NAN] {
        let row = vec![value; width];
        let x = Matrix::f64(&row, width).expect("one row");
        let _ = (ensemble.predict(&x), ensemble.shap(&x));
    }
    let text = ensemble.to_lightgbm_text();
    assert!(!text.is_empty());
}

fn opened(path: &Path) -> bool {
    let booster = Booster::open(path).map(TreeEnsemble::Booster);
    let forest = Forest::open(path).map(TreeEnsemble::Forest);
    let checkpoint = TreeCheckpoint::read(path).map(|checkpoint| checkpoint.ensemble);
    let read = [booster, forest, checkpoint].map(|ensemble| ensemble.iter().map(used).count());
    read.iter().sum::<usize>() > 0
}

pub fn trees(bytes: &[u8]) -> bool {
    opened(&file("trees", "best.trees", bytes))
}

pub fn trees_seeds() -> Vec<Vec<u8>> {
    let (booster, forest) = fitted();
    let path = directory("trees", |_| {}).join("seed.trees");
    let checkpoint = TreeCheckpoint { inputs: inputs(), ensemble: TreeEnsemble::Booster(booster.clone()) };
    checkpoint.write(&path).expect("a writable file");
    vec![booster.to_bytes(), forest.to_bytes(), get(&path)]
}

/// Bytes of a file of trees before its frame.
const FRAME: usize = 12;

/// What is packed in a file of trees.
pub fn tree_columns(bytes: &[u8]) -> bool {
    let head = [&b"GSTREES\0"[..], &1u32.to_le_bytes()].concat();
    opened(&file("tree_columns", "best.trees", &[head, packed::zstd(bytes)].concat()))
}

pub fn tree_columns_seeds() -> Vec<Vec<u8>> {
    let unpacked = |bytes: &Vec<u8>| zstd::decode_all(&bytes[FRAME..]).expect("a frame that was just made");
    trees_seeds().iter().map(unpacked).collect()
}

pub fn tree_json(bytes: &[u8]) -> bool {
    opened(&file("tree_json", "best.json", bytes))
}

pub fn tree_json_seeds() -> Vec<Vec<u8>> {
    let (booster, forest) = fitted();
    let checkpoint = format!(
        r#"{{"kind":"forest","inputs":{},"trees":{}}}"#,
        serde_json::to_string(&inputs()).expect("plain data"),
        forest.to_json()
    );
    vec![booster.to_json().into(), forest.to_json().into(), checkpoint.into()]
}

pub fn lightgbm(bytes: &[u8]) -> bool {
    opened(&file("lightgbm", "model.txt", bytes))
}

pub fn lightgbm_seeds() -> Vec<Vec<u8>> {
    let (booster, forest) = fitted();
    vec![booster.to_lightgbm_text().into(), forest.to_lightgbm_text().into()]
}
