//! Layers with a transform of the node itself, and wavelets, against dense loops in f64: values and gradients.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::Path;

use burn::backend::Autodiff;
use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor};
use burn_flex::{Flex, FlexDevice};
use graphsieve_kernels::autodiff_turn;

use super::*;
use crate::config::{Jump, Norm};
use crate::graph::{Adjacency, Features, HeteroGraph, RelationSpec};
use crate::models::attention::Connections;
use crate::models::parameters::to_host;
use crate::splitmix::mix;

const COLUMNS: usize = 5;
const HIDDEN: usize = 4;
const CLASSES: usize = 3;

type Rows = Vec<Vec<f64>>;

/// A number in [-1, 1).
fn number(at: usize) -> f32 {
    (mix(at as u64) % 2_000) as f32 / 1_000.0 - 1.0
}

fn edges(count: usize, rows: usize, cols: usize) -> Vec<(u32, u32)> {
    (0..count as u64).map(|k| ((mix(3 * k) % rows as u64) as u32, (mix(3 * k + 1) % cols as u64) as u32)).collect()
}

fn relation(name: &str, [src, dst]: [usize; 2], [cols, rows]: [usize; 2], edges: &[(u32, u32)]) -> RelationSpec {
    let adjacency = Adjacency::from_edges(rows, cols, edges);
    RelationSpec { name: name.into(), src, dst, stream: name.into(), primary: true, adjacency }
}

/// Directed, with a loop; the last node has no in-neighbour.
fn graph() -> HeteroGraph {
    let edges = [edges(30, 12, 13), vec![(4, 4)]].concat();
    HeteroGraph::new(vec![("node".into(), 13)], vec![relation("edge", [0, 0], [13, 13], &edges)]).unwrap()
}

fn typed_graph() -> HeteroGraph {
    let relations = vec![
        relation("buys", [0, 1], [9, 6], &edges(20, 5, 9)),
        relation("bought", [1, 0], [6, 9], &edges(15, 9, 6)),
        relation("knows", [0, 0], [9, 9], &edges(20, 8, 9)),
    ];
    HeteroGraph::new(vec![("a".into(), 9), ("b".into(), 6)], relations).unwrap()
}

/// One node type with two relations.
fn multi_graph() -> HeteroGraph {
    let relations =
        [("likes", 25), ("follows", 18)].map(|(name, count)| relation(name, [0, 0], [11, 11], &edges(count, 10, 11)));
    HeteroGraph::new(vec![("node".into(), 11)], relations.into()).unwrap()
}

fn spec(layer: LayerKind, layers: usize, residual: bool, jump: Jump) -> ClassifierSpec {
    ClassifierSpec {
        directed: true,
        connections: Connections { residual, jump, ..Connections::default() },
        order: layer.is_wavelets().then_some(2),
        two_hops: (layer == LayerKind::H2gcn).then_some(0),
        cut: (layer == LayerKind::Ghrn).then(|| cut(0.2)),
        ..ClassifierSpec::new(layer, [COLUMNS, HIDDEN, CLASSES], layers)
    }
}

/// A rule fitted to numbers that tell nothing of the graph.
fn cut(share: f64) -> EdgeCut {
    let nodes = 9;
    let features = Features::from_f32((0..nodes * COLUMNS).map(|at| number(900 + at)).collect(), nodes, COLUMNS);
    EdgeCut::fit(share, &features, &(0..9).map(|node| (node, node % 2)).collect::<Vec<_>>()).unwrap()
}

/// The graph without its most unlike edges, by dense matrices: of every relation the pairs of nodes with the lowest
/// scores, whole pairs, while their edges are at most the share of all.
fn without_unlike(graph: &HeteroGraph, cut: &EdgeCut, x: &[f32]) -> HeteroGraph {
    let nodes = graph.num_nodes();
    let rows = ndarray::Array2::from_shape_vec((nodes, COLUMNS), x.to_vec()).unwrap();
    let y: Vec<f64> = cut.prediction.scores(rows.view()).into_iter().map(f64::from).collect();
    let of = |relation: &crate::graph::Relation| {
        let mut dense = vec![vec![0.0; nodes]; nodes];
        for (node, row) in dense.iter_mut().enumerate() {
            relation.forward.row(node).iter().for_each(|&j| row[j as usize] += 1.0);
        }
        let degree: Vec<f64> = dense.iter().map(|row| row.iter().sum::<f64>().max(1.0)).collect();
        let signal = |node: usize| [1.0 - y[node], y[node]];
        let high: Vec<[f64; 2]> = (0..nodes)
            .map(|i| {
                let low = |c: usize| {
                    (0..nodes).map(|j| dense[i][j] / (degree[i] * degree[j]).sqrt() * signal(j)[c]).sum::<f64>()
                };
                [signal(i)[0] - low(0), signal(i)[1] - low(1)]
            })
            .collect();
        let pairs = (0..nodes).flat_map(|i| (0..i).map(move |j| (i, j)));
        let joined = |dense: &Rows, i: usize, j: usize| dense[i][j] + dense[j][i];
        let score = |i: usize, j: usize| high[i][0] * high[j][0] + high[i][1] * high[j][1];
        let mut pairs: Vec<(usize, usize)> = pairs.filter(|&(i, j)| joined(&dense, i, j) > 0.0).collect();
        pairs.sort_by(|&(a, b), &(c, d)| score(a, b).total_cmp(&score(c, d)));
        let mut left = (cut.share * pairs.iter().map(|&(i, j)| joined(&dense, i, j)).sum::<f64>()).floor();
        for (i, j) in pairs {
            left -= joined(&dense, i, j);
            if left < 0.0 {
                break;
            }
            (dense[i][j], dense[j][i]) = (0.0, 0.0);
        }
        let edges = (0..nodes).flat_map(|i| (0..nodes).map(move |j| (i, j)));
        let edges: Vec<(u32, u32)> =
            edges.filter(|&(i, j)| dense[i][j] > 0.0).map(|(i, j)| (i as u32, j as u32)).collect();
        self::relation(&relation.name, [0, 0], [nodes, nodes], &edges)
    };
    let relations = graph.relations().iter().map(of).collect();
    HeteroGraph::new(vec![("node".into(), nodes)], relations).unwrap()
}

/// The formulas of [`NodeClassifier`], node by node.
struct Oracle<'a> {
    spec: &'a ClassifierSpec,
    graph: &'a HeteroGraph,
    x: Rows,
}

fn times(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let width = weight.len() / x.len();
    (0..width).map(|c| x.iter().enumerate().map(|(i, x)| x * weight[i * width + c]).sum()).collect()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

impl Oracle<'_> {
    fn dense(&self, values: &BTreeMap<String, Vec<f64>>, name: &str, x: &Rows) -> Rows {
        let (weight, bias) = (&values[&format!("{name}.weight")], &values[&format!("{name}.bias")]);
        let of = |x: &Vec<f64>| {
            let mut y = times(x, weight);
            add(&mut y, 1.0, bias);
            y
        };
        x.iter().map(of).collect()
    }

    /// The mean over the sources of a row; nothing where there are none.
    fn mean(&self, relation: usize, row: usize, x: &Rows) -> Option<Vec<f64>> {
        let of = &self.graph.relations()[relation];
        let (sources, first) = (of.forward.row(row), self.graph.node_types()[of.src].offset);
        let mut mean = vec![0.0; x[0].len()];
        sources.iter().for_each(|&j| add(&mut mean, 1.0 / sources.len() as f64, &x[first + j as usize]));
        (!sources.is_empty()).then_some(mean)
    }

    fn layer(&self, values: &BTreeMap<String, Vec<f64>>, at: usize, x: &Rows) -> Rows {
        let of = |node: usize| {
            let t = self.graph.type_of(node);
            let own = format!("layers.{at}.own.{t}");
            let mut z = self.dense(values, &own, &vec![x[node].clone()]).swap_remove(0);
            if self.spec.connections.residual && z.len() == x[node].len() {
                add(&mut z, 1.0, &x[node]);
            }
            for (r, relation) in self.graph.relations().iter().enumerate().filter(|(_, of)| of.dst == t) {
                let weight = &values[&format!("layers.{at}.relations.{r}.weight")];
                let Some(mean) = self.mean(r, node - self.graph.node_types()[relation.dst].offset, x) else { continue };
                let arrived = times(&mean, weight);
                let width = z.len();
                add(&mut z, 1.0, &arrived[..width]);
                if self.spec.layer == LayerKind::Difference {
                    let apart: Vec<f64> = x[node].iter().zip(&mean).map(|(x, mean)| x - mean).collect();
                    let apart: Vec<f64> = times(&apart, weight)[width..].iter().map(|d| d.abs()).collect();
                    add(&mut z, 1.0, &apart);
                }
            }
            z
        };
        (0..x.len()).map(of).collect()
    }

    /// `[F_0 x, ..., F_C x] W`, the filters as dense matrices.
    fn wavelets(&self, values: &BTreeMap<String, Vec<f64>>, at: usize, x: &Rows) -> Rows {
        let (order, nodes) = (self.spec.order.unwrap(), x.len());
        let mut y = vec![vec![0.0; HIDDEN]; nodes];
        for (r, relation) in self.graph.relations().iter().enumerate() {
            let degree = |node: usize| relation.forward.row(node).len().max(1) as f64;
            let mut half = vec![vec![0.0; nodes]; nodes];
            for (node, row) in half.iter_mut().enumerate() {
                row[node] += 0.5;
                for &j in relation.forward.row(node) {
                    row[j as usize] -= 0.5 / (degree(node) * degree(j as usize)).sqrt();
                }
            }
            let product = |x: &Rows| -> Rows {
                let row = |of: &Vec<f64>| {
                    let mut sum = vec![0.0; x[0].len()];
                    of.iter().zip(x).for_each(|(&w, x)| add(&mut sum, w, x));
                    sum
                };
                half.iter().map(row).collect()
            };
            let factorial = |n: usize| (1..=n).map(|k| k as f64).product::<f64>();
            for p in 0..=order {
                let mut filtered = x.clone();
                (0..p).for_each(|_| filtered = product(&filtered));
                for _ in p..order {
                    let other = product(&filtered);
                    filtered.iter_mut().zip(&other).for_each(|(row, other)| add(row, -1.0, other));
                }
                let scale = factorial(order + 1) / (2.0 * factorial(p) * factorial(order - p));
                let block = HIDDEN * HIDDEN;
                let weight = &values[&format!("layers.{at}.relations.{r}.weight")][p * block..(p + 1) * block];
                y.iter_mut().zip(&filtered).for_each(|(y, x)| add(y, scale, &times(x, weight)));
            }
        }
        let bias = &values[&format!("layers.{at}.relations.0.bias")];
        y.iter_mut().for_each(|y| add(y, 1.0, bias));
        y
    }

    /// The end of a layer: every row normalised, if it is, then ReLU.
    fn activated(&self, values: &BTreeMap<String, Vec<f64>>, at: usize, mut rows: Rows) -> Rows {
        if self.spec.is_normalised() {
            let [scale, shift] = ["scale", "shift"].map(|part| &values[&format!("norms.{at}.{part}")]);
            for row in &mut rows {
                let mean = row.iter().sum::<f64>() / row.len() as f64;
                let variance = row.iter().map(|z| z * z).sum::<f64>() / row.len() as f64 - mean * mean;
                for (c, z) in row.iter_mut().enumerate() {
                    *z = scale[c] * (*z - mean) / (variance + 1e-5).sqrt() + shift[c];
                }
            }
        }
        rows.into_iter().map(|row| row.into_iter().map(|z| z.max(0.0)).collect()).collect()
    }

    fn logits(&self, values: &BTreeMap<String, Vec<f64>>) -> Rows {
        let layers = self.spec.layers;
        if self.spec.order.is_some() {
            let mut h = self.x.clone();
            for at in 0..2 {
                h = self.activated(values, at, self.dense(values, &format!("layers.{at}"), &h));
            }
            for at in 2..2 + layers {
                h = self.activated(values, at, self.wavelets(values, at, &h));
            }
            return self.dense(values, &format!("layers.{}", 2 + layers), &h);
        }
        let (mut h, mut joined) = (self.x.clone(), vec![Vec::new(); self.x.len()]);
        for at in 0..layers {
            let z = self.layer(values, at, &h);
            h = if at + 1 == layers && !self.spec.has_head() { z } else { self.activated(values, at, z) };
            joined.iter_mut().zip(&h).for_each(|(all, h)| all.extend_from_slice(h));
        }
        if self.spec.has_head() { self.dense(values, "head", &joined) } else { h }
    }

    fn loss(&self, values: &BTreeMap<String, Vec<f64>>) -> f64 {
        let logits = self.logits(values).concat();
        logits.iter().map(|z| z * z).sum::<f64>() / logits.len() as f64
    }
}

struct Collect<'a>(&'a GradientsParams, Vec<Vec<f32>>, PhantomData<Flex>);

impl ModuleVisitor<Autodiff<Flex>> for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<Flex>, D>>) {
        self.1.push(self.0.get::<Flex, D>(param.id).map(to_host).unwrap_or_default());
    }
}

fn gradients(model: &NodeClassifier<Autodiff<Flex>>, loss: Tensor<Autodiff<Flex>, 1>) -> Vec<Vec<f32>> {
    let grads = GradientsParams::from_grads(loss.backward(), model);
    let mut all = Collect(&grads, Vec::new(), PhantomData);
    model.visit(&mut all);
    all.1
}

/// Compares values, and gradients of the mean square of the logits with central differences.
fn check(spec: ClassifierSpec, graph: &HeteroGraph) {
    let spec = spec.over(graph).unwrap();
    let first = NodeClassifier::<Flex>::new(&spec, &mut Parameters::from_seed(5, &FlexDevice), &FlexDevice).unwrap();
    let mut tensors = named::export(&first).0;
    for (of, tensor) in tensors.values_mut().enumerate() {
        tensor.values.iter_mut().enumerate().for_each(|(at, value)| *value = 0.8 * number(97 * of + at));
    }
    let mut parameters = Parameters::from_tensors(&tensors, Path::new("best.bpk"), &FlexDevice);
    let model = NodeClassifier::<Autodiff<Flex>>::new(&spec, &mut parameters, &FlexDevice).unwrap();
    let nodes = graph.num_nodes();
    let x: Vec<f32> = (0..nodes * COLUMNS).map(|at| number(50_000 + at)).collect();
    let wide = x.chunks(COLUMNS).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
    let features = Features::from_f32(x.clone(), nodes, COLUMNS);
    let whole = graph;
    let graph = &spec.reading(whole.clone(), &features);
    let left = spec.cut.as_ref().map(|cut| without_unlike(whole, cut, &x));
    if let Some(left) = &left {
        let edges = [whole, left].map(HeteroGraph::num_edges);
        assert!(edges[1] < edges[0], "{edges:?}");
        for (of, want) in graph.relations().iter().zip(left.relations()) {
            assert_eq!(of.forward, want.forward, "{}", of.name);
        }
    }
    let oracle = Oracle { spec: &spec, graph: left.as_ref().unwrap_or(graph), x: wide };
    let input = NodeInput::upload(graph.node_types(), &features, false, DType::F32, &FlexDevice).unwrap();
    let _turn = autodiff_turn();
    let logits = model.forward(&DeviceGraph::upload(graph, &FlexDevice).unwrap(), &input, None);
    let mut values: BTreeMap<String, Vec<f64>> =
        tensors.iter().map(|(name, of)| (name.clone(), of.values.iter().map(|&v| f64::from(v)).collect())).collect();
    let (got, want) = (to_host(logits.clone()), oracle.logits(&values).concat());
    assert_eq!(got.len(), want.len());
    let close = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs() < 1e-5 * want.abs().max(1.0);
    assert!(got.iter().zip(&want).all(close), "{spec:?}: {got:?} {want:?}");
    assert!(want.iter().any(|z| z.abs() > 0.1));

    let gradient = gradients(&model, logits.powi_scalar(2).mean());
    let names = named::names(&model);
    assert_eq!(names.len(), tensors.len());
    let mut largest = 0f64;
    for ((name, len), gradient) in names.into_iter().zip(gradient) {
        for at in 0..len {
            let mut moved = |by: f64| {
                let value = values[&name][at];
                values.get_mut(&name).unwrap()[at] = value + by;
                let loss = oracle.loss(&values);
                values.get_mut(&name).unwrap()[at] = value;
                loss
            };
            let want = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            largest = largest.max(want.abs());
            // Nothing arrives over some parameters, which have no gradient.
            let got = f64::from(gradient.get(at).copied().unwrap_or(0.0));
            assert!((got - want).abs() < 2e-5 * want.abs().max(1.0), "{spec:?}, {name} {at}: {got} {want}");
        }
    }
    assert!(largest > 0.1, "{spec:?}");
}

#[test]
fn a_node_beside_the_mean_of_its_neighbours_is_that_of_dense_loops() {
    for graph in [graph(), typed_graph(), multi_graph()] {
        check(spec(LayerKind::Sage, 1, false, Jump::None), &graph);
        check(spec(LayerKind::Sage, 2, false, Jump::None), &graph);
        check(spec(LayerKind::Sage, 3, true, Jump::Concat), &graph);
        check(ClassifierSpec { hidden: COLUMNS, ..spec(LayerKind::Sage, 2, true, Jump::None) }, &graph);
    }
}

#[test]
fn differences_from_neighbours_are_those_of_dense_loops() {
    for graph in [graph(), typed_graph(), multi_graph()] {
        check(spec(LayerKind::Difference, 1, false, Jump::None), &graph);
        check(spec(LayerKind::Difference, 3, true, Jump::None), &graph);
        check(spec(LayerKind::Difference, 2, false, Jump::Concat), &graph);
    }
}

#[test]
fn nodes_two_edges_away_have_a_transform_of_their_own() {
    check(spec(LayerKind::H2gcn, 1, false, Jump::None), &graph());
    check(spec(LayerKind::H2gcn, 2, false, Jump::Concat), &graph());
    check(spec(LayerKind::H2gcn, 3, true, Jump::Concat), &graph());
    for several in [typed_graph(), multi_graph()] {
        let fault = spec(LayerKind::H2gcn, 2, false, Jump::None).over(&several).unwrap_err().to_string();
        assert!(fault.contains("model.layer = \"h2gcn\"") && fault.contains("\"sage\""), "{fault}");
    }
}

#[test]
fn wavelets_are_those_of_dense_matrices() {
    for graph in [graph(), multi_graph()] {
        for layers in [1, 2] {
            check(spec(LayerKind::Bw, layers, false, Jump::None), &graph);
        }
        check(ClassifierSpec { order: Some(3), ..spec(LayerKind::Bw, 1, false, Jump::None) }, &graph);
    }
    for layer in [LayerKind::Bw, LayerKind::Ghrn] {
        let fault = spec(layer, 2, false, Jump::None).over(&typed_graph()).unwrap_err().to_string();
        let said = format!("model.layer = \"{}\"", layer.name());
        assert!(fault.contains(&said) && fault.contains("2 node types and 3 relations"), "{fault}");
    }
}

#[test]
fn wavelets_on_what_a_cut_leaves_are_those_of_dense_matrices() {
    for graph in [graph(), multi_graph()] {
        for share in [0.1, 0.2, 0.5] {
            check(ClassifierSpec { cut: Some(cut(share)), ..spec(LayerKind::Ghrn, 1, false, Jump::None) }, &graph);
        }
        check(spec(LayerKind::Ghrn, 2, false, Jump::None), &graph);
    }
}

fn normalised(spec: ClassifierSpec) -> ClassifierSpec {
    ClassifierSpec { connections: Connections { norm: Norm::Layer, ..spec.connections }, ..spec }
}

#[test]
fn normalised_rows_are_those_of_dense_loops() {
    for graph in [graph(), typed_graph()] {
        check(normalised(spec(LayerKind::Sage, 2, false, Jump::None)), &graph);
        check(normalised(spec(LayerKind::Difference, 3, true, Jump::Concat)), &graph);
    }
    check(normalised(spec(LayerKind::H2gcn, 2, false, Jump::Concat)), &graph());
    check(normalised(spec(LayerKind::Bw, 1, false, Jump::None)), &multi_graph());
}

#[test]
fn a_model_begins_the_same_with_normalisation_which_changes_nothing_but_mean_and_deviation() {
    let new = |spec: &ClassifierSpec| {
        let parameters = &mut Parameters::from_seed(5, &FlexDevice);
        named::export(&NodeClassifier::<Flex>::new(spec, parameters, &FlexDevice).unwrap()).0
    };
    let plain = spec(LayerKind::Sage, 3, false, Jump::None);
    let mut with = new(&normalised(plain.clone()));
    // Of both layers with an activation.
    for at in 0..2 {
        assert_eq!(with.remove(&format!("norms.{at}.scale")).unwrap().values, [1.0; HIDDEN]);
        assert_eq!(with.remove(&format!("norms.{at}.shift")).unwrap().values, [0.0; HIDDEN]);
    }
    assert_eq!(with, new(&plain));
    assert!(!serde_json::to_string(&plain).unwrap().contains("norm\""));
}
