//! The mini-batches of Stage 2.

use std::sync::Arc;

use super::attention_loss::{LossInput, edges_of_epoch};
use crate::config::{Draw, LoaderConfig, Rows, Stage2Config};
use crate::error::Result;
use crate::graph::HeteroGraph;
use crate::loader::Job;
use crate::run::known_labels::{KnownLabels, Masked, Seen};
use crate::sampler::{Fanout, NeighbourSampler, SamplerConfig, weights_of};
use crate::train::edges::EdgeSample;
use crate::train::sampled::{Part, number_of, order_of};
use crate::train::shard::Shard;

/// What comes with a mini-batch.
pub struct BatchInput {
    pub loss: LossInput,
    /// The labels that are input, of a model that reads any.
    pub seen: Seen,
    /// The part of the mini-batch that this is.
    pub shard: Shard,
}

/// The sampler that a configuration asks for.
///
/// # Errors
/// Settings that it refuses.
pub fn sampler(config: &LoaderConfig, seed: u64, graph: Arc<HeteroGraph>) -> Result<NeighbourSampler> {
    let fanouts: Vec<Fanout> = config.fanouts.iter().map(|&fanout| Fanout::from(fanout)).collect();
    let dependency = u32::try_from(config.kappa).ok().filter(|&kappa| kappa > 0);
    let draw = config.draw;
    let weights = if draw == Draw::Weighted { weights_of(&graph) } else { Vec::new() };
    let settings = SamplerConfig::new(&fanouts, graph.relations().len());
    NeighbourSampler::new(graph, SamplerConfig { draw, dependency, weights, seed, ..settings })
}

/// The mini-batches of an epoch: each has its share of the labels and of the edges of every relation, in an order that
/// the epoch decides. Of each of them there is the part `shard`.
pub fn parts(
    config: &Stage2Config,
    host: &HeteroGraph,
    labels: &[(u32, u8)],
    known: Option<&KnownLabels>,
    epoch: usize,
    shard: Shard,
) -> Vec<Job<Part<BatchInput>>> {
    let edges = edges_of_epoch(config, host, epoch);
    let seeds = labels.len() + edges.iter().map(|(_, edges)| 2 * edges.len()).sum::<usize>();
    // Every mini-batch has a label or an edge: both are dealt out from the first one on.
    let longest = edges.iter().map(|(_, edges)| edges.len()).max().unwrap_or(0).max(labels.len());
    let of = seeds.div_ceil(config.loader.batch_size).min(longest).max(1);
    let batches: Vec<Masked> = match known {
        Some(known) => known.of_batches(of, config.model.label_rate, config.seed, epoch),
        None => {
            let order = order_of(labels.len(), of, config.seed, epoch);
            let dealt = |part: usize| (part..labels.len()).step_by(of).map(|k| labels[order[k]]).collect();
            (0..of).map(|part| Masked { seen: Seen::All, learned: dealt(part) }).collect()
        }
    };
    let of = batches.len();
    let job = |(part, Masked { seen, learned })| {
        let share = |len: usize| (part..len).step_by(of);
        let edges = edges
            .iter()
            .map(|(relation, edges)| {
                let of = |ends: &[u32]| share(ends.len()).map(|k| ends[k]).collect();
                (*relation, EdgeSample { dst: of(&edges.dst), src: of(&edges.src) })
            })
            .filter(|(_, edges)| !edges.is_empty())
            .collect();
        let mut loss = LossInput::of_shard(host, &learned, &edges, Rows::Reachable, shard);
        let seeds = loss.nodes.take().unwrap_or_else(|| unreachable!("reachable rows are listed"));
        Job {
            number: number_of(epoch, part),
            seeds,
            payload: Part { payload: BatchInput { loss, seen, shard }, share: 1.0 / of as f64, last: part + 1 == of },
        }
    };
    batches.into_iter().enumerate().map(job).collect()
}
