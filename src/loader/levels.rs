//! From places in a sampled batch to slots of the feature buffer.
//!
//! Level 0 are all nodes by slot; level `k` are the nodes that are left after `k` layers, in the order of their slots.

use graphsieve_kernels::{CsrArrays, RowNumbers};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::graph::{EdgeMatrix, HeteroGraph, Relation};
use crate::sampler::{Block, MiniBatch};

/// A layer of a batch, ready to be uploaded.
#[derive(Debug)]
pub(super) struct PreparedLayer {
    /// `[relation]`
    pub csr: Vec<Option<CsrArrays>>,
    /// `[relation]`: values of the sampled edges, where the relation has any.
    pub values: Vec<Option<EdgeMatrix>>,
    /// `[relation]`: ages of the sampled edges, where the relation has any of its own.
    pub ages: Vec<Option<EdgeMatrix>>,
    /// `[type]`: rows before the layer that are rows after it, ascending, and the number of rows before.
    pub kept: Vec<(RowNumbers, usize)>,
}

/// `[layer + 1][type]`: times of the nodes before each layer and, last, after all of them, of types whose times ages
/// are made of.
pub(super) type LevelTimes = Vec<Vec<Option<Vec<i32>>>>;

/// Numbers of the nodes of one type at one level.
struct Level {
    /// Place in the batch by number.
    order: Vec<u32>,
    /// Number by place in the batch.
    number: Vec<u32>,
}

impl Level {
    /// Of the first `count` nodes of the batch.
    fn new(slots: &[u32], count: usize) -> Self {
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_unstable_by_key(|&place| slots[place as usize]);
        let mut number = vec![0; count];
        order.iter().zip(0..).for_each(|(&place, at)| number[place as usize] = at);
        Level { order, number }
    }
}

/// The layers of a batch, the one that reads the features first, the times of their nodes, and the row of every seed.
/// `first_reverse` is as in [`LoaderOptions`](super::LoaderOptions).
pub(super) fn layers(
    batch: &MiniBatch,
    slots: &[Vec<u32>],
    graph: &HeteroGraph,
    first_reverse: bool,
) -> Result<(Vec<PreparedLayer>, LevelTimes, Vec<Vec<u32>>)> {
    let relations = graph.relations();
    let depth = batch.blocks.len();
    // `counts[0]` are the seeds, the last level.
    let level = |k: usize| -> Vec<Level> {
        batch.counts[depth - k].iter().zip(slots).map(|(&count, slots)| Level::new(slots, count)).collect()
    };
    let levels: Vec<Vec<Level>> = (0..=depth).into_par_iter().map(level).collect();
    let mut layers = Vec::with_capacity(depth);
    for k in 0..depth {
        let (before, after) = (&levels[k], &levels[k + 1]);
        let csr = relations.par_iter().zip(&batch.blocks[depth - 1 - k]).map(|(relation, block)| {
            let (rows, cols) = (&after[relation.dst], &before[relation.src]);
            if rows.order.is_empty() || cols.order.is_empty() {
                return Ok(None);
            }
            adjacency(block, rows, cols, first_reverse || k > 0).map(Some).map_err(|problem| Error::Data {
                what: format!("sampled relation {} of batch {}", relation.name, batch.number),
                expected: "an adjacency that the kernels can index".into(),
                found: problem.to_string(),
                help: "lower loader.fanouts or loader.batch_size".into(),
            })
        });
        let kept = before.iter().zip(after).map(|(before, after)| {
            let numbers: Vec<u32> = after.order.iter().map(|&place| before.number[place as usize]).collect();
            (RowNumbers::new(&numbers), before.order.len())
        });
        let picked = |of: fn(&Relation) -> Option<&EdgeMatrix>| -> Vec<Option<EdgeMatrix>> {
            let blocks = relations.par_iter().zip(&batch.blocks[depth - 1 - k]);
            let of_block = |(relation, block): (&Relation, &Block)| {
                let rows = after[relation.dst].order.iter().map(|&place| block.row(place as usize));
                Some(of(relation)?.picked(rows.flat_map(|row| &block.edges[row]).map(|&edge| edge as usize)))
            };
            blocks.map(of_block).collect()
        };
        let (values, ages) = (picked(|of| of.values.as_deref()), picked(Relation::ages_of_edges));
        layers.push(PreparedLayer { csr: csr.collect::<Result<_>>()?, values, ages, kept: kept.collect() });
    }
    let times_of = |level: &Vec<Level>| {
        let of_type = |(t, level): (usize, &Level)| {
            let times = graph.times_of(t)?;
            Some(level.order.iter().map(|&place| times[batch.nodes[t][place as usize] as usize]).collect())
        };
        level.iter().enumerate().map(of_type).collect()
    };
    let times = levels.iter().map(times_of).collect();
    let seeds = levels.into_iter().next_back().unwrap_or_default().into_iter().map(|level| level.number).collect();
    Ok((layers, times, seeds))
}

/// A block with rows and columns by number, and its reverse where that is wanted.
fn adjacency(
    block: &Block,
    rows: &Level,
    cols: &Level,
    reverse: bool,
) -> Result<CsrArrays, graphsieve_kernels::CsrError> {
    let mut row_ptr = Vec::with_capacity(rows.order.len() + 1);
    let mut col_idx = Vec::with_capacity(block.cols.len());
    row_ptr.push(0);
    for &place in &rows.order {
        col_idx.extend(block.cols[block.row(place as usize)].iter().map(|&col| cols.number[col as usize]));
        row_ptr.push(col_idx.len() as u64);
    }
    let arrays = if reverse { CsrArrays::new } else { CsrArrays::one_way };
    arrays(&row_ptr, &col_idx, cols.order.len())
}
