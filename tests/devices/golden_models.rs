//! Both networks, their losses and all gradients equal those of a dense float64 implementation
//! (`golden/make_models.py`), on a graph with three types, loops, a repeated edge, a one-way relation and nodes without
//! edges.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor};
use graphsieve::config::{Jump, LossConfig, Norm, OwnTransform, Rows, Stage2Config, TemperatureConfig};
use graphsieve::graph::{Adjacency, Ages, EdgeMatrix, HeteroGraph, RelationSpec};
use graphsieve::infer::attention::{edge_inputs, own_types};
use graphsieve::models::attention::{AttentionSpec, Connections, EpochDrop, Pass};
use graphsieve::models::auto_encoder::{AutoEncoderSpec, Inputs, Normalisation};
use graphsieve::models::device_graph::upload_by_type;
use graphsieve::models::parameters::{HostTensor, Parameters, to_host};
use graphsieve::models::{DeviceGraph, ReceptiveField, TimeInput, TripleStreamGae, TripleStreamGat};
use graphsieve::train::edges::{EdgeSample, LabelledPairs};
use graphsieve::train::reconstruction::Pairs;
use graphsieve::train::shard::Shard;
use graphsieve::train::tasks::attention_loss::{LossInput, LossWeights};
use graphsieve::train::tasks::auto_encoder::temperature;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{GraphBackend, download, on_every_backend};
use serde::Deserialize;

use crate::support::repository;

pub fn trials() -> Vec<Trial> {
    use bodies::*;
    let mut trials = on_every_backend!(
        "golden_models";
        stage_1_and_its_gradients_equal_the_dense_oracle,
        stage_2_and_its_gradients_equal_the_dense_oracle,
        stage_2_with_transforms_of_nodes_themselves_and_its_gradients_equal_the_dense_oracle,
        stage_2_with_gates_normalised_rows_and_both_layers_at_the_head_equals_the_dense_oracle,
        stage_2_with_values_and_ages_of_edges_and_its_gradients_equal_the_dense_oracle,
    );
    trials.extend(on_cpu!("golden_models"; the_temperature_follows_the_published_schedule));
    trials
}

/// Largest error of a value, as a share of the largest value beside it.
const TOLERANCE: f64 = 3e-6;

type Tensors = BTreeMap<String, Stored>;

#[derive(Deserialize)]
struct Stored {
    shape: Vec<usize>,
    values: Vec<f64>,
}

#[derive(Deserialize)]
struct Golden {
    types: Vec<(String, usize)>,
    relations: Vec<RelationFile>,
    widths: [usize; 3],
    features: Vec<f32>,
    stage1: Stage1,
    stage2: Stage2,
    without_loops: WithoutLoops,
    /// On the graph of `without_loops`.
    connected: Stage2,
    /// On the graph of `without_loops`, too.
    carried: Carried,
}

/// What edges carry: values of some relations, in the order of their edges, and ages.
#[derive(Deserialize)]
struct Carried {
    values: BTreeMap<String, Vec<f32>>,
    ages: BTreeMap<String, Vec<f32>>,
    /// Of all nodes; `knows` has ages by them.
    times: Vec<i32>,
    cosines: usize,
    stage2: Stage2,
}

/// A graph of the same nodes whose relations hold no loops.
#[derive(Deserialize)]
struct WithoutLoops {
    relations: Vec<RelationFile>,
    stage2: Stage2,
}

#[derive(Deserialize)]
struct RelationFile {
    name: String,
    stream: String,
    primary: bool,
    one_way: bool,
    src: usize,
    dst: usize,
    row_ptr: Vec<u64>,
    col_idx: Vec<u32>,
}

#[derive(Deserialize)]
struct Stage1 {
    parameters: Tensors,
    schedule: Schedule,
    pairs: Vec<PairsFile>,
    tau: f64,
    embeddings: Vec<f64>,
    logits: Vec<f64>,
    loss: f64,
    gradients: Tensors,
}

#[derive(Deserialize)]
struct Schedule {
    epochs: usize,
    warmup: usize,
    start: f64,
    peak: f64,
    end: f64,
    at: Vec<usize>,
    tau: Vec<f64>,
}

#[derive(Clone, Deserialize)]
struct PairsFile {
    relation: usize,
    dst: Vec<u32>,
    src: Vec<u32>,
    #[serde(default)]
    positives: usize,
}

#[derive(Deserialize)]
struct Stage2 {
    parameters: Tensors,
    labels: Vec<(u32, u8)>,
    smooth: Vec<PairsFile>,
    lambda_unsup: f64,
    runs: Vec<Stage2Run>,
}

#[derive(Deserialize)]
struct Stage2Run {
    heads: usize,
    drop_edge: Option<Drop>,
    /// By layer and relation, in the order of its edges.
    kept: Option<Vec<Vec<Vec<u8>>>>,
    embeddings: Vec<f64>,
    logits: Vec<f64>,
    /// All, supervised, unsupervised.
    terms: [f64; 3],
    gradients: Tensors,
}

#[derive(Clone, Copy, Deserialize)]
struct Drop {
    rate: f64,
    seed: u64,
    epoch: u32,
}

static GOLDEN: LazyLock<Golden> = LazyLock::new(|| {
    let text = fs::read_to_string(repository("tests/golden/models.json")).unwrap();
    serde_json::from_str(&text).unwrap()
});

/// Built from the relations that are given; the others have to come out as their reverse.
fn graph(relations: &[RelationFile]) -> HeteroGraph {
    let one_way = |name: &str| relations.iter().any(|r| r.name == name && r.one_way);
    let given = relations.iter().filter(|r| !r.name.ends_with("_T"));
    let spec = |r: &RelationFile| RelationSpec {
        name: r.name.clone(),
        src: r.src,
        dst: r.dst,
        stream: r.stream.clone(),
        primary: r.primary,
        adjacency: Adjacency::new(r.row_ptr.clone(), r.col_idx.clone(), GOLDEN.types[r.src].1).unwrap(),
    };
    let graph = HeteroGraph::with_reverse_relations(GOLDEN.types.clone(), given.map(spec).collect(), one_way).unwrap();
    for (relation, want) in graph.relations().iter().zip(relations) {
        let got = (&relation.name, relation.src, relation.dst, relation.primary, relation.forward.col_idx());
        assert_eq!(got, (&want.name, want.src, want.dst, want.primary, &want.col_idx[..]));
    }
    graph
}

fn features<B: GraphBackend>(host: &HeteroGraph, device: &B::Device) -> Vec<Tensor<Autodiff<B>, 2>> {
    upload_by_type(host.node_types(), GOLDEN.widths[0], DType::F32, device, &|k| GOLDEN.features[k])
}

fn streams(host: &HeteroGraph) -> Vec<String> {
    host.streams().into_iter().map(String::from).collect()
}

fn host_tensors(stored: &Tensors) -> BTreeMap<String, HostTensor> {
    let tensor =
        |t: &Stored| HostTensor { shape: t.shape.clone(), values: t.values.iter().map(|&v| v as f32).collect() };
    stored.iter().map(|(name, stored)| (name.clone(), tensor(stored))).collect()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()))
}

fn assert_near(what: &str, got: &[f32], want: &[f64]) {
    assert_within(TOLERANCE * largest(want), what, got, want);
}

fn assert_within(bound: f64, what: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let error = got.iter().zip(want).fold(0.0, |error: f64, (a, b)| error.max((f64::from(*a) - b).abs()));
    let largest = largest(want);
    assert!(error <= bound, "{what}: off by {error:e}, more than {bound:e}, where the largest value is {largest:e}");
}

/// The gradient of an attention vector is a difference of sums as large as the other gradients: the derivative of a
/// softmax adds up to zero. That of a gate is nearly zero where nothing arrives: a normalised row is the same whatever
/// its scale. So their errors are measured by the largest gradient of the model, every other by its own largest value.
fn assert_tensors(what: &str, got: &BTreeMap<String, HostTensor>, want: &Tensors) {
    assert!(got.keys().eq(want.keys()), "{what}: {:?}", got.keys());
    let of_all = want.values().map(|tensor| largest(&tensor.values)).fold(0.0, f64::max);
    for (name, got) in got {
        assert_eq!(got.shape, want[name].shape, "{what} {name}");
        let cancels = name.contains(".a_") || name.contains(".gate_");
        let scale = if cancels { of_all } else { largest(&want[name].values) };
        assert_within(TOLERANCE * scale, &format!("{what} {name}"), &got.values, &want[name].values);
    }
}

/// Puts the gradient of every parameter in its place, so that gradients have the names of the parameters.
struct Gradients(GradientsParams);

impl<B: GraphBackend> ModuleMapper<Autodiff<B>> for Gradients {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<Autodiff<B>, D>>) -> Param<Tensor<Autodiff<B>, D>> {
        let gradient = self.0.get::<B, D>(param.id).expect("every parameter has a gradient");
        Param::initialized(param.id, Tensor::from_inner(gradient))
    }
}

fn gradients<B: GraphBackend, M: AutodiffModule<Autodiff<B>>>(model: &M, loss: Tensor<Autodiff<B>, 1>) -> M {
    let gradients = GradientsParams::from_grads(loss.backward(), model);
    model.clone().map(&mut Gradients(gradients))
}

fn labelled(PairsFile { relation, dst, src, positives }: PairsFile) -> LabelledPairs {
    LabelledPairs { relation, dst, src, positives }
}

mod bodies {
    use super::*;

    pub fn stage_1_and_its_gradients_equal_the_dense_oracle<B: GraphBackend>(device: &B::Device) {
        let (host, golden) = (graph(&GOLDEN.relations), &GOLDEN.stage1);
        let [input, hidden, output] = GOLDEN.widths;
        let node_types = host.node_types().iter().map(|t| t.name.clone()).collect();
        let spec = AutoEncoderSpec {
            streams: streams(&host),
            node_types,
            input,
            hidden,
            output,
            causal: false,
            weighted: Vec::new(),
        };
        let tensors = host_tensors(&golden.parameters);
        let mut parameters = Parameters::<Autodiff<B>>::from_tensors(&tensors, Path::new("models.json"), device);
        let model = TripleStreamGae::new(&spec, &mut parameters).unwrap();

        let graph = DeviceGraph::upload(&host, device).unwrap();
        let normalisation = Normalisation::of(&host, false, device);
        let inputs = Inputs::new(&graph, &normalisation, features::<B>(&host, device), None);
        let z = model.embed(&graph, &ReceptiveField::all(&graph), &normalisation, &inputs);
        assert_near("embeddings", &download(z.clone()), &golden.embeddings);
        let pairs: Vec<LabelledPairs> = golden.pairs.iter().cloned().map(labelled).collect();
        let scored = Pairs::new(&host, &pairs, Rows::All).upload(device).score(&z, golden.tau);
        assert_near("logits", &to_host(scored.logits), &golden.logits);
        assert_near("loss", &to_host(scored.loss.clone()), &[golden.loss]);
        let gradients = gradients(&model, scored.loss);
        assert_tensors("gradient of", &gradients.export(&spec).0, &golden.gradients);
    }

    pub fn stage_2_and_its_gradients_equal_the_dense_oracle<B: GraphBackend>(device: &B::Device) {
        let host = graph(&GOLDEN.relations);
        // Two loops are not one of every node.
        assert_eq!(own_types(OwnTransform::Auto, &host).len(), 3);
        assert_is_the_oracle::<B>(&host, &GOLDEN.stage2, OwnTransform::Never, Connections::default(), device);
    }

    pub fn stage_2_with_transforms_of_nodes_themselves_and_its_gradients_equal_the_dense_oracle<B: GraphBackend>(
        device: &B::Device,
    ) {
        let WithoutLoops { relations, stage2 } = &GOLDEN.without_loops;
        assert_is_the_oracle::<B>(&graph(relations), stage2, OwnTransform::Auto, Connections::default(), device);
    }

    pub fn stage_2_with_gates_normalised_rows_and_both_layers_at_the_head_equals_the_dense_oracle<B: GraphBackend>(
        device: &B::Device,
    ) {
        let connections = Connections { residual: false, gate: true, norm: Norm::Layer, jump: Jump::Concat };
        let host = graph(&GOLDEN.without_loops.relations);
        assert_is_the_oracle::<B>(&host, &GOLDEN.connected, OwnTransform::Auto, connections, device);
    }

    pub fn stage_2_with_values_and_ages_of_edges_and_its_gradients_equal_the_dense_oracle<B: GraphBackend>(
        device: &B::Device,
    ) {
        let Carried { values, ages, times, stage2, .. } = &GOLDEN.carried;
        let mut host = graph(&GOLDEN.without_loops.relations);
        for (name, values) in values {
            let edges = host.relations().iter().find(|relation| relation.name == *name).unwrap().forward.num_edges();
            host.set_edge_values(name, Arc::new(EdgeMatrix::new(values.clone(), values.len() / edges)));
        }
        host.mirror_edge_values();
        host.set_times(times.as_slice().into());
        host.set_ages("knows", Ages::Nodes);
        for (name, ages) in ages {
            host.set_ages(name, Ages::Edges(Arc::new(EdgeMatrix::new(ages.clone(), 1))));
        }
        assert_eq!(host.relations().iter().filter(|relation| relation.values.is_some()).count(), 3);
        assert_is_the_oracle::<B>(&host, stage2, OwnTransform::Auto, Connections::default(), device);
    }

    fn assert_is_the_oracle<B: GraphBackend>(
        host: &HeteroGraph,
        golden: &Stage2,
        own: OwnTransform,
        connections: Connections,
        device: &B::Device,
    ) {
        let [input, hidden, output] = GOLDEN.widths;
        let graph = DeviceGraph::upload(host, device).unwrap();
        let x = features::<B>(host, device);
        let sample = |list: &PairsFile| EdgeSample { dst: list.dst.clone(), src: list.src.clone() };
        let smooth = golden.smooth.iter().map(|list| (&host.relations()[list.relation], sample(list))).collect();
        let tensors = host_tensors(&golden.parameters);
        assert_eq!(golden.runs.len(), 4);
        // Read where there are ages.
        let time = TimeInput { frequencies: GOLDEN.carried.cosines, learned: true, periods: [90.0, 7.0] };
        for run in &golden.runs {
            let what = |of: &str| format!("{} heads, DropEdge {}: {of}", run.heads, run.drop_edge.is_some());
            let spec = AttentionSpec {
                own: own_types(own, host),
                edges: edge_inputs(host, Some(&time)),
                connections,
                ..AttentionSpec::new(streams(host), input, [hidden, output], run.heads)
            };
            let mut parameters = Parameters::<Autodiff<B>>::from_tensors(&tensors, Path::new("models.json"), device);
            let model = TripleStreamGat::new(&spec, &mut parameters).unwrap();
            let drop_edge = run.drop_edge.map(|Drop { rate, seed, epoch }| EpochDrop { rate, seed, epoch });
            for (recompute, chunk_rows) in [(false, None), (true, None), (false, Some(4))] {
                let pass = Pass { drop_edge, recompute, chunk_rows, dropout: None };
                assert_eq!(kept(host, &graph, pass), run.kept, "{}", what("mask"));
                let h = model.embed(&graph, &ReceptiveField::all(&graph), &x, pass);
                assert_near(&what("embeddings"), &download(h.clone()), &run.embeddings);
                let logits = model.logits(h);
                assert_near(&what("logits"), &to_host(logits.clone()), &run.logits);
                let input = LossInput::of_shard(host, &golden.labels, &smooth, Rows::All, Shard::WHOLE);
                let loss = LossConfig { lambda_unsup: golden.lambda_unsup, ..Stage2Config::new("").loss };
                let weights = LossWeights::of(&loss, &[]);
                let terms = input.grouped().of(logits, weights, device);
                let [supervised, unsupervised] = &terms.terms[..] else { panic!("two terms") };
                for (term, want) in [&terms.loss.clone().inner(), supervised, unsupervised].into_iter().zip(run.terms) {
                    assert_near(&what("term of the loss"), &to_host(term.clone()), &[want]);
                }
                let gradients = gradients(&model, terms.loss);
                assert_tensors(&what("gradient of"), &gradients.export(&spec).0, &run.gradients);
            }
        }
    }
}

/// The edges that a pass keeps, by layer and relation.
fn kept<B: GraphBackend>(
    host: &HeteroGraph,
    graph: &DeviceGraph<Autodiff<B>>,
    pass: Pass,
) -> Option<Vec<Vec<Vec<u8>>>> {
    pass.drop_edge?;
    let of_layer = |layer: usize| {
        let of_relation = graph.relations.iter().map(|relation| {
            let drop = pass.drop_of(graph, layer, relation).unwrap();
            let forward = &host.relations()[relation.id].forward;
            let rows = 0..forward.num_rows() as u32;
            let of_row = |row: u32| forward.row(row as usize).iter().map(move |&col| u8::from(drop.keeps(row, col)));
            rows.flat_map(of_row).collect::<Vec<u8>>()
        });
        of_relation.collect::<Vec<_>>()
    };
    Some((0..2).map(of_layer).collect())
}

fn the_temperature_follows_the_published_schedule() {
    let Schedule { epochs, warmup, start, peak, end, at, tau } = &GOLDEN.stage1.schedule;
    let config = TemperatureConfig { warmup_epochs: *warmup, start: *start, peak: *peak, end: *end };
    assert_eq!(at.len(), 8);
    for (epoch, want) in at.iter().zip(tau) {
        let got = temperature(&config, *epoch, *epochs);
        assert!((got - want).abs() < 1e-7, "epoch {epoch}: {got} instead of {want}");
    }
}
