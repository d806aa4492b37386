//! Epochs of sampled mini-batches.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{DropEdge, GraphBackend};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::loss::{LossInput, Terms, edges_of_epoch};
use crate::config::{LoaderConfig, Rows, Stage2Config};
use crate::error::Result;
use crate::graph::HeteroGraph;
use crate::loader::{Batch, BatchStats, FeatureStore, Job, Loader, LoaderOptions, PlacementInput};
use crate::models::attention::{Pass, TripleStreamGat, projects_last};
use crate::models::precision::{as_data, dtype};
use crate::sampler::{EdgePlace, Fanout, NeighbourSampler, SamplerConfig};
use crate::train::edges::EdgeSample;
use crate::train::loading::{PRESAMPLED, hot, placement};

/// The forward passes of a training, one mini-batch after the other.
pub struct SampledEpochs<B: GraphBackend> {
    loader: Loader<Autodiff<B>, Part>,
    config: Stage2Config,
    dtype: DType,
    device: B::Device,
}

/// What a mini-batch has of the loss of its epoch.
#[derive(Clone, Debug)]
pub struct Part {
    input: LossInput,
    /// Mini-batches of the epoch.
    of: usize,
    last: bool,
}

/// A step of a sampled epoch.
pub struct Step<B: GraphBackend> {
    pub terms: Terms<B>,
    /// Share of the epoch.
    pub share: f64,
    /// Whether it ends the epoch.
    pub last: bool,
}

impl<B: GraphBackend> SampledEpochs<B> {
    /// Epochs from `first` on, and where their neighbours are sampled; `labels` are those of the training part.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    pub fn new(
        config: &Stage2Config,
        host: &HeteroGraph,
        store: FeatureStore<Autodiff<B>>,
        labels: &[(u32, u8)],
        first: usize,
        device: &B::Device,
    ) -> Result<(Self, PlacementInput)> {
        let graph = Arc::new(host.clone());
        let sampler = sampler(&config.loader, config.seed, graph.clone())?;
        let presampled = parts(config, &graph, labels, first).into_iter().take(PRESAMPLED);
        let presampled = presampled.map(|job| (job.number, job.seeds));
        let placement = placement(&config.loader, &sampler, &store);
        let options = LoaderOptions {
            placement: placement.decide(),
            prefetch: config.loader.prefetch,
            window: config.loader.window,
            first_reverse: !projects_last(config.model.heads, store.width(), config.model.hidden),
            hot: match store.is_resident() {
                true => Vec::new(),
                false => hot(&config.loader).nodes(&graph, &sampler, presampled)?,
            },
            drop_edge: (config.drop_edge.rate > 0.0).then(|| {
                let (rate, seed, fanouts) = (config.drop_edge.rate, config.seed, config.loader.fanouts.clone());
                let layers = fanouts.len();
                let rule = move |number: u64, place: EdgePlace| {
                    // A fanout thins a layer out already.
                    if fanouts[place.layer] > 0 {
                        return None;
                    }
                    let layer = (layers - 1 - place.layer) as u32;
                    DropEdge::new(rate, seed, epoch_of(number) as u32, layer, place.relation as u32)
                };
                Arc::new(rule) as _
            }),
        };
        let (settings, labels) = (config.clone(), labels.to_vec());
        let jobs = (first..=config.train.epochs).flat_map(move |epoch| parts(&settings, &graph, &labels, epoch));
        let loader = Loader::new(jobs, sampler, store, options)?;
        let storage = dtype(config.train.precision);
        let config = config.clone();
        Ok((Self { loader, config, dtype: storage, device: device.clone() }, placement))
    }

    /// The loss of the next mini-batch.
    ///
    /// # Errors
    /// What a thread of the loader ran into.
    pub fn next(&mut self, model: &TripleStreamGat<Autodiff<B>>) -> Result<Step<Autodiff<B>>> {
        let next = self.loader.next();
        let Batch { x, blocks, seed_rows, payload, .. } =
            next.unwrap_or_else(|| unreachable!("there is a batch for every step of every epoch"))?;
        let x: Vec<Tensor<Autodiff<B>, 2>> = x.into_iter().map(|x| as_data(x, self.dtype)).collect();
        let pass = Pass { recompute: self.config.model.recompute, ..Pass::default() };
        let h = model.embed_blocks(&blocks, &x, pass);
        let loss = payload.input.reordered(&seed_rows).grouped();
        let terms = loss.of(model.logits(h), self.config.loss.lambda_unsup, &self.device);
        Ok(Step { terms, share: 1.0 / payload.of as f64, last: payload.last })
    }

    /// What was loaded so far.
    pub fn stats(&self) -> BatchStats {
        self.loader.stats()
    }
}

/// The sampler that a configuration asks for.
///
/// # Errors
/// Settings that it refuses.
pub fn sampler(config: &LoaderConfig, seed: u64, graph: Arc<HeteroGraph>) -> Result<NeighbourSampler> {
    let fanouts: Vec<Fanout> = config.fanouts.iter().map(|&fanout| Fanout::from(fanout)).collect();
    let dependency = u32::try_from(config.kappa).ok().filter(|&kappa| kappa > 0);
    let relations = graph.relations().len();
    NeighbourSampler::new(graph, SamplerConfig { dependency, seed, ..SamplerConfig::new(&fanouts, relations) })
}

/// Number of a mini-batch: those of an epoch follow each other.
fn number_of(epoch: usize, part: usize) -> u64 {
    (epoch as u64) << 32 | part as u64
}

fn epoch_of(number: u64) -> u64 {
    number >> 32
}

/// The mini-batches of an epoch: each has its share of the labels and of the edges of every relation, in an order that the
/// epoch decides.
fn parts(config: &Stage2Config, host: &HeteroGraph, labels: &[(u32, u8)], epoch: usize) -> Vec<Job<Part>> {
    let edges = edges_of_epoch(config, host, epoch);
    let seeds = labels.len() + edges.iter().map(|(_, edges)| 2 * edges.len()).sum::<usize>();
    let of = seeds.div_ceil(config.loader.batch_size).max(1);
    let mut order: Vec<usize> = (0..labels.len()).collect();
    if of > 1 {
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(config.seed ^ (epoch as u64) << 32));
    }
    let job = |part: usize| {
        let share = |len: usize| (part..len).step_by(of);
        let labels: Vec<(u32, u8)> = share(labels.len()).map(|k| labels[order[k]]).collect();
        let edges = edges
            .iter()
            .map(|(relation, edges)| {
                let of = |ends: &[u32]| share(ends.len()).map(|k| ends[k]).collect();
                (*relation, EdgeSample { dst: of(&edges.dst), src: of(&edges.src) })
            })
            .filter(|(_, edges)| !edges.is_empty())
            .collect();
        let mut input = LossInput::new(host, &labels, &edges, Rows::Reachable);
        let seeds = input.nodes.take().unwrap_or_else(|| unreachable!("reachable rows are listed"));
        Job { number: number_of(epoch, part), seeds, payload: Part { input, of, last: part + 1 == of } }
    };
    (0..of).map(job).collect()
}
