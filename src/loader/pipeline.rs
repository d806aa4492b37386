//! The threads of a loader.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use burn::tensor::{Int, Tensor};
use graphsieve_kernels::{Age, Communicator, GraphBackend, NodeSet, SampleBackend, upload_together};

use super::batch::{Batch, BatchNodes, BatchStats, BlockShape, Job, NodesAt};
use super::config::{DropRule, LoaderOptions};
use super::device::{Handed, OnDevice};
use super::features::{Deliveries, FeatureBuffers, Windows};
use super::guarded::{guarded, panicked};
use super::levels::{self, LevelTimes, PreparedLayer};
use super::placement::Placement;
use super::store::FeatureStore;
use super::window::Update;
use crate::error::{Error, Result};
use crate::graph::HeteroGraph;
use crate::nn::{KeptRows, edge_ages, edge_values, node_times};
use crate::sampler::{EdgePlace, MiniBatch, NeighbourSampler, SampleScratch};

/// Loads batches: an iterator that samples and gathers ahead on threads of its own.
///
/// The batches are those of the sampler, whatever the number of threads. An error of any stage, and a thread that
/// panics, is the next item and the last one; dropping the loader ends its threads.
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
///     assert_eq!((batch.x[0].dims(), batch.blocks[0].rows_after(0)), ([2, 1], 1));
/// }
/// # Ok::<(), graphsieve::Error>(())
/// ```
pub struct Loader<B: GraphBackend, P = ()> {
    store: FeatureStore<B>,
    shape: BlockShape,
    /// `[type]`: of all nodes, where ages are made of them and the device makes the batches.
    times: Vec<Option<Tensor<B, 1, Int>>>,
    /// Of batches that the processor makes, or whose rows lie on ranks.
    buffers: Option<FeatureBuffers<B>>,
    results: Option<Results<B, P>>,
    threads: Vec<JoinHandle<()>>,
    stats: BatchStats,
    waited: Duration,
}

type Results<B, P> = Turns<Receiver<Result<Prepared<B, P>>>>;

/// A batch that only has to be taken over.
pub(super) enum Prepared<B: SampleBackend, P> {
    Host(HostBatch<P>),
    Device(Handed<B, P>),
}

/// A batch in host memory.
pub(super) struct HostBatch<P> {
    number: u64,
    layers: Vec<PreparedLayer>,
    times: LevelTimes,
    seed_rows: Vec<Vec<u32>>,
    slot_to_node: Vec<Vec<u32>>,
    deliveries: Deliveries,
    edges: usize,
    payload: P,
}

impl<B: GraphBackend, P: Send + 'static> Loader<B, P> {
    /// Starts to load the batches of `jobs`.
    ///
    /// # Errors
    /// [`Error::Data`] for hot nodes that do not exist, [`Error::Config`] for `prefetch` 0, [`Error::Device`] for a
    /// placement that the device does not have.
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
        let shape = BlockShape::of(sampler.graph());
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
        // Refuses hot nodes that do not exist, also where a device has a table of its own.
        let windows = Windows::new(&counts, &hot, options.window)?;
        let mut jobs = jobs.into_iter();
        let on_device = options.placement != Placement::Host;
        let upload = |t: usize| sampler.graph().times_of(t).filter(|_| on_device);
        let times = (0..counts.len()).map(|t| Some(node_times(upload(t)?, store.device()))).collect();
        let buffers = (!on_device || store.is_divided()).then(|| FeatureBuffers::new(store.clone(), &hot));
        let (threads, results) = if options.placement == Placement::Host {
            on_the_host(jobs, sampler, windows, store.clone(), options)
        } else {
            let on_device = OnDevice::new(sampler, &store, &hot, &options)?;
            let (to_sample, mut seeds) = turns(1);
            let (from_device, results) = turns(1);
            let mut ends = seeds.channels.drain(..).zip(from_device.channels);
            let (seeds, made) = ends.next().unwrap_or_else(|| unreachable!("one channel was made"));
            let work = move || on_device.work(&seeds, |batch| made.send(batch.map(Prepared::Device)).is_ok());
            (vec![thread::spawn(move || deal(&mut jobs, to_sample)), thread::spawn(work)], results)
        };
        let (stats, waited) = (BatchStats::default(), Duration::ZERO);
        Ok(Loader { store, shape, times, buffers, results: Some(results), threads, stats, waited })
    }

    /// Of all batches so far.
    pub fn stats(&self) -> BatchStats {
        self.stats
    }

    /// How long the caller has waited for batches that were not ready.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// The next batch, for one of the ranks that have a part of the features each, see [`FeatureStore::divided`]. All
    /// of them take as many batches, each on the thread that makes its other calls of `rank`, and at the same place
    /// among these: the rows that a batch lacks are exchanged here. Other features need no rank.
    ///
    /// # Panics
    /// Without a rank where features are divided.
    pub fn next_of(&mut self, rank: Option<&Communicator<B::Plain>>) -> Option<Result<Batch<B, P>>> {
        let start = Instant::now();
        let received = self.results.as_mut()?.recv();
        self.waited += start.elapsed();
        match received {
            Ok(prepared) => {
                let taken = prepared.and_then(|prepared| self.take(prepared, rank));
                if taken.is_err() {
                    self.results = None;
                }
                Some(taken)
            }
            // Nobody sends any more: the jobs are done, or a thread is.
            Err(_) => {
                self.results = None;
                let died = self.threads.drain(..).filter_map(|thread| thread.join().err()).next();
                died.map(|panic| Err(panicked("the loader", &*panic)))
            }
        }
    }

    fn take(&mut self, prepared: Prepared<B, P>, rank: Option<&Communicator<B::Plain>>) -> Result<Batch<B, P>> {
        let batch = match (prepared, &mut self.buffers) {
            (Prepared::Host(batch), Some(buffers)) => batch.upload(buffers, &self.store, &self.shape, rank)?,
            (Prepared::Host(_), None) => unreachable!("there are buffers for batches that the processor makes"),
            (Prepared::Device(handed), buffers) => {
                handed.take(&self.store, &self.shape, &self.times, buffers.as_mut(), rank)?
            }
        };
        self.stats += batch.stats;
        Ok(batch)
    }
}

/// Threads of the processor that make batches.
fn on_the_host<B: GraphBackend, P: Send + 'static>(
    mut jobs: impl Iterator<Item = Job<P>> + Send + 'static,
    sampler: NeighbourSampler,
    windows: Windows,
    store: FeatureStore<B>,
    options: LoaderOptions,
) -> (Vec<JoinHandle<()>>, Results<B, P>) {
    let LoaderOptions { prefetch: workers, drop_edge, first_reverse, .. } = options;
    let (to_sample, seeds) = turns(workers);
    let (from_samplers, sampled) = turns(workers);
    let (to_finish, placed) = turns(workers);
    let (from_finishers, results) = turns(workers);
    let mut threads = vec![
        thread::spawn(move || deal(&mut jobs, to_sample)),
        thread::spawn(move || place(sampled, windows, to_finish)),
    ];
    let (sampler, store) = (Arc::new(sampler), Arc::new(store));
    for (seeds, sampled) in seeds.channels.into_iter().zip(from_samplers.channels) {
        let (sampler, drop_edge) = (sampler.clone(), drop_edge.clone());
        threads.push(thread::spawn(move || {
            let mut scratch = sampler.scratch();
            work(&seeds, &sampled, |job| sample(job, &sampler, &mut scratch, drop_edge.as_ref()));
        }));
    }
    for (placed, finished) in placed.channels.into_iter().zip(from_finishers.channels) {
        let (sampler, store) = (sampler.clone(), store.clone());
        threads.push(thread::spawn(move || {
            let graph = sampler.graph();
            work(&placed, &finished, |placed| finish(placed, &store, graph, first_reverse).map(Prepared::Host));
        }));
    }
    (threads, results)
}

/// What is left of a layer of a batch when its lists are put together with those of all layers.
struct UploadedLayer<B: SampleBackend> {
    /// `[relation]`: whether there is an adjacency.
    there: Vec<bool>,
    values: Vec<Option<Tensor<B, 2>>>,
    ages: Vec<Option<Age<B>>>,
    /// `[type]`: rows before the layer.
    sizes: Vec<usize>,
}

impl<P> HostBatch<P> {
    fn upload<B: GraphBackend>(
        self,
        buffers: &mut FeatureBuffers<B>,
        store: &FeatureStore<B>,
        shape: &BlockShape,
        rank: Option<&Communicator<B::Plain>>,
    ) -> Result<Batch<B, P>> {
        let seeds = self.seed_rows.iter().map(Vec::len).sum::<usize>() as u64;
        let stats = BatchStats { seeds, ..self.deliveries.stats(store, self.edges) };
        // All lists travel together: a copy of a few bytes takes as long as one of many.
        let (mut csrs, mut lists) = (Vec::new(), Vec::new());
        let mut layers = Vec::with_capacity(self.layers.len());
        let device = store.device();
        let of_level = |times: &Vec<Option<Vec<i32>>>| -> Vec<Option<Tensor<B, 1, Int>>> {
            times.iter().map(|times| times.as_ref().map(|times| node_times(times, device))).collect()
        };
        let times: Vec<_> = self.times.iter().map(of_level).collect();
        for (at, PreparedLayer { csr, values, ages, kept }) in self.layers.into_iter().enumerate() {
            let there: Vec<bool> = csr.iter().map(Option::is_some).collect();
            csrs.extend(csr.into_iter().flatten());
            let values = values.iter().map(|values| values.as_ref().map(|values| edge_values(values, device)));
            let values: Vec<Option<Tensor<B, 2>>> = values.collect();
            let of_edges = ages.iter().map(|ages| ages.as_ref().map(|ages| edge_ages(ages, device))).collect();
            let ages = shape.ages(of_edges, [&times[at], &times[at + 1]]);
            let sizes: Vec<usize> = kept.iter().map(|(_, of)| *of).collect();
            lists.extend(kept.into_iter().map(|(rows, _)| rows));
            layers.push(UploadedLayer { there, values, ages, sizes });
        }
        let mut deliveries = self.deliveries;
        lists.extend(deliveries.take_lists());
        let (csrs, ids) = upload_together::<B>(csrs, lists, store.device());
        let (mut csrs, mut ids) = (csrs.into_iter(), ids.into_iter());
        let mut block = |(at, layer): (usize, UploadedLayer<B>)| {
            let UploadedLayer { there, values, ages, sizes } = layer;
            let kept =
                sizes.into_iter().zip(ids.by_ref()).map(|(of, rows)| KeptRows::Listed(NodeSet::of_ids(rows, of)));
            let kept = kept.collect();
            shape.block(at, there.into_iter().map(|there| if there { csrs.next() } else { None }), values, ages, kept)
        };
        let blocks = layers.into_iter().enumerate().map(&mut block).collect();
        Ok(Batch {
            number: self.number,
            x: buffers.update(deliveries, &mut ids, rank)?,
            blocks,
            seed_rows: self.seed_rows,
            nodes: BatchNodes(NodesAt::Host(self.slot_to_node)),
            payload: self.payload,
            stats,
        })
    }
}

impl<B: GraphBackend, P: Send + 'static> Iterator for Loader<B, P> {
    type Item = Result<Batch<B, P>>;

    /// [`Loader::next_of`] without ranks.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_of(None)
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

/// Ends of channels that are used in turn: what goes in in some order comes out in that order, whoever works on it.
struct Turns<C> {
    channels: Vec<C>,
    turn: usize,
}

impl<C> Turns<C> {
    fn next(&mut self) -> &C {
        let at = self.turn;
        self.turn = (at + 1) % self.channels.len();
        &self.channels[at]
    }
}

impl<T> Turns<Receiver<T>> {
    fn recv(&mut self) -> Result<T, RecvError> {
        self.next().recv()
    }
}

/// `count` channels that hold one item each.
fn turns<T>(count: usize) -> (Turns<SyncSender<T>>, Turns<Receiver<T>>) {
    let (senders, receivers) = (0..count).map(|_| sync_channel(1)).unzip();
    (Turns { channels: senders, turn: 0 }, Turns { channels: receivers, turn: 0 })
}

/// Does `step` with all that comes, until nothing comes, a step fails or nobody wants more.
fn work<I, O>(from: &Receiver<Result<I>>, to: &SyncSender<Result<O>>, mut step: impl FnMut(I) -> Result<O>) {
    while let Ok(item) = from.recv() {
        let done = item.and_then(&mut step);
        let failed = done.is_err();
        if to.send(done).is_err() || failed {
            return;
        }
    }
}

/// Deals the jobs out.
fn deal<P>(jobs: &mut impl Iterator<Item = Job<P>>, mut to: Turns<SyncSender<Result<Job<P>>>>) {
    let mut last = None;
    loop {
        let after = last.map_or("before the first batch".to_string(), |number| format!("after batch {number}"));
        let job = match guarded(&after, || Ok(jobs.next())) {
            Ok(Some(job)) => Ok(job),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        last = job.as_ref().ok().map(|job| job.number);
        if to.next().send(job).is_err() || last.is_none() {
            return;
        }
    }
}

/// Samples a job.
fn sample<P>(
    job: Job<P>,
    sampler: &NeighbourSampler,
    scratch: &mut SampleScratch,
    drop_edge: Option<&DropRule>,
) -> Result<(MiniBatch, P)> {
    let types = sampler.graph().node_types();
    let batch = guarded(&format!("batch {}", job.number), || {
        let drop_of = |place: EdgePlace| {
            let relation = &sampler.graph().relations()[place.relation];
            let drop = drop_edge?(job.number, place)?;
            let drop = drop.with_bases(types[relation.dst].offset as u32, types[relation.src].offset as u32);
            Some(move |row: u32, col: u32| drop.keeps(row, col))
        };
        sampler.sample_kept(scratch, job.number, &job.seeds, drop_of)
    })?;
    Ok((batch, job.payload))
}

/// A sampled batch whose nodes have their slots.
struct Placed<P> {
    batch: MiniBatch,
    updates: Vec<Update>,
    slots: Vec<Vec<u32>>,
    slot_to_node: Vec<Vec<u32>>,
    payload: P,
}

/// Gives the nodes of every batch their slots, in the order of the batches.
fn place<P>(
    mut from: Turns<Receiver<Result<(MiniBatch, P)>>>,
    mut windows: Windows,
    mut to: Turns<SyncSender<Result<Placed<P>>>>,
) {
    while let Ok(sampled) = from.recv() {
        let placed = sampled.and_then(|(batch, payload)| {
            let advanced = guarded(&format!("batch {}", batch.number), || windows.advance(&batch.nodes))?;
            let (updates, slots) = advanced.into_iter().unzip();
            Ok(Placed { updates, slots, slot_to_node: windows.slot_to_node(), batch, payload })
        });
        let failed = placed.is_err();
        if to.next().send(placed).is_err() || failed {
            return;
        }
    }
}

/// Gathers the rows that a batch fetches and numbers its edges by slots.
fn finish<B: GraphBackend, P>(
    placed: Placed<P>,
    store: &FeatureStore<B>,
    graph: &HeteroGraph,
    first_reverse: bool,
) -> Result<HostBatch<P>> {
    let Placed { batch, updates, slots, slot_to_node, payload } = placed;
    guarded(&format!("batch {}", batch.number), || {
        let (layers, times, seed_rows) = levels::layers(&batch, &slots, graph, first_reverse)?;
        Ok((layers, times, seed_rows, Deliveries::new(store, &updates, &batch.nodes)))
    })
    .map(|(layers, times, seed_rows, deliveries)| HostBatch {
        number: batch.number,
        layers,
        times,
        seed_rows,
        slot_to_node,
        deliveries,
        edges: batch.num_edges(),
        payload,
    })
}
