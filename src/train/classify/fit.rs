//! The data of a node classification on a device, and the training of one model on them.

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use graphsieve_kernels::{Csr, GraphBackend, RowIndex, gather_rows};
use serde::Serialize;

use crate::config::{ClassifyConfig, ClassifySplit, ClassifyTrain, DecayedLayers};
use crate::data::class_split::ClassSplit;
use crate::data::split::SplitFractions;
use crate::error::{Error, Result};
use crate::graph::{Classes, Dataset, EdgeReading};
use crate::metrics::{ClassReport, ConfusionMatrix, log_sum_exp, predicted_class};
use crate::models::device_graph::check_device;
use crate::models::node_classifier::{AttentionShape, ClassifierSpec, NodeClassifier, upload_graph};
use crate::models::node_input::NodeInput;
use crate::models::parameters::{Parameters, to_host};
use crate::nn::TrainingPass;
use crate::train::early_stopping::{EarlyStopping, Verdict};
use crate::train::optimiser::{Decay, Optimiser};
use crate::train::session::check_finite;

/// Graph, features and labels of a classification; models of all seeds share them.
pub struct Task<B: GraphBackend> {
    pub spec: ClassifierSpec,
    pub split: ClassSplit,
    /// What reading did to the data.
    pub notes: Vec<String>,
    config: ClassifyConfig,
    csr: Csr<Autodiff<B>>,
    x: NodeInput<Autodiff<B>>,
    inner_csr: Csr<B>,
    inner_x: NodeInput<B>,
    train_rows: RowIndex<Autodiff<B>>,
    targets: Tensor<Autodiff<B>, 2, Int>,
    device: B::Device,
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
        let split = split_of(&classes, &config.split)?;
        let csr = upload_graph::<Autodiff<B>>(&dataset.graph, device)?;
        let x = NodeInput::<Autodiff<B>>::upload(features, spec.row_normalise, device)?;
        let (nodes, labels): (Vec<u32>, Vec<i32>) = split.train.iter().map(|&(n, class)| (n, class as i32)).unzip();
        let len = labels.len();
        Ok(Self {
            spec,
            split,
            notes: dataset.notes.clone(),
            config: config.clone(),
            inner_csr: csr.clone().inner(),
            inner_x: x.inner(),
            csr,
            x,
            train_rows: RowIndex::new(&nodes, dataset.graph.num_nodes(), device),
            targets: Tensor::from_data(TensorData::new(labels, [len, 1]), device),
            device: device.clone(),
        })
    }

    /// Entries of the adjacency that one epoch visits, all layers together.
    pub fn edges_per_epoch(&self) -> usize {
        self.spec.layers * self.csr.num_edges()
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
    /// A device that failed.
    pub fn logits(&self, model: &NodeClassifier<B>) -> Result<Vec<f32>> {
        let logits = to_host(model.forward(&self.inner_csr, &self.inner_x, None));
        check_device()?;
        Ok(logits)
    }

    /// Figures of logits on some labelled nodes.
    ///
    /// # Errors
    /// Never for the labels of this task.
    pub fn report(&self, logits: &[f32], part: &[(u32, u32)]) -> Result<ClassReport> {
        report(logits, self.spec.classes, part)
    }
}

/// Figures of `values` (logits or probabilities, `classes` per node) on some labelled nodes.
///
/// # Errors
/// [`Error::Data`] without nodes, or for a class that the values do not have.
pub fn report(values: &[f32], classes: usize, part: &[(u32, u32)]) -> Result<ClassReport> {
    let row = |node: u32| &values[node as usize * classes..][..classes];
    let pairs = part.iter().map(|&(node, class)| (class, predicted_class(row(node))));
    ConfusionMatrix::of(pairs, classes)?.report().ok_or_else(|| Error::Data {
        what: "evaluation".into(),
        expected: "at least one labelled node".into(),
        found: "none".into(),
        help: "give labels for the nodes of this graph".into(),
    })
}

/// The split that a configuration means.
///
/// # Errors
/// As for [`ClassSplit`].
pub fn split_of(classes: &Classes, split: &ClassifySplit) -> Result<ClassSplit> {
    match split {
        ClassifySplit::Masks { index } => ClassSplit::of_masks(classes, *index),
        ClassifySplit::Random { per_class: Some(count), shares } => {
            ClassSplit::per_class(classes, *count, [shares.validation, shares.test], shares.seed)
        }
        ClassifySplit::Random { per_class: None, shares } => {
            let fractions = SplitFractions { train: shares.train, validation: shares.validation, test: shares.test };
            ClassSplit::stratified(classes, fractions, shares.seed)
        }
    }
}

/// One line of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EpochLine {
    #[serde(skip)]
    pub epoch: usize,
    pub loss: f32,
    #[serde(flatten)]
    pub validation: Option<Validation>,
}

/// Figures of the validation nodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Validation {
    pub validation_loss: f64,
    pub validation_accuracy: f64,
}

/// A training in progress.
pub struct Fit<'t, B: GraphBackend> {
    pub model: NodeClassifier<Autodiff<B>>,
    pub optimiser: Optimiser<B, NodeClassifier<Autodiff<B>>>,
    /// The model of the best epoch so far, and that epoch.
    pub best: Option<(usize, NodeClassifier<B>)>,
    pub stopping: EarlyStopping,
    task: &'t Task<B>,
    seed: u64,
    /// Losses that nobody has read yet.
    pending: Vec<(usize, Tensor<B, 1>)>,
}

/// What an epoch showed.
pub struct EpochEnd {
    /// Of this epoch and of those before that were not shown yet; empty when nobody asked.
    pub lines: Vec<EpochLine>,
    /// Training is over.
    pub stop: bool,
}

impl<'t, B: GraphBackend> Fit<'t, B> {
    /// A training that starts with `model`.
    pub fn new(
        task: &'t Task<B>,
        model: NodeClassifier<Autodiff<B>>,
        optimiser: Optimiser<B, NodeClassifier<Autodiff<B>>>,
        seed: u64,
    ) -> Self {
        Self { model, optimiser, best: None, stopping: EarlyStopping::new(), task, seed, pending: Vec::new() }
    }

    /// A training that starts from `seed`.
    ///
    /// # Errors
    /// None for a valid configuration.
    pub fn from_seed(task: &'t Task<B>, seed: u64) -> Result<Self> {
        let model = task.model(&mut Parameters::<Autodiff<B>>::from_seed(seed, &task.device))?;
        Ok(Self::new(task, model, task.optimiser(), seed))
    }

    /// Trains one epoch, counted from 1, and validates when that is due; `read` asks for the losses in any case.
    ///
    /// # Errors
    /// A loss that is not finite, or a device that failed.
    pub fn epoch(&mut self, epoch: usize, read: bool) -> Result<EpochEnd> {
        let Task { config, csr, x, train_rows, targets, .. } = self.task;
        let pass = TrainingPass { seed: self.seed, step: epoch as u32, layer: 0 };
        let logits = self.model.forward(csr, x, Some((pass, config.model.dropout)));
        let loss = cross_entropy(gather_rows(logits, train_rows), targets.clone());
        self.pending.push((epoch, loss.clone().inner()));
        self.model = self.optimiser.step(self.model.clone(), loss, config.train.learning_rate);
        let due = epoch == config.train.epochs || epoch.is_multiple_of(config.train.validate_every);
        if !due && !read {
            return Ok(EpochEnd { lines: Vec::new(), stop: false });
        }
        let mut lines = Vec::new();
        for (epoch, loss) in self.pending.drain(..) {
            let loss = to_host(loss)[0];
            check_device()?;
            check_finite("the cross-entropy of the training nodes", loss, epoch)?;
            lines.push(EpochLine { epoch, loss, validation: None });
        }
        let mut stop = false;
        if due {
            let model = self.model.valid();
            let validation = validate(&self.task.logits(&model)?, self.task.spec.classes, &self.task.split.validation);
            check_finite("the validation loss", validation.validation_loss as f32, epoch)?;
            let (loss, accuracy) = (validation.validation_loss, validation.validation_accuracy);
            let verdict = self.stopping.observe(config.train.best, config.train.patience, loss, accuracy);
            let Verdict { keep, stop: over } = verdict;
            stop = over;
            if keep {
                self.best = Some((epoch, model));
            }
            lines.last_mut().into_iter().for_each(|line| line.validation = Some(validation));
        }
        Ok(EpochEnd { lines, stop })
    }
}

/// Mean cross-entropy of rows of logits against classes `[rows, 1]`: `mean_i (ln sum_c exp(z_ic) - z_i,y_i)`, with the
/// largest logit of a row subtracted first.
pub fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, classes: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    log_softmax(logits, 1).gather(1, classes).mean().neg()
}

/// The same on the host in f64, with the share of right predictions.
fn validate(logits: &[f32], classes: usize, part: &[(u32, u32)]) -> Validation {
    let (mut loss, mut right) = (0.0, 0usize);
    for &(node, class) in part {
        let row = &logits[node as usize * classes..][..classes];
        loss += log_sum_exp(row) - f64::from(row[class as usize]);
        right += usize::from(predicted_class(row) == class);
    }
    let nodes = part.len() as f64;
    Validation { validation_loss: loss / nodes, validation_accuracy: right as f64 / nodes }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;

    #[test]
    fn the_cross_entropy_and_its_gradient_are_those_of_f64() {
        // Large logits, whose exponentials f32 cannot hold.
        let logits = [[0.5f32, -1.25, 3.0], [200.0, 199.0, -200.0], [-1e4, -1e4, -1e4 + 1.0], [7.0, 7.0, 7.0]];
        let labels = [2u32, 1, 0, 1];
        let x = Tensor::<Autodiff<Flex>, 2>::from_data(logits, &FlexDevice).require_grad();
        let classes = Tensor::<Autodiff<Flex>, 2, Int>::from_data([[2], [1], [0], [1]], &FlexDevice);
        let loss = cross_entropy(x.clone(), classes);
        let flat: Vec<f32> = logits.iter().flatten().copied().collect();
        let part: Vec<(u32, u32)> = (0..4).zip(labels).collect();
        let want = validate(&flat, 3, &part);
        assert!((f64::from(to_host(loss.clone())[0]) - want.validation_loss).abs() < 1e-5);
        let gradient = to_host(x.grad(&loss.backward()).unwrap());
        for (row, (logits, label)) in logits.iter().zip(labels).enumerate() {
            for class in 0..3 {
                let probability = (f64::from(logits[class]) - log_sum_exp(logits)).exp();
                let want = (probability - f64::from(u8::from(class as u32 == label))) / 4.0;
                let got = f64::from(gradient[row * 3 + class]);
                assert!((got - want).abs() < 1e-6, "{row}, {class}: {got} {want}");
            }
        }
    }

    #[test]
    fn accuracy_counts_the_largest_logit() {
        let validation = validate(&[1.0, 2.0, 3.0, 0.0], 2, &[(0, 1), (1, 1)]);
        assert_eq!(validation.validation_accuracy, 0.5);
    }
}
