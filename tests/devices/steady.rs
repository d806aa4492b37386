//! What a training holds does not grow with the number of its steps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use burn::backend::Autodiff;
use burn::tensor::DType;
use burn_flex::{Flex, FlexDevice};
use graphsieve::config::{LoaderMode, Stage1Config, Stage2Config};
use graphsieve::data::synth::{self, Preset, SynthConfig};
use graphsieve::loader::{Batch, FeatureStore, Job, Loader, LoaderOptions};
use graphsieve::models::attention::{AttentionSpec, Pass};
use graphsieve::models::device_graph::upload_features;
use graphsieve::models::parameters::Parameters;
use graphsieve::models::precision::as_data;
use graphsieve::models::{DeviceGraph, TripleStreamGat};
use graphsieve::run::splits::split_of;
use graphsieve::sampler::{Fanout, NeighbourSampler, SamplerConfig};
use graphsieve::train::task::Task;
use graphsieve::train::tasks::attention::Attention;
use graphsieve::train::tasks::auto_encoder::AutoEncoder;
use graphsieve_kernels::testing::harness::Trial;

use crate::support::runs_alone;

pub fn trials() -> Vec<Trial> {
    on_cpu!(
        "steady";
        trainings_hold_no_more_with_every_step,
    )
}

/// Counts what is allocated and not given back.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const STEPS: usize = 300;

/// Allocations that are there after the last steps and were not before them.
fn growth(mut step: impl FnMut()) -> isize {
    // Tables grow to their size, and threads start.
    (0..STEPS).for_each(|_| step());
    let before = LIVE.load(Ordering::Relaxed);
    (0..STEPS).for_each(|_| step());
    LIVE.load(Ordering::Relaxed) - before
}

/// In a process of its own: what another test allocates at the same time would count.
fn trainings_hold_no_more_with_every_step() {
    if !runs_alone("steady::trainings_hold_no_more_with_every_step") {
        return;
    }
    let data = synth::generate(&SynthConfig::preset(Preset::Quickstart).scaled(0.1), &|_, _, _| ()).unwrap();
    let host = &data.graph;
    let features = data.features.as_ref().unwrap();
    for heads in [1, 2] {
        let spec = AttentionSpec::new(host.streams(), features.dim(), [8, 8], heads);
        let mut parameters = Parameters::from_seed(3, &FlexDevice);
        let model = TripleStreamGat::<Autodiff<Flex>>::new(&spec, &mut parameters).unwrap();
        let mut config = Stage2Config::new("unused");
        config.train.epochs = 10 * STEPS;
        config.loader.mode = LoaderMode::Sampled;
        config.loader.fanouts = vec![2, 2];
        let split = split_of(&data, &data.labels.as_ref().unwrap().entries, &config.split, config.seed).unwrap();
        let some = &split.train[..3];
        config.loader.batch_size = 3;

        let store = FeatureStore::new(features.clone(), host, &FlexDevice).unwrap();
        let task = Attention::<Flex>::on_host(&config, host, features.clone(), store, some, &FlexDevice);
        let mut sampled = task.runner(config.seed, 1).unwrap();
        let grown = growth(|| drop(sampled.next(&task, &model, None).unwrap().losses.loss.backward()));
        // Batches that are being made hold some hundreds, now more and now less.
        assert!(grown < 4 * STEPS as isize, "{heads} heads, mini-batches: {grown} allocations in {STEPS} steps");

        // Seeds of one type: relations into the others have no edges in the last layer.
        let shared = Arc::new(host.clone());
        let of = SamplerConfig::new(&[Fanout::Most(2), Fanout::Most(2)], host.relations().len());
        let sampler = NeighbourSampler::new(shared, of).unwrap();
        let store = FeatureStore::new(features.clone(), host, &FlexDevice).unwrap();
        let jobs = (0..8).map(|k| Job { number: k, seeds: vec![vec![k as u32, 90], vec![], vec![]], payload: () });
        let batches: Vec<Batch<Autodiff<Flex>>> =
            Loader::new(jobs, sampler, store, LoaderOptions::default()).unwrap().map(Result::unwrap).collect();
        // A loss that once had all parameters would have made one graph of them, which every backward pass goes
        // through.
        let model = TripleStreamGat::<Autodiff<Flex>>::new(&spec, &mut Parameters::from_seed(4, &FlexDevice)).unwrap();
        let mut at = 0;
        let grown = growth(|| {
            let Batch { x, blocks, .. } = &batches[at % batches.len()];
            at += 1;
            let x: Vec<_> = x.iter().map(|x| as_data(x.clone(), DType::F32)).collect();
            let h = model.embed_blocks(blocks, &x, Pass::default());
            drop(model.logits(h).sum().backward());
        });
        assert!(grown < STEPS as isize, "{heads} heads, seeds of one type: {grown} allocations in {STEPS} steps");

        let graph = DeviceGraph::upload(host, &FlexDevice).unwrap();
        let x = upload_features(host.node_types(), features, DType::F32, &FlexDevice).unwrap();
        let task = Attention::<Flex>::on_device(&config, host, graph, x, some, &FlexDevice);
        let mut full = task.runner(config.seed, 1).unwrap();
        let grown = growth(|| drop(full.next(&task, &model, None).unwrap().losses.loss.backward()));
        assert!(grown < STEPS as isize, "{heads} heads, the whole graph: {grown} allocations in {STEPS} steps");
    }

    let mut config = Stage1Config::new("unused");
    (config.model.hidden, config.model.out, config.train.epochs) = (8, 8, 10 * STEPS);
    config.sampling.edges = [("pu", 3), ("ps", 1), ("uu", 2)].map(|(stream, edges)| (stream.to_string(), edges)).into();
    (config.loader.mode, config.loader.fanouts) = (LoaderMode::Sampled, vec![2, 2]);
    let (task, _) = AutoEncoder::<Flex>::open(&config, host, features, false, true, None, &FlexDevice).unwrap();
    let model = task.model(&mut Parameters::from_seed(3, &FlexDevice)).unwrap();
    let mut sampled = task.runner(config.seed, 1).unwrap();
    let grown = growth(|| drop(sampled.next(&task, &model, None).unwrap().losses.loss.backward()));
    assert!(grown < 4 * STEPS as isize, "stage 1, mini-batches: {grown} allocations in {STEPS} steps");
}
