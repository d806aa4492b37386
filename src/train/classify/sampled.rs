//! Epochs of sampled mini-batches.

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::GraphBackend;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::fit::cross_entropy;
use crate::config::ClassifyConfig;
use crate::error::{Error, Result};
use crate::infer::sampled_input::SampledInput;
use crate::loader::{Batch, BatchStats, FeatureStore, Job, Loader, LoaderOptions, PlacementInput};
use crate::models::node_classifier::NodeClassifier;
use crate::nn::TrainingPass;
use crate::train::loading::{PRESAMPLED, hot, placement};

/// The forward passes of a training, one mini-batch after the other.
pub struct SampledEpochs<B: GraphBackend> {
    /// Where neighbours are sampled.
    pub placement: PlacementInput,
    loader: Loader<Autodiff<B>, Part>,
    input: SampledInput,
    dropout: f64,
    seed: u64,
    device: B::Device,
}

/// What a mini-batch is of its epoch.
#[derive(Clone, Debug)]
struct Part {
    /// Of the seeds, in their order.
    classes: Vec<u32>,
    /// Counts mini-batches from 1, over all epochs.
    step: u32,
    /// Share of the training nodes.
    share: f64,
    last: bool,
}

/// A step of a sampled epoch.
pub struct Step<B: GraphBackend> {
    /// Mean cross-entropy of the seeds.
    pub loss: Tensor<B, 1>,
    /// Share of the training nodes that are seeds.
    pub share: f64,
    /// Whether it ends the epoch.
    pub last: bool,
}

impl<B: GraphBackend> SampledEpochs<B> {
    /// Epochs from `first` on; `train` are the training nodes and their classes, `store` has the rows of `input`.
    ///
    /// # Errors
    /// Settings that do not fit the model or that the sampler refuses; no training node.
    pub fn new(
        config: &ClassifyConfig,
        input: &SampledInput,
        store: FeatureStore<Autodiff<B>>,
        train: &[(u32, u32)],
        first: usize,
    ) -> Result<Self> {
        let ClassifyConfig { loader: settings, seed, .. } = config;
        let layers = config.model.layers;
        if settings.fanouts.len() != layers {
            return Err(Error::Config {
                origin: config.name.clone().into(),
                key: "loader.fanouts".into(),
                expected: format!("{layers} fanouts, as model.layers"),
                found: format!("{:?}", settings.fanouts),
                help: "one for each layer, the one next to the seeds first; 0 takes all neighbours".into(),
            });
        }
        if train.is_empty() {
            return Err(Error::Data {
                what: "split of the labels".into(),
                expected: "at least one training node".into(),
                found: "none".into(),
                help: "label more nodes, or choose another split".into(),
            });
        }
        let sampler = input.sampler(&settings.fanouts, settings.kappa, *seed)?;
        let presampled = parts(config, train, first).into_iter().take(PRESAMPLED).map(|job| (job.number, job.seeds));
        let placement = placement(settings, &sampler, &store);
        let options = LoaderOptions {
            placement: placement.decide(),
            prefetch: settings.prefetch,
            window: settings.window,
            hot: match store.is_resident() {
                true => Vec::new(),
                false => hot(settings).nodes(input.graph(), &sampler, presampled)?,
            },
            ..LoaderOptions::default()
        };
        let (of_jobs, train) = (config.clone(), train.to_vec());
        let jobs = (first..=config.train.epochs).flat_map(move |epoch| parts(&of_jobs, &train, epoch));
        let device = store.device().clone();
        let loader = Loader::new(jobs, sampler, store, options)?;
        let (input, dropout, seed) = (input.clone(), config.model.dropout, *seed);
        Ok(Self { placement, loader, input, dropout, seed, device })
    }

    /// The loss of the next mini-batch.
    ///
    /// # Errors
    /// What a thread of the loader ran into.
    pub fn next(&mut self, model: &NodeClassifier<Autodiff<B>>) -> Result<Step<Autodiff<B>>> {
        let next = self.loader.next();
        let Batch { mut x, blocks, seed_rows, payload, .. } =
            next.unwrap_or_else(|| unreachable!("there is a batch for every step of every epoch"))?;
        let Part { classes, step, share, last } = payload;
        let pass = TrainingPass { seed: self.seed, step, layer: 0 };
        // Autodiff keeps what is computed of data that no loss depends on, see `as_data`.
        let rows = self.input.read(x.swap_remove(0).inner()).into_autodiff();
        let logits = model.forward_batch(&blocks, rows, Some((pass, self.dropout)));
        // The rows that are left are the seeds.
        let mut targets = vec![0i32; classes.len()];
        seed_rows[0].iter().zip(&classes).for_each(|(&row, &class)| targets[row as usize] = class as i32);
        let targets = Tensor::from_data(TensorData::new(targets, [classes.len(), 1]), &self.device);
        Ok(Step { loss: cross_entropy(logits, targets), share, last })
    }

    /// What was loaded so far.
    pub fn stats(&self) -> BatchStats {
        self.loader.stats()
    }
}

/// The mini-batches of an epoch: the training nodes in an order that the epoch decides, in equal shares of at most
/// `loader.batch_size`.
fn parts(config: &ClassifyConfig, train: &[(u32, u32)], epoch: usize) -> Vec<Job<Part>> {
    let of = train.len().div_ceil(config.loader.batch_size);
    let mut order = train.to_vec();
    if of > 1 {
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(config.seed ^ (epoch as u64) << 32));
    }
    let job = |part: usize| {
        let (seeds, classes): (Vec<u32>, Vec<u32>) = order.iter().skip(part).step_by(of).copied().unzip();
        let share = seeds.len() as f64 / train.len() as f64;
        let step = ((epoch - 1) * of + part + 1) as u32;
        let payload = Part { classes, step, share, last: part + 1 == of };
        Job { number: (epoch as u64) << 32 | part as u64, seeds: vec![seeds], payload }
    };
    (0..of).map(job).collect()
}
