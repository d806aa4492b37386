//! Scores from drawn parts of a graph, as a server gives them: what a user checks a server with.

use std::{io, thread};

use graphsieve_kernels::GraphBackend;
use ndarray::Array2;
use rayon::ThreadPoolBuilder;

use super::model::check_unused;
use super::{Computed, Prepared, ScoreOptions, Scores};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features};
use crate::live::{Draw, Independent, Live, Makes, NodeKey};

/// Parts that are scored at a time.
const BATCH: usize = 64;

/// Scores every node of a data directory from a part that is drawn around it: so many neighbours of each step, by a
/// seed. A server of the same data and model that draws alike gives a node the same score, to the bit on the processor.
///
/// # Errors
/// As for [`Prepared::open`]; [`Error::Usage`](crate::error::Error::Usage) for options that there is no use for.
pub fn compute_drawn<B: GraphBackend>(
    options: &ScoreOptions,
    fanouts: &[usize],
    seed: u64,
    device: &B::Device,
) -> Result<Computed> {
    let unused = [
        ("--input", options.input.is_some()),
        ("--embeddings", options.embeddings),
        ("--memory", options.spill.is_limited()),
    ];
    check_unused(&unused, "--fanouts", "leave it out: nodes are scored one by one, each with what is drawn around it")?;
    let dataset = Dataset::open(&options.data)?;
    let prepared = Prepared::<B>::open(&options.checkpoint, &options.data, &dataset, device)?;
    prepared.check_fanouts(fanouts)?;
    let refreshed = prepared.refresh(&dataset)?;
    // Nothing is appended, so that nothing depends on it.
    let columns = dataset.features.as_ref().map_or(0, Features::dim);
    let live = Live::open(dataset.clone(), Independent { columns, history: 0 })?;
    let (hops, fanouts) = (fanouts.len(), Some(fanouts.to_vec()));
    let draw = Draw { hops, makes: Makes::default(), fanouts, seed, max_nodes: usize::MAX, named: false };
    let types = dataset.graph.node_types();
    let key = |node: u32| NodeKey {
        node_type: types[dataset.graph.type_of(node as usize)].name.clone(),
        id: dataset.id_of(node).into_owned(),
    };
    let nodes: Vec<u32> = (0..dataset.graph.num_nodes() as u32).collect();
    let batches: Vec<&[u32]> = nodes.chunks(BATCH).collect();
    let of_batch = |batch: &&[u32]| -> Result<Vec<f32>> {
        let part = |&node: &u32| live.part(&[key(node)], &[], &draw).map_err(|refused| refused.error);
        let parts = batch.iter().map(part).collect::<Result<Vec<_>>>()?;
        Ok(prepared.scores(&parts, &refreshed)?.concat())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let of_thread = |first: usize| -> Result<Vec<Vec<f32>>> {
        let alone = ThreadPoolBuilder::new().num_threads(1).build().map_err(io::Error::other);
        let alone = alone.map_err(|fault| Error::io("a thread", "start", fault))?;
        alone.install(|| batches.iter().skip(first).step_by(threads).map(of_batch).collect())
    };
    let of_threads = thread::scope(|scope| {
        let of_thread = &of_thread;
        let started: Vec<_> = (0..threads).map(|first| scope.spawn(move || of_thread(first))).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, Result<Vec<Vec<f32>>>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started.into_iter().map(end).collect::<Result<Vec<_>>>()
    })?;
    let of_batch = |at: usize| of_threads[at % threads][at / threads].iter().copied();
    let scores: Vec<f32> = (0..batches.len()).flat_map(of_batch).collect();
    let scores = match RunConfig::load_kept(&options.checkpoint.join("config.toml"), &[])? {
        RunConfig::Classify(_) => Scores::Classes(Array2::from_shape_fn((scores.len(), 2), |(node, class)| {
            if class == 1 { scores[node] } else { 1.0 - scores[node] }
        })),
        _ => Scores::Anomaly(scores),
    };
    Ok(Computed { dataset, scores, embeddings: None })
}
