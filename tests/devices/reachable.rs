//! Epochs that compute only the rows that the loss can reach, and epochs in chunks of rows, are exact: the same loss
//! and the same gradients as on the whole graph at once, up to the rounding of f32.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn_flex::Flex;
use graphsieve::config::{Jump, Norm, OwnTransform, Rows, Stage1Config, Stage2Config, Stage2Model};
use graphsieve::data::synth::{self, Preset, SynthConfig};
use graphsieve::graph::Dataset;
use graphsieve::infer::attention::{edge_inputs, own_types};
use graphsieve::models::attention::{AttentionSpec, Connections, Pass};
use graphsieve::models::auto_encoder::AutoEncoderSpec;
use graphsieve::models::device_graph::upload_features;
use graphsieve::models::parameters::{Parameters, to_host};
use graphsieve::models::{DeviceGraph, ReceptiveField, TripleStreamGae, TripleStreamGat};
use graphsieve::run::splits::split_of;
use graphsieve::train::task::Task;
use graphsieve::train::tasks::attention::Attention;
use graphsieve::train::tasks::auto_encoder::AutoEncoder;
use graphsieve_kernels::NodeSet;
use graphsieve_kernels::testing::harness::Trial;

use crate::gradients::{assert_same, gradients};
use crate::valued::Carried;

pub fn trials() -> Vec<Trial> {
    on_cpu!(
        "reachable";
        stage_1_has_the_same_loss_and_gradients,
        stage_2_has_the_same_loss_and_gradients_with_one_head_and_with_three,
        a_few_wanted_rows_leave_most_of_the_graph_alone_and_come_out_the_same,
    )
}

type Ad = Autodiff<Flex>;

const EPOCHS: usize = 3;

/// Rows of a chunk: one, some, more than any type has.
const CHUNKS: [Option<usize>; 4] = [None, Some(1), Some(37), Some(1 << 30)];

fn marketplace() -> Dataset {
    synth::generate(&SynthConfig::preset(Preset::Quickstart).scaled(0.3), &|_, _, _| ()).unwrap()
}

fn features(data: &Dataset) -> Vec<Tensor<Ad, 2>> {
    let features = data.features.as_ref().unwrap();
    let f32 = burn::tensor::DType::F32;
    upload_features(data.graph.node_types(), features, f32, &Default::default()).unwrap()
}

/// The loss of an epoch and its gradients.
pub type Step = (f32, Vec<Vec<f32>>);

pub fn assert_same_step(what: &str, reachable: &Step, all: &Step) {
    assert!((reachable.0 - all.0).abs() <= 2e-6 * all.0.abs(), "{what}: loss {} instead of {}", reachable.0, all.0);
    assert_same(what, &reachable.1, &all.1, 1e-7);
}

fn stage_1_has_the_same_loss_and_gradients() {
    let data = marketplace();
    let host = &data.graph;
    let spec = AutoEncoderSpec {
        streams: host.streams().into_iter().map(String::from).collect(),
        node_types: host.node_types().iter().map(|t| t.name.clone()).collect(),
        input: data.features.as_ref().unwrap().dim(),
        hidden: 24,
        output: 16,
        causal: false,
        weighted: Vec::new(),
    };
    let device = Default::default();
    let model = TripleStreamGae::<Ad>::new(&spec, &mut Parameters::from_seed(3, &device)).unwrap();
    let run = |rows: Rows, chunk: Option<usize>| {
        let mut config = Stage1Config::new("unused");
        config.train.epochs = EPOCHS;
        config.train.rows = rows;
        config.train.chunk_size = chunk;
        config.sampling.edges = [("pu", 20), ("ps", 5), ("uu", 10)].map(|(s, n)| (s.to_string(), n)).into();
        let graph = DeviceGraph::upload(host, &device).unwrap();
        let task = AutoEncoder::<Flex>::new(&config, host, graph, features(&data), &device);
        let mut epochs = task.runner(config.seed, 1).unwrap();
        let one = |_| {
            let loss = epochs.next(&task, &model, None).unwrap().losses.loss;
            (to_host(loss.clone())[0], gradients::<Flex>(&model, loss))
        };
        (0..EPOCHS).map(one).collect::<Vec<_>>()
    };
    let all = run(Rows::All, None);
    for (rows, chunk) in CHUNKS.iter().flat_map(|&chunk| [(Rows::Reachable, chunk), (Rows::All, chunk)]) {
        for (epoch, (got, all)) in run(rows, chunk).iter().zip(&all).enumerate() {
            assert_same_step(&format!("stage 1, {rows:?} rows, chunk {chunk:?}, epoch {}", epoch + 1), got, all);
        }
    }
}

fn stage_2_has_the_same_loss_and_gradients_with_one_head_and_with_three() {
    let data = marketplace();
    let device = Default::default();
    let carried = [1, 3].into_iter().flat_map(|heads| Carried::ALL.map(|carried| (heads, carried, false)));
    for (heads, carried, connected) in carried.chain([(1, Carried::Nothing, true), (3, Carried::ValuesAndAges, true)]) {
        let connections = match connected {
            true => Connections { residual: true, gate: true, norm: Norm::Layer, jump: Jump::Concat },
            false => Connections::default(),
        };
        let host = &carried.on(&data.graph);
        let spec = AttentionSpec {
            own: own_types(OwnTransform::Always, host),
            edges: edge_inputs(host, carried.time().as_ref()),
            connections,
            ..AttentionSpec::new(host.streams(), data.features.as_ref().unwrap().dim(), [24, 12], heads)
        };
        let model = TripleStreamGat::<Ad>::new(&spec, &mut Parameters::from_seed(4, &device)).unwrap();
        let run = |rows: Rows, recompute: bool, chunk: Option<usize>| {
            let mut config = Stage2Config::new("unused");
            config.train.epochs = EPOCHS;
            config.train.rows = rows;
            config.model.recompute = recompute;
            config.model.own = OwnTransform::Always;
            let Connections { residual, gate, norm, jump } = connections;
            config.model = Stage2Model { residual, gate, norm, jump, ..config.model };
            config.train.chunk_size = chunk;
            config.loss.samples_per_relation = 8;
            let labels = &data.labels.as_ref().unwrap().entries;
            let split = split_of(&data, labels, &config.split, config.seed).unwrap();
            let some = &split.train[..30];
            let graph = DeviceGraph::upload(host, &device).unwrap();
            let task = Attention::<Flex>::on_device(&config, host, graph, features(&data), some, &device);
            let mut epochs = task.runner(config.seed, 1).unwrap();
            let one = |_| {
                let loss = epochs.next(&task, &model, None).unwrap().losses.loss;
                (to_host(loss.clone())[0], gradients::<Flex>(&model, loss))
            };
            (0..EPOCHS).map(one).collect::<Vec<_>>()
        };
        let all = run(Rows::All, false, None);
        let chunked = CHUNKS.iter().flat_map(|&chunk| [(Rows::Reachable, false, chunk), (Rows::All, false, chunk)]);
        for (rows, recompute, chunk) in [(Rows::Reachable, true, None)].into_iter().chain(chunked) {
            for (epoch, (got, all)) in run(rows, recompute, chunk).iter().zip(&all).enumerate() {
                let name = format!("stage 2, {heads} heads, {rows:?} rows, chunk {chunk:?}, epoch {}", epoch + 1);
                assert_same_step(&name, got, all);
            }
        }
    }
}

fn a_few_wanted_rows_leave_most_of_the_graph_alone_and_come_out_the_same() {
    let data = marketplace();
    let host = &data.graph;
    let device = Default::default();
    let graph = DeviceGraph::<Ad>::upload(host, &device).unwrap().inner();
    let x: Vec<Tensor<Flex, 2>> = features(&data).into_iter().map(Tensor::inner).collect();
    let spec = AttentionSpec {
        own: own_types(OwnTransform::Always, host),
        edges: edge_inputs(host, None),
        ..AttentionSpec::new(host.streams(), data.features.as_ref().unwrap().dim(), [16, 16], 1)
    };
    let model = TripleStreamGat::<Flex>::new(&spec, &mut Parameters::from_seed(5, &device)).unwrap();
    // No node of the last type is wanted at all.
    let wanted: [&[u32]; 3] = [&[1, 7], &[0], &[]];
    let sets = wanted.iter().zip(&graph.node_types).map(|(nodes, t)| NodeSet::new(nodes, t.count, &device)).collect();
    let field = ReceptiveField::of(&graph, sets, |_| None, &device);
    let computed: usize = (0..3).map(|t| field.rows(&graph, 1, t)).sum();
    assert!(computed < host.num_nodes() / 2, "{computed} of {} rows", host.num_nodes());
    let few = model.embed(&graph, &field, &x, Pass::default());
    let all = model.embed(&graph, &ReceptiveField::all(&graph), &x, Pass::default());
    let in_chunks = Pass { chunk_rows: Some(5), ..Pass::default() };
    for (chunked, all) in model.embed(&graph, &ReceptiveField::all(&graph), &x, in_chunks).into_iter().zip(&all) {
        let (chunked, all) = (to_host(chunked), to_host(all.clone()));
        assert!(chunked.iter().zip(&all).all(|(a, b)| (a - b).abs() <= 1e-6), "scoring in chunks");
    }
    for (t, nodes) in wanted.iter().enumerate() {
        let (few, all) = (to_host(few[t].clone()), to_host(all[t].clone()));
        let want: Vec<f32> = nodes.iter().flat_map(|&n| all[n as usize * 16..][..16].to_vec()).collect();
        assert_eq!(few.len(), want.len());
        assert!(few.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-6), "type {t}");
    }
}
