//! One class for every node: layers of graph convolution or of graph attention.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, Csr, Dropout, GraphBackend, combine, linear};
use serde::{Deserialize, Serialize};

use super::device_graph::upload;
use super::named;
use super::node_input::{BatchRows, NodeInput, dropped};
use super::parameters::Parameters;
use crate::config::{ClassifyModel, LayerKind};
use crate::error::{Error, Result};
use crate::graph::{HeteroGraph, Relation};
use crate::metrics::log_sum_exp;
use crate::nn::{Block, GatConv, GatConvConfig, GcnConv, GcnConvConfig, TrainingPass};

/// The shape of a [`NodeClassifier`], and what its input is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifierSpec {
    /// Kind of all layers.
    pub layer: LayerKind,
    /// Columns of the features.
    pub input: usize,
    /// Channels between layers, all heads together.
    pub hidden: usize,
    /// Columns of the result.
    pub classes: usize,
    /// Number of layers.
    pub layers: usize,
    /// Of graph attention.
    pub attention: Option<AttentionShape>,
    /// Whether the features of every node are divided by the sum of their absolute values.
    pub row_normalise: bool,
    /// Whether edges of an `.npz` file lead one way only.
    pub directed: bool,
}

/// Heads of a graph attention classifier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Of every layer but the last; concatenated.
    pub heads: usize,
    /// Of the last layer; averaged.
    pub out_heads: usize,
    /// Slope of LeakyReLU below zero.
    pub negative_slope: f64,
    /// Share of the attention coefficients that training drops.
    pub dropout: f64,
}

impl ClassifierSpec {
    /// Refuses what no model has: a checkpoint may say anything.
    fn check(&self) -> Result<()> {
        let positive = [
            ("layers", self.layers),
            ("input", self.input),
            ("hidden", self.hidden),
            ("classes", self.classes),
            ("heads", self.attention.map_or(1, |shape| shape.heads)),
            ("out_heads", self.attention.map_or(1, |shape| shape.out_heads)),
        ];
        let refused = |key: &str, expected: String, found: String| {
            let help = "the checkpoint is damaged or was made by another version; train again";
            Err(Error::Data { what: format!("model.{key}"), expected, found, help: help.into() })
        };
        if let Some((key, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return refused(key, "at least 1".into(), "0".into());
        }
        if (self.layer == LayerKind::Gat) != self.attention.is_some() {
            let found = if self.attention.is_some() { "heads" } else { "none" };
            return refused(
                "attention",
                format!("heads for gat and none for gcn, here {:?}", self.layer),
                found.into(),
            );
        }
        let Some(shape) = self.attention else { return Ok(()) };
        if !self.hidden.is_multiple_of(shape.heads) {
            return refused("hidden", format!("a multiple of {} heads", shape.heads), self.hidden.to_string());
        }
        if !(0.0..1.0).contains(&shape.dropout) {
            return refused("attention.dropout", "a share in [0, 1)".into(), shape.dropout.to_string());
        }
        if !shape.negative_slope.is_finite() {
            return refused("attention.negative_slope", "a number".into(), shape.negative_slope.to_string());
        }
        Ok(())
    }
}

impl AttentionShape {
    /// The heads that a configuration asks for.
    pub fn of(model: &ClassifyModel) -> Option<Self> {
        let attention = model.attention.as_ref()?;
        Some(Self {
            heads: attention.heads,
            out_heads: attention.out_heads,
            negative_slope: attention.negative_slope,
            dropout: attention.attention_dropout,
        })
    }
}

/// Uploads the only relation of a graph with one node type.
///
/// # Errors
/// [`Error::Data`] for a graph with several node types or relations, or one that the kernels cannot index.
pub fn upload_graph<B: GraphBackend>(graph: &HeteroGraph, device: &B::Device) -> Result<Csr<B>> {
    upload(only_relation(graph)?, device)
}

/// The only relation of a graph with one node type.
///
/// # Errors
/// [`Error::Data`] for a graph with several node types or relations.
pub fn only_relation(graph: &HeteroGraph) -> Result<&Relation> {
    let [relation] = graph.relations() else {
        return Err(several("relations", graph.relations().iter().map(|relation| relation.name.as_str())));
    };
    if graph.node_types().len() != 1 {
        return Err(several("node types", graph.node_types().iter().map(|node_type| node_type.name.as_str())));
    }
    Ok(relation)
}

fn several<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Error {
    Error::Data {
        what: what.into(),
        expected: "exactly one, for node classification".into(),
        found: names.collect::<Vec<_>>().join(", "),
        help: "classify nodes of a graph with one node type and one symmetric relation (in graph.toml, one_way = true \
               keeps a directed one from being reversed), or use task = \"stage2\""
            .into(),
    }
}

/// Class probabilities of rows of logits: `exp(z_c) / sum exp(z)`.
pub fn probabilities(logits: &[f32], classes: usize) -> Vec<f32> {
    let of_row = |row: &[f32]| {
        let normaliser = log_sum_exp(row);
        row.iter().map(|&logit| (f64::from(logit) - normaliser).exp() as f32).collect::<Vec<f32>>()
    };
    logits.chunks_exact(classes).flat_map(of_row).collect()
}

/// One layer of either kind.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "a model holds a handful of layers")]
enum NodeLayer<B: Backend> {
    Gcn(GcnConv<B>),
    Gat(GatConv<B>),
}

/// A stack of layers of one kind.
///
/// [`GcnConv`] with ReLU between layers, or [`GatConv`] with ELU; heads of the last layer are averaged. The last layer has
/// no activation.
///
/// # Source
/// Kipf and Welling (ICLR 2017), equation 2; Velickovic and others (ICLR 2018), equations 4 to 6.
#[derive(Module, Debug)]
pub struct NodeClassifier<B: Backend> {
    layers: Vec<NodeLayer<B>>,
}

impl<B: GraphBackend> NodeClassifier<B> {
    /// A model with the values of `parameters`.
    ///
    /// # Errors
    /// When a checkpoint lacks a parameter or holds it with another shape, or describes no model.
    pub fn new(spec: &ClassifierSpec, parameters: &mut Parameters<B>, device: &B::Device) -> Result<Self> {
        spec.check()?;
        let layer = |at: usize| {
            let last = at + 1 == spec.layers;
            let input = if at == 0 { spec.input } else { spec.hidden };
            let output = if last { spec.classes } else { spec.hidden };
            let Some(shape) = spec.attention else {
                return NodeLayer::Gcn(GcnConvConfig::new(input, output).init(device));
            };
            // Averaged heads have the width of the result each, concatenated ones share it.
            let heads = if last { shape.out_heads } else { shape.heads };
            let channels = if last { output } else { output / heads };
            let config = GatConvConfig::new(input, channels).with_heads(heads).with_concat(!last);
            let config = config.with_negative_slope(shape.negative_slope).with_attention_dropout(shape.dropout);
            NodeLayer::Gat(config.init(device))
        };
        named::fill(Self { layers: (0..spec.layers).map(layer).collect() }, parameters)
    }

    /// Logits `[nodes, classes]`. With `training`, a pass and the share of the input values that every layer drops,
    /// these and attention coefficients are dropped.
    pub fn forward(&self, csr: &Csr<B>, x: &NodeInput<B>, training: Training) -> Tensor<B, 2> {
        let mut h: Option<Tensor<B, 2>> = None;
        for (at, layer) in self.layers.iter().enumerate() {
            let projected = match h {
                None => x.project(layer.weight(), drop_of(at, training)),
                Some(h) => self.project(at, h, training),
            };
            let y = match layer {
                NodeLayer::Gcn(conv) => conv.propagate(csr, projected),
                NodeLayer::Gat(conv) => conv.propagate(csr, projected, pass_of(at, training)),
            };
            h = Some(self.activate(at, y));
        }
        h.unwrap_or_else(|| unreachable!("a classifier has at least one layer"))
    }

    /// Logits `[rows after the last layer, classes]` of a mini-batch: those of [`NodeClassifier::forward`] where all
    /// neighbours were taken.
    ///
    /// Graph convolution estimates the sum over all neighbours ([`GcnConv::propagate_sampled`]); attention is among the
    /// neighbours that were drawn and the node itself.
    ///
    /// # Shapes
    /// `blocks` has one entry per layer, of a batch that [`SampledInput`](crate::infer::sampled_input::SampledInput)
    /// was sampled for; `rows` are those before the first of them.
    ///
    /// # Panics
    /// For another number of layers or of rows, and for rows without degrees where layers convolve.
    pub fn forward_batch(&self, blocks: &[Block<B>], mut rows: BatchRows<B>, training: Training) -> Tensor<B, 2> {
        let (want, got) = (self.layers.len(), blocks.len());
        assert_eq!(want, got, "NodeClassifier: blocks: expected {want} layers of a batch, got {got}");
        for (at, block) in blocks.iter().enumerate() {
            rows.x = self.project(at, rows.x, training);
            rows = self.propagate(at, block, rows, training);
        }
        rows.x
    }

    /// The first half of layer `at`: rows `[rows, columns]` times the weight, some values dropped.
    pub fn project(&self, at: usize, x: Tensor<B, 2>, training: Training) -> Tensor<B, 2> {
        linear(dropped(x, drop_of(at, training)), self.layers[at].weight(), None)
    }

    /// The second half of layer `at` in a mini-batch: from projected rows before it to rows after it.
    ///
    /// # Panics
    /// As [`NodeClassifier::forward_batch`].
    pub fn propagate(
        &self,
        at: usize,
        block: &Block<B>,
        BatchRows { x, degree }: BatchRows<B>,
        training: Training,
    ) -> BatchRows<B> {
        let Some(csr) = block.csr(0) else {
            unreachable!("the nodes after a layer are among those before it, and there are some")
        };
        let degree = degree.map(|degree| block.nodes(degree));
        let after = degree.as_ref().map(|degree| degree.dst().clone());
        let h = block.nodes(x);
        let y = match &self.layers[at] {
            NodeLayer::Gcn(conv) => {
                let degree =
                    degree.unwrap_or_else(|| panic!("NodeClassifier: rows.degree: expected one per row, got none"));
                conv.propagate_sampled(csr, h, degree)
            }
            NodeLayer::Gat(conv) => conv.propagate(csr, h, pass_of(at, training)),
        };
        BatchRows { x: self.activate(at, y), degree: after }
    }

    /// Channels after [`NodeClassifier::project`].
    pub fn projected_width(&self, at: usize) -> usize {
        self.layers[at].weight().dims()[1]
    }

    /// The end of layer `at`.
    fn activate(&self, at: usize, y: Tensor<B, 2>) -> Tensor<B, 2> {
        let activation = match &self.layers[at] {
            _ if at + 1 == self.layers.len() => return y,
            NodeLayer::Gcn(_) => Activation::Relu,
            NodeLayer::Gat(_) => Activation::Elu,
        };
        combine(vec![y], None, 1.0, activation)
    }
}

impl<B: Backend> NodeLayer<B> {
    fn weight(&self) -> Tensor<B, 2> {
        match self {
            NodeLayer::Gcn(conv) => conv.weight.val(),
            NodeLayer::Gat(conv) => conv.weight.val(),
        }
    }
}

/// The randomness of a training pass, and the share of the input values that every layer drops.
pub type Training = Option<(TrainingPass, f64)>;

fn pass_of(layer: usize, training: Training) -> Option<TrainingPass> {
    training.map(|(pass, _)| pass.layer(layer as u32))
}

fn drop_of(layer: usize, training: Training) -> Option<Dropout> {
    training.and_then(|(pass, rate)| Dropout::new(rate, pass.seed, pass.step, layer as u32, INPUTS))
}

/// Stream of the dropout of a layer's inputs, as in the layers themselves.
const INPUTS: u32 = 0;

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use burn::tensor::activation::{elu, relu};
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::graph::{Adjacency, Features, RelationSpec};
    use crate::models::parameters::to_host;

    const NODES: usize = 30;
    const COLUMNS: usize = 40;

    fn graph() -> HeteroGraph {
        let edges: Vec<(u32, u32)> = (0..90u32).map(|k| (k % 30, (k * k + 7) % 30)).collect();
        let edges: Vec<_> = edges.iter().flat_map(|&(i, j)| [(i, j), (j, i)]).collect();
        let adjacency = Adjacency::from_edges(NODES, NODES, &edges);
        let spec =
            RelationSpec { name: "edge".into(), src: 0, dst: 0, stream: "edge".into(), primary: true, adjacency };
        HeteroGraph::new(vec![("node".into(), NODES)], vec![spec]).unwrap()
    }

    fn spec(layer: LayerKind, out_heads: usize) -> ClassifierSpec {
        let attention = AttentionShape { heads: 2, out_heads, negative_slope: 0.2, dropout: 0.5 };
        ClassifierSpec {
            layer,
            input: COLUMNS,
            hidden: 6,
            classes: 3,
            layers: 3,
            attention: (layer == LayerKind::Gat).then_some(attention),
            row_normalise: false,
            directed: false,
        }
    }

    /// The layers' own forward passes on dense features.
    fn chained(model: &NodeClassifier<Flex>, csr: &Csr<Flex>, mut h: Tensor<Flex, 2>) -> Tensor<Flex, 2> {
        for (at, layer) in model.layers.iter().enumerate() {
            let last = at + 1 == model.layers.len();
            h = match layer {
                NodeLayer::Gcn(conv) if last => conv.forward(csr, h),
                NodeLayer::Gcn(conv) => relu(conv.forward(csr, h)),
                NodeLayer::Gat(conv) if last => conv.forward(csr, h, None),
                NodeLayer::Gat(conv) => elu(conv.forward(csr, h, None), 1.0),
            };
        }
        h
    }

    #[test]
    fn a_checkpoint_that_describes_no_model_is_refused() {
        let attention = Some(AttentionShape { heads: 2, out_heads: 1, negative_slope: 0.2, dropout: 0.5 });
        let good = ClassifierSpec {
            layer: LayerKind::Gat,
            input: 3,
            hidden: 4,
            classes: 2,
            layers: 2,
            attention,
            row_normalise: true,
            directed: false,
        };
        assert!(good.check().is_ok());
        let with = |attention| ClassifierSpec { attention, ..good.clone() };
        let shape = |heads, dropout| attention.map(|shape| AttentionShape { heads, dropout, ..shape });
        let wrong = [
            ("model.layers", ClassifierSpec { layers: 0, ..good.clone() }),
            ("model.classes", ClassifierSpec { classes: 0, ..good.clone() }),
            ("model.attention", with(None)),
            ("model.heads", with(shape(0, 0.5))),
            ("model.hidden", with(shape(3, 0.5))),
            ("model.attention.dropout", with(shape(2, 1.0))),
        ];
        for (key, spec) in wrong {
            let message = spec.check().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn a_classifier_on_sparse_features_is_its_layers_on_dense_ones() {
        let value = |at: usize| if at.is_multiple_of(13) { 1.0 + (at % 5) as f32 } else { 0.0 };
        let values: Vec<f32> = (0..NODES * COLUMNS).map(value).collect();
        let dense = Tensor::from_data(TensorData::new(values.clone(), [NODES, COLUMNS]), &FlexDevice);
        let input = NodeInput::upload(&Features::from_f32(values, NODES, COLUMNS), false, &FlexDevice).unwrap();
        assert!(matches!(input, NodeInput::Sparse { .. }));
        let csr = upload_graph::<Flex>(&graph(), &FlexDevice).unwrap();
        for spec in [spec(LayerKind::Gcn, 1), spec(LayerKind::Gat, 1), spec(LayerKind::Gat, 4)] {
            let model = NodeClassifier::new(&spec, &mut Parameters::from_seed(5, &FlexDevice), &FlexDevice).unwrap();
            let (got, want) = (model.forward(&csr, &input, None), chained(&model, &csr, dense.clone()));
            assert_eq!(got.dims(), [NODES, 3]);
            let (got, want) = (to_host(got), to_host(want));
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4 * b.abs().max(1.0)), "{spec:?}");
            assert!(want.iter().any(|v| v.abs() > 1e-3));
        }
    }

    #[test]
    fn probabilities_add_up_to_one_whatever_the_logits() {
        let rows = probabilities(&[1e4, 0.0, -1e4, 0.0, 0.0, 0.0], 3);
        assert_eq!(rows[..3], [1.0, 0.0, 0.0]);
        assert!(rows[3..].iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-7));
    }
}
