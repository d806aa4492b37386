//! Class probabilities of every node: inference with a node classifier, and explanations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::DType;
use graphsieve_kernels::GraphBackend;
use ndarray::{Array2, ArrayView2};

use super::explain::Explanation;
use super::explain::names::Names;
use super::explain::network::{Edges, View};
use super::explain::neural::{Columns, Described, Question};
use super::explain::parameters::of_classifier;
use super::fits::check_data;
use super::model::{Model, OfAll, PartModel, Place, Reach, check_unused, only, other_task};
use super::{Computed, ScoreOptions, ScoredRun, Scores};
use crate::config::{ClassifyConfig, RunConfig};
use crate::error::{Error, Result};
use crate::graph::formats::map_file;
use crate::graph::npy::view_npy;
use crate::graph::{Dataset, EdgeReading, Features, Filling, HeteroGraph};
use crate::infer::finite::{check_finite_rows, check_finite_targets};
use crate::infer::layerwise_classes::class_logits;
use crate::infer::plan;
use crate::infer::sampled_input::SampledInput;
use crate::live::{Makes, Part};
use crate::models::attention::reads_ages;
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
        let trained = trained_as(&options.checkpoint)?;
        let open = |device: &B::Device| OnDevice::<B>::open(self, trained.as_ref(), device);
        let models = devices.iter().map(open).collect::<Result<Vec<_>>>()?;
        let most = trained.as_ref().map_or(0.0, |config| config.loader.host_memory);
        let planned = trained.is_some_and(|config| plan::classes::<B>(&config, spec, graph, features, device).sampled);
        let logits = if devices.len() > 1 || planned || options.spill.is_limited() {
            let input = SampledInput::new(spec, graph, features, models[0].storage)?;
            let replicas: Vec<_> = models.into_iter().map(|of| (of.model, of.device)).collect();
            class_logits(&replicas, spec, &input, None, &options.spill.or_gigabytes(most))?
        } else {
            models[0].logits(spec, graph, features)?
        };
        if !spec.edges.is_empty() {
            // With the values that were read: whether they have moved is looked at.
            dataset.graph = graph.clone();
        }
        check_finite_rows("the logits", &logits, spec.classes, &dataset)?;
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
        let on_device = OnDevice::<B>::open(self, None, device)?;
        let mut by_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        nodes.iter().enumerate().for_each(|(at, &node)| by_class.entry(classes.class_of(node)).or_default().push(at));
        let mut explained = BTreeMap::new();
        for (class, places) in by_class {
            let scores = classes.probabilities().column(class as usize).to_vec();
            let names = Names::of_class(dataset, &scores, class);
            let own: Vec<u32> = places.iter().map(|&at| nodes[at]).collect();
            let probability = |node: u32| run.probability(node);
            let read = (graph, features, filling.as_ref());
            let found = on_device.explain(spec, &names, class, read, &own, &probability)?;
            explained.extend(places.into_iter().zip(found));
        }
        Ok(explained.into_values().collect())
    }

    fn prepared(self: Box<Self>, place: &Place<'_, B>) -> Result<Box<dyn PartModel<B>>> {
        let Place { run, dataset, data, device, .. } = *place;
        let spec = &self.spec;
        let limits = [
            ("two classes, the second of which is scored", spec.classes != 2, format!("{} classes", spec.classes)),
            ("edges as they are", spec.cut.is_some(), "a share of all edges that is cut".into()),
            ("all nodes two edges away", spec.two_hops.is_some_and(|most| most > 0), "some that are drawn".into()),
        ];
        if let Some((expected, _, found)) = limits.iter().find(|(_, applies, _)| *applies) {
            return Err(place.refused(expected, found));
        }
        place.check_ages(reads_ages(&spec.edges))?;
        place.check(Reads::Features)?;
        let filling = Filling::of_run(run)?;
        spec.graph_for(dataset, &features_for(spec, dataset, filling.as_ref(), data)?, &self.file)?;
        let on_device = OnDevice::open(&self, trained_as(run)?.as_ref(), device)?;
        Ok(Box::new(ClassParts { spec: self.spec, file: self.file, on_device, filling, data: data.to_owned() }))
    }
}

/// A node classifier on a device.
struct OnDevice<B: GraphBackend> {
    model: NodeClassifier<B>,
    storage: DType,
    device: B::Device,
}

impl<B: GraphBackend> OnDevice<B> {
    /// A bare checkpoint does not tell how it was `trained`.
    fn open(of: &Classifier, trained: Option<&ClassifyConfig>, device: &B::Device) -> Result<Self> {
        let mut parameters = Parameters::from_tensors(&of.tensors, &of.file, device);
        let model = NodeClassifier::new(&of.spec, &mut parameters, device)?;
        let storage = match trained {
            Some(config) => dtype_on::<B>(config.train.precision, device)?,
            None => DType::F32,
        };
        Ok(Self { model, storage, device: device.clone() })
    }

    /// Logits of all nodes of a graph as the layers read it, a row each.
    fn logits(&self, spec: &ClassifierSpec, graph: &HeteroGraph, features: &Features) -> Result<Vec<f32>> {
        let (types, device) = (graph.node_types(), &self.device);
        let x = NodeInput::<B>::upload(types, features, spec.row_normalise, self.storage, device)?;
        let logits = to_host(self.model.forward(&DeviceGraph::upload(graph, device)?, &x, None));
        check_device()?;
        Ok(logits)
    }

    /// Why some nodes have the probabilities of a class that `names` has; graph, features and what stood for missing
    /// ones are those that the layers read.
    fn explain(
        &self,
        spec: &ClassifierSpec,
        names: &Names,
        class: u32,
        (graph, features, filling): (&HeteroGraph, &Features, Option<&Filling>),
        nodes: &[u32],
        probability: &dyn Fn(u32) -> Option<f64>,
    ) -> Result<Vec<Explanation>> {
        // Through the model, which checks names, shapes and values.
        let (network, read_out) = of_classifier(spec, &self.model.export(spec).0, graph);
        let edges = Edges::new(graph, &network);
        let view = View { network: &network, edges: &edges, features };
        let (edge_columns, column_names) = (names.dataset.edge_value_names(), names.dataset.filled_names(filling));
        let columns = Columns::Features(column_names.as_deref());
        let edge_columns = &edge_columns[..];
        let model = Described { names, view, columns, edge_columns, labels: false, known: None };
        let question = Question::Class { class, classes: spec.classes, read_out: read_out.as_ref() };
        nodes.iter().map(|&node| model.explain(probability(node), node, &question)).collect()
    }
}

/// A classifier of two classes that scores parts of a graph: by the probability of class 1.
struct ClassParts<B: GraphBackend> {
    spec: ClassifierSpec,
    file: PathBuf,
    on_device: OnDevice<B>,
    filling: Option<Filling>,
    data: PathBuf,
}

impl<B: GraphBackend> ClassParts<B> {
    fn read(&self, part: &Part) -> Result<(HeteroGraph, Features)> {
        let features = features_for(&self.spec, &part.dataset, self.filling.as_ref(), &self.data)?;
        Ok((self.spec.graph_for(&part.dataset, &features, &self.file)?, features))
    }
}

impl<B: GraphBackend> PartModel<B> for ClassParts<B> {
    fn layers(&self) -> usize {
        let of_layer = match self.spec.order {
            Some(order) => order,
            None => 1 + usize::from(self.spec.two_hops.is_some()),
        };
        self.spec.layers * of_layer
    }

    fn reach(&self) -> Reach {
        // Wavelets and convolutions divide by the degrees of both ends.
        Reach { hops: self.layers() + 1, makes: Makes::default() }
    }

    fn of_all(&self, _: &Dataset) -> Result<OfAll> {
        Ok(OfAll::default())
    }

    fn scores(&self, part: &Part, _: &OfAll) -> Result<Vec<f32>> {
        let (graph, features) = self.read(part)?;
        let logits = self.on_device.logits(&self.spec, &graph, &features)?;
        let of_targets: Vec<f32> = part.targets.iter().flat_map(|&node| row(&logits, node)).copied().collect();
        check_finite_targets("the logits", &of_targets, CLASSES, part)?;
        Ok(probabilities(&of_targets, CLASSES).into_iter().skip(1).step_by(CLASSES).collect())
    }

    fn explain(
        &self,
        part: &Part,
        _: &OfAll,
        names: &Names,
        node: u32,
        probability: Option<f64>,
    ) -> Result<Explanation> {
        let (graph, features) = self.read(part)?;
        let read = (&graph, &features, self.filling.as_ref());
        only(self.on_device.explain(&self.spec, names, 1, read, &[node], &|_| probability)?)
    }
}

/// Classes of a model that scores parts.
const CLASSES: usize = 2;

/// The logits of a node.
fn row(logits: &[f32], node: u32) -> &[f32] {
    &logits[node as usize * CLASSES..][..CLASSES]
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
fn trained_as(checkpoint: &Path) -> Result<Option<ClassifyConfig>> {
    if !checkpoint.is_dir() {
        return Ok(None);
    }
    Ok(match RunConfig::load_kept(&checkpoint.join("config.toml"), &[])? {
        RunConfig::Classify(config) => Some(config),
        _ => None,
    })
}

/// Whether an array has a row of probabilities per node, of two classes or more, rather than one score.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read.
pub fn holds_probabilities(path: &Path) -> Result<bool> {
    let map = map_file(path)?;
    Ok(view_npy::<ArrayView2<f32>>(&map).is_ok_and(|array| array.ncols() > 1))
}
