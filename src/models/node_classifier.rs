//! One class for every node: layers of graph convolution, of graph attention, of means beside the node itself, or
//! wavelets.

mod difference;
mod divided;
mod edge_cut;
#[cfg(test)]
mod oracle;
mod own;
mod spec;
mod typed;
mod wavelets;

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, Dropout, GraphBackend, combine};

pub use self::divided::ClassifierPart;
pub use self::edge_cut::EdgeCut;
use self::own::Own;
pub use self::spec::{AttentionShape, ClassifierSpec, RelationShape};
use self::typed::{TypedLayer, gat_config};
use self::wavelets::WaveletLayer;
use super::attention::EdgeLayer;
use super::device_graph::DeviceGraph;
use super::layer_norm::LayerNorm;
use super::named;
use super::node_input::{BatchRows, NodeInput};
use super::parameters::{Export, Parameters};
use crate::config::LayerKind;
use crate::error::Result;
use crate::metrics::log_sum_exp;
use crate::nn::{Block, GatConv, GcnConv, GcnConvConfig, TrainingPass};

/// Class probabilities of rows of logits: `exp(z_c) / sum exp(z)`.
pub fn probabilities(logits: &[f32], classes: usize) -> Vec<f32> {
    let of_row = |row: &[f32]| {
        let normaliser = log_sum_exp(row);
        row.iter().map(|&logit| (f64::from(logit) - normaliser).exp() as f32).collect::<Vec<f32>>()
    };
    logits.chunks_exact(classes).flat_map(of_row).collect()
}

/// One layer of a classifier.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "a model holds a handful of layers")]
enum NodeLayer<B: Backend> {
    Gcn(GcnConv<B>),
    Gat(GatConv<B>),
    Typed(TypedLayer<B>),
    /// Of nodes alone, around wavelets.
    Dense(Own<B>),
    Wavelets(WaveletLayer<B>),
}

/// A stack of layers of one kind.
///
/// On one node type with one relation [`GcnConv`] with ReLU between layers, or [`GatConv`] with ELU; heads of the last
/// layer are averaged. On several types or relations every relation has a convolution of its own, the mean over
/// in-neighbours for `gcn` and attention for `gat`, and every type a projection of its nodes themselves; all of them
/// are added up. The last layer has no activation. Convolutions and means read what edges have for values as their
/// weights, see [`ClassifierSpec::reading`]; attention reads values and ages as that of Stage 2 does
/// ([`TripleStreamGat`](super::attention::TripleStreamGat)), and a node has a projection of its own then on every
/// graph, since a loop has no values.
///
/// Other kinds have a projection of the node itself on every graph, and ReLU between layers. With `m_i` the mean over
/// the in-neighbours of node `i` and `t_i` that over the nodes exactly two edges away, a layer is
///
/// ```text
/// sage         x_i W + m_i U + b                              difference   x_i W + m_i U + |(x_i - m_i) V| + b
/// h2gcn        x_i W + m_i U + t_i T + b
/// ```
///
/// and the difference of a node without in-neighbours is 0. A residual connection adds `x_i` to the result of a layer
/// as wide as its input. Normalisation ([`Norm::Layer`](crate::config::Norm::Layer)) is that of every row before an
/// activation, `scale * (z - mean(z)) / deviation(z) + shift`, with a scale and a shift for each layer.
///
/// With [`Jump::Concat`](crate::config::Jump::Concat) all layers have `hidden` channels and an activation, and a linear
/// head reads their results side by side. `bw` is two linear layers with ReLU, `layers` times the wavelets of
/// [`BwConv`](crate::nn::BwConv) with ReLU, added up over relations, and a linear layer. `ghrn` is the same on the
/// graph that an [`EdgeCut`] leaves.
///
/// # Source
/// Kipf and Welling (ICLR 2017), equation 2; Velickovic and others (ICLR 2018), equations 4 to 6; Schlichtkrull and
/// others (ESWC 2018), equation 2; Hamilton and others (NeurIPS 2017), algorithm 1; Zhu and others (NeurIPS 2020): a
/// node apart from its neighbours, nodes two edges away, and all layers read, with ReLU in every layer; Tang and others
/// (ICML 2022), equation 9; Gao and others (WWW 2023).
#[derive(Module, Debug)]
pub struct NodeClassifier<B: Backend> {
    layers: Vec<NodeLayer<B>>,
    /// Reads all layers, where it is there.
    head: Option<Own<B>>,
    /// Of the layers with an activation; empty where rows are not normalised.
    norms: Vec<LayerNorm<B>>,
    /// By layer: what attention makes of edges; empty where it reads nothing of them.
    edges: Vec<EdgeLayer<B>>,
    #[module(skip)]
    kind: LayerKind,
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
            let [input, output] = spec.widths(at);
            if spec.has_own() {
                return NodeLayer::Typed(TypedLayer::new(spec, [input, output], last, device));
            }
            match spec.attention {
                None => NodeLayer::Gcn(GcnConvConfig::new(input, output).init(device)),
                Some(shape) => NodeLayer::Gat(gat_config(shape, [input, output], last).init(device)),
            }
        };
        let layers = match spec.order {
            None => (0..spec.layers).map(layer).collect(),
            Some(order) => {
                let dense = |input, output| NodeLayer::Dense(Own::new([input, output], device));
                let wavelets = |_| NodeLayer::Wavelets(WaveletLayer::new(spec, order, device));
                let before = [dense(spec.input, spec.hidden), dense(spec.hidden, spec.hidden)];
                let after = dense(spec.hidden, spec.classes);
                before.into_iter().chain((0..spec.layers).map(wavelets)).chain([after]).collect()
            }
        };
        let head = spec.has_head().then(|| Own::new([spec.layers * spec.hidden, spec.classes], device));
        let (norms, edges) = (Vec::new(), Vec::new());
        let mut model = named::fill(Self { layers, head, norms, edges, kind: spec.layer }, parameters)?;
        // Last, so that all others begin as they do in the published model.
        if spec.is_normalised() {
            let activated = model.layers.len() - usize::from(!spec.has_head());
            let names = |at: usize| ["scale", "shift"].map(|part| format!("norms.{at}.{part}"));
            let norm = |at: usize| LayerNorm::new(names(at), spec.hidden, parameters);
            model.norms = (0..activated).map(norm).collect::<Result<_>>()?;
        }
        if !spec.edges.is_empty() {
            let edges = |at: usize| EdgeLayer::new(at, &spec.edges, spec.heads_width(at), parameters);
            model.edges = (0..spec.layers).map(edges).collect::<Result<_>>()?;
        }
        Ok(model)
    }

    /// The parameters under their names: those of edges have the names of Stage 2's.
    pub fn export(&self, spec: &ClassifierSpec) -> Export {
        let mut export = named::export(&Self { edges: Vec::new(), ..self.clone() });
        self.edges.iter().enumerate().for_each(|(at, edges)| edges.export(at, &spec.edges, &mut export));
        export
    }

    /// Logits `[nodes, classes]` of all nodes, by global id. With `training`, a pass and the share of the input values
    /// that every layer drops, these and attention coefficients are dropped. Storage follows `x`.
    ///
    /// # Shapes
    /// `x` has the input of every node type of `graph`.
    pub fn forward(&self, graph: &DeviceGraph<B>, x: &[NodeInput<B>], training: Training) -> Tensor<B, 2> {
        let block = graph.whole();
        let (mut h, mut joined) = (x.to_vec(), Vec::new());
        for (at, layer) in self.layers.iter().enumerate() {
            let pass = pass_of(at, training);
            let x: Vec<NodeInput<B>> =
                h.into_iter().enumerate().map(|(t, x)| x.dropped(drop_of(at, t, training))).collect();
            let only = || (&block.edges[0], &x[0]);
            let y = match layer {
                NodeLayer::Gcn(conv) => {
                    let (edges, x) = only();
                    let h = x.project(conv.weight.val());
                    vec![match edges.weights() {
                        Some(weights) => conv.propagate_weighted(&edges.csr, h, weights),
                        None => conv.propagate(&edges.csr, h),
                    }]
                }
                NodeLayer::Gat(conv) => {
                    let (edges, x) = only();
                    vec![conv.propagate(&edges.csr, x.project(conv.weight.val()), pass)]
                }
                NodeLayer::Typed(layer) => layer.forward(&block, &x, self.edges.get(at), pass),
                NodeLayer::Dense(own) => vec![own.of(&x[0])],
                NodeLayer::Wavelets(layer) => vec![layer.forward(&block, x.into_iter().next().map(NodeInput::dense))],
            };
            let y: Vec<Tensor<B, 2>> = y.into_iter().map(|y| self.activate(at, y)).collect();
            joined = self.joined(joined, |t, before| block.destinations(t, before), &y);
            h = y.into_iter().map(NodeInput::Dense).collect();
        }
        let last = h.into_iter().map(NodeInput::dense).collect();
        self.read_out(concatenated(if self.head.is_some() { joined } else { last }), training)
    }

    /// The results of all layers side by side, a matrix per type, where a head reads them: `before` are those of
    /// earlier layers, of which `kept` gives the rows of a type that are left, and `y` that of the last one.
    fn joined(
        &self,
        before: Vec<Tensor<B, 2>>,
        kept: impl Fn(usize, Tensor<B, 2>) -> Tensor<B, 2>,
        y: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        if self.head.is_none() || before.is_empty() {
            return y.to_vec();
        }
        let of_type = |(t, (before, y)): (usize, (Tensor<B, 2>, &Tensor<B, 2>))| match y.dims()[0] {
            0 => y.clone(),
            _ => Tensor::cat(vec![kept(t, before), y.clone()], 1),
        };
        before.into_iter().zip(y).enumerate().map(of_type).collect()
    }

    /// The logits of what the last layer made, or of what all made side by side where a head reads them.
    pub fn read_out(&self, h: Tensor<B, 2>, training: Training) -> Tensor<B, 2> {
        match &self.head {
            None => h,
            Some(head) => head.of(&NodeInput::Dense(h).dropped(drop_of(self.layers.len(), 0, training))),
        }
    }

    /// Whether the classes are read from all layers.
    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Logits `[rows after the last layer, classes]` of a mini-batch, those of one type behind those of another: the
    /// logits of [`NodeClassifier::forward`] where all neighbours were taken.
    ///
    /// Graph convolution on one type estimates the sum over all neighbours ([`GcnConv::propagate_sampled`] and
    /// [`GcnConv::propagate_weighted_sample`]), means are those of the neighbours that were drawn; attention is among
    /// them and the node itself.
    ///
    /// # Shapes
    /// `blocks` has one entry per layer, of a batch that [`SampledInput`](crate::infer::sampled_input::SampledInput)
    /// was sampled for; `rows` are those before the first of them.
    ///
    /// # Panics
    /// For another number of layers or of rows, for rows without degrees where layers convolve, and for wavelets.
    pub fn forward_batch(&self, blocks: &[Block<B>], mut rows: BatchRows<B>, training: Training) -> Tensor<B, 2> {
        let (want, got) = (self.layers.len(), blocks.len());
        assert_eq!(want, got, "NodeClassifier: blocks: expected {want} layers of a batch, got {got}");
        let mut joined = Vec::new();
        for (at, block) in blocks.iter().enumerate() {
            let prepared = rows.x.into_iter().enumerate().map(|(t, x)| self.prepare(at, t, x, training));
            rows = self.propagate(at, block, BatchRows { x: prepared.collect(), ..rows }, training);
            joined = self.joined(joined, |t, before| block.destinations(t, before), &rows.x);
        }
        self.read_out(concatenated(if self.head.is_some() { joined } else { rows.x }), training)
    }

    /// What layer `at` makes of rows of type `t` before they meet their neighbours: some values are dropped, and on one
    /// node type with one relation the rows are projected.
    pub fn prepare(&self, at: usize, t: usize, x: Tensor<B, 2>, training: Training) -> Tensor<B, 2> {
        self.projected(at, NodeInput::Dense(x).dropped(drop_of(at, t, training)))
    }

    /// The same of rows some of whose values are dropped already.
    fn projected(&self, at: usize, x: NodeInput<B>) -> Tensor<B, 2> {
        match &self.layers[at] {
            NodeLayer::Gcn(conv) => x.project(conv.weight.val()),
            NodeLayer::Gat(conv) => x.project(conv.weight.val()),
            NodeLayer::Typed(_) | NodeLayer::Dense(_) | NodeLayer::Wavelets(_) => x.dense(),
        }
    }

    /// The rest of layer `at` in a mini-batch: from prepared rows before it to rows after it.
    ///
    /// # Panics
    /// As [`NodeClassifier::forward_batch`].
    pub fn propagate(
        &self,
        at: usize,
        block: &Block<B>,
        BatchRows { mut x, degree, neighbours }: BatchRows<B>,
        training: Training,
    ) -> BatchRows<B> {
        let edges = || match block.edges.first() {
            Some(edges) => edges,
            None => unreachable!("the nodes after a layer are among those before it, and there are some"),
        };
        let pass = pass_of(at, training);
        let degree = degree.map(|degree| block.nodes(degree));
        let after = degree.as_ref().map(|degree| degree.dst().clone());
        let neighbours = neighbours.map(|neighbours| block.nodes(neighbours).dst().clone());
        let y = match &self.layers[at] {
            NodeLayer::Gcn(conv) => {
                let degree =
                    degree.unwrap_or_else(|| panic!("NodeClassifier: rows.degree: expected one per row, got none"));
                let (edges, h) = (edges(), block.nodes(x.swap_remove(0)));
                let taken = || edges.csr.degrees().reshape([edges.csr.num_rows(), 1]);
                vec![match edges.weights() {
                    Some(weights) => {
                        let neighbours = neighbours.clone().unwrap_or_else(taken);
                        conv.propagate_weighted_sample(&edges.csr, h, degree, weights, &neighbours)
                    }
                    None => conv.propagate_sampled(&edges.csr, h, degree),
                }]
            }
            NodeLayer::Gat(conv) => {
                let pass = pass.map(|pass| pass.from_row(block.kept[0].first()));
                vec![conv.propagate(&edges().csr, block.nodes(x.swap_remove(0)), pass)]
            }
            NodeLayer::Typed(layer) => {
                let x: Vec<NodeInput<B>> = x.into_iter().map(NodeInput::Dense).collect();
                layer.forward(block, &x, self.edges.get(at), pass)
            }
            NodeLayer::Dense(_) | NodeLayer::Wavelets(_) => {
                panic!("NodeClassifier: layer: expected one of neighbours in mini-batches, got one of wavelets")
            }
        };
        BatchRows { x: y.into_iter().map(|y| self.activate(at, y)).collect(), degree: after, neighbours }
    }

    /// Channels after [`NodeClassifier::prepare`] of rows of `input` channels.
    pub fn prepared_width(&self, at: usize, input: usize) -> usize {
        match &self.layers[at] {
            NodeLayer::Gcn(conv) => conv.weight.val().dims()[1],
            NodeLayer::Gat(conv) => conv.weight.val().dims()[1],
            NodeLayer::Typed(_) | NodeLayer::Dense(_) | NodeLayer::Wavelets(_) => input,
        }
    }

    /// The end of layer `at`: normalised, if it is, and activated.
    fn activate(&self, at: usize, y: Tensor<B, 2>) -> Tensor<B, 2> {
        let activation = match self.kind {
            _ if self.head.is_none() && at + 1 == self.layers.len() || y.dims()[0] == 0 => return y,
            LayerKind::Gat => Activation::Elu,
            _ => Activation::Relu,
        };
        let y = match self.norms.get(at) {
            None => y,
            Some(norm) => norm.of(y),
        };
        combine(vec![y], None, 1.0, activation)
    }
}

/// The rows of all types that have some, as one matrix.
fn concatenated<B: Backend>(mut of_types: Vec<Tensor<B, 2>>) -> Tensor<B, 2> {
    if of_types.len() > 1 {
        of_types.retain(|rows| rows.dims()[0] > 0);
    }
    match of_types.len() {
        1 => of_types.swap_remove(0),
        _ => Tensor::cat(of_types, 0),
    }
}

/// The randomness of a training pass, and the share of the input values that every layer drops.
pub type Training = Option<(TrainingPass, f64)>;

fn pass_of(layer: usize, training: Training) -> Option<TrainingPass> {
    training.map(|(pass, _)| pass.layer(layer as u32))
}

/// What the inputs of node type `t` drop; the first type draws as the only one does.
fn drop_of(layer: usize, t: usize, training: Training) -> Option<Dropout> {
    let key = layer as u32 | (t as u32) << 16;
    training.and_then(|(pass, rate)| Dropout::new(rate, pass.seed, pass.step, key, INPUTS))
}

/// Stream of the dropout of a layer's inputs, as in the layers themselves.
const INPUTS: u32 = 0;

#[cfg(test)]
mod tests {
    use burn::tensor::activation::{elu, relu};
    use burn::tensor::{DType, TensorData};
    use burn_flex::{Flex, FlexDevice};
    use graphsieve_kernels::Csr;

    use std::sync::Arc;

    use super::*;
    use crate::config::{EdgeReads, TimeEncodingKind};
    use crate::graph::{Adjacency, EdgeMatrix, Features, HeteroGraph, RelationSpec};
    use crate::models::attention::edge_names;
    use crate::models::parameters::{HostTensor, to_host};

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
            attention: (layer == LayerKind::Gat).then_some(attention),
            ..ClassifierSpec::new(layer, [COLUMNS, 6, 3], 3)
        }
    }

    fn upload(graph: &HeteroGraph, features: &Features) -> Vec<NodeInput<Flex>> {
        NodeInput::upload(graph.node_types(), features, false, DType::F32, &FlexDevice).unwrap()
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
                _ => unreachable!("one type with one relation"),
            };
        }
        h
    }

    #[test]
    fn a_classifier_on_sparse_features_is_its_layers_on_dense_ones() {
        let value = |at: usize| if at.is_multiple_of(13) { 1.0 + (at % 5) as f32 } else { 0.0 };
        let values: Vec<f32> = (0..NODES * COLUMNS).map(value).collect();
        let dense = Tensor::from_data(TensorData::new(values.clone(), [NODES, COLUMNS]), &FlexDevice);
        let input = upload(&graph(), &Features::from_f32(values, NODES, COLUMNS));
        assert!(matches!(input[0], NodeInput::Sparse { .. }));
        let graph = DeviceGraph::<Flex>::upload(&graph(), &FlexDevice).unwrap();
        for spec in [spec(LayerKind::Gcn, 1), spec(LayerKind::Gat, 1), spec(LayerKind::Gat, 4)] {
            let model = NodeClassifier::new(&spec, &mut Parameters::from_seed(5, &FlexDevice), &FlexDevice).unwrap();
            let (got, want) =
                (model.forward(&graph, &input, None), chained(&model, &graph.relations[0].csr, dense.clone()));
            assert_eq!(got.dims(), [NODES, 3]);
            let (got, want) = (to_host(got), to_host(want));
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4 * b.abs().max(1.0)), "{spec:?}");
            assert!(want.iter().any(|v| v.abs() > 1e-3));
        }
    }

    /// 18 nodes of type a and 12 of type b, that a buys and that are bought, and edges among a with some loops.
    fn typed_graph() -> HeteroGraph {
        let edges = |count: u32, rows: u32, cols: u32| -> Vec<(u32, u32)> {
            (0..count).map(|k| (k * k % (rows - 1), (3 * k + k / 5) % cols)).collect()
        };
        let spec = |name: &str, src: usize, dst: usize, count: u32| {
            let [cols, rows] = [src, dst].map(|t| [18, 12][t]);
            let adjacency = Adjacency::from_edges(rows, cols, &edges(count, rows as u32, cols as u32));
            RelationSpec { name: name.into(), src, dst, stream: name.into(), primary: false, adjacency }
        };
        let relations = vec![spec("buys", 0, 1, 40), spec("bought", 1, 0, 30), spec("knows", 0, 0, 50)];
        HeteroGraph::new(vec![("a".into(), 18), ("b".into(), 12)], relations).unwrap()
    }

    /// The formula of a typed layer in f64, one head: `x` `[30, input]` by global id. `carried` has the projection and
    /// the vector of the values of a relation's edges.
    fn dense_layer(
        graph: &HeteroGraph,
        export: &dyn Fn(&str) -> Vec<f64>,
        carried: &dyn Fn(&str) -> Option<[Vec<f64>; 2]>,
        x: &[Vec<f64>],
        attention: bool,
    ) -> Vec<Vec<f64>> {
        let times = |x: &[f64], w: &[f64]| -> Vec<f64> {
            let width = w.len() / x.len();
            (0..width).map(|c| x.iter().enumerate().map(|(i, x)| x * w[i * width + c]).sum()).collect()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let offset = |t: usize| graph.node_types()[t].offset;
        let mut y: Vec<Vec<f64>> = (0..x.len())
            .map(|node| {
                let t = graph.type_of(node);
                let own = times(&x[node], &export(&format!("own.{t}.weight")));
                own.iter().zip(export(&format!("own.{t}.bias"))).map(|(y, b)| y + b).collect()
            })
            .collect();
        for (r, relation) in graph.relations().iter().enumerate() {
            let weight = export(&format!("relations.{r}.weight"));
            for row in 0..relation.forward.num_rows() {
                let sources = relation.forward.row(row);
                let mut h: Vec<Vec<f64>> =
                    sources.iter().map(|&j| times(&x[offset(relation.src) + j as usize], &weight)).collect();
                let edges: Option<(Vec<Vec<f64>>, Vec<f64>)> = carried(&relation.name).map(|[weight, vector]| {
                    // `[output, values]`, as in Stage 2.
                    let values = relation.values.as_ref().unwrap();
                    let of = |entry: usize| {
                        let e: Vec<f64> = values.row(entry).iter().map(|&e| f64::from(e)).collect();
                        weight.chunks(e.len()).map(|row| dot(row, &e)).collect()
                    };
                    (relation.forward.entries(row).map(of).collect(), vector)
                });
                let of_edge = |at: usize| edges.as_ref().map_or(0.0, |(messages, vector)| dot(vector, &messages[at]));
                let share: Vec<f64> = if attention {
                    let [of_src, of_dst] = ["att_src", "att_dst"].map(|name| export(&format!("relations.{r}.{name}")));
                    let own = dot(&of_dst, &times(&x[offset(relation.dst) + row], &weight));
                    let logits = h.iter().enumerate().map(|(at, h)| own + dot(&of_src, h) + of_edge(at));
                    let exp: Vec<f64> = logits.map(|z| if z > 0.0 { z } else { 0.2 * z }.exp()).collect();
                    exp.iter().map(|e| e / exp.iter().sum::<f64>()).collect()
                } else {
                    vec![1.0 / sources.len() as f64; sources.len()]
                };
                for (h, message) in h.iter_mut().zip(edges.iter().flat_map(|(messages, _)| messages)) {
                    h.iter_mut().zip(message).for_each(|(h, message)| *h += message);
                }
                for (h, share) in h.iter().zip(share) {
                    y[offset(relation.dst) + row].iter_mut().zip(h).for_each(|(y, h)| *y += share * h);
                }
            }
        }
        y
    }

    #[test]
    fn relations_and_the_node_itself_are_added_up() {
        let mut graph = typed_graph();
        let edges = graph.relations()[0].forward.num_edges();
        let of_edges = (0..2 * edges).map(|k| ((k * 5) % 17) as f32 / 8.0 - 1.0).collect();
        graph.set_edge_values("buys", Arc::new(EdgeMatrix::new(of_edges, 2)));
        let values: Vec<f32> = (0..NODES * COLUMNS).map(|k| ((k * 7) % 23) as f32 / 11.0 - 1.0).collect();
        let features = Features::from_f32(values.clone(), NODES, COLUMNS);
        let all = [(LayerKind::Gcn, None, false), (LayerKind::Gat, Some(1), false), (LayerKind::Gat, Some(1), true)];
        for (layer, heads, reads) in all {
            let attention =
                heads.map(|heads| AttentionShape { heads, out_heads: 1, negative_slope: 0.2, dropout: 0.5 });
            let spec = ClassifierSpec { attention, layers: 2, ..spec(layer, 1) }.over(&graph).unwrap();
            let reads = EdgeReads { values: reads, time: TimeEncodingKind::None, frequencies: 8 };
            let spec = spec.with_edges_of(reads, &graph);
            let graph = spec.reading(graph.clone(), &features);
            let model = NodeClassifier::new(&spec, &mut Parameters::from_seed(5, &FlexDevice), &FlexDevice).unwrap();
            let on_device = DeviceGraph::<Flex>::upload(&graph, &FlexDevice).unwrap();
            let got = to_host(model.forward(&on_device, &upload(&graph, &features), None));
            let tensors = model.export(&spec).0;
            assert_eq!(tensors.contains_key("gat1.W_edge_buys.weight"), reads.values);
            let mut h: Vec<Vec<f64>> =
                values.chunks(COLUMNS).map(|row| row.iter().map(|&v| f64::from(v)).collect()).collect();
            for at in 0..2 {
                let wide = |tensor: &HostTensor| tensor.values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
                let values = |name: &str| wide(&tensors[&format!("layers.{at}.{name}")]);
                let carried = |relation: &str| {
                    let [weight, vector] = edge_names(at, relation).map(|name| tensors.get(&name).map(wide));
                    Some([weight?, vector?])
                };
                h = dense_layer(&graph, &values, &carried, &h, layer == LayerKind::Gat);
                let activation = |z: f64| match layer {
                    _ if at == 1 || z > 0.0 => z,
                    LayerKind::Gat => z.exp_m1(),
                    _ => 0.0,
                };
                h.iter_mut().flatten().for_each(|z| *z = activation(*z));
            }
            let want: Vec<f64> = h.into_iter().flatten().collect();
            assert_eq!(got.len(), want.len());
            let close = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs() < 1e-5 * want.abs().max(1.0);
            assert!(got.iter().zip(&want).all(close), "{layer:?}: {got:?} {want:?}");
            let other = HeteroGraph::new(vec![("a".into(), 18), ("c".into(), 12)], Vec::new()).unwrap();
            let fault = spec.check_graph(&other, "best.bpk".as_ref()).unwrap_err().to_string();
            assert!(fault.contains("types a, b; relations buys, bought, knows"), "{fault}");
        }
    }

    #[test]
    fn probabilities_add_up_to_one_whatever_the_logits() {
        let rows = probabilities(&[1e4, 0.0, -1e4, 0.0, 0.0, 0.0], 3);
        assert_eq!(rows[..3], [1.0, 0.0, 0.0]);
        assert!(rows[3..].iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-7));
    }
}
