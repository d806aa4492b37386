//! Explanations of node classifiers against the models themselves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::DType;
use burn_flex::{Flex, FlexDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::super::parameters::of_classifier;
use super::super::*;
use super::{ALL, assert_adds_up};
use crate::config::{EdgeReads, Jump, LayerKind, Norm, TimeEncodingKind};
use crate::graph::{Adjacency, Ages, EdgeMatrix, Features, HeteroGraph, RelationSpec};
use crate::models::attention::{Connections, EdgeInput};
use crate::models::device_graph::DeviceGraph;
use crate::models::node_classifier::{AttentionShape, ClassifierSpec, EdgeCut, NodeClassifier};
use crate::models::node_input::NodeInput;
use crate::models::parameters::{HostTensor, Parameters, to_host};

const NODES: usize = 13;
const COLUMNS: usize = 6;
const CLASSES: usize = 3;

/// Edges both ways and one way, some repeated, and loops; the last node has no edge but its loop.
fn graph() -> HeteroGraph {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let last = NODES as u32 - 1;
    let mut edges: Vec<(u32, u32)> = (0..last).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
    edges.retain(|_| rng.random_bool(0.3));
    let both = edges.iter().skip(5).map(|&(a, b)| (b, a)).collect::<Vec<_>>();
    edges.extend(both.into_iter().chain([(0, 0), (4, 4), (4, 4), (last, last), (3, 7), (3, 7)]));
    edges.sort_unstable();
    let mut row_ptr = vec![0u64; NODES + 1];
    edges.iter().for_each(|&(row, _)| row_ptr[row as usize + 1..].iter_mut().for_each(|end| *end += 1));
    let adjacency = Adjacency::new(row_ptr, edges.into_iter().map(|(_, col)| col).collect(), NODES).unwrap();
    let spec = RelationSpec::new("edge", 0, 0, adjacency);
    HeteroGraph::new(vec![("node".into(), NODES)], vec![spec]).unwrap()
}

/// Users, products, and a shop without any edge into it.
const TYPES: [usize; 3] = [8, 5, 1];

fn typed_graph() -> HeteroGraph {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut spec = |name: &str, src: usize, dst: usize, share: f64| {
        let all = (0..TYPES[dst] as u32).flat_map(|row| (0..TYPES[src] as u32).map(move |col| (row, col)));
        let mut edges: Vec<(u32, u32)> = all.filter(|_| rng.random_bool(share)).collect();
        edges.extend(edges.last().copied());
        let mut row_ptr = vec![0u64; TYPES[dst] + 1];
        edges.iter().for_each(|&(row, _)| row_ptr[row as usize + 1..].iter_mut().for_each(|end| *end += 1));
        let adjacency = Adjacency::new(row_ptr, edges.into_iter().map(|(_, col)| col).collect(), TYPES[src]).unwrap();
        RelationSpec { name: name.into(), src, dst, stream: name.into(), primary: false, adjacency }
    };
    let relations =
        vec![spec("buys", 0, 1, 0.4), spec("bought", 1, 0, 0.4), spec("knows", 0, 0, 0.4), spec("sells", 2, 1, 0.6)];
    let types = ["user", "product", "shop"].into_iter().zip(TYPES).map(|(name, count)| (name.into(), count));
    HeteroGraph::new(types.collect(), relations).unwrap()
}

fn features(graph: &HeteroGraph) -> Features {
    let (mut rng, nodes) = (ChaCha8Rng::seed_from_u64(5), graph.num_nodes());
    let mut values: Vec<f32> = (0..nodes * COLUMNS).map(|_| rng.random_range(-1.0..1.0)).collect();
    // A row of zeros, which cannot be divided.
    values[COLUMNS..2 * COLUMNS].fill(0.0);
    Features::from_f32(values, nodes, COLUMNS)
}

fn spec(layer: LayerKind, layers: usize, heads: [usize; 2], row_normalise: bool) -> ClassifierSpec {
    let [heads, out_heads] = heads;
    let shape = AttentionShape { heads, out_heads, negative_slope: 0.2, dropout: 0.5 };
    ClassifierSpec {
        attention: (layer == LayerKind::Gat).then_some(shape),
        row_normalise,
        directed: true,
        ..ClassifierSpec::new(layer, [COLUMNS, 8, CLASSES], layers)
    }
}

/// A model of that shape, all of whose values are random, biases too.
struct Trained {
    spec: ClassifierSpec,
    tensors: BTreeMap<String, HostTensor>,
}

impl Trained {
    fn new(spec: ClassifierSpec) -> Self {
        let model =
            NodeClassifier::<Flex>::new(&spec, &mut Parameters::from_seed(1, &FlexDevice), &FlexDevice).unwrap();
        let (mut tensors, mut rng) = (model.export(&spec).0, ChaCha8Rng::seed_from_u64(2));
        tensors.values_mut().flat_map(|t| &mut t.values).for_each(|value| *value = rng.random_range(-1.0..1.0));
        Self { spec, tensors }
    }

    /// Of the model itself, `[nodes, classes]`.
    fn logits(&self, graph: &HeteroGraph) -> Vec<f32> {
        let mut parameters = Parameters::from_tensors(&self.tensors, Path::new("best.bpk"), &FlexDevice);
        let model = NodeClassifier::<Flex>::new(&self.spec, &mut parameters, &FlexDevice).unwrap();
        let (types, features) = (graph.node_types(), features(graph));
        let x = NodeInput::upload(types, &features, self.spec.row_normalise, DType::F32, &FlexDevice).unwrap();
        to_host(model.forward(&DeviceGraph::upload(graph, &FlexDevice).unwrap(), &x, None))
    }

    fn explain(&self, graph: &HeteroGraph, node: u32, head: &Head) -> Attributed {
        let (network, read_out) = of_classifier(&self.spec, &self.tensors, graph);
        let head = read_out.map_or_else(|| head.clone(), |read_out| read_out.before(head));
        let edges = Edges::new(graph, &network);
        View { network: &network, edges: &edges, features: &features(graph) }.explain(node, &head, ALL)
    }
}

/// A class less the mean of the others.
fn head(class: usize) -> Head {
    let weights = (0..CLASSES).map(|c| if c == class { 1.0 } else { -0.5 }).collect();
    Head { weights, bias: 0.0, joined: Joined::Nothing }
}

fn margin(logits: &[f32], node: u32, head: &Head) -> f64 {
    let row = &logits[node as usize * CLASSES..][..CLASSES];
    row.iter().zip(&head.weights).map(|(&logit, weight)| f64::from(logit) * weight).sum()
}

/// Explains every node of every model, and takes the edges to every neighbour away.
fn check(graph: &HeteroGraph, specs: impl IntoIterator<Item = ClassifierSpec>) {
    for spec in specs {
        let model = Trained::new(spec.over(graph).unwrap());
        let logits = model.logits(graph);
        let mut removed = 0;
        for node in 0..graph.num_nodes() as u32 {
            let head = head(node as usize % CLASSES);
            let (found, expected) = (model.explain(graph, node, &head), margin(&logits, node, &head));
            assert!((found.logit - expected).abs() < 1e-4, "{:?}, node {node}: {expected}", model.spec);
            assert_adds_up(node, &found, found.logit);
            let paths = found.entries.iter().flat_map(|entry| &entry.paths);
            let paths: f64 = paths.map(|path| path.contribution).sum();
            let of_values: f64 = found.entries.iter().map(|entry| entry.of_values).sum();
            if model.spec.layers == 2 && model.spec.order.is_none() {
                assert!((found.base + found.biases + paths + of_values - found.logit).abs() < 1e-9);
            }
            for entry in found.entries.iter().filter(|entry| entry.source != node) {
                let ends = (node.min(entry.source), node.max(entry.source));
                let cut = graph.without_pairs(|a, b| (a, b) == ends);
                let removal = entry.removal.unwrap();
                let anew = found.logit - model.explain(&cut, node, &head).logit;
                let of_model = expected - margin(&model.logits(&cut), node, &head);
                assert!((removal - anew).abs() < 1e-9, "{:?}, node {node}: {removal} and {anew}", model.spec);
                assert!((removal - of_model).abs() < 1e-4, "{:?}, node {node}: {removal}, {of_model}", model.spec);
                removed += 1;
            }
        }
        assert!(removed > 2 * NODES, "{removed} removals prove little");
    }
}

#[test]
fn graph_convolution_is_explained_as_it_computes() {
    check(&graph(), [1, 2, 3, 4].map(|layers| spec(LayerKind::Gcn, layers, [1, 1], layers % 2 == 0)));
}

/// The same graph, the edges of some of whose relations have weights: the first two in seven weigh nothing, and neither
/// do all into the third node.
fn with_weights(mut graph: HeteroGraph, relations: &[&str]) -> HeteroGraph {
    for name in relations {
        let of = graph.relations().iter().find(|of| of.name == *name).unwrap().forward.clone();
        let weight = |entry: usize| if of.entries(2).contains(&entry) { 0.0 } else { (entry % 7).max(1) as f32 - 1.0 };
        let weights = (0..of.num_edges()).map(weight).collect();
        graph.set_edge_weights(name, Arc::new(EdgeMatrix::new(weights, 1)));
    }
    graph
}

#[test]
fn weights_of_edges_are_explained_as_they_compute() {
    let typed = with_weights(typed_graph(), &["buys", "knows"]);
    for graph in [with_weights(graph(), &["edge"]), typed] {
        let of =
            |layers| spec(LayerKind::Gcn, layers, [1, 1], layers == 2).over(&graph).unwrap().with_weights_of(&graph);
        let specs = [1, 2, 3].map(of);
        assert!(!specs[0].weighted.is_empty());
        let features = features(&graph);
        let read = specs[0].reading(graph.clone(), &features);
        let logits = |spec: &ClassifierSpec, graph: &HeteroGraph| Trained::new(spec.clone()).logits(graph);
        let plain = specs[0].reading(graph.clone(), &features).with_weights_as_values(|_| false, None);
        assert_ne!(logits(&specs[0], &read), logits(&specs[0], &plain), "weights say something");
        check(&read, specs);
    }
}

#[test]
fn graph_attention_is_explained_as_it_computes() {
    check(
        &graph(),
        [(1, [1, 2]), (2, [2, 1]), (2, [4, 3]), (3, [2, 2])].map(|(layers, heads)| {
            let row_normalise = layers == 3;
            spec(LayerKind::Gat, layers, heads, row_normalise)
        }),
    );
}

#[test]
fn relations_and_the_nodes_own_transform_are_explained_as_they_compute() {
    let attention = [(2, [2, 3]), (3, [4, 1])].map(|(layers, heads)| spec(LayerKind::Gat, layers, heads, layers == 3));
    let means = [1, 2, 3].map(|layers| spec(LayerKind::Gcn, layers, [1, 1], layers == 2));
    check(&typed_graph(), means.into_iter().chain(attention));
}

/// The same graph, edges of some of whose relations have two values, and those among the first type ages.
fn with_values_and_ages(mut graph: HeteroGraph) -> HeteroGraph {
    let edges: Vec<(String, usize)> =
        graph.relations().iter().map(|of| (of.name.clone(), of.forward.num_edges())).collect();
    let matrix = |count: usize, width: usize| {
        let value = |at: usize| ((at * 7 + 3) % 11) as f32 / 5.0;
        Arc::new(EdgeMatrix::new((0..count * width).map(value).collect(), width))
    };
    graph.set_edge_values(&edges[0].0, matrix(edges[0].1, 2));
    let (last, count) = &edges[edges.len() - 1];
    graph.set_ages(last, Ages::Edges(matrix(*count, 1)));
    graph
}

#[test]
fn values_and_ages_of_edges_are_explained_as_they_compute() {
    for graph in [with_values_and_ages(graph()), with_values_and_ages(typed_graph())] {
        let reads = EdgeReads { values: true, time: TimeEncodingKind::Learned, frequencies: 2 };
        let of = |(layers, heads)| spec(LayerKind::Gat, layers, heads, false).over(&graph).unwrap();
        let specs = [(1, [1, 2]), (2, [4, 3])].map(of).map(|spec| spec.with_edges_of(reads, &graph));
        let input = |of: fn(&EdgeInput) -> bool| specs[0].edges.iter().flatten().any(of);
        assert!(input(|input| input.width == 2) && input(|input| input.time.is_some()));
        check(&graph, specs);
    }
}

#[test]
fn means_beside_the_node_itself_are_explained_as_they_compute() {
    for graph in [graph(), typed_graph()] {
        let sage = |layers, residual, jump| {
            let connections = Connections { residual, jump, ..Connections::default() };
            ClassifierSpec { connections, ..spec(LayerKind::Sage, layers, [1, 1], layers == 2) }
        };
        let specs = [(1, false, Jump::None), (2, true, Jump::None), (3, true, Jump::None)];
        let joined = [(1, false, Jump::Concat), (2, false, Jump::Concat), (3, true, Jump::Concat)];
        check(&graph, specs.into_iter().chain(joined).map(|(layers, residual, jump)| sage(layers, residual, jump)));
    }
    let graph = with_weights(graph(), &["edge"]);
    let sage = spec(LayerKind::Sage, 2, [1, 1], false).with_weights_of(&graph);
    let features = features(&graph);
    check(&sage.reading(graph, &features), [sage]);
}

#[test]
fn differences_from_neighbours_are_explained_as_they_compute() {
    for graph in [graph(), typed_graph()] {
        let apart = |layers, residual, jump| {
            let connections = Connections { residual, jump, ..Connections::default() };
            ClassifierSpec { connections, ..spec(LayerKind::Difference, layers, [1, 1], false) }
        };
        check(&graph, [apart(1, false, Jump::None), apart(2, true, Jump::None), apart(2, false, Jump::Concat)]);
    }
}

#[test]
fn normalised_rows_are_explained_as_they_compute() {
    let normalised = |layer, layers, jump| {
        let connections = Connections { norm: Norm::Layer, jump, residual: layers > 2, ..Connections::default() };
        ClassifierSpec { connections, ..spec(layer, layers, [2, 1], false) }
    };
    for graph in [graph(), typed_graph()] {
        let (sage, apart) = (LayerKind::Sage, LayerKind::Difference);
        let specs = [(sage, 2, Jump::None), (sage, 3, Jump::Concat), (apart, 2, Jump::Concat)];
        check(&graph, specs.map(|(layer, layers, jump)| normalised(layer, layers, jump)));
    }
    check(&graph(), [LayerKind::Gcn, LayerKind::Gat].map(|layer| normalised(layer, 2, Jump::None)));
}

#[test]
fn nodes_two_edges_away_are_one_more_relation() {
    let connections = Connections { jump: Jump::Concat, ..Connections::default() };
    let h2gcn = ClassifierSpec { two_hops: Some(0), connections, ..spec(LayerKind::H2gcn, 2, [1, 1], false) };
    let features = features(&graph());
    let graph = h2gcn.reading(graph(), &features);
    let model = Trained::new(h2gcn);
    let (logits, mut of_two) = (model.logits(&graph), 0);
    for node in 0..NODES as u32 {
        let head = head(1);
        let found = model.explain(&graph, node, &head);
        assert!((found.logit - margin(&logits, node, &head)).abs() < 1e-4);
        assert_adds_up(node, &found, found.logit);
        of_two += found.entries.iter().filter(|entry| entry.relation == Some(1)).count();
    }
    assert!(of_two > NODES);
}

#[test]
fn wavelets_are_explained_as_they_compute() {
    let wavelets = |layer, layers, order, norm| {
        let connections = Connections { norm, ..Connections::default() };
        ClassifierSpec { order: Some(order), connections, ..spec(layer, layers, [1, 1], order == 1) }
    };
    // The second relation leads the other way, so that some nodes have no edge into them over one of both.
    let relation = |name: &str, adjacency| RelationSpec::new(name, 0, 0, adjacency);
    let one_way = Adjacency::from_edges(NODES, NODES, &[(1, 0), (2, 0), (5, 1), (7, 3), (3, 7), (8, 2), (4, 4)]);
    let both = vec![relation("other", one_way), relation("edge", Adjacency::clone(&graph().relations()[0].forward))];
    let typed = HeteroGraph::new(vec![("node".into(), NODES)], both).unwrap();
    let bw = [(1, 1, Norm::None), (1, 2, Norm::Layer), (1, 3, Norm::None), (2, 2, Norm::None)];
    let bw = || bw.map(|(layers, order, norm)| wavelets(LayerKind::Bw, layers, order, norm));
    check(&graph(), bw());
    check(&typed, bw());
    let features = features(&typed);
    let cut = EdgeCut::fit(0.2, &features, &(0..NODES as u32).map(|node| (node, node % 2)).collect::<Vec<_>>());
    let ghrn = ClassifierSpec { cut: Some(cut.unwrap()), ..wavelets(LayerKind::Ghrn, 1, 2, Norm::None) };
    let left = ghrn.reading(typed.clone(), &features);
    assert!(left.num_edges() < typed.num_edges(), "some edges are cut");
    check(&left, [ghrn]);
}

#[test]
fn a_type_that_nothing_points_at_has_its_own_transform_alone() {
    let graph = typed_graph();
    let model = Trained::new(spec(LayerKind::Gcn, 2, [1, 1], false).over(&graph).unwrap());
    let found = model.explain(&graph, graph.num_nodes() as u32 - 1, &head(0));
    assert!(matches!(&found.entries[..], [entry] if entry.relation.is_none()));
    assert!((found.base + found.biases + found.own_features - found.logit).abs() < 1e-12);
    assert!(found.by_type.iter().all(|of_type| of_type.abs() < 1e-12), "{:?}", found.by_type);
}

#[test]
fn the_last_bias_is_the_base_and_the_others_are_told_apart() {
    let (graph, head) = (graph(), head(1));
    for layer in [LayerKind::Gcn, LayerKind::Gat] {
        let mut model = Trained::new(spec(layer, 2, [2, 1], false));
        let bias = model.tensors["layers.1.bias"].values.clone();
        let expected = margin(&bias, 0, &head);
        for node in 0..NODES as u32 {
            let found = model.explain(&graph, node, &head);
            assert!((found.base - expected).abs() < 1e-12);
            assert_ne!(found.biases, 0.0);
        }
        model.tensors.get_mut("layers.0.bias").unwrap().values.fill(0.0);
        assert_eq!(model.explain(&graph, 0, &head).biases, 0.0);
    }
}

#[test]
fn a_node_without_neighbours_has_itself_alone() {
    let (graph, last) = (graph(), NODES as u32 - 1);
    for layer in [LayerKind::Gcn, LayerKind::Gat] {
        let found = Trained::new(spec(layer, 2, [2, 2], false)).explain(&graph, last, &head(0));
        let [own] = &found.entries[..] else { panic!("{:?}", found.entries) };
        assert_eq!((own.relation, own.source, own.removal), (Some(0), last, None));
        assert_eq!(found.by_type, [0.0]);
        assert!((found.base + own.contribution - found.logit).abs() < 1e-12);
        assert_eq!(own.attention.is_some(), layer == LayerKind::Gat, "a convolution has no attention");
    }
}
