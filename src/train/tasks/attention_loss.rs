//! The loss of Stage 2: what it reads, and its terms.

use std::ops::Range;

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{
    Focus, GraphBackend, RowIndex, RowList, focal_with_logits_sum, gather_rows, smoothness_sum, upload_data,
};

use crate::config::{LossConfig, Rows, Stage2Config};
use crate::graph::{HeteroGraph, Relation};
use crate::train::edges::{EdgeSample, Purpose, sample_edges};
use crate::train::loss_rows::LossRows;
use crate::train::shard::Shard;
use crate::train::task::Losses;

/// Sampled edges of the primary relations that have any.
pub type LossEdges<'g> = Vec<(&'g Relation, EdgeSample)>;

/// What the terms of a loss count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossWeights {
    focus: Focus,
    /// Divides by the mean weight of the labels.
    scale: f64,
    unsupervised: f64,
}

impl LossWeights {
    /// Of the labels of a training.
    pub fn of(config: &LossConfig, train: &[(u32, u8)]) -> Self {
        let anomalous = train.iter().filter(|(_, label)| *label == 1).count();
        let counts = [train.len() - anomalous, anomalous];
        let unsupervised = config.lambda_unsup;
        Self { unsupervised, ..Self::of_labels(config.positive_weight, config.focal_gamma, counts) }
    }

    /// Of a supervised term alone: what an anomaly counts (`None` balances both classes), the exponent of the focal
    /// loss, and how many labels are normal and anomalous.
    pub fn of_labels(positive_weight: Option<f64>, focal_gamma: f64, counts: [usize; 2]) -> Self {
        let [normal, anomalous] = counts.map(|count| count as f64);
        let all = normal + anomalous;
        // A part without one of the classes has nothing to balance.
        let balanced = if anomalous > 0.0 && normal > 0.0 { normal / anomalous } else { 1.0 };
        let positive = positive_weight.unwrap_or(balanced);
        let sum = normal + positive * anomalous;
        let scale = if positive == 1.0 || sum == 0.0 { 1.0 } else { all / sum };
        let focus = Focus { gamma: focal_gamma as f32, positive: positive as f32 };
        Self { focus, scale, unsupervised: 0.0 }
    }

    /// The supervised term of `logits` `[labels]` of being anomalous against labels of 0 and 1, f32: their mean.
    pub fn supervised<B: GraphBackend>(
        self,
        logits: Tensor<Autodiff<B>, 1>,
        targets: Tensor<Autodiff<B>, 1>,
    ) -> Tensor<Autodiff<B>, 1> {
        let scale = self.scale / logits.dims()[0] as f64;
        focal_with_logits_sum(logits, targets, self.focus, scale)
    }
}

/// The edges that the smoothness term of an epoch sees; none where it counts nothing.
pub fn edges_of_epoch<'g>(config: &Stage2Config, host: &'g HeteroGraph, epoch: usize) -> LossEdges<'g> {
    if config.loss.lambda_unsup == 0.0 {
        return Vec::new();
    }
    let (samples, seed) = (config.loss.samples_per_relation, config.seed);
    let primary = host.relations().iter().enumerate().filter(|(_, relation)| relation.primary);
    primary
        .map(|(id, r)| (r, sample_edges(r, id, samples, seed, Purpose::Smoothness, epoch as u64).0))
        .filter(|(_, edges)| !edges.is_empty())
        .collect()
}

/// What a loss reads, by the numbers of its rows: those of all types one behind the other.
#[derive(Clone, Debug)]
pub struct LossInput {
    /// The rows that are computed, by type; all when there is no list.
    pub nodes: Option<Vec<Vec<u32>>>,
    labelled: Vec<u32>,
    targets: Vec<f32>,
    /// The destinations of the edges of all relations, then their sources.
    ends: Vec<u32>,
    /// What a squared difference counts: the mean over relations of the mean over a relation's edges.
    weights: Vec<f32>,
    /// What the mean over these labels counts.
    share: f64,
    total: usize,
}

impl LossInput {
    /// Of a part of these labels and edges, so that the losses of all parts add up to that of the whole; `rows` says
    /// whether other rows are computed, too. A part that has none of them has one that counts nothing: its loss is 0,
    /// and can be differentiated.
    pub fn of_shard(host: &HeteroGraph, labels: &[(u32, u8)], edges: &LossEdges<'_>, rows: Rows, shard: Shard) -> Self {
        let (mut own, mut weights) = (LossEdges::new(), Vec::new());
        let mut add = |relation, of: &EdgeSample, range: Range<usize>, weight: f32| {
            if !range.is_empty() {
                own.push((relation, EdgeSample { dst: of.dst[range.clone()].to_vec(), src: of.src[range].to_vec() }));
                weights.push(weight);
            }
        };
        for (relation, of) in edges {
            add(*relation, of, shard.of(of.len()), 1.0 / (of.len() * edges.len()) as f32);
        }
        let labelled = &labels[shard.of(labels.len())];
        let is_empty = labelled.is_empty() && edges.iter().all(|(_, of)| shard.of(of.len()).is_empty());
        let labelled = match edges.first() {
            _ if !is_empty => labelled,
            Some((relation, of)) if labels.is_empty() => {
                add(*relation, of, 0..1, 0.0);
                labelled
            }
            _ => &labels[..labels.len().min(1)],
        };
        let share = if is_empty { 0.0 } else { labelled.len() as f64 / labels.len().max(1) as f64 };
        Self { share, ..Self::weighted(host, labelled, (&own, &weights), rows) }
    }

    /// `weights` has what an edge of each relation counts.
    fn weighted(
        host: &HeteroGraph,
        labels: &[(u32, u8)],
        (edges, weights): (&LossEdges<'_>, &[f32]),
        rows: Rows,
    ) -> Self {
        let types = host.node_types();
        let counts: Vec<usize> = types.iter().map(|t| t.count).collect();
        let mut labelled: Vec<Vec<u32>> = vec![Vec::new(); types.len()];
        for (node, _) in labels {
            let t = host.type_of(*node as usize);
            labelled[t].push(node - types[t].offset as u32);
        }
        let lists = edges.iter().flat_map(|(r, e)| [(r.dst, e.dst.as_slice()), (r.src, e.src.as_slice())]);
        let rows = match rows {
            Rows::All => LossRows::all(&counts),
            Rows::Reachable => LossRows::of(&counts, lists.chain(labelled.iter().map(Vec::as_slice).enumerate())),
        };
        let mut base = vec![0u32; types.len() + 1];
        for t in 0..types.len() {
            base[t + 1] = base[t] + rows.len(t) as u32;
        }
        let number = |t: usize, node: u32| base[t] + rows.number(t, node);
        let of_label = |(node, _): &(u32, u8)| {
            let t = host.type_of(*node as usize);
            number(t, node - types[t].offset as u32)
        };
        let numbers = |end: fn(&Relation) -> usize, nodes: fn(&EdgeSample) -> &[u32]| {
            edges.iter().flat_map(move |(r, e)| nodes(e).iter().map(move |&n| (end(r), n)))
        };
        let ends = numbers(|r| r.dst, |e| &e.dst).chain(numbers(|r| r.src, |e| &e.src));
        Self {
            labelled: labels.iter().map(of_label).collect(),
            targets: labels.iter().map(|(_, label)| f32::from(*label)).collect(),
            ends: ends.map(|(t, node)| number(t, node)).collect(),
            weights: edges.iter().zip(weights).flat_map(|((_, e), &weight)| vec![weight; e.len()]).collect(),
            share: 1.0,
            total: base[types.len()] as usize,
            nodes: rows.nodes(),
        }
    }

    /// The same where the rows of a type stand in another order: `rows[type][k]` is the place of its `k`-th row.
    pub fn reordered(self, rows: &[Vec<u32>]) -> Self {
        let mut place = Vec::with_capacity(self.total);
        for rows in rows {
            let base = place.len() as u32;
            place.extend(rows.iter().map(|&row| base + row));
        }
        self.placed(&place)
    }

    /// The same where row `k` of all types stands at `places[k]`.
    pub fn placed(mut self, places: &[u32]) -> Self {
        for row in self.labelled.iter_mut().chain(&mut self.ends) {
            *row = places[*row as usize];
        }
        self
    }

    /// Groups the rows for the backward pass.
    pub fn grouped(self) -> GroupedLoss {
        GroupedLoss {
            labelled: RowList::new(&self.labelled, self.total),
            targets: self.targets,
            ends: RowList::new(&self.ends, self.total),
            weights: self.weights,
            share: self.share,
        }
    }
}

/// What a loss reads, ready to be uploaded.
#[derive(Clone, Debug)]
pub struct GroupedLoss {
    labelled: RowList,
    targets: Vec<f32>,
    ends: RowList,
    weights: Vec<f32>,
    share: f64,
}

/// Rows of the logits, and a value for each or for each pair of them.
type Terms<B> = Option<(RowIndex<Autodiff<B>>, Tensor<B, 1>)>;

/// What a loss reads, on a device.
pub struct DeviceLoss<B: GraphBackend> {
    /// With their targets.
    labelled: Terms<B>,
    /// With their weights.
    ends: Terms<B>,
    share: f64,
}

impl GroupedLoss {
    /// Uploads it.
    pub fn upload<B: GraphBackend>(self, device: &B::Device) -> DeviceLoss<B> {
        // No device takes a copy of nothing.
        let terms = |rows: RowList, values: Vec<f32>| {
            let len = values.len();
            (len > 0).then(|| (rows.upload(device), upload_data(TensorData::new(values, [len]), device)))
        };
        let (labelled, ends) = (terms(self.labelled, self.targets), terms(self.ends, self.weights));
        DeviceLoss { labelled, ends, share: self.share }
    }

    /// [`DeviceLoss::of`] of what is uploaded for it.
    pub fn of<B: GraphBackend>(
        self,
        logits: Tensor<Autodiff<B>, 2>,
        weights: LossWeights,
        device: &B::Device,
    ) -> Losses<B> {
        self.upload(device).of(logits, weights)
    }
}

impl<B: GraphBackend> DeviceLoss<B> {
    /// The loss of `logits` `[rows, 1]`, with its supervised and its unsupervised term.
    pub fn of(self, logits: Tensor<Autodiff<B>, 2>, weights: LossWeights) -> Losses<B> {
        let nothing = || Tensor::zeros([1], &logits.device());
        let supervised = self.labelled.map_or_else(nothing, |(rows, targets)| {
            let labelled = gather_rows(logits.clone(), &rows).reshape([rows.len()]);
            let weights = LossWeights { scale: weights.scale * self.share, ..weights };
            weights.supervised(labelled, Tensor::from_inner(targets))
        });
        let unsupervised = self.ends.map_or_else(nothing, |(rows, of_edges)| {
            let ends = gather_rows(logits.clone(), &rows).reshape([2, of_edges.dims()[0]]);
            smoothness_sum(ends, Tensor::from_inner(of_edges), 1.0)
        });
        let loss = supervised.clone() + unsupervised.clone() * weights.unsupervised;
        Losses { loss, terms: vec![supervised.inner(), unsupervised.inner()], detail: () }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_count_one_on_average_whatever_an_anomaly_counts() {
        let train: Vec<(u32, u8)> = (0..10).map(|node| (node, u8::from(node < 2))).collect();
        let weights = |positive_weight: Option<f64>, train: &[(u32, u8)]| {
            let config = LossConfig { positive_weight, focal_gamma: 0.0, lambda_unsup: 0.5, samples_per_relation: 1 };
            let LossWeights { focus, scale, unsupervised } = LossWeights::of(&config, train);
            assert_eq!((focus.gamma, unsupervised), (0.0, 0.5));
            (f64::from(focus.positive), scale)
        };
        assert_eq!(weights(Some(1.0), &train), (1.0, 1.0));
        // Two anomalies of weight 4 and eight normal nodes: sixteen, shared by ten labels.
        assert_eq!(weights(None, &train), (4.0, 10.0 / 16.0));
        assert_eq!(weights(Some(11.0), &train), (11.0, 10.0 / 30.0));
        assert_eq!(weights(None, &train[..2]), (1.0, 1.0), "one class alone");
    }
}
