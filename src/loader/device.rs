//! Batches that the device makes itself: it samples, and collects the features in the order of the sample.

use std::borrow::Cow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use burn::tensor::{Int, Tensor};
use graphsieve_kernels::{
    Communicator, DeviceSampler, GraphBackend, MAX_FANOUT, NodeDraw, PackedSample, RowCollector, RowNumbers, RowSource,
    SampleBackend, SampleRelation, SampleRows, SampleValues, SampleWeights, upload_together,
};

use super::batch::{Batch, BatchNodes, BatchStats, BlockShape, Job, NodesAt};
use super::config::{DropRule, LoaderOptions};
use super::features::{Deliveries, FeatureBuffers, Windows};
use super::guarded::guarded;
use super::placement::Placement;
use super::store::FeatureStore;
use crate::error::{Error, Result};
use crate::graph::{EdgeMatrix, Relation, Rows};
use crate::nn::KeptRows;
use crate::sampler::{EdgePlace, Fanout, NeighbourSampler};

/// Who puts the features of a batch together.
enum Collection<B: SampleBackend> {
    /// The device, as it samples.
    Collected(RowCollector<B>),
    /// The thread that trains, out of what ranks have: here it is listed from where each comes. In the order of the
    /// sample nothing stays where it is, so that a batch keeps nothing of the one before.
    Listed(Windows, FeatureStore<B>),
}

/// Makes on a device what a [`NeighbourSampler`] draws on the host.
pub(super) struct OnDevice<B: SampleBackend> {
    sampler: DeviceSampler<B>,
    collection: Collection<B>,
    host: NeighbourSampler,
    drop_edge: Option<DropRule>,
    first_reverse: bool,
}

/// Nothing where a device can draw for `sampler`, else why it cannot.
pub fn undrawable<B: SampleBackend>(sampler: &NeighbourSampler, device: &B::Device) -> Option<&'static str> {
    let config = sampler.config();
    let relations = sampler.graph().relations();
    let is_weighted = |at: usize| config.weights_of(at).is_some();
    let many = |fanout: &Fanout| matches!(fanout, Fanout::Most(most) if *most > MAX_FANOUT);
    match () {
        _ if !B::SAMPLES => Some("the device has no kernel that samples"),
        _ if (0..relations.len()).any(is_weighted) && !B::has_doubles(device) => {
            Some("draws by weights take double precision, which the device lacks")
        }
        _ if config.replace && (0..relations.len()).any(|at| is_weighted(at) && relations[at].forward.is_spans()) => {
            Some("draws by weights with replacement have no kernel for rows that share entries")
        }
        _ if config.fanouts.iter().flatten().any(many) => {
            Some("fanouts above 1024 have no kernel; 0 takes all neighbours")
        }
        _ => None,
    }
}

/// What a device gathers of the edges of a relation: their values and, behind them, the ages that they have of their
/// own; [`BlockShape::carried`] takes both apart.
fn carried(of: &Relation) -> Option<Cow<'_, EdgeMatrix>> {
    match (of.values.as_deref(), of.ages_of_edges()) {
        (Some(values), Some(ages)) => Some(Cow::Owned(values.beside(ages))),
        (values, ages) => values.or(ages).map(Cow::Borrowed),
    }
}

/// The relations that a device samples, `rows` of the graph's and what their edges carry; see [`DeviceSampler::new`].
fn sampled_relations<'a>(
    sampler: &'a NeighbourSampler,
    rows: &'a [Rows<'a>],
    carried: &'a [Option<Cow<'a, EdgeMatrix>>],
) -> Vec<SampleRelation<'a>> {
    let config = sampler.config();
    let relations = sampler.graph().relations().iter().zip(rows).enumerate().map(|(at, (of, rows))| {
        let weights = config.weights_of(at).map(|weights| SampleWeights { weights, replace: config.replace });
        let values = carried[at].as_ref().map(|of| SampleValues { values: of.values(), width: of.width() });
        let rows = match rows {
            Rows::Lists { row_ptr } => SampleRows::Lists(row_ptr),
            Rows::Spans { start, end } => SampleRows::Spans { start, end },
        };
        SampleRelation { weights, values, ..SampleRelation::new(of.src, of.dst, rows, of.forward.col_idx()) }
    });
    relations.collect()
}

/// A sampler on a device of what `host` samples; see [`DeviceSampler::new`].
///
/// # Errors
/// Says why the device cannot sample.
pub(crate) fn device_sampler<B: SampleBackend>(
    host: &NeighbourSampler,
    pinned: bool,
    device: &B::Device,
) -> std::result::Result<DeviceSampler<B>, String> {
    let graph = host.graph();
    let rows: Vec<Rows<'_>> = graph.relations().iter().map(|of| of.forward.rows()).collect();
    let carried: Vec<_> = graph.relations().iter().map(carried).collect();
    let relations = sampled_relations(host, &rows, &carried);
    let counts: Vec<usize> = graph.node_types().iter().map(|t| t.count).collect();
    DeviceSampler::new(&relations, &counts, pinned, device)
}

/// A batch in the memory of the thread that made it. That thread makes the next one once it has a copy back, which
/// belongs to the thread that asked.
pub(super) struct Handed<B: SampleBackend, P> {
    pub number: u64,
    sample: PackedSample<B>,
    /// Of its features, where they are not in the sample.
    listed: Option<Deliveries>,
    taken: SyncSender<PackedSample<B>>,
    payload: P,
}

impl<B: GraphBackend> OnDevice<B> {
    /// Uploads or page-locks the adjacencies with what their edges have, and uploads the hot rows.
    ///
    /// # Errors
    /// [`Error::Device`] when the device cannot sample so, or does not reach the features.
    pub fn new(
        host: NeighbourSampler,
        store: &FeatureStore<B>,
        hot: &[Vec<u32>],
        options: &LoaderOptions,
    ) -> Result<Self> {
        let device = store.device();
        let refuse = |reason: String| Error::Device {
            device: format!("{device:?}"),
            reason,
            help: "let the processor sample: Placement::Host".into(),
        };
        if let Some(reason) = undrawable::<B>(&host, device) {
            return Err(refuse(reason.into()));
        }
        let pinned = options.placement == Placement::HostZeroCopy;
        let collection = match store.source() {
            _ if store.is_divided() => {
                let counts: Vec<usize> = store.node_types().iter().map(|t| t.count).collect();
                Collection::Listed(Windows::new(&counts, hot, false)?, store.clone())
            }
            Some(source) => Collection::Collected(Self::collector(source.clone(), store, hot, options)),
            None => return Err(refuse("its kernels do not reach the features".into())),
        };
        let sampler = device_sampler(&host, pinned, device).map_err(refuse)?;
        let (drop_edge, first_reverse) = (options.drop_edge.clone(), options.first_reverse);
        Ok(OnDevice { sampler, collection, host, drop_edge, first_reverse })
    }

    fn collector(
        source: RowSource<B>,
        store: &FeatureStore<B>,
        hot: &[Vec<u32>],
        options: &LoaderOptions,
    ) -> RowCollector<B> {
        // Where all rows are on the device, none of them moves there.
        let resident = store.is_resident();
        let globals: Vec<u32> = match resident {
            true => Vec::new(),
            false => {
                let types = hot.iter().zip(store.node_types());
                types.flat_map(|(hot, t)| hot.iter().map(|node| t.offset as u32 + node)).collect()
            }
        };
        let cache = (!globals.is_empty()).then(|| (&globals[..], store & &globals));
        RowCollector::new(source, cache, options.window && !resident, store.device())
    }

    fn make(&mut self, number: u64, seeds: &[Vec<u32>]) -> Result<(PackedSample<B>, Option<Deliveries>)> {
        let Self { sampler, collection, host, drop_edge, first_reverse } = self;
        host.check_seeds(seeds)?;
        let (graph, config) = (host.graph(), host.config());
        let layers = config.fanouts.len();
        let base = |t: usize| graph.node_types()[t].offset as u32;
        let draw = |layer: usize, relation: usize| {
            let of = &graph.relations()[relation];
            let drop = drop_edge.as_ref().and_then(|rule| rule(number, EdgePlace { layer, relation }));
            NodeDraw {
                fanout: match config.fanouts[layer][relation] {
                    Fanout::All => None,
                    Fanout::Most(most) => Some(most),
                },
                replace: config.replace,
                latest: config.takes_last(of),
                by_source: config.dependency.is_some(),
                key: host.key(number, layer, relation, of.src),
                drop_edge: drop.map(|drop| drop.with_bases(base(of.dst), base(of.src))),
            }
        };
        let reversed = |layer: usize| *first_reverse || layer + 1 < layers;
        let sample = sampler.sample(seeds, layers, draw, reversed);
        let (windows, store) = match collection {
            Collection::Collected(collector) => return Ok((sample.pack(Some(collector)), None)),
            Collection::Listed(windows, store) => (windows, store),
        };
        let sample = sample.pack(None);
        let nodes: Vec<Vec<u32>> = (0..seeds.len()).map(|t| sample.nodes_to_host(t)).collect();
        let (updates, _): (Vec<_>, Vec<_>) = windows.advance(&nodes)?.into_iter().unzip();
        let listed = Deliveries::new(store, &updates, &nodes);
        Ok((sample, Some(listed)))
    }

    /// Makes batches of all jobs, one at a time, until `hand_on` says that nobody wants more.
    pub fn work<P>(mut self, from: &Receiver<Result<Job<P>>>, hand_on: impl Fn(Result<Handed<B, P>>) -> bool) {
        while let Ok(job) = from.recv() {
            let (taken, copies) = sync_channel(1);
            let made = job.and_then(|Job { number, seeds, payload }| {
                let (sample, listed) = guarded(&format!("batch {number}"), || self.make(number, &seeds))?;
                Ok(Handed { number, sample, listed, taken, payload })
            });
            let sample = made.as_ref().ok().map(|made| made.sample.clone());
            if !hand_on(made) || sample.is_none() {
                return;
            }
            let Ok(copy) = copies.recv() else { return };
            PackedSample::wait_for(&copy);
        }
    }
}

impl<B: GraphBackend, P> Handed<B, P> {
    /// Copies the batch to memory of the calling thread, which has the `times` of all nodes, by type, where ages are
    /// made of them, and `buffers` where it puts the features together, as `rank`.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn take(
        self,
        store: &FeatureStore<B>,
        shape: &BlockShape,
        times: &[Option<Tensor<B, 1, Int>>],
        buffers: Option<&mut FeatureBuffers<B>>,
        rank: Option<&Communicator<B::Plain>>,
    ) -> Result<Batch<B, P>> {
        let Handed { number, sample, listed, taken, payload } = self;
        let copy = sample.copied();
        drop(sample);
        // The thread may have ended for want of jobs.
        let _ = taken.send(copy.clone());
        let (depth, last) = (copy.relations.len(), copy.counts.len() - 1);
        // Those of the nodes of the batch, of which every level has the first.
        let times: Vec<Option<Tensor<B, 1, Int>>> =
            times.iter().enumerate().map(|(t, times)| Some(times.clone()?.select(0, copy.nodes(t)?))).collect();
        let times_of = |counts: &[usize]| -> Vec<Option<Tensor<B, 1, Int>>> {
            let first = |(times, &count): (&Option<Tensor<B, 1, Int>>, &usize)| {
                times.clone().filter(|_| count > 0).map(|times| times.narrow(0, 0, count))
            };
            times.iter().zip(counts).map(first).collect()
        };
        let block = |k: usize| {
            let (before, after) = (&copy.counts[last - k], &copy.counts[last - k - 1]);
            let kept = before.iter().zip(after).map(|(&of, &rows)| KeptRows::Slice { first: 0, rows, of }).collect();
            let (layer, relations) = (depth - 1 - k, copy.relations[depth - 1 - k].len());
            let carried = (0..relations).map(|at| shape.carried(at, copy.values(layer, at)));
            let (values, of_edges) = carried.unzip();
            let ages = shape.ages(of_edges, [&times_of(before), &times_of(after)]);
            shape.block(k, (0..relations).map(|at| copy.csr(layer, at)), values, ages, kept)
        };
        let seeds = copy.counts[0].iter().sum::<usize>() as u64;
        let (x, stats) = match listed.zip(buffers) {
            Some((mut listed, buffers)) => {
                let lists: Vec<RowNumbers> = listed.take_lists().collect();
                let (_, ids) = upload_together::<B>(Vec::new(), lists, store.device());
                let stats = BatchStats { seeds, ..listed.stats(store, copy.num_edges()) };
                (buffers.update(listed, &mut ids.into_iter(), rank)?, stats)
            }
            None => {
                let rows: usize = copy.counts[last].iter().sum();
                let [rows, shared, cached] = [rows, copy.shared, copy.cached].map(|count| count as u64);
                // Rows that are all on the device count as hot.
                let hot = if store.is_resident() { rows } else { cached };
                let (edges, fetched, moved) = (copy.num_edges() as u64, rows - shared - hot, shared);
                let bytes = fetched * store.row_bytes() as u64;
                let stats = BatchStats { batches: 1, edges, seeds, rows, shared, hot, fetched, moved, bytes };
                ((0..copy.counts[0].len()).map(|t| copy.x(t)).collect(), stats)
            }
        };
        Ok(Batch {
            number,
            x,
            blocks: (0..depth).map(block).collect(),
            seed_rows: copy.counts[0].iter().map(|&count| (0..count as u32).collect()).collect(),
            nodes: BatchNodes(NodesAt::Device(copy)),
            payload,
            stats,
        })
    }
}
