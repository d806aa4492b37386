//! Epochs of sampled mini-batches.

use burn::backend::Autodiff;
use graphsieve_kernels::GraphBackend;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::loading::{PRESAMPLED, hot, loaded, placement};
use super::ranks::Rank;
use crate::config::LoaderConfig;
use crate::error::Result;
use crate::graph::HeteroGraph;
use crate::loader::{Batch, BatchStats, DropRule, FeatureStore, Job, Loader, LoaderOptions, PlacementInput};
use crate::sampler::NeighbourSampler;

/// What a task wants sampled.
pub struct Sampling<'c, B: GraphBackend> {
    pub config: &'c LoaderConfig,
    /// The graph that is sampled, with the rows of `store`.
    pub graph: &'c HeteroGraph,
    pub sampler: NeighbourSampler,
    pub store: FeatureStore<Autodiff<B>>,
    /// Whether the layer that reads the features needs its edges reversed.
    pub first_reverse: bool,
    pub drop_edge: Option<DropRule>,
}

/// What a mini-batch is of its epoch.
#[derive(Clone, Debug)]
pub struct Part<P> {
    pub payload: P,
    /// Share of the epoch.
    pub share: f64,
    /// Whether it ends the epoch.
    pub last: bool,
}

/// Mini-batches, one after the other.
pub struct Sampled<B: GraphBackend, P> {
    /// Where neighbours are sampled.
    pub placement: PlacementInput,
    loader: Loader<Autodiff<B>, Part<P>>,
    device: B::Device,
}

impl<B: GraphBackend, P: Send + 'static> Sampled<B, P> {
    /// The epochs `first..=last`; `parts` makes the mini-batches of one.
    ///
    /// # Errors
    /// Settings that the sampler or the loader refuses.
    pub fn new(
        sampling: Sampling<'_, B>,
        first: usize,
        last: usize,
        parts: impl Fn(usize) -> Vec<Job<Part<P>>> + Send + 'static,
    ) -> Result<Self> {
        let Sampling { config, graph, sampler, store, first_reverse, drop_edge } = sampling;
        let placement = placement(config, &sampler, &store);
        let hot = match store.is_resident() {
            true => Vec::new(),
            false => {
                let presampled = parts(first).into_iter().take(PRESAMPLED).map(|job| (job.number, job.seeds));
                hot(config).nodes(graph, &sampler, presampled)?
            }
        };
        let (prefetch, window) = (config.prefetch, config.window);
        let options = LoaderOptions { placement: placement.decide(), prefetch, window, first_reverse, hot, drop_edge };
        let device = store.device().clone();
        let loader = Loader::new((first..=last).flat_map(parts), sampler, store, options)?;
        Ok(Self { placement, loader, device })
    }

    /// The next mini-batch, its share of the epoch, and whether it ends it. Ranks that divide the features all ask for
    /// it.
    ///
    /// # Errors
    /// What a thread of the loader ran into; a rank that fails.
    pub fn next_batch(&mut self, rank: Option<&Rank<B>>) -> Result<(Batch<Autodiff<B>, P>, f64, bool)> {
        let next = self.loader.next_of(rank);
        let Batch { number, x, blocks, seed_rows, nodes, payload: Part { payload, share, last }, stats } =
            next.unwrap_or_else(|| unreachable!("there is a batch for every step of every epoch"))?;
        Ok((Batch { number, x, blocks, seed_rows, nodes, payload, stats }, share, last))
    }

    /// What was loaded so far.
    pub fn stats(&self) -> BatchStats {
        self.loader.stats()
    }

    /// The same in words.
    pub fn loaded(&self) -> String {
        loaded::<B>(self.stats(), &self.device)
    }
}

/// Number of a mini-batch: those of an epoch follow each other.
pub fn number_of(epoch: usize, part: usize) -> u64 {
    (epoch as u64) << 32 | part as u64
}

/// The epoch of a mini-batch.
pub fn epoch_of(number: u64) -> u64 {
    number >> 32
}

/// The place of a mini-batch in its epoch.
pub fn part_of(number: u64) -> u32 {
    number as u32
}

/// The order in which `len` seeds are dealt to `parts` mini-batches of an epoch.
pub fn order_of(len: usize, parts: usize, seed: u64, epoch: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    if parts > 1 {
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed ^ (epoch as u64) << 32));
    }
    order
}
