//! The pairs of an epoch of Stage 1, and its mini-batches.

use crate::config::{Rows, Stage1Config, TemperatureConfig};
use crate::graph::{HeteroGraph, Relation};
use crate::loader::Job;
use crate::train::edges::{LabelledPairs, Purpose, dealt, labelled_pairs};
use crate::train::reconstruction::PairRows;
use crate::train::sampled::{Part, number_of};
use crate::train::shard::Shard;

/// What comes with a mini-batch.
pub struct PairBatch {
    pub pairs: PairRows,
    /// Labels of the pairs of all ranks.
    pub labels: Vec<Vec<u8>>,
    /// The temperature.
    pub tau: f64,
}

/// The temperature of `epoch`, counted from 1: linear from `start` to `peak`, then a cosine to `end`.
pub fn temperature(config: &TemperatureConfig, epoch: usize, epochs: usize) -> f64 {
    let warm = config.warmup_epochs;
    if epoch <= warm {
        let progress = if warm > 1 { (epoch - 1) as f64 / (warm - 1) as f64 } else { 1.0 };
        return config.start + (config.peak - config.start) * progress;
    }
    let progress = (epoch - warm) as f64 / (epochs - warm).max(1) as f64;
    config.end + (config.peak - config.end) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}

/// The pairs of an epoch, and its temperature.
pub fn pairs_of_epoch(config: &Stage1Config, host: &HeteroGraph, epoch: usize) -> (Vec<LabelledPairs>, f64) {
    let count = |relation: &Relation| config.sampling.edges_of(&relation.stream);
    let (negatives, purpose) = (config.sampling.negatives_per_positive, Purpose::Reconstruction);
    let drawn = labelled_pairs(host, count, negatives, config.seed, purpose, epoch as u64);
    (drawn, temperature(&config.temperature, epoch, config.train.epochs))
}

/// The mini-batches of an epoch: each has its share of the edges of every relation, with the pairs that were drawn for
/// them. Of each of them there is the part `shard`.
pub fn parts(config: &Stage1Config, host: &HeteroGraph, epoch: usize, shard: Shard) -> Vec<Job<Part<PairBatch>>> {
    let (drawn, tau) = pairs_of_epoch(config, host, epoch);
    let positives = |pairs: &LabelledPairs| pairs.positives;
    // Every mini-batch has an edge: they are dealt out from the first one on.
    let longest = drawn.iter().map(positives).max().unwrap_or(0);
    let edges = drawn.iter().map(positives).sum::<usize>();
    let of = edges.div_ceil(config.loader.batch_size).min(longest).max(1);
    let job = |part| {
        let own = dealt(&drawn, part, of);
        let share = own.iter().map(positives).sum::<usize>() as f64 / edges.max(1) as f64;
        let (mut pairs, labels) = PairRows::of_shard(host, &own, Rows::Reachable, shard);
        let seeds = pairs.nodes.take().unwrap_or_else(|| unreachable!("reachable rows are listed"));
        let payload = Part { payload: PairBatch { pairs, labels, tau }, share, last: part + 1 == of };
        Job { number: number_of(epoch, part), seeds, payload }
    };
    (0..of).map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temperature_rises_linearly_and_falls_as_a_cosine() {
        let config = TemperatureConfig::default();
        assert_eq!(temperature(&config, 1, 200), 2.0);
        assert_eq!(temperature(&config, 20, 200), 10.0);
        assert!((temperature(&config, 110, 200) - 6.5).abs() < 1e-9);
        assert!((temperature(&config, 200, 200) - 3.0).abs() < 1e-9);
        assert_eq!(temperature(&TemperatureConfig { warmup_epochs: 0, ..config }, 1, 1), 3.0);
    }
}
