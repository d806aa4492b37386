//! Sampled mini-batches: how fast they are sampled, what moves for them, and how busy the device is.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{GraphBackend, NodeDraw, RowBuffer, RowIds, SampleBackend, autodiff_turn};
use rayon::prelude::*;
use serde::Serialize;

use super::Note;
use super::clock::{Times, sync, time};
use crate::config::OwnTransform;
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features, HeteroGraph};
use crate::infer::attention::{edge_inputs, own_types};
use crate::loader::{
    self, Batch, BatchStats, FeatureStore, Footprint, Hot, Job, Loader, LoaderOptions, Placement, Window, undrawable,
};
use crate::models::attention::{AttentionSpec, Pass, TripleStreamGat, projects_last};
use crate::models::parameters::Parameters;
use crate::models::precision::as_data;
use crate::nn::Block;
use crate::sampler::{Fanout, MiniBatch, NeighbourSampler, SamplerConfig};
use crate::trees::counter;

/// Rows of the gathers that are timed.
const GATHERED_ROWS: usize = 250_000;

/// Batches that decide which rows are hot.
const PRESAMPLED: usize = 64;

/// How to measure.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Data directory.
    pub data: PathBuf,
    /// Per layer, the one next to the seeds first; 0 is all.
    pub fanouts: Vec<u32>,
    /// Seeds of a batch.
    pub batch_size: usize,
    /// Batches.
    pub batches: usize,
    /// Batches that draw alike, for the last policy.
    pub kappa: u32,
    /// Share of the nodes in the hot cache.
    pub hot: f64,
    /// Batches that are prepared at once.
    pub prefetch: usize,
    /// Timed runs.
    pub runs: usize,
    pub seed: u64,
    /// The device, as a user sees it.
    pub description: String,
}

/// Sampling at one place.
#[derive(Clone, Debug, Serialize)]
pub struct SamplingRow {
    /// Where the adjacency lies, and who draws.
    pub place: String,
    pub times: Times,
    /// Per batch, on average.
    pub edges: f64,
    pub edges_per_s: f64,
}

/// One way of rows to the device.
#[derive(Clone, Debug, Serialize)]
pub struct TransferRow {
    pub way: String,
    pub times: Times,
    pub gb_per_s: f64,
}

/// What one policy moves over the whole trace.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyRow {
    pub policy: String,
    /// Per batch.
    pub rows: f64,
    pub shared: f64,
    pub hot: f64,
    pub fetched: f64,
    pub mb: f64,
    /// Bytes over those without a cache.
    pub ratio: f64,
}

/// Forward and backward passes of Stage 2 through the loader.
#[derive(Clone, Debug, Serialize)]
pub struct PassesRow {
    /// Who samples and collects.
    pub made_by: String,
    pub batches: usize,
    /// Per batch, through the loader.
    pub loaded_ms: f64,
    /// Per batch, of batches that are on the device already.
    pub alone_ms: f64,
    /// The second over the first: how busy the device is with the model.
    pub busy: f64,
    /// Share of the time that the training thread waited for a batch.
    pub waited: f64,
    pub stats: BatchStats,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LoaderReport {
    pub device: String,
    pub threads: usize,
    pub nodes: usize,
    pub edges: usize,
    pub width: usize,
    pub row_bytes: usize,
    pub fanouts: Vec<u32>,
    pub batch_size: usize,
    pub sampling: Vec<SamplingRow>,
    pub transfer: Vec<TransferRow>,
    pub policies: Vec<PolicyRow>,
    pub passes: Vec<PassesRow>,
}

/// Measures on a data directory.
///
/// # Errors
/// Data that cannot be read or lack features, or a device that failed.
pub fn run<B: GraphBackend + SampleBackend>(
    options: &LoadOptions,
    device: &B::Device,
    note: Note,
) -> Result<LoaderReport> {
    note("reading");
    let dataset = Dataset::open(&options.data)?;
    let graph = Arc::new(dataset.graph.clone());
    let features = dataset.features.clone().ok_or_else(|| {
        Error::format(&options.data, "features", "a feature file", "none", "measure on a graph with features")
    })?;
    let store = FeatureStore::<B>::new(features.clone(), &graph, device)?;
    let seeds = seeds(&graph, options);
    let (sampling, batches) = sampling::<B>(options, &graph, &seeds, device, note)?;
    let mut ways = transfer(options, store.clone(), graph.num_nodes(), device, note)?;
    if store.dtype() != DType::F32 {
        let values: Vec<f32> = features.as_f16().par_iter().map(|value| value.to_f32()).collect();
        let wide = Features::from_f32(values, features.num_rows(), features.dim());
        ways.extend(transfer(options, FeatureStore::<B>::new(wide, &graph, device)?, graph.num_nodes(), device, note)?);
    }
    note("counting what moves");
    let policies = policies(options, &graph, &seeds, &batches, store.row_bytes())?;
    drop(batches);
    let passes = passes::<B>(options, &graph, features, &seeds, device, note)?;
    Ok(LoaderReport {
        device: options.description.clone(),
        threads: rayon::current_num_threads(),
        nodes: graph.num_nodes(),
        edges: graph.num_edges(),
        width: store.width(),
        row_bytes: store.row_bytes(),
        fanouts: options.fanouts.clone(),
        batch_size: options.batch_size,
        sampling,
        transfer: ways,
        policies,
        passes,
    })
}

/// Seeds of every batch: distinct nodes of the type that most relations lead to, in a random order, and again from the
/// start where they do not suffice.
fn seeds(graph: &HeteroGraph, options: &LoadOptions) -> Vec<Vec<Vec<u32>>> {
    let types = graph.node_types();
    let into = |t: usize| graph.relations().iter().filter(|r| r.dst == t).map(|r| r.forward.num_edges()).sum::<usize>();
    let wanted = (0..types.len()).max_by_key(|&t| (into(t), types[t].count)).unwrap_or_default();
    let all: Vec<u32> = (0..types[wanted].count as u32).collect();
    let order = counter::shuffled(options.seed, &[0], &all);
    let size = options.batch_size.min(order.len());
    let per_epoch = (order.len() / size.max(1)).max(1);
    (0..options.batches)
        .map(|batch| {
            let mut seeds = vec![Vec::new(); types.len()];
            let at = batch % per_epoch * size;
            seeds[wanted] = order[at..at + size].to_vec();
            seeds
        })
        .collect()
}

fn config(options: &LoadOptions, graph: &HeteroGraph, kappa: u32) -> SamplerConfig {
    let fanouts: Vec<Fanout> = options.fanouts.iter().map(|&fanout| Fanout::from(fanout as usize)).collect();
    let dependency = (kappa > 0).then_some(kappa);
    SamplerConfig { dependency, seed: options.seed, ..SamplerConfig::new(&fanouts, graph.relations().len()) }
}

/// Samples the whole trace at every place that there is.
fn sampling<B: SampleBackend>(
    options: &LoadOptions,
    graph: &Arc<HeteroGraph>,
    seeds: &[Vec<Vec<u32>>],
    device: &B::Device,
    note: Note,
) -> Result<(Vec<SamplingRow>, Vec<MiniBatch>)> {
    note("sampling on the host");
    let sampler = NeighbourSampler::new(graph.clone(), config(options, graph, 0))?;
    let mut scratch = sampler.scratch();
    let mut batches = Vec::with_capacity(seeds.len());
    let mut host = Vec::with_capacity(seeds.len());
    for (number, seeds) in (0..).zip(seeds) {
        let start = Instant::now();
        let batch = sampler.sample(&mut scratch, number, seeds)?;
        host.push(start.elapsed().as_secs_f64() * 1e3);
        batches.push(batch);
    }
    let edges = batches.iter().map(MiniBatch::num_edges).sum::<usize>() as f64;
    let row = |place: String, first_ms: f64, times: Vec<f64>| {
        let edges_per_s = edges / (times.iter().sum::<f64>() / 1e3);
        SamplingRow { place, times: Times::of(first_ms, times), edges: edges / seeds.len() as f64, edges_per_s }
    };
    let threads = rayon::current_num_threads();
    let mut rows = vec![row(format!("host memory, {threads} threads"), host[0], host)];
    let draw = |number: usize, layer: usize, relation: usize| {
        let key = sampler.key(number as u64, layer, relation, graph.relations()[relation].src);
        let fanout = options.fanouts[layer];
        let fanout = (fanout > 0).then_some(fanout);
        NodeDraw { fanout, replace: false, latest: false, by_source: false, key, drop_edge: None }
    };
    for (place, pinned) in [("device memory, by the device", false), ("host memory, by the device", true)] {
        if !B::SAMPLES {
            break;
        }
        note(&format!("sampling from {place}"));
        let mut on_device = match loader::device_sampler::<B>(&sampler, pinned, device) {
            Ok(sampler) => sampler,
            Err(reason) => {
                note(&format!("{place}: left out: {reason}"));
                continue;
            }
        };
        let mut sample = |number: usize| {
            sync::<B>(device)?;
            let start = Instant::now();
            let layers = options.fanouts.len();
            let sampled =
                on_device.sample(&seeds[number], layers, |layer, relation| draw(number, layer, relation), |_| false);
            sync::<B>(device)?;
            Ok::<_, Error>((sampled, start.elapsed().as_secs_f64() * 1e3))
        };
        let (first, first_ms) = sample(0)?;
        check(&first, &batches[0])?;
        let times: Result<Vec<f64>> = (0..seeds.len()).map(|number| sample(number).map(|(_, ms)| ms)).collect();
        rows.push(row(place.into(), first_ms, times?));
    }
    Ok((rows, batches))
}

/// Fails unless a device has drawn what the host draws.
fn check<B: SampleBackend>(device: &graphsieve_kernels::DeviceSample<B>, host: &MiniBatch) -> Result<()> {
    let blocks = device.blocks_to_host();
    let same_blocks = blocks.iter().flatten().zip(host.blocks.iter().flatten()).all(|(of_device, of_host)| {
        let same_edges = of_device.edges.iter().map(|&edge| u64::from(edge)).eq(of_host.edges.iter().copied());
        of_device.row_ptr == of_host.row_ptr && of_device.cols == of_host.cols && same_edges
    });
    if same_blocks && device.nodes_to_host() == host.nodes && device.counts == host.counts {
        return Ok(());
    }
    Err(Error::Data {
        what: "batch 0".into(),
        expected: "the same sample on the device as on the host".into(),
        found: "another".into(),
        help: "this is a fault of the program; please report it".into(),
    })
}

/// Random rows to the device, every way that there is.
fn transfer<B: GraphBackend>(
    options: &LoadOptions,
    store: FeatureStore<B>,
    nodes: usize,
    device: &B::Device,
    note: Note,
) -> Result<Vec<TransferRow>> {
    let kind = format!("{:?} ", store.dtype());
    note("moving rows");
    let rows = GATHERED_ROWS.min(nodes);
    let draw = |k: usize| counter::below(options.seed, &[1, k as u64], nodes as u64) as u32;
    let wanted: Vec<u32> = (0..rows).into_par_iter().map(draw).collect();
    let bytes = (rows * store.row_bytes()) as f64;
    let row = |way: &str, times: Times| TransferRow {
        way: kind.clone() + way,
        times,
        gb_per_s: bytes / times.median_ms / 1e6,
    };
    let gathered = time::<B>(device, options.runs, || {
        drop(&store & &wanted);
        Ok(())
    })?;
    let mut ways = vec![row("gathered by the processor, then copied", gathered)];
    let mut buffer = RowBuffer::<B>::new([rows, store.width()], store.dtype(), device);
    let to: Vec<u32> = (0..rows as u32).collect();
    match store.pin() {
        (_, Some(reason)) => note(&format!("zero copy left out: {reason}")),
        (store, None) => {
            let Some(pinned) = store.pinned() else { return Ok(ways) };
            let [rows_read, rows_written] = [&wanted, &to].map(|rows| RowIds::new(rows, device));
            let fetched = time::<B>(device, options.runs, || {
                buffer.fetch(pinned, &rows_read, &rows_written);
                Ok(())
            })?;
            ways.push(row("read by the device from page-locked memory", fetched));
            let copied = time::<B>(device, options.runs, || {
                buffer.copy_first(pinned, rows).map_err(|reason| Error::Device {
                    device: "of this run".into(),
                    reason,
                    help: "see the message of the driver".into(),
                })
            })?;
            ways.push(row("plain copy of as many bytes from page-locked memory", copied));
            let want = &store & &wanted;
            buffer.fetch(pinned, &rows_read, &rows_written);
            let same = buffer.rows(rows).equal(want).all().into_scalar();
            if !burn::tensor::ElementConversion::elem::<bool>(same) {
                return Err(Error::Data {
                    what: "rows read from page-locked memory".into(),
                    expected: "those that the processor gathers".into(),
                    found: "others".into(),
                    help: "set loader.transfer = \"gathered\" and report this".into(),
                });
            }
        }
    }
    Ok(ways)
}

/// A name, the batches that it moves, the rows of its cache, and whether it has a window.
type Policy<'a> = (String, &'a [MiniBatch], &'a [Vec<u32>], bool);

/// Counts rows by where they come from, for every policy.
fn policies(
    options: &LoadOptions,
    graph: &Arc<HeteroGraph>,
    seeds: &[Vec<Vec<u32>>],
    batches: &[MiniBatch],
    row_bytes: usize,
) -> Result<Vec<PolicyRow>> {
    let hot_of = |kappa: u32| {
        let sampler = NeighbourSampler::new(graph.clone(), config(options, graph, kappa))?;
        // Of another epoch than the trace.
        let presampled =
            seeds.iter().take(PRESAMPLED).cloned().zip(1u64 << 40..).map(|(seeds, number)| (number, seeds));
        Hot::Presampled(options.hot).nodes(graph, &sampler, presampled)
    };
    let none = vec![Vec::new(); graph.node_types().len()];
    let hot = hot_of(0)?;
    let dependent = NeighbourSampler::new(graph.clone(), config(options, graph, options.kappa.max(1)))?;
    let mut scratch = dependent.scratch();
    let alike: Result<Vec<MiniBatch>> =
        (0..).zip(seeds).map(|(number, seeds)| dependent.sample(&mut scratch, number, seeds)).collect();
    let (alike, hot_alike) = (alike?, hot_of(options.kappa.max(1))?);
    let hot_name = format!("{:.0} % hot rows", 100.0 * options.hot);
    let kappa = options.kappa.max(1);
    let all: [Policy<'_>; 6] = [
        ("no cache".into(), batches, &none, false),
        ("window".into(), batches, &none, true),
        (hot_name.clone(), batches, &hot, false),
        (format!("window and {hot_name}"), batches, &hot, true),
        (format!("window, kappa {kappa}"), &alike, &none, true),
        (format!("window and {hot_name}, kappa {kappa}"), &alike, &hot_alike, true),
    ];
    let mut rows: Vec<PolicyRow> = Vec::new();
    for (policy, batches, hot, keeps) in all {
        let mut windows: Vec<Window> = graph
            .node_types()
            .iter()
            .zip(hot)
            .map(|(t, hot)| Window::new(t.count).with_hot(hot))
            .collect::<Result<_>>()?;
        let mut sums = [0usize; 4];
        for batch in batches {
            for (window, nodes) in windows.iter_mut().zip(&batch.nodes) {
                if !keeps {
                    window.forget();
                }
                let update = window.advance(nodes)?;
                let counts = [nodes.len(), update.shared, update.copies.len(), update.fetches.len()];
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        let [all, shared, hot, fetched] = sums.map(|sum| sum as f64 / batches.len() as f64);
        let mb = fetched * row_bytes as f64 / 1e6;
        // Against what this policy's own batches would move without a cache, and against independent ones.
        let ratio = fetched / rows.first().map_or(all, |none| none.rows);
        rows.push(PolicyRow { policy, rows: all, shared, hot, fetched, mb, ratio });
    }
    Ok(rows)
}

/// Forward and backward passes through the loader, and of batches that are on the device already.
fn passes<B: GraphBackend>(
    options: &LoadOptions,
    graph: &Arc<HeteroGraph>,
    features: Features,
    seeds: &[Vec<Vec<u32>>],
    device: &B::Device,
    note: Note,
) -> Result<Vec<PassesRow>> {
    const KEPT: usize = 10;
    note("training through the loader");
    let spec = AttentionSpec {
        own: own_types(OwnTransform::Auto, graph),
        edges: edge_inputs(graph, None),
        ..AttentionSpec::new(graph.streams(), features.dim(), [128, 128], 1)
    };
    if options.fanouts.len() != TripleStreamGat::<B>::LAYERS {
        note("the passes take the first two fanouts");
    }
    let model = TripleStreamGat::<Autodiff<B>>::new(&spec, &mut Parameters::from_seed(options.seed, device))?;
    let two = LoadOptions {
        fanouts: options.fanouts.iter().copied().chain([10, 10]).take(TripleStreamGat::<B>::LAYERS).collect(),
        ..options.clone()
    };
    let step = |x: Vec<Tensor<Autodiff<B>, 2>>, blocks: Vec<Block<Autodiff<B>>>| {
        let x: Vec<_> = x.into_iter().map(|x| as_data(x, DType::F32)).collect();
        let _turn = autodiff_turn();
        let h = model.embed_blocks(&blocks, &x, Pass::default());
        drop(model.logits(h).sum().backward());
    };
    let sampler = NeighbourSampler::new(graph.clone(), config(&two, graph, 0))?;
    let presampled = seeds.iter().take(PRESAMPLED).cloned().zip(1u64 << 40..).map(|(seeds, number)| (number, seeds));
    let hot = Hot::Presampled(options.hot).nodes(graph, &sampler, presampled)?;
    let first_reverse = !projects_last(spec.heads, spec.input, spec.hidden);
    let load = |count: usize, placement: Placement, store: &FeatureStore<Autodiff<B>>| {
        let jobs: Vec<Job> = (0..).zip(seeds.iter().take(count)).map(|(number, seeds)| job(number, seeds)).collect();
        let (prefetch, hot) = (options.prefetch, hot.clone());
        let settings = LoaderOptions { prefetch, hot, placement, first_reverse, ..LoaderOptions::default() };
        Loader::new(jobs, sampler.clone(), store.clone(), settings)
    };
    let store = FeatureStore::<Autodiff<B>>::new(features, graph, device)?;
    let by_device = undrawable::<B>(&sampler, device).is_none();
    let resident = by_device.then(|| store.clone().resident());
    let (store, _) = store.pin();
    let mut ways = vec![("the processor", Placement::Host, store.clone())];
    if by_device && store.pinned().is_some() {
        ways.push(("the device, from features in page-locked memory", Placement::Device, store));
    }
    ways.extend(resident.map(|store| ("the device, from features in its memory", Placement::Device, store)));
    let mut rows = Vec::new();
    for (made_by, placement, store) in ways {
        // Kernels are compiled, and buffers reach their size.
        let kept: Vec<_> = load(KEPT, placement, &store)?.collect::<Result<_>>()?;
        let mut alone = Vec::new();
        for _ in 0..options.runs.max(1) + 1 {
            sync::<B>(device)?;
            let start = Instant::now();
            for Batch { x, blocks, .. } in &kept {
                step(x.clone(), blocks.clone());
            }
            sync::<B>(device)?;
            alone.push(start.elapsed().as_secs_f64() * 1e3 / kept.len() as f64);
        }
        drop(kept);
        let alone_ms = Times::of(alone[0], alone.split_off(1)).median_ms;
        let mut loader = load(seeds.len(), placement, &store)?;
        // The first batch has nothing before it, and waits for the threads to start.
        if let Some(batch) = loader.next().transpose()? {
            step(batch.x, batch.blocks);
        }
        sync::<B>(device)?;
        let (start, waited) = (Instant::now(), loader.waited());
        let mut batches = 0;
        for batch in loader.by_ref() {
            let Batch { x, blocks, .. } = batch?;
            step(x, blocks);
            batches += 1;
        }
        sync::<B>(device)?;
        let seconds = start.elapsed().as_secs_f64();
        let loaded_ms = seconds * 1e3 / f64::from(batches.max(1));
        rows.push(PassesRow {
            made_by: made_by.into(),
            batches: seeds.len(),
            loaded_ms,
            alone_ms,
            busy: (alone_ms / loaded_ms).min(1.0),
            waited: (loader.waited() - waited).as_secs_f64() / seconds,
            stats: loader.stats(),
        });
    }
    Ok(rows)
}

fn job(number: u64, seeds: &[Vec<u32>]) -> Job {
    Job { number, seeds: seeds.to_vec(), payload: () }
}

impl fmt::Display for LoaderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, edges, width, row_bytes, batch_size, threads, .. } = self;
        writeln!(f, "{nodes} nodes, {edges} edges, {width} features of {row_bytes} bytes a node")?;
        writeln!(f, "{}; {threads} threads; batches of {batch_size} seeds, fanouts {:?}\n", self.device, self.fanouts)?;
        writeln!(f, "sampling                                  edges/batch   ms/batch  M edges/s")?;
        for row in &self.sampling {
            let speed = row.edges_per_s / 1e6;
            writeln!(f, "{:<40} {:>12.0} {:>10.3} {:>10.1}", row.place, row.edges, row.times.median_ms, speed)?;
        }
        writeln!(f, "\nmoving random rows                                               ms       GB/s")?;
        for row in &self.transfer {
            writeln!(f, "{:<56} {:>10.3} {:>10.2}", row.way, row.times.median_ms, row.gb_per_s)?;
        }
        writeln!(f, "\nrows per batch                          all   shared      hot  fetched       MB  of no cache")?;
        for row in &self.policies {
            let PolicyRow { policy, rows, shared, hot, fetched, mb, ratio } = row;
            writeln!(f, "{policy:<34} {rows:>8.0} {shared:>8.0} {hot:>8.0} {fetched:>8.0} {mb:>8.2} {ratio:>12.3}")?;
        }
        for row in &self.passes {
            let PassesRow { made_by, batches, loaded_ms, alone_ms, busy, waited, stats } = row;
            writeln!(
                f,
                "\n{batches} forward and backward passes of Stage 2, batches made by {made_by}, {} fetched",
                Footprint::bytes(stats.bytes)
            )?;
            writeln!(
                f,
                "through the loader {loaded_ms:.2} ms, alone {alone_ms:.2} ms: the model keeps the device busy {:.0} % of the \
                 time; the training thread waited {:.0} %",
                100.0 * busy,
                100.0 * waited
            )?;
        }
        Ok(())
    }
}
