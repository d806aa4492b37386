//! Several ranks that train one model: what they agree on, what they tell each other, and how threads are ranks.
//!
//! Every mini-batch is that of a training on one rank: seeds, neighbours and dropped edges are drawn by the numbers of
//! the mini-batch and of the nodes. A rank has a [`Shard`] of its seeds, and a loss whose sum over the ranks is the
//! loss of the mini-batch. Gradients of all parameters are added up as one vector: all ranks take the same step.
//! Rank 0 decides and writes; it tells the others epoch by epoch whether there is another one.
//!
//! Where features are divided for mini-batches, a rank gets the rows that it lacks from the others before each step, on
//! the thread of the step and by its communicator: exchanges of rows, of gradients and of validations follow each other
//! in one order on all ranks. Of several hosts each has all rows on its devices where these have room, and asks no
//! other; else all hosts have them together ([`Deal`](crate::loader::Deal)).
//!
//! In passes over the whole graph every rank has a shard of the labels, edges and pairs that the loss reads. Where all
//! rows are computed, in Stages 1 and 2 with `train.rows = "all"` and in a classification, they are divided: a rank has
//! the edges into its own nodes, and gets the rows of all others between the layers
//! ([`GraphPart`](crate::models::graph_part::GraphPart)). All ranks then validate and score together.
//!
//! Reachable rows of Stages 1 and 2 are those that a rank's shard of the loss depends on, out of the whole graph, which
//! every rank has: how much less that is than all of them depends on the graph. Ranks that shared the hidden rows, each
//! computing some of them and getting the others, took longer. Stage 2 is scored and Stage 1 embeds by divided rows all
//! the same. Where mini-batches are trained all ranks score layer by layer, each some of the nodes.
//!
//! Dropout is drawn by the rows that a rank computes: with it, a training on several ranks draws otherwise than one on
//! one rank, as it does with mini-batches of another size. Where all rows of the graph are computed, divided or not,
//! these are the nodes, and all ranks drop what one rank drops.

use std::time::Duration;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{CollectiveBackend, CollectiveError, Communicator, GraphBackend};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::shard::Shard;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::graph::Features;
use crate::infer::plan::Plan;
use crate::models::parameters::to_host;
use crate::run::bundle::{Origin, digest_of};

pub use crate::models::graph_part::failed;

/// A rank of a training on backend `B`.
pub type Rank<B> = Communicator<<B as CollectiveBackend>::Plain>;

/// How long a rank waits for another: while rank 0 saves or writes, the others have nothing to do.
pub const RANKS_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// The part of every loss that a rank has.
pub fn shard_of<B: GraphBackend>(rank: Option<&Rank<B>>) -> Shard {
    rank.map_or(Shard::WHOLE, |rank| Shard { rank: rank.rank(), ranks: rank.ranks() })
}

/// The rank of a training whose rows are divided: there always is one.
pub fn of_part<R>(rank: Option<&R>) -> &R {
    rank.unwrap_or_else(|| unreachable!("a part is that of a rank"))
}

/// What a training on one rank left: rank 0 always leaves something.
pub fn alone<T>(left: Option<T>) -> T {
    left.unwrap_or_else(|| unreachable!("one rank alone is rank 0"))
}

/// Makes sure that what was read is what the ranks have made together: exchanges that nobody has waited for have ended
/// as they should.
///
/// # Errors
/// A rank that fails.
pub fn settled<B: GraphBackend>(rank: Option<&Rank<B>>) -> Result<()> {
    rank.map_or(Ok(()), |rank| rank.settled().map_err(failed))
}

/// Refuses what cannot be trained on `ranks` ranks.
///
/// # Errors
/// [`Error::Usage`] with the key and the way out.
pub fn check(config: &RunConfig, ranks: usize) -> Result<()> {
    if ranks < 2 {
        return Ok(());
    }
    let task = match config {
        RunConfig::Stage1(_) | RunConfig::Stage2(_) | RunConfig::Classify(_) => return Ok(()),
        RunConfig::Stage3(_) => "stage3",
        RunConfig::Pipeline(_) => "pipeline",
        RunConfig::Auto(_) => "auto",
    };
    Err(Error::Usage {
        argument: format!("--devices {ranks}"),
        expected: "task = \"stage1\", \"stage2\" or \"classify\"".into(),
        found: format!("task = \"{task}\""),
        help: "leave --devices out; a stage that is a network can be trained on several devices by itself".into(),
    })
}

/// One plan for all ranks: mini-batches where any of them needs them, since devices need not have the same memory.
///
/// # Errors
/// A rank that fails.
pub fn planned<B: GraphBackend>(mut plan: Plan, rank: Option<&Rank<B>>, device: &B::Device) -> Result<Plan> {
    if let Some(rank) = rank {
        plan.sampled = on_any::<B>(rank, plan.sampled, device)?;
    }
    Ok(plan)
}

/// Whether it is so on any rank; `own` is whether it is on this one.
///
/// # Errors
/// A rank that fails.
pub fn on_any<B: GraphBackend>(rank: &Rank<B>, own: bool, device: &B::Device) -> Result<bool> {
    let votes = Tensor::<B, 1>::from_data([f32::from(own)], (device, DType::F32));
    Ok(to_host(rank.all_reduce(votes).map_err(failed)?)[0] > 0.0)
}

/// Makes sure that all ranks are of one version and have the same settings and data; `input` is what stands for the
/// features of the data.
///
/// # Errors
/// [`Error::Ranks`] on every rank, with what differs and where.
pub fn agree<B: GraphBackend>(
    rank: &Rank<B>,
    config: &str,
    origin: Option<&Origin>,
    input: Option<&Features>,
) -> Result<()> {
    let data = origin.map(|origin| serde_json::to_vec(origin.digest()).unwrap_or_default()).unwrap_or_default();
    let input = input.map(digest_of).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    rank.handshake(&[
        ("version of graphsieve", version.as_bytes()),
        ("configuration", config.as_bytes()),
        ("data directory", &data),
        ("file of embeddings", input.as_bytes()),
    ])
    .map_err(failed)
}

/// What all ranks do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// An epoch, counted from 1, and whether it is validated.
    Epoch { epoch: usize, validated: bool },
    /// The training is over: they share the model that rank 0 has chosen.
    End,
    /// Rank 0 was asked to stop.
    Stop,
}

/// What rank 0 says, on every rank; what the others say counts nothing.
///
/// # Errors
/// A rank that fails.
pub fn told<B: GraphBackend, T: Serialize + DeserializeOwned>(
    rank: &Rank<B>,
    own: &T,
    device: &B::Device,
) -> Result<T> {
    let bytes = told_bytes::<B>(rank, &serde_json::to_vec(own).unwrap_or_default(), device)?;
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|e| unreachable!("rank 0 wrote it: {e}")))
}

fn told_bytes<B: GraphBackend>(rank: &Rank<B>, bytes: &[u8], device: &B::Device) -> Result<Vec<u8>> {
    // Bytes are small whole numbers, which floats hold.
    let share = |bytes: &[u8]| -> Result<Vec<u8>> {
        let values: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte)).collect();
        let values = TensorData::new(values, [bytes.len()]);
        let values = rank.broadcast(Tensor::<B, 1>::from_data(values, (device, DType::F32)), 0).map_err(failed)?;
        Ok(to_host(values).into_iter().map(|byte| byte as u8).collect())
    };
    let len = share(&(bytes.len() as u64).to_le_bytes())?;
    let len = len.into_iter().rev().fold(0, |len, byte| len << 8 | usize::from(byte));
    match rank.rank() {
        0 => share(bytes),
        _ => share(&vec![0; len]),
    }
}

/// The model of rank 0, on every rank.
///
/// # Errors
/// A rank that fails.
pub fn shared<B: GraphBackend, M: Module<B>>(model: M, rank: &Rank<B>) -> Result<M> {
    let mut of_first = OfFirst::<B> { rank, failure: None };
    let model = model.map(&mut of_first);
    of_first.failure.map_or(Ok(model), |failure| Err(failed(failure)))
}

/// Gives every parameter the values of rank 0.
struct OfFirst<'r, B: GraphBackend> {
    rank: &'r Rank<B>,
    failure: Option<CollectiveError>,
}

impl<B: GraphBackend> ModuleMapper<B> for OfFirst<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, own, mapper) = param.consume();
        let values = self.rank.broadcast(own.clone(), 0).unwrap_or_else(|error| {
            self.failure.get_or_insert(error);
            own
        });
        Param::from_mapped_value(id, values, mapper)
    }
}

/// `work` of one rank. Its error ends the group with the reason.
///
/// # Errors
/// That of `work`.
pub fn as_rank<B: GraphBackend, T>(rank: &Rank<B>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = work();
    if let Err(error) = &done {
        let said = error.to_string();
        rank.abort(said.lines().next().unwrap_or_default());
    }
    done
}

/// `work` of all ranks on threads of this process; what rank 0 leaves.
///
/// # Errors
/// That of the first rank that failed by itself, and not because another one did.
pub fn on_threads<B: GraphBackend, T: Send>(
    ranks: Vec<(Rank<B>, B::Device)>,
    work: impl Fn(&Rank<B>, &B::Device) -> Result<Option<T>> + Sync,
) -> Result<T> {
    let work = &work;
    let ended: Vec<Result<Option<T>>> = std::thread::scope(|scope| {
        let start =
            |(rank, device): (Rank<B>, B::Device)| scope.spawn(move || as_rank::<B, _>(&rank, || work(&rank, &device)));
        let threads: Vec<_> = ranks.into_iter().map(start).collect();
        let end = |(rank, thread): (usize, std::thread::ScopedJoinHandle<'_, _>)| {
            thread.join().unwrap_or_else(|_| {
                Err(Error::Data {
                    what: format!("rank {rank}"),
                    expected: "a thread that goes on".into(),
                    found: "one that panicked, with the message above".into(),
                    help: "resume the run from its last checkpoint, and report the message if it comes back".into(),
                })
            })
        };
        threads.into_iter().enumerate().map(end).collect()
    });
    let (mut own, mut of_others) = (None, None);
    for end in ended {
        match end {
            Ok(Some(left)) => return Ok(left),
            Ok(None) => {}
            Err(error @ Error::Ranks { .. }) => _ = of_others.get_or_insert(error),
            Err(error) => _ = own.get_or_insert(error),
        }
    }
    Err(own.or(of_others).unwrap_or_else(|| unreachable!("rank 0 leaves something or fails")))
}
