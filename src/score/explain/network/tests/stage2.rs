//! Two layers of attention with parameters by stream and a linear head, as Stage 2 has them.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::*;
use super::ALL;
use crate::graph::{Adjacency, Ages, EdgeMatrix, Features, HeteroGraph, Relation, RelationSpec};

/// What is read of the edges of a relation.
struct EdgeWeights {
    /// `[output, columns]`
    weight: Vec<f32>,
    /// `[output]`
    vector: Vec<f32>,
    /// Frequencies and phases, where ages are read.
    time: Option<[Vec<f64>; 2]>,
}

/// Everything that a model has, as a checkpoint would hold it.
struct Model {
    streams: Vec<String>,
    heads: usize,
    slope: f64,
    /// Per layer: input, output.
    widths: [[usize; 2]; 2],
    /// Per layer and stream: `[output, input]`, `[2 * output]`.
    weights: Vec<Vec<(Vec<f32>, Vec<f32>)>>,
    /// Per layer and type: `[output, input]`; empty where no type has a transform of its own.
    own: Vec<Vec<Option<Vec<f32>>>>,
    /// `[columns, 4]` of the first layer's own transforms, which read them in three pieces each.
    bounds: Option<Vec<f32>>,
    /// Per layer and relation; empty where no relation has any.
    edges: Vec<Vec<Option<EdgeWeights>>>,
    /// Per layer and type: `[2 * output]`; empty where nothing is gated.
    gates: Vec<Vec<Option<Vec<f32>>>>,
    /// Per layer: scale and shift.
    norms: Vec<Option<[Vec<f32>; 2]>>,
    head: Vec<f32>,
    bias: f64,
    joined: Joined,
}

impl Model {
    fn random(graph: &HeteroGraph, heads: usize, rng: &mut ChaCha8Rng) -> Self {
        let widths = [[5, 8], [8, 8]];
        let streams: Vec<String> = graph.streams().into_iter().map(String::from).collect();
        let mut values = |n: usize| (0..n).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f32>>();
        let weights =
            widths.map(|[i, o]| streams.iter().map(|_| (values(i * o), values(2 * o))).collect::<Vec<_>>()).to_vec();
        let (own, edges) = (vec![Vec::new(); 2], vec![Vec::new(), Vec::new()]);
        let (head, gates, norms, joined) = (values(8), vec![Vec::new(); 2], vec![None; 2], Joined::Nothing);
        let (bias, slope, bounds) = (0.3, 0.2, None);
        Self { streams, heads, slope, widths, weights, own, bounds, edges, gates, norms, head, bias, joined }
    }

    /// The same with gates where types have a transform of their own, with normalised rows, and with a head that reads
    /// both layers.
    fn connected(mut self, largest: bool, rng: &mut ChaCha8Rng) -> Self {
        let mut values = |n: usize| (0..n).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f32>>();
        for (layer, [_, output]) in self.widths.into_iter().enumerate() {
            let gates = self.own[layer].iter().map(|own| own.as_ref().map(|_| values(2 * output)));
            self.gates[layer] = gates.collect();
            self.norms[layer] = Some([values(output), values(output)]);
        }
        self.joined = match largest {
            true => Joined::Largest,
            false => Joined::Beside(values(8).iter().map(|&w| f64::from(w)).collect()),
        };
        self
    }

    /// The same where the values of edges are read, and perhaps their ages, by frequencies of each layer's own.
    fn with_edges(mut self, graph: &HeteroGraph, with_ages: bool, rng: &mut ChaCha8Rng) -> Self {
        let mut values = |n: usize| (0..n).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f32>>();
        let mut of_relation = |output: usize, relation: &Relation| {
            let width = relation.values.as_ref().map_or(0, |values| values.width());
            let mut numbers = |n: usize| values(n).into_iter().map(f64::from).collect::<Vec<f64>>();
            let time = (with_ages && relation.ages.is_some()).then(|| [numbers(3), numbers(3)]);
            let columns = width + time.as_ref().map_or(0, |_| 4);
            (columns > 0).then(|| EdgeWeights { weight: values(output * columns), vector: values(output), time })
        };
        let mut of = |output: usize| graph.relations().iter().map(|r| of_relation(output, r)).collect::<Vec<_>>();
        self.edges = self.widths.map(|[_, output]| of(output)).into();
        self
    }

    /// The same where users and shops have a transform of their own; nothing points at a shop.
    fn with_own(mut self, rng: &mut ChaCha8Rng) -> Self {
        let mut values = |n: usize| (0..n).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f32>>();
        self.own = self.widths.map(|[i, o]| vec![Some(values(i * o)), None, Some(values(i * o))]).to_vec();
        self
    }

    /// The same where the first layer's own transforms read columns in pieces, too. One of the last column is empty.
    fn in_pieces(mut self, rng: &mut ChaCha8Rng) -> Self {
        let [input, output] = self.widths[0];
        let mut bounds: Vec<f32> = (0..input * 4).map(|_| rng.random_range(-1.0..1.0)).collect();
        bounds.chunks_exact_mut(4).for_each(|column| column.sort_unstable_by(f32::total_cmp));
        bounds[input * 4 - 1] = bounds[input * 4 - 2];
        self.bounds = Some(bounds);
        for own in self.own[0].iter_mut().flatten() {
            *own = (0..output * input * 4).map(|_| rng.random_range(-1.0..1.0)).collect();
        }
        self
    }

    fn network(&self, graph: &HeteroGraph) -> Network {
        let layer = |at: usize| {
            let ([input, output], heads) = (self.widths[at], self.heads);
            let transform = |(w, a): &(Vec<f32>, Vec<f32>)| {
                Transform::with_attention(Matrix::transposed([input, output], w), heads, a.split_at(output).into())
            };
            let transforms = self.weights[at].iter().map(transform).collect();
            let matrix =
                |own: &Option<Vec<f32>>| own.as_ref().map(|own| Matrix::transposed([own.len() / output, output], own));
            let (own, bias) = (self.own[at].iter().map(matrix).collect(), Vec::new());
            let edge = |of: &Option<EdgeWeights>| {
                let EdgeWeights { weight, vector, time } = of.as_ref()?;
                let time = time.clone().map(|[frequency, phase]| TimeTransform { frequency, phase });
                let weight = Matrix::transposed([weight.len() / output, output], weight);
                Some(EdgeTransform::new(weight, heads, vector, time))
            };
            let (edges, activation) = (self.edges[at].iter().map(edge).collect(), Activation::Elu);
            let gates = self.gates[at].iter().map(|gate| gate.as_deref().map(Gate::new)).collect();
            let wide = |part: &Vec<f32>| part.iter().map(|&value| f64::from(value)).collect();
            let norm = self.norms[at].as_ref().map(|parts| parts.each_ref().map(wide));
            let norm = norm.map(|[scale, shift]| Normalised { scale, shift });
            Layer { input, output, heads, averaged: false, activation, transforms, edges, own, bias, gates, norm }
        };
        let stream = |name: &str| self.streams.iter().position(|stream| *stream == name).unwrap();
        Network {
            weighted: false,
            layers: vec![layer(0), layer(1)],
            coefficients: Coefficients::Attention { negative_slope: self.slope },
            loops: false,
            transform_of: graph.relations().iter().map(|relation| stream(&relation.stream)).collect(),
            scales: graph.streams_into().iter().map(|&streams| 1.0 / streams.max(1) as f64).collect(),
            row_normalise: false,
            pieces: self.bounds.as_ref().map(|bounds| Pieces::new(3, bounds)),
        }
    }

    fn head(&self) -> Head {
        let weights = self.head.iter().map(|&w| f64::from(w)).collect();
        Head { weights, bias: self.bias, joined: self.joined.clone() }
    }

    fn explain(&self, graph: &HeteroGraph, features: &Features, node: u32, limits: Limits) -> Attributed {
        let network = self.network(graph);
        let edges = Edges::new(graph, &network);
        View { network: &network, edges: &edges, features }.explain(node, &self.head(), limits)
    }

    /// One layer of all nodes, before the activation, by the formula.
    fn layer(&self, at: usize, graph: &HeteroGraph, h: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let ([input, output], channels) = (self.widths[at], self.widths[at][1] / self.heads);
        let types = graph.node_types();
        (0..graph.num_nodes())
            .map(|i| {
                let t = graph.type_of(i);
                let into: Vec<_> = graph.relations().iter().enumerate().filter(|(_, r)| r.dst == t).collect();
                let mut streams: Vec<&str> = into.iter().map(|(_, r)| r.stream.as_str()).collect();
                streams.sort_unstable();
                streams.dedup();
                let mut z = vec![0.0; output];
                let mut itself = vec![0.0; output];
                if let Some(Some(own)) = self.own[at].get(t) {
                    let mut x = h[i].clone();
                    for (k, bounds) in self.bounds.iter().filter(|_| at == 0).flat_map(|b| b.chunks(4).enumerate()) {
                        for [from, to] in [[0, 1], [1, 2], [2, 3]].map(|ends| ends.map(|end| f64::from(bounds[end]))) {
                            let share = if h[i][k] >= to { 1.0 } else { (h[i][k] - from) / (to - from) };
                            x.push(if from == to || h[i][k] <= from { 0.0 } else { share });
                        }
                    }
                    let of = |c: usize| x.iter().zip(&own[c * x.len()..]).map(|(x, &w)| f64::from(w) * x).sum::<f64>();
                    itself = (0..output).map(of).collect();
                }
                for (number, relation) in into {
                    let s = self.streams.iter().position(|s| *s == relation.stream).unwrap();
                    let (w, a) = &self.weights[at][s];
                    let project =
                        |x: &[f64], c: usize| -> f64 { (0..input).map(|k| f64::from(w[c * input + k]) * x[k]).sum() };
                    let row = i - types[t].offset;
                    let sources = relation.forward.row(row).iter().map(|&j| types[relation.src].offset + j as usize);
                    let sources: Vec<(usize, usize)> = relation.forward.entries(row).zip(sources).collect();
                    let nothing = EdgeWeights { weight: Vec::new(), vector: vec![0.0; output], time: None };
                    let of_edges = self.edges[at].get(number).and_then(Option::as_ref).unwrap_or(&nothing);
                    let (we, ae) = (&of_edges.weight, &of_edges.vector);
                    let columns = |(entry, j): (usize, usize)| -> Vec<f64> {
                        let values = relation.values.as_ref().filter(|_| !we.is_empty());
                        let values = values.map_or(&[][..], |values| values.row(entry)).iter().map(|&v| f64::from(v));
                        let Some([frequency, phase]) = &of_edges.time else { return values.collect() };
                        let age = match relation.ages_of_edges() {
                            Some(ages) => f64::from(ages.row(entry)[0]),
                            None => f64::from(TIMES[row] - TIMES[j]),
                        };
                        let cosines = frequency.iter().zip(phase).map(|(w, p)| (w * age + p).cos());
                        values.chain([age.max(0.0).ln_1p()]).chain(cosines).collect()
                    };
                    let of_edge = |edge: (usize, usize), c: usize| -> f64 {
                        let e = columns(edge);
                        e.iter().enumerate().map(|(k, v)| f64::from(we[c * e.len() + k]) * v).sum()
                    };
                    for head in 0..self.heads {
                        let of = head * channels..(head + 1) * channels;
                        let logit = |(entry, j): (usize, usize)| {
                            let dst: f64 = of.clone().map(|c| f64::from(a[c]) * project(&h[i], c)).sum();
                            let src: f64 = of.clone().map(|c| f64::from(a[output + c]) * project(&h[j], c)).sum();
                            let edge: f64 = of.clone().map(|c| f64::from(ae[c]) * of_edge((entry, j), c)).sum();
                            let sum = dst + src + edge;
                            if sum > 0.0 { sum } else { self.slope * sum }
                        };
                        let sum: f64 = sources.iter().map(|&edge| logit(edge).exp()).sum();
                        for &(entry, j) in &sources {
                            let share = logit((entry, j)).exp() / sum / streams.len() as f64;
                            for c in of.clone() {
                                z[c] += share * (project(&h[j], c) + of_edge((entry, j), c));
                            }
                        }
                    }
                }
                if let Some(Some(gate)) = self.gates[at].get(t) {
                    let both = itself.iter().chain(&z);
                    let score: f64 = both.zip(gate).map(|(x, &g)| x * f64::from(g)).sum();
                    let beta = 1.0 / (1.0 + (-score).exp());
                    z.iter_mut().for_each(|z| *z *= 1.0 - beta);
                    itself.iter_mut().for_each(|own| *own *= beta);
                }
                z.iter_mut().zip(&itself).for_each(|(z, own)| *z += own);
                if let Some([scale, shift]) = &self.norms[at] {
                    let mean = z.iter().sum::<f64>() / output as f64;
                    let variance = z.iter().map(|z| z * z).sum::<f64>() / output as f64 - mean * mean;
                    for c in 0..output {
                        let even = (z[c] - mean) / (variance + 1e-5).sqrt();
                        z[c] = f64::from(scale[c]) * even + f64::from(shift[c]);
                    }
                }
                z
            })
            .collect()
    }

    fn logits(&self, graph: &HeteroGraph, x: &[Vec<f64>]) -> Vec<f64> {
        let activated = |z: Vec<Vec<f64>>| -> Vec<Vec<f64>> {
            z.into_iter().map(|z| z.into_iter().map(|z| if z > 0.0 { z } else { z.exp() - 1.0 }).collect()).collect()
        };
        let hidden = activated(self.layer(0, graph, x));
        let last = activated(self.layer(1, graph, &hidden));
        let logit = |(hidden, last): (&Vec<f64>, &Vec<f64>)| {
            let head = |h: &[f64]| h.iter().zip(&self.head).map(|(h, &w)| h * f64::from(w)).sum::<f64>();
            self.bias
                + match &self.joined {
                    Joined::Nothing => head(last),
                    Joined::Beside(weights) => head(last) + hidden.iter().zip(weights).map(|(h, w)| h * w).sum::<f64>(),
                    Joined::Largest => head(&last.iter().zip(hidden).map(|(a, b)| a.max(*b)).collect::<Vec<_>>()),
                }
        };
        hidden.iter().zip(&last).map(logit).collect()
    }
}

/// Times of the users, some of them alike.
const TIMES: [i32; 9] = [0, 7, 3, 3, 12, 5, 9, 20, 1];

/// Users, products and a shop: reviews both ways, sales one way, users who know each other and themselves, and a second
/// relation between users of the same stream with a repeated edge. Products of users and users that are followed have
/// values of their edges, and edges of users have ages: those of products their own, the others by the times of users.
fn graph(without: Option<[u32; 2]>) -> HeteroGraph {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (users, products) = (9, 6);
    let mut pairs = |rows: u32, cols: u32, share: f64| -> Vec<(u32, u32)> {
        let all = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        all.filter(|_| rng.random_bool(share)).collect()
    };
    let reviews = pairs(users, products, 0.4);
    let mut knows: Vec<(u32, u32)> = pairs(users, users, 0.3).into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    knows.extend((0..users).map(|user| (user, user)));
    let follows: Vec<(u32, u32)> = pairs(users, users, 0.2).into_iter().chain([(2, 5), (2, 4), (2, 5)]).collect();
    let sold: Vec<(u32, u32)> = vec![(0, 0), (1, 0), (4, 0)];
    let offsets = [0, users, users + products];
    let counts = [users, products, 1];
    let spec = |name: &str, [src, dst]: [usize; 2], stream: &str, mut edges: Vec<(u32, u32)>| {
        let cut = |row: u32, col: u32| {
            without.is_some_and(|[a, b]| {
                let ends = [offsets[dst] + row, offsets[src] + col];
                ends == [a, b] || ends == [b, a]
            })
        };
        edges.retain(|&(row, col)| !cut(row, col));
        edges.sort_unstable();
        // Repeated edges stay, unlike with `Adjacency::from_edges`.
        if name != "follows" {
            edges.dedup();
        }
        let mut row_ptr = vec![0u64; counts[dst] as usize + 1];
        edges.iter().for_each(|&(row, _)| row_ptr[row as usize + 1] += 1);
        (0..counts[dst] as usize).for_each(|row| row_ptr[row + 1] += row_ptr[row]);
        let col_idx = edges.iter().map(|&(_, col)| col).collect();
        let adjacency = Adjacency::new(row_ptr, col_idx, counts[src] as usize).unwrap();
        RelationSpec { name: name.into(), src, dst, stream: stream.into(), primary: true, adjacency }
    };
    let reverse = |edges: &[(u32, u32)]| edges.iter().map(|&(a, b)| (b, a)).collect::<Vec<_>>();
    let relations = vec![
        spec("up", [1, 0], "review", reviews.clone()),
        spec("pu", [0, 1], "review", reverse(&reviews)),
        spec("ps", [2, 1], "sale", sold),
        spec("knows", [0, 0], "social", knows),
        spec("follows", [0, 0], "social", follows),
    ];
    let types = [("user", users), ("product", products), ("shop", 1)].map(|(name, n)| (name.into(), n as usize));
    let mut graph = HeteroGraph::new(types.into(), relations).unwrap();
    for (relation, width) in [("up", 2), ("follows", 3)] {
        let forward = graph.relations().iter().find(|of| of.name == relation).unwrap().forward.clone();
        // An edge is told by its ends and by how many of the same there are before it.
        let value = |entry: usize, k: usize| {
            let (row, col) = forward.edge(entry);
            let repeated = forward.entries(row).take_while(|&at| at < entry).filter(|&at| forward.edge(at).1 == col);
            ((row * 7 + col as usize * 3 + k * 5 + repeated.count() * 11) % 13) as f32 / 13.0 - 0.4
        };
        let values = (0..forward.num_edges()).flat_map(|entry| (0..width).map(move |k| (entry, k)));
        let values = values.map(|(entry, k)| value(entry, k)).collect();
        graph.set_edge_values(relation, Arc::new(EdgeMatrix::new(values, width)));
        if relation == "up" {
            let ends = (0..forward.num_edges()).map(|entry| forward.edge(entry));
            let ages = ends.map(|(row, col)| ((row * 5 + col as usize * 11) % 17) as f32 / 2.0).collect();
            graph.set_ages(relation, Ages::Edges(Arc::new(EdgeMatrix::new(ages, 1))));
        }
    }
    graph.set_times(TIMES.into_iter().chain([0; 7]).collect());
    ["knows", "follows"].into_iter().for_each(|relation| graph.set_ages(relation, Ages::Nodes));
    graph
}

fn features(nodes: usize) -> Features {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    Features::from_f32((0..nodes * 5).map(|_| rng.random_range(-1.0..1.0)).collect(), nodes, 5)
}

fn rows(features: &Features) -> Vec<Vec<f64>> {
    (0..features.num_rows()).map(|node| features.row(node).map(f64::from).collect()).collect()
}

/// Calls `check` with the graph, the model, its logits and the explanation of every node.
fn for_every_node(check: impl Fn(&HeteroGraph, &Model, f64, u32, &Attributed)) {
    let graph = graph(None);
    let features = features(graph.num_nodes());
    // Heads; own transforms, and with `Some(true)` columns in pieces; values of edges, and with `Some(true)` ages;
    // gates, normalised rows and both layers at the head: `Some(largest)`.
    for (heads, own, edges, connected) in [
        (1, None, None, None),
        (4, None, None, None),
        (1, Some(false), None, None),
        (4, Some(false), None, None),
        (1, None, Some(false), None),
        (4, Some(false), Some(false), None),
        (1, None, Some(true), None),
        (4, Some(false), Some(true), None),
        (1, Some(false), None, Some(false)),
        (4, Some(false), Some(true), Some(true)),
        (1, None, Some(false), Some(false)),
        (1, Some(true), None, None),
        (4, Some(true), Some(true), Some(false)),
    ] {
        let mut rng = ChaCha8Rng::seed_from_u64(heads as u64);
        let model = Model::random(&graph, heads, &mut rng);
        let model = if own.is_some() { model.with_own(&mut rng) } else { model };
        let model = if own == Some(true) { model.in_pieces(&mut rng) } else { model };
        let model = if let Some(ages) = edges { model.with_edges(&graph, ages, &mut rng) } else { model };
        let model = connected.into_iter().fold(model, |model, largest| model.connected(largest, &mut rng));
        let logits = model.logits(&graph, &rows(&features));
        for node in 0..graph.num_nodes() as u32 {
            check(&graph, &model, logits[node as usize], node, &model.explain(&graph, &features, node, ALL));
        }
    }
}

#[test]
fn the_logit_of_a_node_is_that_of_a_dense_loop() {
    for_every_node(|_, _, logit, node, found| {
        assert!((found.logit - logit).abs() < 1e-9, "node {node}: {} and {logit}", found.logit);
    });
}

fn of_paths(found: &Attributed) -> f64 {
    found.entries.iter().flat_map(|entry| &entry.paths).map(|path| path.contribution).sum()
}

#[test]
fn neighbours_paths_and_columns_each_add_up_to_the_logit() {
    for_every_node(|_, _, logit, node, found| {
        let of_edges: f64 = found.edges.iter().flatten().sum();
        let of_last: f64 = found.entries.iter().map(|entry| entry.of_values).sum();
        let sums = [
            found.entries.iter().map(|entry| entry.contribution).sum::<f64>(),
            found.columns.iter().sum::<f64>() + of_edges + found.biases,
            found.by_type.iter().sum::<f64>() + found.own_features + of_edges + found.biases,
            // Paths have no part of the bias of the neighbour that they lead over.
            of_paths(found) + of_last + found.biases,
        ];
        for sum in sums {
            assert!((found.base + sum - logit).abs() < 1e-9, "node {node}: {sums:?} and {logit}");
        }
        for entry in &found.entries {
            let of_paths: f64 = entry.paths.iter().map(|path| path.contribution).sum();
            let bias = entry.contribution - of_paths - entry.of_values;
            assert!(found.biases != 0.0 || bias.abs() < 1e-9);
        }
    });
}

#[test]
fn features_of_the_node_itself_are_the_paths_that_come_back_to_it() {
    for_every_node(|_, _, _, node, found| {
        let paths = found.entries.iter().flat_map(|entry| &entry.paths).filter(|path| path.source == node);
        // Paths have what values of edges add, too, and that is none of the features.
        let of_paths = paths.map(|path| path.contribution).sum::<f64>();
        assert!(!found.edges.is_empty() || (of_paths - found.own_features).abs() < 1e-9);
    });
}

#[test]
fn columns_are_the_gradient_of_the_linear_model_times_their_values() {
    // With attention and slopes held, a column of zeros adds nothing, and one that is doubled adds twice as much. The
    // attention vectors are zero, so that it stays as it is, and slopes are one where everything is positive.
    let graph = graph(None);
    let mut model = Model::random(&graph, 1, &mut ChaCha8Rng::seed_from_u64(1));
    for (w, a) in model.weights.iter_mut().flatten() {
        w.iter_mut().for_each(|w| *w = w.abs());
        a.fill(0.0);
    }
    let mut x: Vec<f32> = (0..graph.num_nodes() * 5).map(|k| (k * 7 % 11) as f32 / 11.0).collect();
    x.iter_mut().skip(3).step_by(5).for_each(|x| *x = 0.0);
    let explain = |x: Vec<f32>| model.explain(&graph, &Features::from_f32(x, graph.num_nodes(), 5), 1, ALL);
    let found = explain(x.clone());
    assert_eq!(found.columns[3], 0.0);
    x.iter_mut().skip(2).step_by(5).for_each(|x| *x *= 2.0);
    let doubled = explain(x);
    assert!((doubled.columns[2] - 2.0 * found.columns[2]).abs() < 1e-9 && found.columns[2].abs() > 1e-3);
    assert!((doubled.logit - found.logit - found.columns[2]).abs() < 1e-9);
}

#[test]
fn attention_of_the_entries_of_a_relation_adds_up_to_one() {
    for_every_node(|graph, _, _, _, found| {
        for relation in 0..graph.relations().len() {
            let of_relation = || found.entries.iter().filter(|entry| entry.relation == Some(relation));
            let sum: f64 = of_relation().map(|entry| entry.attention.unwrap()).sum();
            assert!(of_relation().next().is_none() || (sum - 1.0).abs() < 1e-12, "{sum}");
        }
    });
}

#[test]
fn a_removal_is_what_the_logit_loses_without_the_edges_between_the_two() {
    for_every_node(|whole, model, logit, node, found| {
        let x = rows(&features(whole.num_nodes()));
        for entry in &found.entries {
            if entry.source == node {
                assert_eq!(entry.removal, None, "a node is no neighbour of itself");
                continue;
            }
            let without = model.logits(&graph(Some([node, entry.source])), &x)[node as usize];
            let removal = entry.removal.unwrap();
            assert!((removal - (logit - without)).abs() < 1e-9, "node {node} without {}: {removal}", entry.source);
        }
    });
}

#[test]
fn limits_leave_out_the_weakest_and_say_how_many() {
    let graph = graph(None);
    let features = features(graph.num_nodes());
    let model = Model::random(&graph, 1, &mut ChaCha8Rng::seed_from_u64(1));
    let explain = |limits: Limits| model.explain(&graph, &features, 2, limits);
    let (all, some) = (explain(ALL), explain(Limits { neighbours: 2, paths: 1 }));
    assert_eq!(some.entries.len(), all.entries.len());
    assert!(some.entries.is_sorted_by(|a, b| a.contribution.abs() >= b.contribution.abs()));
    let others: Vec<&Entry> = some.entries.iter().filter(|entry| entry.source != 2).collect();
    assert!(others[..2].iter().all(|entry| entry.paths.len() == 1 && entry.removal.is_some()));
    assert!(others[2..].iter().all(|entry| entry.paths.is_empty() && entry.removal.is_none()));
    assert_eq!(some.entries[0].more_paths, all.entries[0].paths.len() - 1);
}

#[test]
fn a_hub_of_a_hundred_thousand_neighbours_is_explained() {
    let edges: Vec<(u32, u32)> = (1..100_001).flat_map(|leaf| [(0, leaf), (leaf, 0)]).collect();
    let adjacency = Adjacency::from_edges(100_001, 100_001, &edges);
    let spec = RelationSpec::new("edge", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("node".into(), 100_001)], vec![spec]).unwrap();
    let features = features(graph.num_nodes());
    let model = Model::random(&graph, 1, &mut ChaCha8Rng::seed_from_u64(1));
    let found = model.explain(&graph, &features, 0, Limits { neighbours: 5, paths: 3 });
    let sum: f64 = found.entries.iter().map(|entry| entry.contribution).sum();
    assert_eq!(found.entries.len(), 100_000);
    assert!((found.base + sum - found.logit).abs() < 1e-9);
    assert!(found.entries[..5].iter().all(|entry| entry.removal.is_some_and(|removal| removal.abs() < 0.1)));
}
