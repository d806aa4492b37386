//! Checkpoint files: the native format (Burnpack), safetensors, and PyTorch state dicts.
//!
//! A native checkpoint is one file: weights under their state-dict names, the shape of the model as JSON and, in a
//! run's `last` checkpoint, the optimiser and the position of the training.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use burn::module::ParamId;
use burn::tensor::{DType, TensorData};
use burn_store::pytorch::PytorchReader;
use burn_store::{BurnpackStore, BurnpackWriter, ModuleStore, TensorSnapshot};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use super::attention::{AttentionSpec, EdgeInput, edge_names};
use super::auto_encoder::AutoEncoderSpec;
use super::node_classifier::ClassifierSpec;
use super::parameters::HostTensor;
use super::pytorch::{self, Refused};
use crate::error::{Error, Result};
use crate::graph::digest::Digest;
use crate::graph::formats::atomic_write;

/// Extension of the native format.
pub const NATIVE_EXTENSION: &str = "bpk";
/// Names of the entries of a native checkpoint that are no weights.
const SPEC: &str = "graphsieve.spec";
const PROGRESS: &str = "graphsieve.progress";
const OPTIMISER: &str = "graphsieve.optimiser";
/// SHA-256 of everything else in a checkpoint: its name in a native one, and in the metadata of a safetensors file.
const SHA256: &str = "graphsieve.sha256";
/// Key of the model's shape in the metadata of a safetensors file.
const METADATA: &str = "graphsieve";

const HELP: &str = "give a checkpoint (.bpk, .safetensors, .pt) or the directory of a run";

/// Which model a checkpoint holds, and its shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum ModelSpec {
    /// Stage 1.
    AutoEncoder(AutoEncoderSpec),
    /// Stage 2.
    Attention(AttentionSpec),
    /// A node classifier.
    NodeClassifier(ClassifierSpec),
}

impl ModelSpec {
    /// How a person calls the model.
    pub fn name(&self) -> &'static str {
        match self {
            ModelSpec::AutoEncoder(_) => "a Stage-1 auto-encoder",
            ModelSpec::Attention(_) => "a Stage-2 attention network",
            ModelSpec::NodeClassifier(_) => "a node classifier",
        }
    }

    /// What another model has unlike this one: of this one, and of that.
    pub(crate) fn unlike(&self, other: &Self) -> [String; 2] {
        let both = [self, other].map(|spec| serde_json::to_value(spec).unwrap_or_default());
        let keys: BTreeSet<&String> =
            both.iter().filter_map(|spec| spec.as_object()).flat_map(|all| all.keys()).collect();
        let differ = keys.into_iter().filter(|key| both[0].get(*key) != both[1].get(*key)).collect::<Vec<_>>();
        both.each_ref().map(|spec| {
            let value = |key: &String| spec.get(key).map_or("nothing".into(), serde_json::Value::to_string);
            let told = differ.iter().map(|key| format!("{key} = {}", value(key)));
            told.collect::<Vec<_>>().join(", ")
        })
    }
}

/// What a training needs to go on besides the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingState {
    /// Position of the training, as JSON.
    pub progress: String,
    /// State of the optimiser, as its recorder wrote it.
    pub optimiser: Vec<u8>,
}

/// The content of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    pub spec: ModelSpec,
    pub tensors: BTreeMap<String, HostTensor>,
    /// Only in native checkpoints written to resume from.
    pub training: Option<TrainingState>,
}

impl Weights {
    /// Reads a checkpoint file, or the best checkpoint of a run directory.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, [`Error::Format`] when it is none of the three formats or damaged.
    pub fn read(path: &Path) -> Result<(Self, PathBuf)> {
        let file = if path.is_dir() {
            let best = path.join("checkpoint").join(format!("best.{NATIVE_EXTENSION}"));
            if !best.is_file() {
                return Err(Error::format(
                    path,
                    "checkpoint/best.bpk",
                    "the checkpoint of a run",
                    "no such file",
                    HELP,
                ));
            }
            best
        } else {
            path.to_path_buf()
        };
        // Before any reader: a clear answer for a missing file and for an empty one.
        let bytes = fs::read(&file).map_err(|source| Error::io(&file, "read", source))?;
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let weights = match extension {
            NATIVE_EXTENSION => read_native(&file, bytes),
            "safetensors" => read_safetensors(&file, &bytes),
            "pt" | "pth" | "bin" => read_pytorch(&file, &bytes),
            other => Err(Error::format(&file, "extension", ".bpk, .safetensors or .pt", format!("{other:?}"), HELP)),
        }?;
        Ok((weights, file))
    }

    /// Writes the native format, replacing the file atomically.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be written.
    pub fn write_native(&self, path: &Path) -> Result<()> {
        let sha256 = sha256(&spec_json(&self.spec), &self.tensors, self.training.as_ref());
        let mut snapshots: Vec<TensorSnapshot> = self
            .tensors
            .iter()
            .map(|(name, t)| snapshot(name, TensorData::new(t.values.clone(), t.shape.clone())))
            .collect();
        let mut bytes = |name: &str, content: &[u8]| {
            snapshots.push(snapshot(name, TensorData::new(content.to_vec(), [content.len()])));
        };
        bytes(SPEC, spec_json(&self.spec).as_bytes());
        if let Some(training) = &self.training {
            bytes(PROGRESS, training.progress.as_bytes());
            bytes(OPTIMISER, &training.optimiser);
        }
        bytes(SHA256, sha256.as_bytes());
        let packed = BurnpackWriter::new(snapshots)
            .to_bytes()
            .map_err(|e| Error::io(path, "pack", std::io::Error::other(e.to_string())))?;
        atomic_write(path, |file| file.write_all(&packed))
    }

    /// Writes a safetensors file with the names of a PyTorch state dict, replacing the file atomically.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be written.
    pub fn write_safetensors(&self, path: &Path) -> Result<()> {
        let failed = |e: safetensors::SafeTensorError| Error::io(path, "pack", std::io::Error::other(e.to_string()));
        let mut views = Vec::new();
        for (name, tensor) in &self.tensors {
            let bytes: &[u8] = bytemuck::cast_slice(&tensor.values);
            views.push((name.clone(), TensorView::new(Dtype::F32, tensor.shape.clone(), bytes).map_err(failed)?));
        }
        let spec = spec_json(&self.spec);
        let sha256 = sha256(&spec, &self.tensors, None);
        let metadata = [(METADATA, spec), (SHA256, sha256)];
        let metadata = BTreeMap::from(metadata.map(|(name, text)| (name.to_string(), text)));
        let ordered = serde_json::to_vec(&metadata).unwrap_or_else(|e| unreachable!("two texts: {e}"));
        let mut packed = safetensors::serialize(views, Some(metadata.into_iter().collect())).map_err(failed)?;
        // A `HashMap` has another order each time. The length of the header and their name stand before the entries.
        let metadata_at = size_of::<u64>() + r#"{"__metadata__":"#.len();
        packed[metadata_at..][..ordered.len()].copy_from_slice(&ordered);
        atomic_write(path, |file| file.write_all(&packed))
    }
}

/// SHA-256 of all that a checkpoint holds, however its file lays it out; `spec` as it stands there.
fn sha256(spec: &str, tensors: &BTreeMap<String, HostTensor>, training: Option<&TrainingState>) -> String {
    let mut digest = Digest::default();
    digest.text(spec).number(tensors.len() as u64);
    for (name, HostTensor { shape, values }) in tensors {
        digest.text(name).number(shape.len() as u64);
        for &length in shape {
            digest.number(length as u64);
        }
        digest.bytes(bytemuck::cast_slice(values));
    }
    if let Some(TrainingState { progress, optimiser }) = training {
        digest.text(progress).number(optimiser.len() as u64).bytes(optimiser);
    }
    digest.finish()
}

/// Refuses what is no longer what was `written`, as far as the file tells.
fn check_unchanged(path: &Path, written: Option<&str>, found: impl FnOnce() -> String) -> Result<()> {
    let Some(written) = written else {
        log::info!("{}: has no checksum: an earlier version or another program wrote it", path.display());
        return Ok(());
    };
    let found = found();
    if found == written {
        return Ok(());
    }
    let help = "the file was changed after it was written; restore it or train again";
    Err(Error::format(path, "SHA-256", format!("{written}, as the file says"), found, help))
}

fn spec_json(spec: &ModelSpec) -> String {
    serde_json::to_string(spec).unwrap_or_else(|e| unreachable!("a spec is plain data: {e}"))
}

fn snapshot(name: &str, data: TensorData) -> TensorSnapshot {
    TensorSnapshot::from_data(data, vec![name.to_string()], vec![], ParamId::from(0))
}

fn damaged(path: &Path, place: impl Into<String>, found: impl std::fmt::Display) -> Error {
    Error::format(path, place, "a readable checkpoint", found.to_string(), HELP)
}

fn read_native(path: &Path, bytes: Vec<u8>) -> Result<Weights> {
    let mut store = BurnpackStore::from_bytes(Some(burn::tensor::Bytes::from_bytes_vec(bytes)));
    let snapshots = store.get_all_snapshots().map_err(|e| damaged(path, "header", format!("{e:?}")))?;
    let mut tensors = BTreeMap::new();
    let mut texts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (name, snapshot) in snapshots {
        let data = snapshot.to_data().map_err(|e| damaged(path, name, e))?;
        if data.dtype == DType::U8 {
            texts.insert(name.clone(), data.bytes.to_vec());
        } else {
            tensors.insert(name.clone(), host_tensor(path, name, data)?);
        }
    }
    let spec = texts.remove(SPEC).ok_or_else(|| damaged(path, SPEC, "no such entry"))?;
    let spec = String::from_utf8(spec).map_err(|e| damaged(path, SPEC, e))?;
    let training = match (texts.remove(PROGRESS), texts.remove(OPTIMISER)) {
        (Some(progress), Some(optimiser)) => {
            let progress = String::from_utf8(progress).map_err(|e| damaged(path, PROGRESS, e))?;
            Some(TrainingState { progress, optimiser })
        }
        _ => None,
    };
    let written = texts.remove(SHA256).map(|sha256| String::from_utf8_lossy(&sha256).into_owned());
    check_unchanged(path, written.as_deref(), || sha256(&spec, &tensors, training.as_ref()))?;
    let spec = serde_json::from_str(&spec).map_err(|e| damaged(path, SPEC, e))?;
    Ok(Weights { spec, tensors, training })
}

fn read_safetensors(path: &Path, bytes: &[u8]) -> Result<Weights> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| damaged(path, "header", e))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors() {
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(Error::format(path, name, "a float tensor", format!("{other:?}"), HELP)),
        };
        let content = burn::tensor::Bytes::from_bytes_vec(view.data().to_vec());
        let data = TensorData::from_bytes(content, view.shape().to_vec(), dtype);
        tensors.insert(name.clone(), host_tensor(path, &name, data)?);
    }
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(path, "header", e))?;
    let entry = |name: &str| header.metadata().as_ref().and_then(|entries| entries.get(name));
    let spec = match entry(METADATA) {
        Some(json) => {
            check_unchanged(path, entry(SHA256).map(String::as_str), || sha256(json, &tensors, None))?;
            serde_json::from_str(json).map_err(|e| damaged(path, "metadata", e))?
        }
        None => inferred_spec(path, &tensors)?,
    };
    Ok(Weights { spec, tensors, training: None })
}

fn read_pytorch(path: &Path, bytes: &[u8]) -> Result<Weights> {
    pytorch::check(bytes).map_err(|Refused { place, expected, found }| {
        Error::format(path, place, expected, found, "save the state dict of the model alone, with torch.save")
    })?;
    let reader = PytorchReader::new(path).map_err(|e| damaged(path, "pickle", format!("{e:?}")))?;
    let mut tensors = BTreeMap::new();
    for (key, snapshot) in reader.tensors() {
        // Wrappers add a prefix: data-parallel modules, dictionaries around the state dict.
        let name = ["gat1.", "gat2.", "score_head."].iter().find_map(|start| key.find(start).map(|at| &key[at..]));
        let name = name.unwrap_or(key);
        let wanted = snapshot.shape.iter().try_fold(snapshot.dtype.size(), |size, &length| size.checked_mul(length));
        if wanted.is_none_or(|wanted| wanted > bytes.len()) {
            let expected = format!("a tensor within the {} bytes of the file", bytes.len());
            return Err(Error::format(path, key, expected, format!("shape {:?}", snapshot.shape), HELP));
        }
        let data = snapshot.to_data().map_err(|e| damaged(path, key, e))?;
        tensors.insert(name.to_string(), host_tensor(path, key, data)?);
    }
    let spec = inferred_spec(path, &tensors)?;
    Ok(Weights { spec, tensors, training: None })
}

fn host_tensor(path: &Path, name: &str, data: TensorData) -> Result<HostTensor> {
    let shape: Vec<usize> = data.shape.iter().copied().collect();
    let size = shape.iter().try_fold(data.dtype.size(), |size, &length| size.checked_mul(length));
    if size != Some(data.bytes.len()) {
        let expected = format!("the bytes of a {:?} tensor of shape {shape:?}", data.dtype);
        return Err(Error::format(path, name, expected, format!("{} bytes", data.bytes.len()), HELP));
    }
    let values = data.convert::<f32>().into_vec().map_err(|e| damaged(path, name, format!("{e:?}")))?;
    Ok(HostTensor { shape, values })
}

/// The shape of a Stage-2 model from the names and shapes of a state dict without metadata; what they do not tell is as
/// in the original: one head, slope 0.2.
fn inferred_spec(path: &Path, tensors: &BTreeMap<String, HostTensor>) -> Result<ModelSpec> {
    let vectors = || tensors.keys().filter_map(|name| name.strip_prefix("gat1.a_"));
    // What is read of edges has one vector, a stream has two.
    let edges = |name: &str| {
        let (relation, [weight, vector]) = (name.strip_prefix("edge_")?, edge_names(0, name.strip_prefix("edge_")?));
        match (&tensors.get(&weight)?.shape[..], &tensors.get(&vector)?.shape[..]) {
            ([output, width], [len]) if output == len => {
                Some(Some(EdgeInput { relation: relation.into(), width: *width, time: None }))
            }
            _ => None,
        }
    };
    let streams: Vec<String> = vectors().filter(|name| edges(name).is_none()).map(String::from).collect();
    let edges = vectors().filter_map(edges).collect();
    let own = |name: &str| name.strip_prefix("gat1.W_self_")?.strip_suffix(".weight").map(String::from);
    let is_stream = |name: &str| streams.iter().any(|stream| name == format!("gat1.W_{stream}.weight"));
    let own = tensors.keys().filter(|name| !is_stream(name)).filter_map(|name| own(name)).map(Some).collect();
    let widths = |layer: usize| {
        let first = streams.first()?;
        match tensors.get(&format!("gat{layer}.W_{first}.weight"))?.shape[..] {
            [output, input] => Some((input, output)),
            _ => None,
        }
    };
    let (Some((input, hidden)), Some((_, output))) = (widths(1), widths(2)) else {
        let names: Vec<&str> = tensors.keys().map(String::as_str).take(12).collect();
        let expected = "gat1.W_<stream>.weight and gat2.W_<stream>.weight of a Stage-2 model";
        return Err(Error::format(path, "tensor names", expected, names.join(", "), HELP));
    };
    Ok(ModelSpec::Attention(AttentionSpec { own, edges, ..AttentionSpec::new(streams, input, [hidden, output], 1) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights() -> Weights {
        let spec = AttentionSpec { negative_slope: 0.25, ..AttentionSpec::new(["a"], 2, [1, 1], 1) };
        let tensor = |shape: &[usize]| HostTensor {
            shape: shape.to_vec(),
            values: (0..shape.iter().product()).map(|k| k as f32 + 0.5).collect(),
        };
        let tensors = [("gat1.W_a.weight", vec![1, 2]), ("gat2.W_a.weight", vec![1, 1]), ("gat1.a_a", vec![2])]
            .map(|(name, shape)| (name.to_string(), tensor(&shape)));
        Weights { spec: ModelSpec::Attention(spec), tensors: tensors.into(), training: None }
    }

    #[test]
    fn the_native_format_keeps_weights_shape_and_training_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last.bpk");
        let training = TrainingState { progress: "{\"epoch\":3}".into(), optimiser: vec![1, 2, 3, 255] };
        let full = Weights { training: Some(training), ..weights() };
        full.write_native(&path).unwrap();
        assert_eq!(Weights::read(&path).unwrap(), (full, path));
    }

    #[test]
    fn safetensors_keep_weights_and_shape_in_the_same_bytes_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let write = || {
            weights().write_safetensors(&path).unwrap();
            fs::read(&path).unwrap()
        };
        let first = write();
        assert_eq!(Weights::read(&path).unwrap().0, weights());
        assert!((0..16).all(|_| write() == first));
    }

    #[test]
    fn transforms_of_nodes_themselves_are_no_streams_and_absent_in_older_checkpoints() {
        let Weights { mut tensors, spec, .. } = weights();
        for absent in ["own", "residual", "labels"] {
            assert!(!spec_json(&spec).contains(absent), "{}", spec_json(&spec));
        }
        assert_eq!(serde_json::from_str::<ModelSpec>(&spec_json(&spec)).unwrap(), spec);
        tensors.insert("gat1.W_self_b.weight".into(), tensors["gat1.W_a.weight"].clone());
        let ModelSpec::Attention(found) = inferred_spec(Path::new("a.pt"), &tensors).unwrap() else {
            panic!("Stage 2")
        };
        assert_eq!((found.streams, found.own), (vec!["a".to_string()], vec![Some("b".to_string())]));
    }

    #[test]
    fn damaged_files_are_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.bpk", "a.safetensors", "a.pt", "a.onnx"] {
            let path = dir.path().join(name);
            for content in [&b""[..], b"garbage that is no checkpoint at all, whatever the reader expects"] {
                fs::write(&path, content).unwrap();
                let message = Weights::read(&path).unwrap_err().to_string();
                assert!(message.contains(name), "{message}");
            }
        }
    }
}
