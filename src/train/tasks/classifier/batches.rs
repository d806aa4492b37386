//! The mini-batches of a classification.

use crate::config::ClassifyConfig;
use crate::graph::HeteroGraph;
use crate::loader::Job;
use crate::train::sampled::{Part, number_of, order_of};
use crate::train::shard::Shard;

/// What a mini-batch brings along.
pub struct Targets {
    /// `[type]`: of the seeds, in their order.
    pub(super) classes: Vec<Vec<u32>>,
    /// What the mean over them counts.
    pub(super) share: f64,
    /// Counts mini-batches from 1, over all epochs.
    pub(super) step: u32,
    /// Of dropout.
    pub(super) seed: u64,
}

/// The mini-batches of an epoch: the training nodes in an order that the epoch decides, in equal shares of at most
/// `loader.batch_size`. Of each of them there is the part `shard`; one without a node has one that counts nothing.
pub(super) fn parts(
    config: &ClassifyConfig,
    graph: &HeteroGraph,
    train: &[(u32, u32)],
    epoch: usize,
    shard: Shard,
) -> Vec<Job<Part<Targets>>> {
    let of = train.len().div_ceil(config.loader.batch_size);
    let order = order_of(train.len(), of, config.seed, epoch);
    let (types, seed) = (graph.node_types(), shard.seed(config.seed));
    let job = |part: usize| {
        let (mut seeds, mut classes) = (vec![Vec::new(); types.len()], vec![Vec::new(); types.len()]);
        let all: Vec<(u32, u32)> = order.iter().skip(part).step_by(of).map(|&at| train[at]).collect();
        let own = &all[shard.of(all.len())];
        let of_all = own.len() as f64 / all.len() as f64;
        for &(node, class) in if own.is_empty() { &all[..1] } else { own } {
            let t = graph.type_of(node as usize);
            seeds[t].push(node - types[t].offset as u32);
            classes[t].push(class);
        }
        let share = all.len() as f64 / train.len() as f64;
        let step = ((epoch - 1) * of + part + 1) as u32;
        let payload = Part { payload: Targets { classes, share: of_all, step, seed }, share, last: part + 1 == of };
        Job { number: number_of(epoch, part), seeds, payload }
    };
    (0..of).map(job).collect()
}
