//! Laws of training through the library: one loss curve on every backend and in chunks of rows, the same bytes whatever
//! the threads, half precision near full precision, any typed graph.

use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::Flex;
use graphsieve::config::{
    LoaderMode, OwnTransform, Precision, RunConfig, Stage1Config, Stage2Config, Stage2Input, TimeEncodingKind,
};
use graphsieve::data::synth::{self, Preset, SynthConfig};
use graphsieve::graph::{
    Adjacency, Dataset, EdgeColumns, EdgeValues, Features, HeteroGraph, Labels, RelationSpec, Spill, Values,
};
use graphsieve::infer::embed::Stage1;
use graphsieve::models::precision::dtype_on;
use graphsieve::score::{self, ScoreOptions, Scores};
use graphsieve::train::{self, RunOptions};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{GraphBackend, TreeBackend, on_backend, on_cuda, on_vulkan};
use tempfile::TempDir;

pub fn trials() -> Vec<Trial> {
    let mut trials = on_cpu!(
        "training";
        a_node_type_without_nodes_is_no_obstacle,
        the_same_seed_gives_the_same_bytes_whatever_the_threads,
        training_in_chunks_of_rows_follows_the_same_curve,
        recomputing_the_attention_gives_the_same_bytes,
        another_seed_gives_another_model,
        dropout_and_class_weights_change_the_training_alone,
        half_precision_follows_the_curve_of_full_precision,
        half_precision_follows_where_edges_have_values_and_ages_in_chunks,
        any_typed_graph_trains_not_only_a_marketplace,
        a_rows_own_value_reaches_its_score_where_no_relation_has_loops,
        stage_1_embeds_and_both_stages_score_a_graph_that_no_training_saw,
    );
    // Not on Vulkan: a software driver takes minutes to compile it. Its operators run there one by one.
    trials.push(on_backend!(Cpu, Flex, "training", half_precision_follows_where_edges_have_values_and_ages));
    on_vulkan!(trials.extend([
        on_backend!(Vulkan, graphsieve_kernels::Vulkan, "steps", twenty_steps_follow_the_cpu),
        on_backend!(Vulkan, graphsieve_kernels::Vulkan, "steps", twenty_steps_without_nodes_of_a_type_follow_the_cpu),
        on_backend!(Vulkan, graphsieve_kernels::Vulkan, "training", features_are_those_of_the_cpu),
    ]););
    on_cuda!(trials.extend([
        on_backend!(Cuda, graphsieve_kernels::Cuda, "steps", twenty_steps_follow_the_cpu),
        on_backend!(Cuda, graphsieve_kernels::Cuda, "steps", twenty_steps_without_nodes_of_a_type_follow_the_cpu),
        on_backend!(Cuda, graphsieve_kernels::Cuda, "training", features_are_those_of_the_cpu),
        on_backend!(Cuda, graphsieve_kernels::Cuda, "training", half_precision_follows_where_edges_have_values_and_ages),
    ]););
    trials
}

const STEPS: usize = 20;

/// Of [`stages`].
const NAMES: [&str; 3] = ["stage 1", "stage 2", "stage 2 with labels and residual connections"];

/// A directory with a marketplace of a few hundred nodes in `data`.
pub fn marketplace() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = SynthConfig::preset(Preset::Quickstart).scaled(0.15);
    synth::generate(&config, &|_, _, _| ()).unwrap().write(&dir.path().join("data")).unwrap();
    dir
}

pub fn stage1(dir: &TempDir) -> Stage1Config {
    let mut config = Stage1Config::new(dir.path().join("data"));
    config.output.dir = dir.path().join("runs");
    config.output.plots = false;
    config.train.epochs = STEPS;
    config
}

fn stage2(dir: &TempDir) -> Stage2Config {
    let mut config = Stage2Config::new(dir.path().join("data"));
    config.data.input = Stage2Input::Features;
    config.output.dir = dir.path().join("runs");
    config.output.plots = false;
    config.train.epochs = STEPS;
    config.drop_edge.rate = 0.5;
    config
}

/// Both stages, and Stage 2 with what is off unless asked for: known labels as input, residual connections.
fn stages(dir: &TempDir, change: impl Fn(&mut graphsieve::config::TrainConfig)) -> [RunConfig; 3] {
    let (mut first, mut second) = (stage1(dir), stage2(dir));
    change(&mut first.train);
    change(&mut second.train);
    let mut optional = second.clone();
    (optional.model.labels, optional.model.residual) = (true, true);
    [RunConfig::Stage1(first), RunConfig::Stage2(second), RunConfig::Stage2(optional)]
}

pub fn run<B: GraphBackend + TreeBackend>(config: RunConfig, device: &B::Device) -> PathBuf {
    let options = RunOptions::quiet("test");
    let outcome = train::run::<B>(config, &options, device).unwrap();
    outcome.stage1.map(|s| s.run).or(outcome.stage2.map(|s| s.run)).unwrap()
}

pub fn losses(run: &Path) -> Vec<f64> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let loss = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64().unwrap();
    text.lines().map(loss).collect()
}

fn assert_same_curve(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!((got.len(), want.len()), (STEPS, STEPS), "{name}");
    assert_ne!(want[0], want[STEPS - 1], "the loss moves");
    for (epoch, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= tolerance * b.abs(), "{name}, epoch {}: loss {a} instead of {b}", epoch + 1);
    }
}

#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn assert_follows_the_cpu<B: GraphBackend + TreeBackend>(dir: &TempDir, device: &B::Device) {
    for (stage, config) in stages(dir, |_| ()).into_iter().enumerate() {
        let want = losses(&run::<Flex>(config.clone(), &Default::default()));
        let got = losses(&run::<B>(config, device));
        assert_same_curve(NAMES[stage], &got, &want, 1e-3);
    }
}

#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn twenty_steps_follow_the_cpu<B: GraphBackend + TreeBackend>(device: &B::Device) {
    assert_follows_the_cpu::<B>(&marketplace(), device);
}

#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn twenty_steps_without_nodes_of_a_type_follow_the_cpu<B: GraphBackend + TreeBackend>(device: &B::Device) {
    assert_follows_the_cpu::<B>(&without_sellers(), device);
}

/// Every block over every relation and their union, in pieces of 48 features.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn features_are_those_of_the_cpu<B: GraphBackend>(device: &B::Device) {
    use burn::tensor::DType;
    use graphsieve::features::{Execution, Neighbourhood, NeighbourhoodConfig, Over};
    let config = NeighbourhoodConfig { max: true, sum: true, over: Over::Both, ..Default::default() };
    for data in [marketplace, without_sellers] {
        let dir = data();
        let dataset = Dataset::open(&dir.path().join("data")).unwrap();
        let plan = Neighbourhood::new(&dataset.graph, dataset.features.as_ref().unwrap(), &config).unwrap();
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 1e-2)] {
            let want = plan.table::<Flex>(&Default::default(), Execution { dtype, columns: 48 }).unwrap();
            let got = plan.table::<B>(device, Execution { dtype, columns: 48 }).unwrap();
            for (at, column) in want.columns().iter().enumerate() {
                let pairs = got.column(at).zip(want.column(at));
                let largest = pairs.clone().fold(1.0f32, |largest, (_, want)| largest.max(want.abs()));
                let error = pairs.fold(0.0f32, |error, (got, want)| error.max((got - want).abs()));
                assert!(error <= tolerance * largest, "{dtype:?}, {}: {error} of {largest}", column.name);
            }
        }
    }
}

/// A marketplace whose products have no brand: a node type without nodes.
fn without_sellers() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (users, products) = (40u32, 30u32);
    let bought: Vec<(u32, u32)> =
        (0..users).flat_map(|u| (0..4).map(move |k| (u, (u * 3 + k * 7) % products))).collect();
    let together: Vec<(u32, u32)> =
        (0..users).flat_map(|u| [(u, u), (u, (u + 1) % users), ((u + 1) % users, u)]).collect();
    let epu = Adjacency::from_edges(users as usize, products as usize, &bought);
    let eps = Adjacency::from_edges(products as usize, 0, &[]);
    let euu = Adjacency::from_edges(users as usize, users as usize, &together);
    let graph = HeteroGraph::marketplace(users as usize, products as usize, 0, epu, eps, euu).unwrap();
    let values = (0..70 * 128).map(|k| half::f16::from_f32((k % 31) as f32 / 31.0)).collect();
    let features = Some(Features::from_vec(values, 70, 128));
    let labels = Some(Labels { entries: (0..users).map(|i| (i, u8::from(i % 4 == 0))).collect() });
    Dataset::new(graph, features, labels, None).write(&dir.path().join("data")).unwrap();
    dir
}

fn a_node_type_without_nodes_is_no_obstacle() {
    let dir = without_sellers();
    for config in stages(&dir, |_| ()) {
        assert_eq!(losses(&run::<Flex>(config, &Default::default())).len(), STEPS);
    }
}

/// The files with what a run computed.
pub fn outputs(run: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let names = ["Z_embeddings_stage1.npy", "anomaly_scores_stage2.npy", "Z_stage2.npy", "metrics.jsonl"];
    let files: Vec<_> = names.iter().filter_map(|n| Some((*n, fs::read(run.join(n)).ok()?))).collect();
    assert!(files.len() >= 2);
    files
}

fn the_same_seed_gives_the_same_bytes_whatever_the_threads() {
    let dir = marketplace();
    let train = |stage: usize, chunk: Option<usize>, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        // Bytes that differ differ in the first steps.
        let config = stages(&dir, |train| (train.chunk_size, train.epochs) = (chunk, 6))[stage].clone();
        outputs(&pool.install(|| run::<Flex>(config, &Default::default())))
    };
    for (stage, name) in NAMES.iter().enumerate() {
        let first = train(stage, None, 2);
        for threads in [2, 1, 5] {
            assert!(train(stage, None, threads) == first, "{name}, {threads} threads");
        }
        // Sums over rows are rounded by chunks, whose order no thread changes.
        let chunked = train(stage, Some(7), 2);
        for threads in [1, 5] {
            assert!(train(stage, Some(7), threads) == chunked, "{name} in chunks, {threads} threads");
        }
    }
}

fn training_in_chunks_of_rows_follows_the_same_curve() {
    // Row by row where there are few: a chunk costs about the same whatever its size.
    for (data, fewest) in [(marketplace(), 30), (without_sellers(), 1)] {
        for (stage, name) in NAMES.iter().enumerate() {
            let train = |chunk: Option<usize>| {
                let config = stages(&data, |train| train.chunk_size = chunk)[stage].clone();
                losses(&run::<Flex>(config, &Default::default()))
            };
            let want = train(None);
            for chunk in [fewest, 50, 1 << 30] {
                // Twenty steps of Adam magnify the rounding of sums in another order, by how much depends on the
                // processor: 2e-5 was seen. What one step may differ by, 2e-6, is held in `reachable`.
                assert_same_curve(&format!("{name}, chunk {chunk}"), &train(Some(chunk)), &want, 1e-4);
            }
        }
    }
}

fn recomputing_the_attention_gives_the_same_bytes() {
    let dir = marketplace();
    let train = |recompute: bool| {
        let mut config = stage2(&dir);
        config.model.recompute = recompute;
        outputs(&run::<Flex>(RunConfig::Stage2(config), &Default::default()))
    };
    assert!(train(true) == train(false));
}

fn another_seed_gives_another_model() {
    let dir = marketplace();
    let train =
        |seed: u64| losses(&run::<Flex>(RunConfig::Stage1(Stage1Config { seed, ..stage1(&dir) }), &Default::default()));
    assert_ne!(train(42), train(43));
}

/// Of the first epoch: later ones start from other weights.
fn dropout_and_class_weights_change_the_training_alone() {
    let dir = marketplace();
    let run_with = |change: &dyn Fn(&mut Stage2Config)| {
        let mut config = stage2(&dir);
        config.train.epochs = 1;
        change(&mut config);
        run::<Flex>(RunConfig::Stage2(config), &Default::default())
    };
    let first = |change: &dyn Fn(&mut Stage2Config)| losses(&run_with(change))[0];
    let plain = first(&|_| ());
    assert_eq!(plain, first(&|config| config.loss.positive_weight = Some(1.0)));
    let dropped: &dyn Fn(&mut Stage2Config) = &|config| config.model.dropout = 0.4;
    assert_ne!(plain, first(dropped));
    assert_eq!(first(dropped), first(dropped), "drawn anew by the seed alone");
    let in_chunks = first(&|config| (config.model.dropout, config.train.chunk_size) = (0.4, Some(100)));
    assert!((in_chunks - first(dropped)).abs() <= 1e-5 * in_chunks, "the same values are dropped in chunks");
    let weighted = first(&|config| config.loss.positive_weight = Some(5.0));
    let focal = first(&|config| config.loss.focal_gamma = 2.0);
    assert!(weighted != plain && focal < plain, "{plain} {weighted} {focal}");
    let sampled = |dropout: f64| {
        first(&|config| {
            config.model.dropout = dropout;
            (config.loader.mode, config.loader.batch_size) = (LoaderMode::Sampled, 500);
        })
    };
    assert_ne!(sampled(0.0), sampled(0.4));
    // What is written of a run is scored without dropout: the run and a checkpoint of it agree.
    let run = run_with(dropped);
    let read = |path: &Path| fs::read(path.join("anomaly_scores_stage2.npy")).unwrap();
    assert_eq!(read(&run), read(&run_with(dropped)));
}

fn half_precision_follows_the_curve_of_full_precision() {
    let dir = marketplace();
    for (stage, name) in NAMES.iter().enumerate() {
        follows_in_half_precision::<Flex>(name, &Default::default(), |precision| {
            stages(&dir, |train| train.precision = precision)[stage].clone()
        });
    }
}

fn half_precision_follows_where_edges_have_values_and_ages<B: GraphBackend + TreeBackend>(device: &B::Device) {
    for mode in [LoaderMode::Full, LoaderMode::Sampled] {
        carried_in_half_precision::<B>(&format!("{mode:?}"), device, |config| config.loader.mode = mode);
    }
}

fn half_precision_follows_where_edges_have_values_and_ages_in_chunks() {
    carried_in_half_precision::<Flex>("chunks", &Default::default(), |config| config.train.chunk_size = Some(100));
}

fn carried_in_half_precision<B: GraphBackend + TreeBackend>(
    name: &str,
    device: &B::Device,
    change: impl Fn(&mut Stage2Config),
) {
    let dir = with_values_and_ages();
    follows_in_half_precision::<B>(&format!("values and ages, {name}"), device, |precision| {
        let mut config = stage2(&dir);
        config.train.precision = precision;
        (config.model.edge_values, config.model.time_encoding) = (true, TimeEncodingKind::Learned);
        change(&mut config);
        RunConfig::Stage2(config)
    });
}

fn follows_in_half_precision<B: GraphBackend + TreeBackend>(
    name: &str,
    device: &B::Device,
    config: impl Fn(Precision) -> RunConfig,
) {
    let train = |precision: Precision| losses(&run::<B>(config(precision), device));
    let want = train(Precision::F32);
    assert_same_curve(&format!("{name}, f16"), &train(Precision::F16), &want, 0.01);
    // Not every device has it.
    if dtype_on::<B>(Precision::BF16, device).is_ok() {
        assert_same_curve(&format!("{name}, bf16"), &train(Precision::BF16), &want, 0.03);
    }
}

/// A marketplace whose purchases have values and whose edges between users have times.
fn with_values_and_ages() -> TempDir {
    let dir = marketplace();
    let mut data = Dataset::open(&dir.path().join("data")).unwrap();
    let edges = |name: &str| data.graph.relations().iter().find(|of| of.name == name).unwrap().forward.num_edges();
    let drawn = |count: usize| (0..count as i64).map(|k| k * 7919 % 101);
    let values = drawn(3 * edges("epu")).map(|k| k as f32 / 50.0 - 1.0).collect();
    let names = ["a", "b", "c"].map(String::from).into();
    let columns = Some(EdgeColumns { names, values: Values::Made(values) });
    let time = Some(Values::Made(drawn(edges("euu")).map(|k| 86_400 * k).collect()));
    data.edge_values = vec![
        EdgeValues { relation: "epu".into(), weight: None, time: None, columns },
        EdgeValues { relation: "euu".into(), weight: None, time, columns: None },
    ];
    let carried = tempfile::tempdir().unwrap();
    data.write(&carried.path().join("data")).unwrap();
    carried
}

fn any_typed_graph_trains_not_only_a_marketplace() {
    let dir = tempfile::tempdir().unwrap();
    let n = 60u32;
    let ring: Vec<(u32, u32)> = (0..n).flat_map(|i| [(i, (i + 1) % n), ((i + 1) % n, i)]).collect();
    let skip: Vec<(u32, u32)> = (0..n).map(|i| (i, (i * 7 + 3) % n)).collect();
    let spec = |name: &str, edges: &[(u32, u32)]| {
        RelationSpec::new(name, 0, 0, Adjacency::from_edges(n as usize, n as usize, edges))
    };
    let types = vec![("account".to_string(), n as usize)];
    let graph = HeteroGraph::new(types, vec![spec("pays", &ring), spec("shares", &skip)]).unwrap();
    let values = (0..n * 8).map(|k| half::f16::from_f32((k % 13) as f32 / 13.0)).collect();
    let labels = Labels { entries: (0..n).map(|i| (i, u8::from(i % 3 == 0))).collect() };
    let features = Some(Features::from_vec(values, n as usize, 8));
    Dataset::new(graph, features, Some(labels), None).write(&dir.path().join("data")).unwrap();

    let mut first = stage1(&dir);
    (first.model.hidden, first.model.out) = (12, 10);
    let embeddings = run::<Flex>(RunConfig::Stage1(first), &Default::default());
    let mut second = stage2(&dir);
    second.data.input = Stage2Input::Embeddings;
    second.data.embeddings = Some(embeddings);
    (second.model.hidden, second.model.out, second.model.heads) = (12, 6, 3);
    let scores = run::<Flex>(RunConfig::Stage2(second), &Default::default()).join("anomaly_scores_stage2.npy");
    assert_eq!(graphsieve::run::evaluation::read_scores(&scores, n as usize).unwrap().len(), n as usize);
}

/// Payments that name their customer and terminal, both one way: every relation is without loops. A payment is bad
/// where its own amount is high, and nothing else tells.
fn a_rows_own_value_reaches_its_score_where_no_relation_has_loops() {
    const PAYMENTS: u32 = 600;
    let dir = tempfile::tempdir().unwrap();
    let counts = [40u32, 25, PAYMENTS];
    let edges = |of: u32, step: u32| -> Vec<(u32, u32)> { (0..PAYMENTS).map(|p| (p, p * step % of)).collect() };
    let spec = |name: &str, src: usize, edges: &[(u32, u32)]| {
        RelationSpec::new(name, src, 2, Adjacency::from_edges(PAYMENTS as usize, counts[src] as usize, edges))
    };
    let types = ["customer", "terminal", "payment"].into_iter().zip(counts).map(|(name, n)| (name.into(), n as usize));
    let relations = vec![spec("paid_by", 0, &edges(40, 7)), spec("paid_at", 1, &edges(25, 11))];
    let graph = HeteroGraph::new(types.collect(), relations).unwrap();
    assert_eq!(graph.looped_types(), [false; 3]);
    let (nodes, first) = (graph.num_nodes(), nodes_before_payments(&counts));
    let amount = |payment: u32| ((payment * 7919 + 13) % 1000) as f32 / 1000.0;
    let mut values: Vec<f32> = (0..nodes * 3).map(|k| ((k * 31) % 17) as f32 / 17.0 - 0.5).collect();
    (0..PAYMENTS).for_each(|payment| values[(first + payment as usize) * 3] = amount(payment) - 0.5);
    let entries = (0..PAYMENTS).map(|p| (first as u32 + p, u8::from(amount(p) > 0.8))).collect();
    let features = Some(Features::from_f32(values, nodes, 3));
    Dataset::new(graph, features, Some(Labels { entries }), None).write(&dir.path().join("data")).unwrap();

    let test_auc = |own: OwnTransform| {
        let mut config = stage2(&dir);
        (config.model.hidden, config.model.out, config.model.own) = (8, 8, own);
        (config.train.epochs, config.train.learning_rate, config.loss.lambda_unsup) = (80, 0.02, 0.0);
        config.train.learning_rate_min = 0.02;
        let run = run::<Flex>(RunConfig::Stage2(config), &Default::default());
        let outcome = fs::read_to_string(run.join("evaluation.json")).unwrap();
        let outcome: serde_json::Value = serde_json::from_str(&outcome).unwrap();
        outcome["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap()
    };
    let [with, without] = [OwnTransform::Auto, OwnTransform::Never].map(test_auc);
    assert!(with > 0.95 && without < 0.75, "{with} with the transform, {without} without");
}

fn nodes_before_payments(counts: &[u32; 3]) -> usize {
    (counts[0] + counts[1]) as usize
}

fn stage_1_embeds_and_both_stages_score_a_graph_that_no_training_saw() {
    let dir = marketplace();
    let device = Default::default();
    let first = run::<Flex>(RunConfig::Stage1(stage1(&dir)), &device);
    let mut config = stage2(&dir);
    (config.data.input, config.data.embeddings) = (Stage2Input::Embeddings, Some(first.clone()));
    let second = run::<Flex>(RunConfig::Stage2(config), &device);

    let data = dir.path().join("data");
    let dataset = Dataset::open(&data).unwrap();
    let model = Stage1::open(&first).unwrap();
    let written = graphsieve::graph::read_embeddings(first.join("Z_embeddings_stage1.npy"), None).unwrap();
    let all = Spill::default();
    let own = model.embed::<Flex>(&dataset, &data, &all, &device).unwrap();
    assert!(own.as_f32() == written, "the training's own rows, bit for bit");

    // The same graph elsewhere has the scores of the run, another one has its own.
    let elsewhere = dir.path().join("elsewhere");
    dataset.write(&elsewhere).unwrap();
    let other = dir.path().join("other");
    let config = SynthConfig { seed: 9, ..SynthConfig::preset(Preset::Quickstart).scaled(0.1) };
    synth::generate(&config, &|_, _, _| ()).unwrap().write(&other).unwrap();
    let scores = |run: &Path, data: &Path| {
        let options = ScoreOptions::new(run, data);
        match score::compute::<Flex>(&options, &device).unwrap().scores {
            Scores::Anomaly(scores) => scores,
            Scores::Classes(_) => panic!("no classes"),
        }
    };
    let nodes = dataset.graph.num_nodes();
    let kept = graphsieve::run::evaluation::read_scores(&second.join("anomaly_scores_stage2.npy"), nodes).unwrap();
    assert_eq!(scores(&second, &elsewhere), kept);
    assert_eq!(scores(&second, &data), kept);
    let own = score::ScoredRun::open(&first, None).unwrap().scores;
    let bits = |scores: &[f32]| scores.iter().map(|score| score.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(&scores(&first, &elsewhere)), bits(&own));
    let unseen = Dataset::open(&other).unwrap();
    assert_ne!(unseen.graph.num_nodes(), nodes);
    for run in [&first, &second] {
        assert_eq!(scores(run, &other).len(), unseen.graph.num_nodes());
    }

    let narrow = Features::from_f32(vec![0.0; nodes], nodes, 1);
    let narrow = Dataset::new(dataset.graph.clone(), Some(narrow), None, None);
    let refused = model.embed::<Flex>(&narrow, &data, &all, &device).unwrap_err().to_string();
    assert!(refused.contains("columns, as the model was trained on") && refused.contains("found 1"), "{refused}");
    let renamed = HeteroGraph::new(vec![("account".into(), 4)], Vec::new()).unwrap();
    let renamed = Dataset::new(renamed, dataset.features.clone(), None, None);
    let refused = model.embed::<Flex>(&renamed, &data, &all, &device).unwrap_err().to_string();
    assert!(refused.contains("as the model was trained on"), "{refused}");
}
