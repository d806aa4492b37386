//! Several relations with parameters of their own and a transform of the node itself, against dense loops.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::*;
use super::{ALL, assert_adds_up};
use crate::graph::{Adjacency, Features, HeteroGraph, RelationSpec};

const COLUMNS: usize = 5;
const SLOPE: f64 = 0.2;
/// Users, products, and a shop without any edge into it.
const TYPES: [usize; 3] = [8, 5, 1];

fn graph() -> HeteroGraph {
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

fn features() -> Features {
    let (mut rng, nodes) = (ChaCha8Rng::seed_from_u64(5), TYPES.iter().sum());
    Features::from_f32((0..nodes * COLUMNS).map(|_| rng.random_range(-1.0..1.0)).collect(), nodes, COLUMNS)
}

/// `[input, output]`, and for attention two vectors `[output]`.
struct Weights {
    w: Vec<f32>,
    a: [Vec<f32>; 2],
}

struct Plain {
    input: usize,
    heads: usize,
    channels: usize,
    last: bool,
    relations: Vec<Weights>,
    own: Vec<(Vec<f32>, Vec<f32>)>,
}

struct Model {
    attention: bool,
    layers: Vec<Plain>,
    head: Head,
}

impl Model {
    fn random(attention: bool, layers: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(layers as u64);
        let mut values = |n: usize| (0..n).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f32>>();
        let heads = if attention { 2 } else { 1 };
        let layer = |at: usize| {
            let (input, last, channels) = (if at == 0 { COLUMNS } else { 4 }, at + 1 == layers, 4 / heads);
            let output = if last { channels } else { 4 };
            let width = heads * channels;
            let relations = (0..4).map(|_| Weights { w: values(input * width), a: [values(width), values(width)] });
            let relations = relations.collect();
            let own = (0..3).map(|_| (values(input * output), values(output))).collect();
            Plain { input, heads, channels, last, relations, own }
        };
        let layers: Vec<Plain> = (0..layers).map(layer).collect();
        let weights = values(layers.last().unwrap().output()).into_iter().map(f64::from).collect();
        Self { attention, layers, head: Head { weights, bias: 0.25 } }
    }

    fn network(&self) -> Network {
        let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
        let layer = |plain: &Plain| {
            let (input, output) = (plain.input, plain.output());
            let transform = |weights: &Weights| {
                let matrix = Matrix::new([input, plain.heads * plain.channels], &weights.w);
                match self.attention {
                    true => Transform::with_attention(matrix, plain.heads, weights.a.each_ref().map(|a| &a[..])),
                    false => Transform::new(matrix),
                }
            };
            Layer {
                input,
                output,
                heads: plain.heads,
                averaged: plain.last,
                activation: self.activation(plain.last),
                transforms: plain.relations.iter().map(transform).collect(),
                own: plain.own.iter().map(|(w, _)| Matrix::new([input, output], w)).collect(),
                bias: plain.own.iter().map(|(_, b)| wide(b)).collect(),
            }
        };
        Network {
            layers: self.layers.iter().map(layer).collect(),
            coefficients: match self.attention {
                true => Coefficients::Attention { negative_slope: SLOPE },
                false => Coefficients::Mean,
            },
            loops: false,
            transform_of: vec![0, 1, 2, 3],
            scales: vec![1.0; 3],
            row_normalise: false,
        }
    }

    fn activation(&self, last: bool) -> Activation {
        match (last, self.attention) {
            (true, _) => Activation::Identity,
            (false, true) => Activation::Elu,
            (false, false) => Activation::Relu,
        }
    }

    fn logits(&self, graph: &HeteroGraph) -> Vec<f64> {
        let features = features();
        let rows = 0..features.num_rows();
        let mut h: Vec<Vec<f64>> = rows.map(|node| features.row(node).map(f64::from).collect()).collect();
        for plain in &self.layers {
            h = (0..h.len()).map(|node| plain.row(graph, &h, node, self.attention)).collect();
        }
        let of = |h: &Vec<f64>| h.iter().zip(&self.head.weights).map(|(h, w)| h * w).sum::<f64>();
        h.iter().map(|h| self.head.bias + of(h)).collect()
    }

    fn explain(&self, graph: &HeteroGraph, node: u32) -> Attributed {
        let network = self.network();
        let edges = Edges::new(graph, &network);
        View { network: &network, edges: &edges, features: &features() }.explain(node, &self.head, ALL)
    }
}

impl Plain {
    fn output(&self) -> usize {
        if self.last { self.channels } else { self.heads * self.channels }
    }

    /// By the formula.
    fn row(&self, graph: &HeteroGraph, h: &[Vec<f64>], node: usize, attention: bool) -> Vec<f64> {
        let times = |x: &[f64], w: &[f32], c: usize| -> f64 {
            let width = w.len() / x.len();
            x.iter().enumerate().map(|(k, x)| x * f64::from(w[k * width + c])).sum()
        };
        let (types, t) = (graph.node_types(), graph.type_of(node));
        let (own, bias) = &self.own[t];
        let mut z: Vec<f64> = bias.iter().enumerate().map(|(c, &b)| f64::from(b) + times(&h[node], own, c)).collect();
        for (relation, weights) in graph.relations().iter().zip(&self.relations).filter(|(r, _)| r.dst == t) {
            let sources = relation.forward.row(node - types[t].offset);
            let sources: Vec<&Vec<f64>> =
                sources.iter().map(|&j| &h[types[relation.src].offset + j as usize]).collect();
            for head in 0..self.heads {
                let columns = head * self.channels..(head + 1) * self.channels;
                let part = |x: &[f64], a: &[f32]| -> f64 {
                    columns.clone().map(|c| f64::from(a[c]) * times(x, &weights.w, c)).sum()
                };
                let weight = |x: &[f64]| {
                    let sum = part(&h[node], &weights.a[0]) + part(x, &weights.a[1]);
                    if attention { if sum > 0.0 { sum } else { SLOPE * sum }.exp() } else { 1.0 }
                };
                let sum: f64 = sources.iter().map(|x| weight(x)).sum();
                for x in &sources {
                    for c in columns.clone() {
                        let share = weight(x) / sum / if self.last { self.heads as f64 } else { 1.0 };
                        z[if self.last { c - columns.start } else { c }] += share * times(x, &weights.w, c);
                    }
                }
            }
        }
        let activated = |z: f64| match (self.last, attention) {
            (true, _) => z,
            (false, true) if z < 0.0 => z.exp() - 1.0,
            (false, true) => z,
            (false, false) => z.max(0.0),
        };
        z.into_iter().map(activated).collect()
    }
}

#[test]
fn relations_and_the_nodes_own_transform_add_up_and_removals_are_computed_anew() {
    let graph = graph();
    for (attention, layers) in [(false, 1), (false, 2), (false, 3), (true, 2), (true, 3)] {
        let model = Model::random(attention, layers);
        let logits = model.logits(&graph);
        for node in 0..graph.num_nodes() as u32 {
            let (found, logit) = (model.explain(&graph, node), logits[node as usize]);
            assert_adds_up(node, &found, logit);
            let own: Vec<&Entry> = found.entries.iter().filter(|entry| entry.relation.is_none()).collect();
            assert!(matches!(own[..], [entry] if (entry.source, entry.removal) == (node, None)));
            for entry in found.entries.iter().filter(|entry| entry.source != node) {
                let ends = (node.min(entry.source), node.max(entry.source));
                let cut = graph.without_pairs(|a, b| (a, b) == ends);
                let removal = logit - model.logits(&cut)[node as usize];
                assert!((entry.removal.unwrap() - removal).abs() < 1e-9, "node {node} without {}", entry.source);
                let own = entry.paths.iter().filter(|path| path.relation.is_none());
                assert_eq!(own.count(), usize::from(layers > 1), "a neighbour has itself, too");
            }
        }
    }
}

#[test]
fn a_type_that_nothing_points_at_has_its_own_transform_alone() {
    let (graph, model) = (graph(), Model::random(false, 2));
    let shop = graph.num_nodes() as u32 - 1;
    let found = model.explain(&graph, shop);
    assert!(matches!(&found.entries[..], [entry] if entry.relation.is_none()));
    assert!((found.base + found.biases + found.own_features - found.logit).abs() < 1e-12);
    assert_eq!(found.by_type, [0.0; 3]);
}
