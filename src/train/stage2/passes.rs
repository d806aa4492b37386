//! The forward and backward passes of a training, over the whole graph or over mini-batches of it.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;

use super::full::Epochs;
use super::loss::Terms;
use super::sampled::SampledEpochs;
use crate::config::{LoaderMode, Stage2Config};
use crate::error::Result;
use crate::graph::{Features, HeteroGraph};
use crate::infer::attention::attention_scores;
use crate::infer::layerwise::{self, HostScored};
use crate::infer::plan::Plan;
use crate::loader::FeatureStore;
use crate::models::attention::TripleStreamGat;
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::models::precision::dtype;
use crate::train::loading::{loaded, transferred};
use crate::train::optimiser::Optimiser;

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
        let asked_at_once = config.loader.mode == LoaderMode::Full;
        let mut notes: Vec<String> = (!asked_at_once).then(|| plan.to_string()).into_iter().collect();
        let lies = if plan.sampled {
            let store = FeatureStore::new(features.clone(), host, device)?;
            let (store, how) = transferred(store, &config.loader)?;
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
        Some(loaded::<B>(epochs.stats(), &self.device))
    }
}
