//! How a task goes through its graph: at once ([`full`](super::full)) or in mini-batches ([`sampled`](super::sampled)).

use burn::tensor::Tensor;
use graphsieve_kernels::{AutodiffTurn, GraphBackend, autodiff_turn};

use super::optimiser::Optimiser;
use super::ranks::{Rank, failed};
pub use super::task::Runner;
use super::task::{Losses, Task};
use crate::error::Result;
use crate::loader::BatchStats;

/// One step of the optimiser.
pub struct Step<B: GraphBackend, D> {
    pub losses: Losses<B, D>,
    /// Share of the epoch.
    pub share: f64,
    /// Whether it ends the epoch.
    pub last: bool,
    /// Held during the step, because other models may be trained in this process; not while a mini-batch is waited for.
    pub turn: AutodiffTurn,
}

/// An epoch that was taken.
pub struct Epoch<B: GraphBackend, T: Task<B>> {
    /// The model after it.
    pub model: T::Model,
    /// Its loss and the terms, which nobody has read yet.
    pub values: Vec<Tensor<B, 1>>,
    pub detail: T::Detail,
}

impl<B: GraphBackend, T: Task<B>> Runner<B, T> {
    /// The loss of the next step, as one of several ranks where there are any.
    ///
    /// # Errors
    /// What a thread of the loader ran into; a graph that has nothing to learn from; a rank that fails.
    pub fn next(&mut self, task: &T, model: &T::Model, rank: Option<&Rank<B>>) -> Result<Step<B, T::Detail>> {
        match self {
            Runner::Full(full) => {
                let begun = full.next_begun(|input| task.begin(input));
                let turn = autodiff_turn();
                let losses = task.epoch(model, begun, rank)?;
                // The device finds the rows of the next epoch between both passes of this one, so that nobody waits for
                // them, and the host uploads them while it computes.
                full.begin_ahead(|input| task.begin(input));
                Ok(Step { losses, share: 1.0, last: true, turn })
            }
            Runner::Sampled(sampled) => {
                let (batch, share, last) = sampled.next_batch(rank)?;
                let turn = autodiff_turn();
                Ok(Step { losses: task.batch(model, batch)?, share, last, turn })
            }
        }
    }

    /// Takes the steps of an epoch, together with all ranks where there are several. Values of mini-batches count by
    /// their shares; they are those of all ranks.
    ///
    /// # Errors
    /// As for [`Runner::next`]; a rank that fails.
    pub fn epoch(
        &mut self,
        task: &T,
        mut model: T::Model,
        optimiser: &mut Optimiser<B, T::Model>,
        rate: f64,
        rank: Option<&Rank<B>>,
    ) -> Result<Epoch<B, T>> {
        let mut sums: Vec<Tensor<B, 1>> = Vec::new();
        let mut details = T::Detail::default();
        loop {
            let Step { losses: Losses { loss, terms, detail }, share, last, turn: _turn } =
                self.next(task, &model, rank)?;
            details = task.joined(details, detail);
            let values = std::iter::once(loss.clone().inner()).chain(terms);
            let values = values.map(|value| if share == 1.0 { value } else { value * share });
            sums = match sums.is_empty() {
                true => values.collect(),
                false => sums.into_iter().zip(values).map(|(sum, value)| sum + value).collect(),
            };
            model = match rank {
                None => optimiser.step(model, loss, rate),
                Some(rank) => optimiser.step_together(model, loss, rate, rank)?,
            };
            if last {
                let (values, detail) = match rank {
                    None => (sums, details),
                    Some(rank) => {
                        let count = sums.len();
                        let sums = rank.all_reduce_queued(Tensor::cat(sums, 0)).map_err(failed)?;
                        let values = (0..count).map(|at| sums.clone().narrow(0, at, 1)).collect();
                        (values, task.gathered(details, rank)?)
                    }
                };
                return Ok(Epoch { model, values, detail });
            }
        }
    }

    /// What was decided about mini-batches, for the user.
    pub fn note(&self) -> Option<String> {
        match self {
            Runner::Full(_) => None,
            Runner::Sampled(sampled) => Some(sampled.placement.to_string()),
        }
    }

    /// What was loaded so far, in mini-batches.
    pub fn stats(&self) -> Option<BatchStats> {
        match self {
            Runner::Full(_) => None,
            Runner::Sampled(sampled) => Some(sampled.stats()),
        }
    }

    /// What the mini-batches were made of.
    pub fn loaded(&self) -> Option<String> {
        match self {
            Runner::Full(_) => None,
            Runner::Sampled(sampled) => Some(sampled.loaded()),
        }
    }
}
