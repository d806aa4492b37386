//! Class probabilities of every node: inference with a node classifier, and their evaluation.

use std::path::Path;

use burn::tensor::DType;
use graphsieve_kernels::GraphBackend;
use ndarray::{Array2, ArrayView2};
use ndarray_npy::ViewNpyExt;

use super::fits::check_data;
use super::{Computed, ScoreOptions, Scores};
use crate::config::{ClassifyConfig, RunConfig};
use crate::error::{Error, Result};
use crate::graph::formats::map_file;
use crate::graph::{Dataset, EdgeReading, Features, Filling};
use crate::infer::layerwise_classes::class_logits;
use crate::infer::plan;
use crate::infer::sampled_input::SampledInput;
use crate::models::device_graph::{DeviceGraph, check_device};
use crate::models::node_classifier::{ClassifierSpec, NodeClassifier, probabilities};
use crate::models::node_input::NodeInput;
use crate::models::parameters::{Parameters, to_host};
use crate::models::precision::dtype_on;
use crate::models::weights::Weights;
use crate::run::bundle::{Bundle, Reads};

/// Probabilities of the classes of all nodes.
pub(super) fn compute<B: GraphBackend>(
    options: &ScoreOptions,
    bundle: Option<&Bundle>,
    spec: &ClassifierSpec,
    weights: &Weights,
    file: &Path,
    devices: &[B::Device],
) -> Result<Computed> {
    let device = &devices[0];
    let unused = [("--input", options.input.is_some()), ("--embeddings", options.embeddings)];
    if let Some((argument, _)) = unused.iter().find(|(_, given)| *given) {
        return Err(Error::Usage {
            argument: (*argument).into(),
            expected: "no such argument with a node classifier".into(),
            found: "one".into(),
            help: "a node classifier reads the features of --data and gives class probabilities".into(),
        });
    }
    let dataset = Dataset::open_with(&options.data, EdgeReading { directed: spec.directed })?;
    check_data(bundle, options, &dataset, Reads::Features)?;
    let features = &features_for(spec, &dataset, Filling::of_run(&options.checkpoint)?.as_ref(), &options.data)?;
    let graph = &spec.graph_for(&dataset, features, file)?;
    let replica = |device: &B::Device| -> Result<_> {
        let mut parameters = Parameters::from_tensors(&weights.tensors, file, device);
        Ok((NodeClassifier::<B>::new(spec, &mut parameters, device)?, device.clone()))
    };
    let replicas = devices.iter().map(replica).collect::<Result<Vec<_>>>()?;
    let trained = trained_as(options)?;
    // A bare checkpoint does not tell how it was trained.
    let dtype = match &trained {
        Some(config) => dtype_on::<B>(config.train.precision, device)?,
        None => DType::F32,
    };
    let planned = trained.is_some_and(|config| plan::classes::<B>(&config, spec, graph, features, device).sampled);
    let logits = if devices.len() > 1 || planned {
        class_logits(&replicas, spec, &SampledInput::new(spec, graph, features, dtype)?, None)?
    } else {
        let x = NodeInput::<B>::upload(graph.node_types(), features, spec.row_normalise, dtype, device)?;
        let logits = to_host(replicas[0].0.forward(&DeviceGraph::upload(graph, device)?, &x, None));
        check_device()?;
        logits
    };
    let nodes = dataset.graph.num_nodes();
    let matrix = Array2::from_shape_vec((nodes, spec.classes), probabilities(&logits, spec.classes))
        .unwrap_or_else(|e| unreachable!("one row per node: {e}"));
    Ok(Computed { dataset, scores: Scores::Classes(matrix), embeddings: None })
}

/// The features of `dataset`, which was read from `data`; `filling` is what stands for missing values.
///
/// # Errors
/// [`Error::Format`] for another width than that of the model, or for missing values.
pub(super) fn features_for(
    spec: &ClassifierSpec,
    dataset: &Dataset,
    filling: Option<&Filling>,
    data: &Path,
) -> Result<Features> {
    let features = dataset.filled(filling, data)?;
    let width = features.as_ref().map_or(0, Features::dim);
    features.filter(|_| width == spec.input).ok_or_else(|| {
        let expected = format!("{} columns, as the model was trained on", spec.input);
        Error::format(data, "features", expected, width.to_string(), "give data that belong to this model")
    })
}

/// The settings of the run that a checkpoint is of, where it is in its directory.
fn trained_as(options: &ScoreOptions) -> Result<Option<ClassifyConfig>> {
    if !options.checkpoint.is_dir() {
        return Ok(None);
    }
    Ok(match RunConfig::load_kept(&options.checkpoint.join("config.toml"), &[])? {
        RunConfig::Classify(config) => Some(config),
        _ => None,
    })
}

/// Whether an array has a row of probabilities per node, of two classes or more, rather than one score.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read.
pub fn holds_probabilities(path: &Path) -> Result<bool> {
    Ok(ArrayView2::<f32>::view_npy(&map_file(path)?).is_ok_and(|array| array.ncols() > 1))
}
