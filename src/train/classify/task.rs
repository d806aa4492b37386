//! The data of a node classification, on a device or where mini-batches are loaded from.

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor, TensorData};
use graphsieve_kernels::{Csr, GraphBackend, RowIndex, gather_rows};

use super::fit::cross_entropy;
use super::sampled::SampledEpochs;
use crate::config::{ClassifyConfig, ClassifyTrain, DecayedLayers, LoaderMode};
use crate::data::class_split::ClassSplit;
use crate::error::{Error, Result};
use crate::graph::{Dataset, EdgeReading, Features, HeteroGraph};
use crate::infer::layerwise_classes::class_logits;
use crate::infer::plan;
use crate::infer::sampled_input::SampledInput;
use crate::loader::FeatureStore;
use crate::metrics::ClassReport;
use crate::models::device_graph::check_device;
use crate::models::node_classifier::{AttentionShape, ClassifierSpec, NodeClassifier, upload_graph};
use crate::models::node_input::NodeInput;
use crate::models::parameters::{Parameters, to_host};
use crate::nn::TrainingPass;
use crate::run::evaluation::class_report;
use crate::run::splits::class_split_of;
use crate::train::loading::transferred;
use crate::train::optimiser::{Decay, Optimiser};

/// Graph, features and labels of a classification; models of all seeds share them.
pub struct Task<B: GraphBackend> {
    pub spec: ClassifierSpec,
    pub split: ClassSplit,
    /// What reading did to the data.
    pub notes: Vec<String>,
    /// How the graph is gone through, where the configuration leaves that to the program.
    pub decisions: Vec<String>,
    pub(super) config: ClassifyConfig,
    way: Way<B>,
    pub(super) device: B::Device,
}

/// How the graph is gone through.
enum Way<B: GraphBackend> {
    /// At once.
    Full(Box<OnDevice<B>>),
    /// In mini-batches of the rows of a store.
    Sampled { input: SampledInput, store: FeatureStore<Autodiff<B>> },
}

/// A graph that is trained at once.
struct OnDevice<B: GraphBackend> {
    csr: Csr<Autodiff<B>>,
    x: NodeInput<Autodiff<B>>,
    inner_csr: Csr<B>,
    inner_x: NodeInput<B>,
    train_rows: RowIndex<Autodiff<B>>,
    targets: Tensor<Autodiff<B>, 2, Int>,
}

impl<B: GraphBackend> OnDevice<B> {
    fn upload(
        spec: &ClassifierSpec,
        graph: &HeteroGraph,
        features: &Features,
        train: &[(u32, u32)],
        device: &B::Device,
    ) -> Result<Self> {
        let csr = upload_graph::<Autodiff<B>>(graph, device)?;
        let x = NodeInput::<Autodiff<B>>::upload(features, spec.row_normalise, device)?;
        let (nodes, labels): (Vec<u32>, Vec<i32>) = train.iter().map(|&(n, class)| (n, class as i32)).unzip();
        let len = labels.len();
        Ok(Self {
            inner_csr: csr.clone().inner(),
            inner_x: x.inner(),
            csr,
            x,
            train_rows: RowIndex::new(&nodes, graph.num_nodes(), device),
            targets: Tensor::from_data(TensorData::new(labels, [len, 1]), device),
        })
    }
}

impl<B: GraphBackend> Task<B> {
    /// Reads and uploads what a configuration names.
    ///
    /// # Errors
    /// Data that cannot be read, that lack features or labels, or that do not fit the split.
    pub fn open(config: &ClassifyConfig, device: &B::Device) -> Result<Self> {
        let path = &config.data.path;
        let dataset = Dataset::open_with(path, EdgeReading { directed: config.data.directed })?;
        let classes = dataset.node_classes(path)?;
        let features = dataset.features.as_ref().ok_or_else(|| {
            let help = "node classification learns from features; add them to the data";
            Error::format(path, "features", "a feature file", "none", help)
        })?;
        if classes.count() < 2 {
            let help = "there is nothing to tell apart; look at the labels";
            return Err(Error::format(path, "labels", "at least two classes", classes.count().to_string(), help));
        }
        let spec = ClassifierSpec {
            layer: config.model.layer,
            input: features.dim(),
            hidden: config.model.hidden,
            classes: classes.count(),
            layers: config.model.layers,
            attention: AttentionShape::of(&config.model),
            row_normalise: config.data.row_normalise,
            directed: config.data.directed,
        };
        let split = class_split_of(&classes, &config.split)?;
        let graph = &dataset.graph;
        let plan = plan::classes::<B>(config, &spec, graph, features, device);
        let mut decisions: Vec<String> =
            (config.loader.mode != LoaderMode::Full).then(|| plan.to_string()).into_iter().collect();
        let way = if plan.sampled {
            let input = SampledInput::new(&spec, graph, features)?;
            let store = FeatureStore::new(input.features().clone(), input.graph(), device)?;
            let (store, how) = transferred(store, &config.loader)?;
            decisions.push(how);
            Way::Sampled { input, store }
        } else {
            Way::Full(Box::new(OnDevice::upload(&spec, graph, features, &split.train, device)?))
        };
        let (notes, config, device) = (dataset.notes.clone(), config.clone(), device.clone());
        Ok(Self { spec, split, notes, decisions, config, way, device })
    }

    /// Entries of the adjacency that one epoch visits, all layers together; none where they are sampled.
    pub fn edges_per_epoch(&self) -> usize {
        match &self.way {
            Way::Full(whole) => self.spec.layers * whole.csr.num_edges(),
            Way::Sampled { .. } => 0,
        }
    }

    /// The mini-batches of a training with this seed from the epoch `first` on; none where the graph is trained at once.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    pub(super) fn sampled_epochs(&self, seed: u64, first: usize) -> Result<Option<SampledEpochs<B>>> {
        match &self.way {
            Way::Full(_) => Ok(None),
            Way::Sampled { input, store } => {
                let config = ClassifyConfig { seed, ..self.config.clone() };
                SampledEpochs::new(&config, input, store.clone(), &self.split.train, first).map(Some)
            }
        }
    }

    /// The loss of all training nodes.
    ///
    /// # Panics
    /// Where mini-batches are sampled.
    pub(super) fn loss(&self, model: &NodeClassifier<Autodiff<B>>, pass: TrainingPass) -> Tensor<Autodiff<B>, 1> {
        let Way::Full(whole) = &self.way else { panic!("Task: loss: expected a graph that is trained at once") };
        let logits = model.forward(&whole.csr, &whole.x, Some((pass, self.config.model.dropout)));
        cross_entropy(gather_rows(logits, &whole.train_rows), whole.targets.clone())
    }

    /// The optimiser that the configuration asks for.
    pub fn optimiser(&self) -> Optimiser<B, NodeClassifier<Autodiff<B>>> {
        let ClassifyTrain { weight_decay, decayed_layers, .. } = self.config.train;
        let applies: fn(&str) -> bool = match decayed_layers {
            DecayedLayers::First => |name| name.starts_with("layers.0.") && !name.ends_with(".bias"),
            DecayedLayers::All => |name| !name.ends_with(".bias"),
        };
        let optimiser = Optimiser::new(&self.config.train.shared());
        if weight_decay == 0.0 {
            return optimiser;
        }
        optimiser.with_decay(Decay { coefficient: weight_decay, applies })
    }

    /// A model with the values of `parameters`.
    ///
    /// # Errors
    /// A checkpoint of another shape.
    pub fn model<A: GraphBackend<Device = B::Device>>(
        &self,
        parameters: &mut Parameters<A>,
    ) -> Result<NodeClassifier<A>> {
        NodeClassifier::new(&self.spec, parameters, &self.device)
    }

    /// Logits of all nodes, row by row.
    ///
    /// # Errors
    /// A device that failed, or what a thread of the loader ran into.
    pub fn logits(&self, model: &NodeClassifier<B>) -> Result<Vec<f32>> {
        match &self.way {
            Way::Full(whole) => {
                let logits = to_host(model.forward(&whole.inner_csr, &whole.inner_x, None));
                check_device()?;
                Ok(logits)
            }
            Way::Sampled { input, .. } => class_logits(model, &self.spec, input, &self.device),
        }
    }

    /// Figures of logits on some labelled nodes.
    ///
    /// # Errors
    /// Never for the labels of this task.
    pub fn report(&self, logits: &[f32], part: &[(u32, u32)]) -> Result<ClassReport> {
        class_report(logits, self.spec.classes, part)
    }
}
