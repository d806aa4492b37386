//! The forward and backward passes of a training, over the whole graph or over mini-batches of it.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;

use super::full::Epochs;
use super::loss::Terms;
use super::plan::Plan;
use super::sampled::{SampledEpochs, memory_of};
use crate::config::{Stage2Config, Transfer};
use crate::error::{Error, Result};
use crate::graph::{Features, HeteroGraph};
use crate::loader::{FeatureStore, Footprint};
use crate::models::attention::TripleStreamGat;
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::score::attention_scores;
use crate::score::layerwise::{self, HostScored};
use crate::train::optimiser::{Optimiser, dtype};

/// Features may take one part in so many of the memory: the rest is for adjacencies and batches.
const RESIDENT_SHARE: u64 = 4;

type Model<B> = TripleStreamGat<Autodiff<B>>;

/// How a training goes through its graph.
pub struct Passes<B: GraphBackend> {
    way: Way<B>,
    device: B::Device,
    /// What was decided, for the user.
    pub notes: Vec<String>,
}

enum Way<B: GraphBackend> {
    Full { epochs: Box<Epochs<B>>, graph: DeviceGraph<B>, x: Vec<Tensor<B, 2>>, chunk_rows: Option<usize> },
    Sampled { epochs: Box<SampledEpochs<B>>, graph: Arc<HeteroGraph>, features: Features, dtype: DType },
}

/// What a training goes through, where its passes find it: all that can be refused, before there is a run.
pub struct Ground<B: GraphBackend> {
    lies: Lies<B>,
    notes: Vec<String>,
}

enum Lies<B: GraphBackend> {
    OnDevice { graph: DeviceGraph<Autodiff<B>>, x: Vec<Tensor<Autodiff<B>, 2>> },
    OnHost { store: FeatureStore<Autodiff<B>> },
}

impl<B: GraphBackend> Ground<B> {
    /// Uploads, or prepares to load, what the plan says.
    ///
    /// # Errors
    /// Features or relations that do not fit the device's types, a transfer that the device does not have.
    pub fn new(
        plan: &Plan,
        config: &Stage2Config,
        host: &HeteroGraph,
        features: &Features,
        device: &B::Device,
    ) -> Result<Self> {
        let mut notes: Vec<String> = plan.is_news().then(|| plan.to_string()).into_iter().collect();
        let lies = if plan.sampled {
            let store = FeatureStore::new(features.clone(), host, device)?;
            let available = memory_of::<B>(&config.loader, device);
            let (store, how) = transferred(store, config.loader.transfer, available)?;
            notes.push(how);
            Lies::OnHost { store }
        } else {
            let x = upload_features(host.node_types(), features, dtype(config.train.precision), device)?;
            Lies::OnDevice { graph: DeviceGraph::upload(host, device)?, x }
        };
        Ok(Self { lies, notes })
    }
}

impl<B: GraphBackend> Passes<B> {
    /// Passes from the epoch `first` on; `labels` are those of the training part.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    pub fn new(
        Ground { lies, mut notes }: Ground<B>,
        config: &Stage2Config,
        host: &HeteroGraph,
        features: Features,
        labels: &[(u32, u8)],
        first: usize,
        device: &B::Device,
    ) -> Result<Self> {
        let way = match lies {
            Lies::OnHost { store } => {
                let (epochs, placement) = SampledEpochs::new(config, host, store, labels, first, device)?;
                notes.push(placement.to_string());
                let (graph, dtype) = (Arc::new(host.clone()), dtype(config.train.precision));
                Way::Sampled { epochs: Box::new(epochs), graph, features, dtype }
            }
            Lies::OnDevice { graph, x } => {
                let (inner, inner_x) = (graph.inner(), x.iter().map(|x| x.clone().inner()).collect());
                let epochs = Box::new(Epochs::new(config, host, graph, x, labels, first, device));
                Way::Full { epochs, graph: inner, x: inner_x, chunk_rows: config.train.chunk_size }
            }
        };
        Ok(Self { way, device: device.clone(), notes })
    }

    /// Entries of the adjacency that an epoch visits; none where they are sampled.
    pub fn edges(&self) -> usize {
        match &self.way {
            Way::Full { graph, .. } => 2 * graph.num_edges(),
            Way::Sampled { .. } => 0,
        }
    }

    /// Trains an epoch; returns the model, and the loss with its supervised and unsupervised term.
    ///
    /// # Errors
    /// What a thread of the loader ran into.
    pub fn epoch(
        &mut self,
        mut model: Model<B>,
        optimiser: &mut Optimiser<B, Model<B>>,
        rate: f64,
    ) -> Result<(Model<B>, [Tensor<B, 1>; 3])> {
        let values = |terms: &Terms<Autodiff<B>>| {
            [&terms.loss, &terms.supervised, &terms.unsupervised].map(|value| value.clone().inner())
        };
        match &mut self.way {
            Way::Full { epochs, .. } => {
                let terms = epochs.next(&model);
                let values = values(&terms);
                Ok((optimiser.step(model, terms.loss, rate), values))
            }
            Way::Sampled { epochs, .. } => {
                let mut sums: Option<[Tensor<B, 1>; 3]> = None;
                loop {
                    let step = epochs.next(&model)?;
                    let share = values(&step.terms).map(|value| value * step.share);
                    let sum = match sums {
                        None => share,
                        Some(sums) => {
                            let mut pairs = sums.into_iter().zip(share).map(|(sum, share)| sum + share);
                            std::array::from_fn(|_| pairs.next().unwrap_or_else(|| unreachable!("three terms")))
                        }
                    };
                    model = optimiser.step(model, step.terms.loss, rate);
                    if step.last {
                        return Ok((model, sum));
                    }
                    sums = Some(sum);
                }
            }
        }
    }

    /// Scores of all nodes.
    ///
    /// # Errors
    /// A device that failed.
    pub fn scores(&self, model: &TripleStreamGat<B>) -> Result<Vec<f32>> {
        match &self.way {
            Way::Full { graph, x, chunk_rows, .. } => Ok(attention_scores(model, graph, x, *chunk_rows).scores),
            Way::Sampled { .. } => self.scored(model).map(|scored| scored.scores),
        }
    }

    /// Scores and embeddings of all nodes.
    ///
    /// # Errors
    /// A device that failed.
    pub fn scored(&self, model: &TripleStreamGat<B>) -> Result<HostScored> {
        match &self.way {
            Way::Full { graph, x, chunk_rows, .. } => {
                let scored = attention_scores(model, graph, x, *chunk_rows);
                let scores = scored.scores.clone();
                let scored = HostScored { scores, embeddings: scored.embedding_matrix() };
                check_device()?;
                Ok(scored)
            }
            Way::Sampled { graph, features, dtype, .. } => {
                layerwise::scores(model, graph, features, *dtype, &self.device)
            }
        }
    }

    /// What the mini-batches were made of.
    pub fn loaded(&self) -> Option<String> {
        let Way::Sampled { epochs, .. } = &self.way else { return None };
        let stats = epochs.stats();
        let share = |rows: u64| 100.0 * rows as f64 / stats.rows.max(1) as f64;
        let held = B::memory_probe(&self.device).map_or(String::new(), |probe| {
            format!("; the device's allocator holds {}", Footprint::bytes(probe().reserved))
        });
        Some(format!(
            "{} mini-batches of {} rows and {} edges on average; {:.1} % of the rows were there, {:.1} % hot, {:.1} % fetched \
             ({}){held}",
            stats.batches,
            stats.rows / stats.batches.max(1),
            stats.edges / stats.batches.max(1),
            share(stats.shared),
            share(stats.hot),
            share(stats.fetched),
            Footprint::bytes(stats.bytes),
        ))
    }
}

/// The store as rows are to leave it, and how that is; `available` is the memory that may be used.
fn transferred<B: GraphBackend>(
    store: FeatureStore<B>,
    transfer: Transfer,
    available: Option<u64>,
) -> Result<(FeatureStore<B>, String)> {
    let bytes = Footprint::bytes(store.bytes() as u64);
    let fits = available.is_some_and(|available| store.bytes() as u64 <= available / RESIDENT_SHARE);
    match transfer {
        Transfer::Gathered => return Ok((store, "features: gathered by the processor, as asked for".into())),
        Transfer::Resident => return Ok((store.resident(), format!("features: {bytes} on the device, as asked for"))),
        Transfer::Auto if B::SAMPLES && fits => {
            let how = format!("features: {bytes} on the device, no more than a quarter of what it has");
            return Ok((store.resident(), how));
        }
        Transfer::Auto | Transfer::ZeroCopy => {}
    }
    match store.pin() {
        Ok(store) => Ok((store, format!("features: {bytes} of page-locked memory that the device reads"))),
        Err((_, reason)) if transfer == Transfer::ZeroCopy => Err(Error::Device {
            device: "of this run".into(),
            reason,
            help: "set loader.transfer = \"gathered\", or \"auto\" to let the run choose".into(),
        }),
        Err((store, reason)) => Ok((store, format!("features: gathered by the processor: {reason}"))),
    }
}
