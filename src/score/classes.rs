//! Class probabilities of every node: inference with a node classifier, and explanations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::DType;
use graphsieve_kernels::GraphBackend;
use ndarray::{Array2, ArrayView2};
use ndarray_npy::ViewNpyExt;

use super::explain::Explanation;
use super::explain::names::Names;
use super::explain::network::{Edges, View};
use super::explain::neural::{Columns, Described, Question};
use super::explain::parameters::of_classifier;
use super::fits::check_data;
use super::model::{Model, check_unused, other_task};
use super::{Computed, ScoreOptions, ScoredRun, Scores};
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
use crate::models::parameters::{HostTensor, Parameters, to_host};
use crate::models::precision::dtype_on;
use crate::run::bundle::{Bundle, Reads};

/// A node classifier.
pub(super) struct Classifier {
    pub spec: ClassifierSpec,
    pub tensors: BTreeMap<String, HostTensor>,
    /// Where they were read from.
    pub file: PathBuf,
}

impl<B: GraphBackend> Model<B> for Classifier {
    fn compute(&self, options: &ScoreOptions, bundle: Option<&Bundle>, devices: &[B::Device]) -> Result<Computed> {
        let device = &devices[0];
        let unused = [("--input", options.input.is_some()), ("--embeddings", options.embeddings)];
        let help = "a node classifier reads the features of --data and gives class probabilities";
        check_unused(&unused, "a node classifier", help)?;
        let (spec, file) = (&self.spec, &self.file);
        let mut dataset = Dataset::open_with(&options.data, EdgeReading { directed: spec.directed })?;
        check_data(bundle, options, &dataset, Reads::Features)?;
        let features = &features_for(spec, &dataset, Filling::of_run(&options.checkpoint)?.as_ref(), &options.data)?;
        let graph = &spec.graph_for(&dataset, features, file)?;
        let replica = |device: &B::Device| -> Result<_> {
            let mut parameters = Parameters::from_tensors(&self.tensors, file, device);
            Ok((NodeClassifier::<B>::new(spec, &mut parameters, device)?, device.clone()))
        };
        let replicas = devices.iter().map(replica).collect::<Result<Vec<_>>>()?;
        let trained = trained_as(options)?;
        // A bare checkpoint does not tell how it was trained.
        let dtype = match &trained {
            Some(config) => dtype_on::<B>(config.train.precision, device)?,
            None => DType::F32,
        };
        let most = trained.as_ref().map_or(0.0, |config| config.loader.host_memory);
        let planned = trained.is_some_and(|config| plan::classes::<B>(&config, spec, graph, features, device).sampled);
        let logits = if devices.len() > 1 || planned || options.spill.is_limited() {
            let (input, spill) = (SampledInput::new(spec, graph, features, dtype)?, options.spill.or_gigabytes(most));
            class_logits(&replicas, spec, &input, None, &spill)?
        } else {
            let x = NodeInput::<B>::upload(graph.node_types(), features, spec.row_normalise, dtype, device)?;
            let logits = to_host(replicas[0].0.forward(&DeviceGraph::upload(graph, device)?, &x, None));
            check_device()?;
            logits
        };
        if !spec.edges.is_empty() {
            // With the values that were read: whether they have moved is looked at.
            dataset.graph = graph.clone();
        }
        let nodes = dataset.graph.num_nodes();
        let matrix = Array2::from_shape_vec((nodes, spec.classes), probabilities(&logits, spec.classes))
            .unwrap_or_else(|e| unreachable!("one row per node: {e}"));
        Ok(Computed { dataset, scores: Scores::Classes(matrix), embeddings: None })
    }

    /// Each node for the class that it is seen through; scores and labels of all others are of that class, too.
    fn explain(&self, run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>> {
        let Some(classes) = &run.classes else { return Err(other_task(run, "a node classifier")) };
        let (spec, file) = (&self.spec, &self.file);
        let dataset = &run.dataset;
        let filling = Filling::of_run(run.run.path())?;
        let features = &features_for(spec, dataset, filling.as_ref(), &run.data)?;
        let graph = &spec.graph_for(dataset, features, file)?;
        let column_names = run.column_names(filling.as_ref());
        // Through the model, which checks names, shapes and values.
        let model = NodeClassifier::<B>::new(spec, &mut Parameters::from_tensors(&self.tensors, file, device), device)?;
        let (network, read_out) = of_classifier(spec, &model.export(spec).0, graph);
        let edges = Edges::new(graph, &network);
        let view = View { network: &network, edges: &edges, features };
        let edge_columns = &dataset.edge_value_names()[..];
        let mut by_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        nodes.iter().enumerate().for_each(|(at, &node)| by_class.entry(classes.class_of(node)).or_default().push(at));
        let mut explained = BTreeMap::new();
        for (class, places) in by_class {
            let scores = classes.probabilities().column(class as usize).to_vec();
            let names = Names::of_class(dataset, &scores, class);
            let columns = Columns::Features(column_names.as_deref());
            let model = Described { names: &names, view, columns, edge_columns, labels: false, known: None };
            let question = Question::Class { class, classes: spec.classes, read_out: read_out.as_ref() };
            for at in places {
                explained.insert(at, model.explain(run.probability(nodes[at]), nodes[at], &question)?);
            }
        }
        Ok(explained.into_values().collect())
    }
}

/// The features of `dataset`, which was read from `data`; `filling` is what stands for missing values.
///
/// # Errors
/// [`Error::Format`] for another width than that of the model, or for missing values.
fn features_for(spec: &ClassifierSpec, dataset: &Dataset, filling: Option<&Filling>, data: &Path) -> Result<Features> {
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
