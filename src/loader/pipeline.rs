//! The threads of a loader.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use graphsieve_kernels::{GraphBackend, NodeSet};

use super::batch::{Batch, BatchLayer, BatchStats};
use super::config::LoaderOptions;
use super::features::{Delivery, FeatureBuffers, Windows};
use super::levels::{self, PreparedLayer};
use super::store::FeatureStore;
use crate::error::{Error, Result};
use crate::graph::Relation;
use crate::sampler::{EdgePlace, MiniBatch, NeighbourSampler};

/// Seeds of a batch.
#[derive(Clone, Debug)]
pub struct Job<P = ()> {
    /// Number of the batch: what is drawn depends on it.
    pub number: u64,
    /// `[type]`: distinct nodes, numbered within their type.
    pub seeds: Vec<Vec<u32>>,
    /// What the batch brings along.
    pub payload: P,
}

/// Loads batches: an iterator that samples and gathers ahead on threads of its own.
///
/// The batches are those of the sampler, whatever the number of threads. An error of any stage, and a thread that panics, is
/// the next item and the last one; dropping the loader ends its threads.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use burn_flex::Flex;
/// use graphsieve::graph::{Adjacency, Features, HeteroGraph, RelationSpec};
/// use graphsieve::loader::{FeatureStore, Job, Loader, LoaderOptions};
/// use graphsieve::sampler::{Fanout, NeighbourSampler, SamplerConfig};
/// let adjacency = Adjacency::from_edges(3, 3, &[(0, 1), (1, 2), (2, 0)]);
/// let spec =
///     RelationSpec { name: "next".into(), src: 0, dst: 0, stream: "all".into(), primary: true, adjacency };
/// let graph = Arc::new(HeteroGraph::new(vec![("item".into(), 3)], vec![spec])?);
/// let features = Features::from_f32(vec![10.0, 20.0, 30.0], 3, 1);
/// let store = FeatureStore::<Flex>::new(features, &graph, &Default::default())?;
/// let sampler = NeighbourSampler::new(graph.clone(), SamplerConfig::new(&[Fanout::All], graph.relations().len()))?;
/// let seeds = (0..3).map(|node| Job { number: node, seeds: vec![vec![node as u32]], payload: () });
/// for batch in Loader::new(seeds, sampler, store, LoaderOptions::default())? {
///     let batch = batch?;
///     // The seed and the node that points at it.
///     assert_eq!((batch.x[0].dims(), batch.layers[0].rows_after(0)), ([2, 1], 1));
/// }
/// # Ok::<(), graphsieve::Error>(())
/// ```
pub struct Loader<B: GraphBackend, P = ()> {
    buffers: FeatureBuffers<B>,
    device: B::Device,
    results: Option<Receiver<Result<Prepared<P>>>>,
    threads: Vec<JoinHandle<()>>,
    stats: BatchStats,
    waited: Duration,
}

/// A batch that only has to be uploaded.
struct Prepared<P> {
    number: u64,
    layers: Vec<PreparedLayer>,
    seed_rows: Vec<Vec<u32>>,
    slot_to_node: Vec<Vec<u32>>,
    deliveries: Vec<Delivery>,
    edges: usize,
    payload: P,
}

impl<B: GraphBackend, P: Send + 'static> Loader<B, P> {
    /// Starts to load the batches of `jobs`.
    ///
    /// # Errors
    /// [`Error::Data`] for hot nodes that do not exist, [`Error::Config`] for `prefetch` 0.
    pub fn new(
        jobs: impl IntoIterator<Item = Job<P>, IntoIter: Send + 'static>,
        sampler: NeighbourSampler,
        store: FeatureStore<B>,
        options: LoaderOptions,
    ) -> Result<Self> {
        if options.prefetch == 0 {
            return Err(Error::Config {
                origin: "loader".into(),
                key: "prefetch".into(),
                expected: "at least 1".into(),
                found: "0".into(),
                help: "a batch is prepared before it is used".into(),
            });
        }
        let counts: Vec<usize> = store.node_types().iter().map(|t| t.count).collect();
        let hot = if options.hot.is_empty() { vec![Vec::new(); counts.len()] } else { options.hot.clone() };
        if hot.len() != counts.len() {
            return Err(Error::Data {
                what: "hot nodes".into(),
                expected: format!("{} lists, one per node type", counts.len()),
                found: hot.len().to_string(),
                help: "a list may be empty".into(),
            });
        }
        let windows = Windows::new(&counts, &hot, options.window)?;
        let device = store.device().clone();
        let buffers = FeatureBuffers::new(store.clone(), &hot);
        let relations = sampler.graph().relations().to_vec();
        let (sampled, to_fetch) = sync_channel(options.prefetch);
        let (prepared, results) = sync_channel(options.prefetch);
        let jobs = jobs.into_iter();
        let threads = vec![
            thread::spawn(move || sample(jobs, &sampler, &options, &sampled)),
            thread::spawn(move || fetch(&to_fetch, windows, &store, &relations, &prepared)),
        ];
        let (stats, waited) = (BatchStats::default(), Duration::ZERO);
        Ok(Loader { buffers, device, results: Some(results), threads, stats, waited })
    }

    /// Of all batches so far.
    pub fn stats(&self) -> BatchStats {
        self.stats
    }

    /// How long the caller has waited for batches that were not ready.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// The buffers on the device.
    pub fn buffers(&self) -> &FeatureBuffers<B> {
        &self.buffers
    }

    fn upload(&mut self, prepared: Prepared<P>) -> Batch<B, P> {
        let device = self.device.clone();
        let row_bytes = self.buffers.row_bytes();
        let mut stats = BatchStats { batches: 1, edges: prepared.edges as u64, ..BatchStats::default() };
        for Delivery { update, rows, .. } in &prepared.deliveries {
            stats.rows += *rows as u64;
            stats.shared += update.shared as u64;
            stats.hot += update.copies.len() as u64;
            stats.fetched += update.fetches.len() as u64;
            stats.moved += update.moves.len() as u64;
        }
        stats.bytes = stats.fetched * row_bytes as u64;
        let layer = |layer: PreparedLayer| BatchLayer {
            csr: layer.csr.into_iter().map(|csr| csr.map(|arrays| arrays.upload(&device))).collect(),
            kept: layer.kept.into_iter().map(|(rows, of)| NodeSet::new(&rows, of, &device)).collect(),
        };
        self.stats += stats;
        Batch {
            number: prepared.number,
            x: self.buffers.update(prepared.deliveries),
            layers: prepared.layers.into_iter().map(layer).collect(),
            seed_rows: prepared.seed_rows,
            slot_to_node: prepared.slot_to_node,
            payload: prepared.payload,
            stats,
        }
    }
}

impl<B: GraphBackend, P: Send + 'static> Iterator for Loader<B, P> {
    type Item = Result<Batch<B, P>>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = Instant::now();
        let received = self.results.as_ref()?.recv();
        self.waited += start.elapsed();
        match received {
            Ok(Ok(prepared)) => Some(Ok(self.upload(prepared))),
            Ok(Err(error)) => {
                self.results = None;
                Some(Err(error))
            }
            // Nobody sends any more: the jobs are done.
            Err(_) => {
                self.results = None;
                None
            }
        }
    }
}

impl<B: GraphBackend, P> Drop for Loader<B, P> {
    fn drop(&mut self) {
        // Closed first: a thread that waits for room goes on and ends.
        self.results = None;
        for thread in self.threads.drain(..) {
            // What a thread had to say came as an item.
            let _ = thread.join();
        }
    }
}

/// Samples every job until there is none, one fails, or nobody wants more.
fn sample<P>(
    mut jobs: impl Iterator<Item = Job<P>>,
    sampler: &NeighbourSampler,
    options: &LoaderOptions,
    to: &SyncSender<Result<(MiniBatch, P)>>,
) {
    let types = sampler.graph().node_types();
    let mut scratch = sampler.scratch();
    let mut last = None;
    loop {
        let after = || last.map_or("before the first batch".to_string(), |number| format!("after batch {number}"));
        let job = match guarded(&after(), || Ok(jobs.next())) {
            Ok(Some(job)) => job,
            Ok(None) => return,
            Err(error) => return drop(to.send(Err(error))),
        };
        last = Some(job.number);
        let sampled = guarded(&format!("batch {}", job.number), || {
            let drop_of = |place: EdgePlace| {
                let relation = &sampler.graph().relations()[place.relation];
                let drop = options.drop_edge.as_ref()?(job.number, place)?;
                let drop = drop.with_bases(types[relation.dst].offset as u32, types[relation.src].offset as u32);
                Some(move |row: u32, col: u32| drop.keeps(row, col))
            };
            sampler.sample_kept(&mut scratch, job.number, &job.seeds, drop_of)
        });
        let failed = sampled.is_err();
        if to.send(sampled.map(|batch| (batch, job.payload))).is_err() || failed {
            return;
        }
    }
}

/// Works out slots and gathers rows until there is no batch, one fails, or nobody wants more.
fn fetch<B: GraphBackend, P>(
    from: &Receiver<Result<(MiniBatch, P)>>,
    mut windows: Windows,
    store: &FeatureStore<B>,
    relations: &[Relation],
    to: &SyncSender<Result<Prepared<P>>>,
) {
    while let Ok(sampled) = from.recv() {
        let prepared = sampled.and_then(|(batch, payload)| {
            guarded(&format!("batch {}", batch.number), || {
                let deliveries = windows.advance(store, &batch.nodes)?;
                let slots = windows.slots(&batch.nodes);
                let (layers, seed_rows) = levels::layers(&batch, &slots, relations)?;
                let slot_to_node = windows.slot_to_node();
                Ok((deliveries, layers, seed_rows, slot_to_node))
            })
            .map(|(deliveries, layers, seed_rows, slot_to_node)| Prepared {
                number: batch.number,
                layers,
                seed_rows,
                slot_to_node,
                deliveries,
                edges: batch.num_edges(),
                payload,
            })
        });
        let failed = prepared.is_err();
        if to.send(prepared).is_err() || failed {
            return;
        }
    }
}

/// What `work` says; an error and a panic name `place`.
fn guarded<T>(place: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Error::Data { what, expected, found, help })) => {
            Err(Error::Data { what: format!("{place}: {what}"), expected, found, help })
        }
        Ok(Err(other)) => Err(other),
        Err(panic) => Err(Error::Data {
            what: format!("loader, {place}"),
            expected: "a thread that goes on".into(),
            found: format!("one that panicked: {}", text(&*panic)),
            help: "resume the run from its last checkpoint, and report the message if it comes back".into(),
        }),
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
