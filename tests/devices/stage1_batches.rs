//! Stage 1 in mini-batches. Where every neighbour is taken, steps and embeddings are those of the whole graph; several
//! batches learn as much, the same whatever the threads, and nothing of edges that are held out.

use std::fs;
use std::path::Path;

use burn::module::AutodiffModule;
use burn_flex::Flex;
use graphsieve::config::{LoaderConfig, LoaderMode, RunConfig, Stage1Config, Transfer};
use graphsieve::data::edge_split::EdgeSplit;
use graphsieve::data::synth::{self, Preset, SynthConfig};
use graphsieve::graph::{Dataset, Spill, read_embeddings};
use graphsieve::infer::embed::Stage1;
use graphsieve::loader::Placement;
use graphsieve::models::parameters::{Parameters, to_host};
use graphsieve::train::runner::Runner;
use graphsieve::train::task::Task;
use graphsieve::train::tasks::auto_encoder::AutoEncoder;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{GraphBackend, on_every_backend};
use tempfile::TempDir;

use crate::gradients::{assert_same, gradients};
use crate::training::{losses, marketplace, outputs, run, stage1};

pub fn trials() -> Vec<Trial> {
    let mut trials = on_every_backend!(
        "stage1_batches";
        one_batch_of_all_neighbours_has_the_loss_the_gradients_and_the_embeddings_of_the_whole_graph,
    );
    trials.extend(on_cpu!(
        "stage1_batches";
        several_batches_find_edges_as_the_whole_graph_does,
        batches_have_the_same_bytes_whatever_the_threads,
        no_edge_that_is_held_out_is_in_a_batch,
    ));
    trials
}

fn one_batch_of_all_neighbours_has_the_loss_the_gradients_and_the_embeddings_of_the_whole_graph<B: GraphBackend>(
    device: &B::Device,
) {
    let data = synth::generate(&SynthConfig::preset(Preset::Quickstart).scaled(0.2), &|_, _, _| ()).unwrap();
    let (host, features) = (&data.graph, data.features.as_ref().unwrap());
    let mut config = Stage1Config::new("unused");
    (config.model.hidden, config.model.out, config.train.epochs) = (24, 16, 2);
    config.sampling.edges = [("pu", 20), ("ps", 5), ("uu", 10)].map(|(s, n)| (s.to_string(), n)).into();
    for causal in [false, true] {
        let (whole, how) = AutoEncoder::<B>::open(&config, host, features, causal, false, None, device).unwrap();
        assert!(how.is_none());
        let model = whole.model(&mut Parameters::from_seed(3, device)).unwrap();
        let mut full = whole.runner(config.seed, 1).unwrap();
        let want = [(); 2].map(|()| {
            let loss = full.next(&whole, &model, None).unwrap().losses.loss;
            (to_host(loss.clone())[0], gradients::<B>(&model, loss))
        });
        let z = whole.embed_all(&model.valid(), None).unwrap();
        for transfer in [Transfer::Gathered, Transfer::Resident] {
            let mode = LoaderMode::Sampled;
            config.loader =
                LoaderConfig { mode, transfer, fanouts: vec![0, 0], batch_size: 1 << 30, ..LoaderConfig::default() };
            let (parts, how) = AutoEncoder::<B>::open(&config, host, features, causal, true, None, device).unwrap();
            assert!(how.unwrap().contains("as asked for"));
            let mut sampled = parts.runner(config.seed, 1).unwrap();
            let Runner::Sampled(batches) = &sampled else { panic!("mini-batches were asked for") };
            let by_device = B::SAMPLES && transfer == Transfer::Resident;
            let placement = if by_device { Placement::Device } else { Placement::Host };
            assert_eq!(batches.placement.decide(), placement);
            for (epoch, (loss, of_all)) in want.iter().enumerate() {
                let step = sampled.next(&parts, &model, None).unwrap();
                assert!(step.last && step.share == 1.0);
                let got = to_host(step.losses.loss.clone())[0];
                let name = format!("causal: {causal}, {transfer:?}, epoch {epoch}");
                assert!((loss - got).abs() <= 4e-6 * loss.abs(), "{name}: {got} for {loss}");
                assert_same(&name, &gradients::<B>(&model, step.losses.loss), of_all, 1e-6);
            }
            let own = parts.embed_all(&model.valid(), None).unwrap();
            assert_eq!(own.dim(), z.dim());
            let off = own.as_f32().iter().zip(z.as_f32()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off <= 1e-5, "causal: {causal}, {transfer:?}: embeddings are off by {off}");
        }
    }
}

/// Some batches of each epoch.
fn in_batches(dir: &TempDir) -> Stage1Config {
    let mut config = stage1(dir);
    (config.model.hidden, config.model.out, config.train.learning_rate) = (16, 16, 0.01);
    let (mode, fanouts) = (LoaderMode::Sampled, vec![5, 4]);
    config.loader = LoaderConfig { mode, fanouts, batch_size: 400, ..LoaderConfig::default() };
    config
}

/// Figures of edges that were held out, and of those of the training.
fn edge_auc(run: &Path) -> [f64; 2] {
    let text = fs::read_to_string(run.join("evaluation.json")).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(&text).unwrap();
    ["held_out", "trained_on"].map(|which| outcome[which]["edge_auc"].as_f64().unwrap())
}

fn several_batches_find_edges_as_the_whole_graph_does() {
    let dir = marketplace();
    let device = Default::default();
    let config = in_batches(&dir);
    // As many steps.
    let mut whole = Stage1Config { loader: LoaderConfig::default(), ..config.clone() };
    whole.train.epochs = 100;
    let [batches, whole] = [config, whole].map(|config| run::<Flex>(RunConfig::Stage1(config), &device));
    let (got, want) = (edge_auc(&batches), edge_auc(&whole));
    for (which, (got, want)) in ["held out", "trained on"].into_iter().zip(got.into_iter().zip(want)) {
        assert!(got > 0.6 && (got - want).abs() < 0.1, "{which}: {got} in batches, {want} of the whole graph");
    }

    // What is written is that of the whole graph with these weights.
    let written = read_embeddings(batches.join("Z_embeddings_stage1.npy"), None).unwrap();
    let data = dir.path().join("data");
    let dataset = Dataset::open(&data).unwrap();
    let embedded =
        || Stage1::open(&batches).unwrap().embed::<Flex>(&dataset, &data, &Spill::default(), &device).unwrap();
    assert!(embedded().as_f32() == written, "layer by layer as the training was");
    let spill = Spill::new(Some(1), dir.path().join("spilled"));
    let in_files = Stage1::open(&batches).unwrap().embed::<Flex>(&dataset, &data, &spill, &device).unwrap();
    assert!(in_files.bytes_in_memory() == 0 && in_files.as_f32() == written, "layers in files");
    assert_eq!(fs::read_dir(dir.path().join("spilled")).unwrap().count(), 0);
    let kept = batches.join("config.toml");
    let text = fs::read_to_string(&kept).unwrap();
    assert_eq!(text.matches("mode = \"sampled\"").count(), 1);
    fs::write(&kept, text.replace("mode = \"sampled\"", "mode = \"full\"")).unwrap();
    let at_once = embedded();
    let at_once = at_once.as_f32();
    assert!(at_once != written, "another way to compute them");
    let off = at_once.iter().zip(&written).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off <= 1e-5, "embeddings are off by {off}");
}

fn batches_have_the_same_bytes_whatever_the_threads() {
    let dir = marketplace();
    let mut config = in_batches(&dir);
    config.train.epochs = 3;
    let mut train = |threads: usize, prefetch: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        config.loader.prefetch = prefetch;
        outputs(&pool.install(|| run::<Flex>(RunConfig::Stage1(config.clone()), &Default::default())))
    };
    let first = train(2, 2);
    for (threads, prefetch) in [(2, 1), (1, 2), (5, 4)] {
        assert!(train(threads, prefetch) == first, "{threads} threads, {prefetch} batches ahead");
    }
}

/// A training that never sees these edges is the same where there are none.
fn no_edge_that_is_held_out_is_in_a_batch() {
    let dir = marketplace();
    let mut config = in_batches(&dir);
    (config.train.epochs, config.split.held_out) = (3, 0.3);
    let held_out = losses(&run::<Flex>(RunConfig::Stage1(config.clone()), &Default::default()));

    let data = Dataset::open(&config.data.path).unwrap();
    let split = EdgeSplit::new(config.split.held_out, config.split.seed).unwrap();
    let left = split.training_graph(&data.graph);
    assert!((left.num_edges() as f64) < 0.8 * data.graph.num_edges() as f64);
    config.data.path = dir.path().join("left");
    Dataset::new(left, data.features, None, None).write(&config.data.path).unwrap();
    config.split.held_out = 0.0;
    let without = losses(&run::<Flex>(RunConfig::Stage1(config), &Default::default()));
    assert_eq!(held_out, without);
}
