//! Single rows of the operators' results and gradients in f64, computed edge by edge from the values as stored.

pub mod pairs;

use graphsieve_kernels::DropEdge;
use rayon::prelude::*;

use crate::graph::{Adjacency, Relation};

/// A row-major matrix of stored values on the host.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub values: &'a [f32],
    pub width: usize,
}

impl<'a> Matrix<'a> {
    pub fn row(self, row: usize) -> &'a [f32] {
        &self.values[row * self.width..][..self.width]
    }

    /// The part of a row that belongs to a head of `channels`.
    fn head(self, row: usize, head: usize, channels: usize) -> &'a [f32] {
        &self.row(row)[head * channels..][..channels]
    }
}

/// The largest difference over the largest wanted value; infinite when a value is not finite.
pub fn error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len(), "as many values as were computed in f64");
    if !got.iter().all(|value| value.is_finite()) {
        return f64::INFINITY;
    }
    let scale = want.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let difference =
        got.iter().zip(want).fold(0.0, |largest: f64, (got, want)| largest.max((f64::from(*got) - want).abs()));
    if scale > 0.0 { difference / scale } else { difference }
}

/// `row` of every listed row, one after the other.
pub fn rows(list: &[u32], row: &(dyn Fn(usize) -> Vec<f64> + Sync)) -> Vec<f64> {
    list.par_iter().flat_map_iter(|&at| row(at as usize)).collect()
}

/// Row `i` of the plain sum over in-neighbours. The gradient is the same with the reverse adjacency.
pub fn spmm(adjacency: &Adjacency, x: Matrix, i: usize) -> Vec<f64> {
    let mut sum = vec![0.0; x.width];
    for &j in adjacency.row(i) {
        add(&mut sum, 1.0, x.row(j as usize));
    }
    sum
}

/// Row `i` of the sum over in-neighbours times values of the edges; each of their columns has an equal share of
/// channels.
pub fn weighted_sum(adjacency: &Adjacency, x: Matrix, e: Matrix, i: usize) -> Vec<f64> {
    let (mut sum, share) = (vec![0.0; x.width], x.width / e.width);
    for (&j, entry) in adjacency.row(i).iter().zip(adjacency.entries(i)) {
        for (c, sum) in sum.iter_mut().enumerate() {
            *sum += f64::from(x.row(j as usize)[c]) * f64::from(e.row(entry)[c / share]);
        }
    }
    sum
}

/// Row `i` of the largest over in-neighbours, 0 without any.
pub fn maximum(adjacency: &Adjacency, x: Matrix, i: usize) -> Vec<f64> {
    let largest = |c: usize| adjacency.row(i).iter().map(|&j| f64::from(x.row(j as usize)[c])).reduce(f64::max);
    (0..x.width).map(|c| largest(c).unwrap_or(0.0)).collect()
}

/// Row and column of edge `e`.
fn ends(adjacency: &Adjacency, e: usize) -> [usize; 2] {
    let (row, col) = adjacency.edge(e);
    [row, col as usize]
}

/// The product of the ends of edge `e`, by head.
pub fn edge_dot(adjacency: &Adjacency, [u, v]: [Matrix; 2], heads: usize, e: usize) -> Vec<f64> {
    let ([i, j], channels) = (ends(adjacency, e), u.width / heads);
    (0..heads).map(|head| dot(u.head(j, head, channels), v.head(i, head, channels))).collect()
}

/// The sum of the ends of edge `e`.
pub fn edge_sum(adjacency: &Adjacency, [u, v]: [Matrix; 2], e: usize) -> Vec<f64> {
    let [i, j] = ends(adjacency, e);
    u.row(j).iter().zip(v.row(i)).map(|(u, v)| f64::from(*u) + f64::from(*v)).collect()
}

/// The softmax of edge `e` among those of its row.
pub fn edge_softmax(adjacency: &Adjacency, logits: Matrix, e: usize) -> Vec<f64> {
    let entries = adjacency.entries(adjacency.edge(e).0);
    let of_head = |head: usize| {
        let logit = |entry: usize| f64::from(logits.row(entry)[head]);
        let largest = entries.clone().map(logit).fold(f64::NEG_INFINITY, f64::max);
        (logit(e) - largest).exp() / entries.clone().map(|entry| (logit(entry) - largest).exp()).sum::<f64>()
    };
    (0..logits.width).map(of_head).collect()
}

/// Row `i` of `x w`, with `w` as `[x.width, w.width]`.
pub fn product(x: Matrix, w: Matrix, i: usize) -> Vec<f64> {
    let mut sum = vec![0.0; w.width];
    for (k, &value) in x.row(i).iter().enumerate() {
        add(&mut sum, f64::from(value), w.row(k));
    }
    sum
}

/// Row `i` of `g w^T`.
pub fn product_transposed(g: Matrix, w: Matrix, i: usize) -> Vec<f64> {
    (0..w.values.len() / w.width).map(|k| dot(g.row(i), w.row(k))).collect()
}

/// Row `k` of `x^T g`.
pub fn weight_gradient(x: Matrix, g: Matrix, k: usize) -> Vec<f64> {
    let mut sum = vec![0.0; g.width];
    for (row, values) in x.values.chunks_exact(x.width).enumerate() {
        add(&mut sum, f64::from(values[k]), g.row(row));
    }
    sum
}

/// Row `i` of the gradient of ELU.
pub fn elu_gradient(x: Matrix, g: Matrix, i: usize) -> Vec<f64> {
    let slope = |x: f64| if x > 0.0 { 1.0 } else { x.exp() };
    x.row(i).iter().zip(g.row(i)).map(|(&x, &g)| f64::from(g) * slope(f64::from(x))).collect()
}

/// Graph attention over one relation; the formulas are those of [`graphsieve_kernels::gat`].
pub struct Attention<'a> {
    pub relation: &'a Relation,
    pub heads: usize,
    pub negative_slope: f64,
    pub drop_edge: Option<DropEdge>,
    pub h_src: Matrix<'a>,
    pub h_dst: Matrix<'a>,
    /// Gradient of the result.
    pub g: Matrix<'a>,
    /// One row per head.
    pub attention_src: Matrix<'a>,
    pub attention_dst: Matrix<'a>,
    /// Values of every entry of the relation, and the vector behind their share in the score, one row per head.
    pub edges: Option<[Matrix<'a>; 2]>,
}

impl Attention<'_> {
    fn channels(&self) -> usize {
        self.attention_src.width
    }

    fn keeps(&self, i: usize, j: usize) -> bool {
        self.drop_edge.is_none_or(|drop| drop.keeps(i as u32, j as u32))
    }

    /// The kept entries of a row, and their sources.
    fn kept(&self, i: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let sources = self.relation.forward.row(i).iter().map(|&j| j as usize);
        self.relation.forward.entries(i).zip(sources).filter(move |&(_, j)| self.keeps(i, j))
    }

    /// The score of entry `e` before the leaky ReLU.
    fn score(&self, i: usize, (e, j): (usize, usize), head: usize) -> f64 {
        let of_edge = self.edges.map_or(0.0, |[values, logit]| dot(values.row(e), logit.row(head)));
        dot(self.h_dst.head(i, head, self.channels()), self.attention_dst.row(head))
            + dot(self.h_src.head(j, head, self.channels()), self.attention_src.row(head))
            + of_edge
    }

    fn leaky(&self, score: f64) -> f64 {
        if score > 0.0 { score } else { self.negative_slope * score }
    }

    fn slope(&self, score: f64) -> f64 {
        if score > 0.0 { 1.0 } else { self.negative_slope }
    }

    /// Logarithm of the softmax denominator of row `i`, and its result, of one head.
    fn attend(&self, i: usize, head: usize) -> (f64, Vec<f64>) {
        let scored: Vec<(usize, f64)> =
            self.kept(i).map(|(e, j)| (j, self.leaky(self.score(i, (e, j), head)))).collect();
        let largest = scored.iter().fold(f64::NEG_INFINITY, |largest, (_, e)| largest.max(*e));
        let total: f64 = scored.iter().map(|(_, e)| (e - largest).exp()).sum();
        let log_sum_exp = largest + total.ln();
        let mut out = vec![0.0; self.channels()];
        for (j, e) in scored {
            add(&mut out, (e - log_sum_exp).exp(), self.h_src.head(j, head, self.channels()));
        }
        (log_sum_exp, out)
    }

    /// Row `i` of the result.
    pub fn forward(&self, i: usize) -> Vec<f64> {
        (0..self.heads).flat_map(|head| self.attend(i, head).1).collect()
    }

    /// Attention and gradient of the score of the entry `i <- j`, given what [`Self::attend`] says about `i`.
    fn edge_gradient(
        &self,
        i: usize,
        (e, j): (usize, usize),
        head: usize,
        (log_sum_exp, out): &(f64, Vec<f64>),
    ) -> (f64, f64) {
        let g = self.g.head(i, head, self.channels());
        let centre: f64 = g.iter().zip(out).map(|(g, out)| f64::from(*g) * out).sum();
        let score = self.score(i, (e, j), head);
        let weight = (self.leaky(score) - log_sum_exp).exp();
        let projection = dot(g, self.h_src.head(j, head, self.channels()));
        (weight, weight * (projection - centre) * self.slope(score))
    }

    /// Row `j` of the gradient of the source features.
    pub fn source_gradient(&self, j: usize) -> Vec<f64> {
        let mut gradient = Vec::with_capacity(self.h_src.width);
        for head in 0..self.heads {
            let (mut part, mut score_gradient) = (vec![0.0; self.channels()], 0.0);
            let mut destinations: Vec<usize> = self.relation.reverse.row(j).iter().map(|&i| i as usize).collect();
            // Parallel edges are found in their row.
            destinations.dedup();
            for i in destinations.into_iter().filter(|&i| self.keeps(i, j)) {
                let attended = self.attend(i, head);
                for entry in self.kept(i).filter(|&(_, source)| source == j) {
                    let (weight, dz) = self.edge_gradient(i, entry, head, &attended);
                    add(&mut part, weight, self.g.head(i, head, self.channels()));
                    score_gradient += dz;
                }
            }
            add(&mut part, score_gradient, self.attention_src.row(head));
            gradient.extend(part);
        }
        gradient
    }

    /// Row `i` of the gradient of the destination features.
    pub fn destination_gradient(&self, i: usize) -> Vec<f64> {
        let mut gradient = Vec::with_capacity(self.h_dst.width);
        for head in 0..self.heads {
            let attended = self.attend(i, head);
            let score_gradient: f64 = self.kept(i).map(|entry| self.edge_gradient(i, entry, head, &attended).1).sum();
            gradient.extend(self.attention_dst.row(head).iter().map(|a| score_gradient * f64::from(*a)));
        }
        gradient
    }
}

fn add(sum: &mut [f64], factor: f64, row: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(row) {
        *sum += factor * f64::from(*value);
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::graph::{HeteroGraph, RelationSpec};

    /// Three destinations (one without edges, one with a double edge), four sources.
    pub fn relation() -> HeteroGraph {
        let adjacency = Adjacency::new(vec![0, 3, 3, 6], vec![0, 1, 3, 1, 2, 2], 4).unwrap();
        let spec = RelationSpec::new("r", 1, 0, adjacency);
        HeteroGraph::new(vec![("d".into(), 3), ("s".into(), 4)], vec![spec]).unwrap()
    }

    pub fn values(len: usize, seed: u64) -> Vec<f32> {
        (0..len as u64).map(|k| ((k * 7919 + seed * 104_729) % 1013) as f32 / 506.0 - 1.0).collect()
    }

    #[test]
    fn gradients_of_attention_are_those_of_small_steps() {
        let (graph, channels, heads) = (relation(), 3, 2);
        let width = channels * heads;
        let (h_src, h_dst, g) = (values(4 * width, 1), values(3 * width, 2), values(3 * width, 3));
        let vectors = [values(width, 4), values(width, 5)];
        let carried = [values(6 * 4, 6), values(heads * 4, 7)];
        for (drop_edge, edges) in [(None, false), (DropEdge::new(0.3, 1, 0, 0, 0), false), (None, true)] {
            let attention = |h_src: &[f32], h_dst: &[f32], read: &dyn Fn(&Attention) -> Vec<f64>| {
                let matrix = |values, width| Matrix { values, width };
                read(&Attention {
                    relation: &graph.relations()[0],
                    heads,
                    negative_slope: 0.2,
                    drop_edge,
                    h_src: matrix(h_src, width),
                    h_dst: matrix(h_dst, width),
                    g: matrix(&g, width),
                    attention_src: matrix(&vectors[0], channels),
                    attention_dst: matrix(&vectors[1], channels),
                    edges: edges.then(|| [matrix(&carried[0], 4), matrix(&carried[1], 4)]),
                })
            };
            // <g, out> as a function of the features.
            let loss = |h_src: &[f32], h_dst: &[f32]| -> f64 {
                let out = attention(h_src, h_dst, &|a| (0..3).flat_map(|i| a.forward(i)).collect());
                out.iter().zip(&g).map(|(out, g)| out * f64::from(*g)).sum()
            };
            let sources = attention(&h_src, &h_dst, &|a| (0..4).flat_map(|j| a.source_gradient(j)).collect());
            let destinations = attention(&h_src, &h_dst, &|a| (0..3).flat_map(|i| a.destination_gradient(i)).collect());
            let step = |values: &[f32], at: usize, by: f32| {
                let mut values = values.to_vec();
                values[at] += by;
                values
            };
            let by = 1.0 / 256.0;
            for (at, analytic) in sources.iter().enumerate() {
                let numeric = loss(&step(&h_src, at, by), &h_dst) - loss(&step(&h_src, at, -by), &h_dst);
                assert!((numeric / f64::from(2.0 * by) - analytic).abs() < 1e-4, "source {at}");
            }
            for (at, analytic) in destinations.iter().enumerate() {
                let numeric = loss(&h_src, &step(&h_dst, at, by)) - loss(&h_src, &step(&h_dst, at, -by));
                assert!((numeric / f64::from(2.0 * by) - analytic).abs() < 1e-4, "destination {at}");
            }
        }
    }

    #[test]
    fn products_are_those_computed_by_hand() {
        let x = Matrix { values: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], width: 2 };
        let w = Matrix { values: &[1.0, 0.0, 2.0, 0.0, 1.0, -1.0], width: 3 };
        assert_eq!(product(x, w, 1), [3.0, 4.0, 2.0]);
        let g = Matrix { values: &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0], width: 3 };
        assert_eq!(product_transposed(g, w, 2), [3.0, 0.0]);
        assert_eq!(weight_gradient(x, g, 1), [8.0, 10.0, 6.0]);
        assert_eq!(elu_gradient(x, x, 1), [3.0, 4.0]);
        let graph = relation();
        let sources = Matrix { values: &[1.0, 10.0, 100.0, 1000.0], width: 1 };
        let sums: Vec<f64> = (0..3).flat_map(|i| spmm(&graph.relations()[0].forward, sources, i)).collect();
        assert_eq!(sums, [1011.0, 0.0, 210.0]);
    }

    #[test]
    fn the_error_is_relative_to_the_largest_value_and_sees_what_is_no_number() {
        assert_eq!(error(&[1.0, 4.0], &[1.5, 4.0]), 0.125);
        assert_eq!(error(&[0.5], &[0.0]), 0.5);
        assert_eq!(error(&[f32::NAN, 1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(error(&[], &[]), 0.0);
    }
}
