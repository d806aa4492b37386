//! The auto-encoder of Stage 1 with weights of edges: it and its gradients equal dense loops in f64, on a graph with
//! two types, repeated edges, loops, a symmetric relation whose weights are not, and a relation without weights.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor, TensorData};
use burn_flex::Flex;
use graphsieve::config::{Rows, Stage1Config, Stage1Model};
use graphsieve::graph::{Adjacency, EdgeMatrix, Features, HeteroGraph, Relation, RelationSpec};
use graphsieve::loader::{Batch, FeatureStore, Job, Loader, LoaderOptions};
use graphsieve::models::auto_encoder::{AutoEncoderSpec, HostNormalisation, Inputs, Normalisation};
use graphsieve::models::device_graph::upload_by_type;
use graphsieve::models::parameters::{HostTensor, Parameters, to_host};
use graphsieve::models::precision::as_data;
use graphsieve::models::weights::ModelSpec;
use graphsieve::models::{DeviceGraph, ReceptiveField, TripleStreamGae};
use graphsieve::sampler::{Fanout, NeighbourSampler, SamplerConfig};
use graphsieve::train::task::Task;
use graphsieve::train::tasks::auto_encoder::AutoEncoder;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{GraphBackend, download, on_every_backend};

use crate::gradients::{assert_same, gradients};
use crate::reachable::{Step, assert_same_step};

pub fn trials() -> Vec<Trial> {
    let mut trials = on_every_backend!(
        "encoder_weights";
        an_encoder_with_weights_and_its_gradients_equal_the_dense_oracle,
        some_rows_with_weights_and_their_gradients_equal_the_dense_oracle,
        batches_of_all_neighbours_and_their_gradients_equal_the_dense_oracle,
        weights_of_one_are_no_weights_to_the_last_bit,
        twice_the_weights_change_nothing_where_a_node_itself_is_nothing_beside_them,
    );
    trials.extend(on_cpu!(
        "encoder_weights";
        an_epoch_with_weights_has_the_same_loss_and_gradients_over_reachable_rows_and_in_chunks,
    ));
    trials
}

const COLUMNS: usize = 4;
/// Numbers that embeddings are multiplied by to make a loss of them.
const OF_LOSS: usize = 9_000;
const OF_FEATURES: usize = 50_000;

/// A number in [-1, 1).
fn number(at: usize) -> f32 {
    ((at * at * 31 + at * 7919) % 997) as f32 / 498.5 - 1.0
}

fn relation(name: &str, stream: &str, [src, dst]: [usize; 2], columns: usize, rows: &[&[u32]]) -> RelationSpec {
    let mut ends = vec![0];
    ends.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let adjacency = Adjacency::new(ends, rows.concat(), columns).unwrap();
    RelationSpec { name: name.into(), src, dst, stream: stream.into(), primary: true, adjacency }
}

/// Edges of all relations but `likes` have the weights `weight` of their place.
fn graph(weight: impl Fn(usize) -> f32) -> HeteroGraph {
    let relations = vec![
        relation("buys", "trade", [0, 1], 7, &[&[0, 3, 3], &[1], &[], &[0, 6], &[2, 5]]),
        relation("knows", "knows", [0, 0], 7, &[&[1, 2], &[1, 4], &[2], &[], &[0, 5], &[4], &[3, 6, 6]]),
        relation("friends", "friends", [1, 1], 5, &[&[1], &[0], &[3], &[2], &[4]]),
        relation("likes", "likes", [1, 0], 5, &[&[0], &[1, 2], &[], &[4], &[], &[3], &[0]]),
    ];
    let types = vec![("a".to_string(), 7), ("b".to_string(), 5)];
    let one_way = |name: &str| ["knows", "likes"].contains(&name);
    let mut graph = HeteroGraph::with_reverse_relations(types, relations, one_way).unwrap();
    for name in ["buys", "knows", "friends"] {
        let edges = graph.relations().iter().find(|of| of.name == name).unwrap().forward.num_edges();
        let weights = (0..edges).map(&weight).collect();
        graph.set_edge_weights(name, Arc::new(EdgeMatrix::new(weights, 1)));
    }
    graph.mirror_edge_weights();
    let names: Vec<&str> = graph.relations().iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["buys", "buys_T", "knows", "friends", "likes"]);
    assert!(graph.relations()[3].is_symmetric());
    graph
}

/// None of them small or large, and some of nothing.
fn uneven(entry: usize) -> f32 {
    [0.5, 3.0, 0.0, 1.25, 2.0, 0.75][entry % 6]
}

fn spec(graph: &HeteroGraph, edge_weights: bool, causal: bool) -> AutoEncoderSpec {
    AutoEncoderSpec::of(&Stage1Model { hidden: 6, out: 3, edge_weights }, graph, COLUMNS, causal)
}

/// Values of all parameters, biases too.
fn parameters(spec: &AutoEncoderSpec) -> BTreeMap<String, HostTensor> {
    let device = Default::default();
    let first = TripleStreamGae::<Flex>::new(spec, &mut Parameters::from_seed(5, &device)).unwrap();
    let mut tensors = first.export(spec).0;
    for (of, tensor) in tensors.values_mut().enumerate() {
        tensor.values.iter_mut().enumerate().for_each(|(at, value)| *value = 0.8 * number(97 * of + at));
    }
    tensors
}

/// Which rows are computed, by type, and how many at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Way<'a> {
    wanted: Option<[&'a [u32]; 2]>,
    chunk_rows: Option<usize>,
}

impl Way<'_> {
    /// The nodes that are wanted, by global id.
    fn nodes(&self, graph: &HeteroGraph) -> Vec<usize> {
        let Some(wanted) = self.wanted else { return (0..graph.num_nodes()).collect() };
        let types = graph.node_types().iter().zip(wanted);
        types.flat_map(|(t, nodes)| nodes.iter().map(|&node| t.offset + node as usize)).collect()
    }
}

/// The factor of an element of an embedding in the loss.
fn factor(spec: &AutoEncoderSpec, node: usize, column: usize) -> f32 {
    number(OF_LOSS + node * spec.output + column)
}

/// Embeddings, and the gradients of their sum with factors, as a module has them.
fn computed<B: GraphBackend>(
    spec: &AutoEncoderSpec,
    graph: &HeteroGraph,
    way: Way<'_>,
    device: &B::Device,
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let tensors = parameters(spec);
    let mut source = Parameters::<Autodiff<B>>::from_tensors(&tensors, Path::new("best.bpk"), device);
    let model = TripleStreamGae::new(spec, &mut source).unwrap();
    let host = spec.reading(graph.clone());
    let on_device = DeviceGraph::<Autodiff<B>>::upload(&host, device).unwrap();
    let normalisation = Normalisation::of(&host, spec.causal, device);
    let x = upload_by_type(host.node_types(), COLUMNS, DType::F32, device, &|k| number(OF_FEATURES + k));
    let inputs = Inputs::new(&on_device, &normalisation, x, way.chunk_rows);
    let wanted = way.wanted.map(|wanted| wanted.map(<[u32]>::to_vec).to_vec());
    let field = ReceptiveField::of_rows(&on_device, wanted, |_| None, device);
    let z = model.embed(&on_device, &field, &normalisation, &inputs);
    let (values, nodes) = (download(z.clone()), way.nodes(&host));
    let shape = [nodes.len(), spec.output];
    let of_node = |node: usize| (0..spec.output).map(move |column| factor(spec, node, column));
    let factors: Vec<f32> = nodes.into_iter().flat_map(of_node).collect();
    let factors = Tensor::<Autodiff<B>, 2>::from_data(TensorData::new(factors, shape), (device, DType::F32));
    let loss = (Tensor::cat(z, 0) * factors).sum();
    (values, gradients::<B>(&model, loss))
}

type Values = BTreeMap<String, Vec<f64>>;

/// The formulas of [`TripleStreamGae`], node by node.
struct Oracle<'a> {
    spec: &'a AutoEncoderSpec,
    graph: &'a HeteroGraph,
    /// The rows that the loss is of.
    nodes: Vec<usize>,
}

fn times(x: &[f64], weight: &[f64]) -> Vec<f64> {
    weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

impl Oracle<'_> {
    fn offset(&self, node_type: usize) -> usize {
        self.graph.node_types()[node_type].offset
    }

    /// `A~_r h`, where a loop weighs 1 and every node has one.
    fn sums(&self, of: &Relation, h: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let (rows, columns) = (of.forward.num_rows(), of.forward.num_cols());
        let same = of.src == of.dst;
        let weights = of.weights.as_ref().filter(|_| self.spec.weighted.contains(&of.name));
        let mut dense = vec![vec![0.0; columns]; rows];
        for (i, row) in dense.iter_mut().enumerate() {
            for (entry, &j) in of.forward.entries(i).zip(of.forward.row(i)) {
                let is_loop = same && i == j as usize;
                row[j as usize] += weights.filter(|_| !is_loop).map_or(1.0, |of| f64::from(of.row(entry)[0]));
            }
        }
        let lacks = |node: usize| f64::from(u8::from(!same || dense[node][node] == 0.0));
        let into = |i: usize| dense[i].iter().sum::<f64>() + lacks(i);
        let out_of = |j: usize| dense.iter().map(|row| row[j]).sum::<f64>() + lacks(j);
        let of_row = |i: usize| {
            let mut sum = vec![0.0; h[0].len()];
            for (j, weight) in dense[i].iter().enumerate() {
                let degree = if self.spec.causal { into(i) } else { (into(i) * out_of(j)).sqrt() };
                add(&mut sum, weight / degree, &h[self.offset(of.src) + j]);
            }
            add(&mut sum, lacks(i) / into(i), &h[self.offset(of.dst) + i]);
            sum
        };
        (0..rows).map(of_row).collect()
    }

    fn layer(&self, values: &Values, at: usize, h: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let parameter = |name: String| &values[&format!("gcn{at}.W_{name}")];
        let own = |(node, h): (usize, &Vec<f64>)| {
            let name = &self.graph.node_types()[self.graph.type_of(node)].name;
            times(h, parameter(format!("self_{name}.weight")))
        };
        let mut y: Vec<Vec<f64>> = h.iter().enumerate().map(own).collect();
        for of in self.graph.relations() {
            let [weight, bias] = ["weight", "bias"].map(|part| parameter(format!("{}.{part}", of.stream)));
            for (y, sum) in y[self.offset(of.dst)..].iter_mut().zip(self.sums(of, h)) {
                add(y, 1.0, &times(&sum, weight));
                add(y, 1.0, bias);
            }
        }
        y
    }

    fn embeddings(&self, values: &Values) -> Vec<Vec<f64>> {
        let row = |node: usize| (0..COLUMNS).map(|k| f64::from(number(OF_FEATURES + node * COLUMNS + k))).collect();
        let x: Vec<Vec<f64>> = (0..self.graph.num_nodes()).map(row).collect();
        let mut h = self.layer(values, 1, &x);
        h.iter_mut().flatten().for_each(|h| *h = h.max(0.0));
        let mut z = self.layer(values, 2, &h);
        for row in &mut z {
            let length = row.iter().map(|z| z * z).sum::<f64>().sqrt();
            row.iter_mut().for_each(|z| *z /= length);
        }
        z
    }

    fn loss(&self, values: &Values) -> f64 {
        let z = self.embeddings(values);
        let of_node = |&node: &usize| -> f64 {
            let row = z[node].iter().enumerate();
            row.map(|(column, z)| z * f64::from(factor(self.spec, node, column))).sum()
        };
        self.nodes.iter().map(of_node).sum()
    }

    /// By central differences, in the order and the layout of the module: weights are `[in, out]` there.
    fn gradients(&self, tensors: &BTreeMap<String, HostTensor>) -> Vec<Vec<f32>> {
        let mut values = exact(tensors);
        let streams = self.spec.streams.iter().flat_map(|of| [format!("{of}.weight"), format!("{of}.bias")]);
        let own = self.spec.node_types.iter().map(|of| format!("self_{of}.weight"));
        let of_layer: Vec<String> = streams.chain(own).collect();
        let names = [1, 2].into_iter().flat_map(|at| of_layer.iter().map(move |name| format!("gcn{at}.W_{name}")));
        let of = |name: String| {
            let shape = &tensors[&name].shape;
            let (outputs, inputs) = (shape[0], shape.get(1).copied().unwrap_or(1));
            let places = (0..inputs).flat_map(|i| (0..outputs).map(move |o| o * inputs + i));
            let mut moved = |at: usize, by: f64| {
                let value = values[&name][at];
                values.get_mut(&name).unwrap()[at] = value + by;
                let loss = self.loss(&values);
                values.get_mut(&name).unwrap()[at] = value;
                loss
            };
            places.map(|at| ((moved(at, 1e-6) - moved(at, -1e-6)) / 2e-6) as f32).collect()
        };
        names.map(of).collect()
    }
}

fn exact(tensors: &BTreeMap<String, HostTensor>) -> Values {
    let values = |of: &HostTensor| of.values.iter().map(|&value| f64::from(value)).collect();
    tensors.iter().map(|(name, of)| (name.clone(), values(of))).collect()
}

fn furthest(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The embeddings of the rows that are wanted, and all gradients, whole and by chunks of several sizes.
fn assert_equals_the_oracle<B: GraphBackend>(wanted: Option<[&[u32]; 2]>, device: &B::Device) {
    let graph = graph(uneven);
    for causal in [false, true] {
        let spec = spec(&graph, true, causal);
        assert_eq!(spec.weighted, ["buys", "buys_T", "knows", "friends"]);
        let way = Way { wanted, chunk_rows: None };
        let (oracle, tensors) = (Oracle { spec: &spec, graph: &graph, nodes: way.nodes(&graph) }, parameters(&spec));
        let all = oracle.embeddings(&exact(&tensors));
        let want: Vec<f32> = oracle.nodes.iter().flat_map(|&node| &all[node]).map(|&z| z as f32).collect();
        let of_all = oracle.gradients(&tensors);
        for chunk_rows in [None, Some(1), Some(3), Some(100)] {
            let name = format!("causal: {causal}, chunks of {chunk_rows:?}");
            let (z, gradients) = computed::<B>(&spec, &graph, Way { chunk_rows, ..way }, device);
            // Two sums over a few neighbours, in f32.
            let off = furthest(&z, &want);
            assert!(off < 1e-5, "{name}: embeddings are off by {off}");
            assert_same(&name, &gradients, &of_all, 1e-6);
        }
        let plain = computed::<B>(&AutoEncoderSpec { weighted: Vec::new(), ..spec.clone() }, &graph, way, device).0;
        assert!(furthest(&plain, &want) > 1e-2, "weights say something");
    }
}

fn an_encoder_with_weights_and_its_gradients_equal_the_dense_oracle<B: GraphBackend>(device: &B::Device) {
    assert_equals_the_oracle::<B>(None, device);
}

fn some_rows_with_weights_and_their_gradients_equal_the_dense_oracle<B: GraphBackend>(device: &B::Device) {
    // Of the first type the hidden layer has four nodes of seven: the rest is left alone.
    let wanted: [&[u32]; 2] = [&[1, 3], &[0]];
    let host = spec(&graph(uneven), true, false).reading(graph(uneven));
    let on_device = DeviceGraph::<B>::upload(&host, device).unwrap();
    let lists = wanted.map(<[u32]>::to_vec).to_vec();
    let field = ReceptiveField::of_rows(&on_device, Some(lists), |_| None, device);
    assert_eq!(field.rows(&on_device, 1, 0), 4, "rows of the hidden layer");
    assert_equals_the_oracle::<B>(Some(wanted), device);
}

/// The embeddings of some nodes in a mini-batch of all neighbours, and the loss of their sum with factors.
fn in_a_batch<B: GraphBackend>(
    spec: &AutoEncoderSpec,
    graph: &HeteroGraph,
    model: &TripleStreamGae<Autodiff<B>>,
    wanted: [&[u32]; 2],
    device: &B::Device,
) -> (Vec<f32>, Tensor<Autodiff<B>, 1>) {
    let host = Arc::new(spec.reading(graph.clone()));
    let nodes = host.num_nodes();
    let x = (0..nodes * COLUMNS).map(|k| number(OF_FEATURES + k)).collect();
    let store = FeatureStore::<Autodiff<B>>::new(Features::from_f32(x, nodes, COLUMNS), &host, device).unwrap();
    let sampled = SamplerConfig::new(&[Fanout::All, Fanout::All], host.relations().len());
    let sampler = NeighbourSampler::new(host.clone(), sampled).unwrap();
    let jobs = [Job { number: 0, seeds: wanted.map(<[u32]>::to_vec).to_vec(), payload: () }];
    let options = LoaderOptions { first_reverse: false, ..LoaderOptions::default() };
    let batch = Loader::new(jobs, sampler, store, options).unwrap().next().unwrap().unwrap();
    let Batch { x, blocks, seed_rows, nodes, .. } = batch;
    let normalisation = HostNormalisation::of(host.clone(), spec.causal);
    let normalisation = normalisation.of_training(&nodes.to_host(), &blocks, device);
    let x = x.into_iter().map(|x| as_data(x, DType::F32)).collect();
    let z = model.embed_blocks(&blocks, &normalisation, x);
    let (mut values, mut losses) = (Vec::new(), Vec::new());
    for (t, z) in z.into_iter().enumerate().filter(|(t, _)| !wanted[*t].is_empty()) {
        let rows = to_host(z.clone());
        let mut factors = vec![0.0; rows.len()];
        for (&node, &row) in wanted[t].iter().zip(&seed_rows[t]) {
            for column in 0..spec.output {
                let at = row as usize * spec.output + column;
                values.push(rows[at]);
                factors[at] = factor(spec, host.node_types()[t].offset + node as usize, column);
            }
        }
        let factors = Tensor::<Autodiff<B>, 2>::from_data(TensorData::new(factors, z.dims()), (device, DType::F32));
        losses.push((z * factors).sum());
    }
    (values, losses.into_iter().reduce(|a, b| a + b).unwrap())
}

fn batches_of_all_neighbours_and_their_gradients_equal_the_dense_oracle<B: GraphBackend>(device: &B::Device) {
    let graph = graph(uneven);
    for (causal, edge_weights) in [(false, false), (false, true), (true, true)] {
        let spec = spec(&graph, edge_weights, causal);
        let tensors = parameters(&spec);
        // Node 2 of the second type alone has no neighbour of the first one: relations from there have no edges at all.
        for wanted in [[&[0, 1, 2, 3, 4, 5, 6][..], &[0, 1, 2, 3, 4]], [&[1, 3], &[0]], [&[], &[2]]] {
            let mut source = Parameters::<Autodiff<B>>::from_tensors(&tensors, Path::new("best.bpk"), device);
            let model = TripleStreamGae::new(&spec, &mut source).unwrap();
            let name = format!("causal: {causal}, weights: {edge_weights}, nodes {wanted:?}");
            let nodes = Way { wanted: Some(wanted), chunk_rows: None }.nodes(&graph);
            let oracle = Oracle { spec: &spec, graph: &graph, nodes };
            let all = oracle.embeddings(&exact(&tensors));
            let want: Vec<f32> = oracle.nodes.iter().flat_map(|&node| &all[node]).map(|&z| z as f32).collect();
            let (z, loss) = in_a_batch::<B>(&spec, &graph, &model, wanted, device);
            let off = furthest(&z, &want);
            assert!(off < 1e-5, "{name}: embeddings are off by {off}");
            if !wanted[0].is_empty() {
                assert_same(&name, &gradients::<B>(&model, loss), &oracle.gradients(&tensors), 1e-6);
            }
        }
    }
}

fn weights_of_one_are_no_weights_to_the_last_bit<B: GraphBackend>(device: &B::Device) {
    let graph = graph(|_| 1.0);
    for causal in [false, true] {
        let [with, without] =
            [true, false].map(|weights| computed::<B>(&spec(&graph, weights, causal), &graph, Way::default(), device));
        assert!(with == without, "causal: {causal}");
    }
}

fn twice_the_weights_change_nothing_where_a_node_itself_is_nothing_beside_them<B: GraphBackend>(device: &B::Device) {
    let heavy = |entry: usize| [1.0, 3.0, 2.0, 5.0][entry % 4];
    for causal in [false, true] {
        let of = |unit: f32| {
            let graph = graph(|entry| unit * heavy(entry));
            computed::<B>(&spec(&graph, true, causal), &graph, Way::default(), device).0
        };
        let off = furthest(&of(1e11), &of(2e11));
        assert!(off < 1e-5, "causal: {causal}: off by {off}");
        // Beside such weights the 1 of a node itself counts.
        assert!(furthest(&of(1.0), &of(2.0)) > 1e-3, "causal: {causal}");
    }
}

/// The losses and gradients of two epochs.
fn epochs(graph: &HeteroGraph, edge_weights: bool, rows: Rows, chunk_size: Option<usize>) -> Vec<Step> {
    let device = Default::default();
    let mut config = Stage1Config::new("unused");
    config.model = Stage1Model { hidden: 6, out: 3, edge_weights };
    config.train.epochs = 2;
    (config.train.rows, config.train.chunk_size) = (rows, chunk_size);
    config.sampling.default_edges = 2;
    let spec = spec(graph, edge_weights, false);
    let host = spec.reading(graph.clone());
    let x = upload_by_type(host.node_types(), COLUMNS, DType::F32, &device, &|k| number(OF_FEATURES + k));
    let on_device = DeviceGraph::upload(&host, &device).unwrap();
    let task = AutoEncoder::<Flex>::new(&config, &host, on_device, x, &device);
    assert_eq!(task.spec(), ModelSpec::AutoEncoder(spec.clone()));
    assert_eq!(task.train().rows, rows, "an epoch computes the rows that it is told to");
    let tensors = parameters(&spec);
    let mut source = Parameters::<Autodiff<Flex>>::from_tensors(&tensors, Path::new("best.bpk"), &device);
    let model = TripleStreamGae::new(&spec, &mut source).unwrap();
    let mut epochs = task.runner(config.seed, 1).unwrap();
    let one = |_| {
        let loss = epochs.next(&task, &model, None).unwrap().losses.loss;
        (to_host(loss.clone())[0], gradients::<Flex>(&model, loss))
    };
    (0..2).map(one).collect()
}

fn an_epoch_with_weights_has_the_same_loss_and_gradients_over_reachable_rows_and_in_chunks() {
    let graph = graph(uneven);
    let all = epochs(&graph, true, Rows::All, None);
    for rows in [Rows::Reachable, Rows::All] {
        for chunk_size in [None, Some(1), Some(3), Some(100)] {
            let got = epochs(&graph, true, rows, chunk_size);
            for (epoch, (got, all)) in got.iter().zip(&all).enumerate() {
                assert_same_step(&format!("{rows:?} rows, chunk {chunk_size:?}, epoch {}", epoch + 1), got, all);
            }
        }
    }
    let plain = epochs(&graph, false, Rows::All, None);
    assert!(plain.iter().zip(&all).any(|(plain, all)| (plain.0 - all.0).abs() > 1e-4), "weights say something");
}
