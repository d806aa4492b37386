//! Scores of a data directory with a checkpoint.

use std::sync::Arc;

use burn::tensor::DType;
use graphsieve_kernels::GraphBackend;
use ndarray::Array2;

use super::fits::{bundle_of, check_data};
use super::{Computed, ScoreOptions, Scores, classes, trees};
use crate::config::{RunConfig, Stage2Config, Stage2Input};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Filling};
use crate::infer::attention::{for_graph, graph_for, host_scores, known_labels};
use crate::infer::embed::{self, Source, TrainedOn};
use crate::infer::layerwise::{self, HostScored};
use crate::infer::plan;
use crate::infer::tree_table::reconstruction_scores;
use crate::models::attention::TripleStreamGat;
use crate::models::device_graph::{DeviceGraph, upload_features};
use crate::models::parameters::Parameters;
use crate::models::precision::dtype_on;
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::models::weights::{ModelSpec, Weights};
use crate::run::bundle::{Bundle, Reads};
use crate::run::ensemble::{ENSEMBLE_FILE, Ensemble};

/// Scores the graph of a data directory with a checkpoint.
///
/// # Errors
/// A checkpoint, data or input that cannot be read or do not fit each other.
pub fn compute<B: GraphBackend>(options: &ScoreOptions, device: &B::Device) -> Result<Computed> {
    compute_on::<B>(options, std::slice::from_ref(device))
}

/// The same on several devices: layer by layer, every device a part of the nodes.
///
/// # Errors
/// As for [`compute`]; [`Error::Usage`] for several devices and a model that is not a network of Stage 2 or of a node
/// classification.
///
/// # Panics
/// Without a device.
pub fn compute_on<B: GraphBackend>(options: &ScoreOptions, devices: &[B::Device]) -> Result<Computed> {
    let device = &devices[0];
    graphsieve_kernels::device::watch();
    // Before its files are read.
    let bundle = bundle_of(options)?;
    let bundle = bundle.as_ref();
    if let Some(ensemble) = Ensemble::of_run(&options.checkpoint)? {
        return members::<B>(options, &ensemble, devices);
    }
    if let Some(file) = TreeCheckpoint::file_of(&options.checkpoint) {
        check_one(devices.len(), "a model of trees")?;
        return trees::compute::<B>(options, bundle, &file, device);
    }
    let (weights, file) = Weights::read(&options.checkpoint)?;
    let spec = match &weights.spec {
        ModelSpec::Attention(spec) => spec,
        ModelSpec::NodeClassifier(spec) => {
            return classes::compute::<B>(options, bundle, spec, &weights, &file, devices);
        }
        ModelSpec::AutoEncoder(_) => {
            check_one(devices.len(), "a model of Stage 1")?;
            return reconstruction::<B>(options, bundle, device);
        }
    };
    let mut dataset = Dataset::open(&options.data)?;
    dataset.graph = graph_for(spec, &dataset)?;
    let graph = dataset.graph.clone();
    let spec = for_graph(spec, &graph, &file)?;
    let replica = |device: &B::Device| -> Result<_> {
        let mut parameters = Parameters::from_tensors(&weights.tensors, &file, device);
        Ok((TripleStreamGat::<B>::new(&spec, &mut parameters)?, device.clone()))
    };
    let replicas = devices.iter().map(replica).collect::<Result<Vec<_>>>()?;
    let trained = trained_as(options)?;
    let (input, source) = input_of(options, trained.as_ref());
    // Embeddings that were made already say nothing of columns.
    let given = input == Stage2Input::Embeddings && matches!(source, Source::Array(_));
    check_data(bundle, options, &dataset, if given { Reads::Graph } else { Reads::Features })?;
    let filling = Filling::of_run(&options.checkpoint)?;
    let (filling, data) = (filling.as_ref(), &options.data);
    let features = embed::input_of::<B>((input, &source), filling, &dataset, data, spec.given(), device)?;
    let known = known_labels(&spec, &options.checkpoint, &dataset, &options.data)?;
    let chunk_rows = trained.as_ref().and_then(|config| config.train.chunk_size);
    // A bare checkpoint does not tell how it was trained.
    let storage = match &trained {
        Some(config) => dtype_on::<B>(config.train.precision, device)?,
        None => DType::F32,
    };
    let planned = trained.is_some_and(|config| plan::attention::<B>(&config, &graph, spec.input, device).sampled);
    let sampled = devices.len() > 1 || planned;
    let HostScored { scores, embeddings } = if sampled {
        let (graph, known) = (Arc::new(graph), known.as_ref());
        layerwise::scores_with_labels(&replicas, &graph, &features, known, None, storage, None)?
    } else {
        let x = upload_features(graph.node_types(), &features, storage, device)?;
        let graph = DeviceGraph::<B>::upload(&graph, device)?;
        host_scores(&replicas[0].0, &graph, &x, known.as_ref(), None, chunk_rows, options.embeddings)?
    };
    let embeddings = options.embeddings.then_some(embeddings);
    Ok(Computed { dataset, scores: Scores::Anomaly(scores), embeddings })
}

/// Refuses several devices.
fn check_one(devices: usize, found: &str) -> Result<()> {
    if devices == 1 {
        return Ok(());
    }
    Err(Error::Usage {
        argument: format!("--devices {devices}"),
        expected: "a network of Stage 2 or of a node classification".into(),
        found: found.into(),
        help: "leave --devices out".into(),
    })
}

/// The mean of what the members of an ensemble say: of classifiers whose mean is one, of all classes.
fn members<B: GraphBackend>(options: &ScoreOptions, ensemble: &Ensemble, devices: &[B::Device]) -> Result<Computed> {
    let unused = [("--input", options.input.is_some()), ("--embeddings", options.embeddings)];
    if let Some((argument, _)) = unused.iter().find(|(_, given)| *given) {
        return Err(Error::Usage {
            argument: (*argument).into(),
            expected: "no such argument with an ensemble".into(),
            found: "one".into(),
            help: format!("give the run of a member: they lie beside {}", options.checkpoint.display()),
        });
    }
    let is_classifier =
        matches!(RunConfig::load_kept(&options.checkpoint.join("config.toml"), &[])?, RunConfig::Classify(_));
    let (mut last, mut scores) = (None, Vec::with_capacity(ensemble.members.len()));
    for member in &ensemble.members {
        let checkpoint = options.checkpoint.join(&member.run);
        let computed = compute_on::<B>(&ScoreOptions { checkpoint, ..options.clone() }, devices)?;
        scores.push(match computed.scores {
            Scores::Anomaly(scores) => scores,
            Scores::Classes(probabilities) if is_classifier => probabilities.iter().copied().collect(),
            Scores::Classes(probabilities) => probabilities.column(1).to_vec(),
        });
        last = Some(computed.dataset);
    }
    let Some(dataset) = last else {
        let help = "the file was changed; start a new run";
        return Err(Error::format(options.checkpoint.join(ENSEMBLE_FILE), "members", "at least one", "none", help));
    };
    let (mean, nodes) = (ensemble.mean(&scores), dataset.graph.num_nodes());
    let scores = match is_classifier {
        true => {
            let shape = (nodes, mean.len() / nodes.max(1));
            let rows = Array2::from_shape_vec(shape, mean);
            Scores::Classes(rows.unwrap_or_else(|e| unreachable!("one row per node: {e}")))
        }
        false => Scores::Anomaly(mean),
    };
    Ok(Computed { dataset, scores, embeddings: None })
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
fn input_of(options: &ScoreOptions, trained: Option<&Stage2Config>) -> (Stage2Input, Source) {
    let from_features = options.input.is_none() && trained.is_some_and(|of| of.data.input == Stage2Input::Features);
    let input = if from_features { Stage2Input::Features } else { Stage2Input::Embeddings };
    let trained = trained.map(|Stage2Config { data, .. }| TrainedOn {
        run: &options.checkpoint,
        data: &data.path,
        embeddings: data.embeddings.as_deref(),
    });
    (input, Source::of(options.input.as_deref(), trained, &options.data))
}

/// How badly the embeddings of Stage 1 explain the edges of each node, see [`Stage::Reconstruction`].
fn reconstruction<B: GraphBackend>(
    options: &ScoreOptions,
    bundle: Option<&Bundle>,
    device: &B::Device,
) -> Result<Computed> {
    if let Some(input) = &options.input {
        return Err(Error::Usage {
            argument: format!("--input {}", input.display()),
            expected: "no such argument with a run of Stage 1".into(),
            found: "one".into(),
            help: "Stage 1 makes its embeddings itself, from the features of the data".into(),
        });
    }
    let dataset = Dataset::open(&options.data)?;
    check_data(bundle, options, &dataset, Reads::Features)?;
    let z = Source::of_stage1(&options.checkpoint, &options.data).read::<B>(&dataset, &options.data, device)?;
    let scores = reconstruction_scores(&dataset.graph, &z);
    Ok(Computed { dataset, scores: Scores::Anomaly(scores), embeddings: options.embeddings.then_some(z) })
}
