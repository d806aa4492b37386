//! Full-graph inference without gradients.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;
use ndarray::{Array2, ArrayView1};
use rayon::prelude::*;

use super::{ScoreOptions, classes, layerwise, trees};
use crate::config::{EMBEDDINGS_FILE, RunConfig, Stage2Config, Stage2Data, Stage2Input};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features, HeteroGraph, read_embeddings, write_npy_f32};
use crate::metrics::sigmoid;
use crate::models::attention::{AttentionSpec, Pass, TripleStreamGat};
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::models::parameters::{Parameters, rows_to_host, to_host};
use crate::models::reach::Reach;
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::models::weights::{ModelSpec, Weights};
use crate::train::stage2;

/// Scores of every node, by global id, and the refined embeddings on the device.
pub struct Scored<B: GraphBackend> {
    /// In [0, 1]; higher is more anomalous.
    pub scores: Vec<f32>,
    /// One matrix per node type.
    pub embeddings: Vec<Tensor<B, 2>>,
}

impl<B: GraphBackend> Scored<B> {
    /// The refined embeddings of all nodes as one matrix on the host.
    pub fn embedding_matrix(self) -> Array2<f32> {
        let width = self.embeddings.first().map_or(0, |h| h.dims()[1]);
        let values = rows_to_host(self.embeddings);
        Array2::from_shape_vec((self.scores.len(), width), values)
            .unwrap_or_else(|e| unreachable!("one row per score: {e}"))
    }
}

/// Scores of every node with a Stage-2 model.
pub fn attention_scores<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    graph: &DeviceGraph<B>,
    x: &[Tensor<B, 2>],
    chunk_rows: Option<usize>,
) -> Scored<B> {
    let embeddings = model.embed(graph, &Reach::all(graph), x, Pass { chunk_rows, ..Default::default() });
    let scores = to_host(model.logits(embeddings.iter().cloned())).into_par_iter().map(sigmoid).collect();
    Scored { scores, embeddings }
}

/// What a model says about every node, by global id.
#[derive(Clone, Debug)]
pub enum Scores {
    /// In [0, 1]; higher is more anomalous.
    Anomaly(Vec<f32>),
    /// One row of class probabilities per node.
    Classes(Array2<f32>),
}

/// Scores of a data directory.
#[derive(Debug)]
pub struct Computed {
    pub dataset: Dataset,
    pub scores: Scores,
    /// The last hidden layer, `[nodes, width]`, where it was asked for.
    pub embeddings: Option<Array2<f32>>,
}

impl Computed {
    /// Writes the scores, or class probabilities, as a `.npy` array of f32.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_npy(&self, path: &Path) -> Result<()> {
        match &self.scores {
            Scores::Anomaly(scores) => write_npy_f32(path, &ArrayView1::from(scores)),
            Scores::Classes(probabilities) => write_npy_f32(path, probabilities),
        }
    }
}

/// Scores the graph of a data directory with a checkpoint.
///
/// # Errors
/// A checkpoint, data or input that cannot be read or do not fit each other.
pub fn compute<B: GraphBackend>(options: &ScoreOptions, device: &B::Device) -> Result<Computed> {
    graphsieve_kernels::device::watch();
    if let Some(file) = TreeCheckpoint::file_of(&options.checkpoint) {
        return trees::compute::<B>(options, &file, device);
    }
    let (weights, file) = Weights::read(&options.checkpoint)?;
    let spec = match &weights.spec {
        ModelSpec::Attention(spec) => spec,
        ModelSpec::NodeClassifier(spec) => return classes::compute::<B>(options, spec, &weights, &file, device),
        ModelSpec::AutoEncoder(_) => {
            let help =
                "score with a Stage-2 checkpoint; a run of Stage 1 has scores of its own graph alone: leave --data out";
            return Err(Error::format(file, "model", "a Stage-2 attention network", weights.spec.name(), help));
        }
    };
    let dataset = Dataset::open(&options.data)?;
    let spec = for_graph(spec, &dataset.graph, &file)?;
    let model = TripleStreamGat::<B>::new(&spec, &mut Parameters::from_tensors(&weights.tensors, &file, device))?;
    let trained = trained_as(options)?;
    let features = input_features(&input_of(options, trained.as_ref()), &dataset, Some(spec.input))?;
    let sampled =
        trained.is_some_and(|config| stage2::plan::<B>(&config, &dataset.graph, features.dim(), device).sampled);
    let (scores, embeddings) = if sampled {
        let graph = Arc::new(dataset.graph.clone());
        let scored = layerwise::scores(&model, &graph, &features, DType::F32, device)?;
        (scored.scores, options.embeddings.then_some(scored.embeddings))
    } else {
        let x = upload_features(dataset.graph.node_types(), &features, DType::F32, device)?;
        let graph = DeviceGraph::<B>::upload(&dataset.graph, device)?;
        let scored = attention_scores(&model, &graph, &x, None);
        let scores = scored.scores.clone();
        (scores, options.embeddings.then(|| scored.embedding_matrix()))
    };
    check_device()?;
    Ok(Computed { dataset, scores: Scores::Anomaly(scores), embeddings })
}

/// The model's shape with the streams in the graph's order.
pub(super) fn for_graph(spec: &AttentionSpec, graph: &HeteroGraph, file: &Path) -> Result<AttentionSpec> {
    let streams: Vec<String> = graph.streams().into_iter().map(String::from).collect();
    let same = streams.len() == spec.streams.len() && streams.iter().all(|s| spec.streams.contains(s));
    if !same {
        let help = "score a graph with the relations that the model was trained on";
        let (expected, found) = (format!("streams {}", streams.join(", ")), spec.streams.join(", "));
        return Err(Error::format(file, "streams", expected, found, help));
    }
    Ok(AttentionSpec { streams, ..spec.clone() })
}

/// The settings of the run that a checkpoint is of, where it is in its directory.
fn trained_as(options: &ScoreOptions) -> Result<Option<Stage2Config>> {
    if !options.checkpoint.is_dir() {
        return Ok(None);
    }
    Ok(match RunConfig::load_kept(&options.checkpoint.join("config.toml"), &[])? {
        RunConfig::Stage2(config) => Some(config),
        _ => None,
    })
}

/// Where the input of the model comes from.
fn input_of(options: &ScoreOptions, trained: Option<&Stage2Config>) -> Stage2Data {
    let trained_on = trained.map(|config| &config.data);
    let place = options.input.clone().or_else(|| trained_on.and_then(|data| data.embeddings.clone()));
    let from_features = options.input.is_none() && trained_on.is_some_and(|d| d.input == Stage2Input::Features);
    Stage2Data {
        path: options.data.clone(),
        input: if from_features { Stage2Input::Features } else { Stage2Input::Embeddings },
        embeddings: place,
    }
}

/// What a Stage-2 model starts from: one tensor per node type, and its width.
///
/// # Errors
/// When the embeddings or features are missing, or have another width than `expected_width`.
pub fn stage2_input<B: GraphBackend>(
    data: &Stage2Data,
    dataset: &Dataset,
    expected_width: Option<usize>,
    dtype: DType,
    device: &B::Device,
) -> Result<(Vec<Tensor<B, 2>>, usize)> {
    let features = input_features(data, dataset, expected_width)?;
    let x = upload_features(dataset.graph.node_types(), &features, dtype, device)?;
    Ok((x, features.dim()))
}

/// The same in host memory.
///
/// # Errors
/// When the embeddings or features are missing, or have another width than `expected_width`.
pub fn input_features(data: &Stage2Data, dataset: &Dataset, expected_width: Option<usize>) -> Result<Features> {
    let check = |what: std::path::PathBuf, width: usize| match expected_width {
        Some(expected) if expected != width => Err(Error::format(
            what,
            "width",
            format!("{expected} columns, as the model was trained on"),
            width.to_string(),
            "give the embeddings or features that belong to this model",
        )),
        _ => Ok(()),
    };
    match data.input {
        Stage2Input::Features => {
            let features = dataset.features.clone().ok_or_else(|| {
                let help = format!("use data.input = \"embeddings\" with a {EMBEDDINGS_FILE}");
                Error::format(&data.path, "features", "a feature file", "none", help)
            })?;
            check(data.path.clone(), features.dim())?;
            Ok(features)
        }
        Stage2Input::Embeddings => {
            let file = data.embeddings_file();
            let z = read_embeddings(&file, Some(dataset.graph.num_nodes()))?;
            let (rows, width) = z.dim();
            check(file, width)?;
            let (values, _) = z.into_raw_vec_and_offset();
            Ok(Features::from_f32(values, rows, width))
        }
    }
}
