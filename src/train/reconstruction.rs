//! Pairs of nodes of Stage 1: the loss on them, and how well embeddings tell edges from other pairs.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, PairIndex, PairList, bce_with_logits_sum, pair_dot, upload, upload_data};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

use super::edges::{LabelledPairs, part_of};
use super::loss_rows::LossRows;
use super::shard::Shard;
use crate::config::Rows;
use crate::error::Result;
use crate::graph::{HeteroGraph, NodeType};
use crate::metrics::{roc_auc, sigmoid};
use crate::models::parameters::to_host;

/// How well scores of pairs tell edges from non-edges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeMetrics {
    /// Mean probability of positive pairs.
    pub p_positive: f64,
    /// Mean probability of negative pairs.
    pub p_negative: f64,
    /// Difference of the two.
    pub margin: f64,
    /// ROC-AUC of positive against negative pairs.
    pub edge_auc: f64,
}

/// Pairs of nodes as numbers of rows.
#[derive(Clone, Debug)]
pub struct PairRows {
    /// The rows that are computed, by type; all when there is no list.
    pub nodes: Option<Vec<Vec<u32>>>,
    /// Types of both ends and their rows, for every relation that has some.
    lists: Vec<([usize; 2], [Vec<u32>; 2])>,
    /// Rows of every type.
    counts: Vec<usize>,
    /// 1 for edges, 0 for other pairs.
    targets: Vec<u8>,
    /// What a pair counts in the loss.
    weight: f64,
}

/// The same, grouped for the backward pass.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The rows that are computed, by type; all when there is no list.
    pub nodes: Option<Vec<Vec<u32>>>,
    /// Types of both ends and the pairs, for every relation that has some.
    lists: Vec<(usize, usize, PairList)>,
    /// 1 for edges, 0 for other pairs.
    pub targets: Vec<u8>,
    /// What a pair counts in the loss.
    weight: f64,
}

/// The same on a device.
pub struct DevicePairs<B: Backend> {
    lists: Vec<(usize, usize, PairIndex<B>)>,
    /// What the logits are compared with.
    wanted: Tensor<B, 1>,
    targets: Vec<u8>,
    weight: f64,
}

/// The loss of some pairs, and what is behind it.
pub struct Scored<B: Backend> {
    pub loss: Tensor<B, 1>,
    pub logits: Tensor<B, 1>,
    /// 1 for edges, 0 for other pairs.
    pub targets: Vec<u8>,
}

impl PairRows {
    fn new(host: &HeteroGraph, drawn: &[LabelledPairs], rows: Rows) -> Self {
        let counts: Vec<usize> = host.node_types().iter().map(|t| t.count).collect();
        let types =
            |pairs: &LabelledPairs| (host.relations()[pairs.relation].dst, host.relations()[pairs.relation].src);
        let rows = match rows {
            Rows::All => LossRows::all(&counts),
            Rows::Reachable => LossRows::of(
                &counts,
                drawn.iter().flat_map(|p| [(types(p).0, p.dst.as_slice()), (types(p).1, p.src.as_slice())]),
            ),
        };
        let list = |pairs: &LabelledPairs| {
            let (dst, src) = types(pairs);
            ([dst, src], [rows.numbers(dst, &pairs.dst), rows.numbers(src, &pairs.src)])
        };
        let targets = targets_of(drawn);
        let weight = 1.0 / targets.len() as f64;
        let (lists, counts) = (drawn.iter().map(list).collect(), (0..counts.len()).map(|t| rows.len(t)).collect());
        Self { nodes: rows.nodes(), lists, counts, targets, weight }
    }

    /// Of a part of [`labelled_pairs`](super::edges::labelled_pairs), so that the losses of all parts add up to that of
    /// the whole, with the targets of all parts.
    pub fn of_shard(host: &HeteroGraph, drawn: &[LabelledPairs], rows: Rows, shard: Shard) -> (Self, Vec<Vec<u8>>) {
        let of_rank = |rank| targets_of(&part_of(drawn, Shard { rank, ..shard }).0);
        let (own, weight) = part_of(drawn, shard);
        (Self { weight, ..Self::new(host, &own, rows) }, (0..shard.ranks).map(of_rank).collect())
    }

    /// The same where the rows of a type stand in another order: `rows[type][k]` is the place of its `k`-th row.
    pub fn reordered(mut self, rows: &[Vec<u32>]) -> Self {
        for (types, ends) in &mut self.lists {
            for (t, end) in types.iter().zip(ends) {
                end.iter_mut().for_each(|row| *row = rows[*t][*row as usize]);
            }
        }
        self
    }

    /// The same where the rows of all types stand in one matrix: row `k` of them all at `places[k]`.
    pub fn placed(mut self, places: &[u32]) -> Self {
        let base = |t: usize| self.counts[..t].iter().sum::<usize>();
        for (types, ends) in &mut self.lists {
            for (t, end) in types.iter_mut().zip(ends) {
                let base = base(*t);
                end.iter_mut().for_each(|row| *row = places[base + *row as usize]);
                *t = 0;
            }
        }
        Self { counts: vec![places.len()], ..self }
    }

    /// Groups the pairs for the backward pass.
    pub fn grouped(self) -> Pairs {
        let Self { nodes, lists, counts, targets, weight } = self;
        let list = |([dst, src], [left, right]): ([usize; 2], [Vec<u32>; 2])| {
            (dst, src, PairList::new(&left, &right, counts[dst], counts[src]))
        };
        Pairs { nodes, lists: lists.into_iter().map(list).collect(), targets, weight }
    }
}

impl Pairs {
    /// Of pairs of the relations of `host`; `rows` says whether rows without any are computed, too.
    pub fn new(host: &HeteroGraph, drawn: &[LabelledPairs], rows: Rows) -> Self {
        PairRows::new(host, drawn, rows).grouped()
    }

    /// Uploads them. There is at least one.
    pub fn upload<B: GraphBackend>(self, device: &B::Device) -> DevicePairs<B> {
        let Self { lists, targets, weight, .. } = self;
        let wanted: Vec<f32> = targets.iter().map(|&t| f32::from(t)).collect();
        let wanted = upload_data(TensorData::new(wanted, [targets.len()]), device);
        DevicePairs { lists: uploaded(lists, device), wanted, targets, weight }
    }
}

impl<B: GraphBackend> DevicePairs<B> {
    /// Mean binary cross-entropy of the logits `tau <z_dst, z_src>`, or the part of it that these pairs have; `z` has
    /// the rows [`Pairs::nodes`].
    pub fn score(self, z: &[Tensor<B, 2>], tau: f64) -> Scored<B> {
        let logits = dots(&self.lists, z) * tau;
        let loss = bce_with_logits_sum(logits.clone(), self.wanted, self.weight);
        Scored { loss, logits, targets: self.targets }
    }
}

/// How well embeddings tell pairs of the relations of `host` apart; `rows` gives those of some nodes of every type.
/// `None` unless both kinds are there.
///
/// # Errors
/// Embeddings that are not finite.
pub fn metrics<B: GraphBackend>(
    host: &HeteroGraph,
    drawn: &[LabelledPairs],
    rows: impl FnOnce(Vec<Vec<u32>>) -> Vec<Tensor<B, 2>>,
    device: &B::Device,
) -> Result<Option<EdgeMetrics>> {
    let Pairs { nodes, lists, targets, .. } = Pairs::new(host, drawn, Rows::Reachable);
    if !targets.contains(&0) || !targets.contains(&1) {
        return Ok(None);
    }
    let z = rows(nodes.unwrap_or_else(|| unreachable!("reachable rows are listed")));
    edge_metrics(dots(&uploaded(lists, device), &z), &targets).map(Some)
}

/// The embeddings of some nodes of every type out of those of all nodes, by global id, on a device.
pub fn rows_of<B: GraphBackend>(
    host: &HeteroGraph,
    z: ArrayView2<f32>,
    nodes: &[Vec<u32>],
    device: &B::Device,
) -> Vec<Tensor<B, 2>> {
    let (dim, values) = (z.ncols(), z.to_slice().unwrap_or_default());
    let rows = |(of, nodes): (&NodeType, &Vec<u32>)| {
        upload([nodes.len(), dim], device, |first, mut to: &mut [f32]| {
            // What is written at a time may begin and end within a row.
            let mut at = first;
            while !to.is_empty() {
                let (row, column) = (of.offset + nodes[at / dim] as usize, at % dim);
                let (part, rest) = to.split_at_mut(to.len().min(dim - column));
                part.copy_from_slice(&values[row * dim + column..][..part.len()]);
                at += part.len();
                to = rest;
            }
        })
    };
    host.node_types().iter().zip(nodes).map(rows).collect()
}

/// 1 for edges, 0 for other pairs.
fn targets_of(drawn: &[LabelledPairs]) -> Vec<u8> {
    drawn.iter().flat_map(|pairs| (0..pairs.dst.len()).map(|p| u8::from(p < pairs.positives))).collect()
}

fn uploaded<B: GraphBackend>(
    lists: Vec<(usize, usize, PairList)>,
    device: &B::Device,
) -> Vec<(usize, usize, PairIndex<B>)> {
    lists.into_iter().map(|(dst, src, pairs)| (dst, src, pairs.upload(device))).collect()
}

/// `<z_dst, z_src>` of every pair.
fn dots<B: GraphBackend>(lists: &[(usize, usize, PairIndex<B>)], z: &[Tensor<B, 2>]) -> Tensor<B, 1> {
    let one = |(dst, src, pairs): &(usize, usize, PairIndex<B>)| pair_dot(z[*dst].clone(), z[*src].clone(), pairs);
    Tensor::cat(lists.iter().map(one).collect(), 0)
}

/// Of logits of pairs; both kinds are there.
///
/// # Errors
/// Logits that are not finite.
pub fn edge_metrics<B: GraphBackend>(logits: Tensor<B, 1>, targets: &[u8]) -> Result<EdgeMetrics> {
    let scores: Vec<f32> = to_host(logits).into_iter().map(sigmoid).collect();
    let mean = |class: u8| {
        let own = scores.iter().zip(targets).filter(|(_, t)| **t == class).map(|(s, _)| f64::from(*s));
        own.clone().sum::<f64>() / own.count().max(1) as f64
    };
    let (p_positive, p_negative) = (mean(1), mean(0));
    let edge_auc = roc_auc(&scores, targets)?;
    Ok(EdgeMetrics { p_positive, p_negative, margin: p_positive - p_negative, edge_auc })
}
