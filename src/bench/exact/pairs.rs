//! Rows of attention with a score behind the non-linearity, and of its gradients.

use super::{Matrix, add, dot};
use crate::graph::Relation;

/// Attention over one relation; the formulas are those of [`graphsieve_kernels::gatv2`].
pub struct PairAttention<'a> {
    pub relation: &'a Relation,
    pub negative_slope: f64,
    pub src: Matrix<'a>,
    pub dst: Matrix<'a>,
    /// Gradient of the result.
    pub g: Matrix<'a>,
    /// One row per head.
    pub attention: Matrix<'a>,
    /// Values of every entry of the relation, and their projection, one row per value.
    pub edges: Option<[Matrix<'a>; 2]>,
}

/// What row `i` knows of its softmax: by head the logarithm of its denominator, and its result.
type Attended = (Vec<f64>, Vec<f64>);

impl PairAttention<'_> {
    fn channels(&self) -> usize {
        self.attention.width
    }

    fn heads(&self) -> usize {
        self.src.width / self.channels()
    }

    /// Entries of a row, and their sources.
    fn entries(&self, i: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let sources = self.relation.forward.row(i).iter().map(|&j| j as usize);
        self.relation.forward.entries(i).zip(sources)
    }

    /// What stands before the leaky ReLU of entry `e` between `i` and `j`.
    fn hidden(&self, i: usize, (e, j): (usize, usize)) -> Vec<f64> {
        let mut hidden = vec![0.0; self.src.width];
        add(&mut hidden, 1.0, self.src.row(j));
        add(&mut hidden, 1.0, self.dst.row(i));
        if let Some([values, weight]) = self.edges {
            for (k, &value) in values.row(e).iter().enumerate() {
                add(&mut hidden, f64::from(value), weight.row(k));
            }
        }
        hidden
    }

    /// The derivative of the leaky ReLU.
    fn slope(&self, hidden: f64) -> f64 {
        if hidden > 0.0 { 1.0 } else { self.negative_slope }
    }

    /// The score of a head.
    fn score(&self, hidden: &[f64], head: usize) -> f64 {
        let hidden = &hidden[head * self.channels()..][..self.channels()];
        hidden.iter().zip(self.attention.row(head)).map(|(&u, &a)| u * self.slope(u) * f64::from(a)).sum()
    }

    fn attend(&self, i: usize) -> Attended {
        let (heads, channels) = (self.heads(), self.channels());
        let of_entry = |entry: (usize, usize)| {
            let hidden = self.hidden(i, entry);
            (0..heads).map(|head| self.score(&hidden, head)).collect()
        };
        let scores: Vec<Vec<f64>> = self.entries(i).map(of_entry).collect();
        let mut out = vec![0.0; self.src.width];
        let mut of_head = |head: usize| {
            let largest = scores.iter().fold(f64::NEG_INFINITY, |largest, z| largest.max(z[head]));
            let log_sum_exp = largest + scores.iter().map(|z| (z[head] - largest).exp()).sum::<f64>().ln();
            for (z, (_, j)) in scores.iter().zip(self.entries(i)) {
                let out = &mut out[head * channels..][..channels];
                add(out, (z[head] - log_sum_exp).exp(), self.src.head(j, head, channels));
            }
            log_sum_exp
        };
        let log_sum_exp = (0..heads).map(&mut of_head).collect();
        (log_sum_exp, out)
    }

    /// Row `i` of the result.
    pub fn forward(&self, i: usize) -> Vec<f64> {
        self.attend(i).1
    }

    /// The attention of an entry by head, and the gradient of what stands before the leaky ReLU.
    fn entry(&self, i: usize, entry: (usize, usize), (log_sum_exp, out): &Attended) -> (Vec<f64>, Vec<f64>) {
        let (hidden, channels) = (self.hidden(i, entry), self.channels());
        let mut gradient = Vec::with_capacity(hidden.len());
        let of_head = |head: usize| {
            let g = self.g.head(i, head, channels);
            let own = &out[head * channels..][..channels];
            let centre: f64 = g.iter().zip(own).map(|(&g, out)| f64::from(g) * out).sum();
            let weight = (self.score(&hidden, head) - log_sum_exp[head]).exp();
            let dz = weight * (dot(g, self.src.head(entry.1, head, channels)) - centre);
            let hidden = &hidden[head * channels..][..channels];
            let attention = self.attention.row(head);
            gradient.extend(hidden.iter().zip(attention).map(|(&u, &a)| dz * f64::from(a) * self.slope(u)));
            weight
        };
        let weights = (0..self.heads()).map(of_head).collect();
        (weights, gradient)
    }

    /// Row `i` of the gradient of the destinations.
    pub fn destination_gradient(&self, i: usize) -> Vec<f64> {
        let attended = self.attend(i);
        let mut sum = vec![0.0; self.dst.width];
        for entry in self.entries(i) {
            let (_, gradient) = self.entry(i, entry, &attended);
            sum.iter_mut().zip(gradient).for_each(|(sum, part)| *sum += part);
        }
        sum
    }

    /// Row `j` of the gradient of the sources.
    pub fn source_gradient(&self, j: usize) -> Vec<f64> {
        let channels = self.channels();
        let mut sum = vec![0.0; self.src.width];
        let mut destinations: Vec<usize> = self.relation.reverse.row(j).iter().map(|&i| i as usize).collect();
        // Parallel edges are found in their row.
        destinations.dedup();
        for i in destinations {
            let attended = self.attend(i);
            for entry in self.entries(i).filter(|&(_, source)| source == j) {
                let (weights, gradient) = self.entry(i, entry, &attended);
                sum.iter_mut().zip(gradient).for_each(|(sum, part)| *sum += part);
                for (head, weight) in weights.into_iter().enumerate() {
                    add(&mut sum[head * channels..][..channels], weight, self.g.head(i, head, channels));
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::exact::tests::{relation, values};

    #[test]
    fn gradients_are_those_of_small_steps() {
        let (graph, channels, heads) = (relation(), 3, 2);
        let width = channels * heads;
        let (src, dst, g) = (values(4 * width, 1), values(3 * width, 2), values(3 * width, 3));
        let (vectors, carried) = (values(width, 4), [values(6 * 4, 6), values(4 * width, 7)]);
        for edges in [false, true] {
            let attention = |src: &[f32], dst: &[f32], read: &dyn Fn(&PairAttention) -> Vec<f64>| {
                let matrix = |values, width| Matrix { values, width };
                read(&PairAttention {
                    relation: &graph.relations()[0],
                    negative_slope: 0.2,
                    src: matrix(src, width),
                    dst: matrix(dst, width),
                    g: matrix(&g, width),
                    attention: matrix(&vectors, channels),
                    edges: edges.then(|| [matrix(&carried[0], 4), matrix(&carried[1], width)]),
                })
            };
            // <g, out> as a function of the features.
            let loss = |src: &[f32], dst: &[f32]| -> f64 {
                let out = attention(src, dst, &|a| (0..3).flat_map(|i| a.forward(i)).collect());
                out.iter().zip(&g).map(|(out, g)| out * f64::from(*g)).sum()
            };
            let sources = attention(&src, &dst, &|a| (0..4).flat_map(|j| a.source_gradient(j)).collect());
            let destinations = attention(&src, &dst, &|a| (0..3).flat_map(|i| a.destination_gradient(i)).collect());
            // So small that no hidden layer changes its sign.
            let by = 1.0 / 16_384.0;
            let step = |values: &[f32], at: usize, by: f32| {
                let mut values = values.to_vec();
                values[at] += by;
                values
            };
            for (at, analytic) in sources.iter().enumerate() {
                let numeric = loss(&step(&src, at, by), &dst) - loss(&step(&src, at, -by), &dst);
                assert!((numeric / f64::from(2.0 * by) - analytic).abs() < 1e-3, "source {at}");
            }
            for (at, analytic) in destinations.iter().enumerate() {
                let numeric = loss(&src, &step(&dst, at, by)) - loss(&src, &step(&dst, at, -by));
                assert!((numeric / f64::from(2.0 * by) - analytic).abs() < 1e-3, "destination {at}");
            }
        }
    }
}
